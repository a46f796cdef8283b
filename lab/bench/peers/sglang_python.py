"""SGLang's radix tree in Python, which it has where the one in Rust can't be used."""

from __future__ import annotations

from array import array

import torch
from sglang.srt.mem_cache.base_prefix_cache import InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey

from peers.peer import PAGE_TOKENS, TEXT_TOKENS, Way, text


class Peer:
    """A tree without pools of memory."""

    def __init__(self, server_core: int) -> None:
        self._tree = RadixCache.create_simulated(page_size=PAGE_TOKENS)

    def fill(self, n_texts: int) -> None:
        """All texts, at slots one behind the other."""
        for number in range(n_texts):
            slots = torch.arange(number * TEXT_TOKENS, (number + 1) * TEXT_TOKENS)
            self._tree.insert(InsertParams(key=RadixKey(text(number)), value=slots))

    def _hit(self, tokens: array[int]) -> int:
        found = self._tree.match_prefix(MatchPrefixParams(key=RadixKey(tokens)))
        self._tree.inc_lock_ref(found.last_device_node)
        self._tree.dec_lock_ref(found.last_device_node)
        return int(found.device_prefix_len) // PAGE_TOKENS

    def ways(self) -> dict[str, Way]:
        """It has no keys but tokens."""
        return {"sglang-python-tokens": Way(text, self._hit)}

    def close(self) -> None:
        """Nothing was started."""
