/* kvleasectl doctor: checks of the daemon, its unit, sockets, configuration and disk, each with and
 * without a finding. */
#include "tests/unit/test-support.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "tests/unit/child.h"
#include "tests/unit/doctor-fixture.h"

#ifndef SERVICE_FILE
#error "SERVICE_FILE is the unit of kvleased, by meson"
#endif

#define GIB (UINT64_C(1) << 30)
#define GPU "GPU-6a3d1f52-8c1e-4b7a-9d0e-2f4b6c8d0e1f"

/* ---- files ----------------------------------------------------------------------------------- */

TEST(test_lines)
{
        struct doctor_lines l = {0};
        static const char config[] = "# comment\n[daemon]\ndevices = host\n[device host]\n"
                                     "memory = 1GiB\nmemory = 2GiB\n";

        lines_read_config(&l, config, sizeof(config) - 1);
        assert_string_equal(lines_find(&l, "daemon", "", "devices"), "host");
        assert_string_equal(lines_find(&l, "device", "host", "memory"), "2GiB");
        assert_null(lines_find(&l, "device", "", "memory"));
        lines_read_option(&l, "device.host.memory=3GiB");
        lines_read_option(&l, "daemon.devices=a=b");
        lines_read_option(&l, "nonsense");
        assert_string_equal(lines_find(&l, "device", "host", "memory"), "3GiB");
        assert_string_equal(lines_find(&l, "daemon", "", "devices"), "a=b");
        lines_free(&l);
        lines_read_unit(&l, "[Unit]\nType=x\n[Service]\n; no\nType = notify \nA=1\nA=2\nA=\n"
                            "B=one \\\n two\n");
        assert_string_equal(lines_find(&l, "Service", "", "Type"), "notify");
        assert_null(lines_find(&l, "Service", "", "A"));
        assert_string_equal(lines_find(&l, "Service", "", "B"), "one    two");
        lines_free(&l);
}

/* The arguments of the daemon name its configuration, before any file of that name. */
HOST_TEST(test_arguments)
{
        struct host *h = *state;
        char path[512];
        FILE *to;

        host_write(h, "/etc/own.conf", "[daemon]\nkeep_state = off\n");
        host_write(h, "/proc/42/cmdline", "%s", "");
        snprintf(path, sizeof(path), "%s", host_path(h, "/proc/42/cmdline"));
        to = fopen(path, "we");
        assert_non_null(to);
        fwrite("kvleased\0-c\0/etc/own.conf\0--option=daemon.devices=host\0"
               "-odevice.host.memory=1GiB\0--option\0daemon.evict=lru\0--keep\0-o",
                1, 114, to);
        fclose(to);
        host_start_daemon(h);
        free(h->d.config_path);
        h->d.config_path = NULL;
        doctor_gather_config(&h->d);
        assert_string_equal(h->d.config_path, "/etc/own.conf");
        assert_int_equal(h->d.config_error, 0);
        assert_int_equal(h->d.n_overrides, 3);
        assert_string_equal(doctor_setting(&h->d, "daemon", "", "keep_state"), "off");
        assert_string_equal(doctor_setting(&h->d, "device", "host", "memory"), "1GiB");
        assert_string_equal(doctor_setting(&h->d, "daemon", "", "evict"), "lru");
}

