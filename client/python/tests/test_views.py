"""Views: buffers, DLPack, CUDA arrays, and what they keep from being closed."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import hashlib
import struct
import threading
from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest
from conftest import LAYOUT, wait_until
from test_core import key, publish, text

import kvlease


def test_write_and_read_in_place(namespace: kvlease.Namespace) -> None:
    keys = text(1)
    with namespace.lease(1) as pages:
        with pages.page(0) as view:
            assert view.shape == (4096,)
            assert view.n_bytes == 4096
            assert not view.is_read_only
            assert view.__dlpack_device__() == (1, 0)
            memoryview(view)[:5] = b"in it"
        with pages.page(0, dtype="f16") as view:
            tensor = np.from_dlpack(view)
            assert tensor.dtype == np.float16
            assert tensor.shape == (2048,)
            assert tensor.ctypes.data == view.address
            tensor[3] = 1.5
            del tensor
        with namespace.publish(pages, keys):
            pass
    with namespace.lookup(keys) as found, found.page(0) as view:
        assert view.is_read_only
        assert bytes(memoryview(view)[:5]) == b"in it"
        array = np.from_dlpack(view)
        assert not array.flags.writeable
        assert array.view(np.float16)[3] == 1.5
        with pytest.raises(TypeError):
            memoryview(view)[0] = 1
        with pytest.raises(TypeError, match="read-write"):
            struct.pack_into("B", view, 0, 1)
        del array


def test_views_keep_pages_open(
    connection: kvlease.Connection, namespace: kvlease.Namespace
) -> None:
    keys = text(1)
    publish(namespace, keys)
    found = namespace.lookup(keys)
    array = np.from_dlpack(found.page(0))
    assert found.n_views == namespace.n_views == connection.n_views == 1
    for owner in (found, namespace, connection):
        with pytest.raises(BufferError, match="1 views"):
            owner.close()
    with pytest.raises(BufferError):
        found.detach()
    with pytest.raises(BufferError):
        found.take(1)
    assert array[0] == 7
    del array
    gc.collect()
    assert connection.n_views == 0
    found.close()


def test_a_view_outlives_the_name_of_its_pages(namespace: kvlease.Namespace) -> None:
    keys = text(1)
    publish(namespace, keys, fill=3)
    array = np.asarray(memoryview(namespace.lookup(keys).page(0)))
    gc.collect()
    assert namespace.n_views == 1
    assert array.sum() == 3 * 4096
    with pytest.warns(ResourceWarning, match="1, pinned"):
        del array
        gc.collect()
    assert namespace.n_views == 0


def test_release_of_a_view(namespace: kvlease.Namespace) -> None:
    with namespace.lease(1) as pages:
        view = pages.page(0)
        buffer = memoryview(view)
        with pytest.raises(BufferError, match="1 buffers"):
            view.release()
        buffer.release()
        capsule = view.__dlpack__(max_version=(1, 0))
        with pytest.raises(BufferError):
            view.release()
        del capsule
        view.release()
        view.release()
        assert view.is_released
        for use in (lambda: memoryview(view), lambda: view.address, lambda: np.from_dlpack(view)):
            with pytest.raises(kvlease.Closed):
                use()


def test_publishing_what_has_views(namespace: kvlease.Namespace) -> None:
    with namespace.lease(1) as pages:
        with pages.page(0), pytest.raises(BufferError):
            namespace.publish(pages, text(1))
        namespace.publish(pages, text(1)).close()


def test_versions_of_dlpack(namespace: kvlease.Namespace) -> None:
    keys = text(1)
    publish(namespace, keys)
    with namespace.lookup(keys) as found, found.page(0) as view:
        with pytest.raises(BufferError, match="read-only"):
            view.__dlpack__()
        assert '"dltensor_versioned"' in repr(view.__dlpack__(max_version=(1, 1)))
        with pytest.raises(BufferError, match="copy"):
            view.__dlpack__(max_version=(1, 0), copy=True)
        with pytest.raises(BufferError, match="device"):
            view.__dlpack__(max_version=(1, 0), dl_device=(2, 0))
        assert view.__dlpack__(max_version=(1, 0), dl_device=(1, 0), copy=False)
        with pytest.raises(AttributeError, match="GPU"):
            _ = view.__cuda_array_interface__
    with namespace.lease(1) as pages, pages.page(0) as view:
        assert '"dltensor"' in repr(view.__dlpack__())


def test_dtypes(namespace: kvlease.Namespace) -> None:
    with namespace.lease(1) as pages:
        for name, size in (("i8", 1), ("f16", 2), ("f32", 4), ("bf16", 2), ("f8_e4m3", 1)):
            with pages.page(0, dtype=name) as view:  # type: ignore[arg-type]
                assert view.shape == (4096 // size,)
                assert view.dtype == name
                assert view.__dlpack__()
                if name in ("bf16", "f8_e4m3"):
                    with pytest.raises(BufferError, match="DLPack"):
                        memoryview(view)
        with pytest.raises(ValueError, match="dtype"):
            pages.page(0, dtype="f64")  # type: ignore[arg-type]


def test_runs_of_pages(namespace: kvlease.Namespace) -> None:
    with namespace.lease(8) as pages:
        numbers = sorted(pages.detach())
    with namespace.adopt(numbers, "leased") as pages:
        assert numbers == list(range(numbers[0], numbers[0] + 8)), "a fresh namespace"
        with pages.view() as view:
            array = np.from_dlpack(view)
            assert array.shape == (8, 4096)
            array[:] = np.arange(8, dtype=np.uint8)[:, None]
            del array
        assert [pages.read(i, 1)[0] for i in range(8)] == list(range(8))
        with pages.view(start=2, stop=4) as view:
            assert view.shape == (2, 4096)
            assert memoryview(view)[1, 0] == 3
        with pytest.raises(IndexError):
            pages.view(start=4, stop=9)
        with pytest.raises(kvlease.NotFound, match="plane"):
            pages.page(0, plane=1)
        pages.detach()
    with namespace.adopt(numbers[::-1], "leased") as pages:
        with pytest.raises(kvlease.Invalid, match="one after the other"):
            pages.view()


def test_pages_apart(connection: kvlease.Connection) -> None:
    """The distance between pages isn't their size: views have it, or say that they can't."""
    layout = dataclasses.replace(LAYOUT, plane_page_bytes=61440)
    with connection.namespace("apart", layout, stride_bytes=63488) as namespace:
        assert namespace.info.stride_bytes == 63488
        with namespace.arena(writable=True) as arena, namespace.lease(3) as pages:
            for i in range(3):
                pages.write(i, bytes([i + 1]) * 61440)
            array = np.from_dlpack(arena)
            assert array.shape == (namespace.info.tiers[0].n_pages, 61440)
            assert array.strides == (63488, 1)
            for i, number in enumerate(pages):
                assert (array[number] == i + 1).all()
                assert array[number].nbytes == 61440
            assert memoryview(arena).strides == (63488, 1)
            with pytest.raises(BufferError, match="stride_bytes apart"):
                pages.write(0, arena)
            with pytest.raises(BufferError, match="stride_bytes apart"):
                hashlib.sha256(arena)
            del array
            with pages.page(0) as view:
                assert bytes(view) == b"\1" * 61440
            numbers = sorted(pages.detach())
        with namespace.adopt(numbers, "leased") as pages, pages.view() as view:
            array = np.from_dlpack(view)
            assert array.shape == (3, 61440) and array.strides == (63488, 1)
            del array


def test_arena(namespace: kvlease.Namespace) -> None:
    keys = text(2)
    with namespace.arena(writable=True) as arena, namespace.lease(2) as pages:
        array = np.from_dlpack(arena)
        assert array.shape == (namespace.info.tiers[0].n_pages, LAYOUT.plane_page_bytes)
        array[list(pages)] = 5
        # The arena's is a view of the namespace, not of pages: they are published under it.
        with namespace.publish(pages, keys) as done:
            assert done.read(1, 3) == b"\5\5\5"
            assert (array[done[0]] == 5).all()
        with pytest.raises(BufferError):
            namespace.close()
        del array
    with namespace.arena() as arena:
        assert not np.from_dlpack(arena).flags.writeable
    with pytest.raises(kvlease.NotFound):
        namespace.arena(1)


def test_no_view_of_what_moves(namespace: kvlease.Namespace) -> None:
    keys = text(1)
    publish(namespace, keys)
    done: list[object] = []
    with namespace.lookup(keys) as found:
        namespace.start_fetch(lambda pages, error: done.append(error), found)
        uses: list[Callable[[], object]] = [
            lambda: found.page(0),
            found.view,
            lambda: found.read(0),
            lambda: found.tier(0),
            found.pin,
            found.fetch,
            found.close,
        ]
        for use in uses:
            with pytest.raises(kvlease.Busy):
                use()
        wait_until(lambda: namespace.connection.dispatch() >= 0 and bool(done))
        assert done == [None]
        found.fetch()
        with found.page(0) as view, found.pin():
            assert view.shape == (4096,)


@pytest.mark.parametrize("how", ["close", "close_soon", "append", "fetch"])
def test_no_view_while_another_thread_gives_back(
    namespace: kvlease.Namespace, how: Literal["close", "close_soon", "append", "fetch"]
) -> None:
    """The one who waits for the GIL gets it just when the call lets go of it."""
    keys = text(1)
    publish(namespace, keys)
    n_rounds = 300
    box: list[kvlease.Pages] = []
    is_over = threading.Event()
    views: list[kvlease.View] = []

    def look() -> None:
        while not is_over.is_set():
            with contextlib.suppress(IndexError, kvlease.Closed, kvlease.Busy):
                views.append(box[0].page(0))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        with namespace.window() as window:
            for _ in range(n_rounds):
                pages = namespace.lookup(keys)
                box[:] = [pages]
                # With a view it is refused; after it, whatever was tried, there is none.
                with contextlib.suppress(BufferError, kvlease.Full):
                    if how == "append":
                        window.append(pages)
                    else:
                        getattr(pages, how)()
                        assert not pages.is_closed or pages.n_views == 0
                box.clear()
                assert not pages.is_closed or pages.n_views == 0
                views.clear()
                pages.close()
    finally:
        is_over.set()
        thread.join()
    assert namespace.n_views == 0


def test_numbers_that_change_the_pages(namespace: kvlease.Namespace) -> None:
    """An index that is an object may run code."""
    keys = text(1)
    publish(namespace, keys)

    class Index:
        def __init__(self, run: Callable[[], kvlease.Pages | None]) -> None:
            self.run = run
            self.result: kvlease.Pages | None = None

        def __index__(self) -> int:
            self.result = self.run()
            return 0

    with namespace.lookup(keys) as found:
        for is_first in (True, False):
            pages = namespace.lease(1)
            index = Index(functools.partial(namespace.publish, pages, text(1, 900)))
            with pytest.raises((IndexError, kvlease.Closed)):
                pages.copy_page(index if is_first else 0, found, 0 if is_first else index)
            assert index.result
            index.result.close()
            pages.close()
            namespace.invalidate(key(text(1, 900), 0))
        for use in (
            kvlease.Pages.page,
            kvlease.Pages.read,
            kvlease.Pages.tier,
            lambda pages, index: pages.write(index, b"x"),
        ):
            pages = namespace.lease(1)
            with pytest.raises(kvlease.Closed):
                use(pages, Index(pages.close))


def test_windows_take_pins_of_their_namespace(
    connection: kvlease.Connection, namespace: kvlease.Namespace
) -> None:
    keys = text(2)
    publish(namespace, keys)
    with (
        connection.namespace(f"{namespace.name}-other", LAYOUT) as other,
        namespace.window() as window,
    ):
        publish(other, keys)
        with other.lookup(keys) as theirs, namespace.lease(1) as leased:
            for pages in (theirs, leased):
                with pytest.raises(kvlease.Invalid, match="pinned pages"):
                    window.append(pages)
            assert theirs.state == "pinned"
        window.append(namespace.lookup(keys))
        taken = window.take(0, 1)
        # Its views end with the window's next call, so no other object has them.
        with pytest.raises(kvlease.Invalid, match="divided"):
            taken.take(1)
        other.invalidate()
