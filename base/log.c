#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

#define LOG_LINE_SIZE 1024

static _Atomic int log_level    = DDP_LOG_INFO;
static char        identity[96] = "ddptrain: "; /* written at start, before other threads run */

void ddp_log_set_level(ddp_log_level_t level)
{
    atomic_store(&log_level, (int)level);
}

bool ddp_log_parse_level(const char *text, ddp_log_level_t *level_p)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};

    for (int i = 0; i < 4; i++) {
        if (strcmp(text, names[i]) == 0) {
            *level_p = (ddp_log_level_t)i;
            return true;
        }
    }
    return false;
}

void ddp_log_set_identity(int rank, const char *host)
{
    if (rank < 0) {
        snprintf(identity, sizeof(identity), "ddptrain: ");
    } else {
        snprintf(identity, sizeof(identity), "ddptrain[%d@%.64s]: ", rank, host);
    }
}

void ddp_log(ddp_log_level_t level, const char *fmt, ...)
{
    char    line[LOG_LINE_SIZE];
    int     used;
    va_list args;

    if ((int)level > atomic_load(&log_level)) {
        return;
    }
    used = snprintf(line, sizeof(line), "%s%s", identity, level == DDP_LOG_WARN ? "warning: " : "");
    va_start(args, fmt);
    vsnprintf(line + used, sizeof(line) - (size_t)used - 1, fmt, args);
    va_end(args);
    ddp_error_one_line(line);
    used         = (int)strlen(line);
    line[used++] = '\n';
    for (int sent = 0; sent < used;) {
        ssize_t n = write(STDERR_FILENO, line + sent, (size_t)(used - sent));

        if (n <= 0) {
            return; /* nowhere left to complain */
        }
        sent += (int)n;
    }
}
