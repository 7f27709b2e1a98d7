/* Sockets of the monitor. Nothing here blocks, and nothing is taken from who has not shown the token: until
 * then a connection has 48 bytes sent to it, may send 56, and lasts three seconds. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "ddp/monitor_internal.h"

#define HANDSHAKE_NS (3000 * DDP_NS_PER_MS)
#define CONNECT_NS   (1500 * DDP_NS_PER_MS)
#define AT_ONCE      16 /* connections taken, or buffers read, before other work goes on */
#define BACKLOG      64
#define RESERVE      256 /* bytes that only a verdict may take */

static const uint8_t no_key[DDP_KEY_BYTES]; /* a challenge is nothing secret */

void ddp_peer_init(ddp_peer_t *peer, int size)
{
    peer->fd   = -1;
    peer->in   = NULL;
    peer->out  = NULL;
    peer->size = DDP_MESSAGE_HEAD + DDP_MESSAGE_TAIL + (size_t)size * DDP_ENTRY_BYTES + 2 * (size_t)RESERVE;
}

void ddp_peer_close(ddp_peer_t *peer)
{
    if (peer->fd >= 0) {
        close(peer->fd);
    }
    peer->fd       = -1;
    peer->in_begin = peer->in_end = peer->out_begin = peer->out_end = 0;
    free(peer->in);
    free(peer->out);
    peer->in = peer->out = NULL;
}

/* The connection of a handshake that has succeeded. @return false: there is no memory, and it is closed */
static bool peer_take(ddp_peer_t *peer, int fd, const uint8_t key[DDP_KEY_BYTES], int64_t now_ns)
{
    ddp_peer_close(peer);
    peer->fd  = fd;
    peer->in  = malloc(peer->size);
    peer->out = malloc(peer->size);
    if (peer->in == NULL || peer->out == NULL) {
        ddp_peer_close(peer);
        return false;
    }
    peer->sent       = 0;
    peer->received   = 0;
    peer->is_told    = false;
    peer->is_leaving = false;
    peer->is_silent  = false;
    peer->heard_ns   = now_ns;
    memcpy(peer->key, key, DDP_KEY_BYTES);
    return true;
}

bool ddp_peer_begin(ddp_peer_t *peer, size_t bytes, uint8_t **payload_p)
{
    const size_t whole = DDP_MESSAGE_HEAD + bytes + DDP_MESSAGE_TAIL;

    if (peer->fd < 0) {
        return false;
    }
    if (peer->out_begin > 0) {
        memmove(peer->out, peer->out + peer->out_begin, peer->out_end - peer->out_begin);
        peer->out_end -= peer->out_begin;
        peer->out_begin = 0;
    }
    if (peer->out_end + whole + (bytes > DDP_VERDICT_BYTES ? RESERVE : 0) > peer->size) {
        return false;
    }
    *payload_p = peer->out + peer->out_end + DDP_MESSAGE_HEAD;
    return true;
}

void ddp_peer_seal(ddp_peer_t *peer, ddp_message_type_t type, size_t bytes)
{
    peer->out_end += ddp_message_seal(peer->key, type, ++peer->sent, peer->out + peer->out_end, bytes);
}

void ddp_peer_hand_over(ddp_peer_t *peer)
{
    uint8_t *payload;

    if (ddp_peer_begin(peer, 0, &payload)) {
        ddp_peer_seal(peer, DDP_MESSAGE_HANDOVER, 0);
    }
    (void)ddp_peer_flush(peer); /* it is closed next */
}

/* The call has failed. @return true: only for now */
static bool look_at_error(ddp_peer_t *peer)
{
    peer->is_silent =
        errno == ETIMEDOUT || errno == EHOSTUNREACH || errno == ENETUNREACH || errno == EHOSTDOWN;
    return errno == EAGAIN || errno == EINTR;
}

