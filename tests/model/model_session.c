/*
 * Random histories of sessions, against a naive model: a session is a list of pages, each with its
 * generation. The model doesn't know when pages are evicted. For a list in the tree it asks which
 * pages are left, and expects the beginning up to the first missing one. For a window it asks
 * whether all of it is there, and whether anything was done that may cost it. After each step the
 * store is checked, and every session's pages, positions and figures are compared.
 *
 * model_session [--seed N] [--seeds N] [--steps N]
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/core/cache/pages.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/memory/tasks.h"
#include "daemon/core/reclaim/reclaim.h"
#include "daemon/core/state/shared.h"
#include "daemon/core/requests/invalidate.h"
#include "daemon/core/reclaim/recall.h"
#include "tests/model/session_ranges.h"
#include "tests/model/session_world.h"
#include "tests/unit/at-once.h"

/* ---- what is done ---------------------------------------------------------------------------- */

static void op_open(void)
{
        struct client *c = any_client();
        uint8_t i = (uint8_t)rnd(N_SESSIONS);
        bool created, must_exist = rnd(4) == 0;
        uint32_t handle;
        int r;

        op = "open";
        if (c->handles[i] != 0)
                return;
        r = session_open(c->a, &(struct session_request){&i, 1, must_exist, rnd(3) * SEC, now_nsec},
                &handle, &created, &d);
        CHECK(r == (must_exist && !texts[i].exists ? -ENOENT : 0), "%d", r);
        if (r != 0)
                return;
        CHECK(created == !texts[i].exists, "session %u", i);
        texts[i].exists = true;
        texts[i].n_open++;
        c->handles[i] = handle;
}

/* The session ends for all clients that had it open. */
static void end_text(unsigned i)
{
        call_off(i, -ENOENT);
        forget_text(&texts[i]);
        texts[i].n_open = 0;
}

static void op_close(void)
{
        struct client *c = any_client();
        unsigned i = rnd(N_SESSIONS);
        bool drop = rnd(4) == 0, is_there;
        int r;

        op = "close";
        if (c->handles[i] == 0)
                return;
        is_there = session_of(c->a, c->handles[i], NULL) != NULL;
        r = session_close(c->a, c->handles[i], drop, now_nsec, &d);
        CHECK(r == (drop && !is_there ? -ENOENT : 0), "%d", r);
        c->handles[i] = 0;
        if (!is_there)
                return;
        texts[i].n_open--;
        if (drop)
                end_text(i);
}

static int publish(struct client *c, uint32_t handle, uint32_t page, uint64_t key, uint32_t tokens,
        const struct element *parent, uint64_t tag, uint32_t *ret_page)
{
        uint8_t bytes[KEY_BYTES], parent_bytes[KEY_BYTES];
        struct publish_one o = {.page = page,
                .key = bytes,
                .parent = parent ? parent->page : PAGE_NONE,
                .tokens = tokens,
                .session = handle,
                .tag = tag};
        struct publish p = {.pages = &page,
                .keys = bytes,
                .n = 1,
                .parent_key = parent ? parent_bytes : NULL,
                .last_tokens = tokens,
                .session = handle,
                .tag = tag};
        uint32_t n;
        int r;

        key_bytes(key, bytes);
        key_bytes(parent ? parent->key : 0, parent_bytes);
        if (ns_find_page(ns, bytes) == PAGE_NONE) {
                size_t row = row_of(key);

                sealed[row].key = key;
                sealed[row].step = step;
        }
        if (!pins_is_open(&c->a->share)) {
                r = publish_pages(c->a, &p, now_nsec, ret_page, &n, &d);
                if (n > 0)
                        CHECK(release_pages(c->a, ret_page, 1, now_nsec, &d) == 0, "%s", d.text);
                return r;
        }
        pins_add(&c->a->share, page);
        r = publish_shared(c->a, &o, now_nsec, ret_page, &d);
        if (r == KVL_STATUS_DUPLICATE)
                atomic_fetch_sub(&c->a->share.counters[*ret_page], 1);
        atomic_fetch_sub(&c->a->share.counters[page], 1);
        return r;
}

/* In the model: puts the page behind the first n_keep of the list. */
static void put(struct list *l, unsigned n_keep, struct element e)
{
        l->n = n_keep;
        l->e[l->n++] = e;
}

