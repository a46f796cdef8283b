"""vLLM's own cache manager over a pool of pages, call by call as its scheduler calls it."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from types import MethodType, SimpleNamespace
from typing import Any

import kvlease_conftest as package
import pytest
import torch
from support import ctl, endings, held, make_prompts, published
from vllm import SamplingParams
from vllm.lora.request import LoRARequest
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import (
    get_request_block_hasher,
    init_none_hash,
    maybe_convert_block_hash,
)
from vllm.v1.core.single_type_kv_cache_manager import SlidingWindowManager
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.request import Request, RequestStatus

import kvlease
from kvlease import _engine
from kvlease._verify import Verifier
from kvlease.vllm import pool as adapter
from kvlease.vllm.identity import Options
from kvlease.vllm.weights import Reader, State

PAGE = 16
STATE = MambaSpec(
    block_size=PAGE, shapes=((1024,),), dtypes=(torch.float32,), mamba_cache_mode="align"
)
LAYOUT = kvlease.Layout("m", kvlease.DType.F32, 1, 1, 32, PAGE, 4096)
# 512 pages are a set of 2 MiB.
TENANT = "limit = 4MiB"
((PROMPT,),) = [make_prompts(1, 0, 3 * PAGE + 7)]


def window_of(n_tokens: int) -> SlidingWindowSpec:
    """Layers beside full attention that reach back so far."""
    return SlidingWindowSpec(
        block_size=PAGE,
        num_kv_heads=1,
        head_size=32,
        dtype=torch.float32,
        sliding_window=n_tokens,
    )


class Model(Reader):
    """What an engine computes with, as a test says."""

    def __init__(self) -> None:
        super().__init__([])
        self.now = State()

    def state(self) -> State:
        """That of the test."""
        return self.now


class Engine:
    """What a scheduler has of an engine that holds at most n_blocks."""

    def __init__(
        self,
        daemon: package.Daemon,
        n_blocks: int = 400,
        tenant: str | None = None,
        verify: float = 0,
        others: Sequence[Any] = (),
        role: str = "kv_both",
        events: bool = False,
    ) -> None:
        init_none_hash(sha256)
        spec = FullAttentionSpec(block_size=PAGE, num_kv_heads=1, head_size=32, dtype=torch.float32)
        config = KVCacheConfig(
            num_blocks=n_blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[
                KVCacheGroupSpec([f"layer {i}"], each) for i, each in enumerate([spec, *others])
            ],
        )
        self.manager = KVCacheManager(
            config,
            max_model_len=8192,
            scheduler_block_size=PAGE,
            hash_block_size=PAGE,
            enable_kv_cache_events=events,
        )
        socket = daemon.socket if tenant is None else daemon.socket.parents[1] / tenant / "sock"
        self.connection = kvlease.connect(socket)
        namespace = self.connection.namespace("ns", LAYOUT, keep_page_zero=True)
        pool: Any = self.manager.block_pool
        pool.__class__ = adapter.Pool
        self.refused: dict[str, str] = {}
        self.verifier = Verifier(verify, namespace, torch.float32, b"", bytes)
        self.model = Model()
        pool.start(
            namespace,
            n_blocks,
            self.manager,
            Options(role=role),
            self.refuse,
            self.verifier,
            [[(0, 0, LAYOUT.plane_page_bytes)]] * (1 + len(others)),
            self.model,
        )
        self.pool: adapter.Pool = pool
        self.n_requests = 0

    def refuse(self, request: Request, why: str) -> None:
        """Ends one that can't ever be computed."""
        self.refused[request.request_id] = why

    def request(self, prompt: list[int], n_tokens: int = 8) -> Request:
        """One that waits."""
        self.n_requests += 1
        return Request(
            request_id=str(self.n_requests),
            prompt_token_ids=prompt,
            sampling_params=SamplingParams(max_tokens=n_tokens),
            pooling_params=None,
            block_hasher=get_request_block_hasher(PAGE, sha256),
        )

    def schedule(self, request: Request, n_most: int = 8192, n_drafts: int = 0) -> list[int] | None:
        """A step with so many of its tokens begins, and guessed ones behind them; its pages. None:
        there is no room."""
        blocks, n_found = None, 0
        if request.status != RequestStatus.RUNNING:
            blocks, n_found, _ = self.manager.get_computed_blocks(request)
        n_new = min(n_most, request.num_tokens - request.num_computed_tokens - n_found)
        n_new += n_drafts
        if self.manager.allocate_slots(request, n_new, n_found, blocks) is None:
            return None
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens += n_found + n_new
        request.num_in_flight_tokens = n_new
        return self.pages(request)

    def pages(self, request: Request) -> list[int]:
        """Its block table."""
        pages, *_ = self.manager.get_block_ids(request.request_id)
        return list(pages)

    def results(self, *requests: Request) -> None:
        """The step is over."""
        for request in requests:
            request.num_in_flight_tokens = 0
        self.manager.take_events()

    def compute(self, prompt: list[int], n_most: int = 8192) -> Request:
        """A request with so many of its tokens computed, in one step that is over."""
        request = self.request(prompt)
        assert self.schedule(request, n_most)
        self.results(request)
        return request

    def preempt(self, request: Request) -> None:
        """Others need its pages."""
        self.manager.free(request)
        request.status = RequestStatus.PREEMPTED
        request.num_computed_tokens = 0

    def end(self, request: Request) -> None:
        """It is finished."""
        self.pool.end(request)
        self.manager.free(request)

    def close(self) -> None:
        """The engine ends."""
        self.connection.close()


Engines = Callable[..., Engine]


@pytest.fixture
def daemon(make_daemon: package.MakeDaemon) -> package.Daemon:
    return make_daemon(tenant=TENANT)


def test_what_is_computed_is_found(daemon: package.Daemon, engines: Engines) -> None:
    first, second = engines(), engines()
    request = first.request(PROMPT)
    pages = first.schedule(request)
    assert pages
    assert first.pool.take_fresh() == pages
    # The step is under way.
    first.manager.take_events()
    assert first.pool.stats.published_pages == 0
    early = second.request(PROMPT)
    assert second.manager.get_computed_blocks(early)[1] == 0
    first.results(request)
    assert first.pool.stats.published_pages == 3
    again = second.request(PROMPT)
    found = second.schedule(again)
    assert found
    assert found[:3] == pages[:3]
    assert found[3] != pages[3]
    assert sorted(second.pool.take_fresh()) == sorted(found)
    second.results(again)
    assert second.pool.stats.hit_tokens == 3 * PAGE
    assert second.pool.stats.published_pages == 0
    first.end(request)
    second.end(early)
    second.end(again)
    assert first.pool.get_usage() == second.pool.get_usage() == 0
    package.wait_until(lambda: held(daemon) == (0, 0))


