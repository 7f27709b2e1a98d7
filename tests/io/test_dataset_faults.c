#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <sys/stat.h>

#include "tests/io/dataset_fixture.h"

START_TEST(memory_of_other_data_or_of_none_is_refused)
{
    ddp_dataset_params_t params = DDP_DATASET_PARAMS_INIT;
    ddp_dataset_t       *other  = NULL;
    static uint64_t      zeros[2048];

    ddp_assert_ok(open_and_load());
    params.kind  = DDP_DATA_IDX;
    params.path  = folder;
    params.split = DDP_SPLIT_TEST;
    ddp_assert_ok(ddp_dataset_open(&params, &other));
    ddp_assert_fails(ddp_dataset_attach(other, memory), DDP_ERR_STATE, "other data");
    ddp_assert_fails(ddp_dataset_attach(other, zeros), DDP_ERR_STATE, "no loaded data set");
    ddp_assert_fails(ddp_dataset_attach(other, NULL), DDP_ERR_STATE, "no loaded data set");
    ddp_assert_fails(ddp_dataset_load(other, (char *)memory + 4), DDP_ERR_INVALID_ARG, "aligned");
    ddp_dataset_close(&other);
}
END_TEST

START_TEST(moments_that_cannot_normalise_are_refused)
{
    const double mean = 0.5;
    const double nan  = NAN;
    const double less = -1.0;
    double       kept;
    double       std;

    ddp_assert_ok(open_and_load());
    ddp_assert_fails(ddp_dataset_set_moments(dataset, &nan, &mean), DDP_ERR_INVALID_ARG, "channel 0");
    ddp_assert_fails(ddp_dataset_set_moments(dataset, &mean, &less), DDP_ERR_INVALID_ARG, "-1");
    ddp_dataset_moments(dataset, 0, &kept, &std);
    ck_assert_double_gt(std, 0.0); /* its own still */
}
END_TEST

START_TEST(wrong_headers_are_named_with_offset_expected_and_found)
{
    static const struct {
        const char *name;
        size_t      offset;
        int         value;
        const char *line;
    } faults[] = {
        {TRAIN_IMAGES, 0, 0x1a, "offset 0: expected 0x0000, with which IDX files begin, found 0x1a00"},
        {TRAIN_IMAGES, 2, 0x0d, "offset 2: expected type 0x08 (uint8) for images, found 0x0d"},
        {TRAIN_IMAGES, 3, 1, "offset 3: expected 3 or 4 dimensions of images, found 1"},
        {TRAIN_IMAGES, 7, 0, "offset 4: expected 1 or more samples, found 0 (zero samples)"},
        {TRAIN_IMAGES, 11, 0, "offset 8: expected 1 or more height, found 0"},
        {TRAIN_IMAGES, 7, 6, "truncated: expected 88 bytes, found 76"},
        {TRAIN_IMAGES, 7, 4, "offset 64: expected the end of the file, found 12 bytes left over"},
        {TRAIN_LABELS, 2, 0x0b,
         "offset 2: expected type 0x08 (uint8) or 0x0c (int32) for labels, found 0x0b"},
        {TRAIN_LABELS, 3, 3, "offset 3: expected 1 dimension of labels, found 3"},
        {TRAIN_LABELS, 7, 4, "offset 12: expected the end of the file, found 1 bytes left over"},
    };

    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        io_bytes_t images;
        io_bytes_t labels;

        io_test_images(&images, 3, train_dims);
        io_test_labels(&labels, SAMPLES, train_labels);
        (faults[i].name[6] == 'i' ? &images : &labels)->data[faults[i].offset] =
            (unsigned char)faults[i].value;
        io_test_write(folder, TRAIN_IMAGES, images.data, images.n);
        io_test_write(folder, TRAIN_LABELS, labels.data, labels.n);
        ddp_assert_fails(open_train(), DDP_ERR_FORMAT, faults[i].line);
        ck_assert_ptr_nonnull(strstr(ddp_error_line(), faults[i].name));
        ck_assert_ptr_null(dataset);
    }
}
END_TEST

