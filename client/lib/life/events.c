/* Events for users: the daemon's notices and recalls, and that it went away or came back. */
#include "client/lib/connection/error.h"
#include "client/lib/life/life-impl.h"
#include "client/lib/mapping/map.h"
#include "client/lib/objects/ns.h"

/* Returns 0 if users get no such event. */
static enum kvl_event_type event_type(uint32_t kind)
{
        switch (kind) {
        case KVLEASE__V1__NOTICE_EVENT__KIND__DRAIN:
                return KVL_EVENT_DRAIN;
        case KVLEASE__V1__NOTICE_EVENT__KIND__DRAIN_END:
                return KVL_EVENT_DRAIN_END;
        case KVLEASE__V1__NOTICE_EVENT__KIND__PRESSURE:
                return KVL_EVENT_PRESSURE;
        case KVLEASE__V1__NOTICE_EVENT__KIND__NS_STALE:
                return KVL_EVENT_STALE;
        case KVLEASE__V1__NOTICE_EVENT__KIND__MEMBER_LEFT:
                return KVL_EVENT_MEMBER_LEFT;
        case KVLEASE__V1__NOTICE_EVENT__KIND__SHUTDOWN:
                return KVL_EVENT_SHUTDOWN;
        default:
                return 0;
        }
}

static struct kvl_ns *find_ns(struct kvl_conn *conn, uint32_t id)
{
        list_for_each (ns, &conn->namespaces, struct kvl_ns, link)
                if (ns->id == id && ns->is_open)
                        return ns;
        return NULL;
}

/* [L] Returns false if users get no such event. */
static bool fill_recall(struct kvl_conn *conn, const struct conn_event *e, struct kvl_event *event)
{
        struct kvl_ns *ns = find_ns(conn, e->ns_id);

        if (!ns || !ns_note_recall(ns, e->set_index, e->is_idle))
                return false;
        event->type = KVL_EVENT_REVOKE;
        event->ns = ns;
        event->first_page = e->set_index * ns->info.set_pages;
        event->n_pages = ns->info.set_pages;
        event->timeout_msec = e->timeout_msec;
        event->is_idle = e->is_idle;
        event->detail = e->is_idle ? "memory goes back to kvleased at the next safe point"
                                   : "kvleased takes memory back: release and free its pages";
        return true;
}

/* [L] Returns false if users get no such event. */
static bool fill_notice(struct kvl_conn *conn, const struct conn_event *e, struct kvl_event *event)
{
        event->type = event_type(e->kind);
        if (event->type == KVL_EVENT_PRESSURE || event->type == KVL_EVENT_STALE)
                event->ns = find_ns(conn, e->ns_id);
        /* The namespace was closed: its user isn't interested any more. */
        return event->type != 0 && (event->type != KVL_EVENT_STALE || event->ns);
}

static bool fill_event(struct kvl_conn *conn, const struct conn_event *e, enum conn_news news,
        struct kvl_event *event)
{
        static const enum kvl_event_type types[] = {
                [CONN_NEWS_AWAY] = KVL_EVENT_AWAY,
                [CONN_NEWS_BACK] = KVL_EVENT_BACK,
                [CONN_NEWS_GONE] = KVL_EVENT_DISCONNECTED,
        };

        *event = (struct kvl_event){.client_id = e->client_id, .detail = e->detail};
        if (news == CONN_NEWS_EVENT)
                return e->type == MSG_RECALL ? fill_recall(conn, e, event)
                                             : fill_notice(conn, e, event);
        event->type = types[news];
        return true;
}

int events_tell(struct conn *c, const struct conn_event *e, enum conn_news news, void *data)
{
        struct kvl_conn *conn = data;
        struct ns_callback callback;
        struct kvl_event event;
        kvl_event_fn fn;
        void *fn_data;

        conn_lock(c);
        fn = conn->event_fn;
        fn_data = conn->event_data;
        if (!fill_event(conn, e, news, &event) || !fn) {
                conn_unlock(c);
                return 0;
        }
        if (event.ns)
                ns_callback_enter(&callback, event.ns);
        conn_unlock(c);
        fn(conn, &event, fn_data);
        if (event.ns)
                ns_callback_leave(&callback);
        return 1;
}

void kvl_set_event_handler(struct kvl_conn *conn, kvl_event_fn fn, void *data)
{
        if (!conn || client_check_process(conn) < 0)
                return;
        conn_lock(conn->conn);
        conn->event_fn = fn;
        conn->event_data = data;
        conn_unlock(conn->conn);
}
