/* The client of Redis with a hostile TLS server: records of a byte each, as many as a socket takes,
 * and a handshake without end. Records are made before, so that sending is faster than decrypting.
 * Real servers: tests/integration/test_remote_server.c. */
#include "tests/unit/remote-fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "daemon/remote/protocol/slots.h"

/* Time for a thread to be scheduled on a machine that is busy with other tests. */
#define SLACK_MSEC 1000

/* Records for longer than that, of which each takes some two microseconds; their making takes half
 * of it. */
#define TRICKLE_BYTES     3000000
#define TRICKLE_MAKE_NSEC (4 * NSEC_PER_SEC)

/* The client's answers aren't waited for meanwhile. */
#define SILENCE_MSEC 60000

#define CONNS_MAX 8

/* ---- servers -------------------------------------------------------------------------------- */

struct server;
typedef void (*serve_fn)(struct server *s, int fd);

/* Serves each connection in a thread of its own. */
struct server {
        serve_fn fn;
        SSL_CTX *context; /* borrowed */
        int listen_fd;
        uint16_t port;
        const char *slots; /* what CLUSTER SLOTS is answered by; borrowed */
        _Atomic bool is_trickling, is_stopping;
        _Atomic unsigned n_hellos; /* of clients */
        pthread_t acceptor, threads[CONNS_MAX];
        int fds[CONNS_MAX];
        unsigned n_conns;
};

struct served {
        struct server *server;
        int fd;
};

static void *serve(void *data)
{
        struct served with = *(struct served *)data;

        free(data);
        with.server->fn(with.server, with.fd);
        return NULL;
}

static void *accept_all(void *data)
{
        struct server *s = data;

        for (;;) {
                struct served *with = malloc(sizeof(*with));
                int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC);

                if (fd < 0) {
                        free(with);
                        return NULL;
                }
                assert_true(s->n_conns < CONNS_MAX);
                *with = (struct served){s, fd};
                s->fds[s->n_conns] = fd;
                assert_int_equal(pthread_create(&s->threads[s->n_conns++], NULL, serve, with), 0);
        }
}

/* The server has its port, and serves no client before server_start(). */
static void server_init(struct server *s, serve_fn fn, SSL_CTX *context)
{
        struct sockaddr_in address = {
                .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof(address);

        *s = (struct server){.fn = fn, .context = context};
        s->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(s->listen_fd >= 0);
        assert_int_equal(bind(s->listen_fd, (struct sockaddr *)&address, sizeof(address)), 0);
        assert_int_equal(listen(s->listen_fd, CONNS_MAX), 0);
        assert_int_equal(getsockname(s->listen_fd, (struct sockaddr *)&address, &len), 0);
        s->port = ntohs(address.sin_port);
}

static void server_start(struct server *s, const char *slots)
{
        s->slots = slots;
        assert_int_equal(pthread_create(&s->acceptor, NULL, accept_all, s), 0);
}

/* After the client has gone. */
static void server_stop(struct server *s)
{
        atomic_store(&s->is_stopping, true);
        (void)shutdown(s->listen_fd, SHUT_RDWR);
        pthread_join(s->acceptor, NULL);
        for (unsigned i = 0; i < s->n_conns; i++) {
                (void)shutdown(s->fds[i], SHUT_RDWR);
                pthread_join(s->threads[i], NULL);
                fd_close(s->fds[i]);
        }
        fd_close(s->listen_fd);
}

/* Returns false if the receiver has closed. */
static bool send_all(int fd, const char *data, size_t len)
{
        while (len > 0) {
                ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

                if (n <= 0)
                        return false;
                data += n;
                len -= (size_t)n;
        }
        return true;
}

/* ---- certificates --------------------------------------------------------------------------- */

/* A context of 127.0.0.1, whose self-signed certificate is in `path`. The caller frees it. */
static SSL_CTX *context_new(const char *path)
{
        SSL_CTX *context = SSL_CTX_new(TLS_server_method());
        EVP_PKEY *key = EVP_EC_gen("P-256");
        X509_EXTENSION *name =
                X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, "IP:127.0.0.1");
        X509 *crt = X509_new();
        FILE *f = fopen(path, "w");

        assert_true(context && key && name && crt && f);
        X509_set_version(crt, X509_VERSION_3);
        ASN1_INTEGER_set(X509_get_serialNumber(crt), 1);
        X509_gmtime_adj(X509_getm_notBefore(crt), -3600);
        X509_gmtime_adj(X509_getm_notAfter(crt), 3600);
        X509_NAME_add_entry_by_txt(X509_get_subject_name(crt), "CN", MBSTRING_ASC,
                (const unsigned char *)"server", -1, -1, 0);
        X509_set_issuer_name(crt, X509_get_subject_name(crt));
        X509_set_pubkey(crt, key);
        X509_add_ext(crt, name, -1);
        assert_true(X509_sign(crt, key, EVP_sha256()) > 0);
        assert_int_equal(PEM_write_X509(f, crt), 1);
        assert_int_equal(fclose(f), 0);
        assert_int_equal(SSL_CTX_use_certificate(context, crt), 1);
        assert_int_equal(SSL_CTX_use_PrivateKey(context, key), 1);
        X509_EXTENSION_free(name);
        X509_free(crt);
        EVP_PKEY_free(key);
        return context;
}

