/*
 * kvleasectl from the outside: text, JSON, requests and exit code of every verb and every way to
 * fail, compared with tests/golden/NAME. KVLEASE_GOLDEN_UPDATE=1 writes these files anew
 * (tests/golden/update.sh). The exit codes are also listed here, so that no update changes them.
 */
#include "tests/unit/test-support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/fd.h"
#include "kvlease-version.h"
#include "tests/unit/ctl-fake.h"

/* Paths given by meson. */
#ifndef KVLEASECTL
#error "KVLEASECTL is the program's path"
#endif
#ifndef GOLDEN_DIR
#error "GOLDEN_DIR is the directory of the expected results"
#endif

struct golden {
        const char *name;
        enum fake_mode mode;
        int exit_code;
        const char *args[10];
        const char *env; /* as in struct fake_run */
};

#define KEY(last) "00112233445566778899aabbccddeeff00112233445566778899aabbccddee" last

#define NARROW "KVLEASE_COLUMNS=80"

static const struct golden goldens[] = {
        {"help", FAKE_ABSENT, 0, {"--help"}},
        {"help-verb", FAKE_ABSENT, 0, {"tenants", "remove", "--help"}},
        {"version-short", FAKE_ABSENT, 0, {"-V"}},
        {"help-short", FAKE_ABSENT, 0, {"check", "-h"}},
        {"option-shortened", FAKE_NORMAL, 0, {"evictions", "--no-h", "--ten=chat"}},
        {"option-behind", FAKE_NORMAL, 0, {"evictions", "--no-headings"}, "POSIXLY_CORRECT=1"},
        {"option-ended", FAKE_NORMAL, 2, {"tenants", "show", "--", "--json"}},
        {"version-option", FAKE_ABSENT, 0, {"--version"}},
        {"version", FAKE_NORMAL, 0, {"version"}},
        {"version-json", FAKE_NORMAL, 0, {"version", "--json"}},
        {"version-alone", FAKE_ABSENT, 0, {"version"}},
        {"version-alone-json", FAKE_ABSENT, 0, {"version", "--json"}},
        {"version-slow-json", FAKE_SLOW, 0, {"version", "--json"}},
        {"status", FAKE_NORMAL, 0, {"status"}},
        {"status-slow", FAKE_SLOW, 0, {"status"}},
        {"status-all", FAKE_NORMAL, 0, {"status", "--all"}},
        {"status-json", FAKE_NORMAL, 0, {"status", "--json"}},
        {"status-read-only", FAKE_LINGERING, 0, {"status"}},
        {"status-well", FAKE_WELL, 0, {"status"}},
        {"status-empty", FAKE_EMPTY, 0, {"status"}},
        {"status-empty-json", FAKE_EMPTY, 0, {"status", "--json"}},
        {"devices", FAKE_NORMAL, 0, {"devices"}},
        {"devices-json", FAKE_NORMAL, 0, {"devices", "--json"}},
        {"tenants", FAKE_NORMAL, 0, {"tenants"}},
        {"tenants-bytes", FAKE_NORMAL, 0, {"tenants", "list", "--bytes", "--no-headings"}},
        {"tenants-json", FAKE_NORMAL, 0, {"tenants", "list", "--json"}},
        {"tenants-empty", FAKE_EMPTY, 0, {"tenants"}},
        {"tenants-empty-json", FAKE_EMPTY, 0, {"tenants", "--json"}},
        {"tenants-show", FAKE_NORMAL, 0, {"tenants", "show", "search"}},
        {"tenants-show-json", FAKE_NORMAL, 0, {"tenants", "show", "chat", "--json"}},
        {"tenants-show-unknown", FAKE_NORMAL, 1, {"tenants", "show", "nobody"}},
        {"tenants-add", FAKE_NORMAL, 0, {"tenants", "add", "new", "limit=4GiB", "weight=200"}},
        {"tenants-add-json", FAKE_NORMAL, 0, {"tenants", "add", "new", "limit=4GiB", "--json"}},
        {"tenants-set", FAKE_NORMAL, 0, {"tenants", "set", "search", "limit=8GiB"}},
        {"tenants-set-below", FAKE_NORMAL, 0, {"tenants", "set", "search", "limit=512MiB"}},
        {"tenants-set-below-json", FAKE_NORMAL, 0,
                {"tenants", "set", "search", "limit=512MiB", "--json"}},
        {"tenants-set-json", FAKE_NORMAL, 0, {"--json", "tenants", "set", "search", "limit=1"}},
        {"tenants-remove", FAKE_NORMAL, 0, {"tenants", "remove", "chat", "--force"}},
        {"tenants-remove-json", FAKE_NORMAL, 0, {"tenants", "remove", "chat", "--json"}},
        {"namespaces", FAKE_NORMAL, 0, {"namespaces"}},
        {"namespaces-json", FAKE_NORMAL, 0, {"namespaces", "--tenant=search", "--json"}},
        {"clients", FAKE_NORMAL, 0, {"clients", "--tenant", "search"}},
        {"clients-json", FAKE_NORMAL, 0, {"clients", "--json"}},
        {"regions", FAKE_NORMAL, 0, {"regions"}},
        {"regions-bytes", FAKE_NORMAL, 0, {"regions", "--bytes", "--tenant=search"}},
        {"regions-json", FAKE_NORMAL, 0, {"regions", "--json"}},
        {"regions-empty", FAKE_EMPTY, 0, {"regions"}},
        {"regions-empty-json", FAKE_EMPTY, 0, {"regions", "--json"}},
        {"regions-help", FAKE_ABSENT, 0, {"regions", "--help"}},
        {"config", FAKE_NORMAL, 0, {"config"}},
        {"config-all", FAKE_NORMAL, 0, {"config", "show", "--all", "--tenant=search"}},
        {"config-json", FAKE_NORMAL, 0, {"config", "show", "--json"}},
        {"config-empty", FAKE_EMPTY, 0, {"config", "show"}},
        {"config-narrow", FAKE_NORMAL, 0, {"config", "show"}, NARROW},
        {"config-help", FAKE_ABSENT, 0, {"config", "show", "--help"}},
        {"config-unknown", FAKE_ABSENT, 2, {"config", "shwo"}},
        {"evictions", FAKE_NORMAL, 0, {"evictions"}},
        {"evictions-json", FAKE_NORMAL, 0, {"evictions", "--json"}},
        {"evictions-empty", FAKE_EMPTY, 0, {"evictions"}},
        {"events", FAKE_NORMAL, 0, {"events"}},
        {"events-bytes", FAKE_NORMAL, 0,
                {"events", "--bytes", "--kind", "evicted,refused,evicted", "--tenant=chat"}},
        {"events-json", FAKE_NORMAL, 0, {"events", "--json", "--namespace", "qwen"}},
        {"events-last", FAKE_NORMAL, 0, {"events", "--count", "1", "--since", "10min"}},
        {"events-follow", FAKE_NORMAL, 0, {"events", "--follow", "--count=9"}},
        {"events-follow-json", FAKE_NORMAL, 0, {"events", "--follow", "--count=8", "--json"}},
        {"events-empty", FAKE_EMPTY, 0, {"events"}},
        {"events-help", FAKE_ABSENT, 0, {"events", "--help"}},
        {"usage-event-kind", FAKE_ABSENT, 2, {"events", "--kind", "evicted,eaten"}},
        {"usage-event-count", FAKE_ABSENT, 2, {"events", "--count", "0"}},
        {"usage-event-since", FAKE_ABSENT, 2, {"events", "--since", "yesterday"}},
        {"evictions-empty-json", FAKE_EMPTY, 0, {"evictions", "--json"}},
        {"top", FAKE_NORMAL, 0, {"top", "--batch", "--count=1", "--interval=0.1"}},
        {"top-bytes", FAKE_NORMAL, 0,
                {"top", "--batch", "--count=1", "--interval=100ms", "--view=regions", "--bytes",
                        "--no-headings"}},
        {"top-clients", FAKE_NORMAL, 0,
                {"top", "--batch", "--count=1", "--interval=0.1", "--view=clients", "--filter",
                        "EVIL"}},
        {"top-namespaces", FAKE_NORMAL, 0,
                {"top", "--batch", "--count=1", "--interval=0.1", "--view=namespaces",
                        "--sort=pinned", "--tenant=search"}},
        {"top-empty", FAKE_EMPTY, 0, {"top", "--batch", "--count=2", "--interval=0.1"}},
        {"top-refused", FAKE_REFUSING, 1, {"top", "--batch"}},
        {"top-absent", FAKE_ABSENT, 3, {"top", "--batch"}},
        {"top-help", FAKE_ABSENT, 0, {"top", "--help"}},
        {"tenants-set-help", FAKE_ABSENT, 0, {"tenants", "set", "--help"}},
        {"tenants-set-pinned", FAKE_NORMAL, 0,
                {"tenants", "set", "search", "class=pinned", "reserve=2GiB", "sizer=dry-run"}},
        {"sessions", FAKE_NORMAL, 0, {"sessions"}},
        {"sessions-json", FAKE_NORMAL, 0, {"sessions", "list", "--tenant=search", "--json"}},
        {"sessions-empty", FAKE_EMPTY, 0, {"sessions"}},
        {"sessions-empty-json", FAKE_EMPTY, 0, {"sessions", "--json"}},
        {"sessions-purge", FAKE_NORMAL, 0, {"sessions", "purge", "search"}},
        {"sessions-purge-some", FAKE_NORMAL, 0,
                {"sessions", "purge", "search", "--namespace=llama", "--session=0x010220ff",
                        "--idle=1500ms", "--json"}},
        {"sessions-purge-longest", FAKE_NORMAL, 0,
                {"sessions", "purge", "search", "--idle=18446744073s"}},
        {"sessions-purge-help", FAKE_ABSENT, 0, {"sessions", "purge", "--help"}},
        {"sets", FAKE_NORMAL, 0, {"sets"}},
        {"sets-json", FAKE_NORMAL, 0, {"sets", "--json"}},
        {"codecs", FAKE_NORMAL, 0, {"codecs"}},
        {"exchanges", FAKE_NORMAL, 0, {"exchanges"}},
        {"exchanges-json", FAKE_NORMAL, 0, {"exchanges", "--tenant=search", "--json"}},
        {"narrow-exchanges", FAKE_NORMAL, 0, {"exchanges"}, NARROW},
        {"remote", FAKE_NORMAL, 0, {"remote"}},
        {"remote-json", FAKE_NORMAL, 0, {"remote", "rack", "--tenant=search", "--json"}},
        {"remote-one", FAKE_NORMAL, 0, {"remote", "spare"}},
        {"remote-unknown", FAKE_NORMAL, 1, {"remote", "rock"}},
        {"remote-empty", FAKE_EMPTY, 0, {"remote"}},
        {"remote-refused", FAKE_REFUSING, 1, {"remote"}},
        {"remote-help", FAKE_ABSENT, 0, {"remote", "--help"}},
        {"narrow-remote", FAKE_NORMAL, 0, {"remote"}, NARROW},
        {"codecs-json", FAKE_NORMAL, 0, {"codecs", "--tenant=search", "--json"}},
        {"explain", FAKE_NORMAL, 0,
                {"explain", "search", "llama", KEY("01"), KEY("02"), KEY("03"), KEY("04")}},
        {"explain-json", FAKE_NORMAL, 0,
                {"explain", "search", "llama", KEY("01"), KEY("02"), "--json"}},
        {"explain-none", FAKE_EMPTY, 3, {"explain", "search", "llama", KEY("01")}},
        {"trace-replay-help", FAKE_ABSENT, 0, {"trace", "replay", "--help"}},
        {"trace-analyze-help", FAKE_ABSENT, 0, {"trace", "analyze", "--help"}},
        {"trace-recommend-help", FAKE_ABSENT, 0, {"trace", "recommend", "--help"}},
        {"trace-hosts-help", FAKE_ABSENT, 0, {"trace", "hosts", "--help"}},
        {"trace-record-on", FAKE_NORMAL, 0, {"trace", "record", "on", "--size=64MiB"}},
        {"trace-record-off", FAKE_NORMAL, 0, {"trace", "record", "off", "--json"}},
        {"trace-record-status", FAKE_EMPTY, 0, {"trace", "record", "status"}},
        {"warm", FAKE_NORMAL, 0, {"warm", "search", "llama", "--tag", "7"}},
        {"warm-keys-json", FAKE_NORMAL, 0,
                {"warm", "search", "llama", KEY("01"), KEY("02"), "--json"}},
        {"warm-keys", FAKE_LEAVING, 0, {"warm", "search", "llama", KEY("01")}},
        {"warm-session", FAKE_NORMAL, 0, {"warm", "search", "llama", "--session=0x010220ff"}},
        {"warm-all", FAKE_EMPTY, 0, {"warm", "search", "llama", "--all"}},
        {"warm-status", FAKE_LINGERING, 0, {"warm", "search", "llama"}},
        {"warm-off", FAKE_NORMAL, 0, {"warm", "search", "llama", "--off"}},
        {"warm-timeout", FAKE_LINGERING, 4,
                {"warm", "search", "llama", "--all", "--timeout=150ms"}},
        {"warm-help", FAKE_ABSENT, 0, {"warm", "--help"}},
        {"purge", FAKE_NORMAL, 0, {"purge", "search"}},
        {"purge-kept", FAKE_NORMAL, 0, {"purge", "search", "llama", "--remove"}},
        {"purge-json", FAKE_NORMAL, 0, {"purge", "search", "llama", "--remove", "--json"}},
        {"purge-all-json", FAKE_NORMAL, 0, {"purge", "search", "--json"}},
        {"recall", FAKE_NORMAL, 0, {"recall", "search"}},
        {"recall-json", FAKE_NORMAL, 0, {"recall", "search", "--json"}},
        {"recall-some", FAKE_NORMAL, 0,
                {"recall", "search", "--namespace", "llama", "--size=4GiB", "--timeout=90s"}},
        {"recall-help", FAKE_ABSENT, 0, {"recall", "--help"}},
        {"recall-wait", FAKE_LEAVING, 0, {"recall", "search", "--wait"}},
        {"recall-wait-json", FAKE_LEAVING, 0,
                {"recall", "search", "--namespace=llama", "--wait", "--json"}},
        {"recall-timeout", FAKE_NORMAL, 4, {"recall", "search", "--wait", "--timeout", "250ms"}},
        {"recall-timeout-json", FAKE_NORMAL, 4,
                {"recall", "search", "--wait", "--timeout", "1ms", "--json"}},
        {"doctor-help", FAKE_ABSENT, 0, {"doctor", "--help"}},
        {"usage-doctor", FAKE_ABSENT, 2, {"doctor", "kvleased"}},
        {"drain", FAKE_LEAVING, 0, {"drain"}},
        {"drain-json", FAKE_LEAVING, 0, {"drain", "--json"}},
        {"drain-off", FAKE_NORMAL, 0, {"drain", "--off"}},
        {"drain-off-json", FAKE_NORMAL, 0, {"drain", "--off", "--json"}},
        {"drain-timeout", FAKE_NORMAL, 4, {"drain", "--timeout", "300ms"}},
        {"drain-timeout-json", FAKE_NORMAL, 4, {"drain", "--timeout", "0", "--json"}},
        {"drain-lingering", FAKE_LINGERING, 4, {"drain", "--timeout", "0"}},
        {"drain-help", FAKE_ABSENT, 0, {"drain", "--help"}},
        {"drain-export", FAKE_LEAVING, 0, {"drain", "--export"}},
        {"drain-export-json", FAKE_LEAVING, 0, {"drain", "--export", "--json"}},
        {"drain-export-timeout", FAKE_NORMAL, 4, {"drain", "--export", "--timeout=0"}},
        {"drain-export-ended", FAKE_EMPTY, 1, {"drain", "--export"}},
        {"drain-export-refused", FAKE_REFUSING, 1, {"drain", "--export"}},
        {"check", FAKE_NORMAL, 0, {"check"}},
        {"check-json", FAKE_NORMAL, 0, {"check", "--json"}},
        {"check-violation", FAKE_CORRUPT, 5, {"check"}},
        {"check-violation-json", FAKE_CORRUPT, 5, {"check", "--json"}},
        /* A terminal of 80 columns, and one that is wider than most but not wide enough. */
        {"narrow-devices", FAKE_NORMAL, 0, {"devices"}, NARROW},
        {"narrow-tenants", FAKE_NORMAL, 0, {"tenants"}, NARROW},
        {"narrow-namespaces", FAKE_NORMAL, 0, {"namespaces"}, NARROW},
        {"narrow-clients", FAKE_NORMAL, 0, {"clients"}, NARROW},
        {"narrow-regions", FAKE_NORMAL, 0, {"regions"}, NARROW},
        {"narrow-sessions", FAKE_NORMAL, 0, {"sessions"}, NARROW},
        {"narrow-sets", FAKE_NORMAL, 0, {"sets"}, NARROW},
        {"narrow-codecs", FAKE_NORMAL, 0, {"codecs"}, NARROW},
        {"narrow-evictions", FAKE_NORMAL, 0, {"evictions"}, NARROW},
        {"narrow-explain", FAKE_NORMAL, 0,
                {"explain", "search", "llama", KEY("01"), KEY("02"), KEY("03"), KEY("04")}, NARROW},
        {"narrow-status", FAKE_NORMAL, 0, {"status", "--all"}, NARROW},
        {"wide-clients", FAKE_NORMAL, 0, {"clients"}, "KVLEASE_COLUMNS=120"},
        {"narrow-no-headings", FAKE_NORMAL, 0, {"clients", "--no-headings"}, NARROW},
        /* The command line. */
        {"usage-none", FAKE_ABSENT, 2, {NULL}},
        {"usage-verb", FAKE_ABSENT, 2, {"stauts"}},
        {"usage-verb-prefix", FAKE_ABSENT, 2, {"dev"}},
        {"usage-verb-far", FAKE_ABSENT, 2, {"dance"}},
        {"usage-second-word", FAKE_ABSENT, 2, {"tenants", "ad", "x"}},
        {"usage-option", FAKE_ABSENT, 2, {"status", "--jsn"}},
        {"usage-ambiguous", FAKE_ABSENT, 2, {"status", "--t"}},
        {"usage-ambiguous-value", FAKE_ABSENT, 2, {"status", "--t=5"}},
        {"usage-far-option", FAKE_ABSENT, 2, {"--two"}},
        {"usage-far-word", FAKE_ABSENT, 2, {"tax"}},
        {"usage-empty-value", FAKE_ABSENT, 2, {"clients", "--tenant="}},
        {"usage-short", FAKE_ABSENT, 2, {"status", "-x"}},
        {"usage-other-option", FAKE_ABSENT, 2, {"status", "--force"}},
        {"usage-value", FAKE_ABSENT, 2, {"drain", "--timeout"}},
        {"usage-no-value", FAKE_ABSENT, 2, {"status", "--json=yes"}},
        {"usage-two-sockets", FAKE_ABSENT, 2, {"status", "--runtime-dir", "."}},
        {"usage-few", FAKE_ABSENT, 2, {"tenants", "set", "search"}},
        {"usage-many", FAKE_ABSENT, 2, {"status", "now"}},
        {"usage-name", FAKE_ABSENT, 2, {"tenants", "add", "../etc"}},
        {"usage-assignment", FAKE_ABSENT, 2, {"tenants", "add", "new", "limit"}},
        {"usage-namespace", FAKE_ABSENT, 2, {"purge", "search", ""}},
        {"usage-time", FAKE_ABSENT, 2, {"drain", "--timeout", "soon"}},
        {"usage-recall-time", FAKE_ABSENT, 2, {"recall", "search", "--timeout", "2h"}},
        {"usage-recall-size", FAKE_ABSENT, 2, {"recall", "search", "--size", "much"}},
        {"usage-recall-namespace", FAKE_ABSENT, 2, {"recall", "search", "--namespace", ".."}},
        {"usage-session", FAKE_ABSENT, 2, {"sessions", "purge", "search", "--session", "0x1"}},
        {"usage-key", FAKE_ABSENT, 2, {"explain", "search", "llama", "0123"}},
        {"usage-warm-two", FAKE_ABSENT, 2, {"warm", "search", "llama", "--all", "--tag=7"}},
        {"usage-warm-off", FAKE_ABSENT, 2, {"warm", "search", "llama", "--all", "--off"}},
        {"usage-warm-key", FAKE_ABSENT, 2, {"warm", "search", "llama", "0123"}},
        {"usage-warm-tag", FAKE_ABSENT, 2, {"warm", "search", "llama", "--tag=0"}},
        {"usage-record", FAKE_ABSENT, 2, {"trace", "record", "maybe"}},
        {"usage-top-terminal", FAKE_ABSENT, 2, {"top"}},
        {"usage-top-batch", FAKE_ABSENT, 2, {"top", "--json"}},
        {"usage-top-count", FAKE_ABSENT, 2, {"top", "--batch", "--count=0"}},
        {"usage-top-interval", FAKE_ABSENT, 2, {"top", "--interval", "0.09"}},
        {"usage-top-view", FAKE_ABSENT, 2, {"top", "--view", "pages"}},
        {"usage-top-sort", FAKE_ABSENT, 2, {"top", "--view=clients", "--sort=hits"}},
        {"usage-top-filter", FAKE_ABSENT, 2,
                {"top", "--filter",
                        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}},
        {"usage-off-timeout", FAKE_ABSENT, 2, {"drain", "--off", "--timeout=1s"}},
        {"usage-off-export", FAKE_ABSENT, 2, {"drain", "--off", "--export"}},
        /* The other side. */
        {"error-refused", FAKE_REFUSING, 1, {"tenants", "remove", "search"}},
        {"error-refused-json", FAKE_REFUSING, 1, {"tenants", "--json"}},
        {"error-refused-silent", FAKE_SILENT, 1, {"purge", "search"}},
        {"error-check-refused", FAKE_REFUSING, 1, {"check"}},
        {"error-protocol-version", FAKE_VERSION, 1, {"status"}},
        {"error-version-mismatch", FAKE_VERSION, 1, {"version"}},
        {"error-tenant-socket", FAKE_TENANT, 3, {"status"}},
        {"error-garbage", FAKE_GARBAGE, 3, {"status"}},
        {"error-bad-message", FAKE_BAD_MESSAGE, 3, {"status"}},
        {"error-wrong-seq", FAKE_WRONG_SEQ, 3, {"status"}},
        {"error-hangup", FAKE_HANGUP, 3, {"status"}},
        {"error-outcome-unknown", FAKE_RESTARTED, 3, {"tenants", "set", "search", "weight=7"}},
        {"devices-restarted", FAKE_RESTARTED, 0, {"devices"}},
        {"error-circle", FAKE_CIRCLE, 3, {"tenants"}},
        {"error-absent", FAKE_ABSENT, 3, {"status"}},
        {"error-deaf", FAKE_DEAF, 3, {"status"}},
        {"error-forbidden", FAKE_FORBIDDEN, 3, {"status"}},
};

