/* EXPLAIN and ADMIN_EXPLAIN, as replies: what a tenant is told of others, and what is refused. */
#include "daemon/core/memory/idle-sets.h"
#include "tests/unit/at-once.h"
#include "tests/unit/server-fixture.h"

#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "daemon/core/cache/drop.h"
#include "daemon/exchange/exchange.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/requests/lease.h"
#include "daemon/core/requests/lookup.h"
#include "daemon/core/requests/publish.h"
#include "daemon/remote/store/remote.h"
#include "daemon/server/handlers/handlers.h"
#include "daemon/server/services/tenants.h"

#define N_SETS 2

/* Runs a handler as the dispatcher does; the reply's memory is the server's arena. */
static int handle(struct world *w, struct client *c, handler_fn fn, const void *m, void *reply,
        struct detail *d)
{
        struct request rq = {
                .server = &w->server, .peer = peer_of(w, c), .message = m, .reply = reply};
        int r;

        arena_reset(&w->server.scratch.arena);
        r = request_find_attach(&rq);
        if (r == 0)
                r = fn(&rq);
        *d = rq.detail;
        return r;
}

static uint8_t keys[257 * KEY_BYTES];

static void make_keys(void)
{
        for (unsigned i = 0; i < 257; i++)
                memcpy(keys + i * KEY_BYTES, &(unsigned){i + 1}, sizeof(unsigned));
}

/* n pages of a text, cached by the client. */
static void cache(struct world *w, struct client *c, uint32_t n)
{
        struct attach *a =
                list_first(&peer_of(w, c)->member->attachments, struct attach, member_link);
        uint32_t pages[64], sealed[64], n_sealed;
        struct publish p = {.pages = pages, .keys = keys, .n = n, .last_tokens = 1};

        assert_int_equal(lease_pages(a, n, clock_now_nsec(), pages, NULL), 0);
        assert_int_equal(publish_pages(a, &p, clock_now_nsec(), sealed, &n_sealed, NULL), 0);
        assert_int_equal(release_pages(a, pages, n, clock_now_nsec(), NULL), 0);
}

/* The last one to tell(). */
static Kvlease__V1__ExplainReply reply;

/* The first key's, as the tenant or the administrator is told. */
static const Kvlease__V1__Explanation *tell(struct world *w, struct client *c, bool is_admin)
{
        Kvlease__V1__ExplainRequest m = KVLEASE__V1__EXPLAIN_REQUEST__INIT;
        Kvlease__V1__AdminExplainRequest am = KVLEASE__V1__ADMIN_EXPLAIN_REQUEST__INIT;
        struct detail d;

        m.ns_id = NS_ID;
        am.tenant = (char *)"a";
        am.ns = (char *)"n";
        m.keys = am.keys = (ProtobufCBinaryData){KEY_BYTES, keys};
        kvlease__v1__explain_reply__init(&reply);
        assert_int_equal(is_admin ? handle(w, c, handle_ADMIN_EXPLAIN, &am, &reply, &d)
                                  : handle(w, c, handle_EXPLAIN, &m, &reply, &d),
                0);
        assert_int_equal(reply.n_explanations, 1);
        return reply.explanations[0];
}

/* The first key's page gives way to a lease of `by`. */
static void evict_for(struct world *w, struct client *c, struct ns *ns, const struct tenant *by)
{
        const struct drop_reason reason = {.why = EVICT_PRESSURE, .by = by};

        assert_int_equal(ns_drop_subtree(ns, tell(w, c, false)->page, reason), 1);
        idle_sets_drain(&w->server.store);
}

TEST(test_names)
{
        struct world w;
        struct client *c, *admin;
        struct tenant *b;
        struct ns *ns;
        struct tenancy *t;

        world_init(&w, "fake");
        world_serve(&w, "[daemon]\n[tenant a]\n[tenant b]\n", N_SETS);
        make_keys();
        c = connect_client(&w, getpid(), NULL);
        admin = connect_admin(&w);
        assert_int_equal(tell(&w, c, false)->state, 0);
        cache(&w, c, 1);
        assert_int_equal(tell(&w, c, false)->state, 1);
        assert_int_equal(tell(&w, c, false)->client_id, peer_of(&w, c)->member->id);

        t = tenancy_find(&w.server, "b");
        assert_non_null(t);
        b = t->tenant;
        ns = ns_find(tenant_find(&w.server.store, "a"), "n");
        evict_for(&w, c, ns, b);
        assert_int_equal(tell(&w, c, false)->state, 3);
        assert_string_equal(tell(&w, c, false)->by, "another tenant");
        assert_string_equal(tell(&w, admin, true)->by, "b");

        cache(&w, c, 1);
        evict_for(&w, c, ns, ns->tenant);
        assert_string_equal(tell(&w, c, false)->by, "a");
        world_end(&w);
}

/* ---- what other hosts may have --------------------------------------------------------------- */

static void assert_forecast(
        struct world *w, struct client *admin, const char *outlook, const char *sentence)
{
        assert_string_equal(tell(w, admin, true)->outlook, outlook);
        assert_string_equal(reply.outlook_detail, sentence);
}

