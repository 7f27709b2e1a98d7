/* fault_streams [NAME]: two processes train one vector in three buckets, with a compute stream, a
 * communication stream and page-locked input in two buffers; one fault in the order of things is planted, or
 * none. Exit 0: nothing was noticed; 1: a wrong number; 2: an error of a call; a sanitizer has its own. */
#include "tests/cusim/fault_streams.h"

#include <math.h>
#include <nccl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BUCKETS = 3, COUNT = 1000, ALL = BUCKETS * COUNT, STEPS = 4, RANKS = 2 };

static const char *fault = "none";
static int         rank;

static void check(int result, const char *call)
{
    if (result != 0) {
        printf("rank %d: %s: %d\n", rank, call, result);
        exit(2);
    }
}

#define CHECK(call) check((int)(call), #call)

static bool is_planted(const char *name)
{
    return strcmp(fault, name) == 0;
}

static float input(int step, int of_rank, int i)
{
    return 0.01F * (float)((step * 7 + of_rank * 3 + i) % 11) - 0.05F;
}

typedef struct trainer {
    ncclComm_t   comm;
    cudaStream_t compute;
    cudaStream_t communication;
    cudaEvent_t  ready[BUCKETS];   /* the gradient is there */
    cudaEvent_t  reduced[BUCKETS]; /* and is the sum of all */
    cudaEvent_t  copied[2];        /* the input buffer may be written again */
    float       *values, *gradient, *x, *d_norm;
    float       *input[2], *norms; /* page-locked */
} trainer_t;

static void create(trainer_t *t, ncclUniqueId id)
{
    CHECK(ncclCommInitRank(&t->comm, RANKS, id, rank));
    CHECK(cudaStreamCreateWithFlags(&t->compute, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithPriority(&t->communication, cudaStreamNonBlocking, -5));
    for (int b = 0; b < BUCKETS; b++) {
        CHECK(cudaEventCreateWithFlags(&t->ready[b], cudaEventDisableTiming));
        CHECK(cudaEventCreateWithFlags(&t->reduced[b], cudaEventDisableTiming));
    }
    for (int k = 0; k < 2; k++) {
        CHECK(cudaEventCreateWithFlags(&t->copied[k], cudaEventDisableTiming));
        CHECK(cudaMallocHost((void **)&t->input[k], ALL * sizeof(float)));
    }
    CHECK(cudaMallocHost((void **)&t->norms, STEPS * sizeof(float)));
    memset(t->norms, 0, STEPS * sizeof(float));
    CHECK(cudaMalloc((void **)&t->values, ALL * sizeof(float)));
    CHECK(cudaMalloc((void **)&t->gradient, ALL * sizeof(float)));
    CHECK(cudaMalloc((void **)&t->x, ALL * sizeof(float)));
    CHECK(cudaMalloc((void **)&t->d_norm, sizeof(float)));
    CHECK(cudaMemsetAsync(t->values, 0, ALL * sizeof(float), t->compute));
}

static void load(trainer_t *t, int step)
{
    float *buffer = t->input[step % 2];

    if (step >= 2 && !is_planted("pinned_reuse")) {
        CHECK(cudaEventSynchronize(t->copied[step % 2]));
    }
    for (int i = 0; i < ALL; i++) {
        buffer[i] = input(step, rank, i);
    }
    CHECK(cudaMemcpyAsync(t->x, buffer, ALL * sizeof(float), cudaMemcpyHostToDevice, t->compute));
    CHECK(cudaEventRecord(t->copied[step % 2], t->compute));
}

static void backward(trainer_t *t, int step)
{
    for (int b = BUCKETS - 1; b >= 0; b--) {
        float *g     = t->gradient + b * COUNT;
        size_t count = is_planted("count_mismatch") && rank == 1 && step == 2 && b == 1 ? COUNT - 1 : COUNT;
        toy_gradient(g, t->values + b * COUNT, t->x + b * COUNT, COUNT, t->compute);
        CHECK(cudaEventRecord(t->ready[b], t->compute));
        if (!is_planted("no_ready_wait")) {
            CHECK(cudaStreamWaitEvent(t->communication, t->ready[is_planted("wrong_event") && b == 1 ? 2 : b],
                                      0));
        }
        CHECK(ncclAllReduce(g, g, count, ncclFloat32, ncclAvg, t->comm, t->communication));
        CHECK(cudaEventRecord(t->reduced[b], t->communication));
    }
}

static void update(trainer_t *t, int step)
{
    /* With this fault the next step's gradient overwrites what the communication stream still reads. */
    cudaStream_t stream = is_planted("late_norm") ? t->communication : t->compute;

    for (int b = BUCKETS - 1; b >= 0; b--) {
        if (!is_planted("no_reduced_wait")) {
            CHECK(cudaStreamWaitEvent(t->compute, t->reduced[b], 0));
        }
    }
    toy_norm(t->d_norm, t->gradient, ALL, stream);
    CHECK(cudaMemcpyAsync(t->norms + step, t->d_norm, sizeof(float), cudaMemcpyDeviceToHost, stream));
    toy_update(t->values, t->gradient, 0.1F, ALL, t->compute);
    if (is_planted("host_deref") && step == 1) {
        printf("%f\n", (double)t->values[0]);
    }
}

/* The largest error of the values and norms, against the same steps on the host. */
static double compare(const float *values, const float *norms)
{
    static float expected[ALL];
    double       most = 0.0;

    for (int s = 0; s < STEPS; s++) {
        double norm = 0.0;
        double error;
        for (int i = 0; i < ALL; i++) {
            float half = expected[i] * 0.5F;
            float g    = ((half + input(s, 0, i)) + (half + input(s, 1, i))) / 2.0F;
            norm += (double)g * g;
            expected[i] -= 0.1F * g;
        }
        error = fabs(norms[s] - norm) / (1.0 + norm);
        most  = error > most || error != error ? error : most;
    }
    for (int i = 0; i < ALL; i++) {
        double error = fabs((double)values[i] - (double)expected[i]);
        most         = error > most || error != error ? error : most;
    }
    return most;
}

int main(int argc, char **argv)
{
    static float values[ALL];
    trainer_t    t;
    ncclUniqueId id;
    float        norms[STEPS];
    pid_t        other;
    int          status = 0;
    bool         is_wrong;

    fault = argc > 1 ? argv[1] : "none";
    CHECK(ncclGetUniqueId(&id)); /* before the fork, which stands for the broadcast of a launcher */
    other = fork();
    rank  = other == 0 ? 1 : 0;
    create(&t, id);
    for (int s = 0; s < STEPS; s++) {
        load(&t, s);
        backward(&t, s);
        update(&t, s);
    }
    if (!is_planted("no_sync_loss")) {
        CHECK(cudaDeviceSynchronize());
    }
    memcpy(norms, t.norms, sizeof(norms));
    CHECK(cudaMemcpyAsync(values, t.values, sizeof(values), cudaMemcpyDeviceToHost, t.compute));
    CHECK(cudaStreamSynchronize(t.compute));
    CHECK(cudaDeviceSynchronize());
    is_wrong = !(compare(values, norms) <= 1e-5);
    if (rank == 0) {
        waitpid(other, &status, 0);
    }
    if (is_wrong || status != 0) {
        printf("rank %d: %s, status %d of the other\n", rank, is_wrong ? "wrong numbers" : "right numbers",
               status);
    }
    return is_wrong ? 1 : status == 0 ? 0 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
