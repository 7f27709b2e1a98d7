/* What `ddptrain doctor` says about pretended machines. */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/doctor.h"
#include "tests/support/ddp_test.h"

#define MOST_RANKS 8

static ddp_facts_t     facts[MOST_RANKS];
static ddp_job_facts_t job;
static ddp_findings_t  findings;

/* `machines` good ones with `ranks` each, 8 cores, nothing wrong. */
static int pretend(int machines, int ranks)
{
    const int n = machines * ranks;

    ck_assert_int_le(n, MOST_RANKS);
    for (int r = 0; r < n; r++) {
        ddp_facts_t *f = &facts[r];

        *f = (ddp_facts_t){.rank            = r,
                           .machine         = r / ranks,
                           .boot            = 100 + (uint64_t)(r / ranks),
                           .program         = "1.2.3 (77)",
                           .build           = "Release",
                           .isa             = DDP_ISA_AVX2,
                           .cores           = {0xff},
                           .memory_bytes    = UINT64_C(64) << 30,
                           .available_bytes = UINT64_C(32) << 30,
                           .shm_bytes       = UINT64_C(1) << 30,
                           .has_memfd       = 1,
                           .huge_pages      = "madvise",
                           .nofile          = 1024,
                           .nofile_hard     = 4096,
                           .memlock         = UINT64_MAX,
                           .core            = 0,
                           .address_space   = UINT64_MAX,
                           .n_nics          = 1,
                           .nic             = {{.name = "eth0", .is_ip4 = 1, .mbit = 10000, .numa = -1}},
                           .cuda            = {.reason = "built without CUDA"},
                           .folder    = {.type = "ext4", .free_bytes = INT64_C(1) << 40, .free_files = -1},
                           .sees_file = 1,
                           .clock_error_s = r % ranks == 0 && r > 0 ? 0.001 : -1};
        (void)snprintf(f->host, sizeof(f->host), "node%d", f->machine + 1);
        (void)snprintf(f->nic[0].address, sizeof(f->nic[0].address), "10.0.0.%d", f->machine + 1);
        f->mpi = (ddp_mpi_info_t){.library       = "Open MPI v4.1.4",
                                  .header_major  = 4,
                                  .header_minor  = 1,
                                  .library_major = 4,
                                  .library_minor = 1,
                                  .path          = "ob1",
                                  .yields        = 1};
    }
    job = (ddp_job_facts_t){.launch        = {.is_managed = true, .is_first = true, .ranks = n, .tasks = -1},
                            .nodes         = -1,
                            .tree_width    = -1,
                            .cpus_per_task = -1,
                            .srun_cpus_per_task = -1};
    return n;
}

static void judge_all(int n)
{
    ddp_findings_free(&findings);
    ddp_judge_program(facts, n, &findings);
    ddp_judge_ranks(facts, n, &job, &findings);
    ddp_judge_cpu(facts, n, &findings);
    ddp_judge_memory(facts, n, &findings);
    ddp_judge_limits(facts, n, &findings);
    ddp_judge_network(facts, n, &findings);
    ddp_judge_folder(facts, n, "my/run", &findings);
    ddp_judge_slurm(facts, n, &job, &findings);
    ddp_judge_gpus(facts, n, &findings);
}

/* This finding alone is not good, and says all of `words`, separated by '|'. */
static void assert_only(int n, ddp_finding_level_t level, const char *group, const char *name,
                        const char *words)
{
    const ddp_finding_t *finding;
    char                 word[64];

    judge_all(n);
    finding = ddp_findings_find(&findings, group, name);
    ck_assert_msg(finding != NULL, "no finding %s.%s", group, name);
    ck_assert_msg(finding->level == level, "%s.%s is %s: %s", group, name,
                  ddp_finding_level_name(finding->level), finding->text);
    ck_assert_uint_eq(ddp_findings_count(&findings, DDP_FINDING_OK), findings.n - 1);
    while (*words != '\0') {
        const size_t length = strcspn(words, "|");

        (void)snprintf(word, sizeof(word), "%.*s", (int)length, words);
        ck_assert_msg(strstr(finding->text, word) != NULL || strstr(finding->fix, word) != NULL,
                      "'%s' is not in '%s'; '%s'", word, finding->text, finding->fix);
        words += length + (words[length] == '|' ? 1 : 0);
    }
}

