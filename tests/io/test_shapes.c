#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocator.h"
#include "io/dataset.h"
#include "tests/support/ddp_test.h"

#define PIXELS  784
#define CLASSES 10
#define TRAIN   20000
#define TEST    4000

/* A data set with its memory. */
typedef struct loaded {
    ddp_dataset_t *dataset;
    void          *memory;
} loaded_t;

static loaded_t load_shapes(uint64_t seed, ddp_split_t split, size_t samples)
{
    ddp_dataset_params_t params = DDP_DATASET_PARAMS_INIT;
    loaded_t             loaded = {NULL, NULL};

    params.kind    = DDP_DATA_SHAPES;
    params.seed    = seed;
    params.split   = split;
    params.samples = samples;
    ddp_assert_ok(ddp_dataset_open(&params, &loaded.dataset));
    ddp_assert_ok(ddp_allocator_private()->acquire(
        NULL, "shapes", ddp_dataset_info(loaded.dataset)->memory_bytes, &loaded.memory));
    ddp_assert_ok(ddp_dataset_load(loaded.dataset, loaded.memory));
    return loaded;
}

static void drop(loaded_t *loaded)
{
    ddp_dataset_close(&loaded->dataset);
    ddp_allocator_private()->release(NULL, loaded->memory);
}

/* Raw values: mean 0, deviation 1 keeps pixel / 255. */
static void fetch_raw(loaded_t *loaded, size_t n, float *images, int32_t *labels)
{
    const double mean = 0.0;
    const double std  = 1.0;

    ddp_assert_ok(ddp_dataset_set_moments(loaded->dataset, &mean, &std));
    for (size_t i = 0; i < n; i++) {
        ddp_dataset_fetch(loaded->dataset, &i, 1, images + i * PIXELS, labels + i);
    }
}

START_TEST(defaults_are_20000_and_4000_images_of_28_by_28_in_10_classes)
{
    for (int split = 0; split < 2; split++) {
        ddp_dataset_params_t      params  = DDP_DATASET_PARAMS_INIT;
        ddp_dataset_t            *dataset = NULL;
        const ddp_dataset_info_t *info;

        params.kind  = DDP_DATA_SHAPES;
        params.split = (ddp_split_t)split;
        ddp_assert_ok(ddp_dataset_open(&params, &dataset));
        info = ddp_dataset_info(dataset);
        ck_assert_uint_eq(info->samples, split == 0 ? TRAIN : TEST);
        ck_assert_uint_eq(info->height * info->width * info->channels, PIXELS);
        ck_assert_uint_eq(info->classes, CLASSES);
        ddp_dataset_close(&dataset);
    }
}
END_TEST

START_TEST(samples_depend_on_seed_split_and_index_alone)
{
    static float   images[4][50 * PIXELS];
    static int32_t labels[4][50];
    loaded_t       sets[4] = {load_shapes(1, DDP_SPLIT_TRAIN, 50), load_shapes(1, DDP_SPLIT_TRAIN, 60),
                              load_shapes(1, DDP_SPLIT_TEST, 50), load_shapes(2, DDP_SPLIT_TRAIN, 50)};

    for (size_t s = 0; s < 4; s++) {
        fetch_raw(&sets[s], 50, images[s], labels[s]);
        drop(&sets[s]);
    }
    ck_assert_mem_eq(images[0], images[1], sizeof(images[0]));
    ck_assert_mem_eq(labels[0], labels[1], sizeof(labels[0]));
    for (size_t i = 0; i < 50; i++) {
        for (size_t j = 0; j < i; j++) {
            ck_assert_mem_ne(images[0] + i * PIXELS, images[0] + j * PIXELS, PIXELS * sizeof(float));
        }
        ck_assert_mem_ne(images[0] + i * PIXELS, images[2] + i * PIXELS, PIXELS * sizeof(float));
        ck_assert_mem_ne(images[0] + i * PIXELS, images[3] + i * PIXELS, PIXELS * sizeof(float));
    }
}
END_TEST

/* gcc and clang, with and without fused multiply-add, draw the same: a checksum that both gave. */
START_TEST(pixels_are_the_same_on_every_machine)
{
    static float   images[1000 * PIXELS];
    static int32_t labels[1000];
    loaded_t       loaded = load_shapes(1, DDP_SPLIT_TRAIN, 1000);
    uint64_t       sum    = 0;

    fetch_raw(&loaded, 1000, images, labels);
    drop(&loaded);
    for (size_t i = 0; i < 1000 * PIXELS; i++) {
        sum = sum * 31 + (uint64_t)lrintf(images[i] * 255.0F);
    }
    ck_assert_uint_eq(sum, UINT64_C(17902281174567752105));
}
END_TEST

START_TEST(classes_are_balanced_and_half_of_the_figures_are_dark_on_bright)
{
    static float   images[2000 * PIXELS];
    static int32_t labels[2000];
    loaded_t       loaded         = load_shapes(3, DDP_SPLIT_TRAIN, 2000);
    size_t         count[CLASSES] = {0};
    size_t         dark           = 0;

    fetch_raw(&loaded, 2000, images, labels);
    drop(&loaded);
    for (size_t i = 0; i < 2000; i++) {
        const float *image = images + i * PIXELS;

        count[labels[i]]++;
        /* the ground: the four corners, where no figure reaches often */
        dark += image[0] + image[27] + image[PIXELS - 28] + image[PIXELS - 1] > 2.0F ? 1 : 0;
    }
    for (size_t c = 0; c < CLASSES; c++) {
        ck_assert_uint_eq(count[c], 200);
    }
    ck_assert_uint_gt(dark, 900); /* 1000 +- 4.5 deviations of 22 */
    ck_assert_uint_lt(dark, 1100);
}
END_TEST

