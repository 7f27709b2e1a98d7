/* fault_kernels [NAME]: runs the kernels with one fault planted in them, or none, and compares with float64.
 * Exit 0: nothing was noticed; 1: a wrong number; 2: an error of a call; a sanitizer has its own. */
#include "tests/cusim/fault_kernels.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 12, WIDTH = 200, CLASSES = 300, PITCH = 333, HEADS = 2, LENGTH = 70, HEAD = 16 };

static const char *const names[FAULT_COUNT] = {
    "none",
    "no_barrier_before_reuse",
    "no_barrier_after_partial_sum",
    "no_first_barrier_of_max",
    "no_barrier_after_partial_max",
    "global_off_by_one",
    "shared_not_zeroed",
    "no_barrier_after_zeroing",
    "plain_add_to_shared",
    "no_barrier_before_flush",
    "plain_add_across_blocks",
    "one_thread_returns",
    "no_barrier_before_overwrite",
    "no_barrier_before_reload",
    "shared_off_by_one",
    "no_barrier_after_load",
    "static_shared_not_set",
    "static_shared_off_by_one",
    "vector_misaligned",
    "shuffle_with_exited_lanes",
    "barrier_and_shuffle",
    "two_barriers",
    "shuffle_from_absent_lane",
    "lane_outside_its_mask",
    "trap",
    "host_pointer",
    "too_much_shared",
    "block_too_large",
    "copy_too_long",
    "copy_kind",
};

static cudaStream_t stream;
static fault_t      fault;
static int          wrong;
static uint32_t     seed = 1;

static void check(cudaError_t error, const char *call)
{
    if (error != cudaSuccess) {
        printf("%s: %s\n", call, cudaGetErrorString(error));
        exit(2);
    }
}

#define CHECK(call) check((call), #call)

static void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);

    if (memory == NULL) {
        exit(3);
    }
    return memory;
}

/* Numbers in [-1, 1). */
static float *random_numbers(size_t count)
{
    float *values = allocate(count * sizeof(float));

    for (size_t i = 0; i < count; i++) {
        seed      = seed * 1664525U + 1013904223U;
        values[i] = (float)(seed >> 8) / 8388608.0F - 1.0F;
    }
    return values;
}

/* A copy of `host` in device memory; NULL: zeros. */
static void *to_device(const void *host, size_t bytes)
{
    void *device = NULL;

    CHECK(cudaMalloc(&device, bytes));
    if (host != NULL) {
        CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream));
    } else {
        CHECK(cudaMemsetAsync(device, 0, bytes, stream));
    }
    return device;
}

