#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "io/metrics.h"
#include "tests/io/io_test.h"

static char top[IO_TEST_PATH];

static void setup(void)
{
    io_test_make(top);
}

static void teardown(void)
{
    io_test_remove(top);
}

static const char *under(const char *name)
{
    static char path[2 * IO_TEST_PATH];

    snprintf(path, sizeof(path), "%s/%s", top, name);
    return path;
}

/* The whole text of a file. */
static const char *text_of(const char *path)
{
    static char text[4096];
    FILE       *file = fopen(path, "rb");
    size_t      n;

    ck_assert_ptr_nonnull(file);
    n       = fread(text, 1, sizeof(text) - 1, file);
    text[n] = '\0';
    (void)fclose(file);
    return text;
}

START_TEST(one_object_is_one_line_with_event_first_and_no_nan)
{
    ddp_metrics_t *metrics = NULL;
    cJSON         *object;

    ddp_assert_ok(ddp_metrics_open(top, &metrics));
    object = ddp_metrics_event("step");
    ck_assert_ptr_nonnull(object);
    cJSON_AddNumberToObject(object, "step", 3);
    cJSON_AddNumberToObject(object, "loss", NAN);
    cJSON_AddNumberToObject(object, "lr", INFINITY);
    cJSON_AddNumberToObject(object, "x", 0.1);
    cJSON_AddStringToObject(object, "host", "a\"b\nc");
    ddp_metrics_write(metrics, object);
    ddp_metrics_write(metrics, ddp_metrics_event("end"));
    ddp_metrics_write(metrics, NULL);
    ddp_metrics_write(NULL, ddp_metrics_event("dropped"));
    ddp_metrics_close(&metrics);
    ck_assert_ptr_null(metrics);
    ddp_metrics_close(&metrics);
    ck_assert_str_eq(
        text_of(under("metrics.jsonl")),
        "{\"event\":\"step\",\"step\":3,\"loss\":null,\"lr\":null,\"x\":0.1,\"host\":\"a\\\"b\\nc\"}\n"
        "{\"event\":\"end\"}\n");
}
END_TEST

START_TEST(metrics_of_another_run_are_not_written_over)
{
    ddp_metrics_t *metrics = NULL;

    io_test_write(top, "metrics.jsonl", "old\n", 4);
    ddp_assert_fails(ddp_metrics_open(top, &metrics), DDP_ERR_IO, "metrics.jsonl': file exists");
    ddp_assert_fails(ddp_metrics_open(under("nowhere"), &metrics), DDP_ERR_IO, "no such file or directory");
    ck_assert_str_eq(text_of(under("metrics.jsonl")), "old\n");
    ck_assert_ptr_null(metrics);
}
END_TEST

/* A limit on file sizes stands in for a full disk. */
START_TEST(a_write_that_fails_is_one_warning_and_no_more_metrics)
{
    ddp_metrics_t *metrics = NULL;
    const int      kept    = dup(STDERR_FILENO);
    char           log[1024];
    int            ends[2];
    ssize_t        n;
    struct rlimit  before;
    struct rlimit  none;

    ck_assert_int_eq(pipe(ends), 0);
    ddp_assert_ok(ddp_metrics_open(top, &metrics));
    (void)signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    none          = before;
    none.rlim_cur = 0;
    (void)dup2(ends[1], STDERR_FILENO);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
    ddp_metrics_write(metrics, ddp_metrics_event("a"));
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    ddp_metrics_write(metrics, ddp_metrics_event("b"));
    (void)dup2(kept, STDERR_FILENO);
    (void)close(kept);
    (void)close(ends[1]);
    n = read(ends[0], log, sizeof(log) - 1);
    ck_assert_int_gt(n, 0);
    log[n] = '\0';
    ck_assert_int_eq(read(ends[0], log + n, sizeof(log) - (size_t)n), 0);
    (void)close(ends[0]);
    ddp_metrics_close(&metrics);
    ck_assert_str_eq(text_of(under("metrics.jsonl")), "");
    ck_assert_ptr_nonnull(
        strstr(log, "metrics.jsonl': file too large; no more metrics are written, training goes on\n"));
    ck_assert_ptr_eq(strchr(log, '\n'), log + n - 1);
}
END_TEST

START_TEST(run_folders_are_numbered_and_parents_are_made)
{
    char folder[2 * IO_TEST_PATH];
    char base[IO_TEST_PATH + 32];
    char wanted[IO_TEST_PATH + 64];

    snprintf(base, sizeof(base), "%s/deep/runs/mlp-shapes", top);
    ddp_assert_ok(ddp_run_folder_create(NULL, base, folder, sizeof(folder)));
    ck_assert_str_eq(folder, base);
    for (int number = 2; number < 5; number++) {
        ddp_assert_ok(ddp_run_folder_create(NULL, base, folder, sizeof(folder)));
        snprintf(wanted, sizeof(wanted), "%s-%d", base, number);
        ck_assert_str_eq(folder, wanted);
    }
}
END_TEST

