/* The daemon's side of the reaper: scheduling of jobs, and supervision of the process. */
#include "daemon/reap/reaper.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/macros.h"
#include "base/map.h"
#include "daemon/reap/wire.h"

/* Dead processes not waited for yet, as their threads hang. Beyond this, zombies stay until the
 * daemon ends. Not tuned. */
#define DEAD_MAX 16

extern char **environ;

/* The program to execute: REAP_JOB_FD, until the process has a job. A descriptor is used because
 * under valgrind "/proc/self/exe" is valgrind's program, while opening it opens ours. */
#define PROGRAM_FD   REAP_JOB_FD
#define PROGRAM_PATH "/proc/self/fd/4"
static_assert(PROGRAM_FD == 4, "PROGRAM_PATH");

struct job {
        struct list_link link; /* owner.waiting, reaper.running */
        struct owner *owner;
        uint64_t id, bytes, running_nsec;
        enum reap_op op;
        int fd; /* owned; -1 once it was sent */
        reap_done_fn done;
        void *data;
};

struct owner {
        struct list_link ready_link; /* in reaper.ready while a waiting job may run */
        struct list_link waiting;    /* struct job.link, the oldest first */
        uint64_t id, bytes;
        uint32_t n_waiting, n_running;
};

struct reaper {
        const char *exe;
        reap_say_fn say;
        void *data;
        int epoll_fd;
        int socket_bytes;
        int fd;    /* owned; the process' socket; -1: there is none */
        pid_t pid; /* its */
        pid_t dead[DEAD_MAX];
        unsigned n_dead;
        uint64_t tried_nsec; /* last start, or failed start */
        bool is_failing;     /* it couldn't, or died young; said */
        bool wants_out;      /* the socket is full: wants an event when it isn't */
        bool is_stopping;
        uint64_t last_id, gone_id; /* of the job sent last; of the last that may start */
        uint32_t n_strangers;      /* running jobs of strangers */
        struct map owners;         /* uint64_t -> struct owner *, owned; with jobs */
        struct map jobs;           /* id -> struct job *, of running jobs */
        struct list_link running;  /* struct job.link, the oldest first; owned */
        struct list_link ready;    /* struct owner.ready_link: by turns */
};

static bool is_stranger(uint64_t owner)
{
        return (owner & REAPER_STRANGER) != 0;
}

KVL_PRINTF(3, 4) static void say(const struct reaper *r, bool is_error, const char *format, ...)
{
        char text[256];
        va_list args;

        if (!r->say)
                return;
        va_start(args, format);
        vsnprintf(text, sizeof(text), format, args);
        va_end(args);
        r->say(r->data, is_error, text);
}

/* ---- jobs and owners ------------------------------------------------------------------------- */

static struct owner *find_owner(const struct reaper *r, uint64_t id)
{
        uint64_t *value = map_find(&r->owners, id);

        return value ? (struct owner *)(uintptr_t)*value : NULL;
}

static struct owner *get_owner(struct reaper *r, uint64_t id)
{
        struct owner *o = find_owner(r, id);

        if (o)
                return o;
        o = calloc(1, sizeof(*o));
        if (!o)
                return NULL;
        list_init(&o->ready_link);
        list_init(&o->waiting);
        o->id = id;
        if (map_put(&r->owners, id, (uintptr_t)o) == 0)
                return o;
        free(o);
        return NULL;
}

/* Frees an owner without jobs. */
static void put_owner(struct reaper *r, struct owner *o)
{
        if (o->n_waiting + o->n_running > 0)
                return;
        list_remove(&o->ready_link);
        map_remove(&r->owners, o->id);
        free(o);
}

static void note_ready(struct reaper *r, struct owner *o)
{
        uint32_t max = r->is_stopping ? REAPER_OWNER_STOPPING : REAPER_OWNER_RUNNING;
        bool is_ready = o->n_waiting > 0 && o->n_running < max;

        if (!is_ready)
                list_remove(&o->ready_link);
        else if (list_is_empty(&o->ready_link))
                list_append(&r->ready, &o->ready_link);
}

