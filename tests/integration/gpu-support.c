#include "tests/integration/gpu-support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"

#define WAIT_MSEC 10000

void gpu_needs_double(void)
{
        if (!private_on_real_gpu())
                return;
        print_message("skipped: injects faults into the driver double\n");
        skip();
}

void gpu_inject(struct harness *h, const char *lines)
{
        assert_int_equal(private_daemon_inject(&h->daemon, lines), 0);
}

void gpu_assert_logged(struct harness *h, const char *words)
{
        size_t len;
        char *text;

        assert_int_equal(file_read(h->daemon.log, 16 << 20, &text, &len), 0);
        if (!strstr(text, words))
                fail_msg("no \"%s\" in: %s", words, text);
        free(text);
}

char *gpu_device_text(struct harness *h, const char *member)
{
        json_t *reply = ctl_json(h, "devices"), *list = ctl_list(reply, "devices");
        const char *text = json_string_value(json_object_get(json_array_get(list, 0), member));
        char *copy = text ? strdup(text) : NULL;

        json_decref(reply);
        if (!copy)
                fail_msg("no \"%s\" in kvleasectl devices", member);
        return copy;
}

void gpu_wait_state(struct harness *h, const char *state)
{
        uint64_t end = now_nsec() + WAIT_MSEC * UINT64_C(1000000);
        char *is;

        for (;;) {
                is = gpu_device_text(h, "state");
                if (strcmp(is, state) == 0)
                        break;
                if (now_nsec() > end)
                        fail_msg("the device's state stays %s, %s was expected", is, state);
                free(is);
                sleep_msec(5);
        }
        free(is);
}

struct worker *gpu_spawn(struct harness *h, const char *const *env)
{
        return worker_spawn_with(h, program_worker(), env);
}

void gpu_assert_says(const struct worker *w, const char *words)
{
        if (!strstr(w->rest, words))
                fail_msg("no \"%s\" in \"%s\"", words, w->rest);
}
