/**
 * @file Parameters that stay rounded. Products of bfloat16 and half precision round what goes into them
 * (ddp_precision_t), and parameters are the same in all micro-batches of a step: a cuda device can round them
 * once, and products then read the 16-bit numbers. The same bits either way. A matrix is read so where its
 * rows lie one behind the other and have a multiple of 8 columns; convolutions round for themselves. On other
 * devices, and with other precisions, all of this does nothing. Thread: the device's.
 */
#ifndef DDP_ROUNDED_H_
#define DDP_ROUNDED_H_

#include "kernels/device.h"
#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What ddp_rounded_open() takes. @param [in] count  elements */
DDP_API size_t ddp_rounded_bytes(ddp_device_kind_t kind, ddp_precision_t precision, size_t count);

/**
 * Room for the rounded numbers, one set of them at a time. Outside of steps.
 * @param [in] values  device, [count], at a block border; borrowed until ddp_rounded_close()
 * @param [in] count   elements, whole blocks (DDP_BLOCK)
 * @return DDP_ERR_NO_MEMORY, DDP_ERR_STATE: there is one already
 */
DDP_API ddp_status_t ddp_rounded_open(ddp_device_t *device, const float *values, size_t count,
                                      ddp_precision_t precision) DDP_NODISCARD;
/** No work that reads them is on its way. Nothing to do where nothing is open. */
DDP_API void ddp_rounded_close(ddp_device_t *device);

/** Round what `values` are now, in order of `stream`. Products that are given to this stream from now on read
 * that, until ddp_rounded_drop(). Not blocking. */
DDP_API ddp_status_t ddp_rounded_take(ddp_stream_t *stream) DDP_NODISCARD;
/** From now on products round for themselves again: `values` may change. Work that was submitted before is
 * not concerned, if what changes them waits for it. */
DDP_API void ddp_rounded_drop(ddp_device_t *device);

#ifdef __cplusplus
}
#endif

#endif
