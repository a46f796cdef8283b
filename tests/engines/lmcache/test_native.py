"""The native plug-in as LMCache's own factory makes it, and as its adapter drives it."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any

import kvlease_conftest as package
import pytest
import torch
from contract import full
from lmcache.v1.distributed.api import ObjectKey
from lmcache.v1.distributed.l2_adapters import create_l2_adapter
from lmcache.v1.distributed.l2_adapters.config import parse_args_to_l2_adapters_config
from lmcache.v1.memory_management import MemoryFormat, MemoryObjMetadata, TensorMemoryObj
from support import ctl, held, namespaces, published

import kvlease
import kvlease._link
from kvlease.lmcache import Client

MEMORY = "memory = 64MiB\nextent = 2MiB"
PAGE = 64 << 10
SECONDS = 60.0


def key(number: int, **fields: Any) -> ObjectKey:
    """One of many."""
    names = {"model_name": "org/model", "kv_rank": 0x01000100} | fields
    return ObjectKey(chunk_hash=number.to_bytes(32, "big"), **names)


def data(size: int, seed: int = 0) -> bytes:
    """An object."""
    return random.Random(f"{size} {seed}").randbytes(size)


def memory(content: bytes) -> TensorMemoryObj:
    """As LMCache holds it."""
    size = len(content)
    metadata = MemoryObjMetadata(
        shape=torch.Size([size]),
        dtype=torch.uint8,
        address=0,
        phy_size=size,
        fmt=MemoryFormat.KV_2LTD,
        ref_count=1,
    )
    tensor = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    return TensorMemoryObj(tensor, metadata, parent_allocator=None)


class Adapter:
    """LMCache's adapter with the plug-in in it. Waits for what it submits."""

    def __init__(self, **params: Any) -> None:
        given = {
            "type": "native_plugin",
            "module_path": "kvlease.lmcache",
            "class_name": "Client",
            "adapter_params": {"page_bytes": PAGE} | params,
        }
        parsed = Namespace(l2_adapter=[json.dumps(given)])
        self.l2 = create_l2_adapter(parse_args_to_l2_adapters_config(parsed).adapters[0])

    def _await(self, event: int, answer: Callable[[], Any]) -> Any:
        end = time.monotonic() + SECONDS
        while (found := answer()) is None:
            assert time.monotonic() < end, "there is no completion"
            select.select([event], [], [], 0.1)
        return found

    def store(self, keys: list[ObjectKey], contents: list[bytes]) -> bool:
        """Whether all are stored."""
        objects = [memory(each) for each in contents]  # alive until the store is done
        task = self.l2.submit_store_task(keys, objects)
        done: dict[int, Any] = {}

        def answer() -> bool | None:
            done.update(self.l2.pop_completed_store_tasks())
            return done[task].is_successful() if task in done else None

        return bool(self._await(self.l2.get_store_event_fd(), answer))

    def find(self, keys: list[ObjectKey]) -> list[bool]:
        """Which are there."""
        task = self.l2.submit_lookup_and_lock_task(keys, {})
        event = self.l2.get_lookup_and_lock_event_fd()
        bits = self._await(event, lambda: self.l2.query_lookup_and_lock_result(task))
        self.l2.submit_unlock(keys)
        return [bits.test(i) for i in range(len(keys))]

    def load(self, keys: list[ObjectKey], sizes: list[int]) -> list[bytes | None]:
        """Those that could be loaded."""
        objects = [memory(bytes(size)) for size in sizes]
        task = self.l2.submit_load_task(keys, objects)
        event = self.l2.get_load_event_fd()
        bits = self._await(event, lambda: self.l2.query_load_result(task))
        return [bytes(each.byte_array) if bits.test(i) else None for i, each in enumerate(objects)]


MakeAdapter = Callable[..., Adapter]


