/**
 * @file The shared memory of the block that runs: new, and full of NaNs, for each block.
 */
#ifndef DDP_SHARED_MEMORY_H_
#define DDP_SHARED_MEMORY_H_

#include <stddef.h>

/** Before a block: fills the first `bytes` of the dynamic array and all static arrays with 0xff; what lies
 * behind the dynamic bytes is poisoned for the address sanitizer. */
void cusim_shared_start(size_t bytes);
/** After the block. */
void cusim_shared_end(size_t bytes);

#endif /* DDP_SHARED_MEMORY_H_ */
