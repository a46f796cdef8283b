/*
 * kvl-gpu-facts: finds out the facts about a GPU that the design stands on, one process each, and
 * writes a JSON object.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#include "base/fd.h"
#include "base/macros.h"
#include "tests/gpu/facts.h"
#include "tests/integration/private-daemon.h"

#define EXIT_NO_GPU   77 /* meson: skipped */
#define PROBE_SECONDS 60
#define QUICK_PART    5
#define MIN_SECONDS   15

static const struct fact_row *const tables[] = {facts_life, facts_cost, facts_copy, facts_sync};
static const char *const outcomes[] = {"failed", "verified", "refuted", "skipped"};

static int result_fd = -1;

/* ---- results -------------------------------------------------------------------------------- */

static json_t *fact_to_json(const struct fact *f)
{
        json_t *values = json_array();

        for (unsigned i = 0; i < f->n_values; ++i)
                json_array_append_new(
                        values, json_pack("{s:s, s:f, s:s}", "name", f->values[i].name, "value",
                                        f->values[i].value, "unit", f->values[i].unit));
        return json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", f->id, "claim", f->claim, "outcome",
                outcomes[f->outcome], "why", f->why, "values", values);
}

static void send_json(json_t *object)
{
        char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;

        for (size_t done = 0, len = text ? strlen(text) : 0; done < len;) {
                ssize_t n = write(result_fd, text + done, len - done);

                if (n <= 0)
                        break;
                done += (size_t)n;
        }
        free(text);
        json_decref(object);
}

static void finish_fact(struct fact *f)
{
        send_json(fact_to_json(f));
}

/* ---- children ------------------------------------------------------------------------------- */

/* Reads to the end; NULL where there is no object. */
static json_t *read_json(int fd, uint64_t deadline)
{
        char *text = NULL;
        size_t size = 0, n = 0;
        json_t *object;

        for (;;) {
                struct pollfd p = {.fd = fd, .events = POLLIN};
                uint64_t now = now_nsec();
                ssize_t got;

                if (now >= deadline || poll(&p, 1, (int)((deadline - now) / 1000000) + 1) < 0)
                        break;
                if (!p.revents)
                        continue;
                if (n + 4096 > size) {
                        char *more = realloc(text, size += 65536);

                        if (!more)
                                break;
                        text = more;
                }
                got = read(fd, text + n, size - n);
                if (got <= 0)
                        break;
                n += (size_t)got;
        }
        object = n ? json_loadb(text, n, 0, NULL) : NULL;
        free(text);
        return object;
}

/* Runs fn in a process group of its own, which is killed in the end. *ret_status as of waitpid(),
 * -1: it took too long. */
static json_t *run_child(void (*fn)(void *data), void *data, unsigned seconds, int *ret_status)
{
        uint64_t deadline = now_nsec() + seconds * UINT64_C(1000000000);
        json_t *object;
        int pipes[2];
        pid_t pid;

        fflush(NULL);
        if (pipe(pipes) < 0 || (pid = fork()) < 0) {
                fprintf(stderr, "kvl-gpu-facts: %s\n", strerror(errno));
                exit(1);
        }
        if (pid == 0) {
                setpgid(0, 0);
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                close(pipes[0]);
                result_fd = pipes[1];
                fn(data);
                exit(0);
        }
        setpgid(pid, pid);
        close(pipes[1]);
        object = read_json(pipes[0], deadline);
        close(pipes[0]);
        /* The process has reported: give it a little time to exit. */
        if (proc_wait(pid, now_nsec() < deadline ? 10000 : 0, ret_status) < 0) {
                kill(-pid, SIGKILL);
                waitpid(pid, ret_status, 0);
                *ret_status = -1;
        }
        kill(-pid, SIGKILL);
        return object;
}

/* ---- the device ----------------------------------------------------------------------------- */

