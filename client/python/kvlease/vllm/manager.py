"""The scheduler's side of copies: finds pages for requests, and leases pages for their blocks.

vLLM keeps its own KV cache, in whatever layout its kernels want. Full blocks of prompts are copied
into pages of kvleased's host memory, and back where a prompt is found there.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile

from vllm.v1.kv_offload.base import (
    LookupResult,
    OffloadingManager,
    OffloadKey,
    PrepareStoreOutput,
    ReqContext,
    RequestOffloadingContext,
    ScheduleEndContext,
    get_offload_block_hash,
    get_offload_group_idx,
)

import kvlease
from kvlease import _engine, _verify
from kvlease.vllm.computing import Computing
from kvlease.vllm.events import UNTOLD, Tokens
from kvlease.vllm.transfers import PageSpec
from kvlease.vllm.weights import Epoch, State

_logger = logging.getLogger("kvlease")


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
    pieces: list[_verify.Piece]
    """Of the layers, in the planes of all ranks; the rest is padding."""

    @cached_property
    def gives_token_ids(self) -> bool:
        """Whether followers may learn them."""
        info = self.namespace.info
        return info.takes_token_ids and info.page_tokens == self.chunk_tokens


@dataclass(eq=False)
class _Run:
    """Pages that are being filled, one after the other in a text."""

    group: Group
    keys: list[OffloadKey]
    hashes: list[bytes]
    """What the pages' keys are in kvleased."""
    pages: kvlease.Pages
    parent: bytes | None = None
    """Key of the page before; None: there is none, or it doesn't matter."""
    tokens: Tokens = UNTOLD
    is_lost: bool = False
    """Something couldn't be copied."""


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
    is_given_up: bool = False
    """It is computed: pages of it couldn't be copied."""
    expects: Epoch | None = None
    """Pages that it loads, or reads in its first step, were computed so."""

    @classmethod
    def of(cls, req_context: ReqContext) -> _Text:
        """The one that on_new_request() has made."""
        text = req_context.get_state(cls)
        assert isinstance(text, cls)
        return text