/* Ends a job that is in no list. */
static void end_job(struct reaper *r, struct job *job, int result)
{
        struct owner *o = job->owner;

        o->bytes -= job->bytes;
        note_ready(r, o);
        put_owner(r, o);
        fd_close(job->fd);
        if (job->done)
                job->done(job->data, result);
        free(job);
}

static void end_running(struct reaper *r, struct job *job, int result)
{
        list_remove(&job->link);
        map_remove(&r->jobs, job->id);
        job->owner->n_running--;
        r->n_strangers -= is_stranger(job->owner->id);
        end_job(r, job, result);
}

static void end_waiting(struct reaper *r, struct job *job, int result)
{
        list_remove(&job->link);
        job->owner->n_waiting--;
        end_job(r, job, result);
}

/* Does the job in the caller, without a reaper. */
static int do_here(enum reap_op op, int fd, uint64_t bytes)
{
        int result = op == REAP_PUNCH ? fd_punch_hole(fd, 0, bytes) : 0;

        fd_close(fd);
        return result;
}

/* ---- starting the process -------------------------------------------------------------------- */

/* The order matters: the two descriptors may have any numbers except those opened first. */
static int add_actions(posix_spawn_file_actions_t *a, int program_fd, int fd)
{
        int r = 0;

        for (int i = 0; i < REAP_SOCKET_FD && r == 0; i++)
                r = posix_spawn_file_actions_addopen(a, i, "/dev/null", O_RDWR, 0);
        if (r == 0)
                r = posix_spawn_file_actions_adddup2(a, program_fd, PROGRAM_FD);
        if (r == 0)
                r = posix_spawn_file_actions_adddup2(a, fd, REAP_SOCKET_FD);
        if (r == 0)
                r = posix_spawn_file_actions_addclosefrom_np(a, REAP_SOCKET_FD + 1);
        return -r;
}

/* A session of its own: signals of a terminal to the daemon's processes don't reach it. It blocks
 * and ignores none of the daemon's signals. */
