"""vLLM with copies of its blocks in kvlease's pages, for any attention backend.

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "OffloadingConnector",
        "kv_role": "kv_both", "kv_connector_extra_config": {"spec_name": "KvleaseOffloadingSpec",
        "spec_module_path": "kvlease.vllm.offload"}}'

vLLM keeps its own KV cache, in whatever layout its kernels want. Full blocks of prompts are copied
into pages of kvleased's host memory, and back where a prompt is found there (docs/ENGINES.md).

vLLM's OffloadingConnector asks a manager, in the scheduler, what is where, and a worker to copy.
Here both are of one process, and share a connection.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, fields
from itertools import takewhile
from typing import Any

import torch
import vllm
from vllm.config import get_current_vllm_config
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec
from vllm.v1.kv_offload.base import (
    BlockIDsLoadStoreSpec,
    CanonicalKVCacheRef,
    CanonicalKVCaches,
    GPULoadStoreSpec,
    LoadStoreSpec,
    LookupResult,
    OffloadingManager,
    OffloadingSpec,
    OffloadingWorker,
    OffloadKey,
    PrepareStoreOutput,
    ReqContext,
    RequestOffloadingContext,
    ScheduleEndContext,
    TransferResult,
    get_offload_block_hash,
    get_offload_group_idx,
)
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec
from vllm.v1.kv_offload.cpu.gpu_worker import SingleDirectionOffloadingHandler

import kvlease
from kvlease import _engine, _verify
from kvlease._codecs import Codecs
from kvlease._digest import hash_parts
from kvlease.vllm import identity
from kvlease.vllm.weights import Computing, Epoch, State, Watch, on_stack

_logger = logging.getLogger("kvlease")

_WHO = "KvleaseOffloadingSpec"
# Of kv_connector_extra_config, what vLLM itself reads; the rest are identity.Options, but for what
# has no meaning here: pages are in host memory, and a loss is never an error.
_OF_VLLM = {
    "spec_name",
    "spec_module_path",
    "block_size",
    "blocks_per_chunk",
    "offload_prompt_only",
    "sync_load_budget_bytes",
}
_OF_OPTIONS = {each.name for each in fields(identity.Options)} - {"device", "on_loss"}
_OF_CODECS = {each.name for each in fields(Codecs)}
# Bytes that a page has at least, and a multiple of which it has (kvlease.h).
_LEAST_PAGE_BYTES = 4096
_ALIGNMENT = 64


@dataclass(frozen=True)
class Group:
    """Layers whose parts of a block, or of some blocks, lie in one page."""

    id: int
    """What vLLM's keys end with."""
    namespace: kvlease.Namespace
    chunk_tokens: int
    """Of a page."""
    verifier: _verify.Verifier
    is_chained: bool
    """Attention reaches back to the first token: a page is of use behind all pages before it. Those
    of sliding windows are found one by one."""
    sizes: list[int]
    """Numbers that each layer has of a page, one after the other; the rest is padding."""


class Cache:
    """A connection, and the namespaces on it: what manager and worker share."""

    def __init__(
        self,
        options: identity.Options,
        layouts: dict[int, kvlease.Layout],
        codecs: Codecs | None = None,
    ) -> None:
        """layouts: by the groups' ids. codecs: of pages below the device; None: as kvleased has it.
        ValueError where these can't be had."""
        (first, *_) = layouts.values()
        self.connection = kvlease.connect(
            options.socket,
            client_name=options.client_name or f"vllm {first.model}"[:64],
            timeout=None,
            reconnect=options.reconnect,
        )
        try:
            self.namespaces = {
                group: (codecs or Codecs()).open(self.connection, layout, "host")
                for group, layout in layouts.items()
            }
            for namespace in self.namespaces.values():
                namespace.check_room(1)
        except BaseException:
            self.connection.close()
            raise
        self.remote_timeout = options.remote_timeout
        self._events = _engine.Events(self.connection)

    def close(self) -> None:
        """What was found or leased is given back."""
        self._events.stop()
        self.connection.close()


# Whose worker is made, and whose scheduler isn't yet, by vLLM's id of the engine.
_caches: dict[str, tuple[Cache, list[Group], Watch]] = {}


