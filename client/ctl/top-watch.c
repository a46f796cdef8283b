#include "client/ctl/top-watch.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "base/thread.h"
#include "client/ctl/admin.h"
#include "client/ctl/slow-answer.h"

struct top_watch {
        char *path; /* owned */
        pthread_t thread;
        /* Pipes: views to ask for, as bytes, and pointers to answers. [0] is for reading, [1] for
         * writing. */
        int asked[2], answers[2];
        bool is_busy;
};

/* ---- the thread ------------------------------------------------------------------------------ */

/* Makes an answer with the data, or with the error; *admin is NULL without a connection. */
static struct top_answer *look_at(const char *path, enum top_view_id view, struct admin **admin)
{
        struct top_answer *a = need(calloc(1, sizeof(*a)));

        fail_capture(&a->sentence);
        a->code = *admin ? CTL_OK : admin_open(path, admin);
        if (a->code == CTL_OK)
                a->code = top_ask(*admin, view, &a->look);
        fail_capture(NULL);
        if (a->code != CTL_OK) {
                admin_close(*admin);
                *admin = NULL;
        }
        return a;
}

/* Runs until the pipe of views is closed. */
static void *watch_thread(void *data)
{
        struct top_watch *w = data;
        struct admin *admin = NULL;
        uint8_t view;

        while (read(w->asked[0], &view, 1) == 1) {
                struct top_answer *a = look_at(w->path, view, &admin);

                /* A pointer is shorter than PIPE_BUF: written whole. */
                if (write(w->answers[1], &a, sizeof(a)) != sizeof(a))
                        top_answer_free(a);
        }
        admin_close(admin);
        return NULL;
}

/* ---- the caller's ---------------------------------------------------------------------------- */

static void watch_free(struct top_watch *w)
{
        for (int i = 0; i < 2; i++) {
                fd_close(w->asked[i]);
                fd_close(w->answers[i]);
        }
        free(w->path);
        free(w);
}

int top_watch_start(const char *path, struct top_watch **ret_watch)
{
        struct top_watch *w = need(calloc(1, sizeof(*w)));
        int r;

        slow_answer_hush();
        *w = (struct top_watch){.asked = {-1, -1}, .answers = {-1, -1}};
        w->path = need(strdup(path));
        r = pipe2(w->asked, O_CLOEXEC) < 0 || pipe2(w->answers, O_CLOEXEC) < 0 ? -errno : 0;
        if (r == 0)
                r = thread_start(&w->thread, NULL, watch_thread, w);
        if (r != 0) {
                watch_free(w);
                return fail(CTL_REFUSED, "cannot start a thread: %s", strerror(-r));
        }
        *ret_watch = w;
        return CTL_OK;
}

void top_watch_ask(struct top_watch *w, enum top_view_id view)
{
        uint8_t byte = (uint8_t)view;

        assert(!w->is_busy);
        /* There is room: the thread has read the earlier byte. */
        w->is_busy = write(w->asked[1], &byte, 1) == 1;
}

int top_watch_fd(const struct top_watch *w)
{
        return w->answers[0];
}

struct top_answer *top_watch_take(struct top_watch *w)
{
        struct top_answer *a = NULL;
        ssize_t n;

        do
                n = read(w->answers[0], &a, sizeof(a));
        while (n < 0 && errno == EINTR);
        assert(n == sizeof(a));
        w->is_busy = false;
        return a;
}

void top_answer_free(struct top_answer *a)
{
        if (!a)
                return;
        top_look_deinit(&a->look);
        free(a->sentence);
        free(a);
}

void top_watch_stop(struct top_watch *w)
{
        if (w->is_busy) {
                pthread_detach(w->thread);
                return;
        }
        w->asked[1] = fd_close(w->asked[1]);
        pthread_join(w->thread, NULL);
        watch_free(w);
}
