/*
 * A daemon's state in a child, and the checks after the child was killed. The child notes in shared
 * memory each step before and after it, as a client that got an answer would know it.
 */
#ifndef KVL_TESTS_RECOVER_FIXTURE_H
#define KVL_TESTS_RECOVER_FIXTURE_H

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/core/cache/drop.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/cache/tag.h"
#include "daemon/core/clients/announce.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/core.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/life/open.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/reclaim/compact.h"
#include "daemon/core/reclaim/recall.h"
#include "daemon/core/state/state.h"
#include "daemon/core/life/canary.h"
#include "daemon/core/life/recover.h"
#include "daemon/core/requests/invalidate.h"
#include "daemon/core/requests/lease.h"
#include "daemon/core/requests/lookup.h"
#include "daemon/core/requests/publish.h"
#include "daemon/core/sessions/session.h"
#include "gpu/queue.h"
#include "proto/status.h"
#include "tests/unit/at-once.h"
#include "tests/unit/keep-parent.h"
#include "tests/unit/toy-layout.h"

#define EXTENT      (UINT64_C(2) << 20)
#define SET_PAGES   8
#define PAGE_BYTES  (EXTENT / SET_PAGES)
#define PAGE_TOKENS 16
#define N_SETS      6
#define N_IDS       40 /* texts' pages: id 1.. */
#define SECOND      UINT64_C(1000000000)

/* In a child: there is nothing to unwind to. */
#define CHECK(cond)                                                                \
        do {                                                                       \
                if (!(cond)) {                                                     \
                        fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
                        _exit(99);                                                 \
                }                                                                  \
        } while (0)

enum known {
        ABSENT,  /* was never published, or is gone */
        MAYBE,   /* a change of it was under way */
        PRESENT, /* published and answered, and pinned: it is there */
        CACHED,  /* the same, and may be evicted */
};

struct oracle {
        struct {
                _Atomic unsigned known;
                unsigned parent; /* id; 0: none */
                unsigned tag;
        } ids[N_IDS + 1];
        _Atomic bool has_session; /* "talk", of the namespace "n" */
        _Atomic unsigned n_lives, n_done;
        _Atomic unsigned n_found; /* at the last look */
        struct recovery recovery; /* of the last life */
        uint64_t seed;            /* of the next */
};

struct life {
        struct store store;
        struct detail d;
        struct tenant *t;
        struct member *m;
        struct attach *a;
        struct oracle *o;
        const char *version;
        uint64_t now_nsec;
        bool is_adopted, is_lost;
        struct queue *queue; /* NULL: the device is called inline */
        struct keep_parent *k;
};

