/* Device memory that the daemon or the kernel makes before a worker touches it. Which pages a
 * client populates: tests/unit/test_client_arena.c. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/integration/harness.h"

#define PAGE_BYTES  65536 /* as much as one fault maps */
#define N_PAGES     24
#define MAX_EXTENTS 16
#define EXTENT_NAME "memfd:kvlease-extent"

static const struct private_tenant tenants[] = {{"a", NULL}, {NULL, NULL}};
static const struct private_options options = {
        .tenants = tenants, .device_lines = "memory = 8MiB\nextent = 4MiB\n"};

static const struct private_options huge_options = {
        .tenants = tenants, .device_lines = "memory = 8MiB\nextent = 4MiB\nhuge_pages = on\n"};

static const struct private_options made_options = {.tenants = tenants,
        .device_lines = "memory = 8MiB\nextent = 4MiB\nhuge_pages = on\npopulate = on\n"};

static const struct private_options daemon_options = {
        .tenants = tenants, .device_lines = "memory = 8MiB\nextent = 4MiB\npopulate = on\n"};

static struct worker *start_worker(struct harness *h)
{
        struct worker *w = worker_spawn(h);
        char socket[PRIVATE_PATH_MAX];

        worker_tell(w, "connect %s", private_daemon_socket(&h->daemon, "a", socket));
        worker_tell(w, "open ns 1 - %u -", PAGE_BYTES);
        return w;
}

/* The worker's mappings of extents: KiB in its page tables, KiB mapped as huge pages, and mappings
 * for which it asked for huge pages. */
struct mapped {
        unsigned long resident_kib, huge_kib;
        unsigned n_advised;
};

static struct mapped mapped_by(const struct worker *w)
{
        struct mapped m = {0};
        bool is_extent = false;
        unsigned long kib;
        char line[512];
        FILE *f;

        snprintf(line, sizeof(line), "/proc/%d/smaps", (int)w->pid);
        f = fopen(line, "re");
        assert_non_null(f);
        while (fgets(line, sizeof(line), f)) {
                unsigned long from, to;

                if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
                        is_extent = strstr(line, EXTENT_NAME) != NULL;
                else if (is_extent && sscanf(line, "Rss: %lu kB", &kib) == 1)
                        m.resident_kib += kib;
                else if (is_extent && sscanf(line, "ShmemPmdMapped: %lu kB", &kib) == 1)
                        m.huge_kib += kib;
                else if (is_extent && strncmp(line, "VmFlags:", 8) == 0)
                        m.n_advised += strstr(line, " hg") != NULL;
        }
        fclose(f);
        return m;
}

static unsigned long resident_kib(const struct worker *w)
{
        return mapped_by(w).resident_kib;
}

/* The extent that a descriptor of the daemon's is; false: it is something else. */
static bool is_extent(pid_t pid, const char *fd, struct stat *ret)
{
        char path[300], name[128];
        ssize_t n;

        snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)pid, fd);
        n = readlink(path, name, sizeof(name) - 1);
        name[n > 0 ? n : 0] = '\0';
        return strstr(name, EXTENT_NAME) && stat(path, ret) == 0;
}

/* KiB of memory that the daemon's extents have, which may have several descriptors. */
static unsigned long made_kib(const struct harness *h)
{
        ino_t seen[MAX_EXTENTS];
        const struct dirent *entry;
        unsigned long sum = 0;
        unsigned n = 0, i;
        struct stat st;
        char path[32];
        DIR *dir;

        snprintf(path, sizeof(path), "/proc/%d/fd", (int)h->daemon.pid);
        dir = opendir(path);
        assert_non_null(dir);
        while ((entry = readdir(dir))) {
                if (!is_extent(h->daemon.pid, entry->d_name, &st))
                        continue;
                for (i = 0; i < n && seen[i] != st.st_ino; ++i)
                        ;
                if (i < n)
                        continue;
                assert_true(n < MAX_EXTENTS);
                seen[n++] = st.st_ino;
                sum += (unsigned long)st.st_blocks / 2;
        }
        closedir(dir);
        return sum;
}

/* The daemon has touched all before a client has written anything: it is charged with it. */
HARNESS_TEST(test_by_the_daemon, &daemon_options)
{
        struct worker *w = start_worker(h);
        uint32_t pages[8];

        worker_tell(w, "lease 8");
        assert_int_equal(worker_numbers(w, pages, 8), 8);
        assert_int_equal(made_kib(h), 4096);
        worker_tell(w, "fill %u 77", pages[0]);
        worker_tell(w, "verify %u 77", pages[0]);
        assert_int_equal(made_kib(h), 4096);
}

/* Kernels before 5.14 refuse: pages are populated at first touch, as without the option. */
HARNESS_TEST(test_refused, &options)
{
        struct worker *a = start_worker(h), *b = start_worker(h);
        uint32_t pages[4];

        worker_tell(a, "cache 1 %u", N_PAGES);
        worker_tell(b, "refuse-populate");
        worker_tell(b, "lookup 1:0-3");
        assert_int_equal(worker_numbers(b, pages, 4), 4);
        assert_int_equal(resident_kib(b), 0);
        for (unsigned i = 0; i < 4; ++i)
                worker_tell(b, "verify %u %u", pages[i], 1000 + i);
        worker_tell(b, "lease 1");
        assert_int_equal(worker_numbers(b, pages, 1), 1);
        worker_tell(b, "fill %u 77", pages[0]);
        worker_tell(b, "verify %u 77", pages[0]);
}

/* Workers ask for them where the daemon says so, which asks the machine. */
HARNESS_TEST(test_huge, &huge_options)
{
        struct worker *a = start_worker(h), *b = start_worker(h);
        bool has = proc_has_huge_pages();
        struct mapped m;
        uint32_t pages[4];

        worker_tell(a, "cache 1 %u", N_PAGES);
        worker_tell(b, "lookup 1:0-3");
        assert_int_equal(worker_numbers(b, pages, 4), 4);
        for (unsigned i = 0; i < 4; ++i)
                worker_tell(b, "verify %u %u", pages[i], 1000 + i);
        m = mapped_by(b);
        assert_int_equal(m.n_advised > 0, has);
        if (has)
                assert_true(m.huge_kib > 0 && m.huge_kib == m.resident_kib);
        worker_stop(b);
        worker_stop(a);
}

/* The daemon makes them, whatever the machine's setting for requests. */
HARNESS_TEST(test_made_huge, &made_options)
{
        struct worker *w = start_worker(h);
        uint32_t pages[8];
        struct mapped m;

        worker_tell(w, "lease 8");
        assert_int_equal(worker_numbers(w, pages, 8), 8);
        worker_tell(w, "fill %u 77", pages[0]);
        worker_tell(w, "verify %u 77", pages[0]);
        m = mapped_by(w);
        assert_true(m.resident_kib > 0);
        assert_int_equal(m.huge_kib, proc_can_make_huge_pages() ? m.resident_kib : 0);
}
