/*
 * Pages that deep layers keep of a text, against a library that this file plays. Checks the pages
 * that are given up, the calls to the session, and that no page stays held.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <kvlease.h>

#include "client/examples/decoder/deep.h"
#include "client/examples/decoder/scores.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/test-support.h"

enum { CAPACITY = 16, MAX_PAGES = 12, N_MOST = 4, PAGE_TOKENS = 8, TENSOR_BYTES = 64 };
enum { N_LAYERS = 3, N_DEEP = 2, N_TENSORS = 2 * N_DEEP, N_COLUMNS = 2 * N_LAYERS };

enum use { USE_FREE, USE_LEASED, USE_CACHED };

static struct {
        enum use use[CAPACITY];
        int pins[CAPACITY];
        uint8_t keys[CAPACITY][KVL_KEY_BYTES];
        unsigned char memory[N_TENSORS * CAPACITY * TENSOR_BYTES];
        uint32_t n_planes;
        int n_calls, n_open, n_sessions, n_dropped;
        char name[DEEP_NAME_BYTES];
        const char *next_fn; /* which returns next_code instead */
        int next_code;
        char ranges[128]; /* in tokens, as kvl_session_keep() was told last */
        int n_keeps;
        uint32_t n_given_up; /* what it says next */
} lib;

static unsigned char *tensors[MAX_PAGES * N_COLUMNS];
static struct model_kv kv;
static uint8_t keys[MAX_PAGES + 1][KVL_KEY_BYTES];

static int injected(const char *fn)
{
        lib.n_calls++;
        if (!lib.next_fn || strcmp(lib.next_fn, fn) != 0)
                return 0;
        lib.next_fn = NULL;
        return lib.next_code;
}

static void inject(const char *fn, int code)
{
        lib.next_fn = fn;
        lib.next_code = code;
}

static int setup(void **state)
{
        memset(&lib, 0, sizeof(lib));
        memset(tensors, 0, sizeof(tensors));
        memset(&kv, 0, sizeof(kv));
        for (uint32_t i = 0; i <= MAX_PAGES; i++)
                memset(keys[i], (int)i + 1, KVL_KEY_BYTES);
        return test_fds_note(state);
}

/* ---- the library ----------------------------------------------------------------------------- */

int kvl_ns_open_with(struct kvl_conn *conn, const char *name, const struct kvl_layout *layout,
        const struct kvl_ns_options *options, struct kvl_ns **ret_ns)
{
        int r = injected("ns_open");

        assert_ptr_equal(conn, &lib);
        assert_string_equal(options->set, "text");
        assert_int_equal(options->set_size, DEEP_SET_SIZE);
        assert_string_equal(options->device, "host");
        if (r)
                return r;
        snprintf(lib.name, sizeof(lib.name), "%s", name);
        lib.n_planes = layout->n_planes;
        lib.n_open++;
        *ret_ns = (struct kvl_ns *)(void *)&lib;
        return 0;
}

void kvl_ns_close(struct kvl_ns *ns)
{
        lib.n_open--;
}

void *kvl_page_ptr(const struct kvl_ns *ns, uint32_t page, uint32_t plane)
{
        uint32_t plane_bytes = N_TENSORS / lib.n_planes * TENSOR_BYTES;

        assert_true(page < CAPACITY && plane < lib.n_planes);
        assert_true(lib.use[page] == USE_LEASED || lib.pins[page] > 0);
        return lib.memory + ((size_t)plane * CAPACITY + page) * plane_bytes;
}

int kvl_session_open(struct kvl_ns *ns, const void *id, size_t id_bytes,
        const struct kvl_session_options *options, struct kvl_session_info *info,
        struct kvl_session **ret_session)
{
        int r = injected("session_open");

        assert_in_range(id_bytes, 1, KVL_SESSION_ID_MAX);
        if (r)
                return r;
        lib.n_sessions++;
        *ret_session = (struct kvl_session *)(void *)&lib;
        return 0;
}

