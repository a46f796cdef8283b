/* Pages between the device and memory of the host below it (daemon/core/moves/transfer.h, demote.h,
 * fetch.h), on real memory: down, up, copied, and as codecs store them. */
#include <math.h>

#include "tests/unit/page-numbers.h"
#include "tests/unit/transfer-fixture.h"
#include "daemon/core/core.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/reclaim/compact.h"
#include "daemon/core/reclaim/recall.h"
#include "tests/unit/test-random.h"

/* ---- down ------------------------------------------------------------------------------------ */

/* Where both are full what was used longest ago leaves the lower one, and nothing else. */
TIER_SCENE(test_full_below, &evict_lru, 2, 4, 1, CODEC_NONE)
{
        unsigned n = N_DEVICE + 2 * N_DEVICE, n_more = 40, n_left = 0;

        for (unsigned key = 0; key < n + n_more; key++) {
                w->now_nsec += 1000;
                assert_true(tier_cache(w, key, 1));
                tiers_settle(w);
        }
        for (unsigned key = 0; key < n + n_more; key++) {
                uint32_t page = tier_find(w, key);

                n_left += page != PAGE_NONE;
                if (page != PAGE_NONE)
                        assert_true(tier_is_filled(w, page, key));
                else
                        assert_int_equal(n_left, 0); /* the oldest ones went */
        }
        assert_int_equal(n_left + w->store.counters.evictions, n + n_more);
        assert_int_equal(w->ns->tiers[TIER_HOST].n_pages[PAGE_SEALED], 2 * N_DEVICE);
}

/* ---- up -------------------------------------------------------------------------------------- */

TEST_BARE(test_up)
{
        struct told told, second;
        struct tiers w;
        unsigned key;
        uint32_t old;

        tiers_start(&w, &evict_lru, 2, 4, 2, CODEC_NONE);
        fill_device(&w);
        key = any_below(&w);
        old = tier_pin(&w, key);
        assert_int_equal(tier_fetch(&w, old, PAGE_NONE, &told), 0);
        assert_int_equal(tier_fetch(&w, old, PAGE_NONE, &second), 0); /* shares the copy */
        assert_int_equal(transfer_count(w.ns, TRANSFER_UP), 1);
        assert_int_equal(told.n, 0);
        assert_true(tier_is_filled(&w, tier_find(&w, key), key));
        tiers_settle(&w);
        assert_int_equal(told.n, 1);
        assert_int_equal(told.status, 0);
        assert_int_equal(second.n, 1);
        assert_int_equal(second.page, told.page);
        assert_int_equal(tier_find(&w, key), told.page);
        assert_int_equal(tier_of(&w, key), TIER_DEVICE);
        assert_true(tier_is_filled(&w, told.page, key));
        /* A reader of the old page keeps it. */
        assert_int_equal(ns_page(w.ns, old)->state, PAGE_DETACHED);
        assert_true(tier_is_filled(&w, old, key));
        assert_int_equal(tier_fetch(&w, old, PAGE_NONE, &second), FETCH_THERE);
        assert_int_equal(second.page, told.page);
        tier_unpin(&w, old);
        assert_int_not_equal(
                ns_page(w.ns, old) ? ns_page(w.ns, old)->state : PAGE_FREE, PAGE_DETACHED);
        assert_int_equal(w.store.counters.promoted_pages, 1);
        tiers_end(&w);
}

/* So far apart: 30 of them are 15 times the least extent of the host. */
#define APART_STRIDE (66 * UINT64_C(1024))
#define APART_PAGES  30

/* Between the pages of all sets of the device: what was written there, or writes it. */
static void fill_between(struct tiers *w, bool is_filled)
{
        list_for_each (set, &w->ns->device.sets_bound, struct extent_set, link)
                for (uint32_t i = 0; i < APART_PAGES * w->n_planes; i++) {
                        uint8_t *at = set_address(set, 0, i / APART_PAGES) +
                                      i % APART_PAGES * APART_STRIDE + TIER_PAGE_BYTES;

                        for (unsigned n = 0; is_filled && n < APART_STRIDE - TIER_PAGE_BYTES; n++)
                                assert_int_equal(at[n], 0xbe);
                        memset(at, 0xbe, APART_STRIDE - TIER_PAGE_BYTES);
                }
}

/* Pages with a stride larger than their size are demoted and come up as others do, without the
 * bytes between them. */
