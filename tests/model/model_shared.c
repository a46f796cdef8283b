/* The test as a client that shares memory: the steps that proto/shm.h demands of it. */
#include <errno.h>
#include <string.h>

#include "daemon/core/clients/attach.h"
#include "daemon/core/state/detail.h"
#include "proto/status.h"
#include "tests/model/model.h"

static struct pins *pins_of_client(const struct shared_case *s)
{
        return &s->a->real->share;
}

void shared_open(struct model_attach *a)
{
        struct detail d;

        CHECK(attach_share(a->real, &d) == 0, "%s", d.text);
        CHECK(attach_share(a->real, &d) == -EEXIST, "shared twice");
        a->shared = true;
}

static struct submit_result submit(const struct shared_case *s, struct shm_submission submission)
{
        struct submit_result result;

        submission.ns_id = s->a->real->id;
        submission.request_id = step;
        submit_one(s->m->real, &s->m->real_chain, &submission, now_nsec, &result);
        CHECK(!result.violation, "%s", result.violation);
        if (submission.op != SHM_OP_PUBLISH)
                s->m->chain = (struct model_chain){0};
        return result;
}

/* ---- look up, release ------------------------------------------------------------------------ */

static bool is_it(const struct shared_case *s, uint32_t page, const uint8_t key[KEY_BYTES])
{
        const struct shared *sh = &s->a->real->ns->shared;
        const struct shm_line *line = &sh->lines[page];
        uint64_t word = atomic_load_explicit(&line->state, memory_order_acquire);

        return (word & 0xff) == PAGE_SEALED && memcmp(line->key, key, KEY_BYTES) == 0 &&
               line->epoch == sh->header->epoch;
}

/* Finds and pins the page with the key; PAGE_NONE: none. */
static uint32_t find_and_pin(const struct shared_case *s, int key)
{
        const struct shared *sh = &s->a->real->ns->shared;
        _Atomic uint32_t *counters = pins_of_client(s)->counters;
        uint8_t bytes[KEY_BYTES];
        uint64_t hash;

        key_bytes(key, bytes);
        hash = hash_digest((struct hash_seed){sh->header->seed[0], sh->header->seed[1]}, bytes);
        for (uint32_t n = 0; n < 2 * SHM_BUCKET_SLOTS; n++) {
                uint32_t bucket =
                        shm_bucket_index(hash, sh->header->n_buckets, n / SHM_BUCKET_SLOTS);
                uint64_t slot = sh->buckets[bucket].slots[n % SHM_BUCKET_SLOTS];
                uint32_t page = (uint32_t)slot - 1;

                if (slot == 0 || slot != shm_slot(hash, page))
                        continue;
                counters[page]++;
                shm_fence_after_rmw();
                if (is_it(s, page, bytes))
                        return page;
                counters[page]--;
        }
        return PAGE_NONE;
}

void shared_lookup(const struct shared_case *s)
{
        const struct shared *sh = &s->a->real->ns->shared;
        uint32_t page = PAGE_NONE, len, n = 0;
        int path[N_KEYS];

        CHECK(is_old(s->a, s->ns) == (sh->header->version_epoch != s->a->real->version_epoch),
                "version %llu is shown", (unsigned long long)sh->header->version_epoch);
        if (is_old(s->a, s->ns))
                return;
        len = path_to((int)rnd(N_KEYS), path);
        for (; n < len; n++) {
                uint32_t found = find_and_pin(s, path[n]);

                CHECK(found == (uint32_t)s->ns->where[path[n]], "key %d: page %u", path[n], found);
                if (found == PAGE_NONE)
                        break;
                CHECK(sh->lines[found].tokens == s->ns->tokens[path[n]], "page %u", found);
                page = found;
                s->a->counts[found]++;
        }
        if (rnd(2))
                submit(s, (struct shm_submission){.op = SHM_OP_TOUCH,
                                  .page = page,
                                  .aux = n ? (uint32_t)(sh->lines[page].state >> 8) : 0,
                                  .touch = {.n_keys = len, .n_hits = n}});
}

/* Releases a few or all of the pages pinned in the segment, without a message. */
void shared_release(const struct shared_case *s)
{
        uint32_t most = rnd(3) == 0 ? 4 : UINT32_MAX, start = rnd(s->ns->n_pages);

        for (uint32_t i = 0; i < s->ns->n_pages && most > 0; i++) {
                uint32_t page = (start + i) % s->ns->n_pages;

                for (; s->a->counts[page] > 0 && most > 0; most--) {
                        atomic_fetch_sub_explicit(
                                &pins_of_client(s)->counters[page], 1, memory_order_release);
                        s->a->counts[page]--;
                }
        }
}

