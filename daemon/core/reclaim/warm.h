/*
 * Promotes named prefixes from lower tiers (prefetch.h, PREFETCH_WARM): texts by their keys, pages
 * of tags with all before them, or a whole namespace. It runs in the background, one request of a
 * namespace at a time, as far as there is space. It ends when all of it is on the device, or when
 * the rest is worth no more than the pages on the device. It doesn't survive a restart. Loop thread
 * only.
 */
#ifndef KVL_CORE_WARM_H
#define KVL_CORE_WARM_H

#include <stdbool.h>
#include <stdint.h>

struct detail;
struct ns;

#define WARM_MAX_KEYS 256
#define WARM_MAX_TAGS 8

/* The pages: by keys, by tags, or (neither) all. */
struct warm_request {
        const uint8_t *keys; /* n_keys * KEY_BYTES, each with all pages before it; borrowed */
        uint32_t n_keys;     /* at most WARM_MAX_KEYS */
        uint32_t n_tags;     /* at most WARM_MAX_TAGS */
        uint64_t tags[WARM_MAX_TAGS]; /* > 0 */
};

struct warm_figures {
        bool is_running;
        bool is_full;       /* ended for lack of space */
        uint64_t n_there;   /* named pages that were on the device at the beginning */
        uint64_t n_came;    /* promoted since */
        uint64_t n_left;    /* in lower tiers; while it runs, as far as known */
        uint64_t n_missing; /* keys that weren't cached at the beginning */
};

/* Begins a request and counts the named pages: O(bound pages), except for keys. Returns 0; -EBUSY:
 * another one runs; -ENOMEM. */
int warm_begin(struct ns *ns, const struct warm_request *rq, struct detail *d);

/* Ends the request; transfers under way continue. Idempotent. */
void warm_stop(struct ns *ns);

/* Returns the figures of the last request; all 0 if there was none. */
void warm_figures(const struct ns *ns, struct warm_figures *ret);

/* Part of prefetch_work(). Returns true if there is more. */
bool warm_work(struct ns *ns);

/* A page was promoted for the request. */
void warm_note_came(struct ns *ns);

void warm_free(struct ns *ns);

#endif
