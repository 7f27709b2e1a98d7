/* The arithmetic of cuBLASLt: plain loops in float. Formulas: cuBLAS documentation, cublasLtEpilogue_t. */
#include "tests/cusim/cublaslt_types.h"

#include "tests/cusim/sanitizer.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <vector>

size_t cusim_type_bytes(int32_t type)
{
    switch (type) {
    case CUDA_R_32F:
        return 4;
    case CUDA_R_16BF:
    case CUDA_R_16F:
        return 2;
    default:
        return 0;
    }
}

static float load(const void *data, size_t i, int32_t type)
{
    switch (type) {
    case CUDA_R_16BF:
        return __bfloat162float(static_cast<const __nv_bfloat16 *>(data)[i]);
    case CUDA_R_16F:
        return __half2float(static_cast<const __half *>(data)[i]);
    default:
        return static_cast<const float *>(data)[i];
    }
}

static void store(void *data, size_t i, int32_t type, float value)
{
    switch (type) {
    case CUDA_R_16BF:
        static_cast<__nv_bfloat16 *>(data)[i] = __float2bfloat16(value);
        break;
    case CUDA_R_16F:
        static_cast<__half *>(data)[i] = __float2half(value);
        break;
    default:
        static_cast<float *>(data)[i] = value;
        break;
    }
}

/* TF32 keeps 10 bits of the significand: to the nearest, ties away from zero, as cvt.rna.tf32 does. */
static float round_to_tf32(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    if ((bits & 0x7f800000U) != 0x7f800000U) {
        bits = (bits + 0x1000U) & ~0x1fffU;
    }
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static size_t offset_of(const cusim_layout_t &layout, size_t row, size_t col)
{
    return layout.order == CUBLASLT_ORDER_ROW ? row * (size_t)layout.ld + col : col * (size_t)layout.ld + row;
}

/* Tells the sanitizer of the columns (or rows) of a matrix, without what lies between them. */
static void touch(const cusim_layout_t &layout, const void *data, int batch, bool is_write)
{
    size_t bytes  = cusim_type_bytes(layout.type);
    bool   by_row = layout.order == CUBLASLT_ORDER_ROW;
    size_t lines  = by_row ? layout.rows : layout.cols;
    size_t width  = by_row ? layout.cols : layout.rows;

    for (size_t i = 0; i < lines; i++) {
        cusim_touch(static_cast<const char *>(data) +
                        ((size_t)(layout.stride * batch) + i * (size_t)layout.ld) * bytes,
                    width * bytes, is_write);
    }
}

/* op(A) as [k][m], op(B) as [n][k], dense and in float. */
static std::vector<float> pack(const cusim_product_t &p, const cusim_layout_t &layout, const void *data,
                               int batch, bool is_transposed, bool by_row)
{
    size_t             rows = is_transposed ? layout.cols : layout.rows; /* of op(.) */
    size_t             cols = is_transposed ? layout.rows : layout.cols;
    std::vector<float> dense(rows * cols);

    touch(layout, data, batch, false);
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < cols; c++) {
            size_t from  = is_transposed ? offset_of(layout, c, r) : offset_of(layout, r, c);
            float  value = load(data, (size_t)(layout.stride * batch) + from, layout.type);
            value        = p.matmul.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? round_to_tf32(value) : value;
            dense[by_row ? r * cols + c : c * rows + r] = value;
        }
    }
    return dense;
}

/* sums[m] = column `b` of the product, over k in [begin, end) */
static void column(float *sums, const float *a, const float *b, size_t m, size_t begin, size_t end)
{
    memset(sums, 0, m * sizeof(float));
    for (size_t k = begin; k < end; k++) {
        const float *line = a + k * m;
        float        by   = b[k];
        for (size_t i = 0; i < m; i++) {
            sums[i] += line[i] * by;
        }
    }
}

static const float gelu_scale = 0.7978845608028654F; /* sqrt(2 / pi) */
static const float gelu_cubic = 0.044715F;

static float gelu(float x)
{
    return 0.5F * x * (1.0F + tanhf(gelu_scale * (x + gelu_cubic * x * x * x)));
}

static float gelu_slope(float x)
{
    float t = tanhf(gelu_scale * (x + gelu_cubic * x * x * x));

    return 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * gelu_scale * (1.0F + 3.0F * gelu_cubic * x * x);
}

