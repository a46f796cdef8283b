#include "policy/expect.h"

#include <assert.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/macros.h"

/* Pages beyond the share that one call gives up: some 10 us. Not tuned. */
#define TRIM_AT_ONCE 64

/* Bound of one expectation: far more than any engine queues. */
#define MAX_REQUESTS (UINT32_C(1) << 24)

/* A text that has more pages takes longer than a lease does to end, some 0.1 us a page. Not tuned.
 */
#define LONG_TEXT_PAGES     1024
#define PAUSE_PER_PAGE_NSEC UINT64_C(1000)

struct expect *expect_new(const struct evict_ops *ops, void *policy, const struct tree *tree,
        const struct ancestors *ancestors, uint32_t n_nodes, struct expect_counters *counters)
{
        struct expect *e = calloc(1, sizeof(*e));
        void *marks = NULL;

        assert(ops->lock && n_nodes < NODE_NONE);

        if (!e)
                return NULL;
        if (array_reserve(&marks, &e->n_marks, n_nodes, NODE_NONE - 1, sizeof(*e->marks)) < 0) {
                free(e);
                return NULL;
        }
        e->marks = marks;
        e->ops = ops;
        e->policy = policy;
        e->tree = tree;
        e->ancestors = ancestors;
        e->counters = counters;
        e->next_expiry_nsec = UINT64_MAX;
        for (uint32_t i = 0; i < EXPECT_MOST; i++)
                queue_add_newest(&e->unused, e->links, i);
        return e;
}

void expect_free(struct expect *e)
{
        if (!e)
                return;
        array_free(e->marks, e->n_marks, sizeof(*e->marks));
        free(e);
}

/* ---- marks ----------------------------------------------------------------------------------- */

static bool is_marked(const struct expect *e, uint32_t node)
{
        return e->marks[node].n_paths > 0;
}

/* Pages from `node` up that have no mark yet; more than EVICT_WALK_PAGES: too many. */
static uint32_t count_unmarked(const struct expect *e, uint32_t node)
{
        uint32_t n = 0;

        for (; node != NODE_NONE && !is_marked(e, node) && n <= EVICT_WALK_PAGES; n++)
                node = tree_parent(e->tree, node);
        return n;
}

static void mark_path(struct expect *e, uint32_t node)
{
        for (; node != NODE_NONE; node = tree_parent(e->tree, node)) {
                if (e->marks[node].n_paths++ > 0)
                        return;
                e->n_pages[tree_tier(e->tree, node)]++;
        }
}

/* Returns how many pages have no mark any more. */
static uint32_t unmark_path(struct expect *e, uint32_t node)
{
        uint32_t n = 0;

        for (; node != NODE_NONE; node = tree_parent(e->tree, node), n++) {
                if (--e->marks[node].n_paths > 0)
                        return n;
                e->n_pages[tree_tier(e->tree, node)]--;
        }
        return n;
}

/* ---- entries --------------------------------------------------------------------------------- */

static void stand_at(struct expect *e, uint32_t i, uint32_t node)
{
        e->entries[i].node = node;
        e->entries[i].has_yielded = false;
        e->marks[node].entry_1 = (uint16_t)(i + 1);
        e->ops->lock(e->policy, node);
}

/* The page is expected for its own sake no more. Its mark stays. */
static void leave_node(struct expect *e, uint32_t i)
{
        struct expect_entry *entry = &e->entries[i];

        e->marks[entry->node].entry_1 = 0;
        if (!entry->has_yielded)
                e->ops->unlock(e->policy, entry->node);
}

static void free_entry(struct expect *e, uint32_t i)
{
        e->n_waiting -= e->entries[i].n_requests;
        queue_unlink(&e->order, e->links, i);
        e->entries[i] = (struct expect_entry){0};
        queue_add_newest(&e->unused, e->links, i);
}

/* Returns how many pages aren't kept any more. */
static uint32_t end_entry(struct expect *e, uint32_t i, uint64_t *counter)
{
        uint32_t n;

        *counter += e->entries[i].n_requests;
        leave_node(e, i);
        n = unmark_path(e, e->entries[i].node);
        free_entry(e, i);
        return n;
}

/* The requests of `from`, which ends, are expected to continue the text of entry i. */
static void join_entry(struct expect *e, uint32_t i, const struct expect_entry *from)
{
        struct expect_entry *entry = &e->entries[i];
        uint32_t n = MIN(from->n_requests, MAX_REQUESTS - entry->n_requests);

        entry->n_requests += n;
        e->n_waiting += n;
        e->counters->dropped += from->n_requests - n;
        entry->until_nsec = MAX(entry->until_nsec, from->until_nsec);
}

