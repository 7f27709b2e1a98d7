/* What lies in a run's folder. Nothing is changed, and no lock is taken: the run may still be going on. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/error.h"
#include "base/utf8.h"
#include "launcher/json_lines.h"
#include "launcher/json_read.h"
#include "launcher/report.h"

#define MOST_YAML 65536

/* Joins folder and name. @return false: too long */
static bool join(const char *folder, const char *name, char path[DDP_REPORT_PATH])
{
    const int length = snprintf(path, DDP_REPORT_PATH, "%s/%s", folder, name);

    return length > 0 && length < DDP_REPORT_PATH;
}

/* Is the run's lock held? The kernel's list shows locks of this machine without touching them. */
static bool is_locked(const char *folder)
{
    FILE       *locks = NULL;
    bool        found = false;
    char        path[DDP_REPORT_PATH];
    char        line[256];
    struct stat st;

    if (!join(folder, ".lock", path) || stat(path, &st) != 0) {
        return false;
    }
    locks = fopen("/proc/locks", "re");
    while (locks != NULL && !found && fgets(line, sizeof(line), locks) != NULL) {
        unsigned      high;
        unsigned      low;
        unsigned long inode;

        found = sscanf(line, "%*s FLOCK %*s WRITE %*d %x:%x:%lu", &high, &low, &inode) == 3 &&
                inode == st.st_ino && high == major(st.st_dev) && low == minor(st.st_dev);
    }
    if (locks != NULL) {
        (void)fclose(locks);
    }
    return found;
}

static void find_checkpoints(ddp_report_run_t *run)
{
    DIR                 *dir = NULL;
    const struct dirent *entry;
    char                 path[DDP_REPORT_PATH];

    if (join(run->folder, "checkpoints", path)) {
        dir = opendir(path);
    }
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        unsigned long long step;
        int                length = 0;

        if (sscanf(entry->d_name, "ckpt-%llu.h5%n", &step, &length) == 1 && length > 0 &&
            entry->d_name[length] == '\0') {
            run->files++;
            if (!((double)step <= run->newest_step)) { /* nor a NaN */
                run->newest_step = (double)step;
                (void)snprintf(run->newest, sizeof(run->newest), "%.120s", entry->d_name);
            }
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
}

/* config.yaml, or as much of it as a page should show; what cannot be read is left out. */
static void read_yaml(ddp_report_run_t *run)
{
    FILE  *file = NULL;
    size_t n    = 0;
    char   path[DDP_REPORT_PATH];

    if (join(run->folder, "config.yaml", path)) {
        file = fopen(path, "re");
    }
    if (file != NULL) {
        run->yaml = calloc(1, MOST_YAML + 1);
        n         = run->yaml != NULL ? fread(run->yaml, 1, MOST_YAML, file) : 0;
        (void)fclose(file);
    }
    for (size_t i = 0; i < n; i++) {
        run->yaml[i] = run->yaml[i] == '\0' ? '?' : run->yaml[i];
    }
}

/* Seconds since 1970 of each event; where it does not tell, it is counted on by the steps' own times. */
typedef struct times {
    double time_s;
    double step;
} times_t;

static double tell_time(times_t *times, const cJSON *event)
{
    const double told    = ddp_json_number(event, "time");
    const double step    = ddp_json_number(event, "step");
    const double step_ms = ddp_json_number(event, "step_ms");

    if (!isnan(told)) {
        times->time_s = told;
    } else if (step > times->step && step_ms > 0) {
        times->time_s += (step - times->step) * step_ms / 1e3;
    }
    times->step = fmax(times->step, step); /* fmax() passes over a NaN */
    return times->time_s;
}

/* @param [in,out] times  for the sink */
static ddp_status_t take_line(const ddp_json_line_t *line, const ddp_report_sink_t *sink, times_t *times,
                              ddp_report_run_t *run)
{
    ddp_status_t status = DDP_OK;
    double       time_s;

    if (line->json == NULL && line->is_cut) {
        run->is_cut = true; /* just being written, or left by a process that was killed */
        return DDP_OK;
    }
    if (line->json != NULL) {
        time_s = tell_time(times, line->json);
        status = ddp_report_take(line->json, run);
        if (status == DDP_OK && sink != NULL) {
            return sink->event(sink->ctx,
                               cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(line->json, "event")),
                               line->json, time_s);
        }
    }
    if (line->json == NULL || status == DDP_ERR_FORMAT) {
        ddp_error_clear();
        run->first_damaged = run->damaged == 0 ? line->number : run->first_damaged;
        run->damaged++;
        status = DDP_OK;
    }
    return status;
}

