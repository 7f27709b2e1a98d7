#include <stdint.h>

#include <hdf5.h>
#include <pthread.h>

#include "io/tokens.h"
#include "tests/io/io_test.h"

#define CONTEXT 4
#define VOCAB   1000

static char                folder[IO_TEST_PATH];
static char                path[2 * IO_TEST_PATH];
static ddp_tokens_t       *tokens;
static ddp_tokens_params_t params;

static void setup(void)
{
    io_test_make(folder);
    snprintf(path, sizeof(path), "%s/a.h5", folder);
    ck_assert_int_ge(H5Eset_auto2(H5E_DEFAULT, NULL, NULL), 0);
    tokens         = NULL;
    params         = (ddp_tokens_params_t)DDP_TOKENS_PARAMS_INIT;
    params.format  = DDP_TOKENS_HDF5;
    params.path    = path;
    params.context = CONTEXT;
    params.vocab   = VOCAB;
}

static void teardown(void)
{
    ddp_tokens_close(&tokens);
    io_test_remove(folder);
}

/* A file with one data set; `chunk` NULL: contiguous. */
static void make(const char *name, hid_t type, int ndim, const hsize_t *dims, const hsize_t *chunk,
                 const void *data)
{
    hid_t file   = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t space  = H5Screate_simple(ndim, dims, NULL);
    hid_t layout = H5Pcreate(H5P_DATASET_CREATE);
    hid_t id;

    if (chunk != NULL) {
        ck_assert_int_ge(H5Pset_chunk(layout, ndim, chunk), 0);
        ck_assert_int_ge(H5Pset_deflate(layout, 1), 0);
    }
    id = H5Dcreate2(file, name, type, space, H5P_DEFAULT, layout, H5P_DEFAULT);
    ck_assert_int_ge(id, 0);
    if (data != NULL) {
        ck_assert_int_ge(H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data), 0);
    }
    H5Dclose(id);
    H5Pclose(layout);
    H5Sclose(space);
    ck_assert_int_ge(H5Fclose(file), 0);
}

/* Sequence k of the array holds the tokens from `first` on, each one more than the last. */
static void assert_sequence(size_t k, int32_t first)
{
    int32_t inputs[CONTEXT + 1], targets[CONTEXT + 1];

    inputs[CONTEXT] = targets[CONTEXT] = -7;
    ddp_assert_ok(ddp_tokens_fetch(tokens, &k, 1, inputs, targets));
    for (int32_t i = 0; i < CONTEXT; i++) {
        ck_assert_int_eq(inputs[i], first + i);
        ck_assert_int_eq(targets[i], first + i + 1);
    }
    ck_assert(inputs[CONTEXT] == -7 && targets[CONTEXT] == -7);
}

START_TEST(an_array_of_any_integers_is_a_shard)
{
    const hsize_t dims = 22, chunk = 5;
    int64_t       wide[22];
    uint16_t      narrow[22];
    uint64_t      digest = 0;

    for (int i = 0; i < 22; i++) {
        wide[i]   = 900 + i;
        narrow[i] = (uint16_t)(900 + i);
    }
    for (int round = 0; round < 3; round++) {
        if (round == 0) {
            make("tokens", H5T_NATIVE_UINT16, 1, &dims, NULL, narrow);
        } else {
            make(round == 1 ? "tokens" : "train", H5T_NATIVE_INT64, 1, &dims, &chunk, wide);
        }
        params.name = round == 2 ? "train" : NULL;
        ddp_assert_ok(ddp_tokens_open(&params, &tokens));
        ck_assert_uint_eq(ddp_tokens_info(tokens)->sequences, 5); /* (22 - 1) / 4 */
        ck_assert_uint_eq(ddp_tokens_info(tokens)->tokens, 22);
        ck_assert(round == 0 || ddp_tokens_info(tokens)->digest == digest);
        digest = ddp_tokens_info(tokens)->digest;
        for (size_t k = 5; k-- > 0;) {
            assert_sequence(k, 900 + (int32_t)k * CONTEXT);
        }
        ddp_tokens_close(&tokens);
    }
    wide[21]++;
    make("tokens", H5T_NATIVE_INT64, 1, &dims, &chunk, wide);
    params.name = NULL;
    ddp_assert_ok(ddp_tokens_open(&params, &tokens));
    ck_assert(ddp_tokens_info(tokens)->digest != digest);
}
END_TEST

