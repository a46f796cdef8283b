"""overhead.py measures; what it finds is no matter of a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import serving
from support import SECONDS


def test_it_measures() -> None:
    program = Path(__file__).resolve().parent / "overhead.py"
    done = subprocess.run(
        [sys.executable, program, "--quick", "--json"],
        env=os.environ | serving.ENVIRONMENT,
        stdout=subprocess.PIPE,
        timeout=2 * SECONDS,
        check=True,
    )
    said = json.loads(done.stdout)
    assert said["rounds"] == 1
    assert [(row["step"], row["by"]) for row in said["rows"]] == [
        (step, by) for step in ("prefill", "decode") for by in ("clock", "processor")
    ]
    assert all(row["steps"] > 0 and row["ratio"] > 0 for row in said["rows"])