START_TEST(nothing_is_wrong_with_good_machines)
{
    for (int machines = 1; machines <= 2; machines++) {
        const int n = pretend(machines, 3);

        judge_all(n);
        ck_assert_uint_eq(ddp_findings_count(&findings, DDP_FINDING_OK), findings.n);
        ck_assert_uint_gt(findings.n, 15);
    }
}
END_TEST

START_TEST(another_program_or_library_on_one_machine_is_named)
{
    int n = pretend(2, 2);

    memcpy(facts[3].program, "1.2.3 (78)", sizeof("1.2.3 (78)"));
    assert_only(n, DDP_FINDING_FAIL, "program", "binary", "1.2.3 (77)|rank 3 on node2 has 1.2.3 (78)");
    n = pretend(2, 2);
    memcpy(facts[2].hdf5, "1.8", sizeof("1.8"));
    assert_only(n, DDP_FINDING_WARN, "program", "hdf5", "rank 2 on node2 has 1.8");
    n                          = pretend(2, 2);
    facts[2].mpi.library_major = 5;
    assert_only(n, DDP_FINDING_FAIL, "program", "mpi", "rank 2 on node2|compiled for Open MPI 4.1");
}
END_TEST

START_TEST(a_slow_build_is_said)
{
    int n = pretend(1, 1);

    memcpy(facts[0].build, "Debug", sizeof("Debug"));
    assert_only(n, DDP_FINDING_WARN, "program", "build", "Debug");
    n = pretend(1, 1);
    memcpy(facts[0].build, "Release, sanitizers thread", sizeof("Release, sanitizers thread"));
    assert_only(n, DDP_FINDING_WARN, "program", "build", "sanitizers");
}
END_TEST

START_TEST(more_ranks_than_cores_and_ranks_on_the_same_core_are_two_things)
{
    int n = pretend(2, 3);

    for (int r = 0; r < n; r++) {
        facts[r].cores[0] = 3;
    }
    assert_only(n, DDP_FINDING_WARN, "cpu", "cores", "3 ranks share 2 cores of node1|start 2 ranks");
    n                 = pretend(2, 3);
    facts[3].cores[0] = 1;
    facts[4].cores[0] = 1; /* bound to the same core, rank 5 has all 8 */
    assert_only(n, DDP_FINDING_WARN, "cpu", "binding", "rank 3 on node2|1 more|--bind-to none");
    n = pretend(2, 3);
    for (int r = 0; r < n; r++) {
        facts[r].cores[0] = UINT64_C(1) << r; /* each its own */
    }
    judge_all(n);
    ck_assert_uint_eq(ddp_findings_count(&findings, DDP_FINDING_OK), findings.n);
}
END_TEST

START_TEST(containers_of_one_machine_share_its_cores)
{
    const int n = pretend(2, 3);

    for (int r = 0; r < n; r++) {
        facts[r].boot     = 100;
        facts[r].cores[0] = 0xf; /* enough for 3, not for 6 */
    }
    judge_all(n);
    ck_assert_int_eq(ddp_findings_find(&findings, "ranks", "shared_machine")->level, DDP_FINDING_WARN);
    ck_assert_int_eq(ddp_findings_find(&findings, "cpu", "cores")->level, DDP_FINDING_WARN);
    ck_assert_uint_eq(ddp_findings_count(&findings, DDP_FINDING_WARN), 2);
}
END_TEST

START_TEST(what_slows_a_core_is_said)
{
    int n = pretend(1, 3);

    facts[2].quota = 2;
    assert_only(n, DDP_FINDING_WARN, "cpu", "quota", "node1|2 cores|3 ranks");
    n             = pretend(2, 3);
    facts[4].load = 7;
    assert_only(n, DDP_FINDING_WARN, "cpu", "load", "node2|7.0");
    n            = pretend(2, 3);
    facts[4].isa = DDP_ISA_PLAIN;
    assert_only(n, DDP_FINDING_WARN, "cpu", "isa", "plain|rank 4 on node2|avx2");
    n = pretend(1, 3);
    for (int r = 0; r < n; r++) {
        facts[r].cores[0]   = 3;
        facts[r].mpi.yields = 0;
    }
    judge_all(n);
    ck_assert_ptr_nonnull(strstr(ddp_findings_find(&findings, "cpu", "yield")->text, "keeps its core from"));
}
END_TEST

