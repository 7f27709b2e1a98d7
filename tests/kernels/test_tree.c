#include "kernels/layout.h"
#include "kernels/optim.h"
#include "tests/kernels/kernel_fixture.h"

#define MAX_LEAVES 64
#define MAX_PARTS  8

static float leaf[MAX_LEAVES];

static void leaves_draw(uint64_t seed)
{
    for (size_t i = 0; i < MAX_LEAVES; i++) {
        leaf[i] = (float)(2.0 * fixture_next(&seed) - 1.0);
    }
}

static uint32_t tree_root(size_t leaves)
{
    uint32_t level = 0;

    while ((size_t)1 << level < leaves) {
        level++;
    }
    return level;
}

/* Sum of node (level, index) as optim.h defines it, leaf by leaf. @return whether it has a leaf */
static bool node_sum(size_t leaves, uint32_t level, uint32_t index, float *sum)
{
    float right;

    if ((size_t)index << level >= leaves) {
        return false;
    }
    if (level == 0) {
        *sum = leaf[index];
        return true;
    }
    (void)node_sum(leaves, level - 1, 2 * index, sum);
    if (node_sum(leaves, level - 1, 2 * index + 1, &right)) {
        *sum += right;
    }
    return true;
}

/* Value of a program of one float per source; NaN where it does not leave one value or needs too deep a
 * stack. */
static float program_value(const int32_t *op, size_t length, const float *source)
{
    float  stack[DDP_TREE_MAX_DEPTH];
    size_t depth = 0;

    for (size_t k = 0; k < length; k++) {
        if (op[k] == DDP_TREE_ADD) {
            if (depth < 2) {
                return NAN;
            }
            stack[depth - 2] += stack[depth - 1];
            depth--;
        } else {
            if (depth == DDP_TREE_MAX_DEPTH) {
                return NAN;
            }
            stack[depth++] = source[op[k]];
        }
    }
    return depth == 1 ? stack[0] : NAN;
}

typedef struct tiling {
    size_t   leaves, nodes;
    uint32_t level[2 * MAX_LEAVES];
    uint32_t index[2 * MAX_LEAVES];
} tiling_t;

static bool has_bits(float got, float wanted)
{
    return memcmp(&got, &wanted, sizeof(got)) == 0;
}

/* A rank's sum of one of its nodes, from its leaves alone. @return whether it has the bits of the whole
 * tree's */
static bool node_from_leaves(size_t leaves, uint32_t level, uint32_t index, float *sum)
{
    static const uint32_t zero[MAX_LEAVES];
    uint32_t              own[MAX_LEAVES];
    int32_t               op[2 * MAX_LEAVES];
    float                 source[MAX_LEAVES];
    float                 wanted;
    size_t                n      = 0;
    size_t                length = 0;

    for (size_t i = (size_t)index << level; i < leaves && i < ((size_t)index + 1) << level; i++) {
        own[n]      = (uint32_t)i;
        source[n++] = leaf[i];
    }
    if (ddp_tree_program_make(leaves, zero, own, n, op, &length) != DDP_OK) {
        return false;
    }
    *sum = program_value(op, length, source);
    return node_sum(leaves, level, index, &wanted) && has_bits(*sum, wanted);
}

static void check_tiling(const tiling_t *t)
{
    int32_t op[4 * MAX_LEAVES];
    float   source[2 * MAX_LEAVES];
    float   wanted = NAN;
    float   got    = NAN;
    size_t  length = 0;
    bool    right  = true;

    for (size_t k = 0; k < t->nodes; k++) {
        right = right && node_from_leaves(t->leaves, t->level[k], t->index[k], &source[k]);
    }
    right = right && ddp_tree_program_make(t->leaves, t->level, t->index, t->nodes, op, &length) == DDP_OK;
    if (right) {
        got   = program_value(op, length, source);
        right = node_sum(t->leaves, tree_root(t->leaves), 0, &wanted) && has_bits(got, wanted);
    }
    ck_assert_msg(right && length == 2 * t->nodes - 1, "%zu leaves in %zu nodes: %a instead of %a (%s)",
                  t->leaves, t->nodes, (double)got, (double)wanted, ddp_error_line());
}

