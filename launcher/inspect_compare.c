/* Two files of weights, tensor by tensor. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/inspect.h"

#define CHUNK ((size_t)1 << 16)

ddp_status_t ddp_inspect_norm(ddp_weights_t *weights, size_t tensor, double *norm_p)
{
    ddp_status_t status = DDP_OK;
    const size_t count  = ddp_weights_tensors(weights)[tensor].desc.count;
    float       *values = malloc(CHUNK * sizeof(*values));
    double       sum    = 0.0;

    DDP_REQUIRE(values != NULL, DDP_ERR_NO_MEMORY, "no memory to read tensors");
    for (size_t first = 0; first < count; first += CHUNK) {
        const size_t n = count - first < CHUNK ? count - first : CHUNK;

        DDP_TRY(ddp_weights_read(weights, tensor, first, n, values));
        for (size_t i = 0; i < n; i++) {
            sum += (double)values[i] * (double)values[i];
        }
    }
    *norm_p = sqrt(sum);
out:
    free(values);
    return status;
}

const char *ddp_inspect_type(ddp_weights_type_t type)
{
    static const char *const names[] = {[DDP_WEIGHTS_F32]   = "float32",
                                        [DDP_WEIGHTS_F64]   = "float64",
                                        [DDP_WEIGHTS_F16]   = "float16",
                                        [DDP_WEIGHTS_BF16]  = "bfloat16",
                                        [DDP_WEIGHTS_OTHER] = "no floats"};

    return names[type];
}

static void note(ddp_inspect_difference_t *difference, const char *name, const char *how)
{
    if (difference->first[0] == '\0') {
        snprintf(difference->first, sizeof(difference->first), "'%.300s' %s", name, how);
    }
}

static bool is_same_shape(const ddp_tensor_desc_t *a, const ddp_tensor_desc_t *b)
{
    return a->ndim == b->ndim && memcmp(a->shape, b->shape, a->ndim * sizeof(a->shape[0])) == 0;
}

/* @param [in] room  [2 * CHUNK] */
static ddp_status_t compare_values(ddp_weights_t *a, size_t in_a, ddp_weights_t *b, size_t in_b, float *room,
                                   ddp_inspect_difference_t *difference)
{
    ddp_status_t             status = DDP_OK;
    const ddp_tensor_desc_t *desc   = &ddp_weights_tensors(a)[in_a].desc;
    float                   *x      = room;
    float                   *y      = room + CHUNK;
    bool                     equal  = true;

    for (size_t first = 0; first < desc->count; first += CHUNK) {
        const size_t n = desc->count - first < CHUNK ? desc->count - first : CHUNK;

        DDP_TRY(ddp_weights_read(a, in_a, first, n, x));
        DDP_TRY(ddp_weights_read(b, in_b, first, n, y));
        if (memcmp(x, y, n * sizeof(*x)) == 0) {
            continue;
        }
        equal = false;
        for (size_t i = 0; i < n; i++) {
            const double distance = fabs((double)x[i] - (double)y[i]);

            if (memcmp(&x[i], &y[i], sizeof(*x)) != 0) { /* a NaN is the largest difference there is */
                difference->most = isnan(distance) ? NAN : fmax(distance, difference->most);
            }
        }
    }
    if (!equal) {
        note(difference, desc->name, "has other values");
        difference->different++;
    }
out:
    return status;
}

static ddp_status_t compare_tensor(ddp_weights_t *a, size_t in_a, ddp_weights_t *b, float *room,
                                   ddp_inspect_difference_t *difference)
{
    const ddp_weights_tensor_t *x    = &ddp_weights_tensors(a)[in_a];
    const size_t                in_b = ddp_weights_find(b, x->desc.name);
    const ddp_weights_tensor_t *y    = NULL;

    if (in_b == ddp_weights_count(b)) {
        note(difference, x->desc.name, "is in the first file alone");
        difference->only_a++;
        return DDP_OK;
    }
    y = &ddp_weights_tensors(b)[in_b];
    difference->compared++;
    if (x->type == DDP_WEIGHTS_OTHER || y->type == DDP_WEIGHTS_OTHER) {
        if (x->type != y->type) {
            note(difference, x->desc.name, "holds floats in one file alone");
            difference->different++;
        }
        return DDP_OK;
    }
    if (!is_same_shape(&x->desc, &y->desc)) {
        note(difference, x->desc.name, "has another shape");
        difference->different++;
        return DDP_OK;
    }
    return compare_values(a, in_a, b, in_b, room, difference);
}

static bool has_moments(const ddp_weights_t *w)
{
    size_t i = 0;

    while (i < ddp_weights_count(w) && !ddp_weights_is_moment(&ddp_weights_tensors(w)[i])) {
        i++;
    }
    return i < ddp_weights_count(w);
}

static bool is_compared(const ddp_weights_tensor_t *tensor, bool moments)
{
    return moments || !ddp_weights_is_moment(tensor);
}

/* Files of weights alone have no such state. Of it, what training goes on from; the configuration's text may
 * differ. */
static void compare_training(const ddp_weights_t *a, const ddp_weights_t *b,
                             ddp_inspect_difference_t *difference)
{
    const ddp_training_state_t *x = ddp_checkpoint_state(ddp_weights_checkpoint(a));
    const ddp_training_state_t *y = ddp_checkpoint_state(ddp_weights_checkpoint(b));

    if (strcmp(x->optimizer, "none") == 0 || strcmp(y->optimizer, "none") == 0) {
        return;
    }
    if (x->step != y->step || x->epoch != y->epoch || x->samples_seen != y->samples_seen ||
        x->seed != y->seed || x->micro_batches != y->micro_batches ||
        strcmp(x->optimizer, y->optimizer) != 0 || x->n_slots != y->n_slots) {
        difference->is_training_different = true;
    }
}

ddp_status_t ddp_inspect_compare(ddp_weights_t *a, ddp_weights_t *b, ddp_inspect_difference_t *difference_p)
{
    ddp_status_t             status     = DDP_OK;
    ddp_inspect_difference_t difference = {0};
    const bool               moments    = has_moments(a) && has_moments(b);
    float                   *room       = malloc(2 * CHUNK * sizeof(*room));

    DDP_REQUIRE(room != NULL, DDP_ERR_NO_MEMORY, "no memory to read tensors");
    for (size_t i = 0; i < ddp_weights_count(a); i++) {
        if (is_compared(&ddp_weights_tensors(a)[i], moments)) {
            DDP_TRY(compare_tensor(a, i, b, room, &difference));
        }
    }
    for (size_t i = 0; i < ddp_weights_count(b); i++) {
        const ddp_weights_tensor_t *tensor = &ddp_weights_tensors(b)[i];

        if (is_compared(tensor, moments) && ddp_weights_find(a, tensor->desc.name) == ddp_weights_count(a)) {
            note(&difference, tensor->desc.name, "is in the second file alone");
            difference.only_b++;
        }
    }
    if (ddp_weights_checkpoint(a) != NULL && ddp_weights_checkpoint(b) != NULL) {
        compare_training(a, b, &difference);
    }
    *difference_p = difference;
out:
    free(room);
    return status;
}
