#include <stdint.h>
#include <sys/stat.h>

#include "io/sampler.h"
#include "io/tokens.h"
#include "tests/io/io_test.h"

#define CONTEXT 4
#define VOCAB   50257

static char          folder[IO_TEST_PATH];
static char          path[2 * IO_TEST_PATH];
static ddp_tokens_t *tokens;

static void setup(void)
{
    io_test_make(folder);
    tokens = NULL;
}

static void teardown(void)
{
    ddp_tokens_close(&tokens);
    io_test_remove(folder);
}

static ddp_tokens_params_t params_of(ddp_tokens_format_t format, const char *name)
{
    ddp_tokens_params_t params = DDP_TOKENS_PARAMS_INIT;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    params.format  = format;
    params.path    = path;
    params.context = CONTEXT;
    params.vocab   = VOCAB;
    return params;
}

static ddp_status_t open_params(const ddp_tokens_params_t *params)
{
    ddp_tokens_close(&tokens);
    return ddp_tokens_open(params, &tokens);
}

static ddp_status_t open_file(ddp_tokens_format_t format, const char *name)
{
    const ddp_tokens_params_t params = params_of(format, name);

    return open_params(&params);
}

/* Token i of the shard that begins with `first` */
static uint16_t token_of(unsigned first, size_t i)
{
    return (uint16_t)((first + 1000 * i) % VOCAB);
}

static void put32(unsigned char *to, uint32_t value)
{
    for (int byte = 0; byte < 4; byte++) {
        to[byte] = (unsigned char)(value >> (8 * byte));
    }
}

/* A shard as llm.c writes it, built byte by byte; returns its size. */
static size_t make_llmc(unsigned char *data, unsigned first, uint32_t n)
{
    memset(data, 0, 1024);
    put32(data, 20240520);
    put32(data + 4, 1);
    put32(data + 8, n);
    for (size_t i = 0; i < n; i++) {
        data[1024 + 2 * i] = (unsigned char)(token_of(first, i) & 0xff);
        data[1025 + 2 * i] = (unsigned char)(token_of(first, i) >> 8);
    }
    return 1024 + 2 * (size_t)n;
}

static void write_llmc(const char *name, unsigned first, uint32_t n)
{
    unsigned char data[2048];

    io_test_write(folder, name, data, make_llmc(data, first, n));
}

/* Sequence `index` is the tokens from `start` on of the shard that begins with `first`. */
static void check_sequence(size_t index, unsigned first, size_t start)
{
    int32_t inputs[CONTEXT + 2];
    int32_t targets[CONTEXT + 2];

    inputs[0] = inputs[CONTEXT + 1] = targets[0] = targets[CONTEXT + 1] = -77;
    ddp_assert_ok(ddp_tokens_fetch(tokens, &index, 1, inputs + 1, targets + 1));
    for (size_t i = 0; i < CONTEXT; i++) {
        ck_assert_int_eq(inputs[i + 1], token_of(first, start + i));
        ck_assert_int_eq(targets[i + 1], token_of(first, start + i + 1));
    }
    ck_assert_int_eq(inputs[0], -77);
    ck_assert_int_eq(inputs[CONTEXT + 1], -77);
    ck_assert_int_eq(targets[0], -77);
    ck_assert_int_eq(targets[CONTEXT + 1], -77);
}

START_TEST(a_shard_of_llmc_is_read_and_its_sequences_follow_each_other)
{
    /* 12 tokens: targets are tokens 1 .. 8; one more token makes a third sequence */
    write_llmc("a.bin", 40000, 12);
    ddp_assert_ok(open_file(DDP_TOKENS_LLMC, "a.bin"));
    ck_assert_uint_eq(ddp_tokens_info(tokens)->sequences, 2);
    ck_assert_uint_eq(ddp_tokens_info(tokens)->tokens, 12);
    check_sequence(0, 40000, 0);
    check_sequence(1, 40000, 4);
    write_llmc("a.bin", 40000, 13);
    ddp_assert_ok(open_file(DDP_TOKENS_LLMC, "a.bin"));
    ck_assert_uint_eq(ddp_tokens_info(tokens)->sequences, 3);
    check_sequence(2, 40000, 8);
}
END_TEST

