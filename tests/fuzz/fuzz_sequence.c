/*
 * Sequences of requests by clients that know what they were given. The daemon is in process, like
 * in fuzz_dispatch.c. Here input is decoded into sensible requests of a hostile client: granted
 * pages, keys of a small alphabet, sessions, tags. It also gives a client's acts in shared memory,
 * and events. Time passes, clients hang up or resume, the daemon restarts.
 * Limits are small, so that each is reached. With any input: no crash, and state that checks, all
 * along.
 *
 * Input: records of {actor, operation, a, b, c}. An actor is a client of tenant a (0 and 1 are
 * mates of a group, 2 is a group of its own), one of tenant b, or the administrator.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/core/core.h"
#include "daemon/core/state/group.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/server.h"
#include "daemon/server/base/log.h"
#include "daemon/server/takeover.h"
#include "daemon/server/services/tenant-changes.h"
#include "daemon/server/services/tenants.h"
#include "proto/kvlease.pb-c.h"
#include "proto/msg.h"
#include "proto/shm.h"
#include "proto/sock.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/kept-image.h"
#include "tests/fuzz/sequence-client.h"
#include "tests/unit/keep-parent.h"

#define N_CLIENTS    4
#define ADMIN        N_CLIENTS
#define N_ACTORS     (N_CLIENTS + 1)
#define N_KEYS       16
#define RUN_MAX      96 /* keys of a lookup, pages of a release: max_pins and more */
#define MIB          (UINT64_C(1) << 20)
#define BUDGET       (12 * MIB)
#define SET_BYTES    (2 * MIB)
#define PAGE_TOKENS  1024
#define RECORD       5
#define RECORDS_MAX  300
#define CHECK_EVERY  8
#define RESTARTS_MAX 3
#define MSEC         UINT64_C(1000000)

/* An input's record. */
struct step {
        uint8_t actor, op, a, b, c;
};

static struct server server;
static struct client clients[N_ACTORS];
static struct keep_parent keep;
static _Atomic uint64_t now_nsec;

/* ---- the daemon ----------------------------------------------------------------------------- */

static void ignore_report(void *data, bool is_error, const char *sentence)
{
        CHECK(!is_error);
}

static void start_server(void)
{
        static const char text[] =
                "[tenant a]\nlimit=8MiB\nmax_pins=48\nmax_clients=4\nsession_expire=2s\n"
                "expire=5s\nwhen_full=queue\nmax_wait=50ms\nfree_ahead=20\n"
                "[tenant b]\nlimit=6MiB\nmax_pins=48\nmax_clients=2\nwhen_full=degrade\n";
        struct detail d = {""};
        struct config config;
        char why[DEVICE_WHY_BYTES];
        struct device *device;

        log_init(LEVEL_ERROR, TARGET_TEXT);
        CHECK(config_parse("fuzz", text, strlen(text), &config, ignore_report, NULL) == 0);
        CHECK(device_open("host", NULL, &device, why) == 0);
        CHECK(server_init_for_test(&server, &config, device, BUDGET, SET_BYTES) == 0);
        server.clock.nsec = &now_nsec;
        server.store.keep = (struct keep){&keep_parent_ops, &keep};
        CHECK(takeover_begin(&server, &d) == 0);
        CHECK(takeover_end(&server, &d) == 0);
}

static void check_state(void)
{
        uint64_t pages, sets;
        struct detail d = {""};

        if (store_check(&server.store, &pages, &sets, &d) != 0) {
                fprintf(stderr, "store_check: %s\n", d.text);
                abort();
        }
}

static void stop_server(void)
{
        list_for_each_safe (p, &server.peers.list, struct peer, links.all)
                peer_end(p);
        check_state();
        server.clock.nsec = NULL; /* no mapping of its own */
        server_deinit(&server);
}

/* ---- what they say --------------------------------------------------------------------------- */

