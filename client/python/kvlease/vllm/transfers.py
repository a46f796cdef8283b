"""A worker's side of copies: between vLLM's blocks and pages of kvleased's host memory."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from vllm.platforms import current_platform
from vllm.v1.kv_offload.base import (
    CanonicalKVCacheRef,
    CanonicalKVCaches,
    GPULoadStoreSpec,
    LoadStoreSpec,
    OffloadingWorker,
    TransferResult,
)
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec
from vllm.v1.kv_offload.cpu.gpu_worker import SingleDirectionOffloadingHandler

import kvlease

_logger = logging.getLogger("kvlease")


@dataclass
class PageSpec(LoadStoreSpec):
    """Pages to be copied from or to, of each group, in the order of its blocks."""

    pages: list[list[int]]


class HostCopies:
    """Transfers in one direction, as vLLM's SingleDirectionOffloadingHandler has them, where vLLM
    computes on the CPU: each is over when it is begun."""

    def __init__(
        self,
        blocks: list[torch.Tensor],
        pages: list[torch.Tensor],
        layers: list[list[CanonicalKVCacheRef]],
        blocks_per_chunk: int,
        to_pages: bool,
    ) -> None:
        """Of each layer, or more of them: bytes of its blocks, and where they lie in pages. layers:
        which of these a group has."""
        self._blocks, self._pages, self._layers = blocks, pages, layers
        self._blocks_per_chunk = blocks_per_chunk
        self._to_pages = to_pages
        self._finished: list[TransferResult] = []

    def transfer_async(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        """From and to blocks and pages, group by group; of a group's first page the first blocks
        may be left out."""
        started = time.monotonic()
        blocks, pages = (src_spec, dst_spec) if self._to_pages else (dst_spec, src_spec)
        n_copied = first_block = first_page = 0
        for n, index, layers in zip(
            blocks.group_sizes, blocks.block_indices, self._layers, strict=True
        ):
            first = index % self._blocks_per_chunk
            n_pages = -(-(first + n) // self._blocks_per_chunk) if n else 0
            own = blocks.block_ids[first_block : first_block + n].tolist()
            of_group = pages.block_ids[first_page : first_page + n_pages].tolist()
            runs = list(_runs(own, of_group, first, self._blocks_per_chunk))
            for each in layers:
                engines = self._blocks[each.tensor_idx]
                parts = self._pages[each.tensor_idx].unflatten(1, (self._blocks_per_chunk, -1))
                for block, page, slot, n_rows, n_slots in runs:
                    of_blocks = engines[block : block + n_rows * n_slots]
                    of_blocks = of_blocks.unflatten(0, (n_rows, n_slots))
                    of_pages = parts[page : page + n_rows, slot : slot + n_slots]
                    if self._to_pages:
                        of_pages.copy_(of_blocks)
                    else:
                        of_blocks.copy_(of_pages)
                n_copied += n * each.page_size_bytes
            first_block, first_page = first_block + n, first_page + n_pages
        self._finished.append(TransferResult(job_id, True, n_copied, time.monotonic() - started))
        return True

    def get_finished(self) -> list[TransferResult]:
        """Since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def wait(self, job_ids: set[int]) -> None:
        """They are over."""

    def shutdown(self) -> None:
        """Lets go of the memory."""
        self._blocks, self._pages = [], []


