#include "daemon/server/peers/key-waits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/clients/announce.h"
#include "daemon/core/state/store.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/answer.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/pending.h"
#include "proto/status.h"

/* Waits for one key; very seldom for two with one hash: a wait that is looked at in vain waits
 * again. */
struct key_group {
        struct list_link
                link; /* server.key_waits.due; or empty, and server.key_waits.groups has it */
        struct list_link waits; /* struct key_wait.link; not empty */
        struct server *server;  /* borrowed */
        uint64_t hash;
};

struct key_wait {
        struct list_link link; /* key_group.waits */
        struct pending pending;
        struct key_group *group; /* NULL: it is about to be answered */
        uint8_t key[KEY_BYTES];
        uv_timer_t timer; /* of the deadline; its close callback frees this */
};

static void on_closed(uv_handle_t *timer)
{
        free(container_of((uv_timer_t *)timer, struct key_wait, timer));
}

static uint64_t hash_of(const struct store *s, const struct ns *ns, const uint8_t *key)
{
        const uint64_t what[] = {ns->id, store_hash_key(s, key)};

        return hash_bytes(s->secret, what, sizeof(what)) >> 1; /* never MAP_KEY_NONE */
}

static struct key_group *find_group(const struct server *s, uint64_t hash)
{
        const uint64_t *found = map_find(&s->key_waits.groups, hash);

        return found ? (struct key_group *)(uintptr_t)*found : NULL;
}

/* Makes an empty group. NULL: no memory. */
static struct key_group *make_group(struct server *s, uint64_t hash)
{
        struct key_group *g = calloc(1, sizeof(*g));

        if (!g)
                return NULL;
        *g = (struct key_group){.server = s, .hash = hash};
        list_init(&g->link);
        list_init(&g->waits);
        if (map_put(&s->key_waits.groups, hash, (uintptr_t)g) == 0)
                return g;
        free(g);
        return NULL;
}

/* 0, or -ENOMEM. */
static int join_group(struct key_wait *w, struct server *s)
{
        uint64_t hash = hash_of(&s->store, w->pending.attach->ns, w->key);
        struct key_group *g = find_group(s, hash);

        if (!g)
                g = make_group(s, hash);
        if (!g)
                return -ENOMEM;
        w->group = g;
        list_append(&g->waits, &w->link);
        return 0;
}

static void leave_group(struct key_wait *w)
{
        struct key_group *g = w->group;

        list_remove(&w->link);
        w->group = NULL;
        if (!list_is_empty(&g->waits))
                return;
        if (list_is_empty(&g->link))
                (void)map_remove(&g->server->key_waits.groups, g->hash);
        list_remove(&g->link);
        free(g);
}

static void forget_key_wait(struct key_wait *w)
{
        if (w->group)
                leave_group(w);
        pending_remove(&w->pending);
        uv_close((uv_handle_t *)&w->timer, on_closed);
}

static void drop_key_wait(struct pending *w)
{
        forget_key_wait(container_of(w, struct key_wait, pending));
}

static const struct pending_ops pending_ops = {PENDING_KEY, drop_key_wait, NULL, NULL};

static void answer_key_wait(struct key_wait *w, int code, const char *sentence)
{
        answer_refuse(w->pending.peer, &w->pending.request, code, sentence);
        forget_key_wait(w);
}

static void on_deadline(uv_timer_t *timer)
{
        struct key_wait *w = container_of(timer, struct key_wait, timer);

        answer_key_wait(w, KVL_STATUS_TIMEOUT, "the key is still being computed");
}

int key_waits_ask(struct request *rq, const uint8_t *key, uint64_t timeout_msec)
{
        struct server *s = rq->server;
        struct key_wait *w;

        if (rq->peer->waits[PENDING_KEY].n >= KEY_WAITS_MAX)
                return detail_set(&rq->detail, -EBUSY,
                        "%d WAITs of this connection aren't answered yet, the most there may be",
                        KEY_WAITS_MAX);
        w = sizeof(*w) > pending_left(rq->peer) ? NULL : calloc(1, sizeof(*w));
        if (w) {
                w->pending.attach = rq->attach;
                memcpy(w->key, key, KEY_BYTES);
        }
        if (!w || join_group(w, s) < 0) {
                free(w);
                return detail_set(&rq->detail, -ENOMEM, "%s", PENDING_FULL_TEXT);
        }
        pending_add(&w->pending, rq->peer, &pending_ops, sizeof(*w), rq->header, false);
        rq->is_deferred = true;
        uv_timer_init(&s->loop.uv, &w->timer);
        uv_update_time(&s->loop.uv); /* else the timer would be early by the time of this turn */
        /* The loop counts whole milliseconds: add one, so that it isn't early. */
        uv_timer_start(&w->timer, on_deadline, (uint64_t)timeout_msec + 1, 0);
        return 0;
}

/* Called in the middle of other work: the group is handled in the next turn. */
static void on_announce_end(struct ns *ns, const uint8_t key[KEY_BYTES], void *data)
{
        struct server *s = data;
        struct key_group *g = find_group(s, hash_of(&s->store, ns, key));

        if (!g)
                return;
        (void)map_remove(&s->key_waits.groups, g->hash);
        list_append(&s->key_waits.due, &g->link);
        loop_kick(&s->loop);
}

/* Its announcement has ended. */
static void look_at(struct key_wait *w)
{
        struct detail d = {""};
        int r = announce_state(w->pending.attach, w->key, &d);

        if (r != KVL_STATUS_PENDING) {
                answer_key_wait(w, r, d.text);
                return;
        }
        /* Announced anew meanwhile. */
        leave_group(w);
        if (join_group(w, w->pending.peer->server) < 0)
                answer_key_wait(w, -ENOMEM, "no memory to go on waiting: ask again");
}

bool key_waits_work(struct server *s)
{
        for (unsigned i = 0; i < KEY_WAITS_PER_TURN; i++) {
                struct key_group *g = list_first(&s->key_waits.due, struct key_group, link);

                if (!g)
                        return false;
                look_at(list_first(&g->waits, struct key_wait, link));
        }
        return true;
}

void key_waits_init(struct server *s)
{
        map_init(&s->key_waits.groups);
        list_init(&s->key_waits.due);
        s->store.owner.on_announce_end = on_announce_end;
}

void key_waits_deinit(struct server *s)
{
        map_deinit(&s->key_waits.groups);
}
