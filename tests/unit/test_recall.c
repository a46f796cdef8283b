/* Extent sets taken back from living clients (daemon/core/reclaim/recall.h): the way of a set, and
 * what clients are told. */
#include "daemon/core/clients/attach.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/requests/refill.h"
#include "daemon/core/requests/submit.h"
#include "daemon/core/reclaim/recall-work.h"
#include "tests/unit/recall-fixture.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/reclaim/room.h"
#include "tests/unit/alloc-fail.h"

/* ---- the way of a set ----------------------------------------------------------------------- */

RECALL_SCENE(test_unmapped_goes_at_once, 4)
{
        struct attach *a = enter(w->f.a, "n");

        cache_chain(a, 0, SET_PAGES + 2);
        assert_int_equal(n_sets(w), 2);
        assert_int_equal(recall_all(w), 2);
        assert_int_equal(w->n_work, 1);
        assert_int_equal(w->f.a->n_recalled, 2);
        assert_int_equal(work(w), RECALL_NOTHING);
        assert_int_equal(n_sets(w), 0);
        assert_int_equal(w->f.a->account.charged_bytes, 0);
        assert_int_equal(w->f.a->n_recalled, 0);
        assert_int_equal(w->f.a->recalled_bytes, 0);
        assert_int_equal(w->n_told, 0);
        assert_int_equal(recall_all(w), 0); /* nothing is left */
        assert_int_equal(w->n_work, 1);
}

RECALL_SCENE(test_cached_and_mapped, 4)
{
        struct attach *a = enter(w->f.a, "n");

        cache_chain(a, 0, 3);
        assert_int_equal(map_set(a, 0), 1);
        assert_int_equal(attach_unmapped(a, 0, &w->f.d), -EBUSY); /* not recalled */
        assert_int_equal(attach_unmapped(a, 1, &w->f.d), -ENOENT);
        assert_int_equal(attach_unmapped(a, UINT32_MAX, &w->f.d), -ENOENT);
        assert_int_equal(recall_all(w), 1);
        assert_int_equal(recall_all(w), 0); /* it is on its way */
        assert_int_equal(work(w), RECALL_SOON);
        assert_int_equal(count_hits(a, 0, 3), 0);
        assert_int_equal(w->n_told, 1); /* nothing was held: the one message says so */
        assert_told(w, 0, a, 0, true, TIMEOUT);
        assert_int_equal(n_sets(w), 1);
        assert_int_equal(map_set(a, 0), -ENOENT);
        assert_int_equal(work(w), RECALL_SOON);
        assert_int_equal(w->n_told, 1);
        unmap_set(w, a, 0);
        assert_int_equal(n_sets(w), 0);
        assert_int_equal(a->member->n_mapped_sets, 0);
        assert_int_equal(attach_unmapped(a, 0, &w->f.d), -ENOENT); /* twice */
        assert_int_equal(work(w), RECALL_NOTHING);
}

RECALL_SCENE(test_granted, 2)
{
        struct attach *a = enter(w->f.a, "n");
        uint32_t pages[3], more;

        assert_int_equal(lease_pages(a, 3, 1, pages, NULL), 0);
        assert_int_equal(map_set(a, 0), 1);
        assert_int_equal(recall_all(w), 1);
        assert_int_equal(work(w), RECALL_SOON);
        assert_int_equal(w->n_told, 1);
        assert_told(w, 0, a, 0, false, TIMEOUT);
        /* None of its five FREE pages is granted. */
        assert_int_equal(lease_pages(a, 1, 1, &more, NULL), 0);
        assert_int_equal(more / SET_PAGES, 1);
        fixture_check(&w->f);
        assert_int_equal(attach_unmapped(a, 0, &w->f.d), -EBUSY);
        give_back(w, a, pages, 2);
        assert_int_equal(attach_unmapped(a, 0, &w->f.d), -EBUSY);
        w->n_work = 0;
        w->now_nsec += 30 * MSEC;
        give_back(w, a, pages + 2, 1);
        assert_int_equal(w->n_work, 1); /* wants to be told at once */
        assert_int_equal(recall_work(&w->f.store, w->now_nsec, TIMEOUT, PLENTY), RECALL_SOON);
        assert_int_equal(w->n_told, 2);
        assert_told(w, 1, a, 0, true, TIMEOUT); /* a time of its own */
        unmap_set(w, a, 0);
        give_back(w, a, &more, 1);
        assert_int_equal(n_sets(w), 0);
}

