/* kvleasectl top: the command line's choices, and the loops of a screen and of plain text. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/macros.h"
#include "base/parse.h"
#include "base/thread.h"
#include "client/ctl/admin.h"
#include "client/ctl/top-ask.h"
#include "client/ctl/top-screen.h"
#include "client/ctl/top-text.h"
#include "client/ctl/top-ui.h"
#include "client/ctl/verb.h"
#include "client/ctl/width.h"

/* ---- asking in a thread ---------------------------------------------------------------------- */

/*
 * Asks kvleased in a thread of its own, so that the screen isn't blocked during waits.
 *
 *   idle -> (ask) -> busy -> (what came is taken) -> idle
 *
 * Only the thread that started it may call these functions.
 */
struct top_answer {
        int code;             /* CTL_OK; else the error */
        char *sentence;       /* owned; NULL: CTL_OK */
        struct top_look look; /* owned, with CTL_OK; not rated yet */
};

struct top_watch {
        char *path; /* owned */
        pthread_t thread;
        /* Pipes: views to ask for, as bytes, and pointers to answers. [0] is for reading, [1] for
         * writing. */
        int asked[2], answers[2];
        bool is_busy;
};

static void top_answer_free(struct top_answer *a)
{
        if (!a)
                return;
        top_look_deinit(&a->look);
        free(a->sentence);
        free(a);
}

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

