/*
 * Sequences larger than the device (kvlease.h). All moves are FETCHes. They begin here, and the
 * call that needs them waits for them (op.h): one for pages that are demoted, and one for each half
 * of the buffer. A half's copy begins after the work on the engine's stream, which may still read
 * the old contents.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "client/lib/pages/stream.h"
#include "client/lib/pages/window.h"
#include "client/lib/calls/op.h"
#include "client/lib/connection/error.h"
#include "client/lib/objects/args.h"
#include "client/lib/objects/session.h"
#include "client/lib/pages/sessions.h"
#include "client/lib/calls/fetch.h"
#include "gpu/device.h"

#define DEFAULT_CHUNK_PAGES 8 /* not tuned */

/* Pages asked of a session in one request; protocol. */
#define SESSION_BATCH_PAGES 1024u

/* A transfer that was begun and will be waited for. */
struct work {
        struct op op;
        bool is_begun;
        uint32_t *pages; /* owned: the op's */
};

/* Planes of pages, at least one. */
struct planes {
        uint32_t first, n;
};

struct half {
        struct work copy;
        uint32_t *targets;    /* leased; owned, chunk_pages entries */
        uint32_t first, n;    /* pages of the sequence that it has, or gets; n 0: none */
        struct planes planes; /* of these pages */
};

struct kvl_window {
        struct list_link link; /* ns.windows */
        struct kvl_ns *ns;
        uint32_t n_first, n_last, chunk_pages;
        uint32_t *pages; /* owned: the current page for each of the sequence */
        uint32_t n, room;
        struct half halves[2];
        unsigned handed;   /* the half that was handed out last */
        struct work down;  /* demotes pages of the middle */
        uint32_t *down_at; /* their indexes in the sequence; owned, as many as in `down` */
        uint32_t down_room;
        uint32_t n_sent; /* pages before it were demoted, or stay */
        bool is_over;    /* copies into the buffer may come at any time */
};

static bool has_streams(const struct kvl_ns *ns)
{
        return ns->device->ops->stream_call;
}

/* ---- work --------------------------------------------------------------------------------------
 */

/* [L] Begins the FETCH in `op`; a COPY after the work on the stream, if the device has streams.
 * Returns 0; -errno with the sentence (it wasn't begun). */
static int begin_fetch(struct op *op, void *stream)
{
        struct conn *c = conn_of(op->ns);
        int r;

        op->n_mapped = op->n_pages; /* pages that are only read aren't mapped for it */
        r = c->broken ? error_note(-ENOTCONN, c->detail) : fetching_prepare(op);
        if (r == 0 && op->fetch.way == FETCH_COPY)
                r = stream_start_fetch(op, stream);
        else if (r == 0)
                op_proceed(op);
        if (r < 0)
                fetching_drop(op);
        return r < 0 ? error_note(r, op->call.detail) : 0;
}

/* Begins w after the work on the stream. planes: of copies, n 0: all. Returns 0; -errno with the
 * sentence. */
static int work_begin(struct kvl_ns *ns, struct work *w, enum fetch_way way, uint32_t n_pages,
        const uint32_t *targets, struct planes planes, void *stream)
{
        int r;

        op_init(&w->op, ns, &op_type_fetch, w->pages, n_pages);
        w->op.n_pages = n_pages;
        w->op.fetch.way = (uint8_t)way;
        w->op.fetch.targets = targets;
        w->op.fetch.first_plane = planes.first;
        w->op.fetch.n_planes = planes.n;
        conn_lock(conn_of(ns));
        r = begin_fetch(&w->op, stream);
        conn_unlock(conn_of(ns));
        w->is_begun = r == 0;
        return r;
}

/* Waits for the transfer, if it was begun. Returns its code, with the sentence. */
static int work_finish(struct kvl_ns *ns, struct work *w)
{
        int r;

        if (!w->is_begun)
                return 0;
        w->is_begun = false;
        conn_lock(conn_of(ns));
        r = op_finish(&w->op, 0, client_deadline(ns->conn));
        conn_unlock(conn_of(ns));
        /* The transfer waited for the stream, and was cancelled. */
        if (r == -ECANCELED)
                return error_set(-ETIMEDOUT, "the work on the stream didn't end in time");
        return r;
}

