"""LMCache's server, through its connector's adapters for vLLM, as peers.lmcache_mp has them. The
server makes the keys from tokens and copies the pages."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
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

from peers.copies.cache import LIMIT, PAGE_BYTES, Server
from peers.peer import (
    PAGE_TOKENS,
    TEXT_PAGES,
    TEXT_TOKENS,
    free_port,
    text,
)

_MODEL = "kvlease-bench"
_SECONDS = 10.0  # of a request. Not tuned.


class Service(Server):
    """Without a second tier."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.address = f"tcp://127.0.0.1:{port}"
        command = [sys.executable, "-m", "lmcache.v1.multiprocess.server"]
        command += ["--host", "127.0.0.1", "--port", str(port)]
        command += ["--chunk-size", str(PAGE_TOKENS), "--l1-size-gb", str(LIMIT >> 30)]
        command += ["--eviction-policy", "LRU", "--disable-metrics"]
        command += ["--supported-transfer-mode", "engine_driven"]
        super().__init__(command, port)


class _Client:
    def __init__(self, address: str) -> None:
        alone = ParallelStrategy(
            mla_only=False, vllm_world_size=1, vllm_worker_id=0, tp_size=1, pp_size=1, n_servers=1
        )
        context = zmq.Context.instance()
        self._worker = LMCacheMPWorkerAdapter(address, context, _MODEL, PAGE_TOKENS, alone)
        self._scheduler = LMCacheMPSchedulerAdapter([address], context, _MODEL, PAGE_TOKENS, alone)
        self._client = self._scheduler.req_clients[address]
        head = PAGE_BYTES // (2 * 2 * PAGE_TOKENS)  # K and V, of two bytes
        blocks = torch.zeros((2, 2 * TEXT_PAGES, 1, PAGE_TOKENS, head), dtype=torch.float16)
        self._worker.register_kv_caches({"layer": blocks})
        self.pages = blocks.view(torch.int16).numpy().swapaxes(0, 1)
        self._names = (f"copy-{os.getpid()}-{i}" for i in count())

    def _do(self, begin: Callable[..., None], number: int, place: int, which: int) -> None:
        """which: of what get_finished() returns, 0 stores and 1 loads."""
        name = next(self._names)
        blocks = list(range(place, place + TEXT_PAGES))
        begin(name, LoadStoreOp(text(number).tolist(), [blocks], start=0, end=TEXT_TOKENS), None)
        end = time.monotonic() + _SECONDS
        while name not in (self._worker.get_finished({name})[which] or ()):
            if time.monotonic() > end:
                raise TimeoutError("LMCache's server doesn't answer")

    def store(self, number: int) -> None:
        self._do(self._worker.submit_store_request, number, 0, 0)

    def _hold(self, number: int, name: str) -> tuple[Any, int]:
        """The key and the number of its pages, which are locked until they are loaded or let go."""
        key = self._scheduler._create_key(
            text(number).tolist(), 0, TEXT_TOKENS, name
        ).no_worker_id_version()
        self._client.lookup(key, 1).result(_SECONDS)
        n_pages, end = None, time.monotonic() + _SECONDS
        while n_pages is None:  # for ever, if the server that was asked is gone
            if time.monotonic() > end:
                raise TimeoutError("LMCache's server doesn't find the pages")
            n_pages = self._client.query_prefetch_status(name).result(_SECONDS)
        return key, int(n_pages)

    def find(self, number: int) -> int:
        name = next(self._names)
        key, n_pages = self._hold(number, name)
        self._client.free_lookup_locks(key, 1).result(_SECONDS)
        self._client.end_session(name)
        return n_pages

    def load(self, number: int) -> None:
        name = next(self._names)
        key, n_pages = self._hold(number, name)
        if n_pages == TEXT_PAGES:
            self._do(self._worker.submit_retrieve_request, number, TEXT_PAGES, 1)
        else:
            self._client.free_lookup_locks(key, 1).result(_SECONDS)
        self._client.end_session(name)


connect = _Client
