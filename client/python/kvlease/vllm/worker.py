"""The worker's side: vLLM's tensor of KV blocks is the arena of a namespace."""

from __future__ import annotations

import contextlib
import ctypes
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorHandshakeMetadata
from vllm.v1.worker.worker_base import WorkerBase

import kvlease
from kvlease import _engine, _verify
from kvlease.vllm import identity, places
from kvlease.vllm.connections import connect_worker
from kvlease.vllm.weights import Place, Watch, gather, on_stack

_logger = logging.getLogger("kvlease")


@dataclass
class Handshake(KVConnectorHandshakeMetadata):
    """What the scheduler opens the same namespace with, as another member of the worker's group."""

    group_token: bytes
    layout: kvlease.Layout
    name: str
    stride_bytes: int
    device: str
    n_blocks: int
    """The engine's own number of blocks: it holds no more pages than that at a time."""
    dtype: torch.dtype
    """Of the numbers of all ranks; uint8 where they have several."""
    pieces: list[list[_verify.Piece]]
    """Of the layers of each group in a page, on all ranks."""
    place: Place | None
    """Where it says what the rank computes with."""

    @classmethod
    def of_all(cls, ranks: Iterable[Handshake]) -> Handshake:
        """What all ranks say; ValueError where they don't agree."""
        said = list(ranks)
        n_blocks = min(each.n_blocks for each in said)
        first, *others = (replace(each, n_blocks=n_blocks, place=None) for each in said)
        if any(other != first for other in others):
            raise ValueError(f"the engine's ranks aren't on the same pages: {[first, *others]}")
        return first