/* Softmax regression by plain SGD in batches of 1; `w` is [CLASSES][PIXELS + 1]. */
static void scores_of(const float *w, const float *image, float *scores)
{
    for (size_t c = 0; c < CLASSES; c++) {
        float lanes[8] = {0.0F};

        for (size_t p = 0; p < PIXELS; p += 8) {
            for (size_t k = 0; k < 8; k++) {
                lanes[k] += w[c * (PIXELS + 1) + p + k] * image[p + k];
            }
        }
        scores[c] = w[c * (PIXELS + 1) + PIXELS];
        for (size_t k = 0; k < 8; k++) {
            scores[c] += lanes[k];
        }
    }
}

static void train_linear(float *w, const float *images, const int32_t *labels, size_t n, size_t epochs)
{
    float scores[CLASSES];

    for (size_t i = 0; i < n * epochs; i++) {
        const float *image = images + i % n * PIXELS;
        const float  rate  = 0.003F / (1.0F + 2.0F * (float)i / (float)n);
        float        sum   = 0.0F;
        float        most;

        scores_of(w, image, scores);
        most = scores[0];
        for (size_t c = 1; c < CLASSES; c++) {
            most = fmaxf(most, scores[c]);
        }
        for (size_t c = 0; c < CLASSES; c++) {
            scores[c] = expf(scores[c] - most);
            sum += scores[c];
        }
        for (size_t c = 0; c < CLASSES; c++) {
            const float step = rate * ((labels[i % n] == (int32_t)c ? 1.0F : 0.0F) - scores[c] / sum);

            for (size_t p = 0; p < PIXELS; p++) {
                w[c * (PIXELS + 1) + p] += step * image[p];
            }
            w[c * (PIXELS + 1) + PIXELS] += step;
        }
    }
}

static double accuracy_of(const float *w, const float *images, const int32_t *labels, size_t n)
{
    size_t correct = 0;

    for (size_t i = 0; i < n; i++) {
        float  scores[CLASSES];
        size_t best = 0;

        scores_of(w, images + i * PIXELS, scores);
        for (size_t c = 1; c < CLASSES; c++) {
            best = scores[c] > scores[best] ? c : best;
        }
        correct += (int32_t)best == labels[i] ? 1 : 0;
    }
    return (double)correct / (double)n;
}

static float   train_images[TRAIN * PIXELS];
static int32_t train_labels[TRAIN];
static float   test_images[TEST * PIXELS];
static int32_t test_labels[TEST];
static float   weights[CLASSES * (PIXELS + 1)];

/* Deviations from the middle grey, which is what a linear model sees best. */
static void fetch_centered(ddp_split_t split, size_t n, float *images, int32_t *labels)
{
    loaded_t loaded = load_shapes(1, split, 0);

    fetch_raw(&loaded, n, images, labels);
    drop(&loaded);
    for (size_t i = 0; i < n * PIXELS; i++) {
        images[i] -= 0.5F;
    }
}

START_TEST(a_linear_model_stays_under_0_9)
{
    double accuracy;

    fetch_centered(DDP_SPLIT_TRAIN, TRAIN, train_images, train_labels);
    fetch_centered(DDP_SPLIT_TEST, TEST, test_images, test_labels);
    memset(weights, 0, sizeof(weights));
    train_linear(weights, train_images, train_labels, TRAIN, 3);
    accuracy = accuracy_of(weights, test_images, test_labels, TEST);
    ck_assert_double_lt(accuracy, 0.9);
    ck_assert_double_gt(accuracy, 0.08); /* chance is 0.1, deviation 0.005 */
}
END_TEST

/* The same model must be able to learn what is linear, or the test above shows nothing: ten fixed pictures,
 * with other pictures mixed in as noise. */
START_TEST(the_linear_model_of_this_test_can_learn)
{
    fetch_centered(DDP_SPLIT_TRAIN, TRAIN, train_images, train_labels);
    memcpy(test_images, train_images, CLASSES * PIXELS * sizeof(float));
    for (size_t i = CLASSES; i < 4000; i++) {
        for (size_t p = 0; p < PIXELS; p++) {
            const float own = train_images[i % CLASSES * PIXELS + p];

            train_images[i * PIXELS + p] = own + 0.5F * train_images[(TRAIN - i) * PIXELS + p];
        }
    }
    memset(weights, 0, sizeof(weights));
    train_linear(weights, train_images + CLASSES * PIXELS, train_labels + CLASSES, 2000, 3);
    ck_assert_double_gt(accuracy_of(weights, train_images + 3000 * PIXELS, train_labels + 3000, 1000), 0.9);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("shapes");
    TCase *tcase = tcase_create("all");

    tcase_add_test(tcase, defaults_are_20000_and_4000_images_of_28_by_28_in_10_classes);
    tcase_add_test(tcase, samples_depend_on_seed_split_and_index_alone);
    tcase_add_test(tcase, pixels_are_the_same_on_every_machine);
    tcase_add_test(tcase, classes_are_balanced_and_half_of_the_figures_are_dark_on_bright);
    tcase_add_test(tcase, a_linear_model_stays_under_0_9);
    tcase_add_test(tcase, the_linear_model_of_this_test_can_learn);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
