/* Followers of the cache (<kvlease.h>): a connection that finds feeds, and the events from them. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/macros.h"
#include "client/lib/connection/conn.h"
#include "client/lib/connection/error.h"
#include "client/lib/follow/feed-reader.h"
#include "client/lib/kvlease.h"
#include "client/lib/objects/args.h"
#include "client/lib/objects/process.h"
#include "proto/status.h"

#define ASK_NSEC  NSEC_PER_SEC         /* between two questions for namespaces; not tuned */
#define LOOK_NSEC (10 * NSEC_PER_MSEC) /* between two looks at the feeds; not tuned */

/* How long one try to connect again may take. */
#define CONNECT_NSEC (100 * NSEC_PER_MSEC)

/* How long a connection waits for the next daemon before it is given up for a new one. */
#define PATIENCE_MSEC 60000

/* Events of one namespace before the next one's turn. Not tuned. */
#define EVENTS_PER_TURN 1024

enum step {
        STEP_NEW,   /* NAMESPACE is next */
        STEP_RESET, /* RESET is next */
        STEP_COPY,  /* pages of the copy are told; then SYNCED */
        STEP_LIVE,
        STEP_GONE, /* GONE was told */
};

struct followed {
        struct kvl_follow_ns ns; /* strings are in `texts` */
        struct list_link link;   /* kvl_follower.followed */
        char *texts;             /* owned */
        struct feed_reader reader;
        enum step step;
        uint32_t n_told; /* of the copy */
        bool is_listed;  /* in the current round of questions */
        bool is_gone;    /* kvleased doesn't list it any more */
};

struct kvl_follower {
        unsigned n_forks;
        char *path, *name; /* owned */
        char *tenant;      /* owned; NULL: any */
        int timeout_msec;
        struct conn *conn; /* owned; NULL: away */
        /* A question under way (is_asking), with its answer. */
        struct conn_call call;
        bool is_asking;
        bool is_outdated; /* the answer belongs to an earlier round */
        bool is_client;   /* of a tenant */
        uint64_t after;   /* namespaces up to this id were answered */
        bool lists_anew;  /* since the connection was made, no round has ended */
        uint64_t ask_at;  /* the next question, or try to connect */
        struct list_link followed;
        struct followed *turn; /* whose turn it is; NULL: the first's */
        uint32_t n_of_turn;
        uint64_t last_id;
};

/* ---- namespaces ------------------------------------------------------------------------------ */

static void followed_free(struct kvl_follower *f, struct followed *d)
{
        if (f->turn == d)
                f->turn = NULL;
        feed_reader_close(&d->reader);
        list_remove(&d->link);
        free(d->texts);
        free(d);
}

/* Appends a copy of a text at *at, and returns it. */
static char *put_text(char **at, const char *text)
{
        char *copy = *at;
        size_t bytes = strlen(text) + 1;

        memcpy(copy, text, bytes);
        *at += bytes;
        return copy;
}

/* Copies the reply's fields. Returns 0 or -ENOMEM. */
static int describe(struct followed *d, const Kvlease__V1__FeedReply *m)
{
        char *at = malloc(strlen(m->tenant) + strlen(m->name) + strlen(m->model) +
                          strlen(m->version) + 4 + m->format.len);

        if (!at)
                return -ENOMEM;
        d->texts = at;
        d->ns.tenant = put_text(&at, m->tenant);
        d->ns.name = put_text(&at, m->name);
        d->ns.model = put_text(&at, m->model);
        d->ns.version = put_text(&at, m->version);
        if (m->format.len > 0)
                memcpy(at, m->format.data, m->format.len);
        d->ns.format = at;
        d->ns.format_bytes = m->format.len;
        d->ns.page_tokens = m->page_tokens;
        d->ns.layer_group = m->layer_group;
        d->ns.tp_rank = m->tp_rank;
        d->ns.tp_size = m->tp_size;
        return 0;
}

