/* events: lists past events, a line each, and follows new ones. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/parse.h"
#include "client/ctl/admin.h"
#include "client/ctl/noun.h"
#include "client/ctl/verb.h"
#include "proto/event-kind.h"
#include "proto/kvlease.pb-c.h"
#include "proto/msg.h"

/* Wait of one request; admin_follow() waits longer for its answer. Not tuned. */
#define WAIT_MSEC 20000

/* The request, and its progress. */
struct events {
        const struct ctl *ctl;
        Kvlease__V1__AdminEventsRequest request;
        char *kinds[EVENT_KINDS]; /* point into text */
        char *text;               /* owned */
        uint64_t left;            /* left to show; with --follow */
};

/* ---- the command line ------------------------------------------------------------------------ */

static bool is_kind(const char *name)
{
#define X(id, its_name, ...)             \
        if (strcmp(name, its_name) == 0) \
                return true;
        EVENT_KIND_TABLE(X)
#undef X
        return false;
}

/* Splits the words of --kind, each once; text is cut up. Returns CTL_OK or CTL_USAGE, printed. */
static int split_kinds(char *text, char **kinds, size_t *ret_n)
{
        char *rest = NULL;
        size_t n = 0;

        for (char *word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
                bool is_new = true;

                if (!is_kind(word))
                        return fail(CTL_USAGE,
                                "there is no kind of events '%s': kvleasectl events --help lists them",
                                word);
                for (size_t i = 0; i < n; i++)
                        is_new &= strcmp(kinds[i], word) != 0;
                if (is_new)
                        kinds[n++] = word;
        }
        *ret_n = n;
        return n > 0 ? CTL_OK
                     : fail(CTL_USAGE,
                               "--kind names no kind of events: kvleasectl events --help lists them");
}

int check_events(const struct ctl *ctl)
{
        const char *kind = ctl->options[CTL_OPTION_KIND], *count = ctl->options[CTL_OPTION_COUNT],
                   *since = ctl->options[CTL_OPTION_SINCE];
        _cleanup_free_ char *text = kind ? need(strdup(kind)) : NULL;
        char *kinds[EVENT_KINDS];
        uint64_t number;
        size_t n;
        int r = kind ? split_kinds(text, kinds, &n) : CTL_OK;

        if (r != CTL_OK)
                return r;
        if (count && (parse_u64(count, &number) < 0 || number == 0 || number > UINT32_MAX))
                return fail_value(ctl, CTL_OPTION_COUNT, "a number from 1 on");
        if (since && (parse_duration(since, &number) < 0 || number < NSEC_PER_MSEC))
                return fail_value(ctl, CTL_OPTION_SINCE, "a time, such as 90s, 10min or 2h");
        return CTL_OK;
}

static void prepare_request(const struct ctl *ctl, struct events *ev)
{
        const char *tenant = ctl->options[CTL_OPTION_TENANT];
        const char *ns = ctl->options[CTL_OPTION_NAMESPACE];
        const char *kind = ctl->options[CTL_OPTION_KIND], *count = ctl->options[CTL_OPTION_COUNT],
                   *since = ctl->options[CTL_OPTION_SINCE];
        uint64_t nsec = 0;
        int r = 0;

        *ev = (struct events){.ctl = ctl, .left = UINT64_MAX};
        kvlease__v1__admin_events_request__init(&ev->request);
        if (tenant)
                ev->request.tenant = (char *)tenant;
        if (ns)
                ev->request.ns = (char *)ns;
        if (kind) {
                ev->text = need(strdup(kind));
                ev->request.kinds = ev->kinds;
                r = split_kinds(ev->text, ev->kinds, &ev->request.n_kinds);
        }
        if (r == 0 && count)
                r = parse_u64(count, &ev->left);
        if (r == 0 && since)
                r = parse_duration(since, &nsec);
        assert(r == 0); /* check_events() */
        ev->request.since_msec = nsec / NSEC_PER_MSEC;
        if (count && !ctl->options[CTL_OPTION_FOLLOW])
                ev->request.last = (uint32_t)ev->left;
}

