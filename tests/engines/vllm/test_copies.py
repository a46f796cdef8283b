"""Manager and worker of the copying way, call by call as vLLM's OffloadingConnector calls them."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kvlease_conftest as package
import pytest
import torch
from models import make_mla
from support import failures, held, published
from vllm import EngineArgs
from vllm.config import CUDAGraphMode
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (
    OffloadingConnectorMetadata,
    TransferJob,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.config import build_offloading_config
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.worker import OffloadingConnectorWorker
from vllm.model_executor.layers.attention.attention import Attention
from vllm.model_executor.layers.attention.mla_attention import MLAAttention
from vllm.model_executor.layers.mamba.mamba_mixer2 import MambaMixer2
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
    SparseCacheRole,
    create_kv_cache_views,
)
from vllm.v1.kv_cache_layout import KVCacheLayout
from vllm.v1.kv_offload.base import (
    CanonicalKVCacheRef,
    CanonicalKVCaches,
    CanonicalKVCacheTensor,
    GPULoadStoreSpec,
    LookupResult,
    OffloadKey,
    ReqContext,
    ScheduleEndContext,
    get_offload_block_hash,
    make_offload_key,
)
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec

import kvlease
from kvlease import _engine
from kvlease._codecs import Codecs
from kvlease._verify import Verifier
from kvlease.vllm import copies, identity, manager, places, transfers
from kvlease.vllm.weights import Epoch

# Pages that are forgotten rather than given back.
pytestmark = [
    pytest.mark.filterwarnings("error::ResourceWarning"),
    pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning"),
]

TOKENS = 16
LAYOUT = kvlease.Layout("m", kvlease.DType.F32, 1, 1, 32, TOKENS, 4096)
WINDOWS = replace(LAYOUT, layer_group=1)
# Of a page of 4,096 bytes: the rest is padding.
LAYERS = [(0, 0, 2048), (0, 2048, 1024)]
N_NUMBERS = 768
TENANT = "limit = 4MiB"
END = ScheduleEndContext((), ())
HIT, MISS, RETRY = LookupResult.HIT, LookupResult.MISS, LookupResult.RETRY


class Engine:
    """What vLLM's connector has of an engine: full attention, and sliding windows beside it."""

    def __init__(
        self, daemon: package.Daemon, reconnect: float = 60, verify: float = 0, **roles: bool
    ) -> None:
        self.connection = kvlease.connect(daemon.socket, timeout=None, reconnect=reconnect)
        self.namespaces = [
            self.connection.namespace(layout=layout, device="host") for layout in (LAYOUT, WINDOWS)
        ]
        self.groups = [
            manager.Group(
                i,
                namespace,
                TOKENS,
                Verifier(verify, namespace, torch.float32, b"", bytes),
                i == 0,
                LAYERS,
            )
            for i, namespace in enumerate(self.namespaces)
        ]
        self.events = _engine.Events(self.connection)
        self.manager = manager.Manager(self.connection, self.groups, 10, **roles)

    def close(self) -> None:
        """What was found or leased is given back."""
        if not self.connection.is_closed:
            self.events.stop()
            self.connection.close()

    def request(self, name: str, group: int = 0, n: int = 4) -> tuple[ReqContext, list[OffloadKey]]:
        """One whose text has n chunks, the same ones for each."""
        context = ReqContext(name)
        self.manager.on_new_request(context)
        keys = [make_offload_key(sha256(bytes([i])).digest(), group) for i in range(n)]
        for i, key in enumerate(keys, 1):
            context.set_offload_key_position(key, i * TOKENS)
        return context, keys

    def store(self, context: ReqContext, keys: list[OffloadKey]) -> list[OffloadKey]:
        """What is stored of them."""
        begun = self.manager.prepare_store(keys, context)
        self.manager.complete_store(set(begun.keys_to_store), context)
        return begun.keys_to_store

    def look_up(self, context: ReqContext, keys: list[OffloadKey]) -> list[LookupResult]:
        """Of each of them."""
        return [self.manager.lookup(key, context) for key in keys]


Engines = Callable[..., Engine]


@pytest.fixture
def daemon(make_daemon: package.MakeDaemon) -> package.Daemon:
    return make_daemon(tenant=TENANT)


def test_what_is_stored_is_found(daemon: package.Daemon, engines: Engines) -> None:
    first, second = engines(), engines()
    context, keys = first.request("1")
    begun = first.manager.prepare_store(keys[:3], context)
    assert begun.keys_to_store == keys[:3]
    assert begun.store_spec.pages[1] == []
    package.wait_until(lambda: held(daemon)[0] >= 3)
    # Nothing is found before it is copied, and nothing is stored twice.
    other, _ = second.request("2")
    assert second.look_up(other, keys[:1]) == [MISS]
    again, _ = first.request("again")
    assert first.manager.prepare_store(keys[:3], again).keys_to_store == []
    first.manager.complete_store(set(keys[:3]), context)
    assert second.look_up(other, keys) == [HIT, HIT, HIT, MISS]
    load = second.manager.prepare_load(keys[:2], other)
    assert load.pages == [begun.store_spec.pages[0][:2], []]
    # What isn't loaded is given back, and what is loaded is pinned to the end of it.
    package.wait_until(lambda: held(daemon) == (0, 3))
    second.manager.on_schedule_end(END)
    package.wait_until(lambda: held(daemon) == (0, 2))
    second.manager.on_request_finished(other)
    second.manager.on_schedule_end(END)
    assert held(daemon) == (0, 2)
    second.manager.complete_load(set(keys[:2]), other)
    package.wait_until(lambda: held(daemon) == (0, 0))