bool ddp_peer_flush(ddp_peer_t *peer)
{
    while (peer->fd >= 0 && ddp_peer_has_more(peer)) {
        const ssize_t bytes =
            send(peer->fd, peer->out + peer->out_begin, peer->out_end - peer->out_begin, MSG_NOSIGNAL);

        if (bytes < 0) {
            return look_at_error(peer);
        }
        peer->out_begin += (size_t)bytes;
    }
    return peer->fd >= 0;
}

bool ddp_peer_read(ddp_peer_t *peer)
{
    ssize_t bytes;

    if (peer->in_begin > 0) {
        memmove(peer->in, peer->in + peer->in_begin, peer->in_end - peer->in_begin);
        peer->in_end -= peer->in_begin;
        peer->in_begin = 0;
    }
    if (peer->in_end == peer->size) {
        return true; /* first what is there */
    }
    bytes = recv(peer->fd, peer->in + peer->in_end, peer->size - peer->in_end, 0);
    if (bytes > 0) {
        peer->in_end += (size_t)bytes;
    }
    return bytes > 0 || (bytes < 0 && look_at_error(peer));
}

bool ddp_peer_next(ddp_peer_t *peer, ddp_message_t *message_p, bool *is_bad_p)
{
    const uint8_t *text  = peer->in + peer->in_begin;
    const size_t   bytes = ddp_message_size(text, peer->in_end - peer->in_begin, peer->size);

    *is_bad_p = bytes == (size_t)-1;
    if (*is_bad_p || bytes == 0) {
        return false;
    }
    if (!ddp_message_open(peer->key, text, bytes, message_p) || message_p->sequence != peer->received + 1) {
        *is_bad_p = true;
        return false;
    }
    peer->in_begin += bytes;
    peer->received++;
    return true;
}

static void set_options(int fd)
{
    const int one = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); /* only slower without */
}

ddp_status_t ddp_door_open(ddp_place_t *place, const char *list, bool is_alone, int *fd_p)
{
    ddp_status_t       status  = DDP_OK;
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t          bytes   = sizeof(address);
    int                fd      = -1;

    DDP_TRY(ddp_place_find(list, is_alone, place));
    /* one address: bound to it; several, of which it is not known who uses which: any */
    address.sin_addr.s_addr = place->address[1] == 0 ? place->address[0] : htonl(INADDR_ANY);
    fd                      = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    DDP_REQUIRE(fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 &&
                    listen(fd, BACKLOG) == 0 && getsockname(fd, (struct sockaddr *)&address, &bytes) == 0,
                DDP_ERR_SYSTEM, "a port for the monitor: %s", ddp_errno_text(errno));
    place->port = ntohs(address.sin_port);
    *fd_p       = fd;
    fd          = -1;
out:
    if (fd >= 0) {
        close(fd);
    }
    return status;
}

void ddp_guest_drop(ddp_guest_t *guest)
{
    if (guest->fd >= 0) {
        close(guest->fd);
    }
    guest->fd = -1;
}

/* A place that is free, or else of who has been there longest. */
static ddp_guest_t *guest_place(ddp_guest_t *guests)
{
    ddp_guest_t *oldest = &guests[0];

    for (size_t i = 0; i < DDP_MONITOR_GUESTS; i++) {
        if (guests[i].fd < 0) {
            return &guests[i];
        }
        oldest = guests[i].since_ns < oldest->since_ns ? &guests[i] : oldest;
    }
    ddp_guest_drop(oldest);
    return oldest;
}

static void guest_greet(ddp_guest_t *guest, int fd, int64_t now_ns)
{
    uint8_t text[DDP_MESSAGE_HEAD + DDP_NONCE_BYTES + DDP_MESSAGE_TAIL];
    size_t  bytes;

    *guest = (ddp_guest_t){.fd = fd, .since_ns = now_ns};
    if (getrandom(guest->nonce, sizeof(guest->nonce), GRND_NONBLOCK) != (ssize_t)sizeof(guest->nonce)) {
        ddp_guest_drop(guest);
        return;
    }
    memcpy(text + DDP_MESSAGE_HEAD, guest->nonce, DDP_NONCE_BYTES);
    bytes = ddp_message_seal(no_key, DDP_MESSAGE_CHALLENGE, 0, text, DDP_NONCE_BYTES);
    if (send(fd, text, bytes, MSG_NOSIGNAL) != (ssize_t)bytes) {
        ddp_guest_drop(guest);
    }
}

