#include "client/ctl/verdict.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"
#include "client/ctl/width.h"

/* Parts of a limit at which an administrator should look. Not tuned: as the alerts (packaging/). */
#define KEPT_PERCENT          90
#define PENDING_PERCENT       80
#define FRAGMENTED_THOUSANDTH 300

typedef struct figures_status status_row;

static const char *const severity_names[N_SEVERITIES] = {
        [SEVERITY_ERROR] = "error",
        [SEVERITY_WARNING] = "warning",
        [SEVERITY_NOTE] = "note",
};

static const enum text_color severity_colors[N_SEVERITIES] = {
        [SEVERITY_ERROR] = TEXT_RED,
        [SEVERITY_WARNING] = TEXT_YELLOW,
        [SEVERITY_NOTE] = TEXT_CYAN,
};

KVL_PRINTF(4, 5)
static void add_finding(
        struct verdict *v, enum severity severity, const char *remedy, const char *format, ...)
{
        va_list ap;
        char *what;

        va_start(ap, format);
        what = text_format(format, ap);
        va_end(ap);
        v->findings = need(realloc(v->findings, (v->n_findings + 1) * sizeof(*v->findings)));
        v->findings[v->n_findings++] = (struct finding){severity, what, remedy};
}

/* ---- devices --------------------------------------------------------------------------------- */

void verdict_of_device(const void *row, void *verdict)
{
        const struct figures_device *d = row;
        struct verdict *v = verdict;
        char bytes[32];

        v->n_devices += strcmp(d->tier, "device") == 0;
        /* The status covers disks. */
        if (strcmp(d->tier, "disk") != 0 && strcmp(d->state, "ok") != 0)
                add_finding(v, SEVERITY_ERROR,
                        "see nvidia-smi and dmesg; once it works, kvleasectl restart",
                        "%s is %s, and nothing new is leased on it: %s", d->name, d->state,
                        d->why[0] ? d->why : "no reason is given");
        if (d->missing_bytes > 0)
                add_finding(v, SEVERITY_WARNING,
                        "kvleasectl regions names these tenants, kvleasectl clients the late processes",
                        "%s of the memory reserved on %s is still with other tenants",
                        show_bytes(v->format, d->missing_bytes, bytes), d->name);
}

/* ---- the daemon ------------------------------------------------------------------------------ */

static void look_at_daemon(struct verdict *v, const status_row *s)
{
        if (s->clients_lost > 0 || s->tenants_refused > 0)
                add_finding(v, SEVERITY_ERROR,
                        "report it with the log; kvleasectl restart lets them in again",
                        "kvleased died more than once serving clients (not taken over: %" PRIu64
                        ", tenants whose new clients are refused: %" PRIu64 ")",
                        s->clients_lost, s->tenants_refused);
        if (s->draining)
                add_finding(v, SEVERITY_WARNING, "kvleasectl drain --off, unless it is meant",
                        "kvleased is draining: it grants nothing new");
        if (v->n_devices == 0)
                add_finding(v, SEVERITY_WARNING,
                        "set 'devices' in [daemon], then kvleasectl restart; kvleasectl doctor looks at this host's GPUs",
                        "there is no device: no memory can be leased");
        if (s->n_tenants == 0)
                add_finding(v, SEVERITY_WARNING, "kvleasectl tenants add NAME limit=SIZE",
                        "there is no tenant: no client can connect");
        if (s->tenants_without_room > 0)
                add_finding(v, SEVERITY_WARNING,
                        "kvleasectl tenants set, or 'extent' in [device NAME] and a restart",
                        "tenants that can lease no page: %" PRIu64 "; %s", s->tenants_without_room,
                        s->no_room);
        if (s->namespaces_without_events > 0)
                add_finding(v, SEVERITY_WARNING,
                        "kvleasectl tenants set NAME events=SIZE, then kvleasectl restart",
                        "namespaces whose pages routers don't learn of: %" PRIu64 "; %s",
                        s->namespaces_without_events, s->no_events);
        if (s->recording && s->recording_lost > 0)
                add_finding(v, SEVERITY_WARNING, "kvleasectl trace record status",
                        "requests that aren't in the recording: %" PRIu64 "%s%s", s->recording_lost,
                        s->recording_trouble[0] ? ": " : "", s->recording_trouble);
        if (s->options_pending > 0)
                add_finding(v, SEVERITY_NOTE,
                        "kvleasectl config names them; then kvleasectl restart",
                        "changed options that wait for a restart: %" PRIu64, s->options_pending);
        if (s->options_unknown > 0)
                add_finding(v, SEVERITY_NOTE,
                        "the log of kvleased's start has their names; a newer kvleased knows them",
                        "options in tenants.conf that this kvleased doesn't know, and skips: %" PRIu64,
                        s->options_unknown);
}

