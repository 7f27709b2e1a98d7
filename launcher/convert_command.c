#include "launcher/convert_command.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "io/text.h"
#include "io/weights.h"
#include "launcher/args.h"
#include "launcher/convert_weights.h"
#include "launcher/launch.h"
#include "launcher/progress.h"

typedef enum convert_id {
    CONVERT_BPE,
    CONVERT_BYTES,
    CONVERT_VAL_FRACTION,
    CONVERT_SHARD_TOKENS,
    CONVERT_END_OF_TEXT,
    CONVERT_DECODE,
    CONVERT_ALL,
    CONVERT_UNVERIFIED,
    CONVERT_HELP
} convert_id_t;

static const ddp_arg_t convert_table[] = {
    [CONVERT_BPE]          = {"--bpe", "DIR",
                              "GPT-2's tokens: DIR has encoder.json and vocab.bpe (or vocab.json, merges.txt)"},
    [CONVERT_BYTES]        = {"--bytes", NULL, "every byte is a token: 256 of them, no vocabulary needed"},
    [CONVERT_VAL_FRACTION] = {"--val-fraction", "F",
                              "the last F (0 < F < 1) of the text goes to OUT_val, the rest to OUT_train"},
    [CONVERT_SHARD_TOKENS] = {"--shard-tokens", "N",
                              "a file's most (default 100000000); then OUT_000000, ..."},
    [CONVERT_END_OF_TEXT]  = {"--end-of-text", NULL,
                              "<|endoftext|> in the text is the token that separates documents"},
    [CONVERT_DECODE]       = {"--decode", NULL, "the other way: IN is a token file, OUT a text"},
    [CONVERT_ALL]          = {"--all", NULL, "the moments too, as optimizer.<slot>.<name>"},
    [CONVERT_UNVERIFIED]   = {"--unverified", NULL, "a damaged checkpoint too, as far as it can be read"},
    [CONVERT_HELP]         = {"--help", NULL, "this text"},
};
#define N_CONVERT (sizeof(convert_table) / sizeof(convert_table[0]))

typedef struct convert {
    ddp_text_params_t params;
    bool              bytes, decode, all, unverified, help;
    bool              is_weights; /* told by OUT's ending */
    ddp_progress_t    progress;
    int64_t           start_ns;
} convert_t;

static void say_help(FILE *out)
{
    fputs("ddptrain convert makes token files, in llm.c's format, of a text; `data.kind: tokens` trains on "
          "them. And it turns\n"
          "files of weights into one another.\n"
          "\n"
          "  ddptrain convert book.txt book.bin --bpe gpt2 --val-fraction 0.1\n"
          "  ddptrain convert --decode book_val.bin book_val.txt --bpe gpt2\n"
          "  ddptrain convert ckpt-000000001200.h5 weights.safetensors\n"
          "  ddptrain convert model.safetensors start.h5       # then: ddptrain ... --init start.h5\n"
          "\n"
          "Usage: ddptrain convert IN OUT (--bpe DIR | --bytes) [option...]\n"
          "       ddptrain convert IN OUT.h5|.safetensors|.npz [--all] [--unverified]\n"
          "\n"
          "Text and tokens; IN may be gzip, and larger than the memory:\n",
          out);
    ddp_args_help(convert_table, CONVERT_ALL, out);
    fputs(
        "\n"
        "Weights; IN is a checkpoint, safetensors, npz or any HDF5 file, which its content tells. Floats "
        "become "
        "float32;\n"
        "other arrays are left out, and names lose the prefixes module. and _orig_mod.; an .h5 made of other "
        "files is a\n"
        "checkpoint for --init:\n",
        out);
    ddp_args_help(convert_table + CONVERT_ALL, N_CONVERT - CONVERT_ALL, out);
    fputs("\n"
          "OUT must not exist: nothing is written over, and no file has its name before all are whole.\n"
          "Exit status: 0 done, 1 failed, 2 wrong usage.\n",
          out);
}

