/* Hashes of the parameters: for people (`weights`), and to find a machine whose copy has gone astray. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL /* the state is a local variable then */
#include <xxhash.h>

#include "base/error.h"
#include "ddp/reducer_internal.h"

static void hash_tensor(XXH3_state_t *state, const ddp_reducer_t *r, const ddp_tensor_desc_t *tensor)
{
    (void)XXH3_128bits_update(state, tensor->name, strlen(tensor->name) + 1);
    (void)XXH3_128bits_update(state, r->values + tensor->offset, tensor->count * sizeof(float));
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

static XXH128_hash_t hash_values(const ddp_reducer_t *r)
{
    XXH3_state_t             state;
    const ddp_tensor_desc_t *tensor = NULL;

    (void)XXH3_128bits_reset(&state);
    while ((tensor = next_by_name(r, tensor == NULL ? NULL : tensor->name)) != NULL) {
        hash_tensor(&state, r, tensor);
    }
    return XXH3_128bits_digest(&state);
}

void ddp_reducer_weights_hash(const ddp_reducer_t *reducer, char text[33])
{
    const XXH128_hash_t hash = hash_values(reducer);

    snprintf(text, 33, "%016llx%016llx", (unsigned long long)hash.high64, (unsigned long long)hash.low64);
}

ddp_status_t ddp_reducer_check_replicas(ddp_reducer_t *reducer)
{
    ddp_status_t   status = DDP_OK;
    XXH128_hash_t  mine   = {0, 0};
    XXH128_hash_t *all    = calloc((size_t)reducer->size, sizeof(*all));

    DDP_TRY(ddp_comm_agree(reducer->comm,
                           all != NULL ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory for hashes")));
    if (reducer->local_rank == 0) {
        mine = hash_values(reducer);
    }
    DDP_TRY(ddp_comm_allgather(reducer->comm, &mine, sizeof(mine), all));
    for (int m = 1; m < reducer->machines; m++) {
        const int first = ddp_comm_machine_first(reducer->comm, m);

        DDP_REQUIRE(XXH128_isEqual(all[first], all[0]), DDP_ERR_MISMATCH,
                    "step %llu: parameters on %s (rank %d) differ from those on %s (rank 0)",
                    (unsigned long long)reducer->step, ddp_comm_host(reducer->comm, first), first,
                    ddp_comm_host(reducer->comm, 0));
    }
out:
    free(all);
    return status;
}
