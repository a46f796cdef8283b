"""With what an engine that copies computes now, and what its own cache was computed with."""

from __future__ import annotations

import logging
from typing import Any

from kvlease.vllm.weights import Epoch, Reader, State

_logger = logging.getLogger("kvlease")


class Computing:
    """What an engine computes with, and whether the blocks that it has itself are of that.

    vLLM's own prefix cache keeps blocks over changes of the weights and of adapters, until it is
    reset: these mustn't be stored as if they were of what the engine computes with then.
    """

    def __init__(self, model: Reader | None = None, scheduler: Any = None) -> None:
        """Without a model: of one that doesn't change."""
        self._model = model
        self._scheduler = scheduler
        self._is_hooked = False
        self._at_reset = self._seen = State()
        self._has_said = False
        self.is_empty = True
        """Nothing was computed since vLLM's own cache was reset."""
        self.has_changed = False
        """Since this was set to False."""

    def state(self) -> State:
        """As it is now. Asked before the first request is computed: vLLM's pool of blocks, which is
        made after the manager, is empty."""
        if self._model is None:
            return State()
        if not self._is_hooked:
            self._is_hooked = True
            self._hook(self._model, self._scheduler.kv_cache_manager.block_pool)
        state = self._model.state()
        if self.is_empty:
            self._at_reset = state
        self.has_changed = self.has_changed or not state.has_same(self._seen)
        self._seen = state
        return state

    def _hook(self, model: Reader, pool: Any) -> None:
        reset = pool.reset_prefix_cache

        def reset_prefix_cache() -> bool:
            self.is_empty = bool(reset())
            if self.is_empty:
                self._at_reset, self._has_said = model.compare(), False
            return self.is_empty

        pool.reset_prefix_cache = reset_prefix_cache
        self._at_reset = model.state()

    def request(self, req_id: str) -> Any:
        """vLLM's; None: it is over."""
        return self._scheduler.requests.get(req_id) if self._scheduler else None

    def lora_request(self, req_id: str) -> Any:
        """The adapter that a request asks for."""
        request = self.request(req_id)
        return request.lora_request if request else None

    def is_clean(self, epoch: Epoch) -> bool:
        """Whether no block of the engine is of something that it had before."""
        is_clean = epoch.n_changes == self._at_reset.n_changes and (
            epoch.known is None
            or epoch.known[0] == 1
            or self._at_reset.adapters.get(epoch.adapter or 0) == epoch.known
        )
        if not is_clean and not self._has_said:
            self._has_said = True
            _logger.warning(
                "the model or an adapter has changed, and vLLM's own prefix cache may have blocks "
                "of before: nothing is found or stored until it is reset (reset_prefix_cache())"
            )
        return is_clean

    def close(self) -> None:
        """The engine ends."""
        if self._model:
            self._model.close()
