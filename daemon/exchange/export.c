/*
 * Exports: copies of cached pages for other hosts (exchange-impl.h). *Texts* wait, each by its last
 * page, and grow by pages that continue them: a text published page by page is one text. Found
 * texts come before texts that were only published, as other hosts need them more likely. Within
 * each kind the newest comes first, as it is used again soonest. So under overload the oldest texts
 * are never written. A *batch* of pages of one namespace, from the beginnings of texts on, is asked
 * for and written:
 *
 *   batch:  asks (one TOUCH for each page) -> copies and writes (one page after another) -> over
 *
 * A page's generation is noted when it enters a batch, so that it enters one once a minute
 * (EXCHANGE_AGAIN_SEC). If it wasn't written, the note is removed, for the page and for pages that
 * continue it, which can't be found without it. They are tried again when the text is found again,
 * by its last page. So pages used here, from a text's beginning on, count as used in the store.
 * Otherwise the common beginnings of texts would be evicted there first, because hosts that have
 * them don't ask for them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/core/cache/pages.h"
#include "daemon/exchange/exchange-impl.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "policy/tier.h"

static const struct tier_filter export_filter = {
        .min_uses = EXCHANGE_MIN_USES, .long_tokens = EXCHANGE_LONG_TOKENS};

/* The unit of the rate: policy/bucket.h allows at most a million a second. */
#define UNIT_BYTES 4096

/* A page with its generation at some time. */
struct export_tip {
        uint32_t page;
        uint64_t generation;
};

struct export_text {
        struct list_link link;   /* exchange.texts */
        bool is_found;           /* a client found it, or will: its turn is before others */
        bool is_of_all;          /* export_add_of_all() */
        struct exchange_ns *e;   /* borrowed: freed after its texts */
        struct export_tip end;   /* its last page */
        struct export_tip first; /* the last page before it grew: its end if `end` is dropped */
        uint32_t depth;          /* pages looked at so far, from the text's beginning */
};

struct export_page {
        uint32_t page;
        uint64_t generation;
        bool was_exported; /* exported at some time; false once the store has lost it */
        bool is_over;
        struct exchange_io *write; /* NULL: the write hasn't begun, or is over */
        bool is_sent;              /* its bytes are in the buffer */
};

struct export_batch {
        struct exchange_ns *e; /* borrowed: freed after its batch */
        uint64_t epoch;
        struct exchange_io *probe; /* NULL: the probe is over */
        uint32_t n, n_begun, n_over;
        uint32_t n_left; /* of n_over: neither written nor there */
        struct export_page pages[EXPORT_BATCH];
};

/* ---- exported pages -------------------------------------------------------------------------- */

/* Was the page exported at some time, with these bytes? */
static bool was_exported(const struct exchange_ns *e, uint32_t page)
{
        return e->exported &&
               e->exported[page].generation == (uint32_t)ns_page(e->ns, page)->generation;
}

bool export_is_done(const struct exchange_ns *e, uint32_t page)
{
        if (!was_exported(e, page))
                return false;
        return export_all_is_on(e->x) ||
               store_now_sec(e->ns->store) - e->exported[page].seen_sec < EXCHANGE_AGAIN_SEC;
}

static void note_exported(struct exchange_ns *e, uint32_t page, uint32_t generation)
{
        /* Sparse memory: pages that were never exported cost none. */
        if (!e->exported)
                e->exported = calloc(e->ns->geometry.capacity_pages, sizeof(*e->exported));
        if (e->exported)
                e->exported[page] = (struct exported_page){
                        .generation = generation, .seen_sec = store_now_sec(e->ns->store)};
}

void export_note_there(struct exchange_ns *e, uint32_t page)
{
        note_exported(e, page, (uint32_t)ns_page(e->ns, page)->generation);
}

static bool is_sealed_still(const struct exchange_ns *e, struct export_tip tip)
{
        const struct page *p = ns_page(e->ns, tip.page);

        return p && p->state == PAGE_SEALED && p->generation == tip.generation;
}

