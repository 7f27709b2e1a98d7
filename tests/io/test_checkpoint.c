#include <hdf5.h>
#include <sys/stat.h>

#include "io/checkpoint.h"
#include "tests/io/checkpoint_file.h"

static char top[IO_TEST_PATH];

static void setup(void)
{
    io_test_make(top);
}

static void teardown(void)
{
    io_test_remove(top);
}

static const char *under(const char *name)
{
    static char path[2 * IO_TEST_PATH];

    snprintf(path, sizeof(path), "%s/%s", top, name);
    return path;
}

/* Values of RFC 3720 B.4, and of the check word that catalogues of CRCs give for "123456789". */
START_TEST(crc32c_is_that_of_the_standard)
{
    uint8_t zeros[32] = {0};
    uint8_t ones[32];
    uint8_t up[32];

    memset(ones, 0xFF, sizeof(ones));
    for (size_t i = 0; i < sizeof(up); i++) {
        up[i] = (uint8_t)i;
    }
    ck_assert_uint_eq(ddp_crc32c(0, zeros, 32), 0x8A9136AA);
    ck_assert_uint_eq(ddp_crc32c(0, ones, 32), 0x62A8AB43);
    ck_assert_uint_eq(ddp_crc32c(0, up, 32), 0x46DD794E);
    ck_assert_uint_eq(ddp_crc32c(0, "123456789", 9), 0xE3069283);
    ck_assert_uint_eq(ddp_crc32c(0, "", 0), 0);
}
END_TEST

START_TEST(sums_of_two_pieces_combine)
{
    uint8_t data[1000];

    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (uint8_t)(i * 37 + i / 7);
    }
    for (size_t cut = 0; cut <= sizeof(data); cut += 125) {
        const uint32_t first  = ddp_crc32c(0, data, cut);
        const uint32_t second = ddp_crc32c(0, data + cut, sizeof(data) - cut);

        ck_assert_uint_eq(ddp_crc32c_combine(first, second, sizeof(data) - cut),
                          ddp_crc32c(0, data, sizeof(data)));
        ck_assert_uint_eq(ddp_crc32c(first, data + cut, sizeof(data) - cut),
                          ddp_crc32c(0, data, sizeof(data)));
    }
}
END_TEST

START_TEST(a_loss_scale_is_there_where_a_run_has_one)
{
    for (uint64_t step = 42; step <= 43; step++) {
        const ddp_training_state_t want       = checkpoint_state(step);
        ddp_checkpoint_t          *checkpoint = NULL;

        checkpoint_write(under("scaled.h5"), step);
        ddp_assert_ok(ddp_checkpoint_open(under("scaled.h5"), &checkpoint));
        ck_assert(ddp_checkpoint_state(checkpoint)->loss_scale == want.loss_scale);
        ck_assert_uint_eq(ddp_checkpoint_state(checkpoint)->loss_scale_steps, want.loss_scale_steps);
        ddp_checkpoint_close(&checkpoint);
    }
}
END_TEST

