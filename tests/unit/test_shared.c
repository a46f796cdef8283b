/* The daemon's half of the shared memory: the test plays the client, in its segments. */
#include <pthread.h>

#include "base/fd.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/clients/magazine.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/memory/settle.h"
#include "daemon/core/reclaim/sweep.h"
#include "daemon/core/state/shared.h"
#include "daemon/core/requests/invalidate.h"
#include "tests/unit/shared-fixture.h"

SHARED_SCENE(test_publish_shows_the_page, 4)
{
        uint32_t page;

        assert_int_equal(seen(w, 7), PAGE_NONE);
        page = publish_root(w, 7);
        assert_int_equal(seen(w, 7), page);
        assert_int_equal(w->ns->shared.lines[page].tokens, PAGE_TOKENS);
        assert_int_equal(seen(w, 8), PAGE_NONE);
}

SHARED_SCENE(test_pinned_in_a_segment_is_never_evicted, 1)
{
        uint32_t kept, gone, pages[SET_PAGES];

        kept = publish_root(w, 1);
        gone = publish_root(w, 2);
        unpin(w, gone);
        assert_int_equal(lease_pages(w->a, SET_PAGES - 1, 1, pages, NULL), 0);
        assert_int_equal(seen(w, 1), kept);
        assert_int_equal(shown(w, kept), PAGE_SEALED); /* restored, where it was tried */
        assert_int_equal(seen(w, 2), PAGE_NONE);
        assert_int_equal(shown(w, gone), PAGE_FREE);
        assert_int_equal(lease_pages(w->a, 1, 1, pages, NULL), KVL_STATUS_FULL);
        fixture_check(&w->f);
        /* The daemon gets no message of an unpin; it finds out when it needs the page. */
        unpin(w, kept);
        assert_int_equal(lease_pages(w->a, 1, 1, pages, NULL), 0);
        assert_int_equal(pages[0], kept);
        assert_int_equal(seen(w, 1), PAGE_NONE);
}

/* A client of another namespace has the tenant's memory mapped and pins it in its segment: the
 * refusal counts these pins, though no lease has met them. */
SHARED_SCENE(test_refusal_counts_pins_of_segments, 2)
{
        struct extent_handle handle;
        struct tenant_attrs attrs;
        struct attach *other;
        uint32_t page;

        attrs = w->f.a->attrs;
        attrs.limit_bytes = SET_BYTES;
        assert_int_equal(tenant_set_attrs(w->f.a, &attrs, NULL), 0);
        publish_root(w, 1);
        publish_root(w, 2);
        unpin(w, publish_root(w, 3));
        assert_int_equal(attach_map_set(w->a, 0, 0, 1, &handle, NULL), 1);
        fd_close(handle.fd);
        other = open_ns(w->m, "y");
        assert_int_equal(lease_pages(other, 1, 1, &page, &w->f.d), KVL_STATUS_QUOTA);
        assert_non_null(strstr(w->f.d.text, "(2 pages pinned, 0 granted, 1 KiB mapped by clients "
                                            "of its other namespaces)"));
}

struct late_pin {
        struct world *w;
        uint32_t page;
        _Atomic uint64_t n_toggled;
        _Atomic bool stop;
};

static void *pin_and_unpin(void *data)
{
        struct late_pin *l = data;

        while (!l->stop) {
                pin(l->w, l->page);
                unpin(l->w, l->page);
                l->n_toggled++;
        }
        return NULL;
}

/* A pin that comes between the look and the sum: the page is as it was. */
SHARED_SCENE(test_late_pin_restores_the_page, 1)
{
        struct late_pin l = {0};
        uint32_t n_kept = 0, n_wrong = 0;
        pthread_t thread;

        l.w = w;
        l.page = publish_root(w, 1);
        unpin(w, l.page);
        assert_int_equal(pthread_create(&thread, NULL, pin_and_unpin, &l), 0);
        /* Until both have run side by side for a while, on however few cores. */
        for (int i = 0; i < 5000000 || n_kept == 0 || l.n_toggled < 2000000; i++) {
                if (!shared_retire(w->ns, l.page)) {
                        n_kept++;
                        n_wrong += shown(w, l.page) != PAGE_SEALED;
                }
                shared_show_state(w->ns, l.page);
        }
        l.stop = true;
        pthread_join(thread, NULL);
        assert_int_equal(n_wrong, 0);
}