void ddp_door_look(int door, bool is_open, int64_t now_ns, ddp_guest_t *guests)
{
    for (int i = 0; i < AT_ONCE; i++) {
        const int fd = accept4(door, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0) {
            return;
        }
        if (!is_open) {
            close(fd);
            continue;
        }
        set_options(fd);
        guest_greet(guest_place(guests), fd, now_ns);
    }
}

/* @return bytes of the message that is whole now; 0: not yet; (size_t)-1: over */
static size_t read_message(int fd, uint8_t *in, size_t *used)
{
    const ssize_t bytes = recv(fd, in + *used, DDP_MESSAGE_GUEST - *used, 0);

    if (bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR)) {
        return (size_t)-1;
    }
    *used += bytes > 0 ? (size_t)bytes : 0;
    return ddp_message_size(in, *used, DDP_MESSAGE_GUEST);
}

ddp_news_t ddp_guest_look(ddp_guest_t *guest, const uint8_t token[DDP_KEY_BYTES], int machines, int size,
                          int64_t now_ns, ddp_peer_t *peers)
{
    uint8_t       zero[DDP_NONCE_BYTES] = {0}, nonce[DDP_NONCE_BYTES], key[DDP_KEY_BYTES];
    const size_t  bytes                 = read_message(guest->fd, guest->in, &guest->used);
    ddp_message_t message;
    ddp_peer_t   *peer;
    uint8_t      *payload;
    int           machine, rank, fd;

    if (bytes == 0 && now_ns - guest->since_ns < HANDSHAKE_NS) {
        return DDP_NEWS_NONE;
    }
    ddp_message_key(token, guest->nonce, zero, key);
    if (bytes == 0 || bytes != guest->used || !ddp_message_open(key, guest->in, bytes, &message) ||
        !ddp_hello_read(&message, machines, size, &machine, &rank, nonce)) {
        ddp_guest_drop(guest);
        return DDP_NEWS_FAILED;
    }
    ddp_message_key(token, guest->nonce, nonce, key);
    peer      = &peers[machine];
    fd        = guest->fd;
    guest->fd = -1;
    if (!peer_take(peer, fd, key, now_ns)) {
        return DDP_NEWS_FAILED;
    }
    peer->machine = machine;
    peer->rank    = rank;
    if (ddp_peer_begin(peer, 0, &payload)) {
        ddp_peer_seal(peer, DDP_MESSAGE_WELCOME, 0);
    }
    (void)ddp_peer_flush(peer); /* what is broken is seen when it is read */
    return DDP_NEWS_OPEN;
}

void ddp_call_drop(ddp_call_t *call)
{
    if (call->fd >= 0) {
        close(call->fd);
    }
    call->fd = -1;
}

static ddp_news_t call_fail(ddp_call_t *call, int error)
{
    ddp_call_drop(call);
    return error == ECONNREFUSED ? DDP_NEWS_REFUSED : DDP_NEWS_FAILED;
}

ddp_news_t ddp_call_begin(ddp_call_t *call, uint32_t address, uint16_t port, int64_t now_ns)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = address};

    *call = (ddp_call_t){.fd       = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
                         .since_ns = now_ns};
    if (call->fd < 0) {
        return DDP_NEWS_FAILED;
    }
    set_options(call->fd);
    if (connect(call->fd, (const struct sockaddr *)&to, sizeof(to)) == 0) {
        call->is_connected = true;
    } else if (errno != EINPROGRESS) {
        return call_fail(call, errno);
    }
    return DDP_NEWS_NONE;
}