def test_a_consumer_publishes_nothing(daemon: package.Daemon, engines: Engines) -> None:
    """A consumer finds pages of a producer; requests of the consumer share while they run."""
    producer, consumer = engines(role="kv_producer"), engines(role="kv_consumer")
    first, second = (consumer.request(PROMPT) for _ in range(2))
    pages = consumer.schedule(first)
    assert pages
    consumer.results(first)
    assert consumer.schedule(second) == [*pages[:3], pages[3] + 1]
    for request in (first, second):
        consumer.end(request)
    package.wait_until(lambda: held(daemon) == (0, 0))
    assert published(daemon) == consumer.pool.stats.published_pages == 0
    for n_found in (0, 3 * PAGE):
        producer.end(producer.compute(PROMPT))
        assert producer.pool.stats.hit_tokens == n_found
    hit_before = consumer.pool.stats.hit_tokens
    assert consumer.schedule(consumer.request(PROMPT))
    assert consumer.pool.stats.hit_tokens == hit_before + 3 * PAGE


def test_falling_asleep_drops_nothing(daemon: package.Daemon, engines: Engines) -> None:
    """The next reset does, as any other."""
    engine = engines(events=True)
    engine.end(engine.compute(PROMPT))
    for keeps, n_published in ((True, 3), (False, 0)):
        engine.pool.keeps_pages = keeps
        assert engine.manager.reset_prefix_cache()
        assert published(daemon) == n_published
        assert len(engine.manager.take_events()) == (not keeps)


def told_of(engine: Engine) -> list[tuple[str, int]]:
    """Events of a step's results: kinds, and numbers of blocks."""
    events = engine.manager.take_events()
    return [(type(each).__name__, len(getattr(each, "block_hashes", ""))) for each in events]


def test_events(engines: Engines) -> None:
    """Blocks that are filled and published, found, and dropped by another engine."""
    first, second = engines(events=True), engines(events=True)
    # A request that ends before its first step is over leaves nothing.
    ended = first.request(PROMPT)
    assert first.schedule(ended)
    first.end(ended)
    assert told_of(first) == [("BlockStored", 3), *[("BlockRemoved", 1)] * 3]
    request = first.request(PROMPT)
    assert first.schedule(request, 2 * PAGE)
    assert told_of(first) == [("BlockStored", 2)]
    first.results(request)
    assert first.schedule(request)
    assert told_of(first) == [("BlockStored", 1)]
    first.results(request)
    first.end(request)
    # What was found is told once, before what is filled behind it.
    longer = [*PROMPT, *PROMPT]
    for stored in ([("BlockStored", 3), ("BlockStored", 3)], []):
        request = second.request(longer)
        assert second.schedule(request)
        assert told_of(second) == stored
        second.results(request)
        second.end(request)
    assert first.manager.reset_prefix_cache()
    assert told_of(first) == [("AllBlocksCleared", 0)]
    assert told_of(second) == [("BlockRemoved", 1)] * 6
    second.model.now = State(1, root=b"2")
    second.manager.take_events()
    assert told_of(second) == []


def test_events_of_what_another_engine_drops(engines: Engines) -> None:
    """Blocks that a request holds are found by requests of the engine, and stay told as stored
    until the request ends."""
    first, second = engines(events=True), engines()
    runs = first.compute(PROMPT)
    assert second.manager.reset_prefix_cache()
    first.manager.take_events()
    shares = first.request([*PROMPT[: 3 * PAGE], 1])
    assert first.schedule(shares)
    assert first.manager.get_computed_blocks(first.request(PROMPT))[1] == 3 * PAGE
    assert told_of(first) == []
    first.end(runs)
    assert told_of(first) == []
    first.end(shares)
    assert told_of(first) == [("BlockRemoved", 1)] * 3


def test_events_of_what_is_computed_again(engines: Engines) -> None:
    """What was dropped, and wasn't looked at since, is told as stored already."""
    first, second = engines(events=True), engines()
    for text, stored in ((PROMPT, 3), ([*PROMPT[: 3 * PAGE], *PROMPT], 3)):
        request = first.request(text)
        assert first.schedule(request)
        (event,) = first.pool.kv_event_queue
        assert (event.block_hashes, len(event.token_ids)) == (
            [maybe_convert_block_hash(each) for each in request.block_hashes[-stored:]],
            stored * PAGE,
        )
        first.results(request)
        first.end(request)
        assert second.manager.reset_prefix_cache()
    assert event.parent_block_hash == maybe_convert_block_hash(request.block_hashes[2])