/* A service of kvleased@, and drop-ins in systemd's order. */
HOST_TEST(test_unit_files)
{
        struct host *h = *state;

        host_write(h, "/usr/lib/systemd/system/kvleased@.service",
                "[Service]\nType=notify\nWatchdogSec=10\n");
        host_write(h, "/usr/lib/systemd/system/kvleased@.service.d/50-a.conf",
                "[Service]\nWatchdogSec=50\n");
        host_write(h, "/etc/systemd/system/kvleased@.service.d/40-b.conf",
                "[Service]\nWatchdogSec=40\n");
        host_write(h, "/etc/systemd/system/kvleased@two.service.d/50-a.conf",
                "[Service]\nRestart=always\n");
        host_write(h, "/etc/systemd/system/kvleased@two.service.d/ignored", "[Service]\nType=x\n");
        free(h->d.unit_name);
        h->d.socket_path = "/run/kvlease-two/admin.sock";
        doctor_gather_unit(&h->d);
        assert_string_equal(h->d.unit_name, "kvleased@two.service");
        assert_string_equal(h->d.unit_path, "/usr/lib/systemd/system/kvleased@.service");
        assert_string_equal(doctor_unit_setting(&h->d, "WatchdogSec"), "40");
        assert_string_equal(doctor_unit_setting(&h->d, "Restart"), "always");
        assert_string_equal(doctor_unit_setting(&h->d, "Type"), "notify");
}

/* ---- unit ------------------------------------------------------------------------------------ */

#define GOOD_UNIT                                                      \
        "[Service]\nType=notify\nRestart=on-failure\nWatchdogSec=10\n" \
        "FileDescriptorStoreMax=8192\nRuntimeDirectory=kvlease\n"      \
        "RuntimeDirectoryPreserve=yes\nStateDirectory=kvlease\n"       \
        "ProtectSystem=strict\nDevicePolicy=closed\n"                  \
        "DeviceAllow=char-nvidia* rw\n"

HOST_TEST(test_unit)
{
        struct host *h = *state;

        host_expect(h, "unit", DOCTOR_UNCHECKED, "there is no kvleased.service", NULL);
        host_add_gpu(h, GPU, GIB);
        host_write_unit(h, GOOD_UNIT);
        host_expect(h, "unit", DOCTOR_OK, "is as kvleased needs it", NULL);
        host_write_unit(h, GOOD_UNIT "Type=simple\n");
        host_expect(h, "unit", DOCTOR_ERROR, "Type=simple", "Type=notify");
        host_write_unit(h, GOOD_UNIT "NotifyAccess=none\n");
        host_expect(h, "unit", DOCTOR_ERROR, "NotifyAccess=none", "NotifyAccess=main");
        host_write_unit(h, GOOD_UNIT "Restart=no\n");
        host_expect(h, "unit", DOCTOR_ERROR, "Restart=no", "Restart=on-failure");
        host_write_unit(h, GOOD_UNIT "WatchdogSec=0\n");
        host_expect(h, "unit", DOCTOR_WARNING, "no WatchdogSec", "WatchdogSec=10");
        host_write_unit(h, GOOD_UNIT "RuntimeDirectoryPreserve=\n");
        host_expect(h, "unit", DOCTOR_WARNING, "removes the sockets", "Preserve=yes");
        host_write_unit(h, GOOD_UNIT "DeviceAllow=\n");
        host_expect(h, "unit", DOCTOR_ERROR, "may not open GPUs", "DeviceAllow=char-nvidia*");
        host_write_unit(h, GOOD_UNIT "FileDescriptorStoreMax=0\n");
        host_expect(h, "unit", DOCTOR_ERROR, "nothing outlives", "FileDescriptorStoreMax=8192");
        host_configure(h, "[daemon]\nkeep_state = off\n");
        host_expect(h, "unit", DOCTOR_OK, "is as kvleased needs it", NULL);
}

HOST_TEST(test_unit_of_daemon)
{
        struct host *h = *state;

        host_start_daemon(h);
        host_write(h, "/proc/42/cgroup", "0::/user.slice/session-1.scope\n");
        host_write_unit(h, GOOD_UNIT);
        host_expect(h, "unit", DOCTOR_UNCHECKED, "process 42 wasn't started by a unit", NULL);
        host_write(h, "/proc/42/cgroup", "0::/system.slice/kvleased.service\n");
        host_write_unit(h, GOOD_UNIT);
        h->d.daemon.kept_max = 8192;
        host_expect(h, "unit", DOCTOR_OK, "is as kvleased needs it", NULL);
        h->d.daemon.kept_max = 512;
        host_expect(h, "unit", DOCTOR_WARNING, "found 512", "daemon-reload");
}

