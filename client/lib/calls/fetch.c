#include "client/lib/calls/fetch.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "client/lib/calls/give-back.h"
#include "client/lib/calls/op.h"
#include "client/lib/connection/error.h"
#include "client/lib/objects/args.h"
#include "client/lib/calls/flight.h"
#include "proto/status.h"

#define BATCH_PAGES 256 /* of one FETCH over the socket; protocol */
#define SLOT_BITS   8

/* A page brought up may be evicted before it is pinned, as it was cold, and on a busy machine
 * pinning takes time. It is asked for again this often. Not tuned: two repeats were seen at a load
 * of 8. */
#define MAX_REPEATS 8

static_assert(FETCHES_MAX == 1 << SLOT_BITS, "user_data has a slot's number");

enum fetch_state { FETCH_WAITING, FETCH_BEGUN, FETCH_ENDED };

struct fetch_page {
        uint32_t at;   /* which of the call's pages */
        uint32_t page; /* pinned by the call, if there is one */
        uint32_t to;   /* COPY */
        uint8_t state; /* enum fetch_state */
        uint8_t n_repeats;
        /* In shared memory: the page's contents. */
        uint32_t generation; /* low 32 bits */
        uint8_t key[SHM_KEY_BYTES];
};

struct fetching {
        struct list_link link; /* fetches.list; none over the socket */
        struct op *op;         /* NULL: the call gave up */
        struct kvl_ns *ns;     /* NULL: closed */
        enum fetch_way way;
        uint32_t first_plane, n_planes; /* as in struct op_fetch */
        int code;                       /* of the first page that failed; 0: none has */
        uint32_t failed;                /* index of that page; n: none */
        uint32_t n, n_ended;
        uint32_t next;         /* none before it is WAITING */
        uint32_t *page_tokens; /* socket only, after pages[]: for all the call's pages */
        struct fetch_page pages[];
};

static bool is_lookup(const struct op *op)
{
        return op->type->msg == MSG_LOOKUP || op->type->msg == MSG_SESSION_PAGES;
}

/* ---- what becomes of the call ------------------------------------------------------------------
 */

static uint64_t count_tokens(const struct op *op, const struct fetching *f, uint32_t n_pages)
{
        const struct fast *fast = &op->ns->fast;
        uint64_t n = 0;

        for (uint32_t i = 0; i < n_pages; i++)
                if (fast_is_open(fast))
                        n += fast->lines[op->pages[i]].tokens;
                else if (f && f->page_tokens)
                        n += f->page_tokens[i];
        return n;
}

/* Cuts the run to n_pages. */
static void cut_run(struct op *op, const struct fetching *f, uint32_t n_pages)
{
        if (n_pages < op->n_pages) {
                if (op->type->msg == MSG_LOOKUP)
                        op->n_tokens = count_tokens(op, f, n_pages);
                op->type->give_back(op->ns, op->pages + n_pages, op->n_pages - n_pages);
                op->n_pages = n_pages;
        }
        for (uint32_t i = 0; op->session_pages && i < n_pages; i++)
                op->session_pages[i].page = op->pages[i];
        if (n_pages == 0 && op->code == 0)
                op->code = KVL_MISS;
}

/* Number of pages, from the first on, that are on the device (`mapped`: and mapped). */
static uint32_t count_up(const struct op *op, bool mapped)
{
        const struct kvl_ns *ns = op->ns;
        uint32_t n = 0;

        while (n < op->n_pages && !ns_is_lower(ns, op->pages[n]) &&
                (!mapped || !ns->sets || ns_is_mapped(ns, ns_set_of(ns, op->pages[n]))))
                n++;
        return n;
}

/* Detaches the call, with the pages that could be brought up. */
static struct op *fetching_detach(struct fetching *f)
{
        struct op *op = TAKE(f->op);

        op->fetch.fetching = NULL;
        op->call.on_abandon = NULL;
        op->fetch.up = OP_UP;
        if (f->way == FETCH_UP)
                op->n_mapped = 0;
        if (is_lookup(op))
                cut_run(op, f, count_up(op, false));
        else
                op->code = f->code;
        op->fetch.failed = f->failed < f->n ? f->pages[f->failed].at : 0;
        return op;
}

