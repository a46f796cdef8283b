/* Descriptors that are left with a service manager: order, barriers, limits, and what comes back.
 */
#include "daemon/server/peers/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "daemon/core/state/detail.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/fake-notify.h"
#include "tests/unit/test-support.h"

#define PATIENT_MSEC 10000
#define HASTY_MSEC   400 /* until a manager that never answers is late */

TEST_BARE(test_names)
{
        static const struct {
                enum keep_kind kind;
                uint32_t number;
                const char *name;
        } names[] = {
                {KEEP_STATE, 0, "s0"},
                {KEEP_EXTENT, 61, "ez"},
                {KEEP_EXTENT, 62, "e10"},
                {KEEP_PINS, KEEP_MAX_NUMBER, "azzzzz"},
        };
        char buf[KEEP_NAME_BYTES];
        enum keep_kind kind;
        uint32_t number;

        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
                assert_string_equal(keep_name(buf, names[i].kind, names[i].number), names[i].name);
                assert_true(keep_parse(names[i].name, &kind, &number));
                assert_int_equal(kind, names[i].kind);
                assert_int_equal(number, names[i].number);
        }
}

/* A service manager may give back names of another version, or of another program. */
TEST_BARE(test_no_names)
{
        static const char *const names[] = {"", "e", "x1", "e01", "e-1", "e1:", "e123456"};
        enum keep_kind kind;
        uint32_t number;

        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                assert_false(keep_parse(names[i], &kind, &number));
}

static struct fake_notify notify;
static atomic_uint n_passed;

static void on_passed(void *data)
{
        assert_ptr_equal(data, &notify);
        n_passed++;
}

static const struct keeper_options patient = {.max = 100,
        .max_open = 1000,
        .patience_msec = PATIENT_MSEC,
        .on_passed = on_passed,
        .data = &notify};

static struct keeper *start(const struct keeper_options *o)
{
        struct keeper *k;

        fake_notify_start(&notify);
        n_passed = 0;
        assert_int_equal(keeper_new(o, &k), 0);
        return k;
}

static void end(struct keeper *k)
{
        assert_true(keeper_stop(k));
        keeper_free(k);
        fake_notify_stop(&notify);
}

static ino_t inode_of(int fd)
{
        struct stat st;

        assert_int_equal(fstat(fd, &st), 0);
        return st.st_ino;
}

/* Adds a memory file, and has no hand on it any more. Its inode. */
static ino_t add(struct keeper *k, enum keep_kind kind, uint32_t number, uint64_t *ret_ticket)
{
        int fd = memfd_create_sized("kept", 4096);
        struct detail d = {""};
        ino_t inode = inode_of(fd);

        if (keeper_add(k, kind, number, fd, ret_ticket, &d) < 0)
                fail_msg("%s", d.text);
        fd_close(fd);
        return inode;
}

static int new_fd(void)
{
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

        assert_true(fd >= 0);
        return fd;
}

static void wait_kept(struct keeper *k)
{
        struct detail d = {""};

        if (keeper_wait(k, &d) < 0)
                fail_msg("%s", d.text);
}

/* Waits for the log: drops are sent without a barrier, so they take any time. */
static void expect_log(const char *log)
{
        uint64_t end = clock_now_nsec() + PATIENT_MSEC * NSEC_PER_MSEC;
        char all[FAKE_NOTIFY_LOG] = "", more[FAKE_NOTIFY_LOG];

        while (strlen(all) < strlen(log) && clock_now_nsec() < end) {
                strcat(all, fake_notify_take_log(&notify, more));
                usleep(200);
        }
        assert_string_equal(all, log);
}

TEST(test_late)
{
        struct keeper_options o = patient;
        struct detail d = {""};
        struct keeper *k;
        uint64_t begin, ticket;

        o.patience_msec = HASTY_MSEC;
        k = start(&o);
        fake_notify_set_deaf(&notify, true);
        add(k, KEEP_EXTENT, 1, &ticket);
        assert_int_equal(keeper_wait(k, &d), -ETIMEDOUT);
        assert_string_equal(d.text,
                "the service manager hasn't confirmed for 400 ms that it keeps descriptors");
        assert_true(keeper_is_late(k));
        assert_true(keeper_passed(k) == UINT64_MAX);
        begin = clock_now_nsec();
        assert_int_equal(keeper_wait(k, &d), -ETIMEDOUT); /* at once */
        assert_true(clock_now_nsec() - begin < HASTY_MSEC * NSEC_PER_MSEC);
        fake_notify_set_deaf(&notify, false);
        while (keeper_is_late(k))
                usleep(200);
        wait_kept(k);
        assert_true(keeper_passed(k) >= ticket && keeper_passed(k) < UINT64_MAX);
        keeper_give_up(k); /* there is nothing to wait for */
        assert_false(keeper_is_late(k));
        end(k);
}

