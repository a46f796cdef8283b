#include "client/ctl/verb.h"

#include <limits.h>
#include <string.h>

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
        "             disk_codec\n"                                                         \
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

#define TRACE_POLICIES                                                   \
        "  all: all of these\n"                                          \
        "  daemon: those that kvleased has\n"                            \
        "  pgi: kvleased's own, by the tree of prefixes (its default)\n" \
        "  lru: least recently used\n"                                   \
        "  s3fifo: S3-FIFO\n"                                            \
        "  fifo: first in, first out\n"                                  \
        "  lfu: least frequently used\n"                                 \
        "  sieve: SIEVE\n"                                               \
        "  arc: adaptive replacement\n"                                  \
        "  lru2: by the last use but one\n"                              \
        "  gdsf: by use, size and the cost of computing it again\n"      \
        "  optimum: what is used again last goes; no policy can do better\n"

#define TRACE_FILES                                                                                \
        "\nFiles are JSON lines, plain or gzip: timestamp (ms, or --time-unit), input_length,\n"   \
        "output_length, hash_ids, and tenant where several are in one file. Several files are a\n" \
        "tenant each. docs/measure/TRACES.md says how other traces are read, or made into such "   \
        "lines.\n"
#define KIND_LINE(id, name, together, what) "  " name ": " what "\n"
#define STORE_LINE(key, kind, field, otherwise, least, most, meaning) \
        "  " key "=" otherwise ": " meaning "\n"
#define TRACE_OPTIONS (O(JOBS) | O(CHAIN) | O(SKIP_BAD) | O(BLOCK_TOKENS) | O(TIME_UNIT))

