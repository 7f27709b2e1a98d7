#include "kernels/cuda/cudnn_plan.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

/* Proposals that are looked at, of each kind. */
#define PROPOSALS 16
/* Engines that want more memory than this for themselves are passed over. */
#define WORKSPACE_MOST ((int64_t)256 << 20)

ddp_status_t ddp_cudnn_target_open(const ddp_cudnn_table_t *table, ddp_cudnn_target_t *target)
{
    ddp_cudnn_target_t made   = {.table = table};
    ddp_status_t       status = DDP_OK;

    DDP_TRY(ddp_cudnn_status(table, table->create(&made.handle), "cudnnCreate"));
    *target = made;
out:
    return status;
}

ddp_status_t ddp_cudnn_target_describe(const ddp_cudnn_table_t *table, const char *json,
                                       ddp_cudnn_target_t *target)
{
    ddp_cudnn_target_t made   = {.table = table};
    ddp_status_t       status = DDP_OK;

    DDP_TRY(ddp_cudnn_status(table,
                             table->descriptor_create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &made.properties),
                             "cudnnBackendCreateDescriptor"));
    DDP_TRY(ddp_cudnn_status(table,
                             table->attribute_set(made.properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                                  CUDNN_TYPE_CHAR, (int64_t)strlen(json) + 1, json),
                             "properties of a device"));
    DDP_TRY(ddp_cudnn_status(table, table->finalize(made.properties), "properties of a device"));
    *target = made;
out:
    if (status != DDP_OK) {
        ddp_cudnn_target_close(&made);
    }
    return status;
}

void ddp_cudnn_target_close(ddp_cudnn_target_t *target)
{
    if (target->properties != NULL) {
        target->table->descriptor_destroy(target->properties);
    }
    if (target->handle != NULL) {
        target->table->destroy(target->handle);
    }
    *target = (ddp_cudnn_target_t){0};
}

/* The engine's notes as a set. A failure to read them counts as having all: it is passed over. */
static unsigned notes_of(const ddp_cudnn_table_t *table, cudnnBackendDescriptor_t config)
{
    cudnnBackendNumericalNote_t list[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t    engine = NULL;
    int64_t                     count  = 0;
    unsigned                    notes  = 0;

    if (table->descriptor_create(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS) {
        return ~0U;
    }
    if (table->attribute_get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                             &engine) != CUDNN_STATUS_SUCCESS ||
        table->attribute_get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                             CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, list) != CUDNN_STATUS_SUCCESS) {
        notes = ~0U;
        count = 0;
    }
    for (int64_t i = 0; i < count && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++) {
        notes |= 1U << (unsigned)list[i];
    }
    table->descriptor_destroy(engine);
    return notes;
}

/* The operations as one graph for the target's device. */
static cudnnBackendDescriptor_t close_graph(const ddp_cudnn_target_t *target, ddp_cudnn_graph_t *graph)
{
    cudnnBackendDescriptor_t ops = ddp_cudnn_make(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);

    ddp_cudnn_set(graph, ops, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph->n_ops,
                  graph->ops);
    if (target->handle != NULL) {
        ddp_cudnn_set(graph, ops, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle);
    }
    ddp_cudnn_finalize(graph, ops);
    return ops;
}

/* Make a plan of one proposal; on success the graph owns it. */
static ddp_status_t try_config(const ddp_cudnn_target_t *target, cudnnBackendDescriptor_t config,
                               ddp_cudnn_plan_t *plan)
{
    const ddp_cudnn_table_t *table     = target->table;
    cudnnBackendDescriptor_t made      = NULL;
    int64_t                  workspace = 0;
    int64_t                  count     = 0;
    ddp_status_t             status    = DDP_OK;

    DDP_TRY(ddp_cudnn_status(table, table->descriptor_create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &made),
                             "cudnnBackendCreateDescriptor"));
    DDP_TRY(ddp_cudnn_status(table,
                             table->attribute_set(made, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config),
                             "a plan's engine"));
    if (target->handle != NULL) {
        DDP_TRY(ddp_cudnn_status(table,
                                 table->attribute_set(made, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                                      CUDNN_TYPE_HANDLE, 1, &target->handle),
                                 "a plan's handle"));
    }
    if (target->properties != NULL) {
        DDP_TRY(ddp_cudnn_status(table,
                                 table->attribute_set(made, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &target->properties),
                                 "a plan's device"));
    }
    DDP_TRY(ddp_cudnn_status(table, table->finalize(made), "a plan"));
    DDP_TRY(ddp_cudnn_status(table,
                             table->attribute_get(made, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                  CUDNN_TYPE_INT64, 1, &count, &workspace),
                             "a plan's workspace"));
    DDP_REQUIRE(workspace >= 0 && workspace <= WORKSPACE_MOST, DDP_ERR_UNSUPPORTED,
                "a plan wants %lld bytes of workspace", (long long)workspace);
    DDP_REQUIRE(plan->graph.n_owned < DDP_CUDNN_DESCRIPTORS, DDP_ERR_STATE, "a plan of too many descriptors");
    plan->graph.owned[plan->graph.n_owned++] = made;
    plan->plan                               = made;
    plan->workspace_bytes                    = (size_t)workspace;
    made                                     = NULL;
out:
    if (made != NULL) {
        table->descriptor_destroy(made);
    }
    return status;
}

