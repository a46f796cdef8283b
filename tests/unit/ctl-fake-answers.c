#include "tests/unit/ctl-fake-answers.h"

#include <string.h>

#include "proto/figures.h"
#include "proto/status.h"
#include "tests/unit/ctl-fake-rows.h"
#include "tests/unit/figure-text.h"
#include "tests/unit/test-support.h"

/* Generated messages have char * where they only read. */
#pragma GCC diagnostic ignored "-Wdiscarded-qualifiers"

#define M(name) Kvlease__V1__##name

/* ---- what there is in the fake daemon -------------------------------------------------------- */

#include "tests/unit/ctl-fake-events.h"

static M(Explanation) explanations[] = {
        {.state = 1, .page = 7, .age_sec = 90, .unused_sec = 5, .client_id = 3},
        {.state = 3, .age_sec = 3600, .by = "search", .outlook = "asks"},
        {.state = 0, .outlook = "asks"},
        {.state = 99},
};

/* ---- answers --------------------------------------------------------------------------------- */

/* Generated messages are initialised by a function each: their default strings aren't NULL. */
static ProtobufCMessage *message_new(struct fake_answers *f, const ProtobufCMessageDescriptor *d)
{
        ProtobufCMessage *m = arena_alloc(f->arena, d->sizeof_message);

        assert_non_null(m);
        d->message_init(m);
        return m;
}

/* Fills what the tables above leave out: descriptor and default strings. */
static void complete(struct fake_answers *f, void *p, const ProtobufCMessageDescriptor *d)
{
        ProtobufCMessage *m = p, *fresh = message_new(f, d);

        for (unsigned i = 0; i < d->n_fields; i++) {
                const ProtobufCFieldDescriptor *field = &d->fields[i];
                char **text = (char **)((char *)p + field->offset);

                if (field->type == PROTOBUF_C_TYPE_STRING &&
                        field->label != PROTOBUF_C_LABEL_REPEATED && !*text)
                        *text = *(char **)((char *)fresh + field->offset);
        }
        m->descriptor = d;
}

#define COMPLETE(f, row, name) complete(f, row, &kvlease__v1__##name##__descriptor)

/* Two events in the first answer, the rest in the next. A following client sees that some were
 * lost. */
static void answer_events(
        const struct fake_answers *f, M(AdminEventsReply) * m, const M(AdminEventsRequest) * q)
{
        static M(AdminEvent) * rows[ARRAY_SIZE(events)];
        size_t first = q->after == 0 ? 0 : 2;

        if (f->mode == FAKE_EMPTY)
                return;
        for (size_t i = 0; i < ARRAY_SIZE(events); i++)
                COMPLETE(f, &events[i], admin_event);
        if (q->n_kinds == 1) { /* "refused", as kvleasectl status asks */
                rows[0] = &events[1];
                m->events = rows;
                m->n_events = f->mode != FAKE_WELL;
                return;
        }
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
                rows[i] = &events[i];
        m->events = rows + first;
        m->n_events = first ? ARRAY_SIZE(rows) - first : 2;
        m->more = !first;
        m->next = events[first ? ARRAY_SIZE(rows) - 1 : 1].number;
        m->lost = q->wait_msec > 0 ? 6 : 0;
}

/* Makes the figures of a part absent, unless one of the part was named. */
static void end_part(
        const struct figure_table *t, char *row, const bool *is_named, const char *part)
{
        size_t len = strlen(part);
        bool is_there = false;

        for (size_t i = 0; i < t->n_figures; i++)
                is_there |= is_named[i] && strncmp(t->figures[i].name, part, len) == 0;
        for (size_t i = 0; i < t->n_figures && !is_there; i++)
                if (strncmp(t->figures[i].name, part, len) == 0 && !t->figures[i].is_text)
                        set_figure(&t->figures[i], row, "none");
}

/* Reads a row of ctl-fake-rows.h. */
static void read_row(
        struct fake_answers *f, const struct figure_table *t, const char *text, void *ret)
{
        static const char *const parts[] = {"host_", "disk_", "prefetch_stream_", "prefetch_turn_",
                "prefetch_expect_", "prefetch_warm_", "refused_"};
        bool is_named[256] = {false};

