/* A disk below host memory, or directly below the device. Cold pages are stored there, and found
 * after a restart of the daemon or the machine. Otherwise they are misses, never other bytes. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/integration/harness.h"

#define CHAINS      8
#define CHAIN_PAGES 256 /* of 4 KiB */
#define PAGES       (CHAINS * CHAIN_PAGES)

static const struct private_tenant one[] = {{"a", NULL}, {NULL, NULL}};
static const struct private_tenant some[] = {
        {"a", NULL}, {"out", "disk_limit = 0\n"}, {NULL, NULL}};
#define DEVICE "memory = 2MiB\nextent = 2MiB\n"
#define HOST   DEVICE "host_memory = 2MiB\n"
static const struct private_options below_host = {
        .tenants = some, .device_lines = HOST, .disk_size = "64MiB"};
static const struct private_options below_device = {
        .tenants = one, .device_lines = DEVICE, .disk_size = "64MiB"};
static const struct private_options kept = {
        .tenants = one, .device_lines = HOST, .disk_size = "64MiB", .is_kept = true};

static void release(struct worker *w, const uint32_t *pages, unsigned n)
{
        char line[8192] = "release";
        size_t at = strlen(line);

        for (unsigned i = 0; i < n; ++i)
                at += (size_t)snprintf(line + at, sizeof(line) - at, " %u", pages[i]);
        worker_tell(w, "%s", line);
}

/* Counts found pages of a chain; every byte is as it was published. */
static uint32_t read_chain(struct worker *w, unsigned chain)
{
        uint32_t pages[CHAIN_PAGES], n = 0;

        if (worker_ask(w, "lookup %u:0-%u", chain, CHAIN_PAGES - 1) == 0)
                n = worker_numbers(w, pages, CHAIN_PAGES);
        for (uint32_t i = 0; i < n; ++i)
                worker_tell(w, "verify %u %u", pages[i], 1000 * chain + i);
        if (n > 0)
                release(w, pages, n);
        return n;
}

static uint32_t read_all(struct worker *w)
{
        uint32_t n = 0;

        for (unsigned chain = 0; chain < CHAINS; ++chain)
                n += read_chain(w, chain);
        print_message("%u of %u pages found\n", n, PAGES);
        return n;
}

static uint64_t on_disk(struct harness *h)
{
        json_t *status = ctl_json(h, "status");
        uint64_t n = (uint64_t)json_integer_value(json_object_get(status, "disk_pages_sealed"));

        json_decref(status);
        return n;
}

/* Publishes a text and finds it once. A text never found isn't written to disk: it is dropped for
 * room as soon as it isn't pinned. */
static void publish_and_read(struct worker *w, unsigned chain)
{
        uint32_t pages[CHAIN_PAGES];

        worker_publish_chain(w, chain, CHAIN_PAGES, pages);
        assert_int_equal(read_chain(w, chain), CHAIN_PAGES);
        release(w, pages, CHAIN_PAGES);
}

static void publish_all(struct worker *w)
{
        for (unsigned chain = 0; chain < CHAINS; ++chain) {
                publish_and_read(w, chain);
                ctl_wait_still(w->harness, STILL_BRIEFLY);
        }
        assert_true(on_disk(w->harness) > CHAIN_PAGES);
}

static void larger(struct harness *h)
{
        struct worker *w = worker_start(h, "a", "ns", 1);

        publish_all(w);
        assert_true(read_all(w) > PAGES * 3 / 4);
        assert_true(read_all(w) > PAGES / 2);
        assert_int_equal(ctl_status(h, "disk_damaged"), 0);
        worker_stop(w);
        ctl(h, "purge a --remove");
        ctl_wait_status(h, "disk_pages_sealed", 0);
}

/* A tenant that may not have pages on disk. */
HARNESS_TEST(test_kept_out, &below_host)
{
        struct worker *w = worker_start(h, "out", "ns", 1);
        uint32_t pages[CHAIN_PAGES];

        for (unsigned chain = 0; chain < CHAINS; ++chain) {
                worker_publish_chain(w, chain, CHAIN_PAGES, pages);
                release(w, pages, CHAIN_PAGES);
                (void)read_chain(w, chain);
        }
        assert_int_equal(on_disk(h), 0);
        worker_stop(w);
        ctl(h, "purge out --remove");
}

/* ---- restarts -------------------------------------------------------------------------------- */

HARNESS_TEST(test_killed, &kept)
{
        struct worker *w = worker_start(h, "a", "ns", 1);

        if (!private_is_contiguous()) {
                worker_stop(w);
                print_message("skipped: this memory doesn't outlive the daemon\n");
                skip();
        }
        publish_all(w);
        for (unsigned i = 0; i < 3; ++i) {
                assert_int_equal(kill((pid_t)ctl_status(h, "pid"), SIGKILL), 0);
                assert_int_equal(private_daemon_await(&h->daemon), 0);
                ctl_wait_status(h, "n_clients", 1);
                assert_true(read_all(w) > PAGES / 4);
                ctl(h, "check");
        }
        worker_stop(w);
        ctl(h, "purge a --remove");
}

