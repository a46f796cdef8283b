/*
 * The prefix Gittins index: evicts the idle leaf (or tip) that is worth least. Value is the chance
 * that a page of its class and age is used again, for each tick of keeping it until then. The
 * horizon is the one that gives the highest value. The chances are learnt from the namespace's
 * traffic (pgi-table.h), also from evicted pages (pgi-ghost.h).
 *
 * The class of a page is set at its last use:
 *   partial   it is the partial tail of a text
 *   shared    two or more different pages continue it: how often it was used, log2
 *   body      the rest: which turn of a conversation the request was, how long its text was, how
 *             much of it was new, and the client's hint about the text
 *   passed    the text goes on beyond the window of the page's layers: evicted first, until it is
 *             used
 *
 * A request continues an earlier one if the earlier text, without its partial tail, is a known
 * prefix. The last whole page of each request's text has the number of its turn. That doesn't
 * depend on which pages are cached.
 *
 * With evict_params.crossover_tokens a miss costs more the deeper in a text it is. Then a page is
 * worth that chance times the mean cost of a token of its text up to there (recompute.h). The
 * page's own cost would be wrong: the pages before it cost less, and are given up next. Pages of a
 * class lie in lists by bins of that cost, and the comparison of PGI and LRU weighs uses by it.
 * Classes divide lengths of texts where costs differ.
 *
 * Pages with a hint have classes of their own, so a hint counts as far as it came true. Without a
 * client's hint, the way the request ended makes one (pgi-ending.h).
 *
 * While plain LRU would hit more (pgi-lru.h), and before anything is learnt, the oldest pages are
 * evicted first. The index then decides among pages of about the same age.
 *
 * Memory: 24 bytes a page, 16 a ghost, about 520 KB an instance, and 176 KB for each tier below the
 * first. There are as many ghosts as were met, at most max_ghosts. Full sets of eight forget the
 * ghost used longest ago. While the sets grow, ghosts take half as much again. With costs, a page
 * takes a byte more, and each shelf 88 KB for each of RECOMPUTE_BINS, of which only used lists take
 * memory. No event allocates memory.
 *
 * request_end() and hint() walk the text's pages once each. The first touch() of a request only
 * notes its page: the walk of request_end() counts the uses of the pages above. No victim is chosen
 * wrongly meanwhile, because no page is evicted before those that continue it. A later touch() of
 * the request, or one without a request, walks.
 */
#include "policy/pgi.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/macros.h"
#include "policy/pgi-class.h"
#include "policy/pgi-clock.h"
#include "policy/pgi-ghost.h"
#include "policy/pgi-impl.h"
#include "policy/pgi-list.h"
#include "policy/pgi-lru.h"
#include "policy/pgi-run.h"
#include "policy/pgi-shelf.h"
#include "policy/pgi-table.h"
#include "policy/pgi-text.h"

/* Requests between rebuilds of the table, which come sooner at first. Not tuned: from 25 to 256 the
 * results differ by less than 0.1 points of hits. */
#define FIRST_REBUILD 16
#define REBUILD       UINT32_C(256)

/* Rebuilds are rarer with more than COUNT_SHARE * REBUILD pages and ghosts: a request pays for
 * counting at most so many of them. */
#define COUNT_SHARE 1024

/* Requests in the mean of pages a request, about. Not tuned. */
#define MEAN_OF_REQUESTS 64

/* Sets of ghosts that one work() moves while the sets grow: about 20 us. */
#define SETS_AT_ONCE 256

/* Pages and ghosts that one work() counts: about 10 us. */
#define COUNT_AT_ONCE UINT32_C(4096)

#define TICKS_A_SECOND (1e9 / (UINT32_C(1) << PGI_TICK_SHIFT))

/* The time of an event, in ticks. */
static uint32_t tick(struct pgi *p, uint64_t now_nsec)
{
        uint32_t now = pgi_clock_advance(&p->clock, now_nsec, p->n_cached);

        if (pgi_lists_advance(&p->lists, p->pages, now))
                pgi_choices_drop(p);
        for (uint32_t shelf = 0; shelf < p->n_shelves; shelf++)
                p->choices[shelf].bins[p->lists.n - 1] = 0;
        return now;
}

static void free_tables(struct pgi *p)
{
        pgi_ghosts_deinit(&p->ghosts);
        pgi_lists_deinit(&p->lists);
        pgi_table_deinit(&p->table);
        free(p->endings);
        free(p->runs);
        p->endings = NULL;
        p->runs = NULL;
}

