"""LMCache's server itself: with the adapters that vLLM's connector has in scheduler and worker, and
with vLLM."""

from __future__ import annotations

import contextlib
import re
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kvlease_conftest as package
import pytest
import serving
import torch
import zmq
from lmcache.integration.vllm.vllm_multi_process_adapter import (
    LMCacheMPSchedulerAdapter,
    LMCacheMPWorkerAdapter,
    LoadStoreOp,
    ParallelStrategy,
)
from models import make_llama
from support import SECONDS, ctl, findable, held, make_prompts, published

HERE = Path(__file__).resolve().parent
CHUNK_TOKENS = 16
N_CHUNKS = 5
TEXT = list(range(100, 100 + CHUNK_TOKENS * N_CHUNKS))
SHAPE = (2, N_CHUNKS, 4, CHUNK_TOKENS, 64)  # K and V, blocks, heads, tokens, size
# Of vLLM: two blocks.
VLLM_CHUNK_TOKENS = 64
Serve = Callable[..., Any]


@pytest.fixture
def serve(start_server: Any, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """serve(daemon, tokens of a chunk): a server by the command of its page, until a SIGKILL; its
    port."""
    page = (HERE.parents[2] / "docs/start/lmcache.md").read_text()
    (shown,) = re.findall("^lmcache server (.*)$", page, re.M)

    @contextlib.contextmanager
    def one(daemon: Any, chunk_tokens: int) -> Iterator[int]:
        monkeypatch.setenv("KVLEASE_SOCKET", str(daemon.socket))
        rest = ("--chunk-size", str(chunk_tokens), "--l1-size-gb", "1")
        port = serving.find_port()
        server = start_server(serving.serve_lmcache, port, *shlex.split(shown), *rest)
        try:
            server.wait()
            yield port
        finally:
            server.kill()

    return one


def wait(is_so: Callable[[], bool]) -> None:
    """Until it is so."""
    end = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < end, "it didn't happen in time"
        time.sleep(0.01)


@contextlib.contextmanager
def connect(port: int, blocks: torch.Tensor) -> Iterator[tuple[Any, Any]]:
    """The adapters of an engine with this KV cache."""
    url = f"tcp://127.0.0.1:{port}"
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


def test_server_killed(make_daemon: Any, serve: Serve) -> None:
    """A server finds what another one stored before its SIGKILL, bit by bit."""
    daemon = make_daemon(device="memory = 64MiB\nextent = 2MiB")
    blocks = torch.randn(SHAPE).to(torch.float16)
    whole = LoadStoreOp(TEXT, [list(range(N_CHUNKS))], start=0, end=len(TEXT))
    with serve(daemon, CHUNK_TOKENS) as port, connect(port, blocks) as (_, worker):
        worker.submit_store_request("first", whole, None)
        wait(lambda: "first" in (worker.get_finished({"first"})[0] or ()))
        package.wait_until(lambda: published(daemon) == N_CHUNKS)
    loaded = torch.zeros_like(blocks)
    with serve(daemon, CHUNK_TOKENS) as port, connect(port, loaded) as (scheduler, worker):
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


@pytest.fixture
def start(start_server: Any, tmp_path: Path) -> Callable[..., serving.Server]:
    """start(port): `vllm serve` with a small model on the CPU, and with LMCache's server there, if
    any."""
    make_llama(tmp_path / "model")

    def one(port: int | None = None) -> serving.Server:
        options = ["--max-model-len", "2048", "--max-num-batched-tokens", "256"]
        if port is not None:
            options += serving.transfer("LMCacheMPConnector", **serving.lmcache(port))
        server: serving.Server = start_server(serving.serve, str(tmp_path / "model"), *options)
        server.wait()
        return server

    return one


def test_vllm(make_daemon: Any, serve: Serve, start: Callable[..., serving.Server]) -> None:
    """An engine finds what another one computed before both that one and its LMCache server were
    killed, and has the tokens of vLLM alone. So it has where kvleased is gone."""
    daemon = make_daemon(device="memory = 64MiB\nextent = 2MiB")
    alone = start()
    prompts = make_prompts(1, 100, 300, 333)
    expected = [alone.ask(prompt, 8).tokens for prompt in prompts]
    ends = range(VLLM_CHUNK_TOKENS, 434, VLLM_CHUNK_TOKENS)
    chunks = {tuple(prompt[:end]) for prompt in prompts for end in ends if end <= len(prompt)}
    with serve(daemon, VLLM_CHUNK_TOKENS) as port:
        first = start(port)
        answers = [first.ask(prompt, 8) for prompt in prompts]
        assert [answer.tokens for answer in answers] == expected
        package.wait_until(lambda: published(daemon) == len(chunks), SECONDS)
        first.kill()
    with serve(daemon, VLLM_CHUNK_TOKENS) as port:
        second = start(port)
        answers = [second.ask(prompt, 8) for prompt in prompts]
        assert [answer.tokens for answer in answers] == expected
        assert [answer.n_found for answer in answers] == findable(prompts, VLLM_CHUNK_TOKENS)
        package.wait_until(lambda: held(daemon) == (0, 0))
        assert "consistent" in ctl(daemon, "check")
        daemon.stop()
        (other,) = make_prompts(2, 0, 400)
        assert second.ask(other, 8).tokens == alone.ask(other, 8).tokens
