/*
 * A switch between hosts, in user space: delay, jitter, rate and loss of frames, for kernels that have no
 * netem. Usage: slow_switch FIFO PORT...     makes the TAP devices PORT..., says "ready", and carries frames
 * until it is killed.
 *
 * The host of port i (from 1) has the address 02:dd:00:00:00:i; frames to others are dropped, broadcast goes
 * to all. Lines in FIFO, each with a port or 0 for all: shape PORT MBIT DELAY_US JITTER_US LOSS    for frames
 * that the port's host sends; MBIT 0: no limit; LOSS of 10000 cut PORT 0|1 nothing to or from it
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define PORTS       32
#define FRAME       65600
#define QUEUE_BYTES 20000000 /* of one port; more is dropped, as a full switch does */
#define AT_A_TIME   64       /* frames of a port before the next port's turn */

typedef struct frame {
    struct frame *next;
    double        due; /* seconds */
    int           to;  /* -1: all */
    size_t        bytes;
    unsigned char data[];
} frame_t;

typedef struct port {
    int       fd;     /* -1: its host is gone */
    double    rate;   /* bytes/s; 0: no limit */
    double    delay;  /* seconds */
    double    jitter; /* seconds */
    double    loss;   /* 0..1 */
    double    sent;   /* when the last frame is on the wire */
    bool      is_cut;
    size_t    queued; /* bytes */
    frame_t  *first;  /* owned; in the order sent, which is that of `due` but for jitter */
    frame_t **last_p;
} port_t;

static port_t   ports[PORTS];
static int      n_ports;
static uint64_t random_state = 88172645463325252u;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* [0, 1), by xorshift (Marsaglia 2003) */
static double draw(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (double)(random_state >> 11) * 0x1p-53;
}

static bool open_port(const char *name)
{
    struct ifreq request = {0};
    port_t      *port    = &ports[n_ports];

    *port = (port_t){.fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC)};
    if (strlen(name) >= IFNAMSIZ || port->fd < 0) {
        return false;
    }
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    memcpy(request.ifr_name, name, strlen(name));
    port->last_p = &port->first;
    n_ports++;
    return ioctl(port->fd, TUNSETIFF, &request) == 0;
}

static void obey(const char *line)
{
    double mbit, delay, jitter, loss;
    int    which, on;
    bool   is_shape = sscanf(line, "shape %d %lf %lf %lf %lf", &which, &mbit, &delay, &jitter, &loss) == 5;
    bool   is_cut   = !is_shape && sscanf(line, "cut %d %d", &which, &on) == 2;

    if (!is_shape && !is_cut) {
        fprintf(stderr, "slow_switch: what is '%s'?\n", line);
        return;
    }
    for (int i = 0; i < n_ports; i++) {
        if (which != 0 && which != i + 1) {
            continue;
        }
        if (is_cut) {
            ports[i].is_cut = on != 0;
            continue;
        }
        ports[i].rate   = mbit * 1e6 / 8;
        ports[i].delay  = delay * 1e-6;
        ports[i].jitter = jitter * 1e-6;
        ports[i].loss   = loss / 10000;
    }
}

static void read_lines(int fifo)
{
    char    text[1024];
    char   *rest = NULL;
    ssize_t got  = read(fifo, text, sizeof(text) - 1);

    if (got <= 0) {
        return;
    }
    text[got] = '\0';
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        obey(line);
    }
}

/* A frame that a port does not take is lost, as on any network. */
static void deliver(int from, int to, const unsigned char *data, size_t bytes)
{
    for (int i = 0; i < n_ports; i++) {
        if (i != from && (to < 0 || to == i) && ports[i].fd >= 0 && !ports[i].is_cut &&
            write(ports[i].fd, data, bytes) < 0 && errno == EBADFD) {
            ports[i].fd = -1;
        }
    }
}

/* -1: all; -2: nobody here */
static int find_port(const unsigned char *data)
{
    if ((data[0] & 1) != 0) {
        return -1;
    }
    return data[0] == 0x02 && data[1] == 0xdd && data[5] >= 1 && data[5] <= n_ports ? data[5] - 1 : -2;
}

