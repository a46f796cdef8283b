"""The connector where vLLM keeps its own KV cache: blocks are copied to pages and from them.

vLLM's own code for offloading does the scheduling (OffloadingConnector): it asks a manager, beside
the scheduler, which blocks are where, and a worker of each rank to copy. It says of any KV cache
which bytes are a block's, so that all kinds of layers can be copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import torch
from vllm.config import CUDAGraphMode
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorTransferResults,
    KVConnectorWorkerMetadata,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (
    OffloadingConnectorMetadata,
    OffloadingWorkerMetadata,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.config import build_offloading_config
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
    OffloadingConnectorScheduler,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.worker import (
    OffloadingConnectorWorker,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.model_executor.layers.attention.attention import Attention
from vllm.model_executor.layers.attention.chunked_local_attention import ChunkedLocalAttention
from vllm.model_executor.layers.attention.mla_attention import MLAAttention
from vllm.v1.kv_cache_interface import FullAttentionSpec, iter_layer_specs
from vllm.v1.kv_offload.base import (
    CanonicalKVCaches,
    OffloadingManager,
    OffloadingSpec,
    OffloadingWorker,
)

import kvlease
from kvlease import _engine, _verify
from kvlease._codecs import Codecs
from kvlease.vllm import identity, places
from kvlease.vllm.computing import Computing
from kvlease.vllm.connections import connect_scheduler, connect_worker
from kvlease.vllm.connector import keep_over_sleep
from kvlease.vllm.manager import Group, Manager
from kvlease.vllm.transfers import Worker
from kvlease.vllm.weights import Place, Reader, Watch, gather


@dataclass
class Copied(KVConnectorHandshakeMetadata):
    """With what the scheduler opens the namespaces of a worker, as another member of its group."""

    group_token: bytes
    layouts: list[kvlease.Layout]
    """Of the groups of layers, in their order."""
    pieces: list[list[_verify.Piece]]
    """Of the layers of each group in a page, in the planes of all ranks."""
    dtypes: list[torch.dtype]
    identity: bytes
    place: Place
    """Memory in which the rank's State can be read."""


@dataclass
class _Step(OffloadingConnectorMetadata):
    """What the scheduler tells the workers before a step."""

    adapters: list[tuple[int, bytes]] = field(default_factory=list)
    """Ids and digests of those that have computed pages that are being loaded."""


@dataclass
class _Done(OffloadingWorkerMetadata):
    """What a worker tells the scheduler."""

    lost_pages: set[tuple[int, int]] = field(default_factory=set)

    def aggregate(self, other: KVConnectorWorkerMetadata) -> _Done:
        """Of two ranks."""
        assert isinstance(other, _Done)
        both = super().aggregate(other)
        assert isinstance(both, OffloadingWorkerMetadata)
        return _Done(**vars(both) | {"lost_pages": self.lost_pages | other.lost_pages})


