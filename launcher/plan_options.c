#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/args.h"
#include "launcher/plan.h"
#include "launcher/stop.h"

#define MOST_NODES     UINT64_C(1000000)
#define MOST_STEPS     UINT64_C(500)
#define LEAST_BITS     1e3
#define MOST_BITS      1e18
#define MOST_LATENCY_S 60.0
#define LEAST_MTU      576
#define MOST_MTU       65535
#define NAME           "ddptrain plan"

typedef enum option_id {
    OPT_NODES,
    OPT_RANKS,
    OPT_LINK,
    OPT_MTU,
    OPT_FROM,
    OPT_STEPS,
    OPT_TIMEOUT,
    OPT_JSON,
    OPT_SVG,
    OPT_SET,
    OPT_LOG,
    OPT_HELP
} option_id_t;

static const ddp_arg_t option_table[] = {
    [OPT_NODES]   = {"--nodes", "1,2,8,64", "numbers of nodes (default 1,2,4,8,16)"},
    [OPT_RANKS]   = {"--ranks-per-node", "N", "default: as many as the run had on a node"},
    [OPT_LINK]    = {"--link", "RATE,LATENCY",
                     "between nodes, one way, as in 100Gbit,2us; needed beyond one node (ddptrain doctor "
                        "measures it)"},
    [OPT_MTU]     = {"--mtu", "BYTES", "the rate is that of Ethernet: headers of TCP take their part of it"},
    [OPT_FROM]    = {"--from", "RUN", "folder of a run to start from, in place of steps made here"},
    [OPT_STEPS]   = {"--steps", "N", "made here by one rank, without --from (default 20)"},
    [OPT_TIMEOUT] = {"--timeout", "TIME", "without a new step for so long they are given up (default 120)"},
    [OPT_JSON]    = {"--json", NULL, "JSON instead of the table"},
    [OPT_SVG]     = {"--svg", "FILE", "write a picture of the speed-up as well"},
    [OPT_SET]     = {"--set", "section.key=value", "set one key of the configuration; may be repeated"},
    [OPT_LOG]     = {"--log", "LEVEL", "error, warn, info (default) or debug"},
    [OPT_HELP]    = {"--help", NULL, "this text"},
};
#define N_OPTIONS (sizeof(option_table) / sizeof(option_table[0]))

void ddp_plan_help(FILE *out)
{
    fputs("Tell how long a step would take on more nodes, how much of the communication would be exposed, "
          "and which\n"
          "bucket cap suits best: from times of a run, and a model of the link between nodes.\n"
          "\n"
          "  ddptrain plan run.yaml --nodes 1,2,8,64 --link 100Gbit,2us\n"
          "  ddptrain plan --from runs/gpt2-text --nodes 1,2,4 --ranks-per-node 8 --link 25Gbit,20us\n"
          "\n"
          "Usage: ddptrain plan [run.yaml] [option...]\n"
          "\n",
          out);
    ddp_args_help(option_table, N_OPTIONS, out);
    fputs("\n"
          "A run for --from has best ddp.trace_buckets: true, so that it tells when gradients are ready, and "
          "the ranks\n"
          "of one node, so that what they take from each other is in its times. Exit status: 0 done, 1 "
          "failed, 2 wrong\n"
          "usage. More: docs/plan.md.\n",
          out);
}

static ddp_status_t take_nodes(const char *text, ddp_plan_options_t *options)
{
    ddp_status_t status = DDP_OK;
    const char  *at     = text;
    char        *end    = NULL;

    options->n_nodes = 0;
    do {
        const unsigned long long nodes = strtoull(at, &end, 10);

        DDP_REQUIRE(
            *at >= '0' && *at <= '9' && (*end == ',' || *end == '\0') && nodes >= 1 && nodes <= MOST_NODES,
            DDP_ERR_CONFIG, "--nodes '%.80s': numbers from 1 to %" PRIu64 ", as in 1,2,8", text, MOST_NODES);
        DDP_REQUIRE(options->n_nodes < DDP_PLAN_MAX_NODES, DDP_ERR_CONFIG,
                    "--nodes '%.80s': more than %d numbers", text, DDP_PLAN_MAX_NODES);
        DDP_REQUIRE(options->n_nodes == 0 || nodes > options->nodes[options->n_nodes - 1], DDP_ERR_CONFIG,
                    "--nodes '%.80s': each larger than the one before", text);
        options->nodes[options->n_nodes++] = (size_t)nodes;
        at                                 = *end == ',' ? end + 1 : end;
    } while (*end == ',');
out:
    return status;
}

typedef struct unit {
    const char *name;
    double      factor;
} unit_t;

/* A number and a unit of the table, up to `stop`. @return NaN: it is not */
static double measure(const char *text, const char *stop, const unit_t *units, size_t n)
{
    char        *end   = NULL;
    const double value = strtod(text, &end);

    if (end == text || end > stop || !isfinite(value) || text[0] < '0' || text[0] > '9') {
        return NAN;
    }
    for (size_t i = 0; i < n; i++) {
        if (strlen(units[i].name) == (size_t)(stop - end) &&
            strncmp(end, units[i].name, strlen(units[i].name)) == 0) {
            return value * units[i].factor;
        }
    }
    return NAN;
}