static void turn(void)
{
        do
                uv_run(&server.loop.uv, UV_RUN_NOWAIT);
        while (tenant_changes_are_left(&server)); /* by a thread: the same each time */
        for (unsigned i = 0; i < N_ACTORS; i++)
                client_read(&clients[i]);
}

static struct peer *peer_of(const struct client *c)
{
        list_for_each (p, &server.peers.list, struct peer, links.all)
                if (p->id == c->peer_id && p->conn.parser)
                        return p;
        return NULL;
}

static void say(struct client *c, uint16_t type, const ProtobufCMessage *m)
{
        static uint8_t buf[FRAME_MAX_SIZE];
        struct peer *p = peer_of(c);
        int n = msg_pack(buf, PROTO_VERSION_MAX, type, 0, ++c->seq, 0, m);

        CHECK(n > 0);
        c->status = UINT32_MAX;
        if (p)
                peer_feed(p, buf, (size_t)n);
        turn();
}

static const char *tenant_of(unsigned actor)
{
        return actor == ADMIN ? NULL : actor < 3 ? "a" : "b";
}

/* Opens a connection without a hello. */
static void connect_actor(unsigned actor)
{
        struct client *c = &clients[actor];
        struct peer_origin origin = {
                .kind = actor == ADMIN ? LISTEN_ADMIN : LISTEN_TENANT,
                .tenancy = actor == ADMIN ? NULL : tenancy_find(&server, tenant_of(actor)),
                .pid = getpid(),
        };
        int fds[2], pidfd = actor == ADMIN ? -1 : pidfd_open(getpid(), 0);
        struct peer *p;

        client_close(c);
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
        CHECK(peer_new(&server, &origin, fds[0], pidfd, &p) == 0);
        frame_parser_init(&c->parser);
        c->peer_id = p->id;
        c->fd = fds[1];
}

static void say_hello(struct client *c, bool joins, bool resumes)
{
        Kvlease__V1__HelloRequest m = KVLEASE__V1__HELLO_REQUEST__INIT;
        uint64_t pending[] = {c->seq, c->seq - 1};

        m.min_version = m.max_version = PROTO_VERSION_MAX;
        if (joins)
                m.group_token = (ProtobufCBinaryData){GROUP_TOKEN_BYTES, clients[0].group};
        if (resumes) {
                m.resume_client = c->id;
                m.resume_token = (ProtobufCBinaryData){CLIENT_TOKEN_BYTES, c->token};
                m.pending = pending;
                m.n_pending = 2;
        } else {
                client_forget(c);
        }
        say(c, MSG_HELLO, &m.base);
}

static void op_hello(struct client *c, const struct step *s)
{
        unsigned actor = (unsigned)(c - clients);

        connect_actor(actor);
        turn(); /* the old end is seen to hang up */
        say_hello(c, actor == 1 && (s->a & 1), (s->a & 2) && actor != ADMIN);
        if ((s->a & 6) == 6 && c->status == 0) {
                Kvlease__V1__ResumedRequest resumed = KVLEASE__V1__RESUMED_REQUEST__INIT;

                for (unsigned i = 0; i < N_SPACES; i++) {
                        Kvlease__V1__ResumeNsRequest m = KVLEASE__V1__RESUME_NS_REQUEST__INIT;

                        m.ns_id = c->spaces[i].ns_id;
                        m.shares = c->spaces[i].pins.at != NULL;
                        if (m.ns_id != 0)
                                say(c, MSG_RESUME_NS, &m.base);
                }
                say(c, MSG_RESUMED, &resumed.base);
        }
}

static struct space *space_of(struct client *c, const struct step *s)
{
        c->asked = &c->spaces[s->a % N_SPACES];
        return c->asked;
}

/* A page that it knows, or another number. */
static uint32_t page_of(const struct space *s, uint8_t byte)
{
        return byte & 0x80 ? byte & 0x7f : s->known[byte % N_KNOWN];
}

