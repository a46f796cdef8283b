"""Mooncake's store: its master, and a client with a segment of memory, which talk by TCP on this
host. A hit asks which of the keys exist, which also gives their objects leases; a lease ends by
itself, so that nothing is let go of."""

from __future__ import annotations

import hashlib
from pathlib import Path

import mooncake
from mooncake.store import MooncakeDistributedStore

from peers.peer import TEXT_PAGES, Way, await_server, free_port, start_server, text

_SEGMENT_BYTES = 2 << 30
_BUFFER_BYTES = 64 << 20
_VALUE = bytes(64)


def _keys(number: int) -> list[str]:
    tokens = text(number).tobytes()
    step = len(tokens) // TEXT_PAGES
    digest, keys = b"", []
    for i in range(TEXT_PAGES):
        digest = hashlib.sha256(digest + tokens[i * step : (i + 1) * step]).digest()
        keys.append(digest.hex())
    return keys


class Peer:
    """A master on its core, and a client."""

    def __init__(self, server_core: int) -> None:
        port = free_port()
        self._master = start_server(
            [
                str(Path(mooncake.__file__).with_name("mooncake_master")),
                f"--rpc_port={port}",
                f"--metrics_port={free_port()}",
                "--rpc_address=127.0.0.1",
            ],
            server_core,
        )
        await_server(self._master, port)
        self._store = MooncakeDistributedStore()
        status = self._store.setup(
            "127.0.0.1",
            "P2PHANDSHAKE",
            _SEGMENT_BYTES,
            _BUFFER_BYTES,
            "tcp",
            "",
            f"127.0.0.1:{port}",
        )
        if status:
            raise RuntimeError(f"the store's setup() returns {status}")
        self._keys: list[list[str]] = []

    def fill(self, n_texts: int) -> None:
        """Puts objects of a few bytes, one for each page."""
        for number in range(n_texts):
            keys = _keys(number)
            status = self._store.put_batch(keys, [_VALUE] * TEXT_PAGES)
            if status:
                raise RuntimeError(f"the store's put_batch() returns {status}")
            self._keys.append(keys)

    def _hit(self, keys: list[str]) -> int:
        return sum(each == 1 for each in self._store.batch_is_exist(keys))

    def ways(self) -> dict[str, Way]:
        """By keys: it makes none."""
        return {"mooncake": Way(lambda number: list(self._keys[number]), self._hit)}

    def close(self) -> None:
        """The client, then the master."""
        self._store.close()
        self._master.kill()
        self._master.wait()
