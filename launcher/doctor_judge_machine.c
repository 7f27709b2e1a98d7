/* Judgement of cores, memory and limits. */
#include <stdio.h>
#include <string.h>

#include "launcher/doctor.h"

#define NAME_SIZE    (DDP_FACTS_TEXT + 32)
#define MIB          1048576.0
#define GIB          (1024 * MIB)
#define LITTLE_BYTES (512 * 1048576.0)
#define SHM_OF_RANK  (8 * 1048576.0) /* what Open MPI keeps there for each */
/* Sockets, libraries, data, checkpoints, pipes of mpirun: seen are about 40 of one rank. */
#define FILES_OF_ONE   128
#define FILES_OF_OTHER 2

static int count_cores(const uint64_t *mask)
{
    int n = 0;

    for (int w = 0; w < DDP_CORES_WORDS; w++) {
        n += __builtin_popcountll(mask[w]);
    }
    return n;
}

/* Of all ranks that are where rank `r` is, and how many these are. Containers of one machine share cores. */
static int join_cores(const ddp_facts_t *facts, int n, int r, uint64_t *mask)
{
    int ranks = 0;

    memset(mask, 0, DDP_CORES_WORDS * sizeof(*mask));
    for (int s = 0; s < n; s++) {
        if (facts[s].boot == facts[r].boot) {
            ranks++;
            for (int w = 0; w < DDP_CORES_WORDS; w++) {
                mask[w] |= facts[s].cores[w];
            }
        }
    }
    return ranks;
}

/* Ranks of the same place that may run on the same cores as `r` and no others. */
static int count_alike(const ddp_facts_t *facts, int n, int r)
{
    int alike = 0;

    for (int s = 0; s < n; s++) {
        alike += facts[s].boot == facts[r].boot &&
                         memcmp(facts[s].cores, facts[r].cores, sizeof(facts[r].cores)) == 0
                     ? 1
                     : 0;
    }
    return alike;
}

static void judge_isa(const ddp_facts_t *facts, int n, ddp_findings_t *findings)
{
    int  least = 0;
    int  most  = 0;
    char name[NAME_SIZE];

    for (int r = 1; r < n; r++) {
        least = facts[r].isa < facts[least].isa ? r : least;
        most  = facts[r].isa > facts[most].isa ? r : most;
    }
    if (facts[least].isa != facts[most].isa) {
        (void)ddp_findings_add(findings, DDP_FINDING_WARN, "cpu", "isa",
                               "for more speed take machines that are alike",
                               "all compute with %s, because %s has no more; others have %s",
                               ddp_isa_name((ddp_isa_t)facts[least].isa), ddp_facts_name(&facts[least], name),
                               ddp_isa_name((ddp_isa_t)facts[most].isa));
        return;
    }
    (void)ddp_findings_add(findings, DDP_FINDING_OK, "cpu", "isa", NULL, "%s%s",
                           ddp_isa_name((ddp_isa_t)facts[0].isa),
                           facts[0].has_bf16 != 0 ? ", bfloat16 by instruction" : ", bfloat16 is emulated");
}

/* @return the first rank that has to share its cores with others; -1: each can have its own */
static int find_crowded(const ddp_facts_t *facts, int n, int *ranks_p, int *cores_p)
{
    uint64_t mask[DDP_CORES_WORDS];

    for (int r = 0; r < n; r++) {
        *ranks_p = join_cores(facts, n, r, mask);
        *cores_p = count_cores(mask);
        if (*cores_p > 0 && *ranks_p > *cores_p) {
            return r;
        }
    }
    return -1;
}

