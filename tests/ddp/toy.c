#include "tests/ddp/toy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/convert.h"
#include "base/error.h"

static const size_t shapes[TOY_TENSORS][2] = {{70, 900}, {900, 1}, {5, 1}, {1, 256}, {33, 41}, {3000, 1}};
static const char  *names[TOY_TENSORS]     = {"a.weight", "a.bias", "scale", "block", "b.weight", "b.bias"};

static uint32_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= UINT64_C(0xff51afd7ed558ccd);
    x ^= x >> 33;
    x *= UINT64_C(0xc4ceb9fe1a85ec53);
    return (uint32_t)(x >> 33);
}

/* Also the initial parameters. */
static float draw(const toy_t *toy, uint64_t key, size_t element)
{
    const uint32_t random = mix(key * 1000003 + element);

    return toy->params.integers ? (float)(random % 17) - 8.0F : (float)random / 2147483648.0F - 0.5F;
}

float toy_gradient(const toy_t *toy, uint64_t step, size_t leaf, size_t tensor, size_t element)
{
    const float drawn = draw(toy, (step * 977 + leaf) * 31 + tensor, element);

    return toy->params.plant == NULL ? drawn : toy->params.plant(step, leaf, tensor, element, drawn);
}

void toy_role(size_t tensor, ddp_tensor_desc_t *desc)
{
    switch (tensor) {
    case 1:
        desc->no_decay = true;
        break;
    case 2:
    case 3:
        desc->role     = DDP_TENSOR_AVERAGE;
        desc->momentum = tensor == 2 ? 0.25F : 1.0F;
        break;
    case 5:
        desc->frozen = true;
        break;
    default:
        break;
    }
}

static int uses(const toy_t *toy, uint64_t step, size_t leaf, size_t tensor)
{
    if (toy->tensors[tensor].frozen) {
        return 0;
    }
    return toy->params.uses == NULL || toy->params.uses(step, leaf, tensor);
}

static size_t part(const toy_t *toy, size_t samples, const size_t *sizes, size_t leaf)
{
    size_t first;
    size_t count;

    if (sizes != NULL) {
        return sizes[leaf];
    }
    ddp_partition(samples, toy->params.micro_batches, leaf, &first, &count);
    return count;
}

static ddp_loss_stats_t stats_of(const toy_t *toy, uint64_t step, size_t leaf, size_t n)
{
    const float weight = toy->params.weight == NULL ? (float)n : toy->params.weight(step, leaf, n);

    return (ddp_loss_stats_t){(float)(leaf + 1) * weight, weight, 1.0F, (float)n};
}

static ddp_status_t take(const ddp_allocator_t *from, size_t bytes, void *memory_p)
{
    void              *memory = NULL;
    const ddp_status_t status = from->acquire(from->ctx, "the toy", bytes, &memory);

    memcpy(memory_p, &memory, sizeof(memory));
    return status;
}

static ddp_status_t take_memory(toy_t *toy)
{
    ddp_status_t           status = DDP_OK;
    const ddp_allocator_t *device = ddp_device_allocator(toy->device);
    const ddp_allocator_t *host   = ddp_device_host_allocator(toy->device);
    const size_t           bytes  = toy->total * sizeof(float);

    DDP_TRY(take(device, toy->params.micro_batches * sizeof(*toy->stats), &toy->stats));
    if (toy->params.cuda) {
        toy->drawn = malloc(bytes);
        DDP_TRY(take(device, bytes, &toy->scratch));
        DDP_TRY(take(host, toy->params.micro_batches * 2 * bytes, &toy->seen));
    }
out:
    return status;
}

static void give_memory_back(toy_t *toy)
{
    if (toy->device != NULL) {
        const ddp_allocator_t *device = ddp_device_allocator(toy->device);
        const ddp_allocator_t *host   = ddp_device_host_allocator(toy->device);

        device->release(device->ctx, toy->stats);
        device->release(device->ctx, toy->scratch);
        host->release(host->ctx, toy->seen);
    }
    free(toy->drawn);
}

static MPI_Comm first_ranks(int n)
{
    MPI_Comm  members = MPI_COMM_NULL;
    MPI_Group world, group;

    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_range_incl(world, 1, (int[1][3]){{0, n - 1, 1}}, &group);
    MPI_Comm_create_group(MPI_COMM_WORLD, group, n, &members);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    return members;
}

static bool is_cuda_asked_for(void)
{
    const char *text = getenv("DDP_TEST_DEVICE");

    return text != NULL && strcmp(text, "cuda") == 0;
}

