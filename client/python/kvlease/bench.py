"""What a lookup and the release of what it found cost from Python, beside the C library."""

from __future__ import annotations

import os
import time
from statistics import median
from typing import NamedTuple

from kvlease import _kvlease
from kvlease._kvlease import Connection, Namespace
from kvlease._types import DType, Layout

ROUNDS = 201
"""How often Python and C are measured, in turns: what disturbs the machine disturbs both."""
# Of a round: at most a ms, so that on a busy machine most rounds have the processor for themselves.
_CALLS = 200
_BOUNDS = {1: None, 64: 3.0}  # ratios that the project promises, by number of keys


class Row(NamedTuple):
    """Seconds of a lookup of so many keys with the release: medians of the rounds."""

    n_keys: int
    python: float
    c: float
    ratio: float
    bound: float | None

    @property
    def is_missed(self) -> bool:
        """The bound is."""
        return self.bound is not None and self.ratio > self.bound


def _python_seconds(namespace: Namespace, keys: bytes) -> float:
    begin = time.perf_counter()
    for _ in range(_CALLS):
        namespace.lookup(keys).close()
    return (time.perf_counter() - begin) / _CALLS


def _measure(namespace: Namespace, keys: bytes, rounds: int) -> Row:
    python, c = [], []
    for _ in range(rounds + 1):
        python.append(_python_seconds(namespace, keys))
        c.append(_kvlease.bench_lookup(namespace, keys, _CALLS))
    n_keys = len(keys) // 32
    # The first round fills caches.
    seconds = median(python[1:]), median(c[1:])
    return Row(n_keys, *seconds, seconds[0] / seconds[1], _BOUNDS[n_keys])


def run(connection: Connection, rounds: int = ROUNDS) -> list[Row]:
    """A row for 1 key and for 64, in a namespace of its own, emptied at the end."""
    layout = Layout("kvlease-bench", DType.F16, 1, 1, 64, 16, 4096)
    keys = layout.keys(range(max(_BOUNDS) * layout.page_tokens))
    with connection.namespace(f"kvlease-bench-{os.getpid()}", layout) as namespace:
        with namespace.lease(max(_BOUNDS)) as pages:
            namespace.publish(pages, keys).close()
        try:
            return [_measure(namespace, keys[: 32 * n], rounds) for n in _BOUNDS]
        finally:
            namespace.invalidate(keys[:32])  # and all that follows; no event says so
