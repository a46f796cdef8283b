/*
 * Submissions of several clients, right ones and wrong ones, to submit_one() of a store without
 * memory, between other changes of the pages. With any input: no crash, and state that checks. A
 * page that an honest client has pinned by the rules is never reused.
 *
 * Input: records of {client, verb, flags, tokens, namespace, page, key, aux}. Verbs below
 * FIRST_VERB are the op of a submission; ENTRY has a whole one behind it. Clients 0 and 1 are a
 * group, 2 is another one of the same tenant, 3 is of another tenant. Client 0 counts its pins
 * honestly, the others write anything.
 */
#include <string.h>

#include "daemon/core/cache/drop.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/core.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/life/open.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/requests/invalidate.h"
#include "daemon/core/requests/lease.h"
#include "daemon/core/requests/lookup.h"
#include "daemon/core/requests/submit.h"
#include "daemon/core/sessions/session.h"
#include "daemon/core/sessions/session-truncate.h"
#include "proto/status.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/at-once.h"
#include "tests/unit/fake-device.h"
#include "tests/unit/toy-layout.h"

#define N_CLIENTS   4
#define N_SPACES    2
#define N_SETS      12
#define SET_BYTES   1024
#define PAGE_BYTES  128
#define MAX_PINS    64
#define RECORD      8
#define CHECK_EVERY 8 /* records; not tuned */

enum verb {
        FIRST_VERB = 16,
        ENTRY = FIRST_VERB,
        CLAIM,         /* magazine slot `page` */
        STORE_SLOT,    /* the same := key */
        STORE_COUNTER, /* of `page` := key */
        PIN,           /* client 0: the page that has `key` */
        UNPIN,         /* its pin number `page` */
        SETTLE,
        LOOK_AGAIN,
        WORK,
        INVALIDATE,     /* the namespace */
        INVALIDATE_KEY, /* `key` */
        LEASE,          /* `tokens` pages over the socket */
        LOOKUP,         /* `key` over the socket */
        RELEASE,        /* `page` over the socket */
        PURGE,
        DIE, /* and come again */
        TIME,
        DRAIN,
        SESSION_OPEN,     /* id `key` */
        SESSION_CLOSE,    /* handle `page`; aux: drop */
        SESSION_TRUNCATE, /* the same: the first `tokens`, the last `key` */
        SESSION_PAGES,    /* the same: `tokens` from `key` on, given back */
        EXPIRE,
        GIVE_WAY,
        INVALIDATE_TAG, /* `key` */
        SESSION_KEEP, /* SESSION_TRUNCATE's ranges: the first `tokens`, so many from token `key` on,
                         and all from twice that on */
        N_VERBS,
};

struct client {
        struct tenant *tenant;
        struct member *member;
        struct attach *spaces[N_SPACES];
        struct submit_chain chain;
        bool muted;
};

struct pin {
        struct attach *attach; /* of client 0 */
        uint32_t page;
        uint64_t generation;
};

static struct fake_device device;
static struct store store;
static struct client clients[N_CLIENTS];
static struct pin pins[MAX_PINS];
static unsigned n_pins;
static uint64_t now_nsec;

static void attach_all(struct client *c)
{
        static const char *const names[N_SPACES] = {"x", "y"};
        const struct ns_layout layout = toy_layout(PAGE_BYTES);
        const uint8_t *token =
                c == &clients[1] && clients[0].member ? clients[0].member->group->token : NULL;

        CHECK(member_new(c->tenant, token, false, &c->member, NULL) == 0);
        for (unsigned i = 0; i < N_SPACES; i++) {
                CHECK(attach_open(c->member, names[i], &layout, "", false, &c->spaces[i], NULL) ==
                        0);
                /* One client has no pin segment in one namespace. */
                if (c != &clients[1] || i == 0)
                        CHECK(attach_share(c->spaces[i], NULL) == 0);
        }
        c->chain = (struct submit_chain){0};
        c->muted = false;
}

static void start(void)
{
        struct tenant_attrs attrs = {.limit_bytes = (uint64_t)8 * SET_BYTES,
                .weight = 1,
                .priority = 50,
                .max_clients = 8,
                .events_bytes = UINT64_C(1) << 30};
        struct tenant *a, *b;

        fake_device_init(&device, "fake", 256);
        store_init(&store, &evict_lru);
        store.min_page_bytes = PAGE_BYTES;
        CHECK(store_add_pool(
                      &store, &device.device, (uint64_t)N_SETS * SET_BYTES, SET_BYTES, NULL) == 0);
        CHECK(tenant_new(&store, "a", &attrs, &a, NULL) == 0);
        CHECK(tenant_new(&store, "b", &attrs, &b, NULL) == 0);
        now_nsec = 1;
        n_pins = 0;
        memset(clients, 0, sizeof(clients));
        for (unsigned i = 0; i < N_CLIENTS; i++) {
                clients[i].tenant = i < 3 ? a : b;
                attach_all(&clients[i]);
        }
}