/* Starts it; copies the socket's path. Returns CTL_OK, or CTL_REFUSED with a sentence printed. */
static int top_watch_start(const char *path, struct top_watch **ret_watch)
{
        struct top_watch *w = need(calloc(1, sizeof(*w)));
        int r;

        admin_hush();
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

/* Asks; connects first if necessary. Only while idle. */
static void top_watch_ask(struct top_watch *w, enum top_view_id view)
{
        uint8_t byte = (uint8_t)view;

        assert(!w->is_busy);
        /* There is room: the thread has read the earlier byte. */
        w->is_busy = write(w->asked[1], &byte, 1) == 1;
}

/* Returns a descriptor that is readable once the answer is there. */
static int top_watch_fd(const struct top_watch *w)
{
        return w->answers[0];
}

/* Takes the answer, once it is there. */
static struct top_answer *top_watch_take(struct top_watch *w)
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

/* Ends it. While busy it can't be ended: then the thread and its memory are left to the end of the
 * process, which must follow. */
static void top_watch_stop(struct top_watch *w)
{
        if (w->is_busy) {
                pthread_detach(w->thread);
                return;
        }
        w->asked[1] = fd_close(w->asked[1]);
        pthread_join(w->thread, NULL);
        watch_free(w);
}

/* Pause before a daemon that didn't answer is asked again, and the wait after which the screen
 * reports it. Not tuned. */
#define RETRY_NSEC NSEC_PER_SEC
#define SLOW_NSEC  (2 * NSEC_PER_SEC)

/* ---- the command line ------------------------------------------------------------------------ */

/* Parses "0.5", "2", and parse_duration()'s forms. */
static int parse_interval(const char *s, uint64_t *ret_nsec)
{
        size_t whole = strspn(s, "0123456789"), digits;
        uint64_t sec, unit = NSEC_PER_SEC, nsec = 0;

        if (s[whole] != '.')
                return parse_duration(s, ret_nsec);
        digits = strspn(s + whole + 1, "0123456789");
        if (whole < 1 || whole > 9 || digits < 1 || s[whole + 1 + digits])
                return -EINVAL;
        sec = strtoull(s, NULL, 10);
        for (size_t i = 0; i < digits; i++) {
                unit /= 10; /* 0 past the ninth digit */
                nsec += (uint64_t)(s[whole + 1 + i] - '0') * unit;
        }
        *ret_nsec = sec * NSEC_PER_SEC + nsec;
        return 0;
}

static int check_column(const struct top_view *v, const char *name)
{
        char list[256];
        size_t at = 0;

        if (top_find_column(v, name) < v->n_columns)
                return CTL_OK;
        for (unsigned c = 0; c < v->n_columns && at < sizeof(list); c++)
                at += (size_t)snprintf(
                        list + at, sizeof(list) - at, "%s%s", c ? ", " : "", v->columns[c].heading);
        return fail(CTL_USAGE, "the view %s has no column '%s': it has %s", v->name, name, list);
}

/* Sets the initial choices of the options. */
static int choose_by_options(const struct ctl *ctl, struct top_ui *ret_ui)
{
        const char *view = ctl->options[CTL_OPTION_VIEW], *sort = ctl->options[CTL_OPTION_SORT];
        const char *interval = ctl->options[CTL_OPTION_INTERVAL];
        const char *filter = ctl->options[CTL_OPTION_FILTER];
        enum top_view_id v = view ? top_find_view(view) : TOP_TENANTS;
        uint64_t nsec = NSEC_PER_SEC;
        int r;

        if (v == TOP_N_VIEWS)
                return fail(CTL_USAGE,
                        "there is no view '%s': choose tenants, namespaces, clients or regions",
                        view);
        if (interval && (parse_interval(interval, &nsec) < 0 || nsec < TOP_MIN_INTERVAL_NSEC ||
                                nsec > TOP_MAX_INTERVAL_NSEC))
                return fail_value(ctl, CTL_OPTION_INTERVAL, "a number of seconds, 0.1 to 3600");
        if (filter && strlen(filter) >= TOP_FILTER_MAX)
                return fail(
                        CTL_USAGE, "--filter is too long: at most %d bytes", TOP_FILTER_MAX - 1);
        r = sort ? check_column(&top_views[v], sort) : CTL_OK;
        if (r != CTL_OK)
                return r;
        top_ui_init(ret_ui, v, nsec);
        if (sort)
                ret_ui->sort[v] = top_find_column(&top_views[v], sort);
        if (filter)
                snprintf(ret_ui->filter, sizeof(ret_ui->filter), "%s", filter);
        return CTL_OK;
}

int check_top(const struct ctl *ctl)
{
        static const enum ctl_option batch_only[] = {
                CTL_OPTION_COUNT, CTL_OPTION_JSON, CTL_OPTION_NO_HEADINGS};
        static const char *const names[] = {"count", "json", "no-headings"};
        const char *count = ctl->options[CTL_OPTION_COUNT];
        struct top_ui ui;
        uint64_t n;
        int r = choose_by_options(ctl, &ui);

        if (r != CTL_OK)
                return r;
        if (count && (parse_u64(count, &n) < 0 || n == 0))
                return fail_value(ctl, CTL_OPTION_COUNT, "a number from 1 on");
        if (ctl->options[CTL_OPTION_BATCH])
                return CTL_OK;
        for (size_t i = 0; i < ARRAY_SIZE(batch_only); i++)
                if (ctl->options[batch_only[i]])
                        return fail(CTL_USAGE, "--%s goes with --batch: give both", names[i]);
        if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
                return fail(CTL_USAGE,
                        "top needs a terminal for its screen and its keys: --batch prints text");
        return CTL_OK;
}

/* ---- plain text ------------------------------------------------------------------------------ */

static void print_cells(const struct top_table *t, char *const *cells)
{
        const struct top_view *v = t->view;

        for (unsigned c = 0; c < v->n_columns; c++) {
                const char *text = cells ? cells[c] : v->columns[c].heading;
                int pad = (int)minus_u64(t->widths[c], text_columns(text));

                if (!top_is_left(v, c))
                        printf("%*s%s", pad, "", text);
                else if (c + 1 < v->n_columns)
                        printf("%s%*s", text, pad, "");
                else
                        fputs(text, stdout); /* no spaces at the end of a line */
                fputs(c + 1 < v->n_columns ? "  " : "\n", stdout);
        }
}

static void print_text(const struct top_look *look, const struct show_format *f,
        const struct top_view *v, const struct top_row *const *rows, size_t n_rows)
{
        char *lines[TOP_TEXT_HEAD_LINES];
        struct top_table t;

        top_table_init(&t, v, f, rows, n_rows);
        if (f->headings) {
                top_head(look, f, lines);
                for (size_t i = 0; i < TOP_TEXT_HEAD_LINES; i++) {
                        if (lines[i][0])
                                puts(lines[i]);
                        free(lines[i]);
                }
                putchar('\n');
                print_cells(&t, NULL);
        }
        for (size_t i = 0; i < n_rows; i++)
                print_cells(&t, t.cells + i * v->n_columns);
        if (f->headings)
                putchar('\n');
        top_table_deinit(&t);
}

/* Prints an object on a line of its own. */
static void print_json(const struct top_look *look, const struct top_view *v,
        const struct top_row *const *rows, size_t n_rows)
{
        json_t *list = need(json_array()), *object;
        struct timespec now;

        clock_gettime(CLOCK_REALTIME, &now);
        for (size_t i = 0; i < n_rows; i++)
                if (json_array_append_new(list, top_row_json(v, rows[i])) < 0)
                        need(NULL);
        object = need(json_pack("{s:f, s:I, s:b, s:o, s:o}", "unix_sec",
                (double)now.tv_sec + (double)now.tv_nsec / NSEC_PER_SEC, "uptime_sec",
                (json_int_t)look->daemon.uptime_sec, "draining", look->daemon.is_draining, "totals",
                top_row_json(&top_totals, &look->totals.rows[0]), v->name, list));
        json_dumpf(object, stdout, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15));
        putchar('\n');
        json_decref(object);
}

