#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/integration/pattern.h"
#include "tests/integration/worker.h"

void worker_answer(int code)
{
        printf("%d %s\n", code, code ? kvl_last_error() : "");
}

void worker_answer_pages(int code, const uint32_t *pages, uint32_t n_pages)
{
        if (code && !n_pages) {
                worker_answer(code);
                return;
        }
        printf("%d", code);
        for (uint32_t i = 0; i < n_pages; ++i)
                printf(" %u", pages[i]);
        printf("\n");
}

uint32_t worker_parse_pages(char **args, unsigned n_args, uint32_t *ret_pages)
{
        for (unsigned i = 0; i < n_args; ++i)
                ret_pages[i] = (uint32_t)strtoul(args[i], NULL, 10);
        return n_args;
}

uint32_t worker_parse_keys(char **args, unsigned n_args, uint8_t *ret_keys, uint32_t max)
{
        unsigned long long chain, first, last;
        uint32_t n = 0;

        for (unsigned i = 0; i < n_args; ++i) {
                int words = sscanf(args[i], "%llu:%llu-%llu", &chain, &first, &last);

                if (words < 2)
                        return 0;
                if (words == 2)
                        last = first;
                for (; first <= last && n < max; ++first)
                        pattern_key(chain, first, ret_keys + 32 * n++);
        }
        return n;
}

static void on_event(struct kvl_conn *conn, const struct kvl_event *event, void *data)
{
        static const char *const names[] = {
                [KVL_EVENT_DRAIN] = "drain",
                [KVL_EVENT_DRAIN_END] = "drain-end",
                [KVL_EVENT_PRESSURE] = "pressure",
                [KVL_EVENT_STALE] = "stale",
                [KVL_EVENT_MEMBER_LEFT] = "member-left",
                [KVL_EVENT_DISCONNECTED] = "disconnected",
                [KVL_EVENT_SHUTDOWN] = "shutdown",
                [KVL_EVENT_REVOKE] = "revoke",
                [KVL_EVENT_AWAY] = "away",
                [KVL_EVENT_BACK] = "back",
        };
        struct worker_state *w = data;
        size_t len = strlen(w->events);

        if (event->type == KVL_EVENT_REVOKE)
                snprintf(w->events + len, sizeof(w->events) - len, " revoke%s:%u+%u",
                        event->is_idle ? "-idle" : "", event->first_page, event->n_pages);
        else
                snprintf(w->events + len, sizeof(w->events) - len, " %s", names[event->type]);
}

static bool parse_token(const char *hex, uint8_t ret_token[KVL_GROUP_TOKEN_BYTES])
{
        for (unsigned i = 0; i < KVL_GROUP_TOKEN_BYTES; ++i)
                if (sscanf(hex + 2 * i, "%2hhx", &ret_token[i]) != 1)
                        return false;
        return true;
}

/* Promised by all workers of a test that sets it. */
static bool has_safepoints(void)
{
        const char *variable = getenv("KVL_WORKER_SAFEPOINTS");

        return variable && strcmp(variable, "1") == 0;
}

/* connect SOCKET [TOKEN|secret=TEXT|-] [metadata|safepoints] */
static void do_connect(struct worker_state *w, char **args, unsigned n_args)
{
        struct kvl_connect_options o = {
                .size = sizeof(o), .socket_path = args[0], .client_name = "worker"};
        const char *timeout = getenv("KVL_WORKER_TIMEOUT_MSEC");
        uint8_t token[KVL_GROUP_TOKEN_BYTES];
        int r;

        if (timeout)
                o.timeout_msec = (int)strtol(timeout, NULL, 10);
        if (n_args > 1 && strncmp(args[1], "secret=", 7) == 0) {
                o.group_secret = args[1] + 7;
                o.group_secret_bytes = strlen(args[1] + 7);
        } else if (n_args > 1 && parse_token(args[1], token)) {
                o.group_token = token;
        }
        if (n_args > 2 && strcmp(args[2], "safepoints") != 0)
                o.flags |= KVL_CONNECT_METADATA_ONLY;
        else if (n_args > 2 || has_safepoints())
                o.flags |= KVL_CONNECT_SAFEPOINTS;
        r = kvl_connect(&o, &w->conn);
        worker_answer(r);
        if (r)
                return;
        snprintf(w->tenant, sizeof(w->tenant), "%s", kvl_tenant(w->conn));
        kvl_set_event_handler(w->conn, on_event, w);
}

