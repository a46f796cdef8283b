/*
 * Clients that break the protocol: each is disconnected and counted. (One that maps memory is
 * muted: integration/test_group.c.) A good client works throughout; the daemon's memory and
 * descriptors don't change.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/macros.h"
#include "proto/status.h"
#include "tests/fault/good.h"
#include "tests/fault/raw.h"
#include "tests/integration/pattern.h"

#define GROWTH_MAX_KIB \
        (24 * 1024) /* a peer may queue 1 MiB; the rest is the allocator's. Not tuned */

static const struct private_tenant few[] = {
        {"a", "limit = 16MiB\nmax_clients = 8\n"}, {NULL, NULL}};
static const struct private_options few_clients = {.tenants = few};
/* For clients that connect faster than a slow daemon (valgrind) sees the last ones end. */
static const struct private_tenant roomy[] = {
        {"a", "limit = 16MiB\nmax_clients = 512\nmax_connects = 1000000\n"}, {NULL, NULL}};
static const struct private_options many_clients = {.tenants = roomy};

/* A client's limit of pins. */
#define PINS_MAX 1000
static const struct private_tenant few_pins[] = {
        {"a", "limit = 16MiB\nmax_pins = 1000\n"}, {NULL, NULL}};
static const struct private_options pinned = {.tenants = few_pins};

static const struct private_options challenge = {.daemon_lines = "liveness = challenge\n"};

/* ---- one violation each ---- */

static void garbage(struct raw *r)
{
        char junk[4096];

        memset(junk, 0xa5, sizeof(junk));
        raw_send(r, junk, sizeof(junk), 0);
}

