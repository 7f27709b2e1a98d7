/* The same named values on all ranks: one digest first, details only after a difference. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/convert.h"
#include "ddp/comm.h"
#include "ddp/comm_state_internal.h"

#define SHOWN       64 /* characters of a value that an error shows */
#define SHOWN_AHEAD 16 /* of them before the first difference */

/* Names and values of all ranks: rank r's text is "name\0value\0name\0value\0...", padded with zeros. */
typedef struct tables {
    bool          may_lack; /* a rank need not have every name, nor the others' order */
    const char   *text;     /* [size * stride] */
    const size_t *bytes;    /* [size] */
    size_t        stride;
} tables_t;

static size_t text_bytes(const ddp_field_t *fields, size_t n)
{
    size_t bytes = 0;

    for (size_t i = 0; i < n; i++) {
        bytes += strlen(fields[i].name) + strlen(fields[i].value) + 2;
    }
    return bytes;
}

static void write_text(const ddp_field_t *fields, size_t n, char *text)
{
    for (size_t i = 0; i < n; i++) {
        text = stpcpy(text, fields[i].name) + 1;
        text = stpcpy(text, fields[i].value) + 1;
    }
}

/* Value of a rank's field, NULL if it has none of that name. */
static const char *find_value(const tables_t *tables, int rank, const char *name)
{
    const char *text = tables->text + (size_t)rank * tables->stride;
    const char *end  = text + tables->bytes[rank];

    while (text < end) {
        const char *value = text + strlen(text) + 1;

        if (strcmp(text, name) == 0) {
            return value;
        }
        text = value + strlen(value) + 1;
    }
    return NULL;
}

