/* The requests of sessions and tags, through the server. */
#include "base/parse.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/reclaim/warm.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/handlers/list-page.h"
#include "daemon/server/services/timers.h"
#include "proto/status.h"
#include "tests/unit/at-once.h"
#include "tests/unit/server-fixture.h"

#define TENANT "[tenant a]\nlimit = 1MiB\nsession_expire = 0\n"
#define OK     0u

static struct attach *attach_of(struct world *w, const struct client *c)
{
        return list_first(&peer_of(w, c)->member->attachments, struct attach, member_link);
}

static uint32_t wire(int code)
{
        return status_to_wire(code);
}

static uint32_t open_session(
        struct world *w, struct client *c, const char *id, bool must_exist, uint32_t *ret_handle)
{
        Kvlease__V1__SessionOpenRequest m = KVLEASE__V1__SESSION_OPEN_REQUEST__INIT;
        uint32_t status;

        m.ns_id = NS_ID;
        m.id = (ProtobufCBinaryData){strlen(id), (uint8_t *)id};
        m.must_exist = must_exist;
        status = ask(w, c, MSG_SESSION_OPEN, &m.base);
        *ret_handle = ((const Kvlease__V1__SessionOpenReply *)c->reply)->session;
        return status;
}

/* n full pages, keys first.., below the page with the key before (0: a root). */
static uint32_t publish(struct world *w, struct client *c, uint32_t session, uint64_t tag,
        uint8_t first, uint32_t n)
{
        Kvlease__V1__PublishRequest m = KVLEASE__V1__PUBLISH_REQUEST__INIT;
        uint8_t keys[16 * KEY_BYTES] = {0}, parent[KEY_BYTES] = {(uint8_t)(first - 1)};
        uint32_t pages[16];

        assert_int_equal(lease_pages(attach_of(w, c), n, 1, pages, NULL), 0);
        for (uint32_t i = 0; i < n; i++)
                keys[i * KEY_BYTES] = (uint8_t)(first + i);
        m.ns_id = NS_ID;
        m.pages = pages;
        m.n_pages = n;
        m.keys = (ProtobufCBinaryData){(size_t)n * KEY_BYTES, keys};
        if (first > 1)
                m.parent_key = (ProtobufCBinaryData){KEY_BYTES, parent};
        m.last_tokens = 16;
        m.session = session;
        m.tag = tag;
        return ask(w, c, MSG_PUBLISH, &m.base);
}

static uint32_t ask_pages(
        struct world *w, struct client *c, uint32_t session, uint32_t from, uint32_t max)
{
        Kvlease__V1__SessionPagesRequest m = KVLEASE__V1__SESSION_PAGES_REQUEST__INIT;

        m.ns_id = NS_ID;
        m.session = session;
        m.from = from;
        m.max = max;
        return ask(w, c, MSG_SESSION_PAGES, &m.base);
}

static uint32_t truncate_session(
        struct world *w, struct client *c, uint32_t session, uint64_t first, uint64_t last)
{
        Kvlease__V1__SessionTruncateRequest m = KVLEASE__V1__SESSION_TRUNCATE_REQUEST__INIT;

        m.ns_id = NS_ID;
        m.session = session;
        m.first_tokens = first;
        m.last_tokens = last;
        return ask(w, c, MSG_SESSION_TRUNCATE, &m.base);
}

static uint32_t keep_ranges(struct world *w, struct client *c, uint32_t session,
        const uint64_t *first, size_t n_first, const uint64_t *end, size_t n_end)
{
        Kvlease__V1__SessionKeepRequest m = KVLEASE__V1__SESSION_KEEP_REQUEST__INIT;

        m.ns_id = NS_ID;
        m.session = session;
        m.first_tokens = (uint64_t *)first;
        m.n_first_tokens = n_first;
        m.end_tokens = (uint64_t *)end;
        m.n_end_tokens = n_end;
        return ask(w, c, MSG_SESSION_KEEP, &m.base);
}