SHARED_SCENE(test_pins_end_with_the_client, 1)
{
        uint32_t page, pages[SET_PAGES];
        struct attach *b = enter(w->f.a, "x");

        page = publish_root(w, 1);
        pin(w, page);
        assert_int_equal(ns_find_pinned(w->ns, NULL, NULL), 1);
        assert_int_equal(member_count_pins(w->m), 2);
        assert_int_equal(lease_pages(b, SET_PAGES, 1, pages, NULL), KVL_STATUS_FULL);
        member_free(w->m);
        fixture_check(&w->f);
        assert_int_equal(lease_pages(b, SET_PAGES, 1, pages, NULL), 0);
        w->m = b->member;
}

/* Pages that were pinned when they were tried come back in the order of the tries. */
SHARED_SCENE(test_watched_pages_keep_their_order, 1)
{
        uint32_t chain[SET_PAGES], page;

        for (unsigned i = 0; i < SET_PAGES; i++)
                chain[i] = publish_root(w, i);
        assert_int_equal(lease_pages(w->a, 1, 1, &page, NULL), KVL_STATUS_FULL);
        assert_int_equal(w->ns->catalog.watched.n, SET_PAGES);
        fixture_check(&w->f);
        for (unsigned i = 0; i < SET_PAGES; i++)
                unpin(w, chain[i]);
        ns_look_again(w->ns, 3);
        settle_all(&w->f.store);
        assert_int_equal(w->ns->catalog.watched.n, SET_PAGES - 3);
        for (unsigned i = 0; i < SET_PAGES; i++) {
                assert_int_equal(lease_pages(w->a, 1, 1, &page, NULL), 0);
                assert_int_equal(page, chain[i]);
        }
}

/* A process that can write the index (a memfd, the same uid) can hide pages, and nothing worse. */
SHARED_SCENE(test_slots_taken_away, 1)
{
        uint32_t pages[SET_PAGES];

        unpin(w, publish_root(w, 1));
        memset((void *)w->ns->shared.buckets, 0,
                w->ns->shared.n_buckets * sizeof(struct shm_bucket));
        assert_int_equal(lease_pages(w->a, SET_PAGES, 1, pages, NULL), 0);
        w->ns->shared.n_indexed = 0;
}

/* Invalidated under a reader: not found again, not reused either. */
SHARED_SCENE(test_invalidated_page_waits_for_its_reader, 4)
{
        uint8_t key[KEY_BYTES];
        uint32_t page, stale;
        uint64_t n;

        page = publish_root(w, 1);
        stale = publish_root(w, 2);
        make_keys(key, 1, 1);
        assert_int_equal(invalidate_key(w->a, key, &n, NULL), 0);
        assert_int_equal(seen(w, 1), PAGE_NONE);
        assert_int_equal(shown(w, page), PAGE_DETACHED);
        assert_int_equal(ns_invalidate(w->ns, CAUSE_NAMESPACE, &n), 0);
        assert_int_equal(seen(w, 2), PAGE_NONE);
        assert_int_equal(shown(w, stale), PAGE_SEALED); /* one store did it */
        while (ns_sweep(w->ns, 8))
                ;
        settle_all(&w->f.store);
        fixture_check(&w->f);
        assert_int_equal(shown(w, stale), PAGE_DETACHED);
        ns_look_again(w->ns, UINT32_MAX);
        settle_all(&w->f.store);
        assert_int_equal(w->ns->catalog.watched.n, 2);
        unpin(w, page);
        unpin(w, stale);
        ns_look_again(w->ns, UINT32_MAX);
        settle_all(&w->f.store);
        assert_int_equal(w->ns->catalog.watched.n, 0);
        assert_int_equal(
                w->ns->device.n_pages[PAGE_FREE] + w->ns->device.n_sets, 0); /* the set went back */
}

