#include "tests/unit/test-support.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "kvlease-version.h"
#include "tests/unit/doctor-fixture.h"

int host_setup(void **state)
{
        struct host *h = calloc(1, sizeof(*h));

        if (!h || test_fds_note(state) < 0)
                return -1;
        snprintf(h->dir, sizeof(h->dir), "%s", test_dir_make());
        h->d.root = h->dir;
        h->d.socket_path = "/run/kvlease/admin.sock";
        h->d.daemon.state = DAEMON_ABSENT;
        h->d.driver = (struct doctor_driver){.asked = true, .result = -ENODEV};
        snprintf(h->d.driver.why, sizeof(h->d.driver.why), "no driver");
        doctor_gather_config(&h->d);
        doctor_gather_unit(&h->d);
        *state = h;
        return 0;
}

int host_teardown(void **state)
{
        struct host *h = *state;

        doctor_deinit(&h->d);
        test_dir_remove(h->dir);
        free(h);
        return test_fds_check(state);
}

const char *host_path(const struct host *h, const char *path)
{
        static char full[1024];

        snprintf(full, sizeof(full), "%s%s", h->dir, path);
        return full;
}

void host_write(struct host *h, const char *path, const char *format, ...)
{
        char full[1024];
        va_list ap;
        FILE *to;

        snprintf(full, sizeof(full), "%s", host_path(h, path));
        for (char *at = full + strlen(h->dir) + 1; (at = strchr(at, '/')); *at++ = '/') {
                *at = '\0';
                mkdir(full, 0755);
        }
        to = fopen(full, "we");
        assert_non_null(to);
        va_start(ap, format);
        assert_true(vfprintf(to, format, ap) >= 0);
        va_end(ap);
        assert_int_equal(fclose(to), 0);
}

void host_configure(struct host *h, const char *text)
{
        host_write(h, "/etc/kvlease/kvleased.conf", "%s", text);
        free(h->d.config_path);
        h->d.config_path = NULL;
        lines_free(&h->d.config);
        doctor_gather_config(&h->d);
        assert_int_equal(h->d.config_error, 0);
}

void host_start_daemon(struct host *h)
{
        h->d.daemon.state = DAEMON_UP;
        h->d.daemon.is_here = true;
        h->d.daemon.pid = 42;
        h->d.daemon.version = strdup(KVLEASE_VERSION);
        h->d.daemon.no_events = strdup("");
        h->d.daemon.segments = strdup("read-only mount");
        h->d.daemon.config_file = strdup("/etc/kvlease/kvleased.conf");
}

struct figures_device *host_add_device(struct host *h, const char *name, const char *tier,
        const char *backend, uint64_t budget_bytes)
{
        struct doctor_daemon *p = &h->d.daemon;
        struct figures_device *row;

        p->devices = realloc(p->devices, (p->n_devices + 1) * sizeof(*p->devices));
        assert_non_null(p->devices);
        row = &p->devices[p->n_devices++];
        *row = (struct figures_device){.name = strdup(name),
                .tier = strdup(tier),
                .backend = strdup(backend),
                .transport = strdup("memfd"),
                .state = strdup("ok"),
                .why = strdup(""),
                .budget_bytes = budget_bytes};
        return row;
}

struct driver_gpu *host_add_gpu(struct host *h, const char *name, uint64_t total_bytes)
{
        struct doctor_driver *v = &h->d.driver;
        struct driver_gpu *g;

        v->result = 0;
        v->cuda_version = 12040;
        g = &v->gpus[v->n_gpus++];
        snprintf(g->name, sizeof(g->name), "%s", name);
        g->total_bytes = total_bytes;
        g->numa_node = -1;
        g->has_vmm = true;
        g->has_management = true;
        g->persistence = PERSISTENCE_ON;
        return g;
}

void host_write_unit(struct host *h, const char *text)
{
        host_write(h, "/usr/lib/systemd/system/kvleased.service", "%s", text);
        free(h->d.unit_name);
        free(h->d.unit_path);
        h->d.unit_name = h->d.unit_path = NULL;
        lines_free(&h->d.unit);
        doctor_gather_unit(&h->d);
        assert_non_null(h->d.unit_path);
}

static bool fits(const char *text, const char *part)
{
        return part ? text && strstr(text, part) : !text;
}

void host_expect(struct host *h, const char *check, enum doctor_state state, const char *found,
        const char *remedy)
{
        size_t first = h->d.n_findings;
        bool is_there = false;

        assert_true(doctor_run(&h->d, check));
        assert_true(h->d.n_findings > first);
        for (size_t i = first; i < h->d.n_findings; i++) {
                const struct doctor_finding *f = &h->d.findings[i];

                is_there |= f->state == state && fits(f->found, found) && fits(f->remedy, remedy);
        }
        if (is_there)
                return;
        for (size_t i = first; i < h->d.n_findings; i++)
                print_error("%s: state %d: %s; do: %s\n", check, h->d.findings[i].state,
                        h->d.findings[i].found,
                        h->d.findings[i].remedy ? h->d.findings[i].remedy : "nothing");
        fail_msg("%s: not found: state %d, \"%s\", \"%s\"", check, state, found,
                remedy ? remedy : "nothing");
}
