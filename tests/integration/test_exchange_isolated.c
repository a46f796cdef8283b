/*
 * Three hosts with a kvleased each, and three with a cluster's servers, a master and another one's
 * replica on each. All of them are network namespaces, with links of their own. A kvleased's host
 * loses its link. It still finds its own pages, and misses those of others in time; the two others
 * still exchange. With its link back it exchanges again. Skipped where namespaces aren't permitted.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "tests/integration/exchange-hosts.h"
#include "tests/integration/host-net.h"

#define N_HOSTS   3
#define N_MASTERS 3 /* on hosts N_HOSTS.. */
#define ISOLATED  0 /* the others are 1 and 2 */

/* Texts. FIRST + i is computed on host i before the isolation, and is on all hosts then. */
enum {
        FIRST = 1,
        ASKED = 10, /* of others, for which the isolated one asks meanwhile, */
        SPARE,      /* and only afterwards */
        DURING,     /* computed meanwhile by others */
        OWN,        /* and by itself */
        BACK,       /* computed afterwards by others */
        OWN_BACK,
};

#define SHORT_MSEC    200 /* of a lookup that finds nothing */
#define ISOLATED_NSEC (3 * NSEC_PER_SEC)

static struct host_net net;
static struct redis_place places[REDIS_MAX];
static struct worker *workers[N_HOSTS]; /* of each host one */
static const char *why_not;             /* the tests can't be run here; NULL: they can */

/* ---- hosts, and links between them ----------------------------------------------------------- */

static int start(void **state)
{
        int r = host_net_init(&net, N_HOSTS + N_MASTERS);

        (void)state;
        if (r == -EPERM)
                why_not = "network namespaces aren't permitted";
        if (r == -ENOENT)
                why_not = "links between network namespaces can't be made";
        /* Server i + N_MASTERS is the replica of server i. */
        for (unsigned i = 0; i < 2 * N_MASTERS && r == 0; i++) {
                unsigned host = N_HOSTS + (i + i / N_MASTERS) % N_MASTERS;

                places[i] = (struct redis_place){net.addresses[host], net.pids[host]};
        }
        return 0;
}

static int stop(void **state)
{
        (void)state;
        host_net_deinit(&net);
        return 0;
}

static void set_link(enum host_net_state state)
{
        assert_int_equal(host_net_set(&net, ISOLATED, state), 0);
}

static void hosts_start(void **state)
{
        if (why_not) {
                print_message("skipped: %s\n", why_not);
                skip();
        }
        set_link(HOST_NET_WELL);
        hosts_find_server();
        server.places = places;
        hosts_add_replicated(N_MASTERS);
        hosts_start_daemons(
                state, &(struct hosts_options){
                               .prefill = HOSTS_PREFILL, .n_hosts = N_HOSTS, .net_pids = net.pids});
        for (unsigned i = 0; i < N_HOSTS; i++)
                workers[i] = host_worker(host_at(i));
        for (unsigned i = 0; i < N_HOSTS; i++)
                await_ready(host_at(i));
}

static void hosts_stop(void **state)
{
        for (unsigned i = 0; i < N_HOSTS; i++)
                worker_stop(workers[i]);
        hosts_end(state);
}

