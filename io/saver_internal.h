/** @file Inside of the saver: what its files share. Private to io. */
#ifndef DDP_SAVER_INTERNAL_H_
#define DDP_SAVER_INTERNAL_H_

#include <pthread.h>
#include <stdatomic.h>

#include "base/error.h"
#include "io/checkpoint_format_internal.h"
#include "io/saver.h"

#define DDP_SAVER_PATH_SIZE 4096

/** Elements of an array that one rank writes, and where they come from. Equal on all ranks of the job. */
typedef struct ddp_save_part {
    size_t tensor;
    int    array;
    size_t first, count; /* elements of the array */
    int    holder;       /* a rank, or DDP_REDUCER_EVERYBODY */
    int    writer;       /* a rank of the writing machine */
    size_t at;           /* in the writer's snapshot */
} ddp_save_part_t;

/** As ddp_reducer_holder(). */
typedef int ddp_holder_fn_t(const ddp_reducer_t *reducer, int array, size_t offset, size_t *count_p);

/** A range of the file that one rank writes; all of them, in order, are the file behind its header. */
typedef struct ddp_save_piece {
    uint64_t at, bytes;
    size_t   tensor;
    int      array; /* DDP_CHECKPOINT_METADATA: rank 0 has its bytes in the plan */
    int      rank;  /* of the writing machine; its ranks are the first of all */
    size_t   at_snapshot;
    uint32_t crc; /* written by its rank */
} ddp_save_piece_t;

/** What a writing thread is at. A call that the disk does not answer keeps it there. */
typedef enum ddp_save_stage {
    DDP_SAVE_RESTS = 0, /* or waits for another rank */
    DDP_SAVE_MKDIR,
    DDP_SAVE_OPEN,
    DDP_SAVE_FALLOCATE,
    DDP_SAVE_PWRITE,
    DDP_SAVE_CLOSE,
    DDP_SAVE_FSYNC,
    DDP_SAVE_RENAME,
    DDP_SAVE_FSYNC_FOLDER,
    DDP_SAVE_TIDY, /* links and old files */
    DDP_SAVE_UNLINK,
} ddp_save_stage_t;

/** A rank of the writing machine; in shared memory. */
typedef struct ddp_save_writer {
    _Atomic uint64_t ended;    /* number of the last job that it has done with */
    _Atomic int64_t  moved_ns; /* ddp_clock_ns(), one clock for the machine, when it last made progress */
    _Atomic uint64_t written;  /* bytes of the running save */
    _Atomic int      stage;    /* ddp_save_stage_t */
    _Atomic int      failed;   /* in job `ended` */
    char             why[DDP_ERROR_LINE_SIZE];
} ddp_save_writer_t;

/** What the ranks of the writing machine share about the job that runs, the `number`th. The training thread
 * of rank 0 writes what is not atomic, but `path`, while nothing runs. */
typedef struct ddp_save_shared {
    _Atomic uint64_t opened; /* the temporary file of this save is there, or cannot be made (`broken`) */
    _Atomic uint64_t closed; /* this job has come to its end */
    _Atomic int      broken;
    char             path[DDP_SAVER_PATH_SIZE]; /* of the temporary file */
    char             what[320];                 /* "writing checkpoint '...'" */
    uint64_t         bytes;                     /* of the file; 0: no save */
    size_t           n_pieces;
} ddp_save_shared_t;

/** One job, on its way from the training thread to the writing thread of this rank: a save, or, first of all,
 * getting the folder ready. All that touches the disk is done by that thread, so that it alone can hang. */
typedef struct ddp_save_job {
    uint64_t              number; /* from 1 */
    bool                  is_folder;
    uint64_t              step;
    bool                  is_best;
    double                best_loss;
    int64_t               start_ns, stall_ns;
    ddp_checkpoint_plan_t plan; /* owned; rank 0 */
} ddp_save_job_t;

#define DDP_SAVER_RESULTS 4

struct ddp_saver {
    ddp_saver_params_t params;
    char               folder[DDP_SAVER_PATH_SIZE];
    char               host[64];
    int                rank, local_rank;
    bool               is_writer; /* on rank 0's machine */
    size_t             n_slots;
    size_t             floats; /* of all arrays */
    ddp_holder_fn_t   *holder;
    int                n_writers; /* ranks of the writing machine */
    ddp_save_part_t   *parts;     /* owned, [n_parts]; of an array one behind the other */
    size_t             n_parts;
    size_t            *first_part;  /* owned, [n_tensors * (1 + n_slots)]: of array a of tensor t, a from 0 */
    size_t             own_floats;  /* that this rank writes */
    float             *snapshot;    /* owned, [own_floats] */
    size_t             pass_floats; /* at most, in one message */
    float             *passing;     /* owned; what is on its way to a writer; NULL: nothing ever is */
    uint64_t           number;      /* jobs begun */
    uint64_t           last;        /* step of the last save begun */
    int64_t            warn_ns;     /* rank 0: silence that is worth the next warning */
    size_t             max_pieces;
    ddp_save_shared_t *shared;  /* borrowed from the communicator; writers only, as the two that follow */
    ddp_save_writer_t *writers; /* [local_size] */
    ddp_save_piece_t  *pieces;  /* [max_pieces] */

