"""Pages that stay pinned for a while."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from itertools import takewhile

import kvlease
from kvlease._engine import close_all

# Keys whose page is kept pinned at a time. Not tuned.
_MOST_PINS = 16384


class Pins:
    """Pinned pages by key. A timer drops pins after some seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        # Until when the pages are kept. The earliest end is first.
        self._pins: OrderedDict[bytes, tuple[float, kvlease.Pages]] = OrderedDict()
        self._timer: threading.Timer | None = None

    def keep(self, key: bytes, pages: kvlease.Pages) -> None:
        """Takes the pages, instead of those that it has for the key. The oldest pin is dropped if
        there are too many."""
        with self._lock:
            dropped = [self._pins.pop(key)] if key in self._pins else []
            self._pins[key] = (time.monotonic() + self._seconds, pages)
            if len(self._pins) > _MOST_PINS:
                dropped.append(self._pins.popitem(last=False)[1])
            self._start_timer()
        close_all(pages for _, pages in dropped)

    def drop(self, keys: Iterable[bytes]) -> None:
        """Releases the pages of these keys, where it has any."""
        with self._lock:
            dropped = [self._pins.pop(key) for key in keys if key in self._pins]
            if not self._pins and self._timer is not None:
                self._timer.cancel()
                self._timer = None
        close_all(pages for _, pages in dropped)

    def close(self) -> None:
        """Drops all."""
        with self._lock:
            keys = list(self._pins)
        self.drop(keys)

    def _start_timer(self) -> None:
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
        close_all(pages for _, pages in dropped)
