#include "ddp/mpi_probe.h"

#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/call.h"
#include "base/clock.h"
#include "base/error.h"

#define TAG_HELLO     7201
#define TAG_ANSWER    7202
#define LATER_MS      1000 /* rank 0 speaks first: it knows more */
#define ANSWER_MS     1000 /* to hand over answers of four bytes */
#define NAP_NS        200000
#define NAMED_AT_MOST 8
#define VALUE_SIZE    8192 /* texts of Open MPI 4.1 have up to 2048 */

static bool open_value(const char *name, MPI_T_cvar_handle *handle_p, MPI_Datatype *type_p, int *count_p)
{
    char       text[8];
    int        length = (int)sizeof(text);
    int        more   = (int)sizeof(text);
    int        index, verbosity, bind, scope;
    MPI_T_enum names;

    return MPI_T_cvar_get_index(name, &index) == MPI_SUCCESS &&
           MPI_T_cvar_get_info(index, text, &length, &verbosity, type_p, &names, text, &more, &bind,
                               &scope) == MPI_SUCCESS &&
           MPI_T_cvar_handle_alloc(index, NULL, handle_p, count_p) == MPI_SUCCESS;
}

/* Of a setting of MPI, as text. */
static bool read_value(const char *name, char *text, size_t size)
{
    MPI_T_cvar_handle handle  = MPI_T_CVAR_HANDLE_NULL;
    MPI_Datatype      type    = MPI_DATATYPE_NULL;
    int               count   = 0;
    bool              is_read = false;
    union {
        char letters[VALUE_SIZE];
        int  number;
        bool is_true;
    } value = {.letters = ""};

    if (!open_value(name, &handle, &type, &count)) {
        return false;
    }
    if ((type == MPI_CHAR ? (size_t)count : (size_t)count * sizeof(int)) <= sizeof(value) &&
        MPI_T_cvar_read(handle, &value) == MPI_SUCCESS) {
        is_read = true;
        if (type == MPI_CHAR) {
            value.letters[sizeof(value.letters) - 1] = '\0';
            (void)snprintf(text, size, "%s", value.letters);
        } else if (type == MPI_C_BOOL) {
            (void)snprintf(text, size, "%d", value.is_true ? 1 : 0);
        } else {
            (void)snprintf(text, size, "%d", value.number);
        }
    }
    (void)MPI_T_cvar_handle_free(&handle);
    return is_read;
}

/* Components that MPI did not choose are unloaded: the one that is left is in use. */
static int look_at_library(struct dl_phdr_info *library, size_t size, void *info_p)
{
    static const char prefix[] = "mca_pml_";
    ddp_mpi_info_t   *info     = info_p;
    const char       *name     = strstr(library->dlpi_name, prefix);

    (void)size;
    if (name != NULL) {
        name += strlen(prefix);
        (void)snprintf(info->path, sizeof(info->path), "%.*s", (int)strcspn(name, "."), name);
    }
    return 0;
}

void ddp_mpi_probe(ddp_mpi_info_t *info)
{
    char  text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    char  value[32];
    int   length   = 0;
    int   provided = MPI_THREAD_SINGLE;
    int   level    = MPI_THREAD_SINGLE;
    char *at;

    *info = (ddp_mpi_info_t){.yields = -1};
    if (MPI_Get_library_version(text, &length) == MPI_SUCCESS) {
        at = strstr(text, "Open MPI v");
        if (at != NULL) {
            info->library_major = (int32_t)strtol(at + strlen("Open MPI v"), &at, 10);
            info->library_minor = *at == '.' ? (int32_t)strtol(at + 1, NULL, 10) : 0;
        }
        text[strcspn(text, ",\n")] = '\0'; /* who built it, and when, is of no use */
        (void)snprintf(info->library, sizeof(info->library), "%.90s", text);
        ddp_error_one_line(info->library);
    }
#ifdef OPEN_MPI
    info->header_major = OMPI_MAJOR_VERSION;
    info->header_minor = OMPI_MINOR_VERSION;
#endif
    (void)dl_iterate_phdr(look_at_library, info);
    if (MPI_Query_thread(&level) == MPI_SUCCESS) {
        info->thread_level = level;
    }
    if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) == MPI_SUCCESS) {
        if (read_value("mpi_yield_when_idle", value, sizeof(value))) {
            info->yields = value[0] == '0' ? 0 : 1;
        }
        (void)read_value("btl_tcp_if_include", info->interfaces, sizeof(info->interfaces));
        (void)MPI_T_finalize();
    }
}