/* Withheld pages aren't available: nothing is evicted for a lease that would need them. */
RECALL_SCENE(test_lease_out_of_reach, 2)
{
        struct attach *a = enter(w->f.a, "n");
        uint32_t pages[SET_PAGES + 1], page;

        assert_int_equal(lease_pages(a, 1, 1, &page, NULL), 0);
        assert_int_equal(recall_all(w), 1);
        assert_int_equal(work(w), RECALL_SOON);
        cache_chain(a, 0, SET_PAGES);
        assert_int_equal(lease_pages(a, SET_PAGES + 1, 1, pages, NULL), KVL_STATUS_FULL);
        assert_int_equal(count_hits(a, 0, SET_PAGES), SET_PAGES);
        assert_int_equal(lease_pages(a, SET_PAGES, 1, pages, NULL), 0);
}

/* A lease that only the withheld pages could serve is refused, and nothing is granted of them. */
RECALL_SCENE(test_no_room_in_recalled_sets, 1)
{
        struct attach *a = enter(w->f.a, "n");
        uint32_t pages[SET_PAGES], page;

        assert_int_equal(lease_pages(a, 1, 1, &page, NULL), 0);
        assert_int_equal(map_set(a, 0), 1);
        assert_int_equal(recall_all(w), 1);
        assert_int_equal(lease_pages(a, 1, 1, pages, NULL), KVL_STATUS_FULL);
        fixture_check(&w->f);
        assert_int_equal(work(w), RECALL_SOON);
        assert_int_equal(lease_pages(a, 1, 1, pages, NULL), KVL_STATUS_FULL);
        give_back(w, a, &page, 1);
        assert_int_equal(lease_pages(a, 1, 1, pages, NULL), KVL_STATUS_FULL);
        unmap_set(w, a, 0);
        assert_int_equal(lease_pages(a, SET_PAGES, 1, pages, NULL), 0);
}

TEST(test_pinned_over_the_socket)
{
        struct world w;
        struct member *m;
        struct attach *a;
        uint32_t pages[3];

        start(&w, 2);
        m = join(w.f.a);
        a = open_ns(m, "n");
        publish_chain(a, 0, 3, pages);
        assert_int_equal(map_set(a, 0), 1);
        assert_int_equal(recall_all(&w), 1);
        assert_int_equal(work(&w), RECALL_SOON);
        assert_told(&w, 0, a, 0, false, TIMEOUT);
        assert_int_equal(ns_page(a->ns, pages[1])->state, PAGE_DETACHED);
        assert_int_equal(count_hits(a, 0, 3), 0);
        assert_int_equal(release_pages(a, pages, 3, 1, NULL), 0);
        fixture_check(&w.f);
        assert_int_equal(work(&w), RECALL_SOON);
        assert_told(&w, 1, a, 0, true, TIMEOUT);
        unmap_set(&w, a, 0);
        assert_int_equal(n_sets(&w), 0);
        member_free(m);
        recall_end(&w);
}

/* A pin in a segment ends without a message: it is polled for. */
TEST(test_pinned_in_a_segment)
{
        struct world w;
        struct member *m;
        struct attach *a;
        uint32_t pages[3];

        start(&w, 2);
        m = join(w.f.a);
        a = open_ns(m, "n");
        assert_int_equal(attach_share(a, NULL), 0);
        publish_chain(a, 0, 3, pages);
        a->share.counters[pages[2]]++;
        assert_int_equal(release_pages(a, pages, 3, 1, NULL), 0);
        assert_int_equal(map_set(a, 0), 1);
        assert_int_equal(recall_all(&w), 1);
        assert_int_equal(work(&w), RECALL_SOON);
        assert_told(&w, 0, a, 0, false, TIMEOUT);
        assert_int_equal(ns_page(a->ns, pages[0])->state, PAGE_FREE);
        assert_int_equal(ns_page(a->ns, pages[2])->state, PAGE_DETACHED);
        a->share.counters[pages[2]]--;
        assert_int_equal(work(&w), RECALL_SOON);
        assert_int_equal(w.n_told, 2);
        assert_told(&w, 1, a, 0, true, TIMEOUT);
        unmap_set(&w, a, 0);
        member_free(m);
        recall_end(&w);
}

