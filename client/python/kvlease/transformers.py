"""Continuous batching of transformers on pages of kvlease.

    kvlease.transformers.enable(model)
    model.generate_batch(...)

The blocks of the engine's KV cache become pages of kvlease, without a copy and without a patch of
transformers: a block's id is a page's number. What one process has computed, every other one of the
tenant finds that runs the same weights in the same way (docs/ENGINES.md has the details, and what
is refused).

An engine has one connection and one namespace. Its generation thread makes all calls; a thread of
its own keeps the connection going while the engine has nothing to do.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import inspect
import json
import logging
import random
import time
import types
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Literal

import torch
import transformers
from transformers.generation.continuous_batching import cache as engine_cache
from transformers.generation.continuous_batching import continuous_api as engine
from transformers.generation.continuous_batching.cache_allocators import (
    FULL_ATTENTION,
    FullAttentionCacheAllocator,
)

import kvlease
from kvlease import _engine
from kvlease._engine import Stats

__all__ = ["OLDEST", "Manager", "Options", "Stats", "disable", "enable"]

_logger = logging.getLogger("kvlease")

OLDEST = (5, 20)
"""The oldest release of transformers whose engine has the parts this module takes the place of."""

# What the engine pads its inputs with is read from one page and written to another.
_TRASH_PAGES = 2
# How long an engine that starts waits for the pages it can't do without.
_START_SECONDS = 60.0


@dataclass(frozen=True)
class Options:
    """What enable() was told; it says what each is."""

    socket: str | PathLike[str] | None = None
    client_name: str | None = None
    device: str | None = None
    weights: str | None = None
    salt: bytes = b""
    on_loss: Literal["error", "continue"] = "error"
    reconnect: float | None = 60


def enable(
    model: Any,
    *,
    socket: str | PathLike[str] | None = None,
    client_name: str | None = None,
    device: str | None = None,
    weights: str | None = None,
    salt: bytes = b"",
    on_loss: Literal["error", "continue"] = "error",
    reconnect: float | None = 60,
) -> None:
    """Lets continuous batching of a model compute on pages of kvlease.

    model: what init_continuous_batching() is called on, by generate_batch() or by the user; or a
    class of models (transformers.PreTrainedModel: all of them). Nothing happens before the engine
    makes its cache. That refuses with ValueError what can't be shared: attention that isn't full,
    tensor parallelism, asynchronous batching, an offload to the CPU, adapters that aren't merged.

    socket: of kvleased, as of kvlease.connect(). client_name: what kvleasectl shows. device: the
    UUID of a GPU or 'host'; None: the daemon's default, or, where the model is on the CPU, 'host'.
    weights: names the weights, where that is known; None: a fingerprint of all of them is made,
    which reads them once. salt: keeps equal prompts of others apart. on_loss: what happens once
    kvleased is gone and doesn't come back within `reconnect` seconds (None: for ever): 'error': all
    requests fail; 'continue': those go on that need no page more than the engine has.

    num_blocks of the ContinuousBatchingConfig is how many pages the engine holds at most; page_size
    is their size in tokens.
    """
    version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    if version < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ValueError(
            f"transformers {transformers.__version__} is too old for kvlease: {oldest} is needed"
        )
    if on_loss not in ("error", "continue"):
        raise ValueError(f"on_loss is 'error' or 'continue', not {on_loss!r}")
    options = Options(socket, client_name, device, weights, salt, on_loss, reconnect)
    manager = type("KvleaseManager", (Manager,), {"options": options})
    function = _with_globals(
        engine.ContinuousMixin.init_continuous_batching, ContinuousBatchingManager=manager
    )
    method = function if inspect.isclass(model) else types.MethodType(function, model)
    model.init_continuous_batching = method


def disable(model: Any) -> None:
    """Undoes enable(), of the same object; engines that run go on as they are."""
    if "init_continuous_batching" in vars(model):
        del model.init_continuous_batching


def _with_globals(function: Any, **replaced: Any) -> types.FunctionType:
    """A function of the engine as it is, but for classes it makes: ours instead of its own."""
    inner = inspect.unwrap(function)
    twin = types.FunctionType(
        inner.__code__, {**inner.__globals__, **replaced}, inner.__name__, inner.__defaults__
    )
    twin.__kwdefaults__ = inner.__kwdefaults__
    return twin


class Manager(engine.ContinuousBatchingManager):
    """The engine's manager, whose cache is on pages of kvlease."""

    options = Options()

    def __init__(
        self,
        model: Any,
        generation_config: Any,
        continuous_batching_config: Any,
        *arguments: Any,
        **keywords: Any,
    ) -> None:
        # Left open, the engine takes what this can't, on a GPU with flash attention.
        if continuous_batching_config.use_async_batching is None:
            continuous_batching_config = copy.copy(continuous_batching_config)
            continuous_batching_config.use_async_batching = False
        super().__init__(
            model, generation_config, continuous_batching_config, *arguments, **keywords
        )

    @property
    def kvlease(self) -> Cache | None:
        """The cache, with .stats; None before the first start and after the end."""
        processor = getattr(self, "batch_processor", None)
        return processor.cache if processor is not None else None

    def _create_batch_processor(self) -> Any:
        function = _with_globals(
            engine.ContinuousBatchingManager._create_batch_processor,
            PagedAttentionCache=functools.partial(Cache, self.options, self.model),
        )
        processor = function(self)
        if not isinstance(processor.scheduler.schedule_batch, _Patience):
            processor.scheduler.schedule_batch = _Patience(processor.scheduler)
        return processor

    def stop(self, *arguments: Any, **keywords: Any) -> None:
        """As the engine's; what isn't kept for a next session is given back."""
        cache = self.kvlease
        super().stop(*arguments, **keywords)
        if cache is not None and self.kvlease is None and not self.is_running():
            cache.close()

    def destroy(self) -> None:
        """As the engine's; all is given back."""
        cache = self.kvlease
        super().destroy()
        if cache is not None and not self.is_running():
            self.batch_processor = None
            cache.close()


