/** @file Inside of the monitor: what is known of ranks, who is judged how, and what crosses the network.
 * Private to ddp/monitor*.c and its tests. */
#ifndef DDP_MONITOR_INTERNAL_H_
#define DDP_MONITOR_INTERNAL_H_

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>

#include "base/clock.h"
#include "ddp/comm_state_internal.h"
#include "ddp/monitor.h"

#define DDP_EXIT_UNKNOWN (-1)

/** A rank as who judges sees it; times are of that machine's clock. */
typedef struct ddp_view {
    uint64_t     progress, beat;
    int64_t      moved_ns; /* when `progress` last changed */
    int64_t      beat_ns;  /* when `beat` did */
    int64_t      heard_ns; /* when its machine last spoke */
    int64_t      life_ns;  /* since when it is so */
    uint64_t     step;
    ddp_stage_t  phase;
    uint32_t     bucket;
    int32_t      waits_for; /* a rank, -1: nobody, DDP_WAIT_ALL */
    ddp_life_t   life;
    int32_t      wait_status; /* ENDED: as waitpid() has it, or DDP_EXIT_UNKNOWN */
    bool         is_out_of_memory;
    bool         is_sent_away; /* its launcher has begun to end it */
    bool         is_inferred;  /* ENDED: nobody saw it, but its machine is not reached at its port any more */
    ddp_shares_t shares;
} ddp_view_t;

/* monitor_judge.c: pure */
/** What the judge knows. */
typedef struct ddp_court {
    const ddp_view_t *view; /* [size] */
    const int        *machine_of;
    int               size;
    int64_t           now_ns, limit_ns;
    int64_t           deaf_ns;   /* who was not heard of for so long has likely lost touch */
    bool              is_drowsy; /* who judges was stopped itself: only what has ended is sure */
} ddp_court_t;
/** @return false: nothing is wrong, or not for long enough */
bool ddp_monitor_judge(const ddp_court_t *court, ddp_verdict_t *verdict_p);
/** The verdict that rank `rank` is of kind `kind`. */
ddp_verdict_t ddp_monitor_blame(const ddp_court_t *court, ddp_fault_kind_t kind, int rank);

/* monitor_message.c: pure */
#define DDP_KEY_BYTES     16
#define DDP_NONCE_BYTES   16
#define DDP_MESSAGE_HEAD  24
#define DDP_MESSAGE_TAIL  8
#define DDP_ENTRY_BYTES   88
#define DDP_HELLO_BYTES   (8 + DDP_NONCE_BYTES)
#define DDP_VERDICT_BYTES 48
/** Longest that is taken from one who has not shown the token. */
#define DDP_MESSAGE_GUEST (DDP_MESSAGE_HEAD + DDP_HELLO_BYTES + DDP_MESSAGE_TAIL)

typedef enum ddp_message_type {
    DDP_MESSAGE_CHALLENGE = 1, /* to who has connected: a nonce; not sealed by a key */
    DDP_MESSAGE_HELLO     = 2, /* from it: machine, rank, another nonce */
    DDP_MESSAGE_WELCOME   = 3,
    DDP_MESSAGE_REPORT    = 4, /* up: ranks of a subtree; */
    DDP_MESSAGE_TABLE     = 5, /* down: all ranks */
    DDP_MESSAGE_VERDICT   = 6, /* down */
    DDP_MESSAGE_HANDOVER  = 7, /* up: another rank of the machine speaks from now on */
    DDP_MESSAGE_TYPES     = 8,
} ddp_message_type_t;

typedef struct ddp_message {
    ddp_message_type_t type;
    uint64_t           sequence;
    const uint8_t     *payload;
    size_t             bytes; /* of payload */
} ddp_message_t;

