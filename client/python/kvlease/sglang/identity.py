"""The identity of pages: engines find only pages of an equal engine and model."""

from __future__ import annotations

import gc
import logging
from collections.abc import Sequence
from typing import Any

import sglang
import torch
from sglang.srt.model_executor.model_runner import ModelRunner

import kvlease
from kvlease import _engine
from kvlease._digest import hash_parts
from kvlease._identity import Watched, plug_ins, settings_of
from kvlease.sglang.options import Options
from kvlease.sglang.pages import Pool

_logger = logging.getLogger("kvlease")

# Entry points by which packages change what SGLang computes.
_PLUG_INS = ("sglang.srt.plugins", "sglang.srt.platforms")


def runners() -> list[ModelRunner]:
    """Those of this process whose model is loaded, the one of draft models last. SGLang gives
    plug-ins no way to them."""
    found = [each for each in gc.get_objects() if issubclass(type(each), ModelRunner)]
    loaded = [each for each in found if isinstance(getattr(each, "model", None), torch.nn.Module)]
    return sorted(loaded, key=lambda each: each.is_draft_worker)


class Model:
    """What this rank computes with, and whether it still does."""

    def __init__(self, options: Options, own: Sequence[ModelRunner]) -> None:
        """own: of the rank. ValueError where the weights can't be told apart."""
        if not own:
            raise ValueError(
                "kvlease finds no model in this process: attach its cache when SGLang starts"
            )
        self._watched = [Watched(each.model, options.weights) for each in own]
        self.identity = hash_parts(
            *(part for each in own for part in _words(each)),
            *(each.identity for each in self._watched),
            plug_ins(*_PLUG_INS),
            options.salt.encode(),
        )

    def has_changed(self) -> bool:
        """Whether something was written to the weights, or exchanged, since this was made."""
        return not all(each.look() for each in self._watched)

    def current(self) -> bytes | None:
        """The identity as it is now; None: it can't be told."""
        for each in self._watched:
            each.renew()
        if all(each.current == each.identity for each in self._watched):
            return self.identity
        return hash_parts(*(each.current or b"" for each in self._watched))


def _words(runner: ModelRunner) -> list[bytes]:
    """The configuration of a model, and how it is computed."""
    config = runner.model_config
    words = [
        settings_of(config.hf_config),
        # The pools' own dtype of fp8 numbers is uint8.
        f"{runner.dtype} {runner.kv_cache_dtype} {config.quantization}",
        type(runner.attn_backend).__name__,
    ]
    if "longrope" in words[0]:  # its factors depend on it
        words.append(f"{config.context_len}")
    return [word.encode() for word in words]


def layout_of(pool: Pool, config: Any, identity: bytes, is_of_rank: bool) -> kvlease.Layout:
    """config: SGLang's HiCacheStorageConfig. is_of_rank: the ranks of tensor parallelism have other
    numbers each."""
    name = _engine.last_part(config.model_name or "model")[:64]
    numbers = str(pool.dtype).removeprefix("torch.")
    kind = f"sglang {sglang.__version__} {pool.name} {pool.kind} {numbers} "
    words = (
        f"{kind} {pool.sizes} pp{config.pp_rank}/{config.pp_size} "
        f"cp{config.attn_cp_rank}/{config.attn_cp_size} dcp{config.dcp_rank}/{config.dcp_size}"
    )
    return pool.layout(
        name,
        hash_parts(identity, words.encode()),
        _engine.format_of(kind.encode(), f"{pool.n_slots}".encode()),
        (config.tp_rank, config.tp_size) if is_of_rank else (0, 1),
    )
