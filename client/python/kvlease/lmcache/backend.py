"""The storage plug-in of LMCache's engine, which runs inside the process of another engine."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any

import torch
from lmcache.utils import CacheEngineKey
from lmcache.v1.memory_management import MemoryFormat, MemoryObj
from lmcache.v1.storage_backend.abstract_backend import (
    AllocatorBackendInterface,
    StoragePluginInterface,
)

from kvlease.lmcache.objects import Found, Name
from kvlease.lmcache.options import Options
from kvlease.lmcache.store import Store

_logger = logging.getLogger("kvlease")

# The prefix of kvlease's options in LMCache's extra_config.
_PREFIX = "kvlease."

# Formats of memory without tensors, which LMCache doesn't allocate, or engines can't use.
_NO_TENSORS = (MemoryFormat.UNDEFINED, MemoryFormat.BINARY, MemoryFormat.BINARY_BUFFER)

_DTYPES = {
    str(each).removeprefix("torch."): each
    for each in vars(torch).values()
    if isinstance(each, torch.dtype)
}


class Backend(StoragePluginInterface):
    """Chunks of LMCache's engine in pages. No method but the constructor raises."""

    def __init__(
        self,
        config: Any,
        dst_device: str,
        metadata: Any,
        local_cpu_backend: Any,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """config.extra_config has Options as kvlease.socket and so on. TypeError, ValueError: the
        sentence names the wrong one; LMCache logs it, and goes on without the plug-in."""
        super().__init__(dst_device, config, metadata, local_cpu_backend, loop)
        extra = config.extra_config or {}
        given = {name: value for name, value in extra.items() if name.startswith(_PREFIX)}
        options = {name.removeprefix(_PREFIX): value for name, value in given.items()}
        self._store = Store(Options.of(options))
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="kvlease-stores")
        self._lock = threading.Lock()
        self._storing: set[CacheEngineKey] = set()

    def __str__(self) -> str:
        return "kvlease"

    def contains(self, key: CacheEngineKey, pin: bool = False) -> bool:
        """Whether the chunk is there."""
        return self._store.exists([_name(key)], pin)[0]

    def batched_contains(self, keys: list[CacheEngineKey], pin: bool = False) -> int:
        """How many of the keys are there, from the first on."""
        names = [_name(key) for key in keys]
        found = [*self._store.exists(names, pin), False]
        n_found = found.index(False)
        if pin:
            self._store.unpin(names[n_found:])
        return n_found

    async def batched_async_contains(
        self, lookup_id: str, keys: list[CacheEngineKey], pin: bool = False
    ) -> int:
        """As batched_contains()."""
        return await asyncio.to_thread(self.batched_contains, keys, pin)

    def exists_in_put_tasks(self, key: CacheEngineKey) -> bool:
        """Whether the chunk is being stored."""
        with self._lock:
            return key in self._storing

    def batched_submit_put_task(
        self,
        keys: Sequence[CacheEngineKey],
        objs: list[MemoryObj],
        transfer_spec: Any = None,
        on_complete_callback: Callable[[CacheEngineKey], None] | None = None,
    ) -> list[Future[None]]:
        """Stores chunks in a thread of its own, which holds objs until then."""
        futures = []
        for key, obj in zip(keys, objs, strict=False):
            with self._lock:
                if key in self._storing:
                    continue
                self._storing.add(key)
            obj.ref_count_up()
            try:
                future = self._writer.submit(self._put, key, obj, on_complete_callback)
            except RuntimeError:  # closed
                self._end_put(key, obj, None)
                break
            future.add_done_callback(partial(self._end_put, key, obj))
            futures.append(future)
        return futures

    def _put(
        self, key: CacheEngineKey, obj: MemoryObj, then: Callable[[CacheEngineKey], None] | None
    ) -> None:
        (done,) = self._store.store([_name(key)], [obj.byte_array], [_note(obj)])
        if done and then is not None:
            then(key)

    def _end_put(self, key: CacheEngineKey, obj: MemoryObj, future: Future[None] | None) -> None:
        """Also of one that was cancelled."""
        obj.ref_count_down()
        with self._lock:
            self._storing.discard(key)

    def get_blocking(self, key: CacheEngineKey) -> MemoryObj | None:
        """A chunk in memory of LMCache, which the caller owns; None: it isn't there, or there is no
        memory."""
        name = _name(key)
        found = self._store.describe(name)
        obj = None if found is None else self._allocate(found)
        if obj is not None and not self._store.load([name], [obj.byte_array])[0]:
            obj.ref_count_down()
            return None
        return obj

    def _allocate(self, found: Found) -> MemoryObj | None:
        cpu = self.local_cpu_backend
        layout = _layout(found)
        # A size that another client wrote may be any: LMCache would wait for the memory.
        if cpu is None or layout is None or found.n_bytes > self._most_bytes:
            return None
        return cpu.allocate(*layout)

    @cached_property
    def _most_bytes(self) -> int:
        """Of a chunk. LMCache logs each question."""
        n_bytes: int = self.local_cpu_backend.get_full_chunk_size_bytes()
        return n_bytes

    def batched_get_blocking(self, keys: list[CacheEngineKey]) -> list[MemoryObj | None]:
        """Chunks from the first on; None for all behind one that isn't there."""
        objs = self._get_run(keys)
        return [*objs, *[None] * (len(keys) - len(objs))]

    def _get_run(self, keys: Sequence[CacheEngineKey]) -> list[MemoryObj]:
        objs = []
        for key in keys:
            obj = self.get_blocking(key)
            if obj is None:
                break
            objs.append(obj)
        return objs

    async def batched_get_non_blocking(
        self, lookup_id: str, keys: list[CacheEngineKey], transfer_spec: Any = None
    ) -> list[MemoryObj]:
        """Chunks from the first on, as far as they are there."""
        return await asyncio.to_thread(self._get_run, keys)

    def pin(self, key: CacheEngineKey) -> bool:
        """Keeps the chunk from eviction for pin_seconds, or until unpin() or a load. Pins of one
        chunk don't add up."""
        return self.contains(key, pin=True)

    def unpin(self, key: CacheEngineKey) -> bool:
        """The chunk may be evicted."""
        self._store.unpin([_name(key)])
        return True

    def remove(self, key: CacheEngineKey, force: bool = True) -> bool:
        """Deletes the chunk for all engines of the tenant."""
        return self._store.delete([_name(key)])[0]

    def touch_cache(self) -> None:
        """kvleased counts use itself."""

    def get_allocator_backend(self) -> AllocatorBackendInterface:
        """Chunks are loaded into LMCache's own memory."""
        return self.local_cpu_backend

    def close(self) -> None:
        """What isn't being stored yet is dropped."""
        self._writer.shutdown(cancel_futures=True)
        self._store.close()


