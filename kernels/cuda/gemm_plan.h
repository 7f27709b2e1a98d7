/**
 * @file Plans of cuBLASLt: descriptors and the algorithm of a kind of product, found once and kept. Private
 * to kernels/cuda.
 *
 * Everything is in the library's order, by columns: its A is the B of ddp_op_gemm(), and the other way round,
 * and the result is transposed. An algorithm may cut k into parts only if these are added up afterwards in
 * one order: never by atomics, so that the same product has the same bits.
 */
#ifndef DDP_CUDA_GEMM_PLAN_H_
#define DDP_CUDA_GEMM_PLAN_H_

#include "base/error.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Most an algorithm may use; less is asked for where it needs less. */
#define DDP_CUDA_GEMM_WORKSPACE ((size_t)32 << 20)

/** What the choice of an algorithm depends on. Words, so that two of them can be compared as memory. */
enum {
    DDP_PLAN_ROWS, /* of the result */
    DDP_PLAN_COLUMNS,
    DDP_PLAN_DEPTH,
    DDP_PLAN_LDA,
    DDP_PLAN_LDB,
    DDP_PLAN_LDC, /* of C, D and aux */
    DDP_PLAN_TRANSPOSE_A,
    DDP_PLAN_TRANSPOSE_B,
    DDP_PLAN_TYPE, /* cudaDataType of A and B; the rest is float32 */
    DDP_PLAN_COMPUTE,
    DDP_PLAN_EPILOGUE,
    DDP_PLAN_ALIGN_A, /* bytes */
    DDP_PLAN_ALIGN_B,
    DDP_PLAN_ALIGN_C,
    DDP_PLAN_ALIGN_D,
    DDP_PLAN_ALIGN_BIAS,
    DDP_PLAN_ALIGN_AUX,
    DDP_PLAN_WORDS
};
typedef struct ddp_cuda_plan_key {
    uint64_t words[DDP_PLAN_WORDS];
} ddp_cuda_plan_key_t;

typedef struct ddp_cuda_plan {
    ddp_cuda_plan_key_t    key;
    cublasLtMatmulDesc_t   product;                      /* owned, as the next three */
    cublasLtMatrixLayout_t a_layout, b_layout, c_layout; /* the last is D's too */
    cublasLtMatmulAlgo_t   algo;
    size_t                 workspace_bytes;
    bool                   is_usable; /* false: the library has no algorithm for it */
} ddp_cuda_plan_t;

typedef struct ddp_cuda_plans {
    ddp_cublaslt_table_t table;
    cublasLtHandle_t     handle; /* owned */
    ddp_cuda_plan_t     *plan;   /* owned, [n] */
    size_t               n, room;
} ddp_cuda_plans_t;

/** Open the library on the current device. @return DDP_ERR_UNSUPPORTED, with why */
ddp_status_t ddp_cuda_plans_open(ddp_cuda_plans_t *plans) DDP_NODISCARD;
void         ddp_cuda_plans_close(ddp_cuda_plans_t *plans);

/**
 * Find the plan, or make it. Only the first time takes memory of the host, and milliseconds.
 * @param [in] bias    vector of the epilogue, NULL if it has none; the choice depends on its alignment
 * @param [in] aux     the same for where the epilogue leaves what it applies the activation to
 * @param [out] plan_p valid until the next call
 */
ddp_status_t ddp_cuda_plan_get(ddp_cuda_plans_t *plans, const ddp_cuda_plan_key_t *key, const float *bias,
                               const float *aux, const ddp_cuda_plan_t **plan_p) DDP_NODISCARD;

/** The key and the algorithm in words. */
void ddp_cuda_plan_describe(const ddp_cuda_plans_t *plans, const ddp_cuda_plan_t *plan, ddp_choice_t *choice);

/** The two pointers of the epilogue for the next call of the product; NULL: none. */
ddp_status_t ddp_cuda_plan_set(const ddp_cuda_plans_t *plans, cublasLtMatmulDesc_t product, const float *bias,
                               const float *aux) DDP_NODISCARD;

/** @return DDP_OK, or DDP_ERR_DEVICE with "<call>: <text of the status>" recorded. */
ddp_status_t ddp_cuda_lt_status(const ddp_cuda_plans_t *plans, cublasStatus_t code,
                                const char *call) DDP_NODISCARD;
#define DDP_TRY_LT(plans, call) DDP_TRY(ddp_cuda_lt_status((plans), (plans)->table.call, #call))

#ifdef __cplusplus
}
#endif

#endif
