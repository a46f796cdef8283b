#include "base/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "base/thread.h"

#define NAME_BYTES_MAX 64

/* ---- room ------------------------------------------------------------------------------------ */

/* Makes a tmpfs without limits, like memfds: a limit would show as SIGBUS. Returns an owned fd of
 * the detached mount, or -errno. */
static int make_tmpfs(void)
{
        static const char *const settings[][2] = {
                {"source", "kvlease"},
                {"mode", "0700"},
                {"size", "0"},
                {"nr_inodes", "0"},
        };
        _cleanup_fd_ int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
        int fd;

        if (fs < 0)
                return -errno;
        for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
                if (fsconfig(fs, FSCONFIG_SET_STRING, settings[i][0], settings[i][1], 0) < 0)
                        return -errno;
        if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
                return -errno;
        fd = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
        return fd < 0 ? -errno : fd;
}

/* Opens a mount's root. Unlike the mount's own fd, closing it unmounts nothing. */
static int open_root(int mount_fd)
{
        int fd = openat(mount_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        return fd < 0 ? -errno : fd;
}

/*
 * Before Linux 6.15 a mount can be cloned only in the caller's mount namespace. So this thread
 * makes a namespace, private so that the host never sees it. It ends with the thread, and the
 * clone's own ends when clone_fd is closed. After that no mount call works on either, and the roots
 * keep both mounts.
 */
static int make_mounts(struct segment_room *room)
{
        struct mount_attr private = {.propagation = MS_PRIVATE};
        struct mount_attr read_only = {.attr_set = MOUNT_ATTR_RDONLY};
        _cleanup_fd_ int mount_fd = -1, clone_fd = -1, write_fd = -1, read_fd = -1;

        if (unshare(CLONE_FS | CLONE_NEWNS) < 0 ||
                mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &private, sizeof(private)) < 0)
                return -errno;
        mount_fd = make_tmpfs();
        if (mount_fd < 0)
                return mount_fd;
        if (move_mount(mount_fd, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) < 0)
                return -errno;
        clone_fd = open_tree(mount_fd, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
        if (clone_fd < 0 ||
                mount_setattr(clone_fd, "", AT_EMPTY_PATH, &read_only, sizeof(read_only)) < 0)
                return -errno;
        write_fd = open_root(mount_fd);
        if (write_fd < 0)
                return write_fd;
        read_fd = open_root(clone_fd);
        if (read_fd < 0)
                return read_fd;
        room->write_fd = fd_take(&write_fd);
        room->read_fd = fd_take(&read_fd);
        return 0;
}

static void *run_make_mounts(void *arg)
{
        struct segment_room *room = arg;

        room->why = make_mounts(room);
        return NULL;
}

void segment_room_open(struct segment_room *room)
{
        pthread_t thread;
        int r;

        *room = (struct segment_room){.write_fd = -1, .read_fd = -1};
        r = thread_start(&thread, NULL, run_make_mounts, room);
        if (r == 0)
                pthread_join(thread, NULL);
        else
                room->why = r;
        room->guard = room->why == 0 ? SEGMENT_READ_ONLY_MOUNT : SEGMENT_MEMFD;
}

void segment_room_close(struct segment_room *room)
{
        room->write_fd = fd_close(room->write_fd);
        room->read_fd = fd_close(room->read_fd);
}

const char *segment_guard_name(enum segment_guard guard)
{
        return guard == SEGMENT_READ_ONLY_MOUNT ? "read-only mount" : "memfd";
}

/* ---- segment --------------------------------------------------------------------------------- */

static int make_file(const struct segment_room *room, const char *name, uint64_t bytes, int *ret_fd,
        int *ret_reader_fd)
{
        _cleanup_fd_ int fd = -1, reader_fd = -1;
        int r;

        fd = openat(room->write_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0)
                return -errno;
        reader_fd = openat(room->read_fd, name, O_RDONLY | O_CLOEXEC);
        r = reader_fd < 0 ? -errno : 0;
        if (unlinkat(room->write_fd, name, 0) < 0 && r == 0)
                r = -errno;
        if (r == 0 && ftruncate(fd, (off_t)bytes) < 0)
                r = -errno;
        if (r < 0)
                return r;
        *ret_fd = fd_take(&fd);
        *ret_reader_fd = fd_take(&reader_fd);
        return 0;
}

static int make_memfd(const char *name, uint64_t bytes, int *ret_fd, int *ret_reader_fd)
{
        int fd = memfd_create_sized(name, bytes), reader_fd;

        if (fd < 0)
                return fd;
        reader_fd = fd_reopen_read_only(fd);
        if (reader_fd < 0) {
                fd_close(fd);
                return reader_fd;
        }
        *ret_fd = fd;
        *ret_reader_fd = reader_fd;
        return 0;
}

static int map_memory(struct segment *s)
{
        void *base = memory_map(s->fd, s->bytes);

        if (!base)
                return -errno;
        s->base = base;
        return madvise(base, s->bytes, MADV_DONTFORK) < 0 ? -errno : 0;
}

int segment_new(
        struct segment_room *room, const char *name, uint64_t bytes, struct segment *ret_segment)
{
        struct segment s = {.fd = -1, .reader_fd = -1, .bytes = bytes};
        char numbered[NAME_BYTES_MAX + sizeof("-18446744073709551615")];
        int r;

        if (bytes == 0 || strlen(name) > NAME_BYTES_MAX)
                return -EINVAL;
        if (bytes > INT64_MAX)
                return -EFBIG;
        snprintf(numbered, sizeof(numbered), "%s-%" PRIu64, name, room->n_made);
        r = room->guard == SEGMENT_READ_ONLY_MOUNT
                    ? make_file(room, numbered, bytes, &s.fd, &s.reader_fd)
                    : make_memfd(numbered, bytes, &s.fd, &s.reader_fd);
        if (r < 0)
                return r;
        r = map_memory(&s);
        if (r < 0) {
                segment_free(&s);
                return r;
        }
        room->n_made++;
        *ret_segment = s;
        return 0;
}

int segment_adopt(int fd, int reader_fd, uint64_t bytes, struct segment *ret_segment)
{
        struct segment s = {.fd = fd, .reader_fd = reader_fd, .bytes = bytes};
        struct stat writer, reader;
        int flags = fcntl(reader_fd, F_GETFL), r;

        if (fstat(fd, &writer) < 0 || fstat(reader_fd, &reader) < 0 || flags < 0)
                return -errno;
        if (!S_ISREG(writer.st_mode) || writer.st_dev != reader.st_dev ||
                writer.st_ino != reader.st_ino || (uint64_t)writer.st_size != bytes ||
                (flags & O_ACCMODE) != O_RDONLY)
                return -EINVAL;
        r = map_memory(&s);
        if (r < 0) {
                if (s.base)
                        munmap(s.base, bytes);
                return r;
        }
        *ret_segment = s;
        return 0;
}

uint64_t segment_next_part(const struct segment *s, uint64_t at, uint64_t *ret_end)
{
        /* This open file, and so its position, isn't shared. */
        off_t from = lseek(s->fd, (off_t)at, SEEK_DATA), end;

        *ret_end = s->bytes;
        if (from < 0)
                return errno == ENXIO ? s->bytes : at;
        end = lseek(s->fd, from, SEEK_HOLE);
        if (end > from)
                *ret_end = MIN((uint64_t)end, s->bytes);
        return MIN((uint64_t)from, s->bytes);
}

void segment_free(struct segment *s)
{
        if (s->fd < 0)
                return;
        if (s->base)
                munmap(s->base, s->bytes);
        fd_close(s->fd);
        fd_close(s->reader_fd);
        *s = (struct segment){.fd = -1, .reader_fd = -1};
}
