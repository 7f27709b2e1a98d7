/* The files of a comparison. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "io/metrics.h"
#include "launcher/child.h"
#include "launcher/compare.h"
#include "launcher/plot.h"

typedef void draw_fn_t(const ddp_compare_t *compare, FILE *out);

static void draw_page(const ddp_compare_t *compare, FILE *out)
{
    ddp_compare_html(compare, out);
}

static void draw_svg(const ddp_compare_t *compare, FILE *out)
{
    char style[4096];

    (void)snprintf(style, sizeof(style), "%s%s", ddp_plot_style(), ddp_compare_style());
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n", out);
    ddp_compare_throughput(compare, style, out);
}

static double samples(const ddp_compare_t *compare, ddp_compare_way_t way, size_t devices)
{
    const ddp_compare_result_t *result = ddp_compare_find(compare, way, devices);

    return ddp_compare_is_measured(result) ? result->samples_per_s : NAN;
}

/* What gnuplot reads: devices, DataParallel, DDP, ideal. */
static void draw_plot(const ddp_compare_t *compare, FILE *out)
{
    const double one = samples(compare, DDP_COMPARE_ONE, 1);

    fputs("set terminal png size 1080,732\n"
          "set output 'compare.png'\n"
          "set key left top\nset grid\nset yrange [0:*]\n"
          "set xlabel 'devices'\nset ylabel 'samples a second'\n"
          "set datafile missing 'nan'\n"
          "$data << END\n",
          out);
    fprintf(out, "1 %g %g %g\n", one, one, one);
    for (size_t i = 0; i < compare->options.n_counts; i++) {
        const size_t k = compare->options.counts[i];

        fprintf(out, "%zu %g %g %g\n", k, samples(compare, DDP_COMPARE_DP, k),
                samples(compare, DDP_COMPARE_DDP, k), one * (double)k);
    }
    fputs("END\n"
          "plot $data using 1:3 with linespoints lw 2 pt 5 lc rgb '#0072b2' title 'DDP', \\\n"
          "     $data using 1:2 with linespoints lw 2 pt 7 dt 2 lc rgb '#b34700' title 'DataParallel', \\\n"
          "     $data using 1:4 with lines dt 3 lc rgb '#595959' title 'ideal'\n",
          out);
}

static ddp_status_t write_drawn(const ddp_compare_t *compare, const char *name, draw_fn_t *draw)
{
    ddp_status_t status = DDP_OK;
    char        *text   = NULL;
    size_t       size   = 0;
    FILE        *out    = open_memstream(&text, &size);

    DDP_REQUIRE(out != NULL, DDP_ERR_NO_MEMORY, "no memory for %s", name);
    draw(compare, out);
    DDP_REQUIRE(fclose(out) == 0, DDP_ERR_NO_MEMORY, "no memory for %s", name);
    DDP_TRY(ddp_file_write(compare->folder, name, text));
out:
    free(text);
    return status;
}

static ddp_status_t write_json(const ddp_compare_t *compare)
{
    ddp_status_t status = DDP_OK;
    cJSON       *json   = ddp_compare_json(compare);
    char        *text   = json != NULL ? cJSON_Print(json) : NULL;

    DDP_REQUIRE(text != NULL, DDP_ERR_NO_MEMORY, "no memory for compare.json");
    DDP_TRY(ddp_file_write(compare->folder, "compare.json", text));
out:
    cJSON_free(text);
    cJSON_Delete(json);
    return status;
}

/* A picture more; what goes wrong with it is a line and no failure. */
static ddp_status_t write_png(const ddp_compare_t *compare)
{
    ddp_status_t    status      = DDP_OK;
    char          **environment = NULL;
    char           *argv[]      = {"sh", "-c", "cd \"$1\" && exec gnuplot compare.gnuplot", "sh", NULL, NULL};
    char            folder[DDP_COMPARE_PATH];
    char            log[DDP_COMPARE_PATH + 24];
    ddp_child_t     child = {.argv = argv, .log = log, .progress = log, .timeout_s = 30};
    ddp_child_end_t end   = DDP_CHILD_EXITED;
    int             code  = 0;

    if (!ddp_child_is_program("gnuplot")) {
        ddp_log(DDP_LOG_INFO, "gnuplot is not installed: no compare.png; compare.svg has the same chart");
        return DDP_OK;
    }
    environment = ddp_child_environment(false, true);
    DDP_REQUIRE(environment != NULL, DDP_ERR_NO_MEMORY, "no memory for gnuplot");
    DDP_TRY(write_drawn(compare, "compare.gnuplot", draw_plot));
    (void)snprintf(folder, sizeof(folder), "%s", compare->folder);
    (void)snprintf(log, sizeof(log), "%s/runs/gnuplot.log", compare->folder);
    argv[4]           = folder;
    child.environment = environment;
    DDP_TRY(ddp_child_run(&child, &end, &code));
    if (end != DDP_CHILD_EXITED || code != 0) {
        ddp_log(DDP_LOG_WARN, "gnuplot failed, so there may be no compare.png; it said why in '%s'", log);
    }
out:
    ddp_child_free_environment(environment);
    return status;
}

ddp_status_t ddp_compare_write(ddp_compare_t *compare)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(write_json(compare));
    DDP_TRY(write_drawn(compare, "compare.svg", draw_svg));
    DDP_TRY(write_drawn(compare, "compare.html", draw_page));
    if (ddp_child_interrupted() == 0) {
        DDP_TRY(write_png(compare));
    }
out:
    return status;
}