bool export_may_go(const struct exchange_ns *e, uint32_t page, uint64_t generation)
{
        const struct page *p = ns_page(e->ns, page);

        return is_sealed_still(e, (struct export_tip){page, generation}) &&
               !ns_page_is_stale(e->ns, p) && p->published_sec >= e->epoch->known_sec;
}

/* ---- texts ----------------------------------------------------------------------------------- */

static void text_free(struct export_text *t)
{
        t->e->x->n_texts--;
        t->e->x->all.n_texts -= t->is_of_all;
        list_remove(&t->link);
        free(t);
}

static struct export_tip tip_at(const struct exchange_ns *e, uint32_t page)
{
        return (struct export_tip){page, ns_page(e->ns, page)->generation};
}

/* Adds the page to a waiting text that ends with it, or right before it. Returns success. */
static bool join_text(const struct exchange_ns *e, uint32_t page)
{
        uint32_t parent = ns_note(e->ns, page)->place.parent;

        list_for_each (t, &e->x->texts, struct export_text, link) {
                bool grows = t->end.page == parent && !t->is_of_all;

                if (t->e != e || !(grows || t->end.page == page) || !is_sealed_still(e, t->end))
                        continue;
                t->end = tip_at(e, page);
                return true;
        }
        return false;
}

/* The most parents of a page that are looked at. */
#define CLIMB_MAX 64

/* Returns the pages at the text's end that were never exported, up to CLIMB_MAX. */
static uint32_t count_lacking(const struct export_text *t)
{
        uint32_t n = 0;

        if (!is_sealed_still(t->e, t->end))
                return 0;
        for (uint32_t p = t->end.page; n < CLIMB_MAX && p != PAGE_NONE && !was_exported(t->e, p);
                n++)
                p = ns_note(t->e->ns, p)->place.parent;
        return n;
}

/* Drops the last text in turn for a text that comes before it; but no text of all. */
static void drop_last_text(struct exchange *x, bool is_found)
{
        struct list_link *l = x->texts.prev;
        struct export_text *t;

        while (l != &x->texts && list_entry(l, struct export_text, link)->is_of_all)
                l = l->prev;
        t = list_entry(l, struct export_text, link);
        if (l == &x->texts || (t->is_found && !is_found))
                return;
        x->counters.not_exported[EXCHANGE_BUSY] += count_lacking(t);
        text_free(t);
}

static struct export_text *text_new(
        struct exchange_ns *e, uint32_t page, struct list_link *before, bool is_found)
{
        struct exchange *x = e->x;
        struct export_text *t = x->n_texts < EXPORT_TEXTS_MAX ? malloc(sizeof(*t)) : NULL;

        if (!t)
                return NULL;
        *t = (struct export_text){
                .e = e, .end = tip_at(e, page), .first = tip_at(e, page), .is_found = is_found};
        list_init(&t->link);
        list_insert_before(before, &t->link);
        x->n_texts++;
        exchange_wake(x);
        return t;
}

/* Returns the text before which a new one is inserted. */
static struct list_link *find_turn(struct exchange *x, bool is_found)
{
        struct list_link *l = x->texts.next;

        while (!is_found && l != &x->texts && list_entry(l, struct export_text, link)->is_found)
                l = l->next;
        return l;
}

void export_add_text(struct exchange_ns *e, uint32_t page, bool is_found)
{
        struct exchange *x = e->x;

        if (export_is_done(e, page) || join_text(e, page))
                return;
        if (x->n_texts == EXPORT_TEXTS_MAX)
                drop_last_text(x, is_found);
        if (!text_new(e, page, find_turn(x, is_found), is_found))
                x->counters.not_exported[EXCHANGE_BUSY] += !was_exported(e, page);
}

/* Finds how many pages at the text's beginning are exported. Climbs a limited number of pages, so
 * that a text that grows page by page isn't walked from its beginning each time. Returns false if a
 * page before it can't be exported: then this one couldn't be found. */