static void print_look(const struct ctl *ctl, const struct top_ui *ui, const struct top_look *look)
{
        const struct top_sample *s = &look->views[ui->view];
        struct top_order order = {ui->sort[ui->view], false, ctl->options[CTL_OPTION_TENANT],
                ui->filter[0] ? ui->filter : NULL};
        const struct top_row **rows = need(calloc(s->n_rows + 1, sizeof(struct top_row *)));
        size_t n = top_select(s, &order, rows);

        if (ctl->format.json)
                print_json(look, &top_views[ui->view], rows, n);
        else
                print_text(look, &ctl->format, &top_views[ui->view], rows, n);
        free(rows);
}

static void sleep_until(uint64_t nsec)
{
        struct timespec t = {(time_t)(nsec / NSEC_PER_SEC), (long)(nsec % NSEC_PER_SEC)};

        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
                ;
}

/* Looks again once kvleased is back, and reports once that it is away. Returns CTL_OK, or as
 * top_ask() if waiting doesn't help. */
static int look_again(
        const char *path, enum top_view_id view, struct admin **admin, struct top_look *ret_look)
{
        _cleanup_free_ char *sentence = NULL;
        bool has_said = false;
        int r;

        for (;;) {
                fail_capture(&sentence);
                r = *admin ? CTL_OK : admin_open(path, admin);
                if (r == CTL_OK)
                        r = top_ask(*admin, view, ret_look);
                fail_capture(NULL);
                if (r == CTL_OK)
                        return r;
                admin_close(*admin);
                *admin = NULL;
                if (r != CTL_UNREACHABLE && r != CTL_TIMEOUT)
                        return fail(r, "%s", sentence);
                if (!has_said)
                        fail(r, "waiting for kvleased: %s", sentence);
                has_said = true;
                sleep_until(clock_now_nsec() + RETRY_NSEC);
        }
}

/* Prints each look with the rates since the previous one. */
static int run_batch(const struct ctl *ctl, const struct top_ui *ui, struct admin **admin,
        struct top_look *shown)
{
        uint64_t n_left = UINT64_MAX, next_nsec = clock_now_nsec();
        const char *count = ctl->options[CTL_OPTION_COUNT];
        int r = CTL_OK;

        if (count)
                parse_u64(count, &n_left); /* checked */
        while (r == CTL_OK && n_left-- > 0 && !ferror(stdout)) {
                struct top_look look;

                next_nsec = MAX(next_nsec + ui->interval_nsec, clock_now_nsec());
                sleep_until(next_nsec);
                r = look_again(ctl->socket_path, ui->view, admin, &look);
                if (r != CTL_OK)
                        break;
                top_look_advance(shown, &look);
                print_look(ctl, ui, shown);
                fflush(stdout);
        }
        return r;
}

/* ---- the screen ------------------------------------------------------------------------------ */

struct session {
        const struct ctl *ctl;
        struct top_ui *ui;
        struct top_look *look; /* shown */
        struct top_watch *watch;
        int signals;                       /* signalfd */
        int ended_by;                      /* signal; 0: none */
        bool is_over, is_asking, must_ask; /* must_ask: for another view than last time */
        uint64_t asked_nsec, next_nsec;    /* time of the last request, and of the next */
        char *trouble;                     /* owned: why the last answer failed; NULL: it didn't */
};

static void ask_daemon(struct session *s)
{
        s->is_asking = true;
        s->must_ask = false;
        s->asked_nsec = clock_now_nsec();
        top_watch_ask(s->watch, s->ui->view);
}

static void take_answer(struct session *s)
{
        struct top_answer *a = top_watch_take(s->watch);

        s->is_asking = false;
        s->next_nsec = s->asked_nsec + (a->code == CTL_OK ? s->ui->interval_nsec : RETRY_NSEC);
        free(s->trouble);
        s->trouble = TAKE(a->sentence);
        if (a->code == CTL_OK)
                top_look_advance(s->look, &a->look);
        top_answer_free(a);
}

static void take_keys(struct session *s)
{
        int key;

        while (!s->is_over && (key = top_screen_key()) >= 0) {
                switch (top_ui_key(s->ui, key, top_screen_page())) {
                case TOP_QUIT:
                        s->is_over = true;
                        break;
                case TOP_ASK_NOW:
                        s->must_ask = true;
                        break;
                case TOP_TIMED:
                        s->next_nsec = MIN(s->next_nsec, s->asked_nsec + s->ui->interval_nsec);
                        break;
                case TOP_DRAW:
                        break;
                }
        }
}

static void take_signal(struct session *s)
{
        struct signalfd_siginfo info;

        if (read(s->signals, &info, sizeof(info)) != sizeof(info))
                return;
        if (info.ssi_signo == SIGWINCH) {
                top_screen_resize();
                return;
        }
        s->ended_by = (int)info.ssi_signo;
        s->is_over = true;
}

