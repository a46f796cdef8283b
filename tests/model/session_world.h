/* World of model_session.c: a store with three clients, a naive model of the sessions that they
 * have open, and the comparison of both. One thread; there is one of each. */
#ifndef KVL_TESTS_MODEL_SESSION_WORLD_H
#define KVL_TESTS_MODEL_SESSION_WORLD_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/core/cache/drop.h"
#include "daemon/core/cache/tag.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/reclaim/compact.h"
#include "daemon/core/reclaim/recall.h"
#include "daemon/core/requests/lease.h"
#include "daemon/core/requests/lookup.h"
#include "daemon/core/requests/publish.h"
#include "daemon/core/sessions/session.h"
#include "daemon/core/sessions/session-purge.h"
#include "daemon/core/sessions/session-truncate.h"
#include "proto/status.h"
#include "tests/unit/fake-device.h"
#include "tests/unit/toy-layout.h"

#define N_MEMBERS   3
#define N_SESSIONS  5
#define SET_BYTES   1024
#define PAGE_BYTES  128
#define PAGE_TOKENS 16
#define MAX_LIST    64 /* pages of a text's head, and of its window */
#define MAX_RANGES  64
#define MAX_HELD    64
#define SEC         UINT64_C(1000000000)

struct element {
        uint64_t key, generation;
        uint32_t page, tokens;
        uint64_t end; /* end of the text up to it, in tokens */
};

struct list {
        struct element e[MAX_LIST];
        unsigned n;
};

struct text {
        bool exists, truncated;
        struct list head, window;
        uint64_t end, head_end, window_token;
        unsigned n_open;
};

struct client {
        struct member *member;
        struct attach *a;
        uint32_t handles[N_SESSIONS];
};

#define N_SEALED (1 << 14) /* more than there are keys */

struct sealed_key {
        uint64_t key;
        unsigned long step; /* that it was sealed in last */
};

/* A truncation under way, with the text at its begin. */
struct truncation {
        struct session_truncation t;
        bool is_under_way, is_decided, window_may_go;
        int result; /* that is expected */
        unsigned i;
        struct text before;
        uint64_t first, last, gap_end;
        struct token_range ranges[MAX_RANGES]; /* where n_ranges > 0, these instead */
        unsigned n_ranges;
};

extern struct fake_device device;
extern struct store store;
extern struct tenant *tenant;
extern struct ns *ns;
extern struct client clients[N_MEMBERS];
extern struct text texts[N_SESSIONS];
extern uint64_t seed, random_state, now_nsec;
extern struct sealed_key sealed[N_SEALED];
extern unsigned long step;
extern const char *op;
extern bool windows_may_go;
extern struct detail d;
extern struct truncation truncations[3];
extern unsigned n_truncations; /* that took several slices */

#define CHECK(what, ...)                                                                        \
        do {                                                                                    \
                if (!(what)) {                                                                  \
                        fprintf(stderr,                                                         \
                                "seed %llu step %lu %s: %s:%d: %s: ", (unsigned long long)seed, \
                                step, op, __FILE__, __LINE__, #what);                           \
                        fprintf(stderr, __VA_ARGS__);                                           \
                        fputc('\n', stderr);                                                    \
                        abort();                                                                \
                }                                                                               \
        } while (0)

/* ---- numbers and keys ----------------------------------------------------------------------- */

/* splitmix64, in the public domain */
uint64_t mix(uint64_t z);

/* 0..n-1, from `random_state`. */
uint32_t rnd(uint32_t n);

/* The 32 bytes of a key that has this number. */
void key_bytes(uint64_t key, uint8_t bytes[KEY_BYTES]);

/* A row of `sealed`: there are fewer keys than rows. */
size_t row_of(uint64_t key);

/* The step in which the key was sealed last; 0: never. */
unsigned long sealed_at(uint64_t key);

/* ---- the store and its clients -------------------------------------------------------------- */

/* Makes a new store with all its clients, from `seed`. */
void begin_world(void);

/* Frees everything; no extent may be left. */
void end_world(void);

/* Makes a member with the namespace open; `shares`: with a pin segment. */
void join_client(struct client *c, bool shares);

/* Returns one at random. */
struct client *any_client(void);

/* Picks a client and a session that it has open; NULL: there is none. */
struct client *any_open(unsigned *ret_i);

/* ---- the model ------------------------------------------------------------------------------ */

/* Is the page cached, unchanged since it was entered? */
bool is_in_tree(const struct element *e);

/* Does a session hold the page, unchanged since it was entered? */
bool is_in_window(const struct element *e);

/* Cuts the text's list before the first page that isn't in the tree any more. */
void prune(struct text *t);

/* End in tokens of the text up to the last page of the list; `empty` if the list has no page. */
uint64_t end_of(const struct list *l, uint64_t empty);

/* The truncation of text i that is under way and could still succeed; NULL: none. */
struct truncation *truncation_of(unsigned i);

/* The truncation of text i that is under way, if any, must end with this result. */
void call_off(unsigned i, int result);

/* Call it after each step, for each truncation. */
void note_truncation(struct truncation *c);

/* The text ends for the model, except for handles that are open. */
void forget_text(struct text *t);

/* ---- comparison ----------------------------------------------------------------------------- */

/* The store's session with this id; NULL: it has none. */
const struct session *find_real(unsigned i);

/* Compares the session, its pages and its figures with the model. */
void compare_text(unsigned i);

/* Compares all sessions, and checks the store. */
void compare_all(void);

#endif