/* ---- one event ------------------------------------------------------------------------------- */

static json_t *text_or_null(const char *text)
{
        return text[0] ? show_json_text(text) : json_null();
}

static void print_json_line(json_t *o)
{
        need(o);
        if (json_dumpf(o, stdout, JSON_COMPACT) == 0)
                putchar('\n');
        json_decref(o);
}

static void print_json(const Kvlease__V1__AdminEvent *e)
{
        print_json_line(json_pack(
                "{s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:o}",
                "number", (json_int_t)e->number, "time_msec", (json_int_t)e->time_msec,
                "first_time_msec", (json_int_t)e->first_time_msec, "kind", text_or_null(e->kind),
                "tenant", text_or_null(e->tenant), "namespace", text_or_null(e->ns), "by_tenant",
                text_or_null(e->by_tenant), "by", text_or_null(e->by), "reason",
                text_or_null(e->reason), "tier", text_or_null(e->tier), "count",
                (json_int_t)e->count, "pages", (json_int_t)e->pages, "bytes", (json_int_t)e->bytes,
                "before_bytes", (json_int_t)e->before_bytes, "detail", text_or_null(e->detail)));
}

static void print_time(uint64_t msec)
{
        time_t sec = (time_t)(msec / 1000);
        char text[32] = "", zone[8] = "";
        struct tm tm;

        if (localtime_r(&sec, &tm)) {
                strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm);
                strftime(zone, sizeof(zone), "%z", &tm); /* "+0100" */
        }
        printf("%s.%03u%.3s:%s ", text, (unsigned)(msec % 1000), zone, zone[0] ? zone + 3 : "");
}

/* Prints non-empty text, with unprintable bytes escaped. */
static void print_text(const char *before, const char *text)
{
        _cleanup_free_ char *safe = text_printable(text);

        if (safe[0])
                printf("%s%s", before, safe);
}

/* Returns the text before the next part of a line: ": " before the first, ", " before others. */
static const char *take_separator(bool *any)
{
        const char *separator = *any ? ", " : ": ";

        *any = true;
        return separator;
}

/* "8 pages (32 KiB) from device, 3 times" */
static void print_amount(const struct show_format *f, const Kvlease__V1__AdminEvent *e, bool *any)
{
        char bytes[32], before[32];

        if (strcmp(e->kind, "resized") == 0)
                printf("%s%s to %s", take_separator(any), show_bytes(f, e->before_bytes, before),
                        show_bytes(f, e->bytes, bytes));
        else if (e->pages > 0)
                printf("%s%llu page%s", take_separator(any), (unsigned long long)e->pages,
                        e->pages == 1 ? "" : "s");
        else if (e->bytes > 0)
                printf("%s%s", take_separator(any), show_bytes(f, e->bytes, bytes));
        if (e->pages > 0 && e->bytes > 0)
                printf(" (%s)", show_bytes(f, e->bytes, bytes));
        print_text(strcmp(e->kind, "demoted") == 0 ? " to " : " from ", e->tier);
        if (e->count > 1 && e->count != e->pages)
                printf("%s%llu times", take_separator(any), (unsigned long long)e->count);
}

static void print_line(const struct show_format *f, const Kvlease__V1__AdminEvent *e)
{
        bool any = false;

        print_time(e->time_msec);
        print_text("", e->kind);
        print_text(" ", e->tenant);
        print_text("/", e->ns);
        print_amount(f, e, &any);
        if (e->reason[0] && !(e->by_tenant[0] && strcmp(e->reason, "lease") == 0))
                print_text(take_separator(&any), e->reason);
        if (e->by_tenant[0])
                printf("%s", take_separator(&any));
        print_text("for leases of ", e->by_tenant);
        if (e->by[0])
                printf("%s", take_separator(&any));
        print_text("by ", e->by);
        print_text(": ", e->detail);
        putchar('\n');
}