def test_roles(daemon: package.Daemon, engines: Engines) -> None:
    """A consumer stores nothing, and a producer finds nothing."""
    producer, consumer = engines(loads=False), engines(publishes=False)
    context, keys = consumer.request("1")
    assert consumer.store(context, keys) == []
    context, _ = producer.request("2")
    assert producer.store(context, keys) == keys
    assert published(daemon) == len(keys)
    other, _ = producer.request("3")
    assert producer.look_up(other, keys) == [MISS] * 4
    # What is cached isn't stored again.
    assert producer.store(other, keys) == []
    other, _ = consumer.request("4")
    assert consumer.look_up(other, keys) == [HIT] * 4


def test_falling_asleep_drops_nothing(daemon: package.Daemon, engines: Engines) -> None:
    """What was being stored isn't published, as vLLM's blocks are gone."""
    engine = engines()
    context, keys = engine.request("1")
    assert engine.store(context, keys[:2]) == keys[:2]
    assert engine.manager.prepare_store(keys[2:], context).keys_to_store == keys[2:]
    for keeps, n_published in ((True, 2), (False, 0)):
        engine.manager.keeps_pages = keeps
        engine.manager.reset_cache()
        engine.manager.on_reset_flushed()
        package.wait_until(lambda: held(daemon) == (0, 0))
        assert published(daemon) == n_published


def write(engine: Engine, spec: Any, value: float, first: int = 0) -> None:
    """Fills the pages of a store of full attention from that number on."""
    arena = engine.namespaces[0].arena(writable=True, dtype="f32")
    torch.from_dlpack(arena)[spec.pages[0], first:] = value
    arena.release()


@pytest.mark.parametrize("first_other", [0, 512, 768, 1024])
def test_what_is_found_is_compared(
    daemon: package.Daemon, engines: Engines, first_other: int
) -> None:
    """With verify a text that is found is stored again; other numbers are found out."""
    first, second = engines(), engines(verify=1)
    context, keys = first.request("1")
    begun = first.manager.prepare_store(keys, context)
    write(first, begun.store_spec, 1.0)
    first.manager.complete_store(set(keys), context)
    again, _ = second.request("2")
    assert second.look_up(again, keys) == [MISS] * len(keys)
    begun = second.manager.prepare_store(keys, again)
    assert begun.keys_to_store == keys
    write(second, begun.store_spec, 1.0)
    write(second, begun.store_spec, 2.0, first_other)
    second.manager.complete_store(set(keys), again)
    is_equal = first_other >= N_NUMBERS
    assert second.manager.compared_pages == (len(keys) if is_equal else 1)
    assert failures(daemon) == (not is_equal)
    assert published(daemon) == (len(keys) if is_equal else 0)
    package.wait_until(lambda: held(daemon) == (0, 0))
    # Who was wrong has left.
    third, _ = second.request("3")
    assert second.manager.prepare_store(keys, third).keys_to_store == []


def test_what_nothing_leads_to_is_not_stored(daemon: package.Daemon, engines: Engines) -> None:
    """Of full attention; a page of sliding windows is of use alone."""
    engine = engines()
    context, keys = engine.request("1")
    assert engine.store(context, keys[1:3]) == []
    other, _ = engine.request("2")
    assert engine.store(other, keys[:2]) == keys[:2]
    # It has loaded what is before them.
    third, _ = engine.request("3")
    assert engine.look_up(third, keys[:2]) == [HIT, HIT]
    engine.manager.prepare_load(keys[:2], third)
    engine.manager.complete_load(set(keys[:2]), third)
    assert engine.store(third, keys[2:]) == keys[2:]
    assert published(daemon) == 4
    windows, alone = engine.request("4", group=1)
    assert engine.store(windows, [alone[3], alone[1]]) == [alone[3], alone[1]]
    assert engine.store(windows, alone) == [alone[0], alone[2]]
    assert engine.look_up(windows, alone) == [HIT] * 4
    engine.manager.on_schedule_end(END)
    package.wait_until(lambda: held(daemon) == (0, 0))


def test_what_is_under_way_is_not_begun_again(daemon: package.Daemon, engines: Engines) -> None:
    """Also where what is before it went meanwhile, and is stored anew."""
    engine, other = engines(), engines()
    first, keys = engine.request("1")
    assert engine.store(first, keys[:2]) == keys[:2]
    assert engine.manager.prepare_store(keys[2:3], first).keys_to_store == keys[2:3]
    loaded, _ = engine.request("3")
    assert engine.look_up(loaded, keys[:2]) == [HIT, HIT]
    engine.manager.prepare_load(keys[:2], loaded)
    engine.manager.complete_load(set(keys[:2]), loaded)
    other.manager.reset_cache()
    # Nothing leads there any more.
    assert engine.store(loaded, keys[2:]) == []
    second, _ = engine.request("2")
    assert engine.manager.prepare_store(keys, second).keys_to_store == keys[:2]
    engine.manager.complete_store(set(keys[2:3]), first)
    assert published(daemon) == 0
    engine.manager.complete_store(set(keys[:2]), second)
    assert engine.look_up(second, keys) == [HIT, HIT, MISS, MISS]
    engine.manager.on_schedule_end(END)
    package.wait_until(lambda: held(daemon) == (0, 0))