ddp_status_t toy_create(const toy_params_t *params, toy_t *toy)
{
    ddp_status_t         status        = DDP_OK;
    ddp_comm_params_t    comm_params   = DDP_COMM_PARAMS_INIT;
    ddp_device_params_t  device_params = DDP_DEVICE_PARAMS_INIT;
    ddp_reducer_params_t reducer       = params->reducer;

    *toy = (toy_t){.params = *params};
    if (is_cuda_asked_for()) {
        toy->params.cuda = 1;
        reducer.backend  = DDP_REDUCER_HOST;
    }
    comm_params.parent = MPI_COMM_WORLD;
    toy->members       = MPI_COMM_NULL;
    if (params->ranks > 0) {
        comm_params.parent = toy->members = first_ranks(params->ranks);
    }
    comm_params.timeout_ms = params->timeout_ms;
    comm_params.alone      = params->alone != 0;
    device_params.isa      = ddp_isa_detect();
    toy->isa = toy->params.cuda && reducer.backend != DDP_REDUCER_HOST ? DDP_ISA_PLAIN : ddp_isa_detect();
    DDP_TRY(ddp_comm_create(&comm_params, &toy->comm));
    if (toy->params.cuda) {
        device_params.kind    = DDP_DEVICE_CUDA;
        device_params.ordinal = params->one_device ? 0 : ddp_comm_local_rank(toy->comm);
    }
    DDP_TRY(ddp_device_create(&device_params, &toy->device));
    ddp_comm_attach(toy->comm, toy->device);
    DDP_TRY(ddp_stream_create(toy->device, "compute", &toy->compute));
    for (size_t i = 0; i < TOY_TENSORS; i++) {
        toy->tensors[i] =
            (ddp_tensor_desc_t){.name = names[i], .ndim = 2, .shape = {shapes[i][0], shapes[i][1]}};
        if (params->roles) {
            toy_role(i, &toy->tensors[i]);
        }
    }
    DDP_TRY(ddp_layout_make(toy->tensors, TOY_TENSORS, &toy->total));
    reducer.comm          = toy->comm;
    reducer.compute       = toy->compute;
    reducer.tensors       = toy->tensors;
    reducer.n_tensors     = TOY_TENSORS;
    reducer.micro_batches = params->micro_batches;
    DDP_TRY(ddp_reducer_create(&reducer, &toy->reducer));
    toy->params.reducer = reducer;
    toy->reference      = aligned_alloc(64, toy->total * sizeof(float));
    DDP_TRY(take_memory(toy));
    memset(toy->reference, 0, toy->total * sizeof(float));
    for (size_t s = 0; s < 2; s++) {
        toy->slots[s] = aligned_alloc(64, toy->total * sizeof(float));
        memset(toy->slots[s], 0, toy->total * sizeof(float));
    }
    for (size_t i = 0; i < TOY_TENSORS; i++) {
        for (size_t e = 0; e < toy->tensors[i].count; e++) {
            toy->reference[toy->tensors[i].offset + e] = draw(toy, 7 + i, e);
        }
    }
    DDP_TRY(ddp_reducer_write(toy->reducer, DDP_REDUCER_VALUES, 0, toy->total, toy->reference));
    DDP_TRY(ddp_reducer_publish(toy->reducer));
out:
    return status;
}

void toy_destroy(toy_t *toy)
{
    ddp_reducer_destroy(&toy->reducer);
    give_memory_back(toy);
    ddp_stream_destroy(&toy->compute);
    ddp_device_destroy(&toy->device);
    ddp_comm_destroy(&toy->comm);
    if (toy->params.ranks > 0 && toy->members != MPI_COMM_NULL) {
        MPI_Comm_free(&toy->members);
    }
    free(toy->reference);
    free(toy->slots[0]);
    free(toy->slots[1]);
}

typedef struct read_args {
    toy_t       *toy;
    const float *values;
    size_t       tensor;
} read_args_t;

/* Like a layer: the parameter must be the one of the last step, all of it. */
static ddp_status_t read_work(void *args)
{
    const read_args_t       *a      = args;
    const ddp_tensor_desc_t *tensor = &a->toy->tensors[a->tensor];

    if (memcmp(a->values + tensor->offset, a->toy->reference + tensor->offset,
               tensor->count * sizeof(float)) != 0) {
        a->toy->bad_reads++;
    }
    return DDP_OK;
}

typedef struct write_args {
    toy_t   *toy;
    float   *grads;
    uint64_t step;
    size_t   leaf, tensor;
    bool     accumulate;
} write_args_t;

