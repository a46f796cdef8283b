/*
 * TLS of a connection to a server, by OpenSSL: 1.2 or later, and the server's certificate is
 * verified, once: nothing is negotiated again. Nothing here waits: sockets don't block, and who
 * calls waits for them.
 *
 *   remote_tls_new() -> remote_tls_begin() for each connection -> remote_tls_handshake() until it
 *   isn't -EAGAIN -> remote_tls_read(), remote_tls_write() -> SSL_free()
 *
 * A record may have one byte, or none that counts, and OpenSSL goes on reading while there are
 * some: a server that sends them fast enough would keep a thread forever. So the socket is read a
 * bounded number of times, then OpenSSL is told that it has nothing more, and others have their
 * turn.
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

/* Whom to believe, and who this client is, from the files of the options. 0; -EINVAL: a file isn't
 * usable, with the sentence in `why`; -ENOMEM, without. */
int remote_tls_new(const struct remote_options *options, struct remote_tls **ret_tls,
        char why[REMOTE_WHY_BYTES]);
void remote_tls_free(struct remote_tls *t); /* NULL: nothing */

/* How often the socket is read in a turn: twice for a record, of up to 16 KiB. Not tuned. */
#define REMOTE_TLS_READS 64

/* A connection that stands, whose certificate is to be of remote_options.tls_host, or of `host`,
 * the address. *n_reads, borrowed as long as the connection is: how often its socket may be read
 * still, which counts down; whoever finds 0 there after a call sets it anew, and calls again
 * without waiting for the socket, as OpenSSL may have what it said last. 0 with *ret_ssl, owned,
 * which doesn't close the descriptor; -ENOMEM. */
int remote_tls_begin(
        struct remote_tls *t, int fd, const char *host, unsigned *n_reads, SSL **ret_ssl);

/* 0: it stands. -EAGAIN, with *ret_wants_write; -errno (-EKEYREJECTED: the certificate isn't
 * believed). */
int remote_tls_handshake(SSL *ssl, bool *ret_wants_write);

/* Bytes (> 0), of the first pieces; -EAGAIN: SSL_want_write() and SSL_want_read() say for what, as
 * a read may have to write, and a write to read; 0: the other end has said that it is over, or, of
 * a write, there was nothing to write; other -errno. */
ssize_t remote_tls_read(SSL *ssl, const struct iovec *iov, unsigned n_iov);
ssize_t remote_tls_write(SSL *ssl, const struct iovec *iov, unsigned n_iov);

#endif
