/* Conversations of which some ranges of tokens are kept, anywhere in the text, and again and again.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "tests/integration/harness.h"
#include "tests/integration/pattern.h"

#define PAGE_TOKENS 16
#define N_PLANES    2
#define N_LONG      2000 /* pages: of which every second one takes most of the ranges there may be */

static const struct private_options kept = {.is_kept = true};
static const struct private_options kept_long = {
        .is_kept = true, .device_lines = "memory = 256MiB\n"};

/* The session's pages are these of chain 1, each where it was in the text, with the bytes it had:
 * "0 1 4". */
static void expect_pages(struct worker *w, const char *expected)
{
        uint32_t numbers[3 * 64];
        char text[512] = "";
        unsigned n;

        worker_tell(w, "session-pages 0 64");
        n = worker_numbers(w, numbers, ARRAY_SIZE(numbers)) / 3;
        for (unsigned i = 0; i < n; i++) {
                unsigned index = numbers[3 * i + 2] / PAGE_TOKENS;
                size_t len = strlen(text);

                snprintf(text + len, sizeof(text) - len, "%s%u", len > 0 ? " " : "", index);
                worker_tell(w, "verify %u %u", numbers[3 * i], 1000 + index);
        }
        assert_string_equal(text, expected);
        worker_tell(w, "session-release");
}

static void expect_info(struct worker *w, unsigned n_pages, unsigned n_tokens)
{
        unsigned is_new, pages, tokens, lost;

        worker_tell(w, "session-open chat must");
        assert_int_equal(sscanf(w->rest, "%u %u %u %u", &is_new, &pages, &tokens, &lost), 4);
        assert_true(pages == n_pages && tokens == n_tokens && lost == 0);
}

/* How many of the first pages of the text are found by key. */
static void expect_hits(struct worker *w, unsigned n)
{
        uint32_t pages[12];

        worker_tell(w, "lookup 1:0-11");
        assert_int_equal(worker_numbers(w, pages, ARRAY_SIZE(pages)), n);
        for (unsigned i = 0; i < n; i++)
                worker_tell(w, "release %u", pages[i]);
}

HARNESS_TEST(test_keep, NULL)
{
        struct worker *w = worker_start(h, "a", "ns", N_PLANES), *other;

        worker_tell(w, "session-open chat");
        worker_tell(w, "session-talk 1 0 11");
        assert_int_equal(worker_ask(w, "session-keep 0-16 8-32"), -EINVAL);
        assert_int_equal(worker_ask(w, "session-keep 64-128 0-16"), -EINVAL);
        assert_int_equal(worker_ask(w, "session-keep 0-193"), -EINVAL);
        worker_tell(w, "session-keep 0-32 64-80 97-112 144-end");
        assert_int_equal(atoi(w->rest), 5);
        expect_pages(w, "0 1 4 6 9 10 11");
        expect_hits(w, 2);
        assert_int_equal(ctl_status(h, "pages_sealed"), 2);
        assert_int_equal(ctl_status(h, "pages_detached"), 5);
        assert_int_equal(worker_ask(w, "session-keep 0-16 32-80"), -EINVAL);
        assert_int_equal(worker_ask(w, "session-keep 0-16 64-112"), -EINVAL);
        expect_pages(w, "0 1 4 6 9 10 11");
        /* The session continues, and is shortened again, while another process has it open. */
        other = worker_start(h, "a", "ns", N_PLANES);
        worker_tell(other, "session-open chat must");
        worker_tell(w, "session-talk 1 12 13");
        expect_pages(other, "0 1 4 6 9 10 11 12 13");
        worker_tell(other, "session-keep 0-16 64-80 160-176 192-end");
        assert_int_equal(atoi(other->rest), 4);
        expect_pages(w, "0 4 10 12 13");
        worker_tell(w, "session-talk 1 14 14");
        worker_kill(w);
        worker_stop(other);
        ctl_wait_status(h, "n_clients", 0);

        w = worker_start(h, "a", "ns", N_PLANES);
        expect_info(w, 6, 15 * PAGE_TOKENS);
        expect_pages(w, "0 4 10 12 13 14");
        /* Its text ends where the last range does. */
        worker_tell(w, "session-keep 0-16 64-80 160-176");
        assert_int_equal(atoi(w->rest), 3);
        worker_tell(w, "session-talk 1 11 11");
        expect_pages(w, "0 4 10 11");
        worker_tell(w, "session-close drop");
        ctl_wait_status(h, "pages_sealed", 0);
        ctl_wait_status(h, "pages_detached", 0);
}

