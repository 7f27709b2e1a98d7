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

typedef struct nics {
    ddp_nic_facts_t *nic; /* [DDP_FACTS_NICS], borrowed */
    int32_t          n;
} nics_t;

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

static ddp_nic_facts_t *find(nics_t *nics, const char *name)
{
    for (int32_t i = 0; i < nics->n; i++) {
        if (strcmp(nics->nic[i].name, name) == 0) {
            return &nics->nic[i];
        }
    }
    return NULL;
}

static ddp_nic_facts_t *add(nics_t *nics, const char *name)
{
    ddp_nic_facts_t *nic = find(nics, name);

    if (nic == NULL && nics->n < DDP_FACTS_NICS) {
        nic  = &nics->nic[nics->n++];
        *nic = (ddp_nic_facts_t){.mbit = -1, .numa = -1};
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

static void read_interfaces(nics_t *nics)
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
        nic = add(nics, at->ifa_name);
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

static void read_infiniband(nics_t *nics)
{
    DIR           *folder = opendir("/sys/class/infiniband");
    struct dirent *entry;

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        ddp_nic_facts_t *nic = entry->d_name[0] != '.' ? add(nics, entry->d_name) : NULL;

        if (nic != NULL) {
            nic->is_infiniband = 1;
            read_port(entry->d_name, nic);
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
}

int32_t ddp_nics_read(ddp_nic_facts_t nic[DDP_FACTS_NICS])
{
    nics_t      nics = {.nic = nic};
    const char *names[DDP_FACTS_NICS];
    int         numa[DDP_FACTS_NICS];

    read_infiniband(&nics);
    read_interfaces(&nics);
    for (int32_t i = 0; i < nics.n; i++) {
        names[i] = nic[i].name;
    }
    ddp_cores_numa_of_networks(names, (size_t)nics.n, numa);
    for (int32_t i = 0; i < nics.n; i++) {
        nic[i].numa = numa[i];
    }
    return nics.n;
}
