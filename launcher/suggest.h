/** @file The nearest of some names to what the user typed. */
#ifndef DDP_SUGGEST_H_
#define DDP_SUGGEST_H_

#include <stddef.h>

/**
 * @param [in] names  [n]
 * @return the name with the fewest single-letter edits from `typed`, NULL if none is near (more than a third
 * of its letters, at least 2, differ); the first of equals
 */
const char *ddp_suggest(const char *typed, const char *const *names, size_t n);

#endif
