"""The connection to kvleased, which may be lost and made again while the engine goes on."""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import kvlease
from kvlease._engine import Events
from kvlease.sglang.options import Options

_logger = logging.getLogger("kvlease")
_T = TypeVar("_T")

# Between two tries to reach kvleased, and after it was slow. Not tuned.
_PAUSE_SECONDS = 5.0


class Link:
    """One of each rank. Threads of SGLang call it at the same time; only the constructor raises."""

    def __init__(self, options: Options, client_name: str) -> None:
        self._options = options
        self._client_name = client_name
        self._lock = threading.Lock()
        self._layouts: dict[str, kvlease.Layout] = {}
        self._namespaces: dict[str, kvlease.Namespace] = {}
        self._connection: kvlease.Connection | None = None
        self._events: Events | None = None
        self._idle_until = 0.0
        self._is_over = False

    def add(self, name: str, layout: kvlease.Layout) -> None:
        """Names a namespace, which is opened when it is first used."""
        with self._lock:
            self._layouts[name] = layout

    def call(self, name: str, otherwise: _T, work: Callable[[kvlease.Namespace], _T]) -> _T:
        """What work returns for the namespace of this name, or otherwise."""
        if self._is_over or time.monotonic() < self._idle_until:
            return otherwise
        connection = self._connection
        try:
            with self._lock:
                if self._is_over:
                    return otherwise
                namespace = self._open(name)
                connection = self._connection
            return work(namespace)
        except kvlease.Error as error:
            self._meet(error, connection)
        except ValueError as error:
            # Of the codecs, which kvleased doesn't know or has chosen otherwise.
            self.stop(str(error))
        except (MemoryError, OSError) as error:
            self._pause(f"a resource is short: {error!r}")
        return otherwise

    def stop(self, why: str) -> None:
        """Nothing is found or stored any more."""
        if not self._is_over:
            _logger.error("kvlease finds and stores nothing any more: %s", why)
        self._is_over = True

    def close(self) -> None:
        """The engine ends, or detaches. Pages that are held go with the connection."""
        self._is_over = True
        self._disconnect(self._connection)

    def _open(self, name: str) -> kvlease.Namespace:
        if self._connection is None:
            self._connection = kvlease.connect(
                self._options.socket,
                client_name=self._client_name,
                timeout=self._options.timeout,
            )
            self._events = Events(self._connection)
        if name not in self._namespaces:
            self._namespaces[name] = self._options.codecs.open(
                self._connection, self._layouts[name], "host"
            )
        return self._namespaces[name]

    def _disconnect(self, connection: kvlease.Connection | None) -> None:
        """Lets go of this connection, unless another thread did."""
        with self._lock:
            if connection is None or connection is not self._connection:
                return
            events, self._events = self._events, None
            self._connection, self._namespaces = None, {}
        if events is not None:
            events.stop()
        try:
            connection.close()
        except (kvlease.Error, BufferError) as error:
            # Other threads are in calls, or copy pages: the connection ends with their references.
            _logger.debug("closes the connection later: %s", error)

    def _meet(self, error: kvlease.Error, connection: kvlease.Connection | None) -> None:
        """After a failure: how long nothing is asked."""
        if isinstance(error, kvlease.Full | kvlease.Quota | kvlease.NoParent | kvlease.Draining):
            _logger.debug("stored less: %s", error)
        elif isinstance(error, kvlease.LayoutMismatch | kvlease.VersionMismatch | kvlease.Denied):
            self.stop(str(error))
        elif isinstance(error, kvlease.Timeout | kvlease.Busy) or error.code == -errno.ENOBUFS:
            self._pause(str(error))
        elif not self._is_over:
            self._pause(str(error))
            self._disconnect(connection)

    def _pause(self, why: str) -> None:
        self._idle_until = time.monotonic() + _PAUSE_SECONDS
        _logger.warning("goes on without kvlease for %.0f s: %s", _PAUSE_SECONDS, why)
