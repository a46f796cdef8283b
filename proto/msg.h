/* The message types: number, sockets that accept it, payload types, most fds.
 * docs/reference/PROTOCOL.md has a row for each; a test compares the two. */
#ifndef KVL_PROTO_MSG_H
#define KVL_PROTO_MSG_H

#include <stdbool.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "proto/arena.h"
#include "proto/frame.h"

enum msg_socket {
        MSG_ON_TENANT = 1 << 0, /* tenant sockets and the default socket */
        MSG_ON_ADMIN = 1 << 1,  /* admin socket */
        /* Monitor socket, on which nothing can be changed. Messages with MSG_READS change nothing,
         * cost the daemon no more than a list, and reveal no single keys. Exception: FEED, of
         * tenants whose option `events` allows it. */
        MSG_ON_MONITOR = 1 << 2,
        MSG_READS = MSG_ON_ADMIN | MSG_ON_MONITOR,
        /* Refused for clients that may only look up (publish_uids, publish_gids). */
        MSG_FOR_PUBLISHERS = 1 << 3,
        MSG_PUBLISHES = MSG_ON_TENANT | MSG_FOR_PUBLISHERS,
};

/*
 * X(NAME, number, request descriptor, reply descriptor, sockets, may be sent NO_REPLY,
 *   max fds of a reply)
 * Events have their own rows: X_EVENT(NAME, number, descriptor).
 */
