"""Conversations: requests that name one (`session_id`) publish to a session of kvleased, so that
its eviction policy knows which texts will probably go on. A session is a hint: without one a
request is served as well."""

from __future__ import annotations

import hashlib
import logging
from typing import Any

import kvlease

_logger = logging.getLogger("kvlease")


def begin(namespace: kvlease.Namespace, request: Any) -> kvlease.Session | None:
    """The session of the request's conversation. None: it names none, or there can't be another."""
    name = getattr(request, "session_id", None)
    if not name:
        return None
    # A client may send any text; an id of kvleased has 64 bytes at most.
    digest = hashlib.sha256(str(name).encode(errors="backslashreplace")).digest()
    try:
        return namespace.session(digest)
    except kvlease.Error as error:
        _logger.debug("opened no session: %s", error)
        return None


def end(session: kvlease.Session) -> None:
    """The request is over. vLLM isn't told whether another turn will come."""
    try:
        session.hint(kvlease.Hint.CONTINUES)
        session.close()
    except kvlease.Error as error:
        _logger.debug("told nothing of a session: %s", error)
