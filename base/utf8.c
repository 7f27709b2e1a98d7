#include "base/utf8.h"

#include <string.h>

size_t ddp_utf8_length(const char *text, size_t n)
{
    const unsigned char *byte   = (const unsigned char *)text;
    const unsigned char  first  = n > 0 ? byte[0] : 0xff;
    const size_t         length = first < 0x80                     ? 1
                                  : first >= 0xc2 && first <= 0xdf ? 2
                                  : first >= 0xe0 && first <= 0xef ? 3
                                  : first >= 0xf0 && first <= 0xf4 ? 4
                                                                   : 0;

    if (length == 0 || length > n || (first == 0xe0 && byte[1] < 0xa0) || (first == 0xed && byte[1] > 0x9f) ||
        (first == 0xf0 && byte[1] < 0x90) || (first == 0xf4 && byte[1] > 0x8f)) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if ((byte[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return length;
}

void ddp_utf8_clean(char *text)
{
    size_t n = strlen(text);
    size_t length;

    for (; n > 0; text += length, n -= length) {
        length = ddp_utf8_length(text, n);
        if (length == 0 || (unsigned char)*text < ' ' || *text == 0x7f) {
            *text  = '?';
            length = 1;
        }
    }
}
