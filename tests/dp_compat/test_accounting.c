/* Bytes held and moved, phases and spans: closed forms, and what the devices' allocators say. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nn/params.h"
#include "tests/dp_compat/dp_job.h"

#define CLASSES 5
#define ROW     72 /* 6 x 6 x 2 */

typedef struct seen {
    ddp_dp_report_t        step;
    ddp_dp_device_report_t device[8];
} seen_t;

static void look(const dp_job_t *job, seen_t *seen)
{
    ddp_dp_report(job->dp, &seen->step, seen->device);
}

static dp_setup_t with(size_t devices, size_t micro_batches, ddp_dp_loss_t loss_at)
{
    dp_setup_t setup = DP_SETUP_INIT;

    setup.devices               = devices;
    setup.reducer.micro_batches = micro_batches;
    setup.loss_at               = loss_at;
    return setup;
}

static size_t sum_of(const ddp_dp_memory_t *memory)
{
    return memory->parameters + memory->gradients + memory->moments + memory->activations + memory->outputs +
           memory->inputs + memory->scratch;
}

/* Three devices, 12 samples: 4 each. Device 0 has AdamW's two moments and the arenas of open subtrees: (0-1)
 * and 2 at the end, and 1 until it is merged. */
START_TEST(memory_by_what_it_is_for)
{
    const dp_setup_t     setup = with(3, 3, DDP_DP_LOSS_OUTSIDE);
    dp_job_t             job;
    seen_t               seen;
    size_t               flat;
    ddp_reducer_plan_t   plan;
    ddp_reducer_params_t reducer = setup.reducer;

    dp_job_open(&job, &setup);
    flat              = ddp_params_total(job.params) * sizeof(float);
    reducer.tensors   = ddp_params_descs(job.params);
    reducer.n_tensors = ddp_params_count(job.params);
    ddp_assert_ok(ddp_reducer_plan(&reducer, 1, 0, &plan, NULL, 0));
    (void)dp_job_step(&job, 12);
    look(&job, &seen);
    for (size_t k = 0; k < 3; k++) {
        const ddp_dp_memory_t *memory = &seen.device[k].memory;

        ck_assert_int_eq(seen.device[k].id, (int)k);
        ck_assert_uint_eq(memory->parameters, flat);
        ck_assert_uint_eq(memory->moments, k == 0 ? 2 * flat : 0);
        ck_assert_uint_eq(memory->gradients, k == 0 ? plan.arenas * flat : flat);
        ck_assert_uint_eq(memory->inputs, k == 0 ? 0 : 4 * ROW * sizeof(float));
        ck_assert_uint_ge(memory->activations, 4 * (24 + 17 + CLASSES) * sizeof(float));
        ck_assert_uint_eq(sum_of(memory), memory->total);
        ck_assert_uint_ge(memory->peak, memory->total);
        ck_assert_uint_eq(memory->cap, 0);
    }
    ck_assert_uint_ge(plan.arenas, 2);
    ck_assert_uint_le(plan.arenas, 3);
    ck_assert_uint_eq(seen.device[0].memory.total, ddp_device_memory(job.device).held);
    /* the gathered outputs, and three tapes with a gradient each; the others have that of their own output */
    ck_assert_uint_ge(seen.device[0].memory.outputs, 2 * 12 * CLASSES * sizeof(float));
    ck_assert_uint_eq(seen.device[1].memory.outputs, 4 * CLASSES * sizeof(float));
    dp_job_close(&job);
}
END_TEST

START_TEST(what_is_charged_goes_back)
{
    const dp_setup_t setup = with(2, 2, DDP_DP_LOSS_OUTSIDE);
    dp_job_t         job;

    dp_job_open(&job, &setup); /* and no step, after which kernels keep their scratch */
    ck_assert_uint_gt(ddp_device_memory(job.device).held, 0);
    ddp_dp_destroy(&job.dp);
    ck_assert_uint_eq(ddp_device_memory(job.device).held, 0);
    dp_job_close(&job);
}
END_TEST

static uint64_t trained_bytes(const dp_job_t *job)
{
    return ddp_params_elements(job->params) * sizeof(float);
}

static void assert_received(const seen_t *seen, size_t k, ddp_dp_phase_t phase, uint64_t bytes)
{
    ck_assert_msg(seen->device[k].received_bytes[phase] == bytes,
                  "device %zu received %llu bytes in %s, not %llu", k,
                  (unsigned long long)seen->device[k].received_bytes[phase], ddp_dp_phase_name(phase),
                  (unsigned long long)bytes);
}

static void assert_sent(const seen_t *seen, size_t k, ddp_dp_phase_t phase, uint64_t bytes)
{
    ck_assert_msg(seen->device[k].sent_bytes[phase] == bytes, "device %zu sent %llu bytes in %s, not %llu", k,
                  (unsigned long long)seen->device[k].sent_bytes[phase], ddp_dp_phase_name(phase),
                  (unsigned long long)bytes);
}

