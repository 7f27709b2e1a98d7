/** @file Text that may hold anything, for readers that take only UTF-8. */
#ifndef DDP_UTF8_H_
#define DDP_UTF8_H_

#include <stddef.h>

/** Bytes of the UTF-8 character at `text`, which has `n` bytes; 0 if there is none (RFC 3629). */
size_t ddp_utf8_length(const char *text, size_t n);

/** Put a '?' in place of each byte that is no UTF-8 and of each control character. */
void ddp_utf8_clean(char *text);

#endif
