#include "launcher/cores.h"

#include <hwloc.h>
#include <hwloc/glibc-sched.h>
#include <pthread.h>

int ddp_cores_available(void)
{
    hwloc_topology_t topology;
    hwloc_bitmap_t   allowed = hwloc_bitmap_alloc();
    int              cores   = 0;

    if (allowed != NULL && hwloc_topology_init(&topology) == 0) {
        if (hwloc_topology_load(topology) == 0 &&
            hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_PROCESS) == 0) {
            hwloc_obj_t core = NULL;

            while ((core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != NULL) {
                cores += hwloc_bitmap_intersects(core->cpuset, allowed) ? 1 : 0;
            }
        }
        hwloc_topology_destroy(topology);
    }
    hwloc_bitmap_free(allowed);
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

int ddp_cores_numa_of(const char *bus)
{
    hwloc_topology_t topology;
    hwloc_obj_t      device = NULL;
    hwloc_obj_t      near   = NULL;
    int              numa   = -1;

    if (!load_topology(&topology)) {
        return -1;
    }
    device = hwloc_get_pcidev_by_busidstring(topology, bus);
    near   = device != NULL ? hwloc_get_non_io_ancestor_obj(topology, device) : NULL;
    if (near != NULL && near->nodeset != NULL) {
        numa = hwloc_bitmap_first(near->nodeset);
    }
    hwloc_topology_destroy(topology);
    return numa;
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
