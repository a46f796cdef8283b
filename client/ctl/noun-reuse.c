/* Sessions, namespace sets, and why keys hit or miss. */
#include "client/ctl/noun-reuse.h"

#include <inttypes.h>
#include <string.h>

#include "client/ctl/columns.h"
#include "client/ctl/ctl.h"
#include "client/lib/kvlease.h"
#include "proto/msg.h"

/* ---- sessions -------------------------------------------------------------------------------- */

typedef Kvlease__V1__AdminSession session_row;

#define SESSION(field, title, what, ...)                             \
        {                                                            \
                FIELD(AdminSession, field, title, what), __VA_ARGS__ \
        }
#define SESSION_ID_MAX 64 /* KVL_SESSION_ID_MAX; more isn't shown */

/* Whether the id can be typed as text. One that looks like hexadecimal digits could be mistaken for
 * these. */
static bool is_text(const ProtobufCBinaryData *id)
{
        for (size_t i = 0; i < id->len; i++)
                if (id->data[i] <= ' ' || id->data[i] > '~')
                        return false;
        return id->len > 0 && id->len <= SESSION_ID_MAX &&
               (id->len < 2 || memcmp(id->data, "0x", 2) != 0);
}

static void put_text(const ProtobufCBinaryData *id, struct value *ret)
{
        derive_text(ret, "%.*s", (int)id->len, (const char *)id->data);
}

static void put_hex(const ProtobufCBinaryData *id, const char *prefix, struct value *ret)
{
        size_t n = MIN(id->len, (size_t)SESSION_ID_MAX), at;

        derive_text(ret, "%s", prefix);
        at = strlen(ret->buf);
        for (size_t i = 0; i < n; i++)
                snprintf(ret->buf + at + 2 * i, 3, "%02x", id->data[i]);
}

static void session_shown(const void *row, const struct show_format *f, struct value *ret)
{
        const session_row *s = row;

        if (is_text(&s->id))
                put_text(&s->id, ret);
        else
                put_hex(&s->id, "0x", ret);
}

static void session_text(const void *row, const struct show_format *f, struct value *ret)
{
        const session_row *s = row;

        if (is_text(&s->id))
                put_text(&s->id, ret);
}

static void session_hex(const void *row, const struct show_format *f, struct value *ret)
{
        put_hex(&((const session_row *)row)->id, "", ret);
}

static void session_expires(const void *row, const struct show_format *f, struct value *ret)
{
        const session_row *s = row;

        ret->present = s->expires_in_sec > 0;
        ret->number = s->expires_in_sec;
}

static const struct column sessions_columns[] = {
        SESSION(tenant, "TENANT", TEXT),
        {.heading = "NAMESPACE",
                .key = "namespace",
                .kind = COLUMN_TEXT,
                .offset = offsetof(session_row, ns),
                .width = sizeof(((session_row *)NULL)->ns)},
        {.heading = "SESSION", .kind = COLUMN_TEXT, .derive = session_shown},
        {.key = "id", .kind = COLUMN_TEXT, .derive = session_text},
        {.key = "id_hex", .kind = COLUMN_TEXT, .derive = session_hex},
        SESSION(n_pages, "PAGES", COUNT, .spare = 5),
        SESSION(n_tokens, "TOKENS", COUNT),
        SESSION(lost_tokens, "LOST", COUNT, .spare = 3),
        SESSION(bytes, "SIZE", BYTES, .spare = 1),
        SESSION(truncated, "TRUNCATED", BOOL, .spare = 6),
        SESSION(hint, "HINT", TEXT, .spare = 7),
        SESSION(n_open, "OPEN", COUNT, .spare = 4),
        SESSION(idle_sec, "IDLE", SECONDS),
        {.heading = "EXPIRES IN",
                .key = "expires_in_sec",
                .kind = COLUMN_SECONDS,
                .spare = 2,
                .derive = session_expires},
};

