#include <math.h>
#include <stdint.h>

#include <hdf5.h>

#include "base/allocator.h"
#include "io/dataset.h"
#include "tests/io/io_test.h"

#define SAMPLES  11
#define HEIGHT   5
#define WIDTH    3
#define CHANNELS 2
#define PIXELS   (HEIGHT * WIDTH * CHANNELS)

static char           folder[IO_TEST_PATH];
static char           path[2 * IO_TEST_PATH];
static hid_t          file;
static ddp_dataset_t *dataset;
static void          *memory;

static void begin(void)
{
    file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert_int_ge(file, 0);
}

static void setup(void)
{
    io_test_make(folder);
    snprintf(path, sizeof(path), "%s/set.h5", folder);
    ck_assert_int_ge(H5Eset_auto2(H5E_DEFAULT, NULL, NULL), 0);
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

/* One data set of the file; `chunk` rows to a chunk, 0: contiguous. `type` is that of the data and the file.
 */
static void put(const char *name, hid_t type, int ndim, const hsize_t *dims, hsize_t chunk, const void *data)
{
    hid_t   space  = H5Screate_simple(ndim, dims, NULL);
    hid_t   layout = H5Pcreate(H5P_DATASET_CREATE);
    hid_t   id;
    hsize_t chunks[4] = {chunk, 2, 2, 1};

    if (chunk > 0) {
        ck_assert_int_ge(H5Pset_chunk(layout, ndim, chunks), 0);
    }
    id = H5Dcreate2(file, name, type, space, H5P_DEFAULT, layout, H5P_DEFAULT);
    ck_assert_int_ge(id, 0);
    if (data != NULL) {
        ck_assert_int_ge(H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data), 0);
    }
    H5Dclose(id);
    H5Pclose(layout);
    H5Sclose(space);
}

static void finish(void)
{
    ck_assert_int_ge(H5Fclose(file), 0);
}

static unsigned char byte_of(size_t i)
{
    return (unsigned char)(i * 37 + i / 7);
}

static int32_t label_of(size_t i)
{
    return (int32_t)((i * 5 + i / 5) % 4);
}

static void put_images(const char *name, int ndim, const hsize_t *dims, hsize_t chunk)
{
    static unsigned char data[4096];

    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = byte_of(i);
    }
    put(name, H5T_NATIVE_UINT8, ndim, dims, chunk, data);
}

static void put_labels(const char *name, hsize_t n)
{
    int64_t data[64];

    for (hsize_t i = 0; i < n; i++) {
        data[i] = label_of(i);
    }
    put(name, H5T_STD_I64BE, 1, &n, 0, NULL); /* written below, converted */
    {
        hid_t id = H5Dopen2(file, name, H5P_DEFAULT);

        ck_assert_int_ge(H5Dwrite(id, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, data), 0);
        H5Dclose(id);
    }
}

static ddp_dataset_params_t params_of(ddp_split_t split, double fraction)
{
    ddp_dataset_params_t params = DDP_DATASET_PARAMS_INIT;

    params.kind         = DDP_DATA_HDF5;
    params.path         = path;
    params.split        = split;
    params.val_fraction = fraction;
    return params;
}

static ddp_status_t open_split(ddp_split_t split, double fraction)
{
    const ddp_dataset_params_t params = params_of(split, fraction);

    drop();
    return ddp_dataset_open(&params, &dataset);
}

static ddp_status_t load(void)
{
    ddp_status_t status =
        ddp_allocator_private()->acquire(NULL, "data set", ddp_dataset_info(dataset)->memory_bytes, &memory);

    return status == DDP_OK ? ddp_dataset_load(dataset, memory) : status;
}

