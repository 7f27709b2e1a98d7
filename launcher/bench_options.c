#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/args.h"
#include "launcher/bench.h"
#include "launcher/suggest.h"

#define MOST_ROUNDS 1000000
#define MOST_BYTES  (UINT64_C(1) << 40)

/* The parts, as bits. */
enum { COMM = 1, STEP = 2, OPS = 4, ALL = COMM | STEP | OPS };

static const struct part {
    const char *name;
    unsigned    bit;
    ddp_status_t (*body)(ddp_run_t *run, ddp_status_t early);
    const char *help;
} parts[] = {
    {"comm", COMM, ddp_bench_comm,
     "collectives by size: time, rates, results checked; next to MPI's own and to memory"},
    {"step", STEP, ddp_bench_step, "the training step of a configuration, by phase and kind of operation"},
    {"ops", OPS, ddp_bench_ops,
     "the same by operation and shape, next to the matrix product's and memory's peaks"},
};
#define N_PARTS (sizeof(parts) / sizeof(parts[0]))

typedef enum option_id {
    OPT_ROUNDS,
    OPT_WARMUP,
    OPT_FROM,
    OPT_TO,
    OPT_FACTOR,
    OPT_ISA,
    OPT_JSON,
    OPT_SET,
    OPT_LOG,
    OPT_HELP
} option_id_t;

static const ddp_arg_t option_table[] = {
    [OPT_ROUNDS] = {"--rounds", "N", "how often it is measured (default 20)"},
    [OPT_WARMUP] = {"--warmup", "N", "rounds before that, not measured (default 3)"},
    [OPT_FROM]   = {"--from", "BYTES", "comm: smallest size; K, M and G are 1024-fold (default 1K)"},
    [OPT_TO]     = {"--to", "BYTES", "comm: largest size (default 16M)"},
    [OPT_FACTOR] = {"--factor", "N", "comm: from one size to the next (default 4)"},
    [OPT_ISA]    = {"--isa", "SET", "ops: plain, avx2, avx512, or all; default: the best there is"},
    [OPT_JSON]   = {"--json", NULL, "one JSON object a line instead of tables"},
    [OPT_SET]    = {"--set", "section.key=value", "set one key of the configuration; may be repeated"},
    [OPT_LOG]    = {"--log", "LEVEL", "error, warn, info (default) or debug"},
    [OPT_HELP]   = {"--help", NULL, "this text"},
};
#define N_OPTIONS (sizeof(option_table) / sizeof(option_table[0]))

/* Who takes an option. */
static const unsigned takers[N_OPTIONS] = {
    [OPT_ROUNDS] = ALL, [OPT_WARMUP] = ALL, [OPT_FROM] = COMM, [OPT_TO] = COMM, [OPT_FACTOR] = COMM,
    [OPT_ISA] = OPS,    [OPT_JSON] = ALL,   [OPT_SET] = ALL,   [OPT_LOG] = ALL, [OPT_HELP] = ALL,
};

typedef struct parser {
    ddp_bench_options_t *options;
    const struct part   *part;
    unsigned             seen;
} parser_t;

void ddp_bench_help(FILE *out)
{
    fputs("Measure on the ranks that were started; tables on stdout.\n"
          "\n"
          "  mpirun -np 2 ddptrain bench comm --to 64M\n"
          "  mpirun -np 2 ddptrain bench step run.yaml\n"
          "  ddptrain bench ops --set model.kind=mlp --isa all\n"
          "\n"
          "Usage: ddptrain bench PART [run.yaml] [option...]\n"
          "\n",
          out);
    for (size_t i = 0; i < N_PARTS; i++) {
        fprintf(out, "  %-24s %s\n", parts[i].name, parts[i].help);
    }
    fputs("\n", out);
    ddp_args_help(option_table, N_OPTIONS, out);
}

static ddp_status_t parse_count(const char *name, const char *text, uint64_t most, uint64_t *value_p)
{
    ddp_status_t status = DDP_OK;
    char        *end    = NULL;
    uint64_t     value  = strtoull(text, &end, 10);
    int          shift  = 0;

    if (most == MOST_BYTES && *end != '\0' && strchr("KMG", *end) != NULL) {
        shift = *end == 'K' ? 10 : *end == 'M' ? 20 : 30;
        end++;
    }
    DDP_REQUIRE(text[0] >= '0' && text[0] <= '9' && *end == '\0' && value <= most >> shift, DDP_ERR_CONFIG,
                "%s '%.80s': a whole number up to %" PRIu64 "%s", name, text, most,
                most == MOST_BYTES ? ", or as 64K, 32M, 1G" : "");
    *value_p = value << shift;
out:
    return status;
}