static bool find_begin(const struct exchange_ns *e, uint32_t page, uint32_t *ret_depth)
{
        uint32_t parent = ns_note(e->ns, page)->place.parent;

        *ret_depth = 0;
        for (unsigned i = 0; i < CLIMB_MAX && parent != PAGE_NONE && *ret_depth == 0; i++) {
                if (export_is_done(e, parent))
                        *ret_depth = ns_note(e->ns, parent)->depth;
                else if (!export_may_go(e, parent, ns_page(e->ns, parent)->generation))
                        return false;
                parent = ns_note(e->ns, parent)->place.parent;
        }
        return true;
}

bool export_add_of_all(struct exchange_ns *e, uint32_t page)
{
        struct export_text *t;
        uint32_t depth;

        if (!find_begin(e, page, &depth))
                return true;
        t = text_new(e, page, &e->x->texts, false);
        if (!t)
                return false;
        t->is_of_all = true;
        t->depth = depth;
        e->x->all.n_texts++;
        return true;
}

void exports_drop_all(struct exchange *x)
{
        list_for_each_safe (t, &x->texts, struct export_text, link)
                if (t->is_of_all)
                        text_free(t);
}

static void look_at_page(struct ns *ns, uint32_t page, bool is_found)
{
        struct exchange_ns *e = exchange_find_ns(ns);

        if (e && e->x->options.may_write &&
                tier_admits(&export_filter, 1 + ns_note(ns, page)->was_found,
                        ns_page(ns, page)->end_token))
                export_add_text(e, page, is_found);
}

void exports_note_found(struct attach *a, uint32_t page)
{
        look_at_page(a->ns, page, true);
}

void exports_note_published(struct ns *ns, uint32_t page)
{
        struct exchange *x = exchange_of(ns->tenant);

        if (x->is_importing)
                return;
        look_at_page(ns, page, false);
        export_all_note_published(x);
}

/* ---- a batch --------------------------------------------------------------------------------- */

/* Is the page unreachable, because its parent wasn't exported and isn't in the batch? */
static bool is_cut_off(const struct exchange_ns *e, uint32_t page)
{
        uint32_t parent = ns_note(e->ns, page)->place.parent;

        return parent != PAGE_NONE && !was_exported(e, parent);
}

/* Puts the text's next pages into the batch, with so many looks at most. */
static void take_from_text(struct export_batch *b, struct export_text *t, uint32_t *looks)
{
        struct exchange_ns *e = t->e;
        uint32_t depth = ns_note(e->ns, t->end.page)->depth;

        for (; t->depth < depth && b->n < EXPORT_BATCH && *looks; t->depth++, --*looks) {
                uint32_t page = ns_page_of_text(e->ns, t->end.page, t->depth + 1);
                uint64_t generation = ns_page(e->ns, page)->generation;
                bool may_go = export_may_go(e, page, generation);

                if (export_is_done(e, page))
                        continue;
                if (!may_go || is_cut_off(e, page)) {
                        /* Pages that continue this one couldn't be found without it. */
                        if (!may_go && !t->is_of_all)
                                e->x->counters.not_exported[EXCHANGE_GONE] += depth - t->depth;
                        t->depth = depth;
                        break;
                }
                b->pages[b->n++] = (struct export_page){.page = page,
                        .generation = generation,
                        .was_exported = was_exported(e, page)};
                note_exported(e, page, (uint32_t)generation);
        }
        if (t->depth >= depth) /* greater if it was longer before */
                text_free(t);
}

/* Finds the text's end: its last page if that is in the tree, else where the text began to grow. */
static void find_end(struct export_text *t)
{
        if (is_sealed_still(t->e, t->end) || t->end.page == t->first.page)
                return;
        t->e->x->counters.not_exported[EXCHANGE_GONE]++;
        t->end = t->first;
}

/* Is its last page still in the tree, and the namespace's epoch known? */
static bool text_is_good(const struct export_text *t)
{
        return t->e->epoch->number != 0 && export_may_go(t->e, t->end.page, t->end.generation);
}