START_TEST(too_little_memory_and_too_few_files_are_named)
{
    int n = pretend(2, 2);

    facts[2].available_bytes = 100 << 20;
    assert_only(n, DDP_FINDING_WARN, "memory", "free", "0.1 of 64.0 GiB|node2");
    n                  = pretend(2, 2);
    facts[2].has_memfd = 0;
    assert_only(n, DDP_FINDING_WARN, "memory", "shared", "rank 2 on node2|memfd_create");
    n                  = pretend(2, 2);
    facts[3].shm_bytes = 15 << 20;
    assert_only(n, DDP_FINDING_WARN, "memory", "shared", "/dev/shm of node2|15 MiB");
    n = pretend(2, 2);
    memcpy(facts[3].huge_pages, "never", sizeof("never"));
    assert_only(n, DDP_FINDING_WARN, "memory", "huge_pages", "node2");
    n               = pretend(2, 2);
    facts[1].nofile = 64;
    assert_only(n, DDP_FINDING_FAIL, "limits", "nofile", "64 on rank 1 on node1|ulimit -n");
    facts[1].nofile_hard = 64;
    assert_only(n, DDP_FINDING_FAIL, "limits", "nofile", "limits.conf");
    n                      = pretend(2, 2);
    facts[1].address_space = UINT64_C(1) << 30;
    assert_only(n, DDP_FINDING_WARN, "limits", "address_space", "rank 1 on node1 may map 1024 MiB");
    n                = pretend(2, 2);
    facts[3].memlock = 65536; /* as long as nobody pins memory */
    judge_all(n);
    ck_assert_uint_eq(ddp_findings_count(&findings, DDP_FINDING_OK), findings.n);
    facts[3].nic[0].is_infiniband = 1;
    assert_only(n, DDP_FINDING_WARN, "limits", "memlock", "rank 3 on node2|64 KiB");
}
END_TEST

START_TEST(an_address_that_two_machines_have_is_named_unless_mpi_was_told)
{
    const int n = pretend(3, 2);

    for (int r = 0; r < n; r++) {
        facts[r].n_nics = 2;
        (void)snprintf(facts[r].nic[1].name, sizeof(facts[r].nic[1].name), "docker0");
        (void)snprintf(facts[r].nic[1].address, sizeof(facts[r].nic[1].address), "172.17.%d.1", r / 4);
    }
    assert_only(n, DDP_FINDING_WARN, "network", "addresses", "node1 and node2|172.17.0.1 (docker0)");
    memcpy(facts[0].mpi_interfaces, "eth0", sizeof("eth0"));
    judge_all(n);
    ck_assert_uint_eq(ddp_findings_count(&findings, DDP_FINDING_OK), findings.n);
}
END_TEST

START_TEST(an_interface_that_mpi_was_told_but_does_not_heed_is_said)
{
    const int n = pretend(2, 1);

    memcpy(facts[0].mpi.path, "cm", sizeof("cm"));
    judge_all(n);
    ck_assert_uint_eq(ddp_findings_count(&findings, DDP_FINDING_OK), findings.n);
    memcpy(facts[0].mpi_interfaces, "eth0", sizeof("eth0"));
    assert_only(n, DDP_FINDING_WARN, "network", "transport", "libfabric|does not heed|--mca pml ob1");
}
END_TEST

START_TEST(a_wrong_clock_is_named_but_not_one_that_is_not_known_well)
{
    const int n = pretend(3, 1);

    facts[1].clock_s = 0.4;
    facts[2].clock_s = -3600;
    assert_only(n, DDP_FINDING_WARN, "network", "clock", "node3|behind node1");
    facts[2].clock_error_s = 3599.5;
    judge_all(n);
    ck_assert_uint_eq(ddp_findings_count(&findings, DDP_FINDING_OK), findings.n);
}
END_TEST

/* All links have this rate but that of machines `a` and `b`. */
static void judge_links(int n, double mbit, int a, int b, double other_mbit)
{
    const int  machines = facts[n - 1].machine + 1;
    ddp_link_t pairs[MOST_RANKS * MOST_RANKS];

    memset(pairs, 0, sizeof(pairs));
    for (int i = 0; i < machines * machines; i++) {
        const bool is_other = i == a * machines + b || i == b * machines + a;

        pairs[i] =
            (ddp_link_t){.latency_s = 12.5e-6, .bytes_per_s = (is_other ? other_mbit : mbit) * 1e6 / 8};
    }
    ddp_findings_free(&findings);
    ddp_judge_links(facts, n, pairs, &findings);
}

