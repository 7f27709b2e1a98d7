/* Judgement of the program, the ranks, the folder and the job. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "launcher/doctor.h"

#define NAME_SIZE    (DDP_FACTS_TEXT + 32)
#define MIB          1048576.0
#define GIB          (1024 * MIB)
#define SLOW_SYNC_MS 1000
#define HOSTS_TOLD   4

/* The first rank for which the text at `offset` is not that of rank 0; -1 */
static int find_other_text(const ddp_facts_t *facts, int n, size_t offset)
{
    for (int r = 1; r < n; r++) {
        if (strcmp((const char *)&facts[r] + offset, (const char *)&facts[0] + offset) != 0) {
            return r;
        }
    }
    return -1;
}

static void judge_same_text(const ddp_facts_t *facts, int n, size_t offset, const char *name,
                            const char *what, ddp_finding_level_t worst, ddp_findings_t *findings)
{
    const int   other = find_other_text(facts, n, offset);
    const char *mine  = (const char *)&facts[0] + offset;
    char        rank[NAME_SIZE];

    if (other < 0) {
        (void)ddp_findings_add(findings, DDP_FINDING_OK, "program", name, NULL, "%s%s", what, mine);
        return;
    }
    (void)ddp_findings_add(
        findings, worst, "program", name,
        worst > DDP_FINDING_OK ? "have the same on all machines, or one copy where all see it" : NULL,
        "%s%s, but %s has %s", what, mine, ddp_facts_name(&facts[other], rank),
        (const char *)&facts[other] + offset);
}

static void judge_build(const ddp_facts_t *facts, ddp_findings_t *findings)
{
    const char *build   = facts[0].build;
    const bool  is_slow = strncmp(build, "Rel", strlen("Rel")) != 0 || strstr(build, "sanitizers") != NULL;

    (void)ddp_findings_add(findings, is_slow ? DDP_FINDING_WARN : DDP_FINDING_OK, "program", "build",
                           is_slow ? "for speed: cmake --preset release" : NULL, "%s%s", build,
                           is_slow ? ": slow, made for testing" : "");
}

static void judge_mpi(const ddp_facts_t *facts, int n, ddp_findings_t *findings)
{
    char name[NAME_SIZE];

    for (int r = 0; r < n; r++) {
        const ddp_mpi_info_t *mpi = &facts[r].mpi;

        if (mpi->header_major != mpi->library_major || mpi->header_minor != mpi->library_minor) {
            (void)ddp_findings_add(findings, DDP_FINDING_FAIL, "program", "mpi",
                                   "start with the mpirun and the libraries that ddptrain was built with",
                                   "%s loads %s, but ddptrain was compiled for Open MPI %d.%d",
                                   ddp_facts_name(&facts[r], name), mpi->library, mpi->header_major,
                                   mpi->header_minor);
            return;
        }
    }
    judge_same_text(facts, n, offsetof(ddp_facts_t, mpi) + offsetof(ddp_mpi_info_t, library), "mpi", "",
                    DDP_FINDING_FAIL, findings);
}

void ddp_judge_program(const ddp_facts_t *facts, int n, ddp_findings_t *findings)
{
    judge_same_text(facts, n, offsetof(ddp_facts_t, program), "binary", "ddptrain ", DDP_FINDING_FAIL,
                    findings);
    judge_build(facts, findings);
    judge_mpi(facts, n, findings);
    judge_same_text(facts, n, offsetof(ddp_facts_t, hdf5), "hdf5", "", DDP_FINDING_WARN, findings);
    judge_same_text(facts, n, offsetof(ddp_facts_t, kernel), "kernel", "", DDP_FINDING_OK, findings);
}

/* "node1 2, node2 2 and 6 more" */
static void list_hosts(const ddp_facts_t *facts, int n, char *text, size_t size)
{
    size_t used  = 0;
    int    hosts = 0;

    text[0] = '\0';
    for (int r = 0; r < n; r++) {
        if (ddp_facts_leads(facts, r) && hosts++ < HOSTS_TOLD) {
            used += (size_t)snprintf(text + used, size - used, "%s%.64s %d", used > 0 ? ", " : "",
                                     facts[r].host, ddp_facts_local(facts, n, r));
        }
    }
    if (hosts > HOSTS_TOLD) {
        (void)snprintf(text + used, size - used, " and %d more", hosts - HOSTS_TOLD);
    }
}

