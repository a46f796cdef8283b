#include "client/lib/calls/flight.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault-point.h"
#include "base/macros.h"
#include "client/lib/calls/op.h"
#include "client/lib/objects/session.h"
#include "client/lib/calls/fetch.h"
#include "proto/status.h"

#define TAKE_COMPLETIONS 64 /* at a time; not tuned */
#define NAMES_WORDS      (SHM_FEED_NAMES_BYTES / sizeof(uint32_t))
#define INDEX_BITS       16 /* of user_data: index of the entry; the rest is the flight's id */

#define LYING_RING "kvleased broke the rules of the rings"

struct flight {
        struct list_link link; /* flights.list */
        uint64_t id;
        struct op *op;     /* NULL: the call gave up */
        struct kvl_ns *ns; /* NULL: closed */
        bool is_publish;
        bool window_passed;
        bool has_parent, is_duplicate;
        uint32_t n_pages;
        uint32_t n_entries, n_submitted, n_completed; /* one page each, or up to SHM_FREE_PAGES */
        uint32_t n_published;
        uint32_t last_tokens;
        int code; /* of the first entry that failed */
        uint64_t request;
        uint32_t session;                 /* the daemon's handle; 0: none */
        uint64_t tag;                     /* 0: none */
        uint32_t *pages;                  /* allocated after this; becomes the published pages */
        uint8_t (*keys)[SHM_KEY_BYTES];   /* allocated after this: the parent's, then the pages' */
        uint32_t *token_ids;              /* allocated after this: of all pages; NULL: none */
        char names[SHM_FEED_NAMES_BYTES]; /* of the text, if it begins here; else zeros */
};

static struct flights *flights_of(struct kvl_conn *conn)
{
        return &conn->flights;
}

/* ---- doorbell ----------------------------------------------------------------------------------
 */

static int send_doorbell(struct kvl_conn *conn)
{
        Kvlease__V1__DoorbellRequest m = KVLEASE__V1__DOORBELL_REQUEST__INIT;

        return conn_notify(conn->conn, MSG_DOORBELL, &m.base);
}

#define CANT_RING "out of memory while calling kvleased"

void flights_ring(struct kvl_conn *conn)
{
        struct ring *ring = &flights_of(conn)->ring;

        /* flights_back() rings for entries submitted while it is away. */
        if (conn->conn->link != CONN_UP || !ring_take_doorbell(ring))
                return;
        if (send_doorbell(conn) == 0) {
                FAULT_POINT("submit-rung");
                return;
        }
        ring_return_doorbell(ring);
        /* Otherwise calls would wait for ever. */
        conn_break(conn->conn, -ENOMEM, CANT_RING);
}

void flights_back(struct kvl_conn *conn)
{
        if (send_doorbell(conn) < 0)
                conn_break(conn->conn, -ENOMEM, CANT_RING);
}

/* ---- submitting --------------------------------------------------------------------------------
 */

static uint64_t user_data_of(const struct flight *f, uint32_t entry)
{
        return f->id << INDEX_BITS | entry;
}

static bool needs_parent(const struct flight *f)
{
        return f->has_parent || f->n_submitted > 0;
}

static bool has_with(const struct flight *f)
{
        return f->session != 0 || f->tag != 0;
}

/* A WITH applies to all later entries, also of other flights. */
static bool needs_with(const struct flights *all, const struct flight *f)
{
        return has_with(f) || all->is_with;
}

/* Writes the entries before a part's PUBLISHes: their options, and their parent. */
static uint32_t write_preamble(struct flights *all, const struct flight *f)
{
        struct ring *ring = &all->ring;
        uint32_t n = 0;

        if (needs_with(all, f)) {
                struct shm_submission *s =
                        ring_entry(ring, n++, SHM_OP_WITH, f->ns->id, f->request);

                s->page = f->session;
                s->with.tag = f->tag;
        }
        if (needs_parent(f))
                memcpy(ring_entry(ring, n++, SHM_OP_PARENT, f->ns->id, f->request)->key,
                        f->keys[f->n_submitted], SHM_KEY_BYTES);
        return n;
}

