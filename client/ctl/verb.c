#include "client/ctl/verb.h"

#include <limits.h>
#include <string.h>

#include "base/words.h"
#include "client/ctl/noun.h"
#include "client/trace/store-model.h"
#include "proto/event-kind.h"

#define O(name) CTL_OPTION_BIT(CTL_OPTION_##name)

#define TENANT_KEYS                                                                         \
        "KEY=VALUE is a line of a [tenant NAME] section of kvleased's configuration:\n"     \
        "  memory     limit, host_limit, disk_limit, weight, priority\n"                    \
        "  guarantee  class, reserve, reserve_min, reserve_max, sizer, schedule, burst,\n"  \
        "             lend_idle_reserve\n"                                                  \
        "  overload   when_full, max_wait, max_connects, max_requests, max_pins\n"          \
        "  cache      evict, miss_cost, attention_crossover, expire, expire_unused,\n"      \
        "             free_ahead, prefetch_steps, session_expire, warm_tags, host_codec,\n" \
        "             disk_codec, events\n"                                                 \
        "  devices    placement, exclusive\n"                                               \
        "  exchange   remote, remote_write, remote_secret, remote_prefill\n"                \
        "  access     uids, gids, group, max_clients, share_group, publish_uids,\n"         \
        "             publish_gids\n"                                                       \
        "kvleased checks the values.\n"

#define TOP_COLUMNS                                                                        \
        "  tenants     TENANT, TOKEN/S, HIT/S, MISS/S, HIT%, REQ/S, EVICT/S, REFUSE/S,\n"  \
        "              USED, RESERVE, LIMIT, CLIENTS, WAITING, UP/S, HOST/S, DISK/S,\n"    \
        "              HOST, DISK\n"                                                       \
        "  namespaces  TENANT, NAMESPACE, TOKEN/S, HIT/S, MISS/S, HIT%, EVICT/S, USED,\n"  \
        "              PAGES, PINNED, GRANTED, CLIENTS, SESSIONS, UP/S, HOST/S, DISK/S,\n" \
        "              DEVICE, MODEL\n"                                                    \
        "  clients     ID, TENANT, NAME, PID, STATE, REQ/S, PINS, GRANTED, SPACES,\n"      \
        "              MAPPED, RECALLED, WAITING, PENDING, HEARD, CONNECTED, VIOLATIONS\n" \
        "  regions     DEVICE, TENANT, SIZE, USED, EXCESS, FAIR, DEMAND, P99, LENT,\n"     \
        "              MISSING, SIZER, DECISION\n"

#define TRACE_POLICIES                                                  \
        "  all: all of these\n"                                         \
        "  daemon: those that kvleased has\n"                           \
        "  pgi: kvleased's default, by the tree of prefixes\n"          \
        "  lru: least recently used\n"                                  \
        "  s3fifo: S3-FIFO\n"                                           \
        "  fifo: first in, first out\n"                                 \
        "  lfu: least frequently used\n"                                \
        "  sieve: SIEVE\n"                                              \
        "  arc: adaptive replacement\n"                                 \
        "  lru2: by the use before the last one\n"                      \
        "  gdsf: by use, size and the cost of computing a page again\n" \
        "  optimum: evicts the page that is needed last; no policy is better\n"

#define TRACE_FILES                                                                               \
        "\nFiles are JSON lines, plain or gzip. Fields: timestamp (ms, or --time-unit), "         \
        "input_length, output_length, hash_ids, and tenant if a file has several tenants. "       \
        "Several files are a tenant each. docs/measure/TRACES.md describes how to convert other " \
        "traces.\n"
#define KIND_LINE(id, name, together, what) "  " name ": " what "\n"
#define STORE_LINE(key, kind, field, otherwise, least, most, meaning) \
        "  " key "=" otherwise ": " meaning "\n"
#define TRACE_OPTIONS (O(JOBS) | O(CHAIN) | O(SKIP_BAD) | O(BLOCK_TOKENS) | O(TIME_UNIT))

