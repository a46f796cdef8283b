/* Regular work of the daemon: idle pages expire, and traffic is recorded. The clock is a file. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/parse.h"
#include "client/trace/trace.h"
#include "tests/integration/file-clock.h"
#include "tests/integration/harness.h"
#include "tests/integration/pattern.h"

#define PAGES  8
#define TOKENS 16 /* of a page: worker_layout() */
#define SECOND UINT64_C(1000000000)

static const struct private_tenant days[] = {{"a", "expire = 24h\n"}, {NULL, NULL}};
static const struct private_options by_file = {.tenants = days, .env = file_clock_env};

static void release(struct worker *w, const uint32_t *pages, unsigned n)
{
        char words[256] = "release";
        size_t len = strlen(words);

        for (unsigned i = 0; i < n; i++)
                len += (size_t)snprintf(words + len, sizeof(words) - len, " %u", pages[i]);
        worker_tell(w, "%s", words);
}

/* Caches text `chain`; nothing stays pinned. */
static void cache(struct worker *w, unsigned chain)
{
        uint32_t pages[PAGES];

        worker_publish_chain(w, chain, PAGES, pages);
        release(w, pages, PAGES);
}

/* The explanation of one key, as JSON, with its list: json_decref() *ret_reply. */
static json_t *explain(
        struct harness *h, const char *tenant, unsigned chain, unsigned index, json_t **ret_reply)
{
        char words[256], hex[65];
        uint8_t key[32];
        json_t *list;

        pattern_key(chain, index, key);
        snprintf(words, sizeof(words), "explain %s n %s", tenant, format_hex(key, 32, hex));
        *ret_reply = ctl_json(h, words);
        list = ctl_list(*ret_reply, "explanations");
        assert_int_equal(json_array_size(list), 1);
        return json_array_get(list, 0);
}

static uint64_t recorded(struct harness *h, const char *what, char path[256])
{
        json_t *reply = ctl_json(h, "trace record status");
        uint64_t n = (uint64_t)json_integer_value(json_object_get(reply, what));

        snprintf(path, 256, "%s", json_string_value(json_object_get(reply, "path")));
        json_decref(reply);
        return n;
}

static bool is_file(const char *path)
{
        struct stat st;

        return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static bool is_recording(struct harness *h)
{
        json_t *reply = ctl_json(h, "status");
        bool is = json_is_true(json_object_get(reply, "recording"));

        json_decref(reply);
        return is;
}

HARNESS_TEST(test_record, NULL)
{
        struct worker *w = worker_start(h, "a", "n", 1);
        const struct sim_trace *s;
        struct trace_error e;
        char path[256];
        struct trace t;
        struct stat st;
        json_t *reply;

        cache(w, 1);
        assert_string_equal(worker_tell(w, "hits 2 1:0-%d", PAGES - 1), " 2"); /* not recorded */
        assert_false(is_recording(h));
        ctl(h, "trace record on");
        assert_true(is_recording(h));
        assert_string_equal(worker_tell(w, "hits 3 1:0-%d", PAGES - 1), " 3");
        assert_string_equal(worker_tell(w, "hits 3 1:0-3"), " 3");
        worker_tell(w, "lookup 1:0-5"); /* names no request */
        for (int i = 0; i < 100 && recorded(h, "under_way", path) < 4; i++)
                usleep(100000);
        assert_int_equal(recorded(h, "without_id", path), 1);
        reply = ctl_json(h, "trace record off");
        /* Requests 1 to 3, each looked up twice, and that one. */
        assert_int_equal(json_integer_value(json_object_get(reply, "requests")), 4);
        json_decref(reply);
        for (int i = 0; i < 100 && !is_file(path); i++) { /* before, its directory */
                usleep(100000);
                (void)recorded(h, "requests", path);
        }
        assert_int_equal(recorded(h, "under_way", path), 0);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
        assert_int_equal(
                trace_read(&(struct trace_source){&(const char *){path}, 1, 0, TOKENS}, &t, &e), 0);
        s = &t.sim;
        assert_int_equal(s->n_requests, 4);
        assert_int_equal(s->n_unique, PAGES);
        assert_int_equal(s->requests[3].input_tokens, 6 * TOKENS);
        for (unsigned i = 0; i < 3; i++)
                assert_int_equal(s->requests[i].input_tokens, PAGES * TOKENS);
        assert_string_equal(t.tenants[0], "a");
        trace_free(&t);
}

static bool is_in_log(struct harness *h, const char *words)
{
        char *text = NULL;
        bool is_there;
        size_t len;

        assert_int_equal(file_read(h->daemon.log, 1 << 24, &text, &len), 0);
        is_there = strstr(text, words) != NULL;
        free(text);
        return is_there;
}

HARNESS_TEST(test_clock, &by_file)
{
        struct worker *w = worker_start(h, "a", "n", 1);
        json_t *reply, *row;

        assert_true(is_in_log(h, "time is read from"));
        cache(w, 1);
        file_clock_set((1000 + 3600) * SECOND);
        row = explain(h, "a", 1, 0, &reply);
        assert_int_equal(json_integer_value(json_object_get(row, "age_sec")), 3600);
        json_decref(reply);
        file_clock_set((1000 + 27 * 3600) * SECOND);
        ctl_wait_status(h, "pages_expired", PAGES);
        worker_stop(w);

        /* One that can't be read is no clock. */
        assert_int_equal(truncate(file_clock_path, 7), 0);
        assert_int_equal(private_daemon_stop(&h->daemon, &(int){0}), 0);
        assert_int_equal(private_daemon_start(&h->daemon), -ECHILD);
        assert_true(is_in_log(h, "too short"));
        assert_int_equal(truncate(file_clock_path, 8), 0);
        harness_start(h);
}

int main(void)
{
        return test_run_all(file_clock_open, file_clock_close);
}
