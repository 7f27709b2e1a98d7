/* cuBLASLt on the stand-in against loops in float64. */
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/ddp_test.h"

#define assert_cuda(call)   ck_assert_int_eq((call), cudaSuccess)
#define assert_cublas(call) ck_assert_int_eq((call), CUBLAS_STATUS_SUCCESS)

enum {
    M         = 13,
    N         = 9,
    K         = 70,
    LDA       = 72,
    LDB       = 71,
    LDD       = 15,
    LD_AUX    = 16,
    BATCH     = 2,
    GUARD     = 7,
    WORKSPACE = 1 << 16
};

static cudaStream_t     stream;
static cublasLtHandle_t handle;
static void            *workspace;

/* One product and everything that it touches; A and B are stored transposed or not, columns of length LDA and
 * LDB. */
typedef struct product {
    cudaDataType_t      type;     /* of A and B */
    cudaDataType_t      out_type; /* of C, D, the bias and the auxiliary matrix */
    cublasComputeType_t compute;
    cublasOperation_t   trans_a, trans_b;
    cublasLtEpilogue_t  epilogue;
    float               alpha, beta;
    uint32_t            reductions; /* schemes that are allowed */
    double a[BATCH][LDA * LDA], b[BATCH][LDA * LDA], c[BATCH][LDD * N], bias[M], aux[BATCH][LD_AUX * N];
    double d[BATCH][LDD * N + GUARD]; /* what came back */
    cublasLtMatmulAlgo_t   algo;
    cublasLtMatmulDesc_t   desc;
    cublasLtMatrixLayout_t layouts[3]; /* A, B, C and D */
} product_t;

static uint32_t seed = 1;

static double next_value(void)
{
    seed = seed * 1664525U + 1013904223U;
    return (double)(int32_t)(seed >> 16) / 32768.0 - 1.0;
}

/* The two formats of 16 bits by their definitions, to nearest, ties to even; all values here are normal ones.
 */
static double rounded(double value, cudaDataType_t type)
{
    int    exponent;
    double fraction = frexp(value, &exponent);
    int    bits     = type == CUDA_R_32F ? 24 : type == CUDA_R_16F ? 11 : 8;

    return ldexp(nearbyint(ldexp(fraction, bits)), exponent - bits);
}

