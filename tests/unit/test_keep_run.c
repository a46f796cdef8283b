/*
 * The parent of kvleased --keep at work, with a child that does what the test says. (What it is
 * made of: test_keep_parent.c; with a real daemon: tests/integration/test_keep.c.)
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fd.h"
#include "tests/unit/keep-life.h"

/* ---- what is kept --------------------------------------------------------------------------- */

KEEP_LIFE_SCENE(test_kept, life_patient())
{
        life_assert_about(l, "store=8 usec=- wpid=0 pid=0 names=- sizes=");
        life_get_ready(l);
        life_expect(l, "READY=1");
        life_tell(l, "keep e7");
        life_tell(l, "keep a3");
        life_tell(l, "keep e9");
        life_tell(l, "say FDSTOREREMOVE=1\nFDNAME=a3");
        kill(l->child, SIGKILL);
        life_expect(l, "killed by signal 9: it is started again, 2 descriptors are kept");
        life_meet(l);
        life_assert_about(l, "store=8 usec=- wpid=0 pid=1 names=e7:e9 sizes=7,9,");
}

/* Messages of the child's last moment count. */
KEEP_LIFE_SCENE(test_last_words, life_patient())
{
        life_get_ready(l);
        life_order(l, "keep-and-exit 1");
        life_meet(l);
        life_assert_about(l, "names=e5 sizes=5,");
}

TEST(test_full)
{
        struct parent_options o = life_patient();
        struct life l;

        o.max = 2;
        life_start(&l, o);
        life_get_ready(&l);
        for (unsigned i = 1; i <= 4; i++)
                life_tell(&l,
                        (const char *const[]){"keep e1", "keep e2", "keep e3", "keep e4"}[i - 1]);
        life_expect(&l, "2 descriptors are kept, as many as may be");
        life_tell(&l, "say STATUS=mark");
        life_hear(&l);
        assert_string_equal(l.text, "STATUS=mark\n"); /* said once */
        kill(l.child, SIGKILL);
        life_meet(&l);
        life_assert_about(&l, "store=2 usec=- wpid=0 pid=1 names=e1:e2 sizes=1,2,");
        life_stop(&l);
}

static void limit_files(void)
{
        if (setrlimit(RLIMIT_NOFILE, &(struct rlimit){50, 100}) < 0)
                _exit(99);
}

/* Half of what may be open, as a child has each twice for a moment, but for the parent's own. */
TEST(test_few_files)
{
        struct parent_options o = life_patient();
        struct life l;

        o.max = 100;
        life_begin(&l, o, limit_files);
        life_expect(&l, "of 100 descriptors (--keep-max) 18 can be kept");
        life_meet(&l);
        life_assert_about(&l, "files=100 store=18");
        life_stop(&l);
}

static void set_given(const char *names)
{
        char pid[16];
        int fd = memfd_create_sized("given", 11);

        snprintf(pid, sizeof(pid), "%d", (int)getpid());
        if (dup2(fd, 3) < 0)
                _exit(99);
        setenv("LISTEN_PID", pid, 1);
        setenv("LISTEN_FDS", "1", 1);
        setenv("LISTEN_FDNAMES", names, 1);
}

static void give_socket(void)
{
        set_given("tenant-a");
}

static void give_without_name(void)
{
        set_given("");
}

static void give_to_another(void)
{
        set_given("tenant-a");
        setenv("LISTEN_PID", "1", 1);
}

/* Each child gets the parent's own descriptors, before the stored ones. */
TEST(test_given)
{
        struct life l;

        life_begin(&l, life_patient(), give_socket);
        life_meet(&l);
        life_assert_about(&l, "store=8 usec=- wpid=0 pid=1 names=tenant-a sizes=11,");
        life_get_ready(&l);
        life_tell(&l, "keep e7");
        kill(l.child, SIGKILL);
        life_meet(&l);
        life_assert_about(&l, "names=tenant-a:e7 sizes=11,7,");
        life_stop(&l);
        life_begin(&l, life_patient(), give_to_another);
        life_meet(&l);
        life_assert_about(&l, "store=8 usec=- wpid=0 pid=0 names=- sizes=");
        life_stop(&l);
        life_begin(&l, life_patient(), give_without_name);
        assert_int_equal(life_end(&l), EXIT_FAILURE);
}

