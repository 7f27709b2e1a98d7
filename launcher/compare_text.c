/* Names as a reader wants them. */
#include "launcher/compare.h"

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
