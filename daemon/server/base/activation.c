#include "daemon/server/base/activation.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <systemd/sd-daemon.h>

#include "base/fd.h"
#include "daemon/server/base/log.h"

int activation_init(struct activation *a)
{
        char **names = NULL;
        int n = sd_listen_fds_with_names(1, &names);

        *a = (struct activation){0};
        if (n <= 0)
                return n;
        a->sockets = calloc((size_t)n, sizeof(*a->sockets));
        if (!a->sockets) {
                for (int i = 0; i < n; i++)
                        free(names[i]);
                free(names);
                return -ENOMEM;
        }
        for (int i = 0; i < n; i++)
                a->sockets[a->n++] = (struct activated){names[i], SD_LISTEN_FDS_START + i};
        free(names);
        return 0;
}

bool activation_is_socket_name(const char *name)
{
        return strcmp(name, "admin") == 0 || strcmp(name, "default") == 0 ||
               strncmp(name, "tenant-", 7) == 0;
}

static int adopt_socket(const struct activated *s, const char *path, struct detail *d)
{
        int flags;

        if (sd_is_socket_unix(s->fd, SOCK_STREAM, 1, path, 0) <= 0)
                return detail_set(d, -EINVAL,
                        "the socket '%s' passed by systemd does not listen at %s: set ListenStream=%s in its .socket unit",
                        s->name, path, path);
        flags = fcntl(s->fd, F_GETFL);
        if (flags < 0 || fcntl(s->fd, F_SETFL, flags | O_NONBLOCK) < 0)
                return detail_set(d, -errno, "socket '%s': %s", s->name, strerror(errno));
        return 0;
}

int activation_take(struct activation *a, const char *name, const char *path, struct detail *d)
{
        for (size_t i = 0; i < a->n; i++) {
                struct activated *s = &a->sockets[i];
                int r;

                if (s->fd < 0 || strcmp(s->name, name) != 0)
                        continue;
                r = adopt_socket(s, path, d);
                return r < 0 ? r : fd_take(&s->fd);
        }
        return -ENOENT;
}

void activation_deinit(struct activation *a)
{
        for (size_t i = 0; i < a->n; i++) {
                if (a->sockets[i].fd >= 0)
                        log_warning(
                                "the socket '%s' passed by systemd belongs to nothing here: names are admin, default and tenant-NAME",
                                a->sockets[i].name);
                fd_close(a->sockets[i].fd);
                free(a->sockets[i].name);
        }
        free(a->sockets);
        *a = (struct activation){0};
}
