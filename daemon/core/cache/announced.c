#include "daemon/core/cache/announced.h"

#include <assert.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fault-point.h"
#include "base/macros.h"
#include "daemon/core/state/listeners.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/memory/tasks.h"
#include "daemon/core/state/shared.h"

/* Pages aren't listed by announcer. Looking at so many takes about as long as a withdrawal. Not
 * tuned. */
#define PAGES_PER_LOOK 16

static void link_page(struct ns *ns, uint32_t page)
{
        struct extent_set *set = ns_set_of(ns, page);
        struct page_extra *extra = ns_make_extra(ns, page);

        if (set->first_announced == 0)
                list_append(&ns->catalog.announced.sets, &set->announced_link);
        extra->announced_prev = 0;
        extra->announced_next = set->first_announced;
        if (extra->announced_next != 0)
                ns_make_extra(ns, extra->announced_next - 1)->announced_prev = page + 1;
        set->first_announced = page + 1;
        ns->catalog.announced.n++;
}

static void unlink_page(struct ns *ns, uint32_t page)
{
        struct extent_set *set = ns_set_of(ns, page);
        struct page_extra *extra = ns_make_extra(ns, page);

        if (extra->announced_prev != 0)
                ns_make_extra(ns, extra->announced_prev - 1)->announced_next =
                        extra->announced_next;
        else
                set->first_announced = extra->announced_next;
        if (extra->announced_next != 0)
                ns_make_extra(ns, extra->announced_next - 1)->announced_prev =
                        extra->announced_prev;
        extra->announced_prev = extra->announced_next = 0;
        if (set->first_announced == 0)
                list_remove(&set->announced_link);
        ns->catalog.announced.n--;
}

void announce_enter(struct ns *ns, uint32_t page, uint64_t client_id)
{
        ns_page(ns, page)->announced = 1;
        ns_make_extra(ns, page)->announcer = client_id;
        link_page(ns, page);
}

uint32_t announce_find(const struct ns *ns, uint64_t hash, const uint8_t key[KEY_BYTES])
{
        return ns->catalog.announced.n == 0 ? PAGE_NONE : shared_find_pending(ns, hash, key);
}

/* The state that clients see has changed: lets them look again. */
static void end_announcement(struct ns *ns, uint32_t page)
{
        struct page *p = ns_page(ns, page);
        struct store *s = ns->store;

        unlink_page(ns, page);
        FAULT_POINT("announce-before-wake");
        wake_waiters(ns, page);
        p->announced = 0; /* last, because recovery wakes threads at announced pages */
        FAULT_POINT("announce-after-wake");
        if (s->owner.on_announce_end)
                s->owner.on_announce_end(ns, p->key, s->owner.data);
}

/* Makes the page a plain GRANTED one; it has no slot any more. */
static void end_of_granted_page(struct ns *ns, uint32_t page)
{
        shared_hide_pending(ns, page);
        end_announcement(ns, page);
        ns_make_extra(ns, page)->announcer = 0;
        if (ns_note(ns, page)->seq == PAGE_SEQ_IMPORT)
                tenant_tell(ns->tenant, ns_is_disturbed, ns);
}

void announce_withdraw(struct ns *ns, uint32_t page)
{
        if (!ns_page(ns, page)->announced)
                return;
        /* A client that can write the segment may have removed the slot. */
        (void)shared_remove(ns, page);
        end_of_granted_page(ns, page);
}

bool announce_fulfil(struct ns *ns, uint64_t hash, uint32_t page)
{
        const struct page *p = ns_page(ns, page);
        uint32_t pending;

        assert(p->state == PAGE_SEALED);

        if (p->announced) {
                bool has_slot = shared_has(ns, page);

                end_announcement(ns, page);
                return has_slot;
        }
        pending = announce_find(ns, hash, p->key);
        if (pending == PAGE_NONE)
                return false;
        (void)shared_replace(ns, pending, page); /* pending was found by its slot */
        end_of_granted_page(ns, pending);
        return true;
}

static bool is_announced_by(const struct attach *a, uint32_t page)
{
        return ns_page(a->ns, page)->announced && ns_extra(a->ns, page)->announcer == a->member->id;
}

static bool is_stale(const struct ns *ns, uint32_t page)
{
        const struct page *p = ns_page(ns, page);

        return p->announced && p->epoch != (uint32_t)ns->epoch;
}

/* Withdraws the set's announcements of one attachment's member, or (NULL) all. The page after the
 * withdrawn one stays listed, so the walk continues there. */
static uint64_t withdraw_those(struct extent_set *set, const struct attach *of)
{
        uint32_t next = set->first_announced;
        uint64_t n = 0;

        for (; next != 0; n++) {
                uint32_t page = next - 1;

                next = ns_extra(set->ns, page)->announced_next;
                if (!of || is_announced_by(of, page))
                        announce_withdraw(set->ns, page);
        }
        return n;
}

/* From *at on, withdraws announcements of one attachment's member, or (NULL) of an older epoch.
 * Skips a set without announcements. Returns the number of looks. */