static void print_lost(const struct ctl *ctl, uint64_t n)
{
        if (ctl->format.json)
                print_json_line(json_pack("{s:I}", "lost", (json_int_t)n));
        else
                printf("(%llu earlier event%s lost: kvleased keeps the last ones alone)\n",
                        (unsigned long long)n, n == 1 ? " is" : "s are");
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Prints each line at once, in one write: a cut-off line is missing as a whole. */
static void show_events(struct events *ev, const Kvlease__V1__AdminEventsReply *reply)
{
        if (reply->lost > 0 && (ev->request.after > 0 || ev->request.since_msec == 0))
                print_lost(ev->ctl, reply->lost);
        for (size_t i = 0; i < reply->n_events && ev->left > 0; i++) {
                if (ev->ctl->format.json)
                        print_json(reply->events[i]);
                else
                        print_line(&ev->ctl->format, reply->events[i]);
                ev->left--;
                fflush(stdout);
        }
        ev->request.after = reply->next;
        ev->request.last = 0;
}

/* Shows past events. */
static int show_past(struct events *ev)
{
        const Kvlease__V1__AdminEventsReply *reply;
        const ProtobufCMessage *m;
        int r;

        do {
                r = admin_call(ev->ctl->admin, MSG_ADMIN_EVENTS, &ev->request.base, &m);
                if (r != CTL_OK)
                        return r;
                reply = (const Kvlease__V1__AdminEventsReply *)m;
                show_events(ev, reply);
        } while (reply->more && ev->left > 0);
        return CTL_OK;
}

/* Calls only functions that a signal handler may call. */
static void on_interrupt(int number)
{
        _exit(CTL_OK);
}

/* Waits in a thread of its own until stdout's reader is gone, as with `| head`: no write would fail
 * before the next event. */
static void *await_reader_end(void *unused)
{
        struct pollfd p = {STDOUT_FILENO, 0, 0};

        while (poll(&p, 1, -1) < 0 && errno == EINTR)
                ;
        if (p.revents & (POLLERR | POLLHUP))
                _exit(CTL_OK);
        return NULL;
}

static int follow(struct events *ev)
{
        uint64_t epoch = admin_boot_epoch(ev->ctl->admin);
        pthread_t reader;

        if (pthread_create(&reader, NULL, await_reader_end, NULL) == 0)
                pthread_detach(reader);

        ev->request.since_msec = 0; /* later events are new */
        ev->request.wait_msec = WAIT_MSEC;
        while (ev->left > 0 && !ferror(stdout)) {
                const ProtobufCMessage *m;
                int r = admin_follow(ev->ctl->admin, MSG_ADMIN_EVENTS, &ev->request.base, &m);

                if (r != CTL_OK)
                        return r;
                if (m)
                        show_events(ev, (const Kvlease__V1__AdminEventsReply *)m);
                else if (admin_boot_epoch(ev->ctl->admin) != epoch)
                        ev->request.after = 0;
                epoch = admin_boot_epoch(ev->ctl->admin);
        }
        return CTL_OK;
}

/* A removed tenant may have events, so its absence is reported but no failure. */
static int look_for_tenant(const struct ctl *ctl)
{
        const char *name = ctl->options[CTL_OPTION_TENANT];
        const void *row;
        int r = name ? admin_first(ctl->admin, &noun_tenants, name, &row) : CTL_OK;

        return r == CTL_REFUSED ? CTL_OK : r;
}

int verb_events(const struct ctl *ctl)
{
        bool follows = ctl->options[CTL_OPTION_FOLLOW];
        struct events ev;
        int r = look_for_tenant(ctl);

        if (r != CTL_OK)
                return r;
        prepare_request(ctl, &ev);
        if (follows) {
                signal(SIGINT, on_interrupt);
                signal(SIGTERM, on_interrupt);
        }
        r = show_past(&ev);
        if (r == CTL_OK && follows)
                r = follow(&ev);
        free(ev.text);
        return r;
}
