/*
 * Places for HTTP connections, and who gives way when they run out. Anybody who reaches the port
 * can take all of them at no cost; a connection that asks at once is served all the same, unless
 * SLOTS_ALL others ask and read all the time:
 *
 * - Beyond SLOTS_KEPT, who came or asked longest ago is sent away for each that comes, where that
 * is SLOTS_ASK_NSEC ago: nothing more is read from it, and what it has asked is answered.
 * - Where fewer than SLOTS_FREE are left, as many are cut off, but for those whose answer is being
 *   made: first who has taken nothing of its answer for the longest time; before all others who
 * takes longer than SLOTS_ANSWER_NSEC.
 *
 * Knows no HTTP and no clock. Callers lock.
 */
#ifndef KVL_EXPORTER_SLOTS_H
#define KVL_EXPORTER_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

/* Connections that stay. Not tuned: a Prometheus or two, and people. */
#define SLOTS_KEPT 32
/* All, those on their way out included. Not tuned. */
#define SLOTS_ALL  256
#define SLOTS_FREE 64
/* What a newcomer has to ask something. Not tuned: longer than it takes on the way. */
#define SLOTS_ASK_NSEC NSEC_PER_SEC
/* Not tuned: longer than the way to a peer and back. */
#define SLOTS_STALL_NSEC (250 * NSEC_PER_MSEC)
/* Not tuned: longer than the 10 s that a scrape has by Prometheus' default. */
#define SLOTS_ANSWER_NSEC (15 * NSEC_PER_SEC)

enum slot_phase {
        SLOT_WAITS, /* for a whole request */
        SLOT_ASKED, /* its answer is being made */
        SLOT_WRITES
};

struct slot {
        int fd; /* borrowed; -1: free */
        enum slot_phase phase;
        bool is_going, is_cut;
        bool is_stream;      /* its answer is events without end */
        uint64_t since_nsec; /* when it came, or asked with nothing left to take */
        uint64_t unread; /* bytes that were written and not taken, when that was looked at last */
        uint64_t moved_nsec; /* when they were found changed, or there were none yet */
};

struct slots {
        struct slot all[SLOTS_ALL];
        unsigned n_used, n_staying, n_cut;
};

void slots_init(struct slots *s);

/* A connection comes. NULL: there is no place. */
struct slot *slots_enter(struct slots *s, int fd, uint64_t now_nsec);

/* So much of what was written to it hasn't been taken. */
void slot_note_unread(struct slot *slot, uint64_t unread, uint64_t now_nsec);

/* It has asked, which makes it younger where it has taken all that was written before; its answer
 * begins to be written. What is unread was noted. */
void slot_ask(struct slot *slot, uint64_t now_nsec);
void slot_answer(struct slot *slot, uint64_t now_nsec);
/* Its answer is written. */
void slot_answered(struct slot *slot);

/* It is over. */
void slots_leave(struct slots *s, struct slot *slot);

/* Who is sent away for one that comes, or cut off, now; what is unread was noted. NULL: nobody has
 * to, or nobody may. */
struct slot *slots_send_away(struct slots *s, uint64_t now_nsec);
struct slot *slots_cut_off(struct slots *s, uint64_t now_nsec);

/* A stream that lacks something just now, as it did when its `unread` was noted last: it is to be
 * cut off for another one. `unread` tells of a connection now. */
struct slot *slots_stalled_stream(struct slots *s, uint64_t (*unread)(int fd));

/* How many of SLOTS_FREE are in use. */
unsigned slots_shortage(const struct slots *s);

#endif
