#include "tests/cusim/fiber.h"

#include "tests/cusim/sanitizer.h"
#include <stdlib.h>
#include <sys/mman.h>

enum { STACK_BYTES = 64 << 10, PAGE_BYTES = 4096 };

/* Saves the registers that a call keeps, changes stacks, loads them again; swapcontext() would add a system
 * call each. */
extern "C" void cusim_switch(void **save, void *to);
asm(".text\n"
    ".globl cusim_switch\n"
    ".type cusim_switch,@function\n"
    "cusim_switch:\n"
    "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
    "movq %rsp,(%rdi)\n"
    "movq %rsi,%rsp\n"
    "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n"
    "ret\n"
    ".size cusim_switch,.-cusim_switch\n");

static cusim_fiber_t *pool;
static void          *scheduler; /* its stack pointer */
#if defined           CUSIM_ASAN
static const void    *scheduler_stack;
static size_t         scheduler_bytes;
#endif
#if defined  CUSIM_TSAN
static void *scheduler_tsan;
#endif

static cusim_fiber_t *new_fiber(void)
{
    cusim_fiber_t *fiber = static_cast<cusim_fiber_t *>(calloc(1, sizeof(*fiber)));
    void          *pages = mmap(NULL, STACK_BYTES + PAGE_BYTES, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (fiber == NULL || pages == MAP_FAILED) {
        abort();
    }
    mprotect(pages, PAGE_BYTES, PROT_NONE);
    fiber->stack = static_cast<char *>(pages) + PAGE_BYTES;
    return fiber;
}

cusim_fiber_t *cusim_fiber_get(void (*entry)(void), cusim_fiber_t **slot)
{
    cusim_fiber_t *fiber = slot != NULL ? *slot : pool;
    void         **sp;

    if (fiber == NULL) {
        fiber = new_fiber();
        if (slot != NULL) {
            *slot = fiber;
        }
    } else if (slot == NULL) {
        pool = fiber->next;
    }
#if defined CUSIM_TSAN
    if (fiber->tsan == NULL) {
        fiber->tsan = __tsan_create_fiber(0);
    }
#endif
    CUSIM_UNPOISON(fiber->stack, STACK_BYTES);
    sp =
        reinterpret_cast<void **>(fiber->stack + STACK_BYTES) - 1; /* a function starts with rsp = 8 mod 16 */
    *--sp = reinterpret_cast<void *>(entry);
    for (int i = 0; i < 6; i++) {
        *--sp = NULL;
    }
    fiber->stack_pointer = sp;
    return fiber;
}

void cusim_fiber_put(cusim_fiber_t *fiber)
{
    if (fiber->tsan == NULL) {
        fiber->next = pool;
        pool        = fiber;
    }
}

void cusim_fiber_enter(cusim_fiber_t *fiber)
{
#if defined CUSIM_TSAN
    scheduler_tsan = __tsan_get_current_fiber();
    CUSIM_SWITCH(fiber->tsan);
#endif
#if defined CUSIM_ASAN
    static void *fake;
    const void  *stack;
    size_t       bytes;

    __sanitizer_start_switch_fiber(&fake, fiber->stack, STACK_BYTES);
#endif
    cusim_switch(&scheduler, fiber->stack_pointer);
#if defined CUSIM_ASAN
    __sanitizer_finish_switch_fiber(fake, &stack, &bytes);
#endif
}

void cusim_fiber_began(void)
{
#if defined CUSIM_ASAN
    __sanitizer_finish_switch_fiber(NULL, &scheduler_stack, &scheduler_bytes);
#endif
}

void cusim_fiber_leave(cusim_fiber_t *fiber, bool is_last)
{
#if defined CUSIM_TSAN
    CUSIM_SWITCH(scheduler_tsan);
#endif
#if defined CUSIM_ASAN
    void *fake;

    __sanitizer_start_switch_fiber(is_last ? NULL : &fake, scheduler_stack, scheduler_bytes);
#endif
    (void)is_last;
    cusim_switch(&fiber->stack_pointer, scheduler);
#if defined CUSIM_ASAN
    __sanitizer_finish_switch_fiber(fake, &scheduler_stack, &scheduler_bytes);
#endif
}
