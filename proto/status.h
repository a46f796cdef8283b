/*
 * The one table of outcomes: wire value <-> library code <-> sentence.
 *
 * A request ends in exactly one of these. Wire values never change meaning; new ones are appended.
 * Library codes: 0, a negative errno (the operation failed), or a positive KVL_* condition
 * (documented on the function that can return it).
 */
#ifndef KVL_PROTO_STATUS_H
#define KVL_PROTO_STATUS_H

#include <errno.h>
#include <stdint.h>

/* Positive conditions; <kvlease.h> has the same values (a static assert compares them). */
enum {
        KVL_STATUS_MISS = 1,
        KVL_STATUS_DUPLICATE = 2,
        KVL_STATUS_QUOTA = 3,
        KVL_STATUS_FULL = 4,
        KVL_STATUS_NO_PARENT = 5,
        KVL_STATUS_STALE = 6,
        KVL_STATUS_DRAINING = 7,
        KVL_STATUS_LAYOUT = 8,
        KVL_STATUS_VERSION = 9,
        KVL_STATUS_TIMEOUT = 10,
        KVL_STATUS_PENDING = 11,
        KVL_STATUS_RESERVATION = 12,
};

/* X(NAME, wire, code, "text") */
#define STATUS_TABLE(X)                                                                      \
        X(OK, 0, 0, "ok")                                                                    \
        X(MISS, 1, KVL_STATUS_MISS, "not cached")                                            \
        X(DUPLICATE, 2, KVL_STATUS_DUPLICATE, "already published by another client")         \
        X(QUOTA, 3, KVL_STATUS_QUOTA, "the tenant's limit is reached")                       \
        X(FULL, 4, KVL_STATUS_FULL, "the device has no memory left to lease")                \
        X(NO_PARENT, 5, KVL_STATUS_NO_PARENT, "the parent page is not cached")               \
        X(STALE, 6, KVL_STATUS_STALE, "the namespace was invalidated meanwhile")             \
        X(DRAINING, 7, KVL_STATUS_DRAINING, "the daemon is draining and grants nothing new") \
        X(LAYOUT, 8, KVL_STATUS_LAYOUT, "the namespace exists with another layout")          \
        X(VERSION, 9, KVL_STATUS_VERSION, "no common protocol version")                      \
        X(TIMEOUT, 10, KVL_STATUS_TIMEOUT, "it waited as long as it may")                    \
        X(PENDING, 11, KVL_STATUS_PENDING, "another client is computing it")                 \
        X(RESERVATION, 12, KVL_STATUS_RESERVATION, "the tenant's reservation is used up")    \
        X(INVALID, 32, -EINVAL, "invalid request")                                           \
        X(DENIED, 33, -EACCES, "permission denied")                                          \
        X(NOT_FOUND, 34, -ENOENT, "no such object")                                          \
        X(EXISTS, 35, -EEXIST, "it exists already")                                          \
        X(BUSY, 36, -EBUSY, "in use")                                                        \
        X(NO_MEMORY, 37, -ENOMEM, "no memory, of the daemon or of its client")               \
        X(NO_SPACE, 38, -ENOSPC, "no space left")                                            \
        X(TOO_BIG, 39, -EMSGSIZE, "the request is larger than the protocol allows")          \
        X(PROTOCOL, 40, -EPROTO, "protocol violation")                                       \
        X(UNSUPPORTED, 41, -EOPNOTSUPP, "not supported by this daemon")                      \
        X(IO, 42, -EIO, "input/output error")                                                \
        X(TOO_MANY, 43, -EMFILE, "too many clients or open objects")                         \
        X(CORRUPT, 44, -EUCLEAN, "an invariant of the daemon's state is broken")             \
        X(LOST, 45, -ESTALE, "the daemon was restarted without its state")                   \
        X(CANCELED, 46, -ECANCELED, "called off")                                            \
        X(AGAIN, 47, -EAGAIN, "too much of it waits already")

enum wire_status {
#define X(name, wire, code, text) WIRE_##name = wire,
        STATUS_TABLE(X)
#undef X
};

/* Returns the library code of a wire value; -EPROTO for a value that this build doesn't know. */
int status_from_wire(uint32_t wire);

/* Returns the wire value of a library code; WIRE_IO for a code that isn't in the table. */
uint32_t status_to_wire(int code);

/* Returns a library code's sentence: from the table, else strerror. Static or thread-local. */
const char *status_text(int code);

#endif
