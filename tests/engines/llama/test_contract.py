"""llama.cpp keeps what every adapter keeps."""

from __future__ import annotations

from typing import Any

import pytest
from contract import Contract, Driver
from gguf_models import make_model


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    """A llama of random weights, and others."""
    folder = tmp_path_factory.mktemp("models")
    small: dict[str, Any] = {"layers": 3}
    model = make_model(folder / "model.gguf", **small)
    other = make_model(folder / "other.gguf", seed=1, **small)
    twisted = make_model(folder / "twisted.gguf", twisted=True, **small)
    return Driver(
        page=64,
        settings={"model": model},
        options={"chunk_tokens": 64},
        others={
            "weights": {"model": other},
            "embeddings": {"model": twisted},
            "flash attention": {"llama": {"flash_attn": True}},
            "types": {"llama": {"flash_attn": True, "type_k": 8, "type_v": 8}},
            "rope": {"llama": {"rope_freq_base": 10001.0}},
            "yarn": {"llama": {"rope_scaling_type": 2, "rope_freq_scale": 0.5}},
            "salt": {"kvlease": {"salt": "of others"}},
            "chunks": {"kvlease": {"chunk_tokens": 128}},
        },
        wrong={"model": twisted},
        same={"weights": "said to be the same"},
        large={"model": make_model(folder / "large.gguf", size=512, layers=6)},
    )


class TestContract(Contract):
    """All of it."""
