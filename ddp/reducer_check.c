/* Hashes of the parameters: for people (`weights`), and to find a machine whose copy has gone astray. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL /* the state is a local variable then */
#include <xxhash.h>

#include "base/error.h"
#include "base/progressed.h"
#include "ddp/reducer_internal.h"

#define CHUNK_FLOATS ((size_t)1 << 18)

static ddp_status_t hash_tensor(XXH3_state_t *state, ddp_reducer_t *r, const ddp_tensor_desc_t *tensor,
                                float *chunk)
{
    ddp_status_t status = DDP_OK;

    (void)XXH3_128bits_update(state, tensor->name, strlen(tensor->name) + 1);
    for (size_t first = 0; first < tensor->count; first += CHUNK_FLOATS) {
        const size_t n = tensor->count - first < CHUNK_FLOATS ? tensor->count - first : CHUNK_FLOATS;

        DDP_TRY(ddp_reducer_read(r, DDP_REDUCER_VALUES, tensor->offset + first, n, chunk));
        (void)XXH3_128bits_update(state, chunk, n * sizeof(*chunk));
        ddp_progressed();
    }
out:
    return status;
}

/* The tensor whose name is next after `last` (NULL: the first); a model has few enough for this. */
static const ddp_tensor_desc_t *next_by_name(const ddp_reducer_t *r, const char *last)
{
    const ddp_tensor_desc_t *next = NULL;

    for (size_t i = 0; i < r->params.n_tensors; i++) {
        const ddp_tensor_desc_t *tensor = &r->tensors[i];

        if ((last == NULL || strcmp(tensor->name, last) > 0) &&
            (next == NULL || strcmp(tensor->name, next->name) < 0)) {
            next = tensor;
        }
    }
    return next;
}

static ddp_status_t hash_values(ddp_reducer_t *r, XXH128_hash_t *hash_p)
{
    ddp_status_t             status = DDP_OK;
    float                   *chunk  = malloc(CHUNK_FLOATS * sizeof(*chunk));
    const ddp_tensor_desc_t *tensor = NULL;
    XXH3_state_t             state;

    DDP_REQUIRE(chunk != NULL, DDP_ERR_NO_MEMORY, "no memory to hash the parameters");
    (void)XXH3_128bits_reset(&state);
    while ((tensor = next_by_name(r, tensor == NULL ? NULL : tensor->name)) != NULL) {
        DDP_TRY(hash_tensor(&state, r, tensor, chunk));
    }
    *hash_p = XXH3_128bits_digest(&state);
out:
    free(chunk);
    return status;
}

ddp_status_t ddp_reducer_weights_hash(ddp_reducer_t *reducer, char text[33])
{
    ddp_status_t  status = DDP_OK;
    XXH128_hash_t hash;

    DDP_TRY(hash_values(reducer, &hash));
    snprintf(text, 33, "%016llx%016llx", (unsigned long long)hash.high64, (unsigned long long)hash.low64);
out:
    return status;
}

ddp_status_t ddp_reducer_check_replicas(ddp_reducer_t *reducer)
{
    ddp_status_t   status = DDP_OK;
    XXH128_hash_t  mine   = {0, 0};
    XXH128_hash_t *all    = calloc((size_t)reducer->size, sizeof(*all));

    DDP_TRY(ddp_comm_agree(reducer->comm,
                           all != NULL ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory for hashes")));
    if (ddp_reducer_is_writer(reducer, reducer->rank)) {
        status = hash_values(reducer, &mine);
    }
    DDP_TRY(ddp_comm_agree(reducer->comm, status));
    DDP_TRY(ddp_comm_allgather(reducer->comm, &mine, sizeof(mine), all));
    for (int k = 1; k < reducer->size; k++) {
        DDP_REQUIRE(!ddp_reducer_is_writer(reducer, k) || XXH128_isEqual(all[k], all[0]), DDP_ERR_MISMATCH,
                    "step %llu: parameters on %s (rank %d) differ from those on %s (rank 0)",
                    (unsigned long long)reducer->step, ddp_comm_host(reducer->comm, k), k,
                    ddp_comm_host(reducer->comm, 0));
    }
out:
    free(all);
    return status;
}

static ddp_status_t take_choices(const ddp_device_t *device, ddp_choice_t **choices_p, ddp_field_t **fields_p,
                                 size_t *n_p)
{
    ddp_status_t  status  = DDP_OK;
    const size_t  n       = ddp_device_choices(device, NULL, 0);
    ddp_choice_t *choices = calloc(n + 1, sizeof(*choices));
    ddp_field_t  *fields  = calloc(n + 1, sizeof(*fields));

    *choices_p = choices;
    *fields_p  = fields;
    DDP_REQUIRE(choices != NULL && fields != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu algorithms", n);
    (void)ddp_device_choices(device, choices, n);
    for (size_t i = 0; i < n; i++) {
        fields[i] = (ddp_field_t){choices[i].name, choices[i].value};
    }
    *n_p = n;
out:
    return status;
}

ddp_status_t ddp_reducer_check_choices(ddp_reducer_t *reducer)
{
    ddp_status_t  status  = DDP_OK;
    ddp_choice_t *choices = NULL;
    ddp_field_t  *fields  = NULL;
    size_t        n       = 0;
    char          line[DDP_ERROR_LINE_SIZE];

    if (reducer->params.reduction != DDP_REDUCTION_EXACT || reducer->size == 1) {
        return DDP_OK;
    }
    DDP_TRY(ddp_comm_agree(reducer->comm,
                           take_choices(ddp_stream_device(reducer->compute), &choices, &fields, &n)));
    status = ddp_comm_check_alike(reducer->comm, fields, n);
    if (status == DDP_ERR_MISMATCH) {
        (void)snprintf(line, sizeof(line), "%s", ddp_error_line());
        status =
            ddp_fail(status,
                     "%s; ddp.reduction exact needs the same algorithm on all ranks: the same GPUs, driver "
                     "and libraries, or DDP_CUDA_GEMM=plain (slow), or ddp.reduction=fast",
                     line);
    }
out:
    free(fields);
    free(choices);
    return status;
}