START_TEST(shards_that_match_a_pattern_are_taken_in_the_order_of_their_names)
{
    write_llmc("t_2.bin", 2, 9);  /* 2 sequences */
    write_llmc("t_10.bin", 1, 5); /* 1 */
    write_llmc("t_11.bin", 7, 4); /* too short for one */
    write_llmc("t_12.bin", 9, 0);
    write_llmc("t_3.bin", 3, 6); /* 1 */
    write_llmc("other.bin", 5, 90);
    ddp_assert_ok(open_file(DDP_TOKENS_LLMC, "t_*.bin"));
    ck_assert_uint_eq(ddp_tokens_info(tokens)->shards, 5);
    ck_assert_uint_eq(ddp_tokens_info(tokens)->sequences, 4);
    ck_assert_uint_eq(ddp_tokens_info(tokens)->tokens, 24);
    ck_assert_ptr_nonnull(strstr(ddp_tokens_info(tokens)->source, "t_*.bin (5 shards)"));
    check_sequence(0, 1, 0);
    check_sequence(1, 2, 0);
    check_sequence(2, 2, 4);
    check_sequence(3, 3, 0);
    write_llmc("[x]*.bin", 6, 5); /* a file of this very name comes first */
    ddp_assert_ok(open_file(DDP_TOKENS_LLMC, "[x]*.bin"));
    check_sequence(0, 6, 0);
}
END_TEST

START_TEST(raw_tokens_of_two_and_four_bytes_are_read)
{
    const unsigned char narrow[10] = {0x01, 0x00, 0xff, 0x00, 0x50, 0xc4, 0x02, 0x01, 0x00, 0x80};
    const unsigned char wide[20]   = {0x50, 0xc4, 0, 0, 0x51, 0xc4, 0, 0, 1, 0, 1, 0, 7, 0, 0, 0, 8, 0, 0, 0};
    const int32_t       narrows[5] = {1, 255, 0xc450, 0x102, 0x8000};
    const int32_t       wides[5]   = {0xc450, 0xc451, 0x10001, 7, 8};
    ddp_tokens_params_t params;
    const size_t        zero = 0;
    int32_t             inputs[CONTEXT];
    int32_t             targets[CONTEXT];

    io_test_write(folder, "n.bin", narrow, sizeof(narrow));
    io_test_write(folder, "w.bin", wide, sizeof(wide));
    ddp_assert_ok(open_file(DDP_TOKENS_UINT16, "n.bin"));
    ddp_assert_ok(ddp_tokens_fetch(tokens, &zero, 1, inputs, targets));
    ck_assert_mem_eq(inputs, narrows, sizeof(inputs));
    ck_assert_mem_eq(targets, narrows + 1, sizeof(targets));
    params       = params_of(DDP_TOKENS_UINT32, "w.bin");
    params.vocab = 70000;
    ddp_assert_ok(open_params(&params));
    ddp_assert_ok(ddp_tokens_fetch(tokens, &zero, 1, inputs, targets));
    ck_assert_mem_eq(inputs, wides, sizeof(inputs));
    ck_assert_mem_eq(targets, wides + 1, sizeof(targets));
}
END_TEST

START_TEST(text_is_its_bytes)
{
    const char          text[]     = "na\xc3\xafve!\n\xff";
    const size_t        both[2]    = {1, 0};
    const int32_t       wanted[8]  = {'v', 'e', '!', '\n', 'n', 'a', 0xc3, 0xaf};
    const int32_t       follows[8] = {'e', '!', '\n', 0xff, 'a', 0xc3, 0xaf, 'v'};
    ddp_tokens_params_t params;
    int32_t             inputs[8];
    int32_t             targets[8];

    io_test_write(folder, "a.txt", text, 9);
    params       = params_of(DDP_TOKENS_TEXT, "a.txt");
    params.vocab = 256;
    ddp_assert_ok(open_params(&params));
    ck_assert_uint_eq(ddp_tokens_info(tokens)->sequences, 2);
    ddp_assert_ok(ddp_tokens_fetch(tokens, both, 2, inputs, targets));
    ck_assert_mem_eq(inputs, wanted, sizeof(inputs));
    ck_assert_mem_eq(targets, follows, sizeof(targets));
    params.vocab = 255;
    ddp_assert_fails(open_params(&params), DDP_ERR_CONFIG, "vocabulary 255 is too small for text");
}
END_TEST

