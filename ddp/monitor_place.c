/* Addresses: which of this host's are used, and which of another's are tried first. IPv4 only. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/interface.h"
#include "ddp/monitor_internal.h"

uint32_t ddp_place_address(const ddp_place_t *here, const ddp_place_t *there, size_t turn)
{
    for (int round = 0; round < 2; round++) { /* those of a common network, then the rest */
        for (size_t i = 0; i < DDP_MONITOR_ADDRESSES && there->address[i] != 0; i++) {
            bool is_near = false;

            for (size_t j = 0; j < DDP_MONITOR_ADDRESSES && here->address[j] != 0; j++) {
                is_near = is_near || ((here->address[j] ^ there->address[i]) & here->mask[j]) == 0;
            }
            if (is_near == (round == 0) && turn-- == 0) {
                return there->address[i];
            }
        }
    }
    return 0;
}

/* Not loopback, which other hosts do not reach. */
static void add_address(const struct ifaddrs *entry, const char *list, ddp_place_t *place, size_t *n)
{
    struct sockaddr_in address, mask;

    if (entry->ifa_addr == NULL || entry->ifa_netmask == NULL || entry->ifa_addr->sa_family != AF_INET ||
        (entry->ifa_flags & IFF_UP) == 0 || (entry->ifa_flags & IFF_LOOPBACK) != 0 ||
        *n == DDP_MONITOR_ADDRESSES) {
        return;
    }
    memcpy(&address, entry->ifa_addr, sizeof(address));
    memcpy(&mask, entry->ifa_netmask, sizeof(mask));
    if (ddp_interface_is_wanted(list, entry->ifa_name, address.sin_addr.s_addr)) {
        place->address[*n] = address.sin_addr.s_addr;
        place->mask[*n]    = mask.sin_addr.s_addr;
        (*n)++;
    }
}

ddp_status_t ddp_place_find(const char *list, bool is_alone, ddp_place_t *place_p)
{
    ddp_status_t    status = DDP_OK;
    ddp_place_t     place  = {.port = 0};
    struct ifaddrs *all    = NULL;
    size_t          n      = 0;

    if (is_alone) {
        place.address[0] = htonl(INADDR_LOOPBACK);
        place.mask[0]    = UINT32_MAX;
        goto out;
    }
    DDP_REQUIRE(getifaddrs(&all) == 0, DDP_ERR_SYSTEM, "network interfaces: %s", ddp_errno_text(errno));
    for (const struct ifaddrs *entry = all; entry != NULL; entry = entry->ifa_next) {
        add_address(entry, list, &place, &n);
    }
    DDP_REQUIRE(n > 0, DDP_ERR_CONFIG,
                "no network interface with an IPv4 address%s%s: name one in ddp.interfaces, or set "
                "ddp.monitor=false",
                list != NULL && list[0] != '\0' ? " is one of ddp.interfaces " : "",
                list != NULL && list[0] != '\0' ? list : "");
out:
    if (all != NULL) {
        freeifaddrs(all);
    }
    if (status == DDP_OK) {
        *place_p = place;
    }
    return status;
}