static uint32_t hint(struct world *w, struct client *c, uint32_t session, uint32_t hint)
{
        Kvlease__V1__SessionHintRequest m = KVLEASE__V1__SESSION_HINT_REQUEST__INIT;

        m.ns_id = NS_ID;
        m.session = session;
        m.hint = hint;
        m.after_msec = 100;
        return ask(w, c, MSG_SESSION_HINT, &m.base);
}

static uint32_t close_session(struct world *w, struct client *c, uint32_t session, bool drop)
{
        Kvlease__V1__SessionCloseRequest m = KVLEASE__V1__SESSION_CLOSE_REQUEST__INIT;

        m.ns_id = NS_ID;
        m.session = session;
        m.drop = drop;
        return ask(w, c, MSG_SESSION_CLOSE, &m.base);
}

SERVER_SCENE(test_readers, "fake")
{
        struct client *c, *reader;
        uint32_t s, t;

        world_serve(w, TENANT, 4);
        c = connect_client(w, getpid(), NULL);
        reader = connect_client(w, getpid(), NULL);
        member_set_read_only(peer_of(w, reader)->member, true);
        assert_int_equal(open_session(w, reader, "s", false, &t), wire(-EACCES));
        assert_non_null(strstr(reader->detail, "may not make one"));
        assert_int_equal(open_session(w, reader, "s", true, &t), wire(-ENOENT));
        assert_int_equal(open_session(w, c, "s", false, &s), OK);
        assert_int_equal(publish(w, c, s, 0, 1, 4), OK);
        assert_int_equal(open_session(w, reader, "s", false, &t), OK);
        assert_int_equal(ask_pages(w, reader, t, 0, 10), OK);
        assert_int_equal(truncate_session(w, reader, t, 16, 16), wire(-EACCES));
        assert_int_equal(
                keep_ranges(w, reader, t, (uint64_t[]){0}, 1, (uint64_t[]){16}, 1), wire(-EACCES));
        assert_int_equal(hint(w, reader, t, 2), wire(-EACCES));
        assert_int_equal(close_session(w, reader, t, true), wire(-EACCES));
        assert_int_equal(ask_pages(w, reader, t, 0, 10), OK);
        assert_int_equal(close_session(w, reader, t, false), OK);
}

static uint32_t list(struct world *w, struct client *admin, const char *tenant, uint64_t after)
{
        Kvlease__V1__AdminListRequest m = KVLEASE__V1__ADMIN_LIST_REQUEST__INIT;

        m.tenant = (char *)tenant;
        m.after = after;
        return ask(w, admin, MSG_ADMIN_SESSIONS, &m.base);
}

static uint32_t purge(struct world *w, struct client *admin, const char *tenant, const char *ns,
        const char *id, uint64_t idle_sec)
{
        Kvlease__V1__AdminSessionPurgeRequest m = KVLEASE__V1__ADMIN_SESSION_PURGE_REQUEST__INIT;

        m.tenant = (char *)tenant;
        m.ns = (char *)ns;
        m.id = (ProtobufCBinaryData){strlen(id), (uint8_t *)id};
        m.idle_sec = idle_sec;
        return ask(w, admin, MSG_ADMIN_SESSION_PURGE, &m.base);
}