static int make_tables(struct pgi *p)
{
        if (is_made(p))
                return 0;
        p->runs = calloc(PGI_RUNS, sizeof(*p->runs));
        p->endings = calloc(1, sizeof(*p->endings));
        if (p->runs && p->endings && pgi_ghosts_init(&p->ghosts, p->max_ghosts) == 0 &&
                pgi_lists_init(&p->lists, p->n_shelves, p->crossover > 0 ? RECOMPUTE_BINS : 1) ==
                        0 &&
                pgi_table_init(&p->table) == 0)
                return 0;
        free_tables(p);
        return -ENOMEM;
}

static int pgi_reserve(void *policy, uint32_t n)
{
        struct pgi *p = policy;
        void *pages = p->pages;
        int r;

        assert(n < NODE_NONE);

        r = n > 0 ? make_tables(p) : 0;
        if (r == 0 && n > 0)
                r = pgi_lists_reserve(&p->lists, n);
        if (r < 0)
                return r;
        r = array_reserve(&pages, &p->n_pages, n, NODE_NONE - 1, sizeof(*p->pages));
        p->pages = pages;
        return r;
}

static void pgi_free(void *policy)
{
        struct pgi *p = policy;

        if (!p)
                return;
        free_tables(p);
        array_free(p->pages, p->n_pages, sizeof(*p->pages));
        free(p);
}

static int pgi_new(const struct evict_params *params, void **ret_policy)
{
        struct pgi *p = calloc(1, sizeof(*p));

        if (!p)
                return -ENOMEM;
        p->tree = params->tree;
        p->n_shelves = 2 * p->tree->n_tiers - 1;
        p->page_tokens = params->page_tokens;
        p->crossover = params->crossover_tokens;
        p->rebuild_after = FIRST_REBUILD;
        p->max_ghosts = params->max_ghosts ? params->max_ghosts : EVICT_MAX_GHOSTS;
        *ret_policy = p;
        return 0;
}

static void drop_pass(struct pgi *p)
{
        if (p->counting)
                pgi_table_drop_pass(&p->table);
        p->counting = false;
        p->count_at = 0;
}

/* Forgets ghosts, too. The tables stay, and the comparison with LRU begins anew. */
static int pgi_reset(void *policy)
{
        struct pgi *p = policy;
        struct pgi_ghosts no_ghosts;
        void *pages = p->pages;
        int r;

        if (!is_made(p))
                return 0;
        r = pgi_ghosts_init(&no_ghosts, p->max_ghosts);
        if (r < 0)
                return r;
        r = array_reset(&pages, p->n_pages, sizeof(*p->pages));
        if (r < 0) {
                pgi_ghosts_deinit(&no_ghosts);
                return r;
        }
        p->pages = pages;
        pgi_ghosts_deinit(&p->ghosts);
        p->ghosts = no_ghosts;
        p->n_cached = 0;
        p->lru = (struct pgi_lru){0};
        pgi_choices_drop(p);
        pgi_lists_clear(&p->lists);
        memset(p->runs, 0, PGI_RUNS * sizeof(*p->runs));
        pgi_endings_forget(p->endings);
        drop_pass(p);
        return 0;
}

/* Counts a request that has ended, or an event outside of requests. */
static void request_over(struct pgi *p)
{
        p->since++;
        p->request_pages += (p->n_used - p->request_pages) / MEAN_OF_REQUESTS;
        p->n_used = 0;
        pgi_lru_judge(&p->lru, p->n_cached);
}

/* The run of a request, which begins here if it is new. A request that it displaces counts as over,
 * because clients may never end one. */
static struct pgi_run *run_of(struct pgi *p, uint64_t request, uint32_t now)
{
        struct pgi_run dropped, *run = pgi_run_find(p->runs, request);

        if (run)
                return run;
        run = pgi_run_begin(p->runs, request, now, p->lru.base, &dropped);
        if (dropped.request) {
                pgi_text_use_found(p, &dropped);
                request_over(p);
        }
        return run;
}

/* Restores the data of a page that wasn't cached from its ghost, and counts the use. lru_base:
 * pgi_lru.base when the request began. Returns false if there is no ghost. */
