/* The optimizer's kernels against kernels/optim.h with the `plain` instruction set: the same bits. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/optim.h"
#include "tests/cuda/support.h"
#include "tests/support/ddp_test.h"

/* Registered in this order, in memory the other way round. Tensor 1 is a running average, 2 has no decay, 3
 * is used by nobody. */
#define TENSORS 4
#define BLOCKS  8
#define COUNT   (BLOCKS * DDP_BLOCK)
static const ddp_cuda_tensor_t tensors[TENSORS] = {
    {.first_block = 5, .blocks = 3},
    {.first_block = 4, .blocks = 1, .is_average = 1, .momentum = 0.1F},
    {.first_block = 2, .blocks = 2, .no_decay = 1},
    {.first_block = 0, .blocks = 2},
};
static const uint32_t used[1 + TENSORS] = {7 /* the request */, 1, 1, 1, 0};

#define LEAVES  5 /* micro-batches, of which the last has no samples */
#define PRESENT 4
#define RANKS   3
static const ddp_loss_stats_t leaves[LEAVES] = {
    {1.5F, 4, 1, 4}, {2.25F, 4, 2, 4}, {-0.3F, 3.7F, 0, 3}, {1e-3F, 3, 3, 3}, {0, 0, 0, 0}};

static const ddp_optim_config_t configs[] = {
    DDP_OPTIM_CONFIG_ADAMW,
    {.kind = DDP_OPTIM_SGD, .weight_decay = 0.01},
    {.kind = DDP_OPTIM_SGD, .momentum = 0.9, .weight_decay = 0.01},
    {.kind = DDP_OPTIM_SGD, .momentum = 0.9, .nesterov = true},
};
#define CONFIGS ((int)(sizeof(configs) / sizeof(*configs)))

/* As ddp_cuda_prepare_args_t and so on, in device memory. */
typedef struct model {
    ddp_cuda_tensors_t tensors;
    ddp_cuda_words_t   in;
    uint64_t          *steps;
    ddp_cuda_coef_t   *coef;
    float             *rank_scale;
    ddp_cuda_sums_t   *sums;
    uint32_t          *broken;
    double            *sumsq, *tensor_sum;
    float             *value, *slot[2], *grad;
} model_t;

static support_t s;
static model_t   m;
static float     value[COUNT], slot[2][COUNT], grad[COUNT], got[COUNT];
static uint64_t  steps[TENSORS];

static void set_up(void)
{
    static const float lr = 0.05F;
    uint32_t           of_block[BLOCKS];

    support_open(&s);
    for (uint32_t i = 0; i < TENSORS; i++) {
        steps[i] = i * 3; /* the first update of tensor 0 */
        for (uint32_t b = 0; b < tensors[i].blocks; b++) {
            of_block[tensors[i].first_block + b] = i;
        }
    }
    support_fill(value, COUNT, 1);
    support_fill(slot[0], COUNT, 2);
    support_fill(slot[1], COUNT, 3);
    support_fill(grad, COUNT, 4);
    for (size_t i = 0; i < COUNT; i++) {
        slot[1][i] *= slot[1][i];
    }
    m = (model_t){
        .tensors    = {support_upload(&s, tensors, sizeof(tensors)), TENSORS,
                       support_upload(&s, of_block, sizeof(of_block))},
        .in         = {support_upload(&s, leaves, sizeof(leaves)), support_upload(&s, &lr, sizeof(lr)),
                       support_upload(&s, used, sizeof(used))},
        .steps      = support_upload(&s, steps, sizeof(steps)),
        .coef       = support_upload(&s, NULL, TENSORS * sizeof(ddp_cuda_coef_t)),
        .rank_scale = support_upload(&s, NULL, RANKS * sizeof(float)),
        .sums       = support_upload(&s, NULL, sizeof(ddp_cuda_sums_t)),
        .broken     = support_upload(&s, NULL, sizeof(uint32_t)),
        .sumsq      = support_upload(&s, NULL, BLOCKS * sizeof(double)),
        .tensor_sum = support_upload(&s, NULL, TENSORS * sizeof(double)),
        .value      = support_upload(&s, value, sizeof(value)),
        .slot = {support_upload(&s, slot[0], sizeof(slot[0])), support_upload(&s, slot[1], sizeof(slot[1]))},
        .grad = support_upload(&s, grad, sizeof(grad)),
    };
}

