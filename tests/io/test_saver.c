#include <mpi.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/progressed.h"
#include "io/saver.h"
#include "io/saver_internal.h"
#include "tests/io/checkpoint_file.h"

static char top[IO_TEST_PATH];
static int  rank, size;

typedef struct disk {
    int     calls;
    int64_t ns;
} disk_t;

/* The clock of rank 0's disk: how long it ran, and how often. */
static void time_disk(void *ctx, bool begins)
{
    disk_t *disk = ctx;

    disk->calls++;
    disk->ns += begins ? -ddp_clock_ns() : ddp_clock_ns();
}

/* A communicator, a reducer with the tensors of checkpoint_file.h, and a saver. */
typedef struct setting {
    ddp_comm_t       *comm;
    ddp_device_t     *device;
    ddp_stream_t     *stream;
    ddp_reducer_t    *reducer;
    ddp_saver_t      *saver;
    disk_t            disk;
    ddp_tensor_desc_t tensors[CHECKPOINT_TENSORS];
} setting_t;

static ddp_status_t open_setting(setting_t *s)
{
    ddp_status_t         status  = DDP_OK;
    ddp_comm_params_t    comm    = DDP_COMM_PARAMS_INIT;
    ddp_device_params_t  device  = DDP_DEVICE_PARAMS_INIT;
    ddp_reducer_params_t reducer = DDP_REDUCER_PARAMS_INIT;
    ddp_saver_params_t   saver   = DDP_SAVER_PARAMS_INIT;
    size_t               total   = 0;

    memset(s, 0, sizeof(*s));
    checkpoint_tensors(s->tensors);
    comm.parent     = MPI_COMM_WORLD;
    comm.timeout_ms = 20000;
    DDP_TRY(ddp_layout_make(s->tensors, CHECKPOINT_TENSORS, &total));
    DDP_TRY(ddp_comm_create(&comm, &s->comm));
    DDP_TRY(ddp_device_create(&device, &s->device));
    ddp_comm_attach(s->comm, s->device);
    DDP_TRY(ddp_stream_create(s->device, "compute", &s->stream));
    reducer.comm          = s->comm;
    reducer.compute       = s->stream;
    reducer.tensors       = s->tensors;
    reducer.n_tensors     = CHECKPOINT_TENSORS;
    reducer.micro_batches = 8;
    DDP_TRY(ddp_reducer_create(&reducer, &s->reducer));
    saver.comm        = s->comm;
    saver.reducer     = s->reducer;
    saver.tensors     = s->tensors;
    saver.n_tensors   = CHECKPOINT_TENSORS;
    saver.folder      = top;
    saver.keep        = 2;
    saver.at_disk     = time_disk;
    saver.at_disk_ctx = &s->disk;
    DDP_TRY(ddp_saver_create(&saver, &s->saver));
out:
    return status;
}

static void close_setting(setting_t *s)
{
    ddp_saver_destroy(&s->saver);
    ddp_reducer_destroy(&s->reducer);
    ddp_stream_destroy(&s->stream);
    ddp_device_destroy(&s->device);
    ddp_comm_destroy(&s->comm);
}

/* Rank 0's is everybody's. */
static void setup(void)
{
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0) {
        io_test_make(top);
    }
    MPI_Bcast(top, sizeof(top), MPI_CHAR, 0, MPI_COMM_WORLD);
}

static void teardown(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        io_test_remove(top);
    }
}

static const char *under(const char *name)
{
    static char path[2 * IO_TEST_PATH];

    snprintf(path, sizeof(path), "%s/%s", top, name);
    return path;
}

/* Values and moments as checkpoint_write() has them at `step`, on every machine; `sign` makes them others. */
static void fill(setting_t *s, uint64_t step, float sign)
{
    for (size_t t = 0; t < CHECKPOINT_TENSORS && ddp_comm_local_rank(s->comm) == 0; t++) {
        for (size_t i = 0; i < s->tensors[t].count; i++) {
            const size_t at = s->tensors[t].offset + i;

            ddp_reducer_values(s->reducer)[at] = sign * checkpoint_value(step, t, -1, i);
            if (s->tensors[t].role != DDP_TENSOR_AVERAGE) {
                ddp_reducer_slot(s->reducer, 0)[at] = sign * checkpoint_value(step, t, 0, i);
                ddp_reducer_slot(s->reducer, 1)[at] = sign * checkpoint_value(step, t, 1, i);
            }
        }
    }
}

