#include "daemon/remote/endpoint/remote-tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/remote/endpoint/remote-address.h"

/* Small pieces are joined: a record is the unit of encryption, and of a write. */
#define RECORD_BYTES (16u << 10)

struct remote_tls {
        SSL_CTX *context;
        char *host; /* owned; NULL: the address */
};

/* Writes the first of OpenSSL's reasons as a sentence's end, and clears its queue. */
static void tls_explain(char why[REMOTE_WHY_BYTES], const char *what, const char *file)
{
        unsigned long code = ERR_peek_error();
        const char *reason = code ? ERR_reason_error_string(code) : NULL;

        snprintf(why, REMOTE_WHY_BYTES, "%s %s can't be used for TLS: %s", what, file,
                reason ? reason : "OpenSSL doesn't say why");
        ERR_clear_error();
}

static int files_load(SSL_CTX *c, const struct remote_options *o, char why[REMOTE_WHY_BYTES])
{
        if (o->tls_ca && SSL_CTX_load_verify_file(c, o->tls_ca) != 1) {
                tls_explain(why, "the file of certificates to believe", o->tls_ca);
                return -EINVAL;
        }
        if (!o->tls_ca && SSL_CTX_set_default_verify_paths(c) != 1) {
                tls_explain(why, "the system's store of certificates,", "as OpenSSL has it,");
                return -EINVAL;
        }
        if (!o->tls_cert)
                return 0;
        if (SSL_CTX_use_certificate_chain_file(c, o->tls_cert) != 1) {
                tls_explain(why, "the certificate", o->tls_cert);
                return -EINVAL;
        }
        if (SSL_CTX_use_PrivateKey_file(c, o->tls_key, SSL_FILETYPE_PEM) != 1) {
                tls_explain(why, "the private key", o->tls_key);
                return -EINVAL;
        }
        return 0;
}

int remote_tls_new(const struct remote_options *options, struct remote_tls **ret_tls,
        char why[REMOTE_WHY_BYTES])
{
        struct remote_tls *t = calloc(1, sizeof(*t));
        int r = -ENOMEM;

        if (t)
                t->context = SSL_CTX_new(TLS_client_method());
        if (t && options->tls_host)
                t->host = strdup(options->tls_host);
        if (t && t->context && (t->host || !options->tls_host)) {
                SSL_CTX_set_min_proto_version(t->context, TLS1_2_VERSION);
                SSL_CTX_set_options(t->context, SSL_OP_NO_RENEGOTIATION);
                SSL_CTX_set_verify(t->context, SSL_VERIFY_PEER, NULL);
                SSL_CTX_set_mode(t->context,
                        SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
                r = files_load(t->context, options, why);
        }
        if (r < 0) {
                remote_tls_free(t);
                return r;
        }
        *ret_tls = t;
        return 0;
}

void remote_tls_free(struct remote_tls *t)
{
        if (!t)
                return;
        SSL_CTX_free(t->context);
        free(t->host);
        free(t);
}

/* Requires this name, or this address, in the certificate. */
static bool name_expect(SSL *ssl, const char *name)
{
        struct sockaddr_storage address;
        socklen_t len;

        if (remote_address_parse(name, 1, &address, &len))
                return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1;
        SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
        return SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1;
}

/* Called around OpenSSL's calls on a socket. A read beyond the bound returns as from an empty
 * socket. */
static long reads_count(BIO *bio, int what, const char *data, size_t len, int number, long more,
        int result, size_t *done)
{
        unsigned *n_reads = (unsigned *)(void *)BIO_get_callback_arg(bio);

        if (what != BIO_CB_READ)
                return result;
        if (*n_reads == 0) {
                BIO_clear_retry_flags(bio);
                BIO_set_retry_read(bio);
                return -1;
        }
        (*n_reads)--;
        return result;
}

int remote_tls_begin(
        struct remote_tls *t, int fd, const char *host, unsigned *n_reads, SSL **ret_ssl)
{
        SSL *ssl;

        ERR_clear_error();
        ssl = SSL_new(t->context);
        if (!ssl || !name_expect(ssl, t->host ? t->host : host) || SSL_set_fd(ssl, fd) != 1) {
                SSL_free(ssl);
                ERR_clear_error();
                return -ENOMEM;
        }
        BIO_set_callback_ex(SSL_get_rbio(ssl), reads_count);
        BIO_set_callback_arg(SSL_get_rbio(ssl), (char *)(void *)n_reads);
        SSL_set_connect_state(ssl);
        *ret_ssl = ssl;
        return 0;
}

/* Returns bytes; -EAGAIN; 0: the other end has closed; -errno. */
static ssize_t tls_result(SSL *ssl, int r)
{
        int saved = errno, error;

        if (r > 0)
                return r;
        error = SSL_get_error(ssl, r);
        ERR_clear_error();
        if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
                return -EAGAIN;
        if (error == SSL_ERROR_ZERO_RETURN)
                return 0;
        if (error == SSL_ERROR_SYSCALL)
                return saved > 0 ? -saved : -ECONNRESET;
        return -EPROTO;
}

int remote_tls_handshake(SSL *ssl, bool *ret_wants_write)
{
        ssize_t r;

        ERR_clear_error();
        errno = 0;
        r = tls_result(ssl, SSL_do_handshake(ssl));
        *ret_wants_write = SSL_want_write(ssl);
        if (r > 0)
                return 0;
        /* The other end closed before the handshake was complete. */
        if (r == 0)
                return -ECONNRESET;
        if (r == -EPROTO && SSL_get_verify_result(ssl) != X509_V_OK)
                return -EKEYREJECTED;
        return (int)r;
}

ssize_t remote_tls_read(SSL *ssl, const struct iovec *iov, unsigned n_iov)
{
        ssize_t sum = 0, r = 0;

        ERR_clear_error();
        for (unsigned i = 0; i < n_iov; i++)
                for (size_t at = 0; at < iov[i].iov_len; at += (size_t)r) {
                        errno = 0;
                        r = tls_result(
                                ssl, SSL_read(ssl, (char *)iov[i].iov_base + at,
                                             (int)MIN(iov[i].iov_len - at, (size_t)INT32_MAX)));
                        if (r <= 0)
                                return sum > 0 ? sum : r;
                        sum += r;
                }
        return sum;
}

/* Fills a record from pieces. Returns its bytes. */
static size_t record_fill(char *record, const struct iovec *iov, unsigned n_iov)
{
        size_t len = 0;

        for (unsigned i = 0; i < n_iov && len < RECORD_BYTES; i++) {
                size_t n = MIN(iov[i].iov_len, RECORD_BYTES - len);

                memcpy(record + len, iov[i].iov_base, n);
                len += n;
        }
        return len;
}

ssize_t remote_tls_write(SSL *ssl, const struct iovec *iov, unsigned n_iov)
{
        char record[RECORD_BYTES];
        const char *data = record;
        size_t len;

        if (n_iov == 0)
                return 0;
        if (iov[0].iov_len >= RECORD_BYTES || n_iov == 1) {
                data = iov[0].iov_base;
                len = MIN(iov[0].iov_len, (size_t)RECORD_BYTES);
        } else {
                len = record_fill(record, iov, n_iov);
        }
        ERR_clear_error();
        errno = 0;
        return tls_result(ssl, SSL_write(ssl, data, (int)len));
}