static ddp_status_t read_metrics(const ddp_report_sink_t *sink, ddp_report_run_t *run)
{
    ddp_status_t      status = DDP_OK;
    ddp_json_lines_t *lines  = NULL;
    ddp_json_line_t   line   = {0};
    bool              is_end = false;
    char              path[DDP_REPORT_PATH];
    times_t           times = {0};
    struct stat       st;

    DDP_REQUIRE(stat(run->folder, &st) == 0, DDP_ERR_IO, "'%s': %s", run->folder, ddp_errno_text(errno));
    DDP_REQUIRE(S_ISDIR(st.st_mode), DDP_ERR_IO, "'%s': a file; a run is a folder, with metrics.jsonl in it",
                run->folder);
    DDP_REQUIRE(join(run->folder, "metrics.jsonl", path), DDP_ERR_IO, "'%s': path too long", run->folder);
    status = ddp_json_lines_open(path, &lines);
    if (status == DDP_ERR_IO && stat(path, &st) != 0 && errno == ENOENT) {
        status =
            ddp_fail(DDP_ERR_IO, "'%s': no metrics.jsonl in it, so it is no folder of a run", run->folder);
    }
    DDP_TRY(status);
    if (stat(path, &st) == 0) {
        run->last_s  = (double)st.st_mtime;
        times.time_s = run->last_s;
    }
    for (;;) {
        DDP_TRY(ddp_json_lines_next(lines, &line, &is_end));
        if (is_end) {
            break;
        }
        status = take_line(&line, sink, &times, run);
        cJSON_Delete(line.json);
        DDP_TRY(status);
    }
    DDP_REQUIRE(run->events > 0, DDP_ERR_FORMAT, "'%s': there is no event of a run in it", path);
out:
    ddp_json_lines_close(&lines);
    return status;
}

/* The last part of the folder's name, also of "." */
static void name_run(ddp_report_run_t *run)
{
    char        real[PATH_MAX];
    const char *path  = realpath(run->folder, real) != NULL ? real : run->folder;
    const char *slash = strrchr(path, '/');

    (void)snprintf(run->name, sizeof(run->name), "%s", slash != NULL && slash[1] != '\0' ? slash + 1 : path);
    ddp_utf8_clean(run->name);
}

ddp_status_t ddp_report_read(const char *folder, const ddp_report_sink_t *sink, ddp_report_run_t *run)
{
    ddp_status_t status = DDP_OK;
    size_t       length = strlen(folder);

    memset(run, 0, sizeof(*run));
    run->parameters = run->samples = run->total_steps = run->micro_batches = run->pss_mb = run->newest_step =
        NAN;
    while (length > 1 && folder[length - 1] == '/') {
        length--;
    }
    DDP_REQUIRE(length > 0 && length < sizeof(run->folder) - 32, DDP_ERR_IO, "'%.80s': %s", folder,
                length == 0 ? "a run's folder is needed" : "path too long");
    (void)snprintf(run->folder, sizeof(run->folder), "%.*s", (int)length, folder);
    name_run(run);
    DDP_TRY(read_metrics(sink, run));
    run->is_locked = is_locked(run->folder);
    find_checkpoints(run);
    read_yaml(run);
    DDP_TRY(ddp_report_history(run));
out:
    return status;
}

void ddp_report_free(ddp_report_run_t *run)
{
    cJSON_Delete(run->config);
    cJSON_Delete(run->trace);
    free(run->yaml);
    ddp_report_heat_free(&run->heat);
    run->config = NULL;
    run->trace  = NULL;
    run->yaml   = NULL;
}
