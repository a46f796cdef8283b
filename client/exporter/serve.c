#include "client/exporter/serve.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <microhttpd.h>

#include "base/fd.h"
#include "client/exporter/accept.h"
#include "client/exporter/watch.h"
#include "client/exporter/web.h"
#include "client/http/headers.h"
#include "client/http/places.h"

/* Limit on a request's line and headers; longer ones are refused. (No constant here is tuned.) */
#define MEMORY_BYTES ((size_t)32 * 1024)
/* A scrape needs a few KiB of it. */
#define STACK_BYTES ((size_t)256 * 1024)
/* Bytes of events written at once. */
#define EVENTS_BLOCK ((size_t)16 * 1024)

struct server {
        struct MHD_Daemon *http;
        struct scraper *scraper;        /* borrowed */
        struct watch *watch;            /* owned */
        const struct host_names *hosts; /* borrowed; NULL: any */
        struct places places;
};

/* Called in the accepting thread, for each connection that comes or is about to be closed. */
static void on_connection(void *data, struct MHD_Connection *c, void **context,
        enum MHD_ConnectionNotificationCode what)
{
        struct server *s = data;
        struct timespec pause = {
                .tv_nsec = (long)places_note_connection(&s->places, c, context, what)};

        if (pause.tv_nsec > 0)
                nanosleep(&pause, NULL);
}

static void on_completed(
        void *data, struct MHD_Connection *c, void **request, enum MHD_RequestTerminationCode why)
{
        struct server *s = data;

        places_note_end(&s->places, c);
}

/* The page may load its own script and style, and events from here. It loads nothing else, sends
 * nothing, and no other page may frame it. */
#define POLICY                                                                          \
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " \
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

/* ---- requests ------------------------------------------------------------------------------- */

static bool add_headers(struct MHD_Response *r, const char *type)
{
        static const char *const same[][2] = {{"X-Content-Type-Options", "nosniff"},
                {"Content-Security-Policy", POLICY}, {"Referrer-Policy", "no-referrer"},
                {MHD_HTTP_HEADER_CACHE_CONTROL, "no-store"}};

        for (size_t i = 0; i < ARRAY_SIZE(same); i++)
                if (MHD_add_response_header(r, same[i][0], same[i][1]) != MHD_YES)
                        return false;
        return MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type) == MHD_YES;
}

