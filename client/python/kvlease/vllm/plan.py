"""What the KV cache of a model takes in kvleased, from the model's configuration alone.

Nothing of vLLM, torch or kvleased is needed. A configuration is a config.json as Hugging Face has
them. What vLLM adds as padding, where layers of several kinds share blocks, isn't counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DTYPES = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1}
"""Bytes of a number of the cache, by its name for --kv-cache-dtype."""

_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
# Where a model has other parts (vision, audio), those of the text are in here.
_OF_TEXT = ("text_config", "llm_config", "language_config", "thinker_config")
# Older names.
_ALSO = {"num_hidden_layers": "n_layer", "num_attention_heads": "n_head", "hidden_size": "n_embd"}
# Caches of other kinds than those below.
_UNKNOWN = (
    "attention_chunk_size",
    "attn_type_list",
    "block_configs",
    "compress_ratios",
    "cross_attention_layers",
    "hybrid_override_pattern",
    "linear_attn_config",
    "mamba_d_state",
    "multi_query",
    "multi_query_attention",
    "n_head_kv",
    "num_attention_groups",
    "num_kv_heads",
    "sconv_kernel_size",
    "sparse_attention",
    "swa_kv_lora_rank",
)
# Models whose configuration leaves out which layers have windows: every n-th has none, 0: all have.
_WINDOWS = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "mistral": 0, "phi3": 0, "starcoder2": 0}
# Heads' size where a configuration leaves it out, and it isn't what the other sizes say.
_HEAD_SIZES = {"gemma2": 256, "gemma3": 256, "gemma3_text": 256}
# Bytes of a number of a recurrent state, by mamba_ssm_dtype.
_STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
# Of an indexer's key: numbers are fp8, and so many have a scale of 4 bytes (vLLM).
_SCALED = 128
_REMEDY = "start the engine, and kvleasectl namespaces says what its pages take"


class UnknownError(ValueError):
    """The configuration has something that isn't known here."""


@dataclass(frozen=True)
class Layers:
    """Layers of one kind."""

    kind: str
    n_layers: int
    token_bytes: int
    """Of a token in a layer, on one rank; 0: the layers keep a state, whatever the text's length.
    """
    state_bytes: int = 0
    """Of a layer, on one rank."""
    window: int | None = None
    """Tokens that attention reaches back; None: all."""

    def page_bytes(self, n_tokens: int, n_ranks: int) -> int:
        """Of all layers and ranks: of a block, or of a state."""
        return self.n_layers * n_ranks * (self.token_bytes * n_tokens or self.state_bytes)


@dataclass(frozen=True)
class Plan:
    """What a model takes on so many ranks."""

    layers: list[Layers]
    n_ranks: int
    block: int
    """Tokens of a page."""

    @property
    def token_bytes(self) -> int:
        """Of a token whose place in the text doesn't matter, on all ranks."""
        return sum(
            each.page_bytes(1, self.n_ranks)
            for each in self.layers
            if each.token_bytes and each.window is None
        )

    @property
    def text_bytes(self) -> int:
        """What a text takes beside that, however long it is: its last window, and one state."""
        return sum(
            each.page_bytes(each.window or 1, self.n_ranks)
            for each in self.layers
            if each.window is not None or not each.token_bytes
        )

    def tokens(self, memory: int) -> int:
        """Of one text, that so many bytes hold; 0: a text can be of any length, or of none."""
        return max(0, memory - self.text_bytes) // self.token_bytes if self.token_bytes else 0


def parse_size(text: str) -> int:
    """Bytes: '60GiB', as kvleased's options have them; ValueError for anything else."""
    found = re.fullmatch(r"(\d+)(KiB|MiB|GiB|TiB)", text)
    if not found or int(found[1]) == 0:
        raise ValueError(f"a size is a number and KiB, MiB, GiB or TiB, as 60GiB, not {text!r}")
    return int(found[1]) * _UNITS[found[2]]


def make(
    config: Mapping[str, Any], n_ranks: int = 1, block: int = 16, dtype: str | None = None
) -> Plan:
    """config: a config.json. n_ranks: of tensor parallelism. block: vLLM's --block-size. dtype: of
    the cache, a key of DTYPES; None: the model's. UnknownError names what isn't known."""
    text = next((config[key] for key in _OF_TEXT if isinstance(config.get(key), Mapping)), config)
    for key in _UNKNOWN:
        if text.get(key):
            raise UnknownError(f"a cache of the kind that has {key} isn't known here: {_REMEDY}")
    name = dtype or _dtype(config, text)
    if text.get("index_head_dim") and name == "fp8":
        raise UnknownError(f"fp8 caches of MLA with an indexer aren't known here: {_REMEDY}")
    return Plan(_layers(text, n_ranks, DTYPES[name]), n_ranks, block)


