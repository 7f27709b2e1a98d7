/* The communicator: who takes part, set-up with a deadline, and the end. */
#include "ddp/nccl.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/log.h"
#include "ddp/nccl_internal.h"
#include "kernels/cuda.h"
#include "kernels/cuda/device.h"

/* A rank that is late must be heard of before the others' own deadline passes while they wait for it. */
#define JOIN_NS(comm)       (ddp_comm_timeout_ms(comm) * DDP_NS_PER_MS / 4 * 3)
#define FINALIZE_NS         (5000 * DDP_NS_PER_MS)
#define FIRST_MULTI_RANK    23000 /* the first version that lets ranks share a device by itself */
#define NAMED_AT_MOST       8
#define VERSION_ARGS(value) (value) / 10000, (value) / 100 % 100, (value) % 100

void ddp_nccl_probe(ddp_nccl_info_t *info)
{
    const ddp_nccl_table_t *table = NULL;

    *info = (ddp_nccl_info_t){.is_there = false};
    if (ddp_nccl_load(&table) != DDP_OK) {
        (void)snprintf(info->reason, sizeof(info->reason), "%.255s", ddp_error_line());
    } else if (table->GetVersion(&info->version) != ncclSuccess) {
        (void)snprintf(info->reason, sizeof(info->reason), "it does not say its version");
    } else {
        info->is_there = true;
    }
}

ddp_status_t ddp_nccl_cuda(cudaError_t error, const char *what)
{
    if (error == cudaSuccess) {
        return DDP_OK;
    }
    (void)cudaGetLastError();
    return ddp_fail(error == cudaErrorMemoryAllocation ? DDP_ERR_NO_MEMORY : DDP_ERR_DEVICE, "cuda: %s: %s",
                    what, cudaGetErrorString(error));
}