/* Returns the tokens of the i-th page. */
static uint32_t tokens_of(const struct flight *f, uint32_t i)
{
        return i + 1 == f->n_pages ? f->last_tokens : f->ns->info.page_tokens;
}

/* Can the daemon take token ids? */
static bool has_token_ids(const struct flights *all, const struct flight *f)
{
        return f->token_ids && atomic_load_explicit(&all->ring.header->last_op,
                                       memory_order_relaxed) >= SHM_OP_TOKENS;
}

static bool has_names(const struct flight *f, uint32_t i)
{
        return i == 0 && (f->names[0] || f->names[1]);
}

static uint32_t entries_for(size_t n_words)
{
        return (uint32_t)((n_words + SHM_TOKENS_IDS - 1) / SHM_TOKENS_IDS);
}

/* Returns the ring entries of the i-th page. At most 89, for 1,024 tokens: a ring without that room
 * is more than three quarters full, as clients that wait for room must find it (PROTOCOL.md). */
static uint32_t entries_of(const struct flights *all, const struct flight *f, uint32_t i)
{
        if (!has_token_ids(all, f))
                return 1;
        return 1 + entries_for(tokens_of(f, i)) + (has_names(f, i) ? entries_for(NAMES_WORDS) : 0);
}

/* Writes words of the i-th page, which have the index `at` in it, from the ring's n-th new entry
 * on. Returns the next entry. */
static uint32_t write_words(struct flights *all, const struct flight *f, uint32_t i, uint32_t n,
        uint32_t at, const void *words, uint32_t n_words)
{
        for (uint32_t first = 0; first < n_words; first += SHM_TOKENS_IDS) {
                struct shm_token_ids t = {
                        .op = SHM_OP_TOKENS,
                        .n = (uint16_t)MIN(n_words - first, (uint32_t)SHM_TOKENS_IDS),
                        .ns_id = f->ns->id,
                        .page = f->pages[i],
                        .first = at + first,
                };

                memcpy(t.ids, (const uint32_t *)words + first, t.n * sizeof(uint32_t));
                memcpy(ring_entry(&all->ring, n++, SHM_OP_TOKENS, f->ns->id, 0), &t, sizeof(t));
        }
        return n;
}

/* Writes the token ids and names of the i-th page, from the ring's n-th new entry on; returns the
 * next. */
static uint32_t write_token_ids(struct flights *all, const struct flight *f, uint32_t i, uint32_t n)
{
        uint32_t page_tokens = f->ns->info.page_tokens;

        n = write_words(all, f, i, n, 0, f->token_ids + (size_t)i * page_tokens, tokens_of(f, i));
        return has_names(f, i) ? write_words(all, f, i, n, page_tokens, f->names, NAMES_WORDS) : n;
}

/* Writes unsubmitted entries, as far as there is room. Returns the ring entries used. */
static uint32_t write_publish(struct flights *all, struct flight *f, uint32_t room)
{
        uint32_t n_preamble = (uint32_t)needs_with(all, f) + needs_parent(f), n, i = f->n_submitted;
        bool is_root = !needs_parent(f);

        if (room < n_preamble + entries_of(all, f, i))
                return 0;
        n = write_preamble(all, f);
        for (; i < f->n_entries && n + entries_of(all, f, i) <= room; i++) {
                struct shm_submission *s;

                if (has_token_ids(all, f))
                        n = write_token_ids(all, f, i, n);
                s = ring_entry(&all->ring, n++, SHM_OP_PUBLISH, f->ns->id, f->request);
                s->flags = is_root && i == 0 ? SHM_PUBLISH_ROOT : SHM_PUBLISH_CHAIN;
                s->tokens = (uint16_t)tokens_of(f, i);
                s->page = f->pages[i];
                s->aux = f->window_passed ? SHM_PUBLISH_PASSED : 0;
                s->user_data = user_data_of(f, i);
                memcpy(s->key, f->keys[i + 1], SHM_KEY_BYTES);
        }
        f->n_submitted = i;
        all->is_with = has_with(f);
        return n;
}

