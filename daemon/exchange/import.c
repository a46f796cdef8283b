#include "daemon/exchange/import.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/core/cache/nsset.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/announce.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/clients/pin.h"
#include "daemon/exchange/exchange-impl.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/state/nsset-keys.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/requests/lease.h"
#include "daemon/core/requests/publish.h"
#include "proto/status.h"

/* The part of a client's time that the probe may take: if a node doesn't answer, the client can
 * compute the pages in the rest. Not tuned. */
#define PROBE_SHARE 4

struct import_page {
        uint32_t page;
        uint32_t carrier;       /* once published: the page with the key, pinned */
        struct exchange_io *io; /* reads its value, and fills it; NULL: not begun, or published */
};

struct import {
        struct list_link link; /* exchange.imports */
        struct exchange_ns *e; /* borrowed: freed after its imports */
        struct attach *a;      /* borrowed, too */
        import_fn done;        /* NULL: the end isn't reported */
        void *data;            /* borrowed */
        uint64_t deadline_nsec, probe_deadline_nsec;
        uint64_t began_nsec;          /* when the last probe began */
        struct load_cost_stream came; /* values that came and aren't in the bandwidth yet */
        uint64_t expected_nsec;       /* time expected from began_nsec on; 0: a trial */
        uint64_t epoch;               /* the epoch when probed; 0: not probed yet */
        struct exchange_io *reads_epoch, *probe;
        bool only_probes, would_load; /* would_load: the result of a probe */
        bool is_loading;
        bool is_looked_at; /* scratch of imports_work() */
        bool has_parent;
        uint8_t parent[KEY_BYTES];
        uint32_t n_keys;
        uint32_t n_wanted; /* pages that the store has; n_granted of these have a page here */
        uint32_t n_granted;
        uint32_t n_asked; /* pages asked for; n_filled of these have bytes, or are being copied */
        uint32_t n_filled;
        uint32_t n_published;      /* of n_filled */
        uint32_t n_disturbed;      /* exchange_ns.n_disturbed at the last check of its pages */
        bool awaits_room;          /* memory is being made for missing pages */
        enum exchange_drop why;    /* why pages from n_granted on aren't imported */
        struct import_page *pages; /* owned; n_keys */
        uint8_t keys[];
};

static const uint8_t *key_at(const struct import *i, uint32_t n)
{
        return i->keys + (size_t)n * KEY_BYTES;
}

/* Returns the key before key n; NULL: none. */
static const uint8_t *parent_of(const struct import *i, uint32_t n)
{
        if (n > 0)
                return key_at(i, n - 1);
        return i->has_parent ? i->parent : NULL;
}

static uint64_t value_bytes(const struct import *i)
{
        return ENVELOPE_BYTES + page_travel_bytes(&i->a->ns->codecs.of_pages);
}

/* Returns the state of the first key: KVL_STATUS_MISS: to be imported; DUPLICATE: cached; PENDING,
 * STALE. */
static int look_at_first(struct attach *a, const uint8_t *key, struct detail *d)
{
        int r = announce_state(a, key, d);

        return r == 0 ? KVL_STATUS_DUPLICATE : r;
}

/* ---- end ------------------------------------------------------------------------------------- */

/* The group may have freed or published the page before. Pages of a LEASE or of a magazine have
 * another seq. */
static void give_page_back(const struct import *i, uint32_t page)
{
        const struct ns *ns = i->a->ns;
        const struct page *p = ns_page(ns, page);

        if (p && p->state == PAGE_GRANTED && p->owner == i->a->grants->group->id && !p->ready &&
                !p->given_back && ns_note(ns, page)->seq == PAGE_SEQ_IMPORT &&
                ns_note(ns, page)->client == i->a->member->id)
                grants_give_back(i->a->grants, page);
}

/* Gives up the unpublished pages from key n on. A page is given back before a copy into it is
 * ended. */
