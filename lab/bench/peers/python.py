"""The package for Python, on the pages that the benchmark published: in its namespace, through
$KVLEASE_SOCKET."""

from __future__ import annotations

import kvlease
from peers.peer import PAGE_TOKENS, Way, text

_PAGE_BYTES = 4096  # as lab/bench/peers.c has it, like the rest of the layout


class Peer:
    """A client."""

    def __init__(self, server_core: int) -> None:
        layout = kvlease.Layout(
            model="peers",
            version="1",
            dtype=kvlease.DType.F16,
            n_layers=1,
            n_kv_heads=1,
            head_size=64,
            page_tokens=PAGE_TOKENS,
            plane_page_bytes=_PAGE_BYTES,
        )
        self._layout = layout
        self._connection = kvlease.connect()
        self._namespace = self._connection.namespace("peers", layout)
        if not self._namespace.uses_shm:
            raise RuntimeError("memory isn't shared with kvleased")
        self._keys: list[bytes] = []

    def fill(self, n_texts: int) -> None:
        """Of texts that are there already, the keys."""
        self._keys = [self._layout.keys(text(number)) for number in range(n_texts)]

    def _hit(self, keys: bytes) -> int:
        pages = self._namespace.lookup(keys)
        n_pages = len(pages)
        pages.close()
        return n_pages

    def ways(self) -> dict[str, Way]:
        """By keys that are known, and by tokens."""
        return {
            "kvlease-python": Way(lambda number: bytes(bytearray(self._keys[number])), self._hit),
            "kvlease-python-tokens": Way(text, lambda tokens: self._hit(self._layout.keys(tokens))),
        }

    def close(self) -> None:
        """The connection."""
        self._connection.close()
