/** @file What the files of events share. Private to launcher/events*.c. */
#ifndef DDP_EVENTS_INTERNAL_H_
#define DDP_EVENTS_INTERNAL_H_

#include "launcher/run.h"

/** A line of metrics.jsonl; the disk has a deadline. `event` is taken, and may be NULL. */
void ddp_events_write(ddp_run_t *run, cJSON *event);
/** When, to the millisecond: `time`, the last field, so that what says more comes first. */
void ddp_events_time(cJSON *event);
/** A field of any of them; `object` may be NULL. */
void ddp_events_number(cJSON *object, const char *name, double value);
/** Fields of a step event: means over its steps. `event` may be NULL, as below. */
void ddp_events_add_times(cJSON *event, const ddp_run_t *run, const ddp_step_report_t *report);
/** Fields of the start event: with train.mode dp what is planned for each device. */
void ddp_events_add_plan(cJSON *event, const ddp_run_t *run);
/** Fields of the end event. */
void ddp_events_add_use(cJSON *event, const ddp_run_t *run, const ddp_end_report_t *report);

#endif
