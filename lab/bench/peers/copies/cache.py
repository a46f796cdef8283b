"""What the modules here share. Each has services, and `connect`, which makes a Cache of the address
of a service."""

from __future__ import annotations

import hashlib
import socket
import time
from pathlib import Path
from typing import Any, Protocol

from peers.peer import START_SECONDS, TEXT_PAGES, await_server, start_server, text

MIB = 1 << 20
PAGE_BYTES = 256 << 10  # K and V of 64 tokens, as of a small model
LIMIT = 2 << 30  # bytes of each cache: nothing is evicted

# Modules of this package, and the class of the service.
CACHES = {
    "kvlease": ("kvlease", "Service"),
    "kvcr": ("kvcr", "Service"),
    "lmcache-server": ("lmcache_server", "Service"),
    "l2-kvlease": ("lmcache_l2", "Kvlease"),
    "l2-fs": ("lmcache_l2", "Files"),
    "l2-redis": ("lmcache_l2", "Redis"),
    "l2-redis-aof": ("lmcache_l2", "RedisLog"),
}


class Service(Protocol):
    """The process that keeps the cache while workers end. It is made with a folder of its own, and
    not started."""

    address: str

    def start(self) -> None:
        """Returns when the service accepts workers. Also after kill()."""

    def kill(self) -> None:
        """SIGKILL. A service that starts itself again need not be started."""

    def stop(self) -> None:
        """Ends it for good."""


class Server:
    """A service of one process, which listens at a port of 127.0.0.1."""

    def __init__(self, command: list[str], port: int) -> None:
        self._command, self._port = command, port

    def start(self) -> None:
        """Returns once the port accepts connections."""
        self._process = start_server(self._command, -1)
        await_server(self._process, self._port)

    def kill(self) -> None:
        """The service has one process."""
        self._process.kill()
        self._process.wait()

    stop = kill


class Cache(Protocol):
    """A worker's client. Each method raises an exception if the cache fails."""

    @property
    def pages(self) -> Any:
        """The worker's own memory, an array of int16: TEXT_PAGES pages to be stored, then as many
        that are loaded into."""

    def store(self, number: int) -> None:
        """Copies the first pages into the cache as those of a text."""

    def find(self, number: int) -> int:
        """Finds the text's pages, holds them if the cache can, lets them go, and counts them."""

    def load(self, number: int) -> None:
        """Copies the text's pages into the last pages, as many as there are."""


def digests(number: int) -> list[bytes]:
    """A key of each page of a text, which depends on the pages before it."""
    tokens = text(number).tobytes()
    step = len(tokens) // TEXT_PAGES
    digest, keys = b"", []
    for i in range(TEXT_PAGES):
        digest = hashlib.sha256(digest + tokens[i * step : (i + 1) * step]).digest()
        keys.append(digest)
    return keys


def await_socket(path: Path) -> None:
    """Returns once a process accepts connections at this socket."""
    end = time.monotonic() + START_SECONDS
    while True:
        with socket.socket(socket.AF_UNIX) as one:
            if one.connect_ex(str(path)) == 0:
                return
        if time.monotonic() > end:
            raise TimeoutError(f"{path}: no process accepts connections")
        time.sleep(0.005)
