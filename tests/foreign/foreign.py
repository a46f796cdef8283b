#!/usr/bin/python3
"""Every message of the protocol, sent by a client that was written from docs/reference/PROTOCOL.md.

    foreign.py SOURCE GENERATED KVLEASED PEER WORKER [TEST...]

SOURCE: the source tree; GENERATED: where kvlease_pb2.py is; PEER: tests/foreign/peer.c; WORKER: kvl-worker. Fails
where a message or submission of docs/reference/PROTOCOL.md wasn't answered with OK at least once, or an event didn't come.
"""
from __future__ import annotations

import os
import pathlib
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from scene import (
    PAGE_BYTES,
    PAGE_TOKENS,
    PATIENCE,
    PLANES,
    TOKENS,
    Daemon,
    Space,
    Worker,
    ask_peer,
    claim,
    content,
    expect,
    hangs_up,
    in_child,
    layout,
    nothing_is_left_out,
    pattern,
    pattern_key,
    record,
    share,
    source,
    test,
    tests,
)

# Found where scene looks for them.
import kvlease_pb2 as pb  # isort: skip
import kvclient as kv  # isort: skip
import kvshared as shared  # isort: skip

import administration  # noqa: F401  its tests

# ---- tests -----------------------------------------------------------------------------------------

@test()
def keys_are_those_of_the_library(daemon: Daemon) -> None:
    layouts: list[dict[str, Any]] = [
        {}, {"model": "m", "version": "", "salt": b""}, {"dtype": 255, "n_layers": 80, "n_kv_heads": 1},
        {"tp_rank": 3, "tp_size": 8, "layer_group": 2}, {"page_tokens": 1}, {"page_tokens": 1024},
        {"head_size": 2**32 - 1, "n_planes": 7}, {"model": "x" * 128, "version": "y" * 128, "salt": b"z" * 64},
        {"format": b"engine 1 flash NHD", "model": "-a/b c@d"}, {"salt": b"", "format": b"f"}, {"salt": b"z" * 64, "format": b"w" * 64},
    ]
    n_keys = 0
    for changes in layouts:
        lay = layout(**changes)
        for n in (1, 15, 16, 17, 33, 100):
            words = [f"{k}={v.decode() if isinstance(v, bytes) else v}" for k, v in changes.items()]
            lines = ask_peer("keys", *words, *TOKENS[:n])
            mine = [kv.root_key(lay), *kv.text_keys(lay, TOKENS[:n])]
            expect(lines == [kv.layout_name(lay), *(k.hex() for k in mine)], f"{changes}, {n} tokens")
            n_keys += len(mine)
    expect(n_keys > 300, n_keys)
    page = (source / "docs/reference/PROTOCOL.md").read_text()
    root = kv.root_key(pb.NsLayout(model="m", dtype=1, n_layers=1, n_kv_heads=1, head_size=1, page_tokens=1, tp_size=1))
    other = kv.root_key(pb.NsLayout(model="m", dtype=1, n_layers=1, n_kv_heads=1, head_size=1, page_tokens=1, tp_size=1, format=b"f"))
    for key in (root, kv.chain_key(root, [7]), other):
        expect(f"`{key.hex()}`" in page, "the keys in PROTOCOL.md are others")


@test()
def versions(daemon: Daemon) -> None:
    connection = daemon.connect()
    reply = connection.ask("HELLO", min_version=2, max_version=9)
    expect(reply.status == kv.BAD_VERSION and (reply.min_version, reply.max_version) == (1, 1), reply)
    expect("kvleased" in reply.detail and hangs_up(connection), reply.detail)
    connection = daemon.connect()
    expect(connection.ask("HELLO", min_version=3, max_version=2).status == kv.INVALID and hangs_up(connection), "3..2")
    connection = daemon.connect()  # a client that speaks more
    connection.version = 9
    payload = pb.HelloRequest(min_version=1, max_version=9).SerializeToString()
    connection.send_raw(kv.HEADER.pack(kv.MAGIC, 9, 1, len(payload), 0, 0, 77) + payload)
    connection.version = 1
    reply, _ = connection.reply("HELLO", 77)
    expect(reply.status == kv.OK and reply.version == 1, reply)
    connection.version = 9  # and says so once too often
    connection.send("LEASE", ns_id=1, n_pages=1)
    expect(hangs_up(connection), "another version")


def frame(kind: int, payload: bytes = b"", magic: bytes = kv.MAGIC, version: int = 1, length: int | None = None,
          n_fds: int = 0, flags: int = 0, seq: int = 1000) -> bytes:
    return kv.HEADER.pack(magic, version, kind, len(payload) if length is None else length, n_fds, flags, seq) + payload


@test()
def mistakes(daemon: Daemon) -> None:
    """What a foreign author gets wrong at first, and what PROTOCOL.md says of it."""
    lookup = kv.MESSAGES["LOOKUP"].number
    wrong: dict[str, bytes] = {
        "another magic": frame(lookup, magic=b"KVL2"),
        "big-endian": struct.pack(">4sHHIHHQ", kv.MAGIC, 1, lookup, 0, 0, 0, 5),
        "a length above 65512, no payload yet": frame(lookup, length=65513),
        "more fds than there may be": frame(lookup, n_fds=17),
        "fds that didn't come": frame(lookup, n_fds=1),
        "REPLY": frame(lookup, flags=kv.REPLY),
        "EVENT": frame(lookup, flags=kv.EVENT, seq=0),
        "an unknown flag": frame(lookup, flags=8),
        "seq 0": frame(lookup, seq=0),
        "NO_REPLY where it isn't allowed": frame(lookup, flags=kv.NO_REPLY),
        "an event's type": frame(130),
        "an administrator's request": frame(kv.MESSAGES["ADMIN_STATUS"].number),
        "a payload that is no such message": frame(lookup, b"\xff" * 16),
        "HELLO twice": frame(1, pb.HelloRequest(min_version=1, max_version=1).SerializeToString()),
    }
    for what, data in wrong.items():
        connection = daemon.client()
        connection.send_raw(data)
        expect(hangs_up(connection), what)
        connection.close()
    connection = daemon.connect()
    connection.send_raw(frame(lookup))
    expect(hangs_up(connection), "no HELLO")
    connection = daemon.client()  # descriptors that it says it sends
    with open(os.devnull, "rb") as file:
        ancillary = [(1, 1, struct.pack("i", file.fileno()))]
        try:
            connection.sock.sendmsg([frame(lookup, n_fds=1)], ancillary)
            expect(hangs_up(connection), "fds in a request")
        except PermissionError:  # Linux 6.16 and later: nothing was sent
            expect(connection.ask("NS_CLOSE", ns_id=9).status == kv.NOT_FOUND, "it goes on")
    admin = daemon.admin()
    expect(admin.rows("ADMIN_STATUS")[0].violations >= len(wrong) + 1, "violations aren't counted")
    rules = {v.rule for v in admin.tell("ADMIN_COUNTERS").violations if v.n}
    expect({"bad-magic", "frame-too-long", "fd-count", "hello-first", "hello-twice"} <= rules, rules)


