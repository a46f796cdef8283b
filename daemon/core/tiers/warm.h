/*
 * Named prefixes are brought up from below the device (prefetch.h, PREFETCH_WARM): texts by their
 * keys, pages of tags with all that comes before them, or a whole namespace. In the background, one
 * request of a namespace at a time, as far as there is room: it ends where all of it is on the
 * device, or where what is left is worth no more than what lies there. A restart forgets it. Loop
 * thread only.
 */
#ifndef KVL_CORE_WARM_H
#define KVL_CORE_WARM_H

#include <stdbool.h>
#include <stdint.h>

struct detail;
struct ns;

#define WARM_MAX_KEYS 256
#define WARM_MAX_TAGS 8

/* Which: keys, tags, or (neither) everything. */
struct warm_request {
        const uint8_t *keys; /* n_keys * KEY_BYTES, each with what comes before it; borrowed */
        uint32_t n_keys;     /* at most WARM_MAX_KEYS */
        uint32_t n_tags;     /* at most WARM_MAX_TAGS */
        uint64_t tags[WARM_MAX_TAGS]; /* > 0 */
};

struct warm_figures {
        bool is_running;
        bool is_full;       /* ended for want of room */
        uint64_t n_there;   /* pages named that were on the device when it began */
        uint64_t n_came;    /* brought up since */
        uint64_t n_left;    /* that lie below; while it runs: as far as is known */
        uint64_t n_missing; /* keys that nothing had when it began */
};

/* Begins. Counts what is named: O(bound pages) but for keys. 0; -EBUSY: another one runs; -ENOMEM.
 */
int warm_begin(struct ns *ns, const struct warm_request *rq, struct detail *d);

/* The request ends where it is; what is under way comes up. Safe to repeat. */
void warm_stop(struct ns *ns);

/* Figures of the last request; all 0 where there was none. */
void warm_figures(const struct ns *ns, struct warm_figures *ret);

/* Part of prefetch_work(). True: there is more. */
bool warm_work(struct ns *ns);

/* A page has come up for it. */
void warm_note_came(struct ns *ns);

void warm_free(struct ns *ns);

#endif
