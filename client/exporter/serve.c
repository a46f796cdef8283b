#include "client/exporter/serve.h"

#include <errno.h>
#include <pthread.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

#include <microhttpd.h>

#include "base/fd.h"
#include "client/exporter/accept.h"
#include "client/exporter/slots.h"
#include "client/exporter/watch.h"
#include "client/exporter/web.h"

/* Limit on a request's line and headers; longer ones are refused. (No constant here is tuned.) */
#define MEMORY_BYTES ((size_t)32 * 1024)
/* A scrape needs a few KiB of it. */
#define STACK_BYTES ((size_t)256 * 1024)
/* The accepting thread waits this long for each connection sent away, whose thread has to end. */
#define AWAY_NSEC (200 * NSEC_PER_USEC)
/* An additional wait for each place of SLOTS_FREE in use: the last one comes 2 s after the first,
 * and answers take less. */
#define SHORT_NSEC NSEC_PER_MSEC
/* Bytes of events written at once. */
#define EVENTS_BLOCK ((size_t)16 * 1024)

struct server {
        struct MHD_Daemon *http;
        struct scraper *scraper;        /* borrowed */
        struct watch *watch;            /* owned */
        const struct host_names *hosts; /* borrowed; NULL: any */
        pthread_mutex_t lock;           /* of the fields below */
        struct slots slots;
};

/* ---- connections ---------------------------------------------------------------------------- */

/* Returns NULL: it has none, and is about to be closed. */
static struct slot *slot_of(struct MHD_Connection *c)
{
        return MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

/* Returns the bytes that were written to it and not taken. */
static uint64_t unread_of(int fd)
{
        int unread = 0;

        return ioctl(fd, SIOCOUTQ, &unread) == 0 && unread > 0 ? (uint64_t)unread : 0;
}

static void cut_off(struct server *s)
{
        uint64_t now = clock_now_nsec();
        struct slot *slot;

        if (slots_shortage(&s->slots) == 0)
                return;
        for (unsigned i = 0; i < SLOTS_ALL; i++)
                if (s->slots.all[i].fd >= 0)
                        slot_note_unread(&s->slots.all[i], unread_of(s->slots.all[i].fd), now);
        while ((slot = slots_cut_off(&s->slots, now)))
                shutdown(slot->fd, SHUT_RDWR);
}

/* Makes room after a connection has come. Returns how long the next one waits. */
static uint64_t make_room(struct server *s)
{
        struct slot *away = slots_send_away(&s->slots, clock_now_nsec());

        if (away) /* its received requests are still answered */
                shutdown(away->fd, SHUT_RD);
        cut_off(s);
        return (away ? AWAY_NSEC : 0) + slots_shortage(&s->slots) * SHORT_NSEC;
}

/* Called in the accepting thread when a connection comes, and when its descriptor is about to be
 * closed, after its own thread's end. */
static void on_connection(void *data, struct MHD_Connection *c, void **context,
        enum MHD_ConnectionNotificationCode what)
{
        struct timespec pause = {0};
        struct server *s = data;