START_TEST(runs_started_at_once_get_folders_of_their_own)
{
    enum { RUNS = 8 };
    pid_t       children[RUNS];
    char        base[IO_TEST_PATH + 32];
    char        folder[IO_TEST_PATH + 64];
    struct stat st;

    snprintf(base, sizeof(base), "%s/runs/cnn-shapes", top);
    for (int i = 0; i < RUNS; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            bool is_ok = ddp_run_folder_create(NULL, base, folder, sizeof(folder)) == DDP_OK;

            is_ok = is_ok && ddp_file_write(folder, "mine", "x") == DDP_OK;
            _exit(is_ok ? 0 : 1);
        }
    }
    for (int i = 0; i < RUNS; i++) {
        int status = -1;

        ck_assert_int_eq(waitpid(children[i], &status, 0), children[i]);
        ck_assert_int_eq(status, 0);
    }
    snprintf(folder, sizeof(folder), "%s-%d/mine", base, RUNS);
    ck_assert_int_eq(stat(folder, &st), 0);
    snprintf(folder, sizeof(folder), "%s-%d", base, RUNS + 1);
    ck_assert_int_ne(stat(folder, &st), 0);
}
END_TEST

START_TEST(an_asked_folder_may_be_new_or_empty_only)
{
    char folder[2 * IO_TEST_PATH];
    char small[8];

    ddp_assert_ok(ddp_run_folder_create(under("a/b/"), "unused", folder, sizeof(folder)));
    ck_assert_str_eq(folder, under("a/b"));
    ddp_assert_ok(ddp_run_folder_create(under("a/b"), "unused", folder, sizeof(folder)));
    ddp_assert_fails(ddp_run_folder_create(under("a"), "unused", folder, sizeof(folder)), DDP_ERR_IO,
                     "exists and is not empty; a run is never written over: choose another --out");
    io_test_write(top, "file", "x", 1);
    ddp_assert_fails(ddp_run_folder_create(under("file"), "unused", folder, sizeof(folder)), DDP_ERR_IO,
                     "/file': a file, not a folder");
    ddp_assert_fails(ddp_run_folder_create(under("file/run"), "unused", folder, sizeof(folder)), DDP_ERR_IO,
                     "/file': a file, where a folder is needed");
    ddp_assert_fails(ddp_run_folder_create("", "unused", folder, sizeof(folder)), DDP_ERR_IO, "needs a name");
    ddp_assert_fails(ddp_run_folder_create(under("c"), "unused", small, sizeof(small)), DDP_ERR_IO,
                     "path too long");
}
END_TEST

/* As another user, since root may write anywhere. */
START_TEST(unwritable_folders_are_named_with_the_cause)
{
    const uid_t    self    = geteuid();
    ddp_metrics_t *metrics = NULL;
    char           folder[2 * IO_TEST_PATH];
    char           base[IO_TEST_PATH + 32];

    snprintf(base, sizeof(base), "%s/runs", top);
    ck_assert_int_eq(chmod(top, 0555), 0);
    ck_assert_int_eq(seteuid(self == 0 ? 65534 : self), 0);
    ddp_assert_fails(ddp_run_folder_create(under("run"), "unused", folder, sizeof(folder)), DDP_ERR_IO,
                     "/run': permission denied; choose another --out");
    ddp_assert_fails(ddp_run_folder_create(NULL, base, folder, sizeof(folder)), DDP_ERR_IO,
                     "/runs': permission denied");
    ddp_assert_fails(ddp_run_folder_create(NULL, under("runs/mlp"), folder, sizeof(folder)), DDP_ERR_IO,
                     "/runs': permission denied");
    ddp_assert_fails(ddp_run_folder_create(top, "unused", folder, sizeof(folder)), DDP_ERR_IO,
                     "permission denied; choose another --out");
    ddp_assert_fails(ddp_metrics_open(top, &metrics), DDP_ERR_IO, "metrics.jsonl': permission denied");
    ddp_assert_fails(ddp_file_write(top, "config.yaml", "x"), DDP_ERR_IO, "config.yaml': permission denied");
    ck_assert_int_eq(seteuid(self), 0);
    ck_assert_int_eq(chmod(top, 0755), 0);
}
END_TEST