static void check_state(void)
{
        uint64_t n_pages, n_sets;
        struct detail d = {""};

        idle_sets_drain(&store);
        if (store_check(&store, &n_pages, &n_sets, &d) != 0) {
                fprintf(stderr, "store_check: %s\n", d.text);
                abort();
        }
        for (unsigned i = 0; i < n_pins; i++) {
                const struct page *p = ns_page(pins[i].attach->ns, pins[i].page);

                CHECK(p && p->generation == pins[i].generation);
                CHECK(p->state == PAGE_SEALED || p->state == PAGE_DETACHED);
        }
}

static void stop(void)
{
        for (unsigned i = 0; i < N_CLIENTS; i++)
                member_free(clients[i].member);
        n_pins = 0;
        check_state();
        store_deinit(&store);
        CHECK(device.n_extents == 0);
}

/* A byte as a page index: most are pages, some are beyond. */
static uint32_t wide(uint8_t byte, const struct ns *ns)
{
        switch (byte) {
        case 255:
                return UINT32_MAX;
        case 254:
                return UINT32_MAX - 1;
        case 253:
                return ns->geometry.capacity_pages;
        case 252:
                return 0x80000000;
        default:
                return byte;
        }
}

/* ---- clients -------------------------------------------------------------------------------- */

static void submit(struct client *c, const struct shm_submission *s)
{
        struct submit_result result;

        if (c->muted)
                return;
        submit_one(c->member, &c->chain, s, now_nsec, &result);
        c->muted = result.violation;
        if (result.violation || !result.completes)
                return;
        CHECK(status_from_wire(result.status) != -EPROTO);
        if (s->op == SHM_OP_PUBLISH && status_from_wire(result.status) == 0)
                CHECK(result.page == s->page);
}

static void submit_record(struct client *c, const struct attach *a, const uint8_t *r)
{
        struct shm_submission s = {
                .op = r[1],
                .flags = r[2],
                .tokens = r[3],
                .ns_id = r[4] < 200 ? a->id : r[4],
                .page = wide(r[5], a->ns),
                .aux = r[7],
                .request_id = r[7] % 4,
        };

        if (s.op == SHM_OP_PUBLISH || s.op == SHM_OP_PARENT) {
                s.key[0] = r[6];
        } else if (s.op == SHM_OP_FREE) {
                s.pages[0] = s.page;
                s.pages[1] = wide(r[6], a->ns);
                s.pages[2] = wide(r[7], a->ns);
        } else if (s.op == SHM_OP_TOUCH) {
                s.touch.n_keys = r[3];
                s.touch.n_hits = r[6];
        } else if (s.op == SHM_OP_WITH) {
                s.with.tag = r[6];
        } else if (s.op == SHM_OP_EXPECT) {
                s.expect.ttl_msec = r[6] * UINT32_C(256);
        }
        submit(c, &s);
}

static void store_slot(struct attach *a, const uint8_t *r)
{
        _Atomic uint32_t *slot = &a->share.magazine[r[5] % 32];

        if (r[1] == CLAIM)
                atomic_exchange(slot, 0);
        else if (a->member != clients[0].member)
                atomic_store(slot, wide(r[6], a->ns) + 1);
}

static void store_counter(struct attach *a, const uint8_t *r)
{
        if (a->member != clients[0].member)
                atomic_store(&a->share.counters[r[5] % a->ns->geometry.capacity_pages],
                        wide(r[6], a->ns));
}

/* Pins by the rules, like client/lib/shared/fast.c. */
static void pin(struct attach *a, const uint8_t *r)
{
        uint8_t key[KEY_BYTES] = {r[6]};
        uint32_t page = ns_find_page(a->ns, key);
        uint64_t state;

        if (page == PAGE_NONE || n_pins == MAX_PINS || a->member != clients[0].member)
                return;
        a->share.counters[page]++;
        state = a->ns->shared.lines[page].state;
        CHECK((uint8_t)state == PAGE_SEALED);
        CHECK(memcmp(a->ns->shared.lines[page].key, key, sizeof(key)) == 0);
        pins[n_pins++] = (struct pin){a, page, state >> 8};
}

static void unpin(const uint8_t *r)
{
        struct pin *p;

        if (n_pins == 0)
                return;
        p = &pins[r[5] % n_pins];
        p->attach->share.counters[p->page]--;
        *p = pins[--n_pins];
}

static void over_socket(struct attach *a, const uint8_t *r)
{
        uint8_t key[KEY_BYTES] = {r[6]};
        uint32_t pages[16], n;
        uint64_t n_tokens;

        if (r[1] == LEASE) {
                lease_pages(a, 1 + r[3] % 16, now_nsec, pages, NULL);
        } else if (r[1] == LOOKUP) {
                lookup_pages(a, &(struct lookup_request){key, 1, now_nsec, r[7] % 4}, pages, &n,
                        &n_tokens, NULL);
        } else {
                pages[0] = wide(r[5], a->ns);
                release_pages(a, pages, 1, now_nsec, NULL);
        }
}

