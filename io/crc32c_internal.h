/** @file CRC-32C (Castagnoli 1993; the polynomial of iSCSI, RFC 3720 appendix B.4). Private to io. */
#ifndef DDP_CRC32C_INTERNAL_H_
#define DDP_CRC32C_INTERNAL_H_

#include <stddef.h>
#include <stdint.h>

#include "base/export.h"

/** The sum of what `crc` is the sum of, followed by `bytes` of data. Begin with 0. Thread: any. */
DDP_API uint32_t ddp_crc32c(uint32_t crc, const void *data, size_t bytes);

/** The sum of two pieces, one after the other, from the sums of each; `second_bytes` is the second's length.
 */
DDP_API uint32_t ddp_crc32c_combine(uint32_t first, uint32_t second, uint64_t second_bytes);

#endif
