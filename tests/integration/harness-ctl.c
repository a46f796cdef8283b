/* kvleasectl for tests; declared in harness.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/macros.h"
#include "tests/integration/harness.h"

#define CTL_TIMEOUT_MSEC 60000
#define CTL_WAIT_MSEC    30000

/* Appends the words of a line, cut in place. */
static unsigned split(char *line, const char **argv, unsigned n, unsigned max)
{
        char *save = NULL;

        for (char *word = strtok_r(line, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
                assert(n + 1 < max);
                argv[n++] = word;
        }
        argv[n] = NULL;
        return n;
}

int ctl_run(struct harness *h, const char *words, struct proc_output *ret_output)
{
        const char *argv[32] = {program_ctl(), "--socket", h->daemon.admin};
        char line[512];
        int r;

        snprintf(line, sizeof(line), "%s", words);
        split(line, argv, 3, ARRAY_SIZE(argv));
        r = proc_run(argv, NULL, CTL_TIMEOUT_MSEC, ret_output);
        assert_int_equal(r, 0);
        assert_true(WIFEXITED(ret_output->status));
        return WEXITSTATUS(ret_output->status);
}

void ctl(struct harness *h, const char *words)
{
        struct proc_output o;
        int status = ctl_run(h, words, &o);

        if (status)
                fail_msg("kvleasectl %s: exit status %d: %s%s", words, status, o.out, o.err);
        proc_output_free(&o);
}

json_t *ctl_json(struct harness *h, const char *words)
{
        struct proc_output o;
        json_error_t error;
        char line[512];
        json_t *reply;
        int status;

        snprintf(line, sizeof(line), "--json %s", words);
        status = ctl_run(h, line, &o);
        if (status)
                fail_msg("kvleasectl %s: exit status %d: %s%s", line, status, o.out, o.err);
        reply = json_loads(o.out, 0, &error);
        if (!reply)
                fail_msg("kvleasectl %s: %s in %s", line, error.text, o.out);
        proc_output_free(&o);
        return reply;
}

json_t *ctl_list(json_t *reply, const char *name)
{
        json_t *list = json_is_array(reply) ? reply : json_object_get(reply, name);

        if (!json_is_array(list))
                fail_msg("no list of %s in kvleasectl's reply", name);
        return list;
}

static uint64_t number(json_t *object, const char *name)
{
        json_t *value = json_object_get(object, name);

        if (!json_is_integer(value))
                fail_msg("no number \"%s\" in kvleasectl's reply", name);
        return (uint64_t)json_integer_value(value);
}

uint64_t ctl_status(struct harness *h, const char *name)
{
        json_t *reply = ctl_json(h, "status");
        uint64_t value = number(reply, name);

        json_decref(reply);
        return value;
}

void ctl_wait_status(struct harness *h, const char *name, uint64_t value)
{
        /* The daemon first reads all that a flood left in its sockets, which takes long under
         * valgrind. */
        uint64_t msec = private_under_valgrind() ? 10 * CTL_WAIT_MSEC : CTL_WAIT_MSEC;
        uint64_t end = now_nsec() + msec * UINT64_C(1000000), is;

        while ((is = ctl_status(h, name)) != value) {
                if (now_nsec() > end)
                        fail_msg("%s stays %llu, %llu was expected", name, (unsigned long long)is,
                                (unsigned long long)value);
                sleep_msec(5);
        }
}

void ctl_wait_still(struct harness *h, unsigned n_readings)
{
        uint64_t before = UINT64_MAX;
        unsigned n_still = 0;

        for (unsigned i = 0; i < 1000 && n_still < n_readings; ++i) {
                json_t *status = ctl_json(h, "status");
                uint64_t now = 0;

                /* A tier that doesn't exist is null, which counts as 0. */
                now += (uint64_t)json_integer_value(json_object_get(status, "disk_pages_sealed"));
                now += (uint64_t)json_integer_value(json_object_get(status, "disk_arrived"));
                now += (uint64_t)json_integer_value(json_object_get(status, "host_arrived"));
                json_decref(status);
                n_still = now == before ? n_still + 1 : 0;
                before = now;
                sleep_msec(10);
        }
        assert_int_equal(n_still, n_readings);
}

uint64_t ctl_tenant(struct harness *h, const char *tenant, const char *name)
{
        json_t *reply = ctl_json(h, "tenants list"), *t;
        uint64_t value = UINT64_MAX;
        size_t i;

        json_array_foreach(ctl_list(reply, "tenants"), i, t)
        {
                if (strcmp(json_string_value(json_object_get(t, "name")), tenant) == 0)
                        value = number(t, name);
        }
        json_decref(reply);
        if (value == UINT64_MAX)
                fail_msg("no tenant %s in kvleasectl's reply", tenant);
        return value;
}
