/*
 * Three kvleased with clients, and between them a real cluster of three masters, each with a
 * replica. Each host's texts are found on the two others. Pages are invalidated, slots move, and
 * masters are killed or stopped until their replicas take over. Throughout, cached pages are found
 * and no lookup is late.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/macros.h"
#include "daemon/exchange/exchange-impl.h"
#include "tests/integration/exchange-hosts.h"

#define N_HOSTS    3
#define N_MASTERS  3 /* servers 0.., and behind them their replicas in this order */
#define DURING_MAX 15

#define SHORT_MSEC 200 /* of a lookup while a master is gone */

/* Same value as in test_remote_cluster.c. */
#define FAILOVER_NSEC (180 * NSEC_PER_SEC) /* a busy machine; not tuned */
/* A page that a server accepted and lost is written again after this time. */
#define AGAIN_NSEC ((EXCHANGE_AGAIN_SEC + 30) * NSEC_PER_SEC)

static struct worker *workers[N_HOSTS]; /* of each host one */
static unsigned n_texts;                /* so far, by their numbers from 1 on */

/* ---- hosts ----------------------------------------------------------------------------------- */

static void cluster_start(void **state)
{
        hosts_find_server();
        hosts_add_replicated(N_MASTERS);
        hosts_start_daemons(
                state, &(struct hosts_options){.prefill = HOSTS_PREFILL, .n_hosts = N_HOSTS});
        for (unsigned i = 0; i < N_HOSTS; i++)
                workers[i] = host_worker(host_at(i));
        for (unsigned i = 0; i < N_HOSTS; i++)
                await_ready(host_at(i));
        n_texts = 0;
}

static void cluster_end(void **state)
{
        for (unsigned i = 0; i < N_HOSTS; i++)
                worker_stop(workers[i]);
        hosts_end(state);
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* A host computes the next text and finds it once. */
static unsigned compute_text(unsigned host)
{
        unsigned text = ++n_texts;

        compute_chain(workers[host], text);
        worker_tell(workers[host], "hits 1 %u:0-%u", text, N_PAGES - 1);
        return text;
}

/* Finds texts again on their hosts, by other requests, until the servers have so many pages. A page
 * whose write failed is written when it is found again. */
static void find_until_exported(
        const unsigned texts[], const unsigned hosts[], unsigned n, unsigned n_exported)
{
        uint64_t until = clock_now_nsec() + AGAIN_NSEC;

        while (count_exported() < n_exported) {
                assert_true(clock_now_nsec() < until);
                for (unsigned i = 0; i < n; i++)
                        worker_tell(workers[hosts[i]], "hits 2 %u:0-%u", texts[i], N_PAGES - 1);
                hosts_look_at_rings();
                sleep_msec(20);
        }
}

static unsigned share_text(unsigned host)
{
        unsigned n = count_exported(), text = compute_text(host);

        find_until_exported(&text, &host, 1, n + N_PAGES);
        return text;
}

/* The two others find a host's text, each page with the right bytes. */
static void find_at_others(unsigned host, unsigned text)
{
        for (unsigned i = 1; i < N_HOSTS; i++)
                find_whole(workers[(host + i) % N_HOSTS], text);
}

static void assert_nowhere_else(unsigned host, unsigned text)
{
        for (unsigned i = 1; i < N_HOSTS; i++)
                assert_int_equal(find_chain(workers[(host + i) % N_HOSTS], text, SHORT_MSEC), 0);
}

/* ---- all is well ----------------------------------------------------------------------------- */

/* The host invalidates a page of the text, and all others learn of it. Pages computed since are
 * shared, except for those of the same second. */
static void invalidate(unsigned host, unsigned text)
{
        char *before = read_epoch(NULL);

        assert_non_null(before);
        worker_tell(workers[host], "invalidate %u:3", text);
        await_other_epoch(before);
        free(before);
}

/*
 * A page is invalidated by the host that computed it, or by one that imported it. All hosts drop
 * the page and its continuations. No host imports what was exported before; no other page is
 * dropped.
 */
TEST_BARE(test_invalidated_on_one_host)
{
        unsigned text, other;

        cluster_start(state);
        text = share_text(0);
        other = share_text(1);
        invalidate(0, text);
        assert_nowhere_else(0, text);
        assert_nowhere_else(1, other);
        assert_int_equal(find_chain(workers[0], text, SHORT_MSEC), 3);
        assert_int_equal(find_chain(workers[1], other, NOW_MSEC), N_PAGES);

        sleep_msec(2100);
        text = share_text(1);
        other = share_text(0);
        find_whole(workers[2], text);
        invalidate(2, text);
        assert_int_equal(find_chain(workers[0], text, SHORT_MSEC), 0);
        assert_int_equal(find_chain(workers[2], text, SHORT_MSEC), 3);
        await_left(workers[1], text, 3);
        assert_int_equal(find_chain(workers[0], other, NOW_MSEC), N_PAGES);
        assert_nowhere_else(0, other);

        sleep_msec(2100);
        for (unsigned i = 0; i < N_HOSTS; i++)
                find_at_others(i, share_text(i));

        assert_true(figure_of(host_at(1), "kvlease_exchange_followed_changes_total" OF_A) > 0);
        ctl(host_at(1), "purge a");
        for (unsigned i = 0; i < N_HOSTS; i++)
                for (unsigned k = 1; k <= n_texts; k++)
                        await_left(workers[i], k, 0);
        sleep_msec(2100);
        find_at_others(0, share_text(0));
        cluster_end(state);
}

/* ---- masters are lost ------------------------------------------------------------------------ */

/* Names of all pages that a server has; owned. */
static char *list_pages(unsigned i)
{
        char *names = redis_cluster_call(&server, i, "--raw keys kvl:1:a:*:0");

        assert_non_null(names);
        return names;
}

/* How many pages of the list aren't in the other one. Cuts the first one up. */
static unsigned count_lost(char *before, const char *after)
{
        char *save = NULL;
        unsigned n = 0;

        for (char *name = strtok_r(before, "\r\n", &save); name;
                name = strtok_r(NULL, "\r\n", &save))
                n += !strstr(after, name);
        return n;
}

/* SIGKILL, or SIGSTOP, after which its requests have no answer. */
static void signal_server(unsigned i, int sig)
{
        assert_int_equal(kill(server.servers[i].pid, sig), 0);
        if (sig != SIGKILL)
                return;
        assert_int_equal(waitpid(server.servers[i].pid, NULL, 0), server.servers[i].pid);
        server.servers[i].pid = 0;
}

/* A stopped server returns as a replica. */
static void continue_server(unsigned i)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;

        signal_server(i, SIGCONT);
        while (redis_cluster_is_master(&server, i))
                assert_true(clock_now_nsec() < until);
}