#define MSG_TABLE(X)                                                                               \
        X(HELLO, 1, hello_request, hello_reply, MSG_ON_TENANT | MSG_READS, false, 0)               \
        X(AUTH, 2, auth_request, simple_reply, MSG_ON_TENANT, false, 0)                            \
        X(BYE, 3, bye_request, simple_reply, MSG_ON_TENANT, false, 0)                              \
        X(SHM_OPEN, 4, shm_open_request, shm_open_reply, MSG_ON_TENANT, false, 1)                  \
        X(DOORBELL, 5, doorbell_request, simple_reply, MSG_ON_TENANT, true, 0)                     \
        X(RESUME_NS, 6, resume_ns_request, simple_reply, MSG_ON_TENANT, false, 0)                  \
        X(RESUMED, 7, resumed_request, simple_reply, MSG_ON_TENANT, false, 0)                      \
        X(NS_OPEN, 16, ns_open_request, ns_open_reply, MSG_ON_TENANT, false, 0)                    \
        X(NS_CLOSE, 17, ns_close_request, simple_reply, MSG_ON_TENANT, false, 0)                   \
        X(MAP, 18, map_request, map_reply, MSG_ON_TENANT, false, FRAME_MAX_FDS)                    \
        X(NS_SHARE, 19, ns_share_request, ns_share_reply, MSG_ON_TENANT, false, 2)                 \
        X(UNMAPPED, 20, unmapped_request, simple_reply, MSG_ON_TENANT, false, 0)                   \
        X(LEASE, 32, lease_request, lease_reply, MSG_PUBLISHES, false, 0)                          \
        X(PUBLISH, 33, publish_request, publish_reply, MSG_PUBLISHES, false, 0)                    \
        X(LOOKUP, 34, lookup_request, lookup_reply, MSG_ON_TENANT, false, 0)                       \
        X(RELEASE, 35, release_request, simple_reply, MSG_ON_TENANT, true, 0)                      \
        X(FREE, 36, free_request, simple_reply, MSG_PUBLISHES, true, 0)                            \
        X(INVALIDATE, 37, invalidate_request, count_reply, MSG_PUBLISHES, false, 0)                \
        X(REQUEST_END, 38, request_end_request, simple_reply, MSG_ON_TENANT, true, 0)              \
        X(REPORT, 39, report_request, count_reply, MSG_PUBLISHES, false, 0)                        \
        X(ANNOUNCE, 40, announce_request, announce_reply, MSG_PUBLISHES, false, 0)                 \
        X(WAIT, 41, wait_request, simple_reply, MSG_ON_TENANT, false, 0)                           \
        X(SESSION_OPEN, 42, session_open_request, session_open_reply, MSG_ON_TENANT, false, 0)     \
        X(SESSION_PAGES, 43, session_pages_request, session_pages_reply, MSG_ON_TENANT, false, 0)  \
        X(SESSION_TRUNCATE, 44, session_truncate_request, count_reply, MSG_PUBLISHES, false, 0)    \
        X(SESSION_HINT, 45, session_hint_request, simple_reply, MSG_PUBLISHES, true, 0)            \
        X(SESSION_CLOSE, 46, session_close_request, simple_reply, MSG_ON_TENANT, false, 0)         \
        X(EXPLAIN, 47, explain_request, explain_reply, MSG_ON_TENANT, false, 0)                    \
        X(FETCH, 48, fetch_request, fetch_reply, MSG_ON_TENANT, false, 0)                          \
        X(PIN, 49, pin_request, simple_reply, MSG_ON_TENANT, false, 0)                             \
        X(HELD, 50, held_request, simple_reply, MSG_ON_TENANT, false, 0)                           \
        X(LEASABLE, 51, leasable_request, count_reply, MSG_ON_TENANT, false, 0)                    \
        X(SESSION_KEEP, 52, session_keep_request, count_reply, MSG_PUBLISHES, false, 0)            \
        X(EXPECT, 53, expect_request, simple_reply, MSG_ON_TENANT, true, 0)                        \
        X(IMPORT, 58, import_request, import_reply, MSG_PUBLISHES, false, 0)                       \
        X(NOTE_PREFILL, 59, note_prefill_request, simple_reply, MSG_PUBLISHES, true, 0)            \
        X(SESSION_LOAD, 60, session_load_request, session_load_reply, MSG_PUBLISHES, false, 0)     \
        X(PROBE_HOSTS, 61, probe_hosts_request, probe_hosts_reply, MSG_ON_TENANT, false, 0)        \
        X(FEED, 62, feed_request, feed_reply, MSG_ON_TENANT | MSG_READS, false, 1)                 \
        X(ADMIN_PROCESS, 64, admin_list_request, admin_process_reply, MSG_ON_ADMIN, false, 0)      \
        X(ADMIN_TENANT_SET, 67, admin_tenant_set_request, simple_reply, MSG_ON_ADMIN, false, 0)    \
        X(ADMIN_TENANT_REMOVE, 68, admin_tenant_remove_request, simple_reply, MSG_ON_ADMIN, false, \
                0)                                                                                 \
        X(ADMIN_PURGE, 71, admin_purge_request, count_reply, MSG_ON_ADMIN, false, 0)               \
        X(ADMIN_DRAIN, 72, admin_drain_request, admin_drain_reply, MSG_ON_ADMIN, false, 0)         \
        X(ADMIN_CHECK, 73, admin_check_request, admin_check_reply, MSG_ON_ADMIN, false, 0)         \
        X(ADMIN_RECALL, 74, admin_recall_request, count_reply, MSG_ON_ADMIN, false, 0)             \
        X(ADMIN_EXPLAIN, 78, admin_explain_request, explain_reply, MSG_ON_ADMIN, false, 0)         \
        X(ADMIN_SESSION_PURGE, 80, admin_session_purge_request, count_reply, MSG_ON_ADMIN, false,  \
                0)                                                                                 \
        X(ADMIN_RECORD, 81, admin_record_request, admin_record_reply, MSG_ON_ADMIN, false, 0)      \
        X(ADMIN_RESTART, 82, admin_restart_request, admin_restart_reply, MSG_ON_ADMIN, false, 0)   \
        X(ADMIN_WARM, 83, admin_warm_request, admin_warm_reply, MSG_ON_ADMIN, false, 0)            \
        X(ADMIN_EVENTS, 84, admin_events_request, admin_events_reply, MSG_READS, false, 0)         \
        X(ADMIN_RELOAD, 85, admin_reload_request, admin_reload_reply, MSG_ON_ADMIN, false, 0)      \
        X(ADMIN_COUNTERS, 88, admin_counters_request, admin_counters_reply, MSG_READS, false, 0)   \
        X(ADMIN_STATUS, 96, admin_list_request, admin_rows_reply, MSG_READS, false, 0)             \
        X(ADMIN_DEVICES, 97, admin_list_request, admin_rows_reply, MSG_READS, false, 0)            \
        X(ADMIN_TENANTS, 98, admin_list_request, admin_rows_reply, MSG_READS, false, 0)            \
        X(ADMIN_NAMESPACES, 99, admin_list_request, admin_rows_reply, MSG_READS, false, 0)         \
        X(ADMIN_CLIENTS, 100, admin_list_request, admin_rows_reply, MSG_READS, false, 0)           \
        X(ADMIN_REGIONS, 101, admin_list_request, admin_rows_reply, MSG_READS, false, 0)           \
        X(ADMIN_EVICTIONS, 102, admin_list_request, admin_rows_reply, MSG_READS, false, 0)         \
        X(ADMIN_SESSIONS, 103, admin_list_request, admin_rows_reply, MSG_READS, false, 0)          \
        X(ADMIN_SETS, 104, admin_list_request, admin_rows_reply, MSG_READS, false, 0)              \
        X(ADMIN_CONFIG, 105, admin_list_request, admin_rows_reply, MSG_READS, false, 0)            \
        X(ADMIN_CODECS, 106, admin_list_request, admin_rows_reply, MSG_READS, false, 0)            \
        X(ADMIN_EXCHANGES, 107, admin_list_request, admin_rows_reply, MSG_READS, false, 0)         \
        X(ADMIN_REMOTES, 108, admin_list_request, admin_rows_reply, MSG_READS, false, 0)

