/* The process itself: receives jobs, starts a thread for each, sends results. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/macros.h"
#include "daemon/reap/reaper.h"
#include "daemon/reap/wire.h"

/* Pause before a thread is tried again. Not tuned. */
#define AGAIN_NSEC (50 * 1000 * 1000)

/* Time for running jobs after the daemon has exited. Not tuned. */
#define FINISH_NSEC UINT64_C(200000000)

/* Stack of a thread, which makes a system call or two; beyond the C library's needs. Not tuned. */
#define STACK_BYTES ((size_t)PTHREAD_STACK_MIN + 32768)

struct process {
        pthread_attr_t attr;
        struct list_link running; /* struct thread.link; the main thread's */
        pthread_mutex_t lock;     /* of what follows */
        struct list_link done;    /* struct thread.done_link */
};

struct thread {
        struct list_link link, done_link;
        struct process *process;
        struct reap_request request;
        pthread_t id;
        sem_t has_table, may_go;
        uint64_t signal_nsec; /* CLOSE: the next one is due */
        bool has_gone;        /* may_go was posted */
        int result;
};

/* ---- a job's thread -------------------------------------------------------------------------- */

static int do_job(const struct reap_request *request)
{
        int r = 0;

        if (request->op == REAP_PUNCH)
                r = fd_punch_hole(REAP_JOB_FD, 0, request->bytes);
        fd_close(REAP_JOB_FD);
        return r;
}

/* First takes a descriptor table of its own, with those up to the job's. */
static void *thread_main(void *data)
{
        static const uint64_t one = 1;
        struct thread *t = data;
        struct process *p = t->process;

        if (close_range(REAP_JOB_FD + 1, ~0U, CLOSE_RANGE_UNSHARE) < 0)
                t->result = -errno;
        sem_post(&t->has_table);
        while (sem_wait(&t->may_go) < 0)
                ;
        if (t->result == 0)
                t->result = do_job(&t->request);
        pthread_mutex_lock(&p->lock);
        list_append(&p->done, &t->done_link);
        pthread_mutex_unlock(&p->lock);
        (void)!write(REAP_EVENT_FD, &one, sizeof(one));
        return NULL;
}

/* ---- the main thread ------------------------------------------------------------------------- */

/* Sends a reply. Waits for a daemon that doesn't read, which never waits for us. */
static void reply(uint64_t id, int result)
{
        struct reap_reply m = {.id = id, .result = result};

        while (send(REAP_SOCKET_FD, &m, sizeof(m), MSG_NOSIGNAL) < 0 && errno == EINTR)
                ;
}

static struct thread *thread_new(struct process *p, const struct reap_request *request)
{
        struct thread *t = calloc(1, sizeof(*t));

        if (!t)
                return NULL;
        list_init(&t->link);
        list_init(&t->done_link);
        t->process = p;
        t->request = *request;
        t->signal_nsec = UINT64_MAX;
        sem_init(&t->has_table, 0, 0);
        sem_init(&t->may_go, 0, 0);
        return t;
}

static void thread_free(struct thread *t)
{
        list_remove(&t->link);
        sem_destroy(&t->has_table);
        sem_destroy(&t->may_go);
        free(t);
}

/* Waits until there is memory and a thread; all jobs wait meanwhile. The main thread can't close
 * the job's descriptor itself: that may block. */
static struct thread *start_thread(struct process *p, const struct reap_request *request)
{
        static const struct timespec pause = {.tv_nsec = AGAIN_NSEC};

        for (;;) {
                struct thread *t = thread_new(p, request);

                if (t && pthread_create(&t->id, &p->attr, thread_main, t) == 0)
                        return t;
                if (t)
                        thread_free(t);
                nanosleep(&pause, NULL);
        }
}

/* Starts the job at REAP_JOB_FD. The main thread closes it once the new thread has it, whose close
 * is then the last. */
static void start_job(struct process *p, const struct reap_request *request)
{
        struct thread *t = start_thread(p, request);

        while (sem_wait(&t->has_table) < 0)
                ;
        fd_close(REAP_JOB_FD);
        list_append(&p->running, &t->link);
}

/* Lets jobs up to this id start. */
static void let_go(struct process *p, uint64_t id)
{
        list_for_each (t, &p->running, struct thread, link) {
                if (t->has_gone || t->request.id > id)
                        continue;
                t->has_gone = true;
                if (t->request.op == REAP_CLOSE)
                        t->signal_nsec = clock_now_nsec() + REAPER_SIGNAL_NSEC;
                sem_post(&t->may_go);
        }
}

static void end_jobs(struct process *p)
{
        struct list_link done;
        uint64_t n;

        (void)!read(REAP_EVENT_FD, &n, sizeof(n));
        pthread_mutex_lock(&p->lock);
        list_take_all(&p->done, &done);
        pthread_mutex_unlock(&p->lock);
        list_for_each_safe (t, &done, struct thread, done_link) {
                list_remove(&t->done_link);
                pthread_join(t->id, NULL);
                reply(t->request.id, t->result);
                thread_free(t);
        }
}

