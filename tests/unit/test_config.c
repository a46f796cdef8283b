/* The configuration file: every error is found and named by file, line and option. */
#include "tests/unit/test-support.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/server/config/config.h"
#include "tests/unit/alloc-fail.h"

struct reports {
        char text[8192]; /* a line each */
        unsigned n_errors, n_notices;
};

static void note(void *data, bool is_error, const char *sentence)
{
        struct reports *r = data;

        r->n_errors += is_error;
        r->n_notices += !is_error;
        snprintf(r->text + strlen(r->text), sizeof(r->text) - strlen(r->text), "%s\n", sentence);
}

static int parse(const char *text, struct config *ret_config, struct reports *r)
{
        *r = (struct reports){0};
        return config_parse("k.conf", text, strlen(text), ret_config, note, r);
}

TEST(test_all_errors_are_reported)
{
        static const char *const expected[] = {
                "k.conf:1: 'x' stands before the first [section]",
                "k.conf:3: [daemon] max_clients: '0' is out of range, allowed are 1 to 65535",
                "k.conf:4: [daemon] no option 'log_levl', did you mean 'log_level'?",
                "k.conf:6: [tenant a] weight: 'x' is not a whole number",
                "k.conf:7: [tenant a] no option 'bogus'",
                "k.conf:9: [tenant a] priority is given twice",
                "k.conf:10: [tenant a] is there twice",
                "k.conf:12: [foo]: no such section, allowed are [daemon], [device NAME], [remote NAME] and [tenant NAME]",
                "k.conf:14: [tenant NAME] needs a name",
                "k.conf:15: [daemon] is there twice",
                "k.conf:16: [device NAME] needs the name",
        };
        struct config c;
        struct reports r;

        assert_int_equal(parse("x = 1\n[daemon]\nmax_clients = 0\nlog_levl = info\n[tenant a]\n"
                               "weight = x\nbogus = 1\npriority = 1\npriority = 2\n[tenant a]\n"
                               "weight = 5\n[foo]\nunread = 1\n[tenant]\n[daemon]\n[device]\n",
                                 &c, &r),
                -EINVAL);
        assert_int_equal(r.n_errors, ARRAY_SIZE(expected));
        for (size_t i = 0; i < ARRAY_SIZE(expected); i++)
                if (!strstr(r.text, expected[i]))
                        fail_msg("'%s' is missing in:\n%s", expected[i], r.text);
}

TEST(test_syntax_ends_the_reading)
{
        struct config c;
        struct reports r;

        assert_int_equal(parse("[daemon]\nnonsense\n", &c, &r), -EINVAL);
        assert_int_equal(r.n_errors, 1);
        assert_non_null(strstr(r.text, "k.conf:2: expected 'key = value'"));
}

TEST(test_missing_files)
{
        const char *dir = test_dir_make();
        char *path = test_path(dir, "none.conf");
        struct config_source source = {.file = path};
        struct reports r = {0};
        struct config c;

        assert_int_equal(config_load(&source, &c, note, &r), -ENOENT);
        assert_int_equal(r.n_errors, 1);
        assert_non_null(strstr(r.text, path));
        free(path);
        test_dir_remove(dir);
}

/* Loads a file of this text with these overrides. */
static int load(const char *text, const char *const *overrides, size_t n, struct config *ret_config,
        struct reports *r)
{
        const char *dir = test_dir_make();
        char *path = test_path(dir, "k.conf");
        struct config_source source = {.file = path, .overrides = overrides, .n_overrides = n};
        int result;

        *r = (struct reports){0};
        assert_int_equal(file_replace(path, text, strlen(text), 0600), 0);
        result = config_load(&source, ret_config, note, r);
        free(path);
        test_dir_remove(dir);
        return result;
}

TEST(test_overrides)
{
        static const char *const good[] = {
                "daemon.max_clients=9",
                "tenant.a.weight=2",
                "tenant.new.one.limit=2GiB",
                "device.host.memory=1GiB",
        };
        static const char *const bad[] = {"max_clients=9", "daemon.max_clients", "tenant.a.wait=1",
                "tenant..weight=1", "daemon.x.max_clients=2"};
        struct config c;
        struct reports r;

        assert_int_equal(load("[daemon]\nmax_clients=7\n[tenant a]\nweight=1\n", good,
                                 ARRAY_SIZE(good), &c, &r),
                0);
        assert_int_equal(c.daemon.max_clients, 9);
        assert_int_equal(tenant_table_find(&c.tenants, "a")->weight, 2);
        assert_true(tenant_table_find(&c.tenants, "new.one")->limit_bytes == UINT64_C(2) << 30);
        assert_true(config_find_device(&c, "host")->memory_bytes == UINT64_C(1) << 30);
        config_deinit(&c);
        assert_int_equal(load("", bad, ARRAY_SIZE(bad), &c, &r), -EINVAL);
        assert_int_equal(r.n_errors, ARRAY_SIZE(bad));
}

