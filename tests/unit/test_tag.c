/* Tags, what SHM_OP_WITH says of the PUBLISHes after it, and pages whose window has passed. */
#include "daemon/core/cache/tag.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/reclaim/sweep.h"
#include "daemon/core/state/shared.h"
#include "daemon/core/requests/invalidate.h"
#include "daemon/core/requests/submit.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/session-fixture.h"

struct bench {
        struct fixture f;
        struct member *m;
        struct attach *a;
        struct ns *ns;
        struct submit_chain chain;
};

static void begin(struct bench *w)
{
        *w = (struct bench){0};
        fixture_start(&w->f, 8, 4, 4);
        w->m = join(w->f.a);
        w->a = open_ns(w->m, "x");
        w->ns = w->a->ns;
}

static void end(struct bench *w)
{
        fixture_check(&w->f);
        member_free(w->m);
        fixture_end(&w->f);
}

#define SCENE(fn, ...) TEST_ON(fn, struct bench, w, begin, end, ##__VA_ARGS__)

/* n pages, keys first.., below `parent`, with the tag and window_passed of `how`. Nothing stays
 * pinned. */
static void publish_as(
        struct attach *a, struct publish how, unsigned parent, unsigned first, unsigned n)
{
        uint8_t keys[16 * KEY_BYTES], parent_key[KEY_BYTES];
        uint32_t pages[16], sealed[16], n_sealed;
        struct publish p = {.pages = pages,
                .keys = keys,
                .n = n,
                .parent_key = parent == ROOT ? NULL : parent_key,
                .last_tokens = PAGE_TOKENS,
                .tag = how.tag,
                .window_passed = how.window_passed};
        int r;

        make_keys(keys, first, n);
        make_keys(parent_key, parent, 1);
        assert_int_equal(lease_pages(a, n, 1, pages, NULL), 0);
        r = publish_pages(a, &p, 1, sealed, &n_sealed, NULL);
        assert_true(r == 0 || r == KVL_STATUS_DUPLICATE);
        assert_int_equal(release_pages(a, sealed, n, 1, NULL), 0);
        for (unsigned i = 0; i < n; i++)
                if (sealed[i] != pages[i])
                        assert_int_equal(free_pages(a, &pages[i], 1, NULL), 0);
}

static void publish_tagged(
        struct attach *a, uint64_t tag, unsigned parent, unsigned first, unsigned n)
{
        publish_as(a, (struct publish){.tag = tag}, parent, first, n);
}

static void expect_dropped(struct bench *w, uint64_t tag, unsigned n_expected)
{
        uint64_t n = 77;

        assert_int_equal(invalidate_tag(w->a, tag, &n, NULL), 0);
        assert_int_equal(n, n_expected);
        fixture_check(&w->f);
}

SCENE(test_invalidate)
{
        publish_tagged(w->a, 0, ROOT, 0, 2);
        publish_tagged(w->a, 5, 1, 2, 3);
        publish_tagged(w->a, UINT64_MAX, 4, 5, 2); /* below it */
        publish_tagged(w->a, 5, ROOT, 20, 2);      /* elsewhere */
        publish_tagged(w->a, 6, 1, 30, 1);
        fixture_check(&w->f);
        expect_dropped(w, 7, 0);
        expect_dropped(w, 5, 7);
        expect_dropped(w, 5, 0);
        expect_dropped(w, UINT64_MAX, 0);
        assert_int_equal(count_hits(w->a, 0, 3), 2);
        assert_true(is_cached(w->a, 30));
        publish_tagged(w->a, UINT64_MAX, ROOT, 40, 1);
        expect_dropped(w, UINT64_MAX, 1);
        expect_dropped(w, 6, 1);
}

/* A page that was published without a tag gets it; a page with another tag keeps that. */
SCENE(test_duplicates)
{
        publish_tagged(w->a, 0, ROOT, 0, 2);
        publish_tagged(w->a, 5, ROOT, 0, 2);
        publish_tagged(w->a, 6, ROOT, 0, 2);
        expect_dropped(w, 6, 0);
        expect_dropped(w, 5, 2);
}

static uint64_t tag_of(struct bench *w, unsigned key)
{
        uint8_t bytes[KEY_BYTES];

        make_keys(bytes, key, 1);
        return ns_extra(w->ns, ns_find_page(w->ns, bytes))->tag;
}

