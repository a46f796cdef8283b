/*
 * Opens a namespace for a member, and makes it if it doesn't exist. state/group.h describes
 * attachments; leave.h closes them. Loop thread only.
 */
#ifndef KVL_CORE_OPEN_H
#define KVL_CORE_OPEN_H

#include "daemon/core/state/codecs.h"
#include "daemon/core/state/group.h"

struct attach_options {
        const char *device;  /* NULL, "": none */
        bool keep_page_zero; /* fixed by the first opener */
        const char *set;     /* fixed, too (nsset.h). NULL, "": none */
        uint32_t set_size;
        uint64_t expire_nsec; /* 0: unchanged. Otherwise set by the last opener; readers don't count
                               */
        uint64_t frame;       /* number of the request; 0: none */
        /* Fixed by the first opener; a client that names none accepts the existing ones. */
        struct codec_layers host_codecs, disk_codecs;
        /* The codecs are named, even if they are none; else the tenant's attributes apply. */
        bool names_host_codecs, names_disk_codecs;
        uint64_t stride_bytes; /* fixed, too; 0: any */
};

/*
 * Opens or makes the namespace; the layout is checked. Returns 0, also if another version retired
 * the old contents. KVL_STATUS_LAYOUT with both layouts in the sentence, or for a read-only member
 * if the version differs; -ENOENT: no such device, or no such namespace and the member is
 * read-only; -EACCES: a device is reserved for one tenant (placing.h); -EINVAL; -EEXIST: this
 * member has it open already, or as nsset_join(); -ENOMEM; KVL_STATUS_DRAINING for a new namespace.
 */
int attach_open_with(struct member *m, const char *name, const struct ns_layout *layout,
        const struct attach_options *o, struct attach **ret_attach, struct detail *d);

/* Recovery: opens the namespace with its former ns_id and version. NULL: no memory. */
struct attach *attach_adopt(struct member *m, struct ns *ns, uint32_t id, uint64_t version_epoch);

#endif