#define GOLDEN_VERSION "0.1.0" /* stands for the version of kvleasectl */

/* Prints a text, with GOLDEN_VERSION for the version of this build. */
static void print_any_version(const char *text, FILE *to)
{
        const char *found;

        for (; (found = strstr(text, KVLEASE_VERSION)); text = found + strlen(KVLEASE_VERSION))
                fprintf(to, "%.*s" GOLDEN_VERSION, (int)(found - text), text);
        fputs(text, to);
}

/* Owned: command line, stdout, stderr, requests and exit code in one text. */
static char *transcript(const struct golden *g, const struct fake_result *r)
{
        size_t len = 0;
        char *text = NULL;
        FILE *to = open_memstream(&text, &len);

        assert_non_null(to);
        fputs("$ kvleasectl", to);
        for (size_t i = 0; g->args[i]; i++)
                fprintf(to, g->args[i][0] ? " %s" : " ''%s", g->args[i]);
        fputc('\n', to);
        print_any_version(r->out, to);
        if (r->err[0])
                fprintf(to, "--- stderr\n%s", r->err);
        if (r->requests[0])
                fprintf(to, "--- requests\n%s", r->requests);
        fprintf(to, "--- exit %d\n", r->exit_code);
        fclose(to);
        return text;
}

static void compare(const struct golden *g, const char *got)
{
        char *path = test_path(GOLDEN_DIR, g->name), *want = NULL;
        size_t len;

        if (getenv("KVLEASE_GOLDEN_UPDATE"))
                assert_int_equal(file_replace(path, got, strlen(got), 0644), 0);
        if (file_read(path, 1 << 20, &want, &len) < 0)
                fail_msg("%s can't be read: tests/golden/update.sh makes it", path);
        if (strcmp(want, got) != 0)
                fail_msg("%s differs.\nexpected:\n%s\ngot:\n%s", path, want, got);
        free(want);
        free(path);
}

