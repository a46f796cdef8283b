/* The verbs that only read. */

#include "base/macros.h"
#include "client/ctl/admin.h"
#include "client/ctl/verb.h"
#include "client/ctl/verdict.h"
#include "client/ctl/width.h"
#include "kvlease-version.h"
#include "proto/frame.h"
#include "proto/kvlease.pb-c.h"
#include "proto/msg.h"
#include "proto/status.h"

/* Refused leases are no state: looks at the recent ones. */
static int look_at_refusals(const struct ctl *ctl, struct verdict *v)
{
        Kvlease__V1__AdminEventsRequest request = KVLEASE__V1__ADMIN_EVENTS_REQUEST__INIT;
        const Kvlease__V1__AdminEventsReply *m;
        char kind[] = "refused", *kinds[] = {kind};
        uint64_t n = 0;

        request.kinds = kinds;
        request.n_kinds = ARRAY_SIZE(kinds);
        request.since_msec = VERDICT_REFUSED_MIN * 60000;
        do {
                const ProtobufCMessage *reply;
                int r = admin_call(ctl->admin, MSG_ADMIN_EVENTS, &request.base, &reply);

                if (r != CTL_OK)
                        return r;
                m = (const Kvlease__V1__AdminEventsReply *)reply;
                for (size_t i = 0; i < m->n_events; i++)
                        n += m->events[i]->count;
                request.after = m->next;
        } while (m->more && m->n_events > 0);
        verdict_of_refusals(v, n, m->n_events > 0 ? m->events[m->n_events - 1] : NULL);
        return CTL_OK;
}

#define STATUS_LINES 12 /* after the verdict's first, without --all */

/* Prints the verdict, then the rows that people ask for most, or with --all everything. */
static void print_status(const struct ctl *ctl, const struct verdict *v, const void *row)
{
        static const char *const rows[] = {"UPTIME", "MEMORY", "PAGES", "HOST TIER", "DISK TIER",
                "LOOKUPS", "EVICTED PAGES", "WAITING LEASES", "CLIENTS"};
        bool is_all = ctl->options[CTL_OPTION_ALL];
        size_t left = verdict_print(v, prose_width(), is_all ? SIZE_MAX : STATUS_LINES);

        if (left > 1)
                putchar('\n');
        if (is_all)
                show_object(&noun_status.table, &ctl->format, row);
        else if (left > 1)
                show_rows(&noun_status.table, &ctl->format, row, rows, ARRAY_SIZE(rows), left - 1);
}

int verb_status(const struct ctl *ctl)
{
        struct verdict v = {.format = &ctl->format};
        const struct figures_status *s;
        json_t *object;
        int r = admin_each(ctl->admin, &noun_devices, NULL, verdict_of_device, &v);

        if (r == CTL_OK)
                r = look_at_refusals(ctl, &v);
        if (r == CTL_OK)
                r = admin_status(ctl->admin, &s);
        if (r == CTL_OK) {
                verdict_of_status(&v, s);
                if (ctl->format.json) {
                        object = show_object_json(&noun_status.table, &ctl->format, s);
                        verdict_to_json(&v, object);
                        show_json(object);
                } else {
                        print_status(ctl, &v, s);
                }
        }
        verdict_deinit(&v);
        return r;
}

int verb_list(const struct ctl *ctl)
{
        const struct noun *noun = ctl->verb->list;
        struct show_list *l = show_list_new(&noun->table, &ctl->format);
        int r = admin_list(ctl->admin, noun, ctl->options[CTL_OPTION_TENANT], l);

        if (r == CTL_OK)
                show_list_print(l);
        else
                show_list_free(l);
        return r;
}

int verb_tenants_show(const struct ctl *ctl)
{
        const void *row;
        int r = admin_first(ctl->admin, &noun_tenants, ctl->args[0], &row);

        if (r != CTL_OK)
                return r;
        if (!row)
                return fail(CTL_REFUSED, "there is no tenant %s: kvleasectl tenants lists them",
                        ctl->args[0]);
        show_object(&noun_tenants.table, &ctl->format, row);
        return CTL_OK;
}

int verb_check(const struct ctl *ctl)
{
        Kvlease__V1__AdminCheckRequest request = KVLEASE__V1__ADMIN_CHECK_REQUEST__INIT;
        const Kvlease__V1__AdminCheckReply *reply;
        const ProtobufCMessage *m;
        uint32_t status;
        bool broken;
        int r = admin_ask(ctl->admin, MSG_ADMIN_CHECK, &request.base, &status, &m);

        if (r != CTL_OK)
                return r;
        reply = (const Kvlease__V1__AdminCheckReply *)m;
        if (status != WIRE_OK && status != WIRE_CORRUPT)
                return fail(CTL_REFUSED, "%s",
                        reply->detail[0] ? reply->detail : status_text(status_from_wire(status)));
        broken = status == WIRE_CORRUPT;
        if (ctl->format.json)
                show_json(json_pack("{s:b, s:o, s:I, s:I}", "consistent", !broken, "violation",
                        broken ? show_json_text(reply->detail) : json_null(), "pages_checked",
                        (json_int_t)reply->pages, "sets_checked", (json_int_t)reply->sets));
        else if (!broken)
                printf("consistent: %llu page%s and %llu extent set%s checked\n",
                        (unsigned long long)reply->pages, PLURAL(reply->pages),
                        (unsigned long long)reply->sets, PLURAL(reply->sets));
        return broken ? fail(CTL_VIOLATION, "violation: %s", reply->detail) : CTL_OK;
}

/* Prints what is known without the daemon; only the daemon's absence is no failure here. */
int verb_version(const struct ctl *ctl)
{
        struct admin *a = NULL;
        int r;

        if (!ctl->format.json) {
                printf("kvleasectl %s (protocol %d to %d)\n", KVLEASE_VERSION, PROTO_VERSION_MIN,
                        PROTO_VERSION_MAX);
                fflush(stdout);
        }
        r = admin_open(ctl->socket_path, &a);
        if (ctl->format.json) {
                show_json(json_pack("{s:s, s:i, s:i, s:o, s:o}", "kvleasectl_version",
                        KVLEASE_VERSION, "protocol_min", PROTO_VERSION_MIN, "protocol_max",
                        PROTO_VERSION_MAX, "daemon_version",
                        a ? show_json_text(admin_daemon_version(a)) : json_null(),
                        "daemon_protocol", a ? json_integer(admin_protocol(a)) : json_null()));
        } else if (a) {
                _cleanup_free_ char *version = text_printable(admin_daemon_version(a));

                printf("kvleased %s (protocol %u)\n", version, admin_protocol(a));
        }
        admin_close(a);
        return r == CTL_UNREACHABLE ? CTL_OK : r;
}
