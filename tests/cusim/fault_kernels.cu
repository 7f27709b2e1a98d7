#include "tests/cusim/fault_kernels.h"
#include <float.h>

/* Few: each thread is a fiber that a sanitizer follows. */
#define THREADS 96

static __device__ float warp_sum(float value)
{
    for (int by = 16; by > 0; by >>= 1) {
        value += __shfl_xor_sync(0xffffffffU, value, by);
    }
    return value;
}

static __device__ float warp_max(float value)
{
    for (int by = 16; by > 0; by >>= 1) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, by));
    }
    return value;
}

/* Over the block; every thread gets the result. */
static __device__ float block_sum(float value, fault_t fault)
{
    __shared__ float parts[32];
    int              lane  = threadIdx.x % 32;
    int              warp  = threadIdx.x / 32;
    int              warps = blockDim.x / 32;

    value = warp_sum(value);
    if (fault != FAULT_NO_BARRIER_BEFORE_REUSE) {
        __syncthreads(); /* the parts may still be read by the call before */
    }
    if (lane == 0 && (fault != FAULT_STATIC_SHARED_NOT_SET || warp != 1)) {
        parts[fault == FAULT_STATIC_SHARED_OFF_BY_ONE ? warp + 33 - warps : warp] = value;
    }
    if (fault != FAULT_NO_BARRIER_AFTER_PARTIAL_SUM) {
        __syncthreads();
    }
    return warp_sum(lane < warps ? parts[lane] : 0.0F);
}

static __device__ float block_max(float value, fault_t fault)
{
    __shared__ float parts[32];
    int              lane  = threadIdx.x % 32;
    int              warp  = threadIdx.x / 32;
    int              warps = blockDim.x / 32;

    value = warp_max(value);
    if (fault != FAULT_NO_FIRST_BARRIER_OF_MAX) {
        __syncthreads();
    }
    if (lane == 0) {
        parts[warp] = value;
    }
    if (fault != FAULT_NO_BARRIER_AFTER_PARTIAL_MAX) {
        __syncthreads();
    }
    return warp_max(lane < warps ? parts[lane] : -FLT_MAX);
}

/* A block a row. */
static __global__ void layer_norm_kernel(const float *x, const float *w, const float *b, float *y,
                                         float *mean, float *rstd, int width, fault_t fault)
{
    const float *row    = x + (size_t)blockIdx.x * width;
    int          end    = fault == FAULT_GLOBAL_OFF_BY_ONE ? width + 1 : width;
    float        sum    = 0.0F;
    float        square = 0.0F;
    float        m;
    float        r;

    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        sum += __ldg(row + i);
    }
    m = block_sum(sum, fault) / width;
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        square += (row[i] - m) * (row[i] - m);
    }
    r = rsqrtf(block_sum(square, fault) / width + 1e-5F);
    for (int i = threadIdx.x; i < end; i += blockDim.x) {
        y[(size_t)blockIdx.x * width + i] = (row[i] - m) * r * w[i] + b[i];
    }
    if (threadIdx.x == 0) {
        mean[blockIdx.x] = m;
        rstd[blockIdx.x] = r;
    }
}

/* A warp a row; the gradients of w and b are gathered in shared memory, then added to global memory. */
static __global__ void layer_norm_backward_kernel(const float *dy, const float *x, const float *w,
                                                  const float *mean, const float *rstd, float *dx, float *dw,
                                                  float *db, int rows, int width, fault_t fault)
{
    extern __shared__ float smem[];
    float                  *block_dw = smem;
    float                  *block_db = smem + width;
    int                     lane     = threadIdx.x % 32;
    int                     warps    = blockDim.x / 32;

    for (int i = threadIdx.x; i < 2 * width && fault != FAULT_SHARED_NOT_ZEROED; i += blockDim.x) {
        smem[i] = 0.0F;
    }
    if (fault != FAULT_NO_BARRIER_AFTER_ZEROING) {
        __syncthreads();
    }
    for (int row = blockIdx.x * warps + threadIdx.x / 32; row < rows; row += gridDim.x * warps) {
        const float *dy_row = dy + (size_t)row * width;
        const float *x_row  = x + (size_t)row * width;
        float        a      = 0.0F;
        float        c      = 0.0F;
        for (int i = lane; i < width; i += 32) {
            a += w[i] * dy_row[i];
            c += w[i] * dy_row[i] * (x_row[i] - mean[row]) * rstd[row];
        }
        a = warp_sum(a) / width;
        c = warp_sum(c) / width;
        for (int i = lane; i < width; i += 32) {
            float n = (x_row[i] - mean[row]) * rstd[row];
            if (fault == FAULT_PLAIN_ADD_TO_SHARED) {
                block_dw[i] += dy_row[i] * n;
            } else {
                atomicAdd(&block_dw[i], dy_row[i] * n);
            }
            atomicAdd(&block_db[i], dy_row[i]);
            dx[(size_t)row * width + i] = (w[i] * dy_row[i] - a - n * c) * rstd[row];
        }
    }
    if (fault != FAULT_NO_BARRIER_BEFORE_FLUSH) {
        __syncthreads();
    }
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        if (fault == FAULT_PLAIN_ADD_ACROSS_BLOCKS) {
            dw[i] += block_dw[i];
        } else {
            atomicAdd(&dw[i], block_dw[i]);
        }
        atomicAdd(&db[i], block_db[i]);
    }
}

