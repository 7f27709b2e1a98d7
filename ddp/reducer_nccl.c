/* The `nccl` path: set-up, and the calls of a step. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "ddp/reducer_nccl_internal.h"
#include "kernels/ranges.h"

static ddp_status_t make_parts(ddp_reducer_t *r)
{
    ddp_status_t     status = DDP_OK;
    ddp_nccl_path_t *path   = r->nccl;

    path->shard = r->params.shard;
    path->exact = r->params.reduction == DDP_REDUCTION_EXACT;
    DDP_TRY(ddp_stream_create_urgent(r->device, "comm", &path->comm));
    DDP_TRY(ddp_event_create(r->device, &path->ready_point));
    DDP_TRY(ddp_event_create(r->device, &path->sums_point));
    DDP_TRY(ddp_event_create(r->device, &path->norm_point));
    DDP_TRY(ddp_event_create(r->device, &path->end_point));
    DDP_TRY(ddp_nccl_times_create(r));
    DDP_TRY(ddp_nccl_memory_create(r));
    if (path->exact) {
        DDP_TRY(ddp_nccl_exact_create(r));
    }
    DDP_TRY(ddp_stream_synchronize(r->compute, -1));
out:
    return status;
}

static ddp_status_t nccl_create(ddp_reducer_t *r)
{
    ddp_status_t      status = DDP_OK;
    ddp_nccl_params_t params = DDP_NCCL_PARAMS_INIT;

    r->nccl = calloc(1, sizeof(*r->nccl));
    DDP_TRY(ddp_comm_agree(
        r->comm, r->nccl != NULL ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory for a reducer")));
    params.comm          = r->comm;
    params.device        = r->device;
    params.max_ctas      = r->params.max_ctas;
    params.share_devices = r->params.share_devices;
    DDP_TRY(ddp_nccl_create(&params, &r->nccl->nccl));
    DDP_TRY(ddp_comm_agree(r->comm, make_parts(r)));
out:
    return status;
}

static ddp_status_t nccl_finish(ddp_reducer_t *r);

static void nccl_destroy(ddp_reducer_t *r)
{
    ddp_nccl_path_t *path = r->nccl;

    if (path == NULL) {
        return;
    }
    if (r->state != DDP_REDUCER_IDLE && path->nccl != NULL && path->nccl->failed == DDP_OK) {
        path->nccl->failed = DDP_ERR_STATE; /* the others are not at the end: abort */
    } else if (path->nccl != NULL && path->nccl->failed == DDP_OK) {
        ddp_ignore(nccl_finish(r), "what fails here was told to all, and the communicator is aborted");
    }
    ddp_nccl_times_destroy(r);
    ddp_event_destroy(&path->ready_point);
    ddp_event_destroy(&path->sums_point);
    ddp_event_destroy(&path->norm_point);
    ddp_event_destroy(&path->end_point);
    if (path->exact) {
        ddp_nccl_exact_destroy(r);
    }
    ddp_nccl_destroy(&path->nccl); /* before its stream: an abort ends what is on it */
    ddp_stream_destroy(&path->comm);
    ddp_nccl_memory_destroy(r);
    free(path);
    r->nccl = NULL;
}

static ddp_status_t nccl_publish(ddp_reducer_t *r)
{
    return ddp_comm_barrier(r->comm);
}

static ddp_status_t nccl_restore(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_stream_copy(r->compute, r->nccl->steps, r->steps, r->params.n_tensors * sizeof(*r->steps)));
    DDP_TRY(ddp_stream_synchronize(r->compute, -1));
    r->nccl->first_step = r->step;
out:
    return status;
}

/* Later work of `stream` runs after what is on `before` now. */
static ddp_status_t order(ddp_stream_t *stream, ddp_stream_t *before, ddp_event_t *point)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_event_record(point, before));
    DDP_TRY(ddp_stream_wait_event(stream, point));
out:
    return status;
}

static ddp_status_t nccl_step_begin(ddp_reducer_t *r, size_t present)
{
    ddp_status_t            status = DDP_OK;
    ddp_nccl_path_t        *path   = r->nccl;
    ddp_nccl_times_t       *times  = &path->times[(r->step + 1) % 2];
    const ddp_nccl_report_t at     = ddp_nccl_report(r);

    /* parameters are updated, gradients and the report no longer read */
    DDP_TRY(ddp_stream_wait_event(r->compute, path->end_point));
    if (r->present != present) {
        r->present = present;
        if (path->exact) {
            DDP_TRY(ddp_nccl_exact_plan(r));
        }
    }
    times->begin_ns     = ddp_clock_ns();
    times->had_backward = false;
    DDP_TRY(ddp_nccl_times_record(r, times->begin, r->compute));
    DDP_TRY(ddp_op_fill(r->compute, (float *)(void *)(path->report + at.leaves),
                        (at.words - at.leaves) / sizeof(float), 0.0F));
    memset(path->h_small + at.words, 0, at.bytes - at.words);
out:
    return status;
}

