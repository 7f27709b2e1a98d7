#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "io/metrics.h"
#include "launcher/launch.h"
#include "launcher/plan.h"

static ddp_status_t write_chart(const ddp_plan_t *plan)
{
    ddp_status_t status = DDP_OK;
    char        *text   = NULL;
    size_t       size   = 0;
    FILE        *out    = open_memstream(&text, &size);

    DDP_REQUIRE(out != NULL, DDP_ERR_NO_MEMORY, "no memory for the picture");
    ddp_plan_chart(plan, out);
    DDP_REQUIRE(fclose(out) == 0, DDP_ERR_NO_MEMORY, "no memory for the picture");
    DDP_TRY(ddp_file_write_path(plan->options.svg, text));
out:
    free(text);
    return status;
}

static ddp_status_t make(ddp_plan_t *plan)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(ddp_launch_read().ranks <= 1, DDP_ERR_CONFIG,
                "plan starts its own process: start it once, without mpirun");
    DDP_TRY(plan->options.from != NULL ? ddp_plan_read(plan->options.from, &plan->run)
                                       : ddp_plan_measure(&plan->options, &plan->run));
    DDP_TRY(ddp_plan_make(plan));
    if (plan->options.json) {
        DDP_TRY(ddp_plan_json(plan, stdout));
    } else {
        ddp_plan_print(plan, stdout);
    }
    DDP_REQUIRE(fflush(stdout) == 0, DDP_ERR_IO, "stdout: %s", ddp_errno_text(errno));
    if (plan->options.svg != NULL) {
        DDP_TRY(write_chart(plan));
    }
out:
    return status;
}

int ddp_plan_command(int argc, char **argv)
{
    static ddp_plan_t plan; /* large */
    ddp_status_t      status = ddp_plan_options_parse(argc, argv, &plan.options);

    if (status == DDP_OK && plan.options.help) {
        if (ddp_launch_read().is_first) {
            ddp_plan_help(stdout);
        }
        return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    ddp_log_set_level(plan.options.run.log);
    if (status == DDP_OK) {
        status = make(&plan);
    }
    if (status != DDP_OK && ddp_launch_read().is_first) {
        ddp_log(DDP_LOG_ERROR, "%s", ddp_error_line());
    }
    ddp_plan_run_free(&plan.run);
    return status == DDP_OK ? EXIT_SUCCESS : status == DDP_ERR_CONFIG ? 2 : EXIT_FAILURE;
}