static uint32_t write_free(struct ring *ring, struct flight *f, uint32_t room)
{
        uint32_t n = MIN(f->n_entries - f->n_submitted, room);

        for (uint32_t i = 0; i < n; i++) {
                uint32_t entry = f->n_submitted + i, first = entry * SHM_FREE_PAGES;
                struct shm_submission *s = ring_entry(ring, i, SHM_OP_FREE, f->ns->id, 0);

                s->tokens = (uint16_t)MIN(f->n_pages - first, (uint32_t)SHM_FREE_PAGES);
                s->user_data = user_data_of(f, entry);
                memcpy(s->pages, f->pages + first, s->tokens * sizeof(*s->pages));
        }
        f->n_submitted += n;
        return n;
}

/* Submits as much of the flight as fits. Returns 0 or -EPROTO. */
static int flight_submit(struct flights *all, struct flight *f)
{
        int room = ring_begin(&all->ring);
        uint32_t n;

        if (room < 0)
                return room;
        n = f->is_publish ? write_publish(all, f, (uint32_t)room)
                          : write_free(&all->ring, f, (uint32_t)room);
        ring_commit(&all->ring, n);
        return 0;
}

static bool is_submitted(const struct flight *f)
{
        return f->n_submitted == f->n_entries;
}

static struct flight *flight_after(struct flights *all, struct flight *f)
{
        return f->link.next == &all->list ? NULL : list_entry(f->link.next, struct flight, link);
}

/* Submits flights, the oldest first, as order and room allow; rings. Returns 0 or -EPROTO. */
static int submit_all(struct kvl_conn *conn)
{
        struct flights *all = flights_of(conn);
        int r = 0;

        while (r == 0 && all->next) {
                struct flight *f = all->next;

                if (f->n_completed == f->n_submitted)
                        r = flight_submit(all, f);
                if (!is_submitted(f))
                        break;
                all->next = flight_after(all, f);
        }
        if (r == 0 && ring_used(&all->ring) > 0)
                flights_ring(conn);
        return r;
}

/* ---- the end -----------------------------------------------------------------------------------
 */

static void drop_pins(struct flight *f, uint32_t first, uint32_t end)
{
        uint32_t page;

        for (uint32_t i = first; f->ns && i < end; i++)
                fast_release(&f->ns->fast, &f->pages[i], 1, &page);
}

/* Drops the entries that aren't submitted yet. */
static void flight_cut(struct flight *f)
{
        if (f->is_publish)
                drop_pins(f, f->n_submitted, f->n_entries);
        f->n_entries = f->n_submitted;
}

static void flight_free(struct flight *f)
{
        list_remove(&f->link);
        free(f);
}

/* Detaches the call, with the published pages. */
static struct op *flight_detach(struct flight *f)
{
        struct op *op = TAKE(f->op);

        op->flight = NULL;
        op->call.on_abandon = NULL;
        if (!f->is_publish)
                return op;
        op->n_pages = f->n_published;
        memcpy(op->pages, f->pages, f->n_published * sizeof(*f->pages));
        return op;
}

static void flight_complete(struct flights *all, struct flight *f)
{
        struct op *op;

        flight_cut(f);
        /* op_proceed() may find the connection broken, which ends all flights in the list. */
        if (all->next == f)
                all->next = flight_after(all, f);
        list_remove(&f->link);
        if (f->op) {
                op = flight_detach(f);
                op->code = f->code == 0 && f->is_duplicate ? KVL_DUPLICATE : f->code;
                if (f->code == -EINVAL)
                        snprintf(op->call.detail, sizeof(op->call.detail),
                                "a page isn't leased by this connection's group");
                op_proceed(op);
        } else if (f->is_publish) {
                drop_pins(f, 0, f->n_published);
        }
        flight_free(f);
}

