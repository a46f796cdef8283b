/*
 * Two kvleased, and between them a cluster on three hosts, which are network namespaces with a
 * master each. A link goes down, a host's answers are lost, a link is slow. Cached pages are found
 * all the time. Pages of other hosts come in time or not at all, and all of them once the link is
 * back. Skipped where namespaces aren't permitted.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "tests/integration/exchange-hosts.h"
#include "tests/integration/host-net.h"

#define N_HOSTS  3
#define N_PLANES 16 /* a page is 64 KiB, so a third of a text takes 0.4 s on a slow link */
#define N_TEXTS  4
#define CHAIN    7 /* and N_TEXTS - 1 behind it */
#define SPARE    20
#define OWN      30
#define DURING   31

#define SHORT_MSEC 200 /* of a lookup while a host is ill */
#define ILL_NSEC   (3 * NSEC_PER_SEC)

static struct host_net net;
static struct redis_place places[REDIS_MAX];
static const char *why_not; /* the tests can't be run here; NULL: they can */

/* ---- hosts, and links between them ----------------------------------------------------------- */

static int start(void **state)
{
        int r = host_net_init(&net, N_HOSTS);

        (void)state;
        if (r == -EPERM)
                why_not = "network namespaces aren't permitted";
        if (r == -ENOENT)
                why_not = "links between network namespaces can't be made";
        for (unsigned i = 0; i < N_HOSTS && r == 0; i++)
                places[i] = (struct redis_place){net.addresses[i], net.pids[i]};
        return 0;
}

static int stop(void **state)
{
        (void)state;
        host_net_deinit(&net);
        return 0;
}

static void set_link(unsigned host, enum host_net_state state)
{
        assert_int_equal(host_net_set(&net, host, state), 0);
}

static void hosts_start(void **state)
{
        if (why_not) {
                print_message("skipped: %s\n", why_not);
                skip();
        }
        for (unsigned i = 0; i < N_HOSTS; i++)
                set_link(i, HOST_NET_WELL);
        hosts_find_server();
        server.places = places;
        hosts_add_servers(N_HOSTS);
        hosts_start_daemons(
                state, &(struct hosts_options){.prefill = HOSTS_PREFILL, .n_planes = N_PLANES});
}

/* The host with the epoch, or one behind it. Servers have their hosts' numbers. */
static unsigned epoch_host(unsigned behind)
{
        unsigned i = 0;
        char *epoch = read_epoch(&i);

        assert_non_null(epoch);
        free(epoch);
        return (i + behind) % N_HOSTS;
}

/* ---- an ill host ----------------------------------------------------------------------------- */

/* Results while a host is ill. */
struct illness {
        struct lookups lookups;
        unsigned found[N_TEXTS]; /* pages of each text, at most */
};

static unsigned sum_found(const struct illness *seen)
{
        unsigned n = 0;

        for (unsigned i = 0; i < N_TEXTS; i++)
                n += seen->found[i];
        return n;
}

/* For a while texts of others are looked up here, and cached texts, which must be found, on either
 * host. A text is computed as well. */
static void live_with(struct worker *w, struct worker *other, struct illness *ret)
{
        uint64_t until = clock_now_nsec() + ILL_NSEC;

        *ret = (struct illness){0};
        lookups_begin(&ret->lookups);
        for (unsigned i = 0; clock_now_nsec() < until; i = (i + 1) % N_TEXTS) {
                unsigned n = look_up(&ret->lookups, w, CHAIN + i, SHORT_MSEC);

                ret->found[i] = MAX(ret->found[i], n);
                assert_int_equal(look_up(&ret->lookups, w, OWN, NOW_MSEC), N_PAGES);
                assert_int_equal(look_up(&ret->lookups, other, CHAIN + i, NOW_MSEC), N_PAGES);
        }
        compute_chain(w, DURING);
        assert_int_equal(look_up(&ret->lookups, w, DURING, NOW_MSEC), N_PAGES);
        print_message("%u pages of other hosts; ", sum_found(ret));
        lookups_end(&ret->lookups);
}

/* A load has at least so many pages: they have 256 tokens. */
#define LEAST_PAGES 16

/* The link is healthy again, and all of the text can be had, here or from others. A part loaded
 * earlier may leave too little to be loaded behind it; otherwise all of it is found. */
static void await_text(struct worker *w, unsigned chain)
{
        struct told told = await_whole(w, chain);

        if (N_PAGES - told.n_here < LEAST_PAGES)
                assert_int_equal(find_chain(w, chain, NOW_MSEC), told.n_here);
        else
                await_chain(w, chain);
}

