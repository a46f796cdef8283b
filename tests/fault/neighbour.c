#include "tests/fault/neighbour.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "proto/status.h"

#define FRAME_PAGES 512   /* of one LEASE, PUBLISH, RELEASE, ANNOUNCE, FREE */
#define DEPTH       16384 /* of its texts, in pages */
#define WAITS       256   /* unanswered ones of a connection, the most there may be */
#define WAIT_MSEC   600000

static const char *const names[N_NEIGHBOURS] = {
        "refills", "pins", "asks", "churn", "touches", "leases", "waits"};

const char *neighbour_name(enum neighbour kind)
{
        return names[kind];
}

struct site {
        const struct neighbour_run *run;
        unsigned n;
        struct raw_shm shm[NEIGHBOUR_CONNECTIONS];
        struct raw_shm *filler; /* whose pages these are */
        uint32_t *pages;        /* published, parents first */
        uint32_t n_pages;
        uint32_t last; /* the end of a text */
};

/* Keys differ from those of an earlier process. */
static void make_key(uint8_t key[SHM_KEY_BYTES], uint64_t n)
{
        const pid_t own = getpid();

        memset(key, 0, SHM_KEY_BYTES);
        memcpy(key, &n, sizeof(n));
        memcpy(key + sizeof(n), &own, sizeof(own));
        key[SHM_KEY_BYTES - 1] = 0x5a;
}

/* Leases at most n pages; returns how many, 0 if refused. */
static uint32_t lease(struct raw_shm *s, uint32_t n, uint32_t *ret_pages)
{
        Kvlease__V1__LeaseRequest m = KVLEASE__V1__LEASE_REQUEST__INIT;
        const Kvlease__V1__LeaseReply *reply;

        m.ns_id = s->ns_id;
        m.n_pages = n;
        assert_true(raw_request(&s->raw, MSG_LEASE, 0, &m.base));
        reply = (const Kvlease__V1__LeaseReply *)raw_answer(&s->raw);
        assert_non_null(reply);
        if (reply->status != WIRE_OK)
                return 0;
        assert_int_equal(reply->n_pages, n);
        memcpy(ret_pages, reply->pages, n * sizeof(*ret_pages));
        return n;
}

static uint32_t request_publish(struct raw_shm *s, const Kvlease__V1__PublishRequest *m)
{
        assert_true(raw_request(&s->raw, MSG_PUBLISH, 0, &m->base));
        return ((const Kvlease__V1__PublishReply *)raw_answer(&s->raw))->status;
}

static void publish(struct raw_shm *s, uint32_t *pages, uint32_t n, uint64_t first_key)
{
        Kvlease__V1__PublishRequest m = KVLEASE__V1__PUBLISH_REQUEST__INIT;
        Kvlease__V1__ReleaseRequest release = KVLEASE__V1__RELEASE_REQUEST__INIT;
        static uint8_t keys[FRAME_PAGES * SHM_KEY_BYTES];
        uint8_t parent[SHM_KEY_BYTES];
        uint32_t status;

        for (uint32_t i = 0; i < n; i++)
                make_key(keys + i * SHM_KEY_BYTES, first_key + i);
        m.ns_id = s->ns_id;
        m.pages = pages;
        m.n_pages = n;
        m.keys.data = keys;
        m.keys.len = n * SHM_KEY_BYTES;
        m.last_tokens = 16;
        if (first_key % DEPTH != 0) {
                make_key(parent, first_key - 1);
                m.parent_key.data = parent;
                m.parent_key.len = sizeof(parent);
        }
        status = request_publish(s, &m);
        if (status == WIRE_NO_PARENT) {
                /* One page of a million finds no place in a full index (proto/shm.h), so its
                 * continuation can't be cached. A text begins here. */
                m.parent_key.len = 0;
                m.parent_key.data = NULL;
                status = request_publish(s, &m);
        }
        assert_int_equal(status, WIRE_OK);
        release.ns_id = s->ns_id;
        release.pages = pages;
        release.n_pages = n;
        assert_true(raw_request(&s->raw, MSG_RELEASE, 0, &release.base));
        assert_non_null(raw_answer(&s->raw));
}

/* Adds `more` (1 or -1) to the client's pin counters of the pages from `first` on. */
static void pin(struct site *site, uint32_t first, uint32_t more)
{
        for (uint32_t i = first; i < site->n_pages; i++)
                atomic_fetch_add_explicit(
                        &site->filler->counters[site->pages[i]], more, memory_order_relaxed);
}

