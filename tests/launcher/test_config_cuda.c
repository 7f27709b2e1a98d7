/* Keys that are about GPUs: what is chosen, what is refused, and where a file is wrong. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launcher/config.h"
#include "tests/support/ddp_test.h"

/* A configuration with these keys, resolved. */
static ddp_status_t resolve(ddp_config_t *config, const char *const *sets)
{
    ddp_config_defaults(config);
    for (; *sets != NULL; sets++) {
        ddp_assert_ok(ddp_config_set(config, *sets));
    }
    return ddp_config_resolve(config, true);
}

#define RESOLVE(config, ...) resolve(config, (const char *const[]){__VA_ARGS__, NULL})

START_TEST(without_a_gpu_ranks_are_cores_and_the_sum_is_exact)
{
    ddp_config_t config;

    ddp_assert_ok(RESOLVE(&config, "ddp.device=auto"));
    ck_assert_int_eq(config.ddp.device, DDP_DEVICE_CPU);
    ck_assert_int_eq(config.ddp.backend, DDP_REDUCER_HOST);
    ck_assert_int_eq(config.ddp.reduction, DDP_REDUCTION_EXACT);
}
END_TEST

START_TEST(with_gpus_nccl_sums_in_its_own_order_unless_told_otherwise)
{
    ddp_config_t config;

    ddp_assert_ok(RESOLVE(&config, "ddp.device=cuda", "ddp.backend=nccl"));
    ck_assert_int_eq(config.ddp.reduction, DDP_REDUCTION_FAST);
    ddp_assert_ok(RESOLVE(&config, "ddp.device=cuda", "ddp.backend=nccl", "ddp.reduction=exact"));
    ck_assert_int_eq(config.ddp.reduction, DDP_REDUCTION_EXACT);
    ddp_assert_ok(RESOLVE(&config, "ddp.device=cuda", "ddp.backend=host"));
    ck_assert_int_eq(config.ddp.reduction, DDP_REDUCTION_EXACT);
    ddp_assert_fails(
        RESOLVE(&config, "ddp.device=cuda", "ddp.backend=nccl", "ddp.reduction=exact", "ddp.wire=bf16"),
        DDP_ERR_CONFIG, "ddp.wire bf16 rounds at every hop, but ddp.reduction is exact");
}
END_TEST

START_TEST(precisions_of_gpus_are_refused_on_a_cpu)
{
    ddp_config_t config;

    ddp_assert_fails(RESOLVE(&config, "train.precision=tf32"), DDP_ERR_CONFIG,
                     "train.precision tf32 is for ddp.device cuda, and this run has cpu");
    ddp_assert_fails(RESOLVE(&config, "train.precision=fp16", "ddp.device=cpu"), DDP_ERR_CONFIG,
                     "train.precision fp16 is for ddp.device cuda");
    ddp_assert_ok(RESOLVE(&config, "train.precision=bf16"));
    for (size_t i = 0; i < 4; i++) {
        static const char *const names[] = {"train.precision=float32", "train.precision=bf16",
                                            "train.precision=tf32", "train.precision=fp16"};

        ddp_assert_ok(RESOLVE(&config, "ddp.device=cuda", names[i]));
        ck_assert_int_eq(config.train.precision, (int)i);
    }
    ddp_assert_fails(RESOLVE(&config, "ddp.device=cuda", "train.precision=tf32", "model.conv=winograd2"),
                     DDP_ERR_CONFIG, "train.precision tf32 needs direct convolution");
}
END_TEST

START_TEST(nccl_is_refused_without_gpus)
{
    ddp_config_t config;

    ddp_assert_fails(RESOLVE(&config, "ddp.backend=nccl", "ddp.device=cpu"), DDP_ERR_CONFIG,
                     "ddp.backend nccl sums between GPUs, but ddp.device is cpu: --set ddp.backend=host");
}
END_TEST