const struct verb verbs[] = {
        {"status", "", "show whether kvleased is healthy, and its figures",
                "The first line is the verdict. At most twelve lines follow: findings, the worst "
                "first, each with a "
                "remedy. An error stops work, a warning will, a note may be intended. The exit "
                "code doesn't depend on findings: programs read \"well\" of --json. "
                "kvleasectl doctor also examines the host, and reports by its exit code.\n",
                0, 0, O(ALL), false, NULL, verb_status, &noun_status.table},
        {"devices", "", "list devices, their memory and their state", NULL, 0, 0, 0, false, NULL,
                verb_list, NULL, &noun_devices},
        {"tenants list", "", "list tenants with limit and usage",
                "'tenants' alone does the same.\n", 0, 0, 0, false, NULL, verb_list, NULL,
                &noun_tenants},
        {"tenants show", "NAME", "show one tenant: settings, usage, waits", NULL, 1, 1, 0, false,
                check_tenant, verb_tenants_show},
        {"tenants add", "NAME [KEY=VALUE...]", "add a tenant, now and after restarts", TENANT_KEYS,
                1, UINT_MAX, 0, false, check_tenant_set, verb_tenants_add},
        {"tenants set", "NAME KEY=VALUE...", "change a tenant, now and after restarts",
                TENANT_KEYS
                "Other settings stay as they are. KEY+=VALUE adds to a list of uids or gids, "
                "KEY-=VALUE removes from it. A limit below the memory in use takes memory back: "
                "on a terminal the command asks first, unless --yes is given.\n",
                2, UINT_MAX, O(YES), false, check_tenant_set, verb_tenants_set},
        {"tenants remove", "NAME", "remove a tenant without clients",
                "A tenant with clients is never removed: end them first.\n", 1, 1, O(FORCE), false,
                check_tenant, verb_tenants_remove},
        {"namespaces", "", "list namespaces with layout, pages and hits", NULL, 0, 0, O(TENANT),
                false, NULL, verb_list, NULL, &noun_namespaces},
        {"clients", "", "list connected processes and the memory they hold", NULL, 0, 0, O(TENANT),
                false, NULL, verb_list, NULL, &noun_clients},
        {"regions", "", "list reservations, the dynamic pool and decisions of the sizer",
                "Each tenant has a line for each device, and so has each device's dynamic pool: "
                "memory that is not reserved. SIZE is the reservation, or the size of the pool. "
                "EXCESS is the tenant's memory in the pool, FAIR its share by weight and demand. "
                "DEMAND and P99 are the demand that the sizer measures, now and in its window. "
                "MISSING is reserved memory that other tenants still hold while it is taken back. --json has all figures.\n",
                0, 0, O(TENANT), false, NULL, verb_list, NULL, &noun_regions},
        {"top", "", "watch rates of tenants, namespaces, clients or regions",
                "Keys on a terminal: t, n, c and g choose the view, Tab the next one. < and > "
                "choose the column to sort by, r reverses the order. / filters by a text in a "
                "name, Esc ends the filter. Space pauses, + and - change the interval, arrows scroll, h shows all keys, q quits.\n\n"
                "--batch prints plain text, with --json an object a line, each with the rates "
                "since the line before. While kvleased is away the command waits for it. Views and their columns:\n" TOP_COLUMNS
                "Rates (/S) are per second. TOKEN counts tokens in pages that were found, HIT and "
                "MISS pages. UP, HOST and DISK count pages that move to the device, to host memory, to disk.\n",
                0, 0, O(TENANT) | O(VIEW) | O(SORT) | O(FILTER) | O(INTERVAL) | O(BATCH) | O(COUNT),
                true, check_top, verb_top},
        {"evictions", "", "list which tenants' leases evicted which tenants' pages",
                "Counted since the start of kvleased. (no lease): a limit or a reservation was changed, or memory was recalled.\n",
                0, 0, O(TENANT), false, NULL, verb_list, NULL, &noun_evictions},
        {"events", "", "list recent events with their reasons",
                "Each event has a line with the local time and its offset from UTC; with --json, "
                "an object a line. Equal events within a second are one event, with a count. "
                "kvleased keeps 2048 events, a part of them for each tenant, and none over a restart. A line reports how many were lost.\n\n"
                "--follow continues until ^C (exit code 0), also over restarts of kvleased. "
                "--tenant also names the tenants whose leases caused the events. Kinds are\n" EVENT_KIND_TABLE(
                        KIND_LINE),
                0, 0, O(TENANT) | O(NAMESPACE) | O(KIND) | O(COUNT) | O(SINCE) | O(FOLLOW), false,
                check_events, verb_events},
        {"sessions list", "", "list sessions that are kept",
                "'sessions' alone does the same. LOST are tokens at the end of a session that were evicted.\n",
                0, 0, O(TENANT), false, NULL, verb_list, NULL, &noun_sessions},
        {"sessions purge", "TENANT", "remove sessions of a tenant, also open ones",
                "Without an option, all sessions of the tenant. Pages stay cached as long as they are useful to others.\n",
                1, 1, O(NAMESPACE) | O(SESSION) | O(IDLE), false, check_sessions_purge,
                verb_sessions_purge},
        {"sets", "", "list sets of namespaces, and how complete they are",
                "A key is useful only if each namespace of the set has it. Keys that stay incomplete are removed.\n",
                0, 0, O(TENANT), false, NULL, verb_list, NULL, &noun_sets},
        {"codecs", "", "list codecs of lower tiers, and their errors",
                "Each namespace has a line for each tier and range of layers with a codec of its "
                "own. PAGE is the size of these layers in a page on the device, STORED in the "
                "tier. kvleased decodes one in 64 encoded pages again: ERROR is the root mean "
                "square error, relative to the numbers, since the start. The client that opens a namespace first chooses its codecs.\n",
                0, 0, O(TENANT), false, NULL, verb_list, NULL, &noun_codecs},
        {"exchanges", "", "list pages that tenants exchange with other hosts",
                "Each tenant with a remote has a line; pages are counted since the tenant has it.\n"
                "  FOUND        pages on the remote that lookups lacked here\n"
                "  IMPORTED     pages that were loaded, checked and cached here\n"
                "  SESSIONS     sessions of other hosts that were loaded here\n"
                "  FAILED       nodes that are skipped for now\n"
                "  LOADS, LOST  imports that seemed faster than computing; slower ones of these\n"
                "  BYTES/S      recent rate of imports\n"
                "  TOKENS/S     rate of computing in the slowest namespace, as engines report it\n"
                "NOT BROUGHT has reasons why pages were not imported or exported:\n"
                "  late         the lookup's deadline passed\n"
                "  not-worth    computing is faster\n"
                "  epoch        an invalidation, or the server doesn't answer\n"
                "  not-finite   the page has numbers that the codec can't store\n"
                "Other reasons are no-room, damaged, gone, unreached, refused, busy and called-off.\n",
                0, 0, O(TENANT), false, NULL, verb_list, NULL, &noun_exchanges},
        {"remote", "[REMOTE]", "list nodes of shared stores, and whether they answer",
                "Each node of each [remote NAME] of the configuration has a line. A node that "
                "fails is skipped: its BREAKER is open, and its pages are misses. Later one "
                "request is let through (half-open). It closes the breaker, or doubles the time, up to 30s.\n\n"
                "STATE is the remote's: reached, unreached, unknown or not-open. While it is "
                "unknown, the nodes are asked for their slots. If it is not open, kvleased's log has the reason, or a restart is needed.\n"
                "  SLOTS       slots of 16384 that the node serves; 0: it was only asked for them\n"
                "  ROUND TRIP  of small requests\n"
                "  READ        bytes of values; so is WRITTEN\n"
                "  TIMEOUTS    requests without an answer in time\n"
                "  LOST        connections that broke\n"
                "  TRIPS       how often the breaker opened\n"
                "  LAST ERROR  reason why a connection failed last, however long ago\n",
                0, 1, O(TENANT), false, NULL, verb_remote},
        {"explain", "TENANT NAMESPACE KEY...", "explain why keys hit or miss",
                "A key is 64 hexadecimal digits. AGE is the time since the page was published, or "
                "since it was evicted. Old evictions count as never seen.\n\n"
                "IMPORT predicts a lookup that may wait, for pages that aren't here. kvleased asks no other host for it:\n"
                "  asks         the lookup would ask the shared store\n"
                "  unreachable  the store doesn't answer\n"
                "  epoch        the store doesn't know of an invalidation yet\n"
                "  busy         no further import is allowed at this moment\n"
                "  not-shared   the namespace isn't shared\n",
                3, 258, 0, false, check_explain, verb_explain},
        {"trace replay", "FILE...", "compute hit ratios of eviction policies from a trace",
                "Prints the token hit ratio (%) of each policy and capacity, for one cache of all tenants.\n\n"
                "--below adds a lower tier, and a column for hits in both. --expect shows the gain "
                "from kvl_expect() in an engine that reports its waiting requests. --hints shows "
                "the gain from kvl_session_hint() at the end of each request. "
                "--attention-crossover adds the computation that hits save, and policies that use "
                "it. --seeds shows the standard deviation over runs with other ids of pages. "
                "--from leaves the first requests out of all figures: they fill the cache, and policies learn from them.\n\n"
                "--window-groups and --window-tokens give all groups of layers but one a window: "
                "each block has a page of every group. Policies are shown with and without hints about pages whose window has passed.\n\n"
                "With --prefill-rate, --time-per-output-token or --max-running, requests take time "
                "and hold their pages meanwhile. A request without room waits until another ends. "
                "Columns show the mean part of the cache in use, and the mean wait. Policies are\n" TRACE_POLICIES
                        TRACE_FILES,
                1, UINT_MAX,
                TRACE_OPTIONS | O(POLICIES) | O(CAPACITIES) | O(SPLIT) | O(BELOW) | O(EXPECT) |
                        O(EXPECT_WRONG) | O(HINTS) | O(HINT_TIMES) | O(ATTENTION_CROSSOVER) |
                        O(SEEDS) | O(FROM) | O(WINDOW_GROUPS) | O(WINDOW_TOKENS) | O(PREFILL_RATE) |
                        O(TIME_PER_OUTPUT_TOKEN) | O(MAX_RUNNING),
                true, NULL, verb_trace_replay},
        {"trace analyze", "FILE...", "analyze a trace: lengths, repeats, hits, demand",
                "The demand of a tenant is the pages that its requests use. A page counts for "
                "--hold after each use, by default the median time between two turns of a session.\n" TRACE_FILES,
                1, UINT_MAX, TRACE_OPTIONS | O(POLICIES) | O(CAPACITIES) | O(HOLD) | O(HTML), true,
                NULL, verb_trace_analyze},
        {"trace recommend", "FILE...", "derive a configuration from a trace",
                "Prints lines for kvleased.conf with their reasons: reservations that cover the "
                "p99 of demand (trace analyze), limits, the eviction policy and the page size. "
                "The tenant of a trace without tenants has the name of the file.\n" TRACE_FILES,
                1, UINT_MAX, TRACE_OPTIONS | O(HOLD) | O(TOKEN_BYTES), true,
                check_trace_token_bytes, verb_trace_recommend},
        {"trace hosts", "FILE...", "simulate hosts that share a store",
                "Each host has a cache of --size. Pages that leave it are written to a store like "
                "a cluster of Redis. A host loads them where that is faster than computing. The "
                "trace is for --group hosts; more hosts are several groups. Each further group "
                "replays a copy of the trace a little later, with prompts of its own. NODES is "
                "the number of nodes that the store needs, for memory, bandwidth and requests in "
                "the busiest ten seconds. Other figures are for this number, or for nodes=. docs/measure/REMOTE.md has the model.\n\n"
                "Ways of --affinity are\n"
                "  round-robin: the next host for each request\n"
                "  random: any host\n"
                "  session: the host of the turn before, else the one with the least work\n"
                "  prefix: the host with most of the prompt, at least half; else as session\n"
                "--store KEY=VALUE,... takes\n" STORE_MODEL_TABLE(STORE_LINE) TRACE_FILES,
                1, UINT_MAX,
                TRACE_OPTIONS | O(HOSTS) | O(GROUP) | O(AFFINITY) | O(STORE) | O(SIZE) |
                        O(TOKEN_BYTES) | O(PREFILL_RATE) | O(POLICIES) | O(BELOW),
                true, check_trace_hosts, verb_trace_hosts},
        {"trace record", "on|off|status", "record kvleased's traffic as a trace",
                "Writes one JSON line a request to STATE_DIR/traces: times, lengths, and keys "
                "hashed with a new secret; no text, no token. At most four files are kept, of "
                "--size each (256 MiB by default), and 5 % of the file system stays free. Requests "
                "without an id are told apart by their pages. 'status' reports lost lines with reasons. A restart of kvleased ends recording.\n",
                1, 1, O(SIZE), false, check_trace_record, verb_trace_record},
        {"warm", "TENANT NAMESPACE [KEY...]", "move cached pages up to the device in advance",
                "Name pages by keys (64 hexadecimal digits each), a session, a tag, or --all; "
                "pages before them in the sequence move as well. The work is done in the "
                "background, as far as there is room. No page is evicted for it, but less useful "
                "pages move to a lower tier. The command shows progress, and waits for the end, "
                "by default 30s. Without any of these it shows the work that runs, or ran last. "
                "The option warm_tags of a tenant does the same when kvleased starts.\n",
                2, 2 + WARM_MAX_KEYS, O(SESSION) | O(TAG) | O(ALL) | O(OFF) | O(TIMEOUT), false,
                check_warm, verb_warm},
        {"purge", "TENANT [NAMESPACE]", "remove cached pages of a tenant or a namespace",
                "Pages that a client reads are removed when it releases them.\n", 1, 2, O(REMOVE),
                false, check_purge, verb_purge},
        {"recall", "TENANT", "take memory back from a tenant and its clients",
                "kvleased takes whole extent sets, unused ones first. Cached pages in them are "
                "evicted. Clients are asked to release their pages, and give the memory back at "
                "their next safe point. Memory that a client keeps longer than --timeout (by "
                "default revoke_timeout of kvleased) is quarantined. It stays charged to the "
                "tenant until the client releases it or exits. A recall can't be stopped.\n\n"
                "--wait waits as long as --timeout, by default 30s. Without --size all memory is "
                "taken: on a terminal the command asks first, unless --yes is given.\n",
                1, 1, O(NAMESPACE) | O(SIZE) | O(TIMEOUT) | O(WAIT) | O(YES), false, check_recall,
                verb_recall},
        {"drain", "", "refuse new work, and wait until all clients have left",
                "New clients, leases and namespaces are refused; lookups and releases continue. "
                "The command waits by default 30s. kvleased drains until kvleasectl drain --off.\n\n"
                "--export also writes cached pages to the stores that hosts share, recently used "
                "ones first. A tenant writes at most remote_write bytes a second; without a "
                "remote, or with remote_write = 0, it writes none. Pages that were cached before "
                "this host knew its epoch can't be written. When the time is over kvleased "
                "continues until --off; run the command again to wait again.\n",
                0, 0, O(TIMEOUT) | O(OFF) | O(EXPORT), false, check_drain, verb_drain},
        {"config show", "", "show options that differ from their defaults",
                "'config' alone does the same. VALUE is in force. FROM is the origin of the "
                "configured value: a line of a file, the command line of kvleased, or "
                "'kvleasectl' for tenants set. WAITING is a configured value that isn't in force. "
                "It needs a restart, or a reload that finds it possible, such as a reservation "
                "that fits. Files are shown as kvleased read them last; kvleasectl reload reads them again. --json always has all options.\n",
                0, 0, O(TENANT) | O(ALL), false, NULL, verb_config_show, &noun_options.table},
        {"reload", "", "apply the changed configuration",
                "Reads the configuration's files, as systemctl reload does. Reports changes, "
                "options that wait for a restart (pending), and options that can't be applied now "
                "(refused). A file with a mistake changes nothing. Exits with 1 if an option was refused.\n",
                0, 0, 0, false, NULL, verb_reload},
        {"restart", "", "restart kvleased and keep its cache",
                "Clients keep working; only publishing pages waits. systemd "
                "(FileDescriptorStoreMax= and Restart= of kvleased.service) or kvleased --keep must store the memory and start the next kvleased.\n\n"
                "If something would be lost the command changes nothing. For example, the "
                "installed program can't read the stored state, or the changed configuration has "
                "less memory. --check names the losses. The next program also reads the "
                "configuration (--check-config), if the user is root or the one of kvleased. The command waits by default 30s.\n",
                0, 0, O(CHECK) | O(BINARY) | O(FORCE) | O(TIMEOUT), false, check_restart,
                verb_restart},
        {"check", "", "check all invariants of kvleased's state",
                "Prints the first violation, if there is one: please report it, it is a bug of kvleased.\n",
                0, 0, 0, false, NULL, verb_check},
        {"doctor", "", "examine this host, and suggest remedies",
                "Examines the GPU's driver, memory, limits, sockets, disk, configuration and unit, "
                "whether kvleased runs or not. Asks the servers of each [remote] for their "
                "settings. Each finding says why it matters, and has a remedy. Facts that this "
                "user can't read are reported as not checked: root sees most. The command changes nothing.\n\n"
                "--root examines files below a directory, as in a container that has the host's "
                "files there. Exits with 0 if there is nothing to do, 7 with warnings, 8 with errors.\n",
                0, 0, O(ALL) | O(BINARY) | O(ROOT), true, NULL, verb_doctor},
        {"version", "", "show the versions of kvleasectl and kvleased", "Works without kvleased.\n",
                0, 0, 0, true, NULL, verb_version},
};
const size_t n_verbs = ARRAY_SIZE(verbs);