static void goes_apart(unsigned n_planes, enum codec codec)
{
        const struct tiers_want want = {.evict = &evict_lru,
                .n_device = 2,
                .n_host = 4,
                .n_planes = n_planes,
                .host_codec = codec,
                .stride_bytes = APART_STRIDE};
        unsigned key;
        uint32_t old;
        struct told told;
        struct tiers w;

        tiers_open(&w, &want);
        assert_int_equal(w.ns->geometry.set_pages, APART_PAGES);
        assert_true(w.ns->geometry.tiers[TIER_HOST].stored_bytes <= n_planes * TIER_PAGE_BYTES);
        for (key = 0; w.ns->device.n_sets < 2; key++)
                assert_true(tier_cache(&w, key, 1));
        fill_between(&w, false);
        for (; key < N_DEVICE; key++) {
                assert_true(tier_cache(&w, key, 1));
                tiers_settle(&w);
        }
        key = any_below(&w);
        old = tier_pin(&w, key);
        assert_int_equal(tier_fetch(&w, old, PAGE_NONE, &told), 0);
        tiers_settle(&w);
        assert_int_equal(told.status, 0);
        assert_int_equal(tier_of(&w, key), TIER_DEVICE);
        assert_int_equal(tier_find(&w, key), told.page);
        for (key = 0; key < N_DEVICE && codec == CODEC_NONE; key++)
                assert_true(tier_is_filled(&w, tier_find(&w, key), key));
        tier_unpin(&w, old);
        fill_between(&w, true);
        tiers_end(&w);
}

TEST_BARE(test_apart)
{
        goes_apart(1, CODEC_NONE);
        goes_apart(2, CODEC_NONE);
        goes_apart(1, CODEC_INT8);
}

/* All of the device is held: what lies below stays there. */
TIER_SCENE(test_no_room_above, &evict_lru, 2, 4, 1, CODEC_NONE)
{
        uint32_t held[N_DEVICE], page;
        struct told told;
        unsigned key;

        fill_device(w);
        key = any_below(w);
        page = tier_pin(w, key);
        assert_int_equal(lease_pages(w->attach, N_DEVICE, 1, held, NULL), 0);
        assert_int_equal(tier_fetch(w, page, PAGE_NONE, &told), KVL_STATUS_FULL);
        assert_int_equal(tier_find(w, key), page);
        assert_true(tier_is_filled(w, page, key));
        tier_unpin(w, page);
}

static void flip(struct tiers *w, uint32_t page)
{
        set_address(ns_set_of(w->ns, page), page, 0)[4097] ^= 1;
}

/* Never served, counted; what comes after it in its text is of no use either. */
TIER_SCENE(test_damaged, &evict_lru, 2, 4, 1, CODEC_NONE)
{
        struct told told;
        unsigned key;
        uint32_t page;

        for (unsigned i = 0; i < N_DEVICE / 8; i++)
                assert_true(tier_cache(w, 8 * i, 8));
        tiers_settle(w);
        key = any_below(w);
        page = tier_pin(w, key);
        flip(w, page);
        assert_int_equal(tier_fetch(w, page, PAGE_NONE, &told), 0);
        tiers_settle(w);
        assert_int_equal(told.n, 1);
        assert_int_equal(told.status, -ENOENT);
        for (unsigned i = key; i % 8 != 0; i++)
                assert_int_equal(tier_find(w, i), PAGE_NONE);
        assert_int_equal(w->store.counters.pages_damaged, 1);
        assert_int_equal(w->ns->tiers[TIER_HOST].n_damaged, 1);
        tier_unpin(w, page);
}

/* ---- codecs ---------------------------------------------------------------------------------- */

/* Contents of a layer of page 0: 0.125 .. 0.5. */
static uint16_t layer_number(unsigned layer, unsigned i)
{
        return (uint16_t)(0x3000 + (i * 37 + layer * 11) % 0x800);
}

static uint16_t *layer_at(const struct tiers *w, uint32_t page, unsigned layer, unsigned n_layers)
{
        unsigned n = w->n_planes * TIER_PAGE_BYTES / 2 / n_layers, at = layer * n;
        unsigned in_plane = TIER_PAGE_BYTES / 2;

        return (uint16_t *)(void *)set_address(ns_set_of(w->ns, page), page, at / in_plane) +
               at % in_plane;
}

