"""The scheduler's side: a block pool whose blocks are pages of kvlease.

vLLM's scheduler asks its KVCacheManager for the blocks of a request, and that its BlockPool. Both
stay what they are; what this module takes the place of is where the pool has its blocks from, and
what is cached. All of it is the scheduler's thread's.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import (
    FreeKVCacheBlockQueue,
    KVCacheBlock,
    make_block_hash_with_group_id,
)
from vllm.v1.request import RequestStatus

import kvlease
from kvlease import _engine
from kvlease._verify import Verifier
from kvlease.vllm import identity
from kvlease.vllm.events import Told
from kvlease.vllm.weights import Epoch, Reader, State

_logger = logging.getLogger("kvlease")

# The group of layers of a pool that has no others.
_GROUP = 0
# How long the scheduler sleeps where it could schedule nothing for want of pages, or while others
# bring them: it asks again and again.
_PAUSE_SECONDS = 0.002


@dataclass(eq=False, kw_only=True)
class Block(KVCacheBlock):
    """A page in vLLM's tables."""

    is_pinned: bool = False
    """Found or published: there is one pin. Otherwise the page is leased."""
    is_duplicate: bool = False
    """Leased, and stays so: somebody else published what is in it."""
    n_found: int = 0
    """Waiting requests that found it."""
    group: int = _GROUP
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


class Refused(Exception):
    """There is no page for now."""


