/* Pages exchanged as a codec stores them: two stores of daemon/core, each with its own client of
 * one real redis-server. */
/* Before cmocka, whose fail() is a macro. */
#include "tests/integration/exchange-host.h"

#include "daemon/exchange/exchange-impl.h"
#include "tests/unit/page-numbers.h"

/* Publishes the pages of a text and finds them once. Key `bad` has a value that isn't a number. */
static void compute_numbers(struct host *h, unsigned bad)
{
        uint8_t keys[N_PAGES * KEY_BYTES];
        uint32_t pages[N_PAGES], got[N_PAGES], n_got;
        struct publish p = {.pages = pages,
                .keys = keys,
                .n = N_PAGES,
                .last_tokens = h->w.ns->layout.page_tokens};

        make_keys(keys, 0, N_PAGES);
        assert_int_equal(lease_pages(h->w.attach, N_PAGES, 1, pages, NULL), 0);
        for (unsigned key = 0; key < N_PAGES; key++)
                numbers_fill(&h->w, pages[key], key);
        if (bad < N_PAGES)
                *numbers_at(&h->w, pages[bad], 1) = NUMBER_NAN;
        assert_int_equal(publish_pages(h->w.attach, &p, 1, got, &n_got, NULL), 0);
        assert_int_equal(release_pages(h->w.attach, pages, N_PAGES, 1, NULL), 0);
        assert_int_equal(count_hits(h->w.attach, 0, N_PAGES), N_PAGES);
}

/* n pages are cached, as exact as the codec allows. */
static void assert_near(struct host *h, unsigned n)
{
        assert_int_equal(count_hits(h->w.attach, 0, N_PAGES), n);
        for (unsigned key = 0; key < n; key++)
                for (uint32_t plane = 0; plane < h->w.n_planes; plane++)
                        assert_true(numbers_error(&h->w, tier_find(&h->w, key), plane, key) <=
                                    NUMBERS_INT8_OFF);
        assert_int_equal(h->w.ns->device.n_pages[PAGE_GRANTED], 0);
        assert_int_equal(h->w.ns->catalog.announced.n, 0);
}

static void start_two(struct host *a, struct host *b, const char *secret)
{
        server_start();
        host_codec = CODEC_INT8;
        host_start_with(a, true, secret);
        host_start_with(b, true, secret);
}

static void end_two(struct host *a, struct host *b)
{
        host_end(b);
        host_end(a);
        host_codec = CODEC_NONE;
        redis_cluster_deinit(&server);
}

/* The name of a text's page on the server. */
static void name_page(const struct host *h, unsigned i, char name[EXCHANGE_NAME_MAX])
{
        uint8_t key[KEY_BYTES];

        make_keys(key, i, 1);
        assert_int_equal(exchange_name_page(exchange_find_ns(h->w.ns), key, name), 0);
}

static unsigned long stored_length(const struct host *h, unsigned i)
{
        char name[EXCHANGE_NAME_MAX], *said;
        unsigned long n;

        name_page(h, i, name);
        said = redis_cluster_call(&server, 0, "--raw strlen %s", name);
        assert_non_null(said);
        n = strtoul(said, NULL, 10);
        free(said);
        return n;
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* A value in one codec is never taken for one in another. */
TEST_BARE(test_another_codec)
{
        static const enum codec others[] = {CODEC_NONE, CODEC_FP8, CODEC_INT4};
        struct host a, b;

        start_two(&a, &b, NULL);
        compute_numbers(&a, N_PAGES);
        host_await_exported(&a, N_PAGES);
        for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
                struct host other;

                host_codec = others[i];
                host_start(&other, true);
                assert_int_equal(import(&other, 0, N_PAGES, LONG_MSEC), 0);
                assert_int_equal(counters_of(&other).found_pages, 0);
                host_end(&other);
        }
        assert_int_equal(import(&b, 0, N_PAGES, LONG_MSEC), N_PAGES);
        end_two(&a, &b);
}

/* The codec can't encode a page: pages behind it are of no use to others. */
TEST_BARE(test_not_finite)
{
        const unsigned bad = 17;
        struct host a, b;

        start_two(&a, &b, NULL);
        compute_numbers(&a, bad);
        host_await_exports(&a);
        assert_int_equal(counters_of(&a).not_exported[EXCHANGE_NOT_FINITE], 1);
        assert_int_equal(import(&b, 0, N_PAGES, LONG_MSEC), bad);
        assert_near(&b, bad);
        end_two(&a, &b);
}

/* Another host writes bytes that no encoder makes, in a correct envelope. The value is counted as
 * damaged and removed. */
TEST_BARE(test_never_encoded)
{
        const unsigned bad = 17;
        struct exchange_ns *e;
        struct envelope says;
        struct one written;
        struct iovec payload;
        char name[EXCHANGE_NAME_MAX];
        uint8_t keys[2 * KEY_BYTES], *value;
        uint64_t bytes, until = clock_now_nsec() + PATIENCE_NSEC;
        struct host a, b;

        start_two(&a, &b, NULL);
        bytes = page_travel_bytes(&a.w.ns->codecs.of_pages);
        compute_numbers(&a, N_PAGES);
        host_await_exported(&a, N_PAGES);
        e = exchange_find_ns(a.w.ns);
        make_keys(keys, bad - 1, 2);
        says = exchange_envelope(e, keys + KEY_BYTES, keys);
        value = malloc(ENVELOPE_BYTES + bytes);
        assert_non_null(value);
        memset(value, 0xff, ENVELOPE_BYTES + bytes);
        payload = (struct iovec){value + ENVELOPE_BYTES, bytes};
        assert_int_equal(envelope_seal(&says, NULL, &payload, 1, NULL, value, NULL), 0);
        name_page(&a, bad, name);
        assert_int_equal(
                one_call(a.remote, REMOTE_WRITE, name, value, ENVELOPE_BYTES + bytes, &written), 0);
        free(value);
        assert_int_equal(import(&b, 0, N_PAGES, LONG_MSEC), bad);
        assert_near(&b, bad);
        assert_int_equal(counters_of(&b).not_imported[EXCHANGE_DAMAGED], N_PAGES - bad);
        while (stored_length(&a, bad) > 0) {
                assert_true(clock_now_nsec() < until);
                host_turn(&b);
        }
        end_two(&a, &b);
}
