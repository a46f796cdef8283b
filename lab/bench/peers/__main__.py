"""python -m peers NAME: a peer, for kvlease-bench, which asks it for hits.

It says one line, "ready ROW...", "missing WHY" or "failed WHY", and then answers each line
"ROW N" with the nanoseconds of N hits of any texts, after N more that warm it up. It ends with its
input. What the software prints goes to stderr.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import sys
from time import perf_counter_ns
from typing import TextIO

from peers.peer import TEXT_PAGES, Peer, Way


def _hit(way: Way, number: int) -> int:
    """Its nanoseconds."""
    prepared = way.prepare(number)
    hit = way.hit
    begin = perf_counter_ns()
    n_pages = hit(prepared)
    nsec = perf_counter_ns() - begin
    if n_pages != TEXT_PAGES:
        raise RuntimeError(f"a hit found {n_pages} of {TEXT_PAGES} pages")
    return nsec


def _answer(ways: dict[str, Way], line: str, n_texts: int) -> list[int]:
    name, count = line.split()
    numbers = [random.randrange(n_texts) for _ in range(2 * int(count))]
    return [_hit(ways[name], number) for number in numbers][int(count) :]


def _serve(peer: Peer, n_texts: int, core: int, output: TextIO) -> None:
    peer.fill(n_texts)
    ways = peer.ways()
    if core >= 0:
        os.sched_setaffinity(0, {core})  # this thread; the software's own run where they want
    print("ready", *ways, file=output, flush=True)
    for line in sys.stdin:
        print(*_answer(ways, line, n_texts), file=output, flush=True)


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m peers", description=__doc__)
    parser.add_argument("name", help="a module of this package")
    parser.add_argument("--texts", type=int, default=80, help=f"of {TEXT_PAGES} pages")
    parser.add_argument("--core", type=int, default=-1, help="that hits run on")
    parser.add_argument("--server-core", type=int, default=-1, help="that a peer's server runs on")
    options = parser.parse_args()
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the software prints
    if options.core >= 0:  # kvlease-bench is on one; threads that are started may use both
        os.sched_setaffinity(0, {options.core, options.server_core} - {-1})
    peer: Peer | None = None
    try:
        peer = importlib.import_module(f"peers.{options.name}").Peer(options.server_core)
        _serve(peer, options.texts, options.core, output)
    except ModuleNotFoundError as error:
        print("missing", f"there is no Python module {error.name}", file=output, flush=True)
    except Exception as error:
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        print("failed", why, file=output, flush=True)
        return 1
    finally:
        if peer:
            peer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
