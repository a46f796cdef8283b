/*
 * A text with three times the device's memory of KV, read through a window. The decoder's logits
 * are the same bits as with all of it in place. Nothing is evicted, and nothing is computed again.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/integration/harness.h"

#define DECODER_TIMEOUT_MSEC 300000
#define NO_ROOM              3 /* exit status of the decoder */

/*
 * Pages of 128 KiB: the device has 16. The simulated driver runs a kernel's threads one after the
 * other. There the text is short, its pages are small, and it outgrows the decoder's budget
 * instead.
 */
#define DEVICE_PAGES 12
#define TEXT_PAGES   48
#define PAGE_TOKENS  64
#define FAKE_TOKENS  32

static const struct private_tenant tenants[] = {{"a", NULL}, {"c", NULL}, {NULL, NULL}};
#define DEVICE_LINES "memory = 2MiB\nextent = 2MiB\nhost_memory = 16MiB\n"
static const struct private_options small = {.tenants = tenants, .device_lines = DEVICE_LINES};
static const struct private_options kept = {
        .tenants = tenants, .device_lines = DEVICE_LINES, .is_kept = true};
static const struct private_options shared = {
        .tenants = tenants, .device_lines = "memory = 4MiB\nextent = 2MiB\nhost_memory = 16MiB\n"};

struct run {
        char logits[64];
        json_int_t tokens, reused, published;
};

struct command {
        const char *argv[32];
        char text[PRIVATE_PATH_MAX], socket[PRIVATE_PATH_MAX];
};

static bool is_fake(void)
{
        return private_on_gpu() && !private_on_real_gpu();
}

static void make_text(struct harness *h, char path[PRIVATE_PATH_MAX])
{
        unsigned n = is_fake() ? 24 * FAKE_TOKENS : TEXT_PAGES * PAGE_TOKENS;
        FILE *f;

        snprintf(path, PRIVATE_PATH_MAX, "%.40s/text", h->daemon.dir);
        if (access(path, R_OK) == 0) /* a worker may be reading it */
                return;
        f = fopen(path, "we");
        assert_non_null(f);
        for (unsigned i = 0; (unsigned)ftell(f) < n; ++i)
                fprintf(f, "%u times the same is %u words of its own. ", i, i * i + 3);
        fclose(f);
}

/* tenant NULL: without the daemon. options: more of them, ends with NULL. */
static void command(
        struct harness *h, const char *tenant, const char *const *options, struct command *c)
{
        static const char *const large[] = {"--layers=1", "--width=512", "--kv-heads=4",
                "--ffn-width=64", "--page-tokens=64", NULL};
        static const char *const little[] = {
                "--layers=2", "--width=64", "--ffn-width=128", "--page-tokens=32", NULL};
        unsigned n = 0;

        make_text(h, c->text);
        c->argv[n++] = program_decoder();
        c->argv[n++] = "--json";
        for (const char *const *o = is_fake() ? little : large; *o; ++o)
                c->argv[n++] = *o;
        if (is_fake()) {
                c->argv[n++] = "--kernels";
                c->argv[n++] = getenv("KVL_FAKECUDA_KERNELS");
        }
        if (tenant) {
                c->argv[n++] = "--socket";
                c->argv[n++] = private_daemon_socket(&h->daemon, tenant, c->socket);
        } else {
                c->argv[n++] = "--no-daemon";
                c->argv[n++] = "--device";
                c->argv[n++] = private_device();
        }
        for (; *options; ++options)
                c->argv[n++] = *options;
        c->argv[n++] = c->text;
        c->argv[n] = NULL;
        assert_true(n < ARRAY_SIZE(c->argv));
}

static json_int_t number(json_t *object, const char *name)
{
        assert_true(json_is_integer(json_object_get(object, name)));
        return json_integer_value(json_object_get(object, name));
}

static struct run result_of(const struct proc_output *o)
{
        struct run run;
        json_t *reply;

        if (o->status)
                fail_msg("decoder: status 0x%x: %s", o->status, o->err);
        reply = json_loads(o->out, JSON_DISABLE_EOF_CHECK, NULL);
        if (!reply)
                fail_msg("decoder: no JSON: %s", o->out);
        snprintf(run.logits, sizeof(run.logits), "%s",
                json_string_value(json_object_get(reply, "logits")));
        run.tokens = number(reply, "tokens");
        run.reused = number(reply, "reused");
        run.published = number(reply, "pages_published");
        json_decref(reply);
        return run;
}

static struct run decode(struct harness *h, const char *tenant, const char *const *options)
{
        struct proc_output o;
        struct command c;
        struct run run;

        command(h, tenant, options, &c);
        assert_int_equal(proc_run(c.argv, NULL, DECODER_TIMEOUT_MSEC, &o), 0);
        run = result_of(&o);
        proc_output_free(&o);
        return run;
}

static const char *const none[] = {NULL};
static const char *const by_window[] = {"--device-pages=12", NULL};

static void assert_no_room(struct harness *h, const char *const *options)
{
        struct proc_output o;
        struct command c;

        command(h, "a", options, &c);
        assert_int_equal(proc_run(c.argv, NULL, DECODER_TIMEOUT_MSEC, &o), 0);
        assert_true(WIFEXITED(o.status));
        assert_int_equal(WEXITSTATUS(o.status), NO_ROOM);
        proc_output_free(&o);
}

