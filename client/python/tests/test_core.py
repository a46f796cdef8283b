"""Connections, namespaces, keys, and the life of pages."""

from __future__ import annotations

import array
import copy
import dataclasses
import gc
import hashlib
import logging
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import LAYOUT, Daemon, MakeDaemon, wait_until

import kvlease


def text(n_pages: int, seed: int = 0) -> bytes:
    """Keys of n full pages of some text."""
    return LAYOUT.keys(list(range(seed, seed + n_pages * LAYOUT.page_tokens)))


def key(keys: bytes, i: int) -> bytes:
    """Key i of some."""
    return keys[i * 32 : (i + 1) * 32]


def publish(
    ns: kvlease.Namespace, keys: bytes, fill: int = 7, session: kvlease.Session | None = None
) -> None:
    """Publishes pages of one byte, and lets them go."""
    with ns.lease(len(keys) // 32) as pages:
        for i in range(len(pages)):
            pages.write(i, bytes([fill]) * LAYOUT.plane_page_bytes)
        with ns.publish(pages, keys, session=session) as done:
            assert len(done) == len(keys) // 32


def test_connection_says_who_it_is(connection: kvlease.Connection) -> None:
    assert connection.tenant == "a"
    assert connection.client_id > 0
    assert len(connection.group_token) == 16
    assert connection.fileno() >= 0
    assert connection.is_connected
    assert not connection.is_closed
    assert connection.dispatch() >= 0
    assert connection.safepoint() == 0
    assert connection.wants_write in (True, False)


def test_no_daemon(tmp_path: Path) -> None:
    with pytest.raises(kvlease.Unreachable) as caught:
        kvlease.connect(tmp_path / "none", timeout=1)
    assert str(tmp_path / "none") in str(caught.value)
    assert isinstance(caught.value, ConnectionError)
    assert isinstance(caught.value, kvlease.Error)
    assert caught.value.code < 0


def test_use_after_close(shared_daemon: Daemon) -> None:
    with kvlease.connect(shared_daemon.socket) as conn:
        ns = conn.namespace("closing", LAYOUT)
        with ns:
            pages = ns.lease(2)
        with pytest.raises(kvlease.Closed):
            ns.lookup(text(1))
        assert pages.is_closed
        pages.close()
    assert conn.is_closed
    conn.close()
    with pytest.raises(kvlease.Closed):
        _ = conn.tenant
    with pytest.raises(kvlease.Closed):
        conn.namespace("x", LAYOUT)


def test_arguments(shared_daemon: Daemon, namespace: kvlease.Namespace) -> None:
    with pytest.raises(TypeError, match="has no argument 'what'"):
        kvlease.connect(what=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        kvlease.connect("a", "b")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="needs 'keys'"):
        namespace.lookup()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="two values"):
        namespace.lookup(b"", keys=b"")  # type: ignore[misc]
    with pytest.raises(ValueError, match="32 bytes"):
        namespace.lookup(b"x" * 33)
    with pytest.raises(ValueError, match="32 bytes"):
        namespace.lookup([b"x" * 31])
    with pytest.raises(kvlease.Invalid):
        namespace.lease(0)
    with pytest.raises(kvlease.Invalid):
        namespace.lease(4097)
    with pytest.raises(ValueError, match="from 0 to"):
        namespace.lease(-1)
    with pytest.raises(ValueError, match="group_token"):
        kvlease.connect(shared_daemon.socket, group_token=b"short")
    with pytest.raises(kvlease.Invalid, match="secret"):
        kvlease.connect(shared_daemon.socket, group_secret=b"short")
    with pytest.raises(ValueError, match="timeout"):
        kvlease.connect(shared_daemon.socket, timeout=-1)
    with pytest.raises(ValueError, match="NUL"):
        kvlease.connect(shared_daemon.socket, client_name="a\0b")


def test_layout_mismatch(connection: kvlease.Connection, namespace: kvlease.Namespace) -> None:
    other = kvlease.Layout("test", kvlease.DType.F16, 2, 1, 64, 16, 8192)
    with pytest.raises(kvlease.Busy):
        connection.namespace(namespace.name, LAYOUT)
    name = namespace.name
    namespace.close()
    with pytest.raises(kvlease.LayoutMismatch) as caught:
        connection.namespace(name, other)
    assert "8192" in str(caught.value)
    assert caught.value.reason == "layout"
    with pytest.raises(kvlease.NotFound):
        connection.namespace(name, LAYOUT, device="GPU-none")


