"""Tensors of torch over pages. Not for the part "python": the part "torch" installs it."""

from __future__ import annotations

import contextlib
import gc
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from conftest import LAYOUT, MakeDaemon
from test_core import key, publish, text
from test_processes import in_child

import kvlease
from kvlease import _verify

DTYPES = {
    "u8": torch.uint8,
    "i8": torch.int8,
    "f16": torch.float16,
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f8_e4m3": torch.float8_e4m3fn,
    "f8_e5m2": torch.float8_e5m2,
}


def test_what_a_tensor_is(namespace: kvlease.Namespace) -> None:
    with namespace.lease(1) as pages:
        for name, dtype in DTYPES.items():
            with pages.page(0, dtype=name) as view:  # type: ignore[arg-type]
                tensor = torch.from_dlpack(view)
                assert tensor.dtype is dtype
                assert tensor.shape == view.shape == (4096 // dtype.itemsize,)
                assert tensor.is_contiguous()
                assert tensor.device.type == "cpu"
                assert tensor.data_ptr() == view.address
                assert torch.utils.dlpack.from_dlpack(view.__dlpack__()).dtype is dtype
                del tensor


def test_writing_by_tensors(namespace: kvlease.Namespace) -> None:
    """What torch computed gets into pages: in place, and by copies."""
    keys = text(4)
    k = torch.arange(2048, dtype=torch.float32).to(torch.bfloat16) / 7
    with namespace.lease(4) as pages:
        with pages.page(0, dtype="bf16") as view:
            torch.from_dlpack(view).copy_(k)
        with pages.page(1, dtype="bf16") as view:
            torch.neg(k, out=torch.from_dlpack(view))
        # Buffers: numpy knows no bfloat16, bytes it does.
        pages.write(2, k.view(torch.uint8).numpy())
        pages.write(3, k.half().numpy())
        with pytest.raises(TypeError):
            pages.write(3, k)
        with namespace.publish(pages, keys) as done:
            assert done.read(0) == done.read(2) == k.view(torch.uint8).numpy().tobytes()
            with done.page(1, dtype="bf16") as view:
                assert torch.equal(torch.from_dlpack(view), -k)
            with done.page(3, dtype="f16") as view:
                assert torch.equal(torch.from_dlpack(view), k.half())


def test_another_connection_has_the_same_memory(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon()
    with (
        kvlease.connect(daemon.socket) as conn,
        kvlease.connect(daemon.socket) as other,
        conn.namespace("n", LAYOUT) as ns,
        other.namespace("n", LAYOUT) as their_ns,
    ):
        values = torch.randn(1024)
        with ns.lease(1) as pages:
            with pages.page(0, dtype="f32") as view:
                torch.from_dlpack(view).copy_(values)
            ns.publish(pages, text(1)).close()
        with their_ns.lookup(text(1)) as found, found.page(0, dtype="f32") as view:
            assert torch.equal(torch.from_dlpack(view), values)


def test_numbers_and_keys(namespace: kvlease.Namespace) -> None:
    """Tokens and block tables, which engines have in tensors."""
    tokens = torch.arange(48)
    assert LAYOUT.keys(tokens.numpy()) == LAYOUT.keys(tokens.to(torch.int32).numpy()) == text(3)
    assert LAYOUT.keys(tokens) == text(3)
    with namespace.lease(3) as pages:
        table = torch.tensor(pages.numbers, dtype=torch.int32)
        pages.detach()
    namespace.free(table[:1].numpy())
    namespace.free(table[1:])
    assert namespace.report([]) == 0
    with pytest.raises(TypeError, match="4 bytes"):
        namespace.free(table.long().numpy())
    with pytest.raises(kvlease.Invalid):
        namespace.free(torch.tensor([-1], dtype=torch.int32).numpy())
    with pytest.raises(ValueError, match="from 0 to"):
        namespace.free(torch.tensor([-1]))


def test_runs_of_pages(namespace: kvlease.Namespace) -> None:
    with namespace.lease(8) as pages:
        numbers = sorted(pages.detach())
    with namespace.adopt(numbers, "leased") as pages:
        with pages.view(dtype="f16") as view:
            tensor = torch.from_dlpack(view)
            assert tensor.shape == (8, 2048)
            assert tensor.stride() == (2048, 1)
            # K and V of 16 tokens: a reshape without a copy.
            kv = tensor.view(8, 2, 16, 64)
            assert kv.data_ptr() == view.address
            kv[:, 0] = torch.arange(8, dtype=torch.float16)[:, None, None]
            kv[:, 1] = -1
            del tensor, kv
        with pages.view(start=2, stop=5, dtype="f16") as view:
            assert torch.from_dlpack(view)[:, 0].tolist() == [2, 3, 4]
            assert torch.from_dlpack(view)[:, 1024].tolist() == [-1, -1, -1]


def test_arena(namespace: kvlease.Namespace) -> None:
    """Block tables index the whole plane, as the kernels of engines do."""
    keys = text(3)
    with namespace.arena(writable=True, dtype="bf16") as arena, namespace.lease(3) as pages:
        cache = torch.from_dlpack(arena)
        assert cache.shape == (namespace.info.tiers[0].n_pages, 2048)
        table = torch.tensor(pages.numbers)
        values = torch.randn(3, 2048).bfloat16()
        cache[table] = values
        with namespace.publish(pages, keys):
            with namespace.lookup(keys) as found:
                assert torch.equal(cache[torch.tensor(found.numbers)], values)
                assert torch.equal(cache.index_select(0, table.flip(0)), values.flip(0))
        for owner in (namespace, namespace.connection):
            with pytest.raises(BufferError, match="1 views"):
                owner.close()
        del cache


def test_what_lives_is_not_closed(
    connection: kvlease.Connection, namespace: kvlease.Namespace
) -> None:
    keys = text(2)
    publish(namespace, keys, fill=5)
    found = namespace.lookup(keys)
    view = found.page(1)
    # Whatever shares the storage keeps it: views and reshapes of torch, not copies.
    tensor = torch.from_dlpack(view)
    row = tensor.view(64, 64)[3]
    copy = tensor.clone()
    del tensor
    with pytest.raises(BufferError, match="1 buffers"):
        view.release()
    del view
    gc.collect()
    for close in (found.close, found.close_soon, found.detach, namespace.close, connection.close):
        with pytest.raises(BufferError, match="1 views"):
            close()
    assert row.sum() == 5 * 64
    del row
    assert connection.n_views == 0
    found.close()
    assert copy.sum() == 5 * 4096


def test_a_tensor_keeps_the_pin(make_daemon: MakeDaemon) -> None:
    """Nobody gets the page, whatever is forgotten, evicted and overwritten around it."""
    daemon = make_daemon(device="memory = 2MiB\nextent = 2MiB", tenant="limit = 2MiB")
    with kvlease.connect(daemon.socket) as conn, conn.namespace("n", LAYOUT) as ns:
        publish(ns, text(1), fill=9)

        def all_pages() -> set[int]:
            """Leases whatever there is, overwrites it, and gives it back."""
            numbers: list[int] = []
            with contextlib.suppress(kvlease.Full):
                while True:
                    with ns.lease(1, max_wait=0) as pages:
                        pages.write(0, b"\0" * 4096)
                        numbers += pages.detach()
            ns.free(numbers)
            return set(numbers)

        found = ns.lookup(text(1))
        page = found[0]
        tensor = torch.from_dlpack(found.page(0))
        del found
        gc.collect()
        ns.invalidate()
        others = all_pages()
        assert page not in others
        assert (tensor == 9).all()
        with pytest.warns(ResourceWarning, match="1, pinned"):
            del tensor
            gc.collect()
        assert ns.n_views == 0
        assert all_pages() == others | {page}


def test_published_pages_can_be_written(namespace: kvlease.Namespace) -> None:
    """torch has no tensors that are read-only: docs/security/THREATS.md."""
    keys = text(1)
    publish(namespace, keys, fill=1)
    with namespace.lookup(keys) as found, found.page(0) as view:
        assert view.is_read_only
        # Who takes buffers is told, and warns; who asks for an older DLPack is refused.
        torch.set_warn_always(True)  # not but once in a process
        with pytest.warns(UserWarning, match="not writable"):
            torch.asarray(view)
        torch.set_warn_always(False)
        with pytest.raises(BufferError, match="read-only"):
            torch.utils.dlpack.from_dlpack(view.__dlpack__())
        # from_dlpack() is told, too, and doesn't care.
        tensor = torch.from_dlpack(view)
        tensor[0] = 2
        assert found.read(0, 2) == b"\2\1"
        with pytest.raises(BufferError, match="copy"):
            torch.from_dlpack(view, copy=True)
        del tensor
        gc.collect()


def test_threads_compute_while_others_lease(namespace: kvlease.Namespace) -> None:
    n_threads, n_rounds = 3, 40
    is_right = []

    def compute(thread: int) -> None:
        keys = text(2, 1000 * thread)
        with namespace.lease(2) as pages:
            matrices = [torch.from_dlpack(pages.page(i, dtype="f32")).view(32, 32) for i in (0, 1)]
            expected = torch.full((32, 32), 32.0 * (thread + 1) * (thread + 2))
            for i, matrix in enumerate(matrices):
                matrix.fill_(thread + 1 + i)
            for _ in range(n_rounds):
                is_right.append(torch.equal(matrices[0] @ matrices[1], expected))
            del matrices, matrix
            namespace.publish(pages, keys).close()
        with namespace.lookup(keys) as found:
            for _ in range(n_rounds):
                matrices = [
                    torch.from_dlpack(found.page(i, dtype="f32")).view(32, 32) for i in (0, 1)
                ]
                is_right.append(torch.equal(matrices[0] @ matrices[1], expected))
            del matrices

    def lease(thread: int) -> None:
        for i in range(n_rounds):
            with namespace.lease(4) as pages:
                with pages.page(0) as view:
                    torch.from_dlpack(view).fill_(i)
                publish_key = key(text(4, 5000 * (thread + 1)), 0)
                namespace.publish(pages, publish_key).close()

    with ThreadPoolExecutor(2 * n_threads) as pool:
        work = [pool.submit(compute, i) for i in range(n_threads)]
        work += [pool.submit(lease, i) for i in range(n_threads)]
        for future in work:
            future.result()
    assert len(is_right) == 2 * n_threads * n_rounds
    assert all(is_right)
    assert namespace.n_views == 0
    assert namespace.report([]) == 0


def test_fork(namespace: kvlease.Namespace) -> None:
    """A child has its parent's tensors, but not their memory, and takes nothing from the parent."""
    keys = text(1)
    publish(namespace, keys, fill=8)
    found = namespace.lookup(keys)
    view = found.page(0)
    tensors = [torch.from_dlpack(view)]

    def forget() -> None:
        with pytest.raises(kvlease.Forked):
            torch.from_dlpack(view)
        with pytest.raises(kvlease.Forked):
            found.page(0)
        tensors.clear()
        gc.collect()
        view.release()
        found.close()
        namespace.close()
        namespace.connection.close()

    def touch() -> None:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)  # faulthandler's
        int(tensors[0][0])

    children: list[tuple[Callable[[], None], int]] = [(forget, 0), (touch, -signal.SIGSEGV)]
    for work, status in children:
        assert in_child(work) == status
        assert (tensors[0] == 8).all()
    assert namespace.n_views == 1
    assert found.read(0, 1) == b"\x08"
    tensors.clear()
    view.release()
    found.close()


@pytest.mark.parametrize("dtype", list(_verify.TOLERANCE))
def test_pages_that_differ(dtype: torch.dtype) -> None:
    """Noise of sums is none; one text of 16 with another token is."""
    torch.manual_seed(1)
    page = torch.randn(16, 8, 64).to(dtype)
    noise = 1 + torch.randn(16, 8, 64) * _verify.TOLERANCE[dtype] / 4
    assert not _verify.differ(page, (page * noise).to(dtype), is_coded=False)
    assert not _verify.differ(torch.zeros_like(page), torch.zeros_like(page), is_coded=False)
    other = page.clone()
    other[3] = torch.randn(8, 64).to(dtype)
    assert _verify.differ(page, other, is_coded=False)
    assert _verify.differ(page, other, is_coded=True)
    other = page.clone()
    other[3, :, 0] = torch.nan
    assert _verify.differ(page, other, is_coded=False)
    # As int4 has them: 15 steps between the least and the most of 64 numbers.
    step = (page.float().amax(2) - page.float().amin(2))[..., None] / 15
    coded = ((page.float() / step).round() * step).to(dtype)
    assert not _verify.differ(page, coded, is_coded=True)
    assert _verify.differ(page, coded, is_coded=False) == (dtype is not torch.bfloat16)


def test_pages_that_differ_in_one_layer() -> None:
    """One wrong layer is found among many right ones; padding isn't compared."""
    torch.manual_seed(1)
    sizes = [64 * 1000, 64, 200]
    end = sum(sizes)
    page = torch.randn(end + 64)
    for first, n_off, does_differ in (
        (0, 64 * 2, False),
        (0, 64 * 3, True),
        (64 * 1000, 64, True),
        (end - 1, 1, True),
        (end, 64, False),
    ):
        other = page.clone()
        other[first : first + n_off] += 9
        assert _verify.differ_by_layer(page, other, sizes, is_coded=False) == does_differ


def test_what_verify_may_be(namespace: kvlease.Namespace) -> None:
    for share in (-0.1, 1.1):
        with pytest.raises(ValueError, match="0 to 1"):
            _verify.check_share(share)
    with pytest.raises(ValueError, match="float8"):
        _verify.Verifier(0.5, namespace, torch.float8_e4m3fn, b"", bytes)
    assert not _verify.Verifier(0, namespace, torch.float8_e4m3fn, b"", bytes).compares
