/*
 * The daemon starts with GPUs that aren't there, and with drivers that don't work. If the
 * configuration demands the device it exits with 4 and a sentence. With 'auto' it runs on the host.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "tests/integration/gpu-support.h"

#define EXIT_DEVICE 4
#define NOT_THERE   "GPU-00000000-1111-2222-3333-444444444444"

struct refusal {
        const char *env;   /* of the daemon */
        const char *words; /* that its sentence has */
};

static const struct refusal refusals[] = {
        {"LD_LIBRARY_PATH=", "libcuda.so.1"},
        {"FAKECUDA_FAIL=cuInit:100", "no"},
        {"FAKECUDA_FAIL=cuInit:34", "stub"},
        {"FAKECUDA_FAIL=cuInit:803", "driver"},
        {"FAKECUDA_FAIL=cuInit:802:1:0", "fabric"},
        {"FAKECUDA_VERSION=11000", "11.3"},
        {"FAKECUDA_DEVICES=0", "no"},
};

/* Without the simulated driver the machine's own would be found. */
static bool is_possible(const struct refusal *r)
{
        return !strstr(r->env, "LD_LIBRARY_PATH") || access("/dev/nvidiactl", F_OK) != 0;
}

static void assert_refused(const struct private_options *o, const char *const *words)
{
        struct private_daemon d;
        char *text;
        size_t len;
        int r;

        assert_int_equal(private_daemon_init(&d, o), 0);
        r = private_daemon_start(&d);
        assert_int_equal(file_read(d.log, 1 << 20, &text, &len), 0);
        if (r != -ECHILD || !WIFEXITED(d.status) || WEXITSTATUS(d.status) != EXIT_DEVICE)
                fail_msg("%d, status 0x%x instead of exit status 4: %s", r, d.status, text);
        for (; *words; ++words)
                if (!strstr(text, *words))
                        fail_msg("no \"%s\" in: %s", *words, text);
        print_message("%s", text);
        free(text);
        private_daemon_deinit(&d);
}

TEST_BARE(test_wrong_uuid)
{
        const struct private_options o = {.devices = NOT_THERE};
        const char *const words[] = {NOT_THERE, private_device(), "host", NULL};

        assert_refused(&o, words);
}

TEST_BARE(test_demanded)
{
        gpu_needs_double();
        for (unsigned i = 0; i < ARRAY_SIZE(refusals); ++i) {
                const char *const env[] = {refusals[i].env, NULL};
                const struct private_options o = {.env = env};
                const char *const words[] = {private_device(), refusals[i].words, NULL};

                if (is_possible(&refusals[i]))
                        assert_refused(&o, words);
        }
}

/* With 'auto' the host's memory is used, like on a machine without a GPU. */
static void run_auto(const struct refusal *refusal)
{
        const char *const env[] = {refusal->env, NULL};
        const struct private_options o = {.env = env, .devices = "auto"};
        void *state = (void *)&o;
        struct harness *h;
        struct worker *w;
        uint32_t pages[2];
        char *name;

        assert_int_equal(harness_setup(&state), 0);
        h = state;
        name = gpu_device_text(h, "name");
        if (strcmp(name, "host") != 0)
                fail_msg("%s: runs on %s", refusal->env, name);
        free(name);
        w = worker_start(h, "a", "ns", 1);
        worker_publish_chain(w, 1, 2, pages);
        worker_stop(w);
        assert_int_equal(harness_teardown(&state), 0);
}

TEST_BARE(test_auto)
{
        gpu_needs_double();
        for (unsigned i = 0; i < ARRAY_SIZE(refusals); ++i)
                if (is_possible(&refusals[i]))
                        run_auto(&refusals[i]);
}

/* 'auto' uses a GPU that is there. */
static const struct private_options automatic = {.devices = "auto"};

HARNESS_TEST(test_auto_finds, &automatic)
{
        char *name = gpu_device_text(h, "name"), *transport = gpu_device_text(h, "transport");
        struct worker *w = worker_start(h, "a", "ns", 1);
        uint32_t pages[2];

        assert_string_equal(name, private_device());
        assert_string_equal(transport, private_transport());
        free(name);
        free(transport);
        worker_publish_chain(w, 1, 2, pages);
}

/* A GPU that supports neither the configured transport nor another one. */
TEST_BARE(test_without_transport)
{
        bool is_vmm = strcmp(private_transport(), "vmm") == 0;
        const char *const env[] = {is_vmm ? "FAKECUDA_NO=vmm,ipc" : "FAKECUDA_NO=ipc", NULL};
        const struct private_options o = {.env = env};
        const char *const words[] = {private_device(), "hand memory", NULL};

        gpu_needs_double();
        assert_refused(&o, words);
}

/* A GPU without VMM is used by cudaIpc, with a message. */
static const char *const no_vmm[] = {"FAKECUDA_NO=vmm", NULL};
static const struct private_options without_vmm = {
        .env = no_vmm, .device_lines = "memory = 256MiB\nextent = 2MiB\ntransport = auto\n"};

TEST_BARE(test_without_vmm)
{
        struct harness *h;
        struct worker *a, *b;
        uint32_t pages[4], found[4];
        void *own = (void *)&without_vmm;
        char *transport;

        gpu_needs_double();
        if (strcmp(private_transport(), "vmm") != 0)
                return; /* it is used anyway */
        assert_int_equal(harness_setup(&own), 0);
        h = own;
        gpu_assert_logged(h, "cudaipc");
        transport = gpu_device_text(h, "transport");
        assert_string_equal(transport, "cudaipc");
        free(transport);
        a = worker_start(h, "a", "ns", 1);
        b = worker_start(h, "a", "ns", 1);
        worker_publish_chain(a, 1, 4, pages);
        worker_tell(b, "lookup 1:0-3");
        assert_int_equal(worker_numbers(b, found, 4), 4);
        worker_tell(b, "verify %u 1003", found[3]);
        worker_stop(a);
        worker_stop(b);
        assert_int_equal(harness_teardown(&own), 0);
}