/* Sends a TOUCH of a key that was found or not, now or earlier. */
void shared_touch(const struct shared_case *s)
{
        submit(s, (struct shm_submission){.op = SHM_OP_TOUCH,
                          .page = rnd(s->ns->n_pages + 2),
                          .aux = rnd(4),
                          .touch = {.n_keys = 3, .n_hits = rnd(4)}});
}

void shared_request_end(const struct shared_case *s)
{
        CHECK(!submit(s, (struct shm_submission){.op = SHM_OP_REQUEST_END}).completes, "completes");
}

/* ---- publish, free --------------------------------------------------------------------------- */

/* Status that the daemon must return for an entry with a parent; 0: the parent is there. */
static int parent_status(const struct shared_case *s)
{
        const struct model_chain *chain = &s->m->chain;

        if (chain->attach_id != s->a->real->id)
                return KVL_STATUS_NO_PARENT;
        return chain->status;
}

/* The parent was cached once and isn't any more. */
static bool parent_went(const struct shared_case *s)
{
        const struct model_chain *chain = &s->m->chain;
        int page = s->ns->where[chain->key];

        return page == NONE || s->ns->pages[page].serial != chain->serial;
}

static int expect_entry(const struct shared_case *s, const struct shm_submission *entry, int key,
        uint32_t *ret_page, bool *ret_went)
{
        bool is_chained = entry->flags == SHM_PUBLISH_CHAIN;
        int r = is_chained ? parent_status(s) : 0;

        *ret_went = is_chained && r == 0 && parent_went(s);
        if (r != 0 || *ret_went)
                return r;
        if (is_old(s->a, s->ns))
                return KVL_STATUS_STALE;
        return model_publish_one(s->m, s->ns, s->a->counts, entry->page, key,
                is_chained ? s->m->chain.key : NONE, entry->tokens, ret_page);
}

static void remember(const struct shared_case *s, int status, int key)
{
        s->m->chain = (struct model_chain){
                .attach_id = s->a->real->id,
                .status = status,
                .key = key,
                .serial = status == 0 ? s->ns->pages[s->ns->where[key]].serial : 0,
        };
}

/* One PUBLISH: pins the page before, and drops that pin if it isn't needed. */
static int publish_entry(const struct shared_case *s, struct shm_submission entry, int key)
{
        _Atomic uint32_t *counter =
                entry.page < s->ns->n_pages ? &pins_of_client(s)->counters[entry.page] : NULL;
        uint32_t expected_page = entry.page;
        struct submit_result result;
        bool went;
        int r = expect_entry(s, &entry, key, &expected_page, &went);

        key_bytes(key, entry.key);
        if (counter)
                (*counter)++;
        result = submit(s, entry);
        CHECK(result.completes && result.page == expected_page, "page %u, expected %u", result.page,
                expected_page);
        if (went) {
                /* The state of the parent's page decides which of its faults is reported first. */
                r = status_from_wire(result.status);
                CHECK(r == KVL_STATUS_NO_PARENT || r == KVL_STATUS_STALE || r == -EINVAL,
                        "%d, its parent isn't cached", r);
        }
        CHECK(result.status == status_to_wire(r), "%u, expected %d", result.status, r);
        if (counter && r != 0)
                (*counter)--;
        remember(s, r == KVL_STATUS_DUPLICATE ? 0 : r, key);
        return r;
}

/*
 * Does this batch continue the client's last one, maybe long ago? More often if that page is gone.
 */
static bool goes_on(const struct shared_case *s)
{
        bool has_ended_well = parent_status(s) == 0;

        return rnd(has_ended_well && parent_went(s) ? 2 : 10) == 0;
}

