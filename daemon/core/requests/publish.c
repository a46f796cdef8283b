#include "daemon/core/requests/publish.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/fault-point.h"
#include "base/probe.h"
#include "daemon/core/cache/announced.h"
#include "daemon/core/cache/nsset.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/cache/tag.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/clients/pin.h"
#include "daemon/core/clients/request.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/moves/renumber.h"
#include "daemon/core/moves/space.h"
#include "daemon/core/moves/transfer.h"
#include "daemon/core/state/feed.h"
#include "daemon/core/state/listeners.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/records.h"
#include "daemon/core/state/shared.h"
#include "daemon/core/sessions/session.h"
#include "proto/status.h"

static int publish_check(const struct attach *a, const struct publish *p, struct detail *d)
{
        if (p->n == 0)
                return detail_set(d, -EINVAL, "a publish of 0 pages");
        if (p->last_tokens == 0 || p->last_tokens > a->ns->layout.page_tokens)
                return detail_set(d, -EINVAL,
                        "last_tokens is %u: 1 to page_tokens (%u) are allowed", p->last_tokens,
                        a->ns->layout.page_tokens);
        return attach_check_version(a, d);
}

/* Notes the publisher. */
static void note_publish(const struct attach *a, uint32_t page)
{
        struct page_note *n = ns_note(a->ns, page);

        FAULT_POINT("publish-before-client");
        n->seq = PAGE_SEQ_NONE; /* first: the LEASE with this number may have been another client's
                                 */
        atomic_signal_fence(memory_order_seq_cst);
        n->client = a->member->id;
        FAULT_POINT("publish-after-client");
        n->was_found = 0;
}

/* The largest value of page_note.depth. */
#define DEPTH_MAX ((UINT32_C(1) << 30) - 1)

/* Notes the page's place in its text. */
static void note_place(struct ns *ns, const struct publish_one *o)
{
        bool is_first = o->parent == PAGE_NONE;
        uint32_t depth = is_first ? 0 : ns_note(ns, o->parent)->depth;
        uint64_t end = (is_first ? 0 : ns_page(ns, o->parent)->end_token) + (uint64_t)o->tokens;

        ns_note(ns, o->page)->depth = MIN(depth + 1, DEPTH_MAX) & DEPTH_MAX;
        /* Only a page for a session's window can exceed this; the window sets its end then. */
        ns_page(ns, o->page)->end_token = (uint32_t)MIN(end, (uint64_t)TEXT_TOKENS_MAX);
}

/* Results of a publish, as in docs/reference/PROBES.md. */
enum published { PUBLISHED_SEALED, PUBLISHED_HIDDEN, PUBLISHED_DUPLICATE, PUBLISHED_TAKEN_OVER };

#define PROBE_PUBLISH(a, o, at, what) \
        PROBE(kvleased, publish, (a)->ns->tenant, (a)->ns, (a)->member->id, at, (o)->tokens, what)

/* Notes the time of the publish, in the place of fields of a GRANTED page. */
static void note_time(struct ns *ns, uint32_t page)
{
        ns_page(ns, page)->published_sec = store_now_sec(ns->store);
        ns_note_use(ns, page);
}

/* Publishes a page that can't be found. */
static void hide_page(struct ns *ns, uint32_t page, bool is_private)
{
        struct page *p = ns_page(ns, page);

        tag_store(ns, page, 0);
        p->unindexed = !is_private;
        ns->store->counters.unindexed += !is_private;
        ns_set_state(ns, page, PAGE_DETACHED);
        note_time(ns, page);
}

/* Seals a page; returns whether it can be found. It is DETACHED from the start if the index has no
 * slot for it, its parent is unindexed, its set is recalled, or it is for a session's window. */