def test_behind_what_is_awaited_nothing_is_asked_for(
    make_daemon: package.MakeDaemon, store: package.Store
) -> None:
    n = 20  # texts of fewer than 256 tokens aren't loaded
    here, there = (make_daemon(tenant=store.settings(TENANT)) for _ in range(2))
    far, near, other = Engine(there), Engine(here), Engine(here)
    store.await_epoch(there)
    context, keys = far.request("far", n=n)
    assert far.store(context, keys) == keys
    assert far.look_up(*far.request("finds it", n=n)) == [HIT] * n
    store.await_pages(there, n)

    # Another engine of this host says that it computes the first page, and then it does.
    namespace, first = other.namespaces[0], get_offload_block_hash(keys[0])
    pages = namespace.lease(1)
    namespace.announce(pages, first)
    package.wait_until(lambda: held(here)[0] > 0)
    context, _ = near.request("near", n=n)
    assert near.look_up(context, keys[:2]) == [RETRY, RETRY]
    namespace.publish(pages, first).close()
    state = context.get_state(manager._Text)
    assert state is not None
    package.wait_until(lambda: not state.coming[0].is_under_way)
    # vLLM's lookup goes on to the end of the text.
    assert near.look_up(context, keys[2:]) == [RETRY] * (n - 2)
    near.manager.on_schedule_end(END)
    assert near.look_up(context, keys[:2]) == [HIT, RETRY]
    package.wait_until(lambda: not state.coming[0].is_under_way)
    near.manager.on_schedule_end(END)
    assert near.look_up(context, keys) == [HIT] * n
    for engine in (far, near, other):
        engine.close()


def test_both_groups_of_a_request(daemon: package.Daemon, engines: Engines) -> None:
    """One transfer, whose pages are in the order of the groups."""
    engine = engines()
    context, full = engine.request("1")
    _, windows = engine.request("1", group=1)
    begun = engine.manager.prepare_store(full[:2] + windows[1:2], context)
    assert begun.keys_to_store == full[:2] + windows[1:2]
    assert [len(pages) for pages in begun.store_spec.pages] == [2, 1]
    engine.manager.complete_store(set(begun.keys_to_store), context)
    assert engine.look_up(context, [full[1], windows[1]]) == [HIT, HIT]
    engine.manager.on_schedule_end(END)


def test_both_store_the_same(daemon: package.Daemon, engines: Engines) -> None:
    first, second = engines(), engines()
    mine, keys = first.request("1")
    other, _ = second.request("1")
    for engine, context in ((first, mine), (second, other)):
        assert engine.manager.prepare_store(keys, context).keys_to_store == keys
    first.manager.complete_store(set(keys), mine)
    second.manager.complete_store(set(keys), other)
    package.wait_until(lambda: held(daemon) == (0, 0))
    assert published(daemon) == 4


def test_without_a_page_nothing_is_stored(daemon: package.Daemon, engines: Engines) -> None:
    engine = engines()
    context, keys = engine.request("1")
    assert engine.store(context, keys[:1]) == keys[:1]
    with kvlease.connect(daemon.socket) as holder, contextlib.ExitStack() as leased:
        assert engine.look_up(context, keys[:1]) == [HIT]
        namespace = leased.enter_context(holder.namespace(layout=LAYOUT, device="host"))
        with contextlib.suppress(kvlease.Full, kvlease.Quota):
            while True:
                leased.enter_context(namespace.lease(1))
        assert engine.store(context, keys[1:3]) == []
        windows, alone = engine.request("2", group=1)
        assert engine.store(windows, alone) == []
        # What it has found is there.
        assert engine.manager.prepare_load(keys[:1], context).pages[0]
        engine.manager.complete_load(set(keys[:1]), context)
    package.wait_until(lambda: engine.store(engine.request("3")[0], keys) == keys[1:])


def test_a_reset_drops_what_is_cached(daemon: package.Daemon, engines: Engines) -> None:
    """Pages of transfers that are under way aren't anybody else's before these have ended."""
    engine, other = engines(), engines()
    adapter = Epoch(0, 7, (1, b"d"))
    context, keys = engine.request("1")
    assert engine.store(context, keys[:2]) == keys[:2]
    assert engine.look_up(context, keys[:1]) == [HIT]
    engine.manager._texts["1"].epoch = adapter
    engine.manager.prepare_load(keys[:1], context)
    third, _ = engine.request("2")
    assert engine.manager.prepare_store(keys[:3], third).keys_to_store == keys[2:3]
    assert engine.manager.take_adapters() == [(7, b"d")]
    engine.manager.reset_cache()
    # Its adapter may be another one from now on: vLLM ends the load without a word.
    assert engine.manager.take_adapters() == []
    assert other.look_up(other.request("3")[0], keys) == [MISS] * 4
    package.wait_until(lambda: held(daemon) == (1, 1))
    engine.manager.on_reset_flushed()
    package.wait_until(lambda: held(daemon) == (0, 0))
    assert engine.store(engine.request("4")[0], keys) == keys


