/* Memory of the GPU that a rank has, planned. */
#include <stdio.h>

#include "base/error.h"
#include "kernels/rounded.h"
#include "launcher/memory_internal.h"

#define MIB 1048576.0

static bool is_nccl(const ddp_run_t *run)
{
    return run->config.ddp.backend == (int)DDP_REDUCER_NCCL;
}

void ddp_memory_plan_gpu(const ddp_run_t *run, const ddp_reducer_plan_t *plan, ddp_run_memory_t *memory)
{
    const size_t tape = memory->tape.activations + memory->tape.scratch + memory->kernels;

    if (run->gpus == NULL || run->devices.n > 0) {
        return;
    }
    memory->own -= tape;
    memory->rounded  = ddp_rounded_bytes(DDP_DEVICE_CUDA, (ddp_precision_t)run->config.train.precision,
                                         plan->parameter_bytes / sizeof(float));
    memory->gpu      = tape + memory->rounded + plan->device_bytes;
    memory->gpu_free = ddp_gpus_free_bytes(run);
    if (is_nccl(run)) { /* nothing of the reducer lies in the machine's memory */
        memory->shared -= plan->parameter_bytes + plan->moment_bytes + plan->gradient_bytes;
        memory->own -= memory->wire;
    }
}

/* The first device of train.mode dp whose GPU has no room, or their number. */
static size_t find_full(const ddp_run_t *run, const ddp_run_memory_t *memory)
{
    size_t d = 0;

    while (d < run->devices.n && memory->device[d].total <= run->gpus[d].info.free_bytes) {
        d++;
    }
    return d;
}

bool ddp_memory_fits_gpu(const ddp_run_t *run, const ddp_run_memory_t *memory)
{
    return run->gpus == NULL || (memory->gpu <= memory->gpu_free && find_full(run, memory) == run->devices.n);
}

static ddp_status_t fail_device(const ddp_run_t *run, size_t d, const char *changes)
{
    return ddp_fail(DDP_ERR_NO_MEMORY,
                    "memory: device %d needs %.0f MiB on GPU %s, %.0f MiB are free there%s",
                    run->devices.id[d], (double)run->memory.device[d].total / MIB, run->gpus[d].info.bus,
                    (double)run->gpus[d].info.free_bytes / MIB, changes);
}

ddp_status_t ddp_memory_check_gpu(const ddp_run_t *run, const char *changes)
{
    const ddp_run_memory_t *memory     = &run->memory;
    const int               rank       = ddp_comm_rank(run->comm);
    char                    others[64] = "";

    if (run->devices.n > 0) {
        return fail_device(run, find_full(run, memory), changes);
    }
    if (ddp_gpus_sharing(run) > 1) {
        snprintf(others, sizeof(others), " for each of %d ranks", ddp_gpus_sharing(run));
    }
    return ddp_fail(
        DDP_ERR_NO_MEMORY, "memory: rank %d needs %.0f MiB on GPU %s, %.0f MiB are free there%s%s", rank,
        (double)memory->gpu / MIB, run->gpus[rank].info.bus, (double)memory->gpu_free / MIB, others, changes);
}

void ddp_memory_print_gpu(const ddp_run_t *run)
{
    const ddp_run_memory_t *memory = &run->memory;
    const double tape = (double)(memory->tape.activations + memory->tape.scratch + memory->kernels);

    printf("\n# memory of rank 0's GPU, MiB, without CUDA's own\n");
    printf("%-44s %10.1f\n", "parameters, gradients, moments, tables",
           ((double)memory->gpu - (double)memory->rounded - tape) / MIB);
    if (memory->rounded > 0) {
        printf("%-44s %10.1f\n", "parameters, rounded to 16 bits", (double)memory->rounded / MIB);
    }
    printf("%-44s %10.1f\n", "activations", (double)memory->tape.activations / MIB);
    printf("%-44s %10.1f\n", "scratch of operations", (double)(memory->tape.scratch + memory->kernels) / MIB);
    printf("%-44s %10.1f\n", "total", (double)memory->gpu / MIB);
    printf("%-44s %10.1f\n", memory->gpu <= memory->gpu_free ? "free now" : "free now: NOT ENOUGH",
           (double)memory->gpu_free / MIB);
}
