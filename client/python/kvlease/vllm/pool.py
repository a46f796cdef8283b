"""The scheduler's side: a block pool whose blocks are pages of kvlease.

vLLM's scheduler asks its KVCacheManager for the blocks of a request, and that its BlockPool. Both
stay as they are. This module replaces the pool's source of blocks and its cache (texts.py). The
scheduler's thread alone calls it.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue, KVCacheBlock
from vllm.v1.request import RequestStatus

import kvlease
from kvlease import _engine
from kvlease._verify import Piece, Verifier
from kvlease.vllm import conversations, identity
from kvlease.vllm.texts import Block, Text, Texts
from kvlease.vllm.weights import Reader

_logger = logging.getLogger("kvlease")

# How long the scheduler sleeps where it could schedule nothing for want of pages, or while others
# bring them: it asks again and again.
_PAUSE_SECONDS = 0.002


class Refused(Exception):
    """There is no page for now."""


class Pool(Texts):
    """Becomes the class of the pool that vLLM has made: start() is its constructor."""

    def start(
        self,
        namespace: kvlease.Namespace,
        n_blocks: int,
        manager: Any,
        options: identity.Options,
        refuse: Callable[[Any, str], None],
        verifier: Verifier,
        pieces: Sequence[Sequence[Piece]],
        model: Reader,
    ) -> None:
        """n_blocks: how many pages the engine may hold, with the null block; manager: vLLM's
        KVCacheManager, which gets other ways to look up and to allocate; refuse(request, why) ends
        one that can't ever be computed; pieces: of the layers of each group in a page, on all
        ranks; model: what the engine computes with."""
        self._start(namespace, manager, options, verifier, pieces, model)
        self.prefill = _engine.Prefill(namespace, self.hash_block_size)
        self._budget = n_blocks - 1
        self._n_held = 0
        self._fresh: list[int] = []
        self.keeps_pages = False
        """A reset drops nothing: the engine falls asleep."""
        self._adapters: list[tuple[int, bytes]] = []
        self._refuse = refuse
        self._waiting = _engine.Waiting()
        self._lease_for: kvlease.Request | None = None
        self._gives_way_at: float | None = None
        self._holds_until = 0.0
        # All of the pool's own blocks but the null block are gone.
        self.blocks = [self.null_block]
        self.free_block_queue = FreeKVCacheBlockQueue([])
        self._allocate: Callable[..., Any] = manager.allocate_slots
        manager.allocate_slots = self._allocate_slots
        manager.get_computed_blocks = self._get_computed_blocks
        take_new = manager.take_new_block_ids
        manager.take_new_block_ids = lambda: list(filter(self._is_own, take_new()))
        # vLLM gives back what a request that ends has passed, right before it calls end(), which
        # publishes that. The request's other blocks follow right after.
        manager.remove_skipped_blocks = lambda *_, **__: None

    # What vLLM's cache manager asks the pool.

    def get_num_free_blocks(self) -> int:
        """Blocks that could be had now, with those that waiting requests have found."""
        if self._loss.happened or time.monotonic() < self._holds_until:
            return 0
        room = self._budget - self._n_held
        return max(0, min(room, self._leasable() + self._n_only_found))

    def get_usage(self) -> float:
        """Of what the engine may hold."""
        return self._n_held / self._budget

    def get_new_blocks(self, num_blocks: int) -> list[KVCacheBlock]:
        """Leased pages. Refused where kvleased has none."""
        pages = self._lease(num_blocks)
        blocks: list[KVCacheBlock] = [Block(page, 1, pool=self) for page in pages]
        self._by_page.update(zip(pages, blocks, strict=True))
        self._n_held += num_blocks
        self._fresh += pages
        if self.metrics_collector:
            for block in blocks:
                self.metrics_collector.on_block_allocated(block)
        return blocks

    def touch(self, blocks: Sequence[KVCacheBlock]) -> None:
        """One table more has them."""
        for block in blocks:
            if block.is_null:
                continue
            if block.ref_cnt == 0:
                self._n_held += 1
                self._n_only_found -= 1
                self._fresh.append(block.block_id)
            block.ref_cnt += 1
            if self.metrics_collector:
                self.metrics_collector.on_block_accessed(block)

    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> None:
        """One table less has them. What was published stays cached, as kvleased likes."""
        gone: list[Block] = []
        for block in ordered_blocks:
            if block.is_null:
                continue
            assert isinstance(block, Block)
            block.ref_cnt -= 1
            if block.ref_cnt > 0:
                continue
            self._n_held -= 1
            # Who asks next asks kvleased.
            self._uncache(block)
            if block.n_found > 0:
                self._n_only_found += 1
            else:
                gone.append(block)
        self._give_back(gone)

    def evict_blocks(self, block_ids: set[int]) -> None:
        """Takes blocks out of the engine's own map: nothing of them is published any more."""
        for page in self._by_page.keys() & block_ids:
            block = self._by_page[page]
            self._uncache(block)
            block.is_duplicate = not block.is_pinned

    def reset_prefix_cache(self) -> bool:
        """Drops all that is cached, of all engines of the tenant with this layout; nothing where
        the model has changed since the last time. False where requests hold blocks."""
        if self._n_held:
            _logger.warning(
                "the prefix cache isn't reset: requests hold %d blocks of it", self._n_held
            )
            return False
        self.drop_found()
        if self.keeps_pages:
            return True
        self._model.compare()
        self._refresh()
        has_changed, self._has_changed = self._has_changed, False
        # Nothing is found of another model, and what is cached of that others compute with.
        if not has_changed:
            try:
                self.namespace.invalidate()
            except kvlease.Error as error:
                self._loss.meet(error)
                return False
        if self.metrics_collector:
            self.metrics_collector.reset()
        if self._told:
            self._told.clear()
        return True

    def take_events(self) -> list[Any]:
        """Asked when a step's results are in: what it has filled is published. vLLM's events."""
        self.prefill.end()
        self._refresh()
        for text in self._texts.values():
            self._publish(text)
        if self._told:
            self._told.look()
        events: list[Any] = super().take_events()
        return events

    def cache_full_blocks(
        self,
        request: Any,
        blocks: list[KVCacheBlock],
        num_cached_blocks: int,
        num_full_blocks: int,
        block_size: int,
        kv_cache_group_id: int,
        *arguments: Any,
        **keywords: Any,
    ) -> None:
        """These will be full after the next step: other requests of that step may share them, but
        for those that another model has begun."""
        text = self._text(request)
        if not self._goes_on(text):
            return
        group = kv_cache_group_id
        n_events = len(self.kv_event_queue)
        super().cache_full_blocks(
            *(request, blocks, num_cached_blocks, num_full_blocks, block_size, group),
            *arguments,
            **keywords,
        )
        if self._told:
            new = blocks[num_cached_blocks:num_full_blocks]
            self._told.stored(n_events, [b.block_hash for b in new if b.block_hash is not None])
        text.n_full[group] = num_full_blocks

    def cache_partial_block(self, request: Any, *arguments: Any, **keywords: Any) -> Any:
        """As cache_full_blocks(), of a recurrent state that a step writes on its way."""
        if not self._goes_on(self._text(request)):
            return None
        n_events = len(self.kv_event_queue)
        block_hash = super().cache_partial_block(request, *arguments, **keywords)
        if self._told and block_hash is not None:
            self._told.stored(n_events, [block_hash])
        return block_hash

    def _goes_on(self, text: Text) -> bool:
        """Whether the weights of the engine are still those that the text began with."""
        return text.epoch is not None and self._state.go_on(text.epoch) is not None

    # What the connector asks.

    def take_fresh(self) -> list[int]:
        """Pages that have come into tables since the last call, and are in one: the worker maps
        them."""
        fresh, self._fresh = self._fresh, []
        blocks = (self._by_page.get(page) for page in dict.fromkeys(fresh))
        return [block.block_id for block in blocks if block and block.ref_cnt > 0]

    def take_adapters(self) -> list[tuple[int, bytes]]:
        """Those with which pages were computed that have been found since the last call."""
        taken, self._adapters = self._adapters, []
        return taken

    def end(self, request: Any) -> None:
        """The request is over, and its blocks aren't freed yet."""
        text = self._texts.get(request.request_id)
        if text is None:
            return
        self._refresh()
        self._publish(text)
        self._forget(text)
        del self._texts[request.request_id]
        if text.session:
            conversations.end(text.session, request)
        try:
            text.handle.end(ending=conversations.ending(request))
        except kvlease.Error as error:
            _logger.debug("ended nothing: %s", error)

    def rest(self, has_work: bool) -> None:
        """Called once a step; has_work: something could be scheduled."""
        has_waited, self._has_waited = self._has_waited, False
        if has_work or not has_waited:
            return
        if self._loss.happened and not self._n_held:
            raise RuntimeError("kvleased is gone, and the engine has no page for its requests")
        time.sleep(_PAUSE_SECONDS)

    # What takes the place of the KVCacheManager's methods.

    def _get_computed_blocks(
        self, request: Any, max_cache_hit_length: int | None = None
    ) -> tuple[Any, int, int]:
        """One lookup for a request until it is scheduled, however often the scheduler asks."""
        manager = self._manager
        text = self._text(request)
        text.epoch = self._refresh().begin(request.lora_request)
        is_holding_off = time.monotonic() < self._holds_until
        if is_holding_off or not manager.prefix_cache_lookup_enabled(request):
            return manager.empty_kv_cache_blocks, 0, 0
        # The last token is computed in any case: its logits are what is wanted.
        longest = request.num_tokens - 1 if max_cache_hit_length is None else max_cache_hit_length
        return self._find(text, longest)

    def _allocate_slots(
        self,
        request: Any,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: Any = None,
        *arguments: Any,
        **keywords: Any,
    ) -> Any:
        """None where there is no page: the request waits, or vLLM preempts others."""
        text = self._text(request)
        self._lease_for = text.handle
        begins = request.status != RequestStatus.RUNNING
        before = self._lengths(request)
        if begins and self._is_hopeless(text):
            return None
        # Before the blocks behind them, whose events name them.
        if begins and self._told and num_new_computed_tokens and text.epoch:
            for group, found in enumerate(new_computed_blocks.blocks):
                keys = self._keys(text, 0, len(found), group)
                self._told.found(request, list(found), keys, group)
        why: str | None = None
        try:
            blocks = self._allocate(
                *(request, num_new_tokens, num_new_computed_tokens, new_computed_blocks),
                *arguments,
                **keywords,
            )
        except Refused as refusal:
            why = str(refusal)
            self._take_back(request, before)
            blocks = None
        if blocks is None:
            self.stats.waits += 1
            self._has_waited = True
            self._give_way(text, why)
            return None
        self._gives_way_at = None
        self._waiting.end()
        if begins:
            text.n_shared = num_new_computed_tokens // self.hash_block_size
            self._begin_publishing(text, new_computed_blocks)
            text.is_broken = False
            text.is_verified = None
            if num_new_computed_tokens and text.epoch:
                self._adapters += text.epoch.loaded()
            self.stats.requests += 1
            self.stats.asked_tokens += request.num_tokens
            self.stats.hit_tokens += num_new_computed_tokens
            self._forget(text)
        return blocks

    # The rest.

    def _lengths(self, request: Any) -> list[int]:
        """Blocks that the request's tables have, by group of layers."""
        managers = self._manager.coordinator.single_type_managers
        return [len(each.req_to_blocks.get(request.request_id, ())) for each in managers]

    def _take_back(self, request: Any, before: list[int]) -> None:
        """Of a refused allocation, which some groups of layers had their blocks of: vLLM's workers
        are told of no block that is in a table already when the request asks again."""
        if not any(before):
            self._manager.free(request)
            return
        managers = self._manager.coordinator.single_type_managers
        for manager, n_blocks in zip(managers, before, strict=True):
            table = manager.req_to_blocks[request.request_id]
            self.free_blocks(reversed(table[n_blocks:]))
            del table[n_blocks:]

    def _lease(self, n_pages: int) -> list[int]:
        """All or none: Refused says why."""
        pages: list[int] = []
        try:
            while len(pages) < n_pages:
                n_next = min(n_pages - len(pages), kvlease.MAX_LEASE_PAGES)
                leased = self.namespace.lease(n_next, self._lease_for, max_wait=0)
                pages += leased.detach()
        except (kvlease.Full, kvlease.Quota, kvlease.Draining, kvlease.Timeout) as error:
            _engine.give_back(self.namespace.free, pages)
            raise Refused(str(error)) from error
        except kvlease.Error as error:
            self._loss.meet(error)
            raise Refused("kvleased is gone") from error
        return pages

    def _n_pages(self, n_tokens: int) -> int:
        """At least: a window may need fewer than a text has."""
        return -(-n_tokens // int(self.hash_block_size)) * sum(self._are_chained) or 1

    def _is_hopeless(self, text: Text) -> bool:
        """Whether a request that is to begin can't ever have the pages that it asks for: then it
        ends. One that asks for as much as there is may begin as long as its tokens can be had."""
        now = time.monotonic()
        if self._loss.happened or now < text.looks_at:
            return False
        text.looks_at = now + _engine.LOOK_SECONDS
        request = text.request
        n_tokens = request.num_prompt_tokens + request.max_tokens
        if n_tokens >= self._manager.max_model_len:
            n_tokens = request.num_tokens + 1
        # The last token is sampled, and not computed with.
        why = _engine.why_never(self.namespace, n_tokens, self._n_pages(n_tokens - 1))
        if why is not None:
            self._refuse(request, why)
        return why is not None

    def _ask(self, text: Text) -> str | None:
        """Why kvleased has no pages for a request; None: it has made room. Others give way for a
        lease alone."""
        n_missing = self._n_pages(text.request.num_tokens) - sum(map(len, text.found.values()))
        try:
            pages = self._lease(max(1, min(n_missing, self._budget)))
        except Refused as refusal:
            return str(refusal)
        _engine.give_back(self.namespace.free, pages)
        return None

    def _text(self, request: Any) -> Text:
        text = self._texts.get(request.request_id)
        if text is None:
            text = Text(request, self.namespace.request(), self._hosts.text())
            self._texts[request.request_id] = text
            # A page of a window ends no text.
            if self._publishes and self._are_chained == [True]:
                text.session = conversations.begin(self.namespace, request)
        return text

    def _leasable(self) -> int:
        try:
            return self.namespace.leasable_pages()
        except kvlease.Error as error:
            self._loss.meet(error)
            return 0

    def _give_way(self, text: Text, why: str | None) -> None:
        """Where nothing runs, another engine may wait for what waiting requests have found, as they
        do for what that one's have."""
        now = time.monotonic()
        if self._n_held or now < self._holds_until:
            self._gives_way_at = None
        elif self._gives_way_at is None:
            self._gives_way_at = now + random.uniform(*_engine.GIVE_WAY_SECONDS)
            why = why or self._ask(text)
            if why is not None:
                self._waiting.tell(why)
        elif now >= self._gives_way_at:
            self.drop_found()
            self.stats.gave_way += 1
            self._gives_way_at = None
            self._holds_until = now + random.uniform(*_engine.GIVE_WAY_SECONDS) / 2

    def _is_own(self, page: int) -> bool:
        """Whether the worker may zero a page that was leased for a request: it may have been given
        back since, and be another engine's."""
        block = self._by_page.get(page)
        return block is not None and block.ref_cnt > 0 and not block.is_pinned
