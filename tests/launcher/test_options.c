#include <string.h>

#include "launcher/options.h"
#include "launcher/suggest.h"
#include "tests/support/ddp_test.h"

/* Parse up to five words after the program's name; NULL ends. */
static ddp_status_t parse(ddp_options_t *options, char *a, char *b, char *c, char *d, char *e)
{
    char *argv[7] = {"ddptrain", a, b, c, d, e, NULL};
    int   argc    = 1;

    while (argv[argc] != NULL) {
        argc++;
    }
    return ddp_options_parse(argc, argv, options);
}

START_TEST(no_argument_means_train_with_defaults)
{
    ddp_options_t options;

    ddp_assert_ok(parse(&options, NULL, NULL, NULL, NULL, NULL));
    ck_assert(!options.help && !options.dry_run && options.file == NULL && options.out == NULL);
    ck_assert_int_eq(options.log, DDP_LOG_INFO);
    ck_assert_uint_eq(options.n_sets, 0);
}
END_TEST

START_TEST(words_and_options_come_in_any_order)
{
    ddp_options_t options;

    ddp_assert_ok(parse(&options, "train", "a/run.yaml", "--set", "train.batch=1", "--out=x"));
    ck_assert_str_eq(options.file, "a/run.yaml");
    ck_assert_str_eq(options.out, "x");
    ck_assert_uint_eq(options.n_sets, 1);
    ck_assert_str_eq(options.set[0], "train.batch=1");
    ddp_assert_ok(parse(&options, "--set=a.b=c", "--set=d.e=f", "--dry-run", "run.yaml", "--log=debug"));
    ck_assert_uint_eq(options.n_sets, 2);
    ck_assert_str_eq(options.set[1], "d.e=f");
    ck_assert(options.dry_run);
    ck_assert_int_eq(options.log, DDP_LOG_DEBUG);
    ddp_assert_ok(parse(&options, "-h", "--help-config", "--version", NULL, NULL));
    ck_assert(options.help && options.help_config && options.version);
}
END_TEST

START_TEST(mistakes_are_named_with_what_was_meant)
{
    ddp_options_t options;

    ddp_assert_fails(parse(&options, "--dryrun", NULL, NULL, NULL, NULL), DDP_ERR_CONFIG,
                     "unknown option '--dryrun'; did you mean '--dry-run'?");
    ddp_assert_fails(parse(&options, "--frobnicate", NULL, NULL, NULL, NULL), DDP_ERR_CONFIG,
                     "unknown option '--frobnicate'; see ddptrain --help");
    ddp_assert_fails(parse(&options, "trian", NULL, NULL, NULL, NULL), DDP_ERR_CONFIG,
                     "'trian' is neither a command nor a file; did you mean 'train'?");
    ddp_assert_fails(parse(&options, "frob", NULL, NULL, NULL, NULL), DDP_ERR_CONFIG, "see ddptrain --help");
    ddp_assert_fails(parse(&options, "a.yaml", "b.yaml", NULL, NULL, NULL), DDP_ERR_CONFIG, "two files");
    ddp_assert_fails(parse(&options, "--out", NULL, NULL, NULL, NULL), DDP_ERR_CONFIG, "--out needs a value");
    ddp_assert_fails(parse(&options, "--out=", NULL, NULL, NULL, NULL), DDP_ERR_CONFIG,
                     "--out needs the name");
    ddp_assert_fails(parse(&options, "--help=1", NULL, NULL, NULL, NULL), DDP_ERR_CONFIG, "takes no value");
    ddp_assert_fails(parse(&options, "--log", "loud", NULL, NULL, NULL), DDP_ERR_CONFIG, "allowed are error");
}
END_TEST

static ddp_status_t apply(ddp_config_t *config, char *a, char *b, char *c, char *d, char *e)
{
    ddp_options_t options;

    ddp_assert_ok(parse(&options, a, b, c, d, e));
    ddp_config_defaults(config);
    return ddp_options_apply(&options, config);
}

START_TEST(mode_and_devices_are_short_for_set)
{
    ddp_config_t config;

    ddp_assert_ok(apply(&config, "--mode=dp", "--devices=1,0", "--device-memory", "0:512M,1:256M", NULL));
    ck_assert_int_eq(config.train.mode, DDP_MODE_DP);
    ck_assert_str_eq(config.dp.devices, "1,0");
    ck_assert_str_eq(config.dp.device_memory, "0:512M,1:256M");
    ddp_assert_ok(apply(&config, "--mode", "ddp", NULL, NULL, NULL));
    ck_assert_int_eq(config.train.mode, DDP_MODE_DDP);
    ddp_assert_fails(apply(&config, "--mode=fsdp", NULL, NULL, NULL, NULL), DDP_ERR_CONFIG,
                     "--mode: train.mode is 'fsdp': allowed are ddp, dp");
    ddp_assert_fails(apply(&config, "--mode=dp", "--devices=0,,1", NULL, NULL, NULL), DDP_ERR_CONFIG,
                     "--devices: dp.devices is '0,,1': a list such as [0, 1] is expected");
    ddp_assert_fails(apply(&config, "--devices=0,1", NULL, NULL, NULL, NULL), DDP_ERR_CONFIG,
                     "--devices is for --mode dp");
    ddp_assert_fails(apply(&config, "--mode=ddp", "--device-memory=1G", NULL, NULL, NULL), DDP_ERR_CONFIG,
                     "--device-memory is for --mode dp");
}
END_TEST

START_TEST(the_nearest_name_is_near)
{
    static const char *const names[] = {"train", "optimizer", "lr"};

    ck_assert_str_eq(ddp_suggest("tarin", names, 3), "train");
    ck_assert_str_eq(ddp_suggest("optimiser", names, 3), "optimizer");
    ck_assert_ptr_null(ddp_suggest("checkpoint", names, 3));
    ck_assert_ptr_null(ddp_suggest("xy", names, 3));
    ck_assert_ptr_null(ddp_suggest("train", names, 0));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("options");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, no_argument_means_train_with_defaults);
    tcase_add_test(tcase, words_and_options_come_in_any_order);
    tcase_add_test(tcase, mistakes_are_named_with_what_was_meant);
    tcase_add_test(tcase, mode_and_devices_are_short_for_set);
    tcase_add_test(tcase, the_nearest_name_is_near);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
