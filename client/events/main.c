/* kvlease-events: publishes what kvleased has cached to routers. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zmq.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"
#include "base/words.h"
#include "client/events/feed.h"
#include "client/events/publisher.h"
#include "client/events/queries.h"
#include "client/events/token.h"
#include "client/http/listen.h"
#include "kvlease-version.h"

/* ---- the command line ------------------------------------------------------------------------ */

/* The command line of kvlease-events. */
struct options {
        struct feed_options feed;
        struct publisher_options publisher;
        const char *query;         /* as for listen_at(); NULL: no queries */
        struct secret query_token; /* empty: none */
};

#define DEFAULT_SOCKET "/run/kvlease/monitor.sock"
/* vLLM's default port for events, and the next one. */
#define DEFAULT_ENDPOINT "tcp://127.0.0.1:5557"
#define DEFAULT_REPLAY   "tcp://127.0.0.1:5558"

#define DEFAULT_BLOCK_TOKENS 16 /* of vLLM, Dynamo and llm-d */
#define BLOCK_TOKENS_MAX     1024
#define LAYER_GROUP_MAX      1023

/* A router that joins learns by a batch that it missed some. */
#define DEFAULT_HEARTBEAT_SEC 1
#define DEFAULT_REFRESH_SEC   600 /* not tuned */

static const char help[] =
        "Usage: kvlease-events [OPTION...]\n"
        "\n"
        "Publishes the cached pages of one model to routers, as vLLM's KV events.\n"
        "\n"
        "Router:\n"
        "  -p, --profile NAME         dynamo: answer on a replay socket; the default.\n"
        "                             llm-d: topic kv@POD@MODEL, and the whole state\n"
        "                             after each subscription and every --refresh\n"
        "  -m, --model NAME           the model's name at the router; llm-d needs it\n"
        "      --pod NAME             a pod whose engine uses this host's pages (llm-d);\n"
        "                             up to 64 times; by default the host's name\n"
        "  -b, --block-size N         tokens of a block at the router, which must divide\n"
        "                             the tokens of a page; by default 16\n"
        "  -e, --endpoint ENDPOINT    publish here; by default " DEFAULT_ENDPOINT "\n"
        "  -c, --connect ENDPOINT     connect to a router that listens, instead of\n"
        "                             --endpoint\n"
        "  -r, --replay ENDPOINT      answer routers here (dynamo); by default\n"
        "                             " DEFAULT_REPLAY "\n"
        "      --heartbeat TIME       publish an empty batch after so long without\n"
        "                             events; by default 1s\n"
        "      --refresh TIME         publish the whole state so often (llm-d); by\n"
        "                             default 10min\n"
        "\n"
        "Queries of routers, by HTTP: POST /v1/prefix:\n"
        "      --query ADDRESS        answer at ADDRESS:PORT (127.0.0.1:5559), or at the\n"
        "                             path of a Unix socket, with a /; by default none\n"
        "      --query-token-file PATH  the token that each query sends, which others\n"
        "                             can't read; needed unless it is a Unix socket\n"
        "\n"
        "Pages:\n"
        "  -s, --socket PATH          follow kvleased on this monitor socket, or the\n"
        "                             socket of a tenant; by default\n"
        "                             $KVLEASE_MONITOR_SOCKET, else\n"
        "                             " DEFAULT_SOCKET "\n"
        "  -t, --tenant NAME          only namespaces of this tenant\n"
        "  -n, --namespace PATTERN    the namespace, by its name or its model; * and ?\n"
        "                             match any characters; by default '*'. If several\n"
        "                             match, the newest is published\n"
        "      --layer-group N        the namespace of this group of layers, and\n"
        "                             group_idx of the events, with the kind\n"
        "                             full_attention; by default 0, and neither\n"
        "\n"
        "  -h, --help                 show this help\n"
        "  -V, --version              show the version\n"
        "\n"
        "The events have the token ids of prompts, and there is no access control: let\n"
        "only routers reach the endpoints.\n"
        "\n"
        "Exit codes:\n"
        "  0  stopped\n"
        "  1  can't open an endpoint, or out of memory\n"
        "  2  wrong command line\n";

enum { WORD_POD = 256, WORD_HEARTBEAT, WORD_REFRESH, WORD_QUERY, WORD_TOKEN, WORD_LAYER_GROUP };

static const struct option words[] = {
        {"profile", required_argument, NULL, 'p'},
        {"model", required_argument, NULL, 'm'},
        {"pod", required_argument, NULL, WORD_POD},
        {"block-size", required_argument, NULL, 'b'},
        {"endpoint", required_argument, NULL, 'e'},
        {"connect", required_argument, NULL, 'c'},
        {"replay", required_argument, NULL, 'r'},
        {"heartbeat", required_argument, NULL, WORD_HEARTBEAT},
        {"refresh", required_argument, NULL, WORD_REFRESH},
        {"query", required_argument, NULL, WORD_QUERY},
        {"query-token-file", required_argument, NULL, WORD_TOKEN},
        {"socket", required_argument, NULL, 's'},
        {"tenant", required_argument, NULL, 't'},
        {"namespace", required_argument, NULL, 'n'},
        {"layer-group", required_argument, NULL, WORD_LAYER_GROUP},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {0},
};

