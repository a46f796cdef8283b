/* JSON for the status page's script: valid for all names and figures. */
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/exporter/scrape.h"
#include "client/exporter/status.h"
#include "client/exporter/watch.h"
#include "tests/unit/test-support.h"

#define MANY 1000

/* One list of a daemon, of `n` rows. */
static void set_list(struct facts *f, enum source_list list, const void **rows, size_t n)
{
        f->lists[list] = (struct source_rows){.rows = rows, .n = n, .size = n};
}

static json_t *tell(const struct facts *f)
{
        struct history *h = calloc(1, sizeof(*h));
        json_error_t error;
        struct text t;
        json_t *said;

        assert_non_null(h);
        text_init(&t, TEXT_PROMETHEUS);
        status_tell(&t, f, h, 0);
        assert_null(strchr(t.data, '\n')); /* an event is one line */
        said = json_loads(t.data, 0, &error);
        if (!said)
                fail_msg("%s in %s", error.text, t.data);
        text_deinit(&t);
        free(h);
        return said;
}

static const char *text_of(const json_t *object, const char *name)
{
        return json_string_value(json_object_get(object, name));
}

/* Names that are markup, quotes, controls and no UTF-8; a limit that is none. */
TEST(test_names)
{
        static const char *const names[] = {"</script><b>", "\"],\"up\":false", "a\\", "\x01\n\x7f",
                "\xff\xfe", "", "t\xc3\xa9"};
        static const char *const expected[] = {"</script><b>", "\"],\"up\":false", "a\\",
                "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", "\xef\xbf\xbd\xef\xbf\xbd", "",
                "t\xc3\xa9"};
        struct figures_status status;
        const void *status_row = &status;
        struct facts f = {.n_calls = 1};

        figures_init(&figures_table_status, &status);
        set_list(&f, SOURCE_STATUS, &status_row, 1);
        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
                struct figures_tenant tenant;
                struct figures_device device;
                const void *tenant_row = &tenant, *device_row = &device;
                json_t *said, *first;

                figures_init(&figures_table_tenant, &tenant);
                figures_init(&figures_table_device, &device);
                tenant.name = device.state = names[i];
                tenant.limit_bytes = UINT64_MAX;
                device.name = "disk of host";
                device.of_device = "host";
                device.tier = "disk";
                set_list(&f, SOURCE_TENANTS, &tenant_row, 1);
                set_list(&f, SOURCE_DEVICES, &device_row, 1);
                said = tell(&f);
                assert_true(json_is_true(json_object_get(said, "up")));
                first = json_array_get(json_object_get(said, "tenants"), 0);
                assert_string_equal(text_of(first, "name"), expected[i]);
                assert_true(json_is_null(json_object_get(first, "limit")));
                first = json_array_get(json_object_get(said, "tiers"), 0);
                assert_string_equal(text_of(first, "state"), expected[i]);
                assert_string_equal(text_of(first, "device"), "host");
                assert_string_equal(text_of(first, "tier"), "disk");
                json_decref(said);
        }
}

/* However many rows a daemon has, what is sent each time is bounded. */
TEST(test_many)
{
        struct figures_status status;
        struct figures_tenant tenant;
        struct figures_region region;
        struct figures_eviction eviction;
        static const void *tenants[MANY], *regions[MANY], *evictions[MANY];
        const void *status_row = &status;
        struct facts f = {.n_calls = 1};
        json_t *said;

        figures_init(&figures_table_status, &status);
        figures_init(&figures_table_tenant, &tenant);
        figures_init(&figures_table_region, &region);
        figures_init(&figures_table_eviction, &eviction);
        region.tenant = "a";
        region.device = "host";
        region.tier = "device";
        region.size_bytes = 1;
        for (size_t i = 0; i < MANY; i++) {
                tenants[i] = &tenant;
                regions[i] = &region;
                evictions[i] = &eviction;
        }
        set_list(&f, SOURCE_STATUS, &status_row, 1);
        set_list(&f, SOURCE_TENANTS, tenants, MANY);
        set_list(&f, SOURCE_REGIONS, regions, MANY);
        set_list(&f, SOURCE_EVICTIONS, evictions, MANY);
        said = tell(&f);
        assert_int_equal(json_array_size(json_object_get(said, "tenants")), 200);
        assert_int_equal(json_array_size(json_object_get(said, "regions")), 400);
        assert_int_equal(json_array_size(json_object_get(said, "evictions")), 600);
        json_decref(said);
}

