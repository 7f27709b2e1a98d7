#include "tests/kernels/kernel_fixture.h"

#define GUARD_BYTES 64
#define GUARD_VALUE 0xa5

/* In front of the first guard. */
typedef struct head {
    size_t bytes;
    char   pad[56 + 4]; /* so that data is aligned to 4 bytes, not to more */
} head_t;

int fixture_isas(void)
{
    return (int)ddp_isa_detect() + 1;
}

ddp_stream_t *fixture_open(int isa)
{
    ddp_device_params_t params = DDP_DEVICE_PARAMS_INIT;
    ddp_device_t       *device = NULL;
    ddp_stream_t       *stream = NULL;

    params.isa = (ddp_isa_t)isa;
    ddp_assert_ok(ddp_device_create(&params, &device));
    ddp_assert_ok(ddp_stream_create(device, "test", &stream));
    return stream;
}

void fixture_close(ddp_stream_t *stream)
{
    ddp_device_t *device = ddp_stream_device(stream);

    ddp_assert_ok(ddp_stream_synchronize(stream, -1));
    ddp_stream_destroy(&stream);
    ddp_device_destroy(&device);
}

static unsigned char *guarded(size_t bytes)
{
    unsigned char *memory = malloc(sizeof(head_t) + 4 + 2 * GUARD_BYTES + bytes);
    head_t         head   = {.bytes = bytes};
    unsigned char *data;

    ck_assert_ptr_nonnull(memory);
    memcpy(memory, &head, sizeof(head));
    data = memory + sizeof(head_t) + 4 + GUARD_BYTES;
    memset(data - GUARD_BYTES, GUARD_VALUE, GUARD_BYTES);
    memset(data + bytes, GUARD_VALUE, GUARD_BYTES);
    return data;
}

float *fixture_new(size_t count)
{
    float *data = (float *)(void *)guarded(count * sizeof(float));

    for (size_t i = 0; i < count; i++) {
        data[i] = NAN;
    }
    return data;
}

double fixture_next(uint64_t *state)
{
    /* Knuth's MMIX multiplier; the upper bits are good enough for test data */
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (double)(*state >> 40) * 0x1p-24;
}

float *fixture_random(size_t count, uint32_t seed, float scale)
{
    float   *data  = fixture_new(count);
    uint64_t state = (uint64_t)seed * 0x9e3779b97f4a7c15ULL + 1;

    for (size_t i = 0; i < count; i++) {
        data[i] = scale * (float)(2.0 * fixture_next(&state) - 1.0);
    }
    return data;
}

uint8_t *fixture_bytes(size_t count)
{
    uint8_t *data = guarded(count);

    memset(data, 0, count);
    return data;
}

void fixture_free(void *data)
{
    unsigned char *bytes = data;
    bool           whole = true;
    head_t         head;

    if (bytes == NULL) {
        return;
    }
    memcpy(&head, bytes - GUARD_BYTES - 4 - sizeof(head_t), sizeof(head));
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        whole =
            whole && bytes[(ptrdiff_t)i - GUARD_BYTES] == GUARD_VALUE && bytes[head.bytes + i] == GUARD_VALUE;
    }
    ck_assert_msg(whole, "written outside of a buffer of %zu bytes", head.bytes);
    free(bytes - GUARD_BYTES - 4 - sizeof(head_t));
}

double fixture_error(const float *got, const double *wanted, size_t count, double floor)
{
    double worst = 0.0;

    for (size_t i = 0; i < count; i++) {
        const double error = fabs((double)got[i] - wanted[i]) / (fabs(wanted[i]) + floor);

        if (isnan((double)got[i]) != isnan(wanted[i])) {
            return INFINITY;
        }
        worst = error > worst ? error : worst;
    }
    return worst;
}