static void append_to_tree(struct text *t, unsigned n_keep, struct element e)
{
        e.end = (n_keep > 0 ? t->head.e[n_keep - 1].end : 0) + e.tokens;
        t->end = e.end;
        put(&t->head, n_keep, e);
        if (!tree_has(&ns->tree, e.page))
                t->head.n--;
}

static void append_to_window(struct text *t, unsigned n_keep, struct element e)
{
        t->window.n = n_keep;
        e.end = end_of(&t->window, t->window_token) + e.tokens;
        t->end = e.end;
        if (ns_page(ns, e.page)->state == PAGE_FREE || !is_in_window(&e))
                t->window.n = 0; /* its set is being taken back */
        else
                put(&t->window, n_keep, e);
}

/* Appends a page at the end, in place of a partial last one, or after an earlier one. */
static void op_append(void)
{
        struct element e = {.tokens = rnd(3) ? PAGE_TOKENS : 1 + rnd(PAGE_TOKENS)};
        const struct element *parent = NULL;
        struct client *c;
        struct list *l;
        struct text *t;
        uint32_t leased;
        unsigned i, n_keep;
        int r;

        op = "append";
        c = any_open(&i);
        if (!c || lease_pages(c->a, 1, now_nsec, &leased, &d) != 0)
                return;
        windows_may_go = true; /* by the lease */
        compare_text(i);
        t = &texts[i];
        l = t->truncated ? &t->window : &t->head;
        n_keep = l->n;
        if (n_keep > 0 && (l->e[n_keep - 1].tokens < PAGE_TOKENS || n_keep == MAX_LIST))
                n_keep--;
        if (rnd(8) == 0)
                n_keep = rnd(n_keep + 1);
        if (n_keep > 0)
                parent = &l->e[n_keep - 1];
        else if (t->truncated && t->head.n > 0)
                parent = &t->head.e[t->head.n - 1];
        e.key = mix((parent ? parent->key : 1) ^ (uint64_t)rnd(2) << 40 ^ (uint64_t)e.tokens << 50);
        r = publish(c, c->handles[i], leased, e.key, e.tokens, parent, rnd(3), &e.page);
        if (r != 0)
                CHECK(free_pages(c->a, &leased, 1, &d) == 0, "%s", d.text);
        CHECK(r == 0 || (r == KVL_STATUS_DUPLICATE && !t->truncated), "%d %s", r, d.text);
        call_off(i, -EAGAIN);
        if (!ns_page(ns, e.page)) { /* sealed in a set that is gone by now */
                t->end = (t->truncated ? (n_keep > 0 ? l->e[n_keep - 1].end : t->window_token)
                                 : n_keep > 0 ? l->e[n_keep - 1].end
                                              : 0) +
                         e.tokens;
                l->n = t->truncated ? 0 : n_keep;
                return;
        }
        e.generation = ns_page(ns, e.page)->generation;
        if (t->truncated)
                append_to_window(t, n_keep, e);
        else
                append_to_tree(t, n_keep, e);
}

/* In the tree: finds the kept pages by looping over all. */
static void truncate_tree(
        struct text *t, uint64_t first, uint64_t last, uint64_t gap_end, uint64_t *left)
{
        uint64_t total = end_of(&t->head, 0);
        unsigned n_head = 0, n_before = 0;

        while (n_before < t->head.n && t->head.e[n_before].end <= gap_end)
                n_before++;
        while (n_head < n_before && t->head.e[n_head].end - t->head.e[n_head].tokens < first)
                n_head++;
        *left = n_before - n_head;
        if (*left == 0)
                return;
        t->window.n = 0;
        t->window_token =
                n_before < t->head.n ? t->head.e[n_before].end - t->head.e[n_before].tokens : total;
        for (unsigned k = n_before; k < t->head.n; k++)
                t->window.e[t->window.n++] = t->head.e[k];
        t->head.n = n_head;
        t->truncated = last > 0;
        t->head_end = end_of(&t->head, 0);
        t->end = last > 0 ? total : t->head_end;
}

static void truncate_more(
        struct text *t, uint64_t first, uint64_t last, uint64_t gap_end, uint64_t *left)
{
        unsigned n_head = 0, n = 0;

        while (n < t->window.n && t->window.e[n].end <= gap_end)
                n++;
        while (n_head < t->head.n && t->head.e[n_head].end - t->head.e[n_head].tokens < first)
                n_head++;
        *left = n + t->head.n - n_head;
        if (n > 0)
                t->window_token = t->window.e[n - 1].end;
        if (n_head < t->head.n)
                t->head_end = n_head > 0 ? t->head.e[n_head - 1].end : 0;
        memmove(t->window.e, t->window.e + n, (t->window.n - n) * sizeof(t->window.e[0]));
        t->window.n -= n;
        t->head.n = n_head;
        if (last == 0) {
                t->truncated = false;
                t->end = t->head_end;
        }
}

