#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/supervise.h"
#include "tests/support/ddp_test.h"

#define MOST_WORDS 24

/* "mpirun -np 2 ddptrain" as words; `text` is taken apart. */
static int split(char *text, char **argv)
{
    int n = 0;

    for (char *word = strtok(text, " "); word != NULL && n < MOST_WORDS; word = strtok(NULL, " ")) {
        argv[n++] = word;
    }
    argv[n] = NULL;
    return n;
}

typedef struct words {
    char  text[512];
    char *argv[MOST_WORDS + 1];
    int   argc;
} words_t;

static ddp_status_t read_line(words_t *words, const char *text, ddp_supervise_line_t *line)
{
    (void)snprintf(words->text, sizeof(words->text), "%s", text);
    words->argc = split(words->text, words->argv);
    return ddp_supervise_line_read(words->argc, words->argv, line);
}

static void assert_words(const ddp_supervise_line_t *line, const ddp_supervise_change_t *change,
                         const char *wanted)
{
    char **argv      = NULL;
    char   text[512] = "";

    ddp_assert_ok(ddp_supervise_words(line, change, &argv));
    for (int i = 0; argv[i] != NULL; i++) {
        strcat(text, i > 0 ? " " : "");
        strcat(text, argv[i]);
    }
    ck_assert_str_eq(text, wanted);
    ddp_supervise_words_free(argv);
}

static ddp_status_t parse(ddp_supervise_options_t *options, const char *text, words_t *words)
{
    (void)snprintf(words->text, sizeof(words->text), "%s", text);
    words->argc = split(words->text, words->argv);
    return ddp_supervise_options_parse(words->argc, words->argv, options);
}

/* ---- The command line ---- */

START_TEST(what_is_behind_two_dashes_is_the_command)
{
    ddp_supervise_options_t options;
    words_t                 words;

    ddp_assert_ok(
        parse(&options, "supervise --max-restarts 24 --window 2h -- mpirun -np 2 ddptrain -- x", &words));
    ck_assert_uint_eq(options.max_restarts, 24);
    ck_assert(options.window_s == 7200);
    ck_assert_int_eq(options.argc, 6);
    ck_assert_str_eq(options.argv[0], "mpirun");
    ck_assert_str_eq(options.argv[5], "x");
    ddp_assert_ok(parse(&options, "supervise --help", &words));
    ck_assert(options.help);
}
END_TEST

START_TEST(mistakes_say_what_was_meant)
{
    ddp_supervise_options_t options;
    words_t                 words;

    ddp_assert_fails(parse(&options, "supervise", &words), DDP_ERR_CONFIG,
                     "needs a command: ddptrain supervise --");
    ddp_assert_fails(parse(&options, "supervise --", &words), DDP_ERR_CONFIG, "needs a command");
    ddp_assert_fails(parse(&options, "supervise mpirun -np 2 x", &words), DDP_ERR_CONFIG,
                     "'mpirun': the command goes behind --");
    ddp_assert_fails(parse(&options, "supervise --max-restart 3 -- x", &words), DDP_ERR_CONFIG,
                     "did you mean '--max-restarts'?");
    ddp_assert_fails(parse(&options, "supervise --max-restarts -- x", &words), DDP_ERR_CONFIG,
                     "needs a value");
    ddp_assert_fails(parse(&options, "supervise --max-restarts -1 -- x", &words), DDP_ERR_CONFIG,
                     "a whole number from 0");
    ddp_assert_fails(parse(&options, "supervise --window 0 -- x", &words), DDP_ERR_CONFIG,
                     "a time is expected");
    ddp_assert_fails(parse(&options, "supervise --log loud -- x", &words), DDP_ERR_CONFIG, "loud");
}
END_TEST

/* ---- What is understood of the command ---- */

