#include "launcher/cell.h"

#include <math.h>
#include <stdio.h>

#define KIB 1024.0

const char *ddp_cell_number(double value, int digits, char text[DDP_CELL])
{
    if (isnan(value)) {
        (void)snprintf(text, DDP_CELL, "-");
    } else {
        (void)snprintf(text, DDP_CELL, "%.*f", digits, value);
    }
    return text;
}

const char *ddp_cell_ms(double ms, char text[DDP_CELL])
{
    return ddp_cell_number(ms, ms < 9.995 ? 2 : ms < 99.95 ? 1 : 0, text);
}

const char *ddp_cell_bytes(double bytes, char text[DDP_CELL])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t                   unit    = 0;

    if (isnan(bytes)) {
        return ddp_cell_number(bytes, 0, text);
    }
    while (bytes >= 1000 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        bytes /= KIB;
        unit++;
    }
    (void)snprintf(text, DDP_CELL, "%.*f %s", unit == 0 || bytes >= 99.95 ? 0 : 1, bytes, units[unit]);
    return text;
}

const char *ddp_cell_short(double value, char text[DDP_CELL])
{
    static const char *const units[] = {"", "k", "M", "G"};
    size_t                   unit    = 0;

    if (isnan(value)) {
        return ddp_cell_number(value, 0, text);
    }
    while (fabs(value) >= 9999.5 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1000;
        unit++;
    }
    (void)snprintf(text, DDP_CELL, "%.4g%s", value, units[unit]);
    return text;
}
