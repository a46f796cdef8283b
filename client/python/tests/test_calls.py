"""Sessions, single flight, sets, windows, explain, events, streams, and what a lookup costs."""

from __future__ import annotations

import dataclasses
import os
import struct
import threading
import time
from collections.abc import Callable

import pytest
from conftest import LAYOUT, Daemon, MakeDaemon, wait_until
from test_core import key, publish, text

import kvlease
from kvlease import bench


def test_session(namespace: kvlease.Namespace) -> None:
    keys = text(3)
    with namespace.session("chat") as session:
        assert session.info.is_new
        assert session.info.last_key is None
        assert len(session.pages()) == 0
        session.hint(kvlease.Hint.RETURNS, after=1.5)
        with namespace.lease(3) as pages:
            namespace.publish(pages, keys, last_tokens=4, session=session).close()
    with namespace.session(b"chat", must_exist=True, expire=60) as session:
        info = session.info
        assert (info.is_new, info.n_pages, info.n_tokens) == (False, 3, 36)
        assert info.last_key == key(keys, 2)
        with session.pages() as pages:
            assert len(pages) == 3
            assert pages.n_tokens == 36
            assert pages.spans
            assert [(s.first_token, s.n_tokens) for s in pages.spans] == [
                (0, 16),
                (16, 16),
                (32, 4),
            ]
            assert b"".join(s.key for s in pages.spans) == keys
        with session.pages(1, 1) as pages:
            assert len(pages) == 1
        assert session.truncate(16, 4) == 1
        with session.pages() as pages:
            assert pages.spans
            assert [s.first_token for s in pages.spans] == [0, 32]
        assert session.keep([(0, 16), (32, None)]) == 0
        with pytest.raises(kvlease.Invalid, match="given up"):
            session.keep([(0, 17), (32, None)])
        with pytest.raises(kvlease.Invalid, match="ascend"):
            session.keep([(32, 36), (0, 16)])
        for wrong in ([], [(0, 1)] * 1025):
            with pytest.raises(kvlease.Invalid, match="1 to 1024"):
                session.keep(wrong)
        for pair in ((0,), (0, 1, 2)):
            with pytest.raises(ValueError):
                session.keep([pair])  # type: ignore[list-item]
        with pytest.raises(TypeError):
            session.keep([(0, "1")])  # type: ignore[list-item]
        assert session.keep(((32, 36),)) == 1
        with session.pages() as pages:
            assert pages.spans
            assert [s.first_token for s in pages.spans] == [32]
        session.close(drop=True)
        with pytest.raises(kvlease.Closed):
            session.pages()
    with pytest.raises(kvlease.NotFound):
        namespace.session("chat", must_exist=True)
    with pytest.raises(kvlease.Invalid):
        namespace.session("x" * 65)


def test_single_flight(shared_daemon: Daemon, namespace: kvlease.Namespace) -> None:
    keys = text(2)
    with (
        kvlease.connect(shared_daemon.socket) as other,
        other.namespace(namespace.name, LAYOUT) as mine,
        namespace.lease(2) as pages,
        mine.lease(2) as own,
    ):
        assert namespace.announce(pages, keys) == (2, None)
        assert mine.announce(own, keys) == (0, "pending")
        with pytest.raises(kvlease.Timeout):
            mine.wait(keys[:32], 0.05)
        with mine.lookup_wait(keys, 0.05) as found:
            assert len(found) == 0
            assert found.is_pending
        assert mine.explain(keys)[0].state == kvlease.ExplainState.PENDING

        timer = threading.Timer(0.05, lambda: namespace.publish(pages, keys).close())
        timer.start()
        with mine.lookup_wait(keys, 60) as found:
            assert len(found) == 2
            assert not found.is_pending
        timer.join()
        assert mine.wait(keys[:32], 1) is True
        assert mine.announce(own, keys) == (0, "cached")
        assert mine.wait(b"\5" * 32, 1) is False
        with pytest.raises(ValueError, match="one key"):
            mine.wait(keys, 1)
        with pytest.raises(ValueError, match="3 keys"):
            mine.announce(own, text(3))


