"""What the adapters of inference engines have in common."""

from __future__ import annotations

import hashlib
import logging
import os
import select
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch

import kvlease

_logger = logging.getLogger("kvlease")

DTYPES = {
    torch.float32: kvlease.DType.F32,
    torch.float16: kvlease.DType.F16,
    torch.bfloat16: kvlease.DType.BF16,
}
"""Types of numbers in a cache that engines compute with as they are, without scales beside them."""

GIVE_WAY_SECONDS = (0.5, 2.0)
"""How long an engine in which nothing runs for want of pages keeps what its requests hold, before
it leaves that to others: somewhere between, so that two engines that wait for each other don't go
on doing so in step."""

OnLoss: TypeAlias = Literal["error", "continue"]
"""What happens once kvleased is gone for good: all requests fail, or those go on that need no page
more than the engine has."""

# A layout's format takes no more (kvlease.h).
_FORMAT_BYTES = 64


@dataclass
class Stats:
    """What an engine did since its cache was made."""

    requests: int = 0
    """Texts that were looked up: prompts, and of vLLM what preempted requests had reached."""
    asked_tokens: int = 0
    """Tokens of these texts."""
    hit_tokens: int = 0
    """Those whose keys and values were found."""
    published_pages: int = 0
    duplicate_pages: int = 0
    """Of these, pages that somebody else had published first."""
    waits: int = 0
    """How often there was no page: of vLLM for a request, of transformers for any."""
    gave_way: int = 0
    """How often it gave back what it held, so that another engine could go on."""


def salt(*parts: bytes) -> bytes:
    """A layout's salt, 32 bytes, that binds all parts, each by itself."""
    identity = hashlib.sha256()
    for part in parts:
        identity.update(len(part).to_bytes(8, "little") + part)
    return identity.digest()


def format_of(kind: bytes, tail: bytes) -> bytes:
    """A layout's format: kind and tail, where the middle of a long kind is a hash instead."""
    room = _FORMAT_BYTES - len(tail)
    if len(kind) > room:
        kind = kind[: room - 25] + b" " + hashlib.sha256(kind).hexdigest()[:24].encode()
    return kind + tail


def give_back(call: Callable[[list[int]], None], pages: Iterable[int]) -> None:
    """Frees or releases; where that can't be, the connection is over and takes them with it."""
    numbers = list(pages)
    if not numbers:
        return
    try:
        call(numbers)
    except kvlease.Error as error:
        _logger.debug("gave nothing back: %s", error)


class Loss:
    """What an engine does once kvleased is gone for good."""

    def __init__(self, on_loss: OnLoss) -> None:
        self._on_loss = on_loss
        self.happened = False
        """kvleased is gone, and the engine goes on with what it has."""

    def meet(self, error: kvlease.Error) -> None:
        """After an error that says so: raises RuntimeError, or lets the engine go on."""
        sentence = f"kvleased is gone, and with it the engine's cache: {error}"
        # One that came back and doesn't know this engine may give its pages to others.
        if self._on_loss == "error" or not isinstance(error, kvlease.Disconnected):
            raise RuntimeError(sentence) from error
        if not self.happened:
            _logger.error("%s; requests go on as far as the pages it holds go", sentence)
        self.happened = True


class Events(threading.Thread):
    """Hears what kvleased tells, and goes back to one that was restarted, while nobody calls it."""

    def __init__(self, connection: kvlease.Connection) -> None:
        super().__init__(name="kvlease-events", daemon=True)
        self._connection = connection
        self._end = os.eventfd(0)
        self.start()

    def run(self) -> None:
        """Until stop(), or until the connection is over."""
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        poll.register(self._connection.fileno(), select.POLLIN)
        try:
            while all(fd != self._end for fd, _ in poll.poll()):
                self._connection.dispatch()
        except kvlease.Error as error:
            _logger.debug("hears nothing more: %s", error)

    def stop(self) -> None:
        """Returns when the thread has ended."""
        os.eventfd_write(self._end, 1)
        self.join()
        os.close(self._end)
