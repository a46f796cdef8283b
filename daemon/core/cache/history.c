#include "daemon/core/cache/history.h"

#include <assert.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/macros.h"
#include "daemon/core/cache/announced.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/state/shared.h"

/* A key is in one of the entries of its bucket: two cache lines. Not tuned. */
#define BUCKET_ENTRIES 4

struct entry {
        uint64_t hash;     /* the key's */
        uint64_t client;   /* its publisher */
        uint32_t gone_sec; /* seconds of the store's clock */
        uint32_t number;   /* of the tenant whose lease caused it; 0: none */
        uint32_t used;     /* 1; 0: the entry is free */
        uint8_t state, cause;
        uint16_t reserved;
};
static_assert(sizeof(struct entry) == 32, "HISTORY_KEYS says how much it takes");

struct history {
        uint32_t reset_sec; /* history_note_all() */
        uint8_t reset_state, reset_cause;
        void *entries; /* owned; struct entry, n_entries; a mapping, which aligns entries to cache
                          lines */
        uint32_t n_entries;
};

static const char *cause_text(enum drop_cause cause)
{
        switch (cause) {
        case CAUSE_NONE:
        case CAUSE_EXPIRED:
                return "";
        case CAUSE_KEY:
                return "key";
        case CAUSE_TAG:
                return "tag";
        case CAUSE_SESSION:
                return "session";
        case CAUSE_NAMESPACE:
                return "namespace";
        case CAUSE_PURGE:
                return "purge";
        case CAUSE_RECALL:
                return "recall";
        case CAUSE_DAMAGED:
                return "damaged";
        case CAUSE_HOST:
                return "another host";
        case CAUSE_MISMATCH:
                return "wrong numbers";
        case CAUSE_INCOMPLETE:
                return "incomplete in its set";
        }
        return "";
}

static struct history *make_history(void)
{
        struct history *h = calloc(1, sizeof(*h));

        if (h && array_reserve(&h->entries, &h->n_entries, HISTORY_KEYS, HISTORY_KEYS,
                         sizeof(struct entry)) < 0)
                free(TAKE(h));
        return h;
}

/* Its memory is touched as it fills. NULL: no memory. */
static struct history *get(struct ns *ns)
{
        if (!ns->catalog.history)
                ns->catalog.history = make_history();
        return ns->catalog.history;
}

static struct entry *bucket_of(const struct history *h, uint64_t hash)
{
        struct entry *entries = h->entries;

        return &entries[hash % (HISTORY_KEYS / BUCKET_ENTRIES) * BUCKET_ENTRIES];
}

static struct entry *find_entry(struct history *h, uint64_t hash)
{
        struct entry *bucket = bucket_of(h, hash);

        for (unsigned i = 0; i < BUCKET_ENTRIES; i++)
                if (bucket[i].used && bucket[i].hash == hash)
                        return &bucket[i];
        return NULL;
}

/* Returns the key's own entry, a free one, or the oldest of the bucket. */
static struct entry *entry_for(struct history *h, uint64_t hash)
{
        struct entry *bucket = bucket_of(h, hash), *best = find_entry(h, hash);

        if (best)
                return best;
        best = bucket;
        for (unsigned i = 1; i < BUCKET_ENTRIES && best->used; i++)
                if (!bucket[i].used || bucket[i].gone_sec < best->gone_sec)
                        best = &bucket[i];
        return best;
}

static void note_entry(struct ns *ns, uint32_t page, struct entry e)
{
        struct history *h = get(ns);

        if (!h)
                return;
        e.hash = store_hash_key(ns->store, ns_page(ns, page)->key);
        e.client = ns_note(ns, page)->client;
        e.used = 1;
        *entry_for(h, e.hash) = e;
}

void history_prefetch(const struct ns *ns, uint64_t hash)
{
        const struct entry *bucket =
                ns->catalog.history ? bucket_of(ns->catalog.history, hash) : NULL;

        if (!bucket)
                return;
        __builtin_prefetch(&bucket[0], 1);
        __builtin_prefetch(&bucket[BUCKET_ENTRIES - 1], 1);
}

