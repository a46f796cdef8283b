/* kvlease-exporter: exports kvleased's monitor socket to Prometheus. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "client/http/listen.h"
#include "client/exporter/options.h"
#include "client/exporter/scrape.h"
#include "client/exporter/serve.h"

static int say_failure(const char *what, int r)
{
        fprintf(stderr, "kvlease-exporter: %s: %s\n", what, strerror(-r));
        return 1;
}

/* Called before there are threads: they inherit it. */
static void block_signals(sigset_t *ret_stop)
{
        sigemptyset(ret_stop);
        sigaddset(ret_stop, SIGTERM);
        sigaddset(ret_stop, SIGINT);
        pthread_sigmask(SIG_BLOCK, ret_stop, NULL);
        signal(SIGPIPE, SIG_IGN);
}

static int run_exporter(const struct options *o)
{
        struct scraper_options scraping = {o->socket, o->timeout_nsec, o->max_rows};
        char name[LISTEN_NAME_MAX];
        struct scraper *scraper;
        struct server *server;
        sigset_t stop;
        int got, r, fd = listen_at(o->listen, name);

        if (fd == -EINVAL) {
                fprintf(stderr,
                        "kvlease-exporter: --listen %s: neither ADDRESS:PORT nor a path with a /\n",
                        o->listen);
                return 2;
        }
        if (fd < 0)
                return say_failure(o->listen, fd);
        block_signals(&stop);
        r = scraper_new(&scraping, &scraper);
        if (r < 0) {
                fd_close(fd);
                return say_failure("cannot start", r);
        }
        r = serve_start(fd, scraper, strchr(o->listen, '/') ? NULL : &o->hosts, &server);
        if (r == 0) {
                printf("kvlease-exporter: listening at %s\n", name);
                fflush(stdout);
                sigwait(&stop, &got);
                serve_stop(server);
        }
        scraper_free(scraper);
        return r < 0 ? say_failure("cannot start", r) : 0;
}

int main(int argc, char **argv)
{
        struct options o;
        int code;

        if (fd_open_standard() < 0)
                return 1;
        if (options_parse(argc, argv, &o, &code) != 0)
                return code;
        return run_exporter(&o);
}
