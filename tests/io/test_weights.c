#include <math.h>
#include <sys/stat.h>

#include "tests/io/checkpoint_file.h"
#include "tests/io/weights_file.h"

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

static void expect_plain(const char *path, ddp_weights_kind_t kind)
{
    ddp_weights_t *w = NULL;

    ddp_assert_ok(open_file(path, &w));
    ck_assert_int_eq(ddp_weights_kind(w), kind);
    ck_assert_uint_eq(ddp_weights_count(w), 4);
    expect(w, "fc2.bias", 0, DDP_WEIGHTS_F32, "3 ");
    expect(w, "conv1.weight", 1, DDP_WEIGHTS_F32, "5 3 3 3 ");
    expect(w, "a \"quoted\\ name\303\251", 2, DDP_WEIGHTS_F32, "2 1 7 ");
    expect(w, "fc1.weight", 3, DDP_WEIGHTS_F32, "9 11 ");
    ddp_weights_close(&w);
    ck_assert_ptr_null(w);
}

static void convert(const char *from, const char *to, ddp_weights_kind_t kind)
{
    ddp_weights_t *w = NULL;

    ddp_assert_ok(open_file(from, &w));
    ddp_assert_ok(ddp_weights_write(w, to, kind, false, "test"));
    ddp_weights_close(&w);
}

static void expect_same_bytes(const char *a, const char *b)
{
    FILE *x = fopen(a, "rb");
    FILE *y = fopen(b, "rb");
    int   c = 0;

    ck_assert(x != NULL && y != NULL);
    while (c != EOF) {
        c = getc(x);
        ck_assert_int_eq(c, getc(y));
    }
    (void)fclose(x);
    (void)fclose(y);
}

START_TEST(files_of_the_python_packages_are_read)
{
    expect_plain(data("plain.safetensors"), DDP_WEIGHTS_SAFETENSORS);
    expect_plain(data("stored.npz"), DDP_WEIGHTS_NPZ);
}
END_TEST

START_TEST(safetensors_are_written_as_the_package_writes_them)
{
    char path[2 * IO_TEST_PATH];

    snprintf(path, sizeof(path), "%s", under("a.safetensors"));
    convert(data("stored.npz"), path, DDP_WEIGHTS_SAFETENSORS);
    expect_same_bytes(path, data("plain.safetensors"));
}
END_TEST

START_TEST(every_kind_is_read_after_it_was_written)
{
    char npz[2 * IO_TEST_PATH];
    char h5[2 * IO_TEST_PATH];

    snprintf(npz, sizeof(npz), "%s", under("a.npz"));
    snprintf(h5, sizeof(h5), "%s", under("a.h5"));
    convert(data("plain.safetensors"), npz, DDP_WEIGHTS_NPZ);
    expect_plain(npz, DDP_WEIGHTS_NPZ);
    convert(npz, h5, DDP_WEIGHTS_CHECKPOINT);
    expect_plain(h5, DDP_WEIGHTS_CHECKPOINT);
    ddp_assert_ok(ddp_checkpoint_verify(h5, NULL));
}
END_TEST

START_TEST(all_types_of_float_are_read)
{
    ddp_weights_t *w = NULL;
    float          one;

    ddp_assert_ok(open_file(data("mixed.safetensors"), &w));
    expect(w, "module._orig_mod.a.weight", 0, DDP_WEIGHTS_F32, "4 5 ");
    expect(w, "module._orig_mod.b.weight", 1, DDP_WEIGHTS_F16, "33 ");
    expect(w, "module._orig_mod.c.weight", 2, DDP_WEIGHTS_BF16, "2 3 4 ");
    expect(w, "module._orig_mod.d.running_var", 3, DDP_WEIGHTS_F64, "6 ");
    ddp_assert_fails(
        ddp_weights_read(w, ddp_weights_find(w, "module._orig_mod.d.num_batches_tracked"), 0, 1, &one),
        DDP_ERR_INVALID_ARG, "no floats");
    ddp_assert_fails(ddp_weights_read(w, ddp_weights_find(w, "module._orig_mod.a.weight"), 19, 2, &one),
                     DDP_ERR_INVALID_ARG, "do not exist");
    ddp_weights_close(&w);
    ddp_assert_ok(open_file(data("deflated.npz"), &w));
    expect(w, "plain", 3, DDP_WEIGHTS_F32, "100 200 ");
    expect(w, "half", 0, DDP_WEIGHTS_F16, "40 40 "); /* backwards too */
    expect(w, "wide", 1, DDP_WEIGHTS_F64, "7 ");
    expect(w, "one", 2, DDP_WEIGHTS_F32, "");
    ddp_weights_close(&w);
}
END_TEST