const struct verb verbs[] = {
        {"status", "", "whether all is well, and what the daemon is doing",
                "First whether all is well, or what isn't, the worst first, each with what to do "
                "or "
                "the verb that\nshows more: an error is what doesn't work, a warning what is to be "
                "mended before it hurts, a\nnote may be meant as it is, and leaves all well. Then "
                "figures in groups. The exit code doesn't\ndepend on it: kvleasectl --json status "
                "has \"well\", and kvleasectl doctor looks at the host,\ntoo, and says by its exit "
                "code what it found. Figures \"since the start\" begin anew with each kvleased.\n",
                0, 0, 0, false, NULL, verb_status, &status_table},
        {"devices", "", "devices whose memory the daemon leases out", NULL, 0, 0, 0, false, NULL,
                verb_devices},
        {"tenants list", "", "tenants with limit and usage",
                "The same as 'tenants' alone; see also tenants show, add, set and remove.\n", 0, 0,
                0, false, NULL, verb_tenants_list},
        {"tenants show", "NAME", "everything about one tenant", NULL, 1, 1, 0, false, check_tenant,
                verb_tenants_show},
        {"tenants add", "NAME [KEY=VALUE...]", "make a tenant, at once and across restarts",
                TENANT_KEYS, 1, UINT_MAX, 0, false, check_tenant_set, verb_tenants_add},
        {"tenants set", "NAME KEY=VALUE...", "change a tenant, at once and across restarts",
                TENANT_KEYS
                "What isn't named stays as it is. KEY+=VALUE adds to a list of uids or gids, "
                "KEY-=VALUE\n"
                "takes from it. Where a limit is lowered below what is held, so much is taken\n"
                "back: on a terminal it asks first, unless --yes is given.\n",
                2, UINT_MAX, O(YES), false, check_tenant_set, verb_tenants_set},
        {"tenants remove", "NAME", "remove a tenant that nobody uses",
                "A tenant with clients is never removed: end them first.\n", 1, 1, O(FORCE), false,
                check_tenant, verb_tenants_remove},
        {"namespaces", "", "namespaces with layout, pages and hits", NULL, 0, 0, O(TENANT), false,
                NULL, verb_namespaces},
        {"clients", "", "connected processes and what they hold", NULL, 0, 0, O(TENANT), false,
                NULL, verb_clients},
        {"regions", "", "reserved memory, the dynamic pool, and what the sizer decided",
                "A line for each tenant and device, and one for each device's dynamic pool, which "
                "all\n"
                "share that is not reserved. SIZE is reserved, or the pool's; EXCESS is what a "
                "tenant has\n"
                "of the pool, FAIR what it may have of it by weight and demand. DEMAND and P99 are "
                "what\n"
                "the sizer sees, now and in its window. What is missing of a reservation is still "
                "held by\n"
                "others, and being taken back from them. --json has everything.\n",
                0, 0, O(TENANT), false, NULL, verb_regions},
        {"top", "", "tenants, namespaces, clients or regions with their rates, again and again",
                "Draws on the terminal, and takes keys: t, n, c and g choose the view, Tab the "
                "next one; < and >\n"
                "the column to sort by, r turns it round; / filters by a text in a name, Esc ends "
                "that; space\n"
                "pauses; + and - change the interval; arrows scroll; h has all of them, q ends. No "
                "colours with\n"
                "NO_COLOR. With --batch it prints plain text, or with --json an object a line, "
                "each with the\n"
                "rates since the look before. Where kvleased is away it waits for it. Views and "
                "their columns:\n" TOP_COLUMNS
                "Rates (/S) are of a second: TOKEN of tokens in pages that were found, HIT and "
                "MISS "
                "of pages,\n"
                "UP, HOST and DISK of pages that came to the device, to the host's memory below "
                "it, to the disk.\n",
                0, 0, O(TENANT) | O(VIEW) | O(SORT) | O(FILTER) | O(INTERVAL) | O(BATCH) | O(COUNT),
                true, check_top, verb_top},
        {"evictions", "", "whose cached pages gave way to whose leases",
                "Since the start. (no lease): a limit or a reservation was changed, memory was "
                "recalled.\n",
                0, 0, O(TENANT), false, NULL, verb_evictions},
        {"events", "", "what happened lately, and why",
                "A line each, with the local time and its offset from UTC; --json: an object a "
                "line. What "
                "is alike\n"
                "and happens within a second is one event: so many pages of a tenant that made "
                "room for another's "
                "leases. kvleased\n"
                "keeps 2048, of each tenant a part, and none over a restart; how many were lost "
                "is said.\n"
                "--follow goes on until it is interrupted (exit code 0), and over restarts of "
                "kvleased.\n"
                "--tenant also names whose leases they were for. Kinds are\n" EVENT_KIND_TABLE(
                        KIND_LINE),
                0, 0, O(TENANT) | O(NAMESPACE) | O(KIND) | O(COUNT) | O(SINCE) | O(FOLLOW), false,
                check_events, verb_events},
        {"sessions list", "", "conversations that are kept",
                "The same as 'sessions' alone; see also sessions purge. LOST tokens were evicted "
                "at its end.\n",
                0, 0, O(TENANT), false, NULL, verb_sessions_list},
        {"sessions purge", "TENANT", "drop sessions of a tenant, open ones included",
                "All of them, where no option says which. Their pages stay cached as long as "
                "others are of use.\n",
                1, 1, O(NAMESPACE) | O(SESSION) | O(IDLE), false, check_sessions_purge,
                verb_sessions_purge},
        {"sets", "", "namespaces that belong together, and how complete they are",
                "A key is of use only where every namespace of the set has it. Keys that stay "
                "incomplete are\n"
                "dropped.\n",
                0, 0, O(TENANT), false, NULL, verb_sets},
        {"codecs", "", "how pages are encoded below devices, and how far numbers are off",
                "A line for each namespace, tier and range of layers that has a codec of its own, "
                "where anything\n"
                "of a page is encoded. PAGE is what the layers take of a page on the device, "
                "STORED "
                "in the tier.\n"
                "One in 64 pages that are encoded is decoded again: ERROR is the root of the mean "
                "square of what\n"
                "its numbers are off by, as a part of theirs, since the start. Codecs are chosen "
                "by "
                "who opens a\n"
                "namespace first.\n",
                0, 0, O(TENANT), false, NULL, verb_codecs},
        {"exchanges", "", "what tenants exchange with other hosts",
                "A line for each tenant that has a remote, with pages since it has it. FOUND: of "
                "what lookups lacked,\n"
                "pages that were there; IMPORTED: that were loaded, checked and cached here. "
                "SESSIONS: that another host\n"
                "has continued, and this one has loaded. FAILED: nodes that are\n"
                "left alone for now. LOADS: imports that seemed sooner than computing, and are "
                "over; "
                "LOST: of these,\n"
                "that took longer. BYTES/S: at which pages came lately; TOKENS/S: that engines "
                "compute, as they say,\n"
                "in the slowest namespace. NOT BROUGHT: why pages weren't imported, or exported: "
                "late "
                "(the lookup's\n"
                "deadline), not-worth (computing is faster), no-room, damaged, gone, unreached, "
                "refused, busy, epoch\n"
                "(something was invalidated, or the server doesn't answer), called-off, not-finite "
                "(numbers that the\n"
                "codec can't store).\n",
                0, 0, O(TENANT), false, NULL, verb_exchanges},
        {"remote", "[REMOTE]", "nodes of the servers that hosts share, and whether they answer",
                "A line for each node of each [remote NAME] of the configuration, or of one "
                "remote. A\n"
                "node whose BREAKER is open is left alone, as it failed: what lies there is a miss "
                "at\n"
                "once. When that time is over one request is let through (half-open); it closes "
                "the\n"
                "breaker, or doubles the time, up to 30 s. STATE is the remote's: reached, "
                "unreached,\n"
                "unknown (its nodes are being asked who serves what), not-open (kvleased's log "
                "says why,\n"
                "or a restart is needed). SLOTS: of 16384 that the node serves, 0 where it was "
                "only asked\n"
                "who does; ROUND TRIP: of small requests; READ and WRITTEN: of values; TIMEOUTS: "
                "requests\n"
                "without an answer in time; LOST: connections; TRIPS: how often the breaker "
                "opened; LAST\n"
                "ERROR: why a connection failed last, however long ago. What tenants exchange by "
                "these\n"
                "servers shows kvleasectl exchanges.\n",
                0, 1, O(TENANT), false, NULL, verb_remote},
        {"explain", "TENANT NAMESPACE KEY...", "why keys hit or miss",
                "A key is 64 hexadecimal digits. AGE is the time since it was published, or since "
                "it went.\n"
                "What went long ago counts as never seen. IMPORT says what a lookup that may wait "
                "would do about what\n"
                "isn't here, without asking anybody: asks (the store that other hosts share), "
                "unreachable, epoch (the\n"
                "store doesn't know of an invalidation yet), busy (as many imports as may be are "
                "under way), not-shared.\n",
                3, 258, 0, false, check_explain, verb_explain},
        {"trace replay", "FILE...", "what eviction policies would have hit",
                "Token hit % of each policy and capacity; one cache for all tenants, or --split.\n"
                "--below adds a tier that takes what the cache has no room for, and a column for "
                "the "
                "hits in both.\n--expect shows what kvl_expect() is worth to an engine that tells "
                "its waiting requests.\n"
                "--attention-crossover adds the part of the computation that hits save, and "
                "policies "
                "that go by it.\n"
                "--seeds shows by how much results differ with the ids of pages: the standard "
                "deviation of one run.\n"
                "--window-groups and --window-tokens have the model's layers attend to a window, "
                "but "
                "for one group:\n"
                "each block of text has a page of every group. Policies are shown with and without "
                "what an engine tells\n"
                "of pages whose window has passed.\n"
                "With --prefill-rate, --time-per-output-token or --max-running requests take time, "
                "and hold their\n"
                "pages meanwhile; one that finds no room waits until another ends. Columns are "
                "added for the part of\n"
                "the cache that is held in the mean, and for how long a request waits in the mean. "
                "Policies are\n" TRACE_POLICIES TRACE_FILES,
                1, UINT_MAX,
                TRACE_OPTIONS | O(POLICIES) | O(CAPACITIES) | O(SPLIT) | O(BELOW) | O(EXPECT) |
                        O(EXPECT_WRONG) | O(ATTENTION_CROSSOVER) | O(SEEDS) | O(WINDOW_GROUPS) |
                        O(WINDOW_TOKENS) | O(PREFILL_RATE) | O(TIME_PER_OUTPUT_TOKEN) |
                        O(MAX_RUNNING),
                true, NULL, verb_trace_replay},
        {"trace analyze", "FILE...", "lengths, repeats, sessions, hit ratios, page size, demand",
                "A tenant's demand is the pages that its requests use, each for as long as --hold "
                "says after\n"
                "a request used it: the median time between two turns of a session by "
                "default.\n" TRACE_FILES,
                1, UINT_MAX, TRACE_OPTIONS | O(POLICIES) | O(CAPACITIES) | O(HOLD) | O(HTML), true,
                NULL, verb_trace_analyze},
        {"trace recommend", "FILE...", "a configuration for kvleased from a trace",
                "Printed, with its reasons: reservations that cover the p99 of demand (see trace "
                "analyze),\n"
                "limits, the eviction policy and the page size. A trace that names no tenant is of "
                "one that\n"
                "has the file's name.\n" TRACE_FILES,
                1, UINT_MAX, TRACE_OPTIONS | O(HOLD) | O(TOKEN_BYTES), true,
                check_trace_token_bytes, verb_trace_recommend},
        {"trace hosts", "FILE...", "what hosts that share a store would find, load and compute",
                "Each host has a cache of --size; what leaves it is written to a store like a "
                "cluster of Redis,\n"
                "and loaded from there by whoever needs it, where that is faster than to compute "
                "it. The trace\n"
                "is for --group hosts; more hosts are several groups, each with a copy of it that "
                "begins a\n"
                "little later and has texts of its own. NODES is how many the store needs: for its "
                "memory, for\n"
                "what is read and written and for what is asked in the busiest ten seconds; with "
                "so many (or\n"
                "nodes=) the figures before it are. docs/measure/REMOTE.md has the model. Ways of "
                "--affinity are\n"
                "  round-robin: the next host, whatever is asked for\n"
                "  random: any host\n"
                "  session: the host that had the turn before; else the one with least to do\n"
                "  prefix: the host that has most of the text, at least half of it; else the same\n"
                "--store KEY=VALUE,... takes\n" STORE_MODEL_TABLE(STORE_LINE) TRACE_FILES,
                1, UINT_MAX,
                TRACE_OPTIONS | O(HOSTS) | O(GROUP) | O(AFFINITY) | O(STORE) | O(SIZE) |
                        O(TOKEN_BYTES) | O(PREFILL_RATE) | O(POLICIES) | O(BELOW),
                true, check_trace_hosts, verb_trace_hosts},
        {"trace record", "on|off|status", "have the daemon write its traffic as a trace",
                "One JSON line a request, in STATE_DIR/traces: times, lengths, and keys hashed "
                "with a secret\n"
                "that is drawn anew each time; no text, no token. Four files at most, the oldest "
                "goes;\n"
                "--size says how large one may be (the default is 256 MiB). A twentieth of the "
                "file system\n"
                "stays free. Requests without an id are told apart by their pages. status says how "
                "many were\n"
                "lost, and why. Off when kvleased starts.\n",
                1, 1, O(SIZE), false, check_trace_record, verb_trace_record},
        {"warm", "TENANT NAMESPACE [KEY...]",
                "bring cached pages up from below the device, before they are asked for",
                "What is named comes up with all that comes before it in its text: keys (64 "
                "hexadecimal\n"
                "digits each), the pages of a session or of a tag, or everything. In the "
                "background, as far\n"
                "as there is room; nothing is evicted for it, but what is worth less goes down. "
                "Shows how far\n"
                "it has come, and waits for its end: 30s where --timeout says nothing else. Where "
                "nothing is\n"
                "named it shows the one that runs, or ran last. The option warm_tags of a tenant "
                "does the\n"
                "same when kvleased starts.\n",
                2, 2 + WARM_MAX_KEYS, O(SESSION) | O(TAG) | O(ALL) | O(OFF) | O(TIMEOUT), false,
                check_warm, verb_warm},
        {"purge", "TENANT [NAMESPACE]", "drop the cached pages of a tenant or one namespace",
                "Pages that a client still reads go when it releases them.\n", 1, 2, O(REMOVE),
                false, check_purge, verb_purge},
        {"recall", "TENANT", "take memory back from a tenant, also from running clients",
                "Whole extent sets are taken, those first that nobody uses. What is cached in them "
                "goes;\n"
                "clients are told to release what they hold and give the memory back at their next "
                "safe\n"
                "point. What they keep longer than --timeout (the default is revoke_timeout of "
                "kvleased)\n"
                "is quarantined: charged to the tenant and used by nobody, until they let go or "
                "exit.\n"
                "--wait waits as long as that, without --timeout 30s. A recall can't be called "
                "off.\n"
                "Without --size everything is taken: on a terminal it asks first, unless --yes is "
                "given.\n",
                1, 1, O(NAMESPACE) | O(SIZE) | O(TIMEOUT) | O(WAIT) | O(YES), false, check_recall,
                verb_recall},
        {"drain", "", "grant nothing new and wait until all clients have left",
                "New clients, leases and namespaces are refused; lookups and releases go on.\n"
                "kvleased keeps running, draining, until: kvleasectl drain --off\n"
                "Waits 30s where --timeout says nothing else.\n\n"
                "--export: besides, what is cached is written to the servers that "
                "hosts share, what was\n"
                "used lately first, also where nobody found it again; a tenant writes remote_write "
                "bytes a second,\n"
                "and nothing without remote or with remote_write = 0. What was cached before this "
                "host learnt its\n"
                "epoch can't go. kvleased goes on with it when the time is up, until --off; asked "
                "again, it is waited\n"
                "for again.\n",
                0, 0, O(TIMEOUT) | O(OFF) | O(EXPORT), false, check_drain, verb_drain},
        {"config show", "", "options in force, where they come from, and what waits",
                "The same as 'config' alone. VALUE is in force. FROM says where what is "
                "configured stands: a file's\n"
                "line, the command line of kvleased, 'kvleasectl' where tenants set changed it. "
                "Where that isn't\n"
                "in force it stands in WAITING: until a restart, or until a reload finds it "
                "possible (a reservation\n"
                "that fits, a limit that goes together with it). Files are as they were read "
                "last: kvleasectl reload\n"
                "reads them anew.\n",
                0, 0, O(TENANT) | O(CHANGED), false, NULL, verb_config_show, &noun_options.table},
        {"reload", "", "put a changed configuration in force",
                "Reads the configuration's files again, as systemctl reload does, and says what "
                "has changed,\n"
                "what waits for a restart (pending), and what can't be as things are (refused). A "
                "file with a\n"
                "mistake changes nothing. Exits with 1 where something was refused.\n",
                0, 0, 0, false, NULL, verb_reload},
        {"restart", "", "restart kvleased, with all that it holds",
                "Clients go on with what they have; what they publish meanwhile waits.\n"
                "Somebody must keep memory for the next kvleased and start it: systemd\n"
                "(FileDescriptorStoreMax= and Restart= of kvleased.service) or kvleased --keep.\n"
                "Does nothing where something would be lost, as where the program that was\n"
                "installed meanwhile doesn't read what this one keeps, or the configuration's\n"
                "files were changed so that not all is taken over; --check says what. The\n"
                "program that comes next reads the configuration, too (--check-config), as far\n"
                "as root or kvleased's own user asks.\n"
                "Waits 30s where --timeout says nothing else.\n",
                0, 0, O(CHECK) | O(BINARY) | O(FORCE) | O(TIMEOUT), false, check_restart,
                verb_restart},
        {"check", "", "check every invariant of the daemon's state",
                "Prints the first violation, if any: a bug of kvleased worth a report.\n", 0, 0, 0,
                false, NULL, verb_check},
        {"doctor", "", "what of this host keeps kvleased from its work, and what to do about it",
                "Looks at the GPU's driver, memory, limits, sockets, disk, configuration and "
                "unit, with and\n"
                "without a kvleased that runs, and asks the servers of each [remote] how they are "
                "set up. Each\n"
                "finding says what was found, why it matters and what to do; what can't be read is "
                "said to be\n"
                "not checked: root sees most. Changes nothing. --all also shows what is in order. "
                "--root\n"
                "looks below a directory, as in a container that has its host's files there; "
                "sockets and\n"
                "files are named without it.\n"
                "Exits with 0 where nothing is to be done, 7 with warnings alone, 8 with errors.\n",
                0, 0, O(ALL) | O(BINARY) | O(ROOT), true, NULL, verb_doctor},
        {"version", "", "versions of kvleasectl and of the daemon", "Works without the daemon.\n",
                0, 0, 0, true, NULL, verb_version},
};
const size_t n_verbs = ARRAY_SIZE(verbs);

