"""overhead.py measures; what it finds is no matter of a test."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest


def test_it_measures(capfd: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).resolve().parent / "overhead.py"
    spec = importlib.util.spec_from_file_location("overhead", path)
    assert spec and spec.loader
    overhead = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(overhead)
    assert overhead.main(["--quick", "--json"]) == 0
    said = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert said["rounds"] == 1
    assert [(row["mode"], row["step"], row["by"]) for row in said["rows"]] == [
        (mode, step, by)
        for mode in ("in_place", "copy")
        for step in ("prefill", "decode", "first token")
        for by in ("clock", "processor")
    ]
    assert all(row["steps"] > 0 and row["ratio"] > 0 for row in said["rows"])