/* ---- configuration --------------------------------------------------------------------------- */

/* A kvleased of a test: a program that ends as told. */
static void write_program(struct host *h, const char *script)
{
        static char path[512];

        host_write(h, "/kvleased", "#!/bin/sh\n%s\n", script);
        snprintf(path, sizeof(path), "%s", host_path(h, "/kvleased"));
        assert_int_equal(chmod(path, 0700), 0);
        h->d.binary = path;
}

HOST_TEST(test_config)
{
        struct host *h = *state;

        host_expect(h, "config", DOCTOR_UNCHECKED, "name it with --binary", NULL);
        write_program(h, "echo \"$@\"");
        host_expect(h, "config", DOCTOR_OK, "built-in defaults", NULL);
        host_configure(h, "[daemon]\n");
        host_expect(h, "config", DOCTOR_OK, "kvleased.conf is valid", NULL);
        write_program(h, "echo \"$1 $2 is wrong\" >&2; echo twice >&2; exit 2");
        host_expect(
                h, "config", DOCTOR_ERROR, "--check-config --config is wrong;twice", "correct it");
        write_program(h, "kill -KILL $$");
        host_expect(h, "config", DOCTOR_UNCHECKED, "doesn't answer", NULL);
        h->d.config_error = -EACCES;
        host_expect(h, "config", DOCTOR_UNCHECKED, "can't be read (Permission denied)", NULL);
}

/* Until the child has become that program. */
static void wait_for_program(pid_t pid, const char *program)
{
        char link[64], is[512];
        ssize_t n;

        snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
        for (unsigned i = 0; i < 10000; i++) {
                n = readlink(link, is, sizeof(is) - 1);
                is[n < 0 ? 0 : n] = '\0';
                if (strcmp(is, program) == 0)
                        return;
                poll(NULL, 0, 1);
        }
        fail_msg("%s isn't %s", is, program);
}

/* The process may be anyone's: its program only runs if just root and this user can write it. */
HOST_TEST(test_untrusted_program)
{
        struct host *h = *state;
        char copy[512], command[1100];
        pid_t pid;

        host_write(h, "/x", "%s", "");
        snprintf(copy, sizeof(copy), "%s", host_path(h, "/sleep"));
        snprintf(command, sizeof(command), "cp \"$(command -v sleep)\" %s", copy);
        assert_int_equal(system(command), 0);
        pid = child_fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                execl(copy, copy, "60", NULL);
                _exit(127);
        }
        host_start_daemon(h);
        h->d.daemon.pid = (uint64_t)pid;
        h->d.root = "";
        wait_for_program(pid, copy);
        host_expect(h, "config", DOCTOR_ERROR, "unrecognized option", "correct it");
        for (unsigned i = 0; i < (geteuid() == 0 ? 3 : 2); i++) {
                const char *path = i == 1 ? host_path(h, "") : copy;

                if (i == 2)
                        assert_int_equal(chown(copy, (uid_t)-1, 12345), 0);
                assert_int_equal(chmod(path, i == 2 ? 0775 : 0777), 0);
                doctor_run(&h->d, "config");
                assert_null(
                        strstr(h->d.findings[h->d.n_findings - 1].found, "unrecognized option"));
                assert_int_equal(chmod(path, 0755), 0);
        }
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* ---- daemon ---------------------------------------------------------------------------------- */

HOST_TEST(test_daemon)
{
        struct host *h = *state;

        host_expect(h, "daemon", DOCTOR_WARNING, "no process listens", "start kvleased");
        host_expect(h, "open-files", DOCTOR_UNCHECKED, "isn't asked", NULL);
        host_write_unit(h, GOOD_UNIT);
        host_expect(h, "daemon", DOCTOR_WARNING, "no process listens",
                "systemctl start kvleased.service");
        h->d.daemon.why = strdup("permission denied");
        h->d.daemon.state = DAEMON_FORBIDDEN;
        host_expect(h, "daemon", DOCTOR_UNCHECKED, "permission denied", "as root");
        h->d.daemon.state = DAEMON_BROKEN;
        host_expect(h, "daemon", DOCTOR_ERROR, "permission denied", "journalctl -u");
}

