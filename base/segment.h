/*
 * Shared memory that one process writes and others can only read.
 *
 * Segments are made in a segment room. With the privilege to mount, it is a tmpfs that is in no
 * mount namespace, and a read-only clone of its mount. A segment is a file there. The owner opens
 * it through the writable mount, and readers through the read-only one: reopening, chmod, truncate
 * and mmap for writing fail with EROFS or EACCES even for root. Without that privilege a segment is
 * a memfd of mode 0600, whose reader's descriptor is a read-only reopening. A process of the same
 * uid can get around that.
 *
 * Segments are sparse: untouched parts take no memory. Reads touch, too. Not thread-safe.
 */
#ifndef KVL_BASE_SEGMENT_H
#define KVL_BASE_SEGMENT_H

#include <stdint.h>

enum segment_guard {
        SEGMENT_READ_ONLY_MOUNT,
        SEGMENT_MEMFD,
};

struct segment_room {
        enum segment_guard guard;
        int write_fd, read_fd; /* owned; roots of the mounts, -1 with SEGMENT_MEMFD */
        int why;               /* -errno: why no mount could be made; 0 */
        uint64_t n_made;       /* segments; ends the next one's name */
};

struct segment {
        int fd;        /* owned; read-write; never sent. -1: none */
        int reader_fd; /* owned; read-only; dup it to send it */
        void *base;    /* mapped read-write, shared */
        uint64_t bytes;
};

/* Opens a room; falls back to SEGMENT_MEMFD, so it never fails. A thread makes the mounts and ends
 * before this returns, so the process stays in its namespace. Close it with segment_room_close().
 * Only the uid that opened it may make segments. */
void segment_room_open(struct segment_room *room);

/* Closes a room; its segments stay. Idempotent. */
void segment_room_close(struct segment_room *room);

/* "read-only mount", "memfd". Static. */
const char *segment_guard_name(enum segment_guard guard);

/* Makes a zeroed segment. `name` is for people (/proc/PID/maps), at most 64 bytes of [A-Za-z0-9.-];
 * bytes > 0. A forked child doesn't have the mapping. Returns 0; -EINVAL: name or bytes are out of
 * range; -ENOMEM, -EMFILE, -ENFILE, -EFBIG,
 * another -errno: nothing is left. */
int segment_new(
        struct segment_room *room, const char *name, uint64_t bytes, struct segment *ret_segment);

/* Maps a segment of another process, which passed on its descriptors. Takes both, on success only.
 * Returns 0; -EINVAL: they aren't of one file of that size, or the reader's is writable; another
 * -errno. Otherwise as segment_new(). */
int segment_adopt(int fd, int reader_fd, uint64_t bytes, struct segment *ret_segment);

/* Returns where the segment's first touched part begins, from byte `at` (0..bytes) on; `bytes`:
 * there is none. *ret_end: its end, at most `bytes`. All between such parts is zero, and reading it
 * would take memory. Parts are whole pages of memory. If the kernel doesn't report them, the whole
 * segment is one part. */
uint64_t segment_next_part(const struct segment *s, uint64_t at, uint64_t *ret_end);

/* Unmaps and closes. Readers keep their mappings. Safe on {.fd = -1}. Idempotent. */
void segment_free(struct segment *s);

#endif