@pytest.fixture
def make() -> Iterator[MakeAdapter]:
    """make(daemon, **adapter_params)."""
    made: list[Adapter] = []

    def one(daemon: Any, **params: Any) -> Adapter:
        made.append(Adapter(socket=str(daemon.socket), **params))
        return made[-1]

    yield one
    for each in made:
        each.l2.close()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error kvleased is asked again soon."""
    monkeypatch.setattr(kvlease._link, "_PAUSE_SECONDS", 0.2)


SIZES = [1, 511, PAGE - 512, PAGE - 511, PAGE, PAGE + 1, 2 * PAGE - 512, 3 * PAGE - 1, 1 << 20]


def test_sizes(make_daemon: Any, make: MakeAdapter) -> None:
    """Objects of any size come back bit by bit, in another server, too."""
    daemon = make_daemon(device=MEMORY)
    first, second = make(daemon), make(daemon)
    keys = [key(i) for i in range(len(SIZES))]
    contents = [data(size) for size in SIZES]
    assert first.find(keys) == [False] * len(keys)
    assert first.store(keys, contents)
    for adapter in (first, second):
        assert adapter.find(keys) == [True] * len(keys)
        assert adapter.load(keys, SIZES) == contents
    assert published(daemon) == sum(-(-(size + 512) // PAGE) for size in SIZES)
    package.wait_until(lambda: held(daemon) == (0, 0))


def test_bitmaps(make_daemon: Any, make: MakeAdapter) -> None:
    """Each object is found and loaded by itself; one of another size isn't loaded."""
    adapter = make(make_daemon(device=MEMORY))
    content = data(100_000)
    assert adapter.store([key(1), key(3)], [content, content])
    keys = [key(i) for i in range(5)]
    assert adapter.find(keys) == [False, True, False, True, False]
    assert adapter.load(keys, [100_000] * 5) == [None, content, None, content, None]
    assert adapter.load([key(1)] * 4, [99_999, 100_001, 10, 300_000]) == [None] * 4


