/*
 * Events that a module reports to modules above it. They need no answer: listeners decide nothing
 * and can't fail. Within the core, daemon/core/wiring.c fills the table, which gives the listeners
 * and their order. store_init() puts it into the store. A module above the core fills a table for
 * each tenant that it listens to.
 */
#ifndef KVL_CORE_LISTENERS_H
#define KVL_CORE_LISTENERS_H

#include <stdint.h>

#include "daemon/core/state/drop-reason.h"
#include "daemon/core/state/moving.h"

struct attach;
struct ns;
struct tenant;

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
        /* The target page of a transfer was given back: the copy isn't needed any more. */
        void (*copy_unwanted)(struct transfer *t);
        /* A transfer other than TRANSFER_DOWN has ended with 0 or -errno. */
        void (*transfer_ended)(struct ns *ns, enum transfer_kind kind, uint32_t from, uint32_t to,
                struct plane_range planes, int result);
};

/* Events for the module above the core that exchanges a tenant's pages with other hosts. */
struct tenant_listeners {
        /* The namespace was made, and is in its set, if any; or its identity has changed. */
        void (*ns_enters)(struct ns *ns);
        /* The namespace is being freed; or its identity is about to change, and it enters again. */
        void (*ns_leaves)(struct ns *ns);
        /* Memory that was being made for the namespace has come, and is given back if it isn't used
         * now. */
        void (*ns_has_room)(struct ns *ns);
        /* A page that is being imported (PAGE_SEQ_IMPORT) isn't announced any more, or a set of the
         * namespace is being taken back. The importer checks its pages. */
        void (*ns_is_disturbed)(struct ns *ns);
        /* A client or an administrator invalidates the page with a key, or the pages with a tag,
         * and all below them. key NULL and tag 0: all pages. They may be on other hosts only. Also
         * told before a namespace is removed. */
        void (*invalidated)(struct ns *ns, const uint8_t *key, uint64_t tag);
        /* A lookup of this client found the page as its deepest. core_listeners.page_found comes
         * first. */
        void (*page_found)(struct attach *a, uint32_t page);
        /* A page was published and can be found. */
        void (*page_published)(struct ns *ns, uint32_t page);
        /* A turn of the session with this id has ended. Its last handle was closed, a client has
         * said when it will be used next, or the session was truncated or dropped. */
        void (*session_rests)(struct ns *ns, const uint8_t *id, uint32_t id_len);
        /* The attachment closes; its pages and announcements are still there. */
        void (*attach_leaves)(struct attach *a);
        /* The tenant is being freed. The listener clears tenant.listener. */
        void (*tenant_ends)(struct tenant *t);
};

/* The listener's own state for the tenant begins with this. */
struct tenant_listener {
        const struct tenant_listeners *events;
};

/* Calls a function of the tenant's listener, if there is one. */
#define tenant_tell(tenant, event, ...)                                 \
        do {                                                            \
                if ((tenant)->listener)                                 \
                        (tenant)->listener->events->event(__VA_ARGS__); \
        } while (0)

#endif
