#include "client/ctl/slow-answer.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/thread.h"
#include "client/ctl/ctl.h"

/* Between two sentences. Not tuned. */
#define AGAIN_NSEC (30 * NSEC_PER_SEC)

#define STAT_MAX 4096 /* /proc/PID/stat has some 400 bytes */

static atomic_bool is_hushed;
static _Atomic uint64_t said_nsec; /* 0: nothing yet */

/* ---- the process ----------------------------------------------------------------------------- */

/* Returns 'R', 'S', 'D', 'T' and so on of /proc; '\0': there is no such process, or it isn't
 * kvleased. */
static char kvleased_state(pid_t pid)
{
        static const char name[] = "(kvleased) ";
        _cleanup_free_ char *text = NULL, *path = NULL;
        const char *at;
        size_t len;

        if (pid <= 0 || asprintf(&path, "/proc/%d/stat", (int)pid) < 0)
                return '\0';
        if (file_read(path, STAT_MAX, &text, &len) < 0)
                return '\0';
        at = strstr(text, name);
        return at ? at[sizeof(name) - 1] : '\0';
}

/* Returns the process that made the socket: kvleased, systemd, or an ended one, which left it to
 * kvleased. */
static pid_t socket_maker(int fd)
{
        struct ucred cred = {0};
        socklen_t len = sizeof(cred);

        if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
                return 0;
        return cred.pid;
}

/* Returns the pid in the lock file beside the socket, which root may read. */
static pid_t lock_holder(const char *path)
{
        const char *slash = strrchr(path, '/');
        _cleanup_free_ char *lock = NULL, *text = NULL;
        size_t len;

        if (asprintf(&lock, "%.*slock", slash ? (int)(slash + 1 - path) : 0, path) < 0)
                need(NULL);
        return file_read(lock, STAT_MAX, &text, &len) < 0 ? 0 : (pid_t)strtol(text, NULL, 10);
}

/* Returns 0 if unknown. */
static pid_t find_kvleased(const struct slow_answer *s, char *ret_state)
{
        pid_t pid = socket_maker(s->fd);

        *ret_state = kvleased_state(pid);
        if (*ret_state)
                return pid;
        pid = lock_holder(s->path);
        *ret_state = kvleased_state(pid);
        return *ret_state ? pid : 0;
}

/* ---- the sentence ---------------------------------------------------------------------------- */

static bool may_say(uint64_t now)
{
        uint64_t before = atomic_load(&said_nsec);

        return !atomic_load(&is_hushed) && (before == 0 || now - before > AGAIN_NSEC) &&
               atomic_compare_exchange_strong(&said_nsec, &before, now);
}

static uint64_t round_seconds(uint64_t nsec)
{
        return (nsec + NSEC_PER_SEC / 2) / NSEC_PER_SEC;
}

static void say(const struct slow_answer *s)
{
        uint64_t due = s->since_nsec + s->late_nsec;
        _cleanup_free_ char *path = text_printable(s->path);
        char process[32] = "", state, remedy[96];
        pid_t pid = find_kvleased(s, &state);

        if (pid > 0)
                snprintf(process, sizeof(process), " (pid %d)", (int)pid);
        if (state == 'T' || state == 't')
                snprintf(remedy, sizeof(remedy), "it is stopped: kill -CONT %d lets it go on",
                        (int)pid);
        else
                snprintf(remedy, sizeof(remedy),
                        "it may be busy: see its log (journalctl -u kvleased)");
        /* Overwrites a progress line on a terminal. */
        fprintf(stderr,
                "%skvleasectl: kvleased%s hasn't answered on %s for %" PRIu64
                "s, kvleasectl waits up to %" PRIu64 "s more; %s\n",
                isatty(STDERR_FILENO) ? "\r\033[K" : "", process, path, round_seconds(s->late_nsec),
                round_seconds(minus_u64(s->until_nsec, due)), remedy);
}

static void *await_lateness(void *data)
{
        struct slow_answer *s = data;
        uint64_t due = s->since_nsec + s->late_nsec;
        struct timespec at = {(time_t)(due / NSEC_PER_SEC), (long)(due % NSEC_PER_SEC)};
        int r = 0;

        pthread_mutex_lock(&s->lock);
        while (!s->is_over && r == 0)
                r = pthread_cond_timedwait(&s->changed, &s->lock, &at);
        if (!s->is_over && may_say(clock_now_nsec()))
                say(s);
        pthread_mutex_unlock(&s->lock);
        return NULL;
}

/* ---- the wait -------------------------------------------------------------------------------- */

void slow_answer_begin(
        struct slow_answer *s, const char *path, int fd, uint64_t late_nsec, uint64_t until_nsec)
{
        pthread_condattr_t monotonic;

        *s = (struct slow_answer){.path = path,
                .fd = fd,
                .late_nsec = late_nsec,
                .until_nsec = until_nsec,
                .since_nsec = clock_now_nsec()};
        pthread_mutex_init(&s->lock, NULL);
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_cond_init(&s->changed, &monotonic);
        pthread_condattr_destroy(&monotonic);
        s->is_watched = s->since_nsec + late_nsec < until_nsec &&
                        thread_start(&s->thread, NULL, await_lateness, s) == 0;
}

void slow_answer_end(struct slow_answer *s)
{
        pthread_mutex_lock(&s->lock);
        s->is_over = true;
        pthread_cond_signal(&s->changed);
        pthread_mutex_unlock(&s->lock);
        if (s->is_watched)
                pthread_join(s->thread, NULL);
        pthread_cond_destroy(&s->changed);
        pthread_mutex_destroy(&s->lock);
}

void slow_answer_hush(void)
{
        atomic_store(&is_hushed, true);
}
