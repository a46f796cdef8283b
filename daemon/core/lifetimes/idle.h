/*
 * Namespaces that hold nothing: no client has them open, no page is cached in them, no memory is
 * bound, no session is kept. Each has descriptors and memory of the daemon all the same, so it goes
 * after a while, and at once where its tenant wants another one in its place; what its policy has
 * learnt, its options and its counters go with it. Whoever opens it again finds it as a new one is.
 * What it has on a disk stays there. Loop thread only.
 */
#ifndef KVL_CORE_IDLE_H
#define KVL_CORE_IDLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

struct ns;
struct store;
struct tenant;

/* How long it stays: an engine that is started anew, and loads a model, finds what was learnt. Not
 * tuned. */
#define NS_IDLE_NSEC (600 * NSEC_PER_SEC)

/* Gives up to `max` idle namespaces of the tenant back, whenever they were used; their number. */
uint32_t idle_drop(struct tenant *t, uint32_t max);

/* Notes since when namespaces are idle. When it wants to be called again; UINT64_MAX: none is; not
 * after now_nsec: idle_work() has something to do. */
uint64_t idle_look(struct store *s, uint64_t now_nsec);

/* Gives some of those back whose time has come. True: there are more. */
bool idle_work(struct store *s);

#endif
