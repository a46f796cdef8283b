"""The connection of an adapter, which outlives daemons."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import LAYOUT, Daemon, MakeDaemon, wait_until

import kvlease
from kvlease import _link
from kvlease._engine import Events
from kvlease._link import Link, Session

KEY = b"k" * kvlease.KEY_BYTES


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_link, "_PAUSE_SECONDS", 0.05)


def link_to(daemon: Daemon, user: _link.User | None = None) -> Link:
    return Link(daemon.socket, "test", 5, user)


def store(session: Session) -> bool:
    namespace = session.namespace(LAYOUT, "host")
    with namespace.lease(1) as pages, namespace.publish(pages, KEY) as published:
        return len(published) == 1


def is_found(session: Session) -> bool:
    with session.namespace(LAYOUT, "host").lookup(KEY) as pages:
        return len(pages) == 1


def test_a_connection_that_is_over(make_daemon: MakeDaemon) -> None:
    """Nothing hears it, and pytest fails where a thread ends with an error."""
    daemon = make_daemon()
    with kvlease.connect(daemon.socket, reconnect=None) as connection:
        daemon.stop()
        with pytest.raises(kvlease.Disconnected):
            while True:
                connection.dispatch()
        events = Events(connection)
        events.join(10)
        assert not events.is_alive()
        events.stop()


def n_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_what_only_finds_comes_back(make_daemon: MakeDaemon) -> None:
    """What is found in the memory of a daemon that is gone says nothing of the next one."""
    daemon = make_daemon()
    link = link_to(daemon)
    assert link.call(False, store) and link.call(False, is_found)
    daemon.stop()
    daemon.start()
    wait_until(lambda: not link.call(True, is_found))
    assert link.call(False, store) and link.call(False, is_found)
    link.close()
    assert not link.call(False, is_found)


def test_threads(make_daemon: MakeDaemon) -> None:
    """No call raises, whatever others do and whenever daemons go, and nothing is left."""
    daemon = make_daemon()
    before = n_descriptors()
    link = link_to(daemon)
    ends = threading.Event()

    def work() -> None:
        while not ends.is_set():
            link.call(False, store)
            link.call(False, is_found)

    with ThreadPoolExecutor(4) as threads:
        futures = [threads.submit(work) for _ in range(4)]
        for _ in range(3):
            wait_until(lambda: link.call(False, is_found))
            daemon.stop()
            daemon.start()
        wait_until(lambda: link.call(False, is_found))
        ends.set()
    for future in futures:
        future.result()
    link.close()
    assert not [each for each in threading.enumerate() if each.name == "kvlease-events"]
    assert n_descriptors() == before


class User:
    """Has a connection at a time, of which the first one doesn't suit it."""

    def __init__(self) -> None:
        self.n_attached = 0
        self.connection: kvlease.Connection | None = None

    def attach(self, connection: kvlease.Connection, /) -> None:
        """Raises the first time."""
        assert self.connection is None
        self.n_attached += 1
        if self.n_attached == 1:
            raise kvlease.LayoutMismatch("of others")
        self.connection = connection

    def detach(self) -> None:
        """The connection is still open."""
        assert self.connection is None or not self.connection.is_closed
        self.connection = None


def test_user(make_daemon: MakeDaemon) -> None:
    daemon, user = make_daemon(), User()
    before = n_descriptors()
    link = link_to(daemon, user)
    assert not link.call(False, store)
    assert user.n_attached == 1 and n_descriptors() == before
    wait_until(lambda: link.call(False, store))
    daemon.stop()
    daemon.start()
    wait_until(lambda: not link.call(True, is_found))
    wait_until(lambda: link.call(False, store))
    assert user.n_attached == 3
    link.close()
    assert user.connection is None and n_descriptors() == before


def fail(error: Exception) -> Callable[[Session], bool]:
    def work(session: Session) -> bool:
        raise error

    return work


def test_errors(make_daemon: MakeDaemon, caplog: pytest.LogCaptureFixture) -> None:
    """An error of one page costs nothing else, a shortage costs a while, and wrong numbers all."""
    link = link_to(make_daemon())
    assert link.call(False, store)
    full = kvlease.Full("no room")
    for _ in range(2):
        assert not link.call(False, fail(full)) and link.call(False, is_found)
    assert [record.getMessage() for record in caplog.records] == ["stores and finds less: no room"]
    for short in (MemoryError(), OSError(errno.EMFILE, os.strerror(errno.EMFILE))):
        assert not link.call(False, fail(short)) and not link.call(False, is_found)
        wait_until(lambda: link.call(False, is_found))
    wrong = kvlease.Error("other numbers")
    wrong.code = -errno.EBADMSG
    assert not link.call(False, fail(wrong))
    assert "nothing any more: other numbers" in caplog.records[-1].getMessage()
    assert not link.call(False, is_found) and not link.call(False, store)
    link.close()
