/*
 * A listening socket: one per tenant, one default, one for administration, one for monitoring.
 * Where it listens is who comes in; rules narrow it (access.h). Who was accepted can send no
 * descriptors, or has them found (inbound.h). Owns its file and the tenant's
 * directory unless systemd made the socket. Never looks at what peers send.
 */
#ifndef KVL_SERVER_LISTENER_H
#define KVL_SERVER_LISTENER_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/ground/detail.h"
#include "daemon/server/objects/listener.h"

/* Starts accepting. 0 with an owned listener; -errno with the sentence, nothing left behind. */
int listener_open(struct server *s, enum listener_kind kind, struct tenancy *t,
        struct listener **ret_listener, struct detail *d);

/* Removes what it made: nobody can connect any more. Refuses who waits to be accepted, and frees
 * itself, in later turns. NULL: nothing. */
void listener_close(struct listener *l);

/* Closes the socket at the end of the process: where it is kept for the next one, it stays as it
 * is, and who connects waits. NULL: nothing. */
void listener_leave(struct listener *l);

/* One more (or fewer) of the connections of this one is with the reaper. 0, or one that is gone:
 * nothing. */
void listener_note_ending(struct server *s, uint64_t id, bool begins);

/* Says in the log, once, that connections are closed as no file descriptor is left for them. */
void listener_say_no_descriptors(void);

/* Gives the tenant's directory to its group as configured now; where that can't be, warns. */
void listener_update_group(struct listener *l);

/* Writes the path of a tenant's socket. Returns buf. */
char *listener_tenant_path(const struct server *s, const char *tenant, char buf[LISTENER_PATH_MAX]);

#endif