static bool has(const setting_t *s, uint64_t step)
{
    bool same = true;

    for (size_t t = 0; t < CHECKPOINT_TENSORS; t++) {
        for (size_t i = 0; i < s->tensors[t].count; i++) {
            const size_t at = s->tensors[t].offset + i;

            same = same && ddp_reducer_values(s->reducer)[at] == checkpoint_value(step, t, -1, i);
            if (s->tensors[t].role != DDP_TENSOR_AVERAGE) {
                same = same && ddp_reducer_slot(s->reducer, 0)[at] == checkpoint_value(step, t, 0, i) &&
                       ddp_reducer_slot(s->reducer, 1)[at] == checkpoint_value(step, t, 1, i);
            }
        }
    }
    return same;
}

/* Save `step` with the steps of tensors that checkpoint_write() has. */
static void save(setting_t *s, uint64_t step, bool is_best)
{
    const ddp_training_state_t state = checkpoint_state(step);

    fill(s, step, 1.0F);
    ddp_assert_all(ddp_reducer_publish(s->reducer) == DDP_OK);
    ddp_assert_all(ddp_saver_save(s->saver, &state, is_best) == DDP_OK);
}

static void set_steps(setting_t *s, uint64_t step)
{
    const uint64_t steps[CHECKPOINT_TENSORS] = {step, step - 1, step, 0};

    ddp_assert_all(ddp_reducer_restore(s->reducer, step, steps) == DDP_OK);
}

static size_t read_file(const char *path, unsigned char *bytes, size_t room)
{
    FILE  *file = fopen(path, "rb");
    size_t n;

    ck_assert_ptr_nonnull(file);
    n = fread(bytes, 1, room, file);
    ck_assert_int_eq(fclose(file), 0);
    return n;
}

START_TEST(a_rank_that_comes_late_is_no_slow_disk)
{
    const ddp_training_state_t state = checkpoint_state(42);
    const int64_t              late  = 500000000;
    setting_t                  s;
    int64_t                    begin;

    ddp_assert_all(open_setting(&s) == DDP_OK);
    set_steps(&s, 42);
    ddp_assert_all(ddp_reducer_publish(s.reducer) == DDP_OK);
    begin = ddp_clock_ns();
    while (rank > 0 && ddp_clock_ns() - begin < late) {
        usleep(1000);
    }
    ddp_assert_all(ddp_saver_save(s.saver, &state, false) == DDP_OK);
    ddp_assert_all(s.disk.calls == (rank == 0 ? 2 : 0));
    ddp_assert_all(s.disk.ns < late / 2);
    ddp_assert_all(ddp_saver_finish(s.saver) == DDP_OK);
    close_setting(&s);
}
END_TEST

static void count_call(void *ctx)
{
    ++*(size_t *)ctx;
}

/* Each array that a rank copies: a copy of much takes longer than the others wait. */
START_TEST(copying_counts_as_progress)
{
    size_t    calls = 0;
    setting_t s;

    ddp_assert_all(open_setting(&s) == DDP_OK);
    ddp_progressed_hook(count_call, &calls);
    ddp_assert_all(ddp_saver_copy(s.saver) == DDP_OK);
    ddp_progressed_unhook(&calls);
    ddp_assert_all(calls >= (size == 1 ? CHECKPOINT_TENSORS : rank == 0 ? 1 : 0));
    close_setting(&s);
}
END_TEST

/* What changes after the save is not in it. */
START_TEST(the_file_is_the_same_byte_for_byte_on_any_number_of_ranks)
{
    static unsigned char wanted[1 << 18];
    static unsigned char found[1 << 18];
    setting_t            s;
    ddp_save_result_t    result;
    bool                 same = true;

    ddp_assert_all(open_setting(&s) == DDP_OK);
    set_steps(&s, 42);
    save(&s, 42, false);
    fill(&s, 42, -1.0F);
    ddp_assert_all(ddp_saver_finish(s.saver) == DDP_OK);
    if (rank == 0) {
        same = ddp_saver_poll(s.saver, &result) && result.is_saved && result.step == 42;
        ck_assert_msg(same, "%s", result.why);
        checkpoint_write(under("reference"), 42);
        same = read_file(under("reference"), wanted, sizeof(wanted)) == result.bytes &&
               read_file(result.path, found, sizeof(found)) == result.bytes &&
               memcmp(wanted, found, result.bytes) == 0 && !ddp_saver_poll(s.saver, &result);
    }
    ddp_assert_all(same);
    close_setting(&s);
}
END_TEST

