/**
 * @file The stand-in for cuBLASLt: what its descriptors hold. They lie in NVIDIA's own opaque structs, so
 * that the *Init() functions of the header work as well as *Create().
 */
#ifndef DDP_CUBLASLT_TYPES_H_
#define DDP_CUBLASLT_TYPES_H_

#include <cublasLt.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cusim_layout {
    int32_t  type; /* cudaDataType */
    int32_t  order;
    uint64_t rows;
    uint64_t cols;
    int64_t  ld;
    int32_t  batch;
    int64_t  stride; /* elements, from one matrix of the batch to the next */
} cusim_layout_t;

typedef struct cusim_matmul {
    int32_t     compute;
    int32_t     scale_type;
    int32_t     pointer_mode;
    int32_t     trans_a;
    int32_t     trans_b;
    uint32_t    epilogue;
    const void *bias;
    int64_t     bias_stride;
    int32_t     bias_type; /* -1: as D */
    int32_t     aux_type;  /* -1: as D */
    const void *aux;
    int64_t     aux_ld;
    int64_t     aux_stride;
} cusim_matmul_t;

typedef struct cusim_preference {
    uint64_t workspace;
    uint32_t reductions; /* schemes that are allowed */
    uint32_t align[4];   /* bytes, of A, B, C, D */
} cusim_preference_t;

/** What a heuristic chose; in a cublasLtMatmulAlgo_t. */
typedef struct cusim_algo {
    uint32_t id;      /* 0: made by nobody */
    uint32_t split_k; /* parts of K, summed at the end: other bits than one part */
    uint32_t align[4];
    uint64_t workspace;
} cusim_algo_t;

/** Everything that the product needs when the stream reaches it. */
typedef struct cusim_product {
    cusim_matmul_t matmul;
    cusim_layout_t a, b, c, d;
    cusim_algo_t   algo;
    const void    *a_data;
    const void    *b_data;
    const void    *c_data;
    void          *d_data;
    void          *workspace;
    const void    *alpha; /* read when it runs if the pointer mode is "device" */
    const void    *beta;
    float          alpha_value;
    float          beta_value;
} cusim_product_t;

/** Bytes of an element; 0: a type that the stand-in has not. */
size_t cusim_type_bytes(int32_t type);
/** D = epilogue(alpha op(A) op(B) + beta C), in float, products of K in order. */
void cusim_multiply(const cusim_product_t *product);

#endif /* DDP_CUBLASLT_TYPES_H_ */
