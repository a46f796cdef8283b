/* Checks of a running kvleased: its limits, its sockets. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/parse.h"
#include "client/ctl/ctl.h"
#include "client/ctl/doctor.h"
#include "client/ctl/program.h"
#include "kvlease-version.h"

#define NEARLY_FULL 90 /* percent, as the alert KvleaseKeptDescriptorsNearlyFull */

/* Limit on descriptors: the next process gets their names as one variable of 128 KiB (keeper.h). */
#define STORE_MOST 16384

/* Pages asked for without success before that is a finding. Not tuned. */
#define PROBES_FOR_NOTHING 1000

bool doctor_asked_daemon(struct doctor *d)
{
        if (d->daemon.state != DAEMON_UP)
                doctor_find(d, DOCTOR_UNCHECKED, "kvleased isn't asked: see check daemon");
        return d->daemon.state == DAEMON_UP;
}

/* ---- the process ----------------------------------------------------------------------------- */

static void find_old_program(struct doctor *d)
{
        char program[PROGRAM_PATH_BYTES];

        if (doctor_has_process(d) && program_of(d->root, d->daemon.pid, program) == 1) {
                doctor_find(d, DOCTOR_WARNING,
                        "kvleased %s still runs the %s that was replaced or removed",
                        d->daemon.version, program);
                doctor_advise(d, "kvleasectl restart");
        } else if (strcmp(d->daemon.version, KVLEASE_VERSION) != 0) {
                doctor_find(d, DOCTOR_WARNING, "kvleased is %s, and kvleasectl %s",
                        d->daemon.version, KVLEASE_VERSION);
                doctor_advise(d, "install packages of one version, then kvleasectl restart");
        }
}

static void check_running(struct doctor *d)
{
        find_old_program(d);

        if (d->daemon.draining) {
                doctor_find(d, DOCTOR_WARNING, "kvleased is draining: it grants nothing new");
                doctor_advise(d, "kvleasectl drain --off, unless it is meant");
        }
        doctor_find_well(d, "kvleased %s, pid %" PRIu64 ", has run for %" PRIu64 " s",
                d->daemon.version, d->daemon.pid, d->daemon.uptime_sec);
}

void doctor_check_daemon(struct doctor *d)
{
        switch (d->daemon.state) {
        case DAEMON_UP:
                check_running(d);
                break;
        case DAEMON_ABSENT:
                doctor_find(d, DOCTOR_WARNING, "kvleased isn't running: no process listens on %s",
                        d->socket_path);
                doctor_advise(d,
                        d->unit_path ? "systemctl start %s, or name its socket with --socket"
                                     : "start %s, or name its socket with --socket",
                        d->unit_path ? d->unit_name : "kvleased");
                break;
        case DAEMON_FORBIDDEN:
                doctor_find(d, DOCTOR_UNCHECKED, "%s", d->daemon.why);
                doctor_advise(d, "run kvleasectl doctor as root, or join group kvlease-admin");
                break;
        case DAEMON_BROKEN:
                doctor_find(d, DOCTOR_ERROR, "%s", d->daemon.why);
                doctor_advise(d, "journalctl -u %s says more; systemctl restart %s", d->unit_name,
                        d->unit_name);
                break;
        }
}

void doctor_check_devices(struct doctor *d)
{

        for (size_t i = 0; i < d->daemon.n_devices; i++) {
                const struct figures_device *row = &d->daemon.devices[i];

                if (strcmp(row->state, "ok") == 0)
                        continue;
                doctor_find(d, DOCTOR_ERROR, "%s is %s: %s", row->name, row->state,
                        row->why[0] ? row->why : "no reason is given");
                if (strcmp(row->tier, "disk") == 0)
                        doctor_advise(d, "see dmesg for the disk, then kvleasectl restart");
                else
                        doctor_advise(d,
                                "see nvidia-smi and dmesg; once the GPU works, kvleasectl restart");
        }
        doctor_find_well(d, "devices and tiers that work: %zu", d->daemon.n_devices);
}

