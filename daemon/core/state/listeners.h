/*
 * Events that a module reports to modules above it. They need no answer: listeners decide nothing
 * and can't fail. daemon/core/wiring.c fills the table, which gives the listeners and their order.
 * store_init() puts it into the store.
 */
#ifndef KVL_CORE_LISTENERS_H
#define KVL_CORE_LISTENERS_H

#include <stdint.h>

#include "daemon/core/state/drop-reason.h"
#include "daemon/core/state/moving.h"
#include "daemon/exchange/format/change.h"

struct attach;
struct ns;

struct core_listeners {
        /* A findable page of the disk is about to be FREE or invalidated. No lookup may find its
         * bytes on the disk after this. */
        void (*page_leaves_disk)(struct ns *ns, uint32_t page);
        /* A findable page is being dropped for this reason. It still has its place in the tree. */
        void (*page_goes)(struct ns *ns, uint32_t page, struct drop_reason reason);
        /* The sweep has reached a page that an invalidation of its whole namespace made stale. */
        void (*page_swept)(struct ns *ns, uint32_t page);
        /* A page is about to get another number, `to`. It still has only the old one. */
        void (*page_moves)(struct ns *ns, uint32_t from, uint32_t to);
        /* The page has its new number; index and tree already use it. */
        void (*page_moved)(struct ns *ns, uint32_t from, uint32_t to);
        /* A lookup of this client found the page as its deepest. */
        void (*page_found)(struct attach *a, uint32_t page);
        /* A page was published and can be found. */
        void (*page_published)(struct ns *ns, uint32_t page);
        /* A turn of the session with this id has ended. Its last handle was closed, a client has
         * said when it will be used next, or the session was truncated or dropped. */
        void (*session_rests)(struct ns *ns, const uint8_t *id, uint32_t id_len);
        /* A client invalidates a key or a tag. Their pages may be on other hosts only. */
        void (*invalidated)(struct ns *ns, const struct change_item *what);
        /* A page that is being imported (PAGE_SEQ_IMPORT) isn't announced any more, or a set of the
         * namespace is being taken back. The importer checks its pages. */
        void (*import_disturbed)(struct ns *ns);
        /* The target page of a transfer was given back: the copy isn't needed any more. */
        void (*copy_unwanted)(struct transfer *t);
        /* A transfer other than TRANSFER_DOWN has ended with 0 or -errno. */
        void (*transfer_ended)(struct ns *ns, enum transfer_kind kind, uint32_t from, uint32_t to,
                struct plane_range planes, int result);
};

#endif
