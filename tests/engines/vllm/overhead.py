"""What kvlease costs a vLLM that finds nothing: seconds of a step with it and without it.

Two engines run the same prompts, which never come again, and take turns step by step: what disturbs
the machine disturbs both. It starts a kvleased of its own. KVL_BUILD names the folder of a build,
PYTHONPATH the one that tests/run.sh keeps vLLM in (~/.cache/kvlease/vllm-*):

    build/python-venv/bin/python tests/engines/vllm/overhead.py [OPTION...]  # --help
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))

import serving  # noqa: E402
from models import make_llama  # noqa: E402
from support import Engine, make_prompts, on  # noqa: E402

BOUND = 1.03
"""Times without kvlease, which the project promises."""
# Steps as long as those of models that people run on a GPU: 10 to 100 ms.
SIZES = {
    "hidden_size": 512,
    "intermediate_size": 1376,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}
# As much as vLLM has without it (worker.py): memory that was used before comes again.
MEMORY = "memory = 64MiB\nextent = 2MiB"
LIMIT = "limit = 64MiB"
# Until all of the memory has been used.
WARM_ROUNDS = 3
Pair: TypeAlias = list[list[float]]
"""What timed_step() of worker.py says of a step, without kvlease and with it."""
N_PROMPTS, N_PROMPT_TOKENS, N_TOKENS = 8, 128, 64


def load_package() -> Any:
    """The fixtures of the package's own tests, which have the daemon."""
    name = "kvlease_conftest"
    if name in sys.modules:
        return sys.modules[name]
    path = HERE.parents[2] / "client/python/tests/conftest.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    package = importlib.util.module_from_spec(spec)
    # Where its dataclasses look up the names of their fields' types.
    sys.modules[spec.name] = package
    spec.loader.exec_module(package)
    return package


def run(engines: list[Engine], prompts: list[list[int]]) -> dict[str, list[Pair]]:
    """Of each step of prefill, and of decode, what the engines took."""
    for engine in engines:
        for prompt in prompts:
            engine.call("add", prompt, N_TOKENS)
    steps: dict[str, list[Pair]] = {"prefill": [], "decode": []}
    kind, n_tokens = "prefill", 1
    while n_tokens < N_TOKENS or kind == "prefill":
        order = random.sample(range(2), 2)
        took = {i: engines[i].call("timed_step") for i in order}
        pair = [took[0], took[1]]
        assert pair[0][0] == pair[1][0]
        steps[kind].append(pair)
        if kind == "decode":
            n_tokens += 1
        elif pair[0][0] == len(prompts):
            kind = "decode"
    return steps


def measure(
    without: Engine, with_it: Engine, rounds: int, warm_rounds: int = WARM_ROUNDS
) -> list[dict[str, Any]]:
    """Rows: each kind of step by the clock, and by what the engine's process computes; medians."""
    got: dict[str, list[Pair]] = {"prefill": [], "decode": []}
    for i in range(warm_rounds + rounds):
        prompts = make_prompts(i, 0, *[N_PROMPT_TOKENS] * N_PROMPTS)
        steps = run([without, with_it], prompts)
        for kind in steps if i >= warm_rounds else ():
            got[kind] += steps[kind]
    return [
        {
            "step": kind,
            "by": what,
            "steps": len(pairs),
            "seconds_without": median(each[0][column] for each in pairs),
            "seconds_with": median(each[1][column] for each in pairs),
            "ratio": median(each[1][column] / each[0][column] for each in pairs),
            "bound": BOUND,
        }
        for kind, pairs in got.items()
        for column, what in ((1, "clock"), (2, "processor"))
    ]


def table(rows: list[dict[str, Any]]) -> str:
    """For people."""
    lines = ["step    by           without      with  ratio  bound"]
    lines += [
        f"{row['step']:8}{row['by']:10}{1e3 * row['seconds_without']:7.2f} ms"
        f"{1e3 * row['seconds_with']:7.2f} ms  {row['ratio']:.3f}  {row['bound']:.2f}"
        for row in rows
    ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(
        description="What kvlease costs a vLLM that finds nothing: a step with it and without it.",
        epilog="Exit status: 0: measured; 2: a bound is missed (--check), or wrong command line.",
    )
    parser.add_argument("--rounds", type=int, default=21, help="(default: %(default)s)")
    parser.add_argument(
        "--quick", action="store_true", help="a round of a small model, to see that it works"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--check", action="store_true", help="exit status 2: a bound is missed")
    options = parser.parse_args(arguments)
    sizes = {} if options.quick else SIZES
    rounds, warm_rounds = (1, 0) if options.quick else (options.rounds, WARM_ROUNDS)
    engines: list[Engine] = []
    with tempfile.TemporaryDirectory(prefix="kvl-") as top:
        daemon = load_package().Daemon(Path(top), False, MEMORY, LIMIT)
        daemon.start()
        try:
            sys.path.extend(serving.KERNELS)
            make_llama(Path(top) / "model", **sizes)
            settings = {"model": str(Path(top) / "model"), "vllm": {}}
            engines += [
                Engine(HERE / "worker.py", each, serving.ENVIRONMENT)
                for each in (settings, settings | on(daemon))
            ]
            for engine in engines:
                assert engine.receive() == "ready"
            rows = measure(*engines, rounds, warm_rounds)
        finally:
            for engine in engines:
                engine.kill()
            daemon.stop()
    print(json.dumps({"rounds": rounds, "rows": rows}) if options.json else table(rows))
    return 2 if options.check and any(row["ratio"] > row["bound"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
