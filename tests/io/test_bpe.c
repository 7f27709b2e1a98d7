#include <stdint.h>
#include <sys/stat.h>

#include "io/bpe.h"
#include "tests/io/io_test.h"

/* tests/data/make_bpe.py: a vocabulary, and what Hugging Face's tokenizers makes of texts with it */
#define DATA      DDP_TEST_DATA_DIR "/bpe"
#define MAX_TEXT  ((size_t)1 << 16)
#define LONG_TEXT (DDP_BPE_MAX_PIECE + 64)

static char           folder[IO_TEST_PATH];
static ddp_bpe_t     *bpe;
static unsigned char *text;
static int32_t       *tokens;

static void setup(void)
{
    io_test_make(folder);
    bpe    = NULL;
    text   = malloc(LONG_TEXT);
    tokens = malloc(LONG_TEXT * sizeof(*tokens));
    ck_assert(text != NULL && tokens != NULL);
    ddp_assert_ok(ddp_bpe_open(DATA, &bpe));
}

static void teardown(void)
{
    ddp_bpe_close(&bpe);
    free(text);
    free(tokens);
    io_test_remove(folder);
}

/* One line of values.txt. */
typedef struct value {
    unsigned char text[1024];
    size_t        bytes;
    int32_t       tokens[1024];
    size_t        n;
} value_t;

static bool next_value(FILE *file, value_t *value)
{
    char  line[8192];
    char *rest;

    if (fgets(line, sizeof(line), file) == NULL) {
        return false;
    }
    ck_assert_ptr_nonnull(strchr(line, '\n'));
    value->bytes = value->n = 0;
    for (rest = line; *rest != ' ' && *rest != '\n' && *rest != '-'; rest += 2) {
        unsigned byte;

        ck_assert_int_eq(sscanf(rest, "%2x", &byte), 1);
        value->text[value->bytes++] = (unsigned char)byte;
    }
    for (char *word = strtok(rest, " -\n"); word != NULL; word = strtok(NULL, " -\n")) {
        value->tokens[value->n++] = (int32_t)strtol(word, NULL, 10);
    }
    return true;
}

static FILE *open_values(void)
{
    FILE *file = fopen(DATA "/values.txt", "r");

    ck_assert_ptr_nonnull(file);
    return file;
}

/* What the tokens stand for is the text. */
static void assert_decodes(const int32_t *ids, size_t n, const unsigned char *expected, size_t bytes)
{
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        size_t      length = 0;
        const char *token  = ddp_bpe_token(bpe, ids[i], &length);

        ck_assert(token != NULL && length > 0 && length <= bytes - at);
        ck_assert_mem_eq(token, expected + at, length);
        at += length;
    }
    ck_assert_uint_eq(at, bytes);
}

static uint32_t draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

START_TEST(tokens_are_those_of_hugging_face)
{
    value_t       *value = malloc(sizeof(*value));
    FILE          *file  = open_values();
    size_t         lines = 0;
    ddp_bpe_done_t done;

    ck_assert_ptr_nonnull(value);
    ck_assert_uint_eq(ddp_bpe_info(bpe)->vocab, 1000);
    ck_assert_uint_eq(ddp_bpe_info(bpe)->merges, 743);
    ck_assert_int_eq(ddp_bpe_info(bpe)->end_of_text, 0);
    for (; next_value(file, value); lines++) {
        memset(tokens, 0x77, (value->bytes + 1) * sizeof(*tokens));
        ddp_assert_ok(ddp_bpe_encode(bpe, value->text, value->bytes, true, tokens, &done));
        ck_assert_uint_eq(done.used, value->bytes);
        ck_assert_uint_eq(done.tokens, value->n);
        ck_assert_mem_eq(tokens, value->tokens, value->n * sizeof(*tokens));
        ck_assert_int_eq(tokens[value->bytes], 0x77777777);
        assert_decodes(tokens, done.tokens, value->text, value->bytes);
    }
    ck_assert_uint_gt(lines, 300);
    (void)fclose(file);
    free(value);
}
END_TEST

/* All texts of values.txt behind each other. */
static size_t join_values(void)
{
    value_t *value = malloc(sizeof(*value));
    FILE    *file  = open_values();
    size_t   n     = 0;

    ck_assert_ptr_nonnull(value);
    while (next_value(file, value)) {
        memcpy(text + n, value->text, value->bytes);
        n += value->bytes;
        ck_assert_uint_lt(n, MAX_TEXT);
    }
    (void)fclose(file);
    free(value);
    return n;
}

