"""What the modules here share. Each has a class Peer, and imports the software that it drives as it
is imported itself."""

from __future__ import annotations

import socket
import subprocess
import time
from array import array
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

PAGE_TOKENS = 64
TEXT_PAGES = 128
TEXT_TOKENS = PAGE_TOKENS * TEXT_PAGES
START_SECONDS = 120.0  # of a peer's server. Not tuned.
_VOCABULARY = 128_000


def text(number: int) -> array[int]:
    """The tokens of a text, as the C part of the benchmark makes them: no two texts begin alike."""
    return array("q", ((number * 8191 + i * 127) % _VOCABULARY for i in range(TEXT_TOKENS)))


class Way(NamedTuple):
    """A way to a hit, which is a row of the benchmark."""

    prepare: Callable[[int], Any]
    """What its user has at hand of a text (its number): tokens, or keys. Not timed."""
    hit: Callable[[Any], int]
    """Finds that text's pages, holds them, and lets them go: how many they were. Timed."""


class Peer(Protocol):
    """A cache. It is made empty; what fails raises an exception, whose text is told."""

    def fill(self, n_texts: int) -> None:
        """Makes so many texts found, each of TEXT_PAGES pages. Called once."""

    def ways(self) -> dict[str, Way]:
        """By the names of their rows: "...-tokens" where keys are made from tokens by the hit."""

    def close(self) -> None:
        """Measures, and ends the processes that were started."""


def start_server(command: list[str], core: int) -> subprocess.Popen[bytes]:
    """A process that dies with this one, on a core (-1: on any)."""
    begin = ["setpriv", "--pdeathsig", "KILL"]
    if core >= 0:
        begin += ["taskset", "--cpu-list", str(core)]
    return subprocess.Popen(begin + command, stdin=subprocess.DEVNULL)


def free_port() -> int:
    """Of TCP on this host."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def await_server(server: subprocess.Popen[bytes], port: int) -> None:
    """Returns once it accepts connections."""
    end = time.monotonic() + START_SECONDS
    while True:
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        if server.poll() is not None:
            raise RuntimeError(f"{server.args!r} ended with {server.returncode}")
        if time.monotonic() > end:
            raise TimeoutError(f"{server.args!r} isn't ready after {START_SECONDS:.0f} s")
        time.sleep(0.05)