/* ---- records of a byte ---------------------------------------------------------------------- */

/* Makes as many records as it can, and then sends all at once. */
static void trickle(struct server *s, SSL *ssl, int fd)
{
        char head[32];
        int n_head = snprintf(head, sizeof(head), "$%u\r\n", TRICKLE_BYTES);
        uint64_t until = clock_now_nsec() + TRICKLE_MAKE_NSEC;
        BIO *memory = BIO_new(BIO_s_mem());
        char *records;
        long len;

        assert_non_null(memory);
        SSL_set0_wbio(ssl, memory);
        assert_int_equal(SSL_write(ssl, head, n_head), n_head);
        for (unsigned i = 0; i + 1 < TRICKLE_BYTES && clock_now_nsec() < until; i++)
                assert_int_equal(SSL_write(ssl, "x", 1), 1);
        len = BIO_get_mem_data(memory, &records);
        atomic_store(&s->is_trickling, true);
        (void)send_all(fd, records, (size_t)len);
        atomic_store(&s->is_trickling, false);
}

/* A value in as many records, each of so many bytes, the last one with what ends it; all at once.
 */
static void say_records(SSL *ssl, int fd, const char *name)
{
        BIO *memory = BIO_new(BIO_s_mem());
        char bytes[16384], head[32], *records;
        unsigned n, len;
        long total;

        assert_int_equal(sscanf(name, "records:%u:%u:", &n, &len), 2);
        assert_non_null(memory);
        SSL_set0_wbio(ssl, memory);
        (void)SSL_write(ssl, head, snprintf(head, sizeof(head), "$%u\r\n", n * len));
        memset(bytes, 'x', sizeof(bytes));
        memcpy(bytes + len, "\r\n", 2);
        for (unsigned i = 1; i <= n; i++)
                (void)SSL_write(ssl, bytes, (int)len + (i == n ? 2 : 0));
        total = BIO_get_mem_data(memory, &records);
        (void)send_all(fd, records, (size_t)total);
}

static void note_hello(
        int writes, int version, int type, const void *data, size_t len, SSL *ssl, void *server)
{
        struct server *s = server;

        if (!writes && type == SSL3_RT_HANDSHAKE && *(const uint8_t *)data == SSL3_MT_CLIENT_HELLO)
                atomic_fetch_add(&s->n_hellos, 1);
}

/* Asks for another handshake, and answers nevertheless. */
static void say_again(struct server *s, SSL *ssl)
{
        assert_int_equal(SSL_renegotiate(ssl), 1);
        (void)SSL_do_handshake(ssl);
        (void)SSL_write(ssl, "$5\r\nhello\r\n", 11);
}

