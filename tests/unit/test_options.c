/* The option table: every row is sound, parses its default, refuses what it must and says so. */
#include "tests/unit/test-support.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/server/config/config.h"
#include "daemon/server/config/options.h"
#include "daemon/server/config/tenant-check.h"
#include "policy/evict.h"

static char err[1024];

static const struct option *get(enum option_section s, const char *key)
{
        const struct option *o = option_find(s, key);

        assert_non_null(o);
        return o;
}

TEST(test_evict_names_are_policies)
{
        size_t n = 0;

        for (; config_evict_names[n]; n++) {
                assert_string_equal(config_evict_names[n], evict_policies[n]->name);
                assert_string_equal(config_tenant_evict_names[n + 1], config_evict_names[n]);
        }
        assert_null(evict_policies[n]);
        assert_null(config_tenant_evict_names[n + 1]);
        assert_string_equal(config_tenant_evict_names[0], "default");
        assert_null(evict_find("default"));
        assert_string_equal(
                option_find(SECTION_DAEMON, "evict")->default_text, config_evict_names[0]);
}

static unsigned index_of(const char *const *names, const char *name)
{
        unsigned i = 0;

        while (names[i] && strcmp(names[i], name) != 0)
                i++;
        assert_non_null(names[i]);
        return i;
}

/* The index of a name is the number the core knows it by. */
TEST(test_names_are_the_cores)
{
        assert_int_equal(index_of(config_class_names, "dynamic"), TENANT_DYNAMIC);
        assert_int_equal(index_of(config_class_names, "pinned"), TENANT_PINNED);
        assert_int_equal(index_of(config_when_full_names, "reject"), WHEN_FULL_REJECT);
        assert_int_equal(index_of(config_when_full_names, "queue"), WHEN_FULL_QUEUE);
        assert_int_equal(index_of(config_when_full_names, "degrade"), WHEN_FULL_DEGRADE);
        assert_int_equal(index_of(config_burst_names, "pool"), BURST_POOL);
        assert_int_equal(index_of(config_burst_names, "none"), BURST_NONE);
        assert_int_equal(index_of(config_sizer_names, "off"), SIZING_OFF);
        assert_int_equal(index_of(config_sizer_names, "dry-run"), SIZING_DRY_RUN);
        assert_int_equal(index_of(config_sizer_names, "on"), SIZING_ON);
}

TEST(test_placement_text)
{
        enum place_policy policy;
        const char *device;

        assert_int_equal(placement_parse("pack", &policy, &device), 0);
        assert_int_equal(policy, PLACE_PACK);
        assert_string_equal(device, "");
        assert_int_equal(placement_parse("spread", &policy, &device), 0);
        assert_int_equal(policy, PLACE_SPREAD);
        assert_int_equal(placement_parse("device=host-1", &policy, &device), 0);
        assert_int_equal(policy, PLACE_DEVICE);
        assert_string_equal(device, "host-1");
        assert_int_equal(placement_parse("", &policy, &device), -EINVAL);
        assert_int_equal(placement_parse("packed", &policy, &device), -EINVAL);
        assert_int_equal(placement_parse("device", &policy, &device), -EINVAL);
        assert_int_equal(placement_parse("device=", &policy, &device), -EINVAL);
        assert_int_equal(placement_parse("device=a b", &policy, &device), -EINVAL);
}