class Copies(OffloadingConnector):
    """What vLLM's own connector does, with pages of kvleased as the memory."""

    _options: identity.Options
    _spec: Spec
    _watch: Watch | None
    _manager: Manager | None
    _own: kvlease.Connection | None

    @classmethod
    def become_worker(cls, connector: KVConnectorBase_V1, watch: Watch) -> None:
        """Connects to kvleased once vLLM has its KV cache."""
        copies = cls._become(connector)
        copies._watch = watch
        copies.connector_worker = OffloadingConnectorWorker(
            copies._spec, copies._vllm_config, copies._kv_cache_config
        )

    @classmethod
    def become_scheduler(cls, connector: KVConnectorBase_V1, said: Iterable[Any]) -> None:
        """said: by the workers, in the order of their ranks."""
        copies = cls._become(connector)
        copies._manager = copies._spec.manager = copies._manage(list(said))
        keep_over_sleep(copies._manager)
        copies.connector_scheduler = OffloadingConnectorScheduler(
            copies._spec, copies._vllm_config, copies._kv_cache_config
        )

    @classmethod
    def _become(cls, connector: Any) -> Copies:
        connector.__class__ = cls
        assert isinstance(connector, Copies)
        identity.name_spec(connector._vllm_config)
        config = build_offloading_config(connector._vllm_config, connector._kv_cache_config)
        connector._canonical_layout = config.canonical_layout
        connector._spec = Spec(config)
        connector._spec.connector = connector
        connector.connector_scheduler = connector.connector_worker = None
        connector._watch = connector._manager = connector._own = None
        return connector

    def set_xfer_handshake_metadata_pp_aware(self, metadata: Any) -> None:
        """After sleep the workers say the same again."""

    # The worker's.

    def get_handshake_metadata(self) -> KVConnectorHandshakeMetadata | None:
        """For the scheduler's connection."""
        return self._spec.said

    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        """Before each step."""
        super().bind_connector_metadata(connector_metadata)
        if self._watch and isinstance(connector_metadata, _Step):
            self._watch.begin_step(connector_metadata.adapters)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """vLLM calls this before a step computes, if the step reads its own loads. A whole CUDA
        graph, or a step without metadata, waits for no single layer: then this waits for all."""
        super().start_load_kv(forward_context, **kwargs)
        is_graph = forward_context.cudagraph_runtime_mode == CUDAGraphMode.FULL
        if self._spec.worker and (is_graph or forward_context.attn_metadata is None):
            self._spec.worker.wait_for_layer()

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Before a layer's attention."""
        if self._spec.worker:
            self._spec.worker.wait_for_layer(layer_name)

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        """Requests of which something couldn't be loaded are computed instead."""
        worker, copying = self._spec.worker, self.connector_worker
        assert worker is not None and copying is not None
        failed = {copying._load_jobs.get(job) for job in worker.lost_loads}
        results = super().get_transfer_results(finished_req_ids)
        results.failed_recving = results.finished_recving & failed
        worker.lost_loads &= set(copying._load_jobs)
        return results

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Blocks that the step had no numbers for. vLLM fails the requests that have them, or
        computes them again (kv_load_failure_policy)."""
        worker = self._spec.worker
        if worker is None:
            return set()
        lost, worker.lost_blocks = worker.lost_blocks, set()
        return lost

    def build_connector_worker_meta(self) -> OffloadingWorkerMetadata | None:
        """After each step."""
        done = super().build_connector_worker_meta()
        worker = self._spec.worker
        if done is None or worker is None:
            return done
        lost, worker.lost_pages = worker.lost_pages, set()
        return _Done(**vars(done), lost_pages=lost)

    def _connect(self, kv_caches: CanonicalKVCaches) -> Worker:
        """Once vLLM has its KV cache."""
        assert self._watch is not None
        watch, config, options = self._watch, self._spec.config, self._options
        described = describe(self._vllm_config, self._kv_cache_config, config, kv_caches)
        for each in described:
            _verify.check_dtype(options.verify, each.dtype)
        ranks, codecs = gather(described), self._codecs()
        layouts = layouts_of(self._vllm_config, config, ranks, options, codecs, watch.identity)
        connection = connect_worker(options, watch, layouts[0].model)
        try:
            namespaces = [codecs.open(connection, layout, "host") for layout in layouts]
            for namespace in namespaces:
                namespace.check_room(1)
            worker = Worker(
                namespaces,
                0 if config.replicated_layout else watch.rank,
                kv_caches,
                config.cache.blocks_per_chunk,
                self._layers_in_turn(kv_caches),
            )
        except BaseException:
            connection.close()
            raise
        worker.has_blocks = lambda: "kv_cache" not in watch.asleep
        self._own, self._events = connection, _engine.Events(connection)
        self._spec.said = Copied(
            group_token=connection.group_token,
            layouts=layouts,
            pieces=[
                pieces
                for parts in zip(*ranks[: layouts[0].n_planes], strict=True)
                for pieces in places.pieces_of_all(parts)
            ],
            dtypes=[each.dtype for each in described],
            identity=watch.identity,
            place=watch.place,
        )
        return worker

    def _layers_in_turn(self, kv_caches: CanonicalKVCaches) -> dict[str, int]:
        """Layers as layers_in_turn() returns them; none without sync_load_budget_bytes."""
        settings = self._vllm_config.kv_transfer_config.kv_connector_extra_config
        if not settings.get("sync_load_budget_bytes"):
            return {}
        return layers_in_turn(
            self._vllm_config.compilation_config.static_forward_context,
            [group.layer_names for group in self._spec.config.groups],
            kv_caches,
        )

    def _codecs(self) -> Codecs:
        return Codecs.read(self._vllm_config.kv_transfer_config.kv_connector_extra_config)

    # The scheduler's.

    def _manage(self, ranks: list[Copied]) -> Manager:
        """The workers have their namespaces."""
        (first, *others), options, config = ranks, self._options, self._spec.config
        if any(each.layouts != first.layouts for each in others):
            raise ValueError(f"the engine's ranks aren't on the same pages: {ranks}")
        model, caches = Reader(rank.place for rank in ranks), self._kv_cache_config.kv_cache_groups
        connection = self._own = connect_scheduler(
            options, first.group_token, first.layouts[0].model
        )
        self._events = _engine.Events(connection)
        codecs = self._codecs()
        namespaces = [codecs.open(connection, layout, "host") for layout in first.layouts]
        groups = [
            Group(
                id=group.group_id,
                namespace=namespaces[i],
                chunk_tokens=group.tokens_per_block * config.cache.blocks_per_chunk,
                verifier=_verify.Verifier(
                    options.verify,
                    namespaces[i],
                    first.dtypes[i],
                    first.identity,
                    lambda: model.compare().identity(first.identity),
                ),
                is_chained=all(
                    isinstance(each, FullAttentionSpec)
                    for each in iter_layer_specs(caches[group.group_id].kv_cache_spec)
                ),
                pieces=first.pieces[i],
            )
            for i, group in enumerate(config.groups)
        ]
        computing = Computing(model, self._scheduler)
        are_chains = all(group.is_chained for group in groups)
        return Manager(
            connection,
            groups,
            _engine.seconds_for_hosts(namespaces[0], options.remote_timeout, are_chains),
            computing,
            loads=options.loads,
            publishes=options.publishes,
        )

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        """Once a step."""
        step = super().build_connector_meta(scheduler_output)
        assert self._manager is not None
        if scheduler_output.total_num_scheduled_tokens:
            self._manager.computing.is_empty = False
        return _Step(**vars(step), adapters=self._manager.take_adapters())

    def update_connector_output(self, connector_output: Any) -> None:
        """After each step."""
        done = connector_output.kv_connector_worker_meta
        if self._manager is not None:
            self._manager.lose(done.lost_pages if isinstance(done, _Done) else ())
            self._manager.give_up(connector_output.failed_recving or ())
        super().update_connector_output(connector_output)

    def shutdown(self) -> None:
        """The engine ends. vLLM's own part may be told so more than once."""
        super().shutdown()
        if self._watch is not None:
            self._watch.close()
        if self._own is not None:
            self._events.stop()
            self._own.close()
            self._own = None


