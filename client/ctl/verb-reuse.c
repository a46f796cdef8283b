/* Sessions, namespace sets, codecs, exchanges, why keys miss, and recording of traffic. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "client/ctl/admin.h"
#include "client/ctl/noun.h"
#include "client/ctl/verb.h"
#include "client/ctl/width.h"
#include "client/lib/kvlease.h"
#include "proto/msg.h"

/* ---- remotes --------------------------------------------------------------------------------- */

/* Rows of one remote, in a list. */
struct remote_filter {
        const char *name; /* NULL: of all */
        struct show_list *list;
        size_t n_rows; /* so far */
};

static void add_node(const void *row, void *data)
{
        const struct figures_node *node = row;
        struct remote_filter *f = data;

        if (f->name && strcmp(node->remote, f->name) != 0)
                return;
        show_list_add(f->list, row);
        f->n_rows++;
}

int verb_remote(const struct ctl *ctl)
{
        struct remote_filter f = {.name = ctl->n_args > 0 ? ctl->args[0] : NULL,
                .list = show_list_new(&noun_nodes.table, &ctl->format)};
        int r = admin_each(ctl->admin, &noun_nodes, ctl->options[CTL_OPTION_TENANT], add_node, &f);

        if (r == CTL_OK && f.name && f.n_rows == 0)
                r = fail(
                        CTL_REFUSED, "there is no remote %s: kvleasectl remote lists them", f.name);
        if (r == CTL_OK)
                show_list_print(f.list);
        else
                show_list_free(f.list);
        return r;
}

/* ---- sessions -------------------------------------------------------------------------------- */

bool parse_session(const char *s, uint8_t *id, size_t *ret_len)
{
        size_t len = strlen(s);

        if (strncmp(s, "0x", 2) != 0) {
                *ret_len = len;
                if (len == 0 || len > KVL_SESSION_ID_MAX)
                        return false;
                memcpy(id, s, len);
                return true;
        }
        *ret_len = (len - 2) / 2;
        return len > 2 && len % 2 == 0 && *ret_len <= KVL_SESSION_ID_MAX &&
               parse_hex(s + 2, id, *ret_len) == 0;
}

int check_session(const struct ctl *ctl)
{
        const char *session = ctl->options[CTL_OPTION_SESSION];
        uint8_t id[KVL_SESSION_ID_MAX];
        size_t len;

        if (!session || parse_session(session, id, &len))
                return CTL_OK;
        return fail(CTL_USAGE,
                "--session: '%s' is not a session's id: 1 to %d characters, or 0x and two hexadecimal digits a byte, as kvleasectl sessions shows it",
                session, KVL_SESSION_ID_MAX);
}

int check_keys(const struct ctl *ctl)
{
        uint8_t key[KVL_KEY_BYTES];

        for (unsigned i = 2; i < ctl->n_args; i++)
                if (strlen(ctl->args[i]) != 2 * KVL_KEY_BYTES ||
                        parse_hex(ctl->args[i], key, sizeof(key)) < 0)
                        return fail(CTL_USAGE, "'%s' is not a key: %d hexadecimal digits",
                                ctl->args[i], 2 * KVL_KEY_BYTES);
        return CTL_OK;
}

int check_ns_name(const char *name)
{
        if (ns_name_is_valid(name))
                return CTL_OK;
        return fail(CTL_USAGE,
                "'%s' is not a namespace's name: 1 to %d of A-Z a-z 0-9 . _ - @, not starting with . - or @",
                name, NS_NAME_MAX);
}

int check_sessions_purge(const struct ctl *ctl)
{
        const char *ns = ctl->options[CTL_OPTION_NAMESPACE];
        const char *idle = ctl->options[CTL_OPTION_IDLE];
        uint64_t nsec;

        if ((ns && check_ns_name(ns) != CTL_OK) || check_session(ctl) != CTL_OK)
                return CTL_USAGE;
        if (idle && parse_duration(idle, &nsec) < 0)
                return fail_value(ctl, CTL_OPTION_IDLE, "a time, such as 90s or 1d");
        return check_tenant(ctl);
}