HOST_TEST(test_running)
{
        struct host *h = *state;

        host_start_daemon(h);
        host_expect(h, "daemon", DOCTOR_OK, "pid 42", NULL);
        h->d.daemon.draining = true;
        host_expect(h, "daemon", DOCTOR_WARNING, "draining", "drain --off");
        h->d.daemon.draining = false;
        host_write(h, "/proc/42/status", "%s", "");
        assert_int_equal(symlink("/usr/sbin/kvleased (deleted)", host_path(h, "/proc/42/exe")), 0);
        host_expect(h, "daemon", DOCTOR_WARNING, "still runs the /usr/sbin/kvleased that was",
                "kvleasectl restart");
        assert_int_equal(unlink(host_path(h, "/proc/42/exe")), 0);
        strcpy(h->d.daemon.version, "0");
        host_expect(h, "daemon", DOCTOR_WARNING, "kvleased is 0,", "packages of one version");
}

HOST_TEST(test_devices)
{
        struct host *h = *state;
        struct figures_device *row;

        host_start_daemon(h);
        row = host_add_device(h, GPU, "device", "cuda", GIB);
        host_expect(h, "devices", DOCTOR_OK, "that work: 1", NULL);
        free((char *)row->state);
        row->state = strdup("broken");
        host_expect(h, "devices", DOCTOR_ERROR, GPU " is broken", "nvidia-smi");
        free((char *)row->tier);
        row->tier = strdup("disk");
        host_expect(h, "devices", DOCTOR_ERROR, GPU " is broken", "dmesg for the disk");
}

HOST_TEST(test_index_guard)
{
        struct host *h = *state;

        host_start_daemon(h);
        host_expect(h, "index-guard", DOCTOR_OK, "read-only mount", NULL);
        free(h->d.daemon.segments);
        h->d.daemon.segments = strdup("memfd (Operation not permitted)");
        host_expect(h, "index-guard", DOCTOR_WARNING, "Operation not permitted", "CAP_SYS_ADMIN");
}

HOST_TEST(test_open_files)
{
        struct host *h = *state;

        host_start_daemon(h);
        h->d.daemon.open_files_needed = 2000;
        h->d.daemon.open_files_max = 2000;
        host_expect(h, "open-files", DOCTOR_OK, "2000", NULL);
        h->d.daemon.open_files_max = 1999;
        host_expect(h, "open-files", DOCTOR_WARNING, "may have 1999", "ulimit -Hn 2000");
        h->d.is_unit_run = true;
        host_expect(h, "open-files", DOCTOR_WARNING, "may have 1999", "LimitNOFILE=524288");
}

HOST_TEST(test_locked_memory)
{
        struct host *h = *state;

        host_start_daemon(h);
        host_expect(h, "locked-memory", DOCTOR_UNCHECKED, "can't be read", NULL);
        host_write(h, "/proc/42/limits",
                "Limit  Soft Limit  Hard Limit  Units\n"
                "Max locked memory         8388608              8388608              bytes\n");
        host_add_device(h, "cold memory of host", "host", "host", GIB);
        host_expect(h, "locked-memory", DOCTOR_OK, "0 B of host memory", NULL);
        host_add_device(h, GPU, "device", "cuda", GIB);
        host_add_device(h, "host of " GPU, "host", "host", GIB);
        host_expect(h, "locked-memory", DOCTOR_WARNING, "may lock 8 MiB", "ulimit -l");
        h->d.is_unit_run = true;
        host_expect(h, "locked-memory", DOCTOR_WARNING, "has 1 GiB", "LimitMEMLOCK=infinity");
        /* Devices that span others: GPUs, and the host's memory. */
        host_add_device(h, "tp2", "device", "cuda", GIB);
        host_add_device(h, "host of tp2", "host", "host", GIB);
        host_add_device(h, "cpu2", "device", "host", GIB);
        host_add_device(h, "cold memory of cpu2", "host", "host", GIB);
        host_expect(h, "locked-memory", DOCTOR_WARNING, "has 2 GiB", "LimitMEMLOCK=infinity");
        host_write(h, "/proc/42/limits",
                "Max locked memory         unlimited            unlimited            bytes\n");
        host_expect(h, "locked-memory", DOCTOR_OK, "any allowed", NULL);
}

