/* The monitor's port, both sides in one process: only who knows the token comes in, and nobody makes it wait.
 */
#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "ddp/monitor_internal.h"
#include "tests/support/ddp_test.h"

#define SIZE 3 /* ranks, each a machine */

static const uint8_t token[DDP_KEY_BYTES] = {1, 2, 3};
static const uint8_t other[DDP_KEY_BYTES] = {1, 2, 4};
static ddp_guest_t   guests[DDP_MONITOR_GUESTS];
static ddp_peer_t    child[SIZE], parent;
static ddp_place_t   place;
static int           door;

static void set_up(void)
{
    for (size_t g = 0; g < DDP_MONITOR_GUESTS; g++) {
        guests[g].fd = -1;
    }
    for (int m = 0; m < SIZE; m++) {
        ddp_peer_init(&child[m], SIZE);
    }
    ddp_peer_init(&parent, SIZE);
    ddp_assert_ok(ddp_door_open(&place, NULL, true, &door));
}

static void tear_down(void)
{
    for (size_t g = 0; g < DDP_MONITOR_GUESTS; g++) {
        ddp_guest_drop(&guests[g]);
    }
    for (int m = 0; m < SIZE; m++) {
        ddp_peer_close(&child[m]);
    }
    ddp_peer_close(&parent);
    close(door);
}

/* What the side of the port does now and then. */
static void serve(int64_t now_ns)
{
    ddp_door_look(door, true, now_ns, guests);
    for (size_t g = 0; g < DDP_MONITOR_GUESTS; g++) {
        if (guests[g].fd >= 0) {
            (void)ddp_guest_look(&guests[g], token, SIZE, SIZE, now_ns, child);
        }
    }
}

static size_t count_guests(void)
{
    size_t n = 0;

    for (size_t g = 0; g < DDP_MONITOR_GUESTS; g++) {
        n += guests[g].fd >= 0 ? 1 : 0;
    }
    return n;
}

/* Rank 2 of machine 2 calls. */
static ddp_news_t call_with(const uint8_t key[DDP_KEY_BYTES])
{
    ddp_call_t call;
    ddp_news_t news = ddp_call_begin(&call, place.address[0], place.port, ddp_clock_ns());

    for (int i = 0; i < 2000 && news == DDP_NEWS_NONE; i++) {
        serve(ddp_clock_ns());
        news = ddp_call_look(&call, key, 2, 2, ddp_clock_ns(), &parent);
        usleep(1000);
    }
    ddp_call_drop(&call);
    return news;
}

static int connect_raw(void)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(place.port), .sin_addr.s_addr = place.address[0]};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    ck_assert(fd >= 0 && connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0);
    return fd;
}

/* Until `count` are at the door, or some time has passed. */
static void serve_until(size_t count)
{
    for (int i = 0; i < 2000 && count_guests() != count; i++) {
        serve(ddp_clock_ns());
        usleep(1000);
    }
    ck_assert_uint_eq(count_guests(), count);
}

static void send_report(ddp_peer_t *peer, size_t bytes)
{
    uint8_t *payload = NULL;

    ck_assert(ddp_peer_begin(peer, bytes, &payload));
    memset(payload, 7, bytes);
    ddp_peer_seal(peer, DDP_MESSAGE_REPORT, bytes);
    ck_assert(ddp_peer_flush(peer));
}

/* @return false: the connection is of no more use */
static bool receive(ddp_peer_t *peer, ddp_message_t *message)
{
    bool is_bad = false;

    for (int i = 0; i < 2000; i++) {
        if (!ddp_peer_read(peer)) {
            return false;
        }
        if (ddp_peer_next(peer, message, &is_bad)) {
            return true;
        }
        if (is_bad) {
            return false;
        }
        usleep(1000);
    }
    return false;
}