START_TEST(a_link_slower_than_others_or_than_its_interface_is_named)
{
    int n = pretend(3, 2);

    judge_links(n, 9000, 0, 0, 0);
    ck_assert_uint_eq(findings.n, 3);
    ck_assert_uint_eq(ddp_findings_count(&findings, DDP_FINDING_OK), 3);
    ck_assert_ptr_nonnull(strstr(findings.finding[0].text, "12.5 us, 9000 Mbit/s"));
    ck_assert_str_eq(findings.finding[0].number[3].name, "mbit_s");
    ck_assert_double_eq_tol(findings.finding[0].number[3].value, 9000, 1e-6);
    judge_links(n, 9000, 1, 2, 2900);
    ck_assert_uint_eq(ddp_findings_count(&findings, DDP_FINDING_WARN), 1);
    ck_assert_int_eq(findings.finding[0].level, DDP_FINDING_WARN); /* the slowest first */
    ck_assert_ptr_nonnull(strstr(findings.finding[0].text, "node2 and node3: 12.5 us, 2900 Mbit/s"));
    ck_assert_ptr_nonnull(strstr(findings.finding[0].text, "others 9000"));
    n = pretend(2, 1);
    judge_links(n, 2400, 0, 0, 0);
    ck_assert_uint_eq(ddp_findings_count(&findings, DDP_FINDING_WARN), 1);
    ck_assert_ptr_nonnull(strstr(findings.finding[0].text, "made for 10000"));
    facts[1].boot = facts[0].boot; /* between containers an interface is made for nothing */
    judge_links(n, 2400, 0, 0, 0);
    ck_assert_uint_eq(ddp_findings_count(&findings, DDP_FINDING_OK), 1);
    n = pretend(8, 1);
    judge_links(n, 9000, 2, 6, 8000);
    ck_assert_uint_eq(findings.n, 7);
    ck_assert_ptr_nonnull(strstr(findings.finding[0].text, "node3 and node7"));
    ck_assert_ptr_nonnull(strstr(findings.finding[6].text, "22 more pairs"));
}
END_TEST

START_TEST(the_folder_is_judged)
{
    int n = pretend(2, 2);

    facts[2].sees_file = 0;
    facts[1].sees_file = 0; /* is on rank 0's machine, and was not asked */
    facts[3].sees_file = 0;
    assert_only(n, DDP_FINDING_WARN, "folder", "shared", "rank 2 on node2|node1 only");
    n                          = pretend(2, 2);
    facts[0].folder.free_bytes = 0;
    assert_only(n, DDP_FINDING_FAIL, "folder", "space", "my/run|node1");
    n                          = pretend(2, 2);
    facts[0].folder.free_files = 0;
    assert_only(n, DDP_FINDING_FAIL, "folder", "space", "no file may be made");
    n                         = pretend(2, 2);
    facts[0].folder.is_memory = 1;
    assert_only(n, DDP_FINDING_WARN, "folder", "space", "memory");
    n                       = pretend(2, 2);
    facts[0].folder.sync_ms = 2000;
    assert_only(n, DDP_FINDING_WARN, "folder", "sync", "2000.0 ms");
    n = pretend(2, 2);
    memcpy(facts[0].folder.error, "cannot be written", sizeof("cannot be written"));
    assert_only(n, DDP_FINDING_FAIL, "folder", "space", "my/run|cannot be written|--out");
}
END_TEST

START_TEST(settings_of_slurm_that_hurt_are_named)
{
    int n = pretend(2, 2);

    (void)snprintf(job.job, sizeof(job.job), "42");
    job.nodes = 2;
    job.launch =
        (ddp_launch_t){.is_managed = true, .is_first = true, .ranks = -1, .tasks = n, .is_step = true};
    job.tree_width = 50;
    (void)snprintf(job.fence, sizeof(job.fence), "mixed");
    assert_only(n, DDP_FINDING_WARN, "slurm", "fence", "mixed|PMIxCollFence=ring");
    job.tree_width = 2; /* as many as nodes: the tree is right */
    judge_all(n);
    ck_assert_uint_eq(ddp_findings_count(&findings, DDP_FINDING_OK), findings.n);
    job.tree_width = -1;
    (void)snprintf(job.fence, sizeof(job.fence), "ring");
    judge_all(n);
    ck_assert_uint_eq(ddp_findings_count(&findings, DDP_FINDING_OK), findings.n);
    job.is_unbound = true;
    assert_only(n, DDP_FINDING_WARN, "slurm", "binding", "--cpu-bind=cores");
    job.is_unbound    = false;
    job.cpus_per_task = 4;
    assert_only(n, DDP_FINDING_WARN, "slurm", "cpus_per_task", "SRUN_CPUS_PER_TASK");
    job.cpus_per_task = -1;
    n                 = 3; /* two and one */
    job.launch.tasks  = n;
    assert_only(n, DDP_FINDING_WARN, "slurm", "placement", "--ntasks-per-node");
}
END_TEST