static ddp_status_t write_work(void *args)
{
    const write_args_t      *a      = args;
    const ddp_tensor_desc_t *tensor = &a->toy->tensors[a->tensor];
    float                   *grad   = a->grads + tensor->offset;

    for (size_t e = 0; e < tensor->count; e++) {
        const float g = toy_gradient(a->toy, a->step, a->leaf, a->tensor, e);

        grad[e] = a->accumulate ? grad[e] + g : g;
    }
    return DDP_OK;
}

typedef struct stats_args {
    ddp_loss_stats_t *to;
    ddp_loss_stats_t  value;
} stats_args_t;

static ddp_status_t stats_work(void *args)
{
    const stats_args_t *a = args;

    *a->to = a->value;
    return DDP_OK;
}

/* A copy to look at later: nothing waits. */
static ddp_status_t cuda_read(toy_t *toy, size_t leaf, int again, size_t tensor)
{
    const ddp_tensor_desc_t *desc = &toy->tensors[tensor];
    float                   *to   = toy->seen + (leaf * 2 + (size_t)again) * toy->total + desc->offset;

    toy->was_seen[leaf][again][tensor] = 1;
    return ddp_stream_copy(toy->compute, to, ddp_reducer_values(toy->reducer) + desc->offset,
                           desc->count * sizeof(float));
}

static ddp_status_t cuda_write(toy_t *toy, const write_args_t *a)
{
    ddp_status_t             status = DDP_OK;
    const ddp_tensor_desc_t *tensor = &toy->tensors[a->tensor];
    float                   *grad   = a->grads + tensor->offset;
    const size_t             bytes  = tensor->count * sizeof(float);

    for (size_t e = 0; e < tensor->count; e++) {
        toy->drawn[e] = toy_gradient(toy, a->step, a->leaf, a->tensor, e);
    }
    if (!a->accumulate) {
        return ddp_stream_copy(toy->compute, grad, toy->drawn, bytes);
    }
    DDP_TRY(ddp_stream_copy(toy->compute, toy->scratch, toy->drawn, bytes));
    DDP_TRY(ddp_op_axpy(toy->compute, 1.0F, toy->scratch, grad, tensor->count));
out:
    return status;
}

/* Was every parameter that of the last step, all of it? */
static ddp_status_t cuda_look(toy_t *toy)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(ddp_stream_synchronize(toy->compute, -1));
    for (size_t leaf = 0; leaf < toy->params.micro_batches; leaf++) {
        for (size_t k = 0; k < 2 * TOY_TENSORS; k++) {
            const ddp_tensor_desc_t *tensor = &toy->tensors[k / 2];
            const float             *seen   = toy->seen + (leaf * 2 + k % 2) * toy->total + tensor->offset;

            if (toy->was_seen[leaf][k % 2][k / 2] &&
                memcmp(seen, toy->reference + tensor->offset, tensor->count * sizeof(float)) != 0) {
                toy->bad_reads++;
            }
        }
    }
    memset(toy->was_seen, 0, sizeof(toy->was_seen));
out:
    return status;
}

static ddp_status_t read_tensor(toy_t *toy, size_t leaf, int again, size_t tensor)
{
    const read_args_t read = {toy, ddp_reducer_values(toy->reducer), tensor};

    return toy->params.cuda ? cuda_read(toy, leaf, again, tensor)
                            : ddp_stream_submit(toy->compute, "read", read_work, &read, sizeof(read));
}

static ddp_status_t write_tensor(toy_t *toy, const write_args_t *write)
{
    return toy->params.cuda ? cuda_write(toy, write)
                            : ddp_stream_submit(toy->compute, "write", write_work, write, sizeof(*write));
}

static ddp_status_t write_stats(toy_t *toy, const stats_args_t *stats)
{
    return toy->params.cuda ? ddp_stream_copy(toy->compute, stats->to, &stats->value, sizeof(stats->value))
                            : ddp_stream_submit(toy->compute, "stats", stats_work, stats, sizeof(*stats));
}