    pthread_t         thread; /* of writers */
    bool              has_thread;
    pthread_mutex_t   lock; /* guards what follows */
    pthread_cond_t    wake;
    bool              has_job;
    bool              stop;
    bool              has_ended; /* the thread has */
    ddp_save_job_t    job;
    ddp_save_result_t result[DDP_SAVER_RESULTS]; /* rank 0: oldest first */
    size_t            n_results;
};

/** The writing thread of a rank; `saver` as its argument. */
void *ddp_saver_thread(void *saver);
/** From the training thread to the writing thread of this rank, which rests. @param [in] job  its plan is the
 * thread's now */
void ddp_saver_hand_over(ddp_saver_t *saver, const ddp_save_job_t *job);

/** As ddp_saver_create(), with other holders. */
ddp_status_t ddp_saver_create_with(const ddp_saver_params_t *params, ddp_holder_fn_t *holder,
                                   ddp_saver_t **saver_p) DDP_NODISCARD;

/* saver_plan.c */
/** Floats of all arrays. */
size_t ddp_saver_count_floats(const ddp_tensor_desc_t *tensors, size_t n, size_t n_slots);
/** Cut all arrays into parts. n_writers is known. Local. */
ddp_status_t ddp_saver_cut(ddp_saver_t *saver) DDP_NODISCARD;
/** Rank 0, while nothing runs: HDF5's part of the file, and who writes what. @param [out] job  its plan */
ddp_status_t ddp_saver_plan(ddp_saver_t *saver, const ddp_training_state_t *state,
                            ddp_save_job_t *job) DDP_NODISCARD;
/** Collective: each writer's part of all arrays, as they are now, into its snapshot. */
ddp_status_t ddp_saver_copy(ddp_saver_t *saver) DDP_NODISCARD;

/* saver_watch.c */
typedef enum ddp_save_sight {
    DDP_SAVE_IDLE  = 0,
    DDP_SAVE_BUSY  = 1,
    DDP_SAVE_HANGS = 2,
} ddp_save_sight_t;
/** `writer` begins with a stage, which is progress. NULL: nobody looks. */
void ddp_saver_stage(ddp_save_writer_t *writer, ddp_save_stage_t stage);
/** Somebody of this machine has not done with the last job. Writers only. */
bool ddp_saver_is_busy(const ddp_saver_t *saver);
/** Of a thread: a part of the file is written. */
void ddp_saver_moved(ddp_save_writer_t *writer, uint64_t bytes);
/** Nothing of the running job has moved for so long. Writers only. */
int64_t ddp_saver_silence_ns(const ddp_saver_t *saver);
/** Silence that is called hanging: the warning, and a save that is due is left out. */
int64_t ddp_saver_hang_ns(const ddp_saver_t *saver);
int64_t ddp_saver_timeout_ns(const ddp_saver_t *saver);
/** "writing checkpoint '...' on <host>: no progress for 30 s, in fsync, 812 of 1500 MB written" */
void ddp_saver_describe(const ddp_saver_t *saver, uint64_t number, int64_t silence_ns,
                        char text[DDP_ERROR_LINE_SIZE]);
/** Rank 0: how the job that was begun last is getting on; warns while it does not.
 * @param [in] patience_ns  silence that makes it DDP_SAVE_HANGS */
ddp_save_sight_t ddp_saver_look(ddp_saver_t *saver, int64_t patience_ns);
/** Collective: wait until the last job has ended, or hangs by that measure. @param [out] hangs_p  of all
 * ranks
 */
ddp_status_t ddp_saver_wait(ddp_saver_t *saver, int64_t patience_ns, bool *hangs_p) DDP_NODISCARD;

/* saver_folder.c; `me` tells the stages and may be NULL */
/** Make and check the folder, remove temporary files, see that `bytes` fit. */
ddp_status_t ddp_saver_folder_prepare(const char *folder, uint64_t bytes,
                                      ddp_save_writer_t *me) DDP_NODISCARD;
/** Create the temporary file of a step with its space reserved. @param [out] path  [DDP_SAVER_PATH_SIZE] */
ddp_status_t ddp_saver_file_create(const char *folder, uint64_t step, uint64_t bytes, ddp_save_writer_t *me,
                                   char *path, int *fd_p) DDP_NODISCARD;
/** Give the complete temporary file its name. @param [in] fd  closed in any case */
ddp_status_t ddp_saver_file_commit(const char *folder, uint64_t step, const char *path, int fd,
                                   ddp_save_writer_t *me, char *name) DDP_NODISCARD;
/** After a commit: links for people, and only the newest `keep` files and the best stay. Failures are
 * warnings. */
void ddp_saver_folder_tidy(const char *folder, uint64_t step, bool is_best, size_t keep);

#endif
