#include "ddp/comm.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/call.h"
#include "base/convert.h"
#include "base/fault.h"
#include "base/progressed.h"
#include "ddp/comm_state_internal.h"

const char *ddp_comm_name(const ddp_comm_t *comm, int rank, char *text, size_t size)
{
    if (comm->members == NULL) {
        snprintf(text, size, "rank %d", rank);
    } else {
        snprintf(text, size, "rank %d on %s", rank, comm->members[rank].host);
    }
    return text;
}

static ddp_status_t choose_shm(ddp_shm_mode_t asked, ddp_shm_mode_t *mode_p)
{
    const char *text = getenv("DDP_HOST_SHM");

    if (asked != DDP_SHM_DEFAULT) {
        *mode_p = asked;
    } else if (text == NULL || strcmp(text, "1") == 0 || text[0] == '\0') {
        *mode_p = DDP_SHM_MEMFD;
    } else if (strcmp(text, "0") == 0) {
        *mode_p = DDP_SHM_OFF;
    } else if (strcmp(text, "posix") == 0) {
        *mode_p = DDP_SHM_POSIX;
    } else {
        return ddp_fail(DDP_ERR_CONFIG, "DDP_HOST_SHM is '%s'; it can be 1, 0 or posix", text);
    }
    return DDP_OK;
}

/* A fault that this rank alone may have: told to the others once there is a way to. */
static ddp_status_t check_params(const ddp_comm_params_t *params, ddp_comm_t *comm)
{
    int          level  = MPI_THREAD_SINGLE;
    ddp_status_t status = DDP_OK;

    comm->timeout_ms = params->timeout_ms > 0 ? params->timeout_ms : 60000;
    comm->shm        = DDP_SHM_MEMFD;
    DDP_REQUIRE(params->timeout_ms > 0, DDP_ERR_INVALID_ARG, "timeout_ms is %d; it must be above 0",
                params->timeout_ms);
    DDP_REQUIRE(params->shm >= DDP_SHM_DEFAULT && params->shm <= DDP_SHM_OFF, DDP_ERR_INVALID_ARG,
                "shm is %d: no such mode", (int)params->shm);
    DDP_TRY(choose_shm(params->shm, &comm->shm));
    if (params->alone) {
        goto out;
    }
    DDP_TRY_MPI(MPI_Query_thread(&level));
    DDP_REQUIRE(level >= MPI_THREAD_FUNNELED, DDP_ERR_MPI,
                "MPI provides thread level %d, MPI_THREAD_FUNNELED is needed: call MPI_Init_thread", level);
out:
    return status;
}

/* Equal where the same number means the same process, and 127.0.0.1 the same machine. */
static uint64_t make_place(void)
{
    char        text[128] = "";
    struct stat info;
    size_t      used = 0;
    FILE       *file = fopen("/proc/sys/kernel/random/boot_id", "re");

    if (file != NULL) {
        used = fread(text, 1, 64, file);
        (void)fclose(file); /* was only read */
    }
    if (stat("/proc/self/ns/pid", &info) == 0) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, " %lu", (unsigned long)info.st_ino);
    }
    if (stat("/proc/self/ns/net", &info) == 0) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, " %lu", (unsigned long)info.st_ino);
    }
    return XXH3_64bits(text, used);
}

static void introduce_myself(const ddp_comm_t *comm, ddp_member_t *me)
{
    cpu_set_t cpus;

    memset(me, 0, sizeof(*me));
    if (gethostname(me->host, sizeof(me->host) - 1) != 0) {
        snprintf(me->host, sizeof(me->host), "unknown");
    }
    me->place  = make_place();
    me->pid    = (int32_t)getpid();
    me->shm    = (int32_t)comm->shm;
    me->leader = comm->rank;
    CPU_ZERO(&cpus);
    if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0) {
        _Static_assert(sizeof(cpus) >= sizeof(me->cpus), "cpu_set_t has 1024 bits");
        memcpy(me->cpus, &cpus, sizeof(me->cpus));
    }
}

