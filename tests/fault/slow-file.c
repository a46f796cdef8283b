#include "tests/fault/slow-file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "tests/unit/child.h"
#include "tests/unit/test-support.h"

#define FILE_NODE     2 /* FUSE_ROOT_ID is the directory */
#define REQUEST_BYTES ((size_t)FUSE_MIN_READ_BUFFER * 4)
#define MAX_WRITE     4096
#define VALID_SEC     3600

static void answer(int channel, uint64_t unique, int error, const void *body, size_t bytes)
{
        struct fuse_out_header header = {
                .len = (uint32_t)(sizeof(header) + bytes), .error = error, .unique = unique};
        struct iovec iov[] = {{&header, sizeof(header)}, {(void *)body, bytes}};

        /* The request was aborted: ENOENT. */
        if (writev(channel, iov, 2) < 0 && errno != ENOENT)
                _exit(1);
}

static void fill_attr(uint64_t node, struct fuse_attr *a)
{
        a->ino = node;
        a->mode = node == FUSE_ROOT_ID ? S_IFDIR | 0700 : S_IFREG | 0600;
        a->nlink = 1;
        a->blksize = MAX_WRITE;
}

static bool is_victim(const struct slow_file *f, uint32_t thread)
{
        char path[64];

        for (unsigned i = 0; i < SLOW_FILE_VICTIMS; i++) {
                snprintf(path, sizeof(path), "/proc/%d/task/%u", (int)f->victims[i], thread);
                if (access(path, F_OK) == 0)
                        return true;
        }
        return false;
}

static void serve(const struct slow_file *f, int channel, const struct fuse_in_header *in)
{
        const struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION,
                .minor = FUSE_KERNEL_MINOR_VERSION,
                .max_write = MAX_WRITE,
                .time_gran = 1};
        const struct fuse_open_out open = {.fh = 1};
        struct fuse_entry_out entry = {
                .nodeid = FILE_NODE, .entry_valid = VALID_SEC, .attr_valid = VALID_SEC};
        struct fuse_attr_out attr = {.attr_valid = VALID_SEC};

        switch (in->opcode) {
        case FUSE_INIT:
                answer(channel, in->unique, 0, &init, sizeof(init));
                return;
        case FUSE_LOOKUP:
                fill_attr(FILE_NODE, &entry.attr);
                answer(channel, in->unique, 0, &entry, sizeof(entry));
                return;
        case FUSE_GETATTR:
                fill_attr(in->nodeid, &attr.attr);
                answer(channel, in->unique, 0, &attr, sizeof(attr));
                return;
        case FUSE_OPEN:
                answer(channel, in->unique, 0, &open, sizeof(open));
                return;
        case FUSE_FLUSH:
                if (is_victim(f, in->pid))
                        atomic_fetch_add(f->n_flushes, 1);
                else
                        answer(channel, in->unique, 0, NULL, 0);
                return;
        case FUSE_RELEASE:
                answer(channel, in->unique, 0, NULL, 0);
                return;
        case FUSE_FORGET:
        case FUSE_BATCH_FORGET:
        case FUSE_INTERRUPT:
                return;
        default:
                answer(channel, in->unique, -ENOSYS, NULL, 0);
        }
}

/* Runs until it is killed. It keeps only the channel: the test's other descriptors would be closed
 * late. */
_Noreturn static void server_run(const struct slow_file *f, int channel)
{
        static union {
                struct fuse_in_header in;
                uint8_t bytes[REQUEST_BYTES];
        } request;

        if (dup2(channel, 0) < 0 || close_range(1, ~0u, 0) < 0)
                _exit(1);
        for (;;) {
                ssize_t n = read(0, &request, sizeof(request));

                if (n >= (ssize_t)sizeof(request.in))
                        serve(f, 0, &request.in);
                else if (n >= 0 || (errno != EINTR && errno != ENOENT && errno != EAGAIN))
                        _exit(0);
        }
}

/* Mounts at `dir`. Returns an owned channel, or -1 after a message. */
static int mount_at(const char *dir)
{
        char options[128];
        int channel = open("/dev/fuse", O_RDWR | O_CLOEXEC);

        if (channel < 0) {
                print_message("no /dev/fuse here: %s\n", strerror(errno));
                return -1;
        }
        snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=%u,group_id=%u", channel,
                (unsigned)geteuid(), (unsigned)getegid());
        if (mount("kvl-fuse", dir, "fuse", MS_NOSUID | MS_NODEV, options) < 0) {
                print_message("no FUSE file system can be mounted here: %s\n", strerror(errno));
                return fd_close(channel);
        }
        return channel;
}

bool slow_file_begin(struct slow_file *f, const pid_t victims[SLOW_FILE_VICTIMS])
{
        char dir[] = "/tmp/kvl-fuse-XXXXXX", path[sizeof(dir) + 8];
        int channel;

        *f = (struct slow_file){.fd = -1};
        memcpy(f->victims, victims, sizeof(f->victims));
        f->n_flushes = mmap(NULL, sizeof(*f->n_flushes), PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_true(f->n_flushes != MAP_FAILED);
        assert_non_null(mkdtemp(dir));
        channel = mount_at(dir);
        if (channel < 0) {
                rmdir(dir);
                return false;
        }
        fflush(NULL);
        f->server = child_fork();
        assert_true(f->server >= 0);
        if (f->server == 0)
                server_run(f, channel);
        fd_close(channel);
        snprintf(path, sizeof(path), "%s/file", dir);
        f->fd = open(path, O_RDWR | O_CLOEXEC);
        /* The descriptor alone keeps the mount: nothing is left behind if this process ends. */
        assert_int_equal(umount2(dir, MNT_DETACH), 0);
        rmdir(dir);
        assert_true(f->fd >= 0);
        return true;
}

unsigned slow_file_flushes(const struct slow_file *f)
{
        return atomic_load(f->n_flushes);
}

void slow_file_end(struct slow_file *f)
{
        kill(f->server, SIGKILL);
        waitpid(f->server, NULL, 0);
        f->fd = fd_close(f->fd);
        munmap((void *)f->n_flushes, sizeof(*f->n_flushes));
}
