/* How many descriptors whoever started this process keeps for it. */
#ifndef KVL_SERVER_KEEP_ROOM_H
#define KVL_SERVER_KEEP_ROOM_H

#include <stdint.h>

/*
 * 0 with *ret_max, which may be 0. -ENOTCONN: nobody started it who could ($NOTIFY_SOCKET);
 * another -errno: it can't be told. Asks $FDSTORE (systemd 254 and later, kvleased --keep), else
 * the service manager over D-Bus, which takes a second at most.
 */
int keep_room_find(uint32_t *ret_max);

#endif
