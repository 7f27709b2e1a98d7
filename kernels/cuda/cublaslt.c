#include "kernels/cuda/cublaslt.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* Their tables of functions are the same as far as they are used here; newest first. */
static const char *const libraries[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
#define LIBRARIES (sizeof(libraries) / sizeof(libraries[0]))

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

static ddp_status_t open_library(const char *folder, void **opened_p)
{
    char path[4096];

    for (size_t i = 0; i < LIBRARIES && *opened_p == NULL; i++) {
        const bool is_named = folder != NULL && folder[0] != '\0';
        const int  length =
            snprintf(path, sizeof(path), "%s%s%s", is_named ? folder : "", is_named ? "/" : "", libraries[i]);

        if (length < 0 || (size_t)length >= sizeof(path)) {
            return ddp_fail(DDP_ERR_UNSUPPORTED, "DDP_CUBLASLT_PATH is too long");
        }
        *opened_p = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return *opened_p != NULL ? DDP_OK : ddp_fail(DDP_ERR_UNSUPPORTED, "%s", dlerror());
}

ddp_status_t ddp_cublaslt_table_open(ddp_cublaslt_table_t *table)
{
    ddp_status_t         status = DDP_OK;
    void                *opened = NULL;
    ddp_cublaslt_table_t found;

    DDP_TRY(open_library(getenv("DDP_CUBLASLT_PATH"), &opened));
#define DDP_FIND(field, function)                                                                            \
    DDP_REQUIRE(find(opened, #function, &found.field, sizeof(found.field)), DDP_ERR_UNSUPPORTED,             \
                "libcublasLt has no " #function);
    DDP_CUBLASLT_FUNCTIONS(DDP_FIND)
#undef DDP_FIND
    *table = found;
out:
    if (status != DDP_OK && opened != NULL) {
        dlclose(opened);
    }
    return status;
}
