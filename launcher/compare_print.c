/* The tables on stdout, at most 100 columns wide. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "launcher/compare.h"

#define WIDTH 100

static void print_times(const ddp_compare_t *compare, FILE *out)
{
    char a[8][DDP_CELL];

    fprintf(out, "\n%-13s %3s %9s %9s %11s %9s %10s %11s %9s %s\n", "way", "K", "step ms", "spread ms",
            "samples/s", "speed-up", "efficiency", "exposed ms", "bytes", "weights");
    for (size_t i = 0; i < compare->n_results; i++) {
        const ddp_compare_result_t *r = &compare->results[i];

        if (!ddp_compare_is_measured(r)) {
            fprintf(out, "%-13s %3zu not measured\n", ddp_compare_way_name(r->way), r->devices);
            continue;
        }
        fprintf(out, "%-13s %3zu %9s %9s %11s %9s %10s %11s %9s %s\n", ddp_compare_way_name(r->way),
                r->devices, ddp_cell_ms(r->spread.median, a[0]),
                ddp_cell_ms(r->spread.q3 - r->spread.q1, a[1]), ddp_cell_number(r->samples_per_s, 0, a[2]),
                ddp_cell_number(r->speedup, 2, a[3]), ddp_cell_number(r->efficiency, 2, a[4]),
                ddp_cell_ms(r->exposed_ms, a[5]), ddp_cell_bytes(r->moved_bytes, a[6]),
                r->is_equal ? "equal" : "differ");
    }
}

static bool has_memory(const ddp_compare_t *compare)
{
    for (size_t i = 0; i < compare->n_results; i++) {
        if (!isnan(compare->results[i].device[0].total)) {
            return true;
        }
    }
    return false;
}

/* Devices from .. to - 1, in the mean. */
static void print_devices(const ddp_compare_result_t *result, size_t from, size_t to, const char *name,
                          FILE *out)
{
    char text[DDP_CELL];

    fprintf(out, "%-13s %3zu %-7s", ddp_compare_way_name(result->way), result->devices, name);
    for (int kind = 0; kind < DDP_COMPARE_MEMORY_KINDS; kind++) {
        double bytes = 0;

        for (size_t d = from; d < to; d++) {
            bytes += result->device[d].bytes[kind] / (double)(to - from);
        }
        fprintf(out, " %11s", ddp_cell_bytes(bytes, text));
    }
    fprintf(out, "\n");
}

static void print_memory(const ddp_compare_t *compare, FILE *out)
{
    if (!has_memory(compare)) {
        return;
    }
    fprintf(out, "\n%-13s %3s %-7s", "memory", "K", "device");
    for (int kind = 0; kind < DDP_COMPARE_MEMORY_KINDS; kind++) {
        fprintf(out, " %11s", ddp_compare_memory_name((ddp_compare_memory_t)kind));
    }
    fprintf(out, "\n");
    for (size_t i = 0; i < compare->n_results; i++) {
        const ddp_compare_result_t *result = &compare->results[i];

        if (isnan(result->device[0].total)) {
            continue;
        }
        print_devices(result, 0, 1, "0", out);
        if (result->devices > 1) {
            print_devices(result, 1, result->devices, result->devices > 2 ? "others" : "1", out);
        }
    }
}

/* A line for each way, its phases behind each other, broken where it gets long. */
static void print_phases(const ddp_compare_t *compare, FILE *out)
{
    char text[DDP_CELL];
    char cell[64];

    fprintf(out, "\nms of a step (medians)\n");
    for (size_t i = 0; i < compare->n_results; i++) {
        const ddp_compare_result_t *r = &compare->results[i];
        int used                      = fprintf(out, "%-13s %3zu ", ddp_compare_way_name(r->way), r->devices);

        for (size_t p = 0; p < r->n_phases; p++) {
            const int length =
                snprintf(cell, sizeof(cell), " %s %s", r->phases[p].name, ddp_cell_ms(r->phases[p].ms, text));

            if (used + length > WIDTH) {
                fprintf(out, "\n%18s", "");
                used = 18;
            }
            used += fprintf(out, "%s", cell);
        }
        fprintf(out, "%s\n", r->n_phases == 0 ? " -" : "");
    }
}

static void print_imbalance(const ddp_compare_t *compare, FILE *out)
{
    char a[DDP_CELL];
    char b[DDP_CELL];

    if (!has_memory(compare)) {
        return;
    }
    fprintf(out, "\ndevice 0, over the mean of the others\n");
    for (size_t i = 0; i < compare->n_results; i++) {
        const ddp_compare_result_t *r = &compare->results[i];

        if (r->devices > 1 && ddp_compare_is_measured(r)) {
            fprintf(out, "%-13s %3zu  memory %s  busy %s\n", ddp_compare_way_name(r->way), r->devices,
                    ddp_cell_number(r->memory_ratio, 2, a), ddp_cell_number(r->busy_ratio, 2, b));
        }
    }
}

/* Words of a text, broken where lines get long. */
static void print_wrapped(FILE *out, const char *text)
{
    int used = fprintf(out, "-");

    while (*text != '\0') {
        const int length = (int)strcspn(text, " ");

        if (used + 1 + length > WIDTH) {
            fprintf(out, "\n ");
            used = 1;
        }
        used += fprintf(out, " %.*s", length, text);
        text += length + (text[length] == ' ' ? 1 : 0);
    }
    fprintf(out, "\n");
}

void ddp_compare_print(const ddp_compare_t *compare, FILE *out)
{
    fprintf(out,
            "# %s\n# batch %" PRIu64 " in %zu micro-batches; %" PRIu64 " round%s of %" PRIu64
            " steps, the first %" PRIu64 " left out; %zu cores, %s\n",
            compare->title, compare->config.train.batch, compare->micro_batches, compare->options.rounds,
            compare->options.rounds == 1 ? "" : "s", compare->options.steps, compare->options.warmup,
            compare->cores, compare->isa);
    print_times(compare, out);
    print_phases(compare, out);
    print_memory(compare, out);
    print_imbalance(compare, out);
    fprintf(out, "\nVERDICT: %s.\n", compare->headline);
    for (size_t i = 0; i < compare->n_reasons; i++) {
        print_wrapped(out, compare->reasons[i]);
    }
}