static bool seal_page(struct attach *a, const struct publish_one *o, uint64_t hash)
{
        struct ns *ns = a->ns;
        struct page *p = ns_page(ns, o->page);
        bool is_private = session_is_private(a, o->session);
        bool is_hidden = is_private || ns_set_of(ns, o->page)->recall.state != RECALL_NONE ||
                         (o->parent != PAGE_NONE && ns_page(ns, o->parent)->unindexed);

        if (is_hidden || memcmp(p->key, o->key, KEY_BYTES) != 0)
                announce_withdraw(ns, o->page);
        grants_remove(a->grants, o->page);
        FAULT_POINT("publish-before-key");
        memcpy(p->key, o->key, KEY_BYTES);
        FAULT_POINT("publish-after-key");
        p->tokens = (uint16_t)o->tokens;
        p->reported = 0;
        note_publish(a, o->page);
        note_place(ns, o);
        tag_store(ns, o->page, is_hidden ? 0 : o->tag); /* it has no announcer any more */
        records_seal(ns, o->page, p->generation, o->parent);
        shared_describe(ns, o->page);
        ns->store->counters.publishes++;
        if (is_hidden) {
                hide_page(ns, o->page, is_private);
                PROBE_PUBLISH(a, o, o->page, PUBLISHED_HIDDEN);
                return false;
        }
        ns_set_state(ns, o->page, PAGE_SEALED);
        note_time(ns, o->page);
        if (!announce_fulfil(ns, hash, o->page) && !shared_insert(ns, hash, o->page)) {
                hide_page(ns, o->page, false);
                PROBE_PUBLISH(a, o, o->page, PUBLISHED_HIDDEN);
                return false;
        }
        if (o->tag != 0)
                tag_enter(ns, o->page);
        ns_enter_tree(ns, o->page, o->parent);
        ns->evict->insert(ns->policy, o->page,
                &(struct evict_insert){.id = store_hash_key(ns->store, o->key),
                        .tokens = o->tokens,
                        .depth = ns_note(ns, o->page)->depth,
                        .request = request_id(a, o->request),
                        .window_passed = o->window_passed},
                ns->store->now_nsec);
        request_tell(ns, request_id(a, o->request), REQUEST_PUBLISHED, o->page);
        nsset_sealed(ns, o->page);
        space_note_sealed(ns, o->page);
        tenant_tell(ns->tenant, page_published, ns, o->page);
        PROBE_PUBLISH(a, o, o->page, PUBLISHED_SEALED);
        return true;
}

static int check_publish(const struct attach *a, const struct publish_one *o, struct detail *d)
{
        const struct ns *ns = a->ns;
        int r = grants_check_page(a, o->page, d);

        if (r < 0)
                return r;
        if (ns_page(ns, o->page)->epoch != (uint32_t)ns->epoch)
                return detail_set(d, KVL_STATUS_STALE,
                        "page %u was granted before namespace %s was invalidated; free it", o->page,
                        ns->name);
        return 0;
}

/* Positions in a text have 32 bits. A session that grows and is truncated often enough reaches
 * that. */
static int check_length(struct attach *a, const struct publish_one *o, struct detail *d)
{
        uint64_t begin = session_next_token(a, o->session, o->parent);

        if (begin + o->tokens <= TEXT_TOKENS_MAX)
                return 0;
        return detail_set(d, -EINVAL,
                "page %u would end at token %llu of its text, what was truncated included, and %u is the last: begin another session",
                o->page, (unsigned long long)(begin + o->tokens), TEXT_TOKENS_MAX);
}

/* Reserves everything that could fail after the page is sealed. */
static int reserve_publish(struct attach *a, const struct publish_one *o, struct detail *d)
{
        int r = session_reserve(a, o->session, 1, d);

        if (r < 0 || o->tag == 0 || tag_reserve(a->ns) == 0)
                return r;
        return detail_set(d, -ENOMEM, "no memory for a tag");
}

/* Returns the page that has the key already, if the publisher can use it. */
static uint32_t find_existing(struct attach *a, const struct publish_one *o, uint64_t hash)
{
        return session_is_private(a, o->session) ? PAGE_NONE : shared_find(a->ns, hash, o->key);
}

/* Adds the page with the key to the session, and gives it the tag. */
static void enter_page(struct attach *a, const struct publish_one *o, uint32_t page)
{
        session_append(a, o->session, page, o->parent, a->ns->store->now_nsec);
        if (o->tag != 0 && ns_page(a->ns, page)->state == PAGE_SEALED)
                tag_add(a->ns, page, o->tag);
}

/* Another client's page with the key is in a lower tier: the publisher's copy replaces it, which
 * promotes it at no cost. Returns false if the page stays in its place. */
static bool take_over(struct attach *a, const struct publish_one *o, uint32_t existing)
{
        struct ns *ns = a->ns;
        struct page *p = ns_page(ns, o->page);

        if (tier_of_page(&ns->geometry, existing) == TIER_DEVICE || p->announced ||
                ns_extra(ns, existing)->n_windows > 0 ||
                ns_page(ns, existing)->tokens != o->tokens || transfer_find(ns, existing) ||
                ns_set_of(ns, o->page)->recall.state != RECALL_NONE)
                return false;
        grants_remove(a->grants, o->page);
        p->reported = 0;
        ns_note(ns, existing)->client = a->member->id; /* identifies a repeated publish */
        renumber_pinned_page(ns, existing, o->page, 0);
        ns_note_use(ns, o->page);
        ns->counters.duplicates++;
        ns->store->counters.duplicates++;
        request_tell(ns, request_id(a, o->request), REQUEST_PUBLISHED, o->page);
        PROBE_PUBLISH(a, o, o->page, PUBLISHED_TAKEN_OVER);
        return true;
}