static void probe(void *data)
{
        char why[CUDA_WHY_BYTES];
        struct device_facts d = {0};
        int r = gpu_probe(&d, why);

        if (r < 0)
                send_json(json_pack("{s:i, s:s}", "errno", -r, "why", why));
        else
                send_json(json_pack(
                        "{s:s, s:s, s:i, s:i, s:i, s:i, s:b, s:b, s:b, s:b, s:I, s:I, s:I}", "name",
                        d.name, "uuid", d.uuid, "driver_version", d.driver_version, "compute_major",
                        d.compute_major, "compute_minor", d.compute_minor, "capabilities",
                        (int)d.capabilities, "is_double", d.is_double, "has_memops", d.has_memops,
                        "has_posix_fd", d.has_posix_fd, "has_read_only_host", d.has_read_only_host,
                        "total_bytes", (json_int_t)d.total_bytes, "free_bytes",
                        (json_int_t)d.free_bytes, "granularity_bytes",
                        (json_int_t)d.granularity_bytes));
}

static uint64_t number(const json_t *object, const char *name)
{
        return (uint64_t)json_integer_value(json_object_get(object, name));
}

static bool flag(const json_t *object, const char *name)
{
        return json_is_true(json_object_get(object, name));
}

static void take_device(const json_t *o)
{
        the_device = (struct device_facts){
                .driver_version = (int)number(o, "driver_version"),
                .compute_major = (int)number(o, "compute_major"),
                .compute_minor = (int)number(o, "compute_minor"),
                .capabilities = (unsigned)number(o, "capabilities"),
                .is_double = flag(o, "is_double"),
                .has_memops = flag(o, "has_memops"),
                .has_posix_fd = flag(o, "has_posix_fd"),
                .has_read_only_host = flag(o, "has_read_only_host"),
                .total_bytes = number(o, "total_bytes"),
                .free_bytes = number(o, "free_bytes"),
                .granularity_bytes = number(o, "granularity_bytes"),
        };
        snprintf(the_device.name, sizeof(the_device.name), "%s",
                json_string_value(json_object_get(o, "name")));
        snprintf(the_device.uuid, sizeof(the_device.uuid), "%s",
                json_string_value(json_object_get(o, "uuid")));
}

/* Returns the device, owned; NULL: exit with *ret_status. */
static json_t *find_device(int *ret_status)
{
        int status;
        json_t *object = run_child(probe, NULL, PROBE_SECONDS, &status);
        const char *why = json_string_value(json_object_get(object, "why"));

        *ret_status = 1;
        if (!object || (!why && !json_object_get(object, "name"))) {
                fprintf(stderr, "kvl-gpu-facts: the driver can't be asked (%s)\n",
                        status == -1 ? "it hangs" : "the process that asked it failed");
        } else if (why) {
                fprintf(stderr, "kvl-gpu-facts: no GPU that can be used: %s\n", why);
                *ret_status = number(object, "errno") == ENODEV ? EXIT_NO_GPU : 1;
        } else {
                take_device(object);
                return object;
        }
        json_decref(object);
        return NULL;
}

/* ---- facts ---------------------------------------------------------------------------------- */

struct one_fact {
        const struct fact_row *row;
        bool quick;
};

static void run_fact(void *data)
{
        static struct fact f;
        const struct one_fact *one = data;

        f = (struct fact){.id = one->row->id, .claim = one->row->claim, .quick = one->quick};
        fact_die_into(&f, finish_fact);
        one->row->fn(&f);
        finish_fact(&f);
}

static const char *why_not(const struct fact_row *row)
{
        if (row->needs_vmm && !the_device.has_posix_fd)
                return "the device doesn't share memory by descriptors";
        if (row->needs_ipc && !(the_device.capabilities & CUDA_HAS_IPC))
                return "the driver has no legacy IPC";
        if (row->needs_kernels && !gpu_has_kernels())
                return "it needs a kernel, and none can be run here";
        if (row->not_for_double && the_device.is_double)
                return "the double aborts on what it does";
        return NULL;
}

