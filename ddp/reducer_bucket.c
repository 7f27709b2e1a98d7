/*
 * One bucket on one machine: say that this rank's gradients are final, wait for the machine's other ranks,
 * then sum the own slice in tree order and update it in the same pass over memory. With two_phase the sum is
 * kept and the update comes at the end.
 */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "ddp/reducer_internal.h"

/* A program of this machine with its sources at `offset` of their arenas. */
static ddp_tree_program_t local_program(ddp_reducer_t *r, const ddp_program_t *program, size_t offset)
{
    for (size_t s = 0; s < program->n_sources; s++) {
        r->host.source_pointer[s] = r->host.sources[program->first_source + s].base + offset;
    }
    return (ddp_tree_program_t){
        .op     = program->op,
        .length = program->length,
        .source = r->host.source_pointer,
        .scale = r->params.average == DDP_AVERAGE_RANKS ? r->host.source_scale + program->first_source : NULL,
    };
}

/* The part of a slice that is one tensor's. Its sources are weighted as gradients are, or all alike. */
static ddp_tree_program_t segment_program(ddp_reducer_t *r, const ddp_program_t *program,
                                          const ddp_segment_t *segment)
{
    ddp_tree_program_t result = local_program(r, program, segment->offset);

    if (r->tensors[segment->tensor].role == DDP_TENSOR_AVERAGE) {
        result.scale = NULL;
    }
    return result;
}

/* @return false: the sum of its gradients is not finite */
static bool update_segment(ddp_reducer_t *r, const ddp_segment_t *segment, const ddp_tree_program_t *program)
{
    const bool               norm   = r->wants_norm && !r->two_phase;
    const ddp_tensor_desc_t *tensor = &r->tensors[segment->tensor];
    ddp_update_t             update = {
                    .config     = tensor->no_decay ? &r->optim_no_decay : &r->params.optim,
                    .lr         = r->sums.lr,
                    .grad_scale = r->sums.grad_scale,
                    .step       = r->steps[segment->tensor] + 1,
                    .param      = r->values + segment->offset,
                    .sumsq      = norm ? r->host.block_sumsq + segment->offset / DDP_BLOCK : NULL,
    };

    if (tensor->role == DDP_TENSOR_AVERAGE) {
        return ddp_tree_average(r->host.isa, program, update.param, tensor->momentum, r->present,
                                update.sumsq, segment->blocks);
    }
    for (size_t s = 0; s < 2; s++) {
        update.slot[s] = r->slots[s] == NULL ? NULL : r->slots[s] + segment->offset;
    }
    return ddp_tree_update(r->host.isa, program, &update, segment->blocks);
}

/* single: the total is already there, in that arena; else the local sources are summed on the way */
static void update_bucket(ddp_reducer_t *r, const ddp_bucket_t *bucket, const float *single)
{
    static const int32_t push_first[1] = {0};

    if (!r->sums.update) {
        return;
    }
    for (size_t i = 0; i < bucket->n_segments; i++) {
        const ddp_segment_t *segment = &bucket->segments[i];
        const float         *source  = single == NULL ? NULL : single + segment->offset;
        ddp_tree_program_t   program = {push_first, 1, &source, NULL};

        if (!r->used_any[segment->tensor]) { /* by nobody: the optimizer leaves it and its moments alone */
            memset(r->host.block_sumsq + segment->offset / DDP_BLOCK, 0, segment->blocks * sizeof(double));
            continue;
        }
        if (single == NULL) {
            program = segment_program(r, &r->host.local[0], segment);
        }
        if (!update_segment(r, segment, &program) && segment->tensor < r->host.broken) {
            r->host.broken = segment->tensor;
        }
    }
}

void ddp_reducer_bucket_total(ddp_reducer_t *r, const ddp_bucket_t *bucket)
{
    static const int32_t push_first[1] = {0};
    const float         *source        = r->host.total_base + bucket->slice_offset;
    ddp_tree_program_t   program       = {push_first, 1, &source, NULL};

    if (!r->two_phase) {
        update_bucket(r, bucket, r->host.total_base);
        return;
    }
    ddp_tree_sum_sumsq(r->host.isa, &program, r->host.total_base + bucket->slice_offset,
                       r->host.block_sumsq + bucket->slice_offset / DDP_BLOCK, bucket->slice_blocks);
}

static void reduce_here(ddp_reducer_t *r, const ddp_bucket_t *bucket)
{
    if (!r->two_phase) {
        update_bucket(r, bucket, NULL);
        return;
    }
    for (size_t i = 0; i < bucket->n_segments; i++) {
        const ddp_segment_t     *segment = &bucket->segments[i];
        const ddp_tree_program_t program = segment_program(r, &r->host.local[0], segment);

        ddp_tree_sum_sumsq(r->host.isa, &program, r->host.total_base + segment->offset,
                           r->host.block_sumsq + segment->offset / DDP_BLOCK, segment->blocks);
    }
}