/* ---- finding --------------------------------------------------------------------------------- */

static const char *verb_name(const void *data, size_t i)
{
        return verbs[i].name;
}

static const struct verb *verb_by_name(const char *name)
{
        for (size_t i = 0; i < n_verbs; i++)
                if (strcmp(verbs[i].name, name) == 0)
                        return &verbs[i];
        return NULL;
}

/* Whether a verb starts with the word and a space. */
static bool has_second_word(const char *word)
{
        size_t len = strlen(word);

        for (size_t i = 0; i < n_verbs; i++)
                if (strncmp(verbs[i].name, word, len) == 0 && verbs[i].name[len] == ' ')
                        return true;
        return false;
}

/* Returns the second word that is meant if the first one stands alone. */
static const char *default_word(const char *word)
{
        return strcmp(word, "config") == 0 ? "show" : "list";
}

int verb_find(char **words, unsigned n_words, const struct verb **ret_verb, unsigned *ret_n_taken)
{
        bool two = has_second_word(words[0]);
        _cleanup_free_ char *name = NULL;
        const char *near;
        int n = two ? asprintf(&name, "%s %s", words[0],
                              n_words > 1 ? words[1] : default_word(words[0]))
                    : asprintf(&name, "%s", words[0]);

        if (n < 0) {
                name = NULL; /* asprintf leaves it undefined */
                need(NULL);
        }
        *ret_verb = verb_by_name(name);
        *ret_n_taken = two ? MIN(n_words, 2u) : 1;
        if (*ret_verb)
                return CTL_OK;
        near = nearest_name(name, n_verbs, verb_name, NULL);
        if (near)
                return fail(CTL_USAGE, "there is no verb '%s': did you mean '%s'?", name, near);
        return fail(CTL_USAGE, "there is no verb '%s': kvleasectl --help lists them", name);
}