/* A block a row. */
static __global__ void cross_entropy_kernel(float *logits, const int *labels, float *loss, float scale,
                                            int width, int pitch, fault_t fault)
{
    float *row   = logits + (size_t)blockIdx.x * pitch;
    int    label = labels[blockIdx.x];
    float  most  = -FLT_MAX;
    float  sum   = 0.0F;

    if (fault == FAULT_ONE_THREAD_RETURNS && threadIdx.x == 7) {
        return;
    }
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        most = fmaxf(most, row[i]);
    }
    most = block_max(most, fault);
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        sum += __expf(row[i] - most);
    }
    sum = block_sum(sum, fault);
    if (threadIdx.x == 0) {
        loss[blockIdx.x] = __logf(sum) - (row[label] - most);
    }
    if (fault != FAULT_NO_BARRIER_BEFORE_OVERWRITE) {
        __syncthreads(); /* thread 0 reads what another thread overwrites */
    }
    for (int i = threadIdx.x; i < pitch; i += blockDim.x) {
        row[i] = i < width ? (__expf(row[i] - most) / sum - (i == label ? 1.0F : 0.0F)) * scale : 0.0F;
    }
}

/* Tiles of keys with the softmax kept up to date; a block for a tile of queries of a head, a thread a query.
 */
#define TILE 32
static __global__ void attention_kernel(const __nv_bfloat16 *q, const __nv_bfloat16 *k,
                                        const __nv_bfloat16 *v, float *o, int length, int width, float scale,
                                        fault_t fault)
{
    extern __shared__ float smem[];
    float                  *keys   = smem;
    float                  *values = smem + TILE * width;
    size_t                  base   = (size_t)blockIdx.y * length * width;
    int                     row    = blockIdx.x * TILE + threadIdx.x;
    int                     shift  = fault == FAULT_SHARED_OFF_BY_ONE ? 1 : 0;
    float                   most   = -FLT_MAX;
    float                   sum    = 0.0F;
    float                   query[64];
    float                   out[64];

    for (int d = 0; d < width; d++) {
        query[d] = row < length ? __bfloat162float(q[base + (size_t)row * width + d]) : 0.0F;
        out[d]   = 0.0F;
    }
    for (int first = 0; first <= (int)blockIdx.x * TILE; first += TILE) {
        if (fault != FAULT_NO_BARRIER_BEFORE_RELOAD) {
            __syncthreads();
        }
        for (int i = threadIdx.x; i < TILE * width; i += blockDim.x) {
            size_t from       = base + (size_t)first * width + i;
            bool   is_there   = first + i / width < length;
            keys[i]           = is_there ? __bfloat162float(k[from]) : 0.0F;
            values[i + shift] = is_there ? __bfloat162float(v[from]) : 0.0F;
        }
        if (fault != FAULT_NO_BARRIER_AFTER_LOAD) {
            __syncthreads();
        }
        for (int j = 0; j < TILE && first + j <= row && first + j < length; j++) {
            float s = 0.0F;
            for (int d = 0; d < width; d++) {
                s += query[d] * keys[j * width + d];
            }
            s *= scale;
            float next = fmaxf(most, s);
            float keep = __expf(most - next);
            float p    = __expf(s - next);
            for (int d = 0; d < width; d++) {
                out[d] = out[d] * keep + p * values[j * width + d];
            }
            sum  = sum * keep + p;
            most = next;
        }
    }
    for (int d = 0; d < width && row < length; d++) {
        o[base + (size_t)row * width + d] = out[d] / sum;
    }
}