        assert_true(t->n_figures <= ARRAY_SIZE(is_named));
        figures_init(t, ret);
        for (size_t i = 0; i < t->n_figures; i++)
                if (t->figures[i].may_be_none)
                        *(const char **)(void *)((char *)ret + t->figures[i].offset) = NULL;
        set_figures(f->arena, t, text, ret, is_named);
        for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
                end_part(t, ret, is_named, parts[i]);
}

/* Reads `n` rows into the arena. */
static void *read_rows(
        struct fake_answers *f, const struct figure_table *t, const char *const *texts, size_t n)
{
        char *rows = arena_alloc(f->arena, n * t->size);

        assert_non_null(rows);
        for (size_t i = 0; i < n; i++)
                read_row(f, t, texts[i], rows + i * t->size);
        return rows;
}

#define READ_ROWS(f, scope, rows) read_rows(f, &figures_table_##scope, rows, ARRAY_SIZE(rows))

static void answer_rows(struct fake_answers *f, M(AdminRowsReply) * reply,
        const struct figure_table *t, const void *rows, size_t n)
{
        struct figures_page page;

        assert_int_equal(figures_page_init(&page, t, f->arena), 0);
        for (size_t i = 0; i < n; i++)
                assert_int_equal(figures_page_add(&page, (const char *)rows + i * t->size), 0);
        figures_page_finish(&page, reply);
}

/* One row per answer, so that every list of two needs two requests. */
static void answer_list(struct fake_answers *f, M(AdminRowsReply) * reply,
        const M(AdminListRequest) * q, const struct figure_table *t, const char *const *texts,
        size_t n)
{
        size_t at = (size_t)q->after;
        bool is_there = f->mode != FAKE_EMPTY && at < n;
        void *row = read_rows(f, t, texts + (is_there ? at : 0), 1);

        if (t == &figures_table_exchange && at == 0) {
                ((struct figures_exchange *)row)->drops = READ_ROWS(f, drop, drops);
                ((struct figures_exchange *)row)->n_drops = ARRAY_SIZE(drops);
        }
        answer_rows(f, reply, t, row, is_there);
        if (is_there)
                reply->next = f->mode == FAKE_CIRCLE ? 1 : at + 1 < n ? at + 1 : 0;
}

static void answer_hello(struct fake_answers *f, M(HelloReply) * reply)
{
        reply->version = PROTO_VERSION_MAX;
        reply->min_version = PROTO_VERSION_MIN;
        reply->max_version = PROTO_VERSION_MAX;
        reply->daemon_version = "0.1.0";
        if (f->mode == FAKE_TENANT)
                reply->tenant = "search";
        if (f->mode == FAKE_VERSION) {
                reply->status = WIRE_VERSION;
                reply->version = 0;
                reply->detail =
                        "the daemon speaks protocol 2 to 3, the client 1 to 1: upgrade kvleasectl";
        }
}

static void answer_status(struct fake_answers *f, M(AdminRowsReply) * reply)
{
        const struct figures_turn *all_turns = READ_ROWS(f, turn, turns);
        const struct figures_remote *all_remotes = READ_ROWS(f, remote, remotes);
        bool gone = f->mode == FAKE_LEAVING && f->n_status++ > 0;
        struct figures_status row;

        read_row(f, &figures_table_status, f->mode == FAKE_EMPTY ? "" : status[0], &row);
        if (f->mode != FAKE_EMPTY) {
                row.longest_turns = all_turns;
                row.n_longest_turns = ARRAY_SIZE(turns);
                row.recent_turns = &all_turns[1];
                row.n_recent_turns = 1;
                row.remotes = all_remotes;
                row.n_remotes = ARRAY_SIZE(remotes);
        }
        if (gone || f->mode == FAKE_LINGERING)
                row.n_clients = 0;
        if (f->mode == FAKE_LINGERING || f->mode == FAKE_WELL)
                row.segments = "read-only mount";
        if (gone)
                row.members_waiting_exit = 0;
        if (f->mode == FAKE_WELL) {
                memset(&row.host, 0xff, sizeof(row.host)); /* absent */
                row.remotes = &all_remotes[1];             /* with which nothing is wrong */
                row.n_remotes = 2;
                row.clients_lost = row.tenants_refused = row.tenants_paused = 0;
                row.memory_excess = "";
                row.tenants_without_room = row.deaths = row.deaths_for_memory = 0;
                row.violations = row.pending_overflows = row.connects_refused = 0;
                row.took_over = false;
        }
        answer_rows(f, reply, &figures_table_status, &row, 1);
}

