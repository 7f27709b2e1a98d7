#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/tfevents.h"
#include "tests/support/ddp_test.h"

#define MOST 4096

static char folder[] = "/tmp/ddp_tfevents_XXXXXX";

static const char *under(const char *name)
{
    static char path[256];

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static size_t read_file(const char *path, uint8_t *data)
{
    FILE  *file = fopen(path, "rb");
    size_t n;

    ck_assert_ptr_nonnull(file);
    n = fread(data, 1, MOST, file);
    ck_assert_int_eq(fclose(file), 0);
    return n;
}

START_TEST(bytes_are_those_of_tensorboard)
{
    /* written by tensorboard 2.21 (RecordWriter over event_pb2.Event): time 2.5, version; time 3, step 300,
     * "a/b" 0.5 and "c" -2 */
    static const uint8_t wanted[] = {
        0x18, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xa3, 0x7f, 0x4b, 0x22, 0x09, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x04, 0x40, 0x1a, 0x0d, 0x62, 0x72, 0x61, 0x69, 0x6e, 0x2e, 0x45, 0x76, 0x65,
        0x6e, 0x74, 0x3a, 0x32, 0xb1, 0x9b, 0xca, 0xec, 0x24, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x42, 0x2b, 0x80, 0x4d, 0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x08, 0x40, 0x10, 0xac, 0x02,
        0x2a, 0x16, 0x0a, 0x0a, 0x0a, 0x03, 0x61, 0x2f, 0x62, 0x15, 0x00, 0x00, 0x00, 0x3f, 0x0a, 0x08,
        0x0a, 0x01, 0x63, 0x15, 0x00, 0x00, 0x00, 0xc0, 0xf2, 0x02, 0x94, 0xc3,
    };
    const ddp_tfscalar_t scalars[] = {{"a/b", 0.5}, {"left out", NAN}, {"c", -2}};
    ddp_tfevents_t      *events    = NULL;
    uint8_t              data[MOST];
    struct stat          st;

    ddp_assert_ok(ddp_tfevents_create(folder, "x.tfevents.1", 2.5, &events));
    ddp_assert_ok(ddp_tfevents_add(events, 3, 300, scalars, 3));
    ck_assert_int_ne(stat(under("x.tfevents.1"), &st), 0);
    ddp_assert_ok(ddp_tfevents_finish(events));
    ddp_tfevents_close(&events);
    ck_assert_ptr_null(events);
    ck_assert_uint_eq(read_file(under("x.tfevents.1"), data), sizeof(wanted));
    ck_assert_mem_eq(data, wanted, sizeof(wanted));
    ck_assert_int_eq(unlink(under("x.tfevents.1")), 0);
    ck_assert_int_eq(rmdir(folder), 0); /* and nothing else is in it */
    ck_assert_ptr_nonnull(mkdtemp(strcpy(folder, "/tmp/ddp_tfevents_XXXXXX")));
}
END_TEST

START_TEST(what_is_not_finished_is_not_there)
{
    ddp_tfevents_t *events = NULL;

    ddp_assert_ok(ddp_tfevents_create(folder, "x", 0, &events));
    ddp_assert_ok(ddp_tfevents_add(events, 0, 0, NULL, 0));
    ddp_tfevents_close(&events);
    ddp_tfevents_close(&events); /* NULL */
    ck_assert_int_eq(rmdir(folder), 0);
    ck_assert_ptr_nonnull(mkdtemp(strcpy(folder, "/tmp/ddp_tfevents_XXXXXX")));
}
END_TEST

START_TEST(a_folder_that_does_not_exist_is_named)
{
    ddp_tfevents_t *events = NULL;

    ddp_assert_fails(ddp_tfevents_create(under("nowhere"), "x", 0, &events), DDP_ERR_IO,
                     "nowhere/x': no such file or directory");
    ck_assert_ptr_null(events);
}
END_TEST

START_TEST(a_full_disk_is_an_error)
{
    ddp_tfevents_t *events = NULL;
    char            draft[256];

    if (access("/dev/full", W_OK) != 0) {
        return;
    }
    (void)snprintf(draft, sizeof(draft), "%s", under(".events.part"));
    ck_assert_int_eq(symlink("/dev/full", draft), 0);
    ddp_assert_ok(ddp_tfevents_create(folder, "x", 0, &events));
    ddp_assert_fails(ddp_tfevents_finish(events), DDP_ERR_IO, "/x': no space left on device");
    ddp_tfevents_close(&events);
    ck_assert_int_ne(access(under("x"), F_OK), 0);
}
END_TEST

static void make_folder(void)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void)
{
    ck_assert_int_eq(rmdir(folder), 0);
}

int main(void)
{
    Suite *suite = suite_create("tfevents");
    TCase *tcase = tcase_create("all");

    tcase_add_unchecked_fixture(tcase, make_folder, remove_folder);
    tcase_add_test(tcase, bytes_are_those_of_tensorboard);
    tcase_add_test(tcase, what_is_not_finished_is_not_there);
    tcase_add_test(tcase, a_folder_that_does_not_exist_is_named);
    tcase_add_test(tcase, a_full_disk_is_an_error);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