START_TEST(mpiruns_options_are_told_from_the_programs)
{
    ddp_supervise_line_t line;
    words_t              words;

    ddp_assert_ok(
        read_line(&words,
                  "/usr/bin/mpirun --mca btl tcp,self -np 6 --hostfile h --bind-to none -npernode 3 "
                  "build/ddptrain run.yaml --out my/run --time-limit 2h",
                  &line));
    ck_assert_int_eq(line.kind, DDP_SUPERVISE_MPIRUN);
    ck_assert_ptr_null(line.unknown);
    ck_assert_str_eq(words.argv[line.ranks], "6");
    ck_assert_str_eq(words.argv[line.hostfile], "h");
    ck_assert_str_eq(words.argv[line.per_host], "3");
    ck_assert_int_eq(line.hosts, -1);
    ck_assert_str_eq(words.argv[line.program], "build/ddptrain");
    ck_assert_str_eq(line.out, "my/run");
    ck_assert(line.is_limited);
    ddp_assert_ok(read_line(&words, "ddptrain --resume auto", &line));
    ck_assert_int_eq(line.kind, DDP_SUPERVISE_PROGRAM);
    ck_assert_str_eq(line.resume, "auto");
    ddp_assert_ok(read_line(&words, "srun -K --mpi=pmix -n 4 ./ddptrain --out x", &line));
    ck_assert_int_eq(line.kind, DDP_SUPERVISE_SRUN);
    ck_assert_str_eq(line.out, "x");
    ck_assert_int_eq(line.ranks, -1);
    ddp_assert_ok(read_line(&words, "sh ddptrain-job.sh --out x", &line));
    ck_assert_int_eq(line.kind, DDP_SUPERVISE_OTHER);
    ck_assert_int_eq(line.program, -1);
}
END_TEST

START_TEST(what_is_not_understood_is_named_and_left_alone)
{
    ddp_supervise_line_t line;
    words_t              words;

    ddp_assert_ok(read_line(&words, "mpirun --frobnicate 3 -np 2 ddptrain --out x", &line));
    ck_assert_str_eq(line.unknown, "--frobnicate");
    ck_assert_str_eq(line.out, "x");
    ddp_assert_ok(read_line(&words, "mpirun -np 2 ddptrain : -np 2 ddptrain", &line));
    ck_assert_str_eq(line.unknown, ":");
    ddp_assert_ok(read_line(&words, "mpirun -np two ddptrain", &line));
    ck_assert_str_eq(line.unknown, "two");
    ddp_assert_ok(read_line(&words, "mpirun -np 2 -np 3 ddptrain", &line));
    ck_assert_str_eq(line.unknown, "-np");
    ddp_assert_ok(read_line(&words, "mpirun -np", &line));
    ck_assert_str_eq(line.unknown, "-np");
}
END_TEST

START_TEST(what_ddptrain_would_refuse_is_refused_at_once)
{
    ddp_supervise_line_t line;
    words_t              words;

    ddp_assert_fails(read_line(&words, "mpirun -np 2 ddptrain --oot x", &line), DDP_ERR_CONFIG,
                     "did you mean '--out'?");
    ddp_assert_fails(read_line(&words, "ddptrain eval x.h5", &line), DDP_ERR_CONFIG, "does not train");
}
END_TEST

START_TEST(a_run_gets_the_words_with_what_has_changed)
{
    ddp_supervise_line_t   line;
    words_t                words;
    ddp_supervise_change_t change = {0};

    ddp_assert_ok(read_line(&words, "mpirun -np 6 --host a:2,b:4 ddptrain", &line));
    assert_words(&line, &change, "mpirun -x DDPTRAIN_RESTART_COUNT -np 6 --host a:2,b:4 ddptrain");
    change = (ddp_supervise_change_t){.hosts = "b:4", .ranks = 4, .out = "runs/supervised"};
    assert_words(&line, &change,
                 "mpirun -x DDPTRAIN_RESTART_COUNT -np 4 --host b:4 ddptrain --out runs/supervised");
    ddp_assert_ok(read_line(&words, "mpirun ddptrain", &line));
    change = (ddp_supervise_change_t){.hostfile = "h", .ranks = 4};
    assert_words(&line, &change, "mpirun -x DDPTRAIN_RESTART_COUNT --hostfile h ddptrain");
    ddp_assert_ok(read_line(&words, "srun -n 4 ddptrain", &line));
    assert_words(&line, &change, "srun -n 4 ddptrain");
}
END_TEST

/* ---- Hosts ---- */

static const char *write_file(const char *text)
{
    static char name[] = "hosts.XXXXXX";
    int         fd;

    memcpy(name, "hosts.XXXXXX", sizeof(name));
    fd = mkstemp(name);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq((int)write(fd, text, strlen(text)), (int)strlen(text));
    (void)close(fd);
    return name;
}

