/*
 * kvleased under `kvleased --keep` is killed and started again. Eight workers publish all the time
 * and check every byte they read (worker-witness.c). Two make it evict, and one does the rest for
 * tests. The witnesses' tenant is "calm", that of those two "busy". The rest is done to "churn",
 * which has room for it.
 *
 *   scene_begin() -> (scene_stir(), scene_kill_daemon(), scene_recover())... -> scene_end()
 */
#ifndef KVL_TEST_RESTART_SCENE_H
#define KVL_TEST_RESTART_SCENE_H

#include "tests/integration/harness.h"
#include "tests/integration/witness.h"

#define N_WITNESSES 8
#define N_LOADS     2

/* After so many steps scene_stir() has done everything, in all variants. */
#define SCENE_STEPS (4 * 24)

static const struct private_tenant scene_tenants[] = {{"calm", "limit = 160MiB\nevents = 256MiB\n"},
        {"busy", "limit = 8MiB\nevents = 256MiB\n"}, {"churn", "limit = 64MiB\n"}, {NULL, NULL}};

struct scene {
        struct harness *h;
        struct witness *witnesses[N_WITNESSES];
        struct worker *workers[N_WITNESSES];
        struct worker *loads[N_LOADS]; /* of "busy": they evict, invalidate, meet */
        struct worker *stirrer;
        uint64_t random;
        unsigned n_stirred;
};

void scene_begin(struct scene *s, struct harness *h);

/* Ends the workers: none has lost a page, or seen a wrong byte. Nothing is left of them. */
void scene_end(struct scene *s);

/* One step of work that witnesses don't do: sessions, announcements, short-lived namespaces,
 * administration. The daemon may die meanwhile. */
void scene_stir(struct scene *s);

/* SIGKILL; the keeper starts another daemon. */
void scene_kill_daemon(struct scene *s);

/* The daemon is dead, or about to be. Waits for the next one's READY, and until each witness has
 * published more; `check` is clean. */
void scene_recover(struct scene *s);

/* Waits until each witness has published two more texts, without a loss. */
void scene_await_progress(struct scene *s);

#endif
