#include "tests/unit/test-support.h"
#include "base/fd.h"
#include "proto/frame.h"
#include "proto/msg.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* One parser per test: it is too large for some stacks. */
static struct frame_parser parser;

static struct frame_header header(uint32_t length, uint16_t fd_count, uint64_t seq)
{
        return (struct frame_header){
                .magic = FRAME_MAGIC,
                .version = 1,
                .type = MSG_LEASE,
                .length = length,
                .fd_count = fd_count,
                .seq = seq,
        };
}

/* Receives bytes as the socket would: through the space that the parser gives. */
static void feed(const uint8_t *data, size_t len)
{
        while (len > 0) {
                size_t size;
                uint8_t *space = frame_parser_space(&parser, &size);
                size_t n = MIN(size, len);

                assert_true(n > 0);
                memcpy(space, data, n);
                assert_int_equal(frame_parser_fed(&parser, n, NULL, 0), 0);
                data += n;
                len -= n;
        }
}

static int feed_with_fds(const uint8_t *data, size_t len, unsigned n_fds)
{
        int fds[2 * FRAME_MAX_FDS];
        size_t size;
        uint8_t *space = frame_parser_space(&parser, &size);

        assert_true(len <= size);
        memcpy(space, data, len);
        for (unsigned i = 0; i < n_fds; i++)
                fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        return frame_parser_fed(&parser, len, fds, n_fds);
}

/* Writes a frame whose payload counts up from its seq. Returns its size. */
static size_t make_frame(uint8_t *buf, struct frame_header h)
{
        frame_encode_header(&h, buf);
        for (uint32_t i = 0; i < h.length && i < FRAME_MAX_PAYLOAD; i++)
                buf[FRAME_HEADER_SIZE + i] = (uint8_t)(h.seq + i);
        return FRAME_HEADER_SIZE + h.length;
}

static void expect_frame(uint64_t seq, uint32_t length)
{
        struct frame f;

        assert_int_equal(frame_parser_next(&parser, &f, NULL), 1);
        assert_int_equal(f.header.seq, seq);
        assert_int_equal(f.header.length, length);
        for (uint32_t i = 0; i < length; i++)
                assert_int_equal(f.payload[i], (uint8_t)(seq + i));
        frame_close_fds(&f);
}

static void expect_more_needed(void)
{
        struct frame f;

        assert_int_equal(frame_parser_next(&parser, &f, NULL), 0);
}

static void expect_error(int error, const char *rule)
{
        const char *got = NULL;
        struct frame f;

        assert_int_equal(frame_parser_next(&parser, &f, &got), error);
        assert_string_equal(got, rule);
        assert_int_equal(frame_parser_next(&parser, &f, NULL), error);
        frame_parser_deinit(&parser);
}

TEST(test_header_layout)
{
        struct frame_header h = {FRAME_MAGIC, 0x0201, 0x0403, 0x08070605, 0x0a09, 0x0c0b,
                UINT64_C(0x14131211100f0e0d)};
        uint8_t buf[FRAME_HEADER_SIZE];

        frame_encode_header(&h, buf);
        assert_memory_equal(
                buf, "KVL1\1\2\3\4\5\6\7\x8\x9\xa\xb\xc\xd\xe\xf\x10\x11\x12\x13\x14", 24);
}

TEST(test_several_at_once)
{
        static uint8_t buf[1000];
        size_t len = make_frame(buf, header(0, 0, 1));

        len += make_frame(buf + len, header(300, 0, 2));
        len += make_frame(buf + len, header(1, 0, UINT64_MAX));
        frame_parser_init(&parser);
        feed(buf, len - 1);
        expect_frame(1, 0);
        expect_frame(2, 300);
        expect_more_needed();
        feed(buf + len - 1, 1);
        expect_frame(UINT64_MAX, 1);
        expect_more_needed();
        frame_parser_deinit(&parser);
}