static void fetching_free(struct fetching *f)
{
        list_remove(&f->link);
        free(f);
}

static void fetching_end(struct fetching *f)
{
        struct op *op;

        /* op_proceed() may find the connection broken, which ends all fetches in the list. */
        list_remove(&f->link);
        op = f->op ? fetching_detach(f) : NULL;
        fetching_free(f);
        if (op)
                op_proceed(op);
}

/* Gives up WAITING pages. */
static void fetching_stop(struct fetching *f)
{
        for (uint32_t i = f->next; i < f->n; i++)
                if (f->pages[i].state == FETCH_WAITING) {
                        f->pages[i].state = FETCH_ENDED;
                        f->n_ended++;
                }
        f->next = f->n;
}

static void note_failure(struct fetching *f, uint32_t i, int code)
{
        if (i < f->failed) {
                f->failed = i;
                f->code = code;
        }
        /* A lookup's run ends there. */
        if (f->op && is_lookup(f->op))
                fetching_stop(f);
}

/* ---- starting ----------------------------------------------------------------------------------
 */

/* Whether the fetch concerns this page. */
static bool is_meant(const struct op *op, uint32_t page)
{
        return op->fetch.way == FETCH_COPY ||
               ns_is_lower(op->ns, page) == (op->fetch.way == FETCH_UP);
}

static uint32_t count_meant(const struct op *op)
{
        uint32_t n = 0;

        for (uint32_t i = 0; i < op->n_pages; i++)
                n += is_meant(op, op->pages[i]);
        return n;
}

static void fetching_fill(struct fetching *f, const struct op *op)
{
        const struct fast *fast = &op->ns->fast;

        for (uint32_t i = 0; i < op->n_pages; i++) {
                struct fetch_page *p = &f->pages[f->n];

                if (!is_meant(op, op->pages[i]))
                        continue;
                *p = (struct fetch_page){.at = i, .page = op->pages[i]};
                if (op->fetch.way == FETCH_COPY)
                        p->to = op->fetch.targets[i];
                f->n++;
                if (!fast_is_open(fast))
                        continue;
                p->generation = (uint32_t)fast_generation(fast, p->page);
                memcpy(p->key, fast->lines[p->page].key, SHM_KEY_BYTES);
        }
        f->failed = f->n;
        if (!op->fetch.page_tokens)
                return;
        f->page_tokens = (uint32_t *)(void *)&f->pages[f->n];
        memcpy(f->page_tokens, op->fetch.page_tokens, op->n_pages * sizeof(*f->page_tokens));
}

/* ---- over the socket ---------------------------------------------------------------------------
 */

/* Gives back pins for a call that gave up. Returns false if there are no such pages. */
static bool give_back_fetched(struct kvl_ns *ns, const ProtobufCMessage *reply)
{
        const Kvlease__V1__FetchReply *m = (const Kvlease__V1__FetchReply *)reply;

        for (size_t i = 0; i < m->n_pages; i++) {
                if (m->n_statuses != m->n_pages ||
                        (m->statuses[i] == WIRE_OK && m->pages[i] >= ns->info.capacity_pages))
                        return false;
                if (m->statuses[i] == WIRE_OK)
                        give_back_pins(ns, &m->pages[i], 1);
        }
        return true;
}

/* The reply to FETCH for a call that gave up. */
static void on_late(struct conn *c, struct conn_call *call, int code, const ProtobufCMessage *reply,
        struct frame *frame)
{
        if (reply && call->type == MSG_FETCH && !give_back_fetched(call->cookie, reply))
                conn_finish_violated(c, call, "kvleased answered with a page beyond the namespace");
        else
                conn_finish(c, call, code);
}

static void on_fetched(struct conn *c, struct conn_call *call, int code,
        const ProtobufCMessage *reply, struct frame *frame);

