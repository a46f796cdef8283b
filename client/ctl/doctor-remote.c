/* Checks of the servers through which hosts exchange pages. Each [remote NAME] of the configuration
 * is asked as kvleased would ask it, with the same user and TLS. Nothing is changed: commands that
 * write are tried only on keys that don't exist. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "client/ctl/ctl.h"
#include "client/ctl/doctor.h"
#include "client/ctl/verdict.h"
#include "daemon/remote/ask/ask.h"

#define NODES_MAX 32 /* of one cluster; not tuned */

/* Milliseconds. With 5 s a cluster lacks a failed node's slots for some 6 to 9 s. With Redis'
 * default of 15 s it lacks them for more than half a minute. */
#define NODE_TIMEOUT_MOST 5000

#define CONNECT_MSEC 1000

/* Percent of the machine's memory: more isn't free for one server. Not tuned. */
#define MEMORY_PERCENT_MOST 90

/* One [remote NAME], and the facts found about it. */
struct remote_look {
        struct doctor *d;
        const char *name;
        struct remote_options options;
        char *secret; /* owned; NULL: none */
        char *tls_ca, *tls_cert, *tls_key;
        char *nodes[NODES_MAX]; /* addresses, owned */
        unsigned n_nodes;
        bool is_cluster;
};

/* A node of a remote. */
struct node_look {
        struct remote_look *of;
        const char *address;
        struct remote_asker *asker;
        bool is_lost;  /* stopped answering */
        bool is_wrong; /* has findings */
};

static const char *remote_setting(const struct remote_look *l, const char *key)
{
        const char *value = doctor_setting(l->d, "remote", l->name, key);

        return value && *value ? value : NULL;
}

static const char *user_of(const struct remote_look *l)
{
        const char *user = remote_setting(l, "user");

        return user ? user : "default";
}

/* ---- findings -------------------------------------------------------------------------------- */

