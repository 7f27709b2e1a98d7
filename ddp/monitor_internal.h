/** @file Inside of the monitor: what is known of ranks, who is judged how, and what crosses the network.
 * Private to ddp/monitor*.c and its tests. */
#ifndef DDP_MONITOR_INTERNAL_H_
#define DDP_MONITOR_INTERNAL_H_

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>

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
    ddp_shares_t shares;
} ddp_view_t;

/* monitor_judge.c: pure */
/** What the judge knows. */
typedef struct ddp_court {
    const ddp_view_t *view; /* [size] */
    const int        *machine_of;
    int               size;
    int64_t           now_ns, limit_ns;
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

/* monitor_net.c */
/** Where a rank's monitor listens. Crosses MPI as bytes. */
#define DDP_MONITOR_ADDRESSES 4
typedef struct ddp_place {
    uint32_t address[DDP_MONITOR_ADDRESSES]; /* IPv4, network order; 0: none */
    uint32_t mask[DDP_MONITOR_ADDRESSES];
    uint16_t port; /* host order; 0: does not listen */
    uint16_t spare;
} ddp_place_t;

/** A connection that has shown the token. */
typedef struct ddp_link {
    int      fd; /* owned; -1: none */
    int      machine, rank;
    uint8_t  key[DDP_KEY_BYTES];
    uint64_t sent, received; /* messages */
    int64_t  heard_ns;
    uint8_t *in; /* owned, [in_size] */
    size_t   in_size, in_used;
    uint8_t *out; /* owned, [out_size]: sent from out_begin to out_end */
    size_t   out_size, out_begin, out_end;
} ddp_link_t;

/** One that has not: a bounded number, a bounded time. */
#define DDP_MONITOR_GUESTS 32
typedef struct ddp_guest {
    int     fd; /* -1: none */
    int64_t since_ns;
    uint8_t nonce[DDP_NONCE_BYTES];
    uint8_t in[DDP_MESSAGE_GUEST];
    size_t  used;
} ddp_guest_t;

/** The way to another machine that is being made. */
typedef struct ddp_call {
    int     fd; /* -1: none */
    int64_t since_ns;
    int     rank;
    size_t  address;
    bool    is_greeted; /* HELLO is sent */
    uint8_t nonce[DDP_NONCE_BYTES];
    uint8_t key[DDP_KEY_BYTES];
    uint8_t in[DDP_MESSAGE_GUEST];
    size_t  used;
} ddp_call_t;

#define DDP_MONITOR_FAN 32

typedef struct ddp_monitor_net {
    bool         is_used; /* there is more than one machine */
    bool         is_flat; /* they share one host: addresses are 127.0.0.1 */
    uint8_t      token[DDP_KEY_BYTES];
    ddp_place_t *places;   /* owned, [size] */
    int          listener; /* owned; -1: none */
    ddp_guest_t  guest[DDP_MONITOR_GUESTS];
    ddp_link_t  *child; /* owned, [machines]: by machine */
    ddp_link_t   parent;
    ddp_call_t   call;
    uint64_t     nonces; /* drawn so far */
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
    int      kmsg; /* owned; -1: may not be read */
    uint64_t kills;
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
    ddp_view_t       *view; /* owned, [size] */
    struct pollfd    *poll; /* owned, [polls] */
    size_t            polls;
    bool              is_speaker;
    ddp_oom_t         oom;
    int64_t           now_ns;
    ddp_monitor_net_t net;
};

/* monitor_local.c: on the thread */
void ddp_oom_open(ddp_oom_t *oom);
void ddp_oom_close(ddp_oom_t *oom);
/** Has the kernel ended process `pid` for want of memory? */
bool ddp_oom_has_killed(ddp_oom_t *oom, int pid);
/** Is the process stopped (SIGSTOP, a debugger)? */
bool ddp_process_is_stopped(int pid);
/** As waitpid() would have it, or DDP_EXIT_UNKNOWN. @param [in] pidfd  < 0: none */
int32_t ddp_process_wait_status(int pidfd, int pid);
/** A rank's own count of its time. Any thread. */
void ddp_monitor_read_shares(const ddp_seat_t *seat, ddp_shares_t *shares);
/** See where this machine's ranks are, and that they get on. */
void ddp_monitor_follow(ddp_monitor_t *monitor);
/** Find out how they live. After ddp_monitor_follow(). @return true: one of them has another life than before
 */
bool ddp_monitor_look_here(ddp_monitor_t *monitor);

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
