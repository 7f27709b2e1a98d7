#include "tests/support/onnx_tensor.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Field numbers of TensorProto and codes of its data_type (onnx.proto). */
enum { FIELD_DIMS = 1, FIELD_TYPE = 2, FIELD_FLOAT = 4, FIELD_INT64 = 7, FIELD_RAW = 9 };
enum { TYPE_FLOAT = 1, TYPE_INT64 = 7 };
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

#define MAX_FILE_BYTES ((size_t)1 << 20)

typedef struct reader {
    const unsigned char *at, *end;
} reader_t;

typedef struct content {
    uint64_t type;
    reader_t raw;    /* little-endian elements: raw_data, or float_data, which looks the same */
    reader_t varint; /* int64_data */
} content_t;

static bool read_varint(reader_t *r, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (r->at == r->end) {
            return false;
        }
        *value |= (uint64_t)(*r->at & 0x7f) << shift;
        if ((*r->at++ & 0x80) == 0) {
            return true;
        }
    }
    return false;
}

/* One field: its number, and its value or, for bytes, where they are. */
static bool read_field(reader_t *r, uint64_t *field, uint64_t *value, reader_t *bytes)
{
    uint64_t key;
    uint64_t size;

    *value = 0;
    *bytes = (reader_t){r->at, r->at};
    if (!read_varint(r, &key)) {
        return false;
    }
    *field = key >> 3;
    if ((key & 7) == WIRE_VARINT) {
        return read_varint(r, value);
    }
    size = (key & 7) == WIRE_64 ? 8 : 4;
    if ((key & 7) == WIRE_BYTES && !read_varint(r, &size)) {
        return false;
    }
    if (((key & 7) != WIRE_BYTES && (key & 7) != WIRE_64 && (key & 7) != WIRE_32) ||
        size > (size_t)(r->end - r->at)) {
        return false;
    }
    *bytes = (reader_t){r->at, r->at + size};
    r->at += size;
    return true;
}

/* A dimension alone, or several in one field. */
static bool append_dims(onnx_tensor_t *t, uint64_t value, reader_t packed)
{
    const bool is_packed = packed.at != packed.end;

    do {
        if (t->ndim == ONNX_MAX_DIMS || (is_packed && !read_varint(&packed, &value)) ||
            value > MAX_FILE_BYTES) {
            return false;
        }
        t->dim[t->ndim++] = (size_t)value;
    } while (is_packed && packed.at != packed.end);
    return true;
}

static bool read_fields(reader_t r, onnx_tensor_t *t, content_t *c)
{
    uint64_t field;
    uint64_t value;
    reader_t bytes;

    while (r.at != r.end) {
        if (!read_field(&r, &field, &value, &bytes)) {
            return false;
        }
        if (field == FIELD_DIMS && !append_dims(t, value, bytes)) {
            return false;
        }
        if (field == FIELD_TYPE) {
            c->type = value;
        } else if (field == FIELD_RAW || field == FIELD_FLOAT) {
            c->raw = bytes;
        } else if (field == FIELD_INT64) {
            c->varint = bytes;
        }
    }
    return true;
}

static bool read_element(content_t *c, double *value)
{
    const size_t size = c->type == TYPE_FLOAT ? sizeof(float) : sizeof(int64_t);
    uint64_t     bits;
    float        f;
    int64_t      i;

    if (c->type == TYPE_INT64 && c->varint.at != c->varint.end) {
        if (!read_varint(&c->varint, &bits)) {
            return false;
        }
        *value = (double)(int64_t)bits;
        return true;
    }
    if ((size_t)(c->raw.end - c->raw.at) < size) {
        return false;
    }
    if (c->type == TYPE_FLOAT) {
        memcpy(&f, c->raw.at, size);
        *value = (double)f;
    } else {
        memcpy(&i, c->raw.at, size);
        *value = (double)i;
    }
    c->raw.at += size;
    return true;
}

static bool tensor_parse(reader_t r, onnx_tensor_t *t)
{
    content_t c = {0};

    if (!read_fields(r, t, &c) || (c.type != TYPE_FLOAT && c.type != TYPE_INT64)) {
        return false;
    }
    t->count = 1;
    for (size_t i = 0; i < t->ndim; i++) {
        t->count *= t->dim[i];
        if (t->count > MAX_FILE_BYTES) {
            return false;
        }
    }
    t->value = calloc(t->count + 1, sizeof(*t->value));
    for (size_t i = 0; i < t->count; i++) {
        if (t->value == NULL || !read_element(&c, &t->value[i])) {
            return false;
        }
    }
    return t->value != NULL;
}

bool onnx_tensor_read(const char *path, onnx_tensor_t *tensor)
{
    unsigned char *bytes = malloc(MAX_FILE_BYTES);
    FILE          *file  = fopen(path, "rb");
    size_t         size  = 0;
    bool           whole = false;

    memset(tensor, 0, sizeof(*tensor));
    if (file != NULL && bytes != NULL) {
        size  = fread(bytes, 1, MAX_FILE_BYTES, file);
        whole = feof(file) != 0 && tensor_parse((reader_t){bytes, bytes + size}, tensor);
    }
    if (file != NULL) {
        fclose(file);
    }
    free(bytes);
    if (!whole) {
        onnx_tensor_free(tensor);
    }
    return whole;
}

void onnx_tensor_free(onnx_tensor_t *tensor)
{
    free(tensor->value);
    memset(tensor, 0, sizeof(*tensor));
}
