"""The connection to kvleased, which may be lost and made again while the engine goes on."""

from __future__ import annotations

import errno
import logging
import os
import random
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import kvlease
from kvlease import _kvlease
from kvlease._engine import Events, Stats

_logger = logging.getLogger("kvlease")

# Between two tries to reach kvleased, and after it was slow. Not tuned.
_PAUSE_SECONDS = 5.0
# A context of llama-cpp-python has one text.
SEQUENCE = 0
SCRATCH = 1


@dataclass(frozen=True)
class Options:
    """What users may choose."""

    socket: str | os.PathLike[str] | None = None
    """None: $KVLEASE_SOCKET, else /run/kvlease/sock."""
    client_name: str | None = None
    """Shown by kvleasectl; None: the model's file."""
    weights: str | None = None
    """Names the weights, 1 to 256 bytes; None: all bytes of the model's files are read."""
    salt: bytes = b""
    """Keeps equal prompts of others apart, at most 64 bytes."""
    chunk_tokens: int = 256
    """Tokens of a page, 16 to 1024. Prompts are found in multiples of it."""
    timeout: float = 2.0
    """Seconds that a call may wait for kvleased. After a longer wait it isn't asked for 5 s."""
    verify: float = 0.0
    """Share of the prompts that are found, 0 to 1, which are computed all the same and compared."""


class Store:
    """Saves and loads the text of one context. No method but the constructor raises."""

    def __init__(
        self, options: Options, context: int, library: str, name: str, weights: str, swa_full: bool
    ) -> None:
        """context: the address of a llama_context. kvlease.Invalid: it can't be saved."""
        if not 0 <= options.verify <= 1:
            raise ValueError(f"verify is a share of prompts, 0 to 1, not {options.verify!r}")
        self.stats = Stats()
        self._options = options
        self._name = name
        self._connection: kvlease.Connection | None = None
        self._events: Events | None = None
        self._context = _kvlease.llama_new(
            context,
            library,
            weights,
            salt=options.salt,
            chunk_tokens=options.chunk_tokens,
            scratch=SCRATCH,
            swa_full=swa_full,
        )
        info = self._context.info
        self.chunk: int = info["chunk_tokens"]
        self.has_state: bool = info["has_state"]
        self._idle_until = 0.0
        self._has_failed = False
        self._is_verified = False
        """The text is computed to be compared, though it was found."""
        self._call(None, lambda: None)

    def load(self, tokens: array[int], n_have: int) -> int:
        """How many of the tokens the context has then; n_have: it has so many of them now."""
        self.stats.requests += 1
        self.stats.asked_tokens += len(tokens)
        self._is_verified = random.random() < self._options.verify
        if self._is_verified:
            found: int = self._call(0, lambda: self._context.find(tokens))
            self._is_verified = found > n_have
            self.stats.verified += self._is_verified
            if self._is_verified:
                return n_have
        n: int = self._call(n_have, lambda: self._context.load(SEQUENCE, tokens, n_have))
        self.stats.hit_tokens += max(0, n - n_have)
        return n

    def save(self, tokens: array[int]) -> None:
        """The context has computed these tokens, from the first one on."""
        if self._is_verified:
            self._is_verified = False
            n = self._call(0, lambda: self._context.verify(SEQUENCE, tokens))
            self.stats.compared_pages += n // self.chunk
        # After the last connection was lost: only load() makes a new one, before a prompt.
        if self._connection is not None:
            self._call(0, lambda: self._context.save(SEQUENCE, tokens))

    def close(self) -> None:
        """Before the context is freed."""
        self._has_failed = True
        self._disconnect()
        self._context.close()

    def _call(self, otherwise: Any, call: Callable[[], Any]) -> Any:
        """What the call returns, or otherwise."""
        if self._has_failed or time.monotonic() < self._idle_until:
            return otherwise
        try:
            if self._connection is None:
                self._connect()
            return call()
        except kvlease.Error as error:
            self._meet(error)
            return getattr(error, "n_tokens", otherwise)
        except MemoryError as error:
            self._idle_until = time.monotonic() + _PAUSE_SECONDS
            _logger.warning("goes on without kvlease, as memory is short: %r", error)
            return otherwise

    def _connect(self) -> None:
        connection = kvlease.connect(
            self._options.socket,
            client_name=(self._options.client_name or f"llama.cpp {self._name}")[:64],
            timeout=self._options.timeout,
        )
        try:
            self._context.attach(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._events = Events(connection)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        events, self._events = self._events, None
        if events is not None:
            events.stop()
        self._context.detach()
        if connection is not None:
            connection.close()

    def _meet(self, error: kvlease.Error) -> None:
        """After a failure: what isn't asked any more, and for how long."""
        if error.code == -errno.EBADMSG:
            self._has_failed = True
            _logger.error("saves and loads nothing any more: %s", error)
        elif isinstance(error, kvlease.Full | kvlease.Quota | kvlease.NoParent | kvlease.Draining):
            _logger.info("saved less: %s", error)
        elif isinstance(error, kvlease.Timeout | kvlease.Busy) or error.code == -errno.ENOBUFS:
            self._idle_until = time.monotonic() + _PAUSE_SECONDS
            _logger.warning("goes on without kvlease for %.0f s: %s", _PAUSE_SECONDS, error)
        else:
            self._idle_until = time.monotonic() + _PAUSE_SECONDS
            _logger.warning("goes on without kvlease, tries again later: %s", error)
            self._disconnect()
