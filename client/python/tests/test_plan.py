"""What a model's cache takes, from its configuration."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvlease.vllm import __main__ as program
from kvlease.vllm import plan

HERE = Path(__file__).resolve().parent
LLAMA = {
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "torch_dtype": "bfloat16",
}
DEEPSEEK = {
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
QWEN = {
    "num_hidden_layers": 8,
    "full_attention_interval": 4,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_num_value_heads": 48,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "mamba_ssm_dtype": "float32",
}
HEADER = (
    "| model | mode | pages of 16 tokens, by kinds of layers | token | text | tokens in 60 GiB |\n"
    "| --- | --- | --- | ---: | ---: | ---: |\n"
)


def pages(config: dict[str, Any], *arguments: Any, **options: Any) -> dict[str, int]:
    """Bytes of a page, by the kind of layers."""
    made = plan.make(config, *arguments, **options)
    return {each.kind: each.page_bytes(made.block, made.n_ranks) for each in made.layers}


def test_what_pages_take() -> None:
    """As vLLM's own caches: docs/reference/PAGES.md has some of these numbers from elsewhere."""
    assert pages(LLAMA) == {"full attention": 2 << 20}
    assert pages(LLAMA, block=32) == {"full attention": 4 << 20}
    assert pages(LLAMA, dtype="fp8") == {"full attention": 1 << 20}
    # Heads are divided among ranks, as long as there are as many.
    assert pages(LLAMA, 8) == {"full attention": 2 << 20}
    assert pages(LLAMA, 16) == {"full attention": 4 << 20}
    # All ranks have the same of MLA, and each its own.
    assert pages(DEEPSEEK, 8, block=64) == {"MLA": 8 * 4497408}
    sparse = DEEPSEEK | {"index_head_dim": 128}
    assert pages(sparse, 8) == {"MLA": 8 * 1124352, "indexer": 8 * 61 * 16 * 132}
    assert pages({"text_config": QWEN}) == {
        "linear attention": 6 * ((2 * 2048 + 6144) * 3 * 2 + 48 * 128 * 128 * 4),
        "full attention": 2 * 16 * 4 * 256 * 2 * 2,
    }
    windows = LLAMA | {"sliding_window": 1024, "sliding_window_pattern": 4, "global_head_dim": 256}
    assert pages(windows) == {"windows of 1024": 24 << 16, "full attention": 8 << 17}
    shared = windows | {"num_kv_shared_layers": 16}
    assert pages(shared) == {"windows of 1024": 12 << 16, "full attention": 4 << 17}
    assert pages(LLAMA | {"sliding_window": 64, "use_sliding_window": False}) == pages(LLAMA)
    assert pages(LLAMA | {"sliding_window": 64, "model_type": "mistral"}) == {
        "windows of 64": 2 << 20
    }
    gemma = LLAMA | {"sliding_window": 64, "model_type": "gemma2"}
    assert pages(gemma) == {"windows of 64": 2 << 20, "full attention": 2 << 20}
    assert pages(LLAMA | {"torch_dtype": "float32"}) == pages(LLAMA)
    assert pages(LLAMA, dtype="float32") == {"full attention": 4 << 20}
    assert pages(LLAMA | {"v_head_dim": 0}) == pages(LLAMA)
    wide = windows | {"swa_head_dim": 256, "global_head_dim": 128}
    assert pages(wide) == {"windows of 1024": 24 << 17, "full attention": 8 << 16}
    assert pages({"n_layer": 12, "n_head": 12, "n_embd": 768}) == {"full attention": 589824}


