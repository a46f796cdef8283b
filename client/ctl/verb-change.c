/* The verbs that change something. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/parse.h"
#include "client/ctl/admin.h"
#include "client/ctl/verb.h"
#include "proto/kvlease.pb-c.h"
#include "proto/msg.h"

/* ---- tenants --------------------------------------------------------------------------------- */

int check_tenant(const struct ctl *ctl)
{
        if (name_is_valid(ctl->args[0], TENANT_NAME_MAX))
                return CTL_OK;
        return fail(CTL_USAGE,
                "'%s' is not a tenant's name: 1 to %d of A-Z a-z 0-9 . _ -, not starting with . or -",
                ctl->args[0], TENANT_NAME_MAX);
}

/* Checks only the form: the daemon checks keys and values. */
int check_tenant_set(const struct ctl *ctl)
{
        for (unsigned i = 1; i < ctl->n_args; i++) {
                const char *arg = ctl->args[i];
                size_t len = strspn(arg, "abcdefghijklmnopqrstuvwxyz_");
                size_t sign = len > 0 ? strspn(arg + len, "+-") : 0;

                if (len == 0 || sign > 1 || arg[len + sign] != '=')
                        return fail(CTL_USAGE, "'%s' is not KEY=VALUE, such as limit=4GiB", arg);
        }
        return check_tenant(ctl);
}

/* Whether to ask for confirmation: only at a terminal, and without --yes. */
static bool is_to_ask(const struct ctl *ctl)
{
        return !ctl->options[CTL_OPTION_YES] && isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
}

/* Returns CTL_OK: the answer is yes. CTL_REFUSED with a sentence printed: it isn't. */
KVL_PRINTF(1, 2) static int ask(const char *format, ...)
{
        _cleanup_free_ char *raw = NULL, *safe = NULL;
        char answer[16] = "";
        va_list ap;

        va_start(ap, format);
        raw = text_format(format, ap);
        va_end(ap);
        safe = text_printable(raw);
        fprintf(stderr, "%s Go on? [y/N] ", safe);
        if (!fgets(answer, sizeof(answer), stdin))
                fputc('\n', stderr);
        if (answer[0] == 'y' || answer[0] == 'Y')
                return CTL_OK;
        return fail(CTL_REFUSED, "nothing was changed: answer y, or give --yes");
}

/* Returns the bytes that the tenant holds above a new limit. */
static uint64_t over_limit(const struct figures_tenant *t, const char *assignment)
{
        const struct {
                const char *key;
                uint64_t held_bytes;
        } limits[] = {
                {"limit=", t->charged_bytes},
                {"host_limit=", t->host.charged_bytes},
                {"disk_limit=", t->disk.charged_bytes},
        };
        uint64_t bytes;

        for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
                size_t len = strlen(limits[i].key);

                if (strncmp(assignment, limits[i].key, len) == 0 &&
                        parse_bytes(assignment + len, &bytes) == 0)
                        return minus_u64(limits[i].held_bytes, bytes);
        }
        return 0;
}

/* Finds the tenant: *ret_row is borrowed until the next call; NULL: none. */
static int find_tenant(const struct ctl *ctl, const struct figures_tenant **ret_row)
{
        const void *row = NULL;
        int r = admin_first(ctl->admin, &noun_tenants, ctl->args[0], &row);

        *ret_row = row;
        return r;
}

/* Asks whether to set limits below the bytes held, and shows the excess. */
static int confirm_limits(const struct ctl *ctl, uint64_t *ret_over_bytes)
{
        const struct figures_tenant *t;
        bool is_limit = false;
        char bytes[32];
        int r;

        for (unsigned i = 1; i < ctl->n_args; i++)
                is_limit |= strstr(ctl->args[i], "limit=") != NULL;
        r = is_limit ? find_tenant(ctl, &t) : CTL_OK;
        if (!is_limit || r != CTL_OK || !t)
                return r;
        for (unsigned i = 1; i < ctl->n_args; i++)
                *ret_over_bytes += over_limit(t, ctl->args[i]);
        if (*ret_over_bytes == 0 || !is_to_ask(ctl))
                return CTL_OK;
        return ask(
                "Tenant %s holds %s more than that: this memory is taken back, and its cached pages are evicted.",
                ctl->args[0], show_bytes(&ctl->format, *ret_over_bytes, bytes));
}

