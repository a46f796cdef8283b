"""What a vLLM's pages hold, said so that nobody reads what another engine or model wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import vllm

import kvlease
from kvlease import _engine, _verify
from kvlease._codecs import Codecs
from kvlease._digest import hash_parts
from kvlease._identity import plug_ins, settings_of
from kvlease.vllm import places

TESTED = ((0, 31), (0, 32), (0, 33))
"""Releases of vLLM, the oldest one first."""

_PLUG_INS = ("vllm.general_plugins", "vllm.platform_plugins")


Mode = Literal["auto", "in_place", "copy"]

# Settings that kvlease gives to vLLM's own code for copies.
_SPEC = {"spec_name": "Spec", "spec_module_path": "kvlease.vllm.copies"}
# Settings of vLLM's own code for copies that the user may give.
_OF_COPIES = ("block_size", "blocks_per_chunk", "offload_prompt_only", "sync_load_budget_bytes")
_OF_CODECS = tuple(each.name for each in fields(Codecs))


class NotInPlaceError(ValueError):
    """Why this engine's blocks can't be pages. Nothing has changed."""


@dataclass(frozen=True)
class Options:
    """kv_connector_extra_config of --kv-transfer-config: docs/integrate/vllm.md has the meanings.
    The last three aren't given there."""

    mode: Mode = "auto"
    socket: str | None = None
    client_name: str | None = None
    device: str | None = None
    weights: str | None = None
    salt: str = ""
    on_loss: _engine.OnLoss = "error"
    reconnect: float | None = 60
    remote_timeout: float = 10
    any_version: bool = False
    verify: float = 0
    of_copies: tuple[str, ...] = ()
    """Which settings are given that have a meaning for copies alone."""
    role: str = "kv_both"
    """kv_role: a 'kv_consumer' publishes no page, a 'kv_producer' loads none."""
    dp_rank: int = 0
    """Which of the engines of vLLM's data parallelism this is."""

    @property
    def publishes(self) -> bool:
        """Whether pages that the engine computes are for others."""
        return self.role != "kv_consumer"

    @property
    def loads(self) -> bool:
        """Whether pages are copied into vLLM's own cache: for a producer vLLM's scheduler doesn't
        keep freed blocks until the step that writes to them is over."""
        return self.role != "kv_producer"

    @classmethod
    def of(cls, vllm_config: Any) -> Options:
        """Those of an engine; ValueError names a setting that isn't known, or can't be."""
        transfer = vllm_config.kv_transfer_config
        given = transfer.kv_connector_extra_config
        not_given = ("of_copies", "role", "dp_rank")
        own = [field.name for field in fields(cls) if field.name not in not_given]
        known = {*own, *_OF_CODECS, *_OF_COPIES}
        unknown = sorted(set(given) - known - set(_SPEC))
        if unknown:
            raise ValueError(
                f"kv_connector_extra_config has {', '.join(map(repr, unknown))}, which the "
                f"KvleaseConnector doesn't know; it knows {', '.join(sorted(known))}"
            )
        of_copies = tuple(sorted(set(given) & {*_OF_CODECS, *_OF_COPIES}))
        options = cls(
            **{name: given[name] for name in own if name in given},
            of_copies=of_copies,
            role=transfer.kv_role,
            # data_parallel_rank is 0 for models without experts: vLLM has independent engines then.
            dp_rank=vllm_config.parallel_config.data_parallel_index,
        )
        if options.mode not in get_args(Mode):
            raise ValueError(f"mode is 'auto', 'in_place' or 'copy', not {options.mode!r}")
        if options.mode == "in_place" and of_copies:
            raise ValueError(f"{', '.join(of_copies)}: these settings need the mode 'copy'")
        _engine.check_settings(options.on_loss, options.remote_timeout)
        _verify.check_share(options.verify)
        if options.verify and not options.publishes:
            raise ValueError(
                f"verify is {options.verify}, and a 'kv_consumer' publishes no page that could be "
                "compared: leave verify at 0, or choose the kv_role 'kv_both'"
            )
        return options


def name_spec(vllm_config: Any) -> None:
    """Says to vLLM's own code that copies by which module it copies."""
    vllm_config.kv_transfer_config.kv_connector_extra_config.update(_SPEC)


def refuse(vllm_config: Any, options: Options) -> None:
    """ValueError for an engine that can't share in any mode, before anything is made."""
    oldest = TESTED[0]
    if _release() < oldest and not options.any_version:
        raise ValueError(
            f"the KvleaseConnector is made for vLLM {oldest[0]}.{oldest[1]} and later, and this is "
            f'{vllm.__version__}: kv_connector_extra_config {{"any_version": true}} tries it all '
            "the same"
        )
    why = _unsupported(vllm_config, options)
    if why:
        raise ValueError(f"the KvleaseConnector doesn't support {why}")


def _release() -> tuple[int, ...]:
    return tuple(int(part) for part in vllm.__version__.split(".")[:2])


