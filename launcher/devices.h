/** @file The devices of train.mode dp, as the configuration names them. */
#ifndef DDP_LAUNCHER_DEVICES_H_
#define DDP_LAUNCHER_DEVICES_H_

#include <stddef.h>

#include "base/status.h"
#include "dp_compat/data_parallel.h"
#include "launcher/config.h"

typedef struct ddp_devices {
    size_t n; /* 0: train.mode ddp */
    int    id[DDP_DP_MAX_DEVICES];
    size_t memory[DDP_DP_MAX_DEVICES]; /* bytes it may hold; 0: no limit */
    int    output;                     /* id of the one where outputs are gathered */
} ddp_devices_t;

/**
 * Read dp.devices, dp.output_device and dp.device_memory of a resolved configuration.
 * @param [in] cores  what is used where dp.devices is empty, as far as there are micro-batches for them
 * @return DDP_ERR_CONFIG: no number, an id that there is not or twice, more devices than micro-batches, a
 * device of the other keys that is not among them, no size
 */
ddp_status_t ddp_devices_resolve(const ddp_config_t *config, size_t cores,
                                 ddp_devices_t *devices_p) DDP_NODISCARD;

/** "512M" to bytes: K, M, G, T are powers of 1024; none: bytes. @return false: something else, or 0 */
bool ddp_devices_parse_size(const char *text, size_t *bytes_p);

#endif
