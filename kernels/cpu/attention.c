/*
 * Causal attention, tile by tile. Rows of queries are taken BLOCK at a time, the keys they see TILE at a
 * time; scores of one such tile are computed, used, and forgotten. Forward keeps a running maximum and sum
 * for each row and corrects the output when the maximum grows. Backward computes the scores again from the
 * rows' log_sum.
 */
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/philox.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/table.h"

#define BLOCK ((size_t)64)
#define TILE  ((size_t)256) /* a multiple of BLOCK */
#define PITCH (TILE + 16)   /* not a power of two */

/* Which weights of one head are kept. */
typedef struct drop {
    float    p;
    uint64_t stream; /* of random numbers */
    uint64_t row;    /* their counters' upper half: sequence and head */
} drop_t;

/* One head of one sequence. */
typedef struct head {
    const float    *q, *k, *v;
    float          *dq, *dk, *dv;
    const float    *dy;
    float          *y;
    float          *log_sum;
    size_t          ld, ldy; /* from row to row of qkv, and of y */
    size_t          width;
    float           scale;
    drop_t          drop;
    ddp_precision_t precision;
    float           beta_rows, beta_keys; /* 0: dq, and dk with dv, are not there yet */
} head_t;

/* Rows r0 .. r0 + rows - 1 of the queries, keys k0 .. k0 + keys - 1. Of a row's keys the first `i + seen`
 * count. */
typedef struct tile {
    size_t r0, rows, k0, keys, seen;
} tile_t;

static drop_t drop_at(const ddp_attention_args_t *args, size_t sequence, size_t h)
{
    if (args->dropout == 0.0F) {
        return (drop_t){.p = 0.0F};
    }
    return (drop_t){.p      = args->dropout,
                    .stream = ddp_philox_stream(&args->key, DDP_PHILOX_WEIGHTS),
                    .row    = args->first_row + sequence + ((uint64_t)h << 48)};
}

static head_t head_at(const ddp_attention_args_t *args, size_t sequence, size_t h)
{
    const size_t width = args->channels / args->heads;
    const float *q     = args->qkv + sequence * args->length * 3 * args->channels + h * width;

    return (head_t){
        .precision = args->precision,
        .q         = q,
        .k         = q + args->channels,
        .v         = q + 2 * args->channels,
        .y         = args->y + sequence * args->length * args->channels + h * width,
        .log_sum = args->log_sum == NULL ? NULL : args->log_sum + (sequence * args->heads + h) * args->length,
        .ld      = 3 * args->channels,
        .ldy     = args->channels,
        .width   = width,
        .scale   = (float)(1.0 / sqrt((double)width)),
        .drop    = drop_at(args, sequence, h)};
}

static tile_t tile_at(size_t r0, size_t length, size_t k0)
{
    const size_t rows = length - r0 < BLOCK ? length - r0 : BLOCK;
    const size_t end  = r0 + rows; /* of the keys that the last row sees */

    return (tile_t){
        .r0 = r0, .rows = rows, .k0 = k0, .keys = end - k0 < TILE ? end - k0 : TILE, .seen = r0 + 1 - k0};
}

/* Keys of the tile that row i sees. */
DDP_INLINE size_t tile_seen(const tile_t *tile, size_t i)
{
    return tile->seen + i < tile->keys ? tile->seen + i : tile->keys;
}

/* keep[j] = 0 or 1 / (1 - p) for the keys that row i of the tile sees, in whole groups; TILE has room for
 * them. */
static void keep_row(const drop_t *drop, const tile_t *tile, size_t i, float *keep)
{
    const size_t seen      = tile_seen(tile, i);
    const vi_t   threshold = vset1i((int32_t)ddp_philox_threshold(drop->p));
    const vf_t   factor    = vset1(1.0F / (1.0F - drop->p));

    for (size_t j = 0; j < seen; j += DDP_PHILOX_GROUP) {
        for (size_t half = 0; half < DDP_PHILOX_GROUP / 4; half += VL) {
            const uint64_t counter = (uint64_t)((tile->k0 + j) / 4 + half);
            vi_t           random[4];

            philox_lanes(drop->stream, counter | (uint64_t)(tile->r0 + i) << 32, drop->row, random);
            for (size_t word = 0; word < 4; word++) {
                vstore(keep + j + word * (DDP_PHILOX_GROUP / 4) + half,
                       vselect(philox_upper24(random[word]) < threshold, vset1(0.0F), factor));
            }
        }
    }
}