/* All slots of a key are taken, by pages that were invalidated. */
SHARED_SCENE(test_stale_slots_are_taken_over, 4)
{
        struct shm_bucket *buckets[2];
        uint64_t hash;
        uint32_t old;
        uint8_t key[KEY_BYTES];
        uint64_t n;

        old = publish_root(w, 1);
        assert_int_equal(ns_invalidate(w->ns, CAUSE_NAMESPACE, &n), 0);
        make_keys(key, 2, 1);
        hash = shared_hash(&w->ns->shared, key);
        for (unsigned b = 0; b < 2; b++) {
                buckets[b] =
                        &w->ns->shared.buckets[shm_bucket_index(hash, w->ns->shared.n_buckets, b)];
                for (unsigned i = 0; i < SHM_BUCKET_SLOTS; i++)
                        if (buckets[b]->slots[i] == 0) {
                                buckets[b]->slots[i] = shm_slot(0, old);
                                w->ns->shared.n_indexed++;
                        }
        }
        assert_int_not_equal(publish_root(w, 2), seen(w, 1));
        assert_int_not_equal(seen(w, 2), PAGE_NONE);
        for (unsigned b = 0; b < 2; b++)
                for (unsigned i = 0; i < SHM_BUCKET_SLOTS; i++)
                        if (buckets[b]->slots[i] == shm_slot(0, old)) {
                                buckets[b]->slots[i] = 0;
                                w->ns->shared.n_indexed--;
                        }
}

/* A key published again while its stale page still has the slot. */
SHARED_SCENE(test_stale_slot_doesnt_hide_a_fresh_page, 4)
{
        uint32_t old, fresh;
        uint64_t n;

        old = publish_root(w, 1);
        assert_int_equal(ns_invalidate(w->ns, CAUSE_NAMESPACE, &n), 0);
        fresh = publish_root(w, 1);
        assert_int_not_equal(old, fresh);
        assert_int_equal(seen(w, 1), fresh);
        unpin(w, old);
        while (ns_sweep(w->ns, 8))
                ;
        settle_all(&w->f.store);
        assert_int_equal(seen(w, 1), fresh);
        assert_int_equal(shown(w, old), PAGE_FREE);
}

TEST(test_duplicate_is_pinned_for_the_client)
{
        uint32_t first, second;
        struct submit_result r;
        struct world w;

        start(&w, 4);
        first = publish_root(&w, 1);
        second = lease_one(&w);
        pin(&w, second);
        r = submit(&w, publishing(second, 1, SHM_PUBLISH_ROOT));
        assert_int_equal(r.status, KVL_STATUS_DUPLICATE);
        assert_int_equal(r.page, first);
        assert_int_equal(pins(&w, first), 2);
        assert_int_equal(pins(&w, second), 1); /* the client's to drop */
        assert_int_equal(ns_page(w.ns, second)->state, PAGE_GRANTED);
        end(&w);
}

