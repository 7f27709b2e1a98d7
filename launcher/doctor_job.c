/* What mpirun and Slurm say about this job. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/doctor.h"

#define SCONTROL      "timeout -k 1 5 scontrol show config 2>/dev/null"
#define SCONTROL_SIZE 65536

static void copy_variable(const char *name, char *text, size_t size)
{
    const char *value = getenv(name);

    (void)snprintf(text, size, "%s", value != NULL ? value : "");
}

/* @return -1: not there */
static long number_of(const char *name)
{
    const char *value = getenv(name);

    return value != NULL ? strtol(value, NULL, 10) : -1;
}

/* "Name = value" of scontrol's text; spaces around it vary. */
static void copy_setting(const char *config, const char *name, char *text, size_t size)
{
    const size_t length = strlen(name);

    text[0] = '\0';
    for (const char *line = config; line != NULL && line[0] != '\0';) {
        const char *at = line + strspn(line, " \t");

        if (strncmp(at, name, length) == 0) {
            at += length + strspn(at + length, " \t");
            if (*at == '=') {
                at += 1 + strspn(at + 1, " \t");
                (void)snprintf(text, size, "%.*s", (int)strcspn(at, " \t\n"), at);
                return;
            }
        }
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
}

char *ddp_job_scontrol(void)
{
    char  *text = calloc(1, SCONTROL_SIZE);
    FILE  *pipe = getenv("SLURM_JOB_ID") != NULL && text != NULL ? popen(SCONTROL, "re") : NULL;
    size_t used = 0;

    if (pipe != NULL) {
        used       = fread(text, 1, SCONTROL_SIZE - 1, pipe);
        text[used] = '\0';
        (void)pclose(pipe); /* a text that is not there is an answer too */
    }
    return text;
}

void ddp_job_facts_read(ddp_job_facts_t *job, const char *scontrol)
{
    char width[32];
    char bind[64];

    *job = (ddp_job_facts_t){.launch             = ddp_launch_read(),
                             .nodes              = number_of("SLURM_JOB_NUM_NODES"),
                             .tree_width         = -1,
                             .has_tasks_per_node = getenv("SLURM_NTASKS_PER_NODE") != NULL,
                             .cpus_per_task      = number_of("SLURM_CPUS_PER_TASK"),
                             .srun_cpus_per_task = number_of("SRUN_CPUS_PER_TASK")};
    copy_variable("PMIX_VERSION", job->pmix, sizeof(job->pmix));
    copy_variable("SLURM_JOB_ID", job->job, sizeof(job->job));
    copy_variable("SLURM_CPU_BIND_TYPE", bind, sizeof(bind));
    job->is_unbound = strcmp(bind, "none") == 0;
    copy_setting(scontrol, "PMIxCollFence", job->fence, sizeof(job->fence));
    copy_setting(scontrol, "SLURM_VERSION", job->slurm, sizeof(job->slurm));
    copy_setting(scontrol, "TreeWidth", width, sizeof(width));
    if (width[0] != '\0') {
        job->tree_width = strtol(width, NULL, 10);
    }
}
