"""The storage plug-in as LMCache's storage manager loads and calls it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import kvlease_conftest as package
import pytest
import torch
from lmcache.utils import CacheEngineKey
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.event_manager import EventManager
from lmcache.v1.memory_management import MemoryFormat
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.storage_backend.storage_manager import StorageManager
from support import held, published

import kvlease._link
from kvlease.lmcache.backend import _layout, _name
from kvlease.lmcache.objects import Found

MEMORY = "memory = 64MiB\nextent = 2MiB"
SHAPE = torch.Size((2, 3, 16, 640))
MakeManager = Callable[..., StorageManager]


@pytest.fixture
def make() -> Iterator[MakeManager]:
    """make(daemon, **options)."""
    made: list[StorageManager] = []

    def one(daemon: Any, **options: Any) -> StorageManager:
        extra = {f"kvlease.{name}": value for name, value in options.items()}
        extra |= {
            "kvlease.socket": str(daemon.socket),
            "storage_plugin.pages.module_path": "kvlease.lmcache.backend",
            "storage_plugin.pages.class_name": "Backend",
        }
        config = LMCacheEngineConfig.from_defaults(
            chunk_size=16,
            local_cpu=False,
            max_local_cpu_size=0.02,
            storage_plugins=["pages"],
            extra_config=extra,
        )
        metadata = LMCacheMetadata(
            model_name="org/model",
            world_size=1,
            local_world_size=1,
            worker_id=0,
            local_worker_id=0,
            kv_dtype=torch.bfloat16,
            kv_shape=(3, 2, 16, 5, 128),
            chunk_size=16,
        )
        made.append(StorageManager(config, metadata, EventManager()))
        return made[-1]

    yield one
    for each in made:
        each.close()


def key(number: int, **fields: Any) -> CacheEngineKey:
    """One of many."""
    names = {"model_name": "org/model", "world_size": 1, "worker_id": 0, "dtype": torch.bfloat16}
    return CacheEngineKey(chunk_hash=number, **(names | fields))


def put(manager: StorageManager, numbers: range, shape: torch.Size = SHAPE) -> list[torch.Tensor]:
    """Stores chunks of random numbers, and returns copies."""
    copies = []
    for number in numbers:
        obj = manager.allocate(shape, torch.bfloat16)
        obj.tensor.copy_(torch.randn(shape))
        copies.append(obj.tensor.clone())
        manager.batched_put([key(number)], [obj])
    backend = manager.storage_backends["pages"]
    package.wait_until(lambda: not any(backend.exists_in_put_tasks(key(n)) for n in numbers))
    return copies


def test_round_trip(make_daemon: Any, make: MakeManager) -> None:
    """Chunks, the last of fewer tokens, come back in another process's memory as they were; all
    memory of LMCache is free afterwards."""
    daemon = make_daemon(device=MEMORY)
    first, second = make(daemon), make(daemon)
    chunks = put(first, range(3)) + put(first, range(3, 4), torch.Size((2, 3, 5, 640)))
    keys = [key(i) for i in range(5)]
    for manager in (first, second):
        assert manager.batched_contains(keys, None, True) == (4, {"pages": keys[:4]})
        loaded = manager.batched_get(keys, "pages")
        assert loaded[4] is None
        for obj, chunk in zip(loaded, chunks, strict=False):
            assert torch.equal(obj.tensor, chunk) and obj.get_ref_count() == 1
            assert obj.get_memory_format() == MemoryFormat.KV_2LTD
            obj.ref_count_down()
        manager.batched_unpin(keys[:4], ["pages"])
        assert manager.contains(key(1)) == "pages" and manager.contains(key(9)) is None
        assert manager.get(key(9)) is None
        manager.touch_cache()
        assert manager.memcheck()
        package.wait_until(lambda m=manager: fits(m))
    package.wait_until(lambda: held(daemon) == (0, 0))
    assert first.batched_remove(keys[:2]) == 2
    assert second.batched_contains(keys) == (0, {}) and published(daemon) == 2


def fits(manager: StorageManager) -> bool:
    """Whether 12 of LMCache's 20 MB are free."""
    objs = manager.batched_allocate(SHAPE, torch.bfloat16, 100, eviction=False, busy_loop=False)
    for obj in objs or []:
        obj.ref_count_down()
    return objs is not None


def test_identity(make_daemon: Any, make: MakeManager) -> None:
    """All that LMCache names keeps chunks apart."""
    daemon = make_daemon(device=MEMORY)
    manager = make(daemon)
    put(manager, range(1))
    others = [
        key(1),
        key(0, model_name="org/other"),
        key(0, world_size=2),
        key(0, world_size=2, worker_id=1),
        key(0, dtype=torch.float16),
        key(0, request_configs={"lmcache.tag.user": "a"}),
        key(0).get_first_layer(),
    ]
    assert [manager.contains(each) for each in others] == [None] * len(others)
    assert make(daemon, version="2").contains(key(0)) is None
    assert make(daemon).contains(key(0)) == "pages"


def test_asynchronous(make_daemon: Any, make: MakeManager) -> None:
    """The calls of LMCache's asynchronous loading, which give a run from the first chunk on."""
    daemon = make_daemon(device=MEMORY)
    manager = make(daemon, pin_seconds=600)
    chunks = put(manager, range(3))
    backend = manager.storage_backends["pages"]
    keys = [key(i) for i in (0, 1, 7, 2)]
    assert asyncio.run(backend.batched_async_contains("request", keys, True)) == 2
    loaded = asyncio.run(backend.batched_get_non_blocking("request", keys))
    assert [torch.equal(o.tensor, c) for o, c in zip(loaded, chunks, strict=False)] == [True] * 2
    for obj in loaded:
        obj.ref_count_down()
    # Also of the chunk behind the run.
    package.wait_until(lambda: held(daemon) == (0, 0))


