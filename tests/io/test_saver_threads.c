/* The writing threads without MPI, so that the thread sanitizer sees them: a saver alone, and several ranks'
 * threads in one process, which meet in memory as they do between processes. */
#include <sys/stat.h>
#include <time.h>

#include "base/allocator.h"
#include "base/clock.h"
#include "base/convert.h"
#include "io/saver_internal.h"
#include "tests/io/checkpoint_file.h"

#define RANKS      3
#define ROOM       (1 << 18)
#define MOST_NS    ((int64_t)20000000000)
#define PIECES     64
#define SILENCE_NS ((int64_t)31000000000)

static char top[IO_TEST_PATH];

static void setup(void)
{
    io_test_make(top);
}

static void teardown(void)
{
    io_test_remove(top);
}

/* A communicator of one rank, and a reducer with the tensors of checkpoint_file.h. */
typedef struct setting {
    ddp_comm_t       *comm;
    ddp_device_t     *device;
    ddp_stream_t     *stream;
    ddp_reducer_t    *reducer;
    ddp_tensor_desc_t tensors[CHECKPOINT_TENSORS];
} setting_t;

static void open_setting(setting_t *s)
{
    ddp_comm_params_t    comm    = DDP_COMM_PARAMS_INIT;
    ddp_device_params_t  device  = DDP_DEVICE_PARAMS_INIT;
    ddp_reducer_params_t reducer = DDP_REDUCER_PARAMS_INIT;
    size_t               total   = 0;

    memset(s, 0, sizeof(*s));
    checkpoint_tensors(s->tensors);
    comm.alone = true;
    ddp_assert_ok(ddp_layout_make(s->tensors, CHECKPOINT_TENSORS, &total));
    ddp_assert_ok(ddp_comm_create(&comm, &s->comm));
    ddp_assert_ok(ddp_device_create(&device, &s->device));
    ddp_comm_attach(s->comm, s->device);
    ddp_assert_ok(ddp_stream_create(s->device, "compute", &s->stream));
    reducer.comm          = s->comm;
    reducer.compute       = s->stream;
    reducer.tensors       = s->tensors;
    reducer.n_tensors     = CHECKPOINT_TENSORS;
    reducer.micro_batches = 8;
    ddp_assert_ok(ddp_reducer_create(&reducer, &s->reducer));
}

static void close_setting(setting_t *s)
{
    ddp_reducer_destroy(&s->reducer);
    ddp_stream_destroy(&s->stream);
    ddp_device_destroy(&s->device);
    ddp_comm_destroy(&s->comm);
}

