/** @file What tests ask the stand-in for a GPU that a GPU would not tell. */
#ifndef DDP_CUSIM_COUNTS_H_
#define DDP_CUSIM_COUNTS_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Launches so far of kernels whose name, as LAUNCH has it, contains `part`; of a captured graph only those
 * that went into it. */
size_t cusim_launches(const char *part);

#ifdef __cplusplus
}
#endif

#endif
