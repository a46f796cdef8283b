/* Exports of all cached pages (export-all.h). */
#include "daemon/exchange/export-all.h"

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/exchange/exchange-impl.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/tasks.h"
#include "daemon/core/sessions/session.h"

/* Its texts at a time: texts found meanwhile don't wait long behind them. Not tuned. */
#define TEXTS_MAX 32

/* ---- pages ----------------------------------------------------------------------------------- */

/* Returns the age of the last use as a bit: seconds, 2, 4, ... from the lowest on. */
static uint64_t age_of(const struct export_all *a, uint32_t used_sec)
{
        uint32_t sec = used_sec < a->counted_sec ? a->counted_sec - used_sec : 0;

        return UINT64_C(1) << (sec == 0 ? 0 : 32 - __builtin_clz(sec));
}

static bool is_wanted(const struct exchange_ns *e, uint32_t page, const struct page *p)
{
        return e->epoch->number != 0 && export_may_go(e, page, p->generation) &&
               !export_is_done(e, page);
}

/* Is the page findable, but may have been invalidated elsewhere? */
static bool is_old(const struct exchange_ns *e, uint32_t page, const struct page *p)
{
        return p->state == PAGE_SEALED && !ns_page_is_stale(e->ns, p) &&
               (e->epoch->number == 0 || p->published_sec < e->epoch->known_sec) &&
               !export_is_done(e, page);
}

static void count_page(struct export_all *a, const struct page *p)
{
        const struct exchange_ns *e = a->at;

        if (is_wanted(e, a->page, p)) {
                a->left_pages++;
                a->left_bytes += page_travel_bytes(&e->ns->codecs.of_pages);
                a->ages |= age_of(a, ns_note(e->ns, a->page)->used_sec);
        } else {
                a->old_pages += is_old(e, a->page, p);
        }
}

/* Returns false if there is no space now. Pages used since they were counted are younger than the
 * age that is walked. */
static bool walk_page(struct export_all *a, const struct page *p)
{
        struct exchange_ns *e = a->at;
        uint64_t age = a->ages & -a->ages;

        if (!is_wanted(e, a->page, p) || age_of(a, ns_note(e->ns, a->page)->used_sec) > age)
                return true;
        return a->n_texts < TEXTS_MAX && export_add_of_all(e, a->page);
}

/* ---- passes ---------------------------------------------------------------------------------- */

static struct exchange *whose(struct export_all *a)
{
        return container_of(a, struct exchange, all);
}

static void go_to_begin(struct export_all *a)
{
        a->at = list_first(&whose(a)->namespaces, struct exchange_ns, link);
        a->page = 0;
}

static struct exchange_ns *next_namespace(struct export_all *a)
{
        return a->at->link.next == &whose(a)->namespaces
                       ? NULL
                       : list_entry(a->at->link.next, struct exchange_ns, link);
}

/* Advances to the next page that may be bound. */
static void step(struct export_all *a, bool skips_set)
{
        const struct ns *ns = a->at->ns;
        uint32_t set_pages = ns->geometry.set_pages;

        if (skips_set)
                a->page = (ns_set_number(ns, a->page) + 1) * set_pages;
        else
                a->page++;
        if (a->page < ns->geometry.capacity_pages)
                return;
        a->page = 0;
        a->at = next_namespace(a);
}

/* Looks at a page. Returns false if the walk must wait. */
static bool look(struct export_all *a)
{
        const struct page *p = ns_page(a->at->ns, a->page);

        if (p && a->phase == ALL_COUNTS)
                count_page(a, p);
        else if (p && !walk_page(a, p))
                return false;
        step(a, !p);
        return true;
}

static void queue(struct export_all *a)
{
        if (!task_is_queued(&a->task))
                task_queue(&a->task, whose(a)->tenant);
}