/* Streams are bounded, get what happens, and end when the server does. */
TEST(test_streams)
{
        const struct scraper_options o = {
                .socket = "/nonexistent/admin.sock", .timeout_nsec = NSEC_PER_SEC, .max_rows = 1};
        struct stream *streams[WATCH_STREAMS_MAX], *more;
        char buf[4096];
        struct scraper *s;
        struct watch *w;
        size_t n = 0;

        assert_int_equal(scraper_new(&o, &s), 0);
        assert_int_equal(watch_start(s, &w), 0);
        for (unsigned i = 0; i < WATCH_STREAMS_MAX; i++)
                assert_int_equal(stream_open(w, &streams[i]), 0);
        assert_int_equal(stream_open(w, &more), -EBUSY);
        stream_close(streams[0]);
        assert_int_equal(stream_open(w, &streams[0]), 0);
        for (unsigned i = 0; i < WATCH_STREAMS_MAX; i++) {
                n = stream_read(streams[i], buf, sizeof(buf) - 1);
                buf[n] = '\0';
                assert_true(strncmp(buf, "data: {\"up\":false,\"why\":\"", 24) == 0);
                assert_string_equal(buf + n - 3, "}\n\n");
        }
        /* A reader with a small buffer gets the rest of the next one. */
        assert_int_equal(stream_read(streams[1], buf, 6), 6);
        assert_memory_equal(buf, "data: ", 6);
        watch_stop(w);
        assert_int_equal(stream_read(streams[1], buf, sizeof(buf)), n - 6);
        for (unsigned i = 0; i < WATCH_STREAMS_MAX; i++) {
                assert_int_equal(stream_read(streams[i], buf, sizeof(buf)), 0);
                stream_close(streams[i]);
        }
        watch_free(w);
        scraper_free(s);
}

#define N_SCRAPING 8

/* A scrape: how many there were by then; NULL: it failed. */
static void *scrape(void *scraper)
{
        static const char name[] = "\nkvlease_exporter_scrapes_total ";
        uintptr_t n = 0;
        struct text t;
        char *at;

        text_init(&t, TEXT_PROMETHEUS);
        at = scraper_metrics(scraper, &t) == 0 ? strstr(t.data, name) : NULL;
        if (at)
                n = strtoul(at + strlen(name), NULL, 10);
        text_deinit(&t);
        return (void *)n;
}

/* A request of the page is no scrape, also after scrapes that shared one. Without answers. */
TEST(test_scrapes_are_counted)
{
        const char *dir = test_dir_make();
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        struct scraper_options o = {
                .socket = a.sun_path, .timeout_nsec = 20 * NSEC_PER_MSEC, .max_rows = 1};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        pthread_t threads[N_SCRAPING];
        uintptr_t most = 0;
        struct scraper *s;
        struct text t;

        snprintf(a.sun_path, sizeof(a.sun_path), "%s/sock", dir);
        assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
        assert_int_equal(listen(fd, 16), 0);
        assert_int_equal(scraper_new(&o, &s), 0);
        for (unsigned i = 0; i < N_SCRAPING; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, scrape, s), 0);
        for (unsigned i = 0; i < N_SCRAPING; i++) {
                void *n;

                assert_int_equal(pthread_join(threads[i], &n), 0);
                assert_non_null(n);
                most = MAX(most, (uintptr_t)n);
        }
        text_init(&t, TEXT_PROMETHEUS);
        assert_int_equal(scraper_status(s, &t), 0);
        text_deinit(&t);
        assert_int_equal(scrape(s), most + 1);
        scraper_free(s);
        close(fd);
        test_dir_remove(dir);
}
