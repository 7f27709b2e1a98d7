#include "launcher/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/error.h"
#include "base/memory.h"
#include "kernels/ops_seq.h"
#include "launcher/memory_internal.h"

#define MIB 1048576.0
/* More than anything needs, so that a dry tape has it in one piece. */
#define PLENTY ((size_t)1 << 50)
/* Address space beyond what is planned: the stack of the loader's thread, borders of huge pages. */
#define MORE_SPACE ((size_t)32 << 20)

/* Samples of the largest micro-batch. */
static size_t most_rows(const ddp_run_t *run)
{
    const size_t batch = (size_t)run->config.train.batch;
    size_t       first;
    size_t       rows;

    ddp_partition(batch < run->data.samples ? batch : run->data.samples,
                  ddp_config_micro_batches(&run->config), 0, &first, &rows);
    return rows;
}

/* A training step's micro-batch, and a chunk of evaluation. */
static ddp_status_t run_dry(const ddp_run_t *run, ddp_model_t *model, ddp_tape_t *tape, const void *samples)
{
    ddp_status_t           status   = DDP_OK;
    const ddp_tape_begin_t training = {.training = true};
    const ddp_tape_begin_t testing  = {.training = false};
    ddp_loss_stats_t      *stats    = NULL;

    DDP_TRY(ddp_tape_begin(tape, &training));
    DDP_TRY(ddp_run_loss(run, model, tape, samples, samples, most_rows(run), &stats));
    DDP_TRY(ddp_tape_backward(tape));
    DDP_TRY(ddp_tape_begin(tape, &testing));
    DDP_TRY(ddp_run_loss(run, model, tape, samples, samples, ddp_eval_rows(run), &stats));
out:
    return status;
}

/* What tape and kernels of this rank will need. */
static ddp_status_t plan_tape(const ddp_run_t *run, ddp_run_memory_t *memory)
{
    const ddp_tape_memory_t plenty  = {.activations = PLENTY, .scratch = PLENTY};
    ddp_status_t            status  = DDP_OK;
    ddp_device_params_t     dry     = DDP_DEVICE_PARAMS_INIT;
    ddp_tape_params_t       setup   = DDP_TAPE_PARAMS_INIT;
    ddp_device_t           *device  = NULL;
    ddp_stream_t           *stream  = NULL;
    ddp_params_t           *params  = NULL;
    ddp_model_t            *model   = NULL;
    ddp_tape_t             *tape    = NULL;
    ddp_tape_t             *loss    = NULL; /* train.mode dp: of the output device */
    void                   *samples = NULL;
    const ddp_allocator_t  *numbers = NULL;

    ddp_gpus_device_params(run, &dry);
    dry.dry = true;
    DDP_TRY(ddp_device_create(&dry, &device));
    DDP_TRY(ddp_stream_create(device, "dry", &stream));
    DDP_TRY(ddp_run_model(run, &params, &model));
    DDP_TRY(ddp_params_allocate(params, ddp_device_allocator(device)));
    setup.stream = stream;
    setup.params = params;
    DDP_TRY(ddp_tape_create(&setup, &tape));
    DDP_TRY(ddp_tape_reserve(tape, &plenty));
    ddp_run_set_tape(run, tape);
    numbers = ddp_device_allocator(device);
    DDP_TRY(numbers->acquire(numbers->ctx, "samples", PLENTY, &samples));
    if (run->devices.n > 0) {
        DDP_TRY(ddp_tape_create(&setup, &loss));
        DDP_TRY(ddp_memory_dry_replica(run, model, tape, loss, samples, most_rows(run), memory));
    } else {
        DDP_TRY(run_dry(run, model, tape, samples));
    }
    memory->tape    = ddp_tape_memory(tape);
    memory->scratch = ddp_device_dry_scratch(device);
    memory->kernels = ddp_kernel_scratch_bytes(device, run->data.context > 0 ? run->config.model.vocab : 0);
out:
    if (samples != NULL) {
        numbers->release(numbers->ctx, samples);
    }
    ddp_tape_destroy(&loss);
    ddp_tape_destroy(&tape);
    ddp_model_destroy(&model);
    ddp_params_destroy(&params);
    ddp_stream_destroy(&stream);
    ddp_device_destroy(&device);
    return status;
}

/* This rank's part of the copy that is written while training goes on. */
static size_t snapshot_bytes(const ddp_run_t *run, const ddp_reducer_params_t *reducer)
{
    size_t floats = 0;
    size_t first  = 0;
    size_t count  = 0;

    if (ddp_checkpoints_wanted(run) && ddp_comm_machine(run->comm) == 0) {
        floats = ddp_saver_bytes(reducer->tensors, reducer->n_tensors, ddp_optim_slots(&reducer->optim)) /
                 sizeof(float);
        ddp_partition(floats, (size_t)ddp_comm_local_size(run->comm), (size_t)ddp_comm_local_rank(run->comm),
                      &first, &count);
    }
    return count * sizeof(float);
}