static void larger_than_device(struct harness *h, const char *const *options)
{
        struct run oracle = decode(h, NULL, none), cold, warm;

        cold = decode(h, "a", options);
        assert_int_equal(cold.reused, 0);
        assert_string_equal(cold.logits, oracle.logits);
        assert_int_equal(ctl_status(h, "evictions"), 0);
        assert_int_equal(ctl_status(h, "host_damaged"), 0);
        assert_true(ctl_status(h, "host_arrived") + DEVICE_PAGES >= (uint64_t)cold.published);
        /* All of it is still cached, in any tier. */
        warm = decode(h, "a", options);
        assert_true(warm.tokens - warm.reused <= PAGE_TOKENS);
        assert_string_equal(warm.logits, oracle.logits);
        assert_int_equal(ctl_status(h, "evictions"), 0);
}

HARNESS_TEST(test_larger_than_device, &small)
{
        if (!private_on_gpu())
                assert_no_room(h, none);
        ctl(h, "purge a --remove");
        larger_than_device(h, by_window);
        ctl(h, "purge a --remove");
}

/* The daemon is killed while pages are being moved; the next one continues with the same pages. */
HARNESS_TEST(test_survives, &kept)
{
        struct run oracle = decode(h, NULL, none), run;
        static const char *const slowly[] = {"--device-pages=12", "--delay-ms-per-page=10", NULL};
        char out[4096] = "";
        struct command c;
        size_t n = 0;
        int fds[2], status;
        ssize_t r;
        pid_t pid;

        if (!private_is_contiguous()) {
                print_message("skipped: this memory doesn't outlive the daemon\n");
                skip();
        }
        command(h, "a", slowly, &c);
        assert_int_equal(pipe(fds), 0);
        pid = proc_spawn(c.argv, NULL, (struct proc_files){-1, fds[1], -1});
        assert_true(pid > 0);
        close(fds[1]);
        for (unsigned kill_no = 0; kill_no < 3; ++kill_no) {
                for (unsigned i = 0; i < 10000 && ctl_status(h, "publishes") < 5; ++i)
                        sleep_msec(1);
                assert_int_equal(kill((pid_t)ctl_status(h, "pid"), SIGKILL), 0);
                assert_int_equal(private_daemon_await(&h->daemon), 0);
        }
        while ((r = read(fds[0], out + n, sizeof(out) - 1 - n)) > 0)
                n += (size_t)r;
        close(fds[0]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        assert_non_null(strstr(out, oracle.logits));
        run = decode(h, "a", by_window);
        assert_true(run.tokens - run.reused <= PAGE_TOKENS);
        assert_string_equal(run.logits, oracle.logits);
        ctl(h, "purge a --remove");
}

/* ---- conversations -------------------------------------------------------------------------- */

/* Pages of 4 KiB: the device has 1024 of them. */
#define TALK_PAGES 3072u
#define TALK_FIRST 4u /* pages at its beginning and its end that stay there */
#define TALK_LAST  40u

static void open_window(struct worker *w, uint32_t n_pages)
{
        uint32_t got[2];

        worker_tell(w, "window-open %u %u 8 session", 16 * TALK_FIRST, 16 * TALK_LAST);
        assert_int_equal(worker_numbers(w, got, 2), 2);
        assert_int_equal(got[0], n_pages);
}

static void verify(struct worker *w, uint32_t n_pages, uint32_t n_first, uint32_t gap)
{
        uint32_t got[2];

        worker_tell(w, "window-verify 1 %u %u", n_first, gap);
        assert_int_equal(worker_numbers(w, got, 2), 2);
        assert_int_equal(got[0], n_pages);
        assert_int_equal(got[1], 0);
}

/* One that is larger than the device is written by one worker, and read, continued and truncated by
 * another: every byte is as it was published. */
HARNESS_TEST(test_conversation, &shared)
{
        struct worker *w = worker_start(h, "a", "ns", 1);

        worker_tell(w, "session-open talk");
        open_window(w, 0);
        worker_tell(w, "window-talk 1 0 %u session", TALK_PAGES - 1);
        verify(w, TALK_PAGES, 0, 0);
        worker_tell(w, "window-close");
        worker_stop(w);
        assert_int_equal(ctl_status(h, "evictions"), 0);

        w = worker_start(h, "a", "ns", 1);
        worker_tell(w, "session-open talk must");
        open_window(w, TALK_PAGES);
        verify(w, TALK_PAGES, 0, 0);
        worker_tell(w, "window-talk 1 %u %u session", TALK_PAGES, TALK_PAGES + 99);
        verify(w, TALK_PAGES + 100, 0, 0);
        worker_tell(w, "window-close");
        /* The pages of a truncated session stay in their tier: 160 of these pages are in the lower
         * one. */
        worker_tell(w, "session-truncate %u %u", 16 * TALK_FIRST, 16 * 5 * TALK_LAST);
        open_window(w, TALK_FIRST + 5 * TALK_LAST);
        verify(w, TALK_FIRST + 5 * TALK_LAST, TALK_FIRST,
                TALK_PAGES + 100 - TALK_FIRST - 5 * TALK_LAST);
        worker_tell(w, "window-close");
        worker_stop(w);
        ctl(h, "purge a --remove");
}
