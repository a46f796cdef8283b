"""python -m peers.copies.worker CACHE ADDRESS: a worker, for peers.copies.

The worker prints "imported", and connects when it reads the first line. Lines are "store N", "find
N" and "load N", where N is the number of a text. The worker answers each line with nanoseconds and
a number of pages, or with "failed" and a reason. A loaded page counts if it has the bytes of that
text. The worker ends with its input.
"""

from __future__ import annotations

import importlib
import os
import sys
from time import perf_counter_ns

import numpy as np

from peers.copies.cache import CACHES, Cache
from peers.peer import TEXT_PAGES


def _marks(number: int) -> np.ndarray:
    """Each page's number, with which the page is filled: no two of them are equal."""
    return np.arange(number * TEXT_PAGES + 1, (number + 1) * TEXT_PAGES + 1, dtype=np.int16)


def _fill(pages: np.ndarray, marks: np.ndarray) -> None:
    pages[:] = marks.reshape((TEXT_PAGES,) + (1,) * (pages.ndim - 1))


def _count(pages: np.ndarray, marks: np.ndarray) -> int:
    return sum(bool((page == mark).all()) for page, mark in zip(pages, marks, strict=True))


def _answer(cache: Cache, line: str) -> tuple[int, int]:
    """Nanoseconds and pages."""
    verb, number = line.split()
    marks = _marks(int(number))
    if verb == "store":
        _fill(cache.pages[:TEXT_PAGES], marks)
    else:
        _fill(cache.pages[TEXT_PAGES:], np.zeros(TEXT_PAGES, dtype=np.int16))
    begin = perf_counter_ns()
    done = getattr(cache, verb)(int(number))
    nsec = perf_counter_ns() - begin
    if verb == "find":
        return nsec, done
    return nsec, TEXT_PAGES if verb == "store" else _count(cache.pages[TEXT_PAGES:], marks)


def main() -> None:
    """Until the input ends."""
    name, address = sys.argv[1:]
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the software prints
    module = importlib.import_module(f"peers.copies.{CACHES[name][0]}")
    print("imported", file=output, flush=True)
    cache: Cache | None = None
    for line in sys.stdin:
        try:
            cache = cache or module.connect(address)
            print(*_answer(cache, line), file=output, flush=True)
        except Exception as error:
            why = f"{type(error).__name__}: {error}".splitlines()[0]
            print("failed", why, file=output, flush=True)
    os._exit(0)  # threads of the software may wait for a service that is gone


if __name__ == "__main__":
    main()
