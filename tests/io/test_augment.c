#include <stdint.h>
#include <stdlib.h>

#include "base/allocator.h"
#include "io/dataset.h"
#include "io/loader.h"
#include "io/sampler.h"
#include "tests/io/io_test.h"

#define SIDE    28
#define PIXELS  (SIDE * SIDE)
#define SAMPLES 3
#define PAD     4
#define PLACES  (2 * PAD + 1)
#define EPOCHS  1000 /* of each sample, so that rare places turn up */
#define SEED    9

static ddp_dataset_t *dataset;
static void          *memory;
static float          plain[SAMPLES][PIXELS];
static float          black; /* pixel 0, normalised */

static void setup(void)
{
    ddp_dataset_params_t params = DDP_DATASET_PARAMS_INIT;
    const size_t         all[]  = {0, 1, 2};
    int32_t              labels[SAMPLES];
    double               mean;
    double               std;

    params.kind    = DDP_DATA_SHAPES;
    params.samples = SAMPLES;
    ddp_assert_ok(ddp_dataset_open(&params, &dataset));
    ddp_assert_ok(
        ddp_allocator_private()->acquire(NULL, "shapes", ddp_dataset_info(dataset)->memory_bytes, &memory));
    ddp_assert_ok(ddp_dataset_load(dataset, memory));
    ddp_dataset_fetch(dataset, all, SAMPLES, plain[0], labels);
    ddp_dataset_moments(dataset, 0, &mean, &std);
    black = (float)(-mean / std);
}

static void teardown(void)
{
    ddp_dataset_close(&dataset);
    ddp_allocator_private()->release(NULL, memory);
}

static void fetch(uint64_t seed, uint64_t epoch, size_t index, float *x)
{
    int32_t label = -1;

    ddp_dataset_fetch_augmented(dataset, DDP_AUGMENT_PAD_CROP_FLIP, seed, epoch, &index, 1, x, &label);
    ck_assert_int_eq(label, (int32_t)index % 10); /* labels of shapes take turns */
}

/* The picture that a window at (top, left) of the padded original gives, by a plain loop */
static bool is_window(const float *x, const float *original, int top, int left, bool is_flipped)
{
    for (int y = 0; y < SIDE; y++) {
        for (int i = 0; i < SIDE; i++) {
            const int   from_y = y + top - PAD;
            const int   from_x = (is_flipped ? SIDE - 1 - i : i) + left - PAD;
            const bool  inside = from_y >= 0 && from_y < SIDE && from_x >= 0 && from_x < SIDE;
            const float wanted = inside ? original[from_y * SIDE + from_x] : black;

            if (x[y * SIDE + i] != wanted) {
                return false;
            }
        }
    }
    return true;
}

START_TEST(every_sample_is_a_window_of_the_padded_picture_and_all_windows_occur)
{
    static float x[PIXELS];
    unsigned     seen[2][PLACES][PLACES] = {{{0}}};

    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        int hits = 0;

        fetch(SEED, epoch, epoch % SAMPLES, x);
        for (int i = 0; i < 2 * PLACES * PLACES && hits == 0; i++) {
            const int flip = i / PLACES / PLACES;
            const int top  = i / PLACES % PLACES;
            const int left = i % PLACES;

            if (is_window(x, plain[epoch % SAMPLES], top, left, flip == 1)) {
                seen[flip][top][left]++;
                hits++;
            }
        }
        ck_assert_msg(hits == 1, "epoch %llu: no window", (unsigned long long)epoch);
    }
    /* 1000 draws: each of 9 rows and columns about 111 times (deviation 10), each mirror about 500 (16) */
    for (int flip = 0; flip < 2; flip++) {
        unsigned mirror = 0;

        for (int k = 0; k < PLACES; k++) {
            unsigned row    = 0;
            unsigned column = 0;

            for (int i = 0; i < PLACES; i++) {
                row += seen[0][k][i] + seen[1][k][i];
                column += seen[0][i][k] + seen[1][i][k];
                mirror += seen[flip][k][i];
            }
            ck_assert_uint_ge(row, 60);
            ck_assert_uint_ge(column, 60);
        }
        ck_assert_uint_ge(mirror, 420);
    }
}
END_TEST

START_TEST(the_draw_depends_on_seed_epoch_and_sample_and_on_nothing_else)
{
    static float first[PIXELS];
    static float again[PIXELS];
    static float both[2][PIXELS];
    const size_t pair[2] = {2, 1};
    int32_t      labels[2];
    int          differ[2] = {0};

    for (uint64_t epoch = 0; epoch < 20; epoch++) {
        fetch(SEED, epoch, 1, first);
        ddp_dataset_fetch_augmented(dataset, DDP_AUGMENT_PAD_CROP_FLIP, SEED, epoch, pair, 2, both[0],
                                    labels);
        ck_assert_mem_eq(first, both[1], sizeof(first)); /* in another place, beside another sample */
        fetch(SEED, epoch + 1, 1, again);
        differ[0] += memcmp(first, again, sizeof(first)) != 0;
        fetch(SEED + 1, epoch, 1, again);
        differ[1] += memcmp(first, again, sizeof(first)) != 0;
    }
    ck_assert_int_ge(differ[0], 15);
    ck_assert_int_ge(differ[1], 15);
}
END_TEST

START_TEST(none_is_the_plain_fetch)
{
    static float x[PIXELS];
    const size_t index = 2;
    int32_t      label;

    ddp_dataset_fetch_augmented(dataset, DDP_AUGMENT_NONE, SEED, 3, &index, 1, x, &label);
    ck_assert_mem_eq(x, plain[2], sizeof(x));
}
END_TEST

