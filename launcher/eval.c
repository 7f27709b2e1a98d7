#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocator.h"
#include "base/clock.h"
#include "base/convert.h"
#include "base/error.h"
#include "kernels/ranges.h"
#include "launcher/data_parallel.h"

size_t ddp_eval_rows(const ddp_run_t *run)
{
    const size_t context = run->data.context;
    const size_t rows    = context > 0 ? DDP_EVAL_TOKENS / context : DDP_EVAL_CHUNK;
    const size_t most    = run->data.test_samples < DDP_EVAL_CHUNK ? run->data.test_samples : DDP_EVAL_CHUNK;

    return rows < 1 || most < 1 ? 1 : rows < most ? rows : most;
}

/* Of a sample: a label, or as many targets as it has tokens. */
size_t ddp_eval_label_bytes(const ddp_run_t *run)
{
    return (run->data.context > 0 ? run->data.context : 1) * sizeof(int32_t);
}

static size_t places_of(const ddp_run_t *run)
{
    return run->devices.n > 0 ? run->devices.n : 1;
}

size_t ddp_eval_bytes(const ddp_run_t *run)
{
    const size_t rows   = ddp_eval_rows(run);
    const size_t size   = (size_t)ddp_comm_size(run->comm);
    const size_t chunks = (run->data.test_samples + rows - 1) / rows;
    size_t       first;
    size_t       most;

    ddp_partition(chunks, size, 0, &first, &most);
    return places_of(run) * rows * (run->data.sample_bytes + ddp_eval_label_bytes(run)) +
           most * (size + 1) * sizeof(ddp_loss_stats_t);
}

ddp_status_t ddp_eval_create(ddp_run_t *run)
{
    ddp_status_t           status = DDP_OK;
    ddp_eval_t            *eval   = &run->eval;
    const ddp_allocator_t *memory = ddp_allocator_private();
    const size_t           size   = (size_t)ddp_comm_size(run->comm);
    size_t                 first  = 0;

    eval->rows   = ddp_eval_rows(run);
    eval->places = places_of(run);
    eval->chunks = (run->data.test_samples + eval->rows - 1) / eval->rows;
    ddp_partition(eval->chunks, size, (size_t)ddp_comm_rank(run->comm), &eval->first, &eval->count);
    ddp_partition(eval->chunks, size, 0, &first, &eval->most);
    DDP_TRY(memory->acquire(memory->ctx, "evaluation", eval->places * eval->rows * run->data.sample_bytes,
                            &eval->x));
    eval->y    = calloc(eval->places * eval->rows, ddp_eval_label_bytes(run));
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

size_t ddp_eval_samples(const ddp_run_t *run, size_t chunk)
{
    const size_t left = run->data.test_samples - chunk * run->eval.rows;

    return left < run->eval.rows ? left : run->eval.rows;
}

ddp_status_t ddp_eval_fetch(const ddp_run_t *run, size_t chunk, void *x, int32_t *y)
{
    const size_t n = ddp_eval_samples(run, chunk);
    size_t       index[DDP_EVAL_CHUNK];

    for (size_t i = 0; i < n; i++) {
        index[i] = chunk * run->eval.rows + i;
    }
    if (run->test != NULL) {
        ddp_dataset_fetch(run->test, index, n, x, y);
        return DDP_OK;
    }
    return ddp_tokens_fetch(run->test_tokens, index, n, x, y);
}

static ddp_status_t run_chunk(ddp_run_t *run, size_t chunk, ddp_loss_stats_t *sums_p)
{
    ddp_status_t           status = DDP_OK;
    const ddp_tape_begin_t begin  = {.training = false};
    ddp_loss_stats_t      *stats  = NULL;

    DDP_TRY(ddp_eval_fetch(run, chunk, run->eval.x, run->eval.y));
    DDP_TRY(ddp_tape_begin(run->tape, &begin));
    DDP_TRY(ddp_run_loss(run, run->model, run->tape, run->eval.x, run->eval.y, ddp_eval_samples(run, chunk),
                         &stats));
    /* and waits: the next chunk overwrites x, y and stats */
    DDP_TRY(ddp_stream_read(run->compute, sums_p, stats, sizeof(*stats)));
out:
    return status;
}

/* This rank's chunks; with train.mode dp all devices take turns. */
static ddp_status_t run_chunks(ddp_run_t *run)
{
    ddp_status_t status = DDP_OK;
    ddp_eval_t  *eval   = &run->eval;

    if (run->dp != NULL) {
        return ddp_run_dp_eval(run);
    }
    DDP_TRY(ddp_trainer_round(run->trainer));
    for (size_t i = 0; i < eval->count; i++) {
        DDP_TRY(run_chunk(run, eval->first + i, &eval->mine[i]));
    }
out:
    ddp_rounded_drop(run->device);
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

static ddp_status_t evaluate(ddp_run_t *run, ddp_eval_result_t *result_p)
{
    ddp_status_t      status = DDP_OK;
    ddp_eval_t       *eval   = &run->eval;
    const int64_t     start  = ddp_clock_ns();
    ddp_eval_result_t result;

    DDP_TRY(ddp_reducer_finish(run->reducer));
    DDP_TRY(run_chunks(run));
    DDP_TRY(ddp_comm_allgather(run->comm, eval->mine, eval->most * sizeof(*eval->mine), eval->all));
    sum_chunks(run, &result);
    result.seconds = (double)(ddp_clock_ns() - start) / 1e9;
    *result_p      = result;
out:
    return status;
}

ddp_status_t ddp_eval_run(ddp_run_t *run, ddp_eval_result_t *result_p)
{
    ddp_status_t status;

    ddp_range_open("eval", DDP_RANGE_NO_NUMBER);
    status = evaluate(run, result_p);
    ddp_range_close();
    return status;
}
