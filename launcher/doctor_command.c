#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "launcher/args.h"
#include "launcher/doctor_internal.h"
#include "launcher/start.h"

/* Of every wait; the user's --set comes after it. */
#define DEFAULT_TIMEOUT "ddp.timeout_s=20"
#define OTHERS_SPEAK_S  3
#define OTHERS_LEAVE_S  10
#define UNHEARD_MS      1500

typedef enum doctor_id { DOCTOR_JSON, DOCTOR_OUT, DOCTOR_SET, DOCTOR_LOG, DOCTOR_HELP } doctor_id_t;

static const ddp_arg_t doctor_table[] = {
    [DOCTOR_JSON] = {"--json", NULL, "one JSON object instead of lines"},
    [DOCTOR_OUT]  = {"--out", "FOLDER", "where runs will save; default: here"},
    [DOCTOR_SET] =
        {"--set", "section.key=value",
         "change a key of the configuration; ddp.timeout_s (20) bounds each wait; may be repeated"},
    [DOCTOR_LOG]  = {"--log", "LEVEL", "error, warn, info (default) or debug"},
    [DOCTOR_HELP] = {"--help", NULL, "this text"},
};
#define N_DOCTOR (sizeof(doctor_table) / sizeof(doctor_table[0]))

/* Of the one command that this process is. */
static struct doctor {
    ddp_options_t   run;
    bool            json;
    ddp_job_facts_t job;
    ddp_findings_t  findings; /* rank 0 */
} doctor;

static void say_help(FILE *out)
{
    fputs("ddptrain doctor says whether the machines it is started on are fit for training: the first thing "
          "to run on\n"
          "new ones. A line for each finding, ok, warn or fail, with what mends it. With a run.yaml also "
          "whether that\n"
          "configuration will run. Exit status 0: no fail; 1: some; 2: wrong usage.\n"
          "\n"
          "  ddptrain doctor\n"
          "  mpirun -np 4 --hostfile hosts ddptrain doctor run.yaml --out my/run\n"
          "  srun --mpi=pmix ddptrain doctor --json\n"
          "\n"
          "Usage: ddptrain doctor [run.yaml] [option...]\n"
          "\n",
          out);
    ddp_args_help(doctor_table, N_DOCTOR, out);
}

static ddp_status_t take_option(void *ctx, size_t index, const char *value)
{
    (void)ctx;
    switch ((doctor_id_t)index) {
    case DOCTOR_JSON:
        doctor.json = true;
        break;
    case DOCTOR_OUT:
        if (value[0] == '\0' || strlen(value) >= DDP_RUN_FOLDER_SIZE) {
            return ddp_fail(DDP_ERR_CONFIG, "--out '%.80s': the name of a folder is needed", value);
        }
        doctor.run.out = value;
        break;
    case DOCTOR_SET:
        return ddp_options_take_set(&doctor.run, value);
    case DOCTOR_LOG:
        return ddp_options_take_log(&doctor.run, value);
    case DOCTOR_HELP:
        doctor.run.help = true;
        break;
    }
    return DDP_OK;
}

static ddp_status_t take_word(void *ctx, size_t index, const char *word)
{
    (void)ctx;
    (void)index;
    return ddp_options_take_file(&doctor.run, word);
}

static ddp_status_t say_findings(void)
{
    ddp_status_t status = DDP_OK;

    if (doctor.json) {
        DDP_TRY(ddp_findings_print_json(&doctor.findings, stdout));
    } else {
        ddp_findings_print(&doctor.findings, stdout);
    }
    DDP_REQUIRE(fflush(stdout) == 0 && ferror(stdout) == 0, DDP_ERR_IO, "stdout: cannot be written");
out:
    return status;
}

/* Rank 0. */
static void judge(const ddp_facts_t *all, int n, const char *folder)
{
    ddp_judge_program(all, n, &doctor.findings);
    ddp_judge_ranks(all, n, &doctor.job, &doctor.findings);
    ddp_judge_cpu(all, n, &doctor.findings);
    ddp_judge_memory(all, n, &doctor.findings);
    ddp_judge_limits(all, n, &doctor.findings);
    ddp_judge_network(all, n, &doctor.findings);
    ddp_judge_folder(all, n, folder, &doctor.findings);
    ddp_judge_slurm(all, n, &doctor.job, &doctor.findings);
    ddp_judge_gpus(all, n, &doctor.findings);
}

/* A deadline alone asks for no run. */
static bool has_run(void)
{
    bool has = doctor.run.file != NULL;

    for (size_t i = 0; i < doctor.run.n_sets; i++) {
        has = has || strncmp(doctor.run.set[i], "ddp.timeout_s=", strlen("ddp.timeout_s=")) != 0;
    }
    return has;
}

/* A word for every rank, and the exit status. */
static ddp_status_t end(ddp_run_t *run)
{
    ddp_status_t status = DDP_OK;

    if (ddp_comm_rank(run->comm) == 0) {
        status = say_findings();
        run->exit_code =
            ddp_findings_count(&doctor.findings, DDP_FINDING_FAIL) > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
    }
    DDP_TRY(ddp_comm_agree(run->comm, status));
    DDP_TRY(ddp_comm_broadcast(run->comm, &run->exit_code, sizeof(run->exit_code), 0));
out:
    return status;
}

