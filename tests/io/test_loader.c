#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/allocator.h"
#include "base/convert.h"
#include "io/dataset.h"
#include "io/loader.h"
#include "io/sampler.h"
#include "tests/io/io_test.h"

#define PIXELS  784
#define SAMPLES 23
#define BATCH   10 /* batches of 10, 10 and 3 */
#define MICRO   5  /* of the 3, two parts are empty */
#define STEPS   8  /* two epochs and two thirds */
#define SEED    4

static ddp_dataset_t *dataset;
static void          *memory;

static void load(size_t samples)
{
    ddp_dataset_params_t params = DDP_DATASET_PARAMS_INIT;

    params.kind    = DDP_DATA_SHAPES;
    params.samples = samples;
    ddp_assert_ok(ddp_dataset_open(&params, &dataset));
    ddp_assert_ok(
        ddp_allocator_private()->acquire(NULL, "shapes", ddp_dataset_info(dataset)->memory_bytes, &memory));
    ddp_assert_ok(ddp_dataset_load(dataset, memory));
}

static void setup(void)
{
    load(SAMPLES);
}

static void teardown(void)
{
    ddp_dataset_close(&dataset);
    ddp_allocator_private()->release(NULL, memory);
}

static ddp_loader_params_t params_of(size_t threads, size_t depth)
{
    ddp_loader_params_t params = DDP_LOADER_PARAMS_INIT;

    params.dataset       = dataset;
    params.seed          = SEED;
    params.batch         = BATCH;
    params.micro_batches = MICRO;
    params.micro_count   = MICRO;
    params.end_step      = STEPS;
    params.threads       = threads;
    params.depth         = depth;
    params.timeout_ms    = 20000;
    return params;
}

/* The micro-batch is the one that sampler and partition say, bit for bit. */
static bool is_right(const ddp_micro_batch_t *micro)
{
    const ddp_batch_range_t range = ddp_sampler_batch(SAMPLES, BATCH, micro->step);
    static float            image[PIXELS];
    size_t                  first;
    size_t                  count;

    ddp_partition(range.count, MICRO, micro->micro_batch, &first, &count);
    if (micro->n != count || micro->first_row != first || count == 0 ||
        (uintptr_t)micro->images % DDP_ALIGNMENT != 0) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        const size_t index = ddp_sampler_index(SEED, range.epoch, SAMPLES, range.first + first + i);
        int32_t      label;

        ddp_dataset_fetch(dataset, &index, 1, image, &label);
        if (micro->labels[i] != label || memcmp(micro->images + i * PIXELS, image, sizeof(image)) != 0) {
            return false;
        }
    }
    return true;
}

/* All that one rank gets, in order; rows[step] counts the samples seen of each step. */
static void run_rank(const ddp_loader_params_t *params, size_t *rows)
{
    ddp_loader_t     *loader = NULL;
    ddp_micro_batch_t micro  = {0};
    uint64_t          last   = 0;

    ddp_assert_ok(ddp_loader_create(params, &loader));
    for (;;) {
        const ddp_status_t status = ddp_loader_next(loader, &micro);
        uint64_t           place;

        if (status != DDP_OK) {
            ck_assert_int_eq(status, DDP_ERR_STATE);
            break;
        }
        place = micro.step * MICRO + micro.micro_batch + 1;
        ck_assert_uint_gt(place, last);
        last = place;
        ck_assert_uint_ge(micro.micro_batch, params->first_micro);
        ck_assert_uint_lt(micro.micro_batch, params->first_micro + params->micro_count);
        ck_assert(is_right(&micro));
        rows[micro.step] += micro.n;
        ddp_loader_release(loader);
    }
    ddp_assert_fails(ddp_loader_next(loader, &micro), DDP_ERR_STATE, "after step 8, the last");
    ddp_loader_destroy(&loader);
    ck_assert_ptr_null(loader);
}

START_TEST(any_number_of_ranks_sees_the_same_samples_once)
{
    static const size_t ranks[]   = {1, 2, 3, 5};
    static const size_t threads[] = {0, 1, 3};

    for (size_t r = 0; r < 4; r++) {
        for (size_t t = 0; t < 3; t++) {
            size_t rows[STEPS] = {0};

            for (size_t rank = 0; rank < ranks[r]; rank++) {
                ddp_loader_params_t params = params_of(threads[t], 1 + rank);

                ddp_partition(MICRO, ranks[r], rank, &params.first_micro, &params.micro_count);
                run_rank(&params, rows);
            }
            for (uint64_t step = 0; step < STEPS; step++) {
                ck_assert_uint_eq(rows[step], ddp_sampler_batch(SAMPLES, BATCH, step).count);
            }
        }
    }
}
END_TEST