/* DDP_TEST_MACHINES=0,1,0,1 makes one machine look like several: the machine of each parent rank. */
static int pretended_leader(const char *text, int rank)
{
    long machine[2] = {-1, -1}; /* of `rank`, and of the rank compared with it */

    for (int pass = 0; pass < 2; pass++) {
        const char *at = text;

        for (int r = 0; r <= rank && at != NULL; r++) {
            machine[pass] = strtol(at, NULL, 10);
            if (pass == 1 && machine[1] == machine[0]) {
                return r;
            }
            at = strchr(at, ',');
            at = at != NULL ? at + 1 : NULL;
        }
    }
    return rank;
}

/* The lowest rank of this machine. MPI knows which ranks can share memory. */
static ddp_status_t find_leader(ddp_comm_t *comm, int32_t *leader_p)
{
    MPI_Comm     local       = MPI_COMM_NULL;
    MPI_Group    local_group = MPI_GROUP_NULL;
    MPI_Group    all_group   = MPI_GROUP_NULL;
    int          zero        = 0;
    int          leader      = 0;
    const char  *pretended   = getenv("DDP_TEST_MACHINES");
    ddp_status_t status      = DDP_OK;

    if (comm->shm == DDP_SHM_OFF) {
        return DDP_OK; /* every rank leads itself */
    }
    DDP_TRY_MPI(MPI_Comm_split_type(comm->control, MPI_COMM_TYPE_SHARED, comm->rank, MPI_INFO_NULL, &local));
    DDP_TRY_MPI(MPI_Comm_group(local, &local_group));
    DDP_TRY_MPI(MPI_Comm_group(comm->control, &all_group));
    DDP_TRY_MPI(MPI_Group_translate_ranks(local_group, 1, &zero, all_group, &leader));
    DDP_TRY(ddp_fault("comm_split_type", comm->rank));
    *leader_p = pretended != NULL ? pretended_leader(pretended, comm->rank) : leader;
out:
    if (all_group != MPI_GROUP_NULL) {
        MPI_Group_free(&all_group);
    }
    if (local_group != MPI_GROUP_NULL) {
        MPI_Group_free(&local_group);
    }
    if (local != MPI_COMM_NULL) {
        MPI_Comm_free(&local);
    }
    return status;
}

/* All ranks see the same table, so all come to the same verdict. */
static ddp_status_t check_modes(const ddp_comm_t *comm)
{
    static const char *const names[] = {"default", "memfd", "posix", "off"};
    char                     a[DDP_NAME_SIZE], b[DDP_NAME_SIZE];

    for (int r = 1; r < comm->size; r++) {
        if (comm->members[r].shm != comm->members[0].shm) {
            return ddp_fail(DDP_ERR_MISMATCH, "shared memory is %s for %s, %s for %s; set DDP_HOST_SHM alike",
                            names[comm->members[r].shm], ddp_comm_name(comm, r, a, sizeof(a)),
                            names[comm->members[0].shm], ddp_comm_name(comm, 0, b, sizeof(b)));
        }
    }
    return DDP_OK;
}

static ddp_status_t make_members(ddp_comm_t *comm)
{
    ddp_member_t  me;
    ddp_member_t *members = calloc((size_t)comm->size, sizeof(*members));
    ddp_status_t  status  = members != NULL ? DDP_OK : ddp_fail(DDP_ERR_NO_MEMORY, "no memory for the ranks");

    DDP_TRY(ddp_comm_agree(comm, status));
    introduce_myself(comm, &me);
    DDP_TRY(ddp_comm_allgather(comm, &me, sizeof(me), members));
    comm->members = members;
    members       = NULL;
    DDP_TRY(ddp_comm_agree(comm, ddp_fault("comm_hello", comm->rank)));
    DDP_TRY(check_modes(comm));
    DDP_TRY(ddp_comm_agree(comm, find_leader(comm, &me.leader)));
    DDP_TRY(ddp_comm_allgather(comm, &me, sizeof(me), comm->members));
out:
    free(members);
    return status;
}