static bool has_extra(struct bench *w, unsigned key)
{
        uint8_t bytes[KEY_BYTES];

        make_keys(bytes, key, 1);
        return ns_note(w->ns, ns_find_page(w->ns, bytes))->has_extra;
}

/* Pages without a tag take no memory for one, and what lies there of an earlier page means nothing.
 */
SCENE(test_only_what_has_a_tag_takes_memory)
{
        memset(w->ns->records.extras, 0x55,
                w->ns->geometry.capacity_pages * sizeof(struct page_extra));
        publish_tagged(w->a, 5, ROOT, 0, 4);
        publish_tagged(w->a, 0, ROOT, 10, 1); /* the set stays bound */
        assert_true(has_extra(w, 0) && has_extra(w, 3));
        assert_false(has_extra(w, 10));
        expect_dropped(w, 5, 4);
        publish_tagged(w->a, 0, ROOT, 20, 4);
        for (unsigned i = 20; i < 24; i++) {
                assert_false(has_extra(w, i));
                assert_int_equal(tag_of(w, i), 0);
        }
        expect_dropped(w, 5, 0);
        publish_tagged(w->a, 6, ROOT, 20, 1);
        assert_true(has_extra(w, 20));
        assert_false(has_extra(w, 21));
        expect_dropped(w, 6, 4);
}

SCENE(test_pages_that_go)
{
        uint64_t n;

        for (unsigned i = 0; i < 3; i++)
                publish_tagged(w->a, 5, ROOT, i, 1);
        evict(w->a, 1); /* the middle one, the first, the last */
        fixture_check(&w->f);
        evict(w->a, 2);
        fixture_check(&w->f);
        evict(w->a, 0);
        fixture_check(&w->f);
        publish_tagged(w->a, 5, ROOT, 10, 2);
        assert_int_equal(ns_invalidate(w->ns, CAUSE_NAMESPACE, &n), 0);
        fixture_check(&w->f);
        expect_dropped(w, 5, 0);
        publish_tagged(w->a, 5, ROOT, 10, 2);
        while (ns_sweep(w->ns, 1))
                fixture_check(&w->f);
        idle_sets_drain(&w->f.store);
        expect_dropped(w, 5, 2);
}

/* The page is pinned: it can't be found, and its reader keeps it. */
TEST(test_pinned)
{
        uint8_t key[KEY_BYTES];
        uint32_t page, n;
        uint64_t tokens;
        struct bench w;

        begin(&w);
        publish_tagged(w.a, 5, ROOT, 0, 1);
        make_keys(key, 0, 1);
        assert_int_equal(
                lookup_pages(w.a, &(struct lookup_request){key, 1, 1}, &page, &n, &tokens, NULL),
                0);
        expect_dropped(&w, 5, 1);
        assert_int_equal(ns_page(w.ns, page)->state, PAGE_DETACHED);
        assert_int_equal(release_pages(w.a, &page, 1, 1, NULL), 0);
        end(&w);
}

SCENE(test_moved)
{
        uint32_t page, to = 7;

        publish_tagged(w->a, 5, ROOT, 0, 3);
        for (page = 0; page < 3; page++) {
                tag_moved(w->ns, page, to);
                assert_int_equal(ns_extra(w->ns, to)->tag, 5);
                assert_int_equal(ns_extra(w->ns, page)->tag, 0);
                tag_moved(w->ns, to, page);
        }
        expect_dropped(w, 5, 3);
}

TEST(test_no_memory)
{
        uint32_t page, sealed, n_sealed;
        uint8_t bytes[KEY_BYTES];
        struct publish p = {.pages = &page, .keys = bytes, .n = 1, .last_tokens = PAGE_TOKENS};
        struct bench w;
        int r = -1;

        begin(&w);
        for (uint64_t tag = 1; tag < 20; tag++, r = -1) {
                p.tag = tag;
                make_keys(bytes, (unsigned)tag, 1);
                assert_int_equal(lease_pages(w.a, 1, 1, &page, NULL), 0);
                for (unsigned n = 1; r != 0; n++) {
                        alloc_fail_at(n);
                        r = publish_pages(w.a, &p, 1, &sealed, &n_sealed, NULL);
                        assert_int_equal(r, alloc_fail_end() ? -ENOMEM : 0);
                        assert_int_equal(
                                ns_page(w.ns, page)->state, r == 0 ? PAGE_SEALED : PAGE_GRANTED);
                        fixture_check(&w.f);
                }
                assert_int_equal(release_pages(w.a, &sealed, 1, 1, NULL), 0);
        }
        for (uint64_t tag = 1; tag < 20; tag++)
                expect_dropped(&w, tag, 1);
        end(&w);
}

