"""Follower: learns which pages are cached, for routers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from kvlease import _kvlease
from kvlease._types import Tier

if TYPE_CHECKING:
    import os
    from types import TracebackType


class FollowKind(IntEnum):
    """What a FollowEvent tells."""

    NAMESPACE = 1  # is followed from now on
    RESET = 2  # forget all pages of the namespace: the cached ones follow, as STORED
    SYNCED = 3  # all pages that were cached at a RESET have been told
    STORED = 4
    REMOVED = 5
    MOVED = 6  # from_tier to tier
    CLEARED = 7  # the namespace was invalidated: it has no pages any more
    GONE = 8  # the namespace ended


@dataclass(frozen=True)
class FollowedNamespace:
    """A namespace whose tenant has events."""

    id: int  # unique in the follower
    tenant: str
    name: str
    model: str
    version: str
    format: bytes
    page_tokens: int
    layer_group: int
    tp_rank: int
    tp_size: int


class FollowEvent(NamedTuple):
    """A change in the cache. STORED and MOVED set all fields of a page.

    REMOVED sets key, n_tokens and tier.
    """

    kind: FollowKind
    namespace: FollowedNamespace
    key: bytes | None
    parent: bytes | None  # None: the page begins a text
    token_ids: tuple[int, ...] | None  # None: the publisher gave none
    n_tokens: int
    depth: int  # pages of the text up to the page's end
    tag: int
    tier: Tier
    from_tier: Tier  # of MOVED
    lora_name: str | None  # of the text that the page begins; None: none, or it begins no text
    cache_salt: str | None  # the same


def _decode(name: bytes | None) -> str | None:
    return None if name is None else name.decode(errors="backslashreplace")


class Follower:
    """Follows the cached pages of the tenant of a socket, or of all tenants on monitor.sock.

    Only tenants with the option `events` count. A page is stored after its parent, and removed
    before it. A follower that falls behind gets RESET. After a restart of kvleased it goes on.

    socket: None: $KVLEASE_SOCKET, else /run/kvlease/sock. tenant: only its namespaces are followed.
    timeout: seconds of connecting. One thread at a time uses it. Raises as connect().

        with kvlease.Follower() as follower:
            while event := follower.next(timeout=1):
                print(event.kind.name, event.namespace.name, event.n_tokens, event.token_ids)
    """

    def __init__(
        self,
        socket: str | os.PathLike[str] | None = None,
        *,
        tenant: str | None = None,
        client_name: str | None = None,
        timeout: float | None = 30,
    ) -> None:
        self._raw = _kvlease.follow(socket, tenant=tenant, client_name=client_name, timeout=timeout)
        self._namespaces: dict[int, FollowedNamespace] = {}

    def next(self, timeout: float | None = 0) -> FollowEvent | None:
        """The next event; None: there is none within `timeout` seconds (None: waits for ever)."""
        raw = self._raw.next(timeout)
        if raw is None:
            return None
        kind, number, fields, key, parent, ids, n_tokens, depth, tag, tier, from_tier = raw[:11]
        lora_name, cache_salt = map(_decode, raw[11:])
        if fields is not None:
            self._namespaces[number] = FollowedNamespace(*fields)
        namespace = self._namespaces[number]
        if kind == FollowKind.GONE:
            del self._namespaces[number]
        return FollowEvent(
            FollowKind(kind),
            namespace,
            key,
            parent,
            ids,
            n_tokens,
            depth,
            tag,
            Tier(tier),
            Tier(from_tier),
            lora_name,
            cache_salt,
        )

    def reset(self) -> None:
        """Begins all namespaces anew: RESET, STORED..., SYNCED."""
        self._raw.reset()

    @property
    def is_connected(self) -> bool:
        """False: kvleased is away."""
        return self._raw.is_connected()

    def close(self) -> None:
        """Ends it."""
        self._raw.close()

    def __enter__(self) -> Follower:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
