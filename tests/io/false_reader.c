/* A reader of HDF5 that a hostile file has taken over: what it tells is in the environment's FALSE_READER. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/foreign_internal.h"

/* Four float32 that lie at the beginning of the file. */
static ddp_foreign_record_t honest(void)
{
    return (ddp_foreign_record_t){.magic = DDP_FOREIGN_MAGIC,
                                  .what  = DDP_FOREIGN_TENSOR,
                                  .ndim  = 2,
                                  .shape = {2, 2, 0, 0},
                                  .bytes = 16,
                                  .text  = "x"};
}

static void tell(const void *data, size_t bytes)
{
    if (write(DDP_FOREIGN_FD, data, bytes) != (ssize_t)bytes) {
        _Exit(1);
    }
}

static void end(void)
{
    ddp_foreign_record_t record = honest();

    record.what = DDP_FOREIGN_END;
    tell(&record, sizeof(record));
}

/* What is told of a file. */
static void list(const char *lie)
{
    ddp_foreign_record_t record = honest();
    size_t               bytes  = sizeof(record);
    int                  times  = 1;

    if (strcmp(lie, "noise") == 0) {
        memset(&record, 0xA5, sizeof(record));
    } else if (strcmp(lie, "half") == 0) {
        bytes /= 2;
    } else if (strcmp(lie, "magic") == 0) {
        record.magic++;
    } else if (strcmp(lie, "what") == 0) {
        record.what = 17;
    } else if (strcmp(lie, "type") == 0) {
        record.type = 99;
    } else if (strcmp(lie, "ndim") == 0) {
        record.ndim = 1000;
    } else if (strcmp(lie, "index") == 0) {
        record.index = 7;
    } else if (strcmp(lie, "far") == 0) {
        record.at = (uint64_t)1 << 40;
    } else if (strcmp(lie, "wrap") == 0) {
        record.at    = UINT64_MAX - 7;
        record.bytes = UINT64_MAX - 7;
    } else if (strcmp(lie, "long") == 0) {
        record.bytes = (uint64_t)1 << 40;
    } else if (strcmp(lie, "shape") == 0) {
        record.shape[0] = record.shape[1] = (uint64_t)1 << 33;
    } else if (strcmp(lie, "bomb") == 0) {
        record.is_packed = 1;
        record.shape[0]  = (uint64_t)1 << 40;
        record.bytes     = (uint64_t)1 << 43;
    } else if (strcmp(lie, "name") == 0) {
        snprintf(record.text, sizeof(record.text), "a\nddptrain: all is well");
    } else if (strcmp(lie, "text") == 0) {
        record.what = DDP_FOREIGN_FAILED;
        memset(record.text, '\n', sizeof(record.text)); /* without an end */
        record.text[0] = 'T';
    } else if (strcmp(lie, "many") == 0) {
        times = DDP_FOREIGN_TENSORS + 1;
    } else {
        record.is_packed = 1; /* the lie comes later */
    }
    for (int i = 0; i < times; i++) {
        if (times > 1) {
            record.index = (uint64_t)i;
        }
        tell(&record, bytes);
    }
    end();
}

/* What is sent of it. */
static void send_tensor(const char *lie)
{
    ddp_foreign_record_t record = honest();
    ddp_foreign_record_t block  = honest();
    const float          x[4]   = {1.0F, 2.0F, 3.0F, 4.0F};

    record.is_packed = 1;
    if (strcmp(lie, "other_size") == 0) {
        record.bytes = 32;
    } else if (strcmp(lie, "other_type") == 0) {
        record.type = DDP_WEIGHTS_F64;
    } else if (strcmp(lie, "other_tensor") == 0) {
        record.index = 1;
    }
    block.what = DDP_FOREIGN_BLOCK;
    if (strcmp(lie, "long_block") == 0) {
        block.bytes = 20;
    } else if (strcmp(lie, "no_block") == 0) {
        block.bytes = 0;
    } else if (strcmp(lie, "wide_block") == 0) {
        block.bytes = UINT64_MAX;
    } else if (strcmp(lie, "short_block") == 0) {
        block.bytes = 12;
    } else if (strcmp(lie, "fails") == 0) {
        block.what = DDP_FOREIGN_FAILED;
    }
    if (strcmp(lie, "none") != 0) {
        tell(&record, sizeof(record));
        tell(&block, sizeof(block));
        tell(x, strcmp(lie, "short_block") == 0 || strcmp(lie, "breaks_off") == 0 ? 12 : 16);
    }
    if (strcmp(lie, "breaks_off") != 0) {
        end();
    }
}

int main(int argc, char **argv)
{
    const char *lie = getenv("FALSE_READER");

    if (argc != DDP_FOREIGN_ARGS || strcmp(argv[1], DDP_FOREIGN_WORD) != 0 || lie == NULL) {
        return 2;
    }
    if (strcmp(lie, "nothing") == 0) {
        return 0;
    }
    if (strtoull(argv[3], NULL, 10) == DDP_FOREIGN_LIST) {
        list(lie);
    } else {
        send_tensor(lie);
    }
    if (strcmp(lie, "stays") == 0) {
        (void)pause();
    }
    return 0;
}
