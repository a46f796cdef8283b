/*
 * Follows one namespace of kvleased, keeps a model of its pages, and tells a publisher.
 *
 *   away -> waiting (no namespace matches) <-> reading (RESET to SYNCED) <-> live
 *
 * If several namespaces match, the feed follows the newest, because an upgraded engine opens a new
 * one. Routers are told that nothing is cached if the namespace ends, or kvleased is away for 10 s.
 * Not thread-safe.
 */
#ifndef KVL_EVENTS_FEED_H
#define KVL_EVENTS_FEED_H

#include <stdbool.h>
#include <stdint.h>

#include "client/events/publisher.h"

struct feed_options {
        const char *socket;
        const char *tenant;  /* NULL: any */
        const char *pattern; /* fnmatch() of the namespace's name or model */
        uint32_t layer_group;
        uint32_t block_tokens;
};

struct feed;

/* Borrows both. Returns 0: *ret is owned; -ENOMEM. Doesn't connect. */
int feed_new(const struct feed_options *options, struct publisher *publisher, struct feed **ret);
void feed_free(struct feed *f);

/* Connects if that is due, and handles the events that wait, up to some thousand. Returns 1: more
 * may wait; 0: none do; -ENOMEM. */
int feed_turn(struct feed *f);

/* Returns the known pages of the namespace, borrowed. */
const struct model *feed_model(const struct feed *f);

/* Whether these are all of its pages. */
bool feed_is_live(const struct feed *f);

#endif
