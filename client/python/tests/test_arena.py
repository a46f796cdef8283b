"""Pages that lie one behind the other, copies of many, and what an arena has beside them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from conftest import LAYOUT, Daemon, MakeDaemon

import kvlease

N_PLANES = 3
PAGE_BYTES = LAYOUT.plane_page_bytes
PLANES = dataclasses.replace(LAYOUT, n_planes=N_PLANES)


def test_many_pages(connection: kvlease.Connection) -> None:
    data = b"".join(bytes([i]) * PAGE_BYTES for i in range(5 * N_PLANES))
    with connection.namespace("planes", PLANES) as namespace, namespace.lease(5) as pages:
        pages.write_many(data)
        assert pages.read_many() == data
        assert pages.read(3, plane=2) == data[11 * PAGE_BYTES : 12 * PAGE_BYTES]
        assert (
            pages.read_many([4, 0], 2, first_plane=1, n_planes=1, offset=7) == b"\x0d\x0d\x01\x01"
        )
        pages.write_many(b"abcd", [1, 2], n_bytes=1, first_plane=1)
        into = bytearray(6)
        assert pages.read_many([1, 2, 1], 1, first_plane=1, into=into) is None
        assert into == b"abcdab"
        assert pages.read_many([]) == b""
        for refused in (
            lambda: pages.write_many(data[:-1]),
            lambda: pages.write_many(data, first_plane=1),
            lambda: pages.read_many(n_bytes=PAGE_BYTES + 1),
            lambda: pages.read_many(offset=PAGE_BYTES),
            lambda: pages.read_many(first_plane=N_PLANES),
            lambda: pages.read_many(n_planes=N_PLANES + 1),
            lambda: pages.read_many(into=into),
        ):
            with pytest.raises(ValueError):
                refused()
        with pytest.raises(IndexError):
            pages.read_many([5])
        with pytest.raises(BufferError):
            pages.read_many(into=b"x" * len(data))
        assert pages.read_many([0]) == data[: N_PLANES * PAGE_BYTES]
        published = namespace.publish(pages, [b"k" * 32])
        with published:
            assert published.read_many() == data[: N_PLANES * PAGE_BYTES]
            with pytest.raises(kvlease.Denied):
                published.write_many(data[: N_PLANES * PAGE_BYTES])


def test_planes_of_a_rank(shared_daemon: Daemon) -> None:
    """A rank maps its planes; the other planes have no bytes there."""
    data = bytes(range(N_PLANES)) * PAGE_BYTES
    key = b"p" * 32
    with (
        kvlease.connect(shared_daemon.socket) as whole,
        kvlease.connect(shared_daemon.socket) as rank,
        whole.namespace("ranks", PLANES) as all_planes,
        rank.namespace("ranks", PLANES, first_plane=1, n_planes=1) as second,
    ):
        assert all_planes.info.member == second.info.member == "host"
        with all_planes.lease(1) as pages:
            pages.write_many(data)
            all_planes.publish(pages, [key]).close()
        found = second.lookup([key])
        assert found is not None
        with found:
            assert found.read(0, plane=1) == data[PAGE_BYTES : 2 * PAGE_BYTES]
            assert second.arena(1).address
            for other in (0, 2):
                with pytest.raises(ValueError, match="opened for planes 1 to 1"):
                    found.read(0, plane=other)
        with pytest.raises(ValueError, match="3 planes from 1 on: the layout has 3"):
            rank.namespace("refused", PLANES, first_plane=1, n_planes=3)


def test_contiguous(namespace: kvlease.Namespace) -> None:
    with namespace.lease(100, contiguous=True) as pages:
        assert pages.numbers == tuple(range(pages[0], pages[0] + 100))
        assert pages.view().shape[0] == 100
        with namespace.lease(7, contiguous="prefer") as more:
            assert more.numbers == tuple(range(more[0], more[0] + 7))
    with pytest.raises(ValueError, match="prefer"):
        namespace.lease(1, contiguous="maybe")  # type: ignore[arg-type]


def test_no_run(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(tenant="limit = 2MiB")
    with kvlease.connect(daemon.socket) as connection:
        namespace = connection.namespace("one", LAYOUT)
        pages = namespace.lease(namespace.info.set_pages, contiguous=True)
        numbers = pages.detach()
        namespace.free(numbers[::2])
        with pytest.raises(kvlease.Full) as refused:
            namespace.lease(2, contiguous=True)
        assert refused.value.reason == "no-run"
        assert "consecutive numbers" in str(refused.value)
        with namespace.lease(2, contiguous="prefer"):
            pass
        namespace.free(numbers[1::2])


def test_holes(connection: kvlease.Connection) -> None:
    with (
        connection.namespace("holes", PLANES, keep_page_zero=True, back_holes=True) as namespace,
        namespace.arena(1) as arena,
    ):
        array = np.from_dlpack(arena)
        assert not array[0].any()
        assert not array[-1].any()
        assert not array[1:700].any()
        with namespace.lease(1) as pages:
            assert pages[0] != 0
            pages.write(0, b"here", plane=1)
            assert array[pages[0], :4].tobytes() == b"here"
            assert not array[0].any()
        del array