/* Append the nodes of one rank; asserts that they are its leaves, each once. */
static void append_rank(tiling_t *t, size_t first, size_t count)
{
    const size_t n     = ddp_tree_nodes(t->leaves, first, count, t->level + t->nodes, t->index + t->nodes);
    size_t       at    = first;
    bool         right = n != 0 || count == 0;

    for (size_t k = t->nodes; k < t->nodes + n; k++) {
        right = right && (size_t)t->index[k] << t->level[k] == at;
        at    = ((size_t)t->index[k] + 1) << t->level[k];
    }
    right = right && (at == first + count || (first + count == t->leaves && at > t->leaves));
    ck_assert_msg(right, "leaves %zu to %zu of %zu", first, first + count, t->leaves);
    t->nodes += n;
}

/* Leaves cut behind each leaf i whose bit i of `cuts` is set. */
static void check_cuts(size_t leaves, uint64_t cuts)
{
    tiling_t t     = {.leaves = leaves};
    size_t   first = 0;

    for (size_t i = 0; i < leaves; i++) {
        if (i + 1 == leaves || (cuts >> i & 1) != 0) {
            append_rank(&t, first, i + 1 - first);
            first = i + 1;
        }
    }
    check_tiling(&t);
}

START_TEST(every_split_of_a_small_tree_gives_the_bits_of_the_whole)
{
    leaves_draw(1);
    for (size_t leaves = 1; leaves <= 12; leaves++) {
        for (uint64_t cuts = 0; cuts < (uint64_t)1 << (leaves - 1); cuts++) {
            if (__builtin_popcountll(cuts) < MAX_PARTS) {
                check_cuts(leaves, cuts);
            }
        }
    }
}
END_TEST

START_TEST(splits_of_larger_trees_give_the_bits_of_the_whole)
{
    uint64_t state = 3;

    for (size_t leaves = 13; leaves <= 40; leaves++) {
        leaves_draw(leaves);
        for (size_t a = 0; a + 1 < leaves; a++) {
            for (size_t b = a; b + 1 < leaves; b++) {
                check_cuts(leaves, (uint64_t)1 << a | (uint64_t)1 << b);
            }
        }
        for (size_t trial = 0; trial < 100; trial++) {
            uint64_t cuts = 0;

            for (int k = 0; k < MAX_PARTS - 1; k++) {
                cuts |= (uint64_t)1 << (size_t)(fixture_next(&state) * (double)leaves);
            }
            check_cuts(leaves, cuts);
        }
    }
}
END_TEST

static void random_tiling(tiling_t *t, uint32_t level, uint32_t index, uint64_t *state)
{
    if ((size_t)index << level >= t->leaves) {
        return;
    }
    if (level == 0 || fixture_next(state) < 0.3) {
        t->level[t->nodes]   = level;
        t->index[t->nodes++] = index;
        return;
    }
    random_tiling(t, level - 1, 2 * index, state);
    random_tiling(t, level - 1, 2 * index + 1, state);
}

START_TEST(any_tiling_by_nodes_gives_the_bits_of_the_whole)
{
    uint64_t state = 4;

    for (size_t leaves = 1; leaves <= MAX_LEAVES; leaves++) {
        leaves_draw(leaves);
        for (int trial = 0; trial < 50; trial++) {
            tiling_t t = {.leaves = leaves};

            random_tiling(&t, tree_root(leaves), 0, &state);
            check_tiling(&t);
        }
    }
}
END_TEST

START_TEST(a_tree_with_absent_leaves_at_its_end_is_the_smaller_tree)
{
    uint32_t zero[MAX_LEAVES] = {0};
    uint32_t index[MAX_LEAVES];
    int32_t  large[2 * MAX_LEAVES];
    int32_t  small[2 * MAX_LEAVES];
    size_t   large_length;
    size_t   small_length;

    for (uint32_t i = 0; i < MAX_LEAVES; i++) {
        index[i] = i;
    }
    for (size_t leaves = 1; leaves <= MAX_LEAVES; leaves++) {
        for (size_t present = 1; present <= leaves; present++) {
            ddp_assert_ok(ddp_tree_program_make(leaves, zero, index, present, large, &large_length));
            ddp_assert_ok(ddp_tree_program_make(present, zero, index, present, small, &small_length));
            ck_assert_uint_eq(large_length, small_length);
            ck_assert_mem_eq(large, small, small_length * sizeof(*small));
        }
    }
}
END_TEST

