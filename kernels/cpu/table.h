/**
 * @file The table of compute kernels of one instruction set, and the progress point of long kernels. Private.
 *
 * table.c and the kernel sources are compiled once per set; ddp_cpu_kernels() chooses at run time.
 */
#ifndef DDP_CPU_TABLE_H_
#define DDP_CPU_TABLE_H_

#include "kernels/ops.h"
#include "kernels/ops_norm.h"
#include "kernels/ops_seq.h"
#include "kernels/optim.h"

/* DDP_PRECISION_BF16 where the device has no instruction for it: the same bits. Operations put it in place of
 * that. */
#define DDP_PRECISION_BF16_EMULATED ((ddp_precision_t)100)

/* Every kernel takes its argument struct; arguments were checked by kernels/ops.c. A status other than DDP_OK
 * fails the stream. */
typedef struct ddp_cpu_kernels {
    const char *name;
    ddp_status_t (*gemm)(const ddp_gemm_args_t *args);
    size_t (*gemm_scratch_bytes)(void); /* taken by the kernel itself, as the next */
    size_t (*head_scratch_bytes)(size_t vocab);
    ddp_status_t (*bias_grad)(const ddp_bias_grad_args_t *args);
    ddp_status_t (*act)(const ddp_act_args_t *args);
    ddp_status_t (*act_backward)(const ddp_act_backward_args_t *args);
    size_t (*conv2d_scratch_bytes)(const ddp_conv2d_shape_t *shape);
    ddp_status_t (*conv2d)(const ddp_conv2d_args_t *args);
    ddp_status_t (*conv2d_backward)(const ddp_conv2d_backward_args_t *args);
    ddp_status_t (*pool2d)(const ddp_pool2d_args_t *args);
    ddp_status_t (*pool2d_backward)(const ddp_pool2d_backward_args_t *args);
    ddp_status_t (*nhwc_to_nchw)(const ddp_permute_args_t *args);
    ddp_status_t (*cross_entropy)(const ddp_cross_entropy_args_t *args);
    ddp_status_t (*mse)(const ddp_mse_args_t *args);
    void (*fill)(float *y, size_t count, float value);
    void (*axpy)(float alpha, const float *x, float *y, size_t count);
    void (*scale)(float alpha, float *y, size_t count);
    void (*sumsq)(const float *x, size_t count, double *sum_p);
    ddp_status_t (*dropout)(const ddp_dropout_args_t *args);
    ddp_status_t (*uniform)(const ddp_uniform_args_t *args);
    ddp_status_t (*embedding)(const ddp_embedding_args_t *args);
    ddp_status_t (*embedding_backward)(const ddp_embedding_backward_args_t *args);
    ddp_status_t (*layer_norm)(const ddp_layer_norm_args_t *args);
    ddp_status_t (*layer_norm_backward)(const ddp_layer_norm_backward_args_t *args);
    ddp_status_t (*attention)(const ddp_attention_args_t *args);
    ddp_status_t (*attention_backward)(const ddp_attention_backward_args_t *args);
    ddp_status_t (*attention_cached)(const ddp_attention_cached_args_t *args);
    ddp_status_t (*attention_keep)(const ddp_attention_cached_args_t *args);
    ddp_status_t (*head_cross_entropy)(const ddp_head_cross_entropy_args_t *args);
    ddp_status_t (*head_logits)(const ddp_head_logits_args_t *args);
    ddp_status_t (*head_backward)(const ddp_head_backward_args_t *args);
    ddp_status_t (*normal)(const ddp_normal_args_t *args);
    ddp_status_t (*batch_norm)(const ddp_batch_norm_args_t *args);
    ddp_status_t (*batch_norm_backward)(const ddp_batch_norm_backward_args_t *args);
    ddp_status_t (*global_avg_pool)(const ddp_global_avg_pool_args_t *args);
    ddp_status_t (*global_avg_pool_backward)(const ddp_global_avg_pool_backward_args_t *args);
    void (*tree_sum)(const ddp_tree_program_t *program, float *dst, double *sumsq,
                     size_t blocks); /* sumsq may be NULL */
    bool (*tree_update)(const ddp_tree_program_t *program, const ddp_update_t *update, size_t blocks);
    bool (*tree_average)(const ddp_tree_program_t *program, float *value, float momentum, float parts,
                         double *sumsq, size_t blocks);
    void (*block_add)(float *dst, const float *src, size_t blocks);
} ddp_cpu_kernels_t;

extern const ddp_cpu_kernels_t ddp_kernels_plain;
extern const ddp_cpu_kernels_t ddp_kernels_avx2;
extern const ddp_cpu_kernels_t ddp_kernels_avx512;

/** @return the table of `isa`; never NULL for a set that ddp_isa_detect() may return. */
const ddp_cpu_kernels_t *ddp_cpu_kernels(ddp_isa_t isa);

/**
 * Long kernels call this between panels (every 50 us or so): it looks at the clock and, at most every 0.5 ms,
 * lets the device run what is ready on other streams. Kernel scratch must not be static for that reason:
 * other kernels may run inside.
 */
void ddp_cpu_progress_point(void);

#endif