static bool is_done(const struct kvl_ns *ns, const struct work *w)
{
        bool done;

        conn_lock(conn_of(ns));
        done = !w->is_begun || w->op.call.is_done;
        conn_unlock(conn_of(ns));
        return done;
}

/* [L] */
static void work_drop(struct work *w)
{
        if (w->is_begun) {
                conn_abandon(conn_of(w->op.ns), &w->op.call);
                fetching_drop(&w->op);
        }
        w->is_begun = false;
}

/* ---- giving back -------------------------------------------------------------------------------
 */

static int give_back(struct kvl_window *w, const uint32_t *pages, uint32_t n_pages, void *stream,
        int (*at_once)(struct kvl_ns *, const uint32_t *, uint32_t),
        int (*later)(struct kvl_ns *, const uint32_t *, uint32_t, kvl_stream))
{
        int first = 0, r;

        for (uint32_t i = 0, n; i < n_pages; i += n) {
                n = MIN(n_pages - i, (uint32_t)KVL_MAX_LEASE_PAGES);
                r = has_streams(w->ns) ? later(w->ns, pages + i, n, stream)
                                       : at_once(w->ns, pages + i, n);
                if (first == 0)
                        first = r;
        }
        return first;
}

static int release_pages(
        struct kvl_window *w, const uint32_t *pages, uint32_t n_pages, void *stream)
{
        return give_back(w, pages, n_pages, stream, kvl_release, kvl_release_on_stream);
}

static void window_free(struct kvl_window *w)
{
        for (unsigned i = 0; i < 2; i++) {
                free(w->halves[i].copy.pages);
                free(w->halves[i].targets);
        }
        free(w->down.pages);
        free(w->down_at);
        free(w->pages);
        free(w);
}

void windows_cancel(struct kvl_ns *ns)
{
        list_for_each (w, &ns->windows, struct kvl_window, link) {
                work_drop(&w->down);
                for (unsigned i = 0; i < 2; i++)
                        work_drop(&w->halves[i].copy);
        }
}

void windows_free(struct kvl_ns *ns)
{
        list_for_each_safe (w, &ns->windows, struct kvl_window, link) {
                list_remove(&w->link);
                window_free(w);
        }
}

/* ---- where pages are to be ---------------------------------------------------------------------
 */

static bool is_here(const struct kvl_window *w, uint32_t i)
{
        return !ns_is_lower(w->ns, w->pages[i]);
}

/* The middle ends before this page. */
static uint32_t first_of_last(const struct kvl_window *w)
{
        return w->n > w->n_last ? w->n - w->n_last : 0;
}

static bool is_middle(const struct kvl_window *w, uint32_t i)
{
        return i >= w->n_first && i < first_of_last(w);
}

/* Waits until pages are demoted. Then uses their new places, and gives their device pages back
 * after the work on the stream. Returns the transfer's code. */
static int settle_down(struct kvl_window *w, void *stream)
{
        uint32_t n = w->down.is_begun ? w->down.op.n_pages : 0, n_old = 0;
        int r = work_finish(w->ns, &w->down), q;

        for (uint32_t i = 0; i < n; i++) {
                uint32_t *page = &w->pages[w->down_at[i]], old = *page;

                if (w->down.pages[i] == old)
                        continue;
                *page = w->down.pages[i];
                w->down.pages[n_old++] = old;
        }
        q = n_old > 0 ? release_pages(w, w->down.pages, n_old, stream) : 0;
        if (r == KVL_FULL)
                return error_set(KVL_FULL,
                        "there is no room below the device %s for a page of the text: see host_memory of the device, host_limit of the tenant",
                        w->ns->info.device);
        return r ? r : q;
}

/* Makes room for n pages in w->down. */
static int reserve_down(struct kvl_window *w, uint32_t n)
{
        uint32_t *pages, *at;

        if (n <= w->down_room)
                return 0;
        pages = realloc(w->down.pages, n * sizeof(*pages));
        if (pages)
                w->down.pages = pages;
        at = pages ? realloc(w->down_at, n * sizeof(*at)) : NULL;
        if (!at)
                return error_set(-ENOMEM, "out of memory");
        w->down_at = at;
        w->down_room = n;
        return 0;
}