/* FAKE_WELL: removes all that `status` warns about. */
static void answer_devices(
        struct fake_answers *f, M(AdminRowsReply) * reply, const M(AdminListRequest) * q)
{
        struct figures_device well;

        read_row(f, &figures_table_device, devices[0], &well);
        well.missing_bytes = 0;
        if (f->mode == FAKE_WELL)
                answer_rows(f, reply, &figures_table_device, &well, 1);
        else
                answer_list(f, reply, q, &figures_table_device, devices, ARRAY_SIZE(devices));
}

static void answer_tenants(
        struct fake_answers *f, M(AdminRowsReply) * reply, const M(AdminListRequest) * q)
{
        bool gone = f->mode == FAKE_LEAVING && q->tenant[0] && f->n_status++ > 0;
        struct figures_tenant *all = READ_ROWS(f, tenant, tenants);
        size_t i = 0;

        if (!q->tenant[0]) {
                answer_list(f, reply, q, &figures_table_tenant, tenants, ARRAY_SIZE(tenants));
                return;
        }
        while (i < ARRAY_SIZE(tenants) && strcmp(all[i].name, q->tenant) != 0)
                i++;
        if (i < ARRAY_SIZE(tenants))
                all[i].recalled_sets = gone ? 0 : 3;
        answer_rows(f, reply, &figures_table_tenant, &all[i], i < ARRAY_SIZE(tenants));
}

/* An answer for each key; none from a daemon that is empty. */
static void answer_explain(
        struct fake_answers *f, M(ExplainReply) * reply, const M(AdminExplainRequest) * q)
{
        static M(Explanation) * rows[ARRAY_SIZE(explanations)];
        size_t n = f->mode == FAKE_EMPTY ? 0 : q->keys.len / 32;

        assert_true(n <= ARRAY_SIZE(rows));
        for (size_t i = 0; i < n; i++) {
                COMPLETE(f, &explanations[i], explanation);
                rows[i] = &explanations[i];
        }
        reply->n_explanations = n;
        reply->explanations = rows;
        reply->outlook_detail =
                "an import loads what remote cluster has, which answers: at least "
                "256 tokens, where that is sooner than computing them (10000 a second, as remote_prefill says)";
}

static void answer_record(
        struct fake_answers *f, M(AdminRecordReply) * reply, const M(AdminRecordRequest) * q)
{
        if (f->mode == FAKE_EMPTY)
                return;
        reply->on = q->action != KVLEASE__V1__ADMIN_RECORD_REQUEST__ACTION__OFF;
        reply->path = "/var/lib/kvlease/traces/trace-3.jsonl";
        reply->requests = 1234;
        reply->bytes = 98765;
        reply->lost = 1;
        reply->under_way = 4;
        if (!reply->on)
                return;
        reply->without_id = 30;
        reply->trouble = "no room in /var/lib/kvlease/traces";
}

/* Warming runs after BEGIN; with FAKE_LINGERING it never ends. */
static void answer_warm(
        struct fake_answers *f, M(AdminWarmReply) * reply, const M(AdminWarmRequest) * q)
{
        bool is_status = q->action == KVLEASE__V1__ADMIN_WARM_REQUEST__ACTION__STATUS;

        if (f->mode == FAKE_EMPTY)
                return;
        reply->running = f->mode == FAKE_LINGERING ||
                         q->action == KVLEASE__V1__ADMIN_WARM_REQUEST__ACTION__BEGIN;
        reply->there = 2;
        reply->came = is_status ? 18 : 4;
        reply->left = is_status ? 3 : 17;
        reply->full = is_status && !reply->running;
        reply->missing = f->mode == FAKE_LEAVING;
}

/* Half of it, and then all where clients leave; a server that doesn't answer, where they don't. */
static void answer_drain(
        struct fake_answers *f, M(AdminDrainReply) * reply, const M(AdminDrainRequest) * q)
{
        bool is_over = f->mode == FAKE_LEAVING && q->look;

        if (f->mode == FAKE_EMPTY || !(q->export_cached || q->look))
                return;
        reply->export_begun = true;
        reply->exporting = !is_over;
        reply->written_pages = is_over ? 40000 : 20000;
        reply->written_bytes = reply->written_pages << 17;
        reply->there_pages = 1234;
        reply->there_bytes = reply->there_pages << 17;
        reply->left_pages = is_over ? 12 : 20012;
        reply->left_bytes = reply->left_pages << 17;
        reply->old_pages = 345;
        reply->apart_pages = is_over ? 7 : 0;
        if (f->mode == FAKE_NORMAL)
                reply->obstacle = "no server of remote cluster answers: Connection refused";
}

