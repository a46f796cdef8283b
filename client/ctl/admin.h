/*
 * The connection to kvleased's admin socket: one request, one answer, with a deadline.
 *
 * A failure is printed where it occurs (fail()) and returned as an exit code. After any but CTL_OK
 * and CTL_REFUSED the connection is unusable. The daemon's data is checked like any peer's: any
 * process may own a socket named by --socket. Not thread-safe.
 */
#ifndef KVL_CTL_ADMIN_H
#define KVL_CTL_ADMIN_H

#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "client/ctl/ctl.h"
#include "client/ctl/noun.h"

struct admin;
struct conn;

/* Does conn_open(), and reports long waits on stderr, as all functions below. */
int admin_connect(const char *path, uint64_t until_nsec, struct conn **ret_conn);

/* Connects to the socket at `path` (borrowed, outlives the connection) and sends HELLO. */
int admin_open(const char *path, struct admin **ret_admin);

/* Ends the connection. NULL is ignored. */
void admin_close(struct admin *a);

/* Return the daemon's version, as it reports it, and the protocol version agreed on. Borrowed. */
const char *admin_daemon_version(const struct admin *a);
uint32_t admin_protocol(const struct admin *a);

/*
 * Sends `request` and waits for its answer, borrowed until the next call on `a`. If kvleased hangs
 * up before it answers, a request that only reads is sent once more, to the restarted daemon.
 * Returns CTL_OK; CTL_REFUSED: the daemon's sentence has been printed; CTL_UNREACHABLE: also if a
 * change may or may not have been made; CTL_TIMEOUT; CTL_USAGE: the request is larger than a frame.
 */
int admin_call(struct admin *a, uint16_t type, const ProtobufCMessage *request,
        const ProtobufCMessage **ret_reply);

/* Does admin_call(), but leaves refusals to the caller: CTL_OK and ret_status (wire_status). */
int admin_ask(struct admin *a, uint16_t type, const ProtobufCMessage *request, uint32_t *ret_status,
        const ProtobufCMessage **ret_reply);

/* Does admin_call() for a request that is repeated and waits at the daemon, at most 20 s. If
 * kvleased goes away, that is reported on stderr, and the next one is waited for without limit:
 * CTL_OK, and *ret_reply is NULL. */
int admin_follow(struct admin *a, uint16_t type, const ProtobufCMessage *request,
        const ProtobufCMessage **ret_reply);

/* Returns the daemon's boot epoch: another one with every start of kvleased. */
uint64_t admin_boot_epoch(const struct admin *a);

/* After a request that ends the daemon: waits until it has hung up, and connects to the next one at
 * its socket, until a monotonic time. Returns CTL_OK; CTL_TIMEOUT: the daemon hasn't hung up, or
 * the next one doesn't answer; CTL_UNREACHABLE: there is no next one; CTL_REFUSED. */
int admin_await_next(struct admin *a, uint64_t until_nsec);

/* Fetches all rows of a noun (of one tenant, unless that is NULL), and passes each (borrowed during
 * the call) to take(). */
int admin_each(struct admin *a, const struct noun *noun, const char *tenant,
        void (*take)(const void *row, void *data), void *data);

/* Does admin_each() into a list. */
int admin_list(struct admin *a, const struct noun *noun, const char *tenant, struct show_list *l);

/* Fetches the first row of a noun, borrowed until the next call; *ret_row NULL: none. */
int admin_first(struct admin *a, const struct noun *noun, const char *tenant, const void **ret_row);

/* Fetches the daemon's status, borrowed until the next call. */
int admin_status(struct admin *a, const struct figures_status **ret_status);

/* Stops reports of long waits: a screen is drawn, which shows them itself. */
void admin_hush(void);

#endif
