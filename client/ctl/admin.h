/*
 * The connection to kvleased's admin socket: one request, one answer, with a deadline.
 *
 * A failure is printed where it is met (fail()) and comes back as an exit code; after anything but
 * CTL_OK and CTL_REFUSED the connection is of no more use. What the daemon sends is checked like
 * any peer's bytes: a socket named by --socket may be anybody's. One thread.
 */
#ifndef KVL_CTL_ADMIN_H
#define KVL_CTL_ADMIN_H

#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "client/ctl/ctl.h"
#include "client/ctl/noun.h"

struct admin;
struct conn;

/* As conn_open(), and says on stderr where it takes long (slow-answer.h), as all below do. */
int admin_connect(const char *path, uint64_t until_nsec, struct conn **ret_conn);

/* Connects to the socket at `path` (borrowed, outlives the connection) and says hello. */
int admin_open(const char *path, struct admin **ret_admin);

/* Ends the connection. NULL is ignored. */
void admin_close(struct admin *a);

/* Version of the daemon as it gave it, and of the protocol agreed on. Borrowed. */
const char *admin_daemon_version(const struct admin *a);
uint32_t admin_protocol(const struct admin *a);

/*
 * Sends `request` and waits for its answer, borrowed until the next call on `a`. Where kvleased
 * hangs up before it answers, a request that only reads is sent once more, to the one that comes
 * back within seconds. CTL_OK; CTL_REFUSED: the daemon's sentence has been printed;
 * CTL_UNREACHABLE: also where it is unknown whether a change was made; CTL_TIMEOUT; CTL_USAGE: the
 * request is larger than a frame.
 */
int admin_call(struct admin *a, uint16_t type, const ProtobufCMessage *request,
        const ProtobufCMessage **ret_reply);

/* The same, but a refusal is the caller's: CTL_OK and ret_status (enum wire_status) tell. */
int admin_ask(struct admin *a, uint16_t type, const ProtobufCMessage *request, uint32_t *ret_status,
        const ProtobufCMessage **ret_reply);

/*
 * As admin_call(), for a request that is sent again and again and waits at the daemon, at most 20
 * s. Where kvleased goes away, that is said on stderr, and the next one waited for, however long it
 * takes: CTL_OK, and *ret_reply is NULL.
 */
int admin_follow(struct admin *a, uint16_t type, const ProtobufCMessage *request,
        const ProtobufCMessage **ret_reply);

/* Another one with every start of kvleased. */
uint64_t admin_boot_epoch(const struct admin *a);

/*
 * After a request by which the daemon ends: waits until it has hung up, and connects to the one
 * that answers at its socket then. All of it until a monotonic time. CTL_OK; CTL_TIMEOUT: it hasn't
 * hung up, or the next one doesn't answer; CTL_UNREACHABLE: there is no next one; CTL_REFUSED.
 */
int admin_await_next(struct admin *a, uint64_t until_nsec);

/* Fetches all rows of a noun, of one tenant unless that is NULL, and hands each (borrowed during
 * the call) to take(). */
int admin_each(struct admin *a, const struct noun *noun, const char *tenant,
        void (*take)(const void *row, void *data), void *data);

/* The same, into a list. */
int admin_list(struct admin *a, const struct noun *noun, const char *tenant, struct show_list *l);

/* The first row of a noun. ret_row is NULL where there is none; else borrowed until the next call.
 */
int admin_first(struct admin *a, const struct noun *noun, const char *tenant, const void **ret_row);

#endif
