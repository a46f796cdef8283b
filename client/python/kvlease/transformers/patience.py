"""What the engine does where there is no page for its requests: it waits."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kvlease import _engine
from kvlease.transformers.pool import Pool

_logger = logging.getLogger("kvlease")


@dataclass
class Patience:
    """The scheduler's schedule_batch(), which waits where kvleased has no pages.

    The engine ends with an error where nothing can be scheduled. Its own answer to a full cache is
    to let go of some requests, which begin anew later: it does so here, too, as long as there are
    others. Where there are none it has to wait: the loop that asks tries again ten times a second.
    Requests whose pages are on their way from other hosts aren't begun before. kvleased is told
    what enters the queue, and how long steps take. A request that can't ever have its pages ends
    with an error: when it enters the queue, and later where the limit was lowered.
    """

    scheduler: Any
    fail: Callable[[Exception, Any], None]
    """Ends a request with an error, and leaves it in its queue."""
    schedule: Callable[..., Any] = field(init=False)
    candidates: Callable[[], list[Any]] = field(init=False)
    add: Callable[[Any], None] = field(init=False)
    waiting: _engine.Waiting = field(default_factory=_engine.Waiting)
    looks_at: float = 0
    gives_way_at: float | None = None
    holds_until: float = 0

    def __post_init__(self) -> None:
        self.schedule = self.scheduler.schedule_batch
        self.candidates = self.scheduler._get_waiting_candidates
        self.scheduler._get_waiting_candidates = self._ready_candidates
        self.add = self.scheduler.add_waiting_request
        self.scheduler.add_waiting_request = self._add_waiting_request

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
        if pool.refusal is not None and time.monotonic() >= self.looks_at:
            self.looks_at = time.monotonic() + _engine.LOOK_SECONDS
            self._end_hopeless()
        pool.refusal = None
        result = self.schedule(token_budget, cache_budget)
        if pool.refusal is None:
            pool.give_back_spare()
        if result[0]:
            scheduler.cache.begin_step(each.query_length for each in result[0])
        if result[0] is not None or pool.refusal is None:
            if result[0] is None and len(active) <= 1 and self._end_hopeless():
                return nothing
            if result[0]:
                self.waiting.end()
                self.gives_way_at = None
            return result
        if len(active) > 1 and scheduler.starved_requests:
            return result
        if pool.is_lost:
            raise RuntimeError("kvleased is gone, and the engine has no page for its requests")
        self._wait(pool)
        return nothing

    def _add_waiting_request(self, state: Any) -> None:
        why = self.scheduler.cache.why_never(state)
        if why is not None:
            self._refuse(state, why)
            return
        self.scheduler.cache.expect(state)
        self.add(state)

    def _ready_candidates(self) -> list[Any]:
        """Requests that wait and may begin."""
        cache = self.scheduler.cache
        return [state for state in self.candidates() if not cache.is_awaited(state)]

    def _refuse(self, state: Any, why: str) -> None:
        """Ends a request that doesn't run, and those that were to continue it."""
        _logger.error("request %s ends with an error: %s", state.request_id, why)
        error = RuntimeError(why)
        for i in range(state.num_children):
            child = state.create_equivalent_initial_request()
            child.request_id = f"{state.request_id}__child#{i}"
            self.fail(error, child)
        self.fail(error, state)
        self.scheduler.finish_request(state.request_id)
        if self.scheduler.waiting_requests.pop(state.request_id, None):
            self.scheduler.waiting_requests_order.remove(state.request_id)

    def _end_hopeless(self) -> bool:
        """Between two steps, where there is no page: ends those that wait for it in vain, as the
        limit was lowered, or as they have no end. Whether there are such."""
        scheduler = self.scheduler
        starved = [
            state
            for state, _ in scheduler.starved_requests
            if scheduler.active_requests.get(state.request_id) is state
        ]
        has_ended = False
        for state in [*starved, *scheduler.waiting_requests.values()]:
            why = scheduler.cache.why_never(state)
            if why is not None:
                self._refuse(state, why)
                has_ended = True
        return has_ended

    def _wait(self, pool: Pool) -> None:
        now = time.monotonic()
        self.waiting.tell(pool.refusal or "the engine's own blocks are taken")
        if self.gives_way_at is None:
            self.scheduler.cache.stats.waits += 1
            self.gives_way_at = now + random.uniform(*_engine.GIVE_WAY_SECONDS)
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