int kvl_session_close(struct kvl_session *session, int drop)
{
        lib.n_sessions--;
        lib.n_dropped += drop;
        return injected("session_close");
}

int kvl_session_keep(struct kvl_session *session, const struct kvl_token_range *ranges,
        uint32_t n_ranges, uint32_t *ret_n_pages)
{
        size_t at = 0;

        assert_true(n_ranges > 0);
        lib.n_keeps++;
        for (uint32_t i = 0; i < n_ranges; i++) {
                assert_true(ranges[i].first_token < ranges[i].end_token);
                at += (size_t)snprintf(lib.ranges + at, sizeof(lib.ranges) - at, "%s%llu-%llu",
                        i ? " " : "", (unsigned long long)ranges[i].first_token,
                        (unsigned long long)ranges[i].end_token);
                assert_true(at < sizeof(lib.ranges));
        }
        *ret_n_pages = lib.n_given_up;
        return injected("session_keep");
}

#include "lab/decoder/decoder-library.h"

int kvl_publish(struct kvl_ns *ns, const struct kvl_publish *publish, uint32_t *ret_pages,
        uint32_t *ret_n_pages)
{
        int r = injected("publish");

        assert_int_equal(publish->n_pages, 1);
        assert_int_equal(publish->last_tokens, PAGE_TOKENS);
        assert_ptr_equal(publish->session, &lib);
        assert_int_equal(lib.use[publish->pages[0]], USE_LEASED);
        return r ? r : publish_page(publish, ret_pages);
}

/* ---- a text ---------------------------------------------------------------------------------- */

static struct deep_options deep_options_of(struct kvl_conn *conn)
{
        return (struct deep_options){
                .conn = conn,
                .layout = {.size = sizeof(struct kvl_layout),
                        .page_tokens = PAGE_TOKENS,
                        .n_planes = 1,
                        .plane_page_bytes = N_TENSORS * TENSOR_BYTES},
                .ns_name = "text",
                .device = "host",
                .tensors = tensors,
                .tensor_bytes = TENSOR_BYTES,
                .n_layers = N_LAYERS,
                .n_deep = N_DEEP,
                .max_pages = MAX_PAGES,
                .n_most = N_MOST,
        };
}

static struct deep *open_with(struct deep_options options)
{
        struct deep *d = NULL;

        assert_int_equal(deep_open(&options, &d), 0);
        return d;
}

/* Over the library, or in private memory, whose user enters its pages in the table. */
static struct deep *open_over(bool uses_library)
{
        return open_with(deep_options_of(uses_library ? (struct kvl_conn *)(void *)&lib : NULL));
}

static void begin_text(struct deep *d, uint32_t n_keys, uint32_t n_expected)
{
        uint32_t n = 99;

        assert_int_equal(deep_begin(d, n_keys ? keys[1] : NULL, n_keys, &n), 0);
        assert_int_equal(n, n_expected);
}

/* One more page, `page` of the text. In private memory its owner has entered it before. */
static int extend_text(struct deep *d, uint32_t page)
{
        static unsigned char private[MAX_PAGES];

        if (lib.n_open == 0)
                for (uint32_t i = 0; i < N_COLUMNS; i++)
                        tensors[page * N_COLUMNS + i] = &private[page];
        return deep_extend(d, &kv);
}

/* Pages [first, end); the first n_published of them are published when they are full. */
static void grow_text(struct deep *d, uint32_t first, uint32_t end, uint32_t n_published)
{
        for (uint32_t page = first; page < end; page++) {
                assert_int_equal(extend_text(d, page), 0);
                if (page - first < n_published)
                        assert_int_equal(deep_publish(d, page, keys), 0);
        }
}

/* Sets the attention that each page got so far, the same in both deep layers. */
static void set_masses(const float *mass, uint32_t n)
{
        assert_non_null(kv.scores);
        for (uint32_t page = 0; page < n; page++)
                for (uint32_t layer = N_LAYERS - N_DEEP; layer < N_LAYERS; layer++)
                        scores_set_mass(kv.scores, layer, page, mass[page]);
}

