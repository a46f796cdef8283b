"""A pool whose pages are blocks of several groups of layers, or of layers with a window.

A block belongs to one group at a time, and all blocks have one size. So pages of all groups are in
one namespace, and a page's key has the group's number. Pages of full attention are a chain. A page
of a window is of use without the pages before it: it is published alone, and found alone.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

from vllm.v1.core.kv_cache_utils import KVCacheBlock
from vllm.v1.kv_cache_interface import FullAttentionSpec

import kvlease
from kvlease._digest import hash_parts
from kvlease.vllm.pool import Pool
from kvlease.vllm.texts import Block, Text

_logger = logging.getLogger("kvlease")


def _of_group(key: bytes, group: int) -> bytes:
    """The key of a group's page."""
    return hash_parts(key, bytes([group]))


class GroupsPool(Pool):
    """vLLM's own search for a prefix, which knows all kinds of layers, asks it for each block."""

    _asks: Text | None = None
    _answers: dict[tuple[bytes, int], KVCacheBlock | None]

    def get_cached_block(
        self, block_hash: Any, kv_cache_group_ids: list[int]
    ) -> list[KVCacheBlock] | None:
        """One of each group; None where one isn't there."""
        if self._asks is None:
            found: list[KVCacheBlock] | None = super().get_cached_block(
                block_hash, kv_cache_group_ids
            )
            return found
        blocks = []
        for group in kv_cache_group_ids:
            block = self._answer(self._asks, bytes(block_hash), group)
            if block is None:
                return None
            blocks.append(block)
        return blocks

    def _answer(self, text: Text, block_hash: bytes, group: int) -> KVCacheBlock | None:
        """A block that this engine computes, or one of kvleased, pinned for the text."""
        if (block_hash, group) not in self._answers:
            own = super().get_cached_block(block_hash, [group])
            self._answers[block_hash, group] = (
                own[0] if own else self._ask_kvleased(text, block_hash, group)
            )
        return self._answers[block_hash, group]

    def _ask_kvleased(self, text: Text, block_hash: bytes, group: int) -> Block | None:
        try:
            pages = self.namespace.lookup(self._key(text, block_hash, group), text.handle)
        except kvlease.Error as error:
            _logger.info("looked up nothing: %s", error)
            return None
        if not pages:
            return None
        (block,) = self._take_found(text, pages.detach())
        return block

    def _chains(self, keys: list[bytes]) -> list[list[bytes]]:
        return [[_of_group(key, group) for key in keys] for group in self._chained_groups()]

    def _chained_groups(self) -> list[int]:
        groups = self._manager.kv_cache_config.kv_cache_groups
        return [group for group in range(len(groups)) if self._is_chained(group)]

    def _ask_for_chains(self, text: Text, n_pages: int) -> None:
        """Looks up pages of full attention, all of a group in one call. kvleased has a page only
        where it has all pages before it."""
        for group in self._chained_groups():
            keys = self._keys(text, 0, n_pages, group)
            try:
                pages = self.namespace.lookup(b"".join(keys), text.handle).detach() if keys else []
            except kvlease.Error as error:
                _logger.info("looked up nothing: %s", error)
                return
            found = self._take_found(text, pages)
            for i, block_hash in enumerate(text.request.block_hashes[:n_pages]):
                own = None if i < len(found) else super().get_cached_block(block_hash, [group])
                self._answers[bytes(block_hash), group] = (
                    found[i] if i < len(found) else own[0] if own else None
                )

    def _keys(self, text: Text, first: int, end: int, group: int) -> list[bytes]:
        return [self._key(text, each, group) for each in text.request.block_hashes[first:end]]

    def _key(self, text: Text, block_hash: bytes, group: int) -> bytes:
        assert text.epoch is not None
        (key,) = self._state.keys(text.epoch, [block_hash])
        return _of_group(key, group)

    def _find(self, text: Text, longest: int) -> tuple[Any, int, int]:
        """Looks up anew each time. Pages of the last lookup stay pinned until this one is over."""
        before, text.found = text.found, []
        self._answers = {}
        assert text.epoch is not None
        can_share = self._state.can_share(text.epoch) and not self._verifier.has_failed
        self._asks = text if can_share else None
        try:
            if can_share:
                self._ask_for_chains(text, longest // self.hash_block_size)
            blocks, n_tokens, n_uncached = self._manager.coordinator.find_longest_cache_hit(
                text.request.block_hashes, longest
            )
        finally:
            self._asks = None
        used = {id(block) for group in blocks for block in group}
        surplus = [block for block in text.found if id(block) not in used]
        text.found = [block for block in text.found if id(block) in used]
        self._let_go(before + surplus)
        if self._is_verified(text):
            return self._manager.empty_kv_cache_blocks, 0, 0
        boundary = n_tokens + n_uncached if n_uncached else 0
        return self._manager.create_kv_cache_blocks(blocks), n_tokens, boundary

    def _begin_publishing(self, text: Text, computed: Any) -> None:
        text.n_done = Counter()
        for group, blocks in enumerate(computed.blocks if computed else ()):
            n_known = 0
            for block in blocks:
                if not block.is_null and not block.is_pinned:
                    break
                n_known += 1
            # Pages of a window have no parent: the request that computes one publishes it.
            text.n_done[group] = n_known if self._is_chained(group) else len(blocks)

    def _is_chained(self, group: int) -> bool:
        spec = self._manager.kv_cache_config.kv_cache_groups[group].kv_cache_spec
        return isinstance(spec, FullAttentionSpec)

    def _publish_run(self, text: Text, blocks: list[Block], first: int, group: int) -> None:
        keys = self._keys(text, max(0, first - 1), first + len(blocks), group)
        own = keys[-len(blocks) :]
        for block in blocks:
            block.group = group
        if self._is_chained(group):
            self._publish_keys(text, blocks, own, keys[0] if first else None)
            return
        for i, (block, key) in enumerate(zip(blocks, own, strict=True), first):
            # A block that no later text can begin behind has no key of vLLM.
            if block.block_hash is not None:
                passed = self._has_passed(text.request, i, group)
                self._publish_keys(text, [block], [key], None, passed)

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

    def _n_pages(self, n_tokens: int) -> int:
        """At least: a window may need fewer than a text has."""
        return super()._n_pages(n_tokens) * len(self._chained_groups()) or 1
