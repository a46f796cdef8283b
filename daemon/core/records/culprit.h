/*
 * Whom the daemon served when it died by a fault of its own, so that one client that reaches such a
 * fault costs the others a moment and not the cache: the next daemon reads it in the root of the
 * state (state-root.h), and who was served at two such deaths is lost.
 *
 *   serving (tenant, client)  set while a request, a ring, a client's end is worked on; else 0
 *   crashed                   set by who handles the signal (SIGSEGV, SIGABRT, ...) on the loop's
 *                             thread; a SIGKILL from outside says nothing about who was served
 *   suspects                  who was served at a death, and how often within CULPRIT_FORGET_NSEC
 *
 * An orderly end forgets all suspects. Loop thread only, but for culprit_note_crash().
 */
#ifndef KVL_CORE_CULPRIT_H
#define KVL_CORE_CULPRIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "daemon/core/ground/state-root.h"
#include "daemon/core/objects/group.h"
#include "daemon/core/objects/store.h"

struct detail;
struct tenant;

/* Deaths at which a client was served that make it lost: one may be a coincidence. */
#define CULPRIT_CLIENT_DEATHS 2
/* Of one tenant's clients, whichever: they are all lost, and new ones are refused as long as it
 * isn't forgotten. Not tuned; below what the keeper puts up with (keep/parent.h). */
#define CULPRIT_TENANT_DEATHS 4
/* After the last of them. A death an hour costs nobody the cache. Not tuned. */
#define CULPRIT_FORGET_NSEC (3600 * NSEC_PER_SEC)

/* What names a tenant in the root: a hash of its name, never 0. */
uint64_t culprit_mark(const char *tenant_name);

/* From here on the client is served; client 0: one that has no id yet. Returns what was before, for
 * culprit_serve_end(): one can be served on behalf of another. */
static inline struct state_serving culprit_serve(
        struct store *s, uint64_t tenant_mark, uint64_t client)
{
        struct state_root *r = s->state;
        struct state_serving was = {0, 0, 0};

        if (!r)
                return was;
        was = r->serving;
        r->serving.takes_over = 0;
        r->serving.client = client;
        r->serving.tenant = tenant_mark;
        atomic_signal_fence(memory_order_seq_cst);
        return was;
}

static inline void culprit_serve_end(struct store *s, struct state_serving was)
{
        atomic_signal_fence(memory_order_seq_cst);
        if (s->state)
                s->state->serving = was;
}

/* The same while it is taken over from an earlier daemon: a death here means what it left. */
struct state_serving culprit_take_over(struct store *s, uint64_t tenant_mark, uint64_t client);

/* This process dies by a signal that its loop's thread has caused. Async-signal-safe. */
void culprit_note_crash(struct state_root *r);

/*
 * After state_open(), once: takes down who was served when the daemon before this one died. True,
 * with the sentence: somebody was. Suspects that are too old are forgotten.
 */
bool culprits_count(struct store *s, uint64_t now_nsec, struct detail *d);

/* Is the client lost by this? *ret_unread: a daemon died while it took over what the client left,
 * which isn't to be read. */
bool culprit_is_client(
        const struct store *s, uint64_t tenant_mark, uint64_t client, bool *ret_unread);

/* Are new clients of the tenant refused now? */
bool culprit_is_tenant(const struct store *s, uint64_t tenant_mark, uint64_t now_nsec);

/* The process ends in peace. */
void culprits_forget(struct store *s);

#endif
