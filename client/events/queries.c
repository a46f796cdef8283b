#include "client/events/queries.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <microhttpd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/macros.h"
#include "client/events/query.h"
#include "client/events/token.h"
#include "client/http/headers.h"
#include "client/http/places.h"

/* Limit on a request's headers, and on the part of a body that is read at once. Not tuned. */
#define MEMORY_BYTES ((size_t)32 * 1024)
#define IDLE_SEC     30U
#define ACCEPTED_MAX 16 /* connections in a turn */
/* Without a free descriptor it takes a while until there is one. */
#define FAILURE_NSEC (100 * NSEC_PER_MSEC)

struct queries {
        struct MHD_Daemon *http;
        int listening_fd;     /* owned */
        int http_fd;          /* of `http`, which has data when something has come */
        int any_fd;           /* owned; of both */
        uint64_t accept_nsec; /* no connection is accepted before */
        const char *token;
        const struct feed *feed;
        struct places places;
};

struct request {
        bool is_health;
        uint64_t n_bytes;    /* of the body so far */
        struct query *query; /* owned; NULL with is_health */
};

/* ---- answers --------------------------------------------------------------------------------- */

static enum MHD_Result send_answer(
        struct MHD_Connection *c, unsigned status, const char *type, const char *text)
{
        struct MHD_Response *r =
                MHD_create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_MUST_COPY);
        enum MHD_Result sent = MHD_NO;

        if (!r)
                return MHD_NO;
        if (MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type) == MHD_YES &&
                (status != MHD_HTTP_UNAUTHORIZED ||
                        MHD_add_response_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer") ==
                                MHD_YES) &&
                (status != MHD_HTTP_BAD_REQUEST ||
                        MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close") == MHD_YES))
                sent = MHD_queue_response(c, status, r);
        MHD_destroy_response(r);
        return sent;
}

static enum MHD_Result answer_word(struct MHD_Connection *c, unsigned status, const char *word)
{
        return send_answer(c, status, "text/plain; charset=utf-8", word);
}

static enum MHD_Result answer_health(struct queries *q, struct MHD_Connection *c)
{
        return feed_is_live(q->feed)
                       ? answer_word(c, MHD_HTTP_OK, "queries are answered\n")
                       : answer_word(c, MHD_HTTP_SERVICE_UNAVAILABLE,
                                 "kvleased is away, no namespace matches, or its pages are being read: ask later\n");
}

static enum MHD_Result answer_query(
        struct queries *q, struct MHD_Connection *c, struct query *query)
{
        char text[QUERY_TEXT_MAX];
        int r;

        if (!feed_is_live(q->feed))
                return answer_health(q, c);
        r = query_answer(query, text);
        return send_answer(c, r < 0 ? MHD_HTTP_BAD_REQUEST : MHD_HTTP_OK, "application/json", text);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Whether the announced body is too long. Without an announcement it is counted. */
static bool is_too_long(struct MHD_Connection *c)
{
        const char *length =
                MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);

        return length && strtoull(length, NULL, 10) > QUERIES_BODY_MAX;
}