/* Machine-major order: by machine (its lowest parent rank), then by parent rank. */
static int place_of(const ddp_comm_t *comm, int rank)
{
    int place = 0;

    for (int r = 0; r < comm->size; r++) {
        const int32_t theirs = comm->members[r].leader;
        const int32_t ours   = comm->members[rank].leader;

        place += theirs < ours || (theirs == ours && r < rank) ? 1 : 0;
    }
    return place;
}

static ddp_status_t sort_members(ddp_comm_t *comm)
{
    const size_t  size   = (size_t)comm->size;
    ddp_member_t *sorted = calloc(size, sizeof(*sorted));
    ddp_status_t  status = DDP_OK;

    comm->machine_first = calloc(size + 1, sizeof(*comm->machine_first));
    comm->machine_of    = calloc(size, sizeof(*comm->machine_of));
    DDP_REQUIRE(sorted != NULL && comm->machine_first != NULL && comm->machine_of != NULL, DDP_ERR_NO_MEMORY,
                "no memory for the ranks");
    for (int r = 0; r < comm->size; r++) {
        sorted[place_of(comm, r)] = comm->members[r];
    }
    free(comm->members);
    comm->members = sorted;
    sorted        = NULL;
    for (int r = 0; r < comm->size; r++) {
        if (r == 0 || comm->members[r].leader != comm->members[r - 1].leader) {
            comm->machine_first[comm->machines++] = r;
        }
        comm->machine_of[r] = comm->machines - 1;
    }
    comm->machine_first[comm->machines] = comm->size;
out:
    free(sorted);
    return status;
}

/* Does every rank of this machine find a core? Ranks may be bound to one core each, so look at all masks. */
static bool has_core_each(const ddp_comm_t *comm)
{
    const ddp_star_t star  = ddp_comm_star_machine(comm);
    int              cores = 0;

    for (int w = 0; w < DDP_CPU_WORDS; w++) {
        uint64_t bits = 0;

        for (int r = star.first; r < star.first + star.count; r++) {
            bits |= comm->members[r].cpus[w];
        }
        cores += __builtin_popcountll(bits);
    }
    return star.count <= cores;
}

static void find_myself(ddp_comm_t *comm)
{
    comm->machine    = comm->machine_of[comm->rank];
    comm->local_rank = comm->rank - comm->machine_first[comm->machine];
    comm->local_size = ddp_comm_machine_size(comm, comm->machine);
    comm->may_spin   = has_core_each(comm);
}

static ddp_status_t order_ranks(ddp_comm_t *comm)
{
    MPI_Comm     ordered = MPI_COMM_NULL;
    ddp_status_t status  = DDP_OK;
    ddp_status_t local   = DDP_OK;

    local = ddp_from_mpi(MPI_Comm_split(comm->control, 0, place_of(comm, comm->rank), &ordered),
                         "MPI_Comm_split");
    if (local == DDP_OK) {
        local = ddp_fault("comm_split", comm->rank);
    }
    DDP_TRY(ddp_comm_agree(comm, local));
    DDP_TRY_MPI(MPI_Comm_set_errhandler(ordered, MPI_ERRORS_RETURN));
    DDP_TRY(ddp_comm_agree(comm, sort_members(comm)));
    MPI_Comm_free(&comm->control);
    comm->control = ordered;
    ordered       = MPI_COMM_NULL;
    DDP_TRY_MPI(MPI_Comm_rank(comm->control, &comm->rank));
    find_myself(comm);
out:
    if (ordered != MPI_COMM_NULL) {
        MPI_Comm_free(&ordered);
    }
    return status;
}