HOST_TEST(test_fd_store)
{
        struct host *h = *state;

        host_start_daemon(h);
        host_expect(h, "fd-store", DOCTOR_WARNING, "no descriptors are stored", "kvleased --keep");
        h->d.is_unit_run = true;
        host_expect(h, "fd-store", DOCTOR_WARNING, "no descriptors are stored", "systemctl edit");
        host_configure(h, "[daemon]\nkeep_state = off\n");
        host_expect(h, "fd-store", DOCTOR_OK, "keep_state = off", NULL);
        h->d.daemon.kept_max = 1000;
        h->d.daemon.kept_fds = 100;
        h->d.daemon.kept_needed = 1000;
        host_expect(h, "fd-store", DOCTOR_OK, "100 of 1000", NULL);
        h->d.daemon.kept_needed = 3000;
        host_expect(h, "fd-store", DOCTOR_WARNING, "need 3000", "FileDescriptorStoreMax=3000");
        h->d.is_unit_run = false;
        host_expect(h, "fd-store", DOCTOR_WARNING, "need 3000", "--keep-max 3000");
        h->d.daemon.kept_needed = 1000;
        h->d.daemon.kept_fds = 900;
        host_expect(h, "fd-store", DOCTOR_WARNING, "900 of 1000", "--keep-max 2000");
        h->d.daemon.kept_needed = 16385;
        host_expect(h, "fd-store", DOCTOR_WARNING, "need 16385", "fewer max_clients");
}

/* ---- sockets --------------------------------------------------------------------------------- */

static void make_socket(struct host *h, const char *path, unsigned mode)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        host_write(h, path, "%s", ""); /* and the directories above it */
        assert_int_equal(unlink(host_path(h, path)), 0);
        assert_true(strlen(host_path(h, path)) < sizeof(address.sun_path));
        strcpy(address.sun_path, host_path(h, path));
        assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        assert_int_equal(chmod(host_path(h, path), mode), 0);
}

HOST_TEST(test_admin_socket)
{
        struct host *h = *state;

        host_expect(h, "admin-socket", DOCTOR_UNCHECKED, "No such file", NULL);
        host_write(h, "/run/kvlease/admin.sock", "%s", "");
        host_expect(h, "admin-socket", DOCTOR_ERROR, "is no socket", "rm /run");
        make_socket(h, "/run/kvlease/admin.sock", 0600);
        host_expect(h, "admin-socket", DOCTOR_OK, "mode 0600", NULL);
        host_write(h, "/etc/group", "kvlease-admin:x:%u:\n", (unsigned)getegid());
        host_expect(
                h, "admin-socket", DOCTOR_WARNING, "members of kvlease-admin can't", "chmod 0660");
        assert_int_equal(chmod(host_path(h, "/run/kvlease/admin.sock"), 0660), 0);
        host_expect(h, "admin-socket", DOCTOR_OK, "group kvlease-admin", NULL);
        host_write(h, "/etc/group", "kvlease-admin:x:%u:\n", (unsigned)getegid() + 1);
        host_expect(h, "admin-socket", DOCTOR_WARNING, "members of kvlease-admin can't", "chgrp");
        assert_int_equal(chmod(host_path(h, "/run/kvlease/admin.sock"), 0666), 0);
        host_expect(h, "admin-socket", DOCTOR_ERROR, "everybody may connect", "chmod 0660");
}

