/* Judgement of interfaces, clocks and GPUs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "launcher/doctor_internal.h"

#define NAME_SIZE     (DDP_FACTS_TEXT + 32)
#define GIB           1073741824.0
#define WRONG_CLOCK_S 1.0
#define NICS_TOLD     4

/* "eth0 10.1.2.3 25 Gbit/s" */
static size_t nic_text(const ddp_nic_facts_t *nic, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "%s", nic->name);

    if (nic->address[0] != '\0') {
        used += (size_t)snprintf(text + used, size - used, " %s", nic->address);
    }
    if (nic->mbit > 0) {
        used += (size_t)snprintf(text + used, size - used, " %.3g Gbit/s", nic->mbit / 1000.0);
    }
    if (nic->numa >= 0) {
        used += (size_t)snprintf(text + used, size - used, " node %d", nic->numa);
    }
    return used;
}

static void judge_interfaces(const ddp_facts_t *facts, ddp_findings_t *findings)
{
    char   text[400] = "none but the loopback";
    size_t used      = 0;

    for (int32_t i = 0; i < facts->n_nics && i < NICS_TOLD; i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s", i > 0 ? ", " : "");
        used += nic_text(&facts->nic[i], text + used, sizeof(text) - used);
    }
    (void)ddp_findings_add(findings, DDP_FINDING_OK, "network", "interfaces", NULL, "%.64s: %s%s",
                           facts->host, text, facts->n_nics > NICS_TOLD ? " and more" : "");
}

/* The address of one machine that another has too, as bridges of containers have. */
static const ddp_nic_facts_t *find_double(const ddp_facts_t *a, const ddp_facts_t *b)
{
    for (int32_t i = 0; i < a->n_nics; i++) {
        for (int32_t j = 0; j < b->n_nics; j++) {
            if (a->nic[i].address[0] != '\0' && strcmp(a->nic[i].address, b->nic[j].address) == 0) {
                return &a->nic[i];
            }
        }
    }
    return NULL;
}

static void judge_addresses(const ddp_facts_t *facts, int n, ddp_findings_t *findings)
{
    for (int r = 1; r < n; r++) {
        for (int s = 0; s < r && ddp_facts_leads(facts, r); s++) {
            const ddp_nic_facts_t *nic =
                facts[s].machine != facts[r].machine ? find_double(&facts[s], &facts[r]) : NULL;

            if (nic != NULL && facts[0].mpi_interfaces[0] == '\0') {
                (void)ddp_findings_add(findings, DDP_FINDING_WARN, "network", "addresses",
                                       "say which to use: mpirun --mca pml ob1 --mca btl_tcp_if_include NAME",
                                       "%.64s and %.64s both have %s (%s): Open MPI may try to connect there",
                                       facts[s].host, facts[r].host, nic->address, nic->name);
                return;
            }
        }
    }
    if (n > 1 && facts[n - 1].machine > 0) {
        (void)ddp_findings_add(findings, DDP_FINDING_OK, "network", "addresses", NULL,
                               facts[0].mpi_interfaces[0] != '\0' ? "Open MPI uses %s"
                                                                  : "no two machines have the same%s",
                               facts[0].mpi_interfaces);
    }
}

/* Of MPI between machines. */
static void judge_path(const ddp_facts_t *facts, int n, ddp_findings_t *findings)
{
    const char *path    = facts[0].mpi.path;
    const bool  is_told = facts[0].mpi_interfaces[0] != '\0';
    const bool  is_ob1  = strcmp(path, "ob1") == 0;

    if (path[0] == '\0' || facts[n - 1].machine == 0) {
        return;
    }
    (void)ddp_findings_add(findings, is_told && !is_ob1 ? DDP_FINDING_WARN : DDP_FINDING_OK, "network",
                           "transport", is_told && !is_ob1 ? "mpirun --mca pml ob1" : NULL,
                           "MPI sends by %s (pml %s)%s",
                           is_ob1                     ? "its own TCP and the like"
                           : strcmp(path, "cm") == 0  ? "libfabric"
                           : strcmp(path, "ucx") == 0 ? "UCX"
                                                      : "another way",
                           path, is_told && !is_ob1 ? ", which does not heed btl_tcp_if_include" : "");
}