/* A directory with k.conf and its drop-ins. */
struct files {
        char *main, *dir;
};

static struct files make_files(const char *dir, const char *text)
{
        struct files f = {test_path(dir, "k.conf"), test_path(dir, "k.conf.d")};

        assert_int_equal(file_replace(f.main, text, strlen(text), 0600), 0);
        assert_int_equal(mkdir(f.dir, 0700), 0);
        return f;
}

static void add_file(const struct files *f, const char *name, const char *text)
{
        char *path = test_path(f->dir, name);

        assert_int_equal(file_replace(path, text, strlen(text), 0600), 0);
        free(path);
}

static int load_files(
        const struct files *f, const char *option, struct config *ret_config, struct reports *r)
{
        struct config_source source = {
                .file = f->main, .overrides = &option, .n_overrides = option ? 1 : 0};

        *r = (struct reports){0};
        return config_load(&source, ret_config, note, r);
}

static void free_files(struct files *f)
{
        free(f->main);
        free(f->dir);
}

static void assert_origin(const struct config *c, const struct origins *from,
        enum option_section section, const char *key, const char *expected)
{
        char buf[CONFIG_ORIGIN_MAX];
        size_t len = strlen(expected);

        config_origin(c, from->of[option_index(option_find(section, key))], buf);
        if (strlen(buf) < len || strcmp(buf + strlen(buf) - len, expected) != 0)
                fail_msg("%s comes from %s, not %s", key, buf, expected);
}

/* In order of name after the file itself; what comes later wins, lists included, and the command
 * line before all. Names that end otherwise, or begin with a dot, aren't read. */
TEST(test_drop_ins)
{
        const char *dir = test_dir_make();
        struct files f = make_files(dir,
                "[daemon]\nmax_clients = 1\nlog_level = info\n[tenant a]\nuids = 1 2\nweight = 3\n");
        struct reports r;
        struct config c;
        const struct tenant_config *a;

        add_file(&f, "20-b.conf", "\n[tenant a]\nuids = 7\n[tenant b]\n[daemon]\nmax_clients=3\n");
        add_file(&f, "10-a.conf", "[daemon]\nmax_clients = 2\nlog_level = debug\n");
        add_file(&f, "30.conf~", "nonsense");
        add_file(&f, ".40.conf", "nonsense");
        add_file(&f, "conf", "nonsense");
        assert_int_equal(load_files(&f, "daemon.compact=off", &c, &r), 0);
        assert_int_equal(r.n_errors + r.n_notices, 0);
        assert_int_equal(c.files.n, 3);
        assert_int_equal(c.daemon.max_clients, 3);
        a = tenant_table_find(&c.tenants, "a");
        assert_string_equal(a->access.uids.text, "7");
        assert_int_equal(a->weight, 3);
        assert_non_null(tenant_table_find(&c.tenants, "b"));
        assert_origin(&c, &c.daemon.from, SECTION_DAEMON, "max_clients", "/k.conf.d/20-b.conf:6");
        assert_origin(&c, &c.daemon.from, SECTION_DAEMON, "log_level", "/k.conf.d/10-a.conf:3");
        assert_origin(&c, &c.daemon.from, SECTION_DAEMON, "compact", "command line");
        assert_origin(&c, &c.daemon.from, SECTION_DAEMON, "evict", "default");
        assert_origin(&c, &a->from, SECTION_TENANT, "weight", "/k.conf:6");
        config_deinit(&c);
        free_files(&f);
        test_dir_remove(dir);
}

