#include "kernels/cuda/gemm_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 64

ddp_status_t ddp_cuda_lt_status(const ddp_cuda_plans_t *plans, cublasStatus_t code, const char *call)
{
    return code == CUBLAS_STATUS_SUCCESS
               ? DDP_OK
               : ddp_fail(DDP_ERR_DEVICE, "cuBLASLt: %s: %s", call, plans->table.status_text(code));
}

ddp_status_t ddp_cuda_plans_open(ddp_cuda_plans_t *plans)
{
    ddp_status_t   status = DDP_OK;
    cublasStatus_t code;

    *plans = (ddp_cuda_plans_t){.handle = NULL};
    DDP_TRY(ddp_cublaslt_table_open(&plans->table));
    code = plans->table.create(&plans->handle);
    DDP_REQUIRE(code == CUBLAS_STATUS_SUCCESS, DDP_ERR_UNSUPPORTED, "cuBLASLt cannot start: %s",
                plans->table.status_text(code));
out:
    return status;
}

static void destroy_plan(const ddp_cuda_plans_t *plans, ddp_cuda_plan_t *plan)
{
    cublasLtMatrixLayout_t layout[] = {plan->a_layout, plan->b_layout, plan->c_layout};

    for (size_t i = 0; i < sizeof(layout) / sizeof(layout[0]); i++) {
        if (layout[i] != NULL) {
            (void)plans->table.layout_destroy(layout[i]);
        }
    }
    if (plan->product != NULL) {
        (void)plans->table.product_destroy(plan->product);
    }
    *plan = (ddp_cuda_plan_t){.is_usable = false};
}

void ddp_cuda_plans_close(ddp_cuda_plans_t *plans)
{
    for (size_t i = 0; i < plans->n; i++) {
        destroy_plan(plans, &plans->plan[i]);
    }
    free(plans->plan);
    if (plans->handle != NULL) {
        (void)plans->table.destroy(plans->handle);
    }
    *plans = (ddp_cuda_plans_t){.handle = NULL};
}

ddp_status_t ddp_cuda_plan_set(const ddp_cuda_plans_t *plans, cublasLtMatmulDesc_t product, const float *bias,
                               const float *aux)
{
    ddp_status_t status = DDP_OK;

    if (bias != NULL) {
        DDP_TRY_LT(plans, product_set(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)));
    }
    if (aux != NULL) {
        DDP_TRY_LT(plans, product_set(product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof(aux)));
    }
out:
    return status;
}

static ddp_status_t make_product(const ddp_cuda_plans_t *plans, ddp_cuda_plan_t *plan, const float *bias,
                                 const float *aux)
{
    ddp_status_t    status      = DDP_OK;
    const uint64_t *words       = plan->key.words;
    const int32_t   transpose_a = words[DDP_PLAN_TRANSPOSE_A] != 0 ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t   transpose_b = words[DDP_PLAN_TRANSPOSE_B] != 0 ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint32_t  epilogue    = (uint32_t)words[DDP_PLAN_EPILOGUE];
    const int64_t   aux_ld      = (int64_t)words[DDP_PLAN_LDC];

    DDP_TRY_LT(plans,
               product_create(&plan->product, (cublasComputeType_t)words[DDP_PLAN_COMPUTE], CUDA_R_32F));
    DDP_TRY_LT(plans,
               product_set(plan->product, CUBLASLT_MATMUL_DESC_TRANSA, &transpose_a, sizeof(transpose_a)));
    DDP_TRY_LT(plans,
               product_set(plan->product, CUBLASLT_MATMUL_DESC_TRANSB, &transpose_b, sizeof(transpose_b)));
    DDP_TRY_LT(plans, product_set(plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)));
    if (aux != NULL) {
        DDP_TRY_LT(plans,
                   product_set(plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux_ld, sizeof(aux_ld)));
    }
    DDP_TRY(ddp_cuda_plan_set(plans, plan->product, bias, aux));
out:
    return status;
}