void doctor_check_index_guard(struct doctor *d)
{
        if (strncmp(d->daemon.segments, "read-only mount", 15) == 0) {
                doctor_find(d, DOCTOR_OK, "%s", d->daemon.segments);
                return;
        }
        doctor_find(d, DOCTOR_WARNING, "%s: processes of kvleased's own user could write it",
                d->daemon.segments);
        doctor_advise(d,
                "give kvleased CAP_SYS_ADMIN: run it as root by kvleased.service, or add the capability to its container");
}

/* ---- limits ---------------------------------------------------------------------------------- */

void doctor_check_open_files(struct doctor *d)
{
        const struct doctor_daemon *p = &d->daemon;

        if (p->open_files_needed <= p->open_files_max) {
                doctor_find(d, DOCTOR_OK, "at most %" PRIu64 " are needed, %" PRIu64 " allowed",
                        p->open_files_needed, p->open_files_max);
                return;
        }
        doctor_find(d, DOCTOR_WARNING,
                "kvleased may have %" PRIu64
                " open files; all memory as extents and max_clients connections need %" PRIu64,
                p->open_files_max, p->open_files_needed);
        if (d->is_unit_run)
                doctor_advise(d,
                        "systemctl edit %s: [Service] LimitNOFILE=%" PRIu64
                        "; or a larger 'extent' in [device]",
                        d->unit_name, MAX(p->open_files_needed, UINT64_C(524288)));
        else
                doctor_advise(d,
                        "ulimit -Hn %" PRIu64
                        " before kvleased starts; or a larger 'extent' in [device]",
                        p->open_files_needed);
}

/* Reads the daemon's soft limit; UINT64_MAX: none. Returns false if unknown. */
static bool locked_limit(const struct doctor *d, uint64_t *ret_bytes)
{
        static const char name[] = "Max locked memory";
        _cleanup_free_ char *text = doctor_read(d, "/proc/%" PRIu64 "/limits", d->daemon.pid);
        const char *at = text ? strstr(text, name) : NULL;
        char word[32];

        if (!at || sscanf(at + sizeof(name) - 1, "%31s", word) != 1)
                return false;
        if (strcmp(word, "unlimited") == 0) {
                *ret_bytes = UINT64_MAX;
                return true;
        }
        return parse_u64(word, ret_bytes) == 0;
}

/* Whether the device "host of NAME" is a lower tier of GPUs. */
static bool lies_below_gpu(const struct doctor *d, const char *name)
{
        const char *of = strstr(name, " of ");

        for (size_t i = 0; of && i < d->daemon.n_devices; i++) {
                const struct figures_device *row = &d->daemon.devices[i];

                if (strcmp(row->name, of + strlen(" of ")) == 0)
                        return strcmp(row->backend, "cuda") == 0;
        }
        return false;
}

/* Returns the host memory of GPUs' lower tiers, which is registered with them. */
static uint64_t registered_bytes(const struct doctor *d)
{
        uint64_t bytes = 0;

        for (size_t i = 0; i < d->daemon.n_devices; i++) {
                const struct figures_device *row = &d->daemon.devices[i];

                if (strcmp(row->tier, "host") == 0 && lies_below_gpu(d, row->name))
                        bytes += row->budget_bytes;
        }
        return bytes;
}

