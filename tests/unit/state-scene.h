/*
 * A small daemon's state with something of everything that is kept, made on the host device, and
 * what another daemon finds of it, as text.
 */
#ifndef KVL_TESTS_STATE_SCENE_H
#define KVL_TESTS_STATE_SCENE_H

#include <stdio.h>

#include "daemon/core/state/detail.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/life/recover.h"
#include "tests/unit/fake-keep.h"

struct scene {
        struct store store;
        struct tenant *a, *b;
        struct recovery recovery;
        bool is_lost;
        int opened; /* what state_open() returned */
        struct detail d;
        char said[4096]; /* while it recovered, a line each */
};

/* A daemon starts, as the server has it, with what `keep` has from the one before; the first one
 * without the clients. */
void scene_prepare(struct scene *s, const struct keep *keep);
void scene_start(struct scene *s, const struct keep *keep);

/* All that clients do, in tenants without any. They stay. */
void scene_live(struct scene *s);

/* A line for all that is there: root, namespaces, sets, pages, sessions, clients, what these have
 * open. */
void scene_describe(struct scene *s, FILE *to);

/* Checks the state as a whole, has all clients leave, checks, ends. */
void scene_end(struct scene *s);

#endif