static ddp_status_t make_layouts(const ddp_cuda_plans_t *plans, ddp_cuda_plan_t *plan)
{
    ddp_status_t       status  = DDP_OK;
    const uint64_t    *words   = plan->key.words;
    const uint64_t     rows    = words[DDP_PLAN_ROWS];
    const uint64_t     columns = words[DDP_PLAN_COLUMNS];
    const uint64_t     depth   = words[DDP_PLAN_DEPTH];
    const bool         ta      = words[DDP_PLAN_TRANSPOSE_A] != 0;
    const bool         tb      = words[DDP_PLAN_TRANSPOSE_B] != 0;
    const cudaDataType type    = (cudaDataType)words[DDP_PLAN_TYPE];

    DDP_TRY_LT(plans, layout_create(&plan->a_layout, type, ta ? depth : rows, ta ? rows : depth,
                                    (int64_t)words[DDP_PLAN_LDA]));
    DDP_TRY_LT(plans, layout_create(&plan->b_layout, type, tb ? columns : depth, tb ? depth : columns,
                                    (int64_t)words[DDP_PLAN_LDB]));
    DDP_TRY_LT(plans,
               layout_create(&plan->c_layout, CUDA_R_32F, rows, columns, (int64_t)words[DDP_PLAN_LDC]));
out:
    return status;
}

static ddp_status_t prefer(const ddp_cuda_plans_t *plans, const uint64_t *words,
                           cublasLtMatmulPreference_t preference)
{
    static const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        int                                  word;
    } aligned[]              = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, DDP_PLAN_ALIGN_A},
                                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, DDP_PLAN_ALIGN_B},
                                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, DDP_PLAN_ALIGN_C},
                                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, DDP_PLAN_ALIGN_D}};
    ddp_status_t   status    = DDP_OK;
    const uint64_t workspace = DDP_CUDA_GEMM_WORKSPACE;
    const uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; /* or none at all */

    DDP_TRY_LT(plans, preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                     sizeof(workspace)));
    DDP_TRY_LT(plans, preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction,
                                     sizeof(reduction)));
    for (size_t i = 0; i < sizeof(aligned) / sizeof(aligned[0]); i++) {
        const uint32_t bytes = (uint32_t)words[aligned[i].word];

        DDP_TRY_LT(plans, preference_set(preference, aligned[i].name, &bytes, sizeof(bytes)));
    }
out:
    return status;
}

/* That the library has none is no error: the plan is then not usable. */
static ddp_status_t find_algorithm(const ddp_cuda_plans_t *plans, ddp_cuda_plan_t *plan)
{
    ddp_status_t                    status     = DDP_OK;
    cublasLtMatmulPreference_t      preference = NULL;
    cublasLtMatmulHeuristicResult_t result;
    cublasStatus_t                  code;
    int                             count = 0;

    DDP_TRY_LT(plans, preference_create(&preference));
    DDP_TRY(prefer(plans, plan->key.words, preference));
    code = plans->table.heuristic(plans->handle, plan->product, plan->a_layout, plan->b_layout,
                                  plan->c_layout, plan->c_layout, preference, 1, &result, &count);
    if (code == CUBLAS_STATUS_NOT_SUPPORTED || code == CUBLAS_STATUS_INVALID_VALUE) {
        count = 0;
    } else {
        DDP_TRY(ddp_cuda_lt_status(plans, code, "choosing an algorithm"));
    }
    plan->is_usable = count > 0 && result.state == CUBLAS_STATUS_SUCCESS;
    if (plan->is_usable) {
        plan->algo            = result.algo;
        plan->workspace_bytes = result.workspaceSize;
    }
out:
    if (preference != NULL) {
        (void)plans->table.preference_destroy(preference);
    }
    return status;
}

static ddp_status_t grow(ddp_cuda_plans_t *plans)
{
    ddp_status_t     status = DDP_OK;
    const size_t     room   = plans->room > 0 ? 2 * plans->room : FIRST_ROOM;
    ddp_cuda_plan_t *larger = NULL;

    if (plans->n < plans->room) {
        return DDP_OK;
    }
    larger = realloc(plans->plan, room * sizeof(*larger));
    DDP_REQUIRE(larger != NULL, DDP_ERR_NO_MEMORY, "no memory for plans of products");
    plans->plan = larger;
    plans->room = room;
out:
    return status;
}

