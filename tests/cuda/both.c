#include "tests/cuda/both.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/ddp_test.h"

both_t both_bytes(support_t *s, const void *bytes, size_t count)
{
    both_t both = {.bytes = count};

    both.at[ON_CPU] = malloc(count + 1);
    ck_assert_ptr_nonnull(both.at[ON_CPU]);
    if (count > 0) {
        memcpy(both.at[ON_CPU], bytes, count);
    }
    both.at[ON_CUDA] = support_upload(s, bytes, count);
    return both;
}

both_t both_floats(support_t *s, size_t count, uint64_t seed)
{
    float *x = malloc((count + 1) * sizeof(*x));
    both_t both;

    ck_assert_ptr_nonnull(x);
    if (seed > 0) {
        support_fill(x, count, seed);
    } else {
        memset(x, 0xAB, (count + 1) * sizeof(*x));
    }
    both = both_bytes(s, x, count * sizeof(*x));
    free(x);
    return both;
}

void both_free(both_t *both)
{
    free(both->at[ON_CPU]);
    both->at[ON_CPU] = NULL;
}

/* What the CUDA device has; freed by the caller. */
static void *fetch(support_t *s, const both_t *both)
{
    void *copy = malloc(both->bytes + 1);

    ck_assert_ptr_nonnull(copy);
    ddp_assert_ok(ddp_stream_synchronize(s->on_cpu, -1));
    support_download(s, copy, both->at[ON_CUDA], both->bytes);
    return copy;
}

void both_assert_near(support_t *s, const both_t *both, double limit, const char *what)
{
    float *copy = fetch(s, both);

    support_assert_near(copy, both->at[ON_CPU], both->bytes / sizeof(float), limit, what);
    free(copy);
}

void both_assert_same(support_t *s, const both_t *both, const char *what)
{
    void *copy = fetch(s, both);

    support_assert_same(copy, both->at[ON_CPU], both->bytes, what);
    free(copy);
}