static bool recall(struct pgi *p, uint32_t node, uint32_t now, uint32_t lru_base)
{
        struct pgi_page *page = &p->pages[node];
        struct pgi_ghost ghost;

        if (!pgi_ghosts_take(&p->ghosts, page->tag, &ghost))
                return false;
        pgi_table_used(&p->table, ghost.class, pgi_age_of(ghost.touched, now));
        page->accesses = ghost.accesses;
        page->turn = ghost.turn;
        page->kid = ghost.kid;
        if (ghost.turn)
                pgi_ended_used(p->endings, page->tag, now);
        pgi_lru_used(
                &p->lru, lru_base, &ghost.stamp, false, pgi_cost(&p->lists, node), p->n_cached);
        pgi_set_stamp(page, ghost.stamp);
        return true;
}

/* Updates a parent that got a child: it is no leaf, normally no tip, and may have one more
 * continuation. */
static void update_parent(struct pgi *p, uint32_t node, uint32_t child_tag)
{
        struct pgi_page *parent = pgi_page_of(p, node);

        pgi_shelf_update(p, node);
        parent->kid = pgi_kid_with(parent->kid, child_tag) & 31;
}

static void run_goes_to(
        struct pgi_run *run, const struct pgi_page *page, uint32_t node, uint32_t turn)
{
        run->page = node;
        run->tag = page->tag;
        run->turn = (uint8_t)turn;
}

/* Class of a new page. Outside of requests its text of `tokens` counts as a first turn, all new. */
static uint32_t class_at_insert(
        const struct pgi_page *page, const struct pgi_run *run, uint64_t tokens)
{
        return pgi_class_with_body(
                page, pgi_body_class(PGI_HINT_NONE, run ? MAX(run->turn, 1) : 1, page->length,
                              pgi_size_bin(run ? run->fresh_tokens : tokens, PGI_FRESHES)));
}

static uint32_t length_bin(const struct pgi *p, uint64_t text_tokens)
{
        static_assert(RECOMPUTE_LENGTHS == PGI_LENGTHS, "bins of pgi_page.length");
        return p->crossover > 0 ? recompute_length(text_tokens, p->crossover)
                                : pgi_size_bin(text_tokens, PGI_LENGTHS);
}

static void pgi_prefetch(const void *policy, uint32_t node)
{
        const struct pgi *p = policy;

        if (node < p->n_pages)
                __builtin_prefetch(&p->pages[node], 1);
}

static void pgi_prefetch_id(const void *policy, uint64_t id)
{
        const struct pgi *p = policy;

        if (is_made(p))
                pgi_ghosts_expect(&p->ghosts, pgi_ghost_tag(id));
}

static void pgi_insert(
        void *policy, uint32_t node, const struct evict_insert *what, uint64_t now_nsec)
{
        struct pgi *p = policy;
        struct pgi_page *page = &p->pages[node];
        uint32_t now = tick(p, now_nsec), parent = tree_parent(p->tree, node);
        struct pgi_run *run = what->request ? run_of(p, what->request, now) : NULL;
        uint64_t text_tokens = (uint64_t)what->depth * p->page_tokens;
        bool known, partial = what->tokens < p->page_tokens;
        uint32_t stamp;

        assert(node < p->n_pages && page->tag == 0 && what->depth > 0);

        p->n_cached++;
        *page = (struct pgi_page){
                .tag = pgi_ghost_tag(what->id),
                .touched = now,
                .length = length_bin(p, text_tokens) & 3,
                .class = partial ? PGI_PARTIAL : PGI_BODY,
                .held = 1,
        };
        if (p->crossover > 0)
                pgi_set_cost(&p->lists, node, recompute_bin(text_tokens, p->crossover));
        known = recall(p, node, now, run ? run->lru_base : p->lru.base);
        if (!known) {
                pgi_lru_first(&p->lru, &stamp, p->n_cached);
                pgi_set_stamp(page, stamp);
        }
        pgi_count_use(p, page);
        if (parent != NODE_NONE)
                update_parent(p, parent, page->tag);
        if (what->window_passed) {
                page->class = PGI_PASSED;
        } else if (run) {
                run_goes_to(
                        run, page, node, page->turn ? MIN(page->turn + 1U, PGI_TURNS) : run->turn);
                run->fresh_tokens += known ? 0 : what->tokens;
        } else {
                request_over(p);
        }
        page->class = (uint8_t)class_at_insert(page, run, text_tokens);
}