/* A lease finds out itself that what was pinned in the way is so no longer: the set goes for it. */
TEST(test_lease_when_the_last_pin_went)
{
        uint32_t pages[SET_PAGES], page;
        struct world w;
        struct member *m;
        struct attach *a;

        start(&w, 1);
        m = join(w.f.a);
        a = open_ns(m, "n");
        assert_int_equal(attach_share(a, NULL), 0);
        publish_chain(a, 0, 1, &page);
        a->share.counters[page]++;
        assert_int_equal(release_pages(a, &page, 1, 1, NULL), 0);
        assert_int_equal(recall_all(&w), 1);
        assert_int_equal(work(&w), RECALL_SOON);
        assert_int_equal(ns_page(a->ns, page)->state, PAGE_DETACHED);
        assert_int_equal(lease_pages(a, SET_PAGES, 1, pages, NULL), KVL_STATUS_FULL);
        a->share.counters[page]--;
        assert_int_equal(lease_pages(a, SET_PAGES, 1, pages, NULL), 0);
        fixture_check(&w.f);
        member_free(m);
        recall_end(&w);
}

/* Published after the recall: sealed, but not to be found, and so with what follows it. */
RECALL_SCENE(test_publish_into_a_recalled_set, 2)
{
        struct attach *a = enter(w->f.a, "n");
        uint8_t keys[3 * KEY_BYTES];
        uint32_t pages[3], sealed[3], n;
        struct publish p = {.pages = pages, .keys = keys, .n = 3, .last_tokens = PAGE_TOKENS};

        assert_int_equal(lease_pages(a, 2, 1, pages, NULL), 0);
        assert_int_equal(recall_all(w), 1);
        assert_int_equal(work(w), RECALL_SOON);
        assert_int_equal(lease_pages(a, 1, 1, &pages[2], NULL), 0); /* of another set */
        make_keys(keys, 0, 3);
        assert_int_equal(publish_pages(a, &p, 1, sealed, &n, NULL), 0);
        assert_int_equal(n, 3);
        fixture_check(&w->f);
        assert_int_equal(count_hits(a, 0, 3), 0);
        assert_int_equal(release_pages(a, pages, 3, 1, NULL), 0);
        fixture_check(&w->f);
        assert_int_equal(n_sets(w), 0); /* not mapped: gone with the last pin */
        assert_int_equal(work(w), RECALL_NOTHING);
}

RECALL_SCENE(test_publish_shared_into_a_recalled_set, 2)
{
        struct attach *a = enter(w->f.a, "n");
        struct submit_chain chain = {0};
        struct submit_result result;
        struct shm_submission s = {
                .op = SHM_OP_PUBLISH, .flags = SHM_PUBLISH_ROOT, .tokens = PAGE_TOKENS};

        assert_int_equal(attach_share(a, NULL), 0);
        assert_int_equal(lease_pages(a, 1, 1, &s.page, NULL), 0);
        assert_int_equal(recall_all(w), 1);
        assert_int_equal(work(w), RECALL_SOON);
        a->share.counters[s.page]++;
        s.ns_id = a->id;
        make_keys(s.key, 0, 1);
        submit_one(a->member, &chain, &s, 2, &result);
        assert_null(result.violation);
        assert_int_equal(result.status, 0);
        assert_int_equal(work(w), RECALL_SOON);
        assert_int_equal(n_sets(w), 1);
        a->share.counters[s.page]--;
        assert_int_equal(work(w), RECALL_NOTHING);
        assert_int_equal(n_sets(w), 0);
}

/* Unclaimed pages are taken back at once, also of a set that isn't recalled. Claimed ones stay
 * held. */
RECALL_SCENE(test_magazine, 4)
{
        struct attach *a = enter(w->f.a, "n");
        uint32_t page = PAGE_NONE, slot = 0, n;

        assert_int_equal(attach_share(a, NULL), 0);
        assert_true(magazine_refill(a, 2, 1));
        n = a->magazine->n_pages;
        assert_true(n >= 2);
        while (a->magazine->pages[slot] == 0)
                slot++;
        page = atomic_exchange(&a->share.magazine[slot], 0) - 1;
        assert_int_equal(map_set(a, page / SET_PAGES), 1);
        assert_int_equal(recall_all(w), 1);
        assert_int_equal(a->magazine->n_pages, 0);
        assert_int_equal(a->ns->device.n_pages[PAGE_GRANTED], 1);
        assert_int_equal(work(w), RECALL_SOON);
        assert_told(w, 0, a, page / SET_PAGES, false, TIMEOUT);
        /* Refilled from elsewhere. */
        assert_true(magazine_refill(a, 2, 2));
        fixture_check(&w->f);
        for (slot = 0; slot < SHM_MAGAZINE_SLOTS; slot++)
                if (a->magazine->pages[slot] != 0)
                        assert_int_not_equal(
                                (a->magazine->pages[slot] - 1) / SET_PAGES, page / SET_PAGES);
        n = a->magazine->n_pages;
        assert_true(n > 0);
        assert_int_equal(recall_sets(w->f.a, NULL, 1, 0), 1);
        assert_int_equal(a->magazine->n_pages, 0);
        give_back(w, a, &page, 1);
        unmap_set(w, a, page / SET_PAGES);
        assert_int_equal(n_sets(w), 0);
}

