"""Pages that another host has computed, brought here while the caller does other things."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest import LAYOUT, Daemon, MakeDaemon, Store, wait_until
from test_core import publish, text

import kvlease
from kvlease.aio import Dispatcher

N_PAGES = 300  # more than one call asks for


def share(daemon: Daemon, store: Store, keys: bytes) -> None:
    """Publishes a text on that host, finds it there, and returns when all hosts can load it."""
    with kvlease.connect(daemon.socket) as connection:
        namespace = connection.namespace("n", LAYOUT)
        store.await_epoch(daemon)
        publish(namespace, keys)
        namespace.lookup(keys).close()
        store.await_pages(daemon, len(keys) // 32)


def bring(
    namespace: kvlease.Namespace, keys: bytes, timeout: float = 60, **arguments: Any
) -> bool | Exception | None:
    """start_import(), awaited; None: it wasn't started."""
    answers: list[bool | Exception | None] = []
    started = namespace.start_import(
        lambda has_come, error: answers.append(error or has_come),
        keys,
        timeout=timeout,
        **arguments,
    )
    if not started:
        return None
    wait_until(lambda: namespace.connection.dispatch() >= 0 and len(answers) > 0)
    return answers[0]


@pytest.mark.parametrize("shm", [True, False])
def test_a_text_of_another_host(make_daemon: MakeDaemon, store: Store, shm: bool) -> None:
    keys = text(N_PAGES)
    here = make_daemon(tenant=store.settings())
    there = make_daemon(tenant=store.settings())
    with kvlease.connect(here.socket, shm=shm) as connection:
        namespace = connection.namespace("n", LAYOUT)
        assert bring(namespace, keys) is False
        share(there, store, keys)
        assert bring(namespace, keys) is True
        with namespace.lookup(keys) as found:
            assert len(found) == kvlease.MAX_IMPORT_KEYS
            n = len(found) * 32
            assert bring(namespace, keys[n:], parent=keys[n - 32 : n]) is True
        with namespace.lookup(keys) as found:
            assert len(found) == N_PAGES
            assert found.read(N_PAGES - 1, 4) == bytes([7] * 4)
        # It is cached; and nothing leads there.
        assert bring(namespace, keys) is True
        assert bring(namespace, text(1, 10**6), parent=text(1, 10**5)) is False
        with pytest.raises(ValueError, match="one key"):
            bring(namespace, keys, parent=keys[:64])


@pytest.mark.parametrize("shm", [True, False])
def test_how_much_others_have(make_daemon: MakeDaemon, store: Store, shm: bool) -> None:
    keys = text(N_PAGES)
    here = make_daemon(tenant=store.settings())
    with kvlease.connect(here.socket, shm=shm) as connection:
        namespace = connection.namespace("n", LAYOUT)
        assert namespace.probe_hosts(keys, 60) == (0, 0, False)
        share(make_daemon(tenant=store.settings()), store, keys)
        probe = namespace.probe_hosts(keys, timeout=60)
        assert probe == kvlease.HostsProbe(n_here=0, n_keys=N_PAGES, would_load=True)
        assert namespace.probe(keys) == b""
        assert bring(namespace, keys) is True
        n = kvlease.MAX_IMPORT_KEYS
        assert namespace.probe_hosts(keys, 60)[:2] == (n, N_PAGES)
        store.pause(True)
        assert namespace.probe_hosts(keys, 0.2) == (n, n, False)
        assert namespace.probe_hosts(keys[: n * 32]) == (n, n, False)
        store.pause(False)
        assert namespace.probe_hosts(b"") == (0, 0, False)
        with pytest.raises(ValueError, match="timeout"):
            namespace.probe_hosts(keys, -1)
        with pytest.raises(kvlease.Invalid, match="601000 ms"):
            namespace.probe_hosts(keys, 601)
        namespace.close()
        with pytest.raises(kvlease.Closed):
            namespace.probe_hosts(keys)


def test_what_computing_takes(make_daemon: MakeDaemon, store: Store) -> None:
    keys = text(40)
    here = make_daemon(tenant=store.settings(prefill=0))
    share(make_daemon(tenant=store.settings()), store, keys)
    with kvlease.connect(here.socket) as connection:
        namespace = connection.namespace("n", LAYOUT)
        # A token a nanosecond: nothing is loaded as fast as that.
        assert namespace.note_prefill(10**9, 1.0)
        assert bring(namespace, keys) is False
        for _ in range(100):
            assert namespace.note_prefill(n_tokens=10**6, seconds=3600)
        assert bring(namespace, keys) is True
        for seconds in (0, -1, 3600.1, float("nan")):
            with pytest.raises(ValueError, match="seconds"):
                namespace.note_prefill(1, seconds)
        with pytest.raises(kvlease.Invalid, match="0 tokens"):
            namespace.note_prefill(0, 1)
        with pytest.raises(TypeError):
            namespace.note_prefill(1, "1")  # type: ignore[arg-type]
        namespace.close()
        with pytest.raises(kvlease.Closed):
            namespace.note_prefill(1, 1)


def test_awaited(make_daemon: MakeDaemon, store: Store) -> None:
    keys = text(40)
    here = make_daemon(tenant=store.settings())
    share(make_daemon(tenant=store.settings()), store, keys)
    with kvlease.connect(here.socket) as connection:
        namespace = connection.namespace("n", LAYOUT)

        async def work() -> tuple[bool, int]:
            async with asyncio.timeout(60), Dispatcher(connection) as kv:
                has_come = await kv.bring(namespace, keys)
                with await kv.lookup(namespace, keys) as found:
                    return has_come, len(found)

        assert asyncio.run(work()) == (True, 40)


def test_a_store_that_is_stopped(make_daemon: MakeDaemon, store: Store) -> None:
    daemon = make_daemon(tenant=store.settings())
    with kvlease.connect(daemon.socket) as connection:
        namespace = connection.namespace("n", LAYOUT)
        store.pause(True)
        assert bring(namespace, text(40), timeout=0.2) is False
        store.pause(False)


def test_without_other_hosts(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon()
    with kvlease.connect(daemon.socket) as connection:
        namespace = connection.namespace("n", LAYOUT)
        assert bring(namespace, text(40)) is None
        assert namespace.probe_hosts(text(40)) == (0, 0, False)

        async def work() -> bool:
            async with asyncio.timeout(60), Dispatcher(connection) as kv:
                return await kv.bring(namespace, text(40))

        assert asyncio.run(work()) is False


def test_a_conversation_goes_on(make_daemon: MakeDaemon, store: Store) -> None:
    keys = text(40)
    here = make_daemon(tenant=store.settings())
    there = make_daemon(tenant=store.settings())
    with kvlease.connect(there.socket) as connection:
        namespace = connection.namespace("n", LAYOUT)
        store.await_epoch(there)
        with namespace.session("chat") as session:
            publish(namespace, keys, session=session)
        store.await_pages(there, 40)
    with kvlease.connect(here.socket) as connection:
        namespace = connection.namespace("n", LAYOUT)
        with pytest.raises(kvlease.NotFound):
            namespace.session("chat", must_exist=True)
        with namespace.session("chat", must_exist=True, load=60) as session:
            assert session.info.n_pages == 40
            assert session.info.lost_tokens == 0
            assert session.info.last_key == keys[-32:]
        with pytest.raises(ValueError, match="load"):
            namespace.session("chat", load=-1)