START_TEST(everything_that_was_written_is_read)
{
    const ddp_training_state_t     want = checkpoint_state(42);
    const ddp_training_state_t    *state;
    const ddp_checkpoint_tensor_t *tensors;
    ddp_tensor_desc_t              wanted[CHECKPOINT_TENSORS];
    ddp_checkpoint_t              *checkpoint = NULL;
    float                          values[135];

    checkpoint_tensors(wanted);
    checkpoint_write(under("a.h5"), 42);
    ddp_assert_ok(ddp_checkpoint_open(under("a.h5"), &checkpoint));
    state   = ddp_checkpoint_state(checkpoint);
    tensors = ddp_checkpoint_tensors(checkpoint);
    ck_assert_uint_eq(state->step, 42);
    ck_assert_uint_eq(state->epoch, want.epoch);
    ck_assert_uint_eq(state->samples_seen, want.samples_seen);
    ck_assert_uint_eq(state->seed, want.seed);
    ck_assert_uint_eq(state->micro_batches, want.micro_batches);
    ck_assert(state->best_loss == want.best_loss);
    ck_assert_str_eq(state->isa, want.isa);
    ck_assert_str_eq(state->optimizer, want.optimizer);
    ck_assert_str_eq(state->data, want.data);
    ck_assert_str_eq(state->config, want.config);
    ck_assert_str_eq(state->producer, want.producer);
    ck_assert_uint_eq(state->n_slots, 2);
    ck_assert_str_eq(state->slot[1], "exp_avg_sq");
    ck_assert_uint_eq(ddp_checkpoint_count(checkpoint), CHECKPOINT_TENSORS);
    for (size_t t = 0; t < CHECKPOINT_TENSORS; t++) {
        const size_t n = wanted[t].count < 135 ? wanted[t].count : 135;

        ck_assert_str_eq(tensors[t].desc.name, wanted[t].name); /* in registration order */
        ck_assert_uint_eq(tensors[t].desc.ndim, wanted[t].ndim);
        ck_assert_mem_eq(tensors[t].desc.shape, wanted[t].shape, wanted[t].ndim * sizeof(size_t));
        ck_assert_int_eq(tensors[t].desc.role, wanted[t].role);
        for (int array = DDP_CHECKPOINT_VALUES; array < (t == 2 ? 0 : 2); array++) {
            const size_t first = wanted[t].count - n;

            ddp_assert_ok(ddp_checkpoint_read(checkpoint, t, array, first, n, values));
            for (size_t i = 0; i < n; i++) {
                ck_assert(values[i] == checkpoint_value(42, t, array, first + i));
            }
        }
    }
    ck_assert_uint_eq(tensors[1].steps, 41);
    ck_assert_uint_eq(ddp_checkpoint_find(checkpoint, "fc.bias"), 3);
    ck_assert_uint_eq(ddp_checkpoint_find(checkpoint, "fc"), CHECKPOINT_TENSORS);
    ddp_assert_fails(ddp_checkpoint_read(checkpoint, 2, 0, 0, 1, values), DDP_ERR_INVALID_ARG,
                     "no moments 0");
    ddp_assert_fails(ddp_checkpoint_read(checkpoint, 3, -1, 1, 1, values), DDP_ERR_INVALID_ARG, "'fc.bias'");
    ddp_checkpoint_close(&checkpoint);
    ck_assert_ptr_null(checkpoint);
}
END_TEST

/* What somebody does who knows HDF5 and not ddptrain. */
START_TEST(any_reader_of_hdf5_opens_it)
{
    float values[135];
    hid_t file;
    hid_t data;

    checkpoint_write(under("a.h5"), 42);
    file = H5Fopen(under("a.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
    data = H5Dopen2(file, "/model/conv1.weight", H5P_DEFAULT);
    ck_assert_int_ge(H5Dread(data, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), 0);
    for (size_t i = 0; i < 135; i++) {
        ck_assert(values[i] == checkpoint_value(42, 0, DDP_CHECKPOINT_VALUES, i));
    }
    ck_assert_int_ge(H5Dclose(data), 0);
    ck_assert_int_eq(H5Lexists(file, "/optimizer/exp_avg/fc.bias", H5P_DEFAULT), 1);
    ck_assert_int_eq(H5Lexists(file, "/optimizer/exp_avg/bn1.running_mean", H5P_DEFAULT), 0);
    ck_assert_int_ge(H5Fclose(file), 0);
}
END_TEST

START_TEST(the_same_state_gives_the_same_bytes)
{
    static unsigned char a[1 << 18];
    static unsigned char b[1 << 18];
    FILE                *file;
    size_t               n;

    checkpoint_write(under("a.h5"), 42);
    usleep(1100000); /* nothing in it may tell the time */
    checkpoint_write(under("b.h5"), 42);
    file = fopen(under("a.h5"), "rb");
    n    = fread(a, 1, sizeof(a), file);
    ck_assert_int_eq(fclose(file), 0);
    file = fopen(under("b.h5"), "rb");
    ck_assert_uint_eq(fread(b, 1, sizeof(b), file), n);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_uint_lt(n, sizeof(a));
    ck_assert_mem_eq(a, b, n);
}
END_TEST

static size_t file_bytes(const char *path)
{
    struct stat st;

    ck_assert_int_eq(stat(path, &st), 0);
    return (size_t)st.st_size;
}

/* Over the whole file, the header closely. */
START_TEST(a_flipped_bit_anywhere_is_refused)
{
    size_t            n;
    ddp_checkpoint_t *checkpoint = NULL;

    checkpoint_write(under("a.h5"), 42);
    n = file_bytes(under("a.h5"));
    for (size_t at = 0; at < n; at += at < 160 ? 1 : 487) {
        int           fd = open(under("a.h5"), O_RDWR);
        unsigned char byte;

        ck_assert_int_eq(pread(fd, &byte, 1, (off_t)at), 1);
        byte ^= (unsigned char)(1U << at % 8);
        ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)at), 1);
        ck_assert_int_eq(ddp_checkpoint_open(under("a.h5"), &checkpoint), DDP_ERR_FORMAT);
        ck_assert_ptr_null(checkpoint);
        byte ^= (unsigned char)(1U << at % 8);
        ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)at), 1);
        ck_assert_int_eq(close(fd), 0);
    }
    ddp_assert_ok(ddp_checkpoint_verify(under("a.h5"), NULL));
}
END_TEST