static ddp_status_t dup_for_data(ddp_comm_t *comm)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY_MPI(MPI_Comm_dup(comm->control, &comm->data));
    DDP_TRY_MPI(MPI_Comm_set_errhandler(comm->data, MPI_ERRORS_RETURN));
    DDP_TRY(ddp_fault("comm_dup_data", comm->rank));
out:
    return status;
}

static ddp_status_t make_hall(ddp_comm_t *comm)
{
    void        *memory = NULL;
    ddp_status_t status = DDP_OK;

    comm->pidfd = malloc((size_t)comm->size * sizeof(*comm->pidfd));
    comm->watch = calloc((size_t)comm->size, sizeof(*comm->watch));
    if (comm->pidfd == NULL || comm->watch == NULL) {
        status = ddp_fail(DDP_ERR_NO_MEMORY, "no memory to watch the ranks");
    }
    for (int r = 0; comm->pidfd != NULL && r < comm->size; r++) {
        comm->pidfd[r] = -1;
    }
    DDP_TRY(ddp_comm_agree_machine(comm, status));
    DDP_TRY(ddp_comm_shared(comm, "the ranks' hall",
                            sizeof(ddp_hall_t) + (size_t)comm->local_size * sizeof(ddp_seat_t), &memory));
    if (comm->local_rank == 0) {
        for (int l = 0; l < comm->local_size; l++) {
            atomic_store(&((ddp_hall_t *)memory)->seat[l].waits_for, -1);
            atomic_store(&((ddp_hall_t *)memory)->seat[l].place, DDP_NO_BUCKET);
        }
    }
    DDP_TRY(ddp_comm_agree_machine(comm, ddp_fault("comm_hall", comm->rank))); /* seats are ready after it */
    comm->hall = memory;
out:
    return status;
}

static ddp_status_t dup_parent(const ddp_comm_params_t *params, ddp_comm_t *comm)
{
    int          is_up  = 0;
    ddp_status_t status = DDP_OK;

    DDP_REQUIRE(params->parent != MPI_COMM_NULL, DDP_ERR_INVALID_ARG, "the parent is MPI_COMM_NULL");
    DDP_REQUIRE(MPI_Initialized(&is_up) == MPI_SUCCESS && is_up, DDP_ERR_STATE,
                "MPI is not initialised: call MPI_Init_thread first");
    DDP_TRY_MPI(MPI_Comm_dup(params->parent, &comm->control));
    DDP_TRY_MPI(MPI_Comm_set_errhandler(comm->control, MPI_ERRORS_RETURN));
    DDP_TRY_MPI(MPI_Comm_rank(comm->control, &comm->rank));
    DDP_TRY_MPI(MPI_Comm_size(comm->control, &comm->size));
    DDP_TRY(ddp_comm_mail_create(comm));
out:
    return status;
}

static ddp_status_t join_ranks(const ddp_comm_params_t *params, ddp_comm_t *comm)
{
    ddp_status_t status = DDP_OK;
    ddp_status_t local  = DDP_OK;

    DDP_TRY(dup_parent(params, comm));
    local = check_params(params, comm);
    if (local == DDP_OK) {
        local = ddp_fault("comm_dup", comm->rank);
    }
    DDP_TRY(ddp_comm_agree(comm, local));
    DDP_TRY(make_members(comm));
    DDP_TRY(order_ranks(comm));
    DDP_TRY(ddp_comm_agree(comm, dup_for_data(comm)));
out:
    return status;
}

/* One rank that knows no other: what join_ranks() does, without MPI. */
static ddp_status_t be_alone(const ddp_comm_params_t *params, ddp_comm_t *comm)
{
    ddp_status_t status = DDP_OK;

    DDP_TRY(check_params(params, comm));
    comm->size = 1;
    DDP_TRY(ddp_comm_mail_create(comm));
    comm->members = calloc(1, sizeof(*comm->members));
    DDP_REQUIRE(comm->members != NULL, DDP_ERR_NO_MEMORY, "no memory for the ranks");
    introduce_myself(comm, comm->members);
    DDP_TRY(sort_members(comm));
    find_myself(comm);
out:
    return status;
}

