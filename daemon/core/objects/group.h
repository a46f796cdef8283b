/*
 * Who holds what.
 *
 *   group       the processes of one engine: owns the grants (GRANTED pages)
 *   member      one connection of it (one process): owns its pins and what it has mapped
 *   attachment  one member with one namespace open
 *
 * Grants end with the last member that has the namespace open; pins and mappings end with their
 * member (leave.h). When a member may leave (hang-up *and* exit, or BYE) is the server's decision.
 *
 * A member lingers while its process is dead but its work on a device may not be. It keeps what it
 * holds until it is freed. What its living mates give back meanwhile, in sets that it has mapped,
 * isn't granted to anybody before that: page.given_back.
 */
#ifndef KVL_CORE_GROUP_H
#define KVL_CORE_GROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/map.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/clients/leave.h"
#include "daemon/core/clients/magazine.h"
#include "daemon/core/clients/pin-counts.h"
#include "daemon/core/ground/chore.h"
#include "daemon/core/objects/ns.h"
#include "daemon/core/quota/wait.h"

struct store;
struct tenant;
struct detail;

/*
 * Pins of one client on one page that it took over the socket. A page's record has the sum over its
 * clients in 32 bits: as many as a tenant can have, those of an earlier daemon included, don't
 * reach the end of that, whatever max_pins is. No reader needs as many.
 */
#define PAGE_MAX_CLIENT_PINS 65535

#define GROUP_TOKEN_BYTES  16
#define CLIENT_TOKEN_BYTES 16

struct group {
        struct list_link link; /* tenant.groups */
        struct tenant *tenant; /* borrowed */
        uint32_t id;           /* unique among living groups, > 0 */
        uint8_t token[GROUP_TOKEN_BYTES];
        struct list_link members; /* struct member.link; none: nobody finds it */
        struct list_link leaving; /* struct member.link; leave.h */
        uint32_t n_lingering;     /* of the members */
        struct list_link grants;  /* struct grants.link */
};

struct member {
        struct list_link link; /* group.members */
        struct group *group;   /* borrowed; freed with its last member */
        uint64_t id;           /* client id: never reused while the daemon's state lives */
        uint32_t record;       /* client-record.h: row; 0: it doesn't outlive the process */
        uint8_t resume_token[CLIENT_TOKEN_BYTES]; /* the one given last; where there are rows */
        bool metadata_only;
        bool safepoints; /* it says that its engine calls kvl_safepoint() between steps */
        bool read_only;  /* looks up and pins; who handles requests refuses the rest, but for what
                            attach_open() and the magazine refuse themselves */
        bool lingers;
        bool is_over;                 /* it publishes nothing more */
        bool repeats;                 /* what it asks for now may have been done already, by the
                                         daemon before this one: publishing a page that it has
                                         published as this is 0, not -EINVAL */
        bool has_left;                /* leave.h: it ends with the last that is closing */
        struct list_link attachments; /* struct attach.member_link */
        struct list_link closing;     /* likewise; leave.h */
        uint32_t last_attach_id;
        uint32_t n_mapped_sets;      /* 0: may be dropped at hang-up */
        uint32_t n_quarantined_sets; /* of these, that it didn't give back in time */
        uint32_t n_sessions;         /* handles */
        uint64_t n_pins;             /* taken over the socket */
        void *server_data;           /* the peer; borrowed, not touched here */
};

/* What is known of a set that a member has mapped. */
enum mapped_bits {
        MAPPED = 1 << 0,            /* always */
        MAPPED_TOLD = 1 << 1,       /* was told that it is recalled */
        MAPPED_TOLD_IDLE = 1 << 2,  /* was told that it may be unmapped */
        MAPPED_QUARANTINE = 1 << 3, /* counted in member.n_quarantined_sets */
        MAPPED_NAMED = 1 << 4,      /* a client that goes on said so (resume.h) */
};

struct attach {
        struct list_link member_link, ns_link;
        struct member *member;   /* borrowed */
        struct ns *ns;           /* borrowed */
        struct grants *grants;   /* shared */
        uint32_t id;             /* ns_id on the wire: unique within the member, > 0 */
        uint32_t record;         /* client-record.h: row; 0: none */
        uint64_t open_frame;     /* number of the NS_OPEN; 0: none */
        bool has_announced;      /* since its member's announcements were withdrawn (announce.h) */
        uint32_t withdraw_at;    /* these are, up to this page; PAGE_NONE: all */
        struct chore withdrawal; /* the rest of them, but for one that is closing */
        uint64_t version_epoch;  /* of the namespace when opened */
        struct pin_counts pins;  /* taken over the socket */
        uint32_t *kept_pins;     /* the same for the next daemon; owned mapping; NULL: none yet */
        struct map mapped;       /* set index -> enum mapped_bits */
        struct pins share;       /* its pin segment */
        bool pins_lost;          /* at a restart: nobody knows what it pins, and until it is closed
                                    all of the namespace counts as pinned */
        struct wait wait;        /* its lease that waits, if any */
        struct magazine *magazine; /* owned; NULL where `share` isn't open */
        struct map sessions;       /* handle -> struct opening (session-impl.h) */
        uint32_t last_session;     /* handle */
        struct readers *readers;   /* owned; prefetch.h; NULL: it has fetched nothing */
        /* While it is closing (leave.h): */
        struct chore chore;
        struct list_link grants_link; /* grants.closing */
        bool ends_grants;             /* it was the last of its group */
        uint32_t grants_at;           /* the next page to look at; PAGE_NONE: none */
        uint32_t pins_at;             /* of pin_counts_next() */
        uint32_t mapped_at;           /* the next set to look at */
        void (*closed)(void *data);   /* NULL: nobody is told */
        void *closed_data;
};