static void check_json(const struct golden *g, const struct fake_result *r)
{
        json_error_t error;
        json_t *j;

        if (!strstr(g->name, "-json") || r->exit_code == 1)
                return; /* a refusal is a sentence on stderr, nothing on stdout */
        /* One object; of events one a line. */
        for (const char *at = r->out; *at; at += error.position) {
                j = json_loads(at, JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK, &error);
                if (!j)
                        fail_msg("%s: line %d: %s", g->name, error.line, error.text);
                assert_true(json_is_object(j));
                json_decref(j);
                assert_int_equal(at[error.position], '\n');
                error.position++;
                if (strncmp(g->name, "events", 6) != 0)
                        assert_int_equal(at[error.position], '\0');
        }
}

/* Lines are no longer than the terminal that was named is wide. */
static void check_width(const struct golden *g, const struct fake_result *r)
{
        bool is_narrow =
                g->env && strncmp(g->env, "KVLEASE_COLUMNS=", strlen("KVLEASE_COLUMNS=")) == 0;
        size_t width =
                is_narrow ? strtoul(g->env + strlen("KVLEASE_COLUMNS="), NULL, 10) : SIZE_MAX;

        for (const char *line = r->out; *line; line += strcspn(line, "\n") + 1)
                if (strcspn(line, "\n") > width)
                        fail_msg("%s: longer than %zu: %.*s", g->name, width,
                                (int)strcspn(line, "\n"), line);
}