static void tear_down(void)
{
    support_close(&s);
}

static ddp_cuda_sums_t prepare(const ddp_optim_config_t *config, bool average_ranks, bool two_phase)
{
    const ddp_cuda_prepare_args_t args = {
        .config        = config,
        .tensors       = m.tensors,
        .in            = m.in,
        .micro_batches = LEAVES,
        .present       = PRESENT,
        .ranks         = RANKS,
        .average_ranks = average_ranks,
        .two_phase     = two_phase,
        .steps         = m.steps,
        .coef          = m.coef,
        .rank_scale    = m.rank_scale,
        .sums          = m.sums,
        .broken        = m.broken,
    };
    ddp_cuda_sums_t sums;

    ddp_assert_ok(ddp_cuda_optim_prepare(s.on_cuda, &args));
    support_download(&s, &sums, m.sums, sizeof(sums));
    return sums;
}

static ddp_cuda_sums_t norm(bool two_phase, float clip_norm)
{
    const ddp_cuda_norm_args_t args = {
        .tensors    = m.tensors,
        .sumsq      = m.sumsq,
        .tensor_sum = m.tensor_sum,
        .two_phase  = two_phase,
        .clip_norm  = clip_norm,
        .steps      = m.steps,
        .coef       = m.coef,
        .sums       = m.sums,
    };
    ddp_cuda_sums_t sums;

    ddp_assert_ok(ddp_cuda_optim_norm(s.on_cuda, &args));
    support_download(&s, &sums, m.sums, sizeof(sums));
    return sums;
}

static void assert_steps(bool grown)
{
    uint64_t now[TENSORS];

    support_download(&s, now, m.steps, sizeof(now));
    for (size_t i = 0; i < TENSORS; i++) {
        ck_assert_uint_eq(now[i], steps[i] + (grown && used[1 + i] != 0 ? 1 : 0));
    }
}

/* Blocks first .. first + blocks - 1. */
static void update(const ddp_optim_config_t *config, size_t first, size_t blocks, bool wants_sumsq)
{
    const size_t                 at    = first * DDP_BLOCK;
    const size_t                 slots = ddp_optim_slots(config);
    const ddp_cuda_update_args_t args  = {
         .config      = config,
         .tensors     = m.tensors,
         .coef        = m.coef,
         .first_block = first,
         .blocks      = blocks,
         .grad        = m.grad + at,
         .value       = m.value + at,
         .slot        = {slots > 0 ? m.slot[0] + at : NULL, slots > 1 ? m.slot[1] + at : NULL},
         .sumsq       = wants_sumsq ? m.sumsq + first : NULL,
         .broken      = m.broken,
    };

    ddp_assert_ok(ddp_cuda_update(s.on_cuda, &args));
}

/* The same on the host: value, slot and *sumsq of tensor i. */
static bool update_on_host(const ddp_optim_config_t *config, const ddp_cuda_sums_t *sums, size_t i,
                           double *sumsq)
{
    const size_t             at         = tensors[i].first_block * (size_t)DDP_BLOCK;
    const int32_t            op[1]      = {0};
    const float             *source[1]  = {grad + at};
    const ddp_tree_program_t program    = {op, 1, source, NULL};
    ddp_optim_config_t       its_config = *config;
    const ddp_update_t       args       = {
                    .config     = &its_config,
                    .lr         = sums->lr,
                    .grad_scale = sums->grad_scale,
                    .step       = steps[i] + 1,
                    .param      = value + at,
                    .slot       = {slot[0] + at, slot[1] + at},
                    .sumsq      = sumsq,
    };

    its_config.weight_decay = tensors[i].no_decay ? 0.0 : config->weight_decay;
    if (tensors[i].is_average) {
        return ddp_tree_average(DDP_ISA_PLAIN, &program, value + at, tensors[i].momentum, PRESENT, sumsq,
                                tensors[i].blocks);
    }
    return ddp_tree_update(DDP_ISA_PLAIN, &program, &args, tensors[i].blocks);
}

