/* Control plane: stars of MPI point-to-point messages with deadlines. The root of a star hears from every
 * rank before it answers, so it knows who is missing and can tell the rest. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/call.h"
#include "ddp/comm.h"
#include "ddp/comm_state_internal.h"

#define TAG_ALL       7101
#define TAG_MACHINE   7102
#define TAG_DATA      7103
#define SPIN_NS       INT64_C(2000)
#define YIELD_NS      INT64_C(100000)
#define LOOK_NS       (10 * DDP_NS_PER_MS)
#define NAMED_AT_MOST 4

ddp_status_t ddp_comm_mail_create(ddp_comm_t *comm)
{
    const size_t size   = (size_t)comm->size;
    ddp_status_t status = DDP_OK;
    ddp_mail_t  *mail   = aligned_alloc(_Alignof(ddp_mail_t), sizeof(*mail));

    DDP_REQUIRE(mail != NULL, DDP_ERR_NO_MEMORY, "no memory for messages");
    memset(mail, 0, offsetof(ddp_mail_t, chunk));
    comm->mail        = mail;
    mail->in          = calloc(size, sizeof(*mail->in));
    mail->in_request  = malloc(size * sizeof(*mail->in_request));
    mail->out_request = malloc(size * sizeof(*mail->out_request));
    DDP_REQUIRE(mail->in != NULL && mail->in_request != NULL && mail->out_request != NULL, DDP_ERR_NO_MEMORY,
                "no memory for messages of %d ranks", comm->size);
    for (size_t i = 0; i < size; i++) {
        mail->in_request[i]  = MPI_REQUEST_NULL;
        mail->out_request[i] = MPI_REQUEST_NULL;
    }
out:
    return status;
}

void ddp_comm_mail_destroy(ddp_comm_t *comm)
{
    ddp_mail_t *mail       = comm->mail;
    bool        is_pending = false;
    bool        is_whole; /* else the requests were not set */

    if (mail == NULL) {
        return;
    }
    is_whole = mail->in != NULL && mail->in_request != NULL && mail->out_request != NULL;
    for (int i = 0; is_whole && i < comm->size; i++) {
        is_pending =
            is_pending || mail->in_request[i] != MPI_REQUEST_NULL || mail->out_request[i] != MPI_REQUEST_NULL;
    }
    comm->mail = NULL;
    if (is_pending) {
        return; /* MPI may still write into it: it stays for the rest of the process */
    }
    free(mail->in);
    free(mail->in_request);
    free(mail->out_request);
    free(mail);
}

static ddp_status_t break_off(ddp_comm_t *comm, ddp_status_t status)
{
    if (comm->broken == DDP_OK) {
        comm->broken = status;
        snprintf(comm->broken_line, sizeof(comm->broken_line), "%s", ddp_error_line());
    }
    return status;
}

/* Requests of a wait that failed: what cannot be taken back stays pending, see ddp_comm_mail_destroy(). */
static void give_up(MPI_Request *requests, int n, bool is_receive)
{
    for (int i = 0; i < n; i++) {
        int is_done = 1;

        if (requests[i] == MPI_REQUEST_NULL) {
            continue;
        }
        if (is_receive) {
            MPI_Cancel(&requests[i]); /* fails to take effect once a message has begun to arrive */
        }
        MPI_Test(&requests[i], &is_done, MPI_STATUS_IGNORE);
    }
}

/* Between two looks at MPI. There is no bell for messages, so long waits sleep at most 1 ms. */
static void nap(const ddp_comm_t *comm, int64_t waited_ns)
{
    struct timespec pause = {0, 50000};

    if (waited_ns < SPIN_NS && comm->may_spin) {
        return;
    }
    if (waited_ns < YIELD_NS) {
        sched_yield();
        return;
    }
    if (waited_ns > 20 * DDP_NS_PER_MS) {
        pause.tv_nsec = 1000000;
    }
    nanosleep(&pause, NULL);
}

/* Text about ranks that are late, e.g. "rank 3 on node07", "ranks 2 on node06, 3 on node07 and 2 more". */
static void list_add(const ddp_comm_t *comm, char *text, size_t size, int *n, int rank)
{
    char   name[DDP_NAME_SIZE];
    size_t used = strlen(text);

    if (*n < NAMED_AT_MOST) {
        ddp_comm_name(comm, rank, name, sizeof(name));
        snprintf(text + used, size - used, "%s%s", *n > 0 ? ", " : "", name);
    }
    (*n)++;
}

