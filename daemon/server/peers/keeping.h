/*
 * The server's use of the descriptor store (keeper.h): whether there is one, what the previous
 * process left in it, and the hold on output.
 *
 * While a descriptor that the loop added isn't stored yet, later output to tenants' peers is held.
 * So no client learns of a change that a kill could still undo. Output carries the *ticket* of the
 * last addition, and is sent when that is *passed*. Administrators are answered at once.
 *
 * Loop thread only, except keeping_park().
 */
#ifndef KVL_SERVER_KEEPING_H
#define KVL_SERVER_KEEPING_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

struct detail;
struct keeper;
struct queue_park;
struct server;

struct keeping {
        struct keeper *keeper;  /* owned; NULL: nothing is kept */
        const char *why_not;    /* why nothing is stored although it could be; static; NULL */
        uint32_t max;           /* capacity, in descriptors */
        uint64_t ticket;        /* of the loop's last addition */
        uint32_t last_listener; /* number of KEEP_LISTENER */
        uint32_t n_released;    /* unused descriptors of the previous process */
        bool was_late;
        uv_async_t passed;
        uv_timer_t patience; /* runs while an addition isn't stored yet */
};

static inline bool keeping_is_on(const struct keeping *k)
{
        return k->keeper;
}

/*
 * Opens the descriptor store if the configuration and the service manager allow it. Takes the
 * previous process's descriptors out of server.activation, and sets store.keep. Without a store,
 * those are closed. Returns 0, or -errno, logged.
 */
int keeping_open(struct server *s);

/* Logs why nothing is stored although it could be. */
void keeping_say(const struct server *s);

/* Stores up to `max` descriptors from now on, without inherited ones: the second half of
 * keeping_open(), and for tests. Returns 0 or -errno. */
int keeping_start(struct server *s, uint32_t max);

/* Functions for a device's queue to store its extents. */
struct queue_park keeping_park(struct server *s);

/* Drops the previous process's descriptors that were not taken. */
void keeping_release_rest(struct server *s);

/* Blocks until all additions are stored, for at most 10 s. Then it logs that the service manager is
 * late, and clients are served all the same. */
void keeping_wait(struct server *s);

/* May `n` more extents be made? Returns 0, or -EMFILE with the sentence. */
int keeping_admit(const struct server *s, uint32_t n, struct detail *d);

/* The ticket of output that is sent now; 0: it can be sent at once. */
uint64_t keeping_ticket(const struct server *s);

/* The highest ticket whose output may be sent. */
uint64_t keeping_passed(const struct server *s);

/* Number of stored descriptors. */
uint32_t keeping_count(const struct server *s);

/* Called at the end: sends the remaining orders, and closes the loop's handles. Nothing is stored
 * or dropped afterwards. */
void keeping_stop(struct server *s);

/* Frees the keeper, after the last thread of a device has ended. */
void keeping_free(struct server *s);

#endif
