/** @file How io reports a failed system call on a path. Private to io. */
#ifndef DDP_FILE_INTERNAL_H_
#define DDP_FILE_INTERNAL_H_

#include <stddef.h>

#include "base/status.h"

/** Record "'<path>': <text of error, lower case>" and return DDP_ERR_IO. `hint` ("; choose another --out") is
 * put behind it; "" for none. */
ddp_status_t ddp_fail_path(const char *path, int error, const char *hint);

/** Put text in front of a path's ending: "a/tokens.bin" and "_train" make "a/tokens_train.bin".
 * @param [out] name  [size]. @return DDP_ERR_IO: longer than that */
ddp_status_t ddp_path_insert(const char *path, const char *text, char *name, size_t size) DDP_NODISCARD;

#endif