static float *to_host(const void *device, size_t count)
{
    float *host = allocate(count * sizeof(float));

    CHECK(cudaMemcpyAsync(host, device, count * sizeof(float), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    return host;
}

static void compare(const char *what, const void *device, const double *expected, size_t count,
                    double tolerance)
{
    float *got  = to_host(device, count);
    double most = 0.0;

    for (size_t i = 0; i < count; i++) {
        double error = fabs((double)got[i] - expected[i]);
        most         = error > most || error != error ? error : most;
    }
    if (!(most <= tolerance)) {
        printf("%s: off by %g\n", what, most);
        wrong = 1;
    }
    free(got);
}

static void test_layer_norm(void)
{
    enum { COUNT = ROWS * WIDTH };
    float *x = random_numbers(COUNT), *w = random_numbers(WIDTH), *b = random_numbers(WIDTH);
    float *dy  = random_numbers(COUNT);
    float *d_x = to_device(x, COUNT * sizeof(float)), *d_w = to_device(w, WIDTH * sizeof(float));
    float *d_b = to_device(b, WIDTH * sizeof(float)), *d_dy = to_device(dy, COUNT * sizeof(float));
    float *d_y = to_device(NULL, COUNT * sizeof(float)), *d_mean = to_device(NULL, ROWS * sizeof(float));
    float *d_rstd = to_device(NULL, ROWS * sizeof(float)), *d_dx = to_device(NULL, COUNT * sizeof(float));
    float *d_dw = to_device(NULL, WIDTH * sizeof(float)), *d_db = to_device(NULL, WIDTH * sizeof(float));
    static double y[COUNT], dx[COUNT], dw[WIDTH], db[WIDTH];

    layer_norm(d_x, d_w, d_b, d_y, d_mean, d_rstd, ROWS, WIDTH, fault, stream);
    layer_norm_backward(d_dy, d_x, d_w, d_mean, d_rstd, d_dx, d_dw, d_db, ROWS, WIDTH, fault, stream);
    for (int r = 0; r < ROWS; r++) {
        const float *row  = x + r * WIDTH;
        const float *grad = dy + r * WIDTH;
        double       mean = 0.0, square = 0.0, rstd, a = 0.0, c = 0.0;
        for (int i = 0; i < WIDTH; i++) {
            mean += row[i] / (double)WIDTH;
        }
        for (int i = 0; i < WIDTH; i++) {
            square += (row[i] - mean) * (row[i] - mean) / WIDTH;
        }
        rstd = 1.0 / sqrt(square + 1e-5);
        for (int i = 0; i < WIDTH; i++) {
            double n         = (row[i] - mean) * rstd;
            y[r * WIDTH + i] = n * w[i] + b[i];
            a += (double)w[i] * grad[i] / WIDTH;
            c += w[i] * grad[i] * n / WIDTH;
            dw[i] += grad[i] * n;
            db[i] += grad[i];
        }
        for (int i = 0; i < WIDTH; i++) {
            dx[r * WIDTH + i] = ((double)w[i] * grad[i] - a - (row[i] - mean) * rstd * c) * rstd;
        }
    }
    compare("layer norm", d_y, y, COUNT, 1e-5);
    compare("layer norm dx", d_dx, dx, COUNT, 1e-5);
    compare("layer norm dw", d_dw, dw, WIDTH, 1e-4);
    compare("layer norm db", d_db, db, WIDTH, 1e-4);
}

static void test_cross_entropy(void)
{
    enum { COUNT = ROWS * PITCH };
    float        *logits = random_numbers(COUNT);
    float        *d_logits, *d_loss;
    int           labels[ROWS];
    static double gradient[COUNT], loss[ROWS];

    for (int r = 0; r < ROWS; r++) {
        double sum = 0.0;
        labels[r]  = r * 131 % CLASSES;
        for (int i = 0; i < CLASSES; i++) {
            sum += exp(logits[r * PITCH + i]);
        }
        loss[r] = log(sum) - logits[r * PITCH + labels[r]];
        for (int i = 0; i < CLASSES; i++) {
            gradient[r * PITCH + i] = (exp(logits[r * PITCH + i]) / sum - (i == labels[r])) * 0.5;
        }
    }
    d_logits = to_device(logits, COUNT * sizeof(float));
    d_loss   = to_device(NULL, ROWS * sizeof(float));
    cross_entropy(d_logits, to_device(labels, sizeof(labels)), d_loss, 0.5F, ROWS, CLASSES, PITCH, fault,
                  stream);
    compare("loss", d_loss, loss, ROWS, 1e-5);
    compare("gradient of the loss", d_logits, gradient, COUNT, 1e-5);
}

/* Numbers that bfloat16 holds, as floats and as bfloat16 in device memory. */
static void *bfloat16_numbers(float **values_p, size_t count)
{
    float    *values = random_numbers(count);
    uint16_t *halves = allocate(count * sizeof(uint16_t));
    void     *device;

    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof(bits));
        bits &= 0xffff0000U;
        halves[i] = (uint16_t)(bits >> 16);
        memcpy(&values[i], &bits, sizeof(bits));
    }
    device    = to_device(halves, count * sizeof(uint16_t));
    *values_p = values;
    free(halves);
    return device;
}

static void test_attention(void)
{
    enum { COUNT = HEADS * LENGTH * HEAD };
    float        *q, *k, *v;
    void         *d_q = bfloat16_numbers(&q, COUNT), *d_k = bfloat16_numbers(&k, COUNT);
    void         *d_v = bfloat16_numbers(&v, COUNT);
    float        *d_o = to_device(NULL, COUNT * sizeof(float));
    static double o[COUNT];

    attention(d_q, d_k, d_v, d_o, HEADS, LENGTH, HEAD, fault, stream);
    for (int row = 0; row < HEADS * LENGTH; row++) {
        int    first = row / LENGTH * LENGTH;
        double p[LENGTH], sum = 0.0;
        for (int j = first; j <= row; j++) {
            double product = 0.0;
            for (int d = 0; d < HEAD; d++) {
                product += (double)q[row * HEAD + d] * k[j * HEAD + d];
            }
            p[j - first] = exp(product / sqrt(HEAD));
            sum += p[j - first];
        }
        for (int j = first; j <= row; j++) {
            for (int d = 0; d < HEAD; d++) {
                o[row * HEAD + d] += p[j - first] / sum * v[j * HEAD + d];
            }
        }
    }
    compare("attention", d_o, o, COUNT, 1e-5);
}

static void test_neighbours(void)
{
    float *x   = random_numbers(WIDTH + 4);
    float *d_y = to_device(NULL, WIDTH * sizeof(float));
    double y[WIDTH];

    for (int i = 0; i < WIDTH; i++) {
        y[i] = (double)(float)(x[i] + x[i + 1]);
    }
    add_neighbours(to_device(x, (WIDTH + 4) * sizeof(float)), d_y, WIDTH, fault, stream);
    compare("neighbours", d_y, y, WIDTH, 0.0);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "none";

    while (fault < FAULT_COUNT && strcmp(name, names[fault]) != 0) {
        fault++;
    }
    if (fault == FAULT_COUNT) {
        printf("no fault '%s'\n", name);
        return 3;
    }
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (fault >= FAULT_SHUFFLE_WITH_EXITED_LANES) {
        diagnose(to_device(NULL, 64 * sizeof(float)), fault, stream);
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaGetLastError());
        return 0;
    }
    test_layer_norm();
    test_cross_entropy();
    test_attention();
    test_neighbours();
    CHECK(cudaGetLastError());
    return wrong;
}
