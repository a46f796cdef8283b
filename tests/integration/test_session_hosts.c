/* Conversations that move between hosts: two kvleased with clients of their own, and a Redis server
 * that both know (exchange-hosts.h). test_exchange_sessions.c does this with stores alone. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "tests/integration/exchange-hosts.h"

#define CHAIN       7
#define PAGE_TOKENS 16
#define N_LONG      300 /* pages, more than are imported at a time */
#define N_TURN      20  /* of a turn behind these: long enough to be loaded */

#define SHORT_MSEC 300 /* of an opening that loads nothing */
/* Greatest delay of a request on a busy machine. */
#define LATE_OK_NSEC (2 * NSEC_PER_SEC)

/* *ret_other: a client of the other host, *ret_w: one here. */
static void start(void **state, bool is_kept, struct worker **ret_other, struct worker **ret_w)
{
        hosts_find_server();
        hosts_add_servers(1);
        hosts_start_daemons(
                state, &(struct hosts_options){.prefill = HOSTS_PREFILL, .is_kept = is_kept});
        *ret_other = host_worker(&there);
        *ret_w = host_worker(here);
        await_ready(&there); /* before it knows the epoch it tells others nothing */
        await_ready(here);
}

/* How long the records of conversations are in sum that the server has; 0: it has none. */
static unsigned record_bytes(void)
{
        char *said = redis_cluster_call(&server, 0,
                "--raw eval local\nn=0\nfor\n_,k\nin\nipairs(redis.call('keys','kvl:1:a:*:session'))do\nn=n+redis.call('strlen',k)\nend\nreturn\nn 0");
        unsigned n = said ? (unsigned)strtoul(said, NULL, 10) : 0;

        free(said);
        return n;
}

static double records_told(const struct harness *h)
{
        return figure_of(h, "kvlease_exchange_session_records_total" OF_A);
}

/* Waits until the host has announced sessions so many times, and knows that it has. */
static void await_told(const struct harness *h, double n)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;

        while (records_told(h) < n) {
                assert_true(clock_now_nsec() < until);
                sleep_msec(20);
        }
}

/* Publishes pages first..last as another turn of `chat`, and waits until other hosts can load it: a
 * longer conversation has a longer record. */
static void talk(struct worker *w, unsigned first, unsigned last)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;
        unsigned before = record_bytes();

        worker_tell(w, "session-talk %d %u %u", CHAIN, first, last);
        worker_tell(w, "session-close");
        while (record_bytes() <= before) {
                assert_true(clock_now_nsec() < until);
                sleep_msec(20);
        }
        await_exported(last + 1);
}

/* Opens the session; asserts its state. */
static void open_chat(struct worker *w, unsigned load_msec, const char *is)
{
        char words[64];

        (void)snprintf(words, sizeof(words), "chat load=%u", load_msec);
        assert_string_equal(worker_tell(w, "session-open %s", words) + 1, is); /* behind a space */
}

