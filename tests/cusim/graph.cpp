/* Graphs: the list of what was captured, in the order of capture; a launch submits it again, each captured
 * stream to a stream of its own. */
#include "tests/cusim/graph.h"

#include <algorithm>
#include <stdlib.h>
#include <string.h>

typedef enum node_kind { WORK, RECORD, WAIT } node_kind_t;

typedef struct node {
    node_kind_t  kind;
    size_t       stream; /* number in the graph; 0 is the one that the capture began with */
    int          record; /* RECORD, WAIT: which */
    const char  *name;
    cusim_poll_t poll;
} node_t;

struct CUgraph_st {
    std::vector<CUstream_st *> streams; /* borrowed, only while captured */
    std::vector<node_t>        nodes;
    int                        records;
    bool                       is_open;
    bool                       is_broken;
};

struct CUgraphExec_st {
    std::vector<node_t>       nodes;
    std::vector<cudaStream_t> streams; /* [0] is NULL: the stream of the launch */
    std::vector<cudaEvent_t>  events;
    cudaEvent_t               finished; /* a graph runs once at a time */
};

/* What this thread captures, in a mode that looks after its other calls. */
static thread_local CUgraph_st *captured_here;

static size_t number_of(const CUgraph_st *graph, const CUstream_st *stream)
{
    return (size_t)(std::find(graph->streams.begin(), graph->streams.end(), stream) - graph->streams.begin());
}

bool cusim_capture_work(cudaStream_t stream, const char *name, const cusim_poll_t &poll)
{
    CUstream_st *s = cusim_stream(stream);
    cusim_lock   held;

    if (s->capture == NULL) {
        return false;
    }
    s->capture->nodes.push_back({WORK, number_of(s->capture, s), 0, name, poll});
    return true;
}

bool cusim_capture_record(cudaStream_t stream, cudaEvent_t event)
{
    CUstream_st *s = cusim_stream(stream);
    cusim_lock   held;

    event->capture = s->capture;
    if (s->capture == NULL) {
        return false;
    }
    event->captured = s->capture->records++;
    s->capture->nodes.push_back({RECORD, number_of(s->capture, s), event->captured, "record", nullptr});
    return true;
}

bool cusim_capture_wait(cudaStream_t stream, cudaEvent_t event)
{
    CUstream_st *s = cusim_stream(stream);
    cusim_lock   held;

    if (event->capture == NULL && s->capture == NULL) {
        return false;
    }
    if (event->capture == NULL || !event->capture->is_open ||
        (s->capture != NULL && s->capture != event->capture)) {
        if (s->capture != NULL) {
            s->capture->is_broken = true;
        }
        cusim_fail(cudaErrorStreamCaptureIsolation,
                   "cudaStreamWaitEvent between a capture and what is outside it");
        return true;
    }
    if (s->capture == NULL) {
        s->capture = event->capture;
        s->capture->streams.push_back(s);
    }
    s->capture->nodes.push_back({WAIT, number_of(s->capture, s), event->captured, "wait", nullptr});
    return true;
}

bool cusim_capture_forbids(cudaStream_t stream, const char *what)
{
    CUstream_st *s = cusim_stream(stream);

    if (s->capture == NULL) {
        return false;
    }
    s->capture->is_broken = true;
    cusim_fail(cudaErrorStreamCaptureUnsupported, "%s of a stream that is captured", what);
    return true;
}

bool cusim_capture_forbids_call(const char *what)
{
    if (captured_here == NULL) {
        return false;
    }
    cusim_lock held;
    captured_here->is_broken = true;
    cusim_fail(cudaErrorStreamCaptureUnsupported, "%s while this thread captures a stream", what);
    return true;
}