class Cache(engine_cache.PagedAttentionCache):
    """The engine's cache: an arena of kvlease instead of a tensor of its own."""

    cache_allocators: dict[str, Any]
    num_sectors: int

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
        self.stats = Stats()
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
        layout = _layout(options, model, config, unused, dtype)
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
        self.num_sectors = min(self.num_sectors, n_pages - _TRASH_PAGES)
        self.pool = _Pool(self.num_sectors, self._namespace, options)
        allocator = _Allocator(
            self.stats,
            layout,
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
        n_bytes = (n_pages - _TRASH_PAGES) * self.bytes_per_sector
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

    def can_store_request_tokens(self, state: Any, request_len: int, dry_run: bool = False) -> bool:
        """As the engine's, but that pages come from kvleased: not to be had is no error."""
        if not dry_run:
            needed = self._allocator.needs_new_blocks(
                state.request_id, state.current_len(), request_len
            )
            if not self.pool.reserve(needed, self._allocator.request(state.request_id)):
                return False
        return bool(super().can_store_request_tokens(state, request_len, dry_run))

    def search_prefix_match(self, request_id: str, prompt_ids: list[int]) -> int:
        """How many tokens of the prompt are found; their pages are the request's."""
        return self._allocator.find(request_id, prompt_ids) if self.use_prefix_sharing else 0

    def mark_complete_blocks(self, state: Any, complete_blocks: dict[str, int]) -> None:
        """Publishes what the step that is over has filled, also of a request that ends with it."""
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
    elif dtype not in _engine.DTYPES:
        why = f"a cache of {dtype}"
    elif getattr(model, "_hf_peft_config_loaded", False):
        why = "an adapter beside the weights: merge it"
    if why:
        raise ValueError(f"kvlease.transformers doesn't support {why}")


def _layout(
    options: Options, model: Any, config: Any, allocator: Any, dtype: torch.dtype
) -> kvlease.Layout:
    """Says what pages hold, so that nobody finds what another engine, or another model, wrote.

    The weights, and all that the configuration says of how they are used, go into the salt: they
    have no other place that takes a hash.
    """
    settings = {
        key: value
        for key, value in config.to_dict().items()
        if key not in ("transformers_version", "_name_or_path")
    }
    # transformers, its version, the attention, how a block is made up, tokens of a block.
    attention = config._attn_implementation
    numbers = str(dtype).removeprefix("torch.")
    kind = f"transformers {transformers.__version__} {attention} block-kv {numbers}".encode()
    tail = f" {allocator.tokens_per_page}".encode()
    name = str(getattr(config, "_name_or_path", "") or type(model).__name__)
    return kvlease.Layout(
        model=name.rstrip("/").rpartition("/")[2][:64],
        dtype=_engine.DTYPES[dtype],
        n_layers=allocator.pages_per_block,
        n_kv_heads=allocator.num_key_value_heads,
        head_size=allocator.head_dim,
        page_tokens=allocator.tokens_per_page,
        plane_page_bytes=allocator.bytes_per_block,
        salt=_engine.salt(
            json.dumps(settings, sort_keys=True, default=str).encode(),
            options.weights.encode() if options.weights else _fingerprint(model),
            options.salt,
        ),
        format=_engine.format_of(kind, tail),
    )


def _fingerprint(model: Any) -> bytes:
    """Of all weights by name: their type, their shape, the sum of their bits, some of them as is.

    What was trained further, merged or quantized has another one. It takes as long as reading all
    of them once.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if not isinstance(tensor, torch.Tensor):
            continue
        flat = tensor.detach().contiguous().view(-1).view(torch.uint8)
        words = flat[: flat.numel() // 8 * 8].view(torch.int64)
        step = max(1, flat.numel() // 4096)
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} {int(words.sum())}".encode())
        digest.update(flat[::step].cpu().numpy().tobytes())
        digest.update(flat[flat.numel() // 8 * 8 :].cpu().numpy().tobytes())
    return digest.digest()


@dataclass
class _Text:
    """What is known of a request's tokens in the cache."""

    request: kvlease.Request
    n_complete: int = 0
    """Pages from the first one on that are filled."""
    n_keyed: int = 0
    """Of these, pages that were found or published."""
    last_key: bytes | None = None
    """Key of the last of these; None: there is none."""
    is_broken: bool = False
    """Nothing more can be published: what comes before isn't cached any more."""


class _Allocator(FullAttentionCacheAllocator):
    """Block tables whose blocks are pages.

    A page in a table is either the request's own, leased, or pinned: found, or published. Pinned
    pages have a pin for each table they are in. Nothing is written to them.
    """

    def __init__(self, stats: Stats, layout: kvlease.Layout, **keywords: Any) -> None:
        self._stats = stats
        self._layout = layout
        self._texts: dict[str, _Text] = {}
        super().__init__(**keywords)

    def _text(self, request_id: str) -> _Text:
        text = self._texts.get(request_id)
        if text is None:
            text = self._texts[request_id] = _Text(self.pool.namespace.request())
        return text

    def request(self, request_id: str) -> kvlease.Request:
        """The request, for kvleased's eviction policy."""
        return self._text(request_id).request

    def find(self, request_id: str, prompt: list[int]) -> int:
        """Tokens of the prompt whose pages were found, but never all. Asked once a request."""
        if request_id in self._texts:
            return 0
        text = self._text(request_id)
        # The last token is computed in any case: its logits are what is wanted.
        keys = self._layout.keys(prompt[: len(prompt) - 1])
        pages = self.pool.find(keys, text.request)
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
        if text.is_broken or first == end:
            return
        keys = self._layout.keys(
            tokens[first * self.tokens_per_page : end * self.tokens_per_page],
            parent=text.last_key,
        )
        own = table[first:end]
        pages = self.pool.publish(own, keys, text.last_key, text.request)
        table[first : first + len(pages)] = pages
        text.is_broken = len(pages) < len(own)
        if pages:
            text.n_keyed += len(pages)
            text.last_key = keys[32 * len(pages) - 32 : 32 * len(pages)]
        self._stats.published_pages += len(pages)
        self._stats.duplicate_pages += sum(map(int.__ne__, own, pages))

    def free_blocks(self, request_id: str, no_cache: bool = False) -> None:
        """Gives back the request's pages; what was published stays cached, as kvleased likes."""
        self.pool.drop(self.block_table.pop(request_id, []))
        text = self._texts.pop(request_id, None)
        if text is not None:
            self.pool.end(text.request)
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
        child.n_keyed, child.last_key = parent.n_keyed, parent.last_key
        return source[n_shared:], fresh


class _Pool:
    """The pages of an engine, in the place of the engine's pool of blocks.

    Blocks and sectors are the same here: pages. A page is spare (leased for what is scheduled
    next), private (leased, in a table) or pinned. Only reserve() and publish() raise, and only
    where kvleased is gone for good: what gives back has to work while all requests fail.
    """

    def __init__(self, budget: int, namespace: kvlease.Namespace, options: Options) -> None:
        self.namespace = namespace
        self.refusal: str | None = None
        """Why kvleased has refused a page since the field was last cleared."""
        self.keeps_spare = False
        """What requests give back is kept, for others that wait for it."""
        self.is_lost = False
        """kvleased is gone, and the engine goes on with what it has."""
        self._budget = budget
        self._on_loss = options.on_loss
        self._spare: list[int] = []
        self._private: set[int] = set()
        self._pins: Counter[int] = Counter()
        self.trash = self._lease_trash()

    def _lease_trash(self) -> tuple[int, int]:
        end = time.monotonic() + _START_SECONDS
        while True:
            try:
                read, write = self.namespace.lease(_TRASH_PAGES, max_wait=1).detach()
                return read, write
            except (kvlease.Full, kvlease.Quota, kvlease.Timeout) as error:
                if time.monotonic() > end:
                    raise
                _logger.warning("the engine can't start yet: %s", error)
                time.sleep(1)

    # What the engine asks.

    @property
    def num_free_sectors(self) -> int:
        """Pages the engine may still take: none while kvleased refuses them."""
        held = len(self._spare) + len(self._private) + len(self._pins)
        return 0 if self.refusal else max(0, self._budget - held)

    @property
    def free_sectors(self) -> range:
        """As many as num_free_sectors."""
        return range(self.num_free_sectors)

    def count_free_blocks(self, index: int) -> int:
        """Spare pages."""
        return len(self._spare)

    def get_free_blocks(self, index: int, num_blocks: int) -> list[int]:
        """Spare pages, for a table; there are that many."""
        n_left = len(self._spare) - num_blocks
        pages, self._spare = self._spare[n_left:], self._spare[:n_left]
        self._private.update(pages)
        return pages

    def set_blocks_per_sector(self, index: int, blocks_per_sector: int) -> None:
        """One, always."""

    def try_to_free_sectors(self) -> None:
        """Nothing: pages that aren't needed go back at once."""

    def reset(self) -> None:
        """Nothing: there are no pages but those in tables, which are freed before."""

    # What this module asks.

    def reserve(self, n_pages: int, request: kvlease.Request | None = None) -> bool:
        """Makes n_pages spare, or doesn't."""
        missing = n_pages - len(self._spare)
        if missing <= 0:
            return True
        held = len(self._spare) + len(self._private) + len(self._pins)
        if missing > self._budget - held:
            return False
        if self.is_lost:
            self.refusal = "kvleased is gone"
            return False
        try:
            while missing > 0:
                n_next = min(missing, kvlease.MAX_LEASE_PAGES)
                leased = self.namespace.lease(n_next, request, max_wait=0)
                self._spare += leased.detach()
                missing -= n_next
        except (kvlease.Full, kvlease.Quota, kvlease.Draining, kvlease.Timeout) as error:
            self.refusal = str(error)
            self.keeps_spare = True
            return False
        except kvlease.Error as error:
            self._lose(error)
            self.refusal = "kvleased is gone"
            return False
        return True

    def find(self, keys: bytes, request: kvlease.Request) -> list[int]:
        """Pages of the longest run that is cached, pinned, as far as the budget goes."""
        try:
            pages = list(self.namespace.lookup(keys, request).detach()) if keys else []
        except kvlease.Error as error:
            _logger.info("looked up nothing: %s", error)
            return []
        room = self.num_free_sectors
        n_kept = 0
        while n_kept < len(pages):
            room -= pages[n_kept] not in self._pins
            if room < 0:
                break
            n_kept += 1
        self._pins.update(pages[:n_kept])
        self._try(self.namespace.release, pages[n_kept:])
        return pages[:n_kept]

    def publish(
        self, own: list[int], keys: bytes, parent: bytes | None, request: kvlease.Request
    ) -> list[int]:
        """Publishes pages of a table; those that carry their keys, pinned, as far as it goes.

        Where somebody was first, that is theirs, and ours is given back; but where theirs isn't on
        the device, ours stays in the table, private.
        """
        if self.is_lost:
            return []
        try:
            carried = self.namespace.publish(own, keys, parent=parent, request=request)
        except (kvlease.NoParent, kvlease.Stale) as error:
            if error.code < 0:
                self._lose(error)
                return []
            carried = error.published
        except kvlease.Quota:
            return []
        except kvlease.Error as error:
            self._lose(error)
            return []
        on_device = self.namespace.info.tiers[0].n_pages
        pages = list(carried.detach())
        for i, (mine, theirs) in enumerate(zip(own, pages, strict=False)):
            if theirs >= on_device:
                self._try(self.namespace.release, [theirs])
                pages[i] = mine
                continue
            self._private.discard(mine)
            self._pins[theirs] += 1
            if mine != theirs:
                self._give_back([mine])
        return pages

    def is_pinned(self, page: int) -> bool:
        """Whether it was found or published."""
        return page in self._pins

    def pin(self, pages: list[int]) -> None:
        """One pin more of each: of a table that shares them."""
        self.namespace.pin(pages)
        self._pins.update(pages)

    def drop(self, pages: list[int]) -> None:
        """A table is gone, or a part of it."""
        private = [page for page in pages if page in self._private]
        pinned = [page for page in pages if page not in self._private]
        self._private.difference_update(private)
        self._pins.subtract(pinned)
        for page in pinned:
            if self._pins[page] <= 0:
                del self._pins[page]
        self._give_back(private)
        self._try(self.namespace.release, pinned)

    def give_back_spare(self) -> None:
        """Nobody waits for them."""
        self.keeps_spare = False
        if not self.is_lost:
            spare, self._spare = self._spare, []
            self._try(self.namespace.free, spare)

    def end(self, request: kvlease.Request) -> None:
        """The request is over."""
        with contextlib.suppress(kvlease.Error):  # it is a hint
            request.end()

    def close(self) -> None:
        """Gives back what no request holds."""
        self.give_back_spare()
        self._try(self.namespace.free, self.trash)

    def _give_back(self, private: list[int]) -> None:
        if self.keeps_spare or self.is_lost:
            self._spare += private
        else:
            self._try(self.namespace.free, private)

    def _try(self, call: Callable[[list[int]], None], pages: Iterable[int]) -> None:
        """Gives back; where that can't be, the connection is over and takes the pages with it."""
        numbers = list(pages)
        if not numbers:
            return
        try:
            call(numbers)
        except kvlease.Error as error:
            _logger.debug("gave nothing back: %s", error)

    def _lose(self, error: kvlease.Error) -> None:
        """kvleased is gone: raises, or goes on, as the user wants it."""
        sentence = f"kvleased is gone, and with it the engine's cache: {error}"
        # One that came back and doesn't know this engine may give its pages to others.
        if self._on_loss == "error" or not isinstance(error, kvlease.Disconnected):
            raise RuntimeError(sentence) from error
        if not self.is_lost:
            _logger.error("%s; requests go on as far as the pages it holds go", sentence)
        self.is_lost = True


@dataclass
class _Patience:
    """The scheduler's schedule_batch(), which waits where kvleased has no pages.

    The engine ends with an error where nothing can be scheduled. Its own answer to a full cache is
    to let go of some requests, which begin anew later: it does so here, too, as long as there are
    others. Where there are none it has to wait: the loop that asks tries again ten times a second.
    """

    scheduler: Any
    schedule: Callable[..., Any] = field(init=False)
    waits_since: float | None = None
    gives_way_at: float = 0
    holds_until: float = 0

    def __post_init__(self) -> None:
        self.schedule = self.scheduler.schedule_batch

    def __call__(self, token_budget: int, cache_budget: int) -> Any:
        """None in the first place: let go of a request and ask again; empty: nothing to do yet."""
        scheduler, pool = self.scheduler, self.scheduler.cache.pool
        nothing: tuple[list[Any], bool, int, int] = ([], False, 0, 0)
        active = scheduler.active_requests
        if not active:
            # Of those that let go, the last one ended otherwise.
            scheduler.block_new_requests = False
            if time.monotonic() < self.holds_until:
                return nothing
        pool.refusal = None
        result = self.schedule(token_budget, cache_budget)
        if pool.refusal is None:
            pool.give_back_spare()
        if result[0] is not None or pool.refusal is None:
            if self.waits_since is not None and result[0]:
                _logger.info("goes on after %.1f s", time.monotonic() - self.waits_since)
                self.waits_since = None
            return result
        if len(active) > 1 and scheduler.starved_requests:
            return result
        if pool.is_lost:
            raise RuntimeError("kvleased is gone, and the engine has no page for its requests")
        self._wait(pool)
        return nothing

    def _wait(self, pool: _Pool) -> None:
        now = time.monotonic()
        if self.waits_since is None:
            self.waits_since = now
            self.scheduler.cache.stats.waits += 1
            self.gives_way_at = now + random.uniform(*_engine.GIVE_WAY_SECONDS)
            _logger.warning("all requests wait for pages: %s", pool.refusal)
        elif now >= self.gives_way_at and self.scheduler.active_requests:
            # Another engine may wait for what this request holds, as it does for the other's.
            (state,) = self.scheduler.active_requests.values()
            again = state.create_equivalent_initial_request()
            state._status = type(state._status).FINISHED
            self.scheduler.finish_request(state.request_id)
            self.scheduler.add_waiting_request(again)
            self.scheduler.cache.stats.gave_way += 1
            self.holds_until = now + random.uniform(*_engine.GIVE_WAY_SECONDS) / 2
            self.gives_way_at = self.holds_until + random.uniform(*_engine.GIVE_WAY_SECONDS)