SHARED_SCENE(test_chain_stops_where_it_fails, 4)
{
        uint32_t pages[4], other;
        struct submit_result r;
        struct shm_submission s;

        assert_int_equal(lease_pages(w->a, 4, 1, pages, NULL), 0);
        r = submit(w, publishing(pages[0], 1, SHM_PUBLISH_CHAIN)); /* to nothing */
        assert_int_equal(r.status, KVL_STATUS_NO_PARENT);
        assert_int_equal(submit(w, publishing(pages[0], 1, SHM_PUBLISH_ROOT)).status, 0);
        assert_int_equal(submit(w, publishing(pages[1], 2, SHM_PUBLISH_CHAIN)).status, 0);
        assert_int_equal(tree_parent(&w->ns->tree, pages[1]), pages[0]);
        /* A page that isn't granted: what is chained to it isn't published, cached parent or not.
         */
        r = submit(w, publishing(pages[1], 3, SHM_PUBLISH_CHAIN));
        assert_int_equal(r.status, status_to_wire(-EINVAL));
        r = submit(w, publishing(pages[2], 4, SHM_PUBLISH_CHAIN));
        assert_int_equal(r.status, status_to_wire(-EINVAL));
        assert_int_equal(seen(w, 4), PAGE_NONE);
        s = (struct shm_submission){.op = SHM_OP_PARENT};
        make_keys(s.key, 2, 1);
        assert_false(submit(w, s).completes);
        assert_int_equal(submit(w, publishing(pages[2], 4, SHM_PUBLISH_CHAIN)).status, 0);
        assert_int_equal(tree_parent(&w->ns->tree, pages[2]), pages[1]);
        make_keys(s.key, 99, 1);
        submit(w, s);
        r = submit(w, publishing(pages[3], 5, SHM_PUBLISH_CHAIN));
        assert_int_equal(r.status, KVL_STATUS_NO_PARENT);
        /* So does one of a namespace that isn't there. */
        make_keys(s.key, 4, 1);
        submit(w, s);
        s = publishing(pages[3], 5, SHM_PUBLISH_CHAIN);
        s.ns_id = 77;
        assert_int_equal(submit(w, s).status, status_to_wire(-ENOENT));
        r = submit(w, publishing(pages[3], 5, SHM_PUBLISH_CHAIN));
        assert_int_equal(r.status, KVL_STATUS_NO_PARENT);
        s = (struct shm_submission){.op = SHM_OP_PARENT};
        /* Another operation in between breaks the chain. */
        make_keys(s.key, 4, 1);
        submit(w, s);
        submit(w, (struct shm_submission){.op = SHM_OP_REQUEST_END, .request_id = 5});
        r = submit(w, publishing(pages[3], 5, SHM_PUBLISH_CHAIN));
        assert_int_equal(r.status, KVL_STATUS_NO_PARENT);
        other = ns_find_page(w->ns, s.key);
        assert_int_equal(other, pages[2]);
}

SHARED_SCENE(test_rubbish_is_a_violation, 4)
{
        static const struct shm_submission rubbish[] = {
                {.op = 0},
                {.op = SHM_OP_LAST + 1},
                {.op = 255},
                {.op = SHM_OP_PUBLISH},
                {.op = SHM_OP_PUBLISH, .flags = 3},
                {.op = SHM_OP_PUBLISH, .flags = 4},
                {.op = SHM_OP_TOUCH, .flags = 1},
                {.op = SHM_OP_EXPECT, .flags = 1},
                {.op = SHM_OP_FREE, .tokens = 0},
                {.op = SHM_OP_FREE, .tokens = SHM_FREE_PAGES + 1},
        };

        for (size_t i = 0; i < ARRAY_SIZE(rubbish); i++)
                assert_non_null(submit(w, rubbish[i]).violation);
}

