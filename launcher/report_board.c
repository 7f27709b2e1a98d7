/* Scalars for TensorBoard, written while a run is read. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "io/tfevents.h"
#include "launcher/json_read.h"
#include "launcher/report.h"

struct ddp_report_board {
    ddp_tfevents_t *events; /* owned; from the first event on, whose time its name has */
    char            folder[DDP_REPORT_PATH];
};

/* With those above it. */
static ddp_status_t make_folder(const char *path)
{
    ddp_status_t status = DDP_OK;
    char         part[DDP_REPORT_PATH];
    struct stat  st;

    DDP_REQUIRE(strlen(path) < sizeof(part), DDP_ERR_IO, "'%.80s...': path too long", path);
    for (size_t i = 1; i <= strlen(path); i++) {
        if (path[i] == '/' || path[i] == '\0') {
            (void)snprintf(part, sizeof(part), "%.*s", (int)i, path);
            if (mkdir(part, 0777) != 0) {
                const int error = errno;

                DDP_REQUIRE(stat(part, &st) == 0 && S_ISDIR(st.st_mode), DDP_ERR_IO, "'%s': %s", part,
                            ddp_errno_text(error));
            }
        }
    }
out:
    return status;
}

ddp_status_t ddp_report_board_create(const char *folder, ddp_report_board_t **board_p)
{
    ddp_status_t        status = DDP_OK;
    ddp_report_board_t *board  = calloc(1, sizeof(*board));

    DDP_REQUIRE(board != NULL, DDP_ERR_NO_MEMORY, "no memory for an event file");
    DDP_TRY(make_folder(folder));
    (void)snprintf(board->folder, sizeof(board->folder), "%s", folder);
    *board_p = board;
    board    = NULL;
out:
    ddp_report_board_close(&board);
    return status;
}

/* The name follows from the run, so that a second report replaces the file of the first. */
static ddp_status_t open_file(ddp_report_board_t *board, double time_s)
{
    char name[64];

    (void)snprintf(name, sizeof(name), "events.out.tfevents.%010.0f.ddptrain", fmin(fmax(time_s, 0), 1e10));
    return ddp_tfevents_create(board->folder, name, time_s, &board->events);
}

static ddp_status_t take_event(void *ctx, const char *name, const cJSON *event, double time_s)
{
    ddp_status_t        status = DDP_OK;
    ddp_report_board_t *board  = ctx;
    const double        step   = ddp_json_number(event, "step");
    ddp_tfscalar_t      scalars[DDP_REPORT_FIELDS];
    size_t              n = 0;

    if (board->events == NULL) {
        DDP_TRY(open_file(board, time_s));
    }
    for (int i = 0; i < DDP_REPORT_FIELDS; i++) {
        const ddp_report_field_info_t *info  = ddp_report_field_info((ddp_report_field_t)i);
        const double                   value = ddp_json_number(event, info->key);

        if (strcmp(info->event, name) == 0 && !isnan(value)) {
            scalars[n++] = (ddp_tfscalar_t){info->tag, value};
        }
    }
    if (n > 0 && step >= 0 && step < 1e15) {
        DDP_TRY(ddp_tfevents_add(board->events, time_s, (uint64_t)step, scalars, n));
    }
out:
    return status;
}

ddp_report_sink_t ddp_report_board_sink(ddp_report_board_t *board)
{
    return (ddp_report_sink_t){.ctx = board, .event = take_event};
}

ddp_status_t ddp_report_board_finish(ddp_report_board_t *board)
{
    return board->events != NULL ? ddp_tfevents_finish(board->events) : DDP_OK;
}

void ddp_report_board_close(ddp_report_board_t **board_p)
{
    ddp_report_board_t *board = *board_p;

    if (board == NULL) {
        return;
    }
    ddp_tfevents_close(&board->events);
    free(board);
    *board_p = NULL;
}
