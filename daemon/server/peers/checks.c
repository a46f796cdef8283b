#include "daemon/server/peers/checks.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/core/core.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/answer.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/pending.h"
#include "daemon/server/base/log.h"
#include "proto/kvlease.pb-c.h"

/* Looks in a slice: some 2 ms. Not tuned. */
#define SLICE_LOOKS 4096

struct checking {
        struct list_link link;   /* server.checks.list: whose slice is next */
        struct checker *checker; /* owned */
        struct pending pending;
};

static void end_checking(struct checking *g)
{
        list_remove(&g->link);
        pending_remove(&g->pending);
        checker_free(g->checker);
        free(g);
}

static void drop_checking(struct pending *w)
{
        end_checking(container_of(w, struct checking, pending));
}

static const struct pending_ops pending_ops = {PENDING_DROP, drop_checking, NULL, NULL};

int checks_ask(struct request *rq)
{
        struct server *s = rq->server;
        struct checking *g;

        rq->is_deferred = true;
        if (rq->peer->input.hung_up || rq->peer->broken)
                return 0; /* no peer is there to be told */
        g = calloc(1, sizeof(*g));
        if (g)
                g->checker = checker_new(&s->store);
        if (!g || !g->checker) {
                free(g);
                rq->is_deferred = false;
                return detail_set(&rq->detail, -ENOMEM, "no memory to check the state");
        }
        list_append(&s->checks.list, &g->link);
        /* An administrator's, which aren't counted. */
        pending_add(&g->pending, rq->peer, &pending_ops, 0, rq->header, false);
        loop_kick(&s->loop);
        return 0;
}

static void answer_check(struct checking *g, int result, const struct detail *d)
{
        Kvlease__V1__AdminCheckReply reply = KVLEASE__V1__ADMIN_CHECK_REPLY__INIT;

        if (result == -EUCLEAN)
                log_message(LOG_CHECK_FAILED, NULL, "check: %s", d->text);
        checker_counts(g->checker, &reply.pages, &reply.sets);
        pending_answer(&g->pending, &reply.base, result, d->text);
        end_checking(g);
}

bool checks_turn(struct server *s)
{
        struct checking *g = list_first(&s->checks.list, struct checking, link);
        struct detail d = {""};
        int r;

        if (!g)
                return false;
        r = checker_go_on(g->checker, SLICE_LOOKS, &d);
        list_remove(&g->link);
        list_append(&s->checks.list, &g->link);
        if (r <= 0)
                answer_check(g, r, &d);
        return !list_is_empty(&s->checks.list);
}

void checks_init(struct server *s)
{
        list_init(&s->checks.list);
}