/* The split holds the file's samples first .. first + n - 1. */
static void check_bytes(size_t first, size_t n)
{
    const ddp_dataset_info_t *info    = ddp_dataset_info(dataset);
    const size_t              pixels  = info->height * info->width * info->channels;
    const double              zero[2] = {0};
    const double              one[2]  = {1, 1};
    float                     x[PIXELS + 2];

    ck_assert_uint_eq(info->samples, n);
    ddp_assert_ok(ddp_dataset_set_moments(dataset, zero, one));
    for (size_t s = 0; s < n; s++) {
        int32_t label;

        x[0]          = -7.0F;
        x[pixels + 1] = -7.0F;
        ddp_dataset_fetch(dataset, &s, 1, x + 1, &label);
        ck_assert_int_eq(label, label_of(first + s));
        for (size_t i = 0; i < pixels; i++) {
            ck_assert_float_eq(x[i + 1], (float)byte_of((first + s) * pixels + i) * (float)(1.0 / 255.0));
        }
        ck_assert_float_eq(x[0], -7.0F);
        ck_assert_float_eq(x[pixels + 1], -7.0F);
    }
}

START_TEST(pictures_of_three_and_four_dimensions_and_features_are_read)
{
    const hsize_t dims[3][4] = {
        {SAMPLES, HEIGHT, WIDTH, CHANNELS}, {SAMPLES, HEIGHT, WIDTH}, {SAMPLES, WIDTH}};
    const size_t sizes[3][3] = {{HEIGHT, WIDTH, CHANNELS}, {HEIGHT, WIDTH, 1}, {1, WIDTH, 1}};

    for (int i = 0; i < 6; i++) {
        const ddp_dataset_info_t *info;

        begin();
        put_images("images", 4 - i / 2, dims[i / 2], i % 2 == 0 ? 0 : 4);
        put_labels("labels", SAMPLES);
        finish();
        ddp_assert_ok(open_split(DDP_SPLIT_TRAIN, 0.0));
        info = ddp_dataset_info(dataset);
        ck_assert_uint_eq(info->height, sizes[i / 2][0]);
        ck_assert_uint_eq(info->width, sizes[i / 2][1]);
        ck_assert_uint_eq(info->channels, sizes[i / 2][2]);
        ck_assert_uint_eq(info->classes, 4);
        ddp_assert_ok(load());
        check_bytes(0, SAMPLES);
    }
}
END_TEST

START_TEST(the_last_share_of_the_samples_is_the_test_split)
{
    const hsize_t dims[3] = {SAMPLES, HEIGHT, WIDTH};

    begin();
    put_images("images", 3, dims, 2);
    put_labels("labels", SAMPLES);
    finish();
    ddp_assert_ok(open_split(DDP_SPLIT_TRAIN, 0.3)); /* 3.3 samples: 3 */
    ddp_assert_ok(load());
    check_bytes(0, 8);
    ddp_assert_ok(open_split(DDP_SPLIT_TEST, 0.3));
    ddp_assert_ok(load());
    check_bytes(8, 3);
    ddp_assert_ok(open_split(DDP_SPLIT_TEST, 0.001)); /* at least one */
    ck_assert_uint_eq(ddp_dataset_info(dataset)->samples, 1);
    ddp_assert_ok(open_split(DDP_SPLIT_TRAIN, 0.999));
    ck_assert_uint_eq(ddp_dataset_info(dataset)->samples, 1);
    ddp_assert_fails(open_split(DDP_SPLIT_TRAIN, 1.0), DDP_ERR_CONFIG, "data.val_fraction is 1");
}
END_TEST

START_TEST(data_sets_go_by_the_names_given)
{
    const hsize_t        dims[3] = {2, HEIGHT, WIDTH};
    ddp_dataset_params_t params;

    begin();
    put_images("pictures", 3, dims, 0);
    put_labels("kinds", 2);
    finish();
    params        = params_of(DDP_SPLIT_TEST, 0.0);
    params.images = "/pictures";
    params.labels = "kinds";
    ddp_assert_ok(ddp_dataset_open(&params, &dataset));
    ddp_assert_ok(load());
    check_bytes(0, 2);
    ddp_assert_fails(open_split(DDP_SPLIT_TRAIN, 0.0), DDP_ERR_FORMAT,
                     "set.h5': no data set 'images' (data.images names it): object 'images' doesn't exist");
    drop();
    params.labels = "images";
    ddp_assert_fails(ddp_dataset_open(&params, &dataset), DDP_ERR_FORMAT,
                     "no data set 'images' (data.labels");
    params.labels  = "kinds";
    params.samples = 3;
    ddp_assert_fails(ddp_dataset_open(&params, &dataset), DDP_ERR_CONFIG, "3 samples asked for, 2 there");
}
END_TEST

