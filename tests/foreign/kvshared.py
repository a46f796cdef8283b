"""What a client shares with kvleased, written from docs/reference/PROTOCOL.md ("Segments") alone.

Python has no atomic instructions: libatomic, which C compilers come with, has them as functions.
"""
from __future__ import annotations

import ctypes
import mmap
import os
import struct
import time
from dataclasses import dataclass
from typing import Any

from kvclient import NO_REPLY, OK, STALE, Connection

RELAXED, ACQUIRE, RELEASE, ACQ_REL, SEQ_CST = 0, 2, 3, 4, 5
FREE_, GRANTED, SEALED, RETIRING, DETACHED, NULL_PAGE, PENDING_PAGE = 0, 1, 2, 3, 5, 7, 8
LINE_BYTES, BUCKET_BYTES, SUB_BYTES, COMP_BYTES = 64, 64, 64, 16
SUB_ENTRIES, COMP_ENTRIES, MAGAZINE_SLOTS = 1024, 2048, 1024
NO_PAGE = 2**32 - 1
MASK = 2**64 - 1
FUTEX_WAIT = 0
TOKENS_IDS = 12
SYS_FUTEX = {"x86_64": 202, "aarch64": 98}[os.uname().machine]

OPS = {"PARENT": 1, "PUBLISH": 2, "FREE": 3, "TOUCH": 4, "REFILL": 5, "REQUEST_END": 6, "FETCH": 7, "WITH": 8, "EXPECT": 9,
       "FETCH_PLANES": 10, "TOKENS": 11}
ROOT, CHAIN = 1, 2  # flags of PUBLISH
COPY, DOWN = 1, 2  # of FETCH

_atomic: Any = ctypes.CDLL("libatomic.so.1")
_libc: Any = ctypes.CDLL(None, use_errno=True)


def _function(name: str, size: int, result: Any) -> Any:
    fn = getattr(_atomic, f"__atomic_{name}_{size}")
    fn.restype = result
    return fn


_load4, _load8 = _function("load", 4, ctypes.c_uint32), _function("load", 8, ctypes.c_uint64)
_store4, _store8 = _function("store", 4, None), _function("store", 8, None)
_add4, _add8 = _function("fetch_add", 4, ctypes.c_uint32), _function("fetch_add", 8, ctypes.c_uint64)
_exchange4 = _function("exchange", 4, ctypes.c_uint32)


def fence() -> None:
    _atomic.atomic_thread_fence(SEQ_CST)


class Segment:
    """A mapped segment: words at offsets."""

    def __init__(self, fd: int, size: int, kind: int, writable: bool) -> None:
        self.size = size
        libc_mmap = _libc.mmap
        libc_mmap.restype = ctypes.c_void_p
        libc_mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        address = libc_mmap(None, size, protection, mmap.MAP_SHARED, fd, 0)
        os.close(fd)
        if address in (None, MASK):
            raise OSError(ctypes.get_errno(), "mmap")
        self.address: int = address
        magic, version, self.kind, is_bytes, self.boot_epoch, self.owner = struct.unpack("<8sIIQQQ", self.read(0, 40))
        if magic != b"kvlshm01" or version != 1 or self.kind != kind or is_bytes != size:
            raise ValueError(f"no segment of kind {kind}: {magic!r} {version} {self.kind} {is_bytes}")

    def unmap(self) -> None:
        _libc.munmap(ctypes.c_void_p(self.address), ctypes.c_size_t(self.size))

    def read(self, at: int, size: int) -> bytes:
        return ctypes.string_at(self.address + at, size)

    def write(self, at: int, data: bytes) -> None:
        ctypes.memmove(self.address + at, data, len(data))

    def at(self, at: int) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.address + at)

    def load4(self, at: int, order: int = ACQUIRE) -> int:
        return int(_load4(self.at(at), order))

    def load8(self, at: int, order: int = ACQUIRE) -> int:
        return int(_load8(self.at(at), order))

    def store4(self, at: int, value: int, order: int = RELEASE) -> None:
        _store4(self.at(at), ctypes.c_uint32(value), order)

    def store8(self, at: int, value: int, order: int = RELEASE) -> None:
        _store8(self.at(at), ctypes.c_uint64(value), order)

    def exchange4(self, at: int, value: int) -> int:
        return int(_exchange4(self.at(at), ctypes.c_uint32(value), ACQ_REL))

    def add4(self, at: int, value: int, order: int) -> int:
        return int(_add4(self.at(at), ctypes.c_uint32(value & NO_PAGE), order))

    def add8(self, at: int, value: int) -> int:
        return int(_add8(self.at(at), ctypes.c_uint64(value), RELAXED))


