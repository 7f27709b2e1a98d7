#include "kernels/cpu/gemm_internal.h"

#define TILE_PAIRS false
#include "kernels/cpu/gemm_tile.h"

void DDP_ISA_NAME(gemm_tile)(const ddp_gemm_tile_t *tile, size_t rows, bool a_transposed)
{
    tiles[rows - 1][(tile->columns - 1) / VL][a_transposed](tile);
}
