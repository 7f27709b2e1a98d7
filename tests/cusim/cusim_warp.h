/**
 * @file Barriers, warp operations and atomics of a kernel on the stand-in; part of cusim_device.h.
 * Every call carries its file and line, so that a fault is named by its place.
 */
#ifndef DDP_CUSIM_WARP_H_
#define DDP_CUSIM_WARP_H_

#include <cuda_runtime.h>
#include <stdint.h>
#include <string.h>

extern __thread uint3 threadIdx, blockIdx, blockDim, gridDim;

/* What the threads of a barrier agree on. */
enum { CUSIM_NOTHING, CUSIM_OR, CUSIM_AND, CUSIM_COUNT };
/* What the lanes of a warp do together. */
enum { CUSIM_SYNCWARP, CUSIM_SHUFFLE, CUSIM_BALLOT, CUSIM_ANY, CUSIM_ALL, CUSIM_REDUCE_ADD };

/** One thread's part of a block barrier; `agreed` is what `of` says of the threads' predicates. */
extern "C" void cusim_syncthreads(int of, int predicate, int *agreed, const char *file, int line);
/** One lane's part of a warp operation; the lanes of `mask` take part. */
extern "C" uint64_t cusim_warp_op(int op, unsigned mask, uint64_t value, int source, const char *file,
                                  int line);
extern "C" unsigned cusim_activemask(void);
/** Ends the launch with an error that names the place. */
extern "C" void cusim_trap(const char *what, const char *file, int line);

#define CUSIM_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define __trap()    cusim_trap("__trap", __FILE__, __LINE__)

static inline void __syncthreads(CUSIM_PLACE)
{
    int none;

    cusim_syncthreads(CUSIM_NOTHING, 0, &none, file, line);
}

static inline int __syncthreads_or(int predicate, CUSIM_PLACE)
{
    int agreed;

    cusim_syncthreads(CUSIM_OR, predicate, &agreed, file, line);
    return agreed;
}

static inline int __syncthreads_and(int predicate, CUSIM_PLACE)
{
    int agreed;

    cusim_syncthreads(CUSIM_AND, predicate, &agreed, file, line);
    return agreed;
}

static inline int __syncthreads_count(int predicate, CUSIM_PLACE)
{
    int agreed;

    cusim_syncthreads(CUSIM_COUNT, predicate, &agreed, file, line);
    return agreed;
}

static inline void __syncwarp(unsigned mask = 0xffffffffU, CUSIM_PLACE)
{
    cusim_warp_op(CUSIM_SYNCWARP, mask, 0, 0, file, line);
}

static inline unsigned __ballot_sync(unsigned mask, int predicate, CUSIM_PLACE)
{
    return (unsigned)cusim_warp_op(CUSIM_BALLOT, mask, predicate != 0, 0, file, line);
}

static inline int __any_sync(unsigned mask, int predicate, CUSIM_PLACE)
{
    return (int)cusim_warp_op(CUSIM_ANY, mask, predicate != 0, 0, file, line);
}

static inline int __all_sync(unsigned mask, int predicate, CUSIM_PLACE)
{
    return (int)cusim_warp_op(CUSIM_ALL, mask, predicate != 0, 0, file, line);
}

static inline unsigned __reduce_add_sync(unsigned mask, unsigned value, CUSIM_PLACE)
{
    return (unsigned)cusim_warp_op(CUSIM_REDUCE_ADD, mask, value, 0, file, line);
}

static inline unsigned __activemask(void)
{
    return cusim_activemask();
}

static inline int cusim_lane(void)
{
    return (int)((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) & 31);
}

template <class T>
static inline T cusim_shuffle(unsigned mask, T value, int source, const char *file, int line)
{
    uint64_t bits = 0;

    static_assert(sizeof(T) <= sizeof(bits), "a shuffle moves at most 8 bytes");
    memcpy(&bits, &value, sizeof(value));
    bits = cusim_warp_op(CUSIM_SHUFFLE, mask, bits, source, file, line);
    memcpy(static_cast<void *>(&value), &bits, sizeof(value));
    return value;
}