/* A submission that is well formed and wrong is answered; nothing changes. */
TEST(test_wrong_is_answered)
{
        struct member *stranger;
        uint32_t theirs, page;
        struct submit_result r;
        struct world w;

        start(&w, 4);
        stranger = join(w.f.a);
        assert_int_equal(lease_pages(open_ns(stranger, "x"), 1, 1, &theirs, NULL), 0);
        page = lease_one(&w);
        assert_int_equal(submit(&w, publishing(theirs, 1, SHM_PUBLISH_ROOT)).status,
                status_to_wire(-EINVAL));
        assert_int_equal(submit(&w, publishing(UINT32_MAX, 1, SHM_PUBLISH_ROOT)).status,
                status_to_wire(-EINVAL));
        assert_int_equal(
                submit(&w, publishing(63, 1, SHM_PUBLISH_ROOT)).status, status_to_wire(-EINVAL));
        r = submit(&w,
                (struct shm_submission){.op = SHM_OP_FREE, .tokens = 2, .pages = {page, theirs}});
        assert_int_equal(r.status, status_to_wire(-EINVAL));
        assert_int_equal(ns_page(w.ns, page)->state, PAGE_GRANTED); /* none of them */
        r = submit(&w, (struct shm_submission){.op = SHM_OP_FREE, .tokens = 1, .pages = {page}});
        assert_int_equal(r.status, 0);
        r = submit(&w, (struct shm_submission){.op = SHM_OP_FETCH});
        assert_true(r.completes);
        assert_non_null(r.fetching); /* for the server, which checks the page */
        r = submit(&w, (struct shm_submission){
                               .op = SHM_OP_FETCH, .flags = SHM_FETCH_COPY, .copy.to = PAGE_NONE});
        assert_null(r.fetching);
        assert_int_equal(r.status, status_to_wire(-EINVAL));
        r = submit(&w, (struct shm_submission){.op = SHM_OP_FETCH, .flags = SHM_FETCH_DOWN});
        assert_non_null(r.fetching);
        assert_true(r.fetch.goes_down);
        assert_int_equal(r.fetch.to, PAGE_NONE);
        r = submit(&w, (struct shm_submission){
                               .op = SHM_OP_FETCH, .flags = SHM_FETCH_DOWN | SHM_FETCH_COPY});
        assert_non_null(r.violation);
        r = submit(&w, (struct shm_submission){
                               .op = SHM_OP_FETCH_PLANES, .copy = {.to = 5, .first_plane = 2}});
        assert_null(r.fetching); /* of no plane */
        assert_int_equal(r.status, status_to_wire(-EINVAL));
        r = submit(&w, (struct shm_submission){.op = SHM_OP_FETCH_PLANES,
                               .copy = {.to = PAGE_NONE, .n_planes = 1}});
        assert_null(r.fetching);
        assert_int_equal(r.status, status_to_wire(-EINVAL));
        r = submit(&w, (struct shm_submission){.op = SHM_OP_FETCH_PLANES,
                               .copy = {.to = 5, .first_plane = 2, .n_planes = 3}});
        assert_true(r.completes);
        assert_non_null(r.fetching);
        assert_false(r.fetch.goes_down);
        assert_int_equal(r.fetch.to, 5);
        assert_int_equal(r.fetch.planes.first, 2);
        assert_int_equal(r.fetch.planes.n, 3);
        r = submit(&w, (struct shm_submission){.op = SHM_OP_FETCH_PLANES,
                               .flags = SHM_FETCH_COPY,
                               .copy = {.to = 5, .n_planes = 1}});
        assert_non_null(r.violation);
        r = submit(&w, (struct shm_submission){.op = SHM_OP_FETCH, .copy = {5, 2, 3}});
        assert_int_equal(r.fetch.planes.n, 0); /* it names none */
        r = submit(&w, (struct shm_submission){.op = SHM_OP_FREE, .ns_id = 77, .tokens = 1});
        assert_int_equal(r.status, status_to_wire(-ENOENT));
        submit(&w, (struct shm_submission){.op = SHM_OP_TOUCH,
                           .page = UINT32_MAX,
                           .touch = {.n_keys = 9, .n_hits = 9}});
        member_free(stranger);
        end(&w);
}

SHARED_SCENE(test_touch_makes_recent, 1)
{
        uint32_t old, newer, pages[SET_PAGES - 1];

        old = publish_root(w, 1);
        newer = publish_root(w, 2);
        unpin(w, old);
        unpin(w, newer);
        submit(w, (struct shm_submission){.op = SHM_OP_TOUCH,
                          .page = old,
                          .aux = (uint32_t)ns_page(w->ns, old)->generation,
                          .touch = {.n_keys = 3, .n_hits = 1}});
        submit(w, (struct shm_submission){.op = SHM_OP_TOUCH,
                          .page = newer,
                          .aux = (uint32_t)ns_page(w->ns, newer)->generation + 1, /* not this one */
                          .touch = {.n_keys = 1, .n_hits = 1}});
        assert_int_equal(lease_pages(w->a, SET_PAGES - 1, 1, pages, NULL), 0);
        assert_int_equal(seen(w, 1), old);
        assert_int_equal(seen(w, 2), PAGE_NONE);
}