# A MultiConnector tells metrics of its connectors apart by the names of their classes.
Copies.__name__ = "KvleaseConnector"


def describe(
    vllm_config: Any, kv_cache_config: Any, config: Any, kv_caches: CanonicalKVCaches
) -> list[places.Part]:
    """A rank's part of the pages of each group that is copied: its layers' one after the other.

    config: vLLM's OffloadingConfig.
    """
    layers = vllm_config.compilation_config.static_forward_context
    described = []
    for group, refs in zip(config.groups, kv_caches.group_data_refs, strict=True):
        of_group = kv_cache_config.kv_cache_groups[group.group_id]
        specs = list(iter_layer_specs(of_group.kv_cache_spec))
        backends = [layers[name].get_attn_backend().get_name() for name in group.layer_names]
        sizes = [ref.page_size_bytes * config.cache.blocks_per_chunk for ref in refs]
        # vLLM may keep a block of several groups in one piece: parts of it are another group's.
        is_packed = len(config.groups) > 1 and len(refs) == 1 < len(group.layer_names)
        starts = [0, *accumulate(sizes)]
        described.append(
            places.Part(
                n_planes=1,
                plane_bytes=_engine.padded(starts[-1]),
                n_layers=len(group.layer_names),
                words=f"{backends} {specs} {sizes} {config.cache.blocks_per_chunk}",
                dtype=torch.uint8 if is_packed else places.dtype_of(specs),
                n_kv_heads=getattr(specs[0], "num_kv_heads", 1) if specs else 1,
                head_size=getattr(specs[0], "head_size", 1) if specs else 1,
                backend=backends[0] if backends else "",
                pieces=[[(0, *piece) for piece in zip(starts, sizes, strict=False)]],
            )
        )
    return described


