/* Asks one server, synchronously: each call waits, no state is shared. */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/parse.h"
#include "daemon/remote/ask/ask.h"
#include "daemon/remote/endpoint/remote-address.h"
#include "daemon/remote/endpoint/remote-tls.h"
#include "daemon/remote/protocol/resp.h"

/* Buffer for an arriving reply; no line of one is longer (RESP_LINE_MAX). */
#define ASK_INPUT_BYTES (16u << 10)

struct remote_asker {
        int fd;
        SSL *ssl;
        unsigned tls_reads; /* remote_tls_begin() */
        struct remote_tls *tls;
        int failure; /* set once; every later call fails with it; 0: none */
        struct resp_parser parser;
        size_t n_input;
        char input[ASK_INPUT_BYTES];
        size_t n_text;
        char text[REMOTE_ASK_BYTES]; /* of the reply that arrives */
};

/* ---- waiting --------------------------------------------------------------------------------- */

/* 0; -ETIMEDOUT; other -errno. */
static int ask_wait(const struct remote_asker *a, short events, uint64_t deadline_nsec)
{
        struct pollfd p = {.fd = a->fd, .events = events};
        uint64_t now = clock_now_nsec();
        int n;

        do {
                uint64_t left = deadline_nsec > now ? deadline_nsec - now : 0;

                n = poll(&p, 1, (int)((left + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC));
                now = clock_now_nsec();
        } while (n < 0 && errno == EINTR);
        if (n < 0)
                return -errno;
        return n == 0 ? -ETIMEDOUT : 0;
}

/* Bytes (> 0) or -errno: -ECONNRESET at the end. */
static ssize_t ask_receive(struct remote_asker *a, uint64_t deadline_nsec)
{
        struct iovec iov = {a->input + a->n_input, sizeof(a->input) - a->n_input};

        for (;;) {
                ssize_t n;
                int r;

                if (a->ssl) {
                        a->tls_reads = REMOTE_TLS_READS;
                        n = remote_tls_read(a->ssl, &iov, 1);
                } else {
                        n = recv(a->fd, iov.iov_base, iov.iov_len, MSG_DONTWAIT);
                        n = n < 0 ? -errno : n;
                }
                if (n == 0)
                        return -ECONNRESET;
                if (n != -EAGAIN && n != -EINTR)
                        return n;
                r = ask_wait(a, a->ssl && SSL_want_write(a->ssl) ? POLLOUT : POLLIN, deadline_nsec);
                if (r < 0)
                        return r;
        }
}

static int ask_send(struct remote_asker *a, const char *data, size_t len, uint64_t deadline_nsec)
{
        while (len > 0) {
                struct iovec iov = {(void *)data, len};
                ssize_t n;
                int r;

                if (a->ssl) {
                        n = remote_tls_write(a->ssl, &iov, 1);
                        n = n == 0 ? -ECONNRESET : n;
                } else {
                        n = send(a->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
                        n = n < 0 ? -errno : n;
                }
                if (n > 0) {
                        data += n;
                        len -= (size_t)n;
                        continue;
                }
                if (n != -EAGAIN && n != -EINTR)
                        return (int)n;
                r = ask_wait(a, a->ssl && SSL_want_read(a->ssl) ? POLLIN : POLLOUT, deadline_nsec);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* ---- replies --------------------------------------------------------------------------------- */

/* Replaces bytes that could control a terminal: the text is shown to people. */
static char harmless(char c)
{
        return (c >= ' ' && c <= '~') || c == '\n' ? c : '?';
}

static int text_add(struct remote_asker *a, const char *text, size_t len)
{
        if (len >= sizeof(a->text) - a->n_text)
                return -EMSGSIZE;
        for (size_t i = 0; i < len; i++)
                if (text[i] != '\r')
                        a->text[a->n_text++] = harmless(text[i]);
        return 0;
}

static int text_add_number(struct remote_asker *a, int64_t number)
{
        char text[32];

        return text_add(a, text, (size_t)snprintf(text, sizeof(text), "%lld\n", (long long)number));
}

/* Converts an error, which is the whole reply and begins with its kind. */
static int error_of(const struct resp_token *t, char why[REMOTE_WHY_BYTES])
{
        static const char *const refusals[] = {"NOPERM", "NOAUTH", "WRONGPASS"};

        snprintf(why, REMOTE_WHY_BYTES, "%.*s", (int)MIN(t->text_len, (size_t)200), t->text);
        for (char *at = why; *at; at++)
                *at = harmless(*at);
        for (unsigned i = 0; i < ARRAY_SIZE(refusals); i++)
                if (strncmp(why, refusals[i], strlen(refusals[i])) == 0)
                        return -EACCES;
        return -EREMOTEIO;
}

/* Takes a token. *result: of an error reply. Returns 0 or -EMSGSIZE. */
static int take_token(
        struct remote_asker *a, const struct resp_token *t, int *result, char why[REMOTE_WHY_BYTES])
{
        int r;

        switch (t->kind) {
        case RESP_STATUS:
                r = text_add(a, t->text, t->text_len);
                return r == 0 ? text_add(a, "\n", 1) : r;
        case RESP_ERROR:
                *result = error_of(t, why);
                return 0;
        case RESP_INTEGER:
                return text_add_number(a, t->number);
        case RESP_BULK:
                return t->number == 0 ? text_add(a, "\n", 1) : 0;
        case RESP_NULL:
                return text_add(a, "\n", 1);
        default:
                return 0;
        }
}

/* Takes received bytes of a bulk string. */
static int take_payload(struct remote_asker *a, size_t *ret_used)
{
        size_t n = MIN(a->n_input, (size_t)a->parser.payload_left);
        int r = text_add(a, a->input, n);

        resp_took(&a->parser, n);
        *ret_used = n;
        return r == 0 && n > 0 && a->parser.payload_left == 0 ? text_add(a, "\n", 1) : r;
}

/* Parses a step of the received bytes. Returns 0: continue; 1: the reply has ended; -EAGAIN: more
 * bytes are needed; -errno. */
static int take_step(struct remote_asker *a, int *result, char why[REMOTE_WHY_BYTES])
{
        struct resp_token t = {.kind = RESP_MORE};
        size_t used = 0;
        int r;

        if (a->parser.payload_left > 0) {
                r = a->n_input > 0 ? take_payload(a, &used) : -EAGAIN;
        } else {
                r = resp_next(&a->parser, a->input, a->n_input, &used, &t);
                if (r == 0)
                        r = take_token(a, &t, result, why);
                if (r == 0 && t.kind == RESP_MORE)
                        r = -EAGAIN;
                else if (r == 0 && t.kind == RESP_END)
                        r = 1;
        }
        /* The token's text lay there until now. */
        a->n_input -= used;
        memmove(a->input, a->input + used, a->n_input);
        return r;
}

/* Returns the result of the command, or -errno of the connection, which ends it. */
static int ask_answer(struct remote_asker *a, uint64_t deadline_nsec, char why[REMOTE_WHY_BYTES])
{
        int result = 0;

        a->n_text = 0;
        for (;;) {
                int r = take_step(a, &result, why);
                ssize_t n;

                if (r == 1)
                        return result;
                if (r < 0 && r != -EAGAIN)
                        return a->failure = r;
                if (r == 0)
                        continue;
                if (a->n_input == sizeof(a->input))
                        return a->failure = -EPROTO;
                n = ask_receive(a, deadline_nsec);
                if (n < 0)
                        return a->failure = (int)n;
                a->n_input += (size_t)n;
        }
}

int remote_ask(struct remote_asker *a, const char *const *words, char **ret_text,
        char why[REMOTE_WHY_BYTES])
{
        uint64_t deadline = clock_now_nsec() + REMOTE_ASK_MSEC * NSEC_PER_MSEC;
        _cleanup_free_ char *request = NULL;
        uint32_t len;
        int r = a->failure;

        why[0] = '\0';
        if (r == 0) {
                request = resp_command_new(words, &len);
                if (!request)
                        r = -ENOMEM;
        }
        if (r == 0 && (r = ask_send(a, request, len, deadline)) < 0)
                a->failure = r;
        if (r == 0)
                r = ask_answer(a, deadline, why);
        if (request)
                explicit_bzero(request, len); /* AUTH has a secret */
        if (r == 0) {
                a->text[a->n_text] = '\0';
                *ret_text = strdup(a->text);
                r = *ret_text ? 0 : -ENOMEM;
        }
        if (r < 0 && !why[0])
                snprintf(why, REMOTE_WHY_BYTES, "%s", strerror(-r));
        return r;
}

/* ---- the connection -------------------------------------------------------------------------- */

static int ask_connect(struct remote_asker *a, const struct addrinfo *to, uint64_t deadline_nsec)
{
        socklen_t len = sizeof(int);
        int error = 0, r;

        a->fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (a->fd < 0)
                return -errno;
        if (connect(a->fd, to->ai_addr, to->ai_addrlen) == 0)
                return 0;
        if (errno != EINPROGRESS)
                return -errno;
        r = ask_wait(a, POLLOUT, deadline_nsec);
        if (r == 0 && getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
                r = -errno;
        return r < 0 ? r : -error;
}

/* The first address of the name that answers. */
static int ask_reach(struct remote_asker *a, const char *host, uint16_t port,
        uint64_t deadline_nsec, char why[REMOTE_WHY_BYTES])
{
        struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG}, *found;
        char text[8];
        int r;

        snprintf(text, sizeof(text), "%u", (unsigned)port);
        r = getaddrinfo(host, text, &hints, &found);
        if (r != 0)
                return say_why(why, REMOTE_WHY_BYTES, -EHOSTUNREACH,
                        "%.128s can't be resolved: %.64s", host, gai_strerror(r));
        r = -EHOSTUNREACH;
        for (const struct addrinfo *to = found; to && r < 0; to = to->ai_next) {
                if (a->fd >= 0)
                        close(a->fd);
                r = ask_connect(a, to, deadline_nsec);
        }
        freeaddrinfo(found);
        return r;
}

static int ask_handshake(struct remote_asker *a, const struct remote_options *options,
        const char *host, uint64_t deadline_nsec, char why[REMOTE_WHY_BYTES])
{
        bool wants_write;
        int r = remote_tls_new(options, &a->tls, why);

        if (r == 0)
                r = remote_tls_begin(a->tls, a->fd, host, &a->tls_reads, &a->ssl);
        while (r == 0) {
                a->tls_reads = REMOTE_TLS_READS;
                r = remote_tls_handshake(a->ssl, &wants_write);
                if (r != -EAGAIN)
                        break;
                r = ask_wait(a, wants_write ? POLLOUT : POLLIN, deadline_nsec);
        }
        if (r != -EKEYREJECTED)
                return r;
        return say_why(why, REMOTE_WHY_BYTES, -EACCES, "its certificate isn't believed");
}

static int ask_authenticate(
        struct remote_asker *a, const struct remote_options *o, char why[REMOTE_WHY_BYTES])
{
        const char *const named[] = {"AUTH", o->user, o->secret, NULL};
        const char *const unnamed[] = {"AUTH", o->secret, NULL};
        _cleanup_free_ char *text = NULL;
        int r = o->secret ? remote_ask(a, o->user ? named : unnamed, &text, why) : 0;

        return r == -EREMOTEIO ? -EACCES : r;
}

int remote_ask_open(const struct remote_options *options, const char *address,
        struct remote_asker **ret_asker, char why[REMOTE_WHY_BYTES])
{
        unsigned msec = options->connect_msec > 0 ? options->connect_msec : REMOTE_CONNECT_MSEC;
        uint64_t deadline = clock_now_nsec() + msec * NSEC_PER_MSEC;
        struct remote_asker *a;
        char host[256];
        uint16_t port;
        int r;

        why[0] = '\0';
        if (!remote_address_split(address, host, &port))
                return say_why(
                        why, REMOTE_WHY_BYTES, -EINVAL, "it isn't host:port or [address]:port");
        a = calloc(1, sizeof(*a));
        r = a ? 0 : -ENOMEM;
        if (a) {
                a->fd = -1;
                resp_init(&a->parser, REMOTE_ASK_BYTES);
                r = ask_reach(a, host, port, deadline, why);
        }
        if (r == 0 && options->is_tls)
                r = ask_handshake(a, options, host, deadline, why);
        if (r == 0)
                r = ask_authenticate(a, options, why);
        if (r == 0) {
                *ret_asker = a;
                return 0;
        }
        if (!why[0])
                snprintf(why, REMOTE_WHY_BYTES, "%s", strerror(-r));
        remote_ask_close(a);
        return r;
}

void remote_ask_close(struct remote_asker *a)
{
        if (!a)
                return;
        SSL_free(a->ssl);
        remote_tls_free(a->tls);
        if (a->fd >= 0)
                close(a->fd);
        free(a);
}