/* Begins to demote all pages that are in the middle by now. No demotion is under way. */
static int send_down(struct kvl_window *w)
{
        uint32_t i = MAX(w->n_sent, w->n_first), end = first_of_last(w), n = 0;
        int r;

        for (; i < end; i++)
                if (is_here(w, i)) {
                        w->down.pages[n] = w->pages[i];
                        w->down_at[n++] = i;
                }
        /* Reads of these pages may go on: the bytes stay. */
        r = n > 0 ? work_begin(w->ns, &w->down, FETCH_DOWN, n, NULL, (struct planes){0}, NULL) : 0;
        if (r == -ENOMEM) /* retried with the next pages */
                return 0;
        w->n_sent = MAX(w->n_sent, end);
        return r;
}

/* Brings pages from index `from` on that belong on the device to it, as far as there is room. The
 * others are read as those of the middle are. */
static int bring_up(struct kvl_window *w, uint32_t from)
{
        int r = 0;

        for (uint32_t i = from, n; i < w->n && r >= 0 && r != KVL_FULL; i += n) {
                bool ends = is_here(w, i) || is_middle(w, i);

                for (n = 1; !ends && i + n < w->n && !is_here(w, i + n) && !is_middle(w, i + n);)
                        n++;
                if (!ends)
                        r = kvl_fetch(w->ns, w->pages + i, n, w->pages + i);
        }
        return r == -ENOTCONN || r == -EIO ? r : 0;
}

static bool any_is_to_come_up(const struct kvl_window *w, uint32_t from)
{
        for (uint32_t i = from; i < w->n; i++)
                if (!is_here(w, i) && !is_middle(w, i))
                        return true;
        return false;
}

/* ---- growing -----------------------------------------------------------------------------------
 */

static int reserve_pages(struct kvl_window *w, uint32_t n_more)
{
        uint64_t n = (uint64_t)w->n + n_more, room = MAX(n, 2 * (uint64_t)w->room);
        uint32_t *pages;

        if (n <= w->room)
                return 0;
        pages = room > UINT32_MAX / 2 ? NULL : realloc(w->pages, room * sizeof(*pages));
        if (!pages)
                return error_set(-ENOMEM, "out of memory");
        w->pages = pages;
        w->room = (uint32_t)room;
        return 0;
}

static int check_window(const struct kvl_window *w)
{
        if (!w)
                return error_set(-EINVAL, "no window was given");
        if (client_check_process(w->ns->conn) < 0)
                return -ECHILD;
        if (w->is_over)
                return error_set(-ETIMEDOUT, "a copy into the window didn't end in time: close it");
        return 0;
}

static int check_append(const struct kvl_window *w, const uint32_t *pages, uint32_t n_pages)
{
        int r = check_window(w);

        if (r == 0)
                r = args_check_pages(w->ns, pages, n_pages, UINT32_MAX);
        for (uint32_t i = 0; r == 0 && fast_is_open(&w->ns->fast) && i < n_pages; i++)
                if (!fast_is_pinned(&w->ns->fast, pages[i]))
                        r = error_set(-EINVAL, "page %u isn't pinned by this connection", pages[i]);
        return r;
}

int kvl_window_append(
        struct kvl_window *w, const uint32_t *pages, uint32_t n_pages, kvl_stream stream)
{
        uint32_t from;
        int r = check_append(w, pages, n_pages), q;

        if (r == 0)
                r = reserve_pages(w, n_pages);
        if (r == 0)
                r = reserve_down(w, w->n + n_pages - w->n_sent);
        if (r < 0)
                return r;
        from = w->n;
        memcpy(w->pages + from, pages, n_pages * sizeof(*pages));
        w->n += n_pages;
        r = settle_down(w, stream);
        q = send_down(w);
        r = r ? r : q;
        if (any_is_to_come_up(w, from)) {
                q = settle_down(w, stream);
                r = r ? r : q;
                q = bring_up(w, from);
                r = r ? r : q;
        }
        return r;
}

