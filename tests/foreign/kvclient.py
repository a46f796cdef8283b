"""A client of kvleased, written from docs/reference/PROTOCOL.md and proto/kvlease.proto alone: frames, messages, keys.

Blocking, for one thread. What goes on in shared memory is in kvshared.py.
"""
from __future__ import annotations

import array
import hashlib
import os
import re
import select
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import kvlease_pb2 as pb

HEADER = struct.Struct("<4sHHIHHQ")
MAGIC = b"KVL1"
MAX_PAYLOAD = 65512
MAX_FDS = 16
REPLY, EVENT, NO_REPLY = 1, 2, 4
VERSION = 1
KEY_BYTES = 32

# Status numbers that the tests look at.
OK, MISS, DUPLICATE, QUOTA, FULL, NO_PARENT, STALE, DRAINING, LAYOUT, BAD_VERSION, TIMEOUT, PENDING, RESERVATION = range(13)
INVALID, DENIED, NOT_FOUND, EXISTS, BUSY = 32, 33, 34, 35, 36
TOO_BIG, UNSUPPORTED, LOST = 39, 41, 45


class Message(NamedTuple):
    """A row of the protocol's table of messages."""

    number: int
    request: Any
    reply: Any


MESSAGES = {
    "HELLO": Message(1, pb.HelloRequest, pb.HelloReply),
    "AUTH": Message(2, pb.AuthRequest, pb.SimpleReply),
    "BYE": Message(3, pb.ByeRequest, pb.SimpleReply),
    "SHM_OPEN": Message(4, pb.ShmOpenRequest, pb.ShmOpenReply),
    "DOORBELL": Message(5, pb.DoorbellRequest, pb.SimpleReply),
    "RESUME_NS": Message(6, pb.ResumeNsRequest, pb.SimpleReply),
    "RESUMED": Message(7, pb.ResumedRequest, pb.SimpleReply),
    "NS_OPEN": Message(16, pb.NsOpenRequest, pb.NsOpenReply),
    "NS_CLOSE": Message(17, pb.NsCloseRequest, pb.SimpleReply),
    "MAP": Message(18, pb.MapRequest, pb.MapReply),
    "NS_SHARE": Message(19, pb.NsShareRequest, pb.NsShareReply),
    "UNMAPPED": Message(20, pb.UnmappedRequest, pb.SimpleReply),
    "LEASE": Message(32, pb.LeaseRequest, pb.LeaseReply),
    "PUBLISH": Message(33, pb.PublishRequest, pb.PublishReply),
    "LOOKUP": Message(34, pb.LookupRequest, pb.LookupReply),
    "RELEASE": Message(35, pb.ReleaseRequest, pb.SimpleReply),
    "FREE": Message(36, pb.FreeRequest, pb.SimpleReply),
    "INVALIDATE": Message(37, pb.InvalidateRequest, pb.CountReply),
    "REQUEST_END": Message(38, pb.RequestEndRequest, pb.SimpleReply),
    "REPORT": Message(39, pb.ReportRequest, pb.CountReply),
    "ANNOUNCE": Message(40, pb.AnnounceRequest, pb.AnnounceReply),
    "WAIT": Message(41, pb.WaitRequest, pb.SimpleReply),
    "SESSION_OPEN": Message(42, pb.SessionOpenRequest, pb.SessionOpenReply),
    "SESSION_PAGES": Message(43, pb.SessionPagesRequest, pb.SessionPagesReply),
    "SESSION_TRUNCATE": Message(44, pb.SessionTruncateRequest, pb.CountReply),
    "SESSION_KEEP": Message(52, pb.SessionKeepRequest, pb.CountReply),
    "SESSION_HINT": Message(45, pb.SessionHintRequest, pb.SimpleReply),
    "SESSION_CLOSE": Message(46, pb.SessionCloseRequest, pb.SimpleReply),
    "EXPLAIN": Message(47, pb.ExplainRequest, pb.ExplainReply),
    "FETCH": Message(48, pb.FetchRequest, pb.FetchReply),
    "PIN": Message(49, pb.PinRequest, pb.SimpleReply),
    "HELD": Message(50, pb.HeldRequest, pb.SimpleReply),
    "LEASABLE": Message(51, pb.LeasableRequest, pb.CountReply),
    "EXPECT": Message(53, pb.ExpectRequest, pb.SimpleReply),
    "IMPORT": Message(58, pb.ImportRequest, pb.ImportReply),
    "SESSION_LOAD": Message(60, pb.SessionLoadRequest, pb.SessionLoadReply),
    "PROBE_HOSTS": Message(61, pb.ProbeHostsRequest, pb.ProbeHostsReply),
    "FEED": Message(62, pb.FeedRequest, pb.FeedReply),
    "NOTE_PREFILL": Message(59, pb.NotePrefillRequest, pb.SimpleReply),
    "ADMIN_STATUS": Message(96, pb.AdminListRequest, pb.AdminRowsReply),
    "ADMIN_DEVICES": Message(97, pb.AdminListRequest, pb.AdminRowsReply),
    "ADMIN_TENANTS": Message(98, pb.AdminListRequest, pb.AdminRowsReply),
    "ADMIN_PROCESS": Message(64, pb.AdminListRequest, pb.AdminProcessReply),
    "ADMIN_TENANT_SET": Message(67, pb.AdminTenantSetRequest, pb.SimpleReply),
    "ADMIN_TENANT_REMOVE": Message(68, pb.AdminTenantRemoveRequest, pb.SimpleReply),
    "ADMIN_NAMESPACES": Message(99, pb.AdminListRequest, pb.AdminRowsReply),
    "ADMIN_CLIENTS": Message(100, pb.AdminListRequest, pb.AdminRowsReply),
    "ADMIN_PURGE": Message(71, pb.AdminPurgeRequest, pb.CountReply),
    "ADMIN_DRAIN": Message(72, pb.AdminDrainRequest, pb.AdminDrainReply),
    "ADMIN_CHECK": Message(73, pb.AdminCheckRequest, pb.AdminCheckReply),
    "ADMIN_RECALL": Message(74, pb.AdminRecallRequest, pb.CountReply),
    "ADMIN_REGIONS": Message(101, pb.AdminListRequest, pb.AdminRowsReply),
    "ADMIN_EVICTIONS": Message(102, pb.AdminListRequest, pb.AdminRowsReply),
    "ADMIN_SESSIONS": Message(103, pb.AdminListRequest, pb.AdminRowsReply),
    "ADMIN_EXPLAIN": Message(78, pb.AdminExplainRequest, pb.ExplainReply),
    "ADMIN_SETS": Message(104, pb.AdminListRequest, pb.AdminRowsReply),
    "ADMIN_SESSION_PURGE": Message(80, pb.AdminSessionPurgeRequest, pb.CountReply),
    "ADMIN_RECORD": Message(81, pb.AdminRecordRequest, pb.AdminRecordReply),
    "ADMIN_RESTART": Message(82, pb.AdminRestartRequest, pb.AdminRestartReply),
    "ADMIN_WARM": Message(83, pb.AdminWarmRequest, pb.AdminWarmReply),
    "ADMIN_EVENTS": Message(84, pb.AdminEventsRequest, pb.AdminEventsReply),
    "ADMIN_RELOAD": Message(85, pb.AdminReloadRequest, pb.AdminReloadReply),
    "ADMIN_CONFIG": Message(105, pb.AdminListRequest, pb.AdminRowsReply),
    "ADMIN_COUNTERS": Message(88, pb.AdminCountersRequest, pb.AdminCountersReply),
    "ADMIN_EXCHANGES": Message(107, pb.AdminListRequest, pb.AdminRowsReply),
    "ADMIN_REMOTES": Message(108, pb.AdminListRequest, pb.AdminRowsReply),
    "ADMIN_CODECS": Message(106, pb.AdminListRequest, pb.AdminRowsReply),
}
EVENTS: dict[str, tuple[int, Any]] = {
    "CHALLENGE": (128, pb.ChallengeEvent),
    "NOTICE": (129, pb.NoticeEvent),
    "RING": (130, pb.RingEvent),
    "RECALL": (131, pb.RecallEvent),
}
NAME_OF = {m.number: name for name, m in MESSAGES.items()}
EVENT_OF = {number: (name, kind) for name, (number, kind) in EVENTS.items()}