/* Consecutive ones from `byte` on, or n times the same. */
static void pages_of(const struct space *s, uint8_t byte, size_t n, uint32_t *ret)
{
        for (size_t i = 0; i < n; i++)
                ret[i] = page_of(s, (uint8_t)(byte & 0x40 ? byte & ~0x40 : byte + i % 64));
}

static void keys_of(uint8_t byte, size_t n, uint8_t *ret)
{
        memset(ret, 0, n * KEY_BYTES);
        for (size_t i = 0; i < n; i++)
                ret[i * KEY_BYTES] = (uint8_t)((byte & 0x40 ? byte : byte + i) % N_KEYS + 1);
}

static void op_open(struct client *c, const struct step *s)
{
        Kvlease__V1__NsOpenRequest m = KVLEASE__V1__NS_OPEN_REQUEST__INIT;
        Kvlease__V1__NsLayout layout = KVLEASE__V1__NS_LAYOUT__INIT;
        struct space *space = space_of(c, s);

        layout.model = (char *)"m";
        layout.version = (char *)(s->b & 1 ? "2" : "1");
        layout.dtype = layout.n_layers = layout.n_kv_heads = layout.head_size = 1;
        layout.tp_size = N_SPACES;
        layout.tp_rank = space == c->spaces ? 0 : 1;
        layout.page_tokens = PAGE_TOKENS;
        layout.n_planes = 2;
        layout.plane_page_bytes = 128 * 1024;
        m.name = (char *)(space == c->spaces ? "x" : "y");
        m.layout = &layout;
        m.keep_page_zero = s->b & 2;
        if (s->b & 4) {
                m.set = (char *)"set";
                m.set_size = N_SPACES;
        }
        m.expire_sec = s->c % 4;
        say(c, MSG_NS_OPEN, &m.base);
}

static void op_lease(struct client *c, const struct step *s)
{
        Kvlease__V1__LeaseRequest m = KVLEASE__V1__LEASE_REQUEST__INIT;

        m.ns_id = space_of(c, s)->ns_id;
        m.n_pages = s->b % 48;
        m.min_pages = s->c & 1;
        m.no_wait = s->c & 2;
        m.holds_some = s->c & 4;
        say(c, MSG_LEASE, &m.base);
}

static void op_publish(struct client *c, const struct step *s)
{
        Kvlease__V1__PublishRequest m = KVLEASE__V1__PUBLISH_REQUEST__INIT;
        uint8_t keys[8 * KEY_BYTES], parent[KEY_BYTES];
        struct space *space = space_of(c, s);
        uint32_t pages[8];
        size_t n = 1 + (s->a >> 1) % 8;

        pages_of(space, s->b, n, pages);
        keys_of(s->c, n, keys);
        keys_of((uint8_t)(s->c + N_KEYS - 1), 1, parent);
        m.ns_id = space->ns_id;
        m.pages = pages;
        m.n_pages = n;
        m.keys = (ProtobufCBinaryData){n * KEY_BYTES, keys};
        if (s->c & 0x20)
                m.parent_key = (ProtobufCBinaryData){KEY_BYTES, parent};
        m.last_tokens = s->c & 0x80 ? 1 : PAGE_TOKENS;
        m.session = s->a & 0x40 ? space->sessions[s->b % 4] : 0;
        m.tag = s->a & 0x80 ? 1 + s->c % 3 : 0;
        m.request_id = s->b % 4;
        say(c, MSG_PUBLISH, &m.base);
}

static void op_lookup(struct client *c, const struct step *s)
{
        Kvlease__V1__LookupRequest m = KVLEASE__V1__LOOKUP_REQUEST__INIT;
        uint8_t keys[RUN_MAX * KEY_BYTES];
        size_t n = 1 + s->b % RUN_MAX;

        keys_of(s->c, n, keys);
        m.ns_id = space_of(c, s)->ns_id;
        m.keys = (ProtobufCBinaryData){n * KEY_BYTES, keys};
        m.request_id = s->a >> 6;
        say(c, MSG_LOOKUP, &m.base);
}