void doctor_check_locked_memory(struct doctor *d)
{
        uint64_t limit = 0, needed;
        char limit_text[FORMAT_BYTES_MAX], needed_text[FORMAT_BYTES_MAX];

        needed = registered_bytes(d);
        if (!doctor_has_process(d) || !locked_limit(d, &limit)) {
                doctor_find(d, DOCTOR_UNCHECKED, "the limits of process %" PRIu64 " can't be read",
                        d->daemon.pid);
                return;
        }
        format_bytes(needed, needed_text);
        if (limit == UINT64_MAX || limit >= needed) {
                doctor_find(d, DOCTOR_OK, "%s of host memory is registered with GPUs, %s allowed",
                        needed_text, limit == UINT64_MAX ? "any" : format_bytes(limit, limit_text));
                return;
        }
        doctor_find(d, DOCTOR_WARNING,
                "kvleased may lock %s of memory, and has %s below GPUs to be registered with them",
                format_bytes(limit, limit_text), needed_text);
        if (d->is_unit_run)
                doctor_advise(
                        d, "systemctl edit %s: [Service] LimitMEMLOCK=infinity", d->unit_name);
        else
                doctor_advise(d, "ulimit -l unlimited before kvleased starts");
}

/* ---- what is kept ---------------------------------------------------------------------------- */

static void find_nothing_kept(struct doctor *d)
{
        const char *keep = doctor_setting(d, "daemon", "", "keep_state");

        if (keep && strcmp(keep, "off") == 0) {
                doctor_find(d, DOCTOR_OK, "keep_state = off: nothing is meant to outlive kvleased");
                return;
        }
        doctor_find(d, DOCTOR_WARNING,
                "no descriptors are stored for the next kvleased: the cache and its clients end with this one");
        doctor_advise(d,
                d->is_unit_run
                        ? "systemctl edit %s: [Service] FileDescriptorStoreMax=8192"
                        : "run it by %s with FileDescriptorStoreMax=8192, or with kvleased --keep",
                d->unit_name);
}

void doctor_check_fd_store(struct doctor *d)
{
        const struct doctor_daemon *p = &d->daemon;
        bool is_full = p->kept_fds >= (uint64_t)p->kept_max * NEARLY_FULL / 100;
        uint32_t wanted = MAX(p->kept_needed, is_full ? 2 * p->kept_max : p->kept_max);

        if (p->kept_max == 0) {
                find_nothing_kept(d);
                return;
        }
        if (!is_full && p->kept_needed <= p->kept_max) {
                doctor_find(d, DOCTOR_OK, "%u of %u descriptors are kept, at most %u are needed",
                        p->kept_fds, p->kept_max, p->kept_needed);
                return;
        }
        doctor_find(d, DOCTOR_WARNING,
                "%u of %u descriptors are kept; all memory as extents and max_clients connections need %u",
                p->kept_fds, p->kept_max, p->kept_needed);
        if (wanted > STORE_MOST)
                doctor_advise(d,
                        "set a larger 'extent' in [device], or fewer max_clients: more than %d can't be handed on",
                        STORE_MOST);
        else if (d->is_unit_run)
                doctor_advise(d,
                        "systemctl edit %s: [Service] FileDescriptorStoreMax=%u; or a larger 'extent' in [device]",
                        d->unit_name, wanted);
        else
                doctor_advise(d,
                        "ulimit -Hn %u before kvleased --keep --keep-max %u starts; or a larger 'extent' in [device]",
                        3 * wanted, wanted);
}

/* ---- tenants --------------------------------------------------------------------------------- */

void doctor_check_tenant_room(struct doctor *d)
{

        for (size_t i = 0; i < d->daemon.n_tenants; i++) {
                const char *text = d->daemon.tenants[i].no_room;
                const char *remedy = strstr(text, "; ");

                if (!*text)
                        continue;
                doctor_find(d, DOCTOR_WARNING, "%.*s",
                        (int)(remedy ? remedy - text : (ptrdiff_t)strlen(text)), text);
                if (remedy)
                        doctor_advise(d, "%s", remedy + 2);
        }
        doctor_find_well(d, "tenants that can lease: %zu", d->daemon.n_tenants);
}

void doctor_check_events(struct doctor *d)
{
        if (!d->daemon.no_events[0]) {
                doctor_find(d, DOCTOR_OK, "namespaces have the events that their tenant has on");
                return;
        }
        doctor_find(d, DOCTOR_WARNING, "%s", d->daemon.no_events);
        doctor_advise(d, "kvleasectl tenants set NAME events=SIZE, then kvleasectl restart");
}

