/* What memory gives when all ranks use it at once. Compiled with -O3, so that the loops become vector code.
 */
#include <string.h>
#include <unistd.h>

#include "base/allocator.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/progressed.h"
#include "launcher/bench.h"

#define ROUNDS      7
#define LEAST_BYTES ((size_t)32 << 20)
#define MOST_BYTES  ((size_t)128 << 20)
#define PIECE       ((size_t)1 << 18) /* floats written between two signs of progress */

enum { MEMCPY, TRIAD, ADD, N_LOOPS };

static void triad(float *restrict a, const float *restrict b, const float *restrict c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        a[i] = b[i] + 0.5F * c[i];
    }
}

static void add(float *restrict a, const float *restrict b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        a[i] += b[i];
    }
}

static void run_loop(int loop, float *const *x, size_t n)
{
    switch (loop) {
    case MEMCPY:
        memcpy(x[0], x[1], n * sizeof(float));
        break;
    case TRIAD:
        triad(x[0], x[1], x[2], n);
        break;
    default:
        add(x[0], x[1], n);
        break;
    }
    __asm__ volatile("" : : "r"(x[0]) : "memory"); /* somebody might read it */
}

/* Each of three arrays: the last cache twice over, in all ranks of the machine together. */
static size_t array_bytes(const ddp_run_t *run)
{
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size_t     bytes = cache > 0 ? 2 * (size_t)cache / (size_t)ddp_comm_local_size(run->comm) : 0;

    bytes = bytes > LEAST_BYTES ? bytes : LEAST_BYTES;
    return bytes < MOST_BYTES ? bytes : MOST_BYTES;
}

/* Pages never written would all be one page of zeros. Where memory is short this takes long. */
static void fill(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = 1.0F;
        if (i % PIECE == 0) {
            ddp_progressed();
        }
    }
}

static ddp_status_t measure(const ddp_run_t *run, float *const *x, size_t bytes, ddp_bench_peak_t *peak_p)
{
    static const double counted[N_LOOPS] = {2, 3, 3}; /* arrays read or written */
    ddp_status_t        status           = DDP_OK;
    const size_t        rounds           = ddp_bench_peak_rounds(run, ROUNDS);
    double              ns[N_LOOPS][ROUNDS];
    double              rate[N_LOOPS];

    for (size_t round = 0; round < rounds; round++) {
        for (int loop = 0; loop < N_LOOPS; loop++) {
            int64_t start;

            DDP_TRY(ddp_comm_barrier(run->comm));
            start = ddp_clock_ns();
            run_loop(loop, x, bytes / sizeof(float));
            ns[loop][round] = (double)(ddp_clock_ns() - start);
            ddp_progressed();
        }
    }
    for (int loop = 0; loop < N_LOOPS; loop++) {
        rate[loop] = counted[loop] * (double)bytes / ddp_bench_least(ns[loop], rounds);
    }
    *peak_p = (ddp_bench_peak_t){rate[MEMCPY], rate[TRIAD], rate[ADD]};
out:
    return status;
}

ddp_status_t ddp_bench_memory(const ddp_run_t *run, ddp_bench_peak_t *peak_p)
{
    const ddp_allocator_t *memory = ddp_allocator_private();
    const size_t           bytes  = array_bytes(run);
    ddp_status_t           status = DDP_OK;
    void                  *block  = NULL;
    float                 *x[3];

    status = memory->acquire(memory->ctx, "the memory benchmark", 3 * bytes, &block);
    DDP_TRY(ddp_comm_agree(run->comm, status));
    for (size_t i = 0; i < 3; i++) {
        x[i] = (float *)block + i * (bytes / sizeof(float));
        fill(x[i], bytes / sizeof(float));
    }
    DDP_TRY(measure(run, x, bytes, peak_p));
out:
    memory->release(memory->ctx, block);
    return status;
}