/* Draws the screen; shows why the daemon is away or slow. */
static void draw(struct session *s)
{
        uint64_t waited_nsec = clock_now_nsec() - s->asked_nsec;
        _cleanup_free_ char *text = NULL;
        int n = 0;

        if (s->trouble)
                n = asprintf(&text, "waiting for kvleased: %s", s->trouble);
        else if (s->is_asking && waited_nsec > SLOW_NSEC)
                n = asprintf(&text, "waiting for kvleased: no answer for %" PRIu64 " s",
                        waited_nsec / NSEC_PER_SEC);
        if (n < 0)
                text = need(NULL);
        top_screen_draw(s->ui, &(struct top_shown){s->look, &s->ctl->format,
                                       s->ctl->options[CTL_OPTION_TENANT], text});
}

/* Returns ms for poll(): until the next request, or the report of a late answer; -1: neither. A
 * pause doesn't stop a request for another view. */
static int time_left(const struct session *s)
{
        uint64_t now = clock_now_nsec();

        if (s->is_asking)
                return 500;
        if (s->must_ask)
                return 0;
        if (s->ui->is_paused)
                return -1;
        return s->next_nsec > now ? (int)((s->next_nsec - now) / NSEC_PER_MSEC) + 1 : 0;
}

static void take_turn(struct session *s)
{
        struct pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {s->signals, POLLIN, 0},
                {top_watch_fd(s->watch), POLLIN, 0}};
        int timeout = time_left(s);

        if (timeout == 0) {
                ask_daemon(s);
                timeout = 500;
        }
        draw(s);
        if (poll(fds, ARRAY_SIZE(fds), timeout) < 0)
                return; /* EINTR: stopped and continued; redraw */
        if (fds[1].revents)
                take_signal(s);
        if (fds[0].revents & POLLIN)
                take_keys(s);
        if (fds[2].revents)
                take_answer(s);
        if (fds[0].revents & (POLLHUP | POLLERR | POLLNVAL))
                s->is_over = true; /* the terminal was closed */
}

/* Ends the process as the signal's default action would. */
static void end_by(int signal_number, const sigset_t *before)
{
        signal(signal_number, SIG_DFL);
        raise(signal_number);
        pthread_sigmask(SIG_SETMASK, before, NULL);
}

static int run_screen(const struct ctl *ctl, struct top_ui *ui, struct top_look *shown)
{
        struct session s = {.ctl = ctl, .ui = ui, .look = shown, .asked_nsec = clock_now_nsec()};
        sigset_t handled, before;
        int r;

        s.next_nsec = s.asked_nsec + ui->interval_nsec;
        sigemptyset(&handled);
        sigaddset(&handled, SIGINT);
        sigaddset(&handled, SIGTERM);
        sigaddset(&handled, SIGHUP);
        sigaddset(&handled, SIGQUIT);
        sigaddset(&handled, SIGWINCH);
        pthread_sigmask(SIG_BLOCK, &handled, &before);
        s.signals = signalfd(-1, &handled, SFD_CLOEXEC);
        r = s.signals < 0 ? fail(CTL_REFUSED, "cannot wait for signals: %s", strerror(errno))
                          : top_watch_start(ctl->socket_path, &s.watch);
        if (r == CTL_OK) {
                r = top_screen_open();
                while (r == CTL_OK && !s.is_over)
                        take_turn(&s);
                top_screen_close();
                top_watch_stop(s.watch);
        }
        free(s.trouble);
        fd_close(s.signals);
        if (s.ended_by)
                end_by(s.ended_by, &before);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        return r;
}

/* ---- both ------------------------------------------------------------------------------------ */

/* Prints kvleased's sentence if there is no such tenant, as other verbs do. */
static int check_tenant_exists(struct admin *admin, const char *tenant)
{
        const void *row;

        return tenant ? admin_first(admin, &noun_tenants, tenant, &row) : CTL_OK;
}

int verb_top(const struct ctl *ctl)
{
        struct top_look shown = {0}, look;
        struct admin *admin = NULL;
        struct top_ui ui;
        int r = choose_by_options(ctl, &ui);

        if (r == CTL_OK)
                r = admin_open(ctl->socket_path, &admin);
        if (r == CTL_OK)
                r = check_tenant_exists(admin, ctl->options[CTL_OPTION_TENANT]);
        if (r == CTL_OK)
                r = top_ask(admin, ui.view, &look);
        if (r == CTL_OK) {
                top_look_advance(&shown, &look);
                if (ctl->options[CTL_OPTION_BATCH]) {
                        r = run_batch(ctl, &ui, &admin, &shown);
                } else {
                        admin_close(admin);
                        admin = NULL; /* the screen's thread has one of its own */
                        r = run_screen(ctl, &ui, &shown);
                }
        }
        admin_close(admin);
        top_look_deinit(&shown);
        return r;
}
