/* The plans of a device, and what there is no plan for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/cuda/cudnn_plan.h"

typedef struct entry {
    struct entry    *next;
    ddp_cudnn_key_t  key;
    ddp_status_t     status; /* DDP_OK: there is a plan */
    char             line[256];
    ddp_cudnn_plan_t plan;
} entry_t;

struct ddp_cudnn_cache {
    const ddp_cudnn_target_t *target; /* borrowed */
    entry_t                  *first;  /* owned; a model has some tens of shapes */
    size_t                    size;
};

ddp_status_t ddp_cudnn_cache_create(const ddp_cudnn_target_t *target, ddp_cudnn_cache_t **cache_p)
{
    ddp_cudnn_cache_t *cache  = calloc(1, sizeof(*cache));
    ddp_status_t       status = DDP_OK;

    DDP_REQUIRE(cache != NULL, DDP_ERR_NO_MEMORY, "no memory for the plans of cuDNN");
    cache->target = target;
    *cache_p      = cache;
out:
    return status;
}

void ddp_cudnn_cache_destroy(ddp_cudnn_cache_t **cache_p)
{
    ddp_cudnn_cache_t *cache = *cache_p;

    while (cache != NULL && cache->first != NULL) {
        entry_t *entry = cache->first;

        cache->first = entry->next;
        ddp_cudnn_plan_free(&entry->plan);
        free(entry);
    }
    free(cache);
    *cache_p = NULL;
}

static entry_t *find(ddp_cudnn_cache_t *cache, const ddp_cudnn_key_t *key)
{
    entry_t *entry = cache->first;

    while (entry != NULL && memcmp(&entry->key, key, sizeof(*key)) != 0) {
        entry = entry->next;
    }
    return entry;
}

ddp_status_t ddp_cudnn_cache_get(ddp_cudnn_cache_t *cache, const ddp_cudnn_key_t *key,
                                 ddp_cudnn_build_fn_t *build, unsigned refused,
                                 const ddp_cudnn_plan_t **plan_p)
{
    ddp_status_t    status = DDP_OK;
    ddp_cudnn_key_t whole  = *key;
    entry_t        *entry  = NULL;

    whole.words[DDP_CUDNN_KEY - 1] = refused;
    entry                          = find(cache, &whole);

    if (entry == NULL) {
        entry = calloc(1, sizeof(*entry));
        DDP_REQUIRE(entry != NULL, DDP_ERR_NO_MEMORY, "no memory for a plan of cuDNN");
        entry->key = whole;
        ddp_cudnn_graph_init(&entry->plan.graph, cache->target->table);
        build(&entry->plan.graph, key);
        entry->status = ddp_cudnn_plan_build(cache->target, refused, &entry->plan);
        if (entry->status != DDP_OK) {
            snprintf(entry->line, sizeof(entry->line), "%s", ddp_error_line());
            ddp_cudnn_plan_free(&entry->plan);
        }
        entry->next  = cache->first;
        cache->first = entry;
        cache->size++;
    }
    DDP_REQUIRE(entry->status == DDP_OK, entry->status, "%s", entry->line);
    *plan_p = &entry->plan;
out:
    return status;
}

size_t ddp_cudnn_cache_size(const ddp_cudnn_cache_t *cache)
{
    return cache->size;
}