/* A set of pages that a daemon before this one had shown, and this one hasn't. */
TEST(test_lines_of_a_lost_set)
{
        uint32_t pages[2 * SET_PAGES];
        struct world w;

        start(&w, 2);
        for (uint32_t i = 0; i < 2 * SET_PAGES; i++)
                w.ns->shared.lines[i].state =
                        page_word(5, i % 2 == 0 ? PAGE_SEALED : PAGE_RETIRING);
        assert_int_equal(lease_pages(w.a, 2 * SET_PAGES, 1, pages, NULL), 0);
        fixture_check(&w.f);
        for (uint32_t i = 0; i < 2 * SET_PAGES; i++)
                assert_int_equal(ns_page(w.ns, i)->generation, 6);
        end(&w);
}

/* Lookups in memory are figures all the same. */
SHARED_SCENE(test_lookups_are_counted, 1)
{
        w->a->share.header->n_lookups = 2;
        w->a->share.header->n_keys = 9;
        w->a->share.header->n_hits = 4;
        assert_true(attach_settle(w->a));
        assert_true(attach_settle(w->a)); /* once */
        assert_int_equal(w->ns->counters.keys, 9);
        assert_int_equal(w->ns->counters.hits, 4);
        assert_int_equal(w->f.store.counters.lookups, 2);
}

/* ---- magazines ------------------------------------------------------------------------------ */

static uint32_t claim(struct world *w)
{
        for (uint32_t i = 0; i < SHM_MAGAZINE_SLOTS; i++) {
                uint32_t v = atomic_exchange(&w->a->share.magazine[i], 0);

                if (v != 0)
                        return v - 1;
        }
        return PAGE_NONE;
}

static void refill(struct world *w, uint32_t wanted)
{
        w->a->share.header->refill_asked = 1;
        assert_false(
                submit(w, (struct shm_submission){.op = SHM_OP_REFILL, .aux = wanted}).completes);
        assert_int_equal(w->a->share.header->refill_asked, 0);
}

SHARED_SCENE(test_magazine_grants_ahead, 16)
{
        struct submit_result r;
        uint32_t page;

        assert_int_equal(claim(w), PAGE_NONE);
        refill(w, 1);
        assert_int_equal(w->a->share.header->level, 8);
        assert_int_equal(w->a->share.header->n_put, 8);
        assert_int_equal(w->ns->clients.n_ready, 8);
        page = claim(w);
        pin(w, page);
        r = submit(w, publishing(page, 1, SHM_PUBLISH_ROOT));
        assert_int_equal(r.status, 0);
        assert_int_equal(w->ns->clients.n_ready, 7);
        /* An unclaimed page can't be published or freed. */
        for (uint32_t i = 0; (page = w->a->magazine->pages[i] - 1) == PAGE_NONE; i++)
                ;
        r = submit(w, publishing(page, 2, SHM_PUBLISH_ROOT));
        assert_int_equal(r.status, status_to_wire(-EINVAL));
        assert_int_equal(free_pages(w->a, &page, 1, NULL), -EINVAL);
        page = claim(w);
        assert_int_equal(free_pages(w->a, &page, 1, NULL), 0);
        page = claim(w);
        assert_true(magazine_settle(w->a));
        assert_int_equal(w->ns->clients.n_ready, 5);
}

/* A magazine holds at most 16 of 128 pages, and all magazines hold 32. */
SHARED_SCENE(test_magazine_grows_and_keeps_to_its_part, 16)
{
        for (int i = 0; i < 4; i++) {
                refill(w, 0);
                while (claim(w) != PAGE_NONE)
                        ;
        }
        refill(w, 1000);
        assert_int_equal(w->a->share.header->level, 16);
        assert_int_equal(w->ns->clients.n_ready, 16);
        submit_one(w->m, &w->chain,
                &(struct shm_submission){.op = SHM_OP_REFILL, .ns_id = w->a->id},
                UINT64_C(10000000000), &(struct submit_result){0});
        assert_int_equal(w->a->share.header->level, 8); /* long ago */
}