/* Micro-batch 0 alone and both, by a thread and without: the same pictures. */
START_TEST(the_loader_gives_each_sample_its_draw_of_the_epoch)
{
    static float wanted[PIXELS];

    for (size_t threads = 0; threads < 3; threads++) {
        ddp_loader_params_t params = DDP_LOADER_PARAMS_INIT;
        ddp_loader_t       *loader = NULL;
        ddp_micro_batch_t   micro;

        params.dataset       = dataset;
        params.seed          = SEED;
        params.augment       = DDP_AUGMENT_PAD_CROP_FLIP;
        params.batch         = SAMPLES;
        params.micro_batches = SAMPLES;
        params.first_micro   = threads % 2;
        params.micro_count   = 2;
        params.end_step      = 4; /* a step is an epoch */
        params.threads       = threads;
        ddp_assert_ok(ddp_loader_create(&params, &loader));
        for (uint64_t step = 0; step < 4; step++) {
            for (size_t m = 0; m < 2; m++) {
                ddp_assert_ok(ddp_loader_next(loader, &micro));
                fetch(SEED, step, ddp_sampler_index(SEED, step, SAMPLES, params.first_micro + m), wanted);
                ck_assert_mem_eq(micro.images, wanted, sizeof(wanted));
                ddp_loader_release(loader);
            }
        }
        ddp_loader_destroy(&loader);
    }
}
END_TEST

/* Three channels, and wider than one run of the tables; checked against the same loop on the decoded bytes.
 */
START_TEST(wide_pictures_in_colour_move_with_their_channels_together)
{
    enum { HEIGHT = 9, WIDTH = 70, COLOURS = 3, COUNT = HEIGHT * WIDTH * COLOURS };
    const uint32_t       dims[4]  = {1, HEIGHT, WIDTH, COLOURS};
    const unsigned char  label[1] = {0};
    const double         zero[3]  = {0};
    const double         one[3]   = {1, 1, 1};
    ddp_dataset_params_t params   = DDP_DATASET_PARAMS_INIT;
    ddp_dataset_t       *wide     = NULL;
    void                *block    = NULL;
    static io_bytes_t    bytes;
    static float         original[COUNT];
    static float         x[COUNT + 2];
    char                 folder[IO_TEST_PATH];
    const size_t         index = 0;
    int32_t              got;

    io_test_make(folder);
    io_test_images(&bytes, 4, dims);
    io_test_write(folder, "train-images-idx4-ubyte", bytes.data, bytes.n);
    io_test_labels(&bytes, 1, label);
    io_test_write(folder, "train-labels-idx1-ubyte", bytes.data, bytes.n);
    params.kind = DDP_DATA_IDX;
    params.path = folder;
    ddp_assert_ok(ddp_dataset_open(&params, &wide));
    ddp_assert_ok(
        ddp_allocator_private()->acquire(NULL, "wide", ddp_dataset_info(wide)->memory_bytes, &block));
    ddp_assert_ok(ddp_dataset_load(wide, block));
    ddp_assert_ok(ddp_dataset_set_moments(wide, zero, one));
    ddp_dataset_fetch(wide, &index, 1, original, &got);
    for (uint64_t epoch = 0; epoch < 30; epoch++) {
        bool is_found = false;

        x[0]         = -7.0F;
        x[COUNT + 1] = -7.0F;
        ddp_dataset_fetch_augmented(wide, DDP_AUGMENT_PAD_CROP_FLIP, SEED, epoch, &index, 1, x + 1, &got);
        ck_assert_float_eq(x[0], -7.0F);
        ck_assert_float_eq(x[COUNT + 1], -7.0F);
        for (int i = 0; i < 2 * PLACES * PLACES && !is_found; i++) {
            is_found = true;
            for (int k = 0; k < COUNT && is_found; k++) {
                const int  at     = k / COLOURS % WIDTH;
                const int  from_y = k / COLOURS / WIDTH + i / PLACES % PLACES - PAD;
                const int  from_x = (i >= PLACES * PLACES ? WIDTH - 1 - at : at) + i % PLACES - PAD;
                const bool inside = from_y >= 0 && from_y < HEIGHT && from_x >= 0 && from_x < WIDTH;

                is_found =
                    x[k + 1] == (inside ? original[(from_y * WIDTH + from_x) * COLOURS + k % COLOURS] : 0.0F);
            }
        }
        ck_assert(is_found);
    }
    ddp_dataset_close(&wide);
    ddp_allocator_private()->release(NULL, block);
    io_test_remove(folder);
}
END_TEST

START_TEST(pictures_too_small_to_move_are_refused)
{
    const ddp_dataset_info_t small = {.height = 28, .width = 7, .source = "mine"};

    ddp_assert_ok(ddp_augment_check(DDP_AUGMENT_NONE, &small));
    ddp_assert_fails(ddp_augment_check(DDP_AUGMENT_PAD_CROP_FLIP, &small), DDP_ERR_CONFIG,
                     "mine: pictures of 28 x 7 are too small");
    ddp_assert_fails(ddp_augment_check((ddp_augment_t)5, &small), DDP_ERR_INVALID_ARG, "5 is unknown");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("augment");
    TCase *tcase = tcase_create("all");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, every_sample_is_a_window_of_the_padded_picture_and_all_windows_occur);
    tcase_add_test(tcase, the_draw_depends_on_seed_epoch_and_sample_and_on_nothing_else);
    tcase_add_test(tcase, none_is_the_plain_fetch);
    tcase_add_test(tcase, the_loader_gives_each_sample_its_draw_of_the_epoch);
    tcase_add_test(tcase, wide_pictures_in_colour_move_with_their_channels_together);
    tcase_add_test(tcase, pictures_too_small_to_move_are_refused);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
