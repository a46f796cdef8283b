/*
 * The oracle: with any reuse, the decoder's logits are the same bits as without a daemon. This
 * holds for both layouts of planes, after evictions and after a kill. Another tenant's pages are
 * never used.
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

static const struct private_tenant two[] = {
        {"a", "limit = 64MiB\n"}, {"c", "limit = 64MiB\n"}, {NULL, NULL}};
static const struct private_options two_tenants = {.tenants = two};

struct run {
        char logits[64];
        json_int_t tokens, reused, computed, given_up;
};

static const char *make_text(struct harness *h, char path[PRIVATE_PATH_MAX])
{
        /* The simulated driver runs one thread after the other. */
        unsigned n = private_on_gpu() && !private_on_real_gpu() ? 20 : 60;
        FILE *f;

        snprintf(path, PRIVATE_PATH_MAX, "%.40s/text", h->daemon.dir);
        f = fopen(path, "we");
        assert_non_null(f);
        for (unsigned i = 0; i < n; ++i)
                fprintf(f, "%u times the same is %u words of its own. ", i, i * i + 3);
        fclose(f);
        return path;
}

/* tenant NULL: without the daemon. On the tests' device: private-daemon.h. */
static void decoder_argv(struct harness *h, const char *tenant, const char *planes,
        const char *text, char socket[PRIVATE_PATH_MAX], const char *argv[24])
{
        unsigned n = 0;

        argv[n++] = program_decoder();
        argv[n++] = "--json";
        argv[n++] = "--layers=2";
        argv[n++] = "--width=64";
        argv[n++] = "--ffn-width=128";
        argv[n++] = "--page-tokens=32";
        argv[n++] = "--generate=4";
        argv[n++] = "--planes";
        argv[n++] = planes;
        if (private_on_gpu() && !private_on_real_gpu()) {
                argv[n++] = "--kernels";
                argv[n++] = getenv("KVL_FAKECUDA_KERNELS");
        }
        if (tenant) {
                argv[n++] = "--namespace";
                argv[n++] = planes;
                argv[n++] = "--socket";
                argv[n++] = private_daemon_socket(&h->daemon, tenant, socket);
        } else {
                argv[n++] = "--no-daemon";
                argv[n++] = "--device";
                argv[n++] = private_device();
        }
        argv[n++] = text;
        argv[n] = NULL;
}

static json_int_t number(json_t *object, const char *name)
{
        assert_true(json_is_integer(json_object_get(object, name)));
        return json_integer_value(json_object_get(object, name));
}

static struct run run_decoder(const char *const *argv, const char *device)
{
        struct proc_output o;
        struct run run;
        json_t *reply;

        assert_int_equal(proc_run(argv, NULL, DECODER_TIMEOUT_MSEC, &o), 0);
        if (o.status)
                fail_msg("decoder: status 0x%x: %s", o.status, o.err);
        reply = json_loads(o.out, JSON_DISABLE_EOF_CHECK, NULL);
        if (!reply)
                fail_msg("decoder: no JSON: %s", o.out);
        snprintf(run.logits, sizeof(run.logits), "%s",
                json_string_value(json_object_get(reply, "logits")));
        run.tokens = number(reply, "tokens");
        run.reused = number(reply, "reused");
        run.computed = number(reply, "computed");
        run.given_up = number(reply, "pages_given_up");
        assert_string_equal(json_string_value(json_object_get(reply, "device")), device);
        json_decref(reply);
        proc_output_free(&o);
        return run;
}

static struct run decode(struct harness *h, const char *tenant, const char *planes)
{
        char text[PRIVATE_PATH_MAX], socket[PRIVATE_PATH_MAX];
        const char *argv[24];

        decoder_argv(h, tenant, planes, make_text(h, text), socket, argv);
        return run_decoder(argv, private_device());
}

/* Decodes on the CPU, also where the tests run on another device. */
static struct run decode_on_host(struct harness *h)
{
        char text[PRIVATE_PATH_MAX], socket[PRIVATE_PATH_MAX];
        const char *argv[24];

        decoder_argv(h, NULL, "block", make_text(h, text), socket, argv);
        for (unsigned i = 0; argv[i]; ++i)
                if (strcmp(argv[i], "--device") == 0)
                        argv[i + 1] = "host";
        return run_decoder(argv, "host");
}

static void cold_and_warm(struct harness *h, const char *planes)
{
        struct run oracle = decode(h, NULL, planes), cold = decode(h, "a", planes);
        struct run warm = decode(h, "a", planes), other = decode(h, "c", planes);

        assert_int_equal(cold.reused, 0);
        assert_int_equal(cold.computed, cold.tokens);
        assert_true(warm.reused >= warm.tokens - 64);
        assert_true(warm.computed < 64);
        assert_int_equal(other.reused, 0);
        assert_string_equal(cold.logits, oracle.logits);
        assert_string_equal(warm.logits, oracle.logits);
        assert_string_equal(other.logits, oracle.logits);
}

HARNESS_TEST(test_block, &two_tenants)
{
        cold_and_warm(h, "block");
}

HARNESS_TEST(test_layer, &two_tenants)
{
        cold_and_warm(h, "layer");
}

/* Both layouts compute the same, and so do CPU and GPU. */
HARNESS_TEST(test_layouts_agree, &two_tenants)
{
        struct run block = decode(h, NULL, "block"), layer = decode(h, NULL, "layer");

        assert_string_equal(block.logits, layer.logits);
        assert_string_equal(block.logits, decode_on_host(h).logits);
}