/* Everything but what the other ranks of the machine have of their own. Local. */
static ddp_status_t plan_rank(const ddp_run_t *run, ddp_run_memory_t *memory)
{
    ddp_status_t               status  = DDP_OK;
    const ddp_reducer_params_t reducer = ddp_run_reducer_params(run);
    const ddp_loader_params_t  loader  = ddp_run_loader_params(run);
    ddp_reducer_plan_t         plan;

    memset(memory, 0, sizeof(*memory));
    DDP_TRY(ddp_reducer_plan(&reducer, ddp_comm_size(run->comm), ddp_comm_rank(run->comm), &plan, NULL, 0));
    memory->parameters = plan.parameter_bytes;
    memory->moments    = plan.moment_bytes;
    memory->gradients  = plan.gradient_bytes;
    memory->arenas     = plan.arenas;
    memory->tables     = plan.shared_bytes - plan.parameter_bytes - plan.moment_bytes - plan.gradient_bytes;
    memory->data       = run->data.memory_bytes;
    memory->shared     = plan.shared_bytes + memory->data;
    DDP_TRY(plan_tape(run, memory));
    memory->loader     = ddp_loader_bytes(&loader);
    memory->evaluation = ddp_eval_bytes(run);
    memory->wire       = plan.wire_bytes;
    memory->snapshot   = snapshot_bytes(run, &reducer);
    memory->own = memory->tape.activations + memory->tape.scratch + memory->tape.nodes + memory->kernels +
                  memory->loader + memory->evaluation + memory->wire + memory->snapshot;
    if (run->devices.n > 0) {
        ddp_memory_plan_devices(run, most_rows(run), memory);
        memory->shared -= plan.parameter_bytes + plan.moment_bytes + plan.gradient_bytes;
        memory->own =
            run->devices.n * memory->tape.nodes + memory->loader + memory->evaluation + memory->snapshot;
        memory->own += run->gpus == NULL ? memory->devices : 0;
    }
    ddp_memory_plan_gpu(run, &plan, memory);
out:
    return status;
}

ddp_status_t ddp_memory_plan(ddp_run_t *run)
{
    ddp_status_t      status = DDP_OK;
    ddp_run_memory_t *memory = &run->memory;
    const int         size   = ddp_comm_size(run->comm);
    const int         first  = ddp_comm_rank(run->comm) - ddp_comm_local_rank(run->comm);
    size_t           *own    = calloc((size_t)size, sizeof(*own));

    status =
        own != NULL ? plan_rank(run, memory) : ddp_fail(DDP_ERR_NO_MEMORY, "no memory for %d ranks", size);
    DDP_TRY(ddp_comm_agree(run->comm, status));
    DDP_TRY(ddp_comm_allgather(run->comm, &memory->own, sizeof(memory->own), own));
    memory->machine = memory->shared;
    for (int r = first; r < first + ddp_comm_local_size(run->comm); r++) {
        memory->machine += own[r];
    }
    memory->available = ddp_memory_available("");
out:
    free(own);
    return status;
}

static size_t space_of(const ddp_run_memory_t *memory)
{
    return memory->shared + memory->own + MORE_SPACE;
}

/* The machine has room, were all its ranks as this one, and so has this rank. */
static bool fits(const ddp_run_t *run, const ddp_run_memory_t *memory)
{
    const size_t machine = memory->shared + memory->own * (size_t)ddp_comm_local_size(run->comm);

    return machine <= run->memory.available && space_of(memory) <= ddp_memory_address_space("") &&
           ddp_memory_fits_gpu(run, memory);
}

/* A change of the configuration that may help. */
typedef struct change {
    bool     blocks, fast;
    uint64_t micro_batch; /* 0: as it is */
} change_t;

static bool change_fits(ddp_run_t *run, const change_t *change)
{
    const ddp_config_t before = run->config;
    ddp_run_memory_t   memory;
    bool               is_enough;

    run->config.train.recompute   = change->blocks ? DDP_RECOMPUTE_BLOCKS : before.train.recompute;
    run->config.ddp.reduction     = change->fast ? (int)DDP_REDUCTION_FAST : before.ddp.reduction;
    run->config.train.micro_batch = change->micro_batch > 0 ? change->micro_batch : before.train.micro_batch;
    is_enough                     = plan_rank(run, &memory) == DDP_OK && fits(run, &memory);
    run->config                   = before;
    return is_enough;
}

/* Halve the micro-batch until the rest of the change is enough. */
static bool find_micro_batch(ddp_run_t *run, change_t *change)
{
    for (uint64_t m = run->config.train.micro_batch / 2; m > 0; m /= 2) {
        change->micro_batch = m;
        if (change_fits(run, change)) {
            return true;
        }
    }
    return false;
}

