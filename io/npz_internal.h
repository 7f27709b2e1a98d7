/** @file The container of .npz files: zip, as far as NumPy writes it (stored or deflated, one disk, no
 * encryption; zip64). Source: PKWARE's APPNOTE.TXT 6.3, sections 4.3 and 4.5.3. Private to io. */
#ifndef DDP_NPZ_INTERNAL_H_
#define DDP_NPZ_INTERNAL_H_

#include <stdbool.h>

#include "io/weights_internal.h"

#define DDP_ZIP_LOCAL         0x04034b50U
#define DDP_ZIP_CENTRAL       0x02014b50U
#define DDP_ZIP_END           0x06054b50U
#define DDP_ZIP64_END         0x06064b50U
#define DDP_ZIP64_LOCATOR     0x07064b50U
#define DDP_ZIP_LOCAL_BYTES   30
#define DDP_ZIP_CENTRAL_BYTES 46
#define DDP_ZIP_END_BYTES     22
#define DDP_ZIP64_END_BYTES   56
/** The extra field of entries with large numbers. */
#define DDP_ZIP64_EXTRA 1
/** Deflate's best: 258 bytes from 2 bits. */
#define DDP_ZIP_RATIO 1032

typedef struct ddp_zip_entry {
    char     name[DDP_WEIGHTS_NAME_SIZE + 4]; /* with .npy */
    uint64_t local;                           /* offset of its local header */
    uint64_t at, packed, bytes;               /* data: offset, bytes in the file, bytes unpacked */
    uint32_t crc;
    bool     is_deflated;
} ddp_zip_entry_t;

/** The directory of a zip file; entries lie in the file and do not overlap.
 * @param [out] entries_p  [*n_p], the caller frees it */
ddp_status_t ddp_zip_list(const ddp_weights_t *weights, ddp_zip_entry_t **entries_p,
                          size_t *n_p) DDP_NODISCARD;

#endif
