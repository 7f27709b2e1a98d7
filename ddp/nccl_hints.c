/* What is known to help against NCCL's errors. The texts are from its sources and from reports of users; the
 * first that is found in a line counts, so the special ones come first. */
#include <string.h>

#include "ddp/nccl.h"

typedef struct hint {
    const char *text; /* part of NCCL's line */
    const char *help;
} hint_t;

static const hint_t hints[] = {
    {"Duplicate GPU detected",
     "start one rank per GPU: each sees its own with CUDA_VISIBLE_DEVICES, or by its "
     "local rank"},
    {"driver version is insufficient", "the NVIDIA driver is missing or older than the CUDA runtime; see "
                                       "nvidia-smi"},
    {"posix_fallocate failed",
     "/dev/shm is full or too small, as in a container: --shm-size=1g or --ipc=host"},
    {"No space left on device", "/dev/shm is full or too small, as in a container: --shm-size=1g or "
                                "--ipc=host"},
    {"shm_open failed", "/dev/shm cannot be used: check its permissions, or set NCCL_SHM_DISABLE=1; systemd "
                        "removes it for users who are not logged in unless RemoveIPC=no"},
    {"/dev/shm/nccl-", "systemd removes it for users who are not logged in unless RemoveIPC=no"},
    {"cuMemCreate", "NUMA is closed off in this container: --cap-add SYS_NICE, or NCCL_CUMEM_HOST_ENABLE=0"},
    {"Address family not supported",
     "NCCL needs an interface with an IP address, also on one machine; choose one "
     "with NCCL_SOCKET_IFNAME"},
    {"no socket interface found",
     "NCCL needs an interface with an IP address, also on one machine; choose one "
     "with NCCL_SOCKET_IFNAME"},
    {"ibv_modify_qp failed", "wrong InfiniBand device or GID, or rails that are not joined: NCCL_IB_HCA, "
                             "NCCL_IB_GID_INDEX, or NCCL_CROSS_NIC=0"},
    {"Connection refused", "NCCL may have chosen an interface that others cannot reach: "
                           "NCCL_SOCKET_IFNAME=^docker0,lo, or =eth0"},
    {"Connection timed out",
     "a firewall between the machines, or an interface that others cannot reach: NCCL uses "
     "any port; see NCCL_SOCKET_IFNAME"},
    {"No route to host", "an interface that others cannot reach: see NCCL_SOCKET_IFNAME"},
    {"Network is unreachable",
     "a device or address that others cannot reach: see NCCL_IB_HCA, NCCL_IB_GID_INDEX and "
     "NCCL_SOCKET_IFNAME"},
    {"Call to connect", "an interface that others cannot reach: see NCCL_SOCKET_IFNAME"},
    {"error 12",
     "the other side did not answer over InfiniBand or RoCE: NCCL_IB_GID_INDEX=3 for RoCE; under load "
     "raise NCCL_IB_TIMEOUT and NCCL_IB_RETRY_CNT"},
    {"ibv_reg_mr", "too little memory may be locked: ulimit -l unlimited"},
    {"Message truncated",
     "ranks called with different sizes: check that all run the same program, configuration "
     "and environment"},
    {"collective mismatch", "ranks called different collectives: check that all run the same program, "
                            "configuration and environment"},
    {"bytes instead of", "versions or plugins of NCCL differ between the machines"},
    {"Too many open files", "raise the limit: ulimit -n 65536"},
    {"pthread_create", "NCCL could not start a thread: check ulimit -u, and do not set ulimit -s unlimited"},
    {"out of memory", "GPU memory is short for NCCL's buffers: a smaller micro_batch, or NCCL_BUFFSIZE"},
    {"remote process exited", "another rank has ended: its own line says why"},
    {"unhandled system error", "NCCL_DEBUG=WARN shows which call"},
    {"unhandled cuda error", "NCCL_DEBUG=WARN shows which call"},
    {"invalid usage", "NCCL_DEBUG=WARN says more"},
    {"internal error",
     "NCCL_DEBUG=WARN says more; where peers hang at the first collective: NCCL_P2P_DISABLE=1, or "
     "switch PCIe ACS off (iommu=pt)"},
    {"did not join",
     "NCCL_DEBUG=INFO shows the interface that each rank chose; see NCCL_SOCKET_IFNAME, and check "
     "that mpirun passes the environment to all (-x NCCL_SOCKET_IFNAME)"},
    {"no rank here is behind",
     "where peers hang at the first collective: NCCL_P2P_DISABLE=1, or switch PCIe ACS off "
     "(iommu=pt); ulimit and NCCL variables must be the same on all ranks"},
};

const char *ddp_nccl_hint(const char *text)
{
    for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++) {
        if (strstr(text, hints[i].text) != NULL) {
            return hints[i].help;
        }
    }
    return NULL;
}
