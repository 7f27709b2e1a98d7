#include <math.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/allocator.h"
#include "io/dataset.h"
#include "tests/io/io_test.h"

#define SIDE   32
#define PIXELS (SIDE * SIDE * 3)
#define TRAIN  7 /* samples: 2, 1, 1, 1, 2 in five files */

static char           folder[IO_TEST_PATH];
static ddp_dataset_t *dataset;
static void          *memory;

/* The byte of sample s in plane c at (y, x), from this function alone */
static unsigned char pixel_of(size_t s, size_t c, size_t y, size_t x)
{
    return (unsigned char)(s * 41 + c * 87 + y * 5 + x * 3);
}

static unsigned char label_of(size_t s)
{
    return (unsigned char)(s * 3 % 10);
}

/* Records of samples first .. first + n - 1; with a coarse label (CIFAR-100) or without. */
static size_t make_records(unsigned char *data, size_t first, size_t n, bool is_fine)
{
    size_t used = 0;

    for (size_t s = first; s < first + n; s++) {
        if (is_fine) {
            data[used++] = 19;
        }
        data[used++] = (unsigned char)(label_of(s) + (is_fine ? 90 : 0));
        for (size_t i = 0; i < PIXELS; i++) {
            data[used++] = pixel_of(s, i / (SIDE * SIDE), i / SIDE % SIDE, i % SIDE);
        }
    }
    return used;
}

static unsigned char records[TRAIN * (PIXELS + 2)];

static void write_records(const char *name, size_t first, size_t n, bool is_fine)
{
    io_test_write(folder, name, records, make_records(records, first, n, is_fine));
}

