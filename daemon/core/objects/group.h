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
#include "daemon/core/ground/chore.h"
#include "daemon/core/ground/pin-counts.h"
#include "daemon/core/objects/ns.h"
#include "daemon/core/objects/wait.h"
#include "proto/shm.h"

struct store;
struct tenant;
struct detail;

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
        uint64_t n_pins;             /* over the socket */
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

/* GRANTED pages of one group in one namespace. */
struct grants {
        struct list_link link; /* group.grants */
        struct group *group;   /* borrowed */
        struct ns *ns;         /* borrowed */
        uint32_t head;         /* page index, PAGE_NONE */
        uint32_t n_pages;
        uint32_t n_given_back;    /* of these, page.given_back */
        uint32_t n_attach;        /* attachments of the group to ns; freed with the last */
        struct list_link closing; /* struct attach.grants_link: not counted there any more */
        bool is_reporting; /* a REPORT is under way (report_pages()): pages have page.reported */
};

struct magazine {
        uint32_t pages[SHM_MAGAZINE_SLOTS]; /* page + 1 as put there; 0: empty, or seen to be
                                               claimed */
        uint32_t n_pages;
        uint32_t level;       /* filled up to; grows while the client empties it fast */
        uint64_t refill_nsec; /* when it was filled last */
        uint64_t n_put;       /* as in the segment: put less taken back */
        bool tampered;        /* the client stored into a slot: told once */
        bool is_short;        /* sets are being made for what it lacked at the last refill */
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
        struct pin_counts pins; /* over the socket: the pin segment that the daemon holds (pin.h) */
        struct map mapped;      /* set index -> enum mapped_bits */
        struct pins share;      /* the one that it shares */
        bool pins_lost;         /* at a restart: nobody knows what it pins, and until it is closed
                                   all of the namespace counts as pinned */
        struct wait wait;       /* its lease that waits, if any */
        struct magazine *magazine; /* owned; NULL where `share` isn't open */
        struct map sessions;       /* handle -> struct opening (objects/session.h) */
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

/* 0; KVL_STATUS_STALE with the sentence: the namespace changed its version after this attachment
 * was opened. */
int attach_check_version(const struct attach *a, struct detail *d);

struct attach *attach_find(struct member *m, uint32_t id);

#endif
