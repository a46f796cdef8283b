"""The fixtures of the package's own tests, private daemons among them, and engines in processes of
their own, which end with the test."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from support import Engine  # noqa: E402

CONFTEST = HERE.parents[1] / "client/python/tests/conftest.py"

spec = importlib.util.spec_from_file_location("kvlease_conftest", CONFTEST)
assert spec and spec.loader
package = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = package
spec.loader.exec_module(package)

Daemon = package.Daemon
MakeDaemon = package.MakeDaemon
Store = package.Store
make_daemon = package.make_daemon
store = package.store
wait_until = package.wait_until

StartEngines = Callable[..., list[Engine]]


@pytest.fixture
def start_engines(request: pytest.FixtureRequest) -> Iterator[StartEngines]:
    """start_engines(settings, ..., environment={...}): starts them at once, by the worker.py beside
    the test, and returns when all are ready."""
    engines: list[Engine] = []

    def start(*settings: dict[str, Any], environment: dict[str, str] | None = None) -> list[Engine]:
        new = [Engine(request.path.parent / "worker.py", each, environment) for each in settings]
        engines.extend(new)
        for engine in new:
            assert engine.receive() == "ready"
        return new

    yield start
    for engine in engines:
        engine.kill()
