/** @file How many ranks this machine has room for. */
#ifndef DDP_CORES_H_
#define DDP_CORES_H_

/**
 * Physical cores that this process may run on: two hardware threads of one core share its arithmetic units,
 * so they count once. Local. @return at least 1; 1 too where the machine cannot be read
 */
int ddp_cores_available(void);

#endif
