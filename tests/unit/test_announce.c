/* Single flight in the daemon's state: announcements, their view by readers,
 * and their ends. */
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/state/shared.h"
#include "daemon/core/requests/refill.h"
#include "tests/unit/announce-fixture.h"
#include "daemon/core/cache/announced.h"
#include "daemon/core/memory/tasks.h"

/* ---- what is seen ---------------------------------------------------------------------------- */

ANNOUNCE_SCENE(test_stops_at_what_others_have)
{
        uint32_t cached, mine[N_PAGES], n, page;

        cached = publish_by_other(w, 2);
        assert_int_equal(announce(w, 0, N_PAGES, &n, &page), KVL_STATUS_DUPLICATE);
        assert_int_equal(n, 2);
        assert_int_equal(page, cached);
        assert_int_equal(lease_pages(w->b, N_PAGES, 1, mine, NULL), 0);
        assert_int_equal(announce_pages(w->b, mine, w->keys, N_PAGES, &n, &page, &w->f.d),
                KVL_STATUS_PENDING);
        assert_int_equal(n, 0);
        assert_int_equal(page, w->pages[0]);
        assert_non_null(strstr(w->f.d.text, "wait for it"));
        assert_int_equal(w->f.store.counters.announces_pending, 1);
        assert_int_equal(announce_pages(w->b, mine, key(w, 3), 1, &n, &page, NULL), 0);
        assert_int_equal(n, 1);
}

ANNOUNCE_SCENE(test_what_cannot_be_announced)
{
        uint32_t n, page = 0, far = 1000000, theirs, ready;

        assert_int_equal(announce_pages(w->a, &far, w->keys, 1, &n, &page, &w->f.d), -EINVAL);
        assert_non_null(strstr(w->f.d.text, "page 1000000"));
        assert_int_equal(lease_pages(w->b, 1, 1, &theirs, NULL), 0);
        assert_int_equal(announce_pages(w->a, &theirs, w->keys, 1, &n, &page, &w->f.d), -EINVAL);
        assert_non_null(strstr(w->f.d.text, "another group"));
        assert_int_equal(announce(w, 0, 1, &n, &page), 0);
        assert_int_equal(announce_pages(w->a, w->pages, key(w, 1), 1, &n, &page, &w->f.d), -EINVAL);
        assert_non_null(strstr(w->f.d.text, "announced already"));
        assert_int_equal(announce_state(w->a, key(w, 1), NULL), KVL_STATUS_MISS);
        assert_int_equal(attach_share(w->a, NULL), 0);
        assert_true(magazine_refill(w->a, 1, 1));
        ready = w->a->share.magazine[0] - 1;
        assert_true(ns_page(w->a->ns, ready)->ready);
        assert_int_equal(announce_pages(w->a, &ready, key(w, 1), 1, &n, &page, &w->f.d), -EINVAL);
        assert_non_null(strstr(w->f.d.text, "magazine"));
        assert_int_equal(n, 0);
}

TEST(test_its_own_way_to_another_key)
{
        struct world w;
        uint32_t got;

        start(&w);
        announce_all(&w);
        assert_int_equal(publish(w.a, w.pages[0], key(&w, 1), &got), 0);
        assert_int_equal(got, w.pages[0]);
        assert_int_equal(announce_state(w.b, key(&w, 0), NULL), KVL_STATUS_MISS);
        assert_int_equal(announce_state(w.b, key(&w, 1), NULL), 0);
        /* That was reserved for another page. */
        assert_int_equal(shown(&w, w.pages[1]), PAGE_FREE);
        assert_int_equal(ns_page(w.a->ns, w.pages[1])->state, PAGE_GRANTED);
        assert_int_equal(w.n_ends, 2);
        end(&w);
}

/* In the place of an announced page, though the index is full there. */
TEST(test_no_slot)
{
        uint32_t pages[18], n, page, got, home;
        uint8_t keys[18 * KEY_BYTES], k[KEY_BYTES];
        struct world w;
        const struct shared *s;

        start(&w);
        s = &w.a->ns->shared;
        home = shm_bucket_index(shared_hash(s, w.keys), s->n_buckets, 0);
        for (unsigned i = 100, have = 0; have < 18; i++) {
                make_keys(k, i, 1);
                if (shm_bucket_index(shared_hash(s, k), s->n_buckets, 0) == home)
                        memcpy(keys + have++ * KEY_BYTES, k, KEY_BYTES);
        }
        assert_int_equal(lease_pages(w.a, 18, 1, pages, &w.f.d), 0);
        assert_int_equal(announce_pages(w.a, pages, keys, 18, &n, &page, &w.f.d), -ENOSPC);
        assert_int_equal(n, 16);
        assert_non_null(strstr(w.f.d.text, "no slot left"));
        assert_int_equal(shown(&w, pages[16]), PAGE_FREE);
        fixture_check(&w.f);
        /* Announced pages keep their slots; another published page gets none. */
        assert_int_equal(publish(w.a, pages[17], keys + 17 * KEY_BYTES, &got), 0);
        assert_int_equal(ns_page(w.a->ns, got)->state, PAGE_DETACHED);
        assert_int_equal(publish(w.a, pages[3], keys + 3 * KEY_BYTES, &got), 0);
        assert_int_equal(ns_page(w.a->ns, got)->state, PAGE_SEALED);
        end(&w);
}

