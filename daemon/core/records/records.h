/*
 * The records of one namespace: what it is, which extents its sets have, and its pages. They are
 * the truth, everything else can be made again from them (recover.h). One sparse mapping for the
 * namespace's life: a memfd that is kept (keep.h), or memory of the process where nothing is.
 *
 *   header | set records | pages | notes | extras          each at a page of the kernel's
 *
 * The kernel may stop this process between any two stores, so what counts is changed by one store,
 * after everything it speaks of: header.live (the namespace is there), set_record.word (the set
 * is), page.word (page.h), header.selector (which of two copies of the options is right),
 * header.epoch. Where memory isn't kept the same stores cost the same and mean nothing.
 *
 * Nobody but the daemon can write here, and still recovery believes nothing: sums show what was
 * damaged, and the rest is checked. Loop thread only.
 */
#ifndef KVL_CORE_RECORDS_H
#define KVL_CORE_RECORDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "daemon/core/ground/codecs.h"
#include "daemon/core/ground/geometry.h"
#include "daemon/core/ground/page.h"
#include "daemon/core/objects/ns-parts.h"
#include "gpu/device.h"

struct detail;
struct keep;
struct ns;
struct store;
struct extent_set;

#define RECORDS_MAGIC        UINT64_C(0x31306372736c766b) /* "kvlsrc01", little-endian */
#define RECORDS_HEADER_BYTES 4096
#define RECORDS_LIVE         UINT64_C(0x6576696c) /* "live" */

/* Of struct ns_layout, what there was before layouts had a format: records_layout(). */
#define RECORDS_LAYOUT_BYTES offsetof(struct ns_layout, format_len)
static_assert(RECORDS_LAYOUT_BYTES == 376, "layout");

/* Constant while the namespace lives. */
struct records_identity {
        uint32_t number; /* its own, of keep.h */
        uint32_t keep_page_zero;
        uint64_t ns_id;
        uint64_t seed[2];  /* of the index segment */
        uint64_t address;  /* struct ns.address */
        uint64_t nsset_id; /* 0: in none */
        uint32_t nsset_size, reserved;
        struct ns_geometry geometry;
        uint8_t layout[RECORDS_LAYOUT_BYTES]; /* version is "": see the options */
        char tenant[TENANT_NAME_MAX + 1];
        char device[DEVICE_NAME_MAX + 1];
        char name[NS_NAME_MAX + 1];
        char nsset[NS_NAME_MAX + 1];
};

/*
 * The layout's format, as constant. Zeros where it has none, which is what daemons that knew none
 * left there. Such a daemon finds a sum that is wrong where there is one, and drops the namespace:
 * it couldn't tell clients of another format that they are.
 */
struct records_format {
        uint32_t len;
        uint8_t bytes[NS_FORMAT_MAX];
};

/* What changes as a whole. */
struct records_options {
        uint64_t version_epoch;
        uint64_t expire_nsec;
        char version[NS_TEXT_MAX + 1];
        uint8_t reserved[3];
        uint32_t sum; /* records_options_sum() */
};

/*
 * What is known of the epoch that the namespace has with other hosts (core/remote). Zeros where
 * nothing is, which is what daemons left there that knew no other hosts.
 */
struct records_shared_epoch {
        _Atomic uint64_t must_change; /* 0, 1: something was invalidated that others don't know */
        _Atomic uint64_t number;      /* 0: none; else up to here others' changes were followed, and
                                         where it needn't change known_sec holds */
        _Atomic uint64_t known_sec;
};

struct records_header {
        uint64_t magic;
        uint32_t version;      /* STATE_LAYOUT_VERSION */
        uint32_t sum;          /* of identity, format and codecs */
        _Atomic uint64_t live; /* RECORDS_LIVE: the rest holds */
        _Atomic uint64_t epoch;
        _Atomic uint64_t selector; /* 0, 1: options[] */
        struct records_options options[2];
        struct records_identity identity;
        struct records_format format;
        /* By enum tier_kind, where the geometry says CODEC_BY_LAYER; else zeros, which is what
         * daemons that knew no such codecs left there. Such a daemon refuses that geometry. */
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
        _Atomic uint64_t recall; /* 0; of a forced recall: timeout_nsec + 1 */
};

