/** @file llm.c's token shards: llmc/dataloader.h and dev/data/data_common.py of github.com/karpathy/llm.c.
 * 256 int32, of which the first three are these and the rest zeros; then uint16 tokens. Private to io. */
#ifndef DDP_LLMC_INTERNAL_H_
#define DDP_LLMC_INTERNAL_H_

#include <stddef.h>

#define DDP_LLMC_MAGIC        20240520
#define DDP_LLMC_VERSION      1
#define DDP_LLMC_HEADER_BYTES ((size_t)1024)

#endif