START_TEST(updates_have_the_bits_of_the_plain_set)
{
    const ddp_optim_config_t *config = &configs[_i % CONFIGS];
    const ddp_cuda_sums_t     sums   = prepare(config, false, false);
    double                    sumsq[BLOCKS];
    double                    wanted[BLOCKS] = {0};
    uint32_t                  broken;

    ck_assert_float_eq(sums.grad_scale, (float)(1.0 / (4.0 + 4.0 + (double)3.7F + 3.0)));
    assert_steps(true);
    update(config, 0, 3, true); /* cut inside of a tensor, as slices are */
    update(config, 3, 0, true);
    update(config, 3, 5, _i < CONFIGS);
    for (size_t i = 0; i < TENSORS; i++) {
        ck_assert(used[1 + i] == 0 || update_on_host(config, &sums, i, wanted + tensors[i].first_block));
    }
    support_download(&s, got, m.value, sizeof(got));
    support_assert_same(got, value, sizeof(got), "parameters");
    for (size_t k = 0; k < ddp_optim_slots(config); k++) {
        support_download(&s, got, m.slot[k], sizeof(got));
        support_assert_same(got, slot[k], sizeof(got), "moments");
    }
    support_download(&s, sumsq, m.sumsq, sizeof(sumsq));
    support_assert_same(sumsq, wanted, (_i < CONFIGS ? 8 : 3) * sizeof(double), "sums of squares");
    support_download(&s, &broken, m.broken, sizeof(broken));
    ck_assert_uint_eq(broken, DDP_CUDA_NO_TENSOR);
}
END_TEST

START_TEST(sums_are_those_of_all_micro_batches)
{
    const ddp_cuda_sums_t sums   = prepare(&configs[0], true, true);
    double                loss   = 0;
    double                weight = 0;
    float                 scale[RANKS];

    for (size_t v = 0; v < PRESENT; v++) {
        loss += leaves[v].loss;
        weight += leaves[v].weight;
    }
    ck_assert(sums.loss == loss && sums.weight == weight && sums.correct == 6.0 && sums.counted == 14.0);
    ck_assert(sums.finite == 1 && sums.update == 1 && sums.request == 7 && sums.lr == 0.05F);
    ck_assert(isnan(sums.grad_norm) && sums.grad_scale == 1.0F);
    ck_assert_uint_eq(sums.broken, DDP_CUDA_NO_TENSOR);
    /* 5 micro-batches are dealt 2, 2, 1, and the last has no samples */
    support_download(&s, scale, m.rank_scale, sizeof(scale));
    ck_assert_float_eq(scale[0], (float)(1.0 / (3 * 8.0)));
    ck_assert_float_eq(scale[1], (float)(1.0 / (3 * ((double)3.7F + 3.0))));
    ck_assert_float_eq(scale[2], 0.0F);
    assert_steps(false); /* not before the norm is known */
}
END_TEST

START_TEST(a_loss_that_is_not_finite_changes_nothing)
{
    ddp_loss_stats_t bad[LEAVES];
    ddp_cuda_sums_t  sums;

    memcpy(bad, leaves, sizeof(bad));
    bad[2].loss = _i == 0 ? NAN : INFINITY;
    m.in.leaves = support_upload(&s, bad, sizeof(bad));
    sums        = prepare(&configs[0], false, false);
    ck_assert(sums.finite == 0 && sums.update == 0 && sums.grad_scale == 0.0F);
    update(&configs[0], 0, BLOCKS, true);
    ck_assert(isnan(norm(false, 0.0F).grad_norm));
    support_download(&s, got, m.value, sizeof(got));
    support_assert_same(got, value, sizeof(got), "parameters");
    assert_steps(false);
}
END_TEST

START_TEST(a_step_without_weight_changes_nothing)
{
    const ddp_loss_stats_t none[LEAVES] = {{0}};
    ddp_cuda_sums_t        sums;

    m.in.leaves = support_upload(&s, none, sizeof(none));
    sums        = prepare(&configs[2], false, false);
    ck_assert(sums.finite == 1 && sums.update == 0);
    update(&configs[2], 0, BLOCKS, false);
    support_download(&s, got, m.value, sizeof(got));
    support_assert_same(got, value, sizeof(got), "parameters");
    assert_steps(false);
}
END_TEST

