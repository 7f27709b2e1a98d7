/** @file Pages for a browser: one file that needs no other, well-formed XML as well, for light and dark, wide
 * and narrow windows, keyboards and screen readers. A write that fails stays with the stream. */
#ifndef DDP_PAGE_H_
#define DDP_PAGE_H_

#include <stddef.h>
#include <stdio.h>

/** Up to and with the page's heading. @param [in] style  rules beside those of all pages and charts, or "" */
void ddp_page_open(FILE *out, const char *title, const char *heading, const char *style);
void ddp_page_close(FILE *out);

/** <element class="style">text</element>; `style` may be NULL. */
void ddp_page_text(FILE *out, const char *element, const char *style, const char *text);

/** A table that scrolls by itself where the page is narrow. @param [in] title  read out. @param [in] head
 * [n],
 * "" for the corner */
void ddp_page_open_table(FILE *out, const char *id, const char *title, const char *const *head, size_t n);
void ddp_page_close_table(FILE *out);

/** What colours mean. @param [in] styles  [n], classes. @param [in] texts  [n] */
void ddp_page_key(FILE *out, const char *const *styles, const char *const *texts, size_t n);

#endif