/* Opens an exchange with a store at this address, which has no listener. */
static struct remote_store *open_exchange(struct tenant *t, const char *address)
{
        const struct remote_options remote = {.addresses = &address, .n_addresses = 1};
        struct exchange_options o = {.expiry_msec = 1000,
                .write_bytes_per_sec = 1,
                .probe_nsec = NSEC_PER_SEC,
                .bytes_per_sec = 1};
        char why[REMOTE_WHY_BYTES];
        struct detail d;

        assert_int_equal(remote_open(&remote, &o.remote, why), 0);
        assert_int_equal(exchange_open(t, &o, &d), 0);
        return o.remote;
}

static void await_unreached(struct remote_store *remote)
{
        uint64_t until = clock_now_nsec() + PATIENCE;
        struct remote_summary summary;

        do {
                assert_true(clock_now_nsec() < until);
                usleep(1000);
                remote_summary(remote, &summary);
        } while (summary.state != REMOTE_UNREACHED);
}

/* A port of this host that is bound, but never listens. Owned. */
static int deaf_port(char address[32])
{
        struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof(sin);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        assert_true(fd >= 0);
        assert_int_equal(bind(fd, (const struct sockaddr *)&sin, sizeof(sin)), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&sin, &len), 0);
        (void)snprintf(address, 32, "127.0.0.1:%u", ntohs(sin.sin_port));
        return fd;
}

SERVER_SCENE(test_other_hosts, "fake")
{
        struct exchange_figures before, after;
        struct client *c, *admin;
        struct remote_store *remote;
        struct tenant *a;
        char address[32];
        int fd = deaf_port(address);

        world_serve(w, "[daemon]\n[tenant a]\nremote = x\n[remote x]\naddresses = 127.0.0.1:1\n",
                N_SETS);
        make_keys();
        c = connect_client(w, getpid(), NULL);
        admin = connect_admin(w);
        a = tenant_find(&w->server.store, "a");
        /* The fixture opens no remotes. */
        assert_forecast(w, admin, "not-shared",
                "an import brings nothing, as remote x of tenant a isn't open: the log of kvleased says why");
        (void)strcpy(tenancy_find(&w->server, "a")->config.remote.name, "");
        assert_forecast(w, admin, "not-shared",
                "an import brings nothing, as namespace n isn't shared with other hosts: its tenant has no remote");
        /* Tenants aren't told. */
        assert_string_equal(tell(w, c, false)->outlook, "");
        assert_string_equal(reply.outlook_detail, "");

        (void)strcpy(tenancy_find(&w->server, "a")->config.remote.name, "x");
        remote = open_exchange(a, address);
        await_unreached(remote);
        assert_true(exchange_figures(a, &before));
        assert_forecast(w, admin, "unreachable",
                "an import brings nothing now, as of 1 node of remote x none answers: Connection refused");
        assert_true(exchange_figures(a, &after));
        assert_memory_equal(&before.counters, &after.counters, sizeof(before.counters));
        assert_int_equal(after.n_imports, 0);

        /* Nothing is said about pages of this host. */
        cache(w, c, 1);
        assert_forecast(w, admin, "", "");
        exchange_close(a);
        remote_close(remote);
        fd_close(fd);
}

/* ---- what is refused ------------------------------------------------------------------------- */

SERVER_SCENE(test_refused, "fake")
{
        static const struct {
                size_t n_bytes;
                int code;
        } cases[] = {{0, -EINVAL}, {KEY_BYTES - 1, -EINVAL}, {KEY_BYTES + 1, -EINVAL},
                {256 * KEY_BYTES, 0}, {257 * KEY_BYTES, -EMSGSIZE}};
        Kvlease__V1__ExplainRequest m = KVLEASE__V1__EXPLAIN_REQUEST__INIT;
        Kvlease__V1__AdminExplainRequest am = KVLEASE__V1__ADMIN_EXPLAIN_REQUEST__INIT;
        struct client *c, *admin;
        struct detail d;

        world_serve(w, "[daemon]\n[tenant a]\n", N_SETS);
        make_keys();
        c = connect_client(w, getpid(), NULL);
        admin = connect_admin(w);
        m.ns_id = NS_ID;
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                m.keys = (ProtobufCBinaryData){cases[i].n_bytes, keys};
                kvlease__v1__explain_reply__init(&reply);
                assert_int_equal(handle(w, c, handle_EXPLAIN, &m, &reply, &d), cases[i].code);
                assert_int_equal(reply.n_explanations, cases[i].code ? 0 : 256);
        }
        am.keys = (ProtobufCBinaryData){KEY_BYTES, keys};
        am.tenant = (char *)"nobody";
        assert_int_equal(handle(w, admin, handle_ADMIN_EXPLAIN, &am, &reply, &d), -ENOENT);
        am.tenant = (char *)"a";
        am.ns = (char *)"none";
        assert_int_equal(handle(w, admin, handle_ADMIN_EXPLAIN, &am, &reply, &d), -ENOENT);
        m.ns_id = NS_ID + 1;
        assert_int_equal(handle(w, c, handle_EXPLAIN, &m, &reply, &d), -ENOENT);
}

int main(void)
{
        return test_run_all(world_warm_up, NULL);
}