static void report_tenant(const struct ctl *ctl, const char *done, uint64_t over_bytes)
{
        char bytes[32];

        if (ctl->format.json) {
                json_t *o = json_pack("{s:s, s:s}", "tenant", ctl->args[0], "result", done);

                if (over_bytes > 0)
                        json_object_set_new(
                                o, "over_limit_bytes", json_integer((json_int_t)over_bytes));
                show_json(o);
        } else if (over_bytes > 0) {
                printf("tenant %s %s; %s beyond its new limit are taken back\n", ctl->args[0], done,
                        show_bytes(&ctl->format, over_bytes, bytes));
        } else {
                printf("tenant %s %s\n", ctl->args[0], done);
        }
}

/* Prints the daemon's notes: users that lose access, or that all gain it; why the tenant can lease
 * nothing. */
static int tell_notes(const ProtobufCMessage *reply)
{
        const char *detail = ((const Kvlease__V1__SimpleReply *)reply)->detail;

        fflush(stdout);
        return *detail ? fail(CTL_OK, "note: %s", detail) : CTL_OK;
}

static int tenant_set(const struct ctl *ctl, bool create)
{
        Kvlease__V1__AdminTenantSetRequest request = KVLEASE__V1__ADMIN_TENANT_SET_REQUEST__INIT;
        const ProtobufCMessage *reply;
        uint64_t over_bytes = 0;
        int r = create ? CTL_OK : confirm_limits(ctl, &over_bytes);

        if (r != CTL_OK)
                return r;
        request.name = ctl->args[0];
        request.create = create;
        request.options = ctl->args + 1;
        request.n_options = ctl->n_args - 1;
        r = admin_call(ctl->admin, MSG_ADMIN_TENANT_SET, &request.base, &reply);
        if (r != CTL_OK)
                return r;
        report_tenant(ctl, create ? "added" : "changed", over_bytes);
        return tell_notes(reply);
}

int verb_tenants_add(const struct ctl *ctl)
{
        return tenant_set(ctl, true);
}

int verb_tenants_set(const struct ctl *ctl)
{
        return tenant_set(ctl, false);
}

int verb_tenants_remove(const struct ctl *ctl)
{
        Kvlease__V1__AdminTenantRemoveRequest request =
                KVLEASE__V1__ADMIN_TENANT_REMOVE_REQUEST__INIT;
        const ProtobufCMessage *reply;
        int r;

        request.name = ctl->args[0];
        request.force = ctl->options[CTL_OPTION_FORCE] != NULL;
        r = admin_call(ctl->admin, MSG_ADMIN_TENANT_REMOVE, &request.base, &reply);
        if (r == CTL_OK)
                report_tenant(ctl, "removed", 0);
        return r;
}

/* ---- purge ----------------------------------------------------------------------------------- */

int check_purge(const struct ctl *ctl)
{
        /* An empty name would mean all namespaces. */
        if (ctl->n_args > 1 && check_ns_name(ctl->args[1]) != CTL_OK)
                return CTL_USAGE;
        return check_tenant(ctl);
}