static void serve_tls(struct server *s, int fd)
{
        SSL *ssl = SSL_new(s->context);
        char text[1025], *records;
        int n;

        assert_non_null(ssl);
        assert_int_equal(SSL_set_fd(ssl, fd), 1);
        SSL_set_accept_state(ssl);
        SSL_set_msg_callback(ssl, note_hello);
        SSL_set_msg_callback_arg(ssl, s);
        while ((n = SSL_read(ssl, text, sizeof(text) - 1)) > 0) {
                text[n] = '\0';
                if (strstr(text, "SLOTS"))
                        (void)SSL_write(ssl, s->slots, (int)strlen(s->slots));
                if (strstr(text, "trickle"))
                        trickle(s, ssl, fd);
                if (strstr(text, "again"))
                        say_again(s, ssl);
                if ((records = strstr(text, "records:")))
                        say_records(ssl, fd, records);
        }
        SSL_free(ssl);
}

/* A name that begins with this, whose slot lies in the first half or the second. */
static void key_make(char key[32], const char *begins, unsigned half)
{
        unsigned i = 0;

        do
                snprintf(key, 32, "%s%u", begins, i++);
        while (slot_of_key(key, strlen(key)) / (N_SLOTS / 2) != half);
}

/* Opens a store with one connection for large values, and waits until it knows the nodes that this
 * server names. `ca` has signed their certificates. */
static struct remote_store *open_narrow(const struct server *server, const char *ca)
{
        char address[32];
        const char *addresses[] = {address};
        struct remote_store *s;

        snprintf(address, sizeof(address), "127.0.0.1:%u", server->port);
        s = store_open(&(struct remote_options){.addresses = addresses,
                .n_addresses = 1,
                .large_threads = 1,
                .connect_msec = 5000,
                .silence_msec = SILENCE_MSEC,
                .is_tls = true,
                .tls_ca = ca});
        store_await_known(s);
        return s;
}

/* One node sends so much that its thread could do nothing else. What is asked of another one by
 * that thread ends in time, and what is taken back is let go of. */
TEST(test_trickle)
{
        static uint8_t value[TRICKLE_BYTES];
        struct iovec iov = {value, sizeof(value)}, small = {(uint8_t[8]){0}, 8};
        char ca[256], slots[256], trickle[32], hang[32];
        const char *dir = test_dir_make();
        struct server ill, well;
        struct remote_store *s;
        struct remote_io *io;
        struct one o, other;
        uint64_t started;
        SSL_CTX *context;

        snprintf(ca, sizeof(ca), "%s/ca.crt", dir);
        context = context_new(ca);
        server_init(&ill, serve_tls, context);
        server_init(&well, serve_tls, context);
        snprintf(slots, sizeof(slots),
                "*2\r\n*3\r\n:0\r\n:8191\r\n*2\r\n$9\r\n127.0.0.1\r\n:%u\r\n"
                "*3\r\n:8192\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%u\r\n",
                ill.port, well.port);
        server_start(&ill, slots);
        server_start(&well, slots);
        s = open_narrow(&well, ca);
        key_make(trickle, "trickle", 0);
        key_make(hang, "hang", 1);

        /* The connection stands before. */
        one_submit(s, REMOTE_READ, hang, &small, 1, in_msec(500), &other);
        one_await(s, &other);
        io = one_submit(s, REMOTE_READ, trickle, &iov, 1, in_msec(60000), &o);
        while (!atomic_load(&ill.is_trickling))
                poll(NULL, 0, 1);
        remote_cancel(s, io);
        started = clock_now_nsec();
        one_submit(s, REMOTE_READ, hang, &small, 1, in_msec(200), &other);
        one_await(s, &other);
        assert_int_equal(other.result, -ETIMEDOUT);
        assert_true(other.done_nsec - started < (200 + SLACK_MSEC) * NSEC_PER_MSEC);
        assert_true(o.is_done);
        assert_int_equal(o.result, -ECANCELED);
        io = one_submit(s, REMOTE_READ, hang, &small, 1, in_msec(60000), &other);
        started = clock_now_nsec();
        remote_take_back(s, io);
        assert_true(clock_now_nsec() - started < SLACK_MSEC * NSEC_PER_MSEC);
        one_await(s, &other);
        remote_close(s);
        server_stop(&ill);
        server_stop(&well);
        SSL_CTX_free(context);
        test_dir_remove(dir);
}

