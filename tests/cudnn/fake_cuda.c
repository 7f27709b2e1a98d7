/*
 * In place of the driver's libcuda.so.1: enough for cuDNN to finalize plans on a machine without a GPU. It
 * "loads" any module and answers 34 (CUDA_ERROR_STUB_LIBRARY) to everything else; functions that libcudnn
 * only looks for are listed so that it finds them.
 */
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))
#define STUB(name)                                                                                           \
    EXPORT int name(void);                                                                                   \
    int        name(void)                                                                                    \
    {                                                                                                        \
        return 34;                                                                                           \
    }

STUB(cuCtxGetCurrent)
STUB(cuCtxGetLimit)
STUB(cuCtxPopCurrent)
STUB(cuCtxPushCurrent)
STUB(cuDeviceGet)
STUB(cuDeviceGetCount)
STUB(cuDriverGetVersion)
STUB(cuGetErrorName)
STUB(cuGetErrorString)
STUB(cuLaunchCooperativeKernel)
STUB(cuLaunchKernel)
STUB(cuLaunchKernelEx)
STUB(cuLibraryLoadFromFile)
STUB(cuLinkAddData)
STUB(cuLinkComplete)
STUB(cuLinkCreate)
STUB(cuLinkDestroy)
STUB(cuOccupancyMaxPotentialClusterSize)
STUB(cuStreamGetCtx)

/* Handles that are never looked into. */
static char something;

EXPORT int cuLibraryLoadData(void **library, const void *code, void *a, void *b, unsigned n, void *d, void *e,
                             unsigned m);
EXPORT int cuLibraryUnload(void *library);
EXPORT int cuLibraryGetKernel(void **kernel, void *library, const char *name);
EXPORT int cuLibraryGetKernelCount(unsigned *count, void *library);
EXPORT int cuLibraryEnumerateKernels(void **kernels, unsigned count, void *library);
EXPORT int cuKernelGetFunction(void **function, void *kernel);
EXPORT int cuKernelSetAttribute(int attribute, int value, void *kernel, int device);
EXPORT int cuKernelGetAttribute(int *value, int attribute, void *kernel, int device);
EXPORT int cuModuleLoadData(void **module, const void *image);
EXPORT int cuModuleGetFunction(void **function, void *module, const char *name);
EXPORT int cuModuleUnload(void *module);
EXPORT int cuFuncSetAttribute(void *function, int attribute, int value);
EXPORT int cuFuncGetAttribute(int *value, int attribute, void *function);

int cuLibraryLoadData(void **library, const void *code, void *a, void *b, unsigned n, void *d, void *e,
                      unsigned m)
{
    (void)code, (void)a, (void)b, (void)n, (void)d, (void)e, (void)m;
    *library = &something;
    return 0;
}

int cuLibraryUnload(void *library)
{
    (void)library;
    return 0;
}

int cuLibraryGetKernel(void **kernel, void *library, const char *name)
{
    (void)library, (void)name;
    *kernel = &something;
    return 0;
}

int cuLibraryGetKernelCount(unsigned *count, void *library)
{
    (void)library;
    *count = 1;
    return 0;
}

int cuLibraryEnumerateKernels(void **kernels, unsigned count, void *library)
{
    (void)library;
    for (unsigned i = 0; i < count; i++) {
        kernels[i] = &something;
    }
    return 0;
}

int cuKernelGetFunction(void **function, void *kernel)
{
    (void)kernel;
    *function = &something;
    return 0;
}

int cuKernelSetAttribute(int attribute, int value, void *kernel, int device)
{
    (void)attribute, (void)value, (void)kernel, (void)device;
    return 0;
}

int cuKernelGetAttribute(int *value, int attribute, void *kernel, int device)
{
    (void)attribute, (void)kernel, (void)device;
    *value = 0;
    return 0;
}

int cuModuleLoadData(void **module, const void *image)
{
    (void)image;
    *module = &something;
    return 0;
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
    (void)module, (void)name;
    *function = &something;
    return 0;
}

int cuModuleUnload(void *module)
{
    (void)module;
    return 0;
}

int cuFuncSetAttribute(void *function, int attribute, int value)
{
    (void)function, (void)attribute, (void)value;
    return 0;
}

int cuFuncGetAttribute(int *value, int attribute, void *function)
{
    (void)attribute, (void)function;
    *value = 0;
    return 0;
}
