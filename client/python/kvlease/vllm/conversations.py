"""Conversations: requests that name one (`session_id`) publish to a session of kvleased, so that
its eviction policy knows which texts will probably go on. The policy also learns from the ends of
all requests. Both are hints: without them a request is served as well."""

from __future__ import annotations

import hashlib
import logging
from typing import Any

from vllm.v1.request import RequestStatus

import kvlease
from kvlease import _engine

_DAY_SECONDS = 86_400

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


def _next_turn(request: Any) -> tuple[kvlease.Hint, float]:
    """The hint of the request's `vllm_xargs`, and the seconds to the next turn. A request without
    one, or with a wrong one, continues."""
    params = getattr(getattr(request, "sampling_params", None), "extra_args", None)
    if isinstance(params, dict):
        hint, after = params.get("session_hint"), params.get("session_returns_after")
        if hint == "done":
            return kvlease.Hint.DONE, 0
        if hint == "returns" and isinstance(after, int | float) and 0 <= after <= _DAY_SECONDS:
            return kvlease.Hint.RETURNS, after
    return kvlease.Hint.CONTINUES, 0


def ending(request: Any) -> int:
    """How the request, which is over, ended. The last tokens of a text that was cut say nothing."""
    stopped = request.status == RequestStatus.FINISHED_STOPPED
    last = request.output_token_ids[-2:] if stopped else []
    return _engine.ending(request.status.name, last)


def end(session: kvlease.Session, request: Any) -> None:
    """The request is over."""
    hint, after = _next_turn(request)
    try:
        session.hint(hint, after=after)
        session.close()
    except kvlease.Error as error:
        _logger.debug("told nothing of a session: %s", error)