static void op_release(struct client *c, const struct step *s)
{
        Kvlease__V1__ReleaseRequest m = KVLEASE__V1__RELEASE_REQUEST__INIT;
        struct space *space = space_of(c, s);
        uint32_t pages[RUN_MAX];

        pages_of(space, s->c, m.n_pages = 1 + s->b % RUN_MAX, pages);
        m.ns_id = space->ns_id;
        m.pages = pages;
        say(c, MSG_RELEASE, &m.base);
}

static void op_free(struct client *c, const struct step *s)
{
        Kvlease__V1__FreeRequest m = KVLEASE__V1__FREE_REQUEST__INIT;
        struct space *space = space_of(c, s);
        uint32_t pages[N_KNOWN];

        pages_of(space, s->c, m.n_pages = 1 + s->b % N_KNOWN, pages);
        m.ns_id = space->ns_id;
        m.pages = pages;
        say(c, MSG_FREE, &m.base);
}

static void op_report(struct client *c, const struct step *s)
{
        Kvlease__V1__ReportRequest m = KVLEASE__V1__REPORT_REQUEST__INIT;
        struct space *space = space_of(c, s);
        uint32_t pages[N_KNOWN];

        pages_of(space, s->c, m.n_pages = s->b % N_KNOWN, pages);
        m.ns_id = space->ns_id;
        m.pages = pages;
        m.more = s->a & 2;
        m.continues = s->a & 4;
        say(c, MSG_REPORT, &m.base);
}

static void op_fetch(struct client *c, const struct step *s)
{
        Kvlease__V1__FetchRequest m = KVLEASE__V1__FETCH_REQUEST__INIT;
        uint32_t pages[RUN_MAX], targets[RUN_MAX];
        struct space *space = space_of(c, s);

        pages_of(space, s->c, m.n_pages = 1 + s->b % RUN_MAX, pages);
        pages_of(space, (uint8_t)(s->c + s->a / 8), m.n_pages, targets);
        m.ns_id = space->ns_id;
        m.pages = pages;
        m.down = s->a & 2;
        if (s->a & 4) {
                m.targets = targets;
                m.n_targets = m.n_pages;
        }
        if (s->a & 0x80) {
                m.first_plane = s->c % 3;
                m.n_planes = s->b % 4;
        }
        say(c, MSG_FETCH, &m.base);
}

static void op_announce(struct client *c, const struct step *s)
{
        Kvlease__V1__AnnounceRequest m = KVLEASE__V1__ANNOUNCE_REQUEST__INIT;
        struct space *space = space_of(c, s);
        uint8_t keys[8 * KEY_BYTES];
        uint32_t pages[8];

        pages_of(space, s->b, m.n_pages = 1 + (s->a >> 1) % 8, pages);
        keys_of(s->c, m.n_pages, keys);
        m.ns_id = space->ns_id;
        m.pages = pages;
        m.keys = (ProtobufCBinaryData){m.n_pages * KEY_BYTES, keys};
        say(c, MSG_ANNOUNCE, &m.base);
}

static void op_wait(struct client *c, const struct step *s)
{
        Kvlease__V1__WaitRequest m = KVLEASE__V1__WAIT_REQUEST__INIT;
        uint8_t key[KEY_BYTES];

        keys_of(s->c, 1, key);
        m.ns_id = space_of(c, s)->ns_id;
        m.key = (ProtobufCBinaryData){KEY_BYTES, key};
        m.timeout_msec = 1 + s->b;
        say(c, MSG_WAIT, &m.base);
}

