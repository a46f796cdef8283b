#include "daemon/keep/parent.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/macros.h"
#include "daemon/keep/fdstore.h"
#include "daemon/keep/notify.h"

#define FIRST_FD 3 /* SD_LISTEN_FDS_START */

/* A string of the environment has at most so many bytes: execve(2), 32 pages of 4 KiB at least. */
#define MAX_STRING_BYTES ((size_t)32 * 4096)

#define FIRST_PAUSE_NSEC (100 * NSEC_PER_MSEC)
#define LAST_PAUSE_NSEC  (10 * NSEC_PER_SEC)

/* Open files of this process that aren't kept. */
#define OWN_FDS 32

/* Set for the child: the parent's pid. */
#define PARENT_VARIABLE "KVLEASED_KEPT_BY"

struct parent {
        const struct parent_options *options;
        char exe[PATH_MAX];
        struct fdstore store;
        struct notify notify;
        const char *above; /* our own service manager's socket; NULL */
        uint64_t above_watchdog_usec;
        int signal_fd;
        sigset_t old_signals;
        unsigned n_given; /* sockets given to this process, from FIRST_FD on */
        char *names; /* owned; MAX_STRING_BYTES, for LISTEN_FDNAMES; begins with the given ones */
        size_t given_names_bytes;
        int *fds; /* owned; scratch of the child */

        pid_t child; /* 0: none */
        bool ready, was_ready;
        bool ending, restarting, over;
        bool said_full;
        int code;
        unsigned n_young;
        uint64_t started_nsec, next_start_nsec;
        uint64_t beat_nsec;       /* the child's last sign of life */
        uint64_t above_beat_nsec; /* ours */
};

KVL_PRINTF(2, 3) static void say(const struct parent *p, const char *format, ...)
{
        char text[512], status[sizeof(text) + 16];
        struct pollfd log = {STDERR_FILENO, POLLOUT, 0};
        va_list args;

        va_start(args, format);
        vsnprintf(text, sizeof(text), format, args);
        va_end(args);
        /* A log without a reader mustn't block the parent, which has to start children. */
        if (poll(&log, 1, 0) > 0)
                fprintf(stderr, "kvleased --keep: %s\n", text);
        snprintf(status, sizeof(status), "STATUS=%s", text);
        notify_say(p->above, status);
}

/* ---- the child ------------------------------------------------------------------------------- */

/* Moves them to FIRST_FD and on, without close-on-exec. */
static bool place_fds(int *fds, int n)
{
        for (int i = 0; i < n; i++)
                if (fds[i] < FIRST_FD + n && fds[i] != FIRST_FD + i) {
                        fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, FIRST_FD + n);
                        if (fds[i] < 0)
                                return false;
                }
        for (int i = 0; i < n; i++) {
                if (fds[i] == FIRST_FD + i) {
                        fcntl(fds[i], F_SETFD, 0);
                        continue;
                }
                if (dup2(fds[i], FIRST_FD + i) < 0)
                        return false;
                close(fds[i]);
        }
        return true;
}

static bool set_number(const char *name, uint64_t value)
{
        char text[24];

        snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
        return setenv(name, text, 1) == 0;
}

static bool set_watchdog(const struct parent *p)
{
        if (p->options->watchdog_nsec > 0 &&
                !set_number("WATCHDOG_USEC", p->options->watchdog_nsec / NSEC_PER_USEC))
                return false;
        if (p->options->watchdog_nsec == 0 && p->above_watchdog_usec == 0)
                return true;
        return set_number("WATCHDOG_PID", (uint64_t)getpid());
}

/* Returns false, with errno: with a partial environment the child would release stored descriptors,
 * or be a parent itself. */
static bool set_environment(struct parent *p, unsigned n_fds)
{
        char *at = p->names + p->given_names_bytes;

        for (uint32_t i = 0; i < p->store.n; i++)
                at += sprintf(at, "%s:", p->store.names[i]);
        if (at > p->names)
                at[-1] = '\0';
        unsetenv("LISTEN_FDS");
        unsetenv("LISTEN_PID");
        unsetenv("LISTEN_FDNAMES");
        return setenv("NOTIFY_SOCKET", p->notify.address.sun_path, 1) == 0 &&
               set_number("FDSTORE", p->store.max) &&
               set_number(PARENT_VARIABLE, (uint64_t)getppid()) && set_watchdog(p) &&
               (n_fds == 0 || (set_number("LISTEN_FDS", n_fds) &&
                                      set_number("LISTEN_PID", (uint64_t)getpid()) &&
                                      setenv("LISTEN_FDNAMES", p->names, 1) == 0));
}

