/* Known troubles of NCCL and what is said about them. */
#include <string.h>

#include "ddp/nccl.h"
#include "tests/support/ddp_test.h"

static void expect(const char *text, const char *hint)
{
    const char *found = ddp_nccl_hint(text);

    ck_assert_msg(found != NULL && strstr(found, hint) != NULL, "'%s': '%s'", text,
                  found != NULL ? found : "nothing");
}

START_TEST(lines_of_nccl_have_a_hint)
{
    expect("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000", "CUDA_VISIBLE_DEVICES");
    expect(
        "Error while creating shared memory segment /dev/shm/nccl-x: posix_fallocate failed : No space left",
        "--shm-size=1g");
    expect("shm_open failed : Permission denied", "RemoveIPC=no");
    expect("Call to connect failed : Connection timed out", "firewall");
    expect("Call to connect to 172.17.0.1<4711> failed : Connection refused", "^docker0,lo");
    expect("Bootstrap : no socket interface found", "NCCL_SOCKET_IFNAME");
    expect("Call to bind failed : Address family not supported by protocol", "IP address");
    expect("NET/IB : Got completion from peer with status=12 error 12", "NCCL_IB_GID_INDEX=3");
    expect("Call to ibv_modify_qp failed with error Connection timed out", "NCCL_CROSS_NIC=0");
    expect("Message truncated : received 8 bytes instead of 4", "same program");
    expect("bootstrap: received 256 bytes instead of 4", "versions");
    expect("Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'", "nvidia-smi");
}
END_TEST

START_TEST(results_of_nccl_have_a_hint)
{
    expect("unhandled system error (run with NCCL_DEBUG=INFO for details)", "NCCL_DEBUG=WARN");
    expect("remote process exited or there was a network error", "its own line");
    expect("invalid usage (run with NCCL_DEBUG=WARN for details)", "NCCL_DEBUG=WARN");
}
END_TEST

START_TEST(what_nobody_knows_has_none)
{
    ck_assert(ddp_nccl_hint("") == NULL);
    ck_assert(ddp_nccl_hint("no error") == NULL);
}
END_TEST

/* And does nothing worse when it is asked. */
START_TEST(a_build_without_cuda_says_so)
{
    ddp_nccl_info_t   info;
    ddp_nccl_params_t params = DDP_NCCL_PARAMS_INIT;
    ddp_nccl_t       *nccl   = NULL;

    ddp_nccl_probe(&info);
    if (info.is_there || strstr(info.reason, "without CUDA") == NULL) {
        return; /* this one has it */
    }
    ck_assert(ddp_nccl_create(&params, &nccl) == DDP_ERR_UNSUPPORTED);
    ddp_nccl_destroy(&nccl);
    ddp_nccl_destroy(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("nccl_hints");
    TCase *tcase = tcase_create("core");

    tcase_add_test(tcase, lines_of_nccl_have_a_hint);
    tcase_add_test(tcase, results_of_nccl_have_a_hint);
    tcase_add_test(tcase, what_nobody_knows_has_none);
    tcase_add_test(tcase, a_build_without_cuda_says_so);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