/* May its epoch be known soon? */
static bool text_may_wait(const struct export_text *t)
{
        return t->e->epoch->number == 0 && !t->e->epoch->must_change &&
               is_sealed_still(t->e, t->end);
}

/* Forgets the export of a page, if the note is this batch's. */
static void forget_page(const struct export_batch *b, const struct export_page *p)
{
        const struct exchange_ns *e = b->e;

        if (b->epoch == e->epoch->number && e->exported &&
                e->exported[p->page].generation == (uint32_t)p->generation)
                e->exported[p->page].generation = 0;
}

/* Ends the next page of the batch, which can't be exported because of `why`. */
static void leave_page(struct export_batch *b, struct export_page *p, int why)
{
        struct exchange_ns *e = b->e;

        /* A page that the store has isn't lost: it may be marked as used another time. */
        e->x->counters.not_exported[exchange_drop_of(why)] += !p->was_exported;
        forget_page(b, p);
        p->is_over = true;
        b->n_over++;
        b->n_left++;
        export_all_note_failed(e->x, exchange_drop_of(why));
}

/* The page was written, or was there. */
static void note_done(struct export_batch *b, struct export_page *p, bool is_written)
{
        p->is_over = true;
        b->n_over++;
        export_all_note_done(b->e, is_written);
}

/* Pages that continue an unwritten page can't be found. While all is exported, each page is looked
 * at again anyway. */
static void forget_what_is_cut_off(const struct export_batch *b)
{
        if (b->n_left == 0 || export_all_is_on(b->e->x))
                return;
        for (uint32_t i = 0; i < b->n; i++)
                if (export_may_go(b->e, b->pages[i].page, b->pages[i].generation) &&
                        is_cut_off(b->e, b->pages[i].page))
                        forget_page(b, &b->pages[i]);
}

/* Ends the batch; its unfinished pages count as failed. */
static void end_batch(struct exchange *x, int why)
{
        struct export_batch *b = x->batch;

        x->batch = NULL;
        exchange_io_end(b->probe);
        for (uint32_t i = 0; i < b->n; i++) {
                exchange_io_end(b->pages[i].write);
                if (!b->pages[i].is_over)
                        leave_page(b, &b->pages[i], why);
        }
        forget_what_is_cut_off(b);
        if (b->n_left == b->n && export_all_is_on(x))
                x->all.hold_nsec = x->tenant->store->now_nsec + EXPORT_ALL_HOLD_NSEC;
        free(b);
}

void exports_end(struct exchange *x, const struct exchange_ns *e)
{
        if (x->batch && x->batch->e == e)
                end_batch(x, -ECANCELED);
        list_for_each_safe (t, &x->texts, struct export_text, link)
                if (t->e == e)
                        text_free(t);
}

static int begin_probe(struct export_batch *b)
{
        struct exchange *x = b->e->x;
        struct exchange_io *io = exchange_io_new(x, REMOTE_TOUCH, REMOTE_SMALL, b->n, 0, false);
        int r = io ? 0 : -ENOMEM;

        for (uint32_t i = 0; i < b->n && r == 0; i++) {
                char name[EXCHANGE_NAME_MAX];

                r = exchange_name_page(b->e, ns_page(b->e->ns, b->pages[i].page)->key, name);
                if (r == 0)
                        exchange_io_name(io, i, name);
        }
        if (r == 0)
                r = exchange_io_begin(io, x->tenant->store->now_nsec + EXCHANGE_SMALL_NSEC);
        if (r < 0) {
                exchange_io_end(io);
                return r;
        }
        b->probe = io;
        return 0;
}

/* Drops a text that can't be exported any more. */
static void drop_text(struct export_text *t)
{
        struct exchange *x = t->e->x;
        enum exchange_drop why = t->e->epoch->number == 0 ? EXCHANGE_EPOCH : EXCHANGE_GONE;

        x->counters.not_exported[why] += !t->is_of_all;
        text_free(t);
}

