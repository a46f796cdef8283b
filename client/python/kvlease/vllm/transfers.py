"""A worker's side of copies: between vLLM's blocks and pages of kvleased's host memory."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from vllm.v1.kv_offload.base import (
    BlockIDsLoadStoreSpec,
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
    """Transfers of one group in one direction, as vLLM's SingleDirectionOffloadingHandler has them,
    where vLLM computes on the CPU: each is over when it is begun."""

    def __init__(
        self,
        blocks: list[torch.Tensor],
        pages: list[torch.Tensor],
        blocks_per_chunk: int,
        to_pages: bool,
    ) -> None:
        """Of each layer, or more of them: bytes of its blocks, and where they lie in pages."""
        self._blocks, self._pages = blocks, pages
        self._blocks_per_chunk = blocks_per_chunk
        self._to_pages = to_pages
        self._finished: list[TransferResult] = []

    def transfer_async(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        """From and to blocks and pages; of the first page the first blocks may be left out."""
        started = time.monotonic()
        blocks, pages = (src_spec, dst_spec) if self._to_pages else (dst_spec, src_spec)
        own = torch.from_numpy(blocks.block_ids)
        at = blocks.block_indices[0] % self._blocks_per_chunk + torch.arange(len(own))
        page = torch.from_numpy(pages.block_ids)[at // self._blocks_per_chunk]
        part, n_copied = at % self._blocks_per_chunk, 0
        for engines, ours in zip(self._blocks, self._pages, strict=True):
            parts = ours.unflatten(1, (self._blocks_per_chunk, -1))
            if self._to_pages:
                parts[page, part] = engines[own]
            else:
                engines[own] = parts[page, part]
            n_copied += len(own) * engines.shape[1]
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


class Worker(OffloadingWorker):
    """Copies between vLLM's blocks and pages that the manager has pinned or leased."""

    def __init__(
        self,
        namespaces: Sequence[kvlease.Namespace],
        plane: int,
        kv_caches: CanonicalKVCaches,
        blocks_per_chunk: int,
    ) -> None:
        """namespaces: of the groups of layers, in their order; they stay the caller's. plane: this
        rank's part of a page."""
        self._namespaces = namespaces
        self.has_blocks: Callable[[], bool] = lambda: True
        """Whether vLLM's cache has memory now."""
        self.lost_pages: set[tuple[int, int]] = set()
        """By the positions of their groups: those that couldn't be copied to."""
        self.lost_loads: set[int] = set()
        """Loads of which something couldn't be copied."""
        self._arenas: list[kvlease.View] = []
        self._stores: list[Any] = []
        self._loads: list[Any] = []
        # Transfers under way: how many groups' aren't over, and of the others bytes and seconds.
        self._jobs: dict[int, tuple[int, int, float]] = {}
        # Those that nothing is done for.
        self._skipped: list[int] = []
        for namespace, refs in zip(namespaces, kv_caches.group_data_refs, strict=True):
            arena = namespace.arena(plane, writable=True, dtype="i8")
            self._arenas.append(arena)
            pages, blocks = torch.from_dlpack(arena), []
            parts, at = [], 0
            for ref in refs:
                blocks.append(kv_caches.tensors[ref.tensor_idx].tensor[:, : ref.page_size_bytes])
                n_bytes = ref.page_size_bytes * blocks_per_chunk
                parts.append(pages[:, at : at + n_bytes])
                at += n_bytes
            self._stores.append(_copies(blocks, parts, blocks_per_chunk, True))
            self._loads.append(_copies(blocks, parts, blocks_per_chunk, False))

    def submit_store(
        self, job_id: int, src_spec: GPULoadStoreSpec, dst_spec: LoadStoreSpec
    ) -> bool:
        """From blocks to pages."""
        if not self._map(dst_spec):
            self.lost_pages |= {(i, page) for i, each in enumerate(dst_spec.pages) for page in each}
            self._skipped.append(job_id)
            return True
        for copies, blocks, pages in self._by_group(job_id, self._stores, src_spec, dst_spec):
            copies.transfer_async(job_id, blocks, pages)
        return True

    def submit_load(
        self,
        job_id: int,
        src_spec: LoadStoreSpec,
        dst_spec: GPULoadStoreSpec,
        expedited: bool = False,
    ) -> bool:
        """From pages to blocks."""
        if not self._map(src_spec):
            if expedited:
                raise RuntimeError("kvleased is gone, and with it pages that a step needs")
            self.lost_loads.add(job_id)
            self._skipped.append(job_id)
            return True
        for copies, blocks, pages in self._by_group(job_id, self._loads, dst_spec, src_spec):
            copies.transfer_async(job_id, pages, blocks)
        return True

    def get_finished(self) -> list[TransferResult]:
        """Those of which all groups' are over."""
        finished = [TransferResult(job_id, True) for job_id in self._skipped]
        self._skipped = []
        for copies in self._stores + self._loads:
            for result in copies.get_finished():
                n_left, n_bytes, seconds = self._jobs.pop(result.job_id)
                n_bytes += result.transfer_size
                seconds += result.transfer_time
                if n_left > 1:
                    self._jobs[result.job_id] = n_left - 1, n_bytes, seconds
                else:
                    finished.append(TransferResult(result.job_id, True, n_bytes, seconds))
        return finished

    def wait(self, job_ids: set[int]) -> None:
        """Until the engine's blocks may be read, or written."""
        for copies in self._stores + self._loads:
            copies.wait(job_ids)

    def shutdown(self) -> None:
        """Lets go of the memory."""
        for copies in self._stores + self._loads:
            copies.shutdown()
        for arena in self._arenas:
            arena.release()

    def _map(self, pages: LoadStoreSpec) -> bool:
        """Maps pages that the scheduler holds. False: kvleased is gone, or has lost them, or the
        engine sleeps."""
        assert isinstance(pages, PageSpec)
        if not self.has_blocks():
            return False
        try:
            for namespace, own in zip(self._namespaces, pages.pages, strict=True):
                if own:
                    namespace.adopt(own, "mapped").detach()
        except kvlease.Error as error:
            _logger.error("copies nothing of %d pages: %s", sum(map(len, pages.pages)), error)
            return False
        return True

    def _by_group(
        self, job_id: int, copies: list[Any], blocks: GPULoadStoreSpec, pages: LoadStoreSpec
    ) -> list[tuple[Any, GPULoadStoreSpec, BlockIDsLoadStoreSpec]]:
        """Parts of a transfer, which counts as begun."""
        assert isinstance(pages, PageSpec)
        parts, first = [], 0
        for i, (size, index) in enumerate(
            zip(blocks.group_sizes, blocks.block_indices, strict=True)
        ):
            if size:
                own = blocks.block_ids[first : first + size].tolist()
                part = GPULoadStoreSpec(own, [size], [index])
                parts.append((copies[i], part, CPULoadStoreSpec(pages.pages[i])))
            first += size
        self._jobs[job_id] = len(parts), 0, 0.0
        return parts


def _copies(
    blocks: list[torch.Tensor], pages: list[torch.Tensor], blocks_per_chunk: int, to_pages: bool
) -> Any:
    """Of one group in one direction; on a GPU vLLM's own, on a stream beside the model's."""
    if not blocks or blocks[0].device.type == "cpu":
        return HostCopies(blocks, pages, blocks_per_chunk, to_pages)
    return SingleDirectionOffloadingHandler(
        list(blocks),
        list(pages),
        blocks_per_chunk,
        [[CanonicalKVCacheRef(i, each.shape[1]) for i, each in enumerate(blocks)]],
        gpu_to_cpu=to_pages,
        # Registered memory would have to stay mapped, and kvleased takes sets back.
        host_memory_is_pinned=False,
    )
