/* Whether a configuration will run here. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "launcher/doctor_internal.h"

#define MIB 1048576.0

static void add_data(const ddp_run_t *run, ddp_findings_t *findings)
{
    ddp_finding_t *finding = ddp_findings_add(
        findings, DDP_FINDING_OK, "run", "data", NULL, "%.200s, found by all ranks: %zu %s, %zu for the test",
        run->data.source, run->data.samples, run->data.context > 0 ? "sequences" : "samples",
        run->data.test_samples);

    ddp_finding_number(finding, "samples", (double)run->data.samples);
}

static void add_ranks(const ddp_run_t *run, ddp_findings_t *findings)
{
    const int    ranks = ddp_comm_size(run->comm);
    const size_t parts = ddp_config_micro_batches(&run->config);

    (void)ddp_findings_add(
        findings, parts % (size_t)ranks == 0 ? DDP_FINDING_OK : DDP_FINDING_WARN, "run", "ranks",
        parts % (size_t)ranks == 0 ? NULL : "a number of ranks that divides them wastes no time",
        "%zu micro-batches in a step for %d rank%s", parts, ranks, ranks > 1 ? "s" : "");
}

static void add_memory(const ddp_run_t *run, ddp_findings_t *findings)
{
    const ddp_run_memory_t *memory  = &run->memory;
    const bool              is_told = memory->available != UINT64_MAX;
    ddp_finding_t          *finding = ddp_findings_add(
                 findings, DDP_FINDING_OK, "run", "memory", NULL, "%.1f MiB on the first machine%s%.0f%s",
                 (double)memory->machine / MIB, is_told ? ", " : ", of not known; ",
        is_told ? (double)memory->available / MIB : 0.0, is_told ? " MiB are free" : "");

    ddp_finding_number(finding, "needed_bytes", (double)memory->machine);
}

/* Values and moments of each parameter. One more file is there while it is written, and one is the best. */
static void add_disk(const ddp_run_t *run, const ddp_folder_facts_t *folder, ddp_findings_t *findings)
{
    const ddp_reducer_params_t params = ddp_run_reducer_params(run);
    const double               slots  = (double)ddp_optim_slots(&params.optim);
    const double               bytes = (1 + slots) * (double)ddp_params_elements(run->params) * sizeof(float);
    const double               needed = bytes * ((double)run->config.checkpoint.keep + 2);
    const bool                 fits   = needed <= (double)folder->free_bytes;
    ddp_finding_t             *finding;

    if (folder->error[0] != '\0') {
        return; /* told as folder.space */
    }
    finding =
        ddp_findings_add(findings, fits ? DDP_FINDING_OK : DDP_FINDING_FAIL, "run", "disk",
                         fits ? NULL : "make room, take another folder with --out, or lower checkpoint.keep",
                         "checkpoints of %.1f MiB, %.1f with those that are kept: %.0f MiB are free",
                         bytes / MIB, needed / MIB, (double)folder->free_bytes / MIB);
    ddp_finding_number(finding, "checkpoint_bytes", bytes);
    ddp_finding_number(finding, "needed_bytes", needed);
}

ddp_status_t ddp_doctor_check_run(ddp_run_t *run, const ddp_folder_facts_t *folder, ddp_findings_t *findings)
{
    ddp_status_t status = ddp_run_settle(run, DDP_OK);

    if (status == DDP_OK) {
        status = ddp_run_prepare(run);
    }
    if (status == DDP_OK && findings != NULL) {
        (void)ddp_findings_add(findings, DDP_FINDING_OK, "run", "configuration", NULL,
                               "accepted by all ranks");
        add_data(run, findings);
        add_ranks(run, findings);
        add_disk(run, folder, findings);
    }
    if (status == DDP_OK) {
        status = ddp_memory_check(run);
        if (status == DDP_OK && findings != NULL) {
            add_memory(run, findings);
        }
    }
    if (status == DDP_ERR_TIMEOUT || status == DDP_ERR_MPI) {
        return status;
    }
    if (status != DDP_OK && findings != NULL) {
        (void)ddp_findings_add(findings, DDP_FINDING_FAIL, "run", "configuration", NULL, "%s",
                               ddp_error_line());
    }
    ddp_error_clear();
    return DDP_OK;
}