/* Every error names its file and line, those of all files at once. */
TEST(test_errors_in_drop_ins)
{
        static const char *const expected[] = {
                "/k.conf:2: [daemon] no option 'x'",
                "/k.conf.d/1.conf:3: [daemon] max_clients is given twice",
                "/k.conf.d/1.conf:4: [daemon] is there twice",
                "/k.conf.d/2.conf:1: 'y' stands before the first [section]",
        };
        const char *dir = test_dir_make();
        struct files f = make_files(dir, "[daemon]\nx = 1\n");
        struct reports r;
        struct config c;

        add_file(&f, "1.conf", "[daemon]\nmax_clients=1\nmax_clients=2\n[daemon]\n");
        add_file(&f, "2.conf", "y = 1\n");
        assert_int_equal(load_files(&f, NULL, &c, &r), -EINVAL);
        assert_int_equal(r.n_errors, ARRAY_SIZE(expected));
        for (size_t i = 0; i < ARRAY_SIZE(expected); i++)
                if (!strstr(r.text, expected[i]))
                        fail_msg("'%s' is missing in:\n%s", expected[i], r.text);
        /* An error that is found after all files were read names the file of the line. */
        assert_int_equal(file_replace(f.main, "[device host]\n", 14, 0600), 0);
        add_file(&f, "1.conf", "[device host]\n\ndisk = /a\n");
        add_file(&f, "2.conf", "");
        assert_int_equal(load_files(&f, NULL, &c, &r), -EINVAL);
        assert_non_null(strstr(r.text, "/k.conf.d/1.conf:3: [device host] disk = /a has no size"));
        free_files(&f);
        test_dir_remove(dir);
}

/* Any other file in the directory gives an error that names it, without a wait. */
TEST(test_drop_ins_that_are_none)
{
        static char huge[CONFIG_FILE_MAX + 1];
        const char *dir = test_dir_make();
        struct files f = make_files(dir, "");
        char *path = test_path(f.dir, "x.conf"), *real = test_path(f.dir, "real");
        struct reports r;
        struct config c;

        memset(huge, '#', sizeof(huge));
        assert_int_equal(file_replace(path, huge, sizeof(huge), 0600), 0);
        assert_int_equal(load_files(&f, NULL, &c, &r), -EFBIG);
        assert_non_null(strstr(r.text, "/k.conf.d/x.conf: it is larger than 1 MiB"));

        assert_int_equal(unlink(path) + mkfifo(path, 0600), 0);
        assert_int_equal(load_files(&f, NULL, &c, &r), -EBADFD);
        assert_non_null(strstr(r.text, "/k.conf.d/x.conf: it is no regular file"));

        assert_int_equal(unlink(path) + symlink("/dev/zero", path), 0);
        assert_int_equal(load_files(&f, NULL, &c, &r), -EBADFD);

        assert_int_equal(unlink(path) + mkdir(path, 0700), 0);
        assert_int_equal(load_files(&f, NULL, &c, &r), -EISDIR);
        assert_non_null(strstr(r.text, "/k.conf.d/x.conf: Is a directory"));

        assert_int_equal(rmdir(path) + symlink("none", path), 0);
        assert_int_equal(load_files(&f, NULL, &c, &r), -ENOENT);
        assert_non_null(strstr(r.text, "/k.conf.d/x.conf: No such file or directory"));

        /* A link to a file is a file: so Kubernetes shows what a ConfigMap has. */
        add_file(&f, "real", "[daemon]\nmax_clients = 5\n");
        assert_int_equal(unlink(path) + symlink("real", path), 0);
        assert_int_equal(load_files(&f, NULL, &c, &r), 0);
        assert_int_equal(c.daemon.max_clients, 5);
        config_deinit(&c);
        assert_int_equal(unlink(path) + unlink(real), 0);

        add_file(&f, "a\n.conf", "");
        assert_int_equal(load_files(&f, NULL, &c, &r), -EINVAL);
        assert_non_null(strstr(r.text, "k.conf.d: the name of the file "));
        assert_int_equal(r.n_errors, 1);
        free(path);
        path = test_path(f.dir, "a\n.conf");
        assert_int_equal(unlink(path), 0);

        for (unsigned i = 0; i <= CONF_DROP_INS_MAX; i++) {
                char name[16];

                snprintf(name, sizeof(name), "%u.conf", i);
                add_file(&f, name, "");
        }
        assert_int_equal(load_files(&f, NULL, &c, &r), -E2BIG);
        assert_non_null(strstr(r.text, "k.conf.d has more than 128 files *.conf"));
        free(path);
        free(real);
        free_files(&f);
        test_dir_remove(dir);
}

