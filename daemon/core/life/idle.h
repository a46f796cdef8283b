/*
 * Frees idle namespaces: no client has them open, and they have no cached pages, bound memory or
 * sessions. They still cost the daemon descriptors and memory. So they are freed after a while, or
 * at once if their tenant needs their place for another one. The policy's learnt state, options and
 * counters are freed, too: a client that opens the namespace again finds a new one. Pages on a disk
 * stay. Loop thread only.
 */
#ifndef KVL_CORE_IDLE_H
#define KVL_CORE_IDLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

struct ns;
struct store;
struct tenant;

/* Idle time before a namespace is freed: an engine that restarts and loads a model still finds the
 * learnt state. Not tuned. */
#define NS_IDLE_NSEC (600 * NSEC_PER_SEC)

/* Frees up to `max` idle namespaces of the tenant, ignoring their idle time. Returns their number.
 */
uint32_t idle_drop(struct tenant *t, uint32_t max);

/* Notes since when namespaces are idle. Returns when to call it again; UINT64_MAX: none is idle; at
 * most now_nsec: idle_work() has work. */
uint64_t idle_look(struct store *s, uint64_t now_nsec);

/* Frees some namespaces whose time has come. Returns true if there are more. */
bool idle_work(struct store *s);

#endif
