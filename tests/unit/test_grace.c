/* Pages that a group gives back while a dead member of it may still write to them. */
#include "daemon/core/clients/grants.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/life/leave.h"
#include "tests/unit/recall-fixture.h"
#include "daemon/core/core.h"
#include "daemon/core/memory/tasks.h"

/* One group: `a` lives, `b` is to linger and has set 0 mapped. Another group of the tenant. */
struct mates {
        struct world w;
        struct member *m, *dead, *stranger;
        struct attach *a, *b, *other;
        uint32_t pages[2 * SET_PAGES]; /* all of the tenant's; granted to the group */
};

static void begin(struct mates *s, unsigned sets)
{
        *s = (struct mates){0};
        start(&s->w, sets);
        s->m = join(s->w.f.a);
        s->dead = join_group(s->w.f.a, s->m);
        s->stranger = join(s->w.f.a);
        s->a = open_ns(s->m, "n");
        s->b = open_ns(s->dead, "n");
        s->other = open_ns(s->stranger, "n");
        assert_int_equal(lease_pages(s->b, sets * SET_PAGES, 1, s->pages, NULL), 0);
        assert_int_equal(map_set(s->b, 0), 1);
}

static void die(struct mates *s)
{
        member_linger(s->dead);
        fixture_check(&s->w.f);
}

/* The grace is over. */
static void bury(struct mates *s)
{
        member_free(s->dead);
        s->dead = NULL;
        fixture_check(&s->w.f);
}

static void end(struct mates *s)
{
        if (s->dead)
                member_free(s->dead);
        if (s->m)
                member_free(s->m);
        member_free(s->stranger);
        fixture_end(&s->w.f);
}

#define SCENE(fn, ...) TEST_ON(fn, struct mates, s, begin, end, ##__VA_ARGS__)

/* Pages that the attachment could have, taken and given back. */
static unsigned n_leasable(struct mates *s, struct attach *a)
{
        uint32_t pages[2 * SET_PAGES];
        unsigned n = 0;

        while (n < ARRAY_SIZE(pages) && lease_pages(a, 1, 1, &pages[n], NULL) == 0)
                n++;
        give_back(&s->w, a, pages, n);
        return n;
}

static uint64_t n_granted(const struct mates *s)
{
        return s->a->ns->device.n_pages[PAGE_GRANTED];
}

SCENE(test_is_nobodys_any_more, 1)
{
        uint32_t both[2], page, n, sealed;
        uint8_t key[KEY_BYTES];
        struct publish p = {.pages = &page, .keys = key, .n = 1, .last_tokens = 1};

        make_keys(key, 1, 1);
        die(s);
        give_back(&s->w, s->a, s->pages, 1);
        page = both[1] = s->pages[0];
        both[0] = s->pages[1];
        assert_int_equal(free_pages(s->a, &page, 1, &s->w.f.d), -EINVAL);
        assert_non_null(strstr(s->w.f.d.text, "was given back"));
        assert_int_equal(free_pages(s->a, both, 2, NULL), -EINVAL);
        assert_int_equal(s->a->grants->n_given_back, 1);
        assert_int_equal(publish_pages(s->a, &p, 1, &sealed, &n, NULL), -EINVAL);
        assert_int_equal(n, 0);
        fixture_check(&s->w.f);
        page = s->pages[1];
        assert_int_equal(publish_pages(s->a, &p, 1, &sealed, &n, NULL), 0);
        fixture_check(&s->w.f);
        bury(s);
        assert_int_equal(n_leasable(s, s->a), 1);
}