static ddp_status_t parse_fraction(const char *text, double *value_p)
{
    char        *end   = NULL;
    const double value = strtod(text, &end);

    if (end == text || *end != '\0' || !(value > 0.0 && value < 1.0)) {
        return ddp_fail(DDP_ERR_CONFIG, "--val-fraction '%.40s': 0 < value < 1", text);
    }
    *value_p = value;
    return DDP_OK;
}

static ddp_status_t parse_tokens(const char *text, uint64_t *value_p)
{
    char              *end = NULL;
    unsigned long long value;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno != 0 || text[0] < '0' || text[0] > '9' || *end != '\0' || value < 2 || value > INT32_MAX) {
        return ddp_fail(DDP_ERR_CONFIG, "--shard-tokens '%.40s': a whole number, 2 .. %ld", text,
                        (long)INT32_MAX);
    }
    *value_p = value;
    return DDP_OK;
}

static ddp_status_t take_option(void *ctx, size_t index, const char *value)
{
    convert_t *convert = ctx;

    switch ((convert_id_t)index) {
    case CONVERT_BPE:
        convert->params.bpe = value;
        break;
    case CONVERT_BYTES:
        convert->bytes = true;
        break;
    case CONVERT_VAL_FRACTION:
        return parse_fraction(value, &convert->params.val_fraction);
    case CONVERT_SHARD_TOKENS:
        return parse_tokens(value, &convert->params.shard_tokens);
    case CONVERT_END_OF_TEXT:
        convert->params.end_of_text = true;
        break;
    case CONVERT_DECODE:
        convert->decode = true;
        break;
    case CONVERT_ALL:
        convert->all = true;
        break;
    case CONVERT_UNVERIFIED:
        convert->unverified = true;
        break;
    case CONVERT_HELP:
        convert->help = true;
        break;
    }
    return DDP_OK;
}

static ddp_status_t take_word(void *ctx, size_t index, const char *word)
{
    convert_t *convert = ctx;

    if (index == 0) {
        convert->params.in = word;
    } else if (index == 1) {
        convert->params.out = word;
    } else {
        return ddp_fail(DDP_ERR_CONFIG, "'%.80s' is a file too many: IN and OUT; see ddptrain convert --help",
                        word);
    }
    return DDP_OK;
}

static ddp_status_t check(const convert_t *convert, const ddp_launch_t *launch)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(launch->ranks <= 1, DDP_ERR_CONFIG, "convert is one process: start it without mpirun");
    DDP_REQUIRE(convert->params.out != NULL, DDP_ERR_CONFIG, "two files are needed: ddptrain convert IN OUT");
    if (convert->is_weights) {
        DDP_REQUIRE(convert->params.bpe == NULL && !convert->bytes && !convert->decode, DDP_ERR_CONFIG,
                    "'%s' is a file of weights by its ending: no --bpe, --bytes, --decode",
                    convert->params.out);
        return DDP_OK;
    }
    DDP_REQUIRE(!convert->all && !convert->unverified, DDP_ERR_CONFIG,
                "--all and --unverified are for weights: OUT ends in .h5, .safetensors or .npz");
    DDP_REQUIRE((convert->params.bpe != NULL) != convert->bytes, DDP_ERR_CONFIG,
                "%s; see ddptrain convert --help",
                convert->bytes ? "--bpe and --bytes exclude each other"
                               : "--bpe DIR or --bytes is needed, or an OUT that "
                                 "ends in .h5, .safetensors or .npz");
    DDP_REQUIRE(!convert->params.end_of_text || !convert->bytes, DDP_ERR_CONFIG,
                "--end-of-text needs --bpe: among bytes there is no such token");
    DDP_REQUIRE(!convert->decode || (convert->params.val_fraction == 0.0 && !convert->params.end_of_text),
                DDP_ERR_CONFIG, "--decode takes neither --val-fraction nor --end-of-text");
out:
    return status;
}

