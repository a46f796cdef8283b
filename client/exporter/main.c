/* kvlease-exporter: exports kvleased's monitor socket to Prometheus. */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"
#include "base/words.h"
#include "client/exporter/host.h"
#include "client/exporter/scrape.h"
#include "client/exporter/serve.h"
#include "client/http/listen.h"
#include "kvlease-version.h"

/* ---- the command line ------------------------------------------------------------------------ */

/* The command line of kvlease-exporter. */
struct options {
        const char *listen, *socket; /* borrowed from argv, the environment or static */
        uint64_t timeout_nsec;
        size_t max_rows;
        struct host_names hosts;
};

/* A port in the range of Prometheus' exporters (9100 to 9999): 97, and KV on a telephone's keys.
 * Not registered there. */
#define DEFAULT_LISTEN "127.0.0.1:9758"
#define DEFAULT_SOCKET "/run/kvlease/monitor.sock"

/* Below Prometheus' default time-out of 10 s. */
#define DEFAULT_TIMEOUT_SEC 5
#define TIMEOUT_MAX_SEC     600 /* not tuned */

#define DEFAULT_ROWS 200 /* not tuned: some 12,000 series if every list has as many */
#define ROWS_MAX     100000

static const char help[] =
        "Usage: kvlease-exporter [OPTION...]\n"
        "\n"
        "Serves the figures of kvleased to Prometheus.\n"
        "\n"
        "  -l, --listen ADDRESS:PORT  listen here; by default " DEFAULT_LISTEN ". [::1]:PORT\n"
        "                             for IPv6, :PORT for all addresses, or the path of\n"
        "                             a Unix socket\n"
        "  -s, --socket PATH          read from this monitor or admin socket of kvleased;\n"
        "                             by default $KVLEASE_MONITOR_SOCKET, else\n"
        "                             " DEFAULT_SOCKET "\n"
        "  -t, --timeout TIME         give kvleased this long for all answers; by default\n"
        "                             5s\n"
        "      --max-rows N           name at most N tenants, regions, namespaces, sets\n"
        "                             and pairs of tenants each, and sum the rest as\n"
        "                             \"(others)\"; by default 200\n"
        "      --allow-host NAME      also accept requests for this host name; may be\n"
        "                             repeated, and '*' accepts all. Addresses,\n"
        "                             localhost and this machine's name are accepted,\n"
        "                             at a Unix socket all names\n"
        "  -h, --help                 show this help\n"
        "  -V, --version              show the version\n"
        "\n"
        "Pages:\n"
        "  /metrics                   Prometheus text, or OpenMetrics on request\n"
        "  /                          a live page for people\n"
        "  /-/healthy                 whether the exporter itself answers\n"
        "\n"
        "There is no access control: each reader sees names and figures of all tenants.\n"
        "\n"
        "Exit codes:\n"
        "  0  stopped\n"
        "  1  can't listen, or out of memory\n"
        "  2  wrong command line\n";

static const struct option words[] = {
        {"listen", required_argument, NULL, 'l'},
        {"socket", required_argument, NULL, 's'},
        {"timeout", required_argument, NULL, 't'},
        {"max-rows", required_argument, NULL, 'r'},
        {"allow-host", required_argument, NULL, 'a'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {0},
};

static int refuse_option(const char *sentence)
{
        fprintf(stderr, "kvlease-exporter: %s\n", sentence);
        return -1;
}

static int refuse_word(const char *word, const char *why)
{
        fprintf(stderr, "kvlease-exporter: %s: %s; see kvlease-exporter --help\n", word, why);
        return -1;
}

static int take_timeout(const char *word, struct options *o)
{
        uint64_t nsec;

        if (parse_duration(word, &nsec) < 0 || nsec < NSEC_PER_MSEC ||
                nsec > TIMEOUT_MAX_SEC * NSEC_PER_SEC)
                return refuse_word(word, "--timeout wants a time from 1ms to 10min");
        o->timeout_nsec = nsec;
        return 0;
}

static int take_rows(const char *word, struct options *o)
{
        uint64_t n;

        if (parse_u64(word, &n) < 0 || n < 1 || n > ROWS_MAX)
                return refuse_word(word, "--max-rows wants a number from 1 to 100000");
        o->max_rows = n;
        return 0;
}

static int take_host(const char *word, struct options *o)
{
        if (!word[0] || strpbrk(word, ":/"))
                return refuse_word(word, "--allow-host wants a host's name without a port");
        if (o->hosts.n == HOST_NAMES_MAX)
                return refuse_word(word, "--allow-host may be given 16 times at most");
        o->hosts.names[o->hosts.n++] = word;
        return 0;
}

/* Takes an option; `word` is the last of it. Returns 0: go on; 1: done; -1: refused. */
static int take_option(int c, const char *word, struct options *o)
{
        switch (c) {
        case 'l':
                o->listen = optarg;
                return 0;
        case 's':
                o->socket = optarg;
                return optarg[0] ? 0 : refuse_word("--socket", "wants a path");
        case 't':
                return take_timeout(optarg, o);
        case 'r':
                return take_rows(optarg, o);
        case 'a':
                return take_host(optarg, o);
        case 'h':
                fputs(help, stdout);
                return 1;
        case 'V':
                puts("kvlease-exporter " KVLEASE_VERSION);
                return 1;
        default:
                return refuse_word(word, "needs a value");
        }
}

/* Returns 0: go on with *ret. 1: exit with *ret_exit_code, after --help, --version, or a refused
 * command line (with a sentence on stderr). */
static int options_parse(int argc, char **argv, struct options *ret, int *ret_exit_code)
{
        const char *env = getenv("KVLEASE_MONITOR_SOCKET");
        struct options o = {.listen = DEFAULT_LISTEN,
                .socket = env && env[0] ? env : DEFAULT_SOCKET,
                .timeout_nsec = DEFAULT_TIMEOUT_SEC * NSEC_PER_SEC,
                .max_rows = DEFAULT_ROWS};
        char fault[WORDS_FAULT_MAX];
        int c, r = 0;

        opterr = 0;
        while (r == 0 && (c = getopt_long(argc, argv, ":l:s:t:hV", words, NULL)) != -1) {
                const char *word = argv[optind - 1];

                r = c == '?' ? refuse_option(option_fault("kvlease-exporter", word, words, fault))
                             : take_option(c, word, &o);
        }
        if (r == 0 && optind < argc)
                r = refuse_word(argv[optind], "there are no arguments, only options");
        if (r == 0) {
                *ret = o;
                return 0;
        }
        *ret_exit_code = r < 0 ? 2 : 0;
        return 1;
}

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