static void on_abandon(struct conn_call *call)
{
        struct flight *f = container_of(call, struct op, call)->flight;
        struct op *op = flight_detach(f);

        op->n_pages = 0;
        flight_cut(f);
        if (f->n_completed == f->n_submitted)
                flight_complete(flights_of(op->ns->conn), f);
}

/* ---- completions -------------------------------------------------------------------------------
 */

/* Returns false if the completion makes no sense. */
static bool take_published(struct flight *f, int code, uint32_t page)
{
        uint32_t i = f->n_completed;

        if (code != 0 && code != KVL_DUPLICATE) {
                drop_pins(f, i, i + 1);
                return true;
        }
        if (f->code != 0 || (code == 0 && page != f->pages[i]))
                return false;
        if (code == KVL_DUPLICATE) {
                if (f->ns && page >= f->ns->info.capacity_pages)
                        return false;
                /* The daemon pinned the answered page for us already. */
                drop_pins(f, i, i + 1);
                f->is_duplicate |= page != f->pages[i];
                f->pages[i] = page;
        }
        f->n_published++;
        return true;
}

static int take_completion(struct flights *all, const struct shm_completion *c)
{
        struct flight *f = list_first(&all->list, struct flight, link);
        int code = status_from_wire(c->status);

        if (!f || f->n_completed == f->n_submitted ||
                c->user_data != user_data_of(f, f->n_completed) || code == -EPROTO)
                return -EPROTO;
        if (f->is_publish && !take_published(f, code, c->page))
                return -EPROTO;
        if (f->code == 0 && code != KVL_DUPLICATE)
                f->code = code;
        f->n_completed++;
        if (f->n_completed == f->n_submitted &&
                (is_submitted(f) || (f->is_publish && f->code != 0)))
                flight_complete(all, f);
        return 0;
}

/* Takes all completions. Returns their number, or -EPROTO. */
static int take_completions(struct kvl_conn *conn)
{
        struct shm_completion completions[TAKE_COMPLETIONS];
        struct flights *all = flights_of(conn);
        int n, total = 0;

        while ((n = ring_take(&all->ring, completions, TAKE_COMPLETIONS)) > 0) {
                for (int i = 0; i < n; i++) {
                        bool is_fetch = completions[i].user_data & FETCH_USER_DATA;

                        if ((is_fetch ? fetches_take(conn, &completions[i])
                                      : take_completion(all, &completions[i])) < 0)
                                return -EPROTO;
                }
                total += n;
        }
        return n < 0 ? n : total;
}

bool flights_look(struct kvl_conn *conn)
{
        int n, r = 0;

        if (conn->conn->broken)
                return false;
        n = take_completions(conn);
        if (n > 0)
                r = submit_all(conn);
        if (n > 0 && r == 0)
                r = fetches_submit(conn);
        if (n < 0 || r < 0)
                conn_break(conn->conn, -EPROTO, LYING_RING);
        return n != 0;
}

void flights_broken(struct kvl_conn *conn, int code, const char *why)
{
        if (code != -EPROTO)
                take_completions(conn);
        flights_of(conn)->next = NULL;
        list_for_each_safe (f, &flights_of(conn)->list, struct flight, link) {
                if (f->op) {
                        struct op *op = flight_detach(f);

                        snprintf(op->call.detail, sizeof(op->call.detail), "%s", why);
                        conn_finish(conn->conn, &op->call, code);
                }
                flight_cut(f);
                flight_free(f);
        }
}

/* ---- starting ----------------------------------------------------------------------------------
 */

/* Returns the bytes of a publish's token ids; 0: they are unknown, or of no use. Fills the names of
 * the text that begins with it. */
