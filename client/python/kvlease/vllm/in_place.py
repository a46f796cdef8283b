"""The connector whose pages are vLLM's blocks: engines share blocks without copying them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
)

from kvlease import _engine
from kvlease._verify import Verifier
from kvlease.vllm.connections import connect_scheduler
from kvlease.vllm.connector import KvleaseConnector, keep_over_sleep
from kvlease.vllm.pool import Pool
from kvlease.vllm.weights import Reader, Watch
from kvlease.vllm.worker import Handshake, Worker

_logger = logging.getLogger("kvlease")


@dataclass
class _Step(KVConnectorMetadata):
    """What the scheduler tells the worker before a step."""

    pages: list[int] = field(default_factory=list)
    """To be mapped."""
    adapters: list[tuple[int, bytes]] = field(default_factory=list)
    """Ids and digests of those that have computed pages that were found."""


class InPlace(KvleaseConnector):
    """Nothing is transferred: vLLM's own tensor is the arena, and its own pool leases the pages."""

    _worker: Worker | None
    _pool: Pool | None

    @classmethod
    def become_worker(cls, connector: KvleaseConnector, watch: Watch) -> None:
        """identity.NotInPlaceError where that can't be: nothing has changed then."""
        config, caches = connector._vllm_config, connector._kv_cache_config
        cls._become(connector, Worker(config, caches, connector._options, watch))

    @classmethod
    def become_scheduler(cls, connector: KvleaseConnector, said: Iterable[Any]) -> None:
        """said: by the workers, in the order of their ranks."""
        cls._become(connector, None)._start(list(said))

    @classmethod
    def _become(cls, connector: Any, worker: Worker | None) -> InPlace:
        connector.__class__ = cls
        assert isinstance(connector, InPlace)
        connector._worker, connector._pool = worker, None
        return connector

    # The worker's.

    def get_mem_pool_context(self) -> AbstractContextManager[Any] | None:
        """In which vLLM allocates its KV cache."""
        return self._worker.allocation() if self._worker else None

    def get_handshake_metadata(self) -> KVConnectorHandshakeMetadata | None:
        """For the scheduler's connection."""
        return self._worker.handshake if self._worker else None

    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        """Before each step."""
        super().bind_connector_metadata(connector_metadata)
        if self._worker and isinstance(connector_metadata, _Step):
            self._worker.watch.begin_step(connector_metadata.adapters)
            self._worker.map(connector_metadata.pages)

    # The scheduler's.

    def _refuse(self, request: Any, why: str) -> None:
        """Ends a request with an error, at the end of the step: as one that can't be compiled."""
        _logger.error("request %s ends with an error: %s", request.request_id, why)
        refused = self._scheduler.grammar_compile_error_reqs
        if isinstance(refused, set):
            # Before 0.33 the answer has no words.
            refused.add(request.request_id)
            return
        from vllm.outputs import RequestError  # noqa: PLC0415

        has_begun = request.num_output_tokens > 0
        refused[request.request_id] = RequestError(
            code="kvlease_no_room" if has_begun else "validation_error", message=why
        )

    def set_xfer_handshake_metadata_pp_aware(self, metadata: Any) -> None:
        """After sleep the workers say the same again."""

    def _start(self, ranks: list[Handshake]) -> None:
        """The workers have their namespace: the pool of blocks becomes one of pages."""
        handshake = Handshake.of_all(ranks)
        self._model = Reader(rank.place for rank in ranks if rank.place)
        assert self._kv_cache_manager is not None
        self._connection = connect_scheduler(
            self._options, handshake.group_token, handshake.layout.model
        )
        namespace = self._connection.namespace(
            handshake.name,
            handshake.layout,
            device=handshake.device,
            keep_page_zero=True,
            stride_bytes=handshake.stride_bytes,
        )
        pool = self._kv_cache_manager.block_pool
        pool.__class__ = Pool
        assert isinstance(pool, Pool)
        verifier = Verifier(
            self._options.verify,
            namespace,
            handshake.dtype,
            handshake.layout.salt,
            lambda: self._model.compare().identity(handshake.layout.salt),
        )
        pool.start(
            namespace,
            handshake.n_blocks,
            self._kv_cache_manager,
            self._options,
            self._refuse,
            verifier,
            handshake.pieces,
            self._model,
        )
        self._pool = pool
        # A page that is given back may be another engine's at once. For a producer vLLM doesn't
        # wait until the steps are over that still write to a request's blocks.
        self._scheduler.defer_block_free = True
        keep_over_sleep(pool)
        self._events = _engine.Events(self._connection)

    def on_new_request(self, request: Any) -> None:
        """It enters the queue of those that wait."""
        if self._pool is not None:
            self._pool.expect(request)

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Nothing: the pool itself finds what there is. None: ask again, pages are on their way."""
        if self._pool is not None and self._pool.is_awaited(request):
            return None, False
        return 0, False

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        """Once a step, also where nothing is scheduled."""
        if self._pool is None:
            return _Step()
        self._pool.prefill.begin(scheduler_output.num_scheduled_tokens.values())
        self._pool.rest(scheduler_output.total_num_scheduled_tokens > 0)
        return _Step(self._pool.take_fresh(), self._pool.take_adapters())

    def request_finished(
        self, request: Any, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Before its blocks are freed."""
        if self._pool is not None:
            self._pool.end(request)
        return False, None

    def shutdown(self) -> None:
        """The engine ends."""
        if self._pool is not None:
            self._pool.drop_found()
            self._events.stop()
            self._connection.close()
            self._model.close()
            self._pool = None
        if self._worker is not None:
            self._worker.close()
            self._worker = None
