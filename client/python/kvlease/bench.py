"""What a lookup and the release of what it found cost from Python, beside the C library."""

from __future__ import annotations

import os
import time

from kvlease import _kvlease
from kvlease._kvlease import Connection, Namespace
from kvlease._types import DType, Layout

_PAGES = 64
_BATCHES = 7  # the fastest of them counts: others share the machine. Not tuned.
_ROUNDS = 20000


def _python_seconds(namespace: Namespace, keys: bytes, rounds: int) -> float:
    begin = time.perf_counter()
    for _ in range(rounds):
        namespace.lookup(keys).close()
    return (time.perf_counter() - begin) / rounds


def measure(namespace: Namespace, keys: bytes, rounds: int = _ROUNDS) -> tuple[float, float]:
    """Seconds of Python and of C for one lookup and release, measured in turns."""
    pairs = [
        (_python_seconds(namespace, keys, rounds), _kvlease.bench_lookup(namespace, keys, rounds))
        for _ in range(_BATCHES)
    ]
    return min(p for p, _ in pairs), min(c for _, c in pairs)


def run(connection: Connection, rounds: int = _ROUNDS) -> list[tuple[int, float, float]]:
    """(keys, seconds in Python, seconds in C), in a namespace of its own, emptied at the end."""
    layout = Layout("kvlease-bench", DType.F16, 1, 1, 64, 16, 4096)
    keys = layout.keys(range(_PAGES * layout.page_tokens))
    rows = []
    with connection.namespace(f"kvlease-bench-{os.getpid()}", layout) as namespace:
        with namespace.lease(_PAGES) as pages:
            namespace.publish(pages, keys).close()
        for n in (1, _PAGES):
            python, c = measure(namespace, keys[: 32 * n], rounds)
            rows.append((n, python, c))
        namespace.invalidate()
    return rows