def test_gone_for_good(
    daemon: package.Daemon, engines: Engines, caplog: pytest.LogCaptureFixture
) -> None:
    engine = engines(reconnect=0.05)
    context, keys = engine.request("1")
    assert engine.store(context, keys[:2]) == keys[:2]
    assert engine.look_up(context, keys[:2]) == [HIT, HIT]
    engine.manager.prepare_load(keys[:2], context)
    engine.manager.prepare_store(keys[2:3], context)
    daemon.stop()
    package.wait_until(lambda: not engine.connection.is_connected)
    with caplog.at_level(logging.ERROR, "kvlease"):
        engine.manager.complete_load(set(keys[:2]), context)
        engine.manager.complete_store(set(keys[2:3]), context)
        other, _ = engine.request("2")
        assert engine.look_up(other, keys) == [MISS] * 4
        assert engine.store(other, keys) == []
    assert [
        record.message for record in caplog.records if "nothing is found" in record.message
    ] == ["kvleased is gone: nothing is found or stored until it is back"]


def test_copies(daemon: package.Daemon, engines: Engines) -> None:
    """Two blocks a page, of two layers and of one; the first page of a load begins in its middle,
    and padding isn't touched."""
    engine = engines()
    torch.manual_seed(1)
    tensors = [torch.randint(-128, 127, (10, n), dtype=torch.int8) for n in (512, 256, 640)]
    original = [tensor.clone() for tensor in tensors]
    caches = CanonicalKVCaches(
        [CanonicalKVCacheTensor(tensor, tensor.shape[1]) for tensor in tensors],
        [
            [CanonicalKVCacheRef(0, 512), CanonicalKVCacheRef(1, 200)],
            [CanonicalKVCacheRef(2, 640)],
        ],
    )
    worker = transfers.Worker(engine.namespaces, 0, caches, 2)
    context, keys = engine.request("1")
    _, windows = engine.request("1", group=1)
    begun = engine.manager.prepare_store([*keys[:2], windows[0]], context)
    # Chunks 0 and 1 of full attention, and of the windows the second half of chunk 0.
    blocks = GPULoadStoreSpec([1, 2, 3, 4, 9], [4, 1], [0, 1])
    assert worker.submit_store(7, blocks, begun.store_spec)
    (stored,) = worker.get_finished()
    assert (stored.job_id, stored.success) == (7, True)
    assert stored.transfer_size == 4 * 712 + 640
    engine.manager.complete_store({*keys[:2], windows[0]}, context)
    assert engine.look_up(context, [*keys[:2], windows[0]]) == [HIT] * 3
    load = engine.manager.prepare_load([*keys[:2], windows[0]], context)
    for tensor in tensors:
        tensor.zero_()
    assert worker.submit_load(8, load, GPULoadStoreSpec([5, 6, 7, 8], [3, 1], [1, 1]))
    worker.wait({8})
    assert [result.job_id for result in worker.get_finished()] == [8]
    assert worker.get_finished() == []
    engine.manager.complete_load({*keys[:2], windows[0]}, context)
    expected = [torch.zeros_like(tensor) for tensor in tensors]
    expected[0][5:8] = original[0][2:5]
    expected[1][5:8, :200] = original[1][2:5, :200]
    expected[2][8] = original[2][9]
    for tensor, wanted in zip(tensors, expected, strict=True):
        assert torch.equal(tensor, wanted)
    worker.shutdown()


