/**
 * @file The kernels of one instruction set under their names there (ddp_gemm_avx2); table.c collects them.
 * Private.
 */
#ifndef DDP_CPU_KERNELS_H_
#define DDP_CPU_KERNELS_H_

#include "kernels/cpu/table.h"
#include "kernels/cpu/vec.h"

ddp_status_t DDP_ISA_NAME(gemm)(const ddp_gemm_args_t *args);
size_t       DDP_ISA_NAME(gemm_scratch_bytes)(void);
ddp_status_t DDP_ISA_NAME(bias_grad)(const ddp_bias_grad_args_t *args);
ddp_status_t DDP_ISA_NAME(act)(const ddp_act_args_t *args);
ddp_status_t DDP_ISA_NAME(act_backward)(const ddp_act_backward_args_t *args);
size_t       DDP_ISA_NAME(conv2d_scratch_bytes)(const ddp_conv2d_shape_t *shape);
ddp_status_t DDP_ISA_NAME(conv2d)(const ddp_conv2d_args_t *args);
ddp_status_t DDP_ISA_NAME(conv2d_backward)(const ddp_conv2d_backward_args_t *args);
ddp_status_t DDP_ISA_NAME(pool2d)(const ddp_pool2d_args_t *args);
ddp_status_t DDP_ISA_NAME(pool2d_backward)(const ddp_pool2d_backward_args_t *args);
ddp_status_t DDP_ISA_NAME(nhwc_to_nchw)(const ddp_permute_args_t *args);
ddp_status_t DDP_ISA_NAME(cross_entropy)(const ddp_cross_entropy_args_t *args);
ddp_status_t DDP_ISA_NAME(mse)(const ddp_mse_args_t *args);
void         DDP_ISA_NAME(fill)(float *y, size_t count, float value);
void         DDP_ISA_NAME(axpy)(float alpha, const float *x, float *y, size_t count);
void         DDP_ISA_NAME(scale)(float alpha, float *y, size_t count);
void         DDP_ISA_NAME(sumsq)(const float *x, size_t count, double *sum_p);
ddp_status_t DDP_ISA_NAME(dropout)(const ddp_dropout_args_t *args);
ddp_status_t DDP_ISA_NAME(uniform)(const ddp_uniform_args_t *args);
ddp_status_t DDP_ISA_NAME(embedding)(const ddp_embedding_args_t *args);
ddp_status_t DDP_ISA_NAME(embedding_backward)(const ddp_embedding_backward_args_t *args);
ddp_status_t DDP_ISA_NAME(layer_norm)(const ddp_layer_norm_args_t *args);
ddp_status_t DDP_ISA_NAME(layer_norm_backward)(const ddp_layer_norm_backward_args_t *args);
ddp_status_t DDP_ISA_NAME(attention)(const ddp_attention_args_t *args);
ddp_status_t DDP_ISA_NAME(attention_backward)(const ddp_attention_backward_args_t *args);
ddp_status_t DDP_ISA_NAME(attention_cached)(const ddp_attention_cached_args_t *args);
ddp_status_t DDP_ISA_NAME(attention_keep)(const ddp_attention_cached_args_t *args);
ddp_status_t DDP_ISA_NAME(head_cross_entropy)(const ddp_head_cross_entropy_args_t *args);
ddp_status_t DDP_ISA_NAME(head_logits)(const ddp_head_logits_args_t *args);
ddp_status_t DDP_ISA_NAME(head_backward)(const ddp_head_backward_args_t *args);
size_t       DDP_ISA_NAME(head_scratch_bytes)(size_t vocab);
ddp_status_t DDP_ISA_NAME(normal)(const ddp_normal_args_t *args);
ddp_status_t DDP_ISA_NAME(batch_norm)(const ddp_batch_norm_args_t *args);
ddp_status_t DDP_ISA_NAME(batch_norm_backward)(const ddp_batch_norm_backward_args_t *args);
ddp_status_t DDP_ISA_NAME(global_avg_pool)(const ddp_global_avg_pool_args_t *args);
ddp_status_t DDP_ISA_NAME(global_avg_pool_backward)(const ddp_global_avg_pool_backward_args_t *args);
void DDP_ISA_NAME(tree_sum)(const ddp_tree_program_t *program, float *dst, double *sumsq, size_t blocks);
bool DDP_ISA_NAME(tree_update)(const ddp_tree_program_t *program, const ddp_update_t *update, size_t blocks);
bool DDP_ISA_NAME(tree_average)(const ddp_tree_program_t *program, float *value, float momentum, float parts,
                                double *sumsq, size_t blocks);
void DDP_ISA_NAME(block_add)(float *dst, const float *src, size_t blocks);

#endif
