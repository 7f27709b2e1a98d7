/* What a run left in its folder (metrics.jsonl), as the model wants it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/error.h"
#include "base/utf8.h"
#include "launcher/json_lines.h"
#include "launcher/json_read.h"
#include "launcher/plan.h"

#define WARM_UP     3 /* steps that do not count where there are more */
#define MOST_STEPS  512
#define MOST_BUCKET 100000

/* Values of all steps since the last start. */
typedef struct step {
    double step_s, forward_s, backward_s, work_s, hidden_s, exposed_s, wait_s;
} step_t;

typedef struct reader {
    ddp_plan_run_t *run;
    const char     *folder;
    bool            is_started, is_dp;
    double          buckets; /* of the start event */
    double          parameters;
    step_t          step[WARM_UP + MOST_STEPS]; /* the first ones */
    size_t          n;
    cJSON          *bucket_times; /* owned; of the last step that has them */
    step_t          bucket_step;  /* that step */
} reader_t;

static double or_zero(double value)
{
    return isnan(value) ? 0 : value;
}

/* A key of the configuration, as the start event writes it. */
static const char *config_text(const cJSON *start, const char *key)
{
    const cJSON *config = cJSON_GetObjectItemCaseSensitive(start, "config");
    const char  *text   = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(config, key));

    return text != NULL ? text : "";
}

static double config_number(const cJSON *start, const char *key)
{
    return strtod(config_text(start, key), NULL);
}

/* @return AUTO also for what no build calls so */
static ddp_exchange_kind_t exchange_of(const char *name)
{
    int kind = DDP_EXCHANGE_MEASURED;

    while (kind > DDP_EXCHANGE_AUTO && strcmp(name, ddp_exchange_name((ddp_exchange_kind_t)kind)) != 0) {
        kind--;
    }
    return (ddp_exchange_kind_t)kind;
}

static size_t count_of(const cJSON *event, const char *name)
{
    const double value = ddp_json_number(event, name);

    return value >= 1 && value <= 1e9 ? (size_t)value : 1;
}

static void take_start(reader_t *reader, const cJSON *event)
{
    ddp_plan_run_t *run = reader->run;

    reader->is_started = true;
    reader->is_dp      = strcmp(config_text(event, "train.mode"), "dp") == 0;
    reader->n          = 0;
    reader->buckets    = ddp_json_number(event, "buckets");
    reader->parameters = ddp_json_number(event, "parameters");
    cJSON_Delete(reader->bucket_times);
    reader->bucket_times = NULL;
    run->ranks           = count_of(event, "ranks");
    run->machines        = count_of(event, "machines");
    run->micro_batches   = count_of(event, "micro_batches");
    run->batch           = config_number(event, "train.batch");
    run->cap_bytes       = config_number(event, "ddp.bucket_cap_mb") * 1048576.0;
    run->is_late         = config_number(event, "optimizer.clip_norm") > 0 ||
                   strcmp(config_text(event, "train.nonfinite"), "skip") == 0;
    run->exchange = exchange_of(config_text(event, "ddp.exchange"));
    run->is_gpu   = false;
    (void)snprintf(run->title, sizeof(run->title), "%s, batch %g", config_text(event, "model.kind"),
                   run->batch);
    ddp_utf8_clean(run->title);
    if (cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(event, "gpus"))) {
        run->is_gpu = true;
    }
}

