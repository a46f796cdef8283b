#include <sys/stat.h>
#include <unistd.h>

#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/clients/pin.h"
#include "daemon/core/core.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/state/pin-counts.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/core-fixture.h"

TEST(test_bad_requests)
{
        struct attach *a, *b;
        struct fixture f;
        uint8_t keys[2 * KEY_BYTES];
        uint32_t pages[2], got[2], twice[2], n = 9, far = 1000000;
        struct publish p = {.pages = pages, .keys = keys, .n = 2, .last_tokens = 1};

        fixture_start(&f, 8, 4, 4);
        a = enter(f.a, "x");
        b = enter(f.a, "x");
        make_keys(keys, 0, 2);
        assert_int_equal(lease_pages(a, 2, 1, pages, &f.d), 0);
        assert_int_equal(lease_pages(a, 0, 1, got, &f.d), -EINVAL);
        assert_int_equal(publish_pages(b, &p, 1, got, &n, &f.d), -EINVAL);
        assert_int_equal(n, 0);
        assert_non_null(strstr(f.d.text, "another group"));
        assert_int_equal(free_pages(b, pages, 1, &f.d), -EINVAL);
        assert_int_equal(free_pages(a, &far, 1, &f.d), -EINVAL);
        assert_non_null(strstr(f.d.text, "page 1000000"));
        assert_int_equal(release_pages(a, &far, 1, 1, &f.d), -EINVAL);
        twice[0] = twice[1] = pages[0];
        assert_int_equal(free_pages(a, twice, 2, &f.d), -EINVAL);
        assert_int_equal(ns_page(a->ns, pages[0])->state, PAGE_GRANTED);
        p.last_tokens = PAGE_TOKENS + 1;
        assert_int_equal(publish_pages(a, &p, 1, got, &n, &f.d), -EINVAL);
        p.last_tokens = 0;
        assert_int_equal(publish_pages(a, &p, 1, got, &n, &f.d), -EINVAL);
        p.last_tokens = 1;
        p.parent_key = keys + KEY_BYTES;
        assert_int_equal(publish_pages(a, &p, 1, got, &n, &f.d), KVL_STATUS_NO_PARENT);
        p.parent_key = NULL;
        p.pages = twice; /* the second time it is sealed: stops there */
        assert_int_equal(publish_pages(a, &p, 1, got, &n, &f.d), -EINVAL);
        assert_int_equal(n, 1);
        assert_int_equal(release_pages(a, twice, 2, 1, &f.d), -EINVAL);
        assert_int_equal(a->member->n_pins, 1);
        fixture_end(&f);
}

#define N_PAGES 100

TEST(test_pin_counts)
{
        struct pin_counts c = {0};

        assert_int_equal(pin_counts_get(&c, 0), 0);
        pin_counts_prefetch(&c, 0);
        assert_int_equal(pin_counts_reserve(&c, N_PAGES), 0);
        pin_counts_add(&c, 7, 1);
        pin_counts_add(&c, 7, 2);
        pin_counts_add(&c, N_PAGES - 1, 1);
        assert_int_equal(c.n_pinned, 2);
        /* Once more: nothing is lost. */
        assert_int_equal(pin_counts_reserve(&c, N_PAGES), 0);
        assert_int_equal(pin_counts_get(&c, 7), 3);
        assert_int_equal(pin_counts_get(&c, N_PAGES), 0);
        assert_int_equal(pin_counts_get(&c, UINT32_MAX), 0);
        pin_counts_prefetch(&c, UINT32_MAX);
        pin_counts_drop(&c, 7, 1);
        assert_int_equal(pin_counts_get(&c, 7), 2);
        assert_int_equal(c.n_pinned, 2);
        pin_counts_drop(&c, 7, 2);
        assert_int_equal(pin_counts_get(&c, 7), 0);
        assert_int_equal(c.n_pinned, 1);
        pin_counts_deinit(&c);
        assert_int_equal(pin_counts_get(&c, N_PAGES - 1), 0);
}

