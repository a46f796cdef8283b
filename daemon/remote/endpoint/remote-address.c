#include "daemon/remote/endpoint/remote-address.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/parse.h"

bool remote_address_split(const char *text, char host[256], uint16_t *ret_port)
{
        const char *colon = strrchr(text, ':');
        size_t len = colon ? (size_t)(colon - text) : 0;
        uint64_t port;

        if (!colon || parse_u64(colon + 1, &port) < 0 || port == 0 || port > UINT16_MAX)
                return false;
        if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
                text++;
                len -= 2;
        } else if (memchr(text, ':', len)) {
                return false;
        }
        if (len == 0 || len >= 256)
                return false;
        memcpy(host, text, len);
        host[len] = '\0';
        *ret_port = (uint16_t)port;
        return true;
}

bool remote_address_parse(
        const char *host, uint16_t port, struct sockaddr_storage *ret, socklen_t *ret_len)
{
        struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
        struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};

        *ret = (struct sockaddr_storage){0};
        if (inet_pton(AF_INET, host, &v4.sin_addr) == 1) {
                memcpy(ret, &v4, sizeof(v4));
                *ret_len = sizeof(v4);
                return true;
        }
        if (inet_pton(AF_INET6, host, &v6.sin6_addr) == 1) {
                memcpy(ret, &v6, sizeof(v6));
                *ret_len = sizeof(v6);
                return true;
        }
        return false;
}
