#include "daemon/server/services/recorder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/dir.h"
#include "base/parse.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/base/recorder-file.h"

#define IDLE_NSEC (60 * NSEC_PER_SEC)

/* Largest integer that a double holds exactly, all below included: 2^53 - 1 (IEEE 754). */
#define HASH_MASK ((UINT64_C(1) << 53) - 1)

/* A request under way. */
struct running {
        struct list_link link; /* recorder.running */
        bool is_unnamed;       /* it has no number: `key` is of its deepest page */
        uint64_t key;          /* in recorder.requests */
        struct ns *ns;         /* borrowed: recorder_forget() */
        uint64_t first_nsec, last_nsec;
        /* Key and depth of the deepest known page, which may move meanwhile. */
        uint8_t page_key[KEY_BYTES];
        uint32_t depth;
        bool met_any;    /* there is one */
        uint32_t ending; /* request_end(); 0: unknown, as long as it runs */
};

static uint64_t key_of(const struct ns *ns, uint64_t request)
{
        uint64_t key = request ^ ns->id * UINT64_C(0x9e3779b97f4a7c15); /* 2^64 / golden ratio */

        return key == MAP_KEY_NONE ? 0 : key;
}

static struct running *find_running(const struct recorder *r, const struct ns *ns, uint64_t request)
{
        const uint64_t *at = map_find(&r->requests, key_of(ns, request));
        struct running *found = at ? (struct running *)(uintptr_t)*at : NULL;

        return found && found->ns == ns && !found->is_unnamed ? found : NULL;
}

static void forget_running(struct recorder *r, struct running *q)
{
        map_remove(&r->requests, q->key);
        list_remove(&q->link);
        r->n_running--;
        free(q);
}

/* NULL: too many, or no memory. */
static struct running *add_running(struct recorder *r, struct ns *ns, uint64_t key)
{
        struct running *q;