/* p *= keep for the first n */
static void apply_keep(const float *keep, size_t n, float *p)
{
    for (size_t j = 0; j < n; j += VL) {
        vstore_some(p + j, vload_some(p + j, n - j) * vload(keep + j), n - j);
    }
}

/* out[rows, keys] = alpha * a b^T for rows of a and b of `width` */
static ddp_status_t scores(const head_t *head, const tile_t *tile, const float *a, size_t lda, const float *b,
                           float alpha, float *out)
{
    const ddp_gemm_args_t args = {.transpose_b = true,
                                  .m           = tile->rows,
                                  .n           = tile->keys,
                                  .k           = head->width,
                                  .alpha       = alpha,
                                  .a           = a + tile->r0 * lda,
                                  .lda         = lda,
                                  .b           = b + tile->k0 * head->ld,
                                  .ldb         = head->ld,
                                  .c           = out,
                                  .ldc         = PITCH,
                                  .precision   = head->precision};

    return DDP_ISA_NAME(gemm)(&args);
}

/* to[rows, width] = beta * to + p[rows, keys] from[keys, width] */
static ddp_status_t mix(const head_t *head, const tile_t *tile, const float *p, const float *from, float beta,
                        float *to, size_t ldto)
{
    const ddp_gemm_args_t args = {.m         = tile->rows,
                                  .n         = head->width,
                                  .k         = tile->keys,
                                  .alpha     = 1.0F,
                                  .beta      = beta,
                                  .a         = p,
                                  .lda       = PITCH,
                                  .b         = from + tile->k0 * head->ld,
                                  .ldb       = head->ld,
                                  .c         = to + tile->r0 * ldto,
                                  .ldc       = ldto,
                                  .precision = head->precision};

    return DDP_ISA_NAME(gemm)(&args);
}

/* to[keys, width] = beta * to + p^T from[rows, width] */
static ddp_status_t spread(const head_t *head, const tile_t *tile, const float *p, const float *from,
                           size_t ldfrom, float beta, float *to)
{
    const ddp_gemm_args_t args = {.transpose_a = true,
                                  .m           = tile->keys,
                                  .n           = head->width,
                                  .k           = tile->rows,
                                  .alpha       = 1.0F,
                                  .beta        = beta,
                                  .a           = p,
                                  .lda         = PITCH,
                                  .b           = from + tile->r0 * ldfrom,
                                  .ldb         = ldfrom,
                                  .c           = to + tile->k0 * head->ld,
                                  .ldc         = head->ld,
                                  .precision   = head->precision};

    return DDP_ISA_NAME(gemm)(&args);
}

/* What a row has seen so far. */
typedef struct running {
    float  top;
    double sum;
} running_t;

/* Scores to exp(score - top), and what came before to the same top. A score that is not finite must be seen
 * in the result: exp() would make it look harmless. */
static void softmax_row(const head_t *head, const tile_t *tile, size_t i, float *s, running_t *run)
{
    float       *y    = head->y + (tile->r0 + i) * head->ldy;
    const size_t seen = tile_seen(tile, i);
    bool         has_nan;
    const float  largest = row_max(s, seen, &has_nan);
    const float  top     = largest > run->top || tile->k0 == 0 ? largest : run->top;

    if (has_nan || largest - largest != 0.0F) {
        run->sum = (double)NAN;
        DDP_ISA_NAME(fill)(s, tile->keys, NAN);
        return;
    }
    if (tile->k0 > 0 && top > run->top) {
        const float factor = vexp(vset1(run->top - top))[0];

        run->sum *= (double)factor;
        DDP_ISA_NAME(scale)(factor, y, head->width);
    }
    run->top = top;
    run->sum += row_exp(s, seen, top, s);
    if (head->drop.p > 0.0F) {
        float keep[TILE];

        keep_row(&head->drop, tile, i, keep);
        apply_keep(keep, seen, s);
    }
    DDP_ISA_NAME(fill)(s + seen, tile->keys - seen, 0.0F);
}

