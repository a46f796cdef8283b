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

static void expect_dropped(struct bench *w, uint64_t tag, unsigned n_expected)
{
        uint64_t n = 77;

        assert_int_equal(invalidate_tag(w->a, tag, &n, NULL), 0);
        assert_int_equal(n, n_expected);
        fixture_check(&w->f);
}

static uint64_t tag_of(struct bench *w, unsigned key)
{
        uint8_t bytes[KEY_BYTES];

        make_keys(bytes, key, 1);
        return ns_extra(w->ns, ns_find_page(w->ns, bytes))->tag;
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
