/* kvlease-exporter's series of the lower tiers, beside a real daemon. They show how many pages each
 * tier has, moves, damaged pages, and a disk that was given up. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/integration/exporter.h"

#define CHAINS      8
#define CHAIN_PAGES 256 /* of 4 KiB; two of the chains fit into device and host memory */

static const struct private_tenant one[] = {{"a", NULL}, {NULL, NULL}};
static const struct private_options three_tiers = {.tenants = one,
        .device_lines = "memory = 2MiB\nextent = 2MiB\nhost_memory = 2MiB\n",
        .disk_size = "64MiB"};
static const struct private_options no_tiers = {
        .tenants = one, .device_lines = "memory = 2MiB\nextent = 2MiB\n"};

static uint32_t read_chain(struct worker *w, unsigned chain)
{
        uint32_t pages[CHAIN_PAGES], n = 0;

        if (worker_ask(w, "lookup %u:0-%u", chain, CHAIN_PAGES - 1) == 0)
                n = worker_numbers(w, pages, CHAIN_PAGES);
        for (uint32_t i = 0; i < n; i++) {
                worker_tell(w, "verify %u %u", pages[i], 1000 * chain + i);
                worker_tell(w, "release %u", pages[i]);
        }
        return n;
}

/* Each chain is found once more; otherwise it wouldn't be written to disk. */
static struct worker *fill_all_tiers(struct harness *h)
{
        struct worker *w = worker_start(h, "a", "ns", 1);
        uint32_t pages[CHAIN_PAGES];

        for (unsigned chain = 0; chain < CHAINS; chain++) {
                worker_publish_chain(w, chain, CHAIN_PAGES, pages);
                (void)read_chain(w, chain);
                for (unsigned i = 0; i < CHAIN_PAGES; i++)
                        worker_tell(w, "release %u", pages[i]);
                ctl_wait_still(h, STILL_BRIEFLY);
        }
        for (unsigned chain = 0; chain < CHAINS; chain++)
                (void)read_chain(w, chain);
        ctl_wait_still(h, STILL_BRIEFLY);
        return w;
}

/* `kvlease_NAME{tenant="a",namespace="ns",device=...,MORE}` */
static double of_namespace(const char *m, const char *name, const char *more)
{
        char series[256];

        snprintf(series, sizeof(series),
                "kvlease_namespace_%s{tenant=\"a\",namespace=\"ns\",device=\"%s\"%s%s}", name,
                private_device(), more[0] ? "," : "", more);
        return metric_of(m, series);
}

/* `kvlease_NAME{device=...,tier="disk",MORE}` */
static double of_disk(const char *m, const char *name, const char *more)
{
        char series[256];

        snprintf(series, sizeof(series), "kvlease_%s{device=\"%s\",tier=\"disk\"%s%s}", name,
                private_device(), more[0] ? "," : "", more);
        return metric_of(m, series);
}

static void assert_as_ctl(struct harness *h, double value, const char *name)
{
        uint64_t expected = ctl_status(h, name);

        if (value != (double)expected)
                fail_msg("it is %g, kvleasectl says %s is %lu", value, name,
                        (unsigned long)expected);
}

/* Sealed pages in total, of the tenant, and of its only namespace. */
static void assert_sealed(
        struct harness *h, const char *m, const char *tier, const char *name_in_ctl)
{
        char series[128], more[64];

        snprintf(series, sizeof(series), "kvlease_pages{state=\"sealed\",tier=\"%s\"}", tier);
        assert_as_ctl(h, metric_of(m, series), name_in_ctl);
        assert_true(metric_of(m, series) > 0);
        snprintf(series, sizeof(series),
                "kvlease_tenant_pages{tenant=\"a\",state=\"sealed\",tier=\"%s\"}", tier);
        assert_as_ctl(h, metric_of(m, series), name_in_ctl);
        snprintf(more, sizeof(more), "state=\"sealed\",tier=\"%s\"", tier);
        assert_as_ctl(h, of_namespace(m, "pages", more), name_in_ctl);
}

