#include "kernels/cuda/graphs.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "kernels/cuda/device_internal.h"

#define MOST_BYTES ((size_t)1 << 20) /* of a piece: some thousands of operations */
#define LEAST      4                 /* operations of a graph: fewer are launched as fast one by one */
#define SEEN       2048              /* pieces that came once and are remembered; more than a step has */

/* An operation; its arguments follow, padded with zeros to a multiple of 8. */
typedef struct kept {
    ddp_cuda_run_fn_t *run;
    size_t             bytes; /* of the arguments, padded */
} kept_t;

typedef struct piece {
    uint64_t        hash;
    unsigned char  *operations; /* owned, [bytes] */
    size_t          bytes;
    const void     *rounded; /* where parameters lay rounded; NULL: products rounded them */
    cudaGraphExec_t graph;   /* owned; NULL: it could not be captured */
} piece_t;

typedef struct ddp_cuda_graphs {
    ddp_graphs_report_t report;
    unsigned char      *kept; /* owned, [MOST_BYTES] */
    size_t              bytes, operations;
    bool                is_running; /* what was kept: operations run at once */
    uint64_t           *seen;       /* owned, [SEEN]: hashes, the oldest is overwritten */
    size_t              next_seen;
    piece_t            *pieces; /* owned, [DDP_GRAPHS_MOST] */
    size_t              n_pieces;
    bool                has_warned;
} ddp_cuda_graphs_t;

static ddp_cuda_graphs_t *graphs_of(const ddp_stream_t *stream)
{
    return stream->native != NULL ? ddp_cuda_lane_of(stream)->graphs : NULL;
}

static void free_graphs(ddp_cuda_graphs_t *graphs)
{
    for (size_t i = 0; graphs->pieces != NULL && i < graphs->n_pieces; i++) {
        if (graphs->pieces[i].graph != NULL) {
            (void)cudaGraphExecDestroy(graphs->pieces[i].graph);
        }
        free(graphs->pieces[i].operations);
    }
    free(graphs->pieces);
    free(graphs->seen);
    free(graphs->kept);
    free(graphs);
}

ddp_status_t ddp_cuda_graphs_open(ddp_stream_t *stream)
{
    ddp_status_t       status = DDP_OK;
    ddp_cuda_graphs_t *graphs = NULL;

    if (graphs_of(stream) != NULL) {
        return DDP_OK;
    }
    graphs = calloc(1, sizeof(*graphs));
    DDP_REQUIRE(graphs != NULL, DDP_ERR_NO_MEMORY, "no memory for graphs");
    graphs->kept   = malloc(MOST_BYTES);
    graphs->seen   = calloc(SEEN, sizeof(*graphs->seen));
    graphs->pieces = calloc(DDP_GRAPHS_MOST, sizeof(*graphs->pieces));
    DDP_REQUIRE(graphs->kept != NULL && graphs->seen != NULL && graphs->pieces != NULL, DDP_ERR_NO_MEMORY,
                "no memory for graphs");
    ddp_cuda_lane_of(stream)->graphs = graphs;
    graphs                           = NULL;
out:
    if (graphs != NULL) {
        free_graphs(graphs);
    }
    return status;
}

void ddp_cuda_graphs_close(ddp_stream_t *stream)
{
    ddp_cuda_graphs_t *graphs = graphs_of(stream);

    if (graphs != NULL && ddp_cuda_enter(stream->device) == DDP_OK) {
        free_graphs(graphs);
        ddp_cuda_lane_of(stream)->graphs = NULL;
    }
}

const ddp_graphs_report_t *ddp_cuda_graphs_report(const ddp_stream_t *stream)
{
    const ddp_cuda_graphs_t *graphs = graphs_of(stream);

    return graphs != NULL ? &graphs->report : NULL;
}

bool ddp_cuda_graphs_keeps(const ddp_stream_t *stream)
{
    const ddp_cuda_graphs_t *graphs = graphs_of(stream);

    return graphs != NULL && !graphs->is_running;
}

