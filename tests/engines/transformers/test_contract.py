"""transformers keeps what every adapter keeps."""

from __future__ import annotations

import pytest
from contract import Contract, Driver


@pytest.fixture(scope="session")
def driver() -> Driver:
    """A llama of random weights, and others."""
    return Driver(
        page=16,
        settings={},
        others={
            "attention": {"model": {"attention": "eager"}},
            "weights": {"model": {"seed": 1}},
            "configuration": {"model": {"rope_theta": 20000.0}},
            "type": {"dtype": "bfloat16"},
            "salt": {"kvlease": {"salt": "somebody else"}},
            "page_size": {"batching": {"page_size": 32}},
        },
        wrong={"model": {"seed": 1}},
        same={"weights": "said to be the same"},
        held=2,
        loss={"reconnect": 0.05},
        survives=False,
        size=20,
        large={"model": {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 6}},
    )


class TestContract(Contract):
    """All of it."""