ddp_status_t ddp_cuda_plan_get(ddp_cuda_plans_t *plans, const ddp_cuda_plan_key_t *key, const float *bias,
                               const float *aux, const ddp_cuda_plan_t **plan_p)
{
    ddp_status_t    status = DDP_OK;
    ddp_cuda_plan_t plan   = {.key = *key};

    for (size_t i = 0; i < plans->n; i++) {
        if (memcmp(&plans->plan[i].key, key, sizeof(*key)) == 0) {
            *plan_p = &plans->plan[i];
            return DDP_OK;
        }
    }
    DDP_TRY(grow(plans));
    DDP_TRY(make_product(plans, &plan, bias, aux));
    DDP_TRY(make_layouts(plans, &plan));
    DDP_TRY(find_algorithm(plans, &plan));
    plans->plan[plans->n++] = plan;
    *plan_p                 = &plans->plan[plans->n - 1];
out:
    if (status != DDP_OK) {
        destroy_plan(plans, &plan);
    }
    return status;
}

/* An attribute of an algorithm that this version of the library does not have is 0. */
static unsigned attribute_of(const ddp_cuda_plans_t *plans, const ddp_cuda_plan_t *plan,
                             cublasLtMatmulAlgoConfigAttributes_t name, size_t bytes)
{
    uint32_t value   = 0; /* the narrower ones fill its first bytes: all that CUDA runs on is little-endian */
    size_t   written = 0;

    return plans->table.algo_get(&plan->algo, name, &value, bytes, &written) == CUBLAS_STATUS_SUCCESS ? value
                                                                                                      : 0;
}

static void describe_algorithm(const ddp_cuda_plans_t *plans, const ddp_cuda_plan_t *plan, char *text,
                               size_t size)
{
    static const struct {
        cublasLtMatmulAlgoConfigAttributes_t name;
        size_t                               bytes;
        const char                          *text;
    } attributes[] = {
        {CUBLASLT_ALGO_CONFIG_ID, sizeof(int32_t), "algorithm"},
        {CUBLASLT_ALGO_CONFIG_TILE_ID, sizeof(uint32_t), ", tile"},
        {CUBLASLT_ALGO_CONFIG_STAGES_ID, sizeof(uint32_t), ", stages"},
        {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, sizeof(int32_t), ", parts"},
        {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, sizeof(uint32_t), ", reduction"},
        {CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, sizeof(uint32_t), ", swizzle"},
        {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, sizeof(uint32_t), ", custom"},
        {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, sizeof(uint16_t), ", inner"},
        {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, sizeof(uint16_t), ", cluster"},
    };
    size_t used = 0;

    for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]) && used < size; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s %u", attributes[i].text,
                                 attribute_of(plans, plan, attributes[i].name, attributes[i].bytes));
    }
}

void ddp_cuda_plan_describe(const ddp_cuda_plans_t *plans, const ddp_cuda_plan_t *plan, ddp_choice_t *choice)
{
    const uint64_t *words = plan->key.words;
    size_t          used  = (size_t)snprintf(choice->name, sizeof(choice->name),
                                             "product %" PRIu64 " x %" PRIu64 " x %" PRIu64 " (cuBLASLt's key",
                                             words[DDP_PLAN_COLUMNS], words[DDP_PLAN_ROWS], words[DDP_PLAN_DEPTH]);

    for (int i = DDP_PLAN_LDA; i < DDP_PLAN_WORDS && used < sizeof(choice->name); i++) {
        used += (size_t)snprintf(choice->name + used, sizeof(choice->name) - used, " %" PRIu64, words[i]);
    }
    if (used < sizeof(choice->name)) {
        (void)snprintf(choice->name + used, sizeof(choice->name) - used, ")");
    }
    if (plan->is_usable) {
        describe_algorithm(plans, plan, choice->value, sizeof(choice->value));
    } else {
        (void)snprintf(choice->value, sizeof(choice->value), "no algorithm");
    }
}
