/**
 * @file The configuration of a run: one table of keys, from which the defaults, the YAML schema, --set,
 * --help-config, the resolved config.yaml and the comparison between ranks all come.
 *
 * Nothing here is collective. Errors are DDP_ERR_CONFIG with one line: where, which key, what is allowed.
 */
#ifndef DDP_CONFIG_H_
#define DDP_CONFIG_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/export.h"
#include "base/status.h"
#include "ddp/reducer.h"
#include "io/dataset.h"
#include "nn/model.h"
#include "nn/schedule.h"

/** Longest path or text value, with its final 0. */
#define DDP_CONFIG_TEXT_SIZE 384

/** Beyond the kinds of io/dataset.h: token shards and text (io/tokens.h). */
#define DDP_CONFIG_DATA_TOKENS 6
#define DDP_CONFIG_DATA_TEXT   7
/** Not chosen yet (ddp_config_resolve() does); the last of each enum. */
#define DDP_CONFIG_DATA_AUTO   8
#define DDP_CONFIG_FORMAT_AUTO 4 /* behind ddp_tokens_format_t, whose text is data.kind text */
#define DDP_CONFIG_DEVICE_AUTO 2 /* behind ddp_device_kind_t */

typedef enum ddp_decay { DDP_DECAY_ALL = 0, DDP_DECAY_MATRICES = 1, DDP_DECAY_AUTO = 2 } ddp_decay_t;
/** DDP: a rank for each device; DP: one process, a thread for each device (dp_compat/data_parallel.h). */
typedef enum ddp_mode { DDP_MODE_DDP = 0, DDP_MODE_DP = 1 } ddp_mode_t;
typedef enum ddp_recompute { DDP_RECOMPUTE_NONE = 0, DDP_RECOMPUTE_BLOCKS = 1 } ddp_recompute_t;

typedef struct ddp_config {
    struct {
        int      kind; /* ddp_model_kind_t */
        size_t   n_hidden;
        size_t   hidden[DDP_MLP_MAX_HIDDEN];
        double   dropout;
        int      conv;  /* ddp_conv_algo_t */
        uint64_t depth; /* resnet */
        int      preset;
        uint64_t layers, heads, channels, context, vocab; /* 0: not chosen yet, or no gpt2 */
    } model;
    struct {
        int      kind; /* ddp_data_kind_t or DDP_CONFIG_DATA_... */
        char     path[DDP_CONFIG_TEXT_SIZE], test_path[DDP_CONFIG_TEXT_SIZE];
        int      format; /* ddp_tokens_format_t or DDP_CONFIG_FORMAT_AUTO */
        char     tokens[DDP_CONFIG_TEXT_SIZE], test_tokens[DDP_CONFIG_TEXT_SIZE];
        uint64_t samples, test_samples, seed;
        int      augment; /* ddp_augment_t */
        char     images[DDP_CONFIG_TEXT_SIZE], labels[DDP_CONFIG_TEXT_SIZE];
        char     test_images[DDP_CONFIG_TEXT_SIZE], test_labels[DDP_CONFIG_TEXT_SIZE];
        double   val_fraction;
    } data;
    struct {
        uint64_t epochs, steps, batch;
        uint64_t micro_batch; /* 0: not chosen yet */
        uint64_t seed, log_every, eval_every, sample_tokens;
        double   peak_gflops;
        int      mode; /* ddp_mode_t */
        bool     trace, graphs;
        int      nonfinite;                    /* ddp_nonfinite_t */
        int      recompute;                    /* ddp_recompute_t */
        int      precision;                    /* ddp_precision_t */
        char     freeze[DDP_CONFIG_TEXT_SIZE]; /* patterns, "a,b" */
    } train;
    struct {
        int    kind; /* ddp_optim_kind_t */
        double lr, beta1, beta2, eps, weight_decay, momentum;
        bool   nesterov;
        double clip_norm;
        int    decay; /* ddp_decay_t */
        bool   shard;
    } optimizer;
    struct {
        int      kind; /* ddp_schedule_kind_t */
        uint64_t warmup_steps;
        double   min_ratio;
        uint64_t step_size;
        double   gamma;
        uint64_t decay_steps;
    } schedule;
    struct {
        int      device; /* ddp_device_kind_t or DDP_CONFIG_DEVICE_AUTO */
        bool     share_gpu;
        int      backend; /* ddp_reducer_backend_t */
        uint64_t max_ctas;
        double   bucket_cap_mb, tail_bucket_kb;
        int      wire;                             /* ddp_wire_type_t */
        int      exchange;                         /* ddp_exchange_kind_t */
        char     interfaces[DDP_CONFIG_TEXT_SIZE]; /* "eth0,10.1.0.0/16"; "": any */
        int      reduction;                        /* ddp_reduction_t */
        int      average;                          /* ddp_average_t */
        double   timeout_s;
        uint64_t checksum_every;
        bool     trace_buckets;
        bool     monitor;
        uint64_t straggler_every; /* steps; 0: never */
    } ddp;
    struct {
        char devices[DDP_CONFIG_TEXT_SIZE]; /* "0,1"; "": all; launcher/devices.h reads these texts */
        int  loss;                          /* ddp_dp_loss_t */
        char output_device[DDP_CONFIG_TEXT_SIZE];
        char device_memory[DDP_CONFIG_TEXT_SIZE];
    } dp;
    struct {
        uint64_t every_steps, every_epochs, keep;
        double   timeout_s;
    } checkpoint;
} ddp_config_t;

