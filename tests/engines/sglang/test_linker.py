"""The linker between pools of the device and kvleased, called as SGLang's tree calls it."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

import kvlease_conftest as package
import pytest
import torch
from links import KV, linked, make_pool, run_rank, store, transfer
from pools import PAGE, SLOTS, invalidate, make_keys, slots
from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolName, PoolTransfer
from sglang.srt.mem_cache.hybrid_cache.linker_pool_assembler import (
    DevicePoolEntry,
    DevicePoolGroup,
)
from support import SECONDS, ctl, forks, held, namespaces, published

from kvlease.sglang import linker as module

pytestmark = pytest.mark.usefixtures("runner")
SWA, MAMBA = PoolName.SWA, PoolName.MAMBA


def rows(pool: Any, page: int) -> list[torch.Tensor]:
    """A page of each layer."""
    return [each[page * PAGE : (page + 1) * PAGE] for each in (*pool.k_buffer, *pool.v_buffer)]


def assert_equal(one: Any, page: int, other: Any, other_page: int) -> None:
    """Two pages, bit by bit."""
    for a, b in zip(rows(one, page), rows(other, other_page), strict=True):
        assert torch.equal(a, b)


def test_round_trip(daemon: Any) -> None:
    """Layer by layer, to other places."""
    first, second, keys = make_pool(1), make_pool(2), make_keys(5)
    with linked(daemon.socket, first) as writer, linked(daemon.socket, second) as reader:
        assert writer.lookup("a", [transfer(keys)]) == []
        assert store(writer, transfer(keys[:2], 3, 4))
        assert store(writer, transfer(keys[2:4], 8, 6))
        assert reader.lookup("b", [transfer(keys)]) == [1, 2, 3, 4]
        assert reader.start_layer_wise_loading() == -1
        assert reader.load("b", [transfer(keys[:4], 10, 12, 11, 20)])
        assert held(daemon)[1] == 4
        index = reader.start_layer_wise_loading()
        reader.layer_done_counter.set_consumer(index)
        for layer in range(3):
            reader.layer_done_counter.wait_until(layer)
            for there, here in ((3, 10), (4, 12), (8, 11), (6, 20)):
                for part in (layer, 3 + layer):
                    assert torch.equal(rows(first, there)[part], rows(second, here)[part])
        assert reader.finish_layer_wise_loading(index)
        package.wait_until(lambda: held(daemon) == (0, 0))
        # Pages go with those behind them: parents are known of lookups.
        assert invalidate(writer._storage, keys[1]) == 3
        assert reader.lookup("c", [transfer(keys)]) == [1]
    assert "consistent" in ctl(daemon, "check")


def test_first_layer_first(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine can read a layer of all pages while the layers behind it aren't loaded."""
    first, second, keys, gate = make_pool(1), make_pool(2), make_keys(2), threading.Event()
    copy = module.DevicePool.load_layer

    def load_layer(pool: Any, layer: int, *where: Any) -> None:
        assert layer < 1 or gate.wait(60)
        copy(pool, layer, *where)

    monkeypatch.setattr(module.DevicePool, "load_layer", load_layer)
    with (
        linked(daemon.socket, first) as writer,
        linked(daemon.socket, second) as reader,
        contextlib.ExitStack() as end,
    ):
        end.callback(gate.set)
        assert store(writer, transfer(keys, 0, 1))
        assert reader.load("a", [transfer(keys, 4, 5)])
        index = reader.start_layer_wise_loading()
        reader.layer_done_counter.set_consumer(index)
        reader.layer_done_counter.wait_until(0)
        for part in range(6):
            same = [
                torch.equal(rows(first, there)[part], rows(second, here)[part])
                for there, here in ((0, 4), (1, 5))
            ]
            assert same == [part in (0, 3)] * 2
        gate.set()
        assert reader.finish_layer_wise_loading(index)
        assert_equal(first, 1, second, 5)


def test_refused_load(daemon: Any) -> None:
    """A page that went after the lookup: the request is computed, and nothing is held."""
    pool, keys = make_pool(1), make_keys(3)
    with linked(daemon.socket, pool) as linker:
        linker.lookup("a", [transfer(keys)])
        assert store(linker, transfer(keys, 0, 1, 2))
        assert linker.lookup("a", [transfer(keys)]) == [1, 2, 3]
        invalidate(linker._storage, keys[2])
        assert not linker.load("a", [transfer(keys, 4, 5, 6)])
        assert held(daemon) == (0, 0)
        # One that SGLang takes back.
        assert linker.load("b", [transfer(keys[:2], 4, 5)]) and held(daemon)[1] == 2
        assert linker.cancel_queued_load("b") and not linker.cancel_queued_load("b")
        assert held(daemon) == (0, 0)
        assert linker.load("c", [transfer(keys[:2], 4, 5)])
        linker.reset()
        assert held(daemon) == (0, 0)


