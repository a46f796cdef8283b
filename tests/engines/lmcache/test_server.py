"""LMCache's server itself, with the adapters that vLLM's connector has in scheduler and worker."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kvlease_conftest as package
import torch
import zmq
from lmcache.integration.vllm.vllm_multi_process_adapter import (
    LMCacheMPSchedulerAdapter,
    LMCacheMPWorkerAdapter,
    LoadStoreOp,
    ParallelStrategy,
)
from support import SECONDS, held, published

CHUNK_TOKENS = 16
N_CHUNKS = 5
TEXT = list(range(100, 100 + CHUNK_TOKENS * N_CHUNKS))
SHAPE = (2, N_CHUNKS, 4, CHUNK_TOKENS, 64)  # K and V, blocks, heads, tokens, size


@contextlib.contextmanager
def serve(daemon: Any) -> Iterator[str]:
    """A server by the command of its page, until a SIGKILL: its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    page = (Path(__file__).parents[3] / "docs/start/lmcache.md").read_text()
    (shown,) = re.findall("^lmcache (server .*)$", page, re.M)
    command = [sys.executable, "-c", "from lmcache.cli.main import main; main()"]
    command += [*shlex.split(shown), "--host", "127.0.0.1", "--port", str(port)]
    command += ["--chunk-size", str(CHUNK_TOKENS), "--l1-size-gb", "1", "--disable-metrics"]
    command += ["--supported-transfer-mode", "engine_driven"]
    environment = os.environ | {"KVLEASE_SOCKET": str(daemon.socket)}
    with subprocess.Popen(command, env=environment) as server:
        try:
            address = ("127.0.0.1", port)
            wait(lambda: server.poll() is not None or is_open(address))
            assert server.poll() is None, f"the server ended with {server.returncode}"
            yield f"tcp://127.0.0.1:{port}"
        finally:
            server.kill()


def is_open(address: tuple[str, int]) -> bool:
    """Whether something listens there."""
    with socket.socket() as one:
        return one.connect_ex(address) == 0


def wait(is_so: Callable[[], bool]) -> None:
    """Until it is so."""
    end = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < end, "it didn't happen in time"
        time.sleep(0.01)


@contextlib.contextmanager
def connect(url: str, blocks: torch.Tensor) -> Iterator[tuple[Any, Any]]:
    """The adapters of an engine with this KV cache."""
    alone = ParallelStrategy(
        mla_only=False, vllm_world_size=1, vllm_worker_id=0, tp_size=1, pp_size=1, n_servers=1
    )
    context = zmq.Context()
    worker = LMCacheMPWorkerAdapter(url, context, "org/model", CHUNK_TOKENS, alone)
    scheduler = LMCacheMPSchedulerAdapter([url], context, "org/model", CHUNK_TOKENS, alone)
    worker.register_kv_caches({"layer": blocks})
    yield scheduler, worker
    scheduler.shutdown()
    worker.shutdown()


def test_server_killed(make_daemon: Any) -> None:
    """A server finds what another one stored before its SIGKILL, bit by bit."""
    daemon = make_daemon(device="memory = 64MiB\nextent = 2MiB")
    blocks = torch.randn(SHAPE).to(torch.float16)
    whole = LoadStoreOp(TEXT, [list(range(N_CHUNKS))], start=0, end=len(TEXT))
    with serve(daemon) as url, connect(url, blocks) as (_, worker):
        worker.submit_store_request("first", whole, None)
        wait(lambda: "first" in (worker.get_finished({"first"})[0] or ()))
        package.wait_until(lambda: published(daemon) == N_CHUNKS)
    loaded = torch.zeros_like(blocks)
    with serve(daemon) as url, connect(url, loaded) as (scheduler, worker):
        scheduler.maybe_submit_lookup_request("second", [*TEXT, *range(CHUNK_TOKENS)])
        answers: list[int | None] = []
        wait(
            lambda: (
                answers.append(scheduler.check_lookup_result("second")) or answers[-1:] != [None]
            )
        )
        assert answers[-1] == len(TEXT)
        worker.submit_retrieve_request("second", whole, None)
        wait(lambda: "second" in (worker.get_finished(set())[1] or ()))
        assert torch.equal(loaded, blocks)
        package.wait_until(lambda: held(daemon) == (0, 0))
