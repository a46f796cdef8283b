/*
 * A member opens a namespace, which is made where there is none. What an attachment is:
 * objects/group.h; how it is closed: leave.h. Loop thread only.
 */
#ifndef KVL_CORE_OPEN_H
#define KVL_CORE_OPEN_H

#include "daemon/core/ground/codecs.h"
#include "daemon/core/objects/group.h"

struct attach_options {
        const char *device;  /* NULL, "": none is named */
        bool keep_page_zero; /* fixed by the first who opens it */
        const char *set;     /* likewise (nsset.h). NULL, "": none is named */
        uint32_t set_size;
        uint64_t expire_nsec; /* 0: says nothing. Of those that say one the last is right; readers
                                 don't count */
        uint64_t frame;       /* number of the request; 0: none */
        /* Fixed by the first who opens it; who asks for none takes what there is. */
        struct codec_layers host_codecs, disk_codecs;
        /* They are meant, be they none: else the tenant's attributes say which there are. */
        bool names_host_codecs, names_disk_codecs;
        uint64_t stride_bytes; /* likewise; 0: any */
};

/*
 * Opens or creates the namespace. Layout is checked. 0 (also where another version retired the old
 * contents); KVL_STATUS_LAYOUT with both layouts in the sentence, or for a read-only member where
 * the version differs; -ENOENT: no such device, or no such namespace and the member is read-only;
 * -EACCES: a device is kept for one tenant alone (placing.h); -EINVAL; -EEXIST: this member has it
 * open already, or as nsset_join(); -ENOMEM; KVL_STATUS_DRAINING for a new namespace.
 */
int attach_open_with(struct member *m, const char *name, const struct ns_layout *layout,
        const struct attach_options *o, struct attach **ret_attach, struct detail *d);

/* For recovery: the namespace is open, with the ns_id and the version that it had. NULL: no memory.
 */
struct attach *attach_adopt(struct member *m, struct ns *ns, uint32_t id, uint64_t version_epoch);

#endif