TEST(test_drop_ins_that_are_a_file)
{
        const char *dir = test_dir_make();
        struct files f = {test_path(dir, "k.conf"), test_path(dir, "k.conf.d")};
        struct reports r;
        struct config c;

        assert_int_equal(file_replace(f.main, "", 0, 0600), 0);
        assert_int_equal(file_replace(f.dir, "", 0, 0600), 0);
        assert_int_equal(load_files(&f, NULL, &c, &r), -ENOTDIR);
        assert_non_null(strstr(r.text, "cannot read the directory "));
        assert_non_null(strstr(r.text, "/k.conf.d: Not a directory"));
        free_files(&f);
        test_dir_remove(dir);
}

TEST(test_socket_path_must_fit)
{
        char dir[CONFIG_PATH_MAX] = "/", name[TENANT_NAME_MAX + 1] = "", text[512], why[512];
        struct config c;
        struct reports r;

        memset(dir + 1, 'd', 60);
        memset(name, 'n', 38); /* 61 + 3 + 38 + 5 = 107: the longest the kernel takes */
        assert_int_equal(config_check_socket_path(dir, name, why, sizeof(why)), 0);
        name[38] = 'n';
        assert_int_equal(config_check_socket_path(dir, name, why, sizeof(why)), -EINVAL);
        assert_non_null(strstr(why, "108 bytes"));
        snprintf(text, sizeof(text), "[daemon]\nruntime_dir = %s\n[tenant %s]\n", dir, name);
        assert_int_equal(load(text, NULL, 0, &c, &r), -EINVAL);
        assert_int_equal(r.n_errors, 1);
}

/* Options of a tenant that don't go together; each is found by itself. */
TEST(test_tenants_that_contradict_themselves)
{
        static const struct {
                const char *lines, *error;
                unsigned line; /* of the option; 0: 2 */
        } cases[] = {
                {"reserve=1GiB", "reserve is for a tenant with class = pinned"},
                {"reserve_max=1GiB", "reserve_max is for a tenant with class = pinned"},
                {"sizer=dry-run", "sizer is for a tenant with class = pinned"},
                {"schedule=08:00-20:00 1GiB-2GiB", "schedule is for a tenant with class = pinned"},
                {"class=pinned\nreserve=2GiB\nreserve_max=1GiB",
                        "reserve (2 GiB) is above reserve_max (1 GiB)", 4},
                {"class=pinned\nreserve=2GiB\nreserve_min=3GiB\nreserve_max=1GiB",
                        "reserve_min (3 GiB) is larger than reserve_max (1 GiB)", 4},
                {"class=pinned\nreserve=1GiB\nreserve_min=2GiB\nreserve_max=3GiB",
                        "reserve (1 GiB) is below reserve_min (2 GiB)", 4},
                {"class=pinned\nreserve=4GiB\nreserve_min=2GiB\nreserve_max=3GiB",
                        "reserve (4 GiB) is above reserve_max (3 GiB)", 5},
                {"class=pinned\nreserve=2GiB\nlimit=1GiB",
                        "reserve (2 GiB) is above the tenant's limit (1 GiB)", 3},
                {"class=pinned\nreserve=1GiB\nreserve_max=3GiB\nlimit=2GiB",
                        "reserve_max (3 GiB) is above the tenant's limit (2 GiB)", 4},
                {"class=pinned\nschedule=8-9 1GiB", "schedule: ", 3},
                {"class=pinned\nlimit=2GiB\nschedule=08:00-20:00 1GiB-3GiB",
                        "a maximum of schedule (3 GiB) is above the tenant's limit", 4},
                {"placement=anywhere", "placement: 'anywhere' is unknown, allowed are pack"},
                {"warm_tags=7 x", "warm_tags: '7 x' isn't up to 8 numbers"},
                {"warm_tags=0", "warm_tags: '0' isn't up to 8 numbers"},
                {"evict=lru\nmiss_cost=compute",
                        "miss_cost = compute is for evict = pgi, and evict is lru: change evict",
                        3},
                {"miss_cost=compute\n[daemon]\nevict=lru",
                        "miss_cost = compute is for evict = pgi, and evict is lru, as [daemon]"},
                {"host_codec=int5", "host_codec: codec 'int5' isn't known"},
                {"disk_codec=0-7:none,9-:int4", "disk_codec: codecs by layer: '9-:int4' begins"},
                {"warm_tags=1,2,3 4 5 6 7 8 9",
                        "warm_tags: '1,2,3 4 5 6 7 8 9' isn't up to 8 numbers"},
                {"warm_tags=18446744073709551616",
                        "warm_tags: '18446744073709551616' isn't up to 8 numbers"},
                {"placement=device=", "placement: 'device=' is unknown"},
        };
        char text[512], where[512];
        struct config c;
        struct reports r;

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                snprintf(text, sizeof(text), "[tenant a]\n%s\n", cases[i].lines);
                assert_int_equal(load(text, NULL, 0, &c, &r), -EINVAL);
                snprintf(where, sizeof(where), "k.conf:%u: [tenant a] %s",
                        cases[i].line ? cases[i].line : 2, cases[i].error);
                if (r.n_errors != 1 || !strstr(r.text, where))
                        fail_msg("not '%s' alone in:\n%s", where, r.text);
        }
}

