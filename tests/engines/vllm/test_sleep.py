"""Engines that sleep and wake up. On the CPU vLLM gives no memory back: the worker's methods are
replaced by some that forget as much."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import kvlease_conftest as package
import pytest
from contract import FULL
from support import findable, held, make_prompts, published
from vllm.v1.engine.core import EngineCore

from kvlease.vllm.connector import keep_over_sleep

PAGE = 32
PROMPTS = make_prompts(1, 200, 7, 40)
# What vLLM's worker does on GPUs, by the tags of its memory.
FORGET = """
from vllm.distributed.kv_transfer import get_kv_transfer_group
from vllm.v1.worker.cpu_worker import CPUWorker
def forget(self):
    # In place vLLM's cache is memory of kvleased's, which sleep mode doesn't know.
    if type(get_kv_transfer_group()).__module__ != "kvlease.vllm.in_place":
        for cache in self.model_runner.kv_caches:
            cache.fill_(float("nan"))
def sleep(self, level=1):
    forget(self)
    self.kept = {k: v.clone() for k, v in self.get_model().state_dict().items()}
    for parameter in self.get_model().parameters():
        parameter.data.fill_(float("nan"))
    if level > 1:
        del self.kept
def wake_up(self, tags=None):
    forget(self)
    if (tags is None or "weights" in tags) and hasattr(self, "kept"):
        self.get_model().load_state_dict(self.kept)
CPUWorker.sleep, CPUWorker.wake_up = sleep, wake_up
"""
RELOAD = "self.engine.collective_rpc('reload_weights', kwargs={'weights_path': %r})"


class Core(EngineCore):
    """An engine with requests: it falls asleep when they are over, or not at all."""

    def __init__(self, cache: Any) -> None:
        self.cache, self.kept = cache, []
        keep_over_sleep(cache)

    def sleep(self, level: int = 1, mode: Any = "abort") -> Any:
        """Waits for the requests."""
        if mode == "soon":
            raise ValueError(mode)
        return Future[None]()

    def _reset_caches(self, *arguments: Any, **keywords: Any) -> None:
        self.kept.append(self.cache.keeps_pages)


def test_an_engine_that_stays_awake() -> None:
    """A reset that is asked for later drops pages."""
    core: Any = Core(SimpleNamespace(keeps_pages=False))
    with pytest.raises(ValueError, match="soon"):
        core.sleep(mode="soon")
    core._reset_caches()
    assert core.kept == [False]


@pytest.mark.parametrize("failure", [None, RuntimeError("blocks are held")])
def test_a_pause_that_is_not_complete(failure: Exception | None) -> None:
    """While requests still run, a reset of the user's drops pages; the one before sleep doesn't,
    also where the user wakes the engine up before. After that, resets drop pages."""
    core: Any = Core(SimpleNamespace(keeps_pages=False))
    asleep = core.sleep(mode="wait")
    assert not core.cache.keeps_pages
    core._reset_caches()
    assert core.kept == [True]
    if failure:
        asleep.set_exception(failure)
    else:
        asleep.set_result(None)
    core._reset_caches()
    core.sleep(level=0)
    core._reset_caches()
    assert core.kept == [True, False, False]
    assert not core.cache.keeps_pages


@pytest.mark.parametrize(
    ("mode", "processes"),
    [
        ("in_place", "0"),
        ("in_place", "1"),
        ("copy", "0"),
        pytest.param("copy", "1", marks=FULL),
    ],
)
def test_it_wakes_up_with_its_cache(
    daemon: package.Daemon,
    start_engines: Any,
    settings: Any,
    model: str,
    mode: str,
    processes: str,
) -> None:
    (alone,) = start_engines(settings())
    expected = alone.call("run", PROMPTS, 8)["tokens"]
    (engine,) = start_engines(
        settings(daemon, kvlease={"mode": mode, "verify": 0}) | {"before": FORGET},
        environment={"VLLM_ENABLE_V1_MULTIPROCESSING": processes},
    )
    assert engine.call("run", PROMPTS, 8)["tokens"] == expected
    n_published = published(daemon)
    assert n_published >= len(PROMPTS[0]) // PAGE

    for level, tags in ((1, "None"), (1, "['weights'], ['kv_cache']"), (2, "['weights'], None")):
        if processes == "1":
            # A request that is still running is aborted; without processes vLLM doesn't say so.
            engine.call("add", PROMPTS[0], 1000)
            engine.call("steps", 3)
        engine.call("do", f"self.llm.sleep(level={level})")
        package.wait_until(lambda: held(daemon) == (0, 0))
        assert published(daemon) >= n_published
        for each in tags.split(", "):
            engine.call("do", f"self.llm.wake_up({each})")
            if level > 1 and each != "None":
                engine.call("do", RELOAD % model)
        got = engine.call("run", PROMPTS, 8)
        assert got["tokens"] == expected
        assert got["found"] == findable(PROMPTS, PAGE)

    # A pause drops nothing; then the user's own reset drops all, as ever.
    engine.call("do", "self.llm.sleep(level=0)")
    engine.call("do", "self.llm.wake_up(['scheduling'])")
    assert engine.call("run", PROMPTS[:1], 8)["found"] == findable(PROMPTS[:1], PAGE)
    if mode == "in_place":
        # The first one drops nothing, as the model has been another one meanwhile.
        assert engine.call("reset") and engine.call("reset")
        assert published(daemon) == 0
