/* ADMIN_RELOAD: a changed configuration in force, and what became of each change. */
#include <errno.h>

#include "daemon/server/dispatch.h"
#include "daemon/server/reload.h"
#include "daemon/server/sentences.h"
#include "daemon/server/server.h"
#include "proto/kvlease.pb-c.h"

#define KIND_BYTES (12 * 1024) /* of an answer's 64 KiB, each of four kinds; not tuned */

struct answer {
        struct sentences of[RELOAD_ERROR + 1]; /* by enum reload_kind */
};

static void note(void *data, enum reload_kind kind, const char *sentence)
{
        struct answer *a = data;

        sentences_add(&a->of[kind], "%s", sentence);
}

int handle_ADMIN_RELOAD(struct request *rq)
{
        Kvlease__V1__AdminReloadReply *reply = rq->reply;
        struct answer a;
        int r = 0;

        for (size_t i = 0; i < ARRAY_SIZE(a.of) && r == 0; i++)
                r = sentences_init(&a.of[i], &rq->server->arena, KIND_BYTES);
        if (r < 0)
                return detail_set(&rq->detail, -ENOMEM, "no memory for the answer");
        r = reload_config(rq->server, note, &a);
        reply->changes = a.of[RELOAD_CHANGED].texts;
        reply->n_changes = a.of[RELOAD_CHANGED].n;
        reply->pending = a.of[RELOAD_PENDING].texts;
        reply->n_pending = a.of[RELOAD_PENDING].n;
        reply->refused = a.of[RELOAD_REFUSED].texts;
        reply->n_refused = a.of[RELOAD_REFUSED].n;
        reply->errors = a.of[RELOAD_ERROR].texts;
        reply->n_errors = a.of[RELOAD_ERROR].n;
        for (size_t i = 0; i < ARRAY_SIZE(a.of); i++)
                reply->more += (uint32_t)a.of[i].n_more;
        if (r < 0)
                return detail_set(&rq->detail, r,
                        "nothing was changed: the configuration can't be put in force");
        return 0;
}