def key_hash(k0: int, k1: int, key: bytes) -> int:
    def fold(a: int, b: int) -> int:
        return (a * b & MASK) ^ (a * b >> 64)

    a, b, c, d = struct.unpack("<4Q", key)
    low = fold(a ^ k0 ^ 0x243F6A8885A308D3, b ^ k1 ^ 0x13198A2E03707344)
    high = fold(c ^ k0 ^ 0xA4093822299F31D0, d ^ k1 ^ 0x082EFA98EC4E6C89)
    return fold(low ^ 0x452821E638D01377, high ^ 0xBE5466CF34E90C6C)


class Index:
    """A namespace's index and this client's pins and magazine."""

    def __init__(self, connection: Connection, ns_id: int) -> None:
        reply, fds = connection.ask_fds("NS_SHARE", ns_id=ns_id)
        if reply.status != OK or len(fds) != 2:
            raise ValueError(f"NS_SHARE: {reply}, {len(fds)} descriptors")
        self.version_epoch = reply.version_epoch
        self.index = Segment(fds[0], reply.index_bytes, 1, writable=False)
        self.pins = Segment(fds[1], reply.pins_bytes, 2, writable=True)
        self.capacity, self.n_buckets, self.buckets, self.lines, self.k0, self.k1 = struct.unpack(
            "<IIQQQQ", self.index.read(64, 40))
        n_counters, n_slots, self.magazine, self.counters = struct.unpack("<IIQQ", self.pins.read(64, 24))
        if n_counters != self.capacity or n_slots != MAGAZINE_SLOTS:
            raise ValueError(f"{n_counters} counters for {self.capacity} pages, {n_slots} slots")

    def unmap(self) -> None:
        self.index.unmap()
        self.pins.unmap()

    def is_stale(self) -> bool:
        return bool(self.index.load8(136) != self.version_epoch)

    def candidates(self, key: bytes) -> list[int]:
        value = key_hash(self.k0, self.k1, key)
        home = (value & NO_PAGE) * self.n_buckets >> 32
        found = []
        for bucket in (home, (home + 1) % self.n_buckets):
            for slot in range(8):
                word = self.index.load8(self.buckets + bucket * BUCKET_BYTES + slot * 8, RELAXED)
                if word & NO_PAGE and word >> 32 == value >> 32 and (word & NO_PAGE) <= self.capacity:
                    found.append((word & NO_PAGE) - 1)
        return found

    def state(self, page: int) -> tuple[int, int]:
        """Generation and state."""
        word = self.index.load8(self.lines + page * LINE_BYTES)
        return word >> 8, word & 0xFF

    def line(self, page: int) -> tuple[bytes, int, int, int]:
        """Key, epoch, tokens, tier; what it says of a page that isn't pinned may be over."""
        key, epoch, tokens, tier = struct.unpack("<32sQHB", self.index.read(self.lines + page * LINE_BYTES + 8, 43))
        return key, epoch, tokens, tier

    def count(self, page: int) -> int:
        return self.pins.load4(self.counters + page * 4)

    def add_pin(self, page: int) -> None:
        self.pins.add4(self.counters + page * 4, 1, SEQ_CST)

    def unpin(self, page: int) -> None:
        before = self.pins.add4(self.counters + page * 4, -1, RELEASE)
        assert before > 0, f"page {page} wasn't pinned"

    def pin(self, key: bytes) -> int | None:
        """The page with the key, pinned."""
        epoch = self.index.load8(128)
        for page in self.candidates(key):
            self.add_pin(page)
            fence()
            if self.state(page)[1] == SEALED and self.line(page)[:2] == (key, epoch):
                return page
            self.unpin(page)
        return None

    def lookup(self, keys: list[bytes]) -> list[int]:
        """The longest run of pages that are there, each pinned."""
        pages = []
        for key in keys:
            page = self.pin(key)
            if page is None:
                break
            pages.append(page)
        self.pins.add8(208, 1)
        self.pins.add8(216, len(keys))
        self.pins.add8(224, len(pages))
        return pages

    def wait(self, key: bytes, patience: float = 30) -> bool:
        """Until a key that is announced is there, or nobody is computing it any more (False)."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            epoch, word, at = self.index.load8(128), 0, 0
            for page in self.candidates(key):
                at = self.lines + page * LINE_BYTES
                word = self.index.load8(at)
                if word & 0xFF == PENDING_PAGE and self.line(page)[:2] == (key, epoch) and self.index.load8(at) == word:
                    break
            else:
                page_or_none = self.pin(key)
                if page_or_none is not None:
                    self.unpin(page_or_none)
                return page_or_none is not None
            span = (ctypes.c_long * 2)(0, 100_000_000)
            _libc.syscall(SYS_FUTEX, self.index.at(at), FUTEX_WAIT, ctypes.c_uint32(word & NO_PAGE), span, None, 0)
        raise TimeoutError("the key stays pending")

    def claim(self) -> int | None:
        """A page out of the magazine."""
        for slot in range(MAGAZINE_SLOTS):
            at = self.magazine + slot * 4
            if self.pins.load4(at, RELAXED) == 0:
                continue
            page = self.pins.exchange4(at, 0)
            if page:
                self.pins.add8(192, 1)
                return page - 1
        return None


@dataclass
class Completion:
    user_data: int
    status: int
    page: int


class Ring:
    """Submissions and completions of a connection."""

    def __init__(self, connection: Connection) -> None:
        reply, fds = connection.ask_fds("SHM_OPEN", layout_version=1)
        if reply.status != OK or len(fds) != 1:
            raise ValueError(f"SHM_OPEN: {reply}, {len(fds)} descriptors")
        self.connection = connection
        self.segment = Segment(fds[0], reply.bytes, 3, writable=True)
        n_subs, n_comps, self.subs, self.comps = struct.unpack("<IIQQ", self.segment.read(64, 24))
        if (n_subs, n_comps) != (SUB_ENTRIES, COMP_ENTRIES):
            raise ValueError(f"rings of {n_subs} and {n_comps} entries")
        self.tail = self.segment.load8(128)
        self.head = self.segment.load8(320)
        self.n_sent = 0

    def submit(self, op: str, ns_id: int, *, flags: int = 0, tokens: int = 0, page: int = 0, aux: int = 0,
               request: int = 0, body: bytes = b"") -> int:
        """Stores an entry; its user data. The daemon is told by ring()."""
        self.n_sent += 1
        self.store(op, struct.pack("<BBHIIIQQ32s", OPS[op], flags, tokens, ns_id, page, aux, self.n_sent, request, body))
        return self.n_sent

    def give_ids(self, ns_id: int, page: int, ids: list[int]) -> None:
        """Token ids of a leased page, before its PUBLISH."""
        self.give_words(ns_id, page, 0, ids)

    def give_names(self, ns_id: int, page: int, page_tokens: int, names: bytes) -> None:
        """Of a text that begins with the page, behind its token ids."""
        self.give_words(ns_id, page, page_tokens, list(struct.unpack("<20I", names.ljust(80, b"\0"))))

    def give_words(self, ns_id: int, page: int, at: int, words: list[int]) -> None:
        for first in range(0, len(words), TOKENS_IDS):
            part = words[first:first + TOKENS_IDS]
            self.store("TOKENS", struct.pack(f"<BBHIII{len(part)}I", OPS["TOKENS"], 0, len(part), ns_id, page, at + first,
                                             *part))

    def store(self, op: str, entry: bytes) -> None:
        while self.tail - self.segment.load8(192) >= SUB_ENTRIES:
            self.ring()
            time.sleep(0.001)
        entry = entry.ljust(SUB_BYTES, b"\0")
        self.segment.write(self.subs + self.tail % SUB_ENTRIES * SUB_BYTES, entry)
        self.tail += 1
        self.segment.store8(128, self.tail)
        self.connection.record.submitted.add(op)

    def ring(self) -> None:
        """Wakes the daemon where it sleeps."""
        fence()
        if self.segment.load4(384, RELAXED) == 1 and self.segment.exchange4(384, 0) == 1:
            self.connection.send("DOORBELL", flags=NO_REPLY)

    def take(self) -> list[Completion]:
        tail, found = self.segment.load8(256), []
        while self.head < tail:
            at = self.comps + self.head % COMP_ENTRIES * COMP_BYTES
            found.append(Completion(*struct.unpack("<QII", self.segment.read(at, COMP_BYTES))))
            self.head += 1
        self.segment.store8(320, self.head)
        return found

    def sleep(self) -> list[Completion]:
        """Until there are completions, which a RING event tells."""
        found = self.take()
        while not found:
            self.segment.store4(448, 1, SEQ_CST)
            fence()
            found = self.take()
            if not found:
                self.connection.event("RING")
                found = self.take()
        return found

    def complete(self, *users: int) -> list[Completion]:
        """Rings, and waits for the completions of these submissions, in their order."""
        self.ring()
        got: dict[int, Completion] = {}
        while not all(u in got for u in users):
            got |= {c.user_data: c for c in self.sleep()}
        return [got[u] for u in users]

    def drain(self, patience: float = 60) -> None:
        """Until everything submitted was executed."""
        deadline = time.monotonic() + patience
        self.ring()
        while self.segment.load8(192) < self.tail:
            if time.monotonic() > deadline:
                raise TimeoutError("submissions aren't executed")
            time.sleep(0.001)

    def publish(self, index: Index, ns_id: int, pages: list[int], keys: list[bytes], last_tokens: int, page_tokens: int,
                parent: bytes = b"", session: int = 0, tag: int = 0, request: int = 0) -> list[Completion]:
        """A PUBLISH each; pins as the protocol wants them. Own pages that weren't published stay granted."""
        if index.is_stale():
            return [Completion(0, STALE, NO_PAGE)]
        for page in pages:
            index.add_pin(page)
        if session or tag:
            self.submit("WITH", ns_id, page=session, body=struct.pack("<Q", tag))
        if parent:
            self.submit("PARENT", ns_id, body=parent)
        users = []
        for i, (page, key) in enumerate(zip(pages, keys)):
            tokens = last_tokens if i + 1 == len(pages) else page_tokens
            flags = ROOT if i == 0 and not parent else CHAIN
            users.append(self.submit("PUBLISH", ns_id, flags=flags, tokens=tokens, page=page, body=key, request=request))
        done = self.complete(*users)
        for page, completion in zip(pages, done):
            if completion.status != OK:
                index.unpin(page)
        return done


