#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/error.h"
#include "base/fault.h"
#include "ddp/reducer_internal.h"

#define PAGE_BYTES ((size_t)4096)

/* Hands out parts of one window: first with a NULL base to learn the size, then for real. */
typedef struct carver {
    char  *base;
    size_t used;
} carver_t;

static void *carve(carver_t *carver, size_t bytes, size_t alignment)
{
    carver->used = (carver->used + alignment - 1) / alignment * alignment;
    carver->used += bytes;
    return carver->base == NULL ? NULL : carver->base + carver->used - bytes;
}

static size_t arenas_of(const ddp_reducer_t *r, int rank)
{
    ddp_stack_t stack;
    size_t      first;
    size_t      count;
    size_t      arenas = 1;

    ddp_partition(r->params.micro_batches, (size_t)r->size, (size_t)rank, &first, &count);
    if (r->params.reduction == DDP_REDUCTION_EXACT) {
        ddp_stack_plan(r->params.micro_batches, first, count, &stack, &arenas);
    }
    return arenas;
}

/* Every rank of the machine carves in the same order, so the offsets agree. */
static void carve_all(ddp_reducer_t *r, carver_t *c)
{
    const size_t local = (size_t)r->local_size;
    const size_t bytes = r->total * sizeof(float);
    const int    first = ddp_comm_machine_first(r->comm, r->machine);

    r->forward_flag = carve(c, local * sizeof(ddp_flag_t), PAGE_BYTES);
    r->ready_flag   = carve(c, local * r->n_buckets * sizeof(ddp_flag_t), sizeof(ddp_flag_t));
    r->summed_flag  = carve(c, local * sizeof(ddp_flag_t), sizeof(ddp_flag_t));
    r->done_flag    = carve(c, local * sizeof(ddp_flag_t), sizeof(ddp_flag_t));
    r->sums_flag    = carve(c, sizeof(ddp_flag_t), sizeof(ddp_flag_t));
    r->lr           = carve(c, sizeof(float), DDP_ALIGNMENT);
    r->leaves       = carve(c, r->params.micro_batches * sizeof(ddp_leaf_t), DDP_ALIGNMENT);
    r->used_rank    = carve(c, local * r->params.n_tensors, DDP_ALIGNMENT);
    r->used_others  = carve(c, r->params.n_tensors, DDP_ALIGNMENT);
    r->block_sumsq  = carve(c, r->two_phase ? r->total / DDP_BLOCK * sizeof(double) : 0, DDP_ALIGNMENT);
    r->values       = carve(c, bytes, PAGE_BYTES);
    for (size_t s = 0; s < ddp_optim_slots(&r->params.optim); s++) {
        r->slots[s] = carve(c, bytes, PAGE_BYTES);
    }
    for (int i = 0; i < r->local_size; i++) {
        r->arenas[i] = carve(c, arenas_of(r, first + i) * bytes, PAGE_BYTES);
    }
}

ddp_status_t ddp_reducer_plan_memory(ddp_reducer_t *r)
{
    ddp_status_t status = DDP_OK;
    carver_t     carver = {NULL, 0};
    void        *window = NULL;

    r->arenas = calloc((size_t)r->local_size, sizeof(*r->arenas));
    DDP_REQUIRE(r->arenas != NULL, DDP_ERR_NO_MEMORY, "no memory for a reducer");
    carve_all(r, &carver);
    status = ddp_comm_shared(r->comm, "parameters, moments and gradients", carver.used, &window);
    if (status == DDP_ERR_NO_MEMORY && r->params.reduction == DDP_REDUCTION_EXACT) {
        char line[DDP_ERROR_LINE_SIZE];

        memcpy(line, ddp_error_line(), sizeof(line));
        (void)ddp_fail(status, "%s; a larger train.micro_batch or ddp.reduction fast needs less", line);
    }
    DDP_TRY(status);
    DDP_TRY(ddp_fault("reducer_memory", r->rank));
    carver = (carver_t){window, 0};
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
        float *base = r->arenas[local] + stack.node[i].arena * r->total;

        r->sources[r->n_sources]    = (ddp_source_t){base, base, rank};
        r->node_level[r->n_sources] = stack.node[i].level;
        r->node_index[r->n_sources] = stack.node[i].index;
        r->n_sources++;
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

    r->n_local = n;
    for (size_t i = 0; i < n; i++) {
        ddp_program_t *program = &r->local[i];

        program->first_source = s;
        if (r->params.reduction == DDP_REDUCTION_FAST) {
            s = r->n_sources;
        }
        while (s < r->n_sources &&
               node_end(r->node_level[s], r->node_index[s]) <= node_end(level[i], index[i])) {
            s++;
        }
        program->n_sources = s - program->first_source;
        DDP_TRY(make_program(r, r->node_level + program->first_source, r->node_index + program->first_source,
                             program->n_sources, program));
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
    r->present   = present;
    r->n_sources = 0;
    for (int local = 0; local < r->local_size; local++) {
        add_sources(r, local);
    }
    r->total_base = r->n_sources > 0 ? r->sources[0].writable : r->arenas[0];
    level         = r->node_level + r->n_sources;
    index         = r->node_index + r->n_sources;
    for (int m = 0; m < r->machines; m++) {
        r->machine_nodes[m] = nodes_of_machine(r, m, level + n, index + n);
        if (m == r->machine) {
            DDP_TRY(plan_machine_nodes(r, level + n, index + n, r->machine_nodes[m]));
        }
        n += r->machine_nodes[m];
    }
    r->across.first_source = 0;
    r->across.n_sources    = n;
    DDP_TRY(make_program(r, level, index, n, &r->across));
    if (r->machines == 1) { /* no nodes in between: the sources themselves are summed */
        r->n_local               = 1;
        r->local[0].first_source = 0;
        r->local[0].n_sources    = r->n_sources;
        DDP_TRY(make_program(r, r->node_level, r->node_index, r->n_sources, &r->local[0]));
    }
out:
    return status;
}