NOUN(sessions, AdminSessionsReply, MSG_ADMIN_SESSIONS);

/* ---- namespace sets -------------------------------------------------------------------------- */

#define SET(field, title, what, ...)                             \
        {                                                        \
                FIELD(AdminSet, field, title, what), __VA_ARGS__ \
        }

static const struct column sets_columns[] = {
        SET(tenant, "TENANT", TEXT),
        SET(name, "NAME", TEXT),
        SET(size, "SIZE", COUNT, .spare = 2),
        SET(n_namespaces, "NAMESPACES", COUNT, .spare = 1),
        SET(keys_complete, "COMPLETE KEYS", COUNT),
        SET(keys_incomplete, "INCOMPLETE", COUNT),
        SET(dropped, "DROPPED", COUNT, .spare = 3),
        SET(charged_bytes, "USED", BYTES, .spare = 1),
};

NOUN(sets, AdminSetsReply, MSG_ADMIN_SETS);

/* ---- codecs ---------------------------------------------------------------------------------- */

#define CODEC(field, title, what, ...)                             \
        {                                                          \
                FIELD(AdminCodec, field, title, what), __VA_ARGS__ \
        }

/* "8-23" */
static void codec_layers(const void *row, const struct show_format *f, struct value *ret)
{
        const Kvlease__V1__AdminCodec *c = row;

        if (c->first_layer == c->last_layer)
                derive_text(ret, "%" PRIu32, c->first_layer);
        else
                derive_text(ret, "%" PRIu32 "-%" PRIu32, c->first_layer, c->last_layer);
}

/* "0.41 %"; empty without samples. */
static void codec_error(const void *row, const struct show_format *f, struct value *ret)
{
        const Kvlease__V1__AdminCodec *c = row;

        if (c->pages_sampled > 0)
                derive_text(ret, "%.2f %%", (double)c->error_ppm / 1e4);
}

static const struct column codecs_columns[] = {
        CODEC(tenant, "TENANT", TEXT),
        CODEC(ns, "NAMESPACE", TEXT),
        CODEC(tier, "TIER", TEXT),
        {.heading = "LAYERS", .kind = COLUMN_TEXT, .derive = codec_layers},
        CODEC(first_layer, NULL, COUNT),
        CODEC(last_layer, NULL, COUNT),
        CODEC(codec, "CODEC", TEXT),
        CODEC(page_bytes, "PAGE", BYTES, .spare = 1),
        CODEC(stored_bytes, "STORED", BYTES),
        CODEC(pages_encoded, "ENCODED", COUNT, .spare = 3),
        CODEC(pages_sampled, "SAMPLED", COUNT, .spare = 2),
        {.heading = "ERROR", .kind = COLUMN_TEXT, .derive = codec_error},
        CODEC(error_ppm, NULL, COUNT),
};

NOUN(codecs, AdminCodecsReply, MSG_ADMIN_CODECS);

/* ---- exchanges ------------------------------------------------------------------------------- */

#define EXCHANGE(field, title, what, ...)                             \
        {                                                             \
                FIELD(AdminExchange, field, title, what), __VA_ARGS__ \
        }

/* "late 3, damaged 20": pages that weren't imported, or exported. */
static void exchange_dropped(const void *row, const struct show_format *f, struct value *ret)
{
        const Kvlease__V1__AdminExchange *x = row;
        char text[256] = "";
        size_t len = 0;

        for (size_t i = 0; i < x->n_drops && len < sizeof(text); i++) {
                uint64_t n = x->drops[i]->not_imported + x->drops[i]->not_exported;

                if (n > 0)
                        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s %" PRIu64,
                                len > 0 ? ", " : "", x->drops[i]->reason, n);
        }
        if (len > 0)
                derive_text(ret, "%s", text);
}

