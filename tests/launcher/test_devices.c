#include <string.h>

#include "launcher/devices.h"
#include "tests/support/ddp_test.h"

/* 5 micro-batches. @param [in] sets  ended by NULL */
static ddp_status_t resolve(ddp_devices_t *devices, size_t cores, const char *const *sets)
{
    ddp_config_t config;

    ddp_config_defaults(&config);
    ddp_assert_ok(ddp_config_set(&config, "train.batch=10"));
    ddp_assert_ok(ddp_config_set(&config, "train.micro_batch=2"));
    ddp_assert_ok(ddp_config_set(&config, "train.mode=dp"));
    for (; *sets != NULL; sets++) {
        ddp_assert_ok(ddp_config_set(&config, *sets));
    }
    ddp_assert_ok(ddp_config_resolve(&config, false));
    return ddp_devices_resolve(&config, cores, devices);
}

#define RESOLVE(devices, cores, ...) resolve(devices, cores, (const char *const[]){__VA_ARGS__, NULL})

START_TEST(without_a_list_all_cores_are_devices_as_far_as_there_is_work)
{
    const size_t  cores[]  = {0, 1, 3, 5, 6, 1000};
    const size_t  wanted[] = {1, 1, 3, 5, 5, 5};
    ddp_devices_t devices;

    for (size_t i = 0; i < 6; i++) {
        ddp_assert_ok(RESOLVE(&devices, cores[i], "dp.devices=[]"));
        ck_assert_uint_eq(devices.n, wanted[i]);
        for (size_t d = 0; d < devices.n; d++) {
            ck_assert_int_eq(devices.id[d], (int)d);
            ck_assert_uint_eq(devices.memory[d], 0);
        }
    }
    ck_assert_int_eq(devices.output, 0);
}
END_TEST

START_TEST(devices_come_in_the_order_of_the_list)
{
    ddp_devices_t devices;

    ddp_assert_ok(RESOLVE(&devices, 2, "dp.devices=3, 0,63", "dp.output_device=0"));
    ck_assert_uint_eq(devices.n, 3);
    ck_assert(devices.id[0] == 3 && devices.id[1] == 0 && devices.id[2] == 63);
    ck_assert_int_eq(devices.output, 0);
    ddp_assert_ok(RESOLVE(&devices, 2, "dp.devices=3, 0,63"));
    ck_assert_int_eq(devices.output, 3);
}
END_TEST

START_TEST(lists_that_make_no_sense_are_refused_in_a_line)
{
    ddp_devices_t devices;

    ddp_assert_fails(RESOLVE(&devices, 2, "dp.devices=0,1,0"), DDP_ERR_CONFIG,
                     "dp.devices names device 0 twice");
    ddp_assert_fails(RESOLVE(&devices, 2, "dp.devices=0,64"), DDP_ERR_CONFIG,
                     "there is no device 64, only 0 to 63");
    ddp_assert_fails(RESOLVE(&devices, 2, "dp.devices=frog"), DDP_ERR_CONFIG, "dp.devices holds 'frog'");
    ddp_assert_fails(RESOLVE(&devices, 2, "dp.devices=-1"), DDP_ERR_CONFIG, "dp.devices holds '-1'");
    ddp_assert_fails(RESOLVE(&devices, 2, "dp.devices=0 1"), DDP_ERR_CONFIG, "dp.devices holds '0 1'");
    ddp_assert_fails(RESOLVE(&devices, 2, "dp.devices=99999999999999999999"), DDP_ERR_CONFIG,
                     "dp.devices holds '99999999999999999999'");
    /* ceil(10 / 1) >= 6 */
    ddp_assert_fails(
        RESOLVE(&devices, 2, "dp.devices=0,1,2,3,4,5"), DDP_ERR_CONFIG,
        "6 devices, but train.batch 10 makes 5 micro-batches of train.micro_batch 2: use at most "
        "5 devices, or --set train.micro_batch=1");
    ddp_assert_fails(RESOLVE(&devices, 2, "dp.output_device=2"), DDP_ERR_CONFIG,
                     "dp.output_device is '2': one of dp.devices is expected, or auto");
    ddp_assert_fails(RESOLVE(&devices, 2, "dp.output_device=-1"), DDP_ERR_CONFIG, "dp.output_device is '-1'");
}
END_TEST

START_TEST(memory_is_one_size_or_a_size_for_some_devices)
{
    ddp_devices_t devices;

    ddp_assert_ok(RESOLVE(&devices, 2, "dp.devices=1,0", "dp.device_memory=512M"));
    ck_assert(devices.memory[0] == (size_t)512 << 20 && devices.memory[1] == (size_t)512 << 20);
    ddp_assert_ok(RESOLVE(&devices, 2, "dp.devices=1,0", "dp.device_memory=0:3K"));
    ck_assert(devices.memory[0] == 0 && devices.memory[1] == 3072);
    ddp_assert_ok(RESOLVE(&devices, 2, "dp.devices=1,0", "dp.device_memory=0:1G,1:7"));
    ck_assert(devices.memory[0] == 7 && devices.memory[1] == (size_t)1 << 30);
    ddp_assert_ok(RESOLVE(&devices, 2, "dp.devices=1,0", "dp.device_memory=1T,1:2T"));
    ck_assert(devices.memory[0] == (size_t)2 << 40 && devices.memory[1] == (size_t)1 << 40);
}
END_TEST

START_TEST(what_is_no_size_is_refused_in_a_line)
{
    static const char *const none[] = {"0",
                                       "512MB",
                                       "M",
                                       "-5M",
                                       "5.5M",
                                       "0x5",
                                       "999999999999999T",
                                       "0:0",
                                       "0:",
                                       ":",
                                       "0:M",
                                       "99999999999999999999"};
    ddp_devices_t            devices;
    char                     set[64];

    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        snprintf(set, sizeof(set), "dp.device_memory=%s", none[i]);
        ddp_assert_fails(RESOLVE(&devices, 2, set), DDP_ERR_CONFIG, "a size as 512M is expected");
    }
    ddp_assert_fails(RESOLVE(&devices, 2, "dp.device_memory=2:5M"), DDP_ERR_CONFIG,
                     "'2' is not among dp.devices");
    ddp_assert_fails(RESOLVE(&devices, 2, "dp.device_memory=frog:5M"), DDP_ERR_CONFIG,
                     "'frog' is not among dp.devices");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("devices");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, without_a_list_all_cores_are_devices_as_far_as_there_is_work);
    tcase_add_test(tcase, devices_come_in_the_order_of_the_list);
    tcase_add_test(tcase, lists_that_make_no_sense_are_refused_in_a_line);
    tcase_add_test(tcase, memory_is_one_size_or_a_size_for_some_devices);
    tcase_add_test(tcase, what_is_no_size_is_refused_in_a_line);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
