/**
 * @file What the stand-in tells the sanitizers; nothing in a plain build. Kernels and the product are
 * compiled with a sanitizer, the stand-in itself never is: its own switching of fibers and streams would be
 * reported as races of the product.
 *
 * CUSIM_ASAN or CUSIM_TSAN is defined by CMake for the sanitizer that the program is linked with.
 */
#ifndef DDP_SANITIZER_H_
#define DDP_SANITIZER_H_

#include <stddef.h>

#if defined CUSIM_ASAN
extern "C" {
void __sanitizer_start_switch_fiber(void **fake, const void *stack, size_t bytes);
void __sanitizer_finish_switch_fiber(void *fake, const void **stack, size_t *bytes);
void __asan_poison_memory_region(const volatile void *address, size_t bytes);
void __asan_unpoison_memory_region(const volatile void *address, size_t bytes);
}
#define CUSIM_POISON(address, bytes)   __asan_poison_memory_region(address, bytes)
#define CUSIM_UNPOISON(address, bytes) __asan_unpoison_memory_region(address, bytes)
#else
#define CUSIM_POISON(address, bytes)   ((void)(address))
#define CUSIM_UNPOISON(address, bytes) ((void)(address))
#endif

#if defined CUSIM_TSAN
extern "C" {
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void  __tsan_destroy_fiber(void *fiber);
void  __tsan_switch_to_fiber(void *fiber, unsigned flags);
void  __tsan_set_fiber_name(void *fiber, const char *name);
void  __tsan_acquire(void *address);
void  __tsan_release(void *address);
void  __tsan_read_range(void *address, unsigned long bytes);
void  __tsan_write_range(void *address, unsigned long bytes);
void  __tsan_java_init(unsigned long heap, unsigned long bytes);
void  __tsan_java_alloc(unsigned long address, unsigned long bytes);
}
/* The only edges that exist are those that CUDA gives: a switch makes none (flag 1). */
#define CUSIM_SWITCH(fiber)    __tsan_switch_to_fiber(fiber, 1)
#define CUSIM_ACQUIRE(address) __tsan_acquire((void *)(address))
#define CUSIM_RELEASE(address) __tsan_release((void *)(address))
#else
#define CUSIM_ACQUIRE(address) ((void)(address))
#define CUSIM_RELEASE(address) ((void)(address))
#endif

/** Tells the thread sanitizer that the present stream reads or writes a whole range; the access itself is not
 * watched. */
static inline void cusim_touch(const void *address, size_t bytes, bool is_write)
{
#if defined CUSIM_TSAN
    if (is_write) {
        __tsan_write_range(const_cast<void *>(address), bytes);
    } else {
        __tsan_read_range(const_cast<void *>(address), bytes);
    }
#else
    (void)address;
    (void)bytes;
    (void)is_write;
#endif
}

#endif /* DDP_SANITIZER_H_ */