START_TEST(the_last_share_of_the_sequences_is_the_test_split)
{
    ddp_tokens_params_t params;

    write_llmc("a.bin", 0, 4 * CONTEXT + 1);
    write_llmc("b.bin", 100, 6 * CONTEXT + 1);
    params              = params_of(DDP_TOKENS_LLMC, "?.bin");
    params.val_fraction = 0.25; /* of 10: 3 */
    ddp_assert_ok(open_params(&params));
    ck_assert_uint_eq(ddp_tokens_info(tokens)->sequences, 7);
    check_sequence(0, 0, 0);
    check_sequence(6, 100, 2 * CONTEXT);
    params.split = DDP_SPLIT_TEST;
    ddp_assert_ok(open_params(&params));
    ck_assert_uint_eq(ddp_tokens_info(tokens)->sequences, 3);
    check_sequence(0, 100, 3 * CONTEXT);
    check_sequence(2, 100, 5 * CONTEXT);
    params.val_fraction = 0.001;
    ddp_assert_ok(open_params(&params));
    ck_assert_uint_eq(ddp_tokens_info(tokens)->sequences, 1);
    params.val_fraction = 1.0;
    ddp_assert_fails(open_params(&params), DDP_ERR_CONFIG, "data.val_fraction is 1");
    write_llmc("only.bin", 0, CONTEXT + 1);
    params              = params_of(DDP_TOKENS_LLMC, "only.bin");
    params.val_fraction = 0.5;
    ddp_assert_fails(open_params(&params), DDP_ERR_CONFIG, "one sequence, which cannot be split");
}
END_TEST

/* Every target once in an epoch, whatever the order. */
START_TEST(an_epoch_in_the_samplers_order_has_every_target_once)
{
    unsigned char seen[9 * CONTEXT + 1] = {0};
    int32_t       inputs[CONTEXT];
    int32_t       targets[CONTEXT];
    uint16_t      numbers[9 * CONTEXT + 1];

    for (size_t i = 0; i <= 9 * CONTEXT; i++) {
        numbers[i] = (uint16_t)i;
    }
    io_test_write(folder, "n.bin", numbers, sizeof(numbers));
    ddp_assert_ok(open_file(DDP_TOKENS_UINT16, "n.bin"));
    for (size_t i = 0; i < 9; i++) {
        const size_t index = ddp_sampler_index(3, 1, ddp_tokens_info(tokens)->sequences, i);

        ddp_assert_ok(ddp_tokens_fetch(tokens, &index, 1, inputs, targets));
        for (size_t k = 0; k < CONTEXT; k++) {
            seen[targets[k]]++;
        }
    }
    for (size_t i = 0; i <= 9 * CONTEXT; i++) {
        ck_assert_uint_eq(seen[i], i > 0);
    }
}
END_TEST

START_TEST(shards_beyond_2_gib_are_read_to_their_end)
{
    const uint32_t      n               = 1500000001; /* 3 GB, nearly all of them a hole */
    const off_t         size            = 1024 + 2 * (off_t)n;
    const unsigned char end[8]          = {1, 0, 2, 0, 3, 0, 4, 0};
    const size_t        last            = (n - 1) / CONTEXT - 1;
    const int32_t       wanted[CONTEXT] = {1, 2, 3, 4};
    unsigned char       header[1024];
    int32_t             inputs[CONTEXT];
    int32_t             targets[CONTEXT];
    FILE               *file;

    (void)make_llmc(header, 0, 0);
    put32(header + 8, n);
    snprintf(path, sizeof(path), "%s/large.bin", folder);
    file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(header, 1, sizeof(header), file), sizeof(header));
    ck_assert_int_eq(fseeko(file, size - 8, SEEK_SET), 0);
    ck_assert_uint_eq(fwrite(end, 1, sizeof(end), file), sizeof(end));
    ck_assert_int_eq(fclose(file), 0);
    ddp_assert_ok(open_file(DDP_TOKENS_LLMC, "large.bin"));
    ck_assert_uint_eq(ddp_tokens_info(tokens)->sequences, last + 1);
    ddp_assert_ok(ddp_tokens_fetch(tokens, &last, 1, inputs, targets));
    ck_assert_mem_eq(targets, wanted, sizeof(wanted));
    ck_assert_int_eq(inputs[0], 0);
    ck_assert_int_eq(truncate(path, size - 2), 0);
    ddp_assert_fails(open_file(DDP_TOKENS_LLMC, "large.bin"), DDP_ERR_FORMAT,
                     "expected 3000001026 bytes, found 3000001024");
}
END_TEST

