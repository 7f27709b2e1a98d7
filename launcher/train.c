#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/log.h"
#include "io/sampler.h"
#include "kernels/ranges.h"
#include "launcher/run.h"

#define MIB 1048576.0

/* What has passed since the last step event. */
typedef struct window {
    int64_t       start_ns;
    int64_t       wait_ns; /* of the loader, at the start */
    ddp_measure_t measure;
    uint64_t      samples, skipped, overflows;
} window_t;

static void window_open(const ddp_run_t *run, window_t *window)
{
    memset(window, 0, sizeof(*window));
    window->start_ns = ddp_clock_ns();
    window->wait_ns  = ddp_loader_wait_ns(run->loader);
}

ddp_status_t ddp_run_next(ddp_run_t *run, const ddp_micro_t *micro, ddp_micro_batch_t *data_p)
{
    ddp_status_t status = DDP_OK;

    ddp_range_open("data wait", DDP_RANGE_NO_NUMBER);
    status = ddp_loader_next(run->loader, data_p);
    ddp_range_close();
    DDP_TRY(status);
    run->held++;
    DDP_REQUIRE(
        data_p->step == micro->step && data_p->micro_batch == micro->micro_batch && data_p->n == micro->n,
        DDP_ERR_STATE, "the loader gave micro-batch %zu of step %" PRIu64 " instead of %zu of %" PRIu64,
        data_p->micro_batch, data_p->step, micro->micro_batch, micro->step);
out:
    return status;
}

ddp_status_t ddp_run_forward(void *ctx, ddp_tape_t *tape, const ddp_micro_t *micro,
                             ddp_loss_stats_t **stats_p)
{
    ddp_status_t      status = DDP_OK;
    ddp_run_t        *run    = ctx;
    ddp_micro_batch_t data;

    DDP_TRY(ddp_fault("train_forward", ddp_comm_rank(run->comm)));
    DDP_TRY(ddp_run_next(run, micro, &data));
    if (run->train != NULL) {
        DDP_TRY(ddp_run_loss(run, run->model, tape, data.images, data.labels, data.n, stats_p));
    } else {
        DDP_TRY(ddp_run_loss(run, run->model, tape, data.inputs, data.targets, data.n, stats_p));
    }
out:
    return status;
}

ddp_batch_range_t ddp_run_batch(const ddp_run_t *run, uint64_t step)
{
    return ddp_sampler_batch(run->data.samples, (size_t)run->config.train.batch, step);
}

/* Has this step (from 0) a step event? */
static bool is_told(const ddp_run_t *run, uint64_t step)
{
    const uint64_t done = step + 1;

    return done == 1 || done == run->total_steps || done % run->config.train.log_every == 0;
}

ddp_status_t ddp_run_step(ddp_run_t *run, uint64_t step, ddp_step_result_t *result_p)
{
    ddp_status_t     status = DDP_OK;
    const ddp_step_t what   = {.lr        = (float)ddp_schedule_lr(&run->schedule, step),
                               .samples   = ddp_run_batch(run, step).count,
                               .grad_norm = is_told(run, step),
                               .request   = ddp_stop_request(run)};

    DDP_TRY(ddp_fault("train_step", ddp_comm_rank(run->comm)));
    ddp_watch_at(run, step + 1, DDP_STAGE_FORWARD);
    ddp_range_open("step", (int64_t)step + 1);
    status = run->dp != NULL ? ddp_dp_step(run->dp, &what, result_p)
                             : ddp_trainer_step(run->trainer, &what, result_p);
    ddp_range_close();
    DDP_TRY(status);
    for (; run->held > 0; run->held--) {
        ddp_loader_release(run->loader); /* backward has read them */
    }
out:
    return status;
}

/* The 1st, 2nd, 4th, 8th ... of them. */
static void say_skipped(ddp_run_t *run, uint64_t step, const ddp_step_result_t *result, uint64_t skipped)
{
    const bool  is_loss = result->not_finite != NULL && strcmp(result->not_finite, "loss") == 0;
    const char *quote   = is_loss ? "" : "'";

    if (result->not_finite == NULL || (skipped & (skipped - 1)) != 0) {
        return;
    }
    ddp_progress_clear(&run->progress);
    ddp_log(DDP_LOG_WARN, "step %" PRIu64 " is skipped: %s%s%s%s is not finite; %" PRIu64 " skipped so far",
            step + 1, is_loss ? "" : "gradient of ", quote, result->not_finite, quote, skipped);
}