const uint32_t *kvl_window_pages(const struct kvl_window *w, uint32_t *ret_n_pages)
{
        if (!w || w->n == 0) {
                *ret_n_pages = 0;
                return NULL;
        }
        *ret_n_pages = w->n;
        return w->pages;
}

/* ---- reading -----------------------------------------------------------------------------------
 */

static struct planes all_planes(const struct kvl_window *w)
{
        return (struct planes){0, w->ns->info.n_planes};
}

static bool has_planes(struct planes all, struct planes some)
{
        return some.first >= all.first && some.first + some.n <= all.first + all.n;
}

/* The planes that attention asks for after it has read the sequence with these. */
static struct planes planes_after(const struct kvl_window *w, struct planes planes)
{
        uint32_t n = w->ns->info.n_planes, first = planes.first + planes.n;

        if (first >= n)
                first = 0;
        return (struct planes){first, MIN(planes.n, n - first)};
}

/* The half that has, or gets, these planes of page i of the sequence. */
static struct half *half_with(struct kvl_window *w, uint32_t i, struct planes planes)
{
        for (unsigned h = 0; h < 2; h++) {
                struct half *half = &w->halves[h];

                if (half->n > 0 && i - half->first < half->n && has_planes(half->planes, planes))
                        return half;
        }
        return NULL;
}

static struct half *other_half(struct kvl_window *w)
{
        return &w->halves[!w->handed];
}

/* Begins the copy of the chunk from page `first` on, which isn't on the device. The half must be
 * unused. */
static int half_fill(
        struct kvl_window *w, struct half *h, uint32_t first, struct planes planes, void *stream)
{
        bool is_all = planes.n == w->ns->info.n_planes;
        uint32_t n = 0;
        int r;

        while (n < w->chunk_pages && first + n < w->n && !is_here(w, first + n)) {
                h->copy.pages[n] = w->pages[first + n];
                n++;
        }
        h->first = first;
        h->n = n;
        h->planes = planes;
        r = work_begin(w->ns, &h->copy, FETCH_COPY, n, h->targets,
                is_all ? (struct planes){0} : planes, stream);
        if (r < 0)
                h->n = 0;
        return r;
}

/* Waits until the half has its chunk. After a failure the half has none. */
static int half_await(struct kvl_window *w, struct half *h)
{
        int r = work_finish(w->ns, &h->copy);

        if (r == 0)
                return 0;
        if (r == -ETIMEDOUT)
                w->is_over = true;
        if (r == KVL_MISS)
                error_set(KVL_MISS,
                        "page %u of the text (page %u of namespace %s) is gone, or was damaged below the device",
                        h->first + h->copy.op.fetch.failed, h->copy.pages[h->copy.op.fetch.failed],
                        w->ns->name);
        h->n = 0;
        return r;
}

/* The next page that isn't on the device, from page i on, then from the beginning; w->n: none. */
static uint32_t next_below(const struct kvl_window *w, uint32_t i)
{
        for (uint32_t n = 0; n < w->n; n++) {
                uint32_t at = (i + n) % w->n;

                if (!is_here(w, at))
                        return at;
        }
        return w->n;
}

/* Prefetches the likely next request: the same planes of the following pages, or after the
 * sequence's end the next planes from its beginning. A failure is reported when the pages are asked
 * for. */
static void fill_ahead(struct kvl_window *w, uint32_t i, struct planes planes, void *stream)
{
        uint32_t next = next_below(w, i);
        struct half *h = other_half(w);

        if (next < i)
                planes = planes_after(w, planes);
        if (next == w->n || half_with(w, next, planes) || !is_done(w->ns, &h->copy))
                return;
        (void)half_await(w, h);
        (void)half_fill(w, h, next, planes, stream);
}

/* Hands out copies from page `first` on, which is in a lower tier. Takes back the half handed out
 * before, so that the next chunk is copied while this one is waited for. */
static int take_copies(struct kvl_window *w, uint32_t first, struct planes planes, void *stream,
        const uint32_t **ret_pages, uint32_t *ret_n)
{
        struct half *h = half_with(w, first, planes);
        int r = 0;

        if (!h) {
                h = other_half(w);
                if (half_await(w, h) == -ETIMEDOUT)
                        return -ETIMEDOUT;
                r = half_fill(w, h, first, planes, stream);
        }
        if (r != 0)
                return r;
        w->handed = (unsigned)(h - w->halves);
        fill_ahead(w, h->first + h->n, planes, stream);
        r = half_await(w, h);
        if (r != 0)
                return r;
        *ret_pages = h->targets + (first - h->first);
        *ret_n = h->n - (first - h->first);
        return 0;
}

