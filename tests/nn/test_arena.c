/* Memory of activations, given out and taken back. */
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "nn/tape_internal.h"
#include "tests/support/ddp_test.h"

START_TEST(a_piece_that_was_given_back_is_taken_again_and_neighbours_join)
{
    ddp_arena_t arena;
    void       *piece[4];
    void       *again = NULL;

    ddp_arena_init(&arena, ddp_allocator_private(), "test");
    for (size_t i = 0; i < 4; i++) {
        ck_assert_int_eq(ddp_arena_take(&arena, 100, &piece[i]), DDP_OK);
        ck_assert_uint_eq((size_t)((char *)piece[i] - (char *)piece[0]), 128 * i);
    }
    ck_assert_uint_eq(ddp_arena_used(&arena), 512);
    ddp_arena_give(&arena, piece[1], 100);
    ck_assert_int_eq(ddp_arena_take(&arena, 129, &again), DDP_OK); /* does not fit between 0 and 2 */
    ck_assert_ptr_eq((char *)again, (char *)piece[3] + 128);
    ddp_arena_give(&arena, again, 129);
    ddp_arena_give(&arena, piece[2], 100); /* joins 1 */
    ck_assert_int_eq(ddp_arena_take(&arena, 256, &again), DDP_OK);
    ck_assert_ptr_eq(again, piece[1]);
    ddp_arena_give(&arena, piece[0], 100);
    ddp_arena_give(&arena, again, 256);    /* joins 0 */
    ddp_arena_give(&arena, piece[3], 100); /* joins both sides: all is one hole */
    ck_assert_uint_eq(arena.n_holes, 1);
    ck_assert_uint_eq(arena.hole[0].bytes, arena.chunk[0].bytes);
    ck_assert_uint_eq(ddp_arena_used(&arena), 512 + 192); /* the most that was out */
    ck_assert_uint_eq(arena.n_chunks, 1);
    ddp_arena_free(&arena);
}
END_TEST

START_TEST(pieces_of_nothing_are_fine)
{
    ddp_arena_t arena;
    void       *nothing = NULL;
    void       *all     = NULL;

    ddp_arena_init(&arena, ddp_allocator_private(), "test");
    ck_assert_int_eq(ddp_arena_take(&arena, DDP_ARENA_FIRST_BYTES - 64, &all), DDP_OK);
    ck_assert_int_eq(ddp_arena_take(&arena, 0, &nothing), DDP_OK);
    ck_assert_ptr_nonnull(nothing);
    ddp_arena_give(&arena, nothing, 0);
    ck_assert_int_eq(ddp_arena_take(&arena, 64, &all), DDP_OK);
    ddp_arena_give(&arena, nothing, 0);
    ck_assert_uint_eq(arena.n_holes, 0);
    ck_assert_int_eq(ddp_arena_take(&arena, SIZE_MAX - 3, &all), DDP_ERR_NO_MEMORY);
    ddp_arena_free(&arena);
}
END_TEST

START_TEST(holes_of_several_chunks_do_not_join)
{
    ddp_arena_t arena;
    void       *piece[3];
    void       *again = NULL;

    ddp_arena_init(&arena, ddp_allocator_private(), "test");
    ck_assert_int_eq(ddp_arena_reserve(&arena, 1000), DDP_OK);
    ck_assert_int_eq(ddp_arena_reserve(&arena, 500), DDP_OK);
    ck_assert_uint_eq(arena.total_bytes, 1024);
    ck_assert_int_eq(ddp_arena_take(&arena, 1024, &piece[0]), DDP_OK);
    ck_assert_int_eq(ddp_arena_take(&arena, 1024, &piece[1]), DDP_OK); /* the second chunk */
    ck_assert_uint_eq(arena.n_chunks, 2);
    ddp_arena_give(&arena, piece[1], 1024);
    ddp_arena_give(&arena, piece[0], 1024);
    ck_assert_uint_eq(arena.n_holes, 2);
    ck_assert_int_eq(ddp_arena_take(&arena, 1000, &again), DDP_OK);
    ck_assert_ptr_eq(again, piece[0]);
    ddp_arena_reset(&arena);
    ck_assert_uint_eq(ddp_arena_used(&arena), 0);
    ck_assert_int_eq(ddp_arena_take(&arena, 1000, &again), DDP_OK);
    ck_assert_ptr_eq(again, piece[0]);
    ddp_arena_free(&arena);
}
END_TEST

START_TEST(with_more_holes_than_it_can_note_an_arena_forgets_some_and_stays_right)
{
    const size_t n = 4 * DDP_ARENA_MAX_HOLES;
    ddp_arena_t  arena;
    char        *piece[4 * DDP_ARENA_MAX_HOLES];
    void        *memory = NULL;

    ddp_arena_init(&arena, ddp_allocator_private(), "test");
    for (size_t i = 0; i < n; i++) {
        ck_assert_int_eq(ddp_arena_take(&arena, 64, &memory), DDP_OK);
        piece[i] = memory;
        memset(piece[i], (int)(i % 251), 64);
    }
    for (size_t i = 0; i < n; i += 2) {
        ddp_arena_give(&arena, piece[i], 64);
    }
    ck_assert_uint_eq(arena.n_holes, DDP_ARENA_MAX_HOLES);
    for (size_t i = 0; i < DDP_ARENA_MAX_HOLES; i++) {
        ck_assert_int_eq(ddp_arena_take(&arena, 64, &memory), DDP_OK);
        memset(memory, 255, 64);
    }
    for (size_t i = 1; i < n; i += 2) { /* what is out was not touched */
        ck_assert_int_eq((unsigned char)piece[i][0], (int)(i % 251));
        ck_assert_int_eq((unsigned char)piece[i][63], (int)(i % 251));
    }
    ddp_arena_free(&arena);
}
END_TEST

START_TEST(an_arena_that_may_not_double_grows_by_what_is_needed)
{
    ddp_device_params_t params = DDP_DEVICE_PARAMS_INIT;
    ddp_device_t       *device = NULL;
    const size_t        piece  = DDP_ARENA_FIRST_BYTES;
    void               *memory = NULL;
    ddp_arena_t         arena;

    params.memory_bytes = 3 * piece + piece / 2;
    ck_assert_int_eq(ddp_device_create(&params, &device), DDP_OK);
    ddp_arena_init(&arena, ddp_device_allocator(device), "activations");
    for (size_t i = 1; i <= 3; i++) { /* the third wants to make four of two */
        ddp_assert_ok(ddp_arena_take(&arena, piece, &memory));
        ck_assert_uint_eq(ddp_device_memory(device).held, i * piece);
    }
    ddp_assert_fails(ddp_arena_take(&arena, piece, &memory), DDP_ERR_NO_MEMORY,
                     "cpu: activations need 1.1 MB; 0.5 of 3.6 MB are left");
    ddp_assert_ok(ddp_arena_take(&arena, piece / 2, &memory));
    ddp_arena_free(&arena);
    ck_assert_uint_eq(ddp_device_memory(device).held, 0);
    ddp_device_destroy(&device);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("arena");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, a_piece_that_was_given_back_is_taken_again_and_neighbours_join);
    tcase_add_test(tcase, pieces_of_nothing_are_fine);
    tcase_add_test(tcase, holes_of_several_chunks_do_not_join);
    tcase_add_test(tcase, with_more_holes_than_it_can_note_an_arena_forgets_some_and_stays_right);
    tcase_add_test(tcase, an_arena_that_may_not_double_grows_by_what_is_needed);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