def test_explain(namespace: kvlease.Namespace) -> None:
    keys = text(2)
    publish(namespace, key(keys, 0))
    cached, never = namespace.explain(keys)
    assert cached.state == kvlease.ExplainState.CACHED
    assert cached.page is not None
    assert cached.tier == kvlease.Tier.DEVICE
    assert cached.client_id == namespace.connection.client_id
    assert never.state == kvlease.ExplainState.NEVER_SEEN
    assert never.page is None
    assert namespace.explain(b"") == []
    with pytest.raises(kvlease.Invalid, match="256"):
        namespace.explain(text(257))


def test_namespace_sets(connection: kvlease.Connection) -> None:
    keys = text(3)
    with (
        connection.namespace("rank0", LAYOUT, set="ranks", set_size=2) as one,
        connection.namespace("rank1", LAYOUT, set="ranks", set_size=2) as two,
    ):
        publish(one, keys)
        assert [len(pages) for pages in kvlease.lookup_set([one, two], keys)] == [0, 0]
        publish(two, keys[:64])
        with_both = kvlease.lookup_set([one, two], keys)
        assert [len(pages) for pages in with_both] == [2, 2]
        assert [pages.namespace for pages in with_both] == [one, two]
        assert with_both[0].n_tokens == 32
        for pages in with_both:
            pages.close()
        with pytest.raises(TypeError):
            kvlease.lookup_set([], keys)
        with pytest.raises(TypeError):
            kvlease.lookup_set([one, None], keys)  # type: ignore[list-item]
        one.invalidate()
        two.invalidate()


def test_sessions_of_a_set(connection: kvlease.Connection) -> None:
    """Of one conversation a group of layers keeps other pages than the next one."""
    keys = text(6)
    kept: dict[str, list[tuple[int, int | None]]] = {
        "full": [(0, 32), (48, None)],
        "sliding": [(0, 16), (64, None)],
    }
    expected = {"full": [0, 16, 48, 64, 80], "sliding": [0, 64, 80]}
    with (
        connection.namespace("full", LAYOUT, set="layers", set_size=2) as full,
        connection.namespace("sliding", LAYOUT, set="layers", set_size=2) as sliding,
    ):
        for ns in (full, sliding):
            with ns.session("chat") as session, ns.lease(6) as pages:
                ns.publish(pages, keys, last_tokens=16, session=session).close()
        for name, ns in (("full", full), ("sliding", sliding)):
            with ns.session("chat", must_exist=True) as session:
                assert session.keep(kept[name]) == 6 - len(expected[name])
        for name, ns in (("full", full), ("sliding", sliding)):
            with ns.session("chat", must_exist=True) as session, session.pages() as pages:
                assert pages.spans
                assert [s.first_token for s in pages.spans] == expected[name]
        # What all of them have by key is what the shortest head has.
        found = kvlease.lookup_set([full, sliding], keys)
        assert [len(pages) for pages in found] == [1, 1]
        for pages in found:
            pages.close()
        full.invalidate()
        sliding.invalidate()


def number_of(number: int) -> bytes:
    return number.to_bytes(4, "little")


def publish_numbered(ns: kvlease.Namespace, keys: bytes, *contents: Callable[[int], bytes]) -> None:
    """Each page has its number, or what `contents` make of it, one for each plane; slowly, so that
    what gives way goes down instead of being lost."""
    n = len(keys) // 32
    end = time.monotonic() + 60
    while (i := len(ns.probe(keys))) < n:
        assert time.monotonic() < end
        with ns.lease(min(10, n - i)) as pages:
            for j in range(len(pages)):
                for plane, content in enumerate(contents or (number_of,)):
                    pages.write(j, content(i + j), plane=plane)
            parent = key(keys, i - 1) if i else None
            try:
                ns.publish(pages, keys[32 * i : 32 * (i + len(pages))], parent=parent).close()
            except kvlease.NoParent as error:  # lost all the same: it is published again
                error.published.close()
        time.sleep(0.005)


