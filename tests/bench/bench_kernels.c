/*
 * Rates of the matrix product in float32, in bfloat16 and of serial OpenBLAS, in turns in one process, and of
 * the convolution, by algorithm in turns; rates of all algorithms are those of the multiplications that
 * direct needs. Usage: bench_kernels [gemm|conv] [rounds]. DDP_ISA chooses the instruction set. Pin it to a
 * core: taskset -c 1.
 */
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "kernels/ops.h"

#define MAX_ROUNDS 1000
#define FAIL_TEXT  "bench_kernels: %s\n"

typedef struct lab {
    ddp_device_t *device;
    ddp_stream_t *stream;
    int           rounds;
} lab_t;

static void must(ddp_status_t status)
{
    if (status != DDP_OK) {
        fprintf(stderr, FAIL_TEXT, ddp_error_line());
        exit(1);
    }
}

/* As the program has them: on huge pages. */
static float *floats(lab_t *lab, size_t count)
{
    const ddp_allocator_t *allocator = ddp_device_allocator(lab->device);
    void                  *memory    = NULL;
    float                 *x;

    must(allocator->acquire(allocator->ctx, "bench", count * sizeof(float), &memory));
    x = memory;
    for (size_t i = 0; i < count; i++) {
        x[i] = (float)(i * 7919 % 1000) / 1000.0F - 0.5F;
    }
    return x;
}

static void give_back(lab_t *lab, float *x)
{
    const ddp_allocator_t *allocator = ddp_device_allocator(lab->device);

    allocator->release(allocator->ctx, x);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof(*x), compare);
    return x[n / 2];
}

/* Sorted by median(): the best is little disturbed by other programs. */
static double best(const double *sorted)
{
    return sorted[0];
}

static void blas(const ddp_gemm_args_t *g)
{
    cblas_sgemm(CblasRowMajor, g->transpose_a ? CblasTrans : CblasNoTrans,
                g->transpose_b ? CblasTrans : CblasNoTrans, (int)g->m, (int)g->n, (int)g->k, g->alpha, g->a,
                (int)g->lda, g->b, (int)g->ldb, g->beta, g->c, (int)g->ldc);
}

/* ns per call */
static double time_gemm(lab_t *lab, ddp_gemm_args_t *g, ddp_precision_t precision, int reps)
{
    const int64_t start = ddp_clock_ns();

    g->precision = precision;
    for (int i = 0; i < reps; i++) {
        must(ddp_op_gemm(lab->stream, g));
    }
    return (double)(ddp_clock_ns() - start) / reps;
}

static double time_blas(const ddp_gemm_args_t *g, int reps)
{
    const int64_t start = ddp_clock_ns();

    for (int i = 0; i < reps; i++) {
        blas(g);
    }
    return (double)(ddp_clock_ns() - start) / reps;
}

static void bench_gemm(lab_t *lab, size_t m, size_t n, size_t k, const char *kind)
{
    static double   ours[MAX_ROUNDS];
    static double   bf16[MAX_ROUNDS];
    static double   theirs[MAX_ROUNDS];
    const double    flop = 2.0 * (double)m * (double)n * (double)k;
    const int       reps = (int)(2e7 / flop) + 1;
    float          *a    = floats(lab, m * k);
    float          *b    = floats(lab, k * n);
    float          *c    = floats(lab, m * n);
    ddp_gemm_args_t g    = {.m = m, .n = n, .k = k, .alpha = 1.0F, .a = a, .b = b, .c = c, .ldc = n};

    g.transpose_a = kind[0] == 'T';
    g.transpose_b = kind[1] == 'T';
    g.lda         = g.transpose_a ? m : k;
    g.ldb         = g.transpose_b ? k : n;
    for (int r = -2; r < lab->rounds; r++) { /* two to warm up */
        const double float32 = time_gemm(lab, &g, DDP_PRECISION_FLOAT32, reps);
        const double rounded = time_gemm(lab, &g, DDP_PRECISION_BF16, reps);
        const double other   = time_blas(&g, reps);

        if (r >= 0) {
            ours[r]   = float32;
            bf16[r]   = rounded;
            theirs[r] = other;
        }
    }
    {
        const double x = median(ours, lab->rounds);
        const double y = median(theirs, lab->rounds);
        const double z = median(bf16, lab->rounds);

        printf("gemm %s %5zu x %5zu x %5zu   ours %6.1f   openblas %6.1f GFLOP/s   ratio %.2f (of minima "
               "%.2f)   bf16 %6.1f GFLOP/s (best %.1f)\n",
               kind, m, n, k, flop / x, flop / y, y / x, best(theirs) / best(ours), flop / z,
               flop / best(bf16));
    }
    give_back(lab, a);
    give_back(lab, b);
    give_back(lab, c);
}

