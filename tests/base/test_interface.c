/* Lists of network interfaces. Every host has lo. */
#include <arpa/inet.h>
#include <string.h>

#include "base/interface.h"
#include "tests/support/ddp_test.h"

static uint32_t address_of(const char *text)
{
    struct in_addr address = {0};

    ck_assert_int_eq(inet_pton(AF_INET, text, &address), 1);
    return address.s_addr;
}

START_TEST(an_interface_is_wanted_by_name_or_network)
{
    const uint32_t address = address_of("10.1.2.3");

    ck_assert(ddp_interface_is_wanted("", "eth0", address));
    ck_assert(ddp_interface_is_wanted(NULL, "eth0", address));
    ck_assert(ddp_interface_is_wanted("ib0,eth0", "eth0", address));
    ck_assert(!ddp_interface_is_wanted("ib0,eth01", "eth0", address));
    ck_assert(ddp_interface_is_wanted("ib0,10.1.0.0/16", "eth0", address));
    ck_assert(ddp_interface_is_wanted("10.1.2.3", "eth0", address));
    ck_assert(ddp_interface_is_wanted("0.0.0.0/0", "eth0", address));
    ck_assert(!ddp_interface_is_wanted("10.1.4.0/23", "eth0", address));
    ck_assert(!ddp_interface_is_wanted("10.1.2.3/33,10.1/16,10.1.2.256/8", "eth0", address));
}
END_TEST

START_TEST(half_a_network_is_none)
{
    static const char *const lists[] = {"10.1.0.0/",
                                        "10.1.0.0/x",
                                        "10.1.0.0/16x",
                                        "10.1.0.0/-0",
                                        "10.1.0.0/ 8",
                                        "10.1.0.0/16/8",
                                        "/8",
                                        "/",
                                        "10.1.0.0/+16",
                                        "x/8",
                                        ",",
                                        "10.1.0.0/4294967312",
                                        "010.001.002.0030"};
    const uint32_t           address = address_of("10.1.2.3");

    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        ck_assert_msg(!ddp_interface_is_wanted(lists[i], "eth0", address), "'%s'", lists[i]);
    }
    ck_assert(!ddp_interface_is_wanted("192.168.100.1000", "eth0", address_of("192.168.100.100")));
}
END_TEST

START_TEST(what_a_host_does_not_have_is_named_with_what_it_has)
{
    ddp_assert_ok(ddp_interfaces_check(""));
    ddp_assert_ok(ddp_interfaces_check("lo"));
    ddp_assert_ok(ddp_interfaces_check("127.0.0.0/8,lo"));
    ddp_assert_fails(ddp_interfaces_check("lo,nosuch7"), DDP_ERR_CONFIG,
                     "ddp.interfaces: nosuch7 is not on ");
    ck_assert(strstr(ddp_error_line(), "lo 127.0.0.1") != NULL);
    ddp_assert_fails(ddp_interfaces_check("203.0.113.0/24"), DDP_ERR_CONFIG, "203.0.113.0/24 is not on ");
}
END_TEST

START_TEST(nccl_gets_whole_names)
{
    char names[64];

    ddp_assert_ok(ddp_interfaces_names("127.0.0.0/8", names, sizeof(names)));
    ck_assert_str_eq(names, "=lo");
    ddp_assert_fails(ddp_interfaces_names("lo", names, 3), DDP_ERR_CONFIG, "too many");
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("interface");
    TCase *tcase = tcase_create("list");

    tcase_add_test(tcase, an_interface_is_wanted_by_name_or_network);
    tcase_add_test(tcase, half_a_network_is_none);
    tcase_add_test(tcase, what_a_host_does_not_have_is_named_with_what_it_has);
    tcase_add_test(tcase, nccl_gets_whole_names);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return ddp_test_run(make_suite());
}
