"""What pages are said to hold, and what is refused, by vLLM's own configurations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import vllm
from vllm import EngineArgs
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.multi_connector import MultiConnector
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheTensor,
    MambaSpec,
    MLAAttentionSpec,
    RSWASpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)

import kvlease
from kvlease import _engine
from kvlease.vllm import connections, identity, places, weights
from kvlease.vllm.worker import Worker

TRANSFER = {"kv_connector": "KvleaseConnector", "kv_role": "kv_both"}
SIZES = {"block_size": 32, "num_kv_heads": 2, "head_size": 32, "dtype": torch.float32}
RANKS = {"tensor_parallel_size": 2, "distributed_executor_backend": "mp"}
FULL = FullAttentionSpec(**SIZES)


class Backend:
    """That of a layer."""

    def __init__(self, name: str) -> None:
        self.name = name

    def get_attn_backend(self) -> Any:
        """What vLLM calls it."""
        return SimpleNamespace(get_name=lambda: self.name)


LAYERS = {name: Backend("CPU_ATTN") for name in ("a", "d")}


def caches(*specs: Any) -> KVCacheConfig:
    """A group of layers for each."""
    return KVCacheConfig(
        num_blocks=100,
        kv_cache_tensors=[
            KVCacheTensor(size=1, layers=[str(i)], layer_stride=64, block_stride=64)
            for i in range(len(specs))
        ],
        kv_cache_layout="BLHNC",
        kv_cache_groups=[KVCacheGroupSpec([str(i)], spec) for i, spec in enumerate(specs)],
    )


def refusal(
    model: str,
    *specs: Any,
    extra: dict[str, Any] | None = None,
    device: str = "cpu",
    **engine: Any,
) -> str:
    """Why an engine can't share in place, or not at all; '': it can."""
    transfer = TRANSFER | engine.pop("kv_transfer_config", {})
    config = EngineArgs(
        model=model,
        skip_tokenizer_init=True,
        kv_transfer_config=transfer | {"kv_connector_extra_config": extra or {}},
        **engine,
    ).create_engine_config()
    config.device_config.device_type = device
    try:
        options = identity.Options.of(config)
        identity.refuse(config, options)
    except ValueError as error:
        return str(error)
    return identity.unsupported_in_place(config, caches(*(specs or [FULL])), options) or ""


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({**RANKS, "nnodes": 2}, "ranks on several hosts (2)"),
        ({"enable_prefix_caching": False}, "prefix caching"),
        ({**RANKS, "extra": {"sync_load_budget_bytes": 1}}, "sync_load_budget_bytes"),
        ({"prefix_caching_hash_algo": "xxhash"}, "xxhash"),
        (
            {"kv_transfer_config": {"kv_role": "kv_consumer"}, "extra": {"verify": 0.5}},
            "a 'kv_consumer' publishes no page that could be compared",
        ),
    ],
)
def test_refused(model: str, options: dict[str, Any], sentence: str) -> None:
    assert sentence in refusal(model, **options)


@pytest.mark.parametrize(
    ("device", "member", "n_ranks", "sentence"),
    [
        ("GPU-1", "GPU-1", 1, None),
        ("tp2", "gpu-1", 2, None),
        ("tp2", "MIG-7", 2, None),
        ("GPU-1", "GPU-1", 2, "the device GPU-1 doesn't span them"),
        ("tp2", "", 2, "the device tp2 doesn't span them"),
        ("tp2", "GPU-2", 2, "computes on GPU-1, and its part of the pages lies on GPU-2"),
    ],
)
def test_where_a_rank_lies(
    monkeypatch: pytest.MonkeyPatch, device: str, member: str, n_ranks: int, sentence: str | None
) -> None:
    """No GPU is here: what torch and kvleased would say of theirs."""
    properties = SimpleNamespace(uuid="1")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    worker: Any = object.__new__(Worker)
    worker._device = "cuda"
    info = SimpleNamespace(is_cpu_memory=False, device=device, member=member)
    worker._namespace = SimpleNamespace(info=info)
    why = worker._misplaced(n_ranks)
    assert sentence in why if sentence else why is None