static void drop_pages(struct import *i, uint32_t n)
{
        for (uint32_t k = n; k < i->n_granted; k++) {
                give_page_back(i, i->pages[k].page);
                exchange_io_end(i->pages[k].io);
                i->pages[k].io = NULL;
        }
        i->n_granted = n;
        i->n_asked = MIN(i->n_asked, n);
        i->n_filled = MIN(i->n_filled, n);
}

/* Frees the import and everything that it holds. */
static void import_free(struct import *i)
{
        for (uint32_t n = 0; n < i->n_published; n++)
                (void)pin_release(i->a, &i->pages[n].carrier, 1, NULL);
        drop_pages(i, i->n_published);
        exchange_io_end(i->reads_epoch);
        exchange_io_end(i->probe);
        list_remove(&i->link);
        i->e->x->n_imports--;
        free(i->pages);
        free(i);
}

/* Ends the import; `n_lost` pages weren't imported for this reason. */
static void end_import(struct import *i, enum exchange_drop why, uint32_t n_lost)
{
        struct import_outcome outcome = {i->only_probes ? i->n_wanted : i->n_published};
        bool only_probes = i->only_probes;
        import_fn done = i->done;
        void *data = i->data;
        struct attach *a = i->a;
        uint8_t first[KEY_BYTES];

        if (!only_probes)
                i->e->x->counters.not_imported[why] += n_lost;
        memcpy(first, i->keys, KEY_BYTES);
        outcome.would_load = i->would_load;
        import_free(i);
        if (outcome.n_pages == 0)
                outcome.code = only_probes ? KVL_STATUS_MISS : look_at_first(a, first, NULL);
        if (done)
                done(&outcome, data);
}

/* Counts the load: exchange_counters.loads. */
static void count_load(const struct import *i, enum exchange_drop why)
{
        struct exchange *x = i->e->x;
        uint64_t tokens = (uint64_t)i->n_published * i->a->ns->layout.page_tokens;
        uint64_t took_nsec = minus_u64(x->tenant->store->now_nsec, i->began_nsec);

        if (!i->is_loading || i->expected_nsec == 0 || why == EXCHANGE_CALLED_OFF ||
                why == EXCHANGE_EPOCH)
                return;
        x->counters.loads++;
        x->counters.loads_lost += load_cost_lost(
                took_nsec, tokens, &i->e->prefill, load_cost_token_time(x->options.token_nsec));
}

/* Ends loading; pages that aren't published yet stay in the store. */
static void end_loading(struct import *i, enum exchange_drop why)
{
        count_load(i, why);
        end_import(i, why, i->n_wanted - i->n_published);
}

void import_cancel(struct import *i)
{
        i->done = NULL;
        end_import(i, EXCHANGE_CALLED_OFF, i->n_wanted - i->n_published);
}

static struct import *find_import(
        const struct exchange *x, const struct exchange_ns *e, const struct attach *a)
{
        list_for_each (i, &x->imports, struct import, link)
                if ((!e || i->e == e) && (!a || i->a == a))
                        return i;
        return NULL;
}

void imports_end(struct exchange *x, const struct exchange_ns *e, const struct attach *a)
{
        struct import *i;

        while ((i = find_import(x, e, a)))
                end_loading(i, EXCHANGE_CALLED_OFF);
}

/* ---- a probe --------------------------------------------------------------------------------- */

struct set_probe {
        const struct exchange_ns *of; /* the namespace of the import */
        /* The set's other namespaces, by struct ns.set_place; NULL: takes no part. */
        const struct exchange_ns *others[NSSET_MAX_SIZE];
        const uint8_t *keys;
        uint32_t n_keys, n_names;
        uint64_t asked[IMPORT_KEYS_MAX]; /* for each key: a bit by place in `others` */
};

static void find_others(struct set_probe *p)
{
        const struct ns *ns = p->of->ns;
        const struct nsset *set = ns->catalog.set;

        for (uint32_t i = 0; set && i < set->size; i++)
                if (set->members[i] && set->members[i] != ns)
                        p->others[i] = exchange_find_ns(set->members[i]);
}

