/* [remote NAME], and tenants that name it: what is read, and what is refused with which words. */
#include "tests/unit/test-support.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "daemon/server/config/remote-config.h"

struct reports {
        char text[8192]; /* a line each */
        unsigned n_errors;
};

struct scene {
        const char *dir;
        char *conf, *secret, *open_secret;
};

static void note(void *data, bool is_error, const char *sentence)
{
        struct reports *r = data;

        r->n_errors += is_error;
        snprintf(r->text + strlen(r->text), sizeof(r->text) - strlen(r->text), "%s\n", sentence);
}

static void write_file(const char *path, const char *text, mode_t mode)
{
        int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);

        assert_true(fd >= 0);
        assert_int_equal(write(fd, text, strlen(text)), strlen(text));
        assert_int_equal(fchmod(fd, mode), 0);
        close(fd);
}

static struct scene scene_new(void)
{
        struct scene s = {.dir = test_dir_make()};

        s.conf = test_path(s.dir, "k.conf");
        s.secret = test_path(s.dir, "secret");
        s.open_secret = test_path(s.dir, "open");
        write_file(s.secret, "0123456789abcdef\n", 0600);
        write_file(s.open_secret, "0123456789abcdef\n", 0644);
        return s;
}

static void scene_free(struct scene *s)
{
        free(s->conf);
        free(s->secret);
        free(s->open_secret);
        test_dir_remove(s->dir);
}

/* "@" in the text is the path of the secret, "%" that of one that anybody can read. */
static int load(const struct scene *s, const char *text, struct config *ret, struct reports *r)
{
        const struct config_source source = {.file = s->conf};
        char *whole = NULL;
        size_t len;
        FILE *f = open_memstream(&whole, &len);
        int result;

        for (; *text; text++)
                if (*text == '@')
                        fputs(s->secret, f);
                else if (*text == '%')
                        fputs(s->open_secret, f);
                else
                        fputc(*text, f);
        fclose(f);
        write_file(s->conf, whole, 0600);
        free(whole);
        *r = (struct reports){0};
        result = config_load(&source, ret, note, r);
        return result;
}

TEST(test_all_of_it)
{
        struct scene s = scene_new();
        struct remote_settings settings;
        struct exchange_tenant tenant;
        const struct remote_config *m;
        struct detail d = {""};
        struct reports r;
        struct config c;
        const char *key;

        if (load(&s,
                    "[remote r]\naddresses = a.example:1, 10.0.0.1:2  [::1]:3\nuser = kv\n"
                    "secret_file = @\ntls = on\ntls_ca = @\ntls_host = redis\ntls_cert = @\n"
                    "tls_key = @\nconnections = 4\nconnect_timeout = 1s\n"
                    "silence_timeout = 2s\nprobe_timeout = 3ms\nbandwidth = 2GiB\n"
                    "expiry = 1h\n[tenant t]\nremote = r\nremote_write = 1MiB\n"
                    "remote_secret = @\nremote_prefill = 5000\n[tenant u]\n",
                    &c, &r) < 0)
                fail_msg("%s", r.text);
        assert_null(config_find_remote(&c, "x"));
        m = config_find_remote(&c, "r");
        assert_int_equal(remote_settings_read(m, &settings, &key, &d), 0);
        assert_int_equal(settings.options.remote.n_addresses, 3);
        assert_string_equal(settings.options.remote.addresses[0], "a.example:1");
        assert_string_equal(settings.options.remote.addresses[2], "[::1]:3");
        assert_string_equal(settings.options.remote.user, "kv");
        assert_string_equal(settings.options.secret_file, s.secret);
        assert_true(settings.options.remote.is_tls);
        assert_string_equal(settings.options.remote.tls_ca, s.secret);
        assert_string_equal(settings.options.remote.tls_host, "redis");
        assert_int_equal(settings.options.remote.large_threads, 4);
        assert_int_equal(settings.options.remote.connect_msec, 1000);
        assert_int_equal(settings.options.remote.silence_msec, 2000);
        assert_true(m->probe_timeout_nsec == 3 * NSEC_PER_MSEC);
        assert_true(
                m->bandwidth_bytes == UINT64_C(2) << 30 && m->expiry_nsec == 3600 * NSEC_PER_SEC);

        assert_int_equal(tenant_secret_read(tenant_table_find(&c.tenants, "t"), &tenant, &d), 0);
        assert_string_equal(tenant.name, "t");
        assert_int_equal(tenant.secret_len, 16);
        assert_memory_equal(tenant.secret, "0123456789abcdef", 16);
        assert_int_equal(tenant_secret_read(tenant_table_find(&c.tenants, "u"), &tenant, &d), 0);
        assert_int_equal(tenant.secret_len, 0);
        assert_string_equal(tenant_table_find(&c.tenants, "u")->remote.name, "");
        tenant_secret_wipe(&tenant);
        config_deinit(&c);
        scene_free(&s);
}

/* Nothing but the addresses is needed, and what isn't said isn't there. */
TEST(test_least)
{
        struct scene s = scene_new();
        struct remote_settings settings;
        struct detail d = {""};
        struct reports r;
        struct config c;
        const char *key;

        assert_int_equal(load(&s, "[remote r]\naddresses = 127.0.0.1:6379\n", &c, &r), 0);
        assert_int_equal(remote_settings_read(&c.remotes[0], &settings, &key, &d), 0);
        assert_null(settings.options.remote.user);
        assert_null(settings.options.secret_file);
        assert_null(settings.options.remote.tls_ca);
        assert_false(settings.options.remote.is_tls);
        assert_int_equal(settings.options.remote.connect_msec, 250);
        assert_int_equal(settings.options.remote.silence_msec, 500);
        config_deinit(&c);
        scene_free(&s);
}