START_TEST(keys_of_nccl_and_of_gpus_have_no_effect_elsewhere)
{
    ddp_config_t config;
    char         line[256];

    ddp_assert_ok(RESOLVE(&config, "optimizer.shard=true", "ddp.share_gpu=true"));
    ck_assert(ddp_config_no_effect(&config, ddp_config_find("optimizer", "shard"), line, sizeof(line)));
    ck_assert_str_eq(line, "optimizer.shard true has no effect: it belongs to ddp.backend nccl, and this run "
                           "has host");
    ck_assert(ddp_config_no_effect(&config, ddp_config_find("ddp", "share_gpu"), line, sizeof(line)));
    ddp_assert_ok(
        RESOLVE(&config, "optimizer.shard=true", "ddp.wire=bf16", "ddp.device=cuda", "ddp.backend=nccl"));
    ck_assert(!ddp_config_no_effect(&config, ddp_config_find("optimizer", "shard"), line, sizeof(line)));
    ck_assert(!ddp_config_no_effect(&config, ddp_config_find("ddp", "wire"), line, sizeof(line)));
}
END_TEST

START_TEST(where_a_run_is_computed_is_no_part_of_its_checkpoints)
{
    static const char *const places[][2]  = {{"ddp", "device"},
                                             {"ddp", "backend"},
                                             {"ddp", "share_gpu"},
                                             {"optimizer", "shard"},
                                             {"dp", "devices"}};
    static const char *const results[][2] = {{"ddp", "reduction"}, {"ddp", "wire"}, {"train", "precision"}};

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        ck_assert(ddp_config_is_place(ddp_config_find(places[i][0], places[i][1])));
    }
    for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
        ck_assert(!ddp_config_is_place(ddp_config_find(results[i][0], results[i][1])));
    }
}
END_TEST

START_TEST(a_file_is_refused_at_the_line_of_the_key)
{
    static const struct {
        const char *text, *place, *line;
    } bad[] = {
        {"ddp:\n  device: gpu\n", ":2:11: ", "ddp.device is 'gpu': allowed are cpu, cuda, auto"},
        {"ddp: {backend: mpi}\n", ":1:16: ", "ddp.backend is 'mpi': allowed are auto, host, nccl"},
        {"ddp: {wire: fp8}\n", ":1:13: ", "ddp.wire is 'fp8': allowed are float32, bf16"},
        {"optimizer: {shard: 2}\n", ":1:20: ", "optimizer.shard is '2'"},
        {"train:\n  precision: fp32\n", ":2:14: ", "train.precision is 'fp32': allowed are float32, bf16"},
    };
    char         path[64];
    char         wanted[96];
    ddp_config_t config;

    snprintf(path, sizeof(path), "/tmp/ddp_test_config_cuda_%d.yaml", (int)getpid());
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        FILE *file = fopen(path, "w");

        ck_assert_ptr_nonnull(file);
        fputs(bad[i].text, file);
        fclose(file);
        ddp_config_defaults(&config);
        ddp_assert_fails(ddp_config_load(&config, path), DDP_ERR_CONFIG, bad[i].line);
        snprintf(wanted, sizeof(wanted), "%s%s", path, bad[i].place);
        ck_assert_msg(strncmp(ddp_error_line(), wanted, strlen(wanted)) == 0, "%s", ddp_error_line());
    }
    unlink(path);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("config_cuda");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, without_a_gpu_ranks_are_cores_and_the_sum_is_exact);
    tcase_add_test(tcase, with_gpus_nccl_sums_in_its_own_order_unless_told_otherwise);
    tcase_add_test(tcase, precisions_of_gpus_are_refused_on_a_cpu);
    tcase_add_test(tcase, nccl_is_refused_without_gpus);
    tcase_add_test(tcase, keys_of_nccl_and_of_gpus_have_no_effect_elsewhere);
    tcase_add_test(tcase, where_a_run_is_computed_is_no_part_of_its_checkpoints);
    tcase_add_test(tcase, a_file_is_refused_at_the_line_of_the_key);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
