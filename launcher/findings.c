#include "launcher/findings.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/metrics.h"

static const char *const level_names[] = {
    [DDP_FINDING_OK] = "ok", [DDP_FINDING_WARN] = "warn", [DDP_FINDING_FAIL] = "fail"};
#define N_LEVELS (sizeof(level_names) / sizeof(level_names[0]))

const char *ddp_finding_level_name(ddp_finding_level_t level)
{
    return level_names[level];
}

static bool grow(ddp_findings_t *findings)
{
    const size_t   capacity = findings->capacity > 0 ? 2 * findings->capacity : 32;
    ddp_finding_t *all;

    if (findings->n < findings->capacity) {
        return true;
    }
    all = realloc(findings->finding, capacity * sizeof(*all));
    if (all == NULL) {
        return false;
    }
    findings->finding  = all;
    findings->capacity = capacity;
    return true;
}

ddp_finding_t *ddp_findings_add(ddp_findings_t *findings, ddp_finding_level_t level, const char *group,
                                const char *name, const char *fix, const char *fmt, ...)
{
    ddp_finding_t *finding = NULL;
    va_list        args;

    if (!grow(findings)) {
        findings->is_lost = true;
        return NULL;
    }
    finding  = &findings->finding[findings->n++];
    *finding = (ddp_finding_t){.group = group, .name = name, .level = level};
    va_start(args, fmt);
    (void)vsnprintf(finding->text, sizeof(finding->text), fmt, args);
    va_end(args);
    (void)snprintf(finding->fix, sizeof(finding->fix), "%s", fix != NULL ? fix : "");
    ddp_error_one_line(finding->text); /* names of hosts, files and devices come from outside */
    ddp_error_one_line(finding->fix);
    return finding;
}

void ddp_finding_number(ddp_finding_t *finding, const char *name, double value)
{
    if (finding != NULL && finding->n_numbers < DDP_FINDING_NUMBERS && isfinite(value)) {
        finding->number[finding->n_numbers].name    = name;
        finding->number[finding->n_numbers++].value = value;
    }
}

const ddp_finding_t *ddp_findings_find(const ddp_findings_t *findings, const char *group, const char *name)
{
    for (size_t i = findings->n; i > 0; i--) {
        const ddp_finding_t *finding = &findings->finding[i - 1];

        if (strcmp(finding->group, group) == 0 && strcmp(finding->name, name) == 0) {
            return finding;
        }
    }
    return NULL;
}

size_t ddp_findings_count(const ddp_findings_t *findings, ddp_finding_level_t level)
{
    size_t n = findings->is_lost && level == DDP_FINDING_FAIL ? 1 : 0;

    for (size_t i = 0; i < findings->n; i++) {
        n += findings->finding[i].level == level ? 1 : 0;
    }
    return n;
}

void ddp_findings_print(const ddp_findings_t *findings, FILE *out)
{
    for (size_t i = 0; i < findings->n; i++) {
        const ddp_finding_t *finding = &findings->finding[i];

        fprintf(out, "%-5s %s.%s: %s%s%s\n", level_names[finding->level], finding->group, finding->name,
                finding->text, finding->fix[0] != '\0' ? "; " : "", finding->fix);
    }
    for (size_t level = 0; level < N_LEVELS; level++) {
        fprintf(out, "%s%zu %s", level > 0 ? ", " : "",
                ddp_findings_count(findings, (ddp_finding_level_t)level), level_names[level]);
    }
    fprintf(out, "\n");
}

static cJSON *make_object(const ddp_finding_t *finding)
{
    cJSON *object = cJSON_CreateObject();
    bool   is_ok  = cJSON_AddStringToObject(object, "level", level_names[finding->level]) != NULL &&
                 cJSON_AddStringToObject(object, "group", finding->group) != NULL &&
                 cJSON_AddStringToObject(object, "name", finding->name) != NULL &&
                 cJSON_AddStringToObject(object, "text", finding->text) != NULL;

    if (finding->fix[0] != '\0') {
        is_ok = is_ok && cJSON_AddStringToObject(object, "fix", finding->fix) != NULL;
    }
    for (size_t i = 0; i < finding->n_numbers; i++) {
        is_ok = is_ok &&
                cJSON_AddNumberToObject(object, finding->number[i].name, finding->number[i].value) != NULL;
    }
    if (!is_ok) {
        cJSON_Delete(object);
        return NULL;
    }
    return object;
}

ddp_status_t ddp_findings_print_json(const ddp_findings_t *findings, FILE *out)
{
    cJSON       *event  = ddp_metrics_event("doctor");
    cJSON       *list   = event != NULL ? cJSON_AddArrayToObject(event, "findings") : NULL;
    char        *text   = NULL;
    bool         is_ok  = list != NULL;
    ddp_status_t status = DDP_OK;

    for (size_t i = 0; i < findings->n && is_ok; i++) {
        cJSON *object = make_object(&findings->finding[i]);

        is_ok = object != NULL && cJSON_AddItemToArray(list, object) != 0;
    }
    for (size_t level = 0; level < N_LEVELS; level++) {
        is_ok = is_ok && cJSON_AddNumberToObject(
                             event, level_names[level],
                             (double)ddp_findings_count(findings, (ddp_finding_level_t)level)) != NULL;
    }
    text = is_ok ? cJSON_PrintUnformatted(event) : NULL;
    DDP_REQUIRE(text != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu findings", findings->n);
    fprintf(out, "%s\n", text);
out:
    cJSON_free(text);
    cJSON_Delete(event);
    return status;
}

void ddp_findings_free(ddp_findings_t *findings)
{
    free(findings->finding);
    *findings = (ddp_findings_t){.n = 0};
}
