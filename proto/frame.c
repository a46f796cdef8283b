#include "proto/frame.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/fd.h"
#include "base/macros.h"
#include "proto/msg.h"

/* A shorter tail isn't worth a system call: the rest moves to the front instead. Not tuned. */
#define TAIL_MIN ((size_t)4096)

#define FLAGS_KNOWN (FRAME_REPLY | FRAME_EVENT | FRAME_NO_REPLY)

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a header lies in memory as on the wire");

void frame_encode_header(const struct frame_header *h, uint8_t ret_buf[FRAME_HEADER_SIZE])
{
        memcpy(ret_buf, h, FRAME_HEADER_SIZE);
}

/* Returns 0, or the error of a header by itself, before its payload is there. */
static int check_header(const struct frame_header *h, const char **ret_rule)
{
        bool is_event = h->flags & FRAME_EVENT;

        if (h->magic != FRAME_MAGIC)
                return *ret_rule = "bad-magic", -EPROTO;
        if (h->length > FRAME_MAX_PAYLOAD)
                return *ret_rule = "frame-too-long", -EPROTO;
        if (h->fd_count > FRAME_MAX_FDS)
                return *ret_rule = "fd-count", -EPROTO;
        /* HELLO agrees on a version, so it is read with any version. */
        if (h->type != MSG_HELLO &&
                (h->version < PROTO_VERSION_MIN || h->version > PROTO_VERSION_MAX))
                return *ret_rule = "bad-version", -EPROTONOSUPPORT;
        if ((h->flags & ~FLAGS_KNOWN) || (is_event && h->flags != FRAME_EVENT))
                return *ret_rule = "bad-flags", -EPROTO;
        if (is_event != (h->seq == 0))
                return *ret_rule = "bad-seq", -EPROTO;
        return 0;
}

void frame_parser_init(struct frame_parser *p)
{
        /* The buffer isn't cleared: its 64 KiB are read only after they were received. */
        p->begin = p->end = 0;
        p->n_fds = 0;
}

static void close_all(const int *fds, unsigned n)
{
        for (unsigned i = 0; i < n; i++)
                fd_close(fds[i]);
}

void frame_parser_deinit(struct frame_parser *p)
{
        close_all(p->fds, p->n_fds);
        frame_parser_init(p);
}

/* Returns the bytes that the front frame lacks, as far as known: first those of its header. */
static size_t missing_bytes(const struct frame_parser *p)
{
        size_t have = p->end - p->begin, size = FRAME_HEADER_SIZE;
        struct frame_header h;

        if (have >= FRAME_HEADER_SIZE) {
                memcpy(&h, p->buf + p->begin, sizeof(h));
                size += MIN(h.length, (uint32_t)FRAME_MAX_PAYLOAD);
        }
        return minus_u64(size, have);
}

uint8_t *frame_parser_space(struct frame_parser *p, size_t *ret_size)
{
        size_t missing = missing_bytes(p), have = p->end - p->begin;

        if (p->begin > 0 && (have == 0 || sizeof(p->buf) - p->end < MAX(missing, TAIL_MIN))) {
                memmove(p->buf, p->buf + p->begin, have);
                p->begin = 0;
                p->end = have;
        }
        *ret_size = sizeof(p->buf) - p->end;
        /* While fds wait, no byte past their frame is received. The kernel delivers the next
         * frame's fds with the bytes before it. An honest peer would seem to have sent too many. */
        if (p->n_fds > 0)
                *ret_size = missing;
        return p->buf + p->end;
}

int frame_parser_fed(struct frame_parser *p, size_t n, const int *fds, unsigned n_fds)
{
        if (n > sizeof(p->buf) - p->end) {
                close_all(fds, n_fds);
                return -EPROTO;
        }
        p->end += n;
        if (n_fds == 0)
                return 0;
        if (n == 0 || n_fds > FRAME_MAX_FDS - p->n_fds) {
                close_all(fds, n_fds);
                return -EPROTO;
        }
        memcpy(p->fds + p->n_fds, fds, n_fds * sizeof(*fds));
        p->n_fds += n_fds;
        return 0;
}

/* Moves the first n waiting fds to ret_fds. */
static void take_fds(struct frame_parser *p, int *ret_fds, unsigned n)
{
        if (n == 0)
                return;
        memcpy(ret_fds, p->fds, n * sizeof(*ret_fds));
        p->n_fds -= n;
        memmove(p->fds, p->fds + n, p->n_fds * sizeof(*p->fds));
}

int frame_parser_next(struct frame_parser *p, struct frame *ret_frame, const char **ret_rule)
{
        size_t have = p->end - p->begin, size;
        struct frame_header h;
        const char *unused;
        int r;

        if (!ret_rule)
                ret_rule = &unused;
        if (have < FRAME_HEADER_SIZE)
                return 0;
        memcpy(&h, p->buf + p->begin, sizeof(h));
        r = check_header(&h, ret_rule);
        if (r < 0)
                return r;
        size = FRAME_HEADER_SIZE + h.length;
        if (have < size)
                return 0;
        /* Fds that wait behind the last byte belong to no frame: none declared them. */
        if (p->n_fds < h.fd_count || (have == size && p->n_fds > h.fd_count))
                return *ret_rule = "fd-count", -EPROTO;
        ret_frame->header = h;
        ret_frame->payload = p->buf + p->begin + FRAME_HEADER_SIZE;
        take_fds(p, ret_frame->fds, h.fd_count);
        p->begin += size;
        return 1;
}

void frame_close_fds(struct frame *f)
{
        for (unsigned i = 0; i < f->header.fd_count; i++)
                f->fds[i] = fd_close(f->fds[i]);
}
