/* kvleasectl doctor: the table of checks, and its result. */
#include "client/ctl/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/verb.h"
#include "client/ctl/width.h"

/* In the order of output: causes before their effects. */
const struct doctor_check doctor_checks[] = {
        {"kernel", "kvleased watches its clients by pidfds, and hands its index out read-only",
                doctor_check_kernel},
        {"clock", "hits and leases read the clock, which some sources make a system call",
                doctor_check_clock},
        {"driver", "without the GPU's driver the cache is in the host's memory",
                doctor_check_driver},
        {"device-nodes", "the driver is reached by them", doctor_check_device_nodes},
        {"gpu-transport", "only memory that is a descriptor outlives a restart of kvleased",
                doctor_check_gpu_transport, doctor_found_gpus},
        {"persistence",
                "without it the driver lets go of a GPU when its last user ends, and takes seconds to start it again",
                doctor_check_persistence, doctor_found_gpus},
        {"gpu-memory", "memory of other processes can't be leased, however much is configured",
                doctor_check_gpu_memory, doctor_found_gpus},
        {"numa", "copies to and from a GPU are slower from another node's memory",
                doctor_check_numa},
        {"memory", "memory that isn't there ends processes, or makes the host swap",
                doctor_check_memory},
        {"cgroup-memory", "beyond the limit of its control group kvleased is killed",
                doctor_check_cgroup},
        {"client-cgroups",
                "a client is killed if its control group can't hold the pages that it writes",
                doctor_check_client_cgroups},
        {"overcommit", "under vm.overcommit_memory=2 memory is refused before it is used up",
                doctor_check_overcommit},
        {"huge-pages", "they make first accesses to pages, and copies of cold ones, cheaper",
                doctor_check_huge_pages},
        {"config", "kvleased doesn't start with a configuration that is wrong",
                doctor_check_config},
        {"unit", "the service manager keeps the cache and starts kvleased again",
                doctor_check_unit},
        {"daemon", "it serves all requests", doctor_check_daemon},
        {"devices", "leases of a device that failed are refused", doctor_check_devices,
                doctor_asked_daemon},
        {"index-guard", "no process but kvleased may write the index by which clients find pages",
                doctor_check_index_guard, doctor_asked_daemon},
        {"open-files", "without a descriptor no memory is leased, and no client connects",
                doctor_check_open_files, doctor_asked_daemon},
        {"locked-memory", "host memory that isn't registered with a GPU is copied slowly",
                doctor_check_locked_memory, doctor_asked_daemon},
        {"fd-store", "descriptors that are not stored are lost when kvleased restarts",
                doctor_check_fd_store, doctor_asked_daemon},
        {"runtime-dir", "users that may write there can stand in for kvleased",
                doctor_check_runtime_dir},
        {"admin-socket", "users that may use it administer every tenant",
                doctor_check_admin_socket},
        {"admin-group", "users other than root administer as its members",
                doctor_check_admin_group},
        {"tenant-room", "below one extent set every lease is refused", doctor_check_tenant_room,
                doctor_asked_daemon},
        {"events", "routers don't learn of the pages of a namespace without events",
                doctor_check_events, doctor_asked_daemon},
        {"tenant-sockets", "a process that reaches a tenant's socket is a client of the tenant",
                doctor_check_tenant_sockets, doctor_asked_daemon},
        {"state-dir", "changes of tenants by administrators are kept there",
                doctor_check_state_dir},
        {"disk", "without its file there is no disk tier", doctor_check_disk},
        {"io-uring", "the disk tier is slower with threads", doctor_check_io_uring},
        {"remote", "its settings decide whether pages for other hosts are lost, or late",
                doctor_check_remote},
        {"remote-keys", "a host finds pages of another one only if both compute the same keys",
                doctor_check_remote_keys, doctor_asked_daemon},
};
const size_t n_doctor_checks = ARRAY_SIZE(doctor_checks);

static const char *const state_names[] = {"ok", "not checked", "warning", "error"};
static const enum text_color state_colors[] = {TEXT_PLAIN, TEXT_CYAN, TEXT_YELLOW, TEXT_RED};
static const char *const state_keys[] = {"ok", "not_checked", "warning", "error"};

/* ---- findings -------------------------------------------------------------------------------- */

void doctor_find(struct doctor *d, enum doctor_state state, const char *found, ...)
{
        va_list ap;

        d->findings = need(realloc(d->findings, (d->n_findings + 1) * sizeof(*d->findings)));
        va_start(ap, found);
        d->findings[d->n_findings++] = (struct doctor_finding){
                d->check->name, d->check->why, state, text_format(found, ap), NULL};
        va_end(ap);
}

bool doctor_has_found(const struct doctor *d)
{
        return d->n_findings > d->n_before;
}