/* What cuDNN proposes for the graph. @return how many of `configs` were filled; all were made */
static int64_t propose(const ddp_cudnn_target_t *target, ddp_cudnn_graph_t *graph,
                       cudnnBackendDescriptor_t ops, cudnnBackendHeurMode_t mode,
                       cudnnBackendDescriptor_t configs[PROPOSALS])
{
    cudnnBackendDescriptor_t heuristics = ddp_cudnn_make(graph, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    int64_t                  count      = 0;

    ddp_cudnn_set_descriptor(graph, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, ops);
    ddp_cudnn_set(graph, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (target->properties != NULL) {
        ddp_cudnn_set_descriptor(graph, heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target->properties);
    }
    ddp_cudnn_finalize(graph, heuristics);
    if (graph->status != DDP_OK ||
        target->table->attribute_get(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                     PROPOSALS, &count, configs) != CUDNN_STATUS_SUCCESS) {
        return 0;
    }
    return count < PROPOSALS ? count : PROPOSALS;
}

/* Try proposals of one kind in their order. DDP_ERR_UNSUPPORTED: none will do. */
static ddp_status_t try_mode(const ddp_cudnn_target_t *target, cudnnBackendDescriptor_t ops,
                             cudnnBackendHeurMode_t mode, unsigned refused, ddp_cudnn_plan_t *plan)
{
    const ddp_cudnn_table_t *table              = target->table;
    cudnnBackendDescriptor_t configs[PROPOSALS] = {NULL};
    int64_t                  count              = 0;
    ddp_status_t             status             = DDP_OK;

    for (int i = 0; i < PROPOSALS; i++) {
        DDP_TRY(ddp_cudnn_status(table,
                                 table->descriptor_create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]),
                                 "cudnnBackendCreateDescriptor"));
    }
    count  = propose(target, &plan->graph, ops, mode, configs);
    status = ddp_fail(DDP_ERR_UNSUPPORTED, "%s",
                      plan->graph.status != DDP_OK ? plan->graph.line : "no engine computes this graph");
    for (int64_t i = 0; i < count && status != DDP_OK; i++) {
        const unsigned notes = notes_of(table, configs[i]);

        if ((notes & refused) != 0) {
            status = ddp_fail(DDP_ERR_UNSUPPORTED, "all engines have properties that are refused");
            continue;
        }
        status = try_config(target, configs[i], plan);
        if (status == DDP_OK) {
            plan->notes = notes;
            /* The plan refers to its configuration. */
            plan->graph.owned[plan->graph.n_owned++] = configs[i];
            configs[i]                               = NULL;
        }
    }
out:
    for (int i = 0; i < PROPOSALS; i++) {
        if (configs[i] != NULL) {
            table->descriptor_destroy(configs[i]);
        }
    }
    return status;
}

ddp_status_t ddp_cudnn_plan_build(const ddp_cudnn_target_t *target, unsigned refused, ddp_cudnn_plan_t *plan)
{
    cudnnBackendDescriptor_t ops    = close_graph(target, &plan->graph);
    ddp_status_t             status = DDP_OK;

    plan->plan = NULL;
    DDP_REQUIRE(plan->graph.status == DDP_OK, plan->graph.status, "%s", plan->graph.line);
    status = try_mode(target, ops, CUDNN_HEUR_MODE_A, refused, plan);
    if (status != DDP_OK) {
        plan->graph.status = DDP_OK; /* a failed question is no failed graph */
        status             = try_mode(target, ops, CUDNN_HEUR_MODE_FALLBACK, refused, plan);
    }
out:
    return status;
}

void ddp_cudnn_plan_free(ddp_cudnn_plan_t *plan)
{
    ddp_cudnn_graph_free(&plan->graph);
    plan->plan = NULL;
}

void ddp_cudnn_point(ddp_cudnn_pointers_t *pointers, int64_t uid, const void *memory)
{
    void *address = NULL;

    memcpy(&address, &memory, sizeof(address));
    pointers->uids[pointers->count]     = uid;
    pointers->pointers[pointers->count] = address;
    pointers->count++;
}

ddp_status_t ddp_cudnn_plan_execute(const ddp_cudnn_target_t *target, const ddp_cudnn_plan_t *plan,
                                    const ddp_cudnn_pointers_t *pointers, void *workspace,
                                    cudaStream_t stream)
{
    const ddp_cudnn_table_t *table = target->table;
    ddp_cudnn_graph_t        graph;
    cudnnBackendDescriptor_t pack   = NULL;
    ddp_status_t             status = DDP_OK;

    ddp_cudnn_graph_init(&graph, table);
    pack = ddp_cudnn_make(&graph, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    ddp_cudnn_set(&graph, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, pointers->count,
                  pointers->uids);
    ddp_cudnn_set(&graph, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers->count,
                  pointers->pointers);
    ddp_cudnn_set(&graph, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    ddp_cudnn_finalize(&graph, pack);
    DDP_TRY(graph.status);
    DDP_TRY(ddp_cudnn_status(table, table->set_stream(target->handle, stream), "cudnnSetStream"));
    DDP_TRY(ddp_cudnn_status(table, table->execute(target->handle, plan->plan, pack), "cudnnBackendExecute"));
out:
    ddp_cudnn_graph_free(&graph);
    /* Not DDP_ERR_UNSUPPORTED, which would have it computed in another way: what failed here had a plan. */
    return status == DDP_OK ? DDP_OK : ddp_fail(DDP_ERR_DEVICE, "%s", ddp_error_line());
}