/* ---- the checker ---------------------------------------------------------------------------- */

/* Ends of announcements (single flight in the daemon's state): notices, wake-ups, and the work of
 * each step. */

/* ---- how it ends ----------------------------------------------------------------------------- */

/* A way to end the announcement of pages[0], and the key's state after it. */
struct way {
        const char *name;
        void (*go)(struct world *w);
        int then;
};

/* A set that is taken back costs what is announced in it, however much is announced elsewhere. */
ANNOUNCE_SCENE(test_looks_at_its_own_set)
{
        uint32_t pages[SET_PAGES], n, page, n_near = 0;
        struct extent_set *near, *far;
        uint8_t keys[SET_PAGES * KEY_BYTES];

        make_keys(keys, 100, SET_PAGES);
        assert_int_equal(lease_pages(w->b, SET_PAGES, 1, pages, NULL), 0);
        near = ns_set_of(w->b->ns, pages[0]);
        far = ns_set_of(w->b->ns, pages[SET_PAGES - 1]);
        assert_ptr_not_equal(near, far);
        for (unsigned i = 0; i < SET_PAGES; i++)
                n_near += ns_set_of(w->b->ns, pages[i]) == near;
        assert_int_equal(announce_pages(w->b, pages, keys, SET_PAGES, &n, &page, NULL), 0);
        fixture_check(&w->f);
        assert_int_equal(announce_withdraw_set(far), SET_PAGES - n_near);
        fixture_check(&w->f);
        assert_int_equal(w->b->ns->catalog.announced.n, n_near);
        assert_int_equal(announce_state(w->a, keys, NULL), KVL_STATUS_PENDING);
        assert_int_equal(announce_withdraw_set(far), 0);
        assert_int_equal(announce_withdraw_set(near), n_near);
        assert_true(list_is_empty(&w->b->ns->catalog.announced.sets));
}

/* A client without announcements looks at nothing when it leaves. */
ANNOUNCE_SCENE(test_looks_where_it_announced)
{
        uint32_t n, page;

        announce_all(w);
        assert_int_equal(announce_withdraw_all(w->b), 0);
        assert_int_equal(w->a->ns->catalog.announced.n, N_PAGES);
        assert_int_equal(announce_withdraw_all(w->a), N_PAGES);
        fixture_check(&w->f);
        assert_int_equal(w->a->ns->catalog.announced.n, 0);
        assert_int_equal(w->n_ends, N_PAGES);
        assert_int_equal(announce(w, 0, 1, &n, &page), 0);
        assert_int_equal(announce_withdraw_all(w->a), 1);
        assert_int_equal(lease_pages(w->b, 1, 1, &page, NULL), 0);
        assert_int_equal(announce_pages(w->b, &page, w->keys, 1, &n, &page, NULL), 0);
        assert_int_equal(announce_withdraw_all(w->a), 0);
        assert_int_equal(w->a->ns->catalog.announced.n, 1);
}

#define MANY  60
#define SLICE 4

/* A world in which the first has announced MANY pages, keys 100.., and the other a few. */
static void start_many(struct world *w)
{
        uint32_t pages[MANY], n, page;
        uint8_t keys[MANY * KEY_BYTES];

        *w = (struct world){0};
        fixture_start(&w->f, 32, 32, 4);
        w->f.store.owner.on_announce_end = note_end;
        w->f.store.drop_slice_pages = SLICE;
        w->m = join(w->f.a);
        w->other = join(w->f.a);
        w->a = open_ns(w->m, "x");
        w->b = open_ns(w->other, "x");
        make_keys(keys, 100, MANY);
        assert_int_equal(lease_pages(w->a, MANY, 1, pages, NULL), 0);
        assert_int_equal(announce_pages(w->a, pages, keys, MANY, &n, &page, NULL), 0);
        make_keys(w->keys, 0, N_PAGES);
        assert_int_equal(lease_pages(w->b, N_PAGES, 1, w->pages, NULL), 0);
        assert_int_equal(announce_pages(w->b, w->pages, w->keys, N_PAGES, &n, &page, NULL), 0);
        fixture_check(&w->f);
}

