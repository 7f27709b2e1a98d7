#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "io/tokens.h"
#include "launcher/config_internal.h"

bool ddp_config_is_tokens(const ddp_config_t *config)
{
    return config->data.kind == DDP_CONFIG_DATA_TOKENS || config->data.kind == DDP_CONFIG_DATA_TEXT;
}

static void value_of(const ddp_config_t *config, const char *section, const char *name, char *text,
                     size_t size)
{
    ddp_config_value(config, ddp_config_find(section, name), text, size);
}

/* data.kind auto. */
static ddp_status_t choose_data(ddp_config_t *config, bool fashion_mnist_found)
{
    const bool          has_path = config->data.path[0] != '\0';
    ddp_tokens_format_t format   = DDP_TOKENS_TEXT;
    ddp_status_t        status   = DDP_OK;

    if (config->data.kind != DDP_CONFIG_DATA_AUTO) {
        goto out;
    }
    if (config->model.kind != DDP_MODEL_GPT2) {
        config->data.kind = has_path              ? DDP_DATA_IDX
                            : fashion_mnist_found ? DDP_DATA_FASHION_MNIST
                                                  : DDP_DATA_SHAPES;
        goto out;
    }
    DDP_REQUIRE(has_path, DDP_ERR_CONFIG, "model.kind gpt2 needs data.path: a text, or token shards");
    DDP_TRY(ddp_tokens_detect(config->data.path, &format));
    config->data.kind = format == DDP_TOKENS_TEXT ? DDP_CONFIG_DATA_TEXT : DDP_CONFIG_DATA_TOKENS;
out:
    return status;
}

/* What each kind of data needs. */
static ddp_status_t check_data(const ddp_config_t *config)
{
    static const char *const needs[] = {
        [DDP_DATA_IDX]           = "the folder with the IDX files",
        [DDP_DATA_CIFAR10]       = "the folder with its .bin files",
        [DDP_DATA_CIFAR100]      = "the folder with its .bin files",
        [DDP_DATA_HDF5]          = "the file",
        [DDP_CONFIG_DATA_TOKENS] = "a file, or a pattern of files",
        [DDP_CONFIG_DATA_TEXT]   = "a file, or a pattern of files",
    };
    const char  *need   = needs[config->data.kind];
    ddp_status_t status = DDP_OK;
    char         kind[32];

    value_of(config, "data", "kind", kind, sizeof(kind));
    DDP_REQUIRE(need == NULL || config->data.path[0] != '\0', DDP_ERR_CONFIG,
                "data.kind %s needs data.path: %s", kind, need);
    if (config->data.kind == DDP_DATA_HDF5) {
        DDP_REQUIRE((config->data.test_images[0] == '\0') == (config->data.test_labels[0] == '\0'),
                    DDP_ERR_CONFIG, "data.test_images and data.test_labels go together");
        DDP_REQUIRE(config->data.test_images[0] != '\0' || config->data.val_fraction > 0, DDP_ERR_CONFIG,
                    "data.val_fraction is 0: no test samples; name them with data.test_images");
    }
    if (ddp_config_is_tokens(config)) {
        DDP_REQUIRE(config->data.test_path[0] != '\0' || config->data.test_tokens[0] != '\0' ||
                        config->data.val_fraction > 0,
                    DDP_ERR_CONFIG,
                    "data.val_fraction is 0: no test sequences; name a file of them with data.test_path");
        DDP_REQUIRE(config->data.augment == DDP_AUGMENT_NONE, DDP_ERR_CONFIG,
                    "data.augment changes pictures, but data.kind is %s", kind);
    }
out:
    return status;
}

static ddp_status_t check_model_with_data(const ddp_config_t *config)
{
    const bool   is_gpt2 = config->model.kind == DDP_MODEL_GPT2;
    ddp_status_t status  = DDP_OK;
    char         kind[32];
    char         model[32];

    value_of(config, "data", "kind", kind, sizeof(kind));
    value_of(config, "model", "kind", model, sizeof(model));
    DDP_REQUIRE(is_gpt2 || !ddp_config_is_tokens(config), DDP_ERR_CONFIG,
                "model.kind %s takes pictures, but data.kind is %s: --set model.kind=gpt2", model, kind);
    DDP_REQUIRE(!is_gpt2 || ddp_config_is_tokens(config), DDP_ERR_CONFIG,
                "model.kind gpt2 takes tokens, but data.kind is %s: --set data.kind=text, or tokens, and "
                "data.path",
                kind);
out:
    return status;
}