class StepLoads:
    """Loads of pages that the step itself needs, one layer of all pages after the other. A thread
    copies while the engine computes the layers before. The engine's thread calls all methods."""

    def __init__(self, layers: Mapping[str, Any], on_cpu: bool) -> None:
        """layers: transfers of one layer each, in the order in which the engine computes them."""
        self._layers = layers
        self._stream = None if on_cpu else current_platform.Stream()
        self._thread = ThreadPoolExecutor(1, "kvlease-load")
        self._added: list[tuple[int, Any, Any]] = []
        self._begun: dict[str, Future[None]] = {}

    def add(self, job_id: int, pages: Any, blocks: Any) -> None:
        """Of the next begin()."""
        self._added.append((job_id, pages, blocks))

    def begin(self) -> None:
        """Begins the added loads. They wait until the GPU has finished all earlier work."""
        jobs, self._added = self._added, []
        if jobs:
            ready = self._stream and current_platform.current_stream().record_event()
            self._begun = {
                name: self._thread.submit(self._load, each, jobs, ready)
                for name, each in self._layers.items()
            }

    def _load(self, layer: Any, jobs: list[tuple[int, Any, Any]], ready: Any) -> None:
        # The copies' own stream: they would wait for the layers before on the model's.
        stream = self._stream
        with current_platform.stream(stream) if stream else nullcontext(), torch.inference_mode():
            if stream:
                stream.wait_event(ready)
            for job in jobs:
                layer.transfer_async(*job)
            layer.wait({job_id for job_id, _, _ in jobs})

    def wait(self, layer: str | None = None) -> None:
        """Until the layer may be read; without a layer, or with an unknown one, until all may be.
        Raises what ended a copy: the step has no other numbers."""
        if not self._begun:
            return
        loads = [self._begun[layer]] if layer in self._begun else self._begun.values()
        for each in loads:
            each.result()

    def get_finished(self) -> list[TransferResult]:
        """Since the last call, once all that was begun is over."""
        self.wait()
        self._begun = {}
        parts: dict[int, list[TransferResult]] = {}
        for layer in self._layers.values():
            for part in layer.get_finished():
                parts.setdefault(part.job_id, []).append(part)
        return [
            TransferResult(
                job_id,
                True,
                sum(part.transfer_size or 0 for part in own),
                sum(part.transfer_time or 0 for part in own),
            )
            for job_id, own in parts.items()
        ]

    def shutdown(self) -> None:
        """Lets go of the memory, once nothing is copied any more."""
        self._thread.shutdown()
        for layer in self._layers.values():
            layer.shutdown()


class Worker(OffloadingWorker):
    """Copies between vLLM's blocks and pages that the manager has pinned or leased."""

    def __init__(
        self,
        namespaces: Sequence[kvlease.Namespace],
        plane: int,
        kv_caches: CanonicalKVCaches,
        blocks_per_chunk: int,
        in_turn: Mapping[str, int] | None = None,
    ) -> None:
        """namespaces: of the groups of layers, in their order; they stay the caller's. plane: this
        rank's part of a page. in_turn: layers in the order in which the engine computes them, and
        their places among the layers of all groups; None: the engine waits for no single layer."""
        self._namespaces = namespaces
        self.has_blocks: Callable[[], bool] = lambda: True
        """Whether vLLM's cache has memory now."""
        self.lost_pages: set[tuple[int, int]] = set()
        """By the positions of their groups: those that couldn't be copied to."""
        self.lost_loads: set[int] = set()
        """Loads of which something couldn't be copied, but for those that a step needs."""
        self.lost_blocks: set[int] = set()
        """The engine's blocks that a step needs, and that couldn't be copied to."""
        self._arenas: list[kvlease.View] = []
        # Those that nothing is done for.
        self._skipped: list[int] = []
        blocks: list[torch.Tensor] = []
        parts: list[torch.Tensor] = []
        layers: list[list[CanonicalKVCacheRef]] = []
        for namespace, refs in zip(namespaces, kv_caches.group_data_refs, strict=True):
            arena = namespace.arena(plane, writable=True, dtype="i8")
            self._arenas.append(arena)
            pages, at = torch.from_dlpack(arena), 0
            layers.append([])
            for ref in refs:
                n_bytes = ref.page_size_bytes * blocks_per_chunk
                layers[-1].append(CanonicalKVCacheRef(len(blocks), ref.page_size_bytes))
                blocks.append(kv_caches.tensors[ref.tensor_idx].tensor[:, : ref.page_size_bytes])
                parts.append(pages[:, at : at + n_bytes])
                at += n_bytes
        self._stores, self._loads = (
            _copies(blocks, parts, layers, blocks_per_chunk, to_pages) for to_pages in (True, False)
        )
        alone = {
            name: _copies(*_only(i, blocks, parts, layers), blocks_per_chunk, to_pages=False)
            for name, i in (in_turn or {}).items()
        }
        self._step_loads = (
            StepLoads(alone, on_cpu=blocks[0].device.type == "cpu") if alone else None
        )

    def submit_store(
        self, job_id: int, src_spec: GPULoadStoreSpec, dst_spec: LoadStoreSpec
    ) -> bool:
        """From blocks to pages."""
        pages = self._map(dst_spec)
        if pages is None:
            self.lost_pages |= {(i, page) for i, each in enumerate(dst_spec.pages) for page in each}
            self._skipped.append(job_id)
        else:
            self._stores.transfer_async(job_id, src_spec, pages)
        return True

    def submit_load(
        self,
        job_id: int,
        src_spec: LoadStoreSpec,
        dst_spec: GPULoadStoreSpec,
        expedited: bool = False,
    ) -> bool:
        """From pages to blocks. expedited: the step needs them, and wait() begins to copy them."""
        pages = self._map(src_spec)
        if pages is not None and expedited and self._step_loads:
            self._step_loads.add(job_id, pages, dst_spec)
            return True
        if pages is not None:
            self._loads.transfer_async(job_id, pages, dst_spec)
            return True
        if not expedited:
            self.lost_loads.add(job_id)
        elif len(self._namespaces) > 1:
            # vLLM takes lost blocks of one group alone.
            raise RuntimeError("kvleased is gone, and with it pages that a step needs")
        else:
            self.lost_blocks.update(int(block) for block in dst_spec.block_ids)
        self._skipped.append(job_id)
        return True

    def get_finished(self) -> list[TransferResult]:
        """Since the last call."""
        skipped, self._skipped = self._skipped, []
        return [
            *(TransferResult(job_id, True) for job_id in skipped),
            *self._stores.get_finished(),
            *self._loads.get_finished(),
            *(self._step_loads.get_finished() if self._step_loads else ()),
        ]

    def wait(self, job_ids: set[int]) -> None:
        """Until the engine's blocks may be read, or written. Exception: blocks that the step needs
        may be read layer by layer, after wait_for_layer()."""
        self._stores.wait(job_ids)
        self._loads.wait(job_ids)
        if self._step_loads:
            self._step_loads.begin()

    def wait_for_layer(self, layer: str | None = None) -> None:
        """Until the layer of the blocks that the step needs may be read; None: all layers."""
        if self._step_loads:
            self._step_loads.wait(layer)

    def shutdown(self) -> None:
        """Lets go of the memory."""
        self._stores.shutdown()
        self._loads.shutdown()
        if self._step_loads:
            self._step_loads.shutdown()
        for arena in self._arenas:
            arena.release()

    def _map(self, pages: LoadStoreSpec) -> CPULoadStoreSpec | None:
        """Maps pages that the scheduler holds. None: kvleased is gone, or has lost them, or the
        engine sleeps."""
        assert isinstance(pages, PageSpec)
        if not self.has_blocks():
            return None
        try:
            for namespace, own in zip(self._namespaces, pages.pages, strict=True):
                if own:
                    namespace.adopt(own, "mapped").detach()
        except kvlease.Error as error:
            _logger.error("copies nothing of %d pages: %s", sum(map(len, pages.pages)), error)
            return None
        return CPULoadStoreSpec([page for of_group in pages.pages for page in of_group])


