/** @file Numbers as a reader wants them, for tables, charts and lines. */
#ifndef DDP_CELL_H_
#define DDP_CELL_H_

#include "base/export.h"

#define DDP_CELL 24

/** Each writes into `text` and returns it; "-" for a NaN. Times as "12.3". */
const char *ddp_cell_ms(double ms, char text[DDP_CELL]);
/** "4.5 MiB" */
const char *ddp_cell_bytes(double bytes, char text[DDP_CELL]);
/** With so many digits behind the point. */
const char *ddp_cell_number(double value, int digits, char text[DDP_CELL]);
/** Four digits and a letter for thousands, for the marks of an axis: "12.3k". */
const char *ddp_cell_short(double value, char text[DDP_CELL]);

#endif