def test_callback(make_daemon: Any, make: MakeManager) -> None:
    """Is called when a chunk can be found; a chunk that is being stored isn't stored again."""
    daemon = make_daemon(device=MEMORY)
    manager = make(daemon)
    backend = manager.storage_backends["pages"]
    obj = manager.allocate(SHAPE, torch.bfloat16)
    found: list[Any] = []
    calls = threading.Event()

    def then(stored: CacheEngineKey) -> None:
        found.append(backend.contains(stored))
        calls.set()

    daemon.pause(True)
    try:
        (future,) = backend.batched_submit_put_task([key(0)], [obj], None, then)
        assert backend.exists_in_put_tasks(key(0))
        assert backend.batched_submit_put_task([key(0)], [obj]) == []
    finally:
        daemon.pause(False)
    future.result()
    assert calls.wait(10) and found == [True]
    package.wait_until(lambda: obj.get_ref_count() == 1)
    obj.ref_count_down()


def test_away(make_daemon: Any, make: MakeManager, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks are lost with kvleased, and no call fails; afterwards all goes on."""
    monkeypatch.setattr(kvlease._link, "_PAUSE_SECONDS", 0.2)
    daemon = make_daemon(device=MEMORY)
    manager = make(daemon)
    put(manager, range(2))
    daemon.stop()
    put(manager, range(2, 4))
    assert manager.contains(key(3)) is None and manager.get(key(3)) is None
    assert manager.remove(key(3)) == 0
    daemon.start()

    def is_back() -> bool:
        put(manager, range(4, 5))
        return manager.contains(key(4)) is not None

    package.wait_until(is_back)
    assert manager.contains(key(0)) is None
    manager.close()
    manager.storage_backends["pages"].batched_submit_put_task(
        [key(5)], [SimpleNamespace(ref_count_up=list, ref_count_down=list)]
    )


def test_refusal(make_daemon: Any, make: MakeManager, caplog: pytest.LogCaptureFixture) -> None:
    """A wrong option leaves the plug-in out, and LMCache's log says why."""
    manager = make(make_daemon(device=MEMORY), page_bytes=17)
    assert "pages" not in manager.storage_backends
    assert "page_bytes is 17: choose 4096 to 1073741824" in caplog.text


GOOD = [MemoryFormat.KV_2LTD.value, [[2, 3]], ["bfloat16"]]
NOTES = [
    b"",
    b"\xff",
    b"[" * 400,
    json.dumps([99, *GOOD[1:]]).encode(),
    json.dumps([GOOD[0], [[2, 4]], GOOD[2]]).encode(),
    json.dumps([GOOD[0], [[-2, -3]], GOOD[2]]).encode(),
    json.dumps([GOOD[0], [[2**70, 3]], GOOD[2]]).encode(),
    json.dumps([GOOD[0], [["2", 3]], GOOD[2]]).encode(),
    json.dumps([GOOD[0], [[11, (2**64 + 6) // 11]], GOOD[2]]).encode(),
    json.dumps([*GOOD[:2], ["nn"]]).encode(),
    json.dumps([*GOOD[:2], ["classes"]]).encode(),
    json.dumps([*GOOD[:2], [["bfloat16"]]]).encode(),
    json.dumps([*GOOD[:2], []]).encode(),
    json.dumps([*GOOD[:2], [3]]).encode(),
    json.dumps({"a": 1, "b": 2, "c": 3}).encode(),
]


def test_layout() -> None:
    """A note is as another client wrote it."""
    assert _layout(Found(12, json.dumps(GOOD).encode())) is not None
    for note in NOTES:
        assert _layout(Found(12, note)) is None, note


def test_large(make_daemon: Any, make: MakeManager) -> None:
    """A chunk larger than LMCache's chunks isn't loaded: it would wait for the memory."""
    manager = make(make_daemon(device=MEMORY))
    put(manager, range(1), torch.Size((2, 3, 17, 640)))
    assert manager.contains(key(0)) == "pages" and manager.get(key(0)) is None


# A note and the bytes that it describes.
HOSTILE = [
    (json.dumps([fmt.value, shapes, dtypes]).encode(), n)
    for fmt in MemoryFormat
    for shapes, dtypes, n in (
        ([], [], 0),
        ([[]], ["bfloat16"], 2),
        ([[2, 3]], ["bfloat16"], 12),
        ([[1] * 100], ["int8"], 1),
        ([[4, 1], [2]], ["int4", "float8_e4m3fn"], 6),
        ([[64]], ["quint8"], 64),
        ([[64]], ["bits16"], 128),
    )
]


def test_lies(make_daemon: Any, make: MakeManager, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever another client's note says, a chunk is there or isn't; no memory is lost. The size
    of LMCache's chunks is asked for once."""
    daemon = make_daemon(device=MEMORY)
    manager = make(daemon)
    backend = manager.storage_backends["pages"]
    for i, (note, n_bytes) in enumerate(HOSTILE):
        assert backend._store.store([_name(key(i))], [b"\1" * n_bytes], [note]) == [True]
        obj = manager.get(key(i))
        if obj is not None:
            assert obj.get_size() == n_bytes
            obj.ref_count_down()
    assert manager.memcheck()
    assert caplog.text.count("Calculating the size of a single LMCache chunk") <= 1