START_TEST(a_file_of_another_length_is_refused)
{
    size_t n;

    checkpoint_write(under("a.h5"), 42);
    n = file_bytes(under("a.h5"));
    ck_assert_int_eq(truncate(under("a.h5"), (off_t)(n + 1)), 0);
    ddp_assert_fails(ddp_checkpoint_verify(under("a.h5"), NULL), DDP_ERR_FORMAT, "extended: expected");
    for (size_t left = n - 1; left > 0; left = left > 1500 ? left - 1500 : left / 2) {
        ck_assert_int_eq(truncate(under("a.h5"), (off_t)left), 0);
        ddp_assert_fails(ddp_checkpoint_verify(under("a.h5"), NULL), DDP_ERR_FORMAT,
                         left > 4096 ? "cut short: expected" : "too short");
    }
}
END_TEST

START_TEST(what_is_no_checkpoint_is_named)
{
    char                    block[8192] = {0};
    ddp_checkpoint_header_t header      = {2, 1, sizeof(block), 0};

    io_test_write(top, "zeros", block, sizeof(block));
    ddp_assert_fails(ddp_checkpoint_verify(under("zeros"), NULL), DDP_ERR_FORMAT,
                     "zeros': not a checkpoint of ddptrain (offset 0: expected 'ddptrain-checkpoint')");
    ddp_assert_fails(ddp_checkpoint_verify(under("nothing"), NULL), DDP_ERR_IO, "no such file");
    ddp_assert_fails(ddp_checkpoint_verify(top, NULL), DDP_ERR_FORMAT, "a folder, not a regular file");
    header.crc = ddp_crc32c(0, block + 4096, 4096);
    ddp_checkpoint_header_write(&header, block);
    io_test_write(top, "later", block, sizeof(block));
    ddp_assert_fails(ddp_checkpoint_verify(under("later"), NULL), DDP_ERR_FORMAT,
                     "later': format version 2, this build reads 1");
    header.version = 1;
    ddp_checkpoint_header_write(&header, block);
    io_test_write(top, "empty", block, sizeof(block));
    ddp_assert_ok(ddp_checkpoint_verify(under("empty"), NULL));
}
END_TEST

/* A right checksum does not make it a checkpoint. */
START_TEST(a_sealed_file_without_hdf5_is_refused)
{
    char                    block[8192] = {0};
    ddp_checkpoint_header_t header      = {1, 1, sizeof(block), ddp_crc32c(0, block, 4096)};
    ddp_checkpoint_t       *checkpoint  = NULL;

    ddp_checkpoint_header_write(&header, block);
    io_test_write(top, "a.h5", block, sizeof(block));
    ddp_assert_fails(ddp_checkpoint_open(under("a.h5"), &checkpoint), DDP_ERR_FORMAT,
                     "not a readable HDF5 file");
}
END_TEST

START_TEST(only_names_of_checkpoints_are_listed_newest_first)
{
    uint64_t *steps = NULL;
    size_t    n     = 9;

    ddp_assert_ok(ddp_checkpoint_list(under("nowhere"), &steps, &n));
    ck_assert_uint_eq(n, 0);
    io_test_write(top, "ckpt-000000009900.h5", "", 0);
    io_test_write(top, "ckpt-000000010000.h5", "", 0);
    io_test_write(top, "ckpt-000000000007.h5", "", 0);
    io_test_write(top, "ckpt-7.h5", "", 0);
    io_test_write(top, "ckpt-000000000008.h5.bak", "", 0);
    io_test_write(top, ".ckpt-000000000009.h5.tmp-12", "", 0);
    ddp_assert_ok(ddp_checkpoint_list(top, &steps, &n));
    ck_assert_uint_eq(n, 3);
    ck_assert_uint_eq(steps[0], 10000);
    ck_assert_uint_eq(steps[1], 9900);
    ck_assert_uint_eq(steps[2], 7);
    free(steps);
}
END_TEST

static char skipped_text[1024];