/* Notes the page that the request's first lookup found. The pages above can wait for the end of the
 * request, which walks up there in any case. */
static void find_first(struct pgi *p, uint32_t node, uint64_t request, uint32_t now)
{
        const struct pgi_page *page = pgi_page_of(p, node);
        struct pgi_run *run = run_of(p, request, now);

        run_goes_to(run, page, node, page->turn ? MIN(page->turn + 1U, PGI_TURNS) : 0);
        run->found_1 = node + 1;
        run->found_tag = page->tag;
        run->found_at = now;
        pgi_use_page(p, node, now);
}

static void pgi_touch(void *policy, uint32_t node, uint64_t request, uint64_t now_nsec)
{
        struct pgi *p = policy;
        const struct pgi_page *page = pgi_page_of(p, node);
        uint32_t now = tick(p, now_nsec);
        struct pgi_run *run = pgi_run_find(p->runs, request);

        if (request && !run) {
                find_first(p, node, request, now);
        } else if (!run) {
                (void)pgi_text_use(p, node, NULL, now);
                request_over(p);
        } else if (run->found_1 != node + 1) {
                pgi_text_use_found(p, run);
                run_goes_to(run, pgi_page_of(p, node), node, pgi_text_use(p, node, run, now));
        }
        if (page->class == PGI_PASSED)
                pgi_set_class(
                        p, node, pgi_body_class(PGI_HINT_NONE, 1, page->length, 0), page->touched);
}

static void pgi_request_end(void *policy, uint64_t request, uint64_t now_nsec)
{
        struct pgi *p = policy;
        struct pgi_run *run;
        uint32_t now;

        if (!is_made(p))
                return;
        now = tick(p, now_nsec);
        run = pgi_run_find(p->runs, request);
        if (run && p->pages[run->page].tag != 0 && p->pages[run->page].tag == run->tag)
                pgi_text_end(p, run, now);
        if (run) {
                pgi_text_use_found(p, run); /* of another text */
                *run = (struct pgi_run){0};
        }
        request_over(p);
}

static void pgi_ending(void *policy, uint64_t request, uint32_t ending)
{
        struct pgi *p = policy;
        struct pgi_run *run = is_made(p) ? pgi_run_find(p->runs, request) : NULL;

        if (run)
                run->ending = (uint16_t)pgi_ending_bin(ending);
}

/* Changes the classes of the pages that were used together with this one. Comes before the end of
 * their request, which then does the same, or after it. */
static void pgi_hint(
        void *policy, uint32_t node, enum evict_hint hint, uint64_t after_nsec, uint64_t now_nsec)
{
        struct pgi *p = policy;
        struct pgi_page *page = pgi_page_of(p, node);
        uint32_t code = pgi_hint_code(hint, after_nsec), touched = page->touched, turn, body;

        tick(p, now_nsec);
        if (page->hint == code)
                return;
        page->hint = code & 15;
        turn = MAX((uint32_t)pgi_page_of(p, pgi_text_end_page(p, node))->turn, 1U);
        for (uint32_t n = 0;
                node != NODE_NONE && p->pages[node].touched == touched && n < EVICT_WALK_PAGES;
                n++, node = tree_parent(p->tree, node)) {
                body = pgi_body_class(
                        code, turn, page->length, pgi_fresh_bin_of(p->pages[node].class));
                pgi_set_class(p, node, pgi_class_with_body(&p->pages[node], body), touched);
        }
}

static void pgi_hold(void *policy, uint32_t node)
{
        struct pgi *p = policy;
        struct pgi_page *page = pgi_page_of(p, node);

        assert(!page->held);

        pgi_shelf_leave(p, node);
        page->held = 1;
}

/* The page was in use until now, so its age starts here. */
static void pgi_idle(void *policy, uint32_t node, uint64_t now_nsec)
{
        struct pgi *p = policy;
        struct pgi_page *page = pgi_page_of(p, node);

        assert(page->held);

        page->touched = tick(p, now_nsec);
        page->held = 0;
        pgi_shelf_enter(p, node);
}

static void pgi_lock(void *policy, uint32_t node)
{
        struct pgi *p = policy;

        assert(pgi_page_of(p, node)->n_locks < EVICT_MAX_LOCKS);

        pgi_shelf_leave(p, node);
        p->pages[node].n_locks++;
}

