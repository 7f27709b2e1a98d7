/* Samples on their way to a tape of a CUDA device. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "nn/tape.h"
#include "tests/cuda/support.h"
#include "tests/support/ddp_test.h"

#define MOST    3001
#define UPLOADS 30 /* several times round the pieces of memory that they go through */

static const ddp_tape_begin_t training = {.training = true};

typedef struct place {
    support_t     s;
    ddp_params_t *params;
    ddp_tape_t   *tape;
} place_t;

static void open_place(place_t *p, bool on_cuda)
{
    ddp_tape_params_t tape = DDP_TAPE_PARAMS_INIT;
    size_t            w    = 0;

    memset(p, 0, sizeof(*p));
    support_open(&p->s);
    ddp_assert_ok(ddp_params_create(&p->params));
    ddp_assert_ok(ddp_params_add(p->params, "w", 1, (size_t[]){3}, (ddp_init_t){.kind = DDP_INIT_ZERO}, &w));
    ddp_assert_ok(ddp_params_finish(p->params));
    tape.stream = on_cuda ? p->s.on_cuda : p->s.on_cpu;
    tape.params = p->params;
    ddp_assert_ok(ddp_tape_create(&tape, &p->tape));
}

static void close_place(place_t *p)
{
    ddp_tape_destroy(&p->tape);
    ddp_params_destroy(&p->params);
    support_close(&p->s);
}

static void draw(unsigned char *bytes, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (unsigned char)(i * 31 + seed * 17 + 5);
    }
}

/* Sizes that are not those of the upload before, in each piece of memory. */
static size_t size_of(unsigned k)
{
    return 1 + k * 997 % MOST;
}

START_TEST(what_was_uploaded_may_be_overwritten_at_once)
{
    place_t       p;
    unsigned char host[MOST], wanted[MOST], found[MOST];
    const void   *device[UPLOADS];

    open_place(&p, true);
    for (int round = 0; round < 2; round++) {
        ddp_assert_ok(ddp_tape_begin(p.tape, &training));
        for (unsigned k = 0; k < UPLOADS; k++) {
            draw(host, size_of(k), k);
            ddp_assert_ok(ddp_tape_upload(p.tape, host, size_of(k), &device[k]));
            memset(host, 0xEE, sizeof(host));
        }
        for (unsigned k = 0; k < UPLOADS; k++) {
            draw(wanted, size_of(k), k);
            ddp_assert_ok(ddp_stream_read(p.s.on_cuda, found, device[k], size_of(k)));
            support_assert_same(found, wanted, size_of(k), "an upload");
        }
    }
    close_place(&p);
}
END_TEST

START_TEST(uploads_allocate_nothing_once_all_sizes_were_seen)
{
    place_t       p;
    unsigned char host[MOST] = {0};
    const void   *device     = NULL;
    size_t        before     = 0;

    open_place(&p, true);
    for (int step = 0; step < 20; step++) {
        before = step == 10 ? ddp_tape_allocations(p.tape) : before;
        ddp_assert_ok(ddp_tape_begin(p.tape, &training));
        ddp_assert_ok(ddp_tape_upload(p.tape, host, MOST, &device));
        ddp_assert_ok(ddp_tape_upload(p.tape, host, 17, &device));
    }
    ck_assert_uint_eq(ddp_tape_allocations(p.tape), before);
    close_place(&p);
}
END_TEST

START_TEST(on_a_cpu_device_an_upload_is_the_memory_itself)
{
    place_t     p;
    int         host   = 7;
    const void *device = NULL;

    open_place(&p, false);
    ddp_assert_fails(ddp_tape_upload(p.tape, &host, sizeof(host), &device), DDP_ERR_STATE,
                     "ddp_tape_begin()");
    ddp_assert_ok(ddp_tape_begin(p.tape, &training));
    ddp_assert_ok(ddp_tape_upload(p.tape, &host, sizeof(host), &device));
    ck_assert_ptr_eq(device, &host);
    ck_assert_uint_eq(ddp_tape_activation_bytes(p.tape), 0);
    ddp_assert_fails(ddp_tape_upload(p.tape, NULL, 1, &device), DDP_ERR_INVALID_ARG, "needs data");
    close_place(&p);
}
END_TEST

/* To learn what a run will need no sample is read, but their memory is counted. */
START_TEST(a_dry_device_counts_uploads)
{
    place_t             p;
    ddp_device_params_t params = DDP_DEVICE_PARAMS_INIT;
    ddp_tape_params_t   setup  = DDP_TAPE_PARAMS_INIT;
    ddp_device_t       *dry    = NULL;
    ddp_stream_t       *stream = NULL;
    ddp_tape_t         *tape   = NULL;
    const void         *device = NULL;

    open_place(&p, true);
    params.kind = DDP_DEVICE_CUDA;
    params.dry  = true;
    ddp_assert_ok(ddp_device_create(&params, &dry));
    ddp_assert_ok(ddp_stream_create(dry, "dry", &stream));
    setup.stream = stream;
    setup.params = p.params;
    ddp_assert_ok(ddp_tape_create(&setup, &tape));
    ddp_assert_ok(ddp_tape_begin(tape, &training));
    ddp_assert_ok(ddp_tape_upload(tape, (const void *)(uintptr_t)64, 1 << 20, &device));
    ck_assert_uint_ge(ddp_tape_activation_bytes(tape), 1 << 20);
    ddp_tape_destroy(&tape);
    ddp_stream_destroy(&stream);
    ddp_device_destroy(&dry);
    close_place(&p);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("cuda upload");
    TCase *tcase = tcase_create("samples");

    tcase_add_test(tcase, what_was_uploaded_may_be_overwritten_at_once);
    tcase_add_test(tcase, uploads_allocate_nothing_once_all_sizes_were_seen);
    tcase_add_test(tcase, on_a_cpu_device_an_upload_is_the_memory_itself);
    tcase_add_test(tcase, a_dry_device_counts_uploads);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return ddp_test_run(make_suite());
}