static unsigned parse_flags(const char *word)
{
        if (strcmp(word, "same") == 0)
                return KVL_NS_SAME_ADDRESS;
        if (strcmp(word, "holes") == 0)
                return KVL_NS_BACK_HOLES;
        if (strcmp(word, "zero,holes") == 0)
                return KVL_NS_KEEP_PAGE_ZERO | KVL_NS_BACK_HOLES;
        return KVL_NS_KEEP_PAGE_ZERO;
}

/* open NAME|- PLANES [VERSION|-] [PAGE_BYTES|-] [zero|same|holes|zero,holes|-] [DEVICE|-]
 * [STRIDE|-] [FORMAT|-] [FIRST_PLANE+N] */
static void do_open(struct worker_state *w, char **args, unsigned n_args)
{
        struct kvl_layout layout = worker_layout((unsigned)strtoul(args[1], NULL, 10));
        struct kvl_ns_options o = {.size = sizeof(o)};
        int r;

        if (n_args > 4 && args[4][0] != '-')
                o.flags = parse_flags(args[4]);
        if (n_args > 2 && args[2][0] != '-')
                layout.version = args[2];
        if (n_args > 3 && args[3][0] != '-')
                layout.plane_page_bytes = strtoull(args[3], NULL, 10);
        if (n_args > 5 && args[5][0] != '-')
                o.device = args[5];
        if (n_args > 6 && args[6][0] != '-')
                o.stride_bytes = strtoull(args[6], NULL, 10);
        if (n_args > 7 && args[7][0] != '-') {
                layout.format = args[7];
                layout.format_bytes = strlen(args[7]);
        }
        if (n_args > 8)
                (void)sscanf(args[8], "%u+%u", &o.first_plane, &o.n_planes);
        w->first_plane = o.first_plane;
        w->n_planes = o.n_planes > 0 ? o.n_planes : layout.n_planes - o.first_plane;
        r = kvl_ns_open_with(w->conn, args[0][0] != '-' ? args[0] : NULL, &layout, &o, &w->ns);
        w->info = (struct kvl_ns_info){.size = sizeof(w->info)};
        if (r == 0)
                kvl_ns_info(w->ns, &w->info);
        worker_answer(r);
}

static void do_close(struct worker_state *w, char **args, unsigned n_args)
{
        kvl_ns_close(w->ns);
        w->ns = NULL;
        worker_answer(0);
}

static void do_info(struct worker_state *w, char **args, unsigned n_args)
{
        printf("0 capacity=%u set=%u client=%llu tenant=%s device=%s memory=%s stride=%llu\n",
                w->info.capacity_pages, w->info.set_pages,
                (unsigned long long)kvl_client_id(w->conn), w->tenant, w->info.device,
                w->info.is_cpu_memory ? "cpu" : "gpu", (unsigned long long)w->info.stride_bytes);
}

static void do_name(struct worker_state *w, char **args, unsigned n_args)
{
        printf("0 %s\n", kvl_ns_name(w->ns));
}

static void do_token(struct worker_state *w, char **args, unsigned n_args)
{
        uint8_t token[KVL_GROUP_TOKEN_BYTES];

        kvl_group_token(w->conn, token);
        printf("0 ");
        for (unsigned i = 0; i < sizeof(token); ++i)
                printf("%02x", token[i]);
        printf("\n");
}

static void do_events(struct worker_state *w, char **args, unsigned n_args)
{
        int r = kvl_dispatch(w->conn);

        printf("%d%s\n", r < 0 ? r : 0, w->events);
        w->events[0] = '\0';
}

static void do_disconnect(struct worker_state *w, char **args, unsigned n_args)
{
        kvl_disconnect(w->conn);
        w->conn = NULL;
        w->ns = NULL;
        worker_answer(0);
}

#define MAX_FDS 256 /* that are looked at for a socket */

