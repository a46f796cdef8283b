/* ADMIN_RECORD. */
#include <errno.h>
#include <stdio.h>

#include "daemon/server/handlers/handlers.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/services/recorder.h"
#include "daemon/server/services/timers.h"
#include "daemon/server/base/log.h"
#include "proto/kvlease.pb-c.h"

static void log_change(const struct request *rq, const char *what)
{
        char uid[16];

        snprintf(uid, sizeof(uid), "%u", (unsigned)rq->peer->identity.uid);
        log_event(LEVEL_NOTICE, LOG_FIELDS({"PEER_UID", uid}),
                "recording the traffic in %s/traces was %s by uid %s",
                rq->server->config.daemon.state_dir, what, uid);
}

static int turn_on(struct request *rq, const Kvlease__V1__AdminRecordRequest *m)
{
        int r = recorder_start(rq->server, m->max_bytes, m->max_files, &rq->detail);

        if (r < 0)
                return r;
        log_change(rq, "begun");
        periodic_timer_expect(rq->server);
        return 0;
}

static int turn_off(struct request *rq)
{
        if (rq->server->recorder.on) {
                recorder_stop(rq->server);
                log_change(rq, "ended");
        }
        return 0;
}

int handle_ADMIN_RECORD(struct request *rq)
{
        const Kvlease__V1__AdminRecordRequest *m = rq->message;
        Kvlease__V1__AdminRecordReply *reply = rq->reply;
        struct recorder *rec = &rq->server->recorder;
        int r = 0;

        switch (m->action) {
        case KVLEASE__V1__ADMIN_RECORD_REQUEST__ACTION__STATUS:
                break;
        case KVLEASE__V1__ADMIN_RECORD_REQUEST__ACTION__ON:
                r = turn_on(rq, m);
                break;
        case KVLEASE__V1__ADMIN_RECORD_REQUEST__ACTION__OFF:
                r = turn_off(rq);
                break;
        default:
                r = detail_set(
                        &rq->detail, -EINVAL, "action is %d: 0 to 2 are known", (int)m->action);
        }
        reply->on = rec->on;
        reply->path = rec->path;
        reply->requests = rec->n_recorded;
        reply->bytes = rec->n_bytes;
        reply->lost = rec->n_lost;
        reply->under_way = rec->n_running;
        reply->without_id = rec->n_unnamed;
        reply->trouble = rec->trouble;
        return r;
}