static void say_step(ddp_run_t *run, const ddp_step_report_t *report)
{
    char norm[48] = "";

    if (run->progress.is_terminal) {
        return;
    }
    if (!isnan(report->grad_norm)) {
        snprintf(norm, sizeof(norm), " grad_norm %.4g", report->grad_norm);
    }
    ddp_log(DDP_LOG_INFO,
            "step %" PRIu64 "/%" PRIu64 " epoch %" PRIu64 " loss %.4f lr %.3g%s %s_per_s %.0f eta_s %.0f",
            report->step, run->total_steps, report->epoch, report->loss, report->lr, norm,
            report->tokens_per_s > 0 ? "tokens" : "samples",
            report->tokens_per_s > 0 ? report->tokens_per_s : report->samples_per_s,
            (double)(run->total_steps - report->step) * report->step_ms / 1e3);
}

/* What was done before the end of backward, of all reduction and update work. */
static double overlap(const window_t *window)
{
    const ddp_measure_t *sum   = &window->measure;
    const double         share = sum->comm_ns > 0 ? 1 - (double)sum->exposed_ns / (double)sum->comm_ns : 0;

    return share > 0 ? share : 0;
}

/* Rank 0, after every step: the bar, and every log_every steps (and at the first and last) an event. */
static void tell(ddp_run_t *run, uint64_t step, const ddp_batch_range_t *range,
                 const ddp_step_result_t *result, window_t *window)
{
    const uint64_t       done   = step + 1;
    const double         passed = (double)(ddp_clock_ns() - window->start_ns);
    const double         n      = (double)window->measure.steps;
    const double         rate   = (double)window->samples * 1e9 / passed;
    const double         cores  = run->dp != NULL ? (double)run->devices.n : ddp_comm_size(run->comm);
    ddp_progress_state_t drawn  = {.step          = done,
                                   .total_steps   = run->total_steps,
                                   .epoch         = range->epoch + 1,
                                   .epochs        = run->config.train.steps > 0 ? 0 : run->config.train.epochs,
                                   .loss          = result->loss,
                                   .samples_per_s = rate,
                                   .tokens_per_s  = rate * (double)run->data.context,
                                   .seconds_left  = (double)(run->total_steps - done) * passed / n / 1e9};
    ddp_step_report_t    report = {.step           = done,
                                   .epoch          = range->epoch + 1,
                                   .loss           = result->loss,
                                   .lr             = ddp_schedule_lr(&run->schedule, step),
                                   .grad_norm      = result->grad_norm,
                                   .step_ms        = passed / n / 1e6,
                                   .samples_per_s  = rate,
                                   .tokens_per_s   = rate * (double)run->data.context,
                                   .measure        = &window->measure,
                                   .overlap        = overlap(window),
                                   .gflops         = rate * ddp_model_flops(run->model) / cores / 1e9,
                                   .slowest_rank   = result->slowest_rank,
                                   .spread_ms      = (double)result->spread_ns / 1e6,
                                   .skipped        = window->skipped,
                                   .wire_overflows = window->overflows,
                                   .loss_scale     = (double)result->loss_scale};

    ddp_progress_draw(&run->progress, &drawn);
    if (is_told(run, step)) {
        report.data_wait_ms = (double)(ddp_loader_wait_ns(run->loader) - window->wait_ns) / n / 1e6;
        report.mfu          = run->peak_gflops > 0 ? report.gflops / run->peak_gflops : 0;
        say_step(run, &report);
        ddp_event_step(run, &report);
        window_open(run, window);
    }
}

/* " perplexity 12.3" where there is one. */
static const char *perplexity_text(const ddp_eval_result_t *result, char *text, size_t size)
{
    text[0] = '\0';
    if (result->perplexity > 0) {
        snprintf(text, size, " perplexity %.4g", result->perplexity);
    }
    return text;
}

static ddp_status_t evaluate(ddp_run_t *run, uint64_t done, uint64_t epoch, ddp_eval_result_t *result)
{
    ddp_status_t status = DDP_OK;
    char         more[48];

    DDP_TRY(ddp_eval_run(run, result));
    DDP_TRY(ddp_reducer_check_choices(run->reducer));
    if (ddp_comm_rank(run->comm) == 0) {
        ddp_progress_clear(&run->progress);
        ddp_log(DDP_LOG_INFO, "test epoch %" PRIu64 " step %" PRIu64 " loss %.4f%s accuracy %.4f", epoch,
                done, result->loss, perplexity_text(result, more, sizeof(more)), result->accuracy);
        ddp_event_eval(run, done, epoch, result);
        ddp_run_sample(run, done);
    }
out:
    return status;
}