@test()
def unknown_types(daemon: Daemon) -> None:
    connection = daemon.client()
    connection.send_raw(frame(999, b"from a newer client", seq=1 << 63))
    answer = connection.reply_frame(1 << 63)
    reply = pb.SimpleReply.FromString(answer.payload)
    expect(answer.type == 999 and reply.status == kv.UNSUPPORTED and reply.detail, reply)
    expect(connection.ask("NS_CLOSE", ns_id=9).status == kv.NOT_FOUND, "the connection goes on")
    # The longest frame there may be: 2047 keys are too many, but no violation.
    reply = connection.ask("LOOKUP", ns_id=9, keys=bytes(32 * 2047))
    expect(reply.status == kv.NOT_FOUND, reply)


@test()
def a_violation_with_memory_mapped(daemon: Daemon) -> None:
    keys = kv.text_keys(layout(), TOKENS[:16])

    def child() -> None:
        space = Space(daemon.client(), "muted")
        pages, _ = space.publish(TOKENS[:16])
        space.connection.send_raw(frame(130))
        space.connection.send("LOOKUP", ns_id=space.id, keys=keys[0])
        space.connection.patience = 1
        try:
            space.connection.event("NOTICE")
            raise AssertionError("an event")
        except TimeoutError:
            pass  # it is ignored, and not disconnected
        rows = daemon.admin().rows("ADMIN_CLIENTS", tenant="a")
        expect([(c.state, c.pins) for c in rows] == [("muted", 1)], rows)
        space.check(pages, keys)

    in_child(child)
    admin, deadline = daemon.admin(), time.monotonic() + PATIENCE
    while admin.rows("ADMIN_CLIENTS", tenant="a"):
        expect(time.monotonic() < deadline, "its pins stay after its exit")
        time.sleep(0.01)
    space = Space(daemon.client(), "muted")
    space.release(space.lookup(keys))