/* Returns the other namespaces that lack the key. */
static uint64_t find_lacking(const struct set_probe *p, const uint8_t *key)
{
        const struct nsset *set = p->of->ns->catalog.set;
        uint64_t where = set ? nsset_where(set, key) : 0, lacking = 0;

        for (uint32_t i = 0; set && i < set->size; i++) {
                int state;

                if (!p->others[i])
                        continue;
                state = announce_state_in(p->others[i]->ns, key);
                /* A cached page may be about to be dropped. */
                if (state == KVL_STATUS_MISS || (state == 0 && !(where >> i & 1)))
                        lacking |= UINT64_C(1) << i;
        }
        return lacking;
}

/* Plans the names for as many keys as possible, at least one. */
static void plan_names(struct set_probe *p, uint32_t n_keys)
{
        for (; p->n_keys < n_keys; p->n_keys++) {
                uint64_t lacking = find_lacking(p, p->keys + (size_t)p->n_keys * KEY_BYTES);
                uint32_t n = 1 + (uint32_t)__builtin_popcountll(lacking);

                if (p->n_names + n > SET_PROBE_NAMES_MAX)
                        break;
                p->asked[p->n_keys] = lacking;
                p->n_names += n;
        }
}

static int name_key(const struct set_probe *p, struct exchange_io *io, uint32_t n)
{
        char name[EXCHANGE_NAME_MAX];
        int r = exchange_name_page(p->of, p->keys + (size_t)n * KEY_BYTES, name);

        if (r < 0)
                return r;
        exchange_io_name(io, n, name);
        for (uint64_t asked = p->asked[n]; asked != 0; asked &= asked - 1) {
                exchange_rename_page(p->others[__builtin_ctzll(asked)], name);
                exchange_io_name(io, n, name);
        }
        return 0;
}

/*
 * Makes an operation for each key (*n_keys of them, 1 .. IMPORT_KEYS_MAX) that checks whether the
 * page can be made complete. It asks the store for the page of the namespace itself, and of each
 * other open namespace of its set that takes part. It skips other namespaces that have the key, or
 * in which it is announced. Namespaces that aren't open on this host aren't known here, and aren't
 * asked for. exchange_io_found_all(): the store has all.
 *
 * Lowers *n_keys if there would be too many names. Returns 0; -ENOMEM, with *ret_io NULL.
 */
static int new_probe(const struct exchange_ns *e, const uint8_t *keys, uint32_t *n_keys,
        struct exchange_io **ret_io)
{
        struct set_probe p = {.of = e, .keys = keys};
        struct exchange_io *io;
        int r;

        find_others(&p);
        plan_names(&p, *n_keys);
        io = exchange_io_new(e->x, REMOTE_PROBE, REMOTE_SMALL, p.n_keys, 0, true);
        r = io ? exchange_io_reserve_names(io, p.n_names) : -ENOMEM;
        for (uint32_t n = 0; n < p.n_keys && r == 0; n++)
                r = name_key(&p, io, n);
        if (r < 0) {
                exchange_io_end(io);
                io = NULL;
        }
        *n_keys = p.n_keys;
        *ret_io = io;
        return r;
}

/* ---- begin ----------------------------------------------------------------------------------- */

/* Returns 0 if this client may import the first key, and no client of this host has it. */
static int check_first(struct attach *a, const uint8_t *key, struct detail *d)
{
        int r = look_at_first(a, key, d);

        if (a->member->read_only)
                return detail_set(d, -EACCES, "the client may only read, and so import nothing");
        return r == KVL_STATUS_MISS ? 0 : r;
}

