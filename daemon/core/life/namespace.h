/*
 * Makes, empties and frees namespaces. state/ns.h describes them. namespace.c calls all functions
 * that must know of these events, in a fixed order. Loop thread only.
 */
#ifndef KVL_CORE_NAMESPACE_H
#define KVL_CORE_NAMESPACE_H

#include "daemon/core/state/drop-reason.h"
#include "daemon/core/state/ns.h"

/* Options that are fixed when a namespace is made. */
struct ns_options {
        bool keep_page_zero;                    /* page 0 is never granted */
        uint64_t stride_bytes;                  /* for ns_geometry_of() */
        struct codec_layers codecs[TIER_COUNT]; /* of lower tiers */
};

/* Makes a namespace on the device and its lower tiers (pool.below). The caller has checked name and
 * layout. Returns 0; -EINVAL: pages below store.min_page_bytes, the geometry of the layout, or a
 * layout that a codec can't encode; -EMFILE: NS_MAX_PER_TENANT; -ENOMEM. */
int ns_new(struct tenant *t, struct pool *pool, const char *name, const struct ns_layout *layout,
        const struct ns_options *options, struct ns **ret_ns, struct detail *d);

/* The stored, checked parts of a namespace. */
struct ns_kept {
        struct records records;
        const struct records_options *options; /* part of the records */
        int index_fd, reader_fd;
};

/* Recovers a namespace of the previous daemon, without its sets: like a new one, with the state of
 * its records. Takes `kept` on success only. Returns 0; -EINVAL: the descriptors aren't of its
 * index segment; -ENOMEM. */
int ns_adopt(struct tenant *t, struct pool *pool, const struct ns_kept *kept, struct ns **ret_ns);

/* Does what ns_empty() does (requests/invalidate.h), and notifies other hosts, which then do the
 * same. */
int ns_invalidate(struct ns *ns, enum drop_cause cause, uint64_t *ret_pages);

/* Frees the namespace with all its contents. It has no attachments, closing ones included. */
void ns_free(struct ns *ns);

#endif