KVL_PRINTF(3, 4)
static void node_find(struct node_look *n, enum doctor_state state, const char *found, ...)
{
        _cleanup_free_ char *text = NULL;
        va_list ap;

        va_start(ap, found);
        text = text_format(found, ap);
        va_end(ap);
        n->is_wrong = true;
        doctor_find(n->of->d, state, "[remote %s] %s: %s", n->of->name, n->address, text);
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* Returns the reply, owned; NULL: a finding has the reason, or *ret_refused is set. */
static char *node_ask(struct node_look *n, const char *const *words, bool *ret_refused)
{
        char why[REMOTE_WHY_BYTES], *text = NULL;
        int r;

        *ret_refused = false;
        if (n->is_lost)
                return NULL;
        r = remote_ask(n->asker, words, &text, why);
        if (r == -EACCES || r == -EREMOTEIO) {
                *ret_refused = true;
        } else if (r < 0) {
                n->is_lost = true;
                node_find(n, DOCTOR_ERROR, "it doesn't answer %s: %s", words[0], why);
                doctor_advise(n->of->d, "see the server's log, and the network's between");
        }
        return r == 0 ? text : NULL;
}

/* Returns the value of a server's option, owned. NULL: no such option, or not asked. */
static char *node_option(struct node_look *n, const char *name)
{
        const char *const words[] = {"CONFIG", "GET", name, NULL};
        bool is_refused;
        _cleanup_free_ char *text = node_ask(n, words, &is_refused);
        char *value = text ? strchr(text, '\n') : NULL;

        if (!value)
                return NULL;
        value++;
        value[strcspn(value, "\n")] = '\0';
        return need(strdup(value));
}

/* Whether the user may read options. */
static bool node_shows_options(struct node_look *n)
{
        static const char *const words[] = {"CONFIG", "GET", "maxmemory", NULL};
        bool is_refused;
        _cleanup_free_ char *text = node_ask(n, words, &is_refused);

        if (is_refused) {
                node_find(
                        n, DOCTOR_UNCHECKED, "user %s may not look at its options", user_of(n->of));
                doctor_advise(n->of->d,
                        "redis-cli ACL SETUSER %s '+config|get', or see to them by hand (docs/operate/other-hosts.md)",
                        user_of(n->of));
        }
        return text;
}

/* ---- options --------------------------------------------------------------------------------- */

/* Reads an option in bytes or milliseconds. Returns false if there is none. */
static bool node_number(struct node_look *n, const char *name, uint64_t *ret_number)
{
        _cleanup_free_ char *value = node_option(n, name);

        return value && parse_u64(value, ret_number) == 0;
}

/* Checks that the server's limit leaves memory to other processes of the machine. */
static void check_limit(struct node_look *n, uint64_t limit)
{
        static const char *const words[] = {"INFO", "memory", NULL};
        char limit_text[FORMAT_BYTES_MAX], total_text[FORMAT_BYTES_MAX];
        bool is_refused;
        _cleanup_free_ char *text = node_ask(n, words, &is_refused);
        struct doctor *d = n->of->d;
        uint64_t total;

        if (is_refused) {
                node_find(n, DOCTOR_UNCHECKED, "user %s may not ask for the machine's memory",
                        user_of(n->of));
                doctor_advise(d, "redis-cli ACL SETUSER %s +info", user_of(n->of));
                return;
        }
        if (!text || !doctor_number(text, "total_system_memory:", &total) || total == 0 ||
                limit <= total / 100 * MEMORY_PERCENT_MOST)
                return;
        node_find(n, DOCTOR_WARNING,
                "maxmemory = %s of the machine's %s: it evicts nothing before memory is short",
                format_bytes(limit, limit_text), format_bytes(total, total_text));
        doctor_advise(d, "CONFIG SET maxmemory to four fifths of the machine's memory, or less");
}

static void check_memory(struct node_look *n)
{
        _cleanup_free_ char *policy = node_option(n, "maxmemory-policy");
        struct doctor *d = n->of->d;
        uint64_t bytes, clients;
        bool has_limit = node_number(n, "maxmemory", &bytes);

        if (has_limit && bytes > 0) {
                check_limit(n, bytes);
        } else if (has_limit) {
                node_find(n, DOCTOR_WARNING, "maxmemory = 0: it takes memory until there is none");
                doctor_advise(d,
                        "CONFIG SET maxmemory to 1.25 times the bytes that pages are to have there");
        }
        if (policy && strcmp(policy, "allkeys-lru") != 0 && strcmp(policy, "allkeys-lfu") != 0) {
                node_find(n, DOCTOR_WARNING,
                        "maxmemory-policy = %s: when it is full, pages aren't replaced by those that are used",
                        policy);
                doctor_advise(d, "CONFIG SET maxmemory-policy allkeys-lru");
        }
        /* Redis 7.0 and later, Valkey: older ones lack the option. */
        if (node_number(n, "maxmemory-clients", &clients) && clients == 0) {
                node_find(n, DOCTOR_WARNING,
                        "maxmemory-clients = 0: for replies that clients don't take it evicts pages");
                doctor_advise(d, "CONFIG SET maxmemory-clients 10%%");
        }
}

static void check_persistence(struct node_look *n)
{
        _cleanup_free_ char *save = node_option(n, "save"), *aof = node_option(n, "appendonly");
        struct doctor *d = n->of->d;

        if (save && *save) {
                node_find(n, DOCTOR_WARNING,
                        "save = %s: it forks to write pages to a disk, which takes memory and time",
                        save);
                doctor_advise(d, "CONFIG SET save ''");
        }
        if (aof && strcmp(aof, "yes") == 0) {
                node_find(n, DOCTOR_WARNING,
                        "appendonly = yes: all pages are written to a disk as well");
                doctor_advise(d, "CONFIG SET appendonly no");
        }
}

static void check_cluster_options(struct node_look *n)
{
        _cleanup_free_ char *full = node_option(n, "cluster-require-full-coverage");
        struct doctor *d = n->of->d;
        uint64_t msec;

        if (full && strcmp(full, "yes") == 0) {
                node_find(n, DOCTOR_WARNING,
                        "cluster-require-full-coverage = yes: where one node is away, none serves");
                doctor_advise(d, "CONFIG SET cluster-require-full-coverage no");
        }
        if (node_number(n, "cluster-node-timeout", &msec) && msec > NODE_TIMEOUT_MOST) {
                node_find(n, DOCTOR_WARNING,
                        "cluster-node-timeout = %" PRIu64
                        " ms: so long a replica doesn't take over from a master that is away",
                        msec);
                doctor_advise(d, "CONFIG SET cluster-node-timeout %d, or less", NODE_TIMEOUT_MOST);
        }
}

/* Checks for "cluster_state:ok". */
static void check_cluster_state(struct node_look *n)
{
        static const char *const words[] = {"CLUSTER", "INFO", NULL};
        bool is_refused;
        _cleanup_free_ char *text = node_ask(n, words, &is_refused);
        uint64_t assigned;

        if (text && !strstr(text, "cluster_state:ok")) {
                node_find(n, DOCTOR_ERROR, "its cluster doesn't serve: cluster_state isn't ok");
                doctor_advise(n->of->d, "redis-cli --cluster check %s", n->address);
        } else if (text && doctor_number(text, "cluster_slots_assigned:", &assigned) &&
                   assigned < 16384) {
                node_find(n, DOCTOR_WARNING, "of 16384 slots %" PRIu64 " have a node", assigned);
                doctor_advise(n->of->d, "redis-cli --cluster fix %s", n->address);
        }
}

/* ---- rights ---------------------------------------------------------------------------------- */

/* Whether the command is refused for lack of rights. A redirection to another node isn't. */
static bool is_forbidden(struct node_look *n, const char *const *words, char why[REMOTE_WHY_BYTES])
{
        _cleanup_free_ char *text = NULL;

        if (n->is_lost)
                return false;
        return remote_ask(n->asker, words, &text, why) == -EACCES;
}

/* Tries kvleased's commands on that tenant's pages, with an unused key. */
static void check_rights_of(struct node_look *n, const char *tenant)
{
        _cleanup_free_ char *key = NULL;
        char why[REMOTE_WHY_BYTES];

        if (asprintf(&key, "kvl:1:%s:{doctor}:none", tenant) < 0)
                key = need(NULL);
        const char *const commands[][6] = {
                {"EXISTS", key, NULL}, {"GET", key, NULL}, {"TOUCH", key, NULL},
                {"UNLINK", key, NULL}, {"SET", key, "", "XX", NULL}, /* only if it exists */
        };

        for (unsigned i = 0; i < ARRAY_SIZE(commands); i++) {
                if (!is_forbidden(n, commands[i], why))
                        continue;
                node_find(n, DOCTOR_ERROR, "pages of tenant %s: %s is refused: %s", tenant,
                        commands[i][0], why);
                doctor_advise(n->of->d,
                        "redis-cli ACL SETUSER %s '~kvl:1:%s:*' +exists +get +set +touch +unlink '+cluster|slots' +asking",
                        user_of(n->of), tenant);
                return;
        }
}

/* Tries kvleased's commands without keys: the nodes of each slot; and, in a cluster, access to
 * slots that are moving between nodes. */
static void check_rights_of_client(struct node_look *n)
{
        static const char *const commands[][3] = {{"CLUSTER", "SLOTS", NULL}, {"ASKING", NULL}};
        char why[REMOTE_WHY_BYTES];

        for (unsigned i = 0; i < (n->of->is_cluster ? 2 : 1); i++) {
                if (!is_forbidden(n, commands[i], why))
                        continue;
                node_find(n, DOCTOR_ERROR, "%s is refused: %s",
                        i == 0 ? "CLUSTER SLOTS" : commands[i][0], why);
                doctor_advise(n->of->d, "redis-cli ACL SETUSER %s '+cluster|slots' +asking",
                        user_of(n->of));
                return;
        }
}

static void check_rights(struct node_look *n)
{
        const struct doctor_lines *lines = &n->of->d->config;

        check_rights_of_client(n);
        for (size_t i = 0; i < lines->n; i++) {
                const struct doctor_line *line = &lines->lines[i];

                /* The last of several counts. */
                if (strcmp(line->section, "tenant") == 0 && strcmp(line->key, "remote") == 0 &&
                        strcmp(line->value, n->of->name) == 0 &&
                        doctor_setting(n->of->d, "tenant", line->name, line->key) == line->value)
                        check_rights_of(n, line->name);
        }
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void node_check(struct remote_look *l, const char *address)
{
        struct node_look n = {.of = l, .address = address};
        char why[REMOTE_WHY_BYTES];
        int r = remote_ask_open(&l->options, address, &n.asker, why);

        if (r < 0) {
                node_find(&n, DOCTOR_ERROR,
                        r == -EACCES ? "kvleased isn't let in: %s" : "it can't be reached: %s",
                        why);
                doctor_advise(l->d,
                        r == -EACCES
                                ? "correct user, secret_file and tls_ of [remote %s], or the server's users and certificate"
                                : "start it, open the way to it, or correct addresses of [remote %s]",
                        l->name);
                return;
        }
        if (node_shows_options(&n)) {
                check_memory(&n);
                check_persistence(&n);
                if (l->is_cluster)
                        check_cluster_options(&n);
        }
        if (l->is_cluster)
                check_cluster_state(&n);
        check_rights(&n);
        if (!n.is_wrong)
                doctor_find(
                        l->d, DOCTOR_OK, "[remote %s] %s is set up for pages", l->name, address);
        remote_ask_close(n.asker);
}

static void add_node(struct remote_look *l, const char *address, size_t len)
{
        for (unsigned i = 0; i < l->n_nodes; i++)
                if (strncmp(l->nodes[i], address, len) == 0 && !l->nodes[i][len])
                        return;
        if (l->n_nodes < NODES_MAX)
                l->nodes[l->n_nodes++] = need(strndup(address, len));
}

/* Adds a node of CLUSTER NODES, "ID HOST:PORT@BUS[,NAME] FLAGS ...". Skips nodes that are away,
 * which other nodes report, and nodes without an address. */
static void add_line(struct remote_look *l, const char *line)
{
        char address[256], flags[128];
        const char *colon;
        size_t len;

        if (sscanf(line, "%*s %255s %127s", address, flags) != 2 || strstr(flags, "handshake") ||
                strstr(flags, "noaddr") || address[0] == ':')
                return;
        len = strcspn(address, "@,");
        address[len] = '\0';
        colon = strrchr(address, ':');
        if (colon && memchr(address, ':', (size_t)(colon - address)) && address[0] != '[') {
                char bracketed[sizeof(address) + 2];
                int n = snprintf(bracketed, sizeof(bracketed), "[%.*s]%s", (int)(colon - address),
                        address, colon);

                add_node(l, bracketed, (size_t)n);
        } else {
                add_node(l, address, len);
        }
}

/* Learns the nodes of this one's cluster, if it is in one. Returns false if it can't be asked,
 * which is found later. */
static bool learn_nodes(struct remote_look *l, const char *address)
{
        static const char *const words[] = {"CLUSTER", "NODES", NULL};
        struct remote_asker *asker = NULL;
        _cleanup_free_ char *text = NULL;
        char why[REMOTE_WHY_BYTES];
        int r = 0;

        if (remote_ask_open(&l->options, address, &asker, why) < 0)
                return false;
        r = remote_ask(asker, words, &text, why);
        remote_ask_close(asker);
        if (r == -EACCES) {
                doctor_find(l->d, DOCTOR_UNCHECKED,
                        "[remote %s] user %s may not ask for the nodes of a cluster: only those of addresses are looked at",
                        l->name, user_of(l));
                doctor_advise(l->d, "redis-cli ACL SETUSER %s '+cluster|nodes' '+cluster|info'",
                        user_of(l));
        }
        l->is_cluster = r == 0;
        for (const char *line = text; line && *line; line = strchr(line, '\n')) {
                line += *line == '\n';
                add_line(l, line);
        }
        return r == 0 || r == -EACCES || r == -EREMOTEIO;
}

/* ---- a section ------------------------------------------------------------------------------- */

static char *path_setting(const struct remote_look *l, const char *key)
{
        const char *value = remote_setting(l, key);

        return value ? doctor_path(l->d, "%s", value) : NULL;
}

/* Reads the options as kvleased does. Returns false, with a finding, if it can't. */
static bool read_options(struct remote_look *l)
{
        const char *secret = remote_setting(l, "secret_file"), *tls = remote_setting(l, "tls");
        bool is_tls = false;

        if (tls)
                (void)parse_bool(tls, &is_tls);
        l->tls_ca = path_setting(l, "tls_ca");
        l->tls_cert = path_setting(l, "tls_cert");
        l->tls_key = path_setting(l, "tls_key");
        l->options = (struct remote_options){
                .user = remote_setting(l, "user"),
                .connect_msec = CONNECT_MSEC,
                .is_tls = is_tls,
                .tls_ca = l->tls_ca,
                .tls_host = remote_setting(l, "tls_host"),
                .tls_cert = l->tls_cert,
                .tls_key = l->tls_key,
        };
        if (!secret)
                return true;
        l->secret = doctor_read(l->d, "%s", secret);
        l->options.secret = l->secret;
        if (l->secret)
                return true;
        doctor_find(l->d, errno == EACCES ? DOCTOR_UNCHECKED : DOCTOR_ERROR,
                "[remote %s] secret_file = %s can't be read: %s", l->name, secret, strerror(errno));
        doctor_advise(l->d, errno == EACCES ? "run kvleasectl doctor as root"
                                            : "create it, or correct secret_file");
        return false;
}

/* Says if the daemon doesn't reach kvlease-exchange, or that one can't be the remote's client.
 * kvlease-exchange may have read a file before the file was corrected: then only this program is
 * let in. is_told: a secret_file that can't be read has a finding already. */
static void check_exchange(struct doctor *d, const char *name, bool is_told)
{
        for (size_t i = 0; i < d->daemon.n_remotes; i++) {
                const struct figures_remote *r = &d->daemon.remotes[i];
                const char *remedy = verdict_exchange_remedy(r);

                if (strcmp(r->name, name) != 0 || !remedy ||
                        (is_told && strstr(r->error, "secret_file = ")))
                        continue;
                doctor_find(d, DOCTOR_ERROR, "[remote %s] exchanges no pages: %s", name, r->error);
                doctor_advise(d, "%s", remedy);
        }
}

static void check_section(struct doctor *d, const char *name)
{
        struct remote_look l = {.d = d, .name = name};
        const char *given = remote_setting(&l, "addresses");
        _cleanup_free_ char *copy = need(strdup(given ? given : ""));
        bool is_known = false, is_read;
        char *save = NULL;
        unsigned n_given;

        is_read = read_options(&l);
        check_exchange(d, name, !is_read && d->findings[d->n_findings - 1].state == DOCTOR_ERROR);
        if (is_read) {
                for (char *at = strtok_r(copy, ", \t", &save); at;
                        at = strtok_r(NULL, ", \t", &save))
                        add_node(&l, at, strlen(at));
                n_given = l.n_nodes;
                for (unsigned i = 0; i < n_given && !is_known; i++)
                        is_known = learn_nodes(&l, l.nodes[i]);
                for (unsigned i = 0; i < l.n_nodes; i++)
                        node_check(&l, l.nodes[i]);
                if (l.n_nodes == 0) {
                        doctor_find(d, DOCTOR_ERROR, "[remote %s] has no addresses", name);
                        doctor_advise(d, "set addresses = host:port there");
                }
        }
        for (unsigned i = 0; i < l.n_nodes; i++)
                free(l.nodes[i]);
        if (l.secret)
                explicit_bzero(l.secret, strlen(l.secret));
        free(l.secret);
        free(l.tls_ca);
        free(l.tls_cert);
        free(l.tls_key);
}

/* Whether this line is the first of its section. */
static bool is_first(const struct doctor_lines *lines, size_t at)
{
        for (size_t i = 0; i < at; i++)
                if (strcmp(lines->lines[i].section, lines->lines[at].section) == 0 &&
                        strcmp(lines->lines[i].name, lines->lines[at].name) == 0)
                        return false;
        return true;
}

void doctor_check_remote(struct doctor *d)
{
        struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
        unsigned n = 0;

        sigaction(SIGPIPE, &ignore, &before); /* TLS may write to a closed connection */
        for (size_t i = 0; i < d->config.n; i++) {
                if (strcmp(d->config.lines[i].section, "remote") != 0 || !is_first(&d->config, i))
                        continue;
                check_section(d, d->config.lines[i].name);
                n++;
        }
        sigaction(SIGPIPE, &before, NULL);
        if (n == 0)
                doctor_find(d, DOCTOR_OK, "no [remote] is configured");
}