static ddp_status_t forward_block(const head_t *head, size_t r0, size_t length, float *s)
{
    ddp_status_t status = DDP_OK;
    running_t    run[BLOCK];
    tile_t       tile = tile_at(r0, length, 0);

    for (size_t i = 0; i < BLOCK; i++) {
        run[i] = (running_t){-INFINITY, 0.0};
    }
    for (size_t k0 = 0; k0 < r0 + tile.rows && status == DDP_OK; k0 += TILE) {
        tile   = tile_at(r0, length, k0);
        status = scores(head, &tile, head->q, head->ld, head->k, head->scale, s);
        if (status != DDP_OK) {
            return status;
        }
        for (size_t i = 0; i < tile.rows; i++) {
            softmax_row(head, &tile, i, s + i * PITCH, &run[i]);
        }
        status = mix(head, &tile, s, head->v, k0 > 0 ? 1.0F : 0.0F, head->y, head->ldy);
    }
    for (size_t i = 0; i < tile.rows; i++) {
        DDP_ISA_NAME(scale)((float)(1.0 / run[i].sum), head->y + (r0 + i) * head->ldy, head->width);
        if (head->log_sum != NULL) {
            head->log_sum[r0 + i] =
                isnan(run[i].sum) ? NAN : (float)((double)run[i].top + natural_log(run[i].sum));
        }
    }
    return status;
}

ddp_status_t DDP_ISA_NAME(attention)(const ddp_attention_args_t *args)
{
    ddp_status_t status  = DDP_OK;
    void        *scratch = NULL;

    status = ddp_cpu_scratch_get(BLOCK * PITCH * sizeof(float), &scratch);
    if (status != DDP_OK) {
        return status;
    }
    for (size_t i = 0; i < args->sequences * args->heads; i++) {
        const head_t head = head_at(args, i / args->heads, i % args->heads);

        for (size_t r0 = 0; r0 < args->length && status == DDP_OK; r0 += BLOCK) {
            status = forward_block(&head, r0, args->length, scratch);
        }
    }
    ddp_cpu_scratch_put();
    return status;
}

/* sum over the head's columns of y * dy: what every score of the row loses */
static float row_dot(const float *a, const float *b, size_t n)
{
    double total = 0.0;

    for (size_t first = 0; first < n; first += SUM_VECTORS * VL) {
        const size_t last = n - first < SUM_VECTORS * VL ? n : first + SUM_VECTORS * VL;
        vf_t         sum  = vset1(0.0F);

        for (size_t j = first; j < last; j += VL) {
            sum += vload_some(a + j, last - j) * vload_some(b + j, last - j);
        }
        total += (double)vsum(sum);
    }
    return (float)total;
}

/* Scores s to probabilities, and their gradient dp to that of q k: p * (dp - delta) * scale. */
static void backward_row(const tile_t *tile, size_t i, float *s, float *dp, float log_sum, float delta,
                         float scale)
{
    const size_t seen = tile_seen(tile, i);
    const bool   bad  = isnan(log_sum);

    for (size_t j = 0; j < seen; j += VL) {
        const vf_t p = bad ? vset1(NAN) : vexp(vload_some(s + j, seen - j) - vset1(log_sum));
        const vf_t d = p * (vload_some(dp + j, seen - j) - vset1(delta)) * vset1(scale);

        vstore_some(s + j, p, seen - j);
        vstore_some(dp + j, d, seen - j);
    }
    DDP_ISA_NAME(fill)(s + seen, tile->keys - seen, 0.0F);
    DDP_ISA_NAME(fill)(dp + seen, tile->keys - seen, 0.0F);
}

