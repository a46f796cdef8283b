"""What the adapters of inference engines have in common."""

from __future__ import annotations

import hashlib
import logging
import os
import select
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import kvlease

_logger = logging.getLogger("kvlease")

GIVE_WAY_SECONDS = (0.5, 2.0)
"""How long an engine in which nothing runs for want of pages keeps what its requests hold, before
it leaves that to others: somewhere between, so that two engines that wait for each other don't go
on doing so in step."""

OnLoss: TypeAlias = Literal["error", "continue"]
"""What happens once kvleased is gone for good: all requests fail, or those go on that need no page
more than the engine has."""

# How often an engine in which all wait says so, and how often it looks whether that is for ever.
_TELL_SECONDS = 60
LOOK_SECONDS = 1.0
# Seconds that a text may wait for other hosts (kvl_import_start()).
_LONGEST_WAIT = 600
# Texts of a connection that kvleased brings from other hosts at a time (kvl_import_start()).
_MAX_COMING = 16
# Of computing, that kvleased is told of at a time. Not tuned.
_PREFILL_SECONDS = 0.05
# A layout's format takes no more (kvlease.h).
_FORMAT_BYTES = 64
# Bytes that a plane of a page has at least, and a multiple of which it has (kvlease.h).
_LEAST_BYTES = 4096
_ALIGNMENT = 64
MOST_TOKENS = 1024
"""Tokens of a page that a layout may name (kvlease.h)."""


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
    """Of these, pages that another client had published first."""
    waits: int = 0
    """How often there was no page: of vLLM for a request, of transformers for any."""
    verified: int = 0
    """Texts that were found, and computed all the same."""
    compared_pages: int = 0
    """Pages that were compared with those that another engine had published."""
    gave_way: int = 0
    """How often it gave back what it held, so that another engine could go on."""


def format_of(kind: bytes, tail: bytes) -> bytes:
    """A layout's format: kind and tail, where the middle of a long kind is a hash instead."""
    room = _FORMAT_BYTES - len(tail)
    if len(kind) > room:
        kind = kind[: room - 25] + b" " + hashlib.sha256(kind).hexdigest()[:24].encode()
    return kind + tail