/* Gives up the deepest page: the text is expected up to the one before it from now on. */
static void give_up_page(struct expect *e, uint32_t i)
{
        struct expect_entry *entry = &e->entries[i];
        uint32_t node = entry->node, parent = tree_parent(e->tree, node);

        leave_node(e, i);
        if (--e->marks[node].n_paths > 0) { /* its continuation is expected, too: it stays */
                e->counters->dropped += entry->n_requests;
                free_entry(e, i);
                return;
        }
        e->n_pages[tree_tier(e->tree, node)]--;
        if (parent == NODE_NONE) {
                e->counters->dropped += entry->n_requests;
                free_entry(e, i);
        } else if (e->marks[parent].entry_1 > 0) {
                e->marks[parent].n_paths--;
                join_entry(e, e->marks[parent].entry_1 - 1U, entry);
                free_entry(e, i);
        } else {
                entry->depth--;
                stand_at(e, i, parent);
        }
}

/* The oldest expectation if it is overdue (enough later requests were fulfilled); EXPECT_MOST: it
 * isn't. */
static uint32_t find_overdue(const struct expect *e)
{
        uint32_t i = queue_oldest(&e->order);

        return i != NODE_NONE && e->n_fulfilled >= e->entries[i].overdue_at ? i : EXPECT_MOST;
}

/* The next expectation to give up a page. There must be one. */
static uint32_t find_next(const struct expect *e)
{
        uint32_t overdue = find_overdue(e);

        return overdue < EXPECT_MOST ? overdue : queue_newest(&e->order);
}

/* The tier that has more pages of expected texts than its share; TREE_TIERS: none. */
static uint32_t find_overfull(const struct expect *e)
{
        uint32_t tier = 0;

        while (tier < TREE_TIERS && e->n_pages[tier] <= e->most[tier])
                tier++;
        return tier;
}

/* Gives up the deepest pages of texts first, in any tier: earlier ones can't be evicted before
 * them. */
static uint32_t trim(struct expect *e, uint32_t most)
{
        uint32_t n = 0;

        for (; n < most && e->order.n > 0 && find_overfull(e) < TREE_TIERS; n++)
                give_up_page(e, find_next(e));
        return n;
}

/* ---- expectations ---------------------------------------------------------------------------- */

/* Its first request is served as soon as before. */
static void expect_again(struct expect *e, uint32_t i, uint64_t until_nsec)
{
        struct expect_entry *entry = &e->entries[i];

        if (entry->n_requests < MAX_REQUESTS) {
                entry->n_requests++;
                e->n_waiting++;
        } else {
                e->counters->dropped++;
        }
        entry->until_nsec = MAX(entry->until_nsec, until_nsec);
        if (entry->has_yielded)
                stand_at(e, i, entry->node);
}

static void expect_first(struct expect *e, uint32_t node, uint32_t depth, uint64_t until_nsec)
{
        uint32_t i = queue_oldest(&e->unused);

        queue_unlink(&e->unused, e->links, i);
        queue_add_newest(&e->order, e->links, i);
        e->entries[i] = (struct expect_entry){
                .until_nsec = until_nsec,
                .overdue_at = e->n_fulfilled + ++e->n_waiting,
                .depth = depth,
                .n_requests = 1,
        };
        mark_path(e, node);
        stand_at(e, i, node);
}

uint32_t expect_add(struct expect *e, uint32_t node, uint32_t depth, uint64_t until_nsec,
        const uint64_t n_pages[TREE_TIERS], uint64_t now_nsec)
{
        uint32_t n_walked;

        assert(tree_has(e->tree, node));

        e->counters->received++;
        expect_prune(e, now_nsec);
        for (uint32_t t = 0; t < TREE_TIERS; t++)
                e->most[t] = (uint32_t)MIN(n_pages[t] / EXPECT_SHARE, (uint64_t)UINT32_MAX);
        n_walked = count_unmarked(e, node);
        if (e->unused.n == 0 && e->marks[node].entry_1 == 0 && find_overdue(e) < EXPECT_MOST)
                n_walked += end_entry(e, find_overdue(e), &e->counters->dropped);
        if (n_walked > EVICT_WALK_PAGES || (e->unused.n == 0 && e->marks[node].entry_1 == 0)) {
                e->counters->dropped++;
                return n_walked;
        }
        if (e->marks[node].entry_1 > 0)
                expect_again(e, e->marks[node].entry_1 - 1, until_nsec);
        else
                expect_first(e, node, depth, until_nsec);
        e->next_expiry_nsec = MIN(e->next_expiry_nsec, until_nsec);
        return n_walked + trim(e, EVICT_WALK_PAGES);
}

/* ---- events ---------------------------------------------------------------------------------- */

