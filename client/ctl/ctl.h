/*
 * One run of kvleasectl: what the command line asked for, how it ends, where its failures go.
 *
 * Results go to stdout, failures as one sentence to stderr. A verb returns its exit code; whoever
 * meets a failure prints it (fail()) and everybody above forwards the code. One thread.
 */
#ifndef KVL_CTL_CTL_H
#define KVL_CTL_CTL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"
#include "client/ctl/show.h"

/* X(NAME, exit code, meaning), documented by --help. The numbers never change meaning. */
#define CTL_EXIT_TABLE(X)                                                           \
        X(OK, 0, "done")                                                            \
        X(REFUSED, 1, "kvleased refused, or the result could not be written")       \
        X(USAGE, 2, "the command line is wrong; nothing was sent")                  \
        X(UNREACHABLE, 3, "kvleased could not be reached, or the connection broke") \
        X(TIMEOUT, 4, "no answer in time; drain, recall, warm: not yet complete")   \
        X(VIOLATION, 5, "check found a broken invariant")                           \
        X(LOSS, 6, "restart would lose pages, sessions or a tenant")                \
        X(WARNING, 7, "doctor found warnings and no error")                         \
        X(ERROR, 8, "doctor found an error")

enum ctl_exit {
#define X(name, code, meaning) CTL_##name = code,
        CTL_EXIT_TABLE(X)
#undef X
};

/* X(NAME, name, value's name or NULL for a switch, accepted by every verb, help) */
#define CTL_OPTION_TABLE(X)                                                                        \
        X(SOCKET, "socket", "PATH", true, "use this admin.sock or monitor.sock of kvleased")       \
        X(RUNTIME_DIR, "runtime-dir", "DIR", true,                                                 \
                "use DIR/admin.sock, or DIR/monitor.sock to read only")                            \
        X(JSON, "json", NULL, true, "print one JSON object; sizes in bytes")                       \
        X(BYTES, "bytes", NULL, true, "print sizes and times as plain numbers")                    \
        X(NO_HEADINGS, "no-headings", NULL, true, "print lists without their first line")          \
        X(HELP, "help", NULL, true, "or -h: show this help, or that of a verb; with --json all")   \
        X(VERSION, "version", NULL, true, "or -V: show the version of kvleasectl")                 \
        X(TENANT, "tenant", "NAME", false, "show this tenant only")                                \
        X(FORCE, "force", NULL, false, "continue although cached pages are lost")                  \
        X(CHECK, "check", NULL, false, "only report pages and sessions that are kept or lost")     \
        X(BINARY, "binary", "PATH", false, "examine this program as the next kvleased")            \
        X(REMOVE, "remove", NULL, false, "also remove namespaces that no client has open")         \
        X(TIMEOUT, "timeout", "TIME", false, "wait at most this long (\"90s\", \"5min\")")         \
        X(OFF, "off", NULL, false, "cancel")                                                       \
        X(EXPORT, "export", NULL, false, "write cached pages to the stores that hosts share")      \
        X(NAMESPACE, "namespace", "NAME", false, "this namespace only")                            \
        X(SIZE, "size", "SIZE", false, "at least this much (\"4GiB\") instead of everything")      \
        X(WAIT, "wait", NULL, false, "wait until clients have given the memory back")              \
        X(SESSION, "session", "ID", false,                                                         \
                "this session only, with the id of kvleasectl sessions")                           \
        X(TAG, "tag", "N", false, "pages that were published with this tag")                       \
        X(ALL, "all", NULL, false, "show everything")                                              \
        X(IDLE, "idle", "TIME", false, "sessions that were not used for this long (\"1d\")")       \
        X(POLICIES, "policies", "LIST", false, "eviction policies (\"lru,pgi\", \"all\")")         \
        X(CAPACITIES, "capacities", "LIST", false,                                                 \
                "cache sizes: parts of all blocks, or pages (\"1%,5%,1000\")")                     \
        X(JOBS, "jobs", "N", false, "number of processes; by default one for each CPU")            \
        X(CHAIN, "chain", NULL, false, "ids name the content of a block alone, not its prefix")    \
        X(SKIP_BAD, "skip-bad", NULL, false, "skip lines that can't be read")                      \
        X(TIME_UNIT, "time-unit", "UNIT", false,                                                   \
                "unit of the trace's timestamps: ms (the default), s, us or ns")                   \
        X(BLOCK_TOKENS, "block-tokens", "N", false,                                                \
                "tokens of a block, if the trace's lines don't show it")                           \
        X(SPLIT, "split", NULL, false, "give each tenant an equal static part of the cache")       \
        X(BELOW, "below", "N", false, "add a lower tier with N times the pages of the cache")      \
        X(SEEDS, "seeds", "N", false, "run N times with other ids; show mean and deviation")       \
        X(FROM, "from", "PERCENT", false, "don't count this first part of the requests")           \
        X(PREFILL_RATE, "prefill-rate", "N", false,                                                \
                "tokens a second that are computed if they aren't found")                          \
        X(TIME_PER_OUTPUT_TOKEN, "time-per-output-token", "TIME", false,                           \
                "decode a token in this time (\"30ms\"); requests hold their pages")               \
        X(MAX_RUNNING, "max-running", "N", false, "run at most N requests at the same time")       \
        X(ATTENTION_CROSSOVER, "attention-crossover", "TOKENS", false,                             \
                "show saved computation too, and policies that use it")                            \
        X(WINDOW_GROUPS, "window-groups", "N", false,                                              \
                "groups of layers with a window, beside one of full attention")                    \
        X(WINDOW_TOKENS, "window-tokens", "N", false, "tokens of such a window")                   \
        X(EXPECT, "expect", "N", false, "announce the next N requests, which wait in a queue")     \
        X(EXPECT_WRONG, "expect-wrong", "PERCENT", false, "announce this part of them wrongly")    \
        X(HINTS, "hints", "LIST", false,                                                           \
                "hint whether texts continue; so many percent are right (\"50,80\")")              \
        X(HINT_TIMES, "hint-times", NULL, false, "hints also say when a text continues")           \
        X(HOLD, "hold", "TIME", false, "keep pages of a request in use for this long (\"60s\")")   \
        X(HTML, "html", "FILE", false, "also write a report with plots to this file")              \
        X(TOKEN_BYTES, "token-bytes", "SIZE", false, "K/V bytes of one token (\"128KiB\")")        \
        X(HOSTS, "hosts", "LIST", false, "numbers of hosts (\"10,100,1000\")")                     \
        X(GROUP, "group", "N", false, "hosts that share one copy of the trace; by default 10")     \
        X(AFFINITY, "affinity", "LIST", false, "ways to choose a host for a request (\"prefix\")") \
        X(STORE, "store", "LIST", false, "properties of the store (\"size=1TiB,evict=lfu\")")      \
        X(ROOT, "root", "DIR", false, "examine the host whose files are below this directory")     \
        X(VIEW, "view", "NAME", false, "show tenants, namespaces, clients or regions")             \
        X(SORT, "sort", "COLUMN", false, "sort by this column of the view")                        \
        X(FILTER, "filter", "TEXT", false, "only lines with this text in a name")                  \
        X(INTERVAL, "interval", "SECONDS", false,                                                  \
                "time between two lines: 0.1 to 3600, by default 1")                               \
        X(BATCH, "batch", NULL, false, "print plain text, for logs and pipes")                     \
        X(COUNT, "count", "N", false, "end after N")                                               \
        X(FOLLOW, "follow", NULL, false, "continue with new events")                               \
        X(KIND, "kind", "LIST", false, "only events of these kinds (\"evicted,refused\")")         \
        X(SINCE, "since", "TIME", false, "only events of the last TIME (\"10min\")")               \
        X(YES, "yes", NULL, false, "don't ask before much of the cache is lost")