/* Submits a batch through the ring. */
void shared_publish(const struct shared_case *s)
{
        struct publish_case c = make_publish(s->m, s->ns);
        bool is_chained = goes_on(s), is_lost = false;
        uint8_t flags = SHM_PUBLISH_CHAIN;

        if (!is_chained && c.parent == NONE) {
                flags = SHM_PUBLISH_ROOT;
        } else if (!is_chained) {
                struct shm_submission parent = {.op = SHM_OP_PARENT};

                key_bytes(c.parent, parent.key);
                CHECK(!submit(s, parent).completes, "completes");
                remember(s, s->ns->where[c.parent] == NONE ? KVL_STATUS_NO_PARENT : 0, c.parent);
        }
        for (uint32_t i = 0; i < c.n; i++, flags = SHM_PUBLISH_CHAIN) {
                struct shm_submission entry = {.op = SHM_OP_PUBLISH,
                        .flags = flags,
                        .tokens = (uint16_t)(i + 1 < c.n ? 16 : c.last_tokens),
                        .page = c.pages[i]};

                if (publish_entry(s, entry, c.keys[i]) == 0) {
                        is_lost |= learn_unindexed(s->ns, c.keys[i]);
                        CHECK(is_lost || !s->ns->recalled[c.pages[i] / s->ns->set_pages],
                                "page %u of a recalled set is cached", c.pages[i]);
                }
                if (is_lost)
                        break;
        }
        if (is_lost)
                shared_request_end(s); /* the model doesn't follow chains below such pages */
}

void shared_free(const struct shared_case *s)
{
        struct shm_submission entry = {
                .op = SHM_OP_FREE, .tokens = (uint16_t)(1 + rnd(SHM_FREE_PAGES))};
        struct submit_result result;
        bool ok;

        if (rnd(3))
                entry.tokens = (uint16_t)(1 + entry.tokens % 3);
        pick_some_granted(s->ns, s->m->group, entry.tokens, entry.pages);
        ok = model_free(s->m, s->ns, entry.pages, entry.tokens);
        result = submit(s, entry);
        CHECK(result.completes && result.status == status_to_wire(ok ? 0 : -EINVAL), "%u",
                result.status);
}

/* ---- magazines ------------------------------------------------------------------------------- */

bool is_in_magazine(const struct model_page *p, uint32_t page)
{
        return p->holder->real->share.magazine[p->slot] == page + 1;
}

static void learn_filled(const struct shared_case *s)
{
        const struct pins *pins = pins_of_client(s);

        for (uint32_t slot = 0; slot < SHM_MAGAZINE_SLOTS; slot++) {
                uint32_t page = pins->magazine[slot] - 1;
                struct model_page *p;

                if (page == PAGE_NONE)
                        continue;
                CHECK(page < s->ns->n_pages && !is_null(s->ns, page), "page %u", page);
                p = &s->ns->pages[page];
                if (p->state == M_READY && p->holder == s->a && p->slot == slot)
                        continue;
                CHECK(!store.draining && !is_old(s->a, s->ns), "page %u was put", page);
                CHECK(p->state == M_FREE && !is_withheld(s->ns, page),
                        "page %u was put and isn't free", page);
                *p = (struct model_page){.state = M_READY,
                        .group = s->m->group,
                        .grant_epoch = s->ns->epoch,
                        .holder = s->a,
                        .slot = slot};
        }
}

void shared_refill(const struct shared_case *s)
{
        struct shm_pins *header = pins_of_client(s)->header;
        uint64_t before = usage_of(s->ns->tenant);

        header->refill_asked = 1;
        device.fail_in = rnd(40) == 0 ? 1 + rnd(4) : 0;
        CHECK(!submit(s, (struct shm_submission){.op = SHM_OP_REFILL, .aux = rnd(12)}).completes,
                "completes");
        device.fail_in = 0;
        CHECK(header->refill_asked == 0, "still asked for");
        learn_soft(s->ns->tenant);
        learn(s->ns, MAY_EVICT);
        learn_filled(s);
        CHECK(usage() <= BUDGET_BYTES, "over the budget");
        CHECK(usage_of(s->ns->tenant) <= MAX(limits[s->ns->tenant], before), "over the limit");
}

void shared_claim(const struct shared_case *s)
{
        struct pins *pins = pins_of_client(s);
        uint32_t n = 1 + rnd(6), start = rnd(SHM_MAGAZINE_SLOTS);

        if (rnd(2))
                shared_refill(s);
        for (uint32_t i = 0; i < SHM_MAGAZINE_SLOTS && n > 0; i++) {
                uint32_t slot = (start + i) % SHM_MAGAZINE_SLOTS, page;
                struct model_page *p;

                if (pins->magazine[slot] == 0)
                        continue;
                page = atomic_exchange(&pins->magazine[slot], 0) - 1;
                p = &s->ns->pages[page];
                CHECK(page < s->ns->n_pages && p->state == M_READY && p->holder == s->a &&
                                p->slot == slot,
                        "page %u was claimed", page);
                p->state = M_GRANTED;
                pins->header->n_taken++;
                n_claimed++;
                n--;
        }
}