/* ---- sockets --------------------------------------------------------------------------------- */

/* Returns the directory of the admin socket, owned. */
static char *runtime_dir(const struct doctor *d)
{
        const char *slash = strrchr(d->socket_path, '/');

        return slash ? need(strndup(d->socket_path, MAX(slash - d->socket_path, (ptrdiff_t)1)))
                     : need(strdup("."));
}

void doctor_check_runtime_dir(struct doctor *d)
{
        _cleanup_free_ char *dir = runtime_dir(d), *path = doctor_path(d, "%s", dir);
        struct stat st;

        if (stat(path, &st) < 0) {
                doctor_find(d, DOCTOR_UNCHECKED, "%s: %s", dir, strerror(errno));
        } else if (st.st_mode & S_IWOTH) {
                doctor_find(d, DOCTOR_ERROR, "everybody may write to %s", dir);
                doctor_advise(d, "chmod o-w %s", dir);
        } else if (st.st_mode & S_IWGRP) {
                doctor_find(
                        d, DOCTOR_WARNING, "group %u may write to %s", (unsigned)st.st_gid, dir);
                doctor_advise(d, "chmod g-w %s", dir);
        } else if (!(st.st_mode & S_IXOTH)) {
                doctor_find(d, DOCTOR_WARNING, "users other than %u can't reach the sockets in %s",
                        (unsigned)st.st_uid, dir);
                doctor_advise(d, "chmod 0755 %s", dir);
        } else {
                doctor_find(d, DOCTOR_OK, "%s, mode %04o", dir, (unsigned)st.st_mode & 07777);
        }
}

/* Returns the group of administrators; "": only root. */
static const char *admin_group(const struct doctor *d)
{
        const char *name = doctor_setting(d, "daemon", "", "admin_group");

        return name ? name : "kvlease-admin";
}

static void check_admin_mode(struct doctor *d, const struct stat *st)
{
        const char *group = admin_group(d), *path = d->socket_path;
        unsigned gid;

        if (st->st_mode & S_IWOTH) {
                doctor_find(d, DOCTOR_ERROR, "everybody may connect to %s, mode %04o", path,
                        (unsigned)st->st_mode & 07777);
                doctor_advise(d, "chmod 0660 %s", path);
        } else if (!*group || !doctor_group(d, group, &gid)) {
                doctor_find(d, DOCTOR_OK, "%s, uid %u, mode %04o", path, (unsigned)st->st_uid,
                        (unsigned)st->st_mode & 07777);
        } else if (st->st_gid != gid || !(st->st_mode & S_IWGRP)) {
                doctor_find(d, DOCTOR_WARNING,
                        "members of %s can't connect to %s, which has gid %u and mode %04o", group,
                        path, (unsigned)st->st_gid, (unsigned)st->st_mode & 07777);
                doctor_advise(d, "chgrp %s %s && chmod 0660 %s", group, path, path);
        } else {
                doctor_find(d, DOCTOR_OK, "%s, uid %u, group %s, mode %04o", path,
                        (unsigned)st->st_uid, group, (unsigned)st->st_mode & 07777);
        }
}

void doctor_check_admin_socket(struct doctor *d)
{
        _cleanup_free_ char *path = doctor_path(d, "%s", d->socket_path);
        struct stat st;

        if (stat(path, &st) < 0) {
                doctor_find(d, DOCTOR_UNCHECKED, "%s: %s", d->socket_path, strerror(errno));
        } else if (!S_ISSOCK(st.st_mode)) {
                doctor_find(d, DOCTOR_ERROR, "%s is no socket", d->socket_path);
                doctor_advise(d, "rm %s, then start kvleased", d->socket_path);
        } else {
                check_admin_mode(d, &st);
        }
}