def test_info(namespace: kvlease.Namespace) -> None:
    info = namespace.info
    assert info.device == "host"
    assert info.is_cpu_memory
    assert info.is_contiguous
    assert (info.page_tokens, info.n_planes, info.plane_page_bytes) == (16, 1, 4096)
    assert info.tiers[0].tier == kvlease.Tier.DEVICE
    assert info.tiers[0].n_pages <= info.capacity_pages
    assert namespace.connection.tenant == "a"


def test_keys_of_all_kinds_of_tokens() -> None:
    tokens = list(range(40))
    wanted = LAYOUT.keys(tokens)
    assert len(wanted) == 2 * 32
    kinds: list[Any] = [
        tuple(tokens),
        array.array("I", tokens),
        array.array("i", tokens),
        array.array("q", tokens),
        array.array("I", tokens).tobytes(),
        np.array(tokens),
        np.array(tokens, dtype=np.uint32),
        np.array(tokens, dtype=np.int32),
        np.array(tokens, dtype=np.uint64),
    ]
    for kind in kinds:
        assert LAYOUT.keys(kind) == wanted
    assert len(LAYOUT.keys(tokens, partial=True)) == 3 * 32
    assert LAYOUT.keys(tokens, partial=True)[:64] == wanted
    assert LAYOUT.keys([]) == b""
    # A chain: the second key is that of its tokens after the first.
    assert LAYOUT.keys(tokens[16:32], parent=wanted[:32]) == wanted[32:]
    assert (
        LAYOUT.root_key()
        != kvlease.Layout("other", kvlease.DType.F16, 1, 1, 64, 16, 4096).root_key()
    )


def test_format() -> None:
    layout = dataclasses.replace(LAYOUT, format="vllm 0.33 flash NHD")
    same = dataclasses.replace(LAYOUT, format=b"vllm 0.33 flash NHD")
    assert layout.root_key() != LAYOUT.root_key()
    assert layout.root_key() == same.root_key()
    assert dataclasses.replace(LAYOUT, format=b"").root_key() == LAYOUT.root_key()
    assert dataclasses.replace(LAYOUT, format=b"\0").root_key() != LAYOUT.root_key()
    with pytest.raises(kvlease.Invalid, match="format_bytes is 65"):
        dataclasses.replace(LAYOUT, format="x" * 65).root_key()
    with pytest.raises(TypeError):
        wrong: Any = 7
        dataclasses.replace(LAYOUT, format=wrong).root_key()


def test_format_of_a_namespace(connection: kvlease.Connection) -> None:
    with connection.namespace("formats", dataclasses.replace(LAYOUT, format=b"NHD")):
        pass
    with pytest.raises(kvlease.LayoutMismatch, match="another format"):
        connection.namespace("formats", dataclasses.replace(LAYOUT, format="HND"))


def test_no_name(connection: kvlease.Connection) -> None:
    layout = dataclasses.replace(LAYOUT, model="org/no name")
    assert layout.name().startswith("org_no_name@") and len(layout.name()) == 24
    assert dataclasses.replace(layout, version="2").name() == layout.name()
    with connection.namespace(layout=layout) as ns:
        assert ns.name == layout.name()
        with pytest.raises(kvlease.Busy):
            connection.namespace("", layout)
    with connection.namespace(None, layout) as ns:
        assert ns.name == layout.name()
    with pytest.raises(TypeError, match="layout"):
        connection.namespace("only")  # type: ignore[call-overload]


def test_leasable_pages(shared_daemon: Daemon, namespace: kvlease.Namespace) -> None:
    def is_about(n: int) -> bool:
        # Other tests' namespaces are of the same tenant; any request makes the daemon look.
        with kvlease.connect(shared_daemon.socket):
            return namespace.leasable_pages() == n

    before = namespace.leasable_pages()
    assert before > 8
    wait_until(lambda: is_about(before))
    with namespace.lease(5):
        wait_until(lambda: is_about(before - 5))
    wait_until(lambda: is_about(before))
    namespace.close()
    with pytest.raises(kvlease.Closed):
        namespace.leasable_pages()


