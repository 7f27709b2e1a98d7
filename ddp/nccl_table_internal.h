/**
 * @file The functions of NCCL that are used, as one table: filled by dlopen (nccl_load.c), or at link time by
 * the tests' stand-in. Private.
 */
#ifndef DDP_NCCL_TABLE_INTERNAL_H_
#define DDP_NCCL_TABLE_INTERNAL_H_

#include <nccl.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(name) for what every version has; Y(name) for what may be missing (since 2.19). */
#define DDP_NCCL_LIST(X, Y)                                                                                  \
    X(GetVersion)                                                                                            \
    X(GetUniqueId)                                                                                           \
    X(GetErrorString)                                                                                        \
    X(GetLastError)                                                                                          \
    X(CommInitRankConfig)                                                                                    \
    X(CommGetAsyncError)                                                                                     \
    X(CommFinalize)                                                                                          \
    X(CommDestroy)                                                                                           \
    X(CommAbort)                                                                                             \
    X(AllReduce)                                                                                             \
    X(AllGather)                                                                                             \
    X(ReduceScatter)                                                                                         \
    X(Broadcast)                                                                                             \
    X(Send)                                                                                                  \
    X(Recv)                                                                                                  \
    X(GroupStart)                                                                                            \
    X(GroupEnd)                                                                                              \
    Y(MemAlloc)                                                                                              \
    Y(MemFree)                                                                                               \
    Y(CommRegister)                                                                                          \
    Y(CommDeregister)

typedef struct ddp_nccl_table {
#define DDP_NCCL_MEMBER(name) __typeof__(nccl##name) *name;
    DDP_NCCL_LIST(DDP_NCCL_MEMBER, DDP_NCCL_MEMBER)
#undef DDP_NCCL_MEMBER
} ddp_nccl_table_t;

/** Loaded once, kept until the process ends. @return DDP_ERR_UNSUPPORTED with the reason, one line */
ddp_status_t ddp_nccl_load(const ddp_nccl_table_t **table_p);

#ifdef __cplusplus
}
#endif

#endif
