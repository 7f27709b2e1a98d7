/**
 * @file What the files of the communicator share: its struct, the machine's hall, the control plane's steps.
 * Private to ddp/comm*.c.
 */
#ifndef DDP_COMM_STATE_INTERNAL_H_
#define DDP_COMM_STATE_INTERNAL_H_

#include "base/clock.h"
#include "base/error.h"
#include "ddp/comm_internal.h"

#define DDP_HOST_NAME_SIZE 64
#define DDP_CPU_WORDS      16

/** What every rank tells about itself when a communicator is made. Crosses MPI as bytes. */
typedef struct ddp_member {
    char     host[DDP_HOST_NAME_SIZE];
    uint64_t place; /* equal where process ids mean the same: boot and pid namespace */
    uint64_t cpus[DDP_CPU_WORDS];
    int32_t  pid;
    int32_t  shm;    /* ddp_shm_mode_t asked for */
    int32_t  leader; /* lowest parent rank of its machine */
    int32_t  spare;
} ddp_member_t;

/** How a rank is. Crosses the network as a byte. */
typedef enum ddp_life {
    DDP_LIFE_RUNS    = 0,
    DDP_LIFE_STOPPED = 1,
    DDP_LIFE_ENDED   = 2, /* without a word */
    DDP_LIFE_FAILED  = 3, /* asks to say why */
    DDP_LIFE_GAVE_UP = 4, /* because of another */
    DDP_LIFE_DONE    = 5, /* its work is over, or somebody has said why it ends */
    DDP_LIFE_ORPHAN  = 6, /* its launcher has ended */
    DDP_LIFE_UNKNOWN = 7, /* of another machine, and never heard of */
    DDP_LIVES        = 8,
} ddp_life_t;

/** Where a rank's time went so far: ddp_shares_t that another process or thread reads. `steps` is written
 * last. */
typedef struct ddp_share_cell {
    _Atomic uint64_t compute_us, wait_us, comm_us, steps;
} ddp_share_cell_t;

/** A rank's place in the hall. */
typedef struct ddp_seat {
    _Alignas(64) _Atomic uint64_t progress; /* grows with everything the rank gets done */
    _Atomic int32_t waits_for;              /* rank that it has been waiting for longer than 1 ms, or -1 */
    _Atomic int32_t gave_up;                /* that wait has failed: if the rank ends now, it is no cause */
    ddp_flag_t      meet;                   /* rounds of the machine's barrier */
    uint64_t        window, offset, count;  /* its argument of an all-reduce; guarded by `meet` */
    /* For the monitor: where the rank is, and its time so far. */
    _Alignas(64) _Atomic uint64_t step;
    _Atomic uint64_t place; /* ddp_stage_t << 32 | bucket */
    ddp_share_cell_t shares;
    /* By the monitor's thread: */
    _Alignas(64) _Atomic uint64_t beat;
    _Atomic int32_t life;         /* ddp_life_t, as far as the rank itself says */
    _Atomic int32_t is_sent_away; /* its launcher has begun to end it */
} ddp_seat_t;

/** What is known of a rank of another machine; the monitor of one of ours writes it. */
typedef struct ddp_far {
    _Atomic uint64_t progress;
    _Atomic int32_t  waits_for;
    _Atomic int32_t  life; /* ddp_life_t */
    ddp_share_cell_t shares;
} ddp_far_t;

/** The page that the ranks of a machine share. */
typedef struct ddp_hall {
    _Alignas(64) _Atomic uint32_t bell; /* futex word: rung when a flag is set */
    _Atomic uint32_t sleepers;
    ddp_seat_t       seat[]; /* [local size] */
} ddp_hall_t;

/** What is known about a rank in the current wait. */
typedef struct ddp_watch {
    uint64_t run;      /* wait that the rest belongs to */
    uint64_t moves;    /* sum of progress counters when last looked */
    int64_t  moved_ns; /* when they last changed, at least the start of the wait */
    int64_t  ended_ns; /* when a process was first seen to have ended; 0: none */
    int64_t  seen_ns;  /* when last looked */
} ddp_watch_t;

/** Memory of ddp_comm_shared() or _each(). */
typedef struct ddp_window {
    char  *memory; /* owned */
    size_t bytes;
    size_t part_bytes; /* > 0: part of local rank l starts at l * part_bytes */
    bool   is_private;
} ddp_window_t;