static void begin_pass(struct export_all *a)
{
        a->phase = ALL_COUNTS;
        a->again = false;
        a->counted_sec = store_now_sec(whose(a)->tenant->store);
        a->ages = 0;
        a->n_failed = 0;
        a->left_pages = a->left_bytes = a->old_pages = 0;
        a->done_pages = a->written_pages + a->there_pages;
        a->done_bytes = a->written_bytes + a->there_bytes;
        exports_drop_all(whose(a));
        go_to_begin(a);
        queue(a);
}

/* Ends a count, or the walk of the youngest age. Returns true if ages are left. */
static bool end_walk(struct export_all *a)
{
        if (a->phase == ALL_WALKS)
                a->ages &= a->ages - 1;
        a->phase = a->ages ? ALL_WALKS : ALL_ENDS;
        if (a->ages)
                go_to_begin(a);
        else
                exchange_wake(whose(a));
        return a->ages;
}

/* The task. If it must wait for texts it ends, and is queued again once they are written. */
static bool work(struct task *c, uint64_t budget)
{
        struct export_all *a = container_of(c, struct export_all, task);

        for (; budget > 0 && a->at; budget--)
                if (!look(a))
                        return false;
        return a->at || end_walk(a);
}

static void begin_sessions(struct export_all *a)
{
        a->phase = ALL_SESSIONS;
        a->session = 0;
        go_to_begin(a);
        exchange_wake(whose(a));
}

/* Adds sessions whose state other hosts don't have. Returns true if no more are left. */
static bool walk_sessions(struct export_all *a)
{
        while (a->at) {
                uint64_t number;
                const struct session *s = session_next(a->at->ns, a->session, &number);

                if (s && !session_export_add(a->at, s))
                        return false;
                a->session = s ? number : 0;
                if (!s)
                        a->at = next_namespace(a);
        }
        return true;
}

/* Ends a pass when its texts were written, or couldn't be. */
static void end_pass(struct export_all *a)
{
        uint64_t now_nsec = whose(a)->tenant->store->now_nsec;
        bool is_over = a->n_failed == 0 && a->written_pages + a->there_pages == a->done_pages;

        if (is_over || a->n_failed > 0)
                a->hold_nsec = now_nsec + EXPORT_ALL_HOLD_NSEC;
        if (is_over)
                begin_sessions(a);
        else
                begin_pass(a);
}

uint64_t export_all_go_on(struct exchange *x)
{
        struct export_all *a = &x->all;
        uint64_t now_nsec = x->tenant->store->now_nsec;

        if (a->phase == ALL_WALKS && a->n_texts < TEXTS_MAX / 2)
                queue(a);
        if (a->phase == ALL_ENDS && a->n_texts == 0 && !x->batch)
                end_pass(a);
        if (a->phase == ALL_SESSIONS && walk_sessions(a) && x->n_session_exports == 0)
                a->phase = ALL_IDLE;
        if (a->phase == ALL_OFF || a->hold_nsec <= now_nsec) {
                if (a->phase == ALL_IDLE && a->again)
                        begin_pass(a);
                return UINT64_MAX;
        }
        return a->hold_nsec;
}

/* ---- calls of the other files ---------------------------------------------------------------- */

void export_all_init(struct exchange *x)
{
        task_init(&x->all.task);
        x->all.task.work = work;
}

void export_all_stop(struct exchange *x)
{
        if (!export_all_is_on(x))
                return;
        task_remove(&x->all.task, x->tenant);
        exports_drop_all(x);
        x->all = (struct export_all){.phase = ALL_OFF};
        export_all_init(x);
}

void export_all_note_left(struct exchange *x)
{
        if (export_all_is_on(x) && x->all.phase != ALL_IDLE)
                begin_pass(&x->all);
}

void export_all_note_published(struct exchange *x)
{
        x->all.again = export_all_is_on(x);
        if (x->all.phase == ALL_IDLE)
                exchange_wake(x);
}