static void judge_cores(const ddp_facts_t *facts, int n, ddp_findings_t *findings)
{
    int            ranks = 0;
    int            cores = 0;
    const int      r     = find_crowded(facts, n, &ranks, &cores);
    char           fix[64];
    ddp_finding_t *finding;

    if (r >= 0) {
        (void)snprintf(fix, sizeof(fix), "start %d rank%s there", cores, cores > 1 ? "s" : "");
        finding = ddp_findings_add(findings, DDP_FINDING_WARN, "cpu", "cores", fix,
                                   "%d ranks share %d core%s of %.64s", ranks, cores, cores > 1 ? "s" : "",
                                   facts[r].host);
    } else {
        finding = ddp_findings_add(findings, DDP_FINDING_OK, "cpu", "cores", NULL,
                                   "%d core%s for %d rank%s of %.64s", cores, cores == 1 ? "" : "s", ranks,
                                   ranks > 1 ? "s" : "", facts[n - 1].host);
    }
    ddp_finding_number(finding, "cores", cores);
    ddp_finding_number(finding, "ranks", ranks);
}

static void judge_binding(const ddp_facts_t *facts, int n, ddp_findings_t *findings)
{
    uint64_t mask[DDP_CORES_WORDS];
    char     name[NAME_SIZE];
    int      cores = 0;

    for (int r = 0; r < n; r++) {
        const int alike = count_alike(facts, n, r);
        const int ranks = join_cores(facts, n, r, mask);

        cores = count_cores(facts[r].cores);
        if (cores > 0 && alike > cores && ranks <= count_cores(mask)) {
            (void)ddp_findings_add(findings, DDP_FINDING_WARN, "cpu", "binding",
                                   "mpirun --bind-to none, or srun --cpu-bind=cores",
                                   "%s and %d more are bound to the same %d core%s, while others are idle",
                                   ddp_facts_name(&facts[r], name), alike - 1, cores, cores > 1 ? "s" : "");
            return;
        }
    }
    cores = count_cores(facts[0].cores);
    if (n == 1 && cores == 1) {
        (void)ddp_findings_add(findings, DDP_FINDING_OK, "cpu", "binding", NULL,
                               "this process may run on 1 core");
        return;
    }
    (void)ddp_findings_add(findings, DDP_FINDING_OK, "cpu", "binding", NULL, "a rank may run on %d core%s",
                           cores, cores == 1 ? "" : "s");
}

static void judge_quota(const ddp_facts_t *facts, int n, ddp_findings_t *findings)
{
    for (int r = 0; r < n; r++) {
        uint64_t  mask[DDP_CORES_WORDS];
        const int ranks = join_cores(facts, n, r, mask);

        if (facts[r].quota > 0 && facts[r].quota < ranks) {
            (void)ddp_findings_add(findings, DDP_FINDING_WARN, "cpu", "quota",
                                   "raise the limit, or start fewer ranks",
                                   "the control group on %.64s gives %.3g cores' worth of time to %d rank%s",
                                   facts[r].host, facts[r].quota, ranks, ranks > 1 ? "s" : "");
            return;
        }
    }
}

static void judge_load(const ddp_facts_t *facts, int n, ddp_findings_t *findings)
{
    int most = 0;

    for (int r = 1; r < n; r++) {
        most = facts[r].load > facts[most].load ? r : most;
    }
    for (int r = 0; r < n; r++) {
        uint64_t  mask[DDP_CORES_WORDS];
        const int ranks = join_cores(facts, n, r, mask);
        const int cores = count_cores(mask);

        /* one process more is this program, or nothing */
        if (cores > 0 && facts[r].load > 1 && facts[r].load + (ranks < cores ? ranks : cores) > cores + 1.0) {
            (void)ddp_findings_add(findings, DDP_FINDING_WARN, "cpu", "load",
                                   "wait for it to end, or use other cores",
                                   "%.64s works on something else: load %.1f on %d core%s", facts[r].host,
                                   facts[r].load, cores, cores > 1 ? "s" : "");
            return;
        }
    }
    (void)ddp_findings_add(findings, DDP_FINDING_OK, "cpu", "load", NULL, "at most %.1f, on %.64s",
                           facts[most].load, facts[most].host);
}

