#!/usr/bin/env python3
"""kvleased as a service of a real systemd, by the units that are installed."""
import grp
import json
import os
import re
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, "/kvl/source/tests/system")
import machine
from machine import KVLEASED, SOCKET, start_kvleased


def test_start():
    """The service counts as started when it is ready, not before."""
    since = machine.cursor()
    start_kvleased()
    # kvleased's lines are written by a thread of its own: their order says nothing.
    assert "Started kvleased" in machine.journal(KVLEASED, since)
    machine.wait_journal(KVLEASED, since, "ready in")
    assert machine.show(KVLEASED, "ActiveState") == "active"
    assert machine.show(KVLEASED, "StatusText") == "1 tenant"
    assert '"1 tenant"' in machine.systemctl("status", KVLEASED).stdout
    assert os.stat(SOCKET).st_mode & 0o777 == 0o666
    admin = os.stat("/run/kvlease/admin.sock")
    assert (admin.st_mode & 0o777, admin.st_gid) == (0o660, grp.getgrnam("kvlease-admin").gr_gid)
    monitor = os.stat("/run/kvlease/monitor.sock")
    assert (monitor.st_mode & 0o777, monitor.st_gid) == (0o660, grp.getgrnam("kvlease-monitor").gr_gid)
    assert os.stat("/var/lib/kvlease").st_mode & 0o777 == 0o750
    machine.ctl("check")


def test_guard():
    """Privileges let kvleased protect shared memory from clients' writes."""
    since = machine.cursor()
    start_kvleased()
    assert "read-only mount" not in machine.journal(KVLEASED, since)


PRIVILEGES = {"CAP_CHOWN": 0, "CAP_KILL": 5, "CAP_SYS_ADMIN": 21, "CAP_SYS_RESOURCE": 24}


def test_directory_stays():
    """The directory stays over a stop and a start: a container that has mounted it finds the new socket."""
    start_kvleased()
    inode = os.stat("/run/kvlease/t/a").st_ino
    machine.systemctl("stop", KVLEASED)
    machine.systemctl("start", KVLEASED)
    assert os.stat("/run/kvlease/t/a").st_ino == inode
    machine.Worker().end()


def process_status(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return dict(line.split(":\t", 1) for line in f.read().splitlines())


def test_privileges():
    """The service has its four capabilities, and can't get others."""
    status, of_init = process_status(start_kvleased()), process_status(1)
    # No more than systemd itself has here.
    wanted = sum(1 << n for n in PRIVILEGES.values()) & int(of_init["CapBnd"], 16)
    for name in ("CapEff", "CapPrm", "CapBnd"):
        assert int(status[name], 16) == wanted, f"{name} {status[name]}"
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"


def test_nothing_on_disk():
    """Keys and pages are neither in cores nor in swap."""
    pid = start_kvleased()
    with open(f"/proc/{pid}/limits", encoding="ascii") as f:
        limits = f.read()
    assert re.search(r"Max core file size +0 +0 ", limits), limits
    assert machine.show(KVLEASED, "MemorySwapMax") == "0"


def test_tenants_group():
    """A tenant's directory belongs to its group, though the daemon's umask admits no other user."""
    start_kvleased()
    machine.ctl("tenants", "add", "grouped", "group=games")
    games = grp.getgrnam("games").gr_gid
    at = os.stat("/run/kvlease/t/grouped")
    assert (at.st_mode & 0o777, at.st_gid) == (0o750, games), (oct(at.st_mode), at.st_gid)
    assert os.stat("/run/kvlease/t").st_mode & 0o777 == 0o755
    machine.Worker("/run/kvlease/t/grouped/sock", group=games).end()
    machine.ctl("tenants", "remove", "grouped", "--force")


def test_revoke_kill():
    """A client that keeps recalled memory is killed, also one of another user."""
    start_kvleased()
    program = re.search(r"path=(\S+)", machine.show(KVLEASED, "ExecStart"))[1]
    machine.set_in_unit(KVLEASED, ExecStart=f"\nExecStart={program} -o daemon.revoke_kill=on "
                        "-o daemon.revoke_timeout=100ms")
    machine.systemctl("restart", KVLEASED)
    machine.ctl("tenants", "add", "killed", "group=games")
    worker = machine.Worker("/run/kvlease/t/killed/sock", group=grp.getgrnam("games").gr_gid)
    worker.tell("lease 3")
    worker.process.send_signal(signal.SIGSTOP)
    machine.ctl("recall", "killed")
    assert worker.process.wait(machine.WAIT_SECONDS) == -signal.SIGKILL
    machine.ctl("tenants", "remove", "killed", "--force")


def ctl_as_nobody(*groups, words=("status",)):
    return subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", f"--groups={','.join(groups)}",
                           machine.BUILD / "client/ctl/kvleasectl", *words],
                          capture_output=True, text=True, check=False)