/* Sends signals to late jobs. Returns the time of the next look; UINT64_MAX: none. */
static uint64_t send_signals(struct process *p, uint64_t now)
{
        uint64_t next = UINT64_MAX;

        list_for_each (t, &p->running, struct thread, link) {
                if (t->signal_nsec <= now) {
                        pthread_kill(t->id, SIGUSR1);
                        t->signal_nsec = now + REAPER_SIGNAL_NSEC;
                }
                next = MIN(next, t->signal_nsec);
        }
        return next;
}

/* Receives a message. Returns 1: a job was started; 0: none came; -1: the daemon has exited. */
static int receive_call(struct process *p)
{
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(sizeof(int))];
        } control;
        struct reap_request request;
        struct iovec iov = {&request, sizeof(request)};
        struct msghdr h = {
                .msg_iov = &iov,
                .msg_iovlen = 1,
                .msg_control = &control,
                .msg_controllen = sizeof(control),
        };
        ssize_t len = recvmsg(REAP_SOCKET_FD, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        struct cmsghdr *c = len > 0 ? CMSG_FIRSTHDR(&h) : NULL;
        int fd;

        if (len < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
        if (len != sizeof(request))
                return -1;
        if (request.op == REAP_GO) {
                let_go(p, request.id);
                return 1;
        }
        /* The kernel leaves out the descriptor if the table is full. */
        if (!c || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(sizeof(int))) {
                reply(request.id, -EMFILE);
                return 1;
        }
        memcpy(&fd, CMSG_DATA(c), sizeof(fd));
        if (fd != REAP_JOB_FD) {
                if (dup3(fd, REAP_JOB_FD, O_CLOEXEC) < 0)
                        return -1;
                fd_close(fd);
        }
        start_job(p, &request);
        return 1;
}

static int poll_timeout(uint64_t until, uint64_t now)
{
        if (until == UINT64_MAX)
                return -1;
        return until <= now ? 0 : (int)MIN((until - now) / NSEC_PER_MSEC + 1, UINT64_C(60000));
}

static void serve_calls(struct process *p)
{
        struct pollfd polls[] = {
                {.fd = REAP_SOCKET_FD, .events = POLLIN}, {.fd = REAP_EVENT_FD, .events = POLLIN}};
        int r = 0;

        while (r >= 0) {
                uint64_t now = clock_now_nsec(), next = send_signals(p, now);

                poll(polls, ARRAY_SIZE(polls), poll_timeout(next, now));
                end_jobs(p);
                while ((r = receive_call(p)) > 0)
                        ;
        }
}

/* Waits briefly for the rest: undelayed jobs are done in a moment. Their results are lost. */
static void finish_calls(struct process *p)
{
        uint64_t now = clock_now_nsec(), until = now + FINISH_NSEC;
        struct pollfd poll_event = {.fd = REAP_EVENT_FD, .events = POLLIN};

        let_go(p, UINT64_MAX);
        while (!list_is_empty(&p->running) && now < until) {
                poll(&poll_event, 1, poll_timeout(until, now));
                end_jobs(p);
                now = clock_now_nsec();
        }
}

static void on_signal(int number)
{
}

/* SIGUSR1 interrupts a thread's wait. Signals for the daemon, from a terminal or a service manager,
 * are ignored here: this process ends with the daemon. */
static void set_signals(void)
{
        struct sigaction interrupt = {.sa_handler = on_signal};
        sigset_t none;

        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        sigaction(SIGUSR1, &interrupt, NULL);
        signal(SIGTERM, SIG_IGN);
        signal(SIGINT, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        signal(SIGPIPE, SIG_IGN);
}

static int open_event_fd(void)
{
        int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), r;

        if (fd < 0 || fd == REAP_EVENT_FD)
                return fd < 0 ? -errno : 0;
        r = dup3(fd, REAP_EVENT_FD, O_CLOEXEC) < 0 ? -errno : 0;
        close(fd);
        return r;
}

static bool asks;

bool reaper_is_possible(void)
{
        return asks;
}

bool reap_is_asked(int argc, char **argv)
{
        asks = true;
        return argc == 2 && strcmp(argv[1], REAP_ARGUMENT) == 0;
}

int reap_process(void)
{
        struct process p = {0};

        fd_close(REAP_JOB_FD); /* the program, as it was started by */
        set_signals();
        prctl(PR_SET_NAME, "kvleased-reaper");
        list_init(&p.running);
        list_init(&p.done);
        pthread_mutex_init(&p.lock, NULL);
        pthread_attr_init(&p.attr);
        pthread_attr_setstacksize(&p.attr, STACK_BYTES);
        if (fcntl(REAP_SOCKET_FD, F_SETFD, FD_CLOEXEC) < 0 || open_event_fd() < 0)
                return EXIT_FAILURE; /* called by hand */
        serve_calls(&p);
        finish_calls(&p);
        /* Not exit(), as threads may run. The kernel waits for those that hang. */
        _exit(EXIT_SUCCESS);
}
