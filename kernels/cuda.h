/** @file What this machine has of CUDA: asked before a device is made, on machines with and without it. */
#ifndef DDP_CUDA_H_
#define DDP_CUDA_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/export.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DDP_CUDA_TEXT_SIZE 256
#define DDP_CUDA_UUID_SIZE 16

typedef struct ddp_cuda_info {
    bool is_built;                   /* this program has the CUDA backend */
    int  devices;                    /* visible to this process (CUDA_VISIBLE_DEVICES) */
    int  driver, runtime;            /* versions, 13000 for 13.0; driver 0: none */
    char reason[DDP_CUDA_TEXT_SIZE]; /* why there is no device ("no driver"), or "" */
} ddp_cuda_info_t;
/** Never fails: what cannot be used has no devices and a reason. */
DDP_API void ddp_cuda_probe(ddp_cuda_info_t *info);

/** cuDNN, as this process finds it: its version, "9.13.1", or why it is not used. Loads it. @return whether
 * it is there */
DDP_API bool ddp_cuda_cudnn(char text[DDP_CUDA_TEXT_SIZE]);

typedef struct ddp_cuda_device_info {
    char    name[DDP_CUDA_TEXT_SIZE];
    char    bus[32];                  /* "0000:1b:00.0", as hwloc and NCCL name it */
    uint8_t uuid[DDP_CUDA_UUID_SIZE]; /* one of a kind: two ranks with the same one share a device */
    int     major, minor;             /* compute capability */
    int     multiprocessors;
    size_t  memory_bytes, free_bytes;
} ddp_cuda_device_info_t;
/** @param [in] ordinal  0 .. devices - 1. @return DDP_ERR_UNSUPPORTED, DDP_ERR_INVALID_ARG, DDP_ERR_DEVICE */
DDP_API ddp_status_t ddp_cuda_describe(int ordinal, ddp_cuda_device_info_t *info) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