static void count_line(void *ctx, const char *line)
{
    ck_assert(line[0] != '\0');
    ++*(int *)ctx;
}

START_TEST(names_of_wrappers_are_adopted)
{
    ddp_weights_t *w     = NULL;
    int            lines = 0;
    size_t         at;

    ddp_assert_ok(open_file(data("mixed.safetensors"), &w));
    ddp_assert_ok(ddp_weights_adopt(w, false, count_line, &lines));
    ck_assert_int_eq(lines, 2); /* prefixes; an array of integers */
    ck_assert_uint_eq(ddp_weights_count(w), 4);
    expect(w, "b.weight", 1, DDP_WEIGHTS_F16, "33 ");
    at = ddp_weights_find(w, "d.running_var");
    ck_assert_uint_lt(at, 4);
    ck_assert_int_eq(ddp_weights_tensors(w)[at].desc.role, DDP_TENSOR_AVERAGE);
    ddp_weights_close(&w);
}
END_TEST

START_TEST(gpt2_of_the_hub_gets_the_names_of_the_model)
{
    ddp_weights_t *w     = NULL;
    int            lines = 0;

    ddp_assert_ok(open_file(data("gpt2_hub.safetensors"), &w));
    ck_assert_uint_eq(ddp_weights_count(w), 31);
    ddp_assert_ok(ddp_weights_adopt(w, false, count_line, &lines));
    ck_assert_int_eq(lines, 3); /* transformer., masks, lm_head */
    ck_assert_uint_eq(ddp_weights_count(w), 28);
    for (size_t i = 0; i < 28; i++) {
        ck_assert_int_eq(strncmp(ddp_weights_tensors(w)[i].desc.name, "transformer.", 12), 0);
    }
    ck_assert_uint_lt(ddp_weights_find(w, "transformer.h.1.attn.c_attn.bias"), 28);
    ddp_weights_close(&w);
}
END_TEST

/* As if every number in it were beyond 32 bits; launcher.weights.large has real ones. */
START_TEST(numbers_of_npz_may_be_large)
{
    static unsigned char bytes[8192];
    FILE                *file = NULL;
    size_t               n    = 0;

    ck_assert_int_eq(setenv("DDP_FAULT", "npz_large:0", 1), 0);
    convert(data("plain.safetensors"), under("large.npz"), DDP_WEIGHTS_NPZ);
    ck_assert_int_eq(unsetenv("DDP_FAULT"), 0);
    expect_plain(under("large.npz"), DDP_WEIGHTS_NPZ);
    file = fopen(under("large.npz"), "rb");
    ck_assert_ptr_nonnull(file);
    n = fread(bytes, 1, sizeof(bytes), file);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_mem_eq(bytes + n - 22, "PK\005\006", 4);
    ck_assert_mem_eq(bytes + n - 14, "\377\377\377\377\377\377\377\377\377\377\377\377",
                     12);                              /* all in zip64 */
    for (size_t at = n - 22 - 20 - 56; at < n; at++) { /* its records damaged */
        ddp_weights_t *w = NULL;

        bytes[at] ^= 0x11;
        io_test_write(top, "damaged.npz", bytes, n);
        bytes[at] ^= 0x11;
        if (open_file(under("damaged.npz"), &w) == DDP_OK) {
            ck_assert_uint_eq(ddp_weights_count(w), 4);
        }
        ddp_weights_close(&w);
    }
}
END_TEST

