/*
 * One scrape of the daemon: all its families. If the daemon can't be asked: kvlease_up 0 and the
 * exporter's own families.
 *
 * Thread-safe: one thread asks the daemon at a time, and waiting threads share one scrape. Clients
 * of the exporter can't keep the daemon busy: after a scrape that took t nothing is asked for 9 t,
 * 1 s at most.
 */
#ifndef KVL_EXPORTER_SCRAPE_H
#define KVL_EXPORTER_SCRAPE_H

#include <stddef.h>
#include <stdint.h>

#include "client/exporter/text.h"

struct scraper_options {
        const char *socket; /* monitor or admin socket; borrowed */
        uint64_t timeout_nsec;
        size_t max_rows; /* named rows of each table */
};

struct scraper;

/* Returns 0: *ret is owned; -ENOMEM. Doesn't connect. */
int scraper_new(const struct scraper_options *o, struct scraper **ret);
void scraper_free(struct scraper *s);

/* Appends the families to `t`, in either format, and their end. Returns 0, also if the daemon is
 * away; or -ENOMEM. */
int scraper_metrics(struct scraper *s, struct text *t);

/* Appends a page of HTML for people, which its script updates. Returns as scraper_metrics(). */
int scraper_page(struct scraper *s, struct text *t);

/* Appends the script's data (status.h). Returns as scraper_metrics(); doesn't count as a scrape. */
int scraper_status(struct scraper *s, struct text *t);

/* Takes a sample for the history if one is due. */
void scraper_sample(struct scraper *s);

#endif
