#include "daemon/server/peers/admin-fds.h"

#include <fcntl.h>

#include "base/fd.h"
#include "daemon/server/peers/server.h"

bool admin_fds_hold(struct server *s)
{
        for (unsigned i = 0; i < SOCKETS_ADMIN_FDS; i++) {
                if (s->sockets.admin_fds[i] < 0)
                        s->sockets.admin_fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
                if (s->sockets.admin_fds[i] < 0)
                        return false;
        }
        return true;
}

void admin_fds_open(struct server *s)
{
        for (unsigned i = 0; i < SOCKETS_ADMIN_FDS; i++)
                s->sockets.admin_fds[i] = fd_close(s->sockets.admin_fds[i]);
}