/* ---- ends and starts ------------------------------------------------------------------------ */

/* Peace, or a reason that another start wouldn't change. */
KEEP_LIFE_SCENE(test_exit_codes, life_patient())
{
        life_order(l, "exit 3");
        assert_int_equal(life_end(l), 3);
        life_start(l, life_patient());
        life_get_ready(l);
        life_order(l, "exit 0");
        assert_int_equal(life_end(l), 0);
        life_start(l, life_patient());
        life_get_ready(l);
        life_order(l, "exit 3");
        life_expect(l, "exited with 3: it is started again");
        life_meet(l);
        /* READY once is enough. */
        life_order(l, "exit 4");
        life_expect(l, "exited with 4: it is started again");
        life_meet(l);
        life_stop(l);
        /* Killed before it was READY: that says nothing of the reason. */
        life_start(l, life_patient());
        kill(l->child, SIGKILL);
        life_meet(l);
}

/* The child asks for another start, which doesn't count as a death. */
TEST(test_again)
{
        struct parent_options o = life_patient();
        struct life l;

        o.tries = 2;
        life_start(&l, o);
        kill(l.child, SIGKILL); /* 1 */
        life_meet(&l);
        for (unsigned i = 0; i < 5; i++) {
                life_order(&l, "exit 75");
                life_meet(&l);
        }
        kill(l.child, SIGKILL); /* 1 again */
        life_meet(&l);
        kill(l.child, SIGKILL);
        life_expect(&l, "the daemon died 2 times in a row, each within 3600 s: given up");
        assert_int_equal(life_end(&l), EXIT_FAILURE);
}

TEST(test_tries)
{
        struct parent_options o = life_patient();
        struct life l;
        uint64_t began;

        o.tries = 3;
        life_start(&l, o);
        began = clock_now_nsec();
        kill(l.child, SIGKILL);
        life_meet(&l);
        kill(l.child, SIGKILL);
        life_meet(&l);
        assert_true(clock_now_nsec() - began >= 300 * NSEC_PER_MSEC); /* 100 and 200 of pause */
        kill(l.child, SIGKILL);
        life_expect(&l, "the daemon died 3 times in a row");
        assert_int_equal(life_end(&l), EXIT_FAILURE);
        /* No death counts as young. */
        o.young_nsec = 0;
        life_start(&l, o);
        for (unsigned i = 0; i < 6; i++) {
                kill(l.child, SIGKILL);
                life_meet(&l);
        }
        life_stop(&l);
}

#define YOUNG_MSEC 2000

/* A long life between them: they aren't in a row. */
TEST(test_long_life)
{
        struct parent_options o = life_patient();
        struct life l;

        o.tries = 2;
        o.young_nsec = YOUNG_MSEC * NSEC_PER_MSEC;
        life_start(&l, o);
        kill(l.child, SIGKILL);
        life_meet(&l);
        poll(NULL, 0, YOUNG_MSEC + 50);
        kill(l.child, SIGKILL);
        life_meet(&l);
        kill(l.child, SIGKILL);
        life_meet(&l);
        life_stop(&l);
}

/* ---- signals -------------------------------------------------------------------------------- */