#define N_ALGOS (DDP_CONV_WINOGRAD4 + 1)

/* A layer with its operands, and the times of each algorithm, ns. */
typedef struct conv {
    ddp_conv2d_args_t          f;
    ddp_conv2d_backward_args_t b;
    double                     forward[N_ALGOS][MAX_ROUNDS];
    double                     backward[N_ALGOS][MAX_ROUNDS];
} conv_t;

/* Ratio "direct / this" of minima: the best is little disturbed by other programs. */
static void print_conv(lab_t *lab, conv_t *conv, const char *name, int algo)
{
    const ddp_conv2d_shape_t *s = &conv->f.shape;
    const double              flop =
        2.0 * (double)(s->n * s->out_h * s->out_w * s->out_c) * (double)(s->kernel_h * s->kernel_w * s->in_c);
    const double t = median(conv->forward[algo], lab->rounds);
    const double u = median(conv->backward[algo], lab->rounds);

    printf("conv %3zux%-3zu %3zu -> %3zu, %zux%zu stride %zu, %3zu images, %-9s   forward %7.3f ms (%5.1f "
           "GFLOP/s, %.2f)   backward %7.3f ms (%5.1f, %.2f)\n",
           s->in_h, s->in_w, s->in_c, s->out_c, s->kernel_h, s->kernel_w, s->stride, s->n, name, t / 1e6,
           flop / t, best(conv->forward[DDP_CONV_DIRECT]) / best(conv->forward[algo]), u / 1e6,
           (conv->b.dx != NULL ? 2.0 : 1.0) * flop / u,
           best(conv->backward[DDP_CONV_DIRECT]) / best(conv->backward[algo]));
}

/* One round of `algo`; r < 0 is not kept. */
static void run_conv(lab_t *lab, conv_t *conv, int algo, int r)
{
    const int64_t start = ddp_clock_ns();
    int64_t       middle;

    conv->f.shape.algo = conv->b.shape.algo = (ddp_conv_algo_t)algo;
    must(ddp_op_conv2d(lab->stream, &conv->f));
    middle = ddp_clock_ns();
    must(ddp_op_conv2d_backward(lab->stream, &conv->b));
    if (r >= 0) {
        conv->forward[algo][r]  = (double)(middle - start);
        conv->backward[algo][r] = (double)(ddp_clock_ns() - middle);
    }
}

static void bench_conv(lab_t *lab, ddp_conv2d_shape_t s)
{
    static const char *const names[N_ALGOS] = {"auto", "direct", "winograd2", "winograd4"};
    static conv_t            conv;
    float                   *x, *w, *y, *dx, *dw, *bias, *scratch;
    size_t                   bytes = 0;
    int                      last  = DDP_CONV_WINOGRAD4;

    must(ddp_conv2d_shape_fill(&s));
    for (int algo = DDP_CONV_DIRECT; algo < N_ALGOS; algo++) {
        s.algo = (ddp_conv_algo_t)algo;
        if (ddp_conv2d_scratch_bytes(lab->device, &s) > bytes) {
            bytes = ddp_conv2d_scratch_bytes(lab->device, &s);
        }
    }
    if (ddp_conv2d_algo(&s) == DDP_CONV_DIRECT) {
        last = DDP_CONV_DIRECT;
    }
    x       = floats(lab, s.n * s.in_h * s.in_w * s.in_c);
    dx      = floats(lab, s.n * s.in_h * s.in_w * s.in_c);
    w       = floats(lab, s.out_c * s.in_c * s.kernel_h * s.kernel_w);
    dw      = floats(lab, s.out_c * s.in_c * s.kernel_h * s.kernel_w);
    bias    = floats(lab, s.out_c);
    y       = floats(lab, s.n * s.out_h * s.out_w * s.out_c);
    scratch = floats(lab, bytes / sizeof(float));
    conv.f  = (ddp_conv2d_args_t){
         .shape = s, .x = x, .w = w, .bias = bias, .act = DDP_ACT_RELU, .y = y, .scratch = scratch};
    conv.b = (ddp_conv2d_backward_args_t){
        .shape = s, .x = x, .w = w, .dy = y, .dx = s.in_c > 3 ? dx : NULL, .dw = dw, .scratch = scratch};
    for (int r = -2; r < lab->rounds; r++) {
        for (int algo = DDP_CONV_DIRECT; algo <= last; algo++) {
            run_conv(lab, &conv, algo, r);
        }
    }
    for (int algo = DDP_CONV_DIRECT; algo <= last; algo++) { /* direct is sorted first */
        print_conv(lab, &conv, names[algo], algo);
    }
    {
        float *all[] = {x, dx, w, dw, bias, y, scratch};

        for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
            give_back(lab, all[i]);
        }
    }
}

