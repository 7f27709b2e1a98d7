/* The model: a step on other nodes as a chain of events. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "launcher/plan.h"

/* Passes over memory: AdamW reads gradient, parameter and two moments and writes three of them; a summand
 * more is one read; joining two subtrees of a rank reads two and writes one. */
#define UPDATE_PASSES 7.0
#define SUM_PASSES    1.0
#define MERGE_PASSES  3.0

static double merge_passes(double micro_batches)
{
    return MERGE_PASSES * (micro_batches > 1 ? micro_batches - 1 : 0);
}

/* Of a rank, for each byte of gradients: its slice of the node's sum and update, its own subtrees. */
static double passes(double ranks, double micro_batches)
{
    return (UPDATE_PASSES + SUM_PASSES * (ranks - 1)) / ranks + merge_passes(micro_batches);
}

typedef struct work {
    double sum_s, update_s; /* for a byte */
} work_t;

static double most_of(double micro_batches, double ranks)
{
    return ceil(micro_batches / ranks);
}

static double total_bytes(const ddp_plan_run_t *run)
{
    double bytes = 0;

    for (size_t b = 0; b < run->n; b++) {
        bytes += run->bucket[b].bytes;
    }
    return bytes;
}

/* Work is memory's: what the run took, by passes. */
static work_t work_of(const ddp_plan_run_t *run, const ddp_plan_place_t *place)
{
    const double measured = passes((double)run->ranks / (double)run->machines,
                                   most_of((double)run->micro_batches, (double)run->ranks));
    const double bytes    = total_bytes(run);
    const double pass     = bytes > 0 ? run->work_s / (bytes * measured) : 0;
    const double ranks    = (double)place->ranks;

    return (work_t){pass * (SUM_PASSES * (ranks - 1) / ranks + merge_passes((double)place->most)),
                    pass * UPDATE_PASSES / ranks};
}

/* Join buckets of the run while they stay below the cap. @param [out] joined  [run->n] */
static size_t join(const ddp_plan_run_t *run, double cap, ddp_plan_bucket_t *joined)
{
    size_t n = 0;

    for (size_t b = 0; b < run->n; b++) {
        if (n > 0 && joined[n - 1].bytes + run->bucket[b].bytes <= cap) {
            joined[n - 1].bytes += run->bucket[b].bytes;
            joined[n - 1].before_s = run->bucket[b].before_s; /* the last one decides */
        } else {
            joined[n++] = run->bucket[b];
        }
    }
    return n;
}

/* Of one bucket between the nodes. */
static double wire_s(const ddp_plan_run_t *run, const ddp_plan_place_t *place, double bytes,
                     ddp_exchange_kind_t *kind_p)
{
    ddp_link_work_t work = {.kind     = run->exchange,
                            .machines = (int)place->nodes,
                            .ranks    = (int)place->ranks,
                            .bytes    = bytes,
                            .nodes    = 1,
                            .segments = 1}; /* --link has no overhead that would count them */

    if (run->exchange == DDP_EXCHANGE_MEASURED) {
        work.kind = ddp_link_choose(&place->link, &work);
    } else if (run->exchange == DDP_EXCHANGE_AUTO) {
        work.kind = DDP_EXCHANGE_DIRECT;
    }
    *kind_p = work.kind;
    return ddp_link_between_s(&place->link, &work);
}

/* A bucket's course. */
typedef struct course {
    double back_s;   /* when its sum over all nodes is there */
    double update_s; /* work that is left then */
} course_t;

/* The compute thread adds up and updates between operations of backward, which that makes longer. */
static void on_thread(const ddp_plan_run_t *run, const ddp_plan_place_t *place,
                      const ddp_plan_bucket_t *bucket, size_t n, course_t *course, ddp_plan_time_t *time)
{
    const work_t work      = work_of(run, place);
    double       inserted  = 0; /* work so far */
    double       wire_free = 0;
    double       end;
    size_t       updated = 0;

    for (size_t b = 0; b < n; b++) {
        double              now  = time->compute_s - bucket[b].before_s + inserted;
        ddp_exchange_kind_t kind = DDP_EXCHANGE_DIRECT;
        double              wire;

        for (; !run->is_late && updated < b && course[updated].back_s <= now; updated++) {
            inserted += course[updated].update_s;
            now += course[updated].update_s;
        }
        inserted += bucket[b].bytes * work.sum_s;
        now += bucket[b].bytes * work.sum_s;
        wire               = wire_s(run, place, bucket[b].bytes, &kind);
        wire_free          = fmax(wire_free, now) + wire;
        course[b].back_s   = place->nodes > 1 ? wire_free : now;
        course[b].update_s = bucket[b].bytes * work.update_s;
        time->wire_s += wire;
        time->work_s += bucket[b].bytes * (work.sum_s + work.update_s);
        time->kind = kind;
    }
    end          = time->compute_s + inserted;
    time->step_s = run->is_late && n > 0 ? fmax(end, course[n - 1].back_s) : end;
    for (; updated < n; updated++) {
        time->step_s = fmax(time->step_s, course[updated].back_s) + course[updated].update_s;
    }
    time->exposed_s = time->step_s - end;
}