/* The pages of the first n that the table has for the deep layers, as digits. */
static void check_kept(uint32_t n, const char *expected)
{
        char kept[MAX_PAGES + 1];
        uint32_t n_kept = 0;

        for (uint32_t page = 0; page < n; page++) {
                unsigned char **row = tensors + (size_t)page * N_COLUMNS;
                uint32_t first = 2 * (N_LAYERS - N_DEEP);

                for (uint32_t i = first; i < N_COLUMNS; i++)
                        assert_int_equal(row[i] == NULL, row[first] == NULL);
                if (row[first])
                        kept[n_kept++] = (char)('0' + page);
        }
        kept[n_kept] = 0;
        assert_string_equal(kept, expected);
}

static unsigned count_leased(void)
{
        unsigned n = 0;

        for (int i = 0; i < CAPACITY; i++)
                n += lib.use[i] == USE_LEASED;
        return n;
}

static int count_pins(void)
{
        int n = 0;

        for (int i = 0; i < CAPACITY; i++)
                n += lib.pins[i];
        return n;
}

static void end_text(struct deep *d)
{
        assert_int_equal(deep_end(d), 0);
        assert_int_equal(count_leased(), 0);
        assert_int_equal(count_pins(), 0);
        assert_int_equal(lib.n_sessions, 0);
}

/* ---- opening --------------------------------------------------------------------------------- */

TEST_WITH(test_opens_a_namespace_of_the_set, setup, test_fds_check, NULL)
{
        struct deep_options options = deep_options_of((struct kvl_conn *)(void *)&lib);
        struct deep *d = open_with(options);

        assert_string_equal(lib.name, "text-deep");
        assert_int_equal(deep_first(d), N_MOST / 2);
        assert_int_equal(deep_n_given_up(d), 0);
        /* Invalidated between two texts, or in one: then its session went with it. */
        assert_int_equal(deep_reopen(d), 0);
        begin_text(d, 0, 0);
        inject("session_close", -ENOENT);
        assert_int_equal(deep_reopen(d), 0);
        assert_int_equal(lib.n_open, 1);
        assert_int_equal(lib.n_sessions, 0);
        inject("ns_open", KVL_DRAINING);
        assert_int_equal(deep_reopen(d), KVL_DRAINING);
        assert_int_equal(lib.n_open, 0);
        deep_close(d);
        deep_close(NULL);

        inject("ns_open", KVL_LAYOUT);
        d = NULL;
        assert_int_equal(deep_open(&options, &d), KVL_LAYOUT);
        assert_null(d);
}

TEST_WITH(test_without_memory, setup, test_fds_check, NULL)
{
        struct deep_options options = deep_options_of((struct kvl_conn *)(void *)&lib);

        alloc_fail_each(n)
        {
                struct deep *d = NULL;
                int r = deep_open(&options, &d);

                assert_int_equal(r, alloc_fail_happened() ? -ENOMEM : 0);
                assert_int_equal(lib.n_open, r == 0);
                if (r == 0)
                        deep_close(d);
                else
                        assert_null(d);
        }
}

TEST_WITH(test_tensors_are_where_planes_are, setup, test_fds_check, NULL)
{
        static const uint32_t n_planes[] = {1, N_TENSORS};

        for (size_t i = 0; i < ARRAY_SIZE(n_planes); i++) {
                struct deep_options options = deep_options_of((struct kvl_conn *)(void *)&lib);
                uint32_t page = CAPACITY - 1; /* that is leased first */
                struct deep *d;

                options.layout.n_planes = n_planes[i];
                d = open_with(options);
                begin_text(d, 0, 0);
                grow_text(d, 0, 1, 0);
                for (uint32_t t = 0; t < N_TENSORS; t++) {
                        size_t at = n_planes[i] == 1 ? (size_t)page * N_TENSORS + t
                                                     : (size_t)t * CAPACITY + page;

                        assert_ptr_equal(tensors[2 * (N_LAYERS - N_DEEP) + t],
                                lib.memory + at * TENSOR_BYTES);
                }
                assert_null(tensors[0]); /* the other layers' are whose they are */
                assert_null(tensors[1]);
                end_text(d);
                deep_close(d);
        }
}

