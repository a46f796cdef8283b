/* Sessions after a daemon was killed while it wrote them down, at random operations: they are as
 * before the last one or as after it. What is damaged is found, and what there is no memory for is
 * not there. */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/core/life/namespace.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/reclaim/reclaim.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/child.h"
#include "tests/unit/session-log-fixture.h"
#include "tests/unit/test-random.h"

/* ---- killed ---------------------------------------------------------------------------------- */

#define N_IDS 5
#define N_OPS 1500

struct actor {
        struct bench w;
        uint32_t handles[N_IDS]; /* 0: not open */
};

static void act_begin(struct actor *x)
{
        static const char *const ids[N_IDS] = {"a", "b", "c", "d", "e"};

        begin(&x->w, 64);
        for (unsigned i = 0; i < N_IDS; i++)
                x->handles[i] = open_logged(&x->w, ids[i]);
        x->w.ns->sessions->log.piece_pages = 1;
}

/* A page with one of two keys below the session's end, or below a page before it. */
static void act_append(struct actor *x, uint32_t handle, const struct session *s)
{
        const struct ns *ns = x->w.ns;
        uint32_t page = s->window.n > 0 ? s->window.pages[s->window.n - 1] : session_tail(s);
        unsigned parent = ROOT, key;
        int r;

        if (s->window.n > 1 && random_below(4) == 0)
                page = s->window.pages[s->window.n - 2];
        else if (s->window.n == 0 && page != PAGE_NONE && random_below(4) == 0)
                page = tree_parent(&ns->tree, page);
        if (page != PAGE_NONE) {
                memcpy(&parent, ns_page(ns, page)->key, sizeof(parent));
                parent--;
        }
        key = (parent == ROOT ? 0 : 2 * (parent % 100000) + 2) + random_below(2);
        r = publish_tail(x->w.a, handle, parent, key, 1, PAGE_TOKENS, &page);
        if (r == 0 || r == KVL_STATUS_DUPLICATE)
                assert_int_equal(release_pages(x->w.a, &page, 1, 1, NULL), 0);
        else
                assert_int_equal(r, KVL_STATUS_NO_PARENT);
}

static void act_evict(struct actor *x, const struct session *s)
{
        uint32_t tail = session_tail(s);

        if (tail != PAGE_NONE && tree_is_leaf(&x->w.ns->tree, tail))
                (void)ns_evict_leaf(x->w.ns, tail, NULL);
}

/* Some pages of its text, the first `n` tokens of others, or anything. */
static void act_keep(struct session *s)
{
        struct token_range ranges[4];
        uint64_t at = 0, n_left;

        for (unsigned i = 0; i < ARRAY_SIZE(ranges); i++) {
                ranges[i].first = at + random_below(3) * PAGE_TOKENS;
                ranges[i].end = at = ranges[i].first + (1 + random_below(3)) * PAGE_TOKENS;
        }
        if (random_below(2))
                ranges[3].end = TOKEN_RANGE_END;
        (void)session_keep(s, ranges + random_below(4), 1, &n_left, NULL);
        (void)session_keep(s, ranges, 1 + random_below(4), &n_left, NULL);
}

/* Other hosts are told of it. */
static void act_tell(struct session *s)
{
        session_begin_telling(s);
        session_end_telling(s, true);
}

static void act_on(struct actor *x, uint32_t *handle, struct session *s, unsigned what)
{
        struct attach *a = x->w.a;
        uint64_t n, now_nsec = x->w.f.store.now_nsec;

        if (what < 10)
                act_append(x, *handle, s);
        else if (what < 12)
                (void)session_truncate(
                        s, random_below(6) * PAGE_TOKENS, random_below(6) * PAGE_TOKENS, &n, NULL);
        else if (what == 12)
                session_hint(s, random_below(4), 1, now_nsec);
        else if (what < 15)
                act_evict(x, s);
        else if (what == 15)
                assert_int_equal(session_close(a, *handle, random_below(2), now_nsec, NULL), 0);
        else if (what == 16)
                (void)sessions_give_way(x->w.ns, true);
        else if (what == 17)
                store_set_now(&x->w.f.store, now_nsec + NSEC_PER_SEC / 3);
        else if (what < 20)
                act_keep(s);
        else
                act_tell(s);
        idle_sets_drain(&x->w.f.store);
}

