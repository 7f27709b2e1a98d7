/* A profiler as NVTX opens one (NVTX_INJECTION64_PATH): it writes what it is told into the file of this
 * process, FAKE_NVTX.<pid>, a line for each begin ("<thread> begin <name>") and end ("<thread> end") of a
 * range. */
#include <nvtx3/nvToolsExt.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/export.h"

/** What NVTX asks a profiler's library for. @return 0: it does not want to be told of anything */
DDP_API int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table);

static int file = -1;

/* One write for a line: threads do not mix theirs. */
static void note(const char *what, const char *name)
{
    char line[128];
    int  length =
        snprintf(line, sizeof(line), "%ld %s%s%s\n", (long)gettid(), what, name[0] != '\0' ? " " : "", name);

    if (length < 0 || write(file, line, (size_t)length) != length) {
        abort();
    }
}

static nvtxDomainHandle_t domain_create(const char *name)
{
    note("domain", name);
    return (nvtxDomainHandle_t)(void *)&file;
}

static int range_push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *range)
{
    (void)domain;
    note("begin", range->messageType == NVTX_MESSAGE_TYPE_ASCII ? range->message.ascii : "?");
    return 0;
}

static int range_pop(nvtxDomainHandle_t domain)
{
    (void)domain;
    note("end", "");
    return 0;
}

/* A function of NVTX's table is ours from now on. */
static void set(NvtxFunctionTable functions, NvtxCallbackIdCore2 id, const void *function_p)
{
    memcpy((void *)functions[id], function_p, sizeof(*functions[id]));
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table)
{
    const NvtxExportTableCallbacks   *callbacks = table(NVTX_ETID_CALLBACKS);
    const char                       *folder    = getenv("FAKE_NVTX");
    nvtxDomainCreateA_impl_fntype     create    = domain_create;
    nvtxDomainRangePushEx_impl_fntype push      = range_push;
    nvtxDomainRangePop_impl_fntype    pop       = range_pop;
    NvtxFunctionTable                 functions = NULL;
    unsigned                          n         = 0;
    char                              path[4096];

    if (folder == NULL || callbacks == NULL ||
        callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &functions, &n) == 0 ||
        n <= NVTX_CBID_CORE2_DomainCreateA) {
        return 0;
    }
    (void)snprintf(path, sizeof(path), "%s.%ld", folder, (long)getpid());
    file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) {
        return 0;
    }
    set(functions, NVTX_CBID_CORE2_DomainCreateA, &create);
    set(functions, NVTX_CBID_CORE2_DomainRangePushEx, &push);
    set(functions, NVTX_CBID_CORE2_DomainRangePop, &pop);
    return 1;
}