        if (r->n_running == RECORDER_REQUESTS_MAX || map_find(&r->requests, key))
                return NULL;
        q = calloc(1, sizeof(*q));
        if (!q)
                return NULL;
        if (map_put(&r->requests, key, (uintptr_t)q) < 0) {
                free(q);
                return NULL;
        }
        q->key = key;
        q->ns = ns;
        q->first_nsec = ns->store->now_nsec;
        list_append(&r->running, &q->link);
        r->n_running++;
        return q;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Place of the deepest page that the request has met; PAGE_NONE: it isn't cached any more. */
static uint32_t page_of(const struct running *q)
{
        uint32_t page = q->met_any ? ns_find_page(q->ns, q->page_key) : PAGE_NONE;
        const struct page *p = page == PAGE_NONE ? NULL : ns_page(q->ns, page);

        return p && p->state == PAGE_SEALED && !ns_page_is_stale(q->ns, p) ? page : PAGE_NONE;
}

/* Collects pages from `page` up to the root. Returns their number; 0: more than
 * RECORDER_PAGES_MAX. */
static uint32_t walk_up(const struct ns *ns, uint32_t page, uint32_t ret[RECORDER_PAGES_MAX])
{
        uint32_t n = 0;

        for (; page != NODE_NONE; page = tree_parent(&ns->tree, page)) {
                if (n == RECORDER_PAGES_MAX)
                        return 0;
                ret[n++] = page;
        }
        return n;
}

static uint64_t hash_of(const struct recorder *r, const struct ns *ns, uint32_t page)
{
        struct hash_seed seed = {r->secret.k0 ^ ns->id, r->secret.k1};

        return hash_bytes(seed, ns_page(ns, page)->key, KEY_BYTES) & HASH_MASK;
}

/* Says which endings are equal, and hides which they are; 0 stays 0. */
static uint32_t hidden_ending(const struct recorder *r, uint32_t ending)
{
        return ending == 0 ? 0 : (uint32_t)hash_bytes(r->secret, &ending, sizeof(ending)) | 1;
}

/* Largest size of a line: names and numbers, and 16 digits, comma and space an id. */
static size_t line_max(uint32_t n)
{
        return 256 + TENANT_NAME_MAX + (size_t)n * 18;
}

static size_t format_line(const struct recorder *r, const struct running *q, const uint32_t *pages,
        uint32_t n, char *buf, size_t size)
{
        const struct ns *ns = q->ns;
        uint64_t tokens =
                (uint64_t)(n - 1) * ns->layout.page_tokens + ns_page(ns, pages[0])->tokens;
        size_t len = (size_t)snprintf(buf, size,
                "{\"timestamp\": %" PRIu64 ", \"input_length\": %" PRIu64
                ", \"output_length\": 0, \"tenant\": \"%s\", \"ending\": %" PRIu32
                ", \"hash_ids\": [",
                (q->first_nsec - r->start_nsec) / NSEC_PER_MSEC, tokens, ns->tenant->name,
                hidden_ending(r, q->ending));

        for (uint32_t i = n; i-- > 0;)
                len += (size_t)snprintf(buf + len, size - len, "%" PRIu64 "%s",
                        hash_of(r, ns, pages[i]), i > 0 ? ", " : "]}\n");
        return len;
}

/* Hands the collected lines to the disk. */
static void hand_on(struct server *s)
{
        struct recorder *r = &s->recorder;

        if (!r->filling)
                return;
        r->n_writing++;
        disk_do(&s->disk, &r->filling->job);
        r->filling = NULL;
}

static void on_written(struct chunk *c)
{
        struct server *s = c->owner;
        struct recorder *r = &s->recorder;

        r->n_writing--;
        r->waiting_bytes -= c->size;
        if (c->writer == r->writer) {
                if (c->result < 0) {
                        r->n_recorded -= c->n_lines;
                        r->n_bytes -= c->len;
                        r->n_lost += c->n_lines;
                        chunk_explain(c, r->trouble, sizeof(r->trouble));
                }
                if (c->path[0])
                        memcpy(r->path, c->path, sizeof(r->path));
        }
        chunk_free(c);
        if (r->n_writing == 0)
                hand_on(s);
}

/* Chunk with room for a line of a namespace with such pages. NULL: too many bytes wait for the
 * disk, or no memory. */
static struct chunk *chunk_for(struct server *s, uint32_t page_tokens, size_t size)
{
        struct recorder *r = &s->recorder;
        struct chunk *c = r->filling;

