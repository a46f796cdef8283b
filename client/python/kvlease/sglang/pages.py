"""Pages of kvleased that hold pages of a pool of SGLang's host memory."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from sglang.srt.mem_cache.memory_pool import MambaPool, MHATokenToKVPool
from sglang.srt.mem_cache.pool_host.mamba import MambaPoolHost
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost

import kvlease
from kvlease import _engine, _verify


def key_of(name: str) -> bytes:
    """The key of a page that SGLang names so: its hash, 64 hexadecimal digits."""
    try:
        key = bytes.fromhex(name)
    except ValueError:
        key = b""
    return key if len(key) == kvlease.KEY_BYTES else hashlib.sha256(name.encode()).digest()


def cached(namespace: kvlease.Namespace, keys: Sequence[bytes], every: bool) -> list[bool]:
    """Which pages are cached; every: also behind the first one that isn't."""
    found: list[bool] = []
    while len(found) < len(keys):
        n = len(namespace.probe(b"".join(keys[len(found) :])))
        found += [True] * n + [False] * (len(found) + n < len(keys))
        if not every:
            break
    return found + [False] * (len(keys) - len(found))


# Pools whose heads or states are divided among ranks, whatever SGLang says of the others.
_DIVIDED = (MambaPool, MambaPoolHost, MHATokenToKVPool, MHATokenToKVPoolHost)


class Pool:
    """A pool of SGLang's host memory, whose pages are some pieces of memory each."""

    def __init__(self, name: str, host: Any) -> None:
        """ValueError where SGLang can't say where the pages' bytes are."""
        self.name = name
        self.host = host
        self.kind = f"{type(host).__name__} {getattr(host, 'layout', 'device')}"
        """How pages are laid out."""
        self.dtype: torch.dtype = host.dtype if hasattr(host, "dtype") else host.kv_buffer[0].dtype
        self.n_slots: int = getattr(host, "logical_page_size", host.page_size)
        """Indices of a page."""
        try:
            meta = host.get_page_buffer_meta(torch.arange(self.n_slots))
        except (ValueError, NotImplementedError) as error:
            raise ValueError(f"the pages of the pool {name} can't be copied: {error}") from error
        if not meta or not meta[1]:
            raise ValueError(f"the pages of the pool {name} have no bytes of their own")
        self.sizes: list[int] = list(map(int, meta[1]))
        """Bytes of the pieces, which lie one behind the other in a page of kvleased."""

    @property
    def page_bytes(self) -> int:
        """Of a page of kvleased, padding included."""
        return _engine.padded(sum(self.sizes))

    @property
    def pieces(self) -> list[_verify.Piece]:
        """The pieces' places in a page of kvleased."""
        return [(0, sum(self.sizes[:i]), n) for i, n in enumerate(self.sizes)]

    def is_of_rank(self, is_replicated: bool) -> bool:
        """Whether each rank has numbers of its own; is_replicated: SGLang says that ranks have the
        same keys and values."""
        own = (self.host, getattr(self.host, "device_pool", None))
        return not is_replicated or any(isinstance(each, _DIVIDED) for each in own)

    def layout(self, model: str, salt: bytes, kind: bytes, tp: tuple[int, int]) -> kvlease.Layout:
        """Of its pages. tp: rank and number of ranks."""
        return kvlease.Layout(
            model=model,
            dtype=_verify.DTYPES.get(self.dtype, kvlease.DType.OTHER),
            n_layers=getattr(self.host, "layer_num", 0) or 1,
            n_kv_heads=getattr(self.host, "head_num", 0) or 1,
            head_size=getattr(self.host, "head_dim", 0) or 1,
            page_tokens=min(self.n_slots, _engine.MOST_TOKENS),
            plane_page_bytes=self.page_bytes,
            tp_rank=tp[0],
            tp_size=tp[1],
            salt=salt,
            format=kind,
        )

    def load(
        self, namespace: kvlease.Namespace, keys: Sequence[bytes], indices: torch.Tensor
    ) -> list[bool]:
        """Copies cached pages to their places in the pool: those up to the first that isn't."""
        with namespace.lookup(b"".join(keys)) as pages:
            self._copy(indices, len(pages), pages, to_pages=False)
            n = len(pages)
        return [True] * n + [False] * (len(keys) - n)

    def save(
        self, namespace: kvlease.Namespace, keys: Sequence[bytes], indices: torch.Tensor
    ) -> kvlease.Pages:
        """New pages of kvleased that hold pages of the pool: all or, with kvlease.Error, none."""
        pages = namespace.lease(len(keys), max_wait=0)
        try:
            self._copy(indices, len(keys), pages, to_pages=True)
        except BaseException:
            pages.close()
            raise
        return pages

    def _copy(
        self, indices: torch.Tensor, n_pages: int, pages: kvlease.Pages, *, to_pages: bool
    ) -> None:
        if not n_pages:
            return
        addresses, sizes = self.host.get_page_buffer_meta(indices[: n_pages * self.n_slots])
        offsets = [piece[1] for piece in self.pieces]
        for i, (address, size) in enumerate(zip(addresses, sizes, strict=True)):
            page, part = divmod(i, len(offsets))
            memory = (ctypes.c_char * size).from_address(address)
            if to_pages:
                pages.write_many(memory, [page], n_bytes=size, offset=offsets[part])
            else:
                pages.read_many([page], size, offset=offsets[part], into=memory)