static size_t add_change(char *text, size_t size, size_t used, const change_t *change)
{
    const char *both = change->blocks || change->fast ? " and " : "";

    used += (size_t)snprintf(text + used, size - used, "%s", used > 0 ? ", or " : "; it fits with ");
    if (change->blocks) {
        used += (size_t)snprintf(text + used, size - used, "train.recompute=blocks%s",
                                 change->fast ? " and " : "");
    }
    if (change->fast) {
        used += (size_t)snprintf(text + used, size - used, "ddp.reduction=fast");
    }
    if (change->micro_batch > 0) {
        used += (size_t)snprintf(text + used, size - used, "%strain.micro_batch=%" PRIu64, both,
                                 change->micro_batch);
    }
    return used;
}

/* Each change alone; if none of them is enough, all together. */
static void find_changes(ddp_run_t *run, char *text, size_t size)
{
    const bool has_blocks =
        run->config.model.kind != DDP_MODEL_MLP && run->config.model.kind != DDP_MODEL_CNN;
    const bool may_blocks = has_blocks && run->config.train.recompute == DDP_RECOMPUTE_NONE;
    const bool may_fast   = run->config.ddp.reduction == (int)DDP_REDUCTION_EXACT && run->memory.arenas > 1;
    change_t   change[4]  = {{.blocks = may_blocks}, {.fast = may_fast}, {0}, {may_blocks, may_fast, 0}};
    size_t     used       = 0;

    text[0] = '\0';
    if (may_blocks && change_fits(run, &change[0])) {
        used = add_change(text, size, used, &change[0]);
    }
    if (may_fast && change_fits(run, &change[1])) {
        used = add_change(text, size, used, &change[1]);
    }
    if (find_micro_batch(run, &change[2])) {
        used = add_change(text, size, used, &change[2]);
    }
    if (used == 0 && (may_blocks || may_fast) &&
        (change_fits(run, &change[3]) || find_micro_batch(run, &change[3]))) {
        used = add_change(text, size, used, &change[3]);
    }
    if (used == 0) {
        const bool  has_ranks = run->devices.n == 0 && ddp_comm_local_size(run->comm) > 1;
        const char *other     = run->devices.n > 1                        ? "fewer devices"
                                : !ddp_memory_fits_gpu(run, &run->memory) ? "GPUs with more memory"
                                : has_ranks ? "more machines with fewer ranks on each"
                                            : "a machine with more memory";

        snprintf(text, size, "; use a smaller model, or %s", other);
    }
}

/* Of what a machine needs. */
static void describe_parts(const ddp_run_t *run, char *text, size_t size)
{
    const ddp_run_memory_t *memory = &run->memory;
    const int               local  = ddp_comm_local_size(run->comm);

    if (run->devices.n > 0 && run->gpus != NULL) {
        snprintf(text, size, "besides its GPUs");
    } else if (run->devices.n > 0) {
        snprintf(text, size, "%.0f on its %zu device%s together", (double)memory->devices / MIB,
                 run->devices.n, run->devices.n > 1 ? "s" : "");
    } else {
        snprintf(text, size, "%.0f for its %d rank%s together, %.0f for each", (double)memory->shared / MIB,
                 local, local > 1 ? "s" : "", (double)memory->own / MIB);
    }
}

ddp_status_t ddp_memory_check(ddp_run_t *run)
{
    ddp_status_t            status = DDP_OK;
    const ddp_run_memory_t *memory = &run->memory;
    const uint64_t          space  = ddp_memory_address_space("");
    char                    text[256];
    char                    parts[96];

    if (!ddp_memory_fits_gpu(run, memory)) {
        find_changes(run, text, sizeof(text));
        status = ddp_memory_check_gpu(run, text);
    } else if (ddp_comm_local_rank(run->comm) == 0) { /* its part is the largest of the machine */
        if (memory->machine > memory->available) {
            find_changes(run, text, sizeof(text));
            describe_parts(run, parts, sizeof(parts));
            status = ddp_fail(DDP_ERR_NO_MEMORY,
                              "memory: the run needs %.0f MiB on this machine (%s), %.0f MiB are free%s",
                              (double)memory->machine / MIB, parts, (double)memory->available / MIB, text);
        } else if (space_of(memory) > space) {
            find_changes(run, text, sizeof(text));
            status = ddp_fail(DDP_ERR_NO_MEMORY,
                              "memory: a rank needs %.0f MiB of address space, %.0f MiB are left below its "
                              "limit (ulimit -v)%s",
                              (double)space_of(memory) / MIB, (double)space / MIB, text);
        }
    }
    return ddp_comm_agree(run->comm, status);
}