/* Texts that weren't found are found, as is a spare one that wasn't asked for yet. */
static void await_texts(struct worker *w)
{
        uint64_t began = clock_now_nsec();

        await_text(w, SPARE);
        assert_int_equal(find_chain(w, SPARE, NOW_MSEC), N_PAGES);
        for (unsigned i = 0; i < N_TEXTS; i++)
                await_text(w, CHAIN + i);
        print_message("all texts were there after another %u ms\n",
                (unsigned)((clock_now_nsec() - began) / NSEC_PER_MSEC));
}

/* Nodes that the host leaves alone for now. */
static double count_left_alone(const struct harness *h)
{
        return figure_of(h, "kvlease_exchange_nodes_left_alone" OF_A);
}

/* A host is ill, by its number behind the one with the epoch. */
static void fall_ill(void **state, unsigned behind, enum host_net_state ill, struct illness *seen)
{
        struct worker *w, *other;
        uint32_t pages[N_PAGES];
        unsigned host;

        hosts_start(state);
        for (unsigned i = 0; i < N_TEXTS; i++)
                share_chain(CHAIN + i, (i + 1) * N_PAGES);
        share_chain(SPARE, (N_TEXTS + 1) * N_PAGES);
        w = host_worker(here);
        other = host_worker(&there);
        worker_publish_chain(w, OWN, N_PAGES, pages);
        host = epoch_host(behind);
        set_link(host, ill);
        live_with(w, other, seen);
        assert_true(sum_found(seen) < N_TEXTS * N_PAGES);
        if (ill != HOST_NET_SLOW)
                assert_true(count_left_alone(here) == 1);
        assert_forecast(here, "asks", "which answers");
        set_link(host, HOST_NET_WELL);
        await_texts(w);
        worker_stop(other);
        worker_stop(w);
        hosts_end(state);
}

/* ---- tests ----------------------------------------------------------------------------------- */

TEST_BARE(test_found_on_the_other_host)
{
        struct worker *w;

        hosts_start(state);
        share_chain(CHAIN, N_PAGES);
        w = host_worker(here);
        assert_int_equal(find_chain(w, CHAIN, LONG_MSEC), N_PAGES);
        assert_true(figure_of(here, "kvlease_exchange_imported_pages_total" OF_A) == N_PAGES);
        worker_stop(w);
        hosts_end(state);
}

/* Without the epoch no page of others is found. */
TEST_BARE(test_link_down)
{
        struct illness seen;

        fall_ill(state, 0, HOST_NET_DOWN, &seen);
        assert_int_equal(sum_found(&seen), 0);
}

/* The host receives all, and its answers are lost. It has some of the pages; the epoch is
 * elsewhere. */
TEST_BARE(test_mute)
{
        struct illness seen;

        fall_ill(state, 1, HOST_NET_MUTE, &seen);
}

/* Pages take longer than a lookup may wait. */
TEST_BARE(test_slow_link)
{
        struct illness seen;

        fall_ill(state, 2, HOST_NET_SLOW, &seen);
}

/* A page is invalidated while the host with the epoch can't be reached. Nothing is exchanged until
 * the servers know. After that the old pages are found by no host. */
TEST_BARE(test_invalidated_without_a_link)
{
        struct worker *w, *other;
        unsigned host;
        char *before;

        hosts_start(state);
        share_chain(CHAIN, N_PAGES);
        host = epoch_host(0);
        before = read_epoch(NULL);
        assert_non_null(before);
        w = host_worker(here);
        other = host_worker(&there);
        set_link(host, HOST_NET_MUTE);
        worker_tell(other, "invalidate %u:3", CHAIN);
        assert_forecast(&there, "epoch", "was invalidated");
        assert_int_equal(find_chain(other, CHAIN, SHORT_MSEC), 3);
        assert_int_equal(find_chain(w, CHAIN, SHORT_MSEC), 0);
        set_link(host, HOST_NET_WELL);
        await_other_epoch(before);
        free(before);
        assert_int_equal(find_chain(w, CHAIN, SHORT_MSEC), 0);
        /* Texts computed from now on are shared, except for those of the same second. */
        sleep_msec(2100);
        share_chain(SPARE, 2 * N_PAGES);
        await_chain(w, SPARE);
        assert_int_equal(find_chain(w, CHAIN, SHORT_MSEC), 0);
        worker_stop(other);
        worker_stop(w);
        hosts_end(state);
}

int main(void)
{
        return test_run_all(start, stop);
}