/* What one device sends another one receives. */
static void assert_balance(const seen_t *seen, size_t n)
{
    for (int p = 0; p < DDP_DP_PHASES; p++) {
        uint64_t sent     = 0;
        uint64_t received = 0;

        for (size_t k = 0; k < n; k++) {
            sent += seen->device[k].sent_bytes[p];
            received += seen->device[k].received_bytes[p];
        }
        ck_assert_msg(sent == received, "%s: %llu bytes sent, %llu received",
                      ddp_dp_phase_name((ddp_dp_phase_t)p), (unsigned long long)sent,
                      (unsigned long long)received);
    }
}

/* 11 samples on 3 devices: 4, 4, 3. The loss on device 0, then on device 2. */
START_TEST(bytes_moved_in_each_phase)
{
    const size_t samples[3] = {4, 4, 3};
    dp_setup_t   setup      = with(3, 3, DDP_DP_LOSS_OUTSIDE);
    const size_t o          = _i == 0 ? 0 : 2;
    dp_job_t     job;
    seen_t       seen;

    setup.output_device = (int)o;
    dp_job_open(&job, &setup);
    (void)dp_job_step(&job, 12);
    (void)dp_job_step(&job, 11);
    look(&job, &seen);
    for (size_t k = 0; k < 3; k++) {
        const uint64_t labels = o > 0 && k == o ? 11 * sizeof(int32_t) : 0;
        const uint64_t output = samples[k] * CLASSES * sizeof(float);
        const uint64_t flat   = ddp_params_total(job.params) * sizeof(float);

        assert_received(&seen, k, DDP_DP_REPLICATE, k > 0 ? flat : 0);
        assert_sent(&seen, k, DDP_DP_REPLICATE, k > 0 ? 0 : 2 * flat);
        assert_received(&seen, k, DDP_DP_SCATTER, (k > 0 ? samples[k] * ROW * sizeof(float) : 0) + labels);
        assert_received(&seen, k, DDP_DP_FORWARD, 0);
        assert_received(&seen, k, DDP_DP_GATHER, k == o ? 11 * CLASSES * sizeof(float) - output : 0);
        assert_sent(&seen, k, DDP_DP_GATHER, k == o ? 0 : output);
        assert_received(&seen, k, DDP_DP_LOSS, k == o ? 0 : output);
        assert_received(&seen, k, DDP_DP_REDUCE, k == 0 ? 2 * trained_bytes(&job) : 0);
        assert_sent(&seen, k, DDP_DP_REDUCE, k == 0 ? 0 : trained_bytes(&job));
        assert_received(&seen, k, DDP_DP_BACKWARD, 0);
        assert_received(&seen, k, DDP_DP_OPTIMIZER, 0);
    }
    assert_balance(&seen, 3);
    dp_job_close(&job);
}
END_TEST

/* Two rounds: parameters are copied once, samples and gradients twice. A batch of two has one device idle. */
START_TEST(bytes_of_several_rounds_and_of_idle_devices)
{
    const dp_setup_t setup = with(2, 4, DDP_DP_LOSS_INSIDE);
    dp_job_t         job;
    seen_t           seen;
    uint64_t         flat;

    dp_job_open(&job, &setup);
    flat = ddp_params_total(job.params) * sizeof(float);
    (void)dp_job_step(&job, 12);
    look(&job, &seen);
    ck_assert_uint_eq(seen.step.n_devices, 2);
    ck_assert_uint_eq(seen.step.rounds, 2);
    assert_received(&seen, 1, DDP_DP_REPLICATE, flat);
    assert_received(&seen, 1, DDP_DP_SCATTER, 6 * (ROW * sizeof(float) + sizeof(int32_t)));
    assert_received(&seen, 0, DDP_DP_GATHER, 0);
    assert_received(&seen, 0, DDP_DP_REDUCE, 2 * trained_bytes(&job));
    assert_balance(&seen, 2);
    (void)dp_job_step(&job, 1);
    look(&job, &seen);
    ck_assert_uint_eq(seen.step.rounds, 1);
    assert_received(&seen, 1, DDP_DP_REPLICATE, 0);
    ck_assert_int_eq(seen.device[1].busy_ns[DDP_DP_FORWARD], 0);
    dp_job_close(&job);
}
END_TEST

START_TEST(one_device_moves_nothing)
{
    const dp_setup_t setup = with(1, 4, DDP_DP_LOSS_OUTSIDE);
    dp_job_t         job;
    seen_t           seen;

    dp_job_open(&job, &setup);
    (void)dp_job_step(&job, 12);
    look(&job, &seen);
    for (int p = 0; p < DDP_DP_PHASES; p++) {
        assert_received(&seen, 0, (ddp_dp_phase_t)p, 0);
        assert_sent(&seen, 0, (ddp_dp_phase_t)p, 0);
    }
    ck_assert_uint_eq(seen.device[0].memory.outputs, 0);
    ck_assert_uint_eq(seen.device[0].memory.inputs, 0);
    ck_assert_int_eq(seen.step.phase_ns[DDP_DP_GATHER], 0);
    ck_assert_int_gt(seen.step.phase_ns[DDP_DP_FORWARD], 0);
    ck_assert_int_gt(seen.step.phase_ns[DDP_DP_OPTIMIZER], 0);
    dp_job_close(&job);
}
END_TEST