/* The number says all of what is done. */
static void act(struct actor *x, uint64_t seed, unsigned number)
{
        unsigned i;
        uint64_t n;
        struct session *s;

        random_state = seed + number * UINT64_C(0x10001);
        i = random_below(N_IDS);
        s = session_of(x->w.a, x->handles[i], NULL);
        if (number % 150 == 149) {
                assert_int_equal(ns_invalidate(x->w.ns, CAUSE_NAMESPACE, &n), 0);
                while (ns_sweep(x->w.ns, 1000))
                        continue;
                idle_sets_drain(&x->w.f.store);
                memset(x->handles, 0, sizeof(x->handles));
        } else if (s) {
                act_on(x, &x->handles[i], s, random_below(22));
        } else {
                char id[2] = {(char)('a' + i)};

                x->handles[i] = open_session(x->w.a, id);
        }
}

/* A log as the dead process left it; owned fd. */
static int copy_log(int fd)
{
        struct session_log_head *from, *to;
        struct stat st;
        int copy;

        assert_int_equal(fstat(fd, &st), 0);
        copy = memfd_create_sized("copy", (uint64_t)st.st_size);
        from = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        to = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, copy, 0);
        assert_true(copy >= 0 && from != MAP_FAILED && to != MAP_FAILED);
        memcpy(to, from, sizeof(*from));
        for (unsigned i = 0; i < 2; i++)
                memcpy((char *)to + SESSION_LOG_HEAD + i * from->half_bytes,
                        (char *)from + SESSION_LOG_HEAD + i * from->half_bytes, from->tails[i]);
        munmap(from, (size_t)st.st_size);
        munmap(to, (size_t)st.st_size);
        return copy;
}

/* With the pages as they are after n operations: what there is, is that what there was? */
static bool is_as_after(unsigned n, uint64_t seed, int log)
{
        char before[DUMP_BYTES], after[DUMP_BYTES];
        struct actor x = {0};
        bool is_same;

        act_begin(&x);
        session_log_close(x.w.ns);
        for (unsigned i = 0; i < n; i++)
                act(&x, seed, i);
        dump(x.w.ns, before);
        fd_close(x.w.keeper.fd);
        x.w.keeper.fd = copy_log(log);
        restart(&x.w);
        dump(x.w.ns, after);
        is_same = strcmp(before, after) == 0 && !x.w.found.is_damaged;
        if (is_same) /* and it goes on */
                for (unsigned i = n; i < n + 50; i++) {
                        memset(x.handles, 0, i == n ? sizeof(x.handles) : 0);
                        act(&x, seed + 1, i);
                        fixture_check(&x.w.f);
                }
        if (is_same)
                expect_restart(&x.w);
        end(&x.w);
        return is_same;
}

/* Gives a child its own index and log, which fork() doesn't. */
static void begin_child(struct bench *w)
{
        const struct segment *index = &w->ns->shared.segment;

        if (mmap(index->base, index->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
                    index->fd, 0) == MAP_FAILED ||
                session_log_map(w->ns, fcntl(w->keeper.fd, F_DUPFD_CLOEXEC, 0)) < 0)
                _exit(2);
        w->ns->sessions->log.piece_pages = 1;
}