/* {"late": 3, "damaged": 20}. Reasons are from the daemon, which isn't trusted. */
static json_t *drops_json(const Kvlease__V1__AdminExchange *x, size_t count_offset)
{
        json_t *object = need(json_object());

        for (size_t i = 0; i < x->n_drops; i++) {
                const char *at = (const char *)x->drops[i] + count_offset;
                uint64_t count = MIN(*(const uint64_t *)at, (uint64_t)INT64_MAX);
                _cleanup_free_ char *reason = text_printable(x->drops[i]->reason);

                if (json_object_set_new(object, reason, need(json_integer((json_int_t)count))) < 0)
                        need(NULL);
        }
        return object;
}

static json_t *exchange_not_imported(const void *row)
{
        return drops_json(row, offsetof(Kvlease__V1__AdminExchangeDrop, not_imported));
}

static json_t *exchange_not_exported(const void *row)
{
        return drops_json(row, offsetof(Kvlease__V1__AdminExchangeDrop, not_exported));
}

/* Absent if not measured. */
static void exchange_bandwidth(const void *row, const struct show_format *f, struct value *ret)
{
        ret->number = ((const Kvlease__V1__AdminExchange *)row)->import_bytes_per_sec;
        ret->present = ret->number > 0;
}

static void exchange_prefill(const void *row, const struct show_format *f, struct value *ret)
{
        ret->number = ((const Kvlease__V1__AdminExchange *)row)->prefill_tokens_per_sec;
        ret->present = ret->number > 0;
}

static const struct column exchanges_columns[] = {
        EXCHANGE(tenant, "TENANT", TEXT),
        EXCHANGE(remote, "REMOTE", TEXT),
        EXCHANGE(may_write, NULL, BOOL),
        EXCHANGE(is_sealed, "SEALED", BOOL, .spare = 1),
        EXCHANGE(is_known, NULL, BOOL),
        EXCHANGE(n_nodes, "NODES", COUNT),
        EXCHANGE(n_nodes_open, "FAILED", COUNT),
        EXCHANGE(rtt_usec, NULL, COUNT),
        EXCHANGE(n_namespaces, NULL, COUNT),
        EXCHANGE(n_namespaces_ready, NULL, COUNT),
        EXCHANGE(probes, "PROBES", COUNT, .spare = 2),
        EXCHANGE(probed_pages, NULL, COUNT),
        EXCHANGE(found_pages, "FOUND", COUNT),
        EXCHANGE(imported_pages, "IMPORTED", COUNT),
        EXCHANGE(imported_bytes, NULL, BYTES),
        EXCHANGE(loads, "LOADS", COUNT, .spare = 5),
        EXCHANGE(loads_lost, "LOST", COUNT, .spare = 4),
        EXCHANGE(load_error_ppm, NULL, COUNT),
        {.heading = "BYTES/S",
                .key = "import_bytes_per_sec",
                .kind = COLUMN_BYTES,
                .spare = 6,
                .derive = exchange_bandwidth},
        {.heading = "TOKENS/S",
                .key = "prefill_tokens_per_sec",
                .kind = COLUMN_COUNT,
                .spare = 7,
                .derive = exchange_prefill},
        EXCHANGE(exported_pages, "EXPORTED", COUNT),
        EXCHANGE(exported_bytes, NULL, BYTES),
        EXCHANGE(there_pages, NULL, COUNT),
        EXCHANGE(epochs, NULL, COUNT),
        EXCHANGE(followed, NULL, COUNT),
        EXCHANGE(session_records, NULL, COUNT),
        EXCHANGE(sessions, "SESSIONS", COUNT, .spare = 3),
        EXCHANGE(n_imports, NULL, COUNT),
        EXCHANGE(n_texts, NULL, COUNT),
        EXCHANGE(bytes_under_way, NULL, BYTES),
        {.heading = "NOT BROUGHT", .kind = COLUMN_TEXT, .wraps = true, .derive = exchange_dropped},
        {.key = "not_imported", .derive_json = exchange_not_imported},
        {.key = "not_exported", .derive_json = exchange_not_exported},
};

