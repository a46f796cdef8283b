/* Checks of kvleased's configuration and unit. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/parse.h"
#include "client/ctl/ctl.h"
#include "client/ctl/doctor.h"
#include "client/ctl/program.h"

/* ---- configuration --------------------------------------------------------------------------- */

/* Can only root and this user change the file, or the entries of the directory? A user's private
 * group has the user's number. */
static bool is_guarded(const char *path)
{
        struct stat st;
        mode_t shared = S_IWOTH;

        if (stat(path, &st) < 0 || (st.st_uid != 0 && st.st_uid != geteuid()))
                return false;
        if (st.st_gid != 0 && st.st_gid != st.st_uid)
                shared |= S_IWGRP;
        return !(st.st_mode & shared) || (S_ISDIR(st.st_mode) && st.st_mode & S_ISVTX);
}

/* Whether root may run the file, which the process that answers at the socket may have chosen: no
 * other user can change the file, or put another in its place. */
static bool is_trusted(const char *path)
{
        char part[PROGRAM_PATH_BYTES];

        if (path[0] != '/' || access(path, X_OK) < 0 || !is_guarded(path))
                return false;
        snprintf(part, sizeof(part), "%s", path);
        for (char *end = strrchr(part, '/'); end != part; end = strrchr(part, '/')) {
                *end = '\0';
                if (!is_guarded(part))
                        return false;
        }
        return is_guarded("/");
}

/* Finds the program kvleased: as named, as it runs, or where packages put it. Returns false if
 * there is none. */
static bool find_program(const struct doctor *d, char ret[PROGRAM_PATH_BYTES])
{
        static const char *const dirs[] = {"/usr/sbin", "/usr/local/sbin", "/opt/kvlease/sbin"};
        const char *start = doctor_unit_setting(d, "ExecStart");

        if (d->binary) {
                snprintf(ret, PROGRAM_PATH_BYTES, "%s", d->binary);
                return true;
        }
        if (*d->root)
                return false; /* another host's program may not run here */
        if (doctor_has_process(d) && program_of("", d->daemon.pid, ret) >= 0 && is_trusted(ret))
                return true;
        if (start && start[0] == '/') {
                snprintf(ret, PROGRAM_PATH_BYTES, "%.*s", (int)strcspn(start, " \t"), start);
                if (access(ret, X_OK) == 0)
                        return true;
        }
        for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
                snprintf(ret, PROGRAM_PATH_BYTES, "%s/kvleased", dirs[i]);
                if (access(ret, X_OK) == 0)
                        return true;
        }
        return false;
}

/* Returns the exit code of --check-config; `said` is its output in one line. */
static int check_by(
        const struct doctor *d, const char *program, const char *config, char said[4096])
{
        const char **argv = need(calloc(2 * d->n_overrides + 5, sizeof(*argv)));
        size_t n = 0;
        int code;

        argv[n++] = program;
        argv[n++] = "--check-config";
        if (d->config_error != -ENOENT) {
                argv[n++] = "--config";
                argv[n++] = config;
        }
        for (size_t i = 0; i < d->n_overrides; i++) {
                argv[n++] = "--option";
                argv[n++] = d->overrides[i];
        }
        code = program_read(argv, true, said, 4096);
        free(argv);
        for (size_t len = strlen(said); len > 0 && said[len - 1] == '\n'; len--)
                said[len - 1] = '\0';
        for (char *at = said; (at = strchr(at, '\n'));)
                *at = ';';
        return code;
}

/* Finds warnings of a valid configuration. For a running kvleased other checks find them. */
static bool find_warnings(struct doctor *d, char *said)
{
        size_t len = strlen(said);

        if (d->daemon.state == DAEMON_UP || d->config_error == -ENOENT || len < strlen(";ok") ||
                strcmp(said + len - strlen(";ok"), ";ok") != 0)
                return false;
        said[len - strlen(";ok")] = '\0';
        doctor_find(d, DOCTOR_WARNING, "%s: %s", d->config_path, said);
        return true;
}

void doctor_check_config(struct doctor *d)
{
        _cleanup_free_ char *config = doctor_path(d, "%s", d->config_path);
        char program[PROGRAM_PATH_BYTES], said[4096];
        int code;

        /* kvleased reports other errors of the file. */
        if (d->config_error == -EACCES) {
                doctor_find(d, DOCTOR_UNCHECKED,
                        "%s can't be read (%s): run kvleasectl doctor as root", d->config_path,
                        file_read_error(d->config_error));
                return;
        }
        if (!find_program(d, program)) {
                doctor_find(d, DOCTOR_UNCHECKED, "kvleased isn't found: name it with --binary");
                return;
        }
        code = check_by(d, program, config, said);
        if (code < 0) {
                doctor_find(d, DOCTOR_UNCHECKED, "%s doesn't answer --check-config", program);
        } else if (code != 0) {
                doctor_find(d, DOCTOR_ERROR, "%s is refused: %s", d->config_path, said);
                doctor_advise(d, "correct it; kvleased --config %s --check-config says ok then",
                        d->config_path);
        } else if (find_warnings(d, said)) {
                doctor_advise(
                        d, "change it, then kvleasectl reload, or restart where it takes one");
        } else {
                doctor_find(d, DOCTOR_OK, "%s%s", d->config_path,
                        d->config_error == -ENOENT ? " isn't there: built-in defaults"
                                                   : " is valid");
        }
}

/* ---- unit ------------------------------------------------------------------------------------ */

