/* In place of cudnn_*.c where cudnn.h was not found, and in the stand-in, which has no cuDNN. */
#include "kernels/cuda/cudnn.h"

#include "base/error.h"

static const char reason[] = "cuDNN is not in this build";

const char *ddp_cudnn_absent(const ddp_device_t *device)
{
    (void)device;
    return reason;
}

bool ddp_cudnn_takes_attention(const ddp_device_t *device, const ddp_attention_args_t *args)
{
    (void)device;
    (void)args;
    return false;
}

size_t ddp_cudnn_attention_scratch_bytes(const ddp_device_t *device, const ddp_attention_args_t *args)
{
    (void)device;
    (void)args;
    return 0;
}

ddp_status_t ddp_cudnn_attention(ddp_stream_t *stream, const ddp_attention_args_t *args)
{
    (void)stream;
    (void)args;
    return ddp_fail(DDP_ERR_UNSUPPORTED, "attention: %s", reason);
}

ddp_status_t ddp_cudnn_attention_backward(ddp_stream_t *stream, const ddp_attention_backward_args_t *args)
{
    (void)stream;
    (void)args;
    return ddp_fail(DDP_ERR_UNSUPPORTED, "attention backward: %s", reason);
}

bool ddp_cudnn_takes_conv2d(const ddp_device_t *device, const ddp_conv2d_shape_t *shape)
{
    (void)device;
    (void)shape;
    return false;
}

size_t ddp_cudnn_conv2d_scratch_bytes(const ddp_device_t *device, const ddp_conv2d_shape_t *shape)
{
    (void)device;
    (void)shape;
    return 0;
}

ddp_status_t ddp_cudnn_conv2d(ddp_stream_t *stream, const ddp_conv2d_args_t *args)
{
    (void)stream;
    (void)args;
    return ddp_fail(DDP_ERR_UNSUPPORTED, "conv2d: %s", reason);
}

ddp_status_t ddp_cudnn_conv2d_backward(ddp_stream_t *stream, const ddp_conv2d_backward_args_t *args)
{
    (void)stream;
    (void)args;
    return ddp_fail(DDP_ERR_UNSUPPORTED, "conv2d backward: %s", reason);
}
