"""Tests that every adapter of an engine passes.

An adapter's test_contract.py has a class derived from Contract, and a fixture `driver` that says
how its engines are made. Engines are support.Engine: run() gives the greedy tokens of prompts,
stats() what was found, stop() ends the engine.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import kvlease_conftest as package
import pytest
from support import LIMIT, MEMORY, ctl, failures, findable, held, make_prompts, on, published

import kvlease

IS_FULL = "KVL_FULL" in os.environ
FULL = pytest.mark.skipif(not IS_FULL, reason="half a minute: with --full alone")
# As long as an engine is stopped, and as a run may take where the daemon is slow.
STOPPED_SECONDS = 60 if IS_FULL else 3
# In which processor time is measured.
ROUNDS = 13 if IS_FULL else 3
Settings = dict[str, Any]


@dataclass
class Driver:
    """An adapter's engines."""

    page: int
    """Tokens of a page."""
    settings: Settings
    """Of an engine, without those of kvlease."""
    options: Settings = field(default_factory=dict)
    """Of kvlease, of all engines."""
    others: dict[str, Settings] = field(default_factory=dict)
    """By name: engines whose numbers aren't those of `settings`; "kvlease" has options."""
    wrong: Settings = field(default_factory=dict)
    """An engine that computes other numbers, with SAME options under the same identity."""
    same: Settings = field(default_factory=dict)
    """Options of kvlease that give two engines one identity."""
    held: int = 0
    """Pages that an engine holds while it has nothing to do."""
    small: tuple[str, str] = ("limit = 8MiB", "limit=4MiB")
    """A tenant's limit, and what it is lowered to: less than the prompts take."""
    loss: Settings = field(default_factory=dict)
    """Options of kvlease for an engine whose daemon goes for good."""
    survives: bool = True
    """Requests go on where the daemon is gone; else they fail with a sentence."""
    size: int = 4
    """Pages of the longest prompts."""
    large: Settings = field(default_factory=dict)
    """Changes that make an engine compute as long as engines do that people run."""
    most_cost: float | None = 1.05
    """Processor time of texts that nobody shares, times that without kvlease. None: any, as the
    engine computes no model."""

    def engine(self, daemon: Any, change: Settings | None = None, **options: Any) -> Settings:
        """Settings of an engine on the daemon's pages."""
        change = dict(change or {})
        options = self.options | options | change.pop("kvlease", {})
        return self.settings | on(daemon, **options) | change

    def prompts(self, seed: int) -> list[list[int]]:
        """Prompts with a common beginning, each of `size` pages and a few tokens."""
        shared = 2 * self.page + 3
        rest = self.size * self.page - shared
        return make_prompts(seed, shared, rest + 1, rest + self.page // 2, rest + self.page)


@contextlib.contextmanager
def slow(daemon: Any) -> Iterator[None]:
    """The daemon runs a tenth of the time."""
    ends = threading.Event()

    def run() -> None:
        while not ends.wait(0.02):
            daemon.pause(True)
            ends.wait(0.18)
            daemon.pause(False)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


@contextlib.contextmanager
def full(daemon: Any, n: int = 128) -> Iterator[None]:
    """Another client holds all that the tenant may have, but for less than n pages of its own."""
    with (
        kvlease.connect(daemon.socket) as connection,
        connection.namespace("holder", package.LAYOUT) as namespace,
        contextlib.ExitStack() as leased,
    ):
        with contextlib.suppress(kvlease.Full, kvlease.Quota):
            while True:
                leased.enter_context(namespace.lease(n))
        yield


def processor_seconds(*pids: int) -> float:
    """Of processes and their threads, so far."""
    # The clock of another process, as clock_getcpuclockid() makes its number.
    return sum(time.clock_gettime(~pid << 3 | 2) for pid in pids)


class Contract:
    """The tests."""

    @pytest.fixture
    def start(self, start_engines: Any) -> Callable[..., list[Any]]:
        """start_engines."""
        return start_engines  # type: ignore[no-any-return]

    def assert_left(self, daemon: Any, driver: Driver, n_engines: int) -> None:
        """Nothing is held but what idle engines have."""
        package.wait_until(lambda: held(daemon) == (n_engines * driver.held, 0))
        assert "consistent" in ctl(daemon, "check")

    def test_hits_by_hand(self, daemon: Any, start: Any, driver: Driver) -> None:
        """A second process finds all full pages, but for the last token, and no more."""
        settings = driver.engine(daemon)
        alone, first, second = start(driver.settings, settings, settings)
        prompts = driver.prompts(1)
        expected = alone.call("run", prompts, 8)["tokens"]
        assert first.call("run", prompts, 8)["tokens"] == expected
        before = first.call("stats")["hit_tokens"]
        assert second.call("run", prompts, 8)["tokens"] == expected
        assert second.call("stats")["hit_tokens"] == sum(findable(prompts, driver.page))
        # The same engine again, and a text that goes on.
        assert first.call("run", prompts, 8)["tokens"] == expected
        assert first.call("stats")["hit_tokens"] >= before
        longer = [prompts[0] + [9] * driver.page]
        assert second.call("run", longer, 4) and second.call("stats")["asked_tokens"] > 0
        self.assert_left(daemon, driver, 2)
        first.call("stop")
        second.call("stop")
        self.assert_left(daemon, driver, 0)

    def test_identity(self, daemon: Any, start: Any, driver: Driver) -> None:
        """Engines that compute other numbers find nothing."""
        (first,) = start(driver.engine(daemon))
        prompts = driver.prompts(2)
        first.call("run", prompts, 2)
        for name, change in driver.others.items():
            (other,) = start(driver.engine(daemon, change))
            other.call("run", prompts[:1], 2)
            assert other.call("stats")["hit_tokens"] == 0, name
            other.kill()
        (same,) = start(driver.engine(daemon))
        same.call("run", prompts[:1], 2)
        assert same.call("stats")["hit_tokens"] > 0

    def test_daemon_killed(self, make_daemon: Any, start: Any, driver: Driver) -> None:
        """SIGKILL under --keep, while texts are computed, saved and loaded."""
        daemon = make_daemon(keep=True, device=MEMORY, tenant=LIMIT)
        alone, engine = start(driver.settings, driver.engine(daemon))
        for seed in range(3):
            prompts = driver.prompts(10 + seed)
            expected = alone.call("run", prompts, 8)["tokens"]
            engine.send("run", prompts, 8)
            for pause in (0.05, 0.2):
                time.sleep(pause)
                daemon.kill()
            assert engine.receive()["tokens"] == expected
        assert engine.call("run", prompts, 8)["tokens"] == expected
        self.assert_left(daemon, driver, 1)

    def test_daemon_gone(self, daemon: Any, start: Any, driver: Driver) -> None:
        """For good, and back with an empty cache."""
        alone, engine = start(driver.settings, driver.engine(daemon, **driver.loss))
        prompts = driver.prompts(3)
        expected = alone.call("run", prompts, 8)["tokens"]
        engine.call("run", prompts, 8)
        daemon.stop()
        got = engine.call("run", prompts, 8)
        if not driver.survives:
            assert "kvleased is gone" in str(got)
            return
        assert got["tokens"] == expected
        daemon.start()

        def is_back() -> bool:
            # The engine finds all of this text in the memory of the daemon that is gone.
            assert engine.call("run", prompts[:1], 1)["errors"] == []
            return published(daemon) > 0

        package.wait_until(is_back)
        assert engine.call("run", prompts, 8)["tokens"] == expected

    def test_full(self, make_daemon: Any, start: Any, driver: Driver) -> None:
        """Another client holds all that the tenant may have, and gives it back."""
        daemon = make_daemon(device=MEMORY, tenant=driver.small[0])
        alone, engine = start(driver.settings, driver.engine(daemon))
        prompts = driver.prompts(4)
        expected = alone.call("run", prompts, 8)["tokens"]
        with full(daemon):
            engine.send("run", prompts, 8)
            time.sleep(1)
        assert engine.receive()["tokens"] == expected
        self.assert_left(daemon, driver, 1)

    def test_limit_lowered(self, make_daemon: Any, start: Any, driver: Driver) -> None:
        """Below the pages that texts take, while they are computed."""
        daemon = make_daemon(device=MEMORY, tenant=driver.small[0])
        alone, engine = start(driver.settings, driver.engine(daemon))
        for seed in range(5, 8):
            prompts = driver.prompts(seed)
            expected = alone.call("run", prompts, 8)["tokens"]
            engine.send("run", prompts, 8)
            ctl(daemon, "tenants", "set", "a", driver.small[1])
            assert engine.receive()["tokens"] == expected
        self.assert_left(daemon, driver, 1)

    def test_slow_daemon(self, daemon: Any, start: Any, driver: Driver) -> None:
        """Texts are computed all the same."""
        alone, engine = start(driver.settings, driver.engine(daemon))
        prompts = driver.prompts(8)
        expected = alone.call("run", prompts, 8)["tokens"]
        with slow(daemon):
            assert engine.call("run", prompts, 8)["tokens"] == expected
            assert engine.call("run", prompts, 8)["tokens"] == expected
        self.assert_left(daemon, driver, 1)

    def test_engine_killed(self, daemon: Any, start: Any, driver: Driver) -> None:
        """What it has published is there for the next one; what it held isn't lost."""
        alone, killed = start(driver.settings, driver.engine(daemon))
        prompts = driver.prompts(9)
        expected = alone.call("run", prompts, 8)["tokens"]
        killed.send("run", prompts, 2000)
        package.wait_until(lambda: published(daemon) > 2)
        killed.kill()
        self.assert_left(daemon, driver, 0)
        (engine,) = start(driver.engine(daemon))
        assert engine.call("run", prompts, 8)["tokens"] == expected
        assert engine.call("stats")["hit_tokens"] > 0

    def test_engine_stopped(self, daemon: Any, start: Any, driver: Driver) -> None:
        """SIGSTOP in the middle: others go on, and so does the engine afterwards."""
        settings = driver.engine(daemon)
        alone, stopped, other = start(driver.settings, settings, settings)
        prompts = driver.prompts(20)
        expected = alone.call("run", prompts, 8)["tokens"]
        stopped.send("run", prompts, 8)
        time.sleep(0.1)
        os.kill(stopped.pid, signal.SIGSTOP)
        began = time.monotonic()
        try:
            assert other.call("run", prompts, 8)["tokens"] == expected
            time.sleep(max(0.0, STOPPED_SECONDS - (time.monotonic() - began)))
        finally:
            os.kill(stopped.pid, signal.SIGCONT)
        assert stopped.receive()["tokens"] == expected
        self.assert_left(daemon, driver, 2)

    def test_race(self, daemon: Any, start: Any, driver: Driver) -> None:
        """Two engines compute the same texts at the same time: each page is there once."""
        settings = driver.engine(daemon)
        alone, first, second = start(driver.settings, settings, settings)
        for seed in range(21, 23):
            prompts = driver.prompts(seed)
            expected = alone.call("run", prompts, 2)["tokens"]
            before = published(daemon)
            first.send("run", prompts, 2)
            second.send("run", prompts, 2)
            assert first.receive()["tokens"] == second.receive()["tokens"] == expected
            texts = [tuple(p + t[:-1]) for p, t in zip(prompts, expected, strict=True)]
            ends = range(driver.page, 2 * driver.size * driver.page, driver.page)
            pages = {text[:end] for text in texts for end in ends if end <= len(text)}
            n_pages = before + len(pages)
            package.wait_until(functools.partial(self._has_published, daemon, n_pages))
        self.assert_left(daemon, driver, 2)

    @staticmethod
    def _has_published(daemon: Any, n_pages: int) -> bool:
        return published(daemon) == n_pages

    def test_mismatch(self, daemon: Any, start: Any, driver: Driver) -> None:
        """Pages with other numbers under the same identity are found out."""
        liar = driver.engine(daemon, driver.wrong, **driver.same)
        truth = driver.engine(daemon, **driver.same, verify=1)
        alone, first, second = start(driver.settings, liar, truth)
        prompts = driver.prompts(24)
        expected = alone.call("run", prompts, 8)["tokens"]
        assert first.call("run", prompts, 8)["tokens"] != expected
        assert second.call("run", prompts, 8)["tokens"] == expected
        assert failures(daemon) == 1
        assert second.call("run", prompts, 8)["tokens"] == expected
        assert second.call("stats")["hit_tokens"] == 0

    def test_processor_time(self, daemon: Any, start: Any, driver: Driver) -> None:
        """Of texts that nobody shares, kvleased's included: the median of rounds in which an engine
        with kvlease and one without it take turns. Printed (pytest -s); bounded with --full."""
        settings = [driver.settings | driver.large, driver.engine(daemon, driver.large)]
        alone, engine = start(*settings)
        pids = {alone: [alone.pid], engine: [engine.pid, daemon.server_pid()]}
        ratios = []
        for seed in range(30, 30 + ROUNDS):
            used = {}
            for each in (alone, engine) if seed % 2 else (engine, alone):
                began = processor_seconds(*pids[each])
                each.call("run", [driver.prompts(seed)[0]], 32)
                used[each] = processor_seconds(*pids[each]) - began
            ratios.append(used[engine] / used[alone])
        cost = statistics.median(ratios[2:])  # the first rounds warm up
        print(f"processor time where nothing is shared: {cost:.3f} of that without")
        assert engine.call("stats")["hit_tokens"] == 0
        assert not IS_FULL or driver.most_cost is None or cost <= driver.most_cost