/* MPI's own waits, at the start and the end: those of ddptrain sleep by themselves. */
static void judge_yield(const ddp_facts_t *facts, int n, ddp_findings_t *findings)
{
    int        ranks  = 0;
    int        cores  = 0;
    const bool is_bad = find_crowded(facts, n, &ranks, &cores) >= 0 && facts[0].mpi.yields == 0;

    if (n > 1 && facts[0].mpi.yields >= 0) {
        (void)ddp_findings_add(findings, is_bad ? DDP_FINDING_WARN : DDP_FINDING_OK, "cpu", "yield",
                               is_bad ? "mpirun --mca mpi_yield_when_idle 1" : NULL,
                               "a rank that waits for MPI %s",
                               facts[0].mpi.yields > 0 ? "gives its core away"
                               : is_bad                ? "keeps its core from those that have work"
                                                       : "keeps its core");
    }
}

void ddp_judge_cpu(const ddp_facts_t *facts, int n, ddp_findings_t *findings)
{
    judge_isa(facts, n, findings);
    judge_cores(facts, n, findings);
    judge_binding(facts, n, findings);
    judge_quota(facts, n, findings);
    judge_load(facts, n, findings);
    judge_yield(facts, n, findings);
}

static void judge_free(const ddp_facts_t *facts, int n, ddp_findings_t *findings)
{
    int            least = 0;
    bool           is_little;
    ddp_finding_t *finding;

    for (int r = 1; r < n; r++) {
        least = facts[r].available_bytes < facts[least].available_bytes ? r : least;
    }
    if (facts[least].available_bytes == UINT64_MAX) {
        (void)ddp_findings_add(findings, DDP_FINDING_WARN, "memory", "free", NULL,
                               "the system does not tell it");
        return;
    }
    is_little = (double)facts[least].available_bytes < LITTLE_BYTES;
    finding   = ddp_findings_add(
          findings, is_little ? DDP_FINDING_WARN : DDP_FINDING_OK, "memory", "free",
        is_little ? "end other programs, or raise the limit of the job (sbatch --mem)" : NULL,
          "%.1f of %.1f GiB can be had on %.64s%s", (double)facts[least].available_bytes / GIB,
          (double)facts[least].memory_bytes / GIB, facts[least].host, n > 1 ? ", which has least" : "");
    ddp_finding_number(finding, "available_bytes", (double)facts[least].available_bytes);
}

static void judge_shared(const ddp_facts_t *facts, int n, ddp_findings_t *findings)
{
    char name[NAME_SIZE];

    for (int r = 0; r < n; r++) {
        if (facts[r].has_memfd == 0) {
            (void)ddp_findings_add(findings, DDP_FINDING_WARN, "memory", "shared",
                                   "allow memfd_create, or make /dev/shm larger (docker run --shm-size)",
                                   "%s is refused memfd_create: parameters go to /dev/shm, %.0f MiB free",
                                   ddp_facts_name(&facts[r], name), (double)facts[r].shm_bytes / MIB);
            return;
        }
    }
    for (int r = 0; r < n; r++) {
        if ((double)facts[r].shm_bytes < SHM_OF_RANK * ddp_facts_local(facts, n, r) && n > 1) {
            (void)ddp_findings_add(
                findings, DDP_FINDING_WARN, "memory", "shared", "a larger /dev/shm (docker run --shm-size)",
                "/dev/shm of %.64s has %.0f MiB free: Open MPI wants about 8 for each rank", facts[r].host,
                (double)facts[r].shm_bytes / MIB);
            return;
        }
    }
    (void)ddp_findings_add(findings, DDP_FINDING_OK, "memory", "shared", NULL,
                           "memfd_create works, %.0f MiB free in /dev/shm", (double)facts[0].shm_bytes / MIB);
}

static void judge_huge_pages(const ddp_facts_t *facts, int n, ddp_findings_t *findings)
{
    for (int r = 0; r < n; r++) {
        if (strcmp(facts[r].huge_pages, "never") == 0) {
            (void)ddp_findings_add(findings, DDP_FINDING_WARN, "memory", "huge_pages",
                                   "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
                                   "%.64s gives none: large arrays are on small pages", facts[r].host);
            return;
        }
    }
    (void)ddp_findings_add(findings, DDP_FINDING_OK, "memory", "huge_pages", NULL, "%s",
                           facts[0].huge_pages[0] != '\0' ? facts[0].huge_pages : "not known");
}

