"""Small models of random weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from support import TINY_LLAMA
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
)


def make_llama(folder: Path, seed: int = 0, **settings: Any) -> None:
    """Writes one."""
    torch.manual_seed(seed)
    LlamaForCausalLM(LlamaConfig(**TINY_LLAMA | settings)).eval().save_pretrained(folder)


def make_for_gpu(folder: Path, family: str) -> None:
    """Writes one of a `model_type` of transformers, with sizes that kernels of GPUs take: heads of
    64 numbers and more."""
    settings = TINY_LLAMA | {"hidden_size": 256, "num_hidden_layers": 4, "head_dim": 64}
    if family == "gemma3_text":
        kinds = ["sliding_attention"] * 3 + ["full_attention"]
        settings |= {"sliding_window": 64, "layer_types": kinds}
    if family == "qwen3_next":
        settings |= {
            "layer_types": ["linear_attention"] * 3 + ["full_attention"],
            "linear_num_value_heads": 2,
            "linear_num_key_heads": 1,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "head_dim": 128,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "shared_expert_intermediate_size": 64,
        }
    torch.manual_seed(0)
    config = CONFIG_MAPPING[family](**settings)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.eval().save_pretrained(folder)


def make_mla(folder: Path) -> None:
    """Writes one whose layers keep a latent vector of each token, without experts."""
    settings = TINY_LLAMA | {
        "num_key_value_heads": TINY_LLAMA["num_attention_heads"],
        "first_k_dense_replace": TINY_LLAMA["num_hidden_layers"],
        "q_lora_rank": None,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 32,
        "v_head_dim": 32,
    }
    torch.manual_seed(0)
    DeepseekV3ForCausalLM(DeepseekV3Config(**settings)).eval().save_pretrained(folder)


def favour_last_token(model: Any) -> None:
    """Has the next token mostly follow from the last one, so that layers that guess it from that
    one are right now and then."""
    with torch.no_grad():
        model.get_input_embeddings().weight *= 60


def make_eagle(folder: Path, config: LlamaConfig) -> None:
    """Writes a layer that guesses tokens (EAGLE) from the last token and the tokens before it."""
    torch.manual_seed(1)
    config = LlamaConfig(**config.to_dict() | {"num_hidden_layers": 1})
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    own = model.model.layers[0].state_dict(prefix="layers.0.")
    tensors = {name: own[name] for name in own if "input_layernorm" not in name}
    # Nothing norms what this attention reads.
    tensors["layers.0.self_attn.o_proj.weight"] *= 0.05
    tensors["fc.weight"] = torch.eye(config.hidden_size, 2 * config.hidden_size).bfloat16()
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    words = config.to_dict() | {"architectures": ["LlamaForCausalLM"], "dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(words))


def make_mtp(folder: Path, model: Any) -> None:
    """Writes a model whose last layer guesses tokens (multi-token prediction)."""
    model.save_pretrained(folder)
    path, words = folder / "model.safetensors", folder / "config.json"
    config = json.loads(words.read_text())
    n, last = config["hidden_size"], config["num_hidden_layers"] - 1
    tensors, at = load_file(path), f"model.layers.{last}."
    tensors[f"{at}eh_proj.weight"] = 12 * torch.eye(n, 2 * n).bfloat16()
    for name in ("enorm", "hnorm", "shared_head.norm"):
        tensors[f"{at}{name}.weight"] = torch.ones(n, dtype=torch.bfloat16)
    save_file(tensors, path)
    config |= {"num_hidden_layers": last, "num_nextn_predict_layers": 1}
    words.write_text(json.dumps(config))


def make_adapter(folder: Path, seed: int, model: torch.nn.Module | None = None) -> list[Any]:
    """Writes a LoRA adapter of a model, by default one of make_llama(); name, id and path."""
    folder.mkdir(exist_ok=True)
    torch.manual_seed(seed)
    if model is None:
        with torch.device("meta"):
            model = LlamaForCausalLM(LlamaConfig(**TINY_LLAMA))
    names, tensors = set(), {}
    for at, part in model.named_modules():
        name = at.rpartition(".")[2]
        if isinstance(part, torch.nn.Linear) and name in ("q_proj", "v_proj", "qkv_proj"):
            names.add(name)
            down, up = torch.randn(8, part.in_features), torch.randn(part.out_features, 8)
            tensors[f"base_model.model.{at}.lora_A.weight"] = down * 0.3
            tensors[f"base_model.model.{at}.lora_B.weight"] = up * 0.3
    save_file(tensors, folder / "new")
    (folder / "new").rename(folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 8, "lora_alpha": 8, "target_modules": sorted(names)}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return ["mine", 1, str(folder)]