/* Follows the namespace of a reply, unless it is followed already; takes the descriptor. Returns 0;
 * -ENOMEM; another -errno: the segment is of no use. */
static int follow_feed(struct kvl_follower *f, const Kvlease__V1__FeedReply *m, int fd)
{
        struct followed *d;
        int r;

        list_for_each (it, &f->followed, struct followed, link)
                if (it->step != STEP_GONE && feed_reader_is_of(&it->reader, fd)) {
                        it->is_listed = true;
                        fd_close(fd);
                        return 0;
                }
        d = calloc(1, sizeof(*d));
        r = d ? describe(d, m) : -ENOMEM;
        if (r < 0)
                fd_close(fd);
        else
                r = feed_reader_open(&d->reader, fd, m->bytes);
        if (r < 0) {
                if (d)
                        free(d->texts);
                free(d);
                return r;
        }
        d->ns.id = ++f->last_id;
        d->is_listed = true;
        list_append(&f->followed, &d->link);
        return 0;
}

/* ---- the connection -------------------------------------------------------------------------- */

/* All namespaces are asked for again: a daemon that came back may lack some. */
static void list_anew(struct kvl_follower *f)
{
        f->after = 0;
        f->ask_at = 0;
        f->lists_anew = true;
        f->is_outdated = f->is_asking;
        list_for_each (d, &f->followed, struct followed, link)
                d->is_listed = false;
}

static int on_news(struct conn *c, const struct conn_event *event, enum conn_news news, void *data)
{
        (void)c;
        (void)event;
        if (news == CONN_NEWS_BACK)
                list_anew(data);
        return 0;
}

static void hang_up(struct kvl_follower *f)
{
        conn_close(TAKE(f->conn));
        f->is_asking = f->is_outdated = false;
        f->ask_at = clock_now_nsec() + ASK_NSEC;
}

/* A tenant's client goes on with the next daemon as the same client. Returns 0, or -errno with the
 * sentence. */
static int outlive(
        struct kvl_follower *f, const struct conn_hello *hello, const struct conn_welcome *welcome)
{
        int r = 0;

        conn_lock(f->conn);
        f->conn->events.tell = on_news;
        f->conn->events.data = f;
        if (welcome->can_resume) {
                r = conn_make_pollable(f->conn);
                if (r == 0)
                        r = conn_outlive(f->conn, f->path, hello, welcome, PATIENCE_MSEC);
        }
        conn_unlock(f->conn);
        return r;
}

static int connect_to(struct kvl_follower *f, uint64_t deadline_nsec)
{
        const struct conn_hello hello = {.client_name = f->name, .metadata_only = true};
        struct conn_welcome welcome;
        int r = conn_open(f->path, deadline_nsec, &f->conn);

        if (r < 0) {
                f->conn = NULL;
                return r;
        }
        r = conn_hello(f->conn, &hello, deadline_nsec, &welcome);
        if (r == 0)
                r = outlive(f, &hello, &welcome);
        if (r != 0) {
                hang_up(f);
                return r;
        }
        f->is_client = welcome.tenant[0];
        list_anew(f);
        return 0;
}

/* All namespaces were listed. */
static void end_round(struct kvl_follower *f)
{
        f->ask_at = clock_now_nsec() + ASK_NSEC;
        if (!f->lists_anew)
                return;
        f->lists_anew = false;
        list_for_each (d, &f->followed, struct followed, link)
                d->is_gone |= !d->is_listed;
}

static void on_feed(struct conn *c, struct conn_call *call, int code, const ProtobufCMessage *reply,
        struct frame *frame)
{
        struct kvl_follower *f = container_of(call, struct kvl_follower, call);
        const Kvlease__V1__FeedReply *m = (const Kvlease__V1__FeedReply *)reply;

        if (reply && code == 0 && !f->is_outdated) {
                if (frame->header.fd_count != 1 || m->id <= f->after || m->page_tokens == 0) {
                        conn_finish_violated(c, call, "kvleased sent a feed that makes no sense");
                        return;
                }
                code = follow_feed(f, m, fd_take(&frame->fds[0]));
                if (code != -ENOMEM) {
                        f->after = m->id;
                        code = 0; /* a segment of another layout is left out */
                }
        }
        conn_finish(c, call, code);
}

