/** @file A file with one JSON value a line, which may be cut, damaged, or just being written. */
#ifndef DDP_JSON_LINES_H_
#define DDP_JSON_LINES_H_

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/** A longer line is taken for a damaged one. */
#define DDP_JSON_LINE_BYTES ((size_t)64 << 20)

typedef struct ddp_json_lines ddp_json_lines_t;

typedef struct ddp_json_line {
    cJSON *json;   /* the caller's; NULL: the line is no JSON, as an empty one */
    size_t number; /* from 1 */
    bool   is_cut; /* the file ends in it */
} ddp_json_line_t;

/** @return DDP_ERR_IO: it cannot be opened, or is no regular file */
ddp_status_t ddp_json_lines_open(const char *path, ddp_json_lines_t **lines_p) DDP_NODISCARD;
/** The next line. @param [out] is_end_p  there is none. @return DDP_ERR_IO, DDP_ERR_NO_MEMORY */
ddp_status_t ddp_json_lines_next(ddp_json_lines_t *lines, ddp_json_line_t *line_p,
                                 bool *is_end_p) DDP_NODISCARD;
/** Accepts NULL. */
void ddp_json_lines_close(ddp_json_lines_t **lines_p);

#endif
