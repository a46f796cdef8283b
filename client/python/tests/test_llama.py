"""The part of the adapter of llama.cpp that needs no libllama; tests/engines/llama has the rest."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import kvlease
from kvlease import _kvlease


def test_weights_are_named_by_all_their_bytes(tmp_path: Path) -> None:
    weights = tmp_path / "model.gguf"
    weights.write_bytes(b"GGUF" * 300_000)
    n_bytes = weights.stat().st_size.to_bytes(8, "little")
    assert (
        _kvlease.llama_hash(weights) == hashlib.sha256(weights.read_bytes() + n_bytes).hexdigest()
    )
    with pytest.raises(kvlease.Error, match="none"):
        _kvlease.llama_hash(tmp_path / "none.gguf")


def test_a_library_that_is_not_loaded() -> None:
    with pytest.raises(kvlease.Error, match="hasn't loaded /nowhere/libllama"):
        _kvlease.llama_new(1, "/nowhere/libllama.so", "weights")
    with pytest.raises(kvlease.Error, match="no function llama_"):
        _kvlease.llama_new(1, None, "weights")
    for weights in ("", "w" * 257):
        with pytest.raises(kvlease.Invalid, match="weights"):
            _kvlease.llama_new(1, None, weights)
    with pytest.raises(kvlease.Invalid, match="chunk_tokens"):
        _kvlease.llama_new(1, None, "weights", chunk_tokens=8)
