/*
 * The shared memory of a fake daemon (fake-daemon.h): segments in memfds, and what a daemon does
 * with the rings. Also for tests that play the daemon in their own process. Simple where the real
 * one is careful: nothing is evicted.
 */
#ifndef KVL_TESTS_FAKE_SHM_H
#define KVL_TESTS_FAKE_SHM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "proto/shm.h"

#define FAKE_SEED ((struct hash_seed){3, 4})

struct fake_index {
        int fd; /* owned */
        uint64_t bytes;
        struct shm_index *header; /* mapped */
        struct shm_bucket *buckets;
        struct shm_line *lines;
};

struct fake_pins {
        int fd; /* owned */
        uint64_t bytes;
        struct shm_pins *header; /* mapped */
        _Atomic uint32_t *magazine, *counters;
};

struct fake_rings {
        int fd; /* owned */
        uint64_t bytes;
        struct shm_client *header; /* mapped */
        struct shm_submission *submissions;
        struct shm_completion *completions;
        uint64_t head, tail; /* submissions taken, completions made */
};

/* All of them abort the process where memory is short. n_buckets 0: what the capacity needs. */
void fake_index_open(struct fake_index *x, uint32_t capacity_pages, uint32_t n_buckets);
void fake_index_close(struct fake_index *x);
void fake_pins_open(struct fake_pins *p, uint32_t capacity_pages, uint64_t client_id);
void fake_pins_close(struct fake_pins *p);
void fake_rings_open(struct fake_rings *r, uint64_t client_id);
void fake_rings_close(struct fake_rings *r);

/* Shows a page as SEALED, of the header's epoch. */
void fake_index_add(struct fake_index *x, uint32_t page, const uint8_t *key, uint16_t tokens,
        uint64_t generation);

/* Shows a page as PENDING, of the header's epoch. */
void fake_index_announce(
        struct fake_index *x, uint32_t page, const uint8_t *key, uint64_t generation);

/* A PENDING page becomes SEALED, or FREE of the next generation and without a slot. Wakes waiting
 * clients. */
void fake_index_seal(struct fake_index *x, uint32_t page, uint16_t tokens);
void fake_index_withdraw(struct fake_index *x, uint32_t page);

/* A page that is SEALED can't be found any more, and stays readable. */
void fake_index_detach(struct fake_index *x, uint32_t page);

/* Wakes the clients that wait for the page, to look again. */
void fake_index_wake(struct fake_index *x, uint32_t page);

/* Puts a page into the magazine's first empty slot. */
void fake_pins_put(struct fake_pins *p, uint32_t page);

/* The next submission, taken; false: none. */
bool fake_rings_take(struct fake_rings *r, struct shm_submission *ret);

/* Stores a completion. True: the client sleeps and should be rung. */
bool fake_rings_complete(struct fake_rings *r, uint64_t user_data, uint32_t status, uint32_t page);

/* The daemon goes to sleep; false: something is there. */
bool fake_rings_sleep(struct fake_rings *r);

#endif