#define MSG_EVENT_TABLE(X)                 \
        X(CHALLENGE, 128, challenge_event) \
        X(NOTICE, 129, notice_event)       \
        X(RING, 130, ring_event)           \
        X(RECALL, 131, recall_event)

enum msg_type {
#define X(name, number, ...) MSG_##name = number,
        MSG_TABLE(X) MSG_EVENT_TABLE(X)
#undef X
};

/* Lists that older versions of kvleasectl and kvlease-exporter ask for, by numbers that no message
 * has any more. */
#define MSG_RETIRED_TEXT                                                  \
        "this kvleased is newer than the program that asks (kvleasectl, " \
        "kvlease-exporter): use the ones that were installed with it"

/* Whether a number that msg_find() doesn't know was one of an older protocol. */
static inline bool msg_is_retired(uint16_t type)
{
        return type > MSG_ADMIN_PROCESS && type < MSG_ADMIN_STATUS;
}

struct msg_info {
        uint16_t type;
        const char *name;                                  /* "NS_OPEN" */
        const ProtobufCMessageDescriptor *request, *reply; /* event: NULL, itself */
        unsigned sockets;                                  /* enum msg_socket */
        bool may_skip_reply;
        unsigned max_reply_fds; /* requests never carry fds */
};

/* Returns the static row of a type; NULL: unknown. */
const struct msg_info *msg_find(uint16_t type);

/* Returns each row in order, NULL at the end; for documents and tests. */
const struct msg_info *msg_at(unsigned i);

/* Packs `m` after a header into buf (FRAME_MAX_SIZE bytes): type, flags, seq, fd_count as given.
 * Returns the frame's size in bytes, or -EMSGSIZE if it doesn't fit (buf undefined). */
int msg_pack(uint8_t *buf, uint16_t version, uint16_t type, uint16_t flags, uint64_t seq,
        unsigned fd_count, const ProtobufCMessage *m);

/* Unpacks a payload from the arena's budget; borrowed from the arena until its reset. Returns NULL
 * if the bytes are no such message, or the budget is used up. */
ProtobufCMessage *msg_unpack(
        const ProtobufCMessageDescriptor *d, struct arena *a, const uint8_t *payload, size_t len);

/*
 * Returns what is wrong with a string in a payload that msg_unpack() took, at any depth. An
 * unpacked string ends at its first NUL, and the bytes after it are lost. NULL: nothing is wrong.
 * Else a static phrase ("a NUL byte"), and *ret_field is the field's static name. `may_be_raw`:
 * only NULs are wrong; else control characters, too, and bytes that aren't UTF-8, as protobuf's
 * strings must be.
 */
const char *msg_bad_text(const ProtobufCMessageDescriptor *d, const uint8_t *payload, size_t len,
        bool may_be_raw, const char **ret_field);

#endif