/* The child is told to end. That isn't reported upwards, and doesn't count as a death. */
TEST(test_upgrade)
{
        struct parent_options o = life_patient();
        struct life l;

        o.tries = 1;
        life_start(&l, o);
        life_get_ready(&l);
        life_expect(&l, "READY=1");
        life_tell(&l, "keep e7");
        for (unsigned i = 0; i < 3; i++) {
                life_tell(&l, "say STOPPING=1");
                life_tell(&l, i == 1   ? "on 15 exit 75"
                              : i == 0 ? "on 15 exit 0"
                                       : "say STATUS=mark");
                kill(l.parent, SIGUSR1); /* the last one dies of SIGTERM */
                life_meet(&l);
                life_assert_about(&l, "names=e7 sizes=7,");
        }
        life_hear(&l);
        assert_string_equal(l.text, "STATUS=mark\n");
        /* An error on that way is a death. */
        life_tell(&l, "on 15 exit 7");
        kill(l.parent, SIGUSR1);
        life_expect(&l, "exited with 7");
        life_expect(&l, "the daemon died 1 times in a row");
        assert_int_equal(life_end(&l), EXIT_FAILURE);
}

#define N_PAUSES 11 /* of 100 ms, 200 ms .. 6.4 s, 10 s, ..: a minute, were they waited for */
#define N_SHORT  3  /* that may be over before a busy machine has sent a signal: waited for */

/* During a pause there is nothing to end, but to start. */
TEST(test_upgrade_in_a_pause)
{
        struct life l;
        uint64_t began;

        life_start(&l, life_patient());
        began = clock_now_nsec();
        for (unsigned i = 0; i < N_PAUSES; i++) {
                kill(l.child, SIGKILL);
                life_expect(&l, "killed by signal 9");
                if (i >= N_SHORT)
                        kill(l.parent, SIGUSR1);
                life_meet(&l);
        }
        assert_true(clock_now_nsec() - began < 30 * NSEC_PER_SEC);
        /* That was no restart of the child which is there now. */
        life_order(&l, "exit 0");
        assert_int_equal(life_end(&l), 0);
}

/* The parent ends with the child's exit code, for any usual meaning of it. */
static void end_by(int number, int code)
{
        struct life l;
        char line[32];

        life_start(&l, life_patient());
        life_get_ready(&l);
        life_expect(&l, "READY=1");
        snprintf(line, sizeof(line), "on %d exit %d", number, code);
        life_tell(&l, line);
        kill(l.parent, number);
        assert_int_equal(life_end(&l), code);
}

TEST(test_end)
{
        struct life l;

        end_by(SIGTERM, 7);
        end_by(SIGINT, 7);
        end_by(SIGTERM, PARENT_EXIT_AGAIN);
        /* By one that can't say its exit code. */
        life_start(&l, life_patient());
        kill(l.parent, SIGTERM);
        assert_int_equal(life_end(&l), EXIT_FAILURE);
        /* In a pause there is no child to wait for. */
        life_start(&l, life_patient());
        for (unsigned i = 0; i < 3; i++) {
                kill(l.child, SIGKILL);
                life_expect(&l, "killed by signal 9");
                if (i < 2)
                        life_meet(&l);
        }
        kill(l.parent, SIGTERM);
        assert_int_equal(life_end(&l), 0);
}

/* In the parent's name, and where it is true. */
TEST(test_said_above)
{
        struct life l;

        life_start(&l, life_patient());
        life_tell(&l, "say STOPPING=1");
        life_tell(&l, "say RELOADING=1\nMONOTONIC_USEC=5\nMAINPID=1\nSTOPPING=1");
        life_hear(&l);
        assert_string_equal(l.text, "RELOADING=1\nMONOTONIC_USEC=5\n");
        life_tell(&l, "on 15 exit 0");
        life_tell(&l, "stop aloud");
        kill(l.parent, SIGTERM);
        life_hear(&l);
        assert_string_equal(l.text, "STOPPING=1\n");
        assert_int_equal(life_end(&l), 0);
}

TEST(test_reload)
{
        struct life l;

        life_start(&l, life_patient());
        life_tell(&l, "on 1 exit 5");
        kill(l.parent, SIGHUP);
        assert_int_equal(life_end(&l), 5);
}

