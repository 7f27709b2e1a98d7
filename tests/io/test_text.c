#include <stdint.h>
#include <sys/stat.h>

#include "io/bpe.h"
#include "io/text.h"
#include "tests/io/io_test.h"

#define DATA     DDP_TEST_DATA_DIR "/bpe"
#define MAX_FILE ((size_t)1 << 23)

static char              folder[IO_TEST_PATH];
static char              in[2 * IO_TEST_PATH], out[2 * IO_TEST_PATH];
static ddp_text_params_t params;
static ddp_text_report_t report;
static unsigned char    *content; /* [MAX_FILE] */

static void setup(void)
{
    io_test_make(folder);
    content = malloc(MAX_FILE);
    ck_assert_ptr_nonnull(content);
    snprintf(in, sizeof(in), "%s/in.txt", folder);
    snprintf(out, sizeof(out), "%s/out.bin", folder);
    params     = (ddp_text_params_t)DDP_TEXT_PARAMS_INIT;
    params.in  = in;
    params.out = out;
}

static void teardown(void)
{
    free(content);
    io_test_remove(folder);
}

/* A file of the folder into `content`; its size, or -1: there is none. */
static long read_file(const char *name)
{
    char   path[2 * IO_TEST_PATH];
    FILE  *file;
    size_t n;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "rb");
    if (file == NULL) {
        return -1;
    }
    n = fread(content, 1, MAX_FILE, file);
    (void)fclose(file);
    return (long)n;
}

/* A shard of llm.c, looked at byte by byte: n tokens, those given. */
static void assert_shard(const char *name, const int32_t *tokens, size_t n)
{
    static const unsigned char magic[] = {0x88, 0xd8, 0x34, 0x01, 1, 0, 0, 0}; /* 20240520, 1 */

    ck_assert_int_eq(read_file(name), (long)(1024 + 2 * n));
    ck_assert_mem_eq(content, magic, sizeof(magic));
    ck_assert_uint_eq(content[8] | (size_t)content[9] << 8 | (size_t)content[10] << 16, n);
    for (size_t i = 11; i < 1024; i++) {
        ck_assert_uint_eq(content[i], 0);
    }
    for (size_t i = 0; i < n; i++) {
        ck_assert_int_eq(content[1024 + 2 * i] | content[1025 + 2 * i] << 8, tokens[i]);
    }
}

static void assert_files(size_t expected)
{
    char   command[2 * IO_TEST_PATH];
    FILE  *pipe;
    size_t n = 0;

    snprintf(command, sizeof(command), "ls -A '%s' | wc -l", folder);
    pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    ck_assert_int_eq(fscanf(pipe, "%zu", &n), 1);
    ck_assert_int_eq(pclose(pipe), 0);
    ck_assert_uint_eq(n, expected);
}

static void write_text(const char *text)
{
    io_test_write(folder, "in.txt", text, strlen(text));
}

START_TEST(bytes_become_a_shard)
{
    static const int32_t expected[] = {'h', 'i', 0xc3, 0xa9, '\n'};

    write_text("hi\xc3\xa9\n");
    ddp_assert_ok(ddp_text_encode(&params, &report));
    assert_shard("out.bin", expected, 5);
    ck_assert_uint_eq(report.bytes, 5);
    ck_assert_uint_eq(report.tokens[0], 5);
    ck_assert_uint_eq(report.tokens[1], 0);
    ck_assert_uint_eq(report.shards[0], 1);
    ck_assert_uint_eq(report.vocab, 256);
    assert_files(2);
}
END_TEST

START_TEST(many_tokens_become_numbered_shards)
{
    static const int32_t first[] = {'a', 'b'}, last[] = {'e'};

    write_text("abcde");
    params.shard_tokens = 2;
    ddp_assert_ok(ddp_text_encode(&params, &report));
    ck_assert_uint_eq(report.shards[0], 3);
    assert_shard("out_000000.bin", first, 2);
    assert_shard("out_000002.bin", last, 1);
    assert_files(4);
}
END_TEST

START_TEST(the_last_lines_are_the_validation_part)
{
    static const int32_t train[] = {'1', '2', '\n', '3', '\n'}, val[] = {'4', '5', '6', '\n', '7'};

    write_text("12\n3\n456\n7"); /* 10 bytes; the cut at 4, from where the next line begins at 5 */
    params.val_fraction = 0.6;
    ddp_assert_ok(ddp_text_encode(&params, &report));
    assert_shard("out_train.bin", train, 5);
    assert_shard("out_val.bin", val, 5);
    ck_assert_uint_eq(report.tokens[0], 5);
    ck_assert_uint_eq(report.tokens[1], 5);
    assert_files(3);
}
END_TEST

