/* What goes into a checkpoint's file: which rank writes which part of which array, and the copy of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/progressed.h"
#include "io/saver_internal.h"

#define PASS_FLOATS ((size_t)1 << 18)
#define MEET_FLOATS ((size_t)1 << 25)

size_t ddp_saver_count_floats(const ddp_tensor_desc_t *tensors, size_t n, size_t n_slots)
{
    size_t floats = 0;

    for (size_t i = 0; i < n; i++) {
        floats += tensors[i].count * (1 + (tensors[i].role == DDP_TENSOR_AVERAGE ? 0 : n_slots));
    }
    return floats;
}

/* Arrays of a tensor: values, and moments where it has any. */
static int count_arrays(const ddp_saver_t *saver, size_t tensor)
{
    return saver->params.tensors[tensor].role == DDP_TENSOR_AVERAGE ? 1 : 1 + (int)saver->n_slots;
}

static bool is_away(const ddp_saver_t *saver, int holder)
{
    return holder != DDP_REDUCER_EVERYBODY && holder >= saver->n_writers;
}

/* Who has float `position` of all arrays if they are dealt evenly. @param [out] end_p  of that writer's share
 */
static int deal(const ddp_saver_t *saver, size_t position, size_t *end_p)
{
    size_t first = 0;
    size_t count = 0;
    int    rank  = 0;

    for (; position >= first + count; rank++) {
        ddp_partition(saver->floats, (size_t)saver->n_writers, (size_t)rank, &first, &count);
    }
    *end_p = first + count;
    return rank - 1;
}

/* The part of an array that begins at `part->first`, at `position` of all floats. A rank of the writing
 * machine writes what it alone holds; the rest is dealt. */
static void next_part(const ddp_saver_t *saver, size_t position, ddp_save_part_t *part)
{
    const ddp_tensor_desc_t *tensor = &saver->params.tensors[part->tensor];
    const size_t             left   = tensor->count - part->first;
    size_t                   held   = 0;
    size_t                   end    = 0;

    part->holder = saver->holder(saver->params.reducer, part->array, tensor->offset + part->first, &held);
    part->count  = held < left ? held : left;
    if (part->holder != DDP_REDUCER_EVERYBODY && !is_away(saver, part->holder)) {
        part->writer = part->holder;
        return;
    }
    part->writer = deal(saver, position, &end);
    part->count  = part->count < end - position ? part->count : end - position;
}

/* @param [out] parts  NULL: they are only counted. @return how many */
static size_t list_parts(ddp_saver_t *saver, ddp_save_part_t *parts)
{
    size_t n        = 0;
    size_t position = 0;

    for (size_t t = 0; t < saver->params.n_tensors; t++) {
        for (int a = 0; a < count_arrays(saver, t); a++) {
            ddp_save_part_t part = {.tensor = t, .array = a - 1};

            saver->first_part[t * (1 + saver->n_slots) + (size_t)a] = n;
            while (part.first < saver->params.tensors[t].count) {
                next_part(saver, position, &part);
                if (parts != NULL) {
                    parts[n] = part;
                }
                n++;
                position += part.count;
                part.first += part.count;
            }
        }
    }
    return n;
}

/* One behind the other in the snapshot of their writer. */
static ddp_status_t place_parts(ddp_saver_t *saver)
{
    ddp_status_t status = DDP_OK;
    size_t      *used   = calloc((size_t)saver->n_writers, sizeof(*used));

    DDP_REQUIRE(used != NULL, DDP_ERR_NO_MEMORY, "no memory for a checkpoint's outline");
    for (size_t i = 0; i < saver->n_parts; i++) {
        ddp_save_part_t *part = &saver->parts[i];

        part->at = used[part->writer];
        used[part->writer] += part->count;
    }
    saver->own_floats = saver->is_writer ? used[saver->rank] : 0;
out:
    free(used);
    return status;
}

ddp_status_t ddp_saver_cut(ddp_saver_t *saver)
{
    ddp_status_t status   = DDP_OK;
    bool         has_away = false;

    saver->first_part = calloc(saver->params.n_tensors * (1 + saver->n_slots), sizeof(*saver->first_part));
    DDP_REQUIRE(saver->first_part != NULL, DDP_ERR_NO_MEMORY, "no memory for a checkpoint's outline");
    saver->n_parts = list_parts(saver, NULL);
    saver->parts   = calloc(saver->n_parts, sizeof(*saver->parts));
    DDP_REQUIRE(saver->parts != NULL, DDP_ERR_NO_MEMORY, "no memory for a checkpoint's outline");
    (void)list_parts(saver, saver->parts);
    DDP_TRY(place_parts(saver));
    for (size_t i = 0; i < saver->n_parts; i++) {
        has_away = has_away || is_away(saver, saver->parts[i].holder);
    }
    saver->pass_floats = PASS_FLOATS;
    if (has_away && !saver->is_writer) {
        saver->passing = calloc(PASS_FLOATS, sizeof(*saver->passing));
        DDP_REQUIRE(saver->passing != NULL, DDP_ERR_NO_MEMORY, "no memory to pass on a checkpoint");
    }
out:
    return status;
}