# ---- keys ----------------------------------------------------------------------------------------


def _field(tag: int, data: bytes) -> bytes:
    return bytes([tag]) + struct.pack("<I", len(data)) + data


def root_key(layout: pb.NsLayout) -> bytes:
    numbers = (layout.dtype, layout.n_layers, layout.n_kv_heads, layout.head_size, layout.page_tokens,
               layout.tp_rank, layout.tp_size, layout.layer_group)
    text = _field(0, b"kvlease root key 1") + _field(1, layout.model.encode()) + _field(2, layout.version.encode())
    for tag, number in enumerate(numbers, 3):
        text += _field(tag, struct.pack("<I", number))
    text += _field(11, layout.salt)
    if layout.format:
        text += _field(14, layout.format)
    return hashlib.sha256(text).digest()


def layout_name(layout: pb.NsLayout) -> str:
    numbers = (layout.dtype, layout.n_layers, layout.n_kv_heads, layout.head_size, layout.page_tokens,
               layout.tp_rank, layout.tp_size, layout.layer_group)
    text = _field(0, b"kvlease layout name 1") + _field(1, layout.model.encode())
    for tag, number in enumerate(numbers, 3):
        text += _field(tag, struct.pack("<I", number))
    text += _field(11, layout.salt)
    if layout.format:
        text += _field(14, layout.format)
    text += _field(15, struct.pack("<I", layout.n_planes)) + _field(16, struct.pack("<Q", layout.plane_page_bytes))
    model = re.sub("[^A-Za-z0-9._-]", "_", layout.model)[:115]
    return re.sub("^[.-]", "_", model) + "@" + hashlib.sha256(text).hexdigest()[:12]