/* Look at all ranks whose message has not come. */
static ddp_status_t look_at_missing(ddp_comm_t *comm, const MPI_Request *requests, int n, int first_rank,
                                    int64_t now, int64_t limit_ns, const char *what)
{
    char list[DDP_ERROR_LINE_SIZE] = "";
    char name[DDP_NAME_SIZE];
    int  late = 0;

    for (int i = 0; i < n; i++) {
        int         culprit = first_rank + i;
        ddp_sight_t sight;

        if (requests[i] == MPI_REQUEST_NULL) {
            continue;
        }
        sight = ddp_comm_look(comm, first_rank + i, now, limit_ns, &culprit);
        if (sight == DDP_SIGHT_ENDED) {
            return ddp_fail(DDP_ERR_REMOTE, "%s has ended (pid %d): %s",
                            ddp_comm_name(comm, culprit, name, sizeof(name)), (int)comm->members[culprit].pid,
                            what);
        }
        if (sight == DDP_SIGHT_LATE) {
            list_add(comm, list, sizeof(list) - 128, &late, culprit);
        }
    }
    if (late == 0) {
        return DDP_OK;
    }
    if (late > NAMED_AT_MOST) {
        snprintf(list + strlen(list), sizeof(list) - strlen(list), " and %d more", late - NAMED_AT_MOST);
    }
    return ddp_fail(DDP_ERR_TIMEOUT, "%s did not answer within %g s: %s", list,
                    (double)comm->timeout_ms / 1000.0, what);
}

static ddp_status_t test_requests(MPI_Request *requests, int n, int *missing_p)
{
    ddp_status_t status = DDP_OK;

    *missing_p = -1;
    for (int i = 0; i < n; i++) {
        int is_done = 1;

        if (requests[i] != MPI_REQUEST_NULL) {
            DDP_TRY_MPI(MPI_Test(&requests[i], &is_done, MPI_STATUS_IGNORE));
        }
        if (!is_done && *missing_p < 0) {
            *missing_p = i;
        }
    }
out:
    return status;
}

/* Wait for requests[i], which is about rank first_rank + i. On failure they are given up. */
static ddp_status_t await(ddp_comm_t *comm, MPI_Request *requests, int n, int first_rank, bool is_receive,
                          int64_t limit_ns, const char *what)
{
    const int64_t start   = ddp_clock_ns();
    int64_t       looked  = start;
    int           missing = -1;
    ddp_status_t  status  = DDP_OK;

    ddp_comm_run_start(comm);
    for (;;) {
        int64_t now;

        DDP_TRY(test_requests(requests, n, &missing));
        if (missing < 0) {
            break;
        }
        now = ddp_clock_ns();
        if (now - looked >= LOOK_NS) {
            looked = now;
            ddp_comm_publish_wait(comm, first_rank + missing);
            DDP_TRY(look_at_missing(comm, requests, n, first_rank, now, limit_ns, what));
        }
        nap(comm, now - start);
    }
    ddp_comm_publish_wait(comm, -1);
out:
    if (status != DDP_OK) {
        ddp_comm_publish_failure(comm, first_rank + (missing >= 0 ? missing : 0));
        give_up(requests, n, is_receive);
    }
    return status;
}

static int64_t limit_of_root(const ddp_comm_t *comm)
{
    return comm->timeout_ms * DDP_NS_PER_MS;
}

/* The root names who is missing; only if nothing comes from it either is the root itself the missing one. */
static int64_t limit_of_others(const ddp_comm_t *comm)
{
    return limit_of_root(comm) + limit_of_root(comm) / 4 + 500 * DDP_NS_PER_MS;
}

static const char *op_name(int op)
{
    switch (op) {
    case DDP_OP_AGREE:
        return "barrier";
    case DDP_OP_BROADCAST:
        return "broadcast";
    case DDP_OP_ALLGATHER:
        return "gather";
    case DDP_OP_WINDOW:
        return "shared memory";
    default:
        return "unknown call";
    }
}

/* A rank that only passes on what another one has done is no root of the evil. */
static int badness(ddp_status_t status)
{
    return status == DDP_OK ? 0 : status == DDP_ERR_REMOTE ? 1 : 1 - (int)status;
}

