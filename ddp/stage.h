/** @file Stages of a run: where a rank is, for the line that names it when it is lost. */
#ifndef DDP_STAGE_H_
#define DDP_STAGE_H_

#include "base/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, text): "in <text>". Append; values cross the network. */
#define DDP_STAGE_TABLE(X)                                                                                   \
    X(START, "start-up")                                                                                     \
    X(DATA, "loading of the data")                                                                           \
    X(BUILD, "set-up")                                                                                       \
    X(FORWARD, "forward")                                                                                    \
    X(BACKWARD, "backward")                                                                                  \
    X(REDUCE, "reduction")                                                                                   \
    X(UPDATE, "update")                                                                                      \
    X(EVAL, "evaluation")                                                                                    \
    X(SAVE, "saving")                                                                                        \
    X(SHUTDOWN, "shutdown")

typedef enum ddp_stage {
#define DDP_STAGE_ENUM(name, text) DDP_STAGE_##name,
    DDP_STAGE_TABLE(DDP_STAGE_ENUM)
#undef DDP_STAGE_ENUM
        DDP_STAGES
} ddp_stage_t;

/** "forward"; "unknown stage" for a number outside of the table; static. */
DDP_API const char *ddp_stage_name(int phase);

/** No bucket. */
#define DDP_NO_BUCKET 0xffffffffU

#ifdef __cplusplus
}
#endif

#endif