static void op_invalidate(struct client *c, const struct step *s)
{
        Kvlease__V1__InvalidateRequest m = KVLEASE__V1__INVALIDATE_REQUEST__INIT;
        uint8_t key[KEY_BYTES];

        keys_of(s->c, 1, key);
        m.ns_id = space_of(c, s)->ns_id;
        if (s->b % 4 == 1)
                m.tag = 1 + s->c % 3;
        else if (s->b % 4 != 0 || s->b > 32)
                m.key = (ProtobufCBinaryData){KEY_BYTES, key};
        say(c, MSG_INVALIDATE, &m.base);
}

static void op_session(struct client *c, const struct step *s)
{
        Kvlease__V1__SessionOpenRequest open = KVLEASE__V1__SESSION_OPEN_REQUEST__INIT;
        Kvlease__V1__SessionLoadRequest load = KVLEASE__V1__SESSION_LOAD_REQUEST__INIT;
        Kvlease__V1__SessionPagesRequest pages = KVLEASE__V1__SESSION_PAGES_REQUEST__INIT;
        Kvlease__V1__SessionTruncateRequest cut = KVLEASE__V1__SESSION_TRUNCATE_REQUEST__INIT;
        Kvlease__V1__SessionKeepRequest kept = KVLEASE__V1__SESSION_KEEP_REQUEST__INIT;
        Kvlease__V1__SessionHintRequest hint = KVLEASE__V1__SESSION_HINT_REQUEST__INIT;
        Kvlease__V1__SessionCloseRequest end = KVLEASE__V1__SESSION_CLOSE_REQUEST__INIT;
        struct space *space = space_of(c, s);
        uint32_t session = space->sessions[s->b % 4];
        uint8_t id = s->b % 8;
        uint64_t first[2] = {0, s->c % 8 * (uint64_t)PAGE_TOKENS};
        uint64_t past[2] = {s->c % 4 * (uint64_t)PAGE_TOKENS + 1,
                s->c & 0x80 ? UINT64_MAX : s->c / 4 % 16 * (uint64_t)PAGE_TOKENS};

        open.ns_id = pages.ns_id = cut.ns_id = kept.ns_id = hint.ns_id = end.ns_id = space->ns_id;
        pages.session = cut.session = kept.session = hint.session = end.session = session;
        kept.first_tokens = first;
        kept.end_tokens = past;
        kept.n_first_tokens = s->b / 16 % 3;
        kept.n_end_tokens = s->b >= 0xf0 ? 1 : kept.n_first_tokens;
        open.id = (ProtobufCBinaryData){1, &id};
        open.expire_sec = s->c % 3;
        open.must_exist = s->b & 0x80;
        pages.from = s->c % 8;
        pages.max = 1 + s->c % 48;
        cut.first_tokens = s->c % 4 * (uint64_t)PAGE_TOKENS;
        cut.last_tokens = s->c & 0x80 ? UINT64_MAX - s->c : s->c / 4 % 8 * (uint64_t)PAGE_TOKENS;
        hint.hint = s->c % 5;
        hint.after_msec = s->c & 0x80 ? UINT32_MAX : s->c;
        end.drop = s->c & 1;
        switch (s->a / 2 % 6) {
        case 0:
        case 1:
                load.ns_id = space->ns_id;
                load.id = open.id;
                load.timeout_msec = s->c;
                if (s->b & 0x40)
                        say(c, MSG_SESSION_LOAD, &load.base);
                say(c, MSG_SESSION_OPEN, &open.base);
                return;
        case 2:
                say(c, MSG_SESSION_PAGES, &pages.base);
                return;
        case 3:
                if (s->b & 8)
                        say(c, MSG_SESSION_KEEP, &kept.base);
                else
                        say(c, MSG_SESSION_TRUNCATE, &cut.base);
                return;
        case 4:
                say(c, MSG_SESSION_HINT, &hint.base);
                return;
        case 5:
                say(c, MSG_SESSION_CLOSE, &end.base);
        }
}