static size_t bytes_of(cudaDataType_t type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

static void pack(void *to, size_t i, cudaDataType_t type, double value)
{
    float    f = (float)value;
    uint32_t bits;
    uint16_t half;
    int      exponent;
    double   fraction;

    memcpy(&bits, &f, sizeof(bits));
    if (type == CUDA_R_32F) {
        memcpy((float *)to + i, &f, sizeof(f));
    } else if (type == CUDA_R_16BF) {
        half = (uint16_t)(bits >> 16);
        memcpy((uint16_t *)to + i, &half, sizeof(half));
    } else {
        fraction = frexp(fabs(value), &exponent);
        half     = (uint16_t)(value == 0.0
                                  ? 0
                                  : ((uint32_t)(exponent + 14) << 10) + ((uint32_t)ldexp(fraction, 11) - 1024U));
        half     = (uint16_t)(half | (value < 0.0 ? 0x8000U : 0U));
        memcpy((uint16_t *)to + i, &half, sizeof(half));
    }
}

static double unpack(const void *from, size_t i, cudaDataType_t type)
{
    float    f;
    uint16_t half;
    uint32_t bits;

    if (type == CUDA_R_32F) {
        memcpy(&f, (const float *)from + i, sizeof(f));
        return f;
    }
    memcpy(&half, (const uint16_t *)from + i, sizeof(half));
    if (type == CUDA_R_16BF) {
        bits = (uint32_t)half << 16;
        memcpy(&f, &bits, sizeof(f));
        return f;
    }
    return ((half & 0x8000U) != 0 ? -1.0 : 1.0) *
           ((half & 0x7c00U) == 0 ? ldexp(half & 0x3ffU, -24)
                                  : ldexp((half & 0x3ffU) + 1024U, (half >> 10 & 31) - 25));
}

static void *to_device(const double *values, size_t count, cudaDataType_t type)
{
    void *host   = calloc(count, bytes_of(type));
    void *device = NULL;

    ck_assert_ptr_nonnull(host);
    for (size_t i = 0; i < count; i++) {
        pack(host, i, type, values[i]);
    }
    assert_cuda(cudaMalloc(&device, count * bytes_of(type)));
    assert_cuda(cudaMemcpyAsync(device, host, count * bytes_of(type), cudaMemcpyHostToDevice, stream));
    free(host);
    return device;
}

static void from_device(double *values, const void *device, size_t count, cudaDataType_t type)
{
    void *host = calloc(count, bytes_of(type));

    ck_assert_ptr_nonnull(host);
    assert_cuda(cudaMemcpyAsync(host, device, count * bytes_of(type), cudaMemcpyDeviceToHost, stream));
    assert_cuda(cudaStreamSynchronize(stream));
    for (size_t i = 0; i < count; i++) {
        values[i] = unpack(host, i, type);
    }
    free(host);
}

static void fill(double *values, size_t count, cudaDataType_t type)
{
    for (size_t i = 0; i < count; i++) {
        values[i] = rounded(next_value(), type);
    }
}

static product_t *new_product(cudaDataType_t type, cudaDataType_t out_type, cublasLtEpilogue_t epilogue)
{
    product_t *p = calloc(1, sizeof(*p));

    ck_assert_ptr_nonnull(p);
    p->type       = type;
    p->out_type   = out_type;
    p->compute    = CUBLAS_COMPUTE_32F;
    p->trans_a    = CUBLAS_OP_T;
    p->trans_b    = CUBLAS_OP_N;
    p->epilogue   = epilogue;
    p->alpha      = 0.5F;
    p->reductions = CUBLASLT_REDUCTION_SCHEME_NONE;
    fill(p->a[0], sizeof(p->a) / sizeof(double), type);
    fill(p->b[0], sizeof(p->b) / sizeof(double), type);
    fill(p->c[0], sizeof(p->c) / sizeof(double), out_type);
    fill(p->bias, M, out_type);
    fill(p->aux[0], sizeof(p->aux) / sizeof(double), out_type);
    return p;
}

static void make_layout(cublasLtMatrixLayout_t *layout, cudaDataType_t type, int rows, int cols, int ld,
                        int64_t stride)
{
    const int32_t batch = BATCH;

    assert_cublas(cublasLtMatrixLayoutCreate(layout, type, (uint64_t)rows, (uint64_t)cols, ld));
    assert_cublas(
        cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof(batch)));
    assert_cublas(cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                   &stride, sizeof(stride)));
}

static void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const void *value,
                size_t bytes)
{
    assert_cublas(cublasLtMatmulDescSetAttribute(desc, attribute, value, bytes));
}

static void describe(product_t *p, const void *bias, const void *aux)
{
    const int64_t ld     = LD_AUX;
    const int64_t stride = LD_AUX * N;
    const int     ta     = p->trans_a != CUBLAS_OP_N;
    const int     tb     = p->trans_b != CUBLAS_OP_N;

    assert_cublas(cublasLtMatmulDescCreate(&p->desc, p->compute, CUDA_R_32F));
    set(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &p->trans_a, sizeof(p->trans_a));
    set(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &p->trans_b, sizeof(p->trans_b));
    set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &p->epilogue, sizeof(p->epilogue));
    set(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias));
    set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof(aux));
    set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof(ld));
    set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, &stride, sizeof(stride));
    make_layout(&p->layouts[0], p->type, ta ? K : M, ta ? M : K, LDA, LDA * LDA);
    make_layout(&p->layouts[1], p->type, tb ? N : K, tb ? K : N, LDB, LDA * LDA);
    make_layout(&p->layouts[2], p->out_type, M, N, LDD, LDD * N + GUARD);
}

