/* What a run tells of itself, event by event. Fields that are missing leave a NaN or "". */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "launcher/json_read.h"
#include "launcher/report.h"

#define OLDEST_STARTS 10 /* that stay when there are too many */

static const ddp_report_field_info_t fields[DDP_REPORT_FIELDS] = {
    [DDP_REPORT_LOSS]       = {"step", "loss", "loss/train", "loss"},
    [DDP_REPORT_LR]         = {"step", "lr", "optimizer/lr", "learning rate"},
    [DDP_REPORT_GRAD_NORM]  = {"step", "grad_norm", "optimizer/grad_norm", "gradient norm"},
    [DDP_REPORT_STEP_MS]    = {"step", "step_ms", "step/ms", "step, ms"},
    [DDP_REPORT_SAMPLES]    = {"step", "samples_per_s", "throughput/samples_per_s", "samples/s"},
    [DDP_REPORT_TOKENS]     = {"step", "tokens_per_s", "throughput/tokens_per_s", "tokens/s"},
    [DDP_REPORT_MFU]        = {"step", "mfu", "throughput/mfu", "mfu"},
    [DDP_REPORT_LOSS_SCALE] = {"step", "loss_scale", "optimizer/loss_scale", "loss scale"},
    [DDP_REPORT_SPREAD]     = {"step", "spread_ms", "step/spread_ms", "spread, ms"},
    [DDP_REPORT_TEST_LOSS]  = {"eval", "loss", "loss/test", "test loss"},
    [DDP_REPORT_ACCURACY]   = {"eval", "accuracy", "test/accuracy", "accuracy"},
    [DDP_REPORT_PERPLEXITY] = {"eval", "perplexity", "test/perplexity", "perplexity"},
    [DDP_REPORT_STALL]      = {"checkpoint", "stall_ms", "checkpoint/stall_ms", "stall, ms"},
    [DDP_REPORT_WRITE]      = {"checkpoint", "write_ms", "checkpoint/write_ms", "write, ms"},
};

const ddp_report_field_info_t *ddp_report_field_info(ddp_report_field_t field)
{
    return &fields[field];
}

/* Of all fields of an event. */
static void take_fields(const char *name, const cJSON *event, double step, ddp_report_run_t *run)
{
    for (int i = 0; i < DDP_REPORT_FIELDS; i++) {
        if (strcmp(fields[i].event, name) == 0) {
            ddp_series_add(&run->field[i], step, ddp_json_number(event, fields[i].key));
        }
    }
}

static void add_phase(ddp_report_run_t *run, double step, const char *name, double ms)
{
    size_t p = 0;

    while (p < run->n_phases && strcmp(run->phase[p].name, name) != 0) {
        p++;
    }
    if (p == DDP_REPORT_MAX_PHASES) {
        return;
    }
    if (p == run->n_phases) {
        (void)snprintf(run->phase[p].name, sizeof(run->phase[p].name), "%s", name);
        ddp_utf8_clean(run->phase[p].name);
        run->n_phases++;
    }
    ddp_series_add(&run->phase[p].series, step, fmax(ms, 0));
}

static double or_zero(double value)
{
    return isnan(value) ? 0 : value;
}

/* Waiting for samples is a part of forward; what is left of the step is the rest: an update that waits for
 * all gradients, the host's own work. */
static void take_phases(const cJSON *event, double step, ddp_report_run_t *run)
{
    const cJSON *phases  = cJSON_GetObjectItemCaseSensitive(event, "phases_ms");
    const double all     = ddp_json_number(event, "step_ms");
    const double wait    = or_zero(ddp_json_number(event, "data_wait_ms"));
    const double forward = ddp_json_number(event, "forward_ms");
    double       known   = 0;
    const cJSON *phase;

    if (isnan(all) || (isnan(forward) && !cJSON_IsObject(phases))) {
        return;
    }
    if (cJSON_IsObject(phases)) {
        cJSON_ArrayForEach(phase, phases)
        {
            const double ms = cJSON_IsNumber(phase) ? phase->valuedouble : 0;

            add_phase(run, step, phase->string, ms);
            known += fmax(ms, 0);
        }
    } else {
        const double backward = or_zero(ddp_json_number(event, "backward_ms"));
        const double exposed  = or_zero(ddp_json_number(event, "exposed_comm_ms"));

        add_phase(run, step, "data-wait", wait);
        add_phase(run, step, "forward", forward - wait);
        add_phase(run, step, "backward", backward);
        add_phase(run, step, "exposed", exposed);
        known = wait + fmax(forward - wait, 0) + backward + exposed;
    }
    add_phase(run, step, "rest", all - known);
}