static ddp_status_t check_versions(ddp_nccl_t *nccl)
{
    ddp_status_t status  = DDP_OK;
    int          version = 0;
    int         *all     = calloc((size_t)nccl->size, sizeof(*all));

    DDP_TRY(ddp_comm_agree(nccl->comm,
                           all != NULL ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory for versions")));
    (void)nccl->table->GetVersion(&version);
    DDP_TRY(ddp_comm_allgather(nccl->comm, &version, sizeof(version), all));
    for (int r = 1; r < nccl->size; r++) {
        DDP_REQUIRE(all[r] == all[0], DDP_ERR_MISMATCH,
                    "nccl: rank %d on %s has version %d.%d.%d, rank 0 on %s has %d.%d.%d; check "
                    "LD_LIBRARY_PATH",
                    r, ddp_comm_host(nccl->comm, r), VERSION_ARGS(all[r]), ddp_comm_host(nccl->comm, 0),
                    VERSION_ARGS(all[0]));
    }
out:
    free(all);
    return status;
}

/* NCCL refuses two ranks on one device, unless it takes them for ranks of two machines. Not run on a GPU yet.
 */
static void share_device(const ddp_nccl_t *nccl)
{
    int  version = 0;
    char id[32];

    (void)nccl->table->GetVersion(&version);
    if (version >= FIRST_MULTI_RANK) {
        (void)setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
        return;
    }
    (void)snprintf(id, sizeof(id), "ddptrain-%d", nccl->rank);
    (void)setenv("NCCL_HOSTID", id, 0);
}

static ddp_status_t check_devices(ddp_nccl_t *nccl, const ddp_nccl_params_t *params)
{
    ddp_status_t           status = DDP_OK;
    ddp_cuda_device_info_t info   = {{0}, {0}, {0}, 0, 0, 0, 0, 0};
    const size_t           bytes  = sizeof(info.uuid);
    const int              n      = nccl->size;
    uint8_t               *all    = calloc((size_t)n, bytes);
    bool                   shared = false;

    DDP_TRY(ddp_comm_agree(nccl->comm,
                           all != NULL ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory for devices")));
    DDP_TRY(ddp_comm_agree(nccl->comm, ddp_cuda_describe(ddp_cuda_ordinal(params->device), &info)));
    DDP_TRY(ddp_comm_allgather(nccl->comm, info.uuid, bytes, all));
    for (int r = 1; r < n; r++) {
        for (int q = 0; q < r; q++) {
            const bool same = memcmp(all + (size_t)r * bytes, all + (size_t)q * bytes, bytes) == 0;

            shared = shared || same;
            DDP_REQUIRE(!same || params->share_devices, DDP_ERR_CONFIG,
                        "ranks %d and %d have the same GPU on %s (%d ranks there); start one rank per GPU: "
                        "mpirun --map-by ppr:N:node for N of them, or ddp.devices",
                        q, r, ddp_comm_host(nccl->comm, r),
                        ddp_comm_machine_size(nccl->comm, ddp_comm_machine(nccl->comm)));
        }
    }
    if (shared) {
        share_device(nccl);
    }
out:
    free(all);
    return status;
}

static ddp_status_t make_id(ddp_nccl_t *nccl, ncclUniqueId *id)
{
    ddp_status_t status = DDP_OK;

    memset(id, 0, sizeof(*id));
    if (nccl->rank == 0) {
        status = ddp_nccl_result(nccl, nccl->table->GetUniqueId(id), "ncclGetUniqueId");
    }
    DDP_TRY(ddp_comm_agree(nccl->comm, status));
    DDP_TRY(ddp_comm_broadcast(nccl->comm, id, sizeof(*id), 0));
out:
    return status;
}

/* @param [out] is_late_p  the deadline has passed, and NCCL still waits for others */
static ddp_status_t join(ddp_nccl_t *nccl, ncclUniqueId id, int max_ctas, bool *is_late_p)
{
    ddp_status_t  status = DDP_OK;
    ncclConfig_t  config = NCCL_CONFIG_INITIALIZER;
    const int64_t start  = ddp_clock_ns();
    ncclResult_t  result;

    config.blocking = 0;
    if (max_ctas > 0) {
        config.maxCTAs = max_ctas;
    }
    ddp_nccl_waiting(nccl, "initialization of NCCL", 0, (size_t)-1);
    result = nccl->table->CommInitRankConfig(&nccl->nccl, nccl->size, id, nccl->rank, &config);
    while (result == ncclSuccess || result == ncclInProgress) {
        const ncclResult_t asked = nccl->table->CommGetAsyncError(nccl->nccl, &result);

        result = asked != ncclSuccess ? asked : result;
        if (result != ncclInProgress) {
            break;
        }
        if (ddp_clock_ns() - start > JOIN_NS(nccl->comm)) {
            *is_late_p = true;
            return DDP_OK;
        }
        ddp_comm_progressed(nccl->comm); /* not this rank is late */
        DDP_TRY(ddp_nccl_idle(nccl, ddp_clock_ns() - start));
    }
    DDP_TRY(ddp_nccl_result(nccl, result, "ncclCommInitRankConfig"));
    DDP_TRY(ddp_fault("nccl_init", nccl->rank));
out:
    return status;
}

/* "nccl: ranks 1 on node1, 3 on node2 did not join within 45 s" */
static ddp_status_t fail_late(const ddp_nccl_t *nccl, const uint8_t *late)
{
    char        list[DDP_ERROR_LINE_SIZE / 2] = "";
    int         n                             = 0;
    const char *hint;

    for (int r = 0; r < nccl->size; r++) {
        const size_t used = strlen(list);

        if (late[r] && n++ < NAMED_AT_MOST) {
            (void)snprintf(list + used, sizeof(list) - used, "%s%d on %.40s", n > 1 ? ", " : "", r,
                           ddp_comm_host(nccl->comm, r));
        }
    }
    hint = ddp_nccl_hint("did not join");
    return ddp_fail(DDP_ERR_TIMEOUT, "nccl: rank%s %s%s did not join within %g s; %s", n > 1 ? "s" : "", list,
                    n > NAMED_AT_MOST ? " and more" : "", (double)JOIN_NS(nccl->comm) / 1e9, hint);
}

static ddp_status_t join_all(ddp_nccl_t *nccl, const ddp_nccl_params_t *params)
{
    ddp_status_t status  = DDP_OK;
    bool         is_late = false;
    bool         any     = false;
    uint8_t      mine    = 0;
    uint8_t     *late    = calloc((size_t)nccl->size, 1);
    ncclUniqueId id;

    DDP_TRY(ddp_comm_agree(nccl->comm,
                           late != NULL ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory for ranks")));
    DDP_TRY(make_id(nccl, &id));
    DDP_TRY(ddp_comm_agree(nccl->comm, join(nccl, id, params->max_ctas, &is_late)));
    mine = is_late;
    DDP_TRY(ddp_comm_allgather(nccl->comm, &mine, sizeof(mine), late));
    for (int r = 0; r < nccl->size; r++) {
        any = any || late[r];
    }
    if (any) {
        status = fail_late(nccl, late);
    }
out:
    free(late);
    return status;
}

static ddp_status_t open_parts(ddp_nccl_t *nccl, const ddp_nccl_params_t *params)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(params->device != NULL && ddp_device_kind(params->device) == DDP_DEVICE_CUDA,
                DDP_ERR_INVALID_ARG, "nccl is for CUDA devices");
    nccl->told    = calloc(1, DDP_ERROR_LINE_SIZE);
    nccl->telling = calloc((size_t)nccl->size, sizeof(*nccl->telling));
    DDP_REQUIRE(nccl->told != NULL && nccl->telling != NULL, DDP_ERR_NO_MEMORY,
                "no memory for a communicator of NCCL");
    for (int r = 0; r < nccl->size; r++) {
        nccl->telling[r] = MPI_REQUEST_NULL;
    }
    DDP_TRY(ddp_nccl_load(&nccl->table));
    DDP_TRY(ddp_cuda_enter(params->device));
out:
    return status;
}

ddp_status_t ddp_nccl_create(const ddp_nccl_params_t *params, ddp_nccl_t **nccl_p)
{
    ddp_status_t status = DDP_OK;
    ddp_nccl_t  *nccl   = NULL;
    void        *flags  = NULL;

    DDP_REQUIRE(params != NULL && params->struct_size == sizeof(*params) && params->comm != NULL,
                DDP_ERR_INVALID_ARG, "parameters of NCCL were not made with DDP_NCCL_PARAMS_INIT");
    nccl = calloc(1, sizeof(*nccl));
    DDP_TRY(ddp_comm_agree(
        params->comm, nccl != NULL ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory for a communicator")));
    nccl->comm   = params->comm;
    nccl->device = params->device;
    nccl->rank   = ddp_comm_rank(params->comm);
    nccl->size   = ddp_comm_size(params->comm);
    DDP_TRY(ddp_comm_agree(params->comm, open_parts(nccl, params)));
    DDP_TRY(check_versions(nccl));
    DDP_TRY(check_devices(nccl, params));
    DDP_TRY(ddp_comm_shared(params->comm, "flags of NCCL",
                            (size_t)ddp_comm_local_size(params->comm) * sizeof(ddp_flag_t), &flags));
    nccl->done = flags;
    DDP_TRY(join_all(nccl, params));
    ddp_device_set_idle(nccl->device, ddp_nccl_idle, nccl);
    *nccl_p = nccl;
    nccl    = NULL;
out:
    if (nccl != NULL) {
        nccl->failed = status; /* abort: the others may not be there to finalize */
    }
    ddp_nccl_destroy(&nccl);
    return status;
}

/* Collective, so the others' deadline counts too. */
static void finalize(ddp_nccl_t *nccl)
{
    const int64_t start  = ddp_clock_ns();
    ncclResult_t  result = nccl->table->CommFinalize(nccl->nccl);

    while (result == ncclInProgress && ddp_clock_ns() - start < FINALIZE_NS) {
        const ncclResult_t asked = nccl->table->CommGetAsyncError(nccl->nccl, &result);

        result = asked != ncclSuccess ? asked : result;
        (void)sched_yield();
    }
    if (result == ncclSuccess) {
        result = nccl->table->CommDestroy(nccl->nccl);
        result = result == ncclInProgress ? ncclSuccess : result; /* it ends by itself */
    } else {
        ddp_nccl_abort(nccl);
    }
    if (result != ncclSuccess) {
        ddp_log(DDP_LOG_WARN, "nccl: the communicator did not end as it should: %s",
                nccl->table->GetErrorString(result));
    }
}

/* Registration and memory; with an aborted communicator there is nothing to deregister from. */
static void give_memory_back(ddp_nccl_t *nccl)
{
    for (size_t i = nccl->n_memory; i-- > 0;) {
        const ddp_nccl_memory_t *memory = &nccl->memory[i];

        if (memory->is_nccls) {
            (void)nccl->table->MemFree(memory->memory);
            ddp_device_discharge(nccl->device, memory->bytes);
        } else {
            const ddp_allocator_t *allocator = ddp_device_allocator(nccl->device);

            allocator->release(allocator->ctx, memory->memory);
        }
    }
}

void ddp_nccl_destroy(ddp_nccl_t **nccl_p)
{
    ddp_nccl_t *nccl = nccl_p != NULL ? *nccl_p : NULL;
    bool        told = false;

    if (nccl == NULL) {
        return;
    }
    for (size_t i = 0; nccl->nccl != NULL && i < nccl->n_memory; i++) {
        if (nccl->memory[i].handle != NULL) {
            (void)nccl->table->CommDeregister(nccl->nccl, nccl->memory[i].handle);
        }
    }
    if (nccl->nccl != NULL && nccl->failed == DDP_OK) {
        finalize(nccl);
    } else {
        ddp_nccl_abort(nccl);
    }
    give_memory_back(nccl);
    ddp_comm_attach(nccl->comm, nccl->device); /* its waits are the communicator's again */
    for (int r = 0; nccl->telling != NULL && r < nccl->size; r++) {
        told = told || nccl->telling[r] != MPI_REQUEST_NULL;
    }
    if (!told) { /* else MPI may still read it */
        free(nccl->told);
        free(nccl->telling);
    }
    free(nccl);
    *nccl_p = NULL;
}