/** SipHash-2-4 (Aumasson and Bernstein, 2012). */
uint64_t ddp_siphash(const uint8_t key[DDP_KEY_BYTES], const void *data, size_t bytes);
/** The key of a connection. */
void ddp_message_key(const uint8_t token[DDP_KEY_BYTES], const uint8_t server[DDP_NONCE_BYTES],
                     const uint8_t client[DDP_NONCE_BYTES], uint8_t key[DDP_KEY_BYTES]);
/** Head and seal around the payload that lies at `text` + DDP_MESSAGE_HEAD. @return bytes in all */
size_t ddp_message_seal(const uint8_t key[DDP_KEY_BYTES], ddp_message_type_t type, uint64_t sequence,
                        uint8_t *text, size_t payload_bytes);
/** Size in all of the message that begins with `text`. @return 0: more bytes are needed; (size_t)-1: this is
 * none of ours, or longer than `most` */
size_t ddp_message_size(const uint8_t *text, size_t bytes, size_t most);
/** @param [in] bytes  as ddp_message_size() told. @return false: not of this key, or damaged */
bool ddp_message_open(const uint8_t key[DDP_KEY_BYTES], const uint8_t *text, size_t bytes,
                      ddp_message_t *message_p);

/** A rank's entry: ages instead of times. @param [out] text  [DDP_ENTRY_BYTES] */
void ddp_entry_write(const ddp_view_t *view, int rank, int64_t now_ns, uint8_t *text);
/** @return false: no rank of `size`, or values that cannot be. */
bool ddp_entry_read(const uint8_t *text, int size, int64_t now_ns, ddp_view_t *view_p, int *rank_p);
void ddp_hello_write(int machine, int rank, const uint8_t nonce[DDP_NONCE_BYTES], uint8_t *text);
bool ddp_hello_read(const ddp_message_t *message, int machines, int size, int *machine_p, int *rank_p,
                    uint8_t nonce[DDP_NONCE_BYTES]);
void ddp_verdict_write(const ddp_verdict_t *verdict, uint8_t *text);
bool ddp_verdict_read(const ddp_message_t *message, int size, ddp_verdict_t *verdict_p);

/* monitor_place.c: pure, but for the last */
#define DDP_MONITOR_ADDRESSES 4
/** Where a rank's monitor listens. Crosses MPI as bytes. */
typedef struct ddp_place {
    uint32_t address[DDP_MONITOR_ADDRESSES]; /* IPv4, network order; 0: none */
    uint32_t mask[DDP_MONITOR_ADDRESSES];
    uint16_t port; /* host order; 0: does not listen */
    uint16_t spare;
} ddp_place_t;
/** The address of `there` that is tried as the `turn`-th from `here`: those of a common network first.
 * @return 0: there are no more */
uint32_t ddp_place_address(const ddp_place_t *here, const ddp_place_t *there, size_t turn);
/** This host's addresses. @param [in] is_alone  all ranks are on this host: 127.0.0.1
 * @return DDP_ERR_CONFIG: `list` matches none */
ddp_status_t ddp_place_find(const char *list, bool is_alone, ddp_place_t *place_p) DDP_NODISCARD;

/* monitor_net.c: sockets that never block */
/** A connection that has shown the token. */
typedef struct ddp_peer {
    int      fd;            /* owned; -1: none */
    int      machine, rank; /* at its other end */
    uint8_t  key[DDP_KEY_BYTES];
    uint64_t sent, received; /* messages */
    int64_t  heard_ns;
    uint8_t *in; /* owned, [size], as out; NULL without a connection */
    uint8_t *out;
    size_t   size;
    size_t   in_begin, in_end, out_begin, out_end; /* what is not done yet */
    bool     is_told;                              /* the verdict */
    bool     is_leaving;                           /* another rank of its machine will speak */
    bool     is_silent; /* the kernel has given it up, as nobody answers: no end of a process */
} ddp_peer_t;
/** What became of a connection. */
typedef enum ddp_news {
    DDP_NEWS_NONE,
    DDP_NEWS_OPEN,    /* the handshake is done */
    DDP_NEWS_REFUSED, /* nobody listens there */
    DDP_NEWS_FAILED,  /* not reached, or broken off */
} ddp_news_t;