def test_refused_layers(model: str) -> None:
    window = SlidingWindowSpec(**SIZES, sliding_window=64)
    guess = {"method": "ngram", "num_speculative_tokens": 2}
    assert refusal(model) == refusal(model, **RANKS) == ""
    assert refusal(model, speculative_config=guess) == ""
    config: Any = EngineArgs(
        model=model, skip_tokenizer_init=True, speculative_config=guess
    ).create_engine_config()
    for method, is_draft in (("ngram_gpu", False), ("medusa", False), ("custom_class", True)):
        config.speculative_config.method = method
        assert identity.has_draft_model(config) == is_draft
    assert refusal(model, pipeline_parallel_size=2) == ""
    assert refusal(model, window) == refusal(model, FULL, window) == ""
    latent = MLAAttentionSpec(**SIZES | {"num_kv_heads": 1, "dtype": torch.uint8})
    assert refusal(model, latent) == ""
    assert refusal(model, FullAttentionSpec(**SIZES | {"dtype": torch.int8})) == ""
    # Blocks are one piece, and as wide as the widest group's.
    narrow = SlidingWindowSpec(**SIZES | {"head_size": 16}, sliding_window=64)
    assert refusal(model, FULL, narrow) == ""
    state = MambaSpec(block_size=32, shapes=((4096,),), dtypes=(torch.float32,))
    assert "(FullAttentionSpec, MambaSpec) that keep several states" in refusal(model, FULL, state)
    state = replace(state, mamba_cache_mode="align")
    assert refusal(model, FULL, state) == ""
    assert "several states" in refusal(model, FULL, replace(state, num_speculative_blocks=1))
    assert "(FullAttentionSpec, RSWASpec): only" in refusal(
        model, FULL, RSWASpec(**SIZES, rswa_window=64)
    )
    assert "--prefix-match-unit 16 beside" in refusal(model, FULL, window, prefix_match_unit=16)
    assert "numbers of tokens" in refusal(model, FULL, replace(window, block_size=64))
    taken = FullAttentionSpec(**SIZES, sliding_window=64)
    assert "takes for full attention" in refusal(model, taken)
    both = UniformTypeKVCacheSpecs(32, kv_cache_specs={"0": FULL, "1": taken})
    assert "takes for full attention" in refusal(model, both)


@pytest.mark.parametrize(
    ("layout", "strides", "sentence"),
    [
        ("LBHNC", [64, 64], None),
        ("LBHNC", [64, 128], "of [64, 128] bytes in the KV cache layout LBHNC"),
        ("LBHNC", [32, 32], "32 bytes"),
        ("LHBNC", [64, 64], "must be one piece"),
        ("BHLNC", [64, 64], "must be one piece"),
        ("BLNHC", [], "without layers"),
    ],
)
def test_refused_places(layout: str, strides: list[int], sentence: str | None) -> None:
    config = caches(*[FULL] * len(strides))
    config.kv_cache_layout = layout
    for tensor, stride in zip(config.kv_cache_tensors, strides, strict=True):
        tensor.block_stride = stride
    why = places.unsupported(config)
    assert sentence in str(why) if sentence else why is None


