/** @file A set of four small IDX files in a temporary folder, and the data set opened from it. For one test
 * program each. */
#ifndef DDP_DATASET_FIXTURE_H_
#define DDP_DATASET_FIXTURE_H_

#include <stdint.h>

#include "base/allocator.h"
#include "io/dataset.h"
#include "tests/io/io_test.h"

#define TRAIN_IMAGES "train-images-idx3-ubyte"
#define TRAIN_LABELS "train-labels-idx1-ubyte"
#define TEST_IMAGES  "t10k-images-idx3-ubyte"
#define TEST_LABELS  "t10k-labels-idx1-ubyte"
#define SAMPLES      5
#define HEIGHT       4
#define WIDTH        3
#define PIXELS       (HEIGHT * WIDTH)

static const uint32_t      train_dims[3]         = {SAMPLES, HEIGHT, WIDTH};
static const uint32_t      test_dims[3]          = {2, HEIGHT, WIDTH};
static const unsigned char train_labels[SAMPLES] = {2, 0, 1, 3, 0};
static const unsigned char test_labels[2]        = {1, 6};

static char           folder[IO_TEST_PATH];
static ddp_dataset_t *dataset;
static void          *memory;

/* A whole set of four files, uncompressed. */
static inline void setup(void)
{
    io_bytes_t bytes;

    io_test_make(folder);
    io_test_images(&bytes, 3, train_dims);
    io_test_write(folder, TRAIN_IMAGES, bytes.data, bytes.n);
    io_test_labels(&bytes, SAMPLES, train_labels);
    io_test_write(folder, TRAIN_LABELS, bytes.data, bytes.n);
    io_test_images(&bytes, 3, test_dims);
    io_test_write(folder, TEST_IMAGES, bytes.data, bytes.n);
    io_test_labels(&bytes, 2, test_labels);
    io_test_write(folder, TEST_LABELS, bytes.data, bytes.n);
    dataset = NULL;
    memory  = NULL;
}

static inline void drop(void)
{
    ddp_dataset_close(&dataset);
    ddp_allocator_private()->release(NULL, memory);
    memory = NULL;
}

static inline void teardown(void)
{
    drop();
    io_test_remove(folder);
}

static inline ddp_status_t open_kind(ddp_data_kind_t kind, ddp_split_t split, size_t samples)
{
    ddp_dataset_params_t params = DDP_DATASET_PARAMS_INIT;

    drop();
    params.kind    = kind;
    params.path    = folder;
    params.split   = split;
    params.samples = samples;
    return ddp_dataset_open(&params, &dataset);
}

static inline ddp_status_t open_train(void)
{
    return open_kind(DDP_DATA_IDX, DDP_SPLIT_TRAIN, 0);
}

static inline ddp_status_t load(void)
{
    ddp_status_t status =
        ddp_allocator_private()->acquire(NULL, "data set", ddp_dataset_info(dataset)->memory_bytes, &memory);

    return status == DDP_OK ? ddp_dataset_load(dataset, memory) : status;
}

/* Either opening or loading must refuse; the fault may show only where the data is read. */
static inline ddp_status_t open_and_load(void)
{
    ddp_status_t status = open_train();

    return status == DDP_OK ? load() : status;
}

#endif