/* Winograd's transforms lose the bits that bfloat16 has. */
static ddp_status_t check_precision(const ddp_config_t *config)
{
    const int    precision = config->train.precision;
    ddp_status_t status    = DDP_OK;
    char         conv[32];
    char         name[32];

    value_of(config, "train", "precision", name, sizeof(name));
    value_of(config, "model", "conv", conv, sizeof(conv));
    DDP_REQUIRE(precision == DDP_PRECISION_FLOAT32 || precision == DDP_PRECISION_BF16 ||
                    config->ddp.device == (int)DDP_DEVICE_CUDA,
                DDP_ERR_CONFIG,
                "train.precision %s is for ddp.device cuda, and this run has cpu: --set "
                "train.precision=float32, or bf16",
                name);
    DDP_REQUIRE(precision == DDP_PRECISION_FLOAT32 || config->model.conv == DDP_CONV_AUTO ||
                    config->model.conv == DDP_CONV_DIRECT,
                DDP_ERR_CONFIG, "train.precision %s needs direct convolution, but model.conv is %s", name,
                conv);
out:
    return status;
}

/* Devices and what sums on them. */
static ddp_status_t choose_backend(ddp_config_t *config)
{
    ddp_status_t status = DDP_OK;
    bool         is_cuda;

    if (config->ddp.device == DDP_CONFIG_DEVICE_AUTO) {
        config->ddp.device = DDP_DEVICE_CPU;
    }
    is_cuda = config->ddp.device == (int)DDP_DEVICE_CUDA;
    DDP_REQUIRE(is_cuda || config->ddp.backend != (int)DDP_REDUCER_NCCL, DDP_ERR_CONFIG,
                "ddp.backend nccl sums between GPUs, but ddp.device is cpu: --set ddp.backend=host");
    if (config->ddp.backend == (int)DDP_REDUCER_AUTO) {
        config->ddp.backend = DDP_REDUCER_HOST;
    }
    if (config->ddp.reduction == (int)DDP_REDUCTION_AUTO) {
        config->ddp.reduction =
            config->ddp.backend == (int)DDP_REDUCER_NCCL ? DDP_REDUCTION_FAST : DDP_REDUCTION_EXACT;
    }
    DDP_REQUIRE(config->ddp.wire == (int)DDP_WIRE_FLOAT32 || config->ddp.reduction == (int)DDP_REDUCTION_FAST,
                DDP_ERR_CONFIG,
                "ddp.wire bf16 rounds at every hop, but ddp.reduction is exact: --set "
                "ddp.wire=float32, or ddp.reduction=fast");
    DDP_REQUIRE(config->ddp.exchange <= (int)DDP_EXCHANGE_DIRECT ||
                    config->ddp.reduction == (int)DDP_REDUCTION_FAST,
                DDP_ERR_CONFIG,
                "ddp.exchange %s adds in an order of its own, but ddp.reduction is exact: --set "
                "ddp.exchange=direct, or ddp.reduction=fast",
                ddp_exchange_name((ddp_exchange_kind_t)config->ddp.exchange));
out:
    return status;
}

/* Means of means are taken over ranks, or over devices. */
static ddp_status_t check_average(const ddp_config_t *config)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(config->train.mode == DDP_MODE_DDP || config->ddp.average == (int)DDP_AVERAGE_SAMPLES,
                DDP_ERR_CONFIG,
                "ddp.average ranks is the mean over ranks, but train.mode dp has one: --set dp.loss=mean "
                "takes it over devices");
out:
    return status;
}

static ddp_status_t choose_format(ddp_config_t *config)
{
    ddp_tokens_format_t format = DDP_TOKENS_TEXT;
    ddp_status_t        status = DDP_OK;

    if (config->data.kind != DDP_CONFIG_DATA_TOKENS || config->data.format != DDP_CONFIG_FORMAT_AUTO) {
        goto out;
    }
    DDP_TRY(ddp_tokens_detect(config->data.path, &format));
    DDP_REQUIRE(
        format != DDP_TOKENS_TEXT, DDP_ERR_CONFIG,
        "data.path '%.200s' is no shard of llm.c and no HDF5 file, and its name does not say what it is: set "
        "data.format to uint16 or uint32, or data.kind to text",
        config->data.path);
    config->data.format = (int)format;
out:
    return status;
}

static void fill(uint64_t *value, size_t preset)
{
    if (*value == 0) {
        *value = preset;
    }
}