void doctor_check_admin_group(struct doctor *d)
{
        const char *group = admin_group(d);
        unsigned gid;

        if (!*group) {
                doctor_find(d, DOCTOR_OK, "admin_group is empty: only root administers");
        } else if (doctor_group(d, group, &gid)) {
                doctor_find(d, DOCTOR_OK, "group %s has gid %u", group, gid);
        } else {
                doctor_find(
                        d, DOCTOR_WARNING, "there is no group %s: only root administers", group);
                doctor_advise(d,
                        "groupadd --system %s, then kvleasectl restart; or set admin_group in [daemon], empty for none",
                        group);
        }
}

static void find_tenant_socket(struct doctor *d, const struct figures_tenant *t)
{
        _cleanup_free_ char *path = doctor_path(d, "%s", t->socket_path);
        _cleanup_free_ char *dir = need(strndup(path, (size_t)(strrchr(path, '/') - path)));
        const char *shown = dir + strlen(d->root);
        struct stat st;
        unsigned gid;

        if (stat(dir, &st) < 0 && errno == EACCES) {
                doctor_find(d, DOCTOR_UNCHECKED, "%s can't be seen by this user", shown);
                return;
        }
        if (stat(dir, &st) == 0 && (st.st_mode & S_IRWXO) && !t->uids[0] && !t->gids[0]) {
                doctor_find(d, DOCTOR_WARNING,
                        "every user of this host may enter %s, and be tenant %s", shown, t->name);
                doctor_advise(
                        d, "chmod o-rwx %s, or kvleasectl tenants set %s uids=...", shown, t->name);
                return;
        }
        if (t->group[0] && doctor_group(d, t->group, &gid) && gid != st.st_gid) {
                doctor_find(d, DOCTOR_WARNING,
                        "%s belongs to gid %u: group %s of tenant %s can't enter", shown,
                        (unsigned)st.st_gid, t->group, t->name);
                doctor_advise(d, "chgrp %s %s", t->group, shown);
                return;
        }
        if (stat(path, &st) == 0 && S_ISSOCK(st.st_mode))
                return;
        if (errno == EACCES) {
                doctor_find(d, DOCTOR_UNCHECKED, "%s can't be seen by this user", t->socket_path);
                return;
        }
        doctor_find(
                d, DOCTOR_ERROR, "tenant %s can't connect: %s is gone", t->name, t->socket_path);
        doctor_advise(d, "systemctl stop %s && systemctl start %s makes it anew; the cache is lost",
                d->unit_name, d->unit_name);
}

void doctor_check_tenant_sockets(struct doctor *d)
{

        for (size_t i = 0; i < d->daemon.n_tenants; i++)
                if (strchr(d->daemon.tenants[i].socket_path, '/'))
                        find_tenant_socket(d, &d->daemon.tenants[i]);
        doctor_find_well(d, "tenants whose sockets are all right: %zu", d->daemon.n_tenants);
}

/* ---- other hosts ----------------------------------------------------------------------------- */

void doctor_check_remote_keys(struct doctor *d)
{

        for (size_t i = 0; i < d->daemon.n_exchanges; i++) {
                const struct figures_exchange *x = &d->daemon.exchanges[i];

                if (x->probed_pages < PROBES_FOR_NOTHING || x->found_pages > 0)
                        continue;
                doctor_find(d, DOCTOR_WARNING,
                        "tenant %s has asked [remote %s] for %" PRIu64
                        " pages of other hosts, and found none: do their engines have other keys?",
                        x->tenant, x->remote, x->probed_pages);
                doctor_advise(d, "give engines of all hosts the same seed of hashes (vLLM: "
                                 "PYTHONHASHSEED), version and layout, and the tenant the same "
                                 "remote_secret and host_codec, unless no other host writes there "
                                 "(docs/integrate/vllm.md, \"Conditions for sharing\")");
        }
        doctor_find_well(d,
                "tenants that exchange pages, and have found some or asked for few: %zu",
                d->daemon.n_exchanges);
}
