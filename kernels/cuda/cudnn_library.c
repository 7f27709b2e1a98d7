#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/cuda/cudnn_table.h"

static const char library[] = "libcudnn.so.9";

/* What dlsym() found, as the function it is: C has no cast from an object to a function. */
static bool find(void *opened, const char *name, void *function_p, size_t bytes)
{
    void *symbol = dlsym(opened, name);

    if (symbol == NULL || bytes != sizeof(symbol)) {
        return false;
    }
    memcpy(function_p, &symbol, sizeof(symbol));
    return true;
}

/* Major, minor and patch of a version as cudnnGetVersion() says it. */
static ddp_status_t too_old(size_t version)
{
    return ddp_fail(DDP_ERR_UNSUPPORTED, "cuDNN %zu.%zu.%zu is older than %d.%d", version / 10000,
                    version / 100 % 100, version % 100, DDP_CUDNN_OLDEST / 10000,
                    DDP_CUDNN_OLDEST / 100 % 100);
}

ddp_status_t ddp_cudnn_table_open(ddp_cudnn_table_t *table)
{
    const char       *folder = getenv("DDP_CUDNN_PATH");
    char              path[4096];
    void             *opened = NULL;
    ddp_cudnn_table_t found;
    ddp_status_t      status = DDP_OK;

    DDP_REQUIRE(folder == NULL || strcmp(folder, "none") != 0, DDP_ERR_STATE, "DDP_CUDNN_PATH=none");
    if (folder == NULL || folder[0] == '\0') {
        snprintf(path, sizeof(path), "%s", library);
    } else {
        DDP_REQUIRE((size_t)snprintf(path, sizeof(path), "%s/%s", folder, library) < sizeof(path),
                    DDP_ERR_UNSUPPORTED, "DDP_CUDNN_PATH is too long");
    }
    opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    DDP_REQUIRE(opened != NULL, DDP_ERR_UNSUPPORTED, "%s", dlerror());
#define DDP_FIND(field, function)                                                                            \
    DDP_REQUIRE(find(opened, #function, &found.field, sizeof(found.field)), DDP_ERR_UNSUPPORTED,             \
                "%s has no " #function, path);
    DDP_CUDNN_FUNCTIONS(DDP_FIND)
#undef DDP_FIND
    if (found.version() < DDP_CUDNN_OLDEST) {
        DDP_TRY(too_old(found.version()));
    }
    *table = found;
out:
    if (status != DDP_OK && opened != NULL) {
        dlclose(opened);
    }
    return status;
}