/* Options from the command line. Their meaning depends on the profile, which may come last. */
struct given {
        struct options o;
        const char *model, *replay, *token_file;
        const char *pods[TOPICS_MAX];
        unsigned n_pods;
        bool is_llm_d;
        uint64_t refresh_nsec; /* 0: not given */
};

static int refuse(const char *word, const char *why)
{
        fprintf(stderr, "kvlease-events: %s: %s; see kvlease-events --help\n", word, why);
        return -1;
}

/* c: '?' or ':' of getopt_long(), `word` the last that it took. */
static int refuse_option(int c, const char *word)
{
        char fault[WORDS_FAULT_MAX];

        if (c == ':')
                return refuse(word, "needs a value");
        fprintf(stderr, "kvlease-events: %s\n", option_fault("kvlease-events", word, words, fault));
        return -1;
}

static int take_text(const char *word, const char *why, const char **ret)
{
        if (!word[0])
                return refuse("an empty text", why);
        *ret = word;
        return 0;
}

static int take_time(const char *word, const char *why, uint64_t *ret_nsec)
{
        uint64_t nsec;

        if (parse_duration(word, &nsec) < 0 || nsec < 10 * NSEC_PER_MSEC ||
                nsec > 86400 * NSEC_PER_SEC)
                return refuse(word, why);
        *ret_nsec = nsec;
        return 0;
}

static int take_number(const char *word, const char *why, uint64_t min, uint64_t max, uint32_t *ret)
{
        uint64_t n;

        if (parse_u64(word, &n) < 0 || n < min || n > max)
                return refuse(word, why);
        *ret = (uint32_t)n;
        return 0;
}

static int take_profile(struct given *g, const char *word)
{
        g->is_llm_d = strcmp(word, "llm-d") == 0;
        return g->is_llm_d || strcmp(word, "dynamo") == 0
                       ? 0
                       : refuse(word, "--profile wants dynamo or llm-d");
}

static int take_pod(struct given *g, const char *word)
{
        if (!word[0] || strchr(word, '@'))
                return refuse(word, "--pod wants a pod's name, which has no @");
        if (g->n_pods == TOPICS_MAX)
                return refuse(word, "--pod may be given 64 times at most");
        g->pods[g->n_pods++] = word;
        return 0;
}

static int take_model(struct given *g, const char *word)
{
        if (!word[0] || strchr(word, '@'))
                return refuse(word, "--model wants a model's name, which has no @");
        g->model = word;
        return 0;
}

static int take_layer_group(struct given *g)
{
        int r = take_number(optarg, "--layer-group wants a number from 0 to 1023", 0,
                LAYER_GROUP_MAX, &g->o.feed.layer_group);

        g->o.publisher.group = (int)g->o.feed.layer_group;
        return r;
}

/* libzmq takes another port than one beyond 65535. "*": any. */
static int take_endpoint(const char *word, const char **ret)
{
        const char *colon = strrchr(word, ':');
        uint64_t port;

        if (strncmp(word, "tcp://", strlen("tcp://")) == 0 && strcmp(colon, ":*") != 0 &&
                (parse_u64(colon + 1, &port) < 0 || port > UINT16_MAX))
                return refuse(word, "its port isn't a number from 0 to 65535");
        return take_text(word, "an endpoint is like tcp://127.0.0.1:5557", ret);
}

/* Returns 0: it is of the router; 1: it isn't; -1: refused. */
static int take_router_option(int c, struct given *g)
{
        switch (c) {
        case 'p':
                return take_profile(g, optarg);
        case 'm':
                return take_model(g, optarg);
        case WORD_POD:
                return take_pod(g, optarg);
        case 'b':
                return take_number(optarg, "--block-size wants a number from 1 to 1024", 1,
                        BLOCK_TOKENS_MAX, &g->o.feed.block_tokens);
        case 'e':
        case 'c':
                g->o.publisher.sockets.connects = c == 'c';
                return take_endpoint(optarg, &g->o.publisher.sockets.endpoint);
        case 'r':
                return take_endpoint(optarg, &g->replay);
        case WORD_HEARTBEAT:
                return take_time(optarg, "--heartbeat wants a time from 10ms to 1d",
                        &g->o.publisher.heartbeat_nsec);
        case WORD_REFRESH:
                return take_time(
                        optarg, "--refresh wants a time from 10ms to 1d", &g->refresh_nsec);
        default:
                return 1;
        }
}