#define SCENE(fn, ...) TEST_ON(fn, struct world, w, start_many, end, ##__VA_ARGS__)

/* The first's announcements end, a slice of them a turn; the other's stay. */
static void expect_slices(struct world *w)
{
        unsigned before = w->n_ends, n = 0;

        assert_in_range(before, 1, SLICE + SET_PAGES);
        fixture_check(&w->f);
        for (; w->n_ends < MANY; n++) {
                assert_non_null(tasks_work(&w->f.store));
                assert_true(w->n_ends - before <= SLICE + SET_PAGES);
                before = w->n_ends;
                fixture_check(&w->f);
        }
        assert_true(n >= MANY / (SLICE + SET_PAGES) - 1);
        while (tasks_work(&w->f.store))
                fixture_check(&w->f);
        assert_int_equal(w->n_ends, MANY);
        assert_int_equal(w->b->ns->catalog.announced.n, N_PAGES);
}

SCENE(test_lingers_in_slices)
{
        member_linger(w->m);
        expect_slices(w);
}

/* Gone, before what was begun when it lingered is over, or at once. */
TEST(test_goes_in_slices)
{
        for (int lingers = 0; lingers < 2; lingers++) {
                struct world w;

                start_many(&w);
                if (lingers)
                        member_linger(w.m);
                member_leave(w.m);
                w.m = NULL;
                assert_in_range(w.n_ends, 1, 2 * (SLICE + SET_PAGES));
                fixture_check(&w.f);
                while (tasks_work(&w.f.store))
                        fixture_check(&w.f);
                assert_int_equal(w.b->ns->catalog.announced.n, N_PAGES);
                assert_int_equal(w.b->ns->device.n_pages[PAGE_GRANTED], N_PAGES);
                end(&w);
        }
}

/* The namespace is invalidated: none of them is found from then on. Waiting clients hear of it a
 * slice a turn. New announcements stay, also under a key that was announced before. */
TEST(test_invalidated_in_slices)
{
        for (int again = 0; again < 2; again++) {
                uint8_t keys[MANY * KEY_BYTES];
                uint32_t page, n, got;
                struct world w;
                uint64_t gone;

                start_many(&w);
                make_keys(keys, 100, MANY);
                assert_int_equal(ns_invalidate(w.a->ns, CAUSE_NAMESPACE, &gone), 0);
                assert_in_range(w.n_ends, 1, SLICE + SET_PAGES);
                fixture_check(&w.f);
                for (unsigned i = 0; i < MANY; i++)
                        assert_int_equal(
                                announce_state(w.b, keys + i * KEY_BYTES, NULL), KVL_STATUS_MISS);
                page = 0; /* which was looked at already */
                assert_int_equal(free_pages(w.a, &page, 1, NULL), 0);
                assert_int_equal(lease_pages(w.b, 1, 1, &page, NULL), 0);
                assert_true(page < w.a->ns->catalog.announced.withdraw_at);
                assert_int_equal(announce_pages(w.b, &page, keys + (MANY - 1) * KEY_BYTES, 1, &n,
                                         &got, NULL),
                        0);
                fixture_check(&w.f);
                if (again)
                        assert_int_equal(ns_invalidate(w.a->ns, CAUSE_NAMESPACE, &gone), 0);
                for (unsigned before = w.n_ends; tasks_work(&w.f.store); before = w.n_ends) {
                        assert_true(w.n_ends - before <= SLICE + SET_PAGES);
                        fixture_check(&w.f);
                }
                assert_int_equal(w.n_ends, MANY + N_PAGES + again);
                assert_int_equal(announce_state(w.a, keys + (MANY - 1) * KEY_BYTES, NULL),
                        again ? KVL_STATUS_MISS : KVL_STATUS_PENDING);
                fixture_check(&w.f);
                end(&w);
        }
}

/* A client becomes read-only, and then may publish again: its new announcements stay. */
SCENE(test_announces_again)
{
        uint32_t page, n, got;
        uint8_t again[KEY_BYTES];

        member_set_read_only(w->m, true);
        assert_true(w->n_ends < MANY);
        member_set_read_only(w->m, false);
        make_keys(again, 100 + MANY - 1, 1);
        assert_int_equal(lease_pages(w->a, 1, 1, &page, NULL), 0);
        assert_int_equal(announce_pages(w->a, &page, again, 1, &n, &got, NULL), 0);
        assert_int_equal(w->n_ends, MANY);
        while (tasks_work(&w->f.store))
                ;
        assert_int_equal(w->a->ns->catalog.announced.n, N_PAGES + 1);
}