static void pgi_unlock(void *policy, uint32_t node)
{
        struct pgi *p = policy;

        assert(pgi_page_of(p, node)->n_locks > 0);

        p->pages[node].n_locks--;
        pgi_shelf_update(p, node);
}

static void forgotten(void *policy, const struct pgi_ghost *ghost)
{
        struct pgi *p = policy;

        pgi_table_lost(&p->table, ghost->class, pgi_age_of(ghost->touched, p->clock.now));
        pgi_lru_forget(&p->lru, ghost->stamp);
}

static void make_ghost(struct pgi *p, const struct pgi_page *page, enum evict_reason why)
{
        struct pgi_ghost ghost = {
                .tag = page->tag,
                .touched = page->touched,
                .stamp = stamp_of(p, page),
                .accesses = page->accesses,
                .class = page->class,
                .turn = page->turn,
                .kid = page->kid,
        };
        struct pgi_ghost older;

        if (why == EVICT_INVALIDATE)
                forgotten(p, &ghost);
        else if (pgi_ghosts_put(&p->ghosts, &ghost, &older))
                forgotten(p, &older);
}

static void pgi_remove(void *policy, uint32_t node, enum evict_reason why)
{
        struct pgi *p = policy;
        struct pgi_page *page = pgi_page_of(p, node);
        uint32_t parent = tree_parent(p->tree, node), touched = page->touched;
        bool only;

        assert(tree_has(p->tree, node) && tree_is_leaf(p->tree, node));

        pgi_shelf_leave(p, node);
        make_ghost(p, page, why);
        *page = (struct pgi_page){0};
        p->n_cached--;
        if (parent == NODE_NONE)
                return;
        if (!p->pages[parent].shelf_1)
                p->pages[parent].touched = MAX(p->pages[parent].touched, touched);
        only = tree_is_only_child(p->tree, node);
        pgi_shelf_put(
                p, parent, tree_is_tip(p->tree, parent) || tree_hides_tip(p->tree, node), only);
        /* The parent is normally the next victim: the same requests used it. */
        if (only)
                pgi_ghosts_expect(&p->ghosts, pgi_page_of(p, parent)->tag);
}

static void change_tier(struct pgi *p, uint32_t node, uint32_t to)
{
        uint32_t parent = tree_parent(p->tree, to);

        pgi_shelf_leave(p, node);
        p->pages[to] = p->pages[node];
        p->pages[to].n_locks = 0;
        pgi_shelf_update(p, to);
        if (parent != NODE_NONE)
                pgi_shelf_update(p, parent);
}

static void pgi_move(void *policy, uint32_t node, uint32_t to)
{
        struct pgi *p = policy;

        assert(to < p->n_pages && p->pages[to].tag == 0 && tree_has(p->tree, to));

        pgi_run_moved(p->runs, pgi_page_of(p, node)->tag, node, to);
        pgi_set_cost(&p->lists, to, pgi_cost_bin(&p->lists, node));
        if (tree_tier(p->tree, node) != tree_tier(p->tree, to)) {
                change_tier(p, node, to);
        } else {
                p->pages[to] = p->pages[node];
                if (p->pages[to].shelf_1)
                        pgi_relink_as(&p->lists, p->pages, node, to);
        }
        p->pages[node] = (struct pgi_page){0};
}

static uint32_t pgi_victim(void *policy, uint32_t tier, enum evict_how how, uint64_t now_nsec)
{
        struct pgi *p = policy;

        return is_made(p) ? pgi_choices_victim(p, tier, how, tick(p, now_nsec)) : NODE_NONE;
}

/* Uses the age of a page's interval, as the choice of victims does. With a finer age two tiers
 * would drop pages that one cache of both sizes keeps. Where age decides about victims, the worth
 * falls with age. */
static double pgi_value(void *policy, uint32_t node, uint64_t now_nsec)
{
        struct pgi *p = policy;
        const struct pgi_page *page = pgi_page_of(p, node);
        uint32_t now = tick(p, now_nsec);
        uint32_t age = now - p->lists.start[pgi_interval_of(&p->lists, page->touched)];
        double a_tick = 1.0 / (1.0 + age);

        if (page->class == PGI_PASSED)
                return 0;
        if (p->table.ready && !p->lru.behind)
                a_tick = (double)pgi_table_index(&p->table, page->class, pgi_age_bin(age)) *
                         pgi_cost(&p->lists, node);
        return a_tick * TICKS_A_SECOND;
}