static uint64_t gap_end_of(const struct text *t, uint64_t last)
{
        uint64_t total = t->truncated ? end_of(&t->window, t->window_token) : end_of(&t->head, 0);

        return total - MIN(last, total);
}

/* Did the session lose its window before the truncation had walked through it? */
static bool lost_its_window(const struct truncation *c)
{
        const struct session *s = find_real(c->i);

        return c->before.window.n > 0 && c->t.n_seen < c->t.n_window && (!s || s->window.n == 0) &&
               windows_may_go;
}

/* The session changes as announced, or stays as it was. Held pages may not be released yet. A
 * window that only gets shorter is as it is now: it may have been lost. */
static void decide(struct truncation *c)
{
        struct text *t = &texts[c->i], now = c->before;
        uint64_t left;

        c->is_decided = true;
        if (c->t.result == -EAGAIN && c->result == 0 && lost_its_window(c))
                c->result = -EAGAIN;
        CHECK(c->t.result == c->result, "%d, not %d: %s", c->t.result, c->result, c->t.why.text);
        if (c->result != 0)
                return;
        note_truncation(c);
        now.n_open = t->n_open;
        if (c->n_ranges > 0) {
                CHECK(keep_ranges(&now, c->ranges, c->n_ranges, &left), "no room");
        } else if (now.truncated) {
                now.window = t->window;
                truncate_more(&now, c->first, c->last, c->gap_end, &left);
        } else {
                truncate_tree(&now, c->first, c->last, c->gap_end, &left);
        }
        CHECK(c->t.n_left == left, "%llu left, not %llu", (unsigned long long)c->t.n_left,
                (unsigned long long)left);
        if (left > 0 || c->before.truncated)
                *t = now;
        windows_may_go |= c->window_may_go;
}

static void end_truncation(struct session_truncation *done)
{
        struct truncation *c = container_of(done, struct truncation, t);

        c->is_under_way = false;
        if (!c->is_decided)
                decide(c);
}

/* The truncation was begun. */
static void go_on(struct truncation *c, struct session_truncation *t, int r)
{
        CHECK(r == 0, "%d %s", r, d.text);
        c->is_under_way = !truncation_is_over(t);
        n_truncations += c->is_under_way;
        if (c->is_under_way) {
                truncation_queue(t, &c->t, end_truncation);
        } else {
                c->t = *t;
                end_truncation(&c->t);
        }
}

static void op_truncate_soon(void)
{
        struct truncation *c = &truncations[rnd(ARRAY_SIZE(truncations))];
        struct session_truncation t;
        unsigned i;

        op = "truncate soon";
        if (!any_open(&i) || c->is_under_way || truncation_of(i))
                return;
        prune(&texts[i]);
        windows_may_go = store.recalls.n > 0;
        *c = (struct truncation){.i = i,
                .before = texts[i],
                .first = rnd(6 * PAGE_TOKENS),
                .last = rnd(4) ? rnd(20 * PAGE_TOKENS) : 0};
        c->gap_end = gap_end_of(&texts[i], c->last);
        if ((c->first == 0 && c->last == 0) ||
                (texts[i].truncated && c->first > texts[i].window_token))
                return;
        go_on(c, &t,
                truncation_begin_ends(&t, (struct session *)find_real(i), c->first, c->last, &d));
}

/* Refused truncations are tried by op_keep(). */
static void op_keep_soon(void)
{
        struct truncation *c = &truncations[rnd(ARRAY_SIZE(truncations))];
        struct session_truncation t;
        struct text *text;
        unsigned i;

        op = "keep soon";
        if (!any_open(&i) || c->is_under_way || truncation_of(i))
                return;
        text = &texts[i];
        prune(text);
        windows_may_go = store.recalls.n > 0;
        *c = (struct truncation){.i = i, .before = *text};
        c->n_ranges = draw_ranges(text, c->ranges);
        if (!is_in_order(c->ranges, c->n_ranges) ||
                !ranges_are_right(text, c->ranges, c->n_ranges) ||
                text->head.n + text->window.n > MAX_LIST)
                return;
        go_on(c, &t,
                truncation_begin(&t, (struct session *)find_real(i), c->ranges, c->n_ranges, &d));
}

