/* Conversations that outlive their workers; documents that change; histories of keys. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/integration/harness.h"
#include "tests/integration/pattern.h"

#define PAGE_TOKENS 16
#define N_PLANES    2
#define MAX_PAGES   64
#define WAIT_MSEC   30000 /* not tuned */

static const struct private_tenant two_tenants[] = {{"a", NULL}, {"b", NULL}, {NULL, NULL}};
static const struct private_options two = {.tenants = two_tenants};

/* ---- what a worker does --------------------------------------------------------------------- */

/* Seed of a page's contents, so that any process can tell the right bytes. */
static unsigned seed_of(unsigned chain, unsigned index)
{
        return 1000 * chain + index;
}

struct turn {
        unsigned chain, first, n; /* keys */
        unsigned last_tokens;
        const char *parent; /* "CHAIN:INDEX" or "-" */
        unsigned tag;
        bool alone; /* not of the session */
};

/* Leases pages, fills and publishes them; they stay pinned. */
static void publish(struct worker *w, struct turn t, uint32_t *ret_pages)
{
        char line[1024];
        int at;

        worker_tell(w, "lease %u", t.n);
        assert_int_equal(worker_numbers(w, ret_pages, t.n), t.n);
        at = snprintf(line, sizeof(line), "publish-with %s %u %u %u:%u-%u %s",
                t.alone ? "-" : "session", t.tag, t.last_tokens, t.chain, t.first,
                t.first + t.n - 1, t.parent);
        for (unsigned i = 0; i < t.n; ++i) {
                worker_tell(w, "fill %u %u", ret_pages[i], seed_of(t.chain, t.first + i));
                at += snprintf(line + at, sizeof(line) - (size_t)at, " %u", ret_pages[i]);
        }
        worker_tell(w, "%s", line);
}

static void release(struct worker *w, const uint32_t *pages, unsigned n)
{
        for (unsigned i = 0; i < n; ++i)
                worker_tell(w, "release %u", pages[i]);
}

static void publish_and_release(struct worker *w, struct turn t)
{
        uint32_t pages[MAX_PAGES];

        publish(w, t, pages);
        release(w, pages, t.n);
}

struct session_info {
        unsigned is_new, n_pages, n_tokens, lost_tokens;
};

static struct session_info open_session(struct worker *w, const char *words)
{
        struct session_info info;

        worker_tell(w, "session-open %s", words);
        assert_int_equal(sscanf(w->rest, "%u %u %u %u", &info.is_new, &info.n_pages, &info.n_tokens,
                                 &info.lost_tokens),
                4);
        return info;
}

struct found {
        unsigned n;
        uint32_t pages[MAX_PAGES], tokens[MAX_PAGES], first[MAX_PAGES];
};

/* Pins all pages of the session. */
static struct found find_pages(struct worker *w)
{
        uint32_t numbers[3 * MAX_PAGES];
        struct found f = {0};

        worker_tell(w, "session-pages 0 4000");
        f.n = worker_numbers(w, numbers, ARRAY_SIZE(numbers)) / 3;
        for (unsigned i = 0; i < f.n; ++i) {
                f.pages[i] = numbers[3 * i];
                f.tokens[i] = numbers[3 * i + 1];
                f.first[i] = numbers[3 * i + 2];
        }
        return f;
}

static void assert_page(struct worker *w, const struct found *f, unsigned i, unsigned seed,
        unsigned first_token, unsigned n_tokens)
{
        assert_true(i < f->n);
        assert_int_equal(f->first[i], first_token);
        assert_int_equal(f->tokens[i], n_tokens);
        worker_tell(w, "verify %u %u", f->pages[i], seed);
}

/* How many of the keys are found; nothing stays pinned. */
static unsigned count_hits(struct worker *w, const char *keys)
{
        uint32_t pages[MAX_PAGES];
        unsigned n;

        if (worker_ask(w, "lookup %s", keys) == KVL_MISS)
                return 0;
        assert_int_equal(w->code, 0);
        n = worker_numbers(w, pages, MAX_PAGES);
        release(w, pages, n);
        return n;
}

static void end_session(struct worker *w, const char *id)
{
        open_session(w, id);
        worker_tell(w, "session-close drop");
}

/* ---- a worker dies -------------------------------------------------------------------------- */