static uint64_t withdraw_at(struct ns *ns, const struct attach *of, uint32_t *at)
{
        uint32_t n = ns->geometry.set_pages, end = (*at / n + 1) * n;
        const struct extent_set *set = ns->sets.at[*at / n];
        uint64_t n_looks = 1;

        if (!set || set->first_announced == 0) {
                *at = end;
                return n_looks;
        }
        end = MIN(end, *at + PAGES_PER_LOOK);
        for (; *at < end; ++*at) {
                if (!(of ? is_announced_by(of, *at) : is_stale(ns, *at)))
                        continue;
                announce_withdraw(ns, *at);
                n_looks++;
        }
        return n_looks;
}

static uint64_t withdraw_some(struct ns *ns, const struct attach *of, uint32_t *at, uint64_t budget)
{
        uint32_t n_pages = tier_n_pages(&ns->geometry, TIER_DEVICE);
        uint64_t n = 0;

        while (n < budget && *at != PAGE_NONE) {
                n += withdraw_at(ns, of, at);
                if (*at >= n_pages || ns->catalog.announced.n == 0)
                        *at = PAGE_NONE;
        }
        return n;
}

uint64_t announce_withdraw_some(struct attach *a, uint64_t budget)
{
        return withdraw_some(a->ns, a, &a->withdraw_at, budget);
}

static bool withdraw_of_attachment(struct task *c, uint64_t budget)
{
        struct attach *a = container_of(c, struct attach, withdrawal);

        (void)announce_withdraw_some(a, budget);
        return a->withdraw_at != PAGE_NONE;
}

uint64_t announce_withdraw_all(struct attach *a)
{
        struct ns *ns = a->ns;
        uint64_t n = 0;

        if (!a->has_announced)
                return 0;
        a->has_announced = false;
        if (ns->catalog.announced.n <= ns->store->drop_slice_pages) {
                list_for_each_safe (
                        set, &ns->catalog.announced.sets, struct extent_set, announced_link)
                        n += withdraw_those(set, a);
                return n;
        }
        a->withdraw_at = 0;
        n = announce_withdraw_some(a, ns->store->drop_slice_pages);
        if (a->withdraw_at == PAGE_NONE || task_is_queued(&a->withdrawal))
                return n;
        a->withdrawal.work = withdraw_of_attachment;
        task_queue(&a->withdrawal, ns->tenant);
        return n;
}

static bool withdraw_of_namespace(struct task *c, uint64_t budget)
{
        struct ns *ns = container_of(c, struct ns, catalog.announced.withdrawal);

        (void)withdraw_some(ns, NULL, &ns->catalog.announced.withdraw_at, budget);
        return ns->catalog.announced.withdraw_at != PAGE_NONE;
}

void announce_withdraw_ns(struct ns *ns)
{
        if (ns->catalog.announced.n <= ns->store->drop_slice_pages) {
                list_for_each_safe (
                        set, &ns->catalog.announced.sets, struct extent_set, announced_link)
                        (void)withdraw_those(set, NULL);
                return;
        }
        ns->catalog.announced.withdraw_at = 0;
        ns->catalog.announced.withdrawal.work = withdraw_of_namespace;
        if (!task_is_queued(&ns->catalog.announced.withdrawal) &&
                withdraw_of_namespace(
                        &ns->catalog.announced.withdrawal, ns->store->drop_slice_pages))
                task_queue(&ns->catalog.announced.withdrawal, ns->tenant);
}

uint64_t announce_withdraw_set(struct extent_set *set)
{
        return withdraw_those(set, NULL);
}

/* Will the page, from `at` on, be withdrawn later? */
static bool is_withdrawn_soon(uint32_t at, uint32_t page)
{
        return at != PAGE_NONE && page >= at;
}

const char *announce_check_page(const struct ns *ns, uint32_t page)
{
        const struct page *p = ns_page(ns, page);
        uint64_t hash = shared_hash(&ns->shared, p->key);

        if (is_stale(ns, page))
                return task_is_queued(&ns->catalog.announced.withdrawal) &&
                                       is_withdrawn_soon(ns->catalog.announced.withdraw_at, page)
                               ? NULL
                               : "is announced, of an older epoch";
        if (shared_find_pending(ns, hash, p->key) != page)
                return "is announced but has no slot, or another page has its key";
        if (shared_find(ns, hash, p->key) != PAGE_NONE)
                return "is announced but its key is cached";
        if (ns_set_of(ns, page)->recall.state != RECALL_NONE)
                return "is announced, in a recalled set";
        list_for_each (a, &ns->clients.attachments, struct attach, ns_link)
                if (is_announced_by(a, page))
                        return is_withdrawn_soon(a->withdraw_at, page) ||
                                               (!a->member->is_over && !a->member->read_only &&
                                                       a->grants->group->id == p->owner)
                                       ? NULL
                                       : "is announced by a client that can't publish it";
        list_for_each (a, &ns->clients.closing, struct attach, ns_link)
                if (is_announced_by(a, page) && is_withdrawn_soon(a->withdraw_at, page))
                        return NULL;
        return "is announced by no client";
}

