#include "launcher/cores.h"

#include <hwloc.h>

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
