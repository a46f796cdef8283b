#include "daemon/server/base/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/fd.h"

void notify_now(const char *lines)
{
        struct sockaddr_un to = {.sun_family = AF_UNIX};
        const char *path = getenv("NOTIFY_SOCKET");
        size_t len = path ? strlen(path) : 0;
        _cleanup_fd_ int fd = -1;

        if (len < 2 || len >= sizeof(to.sun_path))
                return;
        memcpy(to.sun_path, path, len);
        if (to.sun_path[0] == '@')
                to.sun_path[0] = '\0'; /* an abstract address */
        fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        /* No receiver, or no room: this state is lost, and the next one is newer. */
        if (fd >= 0)
                (void)sendto(fd, lines, strlen(lines), MSG_DONTWAIT | MSG_NOSIGNAL,
                        (struct sockaddr *)&to,
                        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
}