@test()
def pages_over_the_socket(daemon: Daemon) -> None:
    space = Space(daemon.client(), "pages", layout(n_planes=20))  # more than one MAP brings
    connection = space.connection
    tokens = TOKENS[:40]  # two full pages and half a one
    pages, keys = space.publish(tokens, request_id=5, tag=9)
    expect(len(pages) == 3 and len(space.map_set(pages[0] // space.reply.set_pages)) == 20, pages)
    reply = connection.tell("LOOKUP", ns_id=space.id, keys=b"".join(keys), request_id=6)
    expect(list(reply.pages) == pages and reply.tokens == 40, reply)
    space.check(pages, keys)
    expect(space.lookup([*keys[:2], bytes(32)]) == pages[:2], "the longest run")
    space.release(pages[:2])

    # Another client has its own mappings, and no right to what is granted to others.
    other = Space(daemon.client(), "pages", layout(n_planes=20))
    expect(other.lookup(keys) == pages, "another client misses")
    other.check(pages, keys)
    mine = space.lease(2)
    expect(other.connection.ask("FREE", ns_id=other.id, pages=mine).status == kv.INVALID, "another group's pages")

    expect(other.connection.ask("HELD", ns_id=other.id, pages=mine).status == kv.NOT_FOUND, "another group's")
    connection.tell("HELD", ns_id=space.id, pages=mine)
    before = connection.tell("LEASABLE", ns_id=space.id).count
    more = space.lease(3)
    expect(connection.tell("LEASABLE", ns_id=space.id).count == before - 3, before)
    connection.tell("FREE", ns_id=space.id, pages=more)
    expect(connection.tell("LEASABLE", ns_id=space.id).count == before > 3, before)
    other.connection.tell("HELD", ns_id=other.id, pages=pages)

    # Two requests wait that will continue the text, one of which has one page of it in common.
    admin = daemon.admin()
    before = admin.rows("ADMIN_STATUS")[0].expected
    connection.tell("EXPECT", ns_id=space.id, keys=b"".join(keys), ttl_msec=60000)
    connection.tell("EXPECT", ns_id=space.id, keys=keys[0] + bytes(32))
    connection.tell("EXPECT", ns_id=space.id, keys=bytes(64))  # nothing of it is cached
    expect(admin.rows("ADMIN_STATUS")[0].expected == before + 2, before)
    expect(connection.ask("EXPECT", ns_id=space.id, keys=keys[0], ttl_msec=600001).status == kv.INVALID, "too long")
    expect(connection.ask("EXPECT", ns_id=space.id, keys=keys[0][:31]).status == kv.INVALID, "half a key")
    expect(connection.ask("EXPECT", ns_id=space.id + 1, keys=keys[0]).status == kv.NOT_FOUND, "no namespace")

    # A pin more, of what is pinned.
    connection.tell("PIN", ns_id=space.id, pages=[pages[0], pages[0]])
    space.release([pages[0], pages[0]])
    expect(connection.ask("PIN", ns_id=space.id, pages=[pages[0], mine[0]]).status == kv.INVALID, "not pinned")

    # A duplicate's own page stays granted.
    reply = connection.ask("PUBLISH", ns_id=space.id, pages=mine[:1], keys=keys[0], last_tokens=16)
    expect(reply.status == kv.DUPLICATE and list(reply.pages) == pages[:1], reply)
    key = kv.chain_key(keys[1], TOKENS[100:116])
    reply = connection.ask("PUBLISH", ns_id=space.id, pages=mine[:1], keys=key, parent_key=bytes(32), last_tokens=16)
    expect(reply.status == kv.NO_PARENT, reply)
    reply = connection.tell("PUBLISH", ns_id=space.id, pages=mine[:1], keys=key, parent_key=keys[1], last_tokens=16)
    expect(space.lookup([*keys[:2], key]) == [*pages[:2], mine[0]], "it is used again")
    connection.send("FREE", flags=kv.NO_REPLY, ns_id=space.id, pages=mine[1:])
    expect(connection.ask("FREE", ns_id=space.id, pages=mine[1:]).status == kv.INVALID, "freed twice")
    connection.send("RELEASE", flags=kv.NO_REPLY, ns_id=space.id, pages=pages)
    connection.send("REQUEST_END", flags=kv.NO_REPLY, ns_id=space.id, request_id=6)
    connection.tell("REQUEST_END", ns_id=space.id, request_id=5)

    # What the daemon knows of keys.
    states = connection.tell("EXPLAIN", ns_id=space.id, keys=keys[0] + bytes(32)).explanations
    expect([e.state for e in states] == [1, 0] and states[0].page == pages[0], states)
    # Pages that were granted, and which it still has.
    kept = space.lease(3)
    connection.send("LEASE", ns_id=space.id, n_pages=2)  # whose reply is "lost"
    other.connection.tell("NS_CLOSE", ns_id=other.id)
    expect(connection.tell("REPORT", ns_id=space.id, pages=kept[:1], more=True).count == 0, "not yet")
    expect(connection.tell("REPORT", ns_id=space.id, pages=kept[1:2], continues=True).count == 3, "3 are freed")
    connection.tell("FREE", ns_id=space.id, pages=kept[:2])
    # What is invalidated is gone at once.
    expect(connection.tell("INVALIDATE", ns_id=space.id, key=key).count == 1, "the one page")
    expect(space.lookup([*keys[:2], key]) == pages[:2], "it is found")
    expect(connection.tell("INVALIDATE", ns_id=space.id, tag=9).count == 3, "three with the tag")
    expect(space.lookup(keys) == [], "they are found")
    states = connection.tell("EXPLAIN", ns_id=space.id, keys=keys[0]).explanations
    expect(states[0].state == 4 and states[0].by == "tag", states)
    connection.tell("INVALIDATE", ns_id=space.id)
    expect(connection.event("NOTICE").kind == pb.NoticeEvent.NS_STALE, "all of it")
    connection.tell("NS_CLOSE", ns_id=space.id)
    connection.tell("BYE")
    expect(hangs_up(connection), "BYE")


@test()
def layouts(daemon: Daemon) -> None:
    connection = daemon.client()
    space = Space(connection, "layouts", keep_page_zero=True)
    expect(space.reply.transport == 1 and space.reply.device == "host", space.reply)
    expect(space.reply.stride_bytes == PAGE_BYTES, space.reply)
    expect(space.reply.extent_bytes == space.reply.set_pages * PAGE_BYTES, space.reply)
    expect(0 not in space.lease(64), "page 0 was granted")
    expect(connection.ask("NS_OPEN", name="layouts", layout=layout()).status == kv.EXISTS, "open twice")
    other = daemon.client()
    reply = other.ask("NS_OPEN", name="layouts", layout=layout(n_layers=5))
    expect(reply.status == kv.LAYOUT and reply.detail, reply)
    expect(other.ask("NS_OPEN", name="a b", layout=layout()).status == kv.INVALID, "a name with a space")
    blind = daemon.client(metadata_only=True)
    ns_id = blind.tell("NS_OPEN", name="layouts", layout=layout()).ns_id
    page = space.lease(1)[0]
    reply = blind.ask("MAP", ns_id=ns_id, set_index=page // space.reply.set_pages)
    expect(reply.status == kv.DENIED, reply)
    # Another version retires what was there.
    _, keys = space.publish(TOKENS[:16])
    expect(other.tell("NS_OPEN", name="layouts", layout=layout(version="r2")).ns_id, "another version")
    expect(connection.ask("LOOKUP", ns_id=space.id, keys=keys[0]).status == kv.STALE, "the old version")


@test()
def strides(daemon: Daemon) -> None:
    apart = layout(plane_page_bytes=61440)
    writer = Space(daemon.client(), "apart", apart, stride_bytes=63488)
    expect(writer.reply.stride_bytes == 63488, writer.reply)
    expect(writer.reply.extent_bytes == writer.reply.set_pages * 63488, writer.reply)
    pages, keys = writer.publish(TOKENS[:64])
    reader = Space(daemon.client(), "apart", apart)
    expect(reader.reply.stride_bytes == 63488, reader.reply)
    expect(reader.lookup(keys) == pages, "another client finds them")
    reader.check(pages, keys)
    writer.release(pages)
    reader.release(pages)
    for stride in 61440 - 64, 61440 + 1, 65536:
        reply = daemon.client().ask("NS_OPEN", name="no", layout=apart, stride_bytes=stride)
        expect(reply.status == kv.INVALID and "stride_bytes" in reply.detail, reply)
    reply = daemon.client().ask("NS_OPEN", name="apart", layout=apart, stride_bytes=61440)
    expect(reply.status == kv.LAYOUT and "63488" in reply.detail, reply)


@test()
def groups(daemon: Daemon) -> None:
    first = daemon.connect()
    token = first.hello().group_token
    second = daemon.client(group_token=token)
    one, two = Space(first, "group"), Space(second, "group")
    keys = kv.text_keys(layout(), TOKENS[:16])
    pages = one.lease(1)
    two.fill(pages, keys)  # the ranks of an engine share what is granted
    second.tell("PUBLISH", ns_id=two.id, pages=pages, keys=keys[0], last_tokens=16)
    expect(one.lookup(keys) == pages, "what the other one published")
    one.check(pages, keys)
    reply = daemon.connect().ask("HELLO", min_version=1, max_version=1, group_token=bytes(16))
    expect(reply.status == kv.NOT_FOUND, reply)
    expect(first.ask("REPORT", ns_id=one.id).status == kv.BUSY, "two have it open")
    second.tell("BYE")
    notice = first.event("NOTICE")
    expect(notice.kind == pb.NoticeEvent.MEMBER_LEFT and notice.client_id, notice)


@test()
def announcements(daemon: Daemon) -> None:
    one, two = Space(daemon.client(), "flight"), Space(daemon.client(), "flight")
    keys = kv.text_keys(layout(), TOKENS[:64])
    pages, mine = one.lease(4), two.lease(1)
    reply = one.connection.tell("ANNOUNCE", ns_id=one.id, pages=pages, keys=b"".join(keys))
    expect(reply.n_announced == 4, reply)
    reply = two.connection.ask("ANNOUNCE", ns_id=two.id, pages=mine, keys=keys[0])
    expect(reply.status == kv.PENDING and reply.page == pages[0] and reply.n_announced == 0, reply)
    expect(two.connection.ask("WAIT", ns_id=two.id, key=bytes(32), timeout_msec=1).status == kv.MISS, "nobody's")
    expect(two.connection.ask("WAIT", ns_id=two.id, key=keys[0], timeout_msec=1).status == kv.TIMEOUT, "timeout")
    for name, key, status in ("IMPORT", keys[0], kv.PENDING), ("IMPORT", bytes(32), kv.MISS), ("PROBE_HOSTS", keys[0], kv.MISS):
        reply = two.connection.ask(name, ns_id=two.id, keys=key, timeout_msec=1000)  # no other host is known here
        expect(reply.status == status and reply.n_pages == 0, reply)
    for name, status in (b"talk", kv.MISS), (bytes(65), kv.INVALID):
        expect(two.connection.ask("SESSION_LOAD", ns_id=two.id, id=name, timeout_msec=1000).status == status, name)
    two.connection.tell("NOTE_PREFILL", ns_id=two.id, n_tokens=100, nsec=10**7)
    for tokens, nsec in (0, 1), (1, 0), (1, 3600 * 10**9 + 1):
        reply = two.connection.ask("NOTE_PREFILL", ns_id=two.id, n_tokens=tokens, nsec=nsec)
        expect(reply.status == kv.INVALID, reply)
    waits = [two.connection.send("WAIT", ns_id=two.id, key=k, timeout_msec=60000) for k in keys]
    expect(two.lookup(keys) == [], "an announced page is found")  # and answers come as they may
    one.fill(pages, keys)
    one.connection.tell("PUBLISH", ns_id=one.id, pages=pages[:3], keys=b"".join(keys[:3]), last_tokens=16)
    one.connection.tell("FREE", ns_id=one.id, pages=pages[3:])
    statuses = [two.connection.reply("WAIT", w)[0].status for w in waits]
    expect(statuses == [kv.OK, kv.OK, kv.OK, kv.MISS], statuses)
    found = two.lookup(keys)
    expect(found == pages[:3], found)
    two.check(found, keys)


@test()
def sessions(daemon: Daemon) -> None:
    space = Space(daemon.client(), "sessions")
    connection = space.connection
    reply = connection.tell("SESSION_OPEN", ns_id=space.id, id=b"talk\0\xff")
    handle = reply.session
    expect(reply.created and handle > 0 and not reply.last_key, reply)
    pages, keys = space.publish(TOKENS[:72], session=handle)
    space.release(pages)
    reply = connection.tell("SESSION_PAGES", ns_id=space.id, session=handle, max=1024)
    expect(list(reply.pages) == pages and list(reply.first_tokens) == [0, 16, 32, 48, 64], reply)
    expect(list(reply.tokens) == [16, 16, 16, 16, 8] and reply.keys == b"".join(keys) and reply.total == 5, reply)
    space.release(pages)
    reply = connection.tell("SESSION_TRUNCATE", ns_id=space.id, session=handle, first_tokens=16, last_tokens=8)
    expect(reply.count == 3, reply)
    ranges = {"first_tokens": [0, 64], "end_tokens": [16, 2**64 - 1]}
    expect(connection.tell("SESSION_KEEP", ns_id=space.id, session=handle, **ranges).count == 0, "all of it")
    reply = connection.ask("SESSION_KEEP", ns_id=space.id, session=handle, first_tokens=[0], end_tokens=[17])
    expect(reply.status == kv.INVALID and "given up" in reply.detail, reply)
    connection.tell("SESSION_HINT", ns_id=space.id, session=handle, hint=3, after_msec=500)
    expect(connection.ask("SESSION_HINT", ns_id=space.id, session=handle, hint=4).status == kv.INVALID, "hint 4")
    connection.tell("SESSION_CLOSE", ns_id=space.id, session=handle)
    reply = connection.tell("SESSION_OPEN", ns_id=space.id, id=b"talk\0\xff", must_exist=True)
    expect(not reply.created and reply.n_pages == 2 and reply.n_tokens == 72 and reply.last_key == keys[-1], reply)
    connection.tell("SESSION_CLOSE", ns_id=space.id, session=reply.session, drop=True)
    reply = connection.ask("SESSION_OPEN", ns_id=space.id, id=b"talk\0\xff", must_exist=True)
    expect(reply.status == kv.NOT_FOUND, reply)


@test()
def other_tiers(daemon: Daemon) -> None:
    space = Space(daemon.client(), "tiers")
    connection = space.connection
    host = next(t for t in space.reply.tiers if t.kind == 1)
    expect(host.is_readable and host.page_bytes >= PLANES * PAGE_BYTES and host.extent_bytes > 0, host)
    pages, keys = space.publish(TOKENS[:32])
    reply = connection.tell("FETCH", ns_id=space.id, pages=pages, down=True)
    expect(list(reply.statuses) == [kv.OK, kv.OK], reply)
    below = list(reply.pages)
    expect([space.tier(p) for p in below] == [1, 1], below)
    reply = connection.tell("LOOKUP", ns_id=space.id, keys=b"".join(keys))
    expect(list(reply.pages) == below and list(reply.page_tokens) == [16, 16], reply)
    space.check(below, keys)  # in host memory, read-only
    targets = space.lease(2)
    reply = connection.tell("FETCH", ns_id=space.id, pages=below, targets=targets)
    expect(list(reply.statuses) == [kv.OK, kv.OK] and list(reply.pages) == targets, reply)
    space.check(targets, keys)
    space.write(targets[0], [bytes(PAGE_BYTES)] * PLANES)
    reply = connection.tell("FETCH", ns_id=space.id, pages=below[:1], targets=targets[:1], first_plane=1, n_planes=1)
    expect(list(reply.statuses) == [kv.OK], reply)
    expect(space.read(targets[0]) == [bytes(PAGE_BYTES), content(keys[0], space.layout)[1]], "one plane, and no other")
    reply = connection.tell("FETCH", ns_id=space.id, pages=below[:1], targets=targets[:1], first_plane=1, n_planes=2)
    expect(list(reply.statuses) == [kv.INVALID], reply)
    reply = connection.tell("FETCH", ns_id=space.id, pages=below)
    up = list(reply.pages)
    expect(list(reply.statuses) == [kv.OK, kv.OK] and [space.tier(p) for p in up] == [0, 0], reply)
    space.check(up, keys)
    expect(space.lookup(keys) == up, "where they are now")
    daemon.admin().tell("ADMIN_CHECK")


# -- shared memory --


@test("tenant.a.events=1GiB", "tenant.b.events=64MiB")
def followed(daemon: Daemon) -> None:
    space, ring, index = share(daemon, "followed")
    expect(space.reply.events, "NsOpenReply says so")
    monitor = daemon.watcher("monitor.sock")
    keys = kv.text_keys(space.layout, TOKENS[:64])
    pages = claim(space, ring, index, 4)
    space.fill(pages, keys)
    ring.give_ids(space.id, pages[0], TOKENS[:16])
    ring.give_names(space.id, pages[0], PAGE_TOKENS, b"lora\0salt\0")
    ring.give_words(space.id, pages[0], PAGE_TOKENS + 19, [1, 2])  # the second one is behind the names
    ring.give_words(space.id, pages[0], 2**32 - 2, [1, 2])
    ring.give_ids(space.id, pages[1], TOKENS[16:31])  # one is missing
    ring.give_ids(space.id, 2**31, TOKENS[:16])  # no such page
    ring.publish(index, space.id, pages[:2], keys[:2], PAGE_TOKENS, PAGE_TOKENS)
    ids = b"".join(struct.pack("<I", t) for t in TOKENS[32:64])
    publish = {"ns_id": space.id, "pages": pages[2:], "keys": b"".join(keys[2:]), "parent_key": keys[1],
               "last_tokens": PAGE_TOKENS}
    expect(space.connection.ask("PUBLISH", token_ids=ids[4:], **publish).status == kv.INVALID, "too few ids")
    expect(space.connection.ask("PUBLISH", lora_name="n" * 79, **publish).status == kv.INVALID, "a longer name")
    space.connection.tell("PUBLISH", token_ids=ids, **publish)
    for connection in space.connection, monitor:
        feed = shared.Feed(connection)
        expect((feed.reply.tenant, feed.reply.name, feed.reply.page_tokens) == ("a", "followed", PAGE_TOKENS), feed.reply)
        wanted = [(keys[0], b"", 1, 0, TOKENS[:16]), (keys[1], keys[0], 2, 0, None),
                  (keys[2], keys[1], 3, 0, TOKENS[32:48]), (keys[3], keys[2], 4, 0, TOKENS[48:64])]
        expect([feed.page(p) for p in pages] == wanted, "lines")
        expect([feed.names(p) for p in pages[:2]] == [b"lora\0salt", b""], "names")
        expect(feed.changes(0) == [(1, p, k) for p, k in zip(pages, keys)], feed.changes(0))
        expect(connection.ask("FEED", after=feed.reply.id).status == kv.MISS, "one namespace")
        expect(connection.ask("FEED", tenant="b").status == kv.MISS, "none of b")
    expect(daemon.client("b").ask("FEED").status == kv.MISS, "not another tenant's")
    space.connection.tell("INVALIDATE", ns_id=space.id, key=keys[3])
    expect(feed.changes(4) == [(2, pages[3], keys[3])] and feed.page(pages[3]) is None, "removed")
    space.connection.tell("INVALIDATE", ns_id=space.id)
    expect([c[0] for c in feed.changes(5)] == [4] and feed.page(pages[0]) is None, "cleared")
    expect(feed.segment.load4(136) == 0, "goes on")
    daemon.admin().tell("ADMIN_TENANT_SET", name="a", options=["events=off"])
    expect(feed.segment.load4(136) == 1, "ended")


@test()
def in_shared_memory(daemon: Daemon) -> None:
    space, ring, index = share(daemon, "shared")
    expect(ring.segment.owner == index.pins.owner > 0, "the client's id")
    expect(index.index.boot_epoch == ring.segment.boot_epoch, "one daemon")
    expect(index.capacity == space.reply.capacity_pages, "lines")
    connection = space.connection
    keys = kv.text_keys(space.layout, TOKENS[:72])
    pages = claim(space, ring, index, 6)
    expect(all(index.state(p)[1] not in (shared.SEALED, shared.PENDING_PAGE) for p in pages), "claimed")
    space.fill(pages, keys)
    session = connection.tell("SESSION_OPEN", ns_id=space.id, id=b"s").session
    done = ring.publish(index, space.id, pages[:5], keys, 8, PAGE_TOKENS, session=session, tag=4, request=3)
    expect([(c.status, c.page) for c in done] == [(kv.OK, p) for p in pages[:5]], done)
    expect(index.line(pages[4])[2:] == (8, 0) and index.count(pages[4]) == 1, "a partial page")

    # Hits without the daemon.
    found = index.lookup([*keys, bytes(32)])
    expect(found == pages[:5] and index.count(pages[0]) == 2, found)
    space.check(found, keys)
    ring.submit("TOUCH", space.id, page=found[-1], aux=index.state(found[-1])[0] & shared.NO_PAGE, request=3,
                body=struct.pack("<II", 6, 5))
    for page in found:
        index.unpin(page)
    before = daemon.admin().rows("ADMIN_STATUS")[0].expected
    ring.submit("EXPECT", space.id, page=found[-1], aux=index.state(found[-1])[0] & shared.NO_PAGE, body=struct.pack("<I", 5000))
    ring.submit("EXPECT", space.id, page=found[-1], aux=0)  # another generation
    expect(daemon.admin().rows("ADMIN_STATUS")[0].expected == before + 1, "expected")
    reply = connection.tell("SESSION_PAGES", ns_id=space.id, session=session, max=10)
    expect(list(reply.pages) == pages[:5] and index.count(pages[0]) == 2, "pinned in the segment")
    for page in reply.pages:
        index.unpin(page)
    # What the socket pins isn't in the segment.
    expect(space.lookup(keys) == pages[:5] and index.count(pages[0]) == 1, "pinned over the socket")
    space.release(pages[:5])

    # A duplicate: the other page is pinned, the own one stays granted.
    done = ring.publish(index, space.id, pages[5:], keys[:1], 16, PAGE_TOKENS)
    expect([(c.status, c.page) for c in done] == [(kv.DUPLICATE, pages[0])], done)
    expect(index.count(pages[0]) == 2 and index.count(pages[5]) == 0, "pins of a duplicate")
    more = kv.chain_key(keys[3], TOKENS[200:216])
    space.fill(pages[5:], [more])
    done = ring.publish(index, space.id, pages[5:], [more], 16, PAGE_TOKENS, parent=bytes(32))
    expect(done[0].status == kv.NO_PARENT and index.count(pages[5]) == 0, done)
    done = ring.publish(index, space.id, pages[5:], [more], 16, PAGE_TOKENS, parent=keys[3])
    expect(done[0].status == kv.OK and index.lookup([*keys[:4], more])[-1] == pages[5], done)
    spare = claim(space, ring, index, 8)
    user = ring.submit("FREE", space.id, tokens=8, body=struct.pack("<8I", *spare))
    ring.submit("REQUEST_END", space.id, request=3)
    expect(ring.complete(user)[0].status == kv.OK, "FREE")
    user = ring.submit("FREE", space.id, tokens=1, body=struct.pack("<I", spare[0]))
    expect(ring.complete(user)[0].status == kv.INVALID, "FREE twice")
    connection.tell("DOORBELL")
    expect(connection.tell("INVALIDATE", ns_id=space.id, tag=4).count == 6, "by tag, with what comes after")
    expect(index.lookup(keys) == [] and index.state(pages[0])[1] == shared.DETACHED, "it is found")
    daemon.admin().tell("ADMIN_CHECK")


@test()
def waits_in_shared_memory(daemon: Daemon) -> None:
    space, _, index = share(daemon, "futex")
    keys = kv.text_keys(space.layout, TOKENS[:32])
    expect(not index.wait(keys[0]), "nobody's key")
    pages = space.lease(2)
    space.fill(pages, keys)
    space.connection.tell("ANNOUNCE", ns_id=space.id, pages=pages, keys=b"".join(keys))
    expect(index.state(pages[0])[1] == shared.PENDING_PAGE and index.pin(keys[0]) is None, "pending")
    connection = daemon.client()
    other = Space(connection, "futex")
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:  # another process publishes, and gives the second one up
        time.sleep(0.2)
        extra = other.lease(1)
        connection.tell("PUBLISH", ns_id=other.id, pages=extra, keys=keys[0], last_tokens=16)
        os._exit(0)
    expect(index.wait(keys[0]), "it was published")
    expect(os.waitpid(pid, 0)[1] == 0, "the child failed")
    space.connection.tell("FREE", ns_id=space.id, pages=pages)
    expect(not index.wait(keys[1]), "it was given up")


@test()
def other_tiers_in_shared_memory(daemon: Daemon) -> None:
    space, ring, index = share(daemon, "tiers")
    keys = kv.text_keys(space.layout, TOKENS[:16])
    page, target = claim(space, ring, index, 2)
    space.fill([page], keys)
    done = ring.publish(index, space.id, [page], keys, 16, PAGE_TOKENS)

    def fetch(which: int, flags: int = 0, to: int = 0) -> int:
        user = ring.submit("FETCH", space.id, page=which, aux=index.state(which)[0] & shared.NO_PAGE, flags=flags,
                           body=struct.pack("<I", to))
        done = ring.complete(user)
        expect(done[0].status == kv.OK, done)
        return done[0].page

    below = fetch(page, shared.DOWN)
    expect(space.tier(below) == 1 and index.pin(keys[0]) == below and index.line(below)[3] == 1, below)
    index.unpin(page)
    space.check([below], keys)
    expect(fetch(below, shared.COPY, target) == target, "a copy")
    space.check([target], keys)
    space.write(target, [bytes(PAGE_BYTES)] * PLANES)
    user = ring.submit("FETCH_PLANES", space.id, page=below, aux=index.state(below)[0] & shared.NO_PAGE,
                       body=struct.pack("<III", target, 0, 1))
    planes = ring.complete(user)[0]
    expect((planes.status, planes.page) == (kv.OK, target), planes)
    expect(space.read(target) == [content(keys[0], space.layout)[0], bytes(PAGE_BYTES)], "one plane, and no other")
    up = fetch(below)
    expect(space.tier(up) == 0 and index.pin(keys[0]) == up, up)
    index.unpin(below)
    space.check([up], keys)
    user = ring.submit("FREE", space.id, tokens=1, body=struct.pack("<I", target))
    expect(ring.complete(user)[0].status == kv.OK, done)
    daemon.admin().tell("ADMIN_CHECK")


@test()
def a_ring_that_breaks_the_rules(daemon: Daemon) -> None:
    def child() -> None:
        space, ring, _ = share(daemon, "rules")
        shared.OPS["NONE"] = 99
        page = space.lease(1)[0]
        ring.submit("NONE", space.id)
        ring.submit("FREE", space.id, tokens=1, body=struct.pack("<I", page))
        ring.connection.send("DOORBELL", flags=kv.NO_REPLY)
        connection = space.connection
        connection.send("NS_CLOSE", ns_id=space.id)
        connection.patience = 1
        try:
            connection.event("RING")
            raise AssertionError("an event")
        except TimeoutError:
            pass
        expect(not ring.take(), "what came after it was executed")
        rules = {v.rule for v in daemon.admin().tell("ADMIN_COUNTERS").violations if v.n}
        expect("ring-op" in rules, rules)

    in_child(child)


# -- beside the library --


@test()
def beside_the_library(daemon: Daemon) -> None:
    """Texts that C publishes are found here, byte for byte, and the other way round."""
    for i, (first, n) in enumerate([(0, 16), (20, 100), (50, 250)]):
        tokens, name = TOKENS[first:first + n], f"peers-{i}"
        ask_peer("publish", daemon.path(), name, *tokens)
        space, ring, index = share(daemon, name)
        keys = kv.text_keys(space.layout, tokens)
        over_socket, in_memory = space.lookup(keys), index.lookup(keys)
        expect(over_socket == in_memory and len(in_memory) == len(keys), "what C published")
        space.check(in_memory, keys)
        expect(sum(index.line(p)[2] for p in in_memory) == n, "tokens")
    for i, by_ring in enumerate([False, True]):
        tokens = TOKENS[100 * i:100 * i + 90]
        space, ring, index = share(daemon, "mine")
        keys = kv.text_keys(space.layout, tokens)
        if by_ring:
            pages = claim(space, ring, index, len(keys))
            space.fill(pages, keys)
            done = ring.publish(index, space.id, pages, keys, 10, PAGE_TOKENS)
            expect(all(c.status == kv.OK for c in done), done)
        else:
            space.publish(tokens)
        lines = ask_peer("lookup", daemon.path(), "mine", *tokens)
        expect(lines[0] == "90", lines[0])
        expect(lines[1:] == [b"".join(content(k, space.layout)).hex() for k in keys], "bytes that C finds")


@test()
def beside_a_worker(daemon: Daemon) -> None:
    lay = pb.NsLayout(model="test-model", version="1", dtype=1, n_layers=2, n_kv_heads=2, head_size=16, page_tokens=16,
                      n_planes=1, plane_page_bytes=4096, tp_size=1)
    worker = Worker()
    worker.tell(f"connect {daemon.path()}")
    worker.tell("open beside 1")
    worker.tell("cache 3 20")
    space, ring, index = share(daemon, "beside", lay)
    keys = [pattern_key(3, i) for i in range(20)]
    pages = index.lookup(keys)
    expect(len(pages) == 20 and space.lookup(keys) == pages, "what the worker published")
    for i, page in enumerate(pages):
        expect(space.read(page) == [pattern(3000 + i)], f"page {i} has other bytes")
    mine = claim(space, ring, index, 3)
    for i, page in enumerate(mine):
        space.write(page, [pattern(50 + i)])
    done = ring.publish(index, space.id, mine, [pattern_key(4, i) for i in range(3)], 16, PAGE_TOKENS)
    expect(all(c.status == kv.OK for c in done), done)
    expect(worker.tell("lookup 4:0-2") == mine, "what is published here")
    for i, page in enumerate(mine):
        worker.tell(f"verify {page} {50 + i}")
    worker.stop()


# -- what the daemon asks for --


@test()
def memory_taken_back(daemon: Daemon) -> None:
    space = Space(daemon.client(safepoints=True), "recall")
    pages, keys = space.publish(TOKENS[:32])
    number = pages[0] // space.reply.set_pages
    reply = space.connection.ask("UNMAPPED", ns_id=space.id, set_index=number)
    expect(reply.status == kv.BUSY, reply)
    expect(daemon.admin().tell("ADMIN_RECALL", tenant="a", ns="recall", timeout_msec=60000).count >= 1, "sets")
    recall = space.connection.event("RECALL")
    expect((recall.ns_id, recall.set_index, recall.idle) == (space.id, number, False), recall)
    expect(0 < recall.timeout_msec <= 60000, recall)
    expect(space.lookup(keys) == [], "what is recalled is found")
    space.check(pages, keys)
    space.release(pages)
    recall = space.connection.event("RECALL")
    expect((recall.set_index, recall.idle) == (number, True), recall)
    space.unmap_set(number)
    space.connection.tell("UNMAPPED", ns_id=space.id, set_index=number)
    expect(space.connection.ask("MAP", ns_id=space.id, set_index=number).status == kv.NOT_FOUND, "it is unbound")
    # Cached pages go below first, and count as held until they are there.
    space, _, _ = share(daemon, "recall")
    pages, keys = space.publish(TOKENS[:32])
    space.release(pages)
    daemon.admin().tell("ADMIN_RECALL", tenant="a", ns="recall")
    while not space.connection.event("RECALL").idle:
        pass
    space.unmap_set(pages[0] // space.reply.set_pages)
    space.connection.tell("UNMAPPED", ns_id=space.id, set_index=pages[0] // space.reply.set_pages)


@test("daemon.liveness=challenge")
def who_asks(daemon: Daemon) -> None:
    connection = daemon.connect()
    reply = connection.tell("HELLO", min_version=1, max_version=1)
    expect(reply.auth_required, reply)
    nonce = connection.event("CHALLENGE").nonce
    expect(connection.ask("NS_OPEN", name="auth", layout=layout()).status == kv.DENIED, "before AUTH")
    connection.tell("AUTH", nonce=nonce)
    Space(connection, "auth").publish(TOKENS[:16])
    expect(connection.ask("AUTH", nonce=nonce).status == kv.INVALID, "AUTH twice")
    guesser = daemon.connect()
    guesser.tell("HELLO", min_version=1, max_version=1)
    expect(guesser.ask("AUTH", nonce=bytes(16)).status == kv.DENIED and hangs_up(guesser), "a guess")
    lent = daemon.connect()
    lent.tell("HELLO", min_version=1, max_version=1)
    nonce = lent.event("CHALLENGE").nonce

    def child() -> None:
        expect(lent.ask("AUTH", nonce=nonce).status == kv.DENIED, "another process")

    in_child(child)
    Space(daemon.client(), "auth").publish(TOKENS[16:40])


@contextmanager
def killed(daemon: Daemon, n_starts: int) -> Iterator[None]:
    """The daemon is killed, and its keeper starts the next one; the body runs while there may be none."""
    os.kill(daemon.admin().rows("ADMIN_STATUS")[0].pid, signal.SIGKILL)
    yield
    daemon.await_ready(n_starts)


@test()
def after_a_restart(daemon: Daemon) -> None:
    connection = daemon.connect()
    hello = connection.hello()
    expect(len(hello.resume_token) == 16, "it can't be resumed")
    space = Space(connection, "resume")
    ring = shared.Ring(connection)
    index = shared.Index(connection, space.id)
    session = connection.tell("SESSION_OPEN", ns_id=space.id, id=b"kept").session
    keys = kv.text_keys(space.layout, TOKENS[:48])
    pages = claim(space, ring, index, 4)
    space.fill(pages, keys)
    ring.publish(index, space.id, pages[:3], keys, 16, PAGE_TOKENS, session=session)
    granted = pages[3]
    pending = connection.seq + 1
    with killed(daemon, 2):
        space.check(pages, keys)  # nobody is asked
        expect(index.pin(keys[0]) == pages[0], "hits without a daemon")
        index.unpin(pages[0])
        ring.submit("FREE", space.id, tokens=1, body=struct.pack("<I", granted))
    resume = {"min_version": 1, "max_version": 1, "resume_client": hello.client_id, "pending": [pending]}
    stolen = daemon.connect().ask("HELLO", **resume, resume_token=bytes(16))
    expect(stolen.status == kv.LOST, stolen)
    tried = {v.rule: v.n for v in daemon.admin().tell("ADMIN_COUNTERS").violations}
    expect(tried["resume"] == 1, tried)
    again = daemon.connect()
    again.seq = connection.seq
    reply = again.tell("HELLO", **resume, resume_token=hello.resume_token)
    if reply.auth_required:
        again.tell("AUTH", nonce=again.event("CHALLENGE").nonce)
    expect(reply.client_id == hello.client_id and reply.group_token == hello.group_token, reply)
    expect(reply.resume_token != hello.resume_token and reply.boot_epoch != hello.boot_epoch, reply)
    expect(again.ask("LEASE", ns_id=space.id, n_pages=1).status == kv.INVALID, "before RESUMED")
    expect(again.tell("SESSION_OPEN", ns_id=space.id, id=b"kept", wanted=session).session == session, "its handle")
    again.tell("RESUME_NS", ns_id=space.id, mapped_sets=list(space.sets), shares=True)
    again.tell("RESUMED")
    ring.connection = space.connection = again
    ring.ring()
    while not (done := ring.take()):
        time.sleep(0.001)
    expect(done[0].status == kv.OK, "FREE while no daemon ran")
    reply, _ = again.reply("LEASE", again.send("LEASE", seq=pending, ns_id=space.id, n_pages=1))
    expect(reply.status == kv.OK, reply)
    found = index.lookup(keys)
    expect(found == pages[:3], "what was published")
    space.check(found, keys)
    expect(again.tell("SESSION_PAGES", ns_id=space.id, session=session, max=9).total == 3, "the session")
    # ADMIN_RELOAD puts in force what is there already; ADMIN_RESTART ends it in peace.
    restart = daemon.admin()
    reply = restart.tell("ADMIN_RELOAD")
    expect(not reply.changes and not reply.pending and not reply.errors, reply)
    reply = restart.tell("ADMIN_RESTART", check=True)
    expect(reply.keeps_state and reply.pages >= 3 and not reply.losses, reply)
    restart.tell("ADMIN_RESTART", force=True)
    daemon.await_ready(3)
    space = Space(daemon.client(), "resume")
    expect(space.lookup(keys) == pages[:3], "after the restart")
    space.check(pages[:3], keys)


@test()
def limits(daemon: Daemon) -> None:
    space = Space(daemon.client("b"), "limits")
    reply = space.connection.ask("LEASE", ns_id=space.id, n_pages=4097)
    expect(reply.status == kv.TOO_BIG, reply)
    reply = space.connection.ask("LEASE", ns_id=space.id, n_pages=2048)
    expect(reply.status == kv.QUOTA and reply.reason == 1 and not reply.pages, reply)
    expect("8" in reply.detail, reply.detail)
    taken = space.lease(64)
    reply = space.connection.ask("LEASE", ns_id=space.id, n_pages=0)
    expect(reply.status == kv.INVALID, reply)
    space.connection.tell("FREE", ns_id=space.id, pages=taken)


# ---- all of them ---------------------------------------------------------------------------------


def main() -> NoReturn:
    wanted, n_failed = sys.argv[6:], 0
    for fn, options in tests:
        if wanted and fn.__name__ not in wanted:
            continue
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="kvl-") as folder:
            daemon = Daemon(pathlib.Path(folder), *options)
            try:
                fn(daemon)
                daemon.stop()
            except Exception:
                n_failed += 1
                print(f"FAILED: {fn.__name__}\n{traceback.format_exc()}")
                print((daemon.folder / "log").read_text(errors="replace"))
            finally:
                daemon.process.kill()
                daemon.process.wait()
        print(f"{fn.__name__}: {time.monotonic() - begin:.1f} s", flush=True)
    problems = [] if wanted else nothing_is_left_out()
    print("\n".join(problems) if problems else f"{len(record.answered)} messages, {len(record.events)} events, "
          f"{len(record.submitted)} submissions: all of them answered")
    sys.exit(1 if n_failed or problems else 0)


if __name__ == "__main__":
    main()
