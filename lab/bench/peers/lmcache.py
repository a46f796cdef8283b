"""LMCache's engine with its backend in memory of the process: chunks of a page, found and pinned as
it does for vLLM. Chunks have a few bytes, which nobody reads."""

from __future__ import annotations

import os
from typing import Any

os.environ["LMCACHE_TRACK_USAGE"] = "false"  # it would send statistics to its makers

import torch
from lmcache.v1.cache_engine import LMCacheEngineBuilder
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.metadata import LMCacheMetadata

from peers.peer import PAGE_TOKENS, TEXT_PAGES, Way, text

_NAME = "kvlease-bench"
_SHAPE = (1, 2, PAGE_TOKENS, 1, 1)  # layers, K and V, tokens, heads, size
_GIB = 2.0  # more than 102,400 chunks of 4 KiB, the least that it allocates


class Peer:
    """An engine without a GPU, with the defaults but for sizes."""

    def __init__(self, server_core: int) -> None:
        config = LMCacheEngineConfig.from_defaults(
            chunk_size=PAGE_TOKENS, local_cpu=True, max_local_cpu_size=_GIB
        )
        metadata = LMCacheMetadata(
            model_name=_NAME,
            world_size=1,
            local_world_size=1,
            worker_id=0,
            local_worker_id=0,
            kv_dtype=torch.uint8,
            kv_shape=_SHAPE,
            chunk_size=PAGE_TOKENS,
        )
        self._engine = LMCacheEngineBuilder.get_or_create(
            _NAME, config, metadata, None, lambda tensor, source: None, lambda each, source: each
        )
        self._engine.post_init()
        self._keys: list[list[Any]] = []

    def fill(self, n_texts: int) -> None:
        """Puts chunks of all texts."""
        storage = self._engine.storage_manager
        shape = torch.Size((2, 1, PAGE_TOKENS, 1))
        for number in range(n_texts):
            keys = self._make_keys(text(number).tolist())
            chunks = storage.batched_allocate(shape, torch.uint8, TEXT_PAGES)
            storage.batched_put(keys, chunks)
            self._keys.append(keys)

    def _make_keys(self, tokens: list[int]) -> list[Any]:
        return [key for _, _, key in self._engine.token_database.process_tokens(tokens=tokens)]

    def _hit(self, keys: list[Any]) -> int:
        storage = self._engine.storage_manager
        n_chunks, places = storage.batched_contains(keys, None, True)
        storage.touch_cache()
        for place, pinned in places.items():
            storage.batched_unpin(pinned, [place])
        return int(n_chunks)

    def _hit_tokens(self, tokens: list[int]) -> int:
        n_tokens = self._engine.lookup(tokens=tokens, lookup_id="hit", pin=True)
        self._engine.lookup_unpin("hit")
        return int(n_tokens) // PAGE_TOKENS

    def ways(self) -> dict[str, Way]:
        """By keys that are known, and by tokens."""
        return {
            "lmcache": Way(lambda number: list(self._keys[number]), self._hit),
            "lmcache-tokens": Way(lambda number: text(number).tolist(), self._hit_tokens),
        }

    def close(self) -> None:
        """The engine, with its threads."""
        LMCacheEngineBuilder.destroy(_NAME)