static int check_import(struct attach *a, const struct import_request *rq, struct detail *d)
{
        const struct exchange *x = exchange_of(a->ns->tenant);
        const uint32_t most = rq->only_probes ? PROBES_MAX : IMPORTS_MAX;
        const char *why;
        int r;

        if (rq->n_keys == 0 || rq->n_keys > IMPORT_KEYS_MAX)
                return detail_set(d, -EINVAL, "an import of %u pages: 1 to %d are allowed",
                        rq->n_keys, IMPORT_KEYS_MAX);
        r = rq->only_probes ? attach_check_version(a, d) : check_first(a, rq->keys, d);
        if (r != 0)
                return r;
        if (!exchange_has_ns(a->ns, &why))
                return detail_set(d, KVL_STATUS_MISS,
                        "namespace %s isn't shared with other hosts: %s", a->ns->name, why);
        if (rq->parent_key && ns_find_page(a->ns, rq->parent_key) == PAGE_NONE)
                return detail_set(d, KVL_STATUS_NO_PARENT,
                        "the page before the first isn't cached in namespace %s", a->ns->name);
        if (x->n_imports >= most)
                return detail_set(d, KVL_STATUS_MISS,
                        "%u imports of tenant %s are under way, the most there may be%s", most,
                        a->ns->tenant->name, rq->only_probes ? " beside a probe" : "");
        return 0;
}

/* Returns the number of leading keys that are neither cached nor announced. */
static uint32_t count_missing(const struct attach *a, const struct import_request *rq)
{
        uint32_t n = 1;

        while (n < rq->n_keys &&
                announce_state(a, rq->keys + (size_t)n * KEY_BYTES, NULL) == KVL_STATUS_MISS)
                n++;
        return n;
}

static struct import *import_new(
        struct attach *a, const struct import_request *rq, struct exchange_ns *e)
{
        uint32_t n = rq->only_probes ? rq->n_keys : count_missing(a, rq);
        struct import *i = calloc(1, sizeof(*i) + (size_t)n * KEY_BYTES);

        if (!i)
                return NULL;
        i->pages = calloc(n, sizeof(*i->pages));
        if (!i->pages) {
                free(i);
                return NULL;
        }
        i->e = e;
        i->a = a;
        i->n_keys = n;
        i->has_parent = rq->parent_key;
        if (rq->parent_key)
                memcpy(i->parent, rq->parent_key, KEY_BYTES);
        memcpy(i->keys, rq->keys, (size_t)n * KEY_BYTES);
        i->deadline_nsec = rq->deadline_nsec;
        i->only_probes = rq->only_probes;
        list_init(&i->link);
        list_append(&e->x->imports, &i->link);
        e->x->n_imports++;
        return i;
}

/* Returns 0, or -errno: there is no probe. */
static int begin_probe(struct import *i)
{
        struct exchange_io *io;
        int r = new_probe(i->e, i->keys, &i->n_keys, &io);

        if (r == 0)
                r = exchange_io_begin(io, i->probe_deadline_nsec);
        if (r < 0) {
                exchange_io_end(io);
                return r;
        }
        i->probe = io;
        i->began_nsec = i->a->ns->store->now_nsec;
        i->epoch = i->e->epoch->number;
        i->e->x->counters.probes++;
        i->e->x->counters.probed_pages += i->n_keys;
        return 0;
}

static int begin_import(struct import *i)
{
        int r;

        i->reads_epoch = epoch_read_new(i->e->epoch);
        r = i->reads_epoch ? exchange_io_begin(i->reads_epoch, i->probe_deadline_nsec) : -ENOMEM;
        return r == 0 && i->e->epoch->number != 0 ? begin_probe(i) : r;
}

int import_begin(struct attach *a, const struct import_request *rq, uint64_t now_nsec,
        import_fn done, void *data, struct import **ret_import, struct detail *d)
{
        struct import *i;
        int r;

        store_set_now(a->ns->store, now_nsec);
        r = check_import(a, rq, d);
        if (r != 0)
                return r;
        i = import_new(a, rq, exchange_find_ns(a->ns));
        if (!i)
                return detail_set(d, -ENOMEM, "no memory to import %u pages", rq->n_keys);
        i->probe_deadline_nsec = now_nsec + MIN(minus_u64(rq->deadline_nsec, now_nsec) /
                                                            (rq->only_probes ? 1 : PROBE_SHARE),
                                                    i->e->x->options.probe_nsec);
        r = begin_import(i);
        if (r < 0) {
                end_import(i, exchange_drop_of(r), i->n_keys);
                return detail_set(d, KVL_STATUS_MISS,
                        "what other hosts share takes no more requests now: %s", strerror(-r));
        }
        i->done = done;
        i->data = data;
        *ret_import = i;
        return 0;
}

