"""What the tests of foreign.py are made of: a daemon, clients with their namespaces, programs of the library.

The arguments are those of foreign.py.
"""
from __future__ import annotations

import mmap
import os
import pathlib
import re
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

try:
    import google.protobuf  # noqa: F401
except ImportError:
    print("no protobuf: apt-get install python3-protobuf")
    sys.exit(77)

source, generated, kvleased, peer_program, worker_program = (pathlib.Path(a).resolve() for a in sys.argv[1:6])
sys.path[:0] = [str(generated), str(source / "tests/tools")]

import kvlease_pb2 as pb
import protocol

import kvclient as kv
import kvshared as shared
from kvclient import Connection, HungUp
from kvshared import Index, Ring

PATIENCE = 60  # s; beside other tests it takes its time
PAGE_TOKENS, PLANES, PAGE_BYTES = 16, 2, 4096
TOKENS = [(i * 2654435761) % 2**32 for i in range(1, 301)]
record = kv.Record()


def expect(condition: Any, what: object) -> None:
    if not condition:
        raise AssertionError(what)


def layout(**changes: Any) -> pb.NsLayout:
    """As tests/foreign/peer.c has it."""
    return pb.NsLayout(**{"model": "foreign-model", "version": "r1", "dtype": 3, "n_layers": 4, "n_kv_heads": 2,
                          "head_size": 32, "page_tokens": PAGE_TOKENS, "n_planes": PLANES,
                          "plane_page_bytes": PAGE_BYTES, "tp_rank": 0, "tp_size": 1, "salt": b"pepper", **changes})


# ---- a daemon, and clients -------------------------------------------------------------------------