static void ask_pages(struct attach *a, struct session *s, const uint8_t *r)
{
        struct session_page pages[16];
        uint32_t n;

        if (session_pages(a, s, (struct session_range){r[6], 1 + r[3] % 16}, now_nsec, pages, &n,
                    NULL) != 0)
                return;
        while (n-- > 0)
                if (pins_is_open(&a->share))
                        a->share.counters[pages[n].page]--;
                else
                        CHECK(release_pages(a, &pages[n].page, 1, now_nsec, NULL) == 0);
}

static void use_session(struct attach *a, const uint8_t *r)
{
        struct session *s = session_of(a, r[5], NULL);
        uint32_t handle;
        uint64_t n_left;
        bool created;

        if (r[1] == SESSION_OPEN)
                session_open(a, &(struct session_request){&r[6], 1, r[7] % 2, r[7], now_nsec},
                        &handle, &created, NULL);
        else if (r[1] == SESSION_CLOSE)
                session_close(a, r[5], r[7] % 2, now_nsec, NULL);
        else if (s && r[1] == SESSION_TRUNCATE)
                session_truncate(s, r[3], r[6], &n_left, NULL);
        else if (s && r[1] == SESSION_KEEP)
                session_keep(s,
                        (const struct token_range[]){
                                {0, r[3]}, {r[6], r[6] + r[3]}, {2 * r[6], TOKEN_RANGE_END}},
                        1 + r[7] % 3, &n_left, NULL);
        else if (s)
                ask_pages(a, s, r);
}

static void die(struct client *c)
{
        if (c == &clients[0])
                n_pins = 0;
        member_free(c->member);
        attach_all(c);
}

/* ---- the daemon ----------------------------------------------------------------------------- */

static void administer(struct client *c, struct attach *a, const uint8_t *r)
{
        uint8_t key[KEY_BYTES] = {r[6]};
        uint64_t n, n_kept;

        switch (r[1]) {
        case SETTLE:
                if (a->magazine)
                        magazine_sync(a);
                break;
        case LOOK_AGAIN:
                ns_look_again(a->ns, UINT32_MAX);
                idle_sets_drain(&store);
                break;
        case WORK:
                store_work(&store, 16);
                break;
        case INVALIDATE:
                ns_invalidate(a->ns, CAUSE_NAMESPACE, &n);
                break;
        case INVALIDATE_KEY:
                invalidate_key(a, key, &n, NULL);
                break;
        case EXPIRE:
                sessions_expire(a->ns, now_nsec, 1 + r[7]);
                break;
        case GIVE_WAY:
                sessions_give_way(a->ns, r[7] % 2);
                idle_sets_drain(&store);
                break;
        case INVALIDATE_TAG:
                if (key[0] > 0)
                        invalidate_tag(a, key[0], &n, NULL);
                break;
        case PURGE:
                store_purge(&store, c->tenant, NULL, false, &n, &n_kept);
                break;
        case DRAIN:
                magazine_drain_ns(a->ns);
                idle_sets_drain(&store);
                break;
        default: /* TIME */
                now_nsec += (uint64_t)r[7] << 20;
        }
}

static void act(const uint8_t *r)
{
        struct client *c = &clients[r[0] % N_CLIENTS];
        struct attach *a = c->spaces[r[4] % N_SPACES];
        bool shares = pins_is_open(&a->share);

        if (r[1] < FIRST_VERB)
                submit_record(c, a, r);
        else if (r[1] == CLAIM || r[1] == STORE_SLOT)
                shares ? store_slot(a, r) : (void)0;
        else if (r[1] == STORE_COUNTER)
                shares ? store_counter(a, r) : (void)0;
        else if (r[1] == PIN)
                pin(a, r);
        else if (r[1] == UNPIN)
                unpin(r);
        else if (r[1] == LEASE || r[1] == LOOKUP || r[1] == RELEASE)
                over_socket(a, r);
        else if (r[1] == DIE)
                die(c);
        else if ((r[1] >= SESSION_OPEN && r[1] <= SESSION_PAGES) || r[1] == SESSION_KEEP)
                use_session(a, r);
        else
                administer(c, a, r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        start();
        for (unsigned n = 1; size >= RECORD; data += RECORD, size -= RECORD, n++) {
                uint8_t r[RECORD];

                memcpy(r, data, sizeof(r));
                r[1] %= N_VERBS;
                if (r[1] == ENTRY && size >= RECORD + sizeof(struct shm_submission)) {
                        struct shm_submission s;

                        memcpy(&s, data + RECORD, sizeof(s));
                        submit(&clients[r[0] % N_CLIENTS], &s);
                        data += sizeof(s);
                        size -= sizeof(s);
                } else {
                        act(r);
                }
                if (n % CHECK_EVERY == 0)
                        check_state();
        }
        stop();
        return 0;
}
