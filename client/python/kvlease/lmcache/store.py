"""Finds, loads, stores and deletes objects."""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import kvlease
from kvlease._engine import close_all
from kvlease._link import Link, Session
from kvlease.lmcache.objects import (
    MOST_PAGES,
    NOTE_BYTES,
    Found,
    Name,
    Pager,
    digest,
    last_key,
)
from kvlease.lmcache.options import Options
from kvlease.lmcache.pins import Pins

_logger = logging.getLogger("kvlease")

# kvleased notices released pages some 10 ms later (kvlease.h, kvl_leasable_pages()).
_LEASE_PAUSES = (0.01, 0.03)


class _Object(NamedTuple):
    """An object to be stored."""

    place: int
    """Its number among the objects of the call."""
    name: Name
    buffer: memoryview
    note: bytes
    n_pages: int


class Store:
    """Serves any thread. No method but the constructor raises an error for what kvleased or other
    clients do."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._link = Link(options.socket, options.client_name, options.timeout)
        self._pager = Pager(options.page_bytes)
        self._pins = Pins(options.pin_seconds)
        # A kvleased that can't be reached is logged now, not at the first request.
        self._link.call(None, lambda session: None)

    def exists(self, names: Sequence[Name], pin: bool = True) -> list[bool]:
        """Says of each object whether it is there. pin: objects that are there are kept from
        eviction until they are loaded, for pin_seconds at most."""
        done = [False] * len(names)

        def work(session: Session) -> None:
            for i, name in enumerate(names):
                pages = self._namespace(session, name).find(last_key(name))
                done[i] = bool(pages)
                if pages and pin and self._options.pin_seconds:
                    self._pins.keep(last_key(name), pages)
                else:
                    pages.close()

        self._link.call(None, work)
        return done

    def load(self, names: Sequence[Name], buffers: Sequence[Any]) -> list[bool]:
        """Fills buffers (bytes-like, of the objects' sizes), and says of each whether it is filled.
        Other buffers may have changed in part."""
        done = [False] * len(names)

        def work(session: Session) -> None:
            for i, (name, buffer) in enumerate(zip(names, buffers, strict=False)):
                done[i] = self._load(self._namespace(session, name), name, memoryview(buffer))

        self._link.call(None, work)
        self.unpin(names)
        return done

    def store(
        self, names: Sequence[Name], buffers: Sequence[Any], notes: Sequence[bytes] = ()
    ) -> list[bool]:
        """Says of each object whether it is there afterwards. notes: of each object, at most
        NOTE_BYTES; none: all are empty."""
        done = [False] * len(names)

        def work(session: Session) -> None:
            new: dict[kvlease.Namespace, list[_Object]] = {}
            for i, (name, buffer) in enumerate(zip(names, buffers, strict=False)):
                view, note = memoryview(buffer), notes[i] if notes else b""
                each = _Object(i, name, view, note, self._pager.count(view.nbytes))
                namespace = self._namespace(session, name)
                done[i] = self._is_stored(namespace, each)
                if not done[i] and self._can_store(each):
                    new.setdefault(namespace, []).append(each)
            for namespace, objects in new.items():
                self._store(namespace, objects, done)

        self._link.call(None, work)
        return done

    def delete(self, names: Sequence[Name]) -> list[bool]:
        """Says of each object whether it is gone, also if it was never there."""
        done = [False] * len(names)

        def work(session: Session) -> None:
            for i, name in enumerate(names):
                namespace = self._namespace(session, name)
                self._delete(namespace, name, self._describe(namespace, name))
                done[i] = True

        self._link.call(None, work)
        self.unpin(names)
        return done

    def describe(self, name: Name) -> Found | None:
        """Reads the object's size and note. None: the object isn't there."""
        return self._link.call(
            None, lambda session: self._describe(self._namespace(session, name), name)
        )

    def unpin(self, names: Iterable[Name]) -> None:
        """Lets the objects be evicted."""
        self._pins.drop(map(last_key, names))

    def close(self) -> None:
        """Drops all pins and ends the connection."""
        self._pins.close()
        self._link.close()

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
            salt=digest(self._options.version),
            format=b"lmcache 1",
        )
        return session.namespace(layout, self._options.device)

    def _describe(self, namespace: kvlease.Namespace, name: Name) -> Found | None:
        with namespace.lookup(last_key(name)) as pages:
            return self._pager.describe(pages) if pages else None

    def _load(self, namespace: kvlease.Namespace, name: Name, buffer: memoryview) -> bool:
        keys = self._pager.keys(name, buffer.nbytes)
        with namespace.lookup(keys) as pages:
            is_whole = len(pages) * kvlease.KEY_BYTES == len(keys)
            return is_whole and self._pager.read(pages, buffer)

    def _is_stored(self, namespace: kvlease.Namespace, new: _Object) -> bool:
        """Whether an object of this name and size is there. One of another size is deleted."""
        found = self._describe(namespace, new.name)
        if found is not None and found.n_bytes == new.buffer.nbytes:
            return True
        self._delete(namespace, new.name, found)
        return False

    def _can_store(self, new: _Object) -> bool:
        if new.n_pages <= MOST_PAGES and len(new.note) <= NOTE_BYTES:
            return True
        _logger.warning(
            "an object of %d bytes isn't stored: an object has at most %d pages, of %d bytes "
            "(choose a larger page_bytes), and at most %d bytes that describe it",
            new.buffer.nbytes,
            MOST_PAGES,
            self._options.page_bytes,
            NOTE_BYTES,
        )
        return False

    def _store(self, namespace: kvlease.Namespace, new: list[_Object], done: list[bool]) -> None:
        """Stores all objects in one lease, if there is room for it, and waits once for all
        publishes."""
        pages = _lease(namespace, new)
        if pages is None:
            for half in (new[: len(new) // 2], new[len(new) // 2 :]):
                self._store(namespace, half, done)
            return
        answers: queue.SimpleQueue[tuple[int, bool, Exception | None]] = queue.SimpleQueue()
        with pages:
            for each in new:
                own = pages.take(each.n_pages)
                self._pager.write(own, each.buffer, each.note)
                keys = self._pager.keys(each.name, each.buffer.nbytes)
                callback = partial(_on_published, answers, each, own)
                namespace.start_publish(own, keys, callback=callback)
        for _ in new:
            try:
                place, is_done, error = answers.get(timeout=self._options.timeout)
            except queue.Empty:
                raise kvlease.Timeout("kvleased publishes nothing") from None
            if error is not None:
                raise error
            done[place] = is_done

    def _delete(self, namespace: kvlease.Namespace, name: Name, found: Found | None) -> None:
        if found is not None:
            # Pages behind the first go with it. The last one may be of an object of another size.
            first = self._pager.keys(name, max(0, found.n_bytes))[: kvlease.KEY_BYTES]
            namespace.invalidate(first)
            namespace.invalidate(last_key(name))


def _on_published(
    answers: queue.SimpleQueue[tuple[int, bool, Exception | None]],
    new: _Object,
    own: kvlease.Pages,
    published: kvlease.Pages | None,
    error: Exception | None,
) -> None:
    """Ends a publish, in the thread of Events."""
    is_done = published is not None and len(published) == new.n_pages
    close_all([own] if published is None else [published, own])
    answers.put((new.place, is_done, error))


def _lease(namespace: kvlease.Namespace, new: list[_Object]) -> kvlease.Pages | None:
    """Leases pages for all objects. None: there are too few, and half of the objects may find room.
    Raises Full or Quota for one object, after a moment."""
    n_pages = sum(each.n_pages for each in new)
    if n_pages > kvlease.MAX_LEASE_PAGES:
        return None
    for pause in (*_LEASE_PAUSES, None):
        try:
            return namespace.lease(n_pages, max_wait=0)
        except (kvlease.Full, kvlease.Quota):
            if len(new) > 1:
                return None
            if pause is None:
                raise
            time.sleep(pause)
    return None


def _short(model: str) -> str:
    """The model as a layout takes it: printable text of 1 to 128 bytes."""
    is_fit = model.isprintable() and 0 < len(model.encode("utf-8", "replace")) <= 128
    return model if is_fit else f"lmcache {digest(model).hex()}"