/* Only the disk is left. */
HARNESS_TEST(test_rebooted, &below_host)
{
        struct worker *w = worker_start(h, "a", "ns", 1);
        uint32_t n;

        publish_all(w);
        worker_stop(w);
        harness_restart(h);
        w = worker_start(h, "a", "ns", 1);
        ctl_wait_still(h, STILL_LOADED); /* it is read in the background */
        n = read_all(w);
        assert_true(n >= CHAIN_PAGES); /* the chains that were used longest ago */
        worker_stop(w);
        ctl(h, "purge a --remove");
        harness_restart(h);
        w = worker_start(h, "a", "ns", 1);
        ctl_wait_still(h, STILL_LOADED);
        assert_int_equal(read_all(w), 0);
}

static void end_abruptly(struct harness *h)
{
        assert_int_equal(kill(h->daemon.pid, SIGKILL), 0);
        (void)private_daemon_stop(&h->daemon, &(int){0});
}

/* A page invalidated before a power cut isn't found after it. */
HARNESS_TEST(test_invalidated, &below_device)
{
        struct worker *w = worker_start(h, "a", "ns", 1);

        publish_all(w);
        worker_tell(w, "invalidate 0:0");
        worker_tell(w, "invalidate 1:0");
        end_abruptly(h);
        worker_kill(w);
        harness_start(h);
        w = worker_start(h, "a", "ns", 1);
        ctl_wait_still(h, STILL_LOADED);
        assert_int_equal(read_chain(w, 0), 0);
        assert_int_equal(read_chain(w, 1), 0);
        (void)read_all(w);
        worker_tell(w, "invalidate all");
        end_abruptly(h);
        worker_kill(w);
        harness_start(h);
        w = worker_start(h, "a", "ns", 1);
        ctl_wait_still(h, STILL_LOADED);
        assert_int_equal(read_all(w), 0);
        worker_stop(w);
        ctl(h, "purge a --remove");
}

/* ---- damage ---------------------------------------------------------------------------------- */

/* Flips a byte of every 4 KiB from `from` on. */
static void flip(const char *path, off_t from)
{
        int fd = open(path, O_RDWR | O_CLOEXEC);
        struct stat st;
        uint8_t c;

        assert_true(fd >= 0 && fstat(fd, &st) == 0);
        for (off_t at = from + 1000; at < st.st_size; at += 4096) {
                assert_int_equal(pread(fd, &c, 1, at), 1);
                c ^= 0x10;
                assert_int_equal(pwrite(fd, &c, 1, at), 1);
        }
        assert_int_equal(fsync(fd), 0);
        close(fd);
}

/* The daemon runs meanwhile. */
HARNESS_TEST(test_flipped, &below_host)
{
        struct worker *w = worker_start(h, "a", "ns", 1);

        publish_all(w);
        flip(h->daemon.disk, 1 << 20);
        (void)read_all(w); /* asserts that found pages are right */
        assert_true(ctl_status(h, "disk_damaged") > 0);
        worker_stop(w);
        ctl(h, "purge a --remove");
}

static void assert_works(struct harness *h)
{
        struct worker *w = worker_start(h, "a", "other", 1);

        ctl_wait_still(h, STILL_BRIEFLY); /* a set that is copied from isn't given up, and a lease
                                          doesn't wait */
        for (unsigned chain = 0; chain < 2; ++chain)
                publish_and_read(w, chain);
        worker_stop(w);
        ctl(h, "purge a --remove");
}

/* ---- without it ------------------------------------------------------------------------------ */

static void assert_state(struct harness *h, const char *state)
{
        json_t *status = ctl_json(h, "status");
        const char *is = json_string_value(json_object_get(status, "disk_state"));
        unsigned n = 0;
        json_t *row;
        size_t i;

        assert_string_equal(is, state);
        json_decref(status);
        /* devices has the same. */
        status = ctl_json(h, "devices");
        json_array_foreach(ctl_list(status, "devices"), i,
                row) if (strcmp(json_string_value(json_object_get(row, "tier")), "disk") == 0)
        {
                is = json_string_value(json_object_get(row, "state"));
                assert_string_equal(is, state);
                is = json_string_value(json_object_get(row, "why"));
                assert_true(is && is[0]);
                n++;
        }
        assert_int_equal(n, 1);
        json_decref(status);
}

/* The disk's file can't be used at the start. */
HARNESS_TEST(test_unusable, &below_host)
{
        int status, fd;

        assert_int_equal(private_daemon_stop(&h->daemon, &status), 0);
        (void)unlink(h->daemon.disk);
        fd = open(h->daemon.disk, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_int_equal(write(fd, "somebody's", 10), 10);
        close(fd);
        harness_start(h);
        assert_state(h, "off");
        assert_works(h);
        fd = open(h->daemon.disk, O_RDONLY | O_CLOEXEC);
        assert_int_equal(lseek(fd, 0, SEEK_END), 10); /* is left alone */
        close(fd);
}

HARNESS_TEST(test_below_device, &below_device)
{
        larger(h);
}