/* A dead member counts until its grace is over. */
SCENE(test_report, 1)
{
        uint64_t n;

        bury(s);
        assert_int_equal(
                report_pages(s->a, s->pages, 2, false, true, &n, NULL), 0); /* unfinished */
        s->dead = join_group(s->w.f.a, s->m);
        s->b = open_ns(s->dead, "n");
        assert_int_equal(map_set(s->b, 0), 1);
        die(s);
        assert_int_equal(report_pages(s->a, &s->pages[2], 1, true, false, &n, NULL), -EBUSY);
        give_back(&s->w, s->a, s->pages, 1); /* not reported any more */
        assert_int_equal(n_granted(s), SET_PAGES);
        bury(s);
        assert_int_equal(report_pages(s->a, s->pages, 1, true, true, &n, NULL), -EINVAL);
        assert_int_equal(report_pages(s->a, &s->pages[2], 1, true, false, &n, NULL), -ESTALE);
        assert_int_equal(report_pages(s->a, &s->pages[1], 2, false, false, &n, NULL), 0);
        assert_int_equal(n, SET_PAGES - 3);
        assert_int_equal(n_leasable(s, s->other), SET_PAGES - 2);
}

static void expect_broken(struct mates *s, const char *text)
{
        uint64_t n_pages, n_sets_seen;

        assert_int_equal(store_check(&s->w.f.store, &n_pages, &n_sets_seen, &s->w.f.d), -EUCLEAN);
        if (!strstr(s->w.f.d.text, text))
                fail_msg("'%s' does not say '%s'", s->w.f.d.text, text);
}

SCENE(test_checker, 1)
{
        struct page *p;

        p = ns_page(s->a->ns, s->pages[0]);
        die(s);
        give_back(&s->w, s->a, s->pages, 1);
        s->a->grants->n_given_back = 0;
        expect_broken(s, "grants given back");
        s->a->grants->n_given_back = 1;
        p->reported = 1;
        expect_broken(s, "is given back but");
        p->reported = 0;
        s->m->group->n_lingering = 2;
        expect_broken(s, "lingering clients");
        s->m->group->n_lingering = 1;
        s->dead->lingers = false;
        expect_broken(s, "was given back but isn't free");
        s->dead->lingers = true;
        bury(s);
        p->given_back = 1; /* it is free */
        expect_broken(s, "is given back but");
        p->given_back = 0;
}

/* Pages of clients that leave are freed in slices: the work of a slice, the state between two, and
 * other clients' requests meanwhile. */

#define SLICE 4
#define N     40 /* pages */

static void begin_leave(struct world *w)
{
        start(w, 16);
        w->f.store.drop_slice_pages = SLICE;
}

#define SCENE_LEAVE(fn, ...) TEST_ON(fn, struct world, w, begin_leave, recall_end, ##__VA_ARGS__)

static uint64_t granted(const struct attach *a)
{
        return a->ns->device.n_pages[PAGE_GRANTED];
}

static uint64_t pinned(const struct ns *ns)
{
        return ns->device.n_pinned;
}

/* Runs all slices, and returns their number. Each is bounded, and leaves a consistent state. */
static unsigned run(struct world *w, struct ns *ns)
{
        unsigned n = 0;

        for (;; n++) {
                uint64_t held = ns->device.n_pages[PAGE_GRANTED] + pinned(ns);

                if (!tasks_work(&w->f.store))
                        return n;
                assert_true(held - ns->device.n_pages[PAGE_GRANTED] - pinned(ns) <= SLICE);
                fixture_check(&w->f);
        }
}

static void note(void *data)
{
        ++*(unsigned *)data;
}

/* An attachment of the test, which keeps the namespace. */
static struct attach *open_beside(struct world *w)
{
        return open_ns(join(w->f.a), "n");
}

SCENE_LEAVE(test_pins)
{
        struct attach *a, *beside;
        uint32_t pages[N];

        beside = open_beside(w);
        a = enter(w->f.a, "n");
        publish_chain(a, 0, N, pages);
        member_leave(a->member);
        fixture_check(&w->f);
        assert_int_equal(w->f.a->n_members, 1);
        assert_int_equal(w->f.a->n_attachments, 1);
        assert_in_range(pinned(beside->ns), N - SLICE, N - 1);
        assert_true(run(w, beside->ns) >= N / SLICE - 1);
        assert_int_equal(pinned(beside->ns), 0);
        assert_int_equal(count_hits(beside, 0, N), N);
        member_free(beside->member);
}