/* Each node of this machine into the arena of its first source. */
static void combine_nodes(ddp_reducer_t *r, const ddp_bucket_t *bucket)
{
    for (size_t i = 0; i < r->host.n_local; i++) {
        const ddp_program_t *node = &r->host.local[i];
        float               *to   = r->host.sources[node->first_source].writable;

        if (node->n_sources == 1 && r->params.average == DDP_AVERAGE_SAMPLES) {
            continue; /* it is the arena already */
        }
        for (size_t s = 0; s < bucket->n_segments; s++) {
            const ddp_segment_t     *segment = &bucket->segments[s];
            const ddp_tree_program_t program = segment_program(r, node, segment);

            ddp_tree_sum(r->host.isa, &program, to + segment->offset, segment->blocks);
        }
    }
}

ddp_status_t ddp_reducer_bucket_work(void *args)
{
    ddp_status_t             status = DDP_OK;
    const ddp_bucket_args_t *a      = args;
    ddp_reducer_t           *r      = a->reducer;
    ddp_bucket_t            *bucket = &r->buckets[a->bucket];
    int64_t                  start;

    if (!bucket->announced) {
        bucket->announced = true;
        ddp_comm_flag_set(r->comm, &r->host.ready_flag[(size_t)r->local_rank * r->n_buckets + a->bucket],
                          r->step);
    }
    for (int local = 0; local < r->local_size; local++) {
        if (!ddp_comm_flag_reached(&r->host.ready_flag[(size_t)local * r->n_buckets + a->bucket], r->step)) {
            ddp_comm_waiting(r->comm, (ddp_wait_t){ddp_comm_machine_first(r->comm, r->machine) + local,
                                                   "gradients", r->step, a->bucket});
            return DDP_IN_PROGRESS;
        }
    }
    start               = ddp_clock_ns();
    bucket->launched_ns = start;
    if (r->machines == 1) {
        reduce_here(r, bucket);
        bucket->done_ns = ddp_clock_ns();
        r->comm_ns += bucket->done_ns - start;
    } else { /* done_ns: see ddp_reducer_wire_work() */
        ddp_reducer_wire_opened(r, start);
        combine_nodes(r, bucket);
        DDP_TRY(ddp_reducer_wire_start(r, a->bucket));
    }
out:
    return status;
}

/* The second phase: once every slice is summed on this machine, the norm is known and the updates can begin.
 */
static ddp_status_t second_phase(ddp_reducer_t *r)
{
    int64_t start;

    if (!ddp_comm_flag_reached(&r->host.summed_flag[r->local_rank], r->step)) {
        ddp_comm_flag_set(r->comm, &r->host.summed_flag[r->local_rank], r->step);
    }
    for (int local = 0; local < r->local_size; local++) {
        if (!ddp_comm_flag_reached(&r->host.summed_flag[local], r->step)) {
            ddp_comm_waiting(r->comm, (ddp_wait_t){ddp_comm_machine_first(r->comm, r->machine) + local,
                                                   "sums of its slices", r->step, (size_t)-1});
            return DDP_IN_PROGRESS;
        }
    }
    ddp_comm_at(r->comm, r->step, DDP_STAGE_UPDATE, DDP_NO_BUCKET);
    start = ddp_clock_ns();
    ddp_reducer_norm(r);
    for (size_t b = 0; b < r->n_buckets; b++) {
        update_bucket(r, &r->buckets[b], r->host.total_base);
    }
    r->comm_ns += ddp_clock_ns() - start;
    return DDP_OK;
}

/* The ranks of this machine have one clock, and their gradients are final by now. They keep what they wrote
 * until the flag that is set next. */
static void compare_ranks(ddp_reducer_t *r)
{
    const int first   = ddp_comm_machine_first(r->comm, r->machine);
    int64_t   least   = r->host.final_ns[0];
    int       slowest = 0;

    for (int local = 1; local < r->local_size; local++) {
        least   = r->host.final_ns[local] < least ? r->host.final_ns[local] : least;
        slowest = r->host.final_ns[local] > r->host.final_ns[slowest] ? local : slowest;
    }
    r->slowest_rank = first + slowest;
    r->spread_ns    = r->host.final_ns[slowest] - least;
}

ddp_status_t ddp_reducer_end_work(void *args)
{
    ddp_status_t   status = DDP_OK;
    ddp_reducer_t *r      = *(ddp_reducer_t **)args;

    if (r->two_phase) {
        DDP_TRY(second_phase(r));
    }
    r->host.broken_of[r->local_rank] = r->host.broken;
    compare_ranks(r);
    r->end_ns = ddp_clock_ns();
    ddp_comm_flag_set(r->comm, &r->host.done_flag[r->local_rank], r->step);
out:
    return status;
}
