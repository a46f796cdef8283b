"""vLLM's own prefix cache: the manager of blocks of its scheduler, in its process, asked for a
request whose prompt is cached. Nothing is computed."""

from __future__ import annotations

from typing import Any

import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request

from peers.peer import PAGE_TOKENS, TEXT_PAGES, TEXT_TOKENS, Way, text


class Peer:
    """A manager of blocks of one group of full attention, with vLLM's default hash."""

    def __init__(self, server_core: int) -> None:
        init_none_hash(sha256)
        self._hash = get_request_block_hasher(PAGE_TOKENS, sha256)
        self._hashes: list[list[bytes]] = []
        self._manager: Any = None

    def fill(self, n_texts: int) -> None:
        """All blocks are free and cached then: what a finished request leaves."""
        spec = FullAttentionSpec(
            block_size=PAGE_TOKENS, num_kv_heads=1, head_size=64, dtype=torch.float16
        )
        config = KVCacheConfig(
            num_blocks=(n_texts + 1) * TEXT_PAGES,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        )
        self._manager = KVCacheManager(config, 2 * TEXT_TOKENS, PAGE_TOKENS, PAGE_TOKENS)
        pool = self._manager.block_pool
        for number in range(n_texts):
            request = self._request(number)
            request.block_hashes = self._hash(request)
            self._hashes.append(request.block_hashes)
            blocks = pool.get_new_blocks(TEXT_PAGES)
            pool.cache_full_blocks(request, blocks, 0, TEXT_PAGES, PAGE_TOKENS, 0)
            pool.free_blocks(reversed(blocks))

    def _request(self, number: int) -> Request:
        """vLLM computes at least the last token of a prompt: it is one behind the cached ones."""
        tokens = [*text(number), 1]
        return Request(str(number), tokens, SamplingParams(max_tokens=1), None)

    def _request_with_hashes(self, number: int) -> Request:
        """As it is once vLLM has hashed its tokens."""
        request = self._request(number)
        request.block_hashes = [bytes(bytearray(each)) for each in self._hashes[number]]
        return request

    def _hit(self, request: Request) -> int:
        blocks = self._manager.get_computed_blocks(request)[0].blocks[0]
        self._manager.block_pool.touch(blocks)
        self._manager.block_pool.free_blocks(reversed(blocks))
        return len(blocks)

    def _hit_tokens(self, request: Request) -> int:
        request.block_hashes = self._hash(request)
        return self._hit(request)

    def ways(self) -> dict[str, Way]:
        """By hashes that are known, and by tokens."""
        return {
            "vllm": Way(self._request_with_hashes, self._hit),
            "vllm-tokens": Way(self._request, self._hit_tokens),
        }

    def close(self) -> None:
        """Nothing was started."""
