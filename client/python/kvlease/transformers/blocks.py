"""Block tables of requests, whose blocks are pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from transformers.generation.continuous_batching.cache_allocators import FullAttentionCacheAllocator

import kvlease
from kvlease._engine import Coming, Hosts, Stats, ending
from kvlease._identity import Watched


@dataclass
class _Text:
    """What is known of a request's tokens in the cache."""

    request: kvlease.Request
    n_changes: int
    """Of the model, when the request began."""
    n_complete: int = 0
    """Pages from the first one on that are filled."""
    n_keyed: int = 0
    """Of these, pages that were found or published."""
    last_key: bytes | None = None
    """Key of the last of these; None: there is none."""
    last: list[int] = field(default_factory=list)
    """Its last two generated tokens."""
    is_broken: bool = False
    """Nothing more can be published: what comes before isn't cached any more."""


class Allocator(FullAttentionCacheAllocator):
    """Block tables whose blocks are pages.

    A page in a table is either the request's own, leased, or pinned: found, or published. Pinned
    pages have a pin for each table they are in. Nothing is written to them.
    """

    def __init__(
        self,
        stats: Stats,
        layout: kvlease.Layout,
        watched: Watched,
        hosts: Hosts,
        **keywords: Any,
    ) -> None:
        self._stats = stats
        self._layout = layout
        # A prompt is asked for several times, and a conversation's next one begins with it.
        self._memo = kvlease.key_memo(layout.page_tokens)
        self._watched = watched
        self.has_looked = False
        """At the model, since the step began whose pages are published."""
        self._hosts = hosts
        self._texts: dict[str, _Text] = {}
        # Of requests that wait.
        self._coming: dict[str, Coming] = {}
        super().__init__(**keywords)

    def _text(self, request_id: str) -> _Text:
        text = self._texts.get(request_id)
        if text is None:
            text = _Text(self.pool.namespace.request(), self._watched.n_changes)
            self._texts[request_id] = text
        return text

    def _is_known(self) -> bool:
        """Whether pages are those of a model that is known."""
        if self._watched.current is not None and not self._watched.look():
            self._watched.leave("the model was changed while the engine runs")
        return self._watched.current is not None

    def request(self, request_id: str) -> kvlease.Request:
        """The request, for kvleased's eviction policy."""
        return self._text(request_id).request

    def expect(self, prompt: list[int]) -> None:
        """A request with this prompt waits from now on."""
        self.pool.expect(self._keys(prompt))

    def _keys(self, prompt: list[int]) -> bytes:
        """Of what may be found: the last token is computed in any case, its logits are wanted.
        Nothing where the model isn't known."""
        if not self._is_known():
            return b""
        return self._layout.keys(
            prompt[: len(prompt) - 1], parent=self._watched.root(), memo=self._memo
        )

    def is_awaited(self, request_id: str, prompt: list[int]) -> bool:
        """Whether pages of a prompt that waits may come from other hosts."""
        coming = self._coming.get(request_id)
        if coming is None:
            coming = self._coming[request_id] = self._hosts.text()
        if coming.is_over or coming.is_under_way:
            return not coming.is_over
        keys = self._keys(prompt)
        split = [keys[at : at + 32] for at in range(0, len(keys), 32)]
        n_found = self.pool.count_cached(keys)
        return n_found < len(split) and coming.ask(split, n_found)

    def find(self, request_id: str, prompt: list[int]) -> int:
        """Tokens of the prompt whose pages were found, but never all. Asked once a request."""
        self._coming.pop(request_id, None)
        if request_id in self._texts:
            return 0
        text = self._text(request_id)
        keys = self._keys(prompt)
        pages = self.pool.find(keys, text.request)
        if pages and self.pool.verifier.picks():
            self._stats.verified += 1
            self.pool.drop(pages)
            pages = []
        n_tokens = len(pages) * int(self.tokens_per_page)
        self._stats.requests += 1
        self._stats.asked_tokens += len(prompt)
        self._stats.hit_tokens += n_tokens
        if pages:
            self.block_table[request_id] = pages
            text.n_complete = text.n_keyed = len(pages)
            text.last_key = keys[32 * len(pages) - 32 : 32 * len(pages)]
        return n_tokens

    def publish(self, request_id: str, tokens: list[int], n_new: int) -> None:
        """Publishes the pages that the last step has completed, n_new of them."""
        table = self.block_table.get(request_id)
        if table is None:
            return
        text = self._text(request_id)
        text.n_complete += n_new
        first, end = text.n_keyed, text.n_complete
        # Pages that another model has begun are nobody's.
        is_known = self._watched.current is not None if self.has_looked else self._is_known()
        self.has_looked = True
        if not is_known or text.n_changes != self._watched.n_changes:
            text.is_broken = True
        if text.is_broken or first == end:
            return
        new = tokens[first * self.tokens_per_page : end * self.tokens_per_page]
        keys = self._layout.keys(new, parent=text.last_key or self._watched.root(), memo=self._memo)
        own = table[first:end]
        pages = self.pool.publish(own, keys, text.last_key, text.request, new)
        table[first : first + len(pages)] = pages
        text.is_broken = len(pages) < len(own)
        if pages:
            text.n_keyed += len(pages)
            text.last_key = keys[32 * len(pages) - 32 : 32 * len(pages)]
        self._stats.published_pages += len(pages)
        self._stats.duplicate_pages += sum(map(int.__ne__, own, pages))

    def note_last(self, request_id: str, tokens: list[int]) -> None:
        """The request's last generated tokens, which may be the last at all."""
        if text := self._texts.get(request_id):
            text.last = tokens

    def free_blocks(self, request_id: str, no_cache: bool = False) -> None:
        """Gives back the request's pages; what was published stays cached, as kvleased likes."""
        self.pool.drop(self.block_table.pop(request_id, []))
        self._coming.pop(request_id, None)
        text = self._texts.pop(request_id, None)
        if text is not None:
            self.pool.end(text.request, ending("", text.last) if text.last else 0)
        if not self.block_table:
            self.pool.give_back_spare()

    def free_all_requests(self) -> None:
        """Gives back the pages of all requests."""
        for request_id in [*self.block_table, *self._texts]:
            self.free_blocks(request_id)

    def count_shareable_blocks(self, source_request_id: str, past_length: int) -> int:
        """Pages from the first one on that a fork can pin: full and published."""
        n_full = super().count_shareable_blocks(source_request_id, past_length)
        pages = self.block_table[source_request_id][:n_full]
        return next((i for i, page in enumerate(pages) if not self.pool.is_pinned(page)), n_full)

    def fork_blocks(
        self, source_request_id: str, dest_request_id: str, past_length: int
    ) -> tuple[list[int], list[int]]:
        """A table that shares what is published; returns which pages are to be copied where to."""
        source = self.block_table[source_request_id]
        n_shared = self.count_shareable_blocks(source_request_id, past_length)
        self.pool.pin(source[:n_shared])
        fresh = self.pool.get_free_blocks(self.index, len(source) - n_shared)
        self.block_table[dest_request_id] = source[:n_shared] + fresh
        parent, child = self._text(source_request_id), self._text(dest_request_id)
        child.n_complete, child.is_broken = parent.n_complete, parent.is_broken
        child.n_changes = parent.n_changes
        child.n_keyed, child.last_key = parent.n_keyed, parent.last_key
        return source[n_shared:], fresh