static void http(struct raw *r)
{
        static const char text[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

        raw_send(r, text, sizeof(text) - 1, 0);
}

static void too_long(struct raw *r)
{
        raw_frame(r, (struct frame_header){.type = MSG_HELLO, .length = 1 << 20});
}

static void before_hello(struct raw *r)
{
        raw_frame(r, (struct frame_header){.type = MSG_LEASE});
}

static void lie_about_fds(struct raw *r)
{
        raw_frame(r, (struct frame_header){.type = MSG_HELLO, .fd_count = 3});
}

static void many_fds_declared(struct raw *r)
{
        raw_frame(r, (struct frame_header){.type = MSG_HELLO, .fd_count = 0xffff});
}

static void wrong_version(struct raw *r)
{
        raw_attach(r);
        raw_frame(r, (struct frame_header){.version = 9, .type = MSG_LEASE});
}

static void no_message(struct raw *r)
{
        uint8_t buf[FRAME_HEADER_SIZE + 32];
        struct frame_header header = {
                .magic = FRAME_MAGIC, .version = 1, .type = MSG_LEASE, .length = 32, .seq = 99};

        raw_attach(r);
        frame_encode_header(&header, buf);
        memset(buf + FRAME_HEADER_SIZE, 0xff, 32);
        raw_send(r, buf, sizeof(buf), 0);
}

static void admin_on_tenant(struct raw *r)
{
        raw_attach(r);
        raw_frame(r, (struct frame_header){.type = MSG_ADMIN_STATUS});
}

static void no_reply_to_lease(struct raw *r)
{
        raw_attach(r);
        raw_frame(r, (struct frame_header){.type = MSG_LEASE, .flags = FRAME_NO_REPLY});
}

static void reply_flag(struct raw *r)
{
        raw_attach(r);
        raw_frame(r, (struct frame_header){.type = MSG_LEASE, .flags = FRAME_REPLY});
}

static void reserved_flag(struct raw *r)
{
        raw_attach(r);
        raw_frame(r, (struct frame_header){.type = MSG_LEASE, .flags = 1 << 15});
}

static const struct {
        const char *name;
        void (*fn)(struct raw *r);
} violations[] = {
        {"garbage", garbage},
        {"http", http},
        {"too-long", too_long},
        {"before-hello", before_hello},
        {"lie-about-fds", lie_about_fds},
        {"many-fds-declared", many_fds_declared},
        {"wrong-version", wrong_version},
        {"no-message", no_message},
        {"admin-on-tenant", admin_on_tenant},
        {"no-reply-to-lease", no_reply_to_lease},
        {"reply-flag", reply_flag},
        {"reserved-flag", reserved_flag},
};

HARNESS_TEST(test_violations, &few_clients)
{
        struct good good;
        struct raw r;

        good_start(&good, h, "a");
        for (unsigned i = 0; i < ARRAY_SIZE(violations); ++i) {
                raw_open(&r, h, NULL);
                violations[i].fn(&r);
                if (!raw_hung_up(&r))
                        fail_msg("%s: not disconnected", violations[i].name);
                if (ctl_status(h, "violations") != i + 1)
                        fail_msg("%s: not counted", violations[i].name);
                raw_close(&r);
                good_round(&good);
        }
        h->violations = ARRAY_SIZE(violations);
        good_stop(&good);
}

/* ---- what is refused politely ---- */

/* A type from a newer client is answered, and the connection stays. */
HARNESS_TEST(test_unknown_type, NULL)
{
        struct raw r;

        raw_open(&r, h, NULL);
        raw_attach(&r);
        assert_true(raw_frame(&r, (struct frame_header){.type = 4711}));
        assert_int_equal(
                ((const Kvlease__V1__SimpleReply *)raw_answer(&r))->status, WIRE_UNSUPPORTED);
        assert_true(raw_frame(&r, (struct frame_header){.type = MSG_BYE}));
        assert_int_equal(((const Kvlease__V1__SimpleReply *)raw_answer(&r))->status, WIRE_OK);
        raw_close(&r);
}

/* Pages and namespaces that belong to others. */
HARNESS_TEST(test_wrong_objects, NULL)
{
        static uint32_t pages[] = {0, 1, 0x7fffffff, UINT32_MAX};
        Kvlease__V1__FreeRequest free_pages = KVLEASE__V1__FREE_REQUEST__INIT;
        Kvlease__V1__MapRequest map = KVLEASE__V1__MAP_REQUEST__INIT;
        Kvlease__V1__LeaseRequest lease = KVLEASE__V1__LEASE_REQUEST__INIT;
        struct raw r;

        raw_open(&r, h, NULL);
        free_pages.ns_id = map.ns_id = raw_attach(&r);
        free_pages.pages = pages;
        free_pages.n_pages = ARRAY_SIZE(pages);
        raw_request(&r, MSG_FREE, 0, &free_pages.base);
        assert_int_equal(((const Kvlease__V1__SimpleReply *)raw_answer(&r))->status, WIRE_INVALID);
        map.set_index = 0xfffffff0;
        raw_request(&r, MSG_MAP, 0, &map.base);
        assert_int_not_equal(((const Kvlease__V1__MapReply *)raw_answer(&r))->status, WIRE_OK);
        map.set_index = 0;
        map.first_plane = 0xffffffff;
        raw_request(&r, MSG_MAP, 0, &map.base);
        assert_int_not_equal(((const Kvlease__V1__MapReply *)raw_answer(&r))->status, WIRE_OK);
        lease.ns_id = 12345;
        lease.n_pages = 1;
        raw_request(&r, MSG_LEASE, 0, &lease.base);
        assert_int_not_equal(((const Kvlease__V1__LeaseReply *)raw_answer(&r))->status, WIRE_OK);
        lease.ns_id = map.ns_id;
        lease.n_pages = UINT32_MAX;
        raw_request(&r, MSG_LEASE, 0, &lease.base);
        assert_int_not_equal(((const Kvlease__V1__LeaseReply *)raw_answer(&r))->status, WIRE_OK);
        raw_close(&r);
}

/* Sends the request with each '\1' of its texts replaced by `byte`; returns the answer's status. */
static uint32_t status_with(struct raw *r, uint16_t type, uint8_t byte, const ProtobufCMessage *m)
{
        static uint8_t buf[FRAME_MAX_SIZE];
        int n = msg_pack(buf, 1, type, 0, ++r->seq, 0, m);
        unsigned n_replaced = 0;

        for (int i = FRAME_HEADER_SIZE + 1; i < n - 1; i++)
                if (memcmp(buf + i - 1, "a\1b", 3) == 0) {
                        buf[i] = byte;
                        n_replaced++;
                }
        assert_true(n_replaced > 0);
        assert_true(raw_send(r, buf, (size_t)n, 0));
        /* Every reply begins with its status. */
        return ((const Kvlease__V1__SimpleReply *)raw_answer(r))->status;
}

/* Unpacked, a name ends at its first NUL: another name would then open the namespace. */
HARNESS_TEST(test_texts, NULL)
{
        static const uint8_t bytes[] = {'\0', '\n', 0x1b, 0x7f, 0xff};
        Kvlease__V1__NsOpenRequest open = KVLEASE__V1__NS_OPEN_REQUEST__INIT;
        Kvlease__V1__HelloRequest hello = KVLEASE__V1__HELLO_REQUEST__INIT;
        Kvlease__V1__NsLayout layout = KVLEASE__V1__NS_LAYOUT__INIT;
        struct raw r;

        layout.dtype = 1;
        layout.n_layers = layout.n_kv_heads = layout.head_size = 1;
        layout.page_tokens = 16;
        layout.n_planes = layout.tp_size = 1;
        layout.plane_page_bytes = 4096;
        open.layout = &layout;
        raw_open(&r, h, NULL);
        raw_attach(&r);
        for (size_t i = 0; i < ARRAY_SIZE(bytes); i++) {
                open.name = (char *)"a\1b";
                layout.model = (char *)"model";
                assert_int_equal(status_with(&r, MSG_NS_OPEN, bytes[i], &open.base), WIRE_INVALID);
                open.name = (char *)"new";
                layout.model = (char *)"a\1b";
                assert_int_equal(status_with(&r, MSG_NS_OPEN, bytes[i], &open.base), WIRE_INVALID);
        }
        assert_int_equal(status_with(&r, MSG_NS_OPEN, '-', &open.base), WIRE_OK);
        raw_close(&r);
        /* Bytes other than NUL in a client's own name are made printable. */
        hello.min_version = hello.max_version = 1;
        hello.client_name = (char *)"a\1b";
        raw_open(&r, h, NULL);
        assert_int_equal(status_with(&r, MSG_HELLO, '\0', &hello.base), WIRE_INVALID);
        assert_true(raw_hung_up(&r));
        raw_close(&r);
        raw_open(&r, h, NULL);
        assert_int_equal(status_with(&r, MSG_HELLO, 0x1b, &hello.base), WIRE_OK);
        raw_close(&r);
        h->violations = ctl_status(h, "violations");
        assert_int_equal(h->violations, 0);
}

/* A client of another protocol version gets an answer that says which side to upgrade. */
HARNESS_TEST(test_version, NULL)
{
        const Kvlease__V1__HelloReply *hello;
        struct raw r;

        raw_open(&r, h, NULL);
        hello = raw_hello(&r, 2, 3);
        assert_non_null(hello);
        assert_int_equal(hello->status, WIRE_VERSION);
        assert_int_equal(hello->min_version, PROTO_VERSION_MIN);
        assert_int_equal(hello->max_version, PROTO_VERSION_MAX);
        assert_non_null(strstr(hello->detail, "upgrade kvleased"));
        assert_true(raw_hung_up(&r));
        raw_close(&r);
        raw_open(&r, h, NULL);
        hello = raw_hello(&r, 1, 7);
        assert_non_null(hello);
        assert_int_equal(hello->status, WIRE_OK);
        assert_int_equal(hello->version, 1);
        raw_close(&r);
        raw_open(&r, h, NULL);
        hello = raw_hello(&r, 3, 2); /* no range at all: no upgrade would help */
        assert_non_null(hello);
        assert_int_equal(hello->status, WIRE_INVALID);
        assert_non_null(strstr(hello->detail, "min_version 3 is larger than max_version 2"));
        assert_true(raw_hung_up(&r));
        raw_close(&r);
}

/* A client that doesn't prove its process gets nothing. */
HARNESS_TEST(test_unproven, &challenge)
{
        Kvlease__V1__LookupRequest lookup = KVLEASE__V1__LOOKUP_REQUEST__INIT;
        Kvlease__V1__AuthRequest auth = KVLEASE__V1__AUTH_REQUEST__INIT;
        const Kvlease__V1__HelloReply *hello;
        const Kvlease__V1__SimpleReply *reply;
        uint8_t nonce[16] = {0};
        struct raw r;

        raw_open(&r, h, NULL);
        hello = raw_hello(&r, 1, 1);
        assert_non_null(hello);
        assert_int_equal(hello->status, WIRE_OK);
        assert_true(hello->auth_required);
        assert_true(raw_request(&r, MSG_LOOKUP, 0, &lookup.base));
        assert_int_equal(((const Kvlease__V1__LookupReply *)raw_answer(&r))->status, WIRE_DENIED);
        auth.nonce = (ProtobufCBinaryData){sizeof(nonce), nonce};
        assert_true(raw_request(&r, MSG_AUTH, 0, &auth.base));
        reply = (const Kvlease__V1__SimpleReply *)raw_answer(&r);
        assert_true(!reply || reply->status != WIRE_OK);
        raw_close(&r);
        h->violations = ctl_status(h, "violations");
}

/* ---- what goes on and on ---- */

static void assert_memory(struct harness *h, int64_t before_kib)
{
        int64_t now = proc_status_value(h->daemon.pid, "RssAnon");

        if (private_measures_memory() && now > before_kib + GROWTH_MAX_KIB)
                fail_msg("the daemon grew from %lld KiB to %lld KiB", (long long)before_kib,
                        (long long)now);
}

/* Frames without an end, and silent clients. */
HARNESS_TEST(test_half_frames, &few_clients)
{
        uint8_t buf[FRAME_HEADER_SIZE + 100] = {0};
        struct frame_header header = {
                .magic = FRAME_MAGIC, .version = 1, .type = MSG_HELLO, .length = 60000, .seq = 1};
        struct raw raws[6];
        struct good good;

        good_start(&good, h, "a");
        frame_encode_header(&header, buf);
        for (unsigned i = 0; i < ARRAY_SIZE(raws); ++i) {
                raw_open(&raws[i], h, NULL);
                assert_true(i == 0 || raw_send(&raws[i], buf, i * 20, 0));
        }
        good_round(&good);
        for (unsigned i = 0; i < ARRAY_SIZE(raws); ++i)
                raw_close(&raws[i]);
        good_stop(&good);
}

/* Sends as long as possible. Returns true if the daemon stopped reading, false if it hung up. */
static bool flood(struct raw *r, const uint8_t *frame, size_t len, uint64_t *ret_sent)
{
        struct pollfd p = {r->fd, POLLOUT, 0};

        for (*ret_sent = 0; *ret_sent < UINT64_C(200) << 20; *ret_sent += len) {
                if (poll(&p, 1, 500) == 0)
                        return true;
                if (!raw_send(r, frame, len, 0))
                        return errno == EAGAIN;
        }
        fail_msg("200 MiB of requests were read from somebody who reads no answers");
        return false;
}

HARNESS_TEST(test_flood, &few_clients)
{
        int64_t before = proc_status_value(h->daemon.pid, "RssAnon");
        Kvlease__V1__LookupRequest lookup = KVLEASE__V1__LOOKUP_REQUEST__INIT;
        uint8_t frame[FRAME_MAX_SIZE], key[32] = {1};
        unsigned n_raws = private_short() ? 1 : 4;
        struct raw raws[4];
        struct good good;
        uint64_t sent;
        int n;

        good_start(&good, h, "a");
        for (unsigned i = 0; i < n_raws; ++i) {
                raw_open(&raws[i], h, NULL);
                lookup.ns_id = raw_attach(&raws[i]);
                lookup.keys = (ProtobufCBinaryData){sizeof(key), key};
                n = msg_pack(frame, 1, MSG_LOOKUP, 0, 7, 0, &lookup.base);
                assert_true(n > 0);
                assert_int_equal(fcntl(raws[i].fd, F_SETFL, O_NONBLOCK), 0);
                flood(&raws[i], frame, (size_t)n, &sent);
                print_message("%llu bytes were taken\n", (unsigned long long)sent);
                good_round(&good);
        }
        assert_memory(h, before);
        for (unsigned i = 0; i < n_raws; ++i)
                raw_close(&raws[i]);
        good_stop(&good);
        h->violations = ctl_status(h, "violations");
}

/* Namespaces cost the daemon memory, so their number is limited. */
HARNESS_TEST(test_many_namespaces, NULL)
{
        int64_t before = proc_status_value(h->daemon.pid, "RssAnon");
        struct worker *w = worker_start(h, "a", "ns", 1);
        unsigned n = 0, most = private_short() ? 100 : 5000;

        while (n < most && worker_ask(w, "open ns%u 1", n) == 0)
                n++;
        print_message("%u namespaces\n", n);
        assert_memory(h, before);
}

HARNESS_TEST(test_many_clients, &few_clients)
{
        const Kvlease__V1__HelloReply *hello;
        struct raw raws[12];
        unsigned n_accepted = 0;
        struct good good;

        good_start(&good, h, "a");
        for (unsigned i = 0; i < ARRAY_SIZE(raws); ++i) {
                raw_open(&raws[i], h, NULL);
                hello = raw_hello(&raws[i], 1, 1);
                assert_non_null(hello);
                n_accepted += hello->status == WIRE_OK;
                assert_true(hello->status == WIRE_OK || hello->status == WIRE_TOO_MANY);
        }
        assert_int_equal(n_accepted, 7); /* the good one is the eighth */
        for (unsigned i = 0; i < ARRAY_SIZE(raws); ++i)
                raw_close(&raws[i]);
        good_stop(&good);
}

/* After BYE no request is served. */
HARNESS_TEST(test_after_bye, NULL)
{
        const Kvlease__V1__LeaseReply *reply;
        Kvlease__V1__LeaseRequest lease = KVLEASE__V1__LEASE_REQUEST__INIT;
        struct raw r;

        raw_open(&r, h, NULL);
        lease.ns_id = raw_attach(&r);
        lease.n_pages = 4;
        raw_frame(&r, (struct frame_header){.type = MSG_BYE});
        assert_non_null(raw_answer(&r));
        raw_request(&r, MSG_LEASE, 0, &lease.base);
        reply = (const Kvlease__V1__LeaseReply *)raw_answer(&r);
        assert_true(!reply || reply->status != WIRE_OK);
        assert_int_equal(ctl_status(h, "pages_granted"), 0);
        raw_close(&r);
        h->violations = ctl_status(h, "violations");
}

/* Valid traffic with bytes changed at random: the daemon stays intact. */
static void mutate(struct raw *r, uint64_t *random)
{
        Kvlease__V1__LeaseRequest lease = KVLEASE__V1__LEASE_REQUEST__INIT;
        uint8_t buf[FRAME_MAX_SIZE];
        int n;

        lease.ns_id = 1;
        lease.n_pages = 3;
        for (unsigned i = 0; i < 20; ++i) {
                n = msg_pack(
                        buf, 1, (uint16_t)(pattern_next(random) % 80), 0, i + 1, 0, &lease.base);
                assert_true(n > 0);
                for (unsigned k = (unsigned)(pattern_next(random) % 4); k > 0; --k)
                        buf[pattern_next(random) % (unsigned)n] = (uint8_t)pattern_next(random);
                /* A client with a pin segment stays until its process exits, which is this one. */
                if (buf[6] == MSG_NS_SHARE)
                        continue;
                if (!raw_send(r, buf, (size_t)n, 0))
                        return;
        }
}

HARNESS_TEST(test_mutations, &many_clients)
{
        int64_t before = proc_status_value(h->daemon.pid, "RssAnon");
        unsigned n = private_full() ? 20000 : private_under_valgrind() ? 50 : 500;
        uint64_t random = harness_seed();
        struct good good;
        struct raw r;

        good_start(&good, h, "a");
        for (unsigned i = 0; i < n; ++i) {
                raw_open(&r, h, NULL);
                if (pattern_next(&random) % 4)
                        raw_attach(&r);
                mutate(&r, &random);
                raw_close(&r);
                if (i % 100 == 0)
                        good_round(&good);
        }
        good_stop(&good);
        assert_memory(h, before);
        h->violations = ctl_status(h, "violations");
        assert_true(h->violations > 0);
}

/* ---- pins ---- */

static uint32_t publish_one(struct raw *r, uint32_t ns_id, uint8_t *key)
{
        Kvlease__V1__LeaseRequest lease = KVLEASE__V1__LEASE_REQUEST__INIT;
        Kvlease__V1__PublishRequest m = KVLEASE__V1__PUBLISH_REQUEST__INIT;
        const Kvlease__V1__LeaseReply *leased;
        uint32_t page;

        lease.ns_id = m.ns_id = ns_id;
        lease.n_pages = m.n_pages = 1;
        assert_true(raw_request(r, MSG_LEASE, 0, &lease.base));
        leased = (const Kvlease__V1__LeaseReply *)raw_answer(r);
        assert_true(leased && leased->status == WIRE_OK);
        page = leased->pages[0];
        m.pages = &page;
        m.keys = (ProtobufCBinaryData){KVL_KEY_BYTES, key};
        m.last_tokens = 1;
        assert_true(raw_request(r, MSG_PUBLISH, 0, &m.base));
        assert_int_equal(((const Kvlease__V1__PublishReply *)raw_answer(r))->status, WIRE_OK);
        return page;
}

/* One key, as often as a frame takes, then FETCHes of its page. The limit holds and is named. Other
 * clients aren't affected. */
HARNESS_TEST(test_pins, &pinned)
{
        static uint8_t keys[PINS_MAX * KVL_KEY_BYTES];
        Kvlease__V1__LookupRequest lookup = KVLEASE__V1__LOOKUP_REQUEST__INIT;
        Kvlease__V1__FetchRequest fetch = KVLEASE__V1__FETCH_REQUEST__INIT;
        const Kvlease__V1__FetchReply *fetched;
        const Kvlease__V1__LookupReply *found;
        uint32_t pages[256], n_pins = 1;
        struct good good;
        struct raw r;

        good_start(&good, h, "a");
        raw_open(&r, h, NULL);
        lookup.ns_id = fetch.ns_id = raw_attach(&r);
        pages[0] = publish_one(&r, lookup.ns_id, keys);
        for (unsigned i = 1; i < ARRAY_SIZE(pages); i++)
                pages[i] = pages[0];
        lookup.keys = (ProtobufCBinaryData){sizeof(keys), keys};
        assert_true(raw_request(&r, MSG_LOOKUP, 0, &lookup.base));
        found = (const Kvlease__V1__LookupReply *)raw_answer(&r);
        assert_int_equal(found->status, WIRE_QUOTA);
        assert_non_null(strstr(found->detail, "kvleasectl tenants set a max_pins="));
        fetch.pages = pages;
        fetch.n_pages = ARRAY_SIZE(pages);
        for (; n_pins + ARRAY_SIZE(pages) <= PINS_MAX; n_pins += ARRAY_SIZE(pages)) {
                assert_true(raw_request(&r, MSG_FETCH, 0, &fetch.base));
                fetched = (const Kvlease__V1__FetchReply *)raw_answer(&r);
                assert_int_equal(fetched->status, WIRE_OK);
                assert_int_equal(fetched->statuses[255], WIRE_OK);
        }
        assert_true(raw_request(&r, MSG_FETCH, 0, &fetch.base));
        assert_int_equal(((const Kvlease__V1__FetchReply *)raw_answer(&r))->status, WIRE_QUOTA);
        good_round(&good);
        raw_close(&r);
        good_stop(&good);
}

int main(void)
{
        /*
         * meson sets it; calloc() then touches all its memory, and the daemon's size means nothing.
         */
        unsetenv("MALLOC_PERTURB_");
        return test_run_all(NULL, NULL);
}