static void take_step(reader_t *reader, cJSON *event)
{
    const double work = or_zero(ddp_json_number(event, "comm_ms")) / 1e3;
    step_t       step = {.step_s     = ddp_json_number(event, "step_ms") / 1e3,
                         .forward_s  = ddp_json_number(event, "forward_ms") / 1e3,
                         .backward_s = ddp_json_number(event, "backward_ms") / 1e3,
                         .work_s     = work,
                         .hidden_s   = work * or_zero(ddp_json_number(event, "overlap")),
                         .exposed_s  = or_zero(ddp_json_number(event, "exposed_comm_ms")) / 1e3,
                         .wait_s     = or_zero(ddp_json_number(event, "data_wait_ms")) / 1e3};

    if (isnan(step.step_s) || isnan(step.forward_s) || isnan(step.backward_s)) {
        return;
    }
    if (reader->n < sizeof(reader->step) / sizeof(reader->step[0])) {
        reader->step[reader->n++] = step;
    }
    if (cJSON_HasObjectItem(event, "bucket_times")) {
        cJSON_Delete(reader->bucket_times);
        reader->bucket_times = cJSON_DetachItemFromObjectCaseSensitive(event, "bucket_times");
        reader->bucket_step  = step;
    }
}

/* Of one field of the steps that count. */
static double median(const reader_t *reader, size_t offset)
{
    const size_t first = reader->n > 2 * WARM_UP ? WARM_UP : reader->n > 1 ? 1 : 0;
    const size_t n     = reader->n - first;
    double       value[WARM_UP + MOST_STEPS];

    for (size_t i = 0; i < n; i++) {
        memcpy(&value[i], (const char *)&reader->step[first + i] + offset, sizeof(value[i]));
    }
    qsort(value, n, sizeof(value[0]), ddp_ascending);
    reader->run->steps = n;
    return n % 2 == 1 ? value[n / 2] : (value[n / 2 - 1] + value[n / 2]) / 2;
}

static void take_medians(reader_t *reader)
{
    ddp_plan_run_t *run = reader->run;
    const double    of_rank =
        ceil((double)run->micro_batches / (double)run->ranks); /* micro-batches of rank 0, which has most */
    const double forward  = median(reader, offsetof(step_t, forward_s));
    const double backward = median(reader, offsetof(step_t, backward_s));
    const double hidden   = run->is_gpu ? 0 : median(reader, offsetof(step_t, hidden_s));
    const double exposed  = median(reader, offsetof(step_t, exposed_s));

    run->step_s     = median(reader, offsetof(step_t, step_s));
    run->work_s     = median(reader, offsetof(step_t, work_s));
    run->forward_s  = fmax(forward - median(reader, offsetof(step_t, wait_s)), 0) / of_rank;
    run->backward_s = fmax(backward - hidden, 0) / of_rank;
    run->rest_s     = fmax(run->step_s - forward - backward - exposed, 0);
}

/* One bucket with everything, ready at the end. */
static void even_buckets(reader_t *reader)
{
    ddp_plan_run_t *run   = reader->run;
    const size_t    n     = run->n;
    const double    bytes = reader->parameters * (double)sizeof(float);

    run->is_even = true;
    for (size_t b = 0; b < n; b++) {
        run->bucket[b].bytes    = bytes / (double)n;
        run->bucket[b].before_s = run->backward_s * (double)(n - 1 - b) / (double)n;
    }
}

/* Stamps are from the beginning of the step, and backward had work put in between, which is taken out again
 * in proportion. */
static void stamped_buckets(reader_t *reader)
{
    ddp_plan_run_t *run  = reader->run;
    const cJSON  *ready  = ddp_json_first(cJSON_GetObjectItemCaseSensitive(reader->bucket_times, "ready_ms"));
    const cJSON  *bytes  = ddp_json_first(cJSON_GetObjectItemCaseSensitive(reader->bucket_times, "bytes"));
    const step_t *step   = &reader->bucket_step;
    const double  hidden = run->is_gpu ? 0 : step->hidden_s;
    const double  end    = step->forward_s + step->backward_s;
    const double  pure   = run->backward_s / (run->backward_s + hidden);

    for (size_t b = 0; b < run->n; b++) {
        const double before = (end - ddp_json_next(&ready) / 1e3) * pure;

        run->bucket[b].bytes    = or_zero(ddp_json_next(&bytes));
        run->bucket[b].before_s = fmin(fmax(or_zero(before), 0), run->backward_s);
        if (b > 0) { /* the order in which they are launched */
            run->bucket[b].before_s = fmin(run->bucket[b].before_s, run->bucket[b - 1].before_s);
        }
    }
}