static void all_gemm(lab_t *lab)
{
    static const struct {
        size_t      m, n, k;
        const char *kind;
    } list[] = {
        {64, 512, 784, "NT"},   {64, 512, 512, "NT"},     {64, 10, 512, "NT"},      {64, 512, 512, "NN"},
        {64, 512, 10, "NN"},    {512, 784, 64, "TN"},     {512, 512, 64, "TN"},     {10, 512, 64, "TN"},
        {8, 512, 784, "NT"},    {8, 512, 512, "NN"},      {512, 784, 8, "TN"},      {16, 512, 784, "NT"},
        {128, 512, 784, "NT"},  {128, 512, 512, "NN"},    {512, 784, 128, "TN"},    {64, 128, 3136, "NT"},
        {64, 3136, 128, "NN"},  {128, 3136, 64, "TN"},    {256, 3072, 768, "NT"},   {256, 768, 3072, "NN"},
        {3072, 768, 256, "TN"}, {1024, 1024, 1024, "NN"}, {1024, 1024, 1024, "NT"}, {1024, 1024, 1024, "TN"},
        {2048, 768, 256, "NT"}, {2048, 256, 1024, "NT"},  {1024, 256, 2048, "TN"},  {256, 1024, 768, "NT"},
        {64, 256, 64, "NT"},    {64, 64, 256, "NN"},      {256, 64, 64, "TN"}};

    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        bench_gemm(lab, list[i].m, list[i].n, list[i].k, list[i].kind);
    }
}

static void all_conv(lab_t *lab)
{
    static const size_t list[][7] = {
        /* images, side, in, out, kernel, stride, pad */
        {64, 28, 1, 32, 3, 1, 1},  {64, 14, 32, 64, 3, 1, 1}, {8, 14, 32, 64, 3, 1, 1},
        {64, 32, 3, 16, 3, 1, 1},  {64, 32, 16, 16, 3, 1, 1}, {64, 16, 32, 32, 3, 1, 1},
        {64, 8, 64, 64, 3, 1, 1},  {64, 32, 16, 32, 3, 2, 1}, {64, 16, 32, 64, 3, 2, 1},
        {64, 32, 16, 32, 1, 2, 0}, {64, 7, 64, 128, 3, 1, 1}, {64, 28, 1, 32, 5, 1, 2}};

    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        const size_t *l = list[i];

        bench_conv(lab, (ddp_conv2d_shape_t){.n        = l[0],
                                             .in_h     = l[1],
                                             .in_w     = l[1],
                                             .in_c     = l[2],
                                             .out_c    = l[3],
                                             .kernel_h = l[4],
                                             .kernel_w = l[4],
                                             .stride   = l[5],
                                             .pad      = l[6]});
    }
}

int main(int argc, char **argv)
{
    ddp_device_params_t params = DDP_DEVICE_PARAMS_INIT;
    const char         *what   = argc > 1 ? argv[1] : "";
    lab_t               lab    = {.rounds = argc > 2 ? atoi(argv[2]) : 21};

    if (lab.rounds < 1 || lab.rounds > MAX_ROUNDS) {
        fprintf(stderr, FAIL_TEXT, "rounds must be 1 to 1000");
        return 2;
    }
    params.isa = ddp_isa_detect();
    must(ddp_device_create(&params, &lab.device));
    must(ddp_stream_create(lab.device, "bench", &lab.stream));
    printf("instruction set %s, bfloat16 %s, medians of %d rounds\n", ddp_isa_name(params.isa),
           ddp_device_has_bf16(lab.device) ? "by instruction" : "emulated", lab.rounds);
    if (strcmp(what, "conv") != 0) {
        all_gemm(&lab);
    }
    if (strcmp(what, "gemm") != 0) {
        all_conv(&lab);
    }
    ddp_stream_destroy(&lab.stream);
    ddp_device_destroy(&lab.device);
    return 0;
}
