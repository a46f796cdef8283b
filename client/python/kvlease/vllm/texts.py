"""What a pool knows of a request's text, and of the pages in vLLM's tables."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import KVCacheBlock

import kvlease
from kvlease import _engine
from kvlease._verify import Verifier
from kvlease.vllm.events import Told
from kvlease.vllm.weights import Epoch, State

GROUP = 0
"""The group of layers of a pool that has no others."""


@dataclass(eq=False, kw_only=True)
class Block(KVCacheBlock):
    """A page in vLLM's tables."""

    is_pinned: bool = False
    """Found or published: there is one pin. Otherwise the page is leased."""
    is_duplicate: bool = False
    """Leased, and stays so: somebody else published what is in it."""
    n_found: int = 0
    """Waiting requests that found it."""
    group: int = GROUP
    """Of layers, which have published it."""
    is_compared: bool = False
    """The worker compares it with a page that was found: it is kept until that is over."""


@dataclass
class Text:
    """What is known of a request."""

    request: Any
    handle: kvlease.Request
    """For kvleased's eviction policy."""
    coming: _engine.Coming
    """From other hosts."""
    found: list[Block] = field(default_factory=list)
    """Found, and not yet in the request's table."""
    epoch: Epoch | None = None
    """What it is computed with; None: it isn't computed yet."""
    is_looked_up: bool = False
    is_verified: bool | None = None
    """It was found, and is computed all the same; None: nothing was found yet."""
    is_awaited: bool = False
    """More may be found later: the request isn't scheduled."""
    n_shared: int = 0
    """Pages from the first one on that kvleased had when the request was scheduled, and those that
    other requests of the engine had behind them."""
    n_full: Counter[int] = field(default_factory=Counter)
    """By group of layers: pages that vLLM has keys for."""
    n_done: Counter[int] = field(default_factory=Counter)
    """By group of layers: pages that are published, or can't be."""
    is_broken: bool = False
    """Nothing more can be published: what comes before isn't cached any more."""
    looks_at: float = 0
    """When it is looked whether it can ever have its pages."""


class Texts(BlockPool):
    """A pool that has texts of requests, and pages of them."""

    namespace: kvlease.Namespace
    stats: _engine.Stats
    _by_page: dict[int, Block]
    _loss: _engine.Loss
    _manager: Any
    _n_only_found: int
    _state: State
    _texts: dict[str, Text]
    _told: Told | None
    _verifier: Verifier

    def _uncache(self, block: Block) -> None:
        """Requests that begin don't share the block any more."""
        hashes = self._remove_cached_block_hashes(block)
        if self._told:
            self._told.freed(hashes)

    def _keys(self, text: Text, first: int, end: int, group: int) -> list[bytes]:
        """Of a text's pages from the first to before the end, in kvleased."""
        assert text.epoch is not None
        return self._state.keys(text.epoch, text.request.block_hashes[first:end])

    def _give_back(self, blocks: list[Block]) -> None:
        for block in blocks:
            del self._by_page[block.block_id]
        _engine.give_back(self.namespace.release, [b.block_id for b in blocks if b.is_pinned])
        _engine.give_back(self.namespace.free, [b.block_id for b in blocks if not b.is_pinned])
