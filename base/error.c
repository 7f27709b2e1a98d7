#include "base/error.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char error_line[DDP_ERROR_LINE_SIZE];

void ddp_error_one_line(char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f) {
            *text = ' ';
        }
    }
}

/* What is too long loses its middle: a long path stands in front of the cause. */
static void record(const char *whole)
{
    const size_t length = strlen(whole);
    const size_t head   = DDP_ERROR_LINE_SIZE / 2;
    const size_t tail   = DDP_ERROR_LINE_SIZE - 1 - 3 - head;

    if (length < DDP_ERROR_LINE_SIZE) {
        memcpy(error_line, whole, length + 1);
    } else {
        memcpy(error_line, whole, head);
        memcpy(error_line + head, "...", 3);
        memcpy(error_line + head + 3, whole + length - tail, tail + 1);
    }
    ddp_error_one_line(error_line);
}

ddp_status_t ddp_fail_v(ddp_status_t status, const char *fmt, va_list args)
{
    char    text[DDP_ERROR_LINE_SIZE]; /* the arguments may point into the old record */
    char   *whole = NULL;
    int     length;
    va_list again;

    va_copy(again, args);
    length = vsnprintf(text, sizeof(text), fmt, args);
    if (length >= (int)sizeof(text)) {
        whole = malloc((size_t)length + 1);
    }
    if (whole != NULL) {
        vsnprintf(whole, (size_t)length + 1, fmt, again);
    }
    va_end(again);
    record(whole != NULL ? whole : text);
    free(whole);
    return status;
}

ddp_status_t ddp_fail(ddp_status_t status, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    status = ddp_fail_v(status, fmt, args);
    va_end(args);
    return status;
}

void ddp_error_prefix(const char *fmt, ...)
{
    char    text[DDP_ERROR_LINE_SIZE];
    char    whole[2 * DDP_ERROR_LINE_SIZE + 2];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    snprintf(whole, sizeof(whole), "%s: %s", text, error_line);
    record(whole);
}

const char *ddp_error_line(void)
{
    return error_line;
}

void ddp_error_clear(void)
{
    error_line[0] = '\0';
}

const char *ddp_errno_text(int error)
{
    static _Thread_local char lower[128];
    char                      buffer[128];

    (void)snprintf(lower, sizeof(lower), "%s", strerror_r(error, buffer, sizeof(buffer))); /* GNU's */
    lower[0] = (char)tolower((unsigned char)lower[0]);
    return lower;
}
