#include "client/exporter/host.h"

#include <arpa/inet.h>
#include <limits.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define NAME_MAX_BYTES 254 /* of a DNS host name, with its NUL */

/* Cuts off the port, brackets and a dot at the end. Returns false if the rest is too long for a
 * host. */
static bool cut_host(const char *header, char host[NAME_MAX_BYTES])
{
        size_t len = header[0] == '[' ? strcspn(++header, "]") : strcspn(header, ":");

        len -= len > 0 && header[len - 1] == '.';
        if (len >= NAME_MAX_BYTES)
                return false;
        memcpy(host, header, len);
        host[len] = '\0';
        return true;
}

static bool is_address(const char *host)
{
        unsigned char address[sizeof(struct in6_addr)];

        return inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
}

static bool is_machine(const char *host)
{
        char own[HOST_NAME_MAX + 1] = "";
        size_t first;

        if (gethostname(own, sizeof(own) - 1) < 0 || !own[0])
                return false;
        first = strcspn(own, ".");
        return strcasecmp(host, own) == 0 ||
               (strlen(host) == first && strncasecmp(host, own, first) == 0);
}

bool host_is_allowed(const struct host_names *names, const char *header)
{
        char host[NAME_MAX_BYTES];

        if (!cut_host(header, host))
                return false;
        for (size_t i = 0; i < names->n; i++)
                if (strcmp(names->names[i], "*") == 0 || strcasecmp(names->names[i], host) == 0)
                        return true;
        return is_address(host) || strcasecmp(host, "localhost") == 0 || is_machine(host);
}
