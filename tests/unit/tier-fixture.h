/* A store on memory of the host, with a tier below it; pages have bytes that tell which they are.
 */
#ifndef KVL_TESTS_TIER_FIXTURE_H
#define KVL_TESTS_TIER_FIXTURE_H

#include <poll.h>
#include <stdlib.h>

#include "daemon/core/cache/pages.h"
#include "daemon/core/core.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/open.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/moves/transfer.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/reclaim/fetch.h"
#include "daemon/core/reclaim/demote.h"
#include "daemon/tier/disk-engine.h"
#include "daemon/tier/disk.h"
#include "daemon/tier/mover.h"
#include "tests/unit/core-fixture.h"

#define MIB             (UINT64_C(1) << 20)
#define TIER_SET_BYTES  (2 * MIB)            /* the granularity of the host's memory */
#define TIER_PAGE_BYTES (UINT64_C(64) << 10) /* in each plane */
#define TIER_SET_PAGES  32

struct tiers {
        struct store store;
        struct tenant *a;
        struct member *m;
        struct attach *attach;
        struct ns *ns;
        struct disk_file *disk; /* of the store; NULL: none */
        struct detail d;
        uint64_t now_nsec;
        unsigned n_planes;
};

static inline struct device *tier_device(const char *name)
{
        const struct device_options options = {.side = DEVICE_OWNER};
        char why[DEVICE_WHY_BYTES];
        struct device *d = NULL;

        if (device_open(name, &options, &d, why) < 0)
                fail_msg("%s: %s", name, why);
        return d;
}

static inline void tiers_check(struct tiers *w)
{
        uint64_t n_pages, n_sets;

        idle_sets_drain(&w->store); /* as the server does at the end of each request */
        if (store_check(&w->store, &n_pages, &n_sets, &w->d) != 0)
                fail_msg("%s", w->d.text);
}

/* Sets of the device, and below it; a file of a disk. */
struct tiers_want {
        const struct evict_ops *evict;
        unsigned n_device, n_host; /* n_host 0: no such tier */
        unsigned n_planes;
        enum codec host_codec, disk_codec;
        const char *host_layers, *disk_layers; /* in their place; NULL: none */
        uint32_t n_layers;                     /* of the layout; 0: as the toy layout has it */
        uint64_t plane_bytes;                  /* of a page; 0: TIER_PAGE_BYTES */
        uint64_t stride_bytes;                 /* 0: the same */
        const char *format;                    /* of the layout; NULL: none */
        const char *disk;                      /* NULL: none */
        uint64_t disk_bytes;
        disk_engine_start_fn start; /* of another engine, with data; NULL: the disk's own */
        void *start_data;
};

static inline void tiers_add_disk(struct tiers *w, struct pool *above, const struct tiers_want *o)
{
        const struct disk_options options = {.device = "host", .chunk_bytes = 4 * MIB};
        char why[DISK_WHY_BYTES];

        int r = o->start ? disk_open_with(o->disk, o->disk_bytes, &options, o->start, o->start_data,
                                   &w->disk, why)
                         : disk_open(o->disk, o->disk_bytes, &options, &w->disk, why);

        if (r < 0)
                fail_msg("%s", why);
        assert_int_equal(store_add_disk(&w->store, above, w->disk, o->disk_bytes - 8 * MIB,
                                 o->n_planes * TIER_SET_BYTES, &w->d),
                0);
}

static inline void tier_read_codecs(const char *text, uint32_t n_layers, struct codec_layers *ret)
{
        struct detail d;

        if (text && codec_layers_parse(text, n_layers, ret, &d) < 0)
                fail_msg("%s", d.text);
}

static inline void tiers_open_ns(struct tiers *w, const struct tiers_want *o, const char *version)
{
        struct ns_layout l = toy_layout(o->plane_bytes ? o->plane_bytes : TIER_PAGE_BYTES);
        struct attach_options options = {.host_codecs = codec_layers_all(o->host_codec),
                .disk_codecs = codec_layers_all(o->disk_codec),
                .stride_bytes = o->stride_bytes};

        l.n_planes = o->n_planes;
        if (o->n_layers > 0)
                l.n_layers = o->n_layers;
        tier_read_codecs(o->host_layers, l.n_layers, &options.host_codecs);
        tier_read_codecs(o->disk_layers, l.n_layers, &options.disk_codecs);
        if (options.host_codecs.n > 0 || options.disk_codecs.n > 0) {
                l.dtype = 2; /* f16 */
                l.page_tokens = 64;
                l.n_kv_heads = 4;
                l.head_size = 64;
        }
        if (version)
                (void)snprintf(l.version, sizeof(l.version), "%s", version);
        if (o->format) {
                l.format_len = (uint32_t)strlen(o->format);
                memcpy(l.format, o->format, l.format_len);
        }
        if (attach_open_with(w->m, "n", &l, &options, &w->attach, &w->d) != 0)
                fail_msg("%s", w->d.text);
        w->ns = w->attach->ns;
}

