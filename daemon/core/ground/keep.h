/*
 * Descriptors that outlive this process: what is added here is given to the daemon that comes after
 * it, whether this one exits or is killed. Who keeps them is the server's business (a service
 * manager, or a small parent); the core only names them.
 *
 *   added -> (the process ends) -> taken, by the next one -> dropped
 *      \-> dropped
 *
 * A name is a letter, which says what it is, and a number; it is short, because all names together
 * are one environment variable. Loop thread only.
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
        KEEP_RECORDS = 'r',      /* of a namespace: pages, sets; number: in its own header */
        KEEP_INDEX = 'i',        /* index segment of the namespace with these records; read-write */
        KEEP_INDEX_READER = 'j', /* the same, read-only */
        KEEP_SESSIONS = 'q',     /* of the namespace with these records */
        KEEP_EXTENT = 'e',       /* number: in the set's record */
        KEEP_CANARY = 'g',       /* of a GPU (canary.h); number: its row in the root, from 1 */
        KEEP_CLIENTS = 'k',      /* clients and attachments; number 0 */
        KEEP_RING = 'c',         /* client segment; number: the client's slot */
        KEEP_PROCESS = 'p',      /* pidfd, likewise */
        KEEP_PINS = 'a',         /* pin segment; number: the attachment's slot */
        KEEP_SOCKET_PINS = 'b',  /* pins taken over the socket, likewise */
        KEEP_LISTENER = 'l',     /* of the server, which knows it by its address */
};

#define KEEP_NAME_BYTES 7                   /* the kind, at most 5 digits, '\0' */
#define KEEP_MAX_NUMBER UINT32_C(916132831) /* five digits of [0-9A-Za-z] */

struct keep_ops {
        /* Keeps a duplicate of the descriptor, until drop(); nothing is kept by that name and kind
         * yet. 0: the order is on its way, and what is sent to clients from here on waits for it;
         * -EMFILE, -ENFILE, -ENOMEM with the sentence: there is no room, and nothing is kept. */
        int (*add)(void *data, enum keep_kind kind, uint32_t number, int fd, struct detail *d);

        /* Never fails; nothing where there is none. */
        void (*drop)(void *data, enum keep_kind kind, uint32_t number);

        /* Of those that the process before this one left: owned from here on; -ENOENT. It is kept
         * further on. */
        int (*take)(void *data, enum keep_kind kind, uint32_t number);

        /* The numbers of those of a kind that were left and not taken yet, in no particular order:
         * how many, at most `max` of them stored. */
        uint32_t (*list)(void *data, enum keep_kind kind, uint32_t *ret_numbers, uint32_t max);
};

/* In struct store. ops NULL: nothing outlives the process, and nothing is recorded for that. */
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

/* "e3f": number in digits of [0-9A-Za-z], the most significant first. Returns buf. */
char *keep_name(char buf[KEEP_NAME_BYTES], enum keep_kind kind, uint32_t number);

/* The reverse. False: no such name. */
bool keep_parse(const char *name, enum keep_kind *ret_kind, uint32_t *ret_number);

#endif