/** Not connected. Its memory, for entries of all ranks, is taken with a connection: of many machines few have
 * one to this. */
void ddp_peer_init(ddp_peer_t *peer, int size);
/** The memory too. */
void ddp_peer_close(ddp_peer_t *peer);
/** Append a message whose payload `bytes` long is at *payload_p afterwards: fill it, then ddp_peer_seal().
 * @return false: no room before others are sent */
bool ddp_peer_begin(ddp_peer_t *peer, size_t bytes, uint8_t **payload_p);
void ddp_peer_seal(ddp_peer_t *peer, ddp_message_type_t type, size_t bytes);
/** Say that another connection, or rank, will be there for this one: its end is none of a process. */
void ddp_peer_hand_over(ddp_peer_t *peer);
/** Send what can be sent. @return false: it is broken, and closed */
bool               ddp_peer_flush(ddp_peer_t *peer);
static inline bool ddp_peer_has_more(const ddp_peer_t *peer)
{
    return peer->out_end > peer->out_begin;
}
/** Read what there is. @return false: it has ended, or says what cannot be */
bool ddp_peer_read(ddp_peer_t *peer);
/** The next message that was read; its payload is valid until ddp_peer_read(). @return false: none;
 * *is_bad_p: what came is none of ours */
bool ddp_peer_next(ddp_peer_t *peer, ddp_message_t *message_p, bool *is_bad_p);

/** One that has not: a bounded number, a bounded time. */
#define DDP_MONITOR_GUESTS 32
typedef struct ddp_guest {
    int     fd; /* owned; -1: none */
    int64_t since_ns;
    uint8_t nonce[DDP_NONCE_BYTES];
    uint8_t in[DDP_MESSAGE_GUEST];
    size_t  used;
} ddp_guest_t;
/** A port of `place`, which is written into it. */
ddp_status_t ddp_door_open(ddp_place_t *place, const char *list, bool is_alone, int *fd_p) DDP_NODISCARD;
/** Take who is at the door, at most a few; the longest there makes room. @param [in] is_open  else all are
 * sent away */
void ddp_door_look(int door, bool is_open, int64_t now_ns, ddp_guest_t *guests);
/** @return DDP_NEWS_OPEN: *peer_p has got the connection of a rank of *machine_p, and the guest is gone;
 * `token` as always */
ddp_news_t ddp_guest_look(ddp_guest_t *guest, const uint8_t token[DDP_KEY_BYTES], int machines, int size,
                          int64_t now_ns, ddp_peer_t *peers);
void       ddp_guest_drop(ddp_guest_t *guest);

/** The way to another monitor that is being made. */
typedef struct ddp_call {
    int     fd; /* owned; -1: none */
    int64_t since_ns;
    bool    is_connected, is_greeted; /* HELLO is sent */
    uint8_t key[DDP_KEY_BYTES];
    uint8_t in[DDP_MESSAGE_GUEST];
    size_t  used;
} ddp_call_t;
/** @return DDP_NEWS_NONE: it is on its way */
ddp_news_t ddp_call_begin(ddp_call_t *call, uint32_t address, uint16_t port, int64_t now_ns);
/** @param [in] machine, rank  ours. @param [out] peer  gets the connection with DDP_NEWS_OPEN */
ddp_news_t ddp_call_look(ddp_call_t *call, const uint8_t token[DDP_KEY_BYTES], int machine, int rank,
                         int64_t now_ns, ddp_peer_t *peer);
void       ddp_call_drop(ddp_call_t *call);

/* monitor_tree.c */
#define DDP_MONITOR_FAN 32
/** Between two messages: more for each rank of a large job. */
static inline int64_t ddp_monitor_every_ns(int size)
{
    return 200 * DDP_NS_PER_MS + size * (DDP_NS_PER_MS / 2);
}
/** A thread that has not run for so long is not waited for: another rank of its machine speaks, and is heard
 * of within the limit. */
