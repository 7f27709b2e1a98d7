/* What monitors send each other: nothing damaged, forged, replayed to another connection or too long is
 * taken. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "ddp/monitor_internal.h"
#include "tests/support/ddp_test.h"

static const uint8_t token[DDP_KEY_BYTES] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

START_TEST(siphash_is_that_of_its_authors)
{
    uint8_t key[DDP_KEY_BYTES];
    uint8_t data[15];

    for (uint8_t i = 0; i < sizeof(key); i++) {
        key[i] = i;
    }
    for (uint8_t i = 0; i < sizeof(data); i++) {
        data[i] = i;
    }
    ck_assert(ddp_siphash(key, data, sizeof(data)) == UINT64_C(0xa129ca6149be45e5)); /* appendix A */
}
END_TEST

static size_t make_hello(uint8_t text[DDP_MESSAGE_GUEST])
{
    const uint8_t nonce[DDP_NONCE_BYTES] = {7};

    ddp_hello_write(2, 5, nonce, text + DDP_MESSAGE_HEAD);
    return ddp_message_seal(token, DDP_MESSAGE_HELLO, 1, text, DDP_HELLO_BYTES);
}

START_TEST(a_hello_comes_back_as_it_was)
{
    uint8_t       text[DDP_MESSAGE_GUEST];
    uint8_t       nonce[DDP_NONCE_BYTES];
    const size_t  bytes = make_hello(text);
    ddp_message_t message;
    int           machine, rank;

    ck_assert_uint_eq(bytes, sizeof(text));
    ck_assert_uint_eq(ddp_message_size(text, bytes, sizeof(text)), bytes);
    ck_assert(ddp_message_open(token, text, bytes, &message));
    ck_assert_uint_eq(message.sequence, 1);
    ck_assert(ddp_hello_read(&message, 3, 6, &machine, &rank, nonce));
    ck_assert_int_eq(machine, 2);
    ck_assert_int_eq(rank, 5);
    ck_assert_int_eq(nonce[0], 7);
    ck_assert(!ddp_hello_read(&message, 2, 6, &machine, &rank, nonce)); /* no such machine */
    ck_assert(!ddp_hello_read(&message, 3, 5, &machine, &rank, nonce)); /* no such rank */
}
END_TEST

