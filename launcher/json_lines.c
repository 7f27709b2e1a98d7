#include "launcher/json_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

#define READ_BYTES ((size_t)256 << 10)

struct ddp_json_lines {
    int    fd;   /* owned; -1: none */
    char  *data; /* owned: what is read and not yet passed on */
    size_t room;
    size_t from, to; /* of data */
    size_t number;
    bool   is_end;     /* nothing more can be read */
    bool   is_skipped; /* the rest of a line that is too long */
    char   path[4096];
};

ddp_status_t ddp_json_lines_open(const char *path, ddp_json_lines_t **lines_p)
{
    ddp_status_t      status = DDP_OK;
    ddp_json_lines_t *lines  = calloc(1, sizeof(*lines));
    struct stat       st;

    DDP_REQUIRE(lines != NULL, DDP_ERR_NO_MEMORY, "no memory to read '%s'", path);
    lines->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    DDP_REQUIRE(lines->fd >= 0, DDP_ERR_IO, "'%s': %s", path, ddp_errno_text(errno));
    DDP_REQUIRE(fstat(lines->fd, &st) == 0 && S_ISREG(st.st_mode), DDP_ERR_IO, "'%s': not a regular file",
                path);
    lines->room = READ_BYTES;
    lines->data = malloc(lines->room);
    DDP_REQUIRE(lines->data != NULL, DDP_ERR_NO_MEMORY, "no memory to read '%s'", path);
    (void)snprintf(lines->path, sizeof(lines->path), "%s", path);
    *lines_p = lines;
    lines    = NULL;
out:
    ddp_json_lines_close(&lines);
    return status;
}

/* More data behind what is there; what was passed on makes room first. */
static ddp_status_t read_more(ddp_json_lines_t *lines)
{
    ddp_status_t status = DDP_OK;
    ssize_t      n;

    memmove(lines->data, lines->data + lines->from, lines->to - lines->from);
    lines->to -= lines->from;
    lines->from = 0;
    if (lines->room - lines->to < READ_BYTES) {
        char *more = realloc(lines->data, 2 * lines->room);

        DDP_REQUIRE(more != NULL, DDP_ERR_NO_MEMORY, "no memory to read '%s'", lines->path);
        lines->data = more;
        lines->room *= 2;
    }
    do {
        n = read(lines->fd, lines->data + lines->to, READ_BYTES);
    } while (n < 0 && errno == EINTR);
    DDP_REQUIRE(n >= 0, DDP_ERR_IO, "'%s': %s", lines->path, ddp_errno_text(errno));
    lines->to += (size_t)n;
    lines->is_end = n == 0;
out:
    return status;
}

/* @param [out] length_p  of the line at `from`, without its end; of what there is if the file ends first */
static ddp_status_t find_line(ddp_json_lines_t *lines, size_t *length_p, bool *is_cut_p)
{
    ddp_status_t status = DDP_OK;
    size_t       seen   = 0;
    const char  *end    = NULL;

    for (;;) {
        end = memchr(lines->data + lines->from + seen, '\n', lines->to - lines->from - seen);
        if (end != NULL || lines->is_end) {
            break;
        }
        seen = lines->to - lines->from;
        if (seen > DDP_JSON_LINE_BYTES) { /* nothing of it is kept */
            lines->from       = lines->to;
            lines->is_skipped = true;
            seen              = 0;
        }
        DDP_TRY(read_more(lines));
    }
    *is_cut_p = end == NULL;
    *length_p = end != NULL ? (size_t)(end - lines->data) - lines->from : lines->to - lines->from;
out:
    return status;
}

/* One value and nothing behind it. */
static cJSON *parse(const char *text, size_t length)
{
    const char *end  = NULL;
    cJSON      *json = cJSON_ParseWithLengthOpts(text, length, &end, false);

    while (json != NULL && end < text + length) {
        if (strchr(" \t\r", *end++) == NULL || end[-1] == '\0') {
            cJSON_Delete(json);
            json = NULL;
        }
    }
    return json;
}

ddp_status_t ddp_json_lines_next(ddp_json_lines_t *lines, ddp_json_line_t *line_p, bool *is_end_p)
{
    ddp_status_t status = DDP_OK;
    size_t       length = 0;
    bool         is_cut = false;

    DDP_TRY(find_line(lines, &length, &is_cut));
    *is_end_p = is_cut && length == 0 && !lines->is_skipped;
    if (*is_end_p) {
        goto out;
    }
    lines->number++;
    *line_p           = (ddp_json_line_t){.number = lines->number, .is_cut = is_cut};
    line_p->json      = lines->is_skipped ? NULL : parse(lines->data + lines->from, length);
    lines->is_skipped = false;
    lines->from += length + (is_cut ? 0 : 1);
out:
    return status;
}

void ddp_json_lines_close(ddp_json_lines_t **lines_p)
{
    ddp_json_lines_t *lines = *lines_p;

    if (lines == NULL) {
        return;
    }
    if (lines->fd >= 0) {
        (void)close(lines->fd);
    }
    free(lines->data);
    free(lines);
    *lines_p = NULL;
}
