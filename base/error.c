#include "base/error.h"

#include <stdio.h>
#include <string.h>

static _Thread_local char error_line[DDP_ERROR_LINE_SIZE];

static void make_one_line(char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\n' || *text == '\r') {
            *text = ' ';
        }
    }
}

ddp_status_t ddp_fail_v(ddp_status_t status, const char *fmt, va_list args)
{
    char text[DDP_ERROR_LINE_SIZE]; /* the arguments may point into the old record */

    vsnprintf(text, sizeof(text), fmt, args);
    make_one_line(text);
    memcpy(error_line, text, sizeof(error_line));
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
    size_t  used;
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    used = strlen(text);
    snprintf(text + used, sizeof(text) - used, ": %s", error_line);
    make_one_line(text);
    memcpy(error_line, text, sizeof(error_line));
}

const char *ddp_error_line(void)
{
    return error_line;
}

void ddp_error_clear(void)
{
    error_line[0] = '\0';
}