void doctor_find_well(struct doctor *d, const char *found, ...)
{
        _cleanup_free_ char *text = NULL;
        va_list ap;

        if (doctor_has_found(d))
                return;
        va_start(ap, found);
        text = text_format(found, ap);
        va_end(ap);
        doctor_find(d, DOCTOR_OK, "%s", text);
}

void doctor_advise(struct doctor *d, const char *remedy, ...)
{
        struct doctor_finding *last = &d->findings[d->n_findings - 1];
        va_list ap;

        assert(d->n_findings > 0 && last->check == d->check->name && !last->remedy);
        va_start(ap, remedy);
        last->remedy = text_format(remedy, ap);
        va_end(ap);
}

static void run_check(struct doctor *d, const struct doctor_check *check)
{
        d->check = check;
        d->n_before = d->n_findings;
        if (!check->applies || check->applies(d))
                check->run(d);
        assert(doctor_has_found(d));
}

bool doctor_run(struct doctor *d, const char *name)
{
        for (size_t i = 0; i < n_doctor_checks; i++)
                if (strcmp(doctor_checks[i].name, name) == 0) {
                        run_check(d, &doctor_checks[i]);
                        return true;
                }
        return false;
}

static unsigned count_findings(const struct doctor *d, enum doctor_state state)
{
        unsigned n = 0;

        for (size_t i = 0; i < d->n_findings; i++)
                n += d->findings[i].state == state;
        return n;
}

/* ---- showing --------------------------------------------------------------------------------- */

static json_t *text_or_null(const char *text)
{
        return text ? show_json_text(text) : json_null();
}

static void print_json(const struct doctor *d)
{
        json_t *list = need(json_array());

        for (size_t i = 0; i < d->n_findings; i++) {
                const struct doctor_finding *f = &d->findings[i];

                json_array_append_new(list,
                        need(json_pack("{s:s, s:s, s:o, s:s, s:o}", "check", f->check, "state",
                                state_keys[f->state], "found", show_json_text(f->found), "why",
                                f->why, "remedy", text_or_null(f->remedy))));
        }
        show_json(json_pack("{s:i, s:i, s:i, s:i, s:o}", "errors", count_findings(d, DOCTOR_ERROR),
                "warnings", count_findings(d, DOCTOR_WARNING), "not_checked",
                count_findings(d, DOCTOR_UNCHECKED), "ok", count_findings(d, DOCTOR_OK), "findings",
                list));
}

/* Prints a finding, wrapped at the terminal's width; elsewhere as one line. */
static void print_finding(const struct doctor_finding *f)
{
        size_t width = output_width() > 0 ? output_width() : SIZE_MAX;
        char left[64];

        snprintf(left, sizeof(left), "%-11s  %-14s  ", state_names[f->state], f->check);
        print_colored(state_colors[f->state], left, f->found, width);
        snprintf(left, sizeof(left), "%29swhy: ", "");
        if (f->state >= DOCTOR_WARNING)
                print_wrapped(stdout, left, f->why, width);
        snprintf(left, sizeof(left), "%29sdo:  ", "");
        if (f->remedy)
                print_wrapped(stdout, left, f->remedy, width);
}

static void print_state(const struct doctor *d, enum doctor_state state)
{
        for (size_t i = 0; i < d->n_findings; i++)
                if (d->findings[i].state == state)
                        print_finding(&d->findings[i]);
}

/* Prints the worst findings first. */
static void print_text(const struct doctor *d, bool all)
{
        print_state(d, DOCTOR_ERROR);
        print_state(d, DOCTOR_WARNING);
        print_state(d, DOCTOR_UNCHECKED);
        if (all)
                print_state(d, DOCTOR_OK);
        printf("%serrors: %u, warnings: %u, not checked: %u, ok: %u%s\n",
                d->n_findings > 0 ? "\n" : "", count_findings(d, DOCTOR_ERROR),
                count_findings(d, DOCTOR_WARNING), count_findings(d, DOCTOR_UNCHECKED),
                count_findings(d, DOCTOR_OK), all ? "" : " (--all shows these)");
}

int verb_doctor(const struct ctl *ctl)
{
        const char *root = ctl->options[CTL_OPTION_ROOT];
        struct doctor *d = need(calloc(1, sizeof(*d)));
        int code;

        d->root = root && strcmp(root, "/") != 0 ? root : "";
        d->socket_path = ctl->socket_path;
        d->binary = ctl->options[CTL_OPTION_BINARY];
        doctor_gather(d);
        for (size_t i = 0; i < n_doctor_checks; i++)
                run_check(d, &doctor_checks[i]);
        if (ctl->format.json)
                print_json(d);
        else
                print_text(d, ctl->options[CTL_OPTION_ALL]);
        code = count_findings(d, DOCTOR_ERROR)     ? CTL_ERROR
               : count_findings(d, DOCTOR_WARNING) ? CTL_WARNING
                                                   : CTL_OK;
        doctor_deinit(d);
        free(d);
        return code;
}
