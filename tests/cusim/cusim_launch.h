/**
 * @file LAUNCH on the stand-in: what <<<>>> is to nvcc. Part of cusim_device.h.
 */
#ifndef DDP_CUSIM_LAUNCH_H_
#define DDP_CUSIM_LAUNCH_H_

#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>
#include <tuple>
#include <type_traits>
#include <utility>

/* How the runtime looks at one argument of a kernel. */
enum { CUSIM_VALUE, CUSIM_CONST_POINTER, CUSIM_POINTER };

/* A kernel, described by its type. */
typedef struct cusim_kernel {
    const void *function;
    const char *name;
    void (*invoke)(const void *function, void **arguments); /* one thread of it */
    int             count;                                  /* of arguments */
    const uint16_t *bytes;                                  /* [count] */
    const uint8_t  *kind;                                   /* [count], CUSIM_VALUE ... */
} cusim_kernel_t;

/** Makes `kernel` known to cudaLaunchKernel(); copied, any number of times. */
extern "C" void cusim_register(const cusim_kernel_t *kernel);

template <class P> constexpr uint8_t cusim_kind()
{
    return !std::is_pointer<P>::value                                    ? (uint8_t)CUSIM_VALUE
           : std::is_const<typename std::remove_pointer<P>::type>::value ? (uint8_t)CUSIM_CONST_POINTER
                                                                         : (uint8_t)CUSIM_POINTER;
}

template <class... P, size_t... I>
static void cusim_call(void (*kernel)(P...), void **arguments, std::index_sequence<I...>)
{
    (void)arguments; /* a kernel may have none */
    kernel(*static_cast<typename std::remove_reference<P>::type *>(arguments[I])...);
}

template <class... P> static void cusim_invoke(const void *function, void **arguments)
{
    cusim_call(reinterpret_cast<void (*)(P...)>(const_cast<void *>(function)), arguments,
               std::index_sequence_for<P...>{});
}

template <class... P, class... A>
static void cusim_launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                         cudaStream_t stream, A &&...arguments)
{
    static_assert(sizeof...(P) == sizeof...(A), "the wrong number of kernel arguments");
    static const uint16_t bytes[]  = {(uint16_t)sizeof(P)..., 0};
    static const uint8_t  kind[]   = {cusim_kind<P>()..., 0};
    const void           *function = reinterpret_cast<const void *>(kernel);
    const cusim_kernel_t  known    = {function, name, cusim_invoke<P...>, (int)sizeof...(P), bytes, kind};
    std::tuple<P...>      values{static_cast<P>(std::forward<A>(arguments))...};
    void                 *pointers[sizeof...(P) + 1] = {NULL};

    cusim_register(&known);
    std::apply(
        [&pointers](auto &...value) {
            size_t i = 0;
            ((pointers[i++] = const_cast<void *>(static_cast<const void *>(&value))), ...);
            (void)i;
        },
        values);
    cudaLaunchKernel(function, grid, block, pointers, shared, stream); /* its error is also the last error */
}

#define LAUNCH(kernel, grid, block, shared, stream, ...)                                                     \
    cusim_launch(#kernel, kernel, grid, block, shared, stream, ##__VA_ARGS__)

#endif /* DDP_CUSIM_LAUNCH_H_ */