START_TEST(a_loader_can_begin_at_any_step)
{
    size_t              rows[STEPS] = {0};
    ddp_loader_params_t params      = params_of(2, 3);

    params.first_step = 5;
    run_rank(&params, rows);
    for (uint64_t step = 0; step < STEPS; step++) {
        ck_assert_uint_eq(rows[step], step < 5 ? 0 : ddp_sampler_batch(SAMPLES, BATCH, step).count);
    }
}
END_TEST

START_TEST(a_batch_larger_than_the_set_is_the_set)
{
    ddp_loader_params_t params = params_of(1, 2);
    ddp_loader_t       *loader = NULL;
    ddp_micro_batch_t   micro;
    size_t              rows = 0;

    params.batch         = 1000;
    params.micro_batches = 2;
    params.micro_count   = 2;
    params.end_step      = 1;
    ddp_assert_ok(ddp_loader_create(&params, &loader));
    while (ddp_loader_next(loader, &micro) == DDP_OK) {
        rows += micro.n;
        ddp_loader_release(loader);
    }
    ck_assert_uint_eq(rows, SAMPLES);
    ddp_loader_destroy(&loader);
}
END_TEST

START_TEST(a_rank_without_micro_batches_or_steps_gets_nothing)
{
    for (size_t threads = 0; threads < 2; threads++) {
        ddp_loader_params_t params = params_of(threads, 2);
        ddp_loader_t       *loader = NULL;
        ddp_micro_batch_t   micro;

        params.micro_count = 0;
        ddp_assert_ok(ddp_loader_create(&params, &loader));
        ddp_assert_fails(ddp_loader_next(loader, &micro), DDP_ERR_STATE, "no micro-batch");
        ddp_loader_destroy(&loader);
        params          = params_of(threads, 2);
        params.end_step = 0;
        ddp_assert_ok(ddp_loader_create(&params, &loader));
        ddp_assert_fails(ddp_loader_next(loader, &micro), DDP_ERR_STATE, "no micro-batch");
        ddp_loader_destroy(&loader);
    }
}
END_TEST

START_TEST(held_micro_batches_stay_valid_and_no_more_than_depth_are_given)
{
    for (size_t threads = 0; threads < 3; threads++) {
        ddp_loader_params_t params = params_of(threads, 3);
        ddp_loader_t       *loader = NULL;
        ddp_micro_batch_t   held[4];

        ddp_assert_ok(ddp_loader_create(&params, &loader));
        ddp_loader_release(loader); /* nothing is held: no effect */
        for (size_t i = 0; i < 3; i++) {
            ddp_assert_ok(ddp_loader_next(loader, &held[i]));
        }
        ddp_assert_fails(ddp_loader_next(loader, &held[3]), DDP_ERR_STATE, "all 3 micro-batches are held");
        ddp_loader_release(loader);
        ddp_assert_ok(ddp_loader_next(loader, &held[3]));
        for (size_t i = 1; i < 4; i++) {
            ck_assert_uint_eq(held[i].micro_batch, i);
            ck_assert(is_right(&held[i]));
        }
        ddp_loader_destroy(&loader);
    }
}
END_TEST

START_TEST(a_loader_can_be_destroyed_at_any_moment)
{
    for (size_t round = 0; round < 200; round++) {
        ddp_loader_params_t   params = params_of(1 + round % 4, 1 + round % 3);
        const struct timespec pause  = {.tv_nsec = (long)(round % 10) * 20000};
        ddp_loader_t         *loader = NULL;
        ddp_micro_batch_t     micro;

        params.end_step = UINT64_MAX;
        ddp_assert_ok(ddp_loader_create(&params, &loader));
        for (size_t i = 0; i < round % 7; i++) {
            ddp_assert_ok(ddp_loader_next(loader, &micro));
            if (i + 1 < round % 7) {
                ddp_loader_release(loader);
            }
        }
        nanosleep(&pause, NULL);
        ddp_loader_destroy(&loader);
    }
    {
        ddp_loader_t *none = NULL;

        ddp_loader_destroy(&none);
    }
}
END_TEST

/* A fetch of 4000 samples takes longer than the 1 ms allowed, most times; a wait that ran out may be repeated
 * and loses nothing. */
