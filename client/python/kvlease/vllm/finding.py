"""Finding: which pages of a text kvleased has, or another request of the engine."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from vllm.v1.core.kv_cache_utils import KVCacheBlock, make_block_hash_with_group_id

import kvlease
from kvlease import _engine
from kvlease.vllm.texts import GROUP, Block, Text, Texts
from kvlease.vllm.weights import Reader, State

_logger = logging.getLogger("kvlease")


class Finding(Texts):
    """What a pool finds of its texts is pinned until they are scheduled."""

    _has_awaited: bool
    _has_changed: bool
    _model: Reader

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
            for keys in self._chains(state.keys(epoch, request.block_hashes[:n_pages])):
                self.namespace.expect(b"".join(keys))
        except kvlease.Error as error:
            _logger.debug("expected nothing: %s", error)

    def _chains(self, keys: list[bytes]) -> list[list[bytes]]:
        """keys: of a text's pages. Of each group of layers whose pages follow each other, all keys
        in kvleased."""
        return [keys]

    def is_awaited(self, request: Any) -> bool:
        """Whether pages of the request may come from other hosts: it isn't scheduled yet."""
        text = self._texts.get(request.request_id)
        return text is not None and text.is_awaited

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
            make_block_hash_with_group_id(key, GROUP)
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

    def _drop_cached(self) -> None:
        """Requests that begin share no block with those that run."""
        for block in self._by_page.values():
            self._remove_cached_block_hashes(block)
        if self._told:
            self._told.clear()
