/* Processes of tests and benchmarks; declared in private-daemon.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "daemon/server/peers/server.h"
#include "tests/integration/private-daemon.h"
#include "tests/unit/child.h"

#define RESERVE_FDS_MAX 256 /* they are of the first; not tuned */

static const char *program(const char *variable, const char *built)
{
        const char *path = getenv(variable);

        return path && path[0] ? path : built;
}

/* The paths are meson's (tests/integration/meson.build). */
const char *program_daemon(void)
{
        return program("KVLEASED", BUILT_DAEMON);
}

const char *program_daemon_fault(void)
{
        return program("KVLEASED_FAULT", BUILT_DAEMON_FAULT);
}

const char *program_ctl(void)
{
        return program("KVLEASECTL", BUILT_CTL);
}

const char *program_worker(void)
{
        return program("KVL_WORKER", BUILT_WORKER);
}

const char *program_worker_fault(void)
{
        return program("KVL_WORKER_FAULT", BUILT_WORKER_FAULT);
}

const char *program_exporter(void)
{
        return program("KVLEASE_EXPORTER", BUILT_EXPORTER);
}

const char *program_exchange(void)
{
        return program("KVLEASE_EXCHANGE", BUILT_EXCHANGE);
}

const char *program_decoder(void)
{
        return program("KVL_DECODER", BUILT_DECODER);
}

const char *program_manual(void)
{
        return program("KVL_MANUAL", BUILT_MANUAL);
}

const char *program_session(void)
{
        return program("KVL_SESSION", BUILT_SESSION);
}

static bool switched_on(const char *variable)
{
        const char *value = getenv(variable);

        return value && strcmp(value, "1") == 0;
}

bool private_under_valgrind(void)
{
        return switched_on("KVL_VALGRIND");
}

bool private_measures_memory(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
        return false;
#else
        return !private_under_valgrind();
#endif
}

bool private_full(void)
{
        return switched_on("KVL_FULL");
}

bool private_short(void)
{
        return private_on_gpu() && !private_full();
}

void program_wrap(const char *const *argv, const char *ret_argv[PROGRAM_ARGS_MAX])
{
        static const char *const valgrind[] = {"valgrind", "-q", "--error-exitcode=99",
                "--leak-check=full", "--errors-for-leak-kinds=definite", "--"};
        unsigned n = 0;

        for (unsigned i = 0; private_under_valgrind() && i < ARRAY_SIZE(valgrind); ++i)
                ret_argv[n++] = valgrind[i];
        for (; *argv; ++argv) {
                assert(n + 1 < PROGRAM_ARGS_MAX);
                ret_argv[n++] = *argv;
        }
        ret_argv[n] = NULL;
}

void sleep_msec(unsigned msec)
{
        struct timespec t = {msec / 1000, (long)(msec % 1000) * 1000000};

        while (nanosleep(&t, &t) < 0 && errno == EINTR)
                ;
}