class Feed:
    """The findable pages of the first namespace behind `after` that has events."""

    def __init__(self, connection: Connection, after: int = 0) -> None:
        self.reply, fds = connection.ask_fds("FEED", after=after)
        if self.reply.status != OK or len(fds) != 1:
            raise ValueError(f"FEED: {self.reply}, {len(fds)} descriptors")
        self.segment = Segment(fds[0], self.reply.bytes, 4, writable=False)
        self.capacity, self.page_tokens, self.n_slots, self.line_bytes, self.lines, self.slots = struct.unpack(
            "<IIIIQQ", self.segment.read(64, 32))

    def line(self, at: int) -> tuple[bytes, bytes, int, int, list[int] | None]:
        """Key, parent, depth, tier and token ids."""
        word, key, parent, _epoch, _tag, depth, tokens, tier = struct.unpack("<Q32s32sQQIHB", self.segment.read(at, 95))
        ids = list(struct.unpack(f"<{tokens}I", self.segment.read(at + 192, 4 * tokens))) if word % 256 == 2 else None
        return key, parent if depth > 1 else b"", depth, tier, ids

    def names(self, page: int) -> bytes:
        """LoRA adapter and salt, each with its NUL, up to the last one that isn't empty."""
        return self.segment.read(self.lines + page * self.line_bytes + 112, 80).rstrip(b"\0")

    def page(self, page: int) -> tuple[bytes, bytes, int, int, list[int] | None] | None:
        at = self.lines + page * self.line_bytes
        if self.segment.load8(at) == 0 or struct.unpack("<Q", self.segment.read(at + 72, 8))[0] != self.segment.load8(128):
            return None
        return self.line(at)

    def changes(self, since: int) -> list[tuple[int, int, bytes]]:
        """Kind, page and key."""
        found = []
        for n in range(since, self.segment.load8(192)):
            at = self.slots + n % self.n_slots * (64 + self.line_bytes)
            kind, page = struct.unpack("<II", self.segment.read(at, 8))
            found.append((kind, page, self.line(at + 64)[0]))
        return found