def test_what_fits() -> None:
    assert plan.make(LLAMA).tokens(60 << 30) == 491520
    hybrid = plan.make(QWEN)
    assert hybrid.text_bytes == pages(QWEN)["linear attention"]
    assert hybrid.tokens(hybrid.text_bytes + 5 * hybrid.token_bytes) == 5
    assert hybrid.tokens(1) == 0


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({}, "None as num_hidden_layers"),
        (LLAMA | {"num_hidden_layers": "x"}, "'x' as num_hidden_layers"),
        (LLAMA | {"layer_types": ["full_attention"]}, "32 layers, and types of 1"),
        (LLAMA | {"layer_types": ["mamba"] * 32}, "type 'mamba'"),
        (LLAMA | {"compress_ratios": [4]}, "compress_ratios"),
        (LLAMA | {"multi_query": True}, "multi_query"),
        (LLAMA | {"sliding_window": 64}, "which layers have windows"),
        (LLAMA | {"sliding_window": 64, "sliding_window_pattern": "LLLG"}, "which layers have"),
        (LLAMA | {"quantization_config": {"kv_cache_quant_algo": "FP8"}}, "--kv-cache-dtype"),
        (LLAMA | {"torch_dtype": "int3"}, "'int3' isn't known"),
    ],
)
def test_what_is_not_known(config: dict[str, Any], sentence: str) -> None:
    with pytest.raises(plan.UnknownError) as caught:
        plan.make(config)
    assert sentence in str(caught.value)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, where there is no vLLM."""
    command = [sys.executable, "-m", "kvlease.vllm", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(LLAMA))
    said = run("plan", str(config), "--memory", "60GiB")
    assert said.returncode == 0
    assert "mode: in_place\n" in said.stdout
    assert "32 layers, full attention: 2 MiB\n" in said.stdout
    assert "60GiB hold 491520 tokens\n" in said.stdout
    # The lines are of kvleased.conf.
    lines = said.stdout[said.stdout.index("[daemon]") :]
    written = tmp_path / "kvleased.conf"
    written.write_text(lines.replace("GPU-...", "host").replace("60GiB", "64MiB"))
    kvleased = Path(os.environ["KVL_BUILD"]) / "daemon/server/kvleased"
    subprocess.run([kvleased, "--check-config", "--config", written], check=True)
    said = run("plan", str(config), "--tp", "2", "--memory", "60GiB", "--json")
    assert json.loads(said.stdout)["mode"] == "in_place"
    assert json.loads(said.stdout)["tokens"] == 491520
    # Ranks have a device that spans their GPUs.
    said = run("plan", str(config), "--tp", "2", "--memory", "64MiB")
    lines = said.stdout[said.stdout.index("[daemon]") :]
    assert "devices = tp2\n" in lines
    assert "memory = 32MiB\n[tenant NAME]\nlimit = 64MiB\n" in lines
    written.write_text(lines.replace("GPU-..., GPU-...", "host-1, host-2"))
    subprocess.run([kvleased, "--check-config", "--config", written], check=True)


@pytest.mark.parametrize(
    ("text", "options", "sentence"),
    [
        ("{}", [], "None as num_hidden_layers"),
        ("[]", [], "it holds no object"),
        ("{", [], "Expecting property name"),
        (json.dumps(LLAMA), ["--memory", "60"], "as 60GiB, not '60'"),
        (json.dumps(LLAMA), ["--tp", "0"], "1 or more"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, options: list[str], sentence: str) -> None:
    config = tmp_path / "config.json"
    config.write_text(text)
    said = run("plan", str(config), *options)
    assert (said.returncode, said.stdout) == (2, "")
    assert str(config) in said.stderr
    assert sentence in said.stderr


def catalogue() -> list[dict[str, Any]]:
    """Configurations of its models."""
    models = json.loads((HERE / "catalogue.json").read_text())
    for model in models:
        types = [kind for kind, n in model.pop("layers") for _ in range(n)]
        model |= {"num_hidden_layers": len(types), "layer_types": types}
    return list(models)


def table() -> str:
    """The models of the catalogue, as docs/reference/PAGES.md has them."""
    rows = []
    for model in catalogue():
        try:
            made = plan.make(model)
        except plan.UnknownError:
            rows.append(f"| {model['name']} | | not known to the command | | | |\n")
            continue
        parts = "; ".join(
            f"{each.kind}, {each.n_layers} layers: "
            + program.size_of(each.page_bytes(made.block, made.n_ranks))
            for each in made.layers
        )
        rows.append(
            f"| {model['name']} | in place | {parts} | "
            f"{program.size_of(made.token_bytes)} | "
            f"{program.size_of(made.text_bytes) if made.text_bytes else ''} | "
            f"{made.tokens(60 << 30):,} |\n"
        )
    return HEADER + "".join(rows)


def test_the_document() -> None:
    document = HERE.parents[2] / "docs/reference/PAGES.md"
    assert table() in document.read_text(), f"{document} has another table than:\n{table()}"


def check_shown(words: str, name: str, lines: str, tmp_path: Path) -> None:
    """plan FILE ... prints these lines for a model of the catalogue."""
    (model,) = (m for m in catalogue() if m["name"].lower().replace(" ", "-") == name)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(model))
    arguments = re.sub(r"\S+\.json", str(config), words).split()
    assert run(*arguments).stdout.startswith(lines), words


def test_the_worked_examples(tmp_path: Path) -> None:
    page = (HERE.parents[2] / "docs/operate/size.md").read_text()
    shown = re.findall(
        r"^\$ python -m kvlease.vllm (plan (\S+)\.json .*)\n([^`]*)^```", page, re.MULTILINE
    )
    assert len(shown) == 3
    for words, name, lines in shown:
        check_shown(words, name, lines, tmp_path)


def test_the_first_example(tmp_path: Path) -> None:
    page = (HERE.parents[2] / "docs/start/vllm.md").read_text()
    (words,) = re.findall(r"^python -m kvlease.vllm (plan CONFIG.json .*)$", page, re.MULTILINE)
    ((name, lines),) = re.findall(r"For (.*) you should see:\n\n```\n([^`]*)```", page)
    check_shown(words, name.lower().replace(" ", "-"), lines, tmp_path)