/* ---- sleepers are woken --------------------------------------------------------------------- */

struct sleeper {
        pthread_t thread;
        const void *address;
        uint32_t value;
        _Atomic pid_t tid;
        int result; /* errno of the wait; 0: woken */
};

static void *sleep_on(void *data)
{
        const struct timespec patience = {.tv_sec = 20}; /* not tuned */
        struct sleeper *s = data;

        s->tid = (pid_t)syscall(SYS_gettid);
        s->result = syscall(SYS_futex, s->address, FUTEX_WAIT, s->value, &patience, NULL, 0) == 0
                            ? 0
                            : errno;
        return NULL;
}

/* Until the kernel has it asleep. */
static void await_sleep(const struct sleeper *s)
{
        char path[64], state = 0;

        while (s->tid == 0)
                usleep(100);
        snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)s->tid);
        while (state != 'S') {
                FILE *f = fopen(path, "re");

                if (!f) /* it has ended: too early, and the result says so */
                        return;
                assert_int_equal(fscanf(f, "%*d %*s %c", &state), 1);
                fclose(f);
                usleep(100);
        }
}

/* A mapping of the index as another process has it: read-only. Returns where the lines are. */
static const struct shm_line *map_lines(const struct world *w, void **ret_base)
{
        const struct segment *segment = &w->b->ns->shared.segment;

        *ret_base = mmap(NULL, segment->bytes, PROT_READ, MAP_SHARED,
                segment->reader_fd >= 0 ? segment->reader_fd : segment->fd, 0);
        assert_ptr_not_equal(*ret_base, MAP_FAILED);
        return (const struct shm_line *)((uint8_t *)*ret_base +
                                         w->b->ns->shared.header->lines_offset);
}

static void go_to_sleep(struct sleeper *s, const struct shm_line *line)
{
        s->address = &line->state;
        s->value = (uint32_t)line->state;
        assert_int_equal(pthread_create(&s->thread, NULL, sleep_on, s), 0);
        await_sleep(s);
}

#define N_HERD (2 * WAKE_SLICE + 2)

/* How many still sleep on the page's word; wakes them. */
static int count_asleep(const struct shm_line *line)
{
        return (int)syscall(SYS_futex, &line->state, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* One page has a herd, and another one sleeper. */
static void start_herd(
        struct world *w, struct sleeper *herd, const struct shm_line **ret_lines, void **ret_base)
{
        start(w);
        announce_all(w);
        *ret_lines = map_lines(w, ret_base);
        for (unsigned k = 0; k < N_HERD; k++) {
                herd[k] = (struct sleeper){0};
                go_to_sleep(&herd[k], &(*ret_lines)[w->pages[k == N_HERD - 1 ? 1 : 0]]);
        }
        announce_withdraw(w->a->ns, w->pages[0]);
        announce_withdraw(w->a->ns, w->pages[1]);
}

static void join_herd(struct sleeper *herd)
{
        for (unsigned k = 0; k < N_HERD; k++) {
                pthread_join(herd[k].thread, NULL);
                assert_int_equal(herd[k].result, 0);
        }
}

TEST(test_a_herd_is_woken_in_slices)
{
        struct sleeper herd[N_HERD];
        const struct shm_line *lines;
        struct world w;
        unsigned n_slices = 0, n_marked;
        void *base;

        /* A call wakes WAKE_SLICE threads, on any pages. */
        start_herd(&w, herd, &lines, &base);
        assert_int_equal(count_asleep(&lines[w.pages[0]]), N_HERD - 1 - WAKE_SLICE);
        assert_int_equal(count_asleep(&lines[w.pages[1]]), 1);
        join_herd(herd);
        munmap(base, w.b->ns->shared.segment.bytes);
        end(&w); /* the namespace goes, and there would be more to do */

        /* The rest has its turns, on the tenant's account. */
        start_herd(&w, herd, &lines, &base);
        assert_ptr_equal(tasks_work(&w.f.store), w.f.a);
        /* Threads of other pages come behind those that still wait for a turn. */
        n_marked = w.a->ns->catalog.announced.wakes.n;
        announce_withdraw(w.a->ns, w.pages[2]);
        assert_int_equal(w.a->ns->catalog.announced.wakes.n, n_marked + 1);
        for (struct tenant *t; (t = tasks_work(&w.f.store)); n_slices++)
                assert_ptr_equal(t, w.f.a);
        assert_in_range(n_slices, 1, 3);
        join_herd(herd);
        /* Then there is room again for what is woken at once. */
        announce_withdraw(w.a->ns, w.pages[3]);
        assert_false(tasks_are_left(&w.f.store));
        munmap(base, w.b->ns->shared.segment.bytes);
        end(&w);
}