/* Five full pages, and one of 9 tokens: its last one was extended once. */
static void talk(struct worker *w)
{
        struct found f;
        uint32_t page;

        assert_int_equal(open_session(w, "chat").is_new, 1);
        assert_int_equal(worker_ask(w, "session-pages 0 10"), KVL_MISS);
        publish_and_release(w, (struct turn){7, 0, 3, 16, "-"});
        publish_and_release(w, (struct turn){7, 3, 1, 16, "7:2"});
        publish_and_release(w, (struct turn){7, 104, 1, 5, "7:3"});
        f = find_pages(w);
        assert_int_equal(f.n, 5);
        assert_page(w, &f, 4, seed_of(7, 104), 64, 5);
        worker_tell(w, "lease 1");
        assert_int_equal(worker_numbers(w, &page, 1), 1);
        worker_tell(w, "copy %u %u", f.pages[4], page);
        worker_tell(w, "verify %u %u", page, seed_of(7, 104));
        worker_tell(w, "publish-with session 0 16 7:4 7:3 %u", page);
        publish_and_release(w, (struct turn){7, 105, 1, 9, "7:4"});
        worker_tell(w, "session-hint 1 0");
}

static void assert_conversation(struct worker *w, const struct found *f)
{
        assert_int_equal(f->n, 6);
        for (unsigned i = 0; i < 4; ++i)
                assert_page(w, f, i, seed_of(7, i), i * PAGE_TOKENS, 16);
        assert_page(w, f, 4, seed_of(7, 104), 64, 16);
        assert_page(w, f, 5, seed_of(7, 105), 80, 9);
        assert_int_equal(worker_ask(w, "session-keys 7:0-4 7:105"), 0);
}

HARNESS_TEST(test_worker_dies, NULL)
{
        struct worker *w = worker_start(h, "a", "ns", N_PLANES);
        struct session_info info;
        struct found f;
        uint32_t page;

        talk(w);
        worker_kill(w);
        ctl_wait_status(h, "n_clients", 0);
        assert_int_equal(ctl_status(h, "n_sessions"), 1);

        w = worker_start(h, "a", "ns", N_PLANES);
        info = open_session(w, "chat must");
        assert_true(info.is_new == 0 && info.n_pages == 6);
        assert_true(info.n_tokens == 89 && info.lost_tokens == 0);
        f = find_pages(w);
        assert_int_equal(ctl_status(h, "pages_pinned"), 6);
        assert_conversation(w, &f);
        worker_tell(w, "lease 1");
        assert_int_equal(worker_numbers(w, &page, 1), 1);
        worker_tell(w, "copy %u %u", f.pages[5], page);
        worker_tell(w, "publish-with session 0 12 7:205 7:4 %u", page);
        worker_tell(w, "session-release");
        f = find_pages(w);
        assert_int_equal(f.n, 6);
        assert_page(w, &f, 5, seed_of(7, 105), 80, 12);
        /* The text is cached like any other. */
        assert_int_equal(count_hits(w, "7:0-4 7:205"), 6);
        end_session(w, "chat must");
}

/* A worker is killed while it publishes page after page. How many the session has: each is whole
 * and in its place. */
static unsigned talk_until_killed(struct harness *h, unsigned chain, unsigned usec)
{
        struct worker *w = worker_start(h, "a", "ns", N_PLANES);
        struct session_info info;
        struct found f = {0};

        open_session(w, "chat");
        worker_say(w, "session-talk %u 0 %u", chain, MAX_PAGES - 1);
        usleep(usec);
        worker_kill(w);
        ctl_wait_status(h, "n_clients", 0);
        w = worker_start(h, "a", "ns", N_PLANES);
        info = open_session(w, "chat must");
        assert_int_equal(info.n_tokens, info.n_pages * PAGE_TOKENS);
        assert_int_equal(info.lost_tokens, 0);
        if (info.n_pages > 0)
                f = find_pages(w);
        assert_int_equal(f.n, info.n_pages);
        for (unsigned i = 0; i < f.n; ++i)
                assert_page(w, &f, i, seed_of(chain, i), i * PAGE_TOKENS, 16);
        if (f.n > 0)
                worker_tell(w, "session-release");
        worker_tell(w, "session-close drop");
        assert_int_equal(ctl_status(h, "pages_sealed"), 0);
        worker_stop(w);
        return f.n;
}

