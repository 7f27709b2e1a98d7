#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "io/metrics.h"
#include "launcher/supervise.h"

static void add_number(cJSON *object, const char *name, double value)
{
    (void)cJSON_AddNumberToObject(object, name, round(value * 1e3) / 1e3);
}

static void add_hosts(cJSON *object, const char *name, const ddp_supervise_hosts_t *hosts, bool is_dropped)
{
    cJSON *list = hosts->n > 0 ? cJSON_AddArrayToObject(object, name) : NULL;

    for (size_t i = 0; list != NULL && i < hosts->n; i++) {
        if (hosts->host[i].is_dropped == is_dropped) {
            (void)cJSON_AddItemToArray(list, cJSON_CreateString(hosts->host[i].name));
        }
    }
}

static char *make_line(const ddp_supervise_record_t *record)
{
    cJSON       *object = ddp_metrics_event("attempt");
    const time_t now    = time(NULL);
    struct tm    utc    = {0};
    char         text[32];
    char        *line = NULL;

    if (object == NULL) {
        return NULL;
    }
    (void)gmtime_r(&now, &utc);
    (void)strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
    (void)cJSON_AddStringToObject(object, "time", text);
    add_number(object, "attempt", (double)record->attempt);
    add_number(object, "seconds", record->end->seconds);
    add_number(object, "code", record->end->code);
    (void)cJSON_AddStringToObject(object, "line", record->end->clue.line);
    if (record->end->clue.host[0] != '\0') {
        (void)cJSON_AddStringToObject(object, "host", record->end->clue.host);
    }
    if (record->step >= 0) {
        add_number(object, "step", (double)record->step);
    }
    if (record->ranks > 0) {
        add_number(object, "ranks", (double)record->ranks);
    }
    add_hosts(object, "hosts", record->hosts, false);
    add_hosts(object, "left_out", record->hosts, true);
    (void)cJSON_AddStringToObject(object, "next", record->next);
    (void)cJSON_AddStringToObject(object, "reason", record->reason);
    if (record->wait_s > 0) {
        add_number(object, "wait_s", record->wait_s);
    }
    line = cJSON_PrintUnformatted(object);
    cJSON_Delete(object);
    return line;
}

void ddp_supervise_record(const char *path, const ddp_supervise_record_t *record)
{
    char *line = make_line(record);
    int   fd   = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);

    if (line == NULL || fd < 0 || dprintf(fd, "%s\n", line) < 0) {
        ddp_log(DDP_LOG_WARN, "supervise: history '%s': %s", path,
                line == NULL ? "no memory" : ddp_errno_text(errno));
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    free(line);
}