START_TEST(wrong_headers_and_lengths_are_named_with_offset_expected_and_found)
{
    unsigned char data[2048];
    const size_t  size = make_llmc(data, 0, 12);

    io_test_write(folder, "a.bin", data, size - 1);
    ddp_assert_fails(open_file(DDP_TOKENS_LLMC, "a.bin"), DDP_ERR_FORMAT,
                     "a.bin': cut short: offset 8 promises 12 tokens: expected 1048 bytes, found 1047");
    io_test_write(folder, "a.bin", data, size + 2);
    ddp_assert_fails(open_file(DDP_TOKENS_LLMC, "a.bin"), DDP_ERR_FORMAT,
                     "offset 1048: expected the end of the file after 12 tokens, found 2 bytes left over");
    io_test_write(folder, "a.bin", data, 1023);
    ddp_assert_fails(open_file(DDP_TOKENS_LLMC, "a.bin"), DDP_ERR_FORMAT,
                     "cut short: expected a header of 1024 bytes, found 1023");
    put32(data, 20240522);
    io_test_write(folder, "a.bin", data, size);
    ddp_assert_fails(open_file(DDP_TOKENS_LLMC, "a.bin"), DDP_ERR_FORMAT,
                     "offset 0: expected 20240520, with which llm.c's shards begin, found 20240522");
    put32(data, 20240520);
    put32(data + 4, 7);
    io_test_write(folder, "a.bin", data, size);
    ddp_assert_fails(open_file(DDP_TOKENS_LLMC, "a.bin"), DDP_ERR_FORMAT,
                     "offset 4: expected version 1 (uint16 tokens), found 7");
    io_test_write(folder, "a.bin", data, 15);
    ddp_assert_fails(open_file(DDP_TOKENS_UINT16, "a.bin"), DDP_ERR_FORMAT,
                     "a multiple of 2 bytes, found 15");
    io_test_write(folder, "a.bin", data, 18);
    ddp_assert_fails(open_file(DDP_TOKENS_UINT32, "a.bin"), DDP_ERR_FORMAT,
                     "a multiple of 4 bytes, found 18");
    io_test_write(folder, "a.bin", data, 0);
    ddp_assert_fails(open_file(DDP_TOKENS_TEXT, "a.bin"), DDP_ERR_FORMAT,
                     "expected tokens, found an empty file");
    ck_assert_ptr_null(tokens);
}
END_TEST

START_TEST(one_bad_shard_of_several_is_named)
{
    write_llmc("t_1.bin", 0, 9);
    write_llmc("t_2.bin", 0, 9);
    io_test_write(folder, "t_3.bin", "x", 1);
    ddp_assert_fails(open_file(DDP_TOKENS_LLMC, "t_*.bin"), DDP_ERR_FORMAT, "t_3.bin': cut short");
}
END_TEST