START_TEST(absurd_dimensions_are_refused_before_memory_is_taken)
{
    const uint32_t huge[4]     = {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};
    const uint32_t large[3]    = {60000, 28, 28};
    const uint32_t channels[4] = {1, 1, 1, 65};
    io_bytes_t     bytes;
    io_bytes_t     packed = {.n = 0};

    io_test_header(&bytes, 0x08, 4, huge);
    io_test_write(folder, TRAIN_IMAGES, bytes.data, bytes.n);
    ddp_assert_fails(open_train(), DDP_ERR_FORMAT,
                     "expected dimensions that fit in memory, found 4294967295");
    io_test_images(&bytes, 4, channels);
    io_test_write(folder, TRAIN_IMAGES, bytes.data, bytes.n);
    ddp_assert_fails(open_train(), DDP_ERR_FORMAT, "offset 16: expected at most 64 channels");
    io_test_header(&bytes, 0x08, 3, large);
    io_test_gzip(&bytes, &packed);
    io_test_write(folder, TRAIN_IMAGES, packed.data, packed.n);
    ddp_assert_fails(open_train(), DDP_ERR_FORMAT, "47040016 bytes expected, which a gzip file of");
}
END_TEST

START_TEST(every_truncation_of_an_uncompressed_file_is_refused)
{
    io_bytes_t bytes;

    io_test_images(&bytes, 3, train_dims);
    for (size_t n = 0; n < bytes.n; n++) {
        io_test_write(folder, TRAIN_IMAGES, bytes.data, n);
        ddp_assert_fails(open_train(), DDP_ERR_FORMAT, "truncated: expected");
    }
    io_test_write(folder, TRAIN_IMAGES, bytes.data, bytes.n);
    ddp_assert_ok(open_and_load());
}
END_TEST

/* The gzip set of the next tests; images only, incompressible enough to have a body. */
static void make_gzip(io_bytes_t *packed)
{
    io_bytes_t bytes;

    io_test_images(&bytes, 3, train_dims);
    packed->n = 0;
    io_test_gzip(&bytes, packed);
    io_test_delete(folder, TRAIN_IMAGES);
    io_test_write(folder, TRAIN_IMAGES ".gz", packed->data, packed->n);
}

START_TEST(every_truncation_of_a_gzip_file_is_refused)
{
    io_bytes_t packed;

    make_gzip(&packed);
    for (size_t n = 0; n < packed.n; n++) {
        io_test_write(folder, TRAIN_IMAGES ".gz", packed.data, n);
        ddp_assert_fails(open_and_load(), DDP_ERR_FORMAT, n == 1 ? "expected" : "truncated");
        ck_assert_ptr_nonnull(strstr(ddp_error_line(), TRAIN_IMAGES ".gz"));
    }
}
END_TEST

START_TEST(every_flipped_byte_of_a_gzip_file_is_refused)
{
    io_bytes_t packed;

    make_gzip(&packed);
    for (size_t i = 0; i < packed.n; i++) {
        if (i >= 4 && i < 10) {
            continue; /* time and system of the header: nobody's data */
        }
        packed.data[i] ^= 0xff;
        io_test_write(folder, TRAIN_IMAGES ".gz", packed.data, packed.n);
        ck_assert_msg(open_and_load() == DDP_ERR_FORMAT, "byte %zu: '%s'", i, ddp_error_line());
        packed.data[i] ^= 0xff;
    }
    packed.data[packed.n - 5] ^= 1; /* of the checksum */
    io_test_write(folder, TRAIN_IMAGES ".gz", packed.data, packed.n);
    ddp_assert_fails(open_and_load(), DDP_ERR_FORMAT, "damaged gzip data: incorrect data check");
}
END_TEST

START_TEST(bytes_left_over_in_or_behind_gzip_data_are_refused)
{
    io_bytes_t bytes;
    io_bytes_t packed;

    make_gzip(&packed);
    packed.data[packed.n] = 'x';
    io_test_write(folder, TRAIN_IMAGES ".gz", packed.data, packed.n + 1);
    ddp_assert_fails(open_and_load(), DDP_ERR_FORMAT, "found 1 bytes left over behind the gzip data");
    io_test_images(&bytes, 3, train_dims);
    bytes.n++;
    packed.n = 0;
    io_test_gzip(&bytes, &packed);
    io_test_write(folder, TRAIN_IMAGES ".gz", packed.data, packed.n);
    ddp_assert_fails(open_and_load(), DDP_ERR_FORMAT,
                     "decoded offset 76: expected the end of the data, found bytes left over");
}
END_TEST

START_TEST(counts_of_images_and_labels_must_agree)
{
    io_bytes_t bytes;

    io_test_labels(&bytes, 4, train_labels);
    io_test_write(folder, TRAIN_LABELS, bytes.data, bytes.n);
    ddp_assert_fails(open_train(), DDP_ERR_FORMAT, "expected 5 labels, as many as there are images, found 4");
}
END_TEST