static void skipped(void *ctx, const char *path, const char *why)
{
    ++*(int *)ctx;
    snprintf(skipped_text, sizeof(skipped_text), "%s|%s", path, why);
}

START_TEST(the_newest_that_verifies_is_opened)
{
    ddp_checkpoint_t *checkpoint = NULL;
    int               n          = 0;

    ddp_assert_ok(ddp_checkpoint_open_newest(top, skipped, &n, &checkpoint));
    ck_assert_ptr_null(checkpoint);
    checkpoint_write(under("ckpt-000000000010.h5"), 10);
    checkpoint_write(under("ckpt-000000000020.h5"), 20);
    checkpoint_write(under("ckpt-000000000030.h5"), 30);
    ck_assert_int_eq(truncate(under("ckpt-000000000030.h5"), 5000), 0);
    ddp_assert_ok(ddp_checkpoint_open_newest(top, skipped, &n, &checkpoint));
    ck_assert_uint_eq(ddp_checkpoint_state(checkpoint)->step, 20);
    ck_assert_int_eq(n, 1);
    ck_assert_ptr_nonnull(strstr(skipped_text, "ckpt-000000000030.h5|"));
    ck_assert_ptr_nonnull(strstr(skipped_text, "cut short"));
    ddp_checkpoint_close(&checkpoint);
    ck_assert_int_eq(truncate(under("ckpt-000000000020.h5"), 5000), 0);
    ck_assert_int_eq(truncate(under("ckpt-000000000010.h5"), 5000), 0);
    ddp_assert_fails(ddp_checkpoint_open_newest(top, NULL, NULL, &checkpoint), DDP_ERR_FORMAT,
                     "none of its 3 checkpoints can be used");
}
END_TEST

START_TEST(a_model_that_does_not_fit_is_told_by_name_and_shape)
{
    const char *const allow[] = {"fc.*", "bn?.*"};
    ddp_tensor_desc_t model[CHECKPOINT_TENSORS];
    ddp_checkpoint_t *checkpoint = NULL;

    checkpoint_write(under("a.h5"), 42);
    checkpoint_tensors(model);
    ddp_assert_ok(ddp_checkpoint_open(under("a.h5"), &checkpoint));
    ddp_assert_ok(ddp_checkpoint_check_model(checkpoint, model, CHECKPOINT_TENSORS, NULL, 0));
    model[1].shape[1] = 66;
    model[3].name     = "fc.weight";
    ddp_assert_fails(ddp_checkpoint_check_model(checkpoint, model, CHECKPOINT_TENSORS, NULL, 0),
                     DDP_ERR_MISMATCH, "3 tensors differ from the model's");
    ck_assert_ptr_nonnull(
        strstr(ddp_error_line(), "'h.0.attn.c_attn.weight' is [96, 65], the model wants [96, 66]"));
    ck_assert_ptr_nonnull(strstr(ddp_error_line(), "no 'fc.weight', the model has no 'fc.bias'"));
    model[1].shape[1] = 65;
    ddp_assert_ok(ddp_checkpoint_check_model(checkpoint, model, CHECKPOINT_TENSORS, allow, 2));
    ddp_assert_fails(ddp_checkpoint_check_model(checkpoint, model, 2, allow, 1), DDP_ERR_MISMATCH,
                     "the model has no 'bn1.running_mean'");
    ddp_assert_ok(ddp_checkpoint_check_model(checkpoint, model, 2, allow, 2));
    ddp_checkpoint_close(&checkpoint);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("checkpoint");
    TCase *tcase = tcase_create("all");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, crc32c_is_that_of_the_standard);
    tcase_add_test(tcase, sums_of_two_pieces_combine);
    tcase_add_test(tcase, everything_that_was_written_is_read);
    tcase_add_test(tcase, a_loss_scale_is_there_where_a_run_has_one);
    tcase_add_test(tcase, any_reader_of_hdf5_opens_it);
    tcase_add_test(tcase, the_same_state_gives_the_same_bytes);
    tcase_add_test(tcase, a_flipped_bit_anywhere_is_refused);
    tcase_add_test(tcase, a_file_of_another_length_is_refused);
    tcase_add_test(tcase, what_is_no_checkpoint_is_named);
    tcase_add_test(tcase, a_sealed_file_without_hdf5_is_refused);
    tcase_add_test(tcase, only_names_of_checkpoints_are_listed_newest_first);
    tcase_add_test(tcase, the_newest_that_verifies_is_opened);
    tcase_add_test(tcase, a_model_that_does_not_fit_is_told_by_name_and_shape);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
