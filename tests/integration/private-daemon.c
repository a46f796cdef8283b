#include "tests/integration/private-daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"

/* Not tuned: long enough for valgrind on a loaded machine. */
#define START_TIMEOUT_MSEC 60000
#define STOP_TIMEOUT_MSEC  60000

#define MAX_ENV 8

#define NSENTER_WORDS 4

#define LOG_SHOWN_BYTES ((size_t)20000)

static const struct private_tenant default_tenants[] = {{"a", "limit = 64MiB\n"}, {NULL, NULL}};

static void write_device(FILE *f, const struct private_daemon *d, const struct private_options *o)
{
        const char *lines = o->device_lines ? o->device_lines : "memory = 256MiB\nextent = 2MiB\n";

        fprintf(f, "[device %s]\n%s\n", private_device(), lines);
        if (o->disk_size)
                fprintf(f, "disk = %s\ndisk_size = %s\n", d->disk, o->disk_size);
        if (!private_on_gpu())
                return;
        if (!strstr(lines, "transport"))
                fprintf(f, "transport = %s\n", private_transport());
        /* The default suits a GPU; tests wait for it often. */
        if (!strstr(lines, "death_grace"))
                fprintf(f, "death_grace = 100ms\n");
}

static bool has_remote(const struct private_tenant *t)
{
        for (; t->name; ++t)
                if (t->lines && strstr(t->lines, "[remote "))
                        return true;
        return false;
}

int private_daemon_configure(struct private_daemon *d, const struct private_options *o)
{
        const struct private_tenant *t = o->tenants ? o->tenants : default_tenants;
        FILE *f = fopen(d->config, "we");

        if (!f)
                return -errno;
        if (has_remote(t))
                snprintf(d->exchange, sizeof(d->exchange), "%.32s/exchange.sock", d->dir);
        fprintf(f, "[daemon]\ndevices = %s\nruntime_dir = %s\nstate_dir = %s\n%s%s\n%s\n",
                o->devices ? o->devices : private_device(), d->runtime, d->state,
                d->exchange[0] ? "exchange_socket = " : "", d->exchange,
                o->daemon_lines ? o->daemon_lines : "");
        write_device(f, d, o);
        for (; t->name; ++t)
                fprintf(f, "[tenant %s]\n%s\n", t->name, t->lines ? t->lines : "");
        return fclose(f) < 0 ? -errno : 0;
}

int private_daemon_inject(struct private_daemon *d, const char *lines)
{
        char next[PRIVATE_PATH_MAX + 8];
        FILE *f;

        assert(d->control[0]);
        snprintf(next, sizeof(next), "%s.new", d->control);
        f = fopen(next, "we");
        if (!f)
                return -errno;
        fputs(lines, f);
        if (fclose(f) < 0 || rename(next, d->control) < 0)
                return -errno;
        return 0;
}

/* Makes DIR/faults, which the daemon finds by its environment. */
static int open_faults(struct private_daemon *d)
{
        char path[PRIVATE_PATH_MAX + 8];
        _cleanup_fd_ int fd = -1;
        void *at;

        snprintf(path, sizeof(path), "%s/faults", d->dir);
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0 || ftruncate(fd, sizeof(*d->faults)) < 0)
                return -errno;
        at = mmap(NULL, sizeof(*d->faults), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED)
                return -errno;
        d->faults = at;
        return 0;
}

void private_daemon_aim(
        struct private_daemon *d, const char *const *points, size_t n, unsigned pass)
{
        assert(n <= FAULT_MAX_AIMS);
        private_daemon_disarm(d);
        atomic_store(&d->faults->n_aims, 0);
        for (size_t i = 0; i < n; ++i) {
                assert(strlen(points[i]) < FAULT_NAME_BYTES);
                strcpy(d->faults->aims[i].name, points[i]);
                atomic_store(&d->faults->aims[i].n_passes, pass);
        }
        atomic_store(&d->faults->n_aims, (uint32_t)n);
}

void private_daemon_arm(struct private_daemon *d)
{
        atomic_store(&d->faults->is_armed, 1);
}

bool private_daemon_disarm(struct private_daemon *d)
{
        return atomic_exchange(&d->faults->is_armed, 0);
}

bool private_daemon_has_died(const struct private_daemon *d)
{
        return !atomic_load(&d->faults->is_armed);
}