START_TEST(a_small_file_is_replaced_whole)
{
    struct stat st;

    ddp_assert_ok(ddp_file_write(top, "config.yaml", "first: a longer text\n"));
    ddp_assert_ok(ddp_file_write(top, "config.yaml", "second: 2\n"));
    ck_assert_str_eq(text_of(under("config.yaml")), "second: 2\n");
    ck_assert_int_ne(stat(under(".config.yaml.tmp"), &st), 0);
    ddp_assert_fails(ddp_file_write(under("nowhere"), "x", "y"), DDP_ERR_IO, "no such file or directory");
    ck_assert_int_eq(mkdir(under("taken"), 0777), 0);
    ddp_assert_fails(ddp_file_write(top, "taken", "y"), DDP_ERR_IO, "/taken': is a directory");
    ck_assert_int_ne(stat(under(".taken.tmp"), &st), 0); /* nothing is left behind */
}
END_TEST

START_TEST(a_path_that_is_no_plain_file_is_written_into)
{
    struct stat st;
    char        pipe[2 * IO_TEST_PATH];
    char        text[8] = "";
    int         fd;

    /* as with --svg /dev/stdout, which root would lose to a rename */
    ck_assert_int_eq(symlink("target", under("link")), 0);
    ddp_assert_ok(ddp_file_write_path(under("link"), "first: a longer text\n"));
    ddp_assert_ok(ddp_file_write_path(under("link"), "second\n"));
    ck_assert_str_eq(text_of(under("target")), "second\n");
    ck_assert_int_eq(lstat(under("link"), &st), 0);
    ck_assert(S_ISLNK(st.st_mode));
    ck_assert_int_eq(symlink("/dev/full", under("full")), 0);
    ddp_assert_fails(ddp_file_write_path(under("full"), "x"), DDP_ERR_IO, "/full': no space left on device");
    (void)snprintf(pipe, sizeof(pipe), "%s", under("pipe"));
    ck_assert_int_eq(mkfifo(pipe, 0666), 0);
    fd = open(pipe, O_RDWR);
    ck_assert_int_ge(fd, 0);
    ddp_assert_ok(ddp_file_write_path(pipe, "third\n"));
    ck_assert_int_eq(read(fd, text, sizeof(text) - 1), 6);
    ck_assert_str_eq(text, "third\n");
    (void)close(fd);
    ck_assert_int_eq(lstat(pipe, &st), 0);
    ck_assert(S_ISFIFO(st.st_mode));
    ddp_assert_fails(ddp_file_write_path(top, "x"), DDP_ERR_IO, "': is a directory");
}
END_TEST

START_TEST(a_line_at_the_end_is_one_of_its_own)
{
    FILE *file;

    ddp_assert_fails(ddp_metrics_append(top, ddp_metrics_event("fail")), DDP_ERR_IO,
                     "no such file or directory");
    ck_assert_int_ne(access(under("metrics.jsonl"), F_OK), 0); /* nor is it made */
    file = fopen(under("metrics.jsonl"), "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fclose(file), 0);
    ddp_assert_ok(ddp_metrics_append(top, ddp_metrics_event("a")));
    ddp_assert_ok(ddp_metrics_append(top, ddp_metrics_event("b")));
    file = fopen(under("metrics.jsonl"), "a");
    ck_assert_ptr_nonnull(file);
    fputs("{\"half", file);
    ck_assert_int_eq(fclose(file), 0);
    ddp_assert_ok(ddp_metrics_append(top, ddp_metrics_event("c")));
    ck_assert_str_eq(text_of(under("metrics.jsonl")),
                     "{\"event\":\"a\"}\n{\"event\":\"b\"}\n{\"half\n{\"event\":\"c\"}\n");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("metrics");
    TCase *tcase = tcase_create("all");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, one_object_is_one_line_with_event_first_and_no_nan);
    tcase_add_test(tcase, metrics_of_another_run_are_not_written_over);
    tcase_add_test(tcase, a_write_that_fails_is_one_warning_and_no_more_metrics);
    tcase_add_test(tcase, run_folders_are_numbered_and_parents_are_made);
    tcase_add_test(tcase, runs_started_at_once_get_folders_of_their_own);
    tcase_add_test(tcase, an_asked_folder_may_be_new_or_empty_only);
    tcase_add_test(tcase, unwritable_folders_are_named_with_the_cause);
    tcase_add_test(tcase, a_small_file_is_replaced_whole);
    tcase_add_test(tcase, a_path_that_is_no_plain_file_is_written_into);
    tcase_add_test(tcase, a_path_that_is_no_plain_file_is_written_into);
    tcase_add_test(tcase, a_line_at_the_end_is_one_of_its_own);
    suite_add_tcase(suite, tcase);
    return ddp_test_run(suite);
}
