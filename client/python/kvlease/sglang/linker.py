"""Links SGLang's pools on the device to kvleased, with no host memory of SGLang in between."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable
from queue import Queue
from typing import Any

import torch
from sglang.srt.mem_cache.hicache_storage import (
    HiCacheStorageConfig,
    HiCacheStorageExtraInfo,
    PoolName,
    PoolTransfer,
)
from sglang.srt.mem_cache.hybrid_cache.linker_pool_assembler import (
    DevicePoolEntry,
    DevicePoolGroup,
    resolve_hybrid_device_pool_group,
)
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, MLATokenToKVPool
from sglang.srt.mem_cache.unified_cache.unified_cache_linker import (
    LayerWiseLoadCounter,
    UnifiedCacheLinker,
)
from sglang.srt.utils import get_device_module

from kvlease._engine import Stats
from kvlease.sglang.pages import DevicePool, Pinned
from kvlease.sglang.storage import Storage

_logger = logging.getLogger("kvlease")
_device = get_device_module()

# Pages of which the page before is remembered. Each takes some 300 bytes.
_MOST_PARENTS = 65536

_Load = tuple[DevicePool, Pinned, torch.Tensor]
"""A pool, pages of kvleased, and where in the pool they go."""


class Linker(UnifiedCacheLinker):
    """One of each rank. Methods are called by SGLang's scheduler; two threads copy. Once it is made
    no method raises, and no load that was accepted fails: its pages stay readable until it is over,
    also without kvleased."""

    def __init__(
        self,
        server_args: Any,
        params: Any,
        *,
        components: set[Any],
        extra_config: dict[str, Any] | None = None,
        forward_stream: Any = None,
    ) -> None:
        """As SGLang makes linkers. ValueError for settings or models that can't be."""
        self.forward_stream = forward_stream
        self._group = _pools_of(params, components)
        self.pools = self._group.entry_map
        self.layer_done_counter = LayerWiseLoadCounter(self._group.num_layers)
        if PoolName.MAMBA in self.pools:
            params.req_to_token_pool.register_layer_transfer_counter(self.layer_done_counter)
        self._ranks = params.attn_tp_cache_group or params.tp_cache_group
        config = _config_of(params, self._ranks, self._group.rank_replicated)
        config.model_name = server_args.model_path
        config.extra_config = {"interface_v1": 1, **(extra_config or {})}
        self._is_writer = config.is_storage_writer
        self._storage = Storage(config)
        self._own = {name: DevicePool(name.value, each) for name, each in self.pools.items()}
        for pool in self._own.values():
            self._storage.add_pool(pool)
        self._storage.on_host_pools_registered()
        self._device = _device.current_device()
        self._parents: OrderedDict[str, str] = OrderedDict()
        self._queued: dict[str, list[_Load]] = {}
        self._loads: Queue[tuple[int, Any, list[_Load]] | None] = Queue()
        self._offloads: Queue[tuple[list[PoolTransfer], list[Any], str | None] | None] = Queue()
        self._results: Queue[bool] = Queue()
        self._threads = [
            threading.Thread(target=work, name=f"kvlease-{name}", daemon=True)
            for name, work in (("load", self._load_all), ("offload", self._offload_all))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def stats(self) -> Stats:
        """What was found and stored so far."""
        return self._storage.stats

    # Loads.

    def lookup(self, rid: str, transfers: list[PoolTransfer]) -> list[int]:
        """All numbers of pages that this rank can restore."""
        expanded = self._group.resolve_transfers(transfers)
        keys = next((list(each.keys or []) for each in transfers if each.name == PoolName.KV), [])
        if not expanded or not keys:
            return []
        self._remember(keys)
        return self._storage.batch_exists_v2(keys, expanded).restorable_prefix_pages or []

    def load(self, rid: str, transfers: list[PoolTransfer]) -> bool:
        """Pins the pages. False on all ranks: on one of them some aren't cached any more."""
        expanded = self._group.resolve_transfers(
            transfers, allow_partial=True, allow_missing_kv=True
        )
        loads: list[_Load] = []
        is_whole = bool(expanded)
        for each in expanded:
            pool = self._own[each.name]
            pinned = is_whole and self._storage.pin(pool, each.keys or [])
            if pinned:
                loads.append((pool, pinned, each.host_indices))
            is_whole = bool(pinned)
        if not self._is_true_on_all(is_whole):
            _close(loads)
            return False
        self._queued[rid] = loads
        return True

    def _is_true_on_all(self, own: bool) -> bool:
        if self._ranks is None or torch.distributed.get_world_size(group=self._ranks) == 1:
            return own
        flag = torch.tensor([int(own)], dtype=torch.int)
        torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MIN, group=self._ranks)
        return bool(flag.item())

    def cancel_queued_load(self, rid: str) -> bool:
        """Whether there was one."""
        loads = self._queued.pop(rid, None)
        _close(loads or [])
        return loads is not None

    def start_layer_wise_loading(self) -> int:
        """The index of the batch; -1: there is nothing to load."""
        if not self._queued:
            return -1
        queued, self._queued = self._queued, {}
        index: int = self.layer_done_counter.update_producer()
        ready = _device.Event()
        ready.record()
        self._loads.put((index, ready, [load for loads in queued.values() for load in loads]))
        return index

    def finish_layer_wise_loading(self, counter_index: int) -> bool:
        """Whether all layers of the batch were loaded, once nothing writes any more."""
        return bool(self.layer_done_counter.finish(counter_index))

    def _load_all(self) -> None:
        _device.set_device(self._device)
        while (task := self._loads.get()) is not None:
            index, ready, loads = task
            try:
                ready.synchronize()
                for layer in range(self._group.num_layers):
                    for pool, pinned, indices in loads:
                        pool.load_layer(layer, pinned, indices)
                    written = _device.Event()
                    written.record()
                    written.synchronize()
                    self.layer_done_counter.complete(index, layer)
            except Exception as error:
                # The device failed, or memory is short: SGLang aborts the requests.
                _logger.exception("pages couldn't be loaded")
                self.layer_done_counter.fail(index, error)
            _close(loads)
            self._loads.task_done()
        self._loads.task_done()

    # Offloads.

    def offload(self, transfers: list[PoolTransfer], session_id: str | None = None) -> bool:
        """Whether SGLang is to wait for a result."""
        expanded = self._group.resolve_transfers(transfers, allow_partial=True)
        if not expanded:
            return False
        if not self._is_writer:
            self._results.put(True)
            return True
        keys = next((each.keys for each in transfers if each.name == PoolName.KV), None)
        before = self._parents.get(keys[0]) if keys else None
        self._offloads.put((expanded, self.record_offload_ready(), before))
        return True

    def _offload_all(self) -> None:
        _device.set_device(self._device)
        while (task := self._offloads.get()) is not None:
            transfers, events, before = task
            is_stored = False
            try:
                for event in events:
                    event.synchronize()
                prefix = HiCacheStorageExtraInfo(prefix_keys=[before] if before else [])
                done = self._storage.batch_set_v2(transfers, prefix)
                is_stored = all(all(each) for each in done.values())
            except Exception:
                _logger.exception("pages couldn't be stored")
            self._results.put(is_stored)
            self._offloads.task_done()
        self._offloads.task_done()

    def num_completed_offloads(self) -> int:
        """Results that wait."""
        return self._results.qsize()

    def pop_completed_offload(self) -> bool:
        """Whether all pages of the oldest one are cached."""
        return self._results.get_nowait()

    def _remember(self, keys: list[str]) -> None:
        """Which page follows which: SGLang doesn't say so when it offloads them."""
        for before, key in itertools.pairwise(keys):
            self._parents[key] = before
            self._parents.move_to_end(key)
        while len(self._parents) > _MOST_PARENTS:
            self._parents.popitem(last=False)

    # The end.

    def reset(self) -> None:
        """Returns when nothing is under way any more. Cached pages stay."""
        for rid in list(self._queued):
            self.cancel_queued_load(rid)
        self._loads.join()
        self._offloads.join()
        while self._results.qsize():
            self._results.get_nowait()
        self.layer_done_counter.reset()

    def close(self) -> None:
        """The engine ends."""
        self.reset()
        self._loads.put(None)
        self._offloads.put(None)
        for thread in self._threads:
            thread.join()
        self._storage.close()