static void judge_clocks(const ddp_facts_t *facts, int n, ddp_findings_t *findings)
{
    int            worst = -1;
    bool           is_wrong;
    ddp_finding_t *finding;

    for (int r = 1; r < n; r++) {
        if (facts[r].clock_error_s >= 0 &&
            (worst < 0 || fabs(facts[r].clock_s) > fabs(facts[worst].clock_s))) {
            worst = r;
        }
    }
    if (worst < 0) {
        return;
    }
    is_wrong = fabs(facts[worst].clock_s) - facts[worst].clock_error_s > WRONG_CLOCK_S;
    finding =
        ddp_findings_add(findings, is_wrong ? DDP_FINDING_WARN : DDP_FINDING_OK, "network", "clock",
                         is_wrong ? "set it by NTP (chrony, systemd-timesyncd)" : NULL,
                         "%.64s is %.3g ms %s %.64s, give or take %.2g ms", facts[worst].host,
                         1e3 * fabs(facts[worst].clock_s), facts[worst].clock_s < 0 ? "behind" : "ahead of",
                         facts[0].host, 1e3 * facts[worst].clock_error_s);
    ddp_finding_number(finding, "offset_ms", 1e3 * facts[worst].clock_s);
}

void ddp_judge_network(const ddp_facts_t *facts, int n, ddp_findings_t *findings)
{
    for (int r = 0; r < n; r++) {
        if (ddp_facts_leads(facts, r) && facts[r].machine < NICS_TOLD) {
            judge_interfaces(&facts[r], findings);
        }
    }
    judge_addresses(facts, n, findings);
    judge_path(facts, n, findings);
    judge_clocks(facts, n, findings);
}

/* "NVIDIA H200 0000:1b:00.0 139 GiB near node 0, mlx5_0" */
static void judge_devices(const ddp_facts_t *facts, ddp_findings_t *findings)
{
    for (int i = 0; i < facts->n_gpus; i++) {
        const ddp_cuda_device_info_t *gpu      = &facts->gpu[i];
        char                          near[96] = "";
        size_t                        used     = 0;

        if (facts->gpu_numa[i] >= 0) {
            used = (size_t)snprintf(near, sizeof(near), ", near node %d", facts->gpu_numa[i]);
        }
        for (int32_t k = 0; k < facts->n_nics && used < sizeof(near); k++) {
            if (facts->gpu_numa[i] >= 0 && facts->nic[k].numa == facts->gpu_numa[i]) {
                used += (size_t)snprintf(near + used, sizeof(near) - used, ", %s", facts->nic[k].name);
            }
        }
        (void)ddp_findings_add(findings, DDP_FINDING_OK, "gpu", "device", NULL,
                               "%.64s: GPU %d, %.60s, %s, %.1f of %.1f GiB free%s", facts->host, i, gpu->name,
                               gpu->bus, (double)gpu->free_bytes / GIB, (double)gpu->memory_bytes / GIB,
                               near);
    }
}

static void judge_nccl(const ddp_facts_t *facts, ddp_findings_t *findings)
{
    const int version = facts->nccl_version;

    if (facts->has_nccl != 0) {
        (void)ddp_findings_add(findings, DDP_FINDING_OK, "gpu", "nccl", NULL, "%d.%d.%d", version / 10000,
                               version / 100 % 100, version % 100);
    } else {
        (void)ddp_findings_add(findings, DDP_FINDING_WARN, "gpu", "nccl",
                               "install libnccl2, or have it in LD_LIBRARY_PATH",
                               "%s: gradients go through host memory", facts->no_nccl);
    }
}

/* The program has kernels of its own for all of it. */
static void judge_cudnn(const ddp_facts_t *facts, ddp_findings_t *findings)
{
    const bool has = facts->has_cudnn != 0;

    (void)ddp_findings_add(findings, has ? DDP_FINDING_OK : DDP_FINDING_WARN, "gpu", "cudnn",
                           has ? NULL : "install cuDNN 9, or have it in LD_LIBRARY_PATH or DDP_CUDNN_PATH",
                           "%s%s", facts->cudnn, has ? "" : ": convolutions and attention are slower");
}

/* @return the first rank that sees GPUs (or none); -1 */
static int find_seeing(const ddp_facts_t *facts, int n, bool sees)
{
    for (int r = 0; r < n; r++) {
        if ((facts[r].cuda.devices > 0) == sees) {
            return r;
        }
    }
    return -1;
}