TEST(test_members)
{
        static const char *const expected[] = {
                "k.conf:4: [device tp2] members: 'GPU-1' is no device",
                "k.conf:4: [device tp2] members: host-1 is in 'devices' in [daemon] already",
                "k.conf:4: [device tp2] members: host-3 is in tp3 already",
                "k.conf:6: [device tp3] members: host-3 is in tp2 already",
                "k.conf:8: [device host-2] has members, and the name of a device without",
                "k.conf:4: [device tp2] members: GPUs and the host's memory aren't spanned",
                "k.conf:8: [device host-2] members = all takes the GPUs of [device tp2], too",
        };
        struct config c;
        struct reports r;

        assert_int_equal(load("[daemon]\ndevices = tp2, tp3, host-1, host-2\n[device tp2]\n"
                              "members = GPU-1, host-1, host-3\n[device tp3]\n"
                              "members = host-3,host-4\n[device host-2]\nmembers = all\n",
                                 NULL, 0, &c, &r),
                -EINVAL);
        for (size_t i = 0; i < ARRAY_SIZE(expected); i++)
                if (!strstr(r.text, expected[i]))
                        fail_msg("'%s' is missing in:\n%s", expected[i], r.text);
        assert_int_equal(r.n_errors, ARRAY_SIZE(expected));
        assert_int_equal(
                load("[daemon]\ndevices = tp2\n[device tp2]\nmembers = all\n", NULL, 0, &c, &r), 0);
        assert_string_equal(config_find_device(&c, "tp2")->members, "all");
        config_deinit(&c);
}

/* Kinds and numbers of members that a device may have. */
TEST(test_members_together)
{
#define UUID "-5a1e0c2e-7b1f-4a57-9a3c-0b7f5f2e8d1"
#define GPU  "GPU" UUID
        static const struct {
                const char *lines, *error;
        } cases[] = {
                {"devices = x\n[device x]\nmembers = host-5", "1 devices are named; 2 to 16"},
                {"devices = x\n[device x]\nmembers = ,,", "0 devices are named; 2 to 16"},
                {"devices = x\n[device x]\nmembers = " GPU "2, host-7", "aren't spanned together"},
                {"devices = x\n[device x]\nmembers = host-1,host-1", "host-1 is in x already"},
                {"devices = x\n[device x]\nmembers = " GPU "A, gpu" UUID "a", "is in x already"},
                {"devices = x, " GPU "1\n[device x]\nmembers = all", "the GPUs that 'devices' in"},
                {"devices = x, y\n[device y]\nmembers=" GPU "1," GPU "2\n[device x]\nmembers = all",
                        "the GPUs of [device y], too"},
        };
        char text[512];
        struct config c;
        struct reports r;

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                snprintf(text, sizeof(text), "[daemon]\n%s\n", cases[i].lines);
                assert_int_equal(load(text, NULL, 0, &c, &r), -EINVAL);
                if (r.n_errors != 1 || !strstr(r.text, cases[i].error))
                        fail_msg("not '%s' alone in:\n%s", cases[i].error, r.text);
        }
}

