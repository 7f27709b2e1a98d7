/** @file Drawings as SVG, by themselves or inside a page: a few shapes, positions in units of the view box,
 * colours by the class names of a style sheet. */
#ifndef DDP_SVG_H_
#define DDP_SVG_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/export.h"

/** Where it goes, borrowed; a write that fails stays with the stream. */
typedef struct ddp_svg {
    FILE *out;
} ddp_svg_t;

/** Text as XML content or attribute: & < > " ' are escaped, what XML cannot hold is a '?'. */
void ddp_xml_text(FILE *out, const char *text);

typedef struct ddp_svg_frame {
    double      width, height;
    const char *id;    /* of the page's names, e.g. "throughput" */
    const char *title; /* what is read out and shown as a hint */
    const char *text;  /* what is to be seen, in words */
    const char *style; /* a file by itself: its style sheet; NULL: part of a page */
} ddp_svg_frame_t;

void ddp_svg_open(ddp_svg_t *svg, const ddp_svg_frame_t *frame);
void ddp_svg_close(ddp_svg_t *svg);

/** @param [in] style  class names, static. @param [in] hint  shown where the pointer rests, or NULL */
void ddp_svg_rect(ddp_svg_t *svg, const char *style, double x, double y, double width, double height,
                  const char *hint);
void ddp_svg_line(ddp_svg_t *svg, const char *style, double x0, double y0, double x1, double y1);
void ddp_svg_circle(ddp_svg_t *svg, const char *style, double x, double y, double radius, const char *hint);
/** @param [in] xy  [n][2] */
void ddp_svg_path(ddp_svg_t *svg, const char *style, const double (*xy)[2], size_t n);

typedef enum ddp_svg_anchor { DDP_SVG_START, DDP_SVG_MIDDLE, DDP_SVG_END } ddp_svg_anchor_t;
void ddp_svg_text(ddp_svg_t *svg, const char *style, double x, double y, ddp_svg_anchor_t anchor,
                  const char *fmt, ...) DDP_PRINTF(6, 7);

/** A step between marks of an axis: 1, 2 or 5 times a power of ten, so that `most` > 0 has at most `marks`.
 */
double ddp_svg_tick(double most, int marks);

#endif
