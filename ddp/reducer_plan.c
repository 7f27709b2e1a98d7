#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/error.h"
#include "base/fault.h"
#include "ddp/reducer_internal.h"
#include "ddp/reducer_nccl_plan_internal.h"

#define PAGE_BYTES ((size_t)4096)

/* Hands out parts of one window: first with a NULL base to learn the size, then for real. */
typedef struct carver {
    char  *base;
    size_t used;
    bool   is_too_large; /* for the address space */
} carver_t;

static void *carve(carver_t *carver, size_t n, size_t bytes_each, size_t alignment)
{
    const size_t start = (carver->used + alignment - 1) / alignment * alignment;

    if (bytes_each > 0 && n > (PTRDIFF_MAX - start) / bytes_each) {
        carver->is_too_large = true;
        return NULL;
    }
    carver->used = start + n * bytes_each;
    return carver->base == NULL ? NULL : carver->base + start;
}

/* Every rank of the machine carves in the same order, so the offsets agree. */
static void carve_all(ddp_reducer_t *r, carver_t *c)
{
    const size_t local = (size_t)r->local_size;
    const size_t bytes = r->total * sizeof(float);
    const int    first = r->rank - r->local_rank;

    r->host.forward_flag    = carve(c, local, sizeof(ddp_flag_t), PAGE_BYTES);
    r->host.ready_flag      = carve(c, local * r->n_buckets, sizeof(ddp_flag_t), sizeof(ddp_flag_t));
    r->host.summed_flag     = carve(c, local, sizeof(ddp_flag_t), sizeof(ddp_flag_t));
    r->host.done_flag       = carve(c, local, sizeof(ddp_flag_t), sizeof(ddp_flag_t));
    r->host.sums_flag       = carve(c, 1, sizeof(ddp_flag_t), sizeof(ddp_flag_t));
    r->host.lr              = carve(c, 1, sizeof(float), DDP_ALIGNMENT);
    r->host.requests        = carve(c, local, sizeof(uint32_t), DDP_ALIGNMENT);
    r->host.request_others  = carve(c, 1, sizeof(uint32_t), DDP_ALIGNMENT);
    r->host.overflows       = carve(c, local, sizeof(uint64_t), DDP_ALIGNMENT);
    r->host.overflow_others = carve(c, 1, sizeof(uint64_t), DDP_ALIGNMENT);
    r->leaves               = carve(c, r->params.micro_batches, sizeof(ddp_leaf_t), DDP_ALIGNMENT);
    r->host.used_rank       = carve(c, local, r->params.n_tensors, DDP_ALIGNMENT);
    r->host.used_others     = carve(c, 1, r->params.n_tensors, DDP_ALIGNMENT);
    r->host.block_sumsq     = carve(c, r->total / DDP_BLOCK, sizeof(double), DDP_ALIGNMENT);
    r->host.final_ns        = carve(c, local, sizeof(int64_t), DDP_ALIGNMENT);
    r->host.broken_of       = carve(c, local, sizeof(size_t), DDP_ALIGNMENT);
    r->values               = carve(c, 1, bytes, PAGE_BYTES);
    for (size_t s = 0; s < ddp_optim_slots(&r->params.optim); s++) {
        r->slots[s] = carve(c, 1, bytes, PAGE_BYTES);
    }
    for (int i = 0; i < r->local_size; i++) {
        r->host.arenas[i] = carve(c, ddp_arenas_of(&r->params, r->size, first + i), bytes, PAGE_BYTES);
    }
}

/* Size of the machine's window: a pure function, so all its ranks fail alike. */
static ddp_status_t measure(ddp_reducer_t *r, size_t *bytes_p)
{
    ddp_status_t status = DDP_OK;
    carver_t     carver = {.base = NULL};

    carve_all(r, &carver);
    DDP_REQUIRE(!carver.is_too_large, DDP_ERR_NO_MEMORY,
                "parameters, moments and gradients of %zu elements do not fit in memory", r->total);
    *bytes_p = carver.used;
out:
    return status;
}