/* ---- probing --------------------------------------------------------------------------------- */

/* Takes the epoch that was read. Returns false if the import is over. */
static bool take_epoch(struct import *i)
{
        struct exchange_epoch *p = i->e->epoch;
        int r = epoch_take(p, i->reads_epoch);

        exchange_io_end(i->reads_epoch);
        i->reads_epoch = NULL;
        if (r == 0 && i->epoch != p->number) { /* it was probed under another epoch, or not yet */
                exchange_io_end(i->probe);
                i->probe = NULL;
                r = begin_probe(i);
        }
        if (r == 0)
                return true;
        end_import(i, r == -ESTALE ? EXCHANGE_EPOCH : exchange_drop_of(r),
                r == -ENOENT ? 0 : i->n_keys);
        return false;
}

/* Decides by policy/load-cost.h, with the store as one node: requests are spread over its nodes,
 * and the measurements are of all of them together. */
static struct load_cost_answer decide(const struct import *i, uint64_t now_nsec)
{
        const struct exchange *x = i->e->x;
        const struct load_cost_part part = {
                .rtt_nsec = now_nsec - i->began_nsec,
                .queued_bytes = x->import_bytes,
                .bytes = i->n_wanted * value_bytes(i),
                .seen = &x->bandwidth,
                .start = load_cost_bandwidth(x->options.bytes_per_sec),
                .error = x->error,
        };

        return load_cost_loading(&part, 1, (uint64_t)i->n_wanted * i->a->ns->layout.page_tokens,
                &i->e->prefill, load_cost_token_time(x->options.token_nsec));
}

static bool is_worth_it(const struct import *i, uint64_t now_nsec)
{
        i->e->decided = decide(i, now_nsec);
        i->e->n_decided = i->n_wanted;
        return i->e->decided.verdict == LOAD_COST_LOADED;
}

/* Without loads there are no measurements, so a store that was slow for a while would never be used
 * again. So one in so many imports that aren't worth it is a trial. It loads as little as possible,
 * and discards earlier measurements. */
static bool is_trial(struct import *i)
{
        const uint32_t page_tokens = i->a->ns->layout.page_tokens;
        struct exchange *x = i->e->x;

        if (i->e->decided.verdict != LOAD_COST_TOO_SLOW || ++x->n_refused < IMPORT_TRIAL_AFTER)
                return false;
        x->bandwidth = (struct load_cost_ratio){0};
        x->error = (struct load_cost_error){0};
        i->n_wanted = MIN(i->n_wanted, (LOAD_COST_TOKENS_MIN + page_tokens - 1) / page_tokens);
        return true;
}

/* Gives up the pages from key n on, for this reason. */
static void cut(struct import *i, uint32_t n, enum exchange_drop why)
{
        drop_pages(i, n);
        i->awaits_room = false;
        i->why = why;
}

/* Takes and announces FREE pages for found ones, as many as possible. */
static void take_pages(struct import *i, uint64_t now_nsec)
{
        uint32_t wanted = i->n_wanted - i->n_granted, n_announced = 0, n, other;
        _cleanup_free_ uint32_t *pages = calloc(wanted, sizeof(*pages));
        struct detail d;

        i->why = EXCHANGE_NO_ROOM;
        i->awaits_room = false;
        if (!pages)
                return;
        n = lease_make_ready(i->a, wanted, wanted, now_nsec);
        for (uint32_t k = 0; k < n; k++)
                pages[k] = grants_take_page(i->a, PAGE_SEQ_IMPORT);
        if (n > 0)
                (void)announce_pages(
                        i->a, pages, key_at(i, i->n_granted), n, &n_announced, &other, &d);
        for (uint32_t k = n_announced; k < n; k++)
                give_page_back(i, pages[k]);
        for (uint32_t k = 0; k < n_announced; k++)
                i->pages[i->n_granted++].page = pages[k];
        /* If an announcement fails, another client was first, or the index is full. */
        i->awaits_room = n_announced == n && n < wanted && i->a->ns->device.n_preparing > 0;
}