SERVER_SCENE(test_administration, "fake")
{
        Kvlease__V1__AdminListRequest all = KVLEASE__V1__ADMIN_LIST_REQUEST__INIT;
        const struct figures_session *row;
        const struct figures_namespace *ns;
        const struct figures_status *status;
        struct client *c, *admin;
        uint32_t s, t;
        size_t n;

        world_serve(w, TENANT, 4);
        c = connect_client(w, getpid(), NULL);
        admin = connect_admin(w);
        assert_int_equal(list(w, admin, "nobody", 0), wire(-ENOENT));
        assert_int_equal(list(w, admin, "", 0), OK);
        rows_of(w, admin, &figures_table_session, &n);
        assert_int_equal(n, 0);
        assert_int_equal(open_session(w, c, "s", false, &s), OK);
        assert_int_equal(open_session(w, c, "t", false, &t), OK);
        assert_int_equal(publish(w, c, s, 0, 1, 4), OK);
        assert_int_equal(truncate_session(w, c, s, 16, 16), OK);
        assert_int_equal(hint(w, c, s, 1), OK);
        assert_int_equal(close_session(w, c, t, false), OK);
        assert_int_equal(list(w, admin, "a", 0), OK);
        assert_int_equal(((const Kvlease__V1__AdminRowsReply *)admin->reply)->next, 0);
        row = rows_of(w, admin, &figures_table_session, &n);
        assert_int_equal(n, 2);
        assert_string_equal(row->tenant, "a");
        assert_string_equal(row->namespace, "n");
        assert_string_equal(row->id, "73"); /* "s" */
        assert_int_equal(row->n_pages, 2);
        assert_int_equal(row->n_tokens, 64);
        assert_int_equal(row->bytes, 2 * SET_BYTES / SET_PAGES);
        assert_int_equal(row->n_open, 1);
        assert_int_equal(row->expires_in_sec, 0);
        assert_string_equal(row->hint, "continues");
        assert_true(row->truncated);
        assert_int_equal(ask(w, admin, MSG_ADMIN_STATUS, &all.base), OK);
        status = rows_of(w, admin, &figures_table_status, &n);
        assert_int_equal(status->n_sessions, 2);
        assert_int_equal(ask(w, admin, MSG_ADMIN_NAMESPACES, &all.base), OK);
        ns = rows_of(w, admin, &figures_table_namespace, &n);
        assert_int_equal(ns->n_sessions, 2);
        assert_int_equal(purge(w, admin, "nobody", "", "", 0), wire(-ENOENT));
        assert_int_equal(purge(w, admin, "a", "nothing", "", 0), wire(-ENOENT));
        assert_int_equal(purge(w, admin, "a", "n", "", 1000), OK);
        assert_int_equal(admin->count, 0);
        assert_int_equal(purge(w, admin, "a", "n", "t", 0), OK);
        assert_int_equal(admin->count, 1);
        assert_int_equal(purge(w, admin, "a", "", "", 0), OK);
        assert_int_equal(admin->count, 1);
        assert_int_equal(ask_pages(w, c, s, 0, 1), wire(-ENOENT));
}

/* Longer than a reply: each comes once. */
TEST(test_long_list)
{
        const struct figures_session *rows;
        unsigned n = 0, n_replies = 0;
        size_t n_rows;
        static bool seen[5000];
        struct client *c, *admin;
        uint64_t after = 0;
        struct world w;
        bool created;
        uint32_t s;

        memset(seen, 0, sizeof(seen));
        world_init(&w, "fake");
        world_serve(&w, TENANT, 4);
        c = connect_client(&w, getpid(), NULL);
        admin = connect_admin(&w);
        for (uint32_t i = 0; i < 5000; i++) {
                struct attach *a = attach_of(&w, c);

                assert_int_equal(session_open(a,
                                         &(struct session_request){
                                                 (const uint8_t *)&i, sizeof(i), false, 0, 1},
                                         &s, &created, NULL),
                        0);
                assert_int_equal(session_close(a, s, false, 1, NULL), 0);
        }
        do {
                assert_int_equal(list(&w, admin, "", after), OK);
                rows = rows_of(&w, admin, &figures_table_session, &n_rows);
                for (size_t i = 0; i < n_rows; i++, n++) {
                        uint32_t id;

                        assert_int_equal(parse_hex(rows[i].id, &id, sizeof(id)), 0);
                        assert_false(seen[id]);
                        seen[id] = true;
                }
                after = ((const Kvlease__V1__AdminRowsReply *)admin->reply)->next;
                n_replies++;
        } while (after != 0);
        assert_int_equal(n, 5000);
        assert_true(n_replies > 2);
        world_end(&w);
}