/* Frames leave one after the other at the port's rate, and then travel for its delay. */
static void take(int from, const unsigned char *data, size_t bytes)
{
    port_t      *port = &ports[from];
    const int    to   = find_port(data);
    const double t    = now();
    frame_t     *frame;

    if (to == -2 || port->is_cut || (port->loss > 0 && draw() < port->loss) ||
        port->queued + bytes > QUEUE_BYTES) {
        return;
    }
    port->sent = (port->sent > t ? port->sent : t) + (port->rate > 0 ? (double)bytes / port->rate : 0);
    if (port->first == NULL && port->rate <= 0 && port->delay <= 0 && port->jitter <= 0) {
        deliver(from, to, data, bytes);
        return;
    }
    frame = malloc(sizeof(*frame) + bytes);
    if (frame == NULL) {
        return;
    }
    frame->next  = NULL;
    frame->due   = port->sent + port->delay + (port->jitter > 0 ? port->jitter * draw() : 0);
    frame->to    = to;
    frame->bytes = bytes;
    memcpy(frame->data, data, bytes);
    *port->last_p = frame;
    port->last_p  = &frame->next;
    port->queued += bytes;
}

static void read_frames(int from)
{
    static unsigned char data[FRAME];

    for (int k = 0; k < AT_A_TIME; k++) {
        const ssize_t got = read(ports[from].fd, data, sizeof(data));

        if (got < 0 && errno != EAGAIN && errno != EINTR) {
            ports[from].fd = -1;
        }
        if (got < 14) { /* no Ethernet header */
            return;
        }
        take(from, data, (size_t)got);
    }
}

static void send_due(void)
{
    const double t = now();

    for (int i = 0; i < n_ports; i++) {
        port_t *port = &ports[i];

        while (port->first != NULL && port->first->due <= t) {
            frame_t *frame = port->first;

            port->first = frame->next;
            if (port->first == NULL) {
                port->last_p = &port->first;
            }
            port->queued -= frame->bytes;
            deliver(i, frame->to, frame->data, frame->bytes);
            free(frame);
        }
    }
}

/* Until the next frame is due; NULL: for ever. */
static const struct timespec *time_left(struct timespec *left)
{
    double next = -1;

    for (int i = 0; i < n_ports; i++) {
        if (ports[i].first != NULL && (next < 0 || ports[i].first->due < next)) {
            next = ports[i].first->due;
        }
    }
    if (next < 0) {
        return NULL;
    }
    next          = next - now();
    next          = next > 0 ? next : 0;
    left->tv_sec  = (time_t)next;
    left->tv_nsec = (long)((next - (double)left->tv_sec) * 1e9);
    return left;
}

int main(int argc, char **argv)
{
    struct pollfd   wait[PORTS + 1];
    struct timespec left;
    int             fifo = argc > 2 ? open(argv[1], O_RDWR | O_NONBLOCK | O_CLOEXEC) : -1;

    if (fifo < 0 || argc - 2 > PORTS) {
        fprintf(stderr, "usage: slow_switch FIFO PORT...   (at most %d ports)\n", PORTS);
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        if (!open_port(argv[i])) {
            fprintf(stderr, "slow_switch: %s: %s\n", argv[i], strerror(errno));
            return 1;
        }
    }
    puts("ready");
    fflush(stdout);
    for (;;) {
        for (int i = 0; i < n_ports; i++) {
            wait[i] = (struct pollfd){.fd = ports[i].fd, .events = POLLIN};
        }
        wait[n_ports] = (struct pollfd){.fd = fifo, .events = POLLIN};
        if (ppoll(wait, (nfds_t)n_ports + 1, time_left(&left), NULL) < 0 && errno != EINTR) {
            return 1;
        }
        if (wait[n_ports].revents != 0) {
            read_lines(fifo);
        }
        for (int i = 0; i < n_ports; i++) {
            if (wait[i].fd >= 0 && wait[i].revents != 0) {
                read_frames(i);
            }
        }
        send_due();
    }
}