static void kill_daemon(struct harness *h)
{
        kill((pid_t)ctl_status(h, "pid"), SIGKILL);
}

/* The session's gaps outlive a restart, and more can be made. */
HARNESS_TEST(test_daemon_dies, &kept)
{
        struct worker *w;

        harness_needs_kept_memory();
        w = worker_start(h, "a", "ns", N_PLANES);
        worker_tell(w, "session-open chat");
        worker_tell(w, "session-talk 1 0 11");
        worker_tell(w, "session-keep 0-32 64-80 96-112 144-end");
        kill_daemon(h);
        expect_pages(w, "0 1 4 6 9 10 11");
        worker_tell(w, "session-talk 1 12 12");
        worker_tell(w, "session-keep 0-16 64-80 160-end");
        kill_daemon(h);
        expect_pages(w, "0 4 10 11 12");
        expect_hits(w, 1);
        worker_tell(w, "session-close drop");
        ctl_wait_status(h, "pages_detached", 0);
}

/* The daemon dies while a long text with a gap is gone through: it is asked again. */
HARNESS_TEST(test_daemon_dies_meanwhile, &kept_long)
{
        struct worker *w, *other;
        pid_t daemon = (pid_t)ctl_status(h, "pid");
        unsigned is_new, n_pages;

        harness_needs_kept_memory();
        w = worker_start(h, "a", "ns", 1);
        other = worker_start(h, "a", "ns", 1);
        worker_tell(w, "session-open chat");
        worker_tell(w, "fill-chain 1 %u 0", N_LONG);
        worker_tell(other, "session-open chat must");
        worker_say(w, "session-keep-every %u %u", N_LONG, PAGE_TOKENS);
        (void)worker_ask(other, "session-hint 1 0"); /* it has reached the daemon, most likely */
        kill(daemon, SIGKILL);
        assert_true(worker_answers(w, 60000));
        assert_int_equal(w->code, 0);
        worker_tell(w, "session-close");
        worker_tell(w, "session-open chat must");
        assert_int_equal(sscanf(w->rest, "%u %u", &is_new, &n_pages), 2);
        assert_int_equal(n_pages, N_LONG / 2 + 1); /* the last range reaches the end */
        /* Every second page is a gap now, so this request has to be refused. */
        assert_int_equal(worker_ask(w, "session-keep 0-end"), -EINVAL);
        worker_tell(w, "session-close drop");
        ctl_wait_status(h, "pages_detached", 0);
}

static struct worker *start_group(struct harness *h, unsigned group)
{
        struct worker *w = worker_spawn(h);
        char socket[PRIVATE_PATH_MAX];

        worker_tell(w, "connect %s", private_daemon_socket(&h->daemon, "a", socket));
        worker_tell(w, "set-open group-%u %u model 2 %u", group, N_PLANES, group);
        worker_tell(w, "session-open chat");
        worker_tell(w, "session-talk 1 0 11");
        return w;
}

/* One group of layers drops most of a text that the other one keeps. This lasts longer than keys
 * may be incomplete in a set (10 s, so only in a full run), and over a restart. */
HARNESS_TEST(test_groups_keep_their_own, &kept)
{
        struct worker *shallow, *deep;

        if (!private_full())
                skip();
        harness_needs_kept_memory();
        shallow = start_group(h, 0);
        deep = start_group(h, 1);
        worker_tell(deep, "session-keep 0-16 176-end");
        for (unsigned i = 0; i < 2; i++) {
                sleep_msec(11000);
                expect_pages(shallow, "0 1 2 3 4 5 6 7 8 9 10 11");
                expect_pages(deep, "0 11");
                ctl(h, "check");
                if (i == 0)
                        kill_daemon(h);
        }
        worker_tell(shallow, "session-close drop");
        worker_tell(deep, "session-close drop");
        ctl_wait_status(h, "pages_detached", 0);
}