int verb_purge(const struct ctl *ctl)
{
        Kvlease__V1__AdminPurgeRequest request = KVLEASE__V1__ADMIN_PURGE_REQUEST__INIT;
        const char *ns = ctl->n_args > 1 ? ctl->args[1] : NULL;
        const ProtobufCMessage *reply;
        uint64_t n_pages, n_kept;
        int r;

        request.tenant = ctl->args[0];
        request.ns = (char *)(ns ? ns : "");
        request.remove = ctl->options[CTL_OPTION_REMOVE] != NULL;
        r = admin_call(ctl->admin, MSG_ADMIN_PURGE, &request.base, &reply);
        if (r != CTL_OK)
                return r;
        n_pages = ((const Kvlease__V1__CountReply *)reply)->count;
        n_kept = ((const Kvlease__V1__CountReply *)reply)->kept;
        if (ctl->format.json)
                show_json(json_pack("{s:s, s:s?, s:I, s:I}", "tenant", ctl->args[0], "namespace",
                        ns, "pages_dropped", (json_int_t)n_pages, "namespaces_kept",
                        (json_int_t)n_kept));
        else
                printf("%llu page%s dropped\n", (unsigned long long)n_pages, PLURAL(n_pages));
        if (n_kept && !ctl->format.json)
                printf("namespaces kept, as clients have them open: %llu\n",
                        (unsigned long long)n_kept);
        return CTL_OK;
}

/* ---- waiting --------------------------------------------------------------------------------- */

#define DEFAULT_TIMEOUT "30s"                 /* not tuned */
#define POLL_NSEC       (200 * NSEC_PER_MSEC) /* not tuned: a person's patience */

static void end_progress(void)
{
        if (isatty(STDERR_FILENO))
                fputs("\r\033[K", stderr);
}

/* Polls until nothing is left, or the time-out; *ret_n: what is left. */
static int wait_until_none(const struct ctl *ctl, uint64_t timeout_nsec,
        int (*count)(const struct ctl *ctl, uint64_t *ret_n), const char *what, uint64_t *ret_n)
{
        uint64_t start = clock_now_nsec();

        for (;;) {
                uint64_t passed;
                int r = count(ctl, ret_n);

                passed = clock_now_nsec() - start;
                if (r != CTL_OK || *ret_n == 0 || passed >= timeout_nsec) {
                        end_progress();
                        return r;
                }
                if (isatty(STDERR_FILENO))
                        fprintf(stderr, "\r%s left: %llu, waiting %llu s more \033[K", what,
                                (unsigned long long)*ret_n,
                                (unsigned long long)((timeout_nsec - passed) / NSEC_PER_SEC));
                clock_nanosleep(CLOCK_MONOTONIC, 0,
                        &(struct timespec){.tv_nsec = (long)MIN(timeout_nsec - passed, POLL_NSEC)},
                        NULL);
        }
}

/* ---- recall ---------------------------------------------------------------------------------- */

#define RECALL_MAX_TIMEOUT_NSEC (3600 * NSEC_PER_SEC) /* the daemon's */

int check_recall(const struct ctl *ctl)
{
        const char *timeout = ctl->options[CTL_OPTION_TIMEOUT];
        const char *size = ctl->options[CTL_OPTION_SIZE];
        const char *ns = ctl->options[CTL_OPTION_NAMESPACE];
        uint64_t nsec, bytes;

        if (ns && check_ns_name(ns) != CTL_OK)
                return CTL_USAGE;
        if (timeout && (parse_duration(timeout, &nsec) < 0 || nsec < NSEC_PER_MSEC ||
                               nsec > RECALL_MAX_TIMEOUT_NSEC))
                return fail_value(ctl, CTL_OPTION_TIMEOUT, "a time of 1ms to 1h, such as 90s");
        if (size && (parse_bytes(size, &bytes) < 0 || bytes == 0))
                return fail_value(ctl, CTL_OPTION_SIZE, "a size, such as 512MiB or 4GiB");
        return check_tenant(ctl);
}

/* Counts the tenant's sets that aren't back yet. */
static int count_recalled(const struct ctl *ctl, uint64_t *ret_n)
{
        const struct figures_tenant *t;
        int r = find_tenant(ctl, &t);

        if (r == CTL_OK)
                *ret_n = t ? t->recalled_sets : 0;
        return r;
}