static enum MHD_Result answer_bytes(struct MHD_Connection *c, unsigned status, const char *type,
        const char *body, size_t len, enum MHD_ResponseMemoryMode mode)
{
        struct MHD_Response *r = MHD_create_response_from_buffer(len, (void *)body, mode);
        enum MHD_Result sent = MHD_NO;

        if (!r) {
                if (mode == MHD_RESPMEM_MUST_FREE)
                        free((void *)body);
                return MHD_NO;
        }
        if (add_headers(r, type) &&
                (status != MHD_HTTP_BAD_REQUEST ||
                        MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close") ==
                                MHD_YES) &&
                (status != MHD_HTTP_METHOD_NOT_ALLOWED ||
                        MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD") == MHD_YES))
                sent = MHD_queue_response(c, status, r);
        MHD_destroy_response(r);
        return sent;
}

static enum MHD_Result answer_word(struct MHD_Connection *c, unsigned status, const char *word)
{
        return answer_bytes(
                c, status, "text/plain; charset=utf-8", word, strlen(word), MHD_RESPMEM_PERSISTENT);
}

/* Sends t and takes it; r < 0: building it failed. */
static enum MHD_Result answer_text(
        struct MHD_Connection *c, const char *type, struct text *t, int r)
{
        enum MHD_Result sent;

        if (r < 0) {
                text_deinit(t);
                return answer_word(c, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
        }
        sent = answer_bytes(c, MHD_HTTP_OK, type, t->data, t->len, MHD_RESPMEM_MUST_FREE);
        t->data = NULL;
        return sent;
}

static enum MHD_Result answer_metrics(struct server *s, struct MHD_Connection *c)
{
        const char *accept =
                MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
        struct text t;
        int r;

        text_init(&t, accept_choose(accept));
        r = scraper_metrics(s->scraper, &t);
        return answer_text(c, text_content_type(t.format), &t, r);
}

static enum MHD_Result answer_page(struct server *s, struct MHD_Connection *c)
{
        struct text t;
        int r;

        text_init(&t, TEXT_PROMETHEUS);
        r = scraper_page(s->scraper, &t);
        return answer_text(c, "text/html; charset=utf-8", &t, r);
}

static ssize_t read_events(void *data, uint64_t at, char *buf, size_t size)
{
        size_t n = stream_read(data, buf, size);

        return n > 0 ? (ssize_t)n : MHD_CONTENT_READER_END_OF_STREAM;
}

static void close_events(void *data)
{
        stream_close(data);
}

static enum MHD_Result answer_events(struct server *s, struct MHD_Connection *c)
{
        enum MHD_Result sent = MHD_NO;
        struct MHD_Response *response;
        struct stream *stream;
        int r = stream_open(s->watch, &stream);

        if (r == -EBUSY) {
                places_cut_off_stream(&s->places);
                return answer_word(c, MHD_HTTP_SERVICE_UNAVAILABLE,
                        "too many status pages are open: close one\n");
        }
        if (r < 0)
                return answer_word(c, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
        response = MHD_create_response_from_callback(
                MHD_SIZE_UNKNOWN, EVENTS_BLOCK, read_events, stream, close_events);
        if (!response) {
                stream_close(stream);
                return MHD_NO;
        }
        if (add_headers(response, "text/event-stream"))
                sent = MHD_queue_response(c, MHD_HTTP_OK, response);
        places_note_stream(&s->places, c);
        MHD_destroy_response(response);
        return sent;
}

static enum MHD_Result answer_path(struct server *s, struct MHD_Connection *c, const char *url)
{
        if (strcmp(url, "/metrics") == 0)
                return answer_metrics(s, c);
        if (strcmp(url, "/") == 0)
                return answer_page(s, c);
        if (strcmp(url, "/events") == 0)
                return answer_events(s, c);
        if (strcmp(url, "/status.js") == 0)
                return answer_bytes(c, MHD_HTTP_OK, "text/javascript; charset=utf-8", web_status_js,
                        web_status_js_len, MHD_RESPMEM_PERSISTENT);
        if (strcmp(url, "/status.css") == 0)
                return answer_bytes(c, MHD_HTTP_OK, "text/css; charset=utf-8", web_status_css,
                        web_status_css_len, MHD_RESPMEM_PERSISTENT);
        if (strcmp(url, "/-/healthy") == 0)
                return answer_word(c, MHD_HTTP_OK, "the exporter is healthy\n");
        return answer_word(c, MHD_HTTP_NOT_FOUND, "/metrics, / or /-/healthy\n");
}

/* Returns 0: the request may be answered; or the status of the refusal, and why. */
static unsigned check_headers(struct server *s, struct MHD_Connection *c, const char **ret_why)
{
        const char *host;
        unsigned refusal = headers_check(c, &host, ret_why);

        if (refusal || !host || !s->hosts || host_is_allowed(s->hosts, host))
                return refusal;
        *ret_why =
                "not by this host name: ask by address, or start kvlease-exporter with --allow-host NAME\n";
        return MHD_HTTP_MISDIRECTED_REQUEST;
}

static enum MHD_Result on_request(void *data, struct MHD_Connection *c, const char *url,
        const char *method, const char *version, const char *upload, size_t *upload_size,
        void **request)
{
        struct server *s = data;
        static char begun;
        enum MHD_Result sent;
        const char *why;
        unsigned refusal;

        /* The first call comes before a body. A request with a body is answered after it, unread. A
         * refused request is answered at once, and the connection closed. */
        if (!*request) {
                *request = &begun;
                refusal = check_headers(s, c, &why);
                return refusal ? answer_word(c, refusal, why) : MHD_YES;
        }
        if (*upload_size > 0) {
                *upload_size = 0;
                return MHD_YES;
        }
        places_note_request(&s->places, c);
        if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
                sent = answer_word(c, MHD_HTTP_METHOD_NOT_ALLOWED, "GET or HEAD\n");
        else
                sent = answer_path(s, c, url);
        places_note_answer(&s->places, c);
        return sent;
}

static int start_http(struct server *s, int fd)
{
        errno = 0;
        s->http = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION |
                                           MHD_USE_POLL | MHD_USE_ITC,
                0, NULL, NULL, on_request, s, MHD_OPTION_LISTEN_SOCKET, fd,
                MHD_OPTION_CONNECTION_LIMIT, SLOTS_ALL, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
                s, MHD_OPTION_NOTIFY_COMPLETED, on_completed, s, MHD_OPTION_CONNECTION_TIMEOUT,
                SERVE_IDLE_SEC, MHD_OPTION_CONNECTION_MEMORY_LIMIT, MEMORY_BYTES,
                MHD_OPTION_THREAD_STACK_SIZE, STACK_BYTES, MHD_OPTION_END);
        if (s->http)
                return 0;
        return errno ? -errno : -EIO;
}

static void free_server(struct server *s)
{
        watch_free(s->watch);
        places_deinit(&s->places);
        free(s);
}

int serve_start(int fd, struct scraper *s, const struct host_names *hosts, struct server **ret)
{
        struct server *server = calloc(1, sizeof(*server));
        int r;

        if (!server) {
                fd_close(fd);
                return -ENOMEM;
        }
        server->scraper = s;
        server->hosts = hosts;
        places_init(&server->places);
        r = watch_start(s, &server->watch);
        if (r == 0) {
                r = start_http(server, fd);
                if (r < 0)
                        watch_stop(server->watch);
        }
        if (r < 0) {
                fd_close(fd);
                free_server(server);
                return r;
        }
        *ret = server;
        return 0;
}

void serve_stop(struct server *s)
{
        if (!s)
                return;
        watch_stop(s->watch); /* ends the streams */
        MHD_stop_daemon(s->http);
        free_server(s);
}
