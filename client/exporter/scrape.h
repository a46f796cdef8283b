/*
 * One look at the daemon, written down: all families that there are, or, where the daemon can't be
 * asked, kvlease_up 0 and what the exporter knows of itself.
 *
 * Any thread: one asks the daemon at a time, and those who wait meanwhile are told of one look.
 * Whoever can reach the exporter can't keep the daemon busy: after a look that took t nothing is
 * asked for 9 t, 1 s at most.
 */
#ifndef KVL_EXPORTER_SCRAPE_H
#define KVL_EXPORTER_SCRAPE_H

#include <stddef.h>
#include <stdint.h>

#include "client/exporter/text.h"

struct scraper_options {
        const char *socket; /* monitor or admin socket; borrowed */
        uint64_t timeout_nsec;
        size_t max_rows; /* of each table that are told by name */
};

struct scraper;

/* 0: *ret is returned owned; -ENOMEM. Doesn't connect. */
int scraper_new(const struct scraper_options *o, struct scraper **ret);
void scraper_free(struct scraper *s);

/* Appends the families to `t`, of either format, and its end. 0, also where the daemon is away; or
 * -ENOMEM. */
int scraper_metrics(struct scraper *s, struct text *t);

/* Appends a page of HTML for people, which its script keeps up to date. As above. */
int scraper_page(struct scraper *s, struct text *t);

/* Appends what the script is sent (status.h). As above; isn't counted as a scrape. */
int scraper_status(struct scraper *s, struct text *t);

/* Takes a sample for the history, where one is due. */
void scraper_sample(struct scraper *s);

#endif