/* The decoder is killed in the middle: its successor continues from its published pages, with the
 * same result. */
HARNESS_TEST(test_killed, &two_tenants)
{
        struct run oracle = decode(h, NULL, "block"), successor;
        char text[PRIVATE_PATH_MAX], socket[PRIVATE_PATH_MAX];
        const char *argv[24];
        pid_t pid;

        decoder_argv(h, "a", "block", make_text(h, text), socket, argv);
        argv[1] = "--delay-ms-per-page=20";
        pid = proc_spawn(argv, NULL, (struct proc_files){-1, -1, -1});
        assert_true(pid > 0);
        for (unsigned i = 0; i < 3000 && ctl_status(h, "pages_sealed") < 10; ++i)
                sleep_msec(1);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        successor = decode(h, "a", "block");
        assert_true(successor.reused >= 10 * 32);
        assert_true(successor.computed > 0);
        assert_string_equal(successor.logits, oracle.logits);
}

/* ---- failures ---------------------------------------------------------------------------------
 */

/* Decodes once more, with `env`, which fails with this exit status and sentence. */
static void decode_fails(
        struct harness *h, const char *tenant, const char *env, int status, const char *sentence)
{
        char text[PRIVATE_PATH_MAX], socket[PRIVATE_PATH_MAX];
        const char *const envs[] = {env, NULL};
        const char *argv[24];
        struct proc_output o;

        decoder_argv(h, tenant, "block", make_text(h, text), socket, argv);
        assert_int_equal(proc_run(argv, env ? envs : NULL, DECODER_TIMEOUT_MSEC, &o), 0);
        if (!WIFEXITED(o.status) || WEXITSTATUS(o.status) != status || !strstr(o.err, sentence))
                fail_msg("%s: status 0x%x: %s", env ? env : tenant, o.status, o.err);
        proc_output_free(&o);
}

/* Another process holds all that the tenant may have. */
HARNESS_TEST(test_no_room, &two_tenants)
{
        struct worker *hog = worker_start(h, "c", "hog", 1);
        struct run run;

        while (worker_ask(hog, "lease 512") == 0)
                ;
        decode_fails(h, "c", NULL, 3, "tenant c");
        worker_stop(hog);
        run = decode(h, "c", "block");
        assert_int_equal(run.computed, run.tokens);
}

/* Whichever call of the driver fails: the decoder names the call, and leaks nothing of the driver,
 * for which the simulated one would abort. */
HARNESS_TEST(test_driver_fails, &two_tenants)
{
        static const char *const calls[] = {"cuCtxPushCurrent", "cuStreamCreate",
                "cuModuleLoadData", "cuModuleGetFunction", "cuMemAlloc", "cuLaunchKernel",
                "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuStreamSynchronize"};

        if (!private_on_gpu() || private_on_real_gpu())
                skip();
        for (size_t i = 0; i < ARRAY_SIZE(calls); ++i) {
                char env[64];

                snprintf(env, sizeof(env), "FAKECUDA_FAIL=%s:999", calls[i]);
                decode_fails(h, NULL, env, 1, calls[i]);
        }
}

/* ---- deep layers ----------------------------------------------------------------------------- */

#define DEEP_PAGES 16 /* as the command line says */

/* The second layer of two keeps DEEP_PAGES pages of the text; `how` is the option. */
static struct run decode_deep(
        struct harness *h, const char *tenant, const char *planes, const char *how)
{
        char text[PRIVATE_PATH_MAX], socket[PRIVATE_PATH_MAX];
        const char *argv[26], *file;
        unsigned n = 0;

        decoder_argv(h, tenant, planes, make_text(h, text), socket, argv);
        while (argv[n])
                n++;
        file = argv[n - 1];
        argv[n - 1] = "--deep-layers=1";
        argv[n++] = how;
        argv[n++] = file;
        argv[n] = NULL;
        return run_decoder(argv, private_device());
}

/*
 * Deep layers give up the same pages with a daemon (through its session) as without one. This holds
 * with any part cached, and for limits in pages and in bytes. The result differs from a run with
 * all pages.
 */
HARNESS_TEST(test_deep_layers_give_up_the_same, &two_tenants)
{
        const char *by_pages = "--deep-pages=16";
        const char *by_bytes = "--deep-bytes=64KiB"; /* 32 tokens of 2 heads of 16, K and V, fp16 */
        struct run oracle, cold, warm, other, whole;
        json_int_t n_pages;

        if (private_on_gpu())
                skip();
        oracle = decode_deep(h, NULL, "block", by_pages);
        cold = decode_deep(h, "a", "block", by_pages);
        warm = decode_deep(h, "a", "block", by_bytes);
        other = decode_deep(h, "c", "layer", by_bytes);
        whole = decode(h, NULL, "block");
        n_pages = (oracle.tokens + 4 + 31) / 32;
        assert_true(n_pages > 3 * DEEP_PAGES);
        assert_int_equal(oracle.given_up, n_pages - DEEP_PAGES);
        assert_int_equal(cold.given_up, oracle.given_up);
        assert_int_equal(warm.given_up, oracle.given_up);
        assert_int_equal(whole.given_up, 0);
        assert_int_equal(cold.reused, 0);
        assert_int_equal(warm.reused, DEEP_PAGES / 2 * 32);
        assert_string_equal(cold.logits, oracle.logits);
        assert_string_equal(warm.logits, oracle.logits);
        assert_string_equal(other.logits, oracle.logits);
        assert_string_not_equal(whole.logits, oracle.logits);
}