HOST_TEST(test_admin_group)
{
        struct host *h = *state;

        host_expect(h, "admin-group", DOCTOR_WARNING, "no group kvlease-admin", "groupadd");
        host_write(h, "/etc/group", "root:x:0:\nkvlease-admin:x:103:\n");
        host_expect(h, "admin-group", DOCTOR_OK, "gid 103", NULL);
        host_configure(h, "[daemon]\nadmin_group = ops\n");
        host_expect(h, "admin-group", DOCTOR_WARNING, "no group ops", "groupadd --system ops");
        host_configure(h, "[daemon]\nadmin_group =\n");
        host_expect(h, "admin-group", DOCTOR_OK, "only root", NULL);
}

HOST_TEST(test_runtime_dir)
{
        struct host *h = *state;

        host_expect(h, "runtime-dir", DOCTOR_UNCHECKED, "No such file", NULL);
        host_write(h, "/run/kvlease/lock", "%s", "");
        assert_int_equal(chmod(host_path(h, "/run/kvlease"), 0755), 0);
        host_expect(h, "runtime-dir", DOCTOR_OK, "mode 0755", NULL);
        assert_int_equal(chmod(host_path(h, "/run/kvlease"), 0777), 0);
        host_expect(h, "runtime-dir", DOCTOR_ERROR, "everybody may write", "chmod o-w");
        assert_int_equal(chmod(host_path(h, "/run/kvlease"), 0775), 0);
        host_expect(h, "runtime-dir", DOCTOR_WARNING, "may write", "chmod g-w");
        assert_int_equal(chmod(host_path(h, "/run/kvlease"), 0700), 0);
        host_expect(h, "runtime-dir", DOCTOR_WARNING, "can't reach", "chmod 0755");
}

HOST_TEST(test_tenant_sockets)
{
        static const char dir[] = "/run/kvlease/t/a", path[] = "/run/kvlease/t/a/sock";
        struct host *h = *state;
        struct figures_tenant *t = malloc(sizeof(*t));

        host_start_daemon(h);
        host_expect(h, "tenant-sockets", DOCTOR_OK, "all right: 0", NULL);
        *t = (struct figures_tenant){.name = strdup("a"),
                .socket_path = strdup(path),
                .uids = strdup(""),
                .gids = strdup(""),
                .group = strdup(""),
                .no_room = strdup(""),
                .limit_bytes = FIGURE_NONE};
        h->d.daemon.tenants = t;
        h->d.daemon.n_tenants = 1;
        make_socket(h, path, 0666);
        assert_int_equal(chmod(host_path(h, dir), 0750), 0);
        host_expect(h, "tenant-sockets", DOCTOR_OK, "all right: 1", NULL);
        host_expect(h, "tenant-room", DOCTOR_OK, "can lease: 1", NULL);
        free((char *)t->no_room);
        t->no_room = strdup("tenant a can lease no page: it is small; raise its limit");
        host_expect(h, "tenant-room", DOCTOR_WARNING, "it is small", "raise its limit");
        assert_int_equal(chmod(host_path(h, dir), 0755), 0);
        host_expect(h, "tenant-sockets", DOCTOR_WARNING, "every user of this host", "chmod o-rwx");
        free((char *)t->uids);
        t->uids = strdup("1000");
        host_expect(h, "tenant-sockets", DOCTOR_OK, "all right: 1", NULL);
        free((char *)t->group);
        assert_true(asprintf((char **)&t->group, "%u", (unsigned)getegid() + 1) > 0);
        host_expect(h, "tenant-sockets", DOCTOR_WARNING, "can't enter", "chgrp");
        free((char *)t->group);
        assert_true(asprintf((char **)&t->group, "%u", (unsigned)getegid()) > 0);
        host_expect(h, "tenant-sockets", DOCTOR_OK, "all right: 1", NULL);
        assert_int_equal(unlink(host_path(h, path)), 0);
        host_expect(h, "tenant-sockets", DOCTOR_ERROR, "is gone", "systemctl stop");
}