def test_what_was_not_answered_is_asked_again(
    engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lookup that fails, of a request that isn't scheduled then."""
    first, second = engines(), engines()
    first.compute(PROMPT)
    waits = second.request(PROMPT)
    pool: Any = second.pool

    def fail(*arguments: Any) -> None:
        raise kvlease.Timeout("no answer in time")

    pool.namespace = namespace = Counting(pool.namespace)
    monkeypatch.setattr(namespace, "lookup", fail)
    assert second.manager.get_computed_blocks(waits)[1] == 0
    monkeypatch.undo()
    assert second.manager.get_computed_blocks(waits)[1] == 3 * PAGE


def test_what_is_zeroed_is_held(engines: Engines) -> None:
    """vLLM has a list of new blocks to zero, from which it takes none that are given back before
    the step: here these are another engine's."""
    first, second = (engines(others=[STATE]) for _ in range(2))
    stays, goes = first.request(PROMPT), first.request([*range(3, 70)])
    kept, gone = first.schedule(stays), first.schedule(goes)
    assert kept and gone
    first.preempt(goes)
    other = second.request([*range(100, 200)])
    taken = second.schedule(other)
    assert taken and set(gone) & set(taken)
    assert first.manager.take_new_block_ids() == kept
    assert second.manager.take_new_block_ids() == taken
    for engine, which in ((first, stays), (second, other)):
        engine.end(which)


class Counting:
    """A namespace that notes how many keys each lookup asks for."""

    def __init__(self, namespace: kvlease.Namespace) -> None:
        self._namespace = namespace
        self.asked: list[int] = []

    def lookup(self, keys: bytes, *arguments: Any) -> Any:
        """Notes it first."""
        self.asked.append(len(keys) // kvlease.KEY_BYTES)
        return self._namespace.lookup(keys, *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._namespace, name)


def test_a_chain_is_one_lookup(daemon: package.Daemon, engines: Engines) -> None:
    """Windows beside full attention: pages of full attention are looked up in one call, those of a
    window one by one, and a waiting text has its chain expected."""
    first, second = (engines(others=[window_of(PAGE + 1)]) for _ in range(2))
    prompt = list(range(6 * PAGE + 1))
    first.end(first.compute(prompt))
    pool: Any = second.pool
    namespace = pool.namespace = Counting(pool.namespace)
    waiting = second.request(prompt)
    pool.expect(waiting)
    # At most a quarter of what is cached is expected.
    package.wait_until(lambda: daemon.figure("pages_expected") > 0)
    assert second.manager.get_computed_blocks(waiting)[1] == 6 * PAGE
    assert namespace.asked == [6, 1]
    second.end(waiting)
    # Nothing of a text is cached: its window is asked for from its end on, its chain once.
    namespace.asked.clear()
    other = second.request([token + 1 for token in prompt])
    assert second.manager.get_computed_blocks(other)[1] == 0
    assert namespace.asked[0] == 6 and namespace.asked.count(6) == 1
    second.end(other)
    package.wait_until(lambda: held(daemon) == (0, 0))


def test_a_request_that_ends_with_its_first_step(daemon: package.Daemon, engines: Engines) -> None:
    """As one that prefills for another engine: what the step has passed of a window is published,
    which the same prompt needs."""
    first, second = (engines(others=[window_of(2 * PAGE)]) for _ in range(2))
    prompt = PROMPT[: 3 * PAGE]
    request = first.request(prompt, 1)
    assert first.schedule(request)
    request.num_in_flight_tokens = 0
    # As vLLM's scheduler ends it.
    first.manager.remove_skipped_blocks(request.request_id, len(prompt), len(prompt))
    first.end(request)
    again = second.request(prompt)
    assert second.manager.get_computed_blocks(again)[1] == 2 * PAGE
    second.end(again)
    package.wait_until(lambda: held(daemon) == (0, 0))


@pytest.mark.parametrize("n_computed", [0, 2 * PAGE])
def test_all_groups_have_their_pages_or_none(
    daemon: package.Daemon, engines: Engines, monkeypatch: pytest.MonkeyPatch, n_computed: int
) -> None:
    """Another engine leases the last pages between the groups of layers: a request that asks again
    gets blocks of all groups, of which vLLM tells its workers."""
    engine = engines(others=[STATE])
    request = engine.request(PROMPT)
    if n_computed:
        assert engine.schedule(request, n_computed)
        engine.results(request)
    before = engine.manager.get_block_ids(request.request_id)
    lease = engine.pool._lease
    refused = iter([False, True])

    def lease_once(n_pages: int) -> list[int]:
        if next(refused, False):
            raise adapter.Refused("the tenant's limit is reached")
        return lease(n_pages)

    monkeypatch.setattr(engine.pool, "_lease", lease_once)
    assert engine.schedule(request) is None
    assert engine.manager.get_block_ids(request.request_id) == before
    package.wait_until(lambda: held(daemon)[1] == (3 if n_computed else 0))
    new = engine.manager.allocate_slots(request, len(PROMPT) - n_computed)
    tables = engine.manager.get_block_ids(request.request_id)
    assert new.get_block_ids() == tuple(
        now[len(then) :] for now, then in zip(tables, before, strict=True)
    )
    engine.end(request)
    package.wait_until(lambda: held(daemon) == (0, 0))


def test_a_state_that_another_model_has_begun(daemon: package.Daemon, engines: Engines) -> None:
    """No request that begins with the new model shares it, nor does a router hear of it."""
    engine = engines(others=[STATE], events=True)
    request = engine.compute(PROMPT, 2 * PAGE)
    engine.model.now = State(1, root=b"2")
    engine.manager.take_events()
    # vLLM marks the last state of a prompt that ends a page by itself.
    assert engine.schedule(request, PAGE)
    assert engine.pool.get_cached_block(request.block_hashes[2], [1]) is None
    request.num_in_flight_tokens = 0
    assert engine.manager.take_events() == []
    engine.end(request)
    package.wait_until(lambda: held(daemon) == (0, 0))


def test_states_at_the_ends_of_pages(daemon: package.Daemon, engines: Engines) -> None:
    """Linear attention beside full attention: a state is published where a step has ended with a
    page, and is found alone; one in the middle of a page never is."""
    first, second = (engines(others=[STATE]) for _ in range(2))

    def count(text: list[int]) -> int:
        reader = second.request(text)
        n_found = second.manager.get_computed_blocks(reader)[1]
        second.end(reader)
        return int(n_found)

    text = [*PROMPT, *range(3, 40)]
    request = first.request(PROMPT)
    for n_most, n_published, n_found in (
        (2 * PAGE, 3, 2 * PAGE),  # two pages and a state
        (len(PROMPT), 4, 2 * PAGE),  # a third page, whose state was passed
    ):
        n_before = first.pool.stats.published_pages
        assert first.schedule(request, n_most)
        first.manager.take_events()
        assert first.pool.stats.published_pages == n_before
        first.results(request)
        assert first.pool.stats.published_pages == n_published
        assert count(text) == n_found
    # Token by token a state comes to the end of its page.
    for token in text[len(PROMPT) : 4 * PAGE]:
        request.append_output_token_ids([token])
        assert count(text) == 2 * PAGE
        assert first.schedule(request)
        first.results(request)
    assert first.pool.stats.published_pages == 6
    assert count(text) == 4 * PAGE
    # The other engine goes on behind what it found, in pages of its own.
    again = second.request(text)
    assert second.schedule(again)
    theirs, own = (
        engine.manager.get_block_ids(which.request_id)[1]
        for engine, which in ((first, request), (second, again))
    )
    assert own[3] == theirs[3] != 0
    assert own[-1] not in (0, *theirs)
    second.results(again)
    for engine, which in ((first, request), (second, again)):
        engine.end(which)
    package.wait_until(lambda: held(daemon) == (0, 0))


def fill(engine: Engine, pages: list[int], value: float) -> None:
    """Writes what a step computes."""
    arena = engine.pool.namespace.arena(writable=True, dtype="f32")
    torch.from_dlpack(arena)[pages] = value
    arena.release()


@pytest.mark.parametrize("differs", [False, True])
def test_found_and_computed_all_the_same(
    daemon: package.Daemon, engines: Engines, differs: bool
) -> None:
    """Pages that were found, and computed anew, are compared where they are published."""
    first, second = engines(), engines(verify=1)
    request = first.request(PROMPT)
    theirs = first.schedule(request)
    assert theirs
    fill(first, theirs, 1.0)
    first.results(request)
    first.end(request)
    again = second.request(PROMPT)
    own = second.schedule(again)
    assert own and not set(own) & set(theirs[:3])
    fill(second, own, 2.0 if differs else 1.0)
    second.results(again)
    assert second.pool.stats.hit_tokens == 0
    assert second.pool.stats.verified == 1
    assert second.pool.stats.compared_pages == (1 if differs else 3)
    assert second.verifier.has_failed == differs
    assert published(daemon) == (0 if differs else 3)
    second.end(again)
    package.wait_until(lambda: held(daemon) == (0, 0))
    # What another engine computes now is found by who hasn't left.
    first.end(first.compute(PROMPT))
    assert second.schedule(second.request(PROMPT))
    assert second.pool.stats.verified == (1 if differs else 2)
    assert second.pool.stats.hit_tokens == 0


def test_after_a_mismatch_nothing_is_found(daemon: package.Daemon, engines: Engines) -> None:
    """Neither by who waits, nor of a request that goes on behind pages that were found."""
    first, second = engines(), engines(verify=1e-12)
    request = first.request(PROMPT)
    theirs = first.schedule(request)
    first.results(request)
    first.end(request)
    assert theirs
    text = [*PROMPT, *PROMPT, *PROMPT]
    runs, waits = second.request(text), second.request(text)
    assert second.schedule(runs, 2 * PAGE)
    assert second.manager.get_computed_blocks(waits)[1] == 5 * PAGE
    second.verifier.fail(theirs[0])
    second.pool._leave()
    second.results(runs)
    wrong = second.schedule(runs)
    own = second.schedule(waits)
    shares = second.schedule(second.request(text))
    assert wrong and own and shares
    assert not set(own) & set(wrong)
    assert shares[:9] == own[:9]


def test_whether_a_text_is_verified_is_drawn_once(
    engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the scheduler asks before it begins, also where it was looked up again."""
    first, second = engines(), engines(verify=1)
    first.compute(PROMPT)
    drawn: list[bool] = []
    waits = second.request(PROMPT)
    for picks, n_found in ((False, 3 * PAGE), (True, 0)):
        drawn.clear()
        monkeypatch.setattr(second.verifier, "picks", lambda p=picks: drawn.append(p) or p)
        for _ in range(3):
            assert second.manager.get_computed_blocks(waits)[1] == n_found
            second.pool.drop_found()
        assert second.schedule(waits)
        assert drawn == [picks]
        second.results(waits)
        second.preempt(waits)
    assert second.pool.stats.duplicate_pages == 3
    assert second.pool.stats.verified == 1


class Hosts:
    """Other hosts that the test plays, for one text; counts how often they are asked."""

    def __init__(self) -> None:
        self.is_under_way = self.is_over = False
        self.asked: list[int] = []

    def text(self) -> Hosts:
        """The one."""
        return self

    def ask(self, keys: list[bytes], n_found: int) -> bool:
        """Whether more may come."""
        self.asked.append(n_found)
        self.is_under_way = not self.is_over
        return self.is_under_way


def test_requests_wait_for_other_hosts(daemon: package.Daemon, engines: Engines) -> None:
    first, second = engines(), engines()
    pool: Any = second.pool
    hosts = pool._hosts = Hosts()
    waits = second.request(PROMPT)
    for _ in range(3):
        assert second.manager.get_computed_blocks(waits)[1] == 0
        assert pool.is_awaited(waits)
    assert hosts.asked == [0]
    # What comes is found, and what is behind it is asked for.
    first.end(first.compute(PROMPT[: 2 * PAGE]))
    hosts.is_under_way = False
    assert second.manager.get_computed_blocks(waits)[1] == 0
    assert pool.is_awaited(waits)
    assert hosts.asked == [0, 2]
    # Nothing more comes: it computes the rest.
    hosts.is_under_way, hosts.is_over = False, True
    assert second.schedule(waits)
    assert not pool.is_awaited(waits)
    assert hosts.asked == [0, 2, 2]
    assert pool.stats.hit_tokens == 2 * PAGE
    # What a request of this engine computes nobody is asked for.
    hosts.is_over = False
    shares = second.request([*PROMPT[: 3 * PAGE], 5])
    assert second.schedule(shares)
    assert hosts.asked == [0, 2, 2]
    # One that ends while pages are on their way leaves nothing behind.
    ends = second.request([7] * 3 * PAGE)
    assert second.manager.get_computed_blocks(ends)[1] == 0
    for request in (waits, shares, ends):
        second.end(request)
    package.wait_until(lambda: held(daemon) == (0, 0))


@pytest.mark.parametrize("takes_part", [True, False])
def test_windows_are_not_loaded_from_other_hosts(
    engines: Engines, caplog: pytest.LogCaptureFixture, takes_part: bool
) -> None:
    """The log says so where the tenant has other hosts."""
    engine = engines(others=[window_of(PAGE)])
    assert engine.pool._hosts.text().is_over
    namespace: Any = SimpleNamespace(start_import=lambda *_, **__: takes_part)
    caplog.clear()
    assert _engine.seconds_for_hosts(namespace, 10, are_chains=False) == 0
    assert ("pages of other hosts aren't loaded" in caplog.text) == takes_part
    assert _engine.seconds_for_hosts(namespace, 10, are_chains=True) == 10


def test_requests_of_one_step_share(daemon: package.Daemon, engines: Engines) -> None:
    """What isn't published yet, too; and it is published by whoever has its results first."""
    engine = engines()
    one, two = engine.request(PROMPT), engine.request([*PROMPT, *PROMPT])
    pages, longer = engine.schedule(one), engine.schedule(two)
    assert pages
    assert longer
    assert longer[:3] == pages[:3]
    # The step is under way, of which the second one counts what they share as computed.
    engine.manager.take_events()
    assert engine.pool.stats.published_pages == 0
    # The first one is aborted before its results are in: the second has computed on.
    engine.end(one)
    assert engine.pool.stats.published_pages == 0
    engine.results(two)
    assert engine.pool.stats.published_pages == 2 * len(PROMPT) // PAGE
    assert engine.pool.stats.duplicate_pages == 0
    engine.end(two)
    package.wait_until(lambda: held(daemon) == (0, 0))


def test_both_compute_the_same(daemon: package.Daemon, engines: Engines) -> None:
    first, second = engines(), engines()
    mine, other = first.request(PROMPT), second.request(PROMPT)
    assert first.schedule(mine)
    pages = second.schedule(other)
    first.results(mine)
    second.results(other)
    assert second.pool.stats.duplicate_pages == 3
    # Its table can't change, and what it goes on to fill continues what was published.
    assert second.pages(other) == pages
    other.append_output_token_ids([5] * PAGE)
    assert second.manager.allocate_slots(other, PAGE) is not None
    other.num_computed_tokens += PAGE
    second.results(other)
    assert second.pool.stats.published_pages == 4
    first.end(mine)
    second.end(other)
    package.wait_until(lambda: held(daemon) == (0, 0))


def test_preempted_requests_find_their_pages(engines: Engines) -> None:
    engine = engines()
    request = engine.request(PROMPT)
    pages = engine.schedule(request)
    assert pages
    engine.results(request)
    engine.preempt(request)
    assert engine.pool.get_usage() == 0
    # Nothing is mapped that isn't held any more.
    assert engine.pool.take_fresh() == []
    again = engine.schedule(request)
    assert again
    assert again[:3] == pages[:3]
    engine.results(request)
    assert engine.pool.stats.published_pages == 3


def test_reset(engines: Engines) -> None:
    engine, other = engines(), engines()
    request = engine.compute(PROMPT)
    assert not engine.manager.reset_prefix_cache()
    engine.end(request)
    waiting = other.request(PROMPT)
    assert other.manager.get_computed_blocks(waiting)[1] == 3 * PAGE
    other.end(waiting)
    assert engine.manager.reset_prefix_cache()
    assert other.manager.get_computed_blocks(other.request(PROMPT))[1] == 0


def test_the_engines_own_limit(engines: Engines) -> None:
    """It holds no more than it was told, however much kvleased has."""
    engine = engines(n_blocks=6)
    one, two = engine.request(PROMPT), engine.request(list(range(3, 35)))
    assert engine.pool.get_num_free_blocks() == 5
    assert engine.schedule(one)
    assert engine.pool.get_num_free_blocks() == 1
    assert engine.schedule(two) is None
    assert engine.pool.stats.waits == 1
    engine.end(one)
    assert engine.schedule(two)


def test_waits_and_gives_way(
    daemon: package.Daemon, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another client has all the rest. What the request found it keeps for a while, for one lookup,
    then leaves it to others, and finds it again once there is room."""
    engine = engines()
    engine.end(engine.compute(PROMPT))
    now = 1000.0
    monkeypatch.setattr(adapter.time, "monotonic", lambda: now)
    waiting = engine.request([*PROMPT, *PROMPT])
    assert engine.manager.get_computed_blocks(waiting)[1] == 3 * PAGE
    with kvlease.connect(daemon.socket) as holder, contextlib.ExitStack() as leased:
        namespace = leased.enter_context(holder.namespace("ns", LAYOUT, keep_page_zero=True))
        with contextlib.suppress(kvlease.Full, kvlease.Quota):
            while True:
                leased.enter_context(namespace.lease(1))
        assert engine.schedule(waiting) is None
        package.wait_until(lambda: held(daemon)[1] == 3)
        now += 0.4
        assert engine.schedule(waiting) is None
        assert engine.pool.stats.gave_way == 0
        now += 2
        assert engine.schedule(waiting) is None
        assert engine.pool.stats.gave_way == 1
        package.wait_until(lambda: held(daemon)[1] == 0)
        # It looks up nothing as long as others come first.
        assert engine.manager.get_computed_blocks(waiting)[1] == 0
        assert engine.pool.get_num_free_blocks() == 0
    now += 2
    package.wait_until(lambda: engine.schedule(waiting) is not None)
    engine.results(waiting)
    engine.end(waiting)
    package.wait_until(lambda: held(daemon) == (0, 0))


@pytest.mark.parametrize(
    ("n_tokens", "n_published", "n_found"),
    [
        (PAGE - 1, 0, 0),
        (PAGE, 1, 0),
        (PAGE + 1, 1, 1),
        (3 * PAGE - 1, 2, 2),
        (3 * PAGE, 3, 2),
        (3 * PAGE + 1, 3, 3),
    ],
)
def test_full_pages_are_found(
    engines: Engines, n_tokens: int, n_published: int, n_found: int
) -> None:
    """And never the whole prompt: its last token's logits are wanted."""
    first, second = engines(), engines()
    prompt = PROMPT[:n_tokens]
    request, again = first.request(prompt), second.request(prompt)
    pages = first.schedule(request)
    assert pages
    first.results(request)
    assert first.pool.stats.published_pages == n_published
    found = second.schedule(again)
    assert found
    assert second.pool.stats.hit_tokens == n_found * PAGE
    assert [a == b for a, b in zip(pages, found, strict=True)] == [
        i < n_found for i in range(len(pages))
    ]


@pytest.mark.parametrize("n_chunk", [1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE])
def test_chunks_of_a_prompt(daemon: package.Daemon, engines: Engines, n_chunk: int) -> None:
    """Of each step that is over the full pages are found, of the one under way none."""
    engine, other = engines(), engines()
    request = engine.request(PROMPT)
    n_done = 0
    while n_done < len(PROMPT):
        pages = engine.schedule(request, n_chunk)
        assert pages
        assert len(pages) == -(-request.num_computed_tokens // PAGE)
        engine.manager.take_events()
        for is_over in (False, True):
            if is_over:
                engine.results(request)
                n_done = request.num_computed_tokens
            reader = other.request([*PROMPT, 5])
            assert other.manager.get_computed_blocks(reader)[1] == n_done // PAGE * PAGE
            other.end(reader)
    engine.end(request)
    package.wait_until(lambda: held(daemon) == (0, 0))


@pytest.mark.parametrize("n_generated", [1, PAGE - 7, 2 * PAGE])
def test_preempted_requests_resume(
    daemon: package.Daemon, engines: Engines, n_generated: int
) -> None:
    """With what they had generated: what fills no page is computed again, and the last token is."""
    engine = engines()
    request = engine.compute(PROMPT)
    for token in range(n_generated):
        request.append_output_token_ids([token + 3])
        assert engine.schedule(request)
        engine.results(request)
    request.append_output_token_ids([3])
    n_tokens = len(PROMPT) + n_generated
    engine.preempt(request)
    assert held(daemon) == (0, 0)
    engine.pool.stats.hit_tokens = 0
    assert engine.schedule(request)
    assert engine.pool.stats.hit_tokens == n_tokens // PAGE * PAGE
    assert request.num_in_flight_tokens == n_tokens % PAGE + 1
    engine.results(request)
    engine.end(request)
    package.wait_until(lambda: held(daemon) == (0, 0))


@pytest.mark.parametrize(("n_accepted", "n_published"), [(0, 3), (7, 3), (8, 4), (23, 4), (24, 5)])
def test_rejected_drafts_are_not_published(
    daemon: package.Daemon, engines: Engines, n_accepted: int, n_published: int
) -> None:
    """A step computes 30 guessed tokens behind the 56th, in pages that are found once full."""
    engine, other = engines(), engines()
    request = engine.compute(PROMPT)
    request.append_output_token_ids([3])
    assert engine.schedule(request, n_drafts=30)
    engine.manager.take_events()
    assert engine.pool.stats.published_pages == 3
    request.num_computed_tokens -= 30 - n_accepted
    request.append_output_token_ids([5] * (n_accepted + 1))
    request.num_in_flight_tokens = 0
    engine.manager.cache_blocks(request, request.num_computed_tokens)
    engine.results(request)
    assert engine.pool.stats.published_pages == n_published
    reader = other.request([*PROMPT, 3, *[5] * 40])
    assert other.manager.get_computed_blocks(reader)[1] == n_published * PAGE
    other.end(reader)
    engine.end(request)
    package.wait_until(lambda: held(daemon) == (0, 0))


def test_a_preempted_requests_step_under_way(engines: Engines) -> None:
    """Nothing of a step is published before it is over, though the request has begun anew."""
    engine = engines()
    request = engine.request(PROMPT)
    assert engine.schedule(request)
    engine.preempt(request)
    assert engine.schedule(request)
    request.num_in_flight_tokens = 2 * len(PROMPT)
    engine.manager.take_events()
    assert engine.pool.stats.published_pages == 0
    engine.results(request)
    assert engine.pool.stats.published_pages == 3


def test_the_end_of_a_text_goes_first(daemon: package.Daemon, engines: Engines) -> None:
    """Where others need memory, what is left of a text is its beginning, in however many steps it
    was computed."""
    engine = engines()
    n_pages = 200
    (text,) = make_prompts(2, 0, n_pages * PAGE + 1)
    request = engine.request(text)
    n_first = n_pages // 4
    for _ in range(4):
        assert engine.schedule(request, n_first * PAGE)
        engine.results(request)
    engine.end(request)
    n_found = n_pages
    with kvlease.connect(daemon.socket) as holder, contextlib.ExitStack() as leased:
        namespace = leased.enter_context(holder.namespace("ns", LAYOUT, keep_page_zero=True))
        while n_found == n_pages:
            leased.enter_context(namespace.lease(1))
            reader = engine.request(text)
            n_found = engine.manager.get_computed_blocks(reader)[1] // PAGE
            engine.end(reader)
    # An eighth of what the tenant may have, 128 pages, goes at a time.
    assert n_found > n_first


def test_what_waits_is_expected(daemon: package.Daemon, engines: Engines) -> None:
    """The prompt of a request that is in the queue outlives a younger one that nobody waits for."""
    engine = engines()
    n_waiting, n_other = 40, 200
    texts = [
        make_prompts(seed, 0, n_pages * PAGE + 1)[0]
        for seed, n_pages in ((4, n_waiting), (5, n_other))
    ]
    for text in texts:
        engine.end(engine.compute(text))
    waiting = engine.request(texts[0])
    engine.pool.expect(waiting)
    package.wait_until(lambda: daemon.figure("pages_expected") == n_waiting)
    # Nobody holds a page meanwhile: where no other can go, expected ones do.
    others = b"".join(engine.request(texts[1]).block_hashes[:n_other])
    with kvlease.connect(daemon.socket) as holder, contextlib.ExitStack() as leased:
        namespace = leased.enter_context(holder.namespace("ns", LAYOUT, keep_page_zero=True))
        while len(namespace.probe(others)) == n_other:
            leased.enter_context(namespace.lease(1))
        assert engine.manager.get_computed_blocks(waiting)[1] == n_waiting * PAGE
        package.wait_until(lambda: daemon.figure("expected_fulfilled") == 1)
        engine.end(waiting)


def turn(engine: Engine, prompt: list[int], name: Any) -> Request:
    """A request of a conversation, up to its results."""
    request = engine.request(prompt)
    request.session_id = name
    assert engine.schedule(request)
    engine.results(request)
    return request


def test_a_conversation_is_a_session(daemon: package.Daemon, engines: Engines) -> None:
    """Its turns extend one session, which is expected to go on; other requests have none."""
    engine = engines()
    (prompt,) = make_prompts(6, 0, 5 * PAGE + 1)
    for n_pages in (3, 5):
        engine.end(turn(engine, prompt[: n_pages * PAGE + 1], "talk"))
        (session,) = daemon.ctl_json("sessions")["sessions"]
        assert (session["n_pages"], session["hint"]) == (n_pages, "continues"), session
    for name in (None, "", "other", 7, "x" * 10_000, "\ud800"):
        engine.end(turn(engine, PROMPT, name))
    assert len(daemon.ctl_json("sessions")["sessions"]) == 5
    package.wait_until(lambda: held(daemon) == (0, 0))


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"session_hint": "done"}, "done"),
        ({"session_hint": "returns", "session_returns_after": 20}, "returns"),
        ({"session_hint": "returns", "session_returns_after": 0.5}, "returns"),
        ({"session_hint": "continues"}, "continues"),
        ({"session_hint": "returns"}, "continues"),
        ({"session_hint": "returns", "session_returns_after": "20"}, "continues"),
        ({"session_hint": "returns", "session_returns_after": -1}, "continues"),
        ({"session_hint": "returns", "session_returns_after": float("nan")}, "continues"),
        ({"session_hint": "returns", "session_returns_after": 10**400}, "continues"),
        ({"session_hint": ["done"]}, "continues"),
        (None, "continues"),
    ],
)
def test_a_request_tells_of_the_next_turn(
    daemon: package.Daemon, engines: Engines, told: Any, expected: str
) -> None:
    """By `vllm_xargs`; a wrong one counts as none."""
    engine = engines()
    request = turn(engine, make_prompts(6, 0, 3 * PAGE + 1)[0], "talk")
    request.sampling_params.extra_args = told
    engine.end(request)
    (session,) = daemon.ctl_json("sessions")["sessions"]
    assert session["hint"] == expected


def test_tells_how_requests_end(daemon: package.Daemon, engines: Engines) -> None:
    """By the last two tokens of those that have stopped, and by the reason alone of others."""
    engine = engines()
    ctl(daemon, "trace", "record", "on")
    stopped, cut = RequestStatus.FINISHED_STOPPED, RequestStatus.FINISHED_LENGTH_CAPPED
    for prompt, status, tokens in zip(
        make_prompts(6, 0, *[3 * PAGE + 1] * 7),
        [stopped] * 4 + [cut] * 2 + [RequestStatus.FINISHED_ABORTED],
        [[1, 2, 3], [4, 2, 3], [1, 2, 5], [], [1, 2, 3], [7, 8, 9], [1, 2, 3]],
        strict=True,
    ):
        request = turn(engine, prompt, None)
        request.append_output_token_ids(tokens)
        request.status = status
        engine.end(request)
    call, same, answer, none, *others = endings(daemon, 7)
    assert call == same and 0 not in (call, answer, none)
    assert len({call, answer, none, *others}) == 5 and others[0] == others[1]


def test_a_session_is_dropped(daemon: package.Daemon, engines: Engines) -> None:
    """Meanwhile, by someone else: pages are published all the same."""
    engine = engines()
    (prompt,) = make_prompts(7, 0, 4 * PAGE + 1)
    request = engine.request(prompt)
    request.session_id = "talk"
    assert engine.schedule(request, 2 * PAGE)
    engine.results(request)
    with kvlease.connect(daemon.socket) as other:
        namespace = other.namespace("ns", LAYOUT, keep_page_zero=True)
        digest = hashlib.sha256(b"talk").digest()
        namespace.session(digest, must_exist=True).close(drop=True)
        assert engine.schedule(request)
        engine.results(request)
        engine.end(request)
        assert len(namespace.probe(b"".join(request.block_hashes[:4]))) == 4
    assert daemon.ctl_json("sessions")["sessions"] == []


@pytest.mark.parametrize(("n_tokens", "does_fit"), [(8 * PAGE, True), (8 * PAGE + 1, False)])
def test_the_longest_prompt(
    daemon: package.Daemon, engines: Engines, n_tokens: int, does_fit: bool
) -> None:
    """What an engine can hold of it counts before its first chunk is computed."""
    engine = engines(n_blocks=9)
    (prompt,) = make_prompts(3, 0, n_tokens)
    request = engine.request(prompt)
    for _ in range(2):
        blocks, n_found, _ = engine.manager.get_computed_blocks(request)
        slots = engine.manager.allocate_slots(
            request, PAGE, n_found, blocks, full_sequence_must_fit=True
        )
        assert (slots is not None) == does_fit
        assert engine.pool.get_usage() == (1 / 8 if does_fit else 0)
        engine.preempt(request)
    engine.end(request)
    package.wait_until(lambda: held(daemon) == (0, 0))


@pytest.mark.parametrize(
    ("n_prompt", "n_tokens", "fits"),
    [
        # The tenant's limit is 1,024 pages, of which page 0 is the null block.
        (8 * PAGE, 1015 * PAGE + 1, True),
        (8 * PAGE, 1015 * PAGE + 2, False),
        (1023 * PAGE, 1, True),
        (1023 * PAGE + 1, 1, False),
        # As much as there is: what it has so far counts.
        (8 * PAGE, 1 << 20, True),
        (1024 * PAGE, 1 << 20, False),
    ],
)
def test_texts_beyond_the_limit(
    daemon: package.Daemon, engines: Engines, n_prompt: int, n_tokens: int, fits: bool
) -> None:
    engine = engines(n_blocks=2000)
    engine.manager.max_model_len = 32768
    (prompt,) = make_prompts(3, 0, n_prompt)
    request = engine.request(prompt, n_tokens)
    assert (engine.schedule(request, 32768) is not None) == fits
    assert len(engine.refused) == (0 if fits else 1)
    for why in engine.refused.values():
        assert "limit of 4 MiB of tenant a" in why
        assert "limit=6MiB" in why
        assert "max_tokens" in why
    # The one behind it isn't concerned.
    engine.end(request)
    behind = engine.request(PROMPT)
    package.wait_until(lambda: engine.schedule(behind) is not None)


def test_a_limit_that_is_lowered(
    daemon: package.Daemon, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that begins again, as vLLM preempts it where it gets no page more, is refused."""
    now = 1000.0
    monkeypatch.setattr(adapter.time, "monotonic", lambda: now)
    engine = engines(n_blocks=2000)
    (prompt,) = make_prompts(3, 0, 600 * PAGE)
    request = engine.request(prompt)
    assert engine.schedule(request)
    ctl(daemon, "tenants", "set", "a", "limit=2MiB")
    engine.preempt(request)
    now += 2
    assert engine.schedule(request) is None
    assert "limit=4MiB" in engine.refused[request.request_id]


def test_room_that_others_must_make(make_daemon: package.MakeDaemon) -> None:
    """Another tenant's cache fills the memory: nobody uses it, and it gives way to leases."""
    daemon = make_daemon(
        device="memory = 8MiB\nextent = 2MiB",
        tenant="limit = 8MiB\n[tenant b]\nlimit = 8MiB",
    )
    other = Engine(daemon, n_blocks=2048)
    (prompt,) = make_prompts(3, 0, 2000 * PAGE)
    other.manager.max_model_len = 1 << 20
    other.end(other.compute(prompt, 1 << 20))
    other.close()
    engine = Engine(daemon, n_blocks=400, tenant="b")
    waiting = engine.request(PROMPT)
    package.wait_until(lambda: engine.schedule(waiting) is not None)
    engine.close()


def test_says_why_it_waits(
    daemon: package.Daemon, engines: Engines, caplog: pytest.LogCaptureFixture
) -> None:
    engine = engines()
    with kvlease.connect(daemon.socket) as holder, contextlib.ExitStack() as leased:
        namespace = leased.enter_context(holder.namespace("ns", LAYOUT, keep_page_zero=True))
        with contextlib.suppress(kvlease.Full, kvlease.Quota):
            while True:
                leased.enter_context(namespace.lease(1))
        for _ in range(3):
            assert engine.schedule(engine.request(PROMPT)) is None
    (told,) = [each.getMessage() for each in caplog.records if "all requests" in each.message]
    assert "tenant a holds 4 MiB of its limit of 4 MiB" in told
    assert "1023 granted" in told
    assert engine.refused == {}


def count(engine: Engine) -> int:
    """Tokens that a request with the prompt would find now."""
    request = engine.request(PROMPT)
    n_found = int(engine.manager.get_computed_blocks(request)[1])
    engine.pool.end(request)
    return n_found


def test_a_model_that_changes(engines: Engines) -> None:
    """Its pages have keys of their own, and a text that both have computed has none."""
    engine, other = engines(), engines()
    request = engine.compute(PROMPT, PAGE)
    assert count(other) == PAGE
    engine.schedule(request, PAGE)
    engine.model.now = other.model.now = State(1, root=b"r" * 32)
    engine.results(request)
    engine.schedule(request)
    engine.results(request)
    # Nor does the engine share it with its own requests.
    assert count(engine) == count(other) == 0
    engine.end(request)
    engine.end(engine.compute(PROMPT))
    assert count(other) == 3 * PAGE
    other.model.now = State(2)
    assert count(other) == PAGE
    other.model.now = State(2, is_known=False)
    assert count(other) == 0


def test_a_reset_after_a_change_leaves_others_their_pages(engines: Engines) -> None:
    engine, other = engines(), engines()
    engine.end(engine.compute(PROMPT))
    engine.model.now = State(1, root=b"r" * 32)
    assert engine.manager.reset_prefix_cache()
    assert count(other) == 3 * PAGE
    assert engine.manager.reset_prefix_cache()
    assert count(other) == 0


def test_an_adapter_is_known_once_it_is_loaded(engines: Engines) -> None:
    engine, other = engines(), engines()

    def begin(which: Engine) -> Request:
        request = which.request(PROMPT)
        request.lora_request = LoRARequest("mine", 7, "/mine")
        which.schedule(request)
        return request

    request = begin(engine)
    engine.model.now = State(adapters={7: (1, b"a")})
    engine.results(request)
    engine.end(request)
    assert engine.pool.take_adapters() == []
    for adapters, n_found in (
        ({7: (1, b"a")}, 3),
        ({7: (1, b"b")}, 0),
        ({7: (2, b"a")}, 3),
        ({}, 0),
    ):
        other.model.now = State(adapters=adapters)
        before = other.pool.stats.hit_tokens
        request = begin(other)
        assert other.pool.stats.hit_tokens - before == n_found * PAGE
        assert other.pool.take_adapters() == ([(7, b"a")] if n_found else [])
        other.end(request)


@pytest.mark.parametrize(
    ("n_prompt", "n_tokens", "fork", "expected"),
    [
        (800, 800, 0, []),
        (8000, 8000, 0, [(0, 404)]),
        (8000, 8000, 4000, [(0, 154), (250, 404)]),
        (8000, 12000, 0, [(0, 404), (500, 654)]),
    ],
)
def test_windows_that_have_passed(
    n_prompt: int, n_tokens: int, fork: int, expected: list[tuple[int, int]]
) -> None:
    """Ranges of pages that are neither near an end of the text nor near its fork."""
    window = SimpleNamespace(sliding_window=1024, extra_retained_tokens=0)
    window.get_num_skipped_tokens = MethodType(SlidingWindowManager.get_num_skipped_tokens, window)
    pool = object.__new__(adapter.Pool)
    pool.hash_block_size = PAGE
    coordinator = SimpleNamespace(single_type_managers=[window])
    pool._manager = SimpleNamespace(coordinator=coordinator)
    request = SimpleNamespace(
        shared_prefix_boundary=fork, num_prompt_tokens=n_prompt, num_tokens=n_tokens
    )
    passed = [i for i in range(n_tokens // PAGE) if pool._has_passed(request, i, 0)]
    assert passed == [i for first, end in expected for i in range(first, end)]


@pytest.mark.parametrize(
    ("n_prompt", "n_tokens", "expected"),
    [
        (4 * PAGE, 4 * PAGE, [0, 1]),
        (4 * PAGE + 5, 4 * PAGE + 5, [0, 1, 2]),
        (2 * PAGE + 5, 4 * PAGE + 1, [0, 2]),
    ],
)
def test_states_that_have_passed(n_prompt: int, n_tokens: int, expected: list[int]) -> None:
    """Not those behind which the same prompt begins, or one that continues the text."""
    state = SimpleNamespace(get_num_skipped_tokens=lambda n_computed: n_computed - 1)
    pool = object.__new__(adapter.Pool)
    pool.hash_block_size = PAGE
    pool._manager = SimpleNamespace(coordinator=SimpleNamespace(single_type_managers=[state]))
    request = SimpleNamespace(
        shared_prefix_boundary=0, num_prompt_tokens=n_prompt, num_tokens=n_tokens
    )
    assert [i for i in range(n_tokens // PAGE) if pool._has_passed(request, i, 0)] == expected