/* The connection's, which is the process' only one; -1: there is none. */
static int find_socket(void)
{
        socklen_t len = sizeof(int);
        int type;

        for (int fd = STDERR_FILENO + 1; fd < MAX_FDS; ++fd)
                if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0)
                        return fd;
        return -1;
}

/* The socket hangs up while the process lives and keeps its mappings. */
static void do_hangup(struct worker_state *w, char **args, unsigned n_args)
{
        worker_answer(shutdown(find_socket(), SHUT_RDWR) < 0 ? -errno : 0);
}

/* Bytes that are no frame, behind the library's back. */
static void do_garbage(struct worker_state *w, char **args, unsigned n_args)
{
        char junk[64];

        memset(junk, 'x', sizeof(junk));
        worker_answer(send(find_socket(), junk, sizeof(junk), MSG_NOSIGNAL) < 0 ? -errno : 0);
}

static void do_exit(struct worker_state *w, char **args, unsigned n_args)
{
        kvl_disconnect(w->conn);
        exit(0);
}

/* arm POINT PASS: dies at a fault point (base/fault-point.h), where it is built with them */
static void do_arm(struct worker_state *w, char **args, unsigned n_args)
{
        setenv("KVL_FAULT_POINT", args[0], 1);
        setenv("KVL_FAULT_PASS", args[1], 1);
        worker_answer(0);
}

static const struct worker_command commands[] = {
        {"arm", do_arm},
        {"connect", do_connect},
        {"open", do_open},
        {"close", do_close},
        {"info", do_info},
        {"name", do_name},
        {"token", do_token},
        {"events", do_events},
        {"disconnect", do_disconnect},
        {"hangup", do_hangup},
        {"garbage", do_garbage},
        {"exit", do_exit},
        {NULL, NULL},
};

static worker_fn find(const struct worker_command *table, const char *name)
{
        for (; table->name; ++table)
                if (strcmp(table->name, name) == 0)
                        return table->fn;
        return NULL;
}

static void run_line(struct worker_state *w, char *line)
{
        static char *words[WORKER_MAX_WORDS];
        char *save = NULL;
        unsigned n = 0;
        worker_fn fn;

        for (char *word = strtok_r(line, " \n", &save); word && n < WORKER_MAX_WORDS;
                word = strtok_r(NULL, " \n", &save))
                words[n++] = word;
        if (!n)
                return;
        fn = find(commands, words[0]);
        if (!fn)
                fn = find(worker_page_commands, words[0]);
        if (!fn)
                fn = find(worker_session_commands, words[0]);
        if (!fn)
                fn = find(worker_flight_commands, words[0]);
        if (!fn)
                fn = find(worker_set_commands, words[0]);
        if (!fn)
                fn = find(worker_stream_commands, words[0]);
        if (!fn)
                fn = find(worker_window_commands, words[0]);
        if (fn)
                fn(w, words + 1, n - 1);
        else
                printf("%d no such command: %s\n", -ENOSYS, words[0]);
        fflush(stdout);
}

/* load|serve|read|flight|witness SOCKET SEED COUNT PLANES CHAINS */
static int run_job(char **argv)
{
        const struct worker_job job = {
                .socket = argv[2],
                .seed = strtoull(argv[3], NULL, 10),
                .count = strtoull(argv[4], NULL, 10),
                .n_planes = (unsigned)strtoul(argv[5], NULL, 10),
                .n_chains = (unsigned)strtoul(argv[6], NULL, 10),
                .has_safepoints = strcmp(argv[1], "serve") == 0,
        };

        if (strcmp(argv[1], "flight") == 0)
                return worker_flight(&job);
        if (strcmp(argv[1], "witness") == 0)
                return worker_witness(&job);
        return strcmp(argv[1], "read") == 0 ? worker_read(&job) : worker_load(&job);
}

int main(int argc, char **argv)
{
        static struct worker_state w;
        char *line = NULL;
        size_t size = 0;

        if (argc == 7)
                return run_job(argv);
        while (getline(&line, &size, stdin) > 0)
                run_line(&w, line);
        kvl_disconnect(w.conn);
        free(line);
        return 0;
}