/* Values and moments as checkpoint_write() has them at `step`; `sign` makes them others. */
static void fill(setting_t *s, uint64_t step, float sign)
{
    for (size_t t = 0; t < CHECKPOINT_TENSORS; t++) {
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

static void set_steps(setting_t *s, uint64_t step)
{
    const uint64_t steps[CHECKPOINT_TENSORS] = {step, step - 1, step, 0};

    ddp_assert_ok(ddp_reducer_restore(s->reducer, step, steps));
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

/* A file is that of checkpoint_write(), byte for byte. */
static void assert_is_reference(const char *path, uint64_t step)
{
    static unsigned char wanted[ROOM];
    static unsigned char found[ROOM];
    char                 reference[2 * IO_TEST_PATH];
    size_t               n;

    snprintf(reference, sizeof(reference), "%s/reference", top);
    checkpoint_write(reference, step);
    n = read_file(reference, wanted);
    ck_assert_uint_eq(read_file(path, found), n);
    ck_assert_int_eq(memcmp(wanted, found, n), 0);
}

static void rest(void)
{
    const struct timespec time = {0, 1000000};

    (void)nanosleep(&time, NULL);
}

/* The arrays change while the file is written, as they do in training. */
START_TEST(a_save_beside_training_is_the_state_it_was_called_with)
{
    setting_t          s;
    ddp_saver_params_t params = DDP_SAVER_PARAMS_INIT;
    ddp_saver_t       *saver  = NULL;
    ddp_checkpoint_t  *file   = NULL;
    ddp_save_result_t  result;

    open_setting(&s);
    params.comm      = s.comm;
    params.reducer   = s.reducer;
    params.tensors   = s.tensors;
    params.n_tensors = CHECKPOINT_TENSORS;
    params.folder    = top;
    ddp_assert_ok(ddp_saver_create(&params, &saver));
    set_steps(&s, 42);
    for (uint64_t step = 42; step < 45; step++) {
        const ddp_training_state_t state = checkpoint_state(step);

        fill(&s, step, 1.0F);
        ddp_assert_ok(ddp_saver_save(saver, &state, step == 43));
        ck_assert_uint_eq(ddp_saver_last(saver), step);
        fill(&s, step, -1.0F);
        (void)ddp_saver_poll(saver, &result); /* as after every step */
    }
    ddp_assert_ok(ddp_saver_finish(saver));
    while (ddp_saver_poll(saver, &result)) {
        ck_assert_msg(result.is_saved, "%s", result.why);
        ck_assert_int_eq(result.is_best, result.step == 43);
    }
    ddp_saver_destroy(&saver);
    close_setting(&s);

    open_setting(&s);
    ddp_assert_ok(ddp_checkpoint_open(result.path, &file));
    ddp_assert_ok(ddp_checkpoint_restore(s.comm, s.reducer, s.tensors, CHECKPOINT_TENSORS, file, false));
    ck_assert(ddp_reducer_values(s.reducer)[s.tensors[1].offset + 77] == checkpoint_value(44, 1, -1, 77));
    ck_assert(ddp_reducer_slot(s.reducer, 1)[s.tensors[1].offset + 77] == checkpoint_value(44, 1, 1, 77));
    ddp_checkpoint_close(&file);
    close_setting(&s);
}
END_TEST

/* An allocator that notes what it gives. */
typedef struct noted {
    int    refuses, acquired, released;
    size_t bytes;
} noted_t;

static ddp_status_t noted_acquire(void *ctx, const char *label, size_t bytes, void **memory_p)
{
    noted_t *noted = ctx;

    ck_assert_str_eq(label, "snapshot for checkpoints");
    noted->acquired++;
    noted->bytes = bytes;
    return noted->refuses ? ddp_fail(DDP_ERR_NO_MEMORY, "nothing is page-locked here")
                          : ddp_allocator_private()->acquire(NULL, label, bytes, memory_p);
}

static void noted_release(void *ctx, void *memory)
{
    ((noted_t *)ctx)->released++;
    ddp_allocator_private()->release(NULL, memory);
}

START_TEST(the_snapshot_lies_where_it_is_told_to_if_there_is_room)
{
    setting_t                  s;
    ddp_saver_params_t         params = DDP_SAVER_PARAMS_INIT;
    const ddp_training_state_t state  = checkpoint_state(42);
    noted_t                    noted  = {.refuses = _i};
    const ddp_allocator_t      memory = {noted_acquire, noted_release, &noted};
    ddp_saver_t               *saver  = NULL;
    ddp_save_result_t          result;

    open_setting(&s);
    params.comm      = s.comm;
    params.reducer   = s.reducer;
    params.tensors   = s.tensors;
    params.n_tensors = CHECKPOINT_TENSORS;
    params.folder    = top;
    params.memory    = &memory;
    ddp_assert_ok(ddp_saver_create(&params, &saver));
    ck_assert_int_eq(noted.acquired, 1);
    ck_assert_uint_eq(noted.bytes, ddp_saver_bytes(s.tensors, CHECKPOINT_TENSORS, 2));
    set_steps(&s, 42);
    fill(&s, 42, 1.0F);
    ddp_assert_ok(ddp_saver_save(saver, &state, false));
    ddp_assert_ok(ddp_saver_finish(saver));
    ck_assert(ddp_saver_poll(saver, &result) && result.is_saved);
    ck_assert_int_eq(noted.released, 0);
    ddp_saver_destroy(&saver);
    ck_assert_int_eq(noted.released, _i == 0 ? 1 : 0);
    close_setting(&s);
}
END_TEST

/* What the ranks of a machine share. */
typedef struct machine {
    ddp_save_shared_t shared;
    ddp_save_writer_t writers[RANKS];
    ddp_save_piece_t  pieces[PIECES];
    ddp_saver_t      *saver[RANKS];
} machine_t;

/* Local rank `rank` as ddp_saver_create() makes it, its thread not started. */
static ddp_saver_t *make_saver(machine_t *m, setting_t *s, int rank, int size)
{
    const ddp_allocator_t *memory = ddp_allocator_private();
    ddp_saver_t           *saver  = calloc(1, sizeof(*saver));
    void                  *part   = NULL;

    ck_assert_ptr_nonnull(saver);
    saver->params           = (ddp_saver_params_t)DDP_SAVER_PARAMS_INIT;
    saver->params.comm      = s->comm;
    saver->params.reducer   = s->reducer;
    saver->params.tensors   = s->tensors;
    saver->params.n_tensors = CHECKPOINT_TENSORS;
    snprintf(saver->folder, sizeof(saver->folder), "%s", top);
    snprintf(saver->host, sizeof(saver->host), "node07");
    saver->rank       = rank;
    saver->local_rank = rank;
    saver->n_writers  = size;
    saver->holder     = ddp_reducer_holder;
    saver->is_writer  = true;
    saver->n_slots    = 2;
    saver->floats     = ddp_saver_count_floats(s->tensors, CHECKPOINT_TENSORS, 2);
    saver->max_pieces = PIECES;
    saver->shared     = &m->shared;
    saver->writers    = m->writers;
    saver->pieces     = m->pieces;
    if (s->reducer != NULL) {
        ddp_assert_ok(ddp_saver_cut(saver));
    }
    ddp_assert_ok(memory->acquire(memory->ctx, "a test", (saver->own_floats + 1) * sizeof(float), &part));
    saver->snapshot = part;
    ck_assert_int_eq(pthread_mutex_init(&saver->lock, NULL), 0);
    ck_assert_int_eq(pthread_cond_init(&saver->wake, NULL), 0);
    m->saver[rank] = saver;
    return saver;
}

static void start(ddp_saver_t *saver)
{
    ck_assert_int_eq(pthread_create(&saver->thread, NULL, ddp_saver_thread, saver), 0);
    saver->has_thread = true;
}

START_TEST(threads_of_several_ranks_write_one_file)
{
    static machine_t  m;
    setting_t         s;
    ddp_save_result_t result;

    memset(&m, 0, sizeof(m));
    open_setting(&s);
    set_steps(&s, 42);
    for (int r = 0; r < RANKS; r++) {
        start(make_saver(&m, &s, r, RANKS));
    }
    for (uint64_t number = 1; number <= 3; number++) {
        const uint64_t             step  = 42;
        const ddp_training_state_t state = checkpoint_state(step);
        ddp_save_job_t             job   = {.number = number, .step = step};
        ddp_save_job_t             other = job;

        fill(&s, step, 1.0F);
        ddp_assert_ok(ddp_saver_plan(m.saver[0], &state, &job));
        ck_assert_uint_le(m.shared.n_pieces, PIECES);
        for (int r = RANKS - 1; r >= 0; r--) {
            m.saver[r]->number = number;
            ddp_assert_ok(ddp_saver_copy(m.saver[r]));
            ddp_saver_hand_over(m.saver[r], r == 0 ? &job : &other);
        }
        fill(&s, step, -1.0F);
        while (ddp_saver_look(m.saver[0], MOST_NS) != DDP_SAVE_IDLE) {
            rest();
        }
        ck_assert(ddp_saver_poll(m.saver[0], &result));
        ck_assert_msg(result.is_saved, "%s", result.why);
        assert_is_reference(result.path, step);
    }
    for (int r = 0; r < RANKS; r++) {
        ddp_saver_destroy(&m.saver[r]);
    }
    close_setting(&s);
}
END_TEST

/* Opening a pipe that nobody reads does not return, as a call into a disk that does not answer. */
START_TEST(a_thread_that_is_held_is_left_with_what_it_needs)
{
    static machine_t    m;
    static ddp_saver_t *left; /* reachable: no leak */
    setting_t           s     = {0};
    ddp_comm_params_t   alone = DDP_COMM_PARAMS_INIT;
    ddp_save_job_t      job   = {.number = 1, .step = 1};
    const int64_t       begin = ddp_clock_ns();
    ddp_saver_t        *saver = NULL;
    int                 fd;

    memset(&m, 0, sizeof(m));
    checkpoint_tensors(s.tensors);
    alone.alone = true;
    ddp_assert_ok(ddp_comm_create(&alone, &s.comm));
    snprintf(m.shared.path, sizeof(m.shared.path), "%s/pipe", top);
    ck_assert_int_eq(mkfifo(m.shared.path, 0600), 0);
    atomic_store(&m.shared.opened, 1);
    left                    = make_saver(&m, &s, 1, 2);
    left->params.timeout_ms = 200;
    left->number            = 1;
    start(left);
    ddp_saver_hand_over(left, &job);
    while (atomic_load(&m.writers[1].stage) != DDP_SAVE_OPEN) {
        rest();
    }
    saver = left;
    ddp_saver_destroy(&saver);
    ck_assert_ptr_null(saver);
    ck_assert_int_lt(ddp_clock_ns() - begin, MOST_NS);
    ck_assert_uint_eq(atomic_load(&m.writers[1].ended), 0);
    ddp_comm_destroy(&s.comm);

    fd = open(m.shared.path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    while (atomic_load(&m.writers[1].ended) == 0) {
        rest();
    }
    ck_assert_int_eq(close(fd), 0);
}
END_TEST

/* Who holds a save up, since when, and where. */
START_TEST(what_is_said_of_a_save_that_hangs)
{
    static machine_t m;
    setting_t        s = {0};
    char             line[DDP_ERROR_LINE_SIZE];
    ddp_saver_t     *saver;

    memset(&m, 0, sizeof(m));
    checkpoint_tensors(s.tensors);
    saver          = make_saver(&m, &s, 0, RANKS);
    saver->number  = 7;
    m.shared.bytes = 1500000000;
    snprintf(m.shared.what, sizeof(m.shared.what), "writing checkpoint 'a.h5'");
    for (int r = 0; r < RANKS; r++) {
        ddp_saver_stage(&m.writers[r], DDP_SAVE_RESTS);
        ddp_saver_moved(&m.writers[r], 270666666);
        atomic_store(&m.writers[r].ended, 7);
    }
    ck_assert_int_eq(ddp_saver_look(saver, INT64_MAX), DDP_SAVE_BUSY); /* rank 0 has not closed it */
    atomic_store(&m.shared.closed, 7);
    ck_assert_int_eq(ddp_saver_look(saver, INT64_MAX), DDP_SAVE_IDLE);

    atomic_store(&m.writers[2].ended, 6);
    ddp_saver_stage(&m.writers[2], DDP_SAVE_PWRITE);
    ck_assert_int_eq(ddp_saver_look(saver, 1000000000), DDP_SAVE_BUSY);
    for (int r = 0; r < RANKS; r++) {
        atomic_fetch_sub(&m.writers[r].moved_ns, SILENCE_NS);
    }
    ck_assert_int_eq(ddp_saver_look(saver, INT64_MAX), DDP_SAVE_BUSY);
    ck_assert_int_eq(ddp_saver_look(saver, SILENCE_NS), DDP_SAVE_HANGS);
    ddp_saver_describe(saver, 7, SILENCE_NS, line);
    ck_assert_str_eq(line,
                     "writing checkpoint 'a.h5' on node07: no progress for 31 s, in pwrite of rank 2, 812 of "
                     "1500 MB written");
    ddp_saver_moved(&m.writers[1], 1); /* somebody else got on */
    ck_assert_int_eq(ddp_saver_look(saver, SILENCE_NS), DDP_SAVE_BUSY);
    ddp_saver_destroy(&saver);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("saver_threads");
    TCase *tcase = tcase_create("all");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_save_beside_training_is_the_state_it_was_called_with);
    tcase_add_loop_test(tcase, the_snapshot_lies_where_it_is_told_to_if_there_is_room, 0, 2);
    tcase_add_test(tcase, threads_of_several_ranks_write_one_file);
    tcase_add_test(tcase, a_thread_that_is_held_is_left_with_what_it_needs);
    tcase_add_test(tcase, what_is_said_of_a_save_that_hangs);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
