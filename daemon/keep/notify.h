/*
 * Both ends of the protocol of sd_notify(3): a socket that receives from one process, and messages
 * to the service manager above. Datagrams of lines, VARIABLE=value.
 */
#ifndef KVL_KEEP_NOTIFY_H
#define KVL_KEEP_NOTIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/un.h>

#define NOTIFY_MAX_BYTES 4096 /* of a message; systemd */
#define NOTIFY_MAX_FDS   16   /* of a message; the daemon sends one */

struct notify {
        int fd;                                                   /* -1: none */
        struct sockaddr_un address;                               /* of our own */
        char dir[sizeof(((struct sockaddr_un *)NULL)->sun_path)]; /* made for it; "" */
};

struct notify_message {
        char text[NOTIFY_MAX_BYTES + 1];
        pid_t pid;               /* sender */
        int fds[NOTIFY_MAX_FDS]; /* owned */
        unsigned n_fds;
};

/* Opens a socket in a directory of its own that no other user may enter. Returns 0 or -errno;
 * -EACCES: none of $RUNTIME_DIRECTORY, $XDG_RUNTIME_DIR, /run and /tmp has room for one. */
int notify_open(struct notify *n);
void notify_close(struct notify *n);

/* Receives without blocking. Returns 1 with a message, whose descriptors the caller closes; 0:
 * there is none. */
int notify_receive(const struct notify *n, struct notify_message *ret);

/* Whether the text has this line. */
bool notify_has(const char *text, const char *line);

/* Gets the value of the first line NAME=..., if it fits. */
bool notify_get(const char *text, const char *name, char *ret, size_t size);

/* Sends the text to `address`, in the form of $NOTIFY_SOCKET; NULL: does nothing. A receiver that
 * doesn't take it within a second misses it. */
void notify_say(const char *address, const char *text);

#endif
