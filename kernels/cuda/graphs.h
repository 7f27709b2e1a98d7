/**
 * @file Operations of a stream that come again and again, as CUDA graphs (ddp_stream_use_graphs()). Private.
 *
 * Operations are kept back with their arguments until the stream is asked for something else: all such ways
 * lead through ddp_cuda_graphs_flush(). What lies there then is a piece. A piece that comes for the second
 * time is captured while it is submitted, and from the third time on the graph is launched, if operations
 * and arguments are the same byte for byte; so whatever changes from step to step, or a model that does, is
 * seen, and runs one by one. Beside its arguments an operation depends only on whether parameters lie rounded
 * and where, which is part of a piece; what changes that ends a piece first (rounded.c). Scratch stays where
 * it was when a piece was captured.
 *
 * A graph has the order of the one stream it was captured from; what other streams wait for is recorded
 * between pieces.
 */
#ifndef DDP_CUDA_GRAPHS_H_
#define DDP_CUDA_GRAPHS_H_

#include "kernels/backend_internal.h"
#include "kernels/cuda/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/** As ddp_stream_use_graphs(). */
ddp_status_t ddp_cuda_graphs_open(ddp_stream_t *stream) DDP_NODISCARD;
/** What is kept back is dropped. */
void ddp_cuda_graphs_close(ddp_stream_t *stream);
/** NULL: not open. */
const ddp_graphs_report_t *ddp_cuda_graphs_report(const ddp_stream_t *stream);

/**
 * Give the device what is kept back.
 * @return what an operation says, which the stream then keeps: DDP_ERR_DEVICE, DDP_ERR_NO_MEMORY
 */
ddp_status_t ddp_cuda_graphs_flush(ddp_stream_t *stream) DDP_NODISCARD;

/** Whether operations are kept back now; else the caller runs its own. */
bool ddp_cuda_graphs_keeps(const ddp_stream_t *stream);
/** Runs an operation with its arguments. */
typedef ddp_status_t ddp_cuda_run_fn_t(ddp_stream_t *stream, const void *args);
/**
 * Keep an operation back.
 * @param [in] args   copied; bytes between members are 0
 * @param [in] bytes  at most DDP_WORK_ARGS_BYTES
 */
ddp_status_t ddp_cuda_graphs_keep(ddp_stream_t *stream, ddp_cuda_run_fn_t *run, const void *args,
                                  size_t bytes) DDP_NODISCARD;

#ifdef __cplusplus
}
#endif

#endif