static void op_keep(void)
{
        struct token_range ranges[MAX_RANGES];
        uint64_t left = 0, expected = 0;
        struct text *t, now;
        unsigned i, n;
        int r;

        op = "keep";
        if (!any_open(&i))
                return;
        t = &texts[i];
        prune(t);
        n = draw_ranges(t, ranges);
        if (t->head.n + t->window.n > MAX_LIST)
                return;
        windows_may_go = store.recalls.n > 0; /* pages in a recalled set can't be kept */
        r = session_keep((struct session *)find_real(i), ranges, n, &left, &d);
        if (!is_in_order(ranges, n)) {
                CHECK(r == -EINVAL, "%d", r);
                return;
        }
        if (truncation_of(i)) {
                CHECK(r == -EAGAIN, "%d", r);
                return;
        }
        if (!ranges_are_right(t, ranges, n)) {
                CHECK(r == -EINVAL, "%d", r);
                return;
        }
        CHECK(r == 0, "%d %s", r, d.text);
        now = *t;
        CHECK(keep_ranges(&now, ranges, n, &expected), "no room");
        CHECK(left == expected, "%llu left, not %llu", (unsigned long long)left,
                (unsigned long long)expected);
        *t = now;
}

static void op_truncate(void)
{
        uint64_t first = rnd(6 * PAGE_TOKENS), last = rnd(4) ? rnd(6 * PAGE_TOKENS) : 0;
        uint64_t left = 0, expected = 0;
        struct client *c;
        struct text *t;
        unsigned i;
        int r;

        op = "truncate";
        c = any_open(&i);
        if (!c)
                return;
        t = &texts[i];
        prune(t);
        windows_may_go = store.recalls.n > 0; /* pages in a recalled set can't be kept */
        r = session_truncate(session_of(c->a, c->handles[i], NULL), first, last, &left, &d);
        if ((first == 0 && last == 0) || (t->truncated && first > t->window_token)) {
                CHECK(r == -EINVAL, "%d", r);
                return;
        }
        if (truncation_of(i)) {
                CHECK(r == -EAGAIN, "%d", r);
                return;
        }
        CHECK(r == 0, "%d %s", r, d.text);
        if (t->truncated)
                truncate_more(t, first, last, gap_end_of(t, last), &expected);
        else
                truncate_tree(t, first, last, gap_end_of(t, last), &expected);
        CHECK(left == expected, "%llu left, not %llu", (unsigned long long)left,
                (unsigned long long)expected);
}

/* Leases pages only to put pressure on memory, and frees them. */
static void op_press(void)
{
        struct client *c = any_client();
        uint32_t pages[48], n = 1 + rnd(48);

        op = "press";
        windows_may_go = true;
        if (lease_pages(c->a, n, now_nsec, pages, &d) == 0)
                CHECK(free_pages(c->a, pages, n, &d) == 0, "%s", d.text);
}

static void op_evict(void)
{
        op = "evict";
        for (unsigned n = rnd(6); n > 0; n--) {
                uint32_t victim = ns->evict->victim(ns->policy, 0, EVICT_DROP, now_nsec);

                if (victim != NODE_NONE)
                        (void)ns_evict_leaf(ns, victim, NULL);
        }
        idle_sets_drain(ns->store);
}

static void op_invalidate_key(void)
{
        unsigned i = rnd(N_SESSIONS);
        const struct list *l = &texts[i].head;
        uint8_t key[KEY_BYTES];
        uint64_t n;

        op = "invalidate key";
        if (l->n == 0)
                return;
        key_bytes(l->e[rnd(l->n)].key, key);
        CHECK(invalidate_key(clients[0].a, key, &n, &d) == 0, "%s", d.text);
}

static void op_invalidate_tag(void)
{
        uint64_t n;

        op = "invalidate tag";
        CHECK(invalidate_tag(clients[0].a, 1 + rnd(2), &n, &d) == 0, "%s", d.text);
}

/* A drop under way: its pages, and the step at which it began. */
struct cut {
        struct drop drop;
        bool is_under_way;
        unsigned long since;
        uint64_t keys[2 * MAX_LIST];
        unsigned n;
};

static struct cut cuts[3];
static unsigned n_cuts; /* that took several slices */

static void list_subtree(struct cut *c, uint32_t top)
{
        for (uint32_t page = top; page != NODE_NONE && c->n < ARRAY_SIZE(c->keys);
                page = tree_next_below(&ns->tree, top, page))
                memcpy(&c->keys[c->n++], ns_page(ns, page)->key, sizeof(c->keys[0]));
}