/* Only what lies in a recalled set is taken back. */
RECALL_SCENE(test_magazine_elsewhere, 8)
{
        struct attach *a = enter(w->f.a, "n");
        struct attach *b;

        b = open_ns(a->member, "other");
        assert_int_equal(attach_share(a, NULL), 0);
        assert_true(magazine_refill(a, 4, 1));
        cache_chain(b, 0, 1);
        assert_int_equal(recall_sets(w->f.a, b->ns, UINT64_MAX, 0), 1);
        assert_true(a->magazine->n_pages >= 4);
        assert_int_equal(work(w), RECALL_NOTHING);
        assert_int_equal(n_sets(w), 1);
}

/* A namespace with two sets; all but the first page of the first is granted, the magazine has that
 * one and pages of the second. */
TEST(test_magazine_of_two_sets)
{
        struct world w;
        struct member *m;
        struct attach *a;
        uint32_t pages[SET_PAGES - 1], n;

        start(&w, 8);
        m = join(w.f.a);
        a = open_ns(m, "n");
        assert_int_equal(attach_share(a, NULL), 0);
        assert_int_equal(lease_pages(a, SET_PAGES - 1, 1, pages, NULL), 0);
        assert_true(magazine_refill(a, 4, 1));
        n = a->magazine->n_pages;
        assert_true(n >= 4);
        assert_int_equal(map_set(a, 1), 1);
        assert_int_equal(recall_sets(w.f.a, NULL, 1, 0), 1);
        assert_int_equal(a->ns->sets.at[0]->recall.state, RECALL_ASKED);
        assert_int_equal(a->magazine->n_pages, n - 1);
        fixture_check(&w.f);
        member_free(m);
        recall_end(&w);
}

/* Descendants of its pages leave the cache, too, in any set. */
RECALL_SCENE(test_descendants_elsewhere, 4)
{
        struct attach *a = enter(w->f.a, "n");

        cache_chain(a, 0, SET_PAGES + 4); /* sets 0 and 1 */
        assert_int_equal(map_set(a, 1), 1);
        assert_int_equal(recall_sets(w->f.a, NULL, 1, 0), 1); /* set 0: not mapped */
        assert_int_equal(w->f.store.counters.evictions, 0);
        assert_int_equal(work(w), RECALL_NOTHING);
        assert_int_equal(w->f.store.counters.evictions, SET_PAGES + 4);
        assert_int_equal(n_sets(w), 1);
}

/* ---- clients -------------------------------------------------------------------------------- */

RECALL_SCENE(test_two_clients, 2)
{
        struct attach *a = enter(w->f.a, "n");
        struct attach *b = enter(w->f.a, "n");
        uint32_t page;

        assert_int_equal(lease_pages(a, 1, 1, &page, NULL), 0);
        assert_int_equal(map_set(a, 0), 1);
        assert_int_equal(map_set(b, 0), 1);
        assert_int_equal(recall_all(w), 1);
        assert_int_equal(work(w), RECALL_SOON);
        assert_int_equal(w->n_told, 2);
        assert_told(w, 0, a, 0, false, TIMEOUT);
        assert_told(w, 1, b, 0, false, TIMEOUT);
        give_back(w, a, &page, 1);
        assert_int_equal(work(w), RECALL_SOON);
        assert_int_equal(w->n_told, 4);
        unmap_set(w, a, 0);
        assert_int_equal(attach_unmapped(a, 0, &w->f.d), -ENOENT);
        assert_int_equal(n_sets(w), 1);
        unmap_set(w, b, 0);
        assert_int_equal(n_sets(w), 0);
}

/* A client that dies releases everything. */
RECALL_SCENE(test_one_dies, 2)
{
        struct member *m, *other;
        struct attach *a, *b;
        uint32_t page;

        m = join(w->f.a);
        other = join(w->f.a);
        a = open_ns(m, "n");
        b = open_ns(other, "n");
        assert_int_equal(lease_pages(a, 1, 1, &page, NULL), 0);
        assert_int_equal(map_set(a, 0), 1);
        assert_int_equal(map_set(b, 0), 1);
        assert_int_equal(recall_all(w), 1);
        assert_int_equal(work(w), RECALL_SOON);
        member_free(m);
        fixture_check(&w->f);
        assert_int_equal(work(w), RECALL_SOON);
        assert_int_equal(w->n_told, 3);
        assert_told(w, 2, b, 0, true, TIMEOUT);
        member_free(other);
        fixture_check(&w->f);
        assert_int_equal(n_sets(w), 0);
        assert_int_equal(work(w), RECALL_NOTHING);
}