/* A checkpoint's moments go along if they are wanted. */
START_TEST(checkpoints_become_files_of_all_kinds)
{
    char           from[2 * IO_TEST_PATH];
    ddp_weights_t *w = NULL;
    ddp_weights_t *v = NULL;
    float          x[6240];

    snprintf(from, sizeof(from), "%s", under("c.h5"));
    checkpoint_write(from, 5);
    ddp_assert_ok(open_file(from, &w));
    ck_assert_uint_eq(ddp_weights_count(w), 4 + 2 * 3);
    ddp_assert_ok(ddp_weights_write(w, under("all.npz"), DDP_WEIGHTS_NPZ, true, "test"));
    ddp_assert_ok(ddp_weights_write(w, under("some.safetensors"), DDP_WEIGHTS_SAFETENSORS, false, "test"));
    ddp_weights_close(&w);
    ddp_assert_ok(open_file(under("some.safetensors"), &v));
    ck_assert_uint_eq(ddp_weights_count(v), 4);
    ddp_weights_close(&v);
    ddp_assert_ok(open_file(under("all.npz"), &v));
    ck_assert_uint_eq(ddp_weights_count(v), 10);
    ddp_assert_ok(
        ddp_weights_read(v, ddp_weights_find(v, "optimizer.exp_avg_sq.h.0.attn.c_attn.weight"), 0, 6240, x));
    for (size_t i = 0; i < 6240; i++) {
        ck_assert(x[i] == checkpoint_value(5, 1, 1, i));
    }
    ddp_weights_close(&v);
}
END_TEST

START_TEST(nothing_is_written_over)
{
    ddp_weights_t *w = NULL;

    io_test_write(top, "there.npz", "x", 1);
    ddp_assert_ok(open_file(data("stored.npz"), &w));
    ddp_assert_fails(ddp_weights_write(w, under("there.npz"), DDP_WEIGHTS_NPZ, false, "test"), DDP_ERR_IO,
                     "there.npz");
    ck_assert_int_ne(access(under("there.npz.part"), F_OK), 0);
    ddp_weights_close(&w);
}
END_TEST

/* A safetensors file of this header, with `bytes` of zeros behind it. */
static void refuse(const char *header, size_t bytes, const char *text)
{
    static unsigned char file[65536];
    const size_t         n = strlen(header);
    ddp_weights_t       *w = NULL;

    memset(file, 0, sizeof(file));
    ck_assert_uint_le(n + 8 + bytes, sizeof(file));
    file[0] = (unsigned char)n;
    file[1] = (unsigned char)(n >> 8);
    memcpy(file + 8, header, n);
    io_test_write(top, "bad.safetensors", file, 8 + n + bytes);
    ddp_assert_fails(open_file(under("bad.safetensors"), &w), DDP_ERR_FORMAT, text);
    ck_assert_ptr_null(w);
}

#define TENSOR(shape, offsets) "{\"a\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

