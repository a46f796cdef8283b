#include "client/exporter/watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/macros.h"
#include "client/exporter/history.h"

/* Between two events. Not tuned: figures change by then, and people can follow. */
#define WATCH_STEP_NSEC (2 * NSEC_PER_SEC)

struct watch {
        struct scraper *scraper; /* borrowed */
        pthread_t thread;
        pthread_mutex_t lock; /* of all below */
        pthread_cond_t news;  /* another event, a stream that needs one, or the end */
        char *event;          /* owned: the last one; NULL: none is recent */
        size_t event_len;
        uint64_t number; /* of the event, from 1 */
        unsigned n_streams;
        bool is_wanted; /* a new stream has no first event */
        bool is_stopped;
};

struct stream {
        struct watch *watch; /* borrowed */
        uint64_t seen;       /* number of the event in `text`, or of the previous one */
        char *text;          /* owned: unread bytes */
        size_t len, at;
};

/* ---- the thread that looks ------------------------------------------------------------------- */

/* [lock] Waits for news until then. Returns false at the time-out. */
static bool wait_for_news(struct watch *w, uint64_t until_nsec)
{
        struct timespec at = {
                (time_t)(until_nsec / NSEC_PER_SEC), (long)(until_nsec % NSEC_PER_SEC)};

        return pthread_cond_timedwait(&w->news, &w->lock, &at) != ETIMEDOUT;
}

/* [lock, dropped meanwhile] Asks the daemon, and makes an event of its answer. */
static void make_event(struct watch *w)
{
        struct text t;
        int r;

        pthread_mutex_unlock(&w->lock);
        text_init(&t, TEXT_PROMETHEUS);
        text_printf(&t, "data: ");
        r = scraper_status(w->scraper, &t);
        text_printf(&t, "\n\n");
        pthread_mutex_lock(&w->lock);
        if (r < 0 || t.failed) { /* no memory: the next event may have some */
                text_deinit(&t);
                return;
        }
        free(w->event);
        w->event = t.data;
        w->event_len = t.len;
        w->number++;
        pthread_cond_broadcast(&w->news);
}

/* [lock] */
static uint64_t step_of(const struct watch *w)
{
        return w->n_streams > 0 ? WATCH_STEP_NSEC : HISTORY_STEP_NSEC;
}

static void *run_watch(void *data)
{
        struct watch *w = data;

        pthread_mutex_lock(&w->lock);
        while (!w->is_stopped) {
                uint64_t began = clock_now_nsec();

                w->is_wanted = false;
                if (w->n_streams > 0) {
                        make_event(w);
                } else {
                        free(TAKE(w->event)); /* it would be outdated for a later stream */
                        pthread_mutex_unlock(&w->lock);
                        scraper_sample(w->scraper);
                        pthread_mutex_lock(&w->lock);
                }
                while (!w->is_stopped && !w->is_wanted)
                        if (!wait_for_news(w, began + step_of(w)))
                                break;
        }
        pthread_mutex_unlock(&w->lock);
        return NULL;
}

/* ---- streams --------------------------------------------------------------------------------- */

int stream_open(struct watch *w, struct stream **ret)
{
        struct stream *s = calloc(1, sizeof(*s));
        int r = 0;

        if (!s)
                return -ENOMEM;
        pthread_mutex_lock(&w->lock);
        if (w->n_streams >= WATCH_STREAMS_MAX) {
                r = -EBUSY;
        } else {
                w->n_streams++;
                s->watch = w;
                s->seen = w->event ? w->number - 1 : w->number;
                w->is_wanted |= !w->event;
                pthread_cond_broadcast(&w->news);
        }
        pthread_mutex_unlock(&w->lock);
        if (r < 0)
                free(s);
        else
                *ret = s;
        return r;
}

void stream_close(struct stream *s)
{
        pthread_mutex_lock(&s->watch->lock);
        s->watch->n_streams--;
        pthread_mutex_unlock(&s->watch->lock);
        free(s->text);
        free(s);
}

/* [lock] Waits for an event that the stream hasn't had, and copies it. Returns false: it is over,
 * or there is no memory. Then the browser retries. */
static bool take_event(struct stream *s)
{
        struct watch *w = s->watch;

        while (!w->is_stopped && (w->number == s->seen || !w->event))
                pthread_cond_wait(&w->news, &w->lock);
        if (w->is_stopped)
                return false;
        free(TAKE(s->text));
        s->text = malloc(w->event_len);
        if (!s->text)
                return false;
        memcpy(s->text, w->event, w->event_len);
        s->len = w->event_len;
        s->at = 0;
        s->seen = w->number;
        return true;
}

size_t stream_read(struct stream *s, char *buf, size_t size)
{
        size_t n;

        if (s->at == s->len) {
                bool goes_on;

                pthread_mutex_lock(&s->watch->lock);
                goes_on = take_event(s);
                pthread_mutex_unlock(&s->watch->lock);
                if (!goes_on)
                        return 0;
        }
        n = MIN(size, s->len - s->at);
        memcpy(buf, s->text + s->at, n);
        s->at += n;
        return n;
}

/* ---- life ------------------------------------------------------------------------------------ */

int watch_start(struct scraper *s, struct watch **ret)
{
        struct watch *w = calloc(1, sizeof(*w));
        pthread_condattr_t clock;
        int r;

        if (!w)
                return -ENOMEM;
        w->scraper = s;
        pthread_mutex_init(&w->lock, NULL);
        pthread_condattr_init(&clock);
        pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
        pthread_cond_init(&w->news, &clock);
        pthread_condattr_destroy(&clock);
        r = -pthread_create(&w->thread, NULL, run_watch, w);
        if (r == 0) {
                *ret = w;
                return 0;
        }
        pthread_cond_destroy(&w->news);
        pthread_mutex_destroy(&w->lock);
        free(w);
        return r;
}

void watch_stop(struct watch *w)
{
        pthread_mutex_lock(&w->lock);
        w->is_stopped = true;
        pthread_cond_broadcast(&w->news);
        pthread_mutex_unlock(&w->lock);
        pthread_join(w->thread, NULL);
}

void watch_free(struct watch *w)
{
        if (!w)
                return;
        pthread_cond_destroy(&w->news);
        pthread_mutex_destroy(&w->lock);
        free(w->event);
        free(w);
}