/* Without --all, status is a verdict and at most 12 lines. */
static void check_status(const struct golden *g, const struct fake_result *r)
{
        size_t n = 0;

        if (!g->args[0] || strcmp(g->args[0], "status") != 0 || g->args[1])
                return;
        for (const char *at = r->out; (at = strchr(at, '\n')); at++)
                n++;
        if (n > 1 + 12)
                fail_msg("%s: %zu lines", g->name, n);
}

TEST(test_goldens)
{
        for (size_t i = 0; i < ARRAY_SIZE(goldens); i++) {
                const struct golden *g = &goldens[i];
                struct fake_result r = {0};
                char *got;

                fake_run(KVLEASECTL,
                        &(struct fake_run){.mode = g->mode, .args = g->args, .env = g->env}, &r);
                got = transcript(g, &r);
                if (r.exit_code != g->exit_code)
                        fail_msg("%s: exit code %d instead of %d\n%s", g->name, r.exit_code,
                                g->exit_code, got);
                compare(g, got);
                check_json(g, &r);
                check_width(g, &r);
                check_status(g, &r);
                free(got);
                fake_result_deinit(&r);
        }
}

TEST(test_no_golden_left_over)
{
        assert_int_equal(test_dir_count(GOLDEN_DIR), ARRAY_SIZE(goldens) + 1); /* update.sh */
}