def test_copies_each_block_once() -> None:
    """Random blocks and pages, of which many lie one behind the other: the same as block by
    block."""
    numbers = random.Random(1)

    def draw(n: int) -> list[int]:
        drawn = numbers.sample(range(60), n)
        for i in range(1, n):
            if numbers.random() < 0.8 and (after := (drawn[i - 1] + 1) % 60) not in drawn:
                drawn[i] = after
        return drawn

    for _ in range(200):
        n_blocks, per_page = numbers.randrange(1, 30), numbers.randrange(1, 5)
        first = numbers.randrange(per_page)
        blocks, pages = draw(n_blocks), draw(-(-(first + n_blocks) // per_page))
        copied = torch.zeros(64, 4, dtype=torch.int8)
        held = torch.randint(1, 127, (64, per_page, 4), dtype=torch.int8)
        copies = transfers.HostCopies(
            [copied], [held.flatten(1)], [[CanonicalKVCacheRef(0, 4)]], per_page, to_pages=False
        )
        load = GPULoadStoreSpec(blocks, [n_blocks], [first])
        copies.transfer_async(1, CPULoadStoreSpec(pages), load)
        wanted = torch.zeros_like(copied)
        for i, block in enumerate(blocks, first):
            wanted[block] = held[pages[i // per_page], i % per_page]
        assert torch.equal(copied, wanted)


@pytest.fixture
def step_loads(daemon: package.Daemon, engines: Engines) -> Iterator[Any]:
    """A worker whose layers wait one by one, "late" behind "early": its tensors, and a function
    that begins a load of two blocks of each into blocks 2 and 3."""
    engine = engines()
    tensors = [torch.randint(1, 127, (4, n), dtype=torch.int8) for n in (512, 256, 640)]
    caches = CanonicalKVCaches(
        [CanonicalKVCacheTensor(tensor, tensor.shape[1]) for tensor in tensors],
        [
            [CanonicalKVCacheRef(0, 512), CanonicalKVCacheRef(1, 256)],
            [CanonicalKVCacheRef(2, 640)],
        ],
    )
    in_turn = {"early": 1, "window": 2, "late": 0}
    worker = transfers.Worker(engine.namespaces, 0, caches, 1, in_turn)
    context, keys = engine.request("1", n=2)
    _, windows = engine.request("1", group=1, n=2)
    begun = engine.manager.prepare_store(keys + windows, context)
    assert worker.submit_store(1, GPULoadStoreSpec([0, 1, 0, 1], [2, 2], [0, 0]), begun.store_spec)
    assert [result.job_id for result in worker.get_finished()] == [1]
    engine.manager.complete_store({*keys, *windows}, context)

    def begin() -> None:
        assert engine.look_up(context, keys + windows) == [HIT] * 4
        load = engine.manager.prepare_load(keys + windows, context)
        for tensor in tensors:
            tensor[2:].zero_()
        blocks = GPULoadStoreSpec([2, 3, 2, 3], [2, 2], [0, 0])
        assert worker.submit_load(2, load, blocks, expedited=True)
        worker.wait({2})

    yield SimpleNamespace(worker=worker, tensors=tensors, begin=begin)
    worker.shutdown()
    engine.manager.complete_load({*keys, *windows}, context)


def test_layer_by_layer(step_loads: Any, request: pytest.FixtureRequest) -> None:
    """A layer can be read while those behind it aren't copied; the end of the step, and a layer
    that isn't known, wait for all."""
    worker, (late, early, window) = step_loads.worker, step_loads.tensors
    gate = threading.Event()
    request.addfinalizer(gate.set)
    copier = worker._step_loads._layers["late"]
    copy = copier.transfer_async
    copier.transfer_async = lambda *job: gate.wait() and copy(*job)
    step_loads.begin()
    worker.wait_for_layer("early")
    assert torch.equal(early[2:], early[:2])
    worker.wait_for_layer("window")
    assert torch.equal(window[2:], window[:2])
    done: list[Any] = []
    waits = [
        threading.Thread(target=wait)
        for wait in (
            lambda: worker.wait_for_layer("late"),
            lambda: worker.wait_for_layer("unknown"),
            worker.wait_for_layer,
            lambda: done.extend(worker.get_finished()),
        )
    ]
    for each in waits:
        each.start()
        each.join(0.05)
    assert all(each.is_alive() for each in waits) and not late[2:].any()
    gate.set()
    for each in waits:
        each.join(60)
    assert torch.equal(late[2:], late[:2])
    assert [(each.job_id, each.success, each.transfer_size) for each in done] == [
        (2, True, 2 * (512 + 256 + 640))
    ]
    worker.wait_for_layer("late")
    assert worker.get_finished() == []


def test_a_layer_that_cannot_be_copied(step_loads: Any) -> None:
    """The step doesn't go on with other numbers."""

    def fail(*_: Any) -> None:
        raise OSError("no copy")

    step_loads.worker._step_loads._layers["window"].transfer_async = fail
    step_loads.begin()
    step_loads.worker.wait_for_layer("early")
    for wait in (
        lambda: step_loads.worker.wait_for_layer("window"),
        step_loads.worker.get_finished,
    ):
        with pytest.raises(OSError, match="no copy"):
            wait()


@pytest.mark.parametrize(
    ("mode", "metadata", "n_waits"),
    [
        (CUDAGraphMode.NONE, {}, 0),
        (CUDAGraphMode.PIECEWISE, {}, 0),
        (CUDAGraphMode.FULL, {}, 1),
        (CUDAGraphMode.NONE, None, 1),
    ],
)
def test_a_graph_waits_for_no_layer(mode: CUDAGraphMode, metadata: Any, n_waits: int) -> None:
    """All layers are waited for before it."""
    waited: list[str | None] = []
    connector = object.__new__(copies.Copies)
    connector._connector_metadata = copies._Step({}, {}, set())
    connector.connector_worker = SimpleNamespace(start_kv_transfers=lambda _: None)
    worker = SimpleNamespace(wait_for_layer=lambda layer=None: waited.append(layer))
    connector._spec = SimpleNamespace(worker=worker)
    context = SimpleNamespace(cudagraph_runtime_mode=mode, attn_metadata=metadata)
    connector.start_load_kv(context)
    assert waited == [None] * n_waits
    connector.wait_for_layer_load("a")
    assert waited[n_waits:] == ["a"]


def test_layers_in_turn() -> None:
    """In the order of the model; none where a layer doesn't wait, or has no place of its own."""

    def make(kind: type, **attributes: Any) -> Any:
        layer = object.__new__(kind)
        layer.__dict__.update(attributes)
        return layer

    layers = {"a": make(Attention), "b": make(MLAAttention, use_direct_call=False)}
    layers |= {"c": make(Attention), "not copied": make(MambaMixer2)}
    refs = [CanonicalKVCacheRef(0, 64)]
    caches = CanonicalKVCaches([], [refs * 2, refs])
    assert copies.layers_in_turn(layers, [["a", "c"], ["b"]], caches) == {"a": 0, "b": 2, "c": 1}
    for other in (make(MLAAttention, use_direct_call=True), make(MambaMixer2), None):
        assert copies.layers_in_turn(layers | {"c": other}, [["a", "c"], ["b"]], caches) == {}
    packed = CanonicalKVCaches([], [refs, refs])
    assert copies.layers_in_turn(layers, [["a", "c"], ["b"]], packed) == {}


@pytest.mark.parametrize("is_member", [True, False])
def test_a_worker_in_another_process(
    daemon: package.Daemon, engines: Engines, is_member: bool
) -> None:
    """It maps what its group's scheduler holds; what it can't map is neither stored nor loaded."""
    engine = engines()
    token = engine.connection.group_token if is_member else None
    with kvlease.connect(daemon.socket, group_token=token) as connection:
        namespaces = [
            connection.namespace(layout=each, device="host") for each in (LAYOUT, WINDOWS)
        ]
        blocks = torch.randint(-128, 127, (4, LAYOUT.plane_page_bytes), dtype=torch.int8)
        refs = [CanonicalKVCacheRef(0, LAYOUT.plane_page_bytes)]
        caches = CanonicalKVCaches(
            [CanonicalKVCacheTensor(blocks, LAYOUT.plane_page_bytes)], [refs, refs]
        )
        worker = transfers.Worker(namespaces, 0, caches, 1)
        context, keys = engine.request("1")
        begun = engine.manager.prepare_store(keys[:2], context)
        assert worker.submit_store(1, GPULoadStoreSpec([2, 3], [2, 0], [0, 0]), begun.store_spec)
        assert [result.job_id for result in worker.get_finished()] == [1]
        lost = {(0, page) for page in begun.store_spec.pages[0]}
        assert worker.lost_pages == (set() if is_member else lost)
        engine.manager.lose(worker.lost_pages)
        engine.manager.complete_store(set(keys[:2]), context)
        found = engine.look_up(context, keys[:2])
        assert found == ([HIT, HIT] if is_member else [MISS, MISS])
        load = begun.store_spec
        if is_member:
            load = engine.manager.prepare_load(keys[:2], context)
        original = blocks.clone()
        assert worker.submit_load(2, load, GPULoadStoreSpec([0, 1], [2, 0], [0, 0]))
        assert [result.job_id for result in worker.get_finished()] == [2]
        assert worker.lost_loads == (set() if is_member else {2})
        assert torch.equal(blocks[:2], original[2:] if is_member else original[:2])
        if is_member:
            engine.manager.complete_load(set(keys[:2]), context)
        worker.shutdown()
        for namespace in namespaces:
            namespace.close()


@pytest.mark.parametrize("n_groups", [1, 2])
def test_a_step_without_its_pages(daemon: package.Daemon, engines: Engines, n_groups: int) -> None:
    """Blocks that a step couldn't load are told to vLLM, which knows those of one group."""
    engine = engines()
    context, keys = engine.request("1")
    pages = engine.manager.prepare_store(keys[:2], context).store_spec.pages[:n_groups]
    with kvlease.connect(daemon.socket) as stranger:
        namespaces = [
            stranger.namespace(layout=each, device="host") for each in (LAYOUT, WINDOWS)[:n_groups]
        ]
        blocks = torch.zeros((4, LAYOUT.plane_page_bytes), dtype=torch.int8)
        refs = [CanonicalKVCacheRef(0, LAYOUT.plane_page_bytes)]
        caches = CanonicalKVCaches(
            [CanonicalKVCacheTensor(blocks, LAYOUT.plane_page_bytes)], [refs] * n_groups
        )
        connector = object.__new__(copies.Copies)
        connector._spec = SimpleNamespace(worker=None)
        assert connector.get_block_ids_with_load_errors() == set()
        worker = connector._spec.worker = transfers.Worker(namespaces, 0, caches, 1)
        wanted = GPULoadStoreSpec([3, 1], [2, 0][:n_groups], [0, 0][:n_groups])
        if n_groups > 1:
            with pytest.raises(RuntimeError, match="a step needs"):
                worker.submit_load(2, transfers.PageSpec(pages), wanted, expedited=True)
        else:
            assert worker.submit_load(2, transfers.PageSpec(pages), wanted, expedited=True)
            assert [result.job_id for result in worker.get_finished()] == [2]
            assert connector.get_block_ids_with_load_errors() == {1, 3}
        assert connector.get_block_ids_with_load_errors() == worker.lost_loads == set()
        worker.shutdown()
        for namespace in namespaces:
            namespace.close()


def test_an_indexers_cache_beside_mla(
    daemon: package.Daemon,
    engines: Engines,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DeepSeek-V3.2: no engine on a CPU computes it. vLLM's own planning and its connector's
    workers of two ranks run here: one rank stores what all have, and all load it. Before 0.33
    planning is called in another way."""
    planning = pytest.importorskip("vllm.v1.core.kv_cache_planning")
    make_mla(tmp_path)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    config = EngineArgs(
        model=str(tmp_path),
        skip_tokenizer_init=True,
        max_model_len=128,
        tensor_parallel_size=2,
        distributed_executor_backend="mp",
        kv_transfer_config={"kv_connector": "KvleaseConnector", "kv_role": "kv_both"},
    ).create_engine_config()
    config.cache_config.kv_cache_layout = "LBNHC"
    common = {"block_size": TOKENS, "num_kv_heads": 1, "max_tp_shards": 1}
    latent = MLAAttentionSpec(**common, head_size=576, dtype=torch.bfloat16)
    indexer = MLAAttentionSpec(
        **common, head_size=132, dtype=torch.uint8, cache_role=SparseCacheRole.INDEXER
    )
    specs = {f"{kind}.{i}": spec for i in "01" for kind, spec in (("m", latent), ("i", indexer))}
    groups = planning.get_global_kv_cache_groups(config, [specs, specs])
    caches, _ = planning.get_kv_cache_configs(config, [specs, specs], [1 << 20] * 2, groups)
    backend = SimpleNamespace(get_attn_backend=lambda: SimpleNamespace(get_name=lambda: "B"))
    config.compilation_config.static_forward_context |= dict.fromkeys(specs, backend)
    offloading = build_offloading_config(config, caches)
    engine = engines()
    ranks: list[tuple[torch.Tensor, Any]] = []
    made: list[kvlease.Namespace] = []

    def connect(kv_caches: CanonicalKVCaches) -> transfers.Worker:
        described = copies.describe(config, caches, offloading, kv_caches)
        options = identity.Options()
        layouts = copies.layouts_of(config, offloading, [described] * 2, options, Codecs(), b"")
        assert [each.n_planes for each in layouts] == [1]
        assert layouts[0].plane_page_bytes == sum(each.page_size_bytes for each in specs.values())
        made[:] = made or [engine.connection.namespace(layout=layouts[0], device="host")]
        worker = transfers.Worker(made, 0, kv_caches, 1)
        return worker

    for _ in range(2):
        spec = copies.Spec(offloading)
        spec.connector = SimpleNamespace(_connect=connect)
        memory = torch.randint(-128, 127, (caches.kv_cache_tensors[0].size,), dtype=torch.int8)
        views: dict[str, torch.Tensor] = {}
        for tensor in caches.kv_cache_tensors:
            of_layer = specs[tensor.layers[0]]
            each = create_kv_cache_views(
                memory, of_layer, caches.num_blocks, KVCacheLayout.LBNHC, tensor
            )
            views |= zip(tensor.layers, each, strict=True)
        copying = OffloadingConnectorWorker(spec, config, caches)
        copying.register_kv_caches(views)
        ranks.append((memory, copying))
        config.parallel_config.rank = 1
        offloading = build_offloading_config(config, caches)

    group = replace(engine.groups[0], namespace=made[0], pieces=[])
    books = manager.Manager(engine.connection, [group])
    context, keys = engine.request("1")
    books.on_new_request(context)
    begun = books.prepare_store(keys[:2], context)
    job = TransferJob("1", GPULoadStoreSpec([3, 5], [2], [0]), begun.store_spec)
    for _, copying in ranks:
        copying.prepare_store_kv(OffloadingConnectorMetadata({}, {1: job}))
        copying.start_kv_transfers(OffloadingConnectorMetadata({}, {}))
        copying.get_finished(set())
        # A rank that stored nothing says so, too: vLLM waits for all of them.
        assert copying.build_connector_worker_meta().completed_jobs == {1: 1}
    books.complete_store(set(keys[:2]), context)
    assert [books.lookup(key, context) for key in keys[:2]] == [HIT, HIT]
    load = books.prepare_load(keys[:2], context)
    job = TransferJob("1", load, GPULoadStoreSpec([7, 8], [2], [0]))
    stored = [ranks[0][0].clone(), ranks[1][0].clone()]
    for (memory, copying), before in zip(ranks, stored, strict=True):
        copying.start_kv_transfers(OffloadingConnectorMetadata({2: job}, {}))
        assert copying.get_finished(set())[1] == {"1"}
        for tensor in caches.kv_cache_tensors:
            n_bytes = tensor.block_stride
            for layer, (source, target) in product(range(2), ((3, 7), (5, 8))):
                at = tensor.offset + layer * tensor.layer_stride
                first, theirs = at + source * n_bytes, at + target * n_bytes
                original = stored[0][first : first + n_bytes]
                assert torch.equal(memory[theirs : theirs + n_bytes], original)
                before[theirs : theirs + n_bytes] = original
        assert torch.equal(memory, before)
        copying.shutdown()
    books.complete_load(set(keys[:2]), context)
    made[0].close()


def test_what_could_not_be_loaded_is_not_found_again(daemon: package.Daemon, engines: Any) -> None:
    engine = engines()
    context, keys = engine.request("1")
    assert engine.store(context, keys[:2]) == keys[:2]
    engine.manager.give_up(["1", "one that is over"])
    assert engine.look_up(context, keys[:2]) == [MISS, MISS]
    assert engine.look_up(engine.request("2")[0], keys[:2]) == [HIT, HIT]
    engine.manager.on_schedule_end(END)


def test_an_adapter_is_expected_until_it_is_read(engines: Engines) -> None:
    """A request's first step is the one in which the worker reads it."""
    books = engines().manager
    adapter = Epoch(0, 7, (1, b"d"))
    for name, epoch in (("1", adapter), ("2", Epoch(0))):
        context = ReqContext(name)
        books.on_new_request(context)
        books._texts[name].epoch = epoch
        books.prepare_load([], context)
    assert books.take_adapters() == books.take_adapters() == [(7, b"d")]
    books.on_schedule_end(ScheduleEndContext(("1", "2"), ()))
    assert books.take_adapters() == [(7, b"d")]
    assert books.take_adapters() == []


SIZES = {"block_size": 32, "num_kv_heads": 2, "head_size": 32, "dtype": torch.float32}
FULL = FullAttentionSpec(**SIZES)
STATES = MambaSpec(shapes=((32,), (64, 8)), dtypes=(torch.float32, torch.float16), block_size=32)


def layout(
    model: str, extra: dict[str, Any] | None = None, backend: str = "A", **options: Any
) -> kvlease.Layout:
    """Of the pages of an engine with these options, by its own configuration."""
    spec = options.pop("spec", FULL)
    kv_cache_layout = options.pop("kv_cache_layout", "LBHNC")
    name = options.pop("identity", b"a model")
    n_ranks = options.get("tensor_parallel_size", 1)
    config = EngineArgs(
        model=model,
        skip_tokenizer_init=True,
        block_size=32,
        kv_transfer_config={
            "kv_connector": "KvleaseConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {"mode": "copy"} | (extra or {}),
        },
        **options,
    ).create_engine_config()
    settings = identity.Options.of(config)
    config.cache_config.kv_cache_layout = kv_cache_layout
    config.compilation_config.static_forward_context["0"] = SimpleNamespace(
        get_attn_backend=lambda: SimpleNamespace(get_name=lambda: backend)
    )
    caches = KVCacheConfig(100, [], [KVCacheGroupSpec(["0"], spec)])
    offloading = build_offloading_config(config, caches)
    refs = CanonicalKVCaches([], [[CanonicalKVCacheRef(0, spec.page_size_bytes)]])
    ranks = [copies.describe(config, caches, offloading, refs)] * n_ranks
    codecs = Codecs.read(extra or {})
    (only,) = copies.layouts_of(config, offloading, ranks, settings, codecs, name)
    return only


def test_foreign_pages_have_other_layouts(model: str, models: Callable[..., str]) -> None:
    same = layout(model)
    assert layout(model) == same
    assert same.page_tokens == 32
    assert same.plane_page_bytes == FULL.page_size_bytes
    ranks = layout(model, tensor_parallel_size=2, distributed_executor_backend="mp")
    assert ranks.n_planes == 2
    others = [
        ranks,
        layout(model, backend="B"),
        layout(model, kv_cache_layout="LBNHC"),
        layout(model, prefix_caching_hash_algo="sha256_cbor"),
        layout(model, spec=replace(FULL, block_size=64)),
        layout(model, spec=replace(FULL, num_kv_heads=1, head_size=64)),
        layout(model, spec=replace(FULL, dtype=torch.float16, head_size=64)),
        layout(model, spec=replace(FULL, dtype=torch.float8_e4m3fn, head_size=128)),
        layout(model, spec=SlidingWindowSpec(**SIZES, sliding_window=64)),
        layout(model, spec=STATES),
        layout(model, {"blocks_per_chunk": 2}),
        layout(model, {"salt": "x"}),
        layout(model, identity=b"another model"),
        layout(models(rope_theta=20000.0)),
    ]
    assert len({each.name() for each in [same, *others]}) == 1 + len(others)


def test_pages_of_many_tokens(model: str) -> None:
    """As vLLM has them beside recurrent states: more than a layout may say."""
    long, longer = (layout(model, spec=replace(FULL, block_size=n)) for n in (1056, 2112))
    assert long.page_tokens == longer.page_tokens == 1024
    assert longer.plane_page_bytes == 2 * long.plane_page_bytes
    assert long.format != longer.format


def test_stages_of_other_sizes() -> None:
    """A stage of a pipeline has as many layers of a group as it has, or none."""

    def part(n: int) -> list[places.Part]:
        size = 4096 * max(n, 1)
        return [places.Part(1, size, n, f"{n}", torch.float32, 1, 32, "A" * (n > 0), [[]])]

    group = SimpleNamespace(group_id=0, tokens_per_block=16)
    config: Any = SimpleNamespace(
        groups=[group],
        kv_cache_layout="LBHNC",
        cache=SimpleNamespace(blocks_per_chunk=1),
        replicated_layout=False,
    )
    vllm_config: Any = SimpleNamespace(
        cache_config=SimpleNamespace(prefix_caching_hash_algo="sha256", cache_dtype="auto"),
        parallel_config=SimpleNamespace(tensor_parallel_size=1, pipeline_parallel_size=3),
        speculative_config=None,
        model_config=SimpleNamespace(
            model="m", quantization=None, hf_config=SimpleNamespace(to_dict=dict)
        ),
    )
    ranks = [part(0), part(3), part(1)]
    (only,) = copies.layouts_of(vllm_config, config, ranks, identity.Options(), Codecs(), b"")
    assert (only.n_layers, only.n_planes, only.plane_page_bytes) == (4, 3, 3 * 4096)


def test_codecs_of_pages(model: str, make_daemon: package.MakeDaemon) -> None:
    """They aren't part of what pages are; which of them can't be had is said by the setting."""
    daemon = make_daemon(
        device="memory = 2MiB\nextent = 2MiB\nhost_memory = 4MiB", tenant="limit = 2MiB"
    )
    same = layout(model)
    assert layout(model, {"host_codec": "int8", "disk_codec": "0-:int4"}) == same
    floats = replace(LAYOUT, n_layers=2)
    with kvlease.connect(daemon.socket) as one, kvlease.connect(daemon.socket) as other:
        first = Codecs(host_codec="0:none,1:int8").open(one, floats, "host")
        with pytest.raises(ValueError, match="with host_codec 'int4': "):
            Codecs(host_codec="int4").open(other, floats, "host")
        first.close()
        with pytest.raises(ValueError, match="codec 'int5' isn't known"):
            Codecs(disk_codec="int5").open(other, WINDOWS, "host")


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        ({"host_codec": 1}, "host_codec is a codec's name"),
        ({"disk_codec": ""}, "disk_codec is a codec's name"),
        ({"host_codec": "0-:int8", "spec": STATES}, "pages are padded"),
    ],
)
def test_refused_codecs(model: str, extra: dict[str, Any], sentence: str) -> None:
    options = {"spec": extra.pop("spec")} if "spec" in extra else {}
    with pytest.raises(ValueError) as caught:
        layout(model, extra, **options)
    assert sentence in str(caught.value)