class Worker:
    """A connection and a namespace, all of whose pages are in one tensor: of one of several ranks
    the part that it computes.

    kv_cache_config is changed: its tensors get the arena's size and strides, and as many blocks as
    the namespace has pages. Page 0, which keep_page_zero takes out, is vLLM's null block.
    """

    def __init__(
        self, vllm_config: Any, kv_cache_config: Any, options: identity.Options, watch: Watch
    ) -> None:
        """identity.NotInPlaceError, of all ranks at once, where the device's pages can't be vLLM's
        blocks. watch: knows the model; closed with this."""
        self.watch = watch
        layers = vllm_config.compilation_config.static_forward_context
        own = places.part_of(kv_cache_config, layers)
        parts = gather(own)
        layout = identity.layout(
            *(vllm_config, options, watch.identity, parts, kv_cache_config.kv_cache_layout),
            places.specs(kv_cache_config)[0].block_size,
        )
        self._on_loss = options.on_loss
        self._config, dtype = kv_cache_config, places.dtype_of_all(parts)
        _verify.check_dtype(options.verify, dtype)
        self._device = vllm_config.device_config.device
        on_host = torch.device(self._device).type == "cpu"
        self._connection = connect_worker(options, watch, layout.model)
        try:
            longest = sum(
                -(-spec.max_memory_usage_bytes(vllm_config) // spec.page_size_bytes)
                for spec in places.specs(kv_cache_config)
            )
            why = self._open(options, layout, watch.rank, watch.n_ranks) or (
                self._unfit(on_host, kv_cache_config.num_blocks, longest)
                or self._misplaced(watch.n_ranks)
            )
            for each in gather(why):
                if each is not None:
                    raise identity.NotInPlaceError(each)
            info = self._namespace.info
            n_blocks = min(kv_cache_config.num_blocks, info.tiers[0].n_pages)
            self._check_limit(vllm_config.model_config.max_model_len, longest)
            self._place(own.n_planes, watch.rank, watch.n_ranks)
        except BaseException:
            with contextlib.suppress(BufferError):
                self._connection.close()
            raise
        self.handshake = Handshake(
            group_token=self._connection.group_token,
            layout=layout,
            name=self._namespace.name,
            stride_bytes=info.stride_bytes,
            device=info.device,
            n_blocks=n_blocks,
            dtype=dtype,
            pieces=places.pieces_of_all(parts),
            place=self.watch.place,
        )
        self._events = _engine.Events(self._connection)
        if kv_cache_config.needs_kv_cache_zeroing:
            self._map_early(on_stack(WorkerBase).model_runner)

    def _map_early(self, runner: Any) -> None:
        """vLLM zeroes new blocks of a step before it tells the connector of the step."""
        execute_model = runner.execute_model

        def execute(scheduler_output: Any, *arguments: Any, **keywords: Any) -> Any:
            self.map(getattr(scheduler_output.kv_connector_metadata, "pages", []))
            return execute_model(scheduler_output, *arguments, **keywords)

        runner.execute_model = execute

    def _open(
        self, options: identity.Options, layout: kvlease.Layout, rank: int, n_ranks: int
    ) -> str | None:
        """With the rank's planes alone. Why there is no namespace: a rank that can't have its
        planes says so to the others. A single rank raises what isn't about planes."""
        n_planes = layout.n_planes // n_ranks
        try:
            self._namespace = self._connection.namespace(
                layout=layout,
                device=options.device or self._own_device(options, n_ranks),
                keep_page_zero=True,
                stride_bytes=layout.plane_page_bytes,
                first_plane=rank * n_planes,
                n_planes=n_planes,
            )
        except kvlease.Error as error:
            if n_ranks == 1 and not isinstance(error, kvlease.Invalid):
                raise
            return str(error)
        return None

    def _own_device(self, options: identity.Options, n_ranks: int) -> str | None:
        """The device that is meant where the user names none; None: the daemon's default. Engines
        of vLLM's data parallelism have a GPU each, and one configuration."""
        device = torch.device(self._device)
        if device.type == "cpu":
            return "host"
        if not options.dp_rank or n_ranks > 1:
            return None
        return f"GPU-{torch.cuda.get_device_properties(device).uuid}"

    def _unfit(self, on_host: bool, n_blocks: int, n_longest: int) -> str | None:
        """Why the device's pages can't be vLLM's blocks. n_longest: of the longest text."""
        info = self._namespace.info
        n_blocks = min(n_blocks, info.tiers[0].n_pages)
        if not info.is_contiguous:
            return f"pages aren't contiguous on {info.device}: kvleased hands them over so"
        if info.is_cpu_memory != on_host:
            return f"vLLM runs on {self._device}, the pages are on {info.device}"
        if n_blocks - 1 < n_longest:
            return (
                f"a text of --max-model-len takes {n_longest} pages, and {info.device} has "
                f"{n_blocks - 1}"
            )
        return None

    def _misplaced(self, n_ranks: int) -> str | None:
        """Why the rank's planes don't lie on the GPU that it computes on."""
        info = self._namespace.info
        if info.is_cpu_memory:
            return None
        if n_ranks > 1 and info.member in ("", info.device):
            return (
                f"{n_ranks} ranks on GPUs: the device {info.device} doesn't span them; name one "
                "that does by the setting `device` (kvleased.conf: a section [device NAME] with "
                "members)"
            )
        uuid = f"GPU-{torch.cuda.get_device_properties(torch.device(self._device)).uuid}"
        # A MIG instance has a name of its own, which torch doesn't know.
        if info.member.startswith("GPU-") and info.member.lower() != uuid.lower():
            return f"the rank computes on {uuid}, and its part of the pages lies on {info.member}"
        return None

    def _check_limit(self, longest: int, n_pages: int) -> None:
        """kvlease.Quota or Full where the tenant can't have a single page; a limit that is too low
        for the longest text may be raised while the engine runs."""
        self._namespace.check_room(1)
        try:
            self._namespace.check_room(n_pages)
        except (kvlease.Quota, kvlease.Full) as error:
            _logger.warning(
                "texts of max_model_len = %d tokens can't be held, and will be refused: %s; or "
                "lower --max-model-len",
                longest,
                error,
            )

    def _place(self, n_own: int, rank: int, n_ranks: int) -> None:
        """Says to vLLM where the layers' parts of a block lie in the rank's part of the arena."""
        info = self._namespace.info
        first_plane = rank * (info.n_planes // n_ranks)
        planes = range(first_plane, first_plane + n_own)
        self._arenas = [self._namespace.arena(plane, writable=True) for plane in planes]
        first = self._arenas[0].address
        step = self._arenas[1].address - first if n_own > 1 else 0
        if any(arena.address != first + i * step for i, arena in enumerate(self._arenas)):
            raise ValueError("planes don't lie at equal distances")
        n_bytes = self._arenas[-1].address + self._arenas[-1].n_bytes - first
        self._config.num_blocks = info.tiers[0].n_pages
        places.place(self._config, n_bytes, info.stride_bytes, step)
        self._extent = first, n_bytes

    def allocation(self) -> TorchFunctionMode:
        """Context in which vLLM's allocation of its tensor yields the arena instead."""
        return _Arena(*self._extent, torch.device(self._device))

    def map(self, pages: list[int]) -> None:
        """Maps pages that the scheduler holds for the next step. If kvleased is gone, those that
        weren't mapped before still aren't."""
        try:
            if pages:
                self._namespace.adopt(pages, "mapped").detach()
        except kvlease.Disconnected as error:
            # What the scheduler gets from no kvleased any more was mapped while there was one.
            if self._on_loss != "continue":
                raise RuntimeError(f"kvleased is gone: {error}") from error
            _logger.debug("mapped nothing: %s", error)

    def close(self) -> None:
        """Ends the connection. vLLM's tensor must not be used any more."""
        self.watch.close()
        self._events.stop()
        for arena in self._arenas:
            arena.release()
        self._connection.close()


class _Arena(TorchFunctionMode):
    """Answers the one torch.zeros() of the KV cache's size with the arena."""

    def __init__(self, address: int, n_bytes: int, device: torch.device) -> None:
        super().__init__()
        self._address, self._n_bytes, self._device = address, n_bytes, device
        self._is_taken = False

    def __torch_function__(
        self, function: Any, kinds: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        keywords = keywords or {}
        if function is torch.zeros and arguments[:1] == (self._n_bytes,):
            if self._is_taken or keywords.get("dtype") is not torch.int8:
                raise RuntimeError("vLLM allocates its KV cache otherwise than was expected")
            self._is_taken = True
            return _tensor(self._address, self._n_bytes, self._device)
        return function(*arguments, **keywords)

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        super().__exit__(kind, value, traceback)
        if kind is None and not self._is_taken:
            raise RuntimeError("vLLM hasn't allocated its KV cache where it was expected")


def _tensor(address: int, n_bytes: int, device: torch.device) -> torch.Tensor:
    """An arena, byte by byte."""
    if device.type == "cpu":
        memory = (ctypes.c_int8 * n_bytes).from_address(address)
        return torch.frombuffer(memory, dtype=torch.int8)
    return torch.as_tensor(_CudaArray(address, n_bytes), device=device)


class _CudaArray:
    """Memory of a GPU as torch takes it; whoever makes it keeps the memory."""

    def __init__(self, address: int, n_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (n_bytes,),
            "typestr": "|i1",
            "data": (address, False),
            "version": 3,
        }