START_TEST(processes_that_do_not_know_of_each_other_fail)
{
    const int n = pretend(1, 1);

    job.launch =
        (ddp_launch_t){.is_managed = true, .is_first = true, .ranks = -1, .tasks = 4, .is_step = true};
    assert_only(n, DDP_FINDING_FAIL, "ranks", "launcher", "4 tasks|--mpi=pmix");
}
END_TEST

START_TEST(gpus_are_counted_once_for_a_machine)
{
    int n = pretend(2, 2);

    for (int r = 0; r < n; r++) { /* as srun --gpus-per-task=1 shows them */
        facts[r].cuda.devices = 1;
        facts[r].n_gpus       = 1;
        facts[r].gpu_numa[0]  = r % 2;
        facts[r].nic[0].numa  = 0;
        facts[r].has_nccl     = 1;
        facts[r].nccl_version = 22809;
        facts[r].has_cudnn    = 1;
        (void)snprintf(facts[r].cudnn, sizeof(facts[r].cudnn), "9.13.1");
        facts[r].gpu[0].uuid[0] = (uint8_t)(r % 2);
        (void)snprintf(facts[r].gpu[0].name, sizeof(facts[r].gpu[0].name), "NVIDIA H200");
    }
    judge_all(n);
    ck_assert_uint_eq(ddp_findings_count(&findings, DDP_FINDING_OK), findings.n);
    ck_assert_ptr_nonnull(strstr(ddp_findings_find(&findings, "gpu", "device")->text, "near node 0, eth0"));
    facts[3].gpu[0].uuid[0] = 0;
    assert_only(n, DDP_FINDING_WARN, "gpu", "ranks", "node2 has 2 ranks and 1 GPU");
    facts[3].gpu[0].uuid[0] = 1;
    facts[0].has_nccl       = 0;
    (void)snprintf(facts[0].no_nccl, sizeof(facts[0].no_nccl), "libnccl.so.2 is not there");
    assert_only(n, DDP_FINDING_WARN, "gpu", "nccl", "libnccl.so.2 is not there");
    facts[0].has_nccl  = 1;
    facts[0].has_cudnn = 0;
    assert_only(n, DDP_FINDING_WARN, "gpu", "cudnn", "9.13.1|slower|DDP_CUDNN_PATH");
    facts[2].cuda = (ddp_cuda_info_t){.reason = "no driver"};
    assert_only(n, DDP_FINDING_FAIL, "gpu", "driver",
                "rank 0 on node1|rank 2 on node2|no driver|ddp.device=cpu");
    n                        = pretend(2, 2);
    facts[2].has_driver_file = 1;
    assert_only(n, DDP_FINDING_WARN, "gpu", "driver", "node2|built without CUDA");
}
END_TEST

START_TEST(scontrol_s_words_are_read)
{
    ddp_job_facts_read(&job,
                       "Configuration data\nSLURM_VERSION           = 22.05.8\nTreeWidth               = 50\n"
                       "MPI Plugins Configuration:\nPMIxCollFence           = tree\nPMIxTimeout = 300\n");
    ck_assert_str_eq(job.slurm, "22.05.8");
    ck_assert_str_eq(job.fence, "tree");
    ck_assert_int_eq(job.tree_width, 50);
    ddp_job_facts_read(&job, "");
    ck_assert_str_eq(job.slurm, "");
    ck_assert_int_eq(job.tree_width, -1);
    ddp_job_facts_read(&job, "TreeWidth");
    ck_assert_int_eq(job.tree_width, -1);
}
END_TEST

/* Both forms, of a list with everything in it. */
static void print_both(char **lines_p, char **json_p)
{
    size_t size = 0;
    FILE  *out  = open_memstream(lines_p, &size);

    ck_assert_ptr_nonnull(out);
    ddp_findings_print(&findings, out);
    ck_assert_int_eq(fclose(out), 0);
    out = open_memstream(json_p, &size);
    ck_assert_ptr_nonnull(out);
    ck_assert_int_eq(ddp_findings_print_json(&findings, out), DDP_OK);
    ck_assert_int_eq(fclose(out), 0);
}