static size_t publish_ids_bytes(
        const struct kvl_ns *ns, const struct kvl_publish *p, char ret_names[SHM_FEED_NAMES_BYTES])
{
        size_t n = (size_t)(p->n_pages - 1) * ns->info.page_tokens + p->last_tokens;
        bool is_root = !p->parent_key;
        bool fit = shm_feed_put_names(
                ret_names, is_root ? p->lora_name : NULL, is_root ? p->cache_salt : NULL);

        return p->token_ids && ns->info.takes_token_ids && fit ? n * sizeof(uint32_t) : 0;
}

static struct flight *flight_new(struct op *op, const struct kvl_publish *p)
{
        uint32_t n = op->n_asked;
        size_t pages_bytes = n * sizeof(uint32_t);
        size_t keys_bytes = p ? (n + 1) * (size_t)SHM_KEY_BYTES : 0;
        char names[SHM_FEED_NAMES_BYTES];
        size_t ids_bytes = p ? publish_ids_bytes(op->ns, p, names) : 0;
        struct flight *f = malloc(sizeof(*f) + keys_bytes + pages_bytes + ids_bytes);

        if (!f)
                return NULL;
        *f = (struct flight){
                .op = op,
                .ns = op->ns,
                .is_publish = p,
                .n_pages = n,
                .n_entries = p ? n : (n + SHM_FREE_PAGES - 1) / SHM_FREE_PAGES,
                .keys = (void *)(f + 1),
                .pages = (void *)((uint8_t *)(f + 1) + keys_bytes),
        };
        memcpy(f->pages, op->pages, pages_bytes);
        if (!p) {
                if (fast_is_open(&op->ns->fast))
                        fast_note_freed(&op->ns->fast, f->pages, n);
                return f;
        }
        f->has_parent = p->parent_key;
        f->last_tokens = p->last_tokens;
        f->request = p->request;
        f->session = session_handle(p->session);
        f->tag = p->tag;
        f->window_passed = p->window_passed;
        if (p->parent_key)
                memcpy(f->keys[0], p->parent_key, SHM_KEY_BYTES);
        memcpy(f->keys[1], p->keys, keys_bytes - SHM_KEY_BYTES);
        if (ids_bytes > 0) {
                f->token_ids = f->pages + n;
                memcpy(f->token_ids, p->token_ids, ids_bytes);
                memcpy(f->names, names, sizeof(names));
        }
        if (fast_is_open(&op->ns->fast))
                fast_pin(&op->ns->fast, f->pages, n);
        return f;
}

/* Queues the flight; its call is pending. Returns 0 or -EPROTO. */
static int flight_enqueue(struct flight *f)
{
        struct kvl_conn *conn = f->ns->conn;
        struct flights *all = flights_of(conn);

        f->id = ++all->last_id;
        f->op->flight = f;
        conn_start_beside(conn->conn, &f->op->call, on_abandon);
        list_append(&all->list, &f->link);
        if (!all->next)
                all->next = f;
        return submit_all(conn);
}

/* [L] Starts a flight of op->pages[0..op->n_asked-1]. Returns 0: the call is pending; -ENOTCONN
 * (detail set); -ENOMEM. */
static int start_flight(struct op *op, const struct kvl_publish *publish)
{
        struct kvl_conn *conn = op->ns->conn;
        struct flight *f;

        op->call.type = 0;
        if (conn->conn->broken) {
                snprintf(op->call.detail, sizeof(op->call.detail), "%s", conn->conn->detail);
                return -ENOTCONN;
        }
        f = flight_new(op, publish);
        if (!f)
                return -ENOMEM;
        if (flight_enqueue(f) < 0) {
                conn_break(conn->conn, -EPROTO, LYING_RING); /* ends the call */
                return 0;
        }
        op->call.sent_at = conn->conn->n_queued;
        return 0;
}

int flight_run(struct op *op, const struct kvl_publish *publish, uint64_t deadline_nsec)
{
        struct conn *c = conn_of(op->ns);
        int r;

        conn_lock(c);
        r = op_finish(op, start_flight(op, publish), deadline_nsec);
        conn_unlock(c);
        return r;
}

