"""The engine's cache: its tensor is an arena of kvlease."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from typing import Any

import torch
from transformers.generation.continuous_batching import cache as engine_cache
from transformers.generation.continuous_batching.cache_allocators import FULL_ATTENTION
from transformers.utils.generic import is_flash_attention_requested

import kvlease
from kvlease import _engine, _verify
from kvlease.transformers.blocks import Allocator
from kvlease.transformers.identity import make_layout, watch
from kvlease.transformers.options import Options
from kvlease.transformers.pool import TRASH_PAGES, Pool

# Of an attention mask, where the user says neither how large a batch is nor the cache. Not tuned:
# 512 tokens by the 130,000 of a cache, in bfloat16 twice as many.
_MASK_BYTES = 256 << 20
_LEAST_BATCH_TOKENS = 512


class Cache(engine_cache.PagedAttentionCache):
    """The engine's cache: an arena of kvlease instead of a tensor of its own."""

    cache_allocators: dict[str, Any]
    num_sectors: int
    max_batch_tokens: int

    def __init__(
        self,
        options: Options,
        model: Any,
        config: Any,
        continuous_batching_config: Any,
        device: torch.device,
        distributed_helper: Any,
        dtype: torch.dtype,
        **keywords: Any,
    ) -> None:
        _refuse(model, config, continuous_batching_config, distributed_helper, dtype)
        self.stats = _engine.Stats()
        self.has_begun = False
        """A session has computed on it, or does so. Without that it was made by warmup()."""
        self._is_closed = False
        # Sizes and budgets are the engine's own; the tensor that it makes for them takes no memory.
        super().__init__(
            config,
            continuous_batching_config,
            torch.device("meta"),
            distributed_helper,
            dtype,
            **keywords,
        )
        self.device = device
        unused = self.cache_allocators[FULL_ATTENTION]
        if self.bytes_per_sector != unused.bytes_per_block:
            raise ValueError(
                f"a block of {unused.bytes_per_block} bytes isn't a multiple of 128: "
                "kvlease needs another page_size"
            )
        self._model = model
        self.watched = watch(options, model)
        layout = make_layout(options, self.watched, model, config, unused, dtype)
        self._connection = kvlease.connect(
            options.socket,
            client_name=options.client_name or f"transformers {layout.model}"[:64],
            timeout=None,
            reconnect=options.reconnect,
        )
        try:
            on_host = "host" if torch.device(device).type == "cpu" else None
            self._namespace = self._connection.namespace(
                layout=layout,
                device=options.device or on_host,
                stride_bytes=layout.plane_page_bytes,
            )
            self._take_over(unused, config, layout, options, continuous_batching_config)
        except BaseException:
            # Tensors that frames of the exception have keep it open until those are gone.
            with contextlib.suppress(BufferError):
                self._drop_tensors()
                self._connection.close()
            raise
        self._events = _engine.Events(self._connection)

    def _take_over(
        self,
        unused: Any,
        config: Any,
        layout: kvlease.Layout,
        options: Options,
        continuous_batching_config: Any,
    ) -> None:
        """Puts an allocator over the arena where the engine's own one was."""
        info = self._namespace.info
        if not info.is_contiguous:
            raise ValueError("pages aren't contiguous on this device: kvleased hands them over so")
        if info.is_cpu_memory != (torch.device(self.device).type == "cpu"):
            raise ValueError(f"the model is on {self.device}, the pages are on {info.device}")
        n_pages = info.tiers[0].n_pages
        self.num_sectors = min(self.num_sectors, n_pages - TRASH_PAGES)
        if not is_flash_attention_requested(config):
            self._bound_masks(continuous_batching_config, layout.page_tokens)
        self.max_tokens_read = self.num_sectors * layout.page_tokens
        self.num_blocks = self.num_sectors
        self._n_layers = layout.n_layers
        verifier = _verify.Verifier(
            options.verify,
            self._namespace,
            unused.cache_dtype,
            self.watched.identity,
            self._identify,
        )
        self.pool = Pool(self.num_sectors, self._namespace, options, verifier, self._differ)
        self._prefill = _engine.Prefill(self._namespace, layout.page_tokens)
        allocator = Allocator(
            self.stats,
            layout,
            self.watched,
            _engine.Hosts(self._namespace, options.remote_timeout),
            index=unused.index,
            config=config,
            num_key_value_heads=unused.num_key_value_heads,
            cache_dtype=unused.cache_dtype,
            page_size=unused.tokens_per_page,
            layer_indices=unused.layer_indices,
            allow_block_sharing=continuous_batching_config.allow_block_sharing,
        )
        self._arena = self._namespace.arena(writable=True)
        self.cache_tensor = torch.from_dlpack(self._arena).view(-1)
        n_bytes = (n_pages - TRASH_PAGES) * self.bytes_per_sector
        allocator.register_cache_tensor(
            self.bytes_per_sector, n_bytes, self.cache_tensor, self.pool
        )
        read, write = self.pool.trash
        self.cache_tensor.view(n_pages, -1)[read].zero_()
        allocator.read_trash_index = read * allocator.block_physical_stride
        allocator.sentinel_index = allocator.read_trash_index + 1
        allocator.write_trash_index = write * allocator.block_physical_stride
        self.cache_allocators = {FULL_ATTENTION: allocator}
        self.layer_to_allocator = dict.fromkeys(allocator.layer_indices, allocator)
        self._allocator = allocator

    def _bound_masks(self, batching: Any, page_tokens: int) -> None:
        """The engine takes most of the memory that is free for the cache, whose memory this isn't,
        and for an attention mask of all tokens of a batch by all of the cache: what the user leaves
        open of both is so small that the mask is."""
        room = _MASK_BYTES // self.dtype.itemsize
        if batching.num_blocks is None:
            n_rows = batching.max_batch_tokens or _LEAST_BATCH_TOKENS
            n_most = max(room // n_rows - n_rows, n_rows) // page_tokens
            self.num_sectors = min(self.num_sectors, max(n_most, 1))
        if batching.max_batch_tokens is None:
            n_read = self.num_sectors * page_tokens
            n_rows = (math.isqrt(n_read * n_read + 4 * room) - n_read) // 2
            self.max_batch_tokens = min(self.max_batch_tokens, max(n_rows, _LEAST_BATCH_TOKENS))

    def _differ(self, own: int, other: int) -> bool:
        """Whether two pages hold other numbers, in any layer."""
        self.stats.compared_pages += 1
        memory = self.cache_tensor.view(self._namespace.info.tiers[0].n_pages, -1)
        dtype = self._allocator.cache_dtype
        mine, theirs = (memory[page].view(dtype) for page in (own, other))
        sizes = [len(mine) // self._n_layers] * self._n_layers
        is_coded = _verify.may_be_coded(self._namespace)
        return _verify.differ_by_layer(mine, theirs, sizes, is_coded)

    def _identify(self) -> bytes | None:
        """The identity of the model as it is now; None: it isn't known."""
        self.watched.renew()
        return self.watched.current

    def renew(self) -> None:
        """The model may be another one than before; nothing computes meanwhile."""
        if getattr(self._model, "_hf_peft_config_loaded", False):
            self.watched.leave("an adapter was loaded beside the weights")
        else:
            self.watched.renew()

    def can_store_request_tokens(self, state: Any, request_len: int, dry_run: bool = False) -> bool:
        """As the engine's, but that pages come from kvleased: not to be had is no error."""
        if not dry_run:
            needed = self._allocator.needs_new_blocks(
                state.request_id, state.current_len(), request_len
            )
            if not self.pool.reserve(needed, self._allocator.request(state.request_id)):
                return False
        return bool(super().can_store_request_tokens(state, request_len, dry_run))

    def why_never(self, state: Any) -> str | None:
        """The sentence of an error where a request can't ever have the pages that it asks for. One
        without a limit may go on as long as its tokens can be had."""
        n_new = len(state.generated_tokens) + 1
        if state.max_new_tokens is not None:
            n_new = state.max_new_tokens
        n_tokens = len(state.initial_tokens) + n_new
        # The last token is sampled, and not computed with.
        n_pages = -(-(n_tokens - 1) // int(self._allocator.tokens_per_page))
        return self.pool.why_never(n_tokens, n_pages)

    def begin_step(self, n_tokens: Iterable[int]) -> None:
        """A step is scheduled that computes so many tokens of each of its requests."""
        self._prefill.begin(n_tokens)
        self._allocator.has_looked = False

    def expect(self, state: Any) -> None:
        """The request is in the queue from now on."""
        if self.use_prefix_sharing:
            self._allocator.expect(state.remaining_prefill_tokens)

    def is_awaited(self, state: Any) -> bool:
        """Whether pages of a request that waits may come from other hosts: it doesn't begin yet."""
        if not self.use_prefix_sharing:
            return False
        return self._allocator.is_awaited(state.request_id, state.remaining_prefill_tokens)

    def search_prefix_match(self, request_id: str, prompt_ids: list[int]) -> int:
        """How many tokens of the prompt are found; their pages are the request's."""
        return self._allocator.find(request_id, prompt_ids) if self.use_prefix_sharing else 0

    def mark_complete_blocks(self, state: Any, complete_blocks: dict[str, int]) -> None:
        """Publishes what the step that is over has filled, also of a request that ends with it.
        Called of each of its requests."""
        self._prefill.end()
        self._allocator.note_last(state.request_id, state.generated_tokens[-2:])
        if self.use_prefix_sharing and complete_blocks:
            tokens = state.initial_tokens + state.generated_tokens
            self._allocator.publish(state.request_id, tokens, complete_blocks[FULL_ATTENTION])

    def evict_cached_blocks(self) -> bool:
        """Nothing: what is cached is kvleased's, which makes room by itself."""
        return False

    def prepare_fork_request(
        self, src_state: Any, dst_req_ids: list[str], copy_src_and_dst: dict[str, Any]
    ) -> list[str]:
        """As the engine's; children for whom there is no page begin anew, as there."""
        needed = self._allocator.count_non_shareable_blocks(
            src_state.request_id, src_state.current_len()
        )
        forked: list[str] = []
        for child in dst_req_ids:
            if not self.pool.reserve(needed):
                break
            forked += super().prepare_fork_request(src_state, [child], copy_src_and_dst)
        return forked

    def close(self) -> None:
        """Gives all pages back and ends the connection. Nothing may compute any more."""
        if self._is_closed:
            return
        self._is_closed = True
        self._events.stop()
        self.free_all_requests()
        self.pool.close()
        self._drop_tensors()
        self._connection.close()

    def _drop_tensors(self) -> None:
        """Lets go of the arena, which can't be unmapped under a tensor."""
        for allocator in self.__dict__.pop("cache_allocators", {}).values():
            for name in ("cache_tensor", "_copy_view", "_kv_token_views", "_kv_page_views"):
                vars(allocator).pop(name, None)
        self.cache_allocators = {}
        self.__dict__.pop("cache_tensor", None)
        arena = self.__dict__.pop("_arena", None)
        if arena is not None:
            arena.release()


def _refuse(model: Any, config: Any, batching: Any, distributed: Any, dtype: torch.dtype) -> None:
    """ValueError for what this can't do, before anything is made."""
    kinds = set(engine_cache.group_layers_by_attn_type(config))
    why = None
    if kinds != {FULL_ATTENTION}:
        why = f"layers of {', '.join(sorted(kinds - {FULL_ATTENTION}))}: only full attention is"
    elif distributed.tp_size > 1:
        why = f"tensor parallelism ({distributed.tp_size} ranks)"
    elif batching.use_async_batching:
        why = "asynchronous batching: set use_async_batching=False"
    elif batching.cpu_offload_space != 0:
        why = "an offload to the CPU: set cpu_offload_space=0, kvleased has tiers for that"
    elif dtype not in _verify.DTYPES:
        why = f"a cache of {dtype}"
    elif getattr(model, "_hf_peft_config_loaded", False):
        why = "an adapter beside the weights: merge it"
    if why:
        raise ValueError(f"kvlease.transformers doesn't support {why}")
