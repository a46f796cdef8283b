"""Stores, finds and loads texts in caches that copy pages, each in turns with kvlease, then kills
the worker, and the service. Prints a table; ratios are to kvlease in the same turn. A cache that
isn't there or fails is told on stderr, and left out."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from peers.copies.cache import CACHES, Service
from peers.peer import TEXT_PAGES

VERBS = ("store", "find", "load")
_SECONDS = 60.0  # until a cache that lost a process has to work again. Not tuned.


class Failed(Exception):
    """A worker can't do its work."""


class Worker:
    """A process, whose cache is connected by the first request."""

    def __init__(self, name: str, address: str) -> None:
        self._process = subprocess.Popen(
            [
                *("setpriv", "--pdeathsig", "KILL", sys.executable),
                *("-m", "peers.copies.worker", name, address),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self._process.stdout
        if self._process.stdout.readline() != "imported\n":
            raise Failed("its packages can't be imported")

    def ask(self, verb: str, number: int) -> tuple[float, int]:
        """Seconds, and pages."""
        assert self._process.stdin and self._process.stdout
        try:
            print(verb, number, file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise Failed("the worker ended") from None
        if not select.select([self._process.stdout], [], [], _SECONDS)[0]:
            self.kill()
            raise Failed(f"the worker hangs for {_SECONDS:.0f} s")
        line = self._process.stdout.readline()
        if not line or line.startswith("failed"):
            raise Failed(line.strip() or "the worker ended")
        nsec, n_pages = line.split()
        return int(nsec) / 1e9, int(n_pages)

    def is_working(self, number: int) -> bool:
        """Whether a new text is stored, and found."""
        try:
            self.ask("store", number)
            return self.ask("find", number)[1] == TEXT_PAGES
        except Failed as error:
            print("not yet:", error, file=sys.stderr, flush=True)
            return False

    def found(self, n_texts: int) -> int:
        """Pages of the first texts that are loaded with the right bytes."""
        n_pages = 0
        for number in range(n_texts):
            with contextlib.suppress(Failed):
                n_pages += self.ask("load", number)[1]
        return n_pages

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def running(name: str) -> Iterator[Service]:
    """A service with an empty cache, in memory as far as it has files."""
    module, kind = CACHES[name]
    with tempfile.TemporaryDirectory(prefix="kvl-", dir="/dev/shm") as folder:
        made = getattr(importlib.import_module(f"peers.copies.{module}"), kind)(Path(folder))
        made.start()
        try:
            yield made
        finally:
            made.stop()


def measure(worker: Worker, own: Worker, n_texts: int) -> dict[str, tuple[float, float]]:
    """Of each verb the median of seconds, and of the ratio to kvlease in the same turn."""
    turns: dict[str, list[tuple[float, float]]] = {verb: [] for verb in VERBS}
    for number in range(n_texts):
        for verb in VERBS:
            answers = [each.ask(verb, number) for each in (own, worker)]
            if any(n_pages != TEXT_PAGES for _, n_pages in answers):
                raise Failed(f"{verb}: {answers}")
            if number:  # the first text warms up
                turns[verb].append((answers[1][0], answers[1][0] / answers[0][0]))
    return {
        verb: (statistics.median(each[0] for each in all_), statistics.median(e[1] for e in all_))
        for verb, all_ in turns.items()
    }


class Loss(NamedTuple):
    """After a process was killed."""

    seconds: float | None
    """Until a new text is stored and found; None: not in time."""
    n_pages: int
    """Of all texts that were stored before."""


def recover(begin: float, worker: Worker, new_text: int, n_texts: int) -> Loss:
    """Asks the worker until it works."""
    seconds = None
    while seconds is None and time.monotonic() < begin + _SECONDS:
        if worker.is_working(new_text):
            seconds = time.monotonic() - begin
    return Loss(seconds, worker.found(n_texts))


def lose_worker(name: str, service: Service, victim: Worker, n_texts: int) -> tuple[Worker, Loss]:
    """Kills the worker. Another one has imported its packages and connects."""
    spare = Worker(name, service.address)
    begin = time.monotonic()
    victim.kill()
    return spare, recover(begin, spare, n_texts, n_texts)


def lose_service(service: Service, worker: Worker, n_texts: int) -> Loss:
    """Kills the service, and starts it again at once. The worker goes on meanwhile."""
    begin = time.monotonic()
    service.kill()
    with ThreadPoolExecutor(1) as pool:
        loss = pool.submit(recover, begin, worker, n_texts + 1, n_texts)
        service.start()  # by this thread: services die with the thread that starts them
        return loss.result()


def lose(name: str, n_texts: int) -> tuple[Loss, Loss, int]:
    """Of a worker, of a service, and the pages that the next worker finds."""
    with running(name) as service:
        worker = Worker(name, service.address)
        try:
            for number in range(n_texts):
                worker.ask("store", number)
            worker, one = lose_worker(name, service, worker, n_texts)
            if one.n_pages < n_texts * TEXT_PAGES:  # so that there is something to lose
                for number in range(n_texts):
                    worker.ask("store", number)
            two = lose_service(service, worker, n_texts)
            worker, last = lose_worker(name, service, worker, n_texts)
        finally:
            worker.kill()
        return one, two, last.n_pages


def _seconds(loss: Loss) -> str:
    return f"> {_SECONDS:.0f} s" if loss.seconds is None else f"{loss.seconds:.3f} s"


def compare(name: str, n_texts: int) -> dict[str, tuple[float, float]]:
    """As measure() says, of a cache and kvlease."""
    with contextlib.ExitStack() as stack:
        workers = []
        for each in (name, "kvlease"):
            service = stack.enter_context(running(each))
            workers.append(Worker(each, service.address))
            stack.callback(workers[-1].kill)
        return measure(workers[0], workers[1], n_texts)


def row(name: str, n_texts: int) -> str:
    """A row of the table."""
    times = compare(name, n_texts)
    one, two, last = lose(name, n_texts)
    cells = [f"{seconds * 1e3:.2f} ms ({ratio:.1f})" for seconds, ratio in times.values()]
    cells += [_seconds(one), str(one.n_pages), _seconds(two), f"{two.n_pages}; {last}"]
    return f"| `{name}` | " + " | ".join(cells) + " |"


def main() -> int:
    """The exit status: 1 if a cache is left out."""
    parser = argparse.ArgumentParser(prog="python -m peers.copies", description=__doc__)
    parser.add_argument("caches", nargs="*", default=list(CACHES), help=", ".join(CACHES))
    parser.add_argument("--texts", type=int, default=8, help=f"of {TEXT_PAGES} pages; 2 or more")
    parser.add_argument("--log", default="/dev/null", help="what services and workers print")
    options = parser.parse_args()
    if options.texts < 2:
        parser.error("--texts: 2 or more, because the first text isn't measured")
    os.environ["OMP_NUM_THREADS"] = "1"  # torch's threads wait for each other on a busy machine
    output, errors = os.fdopen(os.dup(1), "w"), os.fdopen(os.dup(2), "w")
    with open(options.log, "ab") as log:  # the processes that are started inherit it
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    head = [*VERBS, "worker killed", "pages", "service killed", "pages: same worker; next worker"]
    print("| cache | " + " | ".join(head) + " |\n|" + "---|" * (len(head) + 1), file=output)
    status = 0
    for name in options.caches:
        try:
            print(row(name, options.texts), file=output, flush=True)
        except (ModuleNotFoundError, Failed, RuntimeError, TimeoutError) as error:
            print(f"{name}: {error}", file=errors, flush=True)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