/** Kinds of control-plane calls; values cross MPI. */
typedef enum ddp_op {
    DDP_OP_AGREE     = 1,
    DDP_OP_BROADCAST = 2,
    DDP_OP_ALLGATHER = 3,
    DDP_OP_WINDOW    = 4,
} ddp_op_t;

/** What a rank tells the root of a star, and the root's verdict back. Crosses MPI as bytes. */
typedef struct ddp_record {
    uint64_t bytes; /* argument of the call, to be the same on all */
    uint64_t sequence;
    int32_t  op;
    int32_t  status;
    int32_t  rank;  /* whose line it is */
    int32_t  fatal; /* verdict only: the communicator is of no more use */
    char     line[DDP_ERROR_LINE_SIZE];
} ddp_record_t;

#define DDP_CHUNK_BYTES ((size_t)256 << 10)

/** Floats of an all-reduce between machines at a time: cut alike on all, whatever memory each rank gives. */
#define DDP_ACROSS_COUNT     ((size_t)2 << 20)
#define DDP_ACROSS_EXCHANGES 3

/** Buffers that MPI requests refer to. After a failure a request may be pending for ever: then this block is
 * never freed. */
typedef struct ddp_mail {
    MPI_Request  *in_request;  /* [size] */
    MPI_Request  *out_request; /* [size] */
    ddp_record_t *in;          /* [size] */
    ddp_record_t  mine;
    ddp_record_t  verdict;
    _Alignas(64) char chunk[2][DDP_CHUNK_BYTES];
} ddp_mail_t;

/** A star: ranks first .. first + count - 1, the first is its root. */
typedef struct ddp_star {
    int first, count;
} ddp_star_t;

struct ddp_comm {
    MPI_Comm       control; /* owned; ranks in the parent's order until they are renumbered */
    MPI_Comm       data;    /* owned */
    int            rank, size;
    int            local_rank, local_size;
    int            machine, machines;
    int            timeout_ms;
    ddp_shm_mode_t shm;
    bool           may_spin;      /* a core for every rank of the machine */
    ddp_member_t  *members;       /* owned, [size] */
    int           *machine_first; /* owned, [machines + 1] */
    int           *machine_of;    /* owned, [size] */
    int           *pidfd;         /* owned, [size]; -1: cannot be watched, -2: watched by kill(pid, 0) */
    ddp_mail_t    *mail;          /* owned */
    uint64_t       sequence[2];   /* control-plane calls so far: all ranks, this machine */
    ddp_status_t   broken;        /* the control plane failed: nothing more goes over it */
    char           broken_line[DDP_ERROR_LINE_SIZE];

    ddp_window_t *windows; /* owned, [n_windows] */
    size_t        n_windows, window_capacity;
    bool          is_kept;  /* windows stay when the communicator goes */
    ddp_hall_t   *hall;     /* borrowed from window 0; NULL until it is there */
    ddp_far_t    *far;      /* borrowed from the monitor, [size]; NULL without one, or on one machine */
    float        *staging;  /* borrowed from a window: this rank's part; NULL until first needed */
    uint64_t      meetings; /* rounds of the machine's barrier so far */
    ddp_link_t    link;     /* between machines, as measured */
    bool          has_link;

    struct ddp_exchange *exchange[DDP_ACROSS_EXCHANGES]; /* owned: all-reduce between machines */
    size_t               exchange_blocks[DDP_ACROSS_EXCHANGES];
    size_t              *across_nodes; /* owned */
    int32_t             *across_op;    /* owned */
    float               *across_rest;  /* owned, [DDP_BLOCK] */
    bool                 is_exchanging;
    ddp_exchange_kind_t  across_kind; /* as asked for */

    ddp_device_t *device; /* borrowed; NULL: none attached */
    ddp_wait_t    wait;
    ddp_watch_t  *watch; /* owned, [size] */
    uint64_t      run;   /* counts waits */
    uint64_t      warned_run;
    int64_t       waited_ns;    /* of the last idle call */
    int64_t       run_start_ns; /* of the current wait */
    int64_t       looked_ns;    /* when peers were last looked at */
    uint32_t      bell_seen;
    bool          is_published; /* our seat says whom we wait for */
};

