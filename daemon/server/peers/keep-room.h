/* The capacity of the descriptor store (systemd, or kvleased --keep). */
#ifndef KVL_SERVER_KEEP_ROOM_H
#define KVL_SERVER_KEEP_ROOM_H

#include <stdint.h>

/*
 * Asks $FDSTORE (systemd 254 and later, kvleased --keep), else the service manager over D-Bus,
 * which takes at most a second. Returns 0 with *ret_max, which may be 0. -ENOTCONN: this process
 * has no descriptor store ($NOTIFY_SOCKET isn't set); other -errno: the capacity is unknown.
 */
int keep_room_find(uint32_t *ret_max);

#endif
