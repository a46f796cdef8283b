"""Engines in processes of their own, which end with the test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from support import Engine

StartEngines = Callable[..., list[Engine]]


@pytest.fixture
def start_engines() -> Iterator[StartEngines]:
    """start_engines(settings, ...): starts them at once, and returns when all are ready."""
    engines: list[Engine] = []

    def start(*settings: dict[str, Any], path: str | None = None) -> list[Engine]:
        new = [Engine(each, path) for each in settings]
        engines.extend(new)
        for engine in new:
            assert engine.receive() == "ready"
        return new

    yield start
    for engine in engines:
        engine.kill()
