#include "dp_compat/data_parallel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "dp_compat/dp_internal.h"
#include "kernels/cuda.h"

static ddp_status_t check_ids(const ddp_dp_params_t *params)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(params->device_ids == NULL || params->n_devices > 0, DDP_ERR_INVALID_ARG,
                "device ids: the list is empty");
    DDP_REQUIRE(params->n_devices <= DDP_DP_MAX_DEVICES, DDP_ERR_INVALID_ARG,
                "device ids: %zu devices, at most %d", params->n_devices, DDP_DP_MAX_DEVICES);
    for (size_t k = 0; params->device_ids != NULL && k < params->n_devices; k++) {
        const int id = params->device_ids[k];

        DDP_REQUIRE(id >= 0 && id < DDP_DP_MAX_DEVICES, DDP_ERR_INVALID_ARG,
                    "device ids: there is no device %d; they are 0 .. %d", id, DDP_DP_MAX_DEVICES - 1);
        for (size_t other = 0; other < k; other++) {
            DDP_REQUIRE(params->device_ids[other] != id, DDP_ERR_INVALID_ARG, "device ids: %d is there twice",
                        id);
        }
    }
out:
    return status;
}

static ddp_status_t check_params(const ddp_dp_params_t *params)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(params != NULL && params->struct_size == sizeof(*params), DDP_ERR_INVALID_ARG,
                "parameters of DataParallel were not made with DDP_DP_PARAMS_INIT");
    DDP_REQUIRE(params->params != NULL && ddp_params_total(params->params) > 0, DDP_ERR_INVALID_ARG,
                "DataParallel needs a finished list of parameters");
    DDP_REQUIRE(params->reducer.compute != NULL, DDP_ERR_INVALID_ARG,
                "DataParallel needs a stream of its first device");
    DDP_REQUIRE(params->fetch != NULL && params->forward != NULL && params->loss != NULL, DDP_ERR_INVALID_ARG,
                "DataParallel needs the functions fetch, forward and loss");
    DDP_REQUIRE(params->n_inputs > 0 && params->n_inputs <= DDP_DP_MAX_INPUTS, DDP_ERR_INVALID_ARG,
                "DataParallel: %zu inputs, not 1 .. %d", params->n_inputs, DDP_DP_MAX_INPUTS);
    DDP_REQUIRE(params->timeout_ms > 0, DDP_ERR_INVALID_ARG, "timeout_ms is %d; it must be above 0",
                params->timeout_ms);
    DDP_REQUIRE(params->reducer.comm == NULL || ddp_comm_size(params->reducer.comm) == 1, DDP_ERR_INVALID_ARG,
                "DataParallel is one process: its communicator has %d ranks",
                ddp_comm_size(params->reducer.comm));
    DDP_REQUIRE(params->loss_at >= DDP_DP_LOSS_OUTSIDE && params->loss_at <= DDP_DP_LOSS_INSIDE_MEAN,
                DDP_ERR_INVALID_ARG, "loss_at is %d: no such place", (int)params->loss_at);
    DDP_REQUIRE(params->loss_at != DDP_DP_LOSS_INSIDE_MEAN ||
                    params->reducer.reduction == DDP_REDUCTION_EXACT,
                DDP_ERR_INVALID_ARG, "a mean in each replica needs reduction exact");
    DDP_TRY(check_ids(params));
out:
    return status;
}

/* A device for each core, or each GPU. */
static size_t all_devices(const ddp_dp_t *dp)
{
    ddp_cuda_info_t info;

    if (!dp->is_cuda) {
        return (size_t)(dp->cores > 0 ? dp->cores : 1);
    }
    ddp_cuda_probe(&info);
    return (size_t)(info.devices < DDP_DP_MAX_DEVICES ? info.devices : DDP_DP_MAX_DEVICES);
}

