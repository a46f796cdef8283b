/*
 * Frames: the units of the Unix stream socket.
 *
 * A frame is a header of 24 bytes, little-endian, then `length` bytes of one protobuf message:
 *
 *     0      4         6      8        12         14      16       24
 *     +------+---------+------+--------+----------+-------+--------+----------...
 *     | magic| version | type | length | fd_count | flags |  seq   | payload
 *     +------+---------+------+--------+----------+-------+--------+----------...
 *
 * The header's layout and FRAME_HELLO are the same in every protocol version, so that any client
 * gets an answer it can read. File descriptors travel by SCM_RIGHTS with the first byte of their
 * frame. The parser never allocates and holds one frame; it is not thread-safe.
 */
#ifndef KVL_PROTO_FRAME_H
#define KVL_PROTO_FRAME_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_MAGIC       UINT32_C(0x314c564b) /* "KVL1" as bytes in memory */
#define FRAME_HEADER_SIZE 24
#define FRAME_MAX_SIZE    65536 /* header and payload; protocol */
#define FRAME_MAX_PAYLOAD (FRAME_MAX_SIZE - FRAME_HEADER_SIZE)
#define FRAME_MAX_FDS     16

/* Protocol versions of this build. */
#define PROTO_VERSION_MIN 1
#define PROTO_VERSION_MAX 1

enum frame_flags {
        FRAME_REPLY = 1 << 0,    /* daemon -> client, seq of the request */
        FRAME_EVENT = 1 << 1,    /* daemon -> client, without a request, seq 0 */
        FRAME_NO_REPLY = 1 << 2, /* client -> daemon: don't answer (messages marked so in msg.h) */
};

struct frame_header {
        uint32_t magic;
        uint16_t version;
        uint16_t type; /* enum msg_type */
        uint32_t length;
        uint16_t fd_count;
        uint16_t flags;
        uint64_t seq; /* chosen by the requester, echoed; > 0 */
};
static_assert(sizeof(struct frame_header) == FRAME_HEADER_SIZE, "the format");

/* A complete frame, borrowed from the parser until its next call. */
struct frame {
        struct frame_header header;
        const uint8_t *payload;
        int fds[FRAME_MAX_FDS]; /* header.fd_count entries, owned; -1 once taken out */
};

struct frame_parser {
        uint8_t buf[FRAME_MAX_SIZE]; /* bytes received and not consumed */
        size_t begin, end;
        int fds[FRAME_MAX_FDS];
        unsigned n_fds;
};

void frame_encode_header(const struct frame_header *h, uint8_t ret_buf[FRAME_HEADER_SIZE]);

void frame_parser_init(struct frame_parser *p);

/* Closes fds that weren't taken. */
void frame_parser_deinit(struct frame_parser *p);

/*
 * Returns where to receive: a borrowed pointer and its size (> 0 if frame_parser_next() was called
 * until it returned 0). While fds wait for the rest of their frame the space ends with that frame,
 * so that the next frame's fds can't arrive early. Moves buffered bytes, which invalidates earlier
 * frames.
 */
uint8_t *frame_parser_space(struct frame_parser *p, size_t *ret_size);

/* Reports `n` bytes and `n_fds` fds received into that space; takes the fds in any case. Returns 0;
 * -EPROTO: more than FRAME_MAX_FDS fds would wait, fds came without a frame, or more bytes than the
 * space has. */
int frame_parser_fed(struct frame_parser *p, size_t n, const int *fds, unsigned n_fds);

/*
 * Takes the next complete frame out. Returns 1: *ret_frame is set, and owns its fds until
 * frame_close_fds(). 0: more bytes are needed. -EPROTO: bad magic, length, fd count (declared fds
 * did not come, or came undeclared) or reserved flag. -EPROTONOSUPPORT: a type other than HELLO
 * with a version that this build doesn't speak. After an error the stream can't be followed any
 * more. `ret_rule` (may be NULL) gets a static name of the broken rule on error: "bad-magic",
 * "frame-too-long", "fd-count", "bad-version", "bad-flags", "bad-seq".
 */
int frame_parser_next(struct frame_parser *p, struct frame *ret_frame, const char **ret_rule);

/* Closes the fds left in a frame; those taken out were set to -1. */
void frame_close_fds(struct frame *f);

#endif