/* ---- which pages are kept -------------------------------------------------------------------- */

TEST_WITH(test_no_page_and_one, setup, test_fds_check, NULL)
{
        struct deep *d = open_over(true);

        begin_text(d, 0, 0);
        assert_int_equal(lib.n_sessions, 1);
        end_text(d);
        assert_int_equal(lib.n_dropped, 1);
        begin_text(d, 3, 0); /* nothing is cached */
        grow_text(d, 0, 1, 1);
        check_kept(1, "0");
        assert_null(kv.scores);
        assert_int_equal(count_pins(), 1);
        end_text(d);
        assert_int_equal(deep_n_given_up(d), 0);
        deep_close(d);
}

/* With the maximum no page is given up; with one more, one is. */
TEST_WITH(test_all_are_kept, setup, test_fds_check, NULL)
{
        static const float mass[N_MOST] = {3, 1, 2, 0};
        struct deep *d = open_over(true);

        begin_text(d, 0, 0);
        grow_text(d, 0, 2, 2);
        assert_null(kv.scores); /* attention counts from page deep_first() on */
        grow_text(d, 2, N_MOST, 2);
        check_kept(N_MOST, "0123");
        assert_int_equal(lib.n_keeps, 0);
        set_masses(mass, N_MOST);
        lib.n_given_up = 1;
        grow_text(d, N_MOST, N_MOST + 1, 1);
        check_kept(N_MOST + 1, "0234");
        assert_int_equal(deep_n_given_up(d), 1);
        end_text(d);
        deep_close(d);
}

/* Page `gone` goes of the first four, by what each of them got. */
static void check_gone(struct deep *d, const float mass[N_MOST], const char *expected)
{
        begin_text(d, 0, 0);
        grow_text(d, 0, N_MOST, 0);
        set_masses(mass, N_MOST);
        grow_text(d, N_MOST, N_MOST + 1, 0);
        check_kept(N_MOST + 1, expected);
        assert_int_equal(deep_n_given_up(d), 1);
        assert_int_equal(deep_end(d), 0);
}

TEST_WITH(test_which_page_goes, setup, test_fds_check, NULL)
{
        static const struct {
                float mass[N_MOST];
                const char *kept;
        } cases[] = {
                {{1, 2, 3, 4}, "1234"},
                {{3, 2, 1, 4}, "0134"},
                {{3, 2, 1, 0}, "0134"}, /* the newest quarter stays */
                {{2, 1, 1, 9}, "0234"}, /* of equals the oldest goes */
                {{0, 0, 0, 0}, "1234"},
                {{NAN, 2, 1, 4}, "0134"}, /* what is no number isn't less than one */
                {{NAN, NAN, 1, 4}, "0134"},
                {{NAN, NAN, NAN, NAN}, "1234"},
                {{INFINITY, 1, NAN, 4}, "0234"},
                {{INFINITY, INFINITY, INFINITY, 4}, "1234"},
        };

        for (unsigned uses_library = 0; uses_library < 2; uses_library++) {
                struct deep *d = open_over(uses_library);

                for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
                        check_gone(d, cases[i].mass, cases[i].kept);
                deep_close(d);
                if (!uses_library)
                        assert_int_equal(lib.n_calls, 0);
        }
}