START_TEST(nodes_are_the_largest_and_few)
{
    uint32_t level[2 * 64];
    uint32_t index[2 * 64];

    ck_assert_uint_eq(ddp_tree_nodes(8, 4, 4, level, index), 1);
    ck_assert(level[0] == 2 && index[0] == 1);
    ck_assert_uint_eq(ddp_tree_nodes(5, 4, 1, level, index), 1);
    ck_assert(level[0] == 2 && index[0] == 1);
    ck_assert_uint_eq(ddp_tree_nodes(5, 0, 5, level, index), 1);
    ck_assert(level[0] == 3 && index[0] == 0);
    ck_assert_uint_eq(ddp_tree_nodes(8, 1, 6, level, index), 4);
    ck_assert_uint_eq(ddp_tree_nodes(8, 3, 0, level, index), 0);
    ck_assert_uint_eq(ddp_tree_nodes(0, 0, 0, level, index), 0);
    ck_assert_uint_eq(ddp_tree_nodes((size_t)1 << 31, 1, ((size_t)1 << 31) - 2, level, index), 60);
}
END_TEST

START_TEST(nodes_that_overlap_or_are_out_of_order_or_range_are_refused)
{
    int32_t op[8];
    size_t  length = 77;

    /* node (1, 0) is leaves 0 and 1 */
    ddp_assert_fails(
        ddp_tree_program_make(4, (const uint32_t[]){1, 0}, (const uint32_t[]){0, 1}, 2, op, &length),
        DDP_ERR_INVALID_ARG, "tree node 1 (level 0, index 1) overlaps");
    ddp_assert_fails(
        ddp_tree_program_make(4, (const uint32_t[]){0, 1}, (const uint32_t[]){1, 0}, 2, op, &length),
        DDP_ERR_INVALID_ARG, "tree node 1");
    ddp_assert_fails(
        ddp_tree_program_make(4, (const uint32_t[]){0, 0}, (const uint32_t[]){2, 1}, 2, op, &length),
        DDP_ERR_INVALID_ARG, "out of order");
    ddp_assert_fails(ddp_tree_program_make(4, (const uint32_t[]){0}, (const uint32_t[]){4}, 1, op, &length),
                     DDP_ERR_INVALID_ARG, "not in a tree of 4 leaves");
    ddp_assert_fails(ddp_tree_program_make(4, (const uint32_t[]){3}, (const uint32_t[]){0}, 1, op, &length),
                     DDP_ERR_INVALID_ARG, "not in a tree of 4 leaves");
    ddp_assert_fails(ddp_tree_program_make(0, (const uint32_t[]){0}, (const uint32_t[]){0}, 1, op, &length),
                     DDP_ERR_INVALID_ARG, "not in a tree of 0 leaves");
    ck_assert_uint_eq(length, 77);
    ddp_assert_ok(ddp_tree_program_make(0, NULL, NULL, 0, op, &length));
    ck_assert_uint_eq(length, 0);
}
END_TEST

/* The value of one element, each operation rounded to float32 by itself. */
static float element_value(const ddp_tree_program_t *p, size_t i)
{
    volatile float stack[DDP_TREE_MAX_DEPTH];
    size_t         depth = 0;

    for (size_t k = 0; k < p->length; k++) {
        if (p->op[k] == DDP_TREE_ADD) {
            stack[depth - 2] = stack[depth - 2] + stack[depth - 1];
            depth--;
        } else {
            stack[depth] = p->source[p->op[k]][i];
            if (p->scale != NULL) {
                stack[depth] = stack[depth] * p->scale[p->op[k]];
            }
            depth++;
        }
    }
    return depth == 0 ? 0.0F : stack[0];
}

static void check_sum(int isa, const ddp_tree_program_t *program, float *dst, size_t blocks)
{
    const size_t count  = blocks * DDP_BLOCK;
    float       *wanted = malloc((count + 1) * sizeof(*wanted));
    double      *sumsq  = malloc((blocks + 1) * sizeof(*sumsq));

    for (size_t i = 0; i < count; i++) {
        wanted[i] = element_value(program, i);
    }
    ddp_tree_sum_sumsq((ddp_isa_t)isa, program, dst, sumsq, blocks);
    ck_assert(count == 0 || memcmp(wanted, dst, count * sizeof(*dst)) == 0);
    for (size_t b = 0; b < blocks; b++) {
        double sum = 0.0;

        for (size_t i = b * DDP_BLOCK; i < (b + 1) * DDP_BLOCK; i++) {
            sum += (double)wanted[i] * (double)wanted[i];
        }
        ck_assert_double_le(fabs(sumsq[b] - sum), 1e-13 * sum);
    }
    free(wanted);
    free(sumsq);
}

