#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/allocator.h"
#include "io/dataset.h"
#include "tests/io/io_test.h"

#define TRAIN_IMAGES "train-images-idx3-ubyte"
#define TRAIN_LABELS "train-labels-idx1-ubyte"
#define TEST_IMAGES  "t10k-images-idx3-ubyte"
#define TEST_LABELS  "t10k-labels-idx1-ubyte"
#define SAMPLES      5
#define HEIGHT       4
#define WIDTH        3
#define PIXELS       (HEIGHT * WIDTH)

static const uint32_t      train_dims[3]         = {SAMPLES, HEIGHT, WIDTH};
static const uint32_t      test_dims[3]          = {2, HEIGHT, WIDTH};
static const unsigned char train_labels[SAMPLES] = {2, 0, 1, 3, 0};
static const unsigned char test_labels[2]        = {1, 6};

static char           folder[IO_TEST_PATH];
static ddp_dataset_t *dataset;
static void          *memory;

/* A whole set of four files, uncompressed. */
static void setup(void)
{
    io_bytes_t bytes;

    io_test_make(folder);
    io_test_images(&bytes, 3, train_dims);
    io_test_write(folder, TRAIN_IMAGES, bytes.data, bytes.n);
    io_test_labels(&bytes, SAMPLES, train_labels);
    io_test_write(folder, TRAIN_LABELS, bytes.data, bytes.n);
    io_test_images(&bytes, 3, test_dims);
    io_test_write(folder, TEST_IMAGES, bytes.data, bytes.n);
    io_test_labels(&bytes, 2, test_labels);
    io_test_write(folder, TEST_LABELS, bytes.data, bytes.n);
    dataset = NULL;
    memory  = NULL;
}

static void drop(void)
{
    ddp_dataset_close(&dataset);
    ddp_allocator_private()->release(NULL, memory);
    memory = NULL;
}

static void teardown(void)
{
    drop();
    io_test_remove(folder);
}

static ddp_status_t open_kind(ddp_data_kind_t kind, ddp_split_t split, size_t samples)
{
    ddp_dataset_params_t params = DDP_DATASET_PARAMS_INIT;

    drop();
    params.kind    = kind;
    params.path    = folder;
    params.split   = split;
    params.samples = samples;
    return ddp_dataset_open(&params, &dataset);
}

static ddp_status_t open_train(void)
{
    return open_kind(DDP_DATA_IDX, DDP_SPLIT_TRAIN, 0);
}

static ddp_status_t load(void)
{
    ddp_status_t status =
        ddp_allocator_private()->acquire(NULL, "data set", ddp_dataset_info(dataset)->memory_bytes, &memory);

    return status == DDP_OK ? ddp_dataset_load(dataset, memory) : status;
}

/* Either opening or loading must refuse; the fault may show only where the data is read. */
static ddp_status_t open_and_load(void)
{
    ddp_status_t status = open_train();

    return status == DDP_OK ? load() : status;
}

/* Everything that the file of setup() holds comes back normalised. */
static void check_train_content(void)
{
    const size_t index[SAMPLES] = {3, 0, 4, 4, 1};
    float        images[SAMPLES * PIXELS];
    int32_t      labels[SAMPLES];
    double       mean     = 0.0;
    double       variance = 0.0;
    double       worst    = 0.0;
    double       got_mean;
    double       got_std;

    for (size_t i = 0; i < SAMPLES * PIXELS; i++) {
        mean += (double)(unsigned char)(7 * i + 3) / 255.0 / (SAMPLES * PIXELS);
    }
    for (size_t i = 0; i < SAMPLES * PIXELS; i++) {
        variance += pow((double)(unsigned char)(7 * i + 3) / 255.0 - mean, 2.0) / (SAMPLES * PIXELS);
    }
    ddp_dataset_moments(dataset, 0, &got_mean, &got_std);
    ck_assert_double_eq_tol(got_mean, mean, 1e-14);
    ck_assert_double_eq_tol(got_std, sqrt(variance), 1e-14);
    ddp_dataset_fetch(dataset, index, SAMPLES, images, labels);
    for (size_t i = 0; i < SAMPLES; i++) {
        ck_assert_int_eq(labels[i], train_labels[index[i]]);
        for (size_t p = 0; p < PIXELS; p++) {
            const double pixel = (double)(unsigned char)(7 * (index[i] * PIXELS + p) + 3) / 255.0;

            worst = fmax(worst, fabs(images[i * PIXELS + p] - (pixel - mean) / sqrt(variance)));
        }
    }
    ck_assert_double_lt(worst, 1e-6); /* three float32 roundings of values below 4 */
}