void imports_take_room(const struct exchange_ns *e)
{
        list_for_each (i, &e->x->imports, struct import, link)
                if (i->e == e && i->awaits_room) {
                        take_pages(i, e->ns->store->now_nsec);
                        exchange_wake(e->x);
                }
}

/* Takes the probe's result. Returns false if the import is over. */
static bool take_probe(struct import *i, uint64_t now_nsec)
{
        int why = 0;

        while (i->n_wanted < i->n_keys && exchange_io_found_all(i->probe, i->n_wanted))
                i->n_wanted++;
        if (i->n_wanted < i->n_keys)
                why = i->probe->results[i->n_wanted].result;
        exchange_io_end(i->probe);
        i->probe = NULL;
        i->e->x->counters.found_pages += i->n_wanted;
        if (i->n_wanted == 0) {
                end_import(i, exchange_drop_of(why), why == 0 ? 0 : i->n_keys);
                return false;
        }
        if (i->only_probes) {
                i->would_load = decide(i, now_nsec).verdict == LOAD_COST_LOADED;
                end_import(i, i->why, 0);
                return false;
        }
        if (is_worth_it(i, now_nsec)) {
                i->expected_nsec = i->e->decided.expected_nsec;
        } else if (!is_trial(i)) {
                end_loading(i, EXCHANGE_NOT_WORTH);
                return false;
        }
        i->e->x->n_refused = 0;
        take_pages(i, now_nsec);
        if (i->n_granted == 0 && !i->awaits_room) {
                end_loading(i, i->why);
                return false;
        }
        i->is_loading = true;
        i->came = (struct load_cost_stream){.since_nsec = now_nsec};
        return true;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* Is the page still the one taken for this key, and not withdrawn? */
static bool is_still_ours(const struct import *i, uint32_t n)
{
        const struct ns *ns = i->a->ns;
        uint32_t page = i->pages[n].page;
        const struct page *p = ns_page(ns, page);

        return p && p->state == PAGE_GRANTED && p->owner == i->a->grants->group->id &&
               p->announced && memcmp(p->key, key_at(i, n), KEY_BYTES) == 0;
}

/* Returns 0; -ECANCELED: the client has given the page back, without knowing it; another -errno. */
static int ask_for_page(struct import *i, uint32_t n)
{
        char name[EXCHANGE_NAME_MAX];
        struct exchange_io *io;
        int r;

        if (!is_still_ours(i, n))
                return -ECANCELED;
        io = exchange_io_new_import(i->e->x, i->a->ns, i->pages[n].page);
        r = io ? exchange_name_page(i->e, key_at(i, n), name) : -ENOMEM;
        if (r == 0) {
                struct envelope want = exchange_envelope(i->e, key_at(i, n), parent_of(i, n));

                exchange_io_name(io, 0, name);
                exchange_io_envelop(io, &want, exchange_ns_key(i->e));
                r = exchange_io_begin(io, i->deadline_nsec);
        }
        if (r < 0) {
                exchange_io_end(io);
                return r;
        }
        i->pages[n].io = io;
        return 0;
}

/* Returns the bytes of values that are requested and not published yet. */
static uint64_t bytes_under_way(const struct import *i)
{
        return (i->n_asked - i->n_published) * value_bytes(i);
}

/* Requests values up to the limits. Returns 0, or -errno: the next one can't be requested, and none
 * is under way. */
static int ask_for_pages(struct import *i)
{
        const struct exchange *x = i->e->x;
        uint64_t bytes = value_bytes(i);
        int r = 0;

        while (r == 0 && i->n_asked < i->n_granted &&
                (i->n_asked == i->n_published ||
                        bytes_under_way(i) + bytes <= IMPORT_WINDOW_BYTES) &&
                (x->import_bytes == 0 || x->import_bytes + bytes <= IMPORT_BYTES_MAX) &&
                (x->n_ops == 0 || exchange_io_has_room(x, 1))) {
                r = ask_for_page(i, i->n_asked);
                i->n_asked += r == 0;
        }
        return i->n_asked > i->n_published ? 0 : r;
}

/* Removes a damaged value, so that no host reads it again. */
static void remove_damaged(struct import *i, uint32_t n)
{
        char name[EXCHANGE_NAME_MAX];

        if (exchange_name_page(i->e, key_at(i, n), name) == 0)
                exchange_remove(i->e->x, name);
}

/* Counts and reports a value whose envelope failed its check. */
static void note_fault(struct import *i, enum envelope_fault fault)
{
        if (fault != ENVELOPE_GOOD && fault != ENVELOPE_NO_MEMORY)
                exchange_note_refused(
                        i->e->x, envelope_fault_name(fault), envelope_fault_text(fault), 1);
}

static bool publish_value(struct import *i, uint32_t n, const struct envelope *v)
{
        struct import_page *p = &i->pages[n];
        const struct publish publish = {
                .pages = &p->page,
                .keys = key_at(i, n),
                .n = 1,
                .parent_key = parent_of(i, n),
                .last_tokens = v->tokens,
                .tag = v->tag,
        };
        struct exchange *x = i->e->x;
        struct detail d;
        uint32_t n_done;
        int r;

        i->a->member->repeats = false;
        x->is_importing = true;
        r = publish_pages(i->a, &publish, i->a->ns->store->now_nsec, &p->carrier, &n_done, &d);
        x->is_importing = false;
        if (r != 0 && r != KVL_STATUS_DUPLICATE)
                return false;
        i->n_published++;
        if (r == KVL_STATUS_DUPLICATE) { /* another client computed it meanwhile */
                give_page_back(i, p->page);
                return true;
        }
        x->counters.imported_pages++;
        x->counters.imported_bytes += v->payload_bytes;
        export_note_there(i->e, p->page);
        return true;
}

/* Has the read of page n's value ended? */
static bool is_read(const struct import *i, uint32_t n)
{
        return n < i->n_asked && exchange_io_is_over(i->pages[n].io);
}

/* Handles the next page's value, which has arrived, or won't. If it isn't good, gives up the rest.
 * Else copies it to its page, unless it lies there. */
static bool take_value(struct import *i)
{
        uint32_t n = i->n_filled;
        struct exchange_io *io = i->pages[n].io;
        const struct exchange_result *r = &io->results[0];
        uint64_t now_nsec = i->a->ns->store->now_nsec;

        if (r->result == -EMSGSIZE) {
                note_fault(i, ENVELOPE_LENGTH);
                remove_damaged(i, n);
        }
        if (r->result != 0) {
                cut(i, n, exchange_drop_of(r->result));
                return false;
        }
        load_cost_note_value(
                &i->e->x->bandwidth, &i->came, r->n_bytes, is_read(i, n + 1), now_nsec);
        note_fault(i, io->fault);
        if (io->fault != ENVELOPE_GOOD) {
                if (io->fault != ENVELOPE_NO_MEMORY)
                        remove_damaged(i, n);
                cut(i, n, io->fault == ENVELOPE_NO_MEMORY ? EXCHANGE_BUSY : EXCHANGE_DAMAGED);
                return false;
        }
        if (!is_still_ours(i, n)) {
                cut(i, n, EXCHANGE_CALLED_OFF);
                return false;
        }
        if (exchange_io_move(io, i->a->ns, TRANSFER_IN, i->pages[n].page) < 0) {
                cut(i, n, EXCHANGE_BUSY);
                return false;
        }
        i->n_filled++;
        return true;
}

/* Handles the next page, which is filled, or failed. */
static void take_filled(struct import *i)
{
        uint32_t n = i->n_published;
        struct exchange_io *io = i->pages[n].io;

        if (io->moved == -EBADMSG) { /* sums or seal are right, so another host wrote this */
                exchange_note_refused(
                        i->e->x, "not-encoded", "no codec of kvlease writes such bytes", 1);
                remove_damaged(i, n);
                cut(i, n, EXCHANGE_DAMAGED);
                return;
        }
        if (io->moved < 0 || !is_still_ours(i, n)) {
                cut(i, n, EXCHANGE_CALLED_OFF);
                return;
        }
        if (!publish_value(i, n, &io->envelope)) {
                cut(i, n, EXCHANGE_NO_ROOM);
                return;
        }
        exchange_io_end(io);
        i->pages[n].io = NULL;
}

/* ---- work ------------------------------------------------------------------------------------ */

/* Gives up pages that were taken back, and those behind them, without waiting for the store. Ends
 * the import if a published page is in a recalled set: the client doesn't know of these pages and
 * pins, and would be late. Returns false if it is over. */
static bool look_after_pages(struct import *i)
{
        uint32_t n = 0;

        if (i->n_disturbed == i->e->n_disturbed)
                return true;
        i->n_disturbed = i->e->n_disturbed;
        for (; n < i->n_published; n++)
                if (ns_set_of(i->a->ns, i->pages[n].carrier)->recall.state != RECALL_NONE) {
                        end_loading(i, EXCHANGE_CALLED_OFF);
                        return false;
                }
        while (n < i->n_granted && is_still_ours(i, n))
                n++;
        if (n < i->n_granted)
                cut(i, n, EXCHANGE_CALLED_OFF);
        return true;
}

/* Continues an import. Returns true if it has released buffers, for which others may wait. */
static bool go_on_loading(struct import *i, uint64_t now_nsec)
{
        uint64_t held = bytes_under_way(i);
        bool lets_go;
        int r;

        if (i->epoch != i->e->epoch->number) {
                end_loading(i, EXCHANGE_EPOCH);
                return true;
        }
        if (now_nsec >= i->deadline_nsec) {
                end_loading(i, EXCHANGE_LATE);
                return true;
        }
        if (!look_after_pages(i))
                return true;
        while (is_read(i, i->n_filled) && take_value(i))
                ;
        while (i->n_published < i->n_filled && !exchange_io_is_moving(i->pages[i->n_published].io))
                take_filled(i);
        lets_go = bytes_under_way(i) < held;
        r = ask_for_pages(i);
        if (r < 0)
                cut(i, i->n_asked, exchange_drop_of(r));
        if (i->n_published == i->n_wanted)
                load_cost_note_took(&i->e->x->error, i->expected_nsec, now_nsec - i->began_nsec);
        if (i->n_published == i->n_granted && !i->awaits_room)
                end_loading(i, i->why);
        return lets_go;
}

static bool go_on(struct import *i, uint64_t now_nsec)
{
        if (i->is_loading)
                return go_on_loading(i, now_nsec);
        if (i->reads_epoch && exchange_io_is_over(i->reads_epoch) && !take_epoch(i))
                return false;
        if (!i->reads_epoch && i->probe && exchange_io_is_over(i->probe))
                return take_probe(i, now_nsec) && go_on_loading(i, now_nsec);
        if (now_nsec >= i->deadline_nsec) /* without waiting for the store's threads */
                end_import(i, EXCHANGE_LATE, i->n_keys);
        return false;
}

static struct import *next_to_look_at(const struct exchange *x)
{
        list_for_each (i, &x->imports, struct import, link)
                if (!i->is_looked_at)
                        return i;
        return NULL;
}

uint64_t imports_work(struct exchange *x)
{
        uint64_t now_nsec = x->tenant->store->now_nsec, next = UINT64_MAX;
        bool lets_go = false;
        struct import *i;

        list_for_each (each, &x->imports, struct import, link)
                each->is_looked_at = false;
        while ((i = next_to_look_at(x))) {
                i->is_looked_at = true;
                list_remove(&i->link); /* the others come first in the next turn */
                list_append(&x->imports, &i->link);
                lets_go |= go_on(i, now_nsec);
        }
        if (lets_go)
                return now_nsec;
        /* An import that waits for buffers has no operation that ends at its deadline. */
        list_for_each (each, &x->imports, struct import, link)
                next = MIN(next, each->deadline_nsec);
        return next;
}
