/* Made-up figures of a comparison, written as `ddptrain compare` does: for tests of its page without a run.
 * Usage: test_make_compare FOLDER DEVICES... */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "launcher/compare.h"

#define STEPS 9
#define MIB   1048576.0

static const char *const dp_phases[] = {"replicate", "scatter",  "forward", "gather",
                                        "loss",      "backward", "reduce",  "optimizer"};
static const double      dp_ms[]     = {4, 1, 10, 2, 1, 20, 5, 6}; /* on one device, forward and backward */

static void add(ddp_compare_series_t *series, double value)
{
    if (!ddp_compare_add(series, value)) {
        abort();
    }
}

static void add_phase(ddp_compare_result_t *result, const char *name, double ms)
{
    ddp_compare_phase_t *phase = &result->phases[result->n_phases++];

    (void)snprintf(phase->name, sizeof(phase->name), "%s", name);
    add(&phase->series, ms);
}

static void add_span(ddp_compare_result_t *result, const char *name, size_t device, double start, double ms)
{
    ddp_compare_span_t *span = &result->spans[result->n_spans++];

    (void)snprintf(span->phase, sizeof(span->phase), "%s", name);
    span->device   = device;
    span->start_ms = start;
    span->end_ms   = start + ms;
}

static double fill_dp(ddp_compare_result_t *result)
{
    double at = 0;

    for (size_t p = 0; p < sizeof(dp_ms) / sizeof(dp_ms[0]); p++) {
        const double ms     = p == 2 || p == 5 ? dp_ms[p] / (double)result->devices : dp_ms[p];
        const bool   on_all = p < 3 || p == 5;

        add_phase(result, dp_phases[p], ms);
        for (size_t d = 0; d < (on_all ? result->devices : 1); d++) {
            add_span(result, dp_phases[p], d, at, d == 0 ? ms : 0.9 * ms);
        }
        at += ms;
    }
    return at;
}

static double fill_ddp(ddp_compare_result_t *result)
{
    const double forward  = 11.0 / (double)result->devices;
    const double backward = 24.0 / (double)result->devices;

    add_phase(result, "forward", forward);
    add_phase(result, "backward", backward);
    add_phase(result, "exposed", 1.5);
    for (size_t d = 0; d < result->devices; d++) {
        add_span(result, "forward", d, -0.3 * (double)(d % 2), forward);
        add_span(result, "backward", d, forward, backward);
        add_span(result, "reduce", d, forward + 0.5 * backward, 0.2 * backward);
        add_span(result, "reduce", d, forward + 0.8 * backward, 0.2 * backward + 1);
        add_span(result, "exposed", d, forward + backward, 1.5);
    }
    return forward + backward + 1.5;
}

static void fill_devices(ddp_compare_result_t *result)
{
    const bool is_dp = result->way == DDP_COMPARE_DP;

    for (size_t d = 0; d < result->devices; d++) {
        ddp_compare_device_t *device = &result->device[d];
        const double          share  = is_dp ? 1 : 1 / (double)result->devices;

        device->bytes[DDP_COMPARE_PARAMETERS]  = 40 * MIB * share;
        device->bytes[DDP_COMPARE_GRADIENTS]   = 40 * MIB;
        device->bytes[DDP_COMPARE_MOMENTS]     = is_dp && d > 0 ? 0 : 80 * MIB * share;
        device->bytes[DDP_COMPARE_ACTIVATIONS] = 120 * MIB / (double)result->devices;
        device->bytes[DDP_COMPARE_OUTPUTS]     = is_dp && d == 0 ? 15 * MIB : 0;
        device->bytes[DDP_COMPARE_OTHER]       = 3 * MIB;
        device->total                          = 0;
        for (size_t kind = 0; kind < DDP_COMPARE_MEMORY_KINDS; kind++) {
            device->total += device->bytes[kind];
        }
        device->peak    = device->total;
        device->busy_ms = is_dp && d == 0 ? 30 : 20;
    }
}

static void fill(ddp_compare_result_t *result)
{
    double ms = 37;

    result->rounds  = 1;
    result->n_spans = 0;
    result->spans   = calloc(16 * result->devices, sizeof(*result->spans));
    result->links   = calloc(2 * result->devices, sizeof(*result->links));
    if (result->spans == NULL || result->links == NULL) {
        abort();
    }
    ms = result->way == DDP_COMPARE_DP ? fill_dp(result) : fill_ddp(result);
    for (size_t s = 0; s < STEPS; s++) {
        add(&result->step, ms * (1 + 0.02 * ((double)s - STEPS / 2)));
        add(&result->exposed, result->way == DDP_COMPARE_DP ? 19 : 1.5);
        add(&result->data, 0.1);
    }
    for (size_t d = 1; d < result->devices; d++) {
        result->links[result->n_links++] = (ddp_compare_link_t){0, d, 40 * MIB};
        result->links[result->n_links++] = (ddp_compare_link_t){d, 0, 44 * MIB};
    }
    result->moved_bytes = 84 * MIB * (double)(result->devices - 1);
    (void)snprintf(result->weights, sizeof(result->weights), "0123456789abcdef0123456789abcdef");
    fill_devices(result);
}

int main(int argc, char **argv)
{
    static ddp_compare_t compare;

    if (argc < 3) {
        return 2;
    }
    ddp_config_defaults(&compare.config);
    compare.results                  = calloc(DDP_COMPARE_MAX_RESULTS, sizeof(*compare.results));
    compare.config.train.batch       = 64;
    compare.micro_batches            = 8;
    compare.cores                    = 8;
    compare.parameters               = 1e7;
    compare.options.steps            = STEPS + 3;
    compare.options.warmup           = 3;
    compare.options.rounds           = 1;
    compare.config.train.micro_batch = 8;
    (void)snprintf(compare.folder, sizeof(compare.folder), "%s", argv[1]);
    (void)snprintf(compare.title, sizeof(compare.title), "%s",
                   "gpt2 on <script>alert(\"x\")</script> & 'a\xff\x01' \xc3\xa4.bin");
    ddp_utf8_clean(compare.title); /* as what reads a run does */
    (void)snprintf(compare.host, sizeof(compare.host), "node07");
    (void)snprintf(compare.isa, sizeof(compare.isa), "avx2");
    if (compare.results == NULL) {
        return EXIT_FAILURE;
    }
    fill(ddp_compare_new(&compare, DDP_COMPARE_ONE, 1));
    for (int i = 2; i < argc; i++) {
        const size_t devices = strtoul(argv[i], NULL, 10);

        compare.options.counts[compare.options.n_counts++] = devices;
        fill(ddp_compare_new(&compare, DDP_COMPARE_DP, devices));
        fill(ddp_compare_new(&compare, DDP_COMPARE_DDP, devices));
    }
    /* one that failed */
    compare.options.counts[compare.options.n_counts++] = 16;
    (void)snprintf(ddp_compare_new(&compare, DDP_COMPARE_DP, 16)->error, DDP_COMPARE_LINE,
                   "exit status 1: device 0: 12 MiB of '<gradients>' do not fit & that is all");
    fill(ddp_compare_new(&compare, DDP_COMPARE_DDP, 16));
    ddp_compare_note(&compare, "A note with <b>markup</b>");
    ddp_compare_derive(&compare);
    ddp_compare_verdict(&compare);
    if (ddp_compare_write(&compare) != DDP_OK) {
        fprintf(stderr, "%s\n", ddp_error_line());
        return EXIT_FAILURE;
    }
    ddp_compare_print(&compare, stdout);
    ddp_compare_free(&compare);
    return EXIT_SUCCESS;
}