/* ---- SHM_OP_WITH ----------------------------------------------------------------------------- */

static struct submit_result submit(struct bench *w, const struct shm_submission *s)
{
        struct submit_result result;

        submit_one(w->m, &w->chain, s, 1, &result);
        assert_null(result.violation);
        return result;
}

static void with(struct bench *w, const struct attach *a, uint32_t session, uint64_t tag)
{
        const struct shm_submission s = {
                .op = SHM_OP_WITH, .ns_id = a->id, .page = session, .with = {.tag = tag}};

        assert_false(submit(w, &s).completes);
}

/* A page of one attachment; flags as of the op. Returns the status. */
static uint32_t publish_with(
        struct bench *w, struct attach *a, unsigned key, uint8_t flags, uint32_t aux)
{
        struct shm_submission s = {.op = SHM_OP_PUBLISH,
                .flags = flags,
                .ns_id = a->id,
                .tokens = PAGE_TOKENS,
                .aux = aux};
        struct submit_result result;

        assert_int_equal(lease_pages(a, 1, 1, &s.page, NULL), 0);
        pins_add(&a->share, s.page);
        make_keys(s.key, key, 1);
        result = submit(w, &s);
        atomic_fetch_sub(&a->share.counters[s.page], 1);
        if (result.status == 0)
                assert_int_equal(result.page, s.page);
        else
                assert_int_equal(free_pages(a, &s.page, 1, NULL), 0);
        fixture_check(&w->f);
        return result.status;
}

static uint32_t publish(struct bench *w, struct attach *a, unsigned key, uint8_t flags)
{
        return publish_with(w, a, key, flags, 0);
}

static void parent(struct bench *w, const struct attach *a, unsigned key)
{
        struct shm_submission s = {.op = SHM_OP_PARENT, .ns_id = a->id};

        make_keys(s.key, key, 1);
        assert_false(submit(w, &s).completes);
}

#define ROOT_PAGE  SHM_PUBLISH_ROOT
#define CHAIN_PAGE SHM_PUBLISH_CHAIN

SCENE(test_with)
{
        const struct shm_submission end_request = {.op = SHM_OP_REQUEST_END, .ns_id = 1};
        struct attach *y;
        uint32_t s;

        y = open_ns(w->m, "y");
        assert_int_equal(attach_share(w->a, NULL), 0);
        assert_int_equal(attach_share(y, NULL), 0);
        s = open_session(w->a, "s");
        with(w, w->a, s, 5);
        assert_int_equal(publish(w, w->a, 0, ROOT_PAGE), 0);
        assert_int_equal(publish(w, w->a, 1, CHAIN_PAGE), 0);
        parent(w, w->a, 0);
        assert_int_equal(publish(w, w->a, 2, CHAIN_PAGE), 0);
        expect_pages(w->a, s, "0@0 2@1");
        assert_true(tag_of(w, 0) == 5 && tag_of(w, 1) == 5 && tag_of(w, 2) == 5);
        /* Up to anything else, a WITH that says nothing, or another namespace. */
        (void)submit(w, &end_request);
        assert_int_equal(publish(w, w->a, 3, ROOT_PAGE), 0);
        assert_int_equal(tag_of(w, 3), 0);
        with(w, w->a, s, 5);
        with(w, w->a, 0, 0);
        assert_int_equal(publish(w, w->a, 4, ROOT_PAGE), 0);
        assert_int_equal(tag_of(w, 4), 0);
        with(w, w->a, s, 5);
        assert_int_equal(publish(w, y, 5, ROOT_PAGE), 0);
        assert_int_equal(publish(w, w->a, 6, ROOT_PAGE), 0);
        assert_int_equal(tag_of(w, 6), 0);
        expect_pages(w->a, s, "0@0 2@1");
        /* A WITH breaks a chain like any other submission. */
        with(w, w->a, s, 0);
        assert_int_equal(publish(w, w->a, 7, CHAIN_PAGE), status_to_wire(KVL_STATUS_NO_PARENT));
}

static void expect_victim(struct bench *w, unsigned key)
{
        uint8_t bytes[KEY_BYTES];

        make_keys(bytes, key, 1);
        assert_int_equal(
                w->ns->evict->victim(w->ns->policy, 0, EVICT_DROP, 3), ns_find_page(w->ns, bytes));
}