/* ---- watchdogs ------------------------------------------------------------------------------ */

#define WATCHDOG_MSEC 200

/* One that is READY and shows no sign of life is killed, stopped or not; before that, and be it the
 * second of the parent's, it may take its time. */
TEST(test_watchdog)
{
        struct parent_options o = life_patient();
        struct life l;

        o.watchdog_nsec = WATCHDOG_MSEC * NSEC_PER_MSEC;
        life_start(&l, o);
        life_assert_about(&l, "usec=200000 wpid=1");
        life_get_ready(&l);
        life_expect(&l, "READY=1");
        kill(l.child, SIGKILL);
        life_meet(&l);
        poll(NULL, 0, 3 * WATCHDOG_MSEC);
        life_get_ready(&l);
        life_expect(&l, "READY=1");
        kill(l.child, SIGSTOP);
        life_expect(&l, "hasn't said for 200 ms that it lives");
        life_expect(&l, "killed by signal 9");
        life_meet(&l);
        life_stop(&l);
}

#define LONG_WATCHDOG_MSEC 5000 /* longer than a loaded machine needs for two messages */

/* Any message of the child is a sign of life, also after a long silence. */
TEST(test_watchdog_is_fed)
{
        struct parent_options o = life_patient();
        struct life l;

        o.watchdog_nsec = LONG_WATCHDOG_MSEC * NSEC_PER_MSEC;
        life_start(&l, o);
        poll(NULL, 0, LONG_WATCHDOG_MSEC + 50);
        life_get_ready(&l);
        life_tell(&l, "say WATCHDOG=1"); /* not passed on: the parent's is its own */
        life_tell(&l, "say STATUS=alive");
        life_hear(&l);
        assert_string_equal(l.text, "READY=1\n");
        life_hear(&l);
        assert_string_equal(l.text, "STATUS=alive\n");
        life_stop(&l);
}

static void watch_parent(void)
{
        setenv("WATCHDOG_USEC", "200000", 1);
}

static void watch_another(void)
{
        watch_parent();
        setenv("WATCHDOG_PID", "1", 1);
}

/* The parent's own: the child's to say, while there is one. */
TEST(test_watchdog_above)
{
        struct parent_options o = life_patient();
        struct life l;

        life_begin(&l, o, watch_parent);
        life_meet(&l);
        life_assert_about(&l, "usec=200000 wpid=1");
        poll(NULL, 0, 3 * WATCHDOG_MSEC);
        life_tell(&l, "say STATUS=mark");
        life_hear(&l);
        assert_string_equal(l.text, "STATUS=mark\n"); /* the parent said nothing for it */
        life_tell(&l, "say WATCHDOG=1");
        life_hear(&l);
        assert_string_equal(l.text, "WATCHDOG=1\n");
        /* Pauses may be longer than the watchdog's time. */
        for (unsigned i = 0; i < 4; i++) {
                kill(l.child, SIGKILL);
                life_expect(&l, "killed by signal 9");
                life_hear(&l);
                assert_string_equal(l.text, "WATCHDOG=1");
                life_meet(&l);
        }
        life_stop(&l);
        /* With one of its own it speaks for itself. */
        o.watchdog_nsec = LIFE_FOREVER;
        life_begin(&l, o, watch_parent);
        life_meet(&l);
        life_expect(&l, "WATCHDOG=1");
        life_expect(&l, "WATCHDOG=1");
        life_stop(&l);
        life_begin(&l, life_patient(), watch_another);
        life_meet(&l);
        life_assert_about(&l, "wpid=0");
        life_tell(&l, "on 15 exit 0");
        life_stop(&l);
}

int main(int argc, char **argv)
{
        if (argc > 1 && strcmp(argv[1], "child") == 0)
                return life_child();
        unsetenv("WATCHDOG_USEC");
        unsetenv("WATCHDOG_PID");
        unsetenv("LISTEN_FDS");
        return test_run_all(NULL, NULL);
}