/* Ids, cores, caps; who the output device is. */
static ddp_status_t choose_devices(ddp_dp_t *dp)
{
    const ddp_dp_params_t *params = &dp->params;
    ddp_status_t           status = DDP_OK;
    int                    cores[DDP_DP_MAX_DEVICES];

    dp->cores   = ddp_dp_cores(cores, DDP_DP_MAX_DEVICES);
    dp->is_cuda = ddp_device_kind(ddp_stream_device(params->reducer.compute)) == DDP_DEVICE_CUDA;
    dp->n       = params->device_ids != NULL ? params->n_devices : all_devices(dp);
    DDP_REQUIRE(params->device_memory == NULL || params->n_devices == dp->n, DDP_ERR_INVALID_ARG,
                "device memory is said for %zu devices; there are %zu", params->n_devices, dp->n);
    dp->output   = params->output_device < 0 ? 0 : dp->n;
    dp->may_spin = dp->cores >= (int)dp->n;
    dp->replica  = calloc(dp->n, sizeof(*dp->replica));
    DDP_REQUIRE(dp->replica != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu replicas", dp->n);
    for (size_t k = 0; k < dp->n; k++) {
        ddp_replica_t *replica = &dp->replica[k];

        dp->ids[k]     = params->device_ids != NULL ? params->device_ids[k] : (int)k;
        dp->caps[k]    = params->device_memory != NULL ? params->device_memory[k] : 0;
        replica->dp    = dp;
        replica->index = k;
        replica->id    = dp->ids[k];
        replica->scale = 1.0F;
        replica->core  = dp->cores > 1 && !dp->is_cuda ? cores[replica->id % dp->cores] : -1;
        snprintf(replica->name, sizeof(replica->name), "device %d", replica->id);
        dp->output = replica->id == params->output_device ? k : dp->output;
    }
    DDP_REQUIRE(dp->output < dp->n, DDP_ERR_INVALID_ARG, "output device %d is none of the device ids",
                params->output_device);
out:
    return status;
}

/* One slow or small device holds up the rest. */
static void warn_of_devices(const ddp_dp_t *dp)
{
    int    cores[DDP_DP_MAX_DEVICES];
    double memory[DDP_DP_MAX_DEVICES];
    double speed[DDP_DP_MAX_DEVICES];
    int    n_cores = ddp_dp_cores(cores, DDP_DP_MAX_DEVICES);

    for (size_t k = 0; k < dp->n; k++) {
        memory[k] = (double)ddp_device_memory(dp->replica[k].device).cap;
        speed[k]  = n_cores > 0 && !dp->is_cuda ? ddp_dp_speed("", dp->ids, dp->n, k, cores, n_cores) : 0;
    }
    if (dp->n > dp->params.reducer.micro_batches) {
        ddp_log(DDP_LOG_WARN,
                "%zu devices for %zu micro-batches: the last %zu never get anything; a smaller "
                "train.micro_batch gives each its part",
                dp->n, dp->params.reducer.micro_batches, dp->n - dp->params.reducer.micro_batches);
    }
    ddp_dp_warn_unlike(dp->ids, memory, dp->n, "memory");
    ddp_dp_warn_unlike(dp->ids, speed, dp->n, n_cores < (int)dp->n ? "core time" : "speed");
}

static ddp_status_t make_comm(ddp_dp_t *dp)
{
    ddp_comm_params_t alone  = DDP_COMM_PARAMS_INIT;
    ddp_status_t      status = DDP_OK;

    if (dp->params.reducer.comm == NULL) {
        alone.alone      = true;
        alone.timeout_ms = dp->params.timeout_ms;
        DDP_TRY(ddp_comm_create(&alone, &dp->owned_comm));
        dp->params.reducer.comm = dp->owned_comm;
        ddp_comm_attach(dp->owned_comm, dp->replica[0].device);
    }
out:
    return status;
}

/* The reducer's arenas are memory of device 0, though they come from the communicator; those of a GPU come
 * from its own allocator, which counts them. */
static ddp_status_t charge_first(ddp_dp_t *dp)
{
    ddp_device_t      *device = dp->replica[0].device;
    ddp_reducer_plan_t plan;
    ddp_status_t       status = DDP_OK;

    DDP_REQUIRE(dp->caps[0] == 0 || ddp_device_memory(device).cap == dp->caps[0], DDP_ERR_INVALID_ARG,
                "%s: its memory is limited where it is made (ddp_device_params_t.memory_bytes): %zu bytes, "
                "not %zu",
                dp->replica[0].name, ddp_device_memory(device).cap, dp->caps[0]);
    DDP_TRY(ddp_reducer_plan(&dp->params.reducer, 1, 0, &plan, NULL, 0));
    if (dp->is_cuda) {
        dp->charged = plan;
        return DDP_OK;
    }
    dp->is_charged = true;
    DDP_TRY(ddp_device_charge(device, "parameters", plan.parameter_bytes));
    dp->charged.parameter_bytes = plan.parameter_bytes;
    DDP_TRY(ddp_device_charge(device, "moments", plan.moment_bytes));
    dp->charged.moment_bytes = plan.moment_bytes;
    DDP_TRY(ddp_device_charge(device, "gradients", plan.gradient_bytes));
    dp->charged.gradient_bytes = plan.gradient_bytes;
out:
    return status;
}

static ddp_status_t make_averages(ddp_dp_t *dp)
{
    const ddp_tensor_desc_t *descs  = ddp_params_descs(dp->params.params);
    ddp_status_t             status = DDP_OK;
    size_t                   total  = 0;

    dp->average       = calloc(dp->n_tensors, sizeof(*dp->average));
    dp->average_parts = calloc(dp->n_tensors, sizeof(*dp->average_parts));
    DDP_REQUIRE(dp->average != NULL && dp->average_parts != NULL, DDP_ERR_NO_MEMORY,
                "no memory for running averages");
    for (size_t i = 0; i < dp->n_tensors; i++) {
        total += descs[i].role == DDP_TENSOR_AVERAGE ? ddp_block_round(descs[i].count) : 0;
    }
    dp->has_averages = dp->n > 1 && total > 0;
    if (!dp->has_averages) {
        return DDP_OK;
    }
    DDP_TRY(ddp_dp_buffer_need(&dp->replica[0], &dp->averages, "running averages", total * sizeof(float)));
    total = 0;
    for (size_t i = 0; i < dp->n_tensors; i++) {
        if (descs[i].role == DDP_TENSOR_AVERAGE) {
            dp->average[i] = (float *)dp->averages.memory + total;
            total += ddp_block_round(descs[i].count);
        }
    }
out:
    return status;
}

/* What device 0, being a GPU, can not read where it is: losses' sums, and gradients that are added to others.
 */
static ddp_status_t make_places(ddp_dp_t *dp)
{
    const ddp_tensor_desc_t *descs  = ddp_params_descs(dp->params.params);
    ddp_status_t             status = DDP_OK;
    size_t                   most   = 0;
    const ddp_allocator_t   *host   = ddp_device_host_allocator(dp->replica[0].device);
    void                    *memory = NULL;

    for (size_t i = 0; i < dp->n_tensors; i++) {
        most = descs[i].count > most ? descs[i].count : most;
    }
    DDP_TRY(ddp_dp_buffer_need(&dp->replica[0], &dp->leaf_stats, "losses",
                               dp->params.reducer.micro_batches * sizeof(*dp->stats)));
    if (dp->n > 1) {
        DDP_TRY(ddp_dp_buffer_need(&dp->replica[0], &dp->staging, "gradients", most * sizeof(float)));
    }
    if (dp->has_averages) {
        DDP_TRY(
            host->acquire(host->ctx, "running averages", 2 * ddp_block_round(most) * sizeof(float), &memory));
        dp->h_average = memory;
    }
out:
    return status;
}

/* Room for every piece of a step: a phase comes at most twice in a round. */
static ddp_status_t make_tables(ddp_dp_t *dp)
{
    const size_t V      = dp->params.reducer.micro_batches;
    const size_t rounds = (V + dp->n - 1) / dp->n;
    ddp_status_t status = DDP_OK;

    dp->stats = calloc(V > 0 ? V : 1, sizeof(*dp->stats));
    DDP_REQUIRE(dp->stats != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu micro-batches", V);
    for (size_t k = 0; k < dp->n; k++) {
        ddp_replica_t *replica = &dp->replica[k];

        replica->pieces_capacity = 2 * DDP_DP_PHASES * (rounds + 1);
        replica->pieces          = calloc(replica->pieces_capacity, sizeof(*replica->pieces));
        DDP_REQUIRE(replica->pieces != NULL, DDP_ERR_NO_MEMORY, "no memory for the times of a step");
    }
    DDP_TRY(make_averages(dp));
    if (dp->is_cuda) {
        DDP_TRY(make_places(dp));
    }
out:
    return status;
}

static ddp_status_t make_first(ddp_dp_t *dp)
{
    ddp_replica_t *first  = &dp->replica[0];
    ddp_status_t   status = DDP_OK;

    first->stream = dp->params.reducer.compute;
    first->device = ddp_stream_device(first->stream);
    first->params = dp->params.params;
    DDP_TRY(make_comm(dp));
    DDP_TRY(charge_first(dp));
    DDP_TRY(ddp_reducer_create(&dp->params.reducer, &dp->reducer));
    first->values = ddp_reducer_values(dp->reducer);
    DDP_TRY(ddp_trainer_initialize(dp->reducer, first->params, first->stream, dp->params.seed, 0));
    DDP_TRY(ddp_reducer_publish(dp->reducer));
    DDP_TRY(make_tables(dp));
out:
    return status;
}

/* All replicas, each by its own thread. */
static ddp_status_t open_all(ddp_dp_t *dp)
{
    ddp_status_t status = DDP_OK;

    for (size_t k = 1; k < dp->n; k++) {
        DDP_TRY(ddp_dp_thread_start(&dp->replica[k]));
    }
    dp->n_busy = dp->n;
    DDP_TRY(ddp_dp_on_all(dp, ddp_dp_open, ddp_dp_open));
    if (!ddp_dp_is_inside(dp)) {
        DDP_TRY(ddp_dp_on_output(dp, ddp_dp_open_loss));
    }
out:
    return status;
}

/* Parameters and gradients go between device 0 and the others, outputs between the output device and the
 * others. */
static void meet(const ddp_dp_t *dp)
{
    for (size_t k = 0; k < dp->n; k++) {
        ddp_device_meet(dp->replica[k].device, dp->replica[0].device);
        ddp_device_meet(dp->replica[0].device, dp->replica[k].device);
        ddp_device_meet(dp->replica[k].device, dp->replica[dp->output].device);
        ddp_device_meet(dp->replica[dp->output].device, dp->replica[k].device);
    }
}

ddp_status_t ddp_dp_create(const ddp_dp_params_t *params, ddp_dp_t **dp_p)
{
    ddp_status_t status = DDP_OK;
    ddp_dp_t    *dp     = NULL;

    DDP_TRY(check_params(params));
    dp = calloc(1, sizeof(*dp));
    DDP_REQUIRE(dp != NULL, DDP_ERR_NO_MEMORY, "no memory for DataParallel");
    dp->params                   = *params;
    dp->n_tensors                = ddp_params_count(params->params);
    dp->params.reducer.tensors   = ddp_params_descs(params->params);
    dp->params.reducer.n_tensors = dp->n_tensors;
    DDP_TRY(choose_devices(dp));
    dp->params.device_ids    = NULL; /* copied */
    dp->params.device_memory = NULL;
    DDP_TRY(make_first(dp));
    DDP_TRY(open_all(dp));
    meet(dp);
    DDP_TRY(ddp_dp_watcher_start(dp));
    warn_of_devices(dp);
    *dp_p = dp;
    dp    = NULL;
out:
    ddp_dp_destroy(&dp);
    return status;
}

static bool any_hangs(const ddp_dp_t *dp)
{
    bool hangs = false;

    for (size_t k = 0; k < dp->n; k++) {
        hangs = hangs || dp->replica[k].is_hung;
    }
    return hangs;
}

/* Where one hangs the others keep what they have: it may read that, should it ever come back.
 * @return whether one hangs */
static bool close_all(ddp_dp_t *dp)
{
    bool hangs = any_hangs(dp);

    for (size_t k = dp->n; k-- > 0;) {
        ddp_replica_t *replica = &dp->replica[k];

        if (!hangs) {
            ddp_dp_run(replica, ddp_dp_close);
            hangs = replica->is_hung;
        }
        ddp_dp_thread_stop(replica);
    }
    return hangs;
}

static void free_tables(ddp_dp_t *dp)
{
    for (size_t k = 0; k < dp->n; k++) {
        free(dp->replica[k].pieces);
    }
    free(dp->average_parts);
    free(dp->average);
    free(dp->stats);
    free(dp->replica);
    free(dp);
}

void ddp_dp_destroy(ddp_dp_t **dp_p)
{
    ddp_dp_t     *dp    = dp_p != NULL ? *dp_p : NULL;
    ddp_device_t *first = NULL;
    bool          hangs = false;

    if (dp == NULL) {
        return;
    }
    *dp_p = NULL;
    ddp_dp_watcher_stop(dp);
    if (dp->replica == NULL) {
        free(dp);
        return;
    }
    first = dp->replica[0].device;
    hangs = close_all(dp);
    if (hangs) { /* it may read the parameters; nothing hangs before there is a communicator */
        ddp_device_set_moved(first, NULL, NULL);
        ddp_device_keep_memory(first);
        ddp_comm_keep_memory(dp->params.reducer.comm);
    }
    ddp_reducer_destroy(&dp->reducer);
    if (first != NULL) {
        ddp_dp_buffer_free(&dp->replica[0], &dp->averages);
        ddp_dp_buffer_free(&dp->replica[0], &dp->leaf_stats);
        ddp_dp_buffer_free(&dp->replica[0], &dp->staging);
        if (dp->h_average != NULL) {
            ddp_device_host_allocator(first)->release(ddp_device_host_allocator(first)->ctx, dp->h_average);
        }
    }
    if (dp->is_charged) {
        ddp_device_discharge(first, dp->charged.parameter_bytes + dp->charged.moment_bytes +
                                        dp->charged.gradient_bytes);
    }
    if (dp->owned_comm != NULL) {
        ddp_device_set_idle(first, NULL, NULL);
        ddp_comm_destroy(&dp->owned_comm);
    }
    if (!hangs) {
        free_tables(dp);
    }
}

ddp_reducer_t *ddp_dp_reducer(ddp_dp_t *dp)
{
    return dp->reducer;
}

ddp_tape_t *ddp_dp_tape(ddp_dp_t *dp)
{
    return dp->replica[0].tape;
}
