/* HDF5 files of others, and readers that a file has taken over. */
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "io/foreign_internal.h"
#include "tests/io/checkpoint_file.h"
#include "tests/io/weights_file.h"

static char top[IO_TEST_PATH];
static char folder[IO_TEST_PATH]; /* before the tests */

static void setup(void)
{
    ck_assert_ptr_nonnull(getcwd(folder, sizeof(folder)));
    io_test_make(top);
    ck_assert_int_eq(chdir(top), 0);
}

/* No process stays behind, however a test went. */
static void teardown(void)
{
    ck_assert_int_eq(unsetenv("DDP_FAULT"), 0);
    ck_assert_int_eq(unsetenv("FALSE_READER"), 0);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
    ck_assert_int_eq(errno, ECHILD);
    ck_assert_int_eq(chdir(folder), 0);
    io_test_remove(top);
}

static void refuse(const char *path, const char *text)
{
    ddp_weights_t *w = NULL;

    ddp_assert_fails(open_file(path, &w), DDP_ERR_FORMAT, text);
    ck_assert_ptr_null(w);
}

START_TEST(contiguous_floats_are_read)
{
    ddp_weights_t *w = NULL;

    ddp_assert_ok(open_file(data("plain.h5"), &w));
    ck_assert_int_eq(ddp_weights_kind(w), DDP_WEIGHTS_HDF5);
    ck_assert_uint_eq(ddp_weights_count(w), 4);
    expect(w, "a.weight", 0, DDP_WEIGHTS_F32, "4 5 ");
    expect(w, "a.bias", 1, DDP_WEIGHTS_F64, "3 ");
    expect(w, "half", 2, DDP_WEIGHTS_F16, "2 2 2 ");
    ck_assert_int_eq(ddp_weights_tensors(w)[ddp_weights_find(w, "count")].type, DDP_WEIGHTS_OTHER);
    ddp_weights_close(&w);
}
END_TEST

START_TEST(chunks_and_gzip_are_read_in_any_order)
{
    static const char *const names[]  = {"gzip", "half", "hard", "long", "plain", "square", "tiny", "one"};
    static const char *const shapes[] = {"100 37 ", "9 8 7 ", "7 ", "70001 ", "4 5 ", "3 5 3 3 ", "3 2 ", ""};
    static const ddp_weights_type_t types[] = {
        [1] = DDP_WEIGHTS_F16, [2] = DDP_WEIGHTS_F64, [7] = DDP_WEIGHTS_F32};
    ddp_weights_t *w = NULL;
    float          some[5];

    ddp_assert_ok(open_file(data("packed.h5"), &w));
    ck_assert_uint_eq(ddp_weights_count(w), 9);
    for (size_t i = 0; i < 16; i++) { /* forward, as they lie in the file; then backward */
        const size_t t = i < 8 ? i : 15 - i;

        expect(w, names[t], t, types[t], shapes[t]);
    }
    ddp_assert_ok(ddp_weights_read(w, ddp_weights_find(w, "gzip"), 3600, 5, some));
    ddp_assert_ok(ddp_weights_read(w, ddp_weights_find(w, "gzip"), 77, 5, some));
    for (size_t i = 0; i < 5; i++) {
        ck_assert(some[i] == value(0, 77 + i));
    }
    ddp_weights_close(&w); /* in the middle of a tensor */
}
END_TEST

START_TEST(weights_of_keras_are_read)
{
    ddp_weights_t *w = NULL;

    ddp_assert_ok(open_file(data("keras.weights.h5"), &w));
    ck_assert_uint_eq(ddp_weights_count(w), 6);
    expect(w, "layers.dense.vars.0", 0, DDP_WEIGHTS_F32, "5 3 ");
    expect(w, "layers.dense.vars.1", 1, DDP_WEIGHTS_F32, "3 ");
    expect(w, "layers.batch_normalization.vars.3", 5, DDP_WEIGHTS_F32, "3 ");
    ddp_weights_close(&w);
}
END_TEST