/* Frames of all sizes in pieces of all sizes, many times the buffer. */
TEST(test_long_stream)
{
        static uint8_t stream[8 * FRAME_MAX_SIZE];
        size_t fed = 0, len = 0;
        uint64_t seq = 0, next = 1;
        unsigned random = 1;

        while (len + FRAME_MAX_SIZE <= sizeof(stream)) {
                uint32_t size = (uint32_t)rand_r(&random) % FRAME_MAX_PAYLOAD;

                seq++;
                len += make_frame(stream + len, header(seq % 3 ? size : size % 100, 0, seq));
        }
        frame_parser_init(&parser);
        while (next <= seq) {
                size_t n = MIN((size_t)rand_r(&random) % 9000, len - fed);
                struct frame f;

                feed(stream + fed, n);
                fed += n;
                for (int r; (r = frame_parser_next(&parser, &f, NULL));) {
                        assert_int_equal(r, 1);
                        assert_int_equal(f.header.seq, next);
                        for (uint32_t i = 0; i < f.header.length; i++)
                                if (f.payload[i] != (uint8_t)(next + i))
                                        fail_msg("frame %u differs at %u", (unsigned)next, i);
                        next++;
                }
        }
        assert_int_equal(fed, len);
        frame_parser_deinit(&parser);
}

TEST(test_largest_frame_after_another)
{
        static uint8_t buf[2 * FRAME_MAX_SIZE];
        size_t small = make_frame(buf, header(60000, 0, 1));
        size_t big = make_frame(buf + small, header(FRAME_MAX_PAYLOAD, 0, 2));

        assert_int_equal(big, FRAME_MAX_SIZE);
        frame_parser_init(&parser);
        feed(buf, small + 10);
        expect_frame(1, 60000);
        expect_more_needed();
        feed(buf + small + 10, big - 10);
        expect_frame(2, FRAME_MAX_PAYLOAD);
        expect_more_needed();
        frame_parser_deinit(&parser);
}

/* Nothing of it is taken; the fds are closed. */
TEST(test_more_than_the_space)
{
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        size_t size;

        frame_parser_init(&parser);
        frame_parser_space(&parser, &size);
        assert_int_equal(frame_parser_fed(&parser, size + 1, &fd, 1), -EPROTO);
        expect_more_needed();
        frame_parser_deinit(&parser);
}

TEST(test_bad_headers)
{
        const struct frame_header good = header(0, 0, 1);
        struct {
                struct frame_header h;
                int error;
                const char *rule;
        } rows[] = {
                {good, -EPROTO, "bad-magic"},
                {good, -EPROTO, "frame-too-long"},
                {good, -EPROTO, "frame-too-long"},
                {good, -EPROTO, "fd-count"},
                {good, -EPROTONOSUPPORT, "bad-version"},
                {good, -EPROTONOSUPPORT, "bad-version"},
                {good, -EPROTO, "bad-flags"},
                {good, -EPROTO, "bad-flags"},
                {good, -EPROTO, "bad-seq"},
                {good, -EPROTO, "bad-seq"},
        };

        rows[0].h.magic ^= 1;
        rows[1].h.length = FRAME_MAX_PAYLOAD + 1;
        rows[2].h.length = UINT32_MAX;
        rows[3].h.fd_count = FRAME_MAX_FDS + 1;
        rows[4].h.version = PROTO_VERSION_MAX + 1;
        rows[5].h.version = PROTO_VERSION_MIN - 1;
        rows[6].h.flags = 1 << 3;
        rows[7].h.flags = FRAME_EVENT | FRAME_REPLY;
        rows[8].h.seq = 0;
        rows[9].h.flags = FRAME_EVENT;
        for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
                uint8_t buf[FRAME_HEADER_SIZE];

                frame_encode_header(&rows[i].h, buf);
                frame_parser_init(&parser);
                feed(buf, sizeof(buf) - 1);
                expect_more_needed();
                feed(buf + sizeof(buf) - 1, 1);
                expect_error(rows[i].error, rows[i].rule);
        }
}