/* The ranks of the plan's machine: as the communicator has them, else all. */
static void choose_machine(ddp_reducer_t *r)
{
    const ddp_comm_t *comm = r->params.comm;

    r->machines   = 1;
    r->local_size = r->size;
    r->local_rank = r->rank;
    for (int m = 0; comm != NULL && ddp_comm_size(comm) == r->size && m < ddp_comm_machines(comm); m++) {
        if (ddp_comm_machine_first(comm, m) <= r->rank) {
            r->local_rank = r->rank - ddp_comm_machine_first(comm, m);
            r->local_size = ddp_comm_machine_size(comm, m);
            r->machine    = m;
            r->machines   = ddp_comm_machines(comm);
            r->comm       = r->params.comm;
        }
    }
}

/* The nodes that machine `m` sends in this step, appended at `at`; returns how many. */
static size_t nodes_of_machine(const ddp_reducer_t *r, int m, uint32_t *level, uint32_t *index)
{
    const size_t V    = r->params.micro_batches;
    const int    low  = ddp_comm_machine_first(r->comm, m);
    const int    high = low + ddp_comm_machine_size(r->comm, m) - 1;
    size_t       first;
    size_t       last;
    size_t       count;

    ddp_partition(V, (size_t)r->size, (size_t)low, &first, &count);
    ddp_partition(V, (size_t)r->size, (size_t)high, &last, &count);
    last += count;
    last = last > r->present ? r->present : last;
    if (first >= last) {
        return 0;
    }
    if (r->params.reduction == DDP_REDUCTION_FAST) {
        *level = 0;
        *index = (uint32_t)m;
        return 1;
    }
    return ddp_tree_nodes(r->present, first, last - first, level, index);
}

/* What of the machine's window is for what, and what lies outside of it. */
static ddp_status_t split_memory(ddp_reducer_t *r, const ddp_bucket_range_t *ranges, ddp_reducer_plan_t *plan)
{
    ddp_status_t status = DDP_OK;
    const size_t bytes  = r->total * sizeof(float); /* measure() has seen that all of this fits */
    uint32_t     level[DDP_MAX_NODES];
    uint32_t     index[DDP_MAX_NODES];

    plan->parameter_bytes = bytes;
    plan->moment_bytes    = ddp_optim_slots(&r->params.optim) * bytes;
    for (int i = 0; i < r->local_size; i++) {
        plan->gradient_bytes += ddp_arenas_of(&r->params, r->size, r->rank - r->local_rank + i) * bytes;
    }
    if (r->machines == 1) {
        return DDP_OK;
    }
    r->present            = r->params.micro_batches;
    r->host.machine_nodes = calloc((size_t)r->machines, sizeof(*r->host.machine_nodes));
    DDP_REQUIRE(r->host.machine_nodes != NULL, DDP_ERR_NO_MEMORY, "no memory for a plan of %d machines",
                r->machines);
    for (int m = 0; m < r->machines; m++) {
        r->host.machine_nodes[m] = nodes_of_machine(r, m, level, index);
    }
    for (size_t b = 0; b < plan->n_buckets; b++) {
        plan->wire_bytes += ddp_reducer_wire_bytes(r, &ranges[b]);
    }
out:
    free(r->host.machine_nodes);
    return status;
}

/* On the rank's GPU. With NCCL there is a buffer for what a bucket's owner receives, or for a bucket in
 * bfloat16. */
static void plan_device(const ddp_reducer_t *r, const ddp_bucket_range_t *ranges, ddp_reducer_plan_t *plan)
{
    ddp_nccl_cut_t   cut = {0};
    ddp_nccl_sizes_t sizes;

    plan->device_bytes = (1 + plan->arenas) * plan->parameter_bytes;
    if (r->params.backend == DDP_REDUCER_NCCL) {
        for (size_t b = 0; b < r->n_buckets; b++) {
            ddp_nccl_cut_add(&cut, (size_t)r->size, ranges[b].count / DDP_BLOCK);
        }
        sizes              = ddp_nccl_sizes(r, &cut);
        plan->wire_bytes   = sizes.wire + sizes.received;
        plan->device_bytes = ddp_nccl_device_bytes(&sizes, ddp_optim_slots(&r->params.optim));
    }
}