TEST(test_limits)
{
        static const struct {
                struct keeper_options o;
                const char *why;
        } cases[] = {
                {{.max = 2, .max_open = 9}, "of at most 2: raise FileDescriptorStoreMax"},
                {{.max = 9, .max_open = 2}, "2 open files of that kind: raise LimitNOFILE"},
                {{.max = 9, .max_open = 9, .other_names_bytes = 32 * 4096 - 27},
                        "no longer list of their names"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct keeper_options o = cases[i].o;
                struct detail d = {""};
                struct keeper *k;
                int fd = new_fd();

                o.on_passed = on_passed;
                o.data = &notify;
                o.patience_msec = PATIENT_MSEC;
                k = start(&o);
                assert_int_equal(keeper_admit(k, 0, 1, NULL), 0);
                for (int n = 0; keeper_add(k, KEEP_EXTENT, (uint32_t)n, fd, NULL, &d) == 0; n++)
                        assert_true(n < 2);
                if (!strstr(d.text, cases[i].why))
                        fail_msg("%s", d.text);
                assert_int_equal(keeper_admit(k, 2, 1, &d), -EMFILE);
                keeper_drop(k, KEEP_EXTENT, 0);
                assert_int_equal(keeper_admit(k, 1, 1, NULL), 0);
                assert_int_equal(keeper_admit(k, 2, 1, NULL), -EMFILE); /* one is being made */
                fd_close(fd);
                end(k);
        }
}

static void inherit(struct keeper *k, enum keep_kind kind, uint32_t number, int fd)
{
        assert_int_equal(keeper_inherit(k, kind, number, fd), 0);
}

TEST(test_what_was_left)
{
        struct keeper *k = start(&patient);
        int extents[] = {new_fd(), new_fd()}, ring = new_fd();
        uint32_t numbers[4] = {0};

        inherit(k, KEEP_EXTENT, 7, extents[0]);
        inherit(k, KEEP_RING, 1, ring);
        inherit(k, KEEP_EXTENT, 5, extents[1]);
        assert_int_equal(keeper_count(k), 3);
        assert_int_equal(keeper_list(k, KEEP_EXTENT, numbers, 1), 2);
        assert_int_equal(numbers[0], 5);
        assert_int_equal(numbers[1], 0);
        assert_int_equal(keeper_take(k, KEEP_EXTENT, 6), -ENOENT);
        assert_int_equal(keeper_take(k, KEEP_EXTENT, 7), extents[0]);
        assert_int_equal(keeper_take(k, KEEP_EXTENT, 7), -ENOENT);
        assert_int_equal(keeper_list(k, KEEP_EXTENT, numbers, 4), 1);
        assert_int_equal(keeper_list(k, KEEP_PROCESS, numbers, 4), 0);
        assert_int_equal(keeper_release_rest(k), 2);
        assert_int_equal(keeper_release_rest(k), 0);
        assert_int_equal(keeper_count(k), 1);
        expect_log("-c1 -e5 ");
        keeper_drop(k, KEEP_EXTENT, 7);
        expect_log("-e7 ");
        fd_close(extents[0]);
        end(k);
}

/* The manager drops by name, so that one of several can't be dropped alone. */
TEST(test_one_name_twice)
{
        struct keeper *k = start(&patient);
        int first = new_fd();

        inherit(k, KEEP_EXTENT, 7, first);
        inherit(k, KEEP_EXTENT, 7, new_fd());
        wait_kept(k);
        expect_log("-e7 +e7 | ");
        assert_int_equal(keeper_count(k), 1);
        assert_int_equal(keeper_take(k, KEEP_EXTENT, 7), first);
        fd_close(first);
        end(k);
}

/* Descriptors that weren't taken are closed at the end, and stay stored. */
TEST(test_end_drops_nothing)
{
        struct keeper *k = start(&patient);

        inherit(k, KEEP_EXTENT, 7, new_fd());
        add(k, KEEP_EXTENT, 8, NULL);
        assert_true(keeper_stop(k));
        keeper_drop(k, KEEP_EXTENT, 8); /* goes nowhere */
        keeper_free(k);
        fake_notify_stop(&notify);
        assert_null(strstr(notify.log, "-"));
}

TEST(test_end_while_nobody_answers)
{
        struct keeper *k = start(&patient);

        fake_notify_set_deaf(&notify, true);
        add(k, KEEP_EXTENT, 8, NULL);
        fake_notify_await(&notify, 1);
        end(k);
        k = start(&patient);
        unsetenv("NOTIFY_SOCKET"); /* no manager: the keeper tries again and again */
        add(k, KEEP_EXTENT, 8, NULL);
        end(k);
}