/* The greatest error of the layer's numbers. */
static double layer_error(const struct tiers *w, uint32_t page, unsigned layer, unsigned n_layers)
{
        const uint16_t *at = layer_at(w, page, layer, n_layers);
        double greatest = 0;

        for (unsigned i = 0; i < w->n_planes * TIER_PAGE_BYTES / 2 / n_layers; i++) {
                double error = number_value(at[i]) - number_value(layer_number(layer, i));

                greatest = error > greatest ? error : -error > greatest ? -error : greatest;
        }
        return greatest;
}

/* Publishes a page whose layers are filled, has it go down, and brings it up again. Returns it. */
static uint32_t send_down_and_up(struct tiers *w, unsigned n_layers)
{
        struct told told;
        uint32_t page;

        for (unsigned key = 0; key < N_DEVICE; key++) {
                uint8_t keys[KEY_BYTES];
                struct publish p = {.pages = &page,
                        .keys = keys,
                        .n = 1,
                        .last_tokens = w->ns->layout.page_tokens};
                uint32_t sealed, n;

                make_keys(keys, key, 1);
                assert_int_equal(lease_pages(w->attach, 1, 1, &page, NULL), 0);
                for (unsigned layer = 0; layer < n_layers; layer++)
                        for (unsigned i = 0; i < w->n_planes * TIER_PAGE_BYTES / 2 / n_layers; i++)
                                layer_at(w, page, layer, n_layers)[i] = layer_number(layer, i);
                assert_int_equal(publish_pages(w->attach, &p, 1, &sealed, &n, NULL), 0);
                assert_int_equal(release_pages(w->attach, &sealed, 1, 1, NULL), 0);
        }
        tiers_settle(w);
        assert_int_equal(tier_of(w, 0), TIER_HOST);
        assert_int_equal(tier_fetch(w, tier_find(w, 0), PAGE_NONE, &told), 0);
        tiers_settle(w);
        assert_int_equal(told.status, 0);
        return told.page;
}

/* Numbers of one matrix for each part of a page that has this range. */
static uint64_t sampled_numbers(const struct tiers *w, uint32_t range)
{
        const struct codec_shape *s = &w->ns->codecs.of_pages.shape;
        struct page_part part = {0};
        uint64_t n = 0;

        while (page_part_next(&w->ns->codecs.of_pages, &w->ns->layout, TIER_HOST, &part))
                n += part.range == range ? (uint64_t)s->n_tokens * s->n_channels : 0;
        return n;
}

/* A page was decoded again to see how far its numbers are off: those of each codec by themselves.
 */
static void check_sampled(const struct tiers *w)
{
        const struct codec_layers *l = &w->ns->codecs.of_pages.tiers[TIER_HOST];
        const struct ns_coding *coding = &w->ns->codecs.done[TIER_HOST];

        assert_true(coding->n_pages >= coding->n_sampled && coding->n_sampled >= 1);
        for (unsigned i = 0; i < CODEC_RANGES_MAX; i++) {
                const struct codec_error *e = &coding->errors[i];
                double part = e->squares > 0 ? sqrt(e->errors / e->squares) : 0;

                if (i >= l->n || l->at[i].codec == CODEC_NONE) {
                        assert_true(e->n == 0);
                        continue;
                }
                assert_int_equal(e->n, coding->n_sampled * sampled_numbers(w, i));
                if (l->at[i].codec == CODEC_INT4)
                        assert_in_range(1e6 * part, 20000, 120000);
                else
                        assert_in_range(1e6 * part, 1000, 7000);
        }
}

/* Each layer with its codec: in one plane, where a range begins within a plane and ends within the
 * next one, and a plane each. */
TEST_BARE(test_layers)
{
        static const double most[N_CODECS] = {[CODEC_INT8] = 0.5 / 220, [CODEC_INT4] = 0.5 / 13.9};
        static const struct {
                unsigned n_planes, n_layers;
                const char *text;
                enum codec codecs[4];
        } cases[] = {
                {1, 2, "0:none,1:int4", {CODEC_NONE, CODEC_INT4}},
                {2, 2, "0:int8,1-:none", {CODEC_INT8, CODEC_NONE}},
                {2, 4, "0:int4,1-2:none,3:int8", {CODEC_INT4, CODEC_NONE, CODEC_NONE, CODEC_INT8}},
                {4, 2, "0-0:int8,1-1:int4", {CODEC_INT8, CODEC_INT4}},
        };

        for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
                const struct tiers_want want = {.evict = &evict_lru,
                        .n_device = 2,
                        .n_host = 4,
                        .n_planes = cases[i].n_planes,
                        .n_layers = cases[i].n_layers,
                        .host_layers = cases[i].text};
                struct tiers w;
                uint32_t page;

                tiers_open(&w, &want);
                assert_int_equal(w.ns->geometry.tiers[TIER_HOST].codec, CODEC_BY_LAYER);
                assert_true(w.ns->geometry.tiers[TIER_HOST].stored_bytes <
                            w.n_planes * TIER_PAGE_BYTES);
                page = send_down_and_up(&w, cases[i].n_layers);
                check_sampled(&w);
                for (unsigned layer = 0; layer < cases[i].n_layers; layer++) {
                        enum codec codec = cases[i].codecs[layer];
                        double error = layer_error(&w, page, layer, cases[i].n_layers);

                        assert_true(error <= most[codec]);
                        assert_int_equal(error > 0, codec != CODEC_NONE);
                }
                tiers_end(&w);
        }
}