/* ---- records that end anywhere -------------------------------------------------------------- */

/* Bytes that TLS has read before another connection's turn aren't forgotten. */
TEST(test_turns)
{
        static uint8_t value[1 << 20];
        char ca[256], key[32];
        const char *dir = test_dir_make();
        SSL_CTX *context;
        struct remote_store *s;
        struct server well;
        struct one o;

        snprintf(ca, sizeof(ca), "%s/ca.crt", dir);
        context = context_new(ca);
        server_init(&well, serve_tls, context);
        server_start(&well, "-ERR This instance has cluster support disabled\r\n");
        s = open_narrow(&well, ca);
        for (unsigned i = 0; i < 600; i++) {
                unsigned n = 30 + i % 3, len = 7000 + 13 * i;
                bool fits = i % 2;

                snprintf(key, sizeof(key), "records:%u:%u:", n, len);
                assert_int_equal(one_call(s, REMOTE_READ, key, value, fits ? n * len : 8, &o),
                        fits ? 0 : -EMSGSIZE);
        }
        remote_close(s);
        server_stop(&well);
        SSL_CTX_free(context);
        test_dir_remove(dir);
}

/* A server that wants to negotiate again isn't heard: the certificate that was verified counts. */
TEST(test_negotiated_once)
{
        char ca[256], value[6] = "";
        const char *dir = test_dir_make();
        SSL_CTX *context;
        struct remote_store *s;
        struct server again;
        struct one o;

        snprintf(ca, sizeof(ca), "%s/ca.crt", dir);
        context = context_new(ca);
        SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
        server_init(&again, serve_tls, context);
        server_start(&again, "-ERR This instance has cluster support disabled\r\n");
        s = open_narrow(&again, ca);
        assert_int_equal(one_call(s, REMOTE_READ, "again", value, 5, &o), 0);
        assert_string_equal(value, "hello");
        remote_close(s);
        server_stop(&again);
        assert_int_equal(atomic_load(&again.n_hellos), again.n_conns);
        SSL_CTX_free(context);
        test_dir_remove(dir);
}

/* ---- a handshake without end ---------------------------------------------------------------- */

/* TLS 1.2 lets a server say HelloRequest at any time, which counts for nothing during a handshake.
 */
static void serve_requests(struct server *s, int fd)
{
        static const char request[] = {22, 3, 3, 0, 4, 0, 0, 0, 0};
        char many[9 * 7000];
        uint64_t until = clock_now_nsec() + 10 * NSEC_PER_SEC;

        for (size_t i = 0; i < sizeof(many); i++)
                many[i] = request[i % sizeof(request)];
        while (!atomic_load(&s->is_stopping) && clock_now_nsec() < until &&
                send_all(fd, many, sizeof(many)))
                ;
        (void)shutdown(fd, SHUT_RDWR);
}

/* The handshake ends at its deadline, for any bytes from the server. */
TEST(test_endless_handshake)
{
        enum { CONNECT_MSEC = 250 };
        const char *address;
        struct remote_options options = {.addresses = &address,
                .n_addresses = 1,
                .connect_msec = CONNECT_MSEC,
                .is_tls = true};
        uint64_t started = clock_now_nsec();
        struct remote_store *s;
        struct server ill;
        char text[32];

        server_init(&ill, serve_requests, NULL);
        server_start(&ill, NULL);
        snprintf(text, sizeof(text), "127.0.0.1:%u", ill.port);
        address = text;
        s = store_open(&options);
        while (store_node(s, NULL).n_losses == 0) {
                assert_true(clock_now_nsec() - started < PATIENCE_NSEC / 2);
                poll(NULL, 0, 1);
        }
        assert_int_equal(store_node(s, NULL).last_error, -ETIMEDOUT);
        remote_close(s);
        server_stop(&ill);
}

int main(void)
{
        signal(SIGPIPE, SIG_IGN); /* OpenSSL writes to sockets whose other end may have gone */
        return test_run_all(NULL, NULL);
}
