"""Compares pages that were found with the same text computed anew.

An engine's identity (its namespace) should hold all that its numbers depend on. This module finds
out where it doesn't: a share of the texts that are found is computed all the same, and the engine's
own pages are compared with those that were found.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch

import kvlease

_logger = logging.getLogger("kvlease")

DTYPES = {
    torch.float32: kvlease.DType.F32,
    torch.float16: kvlease.DType.F16,
    torch.bfloat16: kvlease.DType.BF16,
}
"""Types of numbers in a cache that engines compute with as they are, without scales beside them."""

TOLERANCE = {torch.float32: 1e-3, torch.float16: 3e-2, torch.bfloat16: 2e-1}
"""Relative error of a vector that different orders of summation explain, by the type of numbers.
Other weights give errors about 1. Not tuned."""

CODED_TOLERANCE = 0.4
"""The same for pages that may have been below the device in a codec: of int4 it is some 0.15."""

_MOST_OFF = 0.002
"""The share of a layer's vectors that may be further off."""

_VECTOR = 64
"""Numbers that are compared as one: a small head's. One number near 0 has any relative error."""

Piece: TypeAlias = tuple[int, int, int]
"""A layer's part of a page: its plane, its first byte there, and the number of its bytes."""


def check_share(share: float) -> None:
    """ValueError where `verify` can't be this."""
    if not 0 <= share <= 1:
        raise ValueError(f"verify is a share of hits, 0 to 1, not {share!r}")


def check_dtype(share: float, dtype: torch.dtype) -> None:
    """ValueError where pages of such numbers can't be compared, and are to be."""
    if share and dtype not in TOLERANCE:
        raise ValueError(f"verify can't compare pages of {dtype}: leave it out")


def may_be_coded(namespace: kvlease.Namespace) -> bool:
    """Whether pages of the namespace lie in fewer bytes below the device."""
    device, *below = namespace.info.tiers
    return any(tier.page_bytes < device.page_bytes for tier in below)


def differ(own: torch.Tensor, other: torch.Tensor, is_coded: bool) -> bool:
    """Whether two pages, or parts of pages, can't be the same text's.

    own, other: numbers of one shape, of a type that TOLERANCE has. is_coded: as may_be_coded() says
    of the namespace.
    """
    tolerance = CODED_TOLERANCE if is_coded else TOLERANCE[own.dtype]
    a, b = (_vectors(each) for each in (own, other))
    size = torch.linalg.vector_norm(b, dim=1)
    error = torch.linalg.vector_norm(a - b, dim=1)
    # A vector near 0 is measured by the average vector of the page. NaN compares as false.
    is_near = error <= tolerance * (size + size.mean()) / 2
    is_equal = (a == b).all(dim=1)
    n_off = int((~(is_near | is_equal)).sum())
    return n_off > _MOST_OFF * len(a)


def differ_by_layer(
    own: torch.Tensor, other: torch.Tensor, sizes: Sequence[int], is_coded: bool
) -> bool:
    """Whether two pages can't be the same text's: whether any of their layers differ().

    own, other: the pages' numbers, layer after layer. sizes: how many numbers each layer has. Those
    behind the last layer are padding, and aren't compared.
    """
    n = sum(sizes)
    layers = (page.view(-1)[:n].split(list(sizes)) for page in (own, other))
    return any(differ(mine, theirs, is_coded) for mine, theirs in zip(*layers, strict=True))


def _vectors(numbers: torch.Tensor) -> torch.Tensor:
    flat = numbers.reshape(-1).to(torch.float32)
    padding = -len(flat) % _VECTOR
    return torch.nn.functional.pad(flat, (0, padding)).view(-1, _VECTOR)


class Verifier:
    """Which hits an engine computes all the same, and what follows from a mismatch."""

    def __init__(
        self,
        share: float,
        namespace: kvlease.Namespace,
        dtype: torch.dtype,
        first: bytes,
        identify: Callable[[], bytes | None],
    ) -> None:
        """share: of the texts that are found; 0: none, and nothing is compared. dtype: of the
        numbers in pages; ValueError where they can't be compared. first: identity of the model for
        which the namespace was opened. identify: takes it again; None: it isn't known."""
        check_dtype(share, dtype)
        self.dtype = dtype
        self._share = share
        self._namespace = namespace
        self._first = first
        self._identify = identify
        self.has_failed = False
        """The engine has left the namespace: it finds and publishes nothing any more."""

    @property
    def compares(self) -> bool:
        """Whether duplicates are worth a comparison."""
        return self._share > 0 and not self.has_failed

    def picks(self) -> bool:
        """Whether the text that was found now is computed all the same."""
        return self.compares and random.random() < self._share

    def compare(self, own: Sequence[int], carried: kvlease.Pages, pieces: Sequence[Piece]) -> int:
        """Compares pages that were to be published with those that had their keys before, and
        fails where a layer differs. Returns the number of pages compared: those on the device.

        own: leased by this connection, which maps pages. carried: of publish(), in the same order.
        """
        is_coded = may_be_coded(self._namespace)
        n_compared = 0
        try:
            for i, (mine, theirs) in enumerate(zip(own, carried, strict=False)):
                if mine == theirs or carried.tier(i) != kvlease.Tier.DEVICE:
                    continue
                n_compared += 1
                leased = self._namespace.adopt([mine], "leased")
                try:
                    is_wrong = any(
                        differ(self._read(leased, 0, each), self._read(carried, i, each), is_coded)
                        for each in pieces
                    )
                finally:
                    leased.detach()
                if is_wrong:
                    self.fail(theirs)
                    break
        except kvlease.Error as error:
            _logger.debug("compared nothing: %s", error)
        return n_compared

    def _read(self, pages: kvlease.Pages, index: int, piece: Piece) -> torch.Tensor:
        plane, offset, n_bytes = piece
        read = pages.read(index, n_bytes, plane=plane, offset=offset)
        return torch.frombuffer(bytearray(read), dtype=self.dtype)

    def fail(self, page: int) -> None:
        """A page of another engine holds other numbers than this engine has computed."""
        if self.has_failed:
            return
        self.has_failed = True
        now = self._identify()
        if now == self._first:
            cause = "an engine of the same identity computes other numbers"
        else:
            cause = "this engine has changed since"
        _logger.error(
            "page %d of namespace %s holds other numbers than this engine computed for the same "
            "text: %s. The namespace was opened with identity %s, the engine now has %s. Its pages "
            "are dropped, and this engine finds and publishes nothing any more: restart it",
            page,
            self._namespace.name,
            cause,
            self._first.hex()[:16],
            now.hex()[:16] if now else "an unknown one",
        )
        try:
            self._namespace.invalidate(mismatch=True)
        except kvlease.Error as error:
            _logger.error("the namespace couldn't be dropped: %s", error)
