"""A digest of the bytes of tensors, wherever these lie in memory."""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

# Bytes that a thread hashes at a time.
_LEAF_BYTES = 4 << 20
# Bytes of a tensor that isn't in host memory, or isn't in one piece, that are copied at a time.
_PIECE_BYTES = 64 << 20
_MAX_PIECES = 4
_MAX_THREADS = 16


class Unreadable(ValueError):
    """The bytes of a tensor can't be read, so nothing tells it from others."""


def hash_parts(*parts: bytes) -> bytes:
    """SHA-256 of all parts, each by itself."""
    made = hashlib.sha256()
    for part in parts:
        made.update(len(part).to_bytes(8, "little") + part)
    return made.digest()


def hash_tensors(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """Of all bytes of all tensors, with their names, types and shapes.

    How a tensor lies in memory makes no difference. One that has several names is read once.
    Unreadable names the tensor that can't be.
    """
    with torch.no_grad(), _Tree() as tree:
        leaves = {name: tree.add(name, tensor) for name, tensor in tensors.items()}
        parts: list[bytes] = []
        for name in sorted(leaves):
            parts += [name.encode(), hash_parts(*leaves[name]())]
        return hash_parts(b"kvlease tensors 1", *parts)


class _Tree:
    """Hashes tensors in leaves of one size, by threads. At most _MAX_PIECES copies exist."""

    def __init__(self) -> None:
        n_threads = min(_MAX_THREADS, len(os.sched_getaffinity(0)))
        self._pool = ThreadPoolExecutor(n_threads, "kvlease-digest")
        self._made: dict[Any, Callable[[], list[bytes]]] = {}
        self._copied: deque[list[Future[bytes]]] = deque()

    def __enter__(self) -> _Tree:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def add(self, name: str, tensor: torch.Tensor) -> Callable[[], list[bytes]]:
        """What returns the tensor's parts: its type and shape, and its leaves."""
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) and hasattr(
            tensor, "__tensor_flatten__"
        ):
            return self._add_inner(name, tensor)
        tensor = _plain(name, tensor)
        place = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if place not in self._made:
            kind = f"{tensor.dtype} {tuple(tensor.shape)}".encode()
            futures = [each for piece in _pieces(tensor) for each in self._hash(piece, tensor)]
            self._made[place] = lambda: [kind, *(each.result() for each in futures)]
        return self._made[place]

    def _add_inner(self, name: str, tensor: Any) -> Callable[[], list[bytes]]:
        """Of a tensor that is made up of others."""
        names, _ = tensor.__tensor_flatten__()
        kind = f"{type(tensor).__name__} {tensor.dtype} {tuple(tensor.shape)}".encode()
        inner = [(each, self.add(f"{name}.{each}", getattr(tensor, each))) for each in names]
        return lambda: [kind, *(part for each, of in inner for part in (each.encode(), *of()))]

    def _hash(self, piece: torch.Tensor, whole: torch.Tensor) -> list[Future[bytes]]:
        """Leaves of a piece in host memory, which is kept until they are hashed."""
        n_bytes = piece.numel() * piece.element_size()
        if not n_bytes:
            return []
        is_copy = piece is not whole
        if is_copy:
            while len(self._copied) >= _MAX_PIECES:
                for future in self._copied.popleft():
                    future.result()
        memory = memoryview((ctypes.c_char * n_bytes).from_address(piece.data_ptr()))
        futures = [
            self._pool.submit(_hash_leaf, memory[at : at + _LEAF_BYTES], piece)
            for at in range(0, n_bytes, _LEAF_BYTES)
        ]
        if is_copy:
            self._copied.append(futures)
        return futures


def _hash_leaf(memory: memoryview, owner: torch.Tensor) -> bytes:
    """owner keeps the memory."""
    return hashlib.sha256(memory).digest()


def _plain(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with its bytes as they count; Unreadable where it has none."""
    tensor = tensor.detach()
    if not is_readable(tensor):
        how = "has no memory" if tensor.is_meta else f"is of {tensor.layout}, {tensor.dtype}"
        raise _unreadable(name, how)
    tensor = tensor.resolve_conj().resolve_neg()
    try:
        if tensor.numel() and not tensor.data_ptr():
            raise RuntimeError("it has no address")
    except RuntimeError as error:
        raise _unreadable(name, f"can't be read: {error}") from error
    return tensor


def _unreadable(name: str, why: str) -> Unreadable:
    return Unreadable(
        f"the model's tensor {name} {why}, so its bytes can't be compared: 'weights' has to name "
        "the model's weights"
    )


def is_readable(tensor: torch.Tensor) -> bool:
    """Whether its numbers lie in memory one by one: not so of sparse and quantized tensors."""
    return not tensor.is_meta and tensor.layout == torch.strided and not tensor.is_quantized


def _pieces(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensor's elements in their logical order, as contiguous tensors in host memory: itself,
    where that is so, else copies of some MiB."""
    n_bytes = tensor.numel() * tensor.element_size()
    if not n_bytes:
        return
    if tensor.is_contiguous() and tensor.device.type == "cpu":
        yield tensor
    elif n_bytes <= _PIECE_BYTES:
        yield tensor.cpu().contiguous()
    elif tensor.is_contiguous():
        flat, step = tensor.view(-1), _PIECE_BYTES // tensor.element_size()
        for at in range(0, flat.numel(), step):
            yield flat[at : at + step].cpu()
    else:
        # Leaves end where pieces do: of so many bytes, whatever the shape, so that the leaves of a
        # tensor are the same however it lies in memory.
        rest: list[torch.Tensor] = []
        for run in _runs(tensor):
            rest.append(run)
            while sum(each.numel() for each in rest) * tensor.element_size() >= _PIECE_BYTES:
                flat, step = torch.cat(rest), _PIECE_BYTES // tensor.element_size()
                yield flat[:step].clone()
                rest = [flat[step:]]
        if rest and sum(each.numel() for each in rest):
            yield torch.cat(rest)


def _runs(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Flat copies of slices, at most so large, of a tensor that isn't in one piece."""
    n_bytes = tensor.numel() * tensor.element_size()
    if n_bytes <= _PIECE_BYTES:
        yield tensor.cpu().contiguous().view(-1)
        return
    n_rows = max(1, tensor.shape[0] * _PIECE_BYTES // n_bytes)
    for at in range(0, tensor.shape[0], n_rows):
        slice_ = tensor[at : at + n_rows]
        yield from _runs(slice_[0] if len(slice_) == 1 else slice_)