int verb_sessions_purge(const struct ctl *ctl)
{
        Kvlease__V1__AdminSessionPurgeRequest request =
                KVLEASE__V1__ADMIN_SESSION_PURGE_REQUEST__INIT;
        const char *ns = ctl->options[CTL_OPTION_NAMESPACE];
        const char *session = ctl->options[CTL_OPTION_SESSION];
        const char *idle = ctl->options[CTL_OPTION_IDLE];
        uint8_t id[KVL_SESSION_ID_MAX];
        const ProtobufCMessage *reply;
        uint64_t nsec = 0, n;
        int r;

        request.tenant = ctl->args[0];
        request.ns = (char *)(ns ? ns : "");
        if (session && parse_session(session, id, &request.id.len))
                request.id.data = id;
        if (idle && parse_duration(idle, &nsec) == 0)
                request.idle_sec = nsec / NSEC_PER_SEC + (nsec % NSEC_PER_SEC != 0);
        r = admin_call(ctl->admin, MSG_ADMIN_SESSION_PURGE, &request.base, &reply);
        if (r != CTL_OK)
                return r;
        n = ((const Kvlease__V1__CountReply *)reply)->count;
        if (ctl->format.json)
                show_json(json_pack("{s:s, s:s?, s:I}", "tenant", ctl->args[0], "namespace", ns,
                        "sessions_dropped", (json_int_t)n));
        else
                printf("sessions dropped: %llu\n", (unsigned long long)n);
        return CTL_OK;
}

/* ---- explain --------------------------------------------------------------------------------- */

#define EXPLAIN_MAX_KEYS 256 /* in one request */

/* A key's line. Texts are borrowed, but by_text and import_text; an absent one is NULL. */
struct explained {
        const char *key, *state, *tier, *by, *import, *import_detail;
        uint64_t page, age_sec, unused_sec, client_id; /* FIGURE_NONE: absent */
        char by_text[65], import_text[65];
};

#define EXPLAIN(title, name, what, field, ...)                            \
        {                                                                 \
                .heading = (title), .key = (name), .kind = COLUMN_##what, \
                .offset = offsetof(struct explained, field), __VA_ARGS__  \
        }

static const struct column explanations_columns[] = {
        EXPLAIN("KEY", "key", TEXT, key, .shortest = 16),
        EXPLAIN("STATE", "state", TEXT, state),
        EXPLAIN("PAGE", "page", COUNT, page, .spare = 3),
        EXPLAIN("TIER", "tier", TEXT, tier),
        EXPLAIN("AGE", "age_sec", SECONDS, age_sec),
        EXPLAIN("UNUSED", "unused_sec", SECONDS, unused_sec, .spare = 1),
        EXPLAIN("CLIENT", "client_id", COUNT, client_id, .spare = 2),
        EXPLAIN("BY", "by", TEXT, by),
        EXPLAIN("IMPORT", "import", TEXT, import, .spare = 4),
        EXPLAIN(NULL, "import_detail", TEXT, import_detail),
};

static const struct column_table explanations_table = {
        "explanations", explanations_columns, ARRAY_SIZE(explanations_columns)};

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

static const char *cut_text(const char *text, char buf[65])
{
        snprintf(buf, 65, "%s", text);
        return buf[0] ? buf : NULL;
}

static void explain_row(struct explained *x, const char *key, const Kvlease__V1__Explanation *why,
        const char *outlook_detail)
{
        bool is_cached = why->state == KVL_EXPLAIN_CACHED;
        bool is_pending = why->state == KVL_EXPLAIN_PENDING;
        bool is_seen = why->state != KVL_EXPLAIN_NEVER_SEEN;

        *x = (struct explained){
                .key = key,
                .state = state_name(why->state),
                .page = is_cached || is_pending ? why->page : FIGURE_NONE,
                .tier = !is_cached       ? NULL
                        : why->tier == 0 ? "device"
                                         : "other",
                .age_sec = is_seen && !is_pending ? why->age_sec : FIGURE_NONE,
                .unused_sec = is_cached ? why->unused_sec : FIGURE_NONE,
                .client_id = why->client_id > 0 ? why->client_id : FIGURE_NONE,
                .import_detail = why->outlook[0] && outlook_detail[0] ? outlook_detail : NULL,
        };
        x->by = cut_text(why->by, x->by_text);
        x->import = cut_text(why->outlook, x->import_text);
}

int check_explain(const struct ctl *ctl)
{
        if (check_ns_name(ctl->args[1]) != CTL_OK || check_keys(ctl) != CTL_OK)
                return CTL_USAGE;
        return check_tenant(ctl);
}

/* Prints what other hosts may have of it, wrapped at the terminal's width; elsewhere as a line. */
static void print_forecast(const char *detail)
{
        if (detail[0])
                print_wrapped(stdout, "not here: ", detail,
                        output_width() > 0 ? output_width() : SIZE_MAX);
}