/* comm.c */
/** The ranks of this machine, and all ranks. */
static inline ddp_star_t ddp_comm_star_machine(const ddp_comm_t *comm)
{
    ddp_star_t star = {comm->rank - comm->local_rank, comm->local_size};

    return star;
}
static inline ddp_star_t ddp_comm_star_all(const ddp_comm_t *comm)
{
    ddp_star_t star = {0, comm->size};

    return star;
}
static inline bool ddp_comm_is_local(const ddp_comm_t *comm, int rank)
{
    const int first = comm->rank - comm->local_rank;

    return rank >= first && rank < first + comm->local_size;
}
static inline ddp_seat_t *ddp_comm_seat(const ddp_comm_t *comm, int rank)
{
    return &comm->hall->seat[rank - (comm->rank - comm->local_rank)];
}
/** "rank 3 on node07", or "rank 3" while hosts are unknown. @return text */
const char *ddp_comm_name(const ddp_comm_t *comm, int rank, char *text, size_t size);
/** Room for ddp_comm_name(). */
#define DDP_NAME_SIZE (DDP_HOST_NAME_SIZE + 32)

/* comm_control.c */
ddp_status_t ddp_comm_mail_create(ddp_comm_t *comm) DDP_NODISCARD;
void         ddp_comm_mail_destroy(ddp_comm_t *comm);
/** ddp_comm_agree() among the ranks of this machine. */
ddp_status_t ddp_comm_agree_machine(ddp_comm_t *comm, ddp_status_t status) DDP_NODISCARD;
/** ddp_comm_broadcast() from local rank 0 of this machine. */
ddp_status_t ddp_comm_broadcast_machine(ddp_comm_t *comm, void *data, size_t bytes) DDP_NODISCARD;
/** All ranks of this machine are here and mean the same size. */
ddp_status_t ddp_comm_meet_machine(ddp_comm_t *comm, ddp_op_t op, size_t bytes) DDP_NODISCARD;
/** One message of at most DDP_CHUNK_BYTES from / into comm->mail->chunk[which], bounded by the deadline. */
ddp_status_t ddp_comm_chunk_send(ddp_comm_t *comm, int to, int which, size_t bytes,
                                 const char *what) DDP_NODISCARD;
ddp_status_t ddp_comm_chunk_receive(ddp_comm_t *comm, int from, int which, size_t bytes,
                                    const char *what) DDP_NODISCARD;

/* comm_wait.c */
/** Open what tells that a peer's process ends. Local. */
void ddp_comm_watch_open(ddp_comm_t *comm);
void ddp_comm_watch_close(ddp_comm_t *comm);
/** A new wait begins. */
void ddp_comm_run_start(ddp_comm_t *comm);
/** Can it be seen that rank `rank` of this place has ended? Any thread. */
bool ddp_comm_has_ended(const ddp_comm_t *comm, int rank);
/** What ddp_comm_look() found out. */
typedef enum ddp_sight {
    DDP_SIGHT_FINE  = 0,
    DDP_SIGHT_ENDED = 1, /* *culprit_p is no more */
    DDP_SIGHT_LATE  = 2, /* nothing moved for `limit_ns`; *culprit_p is the end of the chain of waits */
} ddp_sight_t;
ddp_sight_t ddp_comm_look(ddp_comm_t *comm, int rank, int64_t now_ns, int64_t limit_ns, int *culprit_p);
/** Tell the machine's ranks whom this one waits for; -1: nobody. */
void ddp_comm_publish_wait(ddp_comm_t *comm, int rank);
/** The wait for `rank` has failed: what was published stays. */
void ddp_comm_publish_failure(ddp_comm_t *comm, int rank);

/* comm_across.c */
/**
 * part[p] += all others, on all machines; `count` at most DDP_ACROSS_COUNT, parts aligned as kernels want
 * them. All ranks of the machine call, meet before and after.
 * @param [in,out] part  [local_size], [count] floats each
 */
ddp_status_t ddp_comm_reduce_across(ddp_comm_t *comm, float *const *part, size_t count) DDP_NODISCARD;
void         ddp_comm_across_destroy(ddp_comm_t *comm);

/* comm_window.c */
void ddp_comm_windows_destroy(ddp_comm_t *comm);
/** The window of _shared_each() in which this rank's part holds [memory, memory + bytes), or NULL. */
const ddp_window_t *ddp_comm_window_find(const ddp_comm_t *comm, const void *memory, size_t bytes,
                                         size_t *index_p, size_t *offset_p);

#endif