bool private_daemon_is_aimed_at(const struct private_daemon *d, size_t i)
{
        return atomic_load(&d->faults->aims[i].n_passes) > 0;
}

int private_daemon_init(struct private_daemon *d, const struct private_options *o)
{
        int r;

        *d = (struct private_daemon){.notify_fd = -1};
        snprintf(d->dir, sizeof(d->dir), "/tmp/kvl-XXXXXX");
        if (!mkdtemp(d->dir)) {
                d->dir[0] = '\0';
                return -errno;
        }
        snprintf(d->config, sizeof(d->config), "%.32s/kvlease.conf", d->dir);
        snprintf(d->log, sizeof(d->log), "%.32s/log", d->dir);
        snprintf(d->runtime, sizeof(d->runtime), "%.32s/run", d->dir);
        snprintf(d->state, sizeof(d->state), "%.32s/state", d->dir);
        snprintf(d->admin, sizeof(d->admin), "%.32s/run/admin.sock", d->dir);
        /* In memory, except in the full run: each flush of a real disk waits. */
        if (private_full())
                snprintf(d->disk, sizeof(d->disk), "%.32s/disk", d->dir);
        else
                snprintf(d->disk, sizeof(d->disk), "/dev/shm/%.32s-disk", strrchr(d->dir, '/') + 1);
        d->env = o->env;
        r = mkdir(d->runtime, 0755) < 0 || mkdir(d->state, 0755) < 0 ? -errno : 0;
        if (!r)
                r = private_device_init();
        d->net_pid = o->net_pid;
        d->is_kept = o->is_kept;
        d->keep_max = o->keep_max;
        d->has_faults = o->has_faults;
        if (!r && o->has_faults)
                r = open_faults(d);
        if (!r && o->has_control) {
                snprintf(d->control, sizeof(d->control), "%.32s/control", d->dir);
                r = private_daemon_inject(d, "");
        }
        if (!r)
                r = private_daemon_configure(d, o);
        if (r < 0)
                private_daemon_deinit(d);
        return r;
}

char *private_daemon_socket(const struct private_daemon *d, const char *tenant, char *buf)
{
        snprintf(buf, PRIVATE_PATH_MAX, "%.40s/t/%s/sock", d->runtime, tenant);
        return buf;
}

/* A datagram socket at DIR/notify, like systemd's. */
static int open_notify(struct private_daemon *d)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        _cleanup_fd_ int fd = -1;

        snprintf(address.sun_path, sizeof(address.sun_path), "%.32s/notify", d->dir);
        unlink(address.sun_path);
        fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                return -errno;
        d->notify_fd = fd_take(&fd);
        return 0;
}

static int wait_ready(struct private_daemon *d)
{
        uint64_t end = now_nsec() + START_TIMEOUT_MSEC * UINT64_C(1000000);
        char message[4096];
        ssize_t n;

        while (now_nsec() < end) {
                n = recv(d->notify_fd, message, sizeof(message) - 1, MSG_DONTWAIT);
                if (n > 0) {
                        message[n] = '\0';
                        if (strstr(message, "READY=1"))
                                return 0;
                        continue;
                }
                if (waitpid(d->pid, &d->status, WNOHANG) == d->pid) {
                        d->pid = 0;
                        return -ECHILD;
                }
                sleep_msec(2);
        }
        return -ETIMEDOUT;
}

/* The daemon's log, for another program. Owned, or -errno. */
static int open_log(const struct private_daemon *d)
{
        int fd = open(d->log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);

        return fd < 0 ? -errno : fd;
}

int private_exchange_start(struct private_daemon *d)
{
        char net_pid[16];
        /* nsenter becomes the program that it starts. */
        const char *argv[] = {
                "nsenter", "-t", net_pid, "-n", program_exchange(), "--socket", d->exchange, NULL};
        const char *wrapped[PROGRAM_ARGS_MAX];
        uint64_t end = now_nsec() + START_TIMEOUT_MSEC * UINT64_C(1000000);
        _cleanup_fd_ int log = open_log(d);
        int r;

        assert(!d->exchange_pid);
        if (log < 0)
                return log;
        (void)unlink(d->exchange);
        snprintf(net_pid, sizeof(net_pid), "%d", (int)d->net_pid);
        program_wrap(d->net_pid ? argv : argv + NSENTER_WORDS, wrapped);
        r = proc_spawn(wrapped, d->env, (struct proc_files){-1, log, log});
        if (r < 0)
                return r;
        d->exchange_pid = r;
        while (access(d->exchange, F_OK) < 0) {
                if (now_nsec() > end)
                        return -ETIMEDOUT;
                sleep_msec(2);
        }
        return 0;
}

