/* In place of kernels/cuda/cudnn_library.c: the stand-in computes with plain kernels. */
#include "base/error.h"
#include "kernels/cuda/cudnn_table.h"

ddp_status_t ddp_cudnn_table_open(ddp_cudnn_table_t *table)
{
    (void)table;
    return ddp_fail(DDP_ERR_STATE, "the stand-in for a GPU has no cuDNN");
}
