#include "launcher/gpus.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "ddp/nccl.h"
#include "launcher/cores.h"
#include "launcher/run.h"

/* What a rank has, for the others. */
typedef struct sight {
    int32_t device; /* ddp.device */
    int32_t visible;
    int32_t has_nccl;
    char    reason[DDP_CUDA_TEXT_SIZE];
    char    no_nccl[DDP_CUDA_TEXT_SIZE];
} sight_t;

/* A rank that sees one, or none. */
static int find(const sight_t *all, int size, bool sees)
{
    for (int r = 0; r < size; r++) {
        if ((all[r].visible > 0) == sees) {
            return r;
        }
    }
    return -1;
}

static ddp_status_t decide(ddp_run_t *run, const sight_t *all)
{
    ddp_status_t status = DDP_OK;
    const int    size   = ddp_comm_size(run->comm);
    const int    with   = find(all, size, true);
    const int    blind  = find(all, size, false);

    if (run->config.ddp.device == (int)DDP_DEVICE_CUDA) {
        DDP_REQUIRE(blind < 0, DDP_ERR_CONFIG,
                    "ddp.device cuda: %s on rank %d (%s): --set ddp.device=cpu, or mend that",
                    all[blind].reason, blind, ddp_comm_host(run->comm, blind));
    }
    if (run->config.ddp.device == DDP_CONFIG_DEVICE_AUTO) {
        DDP_REQUIRE(with < 0 || blind < 0, DDP_ERR_CONFIG,
                    "rank %d (%s) sees a GPU and rank %d (%s) does not (%s): --set ddp.device=cpu, or mend "
                    "that",
                    with, ddp_comm_host(run->comm, with), blind, ddp_comm_host(run->comm, blind),
                    all[blind].reason);
        run->config.ddp.device = with >= 0 ? DDP_DEVICE_CUDA : DDP_DEVICE_CPU;
    }
out:
    return status;
}

/* ddp.backend auto, with GPUs. */
static void choose_backend(ddp_run_t *run, const sight_t *all)
{
    int without = -1;

    for (int r = ddp_comm_size(run->comm) - 1; r >= 0; r--) {
        without = all[r].has_nccl == 0 ? r : without;
    }
    if (run->config.ddp.backend != (int)DDP_REDUCER_AUTO || run->config.ddp.device != (int)DDP_DEVICE_CUDA) {
        return;
    }
    run->config.ddp.backend = without < 0 ? DDP_REDUCER_NCCL : DDP_REDUCER_HOST;
    if (without >= 0 && ddp_comm_rank(run->comm) == 0) {
        ddp_log(DDP_LOG_WARN, "nccl: %s on rank %d (%s): gradients go through host memory (ddp.backend host)",
                all[without].no_nccl, without, ddp_comm_host(run->comm, without));
    }
}

/* What is measured there is work of the host. */
static ddp_status_t check_command(ddp_run_t *run)
{
    ddp_status_t status = DDP_OK;

    if (strncmp(run->options->command, "bench", strlen("bench")) == 0) {
        DDP_REQUIRE(run->config.ddp.device != (int)DDP_DEVICE_CUDA, DDP_ERR_CONFIG,
                    "bench measures CPUs: --set ddp.device=cpu; of a training on GPUs, step events and "
                    "train.trace tell where time goes");
        run->config.ddp.device = DDP_DEVICE_CPU;
    }
out:
    return status;
}

static void look(const ddp_run_t *run, sight_t *mine)
{
    ddp_cuda_info_t info;
    ddp_nccl_info_t nccl;

    *mine = (sight_t){.device = run->config.ddp.device};
    if (run->config.ddp.device != (int)DDP_DEVICE_CPU) {
        ddp_cuda_probe(&info);
        mine->visible = info.devices;
        memcpy(mine->reason, info.reason, sizeof(mine->reason));
    }
    if (mine->visible > 0) {
        ddp_nccl_probe(&nccl);
        mine->has_nccl = nccl.is_there ? 1 : 0;
        (void)snprintf(mine->no_nccl, sizeof(mine->no_nccl), "%s", nccl.reason);
    }
}

ddp_status_t ddp_gpus_choose(ddp_run_t *run)
{
    ddp_status_t status = DDP_OK;
    const int    size   = ddp_comm_size(run->comm);
    sight_t      mine;
    sight_t     *all = calloc((size_t)size, sizeof(*all));

    status = all != NULL ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory for %d ranks", size);
    DDP_TRY(ddp_comm_agree(run->comm, status == DDP_OK ? check_command(run) : status));
    look(run, &mine);
    DDP_TRY(ddp_comm_allgather(run->comm, &mine, sizeof(mine), all));
    for (int r = 0; r < size; r++) {
        if (all[r].device != mine.device) {
            goto out; /* the comparison of the configurations, which comes next, names it */
        }
    }
    DDP_TRY(decide(run, all));
    choose_backend(run, all);
out:
    free(all);
    return status;
}

static ddp_status_t describe(int ordinal, ddp_gpu_t *gpu)
{
    ddp_status_t status = DDP_OK;

    *gpu = (ddp_gpu_t){.ordinal = ordinal, .numa = -1};
    DDP_TRY(ddp_cuda_describe(ordinal, &gpu->info));
    gpu->numa = ddp_cores_numa_of(gpu->info.bus);
out:
    return status;
}

