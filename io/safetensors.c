/* The format of the `safetensors` package (https://github.com/huggingface/safetensors, "Format"): 8 bytes,
 * the length n of the header, little-endian; n bytes of JSON, {"name": {"dtype", "shape", "data_offsets":
 * [begin, end]}, "__metadata__": {...}}; the tensors' bytes, which the offsets cover from 0 to the end
 * without a gap.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/error.h"
#include "io/file_internal.h"
#include "io/weights_internal.h"

#define MAX_HEADER     ((uint64_t)100 << 20) /* the package's own limit */
#define MAX_VALUES     ((size_t)1 << 22)     /* of JSON: each takes about a hundred bytes of memory */
#define MAX_WHOLE      9007199254740992.0    /* 2^53: JSON numbers are doubles here */
#define MAX_SHAPE      8                     /* dimensions that are parsed at all */
#define METADATA       "__metadata__"
#define METADATA_WRITE "{\"" METADATA "\":{\"format\":\"pt\"}"

/* Where a tensor's bytes are, for the check that they cover the file. */
typedef struct range {
    uint64_t    begin, end;
    const char *name; /* borrowed from the JSON */
} range_t;

static int by_begin(const void *a, const void *b)
{
    const range_t *x = a;
    const range_t *y = b;

    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return x->end < y->end ? -1 : x->end > y->end;
}

static ddp_status_t get_whole(const ddp_weights_t *w, const char *name, const cJSON *item, uint64_t *value_p)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(cJSON_IsNumber(item) && item->valuedouble >= 0.0 && item->valuedouble < MAX_WHOLE &&
                    item->valuedouble == (double)(uint64_t)item->valuedouble,
                DDP_ERR_FORMAT, "'%s': '%s': sizes and offsets are whole numbers >= 0", w->path, name);
    *value_p = (uint64_t)item->valuedouble;
out:
    return status;
}

static ddp_status_t get_list(const ddp_weights_t *w, const char *name, const cJSON *list, const char *what,
                             uint64_t *values, size_t room, size_t *n_p)
{
    ddp_status_t status = DDP_OK;
    size_t       n      = 0;

    DDP_REQUIRE(cJSON_IsArray(list), DDP_ERR_FORMAT, "'%s': '%s': no list '%s'", w->path, name, what);
    for (const cJSON *item = list->child; item != NULL; item = item->next) {
        DDP_REQUIRE(n < room, DDP_ERR_FORMAT, "'%s': '%s': '%s' has more than %zu entries", w->path, name,
                    what, room);
        DDP_TRY(get_whole(w, name, item, &values[n++]));
    }
    *n_p = n;
out:
    return status;
}

static ddp_status_t get_type(const ddp_weights_t *w, const char *name, const cJSON *item,
                             ddp_weights_type_t *type_p)
{
    static const struct {
        const char        *name;
        ddp_weights_type_t type;
    } types[] = {
        {"F32", DDP_WEIGHTS_F32},       {"F64", DDP_WEIGHTS_F64},       {"F16", DDP_WEIGHTS_F16},
        {"BF16", DDP_WEIGHTS_BF16},     {"BOOL", DDP_WEIGHTS_OTHER},    {"U8", DDP_WEIGHTS_OTHER},
        {"I8", DDP_WEIGHTS_OTHER},      {"F8_E5M2", DDP_WEIGHTS_OTHER}, {"F8_E4M3", DDP_WEIGHTS_OTHER},
        {"I16", DDP_WEIGHTS_OTHER},     {"U16", DDP_WEIGHTS_OTHER},     {"I32", DDP_WEIGHTS_OTHER},
        {"U32", DDP_WEIGHTS_OTHER},     {"I64", DDP_WEIGHTS_OTHER},     {"U64", DDP_WEIGHTS_OTHER},
        {"F8_E8M0", DDP_WEIGHTS_OTHER}, {"C64", DDP_WEIGHTS_OTHER},
    };

    for (size_t i = 0; cJSON_IsString(item) && i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcmp(item->valuestring, types[i].name) == 0) {
            *type_p = types[i].type;
            return DDP_OK;
        }
    }
    return ddp_fail(DDP_ERR_FORMAT, "'%s': '%s': unknown dtype '%.40s'", w->path, name,
                    cJSON_IsString(item) ? item->valuestring : "");
}