int flight_start(struct op *op, const struct kvl_publish *publish)
{
        struct conn *c = conn_of(op->ns);
        int r;

        conn_lock(c);
        r = op_keep_started(op, start_flight(op, publish));
        conn_unlock(c);
        return r;
}

struct flight *flight_prepare(struct op *op, const struct kvl_publish *publish)
{
        struct flight *f = flight_new(op, publish);

        op->call.type = 0;
        if (f)
                list_init(&f->link);
        return f;
}

void flight_drop(struct flight *f)
{
        if (!f)
                return;
        if (f->is_publish && fast_is_open(&f->ns->fast))
                drop_pins(f, 0, f->n_pages);
        flight_free(f);
}

/* Bytes of a PUBLISH besides its pages, keys and token ids: at most 190. */
#define PUBLISH_BASE_BYTES 256

size_t flight_max_ids_bytes(uint32_t n_pages)
{
        /* A page number takes up to 5 bytes. */
        return FRAME_MAX_PAYLOAD - PUBLISH_BASE_BYTES - n_pages * (size_t)(SHM_KEY_BYTES + 5);
}

Kvlease__V1__PublishRequest flight_message(const struct kvl_ns *ns, const struct kvl_publish *p)
{
        Kvlease__V1__PublishRequest m = KVLEASE__V1__PUBLISH_REQUEST__INIT;
        char names[SHM_FEED_NAMES_BYTES];

        m.ns_id = ns->id;
        m.n_pages = p->n_pages;
        m.pages = (uint32_t *)p->pages;
        m.keys.data = (uint8_t *)p->keys;
        m.keys.len = (size_t)p->n_pages * KVL_KEY_BYTES;
        if (p->parent_key) {
                m.parent_key.data = (uint8_t *)p->parent_key;
                m.parent_key.len = KVL_KEY_BYTES;
        }
        m.last_tokens = p->last_tokens;
        m.request_id = p->request;
        m.session = session_handle(p->session);
        m.tag = p->tag;
        m.window_passed = p->window_passed;
        m.token_ids.len = publish_ids_bytes(ns, p, names);
        if (m.token_ids.len > flight_max_ids_bytes(p->n_pages))
                m.token_ids.len = 0;
        m.token_ids.data = (uint8_t *)p->token_ids;
        if (m.token_ids.len > 0 && !p->parent_key && p->lora_name)
                m.lora_name = (char *)p->lora_name;
        if (m.token_ids.len > 0 && !p->parent_key && p->cache_salt)
                m.cache_salt = (char *)p->cache_salt;
        return m;
}

static int send_publish(struct op *op, const struct kvl_publish *publish)
{
        const Kvlease__V1__PublishRequest m = flight_message(op->ns, publish);

        return conn_start(conn_of(op->ns), &op->call, MSG_PUBLISH, &m.base);
}

/* Sends a prepared publish over the socket. Its call continues there. */
static void send_prepared(struct flight *f)
{
        const struct kvl_session session = {.handle = f->session};
        const struct kvl_publish p = {
                .pages = f->pages,
                .keys = f->keys[1],
                .n_pages = f->n_pages,
                .parent_key = f->has_parent ? f->keys[0] : NULL,
                .last_tokens = f->last_tokens,
                .request = f->request,
                .session = &session,
                .tag = f->tag,
                .window_passed = f->window_passed,
                .token_ids = f->token_ids,
                .lora_name = f->names,
                .cache_salt = f->names + strlen(f->names) + 1,
        };
        int r = send_publish(f->op, &p);

        if (r < 0)
                conn_finish(f->ns->conn->conn, &f->op->call, r);
        flight_drop(f);
}

void flight_launch(struct flight *f)
{
        struct conn *c = f->ns->conn->conn;
        struct op *op = f->op;

        if (c->broken) {
                snprintf(op->call.detail, sizeof(op->call.detail), "%s", c->detail);
                flight_drop(f);
                conn_finish(c, &op->call, c->broken);
        } else if (!fast_is_open(&f->ns->fast)) {
                send_prepared(f);
        } else if (flight_enqueue(f) < 0) {
                conn_break(c, -EPROTO, LYING_RING);
        }
}