/* A scheduler that maps nothing holds the pages, a worker of its group has them mapped; another
 * client has the namespace open and nothing of the set. */
RECALL_SCENE(test_holder_without_mapping, 2)
{
        struct member *m, *worker;
        struct attach *a, *b, *c;
        uint32_t pages[2];

        m = join(w->f.a);
        worker = join_group(w->f.a, m);
        a = open_ns(m, "n");
        b = open_ns(worker, "n");
        c = enter(w->f.a, "n");
        publish_chain(a, 0, 2, pages);
        assert_int_equal(map_set(b, 0), 1);
        assert_int_equal(recall_all(w), 1);
        assert_int_equal(work(w), RECALL_SOON);
        assert_int_equal(work(w), RECALL_SOON);
        assert_int_equal(w->n_told, 2);
        assert_told(w, 0, a, 0, false, TIMEOUT);
        assert_told(w, 1, b, 0, false, TIMEOUT);
        /* The first client is late, the worker that waits for it isn't. */
        assert_int_equal(work_later(w, TIMEOUT), RECALL_LATER);
        assert_int_equal(w->n_late, 1);
        assert_ptr_equal(w->late[0], a);
        assert_int_equal(worker->n_quarantined_sets, 0);
        assert_int_equal(release_pages(a, pages, 2, 1, NULL), 0);
        assert_int_equal(work(w), RECALL_LATER);
        assert_int_equal(w->n_told, 3);
        assert_told(w, 2, b, 0, true, TIMEOUT);
        unmap_set(w, b, 0);
        assert_int_equal(n_sets(w), 0);
        assert_ptr_equal(c->ns, a->ns);
}

/* One that pins in its segment what it hasn't mapped is told, once, while another can't be. */
RECALL_SCENE(test_holder_in_a_segment, 2)
{
        struct attach *a = enter(w->f.a, "n");
        struct attach *b = enter(w->f.a, "n");
        uint32_t page;

        assert_int_equal(attach_share(a, NULL), 0);
        publish_chain(b, 0, 1, &page);
        a->share.counters[page]++;
        assert_int_equal(release_pages(b, &page, 1, 1, NULL), 0);
        assert_int_equal(map_set(b, 0), 1);
        w->busy = b;
        assert_int_equal(recall_all(w), 1);
        assert_int_equal(work(w), RECALL_SOON);
        assert_int_equal(work(w), RECALL_SOON);
        assert_int_equal(w->n_told, 1);
        assert_told(w, 0, a, 0, false, TIMEOUT);
        assert_int_equal(work_later(w, TIMEOUT), RECALL_LATER);
        assert_int_equal(w->n_late, 1);
        assert_ptr_equal(w->late[0], a);
        a->share.counters[page]--;
}

RECALL_SCENE(test_mapped_late, 2)
{
        struct attach *a = enter(w->f.a, "n");
        uint32_t page;

        assert_int_equal(lease_pages(a, 1, 1, &page, NULL), 0);
        assert_int_equal(recall_all(w), 1);
        assert_int_equal(work(w), RECALL_SOON);
        assert_int_equal(w->n_told, 1); /* as its holder */
        assert_int_equal(map_set(a, 0), 1);
        fixture_check(&w->f);
        assert_int_equal(work_later(w, 10 * MSEC), RECALL_SOON);
        assert_int_equal(w->n_told, 2);
        assert_told(w, 1, a, 0, false, TIMEOUT - 10 * MSEC);
        give_back(w, a, &page, 1);
        unmap_set(w, a, 0);
}

/* One that doesn't read is told when it does, and others don't wait for it. */
RECALL_SCENE(test_busy_client, 2)
{
        struct attach *a = enter(w->f.a, "n");
        struct attach *b = enter(w->f.a, "n");

        cache_chain(a, 0, 2);
        assert_int_equal(map_set(a, 0), 1);
        assert_int_equal(map_set(b, 0), 1);
        w->busy = a;
        assert_int_equal(recall_all(w), 1);
        assert_int_equal(work(w), RECALL_SOON);
        assert_int_equal(work(w), RECALL_SOON);
        assert_int_equal(w->n_told, 1);
        assert_told(w, 0, b, 0, true, TIMEOUT);
        w->busy = NULL;
        assert_int_equal(work_later(w, 5 * MSEC), RECALL_SOON);
        assert_int_equal(w->n_told, 2);
        assert_told(w, 1, a, 0, true, TIMEOUT - 5 * MSEC);
        assert_int_equal(work(w), RECALL_SOON);
        assert_int_equal(w->n_told, 2);
}

