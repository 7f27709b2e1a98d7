#include "io/tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/progressed.h"
#include "io/file_internal.h"
#include "io/llmc_internal.h"
#include "io/source_internal.h"
#include "io/tokens_h5_internal.h"

#define END_BYTES ((size_t)64) /* of an end of a shard, or a place in it, for the digest */
#define PLACES    ((size_t)64) /* that the digest looks at, from end to end */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tokens are read as they lie in the file");

typedef struct shard {
    char                *path; /* owned */
    const unsigned char *map;  /* owned; NULL: none */
    size_t               map_bytes;
    ddp_tokens_h5_t     *h5;     /* owned; NULL: none */
    size_t               offset; /* of token 0 */
    uint64_t             rows;   /* of an HDF5 array; else 1 */
    uint64_t             count;  /* tokens of a row */
    size_t               first;  /* sequence, counted over all shards */
} shard_t;

struct ddp_tokens {
    ddp_tokens_params_t params; /* without the path */
    ddp_tokens_info_t   info;
    size_t              width;  /* bytes of a token */
    shard_t            *shards; /* owned */
    size_t              first;  /* sequence of the shards with which the split begins */
};

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b); /* glob() would follow the user's language */
}

static ddp_status_t take_paths(ddp_tokens_t *tokens, char *const *paths, size_t n)
{
    ddp_status_t status = DDP_OK;

    tokens->shards = calloc(n, sizeof(*tokens->shards));
    DDP_REQUIRE(tokens->shards != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu shards", n);
    tokens->info.shards = n;
    for (size_t i = 0; i < n; i++) {
        tokens->shards[i].path = strdup(paths[i]);
        DDP_REQUIRE(tokens->shards[i].path != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu shards", n);
    }
out:
    return status;
}

/* The file of this very name, else all that match. */
static ddp_status_t find_shards(ddp_tokens_t *tokens, const char *path)
{
    ddp_status_t status = DDP_OK;
    glob_t       found  = {.gl_pathc = 0};
    char        *only   = NULL;
    struct stat  st;
    int          code = 0;

    if (stat(path, &st) == 0) {
        only = strdup(path);
        DDP_REQUIRE(only != NULL, DDP_ERR_NO_MEMORY, "no memory for a path");
        DDP_TRY(take_paths(tokens, &only, 1));
        goto out;
    }
    code = glob(path, GLOB_NOSORT, NULL, &found);
    DDP_REQUIRE(code != GLOB_NOSPACE, DDP_ERR_NO_MEMORY, "no memory to look for '%s'", path);
    DDP_REQUIRE(code == 0 && found.gl_pathc > 0, DDP_ERR_IO, "'%s': no such file, and none matches", path);
    qsort(found.gl_pathv, found.gl_pathc, sizeof(found.gl_pathv[0]), by_name);
    DDP_TRY(take_paths(tokens, found.gl_pathv, found.gl_pathc));
out:
    free(only);
    globfree(&found);
    return status;
}

static ddp_status_t map_shard(shard_t *shard)
{
    ddp_status_t status = DDP_OK;
    int          fd     = open(shard->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not block */
    void        *map;
    struct stat  st;

    if (fd < 0 || fstat(fd, &st) != 0) {
        DDP_TRY(ddp_fail_path(shard->path, errno, ""));
    }
    DDP_REQUIRE(S_ISREG(st.st_mode), DDP_ERR_IO, "'%s': %s, not a regular file", shard->path,
                S_ISDIR(st.st_mode) ? "a folder" : "a device or pipe");
    DDP_REQUIRE(st.st_size > 0, DDP_ERR_FORMAT, "'%s': expected tokens, found an empty file", shard->path);
    map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        DDP_TRY(ddp_fail_path(shard->path, errno, " (mmap)"));
    }
    shard->map       = map;
    shard->map_bytes = (size_t)st.st_size;
out:
    if (fd >= 0) {
        (void)close(fd); /* the mapping stays */
    }
    return status;
}

static ddp_status_t check_llmc(shard_t *shard)
{
    ddp_status_t status = DDP_OK;
    uint32_t     header[3];
    uint64_t     expected;

    DDP_REQUIRE(shard->map_bytes >= DDP_LLMC_HEADER_BYTES, DDP_ERR_FORMAT,
                "'%s': cut short: expected a header of %zu bytes, found %zu", shard->path,
                DDP_LLMC_HEADER_BYTES, shard->map_bytes);
    memcpy(header, shard->map, sizeof(header));
    DDP_REQUIRE(header[0] == DDP_LLMC_MAGIC, DDP_ERR_FORMAT,
                "'%s': offset 0: expected %d, with which llm.c's shards begin, found %ld", shard->path,
                DDP_LLMC_MAGIC, (long)(int32_t)header[0]);
    DDP_REQUIRE(header[1] == DDP_LLMC_VERSION, DDP_ERR_FORMAT,
                "'%s': offset 4: expected version %d (uint16 tokens), found %ld", shard->path,
                DDP_LLMC_VERSION, (long)(int32_t)header[1]);
    shard->offset = DDP_LLMC_HEADER_BYTES;
    shard->count  = header[2];
    expected      = DDP_LLMC_HEADER_BYTES + shard->count * sizeof(uint16_t);
    DDP_REQUIRE(shard->map_bytes >= expected, DDP_ERR_FORMAT,
                "'%s': cut short: offset 8 promises %llu tokens: expected %llu bytes, found %zu", shard->path,
                (unsigned long long)shard->count, (unsigned long long)expected, shard->map_bytes);
    DDP_REQUIRE(
        shard->map_bytes == expected, DDP_ERR_FORMAT,
        "'%s': offset %llu: expected the end of the file after %llu tokens, found %llu bytes left over",
        shard->path, (unsigned long long)expected, (unsigned long long)shard->count,
        (unsigned long long)(shard->map_bytes - expected));
out:
    return status;
}

static ddp_status_t open_shard(const ddp_tokens_t *tokens, shard_t *shard, const char *name)
{
    ddp_status_t status = DDP_OK;

    shard->rows = 1;
    if (tokens->params.format == DDP_TOKENS_HDF5) {
        DDP_TRY(ddp_tokens_h5_open(shard->path, name != NULL ? name : "tokens", &shard->h5, &shard->rows,
                                   &shard->count));
        goto out;
    }
    DDP_TRY(map_shard(shard));
    if (tokens->params.format == DDP_TOKENS_LLMC) {
        DDP_TRY(check_llmc(shard));
        goto out;
    }
    DDP_REQUIRE(shard->map_bytes % tokens->width == 0, DDP_ERR_FORMAT,
                "'%s': cut short, or of another type: expected a multiple of %zu bytes, found %zu",
                shard->path, tokens->width, shard->map_bytes);
    shard->count = shard->map_bytes / tokens->width;
out:
    return status;
}

/* Sizes, and the first and the last tokens. */
static ddp_status_t digest_h5(const shard_t *shard, uint64_t *digest_p)
{
    ddp_status_t   status  = DDP_OK;
    const size_t   n       = shard->count < END_BYTES ? (size_t)shard->count : END_BYTES;
    const uint64_t rows[]  = {0, shard->rows - 1};
    const uint64_t first[] = {0, shard->count - n};
    uint64_t       digest  = ddp_source_hash(ddp_source_hash(*digest_p, shard->rows), shard->count);
    int32_t        ends[END_BYTES];

    for (int end = 0; end < 2; end++) {
        DDP_TRY(ddp_tokens_h5_read(shard->h5, rows[end], first[end], n, ends));
        for (size_t i = 0; i < n; i++) {
            digest = ddp_source_hash(digest, (uint32_t)ends[i]);
        }
    }
    *digest_p = digest;
out:
    return status;
}

static uint64_t digest_mapped(uint64_t digest, const shard_t *shard)
{
    const size_t last = shard->map_bytes > END_BYTES ? shard->map_bytes - END_BYTES : 0;

    digest = ddp_source_hash(digest, shard->map_bytes);
    for (size_t place = 0; place < PLACES; place++) {
        const size_t first = last / (PLACES - 1) * place + last % (PLACES - 1) * place / (PLACES - 1);

        for (size_t i = first; i < first + END_BYTES && i < shard->map_bytes; i++) {
            digest = ddp_source_hash(digest, shard->map[i]);
        }
        ddp_progressed(); /* a slow disk brings each place by itself */
    }
    return digest;
}

static uint64_t sequences_of_row(const ddp_tokens_t *tokens, const shard_t *shard)
{
    return shard->count > 0 ? (shard->count - 1) / tokens->params.context : 0;
}

/* Number the sequences through all shards; take those of the split. */
static ddp_status_t count_sequences(ddp_tokens_t *tokens)
{
    ddp_status_t status  = DDP_OK;
    const size_t context = tokens->params.context;
    const double share   = tokens->params.val_fraction;
    uint64_t     longest = 0;
    size_t       all     = 0;
    size_t       test;

    tokens->info.digest = DDP_SOURCE_HASH_START;
    for (size_t i = 0; i < tokens->info.shards; i++) {
        shard_t *shard = &tokens->shards[i];

        shard->first = all;
        all += (size_t)(shard->rows * sequences_of_row(tokens, shard));
        longest = shard->count > longest ? shard->count : longest;
        tokens->info.tokens += shard->rows * shard->count;
        if (shard->h5 != NULL) {
            DDP_TRY(digest_h5(shard, &tokens->info.digest));
        } else {
            tokens->info.digest = digest_mapped(tokens->info.digest, shard);
        }
    }
    DDP_REQUIRE(all > 0, DDP_ERR_CONFIG,
                "'%s': context %zu is longer than the data: expected %zu tokens or more, found %llu%s",
                tokens->shards[0].path, context, context + 1, (unsigned long long)longest,
                tokens->shards[0].rows > 1 ? " in a row"
                : tokens->info.shards > 1  ? " in the longest shard"
                                           : "");
    tokens->info.sequences = all;
    if (share > 0.0) {
        DDP_REQUIRE(all >= 2, DDP_ERR_CONFIG,
                    "'%s': context %zu makes one sequence, which cannot be split into training and test data",
                    tokens->shards[0].path, context);
        test                   = (size_t)llround(share * (double)all);
        test                   = test < 1 ? 1 : test >= all ? all - 1 : test;
        tokens->first          = tokens->params.split == DDP_SPLIT_TEST ? all - test : 0;
        tokens->info.sequences = tokens->params.split == DDP_SPLIT_TEST ? test : all - test;
    }
    if (tokens->params.samples > 0 && tokens->params.samples < tokens->info.sequences) {
        tokens->info.sequences = tokens->params.samples;
    }
out:
    return status;
}

static ddp_tokens_format_t format_of_name(const char *path)
{
    static const struct {
        const char         *ending;
        ddp_tokens_format_t format;
    } endings[]     = {{".bin", DDP_TOKENS_UINT16},
                       {".u16", DDP_TOKENS_UINT16},
                       {".uint16", DDP_TOKENS_UINT16},
                       {".u32", DDP_TOKENS_UINT32},
                       {".uint32", DDP_TOKENS_UINT32}};
    const char *dot = strrchr(path, '.');

    for (size_t i = 0; dot != NULL && i < sizeof(endings) / sizeof(endings[0]); i++) {
        if (strcmp(dot, endings[i].ending) == 0) {
            return endings[i].format;
        }
    }
    return DDP_TOKENS_TEXT;
}

ddp_status_t ddp_tokens_detect(const char *path, ddp_tokens_format_t *format_p)
{
    ddp_status_t  status = DDP_OK;
    ddp_tokens_t *tokens = calloc(1, sizeof(*tokens));
    shard_t      *shard;
    uint32_t      magic = 0;

    DDP_REQUIRE(tokens != NULL, DDP_ERR_NO_MEMORY, "no memory for token data");
    DDP_TRY(find_shards(tokens, path));
    shard = &tokens->shards[0];
    DDP_TRY(map_shard(shard));
    memcpy(&magic, shard->map, shard->map_bytes < sizeof(magic) ? shard->map_bytes : sizeof(magic));
    *format_p = magic == DDP_LLMC_MAGIC ? DDP_TOKENS_LLMC : format_of_name(shard->path);
    if (shard->map_bytes >= strlen(DDP_TOKENS_H5_MAGIC) &&
        memcmp(shard->map, DDP_TOKENS_H5_MAGIC, strlen(DDP_TOKENS_H5_MAGIC)) == 0) {
        *format_p = DDP_TOKENS_HDF5;
    }
out:
    ddp_tokens_close(&tokens);
    return status;
}

static ddp_status_t check_params(const ddp_tokens_params_t *params)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(params->struct_size == sizeof(*params), DDP_ERR_INVALID_ARG,
                "token parameters not made with DDP_TOKENS_PARAMS_INIT");
    DDP_REQUIRE(params->format >= DDP_TOKENS_LLMC && params->format <= DDP_TOKENS_TEXT, DDP_ERR_INVALID_ARG,
                "token format %d is unknown", (int)params->format);
    DDP_REQUIRE(params->split == DDP_SPLIT_TRAIN || params->split == DDP_SPLIT_TEST, DDP_ERR_INVALID_ARG,
                "split %d is unknown", (int)params->split);
    DDP_REQUIRE(params->path != NULL && params->path[0] != '\0', DDP_ERR_CONFIG,
                "data.path is missing: a file, or a pattern of files");
    DDP_REQUIRE(params->context > 0 && params->context < INT32_MAX && params->vocab > 0, DDP_ERR_CONFIG,
                "context %zu and vocabulary %zu must be 1 or more", params->context, params->vocab);
    DDP_REQUIRE(params->format != DDP_TOKENS_TEXT || params->vocab >= DDP_TOKENS_BYTES, DDP_ERR_CONFIG,
                "vocabulary %zu is too small for text, which needs %d", params->vocab, DDP_TOKENS_BYTES);
    DDP_REQUIRE(params->val_fraction >= 0.0 && params->val_fraction < 1.0, DDP_ERR_CONFIG,
                "data.val_fraction is %g; 0 <= value < 1", params->val_fraction);
out:
    return status;
}

ddp_status_t ddp_tokens_open(const ddp_tokens_params_t *params, ddp_tokens_t **tokens_p)
{
    static const size_t widths[] = {2, 2, 4, 0, 1}; /* by format */
    ddp_status_t        status   = DDP_OK;
    ddp_tokens_t       *tokens   = NULL;

    DDP_TRY(check_params(params));
    tokens = calloc(1, sizeof(*tokens));
    DDP_REQUIRE(tokens != NULL, DDP_ERR_NO_MEMORY, "no memory for token data");
    tokens->params       = *params;
    tokens->params.path  = NULL;
    tokens->params.name  = NULL;
    tokens->width        = widths[params->format];
    tokens->info.context = params->context;
    DDP_TRY(find_shards(tokens, params->path));
    for (size_t i = 0; i < tokens->info.shards; i++) {
        DDP_TRY(open_shard(tokens, &tokens->shards[i], params->name));
        ddp_progressed();
    }
    DDP_TRY(count_sequences(tokens));
    snprintf(tokens->info.source, sizeof(tokens->info.source), "%s (%zu shard%s)", params->path,
             tokens->info.shards, tokens->info.shards > 1 ? "s" : "");
    *tokens_p = tokens;
    tokens    = NULL;
out:
    ddp_tokens_close(&tokens);
    return status;
}

void ddp_tokens_close(ddp_tokens_t **tokens_p)
{
    ddp_tokens_t *tokens = *tokens_p;

    if (tokens == NULL) {
        return;
    }
    for (size_t i = 0; tokens->shards != NULL && i < tokens->info.shards; i++) {
        shard_t *shard = &tokens->shards[i];

        if (shard->map != NULL) {
            (void)munmap((void *)(uintptr_t)shard->map, shard->map_bytes);
        }
        ddp_tokens_h5_close(&shard->h5);
        free(shard->path);
    }
    free(tokens->shards);
    free(tokens);
    *tokens_p = NULL;
}

const ddp_tokens_info_t *ddp_tokens_info(const ddp_tokens_t *tokens)
{
    return &tokens->info;
}

/* The last shard whose first sequence is not behind `sequence`; of shards without sequences, the one that has
 * it is the last of those with equal `first`. */
static const shard_t *find_shard(const ddp_tokens_t *tokens, size_t sequence)
{
    size_t low  = 0;
    size_t high = tokens->info.shards;

    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;

        if (tokens->shards[middle].first <= sequence) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &tokens->shards[low];
}

static uint32_t token_at(const unsigned char *data, size_t width, size_t i)
{
    uint16_t narrow;
    uint32_t wide;

    if (width == 1) {
        return data[i];
    }
    if (width == 2) {
        memcpy(&narrow, data + 2 * i, sizeof(narrow));
        return narrow;
    }
    memcpy(&wide, data + 4 * i, sizeof(wide));
    return wide;
}

static ddp_status_t fetch_mapped(const ddp_tokens_t *tokens, const shard_t *shard, size_t sequence,
                                 int32_t *inputs, int32_t *targets)
{
    ddp_status_t         status  = DDP_OK;
    const size_t         context = tokens->params.context;
    const size_t         width   = tokens->width;
    const size_t         offset  = shard->offset + sequence * context * width;
    const unsigned char *data    = shard->map + offset;

    for (size_t i = 0; i <= context; i++) {
        const uint32_t token = token_at(data, width, i);

        DDP_REQUIRE(token < tokens->params.vocab && token <= INT32_MAX, DDP_ERR_FORMAT,
                    "'%s': offset %zu: expected tokens below the vocabulary of %zu, found %lu", shard->path,
                    offset + i * width, tokens->params.vocab, (unsigned long)token);
        if (i < context) {
            inputs[i] = (int32_t)token;
        }
        if (i > 0) {
            targets[i - 1] = (int32_t)token;
        }
    }
out:
    return status;
}

/* Inputs and targets are the same tokens but for the first and the last. */
static ddp_status_t fetch_h5(const ddp_tokens_t *tokens, const shard_t *shard, size_t sequence,
                             int32_t *inputs, int32_t *targets)
{
    ddp_status_t   status  = DDP_OK;
    const size_t   context = tokens->params.context;
    const uint64_t a_row   = sequences_of_row(tokens, shard);
    const uint64_t row     = sequence / a_row;
    const uint64_t first   = sequence % a_row * context;

    DDP_TRY(ddp_tokens_h5_read(shard->h5, row, first, context, inputs));
    DDP_TRY(ddp_tokens_h5_read(shard->h5, row, first + context, 1, targets + context - 1));
    memcpy(targets, inputs + 1, (context - 1) * sizeof(*targets));
    for (size_t i = 0; i <= context; i++) {
        const int32_t token = i < context ? inputs[i] : targets[context - 1];

        /* INT32_MAX stands for all that int32 does not hold */
        DDP_REQUIRE(
            token >= 0 && token < INT32_MAX && (size_t)token < tokens->params.vocab, DDP_ERR_FORMAT,
            "'%s': data set '%s': row %llu, index %llu: expected tokens below the vocabulary of %zu, found "
            "%ld%s",
            shard->path, ddp_tokens_h5_name(shard->h5), (unsigned long long)row,
            (unsigned long long)(first + i), tokens->params.vocab, (long)token,
            token == INT32_MAX   ? " or more"
            : token == INT32_MIN ? " or less"
                                 : "");
    }
out:
    return status;
}

static ddp_status_t fetch_one(const ddp_tokens_t *tokens, size_t sequence, int32_t *inputs, int32_t *targets)
{
    const shard_t *shard = find_shard(tokens, sequence);

    return shard->h5 != NULL ? fetch_h5(tokens, shard, sequence - shard->first, inputs, targets)
                             : fetch_mapped(tokens, shard, sequence - shard->first, inputs, targets);
}

ddp_status_t ddp_tokens_fetch(const ddp_tokens_t *tokens, const size_t *index, size_t n, int32_t *inputs,
                              int32_t *targets)
{
    ddp_status_t status  = DDP_OK;
    const size_t context = tokens->params.context;

    for (size_t i = 0; i < n; i++) {
        DDP_TRY(fetch_one(tokens, tokens->first + index[i], inputs + i * context, targets + i * context));
        ddp_progressed();
    }
out:
    return status;
}
