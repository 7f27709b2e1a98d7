/* Ranges for a profiler, by NVTX: headers only, which open the profiler's library when it has named one
 * (NVTX_INJECTION64_PATH), and do nothing else. */
#include <nvtx3/nvToolsExt.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

#include "kernels/ranges.h"

/* NULL: nobody listens. Set once: NVTX itself knows one profiler for the whole process. */
static nvtxDomainHandle_t domain;
static pthread_once_t     domain_once = PTHREAD_ONCE_INIT;

static void make_domain(void)
{
    domain = nvtxDomainCreateA("ddptrain");
}

void ddp_range_open(const char *name, int64_t number)
{
    nvtxEventAttributes_t range = {0};
    char                  text[64];

    (void)pthread_once(&domain_once, make_domain);
    if (domain == NULL) {
        return;
    }
    (void)snprintf(text, sizeof(text), "%s", name);
    if (number != DDP_RANGE_NO_NUMBER) {
        (void)snprintf(text, sizeof(text), "%s %" PRId64, name, number);
    }
    range.version       = NVTX_VERSION;
    range.size          = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    range.messageType   = NVTX_MESSAGE_TYPE_ASCII;
    range.message.ascii = text;
    (void)nvtxDomainRangePushEx(domain, &range);
}

void ddp_range_close(void)
{
    if (domain != NULL) {
        (void)nvtxDomainRangePop(domain);
    }
}