START_TEST(each_part_is_encoded_by_itself)
{
    ddp_bpe_t     *bpe = NULL;
    int32_t        expected[64];
    ddp_bpe_done_t done;

    write_text("in the beginning\nGod created\n");
    params.bpe          = DATA;
    params.val_fraction = 0.5;
    ddp_assert_ok(ddp_text_encode(&params, &report));
    ddp_assert_ok(ddp_bpe_open(DATA, &bpe));
    ddp_assert_ok(ddp_bpe_encode(bpe, "in the beginning\n", 17, true, expected, &done));
    assert_shard("out_train.bin", expected, done.tokens);
    ddp_assert_ok(ddp_bpe_encode(bpe, "God created\n", 12, true, expected, &done));
    assert_shard("out_val.bin", expected, done.tokens);
    ddp_bpe_close(&bpe);
}
END_TEST

START_TEST(a_part_without_a_line_is_refused)
{
    write_text("one line only\n");
    params.val_fraction = 0.5;
    ddp_assert_fails(ddp_text_encode(&params, &report), DDP_ERR_CONFIG, "one of the two parts has no line");
    assert_files(1);
}
END_TEST

START_TEST(the_separator_is_a_token_when_asked)
{
    ddp_bpe_t     *bpe = NULL;
    int32_t        expected[64];
    ddp_bpe_done_t one, two;

    write_text("in the<|endoftext|>beginning");
    params.bpe         = DATA;
    params.end_of_text = true;
    ddp_assert_ok(ddp_text_encode(&params, &report));
    ddp_assert_ok(ddp_bpe_open(DATA, &bpe));
    ddp_assert_ok(ddp_bpe_encode(bpe, "in the", 6, true, expected, &one));
    expected[one.tokens] = 0; /* its number in this vocabulary */
    ddp_assert_ok(ddp_bpe_encode(bpe, "beginning", 9, true, expected + one.tokens + 1, &two));
    assert_shard("out.bin", expected, one.tokens + 1 + two.tokens);
    io_test_delete(folder, "out.bin");

    params.end_of_text = false;
    ddp_assert_ok(ddp_text_encode(&params, &report));
    ddp_assert_ok(ddp_bpe_encode(bpe, "in the<|endoftext|>beginning", 28, true, expected, &one));
    assert_shard("out.bin", expected, one.tokens);
    ddp_bpe_close(&bpe);
}
END_TEST

/* Several buffers of text; separators and bytes that are not UTF-8 also where buffers end. */
static size_t make_long(char *text, size_t n)
{
    static const char *const words[] = {"the ", "Lord", " said\n", "<|endoftext|>", "\xc3\xa9t\xc3\xa9 ",
                                        "   ",  "\xff", "I'll "};
    uint64_t                 state   = 3;
    size_t                   made    = 0;

    while (made < n) {
        const char  *word = words[(state >> 40) % 8];
        const size_t more = strlen(word);

        memcpy(text + made, word, more);
        made += more;
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    }
    return made;
}

static size_t count_separators(const char *text, size_t n)
{
    const char *end   = text + n;
    size_t      found = 0;

    for (const char *mark = text;
         (mark = memmem(mark, (size_t)(end - mark), DDP_BPE_END_OF_TEXT, 13)) != NULL; mark += 13) {
        found++;
    }
    return found;
}

/* Of the shard in `content`. */
static size_t count_zeros(size_t n)
{
    size_t zeros = 0;

    for (size_t i = 0; i < n; i++) {
        zeros += content[1024 + 2 * i] == 0 && content[1025 + 2 * i] == 0 ? 1 : 0;
    }
    return zeros;
}

static void progress(void *ctx, uint64_t bytes, uint64_t total)
{
    uint64_t *last = ctx;

    ck_assert_uint_ge(bytes, *last);
    ck_assert_uint_le(bytes, total);
    *last = bytes;
}

