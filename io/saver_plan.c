/* What goes into a checkpoint's file: which rank writes which part of which array, and the copy of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "io/saver_internal.h"

size_t ddp_saver_count_floats(const ddp_tensor_desc_t *tensors, size_t n, size_t n_slots)
{
    size_t floats = 0;

    for (size_t i = 0; i < n; i++) {
        floats += tensors[i].count * (1 + (tensors[i].role == DDP_TENSOR_AVERAGE ? 0 : n_slots));
    }
    return floats;
}

/* Where an array of a tensor begins in the arenas. */
static const float *find_source(const ddp_saver_t *saver, size_t tensor, int array)
{
    ddp_reducer_t *reducer = saver->params.reducer;
    const float   *arena   = array == DDP_CHECKPOINT_VALUES ? ddp_reducer_values(reducer)
                                                            : ddp_reducer_slot(reducer, (size_t)array);

    return arena + saver->params.tensors[tensor].offset;
}

/* One extent into pieces: metadata is rank 0's, arrays go on where the last one ended. */
static void cut_extent(ddp_saver_t *saver, const ddp_checkpoint_extent_t *extent, size_t *floats)
{
    ddp_save_shared_t *shared = saver->shared;
    ddp_save_piece_t   piece  = {extent->at, extent->bytes, extent->tensor, extent->array, 0, 0, 0};

    if (extent->array == DDP_CHECKPOINT_METADATA) {
        saver->pieces[shared->n_pieces++] = piece;
        return;
    }
    for (uint64_t left = extent->bytes / sizeof(float); left > 0;) {
        size_t first = 0;
        size_t count = 0;
        size_t n;

        for (piece.rank = 0; *floats >= first + count; piece.rank++) {
            ddp_partition(saver->floats, (size_t)saver->local_size, (size_t)piece.rank, &first, &count);
        }
        piece.rank--;
        n           = first + count - *floats < left ? first + count - *floats : (size_t)left;
        piece.bytes = n * sizeof(float);
        saver->pieces[shared->n_pieces++] = piece;
        piece.at += piece.bytes;
        piece.first += n;
        left -= n;
        *floats += n;
    }
}

ddp_status_t ddp_saver_plan(ddp_saver_t *saver, const ddp_training_state_t *state, ddp_save_job_t *job)
{
    ddp_status_t status = DDP_OK;
    const size_t n      = saver->params.n_tensors;
    uint64_t    *steps  = calloc(n, sizeof(*steps));
    size_t       floats = 0;
    char         name[DDP_CHECKPOINT_NAME_SIZE];

    DDP_REQUIRE(steps != NULL, DDP_ERR_NO_MEMORY, "no memory for a checkpoint");
    for (size_t i = 0; i < n; i++) {
        steps[i] = ddp_reducer_tensor_steps(saver->params.reducer, i);
    }
    DDP_TRY(ddp_checkpoint_plan_make(saver->params.tensors, steps, n, state, &job->plan));
    saver->shared->n_pieces = 0;
    saver->shared->bytes    = job->plan.bytes;
    ddp_checkpoint_name(state->step, name);
    snprintf(saver->shared->what, sizeof(saver->shared->what), "writing checkpoint '%.256s/%s'",
             saver->folder, name);
    for (size_t i = 0; i < job->plan.n_extents; i++) {
        cut_extent(saver, &job->plan.extents[i], &floats);
    }
out:
    free(steps);
    return status;
}

void ddp_saver_copy(ddp_saver_t *saver)
{
    char *to = (char *)saver->snapshot;

    for (size_t i = 0; i < saver->shared->n_pieces; i++) {
        const ddp_save_piece_t *piece = &saver->pieces[i];

        if (piece->rank == saver->local_rank && piece->array != DDP_CHECKPOINT_METADATA) {
            memcpy(to, find_source(saver, piece->tensor, piece->array) + piece->first, (size_t)piece->bytes);
            to += piece->bytes;
        }
    }
}