/* One element through the epilogue; `bias` and `aux` belong to it. */
static float finish(const cusim_product_t &p, float value, size_t row, size_t col, int batch)
{
    const cusim_matmul_t &m    = p.matmul;
    size_t                aux  = (size_t)(m.aux_stride * batch + m.aux_ld * (int64_t)col) + row;
    size_t                bias = (size_t)(m.bias_stride * batch) + row;

    if ((m.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) {
        value += load(m.bias, bias, m.bias_type);
    }
    if ((m.epilogue & 64) != 0) { /* DGELU: aux is what the forward pass stored */
        return value * gelu_slope(load(m.aux, aux, m.aux_type));
    }
    if ((m.epilogue & 128) != 0) { /* AUX: before the activation */
        store(const_cast<void *>(m.aux), aux, m.aux_type, value);
    }
    if ((m.epilogue & CUBLASLT_EPILOGUE_GELU) != 0) {
        return gelu(value);
    }
    return (m.epilogue & CUBLASLT_EPILOGUE_RELU) != 0 && !(value > 0.0F) && value == value ? 0.0F : value;
}

/* DGELU_BGRAD, BGRADA and BGRADB: sums over the columns of D, or over K of A or B. */
static void store_bias_gradient(const cusim_product_t &p, int batch, const std::vector<float> &sums)
{
    size_t bytes = cusim_type_bytes(p.matmul.bias_type);
    size_t first = (size_t)(p.matmul.bias_stride * batch);
    void  *bias  = const_cast<void *>(p.matmul.bias);

    cusim_touch(static_cast<char *>(bias) + first * bytes, sums.size() * bytes, true);
    for (size_t i = 0; i < sums.size(); i++) {
        store(bias, first + i, p.matmul.bias_type, sums[i]);
    }
}

static void touch_epilogue(const cusim_product_t &p, int batch)
{
    const cusim_matmul_t &m = p.matmul;
    size_t                bytes;

    if ((m.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) {
        bytes = cusim_type_bytes(m.bias_type);
        cusim_touch(static_cast<const char *>(m.bias) + (size_t)(m.bias_stride * batch) * bytes,
                    p.d.rows * bytes, false);
    }
    for (size_t col = 0; (m.epilogue & 128) != 0 && col < p.d.cols; col++) {
        bytes = cusim_type_bytes(m.aux_type);
        cusim_touch(static_cast<const char *>(m.aux) +
                        (size_t)(m.aux_stride * batch + m.aux_ld * (int64_t)col) * bytes,
                    p.d.rows * bytes, (m.epilogue & 64) == 0);
    }
}

static void multiply_one(const cusim_product_t &p, int batch)
{
    size_t             m     = p.d.rows;
    size_t             n     = p.d.cols;
    size_t             k     = p.matmul.trans_a != CUBLAS_OP_N ? p.a.rows : p.a.cols;
    size_t             parts = p.algo.split_k > 1 ? p.algo.split_k : 1;
    std::vector<float> a     = pack(p, p.a, p.a_data, batch, p.matmul.trans_a != CUBLAS_OP_N, false);
    std::vector<float> b     = pack(p, p.b, p.b_data, batch, p.matmul.trans_b != CUBLAS_OP_N, false);
    std::vector<float> sums(m);
    std::vector<float> more(m);
    std::vector<float> gradient(p.matmul.epilogue == CUBLASLT_EPILOGUE_BGRADB ? n : m, 0.0F);

    touch_epilogue(p, batch);
    if (p.beta_value != 0.0F) {
        touch(p.c, p.c_data, batch, false);
    }
    for (size_t col = 0; col < n; col++) {
        column(sums.data(), a.data(), b.data() + col * k, m, 0, k / parts);
        for (size_t part = 1; part < parts; part++) {
            column(more.data(), a.data(), b.data() + col * k, m, k * part / parts, k * (part + 1) / parts);
            for (size_t i = 0; i < m; i++) {
                sums[i] += more[i];
            }
        }
        for (size_t i = 0; i < m; i++) {
            size_t to    = (size_t)(p.d.stride * batch) + offset_of(p.d, i, col);
            float  value = p.alpha_value * sums[i];
            if (p.beta_value != 0.0F) {
                value += p.beta_value *
                         load(p.c_data, (size_t)(p.c.stride * batch) + offset_of(p.c, i, col), p.c.type);
            }
            value = finish(p, value, i, col, batch);
            store(p.d_data, to, p.d.type, value);
            gradient[p.matmul.epilogue == CUBLASLT_EPILOGUE_BGRADB ? 0 : i] += value;
        }
    }
    touch(p.d, p.d_data, batch, true);
    if (p.matmul.epilogue == CUBLASLT_EPILOGUE_BGRADA || p.matmul.epilogue == CUBLASLT_EPILOGUE_BGRADB) {
        bool                      is_a   = p.matmul.epilogue == CUBLASLT_EPILOGUE_BGRADA;
        const std::vector<float> &matrix = is_a ? a : b; /* [k][m], [n][k] */
        gradient.assign(is_a ? m : n, 0.0F);
        for (size_t i = 0; i < gradient.size(); i++) {
            for (size_t q = 0; q < k; q++) {
                gradient[i] += matrix[is_a ? q * m + i : i * k + q];
            }
        }
    }
    if ((p.matmul.epilogue & (16U | CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB)) != 0) {
        store_bias_gradient(p, batch, gradient);
    }
}

void cusim_multiply(const cusim_product_t *product)
{
    cusim_product_t p = *product;

    if (p.matmul.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE) {
        cusim_touch(p.alpha, sizeof(float), false);
        cusim_touch(p.beta, sizeof(float), false);
        p.alpha_value = *static_cast<const float *>(p.alpha);
        p.beta_value  = *static_cast<const float *>(p.beta);
    }
    if (p.algo.workspace > 0) { /* nobody may rely on what is in it, nor use it at the same time */
        cusim_touch(p.workspace, p.algo.workspace, true);
        memset(p.workspace, 0xff, p.algo.workspace);
    }
    for (int batch = 0; batch < p.d.batch; batch++) {
        multiply_one(p, batch);
    }
}
