/* Extent sets taken back from living clients (daemon/core/reclaim/recall.h): the way of a set, and
 * what clients are told. */
#include "daemon/core/clients/attach.h"
#include "daemon/core/reclaim/recall.h"
#include "tests/unit/recall-fixture.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/reclaim/room.h"
#include "tests/unit/alloc-fail.h"

/* ---- clients -------------------------------------------------------------------------------- */

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
