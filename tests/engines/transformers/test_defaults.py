"""What the engine would choose by itself, where the user leaves it open."""

import pytest
from support import TINY_LLAMA
from transformers import (
    ContinuousBatchingConfig,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
)
from transformers.generation.continuous_batching import initialization

import kvlease.transformers


@pytest.mark.parametrize(("asked", "chosen"), [(None, False), (False, False), (True, True)])
def test_asynchronous_batching(
    monkeypatch: pytest.MonkeyPatch, asked: bool | None, chosen: bool
) -> None:
    """On a GPU with flash attention the engine takes what kvlease refuses."""
    monkeypatch.setattr(initialization, "get_accelerator_graph_name", lambda: "cuda")
    monkeypatch.setattr(initialization, "is_flash_attention_requested", lambda *_, **__: True)
    config = ContinuousBatchingConfig(use_async_batching=asked, max_blocks_per_request=0)
    model = LlamaForCausalLM(LlamaConfig(**TINY_LLAMA))
    manager = kvlease.transformers.Manager(model, GenerationConfig(), config)
    assert manager.continuous_batching_config.use_async_batching is chosen
    assert config.use_async_batching is asked
