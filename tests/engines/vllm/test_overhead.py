"""overhead.py and layers.py measure; the figures are no matter of a test."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
    SchedulerOffloadConfig,
)


def measured(capfd: pytest.CaptureFixture[str], program: str, *options: str) -> Any:
    """The object that a program prints."""
    path = Path(__file__).resolve().parent / f"{program}.py"
    spec = importlib.util.spec_from_file_location(program, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.main([*options, "--json"]) == 0
    return json.loads(capfd.readouterr().out.splitlines()[-1])


def test_it_measures(capfd: pytest.CaptureFixture[str]) -> None:
    said = measured(capfd, "overhead", "--quick")
    assert said["rounds"] == 1
    assert [(row["mode"], row["step"], row["by"]) for row in said["rows"]] == [
        (mode, step, by)
        for mode in ("in_place", "copy")
        for step in ("prefill", "decode", "first token")
        for by in ("clock", "processor")
    ]
    assert all(row["steps"] > 0 and row["ratio"] > 0 for row in said["rows"])


@pytest.mark.skipif(
    "sync_load_budget_bytes" not in SchedulerOffloadConfig._fields,
    reason="this vLLM loads nothing within a step",
)
def test_it_measures_layers(capfd: pytest.CaptureFixture[str]) -> None:
    said = measured(capfd, "layers", "--tokens", "320", "--question", "9", "--rounds", "1")
    (row,) = said["rows"]
    assert (row["tokens"], row["question_tokens"]) == (320, 9)
    ways = {"in turn", "overlapped"}
    assert set(row["seconds"]) == {"load", *ways, *(f"alone {way}" for way in ways)}
    assert all(row["ratios"][way] > 0 for way in ways)
