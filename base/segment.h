/*
 * Shared memory that one process writes and others can only read.
 *
 * A room is where segments come from. With the privilege to mount it is an unlinked corner of the
 * kernel's own: a tmpfs that is in no mount namespace, and a read-only clone of its mount. A
 * segment is a file there, opened for the owner through the writable mount and for readers through
 * the read-only one: reopening, chmod, truncate and mmap for writing fail with EROFS or EACCES for
 * root, too. Without that privilege a segment is a memfd of mode 0600, whose reader's descriptor is
 * a read-only reopening: a process of the same uid can get around it.
 *
 * Segments are sparse: what nobody ever touches costs nothing. A reader's mapping touches, too.
 * Not thread-safe.
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
        int fd;        /* owned; read-write; never sent anywhere. -1: none */
        int reader_fd; /* owned; read-only: dup it to send it */
        void *base;    /* mapped read-write, shared */
        uint64_t bytes;
};

/* Never fails: SEGMENT_MEMFD is what is left. The mounts are made by a thread that ends before this
 * returns: the process stays where it is. segment_room_close() it. Only the uid that opened it may
 * make segments. */
void segment_room_open(struct segment_room *room);

/* Segments made there stay. Safe to repeat. */
void segment_room_close(struct segment_room *room);

/* "read-only mount", "memfd". Static. */
const char *segment_guard_name(enum segment_guard guard);

/* `name` is for people (/proc/PID/maps), at most 64 bytes of [A-Za-z0-9.-]; bytes > 0. 0; -ENOMEM,
 * -EMFILE, -ENFILE, -EFBIG, another -errno: nothing is left. All bytes are zero. A child of fork()
 * doesn't have the mapping. */
int segment_new(
        struct segment_room *room, const char *name, uint64_t bytes, struct segment *ret_segment);

/*
 * Maps a segment that another process made, and whose descriptors it handed on. Takes both, on
 * success only. 0; -EINVAL: they aren't of one file of that size, or the reader's can be written
 * to; another -errno. As with segment_new() for the rest.
 */
int segment_adopt(int fd, int reader_fd, uint64_t bytes, struct segment *ret_segment);

/* Where the first part of the segment that was ever touched begins, from byte `at` (0..bytes) on;
 * `bytes`: there is none. *ret_end: where it ends, at most `bytes`. All that lies between such
 * parts is zero, and reading it would take memory. Parts are whole pages of memory; where the
 * kernel doesn't say, all is one. */
uint64_t segment_next_part(const struct segment *s, uint64_t at, uint64_t *ret_end);

/* Unmaps and closes. Readers keep what they have mapped. Safe on {.fd = -1} and to repeat. */
void segment_free(struct segment *s);

#endif