static bool is_setting(const struct doctor *d, const char *key, const char *value)
{
        const char *is = doctor_unit_setting(d, key);

        return is && strcasecmp(is, value) == 0;
}

/* Finds that the service manager doesn't store kvleased's descriptors. */
static void find_unkept(struct doctor *d)
{
        const char *type = doctor_unit_setting(d, "Type");
        const char *access = doctor_unit_setting(d, "NotifyAccess");

        if (!type || strncmp(type, "notify", 6) != 0) {
                doctor_find(d, DOCTOR_ERROR,
                        "%s has Type=%s: systemd doesn't wait until kvleased serves, and takes nothing to keep",
                        d->unit_name, type ? type : "simple");
                doctor_advise(d, "systemctl edit %s: [Service] Type=notify", d->unit_name);
        }
        if (access && strcasecmp(access, "none") == 0) {
                doctor_find(d, DOCTOR_ERROR,
                        "%s has NotifyAccess=none: systemd hears nothing of kvleased",
                        d->unit_name);
                doctor_advise(d, "systemctl edit %s: [Service] NotifyAccess=main", d->unit_name);
        }
        if (is_setting(d, "RuntimeDirectoryPreserve", "no") ||
                (doctor_unit_setting(d, "RuntimeDirectory") &&
                        !doctor_unit_setting(d, "RuntimeDirectoryPreserve"))) {
                doctor_find(d, DOCTOR_WARNING,
                        "%s removes the sockets while kvleased restarts: RuntimeDirectoryPreserve=no",
                        d->unit_name);
                doctor_advise(d, "systemctl edit %s: [Service] RuntimeDirectoryPreserve=yes",
                        d->unit_name);
        }
}

/* Finds that kvleased isn't started again. */
static void find_unwatched(struct doctor *d)
{
        const char *restart = doctor_unit_setting(d, "Restart");
        const char *watchdog = doctor_unit_setting(d, "WatchdogSec");

        if (!restart || strcmp(restart, "no") == 0 || strcmp(restart, "on-success") == 0) {
                doctor_find(d, DOCTOR_ERROR,
                        "%s has Restart=%s: a kvleased that dies stays away, and the cache goes",
                        d->unit_name, restart ? restart : "no");
                doctor_advise(d, "systemctl edit %s: [Service] Restart=on-failure", d->unit_name);
        }
        if (!watchdog || strcmp(watchdog, "0") == 0 || strcmp(watchdog, "infinity") == 0) {
                doctor_find(d, DOCTOR_WARNING,
                        "%s has no WatchdogSec: a kvleased that hangs is left alone", d->unit_name);
                doctor_advise(d, "systemctl edit %s: [Service] WatchdogSec=10", d->unit_name);
        }
}

/* Finds that DevicePolicy= hides the driver's device nodes. */
static void find_no_devices(struct doctor *d)
{
        const char *policy = doctor_unit_setting(d, "DevicePolicy");

        if (!doctor_has_gpu(d) || !policy ||
                (strcmp(policy, "closed") != 0 && strcmp(policy, "strict") != 0))
                return;
        for (size_t i = 0; i < d->unit.n; i++)
                if (strcmp(d->unit.lines[i].key, "DeviceAllow") == 0 &&
                        strstr(d->unit.lines[i].value, "nvidia"))
                        return;
        doctor_find(d, DOCTOR_ERROR, "%s may not open GPUs: DevicePolicy=%s", d->unit_name, policy);
        doctor_advise(d, "systemctl edit %s: [Service] DeviceAllow=char-nvidia* rw", d->unit_name);
}

/* Checks FileDescriptorStoreMax=: as written, and as the running daemon knows it. */
static void find_store(struct doctor *d)
{
        const char *value = doctor_unit_setting(d, "FileDescriptorStoreMax");
        const char *keep = doctor_setting(d, "daemon", "", "keep_state");
        uint64_t max = 0;

        if (keep && strcmp(keep, "off") == 0)
                return;
        if (!value || parse_u64(value, &max) < 0 || max == 0) {
                doctor_find(d, DOCTOR_ERROR,
                        "%s has FileDescriptorStoreMax=%s: nothing outlives kvleased", d->unit_name,
                        value ? value : "0");
                doctor_advise(d, "systemctl edit %s: [Service] FileDescriptorStoreMax=8192",
                        d->unit_name);
                return;
        }
        if (!d->is_unit_run || d->daemon.kept_max == 0 || d->daemon.kept_max == max)
                return;
        doctor_find(d, DOCTOR_WARNING,
                "%s has FileDescriptorStoreMax=%" PRIu64 ", and the kvleased that runs found %u",
                d->unit_name, max, d->daemon.kept_max);
        doctor_advise(d, "systemctl daemon-reload && kvleasectl restart");
}

void doctor_check_unit(struct doctor *d)
{

        if (doctor_has_process(d) && !d->is_unit_run) {
                doctor_find(d, DOCTOR_UNCHECKED,
                        "process %" PRIu64 " wasn't started by a unit of kvleased", d->daemon.pid);
                return;
        }
        if (!d->unit_path) {
                doctor_find(d, DOCTOR_UNCHECKED,
                        "there is no %s: kvleased --keep does without a service manager",
                        d->unit_name);
                return;
        }
        find_unkept(d);
        find_unwatched(d);
        find_no_devices(d);
        find_store(d);
        doctor_find_well(d, "%s is as kvleased needs it", d->unit_path);
}