/* Pins all of its pages; each has the right bytes. */
static void assert_said(struct worker *w, unsigned n_pages)
{
        for (unsigned i = 0, n; i < n_pages; i += n) {
                char answer[4096], *at = answer, *word;

                n = MIN(n_pages - i, 50u);
                (void)snprintf(answer, sizeof(answer), "%s",
                        worker_tell(w, "session-pages %u %u", i, n) + 1);
                for (unsigned k = 0; k < n; k++) {
                        word = strsep(&at, " ");
                        assert_non_null(word);
                        assert_int_equal(
                                worker_ask(w, "verify %s %u", word, 1000 * CHAIN + i + k), 0);
                        (void)strsep(&at, " ");
                        word = strsep(&at, " ");
                        assert_int_equal(atoi(word), (i + k) * PAGE_TOKENS);
                }
                assert_null(at);
                worker_tell(w, "session-release");
        }
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* A conversation begins on the other host, continues here, and then there again. Each host has all
 * of it. */
TEST_BARE(test_conversation)
{
        struct worker *w, *other;

        start(state, false, &other, &w);
        assert_int_equal(worker_ask(w, "session-open chat must load=%d", LONG_MSEC), -ENOENT);
        open_chat(other, LONG_MSEC, "1 0 0 0");
        talk(other, 0, N_LONG - 1);
        worker_tell(w, "session-open chat must load=%d", LONG_MSEC);
        assert_said(w, N_LONG);
        talk(w, N_LONG, N_LONG + N_TURN - 1);
        open_chat(other, LONG_MSEC, "0 320 5120 0");
        assert_said(other, N_LONG + N_TURN);
        assert_true(figure_of(here, "kvlease_exchange_sessions_total" OF_A) == 1);
        assert_true(figure_of(&there, "kvlease_exchange_sessions_total" OF_A) == 1);
        assert_true(figure_of(&there, "kvlease_exchange_session_records_total" OF_A) >= 1);
        worker_stop(w);
        worker_stop(other);
        hosts_end(state);
}

/* Loaded pages are this host's own: they are there without the server, and after kvleased dies. */
TEST_BARE(test_daemon_dies)
{
        struct worker *w, *other;

        harness_needs_kept_memory();
        start(state, true, &other, &w);
        open_chat(other, 0, "1 0 0 0");
        talk(other, 0, N_TURN - 1);
        open_chat(w, LONG_MSEC, "0 20 320 0");
        worker_tell(w, "session-close");
        assert_int_equal(kill(server.servers[0].pid, SIGKILL), 0);
        open_chat(w, LONG_MSEC, "0 20 320 0");
        assert_int_equal(kill((pid_t)ctl_status(here, "pid"), SIGKILL), 0);
        assert_said(w, N_TURN);
        worker_tell(w, "session-close");
        open_chat(w, LONG_MSEC, "0 20 320 0");
        worker_stop(w);
        worker_stop(other);
        hosts_end(state);
}

/* A client of the host publishes a conversation of one page. When others know of it, all earlier
 * announcements are done. */
static void tell_another(struct harness *h, struct worker *w, const char *id, unsigned chain)
{
        double before = records_told(h);

        worker_tell(w, "session-open %s", id);
        worker_tell(w, "session-talk %u 0 0", chain);
        worker_tell(w, "session-close");
        await_told(h, before + 1);
}

/* kvleased is killed here, and another one takes over, which can tell others of sessions. */
static void kill_here(void)
{
        assert_int_equal(kill((pid_t)ctl_status(here, "pid"), SIGKILL), 0);
        assert_int_equal(private_daemon_await(&here->daemon), 0);
        await_ready(here);
}

/* Other hosts may continue an announced session, also after kvleased dies. A client that opens it
 * here and adds nothing doesn't change that. */
TEST_BARE(test_told_before_it_died)
{
        struct worker *w, *other;

        harness_needs_kept_memory();
        start(state, true, &other, &w);
        open_chat(w, 0, "1 0 0 0");
        talk(w, 0, N_TURN - 1);
        await_told(here, 1);
        open_chat(other, LONG_MSEC, "0 20 320 0");
        talk(other, N_TURN, 2 * N_TURN - 1);
        kill_here();
        open_chat(w, 0, "0 20 320 0");
        worker_tell(w, "session-close");
        open_chat(w, LONG_MSEC, "0 40 640 0");
        assert_said(w, 2 * N_TURN);
        worker_stop(w);
        worker_stop(other);
        hosts_end(state);
}

/*
 * A host that has truncated its own session, and removed the record, leaves another host's record.
 */
TEST_BARE(test_truncated_before_it_died)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;
        struct worker *w, *other;
        unsigned told;

        harness_needs_kept_memory();
        start(state, true, &other, &w);
        open_chat(w, 0, "1 0 0 0");
        talk(w, 0, N_TURN - 1);
        open_chat(other, LONG_MSEC, "0 20 320 0");
        worker_tell(w, "session-open chat");
        worker_tell(w, "session-truncate 16 16");
        worker_tell(w, "session-close");
        while (record_bytes() > 0) {
                assert_true(clock_now_nsec() < until);
                sleep_msec(20);
        }
        tell_another(here, w, "second", CHAIN + 1);
        talk(other, N_TURN, 2 * N_TURN - 1);
        kill_here();
        told = record_bytes();
        worker_tell(w, "session-open chat");
        worker_tell(w, "session-close");
        tell_another(here, w, "third", CHAIN + 2);
        assert_true(record_bytes() > told);
        worker_tell(w, "session-open chat");
        worker_tell(w, "session-close drop");
        worker_stop(w);
        worker_stop(other);
        hosts_end(state);
}

/* A server that doesn't answer costs the time that the client gives, and the session is a new one.
 * It is this host's own then, without the server. */
TEST_BARE(test_server_is_stopped)
{
        uint64_t began, took;
        struct worker *w, *other;

        start(state, false, &other, &w);
        open_chat(other, 0, "1 0 0 0");
        talk(other, 0, N_TURN - 1);
        assert_int_equal(kill(server.servers[0].pid, SIGSTOP), 0);
        began = clock_now_nsec();
        open_chat(w, SHORT_MSEC, "1 0 0 0");
        took = clock_now_nsec() - began;
        print_message("opened after %llu ms of %d\n", (unsigned long long)(took / NSEC_PER_MSEC),
                SHORT_MSEC);
        assert_true(took < SHORT_MSEC * NSEC_PER_MSEC + LATE_OK_NSEC);
        worker_tell(w, "session-talk %d 0 %d", CHAIN, N_TURN - 1);
        worker_tell(w, "session-close");
        open_chat(w, 0, "0 20 320 0");
        assert_said(w, N_TURN);
        assert_true(figure_of(here, "kvlease_exchange_imported_pages_total" OF_A) == 0);
        assert_int_equal(kill(server.servers[0].pid, SIGCONT), 0);
        worker_stop(w);
        worker_stop(other);
        hosts_end(state);
}