static void op_map(struct client *c, const struct step *s)
{
        Kvlease__V1__MapRequest m = KVLEASE__V1__MAP_REQUEST__INIT;
        Kvlease__V1__UnmappedRequest un = KVLEASE__V1__UNMAPPED_REQUEST__INIT;

        m.ns_id = un.ns_id = space_of(c, s)->ns_id;
        m.set_index = un.set_index = s->b % 8;
        m.first_plane = s->c % 4;
        say(c, s->a & 2 ? MSG_UNMAPPED : MSG_MAP, s->a & 2 ? &un.base : &m.base);
}

static void op_small(struct client *c, const struct step *s)
{
        Kvlease__V1__NsCloseRequest end = KVLEASE__V1__NS_CLOSE_REQUEST__INIT;
        Kvlease__V1__RequestEndRequest over = KVLEASE__V1__REQUEST_END_REQUEST__INIT;
        Kvlease__V1__ExplainRequest explain = KVLEASE__V1__EXPLAIN_REQUEST__INIT;
        Kvlease__V1__ExpectRequest expect = KVLEASE__V1__EXPECT_REQUEST__INIT;
        Kvlease__V1__ByeRequest bye = KVLEASE__V1__BYE_REQUEST__INIT;
        uint8_t keys[N_KEYS * KEY_BYTES];
        struct space *space = space_of(c, s);

        end.ns_id = over.ns_id = explain.ns_id = expect.ns_id = space->ns_id;
        over.request_id = s->c % 4;
        over.ending = s->c / 4;
        keys_of(0, N_KEYS, keys);
        explain.keys = expect.keys = (ProtobufCBinaryData){sizeof(keys), keys};
        expect.keys.len = (size_t)(1 + s->c % N_KEYS) * KEY_BYTES;
        expect.ttl_msec = s->c & 0x80 ? s->c * UINT32_C(10000) : s->c;
        if (s->b >= 0xf0) {
                say(c, MSG_EXPECT, &expect.base);
                return;
        }
        switch (s->b % 4) {
        case 0:
                say(c, MSG_NS_CLOSE, &end.base);
                return;
        case 1:
                say(c, MSG_REQUEST_END, &over.base);
                return;
        case 2:
                say(c, MSG_EXPLAIN, &explain.base);
                return;
        case 3:
                say(c, MSG_BYE, &bye.base);
                client_forget(c);
        }
}

/* ---- in shared memory ------------------------------------------------------------------------ */

static void op_share(struct client *c, const struct step *s)
{
        Kvlease__V1__ShmOpenRequest open = KVLEASE__V1__SHM_OPEN_REQUEST__INIT;
        Kvlease__V1__NsShareRequest share = KVLEASE__V1__NS_SHARE_REQUEST__INIT;

        open.layout_version = SHM_LAYOUT_VERSION;
        share.ns_id = space_of(c, s)->ns_id;
        if (!c->ring.at)
                say(c, MSG_SHM_OPEN, &open.base);
        say(c, MSG_NS_SHARE, &share.base);
}

/* A counter, the magazine's figures, or a slot of it that is claimed. */
static void op_write_pins(struct client *c, const struct step *s)
{
        struct space *space = space_of(c, s);
        struct shm_pins *pins = space->pins.at;
        _Atomic uint32_t *counters, *slots;

        if (!pins)
                return;
        counters = (_Atomic uint32_t *)(void *)((uint8_t *)pins + SHM_HEADER_BYTES +
                                                SHM_MAGAZINE_SLOTS * sizeof(uint32_t));
        slots = (_Atomic uint32_t *)(void *)((uint8_t *)pins + SHM_HEADER_BYTES);
        switch (s->a / 2 % 4) {
        case 0:
        case 1:
                counters[page_of(space, s->b) % space->capacity] =
                        s->c < 250 ? s->c % 3 : UINT32_MAX - s->c;
                return;
        case 2:
                for (unsigned i = 0; i < SHM_MAGAZINE_SLOTS && i < s->b % 16u; i++) {
                        uint32_t page = atomic_exchange(&slots[i], 0) - 1;

                        if (page != UINT32_MAX)
                                client_know(space, &page, 1);
                        pins->n_taken += page != UINT32_MAX;
                }
                return;
        case 3:
                pins->n_taken += s->b & 0x80 ? UINT64_MAX - s->c : s->c;
                pins->n_keys += s->b;
        }
}

