#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/error.h"
#include "base/log.h"
#include "launcher/args.h"
#include "launcher/inspect.h"
#include "launcher/launch.h"

typedef enum inspect_id { INSPECT_TENSORS, INSPECT_JSON, INSPECT_UNVERIFIED, INSPECT_HELP } inspect_id_t;

static const ddp_arg_t inspect_table[] = {
    [INSPECT_TENSORS]    = {"--tensors", NULL, "a line for each tensor: role, type, shape, length, updates"},
    [INSPECT_JSON]       = {"--json", NULL, "all of it as one JSON object"},
    [INSPECT_UNVERIFIED] = {"--unverified", NULL, "a damaged checkpoint too, as far as it can be read"},
    [INSPECT_HELP]       = {"--help", NULL, "this text"},
};
#define N_INSPECT (sizeof(inspect_table) / sizeof(inspect_table[0]))

typedef struct inspect {
    const char          *paths[2];
    size_t               n;
    bool                 tensors, json, help;
    ddp_weights_params_t how;
} inspect_t;

static void say_help(FILE *out)
{
    fputs(
        "ddptrain inspect tells what is in a checkpoint, or in a safetensors, npz or HDF5 file, and compares "
        "two.\n"
        "\n"
        "Usage: ddptrain inspect FILE [option...]\n"
        "       ddptrain inspect FILE FILE [--unverified]\n"
        "\n",
        out);
    ddp_args_help(inspect_table, N_INSPECT, out);
    fputs(
        "\n"
        "Two files: exit status 0 if they are equal bit for bit, 1 if they differ, 2 if one cannot be read. "
        "Moments are\n"
        "compared if both have some. One file: 0, or 1 if it cannot be read.\n",
        out);
}

static ddp_status_t take_option(void *ctx, size_t index, const char *value)
{
    inspect_t *inspect = ctx;

    (void)value;
    switch ((inspect_id_t)index) {
    case INSPECT_TENSORS:
        inspect->tensors = true;
        break;
    case INSPECT_JSON:
        inspect->json = true;
        break;
    case INSPECT_UNVERIFIED:
        inspect->how.unverified = true;
        break;
    case INSPECT_HELP:
        inspect->help = true;
        break;
    }
    return DDP_OK;
}

static ddp_status_t take_word(void *ctx, size_t index, const char *word)
{
    inspect_t *inspect = ctx;

    if (index >= 2) {
        return ddp_fail(DDP_ERR_CONFIG, "'%.80s' is a file too many: one, or two to compare", word);
    }
    inspect->paths[index] = word;
    inspect->n            = index + 1;
    return DDP_OK;
}

/* What the tensors are in sum. */
typedef struct totals {
    size_t   tensors, averages, others, moments;
    uint64_t parameters;
} totals_t;

static totals_t add_up(const ddp_weights_t *w)
{
    totals_t totals = {0};

    for (size_t i = 0; i < ddp_weights_count(w); i++) {
        const ddp_weights_tensor_t *t = &ddp_weights_tensors(w)[i];

        if (ddp_weights_is_moment(t)) {
            totals.moments++;
        } else if (t->type == DDP_WEIGHTS_OTHER) {
            totals.others++;
        } else if (t->desc.role == DDP_TENSOR_AVERAGE) {
            totals.averages++;
        } else {
            totals.tensors++;
            totals.parameters += t->desc.count;
        }
    }
    return totals;
}

static const char *role_name(const ddp_weights_tensor_t *tensor)
{
    return ddp_weights_is_moment(tensor)             ? "moment"
           : tensor->desc.role == DDP_TENSOR_AVERAGE ? "average"
                                                     : "parameter";
}

/* Updates applied to a tensor of a checkpoint. @return false: moments, and files that do not say */
static bool updates_of(const ddp_weights_t *w, size_t i, uint64_t *updates_p)
{
    const ddp_checkpoint_t *checkpoint = ddp_weights_checkpoint(w);

    if (checkpoint == NULL || i >= ddp_checkpoint_count(checkpoint)) {
        return false;
    }
    *updates_p = ddp_checkpoint_tensors(checkpoint)[i].steps;
    return true;
}

static void say_training(const ddp_training_state_t *state)
{
    printf("step          %" PRIu64 "\n", state->step);
    printf("epoch         %" PRIu64 "\n", state->epoch);
    printf("samples_seen  %" PRIu64 "\n", state->samples_seen);
    printf("seed          %" PRIu64 "\n", state->seed);
    printf("micro_batches %" PRIu64 "\n", state->micro_batches);
    printf("isa           %s\n", state->isa);
    printf("data          %s\n", state->data);
    printf("optimizer     %s%s", state->optimizer, state->n_slots > 0 ? ", moments" : "");
    for (size_t s = 0; s < state->n_slots; s++) {
        printf(" %s", state->slot[s]);
    }
    printf("\n");
    if (isnan(state->best_loss)) {
        printf("best_loss     none yet\n");
    } else {
        printf("best_loss     %.9g\n", state->best_loss);
    }
    if (state->loss_scale > 0) {
        printf("loss_scale    %g\n", state->loss_scale);
    }
    printf("producer      %s\n", state->producer);
}