/* The deepest expectation on the way up; EXPECT_MOST: none. Adds the visited pages to *n. */
static uint32_t walk_above(const struct expect *e, uint32_t node, uint32_t *n)
{
        for (uint32_t i = 0; node != NODE_NONE && i < EVICT_WALK_PAGES; i++, ++*n) {
                if (e->marks[node].entry_1 > 0)
                        return e->marks[node].entry_1 - 1;
                node = tree_parent(e->tree, node);
        }
        return EXPECT_MOST;
}

static bool is_in_expected_text(const void *data, uint32_t node)
{
        return is_marked(data, node);
}

/* Bound of one search in the ancestors of a node of this depth. */
static uint32_t search_cost(uint32_t depth)
{
        return MIN(depth, 2 * ANCESTORS_STEP + depth / ANCESTORS_STEP);
}

/* Expectations of texts that begin other expected ones and have fewer pages than this. Returns how
 * many; EXPECT_PREFIXES + 1: there are more than EXPECT_PREFIXES. */
static uint32_t find_prefixes(const struct expect *e, uint32_t depth, uint32_t ret[EXPECT_PREFIXES])
{
        uint32_t n = 0;

        for (uint32_t i = queue_oldest(&e->order); i != NODE_NONE; i = queue_newer(e->links, i)) {
                const struct expect_entry *entry = &e->entries[i];

                if (entry->depth >= depth || e->marks[entry->node].n_paths == 1)
                        continue;
                if (n == EXPECT_PREFIXES)
                        return EXPECT_PREFIXES + 1;
                ret[n++] = i;
        }
        return n;
}

/*
 * walk_above() without a walk. The deepest marked page on the way up is found in the ancestors. If
 * no expectation ends there, that page is in the middle of an expected text. So the expectations
 * that may end above it begin another one, and are few.
 */
static uint32_t find_above(const struct expect *e, uint32_t node, uint32_t depth, uint32_t *n)
{
        uint32_t prefixes[EXPECT_PREFIXES], n_prefixes, best = EXPECT_MOST;

        if (!e->ancestors)
                return walk_above(e, node, n);
        *n += search_cost(depth);
        node = ancestors_find_deepest(e->ancestors, e->tree, node, &depth, is_in_expected_text, e);
        if (node == NODE_NONE)
                return EXPECT_MOST;
        if (e->marks[node].entry_1 > 0)
                return e->marks[node].entry_1 - 1;
        n_prefixes = find_prefixes(e, depth, prefixes);
        if (n_prefixes > EXPECT_PREFIXES)
                return walk_above(e, node, n);
        for (uint32_t i = 0; i < n_prefixes; i++) {
                const struct expect_entry *entry = &e->entries[prefixes[i]];

                if (best < EXPECT_MOST && entry->depth < e->entries[best].depth)
                        continue;
                *n += search_cost(depth);
                if (ancestors_find(e->ancestors, e->tree, node, depth, entry->depth) == entry->node)
                        best = prefixes[i];
        }
        return best;
}

uint32_t expect_touched(struct expect *e, uint32_t node, uint32_t depth)
{
        uint32_t i, n = 0;

        if (!e || e->order.n == 0)
                return 0;
        i = find_above(e, node, depth, &n);
        if (i == EXPECT_MOST)
                return n;
        e->n_fulfilled++;
        if (e->entries[i].n_requests == 1) {
                (void)end_entry(e, i, &e->counters->fulfilled);
                return n;
        }
        e->entries[i].n_requests--;
        e->n_waiting--;
        e->counters->fulfilled++;
        return n;
}

void expect_leaves(struct expect *e, uint32_t node)
{
        if (!e || !is_marked(e, node))
                return;
        assert(tree_is_leaf(e->tree, node) && e->marks[node].entry_1 > 0);
        give_up_page(e, e->marks[node].entry_1 - 1U);
}

/* In another tier the policy has forgotten the lock. */
void expect_moved(struct expect *e, uint32_t node, uint32_t to)
{
        uint32_t from_tier, to_tier, i;

        if (!e || !is_marked(e, node))
                return;
        from_tier = tree_tier(e->tree, node);
        to_tier = tree_tier(e->tree, to);
        e->marks[to] = e->marks[node];
        e->marks[node] = (struct expect_mark){0};
        e->n_pages[from_tier]--;
        e->n_pages[to_tier]++;
        if (e->marks[to].entry_1 == 0)
                return;
        i = e->marks[to].entry_1 - 1U;
        e->entries[i].node = to;
        if (from_tier != to_tier)
                stand_at(e, i, to);
}

/* Ends one expired expectation. After a long text the next one waits, so that a search for victims
 * spends at most a tenth of its time here. */