static void note_duplicate(const struct attach *a, const struct publish_one *o, uint32_t existing)
{
        struct ns *ns = a->ns;

        feed_add_ids(ns, existing, o->page);
        ns_note_use(ns, existing);
        request_tell(ns, request_id(a, o->request), REQUEST_PUBLISHED, existing);
        ns->counters.duplicates++;
        ns->store->counters.duplicates++;
        PROBE_PUBLISH(a, o, existing, PUBLISHED_DUPLICATE);
}

/* Did this member publish the page with this key to the previous daemon? */
static bool was_published(const struct attach *a, const struct publish_one *o)
{
        const struct page *p = ns_page(a->ns, o->page);

        return a->member->repeats && p && (p->state == PAGE_SEALED || p->state == PAGE_DETACHED) &&
               memcmp(p->key, o->key, KEY_BYTES) == 0 &&
               ns_note(a->ns, o->page)->client == a->member->id;
}

/* Repeats the steps of a publish that may be missing. */
static int publish_again(struct attach *a, const struct publish_one *o, struct detail *d)
{
        const struct page *p = ns_page(a->ns, o->page);
        int r = reserve_publish(a, o, d);

        if (r < 0 || ns_page_is_stale(a->ns, p))
                return r;
        if (p->state != PAGE_SEALED && (!session_is_private(a, o->session) ||
                                               session_may_continue(a, o->session, o->page)))
                return 0;
        r = check_length(a, o, d);
        if (r == 0)
                enter_page(a, o, o->page);
        return r;
}

/* Can pages continue this one: is it findable, or was it published without a slot in the index? */
static bool page_may_be_parent(const struct ns *ns, uint32_t page)
{
        const struct page *p = ns_page(ns, page);

        if (!p)
                return false;
        if (p->state == PAGE_DETACHED)
                return p->unindexed && p->epoch == (uint32_t)ns->epoch;
        return p->state == PAGE_SEALED && !ns_page_is_stale(ns, p);
}

static int check_parent(struct attach *a, const struct publish_one *o, struct detail *d)
{
        if (o->parent == PAGE_NONE || page_may_be_parent(a->ns, o->parent) ||
                session_may_continue(a, o->session, o->parent))
                return 0;
        return detail_set(d, KVL_STATUS_NO_PARENT, "the parent page isn't cached");
}

/* After a publish the client has a pin on the page with the key. A client that shares memory counts
 * pins in its own segment: it has pinned the page that it submits, and the daemon adds the pin of
 * another one. For other clients the daemon counts it. */
static void pin_carrier(
        struct attach *a, const struct publish_one *o, bool is_submitted, uint32_t page)
{
        if (!is_submitted)
                pin_add(a, page);
        else if (page != o->page)
                pins_add(&a->share, page);
}

/* Publishes a key that isn't cached. */
static void publish_first(
        struct attach *a, const struct publish_one *o, bool is_submitted, uint64_t hash)
{
        struct ns *ns = a->ns;
        bool is_findable = seal_page(a, o, hash);

        if (!is_submitted)
                pin_add_published(a, o->page);
        else if (is_findable) /* for the policy; the evictor looks at the segments */
                ns->evict->idle(ns->policy, o->page, ns->store->now_nsec);
        enter_page(a, o, o->page);
        if (is_submitted && !is_findable && !ns_page_is_kept(ns, o->page))
                ns_watch(ns, o->page);
}

/* Another client was first: this client shares its page. */
static int publish_duplicate(struct attach *a, const struct publish_one *o, bool is_submitted,
        uint32_t existing, uint32_t *ret_page, struct detail *d)
{
        int r = is_submitted ? 0 : pin_check_page(a, existing, 1, d);
        bool is_taken;

        if (r != 0)
                return r;
        is_taken = take_over(a, o, existing);
        *ret_page = is_taken ? o->page : existing;
        pin_carrier(a, o, is_submitted, *ret_page);
        enter_page(a, o, *ret_page);
        if (is_taken)
                return 0;
        note_duplicate(a, o, existing);
        return KVL_STATUS_DUPLICATE;
}

/* Publishes one page; returns as publish_shared(). is_submitted: by a ring, so that the client has
 * pinned it. Otherwise a pin is reserved. */
