/* Compaction on a device behind a queue: what happens to a page while it is copied. */
#include <poll.h>

#include "base/clock.h"
#include "base/fd.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/core.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/reclaim/recall-work.h"
#include "gpu/queue.h"
#include "tests/unit/compact-fixture.h"

#define PATIENT_MSEC  60000 /* a deadline of the driver that no test reaches */
#define HASTY_MSEC    1000  /* one that nothing but a blocked call reaches */
#define PATIENCE_MSEC 10000

static void start_slow(struct world *w, unsigned deadline_msec, unsigned n_sets)
{
        struct tenant_attrs attrs = {
                .limit_bytes = n_sets * SET_BYTES, .weight = 1, .priority = 50, .max_clients = 8};
        struct queue *queue;

        *w = (struct world){.now_nsec = LATER};
        fake_device_init(&w->f.device, "slow", 256);
        fake_device_make_slow(&w->f.device, true);
        store_init(&w->f.store, &evict_lru);
        w->f.store.min_page_bytes = PAGE_BYTES;
        assert_int_equal(queue_open_device(&w->f.device.device, deadline_msec, &queue), 0);
        assert_int_equal(
                store_add_queue(&w->f.store, queue, n_sets * SET_BYTES, SET_BYTES, &w->f.d), 0);
        assert_int_equal(tenant_new(&w->f.store, "a", &attrs, &w->f.a, &w->f.d), 0);
        w->f.store.owner.on_recall = note_told;
        w->f.store.owner.on_recall_work = note_work;
        w->f.store.owner.data = w;
}

static struct pool *pool_of(struct world *w)
{
        return store_find_pool(&w->f.store, "");
}

/* Waits until jobs with a waiting request end. */
static void reap(struct world *w)
{
        uint64_t end_nsec = clock_now_nsec() + PATIENCE_MSEC * NSEC_PER_MSEC;
        struct queue *q = pool_of(w)->queue;

        while (clock_now_nsec() < end_nsec) {
                uint64_t until = queue_deadline_nsec(q), now = clock_now_nsec();
                struct pollfd p = {.fd = queue_fd(q), .events = POLLIN};

                until = MIN(until, end_nsec);
                poll(&p, 1, until > now ? (int)((until - now) / NSEC_PER_MSEC) + 1 : 0);
                if (pool_reap(pool_of(w)) > 0) {
                        fixture_check(&w->f);
                        return;
                }
        }
        fail_msg("no job ended");
}

/* `apart`: pages of open_apart(). */
static struct attach *begin_slow(
        struct world *w, unsigned deadline_msec, bool apart, struct member **ret_member)
{
        uint32_t pages[16];
        struct attach *a;

        start_slow(w, deadline_msec, apart ? APART_SETS(4) : 4);
        *ret_member = join(w->f.a);
        a = apart ? open_apart(w, *ret_member, 1) : open_ns(*ret_member, "n");
        assert_int_equal(lease_pages(a, 16, 1, pages, NULL), -EINPROGRESS);
        while (a->ns->device.n_preparing > 0)
                reap(w);
        assert_int_equal(lease_pages(a, 16, 1, pages, NULL), 0);
        for (unsigned i = 0; i < 16; i++) {
                uint8_t key[KEY_BYTES];
                struct publish p = {
                        .pages = &pages[i], .keys = key, .n = 1, .last_tokens = PAGE_TOKENS};
                uint32_t sealed, n;

                make_keys(key, pages[i], 1);
                fill(a->ns, pages[i], pages[i]);
                assert_int_equal(publish_pages(a, &p, 1, &sealed, &n, NULL), 0);
                assert_int_equal(release_pages(a, &sealed, 1, 1, NULL), 0);
        }
        store_settle(&w->f.store, pool_of(w), 2);
        drop(a, 0, 2);
        drop(a, 10, 6);
        assert_int_equal(a->ns->device.n_sets, 2);
        fake_device_take_log(&w->f.device, (char[FAKE_LOG_BYTES]){0});
        return a;
}

/* Chosen, and its copies are under way in the driver. */
static struct attach *begin_copies_of(
        struct world *w, unsigned deadline_msec, bool apart, struct member **ret_member)
{
        struct attach *a = begin_slow(w, deadline_msec, apart, ret_member);

        fake_device_block(&w->f.device, "copy");
        assert_true(turn(w));
        assert_int_equal(work(w), RECALL_SOON);
        fake_device_wait_inside(&w->f.device);
        assert_int_equal(a->ns->device.n_pages[PAGE_MOVING], 2);
        return a;
}