static inline int64_t ddp_monitor_take_over_ns(int64_t limit_ns)
{
    return limit_ns / 2 < 3000 * DDP_NS_PER_MS ? limit_ns / 2 : 3000 * DDP_NS_PER_MS;
}
/** Several of them, and longer than it takes to find that a connection which is closed is not made anew. */
static inline int64_t ddp_monitor_deaf_ns(int size)
{
    return 5 * ddp_monitor_every_ns(size) + 1000 * DDP_NS_PER_MS;
}
/** What is known of another machine as a place to report to. */
typedef enum ddp_reach {
    DDP_REACH_OPEN = 0, /* not known to be lost */
    DDP_REACH_ENDED,
    DDP_REACH_SILENT,
} ddp_reach_t;

typedef struct ddp_monitor_net {
    bool         is_used; /* there is more than one machine */
    uint8_t      token[DDP_KEY_BYTES];
    ddp_place_t *places; /* owned, [size] */
    int          door;   /* owned; -1: none */
    ddp_guest_t  guest[DDP_MONITOR_GUESTS];
    ddp_peer_t  *child;     /* owned, [machines] */
    int64_t     *closed_ns; /* owned, [machines]: when a child's connection broke; 0: it did not */
    int         *via;       /* owned, [machines]: the child that tells of it; -1: none */
    ddp_peer_t   parent;
    ddp_call_t   call;
    int         *reach;     /* owned, [machines]: ddp_reach_t */
    int          target;    /* machine that is called */
    int64_t      target_ns; /* since when */
    int          turn_rank; /* of its ranks, and of that one's addresses */
    size_t       turn;
    bool         is_refused; /* so far in this round, by all of its ranks */
    bool         had_parent; /* else the machines may not reach each other at all */
    bool         is_warned;
    int64_t      pause_ns;    /* no call before */
    int64_t      alone_ns;    /* since when there is no parent */
    bool         is_root;     /* nobody is left to report to */
    bool         is_released; /* those above have done their work */
    int64_t      told_ns;     /* last report, or table */
} ddp_monitor_net_t;

/** What the ranks of a machine share of it. */
typedef struct ddp_board {
    _Atomic uint32_t told; /* DDP_TOLD_...: set once */
    ddp_verdict_t    verdict;
    ddp_far_t        far[]; /* [size] */
} ddp_board_t;
enum { DDP_TOLD_NOTHING, DDP_TOLD_SOON, DDP_TOLD };

/** What the kernel said at the start, to see what is new. */
typedef struct ddp_oom {
    const char *root; /* borrowed */
    int         kmsg; /* owned; -1: may not be read */
    uint64_t    group_kills, machine_kills;
} ddp_oom_t;

struct ddp_monitor {
    ddp_monitor_params_t params;             /* `interfaces` is not kept */
    ddp_comm_t          *comm;               /* borrowed, as in params */
    ddp_board_t         *board;              /* borrowed from comm */
    int                  size, first, count; /* ranks in all, and of this machine */
    int                  wake;               /* owned: an eventfd */
    pthread_t            thread;
    bool                 has_thread;
    _Atomic int          is_ending;
    pid_t                launcher;

    /* Of the thread: */
    ddp_view_t    *view; /* owned, [size] */
    struct pollfd *poll; /* owned, [polls] */
    size_t         polls;
    bool           is_speaker, is_new;
    ddp_oom_t      oom;
    int64_t        now_ns, woken_ns;
    int64_t        grace_ns; /* after a long stop; nobody is judged before */
    int64_t left_ns; /* after a stop beyond the limit: a connection that breaks until then says it all */
    ddp_monitor_net_t net;
};

