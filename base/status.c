#include "base/status.h"

const char *ddp_status_name(ddp_status_t status)
{
    switch (status) {
#define DDP_STATUS_NAME(name, value, text)                                                                   \
    case name:                                                                                               \
        return #name;
        DDP_STATUS_TABLE(DDP_STATUS_NAME)
#undef DDP_STATUS_NAME
    }
    return "unknown status";
}

const char *ddp_status_text(ddp_status_t status)
{
    switch (status) {
#define DDP_STATUS_TEXT(name, value, text)                                                                   \
    case name:                                                                                               \
        return text;
        DDP_STATUS_TABLE(DDP_STATUS_TEXT)
#undef DDP_STATUS_TEXT
    }
    return "unknown status";
}