START_TEST(a_checkpoint_restores_values_moments_and_steps_on_every_machine)
{
    setting_t         s;
    ddp_checkpoint_t *checkpoint = NULL;
    bool              fine       = true;

    if (rank == 0) {
        checkpoint_write(under("a.h5"), 42);
        fine = ddp_checkpoint_open(under("a.h5"), &checkpoint) == DDP_OK;
    }
    ddp_assert_all(fine);
    ddp_assert_all(open_setting(&s) == DDP_OK);
    ddp_assert_all(ddp_checkpoint_restore(s.comm, s.reducer, s.tensors, CHECKPOINT_TENSORS, checkpoint,
                                          false) == DDP_OK);
    ddp_assert_all(has(&s, 42));
    ddp_assert_all(ddp_reducer_tensor_steps(s.reducer, 1) == 41);
    ddp_assert_all(ddp_reducer_tensor_steps(s.reducer, 3) == 0);
    ddp_assert_all(ddp_reducer_restore(s.reducer, 1, (const uint64_t[CHECKPOINT_TENSORS]){0}) ==
                   DDP_ERR_STATE);
    close_setting(&s);
    ddp_checkpoint_close(&checkpoint);
}
END_TEST

START_TEST(weights_only_leave_moments_and_what_the_file_lacks)
{
    setting_t         s;
    ddp_checkpoint_t *checkpoint = NULL;
    bool              fine       = true;

    if (rank == 0) {
        checkpoint_write(under("a.h5"), 42);
        fine = ddp_checkpoint_open(under("a.h5"), &checkpoint) == DDP_OK;
    }
    ddp_assert_all(fine);
    ddp_assert_all(open_setting(&s) == DDP_OK);
    s.tensors[3].name = "fc.other";
    fill(&s, 7, 1.0F);
    ddp_assert_all(ddp_reducer_publish(s.reducer) == DDP_OK);
    ddp_assert_all(
        ddp_checkpoint_restore(s.comm, s.reducer, s.tensors, CHECKPOINT_TENSORS, checkpoint, true) == DDP_OK);
    ddp_assert_all(ddp_reducer_values(s.reducer)[s.tensors[0].offset] == checkpoint_value(42, 0, -1, 0));
    ddp_assert_all(ddp_reducer_values(s.reducer)[s.tensors[3].offset] == checkpoint_value(7, 3, -1, 0));
    ddp_assert_all(ddp_reducer_slot(s.reducer, 0)[s.tensors[0].offset] == checkpoint_value(7, 0, 0, 0));
    ddp_assert_all(ddp_reducer_tensor_steps(s.reducer, 0) == 0);
    close_setting(&s);
    ddp_checkpoint_close(&checkpoint);
}
END_TEST

static bool is_there(const char *name)
{
    struct stat st;

    return lstat(under(name), &st) == 0;
}

START_TEST(the_newest_and_the_best_stay)
{
    setting_t         s;
    ddp_save_result_t result;
    char              target[DDP_CHECKPOINT_NAME_SIZE + 1] = "";
    bool              fine                                 = true;

    ddp_assert_all(open_setting(&s) == DDP_OK);
    for (uint64_t step = 1; step <= 5; step++) {
        save(&s, step, step == 2);
    }
    ddp_assert_all(ddp_saver_finish(s.saver) == DDP_OK);
    if (rank == 0) {
        for (uint64_t step = 2; step <= 5; step++) { /* of five results the last four are kept */
            fine = fine && ddp_saver_poll(s.saver, &result) && result.is_saved && result.step == step;
        }
        fine = fine && !is_there("ckpt-000000000001.h5") && is_there("ckpt-000000000002.h5") &&
               !is_there("ckpt-000000000003.h5") && is_there("ckpt-000000000004.h5") &&
               is_there("ckpt-000000000005.h5");
        fine = fine && readlink(under("latest.h5"), target, sizeof(target) - 1) > 0 &&
               strcmp(target, "ckpt-000000000005.h5") == 0;
        fine = fine && ddp_checkpoint_verify(under("best.h5"), NULL) == DDP_OK;
    }
    ddp_assert_all(fine);
    close_setting(&s);
}
END_TEST