NOUN(exchanges, AdminExchangesReply, MSG_ADMIN_EXCHANGES);

/* ---- nodes of remotes ------------------------------------------------------------------------ */

typedef Kvlease__V1__AdminRemoteNode node_row;

#define NODE(field, title, what, ...)                                   \
        {                                                               \
                FIELD(AdminRemoteNode, field, title, what), __VA_ARGS__ \
        }

/* "open for 12 s", then a trial is let through. */
static void node_breaker(const void *row, const struct show_format *f, struct value *ret)
{
        const node_row *n = row;
        char left[32];

        if (n->open_left_msec > 0)
                derive_text(ret, "%.32s for %s", n->breaker,
                        show_seconds(f, (n->open_left_msec + 999) / 1000, left));
        else if (n->breaker[0])
                derive_text(ret, "%.32s", n->breaker);
}

/* Absent for a remote without nodes. */
static void node_slots(const void *row, const struct show_format *f, struct value *ret)
{
        ret->present = ((const node_row *)row)->address[0];
        ret->number = ((const node_row *)row)->slots;
}

/* Absent if not measured. */
static void node_round_trip(const void *row, const struct show_format *f, struct value *ret)
{
        const node_row *n = row;

        if (n->rtt_usec > 0)
                derive_text(ret, "%" PRIu64 ".%02" PRIu64 "ms", n->rtt_usec / 1000,
                        n->rtt_usec / 10 % 100);
}

/* A node's error, or why no node is known. */
static void node_why(const void *row, const struct show_format *f, struct value *ret)
{
        const node_row *n = row;
        const char *why = n->address[0] ? n->last_error : n->slots_error;

        if (why[0])
                derive_text(ret, "%s", why);
}

static const struct column nodes_columns[] = {
        NODE(remote, "REMOTE", TEXT),
        NODE(state, "STATE", TEXT, .spare = 7),
        NODE(is_cluster, NULL, BOOL),
        NODE(slots_served, NULL, COUNT),
        NODE(slots_error, NULL, TEXT),
        NODE(reads, NULL, COUNT),
        NODE(reads_failed, NULL, COUNT),
        NODE(writes, NULL, COUNT),
        NODE(writes_refused, NULL, COUNT),
        NODE(address, "NODE", TEXT),
        {.heading = "SLOTS",
                .key = "slots",
                .kind = COLUMN_COUNT,
                .spare = 6,
                .derive = node_slots},
        NODE(connections, NULL, COUNT),
        {.heading = "BREAKER", .kind = COLUMN_TEXT, .derive = node_breaker},
        NODE(breaker, NULL, TEXT),
        NODE(open_left_msec, NULL, COUNT),
        {.heading = "ROUND TRIP", .kind = COLUMN_TEXT, .spare = 1, .derive = node_round_trip},
        NODE(rtt_usec, NULL, COUNT),
        NODE(bytes_read, "READ", BYTES, .spare = 3),
        NODE(bytes_written, "WRITTEN", BYTES, .spare = 2),
        NODE(answers, NULL, COUNT),
        NODE(errors, NULL, COUNT),
        NODE(timeouts, "TIMEOUTS", COUNT, .spare = 5),
        NODE(losses, "LOST", COUNT, .spare = 4),
        NODE(trips, "TRIPS", COUNT, .spare = 8),
        {.heading = "LAST ERROR", .kind = COLUMN_TEXT, .wraps = true, .derive = node_why},
        NODE(last_error, NULL, TEXT),
};

NOUN(nodes, AdminRemotesReply, MSG_ADMIN_REMOTES);

/* ---- explanations ---------------------------------------------------------------------------- */

