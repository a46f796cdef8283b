#include "daemon/server/peers/kept-sockets.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <systemd/sd-daemon.h>

#include "base/fd.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/endings.h"
#include "daemon/server/base/log.h"

struct kept_socket {
        uint32_t number;
        int fd; /* owned; -1: taken */
        char path[sizeof(((struct sockaddr_un *)NULL)->sun_path) + 1];
};

/* The socket's tenant was removed, and the daemon ended before it told the descriptor store. */
static bool is_shut_down(const struct kept_socket *k)
{
        struct pollfd p = {.fd = k->fd, .events = POLLRDHUP};

        return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP));
}

/* Finds the path at which it listens. Returns false if that file doesn't lead to it. */
static bool find_path(struct kept_socket *k)
{
        struct sockaddr_un address = {0};
        socklen_t len = sizeof(address);
        struct stat st;

        if (sd_is_socket_unix(k->fd, SOCK_STREAM, 1, NULL, 0) <= 0 || is_shut_down(k) ||
                getsockname(k->fd, (struct sockaddr *)&address, &len) < 0)
                return false;
        memcpy(k->path, address.sun_path, sizeof(address.sun_path)); /* '\0' is behind it */
        return k->path[0] && lstat(k->path, &st) == 0 && S_ISSOCK(st.st_mode);
}

/* Ends connections that wait there: closing the store's descriptor mustn't end them. */
static void drop_socket(struct server *s, struct kept_socket *k)
{
        endings_close_listening(s, fd_take(&k->fd));
        keep_drop(&s->store.keep, KEEP_LISTENER, k->number);
}

int kept_sockets_load(struct server *s)
{
        const struct keep *keep = &s->store.keep;
        struct kept_sockets *all = &s->kept_sockets;
        _cleanup_free_ uint32_t *numbers = NULL;
        uint32_t n;

        if (!keep_is_on(keep))
                return 0;
        n = keep->ops->list(keep->data, KEEP_LISTENER, NULL, 0);
        if (n == 0)
                return 0;
        numbers = calloc(n, sizeof(*numbers));
        all->sockets = calloc(n, sizeof(*all->sockets));
        if (!numbers || !all->sockets)
                return -ENOMEM;
        keep->ops->list(keep->data, KEEP_LISTENER, numbers, n);
        for (; all->n < n; all->n++) {
                struct kept_socket *k = &all->sockets[all->n];

                k->number = numbers[all->n];
                k->fd = keep->ops->take(keep->data, KEEP_LISTENER, k->number);
                if (!find_path(k))
                        drop_socket(s, k);
        }
        return 0;
}

int kept_sockets_take(struct server *s, const char *path, uint32_t *ret_number)
{
        for (size_t i = 0; i < s->kept_sockets.n; i++) {
                struct kept_socket *k = &s->kept_sockets.sockets[i];

                if (k->fd < 0 || strcmp(k->path, path) != 0)
                        continue;
                *ret_number = k->number;
                return fd_take(&k->fd);
        }
        return -ENOENT;
}

void kept_sockets_release(struct server *s)
{
        for (size_t i = 0; i < s->kept_sockets.n; i++) {
                struct kept_socket *k = &s->kept_sockets.sockets[i];

                if (k->fd < 0)
                        continue;
                unlink(k->path);
                drop_socket(s, k);
        }
        kept_sockets_deinit(s);
}

void kept_sockets_deinit(struct server *s)
{
        for (size_t i = 0; i < s->kept_sockets.n; i++)
                fd_close(s->kept_sockets.sockets[i].fd);
        free(s->kept_sockets.sockets);
        s->kept_sockets = (struct kept_sockets){0};
}

uint32_t kept_sockets_add(struct server *s, const char *path, int fd)
{
        struct detail d = {""};
        uint32_t number;

        if (!keep_is_on(&s->store.keep))
                return 0;
        number = ++s->keeping.last_listener;
        if (keep_add(&s->store.keep, KEEP_LISTENER, number, fd, &d) == 0)
                return number;
        log_warning("clients that connect to %s while kvleased is restarted are refused: %s", path,
                d.text);
        return 0;
}
