/** @file Reading and writing at a place of a file, and how io reports a failed system call on a path. Private
 * to io. */
#ifndef DDP_FILE_INTERNAL_H_
#define DDP_FILE_INTERNAL_H_

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

/** Bytes asked of a file at once: others see that a long reading gets on (base/progressed.h). */
#define DDP_READ_PIECE ((size_t)4 << 20)

/** Record "'<path>': <text of error, lower case>" and return DDP_ERR_IO. `hint` ("; choose another --out") is
 * put behind it; "" for none. */
ddp_status_t ddp_fail_path(const char *path, int error, const char *hint);

/** What a path is that is no regular file, and for a folder where a run's checkpoint is: "a folder, not a
 * regular file; ...". */
const char *ddp_no_file_text(mode_t mode);

/** Put text in front of a path's ending: "a/tokens.bin" and "_train" make "a/tokens_train.bin".
 * @param [out] name  [size]. @return DDP_ERR_IO: longer than that */
ddp_status_t ddp_path_insert(const char *path, const char *text, char *name, size_t size) DDP_NODISCARD;
/** Read exactly `bytes` at `at`. @param [in] path  for the line. @return DDP_ERR_IO; DDP_ERR_FORMAT: the file
 * ends before that */
ddp_status_t ddp_read_at(const char *path, int fd, void *to, size_t bytes, uint64_t at) DDP_NODISCARD;
/** Write exactly `bytes` at `at`. @return DDP_ERR_IO */
ddp_status_t ddp_write_at(const char *path, int fd, const void *from, size_t bytes,
                          uint64_t at) DDP_NODISCARD;
/** After a rename: a new name is on the disk only after its folder is. @return DDP_ERR_IO */
ddp_status_t ddp_folder_sync(const char *folder) DDP_NODISCARD;

#endif
