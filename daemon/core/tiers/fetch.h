/*
 * FETCH: a page that lies below the device is brought up for a client that has it pinned there
 * (docs/PROTOCOL.md); or its bytes are copied into a page that is granted to it, and it stays where
 * it is; or a page of the device goes below it, where the client reads it from then on. A copy may
 * be of some planes alone, as attention needs a layer at a time. Loop thread only.
 *
 *   fetch:  begun -> waiting (for room to move, or for a transfer) -> done, told once
 *                \-> cancelled: nothing is told
 *
 * Those that want the same page share one transfer (transfer.h). No pin comes with what is told.
 */
#ifndef KVL_CORE_FETCH_H
#define KVL_CORE_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "daemon/core/ground/geometry.h"
#include "daemon/core/moves/transfer.h"

struct attach;
struct detail;
struct fetch;
struct ns;
struct store;

/* Under way for one attachment. Not tuned. */
#define FETCH_MAX 256

/*
 * status 0: `page` has the key now, on the device (below it: goes_down), or has the bytes (COPY).
 * -ENOENT: it is gone, or was damaged, or a session's window holds it where it is (not of COPY);
 * KVL_STATUS_FULL: no room there; -ECANCELED: `to` was given back, or the attachment closes; -EIO,
 * -ETIMEDOUT: the device, or (goes_down) its codec doesn't take it. Called from transfer_work() and
 * attach_close(), never from within fetch_begin(); may call fetch_begin() and fetch_cancel().
 */
typedef void (*fetch_fn)(struct fetch *f, int status, uint32_t page, void *data);

struct fetch_request {
        uint32_t page;
        uint32_t generation;       /* low 32 bits of its own */
        uint32_t to;               /* PAGE_NONE: it moves; else a page granted to the group */
        struct plane_range planes; /* of a copy: that are copied; n 0: all */
        bool goes_down;            /* moves: below the device, not to it */
};

struct fetch {
        struct list_link link; /* store.fetching.fetches */
        struct attach *attach; /* borrowed */
        struct fetch_request rq;
        fetch_fn done;
        void *data;      /* borrowed */
        bool is_waiting; /* for a transfer; else for one to be begun */
        bool is_tried;   /* scratch of fetch_work() */
        unsigned n_tries;
};

#define FETCH_THERE 1

/*
 * 0: *ret_fetch is under way. FETCH_THERE: *ret_page, which is where it is to be, has its key.
 * -ENOENT: as above; -EINVAL with the sentence: no such page, or no such planes, or `to` isn't
 * granted to the client's group; -EIO: a copy, and no device has a tier below it; KVL_STATUS_FULL:
 * no room there; -EAGAIN: FETCH_MAX; -ENOMEM.
 */
int fetch_begin(struct attach *a, const struct fetch_request *rq, fetch_fn done, void *data,
        struct fetch **ret_fetch, uint32_t *ret_page, struct detail *d);

/* Nothing is told any more; the transfer goes on where it is. */
void fetch_cancel(struct fetch *f);

/* The attachment closes: each is told -ECANCELED. */
void fetch_end_all(struct attach *a);

/* Under way for it. */
uint32_t fetch_count(const struct attach *a);

/* A transfer of this kind is over, with this result: who fetches the page is told, or goes on. */
void fetch_ended(struct ns *ns, enum transfer_kind kind, uint32_t from, uint32_t to,
        struct plane_range planes, int result);

/* Tries again what could not be begun. Part of transfer_work(). True: there is such a one. */
bool fetch_work(struct store *s);

#endif