/* Publishes texts until the tenant's limit is reached, or the device is full. */
static void fill(struct site *site)
{
        struct raw_shm *s = site->filler;

        site->pages = calloc((size_t)site->run->n_pages + FRAME_PAGES, sizeof(*site->pages));
        assert_non_null(site->pages);
        while (site->n_pages < site->run->n_pages) {
                uint32_t *pages = site->pages + site->n_pages;
                uint32_t n = MIN(site->run->n_pages - site->n_pages, (uint32_t)FRAME_PAGES);

                while (n > 0 && lease(s, n, pages) == 0)
                        n /= 2;
                if (n == 0)
                        break;
                publish(s, pages, n, site->n_pages);
                site->n_pages += n;
                site->last = pages[n - 1];
                if (site->run->kind == NEIGHBOUR_ASKS)
                        pin(site, site->n_pages - n, 1);
        }
}

/* Fills the ring with entries to submit for ever: from then on a submission is one store. */
static void lay_out(struct raw_shm *s, const struct shm_submission *entry)
{
        for (uint32_t i = 0; i < SHM_SUB_ENTRIES; i++)
                s->subs[i] = *entry;
}

static void bell(struct raw_shm *s)
{
        if (atomic_exchange(&s->client->daemon_sleeps, 0))
                assert_true(raw_ring(s));
}

/* Submits the prepared entries as far as there is room, and takes completions. */
static void submit_all(struct raw_shm *s)
{
        atomic_store(&s->client->comp_head, atomic_load(&s->client->comp_tail));
        atomic_store(&s->client->sub_tail, atomic_load(&s->client->sub_head) + SHM_SUB_ENTRIES);
        bell(s);
}

_Noreturn static void refill(struct site *site, bool toggles)
{
        for (unsigned i = 0; i < site->n; i++) {
                const struct shm_submission entry = {
                        .op = SHM_OP_REFILL, .ns_id = site->shm[i].ns_id, .aux = 1024};

                lay_out(&site->shm[i], &entry);
        }
        atomic_store(site->run->ready, 1);
        for (unsigned round = 0;; round++) {
                for (unsigned i = 0; i < site->n; i++)
                        submit_all(&site->shm[i]);
                if (toggles) {
                        pin(site, 0, (uint32_t)-1);
                        pin(site, 0, 1);
                }
                sched_yield();
        }
}

/* Returns the pages in the magazine by FREEs, with one store to claim each page. */
static void free_claimed(struct raw_shm *s)
{
        struct shm_submission entry = {.op = SHM_OP_FREE, .ns_id = s->ns_id};

        for (uint32_t slot = 0; slot < SHM_MAGAZINE_SLOTS; slot++) {
                uint32_t page = atomic_exchange(&s->magazine[slot], 0);

                if (page == 0)
                        continue;
                atomic_fetch_add(&s->pins->n_taken, 1);
                entry.pages[entry.tokens++] = page - 1;
                if (entry.tokens < SHM_FREE_PAGES)
                        continue;
                raw_submit(s, &entry);
                entry.tokens = 0;
        }
        if (entry.tokens > 0)
                raw_submit(s, &entry);
}

_Noreturn static void churn(struct site *site)
{
        atomic_store(site->run->ready, 1);
        for (;;) {
                for (unsigned i = 0; i < site->n; i++) {
                        struct raw_shm *s = &site->shm[i];
                        const struct shm_submission entry = {
                                .op = SHM_OP_REFILL, .ns_id = s->ns_id, .aux = 1024};

                        if (atomic_load(&s->client->sub_head) != atomic_load(&s->client->sub_tail))
                                continue;
                        atomic_store(&s->client->comp_head, atomic_load(&s->client->comp_tail));
                        free_claimed(s);
                        raw_submit(s, &entry);
                        bell(s);
                }
                sched_yield();
        }
}

_Noreturn static void touch(struct site *site)
{
        for (unsigned i = 0; i < site->n; i++) {
                struct raw_shm *s = &site->shm[i];
                const struct shm_submission entry = {.op = SHM_OP_TOUCH,
                        .ns_id = s->ns_id,
                        .page = site->last,
                        .aux = (uint32_t)raw_generation(s, site->last),
                        .touch = {.n_keys = DEPTH, .n_hits = DEPTH}};

                lay_out(s, &entry);
                for (uint32_t k = 0; k < SHM_SUB_ENTRIES; k++)
                        s->subs[k].request_id = k + 1;
        }
        atomic_store(site->run->ready, 1);
        for (;;) {
                for (unsigned i = 0; i < site->n; i++)
                        submit_all(&site->shm[i]);
                sched_yield();
        }
}