/* The same where some weights were dropped: dp is the gradient of the kept ones, and v is mixed by them. */
static void backward_row_dropped(const head_t *head, const tile_t *tile, size_t i, float *s, float *dp,
                                 float delta)
{
    const size_t seen = tile_seen(tile, i);
    float        keep[TILE];

    keep_row(&head->drop, tile, i, keep);
    apply_keep(keep, seen, dp);
    backward_row(tile, i, s, dp, head->log_sum[tile->r0 + i], delta, head->scale);
    apply_keep(keep, seen, s);
}

/* What one tile of one block adds to dq, dk and dv. */
static ddp_status_t backward_tile(const head_t *head, const tile_t *tile, const float *delta, float *s)
{
    float       *dp     = s + BLOCK * PITCH;
    ddp_status_t status = scores(head, tile, head->q, head->ld, head->k, head->scale, s);

    if (status == DDP_OK) {
        status = scores(head, tile, head->dy, head->ldy, head->v, 1.0F, dp);
    }
    if (status != DDP_OK) {
        return status;
    }
    for (size_t i = 0; i < tile->rows; i++) {
        if (head->drop.p > 0.0F) {
            backward_row_dropped(head, tile, i, s + i * PITCH, dp + i * PITCH, delta[i]);
        } else {
            backward_row(tile, i, s + i * PITCH, dp + i * PITCH, head->log_sum[tile->r0 + i], delta[i],
                         head->scale);
        }
    }
    status = spread(head, tile, s, head->dy, head->ldy, head->beta_keys, head->dv);
    if (status == DDP_OK) {
        status = spread(head, tile, dp, head->q, head->ld, head->beta_keys, head->dk);
    }
    if (status == DDP_OK) {
        status = mix(head, tile, dp, head->k, tile->k0 == 0 ? head->beta_rows : 1.0F, head->dq, head->ld);
    }
    return status;
}

static ddp_status_t backward_block(const head_t *head, size_t r0, size_t length, float *s)
{
    ddp_status_t status = DDP_OK;
    tile_t       tile   = tile_at(r0, length, 0);
    float        delta[BLOCK];

    for (size_t i = 0; i < tile.rows; i++) {
        const size_t at = (r0 + i) * head->ldy;

        delta[i] = row_dot(head->y + at, head->dy + at, head->width);
    }
    for (size_t k0 = 0; k0 < r0 + tile.rows && status == DDP_OK; k0 += TILE) {
        const tile_t part = tile_at(r0, length, k0);

        status = backward_tile(head, &part, delta, s);
    }
    return status;
}

ddp_status_t DDP_ISA_NAME(attention_backward)(const ddp_attention_backward_args_t *args)
{
    const ddp_attention_args_t *forward = &args->forward;
    const size_t                blocks  = (forward->length + BLOCK - 1) / BLOCK;
    ddp_status_t                status  = DDP_OK;
    void                       *scratch = NULL;

    status = ddp_cpu_scratch_get(2 * BLOCK * PITCH * sizeof(float), &scratch);
    if (status != DDP_OK) {
        return status;
    }
    for (size_t i = 0; i < forward->sequences * forward->heads; i++) {
        head_t head = head_at(forward, i / forward->heads, i % forward->heads);

        head.dq = args->dqkv + (head.q - forward->qkv);
        head.dk = head.dq + forward->channels;
        head.dv = head.dk + forward->channels;
        head.dy = args->dy + (head.y - forward->y);
        /* The last block sees all keys: from it on gradients are there to be added to. */
        head.beta_rows = args->accumulate ? 1.0F : 0.0F;
        head.beta_keys = head.beta_rows;
        for (size_t b = blocks; b-- > 0 && status == DDP_OK;) {
            status         = backward_block(&head, b * BLOCK, forward->length, scratch);
            head.beta_keys = 1.0F;
        }
    }
    ddp_cpu_scratch_put();
    return status;
}