/* Recalls: deadlines, which sets and how many, and how much is done at a time. */

static void set_limit(struct world *w, unsigned sets)
{
        struct tenant_attrs attrs = w->f.a->attrs;

        attrs.limit_bytes = sets * SET_BYTES;
        assert_int_equal(tenant_set_attrs(w->f.a, &attrs, NULL), 0);
        fixture_check(&w->f);
}

/* ---- deadlines ------------------------------------------------------------------------------ */

RECALL_SCENE(test_quarantine, 1)
{
        struct attach *a = enter(w->f.a, "n");
        uint32_t page, more;

        assert_int_equal(lease_pages(a, 1, 1, &page, NULL), 0);
        assert_int_equal(map_set(a, 0), 1);
        assert_int_equal(recall_sets(w->f.a, NULL, UINT64_MAX, 40 * MSEC), 1);
        assert_int_equal(work(w), RECALL_SOON);
        assert_told(w, 0, a, 0, false, 40 * MSEC);
        assert_int_equal(work_later(w, 40 * MSEC - 1), RECALL_SOON);
        assert_int_equal(w->n_late, 0);
        assert_int_equal(work_later(w, 1), RECALL_LATER);
        assert_int_equal(w->n_late, 1);
        assert_ptr_equal(w->late[0], a);
        assert_int_equal(a->member->n_quarantined_sets, 1);
        assert_int_equal(w->f.store.recalls.n_quarantined, 1);
        /* The set is bound and charged, and its pages can't be leased. */
        assert_int_equal(w->f.a->account.charged_bytes, SET_BYTES);
        assert_int_equal(lease_pages(a, 1, 1, &more, NULL), KVL_STATUS_FULL);
        assert_int_equal(work_later(w, 10 * TIMEOUT), RECALL_LATER);
        assert_int_equal(w->n_late, 1); /* told once */
        /* Idle at last: time to unmap it, and late again after that. */
        give_back(w, a, &page, 1);
        assert_int_equal(work(w), RECALL_LATER);
        assert_told(w, 1, a, 0, true, 40 * MSEC);
        assert_int_equal(work_later(w, 40 * MSEC - 1), RECALL_LATER);
        assert_int_equal(w->n_late, 1);
        assert_int_equal(work_later(w, 1), RECALL_WAITS);
        assert_int_equal(w->n_late, 2);
        assert_int_equal(a->member->n_quarantined_sets, 1);
        unmap_set(w, a, 0);
        assert_int_equal(a->member->n_quarantined_sets, 0);
        assert_int_equal(n_sets(w), 0);
        assert_int_equal(w->f.store.recalls.n_quarantined, 0);
        assert_int_equal(work(w), RECALL_NOTHING);
        assert_int_equal(lease_pages(a, 1, 1, &page, NULL), 0);
}

/* A limit that was lowered and raised again: what wasn't given back isn't to be had, and no lease
 * waits for it. */
RECALL_SCENE(test_quarantine_is_no_room, 4)
{
        uint32_t pages[2 * SET_PAGES];
        struct attach *a;

        set_limit(w, 2);
        a = enter(w->f.a, "n");
        assert_int_equal(lease_pages(a, 2 * SET_PAGES, 1, pages, NULL), 0);
        assert_int_equal(map_set(a, 0), 1);
        assert_int_equal(map_set(a, 1), 1);
        set_limit(w, 1);
        (void)work(w);
        set_limit(w, 2);
        assert_int_equal(room_check(a->ns, 2 * SET_PAGES, &w->f.d), 0);
        (void)work_later(w, TIMEOUT);
        assert_int_equal(a->member->n_quarantined_sets, 1);
        assert_int_equal(room_check(a->ns, SET_PAGES, &w->f.d), 0);
        assert_int_equal(room_check(a->ns, SET_PAGES + 1, &w->f.d), KVL_STATUS_QUOTA);
        assert_non_null(strstr(w->f.d.text, "while processes keep 1 KiB that they were told"));
        assert_non_null(strstr(w->f.d.text, "tenants set a limit=3KiB"));
        /* Below what is kept the other set is there all the same. */
        set_limit(w, 1);
        assert_int_equal(room_check(a->ns, SET_PAGES, &w->f.d), 0);
        set_limit(w, 3);
        assert_int_equal(room_check(a->ns, 2 * SET_PAGES, &w->f.d), 0);
}