/* A page with two pins can have two releases under way; both count until they end. */
TEST(test_pin_release)
{
        struct pin_counts c = {0};

        assert_int_equal(pin_counts_reserve(&c, N_PAGES), 0);
        pin_counts_add(&c, 7, 2);
        assert_false(pin_counts_begin_release(&c, 6));
        assert_false(pin_counts_begin_release(&c, N_PAGES));
        assert_true(pin_counts_begin_release(&c, 7));
        assert_true(pin_counts_begin_release(&c, 7));
        assert_false(pin_counts_begin_release(&c, 7));
        assert_int_equal(pin_counts_get(&c, 7), 2);
        pin_counts_cancel_release(&c, 7);
        pin_counts_release(&c, 7);
        assert_int_equal(pin_counts_get(&c, 7), 1);
        assert_int_equal(c.n_pinned, 1);
        assert_true(pin_counts_begin_release(&c, 7));
        pin_counts_release(&c, 7);
        assert_int_equal(pin_counts_get(&c, 7), 0);
        assert_int_equal(c.n_pinned, 0);
        pin_counts_add(&c, 7, PAGE_MAX_CLIENT_PINS);
        for (uint32_t i = 0; i < PAGE_MAX_CLIENT_PINS; i++)
                assert_true(pin_counts_begin_release(&c, 7));
        assert_false(pin_counts_begin_release(&c, 7));
        pin_counts_deinit(&c);
}

/* Keys of one page, n times. */
static void repeat_key(uint8_t *keys, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++)
                make_keys(keys + (size_t)i * KEY_BYTES, 0, 1);
}

/* More of one page than a client may have: refused, and nothing of the request is done. */
TEST(test_pins_of_a_page)
{
        enum { RUN = 64 };
        uint8_t keys[RUN * KEY_BYTES];
        uint32_t page, dup, got[RUN], n;
        struct publish p = {.pages = &dup, .keys = keys, .n = 1, .last_tokens = 1};
        struct fixture f;
        struct attach *a;
        uint64_t tokens;

        fixture_start(&f, 8, 4, 4);
        a = enter(f.a, "x");
        publish_chain(a, 0, 1, &page);
        assert_int_equal(lease_pages(a, 1, 1, &dup, NULL), 0);
        repeat_key(keys, RUN);
        while (a->member->n_pins + RUN <= PAGE_MAX_CLIENT_PINS)
                assert_int_equal(lookup_pages(a, &(struct lookup_request){keys, RUN, 1}, got, &n,
                                         &tokens, &f.d),
                        0);
        assert_int_equal(a->member->n_pins, (PAGE_MAX_CLIENT_PINS - 1) / RUN * RUN + 1);
        assert_int_equal(
                lookup_pages(a, &(struct lookup_request){keys, RUN, 1}, got, &n, &tokens, &f.d),
                KVL_STATUS_QUOTA);
        assert_non_null(strstr(f.d.text, "the 65535 that a client may have of a page: release"));
        while (a->member->n_pins < PAGE_MAX_CLIENT_PINS)
                assert_int_equal(lookup_pages(a, &(struct lookup_request){keys, 1, 1}, got, &n,
                                         &tokens, &f.d),
                        0);
        assert_int_equal(
                lookup_pages(a, &(struct lookup_request){keys, 1, 1}, got, &n, &tokens, &f.d),
                KVL_STATUS_QUOTA);
        assert_int_equal(publish_pages(a, &p, 1, got, &n, &f.d), KVL_STATUS_QUOTA);
        assert_int_equal(ns_page(a->ns, dup)->state, PAGE_GRANTED);
        assert_int_equal(ns_page(a->ns, page)->n_pins, PAGE_MAX_CLIENT_PINS);
        fixture_end(&f);
}