static void take_step(const cJSON *event, double step, ddp_report_run_t *run)
{
    const double last = ddp_json_number(event, "slowest_rank");

    take_fields("step", event, step, run);
    take_phases(event, step, run);
    run->step  = step;
    run->epoch = ddp_json_number(event, "epoch");
    run->end   = DDP_REPORT_OPEN;
    if (last >= 0 && last < DDP_REPORT_MAX_RANKS) {
        run->last_rank[(size_t)last]++;
        run->last_ranks = (size_t)last >= run->last_ranks ? (size_t)last + 1 : run->last_ranks;
    }
}

static void take_save(const cJSON *event, double step, ddp_report_run_t *run)
{
    ddp_report_save_t *save;

    take_fields("checkpoint", event, step, run);
    if (run->n_saves == DDP_REPORT_MAX_SAVES) {
        run->n_saves--;
        memmove(&run->save[0], &run->save[1], run->n_saves * sizeof(run->save[0]));
    }
    save  = &run->save[run->n_saves++];
    *save = (ddp_report_save_t){.step     = step,
                                .bytes    = ddp_json_number(event, "bytes"),
                                .stall_ms = ddp_json_number(event, "stall_ms"),
                                .write_ms = ddp_json_number(event, "write_ms")};
    ddp_json_text(event, "error", save->error, sizeof(save->error));
    run->all_saves++;
    run->failed_saves += save->error[0] != '\0' ? 1 : 0;
}

/* "node1 (4), node2 (4)": neighbours are counted. */
static void take_hosts(const cJSON *list, char *text, size_t size)
{
    const cJSON *host;
    const char  *name  = NULL;
    size_t       used  = 0;
    size_t       more  = 0;
    size_t       ranks = 0;

    for (host = list != NULL ? list->child : NULL; host != NULL; host = host->next) {
        char piece[96];

        name = cJSON_GetStringValue(host);
        ranks++;
        if (host->next != NULL && name != NULL && cJSON_GetStringValue(host->next) != NULL &&
            strcmp(name, cJSON_GetStringValue(host->next)) == 0) {
            continue;
        }
        (void)snprintf(piece, sizeof(piece), "%s%s (%zu)", used > 0 ? ", " : "", name != NULL ? name : "?",
                       ranks);
        ranks = 0;
        if (used + strlen(piece) + 24 > size) {
            more++;
            continue;
        }
        used += (size_t)snprintf(text + used, size - used, "%s", piece);
    }
    if (more > 0) {
        (void)snprintf(text + used, size - used, " and %zu more", more);
    }
    ddp_utf8_clean(text);
}

/* "8 x NVIDIA H200", as of the first. */
static void take_gpus(const cJSON *list, char *text, size_t size)
{
    char name[64] = "";

    if (cJSON_GetArraySize(list) > 0) {
        ddp_json_text(cJSON_GetArrayItem(list, 0), "name", name, sizeof(name));
        (void)snprintf(text, size, "%d x %s", cJSON_GetArraySize(list), name);
    }
}

/* Keys of `after` that have another value than in `before`. */
static void tell_changes(const cJSON *before, const cJSON *after, char *text, size_t size)
{
    const cJSON *key;
    size_t       used = 0;

    if (!cJSON_IsObject(before)) {
        return;
    }
    cJSON_ArrayForEach(key, after)
    {
        const char *now = cJSON_GetStringValue(key);
        const char *old = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(before, key->string));

        if (now != NULL && (old == NULL || strcmp(old, now) != 0) && used < size) {
            used += (size_t)snprintf(text + used, size - used, "%s%s: %s (was %s)", used > 0 ? "; " : "",
                                     key->string, now, old != NULL ? old : "not there");
        }
    }
    ddp_utf8_clean(text);
}

static ddp_report_start_t *new_start(ddp_report_run_t *run)
{
    run->all_starts++;
    if (run->n_starts == DDP_REPORT_MAX_STARTS) {
        run->n_starts--;
        memmove(&run->start[OLDEST_STARTS], &run->start[OLDEST_STARTS + 1],
                (run->n_starts - OLDEST_STARTS) * sizeof(run->start[0]));
    }
    return &run->start[run->n_starts++];
}