START_TEST(a_text_in_pieces_has_the_tokens_of_the_whole)
{
    static const size_t steps[] = {1, 2, 3, 7, 64};
    const size_t        n       = join_values();
    int32_t            *whole   = malloc(n * sizeof(*whole));
    ddp_bpe_done_t      all, done;

    ck_assert_ptr_nonnull(whole);
    ddp_assert_ok(ddp_bpe_encode(bpe, text, n, true, whole, &all));
    for (size_t s = 0; s < 5; s++) {
        size_t used = 0;
        size_t made = 0;

        for (size_t seen = 0; seen < n;) {
            seen = seen + steps[s] < n ? seen + steps[s] : n;
            ddp_assert_ok(ddp_bpe_encode(bpe, text + used, seen - used, seen == n, tokens + made, &done));
            used += done.used;
            made += done.tokens;
        }
        ck_assert_uint_eq(used, n);
        ck_assert_uint_eq(made, all.tokens);
        ck_assert_mem_eq(tokens, whole, made * sizeof(*whole));
    }
    free(whole);
}
END_TEST

START_TEST(random_bytes_come_back)
{
    uint64_t       state = 5;
    ddp_bpe_done_t done;

    for (size_t round = 0; round < 2; round++) {
        for (size_t i = 0; i < MAX_TEXT; i++) { /* at first any bytes, then few different ones */
            text[i] = round == 0 ? (unsigned char)draw(&state)
                                 : (unsigned char)("the \xc3\xa9'\n"[draw(&state) % 8]);
        }
        ddp_assert_ok(ddp_bpe_encode(bpe, text, MAX_TEXT, true, tokens, &done));
        ck_assert_uint_eq(done.used, MAX_TEXT);
        assert_decodes(tokens, done.tokens, text, MAX_TEXT);
    }
}
END_TEST

START_TEST(bytes_that_are_not_utf8_are_counted)
{
    static const char data[] = "ab\xff\xfe c\xc3\xa9 \xe2\x82";
    ddp_bpe_done_t    done;

    ddp_assert_ok(ddp_bpe_encode(bpe, data, sizeof(data) - 1, true, tokens, &done));
    ck_assert_uint_eq(done.invalid, 4);
    ck_assert_uint_eq(done.first_invalid, 2);
    ddp_assert_ok(ddp_bpe_encode(bpe, data, 2, true, tokens, &done));
    ck_assert_uint_eq(done.invalid, 0);
}
END_TEST

START_TEST(a_word_as_long_as_allowed_is_no_trouble)
{
    ddp_bpe_done_t done;

    for (size_t i = 0; i < LONG_TEXT; i++) {
        text[i] = (unsigned char)("thea"[i % 4]);
    }
    ddp_assert_ok(ddp_bpe_encode(bpe, text, DDP_BPE_MAX_PIECE, true, tokens, &done));
    assert_decodes(tokens, done.tokens, text, DDP_BPE_MAX_PIECE);
    text[0] = ' ';
    text[1] = ' ';
    text[2] = '9';
    ddp_assert_fails(ddp_bpe_encode(bpe, text, LONG_TEXT, true, tokens, &done), DDP_ERR_FORMAT,
                     "offset 3: a word of more than 1048576 bytes");
}
END_TEST

START_TEST(a_token_that_is_none_has_no_text)
{
    size_t n = 1;

    ck_assert_ptr_null(ddp_bpe_token(bpe, -1, &n));
    ck_assert_uint_eq(n, 0);
    ck_assert_ptr_null(ddp_bpe_token(bpe, 1000, &n));
    ck_assert_ptr_nonnull(ddp_bpe_token(bpe, 999, &n));
    ck_assert_mem_eq(ddp_bpe_token(bpe, 0, &n), DDP_BPE_END_OF_TEXT, 13);
    ck_assert_uint_eq(n, 13);
}
END_TEST

/* A file of the data folder, changed: `from` (once in it) becomes `to`. NULL: as it is. */
static void copy_file(const char *name, const char *as, const char *from, const char *to)
{
    static char content[65536];
    static char changed[65536];
    char        path[IO_TEST_PATH];
    FILE       *file;
    char       *found;
    size_t      n;

    snprintf(path, sizeof(path), "%s/%s", DATA, name);
    file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    n = fread(content, 1, sizeof(content) - 1, file);
    (void)fclose(file);
    content[n] = '\0';
    if (from == NULL) {
        io_test_write(folder, as, content, n);
        return;
    }
    found = strstr(content, from);
    ck_assert_ptr_nonnull(found);
    n = (size_t)snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(found - content), content, to,
                         found + strlen(from));
    io_test_write(folder, as, changed, n);
}

static void open_copy(ddp_status_t expected, const char *line)
{
    ddp_bpe_t *other = NULL;

    if (expected == DDP_OK) {
        ddp_assert_ok(ddp_bpe_open(folder, &other));
    } else {
        ddp_assert_fails(ddp_bpe_open(folder, &other), expected, line);
        ck_assert_ptr_null(other);
    }
    ddp_bpe_close(&other);
}