static struct attach *begin_copies(
        struct world *w, unsigned deadline_msec, struct member **ret_member)
{
        return begin_copies_of(w, deadline_msec, false, ret_member);
}

static void end_slow(struct world *w, struct member *m)
{
        member_free(m);
        fixture_end(&w->f);
        assert_false(w->f.device.wrong_caller);
        fake_device_deinit(&w->f.device);
}

/* Until nothing is MOVING. */
static void finish_copies(struct world *w, const struct attach *a)
{
        fake_device_unblock(&w->f.device);
        while (a->ns->device.n_pages[PAGE_MOVING] > 0)
                reap(w);
}

TEST(test_slow_device)
{
        struct world w;
        struct member *m;
        struct attach *a = begin_copies(&w, PATIENT_MSEC, &m);
        unsigned n_work = w.n_work;

        assert_cached(a, 8); /* where it was, meanwhile */
        assert_int_equal(find(a, 8) / SET_PAGES, 1);
        assert_int_equal(count_hits(a, 8, 1), 1);
        finish_copies(&w, a);
        assert_true(w.n_work > n_work);
        assert_int_equal(a->ns->device.n_sets, 1);
        assert_int_equal(w.f.store.counters.compacted_sets, 1);
        for (unsigned key = 2; key < 10; key++)
                assert_cached(a, key);
        end_slow(&w, m);
}

TEST(test_apart)
{
        struct world w;
        struct member *m;
        struct attach *a = begin_copies_of(&w, PATIENT_MSEC, true, &m);

        finish_copies(&w, a);
        assert_int_equal(a->ns->device.n_sets, 1);
        for (unsigned key = 2; key < 10; key++)
                assert_cached(a, key);
        assert_nothing_between(a->ns);
        end_slow(&w, m);
}

TEST(test_pinned_during_the_copy)
{
        struct world w;
        struct member *m;
        struct attach *a = begin_copies(&w, PATIENT_MSEC, &m);
        uint32_t page = find(a, 8), pinned, n;
        uint8_t key[KEY_BYTES];
        uint64_t tokens;

        make_keys(key, 9, 1);
        assert_int_equal(attach_share(a, NULL), 0);
        a->share.counters[page]++;
        assert_int_equal(lookup_pages(a, key, 1, 0, 2, &pinned, &n, &tokens, NULL), 0);
        finish_copies(&w, a);
        assert_int_equal(find(a, 8), page);
        assert_int_equal(find(a, 9), pinned);
        assert_int_equal(a->ns->shared.lines[page].state & 0xff, PAGE_SEALED);
        assert_int_equal(a->ns->device.n_sets, 2);
        a->share.counters[page]--;
        assert_int_equal(release_pages(a, &pinned, 1, 2, NULL), 0);
        assert_int_equal(work(&w), RECALL_SOON);
        finish_copies(&w, a);
        assert_int_equal(a->ns->device.n_sets, 1);
        assert_cached(a, 8);
        assert_cached(a, 9);
        end_slow(&w, m);
}

TEST(test_stale_during_the_copy)
{
        struct world w;
        struct member *m;
        struct attach *a = begin_copies(&w, PATIENT_MSEC, &m);
        uint64_t n;

        assert_int_equal(ns_invalidate(a->ns, CAUSE_NAMESPACE, &n), 0);
        finish_copies(&w, a);
        for (unsigned key = 2; key < 10; key++)
                assert_int_equal(find(a, key), PAGE_NONE);
        while (store_work(&w.f.store, 100))
                ;
        (void)work(&w);
        fixture_check(&w.f);
        assert_int_equal(w.f.store.counters.compacted_pages, 0);
        assert_int_equal(a->ns->device.n_sets, 0);
        end_slow(&w, m);
}

/* Another text is published in its place. */
TEST(test_reused_during_the_copy)
{
        struct world w;
        struct member *m;
        struct attach *a = begin_copies(&w, PATIENT_MSEC, &m);
        struct publish p = {.n = 1, .last_tokens = PAGE_TOKENS};
        uint32_t page = find(a, 8), pages[7], sealed, n, at = 0;
        uint8_t key[KEY_BYTES];

        drop(a, 8, 1);
        /* Calls it off: all that is FREE. */
        assert_int_equal(lease_pages(a, 7, 1, pages, NULL), 0);
        while (pages[at] != page)
                at++;
        fill(a->ns, page, 40);
        make_keys(key, 40, 1);
        p.keys = key;
        p.pages = &page;
        assert_int_equal(publish_pages(a, &p, 1, &sealed, &n, NULL), 0);
        assert_int_equal(release_pages(a, &page, 1, 1, NULL), 0);
        finish_copies(&w, a);
        assert_int_equal(find(a, 8), PAGE_NONE);
        assert_int_equal(find(a, 40), page);
        assert_cached(a, 40);
        assert_cached(a, 9);
        assert_int_equal(w.f.store.counters.compacted_pages, 1);
        end_slow(&w, m);
}