START_TEST(hostile_safetensors_headers_are_refused)
{
    static char deep[20001];

    refuse("{\"a\":{\"dtype\":\"F3\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "unknown dtype 'F3'");
    refuse("{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "unknown dtype");
    refuse(TENSOR("[2]", "[0,4]"), 4, "larger than its 4 bytes");
    refuse(TENSOR("[1]", "[0,8]"), 8, "fills 4 of its 8 bytes");
    refuse(TENSOR("[4294967296,4294967296,4294967296]", "[0,4]"), 4, "larger than its");
    refuse(TENSOR("[0]", "[0,0]"), 0, "no elements");
    refuse(TENSOR("[-1]", "[0,4]"), 4, "whole numbers");
    refuse(TENSOR("[1.5]", "[0,4]"), 4, "whole numbers");
    refuse(TENSOR("[1e300]", "[0,4]"), 4, "whole numbers");
    refuse(TENSOR("[\"1\"]", "[0,4]"), 4, "whole numbers");
    refuse(TENSOR("[NaN]", "[0,4]"), 4, "no JSON");
    refuse(TENSOR("[1,1,1,1,1]", "[0,4]"), 4, "has 5 dimensions");
    refuse(TENSOR("[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "more than 8 entries");
    refuse(TENSOR("1", "[0,4]"), 4, "no list 'shape'");
    refuse(TENSOR("[1]", "[0]"), 4, "not within");
    refuse(TENSOR("[1]", "[0,4,8]"), 4, "more than 2 entries");
    refuse(TENSOR("[1]", "[4,0]"), 4, "not within");
    refuse(TENSOR("[2]", "[0,8]"), 4, "not within");
    refuse(TENSOR("[1]", "[4,8]"), 8, "begins at byte 4");
    refuse(TENSOR("[1]", "[0,4]"), 8, "fill 4 of 8 bytes");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
           "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
           12, "'b' begins at byte 4 of the data, the one before it ends at 8");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
           "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
           8, "two tensors are named 'a'");
    refuse("{\"\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "empty");
    refuse("{\"a\\nb\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "control character");
    refuse("{\"a\\u0000\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "zeros");
    refuse("{\"a\302\233b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
           "control character");
    refuse("{\"a\303(\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "not UTF-8");
    refuse("{\"a\303\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "not UTF-8");
    refuse(TENSOR("[1]", "[18446744073709551612,18446744073709551616]"), 4, "whole numbers");
    refuse(TENSOR("[1]", "[9007199254740988,9007199254740992]"), 4, "whole numbers");
    refuse(TENSOR("[1]", "[0,9007199254740991]"), 4, "not within");
    refuse("{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "unknown dtype ''");
    refuse("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "no list 'shape'");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "no list 'data_offsets'");
    refuse("{\"a\":{\"dtype\":\"I64\",\"shape\":[99],\"data_offsets\":[0,8]},"
           "\"b\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]}}",
           8, "'b' begins at byte 0 of the data, the one before it ends at 8"); /* integers are not read */
    refuse("{\"a\":3}", 0, "is no tensor");
    refuse("{}", 0, "no tensors");
    refuse("{} {}", 0, "more than one JSON object");
    refuse("[]", 0, "no JSON object");
    refuse("{\"a\"", 0, "no JSON");
    memset(deep, '[', sizeof(deep) - 1);
    memcpy(deep, "{\"a\":", 5);
    refuse(deep, 0, "no JSON");
}
END_TEST

static void refuse_bytes(const char *name, const char *bytes, size_t n, const char *text)
{
    ddp_weights_t *w = NULL;

    io_test_write(top, name, bytes, n);
    ddp_assert_fails(open_file(under(name), &w), DDP_ERR_FORMAT, text);
}

/* A header of five million values, and one of 101 MiB in a file that has them. */
START_TEST(large_headers_are_refused_before_they_are_parsed)
{
    const size_t   n    = 5000000;
    unsigned char *file = calloc(n + 8, 1);
    ddp_weights_t *w    = NULL;

    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < 3; i++) {
        file[i] = (unsigned char)(n >> (8 * i));
    }
    memset(file + 8, ',', n);
    memcpy(file + 8, "{\"a\":[0", 7);
    io_test_write(top, "many.safetensors", file, n + 8);
    ddp_assert_fails(open_file(under("many.safetensors"), &w), DDP_ERR_FORMAT,
                     "its header has more than 4194304 values");
    io_test_write(top, "long.safetensors", "\0\0\120\6\0\0\0\0{", 9);
    ck_assert_int_eq(truncate(under("long.safetensors"), 200000000), 0);
    ddp_assert_fails(open_file(under("long.safetensors"), &w), DDP_ERR_FORMAT,
                     "a header of 105906176 bytes, in a file of 200000000 (at most 104857600)");
    free(file);
}
END_TEST

START_TEST(lengths_of_headers_are_checked_first)
{
    refuse_bytes("a.safetensors", "\377\377\377\377\377\377\377\377{}", 10,
                 "a header of 18446744073709551615");
    refuse_bytes("a.safetensors", "\3\0\0\0\0\0\0\0{}", 10, "a header of 3 bytes, in a file of 10");
    refuse_bytes("a.safetensors", "\3\0", 2, "cut short");
    refuse_bytes("a.safetensors", "", 0, "cut short");
    refuse_bytes("a.bin", "something else", 14, "neither HDF5 nor safetensors nor npz");
}
END_TEST

/* A byte of a file changed, or its end cut off: refused, or the same names as before. */
static void damage(const char *name, size_t step)
{
    static unsigned char bytes[8192];
    FILE                *file = fopen(data(name), "rb");
    size_t               n;
    size_t               refused = 0;

    ck_assert_ptr_nonnull(file);
    n = fread(bytes, 1, sizeof(bytes), file);
    (void)fclose(file);
    for (size_t at = 0; at < n; at += step) {
        ddp_weights_t *w = NULL;
        float          values[128];
        ddp_status_t   status;

        bytes[at] ^= 0x5A;
        io_test_write(top, "damaged", bytes, n);
        bytes[at] ^= 0x5A;
        status = open_file(under("damaged"), &w);
        for (size_t t = 0; status == DDP_OK && t < ddp_weights_count(w); t++) {
            const ddp_weights_tensor_t *tensor = &ddp_weights_tensors(w)[t];

            if (tensor->type != DDP_WEIGHTS_OTHER) {
                status =
                    ddp_weights_read(w, t, 0, tensor->desc.count < 128 ? tensor->desc.count : 128, values);
            }
        }
        refused += status != DDP_OK;
        ddp_weights_close(&w);
        if (at > 0) {
            io_test_write(top, "cut", bytes, at);
            ddp_assert_fails(open_file(under("cut"), &w), DDP_ERR_FORMAT, "cut");
        }
    }
    ck_assert_uint_gt(refused, 0);
}

START_TEST(damaged_files_do_no_harm)
{
    damage("plain.safetensors", 5);
    damage("stored.npz", 11);
    damage("deflated.npz", 7);
}
END_TEST

START_TEST(a_changed_number_of_an_npz_is_noticed)
{
    static unsigned char bytes[4096];
    FILE                *file = fopen(data("stored.npz"), "rb");
    ddp_weights_t       *w    = NULL;
    float                x[3];
    size_t               n;

    ck_assert_ptr_nonnull(file);
    n = fread(bytes, 1, sizeof(bytes), file);
    (void)fclose(file);
    for (size_t i = 0; i + 12 < n; i++) { /* fc2.bias: its three numbers */
        const float first[3] = {value(0, 0), value(0, 1), value(0, 2)};

        if (memcmp(bytes + i, first, 12) == 0) {
            bytes[i + 5] ^= 1;
            break;
        }
    }
    io_test_write(top, "a.npz", bytes, n);
    ddp_assert_ok(open_file(under("a.npz"), &w));
    ddp_assert_fails(ddp_weights_read(w, ddp_weights_find(w, "fc2.bias"), 0, 3, x), DDP_ERR_FORMAT,
                     "checksum");
    ddp_weights_close(&w);
}
END_TEST

static void refuse_file(const char *name, const char *text)
{
    ddp_weights_t *w = NULL;

    ddp_assert_fails(open_file(data(name), &w), DDP_ERR_FORMAT, text);
}

START_TEST(arrays_that_cannot_be_taken_are_named)
{
    refuse_file("fortran.npz", "'x' is in Fortran's order");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("weights");
    TCase *good  = tcase_create("good files");
    TCase *bad   = tcase_create("bad files");

    tcase_add_checked_fixture(good, setup, teardown);
    tcase_add_test(good, files_of_the_python_packages_are_read);
    tcase_add_test(good, safetensors_are_written_as_the_package_writes_them);
    tcase_add_test(good, every_kind_is_read_after_it_was_written);
    tcase_add_test(good, all_types_of_float_are_read);
    tcase_add_test(good, names_of_wrappers_are_adopted);
    tcase_add_test(good, gpt2_of_the_hub_gets_the_names_of_the_model);
    tcase_add_test(good, numbers_of_npz_may_be_large);
    tcase_add_test(good, checkpoints_become_files_of_all_kinds);
    tcase_add_test(good, nothing_is_written_over);
    suite_add_tcase(suite, good);
    tcase_add_checked_fixture(bad, setup, teardown);
    tcase_add_test(bad, hostile_safetensors_headers_are_refused);
    tcase_add_test(bad, large_headers_are_refused_before_they_are_parsed);
    tcase_add_test(bad, lengths_of_headers_are_checked_first);
    tcase_add_test(bad, damaged_files_do_no_harm);
    tcase_add_test(bad, a_changed_number_of_an_npz_is_noticed);
    tcase_add_test(bad, arrays_that_cannot_be_taken_are_named);
    suite_add_tcase(suite, bad);
    return ddp_test_run(suite);
}
