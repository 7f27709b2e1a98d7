/* Moments of which each rank holds only its slices: what no rank of rank 0's machine has comes over MPI. */
#include <mpi.h>
#include <stdlib.h>

#include "base/error.h"
#include "ddp/reducer.h"
#include "io/saver_internal.h"
#include "tests/io/checkpoint_file.h"

#define ROOM ((size_t)1 << 18)

static char top[IO_TEST_PATH];
static int  rank, size;

typedef struct setting {
    ddp_comm_t       *comm;
    ddp_device_t     *device;
    ddp_stream_t     *stream;
    ddp_reducer_t    *reducer;
    ddp_saver_t      *saver;
    ddp_tensor_desc_t tensors[CHECKPOINT_TENSORS];
} setting_t;

/* Three blocks for each rank in turn, the last rank first, and the parameters with all. */
static int slices(const ddp_reducer_t *reducer, int array, size_t offset, size_t *count_p)
{
    const size_t slice = 3 * DDP_BLOCK;

    (void)reducer;
    if (array == DDP_REDUCER_VALUES) {
        *count_p = SIZE_MAX - offset;
        return DDP_REDUCER_EVERYBODY;
    }
    *count_p = slice - offset % slice;
    return size - 1 - (int)(offset / slice % (size_t)size);
}

static void open_setting(setting_t *s)
{
    ddp_comm_params_t    comm    = DDP_COMM_PARAMS_INIT;
    ddp_device_params_t  device  = DDP_DEVICE_PARAMS_INIT;
    ddp_reducer_params_t reducer = DDP_REDUCER_PARAMS_INIT;
    ddp_saver_params_t   saver   = DDP_SAVER_PARAMS_INIT;
    size_t               total   = 0;

    memset(s, 0, sizeof(*s));
    checkpoint_tensors(s->tensors);
    comm.parent     = MPI_COMM_WORLD;
    comm.timeout_ms = 20000;
    ddp_assert_all(ddp_layout_make(s->tensors, CHECKPOINT_TENSORS, &total) == DDP_OK);
    ddp_assert_all(ddp_comm_create(&comm, &s->comm) == DDP_OK);
    ddp_assert_all(ddp_device_create(&device, &s->device) == DDP_OK);
    ddp_comm_attach(s->comm, s->device);
    ddp_assert_all(ddp_stream_create(s->device, "compute", &s->stream) == DDP_OK);
    reducer.comm          = s->comm;
    reducer.compute       = s->stream;
    reducer.tensors       = s->tensors;
    reducer.n_tensors     = CHECKPOINT_TENSORS;
    reducer.micro_batches = 8;
    ddp_assert_all(ddp_reducer_create(&reducer, &s->reducer) == DDP_OK);
    saver.comm      = s->comm;
    saver.reducer   = s->reducer;
    saver.tensors   = s->tensors;
    saver.n_tensors = CHECKPOINT_TENSORS;
    saver.folder    = top;
    ddp_assert_all(ddp_saver_create_with(&saver, slices, &s->saver) == DDP_OK);
}

static void close_setting(setting_t *s)
{
    ddp_saver_destroy(&s->saver);
    ddp_reducer_destroy(&s->reducer);
    ddp_stream_destroy(&s->stream);
    ddp_device_destroy(&s->device);
    ddp_comm_destroy(&s->comm);
}

/* Each element where its holder's machine keeps it; elsewhere is something else. */
static void fill(setting_t *s, uint64_t step)
{
    const int machine = ddp_comm_machine(s->comm);
    int      *homes   = calloc((size_t)size, sizeof(*homes));

    ck_assert_ptr_nonnull(homes);
    ddp_assert_all(ddp_comm_allgather(s->comm, &machine, sizeof(machine), homes) == DDP_OK);
    for (size_t t = 0; t < CHECKPOINT_TENSORS && ddp_comm_local_rank(s->comm) == 0; t++) {
        for (int array = -1; array < (s->tensors[t].role == DDP_TENSOR_AVERAGE ? 0 : 2); array++) {
            for (size_t i = 0; i < s->tensors[t].count; i++) {
                size_t      count  = 0;
                const int   holder = slices(NULL, array, s->tensors[t].offset + i, &count);
                const bool  here   = holder == DDP_REDUCER_EVERYBODY || homes[holder] == machine;
                const float value  = here ? checkpoint_value(step, t, array, i) : -123.0F;

                ddp_assert_ok(ddp_reducer_write(s->reducer, array, s->tensors[t].offset + i, 1, &value));
            }
        }
    }
    free(homes);
}

static size_t read_file(const char *path, unsigned char *bytes)
{
    FILE  *file = fopen(path, "rb");
    size_t n;

    ck_assert_ptr_nonnull(file);
    n = fread(bytes, 1, ROOM, file);
    ck_assert_int_eq(fclose(file), 0);
    return n;
}

static bool is_reference(const ddp_save_result_t *result, uint64_t step)
{
    static unsigned char wanted[ROOM], found[ROOM];
    char                 reference[2 * IO_TEST_PATH];

    snprintf(reference, sizeof(reference), "%s/reference", top);
    checkpoint_write(reference, step);
    return read_file(reference, wanted) == result->bytes && read_file(result->path, found) == result->bytes &&
           memcmp(wanted, found, result->bytes) == 0;
}

START_TEST(slices_that_only_other_machines_hold_are_in_the_file)
{
    const ddp_training_state_t state                     = checkpoint_state(42);
    const uint64_t             steps[CHECKPOINT_TENSORS] = {42, 41, 42, 0};
    setting_t                  s;
    ddp_save_result_t          result;
    bool                       fine = true;

    open_setting(&s);
    s.saver->pass_floats = 300; /* slices take several messages */
    ddp_assert_all(ddp_reducer_restore(s.reducer, 42, steps) == DDP_OK);
    for (int k = 0; k < 2; k++) { /* a second time too */
        fill(&s, 42);
        ddp_assert_all(ddp_reducer_publish(s.reducer) == DDP_OK);
        ddp_assert_all(ddp_saver_save(s.saver, &state, false) == DDP_OK);
        ddp_assert_all(ddp_saver_finish(s.saver) == DDP_OK);
        if (rank == 0) {
            fine = ddp_saver_poll(s.saver, &result) && result.is_saved && is_reference(&result, 42);
        }
        ddp_assert_all(fine);
    }
    close_setting(&s);
}
END_TEST

START_TEST(who_holds_a_slice_on_the_writing_machine_writes_it)
{
    setting_t s;
    size_t    floats = 0;
    bool      fine   = true;

    open_setting(&s);
    for (size_t i = 0; i < s.saver->n_parts; i++) {
        const ddp_save_part_t *part   = &s.saver->parts[i];
        const int              holder = part->holder;

        floats += part->count;
        fine = fine && part->writer >= 0 && part->writer < s.saver->n_writers;
        fine = fine &&
               (holder == DDP_REDUCER_EVERYBODY || holder >= s.saver->n_writers || holder == part->writer);
    }
    ddp_assert_all(fine && floats == s.saver->floats);
    close_setting(&s);
}
END_TEST

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

static Suite *make_suite(void)
{
    Suite *suite = suite_create("saver away");
    TCase *tcase = tcase_create("slices");

    tcase_add_unchecked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, slices_that_only_other_machines_hold_are_in_the_file);
    tcase_add_test(tcase, who_holds_a_slice_on_the_writing_machine_writes_it);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return ddp_test_run_mpi(&argc, &argv, make_suite);
}
