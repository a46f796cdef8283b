/*
 * Asks one server by itself, and waits for what it says: for people who look after servers
 * (kvleasectl doctor), not for pages. It goes the way that a store's connections go: the same
 * options, TLS and AUTH, and replies parsed as strictly (resp.h).
 *
 *   remote_ask_open() -> remote_ask() ... -> remote_ask_close()
 *
 * Every call blocks, for remote_options.connect_msec at most while it opens, and REMOTE_ASK_MSEC
 * for an answer; names are resolved by the host's resolver, in its own time. One thread an asker,
 * which ignores SIGPIPE where it uses TLS.
 */
#ifndef KVL_REMOTE_ASK_H
#define KVL_REMOTE_ASK_H

#include "daemon/remote/endpoint/remote-options.h"

struct remote_asker;

#define REMOTE_ASK_MSEC 2000 /* not tuned */

/* Bytes of a reply as text, terminated: CLUSTER NODES of a thousand nodes takes some 200 KiB. */
#define REMOTE_ASK_BYTES (1u << 20)

/*
 * Connects to `address` ("host:port"), which needn't be one of the options'. 0; -EINVAL: the
 * address or a file of TLS isn't usable; -EACCES: the certificate isn't believed, or AUTH was
 * refused; -ETIMEDOUT, other -errno: it can't be reached. After an error `why` is the end of a
 * sentence, "" else.
 */
int remote_ask_open(const struct remote_options *options, const char *address,
        struct remote_asker **ret_asker, char why[REMOTE_WHY_BYTES]);

/* NULL: nothing. */
void remote_ask_close(struct remote_asker *a);

/*
 * Sends a command (words end with NULL). 0 with *ret_text, owned: each string and number of the
 * reply is followed by a newline; what isn't there (nil) is an empty line; carriage returns are
 * left out, and whatever isn't printable ASCII or a newline is '?', in `why`, too. -EACCES: the
 * user may not (NOPERM), or isn't known; -EREMOTEIO: another error of the server's; `why` is its
 * text then, and other commands can be sent. After -EMSGSIZE (longer than REMOTE_ASK_BYTES),
 * -EPROTO, -ETIMEDOUT and other -errno every call fails with the same.
 */
int remote_ask(struct remote_asker *a, const char *const *words, char **ret_text,
        char why[REMOTE_WHY_BYTES]);

#endif
