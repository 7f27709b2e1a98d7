#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ddp/link.h"
#include "io/tokens.h"
#include "launcher/config.h"
#include "tests/support/ddp_test.h"

static char path[64];

/* Load `text` from a file over the defaults. */
static ddp_status_t load(ddp_config_t *config, const char *text)
{
    FILE *file = fopen(path, "w");

    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
    ddp_config_defaults(config);
    return ddp_config_load(config, path);
}

/* A file is refused, at this line and column, with this text. */
static void refuse(const char *text, const char *place, const char *line)
{
    ddp_config_t config;
    ddp_config_t defaults;
    char         wanted[256];

    snprintf(wanted, sizeof(wanted), "%s%s", path, place);
    ddp_assert_fails(load(&config, text), DDP_ERR_CONFIG, line);
    ck_assert_msg(strncmp(ddp_error_line(), wanted, strlen(wanted)) == 0, "'%s' does not begin with '%s'",
                  ddp_error_line(), wanted);
    ddp_config_defaults(&defaults);
    ck_assert_msg(memcmp(&config, &defaults, sizeof(config)) == 0, "a refused file changed something: %s",
                  text);
}

static void get(const ddp_config_t *config, const char *section, const char *name, char value[64])
{
    size_t i = ddp_config_find(section, name);

    ck_assert_uint_lt(i, ddp_config_keys());
    ddp_config_value(config, i, value, 64);
}

static void resolve(ddp_config_t *config, const char *const *sets)
{
    ddp_config_defaults(config);
    for (; *sets != NULL; sets++) {
        ddp_assert_ok(ddp_config_set(config, *sets));
    }
    ddp_assert_ok(ddp_config_resolve(config, true));
}

#define RESOLVE(config, ...) resolve(config, (const char *const[]){__VA_ARGS__, NULL})

START_TEST(the_text_of_help_config_is_a_file_with_all_defaults)
{
    char        *text = NULL;
    size_t       size = 0;
    FILE        *out  = open_memstream(&text, &size);
    ddp_config_t defaults;
    ddp_config_t config;
    char         line[128];
    char         value[64];

    ddp_config_help(out);
    fclose(out);
    ddp_config_defaults(&defaults);
    ddp_assert_ok(load(&config, text));
    ck_assert(memcmp(&config, &defaults, sizeof(config)) == 0);
    for (size_t i = 0; i < ddp_config_keys(); i++) {
        ddp_config_value(&defaults, i, value, sizeof(value));
        snprintf(line, sizeof(line), "\n  %s: %s", ddp_config_name(i), value[0] != '\0' ? value : "\"\"");
        ck_assert_msg(strstr(text, line) != NULL, "'%s' is not in --help-config", line + 1);
    }
    free(text);
}
END_TEST

START_TEST(defaults_are_those_of_the_design)
{
    ddp_config_t config;

    ddp_config_defaults(&config);
    ck_assert_int_eq(config.model.kind, DDP_MODEL_CNN);
    ck_assert_int_eq(config.model.conv, DDP_CONV_AUTO);
    ck_assert_uint_eq(config.model.n_hidden, 2);
    ck_assert_uint_eq(config.model.hidden[1], 512);
    ck_assert_uint_eq(config.train.epochs, 3);
    ck_assert_uint_eq(config.train.micro_batch, 0);
    ck_assert_int_eq(config.optimizer.kind, DDP_OPTIM_ADAMW);
    ck_assert(config.optimizer.beta2 == 0.999 && config.optimizer.eps == 1e-8);
    ck_assert(config.ddp.bucket_cap_mb == 25 && config.ddp.tail_bucket_kb == 1024 &&
              config.ddp.timeout_s == 60);
}
END_TEST

