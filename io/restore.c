/* From a checkpoint into the arenas of all machines. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/saver.h"

#define CHUNK_FLOATS ((size_t)1 << 20)

_Static_assert(DDP_CHECKPOINT_VALUES == DDP_REDUCER_VALUES, "arrays have the same numbers");

typedef struct restore {
    ddp_comm_t              *comm;
    ddp_reducer_t           *reducer;
    const ddp_checkpoint_t  *checkpoint; /* rank 0 */
    const ddp_tensor_desc_t *tensors;
    bool                     spreads; /* others than rank 0 write */
    float                   *chunk;   /* owned */
} restore_t;

/* Elements [first, first + n) of an array into the chunk of whoever writes them. */
static ddp_status_t fetch_chunk(restore_t *r, size_t found, int array, size_t first, size_t n)
{
    ddp_status_t status = DDP_OK;
    int32_t      head   = DDP_OK; /* rank 0's status */
    const bool   reads  = ddp_comm_rank(r->comm) == 0;

    if (reads) {
        head = ddp_checkpoint_read(r->checkpoint, found, array, first, n, r->chunk);
    }
    if (!r->spreads) {
        return (ddp_status_t)head; /* agreed at the end */
    }
    DDP_TRY(ddp_comm_broadcast(r->comm, &head, sizeof(head), 0));
    if (head != DDP_OK) {
        status = reads ? (ddp_status_t)head : ddp_fail(DDP_ERR_REMOTE, "rank 0 cannot read the checkpoint");
        goto out;
    }
    DDP_TRY(ddp_comm_broadcast(r->comm, r->chunk, n * sizeof(float), 0));
out:
    return status;
}

static ddp_status_t pass_array(restore_t *r, size_t tensor, size_t found, int array)
{
    ddp_status_t             status = DDP_OK;
    const ddp_tensor_desc_t *desc   = &r->tensors[tensor];

    for (size_t first = 0; first < desc->count; first += CHUNK_FLOATS) {
        const size_t n = desc->count - first < CHUNK_FLOATS ? desc->count - first : CHUNK_FLOATS;

        DDP_TRY(fetch_chunk(r, found, array, first, n));
        DDP_TRY(ddp_reducer_write(r->reducer, array, desc->offset + first, n, r->chunk));
    }
out:
    return status;
}

/* Where rank 0's checkpoint has each tensor: its index, or SIZE_MAX; and the updates applied to it. */
typedef struct place {
    size_t   found;
    uint64_t steps;
} place_t;

static void find_places(const restore_t *r, size_t n, place_t *places)
{
    const size_t                   n_saved = ddp_checkpoint_count(r->checkpoint);
    const ddp_checkpoint_tensor_t *saved   = ddp_checkpoint_tensors(r->checkpoint);

    for (size_t i = 0; i < n; i++) {
        const size_t found = ddp_checkpoint_find(r->checkpoint, r->tensors[i].name);

        places[i].found = found < n_saved ? found : SIZE_MAX;
        places[i].steps = found < n_saved ? saved[found].steps : 0;
    }
}

static ddp_status_t pass_tensors(restore_t *r, size_t n, const place_t *places, int n_slots)
{
    ddp_status_t status = DDP_OK;

    for (size_t i = 0; i < n; i++) {
        const int last = r->tensors[i].role == DDP_TENSOR_AVERAGE ? 0 : n_slots;

        for (int array = DDP_CHECKPOINT_VALUES; array < last && places[i].found != SIZE_MAX; array++) {
            DDP_TRY(pass_array(r, i, places[i].found, array));
        }
    }
out:
    return status;
}

/* Local: what rank 0 must find in its checkpoint, and memory. */
static ddp_status_t prepare(restore_t *r, int n_slots, bool values_only, const place_t *places)
{
    ddp_status_t status = DDP_OK;

    r->chunk = malloc(CHUNK_FLOATS * sizeof(float));
    DDP_REQUIRE(places != NULL && r->chunk != NULL, DDP_ERR_NO_MEMORY, "no memory to restore a checkpoint");
    for (int rank = 1; rank < ddp_comm_size(r->comm); rank++) {
        r->spreads = r->spreads || ddp_reducer_is_writer(r->reducer, rank);
    }
    if (ddp_comm_rank(r->comm) == 0 && !values_only) {
        DDP_REQUIRE(ddp_checkpoint_state(r->checkpoint)->n_slots == (size_t)n_slots, DDP_ERR_MISMATCH,
                    "the checkpoint has %zu moments for each parameter, this optimizer %d",
                    ddp_checkpoint_state(r->checkpoint)->n_slots, n_slots);
    }
out:
    return status;
}

ddp_status_t ddp_checkpoint_restore(ddp_comm_t *comm, ddp_reducer_t *reducer,
                                    const ddp_tensor_desc_t *tensors, size_t n_tensors,
                                    const ddp_checkpoint_t *checkpoint, bool values_only)
{
    ddp_status_t status  = DDP_OK;
    restore_t    r       = {comm, reducer, checkpoint, tensors, false, NULL};
    place_t     *places  = calloc(n_tensors, sizeof(*places));
    uint64_t    *steps   = calloc(n_tensors, sizeof(*steps));
    const int    n_slots = values_only ? 0 : (int)ddp_reducer_slots(reducer);
    uint64_t     step    = 0;

    DDP_TRY(ddp_comm_agree(comm, prepare(&r, n_slots, values_only, steps != NULL ? places : NULL)));
    if (ddp_comm_rank(comm) == 0) {
        find_places(&r, n_tensors, places);
        step = ddp_checkpoint_state(checkpoint)->step;
    }
    DDP_TRY(ddp_comm_broadcast(comm, places, n_tensors * sizeof(*places), 0));
    DDP_TRY(ddp_comm_broadcast(comm, &step, sizeof(step), 0));
    status = pass_tensors(&r, n_tensors, places, n_slots);
    DDP_TRY(ddp_comm_agree(comm, status));
    for (size_t i = 0; i < n_tensors; i++) {
        steps[i] = places[i].steps;
    }
    DDP_TRY(values_only ? ddp_reducer_publish(reducer) : ddp_reducer_restore(reducer, step, steps));
out:
    free(r.chunk);
    free(steps);
    free(places);
    return status;
}
