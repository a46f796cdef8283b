"""The connector that vLLM makes twice: in each worker, and beside the scheduler."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorRole,
    SupportsHMA,
)
from vllm.distributed.kv_transfer.kv_connector.v1.multi_connector import MultiConnector
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.v1.core.sched.interface import SchedulerInterface
from vllm.v1.engine.core import EngineCore

from kvlease.vllm import identity
from kvlease.vllm.weights import Watch, find_on_stack, gather, on_stack

_logger = logging.getLogger("kvlease")


class KvleaseConnector(KVConnectorBase_V1, SupportsHMA):
    """Becomes an InPlace or a Copies, both of which do all the work.

    A worker's connector chooses when it is made. The scheduler's becomes the same class when it
    gets the workers' handshake, which is before the first request.
    """

    def __init__(
        self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any = None
    ) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self._options = identity.Options.of(vllm_config)
        identity.refuse(vllm_config, self._options)
        self._parent = find_on_stack(MultiConnector)
        transfer = vllm_config.kv_transfer_config
        if self._parent is not None:
            transfer = self._parent._vllm_config.kv_transfer_config
            _join(self._parent, transfer, self._options)
        # vLLM computes a request whose pages can't be loaded. Its scheduler reads this setting
        # right after it has made the connector.
        transfer.kv_load_failure_policy = "recompute"
        if role == KVConnectorRole.WORKER:
            watch = Watch(self._options.weights)
            try:
                self._become_worker(watch)
            except BaseException:
                watch.close()
                raise

    def _become_worker(self, watch: Watch) -> None:
        from kvlease.vllm.copies import Copies  # noqa: PLC0415
        from kvlease.vllm.in_place import InPlace  # noqa: PLC0415

        config = self._vllm_config
        why: str | None = None
        if self._options.mode != "copy":
            own = identity.unsupported_in_place(config, self._kv_cache_config, self._options)
            if self._parent is not None:
                own = "a MultiConnector, whose other connectors fill and keep vLLM's own blocks"
            why = next((each for each in gather(own) if each), None)
            if why is None:
                try:
                    InPlace.become_worker(self, watch)
                    return
                except identity.NotInPlaceError as error:
                    why = str(error)
            if self._options.mode == "in_place":
                raise ValueError(f"the KvleaseConnector can't share in place: {why}")
            if watch.rank == 0:
                _logger.warning("blocks are copied, as they can't be shared in place: %s", why)
        Copies.become_worker(self, watch)

    @classmethod
    def get_required_kvcache_layout(cls, vllm_config: Any) -> str | None:
        """In place: a block in one piece, where the attention backend can do it; vLLM takes another
        one where it can't. Layers apart on the CPU, whose kernels for MLA can do no other one, and
        don't say so."""
        if identity.Options.of(vllm_config).mode == "copy" or find_on_stack(MultiConnector):
            layout: str | None = OffloadingConnector.get_required_kvcache_layout(vllm_config)
            return layout
        return "LBHNC" if vllm_config.device_config.device_type == "cpu" else "BLHNC"

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> Any:
        """Of copies."""
        return OffloadingConnector.build_kv_connector_stats(data)

    @classmethod
    def build_prom_metrics(cls, vllm_config: VllmConfig, *arguments: Any) -> Any:
        """Of copies."""
        identity.name_spec(vllm_config)
        return OffloadingConnector.build_prom_metrics(vllm_config, *arguments)

    @property
    def requires_kv_delivery(self) -> bool:
        """No: whatever isn't cached is computed."""
        return False

    # The scheduler's, until the handshake.

    def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
        """The scheduler, which isn't told of, has made it, and calls this."""
        super().bind_kv_cache_manager(kv_cache_manager)
        self._scheduler: Any = on_stack(SchedulerInterface)

    def set_xfer_handshake_metadata_pp_aware(
        self, metadata: dict[tuple[int, int], KVConnectorHandshakeMetadata]
    ) -> None:
        """What the workers' connectors have become, by their ranks in the pipeline and in tensor
        parallelism."""
        from kvlease.vllm.copies import Copied, Copies  # noqa: PLC0415
        from kvlease.vllm.in_place import InPlace  # noqa: PLC0415
        from kvlease.vllm.worker import Handshake  # noqa: PLC0415

        said = [metadata[rank] for rank in sorted(metadata)]
        if all(isinstance(each, Handshake) for each in said):
            InPlace.become_scheduler(self, said)
        elif all(isinstance(each, Copied) for each in said):
            Copies.become_scheduler(self, said)
        else:
            kinds = sorted({type(each).__name__ for each in said})
            raise ValueError(f"the engine's ranks share in different ways: {', '.join(kinds)}")

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Nothing."""
        return 0, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Nothing."""

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        """Nothing."""
        return KVConnectorMetadata()

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """As request_finished()."""
        kept: tuple[bool, dict[str, Any] | None] = self.request_finished(request, [])
        return kept

    # A worker's.

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Nothing: pages that were found are where they are."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """Nothing: the kernels have written to the pages."""

    def wait_for_save(self) -> None:
        """Nothing."""


class _Keeps(Protocol):
    keeps_pages: bool
    """While true, a reset of the prefix cache drops no page."""


def keep_over_sleep(cache: _Keeps) -> None:
    """An engine that falls asleep resets its cache, as vLLM's own is gone: pages aren't. Called
    with the engine on the stack.

    An engine with requests falls asleep later, and vLLM gives a Future meanwhile. Its resets for
    sleep are told apart from the user's by the function that they go through.
    """
    core = find_on_stack(EngineCore)
    if core is None:
        return
    # Calls that put the engine to sleep, and aren't over yet.
    sleeps: set[object] = set()

    def hook(name: str, is_deep: Callable[..., bool]) -> None:
        call = getattr(core, name)

        def fall_asleep(*arguments: Any, **keywords: Any) -> Any:
            own, result = object(), None
            if is_deep(*arguments, **keywords):
                sleeps.add(own)
            try:
                result = call(*arguments, **keywords)
            finally:
                if isinstance(result, Future):
                    result.add_done_callback(lambda _: sleeps.discard(own))
                else:
                    sleeps.discard(own)
            return result

        setattr(core, name, fall_asleep)

    # Level 0 only pauses.
    hook("sleep", lambda level=1, *_, **__: level > 0)
    hook("release_kv_cache_memory", lambda: True)
    reset = core._reset_caches

    def reset_caches(*arguments: Any, **keywords: Any) -> None:
        cache.keeps_pages = bool(sleeps)
        try:
            reset(*arguments, **keywords)
        finally:
            cache.keeps_pages = False

    core._reset_caches = reset_caches


@dataclass
class _OfEach(KVConnectorHandshakeMetadata):
    """What a worker's connectors say, in the order of a MultiConnector."""

    said: list[KVConnectorHandshakeMetadata | None]


