#include "io/token_writer.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/file_internal.h"
#include "io/llmc_internal.h"
#include "io/new_file_internal.h"

#define MAX_SHARDS  1000000 /* six digits */
#define PATH_SIZE   4096
#define TOKENS_ONCE ((size_t)4096)

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tokens are written as they lie in memory");

struct ddp_token_writer {
    char             path[PATH_SIZE];
    uint64_t         shard_tokens;
    ddp_new_file_t **shards; /* owned, [n]; the last is being written */
    size_t           n, size;
    uint64_t         written; /* tokens of the last */
};

static ddp_status_t shard_path(const char *path, size_t shard, char *name)
{
    char digits[32];

    snprintf(digits, sizeof(digits), "_%06zu", shard);
    return ddp_path_insert(path, digits, name, PATH_SIZE);
}

/* Shards that an earlier run has left would be taken for more of these. */
static ddp_status_t refuse_old_shards(const char *path)
{
    ddp_status_t status = DDP_OK;
    glob_t       found  = {.gl_pathc = 0};
    char         pattern[PATH_SIZE];

    DDP_TRY(ddp_path_insert(path, "_[0-9][0-9][0-9][0-9][0-9][0-9]", pattern, sizeof(pattern)));
    if (glob(pattern, 0, NULL, &found) == 0) {
        DDP_TRY(ddp_fail_path(found.gl_pathv[0], EEXIST, "; choose another name, nothing is written over"));
    }
out:
    globfree(&found);
    return status;
}

static ddp_status_t begin_shard(ddp_token_writer_t *writer)
{
    static const uint32_t header[DDP_LLMC_HEADER_BYTES / sizeof(uint32_t)] = {DDP_LLMC_MAGIC,
                                                                              DDP_LLMC_VERSION};
    ddp_status_t          status                                           = DDP_OK;
    ddp_new_file_t      **more;
    char                  name[PATH_SIZE];

    DDP_REQUIRE(writer->n < MAX_SHARDS, DDP_ERR_IO, "'%s': more than %d shards; make them larger",
                writer->path, MAX_SHARDS);
    if (writer->n == writer->size) {
        writer->size = writer->size > 0 ? 2 * writer->size : 16;
        more         = realloc(writer->shards, writer->size * sizeof(*more));
        DDP_REQUIRE(more != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu shards", writer->size);
        writer->shards = more;
    }
    DDP_TRY(shard_path(writer->path, writer->n, name));
    writer->shards[writer->n] = NULL;
    DDP_TRY(ddp_new_file_create(writer->n > 0 ? name : writer->path, &writer->shards[writer->n]));
    writer->n++;
    writer->written = 0;
    DDP_TRY(ddp_new_file_write(writer->shards[writer->n - 1], header, sizeof(header)));
out:
    return status;
}

/* Now that it is known, how many tokens there are. */
static ddp_status_t end_shard(ddp_token_writer_t *writer)
{
    ddp_status_t    status  = DDP_OK;
    ddp_new_file_t *shard   = writer->shards[writer->n - 1];
    const uint32_t  written = (uint32_t)writer->written;

    DDP_TRY(ddp_new_file_patch(shard, 2 * sizeof(uint32_t), &written, sizeof(written)));
    DDP_TRY(ddp_new_file_finish(shard));
out:
    return status;
}

ddp_status_t ddp_token_writer_create(const char *path, uint64_t shard_tokens, ddp_token_writer_t **writer_p)
{
    ddp_status_t        status = DDP_OK;
    ddp_token_writer_t *writer = calloc(1, sizeof(*writer));

    DDP_REQUIRE(writer != NULL, DDP_ERR_NO_MEMORY, "no memory to write tokens");
    DDP_REQUIRE(shard_tokens >= 2 && shard_tokens <= INT32_MAX, DDP_ERR_CONFIG,
                "a shard of %llu tokens; allowed are 2 .. %ld", (unsigned long long)shard_tokens,
                (long)INT32_MAX);
    DDP_REQUIRE(path[0] != '\0' && strlen(path) < PATH_SIZE - 32, DDP_ERR_IO,
                "'%s': empty or too long a path", path);
    memcpy(writer->path, path, strlen(path) + 1);
    writer->shard_tokens = shard_tokens;
    DDP_TRY(refuse_old_shards(path));
    DDP_TRY(begin_shard(writer));
    *writer_p = writer;
    writer    = NULL;
out:
    ddp_token_writer_close(&writer);
    return status;
}

ddp_status_t ddp_token_writer_write(ddp_token_writer_t *writer, const int32_t *tokens, size_t n)
{
    ddp_status_t status = DDP_OK;
    uint16_t     narrow[TOKENS_ONCE];

    while (n > 0) {
        const uint64_t room  = writer->shard_tokens - writer->written;
        size_t         count = n < TOKENS_ONCE ? n : TOKENS_ONCE;

        if (room == 0) {
            DDP_TRY(end_shard(writer));
            DDP_TRY(begin_shard(writer));
            continue;
        }
        count = count < room ? count : (size_t)room;
        for (size_t i = 0; i < count; i++) {
            DDP_REQUIRE(tokens[i] >= 0 && tokens[i] < DDP_TOKEN_WRITER_MAX_VOCAB, DDP_ERR_INVALID_ARG,
                        "token %ld does not fit in uint16", (long)tokens[i]);
            narrow[i] = (uint16_t)tokens[i];
        }
        DDP_TRY(ddp_new_file_write(writer->shards[writer->n - 1], narrow, count * sizeof(narrow[0])));
        writer->written += count;
        tokens += count;
        n -= count;
    }
out:
    return status;
}

ddp_status_t ddp_token_writer_finish(ddp_token_writer_t *writer, size_t *shards_p)
{
    ddp_status_t status = DDP_OK;
    char         name[PATH_SIZE];

    DDP_REQUIRE(writer->written > 0, DDP_ERR_FORMAT, "'%s': not a single token to write", writer->path);
    DDP_TRY(end_shard(writer));
    for (size_t i = 0; i < writer->n; i++) {
        DDP_TRY(shard_path(writer->path, i, name));
        DDP_TRY(ddp_new_file_publish(writer->shards[i], writer->n > 1 ? name : NULL));
    }
    if (shards_p != NULL) {
        *shards_p = writer->n;
    }
out:
    return status;
}

void ddp_token_writer_close(ddp_token_writer_t **writer_p)
{
    ddp_token_writer_t *writer = *writer_p;

    if (writer == NULL) {
        return;
    }
    for (size_t i = 0; i < writer->n; i++) {
        ddp_new_file_close(&writer->shards[i]);
    }
    free(writer->shards);
    free(writer);
    *writer_p = NULL;
}