void ddp_judge_memory(const ddp_facts_t *facts, int n, ddp_findings_t *findings)
{
    judge_free(facts, n, findings);
    judge_shared(facts, n, findings);
    judge_huge_pages(facts, n, findings);
}

static const char *limit_text(uint64_t limit, double unit, char *text, size_t size)
{
    if (limit == UINT64_MAX) {
        (void)snprintf(text, size, "no limit");
    } else {
        (void)snprintf(text, size, "%.0f", (double)limit / unit);
    }
    return text;
}

static void judge_files(const ddp_facts_t *facts, int n, ddp_findings_t *findings)
{
    const uint64_t needed = FILES_OF_ONE + FILES_OF_OTHER * (uint64_t)n;
    int            least  = 0;
    bool           is_less;
    char           name[NAME_SIZE];
    char           text[32];
    char           fix[96];

    for (int r = 1; r < n; r++) {
        least = facts[r].nofile < facts[least].nofile ? r : least;
    }
    is_less = facts[least].nofile < needed;
    if (is_less && facts[least].nofile_hard >= needed) {
        (void)snprintf(fix, sizeof(fix), "ulimit -n %d", (int)needed);
    } else {
        (void)snprintf(fix, sizeof(fix), "raise nofile in /etc/security/limits.conf to %d", (int)needed);
    }
    (void)ddp_findings_add(findings, is_less ? DDP_FINDING_FAIL : DDP_FINDING_OK, "limits", "nofile",
                           is_less ? fix : NULL, "open files: %s on %s%s",
                           limit_text(facts[least].nofile, 1, text, sizeof(text)),
                           ddp_facts_name(&facts[least], name), is_less ? ", which is too few" : "");
}

static bool wants_pinned(const ddp_facts_t *facts)
{
    bool wants = facts->cuda.devices > 0;

    for (int32_t i = 0; i < facts->n_nics; i++) {
        wants = wants || facts->nic[i].is_infiniband != 0;
    }
    return wants;
}

static void judge_memlock(const ddp_facts_t *facts, int n, ddp_findings_t *findings)
{
    char name[NAME_SIZE];
    char text[32];

    for (int r = 0; r < n; r++) {
        if (facts[r].memlock != UINT64_MAX && wants_pinned(&facts[r])) {
            (void)ddp_findings_add(findings, DDP_FINDING_WARN, "limits", "memlock", "ulimit -l unlimited",
                                   "%s may pin %s KiB: InfiniBand and GPUs want more",
                                   ddp_facts_name(&facts[r], name),
                                   limit_text(facts[r].memlock, 1024, text, sizeof(text)));
            return;
        }
    }
    (void)ddp_findings_add(findings, DDP_FINDING_OK, "limits", "memlock", NULL, "pinned memory, KiB: %s%s",
                           limit_text(facts[0].memlock, 1024, text, sizeof(text)),
                           facts[0].memlock == UINT64_MAX ? "" : "; nothing here needs more");
}

static void judge_space(const ddp_facts_t *facts, int n, ddp_findings_t *findings)
{
    char name[NAME_SIZE];
    char text[32];

    for (int r = 0; r < n; r++) {
        if (facts[r].address_space != UINT64_MAX) {
            (void)ddp_findings_add(findings, DDP_FINDING_WARN, "limits", "address_space",
                                   "ulimit -v unlimited", "%s may map %s MiB",
                                   ddp_facts_name(&facts[r], name),
                                   limit_text(facts[r].address_space, MIB, text, sizeof(text)));
            return;
        }
    }
    (void)ddp_findings_add(findings, DDP_FINDING_OK, "limits", "address_space", NULL, "no limit");
}

void ddp_judge_limits(const ddp_facts_t *facts, int n, ddp_findings_t *findings)
{
    char text[32];

    judge_files(facts, n, findings);
    judge_memlock(facts, n, findings);
    judge_space(facts, n, findings);
    (void)ddp_findings_add(findings, DDP_FINDING_OK, "limits", "core", NULL,
                           "memory dumps after a crash, MiB: %s",
                           limit_text(facts[0].core, MIB, text, sizeof(text)));
}
