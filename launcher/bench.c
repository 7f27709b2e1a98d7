/* What the benchmarks share: tables, JSON lines, medians. */
#include "launcher/bench.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "base/error.h"
#include "io/metrics.h"
#include "launcher/start.h"

void ddp_bench_head(const ddp_bench_table_t *table, const char *title)
{
    if (!table->is_mine || table->is_json) {
        return;
    }
    printf("# %s\n", title);
    for (size_t i = 0; i < table->columns; i++) {
        const ddp_bench_column_t *c = &table->column[i];

        printf(c->digits == DDP_BENCH_TEXT ? "%s%-*s" : "%s%*s", i > 0 ? " " : "", c->width, c->head);
    }
    printf("\n");
}

static void print_text(const ddp_bench_table_t *table, const ddp_bench_cell_t *cell)
{
    for (size_t i = 0; i < table->columns; i++) {
        const ddp_bench_column_t *c = &table->column[i];

        printf("%s", i > 0 ? " " : "");
        if (c->digits == DDP_BENCH_TEXT) {
            printf("%-*s", c->width, cell[i].text);
        } else if (isnan(cell[i].number)) {
            printf("%*s", c->width, "-");
        } else {
            printf("%*.*f", c->width, c->digits, cell[i].number);
        }
    }
    printf("\n");
}

static void print_json(const ddp_bench_table_t *table, const ddp_bench_cell_t *cell)
{
    cJSON *object = ddp_metrics_event(table->event);
    char  *text   = NULL;

    for (size_t i = 0; i < table->columns; i++) {
        if (cell[i].text != NULL) {
            (void)cJSON_AddStringToObject(object, table->column[i].key, cell[i].text);
        } else if (!isnan(cell[i].number)) {
            (void)cJSON_AddNumberToObject(object, table->column[i].key, cell[i].number);
        }
    }
    text = cJSON_PrintUnformatted(object);
    if (text != NULL) {
        printf("%s\n", text);
    }
    cJSON_free(text);
    cJSON_Delete(object);
}

void ddp_bench_row(const ddp_bench_table_t *table, const ddp_bench_cell_t *cell)
{
    if (!table->is_mine) {
        return;
    }
    if (table->is_json) {
        print_json(table, cell);
    } else {
        print_text(table, cell);
    }
    (void)fflush(stdout); /* a failure stays with the stream: ddp_bench_flush() tells */
}

ddp_status_t ddp_bench_flush(const ddp_run_t *run)
{
    ddp_status_t status = DDP_OK;

    if (ddp_comm_rank(run->comm) == 0 && (fflush(stdout) != 0 || ferror(stdout) != 0)) {
        status = ddp_fail(DDP_ERR_IO, "stdout: cannot be written");
    }
    return ddp_comm_agree(run->comm, status);
}

double ddp_bench_median(double *value, size_t n)
{
    qsort(value, n, sizeof(*value), ddp_ascending);
    return n % 2 == 1 ? value[n / 2] : 0.5 * (value[n / 2 - 1] + value[n / 2]);
}

double ddp_bench_least(const double *value, size_t n)
{
    double least = value[0];

    for (size_t i = 1; i < n; i++) {
        least = value[i] < least ? value[i] : least;
    }
    return least;
}

size_t ddp_bench_peak_rounds(const ddp_run_t *run, size_t most)
{
    return run->bench->rounds < most ? (size_t)run->bench->rounds : most;
}

ddp_status_t ddp_bench_slowest(const ddp_run_t *run, const double *mine, size_t n, double *most)
{
    ddp_status_t status = DDP_OK;
    const size_t size   = (size_t)ddp_comm_size(run->comm);
    double      *all    = calloc(size * n, sizeof(*all));

    status = all != NULL ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory for %zu times", size * n);
    DDP_TRY(ddp_comm_agree(run->comm, status));
    DDP_TRY(ddp_comm_allgather(run->comm, mine, n * sizeof(*mine), all));
    for (size_t i = 0; i < n; i++) {
        most[i] = mine[i];
        for (size_t r = 0; r < size; r++) {
            most[i] = all[r * n + i] > most[i] ? all[r * n + i] : most[i];
        }
    }
out:
    free(all);
    return status;
}

int ddp_bench_command(int argc, char **argv)
{
    static ddp_run_t    run; /* large */
    ddp_bench_options_t options;
    ddp_status_t        early = ddp_bench_options_parse(argc, argv, &options);

    if (early == DDP_OK && options.help) {
        if (ddp_launch_read().is_first) {
            ddp_bench_help(stdout);
        }
        return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    run.bench = &options;
    return ddp_start(&run, &options.run, early, options.body, argc, argv);
}