/* Only the sum over all deep layers counts. */
TEST_WITH(test_the_sum_over_deep_layers_counts, setup, test_fds_check, NULL)
{
        struct deep *d = open_over(false);

        begin_text(d, 0, 0);
        grow_text(d, 0, N_MOST, 0);
        for (uint32_t page = 0; page < N_MOST; page++) {
                scores_set_mass(kv.scores, 0, page, page == 2 ? 0 : 100);
                scores_set_mass(kv.scores, 1, page, page == 0 ? 0 : 2);
                scores_set_mass(kv.scores, 2, page, page == 1 ? 1 : 4);
        }
        grow_text(d, N_MOST, N_MOST + 1, 0); /* 4, 3, 6, 6 */
        check_kept(N_MOST + 1, "0234");
        assert_int_equal(deep_end(d), 0);
        deep_close(d);
}

/* Values of an earlier text, even if they are no numbers, are forgotten with it. */
TEST_WITH(test_texts_know_nothing_of_each_other, setup, test_fds_check, NULL)
{
        static const float before[N_MOST] = {INFINITY, 5, NAN, NAN};
        struct deep *d = open_over(false);

        begin_text(d, 0, 0);
        grow_text(d, 0, N_MOST, 0);
        set_masses(before, N_MOST);
        assert_int_equal(deep_end(d), 0);
        begin_text(d, 0, 0);
        assert_int_equal(deep_n_given_up(d), 0);
        grow_text(d, 0, N_MOST, 0);
        for (uint32_t page = 0; page < N_MOST; page++)
                for (uint32_t layer = 0; layer < N_LAYERS; layer++)
                        assert_true(scores_mass(kv.scores, layer, page) == 0.0f);
        assert_int_equal(deep_end(d), 0);
        deep_close(d);
}

/* ---- what the session is told ---------------------------------------------------------------- */

TEST_WITH(test_the_session_keeps_ranges, setup, test_fds_check, NULL)
{
        static const float first[] = {3, 1, 2, 0}, second[] = {9, 0, 1, 9, 9};
        struct deep *d = open_over(true);

        begin_text(d, 0, 0);
        grow_text(d, 0, N_MOST, N_MOST);
        set_masses(first, N_MOST);
        lib.n_given_up = 1;
        grow_text(d, N_MOST, N_MOST + 1, 1);
        assert_string_equal(lib.ranges, "0-8 16-32"); /* page 1 went */
        set_masses(second, N_MOST + 1);
        grow_text(d, N_MOST + 1, N_MOST + 2, 1);
        assert_string_equal(lib.ranges, "0-8 24-40"); /* and page 2 */
        check_kept(N_MOST + 2, "0345");
        assert_int_equal(deep_n_given_up(d), 2);
        assert_int_equal(count_pins(), N_MOST);
        end_text(d);
        deep_close(d);
}

/* Others are truncated at the time: what goes is told with the next one. */
TEST_WITH(test_ranges_that_are_told_later, setup, test_fds_check, NULL)
{
        static const float mass[] = {1, 2, 3, 4, 5};
        struct deep *d = open_over(true);

        begin_text(d, 0, 0);
        grow_text(d, 0, N_MOST, N_MOST);
        set_masses(mass, N_MOST);
        inject("session_keep", -EAGAIN);
        grow_text(d, N_MOST, N_MOST + 1, 1);
        assert_int_equal(deep_n_given_up(d), 0);
        check_kept(N_MOST + 1, "1234");
        set_masses(mass, N_MOST + 1);
        lib.n_given_up = 2;
        grow_text(d, N_MOST + 1, N_MOST + 2, 1);
        assert_string_equal(lib.ranges, "16-40");
        assert_int_equal(deep_n_given_up(d), 2);

        set_masses(mass, N_MOST + 1);
        inject("session_keep", -ENOTCONN);
        assert_int_equal(deep_extend(d, &kv), -ENOTCONN);
        deep_close(d);
}

