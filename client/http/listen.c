#include "client/http/listen.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"

#define BACKLOG 64 /* not tuned */
/* Limit on the kernel's buffer for an idle reader, by default some MiB. Not tuned. */
#define SEND_BYTES (128 * 1024)

/* ---- Unix sockets ---------------------------------------------------------------------------- */

/* The file of a killed process' socket stays, but refuses connections. */
static void remove_stale(const struct sockaddr_un *a)
{
        _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct stat st;

        if (fd < 0 || lstat(a->sun_path, &st) < 0 || !S_ISSOCK(st.st_mode))
                return;
        if (connect(fd, (const struct sockaddr *)a, sizeof(*a)) < 0 && errno == ECONNREFUSED)
                unlink(a->sun_path);
}

static int listen_unix(const char *path, char ret_name[LISTEN_NAME_MAX])
{
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        _cleanup_fd_ int fd = -1;

        if (strlen(path) >= sizeof(a.sun_path))
                return -ENAMETOOLONG;
        strcpy(a.sun_path, path);
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return -errno;
        remove_stale(&a);
        if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, BACKLOG) < 0)
                return -errno;
        snprintf(ret_name, LISTEN_NAME_MAX, "%s", path);
        return fd_take(&fd);
}

/* ---- TCP ------------------------------------------------------------------------------------- */

/* Splits "[::1]:80" into its own buffers. */
static int split_address(const char *where, char host[128], const char **ret_port)
{
        const char *colon = strrchr(where, ':'), *from = where;
        size_t len = colon ? (size_t)(colon - where) : 0;

        if (!colon || !colon[1] || strspn(colon + 1, "0123456789") != strlen(colon + 1))
                return -EINVAL;
        if (len >= 2 && from[0] == '[' && from[len - 1] == ']') {
                from++;
                len -= 2;
        } else if (memchr(from, ':', len)) {
                return -EINVAL; /* an IPv6 address needs brackets */
        }
        if (len >= 128 || strtoul(colon + 1, NULL, 10) > 65535 || strlen(colon + 1) > 5)
                return -EINVAL;
        memcpy(host, from, len);
        host[len] = '\0';
        *ret_port = colon + 1;
        return 0;
}

static int listen_address(const struct addrinfo *a)
{
        _cleanup_fd_ int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        int on = 1, off = 0, send_bytes = SEND_BYTES;

        if (fd < 0)
                return -errno;
        if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0)
                return -errno;
        if (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof(send_bytes)) < 0)
                return -errno;
        /* "::" accepts IPv4 as well. */
        if (a->ai_family == AF_INET6 &&
                setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) < 0)
                return -errno;
        if (bind(fd, a->ai_addr, a->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
                return -errno;
        return fd_take(&fd);
}

static int name_of(int fd, char ret_name[LISTEN_NAME_MAX])
{
        struct sockaddr_storage a;
        socklen_t len = sizeof(a);
        char host[100], port[16];

        if (getsockname(fd, (struct sockaddr *)&a, &len) < 0)
                return -errno;
        if (getnameinfo((struct sockaddr *)&a, len, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
                return -EINVAL;
        snprintf(ret_name, LISTEN_NAME_MAX,
                a.ss_family == AF_INET6 ? "http://[%s]:%s" : "http://%s:%s", host, port);
        return 0;
}

static int listen_tcp(const char *where, char ret_name[LISTEN_NAME_MAX])
{
        const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                .ai_socktype = SOCK_STREAM,
                .ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV};
        struct addrinfo *found;
        char host[128];
        const char *port;
        int fd = -EINVAL, r = split_address(where, host, &port);

        if (r < 0)
                return r;
        if (getaddrinfo(host[0] ? host : "::", port, &hints, &found) != 0)
                return -EINVAL;
        fd = listen_address(found);
        /* This machine may have no IPv6. */
        freeaddrinfo(found);
        if (fd == -EAFNOSUPPORT && !host[0] && getaddrinfo("0.0.0.0", port, &hints, &found) == 0) {
                fd = listen_address(found);
                freeaddrinfo(found);
        }
        r = fd < 0 ? 0 : name_of(fd, ret_name);
        if (r < 0) {
                fd_close(fd);
                return r;
        }
        return fd;
}

int listen_at(const char *where, char ret_name[LISTEN_NAME_MAX])
{
        return strchr(where, '/') ? listen_unix(where, ret_name) : listen_tcp(where, ret_name);
}
