"""python -m kvlease.vllm: commands for a model, which need no engine and no daemon."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from kvlease.vllm import plan

_TENANT = "NAME"


def size_of(n_bytes: int) -> str:
    """For people."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n_bytes >= 10 * size or (n_bytes >= size and n_bytes % size == 0):
            return f"{n_bytes / size:.4g} {unit}"
    return f"{n_bytes} bytes"


def _lines(n_ranks: int, memory: str) -> list[str]:
    """For kvleased.conf. memory: of all ranks together."""
    device, named = "GPU-...", "as nvidia-smi -L prints it"
    section = [f"memory = {memory}"]
    if n_ranks > 1:
        device, named = f"tp{n_ranks}", "a name of your choice; vLLM's setting `device` is this one"
        section = [
            f"# {n_ranks} UUIDs, as nvidia-smi -L prints them, in the order of the ranks",
            f"members = {', '.join(['GPU-...'] * n_ranks)}",
            "# of each",
            f"memory = {plan.parse_size(memory) // n_ranks >> 20}MiB",
        ]
    return [
        "[daemon]",
        f"# {named}",
        f"devices = {device}",
        f"[device {device}]",
        *section,
        f"[tenant {_TENANT}]",
        f"limit = {memory}",
    ]


def _describe(made: plan.Plan, memory: int | None) -> dict[str, Any]:
    """As --json prints it."""
    return {
        "mode": "in_place",
        "ranks": made.n_ranks,
        "page_tokens": made.block,
        "layers": [
            {
                "kind": each.kind,
                "layers": each.n_layers,
                "page_bytes": each.page_bytes(made.block, made.n_ranks),
            }
            for each in made.layers
        ],
        "token_bytes": made.token_bytes,
        "text_bytes": made.text_bytes,
        "tokens": None if memory is None else made.tokens(memory),
    }


def _print(said: dict[str, Any], memory: str | None) -> None:
    print(f"mode: {said['mode']}")
    ranks = f", of all {said['ranks']} ranks together" if said["ranks"] > 1 else ""
    print(f"pages of {said['page_tokens']} tokens{ranks}:")
    for each in said["layers"]:
        print(f"  {each['layers']} layers, {each['kind']}: {size_of(each['page_bytes'])}")
    print(f"a token takes {size_of(said['token_bytes'])}")
    if any(each["kind"] == "linear attention" for each in said["layers"]):
        print("vLLM makes blocks larger beside linear attention: 500 to 2,000 tokens")
    if said["text_bytes"]:
        print(f"a text takes {size_of(said['text_bytes'])} more, of any length")
    if memory is None:
        return
    print(f"{memory} hold {said['tokens']} tokens" + (" of one text" if said["text_bytes"] else ""))
    print()
    print("\n".join(_lines(said["ranks"], memory)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kvlease.vllm",
        description="Compute the KV cache of a model in kvleased, before you start vLLM.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    planning = commands.add_parser(
        "plan",
        help="print pages, tokens that fit, and a configuration",
        description="Print the mode of a model, the size of its pages, the tokens that fit, and "
        "lines for kvleased.conf. Padding of vLLM isn't counted. Exit status: 0; 2: wrong command "
        "line, or an unknown configuration.",
    )
    planning.add_argument(
        "config", metavar="CONFIG.json", help="configuration of the model, from Hugging Face"
    )
    planning.add_argument(
        "--tp", metavar="N", type=int, default=1, help="ranks of tensor parallelism (default: 1)"
    )
    planning.add_argument(
        "--memory", metavar="SIZE", help="memory for pages of all ranks, as 60GiB"
    )
    planning.add_argument(
        "--block-size", metavar="N", type=int, default=16, help="tokens of a page (default: 16)"
    )
    planning.add_argument(
        "--kv-cache-dtype",
        choices=[*plan.DTYPES],
        help="data type of the cache (default: the model's)",
    )
    planning.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Exit status."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        if given.tp < 1 or given.block_size < 1:
            raise ValueError("--tp and --block-size are 1 or more")
        memory = plan.parse_size(given.memory) if given.memory else None
        config = json.loads(Path(given.config).read_text())
        if not isinstance(config, dict):
            raise ValueError("it holds no object")
        made = plan.make(config, given.tp, given.block_size, given.kv_cache_dtype)
    except (OSError, ValueError) as error:
        parser.exit(2, f"{given.config}: {error}\n")
    said = _describe(made, memory)
    if given.json:
        print(json.dumps(said, indent=2))
    else:
        _print(said, given.memory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