/* The devices of train.mode dp. */
static ddp_status_t describe_all(ddp_run_t *run)
{
    ddp_status_t    status = DDP_OK;
    ddp_cuda_info_t info;

    ddp_cuda_probe(&info);
    for (size_t d = 0; d < run->devices.n; d++) {
        DDP_REQUIRE(run->devices.id[d] < info.devices, DDP_ERR_CONFIG,
                    "dp.devices: there is no GPU %d, only 0 to %d", run->devices.id[d], info.devices - 1);
        DDP_TRY(describe(run->devices.id[d], &run->gpus[d]));
    }
out:
    return status;
}

static bool is_same(const ddp_run_t *run, int a, int b)
{
    return memcmp(run->gpus[a].info.uuid, run->gpus[b].info.uuid, DDP_CUDA_UUID_SIZE) == 0 &&
           strcmp(ddp_comm_host(run->comm, a), ddp_comm_host(run->comm, b)) == 0;
}

static ddp_status_t check_shared(const ddp_run_t *run)
{
    const int size = ddp_comm_size(run->comm);

    for (int a = 0; a < size && !run->config.ddp.share_gpu; a++) {
        for (int b = a + 1; b < size; b++) {
            if (is_same(run, a, b)) {
                return ddp_fail(
                    DDP_ERR_CONFIG,
                    "ranks %d and %d (%s) would share GPU %s: start as many ranks on a machine as "
                    "it has GPUs, or --set ddp.share_gpu=true",
                    a, b, ddp_comm_host(run->comm, a), run->gpus[a].info.bus);
            }
        }
    }
    return DDP_OK;
}

ddp_status_t ddp_gpus_take(ddp_run_t *run)
{
    ddp_status_t    status = DDP_OK;
    const size_t    size   = (size_t)ddp_comm_size(run->comm);
    const size_t    n      = run->devices.n > 0 ? run->devices.n : size;
    ddp_gpu_t       mine   = {.ordinal = 0};
    ddp_cuda_info_t info;

    if (run->config.ddp.device != (int)DDP_DEVICE_CUDA) {
        return DDP_OK;
    }
    run->gpus = calloc(n, sizeof(*run->gpus));
    status    = run->gpus != NULL ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory for %zu devices", n);
    if (status == DDP_OK && run->devices.n > 0) {
        status = describe_all(run);
    } else if (status == DDP_OK) {
        ddp_cuda_probe(&info);
        status = describe(ddp_comm_local_rank(run->comm) % info.devices, &mine);
    }
    DDP_TRY(ddp_comm_agree(run->comm, status));
    if (run->devices.n == 0) {
        DDP_TRY(ddp_comm_allgather(run->comm, &mine, sizeof(mine), run->gpus));
        DDP_TRY(check_shared(run));
    }
out:
    return status;
}

size_t ddp_gpus_own(const ddp_run_t *run)
{
    return run->devices.n > 0 ? 0 : (size_t)ddp_comm_rank(run->comm);
}

void ddp_gpus_device_params(const ddp_run_t *run, ddp_device_params_t *params)
{
    params->isa      = run->isa;
    params->is_exact = run->config.ddp.reduction == (int)DDP_REDUCTION_EXACT;
    if (run->gpus != NULL) {
        params->kind    = DDP_DEVICE_CUDA;
        params->ordinal = run->gpus[ddp_gpus_own(run)].ordinal;
    }
}

int ddp_gpus_sharing(const ddp_run_t *run)
{
    const int me = ddp_comm_rank(run->comm);
    int       n  = 0;

    for (int r = 0; r < ddp_comm_size(run->comm); r++) {
        n += is_same(run, me, r) ? 1 : 0;
    }
    return n;
}

size_t ddp_gpus_free_bytes(const ddp_run_t *run)
{
    return run->gpus[ddp_comm_rank(run->comm)].info.free_bytes / (size_t)ddp_gpus_sharing(run);
}

void ddp_gpu_uuid_text(const ddp_gpu_t *gpu, char text[DDP_GPU_UUID_TEXT])
{
    size_t used = (size_t)snprintf(text, DDP_GPU_UUID_TEXT, "GPU-");

    for (size_t i = 0; i < DDP_CUDA_UUID_SIZE; i++) {
        const char *dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";

        used += (size_t)snprintf(text + used, DDP_GPU_UUID_TEXT - used, "%s%02x", dash, gpu->info.uuid[i]);
    }
}

void ddp_gpus_say_version(FILE *out)
{
    ddp_cuda_info_t info;

    ddp_cuda_probe(&info);
    if (!info.is_built) {
        fprintf(out, "cuda: built without\n");
    } else if (info.devices == 0) {
        fprintf(out, "cuda: %s\n", info.reason);
    } else {
        fprintf(out, "cuda %d.%d, driver %d.%d, %d device%s\n", info.runtime / 1000, info.runtime % 1000 / 10,
                info.driver / 1000, info.driver % 1000 / 10, info.devices, info.devices > 1 ? "s" : "");
    }
}