START_TEST(floats_are_normalised_as_they_are)
{
    const hsize_t dims[2] = {SAMPLES, CHANNELS};
    const double  n       = SAMPLES * CHANNELS;
    float         data[SAMPLES * CHANNELS];
    double        sum     = 0;
    double        squares = 0;
    double        mean;
    double        std;

    for (size_t i = 0; i < SAMPLES * CHANNELS; i++) {
        data[i] = (float)(i * i % 17) - 3.5F;
        sum += data[i];
        squares += (double)data[i] * data[i];
    }
    begin();
    put("images", H5T_NATIVE_FLOAT, 2, dims, 3, data);
    put_labels("labels", SAMPLES);
    finish();
    ddp_assert_ok(open_split(DDP_SPLIT_TRAIN, 0.0));
    ck_assert_uint_eq(ddp_dataset_info(dataset)->pixel_bytes, 4);
    ddp_assert_ok(load());
    ddp_dataset_moments(dataset, 0, &mean, &std);
    ck_assert_double_eq_tol(mean, sum / n, 1e-12);
    ck_assert_double_eq_tol(std, sqrt(squares / n - mean * mean), 1e-12);
    for (size_t s = 0; s < SAMPLES; s++) {
        float   x[CHANNELS];
        int32_t label;

        ddp_dataset_fetch(dataset, &s, 1, x, &label);
        for (size_t i = 0; i < CHANNELS; i++) {
            ck_assert_float_eq_tol(x[i], (float)((data[s * CHANNELS + i] - mean) / std), 1e-6F);
        }
    }
}
END_TEST

/* 4 MiB are read at a time: here 524 samples, and the test split begins within a slice. */
START_TEST(large_sets_are_read_slice_by_slice)
{
    enum { MANY = 1100, WIDE = 2000 };
    const hsize_t dims[2] = {MANY, WIDE};
    const double  zero    = 0;
    const double  one     = 1;
    float        *data    = calloc(MANY, WIDE * sizeof(float));
    static float  x[WIDE];

    ck_assert_ptr_nonnull(data);
    for (size_t i = 0; i < MANY * (size_t)WIDE; i++) {
        data[i] = (float)i; /* below 2^24: exact */
    }
    begin();
    put("images", H5T_NATIVE_FLOAT, 2, dims, 0, data);
    {
        static int32_t labels[MANY];

        put("labels", H5T_NATIVE_INT32, 1, dims, 0, labels);
    }
    finish();
    for (int split = 0; split < 2; split++) {
        const size_t first = split == DDP_SPLIT_TEST ? 440 : 0; /* 0.6 of 1100 are 660 */

        ddp_assert_ok(open_split((ddp_split_t)split, split == DDP_SPLIT_TEST ? 0.6 : 0.0));
        ddp_assert_ok(load());
        ck_assert_uint_eq(ddp_dataset_info(dataset)->samples, MANY - first);
        ddp_assert_ok(ddp_dataset_set_moments(dataset, &zero, &one));
        for (size_t s = 0; s < MANY - first; s += 7) {
            int32_t label;

            ddp_dataset_fetch(dataset, &s, 1, x, &label);
            ck_assert_mem_eq(x, data + (first + s) * WIDE, sizeof(x));
        }
    }
    free(data);
}
END_TEST

