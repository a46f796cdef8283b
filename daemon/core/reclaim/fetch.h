/*
 * FETCH: promotes a page that a client has pinned in a lower tier to the device
 * (docs/reference/PROTOCOL.md). Or it copies the page's bytes into a page that is granted to the
 * client, and the page stays where it is. Or it demotes a page of the device, which the client
 * reads in the lower tier from then on. A copy may have some planes only, as attention needs one
 * layer at a time. Loop thread only.
 *
 *   fetch:  begun -> waiting (for space, or for a transfer) -> done, reported once
 *                \-> cancelled: not reported
 *
 * Fetches of one page share one transfer (transfer.h). The report adds no pin.
 */
#ifndef KVL_CORE_FETCH_H
#define KVL_CORE_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/core/moves/transfer.h"
#include "daemon/core/state/geometry.h"

struct attach;
struct detail;
struct fetch;
struct ns;
struct store;

/* Fetches of one attachment under way. Not tuned. */
#define FETCH_MAX 256

/*
 * Reports the end. status 0: `page` has the key now, on the device (goes_down: below it), or has
 * the bytes (COPY). -ENOENT: the page was dropped or damaged, or a session's window holds it where
 * it is (not for COPY). KVL_STATUS_FULL: no space there. -ECANCELED: `to` was given back, or the
 * attachment closes. -EIO, -ETIMEDOUT: the device failed, or (goes_down) the codec refuses the
 * page. Called from transfer_work() and attach_close(), never from fetch_begin(); may call
 * fetch_begin() and fetch_cancel().
 */
typedef void (*fetch_fn)(struct fetch *f, int status, uint32_t page, void *data);

struct fetch_request {
        uint32_t page;
        uint32_t generation;       /* low 32 bits of the page's */
        uint32_t to;               /* PAGE_NONE: move; else copy to a page granted to the group */
        struct plane_range planes; /* of a copy: planes to copy; n 0: all */
        bool goes_down;            /* move to a lower tier instead of the device */
};

struct fetch {
        struct list_link link; /* store.fetching.fetches */
        struct attach *attach; /* borrowed */
        struct fetch_request rq;
        fetch_fn done;
        void *data;      /* borrowed */
        bool is_waiting; /* waits for the end of a transfer; false: for its begin */
        bool is_tried;   /* scratch of fetch_work() */
        unsigned n_tries;
};

#define FETCH_THERE 1

/* Begins a fetch. Returns 0: *ret_fetch is under way. FETCH_THERE: *ret_page has the key and is in
 * the right place already. -ENOENT: as above; -EINVAL with the sentence: no such page or planes, or
 * `to` isn't granted to the client's group; -EIO: a copy, and no device has a lower tier;
 * KVL_STATUS_FULL: no space there; -EAGAIN: FETCH_MAX; -ENOMEM. */
int fetch_begin(struct attach *a, const struct fetch_request *rq, fetch_fn done, void *data,
        struct fetch **ret_fetch, uint32_t *ret_page, struct detail *d);

/* Stops reporting; the transfer continues. */
void fetch_cancel(struct fetch *f);

/* The attachment closes: reports -ECANCELED for each fetch. */
void fetch_end_all(struct attach *a);

/* Returns the attachment's fetches under way. */
uint32_t fetch_count(const struct attach *a);

/* A transfer of this kind has ended with this result: reports to fetches of the page, or continues
 * them. */
void fetch_ended(struct ns *ns, enum transfer_kind kind, uint32_t from, uint32_t to,
        struct plane_range planes, int result);

/* Retries fetches whose transfer couldn't begin. Part of transfer_work(). Returns true if one is
 * left. */
bool fetch_work(struct store *s);

/* Continues all transfers: ends finished ones, and starts those that can start. Returns true while
 * one is under way. */
bool transfer_work(struct store *s);

#endif