        pthread_mutex_lock(&s->lock);
        if (what == MHD_CONNECTION_NOTIFY_STARTED) {
                int fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;

                *context = slots_enter(&s->slots, fd, clock_now_nsec());
                pause.tv_nsec = (long)make_room(s);
        } else if (*context) {
                slots_leave(&s->slots, *context);
                *context = NULL;
        }
        pthread_mutex_unlock(&s->lock);
        if (pause.tv_nsec > 0)
                nanosleep(&pause, NULL);
}

static void note_asked(struct server *s, struct MHD_Connection *c)
{
        struct slot *slot = slot_of(c);
        uint64_t now = clock_now_nsec();

        pthread_mutex_lock(&s->lock);
        if (slot) {
                slot_note_unread(slot, unread_of(slot->fd), now);
                slot_ask(slot, now);
        }
        pthread_mutex_unlock(&s->lock);
}

/* Connections whose answers were being made couldn't be cut off when others came: cut off now. */
static void note_answer(struct server *s, struct MHD_Connection *c)
{
        struct slot *slot = slot_of(c);

        pthread_mutex_lock(&s->lock);
        if (slot)
                slot_answer(slot, clock_now_nsec());
        cut_off(s);
        pthread_mutex_unlock(&s->lock);
}

static void note_stream(struct server *s, struct MHD_Connection *c)
{
        struct slot *slot = slot_of(c);

        pthread_mutex_lock(&s->lock);
        if (slot)
                slot->is_stream = true;
        pthread_mutex_unlock(&s->lock);
}

static void on_completed(
        void *data, struct MHD_Connection *c, void **request, enum MHD_RequestTerminationCode why)
{
        struct slot *slot = slot_of(c);
        struct server *s = data;

        pthread_mutex_lock(&s->lock);
        if (slot)
                slot_answered(slot);
        pthread_mutex_unlock(&s->lock);
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

/* There are too many streams: ends one that takes nothing, for when the browser retries. */
static void cut_off_stream(struct server *s)
{
        struct slot *slot;

        pthread_mutex_lock(&s->lock);
        slot = slots_stalled_stream(&s->slots, unread_of);
        if (slot)
                shutdown(slot->fd, SHUT_RDWR);
        pthread_mutex_unlock(&s->lock);
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
                cut_off_stream(s);
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
        note_stream(s, c);
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

struct headers {
        const char *host; /* borrowed; NULL: none */
        unsigned n_hosts, n_lengths;
        bool has_spaces; /* in a name, which proxies may read without them */
};

static enum MHD_Result note_header(
        void *data, enum MHD_ValueKind kind, const char *name, const char *value)
{
        struct headers *h = data;

        if (strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0) {
                h->host = value;
                h->n_hosts++;
        }
        h->has_spaces |= name[strcspn(name, " \t")] != '\0';
        h->n_lengths += strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0 ||
                        strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0;
        return MHD_YES;
}

/* Returns 0: its headers are fine; or the status of the refusal, and why. A body's end may be given
 * once: a proxy before us might use the other one, and send another client's request as a body. */
static unsigned check_headers(struct server *s, struct MHD_Connection *c, const char **ret_why)
{
        struct headers h = {0};

        MHD_get_connection_values(c, MHD_HEADER_KIND, note_header, &h);
        if (h.n_lengths > 1) {
                *ret_why = "more than one of Content-Length and Transfer-Encoding: give one\n";
                return MHD_HTTP_BAD_REQUEST;
        }
        if (h.has_spaces) {
                *ret_why = "a header with a space in its name, or before the colon: leave it out\n";
                return MHD_HTTP_BAD_REQUEST;
        }
        if (h.n_hosts > 1) {
                *ret_why = "more than one Host: give one\n";
                return MHD_HTTP_BAD_REQUEST;
        }
        if (h.host && s->hosts && !host_is_allowed(s->hosts, h.host)) {
                *ret_why = "not by this host name: ask by address, or start kvlease-exporter with "
                           "--allow-host NAME\n";
                return MHD_HTTP_MISDIRECTED_REQUEST;
        }
        return 0;
}

static enum MHD_Result on_request(void *data, struct MHD_Connection *c, const char *url,
        const char *method, const char *version, const char *upload, size_t *upload_size,
        void **request)
{
        static char begun;
        enum MHD_Result sent;
        const char *why;
        unsigned refusal;

        /* The first call comes before a body. A request with a body is answered after it, unread. A
         * refused request is answered at once, and the connection closed. */
        if (!*request) {
                *request = &begun;
                refusal = check_headers(data, c, &why);
                return refusal ? answer_word(c, refusal, why) : MHD_YES;
        }
        if (*upload_size > 0) {
                *upload_size = 0;
                return MHD_YES;
        }
        note_asked(data, c);
        if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
                sent = answer_word(c, MHD_HTTP_METHOD_NOT_ALLOWED, "GET or HEAD\n");
        else
                sent = answer_path(data, c, url);
        note_answer(data, c);
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
        pthread_mutex_destroy(&s->lock);
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
        pthread_mutex_init(&server->lock, NULL);
        slots_init(&server->slots);
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