static void answer(
        struct fake_answers *f, uint16_t type, const ProtobufCMessage *q, ProtobufCMessage *m)
{
        switch (type) {
        case MSG_HELLO:
                answer_hello(f, (M(HelloReply) *)m);
                return;
        case MSG_ADMIN_STATUS:
                answer_status(f, (M(AdminRowsReply) *)m);
                return;
        case MSG_ADMIN_DEVICES:
                answer_devices(f, (M(AdminRowsReply) *)m, (const M(AdminListRequest) *)q);
                return;
        case MSG_ADMIN_TENANTS:
                answer_tenants(f, (M(AdminRowsReply) *)m, (const M(AdminListRequest) *)q);
                return;
#define LIST_OF(message, scope, rows)                                                  \
        case MSG_ADMIN_##message:                                                      \
                answer_list(f, (M(AdminRowsReply) *)m, (const M(AdminListRequest) *)q, \
                        &figures_table_##scope, rows, ARRAY_SIZE(rows));               \
                return;
                LIST_OF(NAMESPACES, namespace, namespaces)
                LIST_OF(CLIENTS, client, clients)
                LIST_OF(REGIONS, region, regions)
                LIST_OF(CONFIG, option, options)
                LIST_OF(EVICTIONS, eviction, evictions)
                LIST_OF(SESSIONS, session, sessions)
                LIST_OF(SETS, set, sets)
                LIST_OF(CODECS, codec, codecs)
                LIST_OF(EXCHANGES, exchange, exchanges)
                LIST_OF(REMOTES, node, nodes)
        case MSG_ADMIN_EVENTS:
                answer_events(f, (M(AdminEventsReply) *)m, (const M(AdminEventsRequest) *)q);
                return;
        case MSG_ADMIN_EXPLAIN:
                answer_explain(f, (M(ExplainReply) *)m, (const M(AdminExplainRequest) *)q);
                return;
        case MSG_ADMIN_SESSION_PURGE:
                ((M(CountReply) *)m)->count = 5;
                return;
        case MSG_ADMIN_WARM:
                answer_warm(f, (M(AdminWarmReply) *)m, (const M(AdminWarmRequest) *)q);
                return;
        case MSG_ADMIN_DRAIN:
                answer_drain(f, (M(AdminDrainReply) *)m, (const M(AdminDrainRequest) *)q);
                return;
        case MSG_ADMIN_RECORD:
                answer_record(f, (M(AdminRecordReply) *)m, (const M(AdminRecordRequest) *)q);
                return;
        case MSG_ADMIN_PURGE:
                ((M(CountReply) *)m)->count = 42;
                ((M(CountReply) *)m)->kept = ((const M(AdminPurgeRequest) *)q)->remove;
                return;
        case MSG_ADMIN_RECALL:
                ((M(CountReply) *)m)->count = 3;
                return;
        case MSG_ADMIN_CHECK:
                ((M(AdminCheckReply) *)m)->pages = 1225;
                ((M(AdminCheckReply) *)m)->sets = 24;
                return;
        }
}

/* Every reply starts with status and detail. */
static void refuse(struct fake_answers *f, uint16_t type, ProtobufCMessage *m)
{
        M(SimpleReply) *reply = (M(SimpleReply) *)m;

        if (f->mode == FAKE_CORRUPT && type == MSG_ADMIN_CHECK) {
                reply->status = WIRE_CORRUPT;
                reply->detail = "page 17 of search/llama is in two places";
        }
        if (type == MSG_HELLO || (f->mode != FAKE_REFUSING && f->mode != FAKE_SILENT))
                return;
        reply->status = WIRE_BUSY;
        if (f->mode == FAKE_REFUSING)
                reply->detail = "tenant search has 2 clients: end them first";
}

ProtobufCMessage *fake_answer(
        struct fake_answers *f, const struct msg_info *info, const ProtobufCMessage *request)
{
        ProtobufCMessage *reply = message_new(f, info->reply);

        answer(f, info->type, request, reply);
        refuse(f, info->type, reply);
        return reply;
}