template <class T>
static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, CUSIM_PLACE)
{
    return cusim_shuffle(mask, value, (cusim_lane() & ~(width - 1)) | (source & (width - 1)), file, line);
}

template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, CUSIM_PLACE)
{
    int lane = cusim_lane();
    int from = lane ^ bits;

    return cusim_shuffle(mask, value, from > (lane | (width - 1)) ? lane : from, file, line);
}

template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, CUSIM_PLACE)
{
    int lane = cusim_lane();
    int from = lane + (int)by;

    return cusim_shuffle(mask, value, from > (lane | (width - 1)) ? lane : from, file, line);
}

template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, CUSIM_PLACE)
{
    int lane = cusim_lane();
    int from = lane - (int)by;

    return cusim_shuffle(mask, value, from < (lane & ~(width - 1)) ? lane : from, file, line);
}

/* Read, change, write back if nobody else wrote in between; gives the old value, as CUDA's atomics do. */
template <class T, class F> static inline T cusim_atomic(T *address, F change)
{
    typedef typename std::conditional<sizeof(T) == 8, uint64_t, uint32_t>::type bits_t;
    bits_t *bits = reinterpret_cast<bits_t *>(address);
    bits_t  old  = __atomic_load_n(bits, __ATOMIC_RELAXED);
    bits_t  next = 0;
    T       value;

    do {
        memcpy(&value, &old, sizeof(value));
        T changed = change(value);
        memcpy(&next, &changed, sizeof(changed));
    } while (!__atomic_compare_exchange_n(bits, &old, next, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return value;
}

#define CUSIM_ATOMIC(type)                                                                                   \
    static inline type atomicAdd(type *address, type value)                                                  \
    {                                                                                                        \
        return cusim_atomic(address, [value](type old) { return (type)(old + value); });                     \
    }                                                                                                        \
    static inline type atomicExch(type *address, type value)                                                 \
    {                                                                                                        \
        return cusim_atomic(address, [value](type) { return value; });                                       \
    }
#define CUSIM_ATOMIC_INTEGER(type)                                                                           \
    CUSIM_ATOMIC(type)                                                                                       \
    static inline type atomicMax(type *address, type value)                                                  \
    {                                                                                                        \
        return cusim_atomic(address, [value](type old) { return old > value ? old : value; });               \
    }                                                                                                        \
    static inline type atomicMin(type *address, type value)                                                  \
    {                                                                                                        \
        return cusim_atomic(address, [value](type old) { return old < value ? old : value; });               \
    }                                                                                                        \
    static inline type atomicOr(type *address, type value)                                                   \
    {                                                                                                        \
        return cusim_atomic(address, [value](type old) { return old | value; });                             \
    }                                                                                                        \
    static inline type atomicAnd(type *address, type value)                                                  \
    {                                                                                                        \
        return cusim_atomic(address, [value](type old) { return old & value; });                             \
    }                                                                                                        \
    static inline type atomicCAS(type *address, type expected, type value)                                   \
    {                                                                                                        \
        return cusim_atomic(address, [=](type old) { return old == expected ? value : old; });               \
    }

CUSIM_ATOMIC(float)
CUSIM_ATOMIC(double)
CUSIM_ATOMIC_INTEGER(int)
CUSIM_ATOMIC_INTEGER(unsigned)
CUSIM_ATOMIC_INTEGER(unsigned long long)

/* Fences order nothing that the thread sanitizer follows, and gcc says so: there the atomics around them do.
 */
static inline void __threadfence_system(void)
{
#ifndef __SANITIZE_THREAD__
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

static inline void __threadfence(void)
{
    __threadfence_system();
}

static inline void __threadfence_block(void)
{
    __threadfence_system();
}

#endif /* DDP_CUSIM_WARP_H_ */