static void assert_copy(const ddp_supervise_hosts_t *hosts, const char *path, const char *wanted)
{
    char  text[512] = "";
    FILE *copy      = tmpfile();

    ck_assert_ptr_nonnull(copy);
    ddp_assert_ok(ddp_supervise_hosts_write(hosts, path, fileno(copy)));
    rewind(copy);
    text[fread(text, 1, sizeof(text) - 1, copy)] = '\0';
    ck_assert_str_eq(text, wanted);
    (void)fclose(copy);
}

START_TEST(a_hostfile_loses_the_lines_of_a_host)
{
    ddp_supervise_hosts_t hosts;
    const char           *path = write_file(
                  "# ours\nnode1.cluster slots=2 max_slots=4\n\n me@node2 slots = 1\nnode3 cpus=3 # old\n10.0.0.1\n");

    ddp_assert_ok(ddp_supervise_hosts_read(path, &hosts));
    ck_assert_uint_eq(hosts.n, 4);
    ck_assert_str_eq(hosts.host[1].name, "node2");
    ck_assert_uint_eq(hosts.host[0].slots, 2);
    ck_assert_uint_eq(hosts.host[2].slots, 3);
    ck_assert_uint_eq(hosts.host[3].slots, 0);
    ck_assert_ptr_eq(ddp_supervise_hosts_find(&hosts, "node1"), &hosts.host[0]);
    ck_assert_ptr_eq(ddp_supervise_hosts_find(&hosts, "node3.cluster"), &hosts.host[2]);
    ck_assert_ptr_null(ddp_supervise_hosts_find(&hosts, "node1.other"));
    ck_assert_ptr_null(ddp_supervise_hosts_find(&hosts, "node"));
    ck_assert_ptr_null(ddp_supervise_hosts_find(&hosts, "10"));
    ck_assert_ptr_null(ddp_supervise_hosts_find(&hosts, ""));
    assert_copy(
        &hosts, path,
        "# ours\nnode1.cluster slots=2 max_slots=4\n\n me@node2 slots = 1\nnode3 cpus=3 # old\n10.0.0.1\n");
    hosts.host[1].is_dropped = true;
    hosts.host[3].is_dropped = true;
    ck_assert_uint_eq(ddp_supervise_hosts_left(&hosts), 2);
    assert_copy(&hosts, path, "# ours\nnode1.cluster slots=2 max_slots=4\n\nnode3 cpus=3 # old\n");
    ddp_supervise_hosts_free(&hosts);
    (void)unlink(path);
    path = write_file("# nobody\n");
    ddp_assert_fails(ddp_supervise_hosts_read(path, &hosts), DDP_ERR_CONFIG, "no hosts in it");
    (void)unlink(path);
    ddp_assert_fails(ddp_supervise_hosts_read("none", &hosts), DDP_ERR_CONFIG,
                     "hostfile: 'none': no such file or directory");
}
END_TEST

START_TEST(a_list_loses_a_host_wherever_it_stands)
{
    ddp_supervise_hosts_t hosts;
    char                 *list = NULL;

    ddp_assert_ok(ddp_supervise_hosts_parse("a:2,b,a,c:*", &hosts));
    ck_assert_uint_eq(hosts.n, 3);
    ck_assert_uint_eq(hosts.host[0].slots, 3);
    ck_assert_uint_eq(hosts.host[1].slots, 1);
    ck_assert_uint_eq(hosts.host[2].slots, 0);
    hosts.host[0].is_dropped = true;
    list                     = ddp_supervise_hosts_list(&hosts, "a:2,b,a,c:*");
    ck_assert_str_eq(list, "b,c:*");
    free(list);
    ddp_supervise_hosts_free(&hosts);
    ddp_assert_fails(ddp_supervise_hosts_parse("", &hosts), DDP_ERR_CONFIG, "no hosts");
    ddp_assert_fails(ddp_supervise_hosts_parse("a,,b", &hosts), DDP_ERR_CONFIG, "an empty name");
}
END_TEST