TEST(test_json_numbers)
{
        struct fake_result r = {0};
        json_t *j, *first, *second;

        fake_run(KVLEASECTL,
                &(struct fake_run){.args = (const char *[]){"tenants", "--json", NULL}}, &r);
        j = json_loads(r.out, 0, NULL);
        first = json_array_get(json_object_get(j, "tenants"), 0);
        second = json_array_get(json_object_get(j, "tenants"), 1);
        assert_int_equal(json_integer_value(json_object_get(first, "limit_bytes")), 4294967296);
        assert_true(json_real_value(json_object_get(first, "used_ratio")) == 0.25);
        assert_true(json_is_null(json_object_get(second, "limit_bytes"))); /* no limit */
        assert_true(json_is_null(json_object_get(second, "used_ratio")));
        json_decref(j);
        fake_result_deinit(&r);
}

static void run_without_option(const char *env, const char *const *args, int want)
{
        struct fake_result r = {0};

        fake_run(KVLEASECTL, &(struct fake_run){.args = args, .env = env, .no_socket_option = true},
                &r);
        assert_int_equal(r.exit_code, want);
        fake_result_deinit(&r);
}

/* --socket, then --runtime-dir, then the environment. */
TEST(test_socket_choice)
{
        const char *good = "KVLEASE_ADMIN_SOCKET=admin.sock", *bad = "KVLEASE_ADMIN_SOCKET=none";

        run_without_option(good, (const char *[]){"status", NULL}, 0);
        run_without_option(bad, (const char *[]){"status", NULL}, 3);
        run_without_option(bad, (const char *[]){"status", "--runtime-dir", ".", NULL}, 0);
        run_without_option(bad, (const char *[]){"status", "--socket=admin.sock", NULL}, 0);
        run_without_option(good, (const char *[]){"status", "--runtime-dir=/nowhere", NULL}, 3);
}

