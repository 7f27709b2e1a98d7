#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/log.h"
#include "launcher/run.h"

static ddp_status_t open_pictures(const ddp_run_t *run, ddp_split_t split, ddp_dataset_t **dataset_p)
{
    ddp_dataset_params_t params   = DDP_DATASET_PARAMS_INIT;
    const bool           is_train = split == DDP_SPLIT_TRAIN;

    params.kind    = (ddp_data_kind_t)run->config.data.kind;
    params.path    = run->config.data.path[0] != '\0' ? run->config.data.path : NULL;
    params.split   = split;
    params.seed    = run->config.data.seed;
    params.samples = (size_t)(is_train ? run->config.data.samples : run->config.data.test_samples);
    if (params.kind == DDP_DATA_HDF5) {
        const bool is_apart = run->config.data.test_images[0] != '\0';

        params.images       = is_apart && !is_train ? run->config.data.test_images : run->config.data.images;
        params.labels       = is_apart && !is_train ? run->config.data.test_labels : run->config.data.labels;
        params.val_fraction = is_apart ? 0.0 : run->config.data.val_fraction;
    }
    return ddp_dataset_open(&params, dataset_p);
}

static ddp_status_t open_both_pictures(ddp_run_t *run)
{
    ddp_status_t              status = DDP_OK;
    const ddp_dataset_info_t *train;
    const ddp_dataset_info_t *test;

    DDP_TRY(open_pictures(run, DDP_SPLIT_TRAIN, &run->train));
    DDP_TRY(open_pictures(run, DDP_SPLIT_TEST, &run->test));
    train = ddp_dataset_info(run->train);
    test  = ddp_dataset_info(run->test);
    DDP_REQUIRE(train->height == test->height && train->width == test->width &&
                    train->channels == test->channels,
                DDP_ERR_FORMAT, "%s has %zu x %zu x %zu pictures, %s has %zu x %zu x %zu", train->source,
                train->height, train->width, train->channels, test->source, test->height, test->width,
                test->channels);
    DDP_TRY(ddp_augment_check((ddp_augment_t)run->config.data.augment, train));
    run->data =
        (ddp_data_info_t){.source       = train->source,
                          .samples      = train->samples,
                          .test_samples = test->samples,
                          .sample_bytes = train->height * train->width * train->channels * sizeof(float),
                          .memory_bytes = train->memory_bytes + test->memory_bytes};
out:
    return status;
}

static ddp_status_t open_tokens(const ddp_run_t *run, ddp_split_t split, ddp_tokens_t **tokens_p)
{
    const ddp_config_t *config   = &run->config;
    ddp_tokens_params_t params   = DDP_TOKENS_PARAMS_INIT;
    const bool          is_train = split == DDP_SPLIT_TRAIN;
    const bool          has_path = config->data.test_path[0] != '\0';
    const bool          has_name = config->data.test_tokens[0] != '\0';
    const bool          is_apart = has_path || has_name;

    params.format       = config->data.kind == DDP_CONFIG_DATA_TEXT ? DDP_TOKENS_TEXT
                                                                    : (ddp_tokens_format_t)config->data.format;
    params.path         = has_path && !is_train ? config->data.test_path : config->data.path;
    params.name         = has_name && !is_train ? config->data.test_tokens : config->data.tokens;
    params.context      = (size_t)config->model.context;
    params.vocab        = (size_t)config->model.vocab;
    params.split        = split;
    params.samples      = (size_t)(is_train ? config->data.samples : config->data.test_samples);
    params.val_fraction = is_apart ? 0.0 : config->data.val_fraction;
    return ddp_tokens_open(&params, tokens_p);
}

static ddp_status_t open_both_tokens(ddp_run_t *run)
{
    ddp_status_t             status = DDP_OK;
    const ddp_tokens_info_t *train;
    const ddp_tokens_info_t *test;

    DDP_TRY(open_tokens(run, DDP_SPLIT_TRAIN, &run->train_tokens));
    DDP_TRY(open_tokens(run, DDP_SPLIT_TEST, &run->test_tokens));
    train     = ddp_tokens_info(run->train_tokens);
    test      = ddp_tokens_info(run->test_tokens);
    run->data = (ddp_data_info_t){.source       = train->source,
                                  .samples      = train->sequences,
                                  .test_samples = test->sequences,
                                  .sample_bytes = train->context * sizeof(int32_t),
                                  .context      = train->context,
                                  .tokens       = (double)train->tokens,
                                  .test_tokens  = (double)test->tokens};
out:
    return status;
}

ddp_status_t ddp_data_open(ddp_run_t *run)
{
    ddp_status_t   status = DDP_OK;
    const uint64_t batch  = run->config.train.batch;

    DDP_TRY(ddp_config_is_tokens(&run->config) ? open_both_tokens(run) : open_both_pictures(run));
    DDP_REQUIRE(batch <= run->data.samples, DDP_ERR_CONFIG,
                "train.batch %" PRIu64 " is larger than the data, %zu training %s: set it to %zu or less",
                batch, run->data.samples, run->data.context > 0 ? "sequences" : "samples", run->data.samples);
out:
    return status;
}