START_TEST(the_json_form_says_what_the_lines_say)
{
    char           wanted[4096] = "";
    size_t         used         = 0;
    char          *lines        = NULL;
    char          *text         = NULL;
    const cJSON   *item;
    cJSON         *json;
    ddp_finding_t *finding;

    ddp_findings_free(&findings);
    (void)ddp_findings_add(&findings, DDP_FINDING_OK, "a", "b", NULL, "good %d", 1);
    finding = ddp_findings_add(&findings, DDP_FINDING_WARN, "a", "c", "a \"fix\"", "odd\n\ttext");
    ddp_finding_number(finding, "x_us", 2.5);
    ddp_finding_number(finding, "y", 1.0 / 0.0); /* no number of JSON */
    (void)ddp_findings_add(&findings, DDP_FINDING_FAIL, "d", "e", "f", "bad");
    print_both(&lines, &text);
    json = cJSON_Parse(text);
    ck_assert_ptr_nonnull(json);
    ck_assert_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(json, "event")), "doctor");
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(json, "findings"))
    {
        const char *fix = cJSON_GetStringValue(cJSON_GetObjectItem(item, "fix"));

        used += (size_t)snprintf(wanted + used, sizeof(wanted) - used, "%-5s %s.%s: %s%s%s\n",
                                 cJSON_GetStringValue(cJSON_GetObjectItem(item, "level")),
                                 cJSON_GetStringValue(cJSON_GetObjectItem(item, "group")),
                                 cJSON_GetStringValue(cJSON_GetObjectItem(item, "name")),
                                 cJSON_GetStringValue(cJSON_GetObjectItem(item, "text")),
                                 fix != NULL ? "; " : "", fix != NULL ? fix : "");
    }
    (void)snprintf(wanted + used, sizeof(wanted) - used, "%d ok, %d warn, %d fail\n",
                   cJSON_GetObjectItem(json, "ok")->valueint, cJSON_GetObjectItem(json, "warn")->valueint,
                   cJSON_GetObjectItem(json, "fail")->valueint);
    ck_assert_str_eq(lines, wanted);
    ck_assert_ptr_nonnull(strstr(lines, "warn  a.c: odd  text; a \"fix\"\n"));
    ck_assert_ptr_nonnull(strstr(lines, "1 ok, 1 warn, 1 fail\n"));
    item = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "findings"), 1);
    ck_assert_double_eq(cJSON_GetObjectItem(item, "x_us")->valuedouble, 2.5);
    ck_assert_ptr_null(cJSON_GetObjectItem(item, "y"));
    cJSON_Delete(json);
    free(lines);
    free(text);
    ddp_findings_free(&findings);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("doctor");
    TCase *tcase = tcase_create("all");
    int    failed;

    tcase_add_test(tcase, nothing_is_wrong_with_good_machines);
    tcase_add_test(tcase, another_program_or_library_on_one_machine_is_named);
    tcase_add_test(tcase, a_slow_build_is_said);
    tcase_add_test(tcase, more_ranks_than_cores_and_ranks_on_the_same_core_are_two_things);
    tcase_add_test(tcase, containers_of_one_machine_share_its_cores);
    tcase_add_test(tcase, what_slows_a_core_is_said);
    tcase_add_test(tcase, too_little_memory_and_too_few_files_are_named);
    tcase_add_test(tcase, an_address_that_two_machines_have_is_named_unless_mpi_was_told);
    tcase_add_test(tcase, an_interface_that_mpi_was_told_but_does_not_heed_is_said);
    tcase_add_test(tcase, a_wrong_clock_is_named_but_not_one_that_is_not_known_well);
    tcase_add_test(tcase, a_link_slower_than_others_or_than_its_interface_is_named);
    tcase_add_test(tcase, the_folder_is_judged);
    tcase_add_test(tcase, settings_of_slurm_that_hurt_are_named);
    tcase_add_test(tcase, processes_that_do_not_know_of_each_other_fail);
    tcase_add_test(tcase, gpus_are_counted_once_for_a_machine);
    tcase_add_test(tcase, scontrol_s_words_are_read);
    tcase_add_test(tcase, the_json_form_says_what_the_lines_say);
    suite_add_tcase(suite, tcase);
    failed = ddp_test_run(suite);
    ddp_findings_free(&findings);
    return failed;
}