START_TEST(who_knows_the_token_comes_in_and_both_sides_talk)
{
    ddp_message_t message;

    ck_assert_int_eq(call_with(token), DDP_NEWS_OPEN);
    ck_assert(child[2].fd >= 0 && child[2].rank == 2 && child[0].fd < 0);
    ck_assert(child[2].in != NULL && child[0].in == NULL); /* no memory for who does not come */
    for (int i = 0; i < 100; i++) {
        send_report(&parent, SIZE * DDP_ENTRY_BYTES);
        ck_assert(receive(&child[2], &message));
        ck_assert_uint_eq(message.bytes, SIZE * DDP_ENTRY_BYTES);
        ck_assert_int_eq(message.payload[17], 7);
        send_report(&child[2], 0);
        ck_assert(receive(&parent, &message));
        ck_assert_uint_eq(message.bytes, 0);
    }
}
END_TEST

START_TEST(who_has_another_token_is_sent_away)
{
    ck_assert_int_eq(call_with(other), DDP_NEWS_FAILED);
    ck_assert(child[2].fd < 0 && count_guests() == 0);
    ck_assert_int_eq(call_with(token), DDP_NEWS_OPEN);
}
END_TEST

START_TEST(a_port_that_is_closed_refuses)
{
    close(door);
    ck_assert_int_eq(call_with(token), DDP_NEWS_REFUSED);
    ddp_assert_ok(ddp_door_open(&place, NULL, true, &door));
}
END_TEST

START_TEST(garbage_is_sent_away_at_once_and_silence_in_time)
{
    int loud  = connect_raw();
    int quiet = connect_raw();

    serve_until(2);
    ck_assert(send(loud, "GET / HTTP/1.1\r\n", 16, MSG_NOSIGNAL) == 16);
    serve_until(1);
    serve(ddp_clock_ns() + 4000 * DDP_NS_PER_MS);
    ck_assert_uint_eq(count_guests(), 0);
    close(loud);
    close(quiet);
}
END_TEST

START_TEST(many_silent_guests_keep_nobody_out)
{
    int fd[2 * DDP_MONITOR_GUESTS];

    for (size_t i = 0; i < sizeof(fd) / sizeof(fd[0]); i++) {
        fd[i] = connect_raw();
        serve(ddp_clock_ns());
    }
    serve_until(DDP_MONITOR_GUESTS);
    ck_assert_int_eq(call_with(token), DDP_NEWS_OPEN);
    for (size_t i = 0; i < sizeof(fd) / sizeof(fd[0]); i++) {
        close(fd[i]);
    }
}
END_TEST

