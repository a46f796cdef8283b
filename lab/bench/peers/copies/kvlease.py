"""kvlease: pages are leased, filled and published, and read through the package for Python.
kvleased runs under `--keep`, which starts it again."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import numpy as np

import kvlease
from peers.copies.cache import LIMIT, MIB, PAGE_BYTES
from peers.peer import PAGE_TOKENS, TEXT_PAGES, text

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "client/python/tests"))
import conftest

_LAYOUT = kvlease.Layout(
    model="copies",
    version="1",
    dtype=kvlease.DType.F16,
    n_layers=1,
    n_kv_heads=1,
    head_size=64,
    page_tokens=PAGE_TOKENS,
    plane_page_bytes=PAGE_BYTES,
)


class Service:
    """kvleased."""

    def __init__(self, folder: Path) -> None:
        memory = f"memory = {2 * LIMIT // MIB}MiB\nextent = 2MiB"
        self._daemon = conftest.Daemon(folder, True, memory, f"limit = {LIMIT // MIB}MiB")
        self.address = str(self._daemon.socket)
        self._is_started = False

    def start(self) -> None:
        """`--keep` starts a killed kvleased."""
        if not self._is_started:
            self._daemon.start()
        self._is_started = True

    def kill(self) -> None:
        """kvleased, and not its keeper."""
        self._daemon.kill()

    def stop(self) -> None:
        """Both."""
        self._daemon.stop()


class _Client:
    def __init__(self, address: str) -> None:
        self._connection = kvlease.connect(address)
        self._namespace = self._connection.namespace("copies", _LAYOUT)
        self.pages = np.zeros((2 * TEXT_PAGES, PAGE_BYTES // 2), dtype=np.int16)
        self._keys = cache(lambda number: _LAYOUT.keys(text(number)))

    def store(self, number: int) -> None:
        with self._namespace.lease(TEXT_PAGES) as leased:
            leased.write_many(self.pages[:TEXT_PAGES])
            self._namespace.publish(leased, self._keys(number)).close()

    def find(self, number: int) -> int:
        with self._namespace.lookup(self._keys(number)) as found:
            return len(found)

    def load(self, number: int) -> None:
        with self._namespace.lookup(self._keys(number)) as found:
            if found:
                found.read_many(into=self.pages[TEXT_PAGES : TEXT_PAGES + len(found)])


connect = _Client
