"""Where the layers of a rank have their parts of a page, if vLLM's blocks are pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
    iter_layer_specs,
)
from vllm.v1.kv_cache_layout import KVCacheLayout

from kvlease._verify import Piece

# Kinds of layers whose blocks can be pages.
_KINDS = {
    FullAttentionSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
    ChunkedLocalAttentionSpec,
    MambaSpec,
}


def layers_of(kv_cache_config: Any) -> list[Any]:
    """Of each layer, group by group, what vLLM says of it."""
    groups = kv_cache_config.kv_cache_groups
    return [spec for group in groups for spec in iter_layer_specs(group.kv_cache_spec)]


def specs(kv_cache_config: Any) -> list[Any]:
    """Of each group of layers what vLLM says of one of its layers."""
    return [
        next(iter(iter_layer_specs(group.kv_cache_spec)))
        for group in kv_cache_config.kv_cache_groups
    ]


def dtype_of(layers: Iterable[Any]) -> torch.dtype:
    """Of all numbers of layers, of which vLLM says this; uint8 where they have several types."""
    dtypes = {dtype for each in layers for dtype in getattr(each, "dtypes", None) or [each.dtype]}
    return dtypes.pop() if len(dtypes) == 1 else torch.uint8


def unsupported(kv_cache_config: Any) -> str | None:
    """Why a rank's blocks can't be pages; None: they can."""
    groups, tensors = kv_cache_config.kv_cache_groups, kv_cache_config.kv_cache_tensors
    layers = layers_of(kv_cache_config)
    names = ", ".join(sorted({type(each).__name__ for each in layers}))
    said = f"{len(groups)} groups of layers ({names})"
    if not tensors:
        return "a rank without layers that have a cache"
    if not {*map(type, layers)} <= _KINDS or any(each.host_resident for each in tensors):
        known = ", ".join(sorted(kind.__name__ for kind in _KINDS))
        return f"{said}: only {known} are"
    if any(_has_several_states(each) for each in layers):
        return f"{said} that keep several states of a text at a time"
    if len({each.block_size for each in layers}) > 1:
        return f"{said} whose blocks have different numbers of tokens"
    if any(isinstance(each, FullAttentionSpec) and each.sliding_window for each in layers):
        return "sliding windows that vLLM takes for full attention"
    physical = KVCacheLayout[kv_cache_config.kv_cache_layout]
    if not physical.is_block_compact:
        return (
            f"the KV cache layout {physical.name}: a page must be one piece, or one for each layer"
        )
    sizes = {tensor.block_stride for tensor in tensors}
    if len(sizes) > 1:
        return f"{said} of {sorted(sizes)} bytes in the KV cache layout {physical.name}"
    (n_bytes,) = sizes
    if n_bytes % 64:
        return f"a block of {n_bytes} bytes, which isn't a multiple of 64"
    return None


def _has_several_states(spec: Any) -> bool:
    """Of recurrent layers, beside those at the ends of blocks."""
    return isinstance(spec, MambaSpec) and (
        spec.mamba_cache_mode != "align" or spec.num_speculative_blocks > 0
    )


@dataclass(frozen=True)
class Part:
    """What a rank has of each page: planes of one size. With copies each group of layers has pages
    of its own."""

    n_planes: int
    """Of each layer one, where vLLM keeps layers apart."""
    plane_bytes: int
    n_layers: int
    words: str
    """What vLLM says of the layers."""
    dtype: torch.dtype
    """Of all numbers; uint8 where layers have several."""
    n_kv_heads: int
    """Of the first layer that vLLM says something of."""
    head_size: int
    backend: str
    """Which computes on the first layer's blocks; '': a stage of a pipeline has no layer here."""
    pieces: list[list[Piece]]
    """Of the layers of each group, in the rank's planes."""


def part_of(kv_cache_config: Any, layers: Any) -> Part:
    """Of this rank, which unsupported() has nothing against. layers: vLLM's, by their names."""
    tensors = kv_cache_config.kv_cache_tensors
    groups = [set(group.layer_names) for group in kv_cache_config.kv_cache_groups]
    n_layers = max(sum(len(each.layers) for each in _of(group, tensors)) for group in groups)
    is_apart = KVCacheLayout[kv_cache_config.kv_cache_layout].is_layer_compact
    described = [f"{each.layers} {each.layer_stride} {each.offset}" for each in tensors]
    kinds = [f"{group.kv_cache_spec}" for group in kv_cache_config.kv_cache_groups]
    spec = specs(kv_cache_config)[0]
    return Part(
        n_planes=n_layers if is_apart else 1,
        plane_bytes=tensors[0].block_stride,
        n_layers=n_layers,
        words=f"{described if not is_apart else [each.layers for each in tensors]} {kinds}",
        dtype=dtype_of(layers_of(kv_cache_config)),
        n_kv_heads=getattr(spec, "num_kv_heads", 1),
        head_size=getattr(spec, "head_size", 1),
        backend=layers[tensors[0].layers[0]].get_attn_backend().get_name(),
        pieces=[_pieces(group, tensors, is_apart) for group in kv_cache_config.kv_cache_groups],
    )


def _pieces(group: Any, tensors: Any, is_apart: bool) -> list[Piece]:
    of_layers = getattr(group.kv_cache_spec, "kv_cache_specs", {})
    pieces: list[Piece] = []
    for tensor in _of(group.layer_names, tensors):
        for i, name in enumerate(tensor.layers):
            n_bytes = of_layers.get(name, group.kv_cache_spec).real_page_size_bytes
            start = tensor.offset + i * tensor.layer_stride
            pieces.append((len(pieces), 0, n_bytes) if is_apart else (0, start, n_bytes))
    return pieces


def pieces_of_all(parts: Sequence[Part]) -> list[list[Piece]]:
    """Of the layers of each group in a page, which has the parts of all ranks."""
    n_planes = max(part.n_planes for part in parts)
    return [
        [
            (rank * n_planes + plane, *where)
            for rank, pieces in enumerate(of_ranks)
            for plane, *where in pieces
        ]
        for of_ranks in zip(*(part.pieces for part in parts), strict=True)
    ]


def dtype_of_all(parts: Sequence[Part]) -> torch.dtype:
    """Of the numbers of all ranks; uint8 where they have several."""
    dtypes = {part.dtype for part in parts if part.backend}
    return dtypes.pop() if len(dtypes) == 1 else torch.uint8


def _of(group: Any, tensors: Any) -> list[Any]:
    return [tensor for tensor in tensors if tensor.layers[0] in group]


def place(kv_cache_config: Any, n_bytes: int, stride: int, step: int) -> None:
    """Says to vLLM where the parts of the layers lie: in a tensor of n_bytes, whose pages begin
    stride bytes after each other, and whose planes, where there are several, step bytes."""
    tensors = kv_cache_config.kv_cache_tensors
    for group in kv_cache_config.kv_cache_groups:
        n_before = 0
        # Groups overlay each other: a block is of one of them.
        for tensor in _of(group.layer_names, tensors):
            tensor.size, tensor.block_stride = n_bytes, stride
            if step:
                tensor.offset, tensor.layer_stride = n_before * step, step
            n_before += len(tensor.layers)