START_TEST(a_sum_in_tree_order_has_the_bits_of_single_additions)
{
    static const size_t blocks[] = {0, 1, 3};
    float               scale[21];
    uint32_t            zero[21] = {0};
    uint32_t            index[21];
    int32_t             op[42];

    for (size_t n = 0; n <= 21; n++) {
        const size_t       count = blocks[n % 3] * DDP_BLOCK;
        const float       *source[21];
        float             *dst     = fixture_new(count);
        ddp_tree_program_t program = {.op = op, .source = source};

        for (size_t k = 0; k < n; k++) {
            index[k]  = (uint32_t)k;
            scale[k]  = 1.0F / (float)(k + 3);
            source[k] = fixture_random(count, (uint32_t)k, 1.0F);
        }
        ddp_assert_ok(ddp_tree_program_make(n, zero, index, n, op, &program.length));
        check_sum(_i, &program, dst, blocks[n % 3]);
        program.scale = scale;
        check_sum(_i, &program, dst, blocks[n % 3]);
        fixture_free(dst);
        for (size_t k = 0; k < n; k++) {
            fixture_free((void *)(uintptr_t)source[k]);
        }
    }
}
END_TEST

START_TEST(the_result_may_replace_any_source)
{
    static const int32_t op[] = {0, 1, DDP_TREE_ADD, 2, DDP_TREE_ADD, 3, 4, DDP_TREE_ADD, DDP_TREE_ADD};
    const float         *source[5];
    float               *wanted  = fixture_new(2 * DDP_BLOCK);
    ddp_tree_program_t   program = {.op = op, .source = source};

    for (size_t length = 1; length <= 9; length += length == 1 ? 2 : (length == 5 ? 4 : 2)) {
        for (size_t target = 0; target < 5; target++) {
            float *memory[5];

            program.length = length;
            for (size_t k = 0; k < 5; k++) {
                memory[k] = fixture_random(2 * DDP_BLOCK, (uint32_t)k, 1.0F);
                source[k] = memory[k];
            }
            ddp_tree_sum((ddp_isa_t)_i, &program, wanted, 2);
            ddp_tree_sum((ddp_isa_t)_i, &program, memory[target], 2);
            ck_assert_mem_eq(wanted, memory[target], 2 * DDP_BLOCK * sizeof(float));
            for (size_t k = 0; k < 5; k++) {
                fixture_free(memory[k]);
            }
        }
    }
    fixture_free(wanted);
}
END_TEST

START_TEST(merging_a_subtree_adds_it)
{
    float *dst    = fixture_random(3 * DDP_BLOCK, 1, 1.0F);
    float *src    = fixture_random(3 * DDP_BLOCK, 2, 1.0F);
    float *before = fixture_random(3 * DDP_BLOCK, 1, 1.0F);
    size_t wrong  = 0;

    ddp_block_add((ddp_isa_t)_i, dst, src, 3);
    ddp_block_add((ddp_isa_t)_i, dst, src, 0);
    for (size_t i = 0; i < 3 * DDP_BLOCK; i++) {
        wrong += dst[i] != before[i] + src[i];
    }
    ck_assert_uint_eq(wrong, 0);
    fixture_free(dst);
    fixture_free(src);
    fixture_free(before);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tree");
    TCase *order = tcase_create("order");
    TCase *sums  = tcase_create("each instruction set");

    tcase_add_test(order, every_split_of_a_small_tree_gives_the_bits_of_the_whole);
    tcase_add_test(order, splits_of_larger_trees_give_the_bits_of_the_whole);
    tcase_add_test(order, any_tiling_by_nodes_gives_the_bits_of_the_whole);
    tcase_add_test(order, a_tree_with_absent_leaves_at_its_end_is_the_smaller_tree);
    tcase_add_test(order, nodes_are_the_largest_and_few);
    tcase_add_test(order, nodes_that_overlap_or_are_out_of_order_or_range_are_refused);
    suite_add_tcase(suite, order);
    tcase_add_loop_test(sums, a_sum_in_tree_order_has_the_bits_of_single_additions, 0, fixture_isas());
    tcase_add_loop_test(sums, the_result_may_replace_any_source, 0, fixture_isas());
    tcase_add_loop_test(sums, merging_a_subtree_adds_it, 0, fixture_isas());
    suite_add_tcase(suite, sums);
    return ddp_test_run(suite);
}