static void count_progress(void *comm)
{
    ddp_comm_progressed(comm);
}

ddp_status_t ddp_comm_create(const ddp_comm_params_t *params, ddp_comm_t **comm_p)
{
    ddp_status_t status = DDP_OK;
    ddp_comm_t  *comm   = calloc(1, sizeof(*comm));

    DDP_REQUIRE(comm != NULL, DDP_ERR_NO_MEMORY, "no memory for a communicator");
    comm->control    = MPI_COMM_NULL;
    comm->data       = MPI_COMM_NULL;
    comm->local_size = 1;
    comm->wait.rank  = -1;
    DDP_REQUIRE(params != NULL && params->struct_size == sizeof(*params), DDP_ERR_INVALID_ARG,
                "communicator parameters were not made with DDP_COMM_PARAMS_INIT");
    comm->across_kind = (ddp_exchange_kind_t)params->exchange;
    DDP_TRY(params->alone ? be_alone(params, comm) : join_ranks(params, comm));
    DDP_TRY(ddp_comm_agree(comm, make_hall(comm)));
    ddp_comm_watch_open(comm);
    ddp_progressed_hook(count_progress, comm);
    *comm_p = comm;
    comm    = NULL;
out:
    ddp_comm_destroy(&comm);
    return status;
}

/* Not where MPI was never started, or has ended before. */
static void free_mpi(ddp_comm_t *comm)
{
    int is_up  = 0;
    int is_end = 0;

    if (comm->control == MPI_COMM_NULL) {
        return; /* the first that is made and the last to go */
    }
    MPI_Initialized(&is_up);
    MPI_Finalized(&is_end);
    if (!is_up || is_end) {
        return;
    }
    if (comm->data != MPI_COMM_NULL) {
        MPI_Comm_free(&comm->data);
    }
    MPI_Comm_free(&comm->control);
}

void ddp_comm_destroy(ddp_comm_t **comm_p)
{
    ddp_comm_t *comm = comm_p != NULL ? *comm_p : NULL;

    if (comm == NULL) {
        return;
    }
    *comm_p = NULL;
    ddp_progressed_unhook(comm);
    ddp_comm_watch_close(comm);
    ddp_comm_across_destroy(comm);
    ddp_comm_windows_destroy(comm);
    ddp_comm_mail_destroy(comm);
    free_mpi(comm);
    free(comm->watch);
    free(comm->pidfd);
    free(comm->machine_of);
    free(comm->machine_first);
    free(comm->members);
    free(comm);
}

int ddp_comm_rank(const ddp_comm_t *comm)
{
    return comm->rank;
}

int ddp_comm_size(const ddp_comm_t *comm)
{
    return comm->size;
}

int ddp_comm_local_rank(const ddp_comm_t *comm)
{
    return comm->local_rank;
}

int ddp_comm_local_size(const ddp_comm_t *comm)
{
    return comm->local_size;
}

int ddp_comm_machine(const ddp_comm_t *comm)
{
    return comm->machine;
}

int ddp_comm_machines(const ddp_comm_t *comm)
{
    return comm->machines;
}

int ddp_comm_timeout_ms(const ddp_comm_t *comm)
{
    return comm->timeout_ms;
}

const char *ddp_comm_host(const ddp_comm_t *comm, int rank)
{
    return comm->members[rank].host;
}

MPI_Comm ddp_comm_data_mpi(const ddp_comm_t *comm)
{
    return comm->data;
}

int ddp_comm_machine_first(const ddp_comm_t *comm, int machine)
{
    return comm->machine_first[machine];
}

int ddp_comm_machine_size(const ddp_comm_t *comm, int machine)
{
    return comm->machine_first[machine + 1] - comm->machine_first[machine];
}
