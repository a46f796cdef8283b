"""The connection of an adapter to kvleased, which is made again after a loss."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, TypeVar

import kvlease
from kvlease._codecs import Codecs
from kvlease._engine import Events

_logger = logging.getLogger("kvlease")
_T = TypeVar("_T")

# Between two tries to reach kvleased, and after it was slow. Not tuned.
_PAUSE_SECONDS = 5.0
# Namespaces that a connection has open at a time. Not tuned.
_MOST_NAMESPACES = 64
# Errors of one page or model, while others are stored and found. Closed: a namespace gave way.
_HARMLESS = (
    kvlease.Closed,
    kvlease.Draining,
    kvlease.Full,
    kvlease.Invalid,
    kvlease.LayoutMismatch,
    kvlease.NoParent,
    kvlease.Quota,
)


class User(Protocol):
    """Uses connections, one at a time."""

    def attach(self, connection: kvlease.Connection, /) -> None:
        """The connection is new."""

    def detach(self) -> None:
        """The connection, if it was attached, is about to be closed."""


class Session:
    """A connection with its namespaces. Threads may use a session at the same time."""

    def __init__(self, connection: kvlease.Connection, user: User | None) -> None:
        self._user = user
        self._connection = connection
        self._events = Events(connection)
        self._namespaces: OrderedDict[kvlease.Layout, kvlease.Namespace] = OrderedDict()
        self._lock = threading.Lock()
        self.n_users = 1
        """Threads in a call of the link, and the link itself."""
        if user is not None:
            try:
                user.attach(connection)
            except BaseException:
                self.close()
                raise

    @property
    def is_over(self) -> bool:
        """kvleased is gone for good. Pages found before can still be found in its memory."""
        return not self._events.is_alive()

    def namespace(
        self, layout: kvlease.Layout, device: str | None, codecs: Codecs | None = None
    ) -> kvlease.Namespace:
        """Opens the namespace if it isn't open, as Codecs.open() does. If too many are open, the
        one used least recently is closed."""
        with self._lock:
            found = self._namespaces.get(layout)
            if found is None:
                found = (codecs or Codecs()).open(self._connection, layout, device)
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
        """Ends the connection, which no thread uses any more: at once, or with the last page of it
        that is still mapped."""
        self._events.stop()
        try:
            if self._user is not None:
                self._user.detach()
            self._connection.close()
        except (kvlease.Error, BufferError) as error:
            _logger.debug("closes the connection later: %s", error)


class Link:
    """Does work with a session, which the link makes. Threads may call a link at the same time. No
    method raises an error of kvlease."""

    def __init__(
        self,
        socket: str | os.PathLike[str] | None,
        client_name: str,
        timeout: float,
        user: User | None = None,
    ) -> None:
        """Connects at the first call. socket, client_name, timeout: of kvlease.connect(). user: has
        each connection from its beginning to its end."""
        self._socket = socket
        self._client_name = client_name
        self._timeout = timeout
        self._user = user
        self._session: Session | None = None
        self._lock = threading.Lock()
        self._idle_until = 0.0
        self._is_over = False
        self._told = ""

    def call(self, otherwise: _T, work: Callable[[Session], _T]) -> _T:
        """Returns what work returns. If kvleased is away, full or slow, or memory is short, work is
        done in part or not at all: then call() logs why and returns otherwise."""
        session: Session | None = None
        try:
            session = self._enter()
            if session is not None:
                return work(session)
        except kvlease.Error as error:
            self._meet(session, error)
        except (MemoryError, OSError) as error:
            self._pause(f"a resource is short: {error!r}")
        finally:
            self._leave(session)
        return otherwise

    def stop(self, why: str) -> None:
        """No work is done from now on, and the log says why."""
        if not self._is_over:
            _logger.error("kvlease finds and stores nothing any more: %s", why)
        self._is_over = True

    def close(self) -> None:
        """No work is done from now on. The connection ends with the work under way."""
        with self._lock:
            self._is_over = True
        self._drop(self._session)

    def _enter(self) -> Session | None:
        session = self._session
        if session is not None and session.is_over:
            self._drop(session)
        with self._lock:
            if self._is_over or time.monotonic() < self._idle_until:
                return None
            if self._session is None:
                connection = kvlease.connect(
                    self._socket, client_name=self._client_name, timeout=self._timeout
                )
                self._session = Session(connection, self._user)
            self._session.n_users += 1
            return self._session

    def _leave(self, session: Session | None) -> None:
        if session is None:
            return
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

    def _meet(self, session: Session | None, error: kvlease.Error) -> None:
        """After a failure: lets kvleased alone for a while, or connects anew, where that helps."""
        if self._is_over:
            return
        # An error that an adapter raises has no code.
        code = getattr(error, "code", 0)
        if code == -errno.EBADMSG:
            self.stop(str(error))
        elif session is None or not isinstance(error, _HARMLESS):
            self._pause(str(error))
            if not isinstance(error, kvlease.Timeout | kvlease.Busy) and code != -errno.ENOBUFS:
                self._drop(session)
        elif str(error) != self._told:
            self._told = str(error)
            _logger.warning("stores and finds less: %s", error)

    def _pause(self, why: str) -> None:
        self._idle_until = time.monotonic() + _PAUSE_SECONDS
        _logger.warning("goes on without kvlease for %.0f s: %s", _PAUSE_SECONDS, why)