static void choose(product_t *p)
{
    const uint64_t                  bytes = WORKSPACE;
    cublasLtMatmulPreference_t      preference;
    cublasLtMatmulHeuristicResult_t result;
    int                             count = 0;

    assert_cublas(cublasLtMatmulPreferenceCreate(&preference));
    assert_cublas(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                       &bytes, sizeof(bytes)));
    assert_cublas(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                       &p->reductions, sizeof(p->reductions)));
    assert_cublas(cublasLtMatmulAlgoGetHeuristic(handle, p->desc, p->layouts[0], p->layouts[1], p->layouts[2],
                                                 p->layouts[2], preference, 1, &result, &count));
    ck_assert_int_eq(count, 1);
    p->algo = result.algo;
    assert_cublas(cublasLtMatmulPreferenceDestroy(preference));
}

/* Runs it; d and aux are what came back. */
static void run(product_t *p)
{
    double nothing[BATCH * (LDD * N + GUARD)];
    void  *a    = to_device(p->a[0], sizeof(p->a) / sizeof(double), p->type);
    void  *b    = to_device(p->b[0], sizeof(p->b) / sizeof(double), p->type);
    void  *bias = to_device(p->bias, M, p->out_type);
    void  *aux  = to_device(p->aux[0], BATCH * LD_AUX * N, p->out_type);
    void  *d;

    for (size_t i = 0; i < BATCH * (LDD * N + GUARD); i++) {
        nothing[i] = -77.0;
    }
    for (int q = 0; q < BATCH && p->beta != 0.0F; q++) { /* C is D: in place */
        memcpy(nothing + q * (LDD * N + GUARD), p->c[q], sizeof(p->c[q]));
    }
    d = to_device(nothing, BATCH * (LDD * N + GUARD), p->out_type);
    describe(p, bias, aux);
    choose(p);
    assert_cublas(cublasLtMatmul(handle, p->desc, &p->alpha, a, p->layouts[0], b, p->layouts[1], &p->beta, d,
                                 p->layouts[2], d, p->layouts[2], &p->algo, workspace, WORKSPACE, stream));
    from_device(p->d[0], d, BATCH * (LDD * N + GUARD), p->out_type);
    from_device(p->aux[0], aux, BATCH * LD_AUX * N, p->out_type);
    from_device(p->bias, bias, M, p->out_type);
    assert_cuda(cudaFree(a));
    assert_cuda(cudaFree(b));
    assert_cuda(cudaFree(d));
    assert_cuda(cudaFree(bias));
    assert_cuda(cudaFree(aux));
}

static void drop(product_t *p)
{
    for (int i = 0; i < 3; i++) {
        assert_cublas(cublasLtMatrixLayoutDestroy(p->layouts[i]));
    }
    assert_cublas(cublasLtMatmulDescDestroy(p->desc));
    free(p);
}

/* alpha * op(A) op(B) + beta * C at (row, col) of a matrix of the batch, in float64. */
static double expected(const product_t *p, int batch, int row, int col)
{
    double sum = 0.0;

    for (int k = 0; k < K; k++) {
        double a = p->a[batch][p->trans_a != CUBLAS_OP_N ? row * LDA + k : k * LDA + row];
        double b = p->b[batch][p->trans_b != CUBLAS_OP_N ? k * LDB + col : col * LDB + k];
        sum += a * b;
    }
    sum *= p->alpha;
    return p->beta != 0.0F ? sum + p->beta * p->c[batch][col * LDD + row] : sum;
}

/* A sum of K products below 1 in float, then one rounding to the type of D. */
static double tolerance(cudaDataType_t type, double value)
{
    double step = type == CUDA_R_32F ? 0x1p-24 : type == CUDA_R_16F ? 0x1p-11 : 0x1p-8;

    return K * 0x1p-24 * 4 + fabs(value) * step + step * 1e-3;
}

static void check(const product_t *p, double (*finish)(const product_t *before, int batch, int row, int col),
                  const product_t *before)
{
    for (int q = 0; q < BATCH; q++) {
        for (int col = 0; col < N; col++) {
            for (int row = 0; row < M; row++) {
                double want = finish(before, q, row, col);
                ck_assert_double_eq_tol(p->d[q][col * LDD + row], want, tolerance(p->out_type, want));
            }
            if (p->beta == 0.0F) { /* between the columns nothing is written */
                ck_assert_double_eq(p->d[q][col * LDD + M], -77.0);
            }
        }
        for (int i = 0; i < GUARD; i++) {
            ck_assert_double_eq(p->d[q][LDD * N + i], -77.0);
        }
    }
}