        if (c && (c->page_tokens != page_tokens || c->size - c->len < size))
                hand_on(s);
        if (r->filling)
                return c;
        size = MAX(size, (size_t)CHUNK_BYTES);
        if (r->waiting_bytes + size > RECORDER_WAITING_MAX)
                return NULL;
        c = chunk_new(s, r->writer, page_tokens, size, on_written);
        if (!c)
                return NULL;
        r->waiting_bytes += c->size;
        r->filling = c;
        return c;
}

static bool write_request(struct server *s, const struct running *q)
{
        static uint32_t pages[RECORDER_PAGES_MAX]; /* one loop thread */
        struct recorder *r = &s->recorder;
        uint32_t page = page_of(q);
        uint32_t n = page == PAGE_NONE ? 0 : walk_up(q->ns, page, pages);
        struct chunk *c = n > 0 ? chunk_for(s, q->ns->layout.page_tokens, line_max(n)) : NULL;
        size_t len;

        if (!c)
                return false;
        len = format_line(r, q, pages, n, c->data + c->len, c->size - c->len);
        c->len += len;
        c->n_lines++;
        r->n_bytes += len;
        r->n_recorded++;
        if (r->n_writing == 0)
                hand_on(s);
        return true;
}

/* Ends a request: writes its line if it used any page. */
static void end_request(struct server *s, struct running *q)
{
        if (q->met_any && !write_request(s, q))
                s->recorder.n_lost++;
        forget_running(&s->recorder, q);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void meet_page(struct running *q, uint32_t page)
{
        uint32_t depth = ns_note(q->ns, page)->depth;

        if (depth < q->depth)
                return;
        memcpy(q->page_key, ns_page(q->ns, page)->key, KEY_BYTES);
        q->depth = depth;
        q->met_any = true;
}

/* Records a use of the page by the request. */
static void note_running(struct server *s, struct running *q, uint32_t page)
{
        q->last_nsec = s->store.now_nsec;
        list_remove(&q->link);
        list_append(&s->recorder.running, &q->link);
        meet_page(q, page);
}

static void on_named(
        struct server *s, struct ns *ns, uint64_t request, enum request_event what, uint32_t value)
{
        struct recorder *r = &s->recorder;
        struct running *q = find_running(r, ns, request);

        if (what == REQUEST_ENDED) {
                if (q) {
                        q->ending = value;
                        end_request(s, q);
                }
                return;
        }
        if (!q)
                q = add_running(r, ns, key_of(ns, request));
        if (q)
                note_running(s, q, value);
        else
                r->n_lost++;
}

/* ---- calls that name no request -------------------------------------------------------------- */

static uint64_t key_of_page(const struct recorder *r, const struct ns *ns, uint32_t page)
{
        return key_of(ns, hash_bytes(r->secret, ns_page(ns, page)->key, KEY_BYTES));
}

/* The request that has reached the page. NULL: none. */
static struct running *find_at(const struct recorder *r, const struct ns *ns, uint32_t page)
{
        const uint64_t *at =
                page == NODE_NONE ? NULL : map_find(&r->requests, key_of_page(r, ns, page));
        struct running *found = at ? (struct running *)(uintptr_t)*at : NULL;

        return found && found->is_unnamed && found->ns == ns &&
                               memcmp(found->page_key, ns_page(ns, page)->key, KEY_BYTES) == 0
                       ? found
                       : NULL;
}

/* Begins a request without a number. If there are too many, the longest idle one is ended, as no
 * client ends it. */
static struct running *begin_unnamed(struct server *s, struct ns *ns, uint32_t page)
{
        struct recorder *r = &s->recorder;
        struct running *oldest = list_first(&r->running, struct running, link), *q;

        if (r->n_running == RECORDER_REQUESTS_MAX && oldest->is_unnamed)
                end_request(s, oldest);
        q = add_running(r, ns, key_of_page(r, ns, page));
        r->n_unnamed++;
        r->n_lost += !q;
        if (q)
                q->is_unnamed = true;
        return q;
}

/* Moves a request to a deeper page. Returns its new place; NULL: another request is there and
 * continues for both, or no memory. */
static struct running *move_unnamed(struct server *s, struct running *q, uint32_t page)
{
        struct recorder *r = &s->recorder;
        uint64_t key = key_of_page(r, q->ns, page);

        if (map_find(&r->requests, key) || map_put(&r->requests, key, (uintptr_t)q) < 0) {
                r->n_lost += !map_find(&r->requests, key);
                forget_running(r, q);
                return NULL;
        }
        map_remove(&r->requests, q->key);
        q->key = key;
        return q;
}

static void on_unnamed(struct server *s, struct ns *ns, enum request_event what, uint32_t page)
{
        struct recorder *r = &s->recorder;
        struct running *there, *above;

        if (what == REQUEST_ENDED)
                return;
        there = find_at(r, ns, page);
        above = what == REQUEST_PUBLISHED ? find_at(r, ns, tree_parent(&ns->tree, page)) : NULL;
        if (there && what == REQUEST_FOUND) {
                end_request(s, there);
                there = NULL;
        }
        if (above)
                above = move_unnamed(s, above, page);
        if (!above)
                above = there ? there : begin_unnamed(s, ns, page);
        if (above)
                note_running(s, above, page);
}

static void on_request(
        struct ns *ns, uint64_t request, enum request_event what, uint32_t value, void *data)
{
        if (request != 0)
                on_named(data, ns, request, what, value);
        else
                on_unnamed(data, ns, what, value);
}

uint64_t recorder_end_idle(struct server *s, uint64_t now_nsec)
{
        struct recorder *r = &s->recorder;
        struct running *q;

        while ((q = list_first(&r->running, struct running, link)) &&
                now_nsec >= q->last_nsec + IDLE_NSEC)
                end_request(s, q);
        return q ? q->last_nsec + IDLE_NSEC : UINT64_MAX;
}

void recorder_forget(struct server *s, const struct ns *ns)
{
        struct recorder *r = &s->recorder;

        list_for_each_safe (q, &r->running, struct running, link)
                if (q->ns == ns) {
                        r->n_lost++;
                        forget_running(r, q);
                }
}

/* ---- on and off ------------------------------------------------------------------------------ */

void recorder_init(struct server *s)
{
        map_init(&s->recorder.requests);
        list_init(&s->recorder.running);
}

static int make_dir(const char *path, struct detail *d)
{
        char why[DIR_WHY_BYTES];
        int r = dir_make(path, 0, 0750, why);

        if (r < 0)
                return detail_set(d, r, "cannot record in %s: %s", path, why);
        if (access(path, W_OK | X_OK) < 0)
                return detail_set(d, -errno,
                        "cannot write to %s: %s: make it writable for uid %u, then repeat", path,
                        strerror(errno), (unsigned)geteuid());
        return 0;
}

static int check_room(const char *path, struct detail *d)
{
        char room[FORMAT_BYTES_MAX], leaves[FORMAT_BYTES_MAX];
        uint64_t leaves_bytes, room_bytes = writer_room(path, &leaves_bytes);

        if (room_bytes >= CHUNK_BYTES)
                return 0;
        return detail_set(d, -ENOSPC,
                "cannot record in %s: its file system keeps %s free, and has %s more: make room",
                path, format_bytes(leaves_bytes, leaves), format_bytes(room_bytes, room));
}

static int check_limits(uint64_t max_bytes, uint32_t max_files, struct detail *d)
{
        if (max_bytes < RECORDER_MIN_BYTES)
                return detail_set(d, -EINVAL, "max_bytes is %" PRIu64 ": at least %d are needed",
                        max_bytes, RECORDER_MIN_BYTES);
        if (max_files > RECORDER_FILES_MAX)
                return detail_set(d, -EINVAL, "max_files is %" PRIu32 ": 1 to %d are allowed",
                        max_files, RECORDER_FILES_MAX);
        return 0;
}

int recorder_start(struct server *s, uint64_t max_bytes, uint32_t max_files, struct detail *d)
{
        struct recorder *r = &s->recorder;
        int e;

        if (r->on)
                return detail_set(d, -EBUSY,
                        "the traffic is recorded already: end that first with kvleasectl trace record off");
        if (!s->life.keeps_state)
                return detail_set(d, -EROFS, "there is no state directory to record in");
        max_bytes = max_bytes > 0 ? max_bytes : RECORDER_FILE_BYTES;
        max_files = max_files > 0 ? max_files : RECORDER_FILES;
        e = check_limits(max_bytes, max_files, d);
        if (e < 0)
                return e;
        snprintf(r->path, sizeof(r->path), "%s/traces", s->config.daemon.state_dir);
        e = make_dir(r->path, d);
        if (e == 0)
                e = check_room(r->path, d);
        if (e < 0)
                return e;
        r->writer = writer_new(r->path, max_bytes, max_files);
        if (!r->writer)
                return detail_set(d, -ENOMEM, "no memory to record in");
        r->secret = hash_seed_random();
        r->start_nsec = server_now(s);
        r->n_recorded = r->n_bytes = r->n_lost = r->n_unnamed = 0;
        r->trouble[0] = '\0';
        r->on = true;
        s->store.owner.on_request = on_request;
        return 0;
}

void recorder_stop(struct server *s)
{
        struct recorder *r = &s->recorder;

        if (!r->on)
                return;
        r->on = false;
        s->store.owner.on_request = NULL;
        list_for_each_safe (q, &r->running, struct running, link)
                end_request(s, q);
        map_deinit(&r->requests);
        map_init(&r->requests);
        hand_on(s);
        writer_close(&s->disk, r->writer);
        r->secret = (struct hash_seed){0, 0};
}