TEST(test_defaults_round_trip)
{
        struct daemon_config d = {0};
        struct device_config v = {0};
        struct remote_config m = {0};
        struct tenant_config t = {0};
        void *bases[N_SECTIONS] = {&d, &v, &m, &t};

        for (unsigned s = 0; s < N_SECTIONS; s++)
                options_set_defaults(s, bases[s]);
        for (size_t i = 0; i < n_options; i++) {
                char value[OPTION_VALUE_MAX], again[OPTION_VALUE_MAX];
                void *base = bases[options[i].section];

                option_format(&options[i], base, value);
                assert_int_equal(option_set(&options[i], base, value, err, sizeof(err)), 0);
                assert_string_equal(option_format(&options[i], base, again), value);
        }
        assert_string_equal(d.runtime_dir, "/run/kvlease");
        assert_true(d.default_socket);
        assert_true(d.stop_timeout_nsec == 2 * NSEC_PER_SEC);
        assert_true(v.memory_bytes == DEVICE_MEMORY_AUTO);
        assert_true(v.extent_bytes == UINT64_C(64) << 20);
        assert_true(t.limit_bytes == TENANT_LIMIT_NONE);
        assert_true(t.host_limit_bytes == TENANT_LIMIT_NONE);
        assert_true(t.disk_limit_bytes == TENANT_LIMIT_NONE);
        assert_true(v.host_memory_bytes == 0 && v.disk_bytes == 0);
        assert_string_equal(v.disk, "");
        assert_int_equal(t.weight, 100);
        assert_int_equal(t.class, TENANT_DYNAMIC);
        assert_int_equal(t.when_full, WHEN_FULL_REJECT);
        assert_true(t.reservation.bytes == 0 && t.reservation.max_bytes == TENANT_RESERVE_AUTO);
        assert_string_equal(t.placement, "pack");
        assert_true(v.memory_ratio == DEVICE_RATIO_AUTO && d.compact);
        assert_string_equal(t.remote.name, "");
        assert_true(m.connections == 2 && !m.tls && m.probe_timeout_nsec == 5 * NSEC_PER_MSEC);
}

/* Tries a value that must be refused: nothing changes, the message has all of `parts`. */
static void refused(enum option_section s, const char *key, const char *value, const char *part)
{
        static struct tenant_config t, t_before;
        static struct daemon_config d, d_before;
        static struct device_config v, v_before;
        static struct remote_config m, m_before;
        void *const bases[N_SECTIONS] = {&d, &v, &m, &t};

        options_set_defaults(SECTION_DAEMON, &d);
        options_set_defaults(SECTION_DEVICE, &v);
        options_set_defaults(SECTION_REMOTE, &m);
        options_set_defaults(SECTION_TENANT, &t);
        d_before = d;
        v_before = v;
        m_before = m;
        t_before = t;
        err[0] = '\0';
        assert_int_equal(option_set(get(s, key), bases[s], value, err, sizeof(err)), -EINVAL);
        assert_memory_equal(&d, &d_before, sizeof(d));
        assert_memory_equal(&v, &v_before, sizeof(v));
        assert_memory_equal(&m, &m_before, sizeof(m));
        assert_memory_equal(&t, &t_before, sizeof(t));
        if (!strstr(err, part))
                fail_msg("'%s' lacks '%s'", err, part);
        assert_ptr_equal(strstr(err, key), err);
}