/* Over all pages of the client, as its tenant's max_pins has it. */
TEST(test_pins_of_a_client)
{
        uint8_t keys[3 * KEY_BYTES];
        uint32_t pages[3], got[3], n;
        struct publish p = {.pages = pages, .keys = keys, .n = 3, .last_tokens = 1};
        struct fixture f;
        struct attach *a, *b;
        uint64_t tokens;

        fixture_start(&f, 8, 4, 4);
        a = enter(f.a, "x");
        f.a->attrs.max_pins = 4;
        make_keys(keys, 0, 3);
        assert_int_equal(lease_pages(a, 3, 1, pages, NULL), 0);
        assert_int_equal(publish_pages(a, &p, 1, got, &n, &f.d), 0);
        assert_int_equal(
                lookup_pages(a, &(struct lookup_request){keys, 2, 1}, got, &n, &tokens, &f.d),
                KVL_STATUS_QUOTA);
        assert_string_equal(f.d.text,
                "this client has 3 pins, and 2 more would be beyond the 4 that a client of tenant "
                "a may have: release some, or raise it with: kvleasectl tenants set a max_pins=...");
        assert_int_equal(n, 0);
        assert_int_equal(a->member->n_pins, 3);
        assert_int_equal(
                lookup_pages(a, &(struct lookup_request){keys, 1, 1}, got, &n, &tokens, &f.d), 0);
        /* Published pages would be pinned, too: none is published. */
        assert_int_equal(lease_pages(a, 3, 1, pages, NULL), 0);
        make_keys(keys, 10, 3);
        assert_int_equal(publish_pages(a, &p, 1, got, &n, &f.d), KVL_STATUS_QUOTA);
        assert_int_equal(n, 0);
        assert_int_equal(ns_page(a->ns, pages[0])->state, PAGE_GRANTED);
        /* Another client has pins of its own, and a release makes room again. */
        b = enter(f.a, "x");
        make_keys(keys, 0, 3);
        assert_int_equal(
                lookup_pages(b, &(struct lookup_request){keys, 3, 1}, got, &n, &tokens, &f.d), 0);
        assert_int_equal(release_pages(a, got, 1, 1, &f.d), 0);
        assert_int_equal(
                lookup_pages(a, &(struct lookup_request){keys, 1, 1}, got, &n, &tokens, &f.d), 0);
        fixture_end(&f);
}

/* Pins that are added to others are pins like any: by client, and by page. */
CORE_SCENE(test_pinned_again, 8, 4, 4)
{
        uint32_t page, got, n, many[1024];
        uint8_t key[KEY_BYTES];
        struct publish p = {.pages = &page, .keys = key, .n = 1, .last_tokens = 1};
        struct attach *a = enter(f->a, "x");

        make_keys(key, 0, 1);
        assert_int_equal(lease_pages(a, 1, 1, &page, NULL), 0);
        assert_int_equal(pin_again(a, &page, 1, &f->d), -EINVAL); /* leased, not pinned */
        assert_int_equal(publish_pages(a, &p, 1, &got, &n, &f->d), 0);
        f->a->attrs.max_pins = 3;
        many[0] = many[1] = many[2] = got;
        assert_int_equal(pin_again(a, many, 3, &f->d), KVL_STATUS_QUOTA);
        assert_int_equal(a->member->n_pins, 1);
        assert_int_equal(pin_again(a, many, 2, &f->d), 0);
        assert_int_equal(a->member->n_pins, 3);
        f->a->attrs.max_pins = 0; /* then a page's own bound is there all the same */
        for (unsigned i = 0; i < ARRAY_SIZE(many); i++)
                many[i] = got;
        while (a->member->n_pins + ARRAY_SIZE(many) <= PAGE_MAX_CLIENT_PINS)
                assert_int_equal(pin_again(a, many, ARRAY_SIZE(many), &f->d), 0);
        n = (uint32_t)a->member->n_pins;
        assert_int_equal(pin_again(a, many, ARRAY_SIZE(many), &f->d), KVL_STATUS_QUOTA);
        assert_int_equal(a->member->n_pins, n);
        assert_int_equal(ns_page(a->ns, got)->n_pins, n);
}