static bool is_damaged(const struct figures_tier *t)
{
        return t->damaged > 0 && t->damaged != FIGURE_NONE;
}

static void look_at_memory(struct verdict *v, const status_row *s)
{
        if (s->memory_excess[0])
                add_finding(v, SEVERITY_WARNING, "kvleasectl doctor compares them", "%s",
                        s->memory_excess);
        if (s->disk_state && strcmp(s->disk_state, "ok") != 0)
                add_finding(v, SEVERITY_ERROR, "see dmesg for the disk, then kvleasectl restart",
                        "the disk tier is %s: %s", s->disk_state,
                        s->disk_why && s->disk_why[0] ? s->disk_why : "no reason is given");
        if (is_damaged(&s->host))
                add_finding(v, SEVERITY_WARNING, "see dmesg for memory errors",
                        "damaged pages in host memory, which were dropped: %" PRIu64,
                        s->host.damaged);
        if (is_damaged(&s->disk))
                add_finding(v, SEVERITY_WARNING, "see dmesg for the disk",
                        "damaged pages on the disk, which were dropped: %" PRIu64, s->disk.damaged);
        if (s->fragmentation > FRAGMENTED_THOUSANDTH)
                add_finding(v, SEVERITY_NOTE,
                        "kvleasectl namespaces shows whose sets hold few pages; compact = on, or a smaller 'extent'",
                        "%.1f %% of the memory is free in extent sets that hold other pages",
                        (double)s->fragmentation / 10);
}

void verdict_of_refusals(struct verdict *v, uint64_t n, const Kvlease__V1__AdminEvent *last)
{
        if (n == 0)
                return;
        add_finding(v, SEVERITY_WARNING,
                "kvleasectl events --kind refused has all; kvleasectl tenants set raises a limit, or has leases wait (when_full = queue)",
                last ? "leases refused in the last %dmin: %" PRIu64
                       ", the last to tenant %s (%s)%s%s"
                     : "leases refused in the last %dmin: %" PRIu64,
                VERDICT_REFUSED_MIN, n, last ? last->tenant : "", last ? last->reason : "",
                last && last->detail[0] ? ": " : "", last ? last->detail : "");
}

static void look_at_clients(struct verdict *v, const status_row *s)
{
        char pending[32], most[32];

        if (s->peers_muted > 0)
                add_finding(v, SEVERITY_WARNING,
                        "kvleasectl clients names them: end these processes",
                        "clients that broke the protocol or don't read, are ignored, and keep their memory: %" PRIu64,
                        s->peers_muted);
        if (s->max_pending_bytes > 0 &&
                s->pending_bytes / PENDING_PERCENT >= s->max_pending_bytes / 100)
                add_finding(v, SEVERITY_WARNING,
                        "kvleasectl clients shows which; who has most is dropped next",
                        "clients don't take their answers: %s of %s wait for them",
                        show_bytes(v->format, s->pending_bytes, pending),
                        show_bytes(v->format, s->max_pending_bytes, most));
        if (strncmp(s->segments, "memfd", strlen("memfd")) == 0)
                add_finding(v, SEVERITY_WARNING,
                        "give kvleased CAP_SYS_ADMIN: run it as root by kvleased.service, or add the capability to its container",
                        "clients of kvleased's own user could write the index (%s)", s->segments);
        if (s->tenants_paused > 0)
                add_finding(v, SEVERITY_NOTE, "kvleasectl tenants show NAME: requests, paused",
                        "tenants that wait, as they are at their max_requests: %" PRIu64,
                        s->tenants_paused);
        if (s->connects_refused > 0)
                add_finding(v, SEVERITY_NOTE, "kvleasectl tenants show NAME: refused connections",
                        "connections refused since the start by max_connects: %" PRIu64,
                        s->connects_refused);
        if (s->violations > 0)
                add_finding(v, SEVERITY_NOTE,
                        "kvleasectl events --kind violation and kvleased's log say which process",
                        "breaches of the protocol by clients since the start: %" PRIu64,
                        s->violations);
        if (s->pending_overflows > 0)
                add_finding(v, SEVERITY_NOTE, "kvleased's log names them",
                        "clients cut off since the start, as they didn't read: %" PRIu64,
                        s->pending_overflows);
}

/* ---- other hosts ----------------------------------------------------------------------------- */

/* kvlease-exchange reads the files, and kvleased the options. */
#define REFUSED_REMEDY                                                                             \
        "correct that; then kvleasectl restart for an option, systemctl restart kvlease-exchange " \
        "for a file"