/* What is not stated comes from the preset; the vocabulary from the data. */
static ddp_status_t fill_gpt2(ddp_config_t *config)
{
    static const char *const names[] = {"gpt2-small", "gpt2-124m",  "gpt2-355m", "gpt2-774m",
                                        "gpt2-1558m", "gpt2-small", "gpt2-tiny"}; /* by model.preset */
    ddp_status_t             status  = DDP_OK;
    ddp_model_config_t       preset;
    ddp_model_config_t       gpt2;

    if (config->model.kind != DDP_MODEL_GPT2) {
        goto out;
    }
    DDP_TRY(ddp_model_gpt2_preset(names[config->model.preset], &preset));
    DDP_TRY(ddp_model_gpt2_preset("gpt2-124m", &gpt2));
    fill(&config->model.layers, preset.layers);
    fill(&config->model.heads, preset.heads);
    fill(&config->model.channels, preset.channels);
    fill(&config->model.context, preset.context);
    fill(&config->model.vocab, config->data.kind == DDP_CONFIG_DATA_TEXT ? DDP_TOKENS_BYTES : gpt2.vocab);
out:
    return status;
}

ddp_status_t ddp_config_resolve(ddp_config_t *config, bool fashion_mnist_found)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(choose_data(config, fashion_mnist_found));
    DDP_TRY(check_model_with_data(config));
    DDP_TRY(check_data(config));
    DDP_TRY(choose_backend(config));
    DDP_TRY(check_precision(config));
    DDP_TRY(check_average(config));
    DDP_TRY(choose_format(config));
    DDP_TRY(fill_gpt2(config));
    if (config->train.micro_batch == 0) {
        const uint64_t part = (config->train.batch + 15) / 16;

        config->train.micro_batch = part < 64 ? part : 64;
    }
    if (config->optimizer.decay == DDP_DECAY_AUTO) {
        config->optimizer.decay = config->model.kind == DDP_MODEL_GPT2 ? DDP_DECAY_MATRICES : DDP_DECAY_ALL;
    }
out:
    return status;
}

size_t ddp_config_micro_batches(const ddp_config_t *config)
{
    return (size_t)((config->train.batch + config->train.micro_batch - 1) / config->train.micro_batch);
}

/* Each of `workers`, called `noun`, has a micro-batch. */
static ddp_status_t check_workers(const ddp_config_t *config, size_t workers, const char *noun,
                                  const char *verb)
{
    const size_t   parts = ddp_config_micro_batches(config);
    const uint64_t batch = config->train.batch;
    uint64_t       fits;

    if (workers <= parts) {
        return DDP_OK;
    }
    if (workers > batch) {
        return ddp_fail(DDP_ERR_CONFIG,
                        "%zu %s, but train.batch %" PRIu64
                        " makes %zu micro-batches of train.micro_batch %" PRIu64
                        ": %s at most %zu %s, or set train.batch to %zu or more",
                        workers, noun, batch, parts, config->train.micro_batch, verb, parts, noun, workers);
    }
    /* the largest m with ceil(batch / m) >= workers */
    for (fits = config->train.micro_batch; (batch + fits - 1) / fits < workers; fits--) {
    }
    return ddp_fail(DDP_ERR_CONFIG,
                    "%zu %s, but train.batch %" PRIu64
                    " makes %zu micro-batches of train.micro_batch %" PRIu64
                    ": %s at most %zu %s, or --set train.micro_batch=%" PRIu64,
                    workers, noun, batch, parts, config->train.micro_batch, verb, parts, noun, fits);
}

ddp_status_t ddp_config_check_ranks(const ddp_config_t *config, int ranks)
{
    if (config->train.mode == DDP_MODE_DP && ranks > 1) {
        return ddp_fail(DDP_ERR_CONFIG,
                        "train.mode dp is one process with a thread for each device, but there are %d ranks: "
                        "run it without mpirun, or leave out --mode dp",
                        ranks);
    }
    return check_workers(config, (size_t)ranks, "ranks", "start");
}

ddp_status_t ddp_config_check_devices(const ddp_config_t *config, size_t devices)
{
    return check_workers(config, devices, "devices", "use");
}

ddp_model_config_t ddp_config_model(const ddp_config_t *config)
{
    ddp_model_config_t model = {.kind     = (ddp_model_kind_t)config->model.kind,
                                .channels = (size_t)config->model.channels,
                                .n_hidden = config->model.n_hidden,
                                .dropout  = (float)config->model.dropout,
                                .layers   = (size_t)config->model.layers,
                                .heads    = (size_t)config->model.heads,
                                .context  = (size_t)config->model.context,
                                .vocab    = (size_t)config->model.vocab,
                                .depth    = (size_t)config->model.depth,
                                .conv     = (ddp_conv_algo_t)config->model.conv};

    memcpy(model.hidden, config->model.hidden, sizeof(model.hidden));
    return model;
}