static void judge(ddp_comm_t *comm, ddp_star_t star, ddp_record_t *verdict)
{
    const ddp_record_t *mine = &comm->mail->mine;
    char                a[DDP_NAME_SIZE], b[DDP_NAME_SIZE];

    *verdict = *mine;
    for (int i = 1; i < star.count; i++) {
        const ddp_record_t *theirs = &comm->mail->in[i];

        if (theirs->op != mine->op || theirs->sequence != mine->sequence || theirs->bytes != mine->bytes) {
            verdict->fatal  = 1;
            verdict->status = DDP_ERR_STATE;
            snprintf(verdict->line, sizeof(verdict->line),
                     "%s is at call %llu (%s of %llu bytes), %s at call %llu (%s of %llu bytes)",
                     ddp_comm_name(comm, theirs->rank, a, sizeof(a)), (unsigned long long)theirs->sequence,
                     op_name(theirs->op), (unsigned long long)theirs->bytes,
                     ddp_comm_name(comm, mine->rank, b, sizeof(b)), (unsigned long long)mine->sequence,
                     op_name(mine->op), (unsigned long long)mine->bytes);
            return;
        }
        if (badness((ddp_status_t)theirs->status) > badness((ddp_status_t)verdict->status)) {
            *verdict = *theirs;
        }
    }
}

static ddp_status_t hear_all(ddp_comm_t *comm, ddp_star_t star, int tag)
{
    ddp_mail_t  *mail   = comm->mail;
    ddp_status_t status = DDP_OK;

    for (int i = 1; i < star.count; i++) {
        DDP_TRY_MPI(MPI_Irecv(&mail->in[i], (int)sizeof(mail->in[i]), MPI_BYTE, star.first + i, tag,
                              comm->control, &mail->in_request[i]));
    }
    DDP_TRY(await(comm, mail->in_request, star.count, star.first, true, limit_of_root(comm),
                  op_name(mail->mine.op)));
out:
    return status;
}

static ddp_status_t tell_all(ddp_comm_t *comm, ddp_star_t star, int tag, const ddp_record_t *verdict)
{
    ddp_mail_t  *mail   = comm->mail;
    ddp_status_t status = DDP_OK;

    for (int i = 1; i < star.count; i++) {
        DDP_TRY_MPI(MPI_Isend(verdict, (int)sizeof(*verdict), MPI_BYTE, star.first + i, tag, comm->control,
                              &mail->out_request[i]));
    }
    if (verdict->fatal) {
        give_up(mail->out_request, star.count, false); /* whoever is gone need not hear it */
        goto out;
    }
    DDP_TRY(await(comm, mail->out_request, star.count, star.first, false, limit_of_root(comm),
                  op_name(mail->mine.op)));
out:
    return status;
}

static ddp_status_t meet_as_root(ddp_comm_t *comm, ddp_star_t star, int tag, ddp_record_t *verdict)
{
    ddp_status_t status = hear_all(comm, star, tag);

    if (status == DDP_OK) {
        judge(comm, star, verdict);
        return tell_all(comm, star, tag, verdict);
    }
    *verdict        = comm->mail->mine;
    verdict->fatal  = 1;
    verdict->status = status;
    snprintf(verdict->line, sizeof(verdict->line), "%s", ddp_error_line());
    ddp_ignore(tell_all(comm, star, tag, verdict), "the verdict itself is the error");
    return ddp_fail(status, "%s", verdict->line);
}

static ddp_status_t meet_as_other(ddp_comm_t *comm, ddp_star_t star, int tag, ddp_record_t *verdict)
{
    ddp_mail_t  *mail   = comm->mail;
    ddp_status_t status = DDP_OK;

    DDP_TRY_MPI(MPI_Irecv(verdict, (int)sizeof(*verdict), MPI_BYTE, star.first, tag, comm->control,
                          &mail->in_request[0]));
    DDP_TRY_MPI(MPI_Isend(&mail->mine, (int)sizeof(mail->mine), MPI_BYTE, star.first, tag, comm->control,
                          &mail->out_request[0]));
    DDP_TRY(
        await(comm, mail->in_request, 1, star.first, true, limit_of_others(comm), op_name(mail->mine.op)));
    DDP_TRY(
        await(comm, mail->out_request, 1, star.first, false, limit_of_others(comm), op_name(mail->mine.op)));
out:
    return status;
}

/* Everybody tells the root its status and what it is about to do; all get the root's verdict. The caller's
 * recorded line survives. */