/* A client repeats a publish for the next daemon, at its limit: the daemon reports the pages that
 * it pinned then. */
CORE_SCENE(test_repeated_publish_at_the_limit, 8, 4, 4)
{
        uint8_t keys[3 * KEY_BYTES];
        uint32_t pages[3], got[3], n;
        struct publish p = {.pages = pages, .keys = keys, .n = 3, .last_tokens = 1};
        struct attach *a = enter(f->a, "x");

        f->a->attrs.max_pins = 3;
        make_keys(keys, 0, 3);
        assert_int_equal(lease_pages(a, 3, 1, pages, NULL), 0);
        assert_int_equal(publish_pages(a, &p, 1, got, &n, &f->d), 0);
        a->member->repeats = true;
        assert_int_equal(publish_pages(a, &p, 1, got, &n, &f->d), 0);
        assert_int_equal(n, 3);
        assert_int_equal(a->member->n_pins, 3);
}

/* A client asks again for what it published in part for the daemon before this one. What it
 * published, and reads, has left the index since, so that nothing can continue it. */
TEST(test_repeated_publish_without_its_parent)
{
        uint8_t keys[3 * KEY_BYTES];
        uint32_t pages[3], got[3], n;
        struct publish p = {.pages = pages, .keys = keys, .n = 2, .last_tokens = PAGE_TOKENS};
        struct fixture f;
        struct attach *a;
        uint64_t n_gone;

        fixture_start(&f, 8, 4, 4);
        a = enter(f.a, "x");
        make_keys(keys, 0, 3);
        assert_int_equal(lease_pages(a, 3, 1, pages, NULL), 0);
        assert_int_equal(publish_pages(a, &p, 1, got, &n, &f.d), 0);
        assert_int_equal(invalidate_key(a, keys, &n_gone, &f.d), 0);
        assert_int_equal(ns_page(a->ns, pages[1])->state, PAGE_DETACHED);
        a->member->repeats = true;
        p.n = 3;
        assert_int_equal(publish_pages(a, &p, 1, got, &n, &f.d), KVL_STATUS_NO_PARENT);
        assert_int_equal(n, 2);
        assert_int_equal(a->member->n_pins, 2);
        assert_int_equal(ns_page(a->ns, pages[2])->state, PAGE_GRANTED);
        fixture_end(&f);
}

CORE_SCENE(test_open_refusals, 8, 4, 4)
{
        struct ns_layout l = test_layout();
        struct member *m;
        struct attach *a, *b;

        m = join(f->a);
        a = open_ns(m, "x");
        assert_int_equal(attach_open(m, "x", &l, "", false, &b, &f->d), -EEXIST);
        assert_int_equal(attach_open(m, "../x", &l, "", false, &b, &f->d), -EINVAL);
        assert_int_equal(attach_open(m, "y", &l, "gpu9", false, &b, &f->d), -ENOENT);
        l.page_tokens = 0;
        assert_int_equal(attach_open(m, "y", &l, "", false, &b, &f->d), -EINVAL);
        f->store.draining = true;
        l = test_layout();
        assert_int_equal(attach_open(m, "y", &l, "", false, &b, &f->d), KVL_STATUS_DRAINING);
        f->store.draining = false;
        attach_close(a);
        assert_int_equal(attach_open(m, "x", &l, "", true, &b, &f->d), KVL_STATUS_LAYOUT);
}

CORE_SCENE(test_device_failure_leaves_nothing, 8, 8, 8)
{
        struct ns_layout l = test_layout();
        struct member *m;
        struct attach *a;
        uint32_t pages[16];

        m = join(f->a);
        l.n_planes = 3;
        assert_int_equal(attach_open(m, "x", &l, "", false, &a, &f->d), 0);
        f->device.fail_in = 5; /* the second plane of the second set */
        assert_int_equal(lease_pages(a, 4, 1, pages, &f->d), -ENOMEM);
        assert_non_null(strstr(f->d.text, "device fake"));
        idle_sets_drain(&f->store);
        assert_int_equal(f->device.n_extents, 0);
        assert_int_equal(f->a->account.charged_bytes, 0);
        assert_int_equal(lease_pages(a, 4, 1, pages, &f->d), 0);
}