/* Counts the set's list into *n; stops above the namespace's number in case the list is cyclic. */
static const char *check_set(const struct extent_set *set, uint32_t *n)
{
        const struct ns *ns = set->ns;
        uint32_t page_1 = set->first_announced, before = 0;

        for (; page_1 != 0 && *n <= ns->catalog.announced.n; (*n)++) {
                const struct page *p = ns_page(ns, page_1 - 1);

                if (!p || !p->announced || ns_set_of(ns, page_1 - 1) != set)
                        return "lists an announced page that isn't";
                if (ns_extra(ns, page_1 - 1)->announced_prev != before)
                        return "lists announced pages whose neighbours disagree";
                before = page_1;
                page_1 = ns_extra(ns, page_1 - 1)->announced_next;
        }
        return NULL;
}

const char *announce_check(const struct ns *ns)
{
        uint32_t n = 0;

        list_for_each (set, &ns->catalog.announced.sets, struct extent_set, announced_link) {
                const char *wrong = check_set(set, &n);

                if (wrong)
                        return wrong;
                if (set->first_announced == 0)
                        return "lists a set without announced pages";
        }
        return n == ns->catalog.announced.n ? NULL : "counts its announced pages wrong";
}

#define WORD_BITS 64u

/* Words of the bitmap that take as long to check as a wake-up. Not tuned. */
#define WORDS_PER_WAKE 4096u

/* Wakes at most `most` threads and returns their number. Not a private futex: the threads are in
 * other processes. The kernel compares the word with the value that a thread has seen before the
 * thread sleeps. The change comes first, so a thread sleeps only if it is woken here. (On a
 * big-endian machine the lower half would be 4 bytes on; none runs this.) */
static uint32_t wake_at(struct ns *ns, uint32_t page, uint32_t most)
{
        long n = syscall(
                SYS_futex, &ns->shared.lines[page].state, FUTEX_WAKE, (int)most, NULL, NULL, 0);

        return n > 0 ? (uint32_t)n : 0;
}

static uint32_t n_words(const struct ns *ns)
{
        return (ns->shared.capacity_pages + WORD_BITS - 1) / WORD_BITS;
}

static bool mark_page(struct ns *ns, uint32_t page)
{
        struct ns_wakes *w = &ns->catalog.announced.wakes;
        uint64_t bit = UINT64_C(1) << (page % WORD_BITS);

        if (!w->pages)
                w->pages = calloc(n_words(ns), sizeof(*w->pages));
        if (!w->pages)
                return false;
        w->n += (w->pages[page / WORD_BITS] & bit) == 0;
        w->pages[page / WORD_BITS] |= bit;
        return true;
}

static void unmark_page(struct ns_wakes *w, uint32_t page)
{
        w->pages[page / WORD_BITS] &= ~(UINT64_C(1) << (page % WORD_BITS));
        w->n--;
}

/* If not all threads of a page were woken, its next turn is after the other pages. */
static bool wake_marked(struct task *c, uint64_t budget)
{
        struct ns *ns = container_of(c, struct ns, catalog.announced.wakes.task);
        struct ns_wakes *w = &ns->catalog.announced.wakes;
        uint32_t left = (uint32_t)MIN(budget, WAKE_SLICE), n_looks = 0;

        while (w->n > 0 && left > 0) {
                uint64_t bits = w->pages[w->at / WORD_BITS] >> (w->at % WORD_BITS);
                uint32_t page, n;

                if (bits == 0) {
                        w->at = (w->at / WORD_BITS + 1) % n_words(ns) * WORD_BITS;
                        left -= ++n_looks % WORDS_PER_WAKE == 0;
                        continue;
                }
                page = w->at + (uint32_t)__builtin_ctzll(bits);
                w->at = (page + 1) % (n_words(ns) * WORD_BITS);
                n = wake_at(ns, page, left);
                if (n < left)
                        unmark_page(w, page);
                left -= MIN(left, n + 1);
        }
        w->n_lately = 0;
        return w->n > 0;
}

void wake_waiters(struct ns *ns, uint32_t page)
{
        struct ns_wakes *w = &ns->catalog.announced.wakes;
        uint32_t left = WAKE_SLICE - w->n_lately, n;

        if (left > 0 && !task_is_queued(&w->task)) {
                n = wake_at(ns, page, left);
                w->n_lately += MIN(left, n + 1);
                if (n < left)
                        return;
        }
        if (!mark_page(ns, page))
                (void)wake_at(ns, page, INT_MAX);
        else if (!task_is_queued(&w->task))
                task_queue(&w->task, ns->tenant);
}

void wake_init(struct ns *ns)
{
        task_init(&ns->catalog.announced.wakes.task);
        ns->catalog.announced.wakes.task.work = wake_marked;
}

void wake_deinit(struct ns *ns)
{
        task_remove(&ns->catalog.announced.wakes.task, ns->tenant);
        free(ns->catalog.announced.wakes.pages);
        ns->catalog.announced.wakes = (struct ns_wakes){0};
        wake_init(ns);
}
