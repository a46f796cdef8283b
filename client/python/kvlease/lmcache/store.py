"""Objects in pages of kvlease.

An object is bytes of any size under a name. Its bytes are in a chain of pages, whose last page ends
with a trailer. The key of that page is a hash of the name alone, so that a name is found whatever
the size of its object. Keys of the other pages depend on the size, too. kvleased evicts a page only
after all pages behind it: an object is there as long as its last page is.
"""

from __future__ import annotations

import hashlib
import logging
import os
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import takewhile
from typing import Any, NamedTuple, Self

import kvlease
from kvlease.lmcache.link import Link, Session

_logger = logging.getLogger("kvlease")

# Magic, bytes of the object, bytes of the note, and the note.
_TRAILER = struct.Struct("<8sQI492s")
_MAGIC = b"kvl-lmc1"
NOTE_BYTES = 492
"""Most bytes of a note."""

# Objects whose last page is kept pinned at a time. Not tuned.
_MOST_PINS = 16384
# kvleased notices released pages some 10 ms later (kvlease.h, kvl_leasable_pages()).
_LEASE_PAUSES = (0.01, 0.03)


@dataclass(frozen=True)
class Options:
    """What users may choose: adapter_params of LMCache."""

    socket: str | os.PathLike[str] | None = None
    """None: $KVLEASE_SOCKET, else /run/kvlease/sock."""
    client_name: str = "lmcache"
    """Shown by kvleasectl, at most 64 bytes."""
    device: str | None = None
    """Of kvleased, by its name there or "host"; None: the default one."""
    version: str = ""
    """Of the weights, at most 128 bytes: objects of another one aren't found. LMCache's keys have
    the model's name alone."""
    page_bytes: int = 278528
    """Bytes of a page, a multiple of 64 from 4096 to 1 GiB. All servers that share name the same.
    The default, 272 KiB, has room for objects of n * 256 KiB and a trailer in n pages, n <= 15."""
    pin_seconds: float = 30.0
    """How long an object that was found is kept from eviction, 0 to 600, until it is loaded."""
    timeout: float = 2.0
    """Seconds that a call may wait for kvleased. After a longer wait it isn't asked for 5 s."""

    @classmethod
    def of(cls, given: dict[str, Any]) -> Self:
        """TypeError or ValueError: the sentence names the parameter, its limit and the remedy."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise TypeError(f"there is no parameter {name}: choose of {', '.join(known)}")
        options = cls(**given)
        options._check()
        return options

    def _check(self) -> None:
        for name, low, high in (
            ("page_bytes", 4096, 1 << 30),
            ("pin_seconds", 0, 600),
            ("timeout", 0.001, 600),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{name} is {value!r}: name a number from {low} to {high}")
            if not low <= value <= high:
                raise ValueError(f"{name} is {value!r}: choose {low} to {high}")
        if self.page_bytes % 64:
            raise ValueError(f"page_bytes is {self.page_bytes!r}: choose a multiple of 64")
        for name, most in (("client_name", 64), ("version", 128)):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise TypeError(f"{name} is {value!r}: name a text")
            if len(value.encode()) > most:
                raise ValueError(f"{name} has {len(value.encode())} bytes: choose at most {most}")


class Name(NamedTuple):
    """Names an object."""

    model: str
    rank: int
    """Of the worker that computed it, among world workers."""
    world: int
    text: str
    """Names it among those of model, rank and world."""


class Found(NamedTuple):
    """An object as its trailer has it, in which its writer may have put anything."""

    n_bytes: int
    """-1: the page has no trailer, and no object is there."""
    note: bytes


class Store:
    """Finds, loads, stores and deletes objects, from any thread. No method but the constructor
    raises an error for what kvleased or other clients do."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._link = Link(self._connect)
        self._lock = threading.Lock()
        # By key: until when the pages are kept. The earliest end is first.
        self._pins: OrderedDict[bytes, tuple[float, kvlease.Pages]] = OrderedDict()
        self._timer: threading.Timer | None = None
        # Whoever can't be reached is told of now, not with the first request.
        self._link.call(lambda session: None)

    def exists(self, names: Sequence[Name], pin: bool = True) -> list[bool]:
        """Which are there. pin: they are kept from eviction until they are loaded, for pin_seconds
        at most."""
        done = [False] * len(names)

        def work(session: Session) -> None:
            for i, name in enumerate(names):
                pages = self._namespace(session, name).find(_last_key(name))
                done[i] = bool(pages)
                if pages and pin and self._options.pin_seconds:
                    self._pin(name, pages)
                else:
                    pages.close()

        self._link.call(work)
        return done

    def load(self, names: Sequence[Name], buffers: Sequence[Any]) -> list[bool]:
        """Fills buffers (bytes-like, of the objects' sizes), and says which. The others may have
        changed in part."""
        done = [False] * len(names)

        def work(session: Session) -> None:
            for i, (name, buffer) in enumerate(zip(names, buffers, strict=False)):
                done[i] = self._load(session, name, memoryview(buffer))

        self._link.call(work)
        self.unpin(names)
        return done

    def store(
        self, names: Sequence[Name], buffers: Sequence[Any], notes: Sequence[bytes] = ()
    ) -> list[bool]:
        """Which are there then. notes: of each object, at most NOTE_BYTES; none: all are empty."""
        done = [False] * len(names)

        def work(session: Session) -> None:
            for i, (name, buffer) in enumerate(zip(names, buffers, strict=False)):
                note = notes[i] if notes else b""
                done[i] = self._store(session, name, memoryview(buffer), note)

        self._link.call(work)
        return done

    def delete(self, names: Sequence[Name]) -> list[bool]:
        """Which aren't there any more, also if they never were."""
        done = [False] * len(names)

        def work(session: Session) -> None:
            for i, name in enumerate(names):
                namespace = self._namespace(session, name)
                self._delete(namespace, name, self._describe(namespace, name))
                done[i] = True

        self._link.call(work)
        self.unpin(names)
        return done

    def describe(self, name: Name) -> Found | None:
        """None: it isn't there."""
        found: list[Found | None] = [None]

        def work(session: Session) -> None:
            found[0] = self._describe(self._namespace(session, name), name)

        self._link.call(work)
        return found[0]

    def unpin(self, names: Iterable[Name]) -> None:
        """They may be evicted."""
        self._unpin([_last_key(name) for name in names])

    def close(self) -> None:
        """Gives back what it holds."""
        with self._lock:
            keys = list(self._pins)
        self._unpin(keys)
        self._link.close()

    def _connect(self) -> kvlease.Connection:
        return kvlease.connect(
            self._options.socket,
            client_name=self._options.client_name,
            timeout=self._options.timeout,
        )

    def _namespace(self, session: Session, name: Name) -> kvlease.Namespace:
        layout = kvlease.Layout(
            model=_short(name.model),
            dtype=kvlease.DType.OTHER,
            n_layers=1,
            n_kv_heads=1,
            head_size=1,
            page_tokens=1,
            plane_page_bytes=self._options.page_bytes,
            tp_rank=name.rank,
            tp_size=name.world,
            salt=_digest(self._options.version),
            format=b"lmcache 1",
        )
        return session.namespace(layout, self._options.device)

    def _n_pages(self, n_bytes: int) -> int:
        return -(-(n_bytes + _TRAILER.size) // self._options.page_bytes)

    def _keys(self, name: Name, n_bytes: int) -> bytes:
        base = _digest(f"{n_bytes} {name.text}")[:28]
        n_before = self._n_pages(n_bytes) - 1
        before = b"".join(base + i.to_bytes(4, "little") for i in range(n_before))
        return before + _last_key(name)

    def _read_trailer(self, pages: kvlease.Pages) -> Found:
        """Of the last of the pages."""
        at = self._options.page_bytes - _TRAILER.size
        read = pages.read(len(pages) - 1, _TRAILER.size, offset=at)
        magic, n_bytes, n_note, note = _TRAILER.unpack(read)
        if magic != _MAGIC or self._n_pages(n_bytes) > kvlease.MAX_LEASE_PAGES:
            return Found(-1, b"")
        return Found(n_bytes, note[:n_note])

    def _describe(self, namespace: kvlease.Namespace, name: Name) -> Found | None:
        with namespace.lookup(_last_key(name)) as pages:
            return self._read_trailer(pages) if pages else None

    def _load(self, session: Session, name: Name, buffer: memoryview) -> bool:
        keys = self._keys(name, buffer.nbytes)
        with self._namespace(session, name).lookup(keys) as pages:
            if len(pages) * kvlease.KEY_BYTES < len(keys):
                return False
            if self._read_trailer(pages).n_bytes != buffer.nbytes:
                return False
            n_full, rest = divmod(buffer.nbytes, self._options.page_bytes)
            full = buffer.nbytes - rest
            if n_full:
                pages.read_many(range(n_full), into=buffer[:full])
            if rest:
                pages.read_many([n_full], rest, into=buffer[full:])
            return True

    def _store(self, session: Session, name: Name, buffer: memoryview, note: bytes) -> bool:
        namespace = self._namespace(session, name)
        n_pages = self._n_pages(buffer.nbytes)
        if n_pages > kvlease.MAX_LEASE_PAGES or len(note) > NOTE_BYTES:
            _logger.warning(
                "an object of %d bytes isn't stored: page_bytes is %d, and an object has at most "
                "%d pages; choose a larger page_bytes",
                buffer.nbytes,
                self._options.page_bytes,
                kvlease.MAX_LEASE_PAGES,
            )
            return False
        found = self._describe(namespace, name)
        if found is not None and found.n_bytes == buffer.nbytes:
            return True
        self._delete(namespace, name, found)
        with _lease(namespace, n_pages) as pages:
            self._write(pages, buffer, note)
            with namespace.publish(pages, self._keys(name, buffer.nbytes)) as published:
                return len(published) == n_pages

    def _write(self, pages: kvlease.Pages, buffer: memoryview, note: bytes) -> None:
        n_full, rest = divmod(buffer.nbytes, self._options.page_bytes)
        full = buffer.nbytes - rest
        if n_full:
            pages.write_many(buffer[:full], range(n_full))
        if rest:
            pages.write_many(buffer[full:], [n_full], n_bytes=rest)
        trailer = _TRAILER.pack(_MAGIC, buffer.nbytes, len(note), note)
        pages.write(len(pages) - 1, trailer, offset=self._options.page_bytes - _TRAILER.size)

    def _delete(self, namespace: kvlease.Namespace, name: Name, found: Found | None) -> None:
        if found is not None:
            # What is behind the first page goes with it, unless it is of another size.
            namespace.invalidate(self._keys(name, max(0, found.n_bytes))[: kvlease.KEY_BYTES])
            namespace.invalidate(_last_key(name))

    def _pin(self, name: Name, pages: kvlease.Pages) -> None:
        key = _last_key(name)
        with self._lock:
            dropped = [self._pins.pop(key)] if key in self._pins else []
            self._pins[key] = (time.monotonic() + self._options.pin_seconds, pages)
            if len(self._pins) > _MOST_PINS:
                dropped.append(self._pins.popitem(last=False)[1])
            self._start_timer()
        _give_back(dropped)

    def _unpin(self, keys: Iterable[bytes]) -> None:
        with self._lock:
            dropped = [self._pins.pop(key) for key in keys if key in self._pins]
            if not self._pins and self._timer is not None:
                self._timer.cancel()
                self._timer = None
        _give_back(dropped)

    def _start_timer(self) -> None:
        """Of the pin that ends first."""
        if self._timer is None and self._pins:
            end, _ = next(iter(self._pins.values()))
            self._timer = threading.Timer(max(0, end - time.monotonic()), self._expire)
            self._timer.daemon = True
            self._timer.start()

    def _expire(self) -> None:
        """In the timer's thread."""
        now = time.monotonic()
        with self._lock:
            late = list(takewhile(lambda key: self._pins[key][0] <= now, self._pins))
            dropped = [self._pins.pop(key) for key in late]
            self._timer = None
            self._start_timer()
        _give_back(dropped)


def _give_back(pins: Iterable[tuple[float, kvlease.Pages]]) -> None:
    """Where that can't be, the connection is over and took the pages with it."""
    for _, pages in pins:
        try:
            pages.close_soon()
        except kvlease.Error as error:
            _logger.debug("gave nothing back: %s", error)


def _digest(text: str) -> bytes:
    """32 bytes, also of texts that are no Unicode."""
    return hashlib.sha256(b"kvlease lmcache " + text.encode("utf-8", "surrogatepass")).digest()


def _last_key(name: Name) -> bytes:
    return _digest(name.text)


def _short(model: str) -> str:
    """The model as a layout takes it: printable text of 1 to 128 bytes."""
    is_fit = model.isprintable() and 0 < len(model.encode("utf-8", "replace")) <= 128
    return model if is_fit else f"lmcache {_digest(model).hex()}"


def _lease(namespace: kvlease.Namespace, n_pages: int) -> kvlease.Pages:
    """At once, or after a moment."""
    for pause in _LEASE_PAUSES:
        try:
            return namespace.lease(n_pages, max_wait=0)
        except (kvlease.Full, kvlease.Quota):
            time.sleep(pause)
    return namespace.lease(n_pages, max_wait=0)
