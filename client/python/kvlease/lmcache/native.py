"""The client that LMCache's L2 adapter `native_plugin` drives."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from kvlease.lmcache.objects import Name
from kvlease.lmcache.options import Options
from kvlease.lmcache.store import Store

_logger = logging.getLogger("kvlease")

Completion: TypeAlias = tuple[int, bool, str, list[bool]]
"""Number of the future, success of the whole, a sentence if it failed, success of each key."""
_Work: TypeAlias = Callable[[list[Name]], list[bool]]


class Client:
    """Stores and loads LMCache's objects. Submits return at once; two threads do the work, so that
    no load waits for a store."""

    def __init__(self, **adapter_params: Any) -> None:
        """adapter_params: those of Options. TypeError, ValueError: the sentence names the wrong
        one. A kvleased that can't be reached isn't an error: the log says so."""
        self._store = Store(Options.of(adapter_params))
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._completions: list[Completion] = []
        self._n_futures = 0
        self._is_closed = False
        self._stores = _Worker("kvlease-stores", self._complete, needs_all=True)
        self._loads = _Worker("kvlease-loads", self._complete, needs_all=False)

    def event_fd(self) -> int:
        """An eventfd, readable while completions wait. close() closes it."""
        return self._event

    def submit_batch_set(self, keys: Sequence[str], bufs: Sequence[Any]) -> int:
        """Returns the number of its future. bufs stay as they are until it is completed."""
        return self._submit(self._stores, keys, lambda names: self._store.store(names, bufs))

    def submit_batch_get(self, keys: Sequence[str], bufs: Sequence[Any]) -> int:
        """Fills bufs. Returns the number of its future."""
        return self._submit(self._loads, keys, lambda names: self._store.load(names, bufs))

    def submit_batch_exists(self, keys: Sequence[str]) -> int:
        """Objects that are found stay for pin_seconds, or until they are loaded. Returns the number
        of its future."""
        return self._submit(self._loads, keys, self._store.exists)

    def submit_batch_delete(self, keys: Sequence[str]) -> int:
        """An object that isn't there counts as deleted. Returns the number of its future."""
        return self._submit(self._loads, keys, self._store.delete)

    def drain_completions(self) -> list[Completion]:
        """Those since the last call."""
        with self._lock:
            if not self._is_closed:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._event)
            drained, self._completions = self._completions, []
        return drained

    def close(self) -> None:
        """Returns when no task reads or writes bufs. Drops tasks that haven't begun."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        for worker in (self._stores, self._loads):
            worker.stop()
        self._store.close()
        os.close(self._event)

    def _submit(self, worker: _Worker, keys: Sequence[str], work: _Work) -> int:
        with self._lock:
            self._n_futures += 1
            future = self._n_futures
        worker.put(future, keys, work)
        return future

    def _complete(self, completion: Completion) -> None:
        with self._lock:
            if not self._is_closed:
                self._completions.append(completion)
                os.eventfd_write(self._event, 1)


class _Worker(threading.Thread):
    """Does work in the order in which it was put."""

    def __init__(
        self, name: str, complete: Callable[[Completion], None], *, needs_all: bool
    ) -> None:
        """needs_all: a task is done only if it is done for all keys. LMCache counts a store as a
        whole, and reads the results by key of a lookup only if that is done."""
        super().__init__(name=name, daemon=True)
        self._needs_all = needs_all
        self._complete = complete
        self._tasks: queue.SimpleQueue[tuple[int, Sequence[str], _Work] | None]
        self._tasks = queue.SimpleQueue()
        self._is_stopped = False
        self.start()

    def put(self, future: int, keys: Sequence[str], work: _Work) -> None:
        """Doesn't wait for it."""
        self._tasks.put((future, keys, work))

    def stop(self) -> None:
        """Returns when the running task has ended. Drops tasks that haven't begun."""
        self._is_stopped = True
        self._tasks.put(None)
        self.join()

    def run(self) -> None:
        """Until stop()."""
        while (task := self._tasks.get()) is not None and not self._is_stopped:
            self._complete(self._do(*task))

    def _do(self, future: int, keys: Sequence[str], work: _Work) -> Completion:
        try:
            done = work([_name(key) for key in keys])
        except Exception as error:
            _logger.exception("LMCache's request can't be done")
            return future, False, repr(error), [False] * len(keys)
        if self._needs_all and not all(done):
            return future, False, "not all is stored: the log says why", done
        return future, True, "", done


def _name(key: str) -> Name:
    """Of LMCache's MODEL@KV_RANK@GROUP@HASH[@SALT]. Other texts are names, too."""
    model, _, rest = key.partition("@")
    try:
        kv_rank = int(rest.partition("@")[0], 16)
    except ValueError:
        kv_rank = 0
    rank = kv_rank >> 16 & 255
    return Name(model, rank, max(rank + 1, kv_rank >> 24 & 255), key)