_Noreturn static void become_child(struct parent *p, pid_t parent)
{
        unsigned n = p->n_given + p->store.n;

        /* The parent may have exited before prctl(). */
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
                _exit(EXIT_FAILURE);
        sigprocmask(SIG_SETMASK, &p->old_signals, NULL);
        for (unsigned i = 0; i < n; i++)
                p->fds[i] = i < p->n_given ? (int)(FIRST_FD + i) : p->store.fds[i - p->n_given];
        if (set_environment(p, n) && place_fds(p->fds, (int)n))
                execv(p->exe, p->options->argv);
        fprintf(stderr, "kvleased --keep: cannot start %s: %s\n", p->exe, strerror(errno));
        _exit(127); /* as a shell does */
}

static void plan_start(struct parent *p);

static void start_child(struct parent *p)
{
        pid_t self = getpid(), pid = fork();

        if (pid == 0)
                become_child(p, self);
        p->started_nsec = p->beat_nsec = clock_now_nsec();
        p->ready = false;
        if (pid > 0) {
                p->child = pid;
                return;
        }
        say(p, "cannot start the daemon: %s", strerror(errno));
        plan_start(p);
}

static void end_parent(struct parent *p, int code)
{
        p->over = true;
        p->code = code;
}

/* After a death: when, if ever. */
static void plan_start(struct parent *p)
{
        uint64_t now = clock_now_nsec(), pause = 0;

        p->n_young = now - p->started_nsec < p->options->young_nsec ? p->n_young + 1 : 0;
        if (p->n_young >= p->options->tries) {
                say(p, "the daemon died %u times in a row, each within %llu s: given up, what was kept is gone; see what it said before",
                        p->n_young, (unsigned long long)(p->options->young_nsec / NSEC_PER_SEC));
                end_parent(p, EXIT_FAILURE);
                return;
        }
        if (p->n_young > 0)
                pause = FIRST_PAUSE_NSEC << MIN(p->n_young - 1, 16u);
        pause = MIN(pause, LAST_PAUSE_NSEC);
        p->next_start_nsec = now + pause;
}

static void child_died(struct parent *p, int status)
{
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
        bool is_over = WIFSIGNALED(status) || code == EXIT_SUCCESS;
        bool starts_at_once = code == PARENT_EXIT_AGAIN || (p->restarting && is_over);

        p->child = 0;
        p->restarting = false;
        if (starts_at_once && !p->ending) {
                p->n_young = 0;
                return;
        }
        if (p->ending || (WIFEXITED(status) && (code == EXIT_SUCCESS || !p->was_ready))) {
                if (p->store.n > 0)
                        say(p, "ends with the daemon: the %u descriptors that it kept go, and with them all that was cached in memory",
                                p->store.n);
                end_parent(p, code);
                return;
        }
        if (WIFSIGNALED(status))
                say(p, "the daemon was killed by signal %d: it is started again, %u descriptors are kept",
                        WTERMSIG(status), p->store.n);
        else
                say(p, "the daemon exited with %d: it is started again, %u descriptors are kept",
                        code, p->store.n);
        plan_start(p);
}

/* ---- messages of the child ------------------------------------------------------------------- */

static void keep_one(struct parent *p, const char *name, int fd)
{
        if (fdstore_add(&p->store, name, fd) != -ENOSPC || p->said_full)
                return;
        p->said_full = true;
        say(p, "%u descriptors are kept, as many as may be: further ones are closed; raise --keep-max, or the limit of open files",
                p->store.n);
}

static void keep_fds(struct parent *p, struct notify_message *m)
{
        char name[NOTIFY_MAX_BYTES + 1] = "stored"; /* sd_notify(3) */
        bool is_named = notify_get(m->text, "FDNAME", name, sizeof(name));

        if (notify_has(m->text, "FDSTOREREMOVE=1") && is_named)
                fdstore_remove(&p->store, name);
        if (!notify_has(m->text, "FDSTORE=1"))
                return;
        for (unsigned i = 0; i < m->n_fds; i++)
                keep_one(p, name, fd_take(&m->fds[i]));
}