/** Every key at its default. */
void ddp_config_defaults(ddp_config_t *config);

/** Number of keys; full name ("train.batch") and value of key `i` as --set takes them, in `size` bytes. */
size_t      ddp_config_keys(void);
const char *ddp_config_section(size_t i);  /* "train", static */
const char *ddp_config_name(size_t i);     /* "batch", static */
bool        ddp_config_is_list(size_t i);  /* of numbers or words */
bool        ddp_config_is_words(size_t i); /* a list of any words, which may be empty */
const char *ddp_config_example(size_t i);  /* of a list, "[512, 512]", static */
void        ddp_config_value(const ddp_config_t *config, size_t i, char *text, size_t size);

/** @return index of the key, or ddp_config_keys() if there is none. */
size_t ddp_config_find(const char *section, const char *name);

/** Set key `i` from text: type and range are checked; `config` is untouched on error. */
ddp_status_t ddp_config_parse(ddp_config_t *config, size_t i, const char *text) DDP_NODISCARD;

/** One --set argument, "train.batch=64". */
ddp_status_t ddp_config_set(ddp_config_t *config, const char *assignment) DDP_NODISCARD;

/** Line for a key that does not exist, with the nearest one: "unknown key 'x' in 'train'; did you mean 'y'?".
 * @param [in] section  NULL: `name` stands where a section should be */
ddp_status_t ddp_config_unknown(const char *section, const char *name);

/** Read a YAML file over `config` (keys that are not in it stay). The line begins with "path:line:column: ".
 */
ddp_status_t ddp_config_load(ddp_config_t *config, const char *path) DDP_NODISCARD;
/** The same of a YAML text; `name` stands for the path in lines. */
ddp_status_t ddp_config_load_text(ddp_config_t *config, const char *name, const char *text) DDP_NODISCARD;

/**
 * Choose what was left to the program, and refuse what does not go together; depends on the configuration and
 * the data found, never on the ranks. Looks at the first token file, if there is one. ddp.device and
 * ddp.backend were chosen by ddp_gpus_choose(); of what is still auto nothing is on a GPU.
 * @param [in] fashion_mnist_found  data.kind auto takes Fashion-MNIST, else shapes
 * @return DDP_ERR_CONFIG, or that of ddp_tokens_detect()
 */
ddp_status_t ddp_config_resolve(ddp_config_t *config, bool fashion_mnist_found) DDP_NODISCARD;

/** The data of a resolved configuration is tokens, not pictures. */
bool ddp_config_is_tokens(const ddp_config_t *config);

/** The model of a resolved configuration; what the data say of pictures is left 0. */
ddp_model_config_t ddp_config_model(const ddp_config_t *config);

/** V: logical micro-batches of a batch, ceil(batch / micro_batch). Resolved configurations only. */
size_t ddp_config_micro_batches(const ddp_config_t *config);

/** DDP_ERR_CONFIG if a rank would have no micro-batch; names the largest rank count and the micro_batch that
 * fits. With train.mode dp, if there are several ranks. */
ddp_status_t ddp_config_check_ranks(const ddp_config_t *config, int ranks) DDP_NODISCARD;
/** DDP_ERR_CONFIG if one of so many devices (train.mode dp) would have no micro-batch. */
ddp_status_t ddp_config_check_devices(const ddp_config_t *config, size_t devices) DDP_NODISCARD;

/** Key `i` says where a run is computed and not what: no part of a checkpoint. */
bool ddp_config_is_place(size_t i);

/** Word `i` of a list of words such as train.freeze. @return false: there are not so many. */
bool ddp_config_word(const char *words, size_t i, char *text, size_t size);

/** A key that was changed but has no effect with the kinds chosen: its line for the user in `text`.
 * @param [in] i  @return false: nothing to say */
bool ddp_config_no_effect(const ddp_config_t *config, size_t i, char *text, size_t size);
/** With train.mode dp: keys that are about several ranks go back to their defaults. Before
 * ddp_config_resolve().
 * @return true: there were some, which `text` names in a line */
bool ddp_config_drop_ranks(ddp_config_t *config, char *text, size_t size);

/** The configuration as YAML, which ddp_config_load() reads back to the same values. NULL: no memory; the
 * caller frees it.
 * @param [in] with_place  false: without what ddp_config_is_place() */
char *ddp_config_dump(const ddp_config_t *config, bool with_place);

/** --help-config: every key with default, range, unit and meaning; itself a valid run.yaml. */
void ddp_config_help(FILE *out);

#endif