/* A page that is still pinned isn't evicted, even if another client needs it. */
SCENE_LEAVE(test_pinned_until_then)
{
        uint32_t pages[N], more[16 * SET_PAGES];
        struct attach *a, *beside;

        beside = open_beside(w);
        a = enter(w->f.a, "n");
        publish_chain(a, 0, N, pages);
        member_leave(a->member);
        assert_int_equal(lease_pages(beside, 16 * SET_PAGES - N + SLICE + 1, 1, more, NULL),
                KVL_STATUS_FULL);
        assert_in_range(count_hits(beside, 0, N), N - SLICE, N);
        fixture_check(&w->f);
        (void)run(w, beside->ns);
        assert_int_equal(lease_pages(beside, 16 * SET_PAGES, 1, more, NULL), 0);
        member_free(beside->member);
}

/* A group ends: its grants have no owner before they are freed, and a client that comes with its
 * token isn't in it. */
SCENE_LEAVE(test_grants)
{
        uint8_t token[GROUP_TOKEN_BYTES];
        struct attach *a, *beside;
        struct member *m, *again;
        uint32_t pages[N], page, id;

        beside = open_beside(w);
        m = join(w->f.a);
        id = m->group->id;
        memcpy(token, m->group->token, sizeof(token));
        a = open_ns(m, "n");
        assert_int_equal(lease_pages(a, N, 1, pages, NULL), 0);
        member_leave(m);
        fixture_check(&w->f);
        assert_in_range(granted(beside), N - SLICE, N - 1);
        assert_int_equal(member_new(w->f.a, token, false, &again, NULL), -ENOENT);
        assert_int_equal(member_new_or_join(w->f.a, token, false, &again, NULL), 0);
        assert_int_not_equal(again->group->id, id);
        assert_int_equal(free_pages(open_ns(again, "n"), &pages[0], 1, NULL), -EINVAL);
        assert_int_equal(free_pages(beside, &pages[N / 2], 1, NULL), -EINVAL);
        fixture_check(&w->f);
        assert_true(run(w, beside->ns) >= N / SLICE - 1);
        assert_int_equal(granted(beside), 0);
        assert_int_equal(lease_pages(beside, 1, 1, &page, NULL), 0);
        member_free(again);
        member_free(beside->member);
}

/* No client gets a notice, and the member leaves in the middle. */
SCENE_LEAVE(test_close_then_leave)
{
        uint32_t pages[N], more[N];
        struct attach *a = enter(w->f.a, "n");
        struct attach *b;
        unsigned n_closed = 0;
        struct ns *ns;

        b = open_ns(a->member, "other");
        ns = a->ns;
        assert_int_equal(lease_pages(a, N, 1, pages, NULL), 0);
        publish_chain(b, 0, N, more);
        assert_false(attach_close_soon(a, note, &n_closed));
        attach_close_quietly(a);
        (void)tasks_work(&w->f.store);
        member_leave(a->member);
        fixture_check(&w->f);
        (void)run(w, ns);
        assert_int_equal(n_closed, 0);
        assert_true(list_is_empty(&w->f.a->groups));
}

/* Sets that it had mapped are unbound one after the other. */
SCENE_LEAVE(test_mapped)
{
        struct attach *a = enter(w->f.a, "n");
        uint32_t pages[64];
        struct ns *ns;
        unsigned n;

        ns = a->ns;
        assert_int_equal(lease_pages(a, 8 * SET_PAGES, 1, pages, NULL), 0);
        for (unsigned i = 0; i < 8; i++)
                assert_int_equal(map_set(a, i), 1);
        assert_int_equal(free_pages(a, pages, 8 * SET_PAGES, NULL), 0);
        member_leave(a->member);
        fixture_check(&w->f);
        assert_int_equal(n_sets(w), 7);
        for (n = 7; n > 0; n--) {
                assert_int_equal(n_sets(w), n);
                assert_non_null(tasks_work(&w->f.store));
                fixture_check(&w->f);
        }
        assert_null(tasks_work(&w->f.store));
        assert_true(list_is_empty(&ns->clients.closing));
}
