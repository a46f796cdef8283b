/*
 * What a room tells those above it that it can't know: that something has happened, after which
 * nothing is to be decided. The table is filled in daemon/core/wiring.c, which says who listens and
 * in which order, and store_init() puts it into the store. Nothing here fails.
 */
#ifndef KVL_CORE_LISTENERS_H
#define KVL_CORE_LISTENERS_H

#include <stdint.h>

#include "daemon/core/objects/drop-reason.h"
#include "daemon/core/objects/transfer.h"
#include "daemon/exchange/change.h"

struct attach;
struct ns;

struct core_listeners {
        /* A page of the disk, which can be found until now, is about to be FREE, or is invalidated:
         * nobody is to find its bytes there. */
        void (*page_leaves_disk)(struct ns *ns, uint32_t page);
        /* A page that can be found goes, for this reason. It has its place in the tree still. */
        void (*page_goes)(struct ns *ns, uint32_t page, struct drop_reason reason);
        /* The sweep has come to a page that was made unfindable with all others of its namespace.
         */
        void (*page_swept)(struct ns *ns, uint32_t page);
        /* A page is about to get another number, `to`: there aren't two of it yet. */
        void (*page_moves)(struct ns *ns, uint32_t from, uint32_t to);
        /* It has it: index and tree say so. */
        void (*page_moved)(struct ns *ns, uint32_t from, uint32_t to);
        /* A lookup of this client has found the page as its deepest. */
        void (*page_found)(struct attach *a, uint32_t page);
        /* A page was published, and can be found. */
        void (*page_published)(struct ns *ns, uint32_t page);
        /* A turn of the session with this id is over: nobody has it open any more, or a client says
         * when it will be used next; or it was truncated, or dropped. */
        void (*session_rests)(struct ns *ns, const uint8_t *id, uint32_t id_len);
        /* A client invalidates a key, or a tag, which may be of pages that aren't here. */
        void (*invalidated)(struct ns *ns, const struct change_item *what);
        /* A page of the namespace that is being imported (PAGE_SEQ_IMPORT) isn't announced any
         * more, or a set of the namespace is being taken back: whoever imports looks at what he
         * has. */
        void (*import_disturbed)(struct ns *ns);
        /* The page that a transfer copies to was given back: the copy is for nobody. */
        void (*copy_unwanted)(struct transfer *t);
        /* A transfer that isn't one of TRANSFER_DOWN is over: 0, or why it failed. */
        void (*transfer_ended)(struct ns *ns, enum transfer_kind kind, uint32_t from, uint32_t to,
                struct plane_range planes, int result);
};

#endif