START_TEST(a_wait_ends_at_its_deadline_and_can_be_repeated)
{
    ddp_loader_params_t params;
    ddp_loader_t       *loader   = NULL;
    ddp_micro_batch_t   micro    = {0};
    int                 timeouts = 0;

    teardown();
    load(4000);
    params               = params_of(1, 1);
    params.batch         = 4000;
    params.micro_batches = 1;
    params.micro_count   = 1;
    params.end_step      = 20;
    params.timeout_ms    = 1;
    ddp_assert_ok(ddp_loader_create(&params, &loader));
    for (uint64_t step = 0; step < 20; step++) {
        ddp_status_t status;

        while ((status = ddp_loader_next(loader, &micro)) == DDP_ERR_TIMEOUT) {
            ck_assert_ptr_nonnull(strstr(ddp_error_line(), "no micro-batch within 1 ms"));
            timeouts++;
        }
        ddp_assert_ok(status);
        ck_assert_uint_eq(micro.step, step);
        ck_assert_uint_eq(micro.n, 4000);
        ddp_loader_release(loader);
    }
    ck_assert_int_gt(timeouts, 0);
    ck_assert_int_ge(ddp_loader_wait_ns(loader), timeouts * INT64_C(1000000));
    ddp_loader_destroy(&loader);
}
END_TEST

START_TEST(wrong_parameters_are_refused)
{
    ddp_dataset_params_t dataset_params = DDP_DATASET_PARAMS_INIT;
    ddp_dataset_t       *not_loaded     = NULL;
    ddp_loader_t        *loader         = NULL;
    ddp_loader_params_t  params         = params_of(1, 0);

    ddp_assert_fails(ddp_loader_create(&params, &loader), DDP_ERR_INVALID_ARG, "depth 0");
    params       = params_of(1, 2);
    params.batch = 0;
    ddp_assert_fails(ddp_loader_create(&params, &loader), DDP_ERR_INVALID_ARG, "batch 0");
    params             = params_of(1, 2);
    params.first_micro = 1;
    ddp_assert_fails(ddp_loader_create(&params, &loader), DDP_ERR_INVALID_ARG, "not all below 5");
    params            = params_of(1, 2);
    params.first_step = STEPS + 1;
    ddp_assert_fails(ddp_loader_create(&params, &loader), DDP_ERR_INVALID_ARG, "first step 9");
    params             = params_of(1, 2);
    params.struct_size = 3;
    ddp_assert_fails(ddp_loader_create(&params, &loader), DDP_ERR_INVALID_ARG, "DDP_LOADER_PARAMS_INIT");
    dataset_params.kind = DDP_DATA_SHAPES;
    ddp_assert_ok(ddp_dataset_open(&dataset_params, &not_loaded));
    params         = params_of(1, 2);
    params.dataset = not_loaded;
    ddp_assert_fails(ddp_loader_create(&params, &loader), DDP_ERR_INVALID_ARG, "loaded");
    ddp_dataset_close(&not_loaded);
    ck_assert_ptr_null(loader);
}
END_TEST

#define CONTEXT 3
#define VOCAB   100

/* SAMPLES sequences of CONTEXT: token i is i, and token `bad` is not below VOCAB. */
static ddp_tokens_t *open_tokens(size_t bad)
{
    ddp_tokens_params_t params = DDP_TOKENS_PARAMS_INIT;
    ddp_tokens_t       *tokens = NULL;
    uint16_t            data[SAMPLES * CONTEXT + 1];
    char                folder[IO_TEST_PATH];
    char                path[2 * IO_TEST_PATH];

    for (size_t i = 0; i < SAMPLES * CONTEXT + 1; i++) {
        data[i] = (uint16_t)(i == bad ? VOCAB : i);
    }
    io_test_make(folder);
    io_test_write(folder, "tokens.u16", data, sizeof(data));
    snprintf(path, sizeof(path), "%s/tokens.u16", folder);
    params.format  = DDP_TOKENS_UINT16;
    params.path    = path;
    params.context = CONTEXT;
    params.vocab   = VOCAB;
    ddp_assert_ok(ddp_tokens_open(&params, &tokens));
    io_test_remove(folder); /* it stays mapped */
    return tokens;
}

static ddp_loader_params_t token_params_of(const ddp_tokens_t *tokens, size_t threads)
{
    ddp_loader_params_t params = params_of(threads, 2);

    params.dataset = NULL;
    params.tokens  = tokens;
    return params;
}