/* Forwards a message in our own name: without MAINPID=, and without STOPPING= before a restart. */
static void pass_on(const struct parent *p, const char *text)
{
        static const char *const names[] = {
                "READY", "STATUS", "RELOADING", "MONOTONIC_USEC", "EXTEND_TIMEOUT_USEC"};
        char out[NOTIFY_MAX_BYTES + 2], value[NOTIFY_MAX_BYTES + 1]; /* lines of it, each whole */
        size_t len = 0;

        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                if (notify_get(text, names[i], value, sizeof(value)))
                        len += (size_t)snprintf(
                                out + len, sizeof(out) - len, "%s=%s\n", names[i], value);
        if (p->ending && notify_has(text, "STOPPING=1"))
                len += (size_t)snprintf(out + len, sizeof(out) - len, "STOPPING=1\n");
        if (p->options->watchdog_nsec == 0 && notify_has(text, "WATCHDOG=1"))
                len += (size_t)snprintf(out + len, sizeof(out) - len, "WATCHDOG=1\n");
        if (len > 0)
                notify_say(p->above, out);
}

static void hear(struct parent *p)
{
        struct notify_message m;

        while (notify_receive(&p->notify, &m) > 0) {
                if (m.pid == p->child && p->child > 0) {
                        p->beat_nsec = clock_now_nsec();
                        if (notify_has(m.text, "READY=1"))
                                p->ready = p->was_ready = true;
                        keep_fds(p, &m);
                        pass_on(p, m.text);
                }
                /* A barrier's too: it passes by that. */
                for (unsigned i = 0; i < m.n_fds; i++)
                        fd_close(m.fds[i]);
        }
}

/* ---- signals and time ------------------------------------------------------------------------ */

static void kill_child(const struct parent *p, int number)
{
        if (p->child > 0)
                kill(p->child, number);
}

/* A terminal's SIGINT has reached the child, too: a second one would hurry it. */
static void on_signal(struct parent *p, const struct signalfd_siginfo *info)
{
        int status;

        switch (info->ssi_signo) {
        case SIGCHLD:
                if (p->child <= 0 || waitpid(p->child, &status, WNOHANG) != p->child)
                        return;
                hear(p); /* its last words */
                child_died(p, status);
                return;
        case SIGUSR1:
                p->restarting = p->child > 0;
                p->next_start_nsec = 0;
                kill_child(p, SIGTERM);
                return;
        case SIGHUP:
                kill_child(p, SIGHUP);
                return;
        default:
                p->ending = true;
                if (info->ssi_code != SI_KERNEL)
                        kill_child(p, (int)info->ssi_signo);
                if (p->child == 0)
                        end_parent(p, EXIT_SUCCESS);
        }
}