static const char *state_name(uint32_t state)
{
        static const char *const names[] = {
                [KVL_EXPLAIN_NEVER_SEEN] = "never seen",
                [KVL_EXPLAIN_CACHED] = "cached",
                [KVL_EXPLAIN_PENDING] = "being computed",
                [KVL_EXPLAIN_EVICTED] = "evicted",
                [KVL_EXPLAIN_INVALIDATED] = "invalidated",
                [KVL_EXPLAIN_OTHER_VERSION] = "other version",
                [KVL_EXPLAIN_EXPIRED] = "expired",
        };

        return state < ARRAY_SIZE(names) ? names[state] : "unknown";
}

static bool is_cached(const struct explained *x)
{
        return x->why->state == KVL_EXPLAIN_CACHED;
}

static void explain_key(const void *row, const struct show_format *f, struct value *ret)
{
        derive_text(ret, "%s", ((const struct explained *)row)->key);
}

static void explain_state(const void *row, const struct show_format *f, struct value *ret)
{
        derive_text(ret, "%s", state_name(((const struct explained *)row)->why->state));
}

static void explain_page(const void *row, const struct show_format *f, struct value *ret)
{
        const struct explained *x = row;

        ret->present = is_cached(x) || x->why->state == KVL_EXPLAIN_PENDING;
        ret->number = x->why->page;
}

static void explain_tier(const void *row, const struct show_format *f, struct value *ret)
{
        const struct explained *x = row;

        if (is_cached(x))
                derive_text(ret, "%s", x->why->tier == 0 ? "device" : "other");
}

static void explain_age(const void *row, const struct show_format *f, struct value *ret)
{
        const struct explained *x = row;

        ret->present =
                x->why->state != KVL_EXPLAIN_NEVER_SEEN && x->why->state != KVL_EXPLAIN_PENDING;
        ret->number = x->why->age_sec;
}

static void explain_unused(const void *row, const struct show_format *f, struct value *ret)
{
        const struct explained *x = row;

        ret->present = is_cached(x);
        ret->number = x->why->unused_sec;
}

static void explain_client(const void *row, const struct show_format *f, struct value *ret)
{
        const struct explained *x = row;

        ret->present = x->why->client_id > 0;
        ret->number = x->why->client_id;
}

static void explain_by(const void *row, const struct show_format *f, struct value *ret)
{
        const struct explained *x = row;

        if (x->why->by[0])
                derive_text(ret, "%.64s", x->why->by);
}

static void explain_import(const void *row, const struct show_format *f, struct value *ret)
{
        const struct explained *x = row;

        if (x->why->outlook[0])
                derive_text(ret, "%.64s", x->why->outlook);
}

static void explain_import_detail(const void *row, const struct show_format *f, struct value *ret)
{
        const struct explained *x = row;

        ret->present = x->why->outlook[0] && x->outlook_detail[0];
        if (ret->present)
                ret->text = x->outlook_detail;
}

#define EXPLAIN(title, name, what, from, ...)                             \
        {                                                                 \
                .heading = (title), .key = (name), .kind = COLUMN_##what, \
                .derive = explain_##from, __VA_ARGS__                     \
        }

static const struct column explanations_columns[] = {
        EXPLAIN("KEY", "key", TEXT, key, .shortest = 16),
        EXPLAIN("STATE", "state", TEXT, state),
        EXPLAIN("PAGE", "page", COUNT, page, .spare = 3),
        EXPLAIN("TIER", "tier", TEXT, tier),
        EXPLAIN("AGE", "age_sec", SECONDS, age),
        EXPLAIN("UNUSED", "unused_sec", SECONDS, unused, .spare = 1),
        EXPLAIN("CLIENT", "client_id", COUNT, client, .spare = 2),
        EXPLAIN("BY", "by", TEXT, by),
        EXPLAIN("IMPORT", "import", TEXT, import, .spare = 4),
        EXPLAIN(NULL, "import_detail", TEXT, import_detail),
};

const struct column_table explanations_table = {
        "explanations", explanations_columns, ARRAY_SIZE(explanations_columns)};