static void print_line(const char *what, size_t rank, size_t machine)
{
    char text[32] = "";

    if (rank > 0) {
        snprintf(text, sizeof(text), "%.1f", (double)rank / MIB);
    }
    printf("%-44s %10s %10.1f\n", what, text, (double)machine / MIB);
}

static void print_free(const ddp_run_memory_t *memory)
{
    if (memory->available != UINT64_MAX) {
        print_line(memory->machine <= memory->available ? "free now" : "free now: NOT ENOUGH", 0,
                   (size_t)memory->available);
    }
}

/* With train.mode dp there is one process. */
static void print_process(const ddp_run_t *run)
{
    const ddp_run_memory_t *memory = &run->memory;
    const size_t            nodes  = run->devices.n * memory->tape.nodes;

    ddp_memory_print_devices(run);
    printf("\n# memory of the process, MiB, without the program and MPI itself\n");
    if (run->gpus == NULL) {
        print_line("devices", 0, memory->devices);
    }
    print_line("flags and losses", 0, memory->tables);
    print_line("data", 0, memory->data);
    print_line("samples on their way", 0, memory->loader);
    print_line("evaluation, records", 0, memory->evaluation + nodes);
    if (memory->snapshot > 0) {
        print_line("snapshot for checkpoints", 0, memory->snapshot);
    }
    print_line("total", 0, memory->machine);
    print_free(memory);
}

/* What the reducer shares among the ranks of a machine. */
static void print_shared(const ddp_run_memory_t *memory)
{
    char text[64];

    print_line("parameters, shared", 0, memory->parameters);
    print_line("moments, shared", 0, memory->moments);
    snprintf(text, sizeof(text), "gradients, shared, %zu arena%s of rank 0", memory->arenas,
             memory->arenas > 1 ? "s" : "");
    print_line(text, 0, memory->gradients);
}

static void print_table(const ddp_run_t *run)
{
    const ddp_run_memory_t *memory = &run->memory;
    const size_t            local  = (size_t)ddp_comm_local_size(run->comm);

    if (run->gpus != NULL) {
        ddp_memory_print_gpu(run);
    }
    printf("\n# memory of one machine with %zu rank%s, MiB, without the program and MPI itself\n", local,
           local > 1 ? "s" : "");
    printf("%-44s %10s %10s\n", "", "a rank", "machine");
    if (run->gpus == NULL || run->config.ddp.backend == (int)DDP_REDUCER_HOST) {
        print_shared(memory);
    }
    print_line("flags and losses, shared", 0, memory->tables);
    print_line("data, shared", 0, memory->data);
    if (run->gpus == NULL) {
        print_line("activations", memory->tape.activations, memory->tape.activations * local);
        print_line("scratch of operations", memory->tape.scratch + memory->kernels,
                   (memory->tape.scratch + memory->kernels) * local);
    }
    print_line("samples on their way", memory->loader, memory->loader * local);
    print_line("evaluation, records", memory->evaluation + memory->tape.nodes,
               (memory->evaluation + memory->tape.nodes) * local);
    if (memory->wire > 0) {
        print_line("from other machines", memory->wire, memory->wire * local);
    }
    if (memory->snapshot > 0) {
        print_line("snapshot for checkpoints", memory->snapshot, memory->snapshot * local);
    }
    print_line("total", memory->own, memory->machine);
    print_free(memory);
}

/* With several machines: a line for each. */
static ddp_status_t print_machines(const ddp_run_t *run)
{
    ddp_status_t status = DDP_OK;
    const int    size   = ddp_comm_size(run->comm);
    uint64_t     mine[] = {(uint64_t)ddp_comm_machine(run->comm), run->memory.machine, run->memory.available};
    uint64_t(*all)[3]   = calloc((size_t)size, sizeof(*all));

    status = all != NULL ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory for %d ranks", size);
    DDP_TRY(ddp_comm_agree(run->comm, status));
    DDP_TRY(ddp_comm_allgather(run->comm, mine, sizeof(mine), all));
    for (int r = 0; r < size && ddp_comm_rank(run->comm) == 0 && ddp_comm_machines(run->comm) > 1; r++) {
        if (r == 0 || all[r][0] != all[r - 1][0]) {
            printf("machine %" PRIu64 " (%s) needs %.1f, free now %.1f%s\n", all[r][0],
                   ddp_comm_host(run->comm, r), (double)all[r][1] / MIB, (double)all[r][2] / MIB,
                   all[r][1] > all[r][2] ? ": NOT ENOUGH" : "");
        }
    }
out:
    free(all);
    return status;
}

ddp_status_t ddp_memory_print(const ddp_run_t *run)
{
    if (run->devices.n > 0) {
        print_process(run);
        return DDP_OK;
    }
    if (ddp_comm_rank(run->comm) == 0) {
        print_table(run);
    }
    return print_machines(run);
}
