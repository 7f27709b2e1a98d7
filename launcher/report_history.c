/* What `ddptrain supervise` wrote of the run: the file of its own, beside the folder. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "launcher/json_lines.h"
#include "launcher/json_read.h"
#include "launcher/report.h"

static void take_attempt(const cJSON *json, ddp_report_run_t *run)
{
    const cJSON          *hosts = cJSON_GetObjectItemCaseSensitive(json, "left_out");
    const cJSON          *host;
    ddp_report_attempt_t *attempt;
    size_t                used = 0;

    if (run->n_attempts == DDP_REPORT_MAX_SAVES) {
        run->n_attempts--;
        memmove(&run->attempt[0], &run->attempt[1], run->n_attempts * sizeof(run->attempt[0]));
    }
    attempt  = &run->attempt[run->n_attempts++];
    *attempt = (ddp_report_attempt_t){.code    = ddp_json_number(json, "code"),
                                      .seconds = ddp_json_number(json, "seconds"),
                                      .ranks   = ddp_json_number(json, "ranks")};
    ddp_json_text(json, "time", attempt->time, sizeof(attempt->time));
    ddp_json_text(json, "line", attempt->line, sizeof(attempt->line));
    ddp_json_text(json, "next", attempt->next, sizeof(attempt->next));
    ddp_json_text(json, "reason", attempt->reason, sizeof(attempt->reason));
    cJSON_ArrayForEach(host, hosts)
    {
        if (cJSON_IsString(host) && used < sizeof(attempt->left_out)) {
            used += (size_t)snprintf(attempt->left_out + used, sizeof(attempt->left_out) - used, "%s%s",
                                     used > 0 ? ", " : "", host->valuestring);
        }
    }
    run->all_attempts++;
}

ddp_status_t ddp_report_history(ddp_report_run_t *run)
{
    ddp_status_t      status = DDP_OK;
    ddp_json_lines_t *lines  = NULL;
    ddp_json_line_t   line   = {0};
    bool              is_end = false;
    char              path[DDP_REPORT_PATH + 32];

    (void)snprintf(path, sizeof(path), "%s.supervise.jsonl", run->folder);
    if (access(path, R_OK) != 0) {
        return DDP_OK;
    }
    DDP_TRY(ddp_json_lines_open(path, &lines));
    for (;;) {
        DDP_TRY(ddp_json_lines_next(lines, &line, &is_end));
        if (is_end) {
            break;
        }
        if (cJSON_IsObject(line.json)) { /* others are cut or damaged */
            take_attempt(line.json, run);
        }
        cJSON_Delete(line.json);
    }
out:
    ddp_json_lines_close(&lines);
    return status;
}
