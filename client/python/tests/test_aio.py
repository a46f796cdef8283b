"""kvlease.aio: awaitable calls in an event loop, without threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest
from conftest import LAYOUT, Daemon, MakeDaemon
from test_core import key, publish, text

import kvlease
from kvlease.aio import Dispatcher


def run(connection: kvlease.Connection, work: Callable[[Dispatcher], Awaitable[None]]) -> None:
    """Runs it under a dispatcher; whatever it forgets fails the test instead of hanging it."""

    async def main() -> None:
        async with asyncio.timeout(60), Dispatcher(connection) as kv:
            await work(kv)

    n_threads = threading.active_count()
    asyncio.run(main())
    assert threading.active_count() == n_threads


def test_life_of_pages(namespace: kvlease.Namespace) -> None:
    keys = text(3)

    async def work(kv: Dispatcher) -> None:
        assert not await kv.lookup(namespace, keys)
        pages = await kv.lease(namespace, 4)
        for i in range(3):
            pages.write(i, bytes([i]) * 16)
        done = await kv.publish(namespace, pages, keys)
        assert done.state == "pinned"
        assert len(pages) == 1
        kv.close(pages)
        kv.close(done)
        with await kv.lookup(namespace, keys) as found:
            assert found.n_tokens == 48
            assert found.read(2, 1) == b"\2"
            await kv.fetch(namespace, found)
        assert await kv.wait(namespace, keys[:32])
        assert not await kv.wait(namespace, b"\1" * 32)
        with pytest.raises(kvlease.NoParent) as caught:
            with await kv.lease(namespace, 1) as pages:
                await kv.publish(namespace, pages, b"\1" * 32, parent=b"\2" * 32)
        assert len(caught.value.published) == 0
        with pytest.raises(kvlease.Invalid):
            await kv.lookup(namespace, text(1537))

    run(namespace.connection, work)


def test_many_at_once(namespace: kvlease.Namespace) -> None:
    keys = [text(4, 1000 * i) for i in range(50)]

    async def one(kv: Dispatcher, i: int) -> int:
        with await kv.lookup(namespace, keys[i % 10]) as found:
            n = len(found)
        if n == 0:
            pages = await kv.lease(namespace, 4)
            with pages, await kv.publish(namespace, pages, keys[i % 10]):
                pass
        return n

    async def work(kv: Dispatcher) -> None:
        await asyncio.gather(*(one(kv, i) for i in range(200)))
        assert sum(await asyncio.gather(*(one(kv, i) for i in range(10)))) == 40

    run(namespace.connection, work)


def test_waiting_for_somebody(namespace: kvlease.Namespace) -> None:
    keys = text(1)

    async def work(kv: Dispatcher) -> None:
        with await kv.lease(namespace, 1) as pages:
            assert namespace.announce(pages, keys).n_pages == 1
            waiting = asyncio.create_task(kv.wait(namespace, keys))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            with await kv.publish(namespace, pages, keys):
                assert await waiting
            with pytest.raises(kvlease.Timeout):
                with await kv.lease(namespace, 1) as more:
                    namespace.announce(more, key(text(1, 500), 0))
                    await kv.wait(namespace, key(text(1, 500), 0), 0.05)

    run(namespace.connection, work)


def test_cancelled_calls_give_back(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon()
    with (
        kvlease.connect(daemon.socket, shm=False) as conn,
        conn.namespace("n", LAYOUT) as ns,
    ):
        keys = text(1)
        publish(ns, keys)

        async def work(kv: Dispatcher) -> None:
            daemon.pause(True)
            lease = asyncio.create_task(kv.lease(ns, 3))
            lookup = asyncio.create_task(kv.lookup(ns, keys))
            await asyncio.sleep(0.05)
            for task in (lease, lookup):
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            daemon.pause(False)
            # Answers come in order: those of the cancelled calls are in before this one's.
            with await kv.lookup(ns, keys) as found:
                numbers = found.numbers
                assert len(numbers) == 1
            await asyncio.sleep(0)
            with await kv.lookup(ns, keys):
                pass
            with pytest.raises(kvlease.Invalid):
                ns.release(numbers)

        run(conn, work)
        assert ns.report([]) == 0


def test_results_come_back_in_the_loop(namespace: kvlease.Namespace) -> None:
    """Also where another thread's blocking call ran the callback."""
    keys = text(1)
    publish(namespace, keys)
    is_over = threading.Event()

    def others() -> None:
        while not is_over.is_set():
            namespace.invalidate(b"\3" * 32)

    async def work(kv: Dispatcher) -> None:
        for _ in range(200):
            with await kv.lookup(namespace, keys) as found:
                assert len(found) == 1

    async def main() -> None:
        async with asyncio.timeout(60), Dispatcher(namespace.connection) as kv:
            await work(kv)

    thread = threading.Thread(target=others)
    thread.start()
    try:
        asyncio.run(main())
    finally:
        is_over.set()
        thread.join()


def test_leaving_while_calls_run(shared_daemon: Daemon) -> None:
    with kvlease.connect(shared_daemon.socket) as conn, conn.namespace("left", LAYOUT) as ns:
        keys = text(1)

        async def main() -> None:
            with ns.lease(1) as pages:
                ns.announce(pages, keys)
                async with Dispatcher(conn) as kv:
                    waiting = asyncio.create_task(kv.wait(ns, keys))
                    await asyncio.sleep(0.02)
                with pytest.raises(kvlease.Closed):
                    await waiting
                with pytest.raises(kvlease.Closed):
                    await kv.lookup(ns, keys)

        asyncio.run(main())


def test_daemon_goes_for_good(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon()
    with kvlease.connect(daemon.socket, shm=False, reconnect=0.05) as conn:
        conn.set_event_handler(lambda event: None)
        with conn.namespace("n", LAYOUT) as ns:

            async def work(kv: Dispatcher) -> None:
                daemon.pause(True)
                lookup = asyncio.create_task(kv.lookup(ns, text(1)))
                await asyncio.sleep(0.02)
                daemon.kill()
                with pytest.raises(kvlease.Disconnected):
                    await lookup
                with pytest.raises(kvlease.Error):
                    await kv.lease(ns, 1)

            run(conn, work)


def test_daemon_comes_back(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(keep=True)
    with kvlease.connect(daemon.socket, shm=False) as conn:
        conn.set_event_handler(lambda event: None)
        with conn.namespace("n", LAYOUT) as ns:
            keys = text(1)
            publish(ns, keys)

            async def work(kv: Dispatcher) -> None:
                daemon.pause(True)
                lookup = asyncio.create_task(kv.lookup(ns, keys))
                await asyncio.sleep(0.02)
                daemon.kill()
                with await lookup as found:
                    assert len(found) == 1

            run(conn, work)