START_TEST(an_uncompressed_set_comes_back_normalised)
{
    const ddp_dataset_info_t *info;

    ddp_assert_ok(open_train());
    info = ddp_dataset_info(dataset);
    ck_assert_uint_eq(info->samples, SAMPLES);
    ck_assert_uint_eq(info->height, HEIGHT);
    ck_assert_uint_eq(info->width, WIDTH);
    ck_assert_uint_eq(info->channels, 1);
    ck_assert_ptr_nonnull(strstr(info->source, folder));
    ck_assert_ptr_nonnull(strstr(info->source, "(train)"));
    ddp_assert_ok(load());
    check_train_content();
}
END_TEST

START_TEST(a_gzip_set_of_two_members_comes_back_the_same)
{
    io_bytes_t bytes;
    io_bytes_t first;
    io_bytes_t second;
    io_bytes_t packed = {.n = 0};

    io_test_images(&bytes, 3, train_dims);
    first   = bytes;
    second  = bytes;
    first.n = 21; /* in the middle of the first sample */
    second.n -= 21;
    memmove(second.data, second.data + 21, second.n);
    io_test_gzip(&first, &packed);
    io_test_gzip(&second, &packed);
    io_test_delete(folder, TRAIN_IMAGES);
    io_test_write(folder, TRAIN_IMAGES ".gz", packed.data, packed.n);
    packed.n = 0;
    io_test_labels(&bytes, SAMPLES, train_labels);
    io_test_gzip(&bytes, &packed);
    io_test_delete(folder, TRAIN_LABELS);
    io_test_write(folder, TRAIN_LABELS ".gz", packed.data, packed.n);
    ddp_assert_ok(open_and_load());
    check_train_content();
}
END_TEST

START_TEST(names_with_a_dot_and_int32_labels_are_accepted)
{
    const uint32_t n = SAMPLES;
    io_bytes_t     bytes;

    io_test_images(&bytes, 3, train_dims);
    io_test_delete(folder, TRAIN_IMAGES);
    io_test_write(folder, "train-images.idx3-ubyte", bytes.data, bytes.n);
    io_test_header(&bytes, 0x0c, 1, &n);
    for (size_t i = 0; i < SAMPLES; i++) {
        memset(bytes.data + bytes.n, 0, 4);
        bytes.data[bytes.n + 3] = train_labels[i];
        bytes.n += 4;
    }
    io_test_delete(folder, TRAIN_LABELS);
    io_test_write(folder, "train-labels.idx1-ubyte", bytes.data, bytes.n);
    ddp_assert_ok(open_and_load());
    check_train_content();
}
END_TEST

