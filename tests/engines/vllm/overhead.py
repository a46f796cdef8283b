"""What kvlease costs vLLM, in place and with copies.

Steps: an engine with kvlease, which finds nothing, and one without it run the same prompts. First
tokens: of a prompt that another engine has computed, beside an engine whose own cache has it. The
engines take turns, so that whatever disturbs the machine disturbs both. The program starts kvleased
itself. KVL_BUILD names the folder of a build, PYTHONPATH those that tests/run.sh keeps vLLM in
(~/.cache/kvlease/vllm-*):

    build/python-venv/bin/python tests/engines/vllm/overhead.py [OPTION...]  # --help
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))

import numpy as np  # noqa: E402
import serving  # noqa: E402
from models import make_llama  # noqa: E402
from support import Engine, make_prompts, namespaces, on  # noqa: E402

BOUNDS = {"in_place": 1.03, "copy": 1.05}
"""Times a step without kvlease, which the project promises."""
FIRST_BOUND, COPY_BOUND = 1.1, 1.3
"""Of a first token: times the step of an engine that has the prompt; with copies this many times a
plain copy of the bytes more."""
# Steps as long as those of models that people run on a GPU: 10 to 100 ms.
SIZES = {
    "hidden_size": 512,
    "intermediate_size": 1376,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}
# As much as vLLM has without it: memory that was used before comes again.
MIB = 128
MEMORY = f"memory = {MIB}MiB\nextent = 2MiB"
LIMIT = f"limit = {MIB}MiB"
# Until all of the memory has been used.
WARM_ROUNDS = 6
Pair: TypeAlias = list[list[float]]
"""What timed_step() of worker.py says of a step, without kvlease and with it."""
N_PROMPTS, N_PROMPT_TOKENS, N_TOKENS = 8, 128, 64
N_LONG = 4010
"""Tokens of a prompt whose first token is timed: no multiple of a block. Of 4,000 tokens vLLM's own
cache finds all but the last block, and a connector the last block, too."""
BY = ((1, "clock"), (2, "processor"))


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


def row(mode: str, kind: str, by: str, pairs: list[list[float]], bound: float) -> dict[str, Any]:
    """Medians of what it took without kvlease and with it."""
    return {
        "mode": mode,
        "step": kind,
        "by": by,
        "steps": len(pairs),
        "seconds_without": median(without for without, _ in pairs),
        "seconds_with": median(with_it for _, with_it in pairs),
        "ratio": median(with_it / without for without, with_it in pairs),
        "bound": bound,
    }


def measure_steps(
    mode: str, engines: list[Engine], rounds: int, warm_rounds: int
) -> list[dict[str, Any]]:
    """Rows: each kind of step by the clock, and by what the engine's process computes."""
    got: dict[str, list[Pair]] = {"prefill": [], "decode": []}
    for i in range(warm_rounds + rounds):
        prompts = make_prompts(i, 0, *[N_PROMPT_TOKENS] * N_PROMPTS)
        steps = run(engines, prompts)
        for kind in steps if i >= warm_rounds else ():
            got[kind] += steps[kind]
    return [
        row(mode, kind, by, [[each[0][at], each[1][at]] for each in pairs], BOUNDS[mode])
        for kind, pairs in got.items()
        for at, by in BY
    ]


def copy(n_bytes: int) -> list[float]:
    """A plain copy of so many bytes, which weren't read before: seconds, by clock and processor."""
    source, target = np.random.bytes(n_bytes), np.zeros(n_bytes, np.uint8)
    numbers = np.frombuffer(source, np.uint8)
    begin, begin_computed = time.perf_counter(), time.process_time()
    np.copyto(target, numbers)
    return [0, time.perf_counter() - begin, time.process_time() - begin_computed]


