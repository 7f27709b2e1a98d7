#include "kernels/optim.h"

#include "base/error.h"
#include "kernels/cpu/table.h"

size_t ddp_optim_slots(const ddp_optim_config_t *config)
{
    if (config->kind == DDP_OPTIM_ADAMW) {
        return 2;
    }
    return config->momentum > 0.0 ? 1 : 0;
}

const char *ddp_optim_slot_name(const ddp_optim_config_t *config, size_t slot)
{
    if (config->kind == DDP_OPTIM_ADAMW) {
        return slot == 0 ? "exp_avg" : "exp_avg_sq";
    }
    return "momentum_buffer";
}

/* `value` in [low, high), which no NaN is. */
static ddp_status_t range_check(const char *name, double value, double low, double high)
{
    if (value >= low && value < high) {
        return DDP_OK;
    }
    return ddp_fail(DDP_ERR_INVALID_ARG, "optimizer: %s %g is not in [%g, %g)", name, value, low, high);
}

ddp_status_t ddp_optim_check(const ddp_optim_config_t *config)
{
    const double huge   = 1e30;
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(config->kind == DDP_OPTIM_SGD || config->kind == DDP_OPTIM_ADAMW, DDP_ERR_INVALID_ARG,
                "optimizer: kind %d is neither sgd nor adamw", (int)config->kind);
    DDP_TRY(range_check("weight_decay", config->weight_decay, 0.0, huge));
    if (config->kind == DDP_OPTIM_ADAMW) {
        DDP_TRY(range_check("beta1", config->beta1, 0.0, 1.0));
        DDP_TRY(range_check("beta2", config->beta2, 0.0, 1.0));
        DDP_TRY(range_check("eps", config->eps, 0.0, huge));
    } else {
        DDP_TRY(range_check("momentum", config->momentum, 0.0, huge));
        DDP_REQUIRE(!config->nesterov || config->momentum > 0.0, DDP_ERR_INVALID_ARG,
                    "optimizer: nesterov needs momentum > 0");
    }
out:
    return status;
}

void ddp_tree_sum(ddp_isa_t isa, const ddp_tree_program_t *program, float *dst, size_t blocks)
{
    ddp_cpu_kernels(isa)->tree_sum(program, dst, NULL, blocks);
}

void ddp_tree_sum_sumsq(ddp_isa_t isa, const ddp_tree_program_t *program, float *dst, double *sumsq,
                        size_t blocks)
{
    ddp_cpu_kernels(isa)->tree_sum(program, dst, sumsq, blocks);
}

bool ddp_tree_update(ddp_isa_t isa, const ddp_tree_program_t *program, const ddp_update_t *update,
                     size_t blocks)
{
    return ddp_cpu_kernels(isa)->tree_update(program, update, blocks);
}

bool ddp_tree_average(ddp_isa_t isa, const ddp_tree_program_t *program, float *value, float momentum,
                      size_t parts, double *sumsq, size_t blocks)
{
    return ddp_cpu_kernels(isa)->tree_average(program, value, momentum, (float)parts, sumsq, blocks);
}

void ddp_block_add(ddp_isa_t isa, float *dst, const float *src, size_t blocks)
{
    ddp_cpu_kernels(isa)->block_add(dst, src, blocks);
}