RECALL_SCENE(test_quarantine_ends_with_its_client, 1)
{
        struct member *m;
        struct attach *a;

        m = join(w->f.a);
        a = open_ns(m, "n");
        cache_chain(a, 0, 1);
        assert_int_equal(map_set(a, 0), 1);
        assert_int_equal(recall_all(w), 1);
        assert_int_equal(work(w), RECALL_SOON);
        assert_int_equal(work_later(w, TIMEOUT), RECALL_WAITS);
        assert_int_equal(w->n_late, 1);
        assert_int_equal(m->n_quarantined_sets, 1);
        member_free(m);
        fixture_check(&w->f);
        assert_int_equal(n_sets(w), 0);
        assert_int_equal(work(w), RECALL_NOTHING);
}

/* ---- which, and how many -------------------------------------------------------------------- */

/* Four sets: 0 mapped and full, 1 mapped with one page in use, 2 unmapped and held, 3 mapped with
 * two. */
TEST(test_order)
{
        struct world w;
        struct member *m;
        struct attach *a;
        uint32_t pages[4 * SET_PAGES];
        struct extent_set **sets;

        start(&w, 4);
        m = join(w.f.a);
        a = open_ns(m, "n");
        assert_int_equal(lease_pages(a, 4 * SET_PAGES, 1, pages, NULL), 0);
        assert_int_equal(map_set(a, 0), 1);
        assert_int_equal(map_set(a, 1), 1);
        assert_int_equal(map_set(a, 3), 1);
        for (unsigned i = 0; i < ARRAY_SIZE(pages); i++)
                if ((pages[i] / SET_PAGES == 1 && pages[i] % SET_PAGES > 0) ||
                        (pages[i] / SET_PAGES == 3 && pages[i] % SET_PAGES > 1))
                        give_back(&w, a, &pages[i], 1);
        sets = a->ns->sets.at;
        assert_int_equal(recall_sets(w.f.a, NULL, 1, 0), 1);
        assert_int_equal(sets[2]->recall.state, RECALL_ASKED);
        assert_int_equal(recall_sets(w.f.a, NULL, SET_BYTES, 0), 1);
        assert_int_equal(sets[1]->recall.state, RECALL_ASKED);
        assert_int_equal(sets[3]->recall.state, RECALL_NONE);
        assert_int_equal(recall_sets(w.f.a, NULL, SET_BYTES + 1, 0), 2);
        assert_int_equal(sets[3]->recall.state, RECALL_ASKED);
        assert_int_equal(sets[0]->recall.state, RECALL_ASKED);
        assert_int_equal(work(&w), RECALL_SOON);
        assert_int_equal(w.n_told, 4);
        member_free(m);
        recall_end(&w);
}

TEST(test_without_memory_to_sort)
{
        struct world w;
        struct member *m;
        struct attach *a;

        start(&w, 4);
        m = join(w.f.a);
        a = open_ns(m, "n");
        cache_chain(a, 0, 3 * SET_PAGES);
        assert_int_equal(map_set(a, 0), 1);
        alloc_fail_at(1);
        assert_int_equal(recall_sets(w.f.a, NULL, SET_BYTES + 1, 0), 2);
        assert_true(alloc_fail_end());
        assert_int_equal(a->ns->sets.at[0]->recall.state, RECALL_ASKED);
        assert_int_equal(a->ns->sets.at[1]->recall.state, RECALL_ASKED);
        assert_int_equal(a->ns->sets.at[2]->recall.state, RECALL_NONE);
        fixture_check(&w.f);
        assert_int_equal(work(&w), RECALL_SOON);
        member_free(m);
        recall_end(&w);
}

RECALL_SCENE(test_limit_lowered, 6)
{
        struct attach *a = enter(w->f.a, "n");

        cache_chain(a, 0, 5 * SET_PAGES);
        for (uint32_t i = 0; i < 4; i++)
                assert_int_equal(map_set(a, i), 1);
        set_limit(w, 5);
        assert_int_equal(w->f.a->n_recalled, 0);
        /* The unmapped one goes at once; of the four one is too many. */
        set_limit(w, 3);
        assert_int_equal(n_sets(w), 4);
        assert_int_equal(w->f.a->n_recalled, 1);
        set_limit(w, 3);
        assert_int_equal(w->f.a->n_recalled, 1); /* it is on its way */
        set_limit(w, 2);
        assert_int_equal(w->f.a->n_recalled, 2);
        /* No way back. */
        set_limit(w, 6);
        assert_int_equal(w->f.a->n_recalled, 2);
        assert_int_equal(work(w), RECALL_SOON);
        assert_int_equal(w->n_told, 2);
        for (unsigned i = 0; i < 2; i++)
                unmap_set(w, a, w->told[i].set);
        assert_int_equal(n_sets(w), 2);
}