/* n of the three masters are left alone; replicas aren't asked. */
static void assert_left_alone(unsigned host, unsigned n)
{
        const uint64_t until = clock_now_nsec() + PATIENCE_NSEC;

        /* kvlease-exchange tells its figures now and then. */
        while (figure_of(host_at(host), "kvlease_exchange_nodes_left_alone" OF_A) != n)
                assert_true(clock_now_nsec() < until);
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* A host computes the text and finds it once. */
static void compute_text(unsigned host, unsigned text)
{
        compute_chain(workers[host], text);
        worker_tell(workers[host], "hits 1 %u:0-%u", text, N_PAGES - 1);
}

/* The other host finds all of a text that it lacks, as soon as the servers have it. */
static void find_at(unsigned host, unsigned text)
{
        (void)await_whole(workers[host], text);
        assert_int_equal(find_chain(workers[host], text, LONG_MSEC), N_PAGES);
}

/* Each host computes a text, and the two others find it. */
static void share_first_texts(void)
{
        for (unsigned i = 0; i < N_HOSTS; i++) {
                compute_text(i, FIRST + i);
                for (unsigned k = 1; k < N_HOSTS; k++)
                        find_at((i + k) % N_HOSTS, FIRST + i);
        }
        for (unsigned i = 0; i < N_HOSTS; i++) {
                assert_true(figure_of(host_at(i), "kvlease_exchange_imported_pages_total" OF_A) ==
                            (N_HOSTS - 1) * N_PAGES);
                assert_left_alone(i, 0);
        }
}

/* ---- the isolated host ----------------------------------------------------------------------- */

/* For a while each host looks up a text that all have. The isolated one also looks up texts of
 * others only, and those it has computed meanwhile. */
static void live_isolated(void)
{
        uint64_t until = clock_now_nsec() + ISOLATED_NSEC;
        struct lookups lookups;

        compute_text(ISOLATED, OWN);
        lookups_begin(&lookups);
        while (clock_now_nsec() < until) {
                assert_int_equal(look_up(&lookups, workers[ISOLATED], ASKED, SHORT_MSEC), 0);
                assert_int_equal(look_up(&lookups, workers[ISOLATED], OWN, NOW_MSEC), N_PAGES);
                for (unsigned i = 0; i < N_HOSTS; i++)
                        for (unsigned k = 0; k < N_HOSTS; k++)
                                assert_int_equal(look_up(&lookups, workers[i], FIRST + k, NOW_MSEC),
                                        N_PAGES);
        }
        lookups_end(&lookups);
}

/* The two others find each other's texts, and see no ill node. */
static void exchange_without_it(void)
{
        compute_text(1, DURING);
        find_at(2, DURING);
        find_at(1, SPARE);
        for (unsigned i = 1; i < N_HOSTS; i++)
                assert_left_alone(i, 0);
}

static void isolate(void **state, enum host_net_state how)
{
        hosts_start(state);
        share_first_texts();
        compute_text(1, ASKED);
        compute_text(2, SPARE);
        find_at(2, ASKED);
        (void)await_whole(workers[1], SPARE);

        set_link(how);
        live_isolated();
        exchange_without_it();
        assert_left_alone(ISOLATED, N_MASTERS);
        assert_forecast(host_at(ISOLATED), "unreachable", "of 3 nodes of remote x none answers");

        set_link(HOST_NET_WELL);
        compute_text(1, BACK);
        for (unsigned text = ASKED; text <= BACK; text++)
                if (text != OWN)
                        find_at(ISOLATED, text);
        compute_text(ISOLATED, OWN_BACK);
        for (unsigned i = 1; i < N_HOSTS; i++)
                find_at(i, OWN_BACK);
        assert_left_alone(ISOLATED, 0);
        hosts_stop(state);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* The host gets errors for its link. */
TEST_BARE(test_link_down)
{
        isolate(state, HOST_NET_DOWN);
}

/* The host gets no error: its packets are lost on the way. */
TEST_BARE(test_link_cut)
{
        isolate(state, HOST_NET_CUT);
}

/* Pages are invalidated on the host without a link, and on another one. Until the link is back,
 * each keeps the other's pages. */
TEST_BARE(test_invalidated_without_a_link)
{
        char *before;

        hosts_start(state);
        share_first_texts();
        compute_text(1, SPARE);
        (void)await_whole(workers[2], SPARE);
        before = read_epoch(NULL);
        assert_non_null(before);
        set_link(HOST_NET_CUT);
        worker_tell(workers[ISOLATED], "invalidate %u:3", FIRST);
        assert_int_equal(find_chain(workers[ISOLATED], FIRST, SHORT_MSEC), 3);
        compute_text(1, DURING);
        find_at(2, DURING);
        worker_tell(workers[1], "invalidate %u:5", FIRST + 1);
        await_left(workers[2], FIRST + 1, 5);
        assert_int_equal(find_chain(workers[ISOLATED], FIRST + 1, SHORT_MSEC), N_PAGES);
        assert_int_equal(find_chain(workers[2], FIRST, SHORT_MSEC), N_PAGES);
        set_link(HOST_NET_WELL);
        /* A server may have taken a first change of the epoch that it couldn't tell the host of,
         * which makes another one then: the host knows when it is over. */
        await_other_epoch(before);
        await_ready(host_at(ISOLATED));
        free(before);
        for (unsigned i = 0; i < N_HOSTS; i++)
                if (i != 1)
                        assert_int_equal(find_chain(workers[i], SPARE, SHORT_MSEC), 0);
        for (unsigned i = 0; i < N_HOSTS; i++) {
                await_left(workers[i], FIRST, 3);
                await_left(workers[i], FIRST + 1, 5);
        }
        /* Texts computed from now on are shared, except for those of the same second. */
        sleep_msec(2100);
        compute_text(ISOLATED, OWN_BACK);
        find_at(1, OWN_BACK);
        compute_text(2, BACK);
        find_at(ISOLATED, BACK);
        hosts_stop(state);
}

int main(void)
{
        return test_run_all(start, stop);
}