/* Returns as take_router_option(). */
static int take_query_option(int c, struct given *g)
{
        switch (c) {
        case WORD_QUERY:
                return take_text(optarg, "--query wants an address and port, or a path with a /",
                        &g->o.query);
        case WORD_TOKEN:
                return take_text(optarg, "--query-token-file wants a path", &g->token_file);
        default:
                return 1;
        }
}

/* Takes an option; `word` is the last of it. Returns 0: go on; 1: done; -1: refused. */
static int take_option(int c, const char *word, struct given *g)
{
        int r = take_router_option(c, g);

        if (r > 0)
                r = take_query_option(c, g);
        if (r <= 0)
                return r;
        switch (c) {
        case 's':
                return take_text(optarg, "--socket wants a path", &g->o.feed.socket);
        case 't':
                return take_text(optarg, "--tenant wants a name", &g->o.feed.tenant);
        case 'n':
                return take_text(optarg, "--namespace wants a pattern", &g->o.feed.pattern);
        case WORD_LAYER_GROUP:
                return take_layer_group(g);
        case 'h':
                fputs(help, stdout);
                return 1;
        case 'V':
                puts("kvlease-events " KVLEASE_VERSION);
                return 1;
        default:
                return refuse_option(c, word);
        }
}

/* The topics are for the life of the process. */
static int name_topics(struct given *g)
{
        struct publisher_options *p = &g->o.publisher;
        static char host[HOST_NAME_MAX + 1];

        if (g->n_pods == 0 && gethostname(host, sizeof(host) - 1) == 0)
                g->pods[g->n_pods++] = host;
        for (unsigned i = 0; i < g->n_pods; i++) {
                char *topic;

                if (asprintf(&topic, "kv@%s@%s", g->pods[i], g->model) < 0)
                        return refuse("--pod", "out of memory");
                p->topics[p->n_topics++] = topic;
        }
        return 0;
}

static int finish_llm_d(struct given *g)
{
        if (!g->model)
                return refuse("--profile llm-d", "it needs --model");
        if (g->replay)
                return refuse("--replay", "llm-d refuses such answers: leave it out");
        g->o.publisher.refresh_nsec =
                g->refresh_nsec ? g->refresh_nsec : DEFAULT_REFRESH_SEC * NSEC_PER_SEC;
        return name_topics(g);
}

static int finish_dynamo(struct given *g)
{
        if (g->n_pods > 0)
                return refuse("--pod", "it is for --profile llm-d");
        if (g->refresh_nsec > 0)
                return refuse("--refresh", "it is for --profile llm-d");
        g->o.publisher.sockets.replay = g->replay ? g->replay : DEFAULT_REPLAY;
        g->o.publisher.topics[g->o.publisher.n_topics++] = "";
        return 0;
}

static int finish_query(struct given *g)
{
        char why[SECRET_WHY_BYTES];

        if (!g->token_file)
                return !g->o.query || strchr(g->o.query, '/')
                               ? 0
                               : refuse(g->o.query,
                                         "--query needs --query-token-file, except for a Unix socket");
        if (!g->o.query)
                return refuse(g->token_file, "--query-token-file needs --query");
        return token_read(g->token_file, &g->o.query_token, why) < 0 ? refuse(g->token_file, why)
                                                                     : 0;
}

/* Returns 0: go on with *ret, which points to argv, the environment and memory for the life of the
 * process. 1: exit with *ret_exit_code, after --help, --version, or a refused command line (with a
 * sentence on stderr). */
static int options_parse(int argc, char **argv, struct options *ret, int *ret_exit_code)
{
        const char *env = getenv("KVLEASE_MONITOR_SOCKET");
        struct given g = {
                .o.feed = {.socket = env && env[0] ? env : DEFAULT_SOCKET,
                        .pattern = "*",
                        .block_tokens = DEFAULT_BLOCK_TOKENS},
                .o.publisher = {.sockets.endpoint = DEFAULT_ENDPOINT,
                        .group = -1,
                        .heartbeat_nsec = DEFAULT_HEARTBEAT_SEC * NSEC_PER_SEC},
        };
        int c, r = 0;

        opterr = 0;
        while (r == 0 && (c = getopt_long(argc, argv, ":p:m:b:e:c:r:s:t:n:hV", words, NULL)) != -1)
                r = take_option(c, argv[optind - 1], &g);
        if (r == 0 && optind < argc)
                r = refuse(argv[optind], "there are no arguments, only options");
        if (r == 0)
                r = finish_query(&g);
        if (r == 0)
                r = g.is_llm_d ? finish_llm_d(&g) : finish_dynamo(&g);
        if (r == 0) {
                *ret = g.o;
                return 0;
        }
        *ret_exit_code = r < 0 ? 2 : 0;
        return 1;
}

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
