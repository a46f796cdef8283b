"""The least that a table costs in Python: a dict of keys, and a list that counts who holds a page.
It needs nothing but Python."""

from __future__ import annotations

import hashlib
from array import array

from peers.peer import PAGE_TOKENS, TEXT_PAGES, Way, text


def _keys(tokens: array[int]) -> list[bytes]:
    keys, parent = [], b""
    data, step = tokens.tobytes(), PAGE_TOKENS * tokens.itemsize
    for i in range(TEXT_PAGES):
        parent = hashlib.sha256(parent + data[i * step : (i + 1) * step]).digest()
        keys.append(parent)
    return keys


class Peer:
    """A table of this process."""

    def __init__(self, server_core: int) -> None:
        self._pages: dict[bytes, int] = {}
        self._counts: list[int] = []
        self._keys: list[list[bytes]] = []

    def fill(self, n_texts: int) -> None:
        """All texts."""
        self._keys = [_keys(text(number)) for number in range(n_texts)]
        for keys in self._keys:
            for key in keys:
                self._pages[key] = len(self._counts)
                self._counts.append(0)

    def _hit(self, keys: list[bytes]) -> int:
        found, counts = [], self._counts
        for key in keys:
            page = self._pages.get(key)
            if page is None:
                break
            counts[page] += 1
            found.append(page)
        for page in found:
            counts[page] -= 1
        return len(found)

    def ways(self) -> dict[str, Way]:
        """By keys that are known, and by tokens."""
        return {
            "python-table": Way(lambda number: list(self._keys[number]), self._hit),
            "python-table-tokens": Way(text, lambda tokens: self._hit(_keys(tokens))),
        }

    def close(self) -> None:
        """Nothing was started."""
