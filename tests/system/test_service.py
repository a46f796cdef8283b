#!/usr/bin/env python3
"""kvleased as a service of a real systemd, by the units that are installed."""
import os
import re
import signal
import sys

sys.path.insert(0, "/kvl/source/tests/system")
import machine
from machine import KVLEASED, SOCKET, start_kvleased


def test_start():
    """It counts as started when it is ready, not before."""
    since = machine.cursor()
    start_kvleased()
    assert re.search("ready in.*Started kvleased", machine.journal(KVLEASED, since), re.DOTALL)
    assert machine.show(KVLEASED, "ActiveState") == "active"
    assert machine.show(KVLEASED, "StatusText") == "1 tenant"
    assert '"1 tenant"' in machine.systemctl("status", KVLEASED).stdout
    assert os.stat(SOCKET).st_mode & 0o777 == 0o666
    assert os.stat("/run/kvlease/admin.sock").st_mode & 0o777 == 0o600
    assert os.stat("/var/lib/kvlease").st_mode & 0o777 == 0o750
    machine.ctl("check")


def test_guard():
    """By its privileges clients can't write what they share."""
    since = machine.cursor()
    start_kvleased()
    assert "read-only mount" not in machine.journal(KVLEASED, since)


def activate(connect):
    start_kvleased()
    machine.systemctl("stop", KVLEASED)
    assert machine.main_pid() == 0
    connect()
    assert machine.main_pid() > 0
    machine.ctl("check")


def test_activation_by_a_client():
    """The first connection starts it; a stop leaves the sockets, and clients can connect again."""
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
    """A wrong configuration is refused with a sentence, and the service goes on with the old."""
    pid = start_kvleased()
    since = machine.cursor()
    machine.write_config("[nonsense]\n")
    machine.systemctl("reload", KVLEASED)
    machine.wait_journal(KVLEASED, since, "nonsense")
    assert machine.main_pid() == pid
    assert machine.show(KVLEASED, "StatusText") == "1 tenant"


def test_wrong_configuration():
    """Isn't tried again."""
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
    """One that hangs is killed and started again."""
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


def test_stop_and_start():
    """The cache is gone with the service."""
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