START_TEST(a_file_changes_the_keys_it_has_and_no_others)
{
    ddp_config_t config;
    ddp_config_t wanted;

    ddp_assert_ok(load(
        &config,
        "# comment\nmodel: {kind: mlp, hidden: [64, 32, 16], conv: winograd2}\ntrain:\n  batch: 512 # more\n"
        "optimizer:\n  lr: 2.5e-3\n  kind: sgd\n  nesterov: true\ndata:\n"
        "  path: \"/a b/c's\"\nddp: {average: ranks}\n"));
    ddp_config_defaults(&wanted);
    wanted.model.kind         = DDP_MODEL_MLP;
    wanted.model.n_hidden     = 3;
    wanted.model.hidden[0]    = 64;
    wanted.model.hidden[1]    = 32;
    wanted.model.hidden[2]    = 16;
    wanted.model.conv         = DDP_CONV_WINOGRAD2;
    wanted.train.batch        = 512;
    wanted.optimizer.lr       = 2.5e-3;
    wanted.optimizer.kind     = DDP_OPTIM_SGD;
    wanted.optimizer.nesterov = true;
    wanted.ddp.average        = DDP_AVERAGE_RANKS;
    strcpy(wanted.data.path, "/a b/c's");
    ck_assert(memcmp(&config, &wanted, sizeof(config)) == 0);
}
END_TEST

START_TEST(a_dump_reads_back_to_the_same_values)
{
    ddp_config_t config;
    ddp_config_t again;
    char        *text;

    ddp_config_defaults(&config);
    ddp_assert_ok(ddp_config_set(&config, "optimizer.lr=0.1234567890123456789"));
    ddp_assert_ok(ddp_config_set(&config, "model.hidden=7"));
    ddp_assert_ok(ddp_config_set(&config, "data.path=it's: # {\"odd\"}\\\n\t\x1b"));
    ddp_assert_ok(ddp_config_set(&config, "schedule.kind=wsd"));
    ddp_assert_ok(ddp_config_set(&config, "train.freeze=*.bias,h.[0-5].*"));
    ddp_assert_ok(ddp_config_set(&config, "dp.devices=3,0"));
    ddp_assert_ok(ddp_config_set(&config, "dp.device_memory=0:1G,3:512M"));
    ddp_assert_ok(ddp_config_resolve(&config, true));
    text = ddp_config_dump(&config, true);
    ck_assert_ptr_nonnull(text);
    ddp_assert_ok(load(&again, text));
    again.model.hidden[1] = config.model.hidden[1]; /* left over from the default, not counted */
    ck_assert(memcmp(&config, &again, sizeof(config)) == 0);
    free(text);
}
END_TEST

START_TEST(a_dump_without_the_place_says_only_what_is_computed)
{
    ddp_config_t config;
    ddp_config_t other;
    char        *text;
    char        *same;

    RESOLVE(&config, "model.kind=mlp");
    RESOLVE(&other, "model.kind=mlp", "train.mode=dp", "dp.devices=1,0", "dp.device_memory=1G",
            "dp.output_device=1");
    text = ddp_config_dump(&config, false);
    same = ddp_config_dump(&other, false);
    ck_assert_str_eq(text, same);
    ck_assert_ptr_nonnull(strstr(text, "\n  loss: outside\n"));
    ck_assert_ptr_null(strstr(text, "devices"));
    free(text);
    free(same);
    text = ddp_config_dump(&other, true);
    ck_assert_ptr_nonnull(strstr(text, "\n  devices: [1, 0]\n"));
    free(text);
}
END_TEST

START_TEST(unknown_keys_are_named_with_line_column_and_the_nearest_key)
{
    refuse("train:\n  batch: 3\n  modle: 5\n", ":3:3: ", "unknown key 'modle' in 'train'");
    refuse("trian:\n  batch: 3\n", ":1:1: ", "unknown key 'trian'; did you mean 'train'?");
    refuse("# batc: 1\ntrain: {batch: 3, batc: 4}\n",
           ":2:19: ", "unknown key 'batc' in 'train'; did you mean 'batch'?");
    refuse("train: {batch: 3} # modle: {}\nmodle: {kind: cnn}\n", ":2:1: ", "did you mean 'model'?");
    refuse("train: {half: true}\n", ":1:9: ", "unknown key 'half' in 'train'");
    refuse("checkpoints: {every_steps: 5}\n",
           ":1:1: ", "unknown key 'checkpoints'; did you mean 'checkpoint'?");
}
END_TEST

