/* kvleasectl drain. */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/parse.h"
#include "client/ctl/admin.h"
#include "client/ctl/verb.h"
#include "proto/kvlease.pb-c.h"
#include "proto/msg.h"

#define DEFAULT_TIMEOUT "30s"                 /* not tuned */
#define POLL_NSEC       (200 * NSEC_PER_MSEC) /* not tuned: a person's patience */
#define RATE_NSEC       (2 * NSEC_PER_SEC)    /* not tuned */

/* Progress of a drain. */
struct drain {
        uint64_t n_clients;
        bool exports; /* --export */
        Kvlease__V1__AdminDrainReply export;
        char *obstacle; /* owned; "": none */
        uint64_t asked_nsec, timeout_nsec;
        uint64_t marked_nsec, marked_bytes; /* time and value of an earlier count of bytes */
        double rate;                        /* bytes a second until then; 0: unknown */
};

static void drain_deinit(struct drain *d)
{
        free(d->obstacle);
}

static bool drain_is_over(const struct drain *d)
{
        return d->n_clients == 0 && !d->export.exporting;
}

/* ---- asking ---------------------------------------------------------------------------------- */

static int ask_drain(const struct ctl *ctl, bool off, bool looks, struct drain *d)
{
        Kvlease__V1__AdminDrainRequest request = KVLEASE__V1__ADMIN_DRAIN_REQUEST__INIT;
        const ProtobufCMessage *reply;
        int r;

        request.off = off;
        request.look = looks;
        request.export_cached = d->exports && !looks;
        r = admin_call(ctl->admin, MSG_ADMIN_DRAIN, &request.base, &reply);
        if (r != CTL_OK || !d->exports)
                return r;
        d->export = *(const Kvlease__V1__AdminDrainReply *)reply;
        free(d->obstacle);
        d->obstacle = need(text_printable(d->export.obstacle));
        if (!d->export.export_begun)
                return fail(CTL_REFUSED,
                        "the export has ended: draining was cancelled, a tenant got another "
                        "remote, or kvleased restarted. kvleasectl drain --export starts it again");
        return CTL_OK;
}

/* Counts clients that are connected, or hung up but not yet ended: both may still use pages. */
static int count_clients(const struct ctl *ctl, uint64_t *ret_n)
{
        const struct figures_status *s;
        int r = admin_status(ctl->admin, &s);

        if (r == CTL_OK)
                *ret_n = MAX(s->n_clients, s->members_waiting_exit);
        return r;
}

/* ---- progress -------------------------------------------------------------------------------- */

/* Measures the rate of the last seconds: without the burst at the beginning. */
static void measure_rate(struct drain *d)
{
        uint64_t now = clock_now_nsec(), passed = now - d->marked_nsec;

        if (passed < RATE_NSEC)
                return;
        if (d->marked_nsec > 0)
                d->rate = (double)(d->export.written_bytes - d->marked_bytes) * NSEC_PER_SEC /
                          (double)passed;
        d->marked_nsec = now;
        d->marked_bytes = d->export.written_bytes;
}

static void show_exports(const struct ctl *ctl, const struct drain *d)
{
        const Kvlease__V1__AdminDrainReply *m = &d->export;
        uint64_t done_pages = m->written_pages + m->there_pages;
        uint64_t done_bytes = m->written_bytes + m->there_bytes;
        char done[32], all[32], speed[32], left[32];

        fprintf(stderr, ", exported: %llu of %llu pages (%s of %s)", (unsigned long long)done_pages,
                (unsigned long long)(done_pages + m->left_pages),
                show_bytes(&ctl->format, done_bytes, done),
                show_bytes(&ctl->format, done_bytes + m->left_bytes, all));
        if (d->obstacle[0])
                fprintf(stderr, ": %s", d->obstacle);
        else if (d->rate >= 1 && m->left_bytes > 0)
                fprintf(stderr, ", %s/s, %s more",
                        show_bytes(&ctl->format, (uint64_t)d->rate, speed),
                        show_seconds(&ctl->format, 1 + (uint64_t)((double)m->left_bytes / d->rate),
                                left));
}

static void show_progress(const struct ctl *ctl, const struct drain *d)
{
        uint64_t passed = clock_now_nsec() - d->asked_nsec;

        if (!isatty(STDERR_FILENO))
                return;
        fprintf(stderr, "\rdraining, clients left: %llu", (unsigned long long)d->n_clients);
        if (d->exports)
                show_exports(ctl, d);
        fprintf(stderr, ", waiting %llu s more \033[K",
                (unsigned long long)((d->timeout_nsec - MIN(passed, d->timeout_nsec)) /
                                     NSEC_PER_SEC));
}

static void end_progress(void)
{
        if (isatty(STDERR_FILENO))
                fputs("\r\033[K", stderr);
}

/* Waits until the drain is over, or the time is up. Clients first: then the export's figures
 * include their last publishes. */
static int await_drain(const struct ctl *ctl, struct drain *d)
{
        for (;;) {
                uint64_t passed;
                int r = count_clients(ctl, &d->n_clients);

                if (r == CTL_OK && d->exports)
                        r = ask_drain(ctl, false, true, d);
                passed = clock_now_nsec() - d->asked_nsec;
                if (r != CTL_OK || drain_is_over(d) || passed >= d->timeout_nsec) {
                        end_progress();
                        return r;
                }
                measure_rate(d);
                show_progress(ctl, d);
                clock_nanosleep(CLOCK_MONOTONIC, 0,
                        &(struct timespec){
                                .tv_nsec = (long)MIN(d->timeout_nsec - passed, POLL_NSEC)},
                        NULL);
        }
}

