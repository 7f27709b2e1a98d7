/* What the output of a run tells of its fault. ddptrain's own line knows best who failed; then come Open
 * MPI's messages, which are late and name what they saw first. */
#include <string.h>

#include "base/error.h"
#include "launcher/supervise.h"

enum { OF_SSH = 1, OF_DAEMON, OF_MPIRUN, OF_DDPTRAIN };      /* weights of a host */
enum { LINE_SAID = 1, LINE_OTHER, LINE_MPIRUN, LINE_NAMES }; /* and of a line */

/* The word behind `before` in `line`, without a sentence's last sign. @return false: there is none */
static bool word_behind(const char *line, const char *before, char *word, size_t size)
{
    const char *at     = strstr(line, before);
    size_t      length = 0;

    if (at == NULL) {
        return false;
    }
    at += strlen(before);
    length = strcspn(at, " \t,;:()'\"]");
    while (length > 0 && at[length - 1] == '.') {
        length--;
    }
    if (length == 0 || length >= size) {
        return false;
    }
    memcpy(word, at, length);
    word[length] = '\0';
    return true;
}

static void take_host(ddp_supervise_clue_t *clue, int weight, const char *host)
{
    if (weight > clue->weight) { /* of equals the first: what follows is its consequence */
        clue->weight = weight;
        (void)snprintf(clue->host, sizeof(clue->host), "%s", host);
        ddp_error_one_line(clue->host);
    }
}

/* Of lines that say whatever ddptrain says the last is the error; of those that name somebody the first. */
static void take_line(ddp_supervise_clue_t *clue, int weight, const char *line)
{
    if (weight > clue->line_weight || (weight == clue->line_weight && weight == LINE_SAID)) {
        clue->line_weight = weight;
        (void)snprintf(clue->line, sizeof(clue->line), "%s", line);
        ddp_error_one_line(clue->line);
    }
}

/* "ddptrain: " or "ddptrain[3@node07]: ", of a rank and no warning. @return what follows, NULL: another line
 */
static const char *said_by_rank(const char *line)
{
    const char *at = line;

    if (strncmp(at, "ddptrain", 8) != 0) {
        return NULL;
    }
    at += 8;
    if (*at == '[') {
        at = strchr(at, ']');
        at = at != NULL ? at + 1 : "";
    }
    if (strncmp(at, ": ", 2) != 0 || strncmp(at + 2, "warning: ", 9) == 0) {
        return NULL;
    }
    return at + 2;
}

/* "rank 3 on node07 has ended ..." at the start of what is said, or behind another's words */
static bool names_rank(const char *text, char *host, size_t size)
{
    for (const char *at = strstr(text, "rank "); at != NULL; at = strstr(at + 1, "rank ")) {
        const char *end = at + 5 + strspn(at + 5, "0123456789");

        if (end > at + 5 && strncmp(end, " on ", 4) == 0) {
            return word_behind(end, " on ", host, size);
        }
    }
    return false;
}

void ddp_supervise_clue_read(ddp_supervise_clue_t *clue, const char *line)
{
    const char *said = NULL;
    char        host[DDP_SUPERVISE_HOST];

    line += strcspn(line, "\r") < strlen(line) ? strcspn(line, "\r") + 1 : 0;
    if (strncmp(line, "\033[K", 3) == 0) { /* what takes a progress bar away */
        line += 3;
    }
    said = said_by_rank(line);
    if (said != NULL) {
        const bool is_named = names_rank(said, host, sizeof(host));

        take_line(clue, is_named ? LINE_NAMES : LINE_SAID, line);
        if (is_named) {
            take_host(clue, OF_DDPTRAIN, host);
        }
    } else if (strstr(line, "noticed that process rank") != NULL) {
        take_line(clue, LINE_MPIRUN, line);
        if (word_behind(line, " on node ", host, sizeof(host))) {
            take_host(clue, OF_MPIRUN, host);
        }
    } else if (strstr(line, "Remote daemon:") != NULL) {
        if (word_behind(line, " on node ", host, sizeof(host))) {
            take_host(clue, OF_DAEMON, host);
        }
    } else if (strstr(line, "lost communication with a remote daemon") != NULL) {
        take_line(clue, LINE_OTHER, line);
    } else if (strstr(line, "unable to reliably start one or more daemons") != NULL ||
               strstr(line, "daemon has unexpectedly failed after launch") != NULL) {
        take_line(clue, LINE_OTHER, line);
        clue->is_unstarted = true;
    } else if (word_behind(line, "connect to host ", host, sizeof(host)) ||
               word_behind(line, "Could not resolve hostname ", host, sizeof(host))) {
        take_line(clue, LINE_OTHER, line);
        take_host(clue, OF_SSH, host);
    }
}

/* @return `text` behind "pid 123", if it begins so */
static const char *skip_pid(const char *text)
{
    if (strncmp(text, "pid ", 4) != 0 && strncmp(text, "PID ", 4) != 0) {
        return text;
    }
    return text + 4 + strspn(text + 4, "0123456789");
}

bool ddp_supervise_clue_is_same(const char *a, const char *b)
{
    for (; *a != '\0' || *b != '\0'; a++, b++) {
        a = skip_pid(a);
        b = skip_pid(b);
        if (*a != *b) {
            return false;
        }
        if (*a == '\0') {
            break;
        }
    }
    return true;
}
