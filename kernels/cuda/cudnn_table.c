#include "kernels/cuda/cudnn_table.h"

#include "base/error.h"

ddp_status_t ddp_cudnn_status(const ddp_cudnn_table_t *table, cudnnStatus_t code, const char *call)
{
    char message[256] = "";

    if (code == CUDNN_STATUS_SUCCESS) {
        return DDP_OK;
    }
    table->last_error(message, sizeof(message));
    message[sizeof(message) - 1] = '\0';
    return ddp_fail(DDP_ERR_UNSUPPORTED, "%s: %s%s%s", call, table->error_string(code),
                    message[0] != '\0' ? ": " : "", message);
}