/* An array's parts as pieces of the file. */
static void add_array(ddp_saver_t *saver, const ddp_checkpoint_extent_t *extent)
{
    ddp_save_shared_t *shared = saver->shared;
    size_t   i  = saver->first_part[extent->tensor * (1 + saver->n_slots) + (size_t)(extent->array + 1)];
    uint64_t at = extent->at;

    while (at < extent->at + extent->bytes) {
        const ddp_save_part_t *part  = &saver->parts[i++];
        const uint64_t         bytes = part->count * sizeof(float);

        saver->pieces[shared->n_pieces++] = (ddp_save_piece_t){.at          = at,
                                                               .bytes       = bytes,
                                                               .tensor      = part->tensor,
                                                               .array       = part->array,
                                                               .rank        = part->writer,
                                                               .at_snapshot = part->at};
        at += bytes;
    }
}

ddp_status_t ddp_saver_plan(ddp_saver_t *saver, const ddp_training_state_t *state, ddp_save_job_t *job)
{
    ddp_status_t       status = DDP_OK;
    const size_t       n      = saver->params.n_tensors;
    uint64_t          *steps  = calloc(n, sizeof(*steps));
    ddp_save_shared_t *shared = saver->shared;
    char               name[DDP_CHECKPOINT_NAME_SIZE];

    DDP_REQUIRE(steps != NULL, DDP_ERR_NO_MEMORY, "no memory for a checkpoint");
    for (size_t i = 0; i < n; i++) {
        steps[i] = ddp_reducer_tensor_steps(saver->params.reducer, i);
    }
    DDP_TRY(ddp_checkpoint_plan_make(saver->params.tensors, steps, n, state, &job->plan));
    shared->n_pieces = 0;
    shared->bytes    = job->plan.bytes;
    ddp_checkpoint_name(state->step, name);
    snprintf(shared->what, sizeof(shared->what), "writing checkpoint '%.256s/%s'", saver->folder, name);
    for (size_t i = 0; i < job->plan.n_extents; i++) {
        const ddp_checkpoint_extent_t *extent = &job->plan.extents[i];

        if (extent->array == DDP_CHECKPOINT_METADATA) { /* rank 0's */
            saver->pieces[shared->n_pieces++] =
                (ddp_save_piece_t){.at = extent->at, .bytes = extent->bytes, .array = extent->array};
        } else {
            add_array(saver, extent);
        }
    }
out:
    free(steps);
    return status;
}

static ddp_status_t read_part(ddp_saver_t *saver, const ddp_save_part_t *part, size_t first, size_t n,
                              float *to)
{
    const size_t offset = saver->params.tensors[part->tensor].offset + part->first + first;

    return ddp_reducer_read(saver->params.reducer, part->array, offset, n, to);
}

/* From a rank of another machine to the writer, piece by piece. */
static ddp_status_t pass_part(ddp_saver_t *saver, const ddp_save_part_t *part)
{
    ddp_status_t status = DDP_OK;

    const size_t most = saver->pass_floats;

    for (size_t first = 0; first < part->count; first += most) {
        const size_t n    = part->count - first < most ? part->count - first : most;
        float       *data = saver->passing;

        if (saver->rank == part->holder) {
            DDP_TRY(read_part(saver, part, first, n, data));
        } else if (saver->rank == part->writer) {
            data = saver->snapshot + part->at + first;
        }
        DDP_TRY(ddp_comm_pass(saver->params.comm, data, n * sizeof(*data), part->holder, part->writer));
    }
out:
    return status;
}

ddp_status_t ddp_saver_copy(ddp_saver_t *saver)
{
    ddp_status_t status = DDP_OK;
    size_t       passed = 0;

    for (size_t i = 0; i < saver->n_parts; i++) {
        const ddp_save_part_t *part = &saver->parts[i];

        if (is_away(saver, part->holder)) {
            DDP_TRY(pass_part(saver, part));
            passed += part->count;
        } else if (saver->is_writer && part->writer == saver->rank) {
            DDP_TRY(read_part(saver, part, 0, part->count, saver->snapshot + part->at));
            ddp_progressed();
        }
        if (passed >= MEET_FLOATS) { /* nobody's turn is far off */
            DDP_TRY(ddp_comm_barrier(saver->params.comm));
            passed = 0;
        }
    }
out:
    return status;
}
