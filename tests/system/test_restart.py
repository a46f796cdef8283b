#!/usr/bin/env python3
"""kvleased ends and is started again under a worker, as a service of a real systemd that stores its
descriptors."""
import os
import signal
import sys

sys.path.insert(0, "/kvl/source/tests/system")
import machine
from machine import KVLEASED

CHAIN, PAGES = 7, 16
RESTARTS = 20
SMALL = 24  # descriptors: a store that is full after a few extents


class Text:
    """A published text; its worker reads the first half all the time."""

    def __init__(self):
        machine.start_kvleased()
        self.worker = machine.Worker()
        self.pages = self.worker.publish_text(CHAIN, PAGES)
        self.pinned = self.worker.tell(f"lookup {CHAIN}:0-{PAGES // 2 - 1}").split()

    def check(self):
        """All of it is there, for the worker that holds it and for a new one."""
        assert self.worker.is_intact(CHAIN, self.pinned), "pages that it reads have other bytes"
        n, intact = self.worker.find(CHAIN, PAGES)
        assert (n, intact) == (PAGES, True), f"the worker finds {n} of {PAGES} pages, {intact}"
        machine.wait_for("the worker is a client again", lambda: machine.status()["n_clients"] == 1)
        other = machine.Worker()
        n, intact = other.find(CHAIN, PAGES)
        assert (n, intact) == (PAGES, True), f"another worker finds {n} of {PAGES} pages, {intact}"
        other.end()
        machine.ctl("check")

    def go_on(self):
        """Pages can be leased and published as before."""
        self.worker.publish_text(CHAIN + 1, PAGES)
        assert self.worker.find(CHAIN + 1, PAGES) == (PAGES, True)

    def end(self):
        self.worker.end()
        machine.wait_for("the worker is gone", lambda: machine.status()["n_clients"] == 0)
        machine.ctl("check")


def test_restart():
    text = Text()
    pid = machine.main_pid()
    machine.systemctl("restart", KVLEASED)
    assert machine.main_pid() not in (0, pid)
    text.check()
    text.go_on()
    text.end()


def test_restart_by_kvleasectl():
    """kvleased ends by itself, and systemd starts it again."""
    text = Text()
    pid = machine.main_pid()
    machine.ctl("restart")
    assert machine.main_pid() not in (0, pid)
    text.check()
    text.end()


def test_killed():
    text = Text()
    pid = machine.main_pid()
    os.kill(pid, signal.SIGKILL)
    machine.wait_restarted(KVLEASED, pid)
    text.check()
    text.go_on()
    text.end()


def test_watchdog():
    text = Text()
    machine.set_in_unit(KVLEASED, WatchdogSec=3)
    machine.systemctl("restart", KVLEASED)
    text.check()
    pid = machine.main_pid()
    since = machine.cursor()
    os.kill(pid, signal.SIGSTOP)
    machine.wait_restarted(KVLEASED, pid)
    machine.wait_journal(KVLEASED, since, "Watchdog timeout")
    text.check()
    text.go_on()
    text.end()


def test_many_restarts():
    """Nothing piles up: as many descriptors are stored after the last restart as after the first."""
    text = Text()
    before = machine.n_kept()
    assert before > 0
    for i in range(RESTARTS):
        pid = machine.main_pid()
        if i % 2:
            os.kill(pid, signal.SIGKILL)
            machine.wait_restarted(KVLEASED, pid)
        else:
            machine.systemctl("restart", KVLEASED)
        text.check()
        machine.wait_for(f"{before} descriptors kept, not {machine.n_kept()}",
                         lambda: machine.n_kept() == before)
    text.go_on()
    text.end()


def test_worker_gone_meanwhile():
    """The worker's leases are freed at the start; its published pages stay."""
    text = Text()
    text.worker.tell("lease 3")
    pid = machine.main_pid()
    os.kill(pid, signal.SIGSTOP)
    text.worker.process.kill()
    text.worker.process.wait()
    os.kill(pid, signal.SIGKILL)
    machine.wait_restarted(KVLEASED, pid)
    machine.wait_for("the worker is gone", lambda: machine.status()["n_clients"] == 0)
    status = machine.status()
    found = [status[name] for name in ("pages_sealed", "pages_pinned", "pages_granted")]
    assert found == [PAGES, 0, 0], found
    machine.ctl("check")


def test_stop_and_start():
    """The cache ends with the service, and the next start reports that it begins with nothing."""
    text = Text()
    assert machine.n_kept() > 0
    machine.systemctl("stop", KVLEASED)
    assert machine.n_kept() == 0
    text.worker.process.kill()
    text.worker.process.wait()
    since = machine.cursor()
    machine.systemctl("start", KVLEASED)
    machine.wait_journal(KVLEASED, since, "empty")
    assert machine.status()["pages_sealed"] == 0
    machine.ctl("check")


def test_store_too_small():
    """The start reports it. Memory that couldn't be stored isn't leased, and the refusal names the
    limit. Stored memory is recovered."""
    machine.start_kvleased()
    machine.set_in_unit(KVLEASED, FileDescriptorStoreMax=SMALL)
    machine.systemctl("stop", KVLEASED)
    since = machine.cursor()
    machine.systemctl("start", KVLEASED)
    assert "FileDescriptorStoreMax" in machine.journal(KVLEASED, since)
    worker = machine.Worker()
    answers = (worker.ask(f"lease {PAGES}") for _ in range(1000))
    code, sentence = next((code, rest) for code, rest in answers if code != 0)
    assert "FileDescriptorStoreMax" in sentence, f"{code} {sentence}"
    assert 0 < machine.n_kept() <= SMALL, machine.n_kept()
    machine.systemctl("restart", KVLEASED)
    machine.wait_for("the worker is a client again", lambda: machine.status()["n_clients"] == 1)
    machine.ctl("check")
    worker.end()


if __name__ == "__main__":
    machine.install_kvleased()
    machine.run_tests(globals(), [KVLEASED])
