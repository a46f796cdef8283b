/*
 * TLS of a connection to a server, by OpenSSL: 1.2 or later. The server's certificate is verified,
 * once; there is no renegotiation. No function waits: sockets don't block, and the caller waits for
 * them.
 *
 *   remote_tls_new() -> remote_tls_begin() for each connection -> remote_tls_handshake() until it
 *   isn't -EAGAIN -> remote_tls_read(), remote_tls_write() -> SSL_free();
 *
 * A record may have one byte, or none that counts, and OpenSSL reads on while records arrive: a
 * fast server would keep a thread forever. So the socket is read a bounded number of times in a
 * turn; then OpenSSL is told that it is empty, and other connections have their turn.
 *
 * Threads: struct remote_tls is shared by any, an SSL is one connection's.
 */
#ifndef KVL_REMOTE_REMOTE_TLS_H
#define KVL_REMOTE_REMOTE_TLS_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "daemon/remote/endpoint/remote-options.h"

struct remote_tls;

/* Loads the trusted CAs, and this client's certificate, from the files of the options. Returns 0;
 * -EINVAL: a file isn't usable, with the sentence in `why`; -ENOMEM, without. */
int remote_tls_new(const struct remote_options *options, struct remote_tls **ret_tls,
        char why[REMOTE_WHY_BYTES]);
void remote_tls_free(struct remote_tls *t); /* NULL: nothing */

/* Reads of the socket in a turn: two for a record, of up to 16 KiB. Not tuned. */
#define REMOTE_TLS_READS 64

/* Begins TLS on a new connection. Its certificate must be for remote_options.tls_host, or for
 * `host`, the address. *n_reads (borrowed for the life of the connection) counts down the reads of
 * the socket that are left. If it is 0 after a call, the caller resets it, and calls again without
 * waiting for the socket: OpenSSL may hold the last bytes. Returns 0 with *ret_ssl, owned, which
 * doesn't close the descriptor; or -ENOMEM. */
int remote_tls_begin(
        struct remote_tls *t, int fd, const char *host, unsigned *n_reads, SSL **ret_ssl);

/* Returns 0: done; -EAGAIN, with *ret_wants_write; -errno (-EKEYREJECTED: the certificate isn't
 * trusted). */
int remote_tls_handshake(SSL *ssl, bool *ret_wants_write);

/* Return bytes (> 0), of the first pieces; -EAGAIN: SSL_want_write() and SSL_want_read() tell the
 * direction, as a read may have to write, and a write to read; 0: the other end has closed, or
 * nothing was to be written; other -errno. */
ssize_t remote_tls_read(SSL *ssl, const struct iovec *iov, unsigned n_iov);
ssize_t remote_tls_write(SSL *ssl, const struct iovec *iov, unsigned n_iov);

#endif