@dataclass
class PageSpec(LoadStoreSpec):
    """Pages to be copied from or to, of each group, in the order of its blocks."""

    pages: list[list[int]]


@dataclass(eq=False)
class _Run:
    """Pages that are being filled, one after the other in a text."""

    group: Group
    keys: list[OffloadKey]
    hashes: list[bytes]
    """What the pages' keys are in kvleased."""
    pages: kvlease.Pages
    parent: bytes | None
    """Key of the page before; None: there is none, or it doesn't matter."""


@dataclass
class _Text:
    """Of a request, of each group by its id."""

    epoch: Epoch | None = None
    """What it is computed with; None: it isn't computed yet, or was begun with something else."""
    is_begun: bool = False
    last: dict[int, OffloadKey] = field(default_factory=dict)
    """The last page that was loaded, or was to be stored."""
    coming: dict[int, _engine.Coming] = field(default_factory=dict)
    """From other hosts."""
    awaits: dict[int, int] = field(default_factory=dict)
    """The step in which a lookup last ended with RETRY."""
    is_verified: bool | None = None
    """What is found of it is computed all the same; None: nothing was found yet."""


class Manager(OffloadingManager):
    """The scheduler's side.

    What is found is pinned until it is loaded, or until the step is scheduled that needs it not.
    What is to be stored is leased until it is copied, and then published. Nothing fails: without
    kvleased, or without a page, nothing is found, and nothing stored.
    """

    def __init__(
        self, cache: Cache, groups: list[Group], computing: Computing | None = None
    ) -> None:
        self._connection = cache.connection
        self._computing = computing or Computing()
        self._state = State()
        self._texts: dict[str, _Text] = {}
        self._groups = {group.id: group for group in groups}
        self._hosts = {
            group.id: _engine.Hosts(group.namespace, cache.remote_timeout) for group in groups
        }
        self._found: dict[OffloadKey, kvlease.Pages] = {}
        self._loading: dict[str, list[kvlease.Pages]] = {}
        self._storing: dict[OffloadKey, _Run] = {}
        # Of transfers from before a reset, which may be under way.
        self._fenced: list[kvlease.Pages] = []
        self._n_steps = 0
        self._looked_at = -1
        self._is_away = False
        self._is_void = False
        self.compared_pages = 0

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        """Of each chunk once is enough."""
        self._state = self._computing.state()
        text = self._texts[req_context.req_id] = _Text()
        req_context.set_state(text)
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: ReqContext) -> None:
        """Stores of it may be under way."""
        self._texts.pop(req_context.req_id, None)

    def _can_share(self, req_context: ReqContext) -> bool:
        """Whether the request's pages have keys, which are those of what it is computed with."""
        text = req_context.get_state(_Text)
        assert text is not None
        # One look for each step: vLLM asks for each chunk.
        if self._looked_at != self._n_steps:
            self._looked_at = self._n_steps
            self._state = self._computing.state()
        state = self._state
        if text.is_begun:
            text.epoch = text.epoch and state.go_on(text.epoch)
        else:
            text.epoch = state.begin(self._computing.lora_request(req_context.req_id))
        return (
            text.epoch is not None
            and state.can_share(text.epoch)
            and self._computing.is_clean(text.epoch)
            and self._is_there()
        )

    def _hashes(self, keys: Iterable[OffloadKey], req_context: ReqContext) -> list[bytes]:
        """What the keys of a request that can share are in kvleased."""
        text = req_context.get_state(_Text)
        assert text is not None and text.epoch is not None
        return self._state.keys(text.epoch, map(get_offload_block_hash, keys))

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        """A hit is pinned."""
        if not self._can_share(req_context):
            return LookupResult.MISS
        if key in self._found:
            return LookupResult.HIT
        group = self._groups[get_offload_group_idx(key)]
        try:
            (found,) = self._hashes([key], req_context)
            pages = group.namespace.lookup(found)
        except kvlease.Error as error:
            _logger.info("looked up nothing: %s", error)
            return LookupResult.MISS
        if not pages:
            return self._ask_others(group, key, req_context)
        text = req_context.get_state(_Text)
        if text is not None and text.is_verified is None:
            text.is_verified = group.verifier.picks()
        if text is not None and text.is_verified:
            self._give_back([pages])
            return LookupResult.MISS
        self._found[key] = pages
        return LookupResult.HIT

    def _ask_others(self, group: Group, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        """The key isn't cached: RETRY while other hosts may have it, and in this step behind a key
        with RETRY, where vLLM goes on. Nothing is asked for there: those before it aren't cached.
        """
        text = req_context.get_state(_Text)
        here = req_context.get_offload_key_position(key)
        if text is None or here is None or not group.is_chained:
            return LookupResult.MISS
        if text.awaits.get(group.id) == self._n_steps:
            return LookupResult.RETRY
        coming = text.coming.get(group.id)
        if coming is None:
            coming = text.coming[group.id] = self._hosts[group.id].text()
        if not coming.is_over and not coming.is_under_way:
            keys = [
                each
                for each, end in req_context._offload_key_positions.items()
                if get_offload_group_idx(each) == group.id and end % group.chunk_tokens == 0
            ]
            coming.ask(self._hashes(keys, req_context), here // group.chunk_tokens - 1)
        if coming.is_over:
            return LookupResult.MISS
        text.awaits[group.id] = self._n_steps
        return LookupResult.RETRY

    def prepare_load(self, keys: Collection[OffloadKey], req_context: ReqContext) -> PageSpec:
        """All were hits in this step. A request has one load at a time."""
        numbers: dict[int, list[int]] = {group: [] for group in self._groups}
        loading = self._loading[req_context.req_id] = []
        text = req_context.get_state(_Text)
        self._computing.expect(req_context.req_id, text.epoch if text else None)
        for key in keys:
            pages = self._found.pop(key)
            loading.append(pages)
            numbers[get_offload_group_idx(key)] += pages
        self._remember(keys, req_context)
        return PageSpec(list(numbers.values()))

    def complete_load(self, keys: Collection[OffloadKey], req_context: ReqContext) -> None:
        """Also where the request was aborted meanwhile."""
        self._computing.expect(req_context.req_id, None)
        self._give_back(self._loading.pop(req_context.req_id))

    def prepare_store(
        self, keys: Collection[OffloadKey], req_context: ReqContext
    ) -> PrepareStoreOutput:
        """Those that aren't cached, if there are pages for them: vLLM asks for none again."""
        runs: list[list[_Run]] = []
        can_share = self._can_share(req_context)
        for group in self._groups.values():
            own = [key for key in keys if get_offload_group_idx(key) == group.id]
            runs.append(self._runs(group, own, req_context) if own and can_share else [])
        self._remember(keys, req_context)
        accepted = {key: run for each in runs for run in each for key in run.keys}
        self._storing |= accepted
        pages = [[page for run in each for page in run.pages] for each in runs]
        return PrepareStoreOutput(list(accepted), PageSpec(pages), [])

    def complete_store(
        self, keys: Collection[OffloadKey], req_context: ReqContext, success: bool = True
    ) -> None:
        """Their bytes are in the pages: they are published."""
        for run in dict.fromkeys([self._storing.pop(key) for key in keys]):
            if success and self._is_there():
                self._publish(run)
            self._give_back([run.pages])

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        """Who wasn't scheduled looks it up again."""
        self._n_steps += 1
        for req_id in context.preempted_req_ids:
            if text := self._texts.get(req_id):
                text.is_begun = False
        for req_id in context.new_req_ids:
            if text := self._texts.get(req_id):
                # One that wasn't looked up begins all the same.
                text.epoch = text.epoch or self._state.begin(self._computing.lora_request(req_id))
                text.is_begun = True
        self._give_back(self._found.values())
        self._found = {}

    def reset_cache(self) -> None:
        """Drops what is cached, of all engines of the tenant with this layout; nothing where the
        model has changed since the last time: what others compute with isn't this engine's."""
        runs = dict.fromkeys(self._storing.values())
        self._fenced += [run.pages for run in runs]
        self._fenced += [pages for each in self._loading.values() for pages in each]
        # vLLM doesn't report the end of these loads. Their requests expect no adapter any more.
        for req_id in self._loading:
            self._computing.expect(req_id, None)
        self._storing, self._loading = {}, {}
        self._state = self._computing.state()
        if self._computing.has_changed:
            self._computing.has_changed = False
            return
        try:
            for group in self._groups.values():
                group.namespace.invalidate()
        except kvlease.Error as error:
            self._is_void = True
            _logger.error("couldn't drop what is cached, and finds nothing any more: %s", error)

    def on_reset_flushed(self) -> None:
        """Nothing of before the reset is under way any more."""
        self._give_back(self._fenced)
        self._fenced = []

    def shutdown(self) -> None:
        """The engine ends. Pages go with the connection, which the worker ends."""
        self._computing.close()

    def _is_there(self) -> bool:
        """Whether kvleased is: nobody waits for it."""
        was_away, self._is_away = self._is_away, not self._connection.is_connected
        if self._is_away and not was_away:
            _logger.error("kvleased is gone: nothing is found or stored until it is back")
        return not self._is_away and not self._is_void

    def _runs(self, group: Group, keys: list[OffloadKey], req_context: ReqContext) -> list[_Run]:
        """What of the keys, which follow each other, is to be stored, with pages."""
        try:
            if group.is_chained:
                return self._chained_run(group, keys, req_context)
            is_verified = self._is_verified(req_context)
            new = [
                key
                for key in keys
                if key not in self._storing
                and (is_verified or not self._is_known(group, key, req_context))
            ]
            if not new:
                return []
            pages = self._lease(group, len(new))
            return [
                _Run(group, [key], self._hashes([key], req_context), pages.take(1), None)
                for key in new[: len(pages)]
            ]
        except kvlease.Error as error:
            _logger.debug("stores nothing: %s", error)
            return []

    def _chained_run(
        self, group: Group, keys: list[OffloadKey], req_context: ReqContext
    ) -> list[_Run]:
        """One run, behind what is cached or being stored; none where nothing leads to it."""
        before = self._before(group, keys[0], req_context)
        if before is None and req_context.get_offload_key_position(keys[0]) != group.chunk_tokens:
            return []
        if before is not None and not self._is_known(group, before, req_context):
            return []
        hashes = b"".join(self._hashes(keys, req_context))
        first = 0 if self._is_verified(req_context) else len(group.namespace.probe(hashes))
        while first < len(keys) and keys[first] in self._storing:
            first += 1
        if first:
            before = keys[first - 1]
        # Behind what was evicted since, something may still be under way.
        new = list(takewhile(lambda key: key not in self._storing, keys[first:]))
        if not new:
            return []
        pages = self._lease(group, len(new))
        parent = None if before is None else self._hashes([before], req_context)[0]
        new = new[: len(pages)]
        return [_Run(group, new, self._hashes(new, req_context), pages, parent)]

    @staticmethod
    def _is_verified(req_context: ReqContext) -> bool:
        """Whether the text's pages are stored although they are cached, to be compared."""
        text = req_context.get_state(_Text)
        return text is not None and bool(text.is_verified)

    def _is_known(self, group: Group, key: OffloadKey, req_context: ReqContext) -> bool:
        """It is cached, or being stored."""
        (known,) = self._hashes([key], req_context)
        return key in self._storing or bool(group.namespace.probe(known))

    @staticmethod
    def _before(group: Group, key: OffloadKey, req_context: ReqContext) -> OffloadKey | None:
        """The key before that one, if the request has dealt with it last."""
        text = req_context.get_state(_Text)
        before = text.last.get(group.id) if text else None
        here = req_context.get_offload_key_position(key)
        if before is None or here is None:
            return None
        there = req_context.get_offload_key_position(before)
        return before if there == here - group.chunk_tokens else None

    @staticmethod
    def _remember(keys: Iterable[OffloadKey], req_context: ReqContext) -> None:
        text = req_context.get_state(_Text)
        assert text is not None
        text.last |= {get_offload_group_idx(key): key for key in keys}

    @staticmethod
    def _lease(group: Group, n_pages: int) -> kvlease.Pages:
        """At once, or not at all."""
        return group.namespace.lease(min(n_pages, kvlease.MAX_LEASE_PAGES), max_wait=0)

    def _publish(self, run: _Run) -> None:
        hashes = b"".join(run.hashes)
        own = list(run.pages)
        try:
            carried = run.group.namespace.publish(run.pages, hashes, parent=run.parent)
        except kvlease.NoParent as error:
            carried = error.published
        except kvlease.Error as error:
            _logger.debug("published nothing: %s", error)
            return
        if run.group.verifier.compares:
            self._compare(run, own, carried)
        self._give_back([carried])

    def _compare(self, run: _Run, own: list[int], carried: kvlease.Pages) -> None:
        """Compares what was copied into pages with what was published under their keys before."""
        group, left = run.group, list(run.pages)
        is_coded = _verify.may_be_coded(group.namespace)
        for i, (mine, theirs) in enumerate(zip(own, carried, strict=False)):
            if mine == theirs or carried.tier(i) != kvlease.Tier.DEVICE:
                continue
            copied, found = (
                torch.frombuffer(bytearray(page), dtype=group.verifier.dtype)
                for page in (run.pages.read(left.index(mine)), carried.read(i))
            )
            self.compared_pages += 1
            if _verify.differ_by_layer(copied, found, group.sizes, is_coded):
                self._is_void = True
                group.verifier.fail(theirs)
                return

    @staticmethod
    def _give_back(given: Iterable[kvlease.Pages]) -> None:
        """Where that can't be, the connection is over and takes the pages with it."""
        for pages in given:
            try:
                pages.close_soon()
            except kvlease.Error as error:
                _logger.debug("gave nothing back: %s", error)


class HostCopies:
    """Transfers of one group in one direction, as vLLM's SingleDirectionOffloadingHandler has them,
    where vLLM computes on the CPU: each is over when it is begun."""

    def __init__(
        self,
        blocks: list[torch.Tensor],
        pages: list[torch.Tensor],
        blocks_per_chunk: int,
        to_pages: bool,
    ) -> None:
        """Of each layer, or more of them: bytes of its blocks, and where they lie in pages."""
        self._blocks, self._pages = blocks, pages
        self._blocks_per_chunk = blocks_per_chunk
        self._to_pages = to_pages
        self._finished: list[TransferResult] = []

    def transfer_async(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        """From and to blocks and pages; of the first page the first blocks may be left out."""
        started = time.monotonic()
        blocks, pages = (src_spec, dst_spec) if self._to_pages else (dst_spec, src_spec)
        first = blocks.block_indices[0] % self._blocks_per_chunk
        n_copied = 0
        for i, block in enumerate(blocks.block_ids.tolist(), first):
            page = int(pages.block_ids[i // self._blocks_per_chunk])
            part = i % self._blocks_per_chunk
            for engines, ours in zip(self._blocks, self._pages, strict=True):
                n_bytes = engines.shape[1]
                piece = ours[page, part * n_bytes : (part + 1) * n_bytes]
                if self._to_pages:
                    piece.copy_(engines[block])
                else:
                    engines[block].copy_(piece)
                n_copied += n_bytes
        self._finished.append(TransferResult(job_id, True, n_copied, time.monotonic() - started))
        return True

    def get_finished(self) -> list[TransferResult]:
        """Since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def wait(self, job_ids: set[int]) -> None:
        """They are over."""

    def shutdown(self) -> None:
        """Lets go of the memory."""
        self._blocks, self._pages = [], []


class Worker(OffloadingWorker):
    """Copies between vLLM's blocks and pages that the manager has pinned or leased."""

    def __init__(
        self, cache: Cache, groups: list[Group], kv_caches: CanonicalKVCaches, blocks_per_chunk: int
    ) -> None:
        self._cache = cache
        self._arenas: list[kvlease.View] = []
        self._stores: list[Any] = []
        self._loads: list[Any] = []
        # Transfers under way: how many groups' aren't over, and of the others bytes and seconds.
        self._jobs: dict[int, tuple[int, int, float]] = {}
        for group, refs in zip(groups, kv_caches.group_data_refs, strict=True):
            arena = group.namespace.arena(writable=True, dtype="i8")
            self._arenas.append(arena)
            pages, blocks = torch.from_dlpack(arena), []
            parts, at = [], 0
            for ref in refs:
                blocks.append(kv_caches.tensors[ref.tensor_idx].tensor[:, : ref.page_size_bytes])
                n_bytes = ref.page_size_bytes * blocks_per_chunk
                parts.append(pages[:, at : at + n_bytes])
                at += n_bytes
            self._stores.append(_copies(blocks, parts, blocks_per_chunk, True))
            self._loads.append(_copies(blocks, parts, blocks_per_chunk, False))

    def submit_store(
        self, job_id: int, src_spec: GPULoadStoreSpec, dst_spec: LoadStoreSpec
    ) -> bool:
        """From blocks to pages."""
        for copies, blocks, pages in self._by_group(job_id, self._stores, src_spec, dst_spec):
            copies.transfer_async(job_id, blocks, pages)
        return True

    def submit_load(
        self,
        job_id: int,
        src_spec: LoadStoreSpec,
        dst_spec: GPULoadStoreSpec,
        expedited: bool = False,
    ) -> bool:
        """From pages to blocks."""
        for copies, blocks, pages in self._by_group(job_id, self._loads, dst_spec, src_spec):
            copies.transfer_async(job_id, pages, blocks)
        return True

    def get_finished(self) -> list[TransferResult]:
        """Those of which all groups' are over."""
        finished = []
        for copies in self._stores + self._loads:
            for result in copies.get_finished():
                n_left, n_bytes, seconds = self._jobs.pop(result.job_id)
                n_bytes += result.transfer_size
                seconds += result.transfer_time
                if n_left > 1:
                    self._jobs[result.job_id] = n_left - 1, n_bytes, seconds
                else:
                    finished.append(TransferResult(result.job_id, True, n_bytes, seconds))
        return finished

    def wait(self, job_ids: set[int]) -> None:
        """Until the engine's blocks may be read, or written."""
        for copies in self._stores + self._loads:
            copies.wait(job_ids)

    def shutdown(self) -> None:
        """Ends the connection, of the manager as well."""
        for copies in self._stores + self._loads:
            copies.shutdown()
        for arena in self._arenas:
            arena.release()
        self._cache.close()

    def _by_group(
        self, job_id: int, copies: list[Any], blocks: GPULoadStoreSpec, pages: LoadStoreSpec
    ) -> list[tuple[Any, GPULoadStoreSpec, BlockIDsLoadStoreSpec]]:
        """Parts of a transfer, which counts as begun."""
        assert isinstance(pages, PageSpec)
        parts, first = [], 0
        for i, (size, index) in enumerate(
            zip(blocks.group_sizes, blocks.block_indices, strict=True)
        ):
            if size:
                own = blocks.block_ids[first : first + size].tolist()
                part = GPULoadStoreSpec(own, [size], [index])
                parts.append((copies[i], part, CPULoadStoreSpec(pages.pages[i])))
            first += size
        self._jobs[job_id] = len(parts), 0, 0.0
        return parts


def _copies(
    blocks: list[torch.Tensor], pages: list[torch.Tensor], blocks_per_chunk: int, to_pages: bool
) -> Any:
    """Of one group in one direction; on a GPU vLLM's own, on a stream beside the model's."""
    if blocks[0].device.type == "cpu":
        return HostCopies(blocks, pages, blocks_per_chunk, to_pages)
    return SingleDirectionOffloadingHandler(
        list(blocks),
        list(pages),
        blocks_per_chunk,
        [[CanonicalKVCacheRef(i, each.shape[1]) for i, each in enumerate(blocks)]],
        gpu_to_cpu=to_pages,
        # Registered memory would have to stay mapped, and kvleased takes sets back.
        host_memory_is_pinned=False,
    )


def _layers(vllm_config: Any, group: Any) -> list[Any]:
    """Of attention, of a group."""
    context = vllm_config.compilation_config.static_forward_context
    return [context[name] for name in group.layer_names]


class KvleaseOffloadingSpec(OffloadingSpec):
    """What vLLM's OffloadingConnector makes twice: for the worker, then for the scheduler."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        given = {key: value for key, value in config.extra_config.items() if key not in _OF_VLLM}
        self._options = identity.Options.read(given, _WHO, _OF_OPTIONS | _OF_CODECS)
        self._codecs = Codecs.read(given)
        identity.refuse_version(self._options, _WHO)
        if config.parallel.world_size > 1:
            raise ValueError(f"the {_WHO} doesn't support {config.parallel.world_size} ranks")

    def get_worker(self, kv_caches: CanonicalKVCaches) -> OffloadingWorker:
        """Connects to kvleased, for the manager as well."""
        vllm_config = get_current_vllm_config()
        dtypes = {
            group.group_id: _layers(vllm_config, group)[0].get_kv_cache_spec(vllm_config).dtype
            for group in self.config.groups
        }
        for dtype in dtypes.values():
            _verify.check_dtype(self._options.verify, dtype)
        watch = Watch(self._options.weights)
        try:
            layouts = self.layouts(kv_caches, watch.identity)
            cache = Cache(self._options, layouts, self._codecs)
        except BaseException:
            watch.close()
            raise
        groups = [
            Group(
                id=group.group_id,
                namespace=cache.namespaces[group.group_id],
                chunk_tokens=layouts[group.group_id].page_tokens,
                verifier=_verify.Verifier(
                    self._options.verify,
                    cache.namespaces[group.group_id],
                    dtypes[group.group_id],
                    watch.identity,
                    lambda: watch.compare().identity(watch.identity),
                ),
                is_chained=group.sliding_window_size_in_chunks is None,
                sizes=[
                    ref.page_size_bytes * self.blocks_per_chunk // dtypes[group.group_id].itemsize
                    for ref in refs
                ],
            )
            for group, refs in zip(self.config.groups, kv_caches.group_data_refs, strict=True)
        ]
        _caches[self.config.engine_id] = cache, groups, watch
        return Worker(cache, groups, kv_caches, self.blocks_per_chunk)

    def get_manager(self) -> OffloadingManager:
        """On the connection of the worker, which is made first."""
        made = _caches.pop(self.config.engine_id, None)
        if made is None:
            raise ValueError(
                f"the {_WHO} doesn't support a worker in another process than the scheduler: "
                "--distributed-executor-backend uni"
            )
        cache, groups, watch = made
        return Manager(cache, groups, Computing(watch, on_stack(Scheduler)))

    def layouts(self, kv_caches: CanonicalKVCaches, model: bytes) -> dict[int, kvlease.Layout]:
        """Of the pages of each group, by its id, with the model's identity; ValueError for what
        this can't do."""
        vllm_config = get_current_vllm_config()
        why = identity.unsupported(vllm_config)
        if why:
            raise ValueError(f"the {_WHO} doesn't support {why}")
        return {
            group.group_id: self._layout(vllm_config, group, refs, model)
            for group, refs in zip(self.config.groups, kv_caches.group_data_refs, strict=True)
        }

    def _layout(
        self, vllm_config: Any, group: Any, refs: Iterable[Any], model: bytes
    ) -> kvlease.Layout:
        """Of the pages of a group: as identity.layout(), with the layers' own words in the salt.
        ValueError also for codecs by layer where its pages aren't those of one layer after the
        other."""
        layers = _layers(vllm_config, group)
        specs = [layer.get_kv_cache_spec(vllm_config) for layer in layers]
        for spec in specs:
            if not isinstance(spec, FullAttentionSpec | SlidingWindowSpec):
                raise ValueError(f"the {_WHO} doesn't support layers of {type(spec).__name__}")
        backends = [layer.get_attn_backend().get_name() for layer in layers]
        sizes = [ref.page_size_bytes for ref in refs]
        n_bytes = sum(sizes) * self.blocks_per_chunk
        page_bytes = max(_LEAST_PAGE_BYTES, -(-n_bytes // _ALIGNMENT) * _ALIGNMENT)
        self._codecs.refuse(
            len(self.config.groups),
            [size * self.blocks_per_chunk for size in sizes] if len(sizes) == len(layers) else [],
            page_bytes,
        )
        kind = (
            f"vllm {vllm.__version__} copies {backends[0]} {self.config.kv_cache_layout} "
            f"{vllm_config.cache_config.prefix_caching_hash_algo} {self.config.model.dtype}"
        )
        tokens = group.tokens_per_block * self.blocks_per_chunk
        words = f"{backends} {specs} {sizes} {self.blocks_per_chunk}"
        return kvlease.Layout(
            model=identity.model_name(vllm_config),
            dtype=_engine.DTYPES.get(specs[0].dtype, kvlease.DType.OTHER),
            n_layers=len(layers),
            n_kv_heads=specs[0].num_kv_heads,
            head_size=specs[0].head_size,
            page_tokens=tokens,
            plane_page_bytes=page_bytes,
            layer_group=group.group_id,
            salt=hash_parts(identity.salt(vllm_config, self._options, model), words.encode()),
            format=_engine.format_of(kind.encode(), f" {tokens}".encode()),
        )