START_TEST(a_token_beyond_the_vocabulary_is_named_with_file_and_offset)
{
    const unsigned char huge[20] = {[15] = 0x80};
    ddp_tokens_params_t params;
    const size_t        both[2] = {0, 1};
    int32_t             inputs[2 * CONTEXT];
    int32_t             targets[2 * CONTEXT];

    write_llmc("a.bin", 0, 9); /* 0, 1000 .. 8000 */
    params       = params_of(DDP_TOKENS_LLMC, "a.bin");
    params.vocab = 8000;
    ddp_assert_ok(open_params(&params));
    ddp_assert_ok(ddp_tokens_fetch(tokens, both, 1, inputs, targets));
    ddp_assert_fails(ddp_tokens_fetch(tokens, both, 2, inputs, targets), DDP_ERR_FORMAT,
                     "a.bin': offset 1040: expected tokens below the vocabulary of 8000, found 8000");
    io_test_write(folder, "w.bin", huge, sizeof(huge));
    params       = params_of(DDP_TOKENS_UINT32, "w.bin");
    params.vocab = SIZE_MAX;
    ddp_assert_ok(open_params(&params));
    ddp_assert_fails(ddp_tokens_fetch(tokens, both, 1, inputs, targets), DDP_ERR_FORMAT, "found 2147483648");
}
END_TEST

START_TEST(a_context_longer_than_the_data_is_refused)
{
    write_llmc("a.bin", 0, CONTEXT);
    write_llmc("b.bin", 0, 2);
    ddp_assert_fails(open_file(DDP_TOKENS_LLMC, "a.bin"), DDP_ERR_CONFIG,
                     "context 4 is longer than the data: expected 5 tokens or more, found 4");
    ddp_assert_fails(open_file(DDP_TOKENS_LLMC, "?.bin"), DDP_ERR_CONFIG, "found 4 in the longest shard");
}
END_TEST

START_TEST(missing_files_and_wrong_parameters_are_refused)
{
    ddp_tokens_params_t params = params_of(DDP_TOKENS_LLMC, "none*.bin");

    ddp_assert_fails(open_params(&params), DDP_ERR_IO, "none*.bin': no such file, and none matches");
    ddp_assert_fails(open_file(DDP_TOKENS_TEXT, ""), DDP_ERR_IO, "a folder, not a regular file");
    params      = params_of(DDP_TOKENS_LLMC, "a.bin");
    params.path = NULL;
    ddp_assert_fails(open_params(&params), DDP_ERR_CONFIG, "data.path is missing");
    params         = params_of(DDP_TOKENS_LLMC, "a.bin");
    params.context = 0;
    ddp_assert_fails(open_params(&params), DDP_ERR_CONFIG, "context 0");
    params       = params_of(DDP_TOKENS_LLMC, "a.bin");
    params.split = (ddp_split_t)2;
    ddp_assert_fails(open_params(&params), DDP_ERR_INVALID_ARG, "split 2");
    params = params_of((ddp_tokens_format_t)9, "a.bin");
    ddp_assert_fails(open_params(&params), DDP_ERR_INVALID_ARG, "format 9");
    params.struct_size = 1;
    ddp_assert_fails(open_params(&params), DDP_ERR_INVALID_ARG, "DDP_TOKENS_PARAMS_INIT");
}
END_TEST

START_TEST(the_digest_tells_other_files_apart)
{
    uint64_t first;

    write_llmc("a.bin", 0, 9);
    ddp_assert_ok(open_file(DDP_TOKENS_LLMC, "a.bin"));
    first = ddp_tokens_info(tokens)->digest;
    write_llmc("b.bin", 0, 9);
    ddp_assert_ok(open_file(DDP_TOKENS_LLMC, "b.bin"));
    ck_assert(ddp_tokens_info(tokens)->digest == first);
    write_llmc("b.bin", 1, 9);
    ddp_assert_ok(open_file(DDP_TOKENS_LLMC, "b.bin"));
    ck_assert(ddp_tokens_info(tokens)->digest != first);
}
END_TEST

START_TEST(the_digest_looks_at_places_in_the_middle_too)
{
    static const size_t other[] = {0, 1, 777, 2000, 3999};
    char                text[4000];
    uint64_t            first;

    memset(text, 'a', sizeof(text));
    io_test_write(folder, "a.txt", text, sizeof(text));
    ddp_assert_ok(open_file(DDP_TOKENS_TEXT, "a.txt"));
    first = ddp_tokens_info(tokens)->digest;
    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
        text[other[i]] = 'b';
        io_test_write(folder, "b.txt", text, sizeof(text));
        ddp_assert_ok(open_file(DDP_TOKENS_TEXT, "b.txt"));
        ck_assert(ddp_tokens_info(tokens)->digest != first);
        text[other[i]] = 'a';
    }
}
END_TEST