static ddp_status_t examine_all(ddp_run_t *run)
{
    ddp_status_t status = DDP_OK;
    const char  *folder = doctor.run.out != NULL ? doctor.run.out : ".";
    ddp_facts_t *all    = NULL;

    DDP_TRY(ddp_doctor_gather(run, folder, &all));
    if (all != NULL) {
        judge(all, ddp_comm_size(run->comm), folder);
    }
    DDP_TRY(ddp_doctor_measure_links(run, all, all != NULL ? &doctor.findings : NULL));
    if (has_run()) {
        DDP_TRY(ddp_doctor_check_run(run, all != NULL ? &all[0].folder : NULL,
                                     all != NULL ? &doctor.findings : NULL));
    }
out:
    free(all);
    return status;
}

/* What is known so far, and who did not answer. */
static void say_broken(const ddp_run_t *run)
{
    char line[DDP_ERROR_LINE_SIZE];

    memcpy(line, ddp_error_line(), sizeof(line));
    if (run->comm != NULL ? ddp_comm_rank(run->comm) == 0 : run->launch.is_first) {
        (void)ddp_findings_add(&doctor.findings, DDP_FINDING_FAIL, "ranks", "answer", DDP_DOCTOR_FIX_NETWORK,
                               "%s", line);
        ddp_ignore(say_findings(), "the line that follows says why this ends");
    }
    (void)ddp_fail(DDP_ERR_TIMEOUT, "%s", line);
}

/* MPI's messages do not pass, but what is printed does: the ranks that rank 0 does not hear say where they
 * are, and mpirun ends them when rank 0 ends. */
static void leave_slowly(const ddp_run_t *run)
{
    if (run->launch.is_first) {
        say_broken(run);
        (void)sleep(OTHERS_SPEAK_S);
        ddp_log(DDP_LOG_ERROR, "%s", ddp_error_line());
    } else {
        ddp_log(DDP_LOG_ERROR, "%s", ddp_error_line());
        (void)sleep(OTHERS_LEAVE_S);
    }
    _exit(EXIT_FAILURE);
}

/* On the watchdog's thread: libfabric tries for ever to send what cannot arrive, inside of a call. */
static void leave_unheard(void *run_p, const char *what, int limit_ms)
{
    char        host[DDP_FACTS_TEXT] = "unknown";
    const char *rank                 = getenv("PMIX_RANK");

    (void)what;
    (void)gethostname(host, sizeof(host) - 1);
    (void)ddp_fail(DDP_ERR_TIMEOUT, "rank %s on %s: MPI has sent nothing for %g s", rank != NULL ? rank : "?",
                   host, limit_ms / 1e3);
    leave_slowly(run_p);
}

static ddp_status_t call_roll(ddp_run_t *run)
{
    const int       limit_ms = (int)(run->config.ddp.timeout_s * 1e3);
    ddp_watchdog_t *watchdog = NULL;
    ddp_status_t    status   = DDP_OK;

    DDP_TRY(ddp_watchdog_create(leave_unheard, run, &watchdog));
    ddp_watchdog_arm(watchdog, "the roll call", limit_ms + (run->launch.is_first ? 2 : 1) * UNHEARD_MS);
    status = ddp_mpi_roll_call(MPI_COMM_WORLD, limit_ms);
    ddp_watchdog_disarm(watchdog);
    if (status == DDP_ERR_TIMEOUT || status == DDP_ERR_MPI) {
        leave_slowly(run);
    }
out:
    ddp_watchdog_destroy(&watchdog);
    return status;
}

/* ddp_body_fn_t */
static ddp_status_t examine(ddp_run_t *run, ddp_status_t early)
{
    ddp_status_t status = DDP_OK;
    char         line[DDP_ERROR_LINE_SIZE];

    memcpy(line, ddp_error_line(), sizeof(line));
    DDP_TRY(call_roll(run));
    DDP_TRY(ddp_run_connect(run));
    DDP_TRY(ddp_comm_agree(run->comm, early != DDP_OK ? ddp_fail(early, "%s", line) : DDP_OK));
    status = examine_all(run);
    if (status == DDP_ERR_TIMEOUT || status == DDP_ERR_REMOTE) {
        say_broken(run);
    }
    DDP_TRY(status);
    DDP_TRY(end(run));
out:
    return status;
}

static ddp_status_t parse(int argc, char **argv)
{
    ddp_status_t          status = DDP_OK;
    const ddp_args_sink_t sink   = {.ctx = NULL, .option = take_option, .word = take_word};

    doctor.run.command = "doctor";
    doctor.run.log     = DDP_LOG_INFO;
    DDP_TRY(ddp_options_take_set(&doctor.run, DEFAULT_TIMEOUT));
    DDP_TRY(ddp_args_parse(doctor_table, N_DOCTOR, "ddptrain doctor", argc, argv, &sink));
out:
    return status;
}

int ddp_doctor_command(int argc, char **argv)
{
    static ddp_run_t run; /* large */
    ddp_status_t     early = parse(argc, argv);
    char            *scontrol;
    int              code;

    if (early == DDP_OK && doctor.run.help) {
        if (ddp_launch_read().is_first) {
            say_help(stdout);
        }
        return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    scontrol = ddp_launch_read().is_first ? ddp_job_scontrol() : NULL;
    ddp_job_facts_read(&doctor.job, scontrol != NULL ? scontrol : "");
    free(scontrol);
    code = ddp_start(&run, &doctor.run, early, examine, argc, argv);
    ddp_findings_free(&doctor.findings);
    return code;
}