START_TEST(each_channel_of_colour_images_has_its_own_moments)
{
    const uint32_t dims[4] = {SAMPLES, 1, 2, 3};
    const size_t   index   = 1;
    io_bytes_t     bytes;
    float          image[6];
    int32_t        label;
    double         mean;
    double         std;

    io_test_images(&bytes, 4, dims);
    for (size_t i = 0; i < 2 * SAMPLES; i++) { /* red: 0 and 255 in turn; green: 51 always; blue: as made */
        bytes.data[20 + 3 * i]     = i % 2 == 0 ? 0 : 255;
        bytes.data[20 + 3 * i + 1] = 51;
    }
    io_test_write(folder, TRAIN_IMAGES, bytes.data, bytes.n);
    ddp_assert_ok(open_and_load());
    ck_assert_uint_eq(ddp_dataset_info(dataset)->channels, 3);
    ddp_dataset_moments(dataset, 0, &mean, &std);
    ck_assert_double_eq(mean, 0.5);
    ck_assert_double_eq(std, 0.5);
    ddp_dataset_moments(dataset, 1, &mean, &std);
    ck_assert_double_eq_tol(mean, 0.2, 1e-16);
    ck_assert_double_eq(std, 0.0);
    ddp_dataset_fetch(dataset, &index, 1, image, &label);
    ck_assert_float_eq_tol(image[0], -1.0F, 1e-6F);
    ck_assert_float_eq_tol(image[3], 1.0F, 1e-6F);
    ck_assert_float_eq_tol(image[1], 0.0F, 1e-6F); /* a deviation of 0 counts as 1: finite */
    ck_assert_float_eq_tol(image[4], 0.0F, 1e-6F);
}
END_TEST

START_TEST(classes_of_own_files_are_counted_over_both_splits)
{
    ddp_assert_ok(open_train());
    ck_assert_uint_eq(ddp_dataset_info(dataset)->classes, 7);
    ddp_assert_ok(open_kind(DDP_DATA_IDX, DDP_SPLIT_TEST, 0));
    ck_assert_uint_eq(ddp_dataset_info(dataset)->classes, 7);
    io_test_delete(folder, TEST_LABELS);
    ddp_assert_ok(open_train());
    ck_assert_uint_eq(ddp_dataset_info(dataset)->classes, 4);
    ddp_assert_ok(open_kind(DDP_DATA_FASHION_MNIST, DDP_SPLIT_TRAIN, 0));
    ck_assert_uint_eq(ddp_dataset_info(dataset)->classes, 10);
}
END_TEST

START_TEST(only_the_first_samples_are_used_if_asked)
{
    const size_t index = 2;
    float        image[PIXELS];
    int32_t      label;

    ddp_assert_ok(open_kind(DDP_DATA_IDX, DDP_SPLIT_TRAIN, 3));
    ck_assert_uint_eq(ddp_dataset_info(dataset)->samples, 3);
    ddp_assert_ok(load());
    ddp_dataset_fetch(dataset, &index, 1, image, &label);
    ck_assert_int_eq(label, train_labels[2]);
    ddp_assert_fails(open_kind(DDP_DATA_IDX, DDP_SPLIT_TRAIN, 6), DDP_ERR_CONFIG,
                     "6 samples asked for, 5 there");
}
END_TEST

START_TEST(other_processes_attach_to_the_memory_that_one_loaded)
{
    ddp_dataset_params_t params = DDP_DATASET_PARAMS_INIT;
    ddp_dataset_t       *other  = NULL;
    const size_t         index  = 3;
    float                image[2][PIXELS];
    int32_t              label[2];
    const double         mean = 0.25;
    const double         std  = 0.5;

    ddp_assert_ok(open_and_load());
    params.kind = DDP_DATA_IDX;
    params.path = folder;
    ddp_assert_ok(ddp_dataset_open(&params, &other));
    ddp_assert_ok(ddp_dataset_attach(other, memory));
    ddp_dataset_fetch(dataset, &index, 1, image[0], &label[0]);
    ddp_dataset_fetch(other, &index, 1, image[1], &label[1]);
    ck_assert_mem_eq(image[0], image[1], sizeof(image[0]));
    ck_assert_int_eq(label[0], label[1]);
    ddp_assert_ok(ddp_dataset_set_moments(other, &mean, &std));
    ddp_dataset_fetch(other, &index, 1, image[1], &label[1]);
    ck_assert_float_eq_tol(image[1][0], (float)((255 / 255.0 - 0.25) / 0.5), 1e-6F); /* 7 * 36 + 3 = 255 */
    ddp_dataset_close(&other);
}
END_TEST

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

    ddp_assert_ok(open_and_load());
    ddp_assert_fails(ddp_dataset_set_moments(dataset, &nan, &mean), DDP_ERR_INVALID_ARG, "channel 0");
    ddp_assert_fails(ddp_dataset_set_moments(dataset, &mean, &less), DDP_ERR_INVALID_ARG, "-1");
    check_train_content();
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

