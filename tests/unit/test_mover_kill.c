/*
 * Kills a process that moves pages at each fault point of the mover. Pages that it answered for are
 * stored, with the reported sum. Other pages are where they were.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sum.h"
#include "daemon/tier/mover.h"
#include "mover-fault-points.h"
#include "tests/unit/child.h"
#include "tests/unit/test-support.h"

#define N_PAGES    3
#define PAGE_BYTES (2 * MOVER_PIECE_BYTES) /* two pieces */

/* Outlives the process, as pages and stored bytes outlive a daemon. */
struct scene {
        uint8_t plain[N_PAGES][PAGE_BYTES], stored[N_PAGES][PAGE_BYTES];
        struct {
                bool is_stored; /* the last that is set; the page isn't needed any more then */
                uint64_t sum;
        } ledger[N_PAGES];
        bool is_over;
};

static uint8_t content(unsigned page, size_t i)
{
        return (uint8_t)(i * 7 + i / 4096 + page * 50 + 1);
}

static void on_stored(struct move *move, int result, void *data)
{
        struct scene *s = data;

        assert(result == 0);
        for (unsigned i = 0; i < N_PAGES; i++) {
                s->ledger[i].sum = move->pages[i].sum;
                s->ledger[i].is_stored = true;
                memset(s->plain[i], 0xee, PAGE_BYTES); /* reused by now */
        }
}

static void on_back(struct move *move, int result, void *data)
{
        struct scene *s = data;

        assert(result < 0); /* the last page's sum is wrong */
        s->is_over = true;
}

static void run_move(struct mover *m, struct scene *s, enum move_direction direction)
{
        struct move *move = move_new(direction, N_PAGES, 1);
        struct pollfd p = {.fd = mover_fd(m), .events = POLLIN};

        for (unsigned i = 0; i < N_PAGES; i++) {
                bool is_up = direction == MOVE_UP;

                move->planes[i] = (struct move_plane){
                        .from = is_up ? s->stored[i] : s->plain[i],
                        .to = is_up ? s->plain[i] : s->stored[i],
                        .plain_bytes = PAGE_BYTES,
                };
                move->pages[i].sum = s->ledger[i].sum + (i == N_PAGES - 1);
        }
        move->done = direction == MOVE_UP ? on_back : on_stored;
        move->data = s;
        if (mover_submit(m, move) != 0)
                abort();
        while (mover_reap(m) == 0)
                (void)poll(&p, 1, -1);
}

static void live(struct scene *s, const char *point, unsigned pass)
{
        struct mover *m;
        char number[12];

        snprintf(number, sizeof(number), "%u", pass);
        setenv("KVL_FAULT_POINT", point, 1);
        setenv("KVL_FAULT_PASS", number, 1);
        if (mover_open(NULL, &m) < 0)
                abort();
        run_move(m, s, MOVE_DOWN);
        run_move(m, s, MOVE_UP);
        mover_close(m);
        _exit(0);
}

static bool has_content(const uint8_t *bytes, unsigned page)
{
        for (size_t i = 0; i < PAGE_BYTES; i++)
                if (bytes[i] != content(page, i))
                        return false;
        return true;
}

static void check_scene(const struct scene *s)
{
        for (unsigned i = 0; i < N_PAGES; i++)
                if (s->ledger[i].is_stored) {
                        assert_int_equal(sum_of(s->stored[i], PAGE_BYTES), s->ledger[i].sum);
                        assert_true(has_content(s->stored[i], i));
                } else {
                        assert_true(has_content(s->plain[i], i));
                }
}

/* False: it came by the point less often, and ended. */
static bool kill_at(struct scene *s, const char *point, unsigned pass)
{
        int status;
        pid_t pid;

        memset(s, 0, sizeof(*s));
        for (unsigned i = 0; i < N_PAGES; i++)
                for (size_t k = 0; k < PAGE_BYTES; k++)
                        s->plain[i][k] = content(i, k);
        pid = child_fork();
        assert_true(pid >= 0);
        if (pid == 0)
                live(s, point, pass);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        check_scene(s);
        if (WIFEXITED(status)) {
                assert_int_equal(WEXITSTATUS(status), 0);
                assert_true(s->is_over);
                return false;
        }
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGKILL);
        return true;
}

#define NAME(name) name,

TEST(test_killed_anywhere)
{
        static const char *const points[] = {FAULT_POINTS(NAME)};
        struct scene *s =
                mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        assert_true(s != MAP_FAILED);
        for (unsigned i = 0; i < ARRAY_SIZE(points); i++) {
                unsigned pass = 1;

                while (kill_at(s, points[i], pass))
                        pass++;
                print_message("%s: %u\n", points[i], pass - 1);
                assert_true(pass > 1);
        }
        munmap(s, sizeof(*s));
}
