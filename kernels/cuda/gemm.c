/* Products: which way they are computed. */
#include "kernels/cuda/gemm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "kernels/cuda/device_internal.h"
#include "kernels/cuda/gemm_lt.h"
#include "kernels/cuda/ops.h"

/* A part of the device. */
typedef struct gemm {
    ddp_cuda_plans_t plans;
    bool             has_library;
    bool             must_have; /* no plain kernel in its place */
    size_t           n_plain;   /* products that the library would not do */
} gemm_t;

static void gemm_destroy(void *part)
{
    gemm_t *gemm = part;

    ddp_cuda_plans_close(&gemm->plans);
    free(gemm);
}

static ddp_status_t gemm_open(const ddp_device_t *device, gemm_t *gemm)
{
    ddp_status_t status = DDP_OK;
    const char  *asked  = getenv("DDP_CUDA_GEMM");
    const bool   plain  = asked != NULL && strcmp(asked, "plain") == 0;

    gemm->must_have = asked != NULL && strcmp(asked, "cublaslt") == 0;
    DDP_REQUIRE(asked == NULL || asked[0] == '\0' || plain || gemm->must_have, DDP_ERR_UNSUPPORTED,
                "DDP_CUDA_GEMM=%s is neither cublaslt nor plain", asked);
    if (plain) {
        return DDP_OK;
    }
    status            = ddp_cuda_plans_open(&gemm->plans);
    gemm->has_library = status == DDP_OK;
    if (status == DDP_ERR_UNSUPPORTED && !gemm->must_have) {
        ddp_log(DDP_LOG_WARN, "%s: products are computed by a plain kernel, which is slow: %s", device->name,
                ddp_error_line());
        status = DDP_OK;
    }
out:
    return status;
}

static ddp_status_t gemm_of(const ddp_device_t *device, gemm_t **gemm_p)
{
    ddp_status_t     status = DDP_OK;
    ddp_cuda_part_t *part   = &ddp_cuda_of(device)->parts[DDP_CUDA_PART_GEMM];
    gemm_t          *gemm   = NULL;

    if (part->part == NULL) {
        gemm = calloc(1, sizeof(*gemm));
        DDP_REQUIRE(gemm != NULL, DDP_ERR_NO_MEMORY, "no memory for products");
        DDP_TRY(gemm_open(device, gemm));
        *part = (ddp_cuda_part_t){gemm, gemm_destroy};
        gemm  = NULL;
    }
    *gemm_p = part->part;
out:
    if (gemm != NULL) {
        gemm_destroy(gemm);
    }
    return status;
}

/* The library has no algorithm for it. */
static ddp_status_t without(const ddp_device_t *device, gemm_t *gemm, const ddp_gemm_args_t *args)
{
    if (gemm->must_have) {
        return ddp_fail(DDP_ERR_UNSUPPORTED, "%s: cuBLASLt has no algorithm for a product of %zu x %zu x %zu",
                        device->name, args->m, args->n, args->k);
    }
    if (gemm->n_plain++ == 0) {
        ddp_log(DDP_LOG_WARN,
                "%s: cuBLASLt has no algorithm for a product of %zu x %zu x %zu; it and others "
                "are left to a plain kernel, which is slow",
                device->name, args->m, args->n, args->k);
    }
    return DDP_OK;
}

ddp_status_t ddp_cuda_gemm(ddp_stream_t *stream, const ddp_gemm_args_t *args)
{
    ddp_status_t status  = DDP_OK;
    gemm_t      *gemm    = NULL;
    bool         is_done = false;

    if (args->m == 0 || args->n == 0) {
        return DDP_OK;
    }
    DDP_TRY(gemm_of(stream->device, &gemm));
    if (gemm->has_library && args->k > 0) {
        DDP_TRY(ddp_cuda_gemm_lt(&gemm->plans, stream, args, &is_done));
        if (is_done) {
            return DDP_OK;
        }
        DDP_TRY(without(stream->device, gemm, args));
    }
    DDP_TRY(ddp_cuda_gemm_plain(stream, args));
out:
    return status;
}

size_t ddp_cuda_gemm_choices(const ddp_device_t *device, ddp_choice_t *choices, size_t capacity)
{
    const gemm_t *gemm = ddp_cuda_of(device)->parts[DDP_CUDA_PART_GEMM].part;

    if (gemm == NULL) {
        return 0;
    }
    if (capacity > 0) {
        (void)snprintf(choices[0].name, sizeof(choices[0].name), "products");
        (void)snprintf(choices[0].value, sizeof(choices[0].value), "by a plain kernel");
    }
    if (capacity > 0 && gemm->has_library) {
        (void)snprintf(choices[0].value, sizeof(choices[0].value), "by cuBLASLt %zu",
                       gemm->plans.table.version());
    }
    for (size_t i = 0; i < gemm->plans.n && i + 1 < capacity; i++) {
        ddp_cuda_plan_describe(&gemm->plans, &gemm->plans.plan[i], &choices[i + 1]);
    }
    return gemm->plans.n + 1;
}