def _unsupported(vllm_config: Any, options: Options) -> str | None:
    """What of the configuration no mode can do; None: nothing."""
    parallel, cache = vllm_config.parallel_config, vllm_config.cache_config
    if parallel.decode_context_parallel_size > 1 or parallel.prefill_context_parallel_size > 1:
        return "context parallelism"
    if parallel.nnodes > 1:
        return f"ranks on several hosts ({parallel.nnodes}), each with a kvleased of its own"
    budget = vllm_config.kv_transfer_config.kv_connector_extra_config.get("sync_load_budget_bytes")
    if budget and parallel.distributed_executor_backend != "uni":
        return "sync_load_budget_bytes with workers in other processes than the scheduler"
    if not cache.enable_prefix_caching:
        return "a run without prefix caching: leave out --no-enable-prefix-caching"
    if cache.prefix_caching_hash_algo not in ("sha256", "sha256_cbor"):
        return (
            f"--prefix-caching-hash-algo {cache.prefix_caching_hash_algo}: "
            "keys are SHA-256, sha256 or sha256_cbor"
        )
    if options.verify and has_draft_model(vllm_config):
        method = vllm_config.speculative_config.method
        # An independent model reads nothing behind a block. EAGLE and MTP read the next token.
        if method != "draft_model":
            return f"verify with {method!r}, whose part of a page depends on the next page"
    return None


def unsupported_in_place(vllm_config: Any, kv_cache_config: Any, options: Options) -> str | None:
    """What can't be where the engine's blocks are pages themselves; None: nothing."""
    if options.of_copies:
        return f"settings of copies alone: {', '.join(options.of_copies)}"
    if _release() not in TESTED and not options.any_version:
        newest = ".".join(map(str, TESTED[-1]))
        return f"vLLM {vllm.__version__}: the newest whose blocks were tested is {newest}"
    if has_draft_model(vllm_config):
        speculative = vllm_config.speculative_config
        if not speculative.use_eagle() and speculative.method != "draft_model":
            return f"speculative decoding by {speculative.method!r}, whose blocks weren't tested"
    why = places.unsupported(kv_cache_config)
    if why is not None:
        return why
    tokens = places.specs(kv_cache_config)[0].block_size
    unit = getattr(vllm_config.cache_config, "prefix_match_unit", None)
    return (
        None if unit in (None, tokens) else f"--prefix-match-unit {unit} beside blocks of {tokens}"
    )


def layout(
    vllm_config: Any,
    options: Options,
    model: bytes,
    parts: Sequence[places.Part],
    kv_cache_layout: str,
    n_tokens: int,
    *,
    copies_group: int | None = None,
    is_replicated: bool = False,
) -> kvlease.Layout:
    """Of pages of n_tokens: the model's identity and its configuration are in the salt, the way of
    writing in the format.

    A page has the parts of all ranks, each in planes of its own, one rank's behind the other's: so
    it is found or not for all of them, and has one number. A rank has as many planes as the one
    with the most layers; what it doesn't need of them is unused. Stages of a pipeline have other
    layers each, and say the same: what the first one has.

    copies_group: with copies, the number of the group of layers. is_replicated: all ranks have the
    same numbers, which the first one stores.
    """
    own = next(part for part in parts if part.backend)
    # The dtype of fp8 numbers is uint8: the setting has the name of the numbers (fp8_e5m2).
    cache, parallel = vllm_config.cache_config, vllm_config.parallel_config
    dtype = places.dtype_of_all(parts)
    is_known = dtype in _verify.DTYPES
    numbers = str(dtype).removeprefix("torch.") if is_known else cache.cache_dtype
    n_stages = parallel.pipeline_parallel_size
    kind = (
        f"vllm {vllm.__version__} {'' if copies_group is None else 'copies '}{own.backend} "
        f"{kv_cache_layout} {cache.prefix_caching_hash_algo} "
        f"{numbers} tp{parallel.tensor_parallel_size}" + (f" pp{n_stages}" if n_stages > 1 else "")
    )
    return kvlease.Layout(
        model=model_name(vllm_config),
        dtype=_verify.DTYPES.get(dtype, kvlease.DType.OTHER),
        n_layers=sum(part.n_layers for part in parts) // parallel.tensor_parallel_size,
        n_kv_heads=own.n_kv_heads,
        head_size=own.head_size,
        # vLLM's blocks beside recurrent states have more.
        page_tokens=min(n_tokens, _engine.MOST_TOKENS),
        plane_page_bytes=max(part.plane_bytes for part in parts),
        n_planes=max(part.n_planes for part in parts) * (1 if is_replicated else len(parts)),
        layer_group=copies_group or 0,
        salt=hash_parts(
            salt(vllm_config, options, model), *(part.words.encode() for part in parts)
        ),
        format=_engine.format_of(kind.encode(), f" {n_tokens}".encode()),
    )


def model_name(vllm_config: Any) -> str:
    """For people."""
    return _engine.last_part(vllm_config.model_config.model)[:64]


def has_draft_model(vllm_config: Any) -> bool:
    """Whether tokens are proposed by a model that has layers in the KV cache. A class of the user's
    may have some."""
    speculative = vllm_config.speculative_config
    return speculative is not None and bool(
        speculative.uses_draft_kv_cache() or speculative.method == "custom_class"
    )


def salt(vllm_config: Any, options: Options, identity: bytes) -> bytes:
    """Of a layout: the model in memory and its configuration, what else is installed into vLLM, and
    what the user says."""
    model = vllm_config.model_config
    words = settings_of(model.hf_config)
    if has_draft_model(vllm_config):
        speculative = vllm_config.speculative_config
        draft = settings_of(speculative.draft_model_config.hf_config)
        words += f" {speculative.method} {speculative.num_speculative_tokens} {draft}"
    if "longrope" in words:  # its factors depend on it
        words += f" {model.max_model_len}"
    return hash_parts(
        words.encode(),
        f"{model.quantization}".encode(),
        identity,
        plug_ins(*_PLUG_INS),
        options.salt.encode(),
    )