def measure_first_tokens(
    mode: str, engines: list[Engine], daemon: Any, rounds: int, n_tokens: int
) -> list[dict[str, Any]]:
    """Rows: the first token of a prompt that an engine without kvlease, and the first one with it,
    have computed. Engines: one without, two with kvlease."""
    alone, first, second = engines
    # malloc() maps and unmaps large memory until the process has freed some of that size.
    for i, engine in enumerate(engines):
        engine.call("run", make_prompts(900 + i, 0, n_tokens), 1)
    got: list[Pair] = []
    for i in range(rounds):
        (prompt,) = make_prompts(1000 + i, 0, n_tokens)
        for engine in (alone, first):
            engine.call("run", [prompt], 1)
        order = random.sample([alone, second], 2)
        took = {id(engine): engine.call("timed_first_token", prompt) for engine in order}
        pair = [took[id(alone)], took[id(second)]]
        assert pair[0][0] == pair[1][0] > 0, pair
        (namespace,) = (each for each in namespaces(daemon) if each["pages_sealed"])
        n_pages = pair[1][0] // namespace["page_tokens"]
        n_bytes = n_pages * namespace["plane_page_bytes"] * namespace["n_planes"]
        got.append([*pair, copy(n_bytes)])
    rows = []
    for at, by in BY:
        bound = FIRST_BOUND
        if mode == "copy":
            bound += COPY_BOUND * median(each[2][at] / each[0][at] for each in got)
        rows.append(
            row(mode, "first token", by, [[each[0][at], each[1][at]] for each in got], bound)
        )
    return rows


def measure(mode: str, is_quick: bool, rounds: int) -> list[dict[str, Any]]:
    """All rows of a mode, with a kvleased and engines of its own."""
    engines: list[Engine] = []
    with tempfile.TemporaryDirectory(prefix="kvl-") as top:
        daemon = load_package().Daemon(Path(top), False, MEMORY, LIMIT)
        daemon.start()
        try:
            make_llama(Path(top) / "model", **{} if is_quick else SIZES)
            options = {"max_model_len": 4096, "kv_cache_memory_bytes": MIB << 20}
            settings = {"model": str(Path(top) / "model"), "vllm": options}
            shared = settings | on(daemon, mode=mode, verify=0)
            engines += [
                Engine(HERE / "worker.py", each, serving.ENVIRONMENT)
                for each in (settings, shared, shared)
            ]
            for engine in engines:
                engine.wait()
            warm_rounds = 0 if is_quick else WARM_ROUNDS
            return [
                *measure_steps(mode, engines[:2], rounds, warm_rounds),
                *measure_first_tokens(mode, engines, daemon, rounds, 300 if is_quick else N_LONG),
            ]
        finally:
            for engine in engines:
                engine.kill()
            daemon.stop()


def table(rows: list[dict[str, Any]]) -> str:
    """For people."""
    lines = ["mode      step         by           without        with  ratio  bound"]
    lines += [
        f"{row['mode']:10}{row['step']:13}{row['by']:10}{1e3 * row['seconds_without']:7.2f} ms"
        f"{1e3 * row['seconds_with']:9.2f} ms  {row['ratio']:.3f}  {row['bound']:.2f}"
        for row in rows
    ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(
        description="What kvlease costs vLLM: steps that find nothing, and first tokens of prompts "
        "that another process has computed.",
        epilog="Exit status: 0: measured; 2: a bound is missed (--check), or wrong command line.",
    )
    parser.add_argument("--rounds", type=int, default=12, help="(default: %(default)s)")
    parser.add_argument(
        "--quick", action="store_true", help="a round of a small model, to see that it works"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--check", action="store_true", help="exit status 2: a bound is missed")
    options = parser.parse_args(arguments)
    rounds = 1 if options.quick else options.rounds
    serving.preload()
    rows = [each for mode in BOUNDS for each in measure(mode, options.quick, rounds)]
    print(json.dumps({"rounds": rounds, "rows": rows}) if options.json else table(rows))
    return 2 if options.check and any(row["ratio"] > row["bound"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
