/*
 * The records of a namespace: its identity, the extents of its sets, and its pages. They are
 * authoritative; recover.h rebuilds everything else from them. One sparse mapping for the
 * namespace's life: a memfd that is stored (keep.h), or memory of the process.
 *
 *   header | set records | pages | notes | extras          each at a page of the kernel's
 *
 * A kill may stop this process between any two stores. So each change takes effect by one store,
 * after all others: to header.live (the namespace exists), set_record.word (the set exists),
 * page.word (page.h), header.selector (the valid copy of the options) or header.epoch. Memory of
 * the process gets the same stores.
 *
 * Only the daemon can write here, but recovery still checks everything: sums for damage, then the
 * values. Loop thread only.
 */
#ifndef KVL_CORE_RECORDS_H
#define KVL_CORE_RECORDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "daemon/core/state/codecs.h"
#include "daemon/core/state/geometry.h"
#include "daemon/core/state/page.h"
#include "daemon/core/state/ns.h"
#include "gpu/device.h"

struct detail;
struct keep;
struct ns;
struct store;
struct extent_set;

#define RECORDS_MAGIC        UINT64_C(0x31306372736c766b) /* "kvlsrc01", little-endian */
#define RECORDS_HEADER_BYTES 4096
#define RECORDS_LIVE         UINT64_C(0x6576696c) /* "live" */

/* The part of struct ns_layout from before layouts had a format: records_layout(). */
#define RECORDS_LAYOUT_BYTES offsetof(struct ns_layout, format_len)
static_assert(RECORDS_LAYOUT_BYTES == 376, "layout");

/* Constant while the namespace lives. */
struct records_identity {
        uint32_t number; /* number of these records in keep.h */
        uint32_t keep_page_zero;
        uint64_t ns_id;
        uint64_t seed[2];  /* the index segment's */
        uint64_t address;  /* struct ns.address */
        uint64_t nsset_id; /* 0: in none */
        uint32_t nsset_size, reserved;
        struct ns_geometry geometry;
        uint8_t layout[RECORDS_LAYOUT_BYTES]; /* version is "": it is in the options */
        char tenant[TENANT_NAME_MAX + 1];
        char device[DEVICE_NAME_MAX + 1];
        char name[NS_NAME_MAX + 1];
        char nsset[NS_NAME_MAX + 1];
};

/* The layout's constant format. Zeros if it has none; daemons without formats left zeros here. Such
 * a daemon finds a wrong sum if there is a format, and drops the namespace: it couldn't refuse
 * clients of another format. */
struct records_format {
        uint32_t len;
        uint8_t bytes[NS_FORMAT_MAX];
};

/* Options, changed all at once. */
struct records_options {
        uint64_t version_epoch;
        uint64_t expire_nsec;
        char version[NS_TEXT_MAX + 1];
        uint8_t reserved[3];
        uint32_t sum; /* records_options_sum() */
};

/* State of the epoch that the namespace shares with other hosts, for the tenant's listener. Zeros
 * if there is none; daemons without remote stores left zeros here. */
struct records_shared_epoch {
        _Atomic uint64_t must_change; /* 0, 1: an invalidation isn't known to other hosts yet */
        _Atomic uint64_t number; /* 0: unknown; else other hosts' changes before it were applied,
                                    and known_sec is valid unless must_change */
        _Atomic uint64_t known_sec;
};

struct records_header {
        uint64_t magic;
        uint32_t version;      /* STATE_LAYOUT_VERSION */
        uint32_t sum;          /* of identity, format and codecs */
        _Atomic uint64_t live; /* RECORDS_LIVE: the records are valid */
        _Atomic uint64_t epoch;
        _Atomic uint64_t selector; /* 0, 1: the valid options[] */
        struct records_options options[2];
        struct records_identity identity;
        struct records_format format;
        /* By enum tier_kind, if the geometry says CODEC_BY_LAYER; else zeros, which daemons without
         * such codecs left here. Such a daemon refuses the geometry. */
        struct codec_layers codecs[TIER_COUNT];
        struct records_shared_epoch shared_epoch;
};
static_assert(sizeof(struct records_header) <= RECORDS_HEADER_BYTES, "layout");
static_assert(offsetof(struct records_header, live) == 16, "layout");
static_assert(offsetof(struct records_header, options) == 40, "layout");
static_assert(sizeof(struct records_identity) == 976, "layout");