START_TEST(labels_out_of_range_are_named_with_their_index)
{
    const unsigned char labels[SAMPLES] = {0, 9, 2, 10, 11};
    const uint32_t      n               = SAMPLES;
    io_bytes_t          bytes;

    io_test_labels(&bytes, SAMPLES, labels);
    io_test_write(folder, TRAIN_LABELS, bytes.data, bytes.n);
    ddp_assert_ok(open_kind(DDP_DATA_FASHION_MNIST, DDP_SPLIT_TRAIN, 0));
    ddp_assert_fails(load(), DDP_ERR_FORMAT, "offset 11: expected labels 0 .. 9, found 10 at index 3");
    io_test_header(&bytes, 0x0c, 1, &n);
    memset(bytes.data + bytes.n, 0, 20);
    bytes.data[bytes.n + 8] = 0xff; /* -16777216 */
    bytes.n += 20;
    io_test_write(folder, TRAIN_LABELS, bytes.data, bytes.n);
    ddp_assert_fails(open_train(), DDP_ERR_FORMAT,
                     "offset 16: expected labels 0 .. 65535, found -16777216 at index 2");
}
END_TEST

START_TEST(a_file_that_changes_between_open_and_load_is_refused)
{
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    char                  path[2 * IO_TEST_PATH];

    ddp_assert_ok(open_train());
    snprintf(path, sizeof(path), "%s/%s", folder, TRAIN_IMAGES);
    ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
    ddp_assert_fails(load(), DDP_ERR_FORMAT, "changed since it was opened");
}
END_TEST

START_TEST(missing_files_and_folders_are_named)
{
    ddp_dataset_params_t params = DDP_DATASET_PARAMS_INIT;
    char                 path[2 * IO_TEST_PATH];

    io_test_delete(folder, TRAIN_LABELS);
    ddp_assert_fails(open_train(), DDP_ERR_IO,
                     "no file train-labels-idx1-ubyte or train-labels-idx1-ubyte.gz");
    ck_assert_int_eq(ddp_dataset_fashion_mnist_exists(folder), 0);
    snprintf(path, sizeof(path), "%s/%s", folder, TRAIN_LABELS);
    ck_assert_int_eq(mkdir(path, 0777), 0);
    ddp_assert_fails(open_train(), DDP_ERR_IO, "a folder, not a regular file");
    params.kind = DDP_DATA_IDX;
    ddp_assert_fails(ddp_dataset_open(&params, &dataset), DDP_ERR_CONFIG, "data.path is missing");
    params.path = "/nowhere/at/all";
    ddp_assert_fails(ddp_dataset_open(&params, &dataset), DDP_ERR_IO,
                     "'/nowhere/at/all': no such file or directory");
    snprintf(path, sizeof(path), "%s/%s", folder, TRAIN_IMAGES);
    params.path = path;
    ddp_assert_fails(ddp_dataset_open(&params, &dataset), DDP_ERR_IO, "not a folder");
    params.kind = (ddp_data_kind_t)77;
    ddp_assert_fails(ddp_dataset_open(&params, &dataset), DDP_ERR_INVALID_ARG, "kind 77");
    params.struct_size = 1;
    ddp_assert_fails(ddp_dataset_open(&params, &dataset), DDP_ERR_INVALID_ARG, "DDP_DATASET_PARAMS_INIT");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dataset_faults");
    TCase *tcase = tcase_create("all");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, memory_of_other_data_or_of_none_is_refused);
    tcase_add_test(tcase, moments_that_cannot_normalise_are_refused);
    tcase_add_test(tcase, wrong_headers_are_named_with_offset_expected_and_found);
    tcase_add_test(tcase, absurd_dimensions_are_refused_before_memory_is_taken);
    tcase_add_test(tcase, every_truncation_of_an_uncompressed_file_is_refused);
    tcase_add_test(tcase, every_truncation_of_a_gzip_file_is_refused);
    tcase_add_test(tcase, every_flipped_byte_of_a_gzip_file_is_refused);
    tcase_add_test(tcase, bytes_left_over_in_or_behind_gzip_data_are_refused);
    tcase_add_test(tcase, counts_of_images_and_labels_must_agree);
    tcase_add_test(tcase, labels_out_of_range_are_named_with_their_index);
    tcase_add_test(tcase, a_file_that_changes_between_open_and_load_is_refused);
    tcase_add_test(tcase, missing_files_and_folders_are_named);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