/* @param [in] data, bytes  where the tensors' bytes begin in the file, and how many there are */
static ddp_status_t take_tensor(ddp_weights_t *w, const cJSON *item, uint64_t data, uint64_t bytes,
                                range_t *range)
{
    ddp_status_t       status = DDP_OK;
    const char        *name   = item->string;
    ddp_weights_type_t type   = DDP_WEIGHTS_OTHER;
    uint64_t           shape[MAX_SHAPE];
    uint64_t           offsets[2];
    size_t             ndim      = 0;
    size_t             n_offsets = 0;

    DDP_REQUIRE(cJSON_IsObject(item), DDP_ERR_FORMAT, "'%s': '%.200s' is no tensor", w->path, name);
    DDP_TRY(get_type(w, name, cJSON_GetObjectItemCaseSensitive(item, "dtype"), &type));
    DDP_TRY(
        get_list(w, name, cJSON_GetObjectItemCaseSensitive(item, "shape"), "shape", shape, MAX_SHAPE, &ndim));
    DDP_TRY(get_list(w, name, cJSON_GetObjectItemCaseSensitive(item, "data_offsets"), "data_offsets", offsets,
                     2, &n_offsets));
    DDP_REQUIRE(n_offsets == 2 && offsets[0] <= offsets[1] && offsets[1] <= bytes, DDP_ERR_FORMAT,
                "'%s': '%s': its data_offsets are not within the file's %" PRIu64 " bytes of data", w->path,
                name, bytes);
    DDP_TRY(ddp_weights_add(w, name, type, shape, ndim, offsets[1] - offsets[0], 1, data + offsets[0]));
    *range = (range_t){offsets[0], offsets[1], name};
out:
    return status;
}

/* In order, each begins where the one before it ends. */
static ddp_status_t check_cover(const ddp_weights_t *w, range_t *ranges, size_t n, uint64_t bytes)
{
    ddp_status_t status = DDP_OK;
    uint64_t     at     = 0;

    qsort(ranges, n, sizeof(*ranges), by_begin);
    for (size_t i = 0; i < n; i++) {
        DDP_REQUIRE(ranges[i].begin == at, DDP_ERR_FORMAT,
                    "'%s': '%s' begins at byte %" PRIu64 " of the data, the one before it ends at %" PRIu64,
                    w->path, ranges[i].name, ranges[i].begin, at);
        at = ranges[i].end;
    }
    DDP_REQUIRE(at == bytes, DDP_ERR_FORMAT,
                "'%s': the tensors fill %" PRIu64 " of %" PRIu64 " bytes of data", w->path, at, bytes);
out:
    return status;
}

static ddp_status_t take_header(ddp_weights_t *w, const cJSON *json, uint64_t data)
{
    ddp_status_t   status = DDP_OK;
    const uint64_t bytes  = w->bytes - data;
    range_t       *ranges = NULL;
    size_t         n      = 0;

    DDP_REQUIRE(cJSON_IsObject(json), DDP_ERR_FORMAT, "'%s': its header is no JSON object", w->path);
    ranges = calloc((size_t)cJSON_GetArraySize(json) + 1, sizeof(*ranges));
    DDP_REQUIRE(ranges != NULL, DDP_ERR_NO_MEMORY, "no memory for '%s'", w->path);
    for (const cJSON *item = json->child; item != NULL; item = item->next) {
        if (strcmp(item->string, METADATA) != 0) {
            DDP_TRY(take_tensor(w, item, data, bytes, &ranges[n]));
            n++;
        }
    }
    DDP_TRY(check_cover(w, ranges, n, bytes));
out:
    free(ranges);
    return status;
}

/* Not many more values than there are of these. */
static size_t count_values(const char *text, size_t length)
{
    size_t n = 1;

    for (size_t i = 0; i < length; i++) {
        n += text[i] == ',' || text[i] == ':' || text[i] == '[' || text[i] == '{';
    }
    return n;
}

/* Behind the object come blanks alone. Escaped zeros would cut names short. */
static ddp_status_t parse(const ddp_weights_t *w, const char *text, size_t length, cJSON **json_p)
{
    ddp_status_t status = DDP_OK;
    const char  *end    = text;
    cJSON       *json   = NULL;

    DDP_REQUIRE(memchr(text, 0, length) == NULL && strstr(text, "\\u0000") == NULL, DDP_ERR_FORMAT,
                "'%s': zeros in its header", w->path);
    DDP_REQUIRE(count_values(text, length) <= MAX_VALUES, DDP_ERR_FORMAT,
                "'%s': its header has more than %zu values", w->path, MAX_VALUES);
    json = cJSON_ParseWithLengthOpts(text, length + 1, &end, 0);
    DDP_REQUIRE(json != NULL, DDP_ERR_FORMAT, "'%s': its header is no JSON, from byte %td on", w->path,
                end - text + 8);
    DDP_REQUIRE(end + strspn(end, " ") == text + length, DDP_ERR_FORMAT,
                "'%s': its header has more than one JSON object", w->path);
    *json_p = json;
    json    = NULL;
out:
    cJSON_Delete(json);
    return status;
}

ddp_status_t ddp_safetensors_read(ddp_weights_t *weights)
{
    ddp_status_t  status = DDP_OK;
    unsigned char prefix[8];
    uint64_t      length = 0;
    char         *text   = NULL;
    cJSON        *json   = NULL;

    DDP_TRY(ddp_read_at(weights->path, weights->fd, prefix, sizeof(prefix), 0));
    for (int i = 7; i >= 0; i--) {
        length = length << 8 | prefix[i];
    }
    DDP_REQUIRE(length <= MAX_HEADER && length <= weights->bytes - sizeof(prefix), DDP_ERR_FORMAT,
                "'%s': a header of %" PRIu64 " bytes, in a file of %" PRIu64 " (at most %" PRIu64 ")",
                weights->path, length, weights->bytes, MAX_HEADER);
    text = calloc((size_t)length + 1, 1);
    DDP_REQUIRE(text != NULL, DDP_ERR_NO_MEMORY, "no memory for '%s'", weights->path);
    DDP_TRY(ddp_read_at(weights->path, weights->fd, text, (size_t)length, sizeof(prefix)));
    DDP_TRY(parse(weights, text, (size_t)length, &json));
    DDP_TRY(take_header(weights, json, sizeof(prefix) + length));
out:
    cJSON_Delete(json);
    free(text);
    return status;
}

