/* Kinds of events of ADMIN_EVENTS: their names on the wire, for kvleasectl and in its JSON. Never
 * renamed; new ones are appended. */
#ifndef KVL_PROTO_EVENT_KIND_H
#define KVL_PROTO_EVENT_KIND_H

/* X(NAME, name, is counted together, what). Like events of a kind that is counted together, within
 * CHRONICLE_WINDOW_NSEC, are one event with a count. */
#define EVENT_KIND_TABLE(X)                                                        \
        X(EVICTED, "evicted", true, "cached pages were evicted to make room")      \
        X(DEMOTED, "demoted", true, "cached pages moved to a lower tier")          \
        X(EXPIRED, "expired", true, "pages or sessions were unused for too long")  \
        X(DROPPED, "dropped", true, "pages were invalidated, purged or damaged")   \
        X(REFUSED, "refused", true, "leases were refused")                         \
        X(RESIZED, "resized", false, "a reservation was changed")                  \
        X(REVOKED, "revoked", true, "memory was recalled")                         \
        X(QUARANTINED, "quarantined", true, "a client didn't give memory back")    \
        X(CLIENT, "client", true, "a client was removed")                          \
        X(VIOLATION, "violation", true, "a client broke the protocol")             \
        X(TENANT, "tenant", false, "a tenant was made, changed or removed")        \
        X(DAEMON, "daemon", false, "kvleased started, drained, reloaded or stops") \
        X(REMOTE, "remote", false, "a shared store was reached or lost, or had refused pages")

enum event_kind {
#define X(name, ...) EVENT_##name,
        EVENT_KIND_TABLE(X)
#undef X
                EVENT_KINDS
};

#endif
