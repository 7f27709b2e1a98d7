/**
 * @file What every test program shares: the runner (no fork: not safe after MPI_Init) and assertions that all
 * ranks take part in.
 */
#ifndef DDP_TEST_H_
#define DDP_TEST_H_

#include <check.h>
#include <stdbool.h>

#include "base/error.h"

/** Exit status that ctest counts as a skip. */
#define DDP_TEST_SKIP 77

/** Run the suite; the status for main() to return. */
int ddp_test_run(Suite *suite);

/** As ddp_test_run() between MPI_Init_thread and MPI_Finalize; rank 0 alone prints what passed. */
int ddp_test_run_mpi(int *argc, char ***argv, Suite *(*make_suite)(void));

/** A status is DDP_OK, with the recorded line if not. */
#define ddp_assert_ok(call)                                                                                  \
    do {                                                                                                     \
        ddp_status_t assert_status_ = (call);                                                                \
        ck_assert_msg(assert_status_ == DDP_OK, "%s: %s (%s)", #call, ddp_status_name(assert_status_),       \
                      ddp_error_line());                                                                     \
    } while (0)

/** A status is the one wanted, and its line contains `text`. */
#define ddp_assert_fails(call, wanted, text)                                                                 \
    do {                                                                                                     \
        ddp_status_t assert_status_ = (call);                                                                \
        ck_assert_msg(assert_status_ == (wanted), "%s: %s instead of %s (%s)", #call,                        \
                      ddp_status_name(assert_status_), ddp_status_name(wanted), ddp_error_line());           \
        ck_assert_msg(strstr(ddp_error_line(), (text)) != NULL, "'%s' not in line '%s'", (text),             \
                      ddp_error_line());                                                                     \
    } while (0)

/** True on all ranks of MPI_COMM_WORLD? Agrees first, so that no rank is left alone in a later collective. */
bool ddp_test_all(bool here);
#define ddp_assert_all(cond)                                                                                 \
    do {                                                                                                     \
        bool assert_here_ = (cond);                                                                          \
        bool assert_all_  = ddp_test_all(assert_here_);                                                      \
        ck_assert_msg(assert_all_, "%s is false %s (%s)", #cond, assert_here_ ? "on another rank" : "here",  \
                      ddp_error_line());                                                                     \
    } while (0)

#endif