def layouts_of(
    vllm_config: Any,
    config: Any,
    ranks: Sequence[Sequence[places.Part]],
    options: identity.Options,
    codecs: Codecs,
    model: bytes,
) -> list[kvlease.Layout]:
    """Of the pages of each group: the ranks' parts are planes, but where all have the same.

    model: identity of the model in memory. ValueError for codecs by layer where pages aren't those
    of one layer after the other.
    """
    layouts = []
    for group, parts in zip(config.groups, zip(*ranks, strict=True), strict=True):
        layout = identity.layout(
            *(vllm_config, options, model, parts, config.kv_cache_layout),
            group.tokens_per_block * config.cache.blocks_per_chunk,
            copies_group=group.group_id,
            is_replicated=config.replicated_layout,
        )
        sizes = [n_bytes for _, _, n_bytes in parts[0].pieces[0]]
        are_layers = len(parts) == 1 and len(sizes) == parts[0].n_layers
        codecs.refuse(len(config.groups), sizes if are_layers else [], layout.plane_page_bytes)
        layouts.append(layout)
    return layouts


def layers_in_turn(
    layers: Mapping[str, Any], groups: Sequence[Sequence[str]], kv_caches: CanonicalKVCaches
) -> dict[str, int]:
    """Layers in the order in which the model has them, and their places among the layers of all
    groups. None of them where some layers' blocks are in one piece, or where a layer reads its
    blocks without vLLM's wait_for_layer_load(): recurrent states, indexers, classes of models.

    layers: of the model, by their names. groups: names of the layers of each group.
    """
    names = [name for group in groups for name in group]
    counts = zip(groups, kv_caches.group_data_refs, strict=True)
    if any(len(own) != len(refs) for own, refs in counts):
        return {}
    if not all(_waits(layers.get(name)) for name in names):
        return {}
    at = {name: i for i, name in enumerate(names)}
    return {name: at[name] for name in layers if name in at}


def _waits(layer: Any) -> bool:
    if type(layer) is MLAAttention:
        return not layer.use_direct_call
    return type(layer) in (Attention, ChunkedLocalAttention)


class Spec(OffloadingSpec):
    """From which vLLM's own code has its manager and its worker."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.replicated_layout = config.replicated_layout
        self.connector: Copies
        self.manager: Manager | None = None
        self.worker: Worker | None = None
        self.said: Copied | None = None

    def get_worker(self, kv_caches: CanonicalKVCaches) -> OffloadingWorker:
        """Connects to kvleased."""
        self.worker = self.connector._connect(kv_caches)
        return self.worker

    def get_manager(self) -> OffloadingManager:
        """The workers' handshake has been made before."""
        assert self.manager is not None
        return self.manager