/* Owned. */
static json_t *find_out(const struct fact_row *row, bool quick)
{
        struct fact f = {.id = row->id, .claim = row->claim, .quick = quick};
        struct one_fact one = {row, quick};
        unsigned seconds =
                quick ? MAX(row->seconds / QUICK_PART, (unsigned)MIN_SECONDS) : row->seconds;
        json_t *object;
        int status;

        if (why_not(row)) {
                fact_skip(&f, "%s", why_not(row));
                return fact_to_json(&f);
        }
        object = run_child(run_fact, &one, seconds, &status);
        if (status == 0 && object)
                return object;
        if (!object)
                object = fact_to_json(&f);
        /* If the process reported its death, its sentence stays. */
        if (status == -1)
                snprintf(f.why, sizeof(f.why), "it took more than %u s", seconds);
        else if (WIFSIGNALED(status))
                snprintf(f.why, sizeof(f.why), "it was killed by signal %d", WTERMSIG(status));
        json_object_set_new(object, "outcome", json_string(outcomes[FACT_FAILED]));
        if (f.why[0])
                json_object_set_new(object, "why", json_string(f.why));
        return object;
}

static bool is_wanted(const struct fact_row *row, char **ids, int n_ids)
{
        for (int i = 0; i < n_ids; ++i)
                if (strcmp(ids[i], row->id) == 0)
                        return true;
        return n_ids == 0;
}

/* Runs all wanted facts, and writes `path` after each, so that no result is lost. */
static int run_all(json_t *device, const char *path, bool quick, char **ids, int n_ids)
{
        json_t *top = json_object(), *list = json_array();
        bool has_failed = false;
        int r = 0;

        json_object_set(top, "device", device);
        json_object_set_new(top, "facts", list);
        for (unsigned t = 0; t < ARRAY_SIZE(tables); ++t)
                for (const struct fact_row *row = tables[t]; row->id; ++row) {
                        json_t *object;

                        if (!is_wanted(row, ids, n_ids))
                                continue;
                        object = find_out(row, quick);
                        fprintf(stderr, "%-5s %-9s %s: %s\n", row->id,
                                json_string_value(json_object_get(object, "outcome")), row->claim,
                                json_string_value(json_object_get(object, "why")));
                        has_failed |= strcmp(json_string_value(json_object_get(object, "outcome")),
                                              "failed") == 0;
                        json_array_append_new(list, object);
                        if (path)
                                r |= json_dump_file(
                                        top, path, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
                }
        if (!path)
                r = json_dumpf(top, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
        json_decref(top);
        return r || has_failed ? 1 : 0;
}

static void list_facts(void)
{
        for (unsigned t = 0; t < ARRAY_SIZE(tables); ++t)
                for (const struct fact_row *row = tables[t]; row->id; ++row)
                        printf("%-5s %s\n", row->id, row->claim);
}

static void usage(FILE *to)
{
        fputs("Usage: kvl-gpu-facts [--quick] [--out FILE] [ID...]\n"
              "Finds out facts about the GPU ($KVL_DEVICE_UUID, else the first) and its driver.\n\n"
              "  --quick     little memory, few rounds\n"
              "  --out FILE  the JSON goes there, after each fact\n"
              "  --probe     only the device, as JSON\n"
              "  --list      what can be found out\n\n"
              "Exit status: 0 all found out, verified or not; 1 something failed; 77 no GPU.\n",
                to);
}

int main(int argc, char **argv)
{
        bool quick = false, only_probe = false;
        const char *path = NULL;
        json_t *device;
        int i, status;

        for (i = 1; i < argc && argv[i][0] == '-'; ++i) {
                if (strcmp(argv[i], "--quick") == 0) {
                        quick = true;
                } else if (strcmp(argv[i], "--out") == 0 && i + 1 < argc) {
                        path = argv[++i];
                } else if (strcmp(argv[i], "--probe") == 0) {
                        only_probe = true;
                } else if (strcmp(argv[i], "--list") == 0) {
                        list_facts();
                        return 0;
                } else {
                        usage(strcmp(argv[i], "--help") == 0 ? stdout : stderr);
                        return strcmp(argv[i], "--help") == 0 ? 0 : 1;
                }
        }
        device = find_device(&status);
        if (!device)
                return status;
        if (only_probe) {
                json_dumpf(device, stdout, JSON_INDENT(2));
                printf("\n");
                status = 0;
        } else {
                status = run_all(device, path, quick, argv + i, argc - i);
        }
        json_decref(device);
        return status;
}