def test_daemon_gone(daemon: Any) -> None:
    """A load that was accepted needs no kvleased any more; others are refused."""
    pool, keys = make_pool(1), make_keys(2)
    with linked(daemon.socket, pool, timeout=0.5) as linker:
        assert store(linker, transfer(keys, 0, 1))
        assert linker.load("a", [transfer(keys, 4, 5)])
        daemon.stop()
        assert not store(linker, transfer(make_keys(1, seed=5), 2))
        index = linker.start_layer_wise_loading()
        assert linker.finish_layer_wise_loading(index)
        assert_equal(pool, 0, pool, 4)
        assert_equal(pool, 1, pool, 5)
        assert not linker.load("b", [transfer(make_keys(1, seed=5), 6)])


def test_mismatch(daemon: Any) -> None:
    """Pages of the same key with other numbers are found out, and dropped."""
    keys = make_keys(2)
    with (
        linked(daemon.socket, make_pool(1)) as liar,
        linked(daemon.socket, make_pool(2), verify=1) as linker,
    ):
        assert store(liar, transfer(keys, 0, 1))
        assert linker.lookup("a", [transfer(keys)]) == []
        store(linker, transfer(keys, 0, 1))
        assert published(daemon) == 0
        assert not store(linker, transfer(make_keys(1, seed=3), 0))


def test_ranks(daemon: Any, tmp_path: Path) -> None:
    """Each has pages of its own, and all refuse a load of which one lacks a page."""
    pipes = [forks.Pipe() for _ in range(2)]
    ranks = [
        forks.Process(
            target=run_rank, args=(i, str(tmp_path / "meeting"), str(daemon.socket), p[1])
        )
        for i, p in enumerate(pipes)
    ]
    for each, (_, theirs) in zip(ranks, pipes, strict=True):
        each.start()
        theirs.close()
    answers = [ours.recv() if ours.poll(SECONDS) else None for ours, _ in pipes]
    for each in ranks:
        each.join(60)
        each.kill()
    assert answers == [([1, 2], True, False), ([1], True, False)]
    assert len(namespaces(daemon)) == 2
    package.wait_until(lambda: held(daemon) == (0, 0))


def make_hybrid(seed: int) -> DevicePoolGroup:
    """Full attention in layers 0 and 2, a window in layer 1, a state in layer 3."""
    made = torch.Generator().manual_seed(seed)

    def entry(name: PoolName, components: list[Any], layers: dict[int, Any]) -> DevicePoolEntry:
        for each in components:
            for buffer in each:
                buffer.copy_(torch.rand(buffer.shape, generator=made))
        is_state = name == MAMBA
        return DevicePoolEntry(
            name=name,
            indices_from_pool=name,
            device_pool=None,
            components=components,
            layer_mapping=layers,
            page_size=1 if is_state else PAGE,
            rows_are_pages=is_state,
        )

    rows = [torch.zeros(SLOTS, 2, 32) for _ in range(6)]
    states = [[torch.zeros(64, 5, 8)], [torch.zeros(64, 40, dtype=torch.bfloat16)]]
    entries = [
        entry(KV, [rows[:4]], {0: (0, 2), 2: (1, 3)}),
        entry(SWA, [rows[4:]], {1: (0, 1)}),
        entry(MAMBA, states, {3: 0}),
    ]
    return DevicePoolGroup(entries, 4, PAGE)


def test_hybrid(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths at which a window and a state end, and their bytes."""
    groups = [make_hybrid(seed) for seed in (1, 2)]
    given = iter(groups)
    monkeypatch.setattr(module, "_pools_of", lambda *_: next(given))
    keys = make_keys(6)

    def parts(own: list[str], pages: list[int], state: int) -> list[PoolTransfer]:
        last = PoolHitPolicy.TRAILING_PAGES
        return [
            transfer(own, *pages),
            PoolTransfer(SWA, device_indices=slots(*pages[-2:]), keys=own[-2:], hit_policy=last),
            PoolTransfer(
                MAMBA, device_indices=torch.tensor([state]), keys=own[-1:], hit_policy=last
            ),
        ]

    with linked(daemon.socket, None) as writer, linked(daemon.socket, None) as reader:
        assert store(writer, *parts(keys[:3], [0, 1, 2], 7))
        assert store(writer, *parts(keys[3:], [3, 4, 5], 9))
        assert reader.lookup("a", parts(keys, [0] * 6, 0)) == [3, 6]
        assert reader.load("a", parts(keys, [10, 11, 12, 13, 14, 15], 30))
        index = reader.start_layer_wise_loading()
        assert reader.finish_layer_wise_loading(index)
    one, other = ([each.kv_buffer for each in group.entries] for group in groups)
    for a, b in zip(one[0], other[0], strict=True):
        assert torch.equal(a[: 6 * PAGE], b[10 * PAGE : 16 * PAGE])
    for a, b in zip(one[1], other[1], strict=True):
        assert torch.equal(a[4 * PAGE : 6 * PAGE], b[14 * PAGE : 16 * PAGE])
    for a, b in zip(one[2], other[2], strict=True):
        assert torch.equal(a[9], b[30])
    assert held(daemon) == (0, 0)