static ddp_status_t meet(ddp_comm_t *comm, ddp_star_t star, ddp_op_t op, size_t bytes, ddp_status_t mine)
{
    const bool    is_all  = star.count == comm->size;
    ddp_mail_t   *mail    = comm->mail;
    ddp_record_t *verdict = &mail->verdict;
    ddp_status_t  status  = DDP_OK;
    char          name[DDP_NAME_SIZE];

    if (comm->broken != DDP_OK) {
        return mine != DDP_OK ? mine : ddp_fail(comm->broken, "%s", comm->broken_line);
    }
    memset(&mail->mine, 0, sizeof(mail->mine));
    mail->mine.op       = (int32_t)op;
    mail->mine.bytes    = bytes;
    mail->mine.sequence = ++comm->sequence[is_all ? 0 : 1];
    mail->mine.rank     = comm->rank;
    mail->mine.status   = (int32_t)mine;
    snprintf(mail->mine.line, sizeof(mail->mine.line), "%s", mine != DDP_OK ? ddp_error_line() : "");
    if (star.count == 1) {
        return mine;
    }
    status = comm->rank == star.first ? meet_as_root(comm, star, is_all ? TAG_ALL : TAG_MACHINE, verdict)
                                      : meet_as_other(comm, star, is_all ? TAG_ALL : TAG_MACHINE, verdict);
    if (status == DDP_OK && verdict->fatal) {
        status = ddp_fail((ddp_status_t)verdict->status, "%s", verdict->line);
    }
    if (status != DDP_OK) {
        ddp_ignore(break_off(comm, status), "is the same status");
    }
    if (mine != DDP_OK) {
        return ddp_fail(mine, "%s", mail->mine.line);
    }
    if (status == DDP_OK && verdict->status != DDP_OK) {
        status = ddp_fail(DDP_ERR_REMOTE, "%s: %s", ddp_comm_name(comm, verdict->rank, name, sizeof(name)),
                          verdict->line);
    }
    return status;
}

static ddp_status_t send_chunk(ddp_comm_t *comm, int first, int n, int which, size_t bytes, const char *what)
{
    ddp_mail_t  *mail   = comm->mail;
    ddp_status_t status = DDP_OK;

    for (int i = 0; i < n; i++) {
        DDP_TRY_MPI(MPI_Isend(mail->chunk[which], (int)bytes, MPI_BYTE, first + i, TAG_DATA, comm->control,
                              &mail->out_request[i]));
    }
    DDP_TRY(await(comm, mail->out_request, n, first, false, limit_of_root(comm), what));
out:
    return status != DDP_OK ? break_off(comm, status) : DDP_OK;
}

ddp_status_t ddp_comm_chunk_send(ddp_comm_t *comm, int to, int which, size_t bytes, const char *what)
{
    return send_chunk(comm, to, 1, which, bytes, what);
}

ddp_status_t ddp_comm_chunk_receive(ddp_comm_t *comm, int from, int which, size_t bytes, const char *what)
{
    ddp_mail_t  *mail   = comm->mail;
    ddp_status_t status = DDP_OK;

    DDP_TRY_MPI(MPI_Irecv(mail->chunk[which], (int)bytes, MPI_BYTE, from, TAG_DATA, comm->control,
                          &mail->in_request[0]));
    DDP_TRY(await(comm, mail->in_request, 1, from, true, limit_of_others(comm), what));
out:
    return status != DDP_OK ? break_off(comm, status) : DDP_OK;
}

static size_t chunk_size(size_t bytes, size_t done)
{
    return bytes - done < DDP_CHUNK_BYTES ? bytes - done : DDP_CHUNK_BYTES;
}

static ddp_status_t send_bytes(ddp_comm_t *comm, int first, int n, const char *data, size_t bytes,
                               const char *what)
{
    ddp_status_t status = DDP_OK;

    for (size_t done = 0; done < bytes && n > 0; done += DDP_CHUNK_BYTES) {
        memcpy(comm->mail->chunk[0], data + done, chunk_size(bytes, done));
        DDP_TRY(send_chunk(comm, first, n, 0, chunk_size(bytes, done), what));
    }
out:
    return status;
}

static ddp_status_t receive_bytes(ddp_comm_t *comm, int from, char *data, size_t bytes, const char *what)
{
    ddp_status_t status = DDP_OK;

    for (size_t done = 0; done < bytes; done += DDP_CHUNK_BYTES) {
        DDP_TRY(ddp_comm_chunk_receive(comm, from, 0, chunk_size(bytes, done), what));
        memcpy(data + done, comm->mail->chunk[0], chunk_size(bytes, done));
    }
out:
    return status;
}