/* Any word will do for these. */
static bool is_text_key(const char *name)
{
    static const char *const names[] = {
        "path",        "test_path", "images",     "labels",        "test_images",   "test_labels", "tokens",
        "test_tokens", "freeze",    "interfaces", "output_device", "device_memory", "devices"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

START_TEST(every_key_refuses_a_value_of_another_type_and_names_the_place)
{
    char text[256];
    char name[128];

    for (size_t i = 0; i < ddp_config_keys(); i++) {
        const bool is_text = is_text_key(ddp_config_name(i));

        snprintf(name, sizeof(name), "%s.%s", ddp_config_section(i), ddp_config_name(i));
        if (!is_text) {
            snprintf(text, sizeof(text), "\n%s:\n  %s: %s\n", ddp_config_section(i), ddp_config_name(i),
                     ddp_config_is_list(i) ? "[12, frog]" : "frog");
            refuse(text, ":3:", name);
            ck_assert_msg(strstr(ddp_error_line(), "is 'frog'") != NULL, "%s", ddp_error_line());
        }
        snprintf(text, sizeof(text), "%s: {%s: {a: 1}}\n", ddp_config_section(i), ddp_config_name(i));
        refuse(text, ":1:", name);
        if (!is_text && !ddp_config_is_list(i)) {
            snprintf(text, sizeof(text), "%s:\n  %s:\n", ddp_config_section(i), ddp_config_name(i));
            refuse(text, ":2:", "has no value");
            snprintf(text, sizeof(text), "%s:\n  %s: [1]\n", ddp_config_section(i), ddp_config_name(i));
            refuse(text, ":2:", "one value is expected");
        }
    }
}
END_TEST

START_TEST(values_out_of_range_are_named_with_the_range)
{
    refuse("train: {batch: 0}\n",
           ":1:16: ", "train.batch is '0': a whole number of samples is allowed (1 .. 16777216)");
    refuse("train: {batch: -1}\n", ":1:16: ", "train.batch is '-1'");
    refuse("train: {batch: 99999999999999999999}\n", ":1:16: ", "train.batch is '99999999999999999999'");
    refuse("train: {epochs: 1.5}\n", ":1:17: ", "a whole number of epochs");
    refuse("model: {dropout: 1}\n", ":1:18: ", "(0 <= value < 1)");
    refuse("optimizer: {lr: nan}\n", ":1:17: ", "optimizer.lr is 'nan'");
    refuse("optimizer: {lr: 0x10}\n", ":1:17: ", "optimizer.lr is '0x10'");
    refuse("optimizer: {lr: 1e999}\n", ":1:17: ", "optimizer.lr is '1e999'");
    refuse("optimizer: {lr: 1.2.3}\n", ":1:17: ", "optimizer.lr is '1.2.3'");
    refuse("model: {kind: cn}\n", ":1:15: ", "model.kind is 'cn': allowed are mlp, cnn");
    refuse("model: {hidden: [0]}\n", ":1:17: ", "model.hidden is '0'");
    refuse("model: {hidden: []}\n", ":1:17: ", "a list of at least one is expected");
    refuse("model: {hidden: [\"5,6\", 7]}\n", ":1:17: ", "model.hidden holds '5,6'");
    refuse("model: {hidden: [\"5] junk\", 7]}\n", ":1:17: ", "model.hidden holds '5] junk'");
    refuse("model: {hidden: [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8]}\n",
           ":1:17: ", "more than 16");
    refuse("model: {hidden: 5}\n", ":1:17: ", "a list of at least one is expected");
}
END_TEST

START_TEST(files_that_are_no_configuration_are_refused_in_a_line)
{
    ddp_config_t config;

    refuse("", ": ", "empty file");
    refuse("# nothing\n", ": ", "no key in it");
    refuse("- a\n- b\n", ":1:1: ", "sections are expected");
    refuse("hello\n", ":1:1: ", "sections are expected");
    refuse("train:\n", ":1:7: ", "'train' is a section");
    refuse("train: {batch: 3\n", ":", "not YAML: did not find expected");
    refuse("train:\n\tbatch: 3\n", ":", "not YAML: found character that cannot start any token");
    refuse("train: {batch: 3,\n  batch: 4}\n", ":2:3: ", "key 'batch' stands here for the second time");
    refuse("train: {batch: 1}\ntrain: {epochs: 1}\n",
           ":2:1: ", "key 'train' stands here for the second time");
    refuse("train: &x {batch: 3}\ndata: *x\n", ":2:", "aliases");
    refuse("train: {batch: 1}\n---\ntrain: {epochs: 1}\n", ": ", "more than one YAML document");
    refuse("? [a, b]\n: 3\n", ":", "a key has to be a single word");
    refuse("\x7f"
           "ELF\x02\x01",
           ": ", "byte 0x02 at offset 4: not a YAML text");

    ddp_config_defaults(&config);
    ddp_assert_fails(ddp_config_load(&config, "/nowhere/run.yaml"), DDP_ERR_CONFIG,
                     "/nowhere/run.yaml: no such file or directory");
    ddp_assert_fails(ddp_config_load(&config, "/"), DDP_ERR_CONFIG, "/: a folder, not a YAML file");
}
END_TEST

START_TEST(set_goes_through_the_same_checks)
{
    static const char *const no_lists[] = {"[5",   "5]",    "5]6", "[5] 7", "[[5]]", "[5,,6]",
                                           "[5,]", "[5 6]", ",",   "[",     "[] 5",  "[5]]"};
    ddp_config_t             config;
    char                     value[64];

    ddp_config_defaults(&config);
    ddp_assert_ok(ddp_config_set(&config, "train.batch=64"));
    ddp_assert_ok(ddp_config_set(&config, "model.hidden=[8, 9]"));
    ddp_assert_ok(ddp_config_set(&config, "train.micro_batch=auto"));
    ddp_assert_ok(ddp_config_set(&config, "data.path=/a=b"));
    ck_assert_uint_eq(config.train.batch, 64);
    ck_assert_str_eq(config.data.path, "/a=b");
    get(&config, "model", "hidden", value);
    ck_assert_str_eq(value, "[8, 9]");
    ddp_assert_fails(ddp_config_set(&config, "train.batch=abc"), DDP_ERR_CONFIG,
                     "--set train.batch=abc: train.batch is 'abc': a whole number");
    ddp_assert_fails(ddp_config_set(&config, "train.bacth=1"), DDP_ERR_CONFIG, "did you mean 'batch'?");
    ddp_assert_fails(ddp_config_set(&config, "tarin.batch=1"), DDP_ERR_CONFIG, "did you mean 'train'?");
    ddp_assert_fails(ddp_config_set(&config, "batch=1"), DDP_ERR_CONFIG, "section.key=value is expected");
    ddp_assert_fails(ddp_config_set(&config, "train.batch"), DDP_ERR_CONFIG, "section.key=value is expected");
    ddp_assert_fails(ddp_config_set(&config, "train.batch="), DDP_ERR_CONFIG,
                     "has no value; its default is 128");
    ck_assert_uint_eq(config.train.batch, 64);
    for (size_t i = 0; i < sizeof(no_lists) / sizeof(no_lists[0]); i++) {
        char text[64];

        snprintf(text, sizeof(text), "model.hidden=%s", no_lists[i]);
        ddp_assert_fails(ddp_config_set(&config, text), DDP_ERR_CONFIG, "model.hidden is ");
    }
    ddp_assert_ok(ddp_config_set(&config, "model.hidden= [ 8 ,9 ]"));
    ddp_assert_ok(ddp_config_set(&config, "model.hidden=8, 9"));
}
END_TEST

START_TEST(what_is_left_open_is_chosen_without_the_ranks)
{
    static const struct {
        uint64_t batch, micro_batch;
        size_t   parts;
    } wanted[] = {{128, 8, 16},   {10, 1, 10},    {16, 1, 16}, {17, 2, 9},
                  {1024, 64, 16}, {4096, 64, 64}, {1, 1, 1}};
    ddp_config_t config;

    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        ddp_config_defaults(&config);
        config.train.batch = wanted[i].batch;
        ddp_assert_ok(ddp_config_resolve(&config, false));
        ck_assert_uint_eq(config.train.micro_batch, wanted[i].micro_batch);
        ck_assert_uint_eq(ddp_config_micro_batches(&config), wanted[i].parts);
    }
    ck_assert_int_eq(config.data.kind, DDP_DATA_SHAPES);
    ck_assert_int_eq(config.ddp.reduction, DDP_REDUCTION_EXACT);
    ddp_config_defaults(&config);
    ddp_assert_ok(ddp_config_resolve(&config, true));
    ck_assert_int_eq(config.data.kind, DDP_DATA_FASHION_MNIST);
    ddp_config_defaults(&config);
    ddp_assert_ok(ddp_config_set(&config, "data.path=/mine"));
    ddp_assert_ok(ddp_config_resolve(&config, true));
    ck_assert_int_eq(config.data.kind, DDP_DATA_IDX);
    ddp_config_defaults(&config);
    ddp_assert_ok(ddp_config_set(&config, "data.kind=idx"));
    ddp_assert_fails(ddp_config_resolve(&config, true), DDP_ERR_CONFIG, "needs data.path");
}
END_TEST

START_TEST(a_gpt2_takes_from_its_preset_what_is_not_stated)
{
    ddp_config_t config;

    RESOLVE(&config, "model.kind=gpt2", "data.kind=text", "data.path=x", "model.preset=355m",
            "model.layers=3", "model.context=128");
    ck_assert_uint_eq(config.model.layers, 3);
    ck_assert_uint_eq(config.model.heads, 16);
    ck_assert_uint_eq(config.model.channels, 1024);
    ck_assert_uint_eq(config.model.context, 128);
    ck_assert_uint_eq(config.model.vocab, 256);
    ck_assert_int_eq(config.optimizer.decay, DDP_DECAY_MATRICES);
    ck_assert(ddp_config_is_tokens(&config));
    RESOLVE(&config, "model.kind=gpt2", "data.kind=tokens", "data.path=x", "data.format=uint32",
            "optimizer.decay=all");
    ck_assert_uint_eq(config.model.layers, 4);
    ck_assert_uint_eq(config.model.channels, 256);
    ck_assert_uint_eq(config.model.vocab, 50257);
    ck_assert_int_eq(config.data.format, DDP_TOKENS_UINT32);
    ck_assert_int_eq(config.optimizer.decay, DDP_DECAY_ALL);
    RESOLVE(&config, "model.kind=mlp");
    ck_assert_uint_eq(config.model.layers, 0);
    ck_assert_int_eq(config.optimizer.decay, DDP_DECAY_ALL);
    ck_assert(!ddp_config_is_tokens(&config));
}
END_TEST

START_TEST(every_exchange_may_be_asked_for)
{
    ddp_config_t config;
    char         text[64];

    ddp_config_defaults(&config);
    for (int kind = DDP_EXCHANGE_AUTO; kind <= DDP_EXCHANGE_MEASURED; kind++) {
        snprintf(text, sizeof(text), "ddp.exchange=%s", ddp_exchange_name((ddp_exchange_kind_t)kind));
        ddp_assert_ok(ddp_config_set(&config, text));
        ck_assert_int_eq(config.ddp.exchange, kind);
    }
}
END_TEST

START_TEST(a_list_of_words_may_hold_anything_but_a_comma)
{
    static const char *const no_lists[] = {"a,,b", ",a", "a,", "[,]", "\"\""};
    ddp_config_t             config;
    char                     value[64];

    ddp_assert_ok(load(&config, "train:\n  freeze: [\"*.bias\", 'h.[0-5].*', plain]\n"));
    ck_assert_str_eq(config.train.freeze, "*.bias,h.[0-5].*,plain");
    get(&config, "train", "freeze", value);
    ck_assert_str_eq(value, "[\"*.bias\", \"h.[0-5].*\", \"plain\"]");
    ddp_assert_ok(ddp_config_set(&config, "train.freeze=[ab]*, x[12] "));
    ck_assert_str_eq(config.train.freeze, "[ab]*,x[12]");
    ddp_assert_ok(load(&config, "train: {freeze: [\"[ab]*\", \"x[12]\"]}\n"));
    ck_assert_str_eq(config.train.freeze, "[ab]*,x[12]");
    ck_assert(ddp_config_word(config.train.freeze, 1, value, sizeof(value)));
    ck_assert_str_eq(value, "x[12]");
    ck_assert(!ddp_config_word(config.train.freeze, 2, value, sizeof(value)));
    ddp_assert_ok(ddp_config_set(&config, "train.freeze=[]"));
    ck_assert_str_eq(config.train.freeze, "");
    ddp_assert_ok(load(&config, "train: {freeze: []}\n"));
    ck_assert_str_eq(config.train.freeze, "");
    for (size_t i = 0; i < sizeof(no_lists) / sizeof(no_lists[0]); i++) {
        snprintf(value, sizeof(value), "train.freeze=%s", no_lists[i]);
        ddp_assert_fails(ddp_config_set(&config, value), DDP_ERR_CONFIG, "a list such as");
    }
    refuse("train: {freeze: a}\n", ":1:17: ", "train.freeze: a list is expected, as in");
    refuse("train: {freeze: [a, \"b,c\"]}\n", ":1:17: ", "train.freeze holds 'b,c'");
    refuse("train: {freeze: [a, \"\"]}\n", ":1:17: ", "train.freeze holds ''");
}
END_TEST

START_TEST(dp_is_one_process)
{
    ddp_config_t config;
    char         line[256];

    RESOLVE(&config, "train.mode=dp");
    ddp_assert_ok(ddp_config_check_ranks(&config, 1));
    ddp_assert_fails(ddp_config_check_ranks(&config, 2), DDP_ERR_CONFIG,
                     "there are 2 ranks: run it without mpirun, or leave out --mode dp");
    ddp_assert_ok(ddp_config_set(&config, "ddp.average=ranks"));
    ddp_assert_fails(ddp_config_resolve(&config, true), DDP_ERR_CONFIG, "--set dp.loss=mean");
    ddp_config_defaults(&config);
    ddp_assert_ok(ddp_config_set(&config, "ddp.wire=bf16"));
    ddp_assert_ok(ddp_config_set(&config, "optimizer.shard=true"));
    ck_assert(!ddp_config_drop_ranks(&config, line, sizeof(line)));
    ddp_assert_ok(ddp_config_set(&config, "train.mode=dp"));
    ck_assert(ddp_config_drop_ranks(&config, line, sizeof(line)));
    ck_assert_str_eq(
        line, "ddp.wire bf16, optimizer.shard true: no effect with train.mode dp, which has one process");
    ck_assert(!config.optimizer.shard && !ddp_config_drop_ranks(&config, line, sizeof(line)));
    RESOLVE(&config, "dp.loss=inside");
    ck_assert(ddp_config_no_effect(&config, ddp_config_find("dp", "loss"), line, sizeof(line)));
    ck_assert_str_eq(line, "dp.loss inside has no effect: it belongs to train.mode dp, and this run has ddp");
    ddp_assert_ok(load(&config, "dp: {devices: [2, 0]}\n"));
    ck_assert_str_eq(config.dp.devices, "2,0");
    refuse("dp: {devices: 2}\n", ":1:15: ", "dp.devices: a list is expected, as in [0, 1]");
}
END_TEST

START_TEST(too_many_ranks_are_told_what_fits)
{
    ddp_config_t config;

    ddp_config_defaults(&config);
    ddp_assert_ok(ddp_config_set(&config, "train.batch=100"));
    ddp_assert_ok(ddp_config_set(&config, "train.micro_batch=30"));
    ddp_assert_ok(ddp_config_resolve(&config, false));
    for (int ranks = 1; ranks <= 4; ranks++) {
        ddp_assert_ok(ddp_config_check_ranks(&config, ranks));
    }
    /* ceil(100 / 24) = 5 and ceil(100 / 25) = 4 */
    ddp_assert_fails(
        ddp_config_check_ranks(&config, 5), DDP_ERR_CONFIG,
        "5 ranks, but train.batch 100 makes 4 micro-batches of train.micro_batch 30: start at most 4 "
        "ranks, or --set train.micro_batch=24");
    ddp_assert_fails(ddp_config_check_ranks(&config, 100), DDP_ERR_CONFIG, "--set train.micro_batch=1");
    ddp_assert_fails(ddp_config_check_ranks(&config, 101), DDP_ERR_CONFIG, "set train.batch to 101 or more");
}
END_TEST

START_TEST(a_key_of_another_kind_is_said_to_have_no_effect)
{
    ddp_config_t config;
    char         text[512] = "";
    size_t       said      = 0;

    ddp_config_defaults(&config);
    ddp_assert_ok(ddp_config_set(&config, "optimizer.momentum=0.9"));
    for (size_t i = 0; i < ddp_config_keys(); i++) {
        said += ddp_config_no_effect(&config, i, text, sizeof(text)) ? 1 : 0;
    }
    ck_assert_uint_eq(said, 1);
    ck_assert_str_eq(
        text, "optimizer.momentum 0.9 has no effect: it belongs to optimizer.kind sgd, and this run has "
              "adamw");
    ddp_assert_ok(ddp_config_set(&config, "optimizer.kind=sgd"));
    for (size_t i = 0; i < ddp_config_keys(); i++) {
        ck_assert(!ddp_config_no_effect(&config, i, text, sizeof(text)));
    }
    ddp_assert_ok(ddp_config_set(&config, "data.val_fraction=0.2"));
    config.data.kind = DDP_CONFIG_DATA_TOKENS; /* one of several kinds */
    ck_assert(!ddp_config_no_effect(&config, ddp_config_find("data", "val_fraction"), text, sizeof(text)));
    config.data.kind = DDP_DATA_IDX;
    ck_assert(ddp_config_no_effect(&config, ddp_config_find("data", "val_fraction"), text, sizeof(text)));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("config");
    TCase *tcase = tcase_create("all");
    int    failed;

    snprintf(path, sizeof(path), "/tmp/ddp_test_config_%d.yaml", (int)getpid());
    tcase_add_test(tcase, the_text_of_help_config_is_a_file_with_all_defaults);
    tcase_add_test(tcase, defaults_are_those_of_the_design);
    tcase_add_test(tcase, a_file_changes_the_keys_it_has_and_no_others);
    tcase_add_test(tcase, a_dump_reads_back_to_the_same_values);
    tcase_add_test(tcase, a_dump_without_the_place_says_only_what_is_computed);
    tcase_add_test(tcase, unknown_keys_are_named_with_line_column_and_the_nearest_key);
    tcase_add_test(tcase, every_key_refuses_a_value_of_another_type_and_names_the_place);
    tcase_add_test(tcase, values_out_of_range_are_named_with_the_range);
    tcase_add_test(tcase, files_that_are_no_configuration_are_refused_in_a_line);
    tcase_add_test(tcase, set_goes_through_the_same_checks);
    tcase_add_test(tcase, what_is_left_open_is_chosen_without_the_ranks);
    tcase_add_test(tcase, a_gpt2_takes_from_its_preset_what_is_not_stated);
    tcase_add_test(tcase, every_exchange_may_be_asked_for);
    tcase_add_test(tcase, a_list_of_words_may_hold_anything_but_a_comma);
    tcase_add_test(tcase, dp_is_one_process);
    tcase_add_test(tcase, too_many_ranks_are_told_what_fits);
    tcase_add_test(tcase, a_key_of_another_kind_is_said_to_have_no_effect);
    suite_add_tcase(suite, tcase);
    failed = ddp_test_run(suite);
    unlink(path);
    return failed;
}
