"""Texts of requests in a pool of pages: finds their pages, and publishes them.

A block belongs to one group of layers at a time, and all blocks have one size. So pages of all
groups are in one namespace, and a page's key has the group's number where there are several. Pages
of full attention are a chain. A page of a window is of use without the pages before it: it is
published alone, and found alone.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, takewhile
from typing import Any

from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import KVCacheBlock
from vllm.v1.kv_cache_interface import FullAttentionSpec

import kvlease
from kvlease import _engine
from kvlease._digest import hash_parts
from kvlease._verify import Piece, Verifier
from kvlease.vllm import places
from kvlease.vllm.events import UNTOLD, Tokens, Told
from kvlease.vllm.identity import Options
from kvlease.vllm.weights import Epoch, Reader, State

_logger = logging.getLogger("kvlease")


@dataclass(eq=False, kw_only=True)
class Block(KVCacheBlock):
    """A page in vLLM's tables."""

    is_pinned: bool = False
    """Found or published: there is one pin. Otherwise the page is leased."""
    is_duplicate: bool = False
    """Leased, and stays so: another engine has published the same."""
    n_found: int = 0
    """Waiting requests that found it."""


@dataclass
class Text:
    """What is known of a request."""

    request: Any
    handle: kvlease.Request
    """For kvleased's eviction policy."""
    coming: _engine.Coming
    """From other hosts."""
    session: kvlease.Session | None = None
    """Of its conversation, which its pages extend."""
    found: defaultdict[int, dict[bytes, Block]] = field(default_factory=lambda: defaultdict(dict))
    """By the group of layers and vLLM's hash: found, and not yet in the request's table."""
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

    def _start(
        self,
        namespace: kvlease.Namespace,
        manager: Any,
        options: Options,
        verifier: Verifier,
        pieces: Sequence[Sequence[Piece]],
        model: Reader,
    ) -> None:
        """As Pool.start()."""
        self._loss = _engine.Loss(options.on_loss)
        self._publishes = options.publishes
        self.namespace = namespace
        self.stats = _engine.Stats()
        self._manager = manager
        specs = places.specs(manager.kv_cache_config)
        self._are_chained = [isinstance(each, FullAttentionSpec) for each in specs]
        info = namespace.info
        gives_ids = info.takes_token_ids and info.page_tokens == self.hash_block_size
        # Routers know one page of a text's tokens: the first group tells for all.
        self._told_group = (
            self._are_chained.index(True) if gives_ids and any(self._are_chained) else -1
        )
        timeout, are_chains = options.remote_timeout, self._are_chained == [True]
        self._hosts = _engine.Hosts(
            namespace, _engine.seconds_for_hosts(namespace, timeout, are_chains)
        )
        self._verifier = verifier
        self._pieces = pieces
        self._model = model
        self._state = model.state()
        self._has_changed = False
        self._texts: dict[str, Text] = {}
        self._by_page: dict[int, Block] = {}
        # Pinned blocks that were given back: to make a block takes longer than to look up its page.
        self._spare: list[Block] = []
        self._n_only_found = 0
        self._has_waited = False
        """A request, for pages, since rest() was called."""
        self._told = Told(self) if self.enable_kv_cache_events else None
        # The text whose prefix vLLM searches now, and what wasn't found of it.
        self._asks: Text | None = None
        self._missing: set[tuple[bytes, int]] = set()

    # Keys.

    def _keys(self, text: Text, first: int, end: int, group: int) -> list[bytes]:
        """Of a text's pages from the first to before the end, in kvleased."""
        assert text.epoch is not None
        return self._keys_of(text.epoch, text.request.block_hashes[first:end], group)

    def _keys_of(self, epoch: Epoch, hashes: Iterable[bytes], group: int) -> list[bytes]:
        keys = self._state.keys(epoch, hashes)
        if len(self._are_chained) == 1:
            return keys
        return [hash_parts(key, bytes([group])) for key in keys]

    def _chained_groups(self) -> list[int]:
        return [group for group, is_chained in enumerate(self._are_chained) if is_chained]

    # Finding: the pages of a text are pinned until the text is scheduled.

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
            for group in self._chained_groups():
                keys = self._keys_of(epoch, request.block_hashes[:n_pages], group)
                self.namespace.expect(b"".join(keys))
        except kvlease.Error as error:
            _logger.debug("expected nothing: %s", error)

    def is_awaited(self, request: Any) -> bool:
        """Whether pages of the request may come from other hosts: it isn't scheduled yet."""
        text = self._texts.get(request.request_id)
        return text is not None and text.is_awaited

    def _find(self, text: Text, longest: int) -> tuple[Any, int, int]:
        """As get_computed_blocks(): blocks of the text's first tokens, at most so many. vLLM's own
        search, which knows all kinds of layers, asks the pool for each block."""
        if not text.coming.is_under_way and (text.is_awaited or not text.is_looked_up):
            self._look_up(text, longest // self.hash_block_size)
        if text.is_awaited:
            self._has_waited = True
            return self._manager.empty_kv_cache_blocks, 0, 0
        self._asks = text
        try:
            blocks, n_tokens, n_uncached = self._manager.coordinator.find_longest_cache_hit(
                text.request.block_hashes, longest
            )
        finally:
            self._asks = None
            self._missing.clear()
        used = set(map(id, chain(*blocks)))
        for found in text.found.values():
            if not used.issuperset(map(id, found.values())):
                self._let_go(found, [at for at, block in found.items() if id(block) not in used])
        if self._is_verified(text):
            return self._manager.empty_kv_cache_blocks, 0, 0
        boundary = n_tokens + n_uncached if n_uncached else 0
        return self._manager.create_kv_cache_blocks(blocks), n_tokens, boundary

    def _is_verified(self, text: Text) -> bool:
        """Whether a text that was looked up is computed all the same: then it has found nothing."""
        if text.is_verified is None and any(text.found.values()):
            text.is_verified = self._verifier.picks()
            self.stats.verified += text.is_verified
        if text.is_verified:
            self._forget(text)
            text.is_looked_up = True
        return bool(text.is_verified)

    def _look_up(self, text: Text, n_pages: int) -> None:
        """Pins the longest chains that are cached, each in one call, behind what was found before,
        and asks for pages of other hosts."""
        text.is_looked_up = True
        text.is_awaited = False
        if not self._can_find(text):
            return
        hashes = text.request.block_hashes[:n_pages]
        for group in self._chained_groups():
            first = sum(map(text.found[group].__contains__, hashes)) if text.found[group] else 0
            keys = self._keys(text, 0, n_pages, group)
            n_found = first + len(self._pin(text, hashes[first:], keys[first:], group))
            if n_found < n_pages:
                own = self._own_block(hashes[n_found], [group])
                text.is_awaited = not own and text.coming.ask(keys, n_found)

    def _can_find(self, text: Text) -> bool:
        assert text.epoch is not None
        return self._state.can_share(text.epoch) and not self._verifier.has_failed

    def get_cached_block(
        self, block_hash: Any, kv_cache_group_ids: list[int]
    ) -> list[KVCacheBlock] | None:
        """One of each group; None where one isn't there."""
        text = self._asks
        if text is None:
            return self._own_block(block_hash, kv_cache_group_ids)
        blocks: list[KVCacheBlock] = []
        for group in kv_cache_group_ids:
            block = text.found[group].get(block_hash) or self._answer(text, block_hash, group)
            if block is None:
                return None
            blocks.append(block)
        return blocks

    def _own_block(self, block_hash: Any, groups: list[int]) -> list[Any] | None:
        """In the table of a request of this engine, which computes it."""
        found: list[Any] | None = super().get_cached_block(block_hash, groups)
        return found

    def _answer(self, text: Text, block_hash: Any, group: int) -> KVCacheBlock | None:
        """A block that this engine computes, or a page of kvleased that wasn't looked up before and
        is pinned for the text now."""
        if (own := self._own_block(block_hash, [group])) is not None:
            return own[0]
        at = block_hash, group
        if self._are_chained[group] or at in self._missing or not self._can_find(text):
            return None
        assert text.epoch is not None
        keys = self._keys_of(text.epoch, [block_hash], group)
        if not self._pin(text, [block_hash], keys, group):
            self._missing.add(at)
        return text.found[group].get(block_hash)

    def _pin(
        self, text: Text, hashes: Sequence[Any], keys: list[bytes], group: int
    ) -> Sequence[int]:
        """Looks up pages of a text that follow each other, with these hashes of vLLM's."""
        try:
            pages = self.namespace.lookup(b"".join(keys), text.handle).detach() if keys else ()
        except kvlease.Error as error:
            # It is asked again where the text isn't scheduled now.
            text.is_looked_up = False
            _logger.info("looked up nothing: %s", error)
            return ()
        surplus: list[int] = []
        found, by_page, spare = text.found[group], self._by_page, self._spare
        for block_hash, page in zip(hashes, pages, strict=False):
            block = by_page.get(page)
            if block is None:
                block = spare.pop() if spare else Block(0, is_pinned=True, pool=self)
                block.block_id, by_page[page] = page, block
                self._n_only_found += 1
            elif block.is_pinned:
                surplus.append(page)
            else:
                # Leased by this engine, and not published: kvleased can't have said that.
                raise RuntimeError(f"page {page} was found, and is leased by this engine")
            block.n_found += 1
            found[block_hash] = block
        _engine.give_back(self.namespace.release, surplus)
        return pages

    def _forget(self, text: Text) -> None:
        """Gives back the found pages: the request has them in its table, or doesn't need them."""
        for found in text.found.values():
            self._let_go(found, list(found))
        text.is_looked_up = False
        text.is_awaited = text.coming.is_under_way

    def _let_go(self, found: dict[bytes, Block], hashes: Iterable[bytes]) -> None:
        gone: list[Block] = []
        for each in hashes:
            block = found.pop(each)
            block.n_found -= 1
            if block.n_found == 0 and block.ref_cnt == 0:
                self._n_only_found -= 1
                gone.append(block)
        self._give_back(gone)

    def drop_found(self) -> None:
        """Gives back what waiting requests found."""
        for text in self._texts.values():
            self._forget(text)

    def _refresh(self) -> State:
        """What the engine computes with now. Where it is something else than before, nothing that
        was found or is being computed is of use to those who begin now."""
        state = self._model.state()
        if state is not self._state:
            before, self._state = self._state, state
            self.drop_found()
            if not state.has_same(before):
                self._has_changed = True
                self._drop_cached()
        return state

    def _drop_cached(self) -> None:
        """Requests that begin share no block with those that run."""
        for block in self._by_page.values():
            self._remove_cached_block_hashes(block)
        if self._told:
            self._told.clear()

    # Publishing: pages that a step has filled become others' to find.

    def _begin_publishing(self, text: Text, computed: Any) -> None:
        """computed: the blocks that the request begins with."""
        text.n_done = Counter()
        for group, blocks in enumerate(computed.blocks if computed else ()):
            known = takewhile(lambda block: block.is_null or block.is_pinned, blocks)
            # Pages of a window have no parent: the request that computes one publishes it.
            text.n_done[group] = len(list(known) if self._are_chained[group] else blocks)

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

    @staticmethod
    def _is_to_publish(block: Block) -> bool:
        return not block.is_null and not block.is_pinned and not block.is_duplicate

    def _publish_run(self, text: Text, blocks: list[Block], first: int, group: int) -> None:
        """Pages that follow each other, the first of them as the text's page of that number."""
        keys = self._keys(text, max(0, first - 1), first + len(blocks), group)
        own = keys[-len(blocks) :]
        if self._are_chained[group]:
            parent = keys[0] if first else None
            tokens = UNTOLD
            if group == self._told_group:
                size = self.hash_block_size
                tokens = Tokens.of(text.request, first * size, (first + len(blocks)) * size)
            self._publish_keys(text, blocks, own, group, parent, tokens=tokens)
            return
        for i, (block, key) in enumerate(zip(blocks, own, strict=True), first):
            # A block that no later text can begin behind has no key of vLLM.
            if block.block_hash is not None and not text.is_broken:
                passed = self._has_passed(text.request, i, group)
                self._publish_keys(text, [block], [key], group, window_passed=passed)

    def _has_passed(self, request: Any, i: int, group: int) -> bool:
        """Whether the request goes on beyond the window that needs its block i. Later texts are
        expected to leave this one behind its prompt, behind all of its tokens, or where it leaves
        what is cached, or up to half a window before any of these."""
        skipped = self._manager.coordinator.single_type_managers[group].get_num_skipped_tokens
        size = self.hash_block_size
        end = (i + 1) * size
        for n in (request.shared_prefix_boundary, request.num_prompt_tokens, request.num_tokens):
            # Texts begin where a page ends, and compute at least one token.
            last, before = n // size * size, (n - 1) // size * size
            first = min(skipped(last - (last - skipped(last)) // 2), skipped(before))
            if first < end <= n:
                return False
        return bool(end <= request.num_tokens)

    def _publish_keys(
        self,
        text: Text,
        blocks: list[Block],
        keys: list[bytes],
        group: int,
        parent: bytes | None = None,
        window_passed: bool = False,
        tokens: Tokens = UNTOLD,
    ) -> None:
        own = [block.block_id for block in blocks]

        def publish() -> kvlease.Pages:
            return self.namespace.publish(
                own,
                b"".join(keys),
                parent=parent,
                request=text.handle,
                session=text.session,
                window_passed=window_passed,
                **vars(tokens),
            )

        try:
            try:
                carried = publish()
            except kvlease.NotFound:  # an administrator has dropped the session
                text.session = None
                carried = publish()
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
        if self._verifier.compares:
            compared = self._verifier.compare(own, carried, self._pieces[group])
            self.stats.compared_pages += compared
            if self._verifier.has_failed:
                self._leave()
        pages = carried.detach()
        if self._told:
            for block, key, _ in zip(blocks, keys, pages, strict=False):
                self._told.published(block.block_hash, key)
        text.is_broken = len(pages) < len(blocks) or self._verifier.has_failed
        others: list[int] = []
        for block, page in zip(blocks, pages, strict=False):
            block.is_pinned = page == block.block_id
            block.is_duplicate = not block.is_pinned
            if block.is_duplicate:
                others.append(page)
        self.stats.published_pages += len(pages)
        self.stats.duplicate_pages += len(others)
        _engine.give_back(self.namespace.release, others)

    def _leave(self) -> None:
        """The verifier has failed: requests that begin get no page that was found, and no block of
        requests that have begun, which may have computed it behind wrong pages."""
        self.drop_found()
        self._drop_cached()
        for text in self._texts.values():
            text.epoch = None

    def _emit_block_removed_events(self, removed_hashes: Any) -> None:
        if self._told:
            self._told.removed(removed_hashes)
        super()._emit_block_removed_events(removed_hashes)

    # What is given back.

    def _uncache(self, block: Block) -> None:
        """Requests that begin don't share the block any more."""
        hashes = self._remove_cached_block_hashes(block)
        if self._told:
            self._told.freed(hashes)

    def _give_back(self, blocks: list[Block]) -> None:
        for block in blocks:
            del self._by_page[block.block_id]
        pinned = [block for block in blocks if block.is_pinned]
        _engine.give_back(self.namespace.release, [block.block_id for block in pinned])
        self._spare += pinned
        _engine.give_back(self.namespace.free, [b.block_id for b in blocks if not b.is_pinned])