/* For this geometry, all zero and not live; with keeping on its number is the next one. 0; -ENOMEM,
 * -EMFILE, another -errno. Keeps nothing yet. */
int records_new(struct store *s, const struct ns_geometry *g, struct records *ret_records);

/* Takes the fd, on success only, and maps it. -ENOENT: the namespace wasn't there yet, or not any
 * more; -EINVAL: damaged, or of another size than its own geometry's, or no memfd that keeps its
 * size. */
int records_adopt(int fd, struct records *ret_records);

/* The process' own; what is kept stays. Safe to repeat, and on {.fd = -1}. */
void records_close(struct records *r);

/*
 * The namespace, complete with its namespace set, is there from now on, and found by the next
 * daemon: its descriptors are kept, its header is written. Nothing where nothing is kept. 0; as
 * keep_ops.add(): nothing is kept of it.
 */
int records_begin(struct ns *ns, struct detail *d);

/* The namespace isn't there any more: what was kept of it is dropped, but for extents. */
void records_end(struct ns *ns);

/* Version text, version epoch and expire_nsec, as the namespace has them. */
void records_commit_options(struct ns *ns);

/* What is known of the epoch that it has with other hosts, as struct exchange_epoch has it. */
struct shared_epoch {
        bool must_change;
        uint64_t number; /* as above; 0: not known */
        uint32_t known_sec;
};

/* Who is killed meanwhile leaves an epoch that isn't known; and one that must change, where it had
 * to before or has to from now on. */
void records_commit_shared_epoch(struct ns *ns, const struct shared_epoch *epoch);
struct shared_epoch records_shared_epoch(const struct ns *ns);

/* The copy of the options that counts; NULL: it is damaged. */
const struct records_options *records_options(const struct records *r);

/* The layout with its format, as records_header and options have them. */
void records_layout(const struct records_header *h, const struct records_options *o,
        struct ns_layout *ret_layout);

/* The codecs of its pages. 0; -EINVAL: they aren't of its layout, or more is stored of a page than
 * its geometry has room for. */
int records_codecs(const struct records_header *h, struct page_codecs *ret_codecs);

/* What their `sum` has to be. The second goes by the header's seed: after the identity. */
uint32_t records_identity_sum(const struct records_header *h);
uint32_t records_options_sum(const struct records_header *h, const struct records_options *o);

/* The namespace's epoch. */
void records_commit_epoch(struct ns *ns);

/* The set has its extents and its pages: it is bound. Its recall, or that there is none. It is
 * unbound: nothing of its pages counts. */
void records_bind(struct extent_set *set);
void records_note_recall(struct extent_set *set);
void records_unbind(struct ns *ns, uint32_t index);

/* Pages, notes and extras of n sets, which are neither bound nor PREPARING, are zero; memory that
 * only they use is given back. */
void records_wipe(const struct ns *ns, uint32_t first, uint32_t n);

/*
 * Of what is constant in a published page: which it is, key, generation, epoch, tokens, depth,
 * end_token, parent, and the sum of what is stored below the device. Neither times nor tag.
 */
uint32_t records_sum(const struct ns *ns, uint32_t page, uint64_t generation, uint32_t parent);

/* Parent and sum of a page whose other fields are there; before page_turn() to SEALED or DETACHED
 * with that generation. */
void records_seal(struct ns *ns, uint32_t page, uint64_t generation, uint32_t parent);

/* The same as records_seal() for a page that was published: it has another parent (compact.h). */
void records_reparent(struct ns *ns, uint32_t page, uint32_t parent);

/* Is the sum of a SEALED or DETACHED page right? */
bool records_page_holds(const struct ns *ns, uint32_t page);

/* For the checker: does another daemon find what this one has? NULL, or a static sentence. */
const char *records_check(const struct ns *ns);
const char *records_check_page(const struct ns *ns, uint32_t page);

#endif