uint64_t now_nsec(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void child(const char *const *argv, const char *const *env, struct proc_files files)
{
        for (; env && *env; ++env)
                if (putenv((char *)*env) != 0)
                        _exit(126);
        if ((files.in >= 0 && dup2(files.in, 0) < 0) ||
                (files.out >= 0 && dup2(files.out, 1) < 0) ||
                (files.err >= 0 && dup2(files.err, 2) < 0))
                _exit(126);
        execvp(argv[0], (char *const *)argv);
        fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
        _exit(127);
}

pid_t proc_spawn(const char *const *argv, const char *const *env, struct proc_files files)
{
        pid_t pid;

        fflush(NULL);
        pid = child_fork();
        if (pid == 0)
                child(argv, env, files);
        return pid < 0 ? -errno : pid;
}

int proc_wait(pid_t pid, int timeout_msec, int *ret_status)
{
        uint64_t end = now_nsec() + (uint64_t)timeout_msec * 1000000;
        pid_t r;

        for (;;) {
                r = waitpid(pid, ret_status, WNOHANG);
                if (r == pid)
                        return 0;
                if (r < 0)
                        return -errno;
                if (now_nsec() >= end)
                        return -ETIMEDOUT;
                sleep_msec(1);
        }
}

/* Output of one stream of a child, in a buffer that grows. */
struct stream {
        int fd;
        FILE *f;
        char *data;
        size_t size;
};

/* Reads pending output. Returns false at the end of the stream. */
static bool stream_read(struct stream *s)
{
        char buf[4096];
        ssize_t n = read(s->fd, buf, sizeof(buf));

        if (n <= 0)
                return n < 0 && errno == EINTR;
        fwrite(buf, 1, (size_t)n, s->f);
        return true;
}

static int collect(struct stream *streams, int timeout_msec)
{
        uint64_t end = now_nsec() + (uint64_t)timeout_msec * 1000000;
        struct pollfd p[2] = {{streams[0].fd, POLLIN, 0}, {streams[1].fd, POLLIN, 0}};

        while (p[0].fd >= 0 || p[1].fd >= 0) {
                if (now_nsec() >= end)
                        return -ETIMEDOUT;
                if (poll(p, 2, 100) < 0 && errno != EINTR)
                        return -errno;
                for (unsigned i = 0; i < 2; ++i)
                        if (p[i].fd >= 0 && p[i].revents && !stream_read(&streams[i]))
                                p[i].fd = -1;
        }
        return 0;
}

int proc_run(const char *const *argv, const char *const *env, int timeout_msec,
        struct proc_output *ret_output)
{
        struct stream streams[2] = {{.fd = -1}, {.fd = -1}};
        int out[2], err[2], status = 0, r;
        pid_t pid;

        if (pipe2(out, O_CLOEXEC) < 0)
                return -errno;
        if (pipe2(err, O_CLOEXEC) < 0) {
                fd_close(out[0]);
                fd_close(out[1]);
                return -errno;
        }
        pid = proc_spawn(argv, env, (struct proc_files){-1, out[1], err[1]});
        fd_close(out[1]);
        fd_close(err[1]);
        for (unsigned i = 0; i < 2; ++i) {
                streams[i].fd = i ? err[0] : out[0];
                streams[i].f = open_memstream(&streams[i].data, &streams[i].size);
        }
        r = pid < 0 ? pid : collect(streams, timeout_msec);
        if (pid > 0 && r < 0)
                kill(pid, SIGKILL);
        if (pid > 0)
                waitpid(pid, &status, 0);
        for (unsigned i = 0; i < 2; ++i) {
                fclose(streams[i].f);
                fd_close(streams[i].fd);
        }
        *ret_output = (struct proc_output){status, streams[0].data, streams[1].data};
        return r;
}

void proc_output_free(struct proc_output *o)
{
        free(o->out);
        free(o->err);
        *o = (struct proc_output){0};
}

int proc_count_fds(pid_t pid)
{
        char path[64];
        DIR *dir;
        int n = 0;

        snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
        dir = opendir(path);
        if (!dir)
                return -errno;
        for (struct dirent *e; (e = readdir(dir));)
                n += e->d_name[0] != '.';
        closedir(dir);
        return n;
}

/* /proc/stat: the first line is all processors', its eighth number the stolen time, in ticks;
 * proc(5). */
uint64_t proc_stolen_msec(void)
{
        unsigned long long ticks = 0;
        FILE *f = fopen("/proc/stat", "re");
        int n = f ? fscanf(f, "cpu %*u %*u %*u %*u %*u %*u %*u %llu", &ticks) : 0;

        if (f)
                fclose(f);
        return n == 1 ? ticks * 1000 / (uint64_t)sysconf(_SC_CLK_TCK) : 0;
}

bool proc_holds_reserve(pid_t pid)
{
        char path[64], target[16];
        unsigned n = 0;

        for (int fd = 0; fd < RESERVE_FDS_MAX && n < SOCKETS_ADMIN_FDS + 1; fd++) {
                ssize_t len;

                snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
                len = readlink(path, target, sizeof(target));
                n += len == strlen("/dev/null") && memcmp(target, "/dev/null", (size_t)len) == 0;
        }
        return n >= SOCKETS_ADMIN_FDS + 1; /* and its stdin */
}

int64_t proc_status_value(pid_t pid, const char *name)
{
        char path[64], line[256];
        int64_t value = -ENOENT;
        size_t len = strlen(name);
        FILE *f;

        snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
        f = fopen(path, "re");
        if (!f)
                return -errno;
        while (fgets(line, sizeof(line), f))
                if (strncmp(line, name, len) == 0 && line[len] == ':')
                        value = strtoll(line + len + 1, NULL, 10);
        fclose(f);
        return value;
}

bool proc_has_huge_pages(void)
{
        FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "re");
        char words[128] = "";
        bool has = f && fgets(words, sizeof(words), f) && !strstr(words, "[never]") &&
                   !strstr(words, "[deny]");

        if (f)
                fclose(f);
        return has;
}

#define HUGE_BYTES (UINT64_C(2) << 20)
#define MAKE_HUGE  25 /* MADV_COLLAPSE; older C libraries don't have it */

bool proc_can_make_huge_pages(void)
{
        int fd = memfd_create("huge", MFD_CLOEXEC);
        uint8_t *base = mmap(NULL, 2 * HUGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        uint8_t *at = base + HUGE_BYTES - (uintptr_t)base % HUGE_BYTES;
        bool can =
                fd >= 0 && base != MAP_FAILED && ftruncate(fd, HUGE_BYTES) == 0 &&
                mmap(at, HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == at;

        if (can) {
                at[0] = 0;
                can = madvise(at, HUGE_BYTES, MAKE_HUGE) == 0;
        }
        if (base != MAP_FAILED)
                munmap(base, 2 * HUGE_BYTES);
        if (fd >= 0)
                close(fd);
        return can || proc_has_huge_pages();
}
