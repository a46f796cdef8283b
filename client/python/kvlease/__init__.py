"""Lease, share and find KV-cache pages owned by kvleased.

A worker connects, opens a namespace (one model context), leases pages, writes K and V into them
where they are mapped, and publishes them under keys that name their content and everything before
it. Any worker of the same tenant that looks the keys up gets the very same memory, pinned.

Objects are closed, or used with `with`; what is only forgotten is given back, too, with a
ResourceWarning. Every call may be made from any thread, releases the GIL while it may block, and
raises kvlease.Error (one of its subclasses, with .reason, a word, and .code) where it fails. A miss
is no error but an empty result. Not of that family, as everywhere in Python: TypeError, ValueError
and IndexError for arguments that can be none, BufferError for what views still use, MemoryError.

Units: seconds, bytes, tokens, pages. Keys are 32 bytes each, in one buffer or a sequence of them.
Streams are CUstreams as ints (torch: stream.cuda_stream).

Events and restarts of the daemon go to the logger "kvlease" where no handler is set.

A child of fork() can't use what its parent opened: calls raise kvlease.Forked, and memory of pages
isn't mapped there. It connects anew.
"""

from kvlease._follow import FollowedNamespace, Follower, FollowEvent, FollowKind
from kvlease._kvlease import (
    Busy,
    Closed,
    Connection,
    Denied,
    DeviceFailure,
    Disconnected,
    Draining,
    Error,
    Forked,
    Full,
    Invalid,
    KeyMemo,
    LayoutMismatch,
    Namespace,
    NoParent,
    NotFound,
    Pages,
    Quota,
    Request,
    Session,
    Stale,
    Timeout,
    Unreachable,
    VersionMismatch,
    View,
    Window,
    chain_keys,
    connect,
    key_memo,
    lookup_set,
    version,
)
from kvlease._types import (
    Announcement,
    Codec,
    DType,
    Event,
    EventType,
    ExplainState,
    Explanation,
    Hint,
    HostsProbe,
    Layout,
    NamespaceInfo,
    SessionInfo,
    Span,
    Tier,
    TierInfo,
)

__all__ = [
    "KEY_BYTES",
    "MAX_IMPORT_KEYS",
    "MAX_LEASE_PAGES",
    "Announcement",
    "Busy",
    "Closed",
    "Codec",
    "Connection",
    "DType",
    "Denied",
    "DeviceFailure",
    "Disconnected",
    "Draining",
    "Error",
    "Event",
    "EventType",
    "ExplainState",
    "Explanation",
    "FollowEvent",
    "FollowKind",
    "FollowedNamespace",
    "Follower",
    "Forked",
    "Full",
    "Hint",
    "HostsProbe",
    "Invalid",
    "KeyMemo",
    "Layout",
    "LayoutMismatch",
    "Namespace",
    "NamespaceInfo",
    "NoParent",
    "NotFound",
    "Pages",
    "Quota",
    "Request",
    "Session",
    "SessionInfo",
    "Span",
    "Stale",
    "Tier",
    "TierInfo",
    "Timeout",
    "Unreachable",
    "VersionMismatch",
    "View",
    "Window",
    "chain_keys",
    "connect",
    "key_memo",
    "lookup_set",
    "version",
]

KEY_BYTES = 32
"""Bytes of a key."""
MAX_IMPORT_KEYS = 256
"""Most keys that one start_import() asks for."""
MAX_LEASE_PAGES = 4096
"""Most pages of one lease."""

__version__ = version()
