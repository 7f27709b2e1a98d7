/** @file Inside of the saver: what its files share. Private to io. */
#ifndef DDP_SAVER_INTERNAL_H_
#define DDP_SAVER_INTERNAL_H_

#include <pthread.h>
#include <stdatomic.h>

#include "base/error.h"
#include "io/checkpoint_format_internal.h"
#include "io/saver.h"

#define DDP_SAVER_PATH_SIZE 4096

/** A range of the file that one rank writes; all of them, in order, are the file behind its header. */
typedef struct ddp_save_piece {
    uint64_t at, bytes;
    size_t   tensor;
    int      array; /* DDP_CHECKPOINT_METADATA: rank 0 has its bytes in the plan */
    int      rank;  /* local rank */
    size_t   first; /* element of the array */
    uint32_t crc;   /* written by its rank */
} ddp_save_piece_t;

/** A rank of the writing machine; in shared memory. */
typedef struct ddp_save_writer {
    _Atomic uint64_t ended;  /* number of the last save that it has done with */
    _Atomic uint64_t moved;  /* grows while it makes progress */
    _Atomic int      failed; /* in that save */
    char             why[DDP_ERROR_LINE_SIZE];
} ddp_save_writer_t;

/** What the ranks of the writing machine share about the save that runs, the `number`th. */
typedef struct ddp_save_shared {
    _Atomic uint64_t opened; /* the temporary file of this save is there, or cannot be made (`broken`) */
    _Atomic uint64_t closed; /* this save has come to its end */
    _Atomic int      broken;
    char             path[DDP_SAVER_PATH_SIZE]; /* of the temporary file */
    size_t           n_pieces;
} ddp_save_shared_t;

/** One save, on its way from the training thread to the writing thread of this rank. */
typedef struct ddp_save_job {
    uint64_t              number; /* from 1 */
    uint64_t              step;
    bool                  is_best;
    int64_t               start_ns, stall_ns;
    ddp_checkpoint_plan_t plan; /* owned; rank 0 */
} ddp_save_job_t;

#define DDP_SAVER_RESULTS 4

struct ddp_saver {
    ddp_saver_params_t params;
    char               folder[DDP_SAVER_PATH_SIZE];
    int                rank, local_rank, local_size;
    bool               is_writer; /* on rank 0's machine */
    size_t             n_slots;
    size_t             floats;   /* of all arrays */
    float             *snapshot; /* owned; this rank's part of all arrays, in the order of the file */
    uint64_t           number;   /* saves begun */
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
    bool              is_stuck; /* a thread that did not answer may still write: no more saves */
    ddp_save_job_t    job;
    ddp_save_result_t result[DDP_SAVER_RESULTS]; /* rank 0: oldest first */
    size_t            n_results;
};

/** The writing thread of a rank; `saver` as its argument. */
void *ddp_saver_thread(void *saver);

/* saver_folder.c */
/** Make and check the folder, remove temporary files, see that `bytes` fit. */
ddp_status_t ddp_saver_folder_prepare(const char *folder, uint64_t bytes) DDP_NODISCARD;
/** Create the temporary file of a step with its space reserved. @param [out] path  [DDP_SAVER_PATH_SIZE] */
ddp_status_t ddp_saver_file_create(const char *folder, uint64_t step, uint64_t bytes, char *path,
                                   int *fd_p) DDP_NODISCARD;
/** Give the complete temporary file its name. @param [in] fd  closed in any case */
ddp_status_t ddp_saver_file_commit(const char *folder, uint64_t step, const char *path, int fd,
                                   char *name) DDP_NODISCARD;
/** After a commit: links for people, and only the newest `keep` files and the best stay. Failures are
 * warnings. */
void ddp_saver_folder_tidy(const char *folder, uint64_t step, bool is_best, size_t keep);

#endif