/* Without shared memory: sends the next batch, if any is left. Returns 0 or as conn_start(). */
static int send_batch(struct fetching *f)
{
        Kvlease__V1__FetchRequest m = KVLEASE__V1__FETCH_REQUEST__INIT;
        uint32_t pages[BATCH_PAGES], targets[BATCH_PAGES];

        m.ns_id = f->ns->id;
        m.pages = pages;
        m.targets = targets;
        m.down = f->way == FETCH_DOWN;
        m.first_plane = f->first_plane;
        m.n_planes = f->n_planes;
        for (; f->next < f->n && m.n_pages < BATCH_PAGES; f->next++) {
                targets[m.n_pages] = f->pages[f->next].to;
                pages[m.n_pages++] = f->pages[f->next].page;
                f->pages[f->next].state = FETCH_BEGUN;
        }
        f->op->call.on_reply = on_fetched;
        f->op->call.on_late = on_late;
        if (f->way == FETCH_COPY) {
                m.n_targets = m.n_pages;
                f->op->call.on_late = NULL; /* it would give pins back */
        }
        return conn_start(conn_of(f->ns), &f->op->call, MSG_FETCH, &m.base);
}

/* Whether the daemon can have answered with this page. The namespace is open. */
static bool is_answer(const struct fetching *f, const struct fetch_page *p, uint32_t page)
{
        if (f->way == FETCH_COPY)
                return page == p->to;
        return page < f->ns->info.capacity_pages &&
               ns_is_lower(f->ns, page) == (f->way == FETCH_DOWN);
}

/* Returns what is wrong with the reply; NULL: nothing. n: pages asked for, those before f->next. */
static const char *check_reply(
        const struct fetching *f, const Kvlease__V1__FetchReply *m, uint32_t n)
{
        if (m->n_pages != n || m->n_statuses != n)
                return "kvleased answered with a wrong number of fetched pages";
        for (uint32_t i = 0; i < n; i++) {
                int code = status_from_wire(m->statuses[i]);

                if (code == -EPROTO ||
                        (code == 0 && !is_answer(f, &f->pages[f->next - n + i], m->pages[i])))
                        return "kvleased answered with a page that isn't where it was asked for";
        }
        return NULL;
}

/* Exchanges the pins of the batch. */
static void take_reply(struct fetching *f, const Kvlease__V1__FetchReply *m, uint32_t n)
{
        uint32_t old[BATCH_PAGES], n_old = 0, first = f->next - n;

        for (uint32_t i = 0; i < n; i++) {
                struct fetch_page *p = &f->pages[first + i];
                int code = status_from_wire(m->statuses[i]);

                p->state = FETCH_ENDED;
                f->n_ended++;
                if (code != 0) {
                        note_failure(f, first + i, code == -ENOENT ? KVL_MISS : code);
                        continue;
                }
                if (f->way == FETCH_UP)
                        old[n_old++] = p->page;
                if (f->way != FETCH_COPY)
                        f->op->pages[p->at] = m->pages[i];
        }
        give_back_pins(f->ns, old, n_old);
}

/* Handles the reply to a batch. */
static void on_fetched(struct conn *c, struct conn_call *call, int code,
        const ProtobufCMessage *reply, struct frame *frame)
{
        const Kvlease__V1__FetchReply *m = (const Kvlease__V1__FetchReply *)reply;
        struct op *op = container_of(call, struct op, call);
        struct fetching *f = op->fetch.fetching;
        uint32_t n = 0;
        const char *wrong;

        while (n < f->next && f->pages[f->next - n - 1].state == FETCH_BEGUN)
                n++;
        wrong = m && code == 0 ? check_reply(f, m, n) : NULL;
        if (wrong) {
                fetching_detach(f);
                fetching_free(f);
                conn_finish_violated(c, call, wrong);
                return;
        }
        if (m && code == 0)
                take_reply(f, m, n);
        else
                note_failure(f, 0, code);
        if (m && (code != 0 || f->next == f->n)) {
                fetching_end(f);
                return;
        }
        if (m)
                code = send_batch(f);
        if (code == 0)
                return;
        fetching_detach(f);
        fetching_free(f);
        op_fail(op, code);
}

/* ---- through the rings: beginning ---------------------------------------------------------------
 */

