/* ADMIN_RELOAD: applies a changed configuration, and reports the outcome of each change. */
#include <errno.h>

#include "daemon/server/handlers/admin-handlers.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/services/reload.h"
#include "daemon/server/services/sentences.h"
#include "proto/kvlease.pb-c.h"

#define N_KINDS    (RELOAD_ERROR + 1)
#define KIND_BYTES (12 * 1024) /* of an answer's 64 KiB, for each kind; not tuned */

static void note_sentence(void *data, enum reload_kind kind, const char *sentence)
{
        struct sentences *of = data; /* by kind */

        sentences_add(&of[kind], "%s", sentence);
}

int handle_ADMIN_RELOAD(struct request *rq)
{
        Kvlease__V1__AdminReloadReply *reply = rq->reply;
        struct sentences of[N_KINDS];
        int r = 0;

        for (size_t i = 0; i < N_KINDS && r == 0; i++)
                r = sentences_init(&of[i], &rq->server->scratch.arena, KIND_BYTES);
        if (r < 0)
                return detail_set(&rq->detail, -ENOMEM, "no memory for the answer");
        r = reload_config(rq->server, note_sentence, of);
        reply->changes = of[RELOAD_CHANGED].texts;
        reply->n_changes = of[RELOAD_CHANGED].n;
        reply->pending = of[RELOAD_PENDING].texts;
        reply->n_pending = of[RELOAD_PENDING].n;
        reply->refused = of[RELOAD_REFUSED].texts;
        reply->n_refused = of[RELOAD_REFUSED].n;
        reply->warnings = of[RELOAD_WARNING].texts;
        reply->n_warnings = of[RELOAD_WARNING].n;
        reply->errors = of[RELOAD_ERROR].texts;
        reply->n_errors = of[RELOAD_ERROR].n;
        for (size_t i = 0; i < N_KINDS; i++)
                reply->more += (uint32_t)of[i].n_more;
        if (r < 0)
                return detail_set(&rq->detail, r,
                        "nothing was changed: the configuration can't be put in force");
        return 0;
}