void flights_forget_ns(struct kvl_ns *ns)
{
        list_for_each (f, &ns->conn->flights.list, struct flight, link)
                if (f->ns == ns)
                        f->ns = NULL;
}

void flights_init(struct kvl_conn *conn, struct shm_map *map)
{
        struct flights *all = flights_of(conn);

        all->map = *map;
        map->base = NULL;
        ring_init(&all->ring, all->map.base);
}

void flights_deinit(struct kvl_conn *conn)
{
        struct flights *all = flights_of(conn);

        list_for_each_safe (f, &all->list, struct flight, link)
                flight_free(f);
        shm_unmap(&all->map);
}

/* ---- what completes nothing --------------------------------------------------------------------
 */

bool flight_touch(struct kvl_ns *ns, uint64_t request, uint32_t n_keys, uint32_t page,
        const struct fast_hit *hit)
{
        const struct shm_submission s = {
                .op = SHM_OP_TOUCH,
                .ns_id = ns->id,
                .page = page,
                .aux = (uint32_t)hit->generation,
                .request_id = request,
                .touch = {.n_keys = n_keys, .n_hits = hit->n_pages},
        };

        bool wakes, submitted = ring_touch(&ns->conn->flights.ring, &s, &wakes);

        if (wakes && conn_try_lock(ns->conn->conn)) {
                flights_ring(ns->conn);
                conn_unlock(ns->conn->conn);
        }
        return submitted;
}

static void ring_unlocked(struct kvl_conn *conn)
{
        conn_lock(conn->conn);
        flights_ring(conn);
        conn_unlock(conn->conn);
}

void flight_refill_locked(struct kvl_ns *ns, uint32_t n_pages)
{
        const struct shm_submission s = {.op = SHM_OP_REFILL, .ns_id = ns->id, .aux = n_pages};

        if (ring_try_submit(&ns->conn->flights.ring, &s, RING_LOSSY_ENTRIES))
                flights_ring(ns->conn);
        else
                fast_return_refill(&ns->fast);
}

void flight_refill(struct kvl_ns *ns, uint32_t n_pages)
{
        conn_lock(ns->conn->conn);
        flight_refill_locked(ns, n_pages);
        conn_unlock(ns->conn->conn);
}

int flight_expect(struct kvl_ns *ns, uint32_t page, uint64_t generation, uint32_t ttl_msec)
{
        const struct shm_submission s = {
                .op = SHM_OP_EXPECT,
                .ns_id = ns->id,
                .page = page,
                .aux = (uint32_t)generation,
                .expect = {.ttl_msec = ttl_msec},
        };
        struct ring *ring = &ns->conn->flights.ring;

        if (ns->conn->conn->broken)
                return -ENOTCONN;
        if (atomic_load_explicit(&ring->header->last_op, memory_order_relaxed) < SHM_OP_EXPECT)
                return -EOPNOTSUPP;
        if (!ring_try_submit(ring, &s, RING_LOSSY_ENTRIES))
                return -EAGAIN;
        ring_unlocked(ns->conn);
        return 0;
}

int flight_request_end(struct kvl_ns *ns, uint64_t request, uint32_t ending)
{
        struct ring *ring = &ns->conn->flights.ring;
        bool fits;
        int room;

        if (ns->conn->conn->broken)
                return -ENOTCONN;
        room = ring_begin(ring);
        if (room < 0)
                return room;
        fits = room > SHM_SUB_ENTRIES - RING_QUIET_ENTRIES;
        if (fits)
                ring_entry(ring, 0, SHM_OP_REQUEST_END, ns->id, request)->aux = ending;
        ring_commit(ring, fits);
        ring_unlocked(ns->conn);
        return fits ? 0 : -EAGAIN;
}