START_TEST(float_pictures_are_augmented_too)
{
    const hsize_t dims[3] = {1, 8, 70};
    const hsize_t one     = 1;
    const int32_t label   = 0;
    static float  data[8 * 70];
    static float  x[8 * 70];
    const size_t  index = 0;
    const double  mean  = 0.0;
    const double  std   = 1.0;
    int32_t       got;
    unsigned      moved = 0;

    for (size_t i = 0; i < 8 * 70; i++) {
        data[i] = (float)(i + 1);
    }
    begin();
    put("images", H5T_NATIVE_FLOAT, 3, dims, 0, data);
    put("labels", H5T_NATIVE_INT32, 1, &one, 0, &label);
    finish();
    ddp_assert_ok(open_split(DDP_SPLIT_TRAIN, 0.0));
    ddp_assert_ok(load());
    ddp_assert_ok(ddp_dataset_set_moments(dataset, &mean, &std));
    for (uint64_t epoch = 0; epoch < 20; epoch++) {
        ddp_dataset_fetch_augmented(dataset, DDP_AUGMENT_PAD_CROP_FLIP, 1, epoch, &index, 1, x, &got);
        /* neighbours in a row stay neighbours, one way round or the other; the rest is 0 */
        for (size_t i = 1; i < 8 * 70; i++) {
            const bool is_edge = i % 70 == 0 || x[i] == 0.0F || x[i - 1] == 0.0F;

            ck_assert(is_edge || fabsf(x[i] - x[i - 1]) == 1.0F);
        }
        moved += memcmp(x, data, sizeof(x)) != 0;
    }
    ck_assert_uint_ge(moved, 15);
}
END_TEST

START_TEST(values_that_are_not_finite_are_named)
{
    const hsize_t dims[2] = {3, 2};
    const float   data[6] = {0, 1, 2, 3, 4, NAN};

    begin();
    put("images", H5T_NATIVE_FLOAT, 2, dims, 0, data);
    put_labels("labels", 3);
    finish();
    ddp_assert_ok(open_split(DDP_SPLIT_TRAIN, 0.0));
    ddp_assert_fails(load(), DDP_ERR_FORMAT, "a value of sample 2 is not finite");
}
END_TEST

START_TEST(wrong_dimensions_types_and_counts_are_refused)
{
    static const double zeros[64];
    const hsize_t       three[3]  = {4, 2, 2};
    const hsize_t       five[5]   = {4, 1, 1, 1, 1};
    const hsize_t       four[4]   = {1, 1, 1, 65};
    const hsize_t       empty[3]  = {0, 2, 2};
    const hsize_t       column[2] = {4, 1};
    const struct {
        hid_t          type;
        int            ndim;
        const hsize_t *dims;
        const char    *line;
    } faults[] = {
        {H5T_NATIVE_UINT8, 1, three, "'images': expected 2 to 4 dimensions, found 1"},
        {H5T_NATIVE_UINT8, 5, five, "'images': expected 2 to 4 dimensions, found 5"},
        {H5T_NATIVE_INT8, 3, three, "expected pixels of uint8 or float32, found integers of 1 bytes"},
        {H5T_NATIVE_UINT16, 3, three, "found integers of 2 bytes"},
        {H5T_NATIVE_DOUBLE, 3, three, "found floats of 8 bytes"},
        {H5T_NATIVE_UINT8, 4, four, "expected at most 64 channels (the last dimension), found 65"},
        {H5T_NATIVE_UINT8, 3, empty, "'images': expected 1 .. 4294967295 in dimension 0, found 0"},
    };

    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        begin();
        put("images", faults[i].type, faults[i].ndim, faults[i].dims, 0, zeros);
        put_labels("labels", 4);
        finish();
        ddp_assert_fails(open_split(DDP_SPLIT_TRAIN, 0.0), DDP_ERR_FORMAT, faults[i].line);
        ck_assert_ptr_nonnull(strstr(ddp_error_line(), "set.h5'"));
    }
    for (int i = 0; i < 3; i++) {
        begin();
        put_images("images", 3, three, 0);
        if (i == 0) {
            put_labels("labels", 3);
        } else {
            put("labels", i == 1 ? H5T_NATIVE_FLOAT : H5T_NATIVE_INT, i, column, 0, zeros);
        }
        finish();
        ddp_assert_fails(open_split(DDP_SPLIT_TRAIN, 0.0), DDP_ERR_FORMAT,
                         i == 0   ? "'labels': expected 4 labels, as many as there are in 'images', found 3"
                         : i == 1 ? "'labels': expected labels of an integer type"
                                  : "'labels': expected 1 dimension, found 2");
    }
}
END_TEST