static product_t *copy(const product_t *p)
{
    product_t *other = malloc(sizeof(*other));

    ck_assert_ptr_nonnull(other);
    memcpy(other, p, sizeof(*other));
    return other;
}

START_TEST(products_equal_float64_loops_for_all_orders_types_and_scales)
{
    static const cudaDataType_t types[4][2] = {{CUDA_R_32F, CUDA_R_32F},
                                               {CUDA_R_16BF, CUDA_R_32F},
                                               {CUDA_R_16BF, CUDA_R_16BF},
                                               {CUDA_R_16F, CUDA_R_16F}};

    for (int i = 0; i < 16; i++) {
        product_t *p = new_product(types[i / 4][0], types[i / 4][1], CUBLASLT_EPILOGUE_DEFAULT);
        p->trans_a   = (i & 1) != 0 ? CUBLAS_OP_T : CUBLAS_OP_N;
        p->trans_b   = (i & 2) != 0 ? CUBLAS_OP_T : CUBLAS_OP_N;
        p->beta      = (i & 1) != 0 ? -0.25F : 0.0F;
        run(p);
        check(p, expected, p);
        drop(p);
    }
}
END_TEST

static double with_bias(const product_t *p, int batch, int row, int col)
{
    return expected(p, batch, row, col) + p->bias[row];
}

