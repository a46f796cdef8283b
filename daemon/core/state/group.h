/*
 * The owners of leases, pins and mappings.
 *
 *   group       the processes of one engine: owns the grants (GRANTED pages)
 *   member      one connection of it (one process): owns its pins and mappings
 *   attachment  one member with one namespace open
 *
 * Grants end with the last member that has the namespace open; pins and mappings end with their
 * member (leave.h). The server decides when a member leaves (hang-up *and* exit, or BYE).
 *
 * A member lingers while its process is dead but its work on a device may not be. It keeps what it
 * holds until it is freed. Pages that other members give back meanwhile, in sets that it has
 * mapped, aren't granted before that: page.given_back.
 */
#ifndef KVL_CORE_GROUP_H
#define KVL_CORE_GROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/map.h"
#include "daemon/core/state/task.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/pin-counts.h"
#include "daemon/core/state/pool.h"
#include "proto/shm.h"

struct detail;
struct store;
struct tenant;

/* Embedded in an attachment; n_wanted 0: no lease waits. While the lease is tried (again), the wait
 * isn't in the list, but keeps the fields that the order depends on: number, arrived, deadline. */
struct wait {
        struct list_link link; /* store.waits, unordered */
        uint32_t n_wanted;     /* pages that the lease wants */
        uint32_t n_asked;      /* n_wanted, kept while the wait isn't in the list */
        uint64_t number;       /* order of arrival */
        uint64_t arrived_nsec;
        uint64_t deadline_nsec;   /* UINT64_MAX: none */
        enum lease_reason reason; /* DEVICE, or a lack of memory */
        enum lease_reason told;   /* the reason reported: the last one that wasn't DEVICE */
        bool deserves;            /* at the last try: entitled by fair share or reservation */
};

/* Does the lease wait for memory (not only for a device)? */
static inline bool wait_is_for_room(const struct wait *w)
{
        return w->n_wanted > 0 && w->reason != LEASE_REASON_DEVICE;
}

#define GROUP_TOKEN_BYTES  16
#define CLIENT_TOKEN_BYTES 16

struct group {
        struct list_link link; /* tenant.groups */
        struct tenant *tenant; /* borrowed */
        uint32_t id;           /* unique among living groups, > 0 */
        uint8_t token[GROUP_TOKEN_BYTES];
        struct list_link members; /* struct member.link; empty: the group can't be found */
        struct list_link leaving; /* struct member.link; leave.h */
        uint32_t n_lingering;     /* lingering members */
        struct list_link grants;  /* struct grants.link */
};

struct member {
        struct list_link link; /* group.members */
        struct group *group;   /* borrowed; freed with its last member */
        uint64_t id;           /* client id: never reused while the daemon's state lives */
        uint32_t record;       /* row in client-record.h; 0: ends with the process */
        uint8_t resume_token[CLIENT_TOKEN_BYTES]; /* the latest one; set if members have rows */
        bool metadata_only;
        bool safepoints; /* its engine calls kvl_safepoint() between steps */
        bool read_only;  /* may look up and pin; the request handlers refuse the rest, attach_open()
                            and the magazine theirs */
        bool lingers;
        bool is_over;  /* the client publishes no more pages */
        bool repeats;  /* repeats requests that the previous daemon may have done: publishing an own
                          page again returns 0, not -EINVAL */
        bool has_left; /* leave.h: freed once the last of `closing` is */
        struct list_link attachments; /* struct attach.member_link */
        struct list_link closing;     /* struct attach.member_link; leave.h */
        uint32_t last_attach_id;
        uint32_t n_mapped_sets;      /* 0: may be freed at hang-up */
        uint32_t n_quarantined_sets; /* of these, those not given back in time */
        uint32_t n_sessions;         /* handles */
        uint64_t n_pins;             /* over the socket */
        void *server_data;           /* the peer; borrowed, not touched here */
};

/* The state of a set that a member has mapped. */
enum mapped_bits {
        MAPPED = 1 << 0,            /* always */
        MAPPED_TOLD = 1 << 1,       /* the member knows that the set is recalled */
        MAPPED_TOLD_IDLE = 1 << 2,  /* the member knows that the set may be unmapped */
        MAPPED_QUARANTINE = 1 << 3, /* counted in member.n_quarantined_sets */
        MAPPED_NAMED = 1 << 4,      /* named by a resuming client (resume.h) */
};

/* GRANTED pages of one group in one namespace. */
struct grants {
        struct list_link link; /* group.grants */
        struct group *group;   /* borrowed */
        struct ns *ns;         /* borrowed */
        uint32_t head;         /* page index, PAGE_NONE */
        uint32_t n_pages;
        uint32_t n_given_back;    /* of these, pages with page.given_back */
        uint32_t n_attach;        /* attachments of the group to ns; freed with the last */
        struct list_link closing; /* struct attach.grants_link: not in n_attach */
        bool is_reporting; /* a REPORT is under way (report_pages()) and uses page.reported */
};

struct magazine {
        uint32_t pages[SHM_MAGAZINE_SLOTS]; /* page + 1; 0: empty, or known to be claimed */
        uint32_t n_pages;
        uint32_t level;       /* target; grows while the client empties it fast */
        uint64_t refill_nsec; /* when it was filled last */
        uint64_t n_put;       /* as in the segment: pages put, less pages taken back */
        bool tampered;        /* the client stored into a slot: reported once */
        bool is_short;        /* the last refill found too few pages; sets are being made */
};

struct attach {
        struct list_link member_link, ns_link;
        struct member *member;  /* borrowed */
        struct ns *ns;          /* borrowed */
        struct grants *grants;  /* shared */
        uint32_t id;            /* ns_id on the wire: unique within the member, > 0 */
        uint32_t record;        /* client-record.h: row; 0: none */
        uint64_t open_frame;    /* number of the NS_OPEN; 0: none */
        bool has_announced;     /* since its member's announcements were withdrawn (announce.h) */
        uint32_t withdraw_at;   /* withdrawn up to this page; PAGE_NONE: all were */
        struct task withdrawal; /* withdraws the others; unused while it is closing */
        uint64_t version_epoch; /* the namespace's when opened */
        struct pin_counts pins; /* over the socket: the pin segment that the daemon holds (pin.h) */
        struct map mapped;      /* set index -> enum mapped_bits */
        struct pins share;      /* its pin segment */
        bool pins_lost;   /* at a restart: its pins are unknown, so all pages of the namespace count
                             as pinned until it is closed */
        struct wait wait; /* its waiting lease, if any */
        struct magazine *magazine; /* owned; NULL where `share` isn't open */
        struct map sessions;       /* handle -> struct opening (sessions/session.h) */
        uint32_t last_session;     /* handle */
        struct readers *readers;   /* owned; prefetch.h; NULL: has fetched no page */
        /* While it is closing (leave.h): */
        struct task task;
        struct list_link grants_link; /* grants.closing */
        bool ends_grants;             /* the last of its group */
        uint32_t grants_at;           /* the next page to look at; PAGE_NONE: none */
        uint32_t pins_at;             /* position of pin_counts_next() */
        uint32_t mapped_at;           /* the next set to look at */
        void (*closed)(void *data);   /* may be NULL */
        void *closed_data;
};

/* Returns 0, or KVL_STATUS_STALE with the sentence: the namespace changed its version after this
 * attachment was opened. */
int attach_check_version(const struct attach *a, struct detail *d);

struct attach *attach_find(struct member *m, uint32_t id);

#endif