static enum history_state state_of(struct drop_reason reason)
{
        if (reason.why == EVICT_PRESSURE)
                return HISTORY_EVICTED;
        return reason.cause == CAUSE_EXPIRED ? HISTORY_EXPIRED : HISTORY_INVALIDATED;
}

void history_note_drop(struct ns *ns, uint32_t page, struct drop_reason reason)
{
        note_entry(ns, page,
                (struct entry){
                        .gone_sec = store_now_sec(ns->store),
                        .number = reason.why == EVICT_PRESSURE && reason.by ? reason.by->number : 0,
                        .state = (uint8_t)state_of(reason),
                        .cause = (uint8_t)reason.cause,
                });
}

void history_note_all(struct ns *ns, enum history_state state, enum drop_cause cause)
{
        struct history *h = get(ns);

        if (!h)
                return;
        h->reset_sec = store_now_sec(ns->store);
        h->reset_state = (uint8_t)state;
        h->reset_cause = (uint8_t)cause;
}

void history_note_stale(struct ns *ns, uint32_t page)
{
        const struct history *h = ns->catalog.history;

        if (h)
                note_entry(ns, page,
                        (struct entry){
                                .gone_sec = h->reset_sec,
                                .state = h->reset_state,
                                .cause = h->reset_cause,
                        });
}

static const struct tenant *tenant_by_number(const struct store *s, uint32_t number)
{
        list_for_each (t, &s->tenants, struct tenant, link)
                if (t->number == number)
                        return t;
        return NULL;
}

static void explain_gone(const struct ns *ns, const struct entry *e, struct explanation *ret)
{
        const struct store *s = ns->store;

        *ret = (struct explanation){
                .state = e->state,
                .page = PAGE_NONE,
                .age_sec = store_now_sec(s) - e->gone_sec,
                .client_id = e->client,
                .by = tenant_by_number(s, e->number),
                .what = cause_text(e->cause),
        };
}

static void explain_pending(const struct ns *ns, uint32_t page, struct explanation *ret)
{
        *ret = (struct explanation){
                .state = HISTORY_PENDING,
                .page = page,
                .client_id = ns_note(ns, page)->client,
                .what = "",
        };
}

static void explain_cached(const struct ns *ns, uint32_t page, struct explanation *ret)
{
        const struct page_note *n = ns_note(ns, page);
        uint32_t now_sec = store_now_sec(ns->store);

        *ret = (struct explanation){
                .state = HISTORY_CACHED,
                .page = page,
                .age_sec = now_sec - ns_page(ns, page)->published_sec,
                .unused_sec = now_sec - n->used_sec,
                .client_id = n->client,
                .what = "",
        };
}

void history_explain(
        struct ns *ns, const uint8_t key[KEY_BYTES], uint64_t now_nsec, struct explanation *ret)
{
        uint64_t hash = shared_hash(&ns->shared, key);
        uint32_t page = shared_find(ns, hash, key), pending = announce_find(ns, hash, key);
        const struct entry *e = ns->catalog.history ? find_entry(ns->catalog.history,
                                                              store_hash_key(ns->store, key))
                                                    : NULL;

        store_set_now(ns->store, now_nsec);
        if (page != PAGE_NONE)
                explain_cached(ns, page, ret);
        else if (pending != PAGE_NONE)
                explain_pending(ns, pending, ret);
        else if (e)
                explain_gone(ns, e, ret);
        else
                *ret = (struct explanation){
                        .state = HISTORY_NEVER_SEEN, .page = PAGE_NONE, .what = ""};
}

void history_free(struct ns *ns)
{
        if (!ns->catalog.history)
                return;
        array_free(
                ns->catalog.history->entries, ns->catalog.history->n_entries, sizeof(struct entry));
        free(TAKE(ns->catalog.history));
}
