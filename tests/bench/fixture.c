#include "tests/bench/fixture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "tests/integration/pattern.h"

#define LEASE_PAGES  1024
#define SMALL_EXTENT (UINT64_C(8) << 20) /* of a device that is to be full */

static int open_daemon(struct fixture *f, uint64_t n_pages, uint64_t host_pages, bool is_kept)
{
        const struct private_tenant tenants[] = {{"a", NULL},
                {f->has_events ? FIXTURE_EVENTS_TENANT : NULL, "events = 1GiB\n"}, {NULL, NULL}};
        char lines[128];
        struct private_options options = {
                .tenants = tenants, .device_lines = lines, .is_kept = is_kept};
        uint64_t bytes = n_pages * f->page_bytes, extent = bytes < (64 << 20) ? 2 << 20 : 64 << 20;
        int r;

        if (host_pages > 0)
                extent = SMALL_EXTENT;
        snprintf(lines, sizeof(lines), "memory = %llu\nextent = %llu\nhost_memory = %llu\n%s",
                (unsigned long long)round_up_u64(bytes, extent), (unsigned long long)extent,
                (unsigned long long)round_up_u64(host_pages * f->page_bytes, extent),
                f->device_lines ? f->device_lines : "");
        r = bench_find_cores(f->cores);
        if (r == 0)
                r = private_daemon_init(&f->daemon, &options);
        if (r == 0)
                r = private_daemon_start(&f->daemon);
        if (r < 0)
                return bench_fail("private kvleased", r);
        private_daemon_socket(&f->daemon, "a", f->socket);
        return 0;
}

int fixture_open_kept(struct fixture *f, uint64_t n_pages, uint64_t page_bytes)
{
        f->page_bytes = page_bytes;
        return open_daemon(f, n_pages, 0, true);
}

int fixture_open(struct fixture *f, uint64_t n_pages, uint64_t page_bytes)
{
        return fixture_open_tiers(f, n_pages, page_bytes, 0);
}

int fixture_open_tiers(
        struct fixture *f, uint64_t n_pages, uint64_t page_bytes, uint64_t host_pages)
{
        int r;

        f->page_bytes = page_bytes;
        r = open_daemon(f, n_pages, host_pages, false);
        if (r < 0)
                return r;
        r = bench_pin(0, f->cores[CORE_CLIENT]);
        if (r == 0 && f->cores[CORE_OTHER] >= 0)
                r = bench_pin(f->daemon.pid, f->cores[CORE_OTHER]);
        return r < 0 ? bench_fail("pinning to a core", r) : 0;
}

void fixture_close(struct fixture *f)
{
        private_daemon_deinit(&f->daemon);
}

int fixture_connect_to(const char *socket, const char *name, unsigned flags, uint32_t page_tokens,
        uint64_t page_bytes, struct fixture_client *ret)
{
        struct kvl_connect_options o = {
                .size = sizeof(o), .socket_path = socket, .client_name = name, .flags = flags};
        struct kvl_layout layout = {.size = sizeof(layout),
                .model = "bench",
                .version = "1",
                .dtype = KVL_DTYPE_F16,
                .n_layers = 1,
                .n_kv_heads = 1,
                .head_size = 64,
                .page_tokens = page_tokens,
                .n_planes = 1,
                .plane_page_bytes = page_bytes,
                .tp_size = 1};
        int r;

        *ret = (struct fixture_client){0};
        r = kvl_connect(&o, &ret->conn);
        if (r == 0)
                r = kvl_ns_open(ret->conn, "bench", &layout, NULL, 0, &ret->ns);
        if (r)
                return bench_fail(kvl_last_error(), r);
        if (!(flags & KVL_CONNECT_NO_SHM) && !kvl_uses_shm(ret->ns))
                return bench_fail("memory isn't shared with kvleased: no figures", -EOPNOTSUPP);
        return 0;
}