/* A header in the making. */
typedef struct text {
    char  *bytes; /* owned */
    size_t n, room;
} text_t;

static ddp_status_t put(text_t *text, const char *from, size_t n)
{
    ddp_status_t status = DDP_OK;

    if (text->n + n > text->room) {
        const size_t room = (text->n + n) * 2;
        char        *more = realloc(text->bytes, room);

        DDP_REQUIRE(more != NULL, DDP_ERR_NO_MEMORY, "no memory for a safetensors header");
        text->bytes = more;
        text->room  = room;
    }
    memcpy(text->bytes + text->n, from, n);
    text->n += n;
out:
    return status;
}

/* A name as a JSON text; it has no control characters. */
static ddp_status_t put_name(text_t *text, const char *name)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(put(text, "\"", 1));
    for (const char *c = name; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\') {
            DDP_TRY(put(text, "\\", 1));
        }
        DDP_TRY(put(text, c, 1));
    }
    DDP_TRY(put(text, "\"", 1));
out:
    return status;
}

static ddp_status_t put_tensor(text_t *text, const ddp_tensor_desc_t *desc, uint64_t begin)
{
    ddp_status_t status = DDP_OK;
    char         line[256];
    int          n;

    DDP_TRY(put(text, ",", 1));
    DDP_TRY(put_name(text, desc->name));
    n = snprintf(line, sizeof(line), ":{\"dtype\":\"F32\",\"shape\":[");
    for (size_t d = 0; d < desc->ndim; d++) {
        n += snprintf(line + n, sizeof(line) - (size_t)n, "%s%zu", d > 0 ? "," : "", desc->shape[d]);
    }
    n += snprintf(line + n, sizeof(line) - (size_t)n, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin,
                  begin + desc->count * sizeof(float));
    DDP_TRY(put(text, line, (size_t)n));
out:
    return status;
}

/* As the package writes it: tensors of one dtype by name; the header is filled with blanks to 8 bytes. */
static ddp_status_t make_header(const ddp_weights_t *w, const size_t *order, size_t n, text_t *text)
{
    ddp_status_t status = DDP_OK;
    uint64_t     begin  = 0;

    DDP_TRY(put(text, METADATA_WRITE, sizeof(METADATA_WRITE) - 1));
    for (size_t i = 0; i < n; i++) {
        DDP_TRY(put_tensor(text, &w->tensors[order[i]].desc, begin));
        begin += w->tensors[order[i]].desc.count * sizeof(float);
    }
    DDP_TRY(put(text, "}", 1));
    while (text->n % 8 != 0) {
        DDP_TRY(put(text, " ", 1));
    }
    DDP_REQUIRE(text->n <= MAX_HEADER, DDP_ERR_FORMAT, "'%s': too many tensors for a safetensors header",
                w->path);
out:
    return status;
}

static int by_tensor_name(const void *a, const void *b, void *weights)
{
    const ddp_weights_t *w = weights;

    return strcmp(w->tensors[*(const size_t *)a].desc.name, w->tensors[*(const size_t *)b].desc.name);
}

static ddp_status_t put_piece(void *file, const void *data, size_t bytes)
{
    return ddp_new_file_write(file, data, bytes);
}

ddp_status_t ddp_safetensors_write(ddp_weights_t *weights, const ddp_weights_choice_t *choice,
                                   ddp_new_file_t *file)
{
    ddp_status_t  status = DDP_OK;
    size_t       *order  = malloc(choice->n * sizeof(*order));
    text_t        text   = {NULL, 0, 0};
    unsigned char prefix[8];

    DDP_REQUIRE(order != NULL, DDP_ERR_NO_MEMORY, "no memory for a safetensors header");
    memcpy(order, choice->chosen, choice->n * sizeof(*order));
    qsort_r(order, choice->n, sizeof(*order), by_tensor_name, weights);
    DDP_TRY(make_header(weights, order, choice->n, &text));
    for (size_t i = 0; i < sizeof(prefix); i++) {
        prefix[i] = (unsigned char)((uint64_t)text.n >> (8 * i));
    }
    DDP_TRY(ddp_new_file_write(file, prefix, sizeof(prefix)));
    DDP_TRY(ddp_new_file_write(file, text.bytes, text.n));
    for (size_t i = 0; i < choice->n; i++) {
        DDP_TRY(ddp_weights_each_piece(weights, order[i], put_piece, file));
    }
out:
    free(text.bytes);
    free(order);
    return status;
}