static int set_attributes(posix_spawnattr_t *attr)
{
        sigset_t none, all;
        int r;

        sigemptyset(&none);
        sigfillset(&all);
        r = posix_spawnattr_setsigmask(attr, &none);
        if (r == 0)
                r = posix_spawnattr_setsigdefault(attr, &all);
        if (r == 0)
                r = posix_spawnattr_setflags(
                        attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
        return -r;
}

static int spawn(int program_fd, int fd, pid_t *ret_pid)
{
        static char name[] = "kvleased", argument[] = REAP_ARGUMENT;
        char *argv[] = {name, argument, NULL};
        posix_spawn_file_actions_t actions;
        posix_spawnattr_t attr;
        int r = -posix_spawn_file_actions_init(&actions);

        if (r < 0)
                return r;
        r = -posix_spawnattr_init(&attr);
        if (r == 0) {
                r = add_actions(&actions, program_fd, fd);
                if (r == 0)
                        r = set_attributes(&attr);
                if (r == 0)
                        r = -posix_spawn(ret_pid, PROGRAM_PATH, &actions, &attr, argv, environ);
                posix_spawnattr_destroy(&attr);
        }
        posix_spawn_file_actions_destroy(&actions);
        return r;
}

static void limit_sockets(const int pair[2], int bytes)
{
        for (unsigned i = 0; i < 2 && bytes > 0; i++)
                (void)setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

/* Moves a descriptor beyond the numbers that the actions open first. Takes it; it may be < 0. */
static int move_up(int fd)
{
        int high = fd < 0 ? -errno : fcntl(fd, F_DUPFD_CLOEXEC, REAP_SOCKET_FD + 1);
        int r = fd < 0 || high >= 0 ? high : -errno;

        fd_close(fd);
        return r;
}

/* Starts the process with its end of the pair, and no other descriptor of ours. Returns 0 with an
 * owned end of its socket, and its pid, for which the caller waits; or -errno. Takes about a
 * millisecond, until the process has called execve(2). */
static int launch(const char *exe, int socket_bytes, int *ret_fd, pid_t *ret_pid)
{
        int pair[2], program, end, r;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return -errno;
        limit_sockets(pair, socket_bytes);
        end = move_up(pair[1]);
        program = move_up(open(exe, O_PATH | O_CLOEXEC));
        r = MIN(end, program);
        if (r >= 0)
                r = spawn(program, end, ret_pid);
        fd_close(program);
        fd_close(end);
        if (r < 0)
                fd_close(pair[0]);
        else
                *ret_fd = pair[0];
        return r;
}

/* ---- the process ----------------------------------------------------------------------------- */

static void watch(struct reaper *r, bool wants_out)
{
        struct epoll_event e = {.events = EPOLLIN | (wants_out ? EPOLLOUT : 0)};

        if (wants_out != r->wants_out && epoll_ctl(r->epoll_fd, EPOLL_CTL_MOD, r->fd, &e) == 0)
                r->wants_out = wants_out;
}

/* Notes the process, to be waited for. */
static void note_dead(struct reaper *r)
{
        if (r->n_dead < DEAD_MAX)
                r->dead[r->n_dead++] = r->pid;
        r->pid = 0;
}

static void start_process(struct reaper *r, uint64_t now)
{
        struct epoll_event e = {.events = EPOLLIN};
        int result;

        r->tried_nsec = now;
        result = launch(r->exe, r->socket_bytes, &r->fd, &r->pid);
        if (result == 0 && epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, r->fd, &e) < 0) {
                result = -errno;
                r->fd = fd_close(r->fd); /* it exits */
                note_dead(r);
        }
        r->wants_out = false;
        if (result == 0)
                return;
        r->fd = -1;
        r->pid = 0;
        if (!r->is_failing)
                say(r, true,
                        "cannot start the process that gives memory back (%s): until it can be, who holds a lock of such memory holds up the daemon",
                        strerror(-result));
        r->is_failing = true;
}

static void wait_for_dead(struct reaper *r)
{
        unsigned n = 0;

        for (unsigned i = 0; i < r->n_dead; i++)
                if (waitpid(r->dead[i], NULL, WNOHANG) == 0)
                        r->dead[n++] = r->dead[i];
        r->n_dead = n;
}

/* Handles the death of the process: its running jobs are lost. */
static void bury(struct reaper *r)
{
        struct list_link lost;
        uint32_t n_lost = 0;

        r->fd = fd_close(r->fd); /* leaves the epoll by that */
        note_dead(r);
        r->gone_id = r->last_id;
        list_take_all(&r->running, &lost);
        list_for_each (job, &lost, struct job, link)
                n_lost += job->op == REAP_PUNCH;
        if (!r->is_stopping)
                say(r, true,
                        "the process that gives memory back died: what it had in hand, %u extents, "
                        "may stay with who has it mapped, until those processes exit",
                        n_lost);
        while (!list_is_empty(&lost))
                end_running(r, list_first(&lost, struct job, link), -ECANCELED);
}

/* Starts a process if there is none: at once after a long life. */
static void look_at_process(struct reaper *r)
{
        uint64_t now = clock_now_nsec();

        wait_for_dead(r);
        if (r->fd >= 0) {
                if (r->is_failing && now - r->tried_nsec >= REAPER_YOUNG_NSEC) {
                        r->is_failing = false;
                        say(r, false, "the process that gives memory back runs again");
                }
                return;
        }
        if (now - r->tried_nsec >= REAPER_YOUNG_NSEC)
                start_process(r, now);
}

/* ---- sending --------------------------------------------------------------------------------- */

/*
 * Lets sent jobs start, now that our descriptors of them are closed. Not before: the last close()
 * could be ours if the process closes sooner.
 */
static void let_go(struct reaper *r)
{
        struct reap_request request = {.id = r->last_id, .op = REAP_GO};

        if (r->fd < 0 || r->gone_id == r->last_id)
                return;
        if (send(r->fd, &request, sizeof(request), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
                watch(r, errno == EAGAIN); /* other errors: as when a job is sent */
        else
                r->gone_id = r->last_id;
}

/* 0; -errno: it wasn't. */
static int send_job(const struct reaper *r, const struct job *job)
{
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(sizeof(int))];
        } control = {0};
        struct reap_request request = {.id = job->id, .bytes = job->bytes, .op = job->op};
        struct iovec iov = {&request, sizeof(request)};
        struct msghdr h = {
                .msg_iov = &iov,
                .msg_iovlen = 1,
                .msg_control = &control,
                .msg_controllen = sizeof(control),
        };
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);

        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &job->fd, sizeof(int));
        return sendmsg(r->fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* The first of the owner's. False: not now. */
static bool run_next(struct reaper *r, struct owner *o)
{
        struct job *job = list_first(&o->waiting, struct job, link);
        int result;

        job->id = r->last_id + 1;
        if (map_put(&r->jobs, job->id, (uintptr_t)job) < 0)
                return false;
        result = send_job(r, job);
        if (result < 0) {
                map_remove(&r->jobs, job->id);
                /* A dead process is noticed when receiving. With too many descriptors in flight
                 * (ETOOMANYREFS), or no memory: try again with the next reply, or in a second. */
                watch(r, result == -EAGAIN);
                return false;
        }
        r->last_id++;
        job->fd = fd_close(job->fd); /* not the last one: the other is in flight */
        job->running_nsec = clock_now_nsec();
        list_remove(&job->link);
        list_append(&r->running, &job->link);
        o->n_waiting--;
        o->n_running++;
        r->n_strangers += is_stranger(o->id);
        list_remove(&o->ready_link); /* behind the others */
        note_ready(r, o);
        return true;
}

static struct owner *next_ready(const struct reaper *r)
{
        bool is_full = !r->is_stopping && r->n_strangers >= REAPER_STRANGERS_RUNNING;

        list_for_each (o, &r->ready, struct owner, ready_link)
                if (!is_full || !is_stranger(o->id))
                        return o;
        return NULL;
}

static void run_jobs(struct reaper *r)
{
        struct owner *o;

        watch(r, false);
        while (r->fd >= 0 && (o = next_ready(r)) && run_next(r, o))
                ;
        let_go(r);
}

/* Does all jobs here: there is no process, and won't be for a while. */
static void do_all_here(struct reaper *r)
{
        struct owner *o;

        while ((o = list_first(&r->ready, struct owner, ready_link))) {
                struct job *job = list_first(&o->waiting, struct job, link);

                end_waiting(r, job, do_here(job->op, fd_take(&job->fd), job->bytes));
        }
}

static void go_on(struct reaper *r)
{
        look_at_process(r);
        if (r->fd >= 0)
                run_jobs(r);
        else
                do_all_here(r);
}

/* Returns false if there is no more reply, or the process has ended. */
static bool take_reply(struct reaper *r)
{
        struct reap_reply m;
        ssize_t len = r->fd < 0 ? 0 : recv(r->fd, &m, sizeof(m), MSG_DONTWAIT);
        uint64_t *value;

        if (r->fd < 0 || (len < 0 && (errno == EAGAIN || errno == EINTR)))
                return false;
        if (len != sizeof(m)) {
                bury(r);
                return false;
        }
        value = map_find(&r->jobs, m.id);
        if (value)
                end_running(r, (struct job *)(uintptr_t)*value, MIN(m.result, 0));
        return true;
}

void reaper_dispatch(struct reaper *r)
{
        while (take_reply(r))
                ;
        go_on(r);
}

void reaper_submit(struct reaper *r, enum reap_op op, uint64_t owner, int fd, uint64_t bytes,
        reap_done_fn done, void *data)
{
        struct job *job = calloc(1, sizeof(*job));
        struct owner *o = job ? get_owner(r, owner) : NULL;
        int result;

        assert(fd >= 0 && (op == REAP_PUNCH) == (bytes > 0));

        if (!o) {
                free(job);
                result = do_here(op, fd, bytes);
                if (done)
                        done(data, result);
                return;
        }
        *job = (struct job){
                .owner = o, .bytes = bytes, .op = op, .fd = fd, .done = done, .data = data};
        list_append(&o->waiting, &job->link);
        o->n_waiting++;
        o->bytes += bytes;
        note_ready(r, o);
        /* A full socket says when it isn't. */
        if (!r->wants_out)
                go_on(r);
}

/* ---- beginning and end ----------------------------------------------------------------------- */

int reaper_start(const struct reaper_options *o, struct reaper **ret)
{
        struct reaper *r = calloc(1, sizeof(*r));
        int result;

        if (!r)
                return -ENOMEM;
        *r = (struct reaper){.exe = o->exe ? o->exe : "/proc/self/exe",
                .say = o->say,
                .data = o->data,
                .socket_bytes = o->socket_bytes,
                .fd = -1,
                .epoll_fd = epoll_create1(EPOLL_CLOEXEC)};
        if (r->epoll_fd < 0) {
                result = -errno;
                free(r);
                return result;
        }
        map_init(&r->owners);
        map_init(&r->jobs);
        list_init(&r->running);
        list_init(&r->ready);
        start_process(r, clock_now_nsec());
        *ret = r;
        return 0;
}

static bool is_busy(const struct reaper *r)
{
        return r->fd >= 0 && (!list_is_empty(&r->running) || !list_is_empty(&r->ready));
}

/* Milliseconds, up; 0 afterwards. */
static int msec_until(uint64_t until)
{
        uint64_t now = clock_now_nsec();

        return until <= now ? 0 : (int)((until - now) / NSEC_PER_MSEC + 1);
}

/* Runs jobs until none is left, for at most REAPER_STOP_NSEC. */
static void finish_running(struct reaper *r)
{
        uint64_t until = clock_now_nsec() + REAPER_STOP_NSEC;
        struct pollfd p = {.fd = r->epoll_fd, .events = POLLIN};
        struct map_slot slot;
        size_t iter = 0;

        r->is_stopping = true;
        while (map_next(&r->owners, &iter, &slot))
                note_ready(r, (struct owner *)(uintptr_t)slot.value);
        while (is_busy(r) && msec_until(until) > 0) {
                run_jobs(r);
                poll(&p, 1, msec_until(until));
                while (take_reply(r))
                        ;
        }
}

/* Waits for the process; no job of it hangs, as far as we know. */
static void wait_for_process(struct reaper *r)
{
        static const struct timespec pause = {.tv_nsec = NSEC_PER_MSEC};
        uint64_t until = clock_now_nsec() + REAPER_STOP_NSEC;

        while (waitpid(r->pid, NULL, WNOHANG) == 0 && msec_until(until) > 0)
                nanosleep(&pause, NULL);
}

void reaper_stop(struct reaper *r)
{
        bool hangs;

        if (!r)
                return;
        finish_running(r);
        hangs = !list_is_empty(&r->running);
        r->fd = fd_close(r->fd);
        if (r->pid > 0 && !hangs)
                wait_for_process(r);
        while (!list_is_empty(&r->running))
                end_running(r, list_first(&r->running, struct job, link), -ECANCELED);
        while (r->owners.n_used > 0) {
                struct map_slot slot;
                size_t iter = 0;
                struct owner *o;

                map_next(&r->owners, &iter, &slot);
                o = (struct owner *)(uintptr_t)slot.value;
                end_waiting(r, list_first(&o->waiting, struct job, link), -ECANCELED);
        }
        wait_for_dead(r);
        fd_close(r->epoll_fd);
        map_deinit(&r->owners);
        map_deinit(&r->jobs);
        free(r);
}

/* ---- figures --------------------------------------------------------------------------------- */

int reaper_fd(const struct reaper *r)
{
        return r->epoll_fd;
}

int reaper_pid(const struct reaper *r)
{
        return r->pid;
}

/* The oldest running job is the first of its owner in that list. */
static void describe_owner(const struct reaper *r, const struct owner *o, struct reaper_owner *ret)
{
        *ret = (struct reaper_owner){.owner = o->id,
                .n_waiting = o->n_waiting,
                .n_running = o->n_running,
                .bytes = o->bytes};
        if (o->n_running > 0)
                list_for_each (job, &r->running, struct job, link)
                        if (job->owner == o && ret->running_nsec == 0)
                                ret->running_nsec = job->running_nsec;
}

bool reaper_find_owner(const struct reaper *r, uint64_t owner, struct reaper_owner *ret)
{
        const struct owner *o = find_owner(r, owner);

        if (o)
                describe_owner(r, o, ret);
        return o != NULL;
}

bool reaper_next_owner(const struct reaper *r, size_t *iter, struct reaper_owner *ret)
{
        struct map_slot slot;

        if (!map_next(&r->owners, iter, &slot))
                return false;
        describe_owner(r, (const struct owner *)(uintptr_t)slot.value, ret);
        return true;
}
