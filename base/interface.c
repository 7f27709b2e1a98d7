#include "base/interface.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

#define WORD 64

/* "10.1.0.0/16" */
static bool is_in_network(const char *word, uint32_t address)
{
    const size_t   length = strcspn(word, "/");
    const char    *number = word[length] == '/' ? word + length + 1 : "32";
    char           text[INET_ADDRSTRLEN];
    struct in_addr network;
    long           bits;
    uint32_t       mask;

    if (length >= sizeof(text) || number[0] == '\0' || number[strspn(number, "0123456789")] != '\0') {
        return false; /* what is cut off or left out must not match more than was meant */
    }
    bits = strtol(number, NULL, 10);
    snprintf(text, sizeof(text), "%.*s", (int)length, word);
    if (bits > 32 || inet_pton(AF_INET, text, &network) != 1) {
        return false;
    }
    mask = bits == 0 ? 0 : htonl(UINT32_MAX << (32 - bits));
    return (address & mask) == (network.s_addr & mask);
}

/* The next entry of a list, or NULL. */
static const char *next_word(const char *list, char word[WORD])
{
    const size_t length = strcspn(list, ",");

    if (*list == '\0') {
        return NULL;
    }
    snprintf(word, WORD, "%.*s", (int)length, list);
    return list + length + (list[length] == ',' ? 1 : 0);
}

bool ddp_interface_is_wanted(const char *list, const char *name, uint32_t address)
{
    char word[WORD];

    if (list == NULL || list[0] == '\0') {
        return true;
    }
    while ((list = next_word(list, word)) != NULL) {
        if (strcmp(word, name) == 0 || is_in_network(word, address)) {
            return true;
        }
    }
    return false;
}

static bool get_address(const struct ifaddrs *entry, struct in_addr *address)
{
    struct sockaddr_in socket;

    if (entry->ifa_addr == NULL || entry->ifa_addr->sa_family != AF_INET ||
        (entry->ifa_flags & IFF_UP) == 0) {
        return false;
    }
    memcpy(&socket, entry->ifa_addr, sizeof(socket));
    *address = socket.sin_addr;
    return true;
}

static ddp_status_t fail_word(const struct ifaddrs *all, const char *word)
{
    char           have[256]  = "";
    char           host[WORD] = "this host";
    char           text[INET_ADDRSTRLEN];
    struct in_addr address;

    (void)gethostname(host, sizeof(host) - 1);
    for (const struct ifaddrs *entry = all; entry != NULL; entry = entry->ifa_next) {
        const size_t used = strlen(have);

        if (get_address(entry, &address) && inet_ntop(AF_INET, &address, text, sizeof(text)) != NULL) {
            snprintf(have + used, sizeof(have) - used, "%s%s %s", used > 0 ? ", " : "", entry->ifa_name,
                     text);
        }
    }
    return ddp_fail(DDP_ERR_CONFIG, "ddp.interfaces: %s is not on %s, which has %s", word, host, have);
}

ddp_status_t ddp_interfaces_check(const char *list)
{
    ddp_status_t    status = DDP_OK;
    struct ifaddrs *all    = NULL;
    struct in_addr  address;
    char            word[WORD];

    if (list == NULL || list[0] == '\0') {
        return DDP_OK;
    }
    DDP_REQUIRE(getifaddrs(&all) == 0, DDP_ERR_SYSTEM, "network interfaces: %s", ddp_errno_text(errno));
    while ((list = next_word(list, word)) != NULL) {
        bool is_here = false;

        for (const struct ifaddrs *entry = all; entry != NULL; entry = entry->ifa_next) {
            is_here = is_here || (get_address(entry, &address) &&
                                  ddp_interface_is_wanted(word, entry->ifa_name, address.s_addr));
        }
        if (!is_here) {
            DDP_TRY(fail_word(all, word));
        }
    }
out:
    freeifaddrs(all);
    return status;
}

ddp_status_t ddp_interfaces_names(const char *list, char *names, size_t size)
{
    ddp_status_t    status = DDP_OK;
    struct ifaddrs *all    = NULL;
    struct in_addr  address;
    size_t          used = 0;

    DDP_REQUIRE(getifaddrs(&all) == 0, DDP_ERR_SYSTEM, "network interfaces: %s", ddp_errno_text(errno));
    for (const struct ifaddrs *entry = all; entry != NULL; entry = entry->ifa_next) {
        if (get_address(entry, &address) && ddp_interface_is_wanted(list, entry->ifa_name, address.s_addr)) {
            used +=
                (size_t)snprintf(names + used, size - used, "%s%s", used == 0 ? "=" : ",", entry->ifa_name);
            DDP_REQUIRE(used < size, DDP_ERR_CONFIG, "ddp.interfaces: too many of them");
        }
    }
out:
    freeifaddrs(all);
    return status;
}
