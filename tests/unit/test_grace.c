/* Pages that a group gives back while a dead member of it may still write to them. */
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/clients/magazine.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/requests/submit.h"
#include "daemon/core/reclaim/recall-work.h"
#include "tests/unit/recall-fixture.h"

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

TEST(test_waits_for_the_dead)
{
        struct mates s;

        begin(&s, 1);
        assert_int_equal(map_set(s.a, 0), 1);
        die(&s);
        give_back(&s.w, s.a, s.pages, 3);
        assert_int_equal(n_granted(&s), SET_PAGES);
        assert_int_equal(n_leasable(&s, s.a), 0);
        assert_int_equal(n_leasable(&s, s.other), 0);
        bury(&s);
        assert_int_equal(n_granted(&s), SET_PAGES - 3);
        assert_int_equal(n_leasable(&s, s.other), 3);
        assert_int_equal(n_leasable(&s, s.a), 3);
        give_back(&s.w, s.a, &s.pages[3], SET_PAGES - 3); /* the rest is the group's as before */
        end(&s);
}

SCENE(test_waits_for_both, 2)
{
        struct member *second;

        second = join_group(s->w.f.a, s->m);
        assert_int_equal(map_set(open_ns(second, "n"), 0), 1);
        assert_int_equal(map_set(s->b, 1), 1);
        die(s);
        member_linger(second);
        member_linger(second);
        assert_int_equal(s->m->group->n_lingering, 2);
        give_back(&s->w, s->a, s->pages, 2 * SET_PAGES);
        assert_int_equal(n_leasable(s, s->a), 0);
        bury(s);
        assert_int_equal(n_leasable(s, s->a), SET_PAGES); /* those of set 1 */
        member_free(second);
        assert_int_equal(s->m->group->n_lingering, 0);
        assert_int_equal(n_granted(s), 0);
        assert_int_equal(n_leasable(s, s->a), 2 * SET_PAGES);
}

/* No grace if the client is alive, maps nothing, or belongs to another group. */
SCENE(test_no_grace, 2)
{
        assert_int_equal(map_set(s->a, 0), 1);
        assert_int_equal(map_set(s->a, 1), 1);
        assert_int_equal(map_set(s->other, 0), 1);
        assert_int_equal(map_set(s->other, 1), 1);
        give_back(&s->w, s->a, s->pages, 1); /* all live */
        assert_int_equal(n_granted(s), 2 * SET_PAGES - 1);
        member_linger(s->stranger);
        give_back(&s->w, s->a, &s->pages[1], 1);
        assert_int_equal(n_granted(s), 2 * SET_PAGES - 2);
        die(s);
        for (unsigned i = 2; i < 2 * SET_PAGES; i++)
                if (s->pages[i] >= SET_PAGES) /* of set 1 */
                        give_back(&s->w, s->a, &s->pages[i], 1);
        assert_int_equal(n_granted(s), SET_PAGES - 2);
        assert_int_equal(s->a->grants->n_given_back, 0);
}

static struct submit_result submit(struct mates *s, struct shm_submission sub)
{
        struct submit_chain chain = {0};
        struct submit_result result;

        sub.ns_id = s->a->id;
        submit_one(s->m, &chain, &sub, 1, &result);
        fixture_check(&s->w.f);
        assert_null(result.violation);
        return result;
}

static struct shm_submission freeing(uint32_t page)
{
        return (struct shm_submission){.op = SHM_OP_FREE, .tokens = 1, .pages = {page}};
}

SCENE(test_in_the_ring, 1)
{
        struct shm_submission publish = {
                .op = SHM_OP_PUBLISH, .flags = SHM_PUBLISH_ROOT, .tokens = PAGE_TOKENS};

        assert_int_equal(attach_share(s->a, NULL), 0);
        die(s);
        publish.page = s->pages[0];
        assert_int_equal(submit(s, freeing(s->pages[0])).status, 0);
        assert_int_equal(n_granted(s), SET_PAGES);
        assert_int_equal(submit(s, freeing(s->pages[0])).status, status_to_wire(-EINVAL));
        assert_int_equal(submit(s, publish).status, status_to_wire(-EINVAL));
        (void)submit(s, (struct shm_submission){.op = SHM_OP_REFILL, .aux = 8});
        assert_int_equal(s->a->ns->clients.n_ready, 0);
        bury(s);
        assert_int_equal(n_granted(s), SET_PAGES - 1);
        assert_int_equal(n_leasable(s, s->other), 1);
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

/* Pages that the living client gives back belong to the dead one alone, and end with it. */
SCENE(test_group_ends, 1)
{
        die(s);
        give_back(&s->w, s->a, s->pages, 3);
        member_free(s->m);
        s->m = NULL;
        fixture_check(&s->w.f);
        assert_int_equal(n_leasable(s, s->other), 0);
        bury(s);
        assert_int_equal(n_sets(&s->w), 0);
        assert_int_equal(n_leasable(s, s->other), SET_PAGES);
}

/* No living client holds the page, so none is asked, or late; the set waits all the same. */
SCENE(test_recall, 1)
{
        assert_int_equal(map_set(s->a, 0), 1);
        s->w.busy = s->b; /* can't be told */
        die(s);
        give_back(&s->w, s->a, s->pages, SET_PAGES);
        assert_int_equal(recall_all(&s->w), 1);
        assert_int_equal(work(&s->w), RECALL_SOON);
        assert_int_equal(s->w.n_told, 1); /* that it is recalled, not that it is idle */
        assert_told(&s->w, 0, s->a, 0, false, TIMEOUT);
        (void)work_later(&s->w, TIMEOUT);
        assert_int_equal(s->w.n_late, 0);
        assert_int_equal(s->m->n_quarantined_sets, 0);
        assert_int_equal(attach_unmapped(s->a, 0, NULL), -EBUSY);
        bury(s);
        (void)work(&s->w);
        assert_told(&s->w, 1, s->a, 0, true, TIMEOUT);
        unmap_set(&s->w, s->a, 0);
        assert_int_equal(n_sets(&s->w), 0);
}

/* Pages in a magazine were given to no client. */
SCENE(test_magazine, 2)
{
        uint64_t n_ready;

        assert_int_equal(attach_share(s->a, NULL), 0);
        give_back(&s->w, s->a, s->pages, SET_PAGES);
        (void)submit(s, (struct shm_submission){.op = SHM_OP_REFILL, .aux = 8});
        n_ready = s->a->ns->clients.n_ready;
        assert_true(n_ready > 0);
        die(s);
        assert_int_equal(magazine_drain(s->a), n_ready);
        fixture_check(&s->w.f);
        assert_int_equal(s->a->ns->clients.n_ready, 0);
        assert_int_equal(n_granted(s), SET_PAGES);
        assert_int_equal(s->a->grants->n_given_back, 0);
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
