/*
 * The descriptor store: descriptors that outlive this process. The next daemon gets them whether
 * this one exits or is killed. The server decides where they are stored (by the service manager or
 * a small parent process); the core only names them.
 *
 *   added -> (the process ends) -> taken, by the next one -> dropped
 *      \-> dropped
 *
 * A name is a letter, which says the kind, and a number. Names are short because all of them
 * together are one environment variable. Loop thread only.
 *
 * The next daemon drops the following if a descriptor is missing or damaged
 * (tests/unit/test_recover_lost.c):
 *
 *   root, clients' tables    Everything. The cache starts empty, because the readers and writers of
 *                            its pages are unknown.
 *   records, index, extent   The namespace. A client that has it open is *lost*: it must connect
 *                            anew.
 *   log of sessions          The namespace's sessions, or those after the damage. Their pages stay
 *                            cached or are freed.
 *   feed                     Token ids of the namespace's pages, and its followers begin anew.
 *   pins, socket pins        Nothing, if the client was never told of the segment. Otherwise each
 *                            page of the namespace counts as read by the client until it exits,
 *                            and the client is lost.
 *   ring (client segment)    The client is lost.
 *   process                  Nothing. The process is opened by its number.
 */
#ifndef KVL_CORE_KEEP_H
#define KVL_CORE_KEEP_H

#include <stdbool.h>
#include <stdint.h>

struct detail;

enum keep_kind {
        KEEP_STATE = 's',        /* state-root.h; number 0 */
        KEEP_RECORDS = 'r',      /* a namespace's pages and sets; number: in its header */
        KEEP_INDEX = 'i',        /* index segment of the namespace with these records; read-write */
        KEEP_INDEX_READER = 'j', /* the same, read-only */
        KEEP_FEED = 'f',         /* feed segment of the namespace with these records; read-write */
        KEEP_FEED_READER = 'h',  /* the same, read-only */
        KEEP_SESSIONS = 'q',     /* session log of the namespace with these records */
        KEEP_EXTENT = 'e',       /* number: in the set's record */
        KEEP_CANARY = 'g',      /* a GPU's canary (canary.h); number: its row in the root, from 1 */
        KEEP_CLIENTS = 'k',     /* clients and attachments; number 0 */
        KEEP_RING = 'c',        /* client segment; number: the client's slot */
        KEEP_PROCESS = 'p',     /* pidfd; number: the client's slot */
        KEEP_PINS = 'a',        /* pin segment; number: the attachment's slot */
        KEEP_SOCKET_PINS = 'b', /* pins taken over the socket; number: the attachment's slot */
        KEEP_LISTENER = 'l',    /* the server's; found by its address */
};

#define KEEP_NAME_BYTES 7                   /* the kind, at most 5 digits, '\0' */
#define KEEP_MAX_NUMBER UINT32_C(916132831) /* five digits of [0-9A-Za-z] */

struct keep_ops {
        /* Stores a duplicate of the descriptor until drop(). No descriptor is stored by that kind
         * and number yet. Returns 0: the request is sent, and later messages to clients wait for
         * it. Returns -EMFILE, -ENFILE or -ENOMEM with the sentence if there is no space; nothing
         * is stored. */
        int (*add)(void *data, enum keep_kind kind, uint32_t number, int fd, struct detail *d);

        /* Never fails; ignores an unknown descriptor. */
        void (*drop)(void *data, enum keep_kind kind, uint32_t number);

        /* Returns a descriptor that the previous process left, owned by the caller, or -ENOENT. The
         * descriptor stays stored. */
        int (*take)(void *data, enum keep_kind kind, uint32_t number);

        /* Returns how many descriptors of a kind were left and not taken yet. Stores at most `max`
         * of their numbers, in no particular order. */
        uint32_t (*list)(void *data, enum keep_kind kind, uint32_t *ret_numbers, uint32_t max);
};

/* Part of struct store. ops NULL: no descriptor outlives the process. */
struct keep {
        const struct keep_ops *ops;
        void *data; /* borrowed */
};

static inline bool keep_is_on(const struct keep *k)
{
        return k->ops;
}

static inline int keep_add(
        const struct keep *k, enum keep_kind kind, uint32_t number, int fd, struct detail *d)
{
        return k->ops ? k->ops->add(k->data, kind, number, fd, d) : 0;
}

static inline void keep_drop(const struct keep *k, enum keep_kind kind, uint32_t number)
{
        if (k->ops)
                k->ops->drop(k->data, kind, number);
}

/* Writes the name, "e3f": the number in digits of [0-9A-Za-z], most significant first. Returns buf.
 */
char *keep_name(char buf[KEEP_NAME_BYTES], enum keep_kind kind, uint32_t number);

/* Parses a name. Returns false if it isn't valid. */
bool keep_parse(const char *name, enum keep_kind *ret_kind, uint32_t *ret_number);

#endif