#define MANY 65536

static void make_many(struct attach *a)
{
        for (uint32_t i = 0; i < MANY; i++) {
                bool created;
                uint32_t s;

                assert_int_equal(session_open(a,
                                         &(struct session_request){
                                                 (const uint8_t *)&i, sizeof(i), false, 0, 1},
                                         &s, &created, NULL),
                        0);
                assert_int_equal(session_close(a, s, false, 1, NULL), 0);
        }
}

/* More sessions than a turn of the loop removes: the reply comes after the last. They are removed
 * even if the administrator hangs up. */
SERVER_SCENE(test_purge_of_many, "fake")
{
        Kvlease__V1__AdminSessionPurgeRequest m = KVLEASE__V1__ADMIN_SESSION_PURGE_REQUEST__INIT;
        struct client *c, *admin;
        const struct ns *ns;

        world_serve(w, TENANT, 4);
        c = connect_client(w, getpid(), NULL);
        ns = attach_of(w, c)->ns;
        for (int waits = 0; waits < 2; waits++) {
                make_many(attach_of(w, c));
                admin = connect_admin(w);
                if (waits) {
                        assert_int_equal(purge(w, admin, "a", "", "", 0), OK);
                        assert_int_equal(admin->count, MANY);
                        assert_int_equal(sessions_count(ns), 0);
                        continue;
                }
                m.tenant = (char *)"a";
                say(admin, MSG_ADMIN_SESSION_PURGE, &m.base);
                AWAIT(w, sessions_count(ns) < MANY);
                hang_up(admin);
                AWAIT(w, sessions_count(ns) == 0);
        }
}

/* From now on tasks wait until the test has them done. */
static void (*hold_tasks(struct world *w))(void *data)
{
        void (*on_work)(void *data) = w->server.store.owner.on_work;

        for (unsigned i = 0; i < 10; i++)
                world_turn(w);
        w->server.store.owner.on_work = NULL;
        return on_work;
}

static void do_tasks(struct world *w, void (*on_work)(void *data))
{
        w->server.store.owner.on_work = on_work;
        on_work(w->server.store.owner.data);
}

/* Ranges are kept, and what others may say is refused. */
SERVER_SCENE(test_keep, "fake")
{
        static const uint64_t first[] = {0, 32, 64}, end[] = {16, 48, UINT64_MAX};
        static uint64_t many[TRUNCATION_RANGES_MAX + 1], after[TRUNCATION_RANGES_MAX + 1];
        const Kvlease__V1__SessionPagesReply *pages;
        struct client *c, *other;
        uint32_t s, t;

        world_serve(w, TENANT, 4);
        c = connect_client(w, getpid(), NULL);
        other = connect_client(w, getpid(), NULL);
        assert_int_equal(open_session(w, c, "s", false, &s), OK);
        assert_int_equal(publish(w, c, s, 0, 1, 6), OK);
        assert_int_equal(open_session(w, other, "s", true, &t), OK);
        assert_int_equal(keep_ranges(w, c, 99, first, 3, end, 3), wire(-ENOENT));
        assert_int_equal(keep_ranges(w, c, s, first, 3, end, 2), wire(-EINVAL));
        assert_non_null(strstr(c->detail, "3 first_tokens, and 2 end_tokens"));
        assert_int_equal(keep_ranges(w, c, s, first, 0, end, 0), wire(-EINVAL));
        for (size_t i = 0; i < ARRAY_SIZE(many); i++) {
                many[i] = 2 * i;
                after[i] = 2 * i + 1;
        }
        assert_int_equal(keep_ranges(w, c, s, many, ARRAY_SIZE(many), after, ARRAY_SIZE(many)),
                wire(-EINVAL));
        assert_non_null(strstr(c->detail, "1025 ranges"));
        assert_int_equal(keep_ranges(w, c, s, end, 3, first, 3), wire(-EINVAL));
        assert_int_equal(keep_ranges(w, c, s, first, 3, end, 3), OK);
        assert_int_equal(c->count, 2);
        assert_int_equal(ask_pages(w, other, t, 0, 10), OK);
        pages = (const void *)other->reply;
        assert_int_equal(pages->n_pages, 4);
        assert_int_equal(pages->first_tokens[1], 32);
        assert_int_equal(pages->first_tokens[2], 64);
        assert_int_equal(pages->first_tokens[3], 80);
        assert_int_equal(keep_ranges(w, other, t, first + 1, 1, end + 2, 1), wire(-EINVAL));
        assert_non_null(strstr(other->detail, "given up"));
}

