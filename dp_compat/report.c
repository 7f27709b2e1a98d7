/* What a step says of itself: pieces of time, phases, bytes and memory. */
#include <string.h>

#include "dp_compat/dp_internal.h"

const char *ddp_dp_phase_name(ddp_dp_phase_t phase)
{
    static const char *const names[DDP_DP_PHASES] = {"replicate", "scatter",  "forward", "gather",
                                                     "loss",      "backward", "reduce",  "optimizer"};

    return phase >= 0 && phase < DDP_DP_PHASES ? names[phase] : "unknown phase";
}

int64_t ddp_dp_enter(ddp_replica_t *replica, ddp_dp_phase_t phase)
{
    atomic_store_explicit(&replica->phase, (int)phase, memory_order_relaxed);
    ddp_dp_progressed(replica);
    return ddp_clock_ns();
}

void ddp_dp_leave(ddp_replica_t *replica, ddp_dp_phase_t phase, int64_t start_ns)
{
    const int64_t   now  = ddp_clock_ns();
    const size_t    n    = replica->n_pieces;
    ddp_dp_piece_t *last = n > 0 ? &replica->pieces[n - 1] : NULL;

    ddp_dp_progressed(replica);
    if (replica->dp->evaluates) {
        return;
    }
    if (last != NULL && last->phase == phase && last->round == replica->dp->round) {
        last->end_ns = now;
    } else if (n < replica->pieces_capacity) {
        replica->pieces[replica->n_pieces++] = (ddp_dp_piece_t){phase, replica->dp->round, start_ns, now};
    }
}

void ddp_dp_report_begin(ddp_dp_t *dp)
{
    for (size_t k = 0; k < dp->n; k++) {
        dp->replica[k].n_pieces       = 0;
        dp->replica[k].gathered_bytes = 0;
        dp->replica[k].reduced_bytes  = 0;
        memset(dp->replica[k].received_bytes, 0, sizeof(dp->replica[k].received_bytes));
    }
    dp->round    = 0;
    dp->start_ns = ddp_clock_ns();
}

/* When the last device had finished `phase` of a round; 0: nobody was in it. */
static int64_t phase_end(const ddp_dp_t *dp, size_t round, ddp_dp_phase_t phase)
{
    int64_t end = 0;

    for (size_t k = 0; k < dp->n; k++) {
        const ddp_replica_t *replica = &dp->replica[k];

        for (size_t i = 0; i < replica->n_pieces; i++) {
            const ddp_dp_piece_t *piece = &replica->pieces[i];

            if (piece->round == round && piece->phase == phase && piece->end_ns > end) {
                end = piece->end_ns;
            }
        }
    }
    return end;
}

/* Updates ran inside of the last phase before the reducer's last part: they are taken out of there. */
static void move_updates(ddp_dp_t *dp, int64_t step_end_ns, int64_t update_ns)
{
    ddp_replica_t  *first  = &dp->replica[0];
    ddp_dp_piece_t *last   = first->n_pieces > 0 ? &first->pieces[first->n_pieces - 1] : NULL;
    int64_t         inside = update_ns - (dp->end_ns - step_end_ns);

    if (last != NULL && inside > 0) {
        inside       = inside < last->end_ns - last->start_ns ? inside : last->end_ns - last->start_ns;
        last->end_ns = last->end_ns - inside;
        step_end_ns  = last->end_ns;
    }
    if (first->n_pieces < first->pieces_capacity) {
        first->pieces[first->n_pieces++] =
            (ddp_dp_piece_t){DDP_DP_OPTIMIZER, dp->rounds, step_end_ns, dp->end_ns};
    }
}

void ddp_dp_report_end(ddp_dp_t *dp, int64_t step_end_ns, int64_t update_ns)
{
    int64_t at = dp->start_ns;

    dp->end_ns = ddp_clock_ns();
    move_updates(dp, step_end_ns, update_ns);
    memset(dp->phase_ns, 0, sizeof(dp->phase_ns));
    for (size_t round = 0; round < dp->rounds; round++) {
        for (int p = 0; p < DDP_DP_OPTIMIZER; p++) {
            const int64_t end = phase_end(dp, round, (ddp_dp_phase_t)p);

            if (end > at) {
                dp->phase_ns[p] += end - at;
                at = end;
            }
        }
    }
    dp->phase_ns[DDP_DP_OPTIMIZER] = dp->end_ns - at;
}