static void shape_text(const ddp_tensor_desc_t *desc, char *text, size_t size)
{
    size_t n = (size_t)snprintf(text, size, "[");

    for (size_t d = 0; d < desc->ndim && n < size; d++) {
        n += (size_t)snprintf(text + n, size - n, "%s%zu", d > 0 ? ", " : "", desc->shape[d]);
    }
    if (n < size) {
        snprintf(text + n, size - n, "]");
    }
}

static ddp_status_t say_tensors(ddp_weights_t *w)
{
    ddp_status_t status = DDP_OK;

    printf("\n%-10s %-9s %-20s %14s %8s  name\n", "role", "type", "shape", "length", "updates");
    for (size_t i = 0; i < ddp_weights_count(w); i++) {
        const ddp_weights_tensor_t *t = &ddp_weights_tensors(w)[i];
        char                        shape[96];
        char                        count[24] = "-";
        uint64_t                    updates   = 0;
        double                      norm      = 0.0;

        if (t->type == DDP_WEIGHTS_OTHER) {
            printf("%-10s %-9s %-20s %14s %8s  %s\n", "-", ddp_inspect_type(t->type), "-", "-", "-",
                   t->desc.name);
            continue;
        }
        shape_text(&t->desc, shape, sizeof(shape));
        DDP_TRY(ddp_inspect_norm(w, i, &norm));
        if (updates_of(w, i, &updates)) {
            snprintf(count, sizeof(count), "%" PRIu64, updates);
        }
        printf("%-10s %-9s %-20s %14.8g %8s  %s\n", role_name(t), ddp_inspect_type(t->type), shape, norm,
               count, t->desc.name);
    }
out:
    return status;
}

static ddp_status_t say_text(const inspect_t *inspect, ddp_weights_t *w)
{
    ddp_status_t            status     = DDP_OK;
    const ddp_checkpoint_t *checkpoint = ddp_weights_checkpoint(w);
    const totals_t          totals     = add_up(w);

    printf("file          %s\n", inspect->paths[0]);
    printf("kind          %s%s\n", ddp_weights_kind_name(ddp_weights_kind(w)),
           checkpoint != NULL ? ", verified: size and checksum are right" : "");
    if (checkpoint != NULL) {
        say_training(ddp_checkpoint_state(checkpoint));
    }
    printf("parameters    %" PRIu64 " in %zu tensors\n", totals.parameters, totals.tensors);
    printf("averages      %zu tensors\n", totals.averages);
    if (totals.others > 0) {
        printf("others        %zu arrays that are no floats\n", totals.others);
    }
    if (inspect->tensors) {
        DDP_TRY(say_tensors(w));
    }
out:
    return status;
}

static void add_training(cJSON *json, const ddp_training_state_t *state)
{
    cJSON *object = cJSON_AddObjectToObject(json, "training");
    cJSON *slots  = cJSON_AddArrayToObject(object, "moments");

    cJSON_AddNumberToObject(object, "step", (double)state->step);
    cJSON_AddNumberToObject(object, "epoch", (double)state->epoch);
    cJSON_AddNumberToObject(object, "samples_seen", (double)state->samples_seen);
    cJSON_AddNumberToObject(object, "seed", (double)state->seed);
    cJSON_AddNumberToObject(object, "micro_batches", (double)state->micro_batches);
    cJSON_AddNumberToObject(object, "best_loss", state->best_loss); /* NaN is null */
    if (state->loss_scale > 0) {
        cJSON_AddNumberToObject(object, "loss_scale", state->loss_scale);
    }
    cJSON_AddStringToObject(object, "isa", state->isa);
    cJSON_AddStringToObject(object, "optimizer", state->optimizer);
    cJSON_AddStringToObject(object, "data", state->data);
    cJSON_AddStringToObject(object, "producer", state->producer);
    cJSON_AddStringToObject(object, "config", state->config);
    for (size_t s = 0; s < state->n_slots; s++) {
        cJSON_AddItemToArray(slots, cJSON_CreateString(state->slot[s]));
    }
}

static ddp_status_t add_tensors(cJSON *json, ddp_weights_t *w)
{
    ddp_status_t status = DDP_OK;
    cJSON       *list   = cJSON_AddArrayToObject(json, "tensors");

    for (size_t i = 0; i < ddp_weights_count(w); i++) {
        const ddp_weights_tensor_t *t       = &ddp_weights_tensors(w)[i];
        cJSON                      *object  = cJSON_CreateObject();
        cJSON                      *shape   = NULL;
        uint64_t                    updates = 0;
        double                      norm    = 0.0;

        cJSON_AddItemToArray(list, object);
        cJSON_AddStringToObject(object, "name", t->desc.name);
        cJSON_AddStringToObject(object, "type", ddp_inspect_type(t->type));
        if (t->type == DDP_WEIGHTS_OTHER) {
            continue;
        }
        cJSON_AddStringToObject(object, "role", role_name(t));
        shape = cJSON_AddArrayToObject(object, "shape");
        for (size_t d = 0; d < t->desc.ndim; d++) {
            cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)t->desc.shape[d]));
        }
        DDP_TRY(ddp_inspect_norm(w, i, &norm));
        cJSON_AddNumberToObject(object, "length", norm);
        if (updates_of(w, i, &updates)) {
            cJSON_AddNumberToObject(object, "updates", (double)updates);
        }
    }
