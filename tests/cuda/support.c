#include "tests/cuda/support.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/ddp_test.h"

#define UNTOUCHED 0xAB

void support_open(support_t *s)
{
    ddp_device_params_t cpu  = DDP_DEVICE_PARAMS_INIT;
    ddp_device_params_t cuda = DDP_DEVICE_PARAMS_INIT;

    *s        = (support_t){.n_buffers = 0};
    cuda.kind = DDP_DEVICE_CUDA;
    ddp_assert_ok(ddp_device_create(&cpu, &s->cpu));
    ddp_assert_ok(ddp_device_create(&cuda, &s->cuda));
    ddp_assert_ok(ddp_stream_create(s->cpu, "cpu", &s->on_cpu));
    ddp_assert_ok(ddp_stream_create(s->cuda, "cuda", &s->on_cuda));
}

static void check_guard(support_t *s, const support_buffer_t *buffer)
{
    unsigned char guard[SUPPORT_GUARD];

    support_download(s, guard, (const char *)buffer->memory + buffer->bytes, sizeof(guard));
    for (size_t i = 0; i < sizeof(guard); i++) {
        ck_assert_msg(guard[i] == UNTOUCHED, "something wrote to byte %zu behind a buffer of %zu bytes", i,
                      buffer->bytes);
    }
}

void support_close(support_t *s)
{
    const ddp_allocator_t *allocator = ddp_device_allocator(s->cuda);

    for (size_t i = 0; i < s->n_buffers; i++) {
        check_guard(s, &s->buffers[i]);
        allocator->release(allocator->ctx, s->buffers[i].memory);
    }
    ddp_stream_destroy(&s->on_cpu);
    ddp_stream_destroy(&s->on_cuda);
    ddp_device_destroy(&s->cpu);
    ddp_device_destroy(&s->cuda);
}

void *support_upload(support_t *s, const void *host, size_t bytes)
{
    const ddp_allocator_t *allocator = ddp_device_allocator(s->cuda);
    support_buffer_t      *buffer    = &s->buffers[s->n_buffers];
    unsigned char         *image     = malloc(bytes + SUPPORT_GUARD);

    ck_assert(s->n_buffers < SUPPORT_BUFFERS && image != NULL);
    s->n_buffers++;
    memset(image, UNTOUCHED, bytes + SUPPORT_GUARD);
    if (host != NULL) {
        memcpy(image, host, bytes);
    }
    buffer->bytes = bytes;
    ddp_assert_ok(allocator->acquire(allocator->ctx, "a buffer", bytes + SUPPORT_GUARD, &buffer->memory));
    ddp_assert_ok(ddp_stream_copy(s->on_cuda, buffer->memory, image, bytes + SUPPORT_GUARD));
    ddp_assert_ok(ddp_stream_synchronize(s->on_cuda, -1));
    free(image);
    return buffer->memory;
}

void support_download(support_t *s, void *host, const void *device, size_t bytes)
{
    ddp_assert_ok(ddp_stream_copy(s->on_cuda, host, device, bytes));
    ddp_assert_ok(ddp_stream_synchronize(s->on_cuda, -1));
}

void support_fill(float *x, size_t count, uint64_t seed)
{
    uint32_t counter[4] = {0};
    uint32_t random[4];

    for (size_t i = 0; i < count; i++) {
        counter[0] = (uint32_t)i;
        ddp_philox(seed, counter, random);
        x[i] = (float)random[0] * 0x1p-31F - 1.0F;
    }
}

bool support_is_near(float a, float b, double limit, double largest)
{
    return fabs((double)a - (double)b) <= limit * largest;
}

void support_assert_near(const float *a, const float *b, size_t count, double limit, const char *what)
{
    double largest = 0;

    for (size_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs((double)b[i]));
    }
    for (size_t i = 0; i < count; i++) {
        if (support_is_near(a[i], b[i], limit, largest)) {
            continue; /* an assertion that holds costs as much as a kernel's thread */
        }
        ck_abort_msg("%s: element %zu of %zu is %.9g, not %.9g (largest %.3g)", what, i, count, (double)a[i],
                     (double)b[i], largest);
    }
}

void support_assert_same(const void *a, const void *b, size_t bytes, const char *what)
{
    const unsigned char *p = a;
    const unsigned char *q = b;

    for (size_t i = 0; i < bytes && memcmp(a, b, bytes) != 0; i++) {
        ck_assert_msg(p[i] == q[i], "%s: byte %zu of %zu is %02x, not %02x", what, i, bytes, p[i], q[i]);
    }
}
