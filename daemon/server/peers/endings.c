#include "daemon/server/peers/endings.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/listener.h"
#include "daemon/server/peers/reaping.h"

struct ending {
        struct server *server;
        uint64_t listener_id;
};

static void on_done(void *data, int result)
{
        struct ending *e = data;

        listener_note_ending(e->server, e->listener_id, false);
        free(e);
}

/* The account that is charged: t's; NULL: the connected user's. */
static uint64_t owner_of(int fd, const struct tenancy *t)
{
        struct ucred cred = {.uid = (uid_t)-1};
        socklen_t len = sizeof(cred);

        /* If getsockopt() fails, uid stays -1, which no user has. */
        if (!t)
                getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len);
        return t ? t->tenant->number : REAPER_STRANGER | cred.uid;
}

static void hand_over(struct server *s, int fd, const struct tenancy *t, uint64_t listener_id)
{
        struct ending *e;

        /* At the end of a process the kernel waits for none: it stays open until then. */
        if (s->life.leaving)
                return;
        e = malloc(sizeof(*e));
        if (e) {
                *e = (struct ending){s, listener_id};
                listener_note_ending(s, listener_id, true);
        }
        reaping_close(s, owner_of(fd, t), fd, e ? on_done : NULL, e);
}

void endings_close(
        struct server *s, struct inbound *in, int fd, const struct tenancy *t, uint64_t listener_id)
{
        if (fd >= 0 && inbound_finish(in, fd))
                fd_close(fd);
        else if (fd >= 0)
                hand_over(s, fd, t, listener_id);
}

void endings_refuse(struct server *s, int fd, uint64_t listener_id)
{
        struct inbound in;

        /* On failure it is tainted. */
        if (inbound_init(&in, fd) < 0)
                assert(in.tainted);
        endings_close(s, &in, fd, NULL, listener_id);
}

bool endings_empty(struct server *s, int *fd, unsigned max)
{
        for (unsigned i = 0; i < max; i++) {
                int connection = accept4(*fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

                if (connection < 0) {
                        /* EINVAL: shut down, and the last one was accepted. */
                        if (errno != EAGAIN && errno != EINVAL)
                                hand_over(s, fd_take(fd), NULL, 0);
                        return false;
                }
                endings_refuse(s, connection, 0);
        }
        return true;
}

void endings_close_listening(struct server *s, int fd)
{
        if (fd < 0)
                return;
        shutdown(fd, SHUT_RDWR);
        while (endings_empty(s, &fd, UINT32_MAX))
                ;
        fd_close(fd);
}
