"""NVIDIA's KV Cache Runner: its service owns the memory, in which a worker's copies are made by
NIXL (UCX) in the worker's process. The service promotes itself when a worker dies."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from kvcr import KVCR, KVCRBindings
from kvcr.config import KVCRBackendConfigs, KVCRConfig, KVCRGuardConfig
from kvcr.control_channels import ZmqPeerControlChannel
from kvcr.types import BlockKey, MemoryRef, QueryStatus, RegionDescriptor

from peers.copies.cache import LIMIT, PAGE_BYTES, await_socket, digests
from peers.peer import TEXT_PAGES, free_port, start_server

_SECONDS = 20.0  # of a request. Not tuned.
_DIGEST = "kvlease-bench"


class Service:
    """Its address is that of its socket and the TCP port at which the workers answer others."""

    def __init__(self, folder: Path) -> None:
        self._socket = folder / "sock"
        self.address = f"{self._socket}:{free_port()}"
        self._command = [sys.executable, "-m", "kvcr.kvcr_service", "--pool-dir", str(folder)]
        self._command += ["--socket-path", str(self._socket), "--guard-count", "1"]
        self._command += ["--pool-sizes-gb", str(LIMIT >> 30), "--compatibility-digest", _DIGEST]

    def start(self) -> None:
        """The memory is there when the service answers."""
        self._process = start_server(self._command, -1)
        await_socket(self._socket)

    def kill(self) -> None:
        """The service has one process."""
        self._process.kill()
        self._process.wait()

    stop = kill


class _Client:
    def __init__(self, address: str) -> None:
        path, _, port = address.rpartition(":")
        self.pages = np.zeros((2 * TEXT_PAGES, PAGE_BYTES // 2), dtype=np.int16)
        self._keys = cache(lambda number: [BlockKey(key) for key in digests(number)])
        agent = f"KVCR-{uuid.uuid4()}"
        self._kvcr = KVCR(
            KVCRConfig(
                nixl_agent_name=agent,
                pool_layouts=[("", PAGE_BYTES)],
                operation_timeout_ms=int(_SECONDS * 1000),
                abandon_timeout_ms=int(2 * _SECONDS * 1000),
                nixl_listen_port=free_port(),
            ),
            KVCRBindings(
                request_pin=_no_pin,
                poll_pin_results=list,
                release_pin=_no_pin,
                framework_control=ZmqPeerControlChannel("127.0.0.1", int(port), "127.0.0.1"),
            ),
            KVCRBackendConfigs(
                framework_regions=[
                    RegionDescriptor(
                        addr=self.pages.ctypes.data, size=PAGE_BYTES, count=2 * TEXT_PAGES
                    )
                ]
            ),
            KVCRGuardConfig(path, 0, _DIGEST),
        )
        places = [[MemoryRef(end_point_name=agent, element_index=i)] for i in range(2 * TEXT_PAGES)]
        self._sources, self._targets = places[:TEXT_PAGES], places[TEXT_PAGES:]

    def _do(self, begin: Callable[[Any], int], blocks: dict[BlockKey, list[MemoryRef]]) -> None:
        """Waits until each page is copied, or raises an exception."""
        handle, left = begin(blocks), len(blocks)
        end = time.monotonic() + _SECONDS
        while left:
            for each, entries in self._kvcr.poll_completed():
                if each == handle:
                    if not all(entry.success for entry in entries.values()):
                        raise RuntimeError("KVCR copied no page, or some of the pages")
                    left -= len(entries)
            if time.monotonic() > end:
                raise TimeoutError("KVCR copies the pages too slowly")

    def store(self, number: int) -> None:
        self._do(self._kvcr.deposit, dict(zip(self._keys(number), self._sources, strict=True)))

    def find(self, number: int) -> int:
        answers = self._kvcr.query(self._keys(number))
        return sum(status is QueryStatus.HIT for status, _ in answers)

    def load(self, number: int) -> None:
        keys = self._keys(number)[: self.find(number)]
        self._do(self._kvcr.deliver, dict(zip(keys, self._targets, strict=False)))


def _no_pin(*_: object) -> Any:
    raise RuntimeError("no other worker asks for pages")


connect = _Client
