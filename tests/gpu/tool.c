/* Facts, processes and messages. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "tests/gpu/facts.h"
#include "tests/integration/private-daemon.h"

/* Not tuned: time limit of a fact for one message; main.c's for the whole fact is longer. */
#define NOTE_TIMEOUT_MSEC 120000

static struct fact *dying_fact;
static void (*dying_finish)(struct fact *f);
static int dying_sock = -1; /* a peer tells its orchestrator */

struct device_facts the_device;

/* ---- facts ---------------------------------------------------------------------------------- */

void fact_value(struct fact *f, const char *unit, double value, const char *name, ...)
{
        struct fact_value *v = &f->values[f->n_values];
        va_list args;

        if (f->n_values == FACT_VALUES_MAX)
                return;
        *v = (struct fact_value){.unit = unit, .value = value};
        va_start(args, name);
        vsnprintf(v->name, sizeof(v->name), name, args);
        va_end(args);
        f->n_values++;
}

void fact_conclude(struct fact *f, bool holds, const char *why, ...)
{
        va_list args;

        f->outcome = holds ? FACT_VERIFIED : FACT_REFUTED;
        va_start(args, why);
        vsnprintf(f->why, sizeof(f->why), why, args);
        va_end(args);
}

void fact_skip(struct fact *f, const char *why, ...)
{
        va_list args;

        f->outcome = FACT_SKIPPED;
        va_start(args, why);
        vsnprintf(f->why, sizeof(f->why), why, args);
        va_end(args);
}

void fact_die_into(struct fact *f, void (*finish)(struct fact *f))
{
        dying_fact = f;
        dying_finish = finish;
}

void fact_die(const char *why, ...)
{
        struct note note = {.failed = 1};
        va_list args;

        va_start(args, why);
        vsnprintf(note.text, sizeof(note.text), why, args);
        va_end(args);
        if (dying_sock >= 0) {
                send(dying_sock, &note, sizeof(note), MSG_NOSIGNAL);
        } else if (dying_fact) {
                dying_fact->outcome = FACT_FAILED;
                snprintf(dying_fact->why, sizeof(dying_fact->why), "%s", note.text);
                dying_finish(dying_fact);
        } else {
                fprintf(stderr, "%s: %s\n", program_invocation_short_name, note.text);
        }
        _exit(1);
}

void need(cu_result result, const char *call)
{
        char buf[160];

        if (result != CU_OK)
                fact_die("%s", cuda_describe(call, result, buf, sizeof(buf)));
}

/* ---- processes ------------------------------------------------------------------------------ */

void peer_start(
        struct peer *p, const char *name, void (*fn)(int sock, const void *arg), const void *arg)
{
        pid_t parent = getpid();
        int socks[2];

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks) < 0)
                fact_die("socketpair: %s", strerror(errno));
        *p = (struct peer){.name = name, .sock = socks[0]};
        p->pid = fork();
        if (p->pid < 0)
                fact_die("fork: %s", strerror(errno));
        if (p->pid > 0) {
                close(socks[1]);
                return;
        }
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
                _exit(1);
        close(socks[0]);
        dying_sock = socks[1];
        fn(socks[1], arg);
        /* Runs the driver's exit handlers, like any program. */
        exit(0);
}

void note_send(int sock, const struct note *note, int fd)
{
        static const struct note empty;
        struct iovec iov = {(void *)(note ? note : &empty), sizeof(*note)};
        union {
                char buf[CMSG_SPACE(sizeof(int))];
                struct cmsghdr align;
        } control = {0};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

        if (fd >= 0) {
                m.msg_control = control.buf;
                m.msg_controllen = sizeof(control.buf);
                *CMSG_FIRSTHDR(&m) = (struct cmsghdr){
                        .cmsg_len = CMSG_LEN(sizeof(int)),
                        .cmsg_level = SOL_SOCKET,
                        .cmsg_type = SCM_RIGHTS,
                };
                memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &fd, sizeof(fd));
        }
        if (sendmsg(sock, &m, MSG_NOSIGNAL) != (ssize_t)sizeof(*note))
                fact_die("a message to another process of the test: %s", strerror(errno));
}

static void note_receive(int sock, struct note *ret, int *ret_fd)
{
        struct iovec iov = {ret, sizeof(*ret)};
        union {
                char buf[CMSG_SPACE(sizeof(int))];
                struct cmsghdr align;
        } control = {0};
        struct msghdr m = {.msg_iov = &iov,
                .msg_iovlen = 1,
                .msg_control = control.buf,
                .msg_controllen = sizeof(control.buf)};
        ssize_t n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        int fd = -1;

        if (n != (ssize_t)sizeof(*ret))
                fact_die("another process of the test ended early");
        if (c && c->cmsg_type == SCM_RIGHTS)
                memcpy(&fd, CMSG_DATA(c), sizeof(fd));
        ret->text[sizeof(ret->text) - 1] = '\0';
        if (ret->failed)
                fact_die("in another process of the test: %s", ret->text);
        if (!ret_fd != (fd < 0))
                fact_die("a message %s a descriptor", fd < 0 ? "lacks" : "has");
        if (ret_fd)
                *ret_fd = fd;
}

void note_wait(int sock, struct note *ret, int *ret_fd)
{
        struct pollfd p = {.fd = sock, .events = POLLIN};
        struct note unused;

        if (poll(&p, 1, NOTE_TIMEOUT_MSEC) != 1)
                fact_die("another process of the test said nothing for %d s",
                        NOTE_TIMEOUT_MSEC / 1000);
        note_receive(sock, ret ? ret : &unused, ret_fd);
}

bool note_poll(int sock, struct note *ret)
{
        struct pollfd p = {.fd = sock, .events = POLLIN};

        if (poll(&p, 1, 0) != 1)
                return false;
        note_receive(sock, ret, NULL);
        return true;
}

void peer_end(struct peer *p)
{
        int status;

        if (proc_wait(p->pid, NOTE_TIMEOUT_MSEC, &status) < 0)
                fact_die("the %s doesn't exit", p->name);
        p->sock = fd_close(p->sock);
        if (status != 0)
                fact_die("the %s ended with status 0x%x", p->name, status);
}

double peer_kill(struct peer *p)
{
        uint64_t start = now_nsec();

        kill(p->pid, SIGKILL);
        waitpid(p->pid, NULL, 0);
        p->sock = fd_close(p->sock);
        return msec_since(start);
}

/* ---- figures -------------------------------------------------------------------------------- */

double msec_since(uint64_t start_nsec)
{
        return (double)(now_nsec() - start_nsec) / 1e6;
}

static int compare(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;

        return (x > y) - (x < y);
}

double median_of(double *values, unsigned n)
{
        qsort(values, n, sizeof(*values), compare);
        return values[n / 2];
}

double max_of(const double *values, unsigned n)
{
        double max = values[0];

        for (unsigned i = 1; i < n; ++i)
                max = values[i] > max ? values[i] : max;
        return max;
}

double gb_per_s(uint64_t bytes, double msec)
{
        return (double)bytes / 1e6 / msec;
}