int fixture_connect(const struct fixture *f, unsigned flags, struct fixture_client *ret)
{
        return fixture_connect_to(
                f->socket, "kvlease-bench", flags, FIXTURE_PAGE_TOKENS, f->page_bytes, ret);
}

void fixture_disconnect(struct fixture_client *c)
{
        kvl_disconnect(c->conn);
        *c = (struct fixture_client){0};
}

static void shuffle(uint32_t *pages, uint32_t n, uint64_t seed)
{
        for (uint32_t i = n; i > 1; --i) {
                uint32_t k = (uint32_t)(pattern_next(&seed) % i), page = pages[k];

                pages[k] = pages[i - 1];
                pages[i - 1] = page;
        }
}

static int publish_text(struct kvl_ns *ns, const uint8_t *keys, const uint32_t *pages)
{
        struct kvl_publish p = {.size = sizeof(p),
                .pages = pages,
                .keys = keys,
                .n_pages = FIXTURE_TEXT,
                .last_tokens = FIXTURE_PAGE_TOKENS};
        int r = kvl_publish(ns, &p, NULL, NULL);

        return r ? r : kvl_release(ns, pages, FIXTURE_TEXT);
}

int fixture_publish(
        struct kvl_ns *ns, uint64_t seed, uint32_t n_pages, const uint8_t *keys, uint32_t *pages)
{
        int r = 0;

        for (uint32_t i = 0; r == 0 && i < n_pages; i += LEASE_PAGES)
                r = kvl_lease(ns, 0, LEASE_PAGES, pages + i);
        if (r)
                return bench_fail(kvl_last_error(), r);
        shuffle(pages, n_pages, seed);
        for (uint32_t i = 0; r == 0 && i < n_pages; i += FIXTURE_TEXT)
                r = publish_text(ns, keys + (size_t)i * KVL_KEY_BYTES, pages + i);
        return r ? bench_fail(kvl_last_error(), r) : 0;
}

int fixture_fill(struct kvl_ns *ns, uint64_t seed, uint32_t n_pages, uint8_t *keys, uint32_t *pages)
{
        for (uint32_t i = 0; i < n_pages; ++i)
                pattern_key(seed, i, keys + (size_t)i * KVL_KEY_BYTES);
        return fixture_publish(ns, seed, n_pages, keys, pages);
}

int fixture_count_lost(struct kvl_ns *ns, const uint8_t *keys, uint32_t n_pages, uint64_t *ret_lost)
{
        static uint32_t pages[FIXTURE_TEXT];
        uint64_t n_lost = 0;
        int r = 0;

        for (uint32_t i = 0; r == 0 && i < n_pages; i += FIXTURE_TEXT) {
                uint64_t n_tokens;
                uint32_t n = 0;

                r = kvl_lookup(ns, 0, keys + (size_t)i * KVL_KEY_BYTES, FIXTURE_TEXT, pages, &n,
                        &n_tokens);
                if (r == KVL_MISS)
                        r = 0;
                n_lost += FIXTURE_TEXT - n;
                if (r == 0 && n > 0)
                        r = kvl_release(ns, pages, n);
        }
        *ret_lost = n_lost;
        return r ? bench_fail(kvl_last_error(), r) : 0;
}

int fixture_drop(struct kvl_ns *ns, const uint8_t *keys, uint32_t n, uint32_t step)
{
        int r = 0;

        for (uint32_t i = 0; r == 0 && i < n; ++i)
                r = kvl_invalidate(ns, keys + (size_t)i * step * KVL_KEY_BYTES, NULL);
        return r ? bench_fail(kvl_last_error(), r) : 0;
}

const char *fixture_count_name(uint32_t n, char buf[16])
{
        if (n >= 1000000)
                snprintf(buf, 16, "%uM", n / 1000000);
        else if (n >= 1000)
                snprintf(buf, 16, "%uk", n / 1000);
        else
                snprintf(buf, 16, "%u", n);
        return buf;
}