/* A long text is truncated a slice at a time. The reply comes after the last, and later requests
 * wait. Another client publishes to it, and the caller hangs up. */
SERVER_SCENE(test_truncate_in_slices, "fake")
{
        Kvlease__V1__SessionTruncateRequest m = KVLEASE__V1__SESSION_TRUNCATE_REQUEST__INIT;
        struct session_info info;
        struct client *c, *other;
        void (*on_work)(void *data);
        struct attach *a;
        uint32_t s, t;

        world_serve(w, TENANT, 4);
        w->server.store.drop_slice_pages = 1;
        c = connect_client(w, getpid(), NULL);
        other = connect_client(w, getpid(), NULL);
        a = attach_of(w, c);
        assert_int_equal(open_session(w, c, "s", false, &s), OK);
        assert_int_equal(publish(w, c, s, 0, 1, 12), OK);
        assert_int_equal(truncate_session(w, c, s, 16, 32), OK);
        assert_int_equal(c->count, 9);
        session_info(session_of(a, s, NULL), &info);
        assert_true(info.is_truncated && info.n_pages == 3);
        assert_int_equal(publish(w, c, s, 0, 13, 2), OK);
        /* Another one, which is published to. */
        assert_int_equal(open_session(w, c, "t", false, &t), OK);
        assert_int_equal(publish(w, c, t, 0, 30, 1), wire(KVL_STATUS_NO_PARENT));
        assert_int_equal(publish(w, c, t, 0, 1, 12), wire(KVL_STATUS_DUPLICATE));
        assert_int_equal(open_session(w, other, "t", true, &s), OK);
        m.ns_id = NS_ID;
        m.session = t;
        m.first_tokens = m.last_tokens = 16;
        on_work = hold_tasks(w);
        say(c, MSG_SESSION_TRUNCATE, &m.base);
        AWAIT(w, session_of(a, t, NULL)->truncation);
        assert_true(peer_awaits_drop(peer_of(w, c)));
        assert_int_equal(truncate_session(w, other, s, 16, 16), wire(-EAGAIN));
        assert_int_equal(publish(w, other, s, 0, 13, 1), OK);
        assert_null(session_of(a, t, NULL)->truncation);
        do_tasks(w, on_work);
        AWAIT(w, c->status != UINT32_MAX);
        assert_int_equal(c->status, wire(-EAGAIN));
        assert_non_null(strstr(c->detail, "published"));
        assert_false(peer_awaits_drop(peer_of(w, c)));
        /* And whose asker hangs up. */
        on_work = hold_tasks(w);
        say(c, MSG_SESSION_TRUNCATE, &m.base);
        AWAIT(w, session_of(a, t, NULL)->truncation);
        hang_up(c);
        a = attach_of(w, other);
        do_tasks(w, on_work);
        AWAIT(w, !session_of(a, s, NULL)->truncation);
        session_info(session_of(a, s, NULL), &info);
        assert_true(info.is_truncated && info.n_pages == 2);
}