def _dtype(config: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    """Of the cache, where the user names none: a model in float32 is run in 16 bits."""
    for each in (text, config):
        quantization = each.get("quantization_config")
        for key in ("kv_cache_quant_algo", "kv_cache_scheme"):
            if isinstance(quantization, Mapping) and quantization.get(key):
                raise UnknownError(f"the model names {key}: give --kv-cache-dtype")
    given = next((x[k] for x in (text, config) for k in ("dtype", "torch_dtype") if x.get(k)), "")
    name = str(given).removeprefix("torch.") or "bfloat16"
    if name not in DTYPES:
        raise UnknownError(f"the dtype {name!r} isn't known: {', '.join(DTYPES)} are")
    return "bfloat16" if name == "float32" else name


def _number(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key, config.get(_ALSO.get(key, "")))
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UnknownError(f"the configuration has {value!r} as {key}, which has to be a number")
    return value


def _types(config: Mapping[str, Any]) -> list[str]:
    """Of each layer that has a cache of its own, in the words of transformers' layer_types."""
    n = _number(config, "num_hidden_layers")
    window = config.get("sliding_window")
    given = config.get("layer_types") or config.get("layers_block_type")
    if isinstance(given, list):
        types = [str(each) for each in given]
        if len(types) != n:
            raise UnknownError(f"the configuration has {n} layers, and types of {len(types)}")
    elif every := config.get("full_attention_interval"):
        types = _mixed(n, int(every), "linear_attention")
    elif window and config.get("use_sliding_window", True):
        every = config.get("sliding_window_pattern", _WINDOWS.get(str(config.get("model_type"))))
        if not isinstance(every, int):
            raise UnknownError(f"which layers have windows isn't known here: {_REMEDY}")
        types = _mixed(n, every, "sliding_attention") if every else ["sliding_attention"] * n
    else:
        types = ["full_attention"] * n
    return types[: n - int(config.get("num_kv_shared_layers") or 0)]


def _mixed(n: int, every: int, other: str) -> list[str]:
    return ["full_attention" if (i + 1) % every == 0 else other for i in range(n)]


def _layers(config: Mapping[str, Any], n_ranks: int, n_bytes: int) -> list[Layers]:
    types = _types(config)
    made: list[Layers] = []
    for kind in dict.fromkeys(types):
        n = types.count(kind)
        if kind in ("full_attention", "attention", "sliding_attention"):
            made += _attention(config, n, kind == "sliding_attention", n_ranks, n_bytes)
        elif kind == "linear_attention":
            made.append(_linear(config, n, n_ranks, n_bytes))
        else:
            raise UnknownError(f"layers of the type {kind!r} aren't known here: {_REMEDY}")
    return made


def _attention(
    config: Mapping[str, Any], n: int, has_window: bool, n_ranks: int, n_bytes: int
) -> list[Layers]:
    window = _number(config, "sliding_window") if has_window else None
    name = f"windows of {window}" if has_window else "full attention"
    if config.get("kv_lora_rank") and not has_window:
        size = _number(config, "kv_lora_rank") + _number(config, "qk_rope_head_dim")
        made = [Layers("MLA", n, size * n_bytes)]
        if config.get("index_head_dim"):
            keys = _number(config, "index_head_dim")
            made.append(Layers("indexer", n, keys + 4 * (keys // _SCALED)))
        return made
    has_groups = config.get("num_key_value_heads") is not None
    heads = _number(config, "num_key_value_heads" if has_groups else "num_attention_heads")
    known = _HEAD_SIZES.get(str(config.get("model_type")))
    if config.get("head_dim") is not None or known:
        size = _number_or(config, "head_dim", known or 0)
    else:
        size = _number(config, "hidden_size") // _number(config, "num_attention_heads")
    if has_window:
        heads = _number_or(config, "swa_num_key_value_heads", heads)
        size = _number_or(config, "swa_head_dim", size)
        values = _number_or(config, "swa_v_head_dim", size)
    else:
        heads = _number_or(config, "num_global_key_value_heads", heads)
        size = _number_or(config, "global_head_dim", size)
        values = _number_or(config, "v_head_dim", size) or size
    own = max(1, heads // n_ranks)
    return [Layers(name, n, own * (size + values) * n_bytes, window=window)]


def _number_or(config: Mapping[str, Any], key: str, otherwise: int) -> int:
    return otherwise if config.get(key) is None else _number(config, key)


def _linear(config: Mapping[str, Any], n: int, n_ranks: int, n_bytes: int) -> Layers:
    """A gated delta net, as vLLM keeps it: the last inputs of a convolution, and a matrix for each
    head."""
    keys = _number(config, "linear_num_key_heads") * _number(config, "linear_key_head_dim")
    n_values = _number(config, "linear_num_value_heads")
    values = n_values * _number(config, "linear_value_head_dim")
    inputs = (2 * keys + values) * (_number(config, "linear_conv_kernel_dim") - 1)
    matrices = values * _number(config, "linear_key_head_dim")
    state = _STATE_BYTES.get(str(config.get("mamba_ssm_dtype")), n_bytes)
    size = (inputs * n_bytes + matrices * state) // n_ranks
    return Layers("linear attention", n, 0, state_bytes=size)