/* Collects pages of the next text, and of others of its namespace. *ret_more: the looks ran out. */
static struct export_batch *collect_batch(struct exchange *x, bool *ret_more)
{
        struct export_batch *b = calloc(1, sizeof(*b));
        uint32_t looks = EXPORT_LOOKS;

        if (!b)
                return NULL;
        list_for_each_safe (t, &x->texts, struct export_text, link) {
                find_end(t);
                if (text_may_wait(t) || (b->n > 0 && t->e != b->e))
                        continue;
                if (t->e->epoch->number != 0 && !epoch_refresh(t->e->epoch))
                        continue;
                if (!text_is_good(t)) {
                        drop_text(t);
                        continue;
                }
                b->e = t->e;
                take_from_text(b, t, &looks);
                if (b->n == EXPORT_BATCH || looks == 0)
                        break;
        }
        *ret_more = looks == 0;
        if (b->n > 0)
                return b;
        free(b);
        return NULL;
}

/* Begins a batch; returns when to call it again. */
static uint64_t begin_batch(struct exchange *x)
{
        bool more = false;
        struct export_batch *b = collect_batch(x, &more);
        int r;

        if (!b)
                return more ? x->tenant->store->now_nsec : UINT64_MAX;
        b->epoch = b->e->epoch->number;
        x->batch = b;
        r = begin_probe(b);
        if (r < 0)
                end_batch(x, r);
        return UINT64_MAX;
}

