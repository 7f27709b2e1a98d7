/* The interfaces of this machine. */
#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/doctor.h"

#define MBIT_PER_GBIT 1000

/* A number in /sys/class/net/NAME/. */
static int32_t read_number(const char *name, const char *file, int32_t none)
{
    char  path[256];
    int   value = none;
    FILE *stream;

    (void)snprintf(path, sizeof(path), "/sys/class/net/%.32s/%s", name, file);
    stream = fopen(path, "re");
    if (stream == NULL) {
        return none;
    }
    if (fscanf(stream, "%d", &value) != 1) { /* the speed of some cannot be read: EINVAL */
        value = none;
    }
    (void)fclose(stream); /* was only read */
    return value;
}

static ddp_nic_facts_t *find(ddp_facts_t *facts, const char *name)
{
    for (int32_t i = 0; i < facts->n_nics; i++) {
        if (strcmp(facts->nic[i].name, name) == 0) {
            return &facts->nic[i];
        }
    }
    return NULL;
}

static ddp_nic_facts_t *add(ddp_facts_t *facts, const char *name)
{
    ddp_nic_facts_t *nic = find(facts, name);

    if (nic == NULL && facts->n_nics < DDP_FACTS_NICS) {
        nic  = &facts->nic[facts->n_nics++];
        *nic = (ddp_nic_facts_t){.mbit = -1, .numa = ddp_cores_numa_of_network(name)};
        (void)snprintf(nic->name, sizeof(nic->name), "%.31s", name);
    }
    return nic;
}

static void take_address(ddp_nic_facts_t *nic, const struct sockaddr *address)
{
    char        text[INET6_ADDRSTRLEN] = "";
    const bool  is_ip4                 = address->sa_family == AF_INET;
    const void *bytes                  = NULL;

    if (is_ip4) {
        bytes = &((const struct sockaddr_in *)(const void *)address)->sin_addr;
    } else {
        bytes = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    }
    if (inet_ntop(address->sa_family, bytes, text, sizeof(text)) == NULL ||
        (nic->address[0] != '\0' && (nic->is_ip4 != 0 || !is_ip4))) {
        return;
    }
    (void)snprintf(nic->address, sizeof(nic->address), "%s", text);
    nic->is_ip4 = is_ip4 ? 1 : 0;
}

static void read_interfaces(ddp_facts_t *facts)
{
    struct ifaddrs *all = NULL;

    if (getifaddrs(&all) != 0) {
        return;
    }
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        ddp_nic_facts_t *nic = NULL;

        if (at->ifa_addr == NULL || (at->ifa_flags & IFF_UP) == 0 || (at->ifa_flags & IFF_LOOPBACK) != 0 ||
            (at->ifa_addr->sa_family != AF_INET && at->ifa_addr->sa_family != AF_INET6)) {
            continue;
        }
        nic = add(facts, at->ifa_name);
        if (nic != NULL) {
            take_address(nic, at->ifa_addr);
            nic->mbit = read_number(at->ifa_name, "speed", -1);
            nic->mtu  = read_number(at->ifa_name, "mtu", 0);
        }
    }
    freeifaddrs(all);
}

/* "100 Gb/sec (4X EDR)" of the first port; "4: ACTIVE" is one that works. */
static void read_port(const char *device, ddp_nic_facts_t *nic)
{
    char   path[320];
    double gbit = 0;
    FILE  *file;

    (void)snprintf(path, sizeof(path), "/sys/class/infiniband/%.200s/ports/1/rate", device);
    file = fopen(path, "re");
    if (file != NULL) {
        nic->mbit = fscanf(file, "%lf", &gbit) == 1 ? (int32_t)(gbit * MBIT_PER_GBIT) : -1;
        (void)fclose(file); /* was only read */
    }
}

static void read_infiniband(ddp_facts_t *facts)
{
    DIR           *folder = opendir("/sys/class/infiniband");
    struct dirent *entry;

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        ddp_nic_facts_t *nic = entry->d_name[0] != '.' ? add(facts, entry->d_name) : NULL;

        if (nic != NULL) {
            nic->is_infiniband = 1;
            read_port(entry->d_name, nic);
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
}

void ddp_facts_read_network(ddp_facts_t *facts)
{
    read_infiniband(facts);
    read_interfaces(facts);
}