START_TEST(a_text_longer_than_the_buffer_comes_back)
{
    char        *text = malloc((size_t)3 << 20);
    char         back[2 * IO_TEST_PATH];
    uint64_t     last = 0;
    const size_t n    = text != NULL ? make_long(text, ((size_t)3 << 20) - 64) : 0;

    ck_assert_uint_gt(n, 0);
    io_test_write(folder, "in.txt", text, n);
    snprintf(back, sizeof(back), "%s/back.txt", folder);
    params.bpe         = DATA;
    params.end_of_text = true;
    params.progress    = progress;
    params.ctx         = &last;
    ddp_assert_ok(ddp_text_encode(&params, &report));
    ck_assert_uint_eq(last, n);
    ck_assert_uint_eq(report.bytes, n);
    ck_assert_uint_gt(report.invalid, 0);
    ck_assert_uint_eq((unsigned char)text[report.first_invalid], 0xff);
    ck_assert_ptr_null(memchr(text, 0xff, report.first_invalid));
    params.in       = out;
    params.out      = back;
    params.progress = NULL;
    ck_assert_int_gt(read_file("out.bin"), 1024);
    ck_assert_uint_eq(count_separators(text, n), count_zeros(report.tokens[0]));
    params.end_of_text = false;
    ddp_assert_ok(ddp_text_decode(&params, &report));
    ck_assert_int_eq(read_file("back.txt"), (long)n);
    ck_assert_mem_eq(content, text, n);
    free(text);
}
END_TEST

/* Where a part ends, its last piece ends too, also in the middle of a buffer. */
START_TEST(parts_of_a_long_text_are_encoded_by_themselves)
{
    char          *text   = malloc((size_t)2 << 20);
    int32_t       *tokens = malloc(((size_t)2 << 20) * sizeof(*tokens));
    ddp_bpe_t     *bpe    = NULL;
    ddp_bpe_done_t done;
    const size_t   n = text != NULL && tokens != NULL ? make_long(text, ((size_t)2 << 20) - 64) : 0;
    size_t         cut;

    ck_assert_uint_gt(n, 0);
    io_test_write(folder, "in.txt", text, n);
    params.bpe          = DATA;
    params.val_fraction = 0.9; /* the cut is in the first buffer */
    ddp_assert_ok(ddp_text_encode(&params, &report));
    cut = (size_t)((double)n * (1.0 - 0.9));
    cut = (size_t)((char *)memchr(text + cut, '\n', n - cut) - text) + 1;
    ddp_assert_ok(ddp_bpe_open(DATA, &bpe));
    ddp_assert_ok(ddp_bpe_encode(bpe, text, cut, true, tokens, &done));
    assert_shard("out_train.bin", tokens, done.tokens);
    ddp_assert_ok(ddp_bpe_encode(bpe, text + cut, n - cut, true, tokens, &done));
    assert_shard("out_val.bin", tokens, done.tokens);
    ddp_bpe_close(&bpe);
    free(tokens);
    free(text);
}
END_TEST

START_TEST(gzip_text_is_unpacked_but_not_split)
{
    static const int32_t expected[] = {'a', 'b', '\n'};
    static io_bytes_t    plain      = {.data = "ab\n", .n = 3}, packed;

    io_test_gzip(&plain, &packed);
    io_test_write(folder, "in.txt", packed.data, packed.n);
    ddp_assert_ok(ddp_text_encode(&params, &report));
    assert_shard("out.bin", expected, 3);
    io_test_delete(folder, "out.bin");
    params.val_fraction = 0.5;
    ddp_assert_fails(ddp_text_encode(&params, &report), DDP_ERR_CONFIG, "unpack it to split it");
    params.val_fraction = 0.0;
    io_test_write(folder, "in.txt", packed.data, packed.n - 3);
    ddp_assert_fails(ddp_text_encode(&params, &report), DDP_ERR_FORMAT, "gzip data cut short");
    assert_files(1);
}
END_TEST

START_TEST(nothing_is_written_over)
{
    write_text("abc\n");
    io_test_write(folder, "out.bin", "mine", 4);
    ddp_assert_fails(ddp_text_encode(&params, &report), DDP_ERR_IO,
                     "out.bin': file exists; choose another name");
    io_test_delete(folder, "out.bin");
    io_test_write(folder, "out_000007.bin", "mine", 4);
    ddp_assert_fails(ddp_text_encode(&params, &report), DDP_ERR_IO, "out_000007.bin': file exists");
    io_test_delete(folder, "out_000007.bin");
    io_test_write(folder, "out.bin.part", "mine", 4);
    ddp_assert_fails(ddp_text_encode(&params, &report), DDP_ERR_IO, "remove what an earlier run left behind");
    ck_assert_int_eq(read_file("out.bin.part"), 4);
    assert_files(2);
}
END_TEST

