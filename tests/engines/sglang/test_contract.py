"""SGLang's linker keeps what every adapter keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from contract import Contract, Driver
from models import make_llama


class Parted:
    """An engine whose process that computes is another one than the one that is asked."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.pid: int = engine.call("scheduler")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    """A llama of random weights, and others."""
    folder = tmp_path_factory.mktemp("models")
    make_llama(folder / "model")
    (folder / "other").mkdir()
    make_llama(folder / "other/model", seed=1)
    make_llama(folder / "large", hidden_size=512, intermediate_size=2048, num_hidden_layers=6)
    return Driver(
        page=16,
        settings={"model": str(folder / "model")},
        options={"timeout": 1.0},
        others={
            "weights": {"model": str(folder / "other/model")},
            "rope": {"sglang": {"json_model_override_args": '{"rope_theta": 10001.0}'}},
            "numbers": {"sglang": {"dtype": "bfloat16"}},
            "pages": {"sglang": {"page_size": 32}},
            "salt": {"kvlease": {"salt": "of others"}},
        },
        wrong={"model": str(folder / "other/model")},
        same={"weights": "said to be the same"},
        small=("limit = 8MiB", "limit=2MiB"),
        large={"model": str(folder / "large")},
    )


class TestContract(Contract):
    """All of it."""

    @pytest.fixture
    def start(self, start_engines: Any) -> Callable[..., list[Any]]:
        """Engines whose pid is that of SGLang's scheduler."""
        return lambda *settings: [Parted(each) for each in start_engines(*settings)]