START_TEST(a_message_said_twice_breaks_the_connection)
{
    ddp_message_t message;
    size_t        bytes;
    uint8_t       copy[256];

    ck_assert_int_eq(call_with(token), DDP_NEWS_OPEN);
    send_report(&parent, DDP_ENTRY_BYTES);
    bytes = parent.out_end;
    ck_assert_uint_eq(bytes, DDP_MESSAGE_HEAD + DDP_ENTRY_BYTES + DDP_MESSAGE_TAIL);
    memcpy(copy, parent.out, bytes);
    ck_assert(receive(&child[2], &message));
    ck_assert(send(parent.fd, copy, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
    ck_assert(!receive(&child[2], &message));
}
END_TEST

START_TEST(who_does_not_read_is_not_waited_for)
{
    uint8_t *payload = NULL;
    int      sent    = 0;

    ck_assert_int_eq(call_with(token), DDP_NEWS_OPEN);
    while (!ddp_peer_has_more(&parent) && sent < 1000000) {
        ck_assert(ddp_peer_begin(&parent, SIZE * DDP_ENTRY_BYTES, &payload));
        memset(payload, 0, SIZE * DDP_ENTRY_BYTES);
        ddp_peer_seal(&parent, DDP_MESSAGE_REPORT, SIZE * DDP_ENTRY_BYTES);
        ck_assert(ddp_peer_flush(&parent));
        sent++;
    }
    ck_assert(ddp_peer_has_more(&parent));
    ck_assert(ddp_peer_begin(&parent, DDP_VERDICT_BYTES, &payload)); /* there is always room for it */
}
END_TEST

/* Reports, that another rank speaks from now on, and the end, all before anybody looked. */
START_TEST(a_child_is_heard_to_its_last_word)
{
    static int           machine_of[SIZE] = {0, 1, 2}, machine_first[SIZE + 1] = {0, 1, 2, 3};
    static int           via[SIZE];
    static int64_t       closed_ns[SIZE];
    static ddp_comm_t    comm;
    static ddp_view_t    view[SIZE];
    static ddp_monitor_t monitor;
    uint8_t             *payload = NULL;

    ddp_peer_init(&child[2], 64); /* room for more messages than are taken in two looks */
    ck_assert_int_eq(call_with(token), DDP_NEWS_OPEN);
    comm    = (ddp_comm_t){.size          = SIZE,
                           .machines      = SIZE,
                           .local_size    = 1,
                           .machine_of    = machine_of,
                           .machine_first = machine_first};
    monitor = (ddp_monitor_t){.comm = &comm, .size = SIZE, .view = view, .now_ns = ddp_clock_ns()};
    memcpy(monitor.net.guest, guests, sizeof(guests));
    monitor.net.door      = door;
    monitor.net.child     = child;
    monitor.net.via       = via;
    monitor.net.closed_ns = closed_ns;
    monitor.net.parent.fd = -1;
    monitor.net.call.fd   = -1;
    monitor.net.is_root   = true;
    for (int i = 0; i < 100; i++) {
        send_report(&parent, 0);
    }
    ck_assert(ddp_peer_begin(&parent, 0, &payload));
    ddp_peer_seal(&parent, DDP_MESSAGE_HANDOVER, 0);
    ck_assert(ddp_peer_flush(&parent));
    ddp_peer_close(&parent);
    for (int i = 0; i < 2000 && child[2].fd >= 0; i++) {
        (void)ddp_monitor_net_hear(&monitor);
        usleep(1000);
    }
    ck_assert_int_lt(child[2].fd, 0);
    ck_assert(child[2].is_leaving);
    ck_assert_int_eq(closed_ns[2], 0); /* nobody is missed */
}
END_TEST

START_TEST(an_address_of_the_own_network_is_tried_first)
{
    const uint32_t    mask  = inet_addr("255.255.255.0");
    const ddp_place_t here  = {.address = {inet_addr("10.0.5.1")}, .mask = {mask}};
    const ddp_place_t there = {.address = {inet_addr("172.17.0.1"), inet_addr("10.0.5.9")},
                               .mask    = {mask, mask}};

    ck_assert_uint_eq(ddp_place_address(&here, &there, 0), inet_addr("10.0.5.9"));
    ck_assert_uint_eq(ddp_place_address(&here, &there, 1), inet_addr("172.17.0.1"));
    ck_assert_uint_eq(ddp_place_address(&here, &there, 2), 0);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("monitor_net");
    TCase *port  = tcase_create("port");

    tcase_add_checked_fixture(port, set_up, tear_down);
    tcase_add_test(port, who_knows_the_token_comes_in_and_both_sides_talk);
    tcase_add_test(port, who_has_another_token_is_sent_away);
    tcase_add_test(port, a_port_that_is_closed_refuses);
    tcase_add_test(port, garbage_is_sent_away_at_once_and_silence_in_time);
    tcase_add_test(port, many_silent_guests_keep_nobody_out);
    tcase_add_test(port, a_message_said_twice_breaks_the_connection);
    tcase_add_test(port, who_does_not_read_is_not_waited_for);
    tcase_add_test(port, a_child_is_heard_to_its_last_word);
    tcase_add_test(port, an_address_of_the_own_network_is_tried_first);
    suite_add_tcase(suite, port);
    return suite;
}

int main(void)
{
    return ddp_test_run(make_suite());
}
