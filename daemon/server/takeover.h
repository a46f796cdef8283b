/*
 * Recovery at the start of a daemon with a descriptor store: the previous daemon's state becomes
 * its own, and is reported in the log. Called once, with the tenants made and no socket open yet.
 */
#ifndef KVL_SERVER_TAKEOVER_H
#define KVL_SERVER_TAKEOVER_H

#include "daemon/core/state/detail.h"

struct server;

/* Recovers the root of the state: after keeping_open(), before devices are opened. Returns 0, or
 * -errno with the sentence. */
int takeover_begin(struct server *s, struct detail *d);

/* Recovers namespaces, pages, sessions and clients. Returns 0, or -errno with the sentence. */
int takeover_end(struct server *s, struct detail *d);

#endif
