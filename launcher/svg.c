#include "launcher/svg.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/utf8.h"

#define TEXT_SIZE 512

void ddp_xml_text(FILE *out, const char *text)
{
    size_t n = strlen(text);
    size_t length;

    for (; n > 0; text += length, n -= length) {
        length = ddp_utf8_length(text, n);
        switch (length == 0 || (unsigned char)*text < ' ' || *text == 0x7f ? '?' : *text) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        case '\'':
            fputs("&#39;", out);
            break;
        case '?':
            fputc('?', out);
            length = length == 0 ? 1 : length;
            break;
        default:
            (void)fwrite(text, 1, length, out);
        }
    }
}

void ddp_svg_open(ddp_svg_t *svg, const ddp_svg_frame_t *frame)
{
    fprintf(svg->out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" role=\"img\"",
            frame->width, frame->height);
    if (frame->style != NULL) {
        fprintf(svg->out, " width=\"%g\" height=\"%g\"", 2 * frame->width, 2 * frame->height);
    }
    fprintf(svg->out, " id=\"%s\" aria-labelledby=\"%s-title %s-text\">\n<title id=\"%s-title\">", frame->id,
            frame->id, frame->id, frame->id);
    ddp_xml_text(svg->out, frame->title);
    fprintf(svg->out, "</title>\n<desc id=\"%s-text\">", frame->id);
    ddp_xml_text(svg->out, frame->text);
    fputs("</desc>\n", svg->out);
    if (frame->style != NULL) {
        fputs("<style>", svg->out);
        ddp_xml_text(svg->out, frame->style);
        fputs("</style>\n", svg->out);
        ddp_svg_rect(svg, "paper", 0, 0, frame->width, frame->height, NULL);
    }
}

void ddp_svg_close(ddp_svg_t *svg)
{
    fputs("</svg>\n", svg->out);
}

/* Ends an element that has begun, with a hint inside if there is one. */
static void end(ddp_svg_t *svg, const char *name, const char *hint)
{
    if (hint == NULL) {
        fputs("/>\n", svg->out);
        return;
    }
    fputs("><title>", svg->out);
    ddp_xml_text(svg->out, hint);
    fprintf(svg->out, "</title></%s>\n", name);
}

void ddp_svg_rect(ddp_svg_t *svg, const char *style, double x, double y, double width, double height,
                  const char *hint)
{
    fprintf(svg->out, "<rect class=\"%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"", style, x, y,
            width, height);
    end(svg, "rect", hint);
}

void ddp_svg_line(ddp_svg_t *svg, const char *style, double x0, double y0, double x1, double y1)
{
    fprintf(svg->out, "<line class=\"%s\" x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\"", style, x0, y0, x1,
            y1);
    end(svg, "line", NULL);
}

void ddp_svg_circle(ddp_svg_t *svg, const char *style, double x, double y, double radius, const char *hint)
{
    fprintf(svg->out, "<circle class=\"%s\" cx=\"%.2f\" cy=\"%.2f\" r=\"%.2f\"", style, x, y, radius);
    end(svg, "circle", hint);
}

void ddp_svg_path(ddp_svg_t *svg, const char *style, const double (*xy)[2], size_t n)
{
    fprintf(svg->out, "<polyline class=\"%s\" points=\"", style);
    for (size_t i = 0; i < n; i++) {
        fprintf(svg->out, "%s%.2f,%.2f", i > 0 ? " " : "", xy[i][0], xy[i][1]);
    }
    fputc('"', svg->out);
    end(svg, "polyline", NULL);
}

void ddp_svg_text(ddp_svg_t *svg, const char *style, double x, double y, ddp_svg_anchor_t anchor,
                  const char *fmt, ...)
{
    static const char *const anchors[] = {"start", "middle", "end"};
    char                     text[TEXT_SIZE];
    va_list                  args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    fprintf(svg->out, "<text class=\"%s\" x=\"%.2f\" y=\"%.2f\" text-anchor=\"%s\">", style, x, y,
            anchors[anchor]);
    ddp_xml_text(svg->out, text);
    fputs("</text>\n", svg->out);
}

double ddp_svg_tick(double most, int marks)
{
    const double least = most / marks;
    const double power = pow(10, floor(log10(least)));

    for (int i = 0; i < 3; i++) {
        const double step = (i == 0 ? 1 : i == 1 ? 2 : 5) * power;

        if (step >= least * (1 - 1e-9)) {
            return step;
        }
    }
    return 10 * power;
}