def test_check_room(make_daemon: MakeDaemon) -> None:
    """What can't ever be held together, however little is held now."""
    daemon = make_daemon(device="memory = 64MiB\nextent = 2MiB", tenant="limit = 4MiB")
    with kvlease.connect(daemon.socket) as connection:
        namespace = connection.namespace("n", LAYOUT)
        n_most = 4 * 2**20 // namespace.info.stride_bytes
        namespace.check_room(n_most)
        with pytest.raises(kvlease.Quota, match=r"limit of 4 MiB of tenant a.* limit=6MiB"):
            namespace.check_room(n_most + 1)
        with pytest.raises(ValueError, match="number of pages"):
            namespace.check_room(0)
        with pytest.raises(ValueError, match="2\\*\\*32"):
            namespace.check_room(-1)
        namespace.close()
        with pytest.raises(kvlease.Closed):
            namespace.check_room(1)


def test_expect(shared_daemon: Daemon, namespace: kvlease.Namespace) -> None:
    keys = text(3)
    n_before = shared_daemon.figure("expected")
    assert namespace.expect(keys)  # nothing of it is cached
    assert namespace.expect(b"")
    with namespace.lease(3) as pages, namespace.publish(pages, keys):
        pass
    assert namespace.expect(keys, 5)
    assert namespace.expect(keys, ttl=None)
    wait_until(lambda: shared_daemon.figure("expected") == n_before + 2)
    with pytest.raises(ValueError, match="seconds"):
        namespace.expect(keys, ttl=-1)
    with pytest.raises(ValueError, match="600000"):
        namespace.expect(keys, ttl=601)
    namespace.close()
    with pytest.raises(kvlease.Closed):
        namespace.expect(keys)


def test_bad_tokens() -> None:
    for bad in ([-1], [1 << 32], np.array([-1]), np.array([1 << 40]), np.array([-3], np.int32)):
        with pytest.raises(ValueError, match="2\\*\\*32"):
            LAYOUT.keys(bad)
    with pytest.raises(TypeError):
        LAYOUT.keys(np.array([1.0]))
    with pytest.raises(TypeError):
        LAYOUT.keys(["a"])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        LAYOUT.keys(np.arange(40)[::2].astype(np.int16))
    with pytest.raises(ValueError, match="page_tokens"):
        kvlease.chain_keys(b"\0" * 32, [1], 0)
    with pytest.raises(ValueError, match="parent"):
        kvlease.chain_keys(b"\0" * 64, [1], 16)


def test_life_of_pages(namespace: kvlease.Namespace) -> None:
    keys = text(3)
    assert len(namespace.lookup(keys)) == 0
    assert not namespace.lookup(keys)
    assert namespace.probe(keys) == b""
    with namespace.request() as request, namespace.lease(4, request) as pages:
        assert request.id > 0
        assert pages.state == "leased"
        assert len(pages) == len(set(pages)) == 4
        for i in range(3):
            pages.write(i, bytes([i + 1]) * 4096)
        numbers = pages.numbers
        with namespace.publish(pages, keys, request=request) as done:
            assert done.state == "pinned"
            assert done.numbers == numbers[:3]
            assert pages.numbers == numbers[3:]
    assert pages.is_closed and done.is_closed
    assert namespace.probe(keys) == bytes([kvlease.Tier.DEVICE] * 3)
    # Keys as one buffer, a sequence of buffers, an array.
    for form in (
        keys,
        [key(keys, i) for i in range(3)],
        np.frombuffer(keys, np.uint8),
        bytearray(keys),
    ):
        with namespace.lookup(form) as found:
            assert found.n_tokens == 48
            assert found.numbers == numbers[:3]
            assert [found.read(i, 2) for i in range(3)] == [b"\1\1", b"\2\2", b"\3\3"]
            assert found.tier(0) == namespace.page_tier(found[0]) == kvlease.Tier.DEVICE
    with namespace.find(keys) as found:
        assert len(found) == 3
    assert namespace.invalidate(key(keys, 1)) == 2
    with namespace.lookup(keys) as found:
        assert len(found) == 1
    assert namespace.invalidate() == 1