/*
 * Joins the group with `token`, or starts a new one where token is NULL. 0; -ENOENT: no such group
 * of this tenant; -EMFILE: the tenant's max_clients; -ENOMEM.
 */
int member_new(struct tenant *t, const uint8_t *token, bool metadata_only,
        struct member **ret_member, struct detail *d);

/* The same, but that the group is made, with this token, where there is none. Never -ENOENT. */
int member_new_or_join(struct tenant *t, const uint8_t *token, bool metadata_only,
        struct member **ret_member, struct detail *d);

/* Of recovery: with the id that it had, in the group that has this id and token, which is made
 * where the tenant has none. NULL: no memory. */
struct member *member_adopt(struct tenant *t, uint64_t id, uint32_t group_id,
        const uint8_t group_token[GROUP_TOKEN_BYTES]);

/* Whether it may lease, publish, free, report and invalidate from now on. A reader's magazine is
 * empty; what is granted to its group stays so until that frees it or ends. */
void member_set_read_only(struct member *m, bool read_only);

/* It publishes nothing more: nobody waits for what it announced. Safe to repeat. */
void member_withdraw(struct member *m);

/* Its process is dead; what it has mapped may be written to until it is freed. Safe to repeat. */
void member_linger(struct member *m);

/* The group goes where nobody is in it, or leaving it, any more. */
void group_settle(struct group *g);

struct attach_options {
        const char *device;  /* NULL, "": none is named */
        bool keep_page_zero; /* fixed by the first who opens it */
        const char *set;     /* likewise (nsset.h). NULL, "": none is named */
        uint32_t set_size;
        uint64_t expire_nsec; /* 0: says nothing. Of those that say one the last is right; readers
                                 don't count */
        uint64_t frame;       /* number of the request; 0: none */
        /* Fixed by the first who opens it; who asks for none takes what there is. */
        enum codec host_codec, disk_codec;
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

/* With these options alone. */
int attach_open(struct member *m, const char *name, const struct ns_layout *layout,
        const char *device, bool keep_page_zero, struct attach **ret_attach, struct detail *d);

/* Of recovery: the namespace is open, with the ns_id and the version that it had. NULL: no memory.
 */
struct attach *attach_adopt(struct member *m, struct ns *ns, uint32_t id, uint64_t version_epoch);

/* Gives the attachment a pin segment and a magazine. 0; -EEXIST: it has them; -ENOMEM, -EMFILE. */
int attach_share(struct attach *a, struct detail *d);

/* Of recovery: the segment that it had, with what lies in its magazine. Takes the fd, which has the
 * right size, on success only. 0; -ENOMEM. */
int attach_adopt_share(struct attach *a, int fd);

/* Takes over what the client did in its pin segment: pages claimed, lookups counted. Returns as
 * magazine_settle(); nothing where it has none. */
bool attach_settle(struct attach *a);

/* Pins of the member, in segments or not. O(bound pages of its namespaces). */
uint64_t member_count_pins(const struct member *m);

/*
 * Whether the client may take n pins more over the socket: 0; KVL_STATUS_QUOTA with the sentence.
 * attach_check_page_pins(): n of them on this page, by PAGE_MAX_CLIENT_PINS alone.
 */
int attach_check_pins(const struct attach *a, uint32_t n, struct detail *d);
int attach_check_page_pins(const struct attach *a, uint32_t page, uint32_t n, struct detail *d);

/* The member has one more pin of the page, for which attach_reserve_pins() made room, and which
 * attach_check_page_pins() allows. */
void attach_note_pin(struct attach *a, uint32_t page);

/* 0; KVL_STATUS_STALE with the sentence: the namespace changed its version after this attachment
 * was opened. */
int attach_check_version(const struct attach *a, struct detail *d);

struct attach *attach_find(struct member *m, uint32_t id);

/*
 * Exports the extents of a bound set for planes first..first+max-1 and notes that the member has
 * the set mapped from now on. Returns their number (> 0) with owned handles in ret_handles;
 * -ENOENT: the set is not bound, or recalled and nothing in it is held; -EINVAL: plane out of
 * range; -EACCES: metadata-only; -ENOMEM, -EIO.
 */
int attach_map_set(struct attach *a, uint32_t set_index, uint32_t first_plane, uint32_t max,
        struct extent_handle *ret_handles, struct detail *d);

/* The member counts as having mapped the set. 0; -ENOMEM. */
int attach_note_mapped(struct attach *a, struct extent_set *set);

/* It hasn't, or not any more: the set may be gone after. Nothing where it didn't count as mapped.
 */
void attach_forget_mapped(struct attach *a, uint32_t set_index);

/*
 * The member has unmapped a set that is recalled and idle. 0: it may be unbound now. -ENOENT: the
 * member doesn't have it mapped; -EBUSY: the set isn't recalled, or pages of it are held.
 */
int attach_unmapped(struct attach *a, uint32_t set_index, struct detail *d);

#endif
