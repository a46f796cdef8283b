"""The fixtures of the package's own tests, private daemons among them, and engines in processes of
their own, which end with the test."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from support import LIMIT, MEMORY, Engine  # noqa: E402

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
# Each takes some 200 MB.
MOST_KEPT = 4


@pytest.fixture
def daemon(make_daemon: Any) -> Any:
    """A private daemon with room for engines, on the host's memory."""
    return make_daemon(device=MEMORY, tenant=LIMIT)


@pytest.fixture(scope="session")
def kept() -> Iterator[dict[str, Engine]]:
    """vLLM without kvlease, by its settings: a test that wants one that another test has made gets
    it, with an empty cache."""
    engines: dict[str, Engine] = {}
    yield engines
    for engine in engines.values():
        engine.kill()


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """start_server(function of serving, arguments after its log, ...): a server, ended with the
    test."""
    servers: list[Any] = []

    def start(function: Callable[..., Any], *arguments: object, **options: bool) -> Any:
        servers.append(function(tmp_path / f"{len(servers)}.log", *arguments, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


@pytest.fixture
def start_engines(
    request: pytest.FixtureRequest, kept: dict[str, Engine]
) -> Iterator[StartEngines]:
    """start_engines(settings, ..., environment={...}): starts them at once, by the worker.py beside
    the test, and returns when all are ready."""
    engines: list[tuple[str, Engine]] = []

    def start(*settings: dict[str, Any], environment: dict[str, str] | None = None) -> list[Engine]:
        new: list[tuple[str, Engine]] = []
        for each in settings:
            key = json.dumps([each, environment], sort_keys=True)
            worker = request.path.parent / "worker.py"
            new.append((key, kept.pop(key, None) or Engine(worker, each, environment)))
        engines.extend(new)
        for _, engine in new:
            engine.wait()
        return [engine for _, engine in new]

    yield start
    for key, engine in engines:
        if len(kept) < MOST_KEPT and engine.can_be_kept() and engine.call("reset") is True:
            kept[key] = engine
        else:
            engine.kill()