START_TEST(ranks_are_as_many_as_slots_are_left)
{
    ddp_supervise_hosts_t hosts;

    ddp_assert_ok(ddp_supervise_hosts_parse("a:4,b:2,c:2", &hosts));
    hosts.host[0].is_dropped = true;
    ck_assert_uint_eq(ddp_supervise_hosts_ranks(&hosts, 8, 0), 4);
    ck_assert_uint_eq(ddp_supervise_hosts_ranks(&hosts, 3, 0), 3);
    ck_assert_uint_eq(ddp_supervise_hosts_ranks(&hosts, 16, 0), 8); /* as crowded as it was */
    ck_assert_uint_eq(ddp_supervise_hosts_ranks(&hosts, 8, 1), 2);
    ck_assert_uint_eq(ddp_supervise_hosts_ranks(&hosts, 0, 0), 0);
    hosts.host[1].slots = 0; /* not told */
    ck_assert_uint_eq(ddp_supervise_hosts_ranks(&hosts, 9, 0), 6);
    ck_assert_uint_eq(ddp_supervise_hosts_ranks(&hosts, UINT64_MAX, 0), UINT64_MAX / 3 * 2);
    ddp_supervise_hosts_free(&hosts);
}
END_TEST

/* ---- What the output tells ---- */

START_TEST(the_rank_that_ddptrain_names_comes_before_mpiruns_word)
{
    ddp_supervise_clue_t clue = {0};

    ddp_supervise_clue_read(&clue, "ddptrain[0@n1]: step 10/100 epoch 1 loss 2");
    ddp_supervise_clue_read(&clue, "ddptrain[0@n1]: warning: rank 1 on n1 is slow but moving");
    ck_assert_str_eq(clue.host, "");
    ddp_supervise_clue_read(&clue, "  Remote daemon: [[28532,0],2] on node n3");
    ck_assert_str_eq(clue.host, "n3");
    ddp_supervise_clue_read(
        &clue, "mpirun noticed that process rank 3 with PID 7 on node n2 exited on signal 9 (Killed).");
    ck_assert_str_eq(clue.host, "n2");
    ck_assert(strstr(clue.line, "signal 9") != NULL);
    ddp_supervise_clue_read(
        &clue, "\r\033[Kddptrain[2@n4]: rank 5 on n5.cluster has ended (pid 77): waiting for its sums");
    ck_assert_str_eq(clue.host, "n5.cluster");
    ck_assert_str_eq(clue.line,
                     "ddptrain[2@n4]: rank 5 on n5.cluster has ended (pid 77): waiting for its sums");
    ddp_supervise_clue_read(&clue, "ddptrain[0@n1]: rank 2 on n4 has ended (pid 78): waiting for its sums");
    ck_assert_str_eq(clue.host, "n5.cluster");
}
END_TEST

START_TEST(an_error_without_a_rank_is_no_hosts_fault)
{
    ddp_supervise_clue_t clue = {0};

    ddp_supervise_clue_read(&clue, "ddptrain[0@n1]: folder my/run");
    ddp_supervise_clue_read(&clue, "ddptrain[0@n1]: loss is not finite in step 7");
    ddp_supervise_clue_read(&clue, "Primary job  terminated normally, but 1 process returned");
    ck_assert_str_eq(clue.line, "ddptrain[0@n1]: loss is not finite in step 7");
    ck_assert_str_eq(clue.host, "");
    ddp_supervise_clue_read(&clue, "ssh: connect to host n9 port 22: No route to host");
    ck_assert_str_eq(clue.host, "n9");
}
END_TEST

START_TEST(mpirun_may_not_say_which_host_it_cannot_reach)
{
    ddp_supervise_clue_t clue = {0};

    ddp_supervise_clue_read(&clue, "  target node:  n2"); /* Open MPI 4.1.4 names one that is well */
    ck_assert(!clue.is_unstarted);
    ddp_supervise_clue_read(&clue, "ORTE was unable to reliably start one or more daemons.");
    ck_assert(clue.is_unstarted);
    ck_assert_str_eq(clue.host, "");
    ck_assert_str_eq(clue.line, "ORTE was unable to reliably start one or more daemons.");
}
END_TEST

START_TEST(lines_are_the_same_apart_from_pids)
{
    ck_assert(ddp_supervise_clue_is_same("rank 1 on a has ended (pid 12): step 3",
                                         "rank 1 on a has ended (pid 1345): step 3"));
    ck_assert(!ddp_supervise_clue_is_same("rank 1 (pid 12): step 3", "rank 1 (pid 12): step 4"));
    ck_assert(!ddp_supervise_clue_is_same("rank 1", "rank 12"));
    ck_assert(ddp_supervise_clue_is_same("with PID 1", "with PID 2"));
    ck_assert(ddp_supervise_clue_is_same("", ""));
}
END_TEST

/* ---- What to do ---- */

