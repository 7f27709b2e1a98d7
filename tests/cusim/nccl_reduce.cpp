/* NCCL's arithmetic on the stand-in. */
#include "tests/cusim/nccl_world.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

size_t cusim_nccl_bytes(int type)
{
    switch (type) {
    case ncclInt8:
    case ncclUint8:
        return 1;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
        return 8;
    default:
        return 4;
    }
}

template <class A> static A combine(A a, A b, int reduction)
{
    switch (reduction) {
    case ncclMax:
        return a > b ? a : b;
    case ncclMin:
        return a < b ? a : b;
    case ncclProd:
        return (A)(a * b);
    default:
        return (A)(a + b);
    }
}

/* T is what is stored and sent, A what two of them are combined in. A float average multiplies by 1/n first,
 * as NCCL does; an integer average divides at the end. */
template <class T, class A, bool IS_FLOAT>
static void reduce(int reduction, char *out, char *const *in, int ranks, size_t first, size_t count,
                   size_t total)
{
    size_t n         = (size_t)ranks;
    bool   is_scaled = IS_FLOAT && reduction == ncclAvg;

    for (size_t i = 0; i < count; i++) {
        size_t begin = (first + i) * n / total;
        T      sum   = T();
        for (size_t hop = 1; hop <= n; hop++) {
            T value = reinterpret_cast<const T *>(in[(begin + hop) % n])[i];
            value   = is_scaled ? T((A)value * (A)T((float)1 / (float)ranks)) : value;
            sum     = hop == 1 ? value : T(combine<A>((A)sum, (A)value, reduction));
        }
        reinterpret_cast<T *>(out)[i] = reduction == ncclAvg && !IS_FLOAT ? T((A)sum / (A)ranks) : sum;
    }
}

void cusim_nccl_reduce(int type, int reduction, char *out, char *const *in, int ranks, size_t first,
                       size_t count, size_t total)
{
    switch (type) {
    case ncclFloat32:
        reduce<float, float, true>(reduction, out, in, ranks, first, count, total);
        break;
    case ncclBfloat16:
        reduce<__nv_bfloat16, float, true>(reduction, out, in, ranks, first, count, total);
        break;
    case ncclFloat16:
        reduce<__half, float, true>(reduction, out, in, ranks, first, count, total);
        break;
    case ncclFloat64:
        reduce<double, double, true>(reduction, out, in, ranks, first, count, total);
        break;
    case ncclInt8:
        reduce<int8_t, int, false>(reduction, out, in, ranks, first, count, total);
        break;
    case ncclUint8:
        reduce<uint8_t, int, false>(reduction, out, in, ranks, first, count, total);
        break;
    case ncclInt32:
        reduce<int32_t, int32_t, false>(reduction, out, in, ranks, first, count, total);
        break;
    case ncclUint32:
        reduce<uint32_t, uint32_t, false>(reduction, out, in, ranks, first, count, total);
        break;
    case ncclUint64:
        reduce<uint64_t, uint64_t, false>(reduction, out, in, ranks, first, count, total);
        break;
    default:
        reduce<int64_t, int64_t, false>(reduction, out, in, ranks, first, count, total);
        break;
    }
}