static ddp_status_t micro_step(toy_t *toy, size_t leaf, size_t n)
{
    ddp_status_t status            = DDP_OK;
    float       *grads             = NULL;
    bool         accumulate        = false;
    uint8_t      used[TOY_TENSORS] = {0};
    stats_args_t stats             = {&toy->stats[leaf], stats_of(toy, toy->step, leaf, n)};

    DDP_TRY(ddp_reducer_micro_begin(toy->reducer, leaf, &grads, &accumulate));
    for (size_t i = 0; i < TOY_TENSORS; i++) {
        DDP_TRY(read_tensor(toy, leaf, 0, i));
        used[i] = (uint8_t)uses(toy, toy->step, leaf, i);
    }
    DDP_TRY(write_stats(toy, &stats));
    DDP_TRY(ddp_reducer_forward_done(toy->reducer, &toy->stats[leaf], used));
    for (size_t p = 0; p < TOY_TENSORS; p++) {
        const size_t i     = TOY_TENSORS - 1 - p;
        write_args_t write = {toy, grads, toy->step, leaf, i, accumulate};

        if (used[i]) {
            DDP_TRY(read_tensor(toy, leaf, 1, i));
            DDP_TRY(write_tensor(toy, &write));
            DDP_TRY(ddp_reducer_ready(toy->reducer, i));
        }
    }
    DDP_TRY(ddp_reducer_micro_end(toy->reducer));
out:
    return status;
}

static void delay(const toy_t *toy, bool now)
{
    if (now && ddp_comm_rank(toy->comm) == toy->params.rank_to_delay) {
        usleep(20000);
    }
}

ddp_status_t toy_step(toy_t *toy, float lr, size_t samples, const size_t *sizes, ddp_step_result_t *result_p)
{
    ddp_status_t status = DDP_OK;
    ddp_step_t   step   = {.lr           = lr,
                           .samples      = samples,
                           .part_samples = sizes,
                           .grad_norm    = toy->params.norm != 0,
                           .request      = toy->request};
    size_t       first;
    size_t       count;

    toy->step++;
    DDP_TRY(ddp_reducer_step_begin(toy->reducer, &step));
    delay(toy, toy->step % 2 == 0);
    ddp_reducer_range(toy->reducer, &first, &count);
    for (size_t leaf = first; leaf < first + count && part(toy, samples, sizes, leaf) > 0; leaf++) {
        DDP_TRY(micro_step(toy, leaf, part(toy, samples, sizes, leaf)));
    }
    delay(toy, toy->step % 2 == 1);
    DDP_TRY(ddp_reducer_step_end(toy->reducer, result_p));
    if (toy->params.cuda) {
        DDP_TRY(cuda_look(toy));
    }
out:
    return status;
}

/* Sum over leaves [low, high) of a tree that is `size` wide here; absent micro-batches were cut off by the
 * caller. */
static float tree_sum(const toy_t *toy, size_t low, size_t size, size_t leaves, size_t tensor, size_t element)
{
    float left;

    if (size == 1) {
        return uses(toy, toy->step, low, tensor) ? toy_gradient(toy, toy->step, low, tensor, element) : 0.0F;
    }
    left = tree_sum(toy, low, size / 2, leaves, tensor, element);
    if (low + size / 2 >= leaves) {
        return left;
    }
    return left + tree_sum(toy, low + size / 2, size / 2, leaves, tensor, element);
}

/* With the block sums of the library (kernels' tests check those), tensor by tensor. */
static double reference_norm(const toy_t *toy, float *sum, float scale)
{
    static const int32_t push_first[1] = {0};
    double              *blocks        = calloc(toy->total / DDP_BLOCK, sizeof(double));
    const float         *source        = sum;
    ddp_tree_program_t   program       = {push_first, 1, &source, NULL};
    double               squares       = 0;

    ddp_tree_sum_sumsq(toy->isa, &program, sum, blocks, toy->total / DDP_BLOCK);
    for (size_t i = TOY_TENSORS; i-- > 0;) { /* as they lie */
        const size_t first = toy->tensors[i].offset / DDP_BLOCK;
        const size_t count = ddp_block_round(toy->tensors[i].count) / DDP_BLOCK;

        double own = 0;

        for (size_t b = first; b < first + count && toy->tensors[i].role == DDP_TENSOR_PARAMETER; b++) {
            own += blocks[b];
        }
        squares += own;
    }
    free(blocks);
    return sqrt(squares) * (double)scale;
}

/* As torch.nn.utils.clip_grad_norm_. */
static float clip_factor(const toy_t *toy, float scale)
{
    const double factor = (double)toy->params.reducer.clip_norm / (toy->norm + 1e-6);

    return factor < 1 ? (float)((double)scale * factor) : scale;
}

/* value = (1 - momentum) * value + momentum * sum / leaves, rounded as the kernel does (its test has closed
 * forms). */
static void reference_average(const toy_t *toy, const ddp_tensor_desc_t *tensor, const float *sum,
                              size_t leaves)
{
    static const int32_t push_first[1] = {0};
    ddp_tree_program_t   program       = {push_first, 1, &sum, NULL};

    ddp_tree_average(toy->isa, &program, toy->reference + tensor->offset, tensor->momentum, leaves, NULL,
                     ddp_block_round(tensor->count) / DDP_BLOCK);
}