START_TEST(both_names_of_the_files_are_taken)
{
    copy_file("vocab.json", "encoder.json", NULL, NULL);
    copy_file("merges.txt", "vocab.bpe", "#version: 0.2\n", "");
    open_copy(DDP_OK, NULL);
    copy_file("merges.txt", "vocab.bpe", "t h\n", "t h\r\n");
    open_copy(DDP_OK, NULL);
}
END_TEST

START_TEST(missing_files_are_named)
{
    open_copy(DDP_ERR_IO, "no encoder.json and no vocab.json in this folder");
    copy_file("vocab.json", "vocab.json", NULL, NULL);
    open_copy(DDP_ERR_IO, "no vocab.bpe and no merges.txt in this folder");
}
END_TEST

START_TEST(bad_vocabularies_are_refused)
{
    static const struct {
        const char *from, *to, *line;
    } cases[] = {
        {"\"!\":1,", "\"!\":1", "not JSON"},
        {"{", "[{", "not JSON"},
        {"\"!\":1,", "\"!\":\"1\",", "token '!': expected a number 0 .. 999"},
        {"\"!\":1,", "\"!\":1.5,",
         "token '!': expected a number 0 .. 999, since there are 1000 tokens, found 1.5"},
        {"\"!\":1,", "\"!\":1000,",
         "token '!': expected a number 0 .. 999, since there are 1000 tokens, found 1000"},
        {"\"!\":1,", "\"!\":-1,", "found -1"},
        {"\"!\":1,", "\"!\":1e300,", "found 1e+300"},
        {"\"!\":1,", "\"!\":2,", "are both number 2"},
        {"\"!\":1,", "\"\":1,", "token 1 is empty"},
        {"\"!\":1,", "\"<!>\":1,", "no token for the byte 0x21"},
        {"\"!\":1,", "\"<|endoftext|>\":1,", "the tokens 0 and 1 are both '<|endoftext|>'"},
        {"\"Ġthe\"", "\"Ġtheq\"", "'Ġthe' is no token of"},
        {"\"<|endoftext|>\":0", "\"word\":0", "no line makes the token 'word' (0) of"},
    };

    copy_file("merges.txt", "merges.txt", NULL, NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        copy_file("vocab.json", "vocab.json", cases[i].from, cases[i].to);
        open_copy(DDP_ERR_FORMAT, cases[i].line);
    }
    io_test_write(folder, "vocab.json", "{}", 2);
    open_copy(DDP_ERR_FORMAT, "found none");
    io_test_write(folder, "vocab.json", "7", 1);
    open_copy(DDP_ERR_FORMAT, "found another value");
    io_test_write(folder, "vocab.json", "", 0);
    open_copy(DDP_ERR_FORMAT, "offset 0: not JSON");
}
END_TEST

START_TEST(bad_merges_are_refused_with_their_line)
{
    static const struct {
        const char *from, *to, *line;
    } cases[] = {
        {"\nt h\n", "\nth\n", "line 2: expected two words and one space between them, found 'th'"},
        {"\nt h\n", "\nt h e\n", "line 2: expected two words"},
        {"\nt h\n", "\n h\n", "line 2: expected two words"},
        {"\nt h\n", "\nt \n", "line 2: expected two words"},
        {"\nt h\n", "\n\nt h\n", "line 2: expected two words"},
        {"\nt h\n", "\nt h\nt h\n", "line 3: the same as an earlier line"},
        {"\nt h\n", "\nt 漢\n", "line 2: '漢' is no token"},
        {"\nt h\n", "\nz q\n", "line 2: 'zq' is no token of"},
        {"\nt h\n", "\n", "line 3: 'th' is joined here, but no line above makes it"},
        {"#version", "# version", "line 1: "},
    };

    copy_file("vocab.json", "vocab.json", NULL, NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        copy_file("merges.txt", "merges.txt", cases[i].from, cases[i].to);
        open_copy(DDP_ERR_FORMAT, cases[i].line);
    }
    io_test_write(folder, "merges.txt", "#version: 0.2\nt h\n", 18);
    open_copy(DDP_ERR_FORMAT, "do the two files belong together, and is this one whole?");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bpe");
    TCase *tcase = tcase_create("all");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, tokens_are_those_of_hugging_face);
    tcase_add_test(tcase, a_text_in_pieces_has_the_tokens_of_the_whole);
    tcase_add_test(tcase, random_bytes_come_back);
    tcase_add_test(tcase, bytes_that_are_not_utf8_are_counted);
    tcase_add_test(tcase, a_word_as_long_as_allowed_is_no_trouble);
    tcase_add_test(tcase, a_token_that_is_none_has_no_text);
    tcase_add_test(tcase, both_names_of_the_files_are_taken);
    tcase_add_test(tcase, missing_files_are_named);
    tcase_add_test(tcase, bad_vocabularies_are_refused);
    tcase_add_test(tcase, bad_merges_are_refused_with_their_line);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
