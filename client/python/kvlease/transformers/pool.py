"""The pages that an engine holds."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable

import kvlease
from kvlease import _engine
from kvlease._verify import Verifier
from kvlease.transformers.options import Options

_logger = logging.getLogger("kvlease")

TRASH_PAGES = 2
"""What the engine pads its inputs with is read from one page and written to another."""

# How long an engine that starts waits for the pages it can't do without.
_START_SECONDS = 60.0


class Pool:
    """The pages of an engine, in the place of the engine's pool of blocks.

    Blocks and sectors are the same here: pages. A page is spare (leased for what is scheduled
    next), private (leased, in a table) or pinned. Only reserve() and publish() raise, and only
    where kvleased is gone for good: what gives back has to work while all requests fail.
    """

    def __init__(
        self,
        budget: int,
        namespace: kvlease.Namespace,
        options: Options,
        verifier: Verifier,
        differ: Callable[[int, int], bool],
    ) -> None:
        """differ: whether two pages, mapped, hold other numbers."""
        self.namespace = namespace
        self.verifier = verifier
        self.refusal: str | None = None
        """Why kvleased has refused a page since the field was last cleared."""
        self.keeps_spare = False
        """What requests give back is kept, for others that wait for it."""
        self._takes_token_ids = namespace.info.takes_token_ids
        self._budget = budget
        self._loss = _engine.Loss(options.on_loss)
        self._differ = differ
        self._spare: list[int] = []
        self._private: set[int] = set()
        self._pins: Counter[int] = Counter()
        namespace.check_room(TRASH_PAGES + 1)
        self.trash = self._lease_trash()

    def _lease_trash(self) -> tuple[int, int]:
        end = time.monotonic() + _START_SECONDS
        while True:
            try:
                read, write = self.namespace.lease(TRASH_PAGES, max_wait=1).detach()
                return read, write
            except (kvlease.Full, kvlease.Quota, kvlease.Timeout) as error:
                if time.monotonic() > end:
                    raise
                _logger.warning("the engine can't start yet: %s", error)
                time.sleep(1)

    @property
    def is_lost(self) -> bool:
        """kvleased is gone, and the engine goes on with what it has."""
        return self._loss.happened

    # What the engine asks.

    @property
    def num_free_sectors(self) -> int:
        """Pages the engine may still take: none while kvleased refuses them."""
        held = len(self._spare) + len(self._private) + len(self._pins)
        return 0 if self.refusal else max(0, self._budget - held)

    @property
    def free_sectors(self) -> range:
        """As many as num_free_sectors."""
        return range(self.num_free_sectors)

    def count_free_blocks(self, index: int) -> int:
        """Spare pages."""
        return len(self._spare)

    def get_free_blocks(self, index: int, num_blocks: int) -> list[int]:
        """Spare pages, for a table; there are that many."""
        n_left = len(self._spare) - num_blocks
        pages, self._spare = self._spare[n_left:], self._spare[:n_left]
        self._private.update(pages)
        return pages

    def set_blocks_per_sector(self, index: int, blocks_per_sector: int) -> None:
        """One, always."""

    def try_to_free_sectors(self) -> None:
        """Nothing: pages that aren't needed go back at once."""

    def reset(self) -> None:
        """Nothing: there are no pages but those in tables, which are freed before."""

    # What this module asks.

    def reserve(self, n_pages: int, request: kvlease.Request | None = None) -> bool:
        """Makes n_pages spare, or doesn't."""
        missing = n_pages - len(self._spare)
        if missing <= 0:
            return True
        held = len(self._spare) + len(self._private) + len(self._pins)
        if missing > self._budget - held:
            return False
        if self._loss.happened:
            self.refusal = "kvleased is gone"
            return False
        try:
            while missing > 0:
                n_next = min(missing, kvlease.MAX_LEASE_PAGES)
                leased = self.namespace.lease(n_next, request, max_wait=0)
                self._spare += leased.detach()
                missing -= n_next
        except (kvlease.Full, kvlease.Quota, kvlease.Draining, kvlease.Timeout) as error:
            self.refusal = str(error)
            self.keeps_spare = True
            return False
        except kvlease.Error as error:
            self._loss.meet(error)
            self.refusal = "kvleased is gone"
            return False
        return True

    def why_never(self, n_tokens: int, n_pages: int) -> str | None:
        """The sentence of an error where a text can't ever have so many pages; None: it may."""
        if self._loss.happened:
            return None
        if n_pages > self._budget:
            return (
                f"a text of {n_tokens} tokens takes {n_pages} blocks, and the engine has "
                f"{self._budget}: raise num_blocks of its ContinuousBatchingConfig (and the budget "
                "of the device, where that has no more), or ask for a shorter text (prompt and "
                "max_new_tokens)"
            )
        return _engine.why_never(self.namespace, n_tokens, n_pages + TRASH_PAGES)

    def expect(self, keys: bytes) -> None:
        """Somebody will ask for this text soon: what is cached of it is to be there then."""
        if keys and not self._loss.happened:
            try:
                self.namespace.expect(keys)
            except kvlease.Error as error:
                _logger.debug("expected nothing: %s", error)

    def count_cached(self, keys: bytes) -> int:
        """Pages of the longest run that is cached; none is pinned."""
        try:
            return len(self.namespace.probe(keys)) if keys else 0
        except kvlease.Error as error:
            _logger.debug("looked up nothing: %s", error)
            return 0

    def find(self, keys: bytes, request: kvlease.Request) -> list[int]:
        """Pages of the longest run that is cached, pinned, as far as the budget goes."""
        if self.verifier.has_failed:
            return []
        try:
            pages = list(self.namespace.lookup(keys, request).detach()) if keys else []
        except kvlease.Error as error:
            _logger.info("looked up nothing: %s", error)
            return []
        room = self.num_free_sectors
        n_kept = 0
        while n_kept < len(pages):
            room -= pages[n_kept] not in self._pins
            if room < 0:
                break
            n_kept += 1
        self._pins.update(pages[:n_kept])
        _engine.give_back(self.namespace.release, pages[n_kept:])
        return pages[:n_kept]

    def publish(
        self,
        own: list[int],
        keys: bytes,
        parent: bytes | None,
        request: kvlease.Request,
        tokens: list[int],
    ) -> list[int]:
        """Publishes pages of a table; those that carry their keys, pinned, as far as it goes.
        tokens: of all these pages.

        Where somebody was first, that is theirs, and ours is given back; but where theirs isn't on
        the device, or holds other numbers, ours stays in the table, private.
        """
        if self._loss.happened or self.verifier.has_failed:
            return []
        try:
            carried = self.namespace.publish(
                own,
                keys,
                parent=parent,
                request=request,
                token_ids=tokens if self._takes_token_ids else None,
            )
        except (kvlease.NoParent, kvlease.Stale) as error:
            if error.code < 0:
                self._loss.meet(error)
                return []
            carried = error.published
        except kvlease.Quota:
            return []
        except kvlease.Error as error:
            self._loss.meet(error)
            return []
        on_device = self.namespace.info.tiers[0].n_pages
        pages = list(carried.detach())
        for i, (mine, theirs) in enumerate(zip(own, pages, strict=False)):
            if theirs >= on_device or (mine != theirs and self._is_wrong(mine, theirs)):
                _engine.give_back(self.namespace.release, [theirs])
                pages[i] = mine
                continue
            self._private.discard(mine)
            self._pins[theirs] += 1
            if mine != theirs:
                self._give_back([mine])
        return pages

    def _is_wrong(self, mine: int, theirs: int) -> bool:
        """Whether a page of another engine isn't to be computed with."""
        if self.verifier.compares and self._differ(mine, theirs):
            self.verifier.fail(theirs)
        return self.verifier.has_failed

    def is_pinned(self, page: int) -> bool:
        """Whether it was found or published."""
        return page in self._pins

    def pin(self, pages: list[int]) -> None:
        """One pin more of each: of a table that shares them."""
        self.namespace.pin(pages)
        self._pins.update(pages)

    def drop(self, pages: list[int]) -> None:
        """A table is gone, or a part of it."""
        private = [page for page in pages if page in self._private]
        pinned = [page for page in pages if page not in self._private]
        self._private.difference_update(private)
        self._pins.subtract(pinned)
        for page in pinned:
            if self._pins[page] <= 0:
                del self._pins[page]
        self._give_back(private)
        _engine.give_back(self.namespace.release, pinned)

    def give_back_spare(self) -> None:
        """Nobody waits for them."""
        self.keeps_spare = False
        if not self._loss.happened:
            spare, self._spare = self._spare, []
            _engine.give_back(self.namespace.free, spare)

    def end(self, request: kvlease.Request, ending: int) -> None:
        """The request is over, and ended so; 0: unknown."""
        with contextlib.suppress(kvlease.Error):  # it is a hint
            request.end(ending=ending)

    def close(self) -> None:
        """Gives back what no request holds."""
        self.give_back_spare()
        _engine.give_back(self.namespace.free, self.trash)

    def _give_back(self, private: list[int]) -> None:
        if self.keeps_spare or self._loss.happened:
            self._spare += private
        else:
            _engine.give_back(self.namespace.free, private)
