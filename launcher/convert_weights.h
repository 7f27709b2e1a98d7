/** @file `ddptrain convert` between files of weights. */
#ifndef DDP_CONVERT_WEIGHTS_H_
#define DDP_CONVERT_WEIGHTS_H_

#include <stdbool.h>

#include "base/status.h"

/**
 * Read `in`, of whatever kind it is, and write `out`, of the kind that its ending tells. Names are those of
 * the models here: what is changed or left out is said in a line each.
 * @param [in] all         a checkpoint's moments too
 * @param [in] unverified  a damaged checkpoint too
 */
ddp_status_t ddp_convert_weights(const char *in, const char *out, bool all, bool unverified) DDP_NODISCARD;

#endif