enum ctl_option {
#define X(name, ...) CTL_OPTION_##name,
        CTL_OPTION_TABLE(X)
#undef X
                CTL_N_OPTIONS
};

#define CTL_OPTION_BIT(option) (UINT64_C(1) << (option))

struct admin;
struct verb;

struct ctl {
        const char *
                options[CTL_N_OPTIONS]; /* value, "" for a switch, NULL where not given; borrowed */
        char **args;                    /* what follows the verb; borrowed from argv */
        unsigned n_args;
        const struct verb *verb;   /* static */
        struct show_format format; /* from the options */
        char *socket_path;         /* owned */
        struct admin *admin;       /* owned; NULL for verbs that open it themselves */
};

/* Prints "kvleasectl: SENTENCE" to stderr, unprintable bytes as \xHH, and returns `code`. */
KVL_PRINTF(2, 3) int fail(enum ctl_exit code, const char *format, ...);

/* Prints "--NAME: 'VALUE' is not EXPECTED". Returns CTL_USAGE. */
int fail_value(const struct ctl *ctl, enum ctl_option option, const char *expected);

/*
 * From now on sentences of the calling thread go to *ret_sentence (owned by the caller; the one
 * before is freed) rather than to stderr: a screen is drawn there. NULL: to stderr again.
 */
void fail_capture(char **ret_sentence);

/* Returns `p`. Without memory (NULL) it prints a sentence and ends the program. */
void *need(void *p);

/* Returns the text that vprintf() would print; owned by the caller. */
KVL_PRINTF(1, 0) char *text_format(const char *format, va_list ap);

/* Owned copy that is safe on any terminal: bytes stand as \xHH where they are no characters of the
 * locale, or such as a terminal obeys. */
char *text_printable(const char *text);

#endif