/* Without --size all memory is taken: asks for confirmation. */
static int confirm_recall(const struct ctl *ctl)
{
        const char *ns = ctl->options[CTL_OPTION_NAMESPACE];
        const struct figures_tenant *t;
        char bytes[32];
        int r;

        if (ctl->options[CTL_OPTION_SIZE] || !is_to_ask(ctl))
                return CTL_OK;
        r = find_tenant(ctl, &t);
        if (r != CTL_OK || !t)
                return r;
        return ask(
                "Without --size all memory of %s%s%s is taken back (the tenant holds %s), and its cached pages are evicted.",
                ns ? "namespace " : "tenant ", ns ? ns : ctl->args[0], ns ? "" : " on devices",
                show_bytes(&ctl->format, t->charged_bytes, bytes));
}

static int send_recall(const struct ctl *ctl, uint64_t timeout_nsec, uint64_t *ret_sets)
{
        Kvlease__V1__AdminRecallRequest request = KVLEASE__V1__ADMIN_RECALL_REQUEST__INIT;
        const char *ns = ctl->options[CTL_OPTION_NAMESPACE];
        const char *size = ctl->options[CTL_OPTION_SIZE];
        const ProtobufCMessage *reply;
        int r = size ? parse_bytes(size, &request.bytes) : 0;

        assert(r == 0); /* check_recall() */
        request.tenant = ctl->args[0];
        request.ns = (char *)(ns ? ns : "");
        request.timeout_msec = (uint32_t)(timeout_nsec / NSEC_PER_MSEC);
        r = admin_call(ctl->admin, MSG_ADMIN_RECALL, &request.base, &reply);
        if (r == CTL_OK)
                *ret_sets = ((const Kvlease__V1__CountReply *)reply)->count;
        return r;
}

/* n_left: result of a wait. */
static int report_recall(
        const struct ctl *ctl, uint64_t n_sets, uint64_t n_left, const char *waited)
{
        bool wait = ctl->options[CTL_OPTION_WAIT];

        if (ctl->format.json) {
                json_t *o = json_pack("{s:s, s:s?, s:I}", "tenant", ctl->args[0], "namespace",
                        ctl->options[CTL_OPTION_NAMESPACE], "sets_recalled", (json_int_t)n_sets);

                if (wait)
                        json_object_update_new(o, json_pack("{s:b, s:I}", "timed_out", n_left > 0,
                                                          "sets_left", (json_int_t)n_left));
                show_json(o);
        } else {
                printf("extent sets recalled: %llu%s\n", (unsigned long long)n_sets,
                        wait && n_left == 0 ? ", all are back" : "");
        }
        if (n_left == 0)
                return CTL_OK;
        fflush(stdout);
        return fail(CTL_TIMEOUT,
                "extent sets that tenant %s still holds after %s: %llu; its clients must release "
                "them or exit: kvleasectl clients --tenant %s names them",
                ctl->args[0], waited, (unsigned long long)n_left, ctl->args[0]);
}

int verb_recall(const struct ctl *ctl)
{
        const char *timeout = ctl->options[CTL_OPTION_TIMEOUT];
        uint64_t timeout_nsec = 0, wait_nsec = 0, n_sets = 0, n_left = 0;
        int r = timeout ? parse_duration(timeout, &timeout_nsec) : 0;

        assert(r == 0); /* check_recall() */
        r = confirm_recall(ctl);
        if (r == CTL_OK)
                r = send_recall(ctl, timeout_nsec, &n_sets);
        if (!timeout)
                timeout = DEFAULT_TIMEOUT;
        if (r == CTL_OK && ctl->options[CTL_OPTION_WAIT]) {
                r = parse_duration(timeout, &wait_nsec);
                assert(r == 0);
                r = wait_until_none(ctl, wait_nsec, count_recalled, "extent sets", &n_left);
        }
        return r == CTL_OK ? report_recall(ctl, n_sets, n_left, timeout) : r;
}