HARNESS_TEST(test_killed_while_talking, NULL)
{
        uint64_t random = harness_seed(), early = 0, late = 2000; /* us: nothing yet, and all */
        /* The start of a real driver takes a time that can't be predicted. */
        unsigned n_midway = 0, n_enough = private_on_real_gpu() ? 3 : 10;

        for (unsigned i = 0; i < 100 && n_midway < n_enough; ++i) {
                /* Somewhere between, and a little beyond: how long it takes isn't always the same.
                 */
                uint64_t least = early * 9 / 10, most = late * 11 / 10 + 10;
                uint64_t usec = least + pattern_next(&random) % (most - least);
                unsigned n = talk_until_killed(h, 1, (unsigned)usec);

                n_midway += n > 0 && n < MAX_PAGES;
                if (n == 0) {
                        early = usec;
                        late = early < late ? late : 2 * early;
                } else if (n == MAX_PAGES) {
                        late = usec;
                        early = early < late ? early : late / 2;
                }
        }
        assert_int_equal(n_midway, n_enough);
}

/* Another tenant's or namespace's session with this id is a different one. */
HARNESS_TEST(test_tenants, &two)
{
        struct worker *a = worker_start(h, "a", "ns", N_PLANES);
        struct worker *b = worker_start(h, "b", "ns", N_PLANES);
        struct worker *other = worker_start(h, "a", "other", N_PLANES);

        open_session(a, "chat");
        publish_and_release(a, (struct turn){1, 0, 4, 16, "-"});
        assert_int_equal(worker_ask(b, "session-open chat must"), -ENOENT);
        assert_int_equal(worker_ask(other, "session-open chat must"), -ENOENT);
        assert_int_equal(open_session(b, "chat").is_new, 1);
        assert_int_equal(worker_ask(b, "session-pages 0 10"), KVL_MISS);
        assert_int_equal(ctl_status(h, "n_sessions"), 2);
}

/* ---- documents and keys --------------------------------------------------------------------- */

struct why {
        int state, page;
        unsigned long long client;
        char by[65];
};

/* ---- the examples --------------------------------------------------------------------------- */

/* Runs it as a client of tenant a; returns its output, owned. */
static char *run_example(struct harness *h, const char *const *argv, bool dies)
{
        char path[PRIVATE_PATH_MAX], variable[PRIVATE_PATH_MAX + 32];
        const char *env[] = {variable, NULL}, *wrapped[PROGRAM_ARGS_MAX];
        struct proc_output o;

        snprintf(variable, sizeof(variable), "KVLEASE_SOCKET=%s",
                private_daemon_socket(&h->daemon, "a", path));
        program_wrap(argv, wrapped);
        assert_int_equal(proc_run(wrapped, env, WAIT_MSEC, &o), 0);
        if (dies ? !WIFSIGNALED(o.status) : o.status != 0)
                fail_msg("%s: status 0x%x: %s%s", argv[0], o.status, o.out, o.err);
        free(o.err);
        return o.out;
}

static void assert_example(struct harness *h, const char *text, bool dies, const char *expected)
{
        const char *argv[] = {program_session(), dies ? "--die" : "it", dies ? "it" : text,
                dies ? text : NULL, NULL};
        char *out = run_example(h, argv, dies);

        assert_string_equal(out, expected);
        free(out);
}

/* Each example of the manual pages does its work. */
HARNESS_TEST(test_manual, NULL)
{
        const char *argv[] = {program_manual(), NULL};
        char *out = run_example(h, argv, false);

        assert_non_null(strstr(out, "of tenant a\n"));
        assert_non_null(strstr(out, "\nkey 3: cached, "));
        free(out);
}

HARNESS_TEST(test_example, NULL)
{
        assert_example(h, "Hello, who are you?", true,
                "begins: 0 pages with 0 tokens are cached, 0 tokens were lost: \"\"\n"
                "published up to token 19\n");
        assert_example(h, " I keep pages.", true,
                "resumes: 2 pages with 19 tokens are cached, 0 tokens were lost: \"Hello, who are you?\"\n"
                "published up to token 33\n");
        assert_example(h, " Whose?", false,
                "resumes: 3 pages with 33 tokens are cached, 0 tokens were lost: \"Hello, who are you? I keep pages.\"\n"
                "published up to token 40\n");
        assert_example(h, " Yours.", false,
                "resumes: 3 pages with 40 tokens are cached, 0 tokens were lost: \"Hello, who are you? I keep pages. Whose?\"\n"
                "published up to token 47\n");
}