/* Of its tapes for losses: the gradients of the gathered output. */
static size_t loss_bytes(const ddp_replica_t *replica)
{
    size_t bytes = 0;

    for (size_t k = 0; replica->loss_tapes != NULL && k < replica->dp->n; k++) {
        bytes += ddp_tape_held(replica->loss_tapes[k]).activations;
    }
    return bytes;
}

static ddp_dp_memory_t memory_of(const ddp_replica_t *replica)
{
    const ddp_dp_t           *dp     = replica->dp;
    const bool                first  = replica->index == 0;
    const ddp_device_memory_t device = ddp_device_memory(replica->device);
    const size_t              bytes  = ddp_params_total(dp->params.params) * sizeof(float);
    ddp_dp_memory_t           memory = {
                  .parameters = first ? dp->charged.parameter_bytes : bytes,
                  .gradients  = first ? dp->charged.gradient_bytes + dp->averages.bytes : bytes,
                  .moments = first && ddp_reducer_slot(dp->reducer, 0) != NULL ? dp->charged.moment_bytes : 0,
                  .activations = ddp_tape_held(replica->tape).activations,
                  .outputs = replica->gathered_memory.bytes + replica->output_grad.bytes + loss_bytes(replica),
                  .total   = device.held,
                  .peak    = device.peak,
                  .cap     = device.cap,
    };

    for (size_t i = 0; i < DDP_DP_MAX_INPUTS; i++) {
        memory.inputs += replica->input[i].bytes + replica->target[i].bytes;
    }
    memory.scratch = memory.total - memory.parameters - memory.gradients - memory.moments -
                     memory.activations - memory.outputs - memory.inputs;
    return memory;
}

static void count_sent(const ddp_dp_t *dp, size_t k, uint64_t *sent)
{
    for (size_t other = 0; other < dp->n; other++) {
        const ddp_replica_t *replica = &dp->replica[other];

        if (k == 0) {
            sent[DDP_DP_REPLICATE] += replica->received_bytes[DDP_DP_REPLICATE];
            sent[DDP_DP_SCATTER] += replica->received_bytes[DDP_DP_SCATTER];
        }
        sent[DDP_DP_LOSS] += k == dp->output ? replica->received_bytes[DDP_DP_LOSS] : 0;
    }
    sent[DDP_DP_GATHER] = dp->replica[k].gathered_bytes;
    sent[DDP_DP_REDUCE] = dp->replica[k].reduced_bytes;
}

static void report_device(const ddp_dp_t *dp, size_t k, ddp_dp_device_report_t *device)
{
    const ddp_replica_t *replica = &dp->replica[k];

    *device = (ddp_dp_device_report_t){.id = replica->id};
    if (replica->is_hung) {
        return; /* nobody knows what it does to its memory */
    }
    device->memory = memory_of(replica);
    memcpy(device->received_bytes, replica->received_bytes, sizeof(device->received_bytes));
    count_sent(dp, k, device->sent_bytes);
    for (size_t i = 0; i < replica->n_pieces; i++) {
        device->busy_ns[replica->pieces[i].phase] += replica->pieces[i].end_ns - replica->pieces[i].start_ns;
    }
}

void ddp_dp_report(const ddp_dp_t *dp, ddp_dp_report_t *report_p, ddp_dp_device_report_t *devices)
{
    *report_p =
        (ddp_dp_report_t){.n_devices = dp->n, .rounds = dp->rounds, .step_ns = dp->end_ns - dp->start_ns};
    memcpy(report_p->phase_ns, dp->phase_ns, sizeof(report_p->phase_ns));
    for (size_t k = 0; devices != NULL && k < dp->n; k++) {
        report_device(dp, k, &devices[k]);
    }
}

size_t ddp_dp_spans(const ddp_dp_t *dp, ddp_dp_span_t *spans, size_t capacity)
{
    size_t n = 0;

    for (size_t k = 0; k < dp->n; k++) {
        const ddp_replica_t *replica = &dp->replica[k];

        for (size_t i = 0; i < replica->n_pieces; i++, n++) {
            if (n < capacity) {
                spans[n] =
                    (ddp_dp_span_t){replica->pieces[i].phase, k, replica->pieces[i].start_ns - dp->start_ns,
                                    replica->pieces[i].end_ns - dp->start_ns};
            }
        }
    }
    return n;
}