static ddp_status_t take_start(const cJSON *event, ddp_report_run_t *run)
{
    ddp_status_t        status    = DDP_OK;
    ddp_report_start_t *start     = new_start(run);
    const cJSON        *keys      = cJSON_GetObjectItemCaseSensitive(event, "config");
    char                mode[8]   = "";
    char                model[32] = "?";
    char                data[192] = "?";
    cJSON              *copy      = NULL;

    *start = (ddp_report_start_t){.step      = run->step,
                                  .last_step = run->step,
                                  .time_s    = NAN,
                                  .end_s     = NAN,
                                  .ranks     = ddp_json_number(event, "ranks"),
                                  .machines  = ddp_json_number(event, "machines")};
    ddp_json_text(event, "mode", mode, sizeof(mode));
    start->is_dp = strcmp(mode, "dp") == 0;
    take_hosts(cJSON_GetObjectItemCaseSensitive(event, "hosts"), start->hosts, sizeof(start->hosts));
    take_gpus(cJSON_GetObjectItemCaseSensitive(event, "gpus"), start->gpus, sizeof(start->gpus));
    ddp_json_text(event, "device", start->device, sizeof(start->device));
    ddp_json_text(event, "isa", start->isa, sizeof(start->isa));
    ddp_json_text(event, "version", start->version, sizeof(start->version));
    ddp_json_text(keys, "model.kind", model, sizeof(model));
    ddp_json_text(event, "data", data, sizeof(data));
    (void)snprintf(run->title, sizeof(run->title), "%s on %s", model, data);
    run->parameters    = ddp_json_number(event, "parameters");
    run->samples       = ddp_json_number(event, "samples");
    run->total_steps   = ddp_json_number(event, "total_steps");
    run->micro_batches = ddp_json_number(event, "micro_batches");
    run->end           = DDP_REPORT_OPEN;
    tell_changes(run->config, keys, start->changes, sizeof(start->changes));
    if (cJSON_IsObject(keys)) {
        copy = cJSON_Duplicate(keys, true);
        DDP_REQUIRE(copy != NULL, DDP_ERR_NO_MEMORY, "no memory for a configuration");
        cJSON_Delete(run->config);
        run->config = copy;
    }
out:
    return status;
}

static ddp_status_t take_trace(const cJSON *event, ddp_report_run_t *run)
{
    ddp_status_t status = DDP_OK;
    cJSON       *copy   = cJSON_Duplicate(event, true);

    DDP_REQUIRE(copy != NULL, DDP_ERR_NO_MEMORY, "no memory for a trace");
    cJSON_Delete(run->trace);
    run->trace = copy;
out:
    return status;
}

static void take_end(const cJSON *event, ddp_report_run_t *run)
{
    const double steps = ddp_json_number(event, "steps");

    run->end     = DDP_REPORT_DONE;
    run->pss_mb  = ddp_json_number(event, "pss_mb");
    run->skipped = or_zero(ddp_json_number(event, "skipped"));
    ddp_json_text(event, "weights", run->weights, sizeof(run->weights));
    run->step = isnan(steps) ? run->step : fmax(steps, run->step);
}

static void take_time(const cJSON *event, ddp_report_run_t *run)
{
    const double        time_s = ddp_json_number(event, "time");
    ddp_report_start_t *start  = run->n_starts > 0 ? &run->start[run->n_starts - 1] : NULL;

    if (start != NULL) {
        (void)snprintf(start->ended, sizeof(start->ended), "%.255s",
                       run->end == DDP_REPORT_DONE      ? "done"
                       : run->end == DDP_REPORT_STOPPED ? "stopped"
                       : run->end == DDP_REPORT_FAILED  ? run->why
                                                        : "");
        start->last_step = fmax(start->last_step, run->step);
        if (!isnan(time_s)) {
            start->time_s = isnan(start->time_s) ? time_s : start->time_s;
            start->end_s  = time_s;
        }
    }
}

ddp_status_t ddp_report_take(const cJSON *event, ddp_report_run_t *run)
{
    ddp_status_t status = DDP_OK;
    const char  *name   = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(event, "event"));
    const double step   = ddp_json_number(event, "step");

    DDP_REQUIRE(name != NULL, DDP_ERR_FORMAT, "a line is no event");
    if (strcmp(name, "start") == 0) {
        DDP_TRY(take_start(event, run));
    } else if (strcmp(name, "step") == 0) {
        DDP_REQUIRE(step > run->step && step <= DDP_REPORT_MAX_STEP, DDP_ERR_FORMAT,
                    "a step that comes after a later one");
        take_step(event, step, run);
    } else if (strcmp(name, "eval") == 0) {
        DDP_REQUIRE(step >= run->evaluated && step <= DDP_REPORT_MAX_STEP, DDP_ERR_FORMAT,
                    "an evaluation that comes after a later one");
        take_fields(name, event, step, run);
        run->evaluated = step;
    } else if (strcmp(name, "checkpoint") == 0) {
        DDP_REQUIRE(step >= 0 && step <= DDP_REPORT_MAX_STEP, DDP_ERR_FORMAT, "a checkpoint without a step");
        take_save(event, step, run);
    } else if (strcmp(name, "straggler") == 0) {
        DDP_TRY(ddp_report_heat_add(&run->heat, event));
    } else if (strcmp(name, "trace") == 0) {
        DDP_TRY(take_trace(event, run));
    } else if (strcmp(name, "stop") == 0) {
        run->end  = DDP_REPORT_STOPPED;
        run->step = isnan(step) ? run->step : fmax(step, run->step);
    } else if (strcmp(name, "fail") == 0) {
        run->end = DDP_REPORT_FAILED;
        ddp_json_text(event, "error", run->why, sizeof(run->why));
    } else if (strcmp(name, "end") == 0) {
        take_end(event, run);
    }
    take_time(event, run); /* events of later versions are passed over */
    run->events++;
out:
    return status;
}
