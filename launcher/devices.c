#include "launcher/devices.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define MOST_DIGITS 15

bool ddp_devices_parse_size(const char *text, size_t *bytes_p)
{
    static const char  units[] = "KMGT";
    const size_t       digits  = strspn(text, "0123456789");
    const char        *unit    = text[digits] != '\0' ? strchr(units, text[digits]) : NULL;
    const unsigned     shift   = unit != NULL ? 10U * (unsigned)(unit - units + 1) : 0;
    unsigned long long value   = 0;

    if (digits == 0 || digits > MOST_DIGITS || text[digits + (unit != NULL ? 1 : 0)] != '\0') {
        return false;
    }
    value = strtoull(text, NULL, 10);
    if (value == 0 || value > SIZE_MAX >> shift) {
        return false;
    }
    *bytes_p = (size_t)value << shift;
    return true;
}

static bool parse_id(const char *text, int *id_p)
{
    const size_t digits = strspn(text, "0123456789");

    if (digits == 0 || digits > 4 || text[digits] != '\0') {
        return false;
    }
    *id_p = (int)strtol(text, NULL, 10);
    return true;
}

/* @return position of `id`, or n */
static size_t find(const ddp_devices_t *devices, int id)
{
    size_t i = 0;

    while (i < devices->n && devices->id[i] != id) {
        i++;
    }
    return i;
}

static ddp_status_t read_ids(const ddp_config_t *config, ddp_devices_t *devices)
{
    ddp_status_t status = DDP_OK;
    int          id     = 0;
    char         word[DDP_CONFIG_TEXT_SIZE];

    for (size_t i = 0; ddp_config_word(config->dp.devices, i, word, sizeof(word)); i++) {
        DDP_REQUIRE(parse_id(word, &id), DDP_ERR_CONFIG,
                    "dp.devices holds '%.80s': numbers of devices are expected, as in [0, 1]", word);
        DDP_REQUIRE(id < DDP_DP_MAX_DEVICES, DDP_ERR_CONFIG,
                    "dp.devices: there is no device %d, only 0 to %d", id, DDP_DP_MAX_DEVICES - 1);
        DDP_REQUIRE(find(devices, id) == devices->n, DDP_ERR_CONFIG,
                    "dp.devices names device %d twice; each holds one replica", id);
        devices->id[devices->n++] = id;
    }
out:
    return status;
}

/* All cores, but not more than there is work for. */
static void take_all(const ddp_config_t *config, size_t cores, ddp_devices_t *devices)
{
    const size_t parts = ddp_config_micro_batches(config);
    const size_t most  = parts < DDP_DP_MAX_DEVICES ? parts : DDP_DP_MAX_DEVICES;

    devices->n = cores < 1 ? 1 : cores < most ? cores : most;
    for (size_t i = 0; i < devices->n; i++) {
        devices->id[i] = (int)i;
    }
}

static ddp_status_t read_output(const ddp_config_t *config, ddp_devices_t *devices)
{
    ddp_status_t status = DDP_OK;
    const char  *text   = config->dp.output_device;

    devices->output = devices->id[0];
    if (strcmp(text, "auto") == 0 || text[0] == '\0') {
        goto out;
    }
    DDP_REQUIRE(parse_id(text, &devices->output) && find(devices, devices->output) < devices->n,
                DDP_ERR_CONFIG, "dp.output_device is '%.80s': one of dp.devices is expected, or auto", text);
out:
    return status;
}

/* "256M" for all, or "0:512M" for one. */
static ddp_status_t read_limit(const char *word, ddp_devices_t *devices)
{
    ddp_status_t status = DDP_OK;
    const char  *colon  = strchr(word, ':');
    char         number[16];
    size_t       bytes = 0;
    size_t       at    = 0;
    int          id    = 0;

    DDP_REQUIRE(ddp_devices_parse_size(colon != NULL ? colon + 1 : word, &bytes), DDP_ERR_CONFIG,
                "dp.device_memory holds '%.80s': a size as 512M is expected, or one for a device as 0:512M",
                word);
    if (colon == NULL) {
        for (at = 0; at < devices->n; at++) {
            devices->memory[at] = bytes;
        }
        goto out;
    }
    snprintf(number, sizeof(number), "%.*s", (int)(colon - word < 15 ? colon - word : 15), word);
    at = parse_id(number, &id) ? find(devices, id) : devices->n;
    DDP_REQUIRE(at < devices->n, DDP_ERR_CONFIG,
                "dp.device_memory holds '%.80s': '%s' is not among dp.devices", word, number);
    devices->memory[at] = bytes;
out:
    return status;
}

ddp_status_t ddp_devices_resolve(const ddp_config_t *config, size_t cores, ddp_devices_t *devices_p)
{
    ddp_status_t  status  = DDP_OK;
    ddp_devices_t devices = {.n = 0};
    char          word[DDP_CONFIG_TEXT_SIZE];

    DDP_TRY(read_ids(config, &devices));
    DDP_TRY(ddp_config_check_devices(config, devices.n));
    if (devices.n == 0) {
        take_all(config, cores, &devices);
    }
    DDP_TRY(read_output(config, &devices));
    for (size_t i = 0; ddp_config_word(config->dp.device_memory, i, word, sizeof(word)); i++) {
        DDP_TRY(read_limit(word, &devices));
    }
    *devices_p = devices;
out:
    return status;
}