#define SET_RECORD_BOUND UINT64_C(1)

struct set_record {
        _Atomic uint64_t word; /* number of its first extent << 1 | SET_RECORD_BOUND; 0: unbound */
        _Atomic uint64_t recall; /* a forced recall's timeout_nsec + 1; 0: none */
};

/* Makes records for this geometry, all zero and not live. If a descriptor store is on, they get its
 * next number; they aren't stored yet. Returns 0; -ENOMEM, -EMFILE, another -errno. */
int records_new(struct store *s, const struct ns_geometry *g, struct records *ret_records);

/* Maps stored records; takes the fd on success only. Returns 0; -ENOENT: the namespace isn't live;
 * -EINVAL: damaged, not of its own geometry's size, or no memfd of sealed size; another -errno. */
int records_adopt(int fd, struct records *ret_records);

/* Closes this process's mapping; stored descriptors stay. Idempotent; accepts {.fd = -1}. */
void records_close(struct records *r);

/* Makes the namespace live, complete with its namespace set: stores its descriptors and writes its
 * header, so that the next daemon finds it. Does nothing without a descriptor store. Returns 0, or
 * as keep_ops.add() (nothing is stored). */
int records_begin(struct ns *ns, struct detail *d);

/* Ends the namespace: drops its stored descriptors, except extents. */
void records_end(struct ns *ns);

/* Writes the namespace's version, version epoch and expire_nsec. */
void records_commit_options(struct ns *ns);

/* The state of the epoch shared with other hosts. The tenant's listener (listeners.h) defines it.
 */
struct shared_epoch {
        bool must_change;
        uint64_t number; /* 0: unknown; as in struct records_shared_epoch */
        uint32_t known_sec;
};

/* A kill in this function leaves an unknown epoch; must_change is then set if it was or is being
 * set. */
void records_commit_shared_epoch(struct ns *ns, const struct shared_epoch *epoch);
struct shared_epoch records_shared_epoch(const struct ns *ns);

/* Returns the valid copy of the options; NULL: it is damaged. */
const struct records_options *records_options(const struct records *r);

/* Returns the layout with its format, from header and options. */
void records_layout(const struct records_header *h, const struct records_options *o,
        struct ns_layout *ret_layout);

/* Returns the codecs of the pages. 0; -EINVAL: they don't fit the layout, or a page takes more
 * bytes than the geometry has. */
int records_codecs(const struct records_header *h, struct page_codecs *ret_codecs);

/* Compute the right `sum`. The second uses the header's seed: check the identity first. */
uint32_t records_identity_sum(const struct records_header *h);
uint32_t records_options_sum(const struct records_header *h, const struct records_options *o);

/* Writes the namespace's epoch. */
void records_commit_epoch(struct ns *ns);

/* The first makes a set with its extents and pages bound. The second writes its recall, or that
 * there is none. The third makes it unbound: its pages become void. */
void records_bind(struct extent_set *set);
void records_note_recall(struct extent_set *set);
void records_unbind(struct ns *ns, uint32_t index);

/* Zeroes pages, notes and extras of n sets that are neither bound nor PREPARING. Memory that only
 * they use is given back. */
void records_wipe(const struct ns *ns, uint32_t first, uint32_t n);

/* Returns the checksum of a published page's constant fields: number, key, generation, epoch,
 * tokens, depth, end_token, parent, and the sum of its bytes in a lower tier. Excludes times and
 * tag. */
uint32_t records_sum(const struct ns *ns, uint32_t page, uint64_t generation, uint32_t parent);

/* Stores parent and sum of a page with complete other fields, before page_turn() to SEALED or
 * DETACHED with that generation. */
void records_seal(struct ns *ns, uint32_t page, uint64_t generation, uint32_t parent);

/* Gives a published page another parent (compact.h). */
void records_reparent(struct ns *ns, uint32_t page, uint32_t parent);

/* Is the sum of a SEALED or DETACHED page right? */
bool records_page_holds(const struct ns *ns, uint32_t page);

/* For the checker: would another daemon recover this one's state? Returns NULL, or a static
 * sentence. */
const char *records_check(const struct ns *ns);
const char *records_check_page(const struct ns *ns, uint32_t page);

#endif
