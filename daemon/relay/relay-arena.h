/*
 * The arena of a lane: memory that kvleased and kvlease-exchange map, in which values lie
 * (relay-wire.h). Places are given from its beginning on, so that its end is rarely touched.
 * Touched memory stays until the arena has been empty for RELAY_ARENA_KEPT_NSEC.
 *
 * kvlease-exchange can change the bytes at any time. Its size is sealed. One thread.
 */
#ifndef KVL_RELAY_ARENA_H
#define KVL_RELAY_ARENA_H

#include <stdint.h>

#include "base/list.h"

#define RELAY_ARENA_KEPT_NSEC UINT64_C(10000000000)

struct relay_arena {
        int fd; /* owned; -1: none */
        uint8_t *at;
        uint64_t bytes;
        struct list_link places; /* struct relay_place.link, by `at` */
        uint64_t touched;        /* bytes from the beginning on that may take memory */
        uint64_t used_nsec;      /* when the last place was given back */
};

struct relay_place {
        struct list_link link; /* relay_arena.places */
        uint64_t at, bytes;    /* bytes 0: no place */
};

/* Returns 0 or -errno. */
int relay_arena_init(struct relay_arena *a, uint64_t bytes);
void relay_arena_deinit(struct relay_arena *a);

/* Finds a place of so many bytes, > 0. Returns 0; -ENOMEM: there is none. */
int relay_arena_take(struct relay_arena *a, uint64_t bytes, struct relay_place *ret_place);

/* Gives it back. Nothing without a place. */
void relay_arena_give_back(struct relay_arena *a, struct relay_place *place, uint64_t now_nsec);

/* Gives memory back to the system if it isn't used. Returns the time of the next call, or
 * UINT64_MAX. */
uint64_t relay_arena_trim(struct relay_arena *a, uint64_t now_nsec);

#endif
