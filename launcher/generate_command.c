#include "launcher/generate_command.h"
#include "kernels/cuda.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_open.h"
#include "base/log.h"
#include "io/bpe.h"
#include "io/checkpoint.h"
#include "io/tokens.h"
#include "launcher/args.h"
#include "launcher/launch.h"
#include "launcher/run.h"
#include "nn/decode.h"
#include "nn/sample.h"

#define MAX_PROMPT ((size_t)1 << 20)

typedef enum generate_id {
    GEN_PROMPT,
    GEN_FILE,
    GEN_TOKENS,
    GEN_TEMPERATURE,
    GEN_TOP_K,
    GEN_TOP_P,
    GEN_SEED,
    GEN_BPE,
    GEN_DEVICE,
    GEN_HELP
} generate_id_t;

static const ddp_arg_t generate_table[] = {
    [GEN_PROMPT]      = {"--prompt", "TEXT", "what the text begins with; default: a new line"},
    [GEN_FILE]        = {"--file", "FILE", "the same from a file"},
    [GEN_TOKENS]      = {"--tokens", "N", "tokens to write (default 256)"},
    [GEN_TEMPERATURE] = {"--temperature", "T", "0: always the likeliest; default 1"},
    [GEN_TOP_K]       = {"--top-k", "K", "only of the K likeliest; default 0: of all"},
    [GEN_TOP_P]       = {"--top-p", "P", "only of the likeliest that add up to P; default 1"},
    [GEN_SEED]        = {"--seed", "S", "the same seed gives the same text; default 1"},
    [GEN_BPE]         = {"--bpe", "DIR", "vocabulary of a model that was not trained on bytes"},
    [GEN_DEVICE]      = {"--device", "auto|cpu|cuda", "auto: the first GPU, where there is one"},
    [GEN_HELP]        = {"--help", NULL, "this text"},
};
#define N_GENERATE (sizeof(generate_table) / sizeof(generate_table[0]))

typedef struct generate {
    const char         *path, *prompt, *file, *bpe_folder, *device_name;
    uint64_t            tokens;
    bool                help;
    ddp_sample_params_t sample;

    ddp_checkpoint_t *checkpoint; /* owned, as all that follows */
    ddp_config_t      config;
    ddp_device_t     *device;
    ddp_stream_t     *stream;
    ddp_params_t     *params;
    ddp_model_t      *model;
    ddp_decoder_t    *decoder;
    ddp_bpe_t        *bpe;
    char             *text;  /* of the prompt */
    int32_t          *input; /* its tokens */
    size_t            n_input;
    float            *logits;
} generate_t;

static void say_help(FILE *out)
{
    fputs("ddptrain generate writes text with a gpt2 that was trained.\n"
          "\n"
          "  ddptrain generate runs/gpt2-text/checkpoints/best.h5 --prompt 'In the beginning' --temperature "
          "0.8\n"
          "\n"
          "Usage: ddptrain generate CHECKPOINT [option...]\n"
          "\n",
          out);
    ddp_args_help(generate_table, N_GENERATE, out);
}

static ddp_status_t parse_count(const char *name, const char *text, uint64_t *value_p)
{
    char              *end = NULL;
    unsigned long long value;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno != 0 || text[0] < '0' || text[0] > '9' || *end != '\0') {
        return ddp_fail(DDP_ERR_CONFIG, "%s '%.40s': a whole number is expected", name, text);
    }
    *value_p = value;
    return DDP_OK;
}

static ddp_status_t parse_real(const char *name, const char *text, double *value_p)
{
    char        *end   = NULL;
    const double value = strtod(text, &end);

    if (end == text || *end != '\0' || !(value >= 0 && value < 1e9)) {
        return ddp_fail(DDP_ERR_CONFIG, "%s '%.40s': a number of 0 or more is expected", name, text);
    }
    *value_p = value;
    return DDP_OK;
}