/* Idle grants are never lost memory: a lease that needs them takes them back. */
SHARED_SCENE(test_magazine_gives_way, 2)
{
        uint32_t pages[2 * SET_PAGES], mine;
        struct attach *b = enter(w->f.a, "x");

        refill(w, 2);
        assert_int_equal(w->ns->clients.n_ready, 2);
        mine = claim(w);
        assert_int_not_equal(mine, PAGE_NONE);
        assert_int_equal(lease_pages(b, 2 * SET_PAGES, 1, pages, NULL), KVL_STATUS_FULL);
        assert_int_equal(lease_pages(b, 2 * SET_PAGES - 1, 1, pages, NULL), 0);
        assert_int_equal(claim(w), PAGE_NONE);
        assert_int_equal(w->a->share.header->n_put, 1); /* of which one was taken */
}

/* Pages in the magazine of a paused client are freed before cached pages; an active client's stay.
 */
SHARED_SCENE(test_idle_magazine_goes_before_pages, 16)
{
        const uint64_t second = UINT64_C(1000000000);
        uint32_t pages[8];
        struct attach *b = enter(w->f.a, "x");

        for (int i = 0; i < 4; i++) {
                refill(w, 0);
                while (claim(w) != PAGE_NONE)
                        ;
        }
        refill(w, 1000);
        assert_int_equal(w->ns->clients.n_ready, 16);
        cache_chain(b, 1, 16 * SET_PAGES - (unsigned)w->ns->device.n_pages[PAGE_GRANTED]);
        assert_int_equal(lease_pages(b, 8, second / 2, pages, NULL), 0);
        assert_int_equal(w->ns->counters.evictions, 8);
        assert_int_equal(w->ns->clients.n_ready, 16);
        w->a->magazine->refill_nsec = 0; /* as after a restart, which is no pause */
        assert_int_equal(lease_pages(b, 8, 10 * second, pages, NULL), 0);
        assert_int_equal(w->ns->counters.evictions, 16);
        assert_int_equal(w->ns->clients.n_ready, 16);
        assert_int_equal(lease_pages(b, 8, 11 * second + second / 2, pages, NULL), 0);
        assert_int_equal(w->ns->counters.evictions, 16);
        assert_int_equal(w->ns->clients.n_ready, 8); /* half of the level, for a second */
        assert_int_equal(lease_pages(b, 8, 100 * second, pages, NULL), 0);
        assert_int_equal(w->ns->counters.evictions, 24);
        assert_int_equal(w->ns->clients.n_ready, 8); /* the least */
}

SHARED_SCENE(test_magazine_of_the_dead_is_free, 16)
{
        struct member *other;

        other = join(w->f.a);
        open_ns(other, "x");
        refill(w, 1);
        claim(w);
        member_free(w->m);
        assert_int_equal(w->f.a->account.charged_bytes, 0);
        w->m = other;
}

SHARED_SCENE(test_magazine_that_was_written_into, 16)
{
        uint32_t slot = 0;

        refill(w, 1);
        while (w->a->magazine->pages[slot] == 0)
                slot++;
        w->a->share.magazine[slot] = 12345;
        assert_false(magazine_settle(w->a)); /* told once */
        assert_true(magazine_settle(w->a));
        fixture_check(&w->f);
        w->a->magazine->tampered = false;
        w->a->share.magazine[SHM_MAGAZINE_SLOTS - 1] = 5;
        assert_non_null(submit(w, (struct shm_submission){.op = SHM_OP_REFILL}).violation);
        w->a->magazine->tampered = false;
        w->a->share.magazine[SHM_MAGAZINE_SLOTS - 1] = 5;
        assert_non_null(submit(w, (struct shm_submission){.op = SHM_OP_REFILL}).violation);
        w->a->share.magazine[slot + 20] = w->a->magazine->pages[slot + 1];
        refill(w, 8);
        magazine_drain(w->a);
        settle_all(&w->f.store);
        assert_int_equal(w->ns->clients.n_ready, 0);
}