static void show(void *ctx, uint64_t done, uint64_t total)
{
    convert_t   *convert = ctx;
    const double seconds = (double)(ddp_clock_ns() - convert->start_ns) / 1e9;
    const char  *unit    = convert->decode ? "million tokens" : "MB";
    char         text[128];

    if (total > 0) {
        snprintf(text, sizeof(text), "%3.0f%%  %.1f of %.1f %s, %.1f/s", 100.0 * (double)done / (double)total,
                 (double)done / 1e6, (double)total / 1e6, unit, (double)done / 1e6 / seconds);
    } else {
        snprintf(text, sizeof(text), "%.1f %s, %.1f/s", (double)done / 1e6, unit,
                 (double)done / 1e6 / seconds);
    }
    ddp_progress_write(&convert->progress, text);
}

static void tell(const convert_t *convert, const ddp_text_report_t *report)
{
    static const char *const parts[] = {"training, ", "validation, "};
    const double             seconds = (double)(ddp_clock_ns() - convert->start_ns) / 1e9;

    if (convert->decode) {
        ddp_log(DDP_LOG_INFO, "'%s': %" PRIu64 " tokens decoded in %.1f s", convert->params.out,
                report->tokens[0], seconds);
        return;
    }
    if (report->invalid > 0) {
        ddp_log(DDP_LOG_WARN,
                "'%s': %" PRIu64 " bytes are not UTF-8, the first at offset %" PRIu64
                "; each was encoded as it is",
                convert->params.in, report->invalid, report->first_invalid);
    }
    for (int i = 0; i < 2 && report->tokens[i] > 0; i++) {
        ddp_log(DDP_LOG_INFO, "'%s': %s%" PRIu64 " tokens in %zu file%s", convert->params.out,
                report->tokens[1] > 0 ? parts[i] : "", report->tokens[i], report->shards[i],
                report->shards[i] > 1 ? "s" : "");
    }
    ddp_log(DDP_LOG_INFO, "%.1f MB in %.1f s; train with model.vocab at least %zu",
            (double)report->bytes / 1e6, seconds, report->vocab);
}

static ddp_status_t work_text(convert_t *convert, ddp_text_report_t *report)
{
    ddp_status_t status;

    ddp_progress_init(&convert->progress);
    convert->start_ns        = ddp_clock_ns();
    convert->params.progress = show;
    convert->params.ctx      = convert;
    status                   = convert->decode ? ddp_text_decode(&convert->params, report)
                                               : ddp_text_encode(&convert->params, report);
    ddp_progress_clear(&convert->progress);
    return status;
}

int ddp_convert_command(int argc, char **argv)
{
    convert_t             convert = {.params = DDP_TEXT_PARAMS_INIT};
    const ddp_args_sink_t sink    = {.ctx = &convert, .option = take_option, .word = take_word};
    const ddp_launch_t    launch  = ddp_launch_read();
    ddp_text_report_t     report  = {.bytes = 0};
    ddp_weights_kind_t    kind;
    ddp_status_t          status;
    int                   code = 2;

    status = ddp_args_parse(convert_table, N_CONVERT, "ddptrain convert", argc, argv, &sink);
    if (status == DDP_OK && convert.help) {
        say_help(stdout);
        return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    convert.is_weights = convert.params.out != NULL && ddp_weights_kind_of_ending(convert.params.out, &kind);
    status             = status == DDP_OK ? check(&convert, &launch) : status;
    if (status == DDP_OK) {
        code   = EXIT_FAILURE;
        status = convert.is_weights ? ddp_convert_weights(convert.params.in, convert.params.out, convert.all,
                                                          convert.unverified)
                                    : work_text(&convert, &report);
    }
    if (status != DDP_OK && launch.is_first) {
        ddp_log(DDP_LOG_ERROR, "%s", ddp_error_line());
    }
    if (status == DDP_OK) {
        if (!convert.is_weights) {
            tell(&convert, &report);
        }
        code = EXIT_SUCCESS;
    }
    return code;
}