/* The session doesn't know private pages. Without a page it gets no ranges. */
TEST_WITH(test_pages_that_are_not_published, setup, test_fds_check, NULL)
{
        static const float mass[] = {1, 2, 3, 4, 5};
        struct deep *d = open_over(true);

        begin_text(d, 0, 0);
        grow_text(d, 0, 1, 1);
        assert_int_equal(extend_text(d, 1), 0);
        inject("publish", KVL_NO_PARENT);
        assert_int_equal(deep_publish(d, 1, keys), KVL_NO_PARENT);
        grow_text(d, 2, N_MOST, 0);
        set_masses(mass, N_MOST);
        grow_text(d, N_MOST, N_MOST + 1, 0); /* page 0, which is all that the session has */
        check_kept(N_MOST + 1, "1234");
        assert_int_equal(count_pins(), 0);
        set_masses(mass, N_MOST + 1);
        grow_text(d, N_MOST + 1, N_MOST + 2, 0);
        check_kept(N_MOST + 2, "2345");
        assert_int_equal(count_leased(), N_MOST);
        assert_int_equal(lib.n_keeps, 0);
        assert_int_equal(deep_n_given_up(d), 1);
        end_text(d);
        deep_close(d);
}

TEST_WITH(test_private_memory_is_not_published, setup, test_fds_check, NULL)
{
        struct deep *d = open_over(false);

        begin_text(d, 5, 0);
        grow_text(d, 0, 2, 2);
        check_kept(2, "01");
        assert_int_equal(deep_end(d), 0);
        assert_int_equal(lib.n_calls, 0);
        deep_close(d);
}

/* ---- what is cached -------------------------------------------------------------------------- */

TEST_WITH(test_cached_pages_are_entered, setup, test_fds_check, NULL)
{
        struct deep *d = open_over(true), *other = open_over(true);

        begin_text(d, 0, 0);
        grow_text(d, 0, 3, 2);
        begin_text(other, 3, 2);
        check_kept(3, "012");
        assert_int_equal(count_pins(), 4);
        /* Another worker was faster: its page is used, and ours is free again. */
        assert_int_equal(deep_publish(d, 2, keys), 0);
        assert_int_equal(extend_text(other, 2), 0);
        assert_int_equal(count_leased(), 1);
        assert_int_equal(deep_publish(other, 2, keys), 0);
        assert_int_equal(count_leased(), 0);
        assert_int_equal(lib.pins[CAPACITY - 3], 2);
        assert_ptr_equal(tensors[2 * N_COLUMNS + 2],
                lib.memory + (size_t)(CAPACITY - 3) * N_TENSORS * TENSOR_BYTES);
        assert_int_equal(deep_end(other), 0);
        end_text(d);
        deep_close(other);
        deep_close(d);
}

TEST_WITH(test_what_fails_is_returned, setup, test_fds_check, NULL)
{
        struct deep *d = open_over(true);
        uint32_t n = 99;

        inject("session_open", KVL_STALE);
        assert_int_equal(deep_begin(d, keys[1], 1, &n), KVL_STALE);
        assert_int_equal(n, 0);
        inject("lookup", -ENOTCONN);
        assert_int_equal(deep_begin(d, keys[1], 1, &n), -ENOTCONN);
        assert_int_equal(n, 0);
        end_text(d);

        begin_text(d, 0, 0);
        inject("lease", KVL_QUOTA);
        assert_int_equal(deep_extend(d, &kv), KVL_QUOTA);
        grow_text(d, 0, 2, 1); /* as if nothing had been */
        check_kept(2, "01");
        inject("publish", KVL_STALE);
        assert_int_equal(deep_publish(d, 1, keys), KVL_STALE);
        /* The first that fails is said, and the rest is given back all the same. */
        inject("release", -EIO);
        assert_int_equal(deep_end(d), -EIO);
        assert_int_equal(count_leased() + (unsigned)count_pins(), 0);
        assert_int_equal(lib.n_sessions, 0);
        begin_text(d, 0, 0);
        inject("session_close", -ENOTCONN);
        assert_int_equal(deep_end(d), -ENOTCONN);
        deep_close(d);
}

#define DEEP_TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, test_fds_check)