const char *verdict_exchange_remedy(const struct figures_remote *r)
{
        /* Beginnings of sentences of daemon/relay/relay-lane.c, the last one of the rest, and of
         * remote_error_text(): nodes that refuse all connections alike. */
        static const struct {
                const char *begins, *remedy;
        } rows[] = {
                {"kvlease-exchange isn't reached",
                        "systemctl enable --now kvlease-exchange.socket, of the package kvlease-exchange"},
                {"kvlease-exchange refuses connections",
                        "give its socket to kvleased's user: SocketUser= of kvlease-exchange.socket"},
                {"kvlease-exchange can't use it",
                        "correct that, then systemctl restart kvlease-exchange"},
                {"kvlease-exchange ", "systemctl restart kvlease-exchange"},
                {"kvleased isn't let in", REFUSED_REMEDY},
                {"the certificate isn't believed", REFUSED_REMEDY},
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
                if (strcmp(r->state, "reached") != 0 &&
                        strncmp(r->error, rows[i].begins, strlen(rows[i].begins)) == 0)
                        return rows[i].remedy;
        return NULL;
}

static void look_at_remote(struct verdict *v, const struct figures_remote *r)
{
        const char *colon = r->error[0] ? ": " : "";
        const char *remedy = verdict_exchange_remedy(r);

        if (strcmp(r->state, "not-open") == 0)
                add_finding(v, SEVERITY_WARNING,
                        "kvleased's log says why it isn't, or that it takes a restart",
                        "remote %s isn't open: no pages are exchanged by it", r->name);
        else if (remedy)
                add_finding(v, SEVERITY_WARNING, remedy, "no pages are exchanged by remote %s: %s",
                        r->name, r->error);
        else if (strcmp(r->state, "unreached") == 0)
                add_finding(v, SEVERITY_WARNING,
                        "kvleasectl remote shows each node; kvleasectl doctor asks it",
                        "no node of remote %s answers (nodes: %" PRIu64 ")%s%s", r->name,
                        r->n_nodes, colon, r->error);
        else if (r->n_nodes_open > 0)
                add_finding(v, SEVERITY_WARNING,
                        "kvleasectl remote shows each node; kvleasectl doctor asks it",
                        "nodes of remote %s that are left alone, as they fail: %" PRIu64
                        " of %" PRIu64 ", %s among them%s%s",
                        r->name, r->n_nodes_open, r->n_nodes, r->node, colon, r->error);
}

/* ---- restarts -------------------------------------------------------------------------------- */

/* One death may have any reason; several have a recurring one. Not tuned. */
#define DEATHS_IN_A_ROW 3

static void look_at_deaths(struct verdict *v, const status_row *s)
{
        if (s->deaths_for_memory > 0)
                add_finding(v, SEVERITY_WARNING,
                        "less memory or host_memory in [device], or more for its control group: kvleasectl doctor compares them",
                        "kvleased died %" PRIu64 " times in the last hour, %" PRIu64
                        " of them probably killed by the kernel for want of memory",
                        s->deaths, s->deaths_for_memory);
        else if (s->deaths >= DEATHS_IN_A_ROW)
                add_finding(v, SEVERITY_WARNING,
                        "kvleased's log before each start says more; report it with that",
                        "kvleased died %" PRIu64 " times in the last hour", s->deaths);
}

static void look_at_last_start(struct verdict *v, const status_row *s)
{
        uint64_t pages = s->pages_lost_checksum + s->pages_lost_parent + s->pages_lost_duplicate +
                         s->pages_lost_index;

        if (s->took_over && (s->namespaces_lost > 0 || pages > 0))
                add_finding(v, SEVERITY_WARNING,
                        "once after a GPU's reset that is normal; else report it with kvleased's log",
                        "the last restart lost part of the stored state (namespaces: %" PRIu64
                        ", pages: %" PRIu64 ")",
                        s->namespaces_lost, pages);
}

static void look_at_next_start(struct verdict *v, const status_row *s)
{
        if (s->kept_max == 0)
                add_finding(v, SEVERITY_NOTE, "kvleasectl restart --check names the reason",
                        "nothing is kept for the next kvleased: a restart empties the cache");
        else if ((uint64_t)s->kept_fds * 100 >= (uint64_t)s->kept_max * KEPT_PERCENT)
                add_finding(v, SEVERITY_WARNING,
                        "a larger 'extent' in [device], or more FileDescriptorStoreMax= of the unit",
                        "%" PRIu64 " of %" PRIu64
                        " descriptors are kept: beyond that leases are refused",
                        s->kept_fds, s->kept_max);
        else if (s->kept_needed > s->kept_max)
                add_finding(v, SEVERITY_WARNING,
                        "kvleasectl doctor says which of 'extent', max_clients and FileDescriptorStoreMax= to change",
                        "%" PRIu64
                        " descriptors can be kept, and all memory as extents and max_clients connections need %" PRIu64,
                        s->kept_max, s->kept_needed);
        if (s->open_files_needed > s->open_files_max)
                add_finding(v, SEVERITY_WARNING,
                        "more LimitNOFILE= of the unit, or a larger 'extent' in [device]",
                        "kvleased may have %" PRIu64
                        " open files, and all memory as extents and max_clients connections need %" PRIu64,
                        s->open_files_max, s->open_files_needed);
}

void verdict_of_status(struct verdict *v, const status_row *s)
{
        look_at_daemon(v, s);
        look_at_memory(v, s);
        look_at_clients(v, s);
        for (size_t i = 0; i < s->n_remotes; i++)
                look_at_remote(v, &s->remotes[i]);
        look_at_deaths(v, s);
        look_at_last_start(v, s);
        look_at_next_start(v, s);
}

/* ---- showing --------------------------------------------------------------------------------- */

static unsigned count_findings(const struct verdict *v, enum severity severity)
{
        unsigned n = 0;

        for (size_t i = 0; i < v->n_findings; i++)
                n += v->findings[i].severity == severity;
        return n;
}

static bool is_well(const struct verdict *v)
{
        return count_findings(v, SEVERITY_ERROR) + count_findings(v, SEVERITY_WARNING) == 0;
}

/* Prints "3 warnings", after "not well: 1 error, "; nothing if there are none. */
static void print_count(const struct verdict *v, enum severity severity, const char **separator)
{
        unsigned n = count_findings(v, severity);

        if (n == 0)
                return;
        printf("%s%u %s%s", *separator, n, severity_names[severity], n == 1 ? "" : "s");
        *separator = ", ";
}

static void print_finding(const struct finding *f, size_t width)
{
        char left[16];

        snprintf(left, sizeof(left), "%-9s", severity_names[f->severity]);
        print_colored(severity_colors[f->severity], left, f->what, width);
        print_wrapped(stdout, "         -> ", f->remedy, width);
}

/* Returns the lines that print_finding() prints. */
static size_t finding_lines(const struct finding *f, size_t width)
{
        char *text = NULL;
        size_t size = 0, n = 0;
        FILE *to = need(open_memstream(&text, &size));

        print_wrapped(to, "         ", f->what, width);
        print_wrapped(to, "         -> ", f->remedy, width);
        fclose(to);
        for (const char *at = need(text); (at = strchr(at, '\n')); at++)
                n++;
        free(text);
        return n;
}

size_t verdict_print(const struct verdict *v, size_t width, size_t max_lines)
{
        const char *separator = is_well(v) ? "all well; " : "not well: ";
        size_t left = max_lines, n_printed = 0;

        if (v->n_findings == 0)
                fputs("all well", stdout);
        for (int severity = 0; severity < N_SEVERITIES; severity++)
                print_count(v, severity, &separator);
        putchar('\n');
        for (int severity = 0; severity < N_SEVERITIES; severity++)
                for (size_t i = 0; i < v->n_findings; i++) {
                        const struct finding *f = &v->findings[i];
                        size_t n = finding_lines(f, width);

                        if ((int)f->severity != severity)
                                continue;
                        if (n_printed > 0 && n + (n_printed + 1 < v->n_findings) > left) {
                                printf("%zu more: kvleasectl status --all\n",
                                        v->n_findings - n_printed);
                                return 0;
                        }
                        print_finding(f, width);
                        n_printed++;
                        left -= MIN(n, left);
                }
        return left;
}

void verdict_to_json(const struct verdict *v, json_t *object)
{
        json_t *list = need(json_array());

        for (int severity = 0; severity < N_SEVERITIES; severity++)
                for (size_t i = 0; i < v->n_findings; i++) {
                        const struct finding *f = &v->findings[i];

                        if ((int)f->severity == severity)
                                json_array_append_new(list,
                                        need(json_pack("{s:s, s:o, s:s}", "severity",
                                                severity_names[severity], "what",
                                                show_json_text(f->what), "remedy", f->remedy)));
                }
        if (json_object_set_new(object, "well", json_boolean(is_well(v))) < 0 ||
                json_object_set_new(object, "findings", list) < 0)
                need(NULL);
}

void verdict_deinit(struct verdict *v)
{
        for (size_t i = 0; i < v->n_findings; i++)
                free(v->findings[i].what);
        free(v->findings);
        v->findings = NULL;
        v->n_findings = 0;
}
