/* Addresses of servers, as people write them and as sockets take them. No name is resolved. */
#ifndef KVL_REMOTE_REMOTE_ADDRESS_H
#define KVL_REMOTE_REMOTE_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* Splits "host:port" or "[host]:port". Returns false if it is neither. */
bool remote_address_split(const char *text, char host[256], uint16_t *ret_port);

/* Parses an IP address. Returns false if it is none. */
bool remote_address_parse(
        const char *host, uint16_t port, struct sockaddr_storage *ret, socklen_t *ret_len);

#endif
