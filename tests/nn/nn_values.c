#include "tests/nn/nn_values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/ddp_test.h"

typedef struct header {
    char     name[64];
    uint32_t type; /* nn_type_t */
    uint32_t ndim;
    uint32_t shape[4];
} header_t;

static unsigned char *file_bytes;
static size_t         file_size;

void nn_values_open(const char *path)
{
    FILE *file = fopen(path, "rb");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    file_size = (size_t)ftell(file);
    rewind(file);
    file_bytes = malloc(file_size);
    ck_assert_uint_eq(fread(file_bytes, 1, file_size, file), file_size);
    fclose(file);
}

void nn_values_close(void)
{
    free(file_bytes);
}

void *nn_values_load(const char *kind, const char *name, nn_type_t type, size_t count)
{
    static const size_t type_size[] = {4, 8, 4};
    char                full[96];
    size_t              at = 0;

    snprintf(full, sizeof(full), "%s%s", kind, name);
    while (at + sizeof(header_t) <= file_size) {
        header_t header;
        size_t   n;
        void    *copy;

        memcpy(&header, file_bytes + at, sizeof(header));
        at += sizeof(header);
        n = (size_t)header.shape[0] * header.shape[1] * header.shape[2] * header.shape[3];
        if (strcmp(header.name, full) == 0) {
            ck_assert_uint_eq(header.type, type);
            ck_assert_uint_eq(n, count);
            copy = malloc(n * type_size[type]);
            memcpy(copy, file_bytes + at, n * type_size[type]);
            return copy;
        }
        at += n * type_size[header.type];
    }
    ck_abort_msg("%s is not in the file", full);
    return NULL;
}

void nn_adamw_open(nn_adamw_t *adamw, const ddp_params_t *params)
{
    adamw->config = (ddp_optim_config_t)DDP_OPTIM_CONFIG_ADAMW;
    for (size_t i = 0; i < 2; i++) {
        const size_t bytes = ddp_params_total(params) * sizeof(float);

        adamw->slot[i] = aligned_alloc(DDP_ALIGNMENT, bytes);
        memset(adamw->slot[i], 0, bytes);
    }
}

void nn_adamw_close(nn_adamw_t *adamw)
{
    free(adamw->slot[0]);
    free(adamw->slot[1]);
}

void nn_adamw_update(nn_adamw_t *adamw, const nn_world_t *world, uint64_t step, float lr, float weight)
{
    static const int32_t op[1] = {0};

    for (size_t i = 0; i < ddp_params_count(world->params); i++) {
        const ddp_tensor_desc_t *desc    = &ddp_params_descs(world->params)[i];
        const float             *grad    = ddp_params_grad(world->params, i);
        const ddp_tree_program_t program = {.op = op, .length = 1, .source = &grad};
        const ddp_update_t       args    = {.config     = &adamw->config,
                                            .lr         = lr,
                                            .grad_scale = 1.0F / weight,
                                            .step       = step,
                                            .param      = ddp_params_value(world->params, i),
                                            .slot = {adamw->slot[0] + desc->offset, adamw->slot[1] + desc->offset}};

        if (desc->role == DDP_TENSOR_AVERAGE) {
            ddp_tree_average(ddp_device_isa(world->device), &program, args.param, desc->momentum, 1, NULL,
                             ddp_block_round(desc->count) / DDP_BLOCK);
            continue;
        }
        ddp_tree_update(ddp_device_isa(world->device), &program, &args,
                        ddp_block_round(desc->count) / DDP_BLOCK);
    }
}