def chain_key(parent: bytes, tokens: Sequence[int]) -> bytes:
    packed = struct.pack(f"<{len(tokens)}I", *tokens)
    page = hashlib.sha256(packed[:-32] + b"kvlease page tokens 3").digest()
    return hashlib.sha256(parent + page + packed[-32:] + b"kvlease chain key 3").digest()


def text_keys(layout: pb.NsLayout, tokens: Sequence[int]) -> list[bytes]:
    """The keys of the pages of a text, the last of which may be partial."""
    keys, parent = [], root_key(layout)
    for first in range(0, len(tokens), layout.page_tokens):
        parent = chain_key(parent, tokens[first:first + layout.page_tokens])
        keys.append(parent)
    return keys


# ---- the connection ------------------------------------------------------------------------------


class HungUp(Exception):
    """The daemon closed the connection."""


class Failed(Exception):
    """A request was refused."""

    def __init__(self, name: str, status: int, detail: str) -> None:
        super().__init__(f"{name}: status {status}: {detail}")
        self.status = status


@dataclass
class Frame:
    type: int
    flags: int
    seq: int
    version: int
    payload: bytes
    fds: list[int]


@dataclass
class Record:
    """What all clients of a run sent and got, for who wants to know that nothing was left out."""

    answered: set[str] = field(default_factory=set)  # with OK
    events: set[str] = field(default_factory=set)
    submitted: set[str] = field(default_factory=set)  # and executed