/* If the clock runs by use (pgi-clock.h) its ticks are shorter, and this chance is too low. */
static double pgi_chance(void *policy, uint32_t node, uint64_t within_nsec, uint64_t now_nsec)
{
        struct pgi *p = policy;
        const struct pgi_page *page = pgi_page_of(p, node);
        uint32_t age = pgi_age_of(page->touched, tick(p, now_nsec));
        uint64_t within = within_nsec >> PGI_TICK_SHIFT;

        return pgi_table_chance(
                &p->table, page->class, age, (uint32_t)MIN(within, (uint64_t)UINT32_MAX));
}

/* Counts page i, or ghost i - n_pages. */
static void count_one(struct pgi *p, uint32_t i, uint32_t now)
{
        struct pgi_page *page;
        const struct pgi_ghost *ghost;

        if (i < p->n_pages) {
                page = &p->pages[i];
                if (page->tag == 0)
                        return;
                pgi_set_stamp(page, pgi_lru_renewed(&p->lru, stamp_of(p, page)));
                pgi_table_count(&p->table, page->class, pgi_age_of(page->touched, now));
                return;
        }
        ghost = pgi_ghosts_at(&p->ghosts, i - p->n_pages);
        if (ghost->tag != 0)
                pgi_table_count(&p->table, ghost->class, pgi_age_of(ghost->touched, now));
}

/* One past the largest number that count_one() takes. */
static uint32_t n_known_at_most(const struct pgi *p)
{
        return (uint32_t)MIN((uint64_t)p->n_pages + pgi_ghosts_size(&p->ghosts), UINT32_MAX);
}

/* A page that is used during a pass may be counted at both ages, or at none. */
static void count_more(struct pgi *p, uint32_t now)
{
        uint32_t n = n_known_at_most(p), end = MIN(p->count_at + (uint64_t)COUNT_AT_ONCE, n);

        for (; p->count_at < end; p->count_at++)
                count_one(p, p->count_at, now);
        if (end < n)
                return;
        pgi_table_rebuild(&p->table, p->request_pages);
        pgi_endings_learn(p->endings, now);
        p->counting = false;
        pgi_choices_drop(p);
}

static bool pgi_work(void *policy, uint64_t now_nsec)
{
        struct pgi *p = policy;
        uint32_t now;

        if (!is_made(p))
                return false;
        now = tick(p, now_nsec);
        if (!p->counting) {
                if (pgi_ghosts_grow(&p->ghosts, SETS_AT_ONCE, forgotten, p))
                        return true;
                if (p->since < p->rebuild_after)
                        return false;
                p->since = 0;
                p->rebuild_after =
                        MIN(p->rebuild_after * 2, MAX(REBUILD, n_known_at_most(p) / COUNT_SHARE));
                p->counting = true;
                p->count_at = 0;
        }
        count_more(p, now);
        return p->counting;
}

static size_t pgi_save(const void *policy, void *buf, size_t size)
{
        const struct pgi *p = policy;

        return is_made(p) ? pgi_table_save(&p->table, buf, size) : 0;
}

static int pgi_load(void *policy, const void *buf, size_t size)
{
        struct pgi *p = policy;
        int r;

        r = make_tables(p);
        if (r == 0)
                r = pgi_table_load(&p->table, buf, size);
        if (r < 0)
                return r;
        pgi_choices_drop(p);
        return 0;
}

static void pgi_usage(const void *policy, struct evict_usage *ret)
{
        const struct pgi *p = policy;

        *ret = (struct evict_usage){.table_bytes = sizeof(*p),
                .ghost_limit_bytes = pgi_ghosts_limit_bytes(p->max_ghosts),
                .crossover_tokens = p->crossover};
        if (!is_made(p))
                return;
        ret->page_bytes = (uint64_t)p->n_pages * sizeof(*p->pages) + p->lists.costs_len;
        ret->ghost_bytes = pgi_ghosts_bytes(&p->ghosts);
        ret->table_bytes += sizeof(*p->endings) + PGI_RUNS * sizeof(*p->runs) +
                            pgi_lists_bytes(&p->lists) + pgi_table_bytes();
        ret->ghosts = p->ghosts.n;
}

static uint64_t pgi_memory_bytes(const void *policy)
{
        struct evict_usage u;

        pgi_usage(policy, &u);
        return u.page_bytes + u.ghost_bytes + u.table_bytes;
}

