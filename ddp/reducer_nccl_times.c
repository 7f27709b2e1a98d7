/*
 * When things happened on the device. Events of one step are read in the next one, when it is known that all
 * of them have been: no wait is for times alone. Two sets, taken in turn.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "ddp/reducer_nccl_internal.h"
#include "kernels/cuda/device.h"

static ddp_status_t make_events(cudaEvent_t *events, size_t n)
{
    ddp_status_t status = DDP_OK;

    for (size_t i = 0; i < n; i++) {
        DDP_TRY(ddp_nccl_cuda(cudaEventCreateWithFlags(&events[i], cudaEventDefault), "cudaEventCreate"));
    }
out:
    return status;
}

ddp_status_t ddp_nccl_times_create(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;
    const size_t n      = r->n_buckets;

    DDP_TRY(ddp_cuda_enter(r->device));
    for (int set = 0; set < 2; set++) {
        ddp_nccl_times_t *times = &r->nccl->times[set];

        times->ready    = calloc(n, sizeof(*times->ready));
        times->launched = calloc(n, sizeof(*times->launched));
        times->done     = calloc(n, sizeof(*times->done));
        DDP_REQUIRE(times->ready != NULL && times->launched != NULL && times->done != NULL, DDP_ERR_NO_MEMORY,
                    "no memory for times of %zu buckets", n);
        DDP_TRY(make_events(&times->begin, 1));
        DDP_TRY(make_events(&times->backward_end, 1));
        DDP_TRY(make_events(&times->end, 1));
        DDP_TRY(make_events(times->ready, n));
        DDP_TRY(make_events(times->launched, n));
        DDP_TRY(make_events(times->done, n));
    }
out:
    return status;
}

static void destroy_events(cudaEvent_t *events, size_t n)
{
    for (size_t i = 0; events != NULL && i < n; i++) {
        if (events[i] != NULL) {
            (void)cudaEventDestroy(events[i]);
        }
    }
}

void ddp_nccl_times_destroy(ddp_reducer_t *r)
{
    for (int set = 0; set < 2; set++) {
        ddp_nccl_times_t *times = &r->nccl->times[set];

        destroy_events(&times->begin, 1);
        destroy_events(&times->backward_end, 1);
        destroy_events(&times->end, 1);
        destroy_events(times->ready, r->n_buckets);
        destroy_events(times->launched, r->n_buckets);
        destroy_events(times->done, r->n_buckets);
        free(times->ready);
        free(times->launched);
        free(times->done);
    }
}

ddp_status_t ddp_nccl_times_record(ddp_reducer_t *r, cudaEvent_t event, ddp_stream_t *stream)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_cuda_enter(r->device));
    DDP_TRY(ddp_nccl_cuda(cudaEventRecord(event, ddp_cuda_stream(stream)), "cudaEventRecord"));
out:
    return status;
}

/* On the host's clock. */
static ddp_status_t read_event(const ddp_nccl_times_t *times, cudaEvent_t event, int64_t *ns_p)
{
    ddp_status_t status = DDP_OK;
    float        ms     = 0;

    DDP_TRY(ddp_nccl_cuda(cudaEventElapsedTime(&ms, times->begin, event), "cudaEventElapsedTime"));
    *ns_p = times->begin_ns + (int64_t)((double)ms * (double)DDP_NS_PER_MS);
out:
    return status;
}

static int64_t after(int64_t from, int64_t to)
{
    return to > from ? to - from : 0;
}

ddp_status_t ddp_nccl_times_read(ddp_reducer_t *r, uint64_t step)
{
    ddp_status_t            status = DDP_OK;
    const ddp_nccl_times_t *times  = &r->nccl->times[step % 2];
    int64_t                 hidden = 0;

    DDP_TRY(ddp_cuda_enter(r->device));
    r->begin_ns        = times->begin_ns;
    r->backward_end_ns = times->begin_ns;
    r->comm_ns         = 0;
    if (times->had_backward) {
        DDP_TRY(read_event(times, times->backward_end, &r->backward_end_ns));
    }
    DDP_TRY(read_event(times, times->end, &r->end_ns));
    for (size_t b = 0; b < r->n_buckets; b++) {
        ddp_bucket_t *bucket = &r->buckets[b];

        DDP_TRY(read_event(times, times->ready[b], &bucket->ready_ns));
        DDP_TRY(read_event(times, times->launched[b], &bucket->launched_ns));
        DDP_TRY(read_event(times, times->done[b], &bucket->done_ns));
        r->comm_ns += after(bucket->launched_ns, bucket->done_ns);
        hidden += after(bucket->launched_ns,
                        bucket->done_ns < r->backward_end_ns ? bucket->done_ns : r->backward_end_ns);
    }
    r->hidden_comm_ns = hidden;
    r->nccl->timed    = step;
out:
    return status;
}