START_TEST(no_sequence_goes_from_row_to_row)
{
    const hsize_t dims[2] = {3, 11}, chunk[2] = {2, 4};
    int32_t       rows[3][11];

    for (int row = 0; row < 3; row++) {
        for (int i = 0; i < 11; i++) {
            rows[row][i] = 100 * row + i;
        }
    }
    make("tokens", H5T_NATIVE_INT32, 2, dims, chunk, rows);
    ddp_assert_ok(ddp_tokens_open(&params, &tokens));
    ck_assert_uint_eq(ddp_tokens_info(tokens)->sequences, 6); /* 3 rows of (11 - 1) / 4 */
    ck_assert_uint_eq(ddp_tokens_info(tokens)->tokens, 33);
    for (size_t k = 0; k < 6; k++) {
        assert_sequence(k, 100 * (int32_t)(k / 2) + (int32_t)(k % 2) * CONTEXT);
    }
    ddp_tokens_close(&tokens);
    params.split        = DDP_SPLIT_TEST;
    params.val_fraction = 0.3;
    ddp_assert_ok(ddp_tokens_open(&params, &tokens));
    ck_assert_uint_eq(ddp_tokens_info(tokens)->sequences, 2);
    assert_sequence(0, 200);
    ddp_tokens_close(&tokens);
    params.val_fraction = 0.0;
    params.context      = 11;
    ddp_assert_fails(ddp_tokens_open(&params, &tokens), DDP_ERR_CONFIG,
                     "context 11 is longer than the data: expected 12 tokens or more, found 11 in a row");
}
END_TEST

START_TEST(tokens_beyond_the_vocabulary_are_named)
{
    static const struct {
        int64_t     token;
        const char *line;
    } cases[] = {{1000, "row 1, index 2: expected tokens below the vocabulary of 1000, found 1000"},
                 {-1, "found -1"},
                 {(int64_t)1 << 32, "found 2147483647 or more"},
                 {-((int64_t)1 << 40), "found -2147483648 or less"}};
    const hsize_t dims[2]  = {2, 5};
    const size_t  sequence = 1;
    int32_t       inputs[CONTEXT], targets[CONTEXT];

    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        int64_t rows[2][5] = {{0}};

        rows[1][2] = cases[c].token;
        make("tokens", H5T_NATIVE_INT64, 2, dims, NULL, rows);
        ddp_assert_ok(ddp_tokens_open(&params, &tokens));
        ddp_assert_fails(ddp_tokens_fetch(tokens, &sequence, 1, inputs, targets), DDP_ERR_FORMAT,
                         cases[c].line);
        ddp_tokens_close(&tokens);
    }
}
END_TEST

START_TEST(files_and_arrays_that_will_not_do_are_refused)
{
    const hsize_t dims[3]  = {3, 4, 5};
    const hsize_t empty[2] = {2, 0};

    ddp_assert_fails(ddp_tokens_open(&params, &tokens), DDP_ERR_IO, "no such file");
    io_test_write(folder, "a.h5", "no HDF5", 7);
    ddp_assert_fails(ddp_tokens_open(&params, &tokens), DDP_ERR_FORMAT, "not a readable HDF5 file");
    make("tokens", H5T_NATIVE_INT32, 3, dims, NULL, NULL);
    ddp_assert_fails(ddp_tokens_open(&params, &tokens), DDP_ERR_FORMAT,
                     "'tokens': expected 1 to 2 dimensions, found 3");
    make("tokens", H5T_NATIVE_FLOAT, 1, dims, NULL, NULL);
    ddp_assert_fails(ddp_tokens_open(&params, &tokens), DDP_ERR_FORMAT, "expected tokens of an integer type");
    make("tokens", H5T_NATIVE_INT32, 2, empty, NULL, NULL);
    ddp_assert_fails(ddp_tokens_open(&params, &tokens), DDP_ERR_FORMAT, "in dimension 1, found 0");
    params.name = "none";
    ddp_assert_fails(ddp_tokens_open(&params, &tokens), DDP_ERR_FORMAT,
                     "no data set 'none' (data.tokens names it)");
}
END_TEST

