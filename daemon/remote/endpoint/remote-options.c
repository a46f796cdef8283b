#include "daemon/remote/endpoint/remote-options.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/parse.h"
#include "daemon/remote/endpoint/remote-address.h"

#define MSEC_MAX 60000
#define OPS_MAX  (1u << 20)

/* Bytes of a user's name and of a secret. Not tuned. */
#define CREDENTIAL_MAX 1024

int remote_options_check(const struct remote_options *o, char why[REMOTE_WHY_BYTES])
{
        char host[256];
        uint16_t port;

        if (o->n_addresses == 0 || o->n_addresses > REMOTE_ADDRESSES_MAX)
                return say_why(why, REMOTE_WHY_BYTES, -EINVAL,
                        "%u addresses of a cluster's nodes: 1 to %u may be given", o->n_addresses,
                        REMOTE_ADDRESSES_MAX);
        for (unsigned i = 0; i < o->n_addresses; i++)
                if (!remote_address_split(o->addresses[i], host, &port))
                        return say_why(why, REMOTE_WHY_BYTES, -EINVAL,
                                "%s isn't a server's address, as host:port or [address]:port",
                                o->addresses[i]);
        if (o->large_threads > REMOTE_LARGE_THREADS_MAX || o->max_ops > OPS_MAX ||
                o->connect_msec > MSEC_MAX || o->silence_msec > MSEC_MAX) {
                return say_why(why, REMOTE_WHY_BYTES, -EINVAL,
                        "at most %u threads, %u operations and %u ms may be given",
                        REMOTE_LARGE_THREADS_MAX, OPS_MAX, MSEC_MAX);
        }
        if ((o->user && (!o->secret || strlen(o->user) > CREDENTIAL_MAX)) ||
                (o->secret && strlen(o->secret) > CREDENTIAL_MAX))
                return say_why(why, REMOTE_WHY_BYTES, -EINVAL,
                        "a user needs a secret, and neither may be longer than %u bytes",
                        CREDENTIAL_MAX);
        if (!o->tls_cert != !o->tls_key) {
                return say_why(why, REMOTE_WHY_BYTES, -EINVAL,
                        "a certificate needs its key, and a key its certificate");
        }
        return 0;
}