static ddp_supervise_options_t policy = {
    .max_restarts = 4, .window_s = 100, .max_idle = 3, .backoff_s = 1, .backoff_max_s = 5};
static double restart_s[8];
static double wait_s;
static char   reason[DDP_SUPERVISE_REASON];

static ddp_supervise_next_t decide(ddp_supervise_past_t *past, int code, double now, int64_t step,
                                   double random)
{
    const ddp_supervise_place_t place = {.is_seen = true};
    const ddp_supervise_end_t   end   = {.code = code};

    past->restart_s = restart_s;
    return ddp_supervise_decide(&policy, &place, past, &end, now, step, random, &wait_s, reason);
}

START_TEST(codes_deserve_a_restart_or_none)
{
    static const int again[] = {1, 9, 75, 134, 137, 139, 143, 205, 255};
    static const int never[] = {2, 110, 126, 127};

    for (size_t i = 0; i < sizeof(again) / sizeof(again[0]); i++) {
        ddp_supervise_past_t past = {.step = -1};

        ck_assert_msg(decide(&past, again[i], 0, -1, 0) == DDP_SUPERVISE_RESTART, "%d", again[i]);
    }
    for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++) {
        ddp_supervise_past_t past = {.step = -1};

        ck_assert_msg(decide(&past, never[i], 0, -1, 0) == DDP_SUPERVISE_GIVE_UP, "%d", never[i]);
    }
    ck_assert(decide(&(ddp_supervise_past_t){0}, 0, 0, -1, 0) == DDP_SUPERVISE_DONE);
}
END_TEST

START_TEST(who_asked_for_a_stop_gets_it)
{
    ddp_supervise_past_t  past  = {.restart_s = restart_s};
    ddp_supervise_place_t place = {.is_seen = true};
    ddp_supervise_end_t   end   = {.code = 75};

    end.asked = 10;
    ck_assert(ddp_supervise_decide(&policy, &place, &past, &end, 0, 5, 0, &wait_s, reason) ==
              DDP_SUPERVISE_DONE);
    end.asked      = 0;
    place.in_slurm = true; /* the job script asks for a requeue */
    ck_assert(ddp_supervise_decide(&policy, &place, &past, &end, 0, 5, 0, &wait_s, reason) ==
              DDP_SUPERVISE_DONE);
    place = (ddp_supervise_place_t){.is_seen = true, .is_limited = true};
    ck_assert(ddp_supervise_decide(&policy, &place, &past, &end, 0, 5, 0, &wait_s, reason) ==
              DDP_SUPERVISE_DONE);
    place.is_limited = false; /* somebody told a rank */
    ck_assert(ddp_supervise_decide(&policy, &place, &past, &end, 0, 5, 0, &wait_s, reason) ==
              DDP_SUPERVISE_RESTART);
}
END_TEST

START_TEST(waits_double_until_there_is_a_new_checkpoint)
{
    ddp_supervise_past_t past = {.step = -1};

    policy.max_idle = 10;
    ck_assert(decide(&past, 1, 0, -1, 0) == DDP_SUPERVISE_RESTART && wait_s == 0.5);
    ck_assert(decide(&past, 1, 1000, -1, 0.5) == DDP_SUPERVISE_RESTART && wait_s == 1.5);
    ck_assert(decide(&past, 1, 2000, -1, 0) == DDP_SUPERVISE_RESTART && wait_s == 2);
    ck_assert(decide(&past, 1, 3000, -1, 0) == DDP_SUPERVISE_RESTART && wait_s == 2.5); /* 5, not 8 */
    ck_assert(decide(&past, 1, 4000, 0, 0) == DDP_SUPERVISE_RESTART && wait_s == 0.5);
    policy.max_idle = 3;
}
END_TEST

START_TEST(no_new_checkpoint_again_and_again_is_given_up)
{
    ddp_supervise_past_t past = {.step = 20};

    ck_assert(decide(&past, 137, 0, 20, 0) == DDP_SUPERVISE_RESTART);
    ck_assert(decide(&past, 137, 1000, 20, 0) == DDP_SUPERVISE_RESTART);
    ck_assert(decide(&past, 137, 2000, 30, 0) == DDP_SUPERVISE_RESTART);
    ck_assert(decide(&past, 137, 3000, 30, 0) == DDP_SUPERVISE_RESTART);
    ck_assert(decide(&past, 137, 4000, 30, 0) == DDP_SUPERVISE_RESTART);
    ck_assert(decide(&past, 137, 5000, 30, 0) == DDP_SUPERVISE_GIVE_UP);
    ck_assert_str_eq(reason, "3 restarts in a row brought no new checkpoint");
}
END_TEST

