/* Memory of the devices of train.mode dp, planned. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "launcher/memory_internal.h"

#define MIB 1048576.0

static bool is_outside(const ddp_run_t *run)
{
    return run->config.dp.loss == (int)DDP_DP_LOSS_OUTSIDE && run->devices.n > 1;
}

/* The loss of one device's part of the gathered output, on a tape of its own. */
static ddp_status_t dry_loss(const ddp_run_t *run, ddp_model_t *model, ddp_tape_t *tape, const void *numbers,
                             const ddp_tensor_t *output)
{
    const ddp_tape_begin_t training = {.training = true};
    ddp_status_t           status   = DDP_OK;
    ddp_loss_stats_t      *stats    = NULL;
    ddp_tensor_t          *y        = NULL;

    DDP_TRY(ddp_tape_begin(tape, &training));
    DDP_TRY(ddp_tape_variable(tape, numbers, output->ndim, output->shape, &y));
    DDP_TRY(ddp_run_output_loss(run, model, tape, y, numbers, &stats));
    DDP_TRY(ddp_tape_backward(tape));
out:
    return status;
}

ddp_status_t ddp_memory_dry_replica(const ddp_run_t *run, ddp_model_t *model, ddp_tape_t *tape,
                                    ddp_tape_t *loss_tape, const void *numbers, size_t rows,
                                    ddp_run_memory_t *memory)
{
    const ddp_tape_begin_t training = {.training = true};
    const ddp_tape_begin_t testing  = {.training = false};
    ddp_status_t           status   = DDP_OK;
    ddp_loss_stats_t      *stats    = NULL;
    ddp_tensor_t          *output   = NULL;

    DDP_TRY(ddp_tape_begin(tape, &training));
    DDP_TRY(ddp_run_output(run, model, tape, numbers, rows, &output));
    if (is_outside(run)) {
        memory->output = output->count * sizeof(float);
        DDP_TRY(dry_loss(run, model, loss_tape, numbers, output));
        DDP_TRY(ddp_tape_backward_from(tape, output, numbers));
    } else {
        DDP_TRY(ddp_run_output_loss(run, model, tape, output, numbers, &stats));
        DDP_TRY(ddp_tape_backward(tape));
    }
    DDP_TRY(ddp_tape_begin(tape, &testing));
    DDP_TRY(ddp_run_output(run, model, tape, numbers, ddp_eval_rows(run), &output));
    DDP_TRY(ddp_run_output_loss(run, model, tape, output, numbers, &stats));
    memory->loss_tape = ddp_tape_memory(loss_tape);
out:
    return status;
}

/* Samples of the largest chunk of evaluation that a device gets: its first. */
static size_t eval_rows(const ddp_run_t *run, size_t index)
{
    const size_t rows   = ddp_eval_rows(run);
    const size_t before = index * rows;
    const size_t left   = run->data.test_samples > before ? run->data.test_samples - before : 0;

    return left < rows ? left : rows;
}

/* A core as device 0 reads samples where they are; all others have a copy, of an evaluation's chunk too. */
static size_t input_bytes(const ddp_run_t *run, size_t index, size_t rows)
{
    const size_t eval   = eval_rows(run, index);
    const size_t most   = rows > eval ? rows : eval;
    const size_t labels = is_outside(run) ? eval : most;
    size_t       bytes  = 0;

    if (index > 0 || run->gpus != NULL) {
        bytes = most * run->data.sample_bytes + labels * ddp_eval_label_bytes(run);
        if (is_outside(run) && run->devices.id[index] == run->devices.output) {
            bytes += run->devices.n * rows * ddp_eval_label_bytes(run);
        }
    }
    return bytes;
}

/* Device 0 sums its running averages apart, as those of the others do not count. */
static size_t average_bytes(const ddp_run_t *run)
{
    const ddp_tensor_desc_t *descs = ddp_params_descs(run->params);
    size_t                   count = 0;

    for (size_t i = 0; i < ddp_params_count(run->params) && run->devices.n > 1; i++) {
        count += descs[i].role == DDP_TENSOR_AVERAGE ? ddp_block_round(descs[i].count) : 0;
    }
    return count * sizeof(float);
}

static size_t output_bytes(const ddp_run_t *run, size_t index, const ddp_run_memory_t *memory)
{
    const bool is_output = run->devices.id[index] == run->devices.output;

    return is_output ? run->devices.n * (memory->output + memory->loss_tape.activations) : memory->output;
}

void ddp_memory_plan_devices(const ddp_run_t *run, size_t rows, ddp_run_memory_t *memory)
{
    /* with ddp.backend host they lie in the host's memory, also where device 0 is a GPU */
    const bool has_moments = run->gpus == NULL || run->config.ddp.backend != (int)DDP_REDUCER_HOST;

    for (size_t d = 0; d < run->devices.n; d++) {
        ddp_dp_memory_t *device = &memory->device[d];

        *device       = (ddp_dp_memory_t){.parameters = memory->parameters,
                                          .gradients =
                                        d == 0 ? memory->gradients + average_bytes(run) : memory->parameters,
                                          .moments     = d == 0 && has_moments ? memory->moments : 0,
                                          .activations = memory->tape.activations,
                                          .scratch     = memory->tape.scratch + memory->kernels,
                                          .inputs      = input_bytes(run, d, rows),
                                          .outputs     = output_bytes(run, d, memory),
                                          .cap         = run->devices.memory[d]};
        device->total = device->parameters + device->gradients + device->moments + device->activations +
                        device->scratch + device->inputs + device->outputs;
        memory->devices += device->total;
    }
}

static void print_limit(const ddp_run_t *run, size_t index)
{
    const ddp_dp_memory_t *device = &run->memory.device[index];

    if (run->gpus != NULL) {
        const size_t left = run->gpus[index].info.free_bytes;

        printf(" %10.1f%s", (double)left / MIB, device->total > left ? ": NOT ENOUGH" : "");
    }
    if (device->cap > 0) {
        printf(" %10.1f%s", (double)device->cap / MIB, device->total > device->cap ? ": NOT ENOUGH" : "");
    }
    printf("\n");
}

void ddp_memory_print_devices(const ddp_run_t *run)
{
    const ddp_run_memory_t  *memory  = &run->memory;
    static const char *const names[] = {"parameters", "gradients", "moments", "activations",
                                        "outputs",    "samples",   "scratch", "total"};

    printf("\n# memory of each device, MiB\n%-8s", "device");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        printf(" %11s", names[i]);
    }
    printf("%s %10s\n", run->gpus != NULL ? "   free now" : "",
           run->config.dp.device_memory[0] != '\0' ? "limit" : "");
    for (size_t d = 0; d < run->devices.n; d++) {
        const ddp_dp_memory_t *device = &memory->device[d];
        const size_t values[] = {device->parameters, device->gradients, device->moments, device->activations,
                                 device->outputs,    device->inputs,    device->scratch, device->total};

        printf("%-8d", run->devices.id[d]);
        for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
            printf(" %11.1f", (double)values[i] / MIB);
        }
        print_limit(run, d);
    }
}