class Pool(BlockPool):
    """Becomes the class of the pool that vLLM has made: start() is its constructor."""

    def start(
        self,
        namespace: kvlease.Namespace,
        n_blocks: int,
        manager: Any,
        options: identity.Options,
        refuse: Callable[[Any, str], None],
        verifier: Verifier,
        model: Reader,
    ) -> None:
        """n_blocks: how many pages the engine may hold, with the null block; manager: vLLM's
        KVCacheManager, which gets other ways to look up and to allocate; refuse(request, why) ends
        one that can't ever be computed; model: what the engine computes with."""
        self.namespace = namespace
        self._verifier = verifier
        # Own pages by those that others have published under their keys: the worker is to be told,
        # and was told.
        self._to_compare: dict[int, Block] = {}
        self._compared: dict[int, Block] = {}
        self._hosts = _engine.Hosts(namespace, options.remote_timeout)
        self.stats = _engine.Stats()
        self.prefill = _engine.Prefill(namespace, self.hash_block_size)
        self._told = Told(self) if self.enable_kv_cache_events else None
        self._by_page: dict[int, Block] = {}
        self._budget = n_blocks - 1
        self._n_held = 0
        self._n_only_found = 0
        self._fresh: list[int] = []
        self._texts: dict[str, Text] = {}
        self._model = model
        self._state = model.state()
        self._has_changed = False
        self.keeps_pages = False
        """The next reset drops nothing: the engine falls asleep."""
        self._adapters: list[tuple[int, bytes]] = []
        self._manager = manager
        self._loss = _engine.Loss(options.on_loss)
        self._publishes = options.publishes
        self._refuse = refuse
        self._waiting = _engine.Waiting()
        self._lease_for: kvlease.Request | None = None
        self._was_refused = False
        self._has_awaited = False
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
            elif not block.is_compared:
                gone.append(block)
        self._give_back(gone)

    def evict_blocks(self, block_ids: set[int]) -> None:
        """Takes blocks out of the engine's own map: nothing of them is published any more."""
        for page in block_ids:
            block = self._by_page.get(page)
            if block is not None:
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
        self._drop_found()
        keeps, self.keeps_pages = self.keeps_pages, False
        if keeps:
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
        if text.epoch is None or self._state.go_on(text.epoch) is None:
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

    # What the connector asks.

    def take_fresh(self) -> list[int]:
        """Pages that have come into tables since the last call, and are in one: the worker maps
        them."""
        fresh, self._fresh = self._fresh, []
        blocks = (self._by_page.get(page) for page in dict.fromkeys(fresh))
        return [block.block_id for block in blocks if block and block.ref_cnt > 0]

    def take_pairs(self) -> list[tuple[int, int, int]]:
        """For the worker: an own page, one that was published under its key, and their group."""
        pairs = [(block.block_id, page, block.group) for page, block in self._to_compare.items()]
        self._compared |= self._to_compare
        self._to_compare = {}
        return pairs

    @property
    def awaits_comparison(self) -> bool:
        """Whether the worker has pairs, or is to get some."""
        return bool(self._to_compare or self._compared)

    def on_compared(self, pages: Iterable[int]) -> None:
        """The worker is done with the pairs that have these pages, of other engines."""
        gone: list[Block] = []
        others: list[int] = []
        for page in pages:
            block = self._compared.pop(page, None)
            if block is None:
                continue
            others.append(page)
            block.is_compared = False
            self.stats.compared_pages += 1
            if block.ref_cnt == 0 and block.n_found == 0:
                gone.append(block)
        _engine.give_back(self.namespace.release, others)
        self._give_back(gone)

    def on_mismatch(self) -> None:
        """The verifier has failed: requests that begin get no page that was found, and no block
        of requests that have begun, which may have computed it behind wrong pages."""
        self._drop_found()
        self._drop_cached()
        for text in self._texts.values():
            text.epoch = None

    def take_adapters(self) -> list[tuple[int, bytes]]:
        """Those with which pages were computed that have been found since the last call."""
        taken, self._adapters = self._adapters, []
        return taken

    def expect(self, request: Any) -> None:
        """The request waits from now on: what kvleased has of its prompt is to be there when its
        turn comes. Told once, as vLLM asks for it only when it can be scheduled."""
        n_pages = (request.num_tokens - 1) // self.hash_block_size
        if self._loss.happened or not self._manager.prefix_cache_lookup_enabled(request):
            return
        state = self._refresh()
        epoch = state.begin(request.lora_request)
        if not state.can_share(epoch):
            return
        try:
            self.namespace.expect(b"".join(state.keys(epoch, request.block_hashes[:n_pages])))
        except kvlease.Error as error:
            _logger.debug("expected nothing: %s", error)

    def is_awaited(self, request: Any) -> bool:
        """Whether pages of the request may come from other hosts: it isn't scheduled yet."""
        text = self._texts.get(request.request_id)
        return text is not None and text.is_awaited

    def end(self, request: Any) -> None:
        """The request is over, and its blocks aren't freed yet."""
        text = self._texts.get(request.request_id)
        if text is None:
            return
        self._refresh()
        self._publish(text)
        self._forget(text)
        del self._texts[request.request_id]
        try:
            text.handle.end()
        except kvlease.Error as error:
            _logger.debug("ended nothing: %s", error)

    def rest(self, has_work: bool) -> None:
        """Called once a step; has_work: something could be scheduled."""
        has_waited = self._was_refused or self._has_awaited
        self._was_refused = self._has_awaited = False
        if has_work or not has_waited:
            return
        if self._loss.happened and not self._n_held:
            raise RuntimeError("kvleased is gone, and the engine has no page for its requests")
        time.sleep(_PAUSE_SECONDS)

    def close(self) -> None:
        """Gives back what waiting requests found. Nothing is scheduled any more."""
        self._drop_found()

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

    def _find(self, text: Text, longest: int) -> tuple[Any, int, int]:
        """Blocks of the text's first tokens, at most so many, and how many tokens that is."""
        manager, request = self._manager, text.request
        n_pages = longest // self.hash_block_size
        if not text.coming.is_under_way and (text.is_awaited or not text.is_looked_up):
            self._look_up(text, n_pages)
        if text.is_awaited:
            self._has_awaited = True
            return manager.empty_kv_cache_blocks, 0, 0
        if self._is_verified(text):
            return manager.empty_kv_cache_blocks, 0, 0
        blocks: list[KVCacheBlock] = list(text.found[:n_pages])
        for key in request.block_hashes[len(blocks) : n_pages]:
            block = self._block_of_others(key)
            if block is None:
                break
            blocks.append(block)
        return manager.create_kv_cache_blocks((blocks,)), len(blocks) * self.hash_block_size, 0

    def _is_verified(self, text: Text) -> bool:
        """Whether a text that was looked up is computed all the same: then it has found nothing."""
        if text.found and text.is_verified is None:
            text.is_verified = self._verifier.picks()
            self.stats.verified += text.is_verified
        if text.is_verified:
            self._forget(text)
            text.is_looked_up = True
        return bool(text.is_verified)

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
            if begins:
                # It has its table's first part, of pages that were found.
                self._manager.free(request)
            blocks = None
        if blocks is None:
            self.stats.waits += 1
            self._was_refused = True
            self._give_way(text, why)
            return None
        self._gives_way_at = None
        self._waiting.end()
        if begins:
            text.n_shared = num_new_computed_tokens // self.hash_block_size
            self._begin_publishing(text, new_computed_blocks)
            text.is_broken = False
            text.is_verified = None
            if num_new_computed_tokens and text.epoch and text.epoch.known:
                self._adapters.append((text.epoch.adapter or 0, text.epoch.known[1]))
            self.stats.requests += 1
            self.stats.asked_tokens += request.num_tokens
            self.stats.hit_tokens += num_new_computed_tokens
            self._forget(text)
        return blocks

    # The rest.

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
        return -(-n_tokens // int(self.hash_block_size))

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
        n_missing = self._n_pages(text.request.num_tokens) - len(text.found)
        try:
            pages = self._lease(max(1, min(n_missing, self._budget)))
        except Refused as refusal:
            return str(refusal)
        _engine.give_back(self.namespace.free, pages)
        return None

    def _refresh(self) -> State:
        """What the engine computes with now. Where it is something else than before, nothing that
        was found or is being computed is of use to those who begin now."""
        state = self._model.state()
        if state is not self._state:
            before, self._state = self._state, state
            self._drop_found()
            if not state.has_same(before):
                self._has_changed = True
                self._drop_cached()
        return state

    def _text(self, request: Any) -> Text:
        text = self._texts.get(request.request_id)
        if text is None:
            text = Text(request, self.namespace.request(), self._hosts.text())
            self._texts[request.request_id] = text
        return text

    def _leasable(self) -> int:
        try:
            return self.namespace.leasable_pages()
        except kvlease.Error as error:
            self._loss.meet(error)
            return 0

    def _look_up(self, text: Text, n_pages: int) -> None:
        """Pins the longest run of pages that is cached, behind what was found before."""
        text.is_looked_up = True
        text.is_awaited = False
        if self._verifier.has_failed:
            return
        hashes = text.request.block_hashes[:n_pages]
        assert text.epoch is not None
        if not self._state.can_share(text.epoch):
            return
        keys = self._state.keys(text.epoch, hashes)
        asked = b"".join(keys[len(text.found) :])
        try:
            pages = list(self.namespace.lookup(asked, text.handle).detach()) if asked else []
        except kvlease.Error as error:
            _logger.info("looked up nothing: %s", error)
            return
        self._take_found(text, pages)
        if len(text.found) < n_pages and not self._block_of_others(hashes[len(text.found)]):
            text.is_awaited = text.coming.ask(keys, len(text.found))

    def _take_found(self, text: Text, pages: Iterable[int]) -> list[Block]:
        """Pages that were looked up for a text: it has found their blocks."""
        surplus: list[int] = []
        blocks = []
        for page in pages:
            block = self._by_page.get(page)
            if block is None:
                block = self._by_page[page] = Block(page, is_pinned=True, pool=self)
                self._n_only_found += 1
            elif block.is_pinned:
                surplus.append(page)
            else:
                # Ours, and published by nobody: kvleased can't have said that.
                raise RuntimeError(f"page {page} was found, and is leased by this engine")
            block.n_found += 1
            blocks.append(block)
        text.found += blocks
        _engine.give_back(self.namespace.release, surplus)
        return blocks

    def _block_of_others(self, key: Any) -> KVCacheBlock | None:
        """In the table of a request of this engine, which computes it."""
        return self.cached_block_hash_to_block.get_one_block(
            make_block_hash_with_group_id(key, _GROUP)
        )

    def _forget(self, text: Text) -> None:
        """What the request found it has in its table, or doesn't need."""
        self._let_go(text.found)
        text.found = []
        text.is_looked_up = False
        text.is_awaited = text.coming.is_under_way

    def _let_go(self, found: Iterable[Block]) -> None:
        gone: list[Block] = []
        for block in found:
            block.n_found -= 1
            if block.n_found == 0 and block.ref_cnt == 0:
                self._n_only_found -= 1
                gone.append(block)
        self._give_back(gone)

    def _drop_found(self) -> None:
        for text in self._texts.values():
            self._forget(text)

    def _drop_cached(self) -> None:
        """Requests that begin share no block with those that run."""
        for block in self._by_page.values():
            self._remove_cached_block_hashes(block)
        if self._told:
            self._told.clear()

    def _uncache(self, block: Block) -> None:
        """Requests that begin don't share the block any more."""
        hashes = self._remove_cached_block_hashes(block)
        if self._told:
            self._told.freed(hashes)

    def _keys(self, text: Text, first: int, end: int, group: int) -> list[bytes]:
        """Of a text's pages from the first to before the end, in kvleased."""
        assert text.epoch is not None
        return self._state.keys(text.epoch, text.request.block_hashes[first:end])

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
            self._drop_found()
            self.stats.gave_way += 1
            self._gives_way_at = None
            self._holds_until = now + random.uniform(*_engine.GIVE_WAY_SECONDS) / 2

    def _publish(self, text: Text) -> None:
        """Publishes the request's pages that are computed. A step that is under way has filled
        nothing yet."""
        request = text.request
        state = self._state
        if not self._publishes or text.epoch is None or not state.is_known:
            return
        # Pages that another model has begun are nobody's.
        text.epoch = state.go_on(text.epoch)
        if text.epoch is None:
            text.is_broken = True
        elif not state.can_share(text.epoch):
            return
        n_pages = (request.num_computed_tokens - request.num_in_flight_tokens) // (
            self.hash_block_size
        )
        for group, manager in enumerate(self._manager.coordinator.single_type_managers):
            end = min(n_pages, text.n_full[group])
            is_over = text.is_broken or self._loss.happened or self._verifier.has_failed
            if not is_over and end > max(text.n_done[group], text.n_shared):
                table = manager.req_to_blocks.get(request.request_id, ())
                self._publish_group(text, group, list(table[:end]))

    def _publish_group(self, text: Text, group: int, table: list[Any]) -> None:
        """table: blocks that are full. Where the request has a page of its own that is filled,
        those before it are, too, which another request of the engine computes."""
        first, end = text.n_done[group], len(table)
        while first < end and not text.is_broken:
            # Of pages that are shared with other requests of the engine these may have published.
            last = first
            while last < end and self._is_to_publish(table[last]):
                last += 1
            if last > first:
                self._publish_run(text, table[first:last], first, group)
                first = last
            else:
                first += 1
        text.n_done[group] = end

    def _begin_publishing(self, text: Text, computed: Any) -> None:
        """computed: the blocks that the request begins with."""
        text.n_done = Counter({_GROUP: len(text.found)})

    def _is_own(self, page: int) -> bool:
        """Whether the worker may zero a page that was leased for a request: it may have been given
        back since, and be another engine's."""
        block = self._by_page.get(page)
        return block is not None and block.ref_cnt > 0 and not block.is_pinned

    @staticmethod
    def _is_to_publish(block: Block) -> bool:
        return not block.is_null and not block.is_pinned and not block.is_duplicate

    def _publish_run(self, text: Text, blocks: list[Block], first: int, group: int) -> None:
        """Pages that follow each other, the first of them as the text's page of that number."""
        before = max(0, first - 1)
        keys = self._keys(text, before, first + len(blocks), group)
        self._publish_keys(text, blocks, keys[first - before :], keys[0] if first else None)

    def _publish_keys(
        self, text: Text, blocks: list[Block], keys: list[bytes], parent: bytes | None
    ) -> None:
        own = [block.block_id for block in blocks]
        try:
            carried = self.namespace.publish(
                own, b"".join(keys), parent=parent, request=text.handle
            )
        except (kvlease.NoParent, kvlease.Stale) as error:
            if error.code < 0:
                self._loss.meet(error)
                return
            carried = error.published
        except kvlease.Quota:
            text.is_broken = True
            return
        except kvlease.Error as error:
            self._loss.meet(error)
            return
        pages = carried.detach()
        if self._told:
            for block, key, _ in zip(blocks, keys, pages, strict=False):
                self._told.published(block.block_hash, key)
        text.is_broken = len(pages) < len(blocks)
        others: list[int] = []
        for block, page in zip(blocks, pages, strict=False):
            if page == block.block_id:
                block.is_pinned = True
            else:
                block.is_duplicate = True
                if self._is_comparable(page):
                    block.is_compared = True
                    self._to_compare[page] = block
                else:
                    others.append(page)
        self.stats.published_pages += len(pages)
        self.stats.duplicate_pages += sum(
            page != block.block_id for block, page in zip(blocks, pages, strict=False)
        )
        _engine.give_back(self.namespace.release, others)

    def _is_comparable(self, page: int) -> bool:
        """Whether the worker can read the page, and hasn't been told to yet."""
        is_new = page not in self._to_compare and page not in self._compared
        on_device = self.namespace.info.tiers[0].n_pages
        return self._verifier.compares and is_new and page < on_device

    def _give_back(self, blocks: list[Block]) -> None:
        for block in blocks:
            del self._by_page[block.block_id]
        _engine.give_back(self.namespace.release, [b.block_id for b in blocks if b.is_pinned])
        _engine.give_back(self.namespace.free, [b.block_id for b in blocks if not b.is_pinned])
