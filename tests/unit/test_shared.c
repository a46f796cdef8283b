/* The daemon's half of the shared memory: the test plays the client, in its segments. */
#include <pthread.h>

#include "base/fd.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/cache/tag.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/clients/request.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/state/shared.h"
#include "tests/unit/session-fixture.h"
#include "tests/unit/shared-fixture.h"
#include "daemon/core/cache/lines.h"
#include "daemon/core/life/leave.h"

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
        assert_non_null(strstr(w->f.d.text,
                "(2 pages pinned, 0 granted, 1 KiB mapped by clients of its other namespaces)"));
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

static uint64_t ended_request, ended_as;

static void tell_ending(void *policy, uint64_t request, uint32_t ending)
{
        (void)policy;
        ended_request = request;
        ended_as = ending;
}

SHARED_SCENE(test_policy_learns_endings, 4)
{
        struct evict_ops ops = evict_lru;

        submit(w, (struct shm_submission){.op = SHM_OP_REQUEST_END, .request_id = 5, .aux = 7});
        ops.ending = tell_ending;
        w->ns->evict = &ops;
        submit(w, (struct shm_submission){.op = SHM_OP_REQUEST_END, .request_id = 5, .aux = 7});
        assert_int_equal(ended_as, 7);
        assert_int_equal(ended_request, request_id(w->a, 5));
        submit(w, (struct shm_submission){.op = SHM_OP_REQUEST_END, .aux = 8}); /* no request */
        assert_int_equal(ended_as, 7);
        w->ns->evict = &evict_lru;
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

/* ---- tags ----------------------------------------------------------------------------------- */

static uint64_t tag_of(const struct world *w, unsigned key)
{
        uint8_t bytes[KEY_BYTES];

        make_keys(bytes, key, 1);
        return ns_extra(w->ns, ns_find_page(w->ns, bytes))->tag;
}

static void with(struct world *w, uint32_t session, uint64_t tag)
{
        assert_false(submit(w,
                (struct shm_submission){.op = SHM_OP_WITH, .page = session, .with = {.tag = tag}})
                             .completes);
}

/* Publishes a page of an attachment, with the flags of the op. Returns the status. */
static uint32_t publish(struct world *w, struct attach *a, unsigned key, unsigned flags)
{
        struct shm_submission s = publishing(0, key, flags);
        struct submit_result result;

        s.ns_id = a->id;
        assert_int_equal(lease_pages(a, 1, 1, &s.page, NULL), 0);
        pins_add(&a->share, s.page);
        result = submit(w, s);
        assert_null(result.violation);
        atomic_fetch_sub(&a->share.counters[s.page], 1);
        if (result.status == 0)
                assert_int_equal(result.page, s.page);
        else
                assert_int_equal(free_pages(a, &s.page, 1, NULL), 0);
        return result.status;
}

/* The session and tag of SHM_OP_WITH hold for the PUBLISHes that follow directly. */
SHARED_SCENE(test_with, 4)
{
        struct shm_submission parent = {.op = SHM_OP_PARENT};
        struct attach *y;
        uint32_t s;

        y = open_ns(w->m, "y");
        assert_int_equal(attach_share(y, NULL), 0);
        s = open_session(w->a, "s");
        with(w, s, 5);
        assert_int_equal(publish(w, w->a, 0, SHM_PUBLISH_ROOT), 0);
        assert_int_equal(publish(w, w->a, 1, SHM_PUBLISH_CHAIN), 0);
        make_keys(parent.key, 0, 1);
        assert_false(submit(w, parent).completes);
        assert_int_equal(publish(w, w->a, 2, SHM_PUBLISH_CHAIN), 0);
        expect_pages(w->a, s, "0@0 2@1");
        assert_true(tag_of(w, 0) == 5 && tag_of(w, 1) == 5 && tag_of(w, 2) == 5);
        /* Up to anything else, a WITH that says nothing, or another namespace. */
        (void)submit(w, (struct shm_submission){.op = SHM_OP_REQUEST_END});
        assert_int_equal(publish(w, w->a, 3, SHM_PUBLISH_ROOT), 0);
        assert_int_equal(tag_of(w, 3), 0);
        with(w, s, 5);
        with(w, 0, 0);
        assert_int_equal(publish(w, w->a, 4, SHM_PUBLISH_ROOT), 0);
        assert_int_equal(tag_of(w, 4), 0);
        with(w, s, 5);
        assert_int_equal(publish(w, y, 5, SHM_PUBLISH_ROOT), 0);
        assert_int_equal(publish(w, w->a, 6, SHM_PUBLISH_ROOT), 0);
        assert_int_equal(tag_of(w, 6), 0);
        expect_pages(w->a, s, "0@0 2@1");
        /* A WITH breaks a chain like any other submission. */
        with(w, s, 0);
        assert_int_equal(
                publish(w, w->a, 7, SHM_PUBLISH_CHAIN), status_to_wire(KVL_STATUS_NO_PARENT));
}

/* A repeated request, which the previous daemon may have executed: the page has the tag. */
SHARED_SCENE(test_published_again, 4)
{
        uint32_t pages[2], sealed[2], n;
        uint8_t keys[2 * KEY_BYTES];
        struct publish p = {
                .pages = pages, .keys = keys, .n = 2, .last_tokens = PAGE_TOKENS, .tag = 5};
        uint64_t n_dropped;

        make_keys(keys, 0, 2);
        assert_int_equal(lease_pages(w->a, 2, 1, pages, NULL), 0);
        assert_int_equal(publish_pages(w->a, &p, 1, sealed, &n, NULL), 0);
        w->m->repeats = true;
        for (unsigned i = 0; i < 2; i++)
                tag_remove(w->ns, pages[i]); /* the previous daemon ended before the tag */
        assert_int_equal(publish_pages(w->a, &p, 1, sealed, &n, NULL), 0);
        assert_true(tag_of(w, 0) == 5 && tag_of(w, 1) == 5);
        fixture_check(&w->f);
        /* Nor does a list get a page that was invalidated since. */
        assert_int_equal(ns_invalidate(w->ns, CAUSE_NAMESPACE, &n_dropped), 0);
        assert_int_equal(n_dropped, 2);
        for (unsigned i = 0; i < 2; i++)
                tag_store(w->ns, pages[i], 0); /* as recovery leaves it */
        assert_int_equal(publish_pages(w->a, &p, 1, sealed, &n, NULL), 0);
        assert_int_equal(invalidate_tag(w->a, 5, &n_dropped, NULL), 0);
        assert_int_equal(n_dropped, 0);
        assert_int_equal(release_pages(w->a, sealed, 2, 1, NULL), 0);
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
        assert_true(magazine_sync(w->a));
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

SHARED_SCENE(test_magazine_that_was_written_into, 16)
{
        uint32_t slot = 0;

        refill(w, 1);
        while (w->a->magazine->pages[slot] == 0)
                slot++;
        w->a->share.magazine[slot] = 12345;
        assert_false(magazine_sync(w->a)); /* told once */
        assert_true(magazine_sync(w->a));
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
        idle_sets_drain(&w->f.store);
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

/* The index of a namespace where many keys want the same buckets (daemon/core/state/shared.h). */

static uint32_t bucket_of(const struct world *w, unsigned key, uint32_t n)
{
        uint8_t bytes[KEY_BYTES];

        make_keys(bytes, key, 1);
        return shm_bucket_index(shared_hash(&w->ns->shared, bytes), w->ns->shared.n_buckets, n);
}

/* The next key from *next on whose home it is. */
static unsigned find_key(const struct world *w, unsigned *next, uint32_t home)
{
        while (bucket_of(w, *next, 0) != home)
                (*next)++;
        return (*next)++;
}

static uint32_t bucket_with(const struct world *w, uint32_t page)
{
        const struct shared *s = &w->ns->shared;

        for (uint32_t i = 0; i < s->n_buckets * SHM_BUCKET_SLOTS; i++)
                if ((uint32_t)s->buckets[i / SHM_BUCKET_SLOTS].slots[i % SHM_BUCKET_SLOTS] ==
                        page + 1)
                        return i / SHM_BUCKET_SLOTS;
        return UINT32_MAX;
}

static unsigned count_used(const struct world *w, uint32_t bucket)
{
        unsigned n = 0;

        for (uint32_t i = 0; i < SHM_BUCKET_SLOTS; i++)
                n += w->ns->shared.buckets[bucket].slots[i] != 0;
        return n;
}

#define HALF     (SHM_BUCKET_SLOTS / 2)
#define MAX_KEYS (9 * HALF)
#define N_SETS   5 /* for one page more */

struct keys {
        unsigned keys[MAX_KEYS], n, next;
        uint32_t pages[MAX_KEYS];
};

/* Publishes so many keys with that home. All that were before are seen, too. */
static void publish_at(struct world *w, struct keys *k, uint32_t home, unsigned n)
{
        while (n-- > 0) {
                k->keys[k->n] = find_key(w, &k->next, home);
                k->pages[k->n] = publish_root(w, k->keys[k->n]);
                k->n++;
                for (unsigned i = 0; i < k->n; i++)
                        assert_int_equal(seen(w, k->keys[i]), k->pages[i]);
        }
}

/*
 * The buckets 1 to 4 are full: 1 of its own keys; 2 and 4 of their own and of those of 1 and 3; 3
 * of its own. The next key of 1 goes to 2, one of 2 to 3, one of 3 to 4, one of 4 to 5, until 2 has
 * none of its own any more.
 */
TEST(test_full_buckets_make_room)
{
        struct keys k = {.next = 1};
        struct world w;
        uint64_t n_pages;
        uint32_t page;

        start(&w, N_SETS);
        publish_at(&w, &k, 2, HALF);
        publish_at(&w, &k, 4, HALF);
        publish_at(&w, &k, 3, 3 * HALF);
        publish_at(&w, &k, 1, 3 * HALF);
        for (uint32_t b = 1; b <= 4; b++)
                assert_int_equal(count_used(&w, b), SHM_BUCKET_SLOTS);
        for (unsigned i = 0; i < HALF; i++) {
                assert_int_equal(bucket_with(&w, k.pages[i]), 2);
                assert_int_equal(bucket_with(&w, k.pages[HALF + i]), 4);
        }
        publish_at(&w, &k, 1, HALF);
        for (unsigned i = 0; i < HALF; i++) {
                assert_int_equal(bucket_with(&w, k.pages[i]), 3);
                assert_int_equal(bucket_with(&w, k.pages[HALF + i]), 5);
        }
        assert_int_equal(w.f.store.counters.unindexed, 0);
        /* Where a client wants more than there is: that key isn't found, all others are. */
        page = publish_root(&w, find_key(&w, &k.next, 1));
        assert_int_equal(w.f.store.counters.unindexed, 1);
        assert_int_equal(ns_page(w.ns, page)->state, PAGE_DETACHED);
        for (unsigned i = 0; i < k.n; i++)
                assert_int_equal(seen(&w, k.keys[i]), k.pages[i]);
        fixture_check(&w.f);
        /* Moved entries are removed like all others. */
        unpin(&w, page);
        for (unsigned i = 0; i < k.n; i++)
                unpin(&w, k.pages[i]);
        assert_int_equal(ns_invalidate(w.ns, CAUSE_NAMESPACE, &n_pages), 0);
        end(&w);
}

/* Cache lines that are asked for ahead (daemon/core/cache/lines.h): of which pages, and that any
 * numbers may be given. */

#define N_TEXT 20u

/* The n-th call asks for what lies so far up, `most` at last. */
static uint32_t up(uint32_t n, uint32_t most, uint32_t victim)
{
        uint32_t there = MIN(n + 1, most);

        return victim - MIN(there, victim);
}

/* From the end of a text to its beginning, as evictions go: one page further ahead each time, until
 * that is 8 pages, or the beginning. */
SHARED_SCENE(test_up_a_text, 4)
{
        struct lines_ahead ahead = {0};
        uint32_t pages[N_TEXT];

        publish_chain(w->a, 1, N_TEXT, pages);
        for (uint32_t n = 1; n <= N_TEXT; n++) {
                uint32_t victim = N_TEXT - n;

                lines_prefetch_victims(&ahead, w->ns, pages[victim]);
                assert_int_equal(ahead.next, victim > 0 ? pages[victim - 1] : NODE_NONE);
                assert_int_equal(ahead.page, pages[up(n, 8, victim)]);
                assert_int_equal(ahead.key, pages[up(n, 4, victim)]);
        }
}

/* The prefetch reads clients' submissions unchecked. */
SHARED_SCENE(test_rubbish, 1)
{
        struct shm_submission s[] = {publishing(0, 1, SHM_PUBLISH_ROOT),
                publishing(UINT32_MAX, 2, SHM_PUBLISH_ROOT),
                publishing(UINT32_MAX - 1, 3, SHM_PUBLISH_CHAIN), {.op = UINT8_MAX},
                publishing(1, 4, SHM_PUBLISH_CHAIN)};

        for (size_t i = 0; i < ARRAY_SIZE(s); i++)
                s[i].ns_id = i == 0 ? 12345 : w->a->id;
        s[4].page = w->ns->geometry.capacity_pages;
        submit_prefetch(w->m, s, ARRAY_SIZE(s));
        attach_close(w->a);
        submit_prefetch(w->m, s, ARRAY_SIZE(s));
}