static void op_submit(struct client *c, const struct step *s)
{
        Kvlease__V1__DoorbellRequest bell = KVLEASE__V1__DOORBELL_REQUEST__INIT;
        struct space *space = space_of(c, s);
        struct shm_client *shm = c->ring.at;
        struct shm_submission *e;

        if (!shm)
                return;
        e = (struct shm_submission *)(void *)((uint8_t *)shm + SHM_HEADER_BYTES) +
            c->ring_tail % SHM_SUB_ENTRIES;
        *e = (struct shm_submission){
                .op = (uint8_t)(1 + s->a / 2 % 8),
                .ns_id = space->ns_id,
                .page = page_of(space, s->b),
                .user_data = s->b,
                .request_id = s->c % 4,
        };
        switch (e->op) {
        case SHM_OP_PUBLISH:
                e->flags = s->c & 0x80 ? SHM_PUBLISH_CHAIN : s->c & 0x40 ? 0 : SHM_PUBLISH_ROOT;
                e->tokens = PAGE_TOKENS;
                keys_of(s->c & 0x3f, 1, e->key);
                break;
        case SHM_OP_PARENT:
                keys_of(s->c & 0x3f, 1, e->key);
                break;
        case SHM_OP_FREE:
                e->tokens = 1 + s->c % SHM_FREE_PAGES;
                pages_of(space, s->b, e->tokens, e->pages);
                break;
        case SHM_OP_TOUCH:
                e->aux = s->c;
                e->touch.n_keys = s->c;
                e->touch.n_hits = s->c % 4;
                break;
        case SHM_OP_REFILL:
                e->aux = s->c;
                break;
        case SHM_OP_FETCH:
                e->flags = s->c & 3;
                e->aux = s->c / 4;
                break;
        case SHM_OP_FETCH_PLANES:
                e->flags = s->c % 16 == 0;
                e->aux = s->c / 4;
                e->copy.to = s->b;
                e->copy.first_plane = s->c % 3;
                e->copy.n_planes = s->a % 4;
                break;
        case SHM_OP_WITH:
                e->page = space->sessions[s->b % 4];
                e->with.tag = s->c % 3;
                break;
        }
        atomic_store(&shm->sub_tail, ++c->ring_tail);
        atomic_store(&shm->comp_head, atomic_load(&shm->comp_tail));
        if (s->a & 0x40)
                say(c, MSG_DOORBELL, &bell.base);
}

/* Iterations of the loop for a check: far more than it has slices here. */
#define CHECK_TURNS_MAX 1000

/* ---- administrators, time, restarts ---------------------------------------------------------- */