/* Returns 0, with is_health in *ret; or the status of the refusal, and why. */
static unsigned check_request(struct queries *q, struct MHD_Connection *c, const char *url,
        const char *method, const char **ret_why)
{
        const char *host, *authorization = MHD_lookup_connection_value(
                                  c, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
        bool is_health = strcmp(url, "/healthz") == 0;
        unsigned refusal = headers_check(c, &host, ret_why);

        if (refusal)
                return refusal;
        *ret_why = "POST /v1/prefix or GET /healthz\n";
        if (!is_health && strcmp(url, "/v1/prefix") != 0)
                return MHD_HTTP_NOT_FOUND;
        if (strcmp(method, is_health ? MHD_HTTP_METHOD_GET : MHD_HTTP_METHOD_POST) != 0)
                return MHD_HTTP_METHOD_NOT_ALLOWED;
        *ret_why =
                "send the header Authorization: Bearer TOKEN, with the token of --query-token-file\n";
        if (!is_health && q->token && !token_allows(q->token, authorization))
                return MHD_HTTP_UNAUTHORIZED;
        *ret_why = "the body has more than 4 MiB\n";
        return is_too_long(c) ? MHD_HTTP_CONTENT_TOO_LARGE : 0;
}

static enum MHD_Result begin_request(struct queries *q, struct MHD_Connection *c, const char *url,
        const char *method, void **ret_request)
{
        const char *why;
        unsigned refusal = check_request(q, c, url, method, &why);
        struct request *r;

        if (refusal)
                return answer_word(c, refusal, why);
        r = calloc(1, sizeof(*r));
        if (!r)
                return MHD_NO;
        *ret_request = r;
        r->is_health = strcmp(url, "/healthz") == 0;
        if (!r->is_health)
                r->query = query_new(feed_model(q->feed));
        return r->is_health || r->query ? MHD_YES : MHD_NO;
}

static enum MHD_Result on_request(void *data, struct MHD_Connection *c, const char *url,
        const char *method, const char *version, const char *upload, size_t *upload_size,
        void **request)
{
        struct queries *q = data;
        struct request *r = *request;
        enum MHD_Result sent;

        /* The first call comes before a body. A refused request is answered at once, and the
         * connection closed. */
        if (!r)
                return begin_request(q, c, url, method, request);
        if (*upload_size > 0) {
                r->n_bytes += *upload_size;
                if (r->query)
                        query_read(r->query, upload, *upload_size);
                *upload_size = 0;
                return r->n_bytes <= QUERIES_BODY_MAX ? MHD_YES : MHD_NO; /* NO: it is closed */
        }
        places_note_request(&q->places, c);
        sent = r->query ? answer_query(q, c, r->query) : answer_health(q, c);
        places_note_answer(&q->places, c);
        return sent;
}

static void on_completed(
        void *data, struct MHD_Connection *c, void **request, enum MHD_RequestTerminationCode why)
{
        struct queries *q = data;
        struct request *r = TAKE(*request);

        places_note_end(&q->places, c);
        if (r)
                query_free(r->query);
        free(r);
}

static void on_connection(void *data, struct MHD_Connection *c, void **context,
        enum MHD_ConnectionNotificationCode what)
{
        struct queries *q = data;

        q->accept_nsec = clock_now_nsec() + places_note_connection(&q->places, c, context, what);
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* Returns whether there may be more. */
static bool accept_one(struct queries *q)
{
        struct sockaddr_storage a;
        socklen_t len = sizeof(a);
        int fd =
                accept4(q->listening_fd, (struct sockaddr *)&a, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0 && errno != EAGAIN && errno != ECONNABORTED && errno != EINTR)
                q->accept_nsec = clock_now_nsec() + FAILURE_NSEC;
        return fd >= 0 && MHD_add_connection(q->http, fd, (struct sockaddr *)&a, len) == MHD_YES;
}

void queries_turn(struct queries *q)
{
        for (unsigned i = 0; i < ACCEPTED_MAX && clock_now_nsec() >= q->accept_nsec; i++)
                if (!accept_one(q))
                        break;
        (void)MHD_run(q->http);
}

int queries_wait_fd(const struct queries *q, int *timeout_msec)
{
        MHD_UNSIGNED_LONG_LONG msec;

        if (MHD_get_timeout(q->http, &msec) == MHD_YES && msec < (unsigned)*timeout_msec)
                *timeout_msec = (int)msec;
        return clock_now_nsec() < q->accept_nsec ? q->http_fd : q->any_fd;
}

static int watch_both(struct queries *q)
{
        struct epoll_event event = {.events = EPOLLIN};

        q->any_fd = epoll_create1(EPOLL_CLOEXEC);
        if (q->any_fd < 0 || epoll_ctl(q->any_fd, EPOLL_CTL_ADD, q->listening_fd, &event) < 0 ||
                epoll_ctl(q->any_fd, EPOLL_CTL_ADD, q->http_fd, &event) < 0)
                return -errno;
        return 0;
}

static int start_http(struct queries *q)
{
        if (fcntl(q->listening_fd, F_SETFL, O_NONBLOCK) < 0)
                return -errno;
        errno = 0;
        q->http = MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL,
                on_request, q, MHD_OPTION_CONNECTION_LIMIT, SLOTS_ALL, MHD_OPTION_NOTIFY_CONNECTION,
                on_connection, q, MHD_OPTION_NOTIFY_COMPLETED, on_completed, q,
                MHD_OPTION_CONNECTION_TIMEOUT, IDLE_SEC, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                MEMORY_BYTES, MHD_OPTION_END);
        if (!q->http)
                return errno ? -errno : -EIO;
        q->http_fd = MHD_get_daemon_info(q->http, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
        return watch_both(q);
}

int queries_start(int fd, const char *token, const struct feed *feed, struct queries **ret)
{
        struct queries *q = calloc(1, sizeof(*q));
        int r;

        if (!q) {
                fd_close(fd);
                return -ENOMEM;
        }
        q->listening_fd = fd;
        q->any_fd = -1;
        q->token = token;
        q->feed = feed;
        places_init(&q->places);
        r = start_http(q);
        if (r < 0)
                queries_stop(q);
        else
                *ret = q;
        return r;
}

void queries_stop(struct queries *q)
{
        if (!q)
                return;
        if (q->http)
                MHD_stop_daemon(q->http);
        fd_close(q->listening_fd);
        fd_close(q->any_fd);
        places_deinit(&q->places);
        free(q);
}