/* The call gives up. BEGUN pages end by themselves. */
static void on_abandon(struct conn_call *call)
{
        struct op *op = container_of(call, struct op, call);
        struct fetching *f = op->fetch.fetching;

        f->op = NULL;
        op->fetch.fetching = NULL;
        call->on_abandon = NULL;
        fetching_stop(f);
        if (f->n_ended == f->n)
                fetching_free(f);
}

static void begin_shared(struct fetching *f)
{
        struct kvl_conn *conn = f->ns->conn;

        f->op->call.type = 0;
        conn_start_beside(conn->conn, &f->op->call, on_abandon);
        list_append(&conn->fetches.list, &f->link);
        if (fetches_submit(conn) < 0)
                conn_break(conn->conn, -EPROTO, "kvleased broke the rules of the rings");
}

int fetching_prepare(struct op *op)
{
        uint32_t n = count_meant(op);
        size_t tokens_bytes = op->fetch.page_tokens ? op->n_pages * sizeof(uint32_t) : 0;
        struct fetching *f;

        op->fetch.up = OP_UP;
        if (n == 0)
                return 0;
        f = calloc(1, sizeof(*f) + n * sizeof(f->pages[0]) + tokens_bytes);
        if (!f)
                return -ENOMEM;
        list_init(&f->link);
        f->op = op;
        f->ns = op->ns;
        f->way = op->fetch.way;
        f->first_plane = op->fetch.first_plane;
        f->n_planes = op->fetch.n_planes;
        fetching_fill(f, op);
        op->fetch.fetching = f;
        op->fetch.up = OP_PREPARED;
        return 0;
}

static int begin_fetching(struct op *op)
{
        bool is_shared = fast_is_open(&op->ns->fast);
        struct fetching *f = op->fetch.fetching;
        struct conn *c = conn_of(op->ns);
        int r;

        op->fetch.up = OP_FETCHING;
        if (is_shared && !c->broken) {
                begin_shared(f);
                return 1;
        }
        r = c->broken ? -ENOTCONN : send_batch(f);
        if (r == 0)
                return 1;
        /* In shared memory a run ends where the device's pages end, and mapped ones are of use. */
        f->code = r;
        fetching_detach(f);
        fetching_free(f);
        return is_shared && is_lookup(op) ? 0 : r;
}

static int give_up(struct op *op)
{
        op->fetch.up = OP_UP;
        if (is_lookup(op))
                cut_run(op, op->fetch.fetching, count_up(op, true));
        else
                op->code = -ETIMEDOUT;
        fetching_drop(op);
        return op->code;
}

void fetching_drop(struct op *op)
{
        free(TAKE(op->fetch.fetching));
}

const struct op_fetch_steps fetch_steps = {
        .prepare = fetching_prepare,
        .begin = begin_fetching,
        .give_up = give_up,
        .drop = fetching_drop,
};

/* ---- through the rings -------------------------------------------------------------------------
 */

void fetches_init(struct kvl_conn *conn)
{
        list_init(&conn->fetches.list);
}

void fetches_deinit(struct kvl_conn *conn)
{
        list_for_each_safe (f, &conn->fetches.list, struct fetching, link)
                fetching_free(f);
}

static struct fetch_slot *free_slot(struct fetches *all)
{
        for (uint32_t i = 0; i < FETCHES_MAX; i++)
                if (!all->slots[i].fetching)
                        return &all->slots[i];
        return NULL;
}

/* The next WAITING page; n: none. */
static uint32_t next_waiting(struct fetching *f)
{
        while (f->next < f->n && f->pages[f->next].state != FETCH_WAITING)
                f->next++;
        return f->next;
}

/* Limits the submission to some planes. Returns false if it has all, or the daemon is too old for
 * less. */
static bool name_planes(const struct fetching *f, const struct ring *ring, struct shm_submission *s)
{
        uint32_t last_op = atomic_load_explicit(&ring->header->last_op, memory_order_relaxed);

        if (f->n_planes == 0 || last_op < SHM_OP_FETCH_PLANES)
                return false;
        s->op = SHM_OP_FETCH_PLANES;
        s->copy.first_plane = f->first_plane;
        s->copy.n_planes = f->n_planes;
        return true;
}