static ddp_status_t nccl_forward_done(ddp_reducer_t *r, const ddp_loss_stats_t *stats)
{
    ddp_nccl_path_t        *path  = r->nccl;
    const ddp_nccl_report_t at    = ddp_nccl_report(r);
    uint32_t               *words = (uint32_t *)(void *)(path->h_small + at.words);

    for (size_t i = 0; i < r->params.n_tensors; i++) {
        words[1 + i] |= r->used[i];
    }
    return ddp_stream_copy(r->compute, path->report + at.leaves + r->leaf * sizeof(*stats), stats,
                           sizeof(*stats));
}

static ddp_status_t prepare(ddp_reducer_t *r, const ddp_nccl_report_t *at)
{
    ddp_nccl_path_t *path = r->nccl;

    const ddp_cuda_prepare_args_t args = {
        .config        = &r->params.optim,
        .tensors       = path->tensors,
        .in            = {(const ddp_loss_stats_t *)(const void *)(path->report + at->leaves),
                          (const float *)(const void *)(path->report + at->lr),
                          (const uint32_t *)(const void *)(path->report + at->words)},
        .micro_batches = r->params.micro_batches,
        .present       = r->present,
        .ranks         = (size_t)r->size,
        .average_ranks = r->params.average == DDP_AVERAGE_RANKS,
        .two_phase     = r->two_phase,
        .loss_scale    = r->loss_scale.scale,
        .steps         = path->steps,
        .coef          = path->coef,
        .rank_scale    = path->rank_scale,
        .sums          = (ddp_cuda_sums_t *)(void *)path->report,
        .broken        = &path->end->broken,
    };

    return ddp_cuda_optim_prepare(path->comm, &args);
}

/* What only this rank's host knows goes into the report, then over all ranks. */
static ddp_status_t nccl_sums(ddp_reducer_t *r)
{
    ddp_status_t            status = DDP_OK;
    ddp_nccl_path_t        *path   = r->nccl;
    const ddp_nccl_report_t at     = ddp_nccl_report(r);
    const size_t            words  = 1 + r->params.n_tensors;

    *(float *)(void *)(path->h_small + at.lr)       = r->rank == 0 ? r->sums.lr : 0.0F;
    *(uint32_t *)(void *)(path->h_small + at.words) = r->sums.request;
    DDP_TRY(order(path->comm, r->compute, path->ready_point));
    DDP_TRY(ddp_stream_copy(path->comm, path->report + at.lr, path->h_small + at.lr, at.bytes - at.lr));
    if (r->size > 1) {
        DDP_TRY(ddp_nccl_group_start(path->nccl));
        DDP_TRY(ddp_nccl_all_reduce(path->nccl, path->comm, path->report + at.leaves,
                                    (at.words - at.leaves) / sizeof(float), ncclFloat32, ncclSum));
        DDP_TRY(
            ddp_nccl_all_reduce(path->nccl, path->comm, path->report + at.words, words, ncclUint32, ncclMax));
        DDP_TRY(ddp_nccl_group_end(path->nccl));
    }
    DDP_TRY(prepare(r, &at));
    DDP_TRY(ddp_stream_copy(path->comm, path->h_report, path->report, at.bytes));
    DDP_TRY(ddp_event_record(path->sums_point, path->comm));
out:
    return status;
}

static ddp_status_t nccl_merge(ddp_reducer_t *r, size_t b, ddp_merge_t arenas)
{
    const ddp_bucket_range_t *range = &r->buckets[b].range;

    return ddp_cuda_block_add(r->compute, r->grads_base + arenas.left * r->total + range->offset,
                              r->grads_base + arenas.right * r->total + range->offset,
                              range->count / DDP_BLOCK);
}

static ddp_status_t update(ddp_reducer_t *r, size_t b)
{
    ddp_status_t status;

    ddp_range_open("update", (int64_t)b);
    status = ddp_nccl_bucket_update(r, b);
    ddp_range_close();
    return status;
}

static ddp_status_t nccl_launch(ddp_reducer_t *r, size_t b)
{
    ddp_status_t            status = DDP_OK;
    ddp_nccl_path_t        *path   = r->nccl;
    const ddp_nccl_times_t *times  = &path->times[r->step % 2];

    DDP_TRY(ddp_nccl_times_record(r, times->ready[b], r->compute));
    DDP_TRY(order(path->comm, r->compute, path->ready_point));
    DDP_TRY(ddp_nccl_times_record(r, times->launched[b], path->comm));
    ddp_nccl_waiting(path->nccl, "gradients", r->step, b);
    DDP_TRY(ddp_nccl_bucket_reduce(r, b));
    if (r->two_phase) {
        DDP_TRY(ddp_nccl_bucket_sumsq(r, b));
    } else {
        DDP_TRY(update(r, b));
    }
    DDP_TRY(ddp_nccl_times_record(r, times->done[b], path->comm));
out:
    return status;
}

