/* The user block: what is known of a file before HDF5 sees it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "io/checkpoint_format_internal.h"
#include "io/crc32c_internal.h"

#define MAGIC "ddptrain-checkpoint"

void ddp_checkpoint_header_write(const ddp_checkpoint_header_t *header,
                                 char                           block[DDP_CHECKPOINT_HEADER_BYTES])
{
    int length = snprintf(block, DDP_CHECKPOINT_HEADER_BYTES,
                          MAGIC " %u\nstep %" PRIu64 "\nsize %" PRIu64 "\ncrc32c %08" PRIx32 "\n",
                          header->version, header->step, header->bytes, header->crc);

    length += snprintf(block + length, DDP_CHECKPOINT_HEADER_BYTES - (size_t)length,
                       "header-crc32c %08" PRIx32 "\n", ddp_crc32c(0, block, (size_t)length));
    memset(block + length, 0, DDP_CHECKPOINT_HEADER_BYTES - (size_t)length);
}

/* The only text that these values have: writing it again must give the same block. */
ddp_status_t ddp_checkpoint_header_read(const char *path, const char block[DDP_CHECKPOINT_HEADER_BYTES],
                                        ddp_checkpoint_header_t *header_p)
{
    ddp_status_t            status = DDP_OK;
    ddp_checkpoint_header_t header = {0};
    char                    text[DDP_CHECKPOINT_HEADER_BYTES];
    char                    again[DDP_CHECKPOINT_HEADER_BYTES];

    memcpy(text, block, sizeof(text));
    text[sizeof(text) - 1] = '\0';
    DDP_REQUIRE(strncmp(text, MAGIC " ", sizeof(MAGIC)) == 0, DDP_ERR_FORMAT,
                "'%s': not a checkpoint of ddptrain (offset 0: expected '" MAGIC "')", path);
    DDP_REQUIRE(sscanf(text, MAGIC " %9u\nstep %19" SCNu64 "\nsize %19" SCNu64 "\ncrc32c %8" SCNx32 "\n",
                       &header.version, &header.step, &header.bytes, &header.crc) == 4,
                DDP_ERR_FORMAT, "'%s': damaged: its header cannot be read", path);
    ddp_checkpoint_header_write(&header, again);
    DDP_REQUIRE(memcmp(block, again, sizeof(again)) == 0, DDP_ERR_FORMAT,
                "'%s': damaged: its header's checksum is wrong", path);
    *header_p = header;
out:
    return status;
}
