/* cuBLASLt on the stand-in: descriptors, heuristics and the checks that the library makes. */
#include "tests/cusim/cublaslt_types.h"

#include "tests/cusim/runtime.h"
#include <new>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_ALIGN = 256, WORKSPACE_BYTES = 4096, SPLIT_FROM_K = 64, AUX_LD_STEP = 8 };

static_assert(sizeof(cusim_layout_t) <= sizeof(cublasLtMatrixLayoutOpaque_t), "fits");
static_assert(sizeof(cusim_matmul_t) <= sizeof(cublasLtMatmulDescOpaque_t), "fits");
static_assert(sizeof(cusim_preference_t) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "fits");
static_assert(sizeof(cusim_algo_t) <= sizeof(cublasLtMatmulAlgo_t), "fits");

struct cublasLtContext {
    int device;
};

/* A place in a struct that an attribute is copied to and from. */
typedef struct field {
    void  *address;
    size_t bytes;
} field_t;

static cublasStatus_t refuse(const char *text)
{
    fprintf(stderr, "cusim-cublaslt: %s\n", text);
    return CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t set(field_t field, const void *value, size_t bytes)
{
    if (field.address == NULL) {
        return refuse("an attribute that the stand-in has not");
    }
    if (value == NULL || bytes != field.bytes) {
        return refuse("an attribute of another size");
    }
    memcpy(field.address, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t get(field_t field, void *value, size_t bytes, size_t *written)
{
    if (field.address == NULL || value == NULL || bytes < field.bytes) {
        return refuse("an attribute that the stand-in has not, or of another size");
    }
    memcpy(value, field.address, field.bytes);
    if (written != NULL) {
        *written = field.bytes;
    }
    return CUBLAS_STATUS_SUCCESS;
}

#define FIELD(member)                                                                                        \
    field_t                                                                                                  \
    {                                                                                                        \
        &(member), sizeof(member)                                                                            \
    }

static field_t layout_field(cusim_layout_t *layout, cublasLtMatrixLayoutAttribute_t attribute)
{
    switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
        return FIELD(layout->type);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
        return FIELD(layout->order);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
        return FIELD(layout->rows);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
        return FIELD(layout->cols);
    case CUBLASLT_MATRIX_LAYOUT_LD:
        return FIELD(layout->ld);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return FIELD(layout->batch);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return FIELD(layout->stride);
    default:
        return {NULL, 0};
    }
}

static field_t matmul_field(cusim_matmul_t *matmul, cublasLtMatmulDescAttributes_t attribute)
{
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
        return FIELD(matmul->compute);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
        return FIELD(matmul->scale_type);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
        return FIELD(matmul->pointer_mode);
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return FIELD(matmul->trans_a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return FIELD(matmul->trans_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return FIELD(matmul->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return FIELD(matmul->bias);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
        return FIELD(matmul->bias_stride);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return FIELD(matmul->bias_type);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return FIELD(matmul->aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return FIELD(matmul->aux_ld);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
        return FIELD(matmul->aux_stride);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
        return FIELD(matmul->aux_type);
    default:
        return {NULL, 0};
    }
}

static field_t preference_field(cusim_preference_t                  *preference,
                                cublasLtMatmulPreferenceAttributes_t attribute)
{
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return FIELD(preference->workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return FIELD(preference->reductions);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return FIELD(preference->align[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return FIELD(preference->align[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return FIELD(preference->align[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return FIELD(preference->align[3]);
    default:
        return {NULL, 0};
    }
}

template <class T, class O> static T *inside(O *opaque)
{
    return reinterpret_cast<T *>(opaque);
}

static bool is_epilogue_known(uint32_t epilogue)
{
    switch (epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_DGELU_BGRAD:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
        return true;
    default:
        return false;
    }
}

/* Types that the documentation of cublasLtMatmul() lists, of those that the stand-in has. */
static bool is_type_known(const cusim_product_t &p)
{
    bool is_float = p.a.type == CUDA_R_32F;

    if (p.matmul.scale_type != CUDA_R_32F || p.a.type != p.b.type || p.c.type != p.d.type ||
        cusim_type_bytes(p.a.type) == 0) {
        return false;
    }
    if (p.matmul.compute != CUBLAS_COMPUTE_32F && p.matmul.compute != CUBLAS_COMPUTE_32F_PEDANTIC &&
        (p.matmul.compute != CUBLAS_COMPUTE_32F_FAST_TF32 || !is_float)) {
        return false;
    }
    return p.d.type == p.a.type || p.d.type == CUDA_R_32F;
}

static bool is_line_long_enough(const cusim_layout_t &layout)
{
    return (uint64_t)layout.ld >= (layout.order == CUBLASLT_ORDER_ROW ? layout.cols : layout.rows);
}

/* What is wrong with the sizes; NULL: nothing. */
static const char *check_sizes(const cusim_product_t &p)
{
    uint64_t m = p.matmul.trans_a != CUBLAS_OP_N ? p.a.cols : p.a.rows;
    uint64_t k = p.matmul.trans_a != CUBLAS_OP_N ? p.a.rows : p.a.cols;
    uint64_t l = p.matmul.trans_b != CUBLAS_OP_N ? p.b.cols : p.b.rows;
    uint64_t n = p.matmul.trans_b != CUBLAS_OP_N ? p.b.rows : p.b.cols;

    if (k != l || p.d.rows != m || p.d.cols != n || p.c.rows != m || p.c.cols != n || m == 0 || n == 0 ||
        k == 0) {
        return "sizes of the matrices do not fit";
    }
    if (!is_line_long_enough(p.a) || !is_line_long_enough(p.b) || !is_line_long_enough(p.c) ||
        !is_line_long_enough(p.d)) {
        return "a leading dimension is too small";
    }
    if (p.a.batch != p.d.batch || p.b.batch != p.d.batch || p.c.batch != p.d.batch) {
        return "batches differ";
    }
    if (!is_epilogue_known(p.matmul.epilogue)) {
        return "an epilogue that the stand-in has not";
    }
    if (p.matmul.epilogue != CUBLASLT_EPILOGUE_DEFAULT && p.d.order != CUBLASLT_ORDER_COL) {
        return "an epilogue wants D by columns";
    }
    if ((p.matmul.epilogue & 128) != 0 &&
        (p.matmul.aux_ld % AUX_LD_STEP != 0 || (uint64_t)p.matmul.aux_ld < m)) {
        return "the auxiliary matrix's leading dimension: at least the rows, and a multiple of 8";
    }
    return NULL;
}

static cusim_product_t describe(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d)
{
    cusim_product_t p;

    memset(static_cast<void *>(&p), 0, sizeof(p));
    p.matmul           = *inside<cusim_matmul_t>(desc);
    p.a                = *inside<cusim_layout_t>(a);
    p.b                = *inside<cusim_layout_t>(b);
    p.c                = *inside<cusim_layout_t>(c);
    p.d                = *inside<cusim_layout_t>(d);
    p.matmul.bias_type = p.matmul.bias_type < 0 ? p.d.type : p.matmul.bias_type;
    p.matmul.aux_type  = p.matmul.aux_type < 0 ? p.d.type : p.matmul.aux_type;
    return p;
}

/* Two algorithms: the first, "faster" one splits K if that is allowed and worth it. */
/* CUSIM_CUBLASLT_ID: what the heuristics of this process's library call their algorithms beyond their usual
 * number, as another GPU's or another version's would. The same bits all the same. */
static uint32_t id_shift(void)
{
    const char *text = getenv("CUSIM_CUBLASLT_ID");

    return text != NULL ? (uint32_t)atoi(text) : 0;
}

static int choose(const cusim_product_t &p, const cusim_preference_t &preference, cusim_algo_t algos[2])
{
    uint64_t k     = p.matmul.trans_a != CUBLAS_OP_N ? p.a.rows : p.a.cols;
    int      count = 0;

    for (uint32_t id = 1; id <= 2; id++) {
        cusim_algo_t algo = {id + id_shift(), id == 1 ? 2U : 1U, {0, 0, 0, 0}, 0};
        memcpy(algo.align, preference.align, sizeof(algo.align));
        algo.workspace = id == 1 ? (uint64_t)WORKSPACE_BYTES : 0;
        if (id == 1 && (k < SPLIT_FROM_K || preference.reductions == CUBLASLT_REDUCTION_SCHEME_NONE ||
                        preference.workspace < algo.workspace)) {
            continue;
        }
        algos[count++] = algo;
    }
    return count;
}

static bool is_aligned(const void *address, uint32_t bytes)
{
    return bytes == 0 || reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

/* What is wrong with the pointers; NULL: nothing. */
static const char *check_pointers(const cusim_product_t &p, size_t workspace)
{
    const void *data[4] = {p.a_data, p.b_data, p.beta_value != 0.0F ? p.c_data : p.d_data, p.d_data};

    for (int i = 0; i < 4; i++) {
        if (cusim_memory_kind(data[i]) != CUSIM_DEVICE_MEMORY) {
            return "a matrix is not in device memory";
        }
        if (!is_aligned(data[i], p.algo.align[i])) {
            return "a matrix is less aligned than the preference said when the algorithm was chosen";
        }
    }
    if ((p.matmul.epilogue & (128U | 64U)) != 0 && cusim_memory_kind(p.matmul.aux) != CUSIM_DEVICE_MEMORY) {
        return "the auxiliary matrix is not in device memory";
    }
    if ((p.matmul.epilogue &
         (CUBLASLT_EPILOGUE_BIAS | 16U | CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB)) != 0 &&
        cusim_memory_kind(p.matmul.bias) != CUSIM_DEVICE_MEMORY) {
        return "the bias is not in device memory";
    }
    if (p.algo.workspace > workspace ||
        (p.algo.workspace > 0 &&
         !cusim_is_reachable(p.workspace, p.algo.workspace, cusim_current_device()))) {
        return "the workspace is smaller than the algorithm needs";
    }
    return NULL;
}

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle_p)
{
    cusim_start();
    *handle_p = new cublasLtContext{cusim_current_device()};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

size_t cublasLtGetCudartVersion(void)
{
    return CUDART_VERSION;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
        return "an error of cuBLASLt";
    }
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return cublasLtGetStatusName(status);
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t bytes,
                                                 cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld)
{
    memset(layout, 0, bytes);
    *inside<cusim_layout_t>(layout) = {(int32_t)type, CUBLASLT_ORDER_COL, rows, cols, ld, 1, 0};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout_p, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld)
{
    *layout_p = new cublasLtMatrixLayoutOpaque_t;
    return cublasLtMatrixLayoutInit_internal(*layout_p, sizeof(**layout_p), type, rows, cols, ld);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t          layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                size_t bytes)
{
    return set(layout_field(inside<cusim_layout_t>(layout), attribute), value, bytes);
}

cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t          layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, void *value,
                                                size_t bytes, size_t *written)
{
    return get(layout_field(inside<cusim_layout_t>(layout), attribute), value, bytes, written);
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, size_t bytes,
                                               cublasComputeType_t compute, cudaDataType_t scale_type)
{
    cusim_matmul_t *matmul = inside<cusim_matmul_t>(desc);

    memset(desc, 0, bytes);
    matmul->compute    = compute;
    matmul->scale_type = scale_type;
    matmul->epilogue   = CUBLASLT_EPILOGUE_DEFAULT;
    matmul->bias_type  = -1;
    matmul->aux_type   = -1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc_p, cublasComputeType_t compute,
                                        cudaDataType_t scale_type)
{
    *desc_p = new cublasLtMatmulDescOpaque_t;
    return cublasLtMatmulDescInit_internal(*desc_p, sizeof(**desc_p), compute, scale_type);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    delete desc;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t           desc,
                                              cublasLtMatmulDescAttributes_t attribute, const void *value,
                                              size_t bytes)
{
    return set(matmul_field(inside<cusim_matmul_t>(desc), attribute), value, bytes);
}

cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t           desc,
                                              cublasLtMatmulDescAttributes_t attribute, void *value,
                                              size_t bytes, size_t *written)
{
    return get(matmul_field(inside<cusim_matmul_t>(desc), attribute), value, bytes, written);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t bytes)
{
    memset(preference, 0, bytes);
    *inside<cusim_preference_t>(preference) = {
        0, CUBLASLT_REDUCTION_SCHEME_MASK, {DEFAULT_ALIGN, DEFAULT_ALIGN, DEFAULT_ALIGN, DEFAULT_ALIGN}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference_p)
{
    *preference_p = new cublasLtMatmulPreferenceOpaque_t;
    return cublasLtMatmulPreferenceInit_internal(*preference_p, sizeof(**preference_p));
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t           preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes)
{
    return set(preference_field(inside<cusim_preference_t>(preference), attribute), value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int *count_p)
{
    cusim_product_t p = describe(desc, a, b, c, d);
    cusim_algo_t    algos[2];
    int             count;
    const char     *fault = check_sizes(p);

    *count_p = 0;
    if (handle == NULL || fault != NULL) {
        return refuse(fault != NULL ? fault : "no handle");
    }
    if (!is_type_known(p)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    count = choose(p, *inside<cusim_preference_t>(preference), algos);
    for (int i = 0; i < count && i < requested; i++) {
        memset(&results[i], 0, sizeof(results[i]));
        memcpy(&results[i].algo, &algos[i], sizeof(algos[i]));
        results[i].workspaceSize = algos[i].workspace;
        results[i].state         = CUBLAS_STATUS_SUCCESS;
        results[i].wavesCount    = 1.0F;
        *count_p                 = i + 1;
    }
    return *count_p > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t          *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void *value, size_t bytes, size_t *written)
{
    cusim_algo_t *inner = inside<cusim_algo_t>(const_cast<cublasLtMatmulAlgo_t *>(algo));
    uint32_t      scheme =
        inner->split_k > 1 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;

    switch (attribute) {
    case CUBLASLT_ALGO_CONFIG_ID:
        return get(FIELD(inner->id), value, bytes, written);
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
        return get(FIELD(inner->split_k), value, bytes, written);
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
        return get(FIELD(scheme), value, bytes, written);
    default:
        memset(value, 0, bytes); /* tiles and the like */
        if (written != NULL) {
            *written = bytes;
        }
        return CUBLAS_STATUS_SUCCESS;
    }
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a_data, cublasLtMatrixLayout_t a, const void *b_data,
                              cublasLtMatrixLayout_t b, const void *beta, const void *c_data,
                              cublasLtMatrixLayout_t c, void *d_data, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream)
{
    cusim_product_t    p     = describe(desc, a, b, c, d);
    cusim_preference_t any   = {workspace_bytes, CUBLASLT_REDUCTION_SCHEME_MASK, {0, 0, 0, 0}};
    const char        *fault = check_sizes(p);

    if (handle == NULL || handle->device != cusim_current_device()) {
        return refuse("no handle, or one of another device");
    }
    if (fault != NULL) {
        return refuse(fault);
    }
    if (!is_type_known(p)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    p.a_data    = a_data;
    p.b_data    = b_data;
    p.c_data    = c_data;
    p.d_data    = d_data;
    p.workspace = workspace;
    p.alpha     = alpha;
    p.beta      = beta;
    if (p.matmul.pointer_mode == CUBLASLT_POINTER_MODE_HOST) {
        p.alpha_value = *static_cast<const float *>(alpha);
        p.beta_value  = *static_cast<const float *>(beta);
    }
    if (algo != NULL) {
        memcpy(&p.algo, algo, sizeof(p.algo));
    } else {
        cusim_algo_t algos[2];
        choose(p, any, algos);
        p.algo = algos[0];
    }
    fault = p.algo.id == 0 ? "an algorithm that no heuristic made" : check_pointers(p, workspace_bytes);
    if (fault != NULL) {
        return refuse(fault);
    }
    cusim_enqueue(stream, "matmul", [p] {
        cusim_multiply(&p);
        return 1;
    });
    return CUBLAS_STATUS_SUCCESS;
}
}