static void hear_signals(struct parent *p)
{
        struct signalfd_siginfo info;

        while (!p->over && read(p->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
                on_signal(p, &info);
}

/* Kills a late child, sends our own watchdog message, starts the child. Returns the time of the
 * next look. */
static uint64_t look_at_time(struct parent *p)
{
        uint64_t watchdog = p->options->watchdog_nsec, half = p->above_watchdog_usec * 500;
        uint64_t now = clock_now_nsec(), wait = UINT64_MAX;

        if (p->child == 0 && minus_u64(p->next_start_nsec, now) == 0)
                start_child(p);
        if (p->child == 0)
                wait = MIN(wait, minus_u64(p->next_start_nsec, now));
        if (watchdog > 0 && p->child > 0 && p->ready) {
                if (minus_u64(p->beat_nsec + watchdog, now) == 0) {
                        say(p, "the daemon hasn't said for %llu ms that it lives: it is killed",
                                (unsigned long long)(watchdog / NSEC_PER_MSEC));
                        p->ready = false;
                        /* Not SIGABRT: a core would hold tenants' keys and pages, and a stopped
                         * child would stay so. */
                        kill_child(p, SIGKILL);
                } else {
                        wait = MIN(wait, minus_u64(p->beat_nsec + watchdog, now));
                }
        }
        /* Without our own watchdog a child sends this itself, so only without a child. */
        if (half > 0 && (watchdog > 0 || p->child == 0)) {
                if (minus_u64(p->above_beat_nsec + half, now) == 0) {
                        p->above_beat_nsec = now;
                        notify_say(p->above, "WATCHDOG=1");
                }
                wait = MIN(wait, minus_u64(p->above_beat_nsec + half, now));
        }
        return wait;
}

static void serve_until_over(struct parent *p)
{
        struct pollfd polls[] = {
                {.fd = p->notify.fd, .events = POLLIN},
                {.fd = p->signal_fd, .events = POLLIN},
        };

        while (!p->over) {
                uint64_t wait = look_at_time(p);

                if (p->over)
                        return;
                poll(polls, ARRAY_SIZE(polls),
                        wait == UINT64_MAX ? -1
                                           : (int)MIN(wait / NSEC_PER_MSEC + 1, UINT64_C(60000)));
                hear(p);
                hear_signals(p);
        }
}

/* ---- start ----------------------------------------------------------------------------------- */

/* Takes the sockets given to us, like sd_listen_fds(). */
static int take_given(struct parent *p)
{
        const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
        const char *names = getenv("LISTEN_FDNAMES");
        size_t len;

        if (!pid || !n || strtoul(pid, NULL, 10) != (unsigned long)getpid())
                return 0;
        p->n_given = (unsigned)strtoul(n, NULL, 10);
        if (p->n_given > PARENT_DEFAULT_MAX)
                return -EINVAL;
        for (unsigned i = 0; i < p->n_given; i++)
                if (fcntl((int)(FIRST_FD + i), F_SETFD, FD_CLOEXEC) < 0)
                        return -errno;
        len = names ? strlen(names) : 0;
        if (p->n_given == 0)
                return 0;
        if (len == 0 || len + 2 > MAX_STRING_BYTES)
                return -EINVAL; /* the daemon can't use a socket without a name */
        memcpy(p->names, names, len);
        p->names[len] = ':';
        p->given_names_bytes = len + 1;
        return 0;
}

static void take_watchdog(struct parent *p)
{
        const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");

        if (usec && (!pid || strtoul(pid, NULL, 10) == (unsigned long)getpid()))
                p->above_watchdog_usec = strtoull(usec, NULL, 10);
}

/* Raises the limit, as the child briefly has each under two numbers. Returns how many can be
 * stored. */
static uint32_t raise_limit(uint32_t max)
{
        struct rlimit limit;
        rlim_t room;

        if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
                return max;
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
        room = limit.rlim_max / 2;
        room -= MIN(room, (rlim_t)OWN_FDS);
        return (uint32_t)MIN((rlim_t)max, room);
}

static int take_memory(struct parent *p)
{
        uint32_t max = raise_limit(p->options->max);
        int r;

        if (max < p->options->max && p->options->max != PARENT_DEFAULT_MAX)
                say(p, "of %u descriptors (--keep-max) %u can be kept: raise the limit of open files (ulimit -Hn) to twice as many",
                        p->options->max, max);
        p->names = calloc(1, MAX_STRING_BYTES);
        if (!p->names)
                return -ENOMEM;
        r = take_given(p);
        if (r < 0)
                return r;
        p->fds = calloc((size_t)max + p->n_given + 1, sizeof(*p->fds));
        if (!p->fds)
                return -ENOMEM;
        return fdstore_init(&p->store, max,
                MAX_STRING_BYTES - sizeof("LISTEN_FDNAMES=") - p->given_names_bytes);
}

static int open_signals(struct parent *p)
{
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGINT);
        sigaddset(&set, SIGHUP);
        sigaddset(&set, SIGUSR1);
        sigaddset(&set, SIGCHLD);
        sigprocmask(SIG_BLOCK, &set, &p->old_signals);
        p->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        return p->signal_fd < 0 ? -errno : 0;
}

static int prepare_parent(struct parent *p)
{
        ssize_t len = readlink("/proc/self/exe", p->exe, sizeof(p->exe) - 1);
        int r;

        if (len < 0)
                return -errno;
        p->above = getenv("NOTIFY_SOCKET");
        take_watchdog(p);
        r = take_memory(p);
        if (r == 0)
                r = open_signals(p);
        return r < 0 ? r : notify_open(&p->notify);
}

bool parent_is_there(void)
{
        const char *pid = getenv(PARENT_VARIABLE);
        bool is_there = pid && strtoul(pid, NULL, 10) == (unsigned long)getppid();

        unsetenv(PARENT_VARIABLE);
        return is_there;
}

static const char *why_unprepared(int error)
{
        if (error != -EACCES)
                return strerror(-error);
        return "it can make no directory for its socket in $RUNTIME_DIRECTORY, $XDG_RUNTIME_DIR, "
               "/run or /tmp: let it write to one of them (where the root of a container is read-only: a tmpfs as /tmp)";
}

int parent_run(const struct parent_options *o)
{
        struct parent p = {.options = o, .signal_fd = -1, .notify.fd = -1};
        int r = prepare_parent(&p);

        if (r == 0)
                serve_until_over(&p);
        else
                fprintf(stderr, "kvleased --keep: cannot start: %s\n", why_unprepared(r));
        notify_close(&p.notify);
        fdstore_deinit(&p.store);
        fd_close(p.signal_fd);
        free(p.names);
        free(p.fds);
        return r < 0 ? EXIT_FAILURE : p.code;
}
