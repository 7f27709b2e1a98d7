/** @file The files of tests/data/weights, and what is in them. */
#ifndef DDP_WEIGHTS_FILE_H_
#define DDP_WEIGHTS_FILE_H_

#include "io/weights.h"
#include "tests/io/io_test.h"

static inline const char *data(const char *name)
{
    static char path[IO_TEST_PATH];

    snprintf(path, sizeof(path), "%s/weights/%s", DDP_TEST_DATA_DIR, name);
    return path;
}

/** HDF5 of others is read by this program, started anew. */
static inline ddp_status_t open_file(const char *path, ddp_weights_t **w_p)
{
    ddp_weights_params_t params = DDP_WEIGHTS_PARAMS_INIT;

    params.reader = "/proc/self/exe";
    return ddp_weights_open(path, &params, w_p);
}

/** What make_weights.py says of tensor t. */
static inline float value(size_t t, size_t i)
{
    return (float)((int)((7 * i + 3 * t) % 31) - 15) / 8.0F;
}

/** Shape as text, and every value, read in pieces of an odd size. */
static inline void expect(ddp_weights_t *w, const char *name, size_t t, ddp_weights_type_t type,
                          const char *shape)
{
    const size_t                at       = ddp_weights_find(w, name);
    const ddp_weights_tensor_t *tensor   = &ddp_weights_tensors(w)[at];
    char                        text[96] = "";
    float                       got[1001];

    ck_assert_msg(at < ddp_weights_count(w), "no '%s'", name);
    ck_assert_int_eq(tensor->type, type);
    for (size_t d = 0; d < tensor->desc.ndim; d++) {
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%zu ", tensor->desc.shape[d]);
    }
    ck_assert_str_eq(text, shape);
    for (size_t first = 0; first < tensor->desc.count; first += 1000) {
        const size_t n = tensor->desc.count - first < 1000 ? tensor->desc.count - first : 1000;

        got[n] = 77.0F;
        ddp_assert_ok(ddp_weights_read(w, at, first, n, got));
        ck_assert(got[n] == 77.0F);
        for (size_t i = 0; i < n; i++) {
            ck_assert_msg(got[i] == value(t, first + i), "%s[%zu]: %g", name, first + i, (double)got[i]);
        }
    }
}

#endif