TEST(test_full_disk)
{
        struct fake_result r = {0};

        fake_run(KVLEASECTL,
                &(struct fake_run){
                        .args = (const char *[]){"status", NULL}, .out_path = "/dev/full"},
                &r);
        assert_int_equal(r.exit_code, 1);
        assert_non_null(strstr(r.err, "No space left on device"));
        fake_result_deinit(&r);
}

/* A reader that closes the pipe early causes no error message. */
TEST(test_closed_pipe)
{
        char line[256];
        FILE *said =
                popen("exec 3>&1; { sleep 0.2; " KVLEASECTL " --help --json 2>&3; } | true", "re");

        assert_non_null(said);
        if (fgets(line, sizeof(line), said))
                fail_msg("said: %s", line);
        pclose(said);
}

/* More than a frame holds is refused here, whole. */
TEST(test_request_too_big)
{
        size_t len = 100 * 1024;
        char *arg = malloc(len + 1);
        struct fake_result r = {0};

        assert_non_null(arg);
        memset(arg, 'x', len);
        memcpy(arg, "group=", 6);
        arg[len] = '\0';
        fake_run(KVLEASECTL,
                &(struct fake_run){.args = (const char *[]){"tenants", "add", "new", arg, NULL}},
                &r);
        assert_int_equal(r.exit_code, 2);
        assert_string_equal(r.requests, "");
        fake_result_deinit(&r);
        free(arg);
}
