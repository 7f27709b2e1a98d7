#include "launcher/eval_command.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "launcher/args.h"
#include "launcher/start.h"

typedef enum eval_id { EVAL_SET, EVAL_JSON, EVAL_LOG, EVAL_HELP } eval_id_t;

static const ddp_arg_t eval_table[] = {
    [EVAL_SET]  = {"--set", "section.key=value",
                   "change a key of the checkpoint's configuration, as data.path; may be repeated"},
    [EVAL_JSON] = {"--json", NULL, "one JSON object instead of words"},
    [EVAL_LOG]  = {"--log", "LEVEL", "error, warn, info (default) or debug"},
    [EVAL_HELP] = {"--help", NULL, "this text"},
};
#define N_EVAL (sizeof(eval_table) / sizeof(eval_table[0]))

typedef struct eval_options {
    ddp_options_t run;
    const char   *path;
    bool          json;
} eval_options_t;

static eval_options_t    options;    /* of the one command that this process is */
static ddp_checkpoint_t *checkpoint; /* owned until the body takes it */

static void say_help(FILE *out)
{
    fputs("ddptrain eval tells loss and accuracy of a checkpoint on the test samples of its run.\n"
          "\n"
          "  mpirun -np 2 ddptrain eval runs/cnn-idx/checkpoints/best.h5\n"
          "  ddptrain eval best.h5 --set data.path=other/folder\n"
          "\n"
          "Usage: ddptrain eval CHECKPOINT [option...]\n"
          "\n",
          out);
    ddp_args_help(eval_table, N_EVAL, out);
}

static ddp_status_t take_option(void *ctx, size_t index, const char *value)
{
    (void)ctx;
    switch ((eval_id_t)index) {
    case EVAL_SET:
        return ddp_options_take_set(&options.run, value);
    case EVAL_LOG:
        return ddp_options_take_log(&options.run, value);
    case EVAL_JSON:
        options.json = true;
        break;
    case EVAL_HELP:
        options.run.help = true;
        break;
    }
    return DDP_OK;
}

static ddp_status_t take_word(void *ctx, size_t index, const char *word)
{
    (void)ctx;
    if (index > 0) {
        return ddp_fail(DDP_ERR_CONFIG, "'%.80s' is a file too many; see ddptrain eval --help", word);
    }
    options.path = word;
    return DDP_OK;
}

static void say_result(const ddp_run_t *run, const ddp_eval_result_t *result)
{
    if (options.json) {
        printf("{\"event\":\"eval\",\"loss\":%.9g,\"accuracy\":%.9g,\"samples\":%zu,\"seconds\":%.3f",
               result->loss, result->accuracy, run->data.test_samples, result->seconds);
        if (result->perplexity > 0) {
            printf(",\"perplexity\":%.9g", result->perplexity);
        }
        printf("}\n");
        return;
    }
    printf("loss %.6f accuracy %.4f", result->loss, result->accuracy);
    if (result->perplexity > 0) {
        printf(" perplexity %.4g", result->perplexity);
    }
    printf(" on %zu %s\n", run->data.test_samples, run->data.context > 0 ? "sequences" : "samples");
}

/* ddp_body_fn_t */
static ddp_status_t evaluate(ddp_run_t *run, ddp_status_t early)
{
    ddp_status_t      status = DDP_OK;
    ddp_eval_result_t result;

    DDP_TRY(ddp_run_join(run, early));
    DDP_TRY(ddp_run_prepare(run));
    DDP_TRY(ddp_run_build(run));
    run->checkpoints.is_found = true;
    run->checkpoints.is_init  = true; /* weights only */
    if (ddp_comm_rank(run->comm) == 0) {
        run->checkpoints.opened = checkpoint;
        checkpoint              = NULL;
    }
    DDP_TRY(ddp_checkpoints_restore(run));
    DDP_TRY(ddp_eval_run(run, &result));
    if (ddp_comm_rank(run->comm) == 0) {
        say_result(run, &result);
        status = fflush(stdout) == 0 ? DDP_OK : ddp_fail(DDP_ERR_IO, "stdout: cannot be written");
    }
    DDP_TRY(ddp_comm_agree(run->comm, status));
out:
    return status;
}

static ddp_status_t parse(int argc, char **argv)
{
    ddp_status_t          status = DDP_OK;
    const ddp_args_sink_t sink   = {.ctx = NULL, .option = take_option, .word = take_word};

    options.run.command = "eval";
    options.run.log     = DDP_LOG_INFO;
    DDP_TRY(ddp_args_parse(eval_table, N_EVAL, "ddptrain eval", argc, argv, &sink));
    if (options.run.help) {
        goto out;
    }
    DDP_REQUIRE(options.path != NULL, DDP_ERR_CONFIG, "a checkpoint is needed: ddptrain eval CHECKPOINT");
    DDP_TRY(ddp_checkpoint_open(options.path, &checkpoint));
    DDP_TRY(ddp_checkpoint_check_run(checkpoint, options.path, false));
    options.run.base = ddp_checkpoint_state(checkpoint)->config;
out:
    return status;
}

int ddp_eval_command(int argc, char **argv)
{
    static ddp_run_t run; /* large */
    ddp_status_t     early = parse(argc, argv);
    int              code;

    if (early == DDP_OK && options.run.help) {
        if (ddp_launch_read().is_first) {
            say_help(stdout);
        }
        return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    code = ddp_start(&run, &options.run, early, evaluate, argc, argv);
    ddp_checkpoint_close(&checkpoint);
    return code;
}