static inline void tiers_open(struct tiers *w, const struct tiers_want *o)
{
        struct tenant_attrs attrs = {.weight = 1,
                .priority = 50,
                .max_clients = 8,
                .limit_bytes = UINT64_MAX,
                .host_limit_bytes = UINT64_MAX,
                .disk_limit_bytes = UINT64_MAX};
        uint64_t set_bytes = o->n_planes * TIER_SET_BYTES;
        struct pool *pool;

        *w = (struct tiers){.n_planes = o->n_planes, .now_nsec = 1};
        store_init(&w->store, o->evict);
        assert_int_equal(store_add_pool(&w->store, tier_device("host"), o->n_device * set_bytes,
                                 set_bytes, &w->d),
                0);
        pool = store_find_pool(&w->store, NULL);
        if (o->n_host > 0) {
                assert_int_equal(store_add_below(&w->store, pool, tier_device("host-1"),
                                         o->n_host * set_bytes, set_bytes, &w->d),
                        0);
                pool = pool->below;
        }
        if (o->disk)
                tiers_add_disk(w, pool, o);
        assert_int_equal(mover_open(NULL, &w->store.moving.mover), 0);
        assert_int_equal(tenant_new(&w->store, "a", &attrs, &w->a, &w->d), 0);
        w->m = join(w->a);
        tiers_open_ns(w, o, NULL);
}

static inline void tiers_start(struct tiers *w, const struct evict_ops *evict, unsigned n_device,
        unsigned n_host, unsigned n_planes, enum codec codec)
{
        tiers_open(w, &(struct tiers_want){.evict = evict,
                              .n_device = n_device,
                              .n_host = n_host,
                              .n_planes = n_planes,
                              .host_codec = codec});
}

static inline void tiers_end(struct tiers *w)
{
        tiers_check(w);
        member_free(w->m);
        tiers_check(w);
        store_deinit(&w->store);
}

/* ---- bytes ---- */

static inline void tier_fill(struct tiers *w, uint32_t page, unsigned key)
{
        uint64_t bytes = w->ns->layout.plane_page_bytes;

        for (uint32_t plane = 0; plane < w->n_planes; plane++) {
                uint8_t *at = set_address(ns_set_of(w->ns, page), page, plane);

                for (uint64_t i = 0; i < bytes; i += 8) {
                        uint64_t word = (key * UINT64_C(0x9e3779b97f4a7c15)) ^ (i << 8 | plane);

                        memcpy(at + i, &word, 8);
                }
        }
}

static inline bool tier_is_filled(struct tiers *w, uint32_t page, unsigned key)
{
        uint64_t bytes = w->ns->layout.plane_page_bytes;

        for (uint32_t plane = 0; plane < w->n_planes; plane++) {
                const uint8_t *at = set_address(ns_set_of(w->ns, page), page, plane);

                for (uint64_t i = 0; i < bytes; i += 8) {
                        uint64_t word = (key * UINT64_C(0x9e3779b97f4a7c15)) ^ (i << 8 | plane);

                        if (memcmp(at + i, &word, 8) != 0)
                                return false;
                }
        }
        return true;
}

/* ---- what is cached ---- */

static inline uint32_t tier_find(struct tiers *w, unsigned key)
{
        uint8_t bytes[KEY_BYTES];

        make_keys(bytes, key, 1);
        return ns_find_page(w->ns, bytes);
}

/* Finds and pins a page in any tier, as a client does, until tier_unpin(). */
static inline uint32_t tier_pin(struct tiers *w, unsigned key)
{
        uint8_t bytes[KEY_BYTES];
        uint32_t page, n;
        uint64_t tokens;

        make_keys(bytes, key, 1);
        assert_int_equal(lookup_pages(w->attach, &(struct lookup_request){bytes, 1, w->now_nsec},
                                 &page, &n, &tokens, NULL),
                0);
        return page;
}

