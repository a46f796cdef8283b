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
        X(TIMEOUT, 4, "no answer in time; drain, recall, warm: not all is done")    \
        X(VIOLATION, 5, "check found a broken invariant")                           \
        X(LOSS, 6, "restart: something would be lost")                              \
        X(WARNING, 7, "doctor has warnings, and found no error")                    \
        X(ERROR, 8, "doctor found an error")

enum ctl_exit {
#define X(name, code, meaning) CTL_##name = code,
        CTL_EXIT_TABLE(X)
#undef X
};

/* X(NAME, name, value's name or NULL for a switch, accepted by every verb, help) */
#define CTL_OPTION_TABLE(X)                                                                     \
        X(SOCKET, "socket", "PATH", true, "admin.sock or monitor.sock of kvleased")             \
        X(RUNTIME_DIR, "runtime-dir", "DIR", true,                                              \
                "DIR/admin.sock, or for who only reads DIR/monitor.sock")                       \
        X(JSON, "json", NULL, true, "print one JSON object; numbers in bytes and seconds")      \
        X(BYTES, "bytes", NULL, true, "print sizes and times as plain numbers")                 \
        X(NO_HEADINGS, "no-headings", NULL, true, "print lists without their first line")       \
        X(HELP, "help", NULL, true,                                                             \
                "or -h: show this help, or that of the verb given; --json: all of it")          \
        X(VERSION, "version", NULL, true, "or -V: show the version of kvleasectl")              \
        X(TENANT, "tenant", "NAME", false, "only those of this tenant")                         \
        X(CHANGED, "changed", NULL, false, "only what isn't the default, or waits")             \
        X(FORCE, "force", NULL, false, "also where that loses cached pages")                    \
        X(CHECK, "check", NULL, false, "only say what would be kept and lost")                  \
        X(BINARY, "binary", "PATH", false, "the kvleased that comes next")                      \
        X(REMOVE, "remove", NULL, false, "also forget namespaces that nobody has open")         \
        X(TIMEOUT, "timeout", "TIME", false, "how long at most (\"90s\", \"5min\")")            \
        X(OFF, "off", NULL, false, "call it off")                                               \
        X(EXPORT, "export", NULL, false, "write what is cached to the store that hosts share")  \
        X(NAMESPACE, "namespace", "NAME", false, "only of this namespace")                      \
        X(SIZE, "size", "SIZE", false, "at least so much (\"4GiB\"), not everything")           \
        X(WAIT, "wait", NULL, false, "wait until clients have given it back")                   \
        X(SESSION, "session", "ID", false, "only this one, as kvleasectl sessions shows it")    \
        X(TAG, "tag", "N", false, "pages that were published with this tag")                    \
        X(ALL, "all", NULL, false, "warm: everything below the device; doctor: what is ok")     \
        X(IDLE, "idle", "TIME", false, "only those that nobody has used for so long (\"1d\")")  \
        X(POLICIES, "policies", "LIST", false, "eviction policies (\"lru,pgi\", \"all\")")      \
        X(CAPACITIES, "capacities", "LIST", false,                                              \
                "cache sizes: parts of all blocks, or pages (\"1%,5%,1000\")")                  \
        X(JOBS, "jobs", "N", false, "processes; the default is one for each CPU")               \
        X(CHAIN, "chain", NULL, false, "ids name the content of a block alone, not its prefix") \
        X(SKIP_BAD, "skip-bad", NULL, false, "leave lines out that can't be read")              \
        X(TIME_UNIT, "time-unit", "UNIT", false,                                                \
                "of the trace's timestamps: ms (the default), s, us or ns")                     \
        X(BLOCK_TOKENS, "block-tokens", "N", false,                                             \
                "tokens of the trace's blocks, if it can't be told from its lines")             \
        X(SPLIT, "split", NULL, false, "an equal static part of the cache for each tenant")     \
        X(BELOW, "below", "N", false, "a tier below with N times the pages of the cache")       \
        X(SEEDS, "seeds", "N", false, "so many runs, each with other ids: mean and deviation")  \
        X(PREFILL_RATE, "prefill-rate", "N", false,                                             \
                "tokens a second in which a request's input is computed, if it isn't found")    \
        X(TIME_PER_OUTPUT_TOKEN, "time-per-output-token", "TIME", false,                        \
                "in which a request decodes a token (\"30ms\"), and holds its pages")           \
        X(MAX_RUNNING, "max-running", "N", false, "requests that run at the same time")         \
        X(ATTENTION_CROSSOVER, "attention-crossover", "TOKENS", false,                          \
                "also what hits save of computation, and policies that go by it")               \
        X(WINDOW_GROUPS, "window-groups", "N", false,                                           \
                "groups of layers with a window, beside one of full attention")                 \
        X(WINDOW_TOKENS, "window-tokens", "N", false, "that these layers attend to")            \
        X(EXPECT, "expect", "N", false, "the next N requests wait in a queue that is known")    \
        X(EXPECT_WRONG, "expect-wrong", "PERCENT", false,                                       \
                "so many of these are told wrong, as texts that nobody asks for again")         \
        X(HOLD, "hold", "TIME", false, "how long a request keeps its pages in use (\"60s\")")   \
        X(HTML, "html", "FILE", false, "also write a report with plots to this file")           \
        X(TOKEN_BYTES, "token-bytes", "SIZE", false, "bytes of K/V of one token (\"128KiB\")")  \
        X(HOSTS, "hosts", "LIST", false, "so many hosts (\"10,100,1000\")")                     \
        X(GROUP, "group", "N", false, "hosts that one copy of the trace is for; else 10")       \
        X(AFFINITY, "affinity", "LIST", false, "how requests find their host (\"prefix\")")     \
        X(STORE, "store", "LIST", false, "what the store is like (\"size=1TiB,evict=lfu\")")    \
        X(ROOT, "root", "DIR", false, "the host whose files are below this directory")          \
        X(VIEW, "view", "NAME", false, "tenants, namespaces, clients or regions")               \
        X(SORT, "sort", "COLUMN", false, "by this column of the view")                          \
        X(FILTER, "filter", "TEXT", false, "only lines with this text in a name")               \
        X(INTERVAL, "interval", "SECONDS", false, "between two looks: 0.1 to 3600, 1 else")     \
        X(BATCH, "batch", NULL, false, "print plain text, for logs and pipes")                  \
        X(COUNT, "count", "N", false,                                                           \
                "looks of top, and no more; the last events, or so many of --follow")           \
        X(FOLLOW, "follow", NULL, false, "go on with what happens from now on")                 \
        X(KIND, "kind", "LIST", false, "only events of these kinds (\"evicted,refused\")")      \
        X(SINCE, "since", "TIME", false, "only those of the last TIME (\"10min\")")             \
        X(YES, "yes", NULL, false, "don't ask, although much that is cached goes")

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
