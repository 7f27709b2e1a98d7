#include "io/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "io/file_internal.h"

#define METRICS_PATH_SIZE 4096

struct ddp_metrics {
    int  fd; /* -1 after a failed write */
    char path[METRICS_PATH_SIZE];
};

static ddp_status_t open_file(const char *folder, int flags, ddp_metrics_t **metrics_p)
{
    ddp_status_t   status  = DDP_OK;
    ddp_metrics_t *metrics = calloc(1, sizeof(*metrics));
    int            length;

    DDP_REQUIRE(metrics != NULL, DDP_ERR_NO_MEMORY, "no memory for metrics");
    metrics->fd = -1;
    length      = snprintf(metrics->path, sizeof(metrics->path), "%s/metrics.jsonl", folder);
    DDP_REQUIRE(length > 0 && (size_t)length < sizeof(metrics->path), DDP_ERR_IO, "'%s': path too long",
                folder);
    metrics->fd = open(metrics->path, flags | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (metrics->fd < 0) {
        DDP_TRY(ddp_fail_path(metrics->path, errno, ""));
    }
    *metrics_p = metrics;
    metrics    = NULL;
out:
    ddp_metrics_close(&metrics);
    return status;
}

ddp_status_t ddp_metrics_open(const char *folder, ddp_metrics_t **metrics_p)
{
    return open_file(folder, O_WRONLY | O_EXCL, metrics_p);
}

/* Does a run that goes on after `step` keep this line? */
static bool is_kept(const char *line, size_t length, uint64_t step)
{
    cJSON       *object = line[length - 1] == '\n' ? cJSON_ParseWithLength(line, length) : NULL;
    const char  *event  = cJSON_GetStringValue(cJSON_GetObjectItem(object, "event"));
    const cJSON *number = cJSON_GetObjectItem(object, "step");
    const bool   kept   = event != NULL && strcmp(event, "end") != 0 &&
                      (!cJSON_IsNumber(number) || number->valuedouble <= (double)step);

    cJSON_Delete(object); /* accepts NULL, as the others do */
    return kept;
}

/* Where the first line begins that is not kept: a later step, the end of the run, half a line. */
static ddp_status_t find_end(const char *path, int fd, uint64_t step, off_t *end_p)
{
    ddp_status_t status = DDP_OK;
    const int    copy   = dup(fd);
    FILE        *file   = copy >= 0 ? fdopen(copy, "r") : NULL;
    char        *line   = NULL;
    size_t       room   = 0;
    off_t        end    = 0;
    ssize_t      length;

    if (file == NULL) {
        DDP_TRY(ddp_fail_path(path, errno, ""));
    }
    while ((length = getline(&line, &room, file)) > 0 && is_kept(line, (size_t)length, step)) {
        end += length;
    }
    DDP_REQUIRE(ferror(file) == 0, DDP_ERR_IO, "'%s': cannot be read", path);
    *end_p = end;
out:
    free(line);
    if (file != NULL) {
        (void)fclose(file);
    } else if (copy >= 0) {
        (void)close(copy);
    }
    return status;
}

ddp_status_t ddp_metrics_resume(const char *folder, uint64_t step, ddp_metrics_t **metrics_p)
{
    ddp_status_t   status  = DDP_OK;
    ddp_metrics_t *metrics = NULL;
    off_t          end     = 0;

    DDP_TRY(open_file(folder, O_RDWR, &metrics));
    DDP_TRY(find_end(metrics->path, metrics->fd, step, &end));
    if (ftruncate(metrics->fd, end) != 0) {
        DDP_TRY(ddp_fail_path(metrics->path, errno, ""));
    }
    *metrics_p = metrics;
    metrics    = NULL;
out:
    ddp_metrics_close(&metrics);
    return status;
}

/* One warning, then no more metrics. */
static void give_up(ddp_metrics_t *metrics, int error)
{
    ddp_ignore(ddp_fail_path(metrics->path, error, "; no more metrics are written, training goes on"),
               "metrics are not worth a run");
    ddp_log(DDP_LOG_WARN, "%s", ddp_error_line());
    ddp_error_clear();
    (void)close(metrics->fd);
    metrics->fd = -1;
}

void ddp_metrics_close(ddp_metrics_t **metrics_p)
{
    ddp_metrics_t *metrics = *metrics_p;

    if (metrics == NULL) {
        return;
    }
    if (metrics->fd >= 0) {
        (void)close(metrics->fd); /* each line was written by itself */
    }
    free(metrics);
    *metrics_p = NULL;
}

cJSON *ddp_metrics_event(const char *event)
{
    cJSON *object = cJSON_CreateObject();

    if (object != NULL && cJSON_AddStringToObject(object, "event", event) == NULL) {
        cJSON_Delete(object);
        object = NULL;
    }
    return object;
}

void ddp_metrics_write(ddp_metrics_t *metrics, cJSON *object)
{
    char   *text = NULL;
    size_t  length;
    ssize_t written;

    if (metrics != NULL && metrics->fd >= 0 && object != NULL) {
        text = cJSON_PrintUnformatted(object);
    }
    if (text != NULL) {
        length       = strlen(text);
        text[length] = '\n'; /* in place of the final 0: the line goes out in one piece */
        do {
            written = write(metrics->fd, text, length + 1);
        } while (written < 0 && errno == EINTR);
        if (written != (ssize_t)(length + 1)) {
            give_up(metrics, written < 0 ? errno : ENOSPC);
        }
    }
    cJSON_free(text);
    cJSON_Delete(object);
}

/* Does the file end within a line? */
static bool is_cut(int fd)
{
    const off_t end  = lseek(fd, 0, SEEK_END);
    char        last = '\n';

    return end > 0 && pread(fd, &last, 1, end - 1) == 1 && last != '\n';
}

ddp_status_t ddp_metrics_append(const char *folder, cJSON *object)
{
    ddp_status_t status = DDP_OK;
    char        *text   = cJSON_PrintUnformatted(object);
    int          fd     = -1;
    char         path[METRICS_PATH_SIZE];
    const int    length = snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);

    DDP_REQUIRE(text != NULL, DDP_ERR_NO_MEMORY, "no memory for an event");
    DDP_REQUIRE(length > 0 && (size_t)length < sizeof(path), DDP_ERR_IO, "'%s': path too long", folder);
    fd = open(path, O_RDWR | O_APPEND | O_CLOEXEC);
    if (fd < 0 || dprintf(fd, "%s%s\n", is_cut(fd) ? "\n" : "", text) < 0) {
        DDP_TRY(ddp_fail_path(path, errno, ""));
    }
out:
    if (fd >= 0) {
        (void)close(fd);
    }
    cJSON_free(text);
    cJSON_Delete(object);
    return status;
}