/* Files that a killed run left go, files of others stay. */
START_TEST(temporary_files_are_removed_at_the_start)
{
    setting_t s;

    if (rank == 0) {
        io_test_write(top, ".ckpt-000000000009.h5.tmp-12", "x", 1);
        io_test_write(top, ".other.tmp-12", "x", 1);
        ck_assert_int_eq(symlink("nowhere", under(".latest.h5.tmp-12")), 0);
    }
    ddp_assert_all(open_setting(&s) == DDP_OK);
    ddp_assert_all(!is_there(".ckpt-000000000009.h5.tmp-12") && !is_there(".latest.h5.tmp-12"));
    ddp_assert_all(is_there(".other.tmp-12"));
    close_setting(&s);
}
END_TEST

START_TEST(a_part_that_fails_leaves_the_old_file_and_the_next_save_works)
{
    setting_t         s;
    ddp_save_result_t result;
    char              fault[32];
    bool              fine = true;

    ddp_assert_all(open_setting(&s) == DDP_OK);
    save(&s, 1, false);
    ddp_assert_all(ddp_saver_finish(s.saver) == DDP_OK);
    snprintf(fault, sizeof(fault), "save_write:%d", ddp_comm_local_size(s.comm) - 1);
    setenv("DDP_FAULT", fault, 1);
    save(&s, 2, false);
    ddp_assert_all(ddp_saver_finish(s.saver) == DDP_OK);
    unsetenv("DDP_FAULT");
    save(&s, 3, false);
    ddp_assert_all(ddp_saver_finish(s.saver) == DDP_OK);
    if (rank == 0) {
        fine = ddp_saver_poll(s.saver, &result) && result.is_saved && ddp_saver_poll(s.saver, &result) &&
               !result.is_saved && result.step == 2 && strstr(result.why, "planted") != NULL &&
               ddp_saver_poll(s.saver, &result) && result.is_saved && result.step == 3;
        fine = fine && is_there("ckpt-000000000001.h5") && !is_there("ckpt-000000000002.h5") &&
               ddp_checkpoint_verify(under("ckpt-000000000003.h5"), NULL) == DDP_OK;
    }
    ddp_assert_all(fine);
    close_setting(&s);
}
END_TEST

START_TEST(a_folder_that_cannot_be_made_is_an_error_on_all_ranks)
{
    setting_t    s;
    char         old[IO_TEST_PATH];
    ddp_status_t status;

    memcpy(old, top, sizeof(old));
    snprintf(top + strlen(top), sizeof(top) - strlen(top), "/no/where");
    status = open_setting(&s);
    ddp_assert_all(status == (rank == 0 ? DDP_ERR_IO : DDP_ERR_REMOTE));
    ddp_assert_all(strstr(ddp_error_line(), "/no/where': no such file or directory") != NULL);
    close_setting(&s);
    memcpy(top, old, sizeof(old));
}
END_TEST

/* A run that ends in the middle of a save leaves nothing half-written under a final name, and does not hang.
 */
START_TEST(destroying_the_saver_gives_the_running_save_up)
{
    setting_t s;
    uint64_t *steps = NULL;
    size_t    n     = 0;
    bool      fine  = true;

    ddp_assert_all(open_setting(&s) == DDP_OK);
    save(&s, 9, false);
    close_setting(&s);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        fine = ddp_checkpoint_list(top, &steps, &n) == DDP_OK && n <= 1;
        fine = fine && (n == 0 || ddp_checkpoint_verify(under("ckpt-000000000009.h5"), NULL) == DDP_OK);
        free(steps);
    }
    ddp_assert_all(fine);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("saver");
    TCase *tcase = tcase_create("all");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, the_file_is_the_same_byte_for_byte_on_any_number_of_ranks);
    tcase_add_test(tcase, a_rank_that_comes_late_is_no_slow_disk);
    tcase_add_test(tcase, copying_counts_as_progress);
    tcase_add_test(tcase, a_checkpoint_restores_values_moments_and_steps_on_every_machine);
    tcase_add_test(tcase, weights_only_leave_moments_and_what_the_file_lacks);
    tcase_add_test(tcase, the_newest_and_the_best_stay);
    tcase_add_test(tcase, temporary_files_are_removed_at_the_start);
    tcase_add_test(tcase, a_part_that_fails_leaves_the_old_file_and_the_next_save_works);
    tcase_add_test(tcase, a_folder_that_cannot_be_made_is_an_error_on_all_ranks);
    tcase_add_test(tcase, destroying_the_saver_gives_the_running_save_up);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return ddp_test_run_mpi(&argc, &argv, make_suite);
}
