#include "tests/bench/baseline.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "proto/kvlease.pb-c.h"
#include "proto/msg.h"
#include "proto/shm.h"
#include "tests/integration/private-daemon.h"

double increment_nsec(void)
{
        static _Alignas(64) _Atomic uint32_t word;
        uint64_t start = now_nsec();

        for (unsigned i = 0; i < INCREMENTS_BATCH; ++i)
                atomic_fetch_add(&word, 1);
        return (double)(now_nsec() - start) / INCREMENTS_BATCH;
}

double take_nsec(unsigned n)
{
        static _Alignas(64) _Atomic uint32_t slots[SHM_MAGAZINE_SLOTS];
        static uint32_t next;
        volatile uint32_t page;
        uint64_t start;

        for (unsigned i = 0; i < n; ++i)
                atomic_store_explicit(
                        &slots[(next + i) % SHM_MAGAZINE_SLOTS], i + 1, memory_order_relaxed);
        start = now_nsec();
        for (unsigned i = 0; i < n; ++i, ++next) {
                _Atomic uint32_t *slot = &slots[next % SHM_MAGAZINE_SLOTS];

                __builtin_prefetch((void *)&slots[(next + 16) % SHM_MAGAZINE_SLOTS], 1);
                if (atomic_load_explicit(slot, memory_order_relaxed) != 0)
                        page = atomic_exchange_explicit(slot, 0, memory_order_acq_rel) - 1;
        }
        (void)page;
        return (double)(now_nsec() - start) / n;
}

struct echo_sizes echo_sizes_of(const ProtobufCMessage *request, const ProtobufCMessage *reply)
{
        return (struct echo_sizes){
                .request = FRAME_HEADER_SIZE + protobuf_c_message_get_packed_size(request),
                .reply = FRAME_HEADER_SIZE + protobuf_c_message_get_packed_size(reply),
        };
}

void echo_frame_sizes(struct echo_sizes ret_sizes[2])
{
        Kvlease__V1__LeaseRequest lease = KVLEASE__V1__LEASE_REQUEST__INIT;
        Kvlease__V1__LeaseReply leased = KVLEASE__V1__LEASE_REPLY__INIT;
        Kvlease__V1__FreeRequest free_pages = KVLEASE__V1__FREE_REQUEST__INIT;
        Kvlease__V1__SimpleReply freed = KVLEASE__V1__SIMPLE_REPLY__INIT;
        uint32_t page = 1;

        lease.ns_id = lease.n_pages = free_pages.ns_id = 1;
        leased.pages = free_pages.pages = &page;
        leased.n_pages = free_pages.n_pages = 1;
        ret_sizes[0] = echo_sizes_of(&lease.base, &leased.base);
        ret_sizes[1] = echo_sizes_of(&free_pages.base, &freed.base);
}

static int transfer(int fd, bool out, size_t len)
{
        static char buf[FRAME_MAX_SIZE];
        ssize_t n;

        for (size_t done = 0; done < len; done += (size_t)n) {
                n = out ? write(fd, buf + done, len - done) : read(fd, buf + done, len - done);
                if (n <= 0)
                        return n < 0 ? -errno : -ECONNRESET;
        }
        return 0;
}

static void echo_serve(int fd, const struct echo_sizes *sizes)
{
        for (unsigned i = 0;; i = !i)
                if (transfer(fd, false, sizes[i].request) < 0 ||
                        transfer(fd, true, sizes[i].reply) < 0)
                        return;
}

int echo_open(struct echo *e, const struct echo_sizes sizes[2])
{
        int fds[2];

        e->sizes[0] = sizes[0];
        e->sizes[1] = sizes[1];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
                return -errno;
        e->pid = fork();
        if (e->pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                fd_close(fds[0]);
                echo_serve(fds[1], e->sizes);
                _exit(0);
        }
        fd_close(fds[1]);
        e->fd = fds[0];
        return e->pid < 0 ? -errno : 0;
}

void echo_close(struct echo *e)
{
        e->fd = fd_close(e->fd);
        if (e->pid > 0)
                waitpid(e->pid, NULL, 0);
        e->pid = 0;
}

int echo_call(struct echo *e)
{
        const struct echo_sizes *sizes = &e->sizes[e->next];
        int r = transfer(e->fd, true, sizes->request);

        e->next = !e->next;
        return r < 0 ? r : transfer(e->fd, false, sizes->reply);
}

static void futex_wait(_Atomic uint32_t *word, uint32_t while_value)
{
        syscall(SYS_futex, word, FUTEX_WAIT, while_value, NULL, NULL, 0);
}

/* Gives the turn to the other thread. */
static void pingpong_turn(struct pingpong *p)
{
        atomic_fetch_add(&p->word, 1);
        syscall(SYS_futex, &p->word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void *pingpong_thread(void *data)
{
        struct pingpong *p = data;
        uint32_t word;

        while (!atomic_load(&p->stop)) {
                word = atomic_load(&p->word);
                if (word & 1)
                        pingpong_turn(p);
                else
                        futex_wait(&p->word, word);
        }
        return NULL;
}

int pingpong_open(struct pingpong *p, int core)
{
        cpu_set_t set;
        int r = pthread_create(&p->thread, NULL, pingpong_thread, p);

        if (r)
                return -r;
        p->running = true;
        CPU_ZERO(&set);
        CPU_SET(core, &set);
        return -pthread_setaffinity_np(p->thread, sizeof(set), &set);
}

void pingpong_close(struct pingpong *p)
{
        if (!p->running)
                return;
        atomic_store(&p->stop, true);
        pingpong_turn(p);
        pthread_join(p->thread, NULL);
        p->running = false;
}

void pingpong_call(struct pingpong *p)
{
        uint32_t mine = atomic_load(&p->word), word;

        pingpong_turn(p);
        while ((word = atomic_load(&p->word)) == mine + 1)
                futex_wait(&p->word, word);
}
