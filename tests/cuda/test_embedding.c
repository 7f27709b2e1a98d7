/* Embedding and its gradient on the CUDA device: the cpu's bits. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/ops_seq.h"
#include "tests/cuda/both.h"
#include "tests/support/ddp_test.h"

typedef struct sizes {
    size_t sequences, length, vocab, width;
} sizes_t;

static const sizes_t cases[] = {{2, 5, 11, 8},    {3, 7, 40, 13},  {1, 300, 3, 4}, {1, 1, 1, 1},
                                {4, 16, 1500, 3}, {2, 33, 9, 132}, {0, 5, 7, 4},   {3, 0, 7, 4}};

static both_t draw_tokens(support_t *s, const sizes_t *z)
{
    const size_t count  = z->sequences * z->length;
    int32_t     *tokens = malloc((count + 1) * sizeof(*tokens));
    uint32_t     random[4];
    both_t       both;

    for (size_t i = 0; i < count; i++) {
        ddp_philox(5, (const uint32_t[4]){(uint32_t)i}, random);
        tokens[i] = (int32_t)(random[0] % z->vocab);
    }
    both = both_bytes(s, tokens, count * sizeof(*tokens));
    free(tokens);
    return both;
}

START_TEST(embedding_has_the_bits_of_the_cpu)
{
    const sizes_t *z     = &cases[_i / 2];
    const size_t   count = z->sequences * z->length;
    support_t      s;
    both_t         tokens;
    both_t         table;
    both_t         positions;
    both_t         y;

    support_open(&s);
    tokens    = draw_tokens(&s, z);
    table     = both_floats(&s, z->vocab * z->width, 1);
    positions = both_floats(&s, (z->length + 2) * z->width, 2);
    y         = both_floats(&s, count * z->width, 0);
    for (int side = 0; side < SIDES; side++) {
        const ddp_embedding_args_t args = {.tokens    = tokens.at[side],
                                           .sequences = z->sequences,
                                           .length    = z->length,
                                           .vocab     = z->vocab,
                                           .width     = z->width,
                                           .table     = table.at[side],
                                           .positions = _i % 2 == 0 ? positions.at[side] : NULL,
                                           .y         = y.at[side]};

        ddp_assert_ok(ddp_op_embedding(both_stream(&s, side), &args));
    }
    both_assert_same(&s, &y, "y");
    both_free(&tokens);
    both_free(&table);
    both_free(&positions);
    both_free(&y);
    support_close(&s);
}
END_TEST

/* Fresh, accumulating, and one table at a time. */
START_TEST(gradients_have_the_bits_of_the_cpu)
{
    const sizes_t *z    = &cases[_i / 3];
    const int      form = _i % 3;
    support_t      s;
    both_t         tokens;
    both_t         dy;
    both_t         dtable;
    both_t         dpositions;

    support_open(&s);
    tokens     = draw_tokens(&s, z);
    dy         = both_floats(&s, z->sequences * z->length * z->width, 3);
    dtable     = both_floats(&s, z->vocab * z->width, form == 1 ? 4 : 0);
    dpositions = both_floats(&s, (z->length + 2) * z->width, form == 1 ? 5 : 0);
    for (int side = 0; side < SIDES; side++) {
        const ddp_embedding_backward_args_t args = {.tokens      = tokens.at[side],
                                                    .sequences   = z->sequences,
                                                    .length      = z->length,
                                                    .vocab       = z->vocab,
                                                    .width       = z->width,
                                                    .n_positions = z->length + 2,
                                                    .dy          = dy.at[side],
                                                    .dtable      = dtable.at[side],
                                                    .dpositions  = form == 2 ? NULL : dpositions.at[side],
                                                    .accumulate_table     = form == 1,
                                                    .accumulate_positions = form == 1};

        ddp_assert_ok(ddp_op_embedding_backward(both_stream(&s, side), &args));
    }
    both_assert_same(&s, &dtable, "dtable");
    both_assert_same(&s, &dpositions, "dpositions");
    both_free(&tokens);
    both_free(&dy);
    both_free(&dtable);
    both_free(&dpositions);
    support_close(&s);
}
END_TEST

/* The first of two; the cpu's line is asked for, not written here. */
START_TEST(a_token_outside_of_the_vocabulary_gives_the_line_of_the_cpu)
{
    static const int32_t tokens[] = {0, 3, 10, 2, -1, 11, 5};
    support_t            s;
    both_t               at;
    both_t               table;
    both_t               y;
    char                 line[DDP_ERROR_LINE_SIZE] = "";

    support_open(&s);
    at    = both_bytes(&s, tokens, sizeof(tokens));
    table = both_floats(&s, 11 * 8, 1);
    y     = both_floats(&s, 7 * 8, 0);
    for (int side = 0; side < SIDES; side++) {
        const ddp_embedding_args_t          args   = {.tokens    = at.at[side],
                                                      .sequences = 1,
                                                      .length    = 7,
                                                      .vocab     = 11,
                                                      .width     = 8,
                                                      .table     = table.at[side],
                                                      .y         = y.at[side]};
        const ddp_embedding_backward_args_t back   = {.tokens    = at.at[side],
                                                      .sequences = 1,
                                                      .length    = 7,
                                                      .vocab     = 11,
                                                      .width     = 8,
                                                      .dy        = y.at[side],
                                                      .dtable    = table.at[side]};
        ddp_status_t                        status = ddp_op_embedding(both_stream(&s, side), &args);

        if (side == ON_CUDA) {
            ddp_assert_ok(ddp_op_embedding_backward(s.on_cuda, &back)); /* writes nothing behind its memory */
        }
        status = status == DDP_OK ? ddp_stream_synchronize(both_stream(&s, side), -1) : status;
        ck_assert_int_eq(status, DDP_ERR_INVALID_ARG);
        if (side == ON_CPU) {
            snprintf(line, sizeof(line), "%s", ddp_error_line());
        }
        ck_assert_str_eq(ddp_error_line(), line);
    }
    ck_assert_str_eq(line, "token 4 is -1: the vocabulary ends at 10");
    both_free(&at);
    both_free(&table);
    both_free(&y);
    ck_assert_int_eq(ddp_stream_synchronize(s.on_cuda, -1), DDP_ERR_INVALID_ARG); /* and it has failed */
    ddp_stream_destroy(&s.on_cuda);
    ddp_assert_ok(ddp_stream_create(s.cuda, "another", &s.on_cuda));
    s.n_buffers = 0; /* copies would be told of the fault again */
    ddp_device_keep_memory(s.cuda);
    support_close(&s);
}
END_TEST

int main(void)
{
    Suite    *suite = suite_create("cuda embedding");
    TCase    *tc    = tcase_create("embedding");
    const int n     = (int)(sizeof(cases) / sizeof(*cases));

    tcase_add_loop_test(tc, embedding_has_the_bits_of_the_cpu, 0, 2 * n);
    tcase_add_loop_test(tc, gradients_have_the_bits_of_the_cpu, 0, 3 * n);
    tcase_add_test(tc, a_token_outside_of_the_vocabulary_gives_the_line_of_the_cpu);
    suite_add_tcase(suite, tc);
    return ddp_test_run(suite);
}