_Noreturn static void lease_in_vain(struct site *site)
{
        Kvlease__V1__LeaseRequest m = KVLEASE__V1__LEASE_REQUEST__INIT;

        pin(site, 0, 1);
        atomic_store(site->run->ready, 1);
        for (;;) {
                pin(site, 0, (uint32_t)-1);
                pin(site, 0, 1);
                for (unsigned i = 0; i < site->n; i++) {
                        m.ns_id = site->shm[i].ns_id;
                        m.n_pages = FRAME_PAGES;
                        assert_true(raw_request(&site->shm[i].raw, MSG_LEASE, 0, &m.base));
                }
                for (unsigned i = 0; i < site->n; i++)
                        assert_non_null(raw_answer(&site->shm[i].raw));
        }
}

static void announce(struct raw_shm *s, uint32_t *pages, uint32_t n, uint64_t first_key)
{
        Kvlease__V1__AnnounceRequest m = KVLEASE__V1__ANNOUNCE_REQUEST__INIT;
        static uint8_t keys[FRAME_PAGES * SHM_KEY_BYTES];

        for (uint32_t i = 0; i < n; i++)
                make_key(keys + i * SHM_KEY_BYTES, first_key + i);
        m.ns_id = s->ns_id;
        m.pages = pages;
        m.n_pages = n;
        m.keys.data = keys;
        m.keys.len = n * SHM_KEY_BYTES;
        assert_true(raw_request(&s->raw, MSG_ANNOUNCE, 0, &m.base));
        assert_non_null(raw_answer(&s->raw));
}

_Noreturn static void wait_in_vain(struct site *site)
{
        static uint32_t pages[1 + FRAME_PAGES];
        struct raw_shm *s = &site->shm[0];
        Kvlease__V1__FreeRequest back = KVLEASE__V1__FREE_REQUEST__INIT;
        uint8_t key[SHM_KEY_BYTES];

        assert_int_equal(lease(s, ARRAY_SIZE(pages), pages), ARRAY_SIZE(pages));
        announce(s, pages, 1, UINT64_C(1) << 40);
        make_key(key, UINT64_C(1) << 40);
        for (unsigned i = 1; i < site->n; i++)
                for (unsigned k = 0; k < WAITS; k++) {
                        Kvlease__V1__WaitRequest m = KVLEASE__V1__WAIT_REQUEST__INIT;

                        m.ns_id = site->shm[i].ns_id;
                        m.key.data = key;
                        m.key.len = sizeof(key);
                        m.timeout_msec = WAIT_MSEC;
                        assert_true(raw_request(&site->shm[i].raw, MSG_WAIT, 0, &m.base));
                }
        atomic_store(site->run->ready, 1);
        back.ns_id = s->ns_id;
        back.pages = pages + 1;
        back.n_pages = FRAME_PAGES;
        for (;;) {
                announce(s, pages + 1, FRAME_PAGES, UINT64_C(2) << 40);
                assert_true(raw_request(&s->raw, MSG_FREE, 0, &back.base));
                assert_non_null(raw_answer(&s->raw));
                /* On a busy machine freed memory may take a moment to be available. */
                while (lease(s, FRAME_PAGES, pages + 1) != FRAME_PAGES)
                        sleep_msec(1);
        }
}

void neighbour_run(const struct neighbour_run *run)
{
        static struct raw_shm other;
        static struct site site;

        site.run = run;
        site.filler = run->kind == NEIGHBOUR_ASKS ? &other : &site.shm[0];
        if (run->kind == NEIGHBOUR_ASKS)
                raw_share_at(&other, run->other, "good");
        for (; site.n < NEIGHBOUR_CONNECTIONS; site.n++)
                raw_share_at(&site.shm[site.n], run->socket, "good");
        if (run->kind != NEIGHBOUR_WAITS)
                fill(&site);
        switch (run->kind) {
        case NEIGHBOUR_CHURN:
                churn(&site);
        case NEIGHBOUR_TOUCHES:
                touch(&site);
        case NEIGHBOUR_LEASES:
                lease_in_vain(&site);
        case NEIGHBOUR_WAITS:
                wait_in_vain(&site);
        case NEIGHBOUR_ASKS:
                refill(&site, false);
        default:
                pin(&site, 0, 1);
                refill(&site, run->kind == NEIGHBOUR_PINS);
        }
}