static void end_cut(struct drop *drop)
{
        container_of(drop, struct cut, drop)->is_under_way = false;
}

/* Only pages published since are found. */
static void check_cut(struct drop *drop)
{
        struct cut *c = container_of(drop, struct cut, drop);

        for (unsigned i = 0; i < c->n; i++) {
                uint8_t key[KEY_BYTES];

                key_bytes(c->keys[i], key);
                CHECK(ns_find_page(ns, key) == PAGE_NONE || sealed_at(c->keys[i]) >= c->since,
                        "page %u, sealed at step %lu, is left of a drop that began at %lu",
                        ns_find_page(ns, key), sealed_at(c->keys[i]), c->since);
        }
        end_cut(drop);
}

static void begin_cut(struct cut *c, int r)
{
        CHECK(r == 0, "%s", d.text);
        c->is_under_way = !drop_is_over(&c->drop);
        n_cuts += c->is_under_way;
        if (c->is_under_way)
                drop_queue(&c->drop, check_cut);
        else
                check_cut(&c->drop);
}

static struct cut *spare_cut(void)
{
        struct cut *c = &cuts[rnd(ARRAY_SIZE(cuts))];

        if (c->is_under_way)
                return NULL;
        c->n = 0;
        c->since = step;
        return c;
}

static void op_cut_key(void)
{
        unsigned i = rnd(N_SESSIONS);
        const struct list *l = &texts[i].head;
        struct cut *c = spare_cut();
        uint8_t key[KEY_BYTES];

        op = "cut key";
        if (!c || l->n == 0)
                return;
        key_bytes(l->e[rnd(l->n)].key, key);
        if (ns_find_page(ns, key) != PAGE_NONE)
                list_subtree(c, ns_find_page(ns, key));
        begin_cut(c, drop_key(&c->drop, clients[0].a, key, &d));
}

static void op_cut_tag(void)
{
        uint64_t tag = 1 + rnd(2);
        struct cut *c = spare_cut();

        op = "cut tag";
        if (!c)
                return;
        if (tag_first(ns, tag) != PAGE_NONE)
                list_subtree(c, tag_first(ns, tag));
        begin_cut(c, drop_tag(&c->drop, clients[0].a, tag, &d));
}

static void op_cut_more(void)
{
        op = "cut more";
        for (unsigned n = rnd(6); n > 0; n--)
                (void)tasks_work(&store);
}

static void op_invalidate_all(void)
{
        uint64_t n;

        op = "invalidate all";
        CHECK(ns_invalidate(ns, CAUSE_NAMESPACE, &n) == 0, "no memory");
        for (unsigned i = 0; i < N_SESSIONS; i++)
                end_text(i);
}

static void op_sweep(void)
{
        op = "sweep";
        (void)ns_sweep(ns, 1 + rnd(20));
        ns_look_again(ns, rnd(20));
        idle_sets_drain(ns->store);
}

static void op_give_way(void)
{
        op = "give way";
        windows_may_go = true;
        (void)sessions_give_way(ns, rnd(2));
        idle_sets_drain(ns->store);
}

static void op_die(void)
{
        unsigned i = rnd(N_MEMBERS);

        op = "die";
        for (unsigned k = 0; k < N_SESSIONS; k++)
                if (clients[i].handles[k] != 0 &&
                        session_of(clients[i].a, clients[i].handles[k], NULL))
                        texts[k].n_open--;
        member_free(clients[i].member);
        join_client(&clients[i], i % 2);
}

/* Expires all sessions with a time that aren't open. */
static void op_expire(void)
{
        op = "expire";
        for (unsigned i = 0; i < N_SESSIONS; i++) {
                const struct session *s = find_real(i);
                struct session_info info;

                if (!s)
                        continue;
                session_info(s, &info);
                if (info.n_open == 0 && info.expire_nsec > 0)
                        end_text(i);
        }
        while (sessions_expire(ns, now_nsec + 10 * SEC, 1 + rnd(4)) == now_nsec + 10 * SEC)
                ;
}

static void op_purge(void)
{
        struct session_purge purge;
        uint8_t i = (uint8_t)rnd(N_SESSIONS);
        uint64_t n;

        op = "purge";
        session_purge_init(&purge, ns->tenant, 0, now_nsec);
        session_purge_id(&purge, ns, &i, 1);
        n = purge.n_sessions;
        CHECK(n == texts[i].exists, "%llu", (unsigned long long)n);
        end_text(i);
}