ddp_status_t ddp_reducer_plan(const ddp_reducer_params_t *params, int size, int rank_of_plan,
                              ddp_reducer_plan_t *plan_p, ddp_bucket_info_t *buckets, size_t capacity)
{
    ddp_status_t        status = DDP_OK;
    const size_t        n      = params->n_tensors;
    size_t             *padded = NULL;
    ddp_bucket_range_t *ranges = NULL;
    ddp_reducer_plan_t  plan   = {0};
    ddp_reducer_t       r      = {.params = *params, .rank = rank_of_plan, .size = size};

    DDP_REQUIRE(n > 0, DDP_ERR_INVALID_ARG, "a reducer needs at least one tensor");
    r.params.reduction = ddp_reducer_reduction(params);
    choose_machine(&r);
    padded        = calloc(n, sizeof(*padded));
    ranges        = calloc(n, sizeof(*ranges));
    r.host.arenas = calloc((size_t)r.local_size, sizeof(*r.host.arenas));
    DDP_REQUIRE(padded != NULL && ranges != NULL && r.host.arenas != NULL, DDP_ERR_NO_MEMORY,
                "no memory for a bucket plan of %zu tensors", n);
    for (size_t i = 0; i < n; i++) { /* the layout is last registered first */
        padded[i] = ddp_block_round(params->tensors[n - 1 - i].count);
        r.total += padded[i];
    }
    plan.n_buckets = ddp_bucket_plan(padded, n, params->bucket_cap_bytes, params->tail_bucket_bytes, ranges);
    plan.arenas    = ddp_arenas_of(&r.params, size, rank_of_plan);
    r.n_buckets    = plan.n_buckets;
    r.two_phase    = ddp_reducer_is_two_phase(params);
    DDP_TRY(measure(&r, &plan.shared_bytes));
    DDP_TRY(split_memory(&r, ranges, &plan));
    plan_device(&r, ranges, &plan);
    for (size_t b = 0; b < plan.n_buckets && b < capacity; b++) {
        buckets[b] = (ddp_bucket_info_t){ranges[b].offset, ranges[b].count, ranges[b].n, DDP_EXCHANGE_AUTO};
    }
    *plan_p = plan;
out:
    free(r.host.arenas);
    free(padded);
    free(ranges);
    return status;
}

ddp_status_t ddp_reducer_plan_memory(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;
    carver_t     carver = {.base = NULL};
    void        *window = NULL;
    size_t       bytes  = 0;

    DDP_TRY(measure(r, &bytes));
    status = ddp_comm_shared(r->comm, "parameters, moments and gradients", bytes, &window);
    if (status == DDP_ERR_NO_MEMORY && r->params.reduction == DDP_REDUCTION_EXACT) {
        char line[DDP_ERROR_LINE_SIZE];

        memcpy(line, ddp_error_line(), sizeof(line));
        (void)ddp_fail(status, "%s; a larger train.micro_batch or ddp.reduction fast needs less", line);
    }
    DDP_TRY(status);
    DDP_TRY(ddp_fault("reducer_memory", r->rank));
    carver.base          = window;
    r->host.window       = window;
    r->host.window_bytes = bytes;
    carve_all(r, &carver);
out:
    return status;
}