HARNESS_TEST(test_figures_by_tier, &three_tiers)
{
        struct worker *w = fill_all_tiers(h);
        struct exporter e;
        char *m;

        exporter_start(&e, h, NULL);
        m = exporter_metrics(&e);
        assert_sealed(h, m, "device", "pages_sealed");
        assert_sealed(h, m, "host", "host_pages_sealed");
        assert_sealed(h, m, "disk", "disk_pages_sealed");
        assert_as_ctl(h, of_namespace(m, "charged_bytes", "tier=\"host\""), "host_charged_bytes");
        assert_as_ctl(h, of_disk(m, "device_charged_bytes", ""), "disk_charged_bytes");
        assert_as_ctl(h, of_namespace(m, "promoted_pages_total", ""), "pages_promoted");
        assert_as_ctl(h, of_namespace(m, "demoted_pages_total", "tier=\"host\""), "host_arrived");
        assert_as_ctl(h, of_namespace(m, "demoted_pages_total", "tier=\"disk\""), "disk_arrived");
        assert_true(of_namespace(m, "promoted_pages_total", "") > 0);
        assert_true(of_disk(m, "disk_written_bytes_total", "") >= CHAIN_PAGES * 4096);
        assert_true(of_disk(m, "disk_read_bytes_total", "") > 0);
        assert_true(of_disk(m, "disk_errors_total", "") == 0);
        assert_true(of_disk(m, "disk_late_operations_total", "") >= 0);
        assert_true(of_namespace(m, "damaged_pages_total", "tier=\"host\"") == 0);
        assert_true(of_namespace(m, "damaged_pages_total", "tier=\"disk\"") == 0);
        assert_true(of_disk(m, "device_state", "state=\"ok\"") == 1);
        assert_false(metric_exists(m, "kvlease_device_charged_bytes{device=\"host of "));
        assert_false(metric_exists(m, "kvlease_pool_bytes{device=\"disk of "));
        free(m);
        worker_stop(w);
        ctl(h, "purge a --remove");
        exporter_stop(&e);
}

/* Flips a byte of every 4 KiB except in the first MiB, where the disk's tables are. */
static void damage_pages(const char *path)
{
        int fd = open(path, O_RDWR | O_CLOEXEC);
        struct stat st;
        uint8_t c;

        assert_true(fd >= 0 && fstat(fd, &st) == 0);
        for (off_t at = (1 << 20) + 1000; at < st.st_size; at += 4096) {
                assert_int_equal(pread(fd, &c, 1, at), 1);
                c ^= 0x10;
                assert_int_equal(pwrite(fd, &c, 1, at), 1);
        }
        assert_int_equal(fsync(fd), 0);
        close(fd);
}

/* Pages are damaged; then the file is truncated while the daemon runs. */
HARNESS_TEST(test_trouble, &three_tiers)
{
        struct worker *w = fill_all_tiers(h);
        struct exporter e;
        char *m;

        exporter_start(&e, h, NULL);
        damage_pages(h->daemon.disk);
        for (unsigned chain = 0; chain < CHAINS; chain++)
                (void)read_chain(w, chain);
        m = exporter_metrics(&e);
        assert_true(of_namespace(m, "damaged_pages_total", "tier=\"disk\"") > 0);
        assert_as_ctl(h, of_namespace(m, "damaged_pages_total", "tier=\"disk\""), "disk_damaged");
        free(m);
        assert_int_equal(truncate(h->daemon.disk, 0), 0);
        for (unsigned chain = 0; chain < CHAINS; chain++)
                (void)read_chain(w, chain);
        worker_tell(w, "invalidate 0:0"); /* waits for the disk */
        m = exporter_metrics(&e);
        assert_true(of_disk(m, "device_state", "state=\"off\"") == 1);
        assert_true(of_disk(m, "device_state", "state=\"ok\"") == 0);
        assert_true(of_disk(m, "disk_errors_total", "") > 0);
        free(m);
        worker_stop(w);
        ctl(h, "purge a --remove");
        exporter_stop(&e);
}

/* Without lower tiers no figure of them is exported. */
HARNESS_TEST(test_without_tiers, &no_tiers)
{
        struct worker *w = worker_start(h, "a", "ns", 1);
        _cleanup_free_ char *m = NULL;
        struct exporter e;

        exporter_start(&e, h, NULL);
        m = exporter_metrics(&e);
        assert_true(metric_of(m, "kvlease_pages{state=\"sealed\",tier=\"device\"}") == 0);
        assert_true(of_namespace(m, "charged_bytes", "tier=\"device\"") >= 0);
        assert_false(metric_exists(m, "kvlease_pages{state=\"sealed\",tier=\"host\"}"));
        assert_false(metric_exists(m, "kvlease_namespace_demoted_pages_total{"));
        assert_false(metric_exists(m, "kvlease_disk_errors_total{"));
        worker_stop(w);
        exporter_stop(&e);
}
