/*
 * Places for HTTP connections, and which one is closed when they run out. Any client that reaches
 * the port can take all of them at no cost. A connection that asks at once is still served, unless
 * SLOTS_ALL others ask and read all the time:
 *
 * - Beyond SLOTS_KEPT, each new connection sends away the one that came or asked longest ago, if
 *   that is over SLOTS_ASK_NSEC ago. Nothing more is read from it, and its requests are answered. -
 *   If fewer than SLOTS_FREE are left, as many are cut off, except while an answer is made. First
 *   those that take longer than SLOTS_ANSWER_NSEC, then the one that has taken nothing of its
 *   answer for the longest time.
 *
 * Independent of HTTP and clocks. Callers lock. The constants are not tuned.
 */
#ifndef KVL_HTTP_SLOTS_H
#define KVL_HTTP_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

/* Connections that stay: one or two Prometheus servers, and people. */
#define SLOTS_KEPT 32
/* All, including those being sent away. */
#define SLOTS_ALL  256
#define SLOTS_FREE 64
/* The time in which a new connection must ask: longer than the way here. */
#define SLOTS_ASK_NSEC NSEC_PER_SEC
/* Longer than the way to a peer and back. */
#define SLOTS_STALL_NSEC (250 * NSEC_PER_MSEC)
/* Longer than the 10 s that a scrape has by Prometheus' default. */
#define SLOTS_ANSWER_NSEC (15 * NSEC_PER_SEC)

enum slot_phase {
        SLOT_WAITS, /* for a complete request */
        SLOT_ASKED, /* its answer is being made */
        SLOT_WRITES
};

struct slot {
        int fd; /* borrowed; -1: free */
        enum slot_phase phase;
        bool is_going, is_cut;
        bool is_stream;      /* its answer is an endless event stream */
        uint64_t since_nsec; /* when it came, or last asked with nothing left to take */
        uint64_t unread;     /* bytes written and not taken, when last looked at */
        uint64_t moved_nsec; /* when `unread` last changed, or was 0 */
};

struct slots {
        struct slot all[SLOTS_ALL];
        unsigned n_used, n_staying, n_cut;
};

void slots_init(struct slots *s);

/* Adds a connection. NULL: there is no place. */
struct slot *slots_enter(struct slots *s, int fd, uint64_t now_nsec);

/* Notes how many written bytes it hasn't taken. */
void slot_note_unread(struct slot *slot, uint64_t unread, uint64_t now_nsec);

/* The connection has asked, which makes it younger if it has taken all that was written before; its
 * answer begins to be written. `unread` was noted. */
void slot_ask(struct slot *slot, uint64_t now_nsec);
void slot_answer(struct slot *slot, uint64_t now_nsec);
/* Notes that its answer is written. */
void slot_answered(struct slot *slot);

/* Frees the place. */
void slots_leave(struct slots *s, struct slot *slot);

/* Returns the connection to send away for a new one, or to cut off, now; `unread` was noted. NULL:
 * none must, or may, be. */
struct slot *slots_send_away(struct slots *s, uint64_t now_nsec);
struct slot *slots_cut_off(struct slots *s, uint64_t now_nsec);

/* Returns a stream that doesn't take data now, and didn't when its `unread` was last noted: it can
 * be cut off for another one. `unread` measures a connection now. */
struct slot *slots_stalled_stream(struct slots *s, uint64_t (*unread)(int fd));

/* Returns how many of SLOTS_FREE are in use. */
unsigned slots_shortage(const struct slots *s);

#endif
