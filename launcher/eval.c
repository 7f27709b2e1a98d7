#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocator.h"
#include "base/clock.h"
#include "base/convert.h"
#include "base/error.h"
#include "launcher/run.h"

/* Samples of a chunk. */
static size_t chunk_rows(const ddp_run_t *run)
{
    const size_t context = run->data.context;
    const size_t rows    = context > 0 ? DDP_EVAL_TOKENS / context : DDP_EVAL_CHUNK;

    return rows < 1 ? 1 : rows < DDP_EVAL_CHUNK ? rows : DDP_EVAL_CHUNK;
}

ddp_status_t ddp_eval_create(ddp_run_t *run)
{
    ddp_status_t           status = DDP_OK;
    ddp_eval_t            *eval   = &run->eval;
    const ddp_allocator_t *memory = ddp_allocator_private();
    const size_t           size   = (size_t)ddp_comm_size(run->comm);
    const size_t           labels = run->data.context > 0 ? run->data.context : 1;
    size_t                 first  = 0;

    eval->rows   = chunk_rows(run);
    eval->chunks = (run->data.test_samples + eval->rows - 1) / eval->rows;
    ddp_partition(eval->chunks, size, (size_t)ddp_comm_rank(run->comm), &eval->first, &eval->count);
    ddp_partition(eval->chunks, size, 0, &first, &eval->most);
    DDP_TRY(memory->acquire(memory->ctx, "evaluation", eval->rows * run->data.sample_bytes, &eval->x));
    eval->y    = calloc(eval->rows * labels, sizeof(*eval->y));
    eval->mine = calloc(eval->most, sizeof(*eval->mine));
    eval->all  = calloc(eval->most * size, sizeof(*eval->all));
    DDP_REQUIRE(eval->y != NULL && eval->mine != NULL && eval->all != NULL, DDP_ERR_NO_MEMORY,
                "no memory for evaluation");
out:
    return status;
}

void ddp_eval_destroy(ddp_eval_t *eval)
{
    const ddp_allocator_t *memory = ddp_allocator_private();

    memory->release(memory->ctx, eval->x);
    free(eval->y);
    free(eval->mine);
    free(eval->all);
    memset(eval, 0, sizeof(*eval));
}

static ddp_status_t forward_pictures(ddp_run_t *run, const size_t *index, size_t n,
                                     ddp_loss_stats_t **stats_p)
{
    ddp_status_t              status   = DDP_OK;
    const ddp_dataset_info_t *info     = ddp_dataset_info(run->test);
    const size_t              shape[4] = {n, info->height, info->width, info->channels};
    ddp_tensor_t             *x        = NULL;
    ddp_tensor_t             *logits   = NULL;

    ddp_dataset_fetch(run->test, index, n, run->eval.x, run->eval.y);
    DDP_TRY(ddp_tape_input(run->tape, run->eval.x, 4, shape, &x));
    DDP_TRY(ddp_model_forward(run->model, run->tape, x, &logits));
    DDP_TRY(ddp_nn_cross_entropy(run->tape, logits, run->eval.y, NULL, DDP_RUN_NO_LABEL, stats_p));
out:
    return status;
}

static ddp_status_t forward_tokens(ddp_run_t *run, const size_t *index, size_t n, ddp_loss_stats_t **stats_p)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_tokens_fetch(run->test_tokens, index, n, run->eval.x, run->eval.y));
    DDP_TRY(ddp_model_forward_tokens(run->model, run->tape, run->eval.x, run->eval.y, n, run->data.context,
                                     stats_p));
out:
    return status;
}

static ddp_status_t run_chunk(ddp_run_t *run, size_t chunk, ddp_loss_stats_t *sums_p)
{
    ddp_status_t           status = DDP_OK;
    const ddp_tape_begin_t begin  = {.training = false};
    const size_t           first  = chunk * run->eval.rows;
    const size_t           left   = run->data.test_samples - first;
    const size_t           n      = left < run->eval.rows ? left : run->eval.rows;
    size_t                 index[DDP_EVAL_CHUNK];
    ddp_loss_stats_t      *stats = NULL;

    for (size_t i = 0; i < n; i++) {
        index[i] = first + i;
    }
    DDP_TRY(ddp_tape_begin(run->tape, &begin));
    DDP_TRY(run->test != NULL ? forward_pictures(run, index, n, &stats)
                              : forward_tokens(run, index, n, &stats));
    /* the next chunk overwrites x, y and stats */
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
    result->loss       = loss / counted;
    result->accuracy   = correct / counted;
    result->perplexity = run->data.context > 0 ? exp(result->loss) : 0.0;
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
