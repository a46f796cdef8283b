"""Saves and loads the text of a context of llama.cpp."""

from __future__ import annotations

import os
import random
from array import array
from dataclasses import dataclass

import kvlease
from kvlease import _kvlease
from kvlease._engine import Stats
from kvlease._link import Link, Session

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
        self._verify = options.verify
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
        self._is_verified = False
        """The text is computed to be compared, though it was found."""
        client_name = (options.client_name or f"llama.cpp {name}")[:64]
        self._link = Link(options.socket, client_name, options.timeout, self._context)
        # A kvleased that can't be reached is logged now, not at the first prompt.
        self._link.call(None, lambda session: None)

    def load(self, tokens: array[int], n_have: int) -> int:
        """How many of the tokens the context has then; n_have: it has so many of them now."""
        self.stats.requests += 1
        self.stats.asked_tokens += len(tokens)
        self._is_verified = random.random() < self._verify
        if self._is_verified:
            found = self._link.call(0, lambda session: self._context.find(tokens))
            self._is_verified = found > n_have
            self.stats.verified += self._is_verified
            if self._is_verified:
                return n_have
        n = n_have

        def work(session: Session) -> None:
            nonlocal n
            try:
                n = self._context.load(SEQUENCE, tokens, n_have)
            except kvlease.Error as error:
                n = getattr(error, "n_tokens", n_have)
                raise

        self._link.call(None, work)
        self.stats.hit_tokens += max(0, n - n_have)
        return n

    def save(self, tokens: array[int]) -> None:
        """The context has computed these tokens, from the first one on."""
        if self._is_verified:
            self._is_verified = False
            n = self._link.call(0, lambda session: self._context.verify(SEQUENCE, tokens))
            self.stats.compared_pages += n // self.chunk
        self._link.call(0, lambda session: self._context.save(SEQUENCE, tokens))

    def close(self) -> None:
        """Before the context is freed."""
        self._link.close()
        self._context.close()
