"""SGLang's radix tree of token ids, in its process: the core in Rust, which is its default, behind
the interface that its cache uses."""

from __future__ import annotations

from array import array

import torch
from sglang.srt.mem_cache.base_prefix_cache import InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.rust_tree_core.adapter import RustUnifiedTreeCore
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType

from peers.peer import PAGE_TOKENS, TEXT_TOKENS, Way, text


class Peer:
    """A tree of full attention without pools of memory."""

    def __init__(self, server_core: int) -> None:
        self._tree = RustUnifiedTreeCore(
            CacheInitParams(
                disable=False,
                req_to_token_pool=None,
                token_to_kv_pool_allocator=None,
                page_size=PAGE_TOKENS,
                tree_components=(ComponentType.FULL,),
            )
        )

    def fill(self, n_texts: int) -> None:
        """All texts, at slots one behind the other."""
        for number in range(n_texts):
            slots = torch.arange(number * TEXT_TOKENS, (number + 1) * TEXT_TOKENS)
            self._tree.begin_insert(InsertParams(key=RadixKey(text(number)), value=slots))
            while self._tree.has_ongoing_insert():
                self._tree.resume_insert()
            self._tree.end_insert()

    def _hit(self, tokens: array[int]) -> int:
        found = self._tree.match_prefix(MatchPrefixParams(key=RadixKey(tokens)))
        node = found.last_device_node
        lock = self._tree.inc_lock_ref(node)
        self._tree.dec_lock_ref(node, lock.to_dec_params())
        return int(found.device_prefix_len) // PAGE_TOKENS

    def ways(self) -> dict[str, Way]:
        """It has no keys but tokens."""
        return {"sglang-tokens": Way(text, self._hit)}

    def close(self) -> None:
        """Nothing was started."""