def test_duplicate_keeps_ones_own(namespace: kvlease.Namespace) -> None:
    keys = text(2)
    publish(namespace, key(keys, 0))
    with namespace.lease(2) as pages:
        own = pages.numbers
        with namespace.publish(pages, keys) as done:
            assert done[0] != own[0]
            assert done[1] == own[1]
            assert pages.numbers == own[:1]
            assert pages.state == "leased"


def test_publish_without_parent(namespace: kvlease.Namespace) -> None:
    keys = text(3)
    with namespace.lease(1) as pages:
        with pytest.raises(kvlease.NoParent) as caught:
            namespace.publish(pages, key(keys, 2), parent=key(keys, 1))
        assert len(caught.value.published) == 0
        assert len(pages) == 1
        with pytest.raises(ValueError, match="2 keys for 1 pages"):
            namespace.publish(pages, keys[:64])
        with pytest.raises(ValueError, match="parent"):
            namespace.publish(pages, keys[:32], parent=keys)
        publish(namespace, keys[:64])
        with namespace.publish(pages, key(keys, 2), parent=key(keys, 1), last_tokens=5):
            pass
    with namespace.lookup(keys) as found:
        assert found.n_tokens == 37


def test_window_passed(make_daemon: MakeDaemon) -> None:
    """Such pages go before older ones; a page that was found meanwhile stays."""
    daemon = make_daemon(tenant="limit = 2MiB")
    with kvlease.connect(daemon.socket) as connection:
        namespace = connection.namespace("windows", LAYOUT)
        n_pages = namespace.leasable_pages()
        kept, passed = text(n_pages // 4), text(n_pages // 4, 1)
        with namespace.lease(n_pages // 4) as pages:
            namespace.publish(pages, kept).close()
        for i in range(len(passed) // 32):
            with namespace.lease(1) as pages:
                namespace.publish(pages, key(passed, i), window_passed=True).close()
        with namespace.lookup(key(passed, 0)) as pages:
            assert len(pages) == 1
        with namespace.lease(n_pages * 5 // 8):
            with namespace.lookup(kept) as pages:
                assert len(pages) == n_pages // 4
            with namespace.lookup(key(passed, 0)) as pages:
                assert len(pages) == 1
            assert not namespace.lookup(key(passed, 1))


def test_token_ids(namespace: kvlease.Namespace) -> None:
    """As many as the pages have tokens, of a list or an array; tests/engines/events shows what
    routers get of them."""
    tokens = list(range(21))
    keys = LAYOUT.keys(tokens, partial=True)
    with namespace.lease(2) as pages:
        for wrong in (tokens[:20], [*tokens, 1], [-1] * 21, [1 << 32] * 21, ["a"] * 21, 1):
            with pytest.raises((ValueError, TypeError, OverflowError)):
                namespace.publish(pages, keys, last_tokens=5, token_ids=wrong)  # type: ignore[arg-type]
        assert len(pages) == 2
        namespace.publish(pages, keys, last_tokens=5, token_ids=tokens).close()
    with namespace.lease(1) as pages:
        last = LAYOUT.keys(range(16), parent=keys[:32])
        namespace.publish(
            pages, last, parent=keys[:32], token_ids=array.array("I", range(16))
        ).close()
    assert len(namespace.probe(keys)) == 2


def test_pins_are_counted(namespace: kvlease.Namespace) -> None:
    keys = text(2)
    publish(namespace, keys)
    found = namespace.lookup(keys)
    fork = found.pin()
    assert fork.numbers == found.numbers
    found.close()
    numbers = fork.detach()
    assert fork.is_closed
    namespace.pin(numbers)
    namespace.release(numbers)
    namespace.release(numbers)
    with pytest.raises(kvlease.Invalid):
        namespace.release(numbers)
    with pytest.raises(kvlease.Invalid):
        namespace.pin(numbers)


def test_numbers_and_adoption(namespace: kvlease.Namespace) -> None:
    numbers = namespace.lease(4).detach()
    first = namespace.adopt(numbers, "leased")
    with first.take(1) as one:
        assert one.numbers == numbers[:1]
        assert first.numbers == numbers[1:]
    rest = first.detach()
    namespace.free(np.array(rest[:2], np.uint32))
    assert namespace.report(rest[2:]) == 0
    assert namespace.report([]) == 1
    with pytest.raises(kvlease.Invalid):
        namespace.free(rest)
    with pytest.raises(ValueError, match="state"):
        namespace.adopt([], "x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="4 bytes"):
        namespace.free(np.array([1], np.uint64))


def test_group_maps_what_a_member_leased(shared_daemon: Daemon) -> None:
    secret = b"sixteen bytes or more"
    with (
        kvlease.connect(shared_daemon.socket, group_secret=secret) as one,
        kvlease.connect(shared_daemon.socket, group_token=one.group_token) as two,
        kvlease.connect(shared_daemon.socket, group_secret=secret, metadata_only=True) as three,
        one.namespace("group", LAYOUT) as a,
        two.namespace("group", LAYOUT) as b,
        three.namespace("group", LAYOUT) as c,
    ):
        with a.lease(1) as pages:
            pages.write(0, b"from one")
            with b.adopt(pages.numbers, "mapped") as mapped:
                assert mapped.read(0, 8) == b"from one"
                with pytest.raises(kvlease.Denied):
                    mapped.write(0, b"x")
            with pytest.raises(kvlease.Denied):
                c.adopt(pages.numbers, "mapped")
            with c.adopt(pages.detach(), "leased") as taken:
                assert taken.state == "leased"
        assert three.tenant == "a"
    with pytest.raises(kvlease.NotFound):
        kvlease.connect(shared_daemon.socket, group_token=b"\1" * 16)


def test_full_and_quota(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(device="memory = 8MiB\nextent = 2MiB", tenant="limit = 4MiB")
    with kvlease.connect(daemon.socket) as conn, conn.namespace("n", LAYOUT) as ns:
        with ns.lease(1024), pytest.raises(kvlease.Quota) as caught:
            ns.lease(1, max_wait=0)
        assert caught.value.reason == "quota"
        assert str(caught.value)
        assert issubclass(kvlease.Full, kvlease.Error)


def test_copy_page(namespace: kvlease.Namespace) -> None:
    keys = text(1)
    publish(namespace, keys, fill=9)
    with namespace.lookup(keys) as found, namespace.lease(1) as pages:
        pages.copy_page(0, found, 0)
        assert pages.read(0) == b"\x09" * 4096
        with pytest.raises(kvlease.Invalid):
            found.copy_page(0, pages, 0)
        with pytest.raises(kvlease.Denied):
            found.write(0, b"x")
        with pytest.raises(IndexError):
            pages.write(1, b"x")
        with pytest.raises(kvlease.Invalid):
            pages.write(0, b"xx", offset=4095)
        with pytest.raises(kvlease.Invalid):
            pages.read(0, plane=1)
        pages.write(-1, b"end", offset=4093)
        assert pages.read(0, offset=4090) == b"\x09\x09\x09end"


def test_invalidate_tag(namespace: kvlease.Namespace) -> None:
    keys = text(1)
    with namespace.lease(1) as pages, namespace.publish(pages, keys, tag=5):
        pass
    assert namespace.invalidate(tag=4) == 0
    assert namespace.invalidate(tag=5) == 1
    with pytest.raises(kvlease.Invalid):
        namespace.invalidate(tag=0)
    with pytest.raises(TypeError):
        namespace.invalidate(keys, tag=1)


def test_stale(shared_daemon: Daemon) -> None:
    newer = kvlease.Layout("test", kvlease.DType.F16, 1, 1, 64, 16, 4096, version="2")
    with (
        kvlease.connect(shared_daemon.socket) as conn,
        kvlease.connect(shared_daemon.socket) as other,
    ):
        with conn.namespace("versions", LAYOUT) as ns, other.namespace("versions", newer) as new:
            assert new.info.epoch != ns.info.epoch
            with pytest.raises(kvlease.Stale):
                ns.lookup(text(1))
            with pytest.raises(kvlease.Stale):
                ns.lease(1)


def test_forgotten_objects_are_given_back(shared_daemon: Daemon) -> None:
    conn = kvlease.connect(shared_daemon.socket)
    ns = conn.namespace("forgotten", LAYOUT)
    with pytest.warns(ResourceWarning, match="2, leased"):
        ns.lease(2)
    assert ns.report([]) == 0
    with pytest.warns(ResourceWarning, match="Namespace"):
        del ns
    with pytest.warns(ResourceWarning, match="Connection"):
        del conn
        gc.collect()


def test_events_are_logged(shared_daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    with (
        kvlease.connect(shared_daemon.socket) as conn,
        conn.namespace("log", LAYOUT),
        kvlease.connect(shared_daemon.socket, group_token=conn.group_token) as other,
        caplog.at_level(logging.INFO, "kvlease"),
    ):
        other.close()
        for _ in range(1000):
            conn.dispatch()
            if caplog.records:
                break
    assert [r.name for r in caplog.records] == ["kvlease"]
    assert "member_left" in caplog.text


def test_keys_chain() -> None:
    tokens = list(range(100, 132))
    keys = LAYOUT.keys(tokens)
    parent = LAYOUT.root_key()
    for i in range(2):
        page = struct.pack("<16I", *tokens[16 * i : 16 * i + 16])
        digest = hashlib.sha256(page[:-32] + b"kvlease page tokens 3").digest()
        parent = hashlib.sha256(parent + digest + page[-32:] + b"kvlease chain key 3").digest()
        assert key(keys, i) == parent


def test_keys_with_a_memo() -> None:
    memo = kvlease.key_memo(16, max_bytes=1 << 20)
    tokens = np.arange(100_000, dtype=np.uint32)
    for n in (1000, 1000, 5000, 4990, 5010, 100_000, 1000):
        assert LAYOUT.keys(tokens[:n], memo=memo) == LAYOUT.keys(tokens[:n])
        assert LAYOUT.keys(tokens[:n], memo=memo, partial=True) == LAYOUT.keys(
            tokens[:n], partial=True
        )
        tokens[n - 1] += 1
    other = b"\1" * 32
    assert LAYOUT.keys(tokens, parent=other, memo=memo) == LAYOUT.keys(tokens, parent=other)
    with pytest.raises(ValueError, match="pages of 16 tokens, not 32"):
        kvlease.chain_keys(other, tokens, 32, memo=memo)
    with pytest.raises(TypeError, match="KeyMemo"):
        LAYOUT.keys(tokens, memo=object())  # type: ignore[arg-type]
    for page_tokens, max_bytes in (0, 1 << 20), (1025, 1 << 20), (16, 0):
        with pytest.raises(kvlease.Invalid):
            kvlease.key_memo(page_tokens, max_bytes=max_bytes)
    with pytest.raises(TypeError):
        kvlease.KeyMemo()


def test_nothing_live_is_pickled(namespace: kvlease.Namespace) -> None:
    """Plain data alone can be sent to other processes."""
    keys = text(1)
    with (
        namespace.lease(1) as pages,
        pages.page(0) as view,
        namespace.session("pickled") as session,
        namespace.request() as request,
        namespace.window() as window,
    ):
        live = (namespace.connection, namespace, pages, view, session, request, window)
        for thing in (*live, kvlease.key_memo(16)):
            for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
                with pytest.raises(TypeError, match="cannot pickle"):
                    pickle.dumps(thing, protocol)
            for function in (copy.copy, copy.deepcopy):
                with pytest.raises(TypeError, match="cannot pickle"):
                    function(thing)
            with pytest.raises(TypeError, match="cannot create"):
                type(thing)()
        session.close(drop=True)
        for plain in (LAYOUT, namespace.info, pages.numbers, namespace.explain(keys)):
            assert pickle.loads(pickle.dumps(plain)) == plain


def test_wrong_numbers_drop_the_namespace(make_daemon: MakeDaemon) -> None:
    """The tenant's count says so; a key or a tag can't be given as well."""
    daemon = make_daemon()
    with kvlease.connect(daemon.socket) as connection:
        namespace = connection.namespace("n", LAYOUT)
        publish(namespace, text(2))
        for wrong in ({"key": key(text(1), 0)}, {"tag": 7}):
            with pytest.raises(TypeError, match="mismatch alone"):
                namespace.invalidate(mismatch=True, **wrong)
        assert namespace.invalidate(mismatch=True) == 2
        (tenant,) = daemon.ctl_json("tenants")["tenants"]
        assert tenant["verify_failures"] == 1