/* A client that can't be recalled isn't asked to unmap it. */
TEST(test_mapped_during_the_copy)
{
        struct world w;
        struct member *m;
        struct attach *a = begin_copies(&w, PATIENT_MSEC, &m);
        struct extent_handle handle;

        assert_int_equal(attach_map_set(a, 1, 0, 1, &handle, NULL), 1);
        fd_close(handle.fd);
        finish_copies(&w, a);
        assert_int_equal(work(&w), RECALL_NOTHING);
        assert_int_equal(w.n_told, 0);
        assert_int_equal(find(a, 8) / SET_PAGES, 1);
        end_slow(&w, m);
}

/* All of it goes away. */
TEST(test_dropped_during_the_copy)
{
        struct world w;
        struct member *m;
        struct attach *a = begin_copies(&w, PATIENT_MSEC, &m);

        drop(a, 8, 2);
        settle_all(&w.f.store);
        assert_int_equal(a->ns->device.n_sets, 1);
        finish_copies(&w, a);
        assert_int_equal(find(a, 8), PAGE_NONE);
        assert_int_equal(find(a, 9), PAGE_NONE);
        assert_int_equal(w.f.store.counters.compacted_pages, 0);
        end_slow(&w, m);
}

TEST(test_failed_copy)
{
        struct world w;
        struct member *m;
        struct attach *a = begin_copies(&w, PATIENT_MSEC, &m);

        fake_device_fail(&w.f.device, "copy", 1, -EIO);
        finish_copies(&w, a);
        assert_int_equal(find(a, 8) / SET_PAGES, 1);
        assert_cached(a, 8);
        assert_cached(a, 9);
        end_slow(&w, m);
}

/* Memory that the driver may still write to isn't used until it answers. */
TEST(test_late_copy)
{
        struct world w;
        struct member *m;
        struct attach *a = begin_copies(&w, HASTY_MSEC, &m);
        uint32_t pages[8];

        while (!queue_is_stuck(pool_of(&w)->queue))
                reap(&w);
        assert_int_equal(a->ns->device.n_pages[PAGE_MOVING], 2);
        assert_int_equal(work_later(&w, MSEC), RECALL_SOON);
        assert_int_equal(a->ns->device.n_pages[PAGE_MOVING], 2);
        assert_true(turn(&w));
        assert_int_equal(find(a, 8) / SET_PAGES, 1);
        /* All there is: the two that the driver has aren't. */
        assert_int_equal(lease_pages(a, 6, 1, pages, NULL), 0);
        assert_int_equal(ns_n_room(a->ns), 0);
        assert_int_equal(free_pages(a, pages, 6, NULL), 0);
        fake_device_unblock(&w.f.device);
        while (queue_is_stuck(pool_of(&w)->queue))
                poll(&(struct pollfd){.fd = queue_fd(pool_of(&w)->queue), .events = POLLIN}, 1, 10);
        (void)turn(&w);
        assert_int_equal(a->ns->device.n_pages[PAGE_MOVING], 0);
        assert_int_equal(find(a, 8) / SET_PAGES, 1);
        assert_cached(a, 8);
        end_slow(&w, m);
}

/* The namespace goes, and the daemon, while copies are under way. */
TEST(test_end_during_the_copy)
{
        for (unsigned how = 0; how < 2; how++) {
                struct world w;
                struct member *m;
                struct attach *a = begin_copies(&w, PATIENT_MSEC, &m);
                uint64_t n, kept;

                (void)a;
                member_free(m);
                if (how == 0) {
                        assert_int_equal(store_purge(&w.f.store, w.f.a, NULL, true, &n, &kept), 0);
                        fixture_check(&w.f);
                        fake_device_unblock(&w.f.device);
                        while (!list_is_empty(&w.f.store.moves))
                                reap(&w);
                } else {
                        fake_device_unblock(&w.f.device);
                }
                fixture_end(&w.f);
                fake_device_deinit(&w.f.device);
        }
}
