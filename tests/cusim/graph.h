/**
 * @file Capture of streams into graphs: while a stream is captured its work goes into the graph's list.
 */
#ifndef DDP_GRAPH_H_
#define DDP_GRAPH_H_

#include "tests/cusim/runtime.h"

/** Whether the stream is captured; if so, the operation is in the graph now. */
bool cusim_capture_work(cudaStream_t stream, const char *name, const cusim_poll_t &poll);
bool cusim_capture_record(cudaStream_t stream, cudaEvent_t event);
/** A stream that waits for an event of a capture joins the capture. */
bool cusim_capture_wait(cudaStream_t stream, cudaEvent_t event);
/** Whether this thread captures and so must not call `what`, which is not work of a stream: the capture is
 * broken. */
bool cusim_capture_forbids_call(const char *what);
/** Whether the stream is captured, so that `what` is not allowed: the capture is broken. With the lock held.
 */
bool cusim_capture_forbids(cudaStream_t stream, const char *what);

#endif /* DDP_GRAPH_H_ */