static __global__ void add_neighbours_kernel(const float *x, float *y, int count, fault_t fault)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x) * 4;

    if (i < count) {
        float4 a = *reinterpret_cast<const float4 *>(x + i);
        float  e =
            fault == FAULT_VECTOR_MISALIGNED ? reinterpret_cast<const float4 *>(x + i + 1)->w : x[i + 4];
        *reinterpret_cast<float4 *>(y + i) = make_float4(a.x + a.y, a.y + a.z, a.z + a.w, a.w + e);
    }
}

static __global__ void diagnose_kernel(float *x, fault_t fault)
{
    int lane = threadIdx.x;

    switch (fault) {
    case FAULT_SHUFFLE_WITH_EXITED_LANES:
        if (lane >= 16) {
            x[lane] = __shfl_xor_sync(0xffffffffU, 1.0F, 1);
        }
        break;
    case FAULT_BARRIER_AND_SHUFFLE:
        if (lane % 2 == 1) {
            __syncthreads();
        } else {
            x[0] = __shfl_xor_sync(0xffffffffU, 1.0F, 1);
        }
        break;
    case FAULT_TWO_BARRIERS:
        if (lane < 32) {
            __syncthreads();
        } else {
            x[lane] = 1.0F;
            __syncthreads();
        }
        break;
    case FAULT_SHUFFLE_FROM_ABSENT_LANE:
        if (lane < 8) {
            x[lane] = __shfl_sync(0x000000ffU, (float)lane, 20);
        }
        break;
    case FAULT_LANE_OUTSIDE_ITS_MASK:
        if (lane < 16) {
            x[lane] = __shfl_sync(0x000000ffU, 1.0F, 0);
        }
        break;
    case FAULT_TRAP:
        if (lane == 3) {
            __trap();
        }
        break;
    default:
        break;
    }
}

void layer_norm(const float *x, const float *w, const float *b, float *y, float *mean, float *rstd, int rows,
                int width, fault_t fault, cudaStream_t stream)
{
    LAUNCH(layer_norm_kernel, rows, THREADS, 0, stream, x, w, b, y, mean, rstd, width, fault);
}

void layer_norm_backward(const float *dy, const float *x, const float *w, const float *mean,
                         const float *rstd, float *dx, float *dw, float *db, int rows, int width,
                         fault_t fault, cudaStream_t stream)
{
    LAUNCH(layer_norm_backward_kernel, 3, THREADS, 2 * width * sizeof(float), stream, dy, x, w, mean, rstd,
           dx, dw, db, rows, width, fault);
}

void cross_entropy(float *logits, const int *labels, float *loss, float scale, int rows, int width, int pitch,
                   fault_t fault, cudaStream_t stream)
{
    LAUNCH(cross_entropy_kernel, rows, THREADS, 0, stream, logits, labels, loss, scale, width, pitch, fault);
}

void attention(const void *q, const void *k, const void *v, float *o, int heads, int length, int width,
               fault_t fault, cudaStream_t stream)
{
    LAUNCH(attention_kernel, dim3((length + TILE - 1) / TILE, heads), TILE, 2 * TILE * width * sizeof(float),
           stream, (const __nv_bfloat16 *)q, (const __nv_bfloat16 *)k, (const __nv_bfloat16 *)v, o, length,
           width, 1.0F / sqrtf((float)width), fault);
}

void add_neighbours(const float *x, float *y, int count, fault_t fault, cudaStream_t stream)
{
    LAUNCH(add_neighbours_kernel, (count / 4 + 63) / 64, 64, 0, stream, x, y, count, fault);
}

void diagnose(float *x, fault_t fault, cudaStream_t stream)
{
    float host[64] = {0.0F};
    bool  is_large = fault == FAULT_BLOCK_TOO_LARGE;
    bool  is_fat   = fault == FAULT_TOO_MUCH_SHARED;

    switch (fault) {
    case FAULT_COPY_TOO_LONG:
        cudaMemcpyAsync(x, host, 65 * sizeof(float), cudaMemcpyHostToDevice, stream);
        break;
    case FAULT_COPY_KIND:
        cudaMemcpyAsync(host, x, sizeof(host), cudaMemcpyHostToDevice, stream);
        break;
    default:
        LAUNCH(diagnose_kernel, 1,
               is_large                      ? 2000
               : fault == FAULT_TWO_BARRIERS ? 64
                                             : 32,
               is_fat ? 60000 : 0, stream, fault == FAULT_HOST_POINTER ? host : x, fault);
        break;
    }
}
