"""The connection to kvleased that all threads of a server use. It may be lost and made again."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

import kvlease
from kvlease._engine import Events

_logger = logging.getLogger("kvlease")

# Between two tries to reach kvleased, and after it was slow. Not tuned.
_PAUSE_SECONDS = 5.0
# Namespaces that a connection has open at a time. Not tuned.
_MOST_NAMESPACES = 64
# Errors of one object or model, while others are stored and found. Closed: a namespace gave way.
_HARMLESS = (
    kvlease.Closed,
    kvlease.Draining,
    kvlease.Full,
    kvlease.Invalid,
    kvlease.LayoutMismatch,
    kvlease.NoParent,
    kvlease.Quota,
)


def give_back(pages: kvlease.Pages) -> None:
    """Closes the pages. Where that can't be, their connection is over and took them with it."""
    try:
        pages.close_soon()
    except kvlease.Error as error:
        _logger.debug("gave nothing back: %s", error)


class Session:
    """A connection with its namespaces."""

    def __init__(self, connection: kvlease.Connection) -> None:
        self._connection = connection
        self._events = Events(connection)
        self._namespaces: OrderedDict[kvlease.Layout, kvlease.Namespace] = OrderedDict()
        self._lock = threading.Lock()
        self.n_users = 1
        """Threads in a call of the link, and the link itself."""

    @property
    def is_over(self) -> bool:
        """kvleased is gone for good. Pages found before can still be found in its memory."""
        return not self._events.is_alive()

    def namespace(self, layout: kvlease.Layout, device: str | None) -> kvlease.Namespace:
        """Opens the namespace if it isn't open. If too many are open, the one used least recently
        is closed."""
        with self._lock:
            found = self._namespaces.get(layout)
            if found is None:
                found = self._connection.namespace(layout=layout, device=device)
                self._namespaces[layout] = found
            self._namespaces.move_to_end(layout)
            if len(self._namespaces) > _MOST_NAMESPACES:
                oldest = next(iter(self._namespaces))
                # Busy: another thread uses that namespace.
                with contextlib.suppress(kvlease.Busy):
                    self._namespaces[oldest].close()
                    del self._namespaces[oldest]
            return found

    def close(self) -> None:
        """Ends the connection, which no thread uses any more."""
        self._events.stop()
        try:
            self._connection.close()
        except kvlease.Error as error:
            _logger.debug("the connection ends with the process: %s", error)


class Link:
    """Does work with a session, which it makes. No method raises an error of kvlease."""

    def __init__(self, connect: Callable[[], kvlease.Connection]) -> None:
        self._connect = connect
        self._session: Session | None = None
        self._lock = threading.Lock()
        self._idle_until = 0.0
        self._is_closed = False
        self._told = ""

    def call(self, work: Callable[[Session], object]) -> None:
        """Does the work, or a part of it if kvleased is away, full or slow: the log says so."""
        try:
            session = self._enter()
        except kvlease.Error as error:
            self._pause(error)
            return
        if session is None:
            return
        try:
            work(session)
        except kvlease.Error as error:
            self._meet(session, error)
        finally:
            self._leave(session)

    def close(self) -> None:
        """No work is done from now on. Work under way ends first."""
        with self._lock:
            self._is_closed = True
        self._drop(self._session)

    def _enter(self) -> Session | None:
        session = self._session
        if session is not None and session.is_over:
            self._drop(session)
        with self._lock:
            if self._is_closed or time.monotonic() < self._idle_until:
                return None
            if self._session is None:
                self._session = Session(self._connect())
            self._session.n_users += 1
            return self._session

    def _leave(self, session: Session) -> None:
        with self._lock:
            session.n_users -= 1
            if session.n_users:
                return
        session.close()

    def _drop(self, session: Session | None) -> None:
        """The link forgets the session; the last thread that uses the session closes it."""
        with self._lock:
            if session is None or self._session is not session:
                return
            self._session = None
        self._leave(session)

    def _meet(self, session: Session, error: kvlease.Error) -> None:
        """After a failure: lets kvleased alone for a while, or connects anew, where that helps."""
        if not isinstance(error, _HARMLESS):
            self._pause(error)
            if not isinstance(error, kvlease.Timeout | kvlease.Busy):
                self._drop(session)
        elif str(error) != self._told:
            self._told = str(error)
            _logger.warning("stores and finds less: %s", error)

    def _pause(self, error: kvlease.Error) -> None:
        with self._lock:
            self._idle_until = time.monotonic() + _PAUSE_SECONDS
        _logger.warning("goes on without kvlease for %.0f s: %s", _PAUSE_SECONDS, error)
