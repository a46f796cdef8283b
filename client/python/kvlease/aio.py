"""kvlease in an asyncio event loop: awaitable lookup, lease, publish, fetch, wait and bring.

    async with kvlease.aio.Dispatcher(connection) as kv:
        with await kv.lookup(namespace, keys) as found:
            ...

The loop polls the connection's descriptor; there are no threads. Blocking calls stay allowed beside
it. A call that is cancelled gives back what it still gets.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Literal, Self, TypeVar

from kvlease._kvlease import Busy, Closed, Connection, Error, Namespace, Pages, Session

if TYPE_CHECKING:
    from kvlease._kvlease import KeysLike, NumbersLike, RequestLike, TokensLike

T = TypeVar("T")

# Where others' calls alone fill the connection, whose callbacks may run unseen. Not tuned.
_UNSEEN_SECONDS = 0.05


class _Call(Generic[T]):
    """A call under way: its future, and what becomes of a result that nobody awaits any more."""

    def __init__(self, dispatcher: Dispatcher, drop: Callable[[T], None]) -> None:
        self.future: asyncio.Future[T] = dispatcher._loop.create_future()
        self._dispatcher = dispatcher
        self._drop = drop

    def done(self, result: T | None, error: Exception | None) -> None:
        """The callback; in another thread where that waits in a blocking call."""
        dispatcher = self._dispatcher
        if threading.get_ident() == dispatcher._thread:
            self._settle(result, error)
            return
        try:
            dispatcher._loop.call_soon_threadsafe(self._settle, result, error)
        except RuntimeError:  # the loop is closed
            if result is not None:
                self._drop(result)

    def _settle(self, result: T | None, error: Exception | None) -> None:
        self._dispatcher._ended()
        if self.future.done():
            if result is not None:
                self._drop(result)
        elif error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)  # type: ignore[arg-type]

    async def wait(self) -> T:
        """The result."""
        try:
            return await self.future
        except asyncio.CancelledError:
            # It may have come in the meantime.
            if self.future.done() and not self.future.cancelled() and not self.future.exception():
                self._drop(self.future.result())
            raise


def _keep(_: object) -> None:
    """For results that hold nothing."""


class Dispatcher:
    """Runs a connection in the running event loop, as long as it is entered.

    Methods are those of Namespace, which comes first. They are for the loop's thread. Awaited calls
    have no timeout of the library's: asyncio.timeout() is the way.
    """

    def __init__(self, connection: Connection) -> None:
        """Of an open connection, which it doesn't close."""
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._fd = -1
        self._is_writing = False
        self._is_pumping_soon = False
        self._futures: set[asyncio.Future[object]] = set()
        self._n_under_way = 0
        self._waiting: deque[asyncio.Future[None]] = deque()  # for room, in order
        self._is_letting_in = False  # one that waited, and has yet to run
        self._is_timed = False

    async def __aenter__(self) -> Self:
        """Begins to poll."""
        self._fd = self._connection.fileno()
        self._loop.add_reader(self._fd, self._pump)
        self._pump()
        return self

    async def __aexit__(
        self,
        type: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Ends polling. Calls still under way raise Closed; what they get is given back later."""
        for future in list(self._futures):
            if not future.done():
                future.set_exception(Closed("the dispatcher was left while the call ran"))
        self._detach()

    def _detach(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)
        self._fd = -1
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
        self._waiting.clear()

    def _pump(self) -> None:
        """Whenever something may have happened."""
        self._is_pumping_soon = False
        if self._fd < 0:
            return
        try:
            self._connection.dispatch()
            wants_write = self._connection.wants_write
        except Error:  # it is over: callbacks ran with that
            self._detach()
            return
        if wants_write != self._is_writing:
            self._is_writing = wants_write
            if wants_write:
                self._loop.add_writer(self._fd, self._pump)
            else:
                self._loop.remove_writer(self._fd)
        self._let_one_start()  # callbacks of calls that aren't the dispatcher's make room, too

    def _pump_soon(self) -> None:
        """After calls that were started: some are done at once, others wait to be sent."""
        if not self._is_pumping_soon:
            self._is_pumping_soon = True
            self._loop.call_soon(self._pump)

    def _ended(self) -> None:
        """A call's callback ran."""
        self._n_under_way -= 1
        self._let_one_start()

    def _let_one_start(self) -> None:
        """There may be room for a call. Whoever is let in and starts lets in the next one."""
        while self._waiting and not self._is_letting_in:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._is_letting_in = True

    def _look_again(self) -> None:
        self._is_timed = False
        self._let_one_start()

    async def _wait_for_room(self, is_first: bool) -> None:
        """Until a callback made room; is_first: before all that wait already."""
        waiter = self._loop.create_future()
        if is_first:
            self._waiting.appendleft(waiter)
        else:
            self._waiting.append(waiter)
        if self._n_under_way == 0 and not self._is_timed:
            self._is_timed = True
            self._loop.call_later(_UNSEEN_SECONDS, self._look_again)
        try:
            await waiter
        finally:
            if not waiter.cancelled():
                self._is_letting_in = False

    async def _start(self, start: Callable[[], None]) -> None:
        """Starts a call; while KVL_MAX_STARTED are under way it waits, in order."""
        is_refused = False
        try:
            if self._fd >= 0 and (self._waiting or self._is_letting_in):
                await self._wait_for_room(is_first=False)
            while True:
                if self._fd < 0:
                    raise Closed("the dispatcher isn't entered, or its connection is over")
                try:
                    start()
                    break
                except Busy as busy:
                    if busy.reason != "again":
                        raise
                if not is_refused:
                    self._pump_soon()  # others' calls may be done, and wait for that alone
                is_refused = True
                await self._wait_for_room(is_first=True)
            self._n_under_way += 1
        finally:
            self._let_one_start()

    async def _run(self, call: _Call[T], start: Callable[[], None]) -> T:
        await self._start(start)
        self._pump_soon()
        self._futures.add(call.future)  # type: ignore[arg-type]
        try:
            return await call.wait()
        finally:
            self._futures.discard(call.future)

    def close(self, pages: Pages) -> None:
        """Gives pages back without waiting."""
        pages.close_soon()
        self._pump_soon()

    async def lookup(self, namespace: Namespace, keys: KeysLike, request: RequestLike = 0) -> Pages:
        """Namespace.lookup(), of at most 1536 keys."""
        call = _Call(self, self.close)
        return await self._run(call, lambda: namespace.start_lookup(call.done, keys, request))

    async def lease(
        self,
        namespace: Namespace,
        n_pages: int,
        request: RequestLike = 0,
        *,
        min_pages: int = 0,
        max_wait: float | None = None,
        contiguous: bool | Literal["prefer"] = False,
    ) -> Pages:
        """Namespace.lease()."""
        call = _Call(self, self.close)
        return await self._run(
            call,
            lambda: namespace.start_lease(
                call.done,
                n_pages,
                request,
                min_pages=min_pages,
                max_wait=max_wait,
                contiguous=contiguous,
            ),
        )

    async def publish(
        self,
        namespace: Namespace,
        pages: NumbersLike,
        keys: KeysLike,
        *,
        parent: KeysLike | None = None,
        last_tokens: int | None = None,
        request: RequestLike = 0,
        session: Session | None = None,
        tag: int = 0,
        window_passed: bool = False,
        token_ids: TokensLike | None = None,
        lora_name: str | None = None,
        cache_salt: str | None = None,
        stream: int | None = None,
    ) -> Pages:
        """Namespace.publish(), of at most 1024 pages; stream: after what was put on it."""
        call = _Call(self, self.close)
        return await self._run(
            call,
            lambda: namespace.start_publish(
                pages,
                keys,
                parent=parent,
                last_tokens=last_tokens,
                request=request,
                session=session,
                tag=tag,
                window_passed=window_passed,
                token_ids=token_ids,
                lora_name=lora_name,
                cache_salt=cache_salt,
                callback=call.done,
                stream=stream,
            ),
        )

    async def fetch(self, namespace: Namespace, pages: Pages) -> None:
        """Pages.fetch(), of at most 4096 pages."""
        call: _Call[Pages] = _Call(self, _keep)
        await self._run(call, lambda: namespace.start_fetch(call.done, pages))

    async def wait(self, namespace: Namespace, key: KeysLike, timeout: float | None = 600) -> bool:
        """Namespace.wait()."""
        call: _Call[bool] = _Call(self, _keep)
        return await self._run(call, lambda: namespace.start_wait(call.done, key, timeout))

    async def bring(
        self,
        namespace: Namespace,
        keys: KeysLike,
        *,
        parent: KeysLike | None = None,
        timeout: float | None = 600,
    ) -> bool:
        """Has kvleased bring what other hosts have of a text, from the first of these keys on,
        which isn't cached; parent, the key before it, is. True: look them up. False: there is
        nothing, or not in time, or the tenant has no other hosts."""
        call: _Call[bool] = _Call(self, _keep)

        def start() -> None:
            if not namespace.start_import(call.done, keys, parent=parent, timeout=timeout):
                call.done(False, None)

        return await self._run(call, start)