TEST(test_hello_of_any_version)
{
        struct frame_header h = header(0, 0, 1);
        uint8_t buf[FRAME_HEADER_SIZE];

        h.version = 999;
        h.type = MSG_HELLO;
        frame_encode_header(&h, buf);
        frame_parser_init(&parser);
        feed(buf, sizeof(buf));
        expect_frame(1, 0);
        frame_parser_deinit(&parser);
}

TEST(test_fds_go_with_their_frame)
{
        uint8_t buf[200];
        size_t first = make_frame(buf, header(10, 0, 1));
        size_t len = first + make_frame(buf + first, header(10, 3, 2));
        struct frame f;
        size_t size;
        int taken;

        frame_parser_init(&parser);
        /* The kernel glues what carries no fds to the front of what does. */
        assert_int_equal(feed_with_fds(buf, first + 5, 3), 0);
        expect_frame(1, 10);
        expect_more_needed();
        /* Not past the header, then not past the frame: the next frame's fds must stay outside. */
        frame_parser_space(&parser, &size);
        assert_int_equal(size, FRAME_HEADER_SIZE - 5);
        feed(buf + first + 5, FRAME_HEADER_SIZE - 5);
        expect_more_needed();
        frame_parser_space(&parser, &size);
        assert_int_equal(size, 10);
        feed(buf + len - 10, 10);
        assert_int_equal(frame_parser_next(&parser, &f, NULL), 1);
        assert_int_equal(f.header.fd_count, 3);
        taken = fd_take(&f.fds[1]);
        assert_int_equal(fcntl(taken, F_GETFD), FD_CLOEXEC);
        frame_close_fds(&f);
        assert_int_equal(f.fds[0], -1);
        frame_close_fds(&f);
        assert_int_equal(fcntl(taken, F_GETFD), FD_CLOEXEC);
        fd_close(taken);
        frame_parser_space(&parser, &size);
        assert_true(size > 1000);
        frame_parser_deinit(&parser);
}

/* A frame with fds whose rest is longer than the tail of the buffer, though that isn't short. */
TEST(test_rest_of_a_frame_with_fds_fits)
{
        static uint8_t buf[2 * FRAME_MAX_SIZE];
        size_t first = make_frame(buf, header(40000, 0, 1)), size;
        size_t len = first + make_frame(buf + first, header(30000, 1, 2));
        uint8_t *space;

        frame_parser_init(&parser);
        assert_int_equal(feed_with_fds(buf, first + FRAME_HEADER_SIZE, 1), 0);
        expect_frame(1, 40000);
        expect_more_needed();
        space = frame_parser_space(&parser, &size);
        assert_int_equal(size, 30000);
        assert_true(space + size <= parser.buf + sizeof(parser.buf));
        feed(buf + len - 30000, 30000);
        expect_frame(2, 30000);
        frame_parser_deinit(&parser);
}

TEST(test_wrong_fds)
{
        struct frame_header h = header(0, 0, 1);
        uint8_t buf[FRAME_HEADER_SIZE];

        frame_parser_init(&parser);
        h.fd_count = 2;
        frame_encode_header(&h, buf);
        assert_int_equal(feed_with_fds(buf, sizeof(buf), 1), 0);
        expect_error(-EPROTO, "fd-count");
        assert_int_equal(feed_with_fds(buf, sizeof(buf), 3), 0);
        expect_error(-EPROTO, "fd-count");
        h.fd_count = 0;
        frame_encode_header(&h, buf);
        assert_int_equal(feed_with_fds(buf, sizeof(buf), 1), 0);
        expect_error(-EPROTO, "fd-count");
        assert_int_equal(feed_with_fds(buf, sizeof(buf), FRAME_MAX_FDS + 1), -EPROTO);
        frame_parser_deinit(&parser);
        assert_int_equal(feed_with_fds(buf, 0, 1), -EPROTO);
        frame_parser_deinit(&parser);
        assert_int_equal(feed_with_fds(buf, 5, FRAME_MAX_FDS), 0);
        assert_int_equal(feed_with_fds(buf + 5, 5, 1), -EPROTO);
        frame_parser_deinit(&parser);
}