def test_where_layers_lie() -> None:
    """A group's layers of two sizes lie behind each other in a block; else each has a plane."""
    latent, keys = (
        MLAAttentionSpec(**SIZES | {"num_kv_heads": 1, "head_size": n}) for n in (64, 32)
    )
    both = UniformTypeKVCacheSpecs(32, kv_cache_specs={"a": latent, "b": keys, "c": latent})
    size = latent.page_size_bytes
    stride = 2 * size + keys.page_size_bytes
    config = KVCacheConfig(
        num_blocks=9,
        kv_cache_tensors=[
            KVCacheTensor(9 * stride, ["a", "c"], size, stride),
            KVCacheTensor(9 * stride, ["b"], size // 2, stride, 2 * size),
        ],
        kv_cache_layout="BLHNC",
        kv_cache_groups=[KVCacheGroupSpec(["a", "b", "c"], both)],
    )
    part = places.part_of(config, LAYERS)
    assert (part.n_planes, part.plane_bytes, part.n_layers) == (1, stride, 3)
    places.place(config, 100 * stride, stride + 64, 0)
    assert [each.size for each in config.kv_cache_tensors] == [100 * stride] * 2
    assert [each.block_stride for each in config.kv_cache_tensors] == [stride + 64] * 2
    assert part.pieces == [[(0, 0, size), (0, size, size), (0, 2 * size, size // 2)]]
    assert places.pieces_of_all([part, part])[0][-1] == (1, 2 * size, size // 2)
    apart = KVCacheConfig(
        num_blocks=9,
        kv_cache_tensors=[
            KVCacheTensor(18 * size, ["a", "c"], 9 * size, size),
            KVCacheTensor(18 * size, ["d"], 9 * size, size),
        ],
        kv_cache_layout="LBNHC",
        kv_cache_groups=[KVCacheGroupSpec(["a", "c"], latent), KVCacheGroupSpec(["d"], latent)],
    )
    part = places.part_of(apart, LAYERS)
    assert (part.n_planes, part.plane_bytes, part.n_layers) == (2, size, 2)
    places.place(apart, 100 * size, size, 50 * size)
    assert part.pieces == [[(0, 0, size), (1, 0, size)], [(0, 0, size)]]
    assert places.pieces_of_all([part, part])[1] == [(0, 0, size), (2, 0, size)]


def test_stages_say_the_same(model: str) -> None:
    """Of a pipeline whose stages have other layers: each of them opens the same namespace."""
    state = MambaSpec(
        block_size=32, shapes=((4096,),), dtypes=(torch.float32,), mamba_cache_mode="align"
    )
    both = caches(FULL, state)
    layers = {"0": Backend("CPU_ATTN"), "1": Backend("LINEAR")}
    second = caches(FULL, state)
    second.kv_cache_groups[0].layer_names.clear()
    del second.kv_cache_tensors[0]
    parts = [places.part_of(each, layers) for each in (both, second)]
    assert [part.backend for part in parts] == ["CPU_ATTN", "LINEAR"]
    config = EngineArgs(
        model=model,
        skip_tokenizer_init=True,
        kv_transfer_config=TRANSFER,
        pipeline_parallel_size=2,
    ).create_engine_config()
    told = (config, identity.Options(), b"")
    blocks = [places.specs(each)[0].block_size for each in (both, second)]
    first, other = (identity.layout(*told, parts, "LBHNC", n_tokens) for n_tokens in blocks)
    assert first == other
    narrow = replace(parts[1], dtype=torch.bfloat16, head_size=1)
    assert identity.layout(*told, [parts[0], narrow], "LBHNC", 32).head_size == 32
    assert places.dtype_of_all([parts[0], narrow]) == torch.uint8


def test_allowed_where_the_user_insists(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(model, enable_lora=True) == ""
    monkeypatch.setattr(vllm, "__version__", "0.30.1")
    assert "made for vLLM 0.31 and later, and this is 0.30.1" in refusal(model)
    assert refusal(model, extra={"any_version": True}) == ""
    # A newer release copies: that uses only interfaces that vLLM documents.
    monkeypatch.setattr(vllm, "__version__", "0.34.1")
    assert "the newest whose blocks were tested is 0.33" in refusal(model)
    assert refusal(model, extra={"mode": "copy"}) == refusal(model)
    assert refusal(model, extra={"any_version": True}) == ""


def test_settings_are_known(model: str) -> None:
    assert "not 'shrug'" in refusal(model, extra={"on_loss": "shrug"})
    assert "0 to 600 seconds, not 601" in refusal(model, extra={"remote_timeout": 601})
    assert "'sokcet'" in refusal(model, extra={"sokcet": "/x"})
    assert "not 'fast'" in refusal(model, extra={"mode": "fast"})
    settings = {"mode": "in_place", "host_codec": "int8"}
    assert "copies alone: disk_codec" in refusal(model, extra={"disk_codec": "none"})
    assert "host_codec: these settings need the mode 'copy'" in refusal(model, extra=settings)


def test_one_of_several_connectors(model: str) -> None:
    """Its layout is that of copies, and vLLM's scheduler has to take it for one that loads."""
    child = TRANSFER | {"kv_connector_extra_config": {}}

    def make(role: str, own: str) -> Any:
        connectors = [child | {"kv_role": own}]
        transfer = {
            "kv_connector": "MultiConnector",
            "kv_role": role,
            "kv_connector_extra_config": {"connectors": connectors},
        }
        return EngineArgs(
            model=model,
            skip_tokenizer_init=True,
            kv_transfer_config=transfer,
        ).create_engine_config()

    config = make("kv_both", "kv_both")
    assert MultiConnector.get_required_kvcache_layout(config) == "LBHNC"
    MultiConnector(config, KVConnectorRole.SCHEDULER, caches(FULL))
    assert config.kv_transfer_config.kv_load_failure_policy == "recompute"
    MultiConnector(make("kv_producer", "kv_producer"), KVConnectorRole.SCHEDULER, caches(FULL))
    with pytest.raises(ValueError, match="its MultiConnector has the kv_role 'kv_producer'"):
        MultiConnector(make("kv_producer", "kv_both"), KVConnectorRole.SCHEDULER, caches(FULL))


def test_draft_models(
    model: str, models: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A draft model's configuration is part of the salt, and its modules are part of the model."""
    drafts = [models(num_hidden_layers=n) for n in (1, 2)]
    speculative: list[dict[str, Any] | None] = [
        {"method": "draft_model", "model": draft, "num_speculative_tokens": n}
        for draft, n in ((drafts[0], 2), (drafts[0], 3), (drafts[1], 2))
    ]
    configs = [
        EngineArgs(
            model=model, skip_tokenizer_init=True, speculative_config=each
        ).create_engine_config()
        for each in [None, *speculative]
    ]
    assert len({identity.salt(config, identity.Options(), b"") for config in configs}) == 4
    options, sized = identity.Options(verify=0.1), caches(FULL)
    for config in (configs[1], configs[3]):
        config.kv_transfer_config = KVTransferConfig(**TRANSFER)
    identity.refuse(configs[1], options)
    assert identity.unsupported_in_place(configs[1], sized, options) is None
    for method, in_place in (("eagle", True), ("mtp", True), ("custom_class", False)):
        configs[3].speculative_config.method = method
        with pytest.raises(ValueError, match=f"verify with '{method}'"):
            identity.refuse(configs[3], options)
        why = identity.unsupported_in_place(configs[3], sized, options)
        assert (why is None) == in_place, why
    target, draft = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    worker = SimpleNamespace(vllm_config=configs[1], get_model=lambda: target)
    worker.get_draft_model = lambda: draft
    assert weights._parts(weights._model(worker)) == (target, draft)
    assert len(list(weights._model(worker).parameters())) == 4
    worker.get_draft_model = lambda: None
    monkeypatch.setattr(weights, "get_pp_group", lambda: SimpleNamespace(is_last_rank=True))
    with pytest.raises(ValueError, match="by 'draft_model': vLLM doesn't say"):
        weights._model(worker)
    worker.vllm_config = configs[0]
    assert weights._model(worker) is target


def test_what_one_rank_refuses_all_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that went on alone would wait for the others for ever."""
    said: list[Any] = []

    def gather(value: Any) -> list[Any]:
        said.append(value)
        return [value, (b"", "the second rank's model can't be read")]

    dropped = torch.nn.Linear(1, 1)
    dropped.weight = None
    configuration = SimpleNamespace(speculative_config=None)
    worker = SimpleNamespace(vllm_config=configuration, device=torch.device("meta"))
    monkeypatch.setattr(weights, "on_stack", lambda kind: worker)
    monkeypatch.setattr(weights, "gather", gather)
    for model, own in ((torch.nn.Linear(1, 1), ""), (dropped, "weight")):
        worker.get_model = lambda model=model: model
        with pytest.raises(ValueError, match=own or "the second rank's model"):
            weights.Watch(None)
        assert own in said[-1][1]
        assert bool(said[-1][0]) == (own == "")


def test_ranks_connect_all_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them is refused, as where the tenant has as many clients as it may have."""
    watch: Any = SimpleNamespace(rank=0, n_ranks=2)
    closed: list[bool] = []
    connection = SimpleNamespace(close=lambda: closed.append(True))
    refusal = kvlease.Quota("too many clients")
    answers: list[Any] = []
    monkeypatch.setattr(connections, "gather", lambda value: [value, answers.pop(0)])

    def connect(*_: Any, **__: Any) -> Any:
        if refuses:
            raise refusal
        return connection

    monkeypatch.setattr(kvlease, "connect", connect)
    for refuses, other in ((False, None), (False, "too many"), (True, None)):
        answers[:] = [b"", other]
        if not refuses and not other:
            assert connections.connect_worker(identity.Options(), watch, "m") is connection
            continue
        with pytest.raises(kvlease.Quota if refuses else ValueError, match="too many"):
            connections.connect_worker(identity.Options(), watch, "m")
        assert answers == []
    assert closed == [True]


def test_roles(model: str) -> None:
    for role in ("kv_producer", "kv_consumer"):
        assert refusal(model, kv_transfer_config={"kv_role": role}) == ""
    producer = {"kv_transfer_config": {"kv_role": "kv_producer"}, "extra": {"verify": 0.5}}
    assert refusal(model, **producer) == ""


def test_long_formats_keep_apart() -> None:
    long = b"vllm 0.33.0 " + b"x" * 60
    assert len(_engine.format_of(long, b" 16")) == 64
    assert _engine.format_of(long, b" 16") != _engine.format_of(long + b"y", b" 16")
    assert _engine.format_of(long, b" 16").startswith(b"vllm 0.33.0 ")
    assert _engine.format_of(b"vllm", b" 16") == b"vllm 16"
