#include "tests/unit/state-image.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/core/clients/client-table.h"
#include "tests/unit/test-support.h"

/* ---- numbers of files ------------------------------------------------------------------------ */

static uint64_t inode_of(const struct fake_keep *k, enum keep_kind kind, uint32_t number)
{
        int fd = fake_keep_find(k, kind, number);
        struct stat st;

        return fd >= 0 && fstat(fd, &st) == 0 ? st.st_ino : 0;
}

/* Sets the inodes in rows of clients to those of the kept files, or to 0. */
static void set_inodes(const struct fake_keep *k, bool are_there)
{
        int fd = fake_keep_find(k, KEEP_CLIENTS, 0);
        struct client_slot *clients;
        struct attach_slot *attaches;
        uint8_t *base;

        if (fd < 0)
                return;
        base = mmap(NULL, CLIENT_TABLE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_true(base != MAP_FAILED);
        clients = (struct client_slot *)(void *)(base + CLIENT_HEADER_BYTES);
        attaches = (struct attach_slot *)(void *)(clients + CLIENT_SLOTS);
        for (uint32_t i = 0; i < 64; i++) {
                if (clients[i].marks & CLIENT_RING)
                        clients[i].ring_inode = are_there ? inode_of(k, KEEP_RING, i) : 0;
                if (attaches[i].marks & ATTACH_SHARES)
                        attaches[i].pins_inode = are_there ? inode_of(k, KEEP_PINS, i) : 0;
                if (attaches[i].marks & ATTACH_SOCKET_PINS)
                        attaches[i].socket_pins_inode =
                                are_there ? inode_of(k, KEEP_SOCKET_PINS, i) : 0;
        }
        munmap(base, CLIENT_TABLE_BYTES);
}

/* ---- written --------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
        const struct fake_kept *x = a, *y = b;

        return x->kind != y->kind ? (x->kind > y->kind) - (x->kind < y->kind)
                                  : (x->number > y->number) - (x->number < y->number);
}

static void write_row(FILE *to, uint64_t offset, const uint8_t *row)
{
        static const uint8_t zero[STATE_IMAGE_ROW];

        if (memcmp(row, zero, sizeof(zero)) == 0)
                return;
        fprintf(to, "%" PRIx64 " ", offset);
        for (unsigned i = 0; i < STATE_IMAGE_ROW; i++)
                fprintf(to, "%02x", row[i]);
        fprintf(to, "\n");
}

/* Holes aren't gone through. */
static void write_file(FILE *to, int fd, uint64_t bytes)
{
        uint8_t row[STATE_IMAGE_ROW];
        off_t at = 0, hole;

        while ((at = lseek(fd, at, SEEK_DATA)) >= 0 && (uint64_t)at < bytes) {
                hole = lseek(fd, at, SEEK_HOLE);
                for (; at < hole; at += STATE_IMAGE_ROW) {
                        assert_int_equal(pread(fd, row, sizeof(row), at), sizeof(row));
                        write_row(to, (uint64_t)at, row);
                }
        }
}

void state_image_write(struct fake_keep *k, FILE *to)
{
        set_inodes(k, false);
        qsort(k->kept, k->n, sizeof(k->kept[0]), compare);
        for (uint32_t i = 0; i < k->n; i++) {
                const struct fake_kept *kept = &k->kept[i];
                bool has_bytes = kept->kind != KEEP_PROCESS && kept->kind != KEEP_INDEX_READER;
                struct stat st;

                assert_int_equal(fstat(kept->fd, &st), 0);
                fprintf(to, "keep %c %" PRIu32 " %" PRIu64 "\n", (int)kept->kind, kept->number,
                        has_bytes ? (uint64_t)st.st_size : 0);
                if (has_bytes)
                        write_file(to, kept->fd, (uint64_t)st.st_size);
        }
}

/* ---- read ------------------------------------------------------------------------------------ */

static uint8_t digit_of(char c)
{
        assert_true((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'));
        return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

static void load_row(int fd, const char *line)
{
        uint8_t row[STATE_IMAGE_ROW];
        char hex[2 * STATE_IMAGE_ROW + 1];
        uint64_t offset;

        if (sscanf(line, "%" SCNx64 " %64s", &offset, hex) != 2 ||
                strlen(hex) != 2 * STATE_IMAGE_ROW)
                fail_msg("not a row: %s", line);
        for (unsigned i = 0; i < STATE_IMAGE_ROW; i++)
                row[i] = (uint8_t)(digit_of(hex[2 * i]) << 4 | digit_of(hex[2 * i + 1]));
        assert_int_equal(pwrite(fd, row, sizeof(row), (off_t)offset), sizeof(row));
}

/* A reader's descriptor is of the same file as the writer's, which comes before it. */
static int open_reader(const struct fake_keep *k, uint32_t number)
{
        char path[64];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fake_keep_find(k, KEEP_INDEX, number));
        return open(path, O_RDONLY | O_CLOEXEC);
}

static int open_kept(
        const struct fake_keep *k, enum keep_kind kind, uint32_t number, uint64_t bytes)
{
        switch (kind) {
        case KEEP_PROCESS:
                return pidfd_open(getpid(), 0);
        case KEEP_INDEX_READER:
                return open_reader(k, number);
        default:
                return memfd_create_sized("image", bytes);
        }
}

void state_image_load(struct fake_keep *k, FILE *from)
{
        char line[256], kind;
        uint32_t number;
        uint64_t bytes;
        int fd = -1;

        while (fgets(line, sizeof(line), from)) {
                if (line[0] == '#')
                        continue;
                if (sscanf(line, "keep %c %" SCNu32 " %" SCNu64, &kind, &number, &bytes) != 3) {
                        load_row(fd, line);
                        continue;
                }
                fd = open_kept(k, (enum keep_kind)kind, number, bytes);
                assert_true(fd >= 0);
                fake_keep_leave(k, (enum keep_kind)kind, number, fd);
        }
        set_inodes(k, true);
}
