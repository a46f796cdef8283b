/*
 * Publishing: pages that a group was granted are sealed under their keys, and found from then on.
 * now_nsec: CLOCK_MONOTONIC. Loop thread only.
 *
 * Page numbers and keys come from peers, and are checked. -EINVAL: a page isn't the caller's to use
 * this way; the sentence names it. KVL_STATUS_STALE: the namespace changed its version after this
 * attachment was opened.
 */
#ifndef KVL_CORE_PUBLISH_H
#define KVL_CORE_PUBLISH_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/state/group.h"

struct publish {
        const uint32_t *pages; /* n, granted to the group */
        const uint8_t *keys;   /* n * KEY_BYTES */
        uint32_t n;
        const uint8_t *parent_key; /* NULL: the first page is a root */
        uint32_t last_tokens;      /* 1..page_tokens */
        uint64_t request;
        uint32_t session;         /* handle of the attachment; 0: none */
        uint64_t tag;             /* 0: none */
        bool window_passed;       /* evict_insert */
        const uint8_t *token_ids; /* 4 bytes for each token of all pages; NULL: unknown */
        const char *names;        /* shm_feed_line.names; NULL: the pages begin no text */
};

/*
 * Seals pages in order, under their keys. For each handled page ret_pages[i] is the page with the
 * key, pinned for this member: the page itself, or another client's earlier one (then the caller's
 * page stays GRANTED until freed). Pages published to a truncated session can't be found by a key
 * and have no duplicates. *ret_n: pages handled. Returns 0; KVL_STATUS_DUPLICATE: all handled, at
 * least one was a duplicate. Other results: stopped at page *ret_n, which stays GRANTED. These are
 * KVL_STATUS_NO_PARENT, -EINVAL, -ENOMEM; KVL_STATUS_STALE (granted before an invalidation);
 * -ENOENT (the session has ended); KVL_STATUS_QUOTA (pin_check() before the first page, and
 * pin_check_page() of the page that has the key).
 */
int publish_pages(struct attach *a, const struct publish *p, uint64_t now_nsec, uint32_t *ret_pages,
        uint32_t *ret_n, struct detail *d);

struct publish_one {
        uint32_t page; /* granted to the group, pinned in the client's segment */
        const uint8_t *key;
        uint32_t parent; /* page, or PAGE_NONE: it begins a text */
        uint32_t tokens; /* 1..page_tokens */
        uint64_t request;
        uint32_t session;   /* handle of the attachment; 0: none */
        uint64_t tag;       /* 0: none */
        bool window_passed; /* evict_insert */
};

/* Seals one page of an attachment with a pin segment, where its pins are counted. Returns 0 with
 * *ret_page the page itself. KVL_STATUS_DUPLICATE with the page that has the key already, to which
 * it adds a pin of this client first (the client's own page stays GRANTED). KVL_STATUS_NO_PARENT,
 * KVL_STATUS_STALE, -EINVAL, -ENOENT (the session has ended), -ENOMEM: nothing changed. */
int publish_shared(struct attach *a, const struct publish_one *p, uint64_t now_nsec,
        uint32_t *ret_page, struct detail *d);

#endif