/* sqrt of the sum of squares of the parameters' gradients, per tensor, tensors from the last to the first. */
static double norm_on_host(const ddp_cuda_sums_t *sums)
{
    double total = 0;

    for (size_t i = TENSORS; i-- > 0;) {
        const float             *source[1] = {grad + tensors[i].first_block * (size_t)DDP_BLOCK};
        const int32_t            op[1]     = {0};
        const ddp_tree_program_t program   = {op, 1, source, NULL};
        double                   sumsq[BLOCKS];
        double                   sum = 0;

        ddp_tree_sum_sumsq(DDP_ISA_PLAIN, &program, got, sumsq, tensors[i].blocks);
        for (size_t b = 0; b < tensors[i].blocks; b++) {
            sum += sumsq[b];
        }
        total += tensors[i].is_average ? 0 : sum;
    }
    return sqrt(total) * (double)sums->grad_scale;
}

START_TEST(the_norm_clips_in_the_second_phase)
{
    const ddp_optim_config_t *config = &configs[0];
    ddp_cuda_sums_t           sums   = prepare(config, false, true);
    const double              wanted = norm_on_host(&sums);
    const double              factor = (double)0.5F / (wanted + 1e-6);
    ddp_cuda_sums_t           clipped;

    ddp_assert_ok(ddp_cuda_block_sumsq(s.on_cuda, m.grad, m.sumsq, BLOCKS));
    clipped = norm(true, 0.5F);
    ck_assert(clipped.grad_norm == wanted && factor < 1.0);
    ck_assert(clipped.grad_scale == (float)((double)sums.grad_scale * factor));
    assert_steps(true);
    update(config, 0, BLOCKS, false);
    for (size_t i = 0; i < TENSORS; i++) {
        ck_assert(used[1 + i] == 0 || update_on_host(config, &clipped, i, NULL));
    }
    support_download(&s, got, m.value, sizeof(got));
    support_assert_same(got, value, sizeof(got), "parameters");
}
END_TEST

START_TEST(a_norm_below_the_limit_scales_nothing)
{
    const ddp_cuda_sums_t sums = prepare(&configs[0], false, true);

    ddp_assert_ok(ddp_cuda_block_sumsq(s.on_cuda, m.grad, m.sumsq, BLOCKS));
    ck_assert(norm(true, 1e3F).grad_scale == sums.grad_scale);
    assert_steps(true);
}
END_TEST

START_TEST(many_blocks_of_a_tensor_are_added_in_order)
{
    enum { MANY = 700 };
    const ddp_cuda_tensor_t tensor = {.first_block = 1, .blocks = MANY - 1};
    double                  sumsq[MANY];
    double                  wanted  = 0;
    const uint32_t          word[2] = {0, 1};

    for (size_t b = 0; b < MANY; b++) {
        sumsq[b] = 1.0 / (double)(b + 1); /* their order is seen in the sum */
        wanted += b > 0 ? sumsq[b] : 0.0;
    }
    m.tensors  = (ddp_cuda_tensors_t){support_upload(&s, &tensor, sizeof(tensor)), 1, NULL};
    m.in.words = support_upload(&s, word, sizeof(word));
    m.sumsq    = support_upload(&s, sumsq, sizeof(sumsq));
    (void)prepare(&configs[0], true, false);
    ck_assert(norm(false, 0.0F).grad_norm == sqrt(wanted));
}
END_TEST

START_TEST(a_gradient_that_is_not_finite_stops_the_second_phase)
{
    ddp_cuda_sums_t sums;

    grad[4 * DDP_BLOCK + 9] = INFINITY; /* of tensor 1, an average */
    grad[3 * DDP_BLOCK]     = NAN;      /* of tensor 2 */
    m.grad                  = support_upload(&s, grad, sizeof(grad));
    (void)prepare(&configs[0], false, true);
    ddp_assert_ok(ddp_cuda_block_sumsq(s.on_cuda, m.grad, m.sumsq, BLOCKS));
    sums = norm(true, 0.5F);
    ck_assert(sums.broken == 1 && sums.update == 0 && sums.finite == 1);
    update(&configs[0], 0, BLOCKS, false);
    support_download(&s, got, m.value, sizeof(got));
    support_assert_same(got, value, sizeof(got), "parameters");
    assert_steps(false);
}
END_TEST

START_TEST(an_update_names_the_first_tensor_that_is_not_finite)
{
    uint32_t broken;

    grad[3 * DDP_BLOCK + 255] = NAN;      /* of tensor 2 */
    grad[6 * DDP_BLOCK]       = INFINITY; /* of tensor 0 */
    grad[0]                   = NAN;      /* of tensor 3, which is not updated */
    m.grad                    = support_upload(&s, grad, sizeof(grad));
    (void)prepare(&configs[1], false, false);
    update(&configs[1], 0, 4, _i != 0);
    support_download(&s, &broken, m.broken, sizeof(broken));
    ck_assert_uint_eq(broken, 2);
    update(&configs[1], 4, 4, _i != 0);
    support_download(&s, &broken, m.broken, sizeof(broken));
    ck_assert_uint_eq(broken, 0);
}
END_TEST

