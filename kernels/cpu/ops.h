/** @file Operations of the cpu device. Private. */
#ifndef DDP_CPU_OPS_H_
#define DDP_CPU_OPS_H_

#include "kernels/backend_internal.h"

extern const ddp_op_table_t ddp_cpu_ops;

#endif