TEST(test_refusals)
{
        char long_path[CONFIG_PATH_MAX + 3];

        refused(SECTION_DAEMON, "hello_timeout", "50ms", "allowed are 100ms to 1h");
        refused(SECTION_TENANT, "limit", "2PiB", "is out of range, allowed are 1 MiB to 1 PiB");
        refused(SECTION_DAEMON, "max_clients", "0", "'0' is out of range, allowed are 1 to 65535");
        refused(SECTION_DAEMON, "max_clients", "65536", "out of range");
        refused(SECTION_DAEMON, "max_clients", "7x", "not a whole number");
        refused(SECTION_DAEMON, "max_clients", "-1", "not a whole number");
        refused(SECTION_DAEMON, "evict", "fifo", "allowed are pgi, lru");
        refused(SECTION_TENANT, "evict", "fifo", "allowed are default, pgi, lru");
        refused(SECTION_TENANT, "prefetch_steps", "257",
                "'257' is out of range, allowed are 0 to 256");
        refused(SECTION_TENANT, "attention_crossover", "0",
                "'0' is out of range, allowed are 1 to 16777216");
        refused(SECTION_TENANT, "miss_cost", "joules", "allowed are tokens, compute");
        refused(SECTION_TENANT, "free_ahead", "51", "'51' is out of range, allowed are 0 to 50");
        refused(SECTION_TENANT, "expire", "-1s", "not a time");
        refused(SECTION_DAEMON, "default_socket", "maybe", "neither yes nor no");
        refused(SECTION_DAEMON, "runtime_dir", "run", "not an absolute path");
        refused(SECTION_DAEMON, "runtime_dir", "", "not an absolute path");
        refused(SECTION_DEVICE, "disk", "disk", "not an absolute path");
        refused(SECTION_REMOTE, "connections", "5", "'5' is out of range, allowed are 1 to 4");
        refused(SECTION_REMOTE, "probe_timeout", "0", "allowed are 1ms to 1s");
        refused(SECTION_REMOTE, "expiry", "0", "allowed are 1s to 365d");
        refused(SECTION_REMOTE, "bandwidth", "1KiB", "allowed are 1 MiB to 1 TiB");
        refused(SECTION_REMOTE, "secret_file", "secret", "not an absolute path");
        refused(SECTION_TENANT, "remote_prefill", "10000001", "allowed are 0 to 10000000");
        refused(SECTION_TENANT, "remote_write", "17GiB", "allowed are 0 B to 16 GiB");
        refused(SECTION_TENANT, "remote_secret", "secret", "not an absolute path");
        refused(SECTION_DAEMON, "stop_timeout", "2 weeks", "not a time");
        refused(SECTION_DAEMON, "stop_timeout", "2h", "out of range");
        refused(SECTION_TENANT, "limit", "4Q", "not a size");
        refused(SECTION_TENANT, "limit", "0", "out of range");
        refused(SECTION_TENANT, "limit", "auto", "or 'none'");
        refused(SECTION_TENANT, "group", "a\tb", "not UTF-8 without control");
        refused(SECTION_TENANT, "group", "\xc3\xa9", "not printable ASCII");
        refused(SECTION_DAEMON, "runtime_dir", "/run/\xe9", "not UTF-8 without control");
        refused(SECTION_TENANT, "class", "gold", "allowed are dynamic, pinned");
        refused(SECTION_TENANT, "when_full", "panic", "allowed are reject, queue, degrade");
        refused(SECTION_TENANT, "burst", "queue", "allowed are pool, none");
        refused(SECTION_TENANT, "sizer", "yes", "allowed are off, dry-run, on");
        refused(SECTION_TENANT, "max_wait", "2h", "out of range");
        refused(SECTION_TENANT, "publish_gids", "no-such-group-here", "is no group");
        refused(SECTION_TENANT, "uids", "0,no-such-user-here", "'no-such-user-here' is no user");
        refused(SECTION_TENANT, "gids", "4294967295", "no group");
        memset(long_path, '/', sizeof(long_path));
        long_path[sizeof(long_path) - 1] = '\0';
        refused(SECTION_DAEMON, "state_dir", long_path, "too long");
}

/* Each has a bit of its own in its section's masks, however many rows all sections have. */
TEST(test_bits)
{
        uint64_t seen[N_SECTIONS] = {0};

        for (size_t i = 0; i < n_options; i++) {
                uint64_t *s = &seen[options[i].section], bit = option_bit(&options[i]);

                assert_true(i == 0 || options[i].section >= options[i - 1].section);
                assert_true(bit != 0 && (*s & bit) == 0);
                *s |= bit;
        }
        assert_true(n_options > 64);
}

TEST(test_help_names_every_option)
{
        char *text = NULL, *json = NULL;
        size_t len;
        FILE *f = open_memstream(&text, &len);

        options_print(f);
        fclose(f);
        f = open_memstream(&json, &len);
        options_print_json(f);
        fclose(f);
        for (size_t i = 0; i < n_options; i++) {
                assert_non_null(strstr(text, options[i].key));
                assert_non_null(strstr(json, options[i].key));
        }
        free(text);
        free(json);
}
