#include "client/exporter/serve.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include <microhttpd.h>

#include "base/fd.h"
#include "client/exporter/accept.h"
#include "client/exporter/slots.h"

/* Of a request's line and headers; longer ones are refused. Not tuned. */
#define MEMORY_BYTES ((size_t)32 * 1024)
/* A scrape needs a few KiB of it. Not tuned. */
#define STACK_BYTES ((size_t)256 * 1024)
/* The thread that accepts waits so long for each that is sent away: its thread has to end. Not
 * tuned. */
#define AWAY_NSEC (200 * NSEC_PER_USEC)

struct server {
        struct MHD_Daemon *http;
        struct scraper *scraper; /* borrowed */
        pthread_mutex_t lock;    /* of what follows */
        struct slots slots;
};

/* ---- connections ---------------------------------------------------------------------------- */

/* NULL: it has none, and is about to be closed. */
static struct slot *slot_of(struct MHD_Connection *c)
{
        return MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

/* No more is read from it. What has come already is, and is answered. */
static bool send_away_one(struct server *s)
{
        struct slot *slot = slots_send_away(&s->slots, clock_now_nsec());

        if (slot)
                shutdown(slot->fd, slot->is_busy ? SHUT_RDWR : SHUT_RD);
        return slot;
}

/* In the thread that accepts: when one comes, and, with its own thread over, when its descriptor is
 * about to be closed. */
static void on_connection(void *data, struct MHD_Connection *c, void **context,
        enum MHD_ConnectionNotificationCode what)
{
        struct timespec pause = {.tv_nsec = AWAY_NSEC};
        struct server *s = data;
        bool is_full = false;

        pthread_mutex_lock(&s->lock);
        if (what == MHD_CONNECTION_NOTIFY_STARTED) {
                int fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;

                *context = slots_enter(&s->slots, fd, clock_now_nsec());
                is_full = send_away_one(s);
        } else if (*context) {
                slots_leave(&s->slots, *context);
                *context = NULL;
        }
        pthread_mutex_unlock(&s->lock);
        if (is_full)
                nanosleep(&pause, NULL);
}

static void note_request(struct server *s, struct MHD_Connection *c,
        void (*note)(struct slot *slot, uint64_t now_nsec))
{
        struct slot *slot = slot_of(c);

        pthread_mutex_lock(&s->lock);
        if (slot)
                note(slot, clock_now_nsec());
        pthread_mutex_unlock(&s->lock);
}

static void on_completed(
        void *data, struct MHD_Connection *c, void **request, enum MHD_RequestTerminationCode why)
{
        note_request(data, c, slot_answered);
}

/* ---- requests ------------------------------------------------------------------------------- */

static enum MHD_Result answer(struct MHD_Connection *c, unsigned status, const char *type,
        const char *body, size_t len, enum MHD_ResponseMemoryMode mode)
{
        struct MHD_Response *r = MHD_create_response_from_buffer(len, (void *)body, mode);
        enum MHD_Result sent = MHD_NO;

        if (!r) {
                if (mode == MHD_RESPMEM_MUST_FREE)
                        free((void *)body);
                return MHD_NO;
        }
        if (MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type) == MHD_YES &&
                MHD_add_response_header(r, "X-Content-Type-Options", "nosniff") == MHD_YES &&
                (status != MHD_HTTP_METHOD_NOT_ALLOWED ||
                        MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD") == MHD_YES))
                sent = MHD_queue_response(c, status, r);
        MHD_destroy_response(r);
        return sent;
}

static enum MHD_Result answer_word(struct MHD_Connection *c, unsigned status, const char *word)
{
        return answer(
                c, status, "text/plain; charset=utf-8", word, strlen(word), MHD_RESPMEM_PERSISTENT);
}

/* What was written of `t`, which is taken; r < 0: it couldn't be. */
static enum MHD_Result answer_text(
        struct MHD_Connection *c, const char *type, struct text *t, int r)
{
        enum MHD_Result sent;

        if (r < 0) {
                text_deinit(t);
                return answer_word(c, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
        }
        sent = answer(c, MHD_HTTP_OK, type, t->data, t->len, MHD_RESPMEM_MUST_FREE);
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

static enum MHD_Result on_request(void *data, struct MHD_Connection *c, const char *url,
        const char *method, const char *version, const char *upload, size_t *upload_size,
        void **request)
{
        static char begun;

        /* The first call comes before a body: what has one is answered behind it, unread. */
        if (!*request) {
                *request = &begun;
                note_request(data, c, slot_ask);
                return MHD_YES;
        }
        if (*upload_size > 0) {
                *upload_size = 0;
                return MHD_YES;
        }
        if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
                return answer_word(c, MHD_HTTP_METHOD_NOT_ALLOWED, "GET or HEAD\n");
        if (strcmp(url, "/metrics") == 0)
                return answer_metrics(data, c);
        if (strcmp(url, "/") == 0)
                return answer_page(data, c);
        if (strcmp(url, "/-/healthy") == 0)
                return answer_word(c, MHD_HTTP_OK, "the exporter is healthy\n");
        return answer_word(c, MHD_HTTP_NOT_FOUND, "/metrics, / or /-/healthy\n");
}

int serve_start(int fd, struct scraper *s, struct server **ret)
{
        struct server *server = calloc(1, sizeof(*server));

        if (!server) {
                fd_close(fd);
                return -ENOMEM;
        }
        server->scraper = s;
        pthread_mutex_init(&server->lock, NULL);
        slots_init(&server->slots);
        errno = 0;
        server->http = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD |
                                                MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL |
                                                MHD_USE_ITC,
                0, NULL, NULL, on_request, server, MHD_OPTION_LISTEN_SOCKET, fd,
                MHD_OPTION_CONNECTION_LIMIT, SLOTS_ALL, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
                server, MHD_OPTION_NOTIFY_COMPLETED, on_completed, server,
                MHD_OPTION_CONNECTION_TIMEOUT, SERVE_IDLE_SEC, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                MEMORY_BYTES, MHD_OPTION_THREAD_STACK_SIZE, STACK_BYTES, MHD_OPTION_END);
        if (!server->http) {
                int r = errno ? -errno : -EIO;

                fd_close(fd);
                pthread_mutex_destroy(&server->lock);
                free(server);
                return r;
        }
        *ret = server;
        return 0;
}

void serve_stop(struct server *s)
{
        if (!s)
                return;
        MHD_stop_daemon(s->http);
        pthread_mutex_destroy(&s->lock);
        free(s);
}
