/*
 * Asks one server, and waits for the answer: for administrators (kvleasectl doctor), not for pages.
 * It connects as a store does, with the same options, TLS and AUTH, and parses replies as strictly
 * (resp.h).
 *
 *   remote_ask_open() -> remote_ask() ... -> remote_ask_close()
 *
 * Every call blocks: at most remote_options.connect_msec to open, and REMOTE_ASK_MSEC for an
 * answer; the host's resolver takes its own time for names. One thread an asker, which ignores
 * SIGPIPE if it uses TLS.
 */
#ifndef KVL_REMOTE_ASK_H
#define KVL_REMOTE_ASK_H

#include "daemon/remote/endpoint/remote-options.h"

struct remote_asker;

#define REMOTE_ASK_MSEC 2000 /* not tuned */

/* Bytes of a reply as text, terminated: CLUSTER NODES of a thousand nodes takes some 200 KiB. */
#define REMOTE_ASK_BYTES (1u << 20)

/*
 * Connects to `address` ("host:port"), which needn't be one of the options'. Returns 0; -EINVAL:
 * the address or a file of TLS isn't usable; -EACCES: the certificate isn't trusted, or AUTH was
 * refused; -ETIMEDOUT, other -errno: unreachable. After an error `why` is the end of a sentence,
 * else "".
 */
int remote_ask_open(const struct remote_options *options, const char *address,
        struct remote_asker **ret_asker, char why[REMOTE_WHY_BYTES]);

/* NULL: nothing. */
void remote_ask_close(struct remote_asker *a);

/*
 * Sends a command (words end with NULL). Returns 0 with *ret_text, owned: each string and number of
 * the reply is followed by a newline, and nil is an empty line. Carriage returns are left out;
 * other bytes that aren't printable ASCII or a newline become '?', in `why`, too. -EACCES: the user
 * is unknown, or lacks the right (NOPERM). -EREMOTEIO: another error of the server, with its text
 * in `why`; other commands can be sent. After -EMSGSIZE (longer than REMOTE_ASK_BYTES), -EPROTO,
 * -ETIMEDOUT and other -errno every call fails with the same.
 */
int remote_ask(struct remote_asker *a, const char *const *words, char **ret_text,
        char why[REMOTE_WHY_BYTES]);

#endif