START_TEST(a_damaged_checkpoint_is_read_only_on_demand)
{
    ddp_weights_params_t unverified = DDP_WEIGHTS_PARAMS_INIT;
    ddp_weights_t       *w          = NULL;
    FILE                *file       = NULL;

    unverified.unverified = true;
    unverified.reader     = "/proc/self/exe";
    checkpoint_write("c.h5", 5);
    file = fopen("c.h5", "r+b");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fseek(file, -3, SEEK_END), 0);
    ck_assert_int_ne(fputc(0x55, file), EOF);
    ck_assert_int_eq(fclose(file), 0);
    refuse("c.h5", "crc32c");
    ddp_assert_ok(ddp_weights_open("c.h5", &unverified, &w));
    ck_assert_int_eq(ddp_weights_kind(w), DDP_WEIGHTS_HDF5);
    ck_assert_uint_eq(ddp_weights_count(w), 4); /* the model alone */
    ck_assert_uint_lt(ddp_weights_find(w, "h.0.attn.c_attn.weight"), 4);
    ddp_weights_close(&w);
}
END_TEST

START_TEST(what_reaches_beyond_the_file_is_refused)
{
    refuse(data("soft.h5"), "soft or external link");
    refuse(data("elsewhere.h5"), "soft or external link");
    refuse(data("external.h5"), "lies in another file");
    refuse(data("virtual.h5"), "lies in another file");
    refuse(data("loop.h5"), "16 groups one in another");
}
END_TEST

/* 160 KiB that are stored, of two rows of 80 MB in one chunk's height. */
static void write_tall_chunks(const char *path)
{
    const hsize_t dims[2]  = {2, 20000000};
    const hsize_t chunk[2] = {2, 20480};
    float        *x        = calloc(2 * 20480, sizeof(*x));
    const hid_t   file     = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hid_t   space    = H5Screate_simple(2, dims, NULL);
    const hid_t   memory   = H5Screate_simple(2, chunk, NULL);
    const hid_t   how      = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t start[2] = {0, 0};
    hid_t         array;

    ck_assert(x != NULL && H5Pset_chunk(how, 2, chunk) >= 0);
    array = H5Dcreate2(file, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, how, H5P_DEFAULT);
    ck_assert_int_ge(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, chunk, NULL), 0);
    ck_assert_int_ge(H5Dwrite(array, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, x), 0);
    ck_assert(H5Dclose(array) >= 0 && H5Pclose(how) >= 0 && H5Sclose(memory) >= 0 && H5Sclose(space) >= 0 &&
              H5Fclose(file) >= 0);
    free(x);
}

START_TEST(what_is_packed_has_limits)
{
    ddp_weights_t *w = NULL;
    float          x;

    refuse(data("bomb.h5"), "4294967296 bytes cannot come of the 0 that are stored");
    refuse(data("lzf.h5"), "'x' is packed by filter 32000 (lzf), not by gzip; h5repack -f NONE");
    write_tall_chunks("tall.h5");
    ddp_assert_ok(open_file("tall.h5", &w));
    ddp_assert_fails(ddp_weights_read(w, 0, 0, 1, &x), DDP_ERR_FORMAT, "take more than 128 MiB");
    ddp_weights_close(&w);
}
END_TEST

/* What a file makes of the process that parses it. */
static void misbehave(const char *fault, int timeout_s, const char *text)
{
    ddp_weights_params_t params = DDP_WEIGHTS_PARAMS_INIT;
    ddp_weights_t       *w      = NULL;

    params.reader    = "/proc/self/exe";
    params.timeout_s = timeout_s;
    ck_assert_int_eq(setenv("DDP_FAULT", fault, 1), 0);
    ddp_assert_fails(ddp_weights_open(data("plain.h5"), &params, &w), DDP_ERR_FORMAT, text);
    ck_assert_int_eq(unsetenv("DDP_FAULT"), 0);
}

START_TEST(a_reader_that_dies_is_told)
{
    misbehave("foreign_dies:0", 100, "damaged or hostile: the process that parsed it was ended by signal 11");
    misbehave("foreign_eats:0", 100, "damaged or hostile: the process that parsed it");
}
END_TEST

