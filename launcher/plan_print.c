/* What is planned, as a table and as JSON. */
#include <math.h>
#include <stdlib.h>

#include <cjson/cJSON.h>

#include "base/error.h"
#include "launcher/cell.h"
#include "launcher/plan.h"

#define MIB        1048576.0
#define FAR        8 /* times as many ranks as measured: the model is stretched */
#define WORTH_SAME 0.01

static void print_run(const ddp_plan_run_t *run, FILE *out)
{
    char step[DDP_CELL];
    char work[DDP_CELL];
    char forward[DDP_CELL];
    char backward[DDP_CELL];

    fprintf(out, "%s, %zu micro-batches, from %s%s%s: %zu step%s of %zu rank%s on %zu machine%s\n",
            run->title, run->micro_batches, run->source[0] != '\0' ? "'" : "",
            run->source[0] != '\0' ? run->source : "here", run->source[0] != '\0' ? "'" : "", run->steps,
            run->steps == 1 ? "" : "s", run->ranks, run->ranks == 1 ? "" : "s", run->machines,
            run->machines == 1 ? "" : "s");
    fprintf(out, "step %s ms; a micro-batch: forward %s ms, backward %s ms; adding up and updating %s ms\n",
            ddp_cell_ms(run->step_s * 1e3, step), ddp_cell_ms(run->forward_s * 1e3, forward),
            ddp_cell_ms(run->backward_s * 1e3, backward), ddp_cell_ms(run->work_s * 1e3, work));
}

static void print_row(const ddp_plan_row_t *row, const ddp_plan_run_t *run, FILE *out)
{
    char step[DDP_CELL];
    char exposed[DDP_CELL];
    char wire[DDP_CELL];
    char rate[DDP_CELL];
    char cap[DDP_CELL];

    if (row->is_too_many) {
        fprintf(out, "%6zu %6zu  more ranks than the %zu micro-batches; weak scaling %.2f\n", row->nodes,
                row->ranks, run->micro_batches, row->weak);
        return;
    }
    fprintf(out, "%6zu %6zu %10s %12s %10s %10s %9.2f %9.2f %6.2f  %9s\n", row->nodes, row->ranks,
            ddp_cell_ms(row->time.step_s * 1e3, step), ddp_cell_short(row->samples_per_s, rate),
            ddp_cell_ms(row->time.wire_s * 1e3, wire), ddp_cell_ms(row->time.exposed_s * 1e3, exposed),
            row->speedup, row->efficiency, row->weak, ddp_cell_number(row->best_cap_bytes / MIB, 0, cap));
}

/* What a reader should not take for more than it is. */
static void print_notes(const ddp_plan_t *plan, FILE *out)
{
    const ddp_plan_run_t *run  = &plan->run;
    const ddp_plan_row_t *last = &plan->row[plan->n - 1];

    if (run->is_even) {
        fputs("The run does not tell when gradients were ready (ddp.trace_buckets: true does), so that is "
              "spread evenly\nover backward.\n",
              out);
    }
    if (plan->options.ranks != run->ranks) {
        fprintf(
            out,
            "Measured with %zu rank%s on a node, planned with %zu: what ranks of a node take from each other "
            "(memory,\nclock) is in it as measured.\n",
            run->ranks, run->ranks == 1 ? "" : "s", plan->options.ranks);
    }
    if (run->is_gpu) {
        fputs("Nothing of this model was checked against GPUs.\n", out);
    }
    if (last->ranks > FAR * run->ranks) {
        fprintf(out,
                "%zu ranks are far from the %zu measured; slow ranks, shared switches and storage are not "
                "in the model.\n",
                last->ranks, run->ranks);
    }
    for (size_t i = 0; i < plan->n; i++) {
        if (plan->row[i].is_too_many) {
            fprintf(out,
                    "At most %zu ranks share this batch; a smaller train.micro_batch makes room for more.\n",
                    run->micro_batches);
            break;
        }
    }
    for (size_t i = plan->n; i > 0; i--) {
        const ddp_plan_row_t *row = &plan->row[i - 1];

        if (!row->is_too_many && row->best_step_s < row->time.step_s * (1 - WORTH_SAME)) {
            fprintf(out, "On %zu nodes ddp.bucket_cap_mb %g would make a step %.1f %% shorter than %g.\n",
                    row->nodes, row->best_cap_bytes / MIB, 100 * (1 - row->best_step_s / row->time.step_s),
                    run->cap_bytes / MIB);
            break;
        }
    }
}

