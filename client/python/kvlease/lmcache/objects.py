"""Objects in pages.

An object is bytes of any size under a name. Its bytes are in a chain of pages, whose last page ends
with a trailer. The key of that page is a hash of the name alone, so that a name is found whatever
the size of its object. Keys of the other pages depend on the size, too. kvleased evicts a page only
after all pages behind it: an object is there as long as its last page is.
"""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple

import kvlease

# Magic, bytes of the object, bytes of the note, and the note.
_TRAILER = struct.Struct("<8sQI492s")
_MAGIC = b"kvl-lmc1"
NOTE_BYTES = 492
"""Most bytes of a note."""
MOST_PAGES = 1024
"""Most pages of an object (kvlease.h, KVL_MAX_PUBLISH_PAGES)."""


class Name(NamedTuple):
    """Names an object."""

    model: str
    rank: int
    """Number of the worker that computed the object, among `world` workers."""
    world: int
    text: str
    """Names the object among those of model, rank and world."""


class Found(NamedTuple):
    """An object as its trailer has it, in which its writer may have put anything."""

    n_bytes: int
    """-1: the page has no trailer, and no object is there."""
    note: bytes


def digest(text: str) -> bytes:
    """32 bytes, also of texts that are no Unicode."""
    return hashlib.sha256(b"kvlease lmcache " + text.encode("utf-8", "surrogatepass")).digest()


def last_key(name: Name) -> bytes:
    """Key of the last page of an object, of whatever size."""
    return digest(name.text)


class Pager:
    """Puts objects into pages of one size, and takes them out."""

    def __init__(self, page_bytes: int) -> None:
        self._page_bytes = page_bytes

    def count(self, n_bytes: int) -> int:
        """Number of pages of an object of that size."""
        return -(-(n_bytes + _TRAILER.size) // self._page_bytes)

    def keys(self, name: Name, n_bytes: int) -> bytes:
        """Keys of all pages of an object of that size."""
        base = digest(f"{n_bytes} {name.text}")[:28]
        before = (base + i.to_bytes(4, "little") for i in range(self.count(n_bytes) - 1))
        return b"".join(before) + last_key(name)

    def write(self, pages: kvlease.Pages, buffer: memoryview, note: bytes) -> None:
        """Writes an object to leased pages, as many as count() says."""
        n_full, rest = divmod(buffer.nbytes, self._page_bytes)
        full = buffer.nbytes - rest
        if n_full:
            pages.write_many(buffer[:full], range(n_full))
        if rest:
            pages.write_many(buffer[full:], [n_full], n_bytes=rest)
        trailer = _TRAILER.pack(_MAGIC, buffer.nbytes, len(note), note)
        pages.write(len(pages) - 1, trailer, offset=self._page_bytes - _TRAILER.size)

    def read(self, pages: kvlease.Pages, buffer: memoryview) -> bool:
        """Reads an object from all its pages. False: the buffer has another size."""
        if self.describe(pages).n_bytes != buffer.nbytes:
            return False
        n_full, rest = divmod(buffer.nbytes, self._page_bytes)
        full = buffer.nbytes - rest
        if n_full:
            pages.read_many(range(n_full), into=buffer[:full])
        if rest:
            pages.read_many([n_full], rest, into=buffer[full:])
        return True

    def describe(self, pages: kvlease.Pages) -> Found:
        """Reads the trailer in the last of the pages."""
        at = self._page_bytes - _TRAILER.size
        read = pages.read(len(pages) - 1, _TRAILER.size, offset=at)
        magic, n_bytes, n_note, note = _TRAILER.unpack(read)
        if magic != _MAGIC or self.count(n_bytes) > MOST_PAGES:
            return Found(-1, b"")
        return Found(n_bytes, note[:n_note])