/* The work has a stream of its own, one bucket after the other. */
static void on_stream(const ddp_plan_run_t *run, const ddp_plan_place_t *place,
                      const ddp_plan_bucket_t *bucket, size_t n, ddp_plan_time_t *time)
{
    const work_t work = work_of(run, place);
    double       free = 0;
    double       late = 0; /* updates that wait for the last bucket */

    for (size_t b = 0; b < n; b++) {
        const double        ready  = time->compute_s - bucket[b].before_s;
        const double        update = bucket[b].bytes * work.update_s;
        ddp_exchange_kind_t kind   = DDP_EXCHANGE_DIRECT;
        const double        wire   = wire_s(run, place, bucket[b].bytes, &kind);

        free = fmax(free, ready) + bucket[b].bytes * work.sum_s + wire + (run->is_late ? 0 : update);
        late += run->is_late ? update : 0;
        time->wire_s += wire;
        time->work_s += bucket[b].bytes * work.sum_s + update;
        time->kind = kind;
    }
    time->step_s    = fmax(time->compute_s, free + late);
    time->exposed_s = time->step_s - time->compute_s;
}

ddp_status_t ddp_plan_step(const ddp_plan_run_t *run, const ddp_plan_place_t *place, ddp_plan_time_t *time_p)
{
    ddp_status_t       status = DDP_OK;
    ddp_plan_bucket_t *joined = calloc(run->n + 1, sizeof(*joined));
    course_t          *course = calloc(run->n + 1, sizeof(*course));
    ddp_plan_time_t    time   = {.kind = DDP_EXCHANGE_DIRECT};

    DDP_REQUIRE(joined != NULL && course != NULL, DDP_ERR_NO_MEMORY, "no memory for %zu buckets", run->n);
    time.buckets   = join(run, place->cap_bytes, joined);
    time.compute_s = (double)place->most * (run->forward_s + run->backward_s);
    if (run->is_gpu) {
        on_stream(run, place, joined, time.buckets, &time);
    } else {
        on_thread(run, place, joined, time.buckets, course, &time);
    }
    time.step_s += run->rest_s;
    if (place->nodes > 1) { /* sums of losses and flags, there and back, before the first update */
        time.step_s += 2 * place->link.latency_s;
        time.exposed_s += 2 * place->link.latency_s;
    }
    *time_p = time;
out:
    free(course);
    free(joined);
    return status;
}

/* The cap with the shortest step; the configured one among equals. */
static ddp_status_t find_cap(const ddp_plan_run_t *run, ddp_plan_place_t place, ddp_plan_row_t *row)
{
    static const double caps[DDP_PLAN_CAPS] = {1, 2, 5, 10, 25, 50, 100, 200}; /* MiB */
    ddp_status_t        status              = DDP_OK;

    row->best_cap_bytes = place.cap_bytes;
    row->best_step_s    = row->time.step_s;
    for (size_t i = 0; i < DDP_PLAN_CAPS; i++) {
        ddp_plan_time_t time;

        place.cap_bytes = caps[i] * 1048576.0;
        DDP_TRY(ddp_plan_step(run, &place, &time));
        if (time.step_s < row->best_step_s * (1 - 1e-6)) {
            row->best_step_s    = time.step_s;
            row->best_cap_bytes = place.cap_bytes;
        }
    }
out:
    return status;
}

/* One row. @param [in] alone_s  of a step of one rank with `micro_batches` micro-batches: [of all, of `few`]
 */
static ddp_status_t make_row(const ddp_plan_t *plan, double alone_s, ddp_plan_row_t *row)
{
    ddp_status_t          status = DDP_OK;
    const ddp_plan_run_t *run    = &plan->run;
    const size_t          few    = (size_t)most_of((double)run->micro_batches, (double)run->ranks);
    ddp_plan_place_t      place  = {.nodes     = row->nodes,
                                    .ranks     = plan->options.ranks,
                                    .link      = plan->options.link,
                                    .cap_bytes = run->cap_bytes,
                                    .most      = few};
    ddp_plan_place_t      one    = {.nodes = 1, .ranks = 1, .cap_bytes = run->cap_bytes, .most = few};
    ddp_plan_time_t       weak;
    ddp_plan_time_t       single;

    row->ranks       = row->nodes * plan->options.ranks;
    row->is_too_many = row->ranks > run->micro_batches;
    row->is_measured = row->ranks == run->ranks && row->nodes == run->machines;
    DDP_TRY(ddp_plan_step(run, &place, &weak));
    DDP_TRY(ddp_plan_step(run, &one, &single));
    row->weak = single.step_s / weak.step_s;
    if (!row->is_too_many) {
        row->most  = (size_t)most_of((double)run->micro_batches, (double)row->ranks);
        place.most = row->most;
        DDP_TRY(ddp_plan_step(run, &place, &row->time));
        row->samples_per_s = run->batch / row->time.step_s;
        row->speedup       = alone_s / row->time.step_s;
        row->efficiency    = row->speedup / (double)row->ranks;
        DDP_TRY(find_cap(run, place, row));
    }
out:
    return status;
}

ddp_status_t ddp_plan_make(ddp_plan_t *plan)
{
    ddp_status_t           status = DDP_OK;
    const ddp_plan_run_t  *run    = &plan->run;
    const ddp_plan_place_t one    = {
           .nodes = 1, .ranks = 1, .cap_bytes = run->cap_bytes, .most = run->micro_batches};
    ddp_plan_time_t alone;

    if (plan->options.ranks == 0) {
        plan->options.ranks = (run->ranks + run->machines - 1) / run->machines;
    }
    DDP_TRY(ddp_plan_step(run, &one, &alone));
    plan->n = plan->options.n_nodes;
    for (size_t i = 0; i < plan->n; i++) {
        plan->row[i]       = (ddp_plan_row_t){0};
        plan->row[i].nodes = plan->options.nodes[i];
        DDP_TRY(make_row(plan, alone.step_s, &plan->row[i]));
    }
out:
    return status;
}