static ddp_status_t find_norm(ddp_reducer_t *r)
{
    ddp_status_t         status = DDP_OK;
    ddp_nccl_path_t     *path   = r->nccl;
    ddp_cuda_norm_args_t args   = {
          .tensors    = path->tensors,
          .sumsq      = path->sumsq,
          .tensor_sum = path->tensor_sum,
          .two_phase  = r->two_phase,
          .clip_norm  = r->params.clip_norm,
          .steps      = path->steps,
          .coef       = path->coef,
          .sums       = (ddp_cuda_sums_t *)(void *)path->report,
    };

    DDP_TRY(ddp_nccl_gather_sumsq(r));
    DDP_TRY(ddp_cuda_optim_norm(path->comm, &args));
out:
    return status;
}

static ddp_status_t second_phase(ddp_reducer_t *r)
{
    ddp_status_t     status = DDP_OK;
    ddp_nccl_path_t *path   = r->nccl;

    DDP_TRY(find_norm(r));
    DDP_TRY(ddp_stream_copy(path->comm, path->h_norm, path->report, sizeof(*path->h_norm)));
    DDP_TRY(ddp_event_record(path->norm_point, path->comm));
    for (size_t b = 0; b < r->n_buckets; b++) {
        DDP_TRY(update(r, b));
    }
out:
    return status;
}

/* What only some ranks have seen: who owns a slice that is broken, who lost numbers on the wire. */
static ddp_status_t gather_end(ddp_reducer_t *r)
{
    ddp_status_t     status = DDP_OK;
    ddp_nccl_path_t *path   = r->nccl;

    if (r->size > 1 && path->shard) {
        DDP_TRY(ddp_nccl_all_reduce(path->nccl, path->comm, &path->end->broken, 1, ncclUint32, ncclMin));
    }
    if (r->size > 1 && path->wire != NULL) {
        DDP_TRY(ddp_nccl_all_reduce(path->nccl, path->comm, &path->end->overflows, 1, ncclUint64, ncclSum));
    }
out:
    return status;
}

static ddp_status_t nccl_end(ddp_reducer_t *r)
{
    ddp_status_t      status = DDP_OK;
    ddp_nccl_path_t  *path   = r->nccl;
    ddp_nccl_times_t *times  = &path->times[r->step % 2];
    ddp_nccl_end_t   *told   = &path->h_end[r->step % 2];

    times->had_backward = r->leaf > r->first_leaf;
    if (times->had_backward) {
        DDP_TRY(ddp_nccl_times_record(r, times->backward_end, r->compute));
    }
    if (r->two_phase) {
        DDP_TRY(second_phase(r));
    } else if (r->wants_norm) {
        DDP_TRY(find_norm(r));
    }
    DDP_TRY(gather_end(r));
    DDP_TRY(ddp_stream_copy(path->comm, told, path->end, sizeof(*told)));
    if (path->wire != NULL) { /* they are counted for each step */
        DDP_TRY(ddp_op_fill(path->comm, (float *)(void *)&path->end->overflows,
                            sizeof(path->end->overflows) / sizeof(float), 0.0F));
    }
    DDP_TRY(ddp_stream_copy(path->comm, &told->sums, path->report, sizeof(told->sums)));
    DDP_TRY(ddp_nccl_times_record(r, times->end, path->comm));
    DDP_TRY(ddp_event_record(path->end_point, path->comm));
    path->ended = r->step;
out:
    return status;
}

/* Of a step that has ended: updates met what is not finite. */
static ddp_status_t check_ended(const ddp_reducer_t *r, uint64_t step)
{
    const uint32_t broken = r->nccl->h_end[step % 2].broken;

    return broken == DDP_CUDA_NO_TENSOR ? DDP_OK : ddp_reducer_fail_tensor(r, broken, step);
}

static void take_sums(ddp_reducer_t *r, const ddp_cuda_sums_t *told)
{
    r->sums = (ddp_sums_t){
        .loss       = told->loss,
        .weight     = told->weight,
        .correct    = told->correct,
        .counted    = told->counted,
        .lr         = told->lr,
        .request    = told->request,
        .grad_norm  = told->grad_norm,
        .finite     = told->finite != 0,
        .broken     = told->broken == DDP_CUDA_NO_TENSOR ? DDP_NO_TENSOR : told->broken,
        .update     = told->update != 0,
        .grad_scale = told->grad_scale,
    };
}