static int publish_page(struct attach *a, const struct publish_one *o, bool is_submitted,
        uint32_t *ret_page, struct detail *d)
{
        uint64_t hash = shared_hash(&a->ns->shared, o->key);
        uint32_t existing;
        int r;

        *ret_page = o->page;
        if (was_published(a, o)) {
                r = publish_again(a, o, d);
                if (r == 0 && !pin_has_over_socket(a, o->page))
                        pin_carrier(a, o, is_submitted, o->page);
                return r;
        }
        r = check_publish(a, o, d);
        if (r == 0)
                r = reserve_publish(a, o, d);
        if (r == 0)
                r = check_parent(a, o, d);
        if (r == 0)
                r = check_length(a, o, d);
        if (r != 0)
                return r;
        existing = find_existing(a, o, hash);
        if (existing != PAGE_NONE)
                return publish_duplicate(a, o, is_submitted, existing, ret_page, d);
        publish_first(a, o, is_submitted, hash);
        return 0;
}

int publish_shared(struct attach *a, const struct publish_one *o, uint64_t now_nsec,
        uint32_t *ret_page, struct detail *d)
{
        int r;

        assert(pins_is_open(&a->share));

        store_set_now(a->ns->store, now_nsec);
        if (o->tokens == 0 || o->tokens > a->ns->layout.page_tokens)
                return detail_set(
                        d, -EINVAL, "a page has 1 to %u tokens", a->ns->layout.page_tokens);
        r = attach_check_version(a, d);
        return r == 0 ? publish_page(a, o, true, ret_page, d) : r;
}

/* Counts the pins to reserve: pages that the client published before, and has pinned, get no other
 * pin (publish_page()). */
static uint32_t count_new_pins(struct attach *a, const struct publish *p)
{
        uint32_t n = p->n;

        for (uint32_t i = 0; i < p->n && a->member->repeats; i++) {
                const struct publish_one o = {
                        .page = p->pages[i], .key = p->keys + (size_t)i * KEY_BYTES};

                n -= was_published(a, &o) && pin_has_over_socket(a, o.page);
        }
        return n;
}

/* Notes the token ids of the i-th page, which the caller may turn out not to own. */
static void note_ids(struct attach *a, const struct publish *p, uint32_t i, uint32_t tokens)
{
        uint32_t page_tokens = a->ns->layout.page_tokens;
        size_t first = (size_t)i * page_tokens;

        if (!p->token_ids || grants_check_page(a, p->pages[i], NULL) != 0)
                return;
        feed_note_ids(a->ns, p->pages[i], 0, p->token_ids + first * sizeof(uint32_t), tokens);
        if (i == 0 && p->names)
                feed_note_ids(a->ns, p->pages[i], page_tokens, p->names,
                        SHM_FEED_NAMES_BYTES / sizeof(uint32_t));
}

int publish_pages(struct attach *a, const struct publish *p, uint64_t now_nsec, uint32_t *ret_pages,
        uint32_t *ret_n, struct detail *d)
{
        uint32_t parent = PAGE_NONE, i;
        bool duplicates = false;
        int r;

        store_set_now(a->ns->store, now_nsec);
        *ret_n = 0;
        r = publish_check(a, p, d);
        if (r != 0)
                return r;
        if (p->parent_key) {
                parent = session_find_parent(a, p->session, p->parent_key);
                if (parent == PAGE_NONE)
                        return detail_set(d, KVL_STATUS_NO_PARENT,
                                "the parent page isn't cached in namespace %s (any more)",
                                a->ns->name);
        }
        r = pin_reserve(a, count_new_pins(a, p), d);
        if (r != 0)
                return r;
        for (i = 0; i < p->n; i++) {
                const struct publish_one o = {
                        .page = p->pages[i],
                        .key = p->keys + (size_t)i * KEY_BYTES,
                        .parent = parent,
                        .tokens = i + 1 < p->n ? a->ns->layout.page_tokens : p->last_tokens,
                        .request = p->request,
                        .session = p->session,
                        .tag = p->tag,
                        .window_passed = p->window_passed,
                };

                note_ids(a, p, i, o.tokens);
                r = publish_page(a, &o, false, &ret_pages[i], d);
                if (r != 0 && r != KVL_STATUS_DUPLICATE)
                        break;
                duplicates |= r == KVL_STATUS_DUPLICATE;
                parent = ret_pages[i];
        }
        *ret_n = i;
        if (i < p->n)
                return r;
        return duplicates ? detail_set(d, KVL_STATUS_DUPLICATE, "already published") : 0;
}