static int stop_process(pid_t *pid, int *ret_status)
{
        int r;

        assert(*pid > 0);
        kill(*pid, SIGTERM);
        r = proc_wait(*pid, STOP_TIMEOUT_MSEC, ret_status);
        if (r < 0) {
                kill(*pid, SIGKILL);
                waitpid(*pid, NULL, 0);
        }
        *pid = 0;
        return r;
}

int private_exchange_stop(struct private_daemon *d, int *ret_status)
{
        return stop_process(&d->exchange_pid, ret_status);
}

int private_daemon_start(struct private_daemon *d)
{
        const char *program = d->has_faults ? program_daemon_fault() : program_daemon();
        const char *argv[] = {program, "--config", d->config, d->is_kept ? "--keep" : NULL,
                "--keep-young=1ms", /* no pauses after deaths */
                d->keep_max ? "--keep-max" : NULL, d->keep_max, NULL};
        char notify[PRIVATE_PATH_MAX + 32], control[PRIVATE_PATH_MAX + 32];
        char faults[PRIVATE_PATH_MAX + 32];
        const char *env[MAX_ENV + 4] = {notify};
        const char *wrapped[PROGRAM_ARGS_MAX];
        _cleanup_fd_ int log = open_log(d);
        unsigned n = 1;
        int r = d->exchange[0] && !d->exchange_pid ? private_exchange_start(d) : 0;

        assert(!d->pid);
        if (r < 0 || log < 0)
                return r < 0 ? r : log;
        d->notify_fd = fd_close(d->notify_fd);
        r = open_notify(d);
        if (r < 0)
                return r;
        snprintf(notify, sizeof(notify), "NOTIFY_SOCKET=%s/notify", d->dir);
        if (d->control[0]) {
                snprintf(control, sizeof(control), "FAKECUDA_CONTROL=%s", d->control);
                env[n++] = control;
        }
        if (d->faults) {
                snprintf(faults, sizeof(faults), "KVL_FAULT_FILE=%s/faults", d->dir);
                env[n++] = faults;
        }
        for (const char *const *e = d->env; e && *e; ++e) {
                assert(n < ARRAY_SIZE(env) - 1);
                env[n++] = *e;
        }
        program_wrap(argv, wrapped);
        r = proc_spawn(wrapped, env, (struct proc_files){-1, log, log});
        if (r < 0)
                return r;
        d->pid = r;
        return wait_ready(d);
}

int private_daemon_await(struct private_daemon *d)
{
        return wait_ready(d);
}

int private_daemon_stop(struct private_daemon *d, int *ret_status)
{
        return stop_process(&d->pid, ret_status);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
        return remove(path);
}

void private_daemon_deinit(struct private_daemon *d)
{
        if (d->pid > 0) {
                kill(d->pid, SIGKILL);
                waitpid(d->pid, NULL, 0);
                d->pid = 0;
        }
        if (d->exchange_pid > 0) {
                kill(d->exchange_pid, SIGKILL);
                waitpid(d->exchange_pid, NULL, 0);
                d->exchange_pid = 0;
        }
        d->notify_fd = fd_close(d->notify_fd);
        if (d->faults)
                munmap(d->faults, sizeof(*d->faults));
        d->faults = NULL;
        if (d->disk[0])
                (void)unlink(d->disk);
        if (d->dir[0])
                nftw(d->dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
        d->dir[0] = '\0';
}

void private_daemon_show_log(const struct private_daemon *d)
{
        char *text;
        size_t len;

        if (file_read(d->log, 64 << 20, &text, &len) < 0)
                return;
        /* The end of a long log. */
        fprintf(stderr, "---- log of kvleased\n%s\n----\n",
                text + (len > LOG_SHOWN_BYTES ? len - LOG_SHOWN_BYTES : 0));
        free(text);
}
