/* The insides of the room exchange, shared by its files. */
#ifndef KVL_CORE_EXCHANGE_IMPL_H
#define KVL_CORE_EXCHANGE_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/map.h"
#include "daemon/core/ground/buffers.h"
#include "daemon/core/exchange/exchange.h"
#include "daemon/core/ground/chore.h"
#include "daemon/core/ground/page.h"
#include "daemon/core/objects/transfer.h"
#include "daemon/exchange/envelope.h"
#include "daemon/exchange/keys.h"
#include "daemon/remote/store/remote.h"
#include "policy/bucket.h"
#include "policy/worth.h"

/* Of one tenant: requests, and bytes of buffers that are under way or not looked at yet. They are
 * the daemon's, and charged to nobody. Not tuned, but for the window: half of it has the store wait
 * for the loop (kvlease-bench remote-hosts long). */
#define IMPORTS_MAX          64
#define IMPORT_BYTES_MAX     (UINT64_C(64) << 20)
#define IMPORT_WINDOW_BYTES  (UINT64_C(16) << 20) /* of one request */
#define IMPORT_TRIAL_AFTER   128                  /* imports that aren't worth it, in a row */
#define EXPORT_BYTES_MAX     (UINT64_C(16) << 20)
#define EXPORT_TEXTS_MAX     256
#define EXPORT_BATCH         16
#define EXPORT_DEADLINE_NSEC (5 * NSEC_PER_SEC)
#define EXPORT_LOOKS         4096 /* at pages, in one turn */

/* Small operations that no client waits for. Not tuned. */
#define EXCHANGE_SMALL_NSEC (NSEC_PER_SEC)

/* An epoch that couldn't be had is asked for again; one that an exporter knows for so long is read
 * again. Not tuned. */
#define EPOCH_AGAIN_NSEC (NSEC_PER_SEC)

/* ---- operations ------------------------------------------------------------------------------ */

struct exchange_result {
        int result;
        uint32_t n_found;
        uint64_t n_bytes;
};

/* A batch of operations. */
struct exchange_io {
        struct exchange *x;   /* borrowed; NULL: nobody wants it any more */
        struct remote_io *io; /* the store's; NULL: it is over, and `results` are there */
        uint8_t *buffer;      /* owned; of x->buffers */
        uint64_t buffer_bytes;
        bool is_import; /* the buffer counts as one */
        /* Of exchange_io_move(); NULL: none is under way. Else it has the buffer. */
        struct transfer *transfer;
        int moved; /* how the last one ended */
        uint32_t n;
        struct iovec *keys; /* n, of `names` */
        struct iovec piece; /* `buffer` */
        char (*names)[EXCHANGE_NAME_MAX];
        /* Of exchange_io_envelop(). The store's thread has them while the batch is under way. */
        struct envelope envelope;
        struct seal_key seal;
        bool is_sealed;
        enum envelope_fault fault;
        struct exchange_result results[];
};

/* Nothing is in it but the kind, and room for n names; with a buffer of so many bytes. NULL: no
 * memory. */
struct exchange_io *exchange_io_new(struct exchange *x, enum remote_kind kind,
        enum remote_class of_class, uint32_t n, uint64_t buffer_bytes, bool is_import);

/* Operation i is of this name, terminated; and, where there is a buffer, of the first n_bytes of
 * it. */
void exchange_io_name(struct exchange_io *io, uint32_t i, const char *name, uint64_t n_bytes);

/*
 * The buffer of the one operation is a header, and behind it the page's bytes. The store's thread,
 * not the loop, sums or seals (with a key, which is copied) what is written, and opens what is
 * read: `fault` then says what became of it, and `envelope`, with ENVELOPE_GOOD, what it says.
 */
void exchange_io_envelop(
        struct exchange_io *io, const struct envelope *e, const struct seal_key *key);

/* Begins. 0; else it is as it was, with why: -EBUSY, -ENOMEM, -EINVAL, -ESHUTDOWN. */
int exchange_io_begin(struct exchange_io *io, uint64_t deadline_nsec);

static inline bool exchange_io_is_over(const struct exchange_io *io)
{
        return !io->io;
}

/*
 * Copies between the buffer, behind its header, and a page: TRANSFER_OUT from a page of any tier,
 * for a batch that hasn't begun; TRANSFER_IN into one that is granted, for a batch that is over.
 * Then exchange_io_is_moving() until it is done, and `moved` is 0 or -errno. 0; else nothing
 * happened, and why: -EBUSY, -ENOMEM.
 */
int exchange_io_move(struct exchange_io *io, struct ns *ns, enum transfer_kind kind, uint32_t page);

static inline bool exchange_io_is_moving(const struct exchange_io *io)
{
        return io->transfer;
}

