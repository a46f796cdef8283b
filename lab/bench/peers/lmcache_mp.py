"""LMCache's server, a process of its own, spoken to as its connector for vLLM does: the adapter of
the worker stores, that of the scheduler looks up, which locks, and lets go. Tokens go to the
server, which hashes them."""

from __future__ import annotations

import os
import sys
import time
from itertools import count
from typing import Any

os.environ["LMCACHE_TRACK_USAGE"] = "false"  # it would send statistics to its makers

import torch
import zmq
from lmcache.integration.vllm.vllm_multi_process_adapter import (
    LMCacheMPSchedulerAdapter,
    LMCacheMPWorkerAdapter,
    LoadStoreOp,
    ParallelStrategy,
)

from peers.peer import (
    PAGE_TOKENS,
    TEXT_PAGES,
    TEXT_TOKENS,
    Way,
    await_server,
    free_port,
    start_server,
    text,
)

_MODEL = "kvlease-bench"
_GIB = 2
_SECONDS = 60.0  # of a request. Not tuned.


class Peer:
    """The server on its core, and both adapters of an engine in this process."""

    def __init__(self, server_core: int) -> None:
        port = free_port()
        command = [sys.executable, "-m", "lmcache.v1.multiprocess.server", "--port", str(port)]
        command += ["--host", "127.0.0.1", "--chunk-size", str(PAGE_TOKENS)]
        command += ["--l1-size-gb", str(_GIB), "--eviction-policy", "LRU", "--disable-metrics"]
        command += ["--supported-transfer-mode", "engine_driven"]
        self._server = start_server(command, server_core)
        await_server(self._server, port)
        url = f"tcp://127.0.0.1:{port}"
        alone = ParallelStrategy(
            mla_only=False, vllm_world_size=1, vllm_worker_id=0, tp_size=1, pp_size=1, n_servers=1
        )
        self._context = zmq.Context()
        self._worker = LMCacheMPWorkerAdapter(url, self._context, _MODEL, PAGE_TOKENS, alone)
        self._scheduler = LMCacheMPSchedulerAdapter(
            [url], self._context, _MODEL, PAGE_TOKENS, alone
        )
        self._client = self._scheduler.req_clients[url]
        self._names = (f"hit-{i}" for i in count())

    def fill(self, n_texts: int) -> None:
        """The same few blocks for each text: nobody reads them."""
        blocks = torch.zeros((2, TEXT_PAGES, 1, PAGE_TOKENS, 8), dtype=torch.float16)
        self._worker.register_kv_caches({"layer": blocks})
        for number in range(n_texts):
            name = f"fill-{number}"
            store = LoadStoreOp(
                text(number).tolist(), [list(range(TEXT_PAGES))], start=0, end=TEXT_TOKENS
            )
            self._worker.submit_store_request(name, store, None)
            self._await(lambda name=name: name in self._worker.get_finished({name})[0])

    def _await(self, is_done: Any) -> None:
        end = time.monotonic() + _SECONDS
        while not is_done():
            if time.monotonic() > end:
                raise TimeoutError(f"the server takes longer than {_SECONDS:.0f} s")
            time.sleep(0.001)

    def _hit(self, request: tuple[str, list[int]]) -> int:
        """Each answer is waited for; the adapter would ask again with each of vLLM's steps."""
        name, tokens = request
        scheduler, client = self._scheduler, self._client
        key = scheduler._create_key(tokens, 0, len(tokens), name).no_worker_id_version()
        client.lookup(key, 1).result(_SECONDS)
        n_pages = None
        while n_pages is None:
            n_pages = client.query_prefetch_status(name).result(_SECONDS)
        client.free_lookup_locks(key, 1).result(_SECONDS)
        client.end_session(name)
        return int(n_pages)

    def _prepare(self, number: int) -> tuple[str, list[int]]:
        return next(self._names), text(number).tolist()

    def ways(self) -> dict[str, Way]:
        """By tokens: the server makes the keys."""
        return {"lmcache-mp-tokens": Way(self._prepare, self._hit)}

    def close(self) -> None:
        """The adapters, then the server."""
        self._scheduler.shutdown()
        self._worker.shutdown()
        self._server.kill()
        self._server.wait()