/* Over the socket and by the ring they are the next to go, until they are found. */
SCENE(test_window_passed)
{
        const struct publish passed = {.window_passed = true};

        publish_tagged(w->a, 0, ROOT, 0, 1);
        publish_as(w->a, passed, ROOT, 1, 1);
        publish_tagged(w->a, 0, ROOT, 2, 1);
        expect_victim(w, 1);
        assert_int_equal(count_hits(w->a, 1, 1), 1);
        expect_victim(w, 0);
        assert_int_equal(attach_share(w->a, NULL), 0);
        assert_int_equal(publish(w, w->a, 3, ROOT_PAGE), 0);
        assert_int_equal(publish_with(w, w->a, 4, ROOT_PAGE, SHM_PUBLISH_PASSED), 0);
        expect_victim(w, 4);
        /* Bits that this daemon doesn't know. */
        assert_int_equal(publish_with(w, w->a, 5, ROOT_PAGE, ~(uint32_t)SHM_PUBLISH_PASSED), 0);
        expect_victim(w, 4);
}

SCENE(test_with_what_is_not_there)
{
        struct shm_submission nowhere = {.op = SHM_OP_WITH, .ns_id = 99, .page = 1};
        uint32_t s;

        assert_int_equal(attach_share(w->a, NULL), 0);
        (void)submit(w, &nowhere);
        with(w, w->a, 12345, 5);
        assert_int_equal(publish(w, w->a, 0, ROOT_PAGE), status_to_wire(-ENOENT));
        assert_int_equal(publish(w, w->a, 1, CHAIN_PAGE), status_to_wire(-ENOENT));
        s = open_session(w->a, "s");
        with(w, w->a, s, 0);
        assert_int_equal(publish(w, w->a, 0, ROOT_PAGE), 0);
        assert_int_equal(session_close(w->a, s, true, 1, NULL), 0);
        assert_int_equal(publish(w, w->a, 1, ROOT_PAGE), status_to_wire(-ENOENT));
        member_set_read_only(w->m, true);
        with(w, w->a, s, 5);
        nowhere = (struct shm_submission){
                .op = SHM_OP_PUBLISH, .ns_id = w->a->id, .flags = ROOT_PAGE, .tokens = PAGE_TOKENS};
        assert_int_equal(submit(w, &nowhere).status, status_to_wire(-EACCES));
}

/* A text that goes on after the gap, as a client does it. */
SCENE(test_truncated)
{
        uint32_t s;

        assert_int_equal(attach_share(w->a, NULL), 0);
        s = open_session(w->a, "s");
        append(w->a, s, ROOT, 0, 6);
        truncate_pages(w->a, s, 1, 1, 4);
        with(w, w->a, s, 5);
        parent(w, w->a, 5);
        assert_int_equal(publish(w, w->a, 6, CHAIN_PAGE), 0);
        assert_int_equal(publish(w, w->a, 7, CHAIN_PAGE), 0);
        expect_pages(w->a, s, "0@0 5@5 6@6 7@7");
        /* Nothing of it is found by tag either. */
        expect_dropped(w, 5, 0);
        parent(w, w->a, 5);
        assert_int_equal(publish(w, w->a, 8, CHAIN_PAGE), 0);
        expect_pages(w->a, s, "0@0 5@5 8@6");
        with(w, w->a, 0, 0);
        parent(w, w->a, 8);
        assert_int_equal(publish(w, w->a, 9, CHAIN_PAGE), status_to_wire(KVL_STATUS_NO_PARENT));
}

/* A repeated request, which the previous daemon may have executed: the page has the tag. */
SCENE(test_published_again)
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
        assert_int_equal(publish_pages(w->a, &p, 1, sealed, &n, NULL), 0);
        fixture_check(&w->f);
        /* Nor does what was invalidated since get into a list. */
        assert_int_equal(ns_invalidate(w->ns, CAUSE_NAMESPACE, &n_dropped), 0);
        assert_int_equal(n_dropped, 2);
        for (unsigned i = 0; i < 2; i++)
                tag_store(w->ns, pages[i], 0); /* as recovery leaves it */
        assert_int_equal(publish_pages(w->a, &p, 1, sealed, &n, NULL), 0);
        expect_dropped(w, 5, 0);
        assert_int_equal(release_pages(w->a, sealed, 2, 1, NULL), 0);
}