/* monitor_local.c: on the thread */
/** @param [in] root  before each path: "", or what a test has made */
void ddp_oom_open(ddp_oom_t *oom, const char *root);
void ddp_oom_close(ddp_oom_t *oom);
/** Has the kernel ended process `pid` for want of memory? */
bool ddp_oom_has_killed(ddp_oom_t *oom, int pid);
/** Is the process stopped (SIGSTOP, a debugger)? */
bool ddp_process_is_stopped(int pid);
/** As waitpid() would have it, or DDP_EXIT_UNKNOWN. @param [in] pidfd  < 0: none */
int32_t ddp_process_wait_status(int pidfd, int pid);
/** A rank's own count of its time. Any thread. */
void ddp_monitor_read_shares(const ddp_share_cell_t *cell, ddp_shares_t *shares);
void ddp_monitor_write_shares(ddp_share_cell_t *cell, const ddp_shares_t *shares);
/** See where this machine's ranks are, and that they get on. */
void ddp_monitor_follow(ddp_monitor_t *monitor);
/** Find out how they live. After ddp_monitor_follow(). @return true: one of them has another life than before
 */
bool ddp_monitor_look_here(ddp_monitor_t *monitor);

/* monitor_tree.c: on the thread, but for open and close */
/** Collective. After view, poll and board are there. */
ddp_status_t ddp_monitor_net_open(ddp_monitor_t *monitor, const char *interfaces) DDP_NODISCARD;
void         ddp_monitor_net_close(ddp_monitor_t *monitor);
/** Hear what others say, and reach those who are to be reported to. @return true: a rank has another life
 * than before */
bool ddp_monitor_net_hear(ddp_monitor_t *monitor);
/** Tell others what is known: now and then, and at once where is_new. */
void ddp_monitor_net_tell(ddp_monitor_t *monitor, bool is_new);
/** The verdict, and what was not sent yet; again and again. */
void ddp_monitor_net_verdict(ddp_monitor_t *monitor);
/** Send away who comes: this rank does not speak. */
void ddp_monitor_net_refuse(ddp_monitor_t *monitor);
/** This rank speaks from now on. */
void ddp_monitor_net_begin(ddp_monitor_t *monitor);
/** Another rank speaks from now on, or this one's work is over. */
void ddp_monitor_net_leave(ddp_monitor_t *monitor);
/** Descriptors for poll(). @return how many */
size_t               ddp_monitor_net_poll(const ddp_monitor_t *monitor, struct pollfd *polls);
static inline size_t ddp_monitor_net_polls(const ddp_monitor_t *monitor)
{
    return 3 + DDP_MONITOR_GUESTS + (size_t)monitor->comm->machines;
}

/* monitor_up.c: the way to who is reported to */
void ddp_monitor_up_begin(ddp_monitor_t *monitor);
/** @return true: a rank has another life than before */
bool ddp_monitor_up_hear(ddp_monitor_t *monitor);
/** A connection broke, and this process has been stopped for so long that the others have gone on without it:
 * it leaves, and says nothing. */
void ddp_monitor_is_left(ddp_monitor_t *monitor);
/** The connection broke. */
void ddp_monitor_up_lose(ddp_monitor_t *monitor);
/** Entries that machine `child` sent; -1: from above. Of monitor_tree.c. @return false: they say what cannot
 * be */
bool ddp_monitor_take_entries(ddp_monitor_t *monitor, const ddp_message_t *message, int child,
                              bool *is_new_p);

/* monitor_thread.c */
/** The thread. */
void *ddp_monitor_watch(void *monitor);
/** This machine's verdict, if it has none yet. */
void               ddp_monitor_tell_machine(ddp_monitor_t *monitor, const ddp_verdict_t *verdict);
static inline bool ddp_monitor_is_told(const ddp_monitor_t *monitor)
{
    return atomic_load_explicit(&monitor->board->told, memory_order_acquire) == DDP_TOLD;
}

#endif