/* Texts from before a master is lost, and from the time until its replica has taken over. */
struct loss {
        unsigned everywhere;     /* a text that all hosts have cached */
        unsigned asked[N_HOSTS]; /* of each host: which others look for meanwhile, */
        unsigned spare[N_HOSTS]; /* and only afterwards */
        unsigned n_during;       /* texts that are computed meanwhile, and where */
        unsigned during[DURING_MAX], during_at[DURING_MAX];
};

static void compute_during(struct loss *l, unsigned host)
{
        if (l->n_during == ARRAY_SIZE(l->during))
                return;
        l->during_at[l->n_during] = host;
        l->during[l->n_during++] = compute_text(host);
}

/* Hosts continue: they look up their own texts and those of others, and compute. */
static void live_until_taken_over(struct loss *l, unsigned replica)
{
        uint64_t began = clock_now_nsec();
        struct lookups lookups;
        unsigned n_found = 0;

        lookups_begin(&lookups);
        for (unsigned i = 0; !redis_cluster_is_master(&server, replica); i++) {
                const unsigned host = i % N_HOSTS;

                assert_true(clock_now_nsec() - began < FAILOVER_NSEC);
                n_found += look_up(
                        &lookups, workers[host], l->asked[(host + 1) % N_HOSTS], SHORT_MSEC);
                if (i % 4 == 0)
                        compute_during(l, host);
                for (unsigned k = 0; k < N_HOSTS; k++)
                        assert_int_equal(
                                look_up(&lookups, workers[k], l->everywhere, NOW_MSEC), N_PAGES);
                for (unsigned k = 0; k < l->n_during; k += 4)
                        assert_int_equal(
                                look_up(&lookups, workers[l->during_at[k]], l->during[k], NOW_MSEC),
                                N_PAGES);
        }
        print_message(
                "taken over after %u ms, with %u texts computed, and %u pages of others found in ",
                (unsigned)((clock_now_nsec() - began) / NSEC_PER_MSEC), l->n_during, n_found);
        lookups_end(&lookups);
}

static void lose_master(unsigned ill, int sig)
{
        struct loss l = {.everywhere = share_text(0)};
        char *before, *after;
        unsigned n_lost, n;

        find_at_others(0, l.everywhere);
        for (unsigned i = 0; i < N_HOSTS; i++) {
                l.asked[i] = share_text(i);
                l.spare[i] = share_text(i);
        }
        assert_int_equal(redis_cluster_await_copied(&server, ill, ill + N_MASTERS), 0);
        for (unsigned i = 0; i < N_HOSTS; i++)
                compute_during(&l, i);
        before = list_pages(ill);
        signal_server(ill, sig);
        live_until_taken_over(&l, ill + N_MASTERS);
        if (sig == SIGSTOP)
                continue_server(ill);
        after = list_pages(ill + N_MASTERS);
        n_lost = count_lost(before, after);
        free(before);
        print_message("%u pages of the old master are lost\n", n_lost);
        for (unsigned i = 0; i < N_HOSTS; i++)
                find_at_others(i, l.spare[i]);
        /* Pages that couldn't be written, or were lost, are on the servers once they were found
         * again. */
        find_until_exported(l.during, l.during_at, l.n_during, n_texts * N_PAGES);
        for (unsigned i = 0; i < l.n_during; i++)
                find_at_others(l.during_at[i], l.during[i]);
        for (unsigned i = 0; i < N_HOSTS; i++)
                find_at_others(i, share_text(i));
        /* Counts pages written since, in the old master's slots. */
        before = list_pages(ill + N_MASTERS);
        n = count_lost(before, after);
        free(before);
        free(after);
        print_message("%u pages of its slots were written since\n", n);
        assert_true(n > 0);
}

/*
 * First the master with the epoch, without which nothing is imported; then another one is stopped.
 */
TEST_BARE(test_masters_are_lost)
{
        unsigned first;
        char *epoch;

        cluster_start(state);
        epoch = read_epoch(&first);
        assert_non_null(epoch);
        free(epoch);
        lose_master(first, SIGKILL);
        lose_master((first + 1) % N_MASTERS, SIGSTOP);
        cluster_end(state);
}
