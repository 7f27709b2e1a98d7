/** @file The order of samples: a pure function of seed, epoch and index. */
#ifndef DDP_SAMPLER_H_
#define DDP_SAMPLER_H_

#include <stddef.h>
#include <stdint.h>

#include "base/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Sample at position `i` of epoch `epoch`: a permutation of 0 .. samples - 1 for each (seed, epoch), drawn by
 * a keyed bijection (Feistel network over Philox rounds, cycle-walking), so nothing is stored and any
 * position is reached at once.
 * @param [in] i  < samples
 */
DDP_API size_t ddp_sampler_index(uint64_t seed, uint64_t epoch, size_t samples, size_t i);

/** Where global batch `step` (from 0, over all epochs) lies; the last batch of an epoch may be short and is
 * kept. */
typedef struct ddp_batch_range {
    uint64_t epoch;
    uint64_t batch_in_epoch;
    size_t   first; /* position in the epoch */
    size_t   count;
} ddp_batch_range_t;
DDP_API ddp_batch_range_t ddp_sampler_batch(size_t samples, size_t batch, uint64_t step);
/** @return batches in an epoch: ceil(samples / batch). */
DDP_API uint64_t ddp_sampler_batches(size_t samples, size_t batch);

#ifdef __cplusplus
}
#endif

#endif
