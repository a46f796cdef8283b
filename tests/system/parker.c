/*
 * A service that has its service manager keep descriptors, and looks at what it gets back when it
 * is started again: `parker COUNT` for COUNT memfds, each with a name of its own; `parker rules`
 * for what the manager does with particular ones. What it found is its last line of output.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <systemd/sd-daemon.h>

#include "daemon/core/state/keep.h"
#include "tests/integration/pattern.h"

#define PAGE_BYTES   4096
#define BATCH        64 /* between two barriers; not tuned */
#define BARRIER_USEC (UINT64_C(60) * 1000 * 1000)
#define FIRST_NUMBER UINT32_C(14776336) /* 62^4: from here on numbers have five digits */
#define FEW          20                 /* whose names are printed one by one */

static void die(const char *what)
{
        fprintf(stderr, "parker: %s: %s\n", what, strerror(errno));
        exit(1);
}

static double now_msec(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void barrier(void)
{
        int r = sd_notify_barrier(0, BARRIER_USEC);

        if (r <= 0) {
                errno = -r;
                die("sd_notify_barrier");
        }
}

static void park(int fd, const char *name, bool is_watched)
{
        char text[64];
        int r;

        snprintf(
                text, sizeof(text), "FDSTORE=1\nFDNAME=%s%s", name, is_watched ? "" : "\nFDPOLL=0");
        r = sd_pid_notify_with_fds(0, 0, text, &fd, 1);
        if (r <= 0) {
                errno = -r;
                die("sd_pid_notify_with_fds");
        }
}

static int make_page(uint32_t number)
{
        uint64_t page[PAGE_BYTES / 8];
        int fd = memfd_create("parked", MFD_CLOEXEC);

        if (fd < 0)
                die("memfd_create");
        pattern_fill(page, sizeof(page), number, 0);
        if (pwrite(fd, page, sizeof(page), 0) != sizeof(page))
                die("pwrite");
        return fd;
}

/* The descriptors are closed here at once: the manager alone has them. */
static void park_pages(uint32_t count)
{
        double start = now_msec();

        for (uint32_t i = 0; i < count; ++i) {
                char name[KEEP_NAME_BYTES];
                int fd = make_page(FIRST_NUMBER + i);

                park(fd, keep_name(name, KEEP_EXTENT, FIRST_NUMBER + i), false);
                close(fd);
                if (i % BATCH == BATCH - 1)
                        barrier();
        }
        barrier();
        printf("parked %u in %.0f ms\n", count, now_msec() - start);
}

static void park_name(const char *name)
{
        int fd = make_page(0);

        park(fd, name, false);
        close(fd);
}

static void park_hung_up(const char *name, bool is_watched)
{
        int ends[2];

        if (pipe(ends) < 0)
                die("pipe");
        close(ends[1]);
        park(ends[0], name, is_watched);
        close(ends[0]);
}

static void park_rules(void)
{
        int fd = make_page(0);

        park(fd, "first", false);
        park(fd, "second", false); /* the same open file */
        close(fd);
        park_name("colon:");
        park_name("gone");
        park_name("twins");
        park_name("twins");
        sd_notify(0, "FDSTOREREMOVE=1\nFDNAME=gone");
        park_hung_up("polled", true);
        park_hung_up("kept", false);
        barrier();
        printf("parked by the rules\n");
}

static bool is_page(int fd, uint32_t number)
{
        uint64_t page[PAGE_BYTES / 8];

        return pread(fd, page, sizeof(page), 0) == sizeof(page) &&
               pattern_matches(page, sizeof(page), number, 0);
}

/* How many of these are pages with the name and contents they were parked with, each once. */
static uint32_t count_pages(char **names, int n)
{
        bool *seen = calloc((size_t)n, sizeof(*seen));
        uint32_t intact = 0;

        for (int i = 0; seen && i < n; ++i) {
                enum keep_kind kind;
                uint32_t number;

                if (!keep_parse(names[i], &kind, &number) || kind != KEEP_EXTENT ||
                        number < FIRST_NUMBER || number - FIRST_NUMBER >= (uint32_t)n ||
                        seen[number - FIRST_NUMBER] || !is_page(SD_LISTEN_FDS_START + i, number))
                        continue;
                seen[number - FIRST_NUMBER] = true;
                intact++;
        }
        free(seen);
        return intact;
}

static void look(char **names, int n)
{
        double start = now_msec();
        uint32_t intact = count_pages(names, n);

        printf("got back %d, %u intact, in %.0f ms\n", n, intact, now_msec() - start);
        for (int i = 0; i < n && n <= FEW; ++i)
                printf("name %s\n", names[i]);
}

int main(int argc, char **argv)
{
        char **names = NULL;
        int n = sd_listen_fds_with_names(0, &names);

        if (argc != 2 || n < 0) {
                fprintf(stderr, "parker: to be started by a service manager: parker COUNT|rules\n");
                return 2;
        }
        if (n > 0)
                look(names, n);
        else if (strcmp(argv[1], "rules") == 0)
                park_rules();
        else
                park_pages((uint32_t)strtoul(argv[1], NULL, 10));
        fflush(stdout);
        sd_notify(0, "READY=1");
        for (;;)
                pause();
}
