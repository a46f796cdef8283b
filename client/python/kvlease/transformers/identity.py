"""The identity of pages: engines find only pages of an equal engine and model."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import kvlease
from kvlease import _engine, _verify
from kvlease._digest import hash_parts
from kvlease._identity import Watched, settings_of
from kvlease.transformers.options import Options

# Attributes of models that are of the engine, or of enable().
_OF_ENGINES = ("_cached_continuous_batching_manager", "init_continuous_batching")


def watch(options: Options, model: Any) -> Watched:
    """What the model computes with: its tensors, its code, and the attention that it asks for."""

    def attention() -> list[tuple[str, Any]]:
        name = model.config.get_text_config()._attn_implementation
        return [("attention", ALL_ATTENTION_FUNCTIONS.get(name))]

    return Watched(model, options.weights, ignored=_OF_ENGINES, roots=attention)


def make_layout(
    options: Options,
    watched: Watched,
    model: Any,
    config: Any,
    allocator: Any,
    dtype: torch.dtype,
) -> kvlease.Layout:
    """The layout of an engine's pages.

    The model's identity, and all that the configuration says of how it is used, go into the salt:
    they have no other place that takes a hash.
    """
    # transformers, its version, the attention, how a block is made up, tokens of a block.
    attention = config._attn_implementation
    numbers = str(dtype).removeprefix("torch.")
    kind = f"transformers {transformers.__version__} {attention} block-kv {numbers}".encode()
    tail = f" {allocator.tokens_per_page}".encode()
    name = str(getattr(config, "_name_or_path", "") or type(model).__name__)
    return kvlease.Layout(
        model=_engine.last_part(name)[:64],
        dtype=_verify.DTYPES[dtype],
        n_layers=allocator.pages_per_block,
        n_kv_heads=allocator.num_key_value_heads,
        head_size=allocator.head_dim,
        page_tokens=allocator.tokens_per_page,
        plane_page_bytes=allocator.bytes_per_block,
        salt=hash_parts(settings_of(config).encode(), watched.identity, options.salt),
        format=_engine.format_of(kind, tail),
    )