static void judge_hosts(const ddp_facts_t *facts, int n, ddp_findings_t *findings)
{
    const int      machines = facts[n - 1].machine + 1;
    char           hosts[512];
    ddp_finding_t *finding = NULL;

    list_hosts(facts, n, hosts, sizeof(hosts));
    finding =
        ddp_findings_add(findings, DDP_FINDING_OK, "ranks", "hosts", NULL, "%d rank%s on %d machine%s: %s", n,
                         n > 1 ? "s" : "", machines, machines > 1 ? "s" : "", hosts);
    ddp_finding_number(finding, "ranks", n);
    ddp_finding_number(finding, "machines", machines);
    for (int r = 1; r < n; r++) {
        for (int s = 0; s < r && ddp_facts_leads(facts, r); s++) {
            if (facts[s].boot == facts[r].boot && facts[s].machine != facts[r].machine) {
                (void)ddp_findings_add(
                    findings, DDP_FINDING_WARN, "ranks", "shared_machine",
                    "for more speed take other machines",
                    "%.64s and %.64s are one machine (containers): their ranks share its cores",
                    facts[s].host, facts[r].host);
                return;
            }
        }
    }
}

void ddp_judge_ranks(const ddp_facts_t *facts, int n, const ddp_job_facts_t *job, ddp_findings_t *findings)
{
    static const char *const levels[] = {"single", "funneled", "serialized", "multiple"};
    const ddp_launch_t      *launch   = &job->launch;
    const char              *how   = launch->ranks > 0 ? "mpirun" : launch->is_step ? "srun" : "a launcher";
    const int                level = facts[0].mpi.thread_level;

    if (ddp_launch_check(launch, n, false) != DDP_OK) {
        (void)ddp_findings_add(findings, DDP_FINDING_FAIL, "ranks", "launcher", NULL, "%s", ddp_error_line());
    } else {
        (void)ddp_findings_add(findings, DDP_FINDING_OK, "ranks", "launcher", NULL, "%s%s%s%s",
                               launch->is_managed ? how : "started alone",
                               job->job[0] != '\0' ? " in a job of Slurm" : "",
                               job->pmix[0] != '\0' ? ", PMIx " : "", job->pmix);
    }
    judge_hosts(facts, n, findings);
    (void)ddp_findings_add(findings, DDP_FINDING_OK, "ranks", "threads", NULL, "MPI gives thread level %s",
                           levels[level >= 0 && level < 4 ? level : 0]);
}

/* On the machine of rank 0, which saves. */
static void judge_space(const ddp_facts_t *facts, const char *path, ddp_findings_t *findings)
{
    const ddp_folder_facts_t *folder = &facts[0].folder;
    ddp_finding_level_t       level  = DDP_FINDING_OK;
    const char               *fix    = NULL;
    ddp_finding_t            *finding;

    if (folder->free_bytes == 0 || folder->free_files == 0) {
        level = DDP_FINDING_FAIL;
        fix   = "make room, or take another folder with --out";
    } else if (folder->is_memory != 0 || folder->is_container != 0) {
        level = DDP_FINDING_WARN;
        fix   = "keep checkpoints on a disk: --out FOLDER";
    }
    finding =
        ddp_findings_add(findings, level, "folder", "space", fix, "'%.200s' on %.64s: %s, %.1f GiB free%s%s",
                         path, facts[0].host, folder->type, (double)folder->free_bytes / GIB,
                         folder->free_files == 0 ? ", but no file may be made" : "",
                         folder->is_memory != 0      ? "; it is memory, lost when the machine goes down"
                         : folder->is_container != 0 ? "; it is lost with the container"
                                                     : "");
    ddp_finding_number(finding, "free_bytes", (double)folder->free_bytes);
}

static void judge_sharing(const ddp_facts_t *facts, int n, ddp_findings_t *findings)
{
    char name[NAME_SIZE];

    for (int r = 1; r < n; r++) {
        if (ddp_facts_leads(facts, r) && facts[r].sees_file == 0) {
            (void)ddp_findings_add(
                findings, DDP_FINDING_WARN, "folder", "shared",
                "take a folder that all machines see (--out), or start again with rank 0 on the same "
                "machine",
                "%s does not see what rank 0 wrote there: checkpoints are on %.64s only",
                ddp_facts_name(&facts[r], name), facts[0].host);
            return;
        }
    }
    if (facts[n - 1].machine > 0) {
        (void)ddp_findings_add(findings, DDP_FINDING_OK, "folder", "shared", NULL, "all machines see it");
    }
}

