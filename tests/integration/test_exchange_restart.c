/*
 * After a restart kvleased knows which pages may go to other hosts, and which invalidations it
 * hasn't announced yet. Two kvleased, one of which is killed, share a Redis server
 * (exchange-hosts.h). Sessions are in test_session_hosts.c.
 */
#include <signal.h>
#include <stdlib.h>

#include "tests/integration/exchange-hosts.h"

#define CHAIN 5
#define OTHER 6

#define SHORT_MSEC 400

static struct worker *w, *other; /* clients here, and of the other host */

static void start(void **state)
{
        harness_needs_kept_memory();
        hosts_find_server();
        hosts_add_servers(1);
        hosts_start_daemons(
                state, &(struct hosts_options){.prefill = HOSTS_PREFILL, .is_kept = true});
        other = host_worker(&there);
        w = host_worker(here);
        await_epoch();
        await_ready(&there);
        await_ready(here);
}

static void end(void **state)
{
        worker_stop(w);
        worker_stop(other);
        hosts_end(state);
}

/* Kills kvleased there; its keeper doesn't start another one yet. */
static void kill_there(void)
{
        pid_t pid = (pid_t)ctl_status(&there, "pid");

        assert_int_equal(kill(there.daemon.pid, SIGSTOP), 0);
        assert_int_equal(kill(pid, SIGKILL), 0);
}

/* Starts the next daemon, which recovers and knows its epoch. */
static void start_there(void)
{
        assert_int_equal(kill(there.daemon.pid, SIGCONT), 0);
        assert_int_equal(private_daemon_await(&there.daemon), 0);
        await_ready(&there);
}

/* Waits, so that pages published before are older than any epoch learnt from now on. */
static void let_a_second_go(void)
{
        sleep_msec(1100);
}

static void compute_there(unsigned chain)
{
        uint32_t pages[N_PAGES];

        worker_publish_chain(other, chain, N_PAGES, pages);
        for (unsigned i = 0; i < N_PAGES; i++)
                worker_tell(other, "release %u", pages[i]);
}

/* Finds the text on the other host, so that it is exported. */
static void find_there(unsigned chain)
{
        worker_tell(other, "hits 1 %u:0-%u", chain, N_PAGES - 1);
        hosts_look_at_rings();
}

/* A client in shared memory reports its hits to the next kvleased only after its first call. */
static void join_there(void)
{
        compute_there(OTHER);
}

/* Finds the text until the server has so many pages. */
static void find_until_exported(unsigned chain, unsigned n)
{
        uint64_t until = clock_now_nsec() + 60 * NSEC_PER_SEC;

        while (count_exported() < n) {
                assert_true(clock_now_nsec() < until);
                find_there(chain);
                sleep_msec(20);
        }
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Nothing was invalidated meanwhile: the epoch is the pages' own. */
TEST_BARE(test_taken_over_is_shared)
{
        start(state);
        compute_there(CHAIN);
        let_a_second_go();
        kill_there();
        start_there();
        join_there();
        find_until_exported(CHAIN, N_PAGES);
        assert_int_equal(find_chain(w, CHAIN, LONG_MSEC), N_PAGES);
        end(state);
}

/* Pages were invalidated meanwhile: recovered pages are dropped, as if this host had never died.
 * Recovered pages aren't shared; pages computed since are. */
TEST_BARE(test_invalidated_meanwhile)
{
        char *before;

        start(state);
        before = read_epoch(NULL);
        compute_there(CHAIN);
        let_a_second_go();
        kill_there();
        worker_tell(w, "invalidate %u:3", CHAIN);
        await_other_epoch(before);
        start_there();
        let_a_second_go();
        compute_there(OTHER);
        await_left(other, CHAIN, 3);
        find_until_exported(OTHER, N_PAGES);
        find_there(CHAIN);
        let_a_second_go();
        find_there(CHAIN);
        assert_int_equal(find_chain(w, OTHER, LONG_MSEC), N_PAGES);
        assert_int_equal(find_chain(w, CHAIN, SHORT_MSEC), 0);
        assert_int_equal(count_exported(), N_PAGES);
        free(before);
        end(state);
}

/* Lets the server accept writes, or not. */
static void let_server_write(bool may)
{
        free(redis_cluster_call(&server, 0, "config set maxmemory %d", may ? 0 : 1));
}

/* An invalidation couldn't be announced to the server before the daemon died. The next daemon
 * announces it. */
TEST_BARE(test_invalidated_before_it_died)
{
        char *before;

        start(state);
        before = read_epoch(NULL);
        compute_there(CHAIN);
        find_until_exported(CHAIN, N_PAGES);
        let_server_write(false);
        worker_tell(other, "invalidate %u:3", CHAIN);
        kill_there();
        let_server_write(true);
        start_there();
        await_other_epoch(before);
        assert_int_equal(find_chain(w, CHAIN, SHORT_MSEC), 0);
        free(before);
        end(state);
}