class Connection:
    """Frames over a socket: requests in any order, each with its one reply."""

    def __init__(self, path: str | os.PathLike[str], record: Record | None = None, patience: float = 60) -> None:
        self.record = record if record is not None else Record()
        self.patience = patience
        self.version = VERSION
        self.seq = 0
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(os.fspath(path))
        self.buffer = b""
        self.fds: list[int] = []
        self.replies: dict[int, Frame] = {}
        self.events: list[tuple[str, Any]] = []

    def close(self) -> None:
        self.sock.close()
        for fd in self.fds:
            os.close(fd)
        self.fds = []

    # -- frames --

    def send_raw(self, data: bytes) -> None:
        self.sock.sendall(data)

    def send(self, name: str, /, *, flags: int = 0, seq: int = 0, **fields: Any) -> int:
        """Sends a request and doesn't wait; its number."""
        payload: bytes = MESSAGES[name].request(**fields).SerializeToString()
        if seq == 0:
            self.seq += 1
            seq = self.seq
        self.send_raw(HEADER.pack(MAGIC, self.version, MESSAGES[name].number, len(payload), 0, flags, seq) + payload)
        return seq

    def _receive(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([self.sock], [], [], left)[0]:
            raise TimeoutError("kvleased doesn't answer")
        space = socket.CMSG_SPACE(MAX_FDS * 4)
        try:
            # No byte beyond a frame that has descriptors: those of the next would come with it.
            data, control, _, _ = self.sock.recvmsg(self._missing(), space, socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError:
            data, control = b"", []
        if not data:
            raise HungUp("kvleased hung up")
        self.buffer += data
        for level, kind, body in control:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(body[:len(body) - len(body) % fds.itemsize])
                self.fds += fds.tolist()

    def _missing(self) -> int:
        if len(self.buffer) < HEADER.size:
            return HEADER.size - len(self.buffer)
        length: int = HEADER.unpack_from(self.buffer)[3]
        return HEADER.size + length - len(self.buffer)

    def receive(self, deadline: float) -> Frame:
        while self._missing() > 0:
            self._receive(deadline)
        magic, version, kind, length, n_fds, flags, seq = HEADER.unpack_from(self.buffer)
        if magic != MAGIC or length > MAX_PAYLOAD or len(self.fds) != n_fds:
            raise ValueError(f"a broken frame: {self.buffer[:HEADER.size].hex()}, {len(self.fds)} descriptors")
        if bool(flags & EVENT) != (seq == 0) or bool(flags & EVENT) == bool(flags & REPLY):
            raise ValueError(f"a frame with flags {flags} and seq {seq}")
        payload, self.buffer = self.buffer[HEADER.size:], b""
        fds, self.fds = self.fds, []
        return Frame(kind, flags, seq, version, payload, fds)

    def pump(self, deadline: float) -> None:
        """Receives one frame, and keeps it for who wants it."""
        frame = self.receive(deadline)
        if frame.flags & EVENT:
            name, kind = EVENT_OF[frame.type]
            self.record.events.add(name)
            self.events.append((name, kind.FromString(frame.payload)))
        else:
            self.replies[frame.seq] = frame

    def reply_frame(self, seq: int) -> Frame:
        deadline = time.monotonic() + self.patience
        while seq not in self.replies:
            self.pump(deadline)
        return self.replies.pop(seq)

    # -- messages --

    def reply(self, name: str, seq: int) -> tuple[Any, list[int]]:
        frame = self.reply_frame(seq)
        if frame.type != MESSAGES[name].number or frame.version != self.version:
            raise ValueError(f"{name} was answered by type {frame.type} in version {frame.version}")
        reply = MESSAGES[name].reply.FromString(frame.payload)
        if reply.status == OK:
            self.record.answered.add(name)
        return reply, frame.fds

    def rows(self, name: str, /, **fields: Any) -> list[SimpleNamespace]:
        """The rows of an administrator's list; None: an absent figure."""
        table = self.tell(name, **fields).tables[0]
        rows = []
        for row in table.rows:
            figures = dict(zip(table.numbers, (None if n == -1 else n for n in row.numbers), strict=True))
            texts = enumerate(row.texts)
            figures |= zip(table.texts, (None if i in row.no_texts else text for i, text in texts), strict=True)
            rows.append(SimpleNamespace(**figures))
        return rows

    def ask_fds(self, name: str, /, **fields: Any) -> tuple[Any, list[int]]:
        return self.reply(name, self.send(name, **fields))

    def ask(self, name: str, /, **fields: Any) -> Any:
        """The reply, whatever its status is."""
        return self.ask_fds(name, **fields)[0]

    def tell(self, name: str, /, **fields: Any) -> Any:
        """The reply; its status is OK, or it raises Failed."""
        reply = self.ask(name, **fields)
        if reply.status != OK:
            raise Failed(name, reply.status, reply.detail)
        return reply

    def event(self, name: str, patience: float | None = None) -> Any:
        """The next event of a kind; others before it are forgotten."""
        deadline = time.monotonic() + (self.patience if patience is None else patience)
        while True:
            while self.events:
                is_name, event = self.events.pop(0)
                if is_name == name:
                    return event
            self.pump(deadline)

    def hello(self, **fields: Any) -> Any:
        """HELLO, and AUTH where that is asked for. Raises Failed."""
        reply = self.tell("HELLO", **{"min_version": 1, "max_version": VERSION, "client_name": "foreign",
                                      "library_version": "0", **fields})
        self.version = reply.version
        if reply.auth_required:
            self.tell("AUTH", nonce=self.event("CHALLENGE").nonce)
        return reply
