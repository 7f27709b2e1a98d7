#include "launcher/page.h"

#include "launcher/plot.h"
#include "launcher/svg.h"

static const char page_style[] =
    "*{box-sizing:border-box}"
    "body{margin:0 auto;max-width:72rem;padding:1rem;font:1rem/1.5 "
    "system-ui,sans-serif;background:var(--paper);"
    "color:var(--ink);overflow-wrap:anywhere}"
    "h1{font-size:1.6rem;line-height:1.2;margin:.5rem 0}h2{font-size:1.15rem;margin:2rem 0 .5rem}"
    "p,ul{max-width:46rem}.soft{color:var(--soft)}"
    ".verdict{border:1px solid var(--soft);border-left:.5rem solid var(--blue);padding:.2rem "
    "1rem;margin:1rem "
    "0}"
    ".headline{font-size:1.25rem;font-weight:700;margin:.5rem 0}.failed{font-weight:700}"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1rem 2rem;"
    "align-items:start}"
    "figure{margin:0;min-width:0}figcaption{font-weight:600;margin:.5rem 0}"
    "svg{display:block;width:100%;max-width:34rem;height:auto}"
    ".key{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1rem;padding:0;margin:.5rem "
    "0;font-size:.9rem}"
    ".key i{display:inline-block;width:.8em;height:.8em;margin-right:.4em;border:1px solid var(--soft)}"
    ".scroll{overflow-x:auto;max-width:100%}"
    "table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums;overflow-wrap:normal}"
    "th,td{padding:.25rem .7rem;text-align:right;border-bottom:1px solid var(--grid);white-space:nowrap}"
    "th:first-child,td:first-child{padding-left:0}"
    "thead th{vertical-align:bottom;white-space:normal}th[scope=row]{text-align:left;font-weight:600}"
    "td.words{text-align:left}"
    "dt{font-weight:600}dd{margin:0 0 .5rem}:focus-visible{outline:2px solid var(--blue)}";

void ddp_page_open(FILE *out, const char *title, const char *heading, const char *style)
{
    fputs("<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n"
          "<meta charset=\"utf-8\"/>\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
          "<meta name=\"color-scheme\" content=\"light dark\"/>\n"
          "<link rel=\"icon\" href=\"data:,\"/>\n"
          "<title>",
          out);
    ddp_xml_text(out, title);
    fprintf(out, "</title>\n<style>%s%s%s</style>\n</head>\n<body>\n<main>\n", ddp_plot_style(), page_style,
            style);
    ddp_page_text(out, "h1", NULL, heading);
}

void ddp_page_close(FILE *out)
{
    fputs("</main>\n</body>\n</html>\n", out);
}

void ddp_page_text(FILE *out, const char *element, const char *style, const char *text)
{
    fprintf(out, "<%s%s%s%s>", element, style != NULL ? " class=\"" : "", style != NULL ? style : "",
            style != NULL ? "\"" : "");
    ddp_xml_text(out, text);
    fprintf(out, "</%s>\n", element);
}

void ddp_page_open_table(FILE *out, const char *id, const char *title, const char *const *head, size_t n)
{
    fputs("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"", out);
    ddp_xml_text(out, title);
    fprintf(out, "\"><table id=\"%s\">\n<thead><tr>", id);
    for (size_t i = 0; i < n; i++) {
        fputs(head[i][0] != '\0' ? "<th scope=\"col\">" : "<td>", out);
        ddp_xml_text(out, head[i]);
        fputs(head[i][0] != '\0' ? "</th>" : "</td>", out);
    }
    fputs("</tr></thead>\n<tbody>\n", out);
}

void ddp_page_close_table(FILE *out)
{
    fputs("</tbody></table></div>\n", out);
}

void ddp_page_key(FILE *out, const char *const *styles, const char *const *texts, size_t n)
{
    fputs("<ul class=\"key\">", out);
    for (size_t i = 0; i < n; i++) {
        fprintf(out, "<li><i class=\"%s\"></i>", styles[i]);
        ddp_xml_text(out, texts[i]);
        fputs("</li>", out);
    }
    fputs("</ul>\n", out);
}