#define A "addresses = h:1\n"

TEST(test_refusals)
{
        static const struct {
                const char *text;
                unsigned line;
                const char *error;
        } cases[] = {
                {"[remote r]\n", 1, "[remote r] there are no addresses: say where"},
                {"[remote r]\naddresses = , ,\n", 1, "there are no addresses"},
                {"[remote r]\naddresses = h\n", 2, "addresses: h isn't a server's address"},
                {"[remote r]\naddresses = h:0\n", 2, "addresses: h:0 isn't a server's address"},
                {"[remote r]\naddresses = h:1 h:1 h:1 h:1 h:1 h:1 h:1 h:1 h:1 h:1 h:1 h:1 h:1 h:1 h:1 h:1 h:1 h:1\n",
                        2, "addresses: 17 addresses of a cluster's nodes: 1 to 16"},
                {"[remote r]\n" A "user = u\n", 3, "user = u has no password: name its file"},
                {"[remote r]\n" A "tls_ca = @\n", 3, "tls_ca is given, and tls is off"},
                {"[remote r]\n" A "tls_host = h\n", 3, "tls_host is given, and tls is off"},
                {"[remote r]\n" A "tls = on\ntls_cert = @\n", 4, "tls_cert and tls_key belong"},
                {"[remote r]\n" A "tls = on\ntls_key = @\n", 4, "tls_cert and tls_key belong"},
                {"[remote r]\n" A "[remote r]\n", 3, "[remote r] is there twice"},
                {"[remote]\n", 1, "[remote NAME] needs a name"},
                {"[remote r]\n" A "adresses = h:1\n", 3, "did you mean 'addresses'?"},
                {"[tenant t]\nremote = r\n", 2, "remote = r: there is no section [remote r]"},
                {"[tenant t]\nremote = a b\n", 2, "remote: 'a b' isn't the name of a section"},
                {"[tenant t]\nremote_secret = %\n", 2, "remote_secret = "},
                {"[tenant t]\nremote_secret = /none\n", 2, "remote_secret = /none can't be read"},
        };
        struct scene s = scene_new();
        char where[512];
        struct config c;
        struct reports r;

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                assert_int_equal(load(&s, cases[i].text, &c, &r), -EINVAL);
                snprintf(where, sizeof(where), "k.conf:%u: ", cases[i].line);
                if (r.n_errors != 1 || !strstr(r.text, where) || !strstr(r.text, cases[i].error))
                        fail_msg("not '%s' '%s' alone in:\n%s", where, cases[i].error, r.text);
        }
        scene_free(&s);
}

TEST(test_secrets_that_are_none)
{
        struct scene s = scene_new();
        struct config c;
        struct reports r;

        write_file(s.secret, "short\n", 0600);
        assert_int_equal(load(&s, "[tenant t]\nremote_secret = @\n", &c, &r), -EINVAL);
        assert_non_null(strstr(r.text, "has 5 bytes, at least 16 are needed: openssl rand"));
        scene_free(&s);
}

TEST(test_too_many)
{
        struct scene s = scene_new();
        char text[64 * (CONFIG_REMOTES_MAX + 1)] = "";
        struct config c;
        struct reports r;

        for (unsigned i = 0; i < CONFIG_REMOTES_MAX; i++)
                snprintf(text + strlen(text), 64, "[remote r%u]\n" A, i);
        assert_int_equal(load(&s, text, &c, &r), 0);
        assert_int_equal(c.n_remotes, CONFIG_REMOTES_MAX);
        config_deinit(&c);
        strcat(text, "[remote more]\n" A);
        assert_int_equal(load(&s, text, &c, &r), -EINVAL);
        assert_non_null(strstr(r.text, "[remote more]: at most 8 remotes"));
        scene_free(&s);
}

/* A drop-in replaces what the file says, and the command line both. */
TEST(test_layers)
{
        struct scene s = scene_new();
        const char *const overrides[] = {"remote.r.connections=3"};
        const struct config_source source = {
                .file = s.conf, .overrides = overrides, .n_overrides = 1};
        char *dir = test_path(s.dir, "k.conf.d"), *drop_in = test_path(dir, "50-r.conf");
        char where[CONFIG_ORIGIN_MAX];
        struct reports r = {0};
        struct config c;

        write_file(
                s.conf, "[remote r]\naddresses = h:1\nconnections = 1\nbandwidth = 1MiB\n", 0600);
        assert_int_equal(mkdir(dir, 0700), 0);
        write_file(drop_in, "[remote r]\naddresses = g:2\nconnections = 2\n", 0600);
        assert_int_equal(config_load(&source, &c, note, &r), 0);
        assert_int_equal(c.n_remotes, 1);
        assert_string_equal(c.remotes[0].addresses, "g:2");
        assert_int_equal(c.remotes[0].connections, 3);
        assert_int_equal(c.remotes[0].bandwidth_bytes, 1 << 20);
        config_origin(&c, c.remotes[0].from.of[0], where);
        assert_non_null(strstr(where, "50-r.conf:2"));
        config_deinit(&c);
        free(drop_in);
        free(dir);
        scene_free(&s);
}
