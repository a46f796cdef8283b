"""What the calls of the package take and return, as far as it is plain data."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from kvlease import _kvlease

if TYPE_CHECKING:
    from kvlease._kvlease import KeysLike, Namespace, TokensLike

_logger = logging.getLogger("kvlease")


class DType(IntEnum):
    """Type of the numbers in a page."""

    F32 = 1
    F16 = 2
    BF16 = 3
    F8_E4M3 = 4
    F8_E5M2 = 5
    I8 = 6
    OTHER = 255


class Tier(IntEnum):
    """Where a page's bytes are."""

    DEVICE = 0
    HOST = 1
    DISK = 2


class Codec(IntEnum):
    """How pages are kept below the device."""

    NONE = 0
    INT8 = 1
    FP8 = 2
    INT4 = 3


class Hint(IntEnum):
    """What is known of a session's next turn."""

    UNKNOWN = 0
    CONTINUES = 1
    DONE = 2
    RETURNS = 3


class EventType(IntEnum):
    """What an event says; kvlease.h describes each."""

    DRAIN = 1
    DRAIN_END = 2
    PRESSURE = 3
    STALE = 4
    MEMBER_LEFT = 5
    DISCONNECTED = 6
    SHUTDOWN = 7
    REVOKE = 8
    AWAY = 9
    BACK = 10


class ExplainState(IntEnum):
    """Why a key hits or misses."""

    NEVER_SEEN = 0
    CACHED = 1
    PENDING = 2
    EVICTED = 3
    INVALIDATED = 4
    OTHER_VERSION = 5
    EXPIRED = 6


@dataclass(frozen=True)
class Layout:
    """How a model's KV cache lies in pages: two namespaces of one name must agree in all of it.

    plane_page_bytes: bytes of one page in one plane, a multiple of 64; times n_planes at least
    4096. version: of the weights; another one retires the contents. salt: keeps equal prompts
    apart. format: how kernels lay K and V out inside a page, in the engine's own words (engine,
    version, attention backend, inner layout; at most 64 bytes, a str counts as its UTF-8): engines
    that name different ones never read each other's pages.
    """

    model: str
    dtype: DType
    n_layers: int
    n_kv_heads: int
    head_size: int
    page_tokens: int
    plane_page_bytes: int
    n_planes: int = 1
    version: str = ""
    tp_rank: int = 0
    tp_size: int = 1
    layer_group: int = 0
    salt: bytes = b""
    format: bytes | str = b""

    def root_key(self) -> bytes:
        """Key that begins every text: binds model, version, dtype, geometry, rank, salt, format."""
        return _kvlease.key_root(self)

    def name(self) -> str:
        """Name of its namespace where none is given: the model, '@', and 12 hexadecimal digits of
        a hash over all but the version."""
        return _kvlease.layout_name(self)

    def keys(
        self,
        tokens: TokensLike,
        *,
        parent: KeysLike | None = None,
        partial: bool = False,
        memo: _kvlease.KeyMemo | None = None,
    ) -> bytes:
        """Keys of all pages of a text, 32 bytes each.

        parent: key of the page before it; None: it begins the text. partial: a key for a partly
        filled last page, too. memo: key_memo(page_tokens), whose known pages aren't hashed again.
        """
        before = self.root_key() if parent is None else parent
        return _kvlease.chain_keys(before, tokens, self.page_tokens, partial=partial, memo=memo)


class TierInfo(NamedTuple):
    """A tier of a namespace: the pages first_page to first_page + n_pages - 1."""

    tier: int
    first_page: int
    n_pages: int
    page_bytes: int
    is_readable: bool


class NamespaceInfo(NamedTuple):
    """What an open namespace is; device: a UUID, or 'host'.

    stride_bytes: from a page to the next one in a plane on the device, plane_page_bytes or a little
    more. member: on which the planes lie that this connection maps: `device`, or its member where
    it spans several; "" where they lie on several members, or nothing is mapped.
    """

    capacity_pages: int
    set_pages: int
    page_tokens: int
    n_planes: int
    plane_page_bytes: int
    epoch: int
    device: str
    is_cpu_memory: bool
    is_contiguous: bool
    tiers: tuple[TierInfo, ...]
    stride_bytes: int
    member: str
    takes_token_ids: bool  # publish(token_ids=...) is of use: followers may learn them


class SessionInfo(NamedTuple):
    """A session when it was opened. lost_tokens: at its end, evicted, to be computed again."""

    is_new: bool
    n_pages: int
    n_tokens: int
    lost_tokens: int
    last_key: bytes | None


class Span(NamedTuple):
    """Which tokens of the text a session's page holds."""

    first_token: int
    n_tokens: int
    key: bytes


class Announcement(NamedTuple):
    """How many pages were announced, and why not more.

    stopped: None: all were; 'pending': another client is computing the next key, wait() for it;
    'cached': it is cached, look it up.
    """

    n_pages: int
    stopped: str | None


class Explanation(NamedTuple):
    """Why a key hits or misses. Ages in seconds; by: whose lease evicted it, or what dropped it."""

    state: int
    page: int | None
    tier: int
    age: int
    unused: int
    client_id: int
    by: str


class HostsProbe(NamedTuple):
    """How much of a text needn't be computed: leading keys that are cached on this host, and that
    are on this host or others. would_load: kvleased would load now what others have behind n_here,
    as that is sooner than computing it."""

    n_here: int
    n_keys: int
    would_load: bool


class Event(NamedTuple):
    """What the daemon tells. namespace: None where it concerns all; timeout in seconds.

    REVOKE names the pages first_page to first_page + n_pages - 1 of the namespace.
    """

    type: int
    namespace: Namespace | None
    client_id: int
    detail: str
    first_page: int
    n_pages: int
    timeout: float
    is_idle: bool


_LEVELS = {
    EventType.DISCONNECTED: logging.ERROR,
    EventType.STALE: logging.WARNING,
    EventType.REVOKE: logging.WARNING,
    EventType.AWAY: logging.WARNING,
    EventType.SHUTDOWN: logging.WARNING,
}


def log_event(event: Event) -> None:
    """Events of a connection without a handler."""
    try:
        name = EventType(event.type).name.lower()
        level = _LEVELS.get(EventType(event.type), logging.INFO)
    except ValueError:  # of a newer daemon
        name, level = str(event.type), logging.INFO
    _logger.log(level, "%s: %s", name, event.detail or "no more is known")