TIER_SCENE(test_codec_refused, &evict_lru, 2, 4, 1, CODEC_NONE)
{
        const struct attach_options int8 = {.host_codecs = codec_layers_all(CODEC_INT8)};
        struct ns_layout l = toy_layout(TIER_PAGE_BYTES);
        struct attach_options layers;
        struct member *m;
        struct attach *a;

        m = join(w->a);
        l.dtype = 6; /* i8 */
        assert_int_equal(attach_open_with(m, "other", &l, &int8, &a, &w->d), -EINVAL);
        assert_non_null(strstr(w->d.text, "dtype"));
        l = toy_layout(TIER_PAGE_BYTES);
        assert_int_equal(attach_open_with(m, "n", &l, &int8, &a, &w->d), KVL_STATUS_LAYOUT);
        assert_non_null(strstr(w->d.text, "as none, not as int8"));
        layers = int8;
        tier_read_codecs("0:none,1:int8", 2, &layers.host_codecs);
        assert_int_equal(attach_open_with(m, "n", &l, &layers, &a, &w->d), KVL_STATUS_LAYOUT);
        assert_non_null(strstr(w->d.text, "as none, not as 0:none,1:int8"));
        l.n_layers = 3;
        l.dtype = 2;
        tier_read_codecs("0:none,1-:int8", 3, &layers.host_codecs);
        assert_int_equal(attach_open_with(m, "third", &l, &layers, &a, &w->d), -EINVAL);
        assert_non_null(strstr(w->d.text, "no multiple of n_layers 3"));
        member_free(m);
}

/* Pages are changed while they move between the device and host memory
 * (daemon/core/moves/transfer.h), on real memory: leased, pinned, compacted, invalidated, held by
 * windows, and at random. */

#define N_PLANES 16 /* a page of so many isn't copied in one visit of compaction */

/* A page that is on its way up, and then: */
static uint32_t begin_up(struct tiers *w, unsigned *ret_key, struct told *told)
{
        uint32_t page;

        tiers_start(w, &evict_lru, 2, 4, 1, CODEC_NONE);
        fill_device(w);
        *ret_key = any_below(w);
        page = tier_find(w, *ret_key);
        assert_int_equal(tier_fetch(w, page, PAGE_NONE, told), 0);
        assert_int_equal(w->store.moving.n_transfers, 1);
        return page;
}

/* A lease that lacks pages doesn't wait for what goes down: that goes for it. */
TIER_SCENE(test_leased_meanwhile, &evict_lru, 2, 4, 1, CODEC_NONE)
{
        uint32_t held[N_DEVICE];

        for (unsigned i = 0; i < N_DEVICE / 16; i++)
                assert_true(tier_cache(w, 16 * i, 16));
        (void)demote_turn(&w->store, w->now_nsec);
        assert_int_equal(
                w->store.moving.n_transfers, N_DEVICE / 2); /* texts, whole, from the end on */
        for (unsigned key = 0; key < N_DEVICE; key++)
                assert_true(!transfer_find(w->ns, tier_find(w, key)) || key % 16 == 15 ||
                            transfer_find(w->ns, tier_find(w, key + 1)));
        assert_int_equal(lease_pages(w->attach, N_DEVICE, 1, held, NULL), 0);
        tiers_check(w);
        tiers_settle(w);
        assert_int_equal(ns_n_pages(w->ns, PAGE_SEALED), 0);
}

/* A set is emptied where one of its pages is on its way down, before its copy within the tier
 * begins or after: it goes down. */
