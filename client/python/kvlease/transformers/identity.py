"""What pages hold, said so that nobody finds what another engine, or another model, wrote."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch
import transformers

import kvlease
from kvlease import _engine
from kvlease.transformers.options import Options


def make_layout(
    options: Options, model: Any, config: Any, allocator: Any, dtype: torch.dtype
) -> kvlease.Layout:
    """The layout of an engine's pages.

    The weights, and all that the configuration says of how they are used, go into the salt: they
    have no other place that takes a hash.
    """
    settings = {
        key: value
        for key, value in config.to_dict().items()
        if key not in ("transformers_version", "_name_or_path")
    }
    # transformers, its version, the attention, how a block is made up, tokens of a block.
    attention = config._attn_implementation
    numbers = str(dtype).removeprefix("torch.")
    kind = f"transformers {transformers.__version__} {attention} block-kv {numbers}".encode()
    tail = f" {allocator.tokens_per_page}".encode()
    name = str(getattr(config, "_name_or_path", "") or type(model).__name__)
    return kvlease.Layout(
        model=name.rstrip("/").rpartition("/")[2][:64],
        dtype=_engine.DTYPES[dtype],
        n_layers=allocator.pages_per_block,
        n_kv_heads=allocator.num_key_value_heads,
        head_size=allocator.head_dim,
        page_tokens=allocator.tokens_per_page,
        plane_page_bytes=allocator.bytes_per_block,
        salt=_engine.salt(
            json.dumps(settings, sort_keys=True, default=str).encode(),
            options.weights.encode() if options.weights else _fingerprint(model),
            options.salt,
        ),
        format=_engine.format_of(kind, tail),
    )


def _fingerprint(model: Any) -> bytes:
    """Of all weights by name: their type, their shape, the sum of their bits, some of them as is.

    What was trained further, merged or quantized has another one. It takes as long as reading all
    of them once.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if not isinstance(tensor, torch.Tensor):
            continue
        flat = tensor.detach().contiguous().view(-1).view(torch.uint8)
        words = flat[: flat.numel() // 8 * 8].view(torch.int64)
        step = max(1, flat.numel() // 4096)
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} {int(words.sum())}".encode())
        digest.update(flat[::step].cpu().numpy().tobytes())
        digest.update(flat[flat.numel() // 8 * 8 :].cpu().numpy().tobytes())
    return digest.digest()