START_TEST(the_same_line_each_time_is_told)
{
    ddp_supervise_past_t  past  = {.step = -1, .restart_s = restart_s};
    ddp_supervise_place_t place = {.is_seen = false}; /* then a run of minutes is progress */
    ddp_supervise_end_t   end   = {.code = 1, .seconds = 400, .clue.line = "not finite in step 7"};

    for (int i = 0; i < 6; i++) {
        ck_assert(ddp_supervise_decide(&policy, &place, &past, &end, i * 1000, -1, 0, &wait_s, reason) ==
                  DDP_SUPERVISE_RESTART);
    }
    end.seconds = 3;
    for (int i = 6; i < 8; i++) {
        ck_assert(ddp_supervise_decide(&policy, &place, &past, &end, i * 1000, -1, 0, &wait_s, reason) ==
                  DDP_SUPERVISE_RESTART);
    }
    ck_assert(ddp_supervise_decide(&policy, &place, &past, &end, 8000, -1, 0, &wait_s, reason) ==
              DDP_SUPERVISE_GIVE_UP);
    ck_assert_str_eq(reason,
                     "3 restarts in a row brought no new checkpoint, and each ended with the same line");
}
END_TEST

START_TEST(restarts_are_counted_within_the_window)
{
    ddp_supervise_past_t past = {.step = -1};
    int64_t              step = 0;

    for (int i = 0; i < 20; i++) { /* four in 100 s: the fifth comes when the first is 104 s old */
        ck_assert(decide(&past, 1, i * 26, step++, 0) == DDP_SUPERVISE_RESTART);
    }
    ck_assert_uint_eq(past.restarts, 20);
    ck_assert(decide(&past, 1, 19 * 26 + 21, step++, 0) == DDP_SUPERVISE_GIVE_UP);
    ck_assert(strstr(reason, "4 restarts within 100 s are the most") != NULL);
    policy.max_restarts = 0;
    ck_assert(decide(&(ddp_supervise_past_t){0}, 1, 0, 1, 0) == DDP_SUPERVISE_GIVE_UP);
    policy.max_restarts = 4;
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("supervise");
    TCase *line  = tcase_create("command line");
    TCase *hosts = tcase_create("hosts");
    TCase *clues = tcase_create("clues");
    TCase *next  = tcase_create("decisions");

    tcase_add_test(line, what_is_behind_two_dashes_is_the_command);
    tcase_add_test(line, mistakes_say_what_was_meant);
    tcase_add_test(line, mpiruns_options_are_told_from_the_programs);
    tcase_add_test(line, what_is_not_understood_is_named_and_left_alone);
    tcase_add_test(line, what_ddptrain_would_refuse_is_refused_at_once);
    tcase_add_test(line, a_run_gets_the_words_with_what_has_changed);
    tcase_add_test(hosts, a_hostfile_loses_the_lines_of_a_host);
    tcase_add_test(hosts, a_list_loses_a_host_wherever_it_stands);
    tcase_add_test(hosts, ranks_are_as_many_as_slots_are_left);
    tcase_add_test(clues, the_rank_that_ddptrain_names_comes_before_mpiruns_word);
    tcase_add_test(clues, an_error_without_a_rank_is_no_hosts_fault);
    tcase_add_test(clues, mpirun_may_not_say_which_host_it_cannot_reach);
    tcase_add_test(clues, lines_are_the_same_apart_from_pids);
    tcase_add_test(next, codes_deserve_a_restart_or_none);
    tcase_add_test(next, who_asked_for_a_stop_gets_it);
    tcase_add_test(next, waits_double_until_there_is_a_new_checkpoint);
    tcase_add_test(next, no_new_checkpoint_again_and_again_is_given_up);
    tcase_add_test(next, the_same_line_each_time_is_told);
    tcase_add_test(next, restarts_are_counted_within_the_window);
    suite_add_tcase(suite, line);
    suite_add_tcase(suite, hosts);
    suite_add_tcase(suite, clues);
    suite_add_tcase(suite, next);
    return ddp_test_run(suite);
}
