/* Numbers and names as a reader wants them. */
#include <math.h>

#include "launcher/compare.h"

#define KIB 1024.0

const char *ddp_compare_number_text(double value, int digits, char text[DDP_COMPARE_CELL])
{
    if (isnan(value)) {
        (void)snprintf(text, DDP_COMPARE_CELL, "-");
    } else {
        (void)snprintf(text, DDP_COMPARE_CELL, "%.*f", digits, value);
    }
    return text;
}

const char *ddp_compare_ms_text(double ms, char text[DDP_COMPARE_CELL])
{
    return ddp_compare_number_text(ms, ms < 9.995 ? 2 : ms < 99.95 ? 1 : 0, text);
}

const char *ddp_compare_bytes_text(double bytes, char text[DDP_COMPARE_CELL])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t                   unit    = 0;

    if (isnan(bytes)) {
        return ddp_compare_number_text(bytes, 0, text);
    }
    while (bytes >= 1000 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        bytes /= KIB;
        unit++;
    }
    (void)snprintf(text, DDP_COMPARE_CELL, "%.*f %s", unit == 0 || bytes >= 99.95 ? 0 : 1, bytes,
                   units[unit]);
    return text;
}

const char *ddp_compare_result_text(const ddp_compare_result_t *result, char *text, size_t size)
{
    if (result->way == DDP_COMPARE_ONE) {
        (void)snprintf(text, size, "one device");
    } else {
        (void)snprintf(text, size, "%s on %zu %s", ddp_compare_way_name(result->way), result->devices,
                       result->way == DDP_COMPARE_DP ? "devices" : "ranks");
    }
    return text;
}
