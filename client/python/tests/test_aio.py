"""kvlease.aio: awaitable calls in an event loop, without threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from conftest import LAYOUT, Daemon, MakeDaemon
from test_core import key, publish, text

import kvlease
from kvlease.aio import Dispatcher

KEYS = text(1)


def run(connection: kvlease.Connection, work: Callable[[Dispatcher], Awaitable[None]]) -> None:
    """Runs it under a dispatcher; whatever it forgets fails the test instead of hanging it."""

    async def main() -> None:
        async with asyncio.timeout(60), Dispatcher(connection) as kv:
            await work(kv)

    n_threads = threading.active_count()
    asyncio.run(main())
    assert threading.active_count() == n_threads


@contextmanager
def served(
    daemon: Daemon, shm: bool = False
) -> Iterator[tuple[Daemon, kvlease.Connection, kvlease.Namespace]]:
    """A connection to the daemon, and a namespace where the page of KEYS is cached."""
    with kvlease.connect(daemon.socket, shm=shm) as conn, conn.namespace("n", LAYOUT) as ns:
        publish(ns, KEYS)
        yield daemon, conn, ns


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
    with served(make_daemon()) as (daemon, conn, ns):

        async def work(kv: Dispatcher) -> None:
            daemon.pause(True)
            lease = asyncio.create_task(kv.lease(ns, 3))
            lookup = asyncio.create_task(kv.lookup(ns, KEYS))
            await asyncio.sleep(0.05)
            for task in (lease, lookup):
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            daemon.pause(False)
            # Answers come in order: those of the cancelled calls are in before this one's.
            with await kv.lookup(ns, KEYS) as found:
                numbers = found.numbers
                assert len(numbers) == 1
            await asyncio.sleep(0)
            with await kv.lookup(ns, KEYS):
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


MAX_STARTED = 2048  # as kvlease.h has it


class Counting:
    """A namespace that counts lookups refused because too many calls are under way."""

    def __init__(self, namespace: kvlease.Namespace) -> None:
        self._namespace = namespace
        self.n_refused = 0

    def start_lookup(self, *arguments: Any) -> None:
        """Namespace.start_lookup()."""
        try:
            self._namespace.start_lookup(*arguments)
        except kvlease.Busy:
            self.n_refused += 1
            raise

    def as_namespace(self) -> kvlease.Namespace:
        """For the dispatcher, which asks for nothing else."""
        return cast(kvlease.Namespace, self)


@pytest.mark.parametrize("shm", [True, False])
def test_more_than_may_be_under_way(make_daemon: MakeDaemon, shm: bool) -> None:
    """They wait for callbacks, in order, and don't try again and again meanwhile."""
    with served(make_daemon(), shm) as (daemon, conn, ns):
        counting = Counting(ns)
        begun: list[int] = []

        async def one(kv: Dispatcher, i: int) -> None:
            with await kv.lookup(counting.as_namespace(), KEYS) as found:
                assert len(found) == 1
            begun.append(i)

        async def work(kv: Dispatcher) -> None:
            daemon.pause(True)
            tasks = [asyncio.create_task(one(kv, i)) for i in range(3 * MAX_STARTED)]
            await asyncio.sleep(0)  # all have begun, none has ended
            assert counting.n_refused == 1
            # The next to start, and one behind it: they are in nobody's way.
            cancelled = (MAX_STARTED, MAX_STARTED + 9)
            for i in cancelled:
                tasks[i].cancel()
            await asyncio.sleep(0.3)
            assert counting.n_refused < 20
            daemon.pause(False)
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert sum(isinstance(result, asyncio.CancelledError) for result in done) == 2
            assert begun == [i for i in range(len(tasks)) if i not in cancelled]

        run(conn, work)


def test_others_fill_the_connection(make_daemon: MakeDaemon) -> None:
    """Their callbacks run in another thread, where the dispatcher isn't told of them."""
    with served(make_daemon()) as (daemon, conn, ns):
        daemon.pause(True)
        for _ in range(MAX_STARTED):
            ns.start_wait(lambda result, error: None, KEYS)
        thread = threading.Thread(target=ns.invalidate, args=(b"\3" * 32,))

        async def work(kv: Dispatcher) -> None:
            thread.start()
            waiting = asyncio.create_task(kv.lookup(ns, KEYS))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            daemon.pause(False)
            with await waiting as found:
                assert len(found) == 1
            thread.join()

        run(conn, work)


def test_leaving_while_calls_wait_for_room(make_daemon: MakeDaemon) -> None:
    with served(make_daemon()) as (daemon, conn, ns):

        async def main() -> None:
            async with Dispatcher(conn) as kv:
                daemon.pause(True)
                tasks = [asyncio.create_task(kv.lookup(ns, KEYS)) for _ in range(MAX_STARTED + 3)]
                await asyncio.sleep(0.05)
            daemon.pause(False)
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(result, kvlease.Closed) for result in done)

        asyncio.run(main())


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
    with served(make_daemon(keep=True)) as (daemon, conn, ns):
        conn.set_event_handler(lambda event: None)

        async def work(kv: Dispatcher) -> None:
            daemon.pause(True)
            lookup = asyncio.create_task(kv.lookup(ns, KEYS))
            await asyncio.sleep(0.02)
            daemon.kill()
            with await lookup as found:
                assert len(found) == 1

        run(conn, work)