START_TEST(a_file_cut_short_is_refused_or_named_when_read)
{
    const hsize_t      dims = 4096;
    static int32_t     zeros[4096];
    static char        bytes[65536];
    const size_t       last = 1022;
    int32_t            inputs[CONTEXT], targets[CONTEXT];
    FILE              *file;
    size_t             n;
    const ddp_status_t expected = DDP_ERR_FORMAT;

    make("tokens", H5T_NATIVE_INT32, 1, &dims, NULL, zeros);
    file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    n = fread(bytes, 1, sizeof(bytes), file);
    (void)fclose(file);
    io_test_write(folder, "a.h5", bytes, n - 100);
    if (ddp_tokens_open(&params, &tokens) == DDP_OK) {
        ddp_assert_fails(ddp_tokens_fetch(tokens, &last, 1, inputs, targets), expected, "data set 'tokens'");
    } else {
        ck_assert_ptr_nonnull(strstr(ddp_error_line(), "a.h5'"));
    }
}
END_TEST

static void *fetch_many(void *ctx)
{
    ddp_tokens_t *mine  = ctx;
    int           wrong = 0;

    for (size_t round = 0; round < 200; round++) {
        const size_t k = round % 5;
        int32_t      inputs[CONTEXT], targets[CONTEXT];

        wrong += ddp_tokens_fetch(mine, &k, 1, inputs, targets) != DDP_OK ||
                 inputs[0] != (int32_t)k * CONTEXT || targets[CONTEXT - 1] != (int32_t)(k + 1) * CONTEXT;
    }
    return wrong == 0 ? NULL : ctx;
}

START_TEST(threads_may_fetch_at_the_same_time)
{
    const hsize_t dims = 22, chunk = 5;
    int32_t       data[22];
    pthread_t     threads[3];
    void         *failed = NULL;

    for (int i = 0; i < 22; i++) {
        data[i] = i;
    }
    make("tokens", H5T_NATIVE_INT32, 1, &dims, &chunk, data);
    ddp_assert_ok(ddp_tokens_open(&params, &tokens));
    for (int t = 0; t < 3; t++) {
        ck_assert_int_eq(pthread_create(&threads[t], NULL, fetch_many, tokens), 0);
    }
    for (int t = 0; t < 3; t++) {
        ck_assert_int_eq(pthread_join(threads[t], &failed), 0);
        ck_assert_ptr_null(failed);
    }
}
END_TEST

START_TEST(an_hdf5_file_is_found_by_its_first_bytes)
{
    const hsize_t       dims    = 9;
    const int32_t       data[9] = {0};
    ddp_tokens_format_t format  = DDP_TOKENS_TEXT;

    snprintf(path, sizeof(path), "%s/a.bin", folder);
    make("tokens", H5T_NATIVE_INT32, 1, &dims, NULL, data);
    ddp_assert_ok(ddp_tokens_detect(path, &format));
    ck_assert_int_eq(format, DDP_TOKENS_HDF5);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tokens_h5");
    TCase *tcase = tcase_create("all");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, an_array_of_any_integers_is_a_shard);
    tcase_add_test(tcase, no_sequence_goes_from_row_to_row);
    tcase_add_test(tcase, tokens_beyond_the_vocabulary_are_named);
    tcase_add_test(tcase, files_and_arrays_that_will_not_do_are_refused);
    tcase_add_test(tcase, a_file_cut_short_is_refused_or_named_when_read);
    tcase_add_test(tcase, threads_may_fetch_at_the_same_time);
    tcase_add_test(tcase, an_hdf5_file_is_found_by_its_first_bytes);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
