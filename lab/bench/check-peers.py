#!/usr/bin/env python3
"""kvlease-bench peers, with peers that aren't there, fail, end or say nonsense, and with those that
are always there.

check-peers.py KVLEASE_BENCH
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

READY = 'echo "ready fake fake-tokens"\n'

# Of an interpreter that stands for Python: what it does, and what kvlease-bench says of it.
FAKES = [
    ('echo "missing there is no Python module vllm"', "no figures of vllm: there is no Python"),
    ('echo "missing there is no Python module vllm"', "sh tests/run.sh --part peers installs it"),
    ('echo "failed RuntimeError: no more room"', "vllm: failed RuntimeError: no more room"),
    ("true", "vllm ended"),
    ("echo hello", "vllm: hello"),
    ('echo "ready "', "vllm: it has no rows"),
    ('echo "ready a b c d e"', "vllm: its rows are too many"),
    (READY + "read line; echo 1000", "vllm: 1000"),
    (READY + "read line; echo 1000 1000 1000", "vllm: 1000 1000 1000"),
    (READY + "read line; echo 1000 -5", "vllm: 1000 -5"),
    (READY + "read line; echo failed a hit found 3 of 128 pages", "vllm: failed a hit found 3"),
    (READY + "read line", "vllm ended"),
]


def run(bench: str, python: str | Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One that uses this interpreter, and no packages but those of this machine's Python."""
    environment = {**os.environ, "KVL_PEERS_PYTHON": str(python)}
    environment.pop("PYTHONPATH", None)
    command = [bench, "--quick", "--json", "peers", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def rows(done: subprocess.CompletedProcess[str]) -> dict[str, tuple[str, float]]:
    """What each is compared to, and its median."""
    assert done.returncode == 0, done
    found = json.loads(done.stdout)["results"]
    return {row["name"]: (row["against"], row["value"]) for row in found}


def check_fakes(bench: str, folder: Path) -> None:
    """The one that was named must be there; otherwise one that isn't is left out."""
    fake = folder / "python"
    for does, said in FAKES:
        fake.write_text(f"#!/bin/sh\n{does}\n")
        fake.chmod(0o755)
        done = run(bench, fake, "vllm")
        assert done.returncode == 1 and said in done.stderr, (does, done)
    done = run(bench, fake)
    names = {name.removesuffix("_p50") for name in rows(done) if name.endswith("_p50")}
    assert names - {"redis-mget-1k"} == {"kvlease-tokens-1k", "kvlease-memo-1k"}, names
    fake.write_text(f"#!/bin/sh\n{READY}while read line; do echo 3000 5000; done\n")
    found = rows(run(bench, fake, "vllm"))
    assert found["fake-1k_p50"] == ("kvlease", 5.0), found
    assert found["fake-tokens-1k_p50"] == ("kvlease-tokens", 5.0), found


def main() -> None:
    """All of it."""
    bench = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        check_fakes(bench, Path(folder))
    done = run(bench, "/nowhere/python", "vllm")
    assert done.returncode == 1 and "vllm ended" in done.stderr, done
    found = rows(run(bench, sys.executable, "table"))
    assert found["python-table-1k_p50"][0] == "kvlease", found
    assert found["python-table-tokens-1k_p50"][0] == "kvlease-tokens", found
    done = run(bench, sys.executable, "nobody")
    assert done.returncode == 1 and "there is no nobody; there are tokens memo redis" in done.stderr


if __name__ == "__main__":
    main()