def _join(parent: Any, transfer: Any, options: identity.Options) -> None:
    """Has a MultiConnector give each of its connectors what the workers' own one has said: vLLM
    gives all of them what the first one says. ValueError where vLLM takes the engine for one that
    loads nothing."""
    if options.loads and transfer.kv_role == "kv_producer":
        raise ValueError(
            "the KvleaseConnector loads pages, and its MultiConnector has the kv_role "
            "'kv_producer', for which vLLM frees blocks too early: give the MultiConnector "
            "'kv_both', or the KvleaseConnector 'kv_producer'"
        )

    def get_handshake_metadata() -> KVConnectorHandshakeMetadata:
        return _OfEach([each.get_handshake_metadata() for each in parent.sub_connectors])

    def set_xfer_handshake_metadata_pp_aware(metadata: dict[tuple[int, int], _OfEach]) -> None:
        for i, each in enumerate(parent.sub_connectors):
            said = {rank: of_rank.said[i] for rank, of_rank in metadata.items()}
            if own := {rank: one for rank, one in said.items() if one is not None}:
                each.set_xfer_handshake_metadata_pp_aware(own)

    parent.get_handshake_metadata = get_handshake_metadata
    parent.set_xfer_handshake_metadata_pp_aware = set_xfer_handshake_metadata_pp_aware