def padded(n_bytes: int) -> int:
    """Bytes of the smallest plane of a page that has room for n_bytes."""
    return max(_LEAST_BYTES, -(-n_bytes // _ALIGNMENT) * _ALIGNMENT)


def last_part(path: object) -> str:
    """The name for people of a model that has this path, or this name on a hub."""
    return str(path).rstrip("/").rpartition("/")[2]


def close_all(given: Iterable[kvlease.Pages]) -> None:
    """Closes pages without waiting; where that can't be, the connection is over and takes the pages
    with it."""
    for pages in given:
        try:
            pages.close_soon()
        except kvlease.Error as error:
            _logger.debug("gave nothing back: %s", error)


def give_back(call: Callable[[list[int]], None], pages: Iterable[int]) -> None:
    """Frees or releases; where that can't be, the connection is over and takes them with it."""
    numbers = list(pages)
    if not numbers:
        return
    try:
        call(numbers)
    except kvlease.Error as error:
        _logger.debug("gave nothing back: %s", error)


def ending(why: str, last: Iterable[int]) -> int:
    """A number for the way in which a generation ended: why, and with which last tokens. A call of
    a tool ends with other tokens than an answer does, so kvleased's eviction policy learns which of
    them goes on soon."""
    return zlib.crc32(repr((why, *last)).encode()) or 1


def check_settings(on_loss: str, seconds: float) -> None:
    """ValueError where on_loss, or the seconds of remote_timeout, can't be."""
    if on_loss not in ("error", "continue"):
        raise ValueError(f"on_loss is 'error' or 'continue', not {on_loss!r}")
    if not 0 <= seconds <= _LONGEST_WAIT:
        raise ValueError(f"remote_timeout is 0 to {_LONGEST_WAIT} seconds, not {seconds!r}")


def why_never(namespace: kvlease.Namespace, n_tokens: int, n_pages: int) -> str | None:
    """The sentence of an error where a text of n_tokens can't ever have its n_pages, those that the
    engine keeps for itself included, whoever gives way; None: it may have to wait."""
    try:
        if n_pages > namespace.leasable_pages():
            namespace.check_room(n_pages)
    except (kvlease.Full, kvlease.Quota) as error:
        return (
            f"a text of {n_tokens} tokens can't be held: {error}; or ask for a shorter text "
            "(prompt and max_tokens)"
        )
    except kvlease.Error as error:
        _logger.debug("can't say whether a text fits: %s", error)
    return None


class Waiting:
    """Says that all requests wait for pages, and why, once a minute at most."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._told = -float("inf")

    def tell(self, why: str) -> None:
        """why: the sentence of kvleased."""
        now = time.monotonic()
        self._since = self._since or now
        if now < self._told + _TELL_SECONDS:
            return
        self._told = now
        _logger.warning(
            "all requests wait for pages, for %.0f s now: %s (kvleasectl clients shows who holds "
            "pages)",
            now - self._since,
            why,
        )

    def end(self) -> None:
        """Something goes on."""
        if self._since is not None:
            _logger.info("goes on after %.1f s", time.monotonic() - self._since)
        self._since = None


def seconds_for_hosts(namespace: kvlease.Namespace, seconds: float, are_chains: bool) -> float:
    """How long a text may wait for other hosts in all, of the seconds that the user allows.

    are_chains: pages of all layers follow each other. Pages of windows and recurrent states are
    found one by one, and kvleased loads no run of so few tokens: then 0, and the log says so where
    the tenant has other hosts.
    """
    if are_chains or seconds <= 0:
        return seconds
    try:
        # The answer doesn't matter: there is no such page.
        if namespace.start_import(lambda *_: None, os.urandom(kvlease.KEY_BYTES), timeout=seconds):
            _logger.warning(
                "pages of other hosts aren't loaded: not all layers of the model attend to the "
                "whole text, and pages of windows or recurrent states are found one by one"
            )
    except kvlease.Error as error:
        _logger.debug("can't say whether there are other hosts: %s", error)
    return 0


class Hosts:
    """Other hosts, whose pages kvleased brings while the engine does other things."""

    def __init__(self, namespace: kvlease.Namespace, seconds: float) -> None:
        """seconds: how long a text may wait for them in all; 0: not at all."""
        self._namespace = namespace
        self._seconds = seconds
        self._under_way: set[Coming] = set()

    def text(self) -> Coming:
        """A text that hasn't been looked up yet."""
        return Coming(self._namespace, self._seconds, self._under_way)


class Coming:
    """What other hosts have of one text.

    Where a lookup ends too early, ask() says whether it is to be repeated once nothing is under way
    any more. All but what kvleased answers is the scheduler's thread's.
    """

    def __init__(
        self, namespace: kvlease.Namespace, seconds: float, under_way: set[Coming]
    ) -> None:
        """Made by Hosts.text()."""
        self._namespace = namespace
        self._seconds = seconds
        self._until: float | None = None
        self._under_way = under_way
        self.is_over = seconds <= 0
        """Nothing more will come."""

    @property
    def is_under_way(self) -> bool:
        """kvleased hasn't answered yet."""
        return self in self._under_way

    def ask(self, keys: Sequence[bytes], n_found: int) -> bool:
        """The first n_found of the text's keys are cached, and the next one isn't. False: nothing
        will come, for want of time or of hosts that have it."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + self._seconds
        self.is_over = self.is_over or now >= self._until
        if self.is_over or len(self._under_way) >= _MAX_COMING:
            return not self.is_over
        wanted = b"".join(keys[n_found : n_found + kvlease.MAX_IMPORT_KEYS])
        parent = keys[n_found - 1] if n_found else None
        # It may be answered before the call returns.
        self._under_way.add(self)
        try:
            takes_part = self._namespace.start_import(
                self._on_answer, wanted, parent=parent, timeout=self._until - now
            )
        except kvlease.Error as error:
            self._on_answer(None, error)
        else:
            if not takes_part:
                self._on_answer(False, None)
        return not self.is_over

    def _on_answer(self, has_come: bool | None, error: Exception | None) -> None:
        """In the thread of Events, but for what is known at once."""
        if error is not None:
            _logger.debug("other hosts brought nothing: %s", error)
        # Where kvleased is busy it is asked again.
        self.is_over = not has_come and not isinstance(error, kvlease.Busy)
        self._under_way.discard(self)


class Prefill:
    """How fast the engine computes prompts, which kvleased compares with loading them.

    Steps end in the order in which they began, and the next one may begin before. A step takes as
    long as the engine was busy with it and not with the one before.
    """

    def __init__(self, namespace: kvlease.Namespace, page_tokens: int) -> None:
        self._namespace = namespace
        self._page_tokens = page_tokens
        self._steps: deque[tuple[float, int]] = deque()
        self._ended = 0.0
        self._n_tokens = 0
        self._seconds = 0.0

    def begin(self, n_tokens: Iterable[int]) -> None:
        """A step is scheduled that computes so many tokens of each of its requests. Those with less
        than a page of them decode."""
        n_prefilled = sum(n for n in n_tokens if n >= self._page_tokens)
        self._steps.append((time.monotonic(), n_prefilled))

    def end(self) -> None:
        """The oldest step is over; nothing happens where there is none."""
        if not self._steps:
            return
        begun, n_tokens = self._steps.popleft()
        now = time.monotonic()
        if n_tokens:
            self._n_tokens += n_tokens
            self._seconds += now - max(begun, self._ended)
        self._ended = now
        if self._seconds >= _PREFILL_SECONDS:
            self._tell()

    def _tell(self) -> None:
        try:
            self._namespace.note_prefill(self._n_tokens, self._seconds)
        except kvlease.Error as error:
            _logger.debug("said nothing of prefill: %s", error)
        self._n_tokens, self._seconds = 0, 0.0


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
        try:
            poll.register(self._connection.fileno(), select.POLLIN)
            while all(fd != self._end for fd, _ in poll.poll()):
                self._connection.dispatch()
        except kvlease.Error as error:
            _logger.debug("hears nothing more: %s", error)

    def stop(self) -> None:
        """Returns when the thread has ended."""
        os.eventfd_write(self._end, 1)
        self.join()
        os.close(self._end)
