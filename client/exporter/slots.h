/*
 * Places for HTTP connections, and who gives way when they run out: whoever has waited longest
 * without asking for anything. Anybody who reaches the port can take all of them at no cost; a
 * connection that asks at once is served before it is its turn to go, however many come.
 *
 * Knows no HTTP and no clock. Callers lock.
 */
#ifndef KVL_EXPORTER_SLOTS_H
#define KVL_EXPORTER_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

/* Connections that stay; beyond that one goes for each that comes. Not tuned: a Prometheus or two,
 * and people. */
#define SLOTS_KEPT 32
/* All, those on their way out included. Not tuned. */
#define SLOTS_ALL 128
/* Who takes longer to take its answer goes like who asks nothing. Not tuned: longer than the 10 s
 * that a scrape has by Prometheus' default. */
#define SLOTS_ANSWER_NSEC (15 * NSEC_PER_SEC)

struct slot {
        int fd;       /* borrowed; -1: free */
        bool is_busy; /* has asked, and isn't answered */
        bool is_going;
        uint64_t since_nsec; /* when it came, asked, or was answered */
};

struct slots {
        struct slot all[SLOTS_ALL];
        unsigned n_staying;
};

void slots_init(struct slots *s);

/* A connection comes. NULL: there is no place. */
struct slot *slots_enter(struct slots *s, int fd, uint64_t now_nsec);

/* It has asked; it was answered. */
void slot_ask(struct slot *slot, uint64_t now_nsec);
void slot_answered(struct slot *slot, uint64_t now_nsec);

/* It is over. */
void slots_leave(struct slots *s, struct slot *slot);

/* Who has to go now, once: NULL where there is room, or nobody may be sent away. */
struct slot *slots_send_away(struct slots *s, uint64_t now_nsec);

#endif
