/* kvlease-events: publishes what kvleased has cached to routers. */
#include <signal.h>
#include <stdio.h>
#include <zmq.h>

#include "base/fd.h"
#include "client/events/feed.h"
#include "client/events/options.h"
#include "client/events/publisher.h"

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
                "kvlease-events: can't open %s: %s; name another endpoint by --endpoint, "
                "--connect or --replay, like tcp://127.0.0.1:5557\n",
                endpoint, zmq_strerror(-r));
        return 1;
}

static int run_events(struct feed *feed, struct publisher *publisher)
{
        int r = 0;

        while (r >= 0 && !is_stopped) {
                r = feed_turn(feed);
                if (r == 0)
                        publisher_wait(publisher, TURN_MSEC);
                if (r >= 0)
                        r = publisher_turn(publisher);
        }
        return r < 0 ? say_failure("stopped", r) : 0;
}

int main(int argc, char **argv)
{
        struct publisher *publisher;
        const char *failed;
        static struct options o; /* owns memory until the end */
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
        fflush(stdout);
        code = run_events(feed, publisher);
        publisher_free(publisher);
        feed_free(feed);
        return code;
}