/* Nobody wants it any more: what is under way ends as soon as it can. A page that is being copied
 * into has been given back before. NULL: nothing. */
void exchange_io_end(struct exchange_io *io);

/* One that has begun goes on, and nobody wants to know how it ends. */
void exchange_io_let_go(struct exchange_io *io);

/* A value was refused: as exchange_news_refused(), which has the words; n_pages is 0 of an epoch.
 */
void exchange_note_refused(
        struct exchange *x, const char *reason, const char *what, uint32_t n_pages);

/* What an operation's result, which isn't 0, is counted as. */
enum exchange_drop exchange_drop_of(int result);

/* ---- a tenant's, and its namespaces' --------------------------------------------------------- */

enum export_all_phase {
        ALL_OFF,
        ALL_COUNTS, /* what is to be exported, and when it was used */
        ALL_WALKS,  /* over the pages of one age after another, and adds them as texts */
        ALL_ENDS,   /* it has walked, and what it added is still being written */
        ALL_IDLE,   /* nothing is left that can be exported */
};

/* All that is cached is exported (export-all.h). A *pass* counts, and walks. */
struct export_all {
        enum export_all_phase phase;
        struct chore chore;     /* of ALL_COUNTS and ALL_WALKS */
        uint32_t counted_sec;   /* when the pass began */
        struct exchange_ns *at; /* where it counts or walks, and its page; NULL: at the end */
        uint32_t page;
        uint64_t ages;      /* that counting has met and walking hasn't walked: a bit for each */
        bool again;         /* something was published since counting began */
        uint32_t n_texts;   /* of exchange.texts */
        uint64_t n_failed;  /* pages that this pass couldn't write, and another may */
        uint64_t hold_nsec; /* until then nothing is begun: the store didn't take the last batch */
        bool is_failing;    /* as long as nothing was written since a page failed, */
        enum exchange_drop why;          /* which did so for this reason */
        uint64_t left_pages, left_bytes; /* when they were counted; while they are, so far */
        uint64_t old_pages;              /* likewise: of before the epoch */
        uint64_t written_pages, written_bytes, there_pages, there_bytes; /* since the beginning */
        uint64_t done_pages, done_bytes; /* of these, when `left` was counted */
};

struct exchange {
        struct tenant *tenant;           /* borrowed */
        struct exchange_options options; /* but for the secret */
        struct exchange_tenant whose;
        struct list_link namespaces; /* struct exchange_ns.link */
        struct list_link epochs;     /* struct exchange_epoch.link */
        struct map by_id;            /* id of a namespace -> struct exchange_ns */
        struct list_link imports;    /* struct import.link */
        uint32_t n_imports;
        bool is_importing; /* a page, right now: what is published was there, and isn't exported */
        uint64_t import_bytes, export_bytes; /* of buffers */
        struct buffers buffers;              /* those that are kept */
        struct list_link texts;              /* struct export_text.link: what is to be exported */
        uint32_t n_texts;
        struct export_batch *batch; /* under way; owned; NULL: none */
        struct export_all all;
        struct bucket bucket;         /* of exported KiB */
        struct worth_ratio bandwidth; /* of imports */
        unsigned n_refused;           /* imports that weren't worth it since one was */
        struct exchange_counters counters;
};

/* An epoch is a namespace's, or has all namespaces of a set: what is invalidated in one of them is
 * so in all. */
struct exchange_epoch {
        struct list_link link;         /* exchange.epochs */
        struct exchange *x;            /* borrowed */
        uint8_t id[EXCHANGE_ID_BYTES]; /* of its name: the namespace's, or of the set's name */
        uint32_t n_namespaces;         /* that have it, at least one */
        uint64_t number;               /* 0: not known */
        struct seal_key seal;          /* of the epoch, where the tenant has a secret */
        bool must_change;              /* something was invalidated, and the store doesn't know */
        bool changes_again;            /* and again since new_epoch was sent */
        struct exchange_io *asking;    /* reads the epoch, or writes one; NULL */
        bool is_writing;               /* it writes new_epoch */
        uint64_t new_epoch;
        uint64_t asked_nsec; /* when it last was asked for, or written */
        bool was_known;      /* some epoch was */
        uint32_t known_sec;  /* when it was learnt; pages of before aren't exported */
};

/* A page that was exported, or was to be. */
struct exported_page {
        uint32_t generation; /* that it had then, the low 32 bits; 0: it wasn't */
        uint32_t seen_sec;   /* when the store had it, or was asked for it */
};

