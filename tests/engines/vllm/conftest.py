"""A small model of random weights, and the settings of engines that run it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import serving
from models import make_llama
from support import COMPARED

serving.preload()
serving.fork_parts()

Settings = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """models(seed=0, ...): folder of a model of random weights."""

    def make(seed: int = 0, **settings: Any) -> str:
        folder = tmp_path_factory.mktemp("models") / "tiny"
        make_llama(folder, seed, **settings)
        return str(folder)

    return make


@pytest.fixture(scope="session")
def model(models: Callable[..., str]) -> str:
    """The one that most tests run."""
    return models()


@pytest.fixture
def settings(model: str) -> Settings:
    """settings(daemon=None, model=..., kvlease={...}, role=..., vllm options...): of an engine;
    without a daemon it has a cache of its own."""

    def make(
        daemon: Any = None,
        *,
        kvlease: dict[str, Any] | None = None,
        role: str = "kv_both",
        **options: Any,
    ) -> dict[str, Any]:
        made: dict[str, Any] = {"model": options.pop("model", model), "vllm": options, "role": role}
        if daemon is not None:
            common = {"socket": str(daemon.socket), "verify": COMPARED, "mode": "in_place"}
            made["kvlease"] = common | (kvlease or {})
        return made

    return make


@pytest.fixture
def engines(request: pytest.FixtureRequest, daemon: Any) -> Iterator[Callable[..., Any]]:
    """engines(options...): an Engine of the test's module, which ends with the test."""
    made: list[Any] = []

    def make(**options: Any) -> Any:
        made.append(request.module.Engine(daemon, **options))
        return made[-1]

    yield make
    for engine in made:
        engine.close()