/* Facts published with the data set: counts, 6000 of each class, mean 0.2860, deviation 0.3530; and the first
 * ten labels of the training set. */
START_TEST(debians_fashion_mnist_is_what_was_published)
{
    static const int32_t first_labels[10] = {9, 0, 0, 3, 0, 2, 7, 2, 5, 5};
    ddp_dataset_params_t params           = DDP_DATASET_PARAMS_INIT;
    size_t               counts[10]       = {0};
    float                image[28 * 28];
    double               mean;
    double               std;

    if (!ddp_dataset_fashion_mnist_exists(NULL)) {
        return; /* not installed; the launcher's acceptance test requires it */
    }
    ddp_assert_ok(ddp_dataset_open(&params, &dataset));
    ck_assert_uint_eq(ddp_dataset_info(dataset)->samples, 60000);
    ck_assert_uint_eq(ddp_dataset_info(dataset)->height, 28);
    ddp_assert_ok(load());
    ddp_dataset_moments(dataset, 0, &mean, &std);
    ck_assert_double_eq_tol(mean, 0.2860, 5e-5);
    ck_assert_double_eq_tol(std, 0.3530, 5e-5);
    for (size_t i = 0; i < 60000; i++) {
        int32_t label;

        ddp_dataset_fetch(dataset, &i, 1, image, &label);
        counts[label]++;
        if (i < 10) {
            ck_assert_int_eq(label, first_labels[i]);
        }
    }
    for (size_t c = 0; c < 10; c++) {
        ck_assert_uint_eq(counts[c], 6000);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dataset");
    TCase *whole = tcase_create("whole files");
    TCase *fault = tcase_create("faults");

    tcase_add_checked_fixture(whole, setup, teardown);
    tcase_add_test(whole, an_uncompressed_set_comes_back_normalised);
    tcase_add_test(whole, a_gzip_set_of_two_members_comes_back_the_same);
    tcase_add_test(whole, names_with_a_dot_and_int32_labels_are_accepted);
    tcase_add_test(whole, each_channel_of_colour_images_has_its_own_moments);
    tcase_add_test(whole, classes_of_own_files_are_counted_over_both_splits);
    tcase_add_test(whole, only_the_first_samples_are_used_if_asked);
    tcase_add_test(whole, other_processes_attach_to_the_memory_that_one_loaded);
    tcase_add_test(whole, debians_fashion_mnist_is_what_was_published);
    suite_add_tcase(suite, whole);
    tcase_add_checked_fixture(fault, setup, teardown);
    tcase_add_test(fault, memory_of_other_data_or_of_none_is_refused);
    tcase_add_test(fault, moments_that_cannot_normalise_are_refused);
    tcase_add_test(fault, wrong_headers_are_named_with_offset_expected_and_found);
    tcase_add_test(fault, absurd_dimensions_are_refused_before_memory_is_taken);
    tcase_add_test(fault, every_truncation_of_an_uncompressed_file_is_refused);
    tcase_add_test(fault, every_truncation_of_a_gzip_file_is_refused);
    tcase_add_test(fault, every_flipped_byte_of_a_gzip_file_is_refused);
    tcase_add_test(fault, bytes_left_over_in_or_behind_gzip_data_are_refused);
    tcase_add_test(fault, counts_of_images_and_labels_must_agree);
    tcase_add_test(fault, labels_out_of_range_are_named_with_their_index);
    tcase_add_test(fault, a_file_that_changes_between_open_and_load_is_refused);
    tcase_add_test(fault, missing_files_and_folders_are_named);
    suite_add_tcase(suite, fault);
    return ddp_test_run(suite);
}