/* What fails here fails on all ranks. */
static ddp_status_t await(ddp_reducer_t *r, ddp_event_t *event, const char *what, uint64_t step,
                          size_t bucket)
{
    ddp_status_t status;

    ddp_nccl_waiting(r->nccl->nccl, what, step, bucket);
    status = ddp_event_synchronize(event, -1);
    return status == DDP_OK ? DDP_OK : ddp_nccl_fail(r->nccl->nccl, status);
}

static ddp_status_t nccl_wait(ddp_reducer_t *r)
{
    ddp_status_t            status = DDP_OK;
    ddp_nccl_path_t        *path   = r->nccl;
    const ddp_nccl_report_t at     = ddp_nccl_report(r);
    const uint32_t         *words  = (const uint32_t *)(const void *)(path->h_report + at.words);
    const uint64_t          before = r->step - 1;

    DDP_TRY(await(r, path->sums_point, "sums of its forward", r->step, (size_t)-1));
    take_sums(r, (const ddp_cuda_sums_t *)(const void *)path->h_report);
    for (size_t i = 0; i < r->params.n_tensors; i++) {
        r->used_any[i] = words[1 + i] != 0;
    }
    if (r->two_phase) {
        DDP_TRY(await(r, path->norm_point, "gradients", r->step, r->n_buckets - 1));
        take_sums(r, path->h_norm);
    }
    if (before > path->first_step) { /* it ended before this one's forward began */
        DDP_TRY(check_ended(r, before));
        DDP_TRY(ddp_nccl_times_read(r, before));
        r->wire_overflows = path->h_end[before % 2].overflows;
    }
    r->slowest_rank = r->rank;
    r->spread_ns    = 0;
out:
    return status;
}

static ddp_status_t nccl_finish(ddp_reducer_t *r)
{
    ddp_status_t     status = DDP_OK;
    ddp_nccl_path_t *path   = r->nccl;

    if (path->ended == 0) {
        return DDP_OK;
    }
    DDP_TRY(await(r, path->end_point, "updated parameters", path->ended, (size_t)-1));
    DDP_TRY(check_ended(r, path->ended));
out:
    return status;
}

static ddp_status_t nccl_times(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;

    if (r->nccl->ended > 0 && r->nccl->timed != r->nccl->ended) {
        DDP_TRY(await(r, r->nccl->end_point, "updated parameters", r->nccl->ended, (size_t)-1));
        DDP_TRY(ddp_nccl_times_read(r, r->nccl->ended));
    }
out:
    return status;
}

static ddp_status_t nccl_norm(ddp_reducer_t *r, double *norm_p)
{
    const double norm = r->nccl->h_end[r->nccl->ended % 2].sums.grad_norm;

    *norm_p = r->nccl->ended > 0 ? norm : (double)NAN;
    return DDP_OK;
}

/* What it must take from each other rank, however NCCL passes it on: sums of its slice, and what others made
 * of theirs. */
static void nccl_traffic(const ddp_reducer_t *r, uint64_t *from)
{
    const ddp_nccl_path_t *path  = r->nccl;
    const uint64_t         bytes = DDP_BLOCK * (path->wire != NULL ? sizeof(*path->wire) : sizeof(float));
    const uint64_t         back  = DDP_BLOCK * (path->shard ? sizeof(float) : bytes / DDP_BLOCK);

    for (size_t b = 0; b < r->n_buckets; b++) {
        const ddp_nccl_range_t *range = &path->ranges[b];

        for (int q = 0; q < r->size; q++) {
            const uint64_t sources = path->exact ? path->sum.of_rank[q] : 1;

            from[q] += q == r->rank
                           ? 0
                           : sources * (range->slice + range->rest_blocks) * bytes + range->slice * back;
        }
    }
}

static const ddp_reducer_path_t nccl_path = {
    .name         = "nccl",
    .create       = nccl_create,
    .destroy      = nccl_destroy,
    .publish      = nccl_publish,
    .restore      = nccl_restore,
    .step_begin   = nccl_step_begin,
    .forward_done = nccl_forward_done,
    .sums         = nccl_sums,
    .merge        = nccl_merge,
    .launch       = nccl_launch,
    .end          = nccl_end,
    .wait         = nccl_wait,
    .finish       = nccl_finish,
    .times        = nccl_times,
    .is_on_device = true,
    .holder       = ddp_nccl_holder,
    .place        = ddp_nccl_place,
    .grad_norm    = nccl_norm,
    .traffic      = nccl_traffic,
};

const ddp_reducer_path_t *ddp_reducer_nccl_path(void)
{
    return &nccl_path;
}
