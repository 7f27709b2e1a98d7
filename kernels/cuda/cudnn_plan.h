/** @file From a graph to a plan that runs it, and the plans of a device. Private. */
#ifndef DDP_CUDA_CUDNN_PLAN_H_
#define DDP_CUDA_CUDNN_PLAN_H_

#include <stddef.h>

#include "kernels/cuda/cudnn_graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What plans are made for: the device of a handle, or one that is described by its properties only, for
 * which nothing can run. */
typedef struct ddp_cudnn_target {
    const ddp_cudnn_table_t *table;      /* borrowed */
    cudnnHandle_t            handle;     /* owned, or NULL */
    cudnnBackendDescriptor_t properties; /* owned; NULL if there is a handle */
} ddp_cudnn_target_t;

/** With a handle of the current device. @return DDP_ERR_UNSUPPORTED with cuDNN's reason */
ddp_status_t ddp_cudnn_target_open(const ddp_cudnn_table_t *table, ddp_cudnn_target_t *target) DDP_NODISCARD;
/** Without a GPU. @param [in] json  as CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION says it of a device */
ddp_status_t ddp_cudnn_target_describe(const ddp_cudnn_table_t *table, const char *json,
                                       ddp_cudnn_target_t *target) DDP_NODISCARD;
void         ddp_cudnn_target_close(ddp_cudnn_target_t *target);

/** Properties of engines (cudnnBackendNumericalNote_t) as bits of a set. */
#define DDP_CUDNN_NOTE(note) (1U << (unsigned)CUDNN_NUMERICAL_NOTE_##note)

typedef struct ddp_cudnn_plan {
    ddp_cudnn_graph_t        graph; /* owns all descriptors */
    cudnnBackendDescriptor_t plan;  /* of `graph` */
    size_t                   workspace_bytes;
    unsigned                 notes; /* of its engine */
} ddp_cudnn_plan_t;

/**
 * Take the first engine that cuDNN proposes, has none of the `refused` notes and makes a plan.
 * @param [in,out] plan  plan->graph: the finished graph, whose failure is passed on
 * @return DDP_ERR_UNSUPPORTED with the last reason: cuDNN does not compute this graph so
 */
ddp_status_t ddp_cudnn_plan_build(const ddp_cudnn_target_t *target, unsigned refused,
                                  ddp_cudnn_plan_t *plan) DDP_NODISCARD;
void         ddp_cudnn_plan_free(ddp_cudnn_plan_t *plan);

#define DDP_CUDNN_POINTERS 16

/** Addresses of the tensors of a graph, by their numbers. */
typedef struct ddp_cudnn_pointers {
    int64_t uids[DDP_CUDNN_POINTERS];
    void   *pointers[DDP_CUDNN_POINTERS];
    int     count;
} ddp_cudnn_pointers_t;

/** Constness is lost here: cuDNN takes what is read and what is written in one list. */
void ddp_cudnn_point(ddp_cudnn_pointers_t *pointers, int64_t uid, const void *memory);

/** Put the plan into `stream`. @param [in] workspace  device, 256-byte aligned, plan->workspace_bytes
 * @return DDP_ERR_DEVICE with cuDNN's reason */
ddp_status_t ddp_cudnn_plan_execute(const ddp_cudnn_target_t *target, const ddp_cudnn_plan_t *plan,
                                    const ddp_cudnn_pointers_t *pointers, void *workspace,
                                    cudaStream_t stream) DDP_NODISCARD;

/** Plans by what they were made for, and what there is no plan for. */
typedef struct ddp_cudnn_cache ddp_cudnn_cache_t;

/* Words of a key: all on which a plan depends. The last one is the cache's, for the refused notes. */
#define DDP_CUDNN_KEY 16

typedef struct ddp_cudnn_key {
    int64_t words[DDP_CUDNN_KEY]; /* unused ones are 0 */
} ddp_cudnn_key_t;

/** Write down the graph of `key`. */
typedef void ddp_cudnn_build_fn_t(ddp_cudnn_graph_t *graph, const ddp_cudnn_key_t *key);

ddp_status_t ddp_cudnn_cache_create(const ddp_cudnn_target_t *target,
                                    ddp_cudnn_cache_t       **cache_p) DDP_NODISCARD;
void         ddp_cudnn_cache_destroy(ddp_cudnn_cache_t **cache_p);
/**
 * The plan of `key`; it is built at the first call only.
 * @return DDP_ERR_UNSUPPORTED: there is none, with the reason that the first call found. DDP_ERR_NO_MEMORY
 */
ddp_status_t ddp_cudnn_cache_get(ddp_cudnn_cache_t *cache, const ddp_cudnn_key_t *key,
                                 ddp_cudnn_build_fn_t *build, unsigned refused,
                                 const ddp_cudnn_plan_t **plan_p) DDP_NODISCARD;
/** How many plans were built or refused. */
size_t ddp_cudnn_cache_size(const ddp_cudnn_cache_t *cache);

#ifdef __cplusplus
}
#endif

#endif