ddp_status_t ddp_cuda_graphs_keep(ddp_stream_t *stream, ddp_cuda_run_fn_t *run, const void *args,
                                  size_t bytes)
{
    ddp_status_t       status = DDP_OK;
    ddp_cuda_graphs_t *graphs = graphs_of(stream);
    const kept_t       kept   = {run, (bytes + 7) / 8 * 8};

    if (graphs->bytes + sizeof(kept) + kept.bytes > MOST_BYTES) {
        DDP_TRY(ddp_cuda_graphs_flush(stream));
    }
    memcpy(graphs->kept + graphs->bytes, &kept, sizeof(kept));
    memset(graphs->kept + graphs->bytes + sizeof(kept), 0, kept.bytes);
    memcpy(graphs->kept + graphs->bytes + sizeof(kept), args, bytes);
    graphs->bytes += sizeof(kept) + kept.bytes;
    graphs->operations++;
out:
    return status;
}

/* Of whole words: multiplied and folded (the multiplier is that of Knuth's MMIX generator). It chooses what
 * is compared, and says what came before. Never 0. */
static uint64_t hash_of(const unsigned char *bytes, size_t count, const void *rounded)
{
    uint64_t hash = count ^ (uintptr_t)rounded;

    for (size_t i = 0; i < count; i += sizeof(uint64_t)) {
        uint64_t word;

        memcpy(&word, bytes + i, sizeof(word));
        hash = (hash ^ word) * 6364136223846793005U;
        hash ^= hash >> 29;
    }
    return hash | 1;
}

static ddp_status_t run_kept(ddp_stream_t *stream)
{
    ddp_status_t             status = DDP_OK;
    const ddp_cuda_graphs_t *graphs = graphs_of(stream);
    size_t                   at     = 0;

    while (at < graphs->bytes) {
        kept_t                                kept;
        _Alignas(DDP_ALIGNMENT) unsigned char args[DDP_WORK_ARGS_BYTES];

        memcpy(&kept, graphs->kept + at, sizeof(kept));
        memcpy(args, graphs->kept + at + sizeof(kept), kept.bytes);
        at += sizeof(kept) + kept.bytes;
        DDP_TRY(kept.run(stream, args));
    }
out:
    return status;
}

static const void *rounded_for(const ddp_stream_t *stream)
{
    const ddp_cuda_rounded_t *rounded = &ddp_cuda_of(stream->device)->rounded;

    return rounded->stream == stream ? rounded->memory : NULL;
}

static const piece_t *find_piece(const ddp_stream_t *stream, uint64_t hash)
{
    const ddp_cuda_graphs_t *graphs  = graphs_of(stream);
    const void              *rounded = rounded_for(stream);

    for (size_t i = 0; i < graphs->n_pieces; i++) {
        const piece_t *piece = &graphs->pieces[i];

        if (piece->hash == hash && piece->bytes == graphs->bytes && piece->rounded == rounded &&
            memcmp(piece->operations, graphs->kept, graphs->bytes) == 0) {
            return piece;
        }
    }
    return NULL;
}

/* Whether it came before; it has now. */
static bool was_seen(ddp_cuda_graphs_t *graphs, uint64_t hash)
{
    for (size_t i = 0; i < SEEN; i++) {
        if (graphs->seen[i] == hash) {
            return true;
        }
    }
    graphs->seen[graphs->next_seen] = hash;
    graphs->next_seen               = (graphs->next_seen + 1) % SEEN;
    return false;
}

static void warn(ddp_stream_t *stream, const char *why)
{
    ddp_cuda_graphs_t *graphs = graphs_of(stream);

    if (!graphs->has_warned) {
        ddp_log(DDP_LOG_WARN, "%s: some operations run without CUDA graphs: %s", stream->device->name, why);
        graphs->has_warned = true;
    }
}