/* Whether all work happens before the end of the first stream. */
static bool is_joined(const CUgraph_st *graph)
{
    size_t                           count = graph->streams.size();
    std::vector<std::vector<size_t>> seen(count,
                                          std::vector<size_t>(count, 0)); /* by stream: how much of each */
    std::vector<std::vector<size_t>> at((size_t)graph->records);

    for (size_t i = 0; i < graph->nodes.size(); i++) {
        const node_t        &node  = graph->nodes[i];
        std::vector<size_t> &clock = seen[node.stream];
        if (node.kind == RECORD) {
            at[(size_t)node.record] = clock;
        } else if (node.kind == WAIT) {
            for (size_t k = 0; k < count; k++) {
                clock[k] = std::max(clock[k], at[(size_t)node.record][k]);
            }
        } else {
            clock[node.stream] = i + 1;
        }
    }
    for (size_t k = 0; k < count; k++) {
        if (seen[k][k] > seen[0][k]) {
            return false;
        }
    }
    return true;
}

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    CUgraph_st *graph = new CUgraph_st();
    cusim_lock  held;

    if (stream == NULL || stream->capture != NULL) {
        delete graph;
        return cusim_fail(cudaErrorIllegalState,
                          "cudaStreamBeginCapture of a stream that cannot be captured");
    }
    graph->is_open = true;
    graph->streams.push_back(stream);
    stream->capture = graph;
    captured_here   = mode == cudaStreamCaptureModeRelaxed ? NULL : graph;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    cusim_lock held;

    *status =
        cusim_stream(stream)->capture != NULL ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

/* A graph is never freed: events still name it. */
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph_p)
{
    static std::vector<CUgraph_st *> *graphs;
    cusim_lock                        held;
    CUgraph_st                       *graph = stream != NULL ? stream->capture : NULL;

    *graph_p = NULL;
    if (graph == NULL || graph->streams[0] != stream) {
        return cusim_fail(cudaErrorIllegalState,
                          "cudaStreamEndCapture of a stream whose capture did not begin there");
    }
    graphs = graphs != NULL ? graphs : new std::vector<CUgraph_st *>;
    graphs->push_back(graph);
    graph->is_open = false;
    captured_here  = NULL;
    for (CUstream_st *s : graph->streams) {
        s->capture = NULL;
    }
    if (graph->is_broken || getenv("CUSIM_CAPTURE_FAULT") != NULL) {
        return cusim_fail(cudaErrorStreamCaptureInvalidated,
                          "cudaStreamEndCapture: the capture was broken before");
    }
    if (!is_joined(graph)) {
        return cusim_fail(cudaErrorStreamCaptureUnjoined,
                          "cudaStreamEndCapture: a stream does not lead back to the first");
    }
    *graph_p = graph;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    return graph != NULL ? cudaSuccess : cusim_note(cudaErrorInvalidValue);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec_p, cudaGraph_t graph, unsigned long long flags)
{
    CUgraphExec_st *exec = new CUgraphExec_st();

    (void)flags;
    exec->nodes = graph->nodes;
    exec->streams.resize(graph->streams.size());
    exec->events.resize((size_t)graph->records);
    for (size_t i = 1; i < exec->streams.size(); i++) {
        cudaStreamCreateWithFlags(&exec->streams[i], cudaStreamNonBlocking);
    }
    for (cudaEvent_t &event : exec->events) {
        cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    }
    cudaEventCreateWithFlags(&exec->finished, cudaEventDisableTiming);
    *exec_p = exec;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec_p, cudaGraph_t graph,
                                          unsigned long long flags)
{
    return cudaGraphInstantiate(exec_p, graph, flags);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    cusim_wait_now(stream, exec->finished);
    for (const node_t &node : exec->nodes) {
        cudaStream_t target = node.stream == 0 ? stream : exec->streams[node.stream];
        switch (node.kind) {
        case WORK:
            cusim_enqueue_now(target, node.name, node.poll);
            break;
        case RECORD:
            cusim_record_now(exec->events[(size_t)node.record], target);
            break;
        case WAIT:
            cusim_wait_now(target, exec->events[(size_t)node.record]);
            break;
        }
    }
    cusim_record_now(exec->finished, stream);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    for (cudaStream_t stream : exec->streams) {
        if (stream != NULL) {
            cudaStreamDestroy(stream);
        }
    }
    delete exec;
    return cudaSuccess;
}
}
