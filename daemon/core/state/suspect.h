/*
 * Finds a client that makes the daemon crash, so that it costs other clients a moment and not the
 * cache. The root of the state (state-root.h) says which client was served at a crash. A client
 * that was served at two crashes is lost.
 *
 *   serving (tenant, client)  set while a request, a ring or a client's end is handled; else 0
 *   crashed                   set by the handler of SIGSEGV, SIGABRT, ... on the loop's thread; a
 *                             SIGKILL from outside doesn't count as a crash
 *   suspects                  clients served at crashes, and how often within SUSPECT_FORGET_NSEC
 *
 * An orderly end forgets all suspects. Loop thread only, except suspect_note_crash().
 */
#ifndef KVL_CORE_SUSPECT_H
#define KVL_CORE_SUSPECT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "daemon/core/state/state-root.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/store.h"

struct detail;
struct tenant;

/* Crashes after which a client is lost: one may be a coincidence. */
#define SUSPECT_CLIENT_DEATHS 2
/* Crashes of one tenant's clients after which all of them are lost, and new ones refused until it
 * is forgotten. Not tuned; below the limit of the descriptor store (keep/parent.h). */
#define SUSPECT_TENANT_DEATHS 4
/* Time after the last crash. A crash per hour costs no other client the cache. Not tuned. */
#define SUSPECT_FORGET_NSEC (3600 * NSEC_PER_SEC)

/* Returns the tenant's mark in the root: a hash of its name, never 0. */
uint64_t suspect_mark(const char *tenant_name);

/* Notes that the client is served from here on; client 0: it has no id yet. Returns the former
 * value for suspect_serve_end(), because calls nest. */
static inline struct state_serving suspect_serve(
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

static inline void suspect_serve_end(struct store *s, struct state_serving was)
{
        atomic_signal_fence(memory_order_seq_cst);
        if (s->state)
                s->state->serving = was;
}

/* Notes that the client is being recovered. A crash now means that its recovered data is harmful.
 */
struct state_serving suspect_take_over(struct store *s, uint64_t tenant_mark, uint64_t client);

/* Notes that a signal caused by the loop's thread ends this process. Async-signal-safe. */
void suspect_note_crash(struct state_root *r);

/* Call this once after state_open(). Counts the crash of the previous daemon. Returns true with the
 * sentence if it crashed while it served a client. Forgets old suspects. */
bool suspects_count(struct store *s, uint64_t now_nsec, struct detail *d);

/* Is the client lost because of crashes? *ret_unread: a daemon crashed while it recovered the
 * client, whose data must not be read. */
bool suspect_is_client(
        const struct store *s, uint64_t tenant_mark, uint64_t client, bool *ret_unread);

/* Are new clients of the tenant refused now? */
bool suspect_is_tenant(const struct store *s, uint64_t tenant_mark, uint64_t now_nsec);

/* The process ends in an orderly way. */
void suspects_forget(struct store *s);

#endif