static ddp_news_t call_connect(ddp_call_t *call, int64_t now_ns)
{
    struct pollfd ask   = {call->fd, POLLOUT, 0};
    int           error = 0;
    socklen_t     bytes = sizeof(error);

    if (poll(&ask, 1, 0) != 1) {
        return now_ns - call->since_ns < CONNECT_NS ? DDP_NEWS_NONE : call_fail(call, ETIMEDOUT);
    }
    if (getsockopt(call->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0 || error != 0) {
        return call_fail(call, error);
    }
    call->is_connected = true;
    return DDP_NEWS_NONE;
}

/* Answer the challenge: who knows the token can seal with what follows from it and the nonce. */
static ddp_news_t call_greet(ddp_call_t *call, const uint8_t token[DDP_KEY_BYTES], int machine, int rank,
                             size_t bytes)
{
    uint8_t       zero[DDP_NONCE_BYTES] = {0}, nonce[DDP_NONCE_BYTES], key[DDP_KEY_BYTES];
    uint8_t       text[DDP_MESSAGE_GUEST];
    ddp_message_t message;

    if (!ddp_message_open(no_key, call->in, bytes, &message) || message.type != DDP_MESSAGE_CHALLENGE ||
        message.bytes != DDP_NONCE_BYTES ||
        getrandom(nonce, sizeof(nonce), GRND_NONBLOCK) != (ssize_t)sizeof(nonce)) {
        return call_fail(call, 0);
    }
    ddp_message_key(token, message.payload, zero, key);
    ddp_message_key(token, message.payload, nonce, call->key);
    ddp_hello_write(machine, rank, nonce, text + DDP_MESSAGE_HEAD);
    (void)ddp_message_seal(key, DDP_MESSAGE_HELLO, 0, text, DDP_HELLO_BYTES);
    if (send(call->fd, text, sizeof(text), MSG_NOSIGNAL) != (ssize_t)sizeof(text)) {
        return call_fail(call, 0);
    }
    call->is_greeted = true;
    call->used       = 0;
    return DDP_NEWS_NONE;
}

ddp_news_t ddp_call_look(ddp_call_t *call, const uint8_t token[DDP_KEY_BYTES], int machine, int rank,
                         int64_t now_ns, ddp_peer_t *peer)
{
    ddp_message_t message;
    size_t        bytes;
    int           fd;

    if (!call->is_connected) {
        return call_connect(call, now_ns);
    }
    bytes = call->is_greeted ? DDP_MESSAGE_HEAD + DDP_MESSAGE_TAIL
                             : DDP_MESSAGE_HEAD + DDP_NONCE_BYTES + DDP_MESSAGE_TAIL;
    if (call->used < bytes) { /* not more: what follows the welcome is for the peer */
        const ssize_t got = recv(call->fd, call->in + call->used, bytes - call->used, 0);

        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
            return call_fail(call, 0);
        }
        call->used += got > 0 ? (size_t)got : 0;
    }
    if (call->used < bytes) {
        return now_ns - call->since_ns < HANDSHAKE_NS ? DDP_NEWS_NONE : call_fail(call, ETIMEDOUT);
    }
    if (ddp_message_size(call->in, call->used, sizeof(call->in)) != bytes) {
        return call_fail(call, 0);
    }
    if (!call->is_greeted) {
        return call_greet(call, token, machine, rank, bytes);
    }
    if (!ddp_message_open(call->key, call->in, bytes, &message) || message.type != DDP_MESSAGE_WELCOME) {
        return call_fail(call, 0);
    }
    fd       = call->fd;
    call->fd = -1;
    if (!peer_take(peer, fd, call->key, now_ns)) {
        return DDP_NEWS_FAILED;
    }
    peer->received = 1; /* the welcome */
    return DDP_NEWS_OPEN;
}