void ddp_judge_folder(const ddp_facts_t *facts, int n, const char *path, ddp_findings_t *findings)
{
    const ddp_folder_facts_t *folder  = &facts[0].folder;
    const bool                is_slow = folder->sync_ms > SLOW_SYNC_MS;
    ddp_finding_t            *finding;

    if (folder->error[0] != '\0') {
        (void)ddp_findings_add(findings, DDP_FINDING_FAIL, "folder", "space",
                               "take another folder with --out", "'%.200s' on %.64s: %s", path, facts[0].host,
                               folder->error);
        return;
    }
    judge_space(facts, path, findings);
    finding =
        ddp_findings_add(findings, is_slow ? DDP_FINDING_WARN : DDP_FINDING_OK, "folder", "sync",
                         is_slow ? "save less often (checkpoint.every_steps), or take a faster folder" : NULL,
                         "1 MiB is on the disk, and has its name, after %.1f ms", folder->sync_ms);
    ddp_finding_number(finding, "sync_ms", folder->sync_ms);
    judge_sharing(facts, n, findings);
}

static bool is_uneven(const ddp_facts_t *facts, int n)
{
    for (int r = 1; r < n; r++) {
        if (ddp_facts_local(facts, n, r) != ddp_facts_local(facts, n, 0)) {
            return true;
        }
    }
    return false;
}

/* With fewer nodes than TreeWidth the tree's fence of Slurm 22.05 lets ranks pass before all have come. */
static void judge_fence(const ddp_job_facts_t *job, ddp_findings_t *findings)
{
    const bool is_ring  = strcmp(job->fence, "ring") == 0;
    const bool is_risky = !is_ring && job->launch.is_managed && job->launch.ranks < 0 && job->nodes > 1 &&
                          (job->tree_width < 0 || job->nodes < job->tree_width);

    if (job->fence[0] == '\0' && !is_risky) {
        return;
    }
    (void)ddp_findings_add(
        findings, is_risky ? DDP_FINDING_WARN : DDP_FINDING_OK, "slurm", "fence",
        is_risky ? "PMIxCollFence=ring in mpi.conf, srun -K; or mpirun inside the allocation" : NULL,
        "PMIxCollFence %s%s", job->fence[0] != '\0' ? job->fence : "is not known",
        is_risky ? ": with few nodes srun --mpi=pmix may crash in MPI_Init now and then" : "");
}

void ddp_judge_slurm(const ddp_facts_t *facts, int n, const ddp_job_facts_t *job, ddp_findings_t *findings)
{
    if (job->job[0] == '\0') {
        return;
    }
    (void)ddp_findings_add(findings, DDP_FINDING_OK, "slurm", "job", NULL, "%s, %ld node%s, Slurm %s",
                           job->job, job->nodes, job->nodes == 1 ? "" : "s",
                           job->slurm[0] != '\0' ? job->slurm : "not asked");
    judge_fence(job, findings);
    if (is_uneven(facts, n)) {
        (void)ddp_findings_add(findings, DDP_FINDING_WARN, "slurm", "placement",
                               job->has_tasks_per_node
                                   ? "ask for as many tasks as nodes times --ntasks-per-node"
                                   : "--ntasks-per-node=N",
                               "machines have different numbers of ranks: the fullest one sets the pace");
    }
    if (job->cpus_per_task > 1 && job->srun_cpus_per_task < 0 && job->launch.ranks < 0) {
        (void)ddp_findings_add(findings, DDP_FINDING_WARN, "slurm", "cpus_per_task",
                               "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK",
                               "srun does not take --cpus-per-task=%ld from sbatch since Slurm 22.05",
                               job->cpus_per_task);
    }
    if (job->is_unbound && job->launch.is_step) {
        (void)ddp_findings_add(findings, DDP_FINDING_WARN, "slurm", "binding", "srun --cpu-bind=cores",
                               "ranks are not bound to cores");
    }
}