static void begin_page(struct kvl_conn *conn, struct fetching *f, uint32_t index, uint32_t entry)
{
        struct fetches *all = &conn->fetches;
        struct ring *ring = &conn->flights.ring;
        struct fetch_slot *slot = free_slot(all);
        struct fetch_page *p = &f->pages[index];
        struct shm_submission *s = ring_entry(ring, entry, SHM_OP_FETCH, f->ns->id, 0);

        if (f->way == FETCH_COPY) {
                s->copy.to = p->to;
                s->flags = name_planes(f, ring, s) ? 0 : SHM_FETCH_COPY;
        } else if (f->way == FETCH_DOWN) {
                s->flags = SHM_FETCH_DOWN;
        }
        *slot = (struct fetch_slot){
                .fetching = f,
                .index = index,
                .user_data = FETCH_USER_DATA | ++all->serial << SLOT_BITS |
                             (uint64_t)(slot - all->slots),
                .position = ring->tail + entry,
        };
        s->page = p->page;
        s->aux = p->generation;
        s->user_data = slot->user_data;
        /* The call's pin may be released before the daemon sees this. */
        fast_pin(&f->ns->fast, &p->page, 1);
        p->state = FETCH_BEGUN;
        all->n_begun++;
}

int fetches_submit(struct kvl_conn *conn)
{
        struct fetches *all = &conn->fetches;
        uint32_t n = 0;
        int room;

        if (list_is_empty(&all->list) || all->n_begun == FETCHES_MAX)
                return 0;
        room = ring_begin(&conn->flights.ring);
        if (room < 0)
                return room;
        list_for_each (f, &all->list, struct fetching, link)
                while (n < (uint32_t)room && all->n_begun < FETCHES_MAX && next_waiting(f) < f->n)
                        begin_page(conn, f, f->next, n++);
        ring_commit(&conn->flights.ring, n);
        if (n > 0)
                flights_ring(conn);
        return 0;
}

/* Frees the slot: its page isn't under way any more. */
static void release_slot(struct fetches *all, struct fetch_slot *slot)
{
        struct fetching *f = TAKE(slot->fetching);
        uint32_t page;

        all->n_begun--;
        if (f->ns)
                fast_release(&f->ns->fast, &f->pages[slot->index].page, 1, &page);
}

static void wait_again(struct fetching *f, uint32_t index)
{
        f->pages[index].state = FETCH_WAITING;
        f->next = MIN(f->next, index);
}

/* Pins the page that the daemon named, in exchange for the submitted one. Returns false if it was
 * evicted again. */
static bool exchange_pins(struct fetching *f, const struct fetch_page *p, uint32_t page)
{
        struct fast *fast = &f->ns->fast;
        uint32_t failed;

        if (f->way == FETCH_COPY)
                return true;
        if (!fast_pin_key(fast, page, p->key))
                return false;
        f->op->pages[p->at] = page;
        if (f->way == FETCH_UP)
                fast_release(fast, &p->page, 1, &failed);
        return true;
}

/* A page of a waiting call ended with `code`. Returns true if it is to be asked for again. */
static bool take_result(struct fetching *f, uint32_t index, int code, uint32_t page)
{
        struct fetch_page *p = &f->pages[index];

        if (code == 0 && exchange_pins(f, p, page))
                return false;
        /* The daemon is at its limit, with fetches from before a restart: ask again when one of
         * ours has ended. */
        if (code == -EBUSY && f->ns->conn->fetches.n_begun > 0)
                return true;
        if (p->n_repeats < (code == 0 ? MAX_REPEATS : code == -ECANCELED)) {
                p->n_repeats++;
                return true;
        }
        note_failure(f, index, code == 0 || code == -ENOENT ? KVL_MISS : code);
        return false;
}

/* Returns NULL if there is no such fetch under way. */
static struct fetch_slot *slot_of(struct fetches *all, uint64_t user_data)
{
        struct fetch_slot *slot = &all->slots[user_data % FETCHES_MAX];

        return slot->fetching && slot->user_data == user_data ? slot : NULL;
}

