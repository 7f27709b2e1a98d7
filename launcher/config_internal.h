/** @file The table of keys: everything that is known about each one. Private to launcher/config*.c. */
#ifndef DDP_CONFIG_INTERNAL_H_
#define DDP_CONFIG_INTERNAL_H_

#include "launcher/config.h"

#define DDP_KEY_MANY 4294967295.0 /* 2^32 - 1: no limit a user would meet */

typedef enum ddp_key_type {
    KEY_COUNT,  /* uint64_t */
    KEY_REAL,   /* double */
    KEY_BOOL,   /* bool */
    KEY_CHOICE, /* int: position in `choices` */
    KEY_TEXT,   /* char[DDP_CONFIG_TEXT_SIZE] */
    KEY_SIZES,  /* size_t[DDP_MLP_MAX_HIDDEN] */
    KEY_WORDS,  /* char[DDP_CONFIG_TEXT_SIZE], "a,b" */
} ddp_key_type_t;

typedef struct ddp_key {
    const char    *section;
    const char    *name;
    ddp_key_type_t type;
    size_t         offset; /* in ddp_config_t */
    const char    *value;  /* default, as the user would write it */
    double         min, max;
    bool           below;   /* max itself is not allowed */
    bool           is_auto; /* "auto" may stand for a number: stored as 0 */
    const char    *choices; /* KEY_CHOICE: "mlp|cnn", in the order of the enum; lists: an example */
    const char    *unit;
    const char    *only; /* "data.kind=tokens|text": has an effect with these only; NULL: always */
    const char    *help;
} ddp_key_t;

extern const ddp_key_t ddp_keys[];
extern const size_t    ddp_keys_count;

/** "1 .. 65536", "0 <= value < 1". */
void ddp_key_range(const ddp_key_t *key, char *text, size_t size);

#endif
