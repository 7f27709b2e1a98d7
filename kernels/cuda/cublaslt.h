/** @file libcublasLt, opened while the program runs: one table of its functions. Private to kernels/cuda. */
#ifndef DDP_CUDA_CUBLASLT_H_
#define DDP_CUDA_CUBLASLT_H_

#include <cublasLt.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(field, function) */
#define DDP_CUBLASLT_FUNCTIONS(X)                                                                            \
    X(version, cublasLtGetVersion)                                                                           \
    X(status_text, cublasLtGetStatusString)                                                                  \
    X(create, cublasLtCreate)                                                                                \
    X(destroy, cublasLtDestroy)                                                                              \
    X(layout_create, cublasLtMatrixLayoutCreate)                                                             \
    X(layout_destroy, cublasLtMatrixLayoutDestroy)                                                           \
    X(product_create, cublasLtMatmulDescCreate)                                                              \
    X(product_set, cublasLtMatmulDescSetAttribute)                                                           \
    X(product_destroy, cublasLtMatmulDescDestroy)                                                            \
    X(preference_create, cublasLtMatmulPreferenceCreate)                                                     \
    X(preference_set, cublasLtMatmulPreferenceSetAttribute)                                                  \
    X(preference_destroy, cublasLtMatmulPreferenceDestroy)                                                   \
    X(heuristic, cublasLtMatmulAlgoGetHeuristic)                                                             \
    X(algo_get, cublasLtMatmulAlgoConfigGetAttribute)                                                        \
    X(matmul, cublasLtMatmul)

typedef struct ddp_cublaslt_table {
    size_t (*version)(void);
    const char *(*status_text)(cublasStatus_t status);
    cublasStatus_t (*create)(cublasLtHandle_t *handle_p);
    cublasStatus_t (*destroy)(cublasLtHandle_t handle);
    cublasStatus_t (*layout_create)(cublasLtMatrixLayout_t *layout_p, cudaDataType type, uint64_t rows,
                                    uint64_t columns, int64_t ld);
    cublasStatus_t (*layout_destroy)(cublasLtMatrixLayout_t layout);
    cublasStatus_t (*product_create)(cublasLtMatmulDesc_t *product_p, cublasComputeType_t compute,
                                     cudaDataType_t scale);
    cublasStatus_t (*product_set)(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t name,
                                  const void *value, size_t bytes);
    cublasStatus_t (*product_destroy)(cublasLtMatmulDesc_t product);
    cublasStatus_t (*preference_create)(cublasLtMatmulPreference_t *preference_p);
    cublasStatus_t (*preference_set)(cublasLtMatmulPreference_t           preference,
                                     cublasLtMatmulPreferenceAttributes_t name, const void *value,
                                     size_t bytes);
    cublasStatus_t (*preference_destroy)(cublasLtMatmulPreference_t preference);
    cublasStatus_t (*heuristic)(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int room,
                                cublasLtMatmulHeuristicResult_t results[], int *count_p);
    cublasStatus_t (*algo_get)(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t name,
                               void *value, size_t bytes, size_t *written_p);
    cublasStatus_t (*matmul)(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void *alpha,
                             const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                             cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                             cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                             const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                             cudaStream_t stream);
} ddp_cublaslt_table_t;

/**
 * Open libcublasLt.so.13, or .12, and fill `table`: from the folder DDP_CUBLASLT_PATH if that is set, else
 * where the loader finds it. It stays open for the rest of the process. (The tests' stand-in has another
 * definition of this function, which fills in its own.)
 * @return DDP_ERR_UNSUPPORTED, with why: not found, or a function is missing; `table` is as it was
 */
ddp_status_t ddp_cublaslt_table_open(ddp_cublaslt_table_t *table) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