START_TEST(what_a_file_is_shows_in_its_first_bytes_or_its_name)
{
    static const struct {
        const char         *name;
        ddp_tokens_format_t format;
    } wanted[] = {{"a.bin", DDP_TOKENS_UINT16},    {"a.u16", DDP_TOKENS_UINT16},
                  {"a.uint16", DDP_TOKENS_UINT16}, {"a.u32", DDP_TOKENS_UINT32},
                  {"a.txt", DDP_TOKENS_TEXT},      {"abin", DDP_TOKENS_TEXT},
                  {"a.uint32", DDP_TOKENS_UINT32}};
    ddp_tokens_format_t format;

    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        io_test_write(folder, wanted[i].name, "abc", 3);
        snprintf(path, sizeof(path), "%s/%s", folder, wanted[i].name);
        ddp_assert_ok(ddp_tokens_detect(path, &format));
        ck_assert_int_eq(format, wanted[i].format);
        write_llmc(wanted[i].name, 1, 12);
        ddp_assert_ok(ddp_tokens_detect(path, &format));
        ck_assert_int_eq(format, DDP_TOKENS_LLMC);
    }
    io_test_write(folder, "b1.u32", "abcd", 4);
    snprintf(path, sizeof(path), "%s/b*", folder);
    ddp_assert_ok(ddp_tokens_detect(path, &format));
    ck_assert_int_eq(format, DDP_TOKENS_UINT32);
    snprintf(path, sizeof(path), "%s/c*", folder);
    ddp_assert_fails(ddp_tokens_detect(path, &format), DDP_ERR_IO, "none matches");
    io_test_write(folder, "empty", "", 0);
    snprintf(path, sizeof(path), "%s/empty", folder);
    ddp_assert_fails(ddp_tokens_detect(path, &format), DDP_ERR_FORMAT, "an empty file");
}
END_TEST

START_TEST(only_the_first_sequences_of_a_split_are_used_where_that_is_asked_for)
{
    ddp_tokens_params_t params = params_of(DDP_TOKENS_LLMC, "a.bin");

    write_llmc("a.bin", 40000, 4 * 10 + 1);
    params.val_fraction = 0.5;
    params.split        = DDP_SPLIT_TEST;
    params.samples      = 2;
    ddp_assert_ok(open_params(&params));
    ck_assert_uint_eq(ddp_tokens_info(tokens)->sequences, 2);
    check_sequence(0, 40000, 20);
    check_sequence(1, 40000, 24);
    params.samples = 6;
    ddp_assert_ok(open_params(&params));
    ck_assert_uint_eq(ddp_tokens_info(tokens)->sequences, 5);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tokens");
    TCase *tcase = tcase_create("all");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_shard_of_llmc_is_read_and_its_sequences_follow_each_other);
    tcase_add_test(tcase, shards_that_match_a_pattern_are_taken_in_the_order_of_their_names);
    tcase_add_test(tcase, raw_tokens_of_two_and_four_bytes_are_read);
    tcase_add_test(tcase, text_is_its_bytes);
    tcase_add_test(tcase, the_last_share_of_the_sequences_is_the_test_split);
    tcase_add_test(tcase, an_epoch_in_the_samplers_order_has_every_target_once);
    tcase_add_test(tcase, shards_beyond_2_gib_are_read_to_their_end);
    tcase_add_test(tcase, wrong_headers_and_lengths_are_named_with_offset_expected_and_found);
    tcase_add_test(tcase, one_bad_shard_of_several_is_named);
    tcase_add_test(tcase, a_token_beyond_the_vocabulary_is_named_with_file_and_offset);
    tcase_add_test(tcase, a_context_longer_than_the_data_is_refused);
    tcase_add_test(tcase, missing_files_and_wrong_parameters_are_refused);
    tcase_add_test(tcase, the_digest_tells_other_files_apart);
    tcase_add_test(tcase, the_digest_looks_at_places_in_the_middle_too);
    tcase_add_test(tcase, what_a_file_is_shows_in_its_first_bytes_or_its_name);
    tcase_add_test(tcase, only_the_first_sequences_of_a_split_are_used_where_that_is_asked_for);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