/* ---- disk ------------------------------------------------------------------------------------ */

/* Not every file system has O_DIRECT: there is another finding then. */
static void skip_without_direct(struct host *h)
{
        _cleanup_fd_ int fd = -1;

        host_write(h, "/direct", "%s", "");
        fd = open(host_path(h, "/direct"), O_RDONLY | O_DIRECT | O_CLOEXEC);
        if (fd < 0)
                skip();
}

HOST_TEST(test_disk)
{
        struct host *h = *state;

        skip_without_direct(h);

        host_expect(h, "disk", DOCTOR_OK, "has no disk", NULL);
        host_configure(h, "[device host]\ndisk = /var/lib/kvlease/disk\ndisk_size = 1MiB\n");
        host_expect(h, "disk", DOCTOR_ERROR, "can't be seen: No such file",
                "mkdir -p /var/lib/kvlease");
        host_write(h, "/var/lib/kvlease/other", "%s", "");
        host_write_unit(h, GOOD_UNIT);
        host_expect(h, "disk", DOCTOR_OK, "there is room", NULL);
        host_configure(h, "[device host]\ndisk = /var/lib/kvlease/disk\ndisk_size = 900TiB\n");
        host_expect(h, "disk", DOCTOR_ERROR, "is to have 900 TiB", "make room");
        host_configure(h, "[device host]\ndisk = /var/lib/kvlease/disk\ndisk_size = 1MiB\n");
        host_write(h, "/var/lib/kvlease/disk", "short");
        host_expect(h, "disk", DOCTOR_WARNING, "makes it again", "disk_size = 5");
        assert_int_equal(truncate(host_path(h, "/var/lib/kvlease/disk"), 1 << 20), 0);
        host_expect(h, "disk", DOCTOR_OK, "is there", NULL);
        assert_int_equal(unlink(host_path(h, "/var/lib/kvlease/disk")), 0);
        assert_int_equal(mkdir(host_path(h, "/var/lib/kvlease/disk"), 0700), 0);
        host_expect(h, "disk", DOCTOR_ERROR, "no regular file", "another path");
        h->d.config_error = -EACCES;
        lines_free(&h->d.config);
        host_expect(h, "disk", DOCTOR_UNCHECKED, "Permission denied", NULL);
}

/* A service with ProtectSystem=strict writes below its state directory, and what is named. */
HOST_TEST(test_disk_in_unit)
{
        struct host *h = *state;

        skip_without_direct(h);

        host_write(h, "/srv/x", "%s", "");
        host_configure(h, "[device host]\ndisk = /srv/disk\ndisk_size = 1MiB\n");
        host_write_unit(h, GOOD_UNIT);
        host_expect(h, "disk", DOCTOR_ERROR, "can't write to /srv/disk", "ReadWritePaths=/srv");
        host_write_unit(h, GOOD_UNIT "ReadWritePaths=-/srv /opt\n");
        doctor_run(&h->d, "disk");
        host_expect(h, "disk", DOCTOR_OK, "there is room", NULL);
        for (size_t i = h->d.n_findings - 1; i < h->d.n_findings; i++)
                assert_int_equal(h->d.findings[i].state, DOCTOR_OK);
        free(h->d.unit_name);
        h->d.unit_name = strdup("kvleased@x.service");
        lines_free(&h->d.unit);
        lines_read_unit(&h->d.unit, "[Service]\nProtectSystem=strict\nStateDirectory=kvlease-%i\n");
        host_expect(h, "disk", DOCTOR_ERROR, "kvleased@x.service can't write", "ReadWritePaths");
        host_write(h, "/var/lib/kvlease-x/x", "%s", "");
        host_configure(h, "[device host]\ndisk = /var/lib/kvlease-x/disk\ndisk_size = 1MiB\n");
        host_expect(h, "disk", DOCTOR_OK, "there is room", NULL);
}