CORE_SCENE(test_purge_and_remove, 8, 4, 4)
{
        struct member *m;
        struct attach *a;
        uint64_t n, n_kept;

        m = join(f->a);
        a = open_ns(m, "x");
        cache_chain(a, 0, 3);
        cache_chain(open_ns(m, "y"), 0, 2);
        assert_int_equal(store_purge(&f->store, f->a, a->ns, true, &n, &n_kept), 0);
        assert_int_equal(n, 3);
        assert_int_equal(n_kept, 1);
        assert_non_null(ns_find(f->a, "x")); /* open */
        assert_int_equal(tenant_remove(f->a, true, &f->d), -EBUSY);
        member_free(m);
        assert_int_equal(store_purge(&f->store, f->a, NULL, true, &n, &n_kept), 0);
        assert_int_equal(n, 2);
        assert_int_equal(n_kept, 0);
        assert_null(ns_find(f->a, "x"));
        assert_int_equal(f->device.n_extents, 0);
        m = join(f->a);
        cache_chain(open_ns(m, "x"), 0, 1);
        member_free(m);
        assert_int_equal(tenant_remove(f->a, false, &f->d), -EBUSY);
        assert_non_null(strstr(f->d.text, "--force"));
        assert_int_equal(tenant_remove(f->a, true, &f->d), 0);
        assert_null(tenant_find(&f->store, "a"));
}

/* Makes every call once, until one fails: any failed allocation leaves a consistent state. */
static void everything(struct fixture *f)
{
        struct tenant_attrs attrs = f->a->attrs;
        struct ns_layout l = test_layout();
        struct extent_handle handle;
        struct member *m = NULL, *other = NULL;
        struct attach *a = NULL, *b = NULL;
        uint32_t pages[12], got[12], n;
        uint8_t keys[12 * KEY_BYTES];
        uint64_t count;
        struct publish p = {.pages = pages, .keys = keys, .n = 12, .last_tokens = 1};

        make_keys(keys, 0, 12);
        if (member_new(f->a, NULL, false, &m, NULL) == 0 &&
                attach_open(m, "x", &l, "", false, &a, NULL) == 0 &&
                lease_pages(a, 12, 1, pages, NULL) == 0) {
                (void)publish_pages(a, &p, 1, got, &n, NULL);
                fixture_check(f);
                (void)lookup_pages(
                        a, &(struct lookup_request){keys, 12, 1, 1}, got, &n, &count, NULL);
                (void)attach_map_set(a, 0, 0, 1, &handle, NULL);
                (void)store_purge(&f->store, f->a, NULL, false, &count, &count);
                fixture_check(f);
                strcpy(l.version, "v2");
                if (member_new(f->a, NULL, false, &other, NULL) == 0)
                        (void)attach_open(other, "x", &l, "", false, &b, NULL);
        }
        fixture_check(f);
        if (m)
                member_free(m);
        if (other)
                member_free(other);
        attrs.limit_bytes = 0;
        (void)tenant_set_attrs(f->a, &attrs, NULL);
}

TEST(test_allocation_failures)
{
        unsigned n_failures = 0;

        for (unsigned n = 1;; n++) {
                struct fixture f;
                bool failed;

                fixture_start(&f, 8, 4, 4);
                f.may_lack_memory = true;
                alloc_fail_at(n);
                everything(&f);
                failed = alloc_fail_end();
                f.may_lack_memory = false;
                fixture_end(&f);
                n_failures += failed;
                if (!failed)
                        break;
        }
        assert_true(n_failures > 20);
}