/* Arenas 0 and 1 are this rank's, two more sources came from others. */
static const ddp_cuda_source_t sources[4] = {{0, 0, 0}, {1, 0, 1}, {0, 1, 0}, {1, 1, 2}};

static void check_tree(const int32_t *op, size_t length, bool scaled)
{
    const size_t         arena    = 5 * DDP_BLOCK; /* block 3 is the first of those summed */
    const size_t         received = 3 * DDP_BLOCK;
    float                host[2][2 * 5 * DDP_BLOCK];
    const float          scale[RANKS]    = {0.5F, 0.3F, 1.7F};
    const float         *pointer[4]      = {host[0], host[1], host[0] + arena, host[1] + received};
    const float          source_scale[4] = {0.5F, 0.3F, 0.5F, 1.7F};
    ddp_tree_program_t   program         = {op, length, pointer, scaled ? source_scale : NULL};
    ddp_cuda_tree_args_t args            = {
                   .op              = support_upload(&s, op, length * sizeof(*op)),
                   .length          = length,
                   .source          = support_upload(&s, sources, sizeof(sources)),
                   .arena_stride    = arena,
                   .received_stride = received,
                   .rank_scale      = scaled ? support_upload(&s, scale, sizeof(scale)) : NULL,
                   .tensors         = m.tensors,
                   .first_block     = 3,
                   .blocks          = 3,
    };
    float wanted[3 * DDP_BLOCK];

    support_fill(host[0], 2 * arena, 11);
    support_fill(host[1], 2 * received, 12);
    args.arenas   = support_upload(&s, host[0], 2 * arena * sizeof(float));
    args.received = support_upload(&s, host[1], 2 * received * sizeof(float));
    args.to       = (float *)args.arenas;
    ddp_assert_ok(ddp_cuda_tree_sum(s.on_cuda, &args));
    support_download(&s, got, args.to, sizeof(wanted));
    ddp_tree_sum(DDP_ISA_PLAIN, &program, wanted, 3);
    if (scaled) { /* block 4 is an average's */
        program.scale = NULL;
        for (size_t k = 0; k < 4; k++) {
            pointer[k] += DDP_BLOCK;
        }
        ddp_tree_sum(DDP_ISA_PLAIN, &program, wanted + DDP_BLOCK, 1);
    }
    support_assert_same(got, wanted, sizeof(wanted), "tree sum");
}

START_TEST(a_tree_sum_has_the_bits_of_the_plain_set)
{
    static const int32_t balanced[] = {0, 1, DDP_TREE_ADD, 2, 3, DDP_TREE_ADD, DDP_TREE_ADD};
    static const int32_t deep[]     = {3, 1, 2, 0, DDP_TREE_ADD, DDP_TREE_ADD, DDP_TREE_ADD};
    static const int32_t single[]   = {1};

    check_tree(balanced, 7, _i != 0);
    check_tree(deep, 7, _i != 0);
    check_tree(single, 1, _i != 0);
    check_tree(single, 0, _i != 0);
}
END_TEST

START_TEST(blocks_are_added_and_scaled)
{
    const float           scale[RANKS] = {1.0F, 0.3F, 1.0F};
    ddp_cuda_scale_args_t args         = {.tensors = m.tensors, .rank = 1, .first_block = 3, .blocks = 5};

    args.rank_scale = support_upload(&s, scale, sizeof(scale));
    args.x          = m.grad + 3 * DDP_BLOCK;
    ddp_assert_ok(ddp_cuda_block_add(s.on_cuda, m.value, m.grad, BLOCKS));
    ddp_assert_ok(ddp_cuda_scale_blocks(s.on_cuda, &args));
    ddp_block_add(DDP_ISA_PLAIN, value, grad, BLOCKS);
    for (size_t i = 3 * DDP_BLOCK; i < COUNT; i++) {
        grad[i] *= i / DDP_BLOCK == 4 ? 1.0F : 0.3F;
    }
    support_download(&s, got, m.value, sizeof(got));
    support_assert_same(got, value, sizeof(got), "sum of blocks");
    support_download(&s, got, m.grad, sizeof(got));
    support_assert_same(got, grad, sizeof(got), "scaled blocks");
}
END_TEST