/* The operations are captured, not run. @return NULL: they cannot be, which is said */
static cudaGraphExec_t capture(ddp_stream_t *stream)
{
    const ddp_device_t *device = stream->device;
    cudaStream_t        native = ddp_cuda_lane_of(stream)->stream;
    ddp_status_t        status = DDP_OK;
    cudaGraph_t         graph  = NULL;
    cudaGraphExec_t     exec   = NULL;
    cudaError_t         error;

    DDP_TRY_CUDA(device, cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal));
    status = run_kept(stream);
    error  = cudaStreamEndCapture(native, &graph); /* also after an error */
    DDP_TRY(status);
    if (error != cudaSuccess) {
        status = ddp_cuda_fail(device, error, "cudaStreamEndCapture");
        goto out;
    }
    DDP_TRY_CUDA(device, cudaGraphInstantiateWithFlags(&exec, graph, 0));
out:
    if (graph != NULL) {
        (void)cudaGraphDestroy(graph);
    }
    if (status != DDP_OK) { /* nothing has run: the stream is as before */
        (void)cudaGetLastError();
        stream->status = DDP_OK;
        warn(stream, ddp_error_line());
        exec = NULL;
    }
    return exec;
}

/* Remember the piece as a graph. @return NULL: no memory to do so */
static const piece_t *add_piece(ddp_stream_t *stream, uint64_t hash)
{
    ddp_cuda_graphs_t *graphs = graphs_of(stream);
    piece_t           *piece  = &graphs->pieces[graphs->n_pieces];

    if (graphs->n_pieces == DDP_GRAPHS_MOST) {
        warn(stream, "there are as many as are kept");
        return NULL;
    }
    *piece = (piece_t){.hash       = hash,
                       .operations = malloc(graphs->bytes),
                       .bytes      = graphs->bytes,
                       .rounded    = rounded_for(stream)};
    if (piece->operations == NULL) {
        return NULL;
    }
    memcpy(piece->operations, graphs->kept, graphs->bytes);
    piece->graph = capture(stream);
    graphs->n_pieces++;
    graphs->report.graphs += piece->graph != NULL ? 1 : 0;
    return piece;
}

static ddp_status_t submit(ddp_stream_t *stream)
{
    ddp_status_t       status = DDP_OK;
    ddp_cuda_graphs_t *graphs = graphs_of(stream);
    const piece_t     *piece  = NULL;
    uint64_t           hash   = 0;

    if (graphs->operations >= LEAST) {
        hash  = hash_of(graphs->kept, graphs->bytes, rounded_for(stream));
        piece = find_piece(stream, hash);
        if (piece == NULL && was_seen(graphs, hash)) {
            piece = add_piece(stream, hash);
        }
    }
    if (piece == NULL || piece->graph == NULL) {
        graphs->report.single += graphs->operations;
        DDP_TRY(run_kept(stream));
    } else {
        graphs->report.launches++;
        graphs->report.launched += graphs->operations;
        DDP_TRY_CUDA(stream->device, cudaGraphLaunch(piece->graph, ddp_cuda_lane_of(stream)->stream));
    }
out:
    return status;
}

ddp_status_t ddp_cuda_graphs_flush(ddp_stream_t *stream)
{
    ddp_status_t       status = DDP_OK;
    ddp_cuda_graphs_t *graphs = graphs_of(stream);

    if (graphs == NULL || graphs->is_running || graphs->operations == 0) {
        return DDP_OK;
    }
    graphs->is_running = true;
    status             = ddp_stream_status(stream);
    status             = status == DDP_OK ? ddp_cuda_enter(stream->device) : status;
    status             = status == DDP_OK ? submit(stream) : status;
    graphs->bytes      = 0;
    graphs->operations = 0;
    graphs->is_running = false;
    return status == DDP_OK ? DDP_OK : ddp_cuda_stream_fail(stream, status);
}