static ddp_status_t spread(ddp_comm_t *comm, ddp_star_t star, char *data, size_t bytes, const char *what)
{
    if (comm->rank == star.first) {
        return send_bytes(comm, star.first + 1, star.count - 1, data, bytes, what);
    }
    return receive_bytes(comm, star.first, data, bytes, what);
}

ddp_status_t ddp_comm_agree(ddp_comm_t *comm, ddp_status_t status)
{
    return meet(comm, ddp_comm_star_all(comm), DDP_OP_AGREE, 0, status);
}

ddp_status_t ddp_comm_agree_machine(ddp_comm_t *comm, ddp_status_t status)
{
    return meet(comm, ddp_comm_star_machine(comm), DDP_OP_AGREE, 0, status);
}

ddp_status_t ddp_comm_meet_machine(ddp_comm_t *comm, ddp_op_t op, size_t bytes)
{
    return meet(comm, ddp_comm_star_machine(comm), op, bytes, DDP_OK);
}

ddp_status_t ddp_comm_barrier(ddp_comm_t *comm)
{
    return ddp_comm_agree(comm, DDP_OK);
}

ddp_status_t ddp_comm_broadcast_machine(ddp_comm_t *comm, void *data, size_t bytes)
{
    const ddp_star_t star   = ddp_comm_star_machine(comm);
    ddp_status_t     status = DDP_OK;

    DDP_TRY(meet(comm, star, DDP_OP_BROADCAST, bytes, DDP_OK));
    DDP_TRY(spread(comm, star, data, bytes, "broadcast"));
out:
    return status;
}

ddp_status_t ddp_comm_broadcast(ddp_comm_t *comm, void *data, size_t bytes, int root)
{
    const ddp_star_t star   = ddp_comm_star_all(comm);
    ddp_status_t     status = DDP_OK;

    DDP_REQUIRE(root >= 0 && root < comm->size, DDP_ERR_INVALID_ARG, "broadcast from rank %d of %d", root,
                comm->size);
    DDP_REQUIRE(data != NULL || bytes == 0, DDP_ERR_INVALID_ARG, "broadcast of a null buffer");
    DDP_TRY(meet(comm, star, DDP_OP_BROADCAST, bytes, DDP_OK));
    if (root != 0 && comm->rank == root) {
        DDP_TRY(send_bytes(comm, 0, 1, data, bytes, "broadcast"));
    }
    if (root != 0 && comm->rank == 0) {
        DDP_TRY(receive_bytes(comm, root, data, bytes, "broadcast"));
    }
    DDP_TRY(spread(comm, star, data, bytes, "broadcast"));
out:
    return status;
}

ddp_status_t ddp_comm_allgather(ddp_comm_t *comm, const void *mine, size_t bytes, void *all)
{
    const ddp_star_t star   = ddp_comm_star_all(comm);
    char            *to     = all;
    ddp_status_t     status = DDP_OK;

    DDP_REQUIRE((mine != NULL && all != NULL) || bytes == 0, DDP_ERR_INVALID_ARG, "gather of a null buffer");
    DDP_TRY(meet(comm, star, DDP_OP_ALLGATHER, bytes, DDP_OK));
    if (comm->rank == 0) {
        if (bytes > 0) {
            memmove(to, mine, bytes);
        }
        for (int r = 1; r < comm->size; r++) {
            DDP_TRY(receive_bytes(comm, r, to + (size_t)r * bytes, bytes, "gather"));
        }
    } else {
        DDP_TRY(send_bytes(comm, 0, 1, mine, bytes, "gather"));
    }
    DDP_TRY(spread(comm, star, to, (size_t)comm->size * bytes, "gather"));
out:
    return status;
}

ddp_status_t ddp_comm_pass(ddp_comm_t *comm, void *data, size_t bytes, int from, int to)
{
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(from >= 0 && from < comm->size && to >= 0 && to < comm->size && from != to,
                DDP_ERR_INVALID_ARG, "message from rank %d to rank %d of %d", from, to, comm->size);
    if (comm->broken != DDP_OK) {
        return ddp_fail(comm->broken, "%s", comm->broken_line);
    }
    if (comm->rank == from) {
        DDP_TRY(send_bytes(comm, to, 1, data, bytes, "message"));
    } else if (comm->rank == to) {
        DDP_TRY(receive_bytes(comm, from, data, bytes, "message"));
    }
out:
    return status;
}
