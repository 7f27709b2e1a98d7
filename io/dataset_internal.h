/** @file What the loader needs to know of a data set. Private to io. */
#ifndef DDP_DATASET_INTERNAL_H_
#define DDP_DATASET_INTERNAL_H_

#include <stdbool.h>

#include "io/dataset.h"

/** true after ddp_dataset_load() or ddp_dataset_attach(). */
bool ddp_dataset_is_loaded(const ddp_dataset_t *dataset);

#endif