/* Seconds until the daemon wakes for what expires; 0: it doesn't. */
static uint64_t periodic_due_sec(const struct world *w)
{
        const uv_timer_t *timer = &w->server.services.periodic_timer;

        return uv_is_active((const uv_handle_t *)timer) ? uv_timer_get_due_in(timer) / 1000 : 0;
}

/* The daemon sleeps until a session can expire, and not before it is closed; a client that dies
 * used its sessions until then. */
SERVER_SCENE(test_sleeps_until_expiry, "fake")
{
        Kvlease__V1__SessionOpenRequest m = KVLEASE__V1__SESSION_OPEN_REQUEST__INIT;
        struct session_info info;
        const struct ns *ns;
        struct client *c;
        uint64_t before, number;

        world_serve(w, TENANT, 4);
        c = connect_client(w, getpid(), NULL);
        ns = attach_of(w, c)->ns;
        m.ns_id = NS_ID;
        m.id = (ProtobufCBinaryData){1, (uint8_t *)"s"};
        m.expire_sec = 1000;
        assert_int_equal(ask(w, c, MSG_SESSION_OPEN, &m.base), OK);
        AWAIT(w, !uv_is_active((const uv_handle_t *)&w->server.services.periodic_timer));
        usleep(10000);
        before = clock_now_nsec();
        peer_end(peer_of(w, c));
        hang_up(c);
        session_info(session_next(ns, 0, &number), &info);
        assert_true(info.used_nsec >= before);
        AWAIT(w, periodic_due_sec(w) > 900);
        assert_int_equal(sessions_count(ns), 1);
}

/* Without a namespace no page can be leasable: the daemon doesn't wake to count them. */
SERVER_SCENE(test_sleeps_without_namespaces, "fake")
{
        const uv_handle_t *timer = (const uv_handle_t *)&w->server.services.leasables_timer;

        world_serve(w, TENANT, 4);
        leasables_expect(&w->server);
        assert_true(uv_is_active(timer));
        AWAIT(w, !uv_is_active(timer));
}

static uint32_t warm(
        struct world *w, struct client *admin, const uint64_t *tags, size_t n_tags, bool all)
{
        Kvlease__V1__AdminWarmRequest m = KVLEASE__V1__ADMIN_WARM_REQUEST__INIT;

        m.tenant = (char *)"a";
        m.ns = (char *)"n";
        m.tags = (uint64_t *)tags;
        m.n_tags = n_tags;
        m.all = all;
        return ask(w, admin, MSG_ADMIN_WARM, &m.base);
}

/* A request to warm pages names one kind of them, and tags that exist. */
SERVER_SCENE(test_warm_names_pages, "fake")
{
        const uint64_t tags[WARM_MAX_TAGS + 1] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, none[] = {1, 0};
        struct client *c, *admin;
        uint32_t s;

        world_serve(w, TENANT, 4);
        c = connect_client(w, getpid(), NULL);
        admin = connect_admin(w);
        assert_int_equal(open_session(w, c, "s", false, &s), OK);
        assert_int_equal(publish(w, c, s, 7, 1, 2), OK);
        assert_int_equal(warm(w, admin, NULL, 0, false), wire(-EINVAL));
        assert_int_equal(warm(w, admin, tags, 1, true), wire(-EINVAL));
        assert_int_equal(warm(w, admin, tags, WARM_MAX_TAGS + 1, false), wire(-EINVAL));
        assert_int_equal(warm(w, admin, none, 2, false), wire(-EINVAL));
        assert_non_null(strstr(admin->detail, "tags begin with 1"));
        assert_int_equal(warm(w, admin, NULL, 0, true), OK);
        assert_int_equal(warm(w, admin, tags, WARM_MAX_TAGS, false), OK);
        assert_int_equal(((const Kvlease__V1__AdminWarmReply *)admin->reply)->there, 2);
}

int main(void)
{
        return test_run_all(world_warm_up, NULL);
}
