/* The frame parser. However a stream is split, it gives the same frames and the same error. Each
 * descriptor is closed once, whenever it arrives. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/hash.h"
#include "base/macros.h"
#include "proto/frame.h"
#include "tests/fuzz/fuzz.h"

/* Result of parsing a stream. */
struct outcome {
        uint64_t digest; /* of all headers and payloads */
        unsigned n_frames;
        int error;
        const char *rule;
};

struct source {
        const uint8_t *data;
        size_t left;
        unsigned random; /* 0: as much as fits at a time */
        int null_fd;     /* -1: no fds */
};

static struct frame_parser parser;

static void add_bytes(struct outcome *o, const void *data, size_t len)
{
        o->digest = hash_bytes((struct hash_seed){o->digest, len}, data, len);
}

/* Takes all whole frames out. */
static void drain(struct outcome *o)
{
        struct frame f;
        int r;

        while ((r = frame_parser_next(&parser, &f, &o->rule)) == 1) {
                CHECK(f.header.length <= FRAME_MAX_PAYLOAD);
                add_bytes(o, &f.header, sizeof(f.header));
                add_bytes(o, f.payload, f.header.length);
                o->n_frames++;
                frame_close_fds(&f);
        }
        CHECK(r <= 0);
        CHECK((r < 0) == (o->rule != NULL));
        o->error = r;
}

static unsigned make_fds(struct source *s, int *ret_fds)
{
        unsigned n = 0;

        if (s->null_fd < 0 || rand_r(&s->random) % 2)
                return 0;
        for (n = 0; n < (unsigned)rand_r(&s->random) % 4; n++)
                ret_fds[n] = dup(s->null_fd);
        return n;
}

static int feed(struct source *s)
{
        unsigned n_fds;
        int fds[4];
        size_t n, size;
        uint8_t *space = frame_parser_space(&parser, &size);

        CHECK(size > 0);
        CHECK(space >= parser.buf && space + size <= parser.buf + sizeof(parser.buf));
        n = MIN(size, s->left);
        if (s->random && n > 1)
                n = 1 + (size_t)rand_r(&s->random) % MIN(n, rand_r(&s->random) % 4 ? 40u : 9000u);
        n = MIN(n, s->left);
        n_fds = make_fds(s, fds);
        memcpy(space, s->data, n);
        s->data += n;
        s->left -= n;
        return frame_parser_fed(&parser, n, fds, n_fds);
}

static struct outcome run(struct source s)
{
        struct outcome o = {0};

        frame_parser_init(&parser);
        while (s.left > 0 && o.error == 0) {
                o.error = feed(&s);
                if (o.error == 0)
                        drain(&o);
        }
        frame_parser_deinit(&parser);
        return o;
}

static void check_fds(struct source s)
{
        int lowest;

        s.null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        lowest = dup(s.null_fd);
        CHECK(s.null_fd >= 0 && lowest >= 0);
        fd_close(lowest);
        run(s);
        /* dup() takes the lowest number that is free: a leak has moved it. */
        CHECK(dup(s.null_fd) == lowest);
        fd_close(lowest);
        CHECK(fd_close(s.null_fd) == -1);
}

/* The first two bytes choose the splits, the rest is the stream. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct outcome whole, split;
        struct source s;

        if (size < 2)
                return 0;
        s = (struct source){.data = data + 2, .left = size - 2, .null_fd = -1};
        whole = run(s);
        s.random = 1 + data[0] + 256u * data[1];
        split = run(s);
        CHECK(whole.digest == split.digest && whole.n_frames == split.n_frames);
        CHECK(whole.error == split.error && whole.rule == split.rule);
        check_fds(s);
        return 0;
}