START_TEST(bfloat16_on_the_wire_rounds_to_even_and_counts_what_does_not_fit)
{
    static const struct {
        float    value;
        uint16_t bits;
    } known[] = {{1.0F, 0x3f80},        {1.00390625F, 0x3f80}, /* a tie, to even */
                 {1.01171875F, 0x3f82},                        /* a tie, to even */
                 {1.00390637F, 0x3f81}, {-2.5F, 0xc020},       {1e-40F, 0x0001},  {INFINITY, 0x7f80},
                 {3.4e38F, 0x7f80},     {-3.4e38F, 0xff80},    {3.38e38F, 0x7f7e}};
    uint16_t  bits[2 * DDP_BLOCK];
    uint64_t  counts[4] = {5, 6, 7, 8};
    uint64_t *d_counts  = support_upload(&s, counts, sizeof(counts));
    uint16_t *d_bits    = support_upload(&s, NULL, sizeof(bits));
    size_t    finite[2] = {0, 0}; /* in each block */

    for (size_t k = 0; k < sizeof(known) / sizeof(*known); k++) {
        grad[DDP_BLOCK - 3 + k] = known[k].value;
    }
    grad[7] = NAN;
    m.grad  = support_upload(&s, grad, sizeof(grad));
    ddp_assert_ok(ddp_cuda_to_bf16(s.on_cuda, m.grad, d_bits, 2, &d_counts[0]));
    for (size_t first = 0; first < 3; first++) { /* all, the second block, none */
        const ddp_cuda_from_bf16_args_t back = {d_bits, m.value, 2, first, 2 - first, &d_counts[1 + first]};

        ddp_assert_ok(ddp_cuda_from_bf16(s.on_cuda, &back));
    }
    support_download(&s, bits, d_bits, sizeof(bits));
    support_download(&s, got, m.value, sizeof(bits) * 2);
    support_download(&s, counts, d_counts, sizeof(counts));
    for (size_t k = 0; k < sizeof(known) / sizeof(*known); k++) {
        ck_assert_msg(bits[DDP_BLOCK - 3 + k] == known[k].bits, "%g becomes %04x, not %04x",
                      (double)known[k].value, bits[DDP_BLOCK - 3 + k], known[k].bits);
    }
    for (size_t i = 0; i < 2 * DDP_BLOCK; i++) {
        const uint32_t wide = (uint32_t)bits[i] << 16;

        support_assert_same(&got[i], &wide, sizeof(wide), "from bfloat16");
        finite[i / DDP_BLOCK] += isfinite(got[i]) ? 1 : 0;
    }
    ck_assert_uint_eq(counts[0], 5 + 2);
    ck_assert_uint_eq(counts[1], 6 + 2 * DDP_BLOCK - finite[0] - finite[1]);
    ck_assert_uint_eq(counts[2], 7 + DDP_BLOCK - finite[1]);
    ck_assert_uint_eq(counts[3], 8);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda optim");
    TCase *tc    = tcase_create("optim");

    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, updates_have_the_bits_of_the_plain_set, 0, 2 * CONFIGS);
    tcase_add_test(tc, sums_are_those_of_all_micro_batches);
    tcase_add_loop_test(tc, a_loss_that_is_not_finite_changes_nothing, 0, 2);
    tcase_add_test(tc, a_step_without_weight_changes_nothing);
    tcase_add_test(tc, the_norm_clips_in_the_second_phase);
    tcase_add_test(tc, a_norm_below_the_limit_scales_nothing);
    tcase_add_test(tc, many_blocks_of_a_tensor_are_added_in_order);
    tcase_add_test(tc, a_gradient_that_is_not_finite_stops_the_second_phase);
    tcase_add_loop_test(tc, an_update_names_the_first_tensor_that_is_not_finite, 0, 2);
    tcase_add_loop_test(tc, a_tree_sum_has_the_bits_of_the_plain_set, 0, 2);
    tcase_add_test(tc, blocks_are_added_and_scaled);
    tcase_add_test(tc, bfloat16_on_the_wire_rounds_to_even_and_counts_what_does_not_fit);
    suite_add_tcase(suite, tc);
    return ddp_test_run(suite);
}