static bool is_same(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* Lowest rank that has the value most ranks have. */
static int find_majority(const ddp_comm_t *comm, const tables_t *tables, const char *name)
{
    int best  = 0;
    int votes = 0;

    for (int r = 0; r < comm->size; r++) {
        const char *value = find_value(tables, r, name);
        int         n     = 0;

        for (int other = 0; other < comm->size && !(value == NULL && tables->may_lack); other++) {
            n += is_same(value, find_value(tables, other, name)) ? 1 : 0;
        }
        if (n > votes) {
            best  = r;
            votes = n;
        }
    }
    return best;
}

/* A value short enough for a line, with the place where it differs in sight. */
static const char *shorten(const char *value, size_t same, char *text, size_t size)
{
    const size_t skip = strlen(value) > SHOWN && same > SHOWN_AHEAD ? same - SHOWN_AHEAD : 0;

    snprintf(text, size, "%s%.*s%s", skip > 0 ? "..." : "", SHOWN, value + skip,
             strlen(value + skip) > SHOWN ? "..." : "");
    return text;
}

static ddp_status_t name_difference(const ddp_comm_t *comm, const char *name, int wrong,
                                    const char *wrong_value, int right, const char *right_value)
{
    char   a[DDP_NAME_SIZE], b[DDP_NAME_SIZE], x[SHOWN + 8], y[SHOWN + 8];
    size_t same = 0;

    ddp_comm_name(comm, wrong, a, sizeof(a));
    ddp_comm_name(comm, right, b, sizeof(b));
    if (wrong_value == NULL) {
        return ddp_fail(DDP_ERR_MISMATCH, "%s has no %s, %s has %s", a, name, b,
                        shorten(right_value, 0, y, sizeof(y)));
    }
    if (right_value == NULL) {
        return ddp_fail(DDP_ERR_MISMATCH, "%s has %s %s, %s has none", a, name,
                        shorten(wrong_value, 0, x, sizeof(x)), b);
    }
    while (wrong_value[same] != '\0' && wrong_value[same] == right_value[same]) {
        same++;
    }
    return ddp_fail(DDP_ERR_MISMATCH, "%s has %s %s, %s has %s", a, name,
                    shorten(wrong_value, same, x, sizeof(x)), b, shorten(right_value, same, y, sizeof(y)));
}

/* Does some rank differ in this field? */
static ddp_status_t compare_field(const ddp_comm_t *comm, const tables_t *tables, const char *name)
{
    const int   right = find_majority(comm, tables, name);
    const char *value = find_value(tables, right, name);

    for (int r = 0; r < comm->size; r++) {
        const char *theirs = find_value(tables, r, name);

        if (!is_same(theirs, value) && !(theirs == NULL && tables->may_lack)) {
            return name_difference(comm, name, r, theirs, right, value);
        }
    }
    return DDP_OK;
}

/* All ranks have the same tables, so all find the same first difference. */
static ddp_status_t compare_tables(const ddp_comm_t *comm, const tables_t *tables)
{
    ddp_status_t status = DDP_OK;

    for (int r = 0; r < comm->size; r++) {
        const char *text = tables->text + (size_t)r * tables->stride;
        const char *end  = text + tables->bytes[r];

        while (text < end) {
            DDP_TRY(compare_field(comm, tables, text));
            text += strlen(text) + 1;
            text += strlen(text) + 1;
        }
    }
    DDP_REQUIRE(tables->may_lack, DDP_ERR_MISMATCH, "ranks give the same values in different order");
out:
    return status;
}

static ddp_status_t find_difference(ddp_comm_t *comm, const ddp_field_t *fields, size_t n, bool may_lack)
{
    const size_t mine     = text_bytes(fields, n);
    size_t      *bytes    = calloc((size_t)comm->size, sizeof(*bytes));
    char        *my_text  = NULL;
    char        *all_text = NULL;
    tables_t     tables   = {may_lack, NULL, bytes, 1};
    ddp_status_t status   = DDP_OK;

    DDP_TRY(
        ddp_comm_agree(comm, bytes != NULL ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory to compare")));
    DDP_TRY(ddp_comm_allgather(comm, &mine, sizeof(mine), bytes));
    for (int r = 0; r < comm->size; r++) {
        tables.stride = bytes[r] > tables.stride ? bytes[r] : tables.stride;
    }
    my_text  = calloc(1, tables.stride);
    all_text = calloc((size_t)comm->size, tables.stride);
    status =
        my_text != NULL && all_text != NULL ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory to compare");
    DDP_TRY(ddp_comm_agree(comm, status));
    write_text(fields, n, my_text);
    DDP_TRY(ddp_comm_allgather(comm, my_text, tables.stride, all_text));
    tables.text = all_text;
    DDP_TRY(compare_tables(comm, &tables));
out:
    free(all_text);
    free(my_text);
    free(bytes);
    return status;
}

static XXH128_canonical_t digest(const ddp_field_t *fields, size_t n)
{
    XXH128_canonical_t text;
    XXH3_state_t      *state = XXH3_createState();

    memset(&text, 0, sizeof(text));
    if (state == NULL) {
        return text; /* differs from the others: the details decide */
    }
    XXH3_128bits_reset(state);
    for (size_t i = 0; i < n; i++) { /* with their final zeros: "ab", "c" is not "a", "bc" */
        XXH3_128bits_update(state, fields[i].name, strlen(fields[i].name) + 1);
        XXH3_128bits_update(state, fields[i].value, strlen(fields[i].value) + 1);
    }
    XXH128_canonicalFromHash(&text, XXH3_128bits_digest(state));
    XXH3_freeState(state);
    return text;
}

static ddp_status_t check(ddp_comm_t *comm, const ddp_field_t *fields, size_t n, bool may_lack)
{
    const XXH128_canonical_t mine   = digest(fields, n);
    XXH128_canonical_t      *all    = calloc((size_t)comm->size, sizeof(*all));
    ddp_status_t             status = DDP_OK;

    DDP_TRY(ddp_comm_agree(comm, all != NULL ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory to compare")));
    DDP_TRY(ddp_comm_allgather(comm, &mine, sizeof(mine), all));
    for (int r = 1; r < comm->size; r++) {
        if (memcmp(&all[r], &all[0], sizeof(all[r])) != 0) {
            DDP_TRY(find_difference(comm, fields, n, may_lack));
            break;
        }
    }
out:
    free(all);
    return status;
}

ddp_status_t ddp_comm_check_equal(ddp_comm_t *comm, const ddp_field_t *fields, size_t n)
{
    return check(comm, fields, n, false);
}

ddp_status_t ddp_comm_check_alike(ddp_comm_t *comm, const ddp_field_t *fields, size_t n)
{
    return check(comm, fields, n, true);
}