class Daemon:
    """A kvleased under --keep, with memory of the host below its device."""

    def __init__(self, folder: pathlib.Path, *options: str) -> None:
        self.folder = folder
        (folder / "none.conf").touch()
        words = ["daemon.devices=host", "device.host.memory=128MiB", "device.host.extent=2MiB",
                 "device.host.host_memory=16MiB", "tenant.a.limit=96MiB", "tenant.b.limit=8MiB", *options]
        self.log = (folder / "log").open("wb")
        self.process = subprocess.Popen(
            [kvleased, "-c", folder / "none.conf", "--keep", "--runtime-dir", folder / "run", "--state-dir",
             folder / "state", *(w for o in words for w in ("-o", o))], stdout=self.log, stderr=self.log)
        self.await_ready(1)

    def await_ready(self, n_starts: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while (self.folder / "log").read_text(errors="replace").count("ready in") < n_starts:
            expect(time.monotonic() < deadline and self.process.poll() is None, "kvleased doesn't start")
            time.sleep(0.01)

    def stop(self) -> None:
        self.process.terminate()
        expect(self.process.wait(timeout=PATIENCE) == 0, "kvleased's exit status isn't 0")
        self.log.close()

    def path(self, tenant: str = "a") -> pathlib.Path:
        return self.folder / "run/t" / tenant / "sock"

    def connect(self, tenant: str = "a") -> Connection:
        return Connection(self.path(tenant), record, PATIENCE)

    def client(self, tenant: str = "a", **hello: Any) -> Connection:
        connection = self.connect(tenant)
        connection.hello(**hello)
        return connection

    def watcher(self, name: str) -> Connection:
        connection = Connection(self.folder / "run" / name, record, PATIENCE)
        connection.hello()
        return connection

    def admin(self) -> Connection:
        return self.watcher("admin.sock")


class Space:
    """An open namespace: bytes of pages, wherever they lie."""

    def __init__(self, connection: Connection, name: str, lay: pb.NsLayout | None = None, **fields: Any) -> None:
        self.connection = connection
        self.layout = lay if lay is not None else layout()
        self.reply = connection.tell("NS_OPEN", name=name, layout=self.layout, **fields)
        self.id: int = self.reply.ns_id
        self.sets: dict[int, list[mmap.mmap]] = {}

    def map_set(self, number: int) -> list[mmap.mmap]:
        if number in self.sets:
            return self.sets[number]
        tier = self.tier(number * self.reply.set_pages)
        n_extents = 1 if tier else self.layout.n_planes
        size = self.tier_of(number).extent_bytes if tier else self.reply.extent_bytes
        protection = mmap.PROT_READ if tier else mmap.PROT_READ | mmap.PROT_WRITE
        maps: list[mmap.mmap] = []
        while len(maps) < n_extents:
            reply, fds = self.connection.ask_fds("MAP", ns_id=self.id, set_index=number, first_plane=len(maps))
            expect(reply.status == kv.OK and 0 < reply.n_planes == len(fds), f"MAP: {reply}")
            for fd in fds:
                expect(os.fstat(fd).st_size == size, "an extent of another size")
                maps.append(mmap.mmap(fd, size, mmap.MAP_SHARED, protection))
                os.close(fd)
        self.sets[number] = maps
        return maps

    def unmap_set(self, number: int) -> None:
        for m in self.sets.pop(number):
            m.close()

    def tier_of(self, number: int) -> Any:
        page = number * self.reply.set_pages
        return [t for t in self.reply.tiers if t.first_page <= page][-1]

    def tier(self, page: int) -> int:
        return int(self.tier_of(page // self.reply.set_pages).kind) if self.reply.tiers else 0

    def _where(self, page: int, plane: int) -> tuple[mmap.mmap, int]:
        number, i = divmod(page, self.reply.set_pages)
        maps, size = self.map_set(number), self.layout.plane_page_bytes
        if self.tier(page):
            return maps[0], i * self.tier_of(number).page_bytes + plane * size
        return maps[plane], i * (self.reply.stride_bytes or size)

    def write(self, page: int, data: list[bytes]) -> None:
        for plane, part in enumerate(data):
            at, offset = self._where(page, plane)
            at[offset:offset + len(part)] = part

    def read(self, page: int) -> list[bytes]:
        parts = []
        for plane in range(self.layout.n_planes):
            at, offset = self._where(page, plane)
            parts.append(at[offset:offset + self.layout.plane_page_bytes])
        return parts

    # -- what tests do often --

    def lease(self, n: int, **fields: Any) -> list[int]:
        return list(self.connection.tell("LEASE", ns_id=self.id, n_pages=n, **fields).pages)

    def fill(self, pages: list[int], keys: list[bytes]) -> None:
        for page, key in zip(pages, keys):
            self.write(page, content(key, self.layout))

    def check(self, pages: list[int], keys: list[bytes]) -> None:
        for page, key in zip(pages, keys):
            expect(self.read(page) == content(key, self.layout), f"page {page} has other bytes")

    def publish(self, tokens: list[int], **fields: Any) -> tuple[list[int], list[bytes]]:
        """A text, by the socket; each page stays pinned once."""
        keys = kv.text_keys(self.layout, tokens)
        pages = self.lease(len(keys))
        self.fill(pages, keys)
        reply = self.connection.tell("PUBLISH", ns_id=self.id, pages=pages, keys=b"".join(keys),
                                     last_tokens=(len(tokens) - 1) % self.layout.page_tokens + 1, **fields)
        expect(list(reply.pages) == pages, "other pages were published")
        return pages, keys

    def lookup(self, keys: list[bytes]) -> list[int]:
        reply = self.connection.ask("LOOKUP", ns_id=self.id, keys=b"".join(keys), request_id=1)
        expect(reply.status in (kv.OK, kv.MISS), reply)
        return list(reply.pages)

    def release(self, pages: list[int]) -> None:
        if pages:
            self.connection.tell("RELEASE", ns_id=self.id, pages=pages)


def content(key: bytes, lay: pb.NsLayout) -> list[bytes]:
    """As tests/foreign/peer.c has it."""
    n = lay.plane_page_bytes // kv.KEY_BYTES
    return [bytes((byte + plane) & 0xFF for byte in key) * n for plane in range(lay.n_planes)]


def hangs_up(connection: Connection) -> bool:
    """Without another word, within reason."""
    try:
        connection.receive(time.monotonic() + PATIENCE)
    except HungUp:
        return True
    return False


def ask_peer(*words: object) -> list[str]:
    return subprocess.run([peer_program, *map(str, words)], check=True, capture_output=True, text=True,
                          timeout=PATIENCE).stdout.split("\n")[:-1]


class Worker:
    """tests/integration/worker.c: a client of libkvlease that is driven by lines."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([worker_program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(self, line: str) -> list[int]:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        words = self.process.stdout.readline().split()
        expect(words and words[0] == "0", f"{line}: {' '.join(words)}")
        return [int(w) for w in words[1:] if w.isdigit()]

    def stop(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        expect(self.process.wait(timeout=PATIENCE) == 0, "the worker failed")


def in_child(fn: Callable[[], None]) -> None:
    """What daemons do to a process lasts until that has exited."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            fn()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    expect(os.waitpid(pid, 0)[1] == 0, "the child failed")


def share(daemon: Daemon, name: str, lay: pb.NsLayout | None = None) -> tuple[Space, Ring, Index]:
    connection = daemon.client()
    space = Space(connection, name, lay)
    ring = Ring(connection)
    return space, ring, Index(connection, space.id)


def claim(space: Space, ring: Ring, index: Index, n: int) -> list[int]:
    """Out of the magazine, which is refilled as it must."""
    pages: list[int] = []
    while len(pages) < n:
        page = index.claim()
        if page is not None:
            pages.append(page)
        elif index.pins.exchange4(200, 1) == 0:
            ring.submit("REFILL", space.id, aux=n - len(pages))
            ring.drain()
        else:
            time.sleep(0.001)
    return pages


def mix(x: int) -> int:
    """splitmix64: tests/integration/pattern.h."""
    x = (x + 0x9E3779B97F4A7C15) & shared.MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & shared.MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & shared.MASK
    return x ^ x >> 31


def pattern_key(chain: int, index: int) -> bytes:
    seed = mix((mix(chain) + index) & shared.MASK)
    return struct.pack("<4Q", *(mix(seed + i & shared.MASK) for i in range(4)))


def pattern(seed: int) -> bytes:
    return struct.pack("<512Q", *(mix(seed + i) for i in range(512)))


# ---- completeness ----------------------------------------------------------------------------------


# What is answered with OK only where a second host and a Redis server are: tests/integration/test_exchange_hosts.c,
# test_session_hosts.c.
REFUSED_HERE = {"IMPORT", "PROBE_HOSTS", "SESSION_LOAD"}


def nothing_is_left_out() -> list[str]:
    """The messages of the .proto and the page's submissions, against those that were sent."""
    page = (source / "docs/reference/PROTOCOL.md").read_text()
    problems = []
    for message in protocol.read(source):
        name, number = message.kind, message.number
        if not message.properties:  # a part of messages, or an event
            if name and kv.EVENTS.get(name, (0,))[0] != number:
                problems.append(f"the client doesn't know the event {name} ({number}) of the .proto")
            elif name and name not in record.events:
                problems.append(f"the event {name} never came")
            continue
        row, reply = kv.MESSAGES.get(name), message.properties[0]
        if not row or (row.number, row.reply.DESCRIPTOR.name) != (number, reply):
            problems.append(f"the client doesn't know {name} ({number}) [{reply}] of the .proto")
        elif name not in record.answered and name not in REFUSED_HERE:
            problems.append(f"{name} was never answered with OK")
    table = page[page.index("| submission | number |"):]
    ops = dict(re.findall(r"^\| ([A-Z_]+) \| (\d+) \|", table, re.MULTILINE))
    if len(ops) < 8 or len(kv.MESSAGES) < 50:
        problems.append("PROTOCOL.md can't be read")
    for name, number in ops.items():
        if shared.OPS.get(name) != int(number):
            problems.append(f"the client doesn't know the submission {name} ({number}) of PROTOCOL.md")
        elif name not in record.submitted:
            problems.append(f"{name} was never submitted")
    # Each request of the .proto is a message's.
    used = {row.request.DESCRIPTOR.name for row in kv.MESSAGES.values()}
    for kind in pb.DESCRIPTOR.message_types_by_name:
        if kind.endswith("Request") and kind not in used:
            problems.append(f"no message has a {kind}")
    return problems


# ---- tests -----------------------------------------------------------------------------------------

Test = Callable[[Daemon], None]
tests: list[tuple[Test, tuple[str, ...]]] = []


def test(*options: str) -> Callable[[Test], Test]:
    """Of a daemon with these options."""
    def add(fn: Test) -> Test:
        tests.append((fn, options))
        return fn
    return add