TEST(test_report_frees_the_rest)
{
        uint32_t pages[4], stranger;
        struct member *other;
        struct world w;
        uint64_t n = 77;

        start(&w, 16);
        assert_int_equal(lease_pages(w.a, 4, 1, pages, NULL), 0);
        refill(&w, 1);
        stranger = claim(&w); /* taken, and forgotten by the client */
        assert_int_equal(report_pages(w.a, pages, 2, false, true, &n, NULL), 0);
        assert_int_equal(n, 0);
        assert_int_equal(report_pages(w.a, &pages[2], 1, true, false, &n, NULL), 0);
        assert_int_equal(n, 2);
        fixture_check(&w.f);
        assert_int_equal(ns_page(w.ns, pages[3])->state, PAGE_FREE);
        assert_int_equal(ns_page(w.ns, stranger)->state, PAGE_FREE);
        assert_int_equal(ns_page(w.ns, pages[2])->state, PAGE_GRANTED);
        assert_int_equal(report_pages(w.a, &pages[3], 1, false, false, &n, NULL), -EINVAL);
        assert_int_equal(report_pages(w.a, &pages[2], 1, true, false, &n, NULL), -ESTALE);
        assert_int_equal(ns_page(w.ns, pages[1])->state, PAGE_GRANTED);
        /* One that was broken off is forgotten by the next one. */
        assert_int_equal(report_pages(w.a, pages, 1, false, true, &n, NULL), 0);
        assert_int_equal(report_pages(w.a, &pages[1], 1, false, true, &n, NULL), 0);
        assert_int_equal(report_pages(w.a, &pages[2], 1, true, false, &n, NULL), 0);
        assert_int_equal(n, 1);
        assert_int_equal(ns_page(w.ns, pages[0])->state, PAGE_FREE);
        assert_int_equal(report_pages(w.a, NULL, 0, false, false, &n, NULL), 0);
        assert_int_equal(n, 2);
        assert_int_equal(member_new(w.f.a, w.m->group->token, false, &other, NULL), 0);
        open_ns(other, "x");
        assert_int_equal(report_pages(w.a, NULL, 0, false, false, &n, NULL), -EBUSY);
        member_free(other);
        end(&w);
}

/* Read-only clients: their magazine is emptied and stays so, and their submissions are refused. */
SHARED_SCENE(test_readers, 4)
{
        struct shm_submission freeing = {.op = SHM_OP_FREE, .tokens = 1};
        struct submit_result r;
        uint32_t cached, page;

        cached = publish_root(w, 1);
        page = lease_one(w);
        pin(w, page);
        refill(w, 2);
        assert_true(w->ns->clients.n_ready > 0);
        member_set_read_only(w->m, true);
        assert_int_equal(w->ns->clients.n_ready, 0);
        w->now_nsec += 1000000000;
        refill(w, 2);
        assert_int_equal(w->ns->clients.n_ready, 0);
        r = submit(w, publishing(page, 2, SHM_PUBLISH_ROOT));
        assert_true(r.completes && !r.violation);
        assert_int_equal(r.status, status_to_wire(-EACCES));
        r = submit(w, publishing(page, 3, SHM_PUBLISH_CHAIN)); /* the first one's fate */
        assert_int_equal(r.status, status_to_wire(-EACCES));
        freeing.pages[0] = page;
        r = submit(w, freeing);
        assert_int_equal(r.status, status_to_wire(-EACCES));
        assert_int_equal(w->ns->device.n_pages[PAGE_GRANTED], 1);
        assert_int_equal(seen(w, 1), cached);
        member_set_read_only(w->m, false);
        r = submit(w, publishing(page, 2, SHM_PUBLISH_ROOT));
        assert_int_equal(r.status, 0);
        refill(w, 2);
        assert_true(w->ns->clients.n_ready > 0);
}
