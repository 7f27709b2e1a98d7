/** @file The cores of this machine: how many there are, and which are near a GPU or a network. */
#ifndef DDP_CORES_H_
#define DDP_CORES_H_

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Physical cores that this process may run on: two hardware threads of one core share its arithmetic units,
 * so they count once. Local. @return at least 1; 1 too where the machine cannot be read
 */
int ddp_cores_available(void);

/** Which they are: a bit for each, numbered as hwloc does. Local. @return how many; 0: not known */
#define DDP_CORES_WORDS 16
int ddp_cores_read(uint64_t mask[DDP_CORES_WORDS]);

/** Node of memory nearest to the PCI device `bus` ("0000:1b:00.0"). Local. @return its number; -1: not known
 */
int ddp_cores_numa_of(const char *bus);
/** The same of interfaces and InfiniBand devices ("eth0", "mlx5_0"), all at once: reading the machine takes
 * some hundredths of a second. @param [in] names, [out] numa  [n] */
void ddp_cores_numa_of_networks(const char *const *names, size_t n, int *numa);

/**
 * Let this thread, and those that it starts, run near memory node `numa` only, or again wherever it might
 * before. Without it only speed is lost, so nothing is said where it fails.
 * @param [in] numa  -1: nothing changes
 * @param [out] before  for ddp_cores_leave()
 */
typedef struct ddp_cores_before {
    bool      is_moved;
    cpu_set_t cpus;
} ddp_cores_before_t;
void ddp_cores_go_near(int numa, ddp_cores_before_t *before);
void ddp_cores_leave(const ddp_cores_before_t *before);

#endif