/* A namespace that takes part. */
struct exchange_ns {
        struct list_link link;         /* exchange.namespaces */
        struct exchange *x;            /* borrowed */
        struct ns *ns;                 /* borrowed */
        struct exchange_epoch *epoch;  /* shared with the others of its set */
        uint8_t id[EXCHANGE_ID_BYTES]; /* exchange_identify() */
        uint32_t rank;
        struct exported_page *exported; /* of each page; owned; NULL: none was */
        struct worth_ratio prefill;     /* as engines measure it; nothing: they don't */
        struct worth_answer decided;    /* of the last import that found something there, */
        uint32_t n_decided;             /* so many pages; 0: there was none */
};

/* NULL: the namespace takes no part. */
struct exchange_ns *exchange_find_ns(const struct ns *ns);

const struct seal_key *exchange_ns_key(const struct exchange_ns *e);

/* exchange_work() is to be called soon. */
void exchange_wake(struct exchange *x);

/* What a page with this key has as its name. 0 or -ENOMEM. */
int exchange_name_page(
        const struct exchange_ns *e, const uint8_t key[KEY_BYTES], char name[EXCHANGE_NAME_MAX]);

/* What a page's envelope says, but for its tokens and tag. parent_key NULL: it begins a text. */
struct envelope exchange_envelope(
        const struct exchange_ns *e, const uint8_t key[KEY_BYTES], const uint8_t *parent_key);

/* ---- epochs: exchange-epoch.c ---------------------------------------------------------------- */

/* Finds the one that the namespace has with others of its set, or makes one; e counts as one of its
 * namespaces from then on, and has its id already. NULL: no memory. */
struct exchange_epoch *epoch_get(struct exchange_ns *e);

/* e is none of them any more; it goes with the last one. Where it is being changed that goes on. */
void epoch_put(struct exchange_ns *e);

/* An operation that reads it. NULL: no memory. */
struct exchange_io *epoch_read_new(struct exchange_epoch *p);

/* What it has read; 0: nothing that counts. */
uint64_t epoch_of(const struct exchange_io *io);

/* What is there instead of an epoch is none. */
void epoch_note_refused(struct exchange_epoch *p);

/* This is what the store has. True: it is another one than was known here. */
bool epoch_learn(struct exchange_epoch *p, uint64_t number);

/* Something was invalidated: nothing is imported or exported before the store has
 * another epoch, which is written at once, and again until it was. */
void epoch_change(struct exchange_epoch *p);

/* Asks for the epoch where it was asked for longer than EPOCH_AGAIN_NSEC ago: another host may have
 * changed it, and what is written under the one before is found by nobody. True: it is known, and
 * needn't be waited for. */
bool epoch_refresh(struct exchange_epoch *p);

/* Goes on; when it is to be called again, or UINT64_MAX. */
uint64_t epoch_work(struct exchange_epoch *p);

/* ---- imports, exports ------------------------------------------------------------------------ */

/* As exchange_work(). */
uint64_t imports_work(struct exchange *x);
uint64_t exports_work(struct exchange *x);

/* There may be pages for imports that wait for them. */
void imports_take_room(const struct exchange_ns *e);

/* The namespace goes, or its epoch changes; NULL: all of them. */
void imports_end(struct exchange *x, const struct exchange_ns *e, enum exchange_drop why);
void exports_end(struct exchange *x, const struct exchange_ns *e);

/* What the store has, of namespaces of this epoch (NULL: all), isn't known any more. */
void exports_forget(struct exchange *x, const struct exchange_epoch *p);

/* Of this generation, where its bytes are, and not of before the epoch. */
bool export_may_go(const struct exchange_ns *e, uint32_t page, uint64_t generation);

/* The store had the page lately, or is asked for it now. While all is exported: since that began.
 */
bool export_is_done(const struct exchange_ns *e, uint32_t page);

/* The text that ends with the page, which may go and isn't done, is exported with all the others.
 * False: there is no room for it now. */
bool export_add_of_all(struct exchange_ns *e, uint32_t page);

void exports_drop_all(struct exchange *x);

/* ---- of all that is cached: export-all.c ----------------------------------------------------- */

/* So long nothing is sent to a store that took nothing, and after a pass. Not tuned. */
#define EXPORT_ALL_HOLD_NSEC (NSEC_PER_SEC)

static inline bool export_all_is_on(const struct exchange *x)
{
        return x->all.phase != ALL_OFF;
}

void export_all_init(struct exchange *x);

void export_all_stop(struct exchange *x);

/* A namespace goes; something is published; a page was written, or was there; or couldn't be. */
void export_all_note_left(struct exchange *x);
void export_all_note_published(struct exchange *x);
void export_all_note_done(struct exchange_ns *e, bool is_written);
void export_all_note_failed(struct exchange *x, enum exchange_drop why);

/* Goes on, after what was written; when it is to be called again, or UINT64_MAX. */
uint64_t export_all_go_on(struct exchange *x);

/* The page, just imported, is there. */
void export_note_there(struct exchange_ns *e, uint32_t page);

#endif
