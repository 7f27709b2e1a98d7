/** @file Files that a user names, to be read. */
#ifndef DDP_FILE_OPEN_H_
#define DDP_FILE_OPEN_H_

#include <stdio.h>

#include "base/export.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Open a regular file for reading: a pipe nobody writes to would be waited for without end.
 *
 * Collective: no. Blocking: on the disk. Thread: any.
 * @param [out] file_p  the caller's, fclose(); written on success
 * @return DDP_ERR_IO with "'path': no such file or directory", or what else it is
 */
DDP_API ddp_status_t ddp_file_open(const char *path, FILE **file_p) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