static void op_recall(void)
{
        op = "recall";
        windows_may_go = true;
        if (store.recalls.n == 0 && rnd(4) == 0)
                (void)recall_sets(tenant, NULL, 1, 0);
        else
                (void)recall_work(&store, now_nsec, SEC, 1 + rnd(30));
}

/* Pages that have moved are found by their keys. */
static void follow(struct list *l)
{
        for (unsigned k = 0; k < l->n; k++) {
                struct element *e = &l->e[k];
                uint8_t key[KEY_BYTES];

                key_bytes(e->key, key);
                if (e->page == PAGE_NONE || is_in_tree(e) || is_in_window(e) ||
                        ns_find_page(ns, key) == PAGE_NONE)
                        continue;
                e->page = ns_find_page(ns, key);
                e->generation = ns_page(ns, e->page)->generation;
        }
}

/* Compaction loses no page that is cached, or in a window. */
static void op_compact(void)
{
        op = "compact";
        for (unsigned n = 0; n < 4; n++) {
                now_nsec += SEC / 4;
                (void)compact_turn(&store, now_nsec);
                if (store.recalls.n > 0)
                        windows_may_go = true;
                (void)recall_work(&store, now_nsec, SEC, 100);
        }
        for (unsigned i = 0; i < N_SESSIONS; i++)
                follow(&texts[i].head);
        for (unsigned i = 0; i < ARRAY_SIZE(truncations); i++)
                follow(&truncations[i].before.head);
}

/* ---- histories ------------------------------------------------------------------------------- */

static const struct {
        void (*fn)(void);
        unsigned weight;
} ops[] = {
        {op_open, 30},
        {op_close, 12},
        {op_append, 100},
        {op_truncate, 20},
        {op_truncate_soon, 20},
        {op_keep, 20},
        {op_keep_soon, 20},
        {op_press, 4},
        {op_evict, 12},
        {op_invalidate_key, 3},
        {op_invalidate_tag, 2},
        {op_cut_key, 6},
        {op_cut_tag, 2},
        {op_cut_more, 60},
        {op_invalidate_all, 1},
        {op_sweep, 6},
        {op_give_way, 3},
        {op_die, 2},
        {op_expire, 2},
        {op_purge, 1},
        {op_recall, 6},
        {op_compact, 3},
};

static void one_step(void)
{
        uint32_t sum = 0, at;

        for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
                sum += ops[i].weight;
        at = rnd(sum);
        windows_may_go = false;
        now_nsec += rnd(1000);
        store_set_now(&store, now_nsec);
        for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
                if (at < ops[i].weight) {
                        ops[i].fn();
                        break;
                }
                at -= ops[i].weight;
        }
        for (size_t i = 0; i < ARRAY_SIZE(truncations); i++)
                if (truncations[i].is_under_way && !truncations[i].is_decided &&
                        !truncations[i].t.session)
                        decide(&truncations[i]);
        compare_all();
        for (size_t i = 0; i < ARRAY_SIZE(truncations); i++)
                note_truncation(&truncations[i]);
}

int main(int argc, char **argv)
{
        unsigned long n_seeds = 6, n_steps = 6000;

        seed = (uint64_t)time(NULL);
        for (int i = 1; i < argc; i++) {
                if (i + 1 < argc && strcmp(argv[i], "--seed") == 0) {
                        seed = strtoull(argv[++i], NULL, 0);
                        n_seeds = 1;
                } else if (i + 1 < argc && strcmp(argv[i], "--seeds") == 0) {
                        n_seeds = strtoul(argv[++i], NULL, 0);
                } else if (i + 1 < argc && strcmp(argv[i], "--steps") == 0) {
                        n_steps = strtoul(argv[++i], NULL, 0);
                } else {
                        fprintf(stderr,
                                "usage: model_session [--seed N] [--seeds N] [--steps N]\n");
                        return 2;
                }
        }
        for (; n_seeds > 0; n_seeds--, seed++) {
                op = "begin";
                begin_world();
                n_cuts = n_truncations = 0;
                for (step = 0; step < n_steps; step++)
                        one_step();
                CHECK(n_steps < 5000 || n_cuts > 0, "no drop took several slices");
                CHECK(n_steps < 5000 || n_truncations > 0, "no truncation took several slices");
                end_world();
        }
        return 0;
}
