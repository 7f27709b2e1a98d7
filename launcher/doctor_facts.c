/* What a rank sees of its program, its cores, its memory and its limits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/error.h"
#include "base/memory.h"
#include "ddp/nccl.h"
#include "io/checkpoint.h"
#include "launcher/build.h"
#include "launcher/doctor.h"

/* The first line of a file, without its end; "" */
static void read_line(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "re");

    text[0] = '\0';
    if (file != NULL) {
        if (fgets(text, (int)size, file) == NULL) {
            text[0] = '\0';
        }
        (void)fclose(file); /* was only read */
    }
    text[strcspn(text, "\n")] = '\0';
}

static void read_program(ddp_facts_t *facts)
{
    char           line[DDP_FACTS_TEXT];
    struct utsname system;

    ddp_build_text(facts->program);
    (void)snprintf(facts->build, sizeof(facts->build), "%s%s%s", DDP_BUILD_TYPE,
                   DDP_SANITIZERS[0] != '\0' ? ", sanitizers " : "", DDP_SANITIZERS);
    (void)ddp_checkpoint_library(facts->hdf5);
    if (uname(&system) == 0) {
        (void)snprintf(facts->kernel, sizeof(facts->kernel), "%.16s %.70s", system.sysname, system.release);
    }
    read_line("/proc/sys/kernel/random/boot_id", line, sizeof(line));
    facts->boot = XXH3_64bits(line, strlen(line));
    ddp_mpi_probe(&facts->mpi);
    (void)snprintf(facts->mpi_interfaces, sizeof(facts->mpi_interfaces), "%s", facts->mpi.interfaces);
}

/* Cores' worth of time that a control group of version 2 or 1 leaves; 0: all. */
static double read_quota(void)
{
    char   line[DDP_FACTS_TEXT];
    char   period[DDP_FACTS_TEXT];
    double quota  = 0;
    double length = 0;

    read_line("/sys/fs/cgroup/cpu.max", line, sizeof(line));
    if (line[0] != '\0') {
        return sscanf(line, "%lf %lf", &quota, &length) == 2 && length > 0 ? quota / length : 0;
    }
    read_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", line, sizeof(line));
    read_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us", period, sizeof(period));
    quota  = strtod(line, NULL);
    length = strtod(period, NULL);
    return quota > 0 && length > 0 ? quota / length : 0;
}

static void read_cpu(ddp_facts_t *facts)
{
    double load = 0;

    facts->isa      = (int32_t)ddp_isa_detect();
    facts->has_bf16 = ddp_isa_has_bf16((ddp_isa_t)facts->isa) ? 1 : 0;
    (void)ddp_cores_read(facts->cores);
    facts->quota = read_quota();
    facts->load  = getloadavg(&load, 1) == 1 ? load : 0;
}

/* "[always] madvise never" to "always" */
static void read_huge_pages(char *text, size_t size)
{
    char  line[DDP_FACTS_TEXT];
    char *begin;

    read_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof(line));
    begin = strchr(line, '[');
    if (begin != NULL) {
        begin++;
        begin[strcspn(begin, "]")] = '\0';
    }
    (void)snprintf(text, size, "%s", begin != NULL ? begin : "");
}

static void read_memory(ddp_facts_t *facts)
{
    const long     pages = sysconf(_SC_PHYS_PAGES);
    const int      file  = memfd_create("ddptrain-doctor", MFD_CLOEXEC);
    struct statvfs shm;

    facts->memory_bytes    = pages > 0 ? (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) : UINT64_MAX;
    facts->available_bytes = ddp_memory_available("");
    facts->has_memfd       = file >= 0 ? 1 : 0;
    if (file >= 0) {
        (void)close(file);
    }
    if (statvfs("/dev/shm", &shm) == 0) {
        facts->shm_bytes = (uint64_t)shm.f_bavail * (uint64_t)shm.f_frsize;
    }
    read_huge_pages(facts->huge_pages, sizeof(facts->huge_pages));
}

/* @return UINT64_MAX: none */
static uint64_t read_limit(int what, uint64_t *hard_p)
{
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};

    (void)getrlimit((__rlimit_resource_t)what, &limit);
    if (hard_p != NULL) {
        *hard_p = limit.rlim_max == RLIM_INFINITY ? UINT64_MAX : limit.rlim_max;
    }
    return limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
}

static void read_limits(ddp_facts_t *facts)
{
    facts->nofile        = read_limit(RLIMIT_NOFILE, &facts->nofile_hard);
    facts->memlock       = read_limit(RLIMIT_MEMLOCK, NULL);
    facts->core          = read_limit(RLIMIT_CORE, NULL);
    facts->address_space = read_limit(RLIMIT_AS, NULL);
}

static void read_gpus(ddp_facts_t *facts)
{
    ddp_nccl_info_t nccl;

    facts->has_driver_file = access("/proc/driver/nvidia/version", R_OK) == 0 ? 1 : 0;
    ddp_cuda_probe(&facts->cuda);
    for (int i = 0; i < facts->cuda.devices && i < DDP_FACTS_GPUS; i++) {
        if (ddp_cuda_describe(i, &facts->gpu[facts->n_gpus]) == DDP_OK) {
            facts->gpu_numa[facts->n_gpus] = ddp_cores_numa_of(facts->gpu[facts->n_gpus].bus);
            facts->n_gpus++;
        } else if (facts->cuda.reason[0] == '\0') {
            (void)snprintf(facts->cuda.reason, sizeof(facts->cuda.reason), "%.250s", ddp_error_line());
        }
    }
    if (facts->cuda.devices > 0) {
        facts->has_cudnn = ddp_cuda_cudnn(facts->cudnn) ? 1 : 0;
        ddp_nccl_probe(&nccl);
        facts->has_nccl     = nccl.is_there ? 1 : 0;
        facts->nccl_version = nccl.version;
        (void)snprintf(facts->no_nccl, sizeof(facts->no_nccl), "%s", nccl.reason);
    }
}

void ddp_facts_read(ddp_facts_t *facts)
{
    *facts = (ddp_facts_t){.pid = (int32_t)getpid(), .clock_error_s = -1};
    (void)gethostname(facts->host, sizeof(facts->host) - 1);
    read_program(facts);
    read_cpu(facts);
    read_memory(facts);
    read_limits(facts);
    facts->n_nics = ddp_nics_read(facts->nic);
    read_gpus(facts);
}

const char *ddp_facts_name(const ddp_facts_t *facts, char text[DDP_FACTS_TEXT + 32])
{
    (void)snprintf(text, DDP_FACTS_TEXT + 32, "rank %d on %s", facts->rank, facts->host);
    return text;
}

int ddp_facts_local(const ddp_facts_t *facts, int n, int r)
{
    int count = 0;

    for (int i = 0; i < n; i++) {
        count += facts[i].machine == facts[r].machine ? 1 : 0;
    }
    return count;
}

bool ddp_facts_leads(const ddp_facts_t *facts, int r)
{
    return r == 0 || facts[r].machine != facts[r - 1].machine;
}