void pgi_look(const void *policy, uint32_t node, struct pgi_view *ret)
{
        const struct pgi *p = policy;
        const struct pgi_page *page = pgi_page_of(p, node);

        *ret = (struct pgi_view){
                .class = page->class,
                .turn = page->turn,
                .kids = page->kid == PGI_KIDS ? 2 : page->kid != 0,
                .n_ghosts = p->ghosts.n,
                .n_events = p->table.n_events,
                .lru_hits = p->lru.hits,
                .ready = p->table.ready,
                .behind = p->lru.behind,
        };
}

/* ---- check
 * --------------------------------------------------------------------------------------- */

static const char *check_page(const struct pgi *p, uint32_t node)
{
        const struct pgi_page *page = &p->pages[node];

        if ((page->tag != 0) != tree_has(p->tree, node))
                return "a page is known, or in the tree, but not both";
        if (page->tag == 0)
                return page->shelf_1 ? "a page that isn't cached lies on a shelf" : NULL;
        if (page->class >= PGI_ROWS)
                return "a page has no class";
        if (!is_candidate(p, node))
                return page->shelf_1 ? "a page on a shelf isn't an idle tip" : NULL;
        if (page->shelf_1 != shelf_for(p, node, tree_is_leaf(p->tree, node)) + 1)
                return "an idle tip doesn't lie on its shelf";
        return NULL;
}

static const char *pgi_check_node(const void *policy, uint32_t node)
{
        const struct pgi *p = policy;
        const char *wrong = node < p->n_pages ? check_page(p, node) : NULL;

        if (wrong || node >= p->n_pages || p->pages[node].shelf_1 == 0 ||
                pgi_lists_refer_to(&p->lists, p->pages, p->n_pages, node))
                return wrong;
        return "a page isn't in the list of its shelf, class and time";
}

struct lru_census {
        const struct pgi_lru *lru;
        uint64_t n;
};

static void count_ghost_in_lru(void *data, const struct pgi_ghost *ghost)
{
        struct lru_census *c = data;

        c->n += pgi_lru_has(c->lru, ghost->stamp);
}

/* Pages and ghosts that plain LRU would have. */
static uint64_t count_in_lru(const struct pgi *p)
{
        struct lru_census c = {.lru = &p->lru};

        for (uint32_t i = 0; i < p->n_pages; i++)
                c.n += p->pages[i].tag != 0 && pgi_lru_has(&p->lru, stamp_of(p, &p->pages[i]));
        pgi_ghosts_each(&p->ghosts, count_ghost_in_lru, &c);
        return c.n;
}

static const char *pgi_check(const void *policy)
{
        const struct pgi *p = policy;
        const char *wrong;
        uint32_t n = 0;

        if (!is_made(p))
                return NULL;
        for (uint32_t node = 0; node < p->n_pages; node++) {
                wrong = check_page(p, node);
                if (wrong)
                        return wrong;
                n += p->pages[node].tag != 0;
        }
        if (n != p->n_cached)
                return "the number of cached pages is wrong";
        wrong = pgi_lists_check(&p->lists, p->pages, p->n_pages);
        if (!wrong)
                wrong = pgi_ghosts_check(&p->ghosts);
        if (!wrong && count_in_lru(p) != p->lru.n)
                wrong = "the pages that LRU would have are not as many as it counts";
        return wrong;
}

const struct evict_ops evict_pgi = {
        .name = "pgi",
        .goes_by_cost = true,
        .new = pgi_new,
        .free = pgi_free,
        .reserve = pgi_reserve,
        .reset = pgi_reset,
        .insert = pgi_insert,
        .prefetch = pgi_prefetch,
        .prefetch_id = pgi_prefetch_id,
        .touch = pgi_touch,
        .hint = pgi_hint,
        .hold = pgi_hold,
        .idle = pgi_idle,
        .lock = pgi_lock,
        .unlock = pgi_unlock,
        .remove = pgi_remove,
        .move = pgi_move,
        .ending = pgi_ending,
        .request_end = pgi_request_end,
        .victim = pgi_victim,
        .value = pgi_value,
        .chance = pgi_chance,
        .work = pgi_work,
        .save = pgi_save,
        .load = pgi_load,
        .memory_bytes = pgi_memory_bytes,
        .usage = pgi_usage,
        .check = pgi_check,
        .check_node = pgi_check_node,
};