void export_all_note_done(struct exchange_ns *e, bool is_written)
{
        struct export_all *a = &e->x->all;
        uint64_t bytes = page_travel_bytes(&e->ns->codecs.of_pages);

        if (!export_all_is_on(e->x))
                return;
        *(is_written ? &a->written_pages : &a->there_pages) += 1;
        *(is_written ? &a->written_bytes : &a->there_bytes) += bytes;
        a->is_failing = false;
}

void export_all_note_failed(struct exchange *x, enum exchange_drop why)
{
        if (!export_all_is_on(x) || why == EXCHANGE_GONE)
                return;
        x->all.n_failed++;
        x->all.is_failing = true;
        x->all.why = why;
}

/* ---- figures --------------------------------------------------------------------------------- */

/* Returns the tenant's exchange if it may write, else NULL. */
static struct exchange *writer_of(const struct tenant *t)
{
        struct exchange *x = exchange_of(t);

        return x && x->options.may_write ? x : NULL;
}

uint32_t export_all_begin(struct store *s)
{
        uint32_t n = 0;

        list_for_each (t, &s->tenants, struct tenant, link) {
                struct exchange *x = writer_of(t);

                n += x != NULL;
                if (!x || (x->all.phase != ALL_OFF && x->all.phase != ALL_IDLE))
                        continue;
                export_all_stop(x);
                exchange_forget_exported(x, NULL);
                begin_pass(&x->all);
        }
        return n;
}

void export_all_end(struct store *s)
{
        list_for_each (t, &s->tenants, struct tenant, link)
                if (exchange_of(t))
                        export_all_stop(exchange_of(t));
}

/* Returns a namespace with cached pages whose epoch is unknown. */
static const struct ns *find_without_epoch(const struct exchange *x)
{
        list_for_each (e, &x->namespaces, struct exchange_ns, link)
                if (e->epoch->number == 0 && ns_n_pages(e->ns, PAGE_SEALED) > 0)
                        return e->ns;
        return NULL;
}

static void add_left(const struct export_all *a, struct export_all_figures *ret)
{
        uint64_t pages = a->written_pages + a->there_pages - a->done_pages;
        uint64_t bytes = a->written_bytes + a->there_bytes - a->done_bytes;

        ret->left_pages += a->left_pages - MIN(a->left_pages, pages);
        ret->left_bytes += a->left_bytes - MIN(a->left_bytes, bytes);
        ret->old_pages += a->old_pages;
}

static void add_cached(const struct tenant *t, struct export_all_figures *ret)
{
        list_for_each (ns, &t->namespaces, struct ns, link)
                if (!exchange_find_ns(ns))
                        ret->apart_pages += ns_n_pages(ns, PAGE_SEALED);
}

void export_all_figures(const struct store *s, struct export_all_figures *ret)
{
        *ret = (struct export_all_figures){0};
        list_for_each (t, &s->tenants, struct tenant, link) {
                const struct exchange *x = writer_of(t);
                const struct export_all *a = x ? &x->all : NULL;

                ret->n_tenants += x != NULL;
                if (!x || !export_all_is_on(x))
                        continue;
                ret->is_on = true;
                ret->is_running |= a->phase != ALL_IDLE || a->again || find_without_epoch(x);
                ret->written_pages += a->written_pages;
                ret->written_bytes += a->written_bytes;
                ret->there_pages += a->there_pages;
                ret->there_bytes += a->there_bytes;
                add_left(a, ret);
                add_cached(t, ret);
        }
}

enum exchange_obstacle export_all_obstacle(
        const struct tenant *t, enum exchange_drop *ret_why, const struct ns **ret_ns)
{
        const struct exchange *x = writer_of(t);

        if (!x || !export_all_is_on(x))
                return OBSTACLE_NONE;
        *ret_why = x->all.why;
        if (x->all.is_failing)
                return OBSTACLE_FAILS;
        *ret_ns = find_without_epoch(x);
        return *ret_ns ? OBSTACLE_EPOCH : OBSTACLE_NONE;
}
