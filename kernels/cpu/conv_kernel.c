#include "kernels/cpu/conv_internal.h"

#define BLOCK_PAIRS false
#include "kernels/cpu/conv_block.h"

void DDP_ISA_NAME(conv_product)(const ddp_conv_product_t *product)
{
    run_product(product);
}
