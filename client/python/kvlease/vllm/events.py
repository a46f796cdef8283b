"""What routers learn: token ids of pages, and vLLM's KV cache events of an engine in place.

What is told is what this engine has stored or found. A page that kvleased evicts, or that another
engine drops, is told as removed some steps later: the engine looks at some keys in each step.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_events import AllBlocksCleared
from vllm.v1.core.kv_cache_utils import make_block_hash_with_group_id

import kvlease

if TYPE_CHECKING:
    from kvlease.vllm.pool import Pool

# Keys that are looked at in a step, and those of them that may be found to be gone: each of these
# costs a call. Not tuned.
_LOOKS = 256
_MOST_GONE = 16


@dataclass(frozen=True)
class Tokens:
    """What kvlease-events tells routers of pages that follow each other in a text."""

    token_ids: list[int] | None = None
    """None: more than tokens and names tells the text apart."""
    lora_name: str | None = None
    cache_salt: str | None = None

    @classmethod
    def of(cls, request: Any, first: int, end: int) -> Tokens:
        """Of a request's tokens from first to before end."""
        lora = request.lora_request.name if request.lora_request else None
        salt = request.cache_salt
        # A client may send any salt, also text that isn't UTF-8.
        is_plain = f"{lora or ''}{salt or ''}".isprintable()
        if request.mm_features or request.prompt_embeds is not None or not is_plain:
            return UNTOLD
        return cls(list(request.all_token_ids[first:end]), lora, salt)


UNTOLD = Tokens()


class Told:
    """Blocks that were told as stored, and not as removed."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        # By vLLM's hash of a block with its group: the key of its page; None: not published yet.
        self._keys: dict[Any, bytes | None] = {}

    def stored(self, n_events: int, new: list[Any]) -> None:
        """The pool's last event, behind that many, is of blocks with these hashes, which a request
        fills now. Blocks that were told before aren't told again."""
        if len(self._pool.kv_event_queue) > n_events:
            self._tell([each not in self._keys for each in new])
        # What was evicted, and is computed anew, isn't looked at before it is published.
        self._keys |= dict.fromkeys(new)

    def published(self, block_hash: Any, key: bytes) -> None:
        """The page of a block has that key, or another page that holds the same."""
        if block_hash in self._keys:
            self._keys[block_hash] = key

    def found(self, request: Any, blocks: list[Any], keys: list[bytes], group: int) -> None:
        """A request begins with these blocks of kvleased's; keys: of their pages. Tells those that
        weren't told, and all where the request asks for it."""
        size = self._pool.hash_block_size
        hashes = [
            make_block_hash_with_group_id(each, group)
            for each in request.block_hashes[: len(blocks)]
        ]
        tells_all = getattr(request, "kv_cache_report_mode", "incremental") == "full"
        are_new = [
            not block.is_null and (tells_all or each not in self._keys)
            for block, each in zip(blocks, hashes, strict=True)
        ]
        if not any(are_new):
            return
        self._pool.emit_cached_block_events(request, len(blocks), size, group)
        self._tell(are_new)
        for block, each, key in zip(blocks, hashes, keys, strict=True):
            if not block.is_null:
                # Blocks that another request of the engine fills aren't published yet.
                self._keys.setdefault(each, key if block.is_pinned else None)

    def _tell(self, are_new: list[bool]) -> None:
        """The queue's last event, of blocks that follow each other, is told of the new ones alone:
        one event of each run of them."""
        queue = self._pool.kv_event_queue
        event = queue.pop()
        size = event.block_size
        is_whole = len(event.block_hashes) == len(are_new)
        if any(are_new) and not (is_whole and len(event.token_ids) == size * len(are_new)):
            # A window's event also has tokens of blocks that the event doesn't name.
            queue.append(event)
            return
        first = 0
        for is_new, run in groupby(are_new):
            end = first + len(list(run))
            if is_new:
                part = copy(event)
                part.block_hashes = event.block_hashes[first:end]
                part.token_ids = event.token_ids[first * size : end * size]
                if first:
                    part.parent_block_hash = event.block_hashes[first - 1]
                for name in ("extra_keys", "lookahead_token_ids"):
                    if of_blocks := getattr(event, name, None):
                        setattr(part, name, of_blocks[first:end])
                queue.append(part)
            first = end

    def removed(self, hashes: list[Any]) -> None:
        """vLLM's pool tells these as removed."""
        for each in hashes:
            self._keys.pop(each, None)

    def freed(self, hashes: list[Any]) -> None:
        """A block with these hashes is no one's any more: told as removed where no other block of
        the engine has them, and no page of kvleased."""
        gone = [each for each in hashes if self._keys.get(each, b"") is None]
        self._pool._emit_block_removed_events(self._unshared(gone))

    def _unshared(self, hashes: list[Any]) -> list[Any]:
        """Those of which no request of the engine has a block that others may share."""
        has_block = self._pool.cached_block_hash_to_block.get_one_block
        return [each for each in hashes if has_block(each) is None]

    def clear(self) -> None:
        """Nothing of before is found any more."""
        queue = self._pool.kv_event_queue
        if not queue or not isinstance(queue[-1], AllBlocksCleared):
            queue.append(AllBlocksCleared())
        self._keys.clear()

    def look(self) -> None:
        """Tells what kvleased hasn't any more, of some pages."""
        looked_at = list(islice(self._keys.items(), _LOOKS))
        for each, key in looked_at:
            # It is looked at again once all others were.
            del self._keys[each]
            self._keys[each] = key
        asked = [(each, key) for each, key in looked_at if key is not None]
        gone: list[Any] = []
        try:
            while asked and len(gone) < _MOST_GONE:
                keys = b"".join(key for _, key in asked)
                n_cached = len(self._pool.namespace.probe(keys))
                gone += [each for each, _ in asked[n_cached : n_cached + 1]]
                asked = asked[n_cached + 1 :]
        except kvlease.Error:
            # Pages of a connection that is over can't be found by this engine, and stay told.
            return
        # This engine finds the blocks that its requests hold, also after kvleased has dropped them.
        self._pool._emit_block_removed_events(self._unshared(gone))