/* Pages that the store has aren't sent, and count as used. */
static void take_probe(struct export_batch *b)
{
        for (uint32_t i = 0; i < b->n; i++) {
                const struct exchange_result *r = &b->probe->results[i];

                if (r->result != 0) {
                        leave_page(b, &b->pages[i], r->result);
                } else if (r->n_found > 0) {
                        b->e->x->counters.there_pages++;
                        note_done(b, &b->pages[i], false);
                } else {
                        b->pages[i].was_exported = false;
                }
        }
        exchange_io_end(b->probe);
        b->probe = NULL;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Returns a page's envelope with its tokens, its tag, and its parent. */
static struct envelope describe_page(const struct exchange_ns *e, uint32_t page)
{
        const struct page *p = ns_page(e->ns, page);
        uint32_t parent = ns_note(e->ns, page)->place.parent;
        struct envelope v = exchange_envelope(
                e, p->key, parent == PAGE_NONE ? NULL : ns_page(e->ns, parent)->key);

        v.tokens = p->tokens;
        v.tag = ns_extra(e->ns, page)->tag;
        return v;
}

static uint64_t value_bytes(const struct export_batch *b)
{
        return ENVELOPE_BYTES + page_travel_bytes(&b->e->ns->codecs.of_pages);
}

/* Begins to copy the page's bytes into a buffer. Returns 0 or -errno. */
static int begin_page(struct export_batch *b, struct export_page *p)
{
        struct exchange_io *io;
        int r;

        if (!export_may_go(b->e, p->page, p->generation))
                return -ENOENT;
        io = exchange_io_new(b->e->x, REMOTE_WRITE, REMOTE_LARGE, 1, value_bytes(b), false);
        r = io ? exchange_io_move(io, b->e->ns, TRANSFER_OUT, p->page) : -ENOMEM;
        if (r < 0)
                exchange_io_end(io);
        else
                p->write = io;
        return r;
}

/* Sends a page whose bytes were copied. Returns 0 or -errno. */
static int send_page(struct export_batch *b, struct export_page *p)
{
        struct exchange *x = b->e->x;
        struct envelope says;
        char name[EXCHANGE_NAME_MAX];
        int r;

        if (p->write->moved < 0)
                return p->write->moved == -ENOMEM || p->write->moved == -EDOM ? p->write->moved
                                                                              : -ENOENT;
        if (!export_may_go(b->e, p->page, p->generation))
                return -ENOENT;
        r = exchange_name_page(b->e, ns_page(b->e->ns, p->page)->key, name);
        if (r < 0)
                return r;
        says = describe_page(b->e, p->page);
        exchange_io_name(p->write, 0, name);
        exchange_io_envelop(p->write, &says, exchange_ns_key(b->e));
        p->write->io->ops[0].expiry_msec = x->options.expiry_msec;
        return exchange_io_begin(p->write, x->tenant->store->now_nsec + EXPORT_DEADLINE_NSEC);
}

static void end_page(struct export_batch *b, struct export_page *p, int result)
{
        struct exchange_counters *c = &b->e->x->counters;

        exchange_io_end(p->write);
        p->write = NULL;
        if (result != 0) {
                leave_page(b, p, result);
                return;
        }
        c->exported_pages++;
        c->exported_bytes += page_travel_bytes(&b->e->ns->codecs.of_pages);
        note_done(b, p, true);
}

/* Continues a page that was copied, or written. */
static void go_on_with_page(struct export_batch *b, struct export_page *p)
{
        int r;

        if (!p->write || exchange_io_is_moving(p->write))
                return;
        if (p->is_sent) {
                if (exchange_io_is_over(p->write))
                        end_page(b, p, p->write->results[0].result);
                return;
        }
        r = send_page(b, p);
        if (r < 0)
                end_page(b, p, r);
        else
                p->is_sent = true;
}

static struct bucket_limit limit_of(const struct exchange *x)
{
        uint64_t rate = x->options.write_bytes_per_sec / UNIT_BYTES;

        rate = MAX(UINT64_C(1), MIN(rate, (uint64_t)BUCKET_MAX_RATE));
        return (struct bucket_limit){.rate = (uint32_t)rate, .burst = (uint32_t)rate};
}

/* Begins to write the next missing page. Returns when to call it again. */
static uint64_t write_next(struct export_batch *b)
{
        struct exchange *x = b->e->x;
        uint64_t now_nsec = x->tenant->store->now_nsec, wait_nsec;
        uint64_t bytes = page_travel_bytes(&b->e->ns->codecs.of_pages);
        struct bucket_limit limit = limit_of(x);
        int r;

        while (b->n_begun < b->n && b->pages[b->n_begun].is_over)
                b->n_begun++;
        if (b->n_begun == b->n ||
                (x->export_bytes > 0 && x->export_bytes + bytes > EXPORT_BYTES_MAX))
                return UINT64_MAX;
        wait_nsec = bucket_wait_nsec(&x->bucket, limit, now_nsec);
        if (wait_nsec > 0)
                return now_nsec + wait_nsec;
        bucket_take(&x->bucket, limit, (uint32_t)(1 + bytes / UNIT_BYTES), now_nsec);
        r = begin_page(b, &b->pages[b->n_begun]);
        if (r < 0)
                leave_page(b, &b->pages[b->n_begun], r);
        b->n_begun++;
        return now_nsec;
}

static uint64_t go_on(struct exchange *x)
{
        struct export_batch *b = x->batch;
        uint64_t next = UINT64_MAX;

        if (b->epoch != b->e->epoch->number) {
                end_batch(x, -ECANCELED);
                return x->tenant->store->now_nsec;
        }
        if (b->probe && !exchange_io_is_over(b->probe))
                return UINT64_MAX;
        if (b->probe)
                take_probe(b);
        for (uint32_t i = 0; i < b->n_begun; i++)
                go_on_with_page(b, &b->pages[i]);
        if (b->n_over < b->n)
                next = write_next(b);
        if (b->n_over < b->n)
                return next;
        end_batch(x, 0);
        return x->tenant->store->now_nsec;
}

uint64_t exports_work(struct exchange *x)
{
        uint64_t next = UINT64_MAX;

        if (x->batch)
                next = go_on(x);
        else if (!list_is_empty(&x->texts) && x->all.hold_nsec <= x->tenant->store->now_nsec)
                next = begin_batch(x);
        return MIN(next, export_all_go_on(x));
}
