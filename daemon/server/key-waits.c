#include "daemon/server/key-waits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/core/announce.h"
#include "daemon/server/dispatch.h"
#include "daemon/server/pending.h"
#include "daemon/server/server.h"
#include "proto/status.h"

struct key_wait {
        struct list_link link;      /* server.key_waits[]; server.key_waits_due */
        struct list_link peer_link; /* peer.key_waits */
        struct peer *peer;          /* borrowed */
        struct attach *attach;      /* borrowed; open as long as this waits */
        struct frame_header request;
        uint64_t hash; /* of the key, in its namespace */
        uint8_t key[KEY_BYTES];
        uv_timer_t timer; /* of the deadline; its close callback frees this */
};

static void on_closed(uv_handle_t *timer)
{
        free(container_of((uv_timer_t *)timer, struct key_wait, timer));
}

static void forget(struct key_wait *w)
{
        list_remove(&w->link);
        list_remove(&w->peer_link);
        w->peer->n_key_waits--;
        uv_close((uv_handle_t *)&w->timer, on_closed);
}

static void answer(struct key_wait *w, int code, const char *sentence)
{
        const struct frame f = {.header = w->request};

        dispatch_refuse(w->peer, &f, code, sentence);
        forget(w);
}

static struct list_link *list_of(struct server *s, uint64_t hash)
{
        return &s->key_waits[hash % KEY_WAITS_LISTS];
}

static void on_deadline(uv_timer_t *timer)
{
        struct key_wait *w = container_of(timer, struct key_wait, timer);

        answer(w, KVL_STATUS_TIMEOUT, "the key is still being computed");
}

int key_waits_add(struct peer *p, const struct frame_header *request, struct attach *a,
        const uint8_t *key, uint64_t timeout_msec)
{
        struct server *s = p->server;
        struct key_wait *w;

        if (p->n_key_waits >= KEY_WAITS_MAX)
                return -EBUSY;
        w = sizeof(*w) > pending_left(p) ? NULL : calloc(1, sizeof(*w));
        if (!w)
                return -ENOMEM;
        w->peer = p;
        w->attach = a;
        w->request = *request;
        w->hash = shared_hash(&a->ns->shared, key);
        memcpy(w->key, key, KEY_BYTES);
        list_append(list_of(s, w->hash), &w->link);
        list_append(&p->key_waits, &w->peer_link);
        p->n_key_waits++;
        uv_timer_init(&s->loop, &w->timer);
        uv_update_time(&s->loop); /* or it would be early by what this turn took */
        /* The loop counts whole milliseconds: one more, or it would be early by a part of one. */
        uv_timer_start(&w->timer, on_deadline, (uint64_t)timeout_msec + 1, 0);
        return 0;
}

size_t key_waits_bytes(const struct peer *p)
{
        return p->n_key_waits * sizeof(struct key_wait);
}

void key_waits_cancel(struct peer *p, uint32_t ns_id)
{
        list_for_each_safe (w, &p->key_waits, struct key_wait, peer_link)
                if (ns_id == 0 || w->attach->id == ns_id)
                        answer(w, -ENOENT, "the namespace was closed while the request waited");
}

void key_waits_drop(struct peer *p)
{
        list_for_each_safe (w, &p->key_waits, struct key_wait, peer_link)
                forget(w);
}

/* In the middle of something: they are looked at in the next turn. */
static void on_announce_end(struct ns *ns, uint64_t hash, void *data)
{
        struct server *s = data;

        list_for_each_safe (w, list_of(s, hash), struct key_wait, link)
                if (w->hash == hash && w->attach->ns == ns) {
                        list_remove(&w->link);
                        list_append(&s->key_waits_due, &w->link);
                        server_kick(s);
                }
}

bool key_waits_work(struct server *s)
{
        for (unsigned i = 0; i < KEY_WAITS_PER_TURN; i++) {
                struct key_wait *w = list_first(&s->key_waits_due, struct key_wait, link);
                struct detail d = {""};
                int r;

                if (!w)
                        return false;
                r = announce_state(w->attach, w->key, &d);
                if (r == KVL_STATUS_PENDING) { /* announced anew meanwhile */
                        list_remove(&w->link);
                        list_append(list_of(s, w->hash), &w->link);
                } else {
                        answer(w, r, d.text);
                }
        }
        return true;
}

void key_waits_init(struct server *s)
{
        for (unsigned i = 0; i < KEY_WAITS_LISTS; i++)
                list_init(&s->key_waits[i]);
        list_init(&s->key_waits_due);
        s->store.on_announce_end = on_announce_end;
}