/* ---- finding --------------------------------------------------------------------------------- */

static const char *verb_name(size_t i)
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
        near = nearest_name(name, n_verbs, verb_name);
        if (near)
                return fail(CTL_USAGE, "there is no verb '%s': did you mean '%s'?", name, near);
        return fail(CTL_USAGE, "there is no verb '%s': kvleasectl --help lists them", name);
}

#define NAME_MAX_LEN 31

/* Returns the edits (insert, drop, replace a letter) between two names of at most NAME_MAX_LEN
 * bytes. */
static unsigned edit_distance(const char *a, const char *b)
{
        unsigned row[NAME_MAX_LEN + 1];
        size_t n = strlen(b);

        assert(n <= NAME_MAX_LEN);
        for (size_t j = 0; j <= n; j++)
                row[j] = (unsigned)j;
        for (size_t i = 1; a[i - 1]; i++) {
                unsigned diagonal = row[0];

                row[0] = (unsigned)i;
                for (size_t j = 1; j <= n; j++) {
                        unsigned replaced = diagonal + (a[i - 1] != b[j - 1]);

                        diagonal = row[j];
                        row[j] = MIN(row[j], row[j - 1]) + 1;
                        row[j] = MIN(row[j], replaced);
                }
        }
        return row[n];
}

const char *nearest_name(const char *wrong, size_t n, const char *(*name)(size_t i))
{
        const char *best = NULL;
        unsigned best_distance = 3; /* two wrong letters are a typing error, three another word */
        size_t len = strlen(wrong);

        if (len > NAME_MAX_LEN)
                return NULL;
        for (size_t i = 0; i < n; i++)
                if (len >= 2 && strncmp(wrong, name(i), len) == 0)
                        return name(i);
        for (size_t i = 0; i < n; i++) {
                unsigned d = edit_distance(wrong, name(i));

                /* If half of a short word is wrong it is another word, too. */
                if (d < best_distance && d <= len / 2) {
                        best = name(i);
                        best_distance = d;
                }
        }
        return best;
}