static void compacted_meanwhile(bool is_copied_first)
{
        uint32_t page = 0;
        struct tiers w;
        unsigned key = 0;

        tiers_start(&w, &evict_pgi, 3, 4, N_PLANES, CODEC_NONE);
        while (page < TIER_SET_PAGES) { /* until there is one in the second set */
                assert_true(tier_cache(&w, ++key, 1));
                page = tier_find(&w, key);
        }
        (void)ns_drop_subtree(w.ns, tier_find(&w, 1),
                (struct drop_reason){.why = EVICT_PRESSURE}); /* room in the first one */
        idle_sets_drain(&w.store);
        recall_set(ns_set_of(w.ns, page), RECALL_COMPACT);
        if (is_copied_first)
                (void)compact_visit(ns_set_of(w.ns, page), w.now_nsec, TIER_SET_PAGES);
        assert_int_equal(compact_count_moves(w.ns), is_copied_first);
        assert_int_equal(demote_page(w.ns, page), 0);
        do
                recall_poll(&w.store);
        while (recall_work(&w.store, w.now_nsec, UINT64_MAX, 1000) == RECALL_MORE);
        assert_int_equal(tier_find(&w, key), page);
        tiers_settle(&w);
        assert_int_equal(tier_of(&w, key), TIER_HOST);
        assert_true(tier_is_filled(&w, tier_find(&w, key), key));
        tiers_end(&w);
}

TEST_BARE(test_compacted_meanwhile)
{
        compacted_meanwhile(false);
        compacted_meanwhile(true);
}

TEST_BARE(test_client_goes_meanwhile)
{
        struct told told;
        struct tiers w;
        unsigned key;

        (void)begin_up(&w, &key, &told);
        member_free(w.m);
        assert_int_equal(told.n, 1);
        assert_int_equal(told.status, -ECANCELED);
        tiers_settle(&w); /* the move goes on, as a caller waits for it */
        assert_int_equal(tier_of(&w, key), TIER_DEVICE);
        store_deinit(&w.store);
}

TEST_BARE(test_ns_goes_meanwhile)
{
        struct told told;
        struct tiers w;
        uint64_t pages, kept;
        unsigned key;

        (void)begin_up(&w, &key, &told);
        member_free(w.m);
        assert_int_equal(store_purge(&w.store, w.a, NULL, true, &pages, &kept), 0);
        assert_int_equal(kept, 0);
        assert_int_equal(w.store.moving.n_transfers, 0);
        store_deinit(&w.store);
}

/* ---- at random ------------------------------------------------------------------------------- */

#define N_KEYS 120

/* A page that is found has its bytes, in any tier and during any move. */
static void step(struct tiers *w)
{
        unsigned key = random_below(N_KEYS);
        uint32_t page = tier_find(w, key);
        static struct told told;

        w->now_nsec += 1000;
        switch (random_below(8)) {
        case 0:
        case 1:
        case 2:
                if (page == PAGE_NONE)
                        (void)tier_cache(w, key, 1);
                break;
        case 3:
        case 4:
                if (page != PAGE_NONE && tier_of(w, key) != TIER_DEVICE)
                        (void)tier_fetch(w, page, PAGE_NONE, &told);
                break;
        case 5:
                (void)demote_turn(&w->store, w->now_nsec);
                break;
        case 6:
                (void)mover_reap(w->store.moving.mover);
                (void)transfer_work(&w->store);
                break;
        default:
                if (random_below(16) == 0)
                        tiers_settle(w);
                else if (page != PAGE_NONE)
                        tier_unpin(w, tier_pin(w, key));
        }
        page = tier_find(w, key);
        if (page != PAGE_NONE)
                assert_true(tier_is_filled(w, page, key));
}

static void at_random(const struct evict_ops *evict)
{
        struct tiers w;

        random_start("test_transfer_meanwhile");
        tiers_start(&w, evict, 2, 3, 1, CODEC_NONE);
        for (unsigned i = 0; i < 6000; i++) {
                step(&w);
                if (i % 16 == 0)
                        tiers_check(&w);
        }
        tiers_settle(&w);
        assert_true(w.store.counters.demoted_pages > 50);
        assert_true(w.store.counters.promoted_pages > 50);
        assert_int_equal(w.store.counters.pages_damaged, 0);
        tiers_end(&w);
}

TEST_BARE(test_random_lru)
{
        at_random(&evict_lru);
}

TEST_BARE(test_random_pgi)
{
        at_random(&evict_pgi);
}