static inline void tier_unpin(struct tiers *w, uint32_t page)
{
        assert_int_equal(release_pages(w->attach, &page, 1, w->now_nsec, NULL), 0);
}

static inline enum tier_kind tier_of(struct tiers *w, unsigned key)
{
        uint32_t page = tier_find(w, key);

        assert_int_not_equal(page, PAGE_NONE);
        return tier_of_page(&w->ns->geometry, page);
}

/* Caches a text of n pages without pins. Returns false if the device has no room for it. */
static inline bool tier_cache(struct tiers *w, unsigned first, unsigned n)
{
        uint8_t keys[16 * KEY_BYTES];
        uint32_t pages[16], sealed[16], n_sealed;
        struct publish p = {
                .pages = pages, .keys = keys, .n = n, .last_tokens = w->ns->layout.page_tokens};

        assert_true(n <= 16);
        make_keys(keys, first, n);
        if (lease_pages(w->attach, n, w->now_nsec, pages, NULL) != 0)
                return false;
        for (unsigned i = 0; i < n; i++)
                tier_fill(w, pages[i], first + i);
        assert_int_equal(publish_pages(w->attach, &p, w->now_nsec, sealed, &n_sealed, NULL), 0);
        assert_int_equal(release_pages(w->attach, sealed, n, w->now_nsec, NULL), 0);
        return true;
}

/* Everything that is under way, and what follows from it. */
static inline void tiers_settle(struct tiers *w)
{
        struct pollfd fds[2] = {{.fd = mover_fd(w->store.moving.mover), .events = POLLIN},
                {.fd = w->disk ? disk_fd(w->disk) : -1, .events = POLLIN}};
        unsigned n_idle = 0;
        bool more;

        do {
                (void)demote_turn(&w->store, w->now_nsec);
                more = transfer_work(&w->store);
                if (w->store.moving.n_transfers > 0 && poll(fds, 2, 10) == 0)
                        assert_true(++n_idle < 1000);
                (void)mover_reap(w->store.moving.mover);
                if (w->disk)
                        (void)disk_reap(w->disk);
                more |= transfer_work(&w->store);
        } while (more || w->store.moving.n_transfers > 0);
        tiers_check(w);
}

/* ---- fetches ---- */

struct told {
        int status;
        uint32_t page;
        unsigned n;
};

static inline void note_told(struct fetch *f, int status, uint32_t page, void *data)
{
        *(struct told *)data = (struct told){status, page, ((struct told *)data)->n + 1};
}

static inline int tier_ask(
        struct tiers *w, uint32_t page, uint32_t to, bool goes_down, struct told *told)
{
        const struct fetch_request rq = {.page = page,
                .generation = ns_page(w->ns, page) ? (uint32_t)ns_page(w->ns, page)->generation : 0,
                .to = to,
                .goes_down = goes_down};
        struct fetch *f;

        *told = (struct told){.page = PAGE_NONE};
        return fetch_begin(w->attach, &rq, note_told, told, &f, &told->page, &w->d);
}

static inline int tier_fetch(struct tiers *w, uint32_t page, uint32_t to, struct told *told)
{
        return tier_ask(w, page, to, false, told);
}

/* A copy of some planes. */
static inline int tier_copy(
        struct tiers *w, uint32_t page, uint32_t to, struct plane_range planes, struct told *told)
{
        const struct fetch_request rq = {.page = page,
                .generation = ns_page(w->ns, page) ? (uint32_t)ns_page(w->ns, page)->generation : 0,
                .to = to,
                .planes = planes};
        struct fetch *f;

        *told = (struct told){.page = PAGE_NONE};
        return fetch_begin(w->attach, &rq, note_told, told, &f, &told->page, &w->d);
}

static inline int tier_put(struct tiers *w, uint32_t page, struct told *told)
{
        return tier_ask(w, page, PAGE_NONE, true, told);
}

/* Drops a page and all pages below it, and unbinds sets that are idle then. Returns the number of
 * dropped pages. */
static inline uint64_t tier_drop(struct tiers *w, uint32_t page)
{
        uint64_t n = ns_drop_subtree(w->ns, page, (struct drop_reason){.why = EVICT_INVALIDATE});

        idle_sets_drain(&w->store);
        return n;
}

#define TIER_SCENE(fn, ...) TEST_ON(fn, struct tiers, w, tiers_start, tiers_end, ##__VA_ARGS__)

#endif