/* Returns 0 or -EINVAL with the sentence. */
static int check_planes(const struct kvl_window *w, struct planes planes)
{
        uint32_t n = w->ns->info.n_planes;

        if (planes.n > 0 && planes.n <= n && planes.first <= n - planes.n)
                return 0;
        return error_set(-EINVAL, "%u planes from %u on: pages of namespace %s have planes 0 to %u",
                planes.n, planes.first, w->ns->name, n - 1);
}

static int take_pages(struct kvl_window *w, uint32_t first, uint32_t n_pages, struct planes planes,
        void *stream, const uint32_t **ret_pages, uint32_t *ret_n_pages)
{
        const uint32_t *pages;
        uint32_t n = 0;
        int r = check_planes(w, planes);

        if (r == 0 && (!ret_pages || !ret_n_pages))
                r = error_set(-EINVAL, "there is no room for the pages");
        if (r == 0 && (first >= w->n || n_pages == 0))
                r = error_set(
                        -EINVAL, "%u pages from %u on: the window has %u", n_pages, first, w->n);
        if (r == 0 && stream && !has_streams(w->ns))
                r = error_set(
                        -EINVAL, "the device %s has no streams: pass NULL", w->ns->info.device);
        if (r == 0 && !is_here(w, first))
                r = take_copies(w, first, planes, stream, &pages, &n);
        if (r != 0)
                return r;
        if (n == 0)
                for (pages = w->pages + first; first + n < w->n && is_here(w, first + n);)
                        n++;
        *ret_pages = pages;
        *ret_n_pages = MIN(n, n_pages);
        fill_ahead(w, first + *ret_n_pages, planes, stream);
        return 0;
}

int kvl_window_take(struct kvl_window *w, uint32_t first, uint32_t n_pages, kvl_stream stream,
        const uint32_t **ret_pages, uint32_t *ret_n_pages)
{
        int r = check_window(w);

        return r < 0 ? r
                     : take_pages(w, first, n_pages, all_planes(w), stream, ret_pages, ret_n_pages);
}

int kvl_window_take_planes(struct kvl_window *w, uint32_t first, uint32_t n_pages,
        uint32_t first_plane, uint32_t n_planes, kvl_stream stream, const uint32_t **ret_pages,
        uint32_t *ret_n_pages)
{
        const struct planes planes = {first_plane, n_planes};
        int r = check_window(w);

        return r < 0 ? r : take_pages(w, first, n_pages, planes, stream, ret_pages, ret_n_pages);
}

/* ---- life --------------------------------------------------------------------------------------
 */

/* Appends the pages of a session, in any tier. */
static int append_session(struct kvl_window *w, struct kvl_session *session)
{
        uint32_t pages[SESSION_BATCH_PAGES], n, from = 0;
        int r;

        do {
                r = session_find_pages(session, from, SESSION_BATCH_PAGES, pages, &n);
                if (r != 0)
                        return r == KVL_MISS ? 0 : r;
                from += n;
                r = kvl_window_append(w, pages, n, NULL);
                if (r == -ENOMEM)
                        (void)kvl_release(w->ns, pages, n);
        } while (n == SESSION_BATCH_PAGES && r >= 0);
        /* Pages that can't be demoted are read on the device. */
        return r < 0 ? r : 0;
}

static int copy_options(const struct kvl_ns *ns, const struct kvl_window_options *options,
        struct kvl_window_options *ret)
{
        int r = abi_copy_options(ret, sizeof(*ret), options);

        if (r < 0)
                return r;
        if (ret->chunk_pages == 0)
                ret->chunk_pages = DEFAULT_CHUNK_PAGES;
        if (ret->chunk_pages > KVL_MAX_WINDOW_CHUNK)
                return error_set(-EINVAL, "chunk_pages is %u, must be at most %d", ret->chunk_pages,
                        KVL_MAX_WINDOW_CHUNK);
        if (ret->session && ret->session->ns != ns)
                return error_set(-EINVAL, "the session is of another namespace");
        return 0;
}