/* The sources of one local rank: its open subtrees once all its micro-batches are done. */
static void add_sources(ddp_reducer_t *r, int local)
{
    const int   rank = ddp_comm_machine_first(r->comm, r->machine) + local;
    ddp_stack_t stack;
    size_t      first;
    size_t      count;
    size_t      arenas;

    ddp_partition(r->params.micro_batches, (size_t)r->size, (size_t)rank, &first, &count);
    if (first >= r->present || count == 0) {
        return; /* nothing in this step */
    }
    ddp_stack_plan(r->present, first, count, &stack, &arenas);
    if (r->params.reduction == DDP_REDUCTION_FAST) {
        stack.depth   = 1;
        stack.node[0] = (ddp_node_t){0, (uint32_t)rank, 0};
    }
    for (size_t i = 0; i < stack.depth; i++) {
        float *base = r->host.arenas[local] + stack.node[i].arena * r->total;

        r->host.sources[r->host.n_sources]    = (ddp_source_t){base, base, rank};
        r->host.node_level[r->host.n_sources] = stack.node[i].level;
        r->host.node_index[r->host.n_sources] = stack.node[i].index;
        r->host.n_sources++;
    }
}

/* fast: ((s0 + s1) + s2) ...; exact: the tree */
static ddp_status_t make_program(const ddp_reducer_t *r, const uint32_t *level, const uint32_t *index,
                                 size_t n, ddp_program_t *program)
{
    if (r->params.reduction == DDP_REDUCTION_EXACT) {
        return ddp_tree_program_make(r->present, level, index, n, program->op, &program->length);
    }
    program->length = 0;
    for (size_t i = 0; i < n; i++) {
        program->op[program->length++] = (int32_t)i;
        if (i > 0) {
            program->op[program->length++] = DDP_TREE_ADD;
        }
    }
    return DDP_OK;
}

/* First micro-batch after node (level, index). */
static size_t node_end(uint32_t level, uint32_t index)
{
    return ((size_t)index + 1) << level;
}

/* One program for each node of this machine: the local sources that lie under it. */
static ddp_status_t plan_machine_nodes(ddp_reducer_t *r, const uint32_t *level, const uint32_t *index,
                                       size_t n)
{
    ddp_status_t status = DDP_OK;
    size_t       s      = 0;

    r->host.n_local = n;
    for (size_t i = 0; i < n; i++) {
        ddp_program_t *program = &r->host.local[i];

        program->first_source = s;
        if (r->params.reduction == DDP_REDUCTION_FAST) {
            s = r->host.n_sources;
        }
        while (s < r->host.n_sources &&
               node_end(r->host.node_level[s], r->host.node_index[s]) <= node_end(level[i], index[i])) {
            s++;
        }
        program->n_sources = s - program->first_source;
        DDP_TRY(make_program(r, r->host.node_level + program->first_source,
                             r->host.node_index + program->first_source, program->n_sources, program));
    }
out:
    return status;
}

ddp_status_t ddp_reducer_plan_sources(ddp_reducer_t *r, size_t present)
{
    ddp_status_t status = DDP_OK;
    uint32_t    *level  = NULL;
    uint32_t    *index  = NULL;
    size_t       n      = 0;

    if (present == r->present) {
        return DDP_OK;
    }
    r->present        = present;
    r->host.n_sources = 0;
    for (int local = 0; local < r->local_size; local++) {
        add_sources(r, local);
    }
    r->host.total_base = r->host.n_sources > 0 ? r->host.sources[0].writable : r->host.arenas[0];
    level              = r->host.node_level + r->host.n_sources;
    index              = r->host.node_index + r->host.n_sources;
    for (int m = 0; m < r->machines; m++) {
        r->host.machine_nodes[m] = nodes_of_machine(r, m, level + n, index + n);
        if (m == r->machine) {
            DDP_TRY(plan_machine_nodes(r, level + n, index + n, r->host.machine_nodes[m]));
        }
        n += r->host.machine_nodes[m];
    }
    r->host.across.first_source = 0;
    r->host.across.n_sources    = n;
    DDP_TRY(make_program(r, level, index, n, &r->host.across));
    if (r->machines == 1) { /* no nodes in between: the sources themselves are summed */
        r->host.n_local               = 1;
        r->host.local[0].first_source = 0;
        r->host.local[0].n_sources    = r->host.n_sources;
        DDP_TRY(
            make_program(r, r->host.node_level, r->host.node_index, r->host.n_sources, &r->host.local[0]));
    }
out:
    return status;
}
