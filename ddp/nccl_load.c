/* libnccl by dlopen: where the loader looks, then where the PyPI package nvidia-nccl puts it if that folder
 * is in LD_LIBRARY_PATH. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "ddp/nccl_table_internal.h"

static struct {
    pthread_once_t   once;
    ddp_nccl_table_t table;
    ddp_status_t     status;
    char             line[DDP_ERROR_LINE_SIZE];
} loaded = {.once = PTHREAD_ONCE_INIT};

static ddp_status_t load(void)
{
    ddp_status_t status = DDP_OK;
    void        *handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);

    DDP_REQUIRE(handle != NULL, DDP_ERR_UNSUPPORTED, "nccl: %s; install NCCL, or use ddp.backend host",
                dlerror());
/* The cast through an integer: ISO C has no pointer to a function from a pointer to data. */
#define FIND(name) loaded.table.name = (__typeof__(nccl##name) *)(uintptr_t)dlsym(handle, "nccl" #name);
#define NEED(name)                                                                                           \
    FIND(name)                                                                                               \
    DDP_REQUIRE(loaded.table.name != NULL, DDP_ERR_UNSUPPORTED,                                              \
                "nccl: libnccl.so.2 has no nccl" #name ": it is too old, 2.19 or newer is needed");
    DDP_NCCL_LIST(NEED, FIND)
#undef NEED
#undef FIND
out:
    return status;
}

static void load_once(void)
{
    loaded.status = load();
    (void)snprintf(loaded.line, sizeof(loaded.line), "%s", ddp_error_line());
}

ddp_status_t ddp_nccl_load(const ddp_nccl_table_t **table_p)
{
    (void)pthread_once(&loaded.once, load_once);
    *table_p = &loaded.table;
    return loaded.status == DDP_OK ? DDP_OK : ddp_fail(loaded.status, "%s", loaded.line);
}
