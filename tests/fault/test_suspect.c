/*
 * A client whose requests end kvleased again and again, by a fault point that stands for a bug
 * (SIGABRT). Under `kvleased --keep` the cache and other clients survive. A client that was served
 * at two deaths is lost. If its tenant's clients continue with that, new ones are refused. A kill
 * from outside blames no client.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/macros.h"
#include "tests/integration/harness.h"

#define WAIT_MSEC 60000 /* not tuned */
#define LOG_MAX   (1 << 20)

static const struct private_tenant tenants[] = {
        {"good", "limit = 16MiB\n"}, {"bad", "limit = 16MiB\n"}, {NULL, NULL}};
static const struct private_options options = {
        .tenants = tenants, .is_kept = true, .has_faults = true};

/* This point records a pin taken over the socket: clients with shared memory don't reach it. */
static const char *const fatal[] = {"socket-pin-before"};

struct scene {
        struct harness *h;
        struct worker *good;
        uint32_t pages[4];
};

static struct worker *start_bad(struct scene *s, unsigned chain)
{
        static const char *const socket_only[] = {"KVLEASE_NO_SHM=1", NULL};
        struct worker *w = worker_spawn_with(s->h, program_worker(), socket_only);
        uint32_t pages[2];

        worker_attach(w, "bad", "n", 1);
        worker_publish_chain(w, chain, 2, pages);
        return w;
}

static void await_daemon(struct scene *s)
{
        int r = private_daemon_await(&s->h->daemon);

        if (r < 0)
                private_daemon_show_log(&s->h->daemon);
        assert_int_equal(r, 0);
        ctl(s->h, "check");
}

/* The good client has lost nothing, and continues. */
static void assert_good(struct scene *s)
{
        uint32_t found[4];

        worker_tell(s->good, "lookup 1:0-3");
        assert_int_equal(worker_numbers(s->good, found, ARRAY_SIZE(found)), ARRAY_SIZE(found));
        assert_memory_equal(found, s->pages, sizeof(found));
        worker_tell(s->good, "release %u %u %u %u", found[0], found[1], found[2], found[3]);
}

/* The client's next request is fatal, once. Returns the code that the client gets in the end. */
static int strike(struct scene *s, struct worker *w, unsigned chain, int number)
{
        struct private_daemon *d = &s->h->daemon;
        int r;

        private_daemon_aim(d, fatal, 1, 1);
        atomic_store(&d->faults->signal, number);
        private_daemon_arm(d);
        worker_say(w, "lookup %u:0-1", chain);
        await_daemon(s);
        assert_true(private_daemon_has_died(d));
        assert_good(s);
        assert_true(worker_answers(w, WAIT_MSEC));
        r = worker_ask(w, "lookup %u:0-1", chain);
        assert_good(s);
        return r;
}

/* The client is lost: its requests under way fail, and all later ones. */
static bool is_lost(int code)
{
        return code == -ESTALE || code == -ENOTCONN;
}

static bool log_says(struct scene *s, const char *text)
{
        _cleanup_free_ char *log = NULL;
        size_t len;

        assert_int_equal(file_read(s->h->daemon.log, LOG_MAX, &log, &len), 0);
        return strstr(log, text) != NULL;
}

static void begin(struct scene *s, struct harness *h)
{
        *s = (struct scene){.h = h};
        s->good = worker_start(h, "good", "n", 1);
        worker_publish_chain(s->good, 1, 4, s->pages);
}

HARNESS_TEST(test_suspect, &options)
{
        struct scene s;
        struct worker *bad, *again, *mate;
        struct proc_output out = {0};

        begin(&s, h);
        bad = start_bad(&s, 2);
        mate = start_bad(&s, 3);
        assert_int_equal(strike(&s, bad, 2, SIGABRT), 0); /* once may be a coincidence */
        assert_false(log_says(&s, "is not taken over"));
        assert_int_equal(ctl_status(s.h, "clients_lost"), 0);
        assert_true(is_lost(strike(&s, bad, 2, SIGSEGV)));
        assert_true(log_says(&s, "is not taken over"));
        assert_int_equal(ctl_status(s.h, "clients_lost"), 1);
        assert_int_equal(ctl_status(s.h, "tenants_refused"), 0);
        assert_int_equal(worker_ask(mate, "lookup 3:0-1"), 0);
        assert_int_equal(ctl_run(s.h, "events --kind client", &out), 0);
        assert_non_null(strstr(out.out, "kvleased died serving it"));
        proc_output_free(&out);

        /* Another client of that tenant: then the whole tenant is refused. */
        again = start_bad(&s, 4);
        assert_int_equal(strike(&s, again, 4, SIGABRT), 0);
        assert_true(is_lost(strike(&s, again, 4, SIGABRT)));
        assert_true(is_lost(worker_ask(mate, "lookup 3:0-1")));
        worker_kill(again);
        again = worker_spawn(s.h);
        {
                char socket[PRIVATE_PATH_MAX];

                assert_int_equal(worker_ask(again, "connect %s",
                                         private_daemon_socket(&s.h->daemon, "bad", socket)),
                        -EACCES);
        }
        assert_int_equal(ctl_status(s.h, "tenants_refused"), 1);
        assert_good(&s);

        /* A planned restart admits the tenant again. */
        ctl(s.h, "restart");
        await_daemon(&s);
        assert_int_equal(ctl_status(s.h, "tenants_refused"), 0);
        worker_attach(again, "bad", "n", 1);
        assert_good(&s);
        worker_kill(bad);
        worker_kill(mate);
        worker_stop(again);
        worker_stop(s.good);
        harness_assert_settled(s.h);
}

HARNESS_TEST(test_killed_from_outside, &options)
{
        struct worker *bad;
        struct scene s;

        begin(&s, h);
        bad = start_bad(&s, 2);
        for (unsigned i = 0; i < 3; i++)
                assert_int_equal(strike(&s, bad, 2, SIGKILL), 0);
        assert_false(log_says(&s, "is not taken over"));
        worker_stop(bad);
        worker_stop(s.good);
        harness_assert_settled(s.h);
}