static ddp_status_t take_option(void *ctx, size_t index, const char *value)
{
    parser_t            *parser  = ctx;
    ddp_bench_options_t *options = parser->options;
    const char          *name    = option_table[index].name;

    parser->seen |= 1U << index;
    switch ((option_id_t)index) {
    case OPT_ROUNDS:
        return parse_count(name, value, MOST_ROUNDS, &options->rounds);
    case OPT_WARMUP:
        return parse_count(name, value, MOST_ROUNDS, &options->warmup);
    case OPT_FACTOR:
        return parse_count(name, value, MOST_ROUNDS, &options->factor);
    case OPT_FROM:
        return parse_count(name, value, MOST_BYTES, &options->from_bytes);
    case OPT_TO:
        return parse_count(name, value, MOST_BYTES, &options->to_bytes);
    case OPT_ISA:
        options->isa = value;
        break;
    case OPT_SET:
        return ddp_options_take_set(&options->run, value);
    case OPT_LOG:
        return ddp_options_take_log(&options->run, value);
    case OPT_JSON:
        options->json = true;
        break;
    case OPT_HELP:
        options->help = true;
        break;
    }
    return DDP_OK;
}

static ddp_status_t take_word(void *ctx, size_t index, const char *word)
{
    parser_t   *parser = ctx;
    const char *names[N_PARTS];
    const char *nearest;

    if (index > 0) {
        return ddp_options_take_file(&parser->options->run, word);
    }
    for (size_t i = 0; i < N_PARTS; i++) {
        names[i] = parts[i].name;
        if (strcmp(names[i], word) == 0) {
            parser->part = &parts[i];
            return DDP_OK;
        }
    }
    nearest = ddp_suggest(word, names, N_PARTS);
    return ddp_fail(DDP_ERR_CONFIG, "bench '%.80s': %s%s%s", word,
                    nearest != NULL ? "did you mean '" : "no such part; see ddptrain bench --help",
                    nearest != NULL ? nearest : "", nearest != NULL ? "'?" : "");
}

static bool is_isa(const char *name)
{
    return strcmp(name, ddp_isa_name(DDP_ISA_PLAIN)) == 0 || strcmp(name, ddp_isa_name(DDP_ISA_AVX2)) == 0 ||
           strcmp(name, ddp_isa_name(DDP_ISA_AVX512)) == 0 || strcmp(name, DDP_BENCH_ALL_ISAS) == 0;
}

static ddp_status_t check(const parser_t *parser)
{
    ddp_status_t               status  = DDP_OK;
    const ddp_bench_options_t *options = parser->options;

    DDP_REQUIRE(parser->part != NULL, DDP_ERR_CONFIG, "bench of what? See ddptrain bench --help");
    for (size_t i = 0; i < N_OPTIONS; i++) {
        DDP_REQUIRE((parser->seen & 1U << i) == 0 || (takers[i] & parser->part->bit) != 0, DDP_ERR_CONFIG,
                    "%s is not for bench %s; see ddptrain bench --help", option_table[i].name,
                    parser->part->name);
    }
    DDP_REQUIRE(options->isa == NULL || is_isa(options->isa), DDP_ERR_CONFIG,
                "--isa '%.80s': allowed are plain, avx2, avx512, all", options->isa);
    DDP_REQUIRE(options->rounds > 0, DDP_ERR_CONFIG, "--rounds 0: 1 or more are needed");
    DDP_REQUIRE(options->factor > 1, DDP_ERR_CONFIG, "--factor %" PRIu64 ": 2 or more", options->factor);
    DDP_REQUIRE(options->from_bytes >= sizeof(float) && options->from_bytes <= options->to_bytes,
                DDP_ERR_CONFIG, "--from %" PRIu64 " --to %" PRIu64 ": sizes are 4 bytes or more, and grow",
                options->from_bytes, options->to_bytes);
out:
    return status;
}

ddp_status_t ddp_bench_options_parse(int argc, char *const *argv, ddp_bench_options_t *options)
{
    ddp_status_t          status = DDP_OK;
    parser_t              parser = {.options = options};
    const ddp_args_sink_t sink   = {.ctx = &parser, .option = take_option, .word = take_word};

    *options = (ddp_bench_options_t){.run        = {.command = options->text, .log = DDP_LOG_INFO},
                                     .rounds     = 20,
                                     .warmup     = 3,
                                     .from_bytes = 1024,
                                     .to_bytes   = 16 << 20,
                                     .factor     = 4,
                                     .body       = parts[0].body};
    DDP_TRY(ddp_args_parse(option_table, N_OPTIONS, "ddptrain bench", argc, argv, &sink));
    if (options->help) {
        return DDP_OK;
    }
    DDP_TRY(check(&parser));
    options->body = parser.part->body;
    snprintf(options->text, sizeof(options->text),
             "bench %s --rounds %" PRIu64 " --warmup %" PRIu64 " --from %" PRIu64 " --to %" PRIu64
             " --factor %" PRIu64 " --isa %.20s",
             parser.part->name, options->rounds, options->warmup, options->from_bytes, options->to_bytes,
             options->factor, options->isa != NULL ? options->isa : "best");
out:
    return status;
}