static ddp_status_t take_option(void *ctx, size_t index, const char *value)
{
    generate_t  *g      = ctx;
    ddp_status_t status = DDP_OK;
    const char  *name   = generate_table[index].name;
    uint64_t     count  = 0;

    switch ((generate_id_t)index) {
    case GEN_PROMPT:
        g->prompt = value;
        break;
    case GEN_FILE:
        g->file = value;
        break;
    case GEN_TOKENS:
        return parse_count(name, value, &g->tokens);
    case GEN_TEMPERATURE:
        return parse_real(name, value, &g->sample.temperature);
    case GEN_TOP_K:
        status          = parse_count(name, value, &count);
        g->sample.top_k = (size_t)count;
        break;
    case GEN_TOP_P:
        return parse_real(name, value, &g->sample.top_p);
    case GEN_SEED:
        return parse_count(name, value, &g->sample.seed);
    case GEN_BPE:
        g->bpe_folder = value;
        break;
    case GEN_DEVICE:
        g->device_name = value;
        break;
    case GEN_HELP:
        g->help = true;
        break;
    }
    return status;
}

static ddp_status_t take_word(void *ctx, size_t index, const char *word)
{
    generate_t *g = ctx;

    if (index > 0) {
        return ddp_fail(DDP_ERR_CONFIG, "'%.80s' is a file too many; see ddptrain generate --help", word);
    }
    g->path = word;
    return DDP_OK;
}

static ddp_status_t check(const generate_t *g)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(ddp_launch_read().ranks <= 1, DDP_ERR_CONFIG,
                "generate is one process: start it without mpirun");
    DDP_REQUIRE(g->path != NULL, DDP_ERR_CONFIG, "a checkpoint is needed: ddptrain generate CHECKPOINT");
    DDP_REQUIRE(g->prompt == NULL || g->file == NULL, DDP_ERR_CONFIG,
                "--prompt and --file: give one of them");
    DDP_REQUIRE(g->sample.top_p > 0 && g->sample.top_p <= 1, DDP_ERR_CONFIG, "--top-p %g: 0 < P <= 1",
                g->sample.top_p);
out:
    return status;
}