/* Machines read their own files: the same number of samples and the same pixels, by their moments. */
static ddp_status_t check_pictures_equal(const ddp_run_t *run)
{
    char        samples[32];
    char        test_samples[32];
    char        moments[64];
    double      mean     = 0;
    double      std      = 0;
    ddp_field_t fields[] = {{"number of training samples", samples},
                            {"number of test samples", test_samples},
                            {"mean and deviation of the first channel", moments}};

    ddp_dataset_moments(run->train, 0, &mean, &std);
    snprintf(samples, sizeof(samples), "%zu", ddp_dataset_info(run->train)->samples);
    snprintf(test_samples, sizeof(test_samples), "%zu", ddp_dataset_info(run->test)->samples);
    snprintf(moments, sizeof(moments), "%.17g, %.17g", mean, std);
    return ddp_comm_check_equal(run->comm, fields, sizeof(fields) / sizeof(fields[0]));
}

/* One copy for the machine: local rank 0 decodes the training samples while local rank 1 decodes the test
 * samples. */
static ddp_status_t load_pictures(ddp_run_t *run)
{
    ddp_status_t              status      = DDP_OK;
    const ddp_dataset_info_t *info        = ddp_dataset_info(run->train);
    const int                 rank        = ddp_comm_local_rank(run->comm);
    const int                 test_loader = ddp_comm_local_size(run->comm) > 1 ? 1 : 0;
    void                     *train       = NULL;
    void                     *test        = NULL;
    double                    mean[16]    = {0};
    double                    std[16]     = {0};

    DDP_TRY(ddp_run_shared(run, "training samples", info->memory_bytes, &train));
    DDP_TRY(ddp_run_shared(run, "test samples", ddp_dataset_info(run->test)->memory_bytes, &test));
    status = ddp_fault("data_load", ddp_comm_rank(run->comm));
    if (status == DDP_OK && rank == 0) {
        status = ddp_dataset_load(run->train, train);
    }
    if (status == DDP_OK && rank == test_loader) {
        status = ddp_dataset_load(run->test, test);
    }
    DDP_TRY(ddp_comm_agree(run->comm, status));
    if (rank != 0) {
        status = ddp_dataset_attach(run->train, train);
    }
    if (status == DDP_OK && rank != test_loader) {
        status = ddp_dataset_attach(run->test, test);
    }
    if (status == DDP_OK && info->channels > sizeof(mean) / sizeof(mean[0])) {
        status = ddp_fail(DDP_ERR_UNSUPPORTED, "%s: pictures of %zu channels, at most 16 are supported",
                          info->source, info->channels);
    }
    if (status == DDP_OK) {
        for (size_t c = 0; c < info->channels; c++) {
            ddp_dataset_moments(run->train, c, &mean[c], &std[c]);
        }
        status = ddp_dataset_set_moments(run->test, mean, std);
    }
    DDP_TRY(ddp_comm_agree(run->comm, status));
    DDP_TRY(check_pictures_equal(run));
out:
    return status;
}

/* They map their own files too: by sizes and ends. */
static ddp_status_t check_tokens_equal(const ddp_run_t *run)
{
    const ddp_tokens_info_t *train = ddp_tokens_info(run->train_tokens);
    const ddp_tokens_info_t *test  = ddp_tokens_info(run->test_tokens);
    char                     text[4][32];
    ddp_field_t              fields[] = {{"number of training sequences", text[0]},
                                         {"digest of the training files", text[1]},
                                         {"number of test sequences", text[2]},
                                         {"digest of the test files", text[3]}};

    snprintf(text[0], sizeof(text[0]), "%zu", train->sequences);
    snprintf(text[1], sizeof(text[1]), "%016" PRIx64, train->digest);
    snprintf(text[2], sizeof(text[2]), "%zu", test->sequences);
    snprintf(text[3], sizeof(text[3]), "%016" PRIx64, test->digest);
    return ddp_comm_check_equal(run->comm, fields, sizeof(fields) / sizeof(fields[0]));
}

ddp_status_t ddp_data_load(ddp_run_t *run)
{
    return run->train != NULL ? load_pictures(run) : check_tokens_equal(run);
}

void ddp_data_fingerprint(const ddp_run_t *run, char text[DDP_DATA_TEXT_SIZE])
{
    char   kind[32];
    double mean = 0;
    double std  = 0;

    ddp_config_value(&run->config, ddp_config_find("data", "kind"), kind, sizeof(kind));
    if (run->train == NULL) {
        snprintf(text, DDP_DATA_TEXT_SIZE, "%s, %zu sequences, digest %016" PRIx64, kind, run->data.samples,
                 ddp_tokens_info(run->train_tokens)->digest);
        return;
    }
    ddp_dataset_moments(run->train, 0, &mean, &std);
    snprintf(text, DDP_DATA_TEXT_SIZE, "%s, %zu samples, mean %.9g, deviation %.9g", kind, run->data.samples,
             mean, std);
}

void ddp_data_say(const ddp_run_t *run)
{
    const ddp_data_info_t    *data = &run->data;
    const ddp_dataset_info_t *info;

    if (data->context > 0) {
        ddp_log(
            DDP_LOG_INFO,
            "data %s, %.0f tokens, %zu sequences of %zu for training, %zu for the test, vocabulary %" PRIu64,
            data->source, data->tokens, data->samples, data->context, data->test_samples,
            run->config.model.vocab);
        return;
    }
    info = ddp_dataset_info(run->train);
    ddp_log(DDP_LOG_INFO, "data %s, %zu samples, %zu x %zu, %zu classes", info->source, info->samples,
            info->height, info->width, info->classes);
}

void ddp_data_close(ddp_run_t *run)
{
    ddp_dataset_close(&run->train);
    ddp_dataset_close(&run->test);
    ddp_tokens_close(&run->train_tokens);
    ddp_tokens_close(&run->test_tokens);
}