class Manager(OffloadingManager):
    """The scheduler's side.

    What is found is pinned until it is loaded, or until the step is scheduled that needs it not.
    What is to be stored is leased until it is copied, and then published. Nothing fails: without
    kvleased, or without a page, nothing is found, and nothing stored.
    """

    def __init__(
        self,
        connection: kvlease.Connection,
        groups: list[Group],
        remote_timeout: float = 0,
        computing: Computing | None = None,
        *,
        loads: bool = True,
        publishes: bool = True,
    ) -> None:
        """loads: something is found; publishes: something is stored."""
        self._connection = connection
        self._loads, self._publishes = loads, publishes
        self.keeps_pages = False
        """reset_cache() drops none: the engine falls asleep."""
        self.computing = computing or Computing()
        self._state = State()
        self._texts: dict[str, _Text] = {}
        self._groups = {group.id: group for group in groups}
        self._hosts = {group.id: _engine.Hosts(group.namespace, remote_timeout) for group in groups}
        self._found: dict[OffloadKey, kvlease.Pages] = {}
        self._loading: dict[str, list[kvlease.Pages]] = {}
        self._storing: dict[OffloadKey, _Run] = {}
        # Pages of transfers that began before a reset, and may still be under way.
        self._fenced: list[kvlease.Pages] = []
        self._n_steps = 0
        self._looked_at = -1
        self._is_away = False
        self._is_void = False
        self.compared_pages = 0

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        """Of each chunk once is enough."""
        self._state = self.computing.state()
        text = self._texts[req_context.req_id] = _Text()
        req_context.set_state(text)
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: ReqContext) -> None:
        """Stores of it may be under way."""
        self._texts.pop(req_context.req_id, None)

    def _can_share(self, req_context: ReqContext) -> bool:
        """Whether kvleased is there, and the model and adapter of the request are known: keys of
        its pages depend on them."""
        text = _Text.of(req_context)
        # One look for each step: vLLM asks for each chunk.
        if self._looked_at != self._n_steps:
            self._looked_at = self._n_steps
            self._state = self.computing.state()
        state = self._state
        if text.is_begun:
            text.epoch = text.epoch and state.go_on(text.epoch)
        else:
            text.epoch = state.begin(self.computing.lora_request(req_context.req_id))
        return (
            text.epoch is not None
            and state.can_share(text.epoch)
            and self.computing.is_clean(text.epoch)
            and self._is_there()
        )

    def _hashes(self, keys: Iterable[OffloadKey], req_context: ReqContext) -> list[bytes]:
        """What the keys of a request that can share are in kvleased."""
        epoch = _Text.of(req_context).epoch
        assert epoch is not None
        return self._state.keys(epoch, map(get_offload_block_hash, keys))

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        """A hit is pinned."""
        text = _Text.of(req_context)
        if not self._loads or not self._can_share(req_context) or text.is_given_up:
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
        if text.is_verified is None:
            text.is_verified = group.verifier.picks()
        if text.is_verified:
            _engine.close_all([pages])
            return LookupResult.MISS
        self._found[key] = pages
        return LookupResult.HIT

    def _ask_others(self, group: Group, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        """The key isn't cached: RETRY while other hosts may have it, and in this step behind a key
        with RETRY, where vLLM goes on. Nothing is asked for there: those before it aren't cached.
        """
        text = _Text.of(req_context)
        here = req_context.get_offload_key_position(key)
        if here is None or not group.is_chained:
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
        text = _Text.of(req_context)
        text.expects = text.epoch
        for key in keys:
            pages = self._found.pop(key)
            loading.append(pages)
            numbers[get_offload_group_idx(key)] += pages
        self._remember(keys, req_context)
        return PageSpec(list(numbers.values()))

    def complete_load(self, keys: Collection[OffloadKey], req_context: ReqContext) -> None:
        """Also where the request was aborted meanwhile."""
        _engine.close_all(self._loading.pop(req_context.req_id))

    def prepare_store(
        self, keys: Collection[OffloadKey], req_context: ReqContext
    ) -> PrepareStoreOutput:
        """Those that aren't cached, if there are pages for them: vLLM asks for none again."""
        runs: list[list[_Run]] = []
        can_share = self._publishes and self._can_share(req_context)
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
            if success and not run.is_lost and self._is_there():
                self._publish(run)
            _engine.close_all([run.pages])

    def lose(self, pages: Collection[tuple[int, int]]) -> None:
        """Pages, by the positions of their groups, to which a worker couldn't copy."""
        order = list(self._groups)
        for run in self._storing.values() if pages else ():
            at = order.index(run.group.id)
            run.is_lost = run.is_lost or any((at, page) in pages for page in run.pages)

    def give_up(self, req_ids: Iterable[str]) -> None:
        """Something of these couldn't be loaded: nothing more is found of them."""
        for req_id in req_ids:
            if text := self._texts.get(req_id):
                text.is_given_up = True

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        """Who wasn't scheduled looks it up again."""
        self._n_steps += 1
        for req_id in context.preempted_req_ids:
            if text := self._texts.get(req_id):
                text.is_begun = False
        for req_id in context.new_req_ids:
            if text := self._texts.get(req_id):
                # One that wasn't looked up begins all the same.
                text.epoch = text.epoch or self._state.begin(self.computing.lora_request(req_id))
                text.is_begun = True
        _engine.close_all(self._found.values())
        self._found = {}

    def take_adapters(self) -> list[tuple[int, bytes]]:
        """With which pages were computed that are being loaded, or are read in the next step for
        the first time: ids and digests. Asked once a step."""
        adapters: list[tuple[int, bytes]] = []
        for text in self._texts.values():
            adapters += text.expects.loaded() if text.expects else []
            if text.is_begun:
                text.expects = None
        return adapters

    def reset_cache(self) -> None:
        """Drops all pages of the namespaces, which engines of the tenant share. Drops none where
        the model has changed since the last reset: these pages are then of other engines."""
        runs = dict.fromkeys(self._storing.values())
        self._fenced += [run.pages for run in runs]
        self._fenced += [pages for each in self._loading.values() for pages in each]
        # vLLM doesn't report the end of these loads. Their requests expect no adapter any more.
        for req_id in self._loading:
            if text := self._texts.get(req_id):
                text.expects = None
        self._storing, self._loading = {}, {}
        if self.keeps_pages:
            return
        self._state = self.computing.state()
        if self.computing.has_changed:
            self.computing.has_changed = False
            return
        try:
            for group in self._groups.values():
                group.namespace.invalidate()
        except kvlease.Error as error:
            self._is_void = True
            _logger.error(
                "the cached pages couldn't be dropped, and this engine finds none any more: %s",
                error,
            )

    def on_reset_flushed(self) -> None:
        """Nothing of before the reset is under way any more."""
        _engine.close_all(self._fenced)
        self._fenced = []

    def shutdown(self) -> None:
        """The engine ends. Pages go with the connection."""
        self.computing.close()

    def _is_there(self) -> bool:
        """Whether kvleased can be asked now. Doesn't wait."""
        was_away, self._is_away = self._is_away, not self._connection.is_connected
        if self._is_away and not was_away:
            _logger.error("kvleased is gone: nothing is found or stored until it is back")
        return not self._is_away and not self._is_void

    def _runs(self, group: Group, keys: list[OffloadKey], req_context: ReqContext) -> list[_Run]:
        """What of the keys, which follow each other, is to be stored, with pages."""
        try:
            if group.is_chained:
                return self._chained_run(group, keys, req_context)
            is_verified = _Text.of(req_context).is_verified
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
                _Run(group, [key], self._hashes([key], req_context), pages.take(1))
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
        # To be verified, a page is stored although it is cached: kvleased compares the two.
        is_verified = _Text.of(req_context).is_verified
        first = 0 if is_verified else len(group.namespace.probe(hashes))
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
        tokens = self._tokens(group, new, req_context)
        return [_Run(group, new, self._hashes(new, req_context), pages, parent, tokens)]

    def _tokens(self, group: Group, keys: list[OffloadKey], req_context: ReqContext) -> Tokens:
        """For routers, of pages of a chain."""
        request = self.computing.request(req_context.req_id)
        end = req_context.get_offload_key_position(keys[-1]) if keys else None
        if request is None or end is None or not group.gives_token_ids:
            return UNTOLD
        return Tokens.of(request, end - len(keys) * group.chunk_tokens, end)

    def _is_known(self, group: Group, key: OffloadKey, req_context: ReqContext) -> bool:
        """It is cached, or being stored."""
        (known,) = self._hashes([key], req_context)
        return key in self._storing or bool(group.namespace.probe(known))

    @staticmethod
    def _before(group: Group, key: OffloadKey, req_context: ReqContext) -> OffloadKey | None:
        """The key before that one, if the request has dealt with it last."""
        before = _Text.of(req_context).last.get(group.id)
        here = req_context.get_offload_key_position(key)
        if before is None or here is None:
            return None
        there = req_context.get_offload_key_position(before)
        return before if there == here - group.chunk_tokens else None

    @staticmethod
    def _remember(keys: Iterable[OffloadKey], req_context: ReqContext) -> None:
        _Text.of(req_context).last |= {get_offload_group_idx(key): key for key in keys}

    @staticmethod
    def _lease(group: Group, n_pages: int) -> kvlease.Pages:
        """At once, or not at all."""
        return group.namespace.lease(min(n_pages, kvlease.MAX_LEASE_PAGES), max_wait=0)

    def _publish(self, run: _Run) -> None:
        hashes = b"".join(run.hashes)
        own = list(run.pages)
        try:
            carried = run.group.namespace.publish(
                run.pages, hashes, parent=run.parent, **vars(run.tokens)
            )
        except kvlease.NoParent as error:
            carried = error.published
        except kvlease.Error as error:
            _logger.debug("published nothing: %s", error)
            return
        verifier = run.group.verifier
        if verifier.compares:
            self.compared_pages += verifier.compare(own, carried, run.group.pieces)
            self._is_void = self._is_void or verifier.has_failed
        _engine.close_all([carried])