def _runs(
    blocks: list[int], pages: list[int], first: int, blocks_per_page: int
) -> Iterator[tuple[int, int, int, int, int]]:
    """Rectangles of blocks and pages that lie one behind the other, so that one call copies each:
    the first block, the first page, its first slot, how many pages, and slots of each. first: the
    slot of the first block."""

    def follow(n: int, done: int) -> bool:
        at = done + n
        return at < len(blocks) and blocks[at] == blocks[done] + n

    done = 0
    while done < len(blocks):
        i, slot = divmod(first + done, blocks_per_page)
        n = 1
        while slot + n < blocks_per_page and follow(n, done):
            n += 1
        n_slots, n_rows = n, 1
        while (
            n_slots == blocks_per_page
            and i + n_rows < len(pages)
            and pages[i + n_rows] == pages[i] + n_rows
            and all(follow(n + k, done) for k in range(n_slots))
        ):
            n += n_slots
            n_rows += 1
        yield blocks[done], pages[i], slot, n_rows, n_slots
        done += n


def _only(
    i: int,
    blocks: list[torch.Tensor],
    pages: list[torch.Tensor],
    layers: list[list[CanonicalKVCacheRef]],
) -> tuple[list[torch.Tensor], list[torch.Tensor], list[list[CanonicalKVCacheRef]]]:
    """Of all layers' blocks, pages and groups those of a single layer."""
    own = [
        [CanonicalKVCacheRef(0, each.page_size_bytes) for each in group if each.tensor_idx == i]
        for group in layers
    ]
    return [blocks[i]], [pages[i]], own


def _copies(
    blocks: list[torch.Tensor],
    pages: list[torch.Tensor],
    layers: list[list[CanonicalKVCacheRef]],
    blocks_per_chunk: int,
    to_pages: bool,
) -> Any:
    """In one direction; on a GPU vLLM's own, on a stream beside the model's."""
    if not blocks or blocks[0].device.type == "cpu":
        return HostCopies(blocks, pages, layers, blocks_per_chunk, to_pages)
    return SingleDirectionOffloadingHandler(
        blocks,
        pages,
        blocks_per_chunk,
        layers,
        gpu_to_cpu=to_pages,
        # Registered memory would have to stay mapped, and kvleased takes sets back.
        host_memory_is_pinned=False,
    )