/* Errors of an option, of several together, and of a device are all reported. */
TEST(test_all_kinds_of_errors_at_once)
{
        static const char *const expected[] = {
                "k.conf:2: [daemon] max_clients: 'x'",
                "k.conf:3: [daemon] devices: 'hots' is no device: allowed are auto alone",
                "k.conf:3: [daemon] devices: 'GPU-123' is no device",
                "k.conf:3: [daemon] devices: host is there twice",
                "k.conf:5: [device host] host_memory = 1 MiB holds no extent set",
                "k.conf:7: [tenant a] reserve is for a tenant with class = pinned",
                "k.conf:8: [tenant a] placement: 'here' is unknown",
                "k.conf:9: [tenant a] remote = other: there is no section",
                "k.conf:11: [tenant b] limit: 'y'",
        };
        struct config c;
        struct reports r;

        assert_int_equal(load("[daemon]\nmax_clients=x\ndevices = hots, GPU-123 host,host\n"
                              "[device host]\nhost_memory=1MiB\n[tenant a]\nreserve=1GiB\n"
                              "placement=here\nremote=other\n[tenant b]\nlimit=y\nreserve=2GiB\n",
                                 NULL, 0, &c, &r),
                -EINVAL);
        for (size_t i = 0; i < ARRAY_SIZE(expected); i++)
                if (!strstr(r.text, expected[i]))
                        fail_msg("'%s' is missing in:\n%s", expected[i], r.text);
        /* An option of [tenant b] was refused, so combinations with it aren't checked. */
        assert_int_equal(r.n_errors, ARRAY_SIZE(expected));
}

TEST(test_devices)
{
        static const char *const good[] = {"auto", "host", "host-1,host",
                "GPU-5a1e0c2e-7b1f-4a57-9a3c-0b7f5f2e8d11, mig-5a1e0c2e-7b1f-4a57-9a3c-0b7f5f2e8d11"};
        static const char *const bad[] = {"host ; the memory", "\"host\"", "auto, host", "host-01",
                "GPU-5a1e0c2e-7b1f-4a57-9a3c-0b7f5f2e8d1", "GPU-"};
        struct reports r;
        struct config c;
        char text[256];

        for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
                const char *const o[] = {text};

                snprintf(text, sizeof(text), "daemon.devices=%s", good[i]);
                assert_int_equal(load("[daemon]\ndevices=hots\n", o, 1, &c, &r), 0);
                config_deinit(&c);
        }
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                snprintf(text, sizeof(text), "[daemon]\ndevices = %s\n", bad[i]);
                assert_int_equal(load(text, NULL, 0, &c, &r), -EINVAL);
                assert_non_null(strstr(r.text, "k.conf:2: [daemon] devices: "));
        }
}

/* The usual word for an empty file, and for a drop-in that is masked. */
TEST(test_null_device)
{
        struct config_source source = {.file = "/dev/null"};
        const char *dir = test_dir_make();
        struct files f = make_files(dir, "[daemon]\nmax_clients = 5\n");
        char *path = test_path(f.dir, "x.conf");
        struct reports r = {0};
        struct config c;

        assert_int_equal(config_load(&source, &c, note, &r), 0);
        assert_int_equal(r.n_errors + r.n_notices, 0);
        assert_int_equal(c.tenants.n, 0);
        config_deinit(&c);
        assert_int_equal(symlink("/dev/null", path), 0);
        assert_int_equal(load_files(&f, NULL, &c, &r), 0);
        assert_int_equal(c.daemon.max_clients, 5);
        config_deinit(&c);
        free(path);
        free_files(&f);
        test_dir_remove(dir);
}

TEST(test_tiers)
{
        static const char good[] =
                "[device host]\nextent = 32MiB\nhost_memory = 32MiB\n"
                "host_huge_pages = on\nhuge_pages = on\n"
                "disk = /var/lib/kvlease/host.tier\ndisk_size = 100GiB\n"
                "[device host-1]\ndisk=/var/lib/kvlease/host-1.tier\ndisk_size=1GiB\n"
                "[tenant a]\nhost_limit = 0\ndisk_limit = 3GiB\n";
        struct config c;
        struct reports r;

        assert_int_equal(load(good, NULL, 0, &c, &r), 0);
        assert_true(c.devices[0].host_memory_bytes == UINT64_C(32) << 20);
        assert_string_equal(c.devices[0].disk, "/var/lib/kvlease/host.tier");
        assert_true(c.devices[0].disk_bytes == UINT64_C(100) << 30);
        assert_true(c.devices[0].host_huge_pages && c.devices[0].huge_pages);
        assert_true(c.devices[1].host_memory_bytes == 0 && !c.devices[1].host_huge_pages);
        assert_false(c.devices[1].huge_pages);
        assert_true(c.tenants.rows[0].limit_bytes == TENANT_LIMIT_NONE);
        assert_true(c.tenants.rows[0].host_limit_bytes == 0);
        assert_true(c.tenants.rows[0].disk_limit_bytes == UINT64_C(3) << 30);
        config_deinit(&c);
}