/* Tenants can be dropped with what is recalled of them. */
RECALL_SCENE(test_namespace_goes, 4)
{
        struct member *m;
        struct attach *a;

        m = join(w->f.a);
        a = open_ns(m, "n");
        cache_chain(a, 0, 2 * SET_PAGES);
        member_free(m);
        assert_int_equal(recall_all(w), 2);
        assert_int_equal(tenant_remove(w->f.a, true, NULL), 0);
        assert_int_equal(work(w), RECALL_NOTHING);
}

/* No step does more than its budget, however much there is; all is done in the end. */
TEST(test_bounded_steps)
{
        enum { N = 32, BUDGET = 40 };
        struct world w;
        struct member *m;
        struct attach *a;
        enum recall_next next;
        unsigned n_steps = 0;

        start(&w, N);
        m = join(w.f.a);
        a = open_ns(m, "n");
        for (unsigned i = 0; i < N * SET_PAGES / 64; i++)
                cache_chain(a, i * 64, 64);
        assert_int_equal(n_sets(&w), N);
        for (uint32_t i = 0; i < N; i += 2)
                assert_int_equal(map_set(a, i), 1);
        assert_int_equal(recall_all(&w), N);
        do {
                uint64_t evictions = w.f.store.counters.evictions;
                unsigned n_told = w.n_told;

                next = recall_work(&w.f.store, w.now_nsec, TIMEOUT, BUDGET);
                fixture_check(&w.f);
                assert_true(w.f.store.counters.evictions - evictions <= BUDGET);
                assert_true(w.n_told - n_told <= BUDGET / RECALL_TELL_COST + 1);
                n_steps++;
        } while (next == RECALL_MORE);
        assert_int_equal(next, RECALL_SOON);
        assert_true(n_steps >= N * SET_PAGES / BUDGET);
        assert_int_equal(w.f.store.counters.evictions, N * SET_PAGES);
        assert_int_equal(n_sets(&w), N / 2);
        assert_int_equal(w.n_told, N / 2);
        /* A round has an end where there is nothing to do. */
        recall_poll(&w.f.store);
        for (n_steps = 0; recall_work(&w.f.store, w.now_nsec, TIMEOUT, BUDGET) == RECALL_MORE;)
                assert_true(n_steps++ < N);
        member_free(m);
        recall_end(&w);
}

/* Records are looked at and there is nothing to drop. */
TEST(test_bounded_steps_held)
{
        enum { N = 16, BUDGET = 1 + SET_PAGES / 2 };
        uint32_t pages[N * SET_PAGES];
        struct world w;
        struct member *m;
        struct attach *a;
        unsigned n_steps = 1;

        start(&w, N);
        m = join(w.f.a);
        a = open_ns(m, "n");
        assert_int_equal(lease_pages(a, N * SET_PAGES, 1, pages, NULL), 0);
        assert_int_equal(recall_all(&w), N);
        while (recall_work(&w.f.store, w.now_nsec, TIMEOUT, BUDGET) == RECALL_MORE)
                n_steps++;
        /* A visit and half of the records, twice a set. */
        assert_int_equal(n_steps, 2 * N);
        assert_int_equal(w.n_told, N);
        member_free(m);
        recall_end(&w);
}

/* One set with a long chain below it, in sets that stay. */
TEST(test_bounded_steps_below)
{
        enum { N = 8, BUDGET = 10 };
        struct world w;
        struct member *m;
        struct attach *a;
        unsigned n_steps = 0;

        start(&w, N);
        m = join(w.f.a);
        a = open_ns(m, "n");
        cache_chain(a, 0, N * SET_PAGES);
        for (uint32_t i = 1; i < N; i++)
                assert_int_equal(map_set(a, i), 1);
        assert_int_equal(recall_sets(w.f.a, NULL, 1, 0), 1);
        for (enum recall_next next = RECALL_MORE; next == RECALL_MORE; n_steps++) {
                uint64_t evictions = w.f.store.counters.evictions;

                next = recall_work(&w.f.store, w.now_nsec, TIMEOUT, BUDGET);
                fixture_check(&w.f);
                assert_true(w.f.store.counters.evictions - evictions <= BUDGET);
        }
        assert_int_equal(w.f.store.counters.evictions, N * SET_PAGES);
        assert_true(n_steps >= N * SET_PAGES / BUDGET);
        assert_int_equal(n_sets(&w), N - 1);
        member_free(m);
        recall_end(&w);
}