START_TEST(every_flipped_bit_is_noticed)
{
    uint8_t       text[DDP_MESSAGE_GUEST];
    const size_t  bytes = make_hello(text);
    ddp_message_t message;

    for (size_t bit = 0; bit < bytes * 8; bit++) {
        text[bit / 8] ^= (uint8_t)(1 << bit % 8);
        ck_assert(ddp_message_size(text, bytes, sizeof(text)) != bytes ||
                  !ddp_message_open(token, text, bytes, &message));
        text[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    ck_assert(ddp_message_open(token, text, bytes, &message));
}
END_TEST

START_TEST(a_part_of_a_message_asks_for_more_and_garbage_is_dropped_at_its_first_byte)
{
    uint8_t      text[DDP_MESSAGE_GUEST];
    const size_t bytes = make_hello(text);

    for (size_t n = 0; n < bytes; n++) {
        ck_assert_uint_eq(ddp_message_size(text, n, sizeof(text)), 0);
    }
    ck_assert_uint_eq(ddp_message_size((const uint8_t *)"GET / HTTP/1.1\r\n", 16, sizeof(text)), (size_t)-1);
    ck_assert_uint_eq(ddp_message_size((const uint8_t *)"G", 1, sizeof(text)), (size_t)-1);
}
END_TEST

START_TEST(a_huge_message_is_refused_by_its_head)
{
    uint8_t text[DDP_MESSAGE_GUEST];

    make_hello(text);
    memset(text + 8, 0xff, 4);
    ck_assert_uint_eq(ddp_message_size(text, DDP_MESSAGE_HEAD, sizeof(text)), (size_t)-1);
    ck_assert_uint_eq(ddp_message_size(text, DDP_MESSAGE_HEAD, (size_t)1 << 30), (size_t)-1);
}
END_TEST

START_TEST(what_was_heard_on_another_connection_does_not_open_this_one)
{
    const uint8_t server[2][DDP_NONCE_BYTES] = {{1}, {2}};
    const uint8_t client[DDP_NONCE_BYTES]    = {3};
    uint8_t       key[2][DDP_KEY_BYTES];
    uint8_t       text[DDP_MESSAGE_HEAD + DDP_MESSAGE_TAIL];
    size_t        bytes;
    ddp_message_t message;

    ddp_message_key(token, server[0], client, key[0]);
    ddp_message_key(token, server[1], client, key[1]);
    bytes = ddp_message_seal(key[0], DDP_MESSAGE_HANDOVER, 4, text, 0);
    ck_assert(ddp_message_open(key[0], text, bytes, &message));
    ck_assert(!ddp_message_open(key[1], text, bytes, &message));
}
END_TEST

START_TEST(a_ranks_entry_comes_back_with_its_ages)
{
    const int64_t    here  = 5000 * DDP_NS_PER_MS;
    const int64_t    there = 77 * DDP_NS_PER_MS; /* another clock */
    const ddp_view_t view  = {.progress         = UINT64_C(1) << 40,
                              .moved_ns         = here - 300 * DDP_NS_PER_MS,
                              .beat_ns          = here - 20 * DDP_NS_PER_MS,
                              .heard_ns         = here,
                              .life_ns          = here - 4000 * DDP_NS_PER_MS,
                              .step             = 12,
                              .phase            = DDP_STAGE_EVAL,
                              .bucket           = DDP_NO_BUCKET,
                              .waits_for        = DDP_WAIT_ALL,
                              .life             = DDP_LIFE_STOPPED,
                              .wait_status      = DDP_EXIT_UNKNOWN,
                              .is_out_of_memory = true,
                              .is_sent_away     = true,
                              .shares           = {1, 2, 3, 4}};
    uint8_t          text[DDP_ENTRY_BYTES];
    ddp_view_t       back;
    int              rank;

    ddp_entry_write(&view, 3, here, text);
    ck_assert(ddp_entry_read(text, 4, there, &back, &rank));
    ck_assert_int_eq(rank, 3);
    ck_assert(back.progress == view.progress && back.step == 12 && back.phase == DDP_STAGE_EVAL);
    ck_assert(back.bucket == DDP_NO_BUCKET && back.waits_for == DDP_WAIT_ALL);
    ck_assert(back.life == DDP_LIFE_STOPPED && back.wait_status == DDP_EXIT_UNKNOWN && back.is_out_of_memory);
    ck_assert(back.is_sent_away);
    ck_assert(there - back.moved_ns == 300 * DDP_NS_PER_MS && there - back.life_ns == 4000 * DDP_NS_PER_MS);
    ck_assert(back.heard_ns == there && there - back.beat_ns == 20 * DDP_NS_PER_MS);
    ck_assert(memcmp(&back.shares, &view.shares, sizeof(view.shares)) == 0);
    ck_assert(!ddp_entry_read(text, 3, there, &back, &rank)); /* no such rank */
    text[7] = 2;
    ck_assert(!ddp_entry_read(text, 4, there, &back, &rank));
    text[7] = 1;
    text[4] = DDP_LIVES;
    ck_assert(!ddp_entry_read(text, 4, there, &back, &rank));
}
END_TEST

START_TEST(a_verdict_comes_back_as_it_was)
{
    const ddp_verdict_t verdict = {.kind             = DDP_FAULT_ENDED,
                                   .rank             = 2,
                                   .other            = -1,
                                   .step             = 9,
                                   .phase            = DDP_STAGE_SAVE,
                                   .bucket           = 4,
                                   .signal           = 9,
                                   .code             = -1,
                                   .is_out_of_memory = true,
                                   .seconds          = 1.5};
    uint8_t             text[DDP_MESSAGE_HEAD + DDP_VERDICT_BYTES + DDP_MESSAGE_TAIL];
    ddp_message_t       message;
    ddp_verdict_t       back;
    size_t              bytes;

    ddp_verdict_write(&verdict, text + DDP_MESSAGE_HEAD);
    bytes = ddp_message_seal(token, DDP_MESSAGE_VERDICT, 0, text, DDP_VERDICT_BYTES);
    ck_assert(ddp_message_open(token, text, bytes, &message));
    ck_assert(ddp_verdict_read(&message, 3, &back));
    ck_assert(back.kind == DDP_FAULT_ENDED && back.rank == 2 && back.other == -1 && back.step == 9);
    ck_assert(back.phase == DDP_STAGE_SAVE && back.bucket == 4 && back.signal == 9 && back.code == -1);
    ck_assert(back.is_out_of_memory && !back.is_whole_machine && back.seconds == 1.5);
    ck_assert(!ddp_verdict_read(&message, 2, &back)); /* no such rank */
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("monitor_message");
    TCase *tcase = tcase_create("messages");

    tcase_add_test(tcase, siphash_is_that_of_its_authors);
    tcase_add_test(tcase, a_hello_comes_back_as_it_was);
    tcase_add_test(tcase, every_flipped_bit_is_noticed);
    tcase_add_test(tcase, a_part_of_a_message_asks_for_more_and_garbage_is_dropped_at_its_first_byte);
    tcase_add_test(tcase, a_huge_message_is_refused_by_its_head);
    tcase_add_test(tcase, what_was_heard_on_another_connection_does_not_open_this_one);
    tcase_add_test(tcase, a_ranks_entry_comes_back_with_its_ages);
    tcase_add_test(tcase, a_verdict_comes_back_as_it_was);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return ddp_test_run(make_suite());
}
