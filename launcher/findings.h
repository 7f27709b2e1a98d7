/** @file A list of findings, each good, doubtful or bad, with what mends it: printed as lines or as one JSON
 * object. */
#ifndef DDP_FINDINGS_H_
#define DDP_FINDINGS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/export.h"
#include "base/status.h"

typedef enum ddp_finding_level { DDP_FINDING_OK, DDP_FINDING_WARN, DDP_FINDING_FAIL } ddp_finding_level_t;

#define DDP_FINDING_NUMBERS 4
typedef struct ddp_finding {
    const char         *group, *name; /* static text: "cpu", "cores" */
    ddp_finding_level_t level;
    char                text[512]; /* one line */
    char                fix[320];  /* one line; "": there is nothing to do */
    size_t              n_numbers;
    struct {
        const char *name; /* static text, with its unit: "latency_us" */
        double      value;
    } number[DDP_FINDING_NUMBERS]; /* for programs: in the JSON form only, `text` tells them too */
} ddp_finding_t;

typedef struct ddp_findings {
    size_t         n, capacity;
    ddp_finding_t *finding; /* owned, [n] */
    bool           is_lost; /* there was no memory for one: counts as bad */
} ddp_findings_t;

/** Add one. @param [in] fix  what to do; NULL: nothing. @return it, until the next is added; NULL: no memory
 */
ddp_finding_t *ddp_findings_add(ddp_findings_t *findings, ddp_finding_level_t level, const char *group,
                                const char *name, const char *fix, const char *fmt, ...) DDP_PRINTF(6, 7);
/** @param [in,out] finding  NULL: nothing is done. A number too many, or one that is not finite, is left out
 */
void ddp_finding_number(ddp_finding_t *finding, const char *name, double value);
/** The last one of this name, NULL: there is none. */
const ddp_finding_t *ddp_findings_find(const ddp_findings_t *findings, const char *group, const char *name);

size_t ddp_findings_count(const ddp_findings_t *findings, ddp_finding_level_t level);
/** "ok" */
const char *ddp_finding_level_name(ddp_finding_level_t level);

/** A line each, "warn  cpu.cores: text; fix", in the order in which they were added; then how many of each.
 */
void ddp_findings_print(const ddp_findings_t *findings, FILE *out);
/** One object on one line: the same, its keys in docs/doctor.md. @return DDP_ERR_NO_MEMORY */
ddp_status_t ddp_findings_print_json(const ddp_findings_t *findings, FILE *out) DDP_NODISCARD;
void         ddp_findings_free(ddp_findings_t *findings);

#endif