static bool is_eval_due(const ddp_run_t *run, uint64_t done)
{
    const uint64_t every =
        run->config.train.eval_every > 0 ? run->config.train.eval_every : run->steps_per_epoch;

    return done % every == 0 || done == run->total_steps;
}

/* Somebody asked for it: save, so that the run can go on another time. */
static ddp_status_t end_early(ddp_run_t *run, uint64_t done, uint32_t request)
{
    ddp_status_t status = DDP_OK;

    if (ddp_comm_rank(run->comm) == 0) {
        ddp_progress_clear(&run->progress);
        ddp_log(DDP_LOG_INFO, "%s: stops after step %" PRIu64, ddp_stop_reason(request), done);
    }
    DDP_REQUIRE(run->checkpoints.saver != NULL, DDP_ERR_STATE,
                "stopped after step %" PRIu64
                "; nothing is saved: checkpoint.every_epochs and every_steps are 0",
                done);
    DDP_TRY(ddp_checkpoints_save_now(run, done));
    run->stop.is_stopped = true;
    if (ddp_comm_rank(run->comm) == 0) {
        ddp_event_stop(run, done);
        ddp_progress_clear(&run->progress);
        ddp_log(DDP_LOG_INFO,
                "stopped after step %" PRIu64 " of %" PRIu64 ", saved; go on with --resume auto%s%s", done,
                run->total_steps, run->options->out != NULL ? " --out " : "",
                run->options->out != NULL ? run->options->out : "");
    }
out:
    return status;
}

static bool is_traced(const ddp_run_t *run, uint64_t step)
{
    return run->config.train.trace && step + 1 == run->total_steps;
}

/* The last step's timeline. */
static ddp_status_t trace(ddp_run_t *run, uint64_t step, int64_t step_ns, const ddp_step_result_t *result)
{
    ddp_status_t status = DDP_OK;
    ddp_span_t  *spans  = NULL;
    size_t       n      = 0;

    if (is_traced(run, step)) {
        DDP_TRY(ddp_spans_gather(run, result, &spans, &n));
        if (ddp_comm_rank(run->comm) == 0) {
            ddp_event_trace(run, step + 1, (double)step_ns / 1e6, spans, n);
            ddp_trace_file_write(run, step + 1, spans, n);
        }
    }
out:
    free(spans);
    return status;
}

static ddp_status_t measured_step(ddp_run_t *run, uint64_t step, ddp_step_result_t *result, window_t *window,
                                  ddp_measure_t *sum)
{
    ddp_status_t  status = DDP_OK;
    const int64_t start  = ddp_clock_ns();
    const int64_t waited = ddp_loader_wait_ns(run->loader);
    int64_t       end;
    ddp_measure_t measure;

    DDP_TRY(ddp_run_step(run, step, result));
    if (is_told(run, step) && run->trainer != NULL) { /* else those of this step would be in the next event */
        DDP_TRY(ddp_trainer_await_times(run->trainer));
    }
    if (is_traced(run, step)) { /* a device may still be at work */
        DDP_TRY(ddp_reducer_finish(run->reducer));
    }
    end = ddp_clock_ns();
    ddp_measure_step(run, result, ddp_loader_wait_ns(run->loader) - waited, &measure);
    ddp_watch_step(run, step + 1, ddp_loader_wait_ns(run->loader) - waited,
                   measure.forward_ns + measure.backward_ns, end - start);
    ddp_measure_add(&window->measure, &measure);
    ddp_measure_add(sum, &measure);
    DDP_TRY(trace(run, step, end - start, result));
out:
    return status;
}

/* Machines, or GPUs, whose parameters are to be the same. */
static bool has_copies(const ddp_run_t *run)
{
    int writers = 0;

    for (int r = 0; r < ddp_comm_size(run->comm); r++) {
        writers += ddp_reducer_is_writer(run->reducer, r) ? 1 : 0;
    }
    return writers > 1;
}

