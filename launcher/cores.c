#include "launcher/cores.h"

#include <hwloc.h>
#include <hwloc/glibc-sched.h>
#include <pthread.h>
#include <string.h>

int ddp_cores_read(uint64_t mask[DDP_CORES_WORDS])
{
    hwloc_topology_t topology;
    hwloc_bitmap_t   allowed = hwloc_bitmap_alloc();
    int              cores   = 0;

    memset(mask, 0, DDP_CORES_WORDS * sizeof(*mask));
    if (allowed != NULL && hwloc_topology_init(&topology) == 0) {
        if (hwloc_topology_load(topology) == 0 &&
            hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_PROCESS) == 0) {
            hwloc_obj_t core = NULL;

            while ((core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != NULL) {
                if (hwloc_bitmap_intersects(core->cpuset, allowed)) {
                    const unsigned bit = core->logical_index % (DDP_CORES_WORDS * 64);

                    mask[bit / 64] |= UINT64_C(1) << bit % 64;
                    cores++;
                }
            }
        }
        hwloc_topology_destroy(topology);
    }
    hwloc_bitmap_free(allowed);
    return cores;
}

int ddp_cores_available(void)
{
    uint64_t  mask[DDP_CORES_WORDS];
    const int cores = ddp_cores_read(mask);

    return cores > 0 ? cores : 1;
}

/* With the devices of PCI. @return false: the machine cannot be read */
static bool load_topology(hwloc_topology_t *topology_p)
{
    if (hwloc_topology_init(topology_p) != 0) {
        return false;
    }
    if (hwloc_topology_set_io_types_filter(*topology_p, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) == 0 &&
        hwloc_topology_load(*topology_p) == 0) {
        return true;
    }
    hwloc_topology_destroy(*topology_p);
    return false;
}

static int numa_near(hwloc_topology_t topology, hwloc_obj_t device)
{
    hwloc_obj_t near = device != NULL ? hwloc_get_non_io_ancestor_obj(topology, device) : NULL;

    return near != NULL && near->nodeset != NULL ? hwloc_bitmap_first(near->nodeset) : -1;
}

int ddp_cores_numa_of(const char *bus)
{
    hwloc_topology_t topology;
    int              numa = -1;

    if (load_topology(&topology)) {
        numa = numa_near(topology, hwloc_get_pcidev_by_busidstring(topology, bus));
        hwloc_topology_destroy(topology);
    }
    return numa;
}

static hwloc_obj_t find_network(hwloc_topology_t topology, const char *name)
{
    hwloc_obj_t device = NULL;

    do {
        device = hwloc_get_next_osdev(topology, device);
    } while (device != NULL && strcmp(device->name, name) != 0);
    return device;
}

void ddp_cores_numa_of_networks(const char *const *names, size_t n, int *numa)
{
    hwloc_topology_t topology;
    const bool       is_read = n > 0 && load_topology(&topology);

    for (size_t i = 0; i < n; i++) {
        numa[i] = is_read ? numa_near(topology, find_network(topology, names[i])) : -1;
    }
    if (is_read) {
        hwloc_topology_destroy(topology);
    }
}

void ddp_cores_go_near(int numa, ddp_cores_before_t *before)
{
    hwloc_topology_t topology;
    hwloc_obj_t      node = NULL;
    cpu_set_t        near;

    before->is_moved = false;
    if (numa < 0 || pthread_getaffinity_np(pthread_self(), sizeof(before->cpus), &before->cpus) != 0 ||
        !load_topology(&topology)) {
        return;
    }
    node = hwloc_get_numanode_obj_by_os_index(topology, (unsigned)numa);
    if (node != NULL &&
        hwloc_cpuset_to_glibc_sched_affinity(topology, node->cpuset, &near, sizeof(near)) == 0) {
        CPU_AND(&near, &near, &before->cpus);
        before->is_moved =
            CPU_COUNT(&near) > 0 && pthread_setaffinity_np(pthread_self(), sizeof(near), &near) == 0;
    }
    hwloc_topology_destroy(topology);
}

void ddp_cores_leave(const ddp_cores_before_t *before)
{
    if (before->is_moved) {
        (void)pthread_setaffinity_np(pthread_self(), sizeof(before->cpus), &before->cpus);
    }
}
