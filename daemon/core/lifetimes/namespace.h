/*
 * Namespaces are made, emptied at once and ended. What a namespace is: objects/ns.h. Whoever has to
 * hear of one of these is called by name, in the order that is written in namespace.c. Loop thread
 * only.
 */
#ifndef KVL_CORE_NAMESPACE_H
#define KVL_CORE_NAMESPACE_H

#include "daemon/core/objects/drop-reason.h"
#include "daemon/core/objects/ns.h"

/* What is fixed when a namespace is made. */
struct ns_options {
        bool keep_page_zero;                    /* page 0 is never granted */
        uint64_t stride_bytes;                  /* as of ns_geometry_of() */
        struct codec_layers codecs[TIER_COUNT]; /* of what lies in tiers below the device */
};

/* Makes a namespace on the device and on what is below it (pool.below). Name and layout are checked
 * already. 0; -EINVAL: pages below store.min_page_bytes, the geometry of the layout, or a layout
 * that a codec has no use for; -EMFILE: NS_MAX_PER_TENANT; -ENOMEM. */
int ns_new(struct tenant *t, struct pool *pool, const char *name, const struct ns_layout *layout,
        const struct ns_options *options, struct ns **ret_ns, struct detail *d);

/* What is kept of a namespace, and was looked at. */
struct ns_kept {
        struct records records;
        const struct records_options *options; /* in the records */
        int index_fd, reader_fd;
};

/*
 * A namespace of the daemon before this one, without its sets: as ns_new() leaves it but for what
 * the records say. Takes `kept` on success only. 0; -EINVAL: the descriptors aren't of its index
 * segment; -ENOMEM.
 */
int ns_adopt(struct tenant *t, struct pool *pool, const struct ns_kept *kept, struct ns **ret_ns);

/* As ns_empty() (requests/invalidate.h), and other hosts are told, which then do the same. */
int ns_invalidate(struct ns *ns, enum drop_cause cause, uint64_t *ret_pages);

/* Frees the namespace with everything that it holds. It has no attachments, nor any that is
 * closing. */
void ns_free(struct ns *ns);

#endif