static ddp_status_t load_values(generate_t *g)
{
    ddp_status_t             status = DDP_OK;
    const ddp_tensor_desc_t *descs  = ddp_params_descs(g->params);
    const size_t             n      = ddp_params_count(g->params);
    size_t                   most   = 0;
    float                   *host   = NULL;

    status = ddp_checkpoint_check_model(g->checkpoint, descs, n, NULL, 0);
    if (status != DDP_OK) {
        ddp_error_prefix("'%s'", g->path);
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        most = descs[i].count > most ? descs[i].count : most;
    }
    host = malloc(most * sizeof(*host));
    DDP_REQUIRE(host != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu parameters", most);
    DDP_TRY(ddp_params_allocate(g->params, ddp_device_allocator(g->device)));
    for (size_t i = 0; i < n; i++) {
        DDP_TRY(ddp_checkpoint_read(g->checkpoint, ddp_checkpoint_find(g->checkpoint, descs[i].name),
                                    DDP_CHECKPOINT_VALUES, 0, descs[i].count, host));
        DDP_TRY(
            ddp_stream_copy(g->stream, ddp_params_value(g->params, i), host, descs[i].count * sizeof(*host)));
        DDP_TRY(ddp_stream_synchronize(g->stream, -1)); /* `host` is written again */
    }
out:
    free(host);
    return status;
}

/* What --device says. */
static ddp_status_t choose_device(const generate_t *g, ddp_device_params_t *params)
{
    const char     *name   = g->device_name != NULL ? g->device_name : "auto";
    ddp_status_t    status = DDP_OK;
    ddp_cuda_info_t cuda;

    DDP_REQUIRE(strcmp(name, "auto") == 0 || strcmp(name, "cpu") == 0 || strcmp(name, "cuda") == 0,
                DDP_ERR_CONFIG, "--device '%.40s': allowed are auto, cpu, cuda", name);
    ddp_cuda_probe(&cuda);
    DDP_REQUIRE(strcmp(name, "cuda") != 0 || cuda.devices > 0, DDP_ERR_CONFIG, "--device cuda: %s",
                cuda.reason);
    params->kind = strcmp(name, "cpu") != 0 && cuda.devices > 0 ? DDP_DEVICE_CUDA : DDP_DEVICE_CPU;
    params->isa  = ddp_isa_detect();
out:
    return status;
}

static ddp_status_t open_model(generate_t *g)
{
    ddp_status_t        status = DDP_OK;
    ddp_device_params_t device = DDP_DEVICE_PARAMS_INIT;
    ddp_model_config_t  config;

    DDP_TRY(ddp_checkpoint_open(g->path, &g->checkpoint));
    DDP_TRY(ddp_checkpoint_check_run(g->checkpoint, g->path, false));
    ddp_config_defaults(&g->config);
    DDP_TRY(ddp_config_load_text(&g->config, g->path, ddp_checkpoint_state(g->checkpoint)->config));
    DDP_REQUIRE(g->config.model.kind == DDP_MODEL_GPT2, DDP_ERR_CONFIG, "'%s' is no gpt2: it writes no text",
                g->path);
    config = ddp_config_model(&g->config);
    DDP_TRY(ddp_isa_check());
    DDP_TRY(choose_device(g, &device));
    DDP_TRY(ddp_device_create(&device, &g->device));
    DDP_TRY(ddp_stream_create(g->device, "compute", &g->stream));
    DDP_TRY(ddp_params_create(&g->params));
    DDP_TRY(ddp_model_create(&config, g->params, &g->model));
    DDP_TRY(load_values(g));
    DDP_TRY(ddp_decoder_create(g->model, g->params, g->stream, &g->decoder));
    g->logits = malloc(config.vocab * sizeof(*g->logits));
    DDP_REQUIRE(g->logits != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu logits", config.vocab);
out:
    return status;
}

/* Bytes are tokens unless a vocabulary is given. */
static ddp_status_t open_vocabulary(generate_t *g)
{
    ddp_status_t status = DDP_OK;
    const size_t vocab  = (size_t)g->config.model.vocab;

    if (g->bpe_folder == NULL) {
        DDP_REQUIRE(g->config.data.kind == DDP_CONFIG_DATA_TEXT || vocab == DDP_TOKENS_BYTES, DDP_ERR_CONFIG,
                    "'%s' was trained on tokens, not on bytes: --bpe DIR names their vocabulary", g->path);
        goto out;
    }
    DDP_TRY(ddp_bpe_open(g->bpe_folder, &g->bpe));
    DDP_REQUIRE(ddp_bpe_info(g->bpe)->vocab <= vocab, DDP_ERR_CONFIG,
                "'%s' has %zu tokens, the model %zu: not its vocabulary", g->bpe_folder,
                ddp_bpe_info(g->bpe)->vocab, vocab);
out:
    return status;
}

static ddp_status_t read_prompt(generate_t *g, size_t *bytes_p)
{
    ddp_status_t status = DDP_OK;
    FILE        *file   = NULL;
    const char  *prompt = g->prompt != NULL && g->prompt[0] != '\0' ? g->prompt : "\n";

    g->text = malloc(MAX_PROMPT);
    DDP_REQUIRE(g->text != NULL, DDP_ERR_NO_MEMORY, "no memory for the prompt");
    if (g->file == NULL) {
        *bytes_p = strlen(prompt) < MAX_PROMPT ? strlen(prompt) : MAX_PROMPT;
        memcpy(g->text, prompt, *bytes_p);
        goto out;
    }
    DDP_TRY(ddp_file_open(g->file, &file));
    *bytes_p = fread(g->text, 1, MAX_PROMPT, file);
    DDP_REQUIRE(ferror(file) == 0, DDP_ERR_IO, "'%s': %s", g->file, ddp_errno_text(errno));
    DDP_REQUIRE(*bytes_p > 0, DDP_ERR_CONFIG, "'%s': an empty prompt", g->file);
out:
    if (file != NULL) {
        (void)fclose(file);
    }
    return status;
}

/* The prompt's last tokens, as many as the model can see. */
static ddp_status_t encode_prompt(generate_t *g)
{
    ddp_status_t   status  = DDP_OK;
    const size_t   context = (size_t)g->config.model.context;
    size_t         bytes   = 0;
    ddp_bpe_done_t done    = {0};

    DDP_TRY(read_prompt(g, &bytes));
    g->input = malloc(bytes * sizeof(*g->input));
    DDP_REQUIRE(g->input != NULL, DDP_ERR_NO_MEMORY, "no memory for the prompt");
    if (g->bpe != NULL) {
        DDP_TRY(ddp_bpe_encode(g->bpe, g->text, bytes, true, g->input, &done));
        g->n_input = done.tokens;
    } else {
        for (size_t i = 0; i < bytes; i++) {
            g->input[i] = (unsigned char)g->text[i];
        }
        g->n_input = bytes;
    }
    if (g->n_input > context) {
        memmove(g->input, g->input + (g->n_input - context), context * sizeof(*g->input));
        g->n_input = context;
    }
    (void)fwrite(g->text, 1, bytes, stdout);
out:
    return status;
}

static ddp_status_t put_token(const generate_t *g, int32_t token)
{
    ddp_status_t status = DDP_OK;
    const char   byte   = (char)token;
    const char  *text   = &byte;
    size_t       bytes  = 1;

    if (g->bpe != NULL) {
        text = ddp_bpe_token(g->bpe, token, &bytes);
        DDP_REQUIRE(text != NULL, DDP_ERR_FORMAT, "token %d is not in the vocabulary '%s'", (int)token,
                    g->bpe_folder);
    } else {
        DDP_REQUIRE(token < (int32_t)DDP_TOKENS_BYTES, DDP_ERR_FORMAT, "token %d is no byte", (int)token);
    }
    DDP_REQUIRE(fwrite(text, 1, bytes, stdout) == bytes && fflush(stdout) == 0, DDP_ERR_IO,
                "stdout: cannot be written");
out:
    return status;
}

static ddp_status_t write_text(generate_t *g)
{
    ddp_status_t  status = DDP_OK;
    const int64_t start  = ddp_clock_ns();
    int32_t       token  = 0;

    DDP_TRY(ddp_decoder_feed(g->decoder, g->input, g->n_input, g->logits));
    for (uint64_t i = 0; i < g->tokens; i++) {
        DDP_TRY(ddp_sample(g->logits, (size_t)g->config.model.vocab, &g->sample, i, &token));
        if (g->bpe != NULL && token == ddp_bpe_info(g->bpe)->end_of_text) {
            break;
        }
        DDP_TRY(put_token(g, token));
        if (i + 1 < g->tokens) {
            DDP_TRY(ddp_decoder_feed(g->decoder, &token, 1, g->logits));
        }
    }
    DDP_REQUIRE(putchar('\n') != EOF && fflush(stdout) == 0, DDP_ERR_IO, "stdout: cannot be written");
    ddp_log(DDP_LOG_DEBUG, "%.0f tokens a second",
            (double)g->tokens * 1e9 / (double)(ddp_clock_ns() - start));
out:
    return status;
}

static void close_all(generate_t *g)
{
    ddp_decoder_destroy(&g->decoder);
    ddp_model_destroy(&g->model);
    ddp_params_destroy(&g->params);
    ddp_stream_destroy(&g->stream);
    ddp_device_destroy(&g->device);
    ddp_bpe_close(&g->bpe);
    ddp_checkpoint_close(&g->checkpoint);
    free(g->text);
    free(g->input);
    free(g->logits);
}

static ddp_status_t generate(generate_t *g)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(open_model(g));
    DDP_TRY(open_vocabulary(g));
    DDP_TRY(encode_prompt(g));
    DDP_TRY(write_text(g));
out:
    return status;
}

int ddp_generate_command(int argc, char **argv)
{
    static generate_t     g; /* large */
    const ddp_args_sink_t sink = {.ctx = &g, .option = take_option, .word = take_word};
    ddp_status_t          status;

    g.tokens      = 256;
    g.sample      = (ddp_sample_params_t)DDP_SAMPLE_PARAMS_INIT;
    g.sample.seed = 1;
    status        = ddp_args_parse(generate_table, N_GENERATE, "ddptrain generate", argc, argv, &sink);
    if (status == DDP_OK && g.help) {
        say_help(stdout);
        return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    status = status == DDP_OK ? check(&g) : status;
    status = status == DDP_OK ? generate(&g) : status;
    if (status != DDP_OK && ddp_launch_read().is_first) {
        ddp_log(DDP_LOG_ERROR, "%s", ddp_error_line());
    }
    close_all(&g);
    return status == DDP_OK ? EXIT_SUCCESS : status == DDP_ERR_CONFIG ? 2 : EXIT_FAILURE;
}
