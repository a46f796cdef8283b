"""Linkers as SGLang makes them, and calls as its tree makes them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import torch
from pools import PAGE, SLOTS, invalidate, make_keys, make_runner, slots
from sglang.srt.mem_cache.hicache_storage import PoolName, PoolTransfer
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool
from sglang.srt.mem_cache.unified_cache.linker_factory import create_unified_cache_linker

KV = PoolName.KV


def make_pool(seed: int) -> MHATokenToKVPool:
    """Keys and values of three layers on the CPU, of random numbers."""
    pool = MHATokenToKVPool(SLOTS, PAGE, torch.bfloat16, 2, 32, 3, "cpu", False)
    made = torch.Generator().manual_seed(seed)
    for each in (*pool.k_buffer, *pool.v_buffer):
        each.copy_(torch.rand(each.shape, generator=made))
    return pool


@contextmanager
def linked(socket: Any, pool: Any, ranks: Any = None, **settings: Any) -> Iterator[Any]:
    """A linker, made by SGLang's factory. ranks: the group of processes that it is one of."""
    params = SimpleNamespace(
        token_to_kv_pool_allocator=SimpleNamespace(get_kvcache=lambda: pool),
        req_to_token_pool=SimpleNamespace(register_layer_transfer_counter=lambda _: None),
        page_size=PAGE,
        mtp_draft_device_pools=(),
        attn_tp_cache_group=ranks,
        tp_cache_group=None,
        attn_cp_size=1,
        pp_rank=0,
        pp_size=1,
    )
    config = {
        "linker": "Linker",
        "linker_module_path": "kvlease.sglang",
        "linker_extra_config": {"socket": str(socket), **settings},
    }
    arguments = SimpleNamespace(model_path="models/tiny")
    linker = create_unified_cache_linker(
        arguments, params, backend="dynamic", config=config, components={KV}
    )
    try:
        yield linker
    finally:
        linker.close()


def transfer(keys: list[str], *pages: int) -> PoolTransfer:
    """Of keys and values, as SGLang's tree makes them."""
    return PoolTransfer(KV, device_indices=slots(*pages) if pages else None, keys=keys)


def store(linker: Any, *transfers: PoolTransfer) -> bool:
    """As the tree does after a forward, and later."""
    assert linker.offload(list(transfers))
    while not linker.num_completed_offloads():
        time.sleep(0.01)
    return bool(linker.pop_completed_offload())


def run_rank(rank: int, meeting: str, socket: str, calls: Connection) -> None:
    """One of two ranks, in a process of its own: stores two pages, loses the second one where it is
    rank 1, and tries to load one page and then both. Sends whether it could, and what it found."""
    runner = make_runner()
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=2
    )
    keys = make_keys(2)
    with linked(socket, make_pool(1), torch.distributed.group.WORLD) as linker:
        assert store(linker, transfer(keys, 0, 1))
        if rank:
            invalidate(linker._storage, keys[1])
        torch.distributed.barrier()
        found = linker.lookup("a", [transfer(keys)])
        first = linker.load("a", [transfer(keys[:1], 4)])
        both = linker.load("b", [transfer(keys, 5, 6)])
        linker.reset()
        calls.send((found, first, both))
    torch.distributed.destroy_process_group()
    del runner
