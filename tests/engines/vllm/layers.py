"""What a first token takes whose prompt's beginning is loaded from host memory, layer by layer.

Two engines use copies. The first waits for each layer just before it computes that layer. The
second waits for all layers before it computes any. Both find a prompt's beginning that one of them
has computed, and compute a question behind it. Rows: the load alone, the question alone (the
beginning is in the engine's own cache), both in turn, and both at a time. The engines take turns.
The program starts kvleased itself. KVL_BUILD and PYTHONPATH are as for overhead.py:

    build/python-venv/bin/python tests/engines/vllm/layers.py [OPTION...]  # --help
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import serving  # noqa: E402
from models import make_llama  # noqa: E402
from overhead import load_package  # noqa: E402
from support import Engine, make_prompts, on  # noqa: E402

BOUND = 1.15
"""Times the longer one of load and question."""
SIZES = {
    "hidden_size": 256,
    "intermediate_size": 688,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 1 << 17,
}
# Keys and values of a token in float32.
TOKEN_BYTES = 8 * 2 * 256 * 4
# Freed memory stays the engine's: otherwise the system clears the pages of each large tensor anew,
# which takes another time in each run.
KEEP = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 32),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 33),
    "MALLOC_TOP_PAD_": str(1 << 28),
}
IN_TURN = "import kvlease.vllm.copies as copies; copies.layers_in_turn = lambda *_: {}"


def first_token(
    engine: Engine, beginning: list[int], question: list[int], *, is_cached: bool
) -> float:
    """Seconds. is_cached: the beginning is in the engine's own cache, which is emptied otherwise:
    then the beginning is loaded."""
    if not is_cached:
        assert engine.call("reset")
    found, seconds, _ = engine.call("timed_first_token", beginning + question)
    assert found == len(beginning), f"{found} tokens were found, not {len(beginning)}"
    return float(seconds)


def measure_round(
    engines: dict[str, Engine], beginning: list[int], questions: Iterator[list[int]]
) -> dict[str, float]:
    """Seconds of each row. An engine's question alone is measured right behind its load. No
    question comes twice: its pages would be found, too."""
    took = {}
    for name in random.sample(sorted(engines), 2):
        engine = engines[name]
        took[name] = first_token(engine, beginning, next(questions), is_cached=False)
        # The engine has the beginning in its own cache now.
        took["alone " + name] = first_token(engine, beginning, next(questions), is_cached=True)
    one = first_token(engine, beginning, next(questions)[:1], is_cached=True)
    took["load"] = first_token(engine, beginning, next(questions)[:1], is_cached=False) - one
    return took


def measure(n_tokens: int, n_questions: list[int], rounds: int) -> list[dict[str, Any]]:
    """A row for each length of a question."""
    # Room for the questions, too.
    mib = (n_tokens + 4096) * TOKEN_BYTES >> 20
    rows: list[dict[str, Any]] = []
    engines: dict[str, Engine] = {}
    with tempfile.TemporaryDirectory(prefix="kvl-") as top:
        daemon = load_package().Daemon(
            Path(top), False, f"memory = {mib + 64}MiB\nextent = 2MiB", f"limit = {mib + 64}MiB"
        )
        daemon.start()
        try:
            make_llama(Path(top) / "model", **SIZES)
            options = {
                "max_model_len": n_tokens + 2048,
                "max_num_batched_tokens": 2048,
                "kv_cache_memory_bytes": mib << 20,
            }
            settings = {"model": str(Path(top) / "model"), "vllm": options} | on(
                daemon, mode="copy", verify=0, sync_load_budget_bytes=1 << 40
            )
            for name, before in (("in turn", IN_TURN), ("overlapped", "")):
                engines[name] = Engine(
                    HERE / "worker.py", settings | {"before": before}, serving.ENVIRONMENT | KEEP
                )
            for engine in engines.values():
                engine.wait()
            (beginning,) = make_prompts(1, 0, n_tokens)
            engines["in turn"].call("run", [beginning], 1)
            for n in n_questions:
                questions = iter(make_prompts(n, 0, *[n] * 6 * (rounds + 1)))
                got = [measure_round(engines, beginning, questions) for _ in range(rounds + 1)][1:]
                rows.append({"tokens": n_tokens, "question_tokens": n} | row(got))
            return rows
        finally:
            for engine in engines.values():
                engine.kill()
            daemon.stop()


def row(rounds: list[dict[str, float]]) -> dict[str, Any]:
    """Medians, and ratios to the longer one of load and the engine's question of the same round."""
    ratios = {
        name: median(each[name] / max(each["load"], each["alone " + name]) for each in rounds)
        for name in ("in turn", "overlapped")
    }
    seconds = {name: median(each[name] for each in rounds) for name in rounds[0]}
    return {"seconds": seconds, "ratios": ratios, "bound": BOUND}


def table(rows: list[dict[str, Any]]) -> str:
    """For people."""
    lines = ["loaded  question      load  question alone          in turn       overlapped  bound"]
    for each in rows:
        took, ratios = each["seconds"], each["ratios"]
        both = "".join(
            f"{1e3 * took[name]:8.1f} ms {ratios[name]:5.2f}" for name in ("in turn", "overlapped")
        )
        lines.append(
            f"{each['tokens']:6}{each['question_tokens']:10}{1e3 * took['load']:7.1f} ms"
            f"{1e3 * took['alone overlapped']:13.1f} ms {both}  {each['bound']:.2f}"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(
        description="First tokens of prompts whose beginning is loaded: load, question, both in "
        "turn, and both at a time; ratios to the longer one of load and question.",
        epilog="Exit status: 0: measured; 2: a bound is missed (--check), or wrong command line.",
    )
    parser.add_argument("--rounds", type=int, default=7, help="(default: %(default)s)")
    parser.add_argument(
        "--tokens", type=int, default=32768, help="that are loaded (default: %(default)s)"
    )
    parser.add_argument(
        "--question", type=int, nargs="+", default=[16, 64, 256], help="tokens behind them"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--check", action="store_true", help="exit status 2: a bound is missed")
    options = parser.parse_args(arguments)
    serving.preload()
    rows = measure(options.tokens, options.question, options.rounds)
    print(json.dumps({"rounds": options.rounds, "rows": rows}) if options.json else table(rows))
    return 2 if options.check and any(row["ratios"]["overlapped"] > BOUND for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
