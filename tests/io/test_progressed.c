/* What takes long says that it gets on: reading, drawing, statistics. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/allocator.h"
#include "base/progressed.h"
#include "io/bytes_internal.h"
#include "io/dataset.h"
#include "io/file_internal.h"
#include "io/moments_internal.h"
#include "io/tokens.h"
#include "tests/support/ddp_test.h"

static void count_call(void *ctx)
{
    ++*(size_t *)ctx;
}

START_TEST(loading_pictures_counts)
{
    ddp_dataset_params_t params  = DDP_DATASET_PARAMS_INIT;
    ddp_dataset_t       *dataset = NULL;
    void                *memory  = NULL;
    size_t               calls   = 0;

    params.kind    = DDP_DATA_SHAPES;
    params.samples = 1000;
    ddp_progressed_hook(count_call, &calls);
    ddp_assert_ok(ddp_dataset_open(&params, &dataset));
    ddp_assert_ok(
        ddp_allocator_private()->acquire(NULL, "shapes", ddp_dataset_info(dataset)->memory_bytes, &memory));
    ck_assert_uint_eq(calls, 0);
    ddp_assert_ok(ddp_dataset_load(dataset, memory));
    ck_assert_uint_ge(calls, 1000);
    ddp_progressed_unhook(&calls);
    ddp_dataset_close(&dataset);
    ddp_allocator_private()->release(NULL, memory);
}
END_TEST

START_TEST(statistics_of_floats_count)
{
    const size_t n      = 3 * 200000;
    float       *pixels = malloc(n * sizeof(*pixels));
    size_t       calls  = 0;
    double       mean[3];
    double       std[3];

    ck_assert_ptr_nonnull(pixels);
    for (size_t i = 0; i < n; i++) { /* 0 and 2 in turn, times the channel */
        pixels[i] = (float)(2 * (i / 3 % 2) * (i % 3));
    }
    ddp_progressed_hook(count_call, &calls);
    ck_assert_uint_eq(ddp_moments_floats(pixels, 3, n, mean, std), n);
    ddp_progressed_unhook(&calls);
    ck_assert_uint_ge(calls, 2 * 4 + 10); /* two passes of four pieces, and a look at each value */
    for (size_t c = 0; c < 3; c++) {
        ck_assert_double_eq(mean[c], (double)c);
        ck_assert_double_eq(std[c], (double)c);
    }
    free(pixels);
}
END_TEST

/* A file of three pieces and a bit. */
START_TEST(reading_counts)
{
    const size_t bytes  = 3 * DDP_READ_PIECE + 5;
    char        *data   = calloc(1, bytes);
    char         path[] = "progress.XXXXXX";
    const int    fd     = mkstemp(path);
    size_t       calls  = 0;
    size_t       got    = 0;
    ddp_bytes_t *stream = NULL;

    ck_assert_ptr_nonnull(data);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
    ddp_progressed_hook(count_call, &calls);
    ddp_assert_ok(ddp_read_at(path, fd, data, bytes, 0));
    ck_assert_uint_ge(calls, 4);
    calls = 0;
    ddp_assert_ok(ddp_bytes_open(path, &stream));
    ddp_assert_ok(ddp_bytes_read(stream, data, bytes, &got));
    ck_assert_uint_eq(got, bytes);
    ck_assert_uint_ge(calls, 4);
    ddp_progressed_unhook(&calls);
    ddp_bytes_close(&stream);
    (void)close(fd);
    (void)unlink(path);
    free(data);
}
END_TEST

/* Five shards of 100 tokens: 12 sequences of 8 in each. */
START_TEST(opening_shards_and_fetching_sequences_count)
{
    ddp_tokens_params_t params      = DDP_TOKENS_PARAMS_INIT;
    ddp_tokens_t       *tokens      = NULL;
    const uint16_t      shard[100]  = {0};
    const size_t        index[7]    = {0, 59, 12, 11, 30, 30, 1};
    int32_t             inputs[56]  = {0};
    int32_t             targets[56] = {0};
    char                path[]      = "progress.XXXXXX";
    char                name[64];
    size_t              calls = 0;

    ck_assert_ptr_nonnull(mkdtemp(path));
    for (int i = 0; i < 5; i++) {
        FILE *file;

        snprintf(name, sizeof(name), "%s/%d.bin", path, i);
        file = fopen(name, "wb");
        ck_assert_ptr_nonnull(file);
        ck_assert_uint_eq(fwrite(shard, sizeof(shard[0]), 100, file), 100);
        ck_assert_int_eq(fclose(file), 0);
    }
    snprintf(name, sizeof(name), "%s/*.bin", path);
    params.format  = DDP_TOKENS_UINT16;
    params.path    = name;
    params.context = 8;
    params.vocab   = 256;
    ddp_progressed_hook(count_call, &calls);
    ddp_assert_ok(ddp_tokens_open(&params, &tokens));
    ck_assert_uint_ge(calls, 5 * 64); /* each place that the digest looks at */
    ck_assert_uint_eq(ddp_tokens_info(tokens)->sequences, 60);
    calls = 0;
    ddp_assert_ok(ddp_tokens_fetch(tokens, index, 7, inputs, targets));
    ck_assert_uint_ge(calls, 7);
    ddp_progressed_unhook(&calls);
    ddp_tokens_close(&tokens);
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof(name), "%s/%d.bin", path, i);
        (void)unlink(name);
    }
    (void)rmdir(path);
}
END_TEST

static void *progress_elsewhere(void *unused)
{
    (void)unused;
    ddp_progressed();
    return NULL;
}

START_TEST(what_other_threads_do_does_not_count)
{
    pthread_t thread;
    size_t    calls = 0;
    size_t    other = 0;

    ddp_progressed_hook(count_call, &calls);
    ck_assert_int_eq(pthread_create(&thread, NULL, progress_elsewhere, NULL), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_uint_eq(calls, 0);
    ddp_progressed_unhook(&other); /* of somebody else */
    ddp_progressed();
    ck_assert_uint_eq(calls, 1);
    ddp_progressed_unhook(&calls);
    ddp_progressed();
    ck_assert_uint_eq(calls, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("progressed");
    TCase *tcase = tcase_create("progress");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, loading_pictures_counts);
    tcase_add_test(tcase, statistics_of_floats_count);
    tcase_add_test(tcase, reading_counts);
    tcase_add_test(tcase, opening_shards_and_fetching_sequences_count);
    tcase_add_test(tcase, what_other_threads_do_does_not_count);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