/* False: it came to the end. */
static bool kill_at(const char *point, unsigned pass, uint64_t seed)
{
        atomic_uint *n_done = mmap(
                NULL, sizeof(*n_done), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        struct actor x = {0};
        bool was_killed;
        int status;
        pid_t pid;

        assert_ptr_not_equal(n_done, MAP_FAILED);
        act_begin(&x);
        pid = child_fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                char text[16];

                snprintf(text, sizeof(text), "%u", pass);
                setenv("KVL_FAULT_PASS", text, 1);
                setenv("KVL_FAULT_POINT", point, 1);
                begin_child(&x.w);
                for (unsigned i = 0; i < N_OPS; i++) {
                        act(&x, seed, i);
                        atomic_store(n_done, i + 1);
                }
                _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        was_killed = WIFSIGNALED(status);
        if (was_killed)
                assert_int_equal(WTERMSIG(status), SIGKILL);
        else
                assert_int_equal(WEXITSTATUS(status), 0);
        if (!is_as_after(*n_done, seed, x.w.keeper.fd) &&
                !is_as_after(*n_done + 1, seed, x.w.keeper.fd))
                fail_msg(
                        "killed at pass %u of %s, after %u operations of seed %#llx: sessions aren't as before or after",
                        pass, point, *n_done, (unsigned long long)seed);
        end(&x.w);
        munmap(n_done, sizeof(*n_done));
        return was_killed;
}

TEST_BARE(test_killed)
{
        static const char *const points[] = {"session-log-before-tail", "session-log-after-tail",
                "session-log-half-put", "session-log-punch", "session-log-before-flip",
                "session-log-after-flip", "session-log-copied", "page-before-turn",
                "page-after-turn"};

        for (unsigned i = 0; i < ARRAY_SIZE(points); i++)
                for (unsigned n = 0; n < 6; n++) {
                        unsigned pass = n == 0 ? 1 : 1 + random_below(1u << (2 * n));
                        uint64_t seed = random_u64(), then = random_state;
                        bool was_killed = kill_at(points[i], pass, seed);

                        random_state = then;
                        if (n == 0 && !was_killed)
                                fail_msg("never came to %s", points[i]);
                }
}

/* A reported session of four pages keeps its first page and the last n_last. The child is killed
 * after `pass` records of that. Returns false if there were fewer. */
static bool kill_truncation(unsigned n_last, const char *pass)
{
        char before[DUMP_BYTES], after[DUMP_BYTES];
        const struct session *s;
        struct bench w;
        int status;
        pid_t pid;

        begin(&w, 8);
        append(w.a, open_logged(&w, "s"), ROOT, 0, 4);
        act_tell(session_of(w.a, w.a->last_session, NULL));
        dump(w.ns, before);
        pid = child_fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                uint64_t n;

                setenv("KVL_FAULT_PASS", pass, 1);
                setenv("KVL_FAULT_POINT", "session-log-after-tail", 1);
                begin_child(&w);
                (void)session_truncate(session_of(w.a, w.a->last_session, NULL), PAGE_TOKENS,
                        n_last * PAGE_TOKENS, &n, NULL);
                _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        restart(&w);
        dump(w.ns, after);
        s = session_find(w.ns, (const uint8_t *)"s", 1);
        assert_int_equal(s->told == SESSION_TOLD, strcmp(before, after) == 0);
        end(&w);
        return WIFSIGNALED(status);
}

/* No record that has something of a truncation says that others know of it. */
TEST_BARE(test_truncation_untold)
{
        for (unsigned n_last = 0; n_last < 2; n_last++) {
                assert_true(kill_truncation(n_last, "1"));
                assert_true(kill_truncation(n_last, "2"));
                assert_false(kill_truncation(n_last, "9"));
        }
}

/* ---- damaged --------------------------------------------------------------------------------- */

TEST_BARE(test_damaged)
{
        for (unsigned n = 0; n < 300; n++) {
                struct actor x = {0};
                struct session_log_head *h;
                uint64_t seed = random_u64(), then, size, at;
                int log;

                then = random_state;
                act_begin(&x);
                for (unsigned i = 0; i < 100; i++)
                        act(&x, seed, i);
                random_state = then;
                log = copy_log(x.w.keeper.fd);
                fd_close(x.w.keeper.fd);
                x.w.keeper.fd = log;
                h = mmap(NULL, 1u << 20, PROT_READ | PROT_WRITE, MAP_SHARED, log, 0);
                assert_ptr_not_equal(h, MAP_FAILED);
                size = h->tails[h->half];
                at = n % 5 == 0 ? random_below(sizeof(*h))
                                : SESSION_LOG_HEAD + random_below((uint32_t)size);
                ((uint8_t *)h)[at] ^= (uint8_t)(1u << random_below(8));
                munmap(h, 1u << 20);
                restart(&x.w);
                if (at >= SESSION_LOG_HEAD)
                        assert_true(x.w.found.is_damaged);
                end(&x.w);
        }
}

TEST_BARE(test_no_memory)
{
        struct actor x = {0};
        int log;

        act_begin(&x);
        for (unsigned i = 0; i < 100; i++)
                act(&x, 5, i);
        log = x.w.keeper.fd;
        alloc_fail_each(n)
        {
                x.w.keeper.fd = copy_log(log);
                forget(&x.w);
                keep_logs(&x.w, true);
                (void)sessions_recover(x.w.ns);
                keep_logs(&x.w, false);
                assert_true(alloc_fail_happened() || x.w.ns->sessions);
                if (!x.w.ns->sessions)
                        assert_int_equal(x.w.keeper.fd, -1);
                assert_null(sessions_check(x.w.ns));
                x.w.keeper.fd = fd_close(x.w.keeper.fd);
        }
        free_unheld(&x.w);
        assert_true(sessions_count(x.w.ns) > 0);
        x.w.keeper.fd = log;
        end(&x.w);
}

int main(void)
{
        random_start("test_session_log_killed");
        return test_run_all(NULL, NULL);
}