def _close(loads: Iterable[_Load]) -> None:
    for _, pinned, _ in loads:
        pinned.close()


def _pools_of(params: Any, components: set[Any]) -> DevicePoolGroup:
    """SGLang's description of its pools. SGLang has none of models whose layers all attend to the
    whole text."""
    kvcache = params.token_to_kv_pool_allocator.get_kvcache()
    kinds = {MHATokenToKVPool: "k_buffer v_buffer", MLATokenToKVPool: "kv_buffer"}
    kind = kinds.get(type(kvcache))
    if kind is None or len(components) > 1 or params.mtp_draft_device_pools:
        return resolve_hybrid_device_pool_group(
            kvcache=kvcache, page_size=params.page_size, params=params, components=components
        )
    if getattr(kvcache, "k_scale_buffer", None) is not None:
        raise ValueError("kvlease can't link a KV cache with scales beside its numbers")
    parts = [getattr(kvcache, name) for name in kind.split()]
    n_layers = len(parts[0])
    entry = DevicePoolEntry(
        name=PoolName.KV,
        indices_from_pool=PoolName.KV,
        device_pool=kvcache,
        components=parts,
        layer_mapping={layer: layer for layer in range(n_layers)},
        page_size=params.page_size,
        rows_are_pages=False,
    )
    is_replicated = type(kvcache) is MLATokenToKVPool
    return DevicePoolGroup([entry], n_layers, params.page_size, rank_replicated=is_replicated)


def _config_of(params: Any, ranks: Any, is_replicated: bool) -> HiCacheStorageConfig:
    if params.attn_cp_size > 1:
        raise ValueError("kvlease can't link ranks of context parallelism")
    is_alone = ranks is None
    return HiCacheStorageConfig(
        tp_rank=0 if is_alone else torch.distributed.get_rank(group=ranks),
        tp_size=1 if is_alone else torch.distributed.get_world_size(group=ranks),
        pp_rank=params.pp_rank,
        pp_size=params.pp_size,
        attn_cp_rank=0,
        attn_cp_size=1,
        is_mla_model=is_replicated,
        enable_storage_metrics=False,
        is_page_first_layout=False,
        model_name=None,
    )
