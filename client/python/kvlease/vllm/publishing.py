"""Publishing: pages that a step has filled become others' to find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import kvlease
from kvlease import _engine
from kvlease.vllm.texts import GROUP, Block, Text, Texts


class Publishing(Texts):
    """What a pool publishes of its texts, and has compared with what others have."""

    _publishes: bool
    _to_compare: dict[int, Block]
    _compared: dict[int, Block]

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
        text.n_done = Counter({GROUP: len(text.found)})

    @staticmethod
    def _is_to_publish(block: Block) -> bool:
        return not block.is_null and not block.is_pinned and not block.is_duplicate

    def _publish_run(self, text: Text, blocks: list[Block], first: int, group: int) -> None:
        """Pages that follow each other, the first of them as the text's page of that number."""
        before = max(0, first - 1)
        keys = self._keys(text, before, first + len(blocks), group)
        self._publish_keys(text, blocks, keys[first - before :], keys[0] if first else None)

    def _publish_keys(
        self,
        text: Text,
        blocks: list[Block],
        keys: list[bytes],
        parent: bytes | None,
        window_passed: bool = False,
    ) -> None:
        own = [block.block_id for block in blocks]
        try:
            carried = self.namespace.publish(
                own,
                b"".join(keys),
                parent=parent,
                request=text.handle,
                window_passed=window_passed,
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
