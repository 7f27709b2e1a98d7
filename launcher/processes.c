#include "launcher/processes.h"

#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t ddp_process_read(pid_t pid, const char *file, char *text, size_t size)
{
    char   path[64];
    size_t bytes = 0;
    FILE  *stream;

    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    stream = fopen(path, "re");
    if (stream != NULL) {
        bytes = fread(text, 1, size - 1, stream);
        (void)fclose(stream); /* was only read */
    }
    text[bytes] = '\0';
    return bytes;
}

/* "pid (name) state parent group session ...", where a name may hold anything, also a bracket or an end of a
 * line. */
static bool read_process(pid_t pid, ddp_process_t *process)
{
    char        text[1024];
    const char *begin = NULL;
    const char *end   = NULL;
    int         parent, session;

    if (ddp_process_read(pid, "stat", text, sizeof(text)) > 0) {
        begin = strchr(text, '(');
        end   = strrchr(text, ')');
    }
    if (begin == NULL || end == NULL ||
        sscanf(end + 1, " %c %d %*d %d", &process->state, &parent, &session) != 3) {
        return false;
    }
    process->pid     = pid;
    process->parent  = parent;
    process->session = session;
    (void)snprintf(process->name, sizeof(process->name), "%.*s", (int)(end - begin - 1), begin + 1);
    return true;
}

void ddp_processes_each(ddp_process_fn_t *fn, void *ctx)
{
    DIR                 *all = opendir("/proc");
    const struct dirent *entry;
    ddp_process_t        process;

    while (all != NULL && (entry = readdir(all)) != NULL) {
        if (isdigit((unsigned char)entry->d_name[0]) &&
            read_process((pid_t)strtol(entry->d_name, NULL, 10), &process)) {
            fn(ctx, &process);
        }
    }
    if (all != NULL) {
        (void)closedir(all); /* was only read */
    }
}