void ddp_plan_print(const ddp_plan_t *plan, FILE *out)
{
    print_run(&plan->run, out);
    fprintf(out, "%6s %6s %10s %12s %10s %10s %9s %9s %6s  %9s\n", "nodes", "ranks", "step ms", "samples/s",
            "wire ms", "exposed ms", "speed-up", "efficient", "weak", "cap MiB");
    for (size_t i = 0; i < plan->n; i++) {
        print_row(&plan->row[i], &plan->run, out);
    }
    print_notes(plan, out);
}

static void add(cJSON *object, const char *name, double value)
{
    (void)cJSON_AddNumberToObject(object, name, value);
}

static cJSON *run_json(const ddp_plan_run_t *run)
{
    cJSON *object = cJSON_CreateObject();

    if (run->source[0] != '\0') {
        (void)cJSON_AddStringToObject(object, "from", run->source);
    }
    add(object, "ranks", (double)run->ranks);
    add(object, "machines", (double)run->machines);
    add(object, "micro_batches", (double)run->micro_batches);
    add(object, "steps", (double)run->steps);
    add(object, "step_ms", run->step_s * 1e3);
    add(object, "forward_ms", run->forward_s * 1e3);
    add(object, "backward_ms", run->backward_s * 1e3);
    add(object, "work_ms", run->work_s * 1e3);
    add(object, "rest_ms", run->rest_s * 1e3);
    add(object, "buckets", (double)run->n);
    (void)cJSON_AddBoolToObject(object, "ready_times_measured", !run->is_even);
    return object;
}

static cJSON *row_json(const ddp_plan_row_t *row)
{
    cJSON *object = cJSON_CreateObject();

    add(object, "nodes", (double)row->nodes);
    add(object, "ranks", (double)row->ranks);
    add(object, "weak_efficiency", row->weak);
    if (row->is_too_many) {
        (void)cJSON_AddStringToObject(object, "error", "more ranks than micro-batches");
        return object;
    }
    add(object, "step_ms", row->time.step_s * 1e3);
    add(object, "compute_ms", row->time.compute_s * 1e3);
    add(object, "work_ms", row->time.work_s * 1e3);
    add(object, "wire_ms", row->time.wire_s * 1e3);
    add(object, "exposed_comm_ms", row->time.exposed_s * 1e3);
    add(object, "buckets", (double)row->time.buckets);
    (void)cJSON_AddStringToObject(object, "exchange", ddp_exchange_name(row->time.kind));
    add(object, "samples_per_s", row->samples_per_s);
    add(object, "speedup", row->speedup);
    add(object, "efficiency", row->efficiency);
    add(object, "best_bucket_cap_mb", row->best_cap_bytes / MIB);
    add(object, "best_step_ms", row->best_step_s * 1e3);
    return object;
}

ddp_status_t ddp_plan_json(const ddp_plan_t *plan, FILE *out)
{
    ddp_status_t status = DDP_OK;
    cJSON       *all    = cJSON_CreateObject();
    cJSON       *rows   = NULL;
    char        *text   = NULL;

    (void)cJSON_AddItemToObject(all, "measured", run_json(&plan->run));
    add(all, "link_bytes_per_s", plan->options.link.bytes_per_s);
    add(all, "link_latency_us", plan->options.link.latency_s * 1e6);
    rows = cJSON_AddArrayToObject(all, "plan");
    for (size_t i = 0; i < plan->n; i++) {
        (void)cJSON_AddItemToArray(rows, row_json(&plan->row[i]));
    }
    text = cJSON_Print(all);
    DDP_REQUIRE(text != NULL && rows != NULL, DDP_ERR_NO_MEMORY, "no memory for the plan as JSON");
    fprintf(out, "%s\n", text);
out:
    cJSON_free(text);
    cJSON_Delete(all);
    return status;
}