def test_administrators_group():
    start_kvleased()
    done = ctl_as_nobody("kvlease-admin")
    assert done.returncode == 0, done.stderr
    done = ctl_as_nobody("games")
    assert done.returncode != 0 and "ermission" in done.stderr, done.stderr


def test_monitors_group():
    """The group reads on its own socket, and can change nothing there or elsewhere."""
    start_kvleased()
    reads = ("--socket", "/run/kvlease/monitor.sock")
    done = ctl_as_nobody("kvlease-monitor", words=(*reads, "status"))
    assert done.returncode == 0, done.stderr
    done = ctl_as_nobody("kvlease-monitor", words=(*reads, "drain"))
    assert done.returncode != 0 and "which is for reading" in done.stderr, done.stderr
    # Without a named socket kvleasectl finds the monitor's; that of administrators stays closed.
    done = ctl_as_nobody("kvlease-monitor", words=("status",))
    assert done.returncode == 0, done.stderr
    done = ctl_as_nobody("kvlease-monitor", words=("--socket", "/run/kvlease/admin.sock", "drain"))
    assert done.returncode != 0 and "ermission" in done.stderr, done.stderr


def test_catalog():
    """journalctl -x explains the daemon's messages."""
    shutil.copy(machine.SOURCE / "packaging/systemd/kvlease.catalog", "/usr/lib/systemd/catalog")
    os.makedirs("/var/lib/systemd/catalog", exist_ok=True)
    machine.command("journalctl", "--update-catalog")
    since = machine.cursor()
    start_kvleased()
    shown = machine.command("journalctl", "-x", "-q", "--no-pager", f"--after-cursor={since}", "-u",
                            KVLEASED).stdout
    assert "Its sockets are in /run/kvlease." in shown, shown


def test_instances():
    """Two daemons, each with configuration, sockets and state of its own."""
    machine.stop_kvleased()
    pids = set()
    for name in ("one", "two"):
        machine.write_config(f"[tenant {name}]\n", f"{name}.conf")
        machine.systemctl("start", f"kvleased-admin@{name}.socket", f"kvleased@{name}.service")
        pids.add(machine.main_pid(f"kvleased@{name}.service"))
    assert len(pids) == 2 and 0 not in pids
    for name in ("one", "two"):
        where = ("--runtime-dir", f"/run/kvlease-{name}")
        tenants = json.loads(machine.ctl("tenants", "list", "--json", *where).stdout)
        assert [t["name"] for t in tenants["tenants"]] == ["a", name], tenants
        machine.Worker(f"/run/kvlease-{name}/t/a/sock").end()
        machine.ctl("check", *where)
        assert os.stat(f"/var/lib/kvlease-{name}").st_mode & 0o777 == 0o750
    machine.systemctl("stop", "kvleased@one.service", "kvleased@two.service",
                      "kvleased-admin@one.socket", "kvleased-admin@two.socket")


def activate(connect):
    start_kvleased()
    machine.systemctl("stop", KVLEASED)
    assert machine.main_pid() == 0
    connect()
    assert machine.main_pid() > 0
    machine.ctl("check")


def test_activation_by_a_client():
    """The first connection starts the service. A stop leaves the sockets, and clients can connect again."""
    activate(lambda: machine.Worker(SOCKET).end())


def test_activation_by_an_administrator():
    activate(lambda: machine.ctl("status"))


def test_reload():
    pid = start_kvleased()
    machine.write_config("[tenant b]\nlimit = 16MiB\n")
    machine.systemctl("reload", KVLEASED)
    machine.wait_for("the second tenant",
                     lambda: machine.show(KVLEASED, "StatusText") == "2 tenants")
    assert machine.main_pid() == pid
    machine.ctl("tenants", "show", "b")