static void judge_none(const ddp_facts_t *facts, int n, ddp_findings_t *findings)
{
    for (int r = 0; r < n; r++) {
        if (facts[r].has_driver_file != 0) {
            (void)ddp_findings_add(findings, DDP_FINDING_WARN, "gpu", "driver",
                                   facts[r].cuda.is_built ? "see nvidia-smi and CUDA_VISIBLE_DEVICES"
                                                          : "to use it: cmake --preset gpu",
                                   "%.64s has NVIDIA's driver, but no GPU is used: %s", facts[r].host,
                                   facts[r].cuda.reason);
            return;
        }
    }
    (void)ddp_findings_add(findings, DDP_FINDING_OK, "gpu", "driver", NULL, "%s: training is on CPUs",
                           facts[0].cuda.reason);
}

static bool is_same_gpu(const ddp_facts_t *a, int i, const ddp_facts_t *b, int j)
{
    return memcmp(a->gpu[i].uuid, b->gpu[j].uuid, sizeof(a->gpu[i].uuid)) == 0;
}

/* Has a rank of the machine from `first` on, before rank `r`, or `r` itself before its GPU `i`, the same one?
 */
static bool is_counted(const ddp_facts_t *facts, int first, int r, int i)
{
    for (int t = first; t <= r; t++) {
        for (int j = 0; j < (t < r ? facts[t].n_gpus : i); j++) {
            if (is_same_gpu(&facts[r], i, &facts[t], j)) {
                return true;
            }
        }
    }
    return false;
}

/* Those that the ranks of a machine see together: a launcher may show each rank its own only. */
static int count_gpus(const ddp_facts_t *facts, int n, int first)
{
    int count = 0;

    for (int r = first; r < n && facts[r].machine == facts[first].machine; r++) {
        for (int i = 0; i < facts[r].n_gpus; i++) {
            count += is_counted(facts, first, r, i) ? 0 : 1;
        }
    }
    return count;
}

static void judge_each(const ddp_facts_t *facts, int n, int r, ddp_findings_t *findings)
{
    const int ranks = ddp_facts_local(facts, n, r);
    const int gpus  = count_gpus(facts, n, r);

    if (facts[r].machine < NICS_TOLD) {
        judge_devices(&facts[r], findings);
    }
    /* more than fit into the facts: not counted */
    if (ranks > gpus && facts[r].cuda.devices <= DDP_FACTS_GPUS) {
        (void)ddp_findings_add(findings, DDP_FINDING_WARN, "gpu", "ranks",
                               "start as many ranks on a machine as it has GPUs, or --set ddp.share_gpu=true",
                               "%.64s has %d ranks and %d GPU%s", facts[r].host, ranks, gpus,
                               gpus == 1 ? "" : "s");
    }
}

void ddp_judge_gpus(const ddp_facts_t *facts, int n, ddp_findings_t *findings)
{
    const int with  = find_seeing(facts, n, true);
    const int blind = find_seeing(facts, n, false);
    char      a[NAME_SIZE];
    char      b[NAME_SIZE];

    if (with < 0) {
        judge_none(facts, n, findings);
        return;
    }
    if (blind >= 0) {
        (void)ddp_findings_add(findings, DDP_FINDING_FAIL, "gpu", "driver",
                               "mend that, or --set ddp.device=cpu", "%s sees a GPU and %s does not (%s)",
                               ddp_facts_name(&facts[with], a), ddp_facts_name(&facts[blind], b),
                               facts[blind].cuda.reason);
        return;
    }
    (void)ddp_findings_add(findings, DDP_FINDING_OK, "gpu", "driver", NULL, "CUDA %d.%d, driver for %d.%d",
                           facts[0].cuda.runtime / 1000, facts[0].cuda.runtime % 1000 / 10,
                           facts[0].cuda.driver / 1000, facts[0].cuda.driver % 1000 / 10);
    for (int r = 0; r < n; r++) {
        if (ddp_facts_leads(facts, r)) {
            judge_each(facts, n, r, findings);
        }
    }
    judge_nccl(&facts[0], findings);
    judge_cudnn(&facts[0], findings);
}