ddp_status_t ddp_plan_parse_link(const char *text, ddp_link_t *link_p)
{
    static const unit_t rates[]   = {{"Kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}, {"Tbit", 1e12}};
    static const unit_t times[]   = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
    ddp_status_t        status    = DDP_OK;
    const char         *comma     = strchr(text, ',');
    const char         *rate_end  = comma != NULL ? comma : text + strlen(text);
    const char         *last      = text + strlen(text);
    const double        bits      = measure(text, rate_end, rates, sizeof(rates) / sizeof(rates[0]));
    double              latency_s = NAN;

    if (comma != NULL) {
        latency_s = measure(comma + 1, last, times, sizeof(times) / sizeof(times[0]));
    }
    DDP_REQUIRE(bits > 0 && latency_s >= 0, DDP_ERR_CONFIG,
                "--link '%.80s': a rate in Kbit, Mbit, Gbit or Tbit a second and a latency in ns, us, ms or "
                "s, as in 100Gbit,2us",
                text);
    /* what is further away overflows the times, or their columns */
    DDP_REQUIRE(bits >= LEAST_BITS && bits <= MOST_BITS && latency_s <= MOST_LATENCY_S, DDP_ERR_CONFIG,
                "--link '%.80s': from 1Kbit to 1000000Tbit, at most 60s, as in 100Gbit,2us", text);
    *link_p = (ddp_link_t){.latency_s = latency_s, .bytes_per_s = bits / 8, .spread_per_s = bits / 8};
out:
    return status;
}

static ddp_status_t take_file(const char *name, const char *value, const char **file_p)
{
    if (value[0] == '\0') {
        return ddp_fail(DDP_ERR_CONFIG, "%s needs a name", name);
    }
    *file_p = value;
    return DDP_OK;
}

/* Of each frame on the wire 14 bytes are Ethernet's header, 4 its checksum, 8 its preamble and 12 the gap to
 * the next one (IEEE 802.3, clause 4.4.2); of what is in it 20 are IP's, 20 TCP's and 12 its time stamps'
 * (RFC 791, 9293, 7323). */
double ddp_plan_payload(double mtu)
{
    return (mtu - 20 - 20 - 12) / (mtu + 14 + 4 + 8 + 12);
}

static ddp_status_t take_option(void *ctx, size_t index, const char *value)
{
    ddp_plan_options_t *options = ctx;
    const char         *name    = option_table[index].name;
    uint64_t            count   = 0;
    ddp_status_t        status  = DDP_OK;

    switch ((option_id_t)index) {
    case OPT_NODES:
        return take_nodes(value, options);
    case OPT_RANKS:
        status         = ddp_args_count(name, value, 1, MOST_NODES, &count);
        options->ranks = (size_t)count;
        return status;
    case OPT_LINK:
        return ddp_plan_parse_link(value, &options->link);
    case OPT_MTU:
        status       = ddp_args_count(name, value, LEAST_MTU, MOST_MTU, &count);
        options->mtu = (double)count;
        return status;
    case OPT_FROM:
        return take_file(name, value, &options->from);
    case OPT_STEPS:
        return ddp_args_count(name, value, 1, MOST_STEPS, &options->steps);
    case OPT_TIMEOUT:
        return ddp_stop_parse_time(name, value, &options->timeout_s);
    case OPT_JSON:
        options->json = true;
        break;
    case OPT_SVG:
        return take_file(name, value, &options->svg);
    case OPT_SET:
        return ddp_options_take_set(&options->run, value);
    case OPT_LOG:
        return ddp_options_take_log(&options->run, value);
    case OPT_HELP:
        options->help = true;
        break;
    }
    return status;
}

static ddp_status_t take_word(void *ctx, size_t index, const char *word)
{
    ddp_plan_options_t *options = ctx;

    (void)index;
    return ddp_options_take_file(&options->run, word);
}

ddp_status_t ddp_plan_options_parse(int argc, char *const *argv, ddp_plan_options_t *options)
{
    ddp_status_t          status = DDP_OK;
    const ddp_args_sink_t sink   = {.ctx = options, .option = take_option, .word = take_word};

    *options = (ddp_plan_options_t){.nodes = {1, 2, 4, 8, 16}, .n_nodes = 5, .steps = 20, .timeout_s = 120};
    options->run.command = "plan";
    options->run.log     = DDP_LOG_INFO;
    DDP_TRY(ddp_args_parse(option_table, N_OPTIONS, NAME, argc, argv, &sink));
    if (options->help) {
        return DDP_OK;
    }
    DDP_REQUIRE(options->nodes[options->n_nodes - 1] == 1 || options->link.bytes_per_s > 0, DDP_ERR_CONFIG,
                "several nodes need --link RATE,LATENCY, as in --link 100Gbit,2us");
    DDP_REQUIRE(options->from == NULL || (options->run.file == NULL && options->run.n_sets == 0),
                DDP_ERR_CONFIG, "--from has a configuration of its own: without run.yaml and --set");
    DDP_REQUIRE(options->mtu == 0 || options->link.bytes_per_s > 0, DDP_ERR_CONFIG,
                "--mtu is about the rate of --link, which is missing");
    if (options->mtu > 0) {
        options->link.bytes_per_s *= ddp_plan_payload(options->mtu);
        options->link.spread_per_s *= ddp_plan_payload(options->mtu);
    }
out:
    return status;
}