static void end_expired(struct expect *e, uint64_t now_nsec)
{
        uint32_t expired = NODE_NONE, n;
        uint64_t next_nsec = UINT64_MAX;

        for (uint32_t i = queue_oldest(&e->order); i != NODE_NONE; i = queue_newer(e->links, i)) {
                if (e->entries[i].until_nsec <= now_nsec && expired == NODE_NONE)
                        expired = i;
                else
                        next_nsec = MIN(next_nsec, e->entries[i].until_nsec);
        }
        e->next_expiry_nsec = next_nsec;
        if (expired == NODE_NONE)
                return;
        n = end_entry(e, expired, &e->counters->expired);
        if (n > LONG_TEXT_PAGES)
                e->next_expiry_nsec = MAX(next_nsec, now_nsec + n * PAUSE_PER_PAGE_NSEC);
}

void expect_prune(struct expect *e, uint64_t now_nsec)
{
        if (!e)
                return;
        if (now_nsec >= e->next_expiry_nsec)
                end_expired(e, now_nsec);
        (void)trim(e, TRIM_AT_ONCE);
}

static bool may_yield(
        const struct expect *e, const struct expect_entry *entry, uint32_t tier, enum evict_how how)
{
        if (entry->has_yielded || tree_tier(e->tree, entry->node) != tier)
                return false;
        return how == EVICT_DROP ? tree_is_leaf(e->tree, entry->node)
                                 : tree_is_tip(e->tree, entry->node);
}

bool expect_yield(struct expect *e, uint32_t tier, enum evict_how how)
{
        uint32_t i;

        if (!e || e->order.n == 0)
                return false;
        i = find_overdue(e);
        if (i == EXPECT_MOST || !may_yield(e, &e->entries[i], tier, how))
                for (i = queue_newest(&e->order); i != NODE_NONE; i = queue_older(e->links, i))
                        if (may_yield(e, &e->entries[i], tier, how))
                                break;
        if (i == NODE_NONE)
                return false;
        e->entries[i].has_yielded = true;
        e->ops->unlock(e->policy, e->entries[i].node);
        return true;
}

uint32_t expect_count_pages(const struct expect *e)
{
        uint32_t n = 0;

        for (uint32_t t = 0; e && t < TREE_TIERS; t++)
                n += e->n_pages[t];
        return n;
}

/* ---- debug ----------------------------------------------------------------------------------- */

static uint32_t count_marked_children(const struct expect *e, uint32_t node)
{
        uint32_t n = 0, child = tree_first_child(e->tree, node);

        for (; child != NODE_NONE; child = tree_next_sibling(e->tree, child))
                n += is_marked(e, child);
        return n;
}

static uint32_t count_to_root(const struct expect *e, uint32_t node)
{
        uint32_t n = 0;

        for (; node != NODE_NONE; n++)
                node = tree_parent(e->tree, node);
        return n;
}

static const char *check_mark(const struct expect *e, uint32_t node)
{
        const struct expect_mark *mark = &e->marks[node];
        const struct expect_entry *entry;

        if (mark->n_paths == 0)
                return mark->entry_1 ? "an expectation ends at a page without a mark" : NULL;
        if (!tree_has(e->tree, node))
                return "a page is expected that isn't in the tree";
        if (mark->n_paths != count_marked_children(e, node) + (mark->entry_1 > 0))
                return "the expected texts of a page are counted wrong";
        if (mark->entry_1 > EXPECT_MOST)
                return "a page has an expectation that there can't be";
        entry = mark->entry_1 ? &e->entries[mark->entry_1 - 1] : NULL;
        if (entry && (entry->n_requests == 0 || entry->node != node))
                return "the expectation of a page is another's";
        if (entry && entry->depth != count_to_root(e, node))
                return "the depth of an expected text is wrong";
        return NULL;
}

const char *expect_verify(const struct expect *e)
{
        uint32_t n_pages[TREE_TIERS] = {0}, n_ends = 0;
        uint64_t n_waiting = 0;

        for (uint32_t node = 0; node < e->n_marks && node < e->tree->n_nodes; node++) {
                const char *wrong = check_mark(e, node);

                if (wrong)
                        return wrong;
                if (is_marked(e, node))
                        n_pages[tree_tier(e->tree, node)]++;
                n_ends += e->marks[node].entry_1 > 0;
        }
        for (uint32_t t = 0; t < TREE_TIERS; t++)
                if (n_pages[t] != e->n_pages[t])
                        return "the pages of expected texts are counted wrong";
        for (uint32_t i = 0; i < EXPECT_MOST; i++)
                n_waiting += e->entries[i].n_requests;
        if (n_waiting != e->n_waiting)
                return "requests that are expected are counted wrong";
        if (n_ends != e->order.n || e->order.n + e->unused.n != EXPECT_MOST ||
                !queue_is_sound(&e->order, e->links, EXPECT_MOST))
                return "expectations have no page, or are lost";
        return NULL;
}