/* The approximation by tanh, Hendrycks and Gimpel, arXiv:1606.08415. */
static double gelu(double x)
{
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

static double with_gelu(const product_t *p, int batch, int row, int col)
{
    return gelu(with_bias(p, batch, row, col));
}

static double with_slope(const product_t *p, int batch, int row, int col)
{
    const double x = p->aux[batch][col * LD_AUX + row];
    const double h = 1e-5;

    return expected(p, batch, row, col) * (gelu(x + h) - gelu(x - h)) / (2 * h);
}

START_TEST(bias_and_gelu_are_added_and_the_auxiliary_matrix_is_what_gelu_saw)
{
    product_t *p      = new_product(CUDA_R_32F, CUDA_R_32F, CUBLASLT_EPILOGUE_BIAS);
    product_t *before = copy(p);

    run(p);
    check(p, with_bias, before);
    drop(p);
    free(before);

    p      = new_product(CUDA_R_16BF, CUDA_R_16BF, CUBLASLT_EPILOGUE_GELU_BIAS);
    before = copy(p);
    run(p);
    check(p, with_gelu, before);
    drop(p);
    free(before);

    p      = new_product(CUDA_R_32F, CUDA_R_32F, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
    before = copy(p);
    run(p);
    check(p, with_gelu, before);
    for (int row = 0; row < M; row++) {
        ck_assert_double_eq_tol(p->aux[1][3 * LD_AUX + row], with_bias(before, 1, row, 3), 1e-4);
    }
    drop(p);
    free(before);
}
END_TEST

START_TEST(the_slope_of_gelu_multiplies_and_the_bias_gradient_sums_columns)
{
    product_t *p      = new_product(CUDA_R_32F, CUDA_R_32F, CUBLASLT_EPILOGUE_DGELU);
    product_t *before = copy(p);

    run(p);
    check(p, with_slope, before);
    drop(p);
    free(before);

    p      = new_product(CUDA_R_32F, CUDA_R_32F, CUBLASLT_EPILOGUE_DGELU_BGRAD);
    before = copy(p);
    run(p);
    check(p, with_slope, before);
    for (int row = 0; row < M; row++) { /* of the last matrix of the batch: they share one vector here */
        double sum = 0.0;
        for (int col = 0; col < N; col++) {
            sum += with_slope(before, BATCH - 1, row, col);
        }
        ck_assert_double_eq_tol(p->bias[row], sum, 1e-4);
    }
    drop(p);
    free(before);
}
END_TEST

START_TEST(tf32_rounds_what_goes_in_to_ten_bits)
{
    const cublasComputeType_t computes[2] = {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32};
    const double              want[2]     = {1.0 + 0x1p-12, 1.0};

    for (int i = 0; i < 2; i++) {
        product_t *p = new_product(CUDA_R_32F, CUDA_R_32F, CUBLASLT_EPILOGUE_DEFAULT);
        memset(p->a, 0, sizeof(p->a));
        p->a[0][0] = 1.0 + 0x1p-12; /* row 0, k 0; more than ten bits */
        p->b[0][0] = 1.0;
        p->alpha   = 1.0F;
        p->compute = computes[i];
        run(p);
        ck_assert_double_eq(p->d[0][0], want[i]);
        drop(p);
    }
}
END_TEST

START_TEST(a_heuristic_splits_k_only_where_reductions_are_allowed)
{
    product_t *p     = new_product(CUDA_R_32F, CUDA_R_32F, CUBLASLT_EPILOGUE_DEFAULT);
    uint32_t   parts = 0;
    size_t     written;

    run(p);
    assert_cublas(cublasLtMatmulAlgoConfigGetAttribute(&p->algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts,
                                                       sizeof(parts), &written));
    ck_assert_uint_eq(parts, 1);
    drop(p);
    p             = new_product(CUDA_R_32F, CUDA_R_32F, CUBLASLT_EPILOGUE_DEFAULT);
    p->reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    run(p);
    check(p, expected, p);
    assert_cublas(cublasLtMatmulAlgoConfigGetAttribute(&p->algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts,
                                                       sizeof(parts), &written));
    ck_assert_uint_gt(parts, 1);
    drop(p);
}
END_TEST

START_TEST(wrong_sizes_alignment_workspace_and_host_memory_are_refused)
{
    product_t *p = new_product(CUDA_R_32F, CUDA_R_32F, CUBLASLT_EPILOGUE_DEFAULT);
    char      *d;
    uint64_t   rows = M + 1;

    p->reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    assert_cuda(cudaMalloc((void **)&d, 1 << 20));
    describe(p, NULL, NULL);
    choose(p);
#define matmul(a, b, out, room)                                                                              \
    cublasLtMatmul(handle, p->desc, &p->alpha, a, p->layouts[0], b, p->layouts[1], &p->beta, out,            \
                   p->layouts[2], out, p->layouts[2], &p->algo, workspace, room, stream)
    ck_assert_int_eq(matmul(d, d, d, WORKSPACE), CUBLAS_STATUS_SUCCESS);
    ck_assert_int_eq(matmul(d + 4, d, d, WORKSPACE), CUBLAS_STATUS_INVALID_VALUE);
    ck_assert_int_eq(matmul(d, d, d, 16), CUBLAS_STATUS_INVALID_VALUE);
    ck_assert_int_eq(matmul((char *)p, d, d, WORKSPACE), CUBLAS_STATUS_INVALID_VALUE);
    assert_cublas(
        cublasLtMatrixLayoutSetAttribute(p->layouts[2], CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, sizeof(rows)));
    ck_assert_int_eq(matmul(d, d, d, WORKSPACE), CUBLAS_STATUS_INVALID_VALUE);
#undef matmul
    assert_cuda(cudaStreamSynchronize(stream));
    assert_cuda(cudaFree(d));
    drop(p);
}
END_TEST

static void set_up(void)
{
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    assert_cublas(cublasLtCreate(&handle));
    assert_cuda(cudaMalloc(&workspace, WORKSPACE));
}

static void tear_down(void)
{
    assert_cuda(cudaFree(workspace));
    assert_cublas(cublasLtDestroy(handle));
    assert_cuda(cudaStreamDestroy(stream));
}

int main(void)
{
    Suite *suite = suite_create("cublaslt");
    TCase *tcase = tcase_create("core");

    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, products_equal_float64_loops_for_all_orders_types_and_scales);
    tcase_add_test(tcase, bias_and_gelu_are_added_and_the_auxiliary_matrix_is_what_gelu_saw);
    tcase_add_test(tcase, the_slope_of_gelu_multiplies_and_the_bias_gradient_sums_columns);
    tcase_add_test(tcase, tf32_rounds_what_goes_in_to_ten_bits);
    tcase_add_test(tcase, a_heuristic_splits_k_only_where_reductions_are_allowed);
    tcase_add_test(tcase, wrong_sizes_alignment_workspace_and_host_memory_are_refused);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
