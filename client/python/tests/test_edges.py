"""What goes wrong at the edges: odd arguments, what changes meanwhile, what is only forgotten."""

from __future__ import annotations

import ctypes
import gc
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import LAYOUT, Daemon, MakeDaemon, wait_until
from test_core import publish, text

import kvlease


def test_arrays_in_other_forms(namespace: kvlease.Namespace) -> None:
    """Token ids may lie at any address; another byte order is refused."""
    tokens = np.arange(48, dtype=np.int64)
    odd = np.frombuffer(b"x" + tokens.tobytes(), np.int64, offset=1)
    assert LAYOUT.keys(odd) == LAYOUT.keys(tokens)
    with pytest.raises(TypeError, match="native"):
        LAYOUT.keys(tokens.astype(">i8"))
    with namespace.lease(2) as pages:
        with pytest.raises(TypeError, match="native"):
            namespace.free(np.array(pages.numbers, ">u4"))
        with pytest.raises(TypeError, match="4 bytes"):
            namespace.free((ctypes.c_float * 1)())
        namespace.free(np.array(pages.detach(), "=u4"))


def test_pages_of_another_namespace(
    connection: kvlease.Connection, namespace: kvlease.Namespace
) -> None:
    """Their numbers mean something else."""
    with connection.namespace("another", LAYOUT) as other, other.lease(1) as pages:
        keys = text(1)
        with other.publish(pages.take(1), keys) as strange, other.lease(1) as leased:
            calls: list[Callable[[], object]] = [
                lambda: namespace.announce(leased, keys),
                lambda: namespace.report(leased),
                lambda: namespace.publish(leased, keys),
            ]
            for call in calls:
                with pytest.raises(kvlease.Invalid, match="namespace"):
                    call()
            with namespace.window(chunk_pages=1) as window:
                with pytest.raises(kvlease.Invalid, match="of its namespace"):
                    window.append(strange)
            assert strange.state == "pinned"
        other.invalidate()


def test_pages_that_are_being_fetched(namespace: kvlease.Namespace) -> None:
    """No view is made of where they won't be any more."""
    keys = text(1)
    publish(namespace, keys)
    done: list[tuple[kvlease.Pages | None, Exception | None]] = []
    with namespace.lookup(keys) as found:
        namespace.start_fetch(lambda pages, error: done.append((pages, error)), found)
        calls: list[Callable[[], object]] = [
            lambda: found.page(0),
            lambda: found.read(0),
            found.pin,
            found.fetch,
            found.close,
        ]
        for call in calls:
            with pytest.raises(kvlease.Busy):
                call()
        wait_until(lambda: namespace.connection.dispatch() >= 0 and bool(done))
        assert done == [(found, None)]
        assert found.read(0, 1) == b"\7"


def test_pages_that_an_index_changes(namespace: kvlease.Namespace) -> None:
    """Converting an argument may run code of the caller."""
    keys = text(1)
    publish(namespace, keys)
    with namespace.lookup(keys) as found, namespace.lease(2) as pages:

        class Index:
            def __index__(self) -> int:
                pages.take(2).close()
                return 0

        with pytest.raises(IndexError, match="0 pages"):
            pages.copy_page(1, found, Index())


@pytest.mark.parametrize("what", ["namespace", "connection"])
def test_what_was_begun_when_it_closes(make_daemon: MakeDaemon, what: str) -> None:
    daemon = make_daemon()
    done: list[tuple[object, Exception | None]] = []
    conn = kvlease.connect(daemon.socket, shm=False)
    conn.set_event_handler(lambda event: None)
    ns = conn.namespace("n", LAYOUT)
    daemon.pause(True)
    ns.start_lookup(lambda *result: done.append(result), text(1))
    timer = threading.Timer(0.05, lambda: daemon.pause(False))
    timer.start()
    if what == "namespace":
        ns.close()
    conn.close()
    timer.join()
    ((result, error),) = done
    assert result is None
    assert isinstance(error, kvlease.Closed)
    assert error.reason == "canceled"


def test_no_time_at_all(make_daemon: MakeDaemon) -> None:
    """0 seconds are none: not what 0 is in C, the default."""
    daemon = make_daemon()
    daemon.pause(True)
    timer = threading.Timer(2, lambda: daemon.pause(False))
    timer.start()
    with pytest.raises(kvlease.Timeout):
        kvlease.connect(daemon.socket, timeout=0)
    timer.join()
    with kvlease.connect(daemon.socket, timeout=20, reconnect=0) as conn:
        conn.set_event_handler(lambda event: None)
        with conn.namespace("n", LAYOUT) as ns:
            daemon.kill()
            with pytest.raises(kvlease.Disconnected):
                ns.invalidate()


def test_a_namespace_that_is_forgotten_gets_no_event(shared_daemon: Daemon) -> None:
    """The hook of the warning dispatches, while there is no object any more to tell of."""
    events: list[kvlease.Event] = []
    with (
        kvlease.connect(shared_daemon.socket) as conn,
        kvlease.connect(shared_daemon.socket) as other,
        other.namespace("forgotten", LAYOUT) as same,
    ):
        conn.set_event_handler(events.append)
        ns = conn.namespace("forgotten", LAYOUT)
        same.invalidate()

        def hook(*arguments: Any, **names: Any) -> None:
            wait_until(lambda: conn.dispatch() >= 0 and bool(events))

        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("always")
            patch.setattr(warnings, "_showwarnmsg_impl", hook)
            patch.setattr(warnings, "showwarning", hook)
            del ns
        assert [event.type for event in events] == [kvlease.EventType.STALE]
        assert events[0].namespace is None


def test_cycles_are_collected(shared_daemon: Daemon) -> None:
    """An engine whose method is its connection's handler, and that holds all kinds of objects."""

    class Engine:
        def __init__(self) -> None:
            self.connection = kvlease.connect(shared_daemon.socket)
            self.connection.set_event_handler(self.on_event)
            self.namespace = self.connection.namespace("cycle", LAYOUT)
            self.pages = self.namespace.lease(2)
            self.view = self.pages.page(0)
            self.memory = memoryview(self.view)
            self.request = self.namespace.request()
            self.session = self.namespace.session("cycle")
            self.window = self.namespace.window(chunk_pages=1)

        def on_event(self, event: kvlease.Event) -> None:
            pass

    with kvlease.connect(shared_daemon.socket) as conn, conn.namespace("cycle", LAYOUT) as ns:
        engine = Engine()
        client = engine.connection.client_id
        assert client != conn.client_id
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del engine
            gc.collect()
        texts = " ".join(str(warning.message) for warning in caught)
        assert "Connection was not closed" in texts
        ns.invalidate()


def test_buffers_in_columns(namespace: kvlease.Namespace) -> None:
    """Two dimensions have one order."""
    pybuf_f_contiguous, pybuf_c_contiguous = 0x40 | 0x18, 0x20 | 0x18
    get, release = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
    buffer = (ctypes.c_char * 256)()
    with namespace.lease(2) as pages, pages.view() as view:
        with pytest.raises(BufferError, match="C-contiguous"):
            get(ctypes.py_object(view), buffer, pybuf_f_contiguous)
        get(ctypes.py_object(view), buffer, pybuf_c_contiguous)
        release(buffer)