class DevicePool(Pool):
    """A pool of the device that computes. Its pages are rows of some tensors."""

    def __init__(self, name: str, entry: Any) -> None:
        """entry: SGLang's DevicePoolEntry."""
        super().__init__(name, entry)
        self.kind = f"device {type(entry.device_pool).__name__}"
        counts = [len(component) for component in entry.components]
        self._firsts = [sum(counts[:i]) for i in range(len(counts))]
        self._blocks = [
            _blocks(buffer, n) for buffer, n in zip(entry.kv_buffer, self.sizes, strict=True)
        ]

    def pin(self, namespace: kvlease.Namespace, keys: Sequence[bytes]) -> Pinned | None:
        """All pages of the keys; None: not all are cached."""
        pages = namespace.lookup(b"".join(keys))
        if len(pages) == len(keys):
            return Pinned(pages)
        pages.close()
        return None

    def load_layer(self, layer: int, pinned: Pinned, indices: torch.Tensor) -> None:
        """Copies a layer's part of the pages to their places in the pool."""
        mapped = self.host.layer_mapping.get(layer)
        own = [mapped] if isinstance(mapped, int) else mapped or ()
        rows = self._rows(indices)
        for part in (first + i for first in self._firsts for i in own):
            blocks, (_, offset, size) = self._blocks[part], self.pieces[part]
            numbers = pinned.table[pinned.rows, offset : offset + size].view(blocks.dtype)
            blocks[rows] = numbers.view(len(rows), *blocks.shape[1:]).to(blocks.device)

    def _copy(
        self, indices: torch.Tensor, n_pages: int, pages: kvlease.Pages, *, to_pages: bool
    ) -> None:
        assert to_pages
        rows = self._rows(indices)
        for blocks, (_, offset, size) in zip(self._blocks, self.pieces, strict=True):
            numbers = blocks[rows].reshape(n_pages, -1).view(torch.uint8).cpu().contiguous()
            pages.write_many(numbers.numpy(), n_bytes=size, offset=offset)

    def _rows(self, indices: torch.Tensor) -> torch.Tensor:
        """Of the tensors that _blocks() makes."""
        rows = torch.tensor(self.host.prepare_locations(indices))
        return rows // self._blocks[0].shape[1]


class Pinned:
    """Cached pages that stay readable until close(), whatever becomes of kvleased."""

    def __init__(self, pages: kvlease.Pages) -> None:
        self._pages = pages
        self._arena = pages.namespace.arena(0, writable=True)
        self.table = torch.from_dlpack(self._arena)
        """Bytes of all pages, of which only `rows` may be touched."""
        self.rows = torch.tensor(list(pages))

    def close(self) -> None:
        """Gives the pages back."""
        del self.table
        self._arena.release()
        self._pages.close()


def _blocks(buffer: torch.Tensor, n_bytes: int) -> torch.Tensor:
    """A view of a pool's tensor: its pages, each with rows of so many bytes."""
    span = max(1, n_bytes * buffer.shape[0] // buffer.nbytes)
    return buffer[: buffer.shape[0] // span * span].unflatten(0, (-1, span))
