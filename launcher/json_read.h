/** @file What is asked of JSON that others wrote: something that is missing or of another kind has no value,
 * and is no error. All accept NULL for an object or list. Thread: any. */
#ifndef DDP_JSON_READ_H_
#define DDP_JSON_READ_H_

#include <cjson/cJSON.h>
#include <stddef.h>

/** @return the number `name` of an object, NaN if there is none */
double ddp_json_number(const cJSON *object, const char *name);
/** @return the number at place `i` of a list, NaN if there is none */
double ddp_json_at(const cJSON *list, int i);
/** The number at *at_p, an item of a list, and on to the next one; NaN where it is none. Begin at
 * ddp_json_first(): for lists of any length, which ddp_json_at() would walk anew for each number. */
double       ddp_json_next(const cJSON **at_p);
const cJSON *ddp_json_first(const cJSON *list);
/** A text as ddp_utf8_clean() leaves it, cut to `size`; what has none leaves `to` as it is. */
void ddp_json_text(const cJSON *object, const char *name, char *to, size_t size);

#endif