START_TEST(what_cannot_be_converted_is_named)
{
    ddp_assert_fails(ddp_text_encode(&params, &report), DDP_ERR_IO, "in.txt': no such file");
    write_text("");
    ddp_assert_fails(ddp_text_encode(&params, &report), DDP_ERR_FORMAT, "expected text, found an empty file");
    write_text("abc\n");
    params.end_of_text = true;
    ddp_assert_fails(ddp_text_encode(&params, &report), DDP_ERR_CONFIG,
                     "bytes: there is no token <|endoftext|>");
    params.end_of_text  = false;
    params.shard_tokens = 1;
    ddp_assert_fails(ddp_text_encode(&params, &report), DDP_ERR_CONFIG,
                     "a shard of 1 tokens; allowed are 2 ..");
    params.shard_tokens = DDP_TEXT_SHARD_TOKENS;
    params.val_fraction = 1.0;
    ddp_assert_fails(ddp_text_encode(&params, &report), DDP_ERR_CONFIG, "0 <= value < 1");
    params.val_fraction = 0.0;
    snprintf(out, sizeof(out), "%s/none/x.bin", folder);
    ddp_assert_fails(ddp_text_encode(&params, &report), DDP_ERR_IO, "no such file or directory");
    params.struct_size = 1;
    ddp_assert_fails(ddp_text_encode(&params, &report), DDP_ERR_INVALID_ARG, "DDP_TEXT_PARAMS_INIT");
    assert_files(1);
}
END_TEST

START_TEST(a_word_without_end_is_refused_where_it_begins)
{
    char *text = malloc(2 * DDP_BPE_MAX_PIECE);

    ck_assert_ptr_nonnull(text);
    memset(text, 'x', 2 * DDP_BPE_MAX_PIECE);
    memcpy(text, "ab ", 3);
    io_test_write(folder, "in.txt", text, 2 * DDP_BPE_MAX_PIECE);
    params.bpe = DATA;
    ddp_assert_fails(ddp_text_encode(&params, &report), DDP_ERR_FORMAT, "a word of more than 1048576 bytes");
    assert_files(1);
    free(text);
}
END_TEST

START_TEST(only_tokens_of_the_vocabulary_are_decoded)
{
    static const unsigned char raw[] = {1, 0, 0xe7, 0x03, 0xe8, 0x03}; /* 1, 999, 1000 */

    io_test_write(folder, "in.txt", raw, 4);
    params.bpe = DATA;
    ddp_assert_fails(ddp_text_decode(&params, &report), DDP_ERR_FORMAT, "neither a shard of llm.c nor named");
    snprintf(in, sizeof(in), "%s/in.u16", folder);
    io_test_write(folder, "in.u16", raw, 4);
    ddp_assert_ok(ddp_text_decode(&params, &report));
    io_test_delete(folder, "out.bin");
    io_test_write(folder, "in.u16", raw, 6);
    ddp_assert_fails(ddp_text_decode(&params, &report), DDP_ERR_FORMAT,
                     "offset 4: expected tokens below the vocabulary of 1000, found 1000");
    assert_files(2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("text");
    TCase *tcase = tcase_create("all");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, bytes_become_a_shard);
    tcase_add_test(tcase, many_tokens_become_numbered_shards);
    tcase_add_test(tcase, the_last_lines_are_the_validation_part);
    tcase_add_test(tcase, each_part_is_encoded_by_itself);
    tcase_add_test(tcase, a_part_without_a_line_is_refused);
    tcase_add_test(tcase, the_separator_is_a_token_when_asked);
    tcase_add_test(tcase, a_text_longer_than_the_buffer_comes_back);
    tcase_add_test(tcase, parts_of_a_long_text_are_encoded_by_themselves);
    tcase_add_test(tcase, gzip_text_is_unpacked_but_not_split);
    tcase_add_test(tcase, nothing_is_written_over);
    tcase_add_test(tcase, what_cannot_be_converted_is_named);
    tcase_add_test(tcase, a_word_without_end_is_refused_where_it_begins);
    tcase_add_test(tcase, only_tokens_of_the_vocabulary_are_decoded);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