TEST(test_tiers_that_contradict_themselves)
{
        static const struct {
                const char *lines, *error;
        } cases[] = {
                {"host_memory=63MiB",
                        "k.conf:2: [device host] host_memory = 63 MiB holds no extent set of 64 MiB"},
                {"disk=/a", "k.conf:2: [device host] disk = /a has no size"},
                {"disk_size=1GiB", "k.conf:2: [device host] disk_size is given, but no file"},
                {"disk=/a\ndisk_size=1GiB\n[device x]\ndisk=/b\ndisk_size=1GiB\n"
                 "[device y]\ndisk=/a\ndisk_size=1GiB",
                        "k.conf:8: [device y] disk = /a is the file of [device host] already"},
        };
        char text[512];
        struct config c;
        struct reports r;

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                snprintf(text, sizeof(text), "[device host]\n%s\n", cases[i].lines);
                assert_int_equal(load(text, NULL, 0, &c, &r), -EINVAL);
                if (r.n_errors != 1 || !strstr(r.text, cases[i].error))
                        fail_msg("not '%s' alone in:\n%s", cases[i].error, r.text);
        }
}

/* Is allowed, and warned of by these words; NULL: of nothing. */
static void assert_warned(const char *text, const char *words)
{
        struct reports r = {0};
        struct config c;

        assert_int_equal(parse(text, &c, &r), 0);
        r = (struct reports){0};
        config_warn(&c, note, &r);
        assert_int_equal(r.n_errors, 0);
        assert_int_equal(r.n_notices, words != NULL);
        if (words && !strstr(r.text, words))
                fail_msg("no \"%s\" in \"%s\"", words, r.text);
        config_deinit(&c);
}

/* Below one extent set every lease is refused. */
TEST(test_tenants_that_can_lease_nothing)
{
        assert_warned("[daemon]\ndevices=host\n[tenant a]\nlimit=64MiB\n", NULL);
        assert_warned("[daemon]\ndevices=host\n[tenant a]\nlimit=32MiB\n",
                "tenant a can lease no page: its limit of 32 MiB is less than an extent set of "
                "device host (64 MiB); raise its limit to 64 MiB or more, or set a smaller 'extent' in [device host]");
        assert_warned("[daemon]\ndevices=host\n[device host]\nextent=2MiB\n"
                      "[tenant a]\nlimit=32MiB\n",
                NULL);
        /* The smallest of those that it may be placed on. */
        assert_warned("[daemon]\ndevices=host, host-1\n[device host-1]\nextent=32MiB\n"
                      "[tenant a]\nlimit=32MiB\n",
                NULL);
        assert_warned("[daemon]\ndevices=host, host-1\n[device host-1]\nextent=32MiB\n"
                      "[tenant a]\nlimit=32MiB\nplacement=device=host\n",
                "device host (64 MiB)");
        assert_warned("[tenant a]\nlimit=32MiB\n", "a device (64 MiB)");
        assert_warned("[tenant a]\nclass=pinned\nburst=none\n",
                "burst = none keeps it to its reservation of 0 B, less than an extent set");
        assert_warned("[tenant a]\nclass=pinned\nburst=none\nreserve_max=1GiB\nsizer=on\n", NULL);
        assert_warned("[tenant a]\nclass=pinned\nburst=none\nreserve=1MiB\n", NULL);
}

TEST(test_more_memory_than_there_is)
{
        assert_warned("[device host]\nmemory=1024TiB\n", "the machine will run out of memory");
}

TEST(test_memory_failures)
{
        unsigned n_failed = 0;

        alloc_fail_each(n)
        {
                struct config c;
                struct reports r;
                int e = parse("[tenant a]\nweight=1\n[tenant b]\n", &c, &r);

                if (alloc_fail_happened()) {
                        assert_int_equal(e, -ENOMEM);
                        assert_true(r.n_errors > 0);
                        n_failed++;
                } else {
                        assert_int_equal(e, 0);
                        config_deinit(&c);
                }
        }
        assert_true(n_failed >= 2);
}