out:
    return status;
}

static ddp_status_t say_json(const inspect_t *inspect, ddp_weights_t *w)
{
    ddp_status_t            status     = DDP_OK;
    const ddp_checkpoint_t *checkpoint = ddp_weights_checkpoint(w);
    cJSON                  *json       = cJSON_CreateObject();
    char                   *text       = NULL;

    cJSON_AddStringToObject(json, "file", inspect->paths[0]);
    cJSON_AddStringToObject(json, "kind", ddp_weights_kind_name(ddp_weights_kind(w)));
    cJSON_AddBoolToObject(json, "verified", checkpoint != NULL);
    cJSON_AddNumberToObject(json, "parameters", (double)add_up(w).parameters);
    if (checkpoint != NULL) {
        add_training(json, ddp_checkpoint_state(checkpoint));
    }
    DDP_TRY(add_tensors(json, w));
    text = cJSON_PrintUnformatted(json);
    DDP_REQUIRE(text != NULL, DDP_ERR_NO_MEMORY, "no memory for the text");
    printf("%s\n", text);
out:
    cJSON_free(text);
    cJSON_Delete(json);
    return status;
}

/* @param [out] code_p  0: equal; 1: not */
static ddp_status_t say_difference(const inspect_t *inspect, ddp_weights_t *a, int *code_p)
{
    ddp_status_t             status = DDP_OK;
    ddp_weights_t           *b      = NULL;
    ddp_inspect_difference_t d;

    DDP_TRY(ddp_weights_open(inspect->paths[1], &inspect->how, &b));
    DDP_TRY(ddp_inspect_compare(a, b, &d));
    if (d.different + d.only_a + d.only_b > 0) {
        printf("different: %s; %zu of %zu tensors differ, by at most %.9g; %zu are in the first file alone, "
               "%zu in "
               "the second\n",
               d.first, d.different, d.compared, d.most, d.only_a, d.only_b);
    } else {
        printf("equal: %zu tensors\n", d.compared);
    }
    if (d.is_training_different) {
        printf("different: the training states, see ddptrain inspect of each\n");
    }
    *code_p = d.different + d.only_a + d.only_b > 0 || d.is_training_different ? EXIT_FAILURE : EXIT_SUCCESS;
out:
    ddp_weights_close(&b);
    return status;
}

static ddp_status_t work(const inspect_t *inspect, int *code_p)
{
    ddp_status_t   status  = DDP_OK;
    ddp_weights_t *weights = NULL;

    DDP_TRY(ddp_weights_open(inspect->paths[0], &inspect->how, &weights));
    *code_p = EXIT_SUCCESS;
    if (inspect->n == 2) {
        DDP_TRY(say_difference(inspect, weights, code_p));
    } else {
        DDP_TRY(inspect->json ? say_json(inspect, weights) : say_text(inspect, weights));
    }
    DDP_REQUIRE(fflush(stdout) == 0, DDP_ERR_IO, "stdout: cannot be written");
out:
    ddp_weights_close(&weights);
    return status;
}

static ddp_status_t check(const inspect_t *inspect)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(ddp_launch_read().ranks <= 1, DDP_ERR_CONFIG,
                "inspect is one process: start it without mpirun");
    DDP_REQUIRE(inspect->n > 0, DDP_ERR_CONFIG, "a file is needed: ddptrain inspect FILE");
    DDP_REQUIRE(inspect->n == 1 || (!inspect->json && !inspect->tensors), DDP_ERR_CONFIG,
                "two files are compared: --json and --tensors are for one");
out:
    return status;
}

int ddp_inspect_command(int argc, char **argv)
{
    inspect_t             inspect = {.how = DDP_WEIGHTS_PARAMS_INIT};
    const ddp_args_sink_t sink    = {.ctx = &inspect, .option = take_option, .word = take_word};
    ddp_status_t          status;
    const int             trouble = 2; /* of usage, and of two files, as diff(1) has it */
    int                   code    = trouble;

    inspect.how.reader = "/proc/self/exe";
    status             = ddp_args_parse(inspect_table, N_INSPECT, "ddptrain inspect", argc, argv, &sink);
    if (status == DDP_OK && inspect.help) {
        say_help(stdout);
        return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    status = status == DDP_OK ? check(&inspect) : status;
    if (status == DDP_OK) {
        status = work(&inspect, &code);
        code   = status == DDP_OK ? code : inspect.n == 2 ? trouble : EXIT_FAILURE;
    }
    if (status != DDP_OK && ddp_launch_read().is_first) {
        ddp_log(DDP_LOG_ERROR, "%s", ddp_error_line());
    }
    return code;
}