/* Asks for the next namespace. */
static void ask_next(struct kvl_follower *f)
{
        Kvlease__V1__FeedRequest m = KVLEASE__V1__FEED_REQUEST__INIT;
        int r;

        m.after = f->after;
        if (f->tenant)
                m.tenant = f->tenant;
        f->call = (struct conn_call){.on_reply = on_feed};
        conn_lock(f->conn);
        r = conn_start(f->conn, &f->call, MSG_FEED, &m.base);
        conn_unlock(f->conn);
        f->is_asking = r == 0;
        if (r < 0)
                hang_up(f);
}

/* Takes the answer, if it has come. Returns its code; 0: none came. */
static int take_answer(struct kvl_follower *f)
{
        int r;

        if (conn_dispatch(f->conn) < 0) {
                hang_up(f);
                return 0;
        }
        if (!f->is_asking || !f->call.is_done)
                return 0;
        r = f->call.code;
        f->is_asking = false;
        if (f->is_outdated) {
                f->is_outdated = false;
                return 0;
        }
        if (r == KVL_MISS)
                end_round(f);
        else if (r == 0)
                f->ask_at = 0; /* for the next one at once */
        else
                f->ask_at = clock_now_nsec() + ASK_NSEC;
        return r;
}

/* Goes on with the connection, as far as it can without waiting for answers. Returns 0 or
 * -ENOMEM. */