int fetches_take(struct kvl_conn *conn, const struct shm_completion *c)
{
        struct fetches *all = &conn->fetches;
        struct fetch_slot *slot = slot_of(all, c->user_data);
        int code = status_from_wire(c->status);
        struct fetching *f;
        uint32_t index;

        if (!slot) /* asked for twice, answered twice */
                return all->was_resumed ? 0 : -EPROTO;
        f = slot->fetching;
        index = slot->index;
        if (code == -EPROTO || (code == 0 && f->ns && !is_answer(f, &f->pages[index], c->page)))
                return -EPROTO;
        release_slot(all, slot);
        if (f->op && take_result(f, index, code, c->page)) {
                wait_again(f, index);
                return 0;
        }
        f->pages[index].state = FETCH_ENDED;
        if (++f->n_ended == f->n)
                fetching_end(f);
        return 0;
}

void fetches_broken(struct kvl_conn *conn, int code, const char *why)
{
        struct fetches *all = &conn->fetches;
        struct fetching *f;

        for (uint32_t i = 0; i < FETCHES_MAX; i++)
                if (all->slots[i].fetching)
                        release_slot(all, &all->slots[i]);
        while ((f = list_first(&all->list, struct fetching, link))) {
                if (f->op) {
                        note_failure(f, 0, code);
                        snprintf(f->op->call.detail, sizeof(f->op->call.detail), "%s", why);
                }
                fetching_end(f);
        }
}

void fetches_resume(struct kvl_conn *conn)
{
        conn->fetches.resume_head = ring_look_at_head(&conn->flights.ring);
        conn->fetches.was_resumed = true;
}

void fetches_back(struct kvl_conn *conn)
{
        struct fetches *all = &conn->fetches;

        for (uint32_t i = 0; i < FETCHES_MAX; i++) {
                struct fetch_slot *slot = &all->slots[i];
                struct fetching *f = slot->fetching;

                if (!f || slot->position >= all->resume_head)
                        continue;
                release_slot(all, slot);
                if (f->op) {
                        wait_again(f, slot->index);
                        continue;
                }
                f->pages[slot->index].state = FETCH_ENDED;
                if (++f->n_ended == f->n)
                        fetching_end(f);
        }
        if (fetches_submit(conn) < 0)
                conn_break(conn->conn, -EPROTO, "kvleased broke the rules of the rings");
}

void fetches_forget_ns(struct kvl_ns *ns)
{
        list_for_each (f, &ns->conn->fetches.list, struct fetching, link)
                if (f->ns == ns)
                        f->ns = NULL;
}

/* ---- calls -------------------------------------------------------------------------------------
 */

const struct op_type op_type_fetch = {
        .msg = MSG_FETCH,
        .populates = true,
        .fetch = &fetch_steps,
};

static int check_fetch(const struct kvl_ns *ns, const uint32_t *pages, uint32_t n, uint32_t max)
{
        int r = args_check_pages(ns, pages, n, max);

        for (uint32_t i = 0; r == 0 && fast_is_open(&ns->fast) && i < n; i++)
                if (!fast_is_pinned(&ns->fast, pages[i]))
                        r = error_set(-EINVAL, "page %u isn't pinned by this connection", pages[i]);
        return r;
}

int kvl_fetch(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages, uint32_t *ret_pages)
{
        struct op op;
        int r = check_fetch(ns, pages, n_pages, UINT32_MAX);

        if (r == 0 && !ret_pages)
                r = error_set(-EINVAL, "there is no room for the pages");
        if (r < 0)
                return r;
        memmove(ret_pages, pages, n_pages * sizeof(*pages));
        if (ns_are_populated(ns, ret_pages, n_pages))
                return 0;
        op_init(&op, ns, &op_type_fetch, ret_pages, n_pages);
        op.n_pages = n_pages;
        return op_run_mapping(&op, client_deadline(ns->conn));
}

int kvl_fetch_start(
        struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages, kvl_done_fn done, void *data)
{
        struct op *op;
        int r = check_fetch(ns, pages, n_pages, KVL_MAX_LEASE_PAGES);

        if (r == 0)
                r = op_new_with(ns, &op_type_fetch, pages, n_pages, done, data, &op);
        if (r < 0)
                return r;
        op->n_pages = n_pages;
        return op_start_done(op, 0);
}
