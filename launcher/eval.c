#include <stdlib.h>
#include <string.h>

#include "base/allocator.h"
#include "base/clock.h"
#include "base/convert.h"
#include "base/error.h"
#include "launcher/run.h"

ddp_status_t ddp_eval_create(ddp_run_t *run)
{
    ddp_status_t              status = DDP_OK;
    ddp_eval_t               *eval   = &run->eval;
    const ddp_dataset_info_t *info   = ddp_dataset_info(run->test);
    const ddp_allocator_t    *memory = ddp_allocator_private();
    const size_t              size   = (size_t)ddp_comm_size(run->comm);
    const size_t              pixels = info->height * info->width * info->channels;
    size_t                    first  = 0;
    void                     *images = NULL;

    eval->chunks = (info->samples + DDP_EVAL_CHUNK - 1) / DDP_EVAL_CHUNK;
    ddp_partition(eval->chunks, size, (size_t)ddp_comm_rank(run->comm), &eval->first, &eval->count);
    ddp_partition(eval->chunks, size, 0, &first, &eval->most);
    DDP_TRY(memory->acquire(memory->ctx, "evaluation", DDP_EVAL_CHUNK * pixels * sizeof(float), &images));
    eval->images = images;
    eval->labels = calloc(DDP_EVAL_CHUNK, sizeof(*eval->labels));
    eval->mine   = calloc(eval->most, sizeof(*eval->mine));
    eval->all    = calloc(eval->most * size, sizeof(*eval->all));
    DDP_REQUIRE(eval->labels != NULL && eval->mine != NULL && eval->all != NULL, DDP_ERR_NO_MEMORY,
                "no memory for evaluation");
out:
    return status;
}

void ddp_eval_destroy(ddp_eval_t *eval)
{
    const ddp_allocator_t *memory = ddp_allocator_private();

    memory->release(memory->ctx, eval->images);
    free(eval->labels);
    free(eval->mine);
    free(eval->all);
    memset(eval, 0, sizeof(*eval));
}

static ddp_status_t run_chunk(ddp_run_t *run, size_t chunk, ddp_loss_stats_t *sums_p)
{
    ddp_status_t              status = DDP_OK;
    const ddp_dataset_info_t *info   = ddp_dataset_info(run->test);
    const ddp_tape_begin_t    begin  = {.training = false};
    const size_t              first  = chunk * DDP_EVAL_CHUNK;
    const size_t      n = info->samples - first < DDP_EVAL_CHUNK ? info->samples - first : DDP_EVAL_CHUNK;
    const size_t      shape[4] = {n, info->height, info->width, info->channels};
    size_t            index[DDP_EVAL_CHUNK];
    ddp_tensor_t     *x      = NULL;
    ddp_tensor_t     *logits = NULL;
    ddp_loss_stats_t *stats  = NULL;

    for (size_t i = 0; i < n; i++) {
        index[i] = first + i;
    }
    ddp_dataset_fetch(run->test, index, n, run->eval.images, run->eval.labels);
    DDP_TRY(ddp_tape_begin(run->tape, &begin));
    DDP_TRY(ddp_tape_input(run->tape, run->eval.images, 4, shape, &x));
    DDP_TRY(ddp_model_forward(run->model, run->tape, x, &logits));
    DDP_TRY(ddp_nn_cross_entropy(run->tape, logits, run->eval.labels, NULL, DDP_RUN_NO_LABEL, &stats));
    /* the next chunk overwrites images, labels and stats */
    DDP_TRY(ddp_stream_synchronize(run->compute, -1));
    *sums_p = *stats;
out:
    return status;
}

/* Chunk by chunk in order, whoever computed it. */
static void sum_chunks(const ddp_run_t *run, ddp_eval_result_t *result)
{
    const ddp_eval_t *eval    = &run->eval;
    const size_t      size    = (size_t)ddp_comm_size(run->comm);
    double            loss    = 0;
    double            correct = 0;
    double            counted = 0;

    for (size_t r = 0; r < size; r++) {
        size_t first;
        size_t count;

        ddp_partition(eval->chunks, size, r, &first, &count);
        for (size_t i = 0; i < count; i++) {
            const ddp_loss_stats_t *sums = &eval->all[r * eval->most + i];

            loss += (double)sums->loss;
            correct += (double)sums->correct;
            counted += (double)sums->counted;
        }
    }
    result->loss     = loss / counted;
    result->accuracy = correct / counted;
}

ddp_status_t ddp_eval_run(ddp_run_t *run, ddp_eval_result_t *result_p)
{
    ddp_status_t      status = DDP_OK;
    ddp_eval_t       *eval   = &run->eval;
    const int64_t     start  = ddp_clock_ns();
    ddp_eval_result_t result;

    DDP_TRY(ddp_reducer_finish(run->reducer));
    for (size_t i = 0; i < eval->count; i++) {
        DDP_TRY(run_chunk(run, eval->first + i, &eval->mine[i]));
    }
    DDP_TRY(ddp_comm_allgather(run->comm, eval->mine, eval->most * sizeof(*eval->mine), eval->all));
    sum_chunks(run, &result);
    result.seconds = (double)(ddp_clock_ns() - start) / 1e9;
    *result_p      = result;
out:
    return status;
}