static int look_for_namespaces(struct kvl_follower *f)
{
        int r = 0;

        for (;;) {
                uint64_t now = clock_now_nsec();

                if (!f->conn && now >= f->ask_at && connect_to(f, now + CONNECT_NSEC) != 0)
                        f->ask_at = clock_now_nsec() + ASK_NSEC;
                if (!f->conn)
                        return r;
                if (!f->is_asking && now >= f->ask_at)
                        ask_next(f);
                if (f->conn)
                        r = take_answer(f);
                if (r != 0 || f->is_asking || !f->conn || f->ask_at > 0)
                        return r == -ENOMEM ? r : 0;
        }
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Takes the names of a text. Without them its tokens are of no use. */
static void fill_names(struct kvl_follow_event *e, const struct shm_feed_line *line)
{
        const char *lora = line->names, *salt;
        size_t n = strnlen(lora, sizeof(line->names)), left = sizeof(line->names) - n;

        if (left < 2 || strnlen(lora + n + 1, left - 1) == left - 1) {
                e->token_ids = NULL;
                return;
        }
        salt = lora + n + 1;
        e->lora_name = lora[0] ? lora : NULL;
        e->cache_salt = salt[0] ? salt : NULL;
}

static void fill_page(struct kvl_follow_event *e, const struct shm_feed_line *line)
{
        e->key = line->key;
        e->n_tokens = line->tokens;
        e->tier = line->tier;
        if (e->kind == KVL_FOLLOW_REMOVED)
                return;
        e->parent_key = line->depth > 1 ? line->parent : NULL;
        e->token_ids = feed_line_ids(line);
        e->depth = line->depth;
        e->tag = line->tag;
        if (line->depth == 1 && e->token_ids)
                fill_names(e, line);
}

/* The two steps of a copy. Return 1: an event; 0: none yet; -ENOMEM. */
static int begin_copy(struct followed *d, struct kvl_follow_event *e)
{
        int r = feed_reader_copy(&d->reader);

        if (r < 0)
                return r == -EAGAIN ? 0 : error_set(r, "out of memory");
        d->step = STEP_COPY;
        d->n_told = 0;
        e->kind = KVL_FOLLOW_RESET;
        return 1;
}

static int tell_copy(struct followed *d, struct kvl_follow_event *e)
{
        if (d->n_told < d->reader.n_pages) {
                e->kind = KVL_FOLLOW_STORED;
                fill_page(e, d->reader.pages[d->n_told++]);
                return 1;
        }
        feed_reader_drop_copy(&d->reader);
        d->step = STEP_LIVE;
        e->kind = KVL_FOLLOW_SYNCED;
        return 1;
}

/* Translates a change. Returns false if users need not know of it. */
static bool tell_change(const struct feed_change *c, struct kvl_follow_event *e)
{
        static const enum kvl_follow_kind kinds[] = {
                [SHM_FEED_STORED] = KVL_FOLLOW_STORED,
                [SHM_FEED_REMOVED] = KVL_FOLLOW_REMOVED,
                [SHM_FEED_MOVED] = KVL_FOLLOW_MOVED,
                [SHM_FEED_CLEARED] = KVL_FOLLOW_CLEARED,
        };

        if (c->kind >= ARRAY_SIZE(kinds) || kinds[c->kind] == 0)
                return false;
        e->kind = kinds[c->kind];
        if (e->kind == KVL_FOLLOW_CLEARED)
                return true;
        fill_page(e, c->line);
        if (e->kind != KVL_FOLLOW_MOVED)
                return true;
        e->from_tier = c->from_tier;
        return e->tier != e->from_tier;
}

/* Returns 1: an event; 0: none; -EAGAIN: overtaken. */
static int tell_live(struct followed *d, struct kvl_follow_event *e)
{
        struct feed_change change;
        int r;

        while ((r = feed_reader_next(&d->reader, &change)) > 0) {
                *e = (struct kvl_follow_event){.ns = &d->ns};
                if (tell_change(&change, e))
                        return 1;
        }
        return r;
}

static bool has_ended(const struct followed *d)
{
        return d->is_gone || feed_reader_has_ended(&d->reader);
}

/* The next event of one namespace. Returns 1, 0 or -ENOMEM. */
static int tell_next(struct followed *d, struct kvl_follow_event *e)
{
        bool ended = has_ended(d); /* changes before the end are seen after this */
        int r = 0;

        *e = (struct kvl_follow_event){.ns = &d->ns};
        if (d->step == STEP_NEW) {
                d->step = STEP_RESET;
                e->kind = KVL_FOLLOW_NAMESPACE;
                return 1;
        }
        if (d->step == STEP_COPY)
                return tell_copy(d, e);
        if (d->step == STEP_LIVE)
                r = tell_live(d, e);
        if (r > 0)
                return r;
        if (ended) {
                d->step = STEP_GONE;
                e->kind = KVL_FOLLOW_GONE;
                return 1;
        }
        if (r == -EAGAIN)
                d->step = STEP_RESET;
        return d->step == STEP_RESET ? begin_copy(d, e) : 0;
}

static struct followed *followed_after(const struct kvl_follower *f, const struct followed *d)
{
        struct list_link *next = d ? d->link.next : f->followed.next;

        if (next == &f->followed)
                next = f->followed.next;
        return list_entry(next, struct followed, link);
}

/* The next event of any namespace, in turns. */
static int tell_any(struct kvl_follower *f, struct kvl_follow_event *e)
{
        const struct followed *first = NULL;

        if (list_is_empty(&f->followed))
                return 0;
        if (!f->turn || f->n_of_turn >= EVENTS_PER_TURN) {
                f->turn = followed_after(f, f->turn);
                f->n_of_turn = 0;
        }
        while (f->turn != first) {
                int r = tell_next(f->turn, e);

                first = first ? first : f->turn;
                f->n_of_turn++;
                if (r != 0)
                        return r;
                f->turn = followed_after(f, f->turn);
                f->n_of_turn = 0;
        }
        return 0;
}

static void free_gone(struct kvl_follower *f)
{
        list_for_each_safe (d, &f->followed, struct followed, link)
                if (d->step == STEP_GONE)
                        followed_free(f, d);
}

static int check(const struct kvl_follower *f)
{
        return f ? process_check(f->n_forks) : error_set(-EINVAL, "no follower was given");
}

int kvl_follow_next(
        struct kvl_follower *follower, int timeout_msec, struct kvl_follow_event *ret_event)
{
        uint64_t deadline = conn_deadline(timeout_msec);
        struct kvl_follow_event e;
        int r = check(follower);

        if (r == 0)
                r = ret_event ? abi_check_size(ret_event, "event's")
                              : error_set(-EINVAL, "there is no room for the event");
        if (r < 0)
                return r;
        free_gone(follower);
        for (;;) {
                struct timespec pause;
                uint64_t now;

                r = look_for_namespaces(follower);
                if (r == 0)
                        r = tell_any(follower, &e);
                now = clock_now_nsec();
                if (r != 0 || now >= deadline)
                        break;
                pause = conn_timespec(MIN(LOOK_NSEC, deadline - now));
                nanosleep(&pause, NULL);
        }
        if (r > 0)
                abi_fill(ret_event, &e, sizeof(e));
        return r;
}

int kvl_follow_is_connected(const struct kvl_follower *follower)
{
        return follower && check(follower) == 0 && follower->conn &&
               follower->conn->link == CONN_UP;
}

void kvl_follow_reset(struct kvl_follower *follower)
{
        if (check(follower) < 0)
                return;
        list_for_each (d, &follower->followed, struct followed, link)
                if (d->step == STEP_COPY || d->step == STEP_LIVE)
                        d->step = STEP_RESET;
}

/* ---- life ------------------------------------------------------------------------------------ */

/* In a forked child, only the child's own copies end. */
void kvl_follow_close(struct kvl_follower *follower)
{
        if (!follower)
                return;
        if (process_check(follower->n_forks) < 0) {
                if (follower->conn)
                        conn_close_in_child(follower->conn);
                return;
        }
        list_for_each_safe (d, &follower->followed, struct followed, link)
                followed_free(follower, d);
        if (follower->conn && follower->is_client)
                conn_say_bye(follower->conn);
        conn_close(follower->conn);
        free(follower->path);
        free(follower->name);
        free(follower->tenant);
        free(follower);
}

/* Connects, and asks for the first namespace: an old kvleased refuses that. */
static int begin_following(struct kvl_follower *f)
{
        uint64_t deadline = conn_deadline(f->timeout_msec);
        int r = connect_to(f, deadline);

        if (r != 0)
                return r;
        ask_next(f);
        if (!f->conn)
                return error_set(-ENOTCONN, "kvleased hung up");
        conn_lock(f->conn);
        r = conn_wait(f->conn, &f->call, deadline);
        conn_unlock(f->conn);
        if (r == KVL_MISS)
                r = 0;
        return r == 0 ? take_answer(f), 0 : error_note(r, f->call.detail);
}

int kvl_follow_open(const struct kvl_follow_options *options, struct kvl_follower **ret_follower)
{
        struct kvl_follow_options o;
        struct kvl_follower *f;
        int r;

        if (!ret_follower)
                return error_set(-EINVAL, "there is no room for the follower");
        r = abi_copy_options(&o, sizeof(o), options);
        if (r < 0)
                return r;
        f = process_watch_forks() < 0 ? NULL : calloc(1, sizeof(*f));
        if (!f)
                return error_set(-ENOMEM, "out of memory");
        f->n_forks = atomic_load(&process_n_forks);
        f->timeout_msec = o.timeout_msec ? o.timeout_msec : CONN_TIMEOUT_MSEC;
        list_init(&f->followed);
        f->path = strdup(conn_socket_path(o.socket_path));
        f->name = strdup(o.client_name ? o.client_name : program_invocation_short_name);
        f->tenant = o.tenant ? strdup(o.tenant) : NULL;
        r = f->path && f->name && !f->tenant == !o.tenant ? begin_following(f)
                                                          : error_set(-ENOMEM, "out of memory");
        if (r != 0) {
                kvl_follow_close(f);
                return r;
        }
        *ret_follower = f;
        return 0;
}