def test_tiers_and_windows(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(
        device="memory = 2MiB\nextent = 2MiB\nhost_memory = 16MiB", tenant="limit = 2MiB"
    )
    with kvlease.connect(daemon.socket) as conn, conn.namespace("n", LAYOUT) as ns:
        keys = text(600)
        publish_numbered(ns, keys)
        tiers = ns.probe(keys)
        assert len(tiers) == 600
        assert kvlease.Tier.HOST in tiers
        with ns.find(keys) as found:
            assert {found.tier(i) for i in range(600)} == {kvlease.Tier.DEVICE, kvlease.Tier.HOST}
            low = tiers.index(kvlease.Tier.HOST)
            with found.page(low) as view:
                assert bytes(memoryview(view)[:4]) == low.to_bytes(4, "little")
                assert view.is_read_only
            numbers = found.detach()
        with ns.adopt(numbers[low : low + 1], "pinned") as one:
            try:
                one.fetch()
                assert one.tier(0) == kvlease.Tier.DEVICE
                assert one.numbers != numbers[low : low + 1]
            except kvlease.Full:
                assert one.numbers == numbers[low : low + 1]
            assert one.read(0, 4) == low.to_bytes(4, "little")
        with ns.adopt(numbers[:low] + numbers[low + 1 :], "pinned"):
            pass
        with ns.window(first_tokens=16, last_tokens=32, chunk_pages=8) as window:
            window.append(ns.find(keys))
            assert len(window.pages) == 600
            at = 0
            while at < 600:
                taken = window.take(at, 16)
                with taken.page(0) as view:
                    assert bytes(memoryview(view)[:4]) == at.to_bytes(4, "little")
                    with pytest.raises(BufferError):
                        window.take(at, 16)
                    with pytest.raises(BufferError):
                        window.close()
                at += len(taken)
            assert at == 600
            assert window.take(0, 1) and taken.is_closed
        with pytest.raises(kvlease.Closed):
            window.take(0, 1)


PLANES = dataclasses.replace(LAYOUT, n_layers=3, n_planes=3)


def content_of_plane(plane: int) -> Callable[[int], bytes]:
    """Which page and which plane it is, all over."""
    return lambda number: (number * 4 + plane).to_bytes(4, "little") * 1024


def test_windows_by_planes(make_daemon: MakeDaemon) -> None:
    """Planes that are taken have the text's bytes; those that aren't are left alone."""
    daemon = make_daemon(
        device="memory = 6MiB\nextent = 2MiB\nhost_memory = 32MiB", tenant="limit = 6MiB"
    )
    contents = [content_of_plane(plane) for plane in range(3)]
    n = 600
    with kvlease.connect(daemon.socket) as conn, conn.namespace("n", PLANES) as ns:
        keys = text(n)
        publish_numbered(ns, keys, *contents)
        with ns.window(first_tokens=16, last_tokens=32, chunk_pages=4) as window:
            found = ns.find(keys)
            window.append(found.take(n - 1))
            window.append(found)  # what the call before has begun to send down is there now
            buffer: set[int] = set()
            copied = set(range(n))
            for plane, content in enumerate(contents):
                at = 0
                while at < n:
                    taken = window.take(at, 16, first_plane=plane, n_planes=1)
                    in_place = set(window.pages)
                    for i, page in enumerate(taken):
                        assert taken.read(i, plane=plane) == content(at + i)
                        if page in in_place:
                            copied.discard(at + i)
                        else:
                            buffer.add(page)
                    at += len(taken)
            assert 0 < len(buffer) <= 8
            assert len(copied) > 16

            # What is ahead in the buffer is of plane 1, too.
            middle = sorted(copied)[len(copied) // 2]
            assert window.take(middle, 1, first_plane=1, n_planes=1)
            others = ns.adopt(sorted(buffer), "mapped")
            before = [others.read_many(first_plane=plane, n_planes=1) for plane in (0, 2)]
            for at in [*sorted(copied)[:3], middle]:
                taken = window.take(at, 1, first_plane=1, n_planes=1)
                assert taken.read(0, plane=1) == contents[1](at)
            assert [others.read_many(first_plane=plane, n_planes=1) for plane in (0, 2)] == before
            with ns.adopt(taken.numbers, "mapped") as same:
                assert same.read(0) != contents[0](middle)

            # They aren't given to anybody.
            taken = window.take(middle, 1, first_plane=1)
            assert taken.read_many(first_plane=1) == contents[1](middle) + contents[2](middle)
            with taken.page(0, 2) as view:
                assert bytes(memoryview(view)) == contents[2](middle)
            reads: list[Callable[[], object]] = [
                taken.read_many,
                taken.view,
                lambda: taken.read(0),
                lambda: taken.page(0),
                lambda: taken.read_many(first_plane=0, n_planes=2),
            ]
            for read in reads:
                with pytest.raises(kvlease.Invalid, match=r"take\(\) was of planes 1 to 2 alone"):
                    read()
            with ns.lease(1) as leased, pytest.raises(kvlease.Invalid, match="3 planes from 0 on"):
                leased.copy_page(0, taken, 0)
            assert window.take(middle, 1).read_many() == b"".join(c(middle) for c in contents)


def test_planes_that_no_page_has(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(device="memory = 6MiB\nextent = 2MiB", tenant="limit = 6MiB")
    with kvlease.connect(daemon.socket) as conn, conn.namespace("n", PLANES) as ns:
        keys = text(2)
        publish_numbered(ns, keys, *(content_of_plane(plane) for plane in range(3)))
        with ns.window(last_tokens=32) as window:
            window.append(ns.find(keys))
            for first, number in ((3, None), (3, 1), (2, 2), (0, 4), (2**32 - 1, 2)):
                with pytest.raises(kvlease.Invalid, match="have planes 0 to 2"):
                    window.take(0, 1, first_plane=first, n_planes=number)
            with pytest.raises(kvlease.Invalid, match="at least 1"):
                window.take(0, 1, n_planes=0)
            with pytest.raises(ValueError, match="first_plane must be"):
                window.take(0, 1, first_plane=-1)
            with pytest.raises(TypeError):
                window.take(0, 1, n_planes="1")  # type: ignore[arg-type]
            taken = window.take(0, 2, first_plane=1, n_planes=1)
            assert taken.read_many(first_plane=1, n_planes=1) == b"".join(
                content_of_plane(1)(page) for page in range(2)
            )
            with pytest.raises(kvlease.Error):
                taken.page(0, 3)


def test_view_below_the_device(make_daemon: MakeDaemon) -> None:
    """Where pages are encoded there, a view needs a fetch first, and says so."""
    daemon = make_daemon(
        device="memory = 2MiB\nextent = 2MiB\nhost_memory = 16MiB", tenant="limit = 2MiB"
    )
    with (
        kvlease.connect(daemon.socket) as conn,
        conn.namespace("n", LAYOUT, host_codec=kvlease.Codec.INT8) as ns,
    ):
        keys = text(600)
        publish_numbered(ns, keys)
        with ns.find(keys) as found:
            low = next(i for i in range(len(found)) if found.tier(i) == kvlease.Tier.HOST)
            with pytest.raises(kvlease.Error, match=r"below the device: fetch\(\)"):
                found.page(low)
            with pytest.raises(kvlease.Error, match="no such plane"):
                found.page(low, 1)


LAYERS = kvlease.Layout(
    model="test",
    dtype=kvlease.DType.F16,
    n_layers=2,
    n_kv_heads=1,
    head_size=64,
    page_tokens=16,
    plane_page_bytes=4096,
)


def page_of_layers(number: int) -> bytes:
    """The first layer's numbers tell the page, the second's are from -0.5 to 0.5."""
    first = number.to_bytes(4, "little") * 512
    return first + struct.pack("<1024e", *((i * 37 % 101 - 50) / 100 for i in range(1024)))


@pytest.mark.parametrize("by_tenant", [False, True])
def test_codecs_by_layer(make_daemon: MakeDaemon, by_tenant: bool) -> None:
    """What is exact comes back as it was, the rest nearly; a daemon that takes over knows."""
    codecs = "0:none,1-:int4"
    daemon = make_daemon(
        keep=True,
        device="memory = 2MiB\nextent = 2MiB\nhost_memory = 16MiB",
        tenant="limit = 2MiB" + (f"\nhost_codec = {codecs}" if by_tenant else ""),
    )
    with (
        kvlease.connect(daemon.socket) as conn,
        conn.namespace("n", LAYERS, host_codec=0 if by_tenant else codecs) as ns,
    ):
        assert ns.info.tiers[1].page_bytes < 4096 * 0.75
        keys = text(600)
        publish_numbered(ns, keys, page_of_layers)
        first, second = daemon.ctl_json("codecs")["codecs"]
        assert (first["codec"], first["first_layer"], first["last_layer"]) == ("none", 0, 0)
        assert (second["codec"], second["first_layer"], second["last_layer"]) == ("int4", 1, 1)
        assert (first["page_bytes"], first["stored_bytes"]) == (2048, 2048)
        assert (second["page_bytes"], second["stored_bytes"]) == (2048, 64 * 2 + 64 * 16 // 2)
        assert second["pages_encoded"] >= second["pages_sampled"] > 0
        assert first["error_ppm"] == 0
        assert 10_000 < second["error_ppm"] < 100_000
        daemon.kill()
        with ns.find(keys) as found:
            numbers = found.detach()
        low = ns.probe(keys).index(kvlease.Tier.HOST)
        ns.adopt(numbers[:low] + numbers[low + 1 :], "pinned").close()
        with ns.adopt(numbers[low : low + 1], "pinned") as page:
            page.fetch()
            assert page.tier(0) == kvlease.Tier.DEVICE
            is_now, was = page.read(0, 4096), page_of_layers(low)
        assert is_now[:2048] == was[:2048]
        errors = [
            abs(a - b)
            for a, b in zip(
                struct.unpack("<1024e", is_now[2048:]),
                struct.unpack("<1024e", was[2048:]),
                strict=True,
            )
        ]
        assert 0 < max(errors) <= 0.5 / 13.9
        with kvlease.connect(daemon.socket) as other:
            other.namespace("n", LAYERS, host_codec=codecs).close()
            other.namespace("n", LAYERS).close()  # content with what there is
            with pytest.raises(kvlease.LayoutMismatch, match="as 0:none,1:int4, not as int8"):
                other.namespace("n", LAYERS, host_codec=kvlease.Codec.INT8)
            with pytest.raises(kvlease.Invalid, match="end at layer 0 of the layout's 2"):
                other.namespace("m", LAYERS, host_codec="0:none")
            with pytest.raises(kvlease.Invalid, match="codec 'int5' isn't known"):
                other.namespace("m", LAYERS, disk_codec="int5")
            with pytest.raises(kvlease.Invalid, match="1 to 512"):
                other.namespace("m", LAYERS, host_codec="")


@pytest.mark.parametrize("codec", [kvlease.Codec.NONE, kvlease.Codec.INT8])
def test_publish_finds_it_below_the_device(make_daemon: MakeDaemon, codec: kvlease.Codec) -> None:
    """One that has the key with other tokens stays where it lies; fetch() brings it up."""
    daemon = make_daemon(
        device="memory = 2MiB\nextent = 2MiB\nhost_memory = 16MiB", tenant="limit = 2MiB"
    )
    with (
        kvlease.connect(daemon.socket) as conn,
        conn.namespace("n", LAYOUT, host_codec=codec) as ns,
    ):
        keys = text(600)
        publish_numbered(ns, keys)
        first = ns.info.tiers[1].first_page
        low = ns.probe(keys).index(kvlease.Tier.HOST)
        parent = key(keys, low - 1) if low else None
        with ns.lease(1) as leased:
            mine = leased.numbers
            with ns.publish(leased, key(keys, low), parent=parent, last_tokens=1) as cached:
                assert leased.numbers == mine  # still leased
                assert cached[0] >= first
                assert cached.tier(0) == ns.page_tier(cached[0]) == kvlease.Tier.HOST
                if codec == kvlease.Codec.NONE:
                    with cached.page(0) as view:
                        assert bytes(memoryview(view)[:4]) == low.to_bytes(4, "little")
                        assert view.is_read_only
                else:
                    with pytest.raises(kvlease.Error, match=r"below the device: fetch\(\)"):
                        cached.page(0)
                cached.fetch()
                assert cached.tier(0) == kvlease.Tier.DEVICE
                assert cached[0] < first
                with cached.page(0) as view:
                    assert view.is_read_only


def test_events_and_safe_points(make_daemon: MakeDaemon) -> None:
    """An administrator asks for a tenant's memory: REVOKE, and what is left is given back."""
    daemon = make_daemon(device="memory = 8MiB\nextent = 2MiB", tenant="limit = 8MiB")
    events: list[kvlease.Event] = []
    with (
        kvlease.connect(daemon.socket, safepoints=True) as conn,
        conn.namespace("n", LAYOUT) as ns,
    ):
        conn.set_event_handler(events.append)
        publish(ns, text(1))
        pages = ns.lookup(text(1))
        ctl = daemon.ctl("recall", "a", "--size", "2MiB")
        wait_until(lambda: conn.dispatch() >= 0 and bool(events))
        assert ctl.wait(60) == 0
        revoke = events[0]
        assert revoke.type == kvlease.EventType.REVOKE
        assert revoke.namespace is ns
        assert revoke.first_page <= pages[0] < revoke.first_page + revoke.n_pages
        assert 0 < revoke.timeout <= 5
        assert not revoke.is_idle
        assert conn.safepoint() == 0
        pages.close()
        wait_until(lambda: conn.dispatch() >= 0 and conn.safepoint(0) == 1)


def test_handler_that_fails(make_daemon: MakeDaemon, recwarn: pytest.WarningsRecorder) -> None:
    daemon = make_daemon()
    unraisable = []
    with kvlease.connect(daemon.socket) as conn, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.unraisablehook", lambda u: unraisable.append(u.exc_value))

        def fail(event: kvlease.Event) -> None:
            raise RuntimeError(event.detail)

        conn.set_event_handler(fail)
        kvlease.connect(daemon.socket, group_token=conn.group_token).close()
        wait_until(lambda: conn.dispatch() >= 0 and bool(unraisable))
        conn.set_event_handler(None)
        with pytest.raises(TypeError):
            conn.set_event_handler(5)  # type: ignore[arg-type]
    assert isinstance(unraisable[0], RuntimeError)


def test_streams_of_the_host(namespace: kvlease.Namespace) -> None:
    """There is but the stream 0, and what is said takes effect at once."""
    keys = text(1)
    done: list[tuple[kvlease.Pages | None, Exception | None]] = []
    with namespace.lease(2) as pages:
        namespace.start_publish(pages, keys, callback=lambda p, e: done.append((p, e)), stream=0)
        wait_until(lambda: namespace.connection.dispatch() >= 0 and bool(done))
        published, error = done[0]
        assert error is None
        assert published
        published.close(stream=0)
        with pytest.raises(kvlease.Invalid):
            namespace.start_publish(pages, keys, callback=print, stream=1234)
        pages.close(stream=0)
    with namespace.lookup(keys) as found:
        assert len(found) == 1
        with pytest.raises(kvlease.Invalid):
            found.close(stream=1234)
        assert found.state == "pinned"
        numbers = found.numbers
    with pytest.raises(kvlease.Invalid):
        namespace.release(numbers)


@pytest.mark.skipif("KVL_VALGRIND" in os.environ, reason="it measures time")
def test_a_lookup_costs_little(make_daemon: MakeDaemon) -> None:
    """At most 3 times the C library at 64 keys. The machine is shared: the best of some tries."""
    daemon = make_daemon()
    with kvlease.connect(daemon.socket) as conn:
        ratio = 9.0
        end = time.monotonic() + 60
        while ratio > 3 and time.monotonic() < end:
            row = bench.run(conn, 31)[1]
            ratio = min(ratio, row.ratio)
    assert (row.n_keys, row.bound) == (64, 3)
    assert ratio <= 3
