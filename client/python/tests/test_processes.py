"""Threads, children, daemons that are killed, and what leaks."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from conftest import LAYOUT, TREE, Daemon, MakeDaemon, wait_until
from test_core import key, publish, text

import kvlease
from kvlease import _kvlease


def test_threads(namespace: kvlease.Namespace) -> None:
    """Every thread publishes texts of its own, and finds all others' whole or not at all."""
    n_threads, n_rounds = 4, 60

    def work(thread: int) -> int:
        hits = 0
        for i in range(n_rounds):
            seed = 1000 * (i % 7)
            keys = text(3, seed)
            with namespace.lookup(keys) as found:
                for j in range(len(found)):
                    assert found.read(j) == bytes([i % 7]) * 4096
                hits += len(found)
                rest = keys[32 * len(found) :]
                parent = key(keys, len(found) - 1) if found else None
                if rest:
                    with namespace.lease(len(rest) // 32) as pages:
                        for j in range(len(pages)):
                            with pages.page(j) as view:
                                memoryview(view)[:] = bytes([i % 7]) * 4096
                        try:
                            namespace.publish(pages, rest, parent=parent).close()
                        except kvlease.NoParent as error:  # another thread invalidated it
                            error.published.close()
            if i % 13 == thread:
                namespace.invalidate(key(keys, 1))
        return hits

    with ThreadPoolExecutor(n_threads) as pool:
        assert sum(pool.map(work, range(n_threads))) > 0
    assert namespace.report([]) == 0, "a lease was lost"


def test_other_threads_run_while_one_waits(namespace: kvlease.Namespace) -> None:
    """A call that blocks has let go of the GIL, and keeps what it uses from being closed."""
    keys = text(1)
    with namespace.lease(1) as pages:
        assert namespace.announce(pages, keys).stopped is None
        results: list[bool] = []
        thread = threading.Thread(target=lambda: results.append(namespace.wait(keys, 60)))
        thread.start()
        before = time.monotonic()
        while time.monotonic() - before < 0.05:
            pass
        assert thread.is_alive()
        with pytest.raises(kvlease.Busy, match="other threads"):
            namespace.close()
        with pytest.raises(kvlease.Busy):
            namespace.connection.close()
        namespace.publish(pages, keys).close()
        thread.join(30)
        assert results == [True]


def test_calls_that_block_let_others_run(make_daemon: MakeDaemon) -> None:
    """The daemon is stopped during each, and another thread lets it go on."""
    daemon = make_daemon()
    keys = text(2)
    with (
        kvlease.connect(daemon.socket, shm=False, timeout=20) as conn,
        conn.namespace("n", LAYOUT) as ns,
        ns.session("s") as session,
        ns.lease(4) as pages,
    ):
        publish(ns, keys)
        number = ns.lease(1).detach()
        dropped = ns.session("dropped")
        calls: list[Callable[[], object]] = [
            lambda: ns.lookup(keys).close(),
            lambda: ns.find(keys).close(),
            lambda: ns.lookup_wait(keys, 1).close(),
            lambda: kvlease.lookup_set([ns], keys).pop().close(),
            lambda: ns.probe(keys),
            lambda: ns.lease(1).close(),
            lambda: ns.announce(pages, text(1, 800)),
            lambda: ns.publish(pages, text(1, 900)).close(),
            lambda: ns.wait(b"\1" * 32, 1),
            lambda: ns.explain(keys),
            lambda: ns.free(number),
            lambda: ns.report(pages),  # frees what it doesn't name
            lambda: ns.invalidate(b"\1" * 32),
            lambda: ns.invalidate(tag=7),
            lambda: ns.session("t").close(),
            lambda: dropped.close(drop=True),
            session.pages,
            lambda: session.truncate(16, 0),
            lambda: session.keep([(0, None)]),
            lambda: conn.namespace("other", LAYOUT).close(),
            lambda: kvlease.connect(daemon.socket, timeout=20).close(),
        ]
        for call in calls:
            daemon.pause(True)
            helper = threading.Timer(0.02, daemon.pause, [False])
            helper.start()
            try:
                call()  # Timeout, where the helper can't run
            finally:
                daemon.pause(False)
                helper.join()


def test_what_a_call_uses_is_not_closed(shared_daemon: Daemon) -> None:
    """A callback runs in the midst of a blocking call, as other threads do."""
    caught: list[type[BaseException]] = []
    with (
        kvlease.connect(shared_daemon.socket, shm=False) as conn,
        conn.namespace("n", LAYOUT) as ns,
        ns.session("used") as session,
    ):

        def close_all(pages: kvlease.Pages | None, error: Exception | None) -> None:
            assert pages is not None
            pages.close()
            for thing in (session, ns, conn):
                try:
                    thing.close()
                except kvlease.Busy as busy:
                    caught.append(type(busy))

        ns.start_lookup(close_all, text(1))
        assert len(session.pages()) == 0
        assert len(caught) == 3
        assert not session.is_closed
        session.close(drop=True)


def in_child(work: Callable[[], None]) -> int:
    """Runs it in a child of fork(); its exit status."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_fork(shared_daemon: Daemon, namespace: kvlease.Namespace) -> None:
    keys = text(1)
    publish(namespace, keys, fill=8)
    connection = namespace.connection
    found = namespace.lookup(keys)

    def child() -> None:
        uses: list[Callable[[], object]] = [
            lambda: connection.tenant,
            connection.dispatch,
            connection.fileno,
            lambda: namespace.lookup(keys),
            lambda: namespace.lease(1),
            lambda: namespace.info,
            lambda: found.read(0),
            lambda: found.page(0),
            found.pin,
            namespace.request,
        ]
        for use in uses:
            with pytest.raises(kvlease.Forked):
                use()
        found.close()
        namespace.close()
        connection.close()
        assert connection.is_closed
        with (
            kvlease.connect(shared_daemon.socket) as own,
            own.namespace(name, LAYOUT) as ns,
            ns.lookup(keys) as again,
        ):
            assert again.read(0, 1) == b"\x08"

    name = namespace.name
    assert in_child(child) == 0
    # The parent's went on, and its pin, too.
    assert found.read(0, 1) == b"\x08"
    assert connection.is_connected
    found.close()


def test_killed_daemon_that_keeps(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(keep=True)
    events: list[int] = []
    with kvlease.connect(daemon.socket) as conn, conn.namespace("n", LAYOUT) as ns:
        conn.set_event_handler(lambda event: events.append(event.type))
        keys = text(2)
        publish(ns, keys, fill=6)
        leased = ns.lease(1)
        with ns.lookup(keys) as found, found.page(0) as view:
            array = np.from_dlpack(view)
            for _ in range(3):
                daemon.kill()
                assert array.sum() == 6 * 4096
                with ns.lease(1) as more:
                    more.write(0, b"after it came back")
            leased.write(0, b"as before")
            with ns.publish(leased, text(1, 5000)) as done:
                assert done.read(0, 9) == b"as before"
            assert array.sum() == 6 * 4096
            del array
        conn.dispatch()
        assert kvlease.EventType.AWAY in events
        assert kvlease.EventType.BACK in events
        assert kvlease.EventType.DISCONNECTED not in events
        leased.close()


def test_killed_daemon_that_does_not_keep(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon()
    with kvlease.connect(daemon.socket, reconnect=0.05, timeout=10) as conn:
        conn.set_event_handler(lambda event: None)
        with conn.namespace("n", LAYOUT) as ns:
            keys = text(1)
            publish(ns, keys)
            with ns.lookup(keys) as found, found.page(0) as view:
                daemon.kill()
                with pytest.raises(kvlease.Disconnected) as caught:
                    ns.invalidate()
                assert caught.value.reason == "disconnected"
                assert bytes(memoryview(view)[:2]) == b"\7\7"
            with pytest.raises(kvlease.Error):
                conn.fileno()


def test_timeout(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon()
    with kvlease.connect(daemon.socket, timeout=2) as conn, conn.namespace("n", LAYOUT) as ns:
        daemon.pause(True)
        try:
            with pytest.raises(kvlease.Timeout) as caught:
                ns.invalidate()
            assert isinstance(caught.value, TimeoutError)
        finally:
            daemon.pause(False)
        wait_until(lambda: ns.invalidate() == 0)


def started_calls(ns: kvlease.Namespace, keys: bytes) -> None:
    """Calls with callbacks: one that finds something, one that fails."""
    found: list[kvlease.Pages | None] = []
    errors: list[Exception | None] = []
    with ns.lease(1) as pages:
        ns.start_lookup(lambda pages, error: found.append(pages), keys)
        ns.start_publish(
            pages,
            b"\1" * 32,
            parent=b"\2" * 32,
            callback=lambda published, error: errors.append(error),
        )
        wait_until(lambda: ns.connection.dispatch() >= 0 and bool(found and errors))
    assert found[0] is not None
    found[0].close()
    assert isinstance(errors[0], kvlease.NoParent)


def test_nothing_leaks(shared_daemon: Daemon) -> None:
    """Descriptors, mappings, and references of what is made in every round."""

    def round_trip() -> None:
        with kvlease.connect(shared_daemon.socket) as conn, conn.namespace("leak", LAYOUT) as ns:
            conn.set_event_handler(lambda event: ns)
            keys = text(4)
            with ns.request() as request, ns.lease(4, request) as pages:
                with pages.page(0) as view:
                    np.from_dlpack(view)[0] = 1
                    memoryview(view).release()
                    view.__dlpack__()
                with ns.session("chat") as session, ns.publish(pages, keys, session=session):
                    session.pages().close()
            for _ in range(3):
                ns.lookup([key(keys, i) for i in range(4)]).close()
                ns.lookup(np.frombuffer(keys, np.uint8)).close()
                ns.explain(keys)
                _ = ns.info
                with pytest.raises(kvlease.NoParent):
                    with ns.lease(1) as more:
                        ns.publish(more, b"\1" * 32, parent=b"\2" * 32)
                with pytest.raises(kvlease.Invalid):
                    ns.release([1])
                with pytest.raises(TypeError):
                    ns.lookup(5)  # type: ignore[arg-type]
                LAYOUT.keys(np.arange(100))
                started_calls(ns, keys)
            ns.invalidate()

    def counts() -> tuple[int, int]:
        gc.collect()
        return len(os.listdir("/proc/self/fd")), Path("/proc/self/maps").read_text().count("memfd:")

    for _ in range(200):  # until caches of the interpreter are full
        round_trip()
    before = counts()
    references = [sys.getrefcount(o) for o in (kvlease.Pages, kvlease.Namespace, LAYOUT)]
    n_rounds = 100
    growth = []
    for _ in range(5):
        blocks = sys.getallocatedblocks()
        for _ in range(n_rounds):
            round_trip()
        assert counts() == before
        growth.append(sys.getallocatedblocks() - blocks)
    after = [sys.getrefcount(o) for o in (kvlease.Pages, kvlease.Namespace, LAYOUT)]
    assert all(b - a < n_rounds for a, b in zip(references, after, strict=True))
    # Caches of the interpreter grow now and then; what leaks an object a round does so each time.
    assert min(growth) < n_rounds


def test_what_the_extension_brings() -> None:
    """Names of the bundled libraries stay inside, and nothing but libc is loaded with them."""

    def said_by(*command: str) -> str:
        return subprocess.run(
            [*command, str(_kvlease.__file__)], capture_output=True, text=True, check=True
        ).stdout

    names = {line.split()[0] for line in said_by("nm", "-D", "-P", "--defined-only").splitlines()}
    assert {n for n in names if not n.startswith(("__asan", "__odr_asan"))} == {"PyInit__kvlease"}
    dynamic = said_by("readelf", "-dW")
    assert "PATH" not in dynamic
    needed = set(re.findall(r"\(NEEDED\).*\[(\w+)", dynamic))
    assert needed - {"libasan", "libubsan"} <= {"libc", "libm", "libdl", "libpthread", "ld"}


def test_start_page(shared_daemon: Daemon, tmp_path: Path) -> None:
    """The commands of docs/start/python.md print what it shows, whatever numbers pages have."""
    page = (TREE / "docs/start/python.md").read_text().split("## Publish and find pages")[1]
    blocks = dict(re.findall(r"^```(\w*)\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    (tmp_path / "hello.py").write_text(blocks["python"])
    said = ""
    for command in blocks["sh"].splitlines():
        python, *arguments = command.split()
        assert python == "python3"
        said += subprocess.run(
            [sys.executable, "-X", "dev", "-W", "error", *arguments],
            cwd=tmp_path,
            env=os.environ | {"KVLEASE_SOCKET": str(shared_daemon.socket)},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout

    def without_numbers(text: str) -> str:
        return re.sub(r"page \d+", "page N", text)

    assert without_numbers(said) == without_numbers(blocks[""])