def _name(key: CacheEngineKey) -> Name:
    world = max(key.world_size, key.worker_id + 1)
    return Name(key.model_name, key.worker_id, world, key.to_string())


def _note(obj: MemoryObj) -> bytes:
    """Describes the chunk's tensors."""
    shapes = [list(shape) for shape in obj.get_shapes()]
    dtypes = [str(dtype).removeprefix("torch.") for dtype in obj.get_dtypes()]
    return json.dumps([obj.get_memory_format().value, shapes, dtypes]).encode()


def _layout(
    found: Found,
) -> tuple[list[torch.Size], list[torch.dtype], MemoryFormat] | None:
    """Of the tensors of an object; None: nothing like this describes that many bytes."""
    try:
        fmt, shapes, names = json.loads(found.note)
        sizes = [torch.Size(shape) for shape in shapes]
        dtypes = [_DTYPES[name] for name in names]
        # math: numel() has 64 bits, and a note may name more.
        n_bytes = sum(math.prod(s) * d.itemsize for s, d in zip(sizes, dtypes, strict=True))
        is_sound = 0 < n_bytes == found.n_bytes and all(n > 0 for size in sizes for n in size)
        is_sound &= MemoryFormat(fmt) not in _NO_TENSORS
        return (sizes, dtypes, MemoryFormat(fmt)) if is_sound else None
    except (KeyError, OverflowError, RecursionError, TypeError, ValueError):
        return None