static void op_admin(struct client *unused, const struct step *s)
{
        Kvlease__V1__AdminPurgeRequest purge = KVLEASE__V1__ADMIN_PURGE_REQUEST__INIT;
        Kvlease__V1__AdminDrainRequest drain = KVLEASE__V1__ADMIN_DRAIN_REQUEST__INIT;
        Kvlease__V1__AdminRecallRequest recall = KVLEASE__V1__ADMIN_RECALL_REQUEST__INIT;
        Kvlease__V1__AdminSessionPurgeRequest sessions =
                KVLEASE__V1__ADMIN_SESSION_PURGE_REQUEST__INIT;
        Kvlease__V1__AdminCheckRequest check = KVLEASE__V1__ADMIN_CHECK_REQUEST__INIT;
        struct client *c = &clients[ADMIN];
        char *tenant = (char *)(s->b & 1 ? "b" : "a");

        purge.tenant = recall.tenant = sessions.tenant = tenant;
        purge.remove = s->c & 1;
        recall.bytes = s->c * MIB;
        recall.timeout_msec = 1 + s->b;
        drain.off = s->c & 3;
        switch (s->a % 5) {
        case 0:
                say(c, MSG_ADMIN_PURGE, &purge.base);
                return;
        case 1:
                say(c, MSG_ADMIN_DRAIN, &drain.base);
                return;
        case 2:
                say(c, MSG_ADMIN_RECALL, &recall.base);
                return;
        case 3:
                say(c, MSG_ADMIN_SESSION_PURGE, &sessions.base);
                return;
        case 4:
                say(c, MSG_ADMIN_CHECK, &check.base);
                for (unsigned i = 0; i < CHECK_TURNS_MAX && c->status == UINT32_MAX; i++)
                        turn(); /* it is done in slices */
                CHECK(c->status == 0);
        }
}

static void op_time(struct client *unused, const struct step *s)
{
        now_nsec += s->b & 0x80 ? s->c * 100 * MSEC : s->c * MSEC;
        for (unsigned i = 0; i < s->b % 8u; i++)
                turn();
}

static void op_hang_up(struct client *c, const struct step *s)
{
        client_close(c);
        turn();
}

static unsigned n_restarts; /* of this input */

/* Kills the daemon here and now; the next one recovers. */
static void op_restart(struct client *unused, const struct step *s)
{
        if (n_restarts == RESTARTS_MAX)
                return;
        n_restarts++;
        kept_image_take(&keep);
        server.store.keep.ops = &kept_image_ops; /* its changes to it from here on are undone */
        stop_server();
        kept_image_restore(&keep);
        keep_parent_begin(&keep);
        start_server();
        for (unsigned i = 0; i < N_ACTORS; i++)
                client_close(&clients[i]);
        connect_actor(ADMIN);
        say_hello(&clients[ADMIN], false, false);
        check_state();
}

/* ---- ----------------------------------------------------------------------------------------- */

static void (*const ops[])(struct client *c, const struct step *s) = {op_hello, op_open, op_lease,
        op_lease, op_publish, op_publish, op_publish, op_lookup, op_lookup, op_release, op_free,
        op_report, op_fetch, op_fetch, op_announce, op_wait, op_invalidate, op_session, op_session,
        op_session, op_map, op_small, op_share, op_write_pins, op_submit, op_submit, op_admin,
        op_time, op_time, op_hang_up, op_restart};

static void connect_all(void)
{
        memset(clients, 0, sizeof(clients));
        for (unsigned i = 0; i < N_ACTORS; i++) {
                clients[i].fd = -1;
                connect_actor(i);
                say_hello(&clients[i], i == 1, false);
                CHECK(clients[i].status == 0);
                for (uint8_t space = 0; i != ADMIN && space < N_SPACES; space++)
                        op_open(&clients[i], &(struct step){.a = space, .b = 4});
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        if (size > RECORDS_MAX * RECORD)
                return 0;
        now_nsec = 1000000 * MSEC;
        keep_parent_init(&keep);
        n_restarts = 0;
        start_server();
        connect_all();
        for (unsigned i = 1; size >= RECORD; i++, data += RECORD, size -= RECORD) {
                const struct step s = {
                        data[0] % N_ACTORS, data[1] % ARRAY_SIZE(ops), data[2], data[3], data[4]};

                if (s.actor != ADMIN || ops[s.op] == op_admin)
                        ops[s.op](&clients[s.actor], &s);
                if (i % CHECK_EVERY == 0)
                        check_state();
        }
        check_state();
        stop_server();
        for (unsigned i = 0; i < N_ACTORS; i++) {
                client_forget(&clients[i]);
                client_close(&clients[i]);
        }
        keep_parent_deinit(&keep);
        return 0;
}