int verb_explain(const struct ctl *ctl)
{
        Kvlease__V1__AdminExplainRequest request = KVLEASE__V1__ADMIN_EXPLAIN_REQUEST__INIT;
        uint8_t keys[EXPLAIN_MAX_KEYS * KVL_KEY_BYTES];
        const Kvlease__V1__ExplainReply *reply;
        const ProtobufCMessage *m;
        struct show_list *l;
        unsigned n = ctl->n_args - 2;
        int r;

        for (unsigned i = 0; i < n; i++) {
                r = parse_hex(ctl->args[2 + i], keys + i * KVL_KEY_BYTES, KVL_KEY_BYTES);
                assert(r == 0); /* check_explain() */
        }
        request.tenant = ctl->args[0];
        request.ns = ctl->args[1];
        request.keys = (ProtobufCBinaryData){.len = n * KVL_KEY_BYTES, .data = keys};
        r = admin_call(ctl->admin, MSG_ADMIN_EXPLAIN, &request.base, &m);
        if (r != CTL_OK)
                return r;
        reply = (const Kvlease__V1__ExplainReply *)m;
        if (reply->n_explanations != n)
                return fail(CTL_UNREACHABLE,
                        "kvleased explained %zu keys of %u: its log may have the reason",
                        reply->n_explanations, n);
        l = show_list_new(&explanations_table, &ctl->format);
        for (unsigned i = 0; i < n; i++) {
                struct explained x;

                explain_row(&x, ctl->args[2 + i], reply->explanations[i], reply->outlook_detail);
                show_list_add(l, &x);
        }
        show_list_print(l);
        if (!ctl->format.json)
                print_forecast(reply->outlook_detail);
        return CTL_OK;
}

/* ---- recording ------------------------------------------------------------------------------- */

static bool find_action(const char *word, Kvlease__V1__AdminRecordRequest__Action *ret)
{
        static const char *const words[] = {"status", "on", "off"}; /* in the enum's order */

        for (unsigned i = 0; i < ARRAY_SIZE(words); i++)
                if (strcmp(word, words[i]) == 0) {
                        *ret = (Kvlease__V1__AdminRecordRequest__Action)i;
                        return true;
                }
        return false;
}

int check_trace_record(const struct ctl *ctl)
{
        const char *size = ctl->options[CTL_OPTION_SIZE];
        Kvlease__V1__AdminRecordRequest__Action action;
        uint64_t bytes;

        if (!find_action(ctl->args[0], &action))
                return fail(CTL_USAGE, "'%s' is not on, off or status", ctl->args[0]);
        if (size && (parse_bytes(size, &bytes) < 0 || bytes == 0))
                return fail_value(ctl, CTL_OPTION_SIZE, "a size, such as 64MiB or 1GiB");
        return CTL_OK;
}

static void print_recording(
        const struct ctl *ctl, const Kvlease__V1__AdminRecordReply *m, const char *path)
{
        _cleanup_free_ char *trouble = text_printable(m->trouble);
        char bytes[32];

        printf("%s %s: %llu request%s (%s), %llu lost, %llu under way\n",
                m->on ? "recording to" : "not recording; the last was", path,
                (unsigned long long)m->requests, PLURAL(m->requests),
                show_bytes(&ctl->format, m->bytes, bytes), (unsigned long long)m->lost,
                (unsigned long long)m->under_way);
        if (m->without_id > 0)
                printf("requests without an id, which are told apart by their pages: %llu\n",
                        (unsigned long long)m->without_id);
        if (*trouble)
                printf("some were lost: %s\n", trouble);
}

int verb_trace_record(const struct ctl *ctl)
{
        Kvlease__V1__AdminRecordRequest request = KVLEASE__V1__ADMIN_RECORD_REQUEST__INIT;
        const char *size = ctl->options[CTL_OPTION_SIZE];
        const Kvlease__V1__AdminRecordReply *reply;
        _cleanup_free_ char *path = NULL;
        const ProtobufCMessage *m;
        int r;

        if (!find_action(ctl->args[0], &request.action) ||
                (size && parse_bytes(size, &request.max_bytes) < 0))
                return CTL_USAGE; /* check_trace_record() has printed it */
        r = admin_call(ctl->admin, MSG_ADMIN_RECORD, &request.base, &m);
        if (r != CTL_OK)
                return r;
        reply = (const Kvlease__V1__AdminRecordReply *)m;
        if (ctl->format.json) {
                show_json(json_pack("{s:b, s:o, s:I, s:I, s:I, s:I, s:I, s:o}", "recording",
                        reply->on, "path", show_json_text(reply->path), "requests",
                        (json_int_t)reply->requests, "bytes", (json_int_t)reply->bytes, "lost",
                        (json_int_t)reply->lost, "under_way", (json_int_t)reply->under_way,
                        "without_id", (json_int_t)reply->without_id, "trouble",
                        reply->trouble[0] ? show_json_text(reply->trouble) : json_null()));
                return CTL_OK;
        }
        path = text_printable(reply->path);
        if (!reply->on && !*path)
                printf("not recording\n");
        else
                print_recording(ctl, reply, path);
        return CTL_OK;
}
