/* kvlease-events: publishes what kvleased has cached to routers. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

#include "base/fd.h"
#include "client/events/feed.h"
#include "client/events/options.h"
#include "client/events/publisher.h"
#include "client/events/queries.h"
#include "client/http/listen.h"

/* libkvlease looks for events as often. */
#define TURN_MSEC 10

static volatile sig_atomic_t is_stopped;

static void note_stop(int signal)
{
        (void)signal;
        is_stopped = 1;
}

static void catch_signals(void)
{
        const struct sigaction action = {.sa_handler = note_stop};

        sigaction(SIGTERM, &action, NULL);
        sigaction(SIGINT, &action, NULL);
        signal(SIGPIPE, SIG_IGN);
}

static int say_failure(const char *what, int r)
{
        fprintf(stderr, "kvlease-events: %s: %s\n", what, zmq_strerror(-r));
        return 1;
}

static int say_endpoint(const char *endpoint, int r)
{
        fprintf(stderr,
                "kvlease-events: can't open %s: %s; name another endpoint by --endpoint, --connect or --replay, like tcp://127.0.0.1:5557\n",
                endpoint, zmq_strerror(-r));
        return 1;
}

/* Waits for routers. `queries` may be NULL. */
static void wait_for_routers(struct publisher *publisher, struct queries *queries)
{
        int timeout_msec = TURN_MSEC;
        int fd = queries ? queries_wait_fd(queries, &timeout_msec) : -1;

        publisher_wait(publisher, fd, timeout_msec);
}

static int run_events(struct feed *feed, struct publisher *publisher, struct queries *queries)
{
        int r = 0;

        while (r >= 0 && !is_stopped) {
                r = feed_turn(feed);
                if (r == 0)
                        wait_for_routers(publisher, queries);
                if (queries)
                        queries_turn(queries);
                if (r >= 0)
                        r = publisher_turn(publisher);
        }
        return r < 0 ? say_failure("stopped", r) : 0;
}

/* Returns 0, with *ret NULL if no address is given; or the exit code. */
static int start_queries(const struct options *o, const struct feed *feed, struct queries **ret)
{
        char name[LISTEN_NAME_MAX];
        int fd, r;

        *ret = NULL;
        if (!o->query)
                return 0;
        fd = listen_at(o->query, name);
        if (fd == -EINVAL) {
                fprintf(stderr,
                        "kvlease-events: --query %s: neither ADDRESS:PORT nor a path with a /\n",
                        o->query);
                return 2;
        }
        r = fd < 0 ? fd
                   : queries_start(
                             fd, o->query_token.len > 0 ? o->query_token.bytes : NULL, feed, ret);
        if (r < 0) {
                fprintf(stderr,
                        "kvlease-events: can't listen at %s: %s; name another address by --query\n",
                        o->query, strerror(-r));
                return 1;
        }
        printf("kvlease-events: answering queries at %s\n", name);
        return 0;
}

int main(int argc, char **argv)
{
        struct publisher *publisher;
        const char *failed;
        static struct options o; /* owns memory until the end */
        struct queries *queries;
        struct feed *feed;
        int code, r;

        if (fd_open_standard() < 0)
                return 1;
        if (options_parse(argc, argv, &o, &code) != 0)
                return code;
        catch_signals();
        r = publisher_new(&o.publisher, &publisher, &failed);
        if (r < 0)
                return failed ? say_endpoint(failed, r) : say_failure("cannot start", r);
        r = feed_new(&o.feed, publisher, &feed);
        if (r < 0)
                return say_failure("cannot start", r);
        printf("kvlease-events: publishing at %s\n", o.publisher.sockets.endpoint);
        code = start_queries(&o, feed, &queries);
        fflush(stdout);
        if (code == 0)
                code = run_events(feed, publisher, queries);
        queries_stop(queries);
        publisher_free(publisher);
        feed_free(feed);
        return code;
}