START_TEST(tokens_come_in_the_order_of_the_sampler_as_inputs_and_targets)
{
    ddp_tokens_t *tokens = open_tokens(SIZE_MAX);

    for (size_t threads = 0; threads < 3; threads++) {
        const ddp_loader_params_t params = token_params_of(tokens, threads);
        ddp_loader_t             *loader = NULL;
        ddp_micro_batch_t         micro;
        size_t                    seen = 0;

        ddp_assert_ok(ddp_loader_create(&params, &loader));
        while (ddp_loader_next(loader, &micro) == DDP_OK) {
            const ddp_batch_range_t range = ddp_sampler_batch(SAMPLES, BATCH, micro.step);

            ck_assert(micro.images == NULL && micro.labels == NULL);
            ck_assert_uint_eq((uintptr_t)micro.inputs % DDP_ALIGNMENT, 0);
            for (size_t i = 0; i < micro.n * CONTEXT; i++) {
                const size_t index = ddp_sampler_index(SEED, range.epoch, SAMPLES,
                                                       range.first + micro.first_row + i / CONTEXT);

                ck_assert_uint_eq((size_t)micro.inputs[i], index * CONTEXT + i % CONTEXT);
                ck_assert_uint_eq((size_t)micro.targets[i], index * CONTEXT + i % CONTEXT + 1);
            }
            seen += micro.n;
            ddp_loader_release(loader);
        }
        ck_assert_uint_eq(seen, 2 * SAMPLES + 2 * BATCH);
        ddp_loader_destroy(&loader);
    }
    ddp_tokens_close(&tokens);
}
END_TEST

/* The micro-batches before it are given; then every call fails with the line of the thread that read it. */
START_TEST(a_token_that_is_none_fails_when_its_turn_comes_and_stays)
{
    const size_t  bad    = 13 * CONTEXT + 1; /* in sequence 13 alone */
    ddp_tokens_t *tokens = open_tokens(bad);

    for (size_t threads = 0; threads < 3; threads++) {
        const ddp_loader_params_t params = token_params_of(tokens, threads);
        ddp_loader_t             *loader = NULL;
        ddp_micro_batch_t         micro;
        size_t                    place = 0;
        size_t                    seen  = 0;

        while (ddp_sampler_index(SEED, 0, SAMPLES, place) != 13) {
            place++;
        }
        ddp_assert_ok(ddp_loader_create(&params, &loader));
        while (ddp_loader_next(loader, &micro) == DDP_OK) {
            seen += micro.n;
            ddp_loader_release(loader);
        }
        ck_assert_uint_le(seen, place);
        ck_assert_uint_gt(seen + BATCH / MICRO, place);
        for (size_t again = 0; again < 2; again++) {
            ddp_assert_fails(ddp_loader_next(loader, &micro), DDP_ERR_FORMAT,
                             "tokens.u16': offset 80: expected tokens below the vocabulary of "
                             "100, found 100");
        }
        ddp_loader_destroy(&loader);
    }
    ddp_tokens_close(&tokens);
}
END_TEST

START_TEST(a_loader_has_either_a_data_set_or_tokens)
{
    ddp_tokens_t       *tokens = open_tokens(SIZE_MAX);
    ddp_loader_params_t params = token_params_of(tokens, 1);
    ddp_loader_t       *loader = NULL;

    params.augment = DDP_AUGMENT_PAD_CROP_FLIP;
    ddp_assert_fails(ddp_loader_create(&params, &loader), DDP_ERR_INVALID_ARG, "no augmentation");
    params         = token_params_of(tokens, 1);
    params.dataset = dataset;
    ddp_assert_fails(ddp_loader_create(&params, &loader), DDP_ERR_INVALID_ARG, "not both");
    params = token_params_of(NULL, 1);
    ddp_assert_fails(ddp_loader_create(&params, &loader), DDP_ERR_INVALID_ARG, "a data set or tokens");
    ddp_tokens_close(&tokens);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loader");
    TCase *tcase = tcase_create("all");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, any_number_of_ranks_sees_the_same_samples_once);
    tcase_add_test(tcase, a_loader_can_begin_at_any_step);
    tcase_add_test(tcase, a_batch_larger_than_the_set_is_the_set);
    tcase_add_test(tcase, a_rank_without_micro_batches_or_steps_gets_nothing);
    tcase_add_test(tcase, held_micro_batches_stay_valid_and_no_more_than_depth_are_given);
    tcase_add_test(tcase, a_loader_can_be_destroyed_at_any_moment);
    tcase_add_test(tcase, a_wait_ends_at_its_deadline_and_can_be_repeated);
    tcase_add_test(tcase, wrong_parameters_are_refused);
    tcase_add_test(tcase, tokens_come_in_the_order_of_the_sampler_as_inputs_and_targets);
    tcase_add_test(tcase, a_token_that_is_none_fails_when_its_turn_comes_and_stays);
    tcase_add_test(tcase, a_loader_has_either_a_data_set_or_tokens);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