/* ---- the end --------------------------------------------------------------------------------- */

static json_t *exports_json(const struct drain *d)
{
        const Kvlease__V1__AdminDrainReply *m = &d->export;

        return json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "exporting",
                m->exporting, "pages_written", (json_int_t)m->written_pages, "bytes_written",
                (json_int_t)m->written_bytes, "pages_there", (json_int_t)m->there_pages,
                "bytes_there", (json_int_t)m->there_bytes, "pages_left", (json_int_t)m->left_pages,
                "bytes_left", (json_int_t)m->left_bytes, "pages_old", (json_int_t)m->old_pages,
                "pages_apart", (json_int_t)m->apart_pages, "obstacle", d->obstacle);
}

static void print_reason(uint64_t n, const char *what, const char **between)
{
        if (n == 0)
                return;
        printf("%s%llu %s", *between, (unsigned long long)n, what);
        *between = ", ";
}

static void print_exports(const struct ctl *ctl, const struct drain *d)
{
        const Kvlease__V1__AdminDrainReply *m = &d->export;
        const char *between = "; pages that can't be: ";
        char bytes[32];

        printf("exported: %llu page%s (%s), and %llu were there",
                (unsigned long long)m->written_pages, PLURAL(m->written_pages),
                show_bytes(&ctl->format, m->written_bytes, bytes),
                (unsigned long long)m->there_pages);
        print_reason(m->old_pages, "of before the epoch was known", &between);
        print_reason(m->exporting ? 0 : m->left_pages, "that continue such", &between);
        print_reason(m->apart_pages, "of namespaces that aren't shared", &between);
        putchar('\n');
}

static int fail_exports(const struct ctl *ctl, const struct drain *d, const char *timeout)
{
        char bytes[32];

        return fail(CTL_TIMEOUT,
                "pages not exported after %s: %llu (%s)%s%s; kvleased continues: wait longer with --timeout, or cancel with: kvleasectl drain --off",
                timeout, (unsigned long long)d->export.left_pages,
                show_bytes(&ctl->format, d->export.left_bytes, bytes),
                d->obstacle[0] ? ", as " : "", d->obstacle);
}

static void report_json(const struct drain *d, struct show_list *l)
{
        json_t *o = json_pack("{s:b, s:b, s:o}", "draining", 1, "timed_out", !drain_is_over(d),
                "clients", show_list_take_array(l));

        if (d->exports)
                json_object_set_new(o, "export", exports_json(d));
        show_json(o);
}

static int report_drain(const struct ctl *ctl, const struct drain *d, const char *timeout)
{
        struct show_list *l = show_list_new(&noun_clients.table, &ctl->format);
        int r = d->n_clients ? admin_list(ctl->admin, &noun_clients, NULL, l) : CTL_OK;

        if (r != CTL_OK) {
                show_list_free(l);
                return r;
        }
        if (ctl->format.json) {
                report_json(d, l);
        } else {
                if (d->n_clients)
                        show_list_print(l);
                else
                        show_list_free(l);
                if (d->exports)
                        print_exports(ctl, d);
                if (drain_is_over(d))
                        puts("drained: no clients are left. kvleased keeps running and refuses new ones; end that with: kvleasectl drain --off");
        }
        fflush(stdout);
        if (d->export.exporting)
                r = fail_exports(ctl, d, timeout);
        if (d->n_clients)
                r = fail(CTL_TIMEOUT,
                        "clients left after %s: %llu; end them and drain again, wait longer with --timeout, or cancel with: kvleasectl drain --off",
                        timeout, (unsigned long long)d->n_clients);
        return r;
}

/* ---- the verb -------------------------------------------------------------------------------- */

static int call_off(const struct ctl *ctl)
{
        int r = ask_drain(ctl, true, false, &(struct drain){.exports = false});

        if (r != CTL_OK)
                return r;
        if (ctl->format.json)
                show_json(json_pack("{s:b, s:b, s:[]}", "draining", 0, "timed_out", 0, "clients"));
        else
                puts("draining is off: new clients are served again");
        return CTL_OK;
}

int check_drain(const struct ctl *ctl)
{
        const char *timeout = ctl->options[CTL_OPTION_TIMEOUT];
        uint64_t nsec;

        if (timeout && ctl->options[CTL_OPTION_OFF])
                return fail(CTL_USAGE, "--off and --timeout exclude each other: give one");
        if (ctl->options[CTL_OPTION_EXPORT] && ctl->options[CTL_OPTION_OFF])
                return fail(CTL_USAGE, "--off and --export exclude each other: give one");
        if (timeout && parse_duration(timeout, &nsec) < 0)
                return fail_value(ctl, CTL_OPTION_TIMEOUT, "a time, such as 90s, 5min or 2h");
        return CTL_OK;
}

int verb_drain(const struct ctl *ctl)
{
        const char *timeout = ctl->options[CTL_OPTION_TIMEOUT];
        struct drain d = {.exports = ctl->options[CTL_OPTION_EXPORT] != NULL};
        int r;

        if (ctl->options[CTL_OPTION_OFF])
                return call_off(ctl);
        if (!timeout)
                timeout = DEFAULT_TIMEOUT;
        r = parse_duration(timeout, &d.timeout_nsec);
        assert(r == 0); /* check_drain() */
        d.asked_nsec = clock_now_nsec();
        r = ask_drain(ctl, false, false, &d);
        if (r == CTL_OK)
                r = await_drain(ctl, &d);
        if (r == CTL_OK)
                r = report_drain(ctl, &d, timeout);
        drain_deinit(&d);
        return r;
}