def test_reload_of_nonsense():
    """A wrong configuration fails with a sentence, and the service keeps the old one."""
    pid = start_kvleased()
    since = machine.cursor()
    machine.write_config("[nonsense]\n")
    assert machine.systemctl("reload", KVLEASED, check=False).returncode != 0
    machine.wait_journal(KVLEASED, since, "nonsense")
    assert machine.main_pid() == pid
    assert machine.show(KVLEASED, "StatusText") == "1 tenant"


def test_wrong_configuration():
    """The service isn't started again."""
    machine.stop_kvleased()
    since = machine.cursor()
    machine.write_config("[nonsense]\n")
    assert machine.systemctl("start", KVLEASED, check=False).returncode != 0
    assert machine.show(KVLEASED, "ActiveState") == "failed"
    assert machine.show(KVLEASED, "NRestarts") == "0"
    machine.wait_journal(None, since, "nonsense")


def test_killed():
    pid = start_kvleased()
    os.kill(pid, signal.SIGKILL)
    machine.wait_restarted(KVLEASED, pid)
    assert machine.show(KVLEASED, "NRestarts") == "1"
    machine.ctl("check")


def test_watchdog():
    """A hanging daemon is killed and started again."""
    start_kvleased()
    assert machine.show(KVLEASED, "WatchdogUSec") == "10s"
    machine.set_in_unit(KVLEASED, WatchdogSec=3)
    machine.systemctl("restart", KVLEASED)
    pid = machine.main_pid()
    since = machine.cursor()
    os.kill(pid, signal.SIGSTOP)
    machine.wait_restarted(KVLEASED, pid)
    machine.wait_journal(KVLEASED, since, "Watchdog timeout")
    machine.ctl("check")


def test_realtime():
    """The loop is scheduled as docs/operate/configure.md describes; other threads aren't."""
    start_kvleased()
    machine.set_in_unit(KVLEASED, CPUSchedulingPolicy="rr", CPUSchedulingPriority=1,
                        CPUSchedulingResetOnFork="yes")
    machine.systemctl("restart", KVLEASED)
    pid = machine.main_pid()
    assert os.sched_getscheduler(pid) == os.SCHED_RR | os.SCHED_RESET_ON_FORK
    others = [int(t) for t in os.listdir(f"/proc/{pid}/task") if int(t) != pid]
    assert others
    assert {os.sched_getscheduler(t) for t in others} == {os.SCHED_OTHER}
    machine.ctl("check")


def doctor():
    """States of `kvleasectl doctor`'s checks, by check."""
    found = {}
    shown = machine.ctl("doctor", "--json", "--binary", str(machine.BUILD / "daemon/server/kvleased"),
                        check=False)
    for finding in json.loads(shown.stdout)["findings"]:
        found.setdefault(finding["check"], []).append(finding["state"])
    return found


def test_doctor():
    """Doctor reports the installed service as healthy, and finds a drop-in's changes."""
    start_kvleased()
    found = doctor()
    for check in ("config", "unit", "daemon", "index-guard", "open-files", "locked-memory", "fd-store",
                  "runtime-dir", "admin-socket", "admin-group", "tenant-sockets"):
        assert found[check] == ["ok"], (check, found)
    machine.set_in_unit(KVLEASED, Restart="no", WatchdogSec=0)
    assert sorted(doctor()["unit"]) == ["error", "warning"]
    machine.set_in_unit(KVLEASED, FileDescriptorStoreMax=64)
    assert doctor()["unit"] == ["warning"]  # the running daemon was started with more
    machine.systemctl("restart", KVLEASED)
    found = doctor()
    assert found["unit"] == ["ok"] and found["fd-store"] != ["ok"], found


def test_stop_and_start():
    """The cache ends with the service."""
    start_kvleased()
    worker = machine.Worker()
    worker.publish_text(1, 4)
    worker.end()
    assert machine.status()["pages_sealed"] == 4
    machine.systemctl("stop", KVLEASED)
    assert machine.n_kept() == 0
    machine.systemctl("start", KVLEASED)
    worker = machine.Worker()
    assert worker.find(1, 4) == (0, True)
    worker.end()
    assert machine.status()["pages_sealed"] == 0


if __name__ == "__main__":
    machine.install_kvleased()
    machine.run_tests(globals(), [KVLEASED])