/* Loop: devices 1 .. 4. */
START_TEST(phases_fill_the_step_and_spans_lie_in_it)
{
    const dp_setup_t setup = with((size_t)_i, 4, DDP_DP_LOSS_OUTSIDE);
    ddp_dp_span_t    span[256];
    dp_job_t         job;
    seen_t           seen;
    int64_t          sum = 0;
    int64_t          busy[8][DDP_DP_PHASES];
    size_t           n;

    dp_job_open(&job, &setup);
    (void)dp_job_step(&job, 12);
    (void)dp_job_step(&job, 12);
    look(&job, &seen);
    for (int p = 0; p < DDP_DP_PHASES; p++) {
        ck_assert_int_ge(seen.step.phase_ns[p], 0);
        sum += seen.step.phase_ns[p];
    }
    ck_assert_int_eq(sum, seen.step.step_ns);
    memset(busy, 0, sizeof(busy));
    n = ddp_dp_spans(job.dp, span, 256);
    ck_assert_uint_gt(n, 4);
    ck_assert_uint_lt(n, 256);
    ck_assert_uint_eq(ddp_dp_spans(job.dp, NULL, 0), n);
    for (size_t i = 0; i < n; i++) {
        ck_assert_int_le(0, span[i].start_ns);
        ck_assert_int_le(span[i].start_ns, span[i].end_ns);
        ck_assert_int_le(span[i].end_ns, seen.step.step_ns);
        if (i > 0 && span[i].device == span[i - 1].device) {
            ck_assert_int_le(span[i - 1].end_ns, span[i].start_ns);
        }
        busy[span[i].device][span[i].phase] += span[i].end_ns - span[i].start_ns;
    }
    for (size_t k = 0; k < (size_t)_i; k++) {
        ck_assert_int_eq(memcmp(busy[k], seen.device[k].busy_ns, sizeof(busy[k])), 0);
        ck_assert_int_gt(busy[k][DDP_DP_FORWARD], 0);
        ck_assert_int_gt(busy[k][DDP_DP_BACKWARD], 0);
        ck_assert_int_eq(busy[k][DDP_DP_OPTIMIZER] > 0, k == 0);
    }
    dp_job_close(&job);
}
END_TEST

static size_t resident_kb(void)
{
    FILE  *file  = fopen("/proc/self/statm", "r");
    size_t pages = 0;

    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%*u %zu", &pages), 1);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE) / 1024;
}

/* Bytes on the heap; what a sanitizer's allocator does is its own. */
static size_t heap_bytes(void)
{
    return mallinfo2().uordblks;
}

#if defined(__SANITIZE_THREAD__) /* too slow */
#define MANY 100
#else
#define MANY 1000
#endif

START_TEST(a_thousand_steps_take_no_more_memory_than_ten)
{
    dp_setup_t setup = with(2, 4, DDP_DP_LOSS_OUTSIDE);
    dp_job_t   job;
    seen_t     before, after;
    size_t     heap, resident;

    setup.reducer.clip_norm = 1;
    dp_job_open(&job, &setup);
    for (int s = 0; s < 10; s++) {
        (void)dp_job_step(&job, 12);
    }
    look(&job, &before);
    heap     = heap_bytes();
    resident = resident_kb();
    for (int s = 0; s < MANY; s++) {
        ddp_step_result_t result;
        const ddp_step_t  step = {.lr = 1e-4F, .samples = (size_t)(12 - s % 3)};

        ddp_assert_ok(ddp_dp_step(job.dp, &step, &result));
    }
    look(&job, &after);
    ck_assert_uint_eq(heap_bytes(), heap);
    ck_assert_uint_le(resident_kb(), resident + 1024);
    for (size_t k = 0; k < 2; k++) {
        ck_assert_uint_eq(after.device[k].memory.total, before.device[k].memory.total);
        ck_assert_uint_eq(after.device[k].memory.peak, before.device[k].memory.peak);
    }
    dp_job_close(&job);
}
END_TEST

START_TEST(phases_have_names)
{
    ck_assert_str_eq(ddp_dp_phase_name(DDP_DP_REPLICATE), "replicate");
    ck_assert_str_eq(ddp_dp_phase_name(DDP_DP_OPTIMIZER), "optimizer");
    ck_assert_str_eq(ddp_dp_phase_name(DDP_DP_PHASES), "unknown phase");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dp accounting");
    TCase *tcase = tcase_create("accounting");

    tcase_add_test(tcase, memory_by_what_it_is_for);
    tcase_add_test(tcase, what_is_charged_goes_back);
    tcase_add_loop_test(tcase, bytes_moved_in_each_phase, 0, 2);
    tcase_add_test(tcase, bytes_of_several_rounds_and_of_idle_devices);
    tcase_add_test(tcase, one_device_moves_nothing);
    tcase_add_loop_test(tcase, phases_fill_the_step_and_spans_lie_in_it, 1, 5);
    tcase_add_test(tcase, a_thousand_steps_take_no_more_memory_than_ten);
    tcase_add_test(tcase, phases_have_names);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