void toy_reference_step(toy_t *toy, float lr, size_t samples, const size_t *sizes)
{
    static const int32_t push_first[1] = {0};
    float               *sum           = aligned_alloc(64, toy->total * sizeof(float));
    ddp_optim_config_t   no_decay      = toy->params.reducer.optim;
    double               weight        = 0;
    size_t               leaves        = 0;
    size_t               width         = 1;
    float                scale;

    for (; leaves < toy->params.micro_batches && part(toy, samples, sizes, leaves) > 0; leaves++) {
        weight += stats_of(toy, toy->step, leaves, part(toy, samples, sizes, leaves)).weight;
    }
    for (; width < leaves; width *= 2) {
    }
    memset(sum, 0, toy->total * sizeof(float));
    for (size_t i = 0; i < TOY_TENSORS; i++) {
        for (size_t e = 0; e < toy->tensors[i].count; e++) {
            sum[toy->tensors[i].offset + e] = tree_sum(toy, 0, width, leaves, i, e);
        }
    }
    no_decay.weight_decay = 0;
    scale                 = (float)(1.0 / weight);
    toy->norm             = reference_norm(toy, sum, scale);
    if (toy->params.reducer.clip_norm > 0) {
        scale = clip_factor(toy, scale);
    }
    for (size_t i = 0; i < TOY_TENSORS; i++) {
        const float       *source  = sum + toy->tensors[i].offset;
        ddp_tree_program_t program = {push_first, 1, &source, NULL};
        ddp_update_t update = {.config = toy->tensors[i].no_decay ? &no_decay : &toy->params.reducer.optim,
                               .lr     = lr,
                               .grad_scale = scale,
                               .step       = toy->steps[i] + 1,
                               .param      = toy->reference + toy->tensors[i].offset};
        int          used   = 0;

        for (size_t s = 0; s < ddp_optim_slots(&toy->params.reducer.optim); s++) {
            update.slot[s] = toy->slots[s] + toy->tensors[i].offset;
        }
        for (size_t leaf = 0; leaf < leaves; leaf++) {
            used |= uses(toy, toy->step, leaf, i);
        }
        if (used && toy->tensors[i].role == DDP_TENSOR_AVERAGE) {
            reference_average(toy, &toy->tensors[i], source, leaves);
            toy->steps[i]++;
        } else if (used) {
            ddp_tree_update(toy->isa, &program, &update, ddp_block_round(toy->tensors[i].count) / DDP_BLOCK);
            toy->steps[i]++;
        }
    }
    free(sum);
}

bool toy_equals_reference(const toy_t *toy)
{
    float *values = malloc(toy->total * sizeof(float));
    bool   equal  = ddp_reducer_read(toy->reducer, DDP_REDUCER_VALUES, 0, toy->total, values) == DDP_OK;

    equal = equal && memcmp(values, toy->reference, toy->total * sizeof(float)) == 0;
    /* and what forward will read */
    equal = equal && ddp_stream_read(toy->compute, values, ddp_reducer_values(toy->reducer),
                                     toy->total * sizeof(float)) == DDP_OK;
    equal = equal && memcmp(values, toy->reference, toy->total * sizeof(float)) == 0;
    free(values);
    return equal && toy->bad_reads == 0;
}

float toy_value(const toy_t *toy, size_t tensor, size_t element)
{
    float value = NAN;

    ddp_ignore(
        ddp_reducer_read(toy->reducer, DDP_REDUCER_VALUES, toy->tensors[tensor].offset + element, 1, &value),
        "it is not a number then");
    return value;
}

bool toy_run(const toy_params_t *params, int n_steps, size_t samples, size_t last_samples)
{
    toy_t             toy;
    ddp_step_result_t result;
    bool              equal = toy_create(params, &toy) == DDP_OK;

    for (int s = 0; s < n_steps && equal; s++) {
        const size_t n  = s == n_steps - 1 ? last_samples : samples;
        const float  lr = 0.01F * (float)(s + 1);

        equal = toy_step(&toy, lr, n, NULL, &result) == DDP_OK && ddp_reducer_finish(toy.reducer) == DDP_OK;
        toy_reference_step(&toy, lr, n, NULL);
        equal = equal && toy_equals_reference(&toy);
        equal = equal && ddp_comm_barrier(toy.comm) == DDP_OK;
    }
    toy_destroy(&toy);
    return equal;
}