static ddp_status_t loop(ddp_run_t *run, ddp_end_report_t *end)
{
    ddp_status_t status = DDP_OK;
    window_t     window;

    window_open(run, &window);
    for (uint64_t step = run->checkpoints.first_step; step < run->total_steps; step++) {
        const ddp_batch_range_t range  = ddp_run_batch(run, step);
        ddp_step_result_t       result = {0};
        double                  loss   = NAN;

        DDP_TRY(measured_step(run, step, &result, &window, &end->measure));
        if (step == run->checkpoints.first_step) {
            end->first_step_ms = (double)(ddp_clock_ns() - run->start_ns) / 1e6;
            DDP_TRY(ddp_reducer_check_choices(run->reducer));
        }
        window.samples += range.count;
        window.skipped += result.skipped ? 1 : 0;
        window.overflows += result.wire_overflows;
        end->skipped += result.skipped ? 1 : 0;
        if (ddp_comm_rank(run->comm) == 0) {
            say_skipped(run, step, &result, end->skipped);
            if (is_told(run, step) && isnan(result.grad_norm)) {
                DDP_TRY(ddp_reducer_grad_norm(run->reducer, &result.grad_norm));
            }
            tell(run, step, &range, &result, &window);
        }
        if (is_eval_due(run, step + 1)) {
            const int64_t before = ddp_clock_ns();

            ddp_watch_at(run, step + 1, DDP_STAGE_EVAL);
            DDP_TRY(evaluate(run, step + 1, range.epoch + 1, &end->test));
            loss = end->test.loss;
            window.start_ns += ddp_clock_ns() - before; /* throughput is that of training */
        }
        DDP_TRY(ddp_checkpoints_step(run, step + 1, loss));
        if (result.request != 0 && step + 1 < run->total_steps) {
            DDP_TRY(end_early(run, step + 1, result.request));
            return DDP_OK;
        }
    }
    if (run->checkpoints.first_step >= run->total_steps) { /* there was nothing left to do */
        DDP_TRY(ddp_eval_run(run, &end->test));
    }
    DDP_TRY(ddp_reducer_finish(run->reducer));
    DDP_TRY(ddp_checkpoints_save_now(run, run->total_steps));
    if (has_copies(run)) {
        DDP_TRY(ddp_reducer_check_replicas(run->reducer));
    }
out:
    return status;
}

/* Rank 0's last words. */
static ddp_status_t say_end(ddp_run_t *run, ddp_end_report_t *end)
{
    ddp_status_t status = DDP_OK;
    char         more[48];

    if (ddp_comm_rank(run->comm) != 0) {
        return DDP_OK;
    }
    DDP_TRY(ddp_reducer_weights_hash(run->reducer, end->weights));
    ddp_event_end(run, end);
    ddp_progress_clear(&run->progress);
    ddp_log(DDP_LOG_INFO, "done: %" PRIu64 " steps in %.1f s, test%s accuracy %.4f, %.0f MB, folder %s",
            end->steps, end->seconds, perplexity_text(&end->test, more, sizeof(more)), end->test.accuracy,
            (double)end->use.pss / MIB, run->folder);
    printf("weights %s\n", end->weights);
    DDP_REQUIRE(fflush(stdout) == 0, DDP_ERR_IO, "stdout: %s", ddp_errno_text(errno));
out:
    return status;
}

ddp_status_t ddp_run_train(ddp_run_t *run)
{
    ddp_status_t     status = DDP_OK;
    const int64_t    start  = ddp_clock_ns();
    ddp_end_report_t end    = {.steps = run->total_steps};

    run->is_training = true;
    DDP_TRY(loop(run, &end));
    run->is_training = false;
    if (run->stop.is_stopped) {
        goto out;
    }
    end.seconds = (double)(ddp_clock_ns() - start) / 1e9;
    DDP_TRY(ddp_use_gather(run, &end.measure, &end.use));
    DDP_TRY(ddp_comm_agree(run->comm, say_end(run, &end)));
out:
    ddp_use_free(&end.use);
    return status;
}

ddp_status_t ddp_run_command(ddp_run_t *run, ddp_status_t early)
{
    ddp_status_t status = DDP_OK;

    ddp_stop_catch_signals();
    DDP_TRY(ddp_run_join(run, early));
    DDP_TRY(ddp_checkpoints_find(run));
    DDP_TRY(ddp_run_prepare(run));
    if (run->options->dry_run) {
        return ddp_run_dry(run);
    }
    DDP_TRY(ddp_run_setup(run));
    ddp_stop_set_limit(run);
    DDP_TRY(ddp_run_train(run));
out:
    return status;
}
