/* kvleasectl restart: what it says beforehand, and that clients go on. */
#include <stdlib.h>
#include <string.h>

#include "tests/integration/harness.h"

#define EXIT_LOSS 6

static const struct private_options kept = {.is_kept = true};

static int run(struct harness *h, const char *words, char **ret_out)
{
        struct proc_output out = {0};
        int status = ctl_run(h, words, &out);

        *ret_out = strdup(out.out ? out.out : "");
        proc_output_free(&out);
        return status;
}

static void assert_says(struct harness *h, const char *words, int status, const char *text)
{
        char *out;

        assert_int_equal(run(h, words, &out), status);
        if (!strstr(out, text))
                fail_msg("'%s' isn't in: %s", text, out);
        free(out);
}

/* A worker with pages pinned, in the middle of a conversation. */
static struct worker *start_talking(struct harness *h, uint32_t pages[3])
{
        struct worker *w = worker_start(h, "a", "ns", 1);

        worker_publish_chain(w, 7, 3, pages);
        worker_tell(w, "session-open chat");
        worker_tell(w, "session-talk 8 0 3");
        return w;
}

static void test_goes_on(void **state)
{
        struct harness *h = *state;
        uint32_t pages[3], found[3];
        struct worker *w = start_talking(h, pages);
        uint64_t pid = ctl_status(h, "pid");

        assert_says(h, "restart --check", 0, "nothing would be lost");
        ctl(h, "restart");
        assert_int_equal(private_daemon_await(&h->daemon), 0);
        assert_int_not_equal(ctl_status(h, "pid"), pid);
        worker_tell(w, "session-talk 8 4 5");
        worker_tell(w, "verify %u 7000", pages[0]);
        worker_tell(w, "lookup 7:0-2");
        assert_int_equal(worker_numbers(w, found, 3), 3);
        assert_memory_equal(found, pages, sizeof(found));
        worker_tell(w, "lease 2");
        worker_stop(w);
        ctl(h, "sessions purge a");
}

/* Another kvleased that doesn't read what this one keeps, or is none. */
static void test_other_binary(void **state)
{
        struct harness *h = *state;
        uint32_t pages[3];
        struct worker *w = start_talking(h, pages);
        uint64_t pid = ctl_status(h, "pid");

        assert_says(h, "restart --check --binary /bin/true", EXIT_LOSS, "everything: /bin/true");
        assert_says(h, "restart --check --binary /no/such", EXIT_LOSS, "everything: /no/such");
        assert_says(h, "restart --binary /bin/true", EXIT_LOSS, "everything");
        assert_int_equal(ctl_status(h, "pid"), pid);
        worker_stop(w);
        ctl(h, "sessions purge a");
}

static void test_nobody_keeps(void **state)
{
        struct harness *h = *state;
        uint32_t pages[3];
        struct worker *w = start_talking(h, pages);

        assert_says(h, "restart --check", EXIT_LOSS, "7 cached pages");
        assert_says(h, "restart", EXIT_LOSS, "clients must connect anew");
        worker_stop(w);
        ctl(h, "sessions purge a");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                harness_test(test_goes_on, (void *)&kept),
                harness_test(test_other_binary, (void *)&kept),
                harness_test(test_nobody_keeps, NULL),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