static void setup(void)
{
    io_test_make(folder);
    write_records("data_batch_1.bin", 0, 2, false);
    write_records("data_batch_2.bin", 2, 1, false);
    write_records("data_batch_3.bin", 3, 1, false);
    write_records("data_batch_4.bin", 4, 1, false);
    write_records("data_batch_5.bin", 5, 2, false);
    write_records("test_batch.bin", 100, 3, false);
    write_records("train.bin", 0, TRAIN, true);
    write_records("test.bin", 100, 2, true);
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

static ddp_status_t open_split(ddp_data_kind_t kind, ddp_split_t split, size_t samples)
{
    ddp_dataset_params_t params = DDP_DATASET_PARAMS_INIT;

    drop();
    params.kind    = kind;
    params.path    = folder;
    params.split   = split;
    params.samples = samples;
    return ddp_dataset_open(&params, &dataset);
}

static ddp_status_t load(void)
{
    ddp_status_t status =
        ddp_allocator_private()->acquire(NULL, "data set", ddp_dataset_info(dataset)->memory_bytes, &memory);

    return status == DDP_OK ? ddp_dataset_load(dataset, memory) : status;
}

static void check_samples(size_t first, size_t n, int more)
{
    static float x[PIXELS];
    const double zero[3] = {0};
    const double one[3]  = {1, 1, 1};

    ck_assert_uint_eq(ddp_dataset_info(dataset)->samples, n);
    ddp_assert_ok(ddp_dataset_set_moments(dataset, zero, one));
    for (size_t s = 0; s < n; s++) {
        int32_t label;

        ddp_dataset_fetch(dataset, &s, 1, x, &label);
        ck_assert_int_eq(label, label_of(first + s) + more);
        for (size_t i = 0; i < PIXELS; i++) { /* [height, width, channels] */
            const unsigned char byte = pixel_of(first + s, i % 3, i / 3 / SIDE, i / 3 % SIDE);

            ck_assert_float_eq(x[i], (float)byte * (float)(1.0 / 255.0));
        }
    }
}

START_TEST(five_files_are_one_set_with_channels_last)
{
    const ddp_dataset_info_t *info;

    ddp_assert_ok(open_split(DDP_DATA_CIFAR10, DDP_SPLIT_TRAIN, 0));
    info = ddp_dataset_info(dataset);
    ck_assert_uint_eq(info->height, SIDE);
    ck_assert_uint_eq(info->width, SIDE);
    ck_assert_uint_eq(info->channels, 3);
    ck_assert_uint_eq(info->classes, 10);
    ddp_assert_ok(load());
    check_samples(0, TRAIN, 0);
    ddp_assert_ok(open_split(DDP_DATA_CIFAR10, DDP_SPLIT_TEST, 0));
    ddp_assert_ok(load());
    check_samples(100, 3, 0);
}
END_TEST

START_TEST(the_fine_label_of_cifar100_is_used)
{
    ddp_assert_ok(open_split(DDP_DATA_CIFAR100, DDP_SPLIT_TRAIN, 0));
    ck_assert_uint_eq(ddp_dataset_info(dataset)->classes, 100);
    ddp_assert_ok(load());
    check_samples(0, TRAIN, 90);
    ddp_assert_ok(open_split(DDP_DATA_CIFAR100, DDP_SPLIT_TEST, 0));
    ddp_assert_ok(load());
    check_samples(100, 2, 90);
}
END_TEST

START_TEST(only_the_first_samples_are_used_where_fewer_are_asked_for)
{
    ddp_assert_ok(open_split(DDP_DATA_CIFAR10, DDP_SPLIT_TRAIN, 3));
    ddp_assert_ok(load());
    check_samples(0, 3, 0);
    ddp_assert_fails(open_split(DDP_DATA_CIFAR10, DDP_SPLIT_TRAIN, 8), DDP_ERR_CONFIG,
                     "8 samples asked for, 7 there");
}
END_TEST

START_TEST(moments_are_those_of_each_channel)
{
    ddp_assert_ok(open_split(DDP_DATA_CIFAR10, DDP_SPLIT_TRAIN, 0));
    ddp_assert_ok(load());
    for (size_t c = 0; c < 3; c++) {
        const double count   = TRAIN * SIDE * SIDE;
        double       sum     = 0;
        double       squares = 0;
        double       mean;
        double       std;

        for (size_t s = 0; s < TRAIN; s++) {
            for (size_t i = 0; i < SIDE * SIDE; i++) {
                const double value = pixel_of(s, c, i / SIDE, i % SIDE) / 255.0;

                sum += value;
                squares += value * value;
            }
        }
        ddp_dataset_moments(dataset, c, &mean, &std);
        ck_assert_double_eq_tol(mean, sum / count, 1e-12);
        ck_assert_double_eq_tol(std, sqrt(squares / count - sum / count * sum / count), 1e-9);
    }
}
END_TEST

START_TEST(attached_memory_is_that_of_the_same_files)
{
    ddp_dataset_params_t params = DDP_DATASET_PARAMS_INIT;
    ddp_dataset_t       *other  = NULL;

    ddp_assert_ok(open_split(DDP_DATA_CIFAR10, DDP_SPLIT_TRAIN, 0));
    ddp_assert_ok(load());
    params.kind = DDP_DATA_CIFAR10;
    params.path = folder;
    ddp_assert_ok(ddp_dataset_open(&params, &other));
    ddp_assert_ok(ddp_dataset_attach(other, memory));
    ddp_dataset_close(&other);
    write_records("data_batch_4.bin", 4, 2, false);
    ddp_assert_ok(ddp_dataset_open(&params, &other));
    ddp_assert_fails(ddp_dataset_attach(other, memory), DDP_ERR_STATE, "other data");
    ddp_dataset_close(&other);
}
END_TEST

START_TEST(missing_files_are_named)
{
    ddp_dataset_params_t params = DDP_DATASET_PARAMS_INIT;

    io_test_delete(folder, "data_batch_3.bin");
    ddp_assert_fails(open_split(DDP_DATA_CIFAR10, DDP_SPLIT_TRAIN, 0), DDP_ERR_IO,
                     "data_batch_3.bin': no such file or directory");
    io_test_delete(folder, "test.bin");
    ddp_assert_fails(open_split(DDP_DATA_CIFAR100, DDP_SPLIT_TEST, 0), DDP_ERR_IO,
                     "test.bin': no such file or directory");
    params.kind = DDP_DATA_CIFAR100;
    ddp_assert_fails(ddp_dataset_open(&params, &dataset), DDP_ERR_CONFIG, "data.path is missing");
    ck_assert_ptr_null(dataset);
}
END_TEST

START_TEST(files_of_no_whole_records_are_refused)
{
    io_test_write(folder, "test_batch.bin", records, 0);
    ddp_assert_fails(open_split(DDP_DATA_CIFAR10, DDP_SPLIT_TEST, 0), DDP_ERR_FORMAT,
                     "test_batch.bin': expected records of 3073 bytes, found none");
    io_test_write(folder, "test_batch.bin", records, 3072);
    ddp_assert_fails(open_split(DDP_DATA_CIFAR10, DDP_SPLIT_TEST, 0), DDP_ERR_FORMAT,
                     "expected a multiple of 3073 bytes, found 3072");
    io_test_write(folder, "test.bin", records, 3073);
    ddp_assert_fails(
        open_split(DDP_DATA_CIFAR100, DDP_SPLIT_TEST, 0), DDP_ERR_FORMAT,
        "test.bin': truncated, or of another kind: expected a multiple of 3074 bytes, found 3073");
    records[0] = 0x1f;
    records[1] = 0x8b;
    io_test_write(folder, "test_batch.bin", records, 3073);
    ddp_assert_fails(open_split(DDP_DATA_CIFAR10, DDP_SPLIT_TEST, 0), DDP_ERR_FORMAT, "gunzip the file");
}
END_TEST

START_TEST(labels_out_of_range_are_named_with_file_and_offset)
{
    make_records(records, 0, 3, false);
    records[2 * 3073] = 10;
    io_test_write(folder, "test_batch.bin", records, 3 * 3073);
    ddp_assert_ok(open_split(DDP_DATA_CIFAR10, DDP_SPLIT_TEST, 0));
    ddp_assert_fails(load(), DDP_ERR_FORMAT,
                     "test_batch.bin': offset 6146: expected labels 0 .. 9, found 10 at index 2");
    make_records(records, 0, 3, true);
    records[3074 + 1] = 100;
    io_test_write(folder, "test.bin", records, 3 * 3074);
    ddp_assert_ok(open_split(DDP_DATA_CIFAR100, DDP_SPLIT_TEST, 0));
    ddp_assert_fails(load(), DDP_ERR_FORMAT,
                     "test.bin': offset 3075: expected labels 0 .. 99, found 100 at index 1");
    records[3074] = 20;
    io_test_write(folder, "test.bin", records, 3 * 3074);
    ddp_assert_ok(open_split(DDP_DATA_CIFAR100, DDP_SPLIT_TEST, 0));
    ddp_assert_fails(load(), DDP_ERR_FORMAT, "offset 3074: expected coarse labels 0 .. 19, found 20");
}
END_TEST

START_TEST(a_file_that_changes_between_open_and_load_is_refused)
{
    ddp_assert_ok(open_split(DDP_DATA_CIFAR10, DDP_SPLIT_TRAIN, 0));
    write_records("data_batch_5.bin", 5, 1, false);
    ddp_assert_fails(load(), DDP_ERR_FORMAT,
                     "data_batch_5.bin': changed since it was opened: expected 6146 bytes, found 3073");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cifar");
    TCase *tcase = tcase_create("all");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, five_files_are_one_set_with_channels_last);
    tcase_add_test(tcase, the_fine_label_of_cifar100_is_used);
    tcase_add_test(tcase, only_the_first_samples_are_used_where_fewer_are_asked_for);
    tcase_add_test(tcase, moments_are_those_of_each_channel);
    tcase_add_test(tcase, attached_memory_is_that_of_the_same_files);
    tcase_add_test(tcase, missing_files_are_named);
    tcase_add_test(tcase, files_of_no_whole_records_are_refused);
    tcase_add_test(tcase, labels_out_of_range_are_named_with_file_and_offset);
    tcase_add_test(tcase, a_file_that_changes_between_open_and_load_is_refused);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