HOST_TEST(test_io_uring)
{
        static const char file[] = "/proc/sys/kernel/io_uring_disabled";
        struct host *h = *state;

        host_write(h, file, "2\n");
        host_expect(h, "io-uring", DOCTOR_OK, "has no disk", NULL);
        host_configure(h, "[device host]\ndisk = /x\ndisk_size = 1MiB\n");
        host_expect(h, "io-uring", DOCTOR_WARNING, "is 2", "sysctl -w");
        host_write(h, file, "1\n");
        host_expect(h, "io-uring", DOCTOR_OK, "is 1", NULL);
        assert_int_equal(unlink(host_path(h, file)), 0);
        host_expect(h, "io-uring", DOCTOR_OK, "allowed", NULL);
}

/* Each row gives a finding, even if nothing can be read. */
HOST_TEST(test_bare_host)
{
        struct host *h = *state;

        for (size_t i = 0; i < n_doctor_checks; i++) {
                size_t before = h->d.n_findings;

                assert_true(doctor_run(&h->d, doctor_checks[i].name));
                assert_true(h->d.n_findings > before);
        }
        assert_false(doctor_run(&h->d, "none"));
}

/* Many pages were asked for, and none was found: engines' keys differ, perhaps. */
HOST_TEST(test_remote_keys)
{
        struct host *h = *state;
        struct figures_exchange *x = calloc(2, sizeof(*x));

        host_expect(h, "remote-keys", DOCTOR_UNCHECKED, "see check daemon", NULL);
        host_start_daemon(h);
        host_expect(h, "remote-keys", DOCTOR_OK, "asked for few: 0", NULL);
        assert_non_null(x);
        x[0] = (struct figures_exchange){.tenant = strdup("search"),
                .remote = strdup("rack"),
                .probed_pages = 32000,
                .found_pages = 9000};
        x[1] = (struct figures_exchange){
                .tenant = strdup("chat"), .remote = strdup("rack"), .probed_pages = 999};
        h->d.daemon.exchanges = x;
        h->d.daemon.n_exchanges = 2;
        host_expect(h, "remote-keys", DOCTOR_OK, "asked for few: 2", NULL);
        x[1].probed_pages = 1000;
        host_expect(h, "remote-keys", DOCTOR_WARNING,
                "tenant chat has asked [remote rack] for 1000 pages of other hosts, and found none",
                "PYTHONHASHSEED");
        x[1].found_pages = 1;
        host_expect(h, "remote-keys", DOCTOR_OK, "asked for few: 2", NULL);
}

/* kvlease-exchange and the doctor both fail to read a missing file: that is one finding. */
HOST_TEST(test_missing_secret)
{
        struct host *h = *state;
        struct figures_remote *r = calloc(1, sizeof(*r));
        size_t before;

        assert_non_null(r);
        host_configure(h, "[remote r]\naddresses = 127.0.0.1:1\nsecret_file = /none\n");
        host_start_daemon(h);
        *r = (struct figures_remote){.name = strdup("r"),
                .state = strdup("unreached"),
                .error = strdup("kvlease-exchange can't use it: secret_file = /none isn't there")};
        h->d.daemon.remotes = r;
        h->d.daemon.n_remotes = 1;
        before = h->d.n_findings;
        host_expect(h, "remote", DOCTOR_ERROR, "secret_file = /none can't be read", "create it");
        assert_int_equal(h->d.n_findings - before, 1);
        free((char *)r->error);
        r->error = strdup("kvlease-exchange isn't reached");
        host_expect(h, "remote", DOCTOR_ERROR, "exchanges no pages: kvlease-exchange isn't reached",
                "kvlease-exchange.socket");
}