static inline struct oracle *oracle_new(void)
{
        void *o = mmap(NULL, sizeof(struct oracle), PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        return o == MAP_FAILED ? NULL : o;
}

/* ---- a life ---- */

static inline void life_say(const struct detail *d, void *data)
{
        (void)data;
        if (getenv("KVL_TEST_VERBOSE"))
                fprintf(stderr, "%s\n", d->text);
}

static inline int life_park(
        void *data, enum queue_parked what, uint32_t number, int fd, char why[DEVICE_WHY_BYTES])
{
        enum keep_kind kind = what == PARKED_CANARY ? KEEP_CANARY : KEEP_EXTENT;

        return keep_parent_ops.add(data, kind, number, fd, NULL);
}

static inline int life_parked(void *data, char why[DEVICE_WHY_BYTES])
{
        return 0;
}

static inline void life_unpark(void *data, uint32_t number)
{
        keep_parent_ops.drop(data, KEEP_EXTENT, number);
}

enum life_device {
        LIFE_INLINE,
        LIFE_QUEUE,
        LIFE_GPU, /* on a queue, and its memory might be lost: has a canary (canary.h) */
};

static inline void life_add_device(struct life *l, struct device *device, enum life_device how)
{
        const struct queue_park park = {life_park, life_parked, life_unpark, l->k};

        device->props.is_cpu_memory = how != LIFE_GPU;
        if (how == LIFE_INLINE) {
                CHECK(store_add_pool(&l->store, device, N_SETS * EXTENT, EXTENT, &l->d) == 0);
                return;
        }
        CHECK(queue_open_device(device, 10000, &l->queue) == 0);
        queue_set_park(l->queue, &park);
        CHECK(store_add_queue(&l->store, l->queue, N_SETS * EXTENT, EXTENT, &l->d) == 0);
}

/* Starts as the server does, and recovers everything but clients. */
static inline void life_begin_on(
        struct life *l, struct keep_parent *k, struct oracle *o, enum life_device how)
{
        const struct device_options options = {.side = DEVICE_OWNER};
        struct tenant_attrs attrs = {.weight = 1,
                .priority = 50,
                .max_clients = 8,
                .limit_bytes = N_SETS * EXTENT,
                .events_bytes = 64 * EXTENT};
        char why[DEVICE_WHY_BYTES] = "";
        struct device *device;
        int r;

        *l = (struct life){.o = o, .k = k, .version = "v1", .now_nsec = 1000 * SECOND};
        l->now_nsec += ++o->n_lives * SECOND;
        store_init(&l->store, &evict_lru);
        l->store.keep = (struct keep){&keep_parent_ops, k};
        store_set_now(&l->store, l->now_nsec);
        r = state_open(&l->store, &l->is_lost, &l->d);
        CHECK(r >= 0);
        l->is_adopted = r == 1;
        CHECK(device_open("host", &options, &device, why) == 0);
        life_add_device(l, device, how);
        CHECK(tenant_new(&l->store, "a", &attrs, &l->t, &l->d) == 0);
        CHECK(canaries_open(&l->store, life_say, NULL, &l->d) == 0);
        if (r == 1)
                store_recover(&l->store, &o->recovery, life_say, NULL);
}

static inline void life_begin(struct life *l, struct keep_parent *k, struct oracle *o)
{
        life_begin_on(l, k, o, LIFE_INLINE);
}

static inline void life_check(struct life *l)
{
        uint64_t n_pages, n_sets;

        idle_sets_drain(&l->store);
        if (store_check(&l->store, &n_pages, &n_sets, &l->d) == 0)
                return;
        fprintf(stderr, "%s\n", l->d.text);
        _exit(98);
}

static inline struct ns_layout life_layout(const char *version)
{
        struct ns_layout l = toy_layout(PAGE_BYTES);

        strcpy(l.version, version);
        return l;
}

static inline struct attach *life_open(struct life *l, struct member *m, const char *name)
{
        struct ns_layout layout = life_layout(l->version);
        struct attach_options o = {.device = "", .expire_nsec = 1000 * SECOND};
        struct attach *a;

        CHECK(attach_open_with(m, name, &layout, &o, &a, &l->d) == 0);
        return a;
}

static inline void life_join(struct life *l)
{
        CHECK(member_new(l->t, NULL, true, &l->m, &l->d) == 0);
        l->a = life_open(l, l->m, "n");
}

/* ---- bytes ---- */

static inline void key_of(unsigned id, uint8_t key[KEY_BYTES])
{
        memset(key, 0, KEY_BYTES);
        memcpy(key, &id, sizeof(id));
}

static inline struct extent *extent_of(const struct ns *ns, uint32_t page)
{
        return ns_set_of(ns, page)->extents[0];
}

/* Writes the id to the page's first and last bytes. */
static inline void write_page(const struct ns *ns, uint32_t page, unsigned id)
{
        uint64_t at = page % SET_PAGES * PAGE_BYTES;
        struct extent *e = extent_of(ns, page);
        uint64_t bytes = UINT64_C(0x6b766c0000000000) | id;

        CHECK(e->device->ops->extent_write(e, at, &bytes, sizeof(bytes)) == 0);
        CHECK(e->device->ops->extent_write(
                      e, at + PAGE_BYTES - sizeof(bytes), &bytes, sizeof(bytes)) == 0);
}

static inline unsigned read_page(const struct ns *ns, uint32_t page)
{
        uint64_t at = page % SET_PAGES * PAGE_BYTES, first, last;
        struct extent *e = extent_of(ns, page);

        CHECK(e->device->ops->extent_read(e, at, &first, sizeof(first)) == 0);
        CHECK(e->device->ops->extent_read(e, at + PAGE_BYTES - sizeof(last), &last, sizeof(last)) ==
                0);
        return first == last && first >> 40 == 0x6b766c ? (unsigned)first : 0;
}

static inline uint32_t life_find(const struct ns *ns, unsigned id)
{
        uint8_t key[KEY_BYTES];

        key_of(id, key);
        return ns_find_page(ns, key);
}

/* ---- what a client does ---- */

/* The page stays GRANTED. */
static inline uint32_t life_lease(struct life *l, unsigned id)
{
        struct lease_request rq = {.n = 1, .min = 1, .seq = 7};
        struct lease_result ret;
        uint32_t page;
        int r;

        while ((r = lease_ask(l->a, &rq, l->now_nsec, &page, &ret, &l->d)) == -EINPROGRESS)
                while (pool_reap(l->a->ns->device.pool) == 0)
                        usleep(100);
        CHECK(r == 0);
        write_page(l->a->ns, page, id);
        return page;
}

static inline void note(struct life *l, unsigned id, enum known known)
{
        atomic_store(&l->o->ids[id].known, known);
}

/* From a page that was leased for it; it stays pinned. */
static inline void life_publish_page(
        struct life *l, uint32_t page, unsigned id, unsigned parent, unsigned tag)
{
        uint8_t key[KEY_BYTES], parent_key[KEY_BYTES];
        uint32_t token_ids[PAGE_TOKENS];
        struct publish p = {.pages = &page,
                .keys = key,
                .n = 1,
                .parent_key = parent ? parent_key : NULL,
                .last_tokens = PAGE_TOKENS,
                .tag = tag,
                .token_ids = (uint8_t *)token_ids};
        uint32_t sealed, n;

        for (unsigned i = 0; i < PAGE_TOKENS; i++)
                token_ids[i] = id * PAGE_TOKENS + i;

        key_of(id, key);
        key_of(parent, parent_key);
        l->o->ids[id].parent = parent;
        l->o->ids[id].tag = tag;
        note(l, id, MAYBE);
        CHECK(publish_pages(l->a, &p, l->now_nsec, &sealed, &n, &l->d) == 0 && sealed == page);
        note(l, id, PRESENT);
        l->o->n_done++;
}

static inline void life_publish(struct life *l, unsigned id, unsigned parent, unsigned tag)
{
        life_publish_page(l, life_lease(l, id), id, parent, tag);
}

/* Drops the last pin of the page. */
static inline void life_release(struct life *l, unsigned id)
{
        uint32_t page = life_find(l->a->ns, id);

        note(l, id, CACHED);
        CHECK(release_pages(l->a, &page, 1, l->now_nsec, &l->d) == 0);
}

/* True if the page is `top` or continues it. */
static inline bool is_below(const struct oracle *o, unsigned id, unsigned top)
{
        while (id != 0 && id != top)
                id = o->ids[id].parent;
        return id == top;
}

static inline void note_below(struct life *l, unsigned top, enum known known)
{
        for (unsigned id = 1; id <= N_IDS; id++)
                if (l->o->ids[id].known != ABSENT && is_below(l->o, id, top))
                        note(l, id, known);
}

/* Drops pages that are pinned: they are DETACHED until they are released. */
static inline void life_drop(struct life *l, unsigned id)
{
        uint32_t pages[N_IDS], n = 0;
        uint8_t key[KEY_BYTES];
        uint64_t n_pages;

        for (unsigned i = 1; i <= N_IDS; i++)
                if (l->o->ids[i].known == PRESENT && is_below(l->o, i, id))
                        pages[n++] = life_find(l->a->ns, i);
        note_below(l, id, MAYBE);
        key_of(id, key);
        CHECK(invalidate_key(l->a, key, &n_pages, &l->d) == 0);
        note_below(l, id, ABSENT);
        if (n > 0)
                CHECK(release_pages(l->a, pages, n, l->now_nsec, &l->d) == 0);
        l->o->n_done++;
}

/* ---- what must be true ---- */

/* The followers of the page know its token ids. */
static inline void check_token_ids(const struct ns *ns, uint32_t page, unsigned id)
{
        const struct shm_feed *h = ns->feed.header;
        struct shm_feed_line *line =
                (struct shm_feed_line *)(void *)((uint8_t *)ns->feed.segment.base +
                                                 h->lines_offset + page * (size_t)h->line_bytes);

        CHECK((atomic_load(&line->word) & 0xff) == SHM_FEED_IDS);
        for (unsigned i = 0; i < PAGE_TOKENS; i++)
                CHECK(shm_feed_ids(line)[i] == id * PAGE_TOKENS + i);
}

static inline void check_id(struct life *l, const struct ns *ns, unsigned id)
{
        unsigned known = l->o->ids[id].known, parent = l->o->ids[id].parent;
        uint32_t page = ns ? life_find(ns, id) : PAGE_NONE;

        if (page == PAGE_NONE) {
                if (known == PRESENT)
                        fprintf(stderr, "page %u is lost\n", id);
                CHECK(known != PRESENT);
                return;
        }
        l->o->n_found++;
        CHECK(known != ABSENT);
        CHECK(read_page(ns, page) == id);
        CHECK(ns_page(ns, page)->tokens == PAGE_TOKENS);
        check_token_ids(ns, page, id);
        CHECK(tree_parent(&ns->tree, page) == (parent ? life_find(ns, parent) : NODE_NONE));
        CHECK(known != PRESENT || ns_extra(ns, page)->tag == l->o->ids[id].tag);
}

/* Exactly the answered pages are there, the state is consistent, and memory of dead clients is
 * free. */
static inline void life_verify(struct life *l)
{
        struct ns *ns;

        CHECK(!l->is_lost);
        ns = ns_find(l->t, "n");
        l->o->n_found = 0;
        for (unsigned id = 1; id <= N_IDS; id++)
                check_id(l, ns, id);
        store_recover_end(&l->store, &l->o->recovery);
        life_check(l);
        for (unsigned id = 1; ns && id <= N_IDS; id++)
                CHECK(l->o->ids[id].known != PRESENT || life_find(ns, id) != PAGE_NONE);
        CHECK(!ns || ns->device.n_pages[PAGE_GRANTED] + ns->device.n_pages[PAGE_MOVING] == 0);
        CHECK(!ns || ns->device.n_pages[PAGE_DETACHED] == 0);
}

#endif
