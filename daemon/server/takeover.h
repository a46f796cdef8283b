/*
 * The start of a daemon where somebody keeps memory for it: what the one before it left is its own
 * from then on, and said in the log. Once, with the tenants made and no socket open yet.
 */
#ifndef KVL_SERVER_TAKEOVER_H
#define KVL_SERVER_TAKEOVER_H

#include "daemon/core/ground/detail.h"

struct server;

/* Once somebody keeps memory or not, before devices are opened: the root of the state. 0 or -errno
 * with the sentence. */
int takeover_begin(struct server *s, struct detail *d);

/* Namespaces, pages, sessions, clients. 0 or -errno with the sentence. */
int takeover_end(struct server *s, struct detail *d);

#endif