static uint32_t pages_for(const struct kvl_ns *ns, uint64_t n_tokens)
{
        uint64_t n = n_tokens / ns->info.page_tokens + (n_tokens % ns->info.page_tokens > 0);

        return (uint32_t)MIN(n, UINT32_MAX);
}

static struct kvl_window *window_new(struct kvl_ns *ns, const struct kvl_window_options *o)
{
        struct kvl_window *w = calloc(1, sizeof(*w));
        bool is_whole = w;

        if (!w)
                return NULL;
        list_init(&w->link);
        w->ns = ns;
        w->n_first = pages_for(ns, o->first_tokens);
        w->n_last = pages_for(ns, o->last_tokens);
        w->chunk_pages = o->chunk_pages;
        for (unsigned i = 0; i < 2; i++) {
                w->halves[i].copy.pages = calloc(o->chunk_pages, sizeof(uint32_t));
                w->halves[i].targets = calloc(o->chunk_pages, sizeof(uint32_t));
                is_whole &= w->halves[i].copy.pages && w->halves[i].targets;
        }
        if (is_whole)
                return w;
        window_free(w);
        return NULL;
}

static int lease_buffer(struct kvl_window *w, uint64_t request)
{
        uint32_t pages[2 * KVL_MAX_WINDOW_CHUNK], n = w->chunk_pages;
        int r = kvl_lease(w->ns, request, 2 * n, pages);

        for (unsigned i = 0; r == 0 && i < 2; i++)
                memcpy(w->halves[i].targets, pages + i * n, n * sizeof(*pages));
        return r;
}

int kvl_window_open(
        struct kvl_ns *ns, const struct kvl_window_options *options, struct kvl_window **ret_window)
{
        struct kvl_window_options o;
        struct kvl_window *w;
        int r = args_check_ns(ns);

        if (r == 0 && !ret_window)
                r = error_set(-EINVAL, "there is no room for the window");
        if (r == 0)
                r = copy_options(ns, options, &o);
        if (r == 0 && !ns->device)
                r = error_set(-EACCES, "a metadata-only connection reads no pages");
        if (r == 0 && !ns->info.is_cpu_memory && ns->device->props.n_members > 0)
                r = error_set(-EINVAL, "namespace %s is mapped on several GPUs: a window has one",
                        ns->name);
        if (r < 0)
                return r;
        w = window_new(ns, &o);
        if (!w)
                return error_set(-ENOMEM, "out of memory");
        r = lease_buffer(w, o.request);
        if (r != 0) {
                window_free(w);
                return r;
        }
        conn_lock(conn_of(ns));
        list_append(&ns->windows, &w->link);
        conn_unlock(conn_of(ns));
        if (o.session)
                r = append_session(w, o.session);
        if (r != 0) {
                char why[CONN_DETAIL_BYTES];

                snprintf(why, sizeof(why), "%s", error_get());
                (void)kvl_window_close(w, NULL);
                return error_set(r, "%s", why);
        }
        *ret_window = w;
        return 0;
}

int kvl_window_close(struct kvl_window *w, kvl_stream stream)
{
        int r, q;

        if (!w)
                return 0;
        if (client_check_process(w->ns->conn) < 0)
                return -ECHILD;
        /* A demotion under way ends first; if it fails, its pages are given back on the device. */
        r = settle_down(w, stream);
        if (r == -ENOTCONN || r > 0 || r == -ETIMEDOUT)
                r = 0;
        conn_lock(conn_of(w->ns));
        for (unsigned i = 0; i < 2; i++)
                work_drop(&w->halves[i].copy);
        list_remove(&w->link);
        conn_unlock(conn_of(w->ns));
        for (unsigned i = 0; i < 2; i++) {
                q = give_back(w, w->halves[i].targets, w->chunk_pages, stream, kvl_free,
                        kvl_free_on_stream);
                r = r ? r : q;
        }
        q = release_pages(w, w->pages, w->n, stream);
        r = r ? r : q;
        window_free(w);
        return r;
}