static ddp_status_t take_buckets(reader_t *reader)
{
    ddp_status_t    status = DDP_OK;
    ddp_plan_run_t *run    = reader->run;
    const int stamps = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(reader->bucket_times, "ready_ms"));
    const bool has_bytes =
        stamps > 0 &&
        cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(reader->bucket_times, "bytes")) == stamps;
    const double n = has_bytes ? stamps : or_zero(reader->buckets);

    DDP_REQUIRE(n >= 1 && n <= MOST_BUCKET, DDP_ERR_FORMAT, "'%s': its start event tells of no buckets",
                reader->folder);
    run->n      = (size_t)n;
    run->bucket = calloc(run->n, sizeof(*run->bucket));
    DDP_REQUIRE(run->bucket != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu buckets", run->n);
    if (has_bytes) {
        stamped_buckets(reader);
    } else {
        even_buckets(reader);
    }
out:
    return status;
}

static ddp_status_t read_lines(reader_t *reader)
{
    ddp_status_t      status = DDP_OK;
    ddp_json_lines_t *lines  = NULL;
    bool              is_end = false;
    ddp_json_line_t   line   = {0};
    char              path[DDP_PLAN_PATH + 16];

    (void)snprintf(path, sizeof(path), "%s/metrics.jsonl", reader->folder);
    DDP_TRY(ddp_json_lines_open(path, &lines));
    for (;;) {
        const char *event;

        DDP_TRY(ddp_json_lines_next(lines, &line, &is_end));
        if (is_end) {
            break;
        }
        event = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(line.json, "event"));
        if (event != NULL && strcmp(event, "start") == 0) {
            take_start(reader, line.json);
        } else if (event != NULL && strcmp(event, "step") == 0) {
            take_step(reader, line.json);
        }
        cJSON_Delete(line.json);
        line.json = NULL;
    }
out:
    ddp_json_lines_close(&lines);
    return status;
}

ddp_status_t ddp_plan_read(const char *folder, ddp_plan_run_t *run_p)
{
    ddp_status_t status = DDP_OK;
    reader_t    *reader = calloc(1, sizeof(*reader));

    *run_p = (ddp_plan_run_t){0};
    DDP_REQUIRE(reader != NULL, DDP_ERR_NO_MEMORY, "no memory for a run's steps");
    DDP_REQUIRE(strlen(folder) < sizeof(run_p->source), DDP_ERR_IO, "'%.80s...': path too long", folder);
    (void)snprintf(run_p->source, sizeof(run_p->source), "%s", folder);
    reader->run    = run_p;
    reader->folder = folder;
    DDP_TRY(read_lines(reader));
    DDP_REQUIRE(reader->is_started, DDP_ERR_FORMAT, "'%s': no run has begun in it", folder);
    DDP_REQUIRE(!reader->is_dp, DDP_ERR_FORMAT, "'%s' was made with train.mode dp; a plan needs one with ddp",
                folder);
    DDP_REQUIRE(
        run_p->machines == 1, DDP_ERR_FORMAT,
        "'%s' was made on %zu machines, so what its links took is in its times; a plan needs a run with "
        "the ranks of one node",
        folder, run_p->machines);
    DDP_REQUIRE(reader->n > 0, DDP_ERR_FORMAT, "'%s': no step has its times in it", folder);
    take_medians(reader);
    DDP_TRY(take_buckets(reader));
out:
    if (reader != NULL) {
        cJSON_Delete(reader->bucket_times);
    }
    free(reader);
    return status;
}

void ddp_plan_run_free(ddp_plan_run_t *run)
{
    free(run->bucket);
    run->bucket = NULL;
    run->n      = 0;
}