START_TEST(a_reader_that_hangs_is_ended)
{
    misbehave("foreign_hangs:0", 1, "damaged or hostile: HDF5 is not through with it after 1 s");
}
END_TEST

START_TEST(a_reader_has_so_much_processor_time)
{
    struct rusage used;
    int           how = 0;
    int           pipes[2];
    pid_t         child;

    ck_assert_int_eq(pipe(pipes), 0);
    ck_assert_int_eq(setenv("DDP_FAULT", "foreign_spins:0", 1), 0);
    child = fork();
    if (child == 0) {
        (void)dup2(pipes[1], DDP_FOREIGN_FD);
        (void)execl("/proc/self/exe", "reader", DDP_FOREIGN_WORD, data("plain.h5"), "0", "1", (char *)NULL);
        _exit(1);
    }
    ck_assert_int_eq(wait4(child, &how, 0, &used), child);
    ck_assert(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    ck_assert_int_le(used.ru_utime.tv_sec + used.ru_stime.tv_sec, 2);
    ck_assert(close(pipes[0]) == 0 && close(pipes[1]) == 0);
}
END_TEST

START_TEST(a_reader_can_write_no_byte)
{
    FILE *file = NULL;

    misbehave("foreign_writes:0", 20, "damaged or hostile: the process that parsed it was ended by signal");
    file = fopen("written", "r");
    ck_assert(file == NULL || getc(file) == EOF);
    if (file != NULL) {
        (void)fclose(file);
    }
}
END_TEST

static ddp_status_t open_lie(const char *lie, ddp_weights_t **w_p)
{
    ddp_weights_params_t params = DDP_WEIGHTS_PARAMS_INIT;

    params.reader    = getenv("FALSE_READER_PROGRAM");
    params.timeout_s = 1;
    ck_assert_ptr_nonnull(params.reader);
    ck_assert_int_eq(setenv("FALSE_READER", lie, 1), 0);
    return ddp_weights_open(data("plain.h5"), &params, w_p);
}

static const struct {
    const char *lie, *text;
} list_lies[] = {
    {"nothing", "broke off"},
    {"noise", "tells nonsense"},
    {"half", "broke off"},
    {"magic", "tells nonsense"},
    {"what", "tells nonsense"},
    {"type", "tells nonsense"},
    {"ndim", "tells nonsense"},
    {"index", "tells nonsense"},
    {"far", "'x' reaches beyond the end of the file"},
    {"wrap", "'x' reaches beyond the end of the file"},
    {"long", "'x' reaches beyond the end of the file"},
    {"shape", "'x': its shape is larger than its 16 bytes"},
    {"bomb", "are more than the file can hold"},
    {"name", "a control character in its name"},
    {"text", "T "},
    {"many", "tells nonsense"},
};

START_TEST(lies_of_a_reader_are_refused)
{
    ddp_weights_t *w = NULL;

    ddp_assert_fails(open_lie(list_lies[_i].lie, &w), DDP_ERR_FORMAT, list_lies[_i].text);
    ck_assert_ptr_null(strchr(ddp_error_line(), '\n'));
    ck_assert_ptr_null(w);
}
END_TEST

static const struct {
    const char *lie, *text;
} send_lies[] = {
    {"other_size", "'x' is another tensor than before"},
    {"other_type", "'x' is another tensor than before"},
    {"other_tensor", "no 'x' any more"},
    {"none", "no 'x' any more"},
    {"breaks_off", "broke off"},
    {"long_block", "tells nonsense"},
    {"no_block", "tells nonsense"},
    {"wide_block", "tells nonsense"},
    {"short_block", "tells nonsense"}, /* and the end where four bytes are missing */
    {"fails", "x"},
};

START_TEST(lies_of_a_sender_are_refused)
{
    ddp_weights_t *w = NULL;
    float          x[4];

    ddp_assert_ok(open_lie(send_lies[_i].lie, &w));
    ddp_assert_fails(ddp_weights_read(w, 0, 0, 4, x), DDP_ERR_FORMAT, send_lies[_i].text);
    ddp_weights_close(&w);
}
END_TEST

START_TEST(a_sender_may_stay_when_all_is_sent)
{
    ddp_weights_t *w = NULL;
    float          x[4];

    ddp_assert_ok(open_lie("stays", &w));
    ddp_assert_ok(ddp_weights_read(w, 0, 0, 4, x));
    ck_assert(x[0] == 1.0F && x[3] == 4.0F);
    ddp_weights_close(&w);
}
END_TEST

START_TEST(a_reader_must_be_there)
{
    ddp_weights_params_t params = DDP_WEIGHTS_PARAMS_INIT;
    ddp_weights_t       *w      = NULL;

    ddp_assert_fails(ddp_weights_open(data("plain.h5"), &params, &w), DDP_ERR_UNSUPPORTED,
                     "no program is named");
    params.reader = "./nowhere";
    ddp_assert_fails(ddp_weights_open(data("plain.h5"), &params, &w), DDP_ERR_SYSTEM, "'./nowhere': no such");
    params.reader = "/bin/true";
    ddp_assert_fails(ddp_weights_open(data("plain.h5"), &params, &w), DDP_ERR_FORMAT, "broke off");
    params.struct_size = 1;
    ddp_assert_fails(ddp_weights_open(data("plain.h5"), &params, &w), DDP_ERR_INVALID_ARG, "PARAMS_INIT");
}
END_TEST

/* A byte of a file changed: refused, or read. */
START_TEST(damaged_files_do_no_harm)
{
    static unsigned char bytes[8192];
    FILE                *file = fopen(data("plain.h5"), "rb");
    size_t               n;
    size_t               refused = 0;

    ck_assert_ptr_nonnull(file);
    n = fread(bytes, 1, sizeof(bytes), file);
    (void)fclose(file);
    for (size_t at = 0; at < n; at += 977) {
        ddp_weights_t *w = NULL;

        bytes[at] ^= 0x5A;
        io_test_write(top, "damaged", bytes, n);
        bytes[at] ^= 0x5A;
        refused += open_file("damaged", &w) != DDP_OK;
        ddp_weights_close(&w);
        if (at > 0) {
            io_test_write(top, "cut", bytes, at);
            refuse("cut", "cut");
        }
    }
    ck_assert_uint_gt(refused, 0);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("foreign");
    TCase *good  = tcase_create("good files");
    TCase *bad   = tcase_create("bad files");
    int    code;

    if (ddp_weights_reader(argc, argv, &code)) {
        return code;
    }
    tcase_add_checked_fixture(good, setup, teardown);
    tcase_add_test(good, contiguous_floats_are_read);
    tcase_add_test(good, chunks_and_gzip_are_read_in_any_order);
    tcase_add_test(good, weights_of_keras_are_read);
    tcase_add_test(good, a_damaged_checkpoint_is_read_only_on_demand);
    suite_add_tcase(suite, good);
    tcase_add_checked_fixture(bad, setup, teardown);
    tcase_add_test(bad, what_reaches_beyond_the_file_is_refused);
    tcase_add_test(bad, what_is_packed_has_limits);
    tcase_add_test(bad, a_reader_that_dies_is_told);
    tcase_add_test(bad, a_reader_that_hangs_is_ended);
    tcase_add_test(bad, a_reader_has_so_much_processor_time);
    tcase_add_test(bad, a_reader_can_write_no_byte);
    tcase_add_loop_test(bad, lies_of_a_reader_are_refused, 0, sizeof(list_lies) / sizeof(list_lies[0]));
    tcase_add_loop_test(bad, lies_of_a_sender_are_refused, 0, sizeof(send_lies) / sizeof(send_lies[0]));
    tcase_add_test(bad, a_sender_may_stay_when_all_is_sent);
    tcase_add_test(bad, a_reader_must_be_there);
    tcase_add_test(bad, damaged_files_do_no_harm);
    suite_add_tcase(suite, bad);
    return ddp_test_run(suite);
}
