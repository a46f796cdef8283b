#!/usr/bin/env python3
"""Rules of systemd's file-descriptor store, on which kvleased relies, shown by a small service
(parker.c)."""
import re
import sys

sys.path.insert(0, "/kvl/source/tests/system")
import machine
from machine import FULL

UNIT = "parker.service"


def start(what, most):
    """Starts a parker of its own; returns the journal's position before it."""
    machine.systemctl("stop", UNIT, check=False)
    machine.write_unit(UNIT, f"""
[Unit]
StartLimitIntervalSec=0
[Service]
Type=notify
NotifyAccess=main
ExecStart=/kvl/build/tests/system/parker {what}
Restart=always
RestartSec=0
FileDescriptorStoreMax={most}
LimitNOFILE=65536
TimeoutStartSec=900
""")
    since = machine.cursor()
    machine.systemctl("start", UNIT)
    return since


def kill(since):
    """Sends SIGKILL; returns (number of descriptors that came back, number of intact ones)."""
    pid = machine.main_pid(UNIT)
    machine.systemctl("kill", "-s", "KILL", UNIT)
    machine.wait_restarted(UNIT, pid)
    found = machine.wait_journal(UNIT, since, r"got back (\d+), (\d+) intact.*")
    return int(found[1]), int(found[2])


def names(since):
    return sorted(re.findall(r"^name (.*)$", machine.journal(UNIT, since), re.MULTILINE))


def park_many(count):
    """All descriptors come back after SIGKILL and after a restart, with their names and contents."""
    since = start(count, count)
    assert machine.n_kept(UNIT) == count, machine.n_kept(UNIT)
    assert kill(since) == (count, count)
    assert machine.n_kept(UNIT) == count, machine.n_kept(UNIT)
    print("\n".join(re.findall("^(?:parked|got).*", machine.journal(UNIT, since), re.MULTILINE)))
    since = machine.cursor()
    machine.systemctl("restart", UNIT)
    assert machine.wait_journal(UNIT, since, r"got back (\d+), (\d+)").groups() == (str(count),) * 2


def test_thousands():
    park_many(4000 if FULL else 1000)


def test_many():
    """The store takes as many as kvleased.service may have (--full: it takes systemd a minute)."""
    text = (machine.BUILD / "packaging/systemd/kvleased.service").read_text()
    if FULL:
        park_many(int(re.search(r"^FileDescriptorStoreMax=(\d+)$", text, re.MULTILINE)[1]))


def test_beyond_the_limit():
    """Descriptors beyond the limit are dropped. systemd's log has it, but the service isn't told: it
    must count for itself."""
    since = start(20, 8)
    assert machine.n_kept(UNIT) == 8, machine.n_kept(UNIT)
    assert "parked 20" in machine.journal(UNIT, since)
    assert machine.journal(UNIT, since).count("Cannot store more fds") == 12
    assert kill(since) == (8, 8)


def test_no_store():
    since = start(20, 0)
    assert machine.n_kept(UNIT) == 0, machine.n_kept(UNIT)
    assert "parked 20" in machine.journal(UNIT, since)


def test_stop():
    """A stop closes all: the next start gets nothing."""
    start(20, 20)
    since = machine.cursor()
    machine.systemctl("stop", UNIT)
    assert machine.n_kept(UNIT) == 0, machine.n_kept(UNIT)
    machine.systemctl("start", UNIT)
    assert "parked 20" in machine.journal(UNIT, since)
    assert "got back" not in machine.journal(UNIT, since)


def test_rules():
    """The same open file is stored once, under its first name; a name with ':' is replaced; a removed
    name is gone; two files may share a name; a hung-up file is dropped unless FDPOLL=0."""
    since = start("rules", 20)
    kill(since)
    assert names(since) == ["first", "kept", "stored", "twins", "twins"], names(since)


if __name__ == "__main__":
    machine.run_tests(globals(), [UNIT])