/* @return how many of them have not ended by then */
static int await(MPI_Request *request, int n, int limit_ms)
{
    const int64_t         end = ddp_clock_ns() + limit_ms * DDP_NS_PER_MS;
    const struct timespec nap = {0, NAP_NS};
    int                   missing;

    for (;;) {
        missing = 0;
        for (int i = 0; i < n; i++) {
            int is_done = 1;

            if (request[i] != MPI_REQUEST_NULL &&
                MPI_Test(&request[i], &is_done, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
                is_done = 0; /* will never be */
            }
            missing += is_done == 0 ? 1 : 0;
        }
        if (missing == 0 || ddp_clock_ns() > end) {
            return missing;
        }
        (void)nanosleep(&nap, NULL);
    }
}

static ddp_status_t name_missing(const MPI_Request *request, int size, int missing, int limit_ms)
{
    char   list[256] = "";
    size_t used      = 0;
    int    named     = 0;

    for (int r = 1; r < size && named < NAMED_AT_MOST; r++) {
        if (request[r - 1] != MPI_REQUEST_NULL) {
            used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%d", named > 0 ? ", " : " ", r);
            named++;
        }
    }
    if (missing > named) {
        (void)snprintf(list + used, sizeof(list) - used, " and %d more", missing - named);
    }
    return ddp_fail(DDP_ERR_TIMEOUT, "rank 0 got no message from rank%s%s within %g s",
                    missing > 1 ? "s" : "", list, limit_ms / 1e3);
}

/* `request` and `hello` have room for all others; what is still pending at the end is MPI's, so they stay. */
static ddp_status_t call_others(MPI_Comm parent, int size, int limit_ms, MPI_Request *request, int *hello)
{
    static int   verdict;
    MPI_Request *answer = request + size;
    ddp_status_t status = DDP_OK;

    for (int r = 1; r < size; r++) {
        DDP_TRY_MPI(MPI_Irecv(&hello[r], 1, MPI_INT, r, TAG_HELLO, parent, &request[r - 1]));
        answer[r - 1] = MPI_REQUEST_NULL;
    }
    verdict = await(request, size - 1, limit_ms);
    for (int r = 1; r < size; r++) {
        if (request[r - 1] == MPI_REQUEST_NULL) {
            DDP_TRY_MPI(MPI_Isend(&verdict, 1, MPI_INT, r, TAG_ANSWER, parent, &answer[r - 1]));
        }
    }
    if (await(answer, size - 1, ANSWER_MS) > 0 && verdict == 0) {
        return ddp_fail(DDP_ERR_TIMEOUT, "rank 0 could not answer some rank within %g s", ANSWER_MS / 1e3);
    }
    status = verdict > 0 ? name_missing(request, size, verdict, limit_ms) : DDP_OK;
out:
    return status;
}

static ddp_status_t answer_call(MPI_Comm parent, int rank, int limit_ms, MPI_Request *request, int *verdict)
{
    ddp_status_t status = DDP_OK;
    static int   hello;
    char         host[64] = "unknown";

    (void)gethostname(host, sizeof(host) - 1);
    DDP_TRY_MPI(MPI_Irecv(verdict, 1, MPI_INT, 0, TAG_ANSWER, parent, &request[0]));
    DDP_TRY_MPI(MPI_Isend(&hello, 1, MPI_INT, 0, TAG_HELLO, parent, &request[1]));
    DDP_REQUIRE(await(request, 2, limit_ms + LATER_MS) == 0, DDP_ERR_TIMEOUT,
                "rank %d on %s got no answer from rank 0 within %g s", rank, host,
                (limit_ms + LATER_MS) / 1e3);
    DDP_REQUIRE(*verdict == 0, DDP_ERR_REMOTE, "rank 0 got no message from %d rank%s", *verdict,
                *verdict > 1 ? "s" : "");
out:
    return status;
}

ddp_status_t ddp_mpi_roll_call(MPI_Comm parent, int limit_ms)
{
    ddp_status_t   status  = DDP_OK;
    MPI_Request   *request = NULL;
    int           *number  = NULL;
    MPI_Errhandler before  = MPI_ERRHANDLER_NULL;
    int            rank    = 0;
    int            size    = 0;

    DDP_TRY_MPI(MPI_Comm_get_errhandler(parent, &before));
    DDP_TRY_MPI(MPI_Comm_set_errhandler(parent, MPI_ERRORS_RETURN));
    DDP_TRY_MPI(MPI_Comm_rank(parent, &rank));
    DDP_TRY_MPI(MPI_Comm_size(parent, &size));
    if (size == 1) {
        goto out;
    }
    request = calloc(2 * (size_t)size, sizeof(MPI_Request));
    number  = calloc((size_t)size, sizeof(*number));
    DDP_REQUIRE(request != NULL && number != NULL, DDP_ERR_NO_MEMORY, "no memory for %d ranks", size);
    status = rank == 0 ? call_others(parent, size, limit_ms, request, number)
                       : answer_call(parent, rank, limit_ms, request, number);
    if (status != DDP_OK) {
        return status; /* MPI may still write there: both stay for the rest of the process */
    }
out:
    if (before != MPI_ERRHANDLER_NULL) {
        (void)MPI_Comm_set_errhandler(parent, before);
        (void)MPI_Errhandler_free(&before);
    }
    free(request);
    free(number);
    return status;
}