START_TEST(labels_out_of_range_are_named_with_their_index)
{
    const hsize_t  dims[3]  = {4, 2, 2};
    const int8_t   below[4] = {0, 1, -1, 0};
    const uint64_t above[4] = {0, UINT64_MAX, 0, 0};

    begin();
    put_images("images", 3, dims, 0);
    put("labels", H5T_NATIVE_INT8, 1, dims, 0, below);
    put("more", H5T_NATIVE_UINT64, 1, dims, 0, above);
    finish();
    ddp_assert_fails(open_split(DDP_SPLIT_TRAIN, 0.0), DDP_ERR_FORMAT,
                     "'labels': expected labels 0 .. 65535, found -1 at index 2");
    {
        ddp_dataset_params_t params = params_of(DDP_SPLIT_TRAIN, 0.0);

        params.labels = "more";
        ddp_assert_fails(ddp_dataset_open(&params, &dataset), DDP_ERR_FORMAT, "at index 1");
    }
}
END_TEST

START_TEST(files_that_are_no_hdf5_or_are_cut_short_are_refused)
{
    const hsize_t        dims[3] = {4, 2, 2};
    ddp_dataset_params_t params  = DDP_DATASET_PARAMS_INIT;

    begin();
    put_images("images", 3, dims, 0);
    put_labels("labels", 4);
    finish();
    ck_assert_int_eq(truncate(path, 1000), 0);
    ddp_assert_fails(open_split(DDP_SPLIT_TRAIN, 0.0), DDP_ERR_FORMAT,
                     "not a readable HDF5 file: truncated file");
    io_test_write(folder, "set.h5", "nothing", 7);
    ddp_assert_fails(open_split(DDP_SPLIT_TRAIN, 0.0), DDP_ERR_FORMAT,
                     "not a readable HDF5 file: file signature not found");
    io_test_delete(folder, "set.h5");
    ddp_assert_fails(open_split(DDP_SPLIT_TRAIN, 0.0), DDP_ERR_IO, "no such file or directory");
    params.kind = DDP_DATA_HDF5;
    ddp_assert_fails(ddp_dataset_open(&params, &dataset), DDP_ERR_CONFIG, "data.path is missing");
    params.path = folder;
    ddp_assert_fails(ddp_dataset_open(&params, &dataset), DDP_ERR_IO, "a folder");
}
END_TEST

START_TEST(a_file_that_changes_between_open_and_load_is_refused)
{
    const hsize_t dims[3] = {4, 2, 2};

    begin();
    put_images("images", 3, dims, 0);
    put_labels("labels", 4);
    finish();
    ddp_assert_ok(open_split(DDP_SPLIT_TRAIN, 0.0));
    io_test_write(folder, "set.h5", "nothing", 7);
    ddp_assert_fails(load(), DDP_ERR_FORMAT, "changed since it was opened");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hdf5");
    TCase *tcase = tcase_create("all");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, pictures_of_three_and_four_dimensions_and_features_are_read);
    tcase_add_test(tcase, the_last_share_of_the_samples_is_the_test_split);
    tcase_add_test(tcase, data_sets_go_by_the_names_given);
    tcase_add_test(tcase, floats_are_normalised_as_they_are);
    tcase_add_test(tcase, large_sets_are_read_slice_by_slice);
    tcase_add_test(tcase, float_pictures_are_augmented_too);
    tcase_add_test(tcase, values_that_are_not_finite_are_named);
    tcase_add_test(tcase, wrong_dimensions_types_and_counts_are_refused);
    tcase_add_test(tcase, labels_out_of_range_are_named_with_their_index);
    tcase_add_test(tcase, files_that_are_no_hdf5_or_are_cut_short_are_refused);
    tcase_add_test(tcase, a_file_that_changes_between_open_and_load_is_refused);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
