/** @file Text that may hold anything, for readers that take only UTF-8. Thread: any. */
#ifndef DDP_UTF8_H_
#define DDP_UTF8_H_

#include <stddef.h>

#include "base/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Bytes of the UTF-8 character at `text`, which has `n` bytes; 0 if there is none (RFC 3629). */
DDP_API size_t ddp_utf8_length(const char *text, size_t n);

/** Put a '?' in place of each byte that is no UTF-8 and of each control character. */
DDP_API void ddp_utf8_clean(char *text);

#ifdef __cplusplus
}
#endif

#endif