def test_other_size(make_daemon: Any, make: MakeAdapter) -> None:
    """An object takes the place of one of another size, and of its pages."""
    daemon = make_daemon(device=MEMORY)
    adapter = make(daemon)
    for size in (5 * PAGE, 100, 3 * PAGE, 2 * PAGE):
        content = data(size)
        assert adapter.store([key(1)], [content])
        assert adapter.load([key(1)], [size]) == [content]
        assert adapter.load([key(1)], [5 * PAGE + 1]) == [None]
        package.wait_until(lambda n=-(-(size + 512) // PAGE): published(daemon) == n)


def beside(daemon: Any, work: Callable[[kvlease.Namespace, bytes], object]) -> None:
    """Works on the namespace of key(1), as another client, and with the key of its last page."""
    options = kvlease.lmcache.Options(socket=str(daemon.socket), page_bytes=PAGE)
    store = kvlease.lmcache.store.Store(options)
    name = kvlease.lmcache.native._name(f"org/model@01000100@0@{1:064x}")
    last = kvlease.lmcache.objects.last_key(name)
    store._link.call(None, lambda session: work(store._namespace(session, name), last))
    store.close()


def test_leftovers(make_daemon: Any, make: MakeAdapter) -> None:
    """Pages of an object whose last one was evicted are no part of an object of another size."""
    daemon = make_daemon(device=MEMORY)
    adapter = make(daemon)
    for size in (5 * PAGE, 4 * PAGE):
        assert adapter.store([key(1)], [data(size)])
        assert adapter.load([key(1)], [size]) == [data(size)]
        beside(daemon, lambda namespace, last: namespace.invalidate(last))
        assert adapter.find([key(1)]) == [False]
        assert adapter.load([key(1)], [size]) == [None]


def test_identity(make_daemon: Any, make: MakeAdapter) -> None:
    """Objects are apart by all that LMCache names, and by version and page_bytes."""
    daemon = make_daemon(device=MEMORY)
    first = make(daemon)
    assert first.store([key(1)], [data(1000)])
    others = [
        key(2),
        key(1, model_name="org/other"),
        key(1, kv_rank=0x02000200),
        key(1, kv_rank=0x02010201),
        key(1, object_group_id=1),
        key(1, cache_salt="user"),
    ]
    assert first.find(others) == [False] * len(others)
    assert first.find([key(1)]) == [True]
    for params in ({"version": "2"}, {"page_bytes": 2 * PAGE}):
        assert make(daemon, **params).find([key(1)]) == [False]


def test_many_models(make_daemon: Any, make: MakeAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Namespaces that are open are bounded: others close, and their objects stay."""
    monkeypatch.setattr(kvlease._link, "_MOST_NAMESPACES", 3)
    daemon = make_daemon(device=MEMORY, tenant="limit = 64MiB")
    adapter = make(daemon)
    names = [f"org/model-{i}" for i in range(8)] + ["x" * 500, "", "nul\0", "\ud800", "né/ü"]
    keys = [key(1, model_name=name) for name in names]
    for i, each in enumerate(keys):
        assert adapter.store([each], [data(100, i)])
    for i, each in enumerate(keys):
        assert adapter.load([each], [100]) == [data(100, i)]
    assert sum(each["n_clients"] for each in namespaces(daemon)) <= 3


def test_delete(make_daemon: Any, make: MakeAdapter) -> None:
    """All pages go. What isn't there counts as deleted, so that LMCache forgets its bytes."""
    daemon = make_daemon(device=MEMORY)
    adapter = make(daemon)
    keys = [key(i) for i in range(4)]
    assert adapter.store(keys, [data(200_000)] * 4)
    assert adapter.l2.get_usage().total_bytes_used == 800_000
    adapter.l2.delete(keys[:2])
    assert adapter.find(keys) == [False, False, True, True]
    make(daemon).l2.delete(keys[2:3])
    adapter.l2.delete([*keys, key(9)])
    assert adapter.find(keys) == [False] * 4 and published(daemon) == 0
    assert adapter.l2.get_usage().total_bytes_used == 0


def test_pins(make_daemon: Any, make: MakeAdapter) -> None:
    """An object that was found stays whole until it is loaded, or until its time is over."""
    daemon = make_daemon(device=MEMORY, tenant="limit = 8MiB")
    adapter, patient = make(daemon, pin_seconds=1), make(daemon, pin_seconds=600)
    content = data(1 << 20)
    assert adapter.store([key(0)], [content])
    assert patient.find([key(0), key(1)]) == [True, False]
    assert patient.find([key(0)]) == [True]
    assert held(daemon)[1] == 1
    for i in range(1, 80):
        adapter.store([key(i)], [data(1 << 20, i)])
        adapter.load([key(i)], [1 << 20])
    assert patient.load([key(0)], [1 << 20]) == [content]
    package.wait_until(lambda: held(daemon) == (0, 0))
    assert adapter.find([key(0), key(79)]) == [True, True]
    assert held(daemon)[1] == 2
    package.wait_until(lambda: held(daemon) == (0, 0))


def test_full(make_daemon: Any, make: MakeAdapter) -> None:
    """A store that finds no room fails, and nothing else does."""
    daemon = make_daemon(device=MEMORY, tenant="limit = 8MiB")
    adapter = make(daemon)
    assert adapter.store([key(0)], [data(1000)])
    with full(daemon, 1):
        assert not adapter.store([key(1)], [data(4 << 20)])
        assert adapter.load([key(0)], [1000]) in ([data(1000)], [None])
    package.wait_until(lambda: adapter.store([key(1)], [data(4 << 20)]))
    assert adapter.load([key(1)], [4 << 20]) == [data(4 << 20)]
    # Larger than any limit, and of more pages than a lease has.
    assert not adapter.store([key(2)], [data(16 << 20)])
    assert not make(daemon, page_bytes=4096).store([key(2)], [bytes(17 << 20)])
    package.wait_until(lambda: held(daemon) == (0, 0))


def test_killed(make_daemon: Any, make: MakeAdapter) -> None:
    """SIGKILL under --keep, again and again, while objects are stored and loaded."""
    daemon = make_daemon(keep=True, device=MEMORY, tenant="limit = 64MiB")
    adapter = make(daemon, timeout=30)
    ends = threading.Event()

    def kill() -> None:
        while not ends.wait(0.1):
            daemon.kill()

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        for i in range(60):
            assert adapter.store([key(i)], [data(300_000, i)])
            assert adapter.find([key(i)]) == [True]
            assert adapter.load([key(i)], [300_000]) == [data(300_000, i)]
    finally:
        ends.set()
        thread.join()
    assert "consistent" in ctl(daemon, "check")


@pytest.mark.usefixtures("soon")
def test_away(make_daemon: Any, make: MakeAdapter) -> None:
    """Without a kvleased nothing is found or stored; when it comes, all goes on."""
    daemon = make_daemon(device=MEMORY)
    daemon.stop()
    adapter = make(daemon)
    for _ in range(2):
        assert not adapter.store([key(1)], [data(1000)])
        assert adapter.find([key(1)]) == [False]
        assert adapter.load([key(1)], [1000]) == [None]
        adapter.l2.delete([key(1)])
        daemon.start()
        package.wait_until(lambda: adapter.store([key(1)], [data(1000)]))
        assert adapter.load([key(1)], [1000]) == [data(1000)]
        # It holds a pin when kvleased goes.
        assert adapter.find([key(1)]) == [True]
        daemon.stop()


@pytest.mark.usefixtures("soon")
def test_stopped(make_daemon: Any, make: MakeAdapter) -> None:
    """A kvleased that answers nothing: submits return at once, and end in time."""
    daemon = make_daemon(device=MEMORY)
    adapter = make(daemon, timeout=0.3)
    assert adapter.store([key(1)], [data(1000)])
    daemon.pause(True)
    try:
        objects = [memory(bytes(1 << 20)) for _ in range(100)]
        began = time.monotonic()
        for i, each in enumerate(objects):
            adapter.l2.submit_store_task([key(10 + i)], [each])
            adapter.l2.submit_lookup_and_lock_task([key(10 + i)], {})
        # 200 waits for kvleased would take a minute, and these copies longer than this.
        assert time.monotonic() - began < 1
        adapter.find([key(1)])
    finally:
        daemon.pause(False)
    package.wait_until(lambda: adapter.store([key(2)], [data(1000)]))
    assert adapter.load([key(1)], [1000]) == [data(1000)]


def test_processes(make_daemon: Any, make: MakeAdapter) -> None:
    """What a process stored is found after its SIGKILL, and nothing is held for it."""
    daemon = make_daemon(device=MEMORY, tenant="limit = 64MiB")
    script = (
        "import sys; from kvlease.lmcache.store import *\n"
        f"s = Store(Options(socket=sys.argv[1], page_bytes={PAGE}))\n"
        "def name(i): return Name('org/model', 0, 1, 'org/model@01000100@0@' + f'{i:064x}')\n"
        "s.store([name(i) for i in range(9)], [bytes([i]) * 100000 for i in range(9)])\n"
        "s.exists([name(0)]); print('stored', flush=True)\n"
        "while True: s.store([name(99)], [bytes(1 << 20)]); s.delete([name(99)])\n"
    )
    command = [sys.executable, "-c", script, str(daemon.socket)]
    environment = os.environ | {"PYTHONPATH": ":".join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout and process.stdout.readline() == b"stored\n"
        process.send_signal(signal.SIGKILL)
    adapter = make(daemon)
    keys = [key(i) for i in range(9)]
    assert adapter.load(keys, [100_000] * 9) == [bytes([i]) * 100_000 for i in range(9)]
    package.wait_until(lambda: held(daemon) == (0, 0))


TRAILERS = {
    "none": b"",
    "size": struct.pack("<8sQI", b"kvl-lmc1", 2**64 - 1, 0),
    "note": struct.pack("<8sQI", b"kvl-lmc1", 1000, 2**32 - 1),
    "pages": struct.pack("<8sQI", b"kvl-lmc1", 40 * PAGE, 0),
}


@pytest.mark.parametrize("trailer", TRAILERS.values(), ids=TRAILERS)
def test_planted(make_daemon: Any, make: MakeAdapter, trailer: bytes) -> None:
    """A page that another client of the tenant wrote under an object's key harms nobody."""
    daemon = make_daemon(device=MEMORY)
    adapter = make(daemon)

    def plant(namespace: kvlease.Namespace, last: bytes) -> None:
        with namespace.lease(1) as pages:
            pages.write(0, trailer, offset=PAGE - 512)
            namespace.publish(pages, last).close()

    beside(daemon, plant)
    assert adapter.find([key(1)]) == [True]
    assert adapter.load([key(1)], [2000]) == [None]
    assert adapter.store([key(1)], [data(2000)])
    assert adapter.load([key(1)], [2000]) == [data(2000)]
    adapter.l2.delete([key(1)])
    assert adapter.find([key(1)]) == [False]


@pytest.mark.parametrize(
    "params, sentence",
    [
        ({"page_byte": 1}, "there is no parameter page_byte: choose of socket, "),
        ({"page_bytes": 4095}, "page_bytes is 4095: choose 4096 to 1073741824"),
        ({"page_bytes": 5000}, "page_bytes is 5000: choose a multiple of 64"),
        ({"page_bytes": "64KiB"}, "page_bytes is '64KiB': name a number from 4096 to"),
        ({"pin_seconds": -1}, "pin_seconds is -1: choose 0 to 600"),
        ({"timeout": float("nan")}, "timeout is nan: choose 0.001 to 600"),
        ({"client_name": "x" * 65}, "client_name has 65 bytes: choose at most 64"),
        ({"version": 2}, "version is 2: name a text"),
    ],
)
def test_refusals(params: dict[str, Any], sentence: str) -> None:
    """A wrong parameter ends the start with a sentence that names it, its limit and the remedy."""
    with pytest.raises((TypeError, ValueError), match=sentence):
        Adapter(**params)


def test_completions(make_daemon: Any) -> None:
    """Each submit of many threads is completed once; close() ends with buffers left alone."""
    daemon = make_daemon(device=MEMORY, tenant="limit = 64MiB")
    before = len(os.listdir("/proc/self/fd"))
    client = Client(socket=str(daemon.socket), page_bytes=PAGE)
    futures: list[int] = []

    def submit(seed: int) -> None:
        for i in range(50):
            name = f"m@01000100@0@{seed}{i:03}"
            futures.append(client.submit_batch_set([name], [bytearray(5000)]))
            futures.append(client.submit_batch_get([name, "m"], [bytearray(5000), bytearray(1)]))
            futures.append(client.submit_batch_exists([name]))
            futures.append(client.submit_batch_delete([]))

    threads = [threading.Thread(target=submit, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    done: list[int] = []
    end = time.monotonic() + SECONDS
    while len(done) < 800 and time.monotonic() < end:
        if select.select([client.event_fd()], [], [], 1)[0]:
            drained = client.drain_completions()
            assert drained, "the eventfd is readable, and nothing is there"
            done += [future for future, *_ in drained]
    for thread in threads:
        thread.join()
    assert sorted(done) == sorted(futures) == list(range(1, 801))
    assert not select.select([client.event_fd()], [], [], 0)[0]
    # Keys and buffers of different number, and no buffers at all, cost only this request.
    client.submit_batch_get(["m", "m"], [bytearray(1)])
    client.submit_batch_set([None], [None])  # type: ignore[list-item]
    buffers = [bytearray(8 << 20) for _ in range(50)]
    for i, each in enumerate(buffers):
        client.submit_batch_set([f"m@0@0@{i}"], [each])
    client.close()
    client.close()
    for each in buffers:
        each.extend(b"x")  # BufferError if something still used it
    assert not [each for each in threading.enumerate() if each.name.startswith("kvlease-")]
    assert len(os.listdir("/proc/self/fd")) == before
    package.wait_until(lambda: held(daemon) == (0, 0))
