"""A small model of random weights, and the settings of engines that run it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support import TINY_LLAMA
from transformers import LlamaConfig, LlamaForCausalLM

OPS = Path(__file__).resolve().parent / "ops"
os.environ["VLLM_TARGET_DEVICE"] = "cpu"
os.environ["PYTHONPATH"] = f"{os.environ.get('PYTHONPATH', '')}:{OPS}"
# One process an engine, which starts in half the time; "processes" below has three.
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
# Otherwise each rank wants a memory node of its own, and as many threads as there are processors.
os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
os.environ["OMP_NUM_THREADS"] = "1"

Settings = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """models(seed=0, ...): folder of a model of random weights."""

    def make(seed: int = 0, **settings: Any) -> str:
        torch.manual_seed(seed)
        config = LlamaConfig(**TINY_LLAMA | settings)
        folder = tmp_path_factory.mktemp("models") / "tiny"
        LlamaForCausalLM(config).eval().save_pretrained(folder)
        return str(folder)

    return make


@pytest.fixture(scope="session")
def model(models: Callable[..., str]) -> str:
    """The one that most tests run."""
    return models()


@pytest.fixture
def settings(model: str) -> Settings:
    """settings(daemon=None, model=..., kvlease={...}, vllm options...): of an engine; without a
    daemon it has a cache of its own."""

    def make(
        daemon: Any = None, *, kvlease: dict[str, Any] | None = None, **options: Any
    ) -> dict[str, Any]:
        made: dict[str, Any] = {"model": options.pop("model", model), "vllm": options}
        if daemon is not None:
            made["kvlease"] = {"socket": str(daemon.socket), **(kvlease or {})}
        return made

    return make
